# shellcheck shell=sh disable=SC2034,SC2154,SC3010,SC3043
# SPDX-License-Identifier: MIT
# An update that was made on a copy of the card, elsewhere, comes as a file: the running root imports it on trial, goes on, and the next
# boot has it and accepts it. A second one, whose init hangs, is gone two boots later.
# guests: debian12 debian13 busybox
# short: busybox
KILLED="5 6"

step_1() {
	protected || fail "the root is $(root_device)"
	mkdir -p /srv
	echo old >/srv/update
	dd if=/dev/urandom of=/srv/large bs=64k count=100 2>/dev/null
	must cowctl commit root
}

import() { # FILE TEXT-OF-BEFORE
	mkdir -p /run/drive
	must mount -o ro "/dev/$1" /run/drive
	echo "written after the file was made" >/srv/lost
	must cowctl import root /run/drive/delta --trial 2
	umount /run/drive
	is "what runs" "$(cat /srv/update)" "$2"
	cowctl commit root >/run/cowfs-test/out 2>&1 && fail "a commit over the import"
	grep -q 'the next start has generation' /run/cowfs-test/out || fail "commit says $(cat /run/cowfs-test/out)"
}

drive() {
	for disk in /sys/block/vd*; do
		[ "$(cat "$disk/serial" 2>/dev/null)" != update ] || echo "${disk##*/}"
	done
}

step_2() {
	END=reboot
	protected || fail "the root is $(root_device)"
	import "$(drive)" old
}

step_3() {
	protected || fail "the root is $(root_device)"
	is "what the update brought" "$(cat /srv/update)" new
	[ ! -e /srv/lost ] || fail "something of the system before"
	[ ! -e /srv/large ] || fail "what the update removed is there"
	dmesg | grep -q 'is ON TRIAL, 1 more boot' || fail "the boot is not counted"
	wait_for 100 accepted || fail "nothing accepts the root: $(cowctl status root)"
	rm -f /srv/lost
	must cowctl commit root
}

step_4() {
	END=reboot
	protected || fail "the root is $(root_device)"
	is "what was accepted" "$(cat /srv/update)" new
	import "$(drive)" new
}

# the init of the second update hangs

step_7() {
	protected || fail "the root is $(root_device)"
	is "what it went back to" "$(cat /srv/update)" new
	cowctl status root >/run/cowfs-test/out
	is "the status of cowctl status" $? 3
	must cowctl commit root
}

# What somebody makes of a copy of the card.
make_delta() { # TEXT
	local init=/sbin/init
	card_extract "$WORK/part"
	cp --sparse=always "$WORK/part" "$WORK/master"
	printf '%s\n' "$1" >"$WORK/text"
	head -c 3000000 /dev/urandom >"$WORK/more"
	printf '#!/bin/sh\necho this init hangs >/dev/console\nexec sleep 10000\n' >"$WORK/init"
	# a systemd in the initramfs starts that of the system, whatever /sbin/init is
	[[ $GUEST = busybox* ]] || init=/usr/lib/systemd/systemd
	{
		printf 'rm /srv/update\nwrite %s /srv/update\n' "$WORK/text"
		printf 'write %s /srv/more-%s\nrm /srv/large\n' "$WORK/more" "$1"
		[ "$1" != bad ] || printf 'rm %s\nwrite %s %s\nsif %s mode 0100755\n' $init "$WORK/init" $init $init
	} | debugfs -w -f - "$WORK/master" >/dev/null 2>&1
	e2fsck -fn "$WORK/master" >/dev/null 2>&1 || fail "the master is damaged"
	rm -rf "${WORK:?}/drive" "$WORK/drive.img"
	mkdir "$WORK/drive"
	"$BUILD/cowctl" export --base "$WORK/part" "$WORK/master" "$WORK/drive/delta" >/dev/null || fail "cowctl export failed"
	mke2fs -q -F -t ext4 -d "$WORK/drive" "$WORK/drive.img" 32M >/dev/null
	rm "$WORK/master"
}

host_before() {
	DEVICES=
	case $1 in
	2) make_delta new ;;
	4) make_delta bad ;;
	*) return ;;
	esac
	DEVICES="-drive file=$WORK/drive.img,if=none,id=update,format=raw -device virtio-blk-pci,drive=update,serial=update"
}

host_during() {
	case $1 in
	5 | 6) console_wait "this init hangs" && vm_kill ;;
	esac
}

host_after() {
	case $1 in
	3 | 7) card_extract "$WORK/part" && offline_check "$WORK/part" ;;
	esac
	[ "$1" != 7 ] || grep -aq 'THE TRIAL HAS FAILED' "$WORK/console-7" || fail "the console of boot 7 does not tell"
}
