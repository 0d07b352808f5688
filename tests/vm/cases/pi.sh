# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# The life of a Raspberry Pi with cowfs: what stops setup, setup, an updated kernel, cowfs=off in cmdline.txt, `cowctl disable`. The
# host does what the firmware does, from the FAT of the card.
# guests: pios-arm64
. "$CASES/kernel.sh"
# KILLED: the plug is pulled right after the update
MEM=768 LOADER=pi KILLED=2 LIMIT=3600 STEP_LIMIT=3300
firmware=/boot/firmware

stops() { # TEXT OPTION...
	text=$1
	shift
	cowctl setup --dry-run "$@" >/run/cowfs-test/out 2>&1 && fail "setup goes on: no $text"
	tr -s ' \n' ' ' </run/cowfs-test/out | grep -qF "$text" || {
		sed 's/^/# /' /run/cowfs-test/out >>"$LOG"
		fail "setup does not say: $text"
	}
}

# A word in front of cmdline.txt, for the next boot
stops_by_word() { # WORD TEXT
	must sed -i "s/^/$1 /" $firmware/cmdline.txt
	stops "$2"
	must sed -i "s/^$1 //" $firmware/cmdline.txt
}

step_1() {
	is "model" "$(tr -d '\0' </proc/device-tree/model)" 'Raspberry Pi 4 Model B Rev 1.4'
	must mount -o remount,rw /
	wait_for 60 mountpoint -q $firmware || fail "no $firmware"
	stops_by_word resize 'the first boot has not finished (resize)'
	touch /usr/bin/raspi-config
	stops_by_word overlayroot=tmpfs 'the overlay file system of raspi-config is on (overlayroot=tmpfs)'
	wait_for 120 grep -q /var/swap /proc/swaps || fail "dphys-swapfile has made no swap file"
	stops 'swap files on the root would swap RAM to RAM: /var/swap'
	must mount -o remount,ro $firmware
	stops "$firmware is mounted read-only: run mount -o remount,rw $firmware" --swap-off
	must mount -o remount,rw $firmware
	cp $firmware/config.txt /run/config.txt
	must sed -i 's/^auto_initramfs/[pi5]\n&/' $firmware/config.txt
	stops "$firmware/config.txt: on this board (Raspberry Pi 4 Model B Rev 1.4) the firmware loads no initramfs" --swap-off
	must cp /run/config.txt $firmware/config.txt
	must dd if=/dev/zero of=$firmware/full bs=1M count=$(($(df -Pm $firmware | awk 'NR == 2 { print $4 }') - 2))
	stops "MiB free; rebuilding the initramfs needs" --swap-off
	must rm $firmware/full
	mkdir -p /etc/rpi
	touch /etc/rpi/swap.conf
	stops 'rpi-swap makes the swap file /var/swap at each boot' --swap-off
	rm -r /etc/rpi
	must cowctl setup --yes --swap-off
	sed 's/^/# /' /run/cowfs-test/out >>"$LOG"
	grep -q 'fake-hwclock' /run/cowfs-test/out || fail "setup does not see fake-hwclock"
	grep -q '^ROOTPART="PARTUUID=c0ffee00-02"' /etc/default/raspi-firmware || fail "no ROOTPART"
	grep -q ' root=PARTUUID=c0ffee00-02 ' $firmware/cmdline.txt || fail "cmdline.txt: $(cat $firmware/cmdline.txt)"
	echo mine >/srv-mine
}

step_2() {
	protected || fail "the root is $(root_device): $(head -2 /run/cowfs/root.* 2>/dev/null)"
	is "a file of before" "$(cat /srv-mine)" mine
	! grep -q /var/swap /proc/swaps || fail "the swap file is back"
	wait_for 60 mountpoint -q $firmware || fail "no $firmware"
	touch $firmware/x 2>/dev/null && fail "$firmware is writable"
	settled
	before=$(cksum <$firmware/initramfs8)
	must dpkg -i ./kernel.deb
	grep -q ' root=PARTUUID=c0ffee00-02 ' $firmware/cmdline.txt || fail "cmdline.txt: $(cat $firmware/cmdline.txt)"
	cmp "$firmware/initramfs8" "/boot/initrd.img-$(uname -r)" || fail "the new initramfs is not on the FAT"
	cmp "$firmware/initramfs_2712" "/boot/initrd.img-$(uname -r)" || fail "initramfs_2712 is another one"
	[ "$before" != "$(cksum <$firmware/initramfs8)" ] || say "the initramfs is the same as before"
	touch $firmware/x 2>/dev/null && fail "$firmware is writable after dpkg"
	mark updated
	sleep 600
}

step_3() {
	protected || fail "the root is $(root_device): $(head -2 /run/cowfs/root.* 2>/dev/null)"
	dpkg-query -W -f '${Version} ${Status}\n' "linux-image-$(uname -r)" >/run/cowfs-test/out
	say "after the power cut: $(cat /run/cowfs-test/out)"
	must modprobe dummy
	case $(cat /run/cowfs-test/out) in
	*+again*"ok installed" | *+again*half-configured) ;;
	*) fail "the update is lost" ;;
	esac
	echo protected >/srv-mine
	must cowctl commit root
}

step_4() {
	is "state" "$(cat /run/cowfs/root.state)" bypassed
	is "a file of the protected root" "$(cat /srv-mine)" protected
	must sh -c 'echo bare >/srv-mine'
}

step_5() {
	protected || fail "the root is $(root_device): $(head -2 /run/cowfs/root.* 2>/dev/null)"
	is "a file of the bypassed root" "$(cat /srv-mine)" bare
	must cowctl disable
}

step_6() {
	protected && fail "it is protected still"
	must sh -c 'echo left >/srv-mine'
	wait_for 300 test ! -e /etc/cowfs/leaving ||
		fail "it does not leave: $(systemctl status --no-pager cowfs-leave.service 2>&1 | tail -n 5)"
	! grep -q cowfs /etc/fstab /etc/default/raspi-firmware || fail "not as before: $(grep cowfs /etc/fstab /etc/default/raspi-firmware)"
	touch $firmware/x || fail "$firmware stays read-only"
	systemctl is-enabled --quiet dphys-swapfile || fail "dphys-swapfile stays off"
}

host_before() {
	EXTRA=''
	case $1 in
	2) kernel_pack "$DIR" "$WORK" && EXTRA=$WORK/kernel.deb ;;
	4) cmdline_edit 's/$/ cowfs=off/' ;;
	5) cmdline_edit 's/ cowfs=off//' ;;
	esac
}

# On another machine, which needs to know FAT only.
cmdline_edit() {
	mtype -i "$(firmware_part)" ::cmdline.txt | sed "$1" >"$WORK/cmdline.txt"
	mcopy -o -i "$(firmware_part)" "$WORK/cmdline.txt" ::cmdline.txt || fail "no cmdline.txt"
}

host_during() {
	[ "$1" = 2 ] || return 0
	wait_mark updated && vm_kill
}

host_after() {
	[ "$1" = 6 ] || return 0
	card_extract "$WORK/part"
	e2fsck -fn "$WORK/part" >"$WORK/e2fsck.out" 2>&1 || fail "e2fsck: $(tail -3 "$WORK/e2fsck.out")"
}
