# shellcheck shell=sh disable=SC2016,SC2034,SC2154
# SPDX-License-Identifier: MIT
# The protection on trial (`trial = 2`), with which no boot was accepted yet: whatever keeps it from working, the root is an
# ordinary one in the next boot, or in this one. Then a boot is accepted, and from there on a failure is read-only.
# guests: debian12 debian13 busybox
# short: busybox
KILLED='6 7'

writable() { # WHY
	is state "$(cat /run/cowfs/root.state)" bypassed
	grep -q "$1.*the protection is on trial" /run/cowfs/root.bypassed || fail "the reason is '$(head -n 1 /run/cowfs/root.bypassed)'"
	mount -o remount,rw / 2>/dev/null
	echo "$BOOT" >>/srv-boots || fail "the root is not writable"
	sync
	cowctl status >/run/cowfs-test/out 2>&1
	is "the exit code of cowctl status" $? 3
	grep -q 'the protection is on trial' /run/cowfs-test/out || fail "cowctl status does not tell"
	dmesg | grep -q 'cowfs: root: NOT PROTECTED' || fail "the kernel log does not tell"
}

step_1() { writable 'cowctl boot ended with status 12[67]'; }
step_2() { writable 'FUSE'; }
step_3() { writable 'neither \[SECTION\] nor KEY'; }
step_4() { writable 'no cowfs log\|both superblocks'; }
step_5() {
	writable 'lacks cowfs'
	# the next boots are not accepted before the daemon dies
	mkdir -p /etc/cowfs/accept.d
	printf '#!/bin/sh\nsleep 1000\n' >/etc/cowfs/accept.d/wait
	chmod 755 /etc/cowfs/accept.d/wait
}

# The daemon dies after a while, and with it its root: the supervisor restarts the machine.
dies() {
	protected || fail "the root is $(root_device)"
	dmesg | grep -q "THE PROTECTION IS ON TRIAL, $1 more boot" || fail "the boot is not counted"
	echo "$BOOT" >>/srv-boots
	cowctl commit root >/dev/null
	mark dying
	END=none
	sleep 5
	# one worker after another, until no other takes its place
	while read -r pid </run/cowfs/root/pid; do
		kill -9 "$pid"
		sleep 0.2
	done
	sleep 1000
}
step_6() { dies 1; }
step_7() { dies 0; }

step_8() {
	writable 'no boot with this initramfs was accepted'
	is "the boots before" "$(xargs </srv-boots)" "1 2 3 4 5 6 7 8"
	rm /etc/cowfs/accept.d/wait
}

proven() { [ "$(cat /etc/cowfs/proven)" = good ]; }

step_9() {
	protected || fail "the root is $(root_device)"
	dmesg | grep -q 'THE PROTECTION IS ON TRIAL, 1 more boot' || fail "the boot is not counted"
	is "the boots before" "$(xargs </srv-boots)" "1 2 3 4 5 6 7 8"
	wait_for 100 proven || fail "nothing accepts the initramfs"
	sleep 2
	is "the status" "$(cowctl status root >/dev/null && echo ok)" ok
}

readonly_root() {
	is state "$(cat /run/cowfs/root.state)" failed
	mount -o remount,rw / 2>/dev/null
	touch /srv-write 2>/dev/null && fail "the root is writable"
	is "sectors written" "$(card_written)" 0
}
step_10() { readonly_root; }
step_11() { readonly_root; }

# What the guest's initramfs gets above it: another archive behind it
more() { # NAME
	[ -e "$WORK/conf" ] || {
		card_extract "$WORK/part"
		debugfs -R 'cat /etc/cowfs/cowfs.conf' "$WORK/part" 2>/dev/null >"$WORK/conf"
		grep -qx '\[root\]' "$WORK/conf"
		sed -i '/^\[root\]$/a trial = 2' "$WORK/conf"
		printf '%s\n' 'cd /etc/cowfs' 'rm cowfs.conf' "write $WORK/conf cowfs.conf" | debugfs -w "$WORK/part" >/dev/null 2>&1
		card_put "$WORK/part"
	}
	rm -rf "$WORK/more"
	mkdir -p "$WORK/more/etc/cowfs"
	cp "$WORK/conf" "$WORK/more/etc/cowfs/cowfs.conf"
	echo "$1" >"$WORK/more/etc/cowfs/trial"
}

make_initrd() {
	(cd "$WORK/more" && find . | cpio --quiet -o -H newc -R 0:0) >"$WORK/more.cpio"
	# archives begin at multiples of four
	{ cat "$DIR/initrd.img" && dd if=/dev/zero bs=1 count=$(((512 - $(stat -c %s "$DIR/initrd.img") % 512) % 512)) status=none && cat "$WORK/more.cpio"; } >"$WORK/initrd"
	INITRD=$WORK/initrd
}

break_log() {
	card_extract "$WORK/part"
	# all that is behind the file system
	blocks=$(dumpe2fs -h "$WORK/part" 2>/dev/null | sed -n 's/^Block count: *//p')
	unit=$(dumpe2fs -h "$WORK/part" 2>/dev/null | sed -n 's/^Block size: *//p')
	size=$(stat -c %s "$WORK/part")
	dd if=/dev/urandom of="$WORK/part" bs="$unit" seek="$blocks" count=$((size / unit - blocks)) conv=notrunc status=none
	card_put "$WORK/part"
}

host_before() {
	more bad
	APPEND=''
	case $1 in
	1)
		mkdir -p "$WORK/more/usr/sbin"
		: >"$WORK/more/usr/sbin/cowfs"
		;;
	2) APPEND='module_blacklist=fuse initcall_blacklist=fuse_init' ;;
	3) echo nonsense >>"$WORK/more/etc/cowfs/cowfs.conf" ;;
	4) break_log ;;
	5)
		# as if the initramfs had none
		mkdir -p "$WORK/more/usr/lib/cowfs"
		{ cat "$TOP/initramfs/cowfs.sh" && echo 'cowfs_start() { COWFS_STATE=unconfigured COWFS_MOUNT=$1 COWFS_OPTIONS=; }'; } \
			>"$WORK/more/usr/lib/cowfs/cowfs.sh"
		;;
	6)
		card_extract "$WORK/part"
		"$BUILD/cowctl" prepare --force "$WORK/part" >/dev/null
		card_put "$WORK/part"
		;;
	9) more good ;;
	10)
		more good
		echo nonsense >>"$WORK/more/etc/cowfs/cowfs.conf"
		;;
	11)
		more good
		break_log
		;;
	esac
	make_initrd
}
