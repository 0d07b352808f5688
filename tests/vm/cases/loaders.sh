# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# `cowctl setup` on systems that GRUB on EFI and U-Boot start: protected, cowfs=off as cowfs-boot(7) says for that boot loader,
# protected again, `cowctl disable`. GRUB gets it once, at its menu. U-Boot reads extlinux.conf in the root.
# guests: debian12-plain-efi debian12-plain-uboot
LIMIT=2700 STEP_LIMIT=2400
extlinux=/boot/extlinux/extlinux.conf

step_1() {
	protected && fail "it is protected already"
	must mount -o remount,rw /
	case $GUEST in
	*-efi) grub_again ;;
	esac
	must cowctl setup --yes
	sed 's/^/# /' /run/cowfs-test/out >>"$LOG"
	case $GUEST in
	*-efi) grep -q 'boot loader: GRUB' /run/cowfs-test/out || fail "setup does not know GRUB" ;;
	*-uboot) grep -q "boot loader: U-Boot with $extlinux" /run/cowfs-test/out || fail "setup does not know U-Boot" ;;
	esac
}

# Debian's own tools in the place of what the host has put there
grub_again() {
	is "firmware" "$(ls -d /sys/firmware/efi)" /sys/firmware/efi
	wait_for 60 mountpoint -q /boot/efi || fail "no /boot/efi"
	# that of the firmware, which reads the serial line as well and would take keys away
	[ -e /etc/default/grub.d/console.cfg ] || cat >/etc/default/grub.d/console.cfg <<-'END'
		GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0 panic=-1"
		GRUB_TERMINAL=console
		GRUB_TIMEOUT=10
		GRUB_DISABLE_OS_PROBER=true
	END
	must grub-install --target=x86_64-efi --efi-directory=/boot/efi --removable --no-nvram
	must grub-mkconfig -o /boot/grub/grub.cfg
	# the editor of the menu shows a title and an empty line, then the lines of the entry
	value line "$(awk '/^menuentry/ { n = NR } n && $1 == "linux" { print NR - n + 1; exit }' /boot/grub/grub.cfg)"
}

step_2() {
	protected || fail "the root is $(root_device): $(head -2 /run/cowfs/root.* 2>/dev/null)"
	case $GUEST in
	*-efi)
		must /usr/lib/cowfs/dpkg-hook boot-on
		grub_again
		must /usr/lib/cowfs/dpkg-hook boot-off
		;;
	*-uboot)
		must sed -i '/^[[:space:]]*append /s/$/ cowfs=off/' $extlinux
		must cowctl commit root --checkpoint
		;;
	esac
	echo protected >/srv-mine
	must cowctl commit root
}

step_3() {
	is "state" "$(cat /run/cowfs/root.state)" bypassed
	grep -q ' cowfs=off' /proc/cmdline || fail "no cowfs=off: $(cat /proc/cmdline)"
	is "a file of the protected root" "$(cat /srv-mine)" protected
	must mount -o remount,rw /
	must sh -c 'echo bare >/srv-mine'
	case $GUEST in
	*-uboot) must sed -i 's/ cowfs=off$//' $extlinux ;;
	esac
}

step_4() {
	protected || fail "the root is $(root_device): $(head -2 /run/cowfs/root.* 2>/dev/null)"
	! grep -q cowfs= /proc/cmdline || fail "cowfs=off stays: $(cat /proc/cmdline)"
	is "a file of the bypassed root" "$(cat /srv-mine)" bare
	case $GUEST in
	*-uboot) must u-boot-update ;;
	esac
	must cowctl disable
}

step_5() {
	protected && fail "it is protected still"
	must mount -o remount,rw /
	must sh -c 'echo left >/srv-mine'
	wait_for 240 test ! -e /etc/cowfs/leaving ||
		fail "it does not leave: $(systemctl status --no-pager cowfs-leave.service 2>&1 | tail -n 5)"
}

host_after() {
	[ "$1" != 2 ] || line=$(value line)
	[ "$1" = 5 ] || return 0
	card_extract "$WORK/part"
	e2fsck -fn "$WORK/part" >"$WORK/e2fsck.out" 2>&1 || fail "e2fsck: $(tail -3 "$WORK/e2fsck.out")"
}

# e; down to the line that begins with linux; its end; Ctrl-x
host_during() {
	[ "$1:$LOADER" = 3:efi ] || return 0
	console_type 'will be executed automatically' "e$(printf '\\x0e%.0s' $(seq "$line"))\\x05 cowfs=off\\x18"
}
