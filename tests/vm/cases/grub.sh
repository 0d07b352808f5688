# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# grub-mkconfig on a protected root: a menu with Linux in it, about the partition and not the loop device; /boot apart, and
# inside of the root.
# guests: debian12-grub debian13-grub
LIMIT=1200 STEP_LIMIT=900

# $1: what the menu must search for
menu_is_good() {
	must grub-mkconfig -o /run/grub.cfg
	grep -q 'linux.*/vmlinuz.* root=' /run/grub.cfg || fail "no Linux in the menu: $(grep -c . /run/grub.cfg) lines"
	grep -q 'initrd.*/initrd.img' /run/grub.cfg || fail "no initramfs in the menu"
	grep -q "search .*--set=root.* $1" /run/grub.cfg || fail "the menu does not look for $1: $(grep search /run/grub.cfg | head -3)"
	! grep 'root=/dev/loop' /run/grub.cfg || fail "the menu names a loop device"
}

step_1() {
	protected || fail "the root is $(root_device)"
	root_uuid=$(blkid -o value -s UUID "$(root_device)")
	boot_uuid=$(blkid -o value -s UUID "$(findmnt -n -o SOURCE /boot)")
	menu_is_good "$boot_uuid"
	grep -q "root=UUID=$root_uuid " /run/grub.cfg || fail "root= is not by UUID: $(grep -m1 root= /run/grub.cfg)"
	# this is why
	mv /etc/default/grub.d/cowfs.cfg /run/
	grub-mkconfig -o /run/bare.cfg >/run/bare.out 2>&1
	say "without cowfs.cfg: status $?, $(grep -c 'linux.*vmlinuz' /run/bare.cfg) Linux entries, $(tail -n 1 /run/bare.out)"
	! grep -q 'linux.*/vmlinuz' /run/bare.cfg || fail "GRUB has learned it: cowfs.cfg is not needed any more"
	mv /run/cowfs.cfg /etc/default/grub.d/
	# now inside
	mkdir /run/boot
	cp -a /boot/. /run/boot
	must umount /boot
	cp -a /run/boot/. /boot
	menu_is_good "$root_uuid"
	# what a package upgrade may do: told, not required
	grub-install --target=i386-pc --recheck /dev/vda >/run/install.out 2>&1
	say "grub-install: status $?, $(tail -n 1 /run/install.out)"
}
