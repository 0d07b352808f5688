# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A root on trial with /boot inside the volume and `checkpoint = always`, started by Debian's GRUB on EFI, and by U-Boot. The update has a
# new kernel, a new boot menu and another initramfs for the old kernel. Boot loaders read the bare card: they start the old kernel with
# the old initramfs while the root is on trial and behind a trial that failed, and the new kernel once the root is accepted.
# guests: debian12-efi debian12-uboot
KILLED="3 5" LIMIT=900 STEP_LIMIT=600
mark=/usr/share/trial-loader

# The root, and the kernel that the boot loader has started; "new": with another initramfs
booted() { # ROOT KERNEL
	protected || fail "the root is $(root_device)"
	grep -q 'cowfs=checkpoint:always' /proc/cmdline || fail "no checkpoint=always: $(cat /proc/cmdline)"
	is "the root" "$(cat $mark)" "$1"
	is "the initramfs" "$(dmesg | sed -n 's/.*this initramfs is for //p')" "$2"
	case $GUEST in
	*-efi) is "the kernel" "$(sed 's/^BOOT_IMAGE=\([^ ]*\).*/\1/' /proc/cmdline)" "/boot/vmlinuz-${2:-$(uname -r)}" ;;
	esac
}

# By Debian's own tools, in the place of what the host has put there
grub_inside() {
	is "firmware" "$(ls -d /sys/firmware/efi)" /sys/firmware/efi
	mkdir /run/boot
	must umount /boot/efi
	cp -a /boot/. /run/boot
	must umount /boot
	cp -a /run/boot/. /boot
	sed -i '/ \/boot /d' /etc/fstab
	must mount /boot/efi
	cat >/etc/default/grub.d/console.cfg <<-'END'
		GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0 panic=-1 cowfs=checkpoint:always"
		GRUB_TERMINAL=console
		GRUB_TIMEOUT=1
		GRUB_DISABLE_OS_PROBER=true
	END
	# as a script of a package that apt installs: it sees no partition table below a loop device
	eval "$(apt-config shell path DPkg::Path)"
	must env PATH="$path" grub-install --target=x86_64-efi --efi-directory=/boot/efi --removable --no-nvram
}

menu() {
	case $GUEST in
	*-efi)
		must grub-mkconfig -o /boot/grub/grub.cfg
		first=$(grep -m 1 'linux.*vmlinuz' /boot/grub/grub.cfg)
		;;
	*-uboot)
		must u-boot-update
		first=$(grep -m 1 'linux.*vmlinuz' /boot/extlinux/extlinux.conf)
		;;
	esac
	case $first in
	*"/vmlinuz-$1"*) ;;
	*) fail "the first entry is $first" ;;
	esac
}

step_1() {
	END=reboot
	protected || fail "the root is $(root_device)"
	case $GUEST in
	*-efi) grub_inside ;;
	*-uboot) must sed -i '/^U_BOOT_PARAMETERS=/s/"$/ cowfs=checkpoint:always"/' /etc/default/u-boot ;;
	esac
	menu "$(uname -r)"
	echo old >$mark
	must cowctl commit root --checkpoint
}

# An archive behind the initramfs, which says so
new_initramfs() { # FROM TO VERSION
	rm -rf /run/new
	mkdir -p /run/new/conf/conf.d
	echo "echo '<5>this initramfs is for $3' >/dev/kmsg" >/run/new/conf/conf.d/new
	{ cat "$1" && dd if=/dev/zero bs=1 count=$(((512 - $(stat -c %s "$1") % 512) % 512)) 2>/dev/null &&
		(cd /run/new && find . | cpio --quiet -o -H newc); } >/run/new.img
	rm -f "$2"
	cp /run/new.img "$2"
}

update() {
	now=$(uname -r)
	mkdir /lib/modules/9.9
	cp -al "/lib/modules/$now/." /lib/modules/9.9
	cp "/boot/vmlinuz-$now" /boot/vmlinuz-9.9
	new_initramfs "/boot/initrd.img-$now" /boot/initrd.img-9.9 9.9
	new_initramfs "/boot/initrd.img-$now" "/boot/initrd.img-$now" "$now"
	menu 9.9
	echo new >$mark
	must cowctl commit root --trial 1
}

step_2() {
	END=reboot
	booted old ''
	update
	mkdir -p /etc/cowfs/accept.d
	printf '#!/bin/sh\nexec sleep 500\n' >/etc/cowfs/accept.d/never
	chmod 755 /etc/cowfs/accept.d/never
}

step_3() {
	END=none
	booted new ''
	dmesg | grep -q 'is ON TRIAL, 0 more boots' || fail "the boot is not counted"
	must cowctl commit root
	mark tried
	sleep 300
}

step_4() {
	END=reboot
	booted old ''
	cowctl status root >/run/cowfs-test/out
	is "the status of cowctl status" $? 3
	grep -q 'THE TRIAL HAS FAILED' /run/cowfs-test/out || fail "the status does not tell"
	[ ! -e /lib/modules/9.9 ] || fail "the modules of the new kernel are there"
	update
}

# The power goes right behind accept
step_5() {
	END=none
	booted new ''
	wait_for 200 accepted || fail "nothing accepts the root: $(cowctl status root) $(systemctl status cowfs-accept)"
	mark accepted
	sleep 300
}

step_6() {
	booted new 9.9
	must cowctl commit root
}

host_during() {
	case $1 in
	3) wait_mark tried && vm_kill ;;
	5) wait_mark accepted && vm_kill ;;
	esac
}
