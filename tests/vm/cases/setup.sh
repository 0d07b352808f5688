# shellcheck shell=sh disable=SC2016,SC2034,SC2154
# SPDX-License-Identifier: MIT
# `cowctl setup` on an ordinary system that boots from its own boot loader: protected after the next boot, with room made for
# the log; `cowctl disable` puts it back. An initramfs that cannot be built leaves everything as it was.
# guests: debian12-plain debian13-plain debian12-plain-arm64 debian13-plain-arm64
# guests: debian12-plain-luks debian13-plain-luks debian12-plain-lvm debian13-plain-lvm debian12-plain-md debian13-plain-md
LOADER=1 LIMIT=2700 STEP_LIMIT=2400

# nofail: nothing that is up has waited for it
boot_mounted() { wait_for 240 grep -q ' /boot ext4' /proc/mounts || fail "/boot is not mounted"; }

step_1() {
	protected && fail "it is protected already"
	boot_mounted
	mount -o remount,rw /
	echo mine >/srv-mine
	must cowctl setup --dry-run
	sed 's/^/# /' /run/cowfs-test/out >>"$LOG"
	is "dry run has installed" "$(ls /etc/cowfs)" ""
	broken_initramfs
	must cowctl setup --yes
}

# A hook fails for the new configuration only.
broken_initramfs() {
	hook=/etc/initramfs-tools/hooks/broken
	[ -d "${hook%/*}" ] || return 0
	printf '#!/bin/sh\n[ "$1" = prereqs ] || ! grep -q enabled /etc/cowfs/cowfs.conf\n' >$hook
	chmod +x $hook
	before=$(sha256sum /etc/fstab)
	cowctl setup --yes >/run/cowfs-test/out 2>&1 && fail "setup has not noticed the initramfs"
	grep -q 'update-initramfs failed.*; the changes were taken back$' /run/cowfs-test/out || fail "$(tail -n 2 /run/cowfs-test/out)"
	is "after a failure" "$(ls /etc/cowfs)$(ls -d /run/cowfs-setup-* 2>/dev/null)" ""
	is "fstab" "$(sha256sum /etc/fstab)" "$before"
	rm $hook
}

step_2() {
	protected || fail "the root is $(root_device): $(head -2 /run/cowfs/root.* 2>/dev/null)"
	is "a file of before" "$(cat /srv-mine)" mine
	boot_mounted
	grep -q '/boot.*,ro,x-cowfs' /etc/fstab || fail "setup has not told the fstab: $(grep /boot /etc/fstab)"
	touch /boot/x 2>/dev/null && fail "/boot is writable"
	# the protection is on trial until this boot is accepted
	dmesg | grep -q 'THE PROTECTION IS ON TRIAL, 2 more boots' || fail "the boot is not counted"
	wait_for 300 test -e /etc/cowfs/proven || fail "the boot is not accepted: $(systemctl status --no-pager cowfs-accept.service 2>&1 | tail -n 5)"
	echo protected >/srv-mine
	sync
}

step_3() {
	protected || fail "the root is $(root_device)"
	is "a file of the last boot" "$(cat /srv-mine)" protected
	is "sectors written since boot" "$(card_written)" 0
	boot_mounted
	closed_initramfs
	must cowctl disable
}

# An initramfs made on the protected root, which is a loop device, would not open what is below.
closed_initramfs() {
	[ -e /usr/share/initramfs-tools/hooks/cryptroot ] || return 0
	case $GUEST in
	*-luks*) ;;
	*) return 0 ;;
	esac
	must grep -q '^root .* initramfs,' /etc/crypttab
	before=$(cat /boot/initrd.img-* | sha256sum)
	sed -i 's/ initramfs,/ /' /etc/crypttab
	mount -o remount,rw /boot
	update-initramfs -u >/run/cowfs-test/out 2>&1 && fail "an initramfs without LUKS has been made"
	grep -q 'cowfs: this initramfs cannot open root' /run/cowfs-test/out || fail "$(tail -n 2 /run/cowfs-test/out)"
	is "the initramfs" "$(cat /boot/initrd.img-* | sha256sum)" "$before"
	mount -o remount,ro /boot
	sed -i 's/^root .*/&,initramfs/' /etc/crypttab
}

step_4() {
	protected && fail "it is protected still"
	is "a file of before" "$(cat /srv-mine)" protected
	must mount -o remount,rw /
	echo bare >/srv-mine || fail "the root cannot be written"
	# what setup did is taken away
	wait_for 240 test ! -e /etc/cowfs/leaving ||
		fail "it does not leave: $(systemctl status --no-pager cowfs-leave.service 2>&1 | tail -n 5)"
	! grep x-cowfs /etc/fstab || fail "the fstab is not as before"
	must touch /boot/x
	rm /boot/x
	blocks=$(dumpe2fs -h "$(root_device)" 2>/dev/null | sed -n 's/^Block count: *//p')
	[ $((blocks * 8)) -gt $(($(blockdev --getsz "$(root_device)") - 8192)) ] ||
		fail "the room of the log is not back: $blocks blocks"
}

host_after() {
	card_extract "$WORK/part"
	e2fsck -fn "$WORK/part" >"$WORK/e2fsck.out" 2>&1 || fail "e2fsck: $(tail -3 "$WORK/e2fsck.out")"
}
