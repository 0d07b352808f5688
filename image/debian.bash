# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# The Debian trees of images and guests: a small systemd system whose kernel and initramfs lie on a /boot of their own.
#
#	debian_tree KIND TREE OVERLAY...	KIND is debian12, debian13 or testing, with -generic for the kernel of real machines,
#						pios (Debian 13: pios13) with the files of Raspberry Pi OS;
#						-efi for GRUB on EFI, -uboot for u-boot-menu and /boot inside the root;
#						-sdboot for systemd-boot, /boot inside the root, TREE.efi for EFI's partition;
#						TREE and TREE.boot are made; each OVERLAY is a folder to copy over it
#						-luks (with a key in the initramfs; -luks-ask: by passphrase), -lvm, -md for a root on such a
#						device
#	IMAGE_PLAIN=1		cowfs is installed, and that is all; IMAGE_BARE=1: not even that
#	IMAGE_LOWER		where the tree will be as an image: cowctl setup --image prepares it
#	IMAGE_KERNEL		the Debian suite that the kernel comes from, if not this Debian
#	IMAGE_MODULES		more for the initramfs of another architecture
#	IMAGE_CONF, IMAGE_CMDLINE, IMAGE_PACKAGES	more for [root] of cowfs.conf, the kernel command line, apt

DEBIAN_PACKAGES="systemd-sysv udev kmod dbus e2fsprogs mount util-linux procps login zstd"

debian_packages() {
	local kind=$1 suite libs
	suite=$(suite_of "$kind")
	libs=IMAGE_LIBS_$suite
	case $kind in
	*-generic*) kernel_package | sed 's/-cloud//' ;;
	*) kernel_package ;;
	esac
	case $kind in
	*-initramfs*) echo "initramfs-tools" ;;
	debian12* | pios*) echo "initramfs-tools" ;;
	*) echo "dracut" ;;
	esac
	case $kind in
	*-grub*) echo "grub-pc fdisk" ;;
	pios*-generic*) echo "raspi-firmware dosfstools" ;;
	pios*) echo "raspi-firmware fake-hwclock dphys-swapfile dosfstools" ;;
	*-efi*) echo "grub-efi-amd64-bin grub2-common fdisk" ;;
	*-uboot*) echo "u-boot-menu fdisk" ;;
	*-sdboot*) echo "systemd-boot" ;;
	*-luks* | *-lvm* | *-md*) stack_packages "$kind" ;;
	esac
	# shellcheck disable=SC2086 # one each line
	printf '%s\n' $DEBIAN_PACKAGES ${!libs} ${IMAGE_PACKAGES-}
}

# All of them on each such guest, as programs of other layers do nothing there.
stack_packages() {
	echo "cryptsetup lvm2 mdadm"
	case $1 in
	debian12* | *-initramfs*) echo "cryptsetup-initramfs" ;;
	*) echo "systemd-cryptsetup" ;;
	esac
}

debian_tar() {
	local suite packages
	suite=$(suite_of "$1")
	mapfile -t packages < <(debian_packages "$1")
	echo "$CACHE/$suite-${IMAGE_ARCH:+$IMAGE_ARCH-}$(printf '%s\n' "${packages[@]}" ${IMAGE_MODULES:+"$IMAGE_MODULES"} | sha256sum | cut -c1-12).tar"
}

# Prints shell commands for the root $1. An emulated mkinitramfs takes a second for each module, and there are a thousand: only
# those of virtual machines.
initramfs_small() {
	local modules="virtio_pci virtio_blk virtio_rng virtio_mmio ext4 loop fuse sdhci_pci mmc_block ${IMAGE_MODULES-}"
	cat <<-END
		cd "\$1" && mkdir -p etc/dracut.conf.d etc/initramfs-tools/conf.d usr/share/initramfs-tools/modules.d
		echo MODULES=list >etc/initramfs-tools/conf.d/image
		echo $modules | tr ' ' '\n' >usr/share/initramfs-tools/modules.d/image
		echo 'drivers=" $modules "' >etc/dracut.conf.d/drivers.conf
	END
}

debian_fetch() {
	local packages
	mapfile -t packages < <(debian_packages "$1")
	SETUP_HOOK=${IMAGE_ARCH:+$(initramfs_small)} rootfs_tar "$(suite_of "$1")" "$(debian_tar "$1")" "${packages[@]}"
}

debian_tree() {
	local kind=$1 tree=$2 overlay suite
	shift 2
	suite=$(suite_of "$kind")
	debian_fetch "$kind"
	rm -rf "$tree" "$tree.boot"
	rootfs_unpack "$(debian_tar "$kind")" "$tree"
	[ -z "${IMAGE_KERNEL-}" ] || kernel_put "$tree" "$IMAGE_KERNEL"
	debian_settle "$kind" "$tree"
	for overlay; do
		cp -a --no-preserve=ownership "$overlay/." "$tree/"
	done
	[ -z "${IMAGE_PLAIN-}" ] || debian_initramfs "$kind" "$tree"
	if [ -z "${IMAGE_BARE-}" ]; then
		cowfs_tree "$suite" "$tree.cowfs"
		cp -a --no-preserve=ownership "$tree.cowfs/." "$tree/"
		rm -rf "$tree.cowfs"
	fi
	if [ -n "${IMAGE_LOWER-}" ]; then
		COWFS_LIBDIR=$TOP/systemd "$BUILD/cowctl" setup --image "$tree" --lower "$IMAGE_LOWER" --yes >"$tree.log" 2>&1 ||
			{ cat "$tree.log" >&2; die "cowctl setup --image failed"; }
		rm -f "$tree.log"
	elif [ -z "${IMAGE_PLAIN-}" ]; then
		debian_protect "$tree"
		debian_initramfs "$kind" "$tree"
	fi
	case $kind in
	pios*)
		sed -i 's/root=[^ ]*/root=PARTUUID=c0ffee00-02/' "$tree/boot/firmware/cmdline.txt"
		cp -r "$tree/boot/firmware" "$tree.boot"
		rm -r "$tree/boot/firmware"/*
		return
		;;
	*-uboot*)
		chroot_run "$tree" u-boot-update 2>/dev/null || die "no extlinux.conf"
		cp -a "$tree/boot" "$tree.boot"
		return
		;;
	*-sdboot*)
		cp -a "$tree/boot" "$tree.boot"
		sdboot_put "$tree" "root=$(root_name "$kind") ro console=$(image_console) panic=-1 ${IMAGE_CMDLINE-}"
		return
		;;
	esac
	mv "$tree/boot" "$tree.boot"
	mkdir "$tree/boot"
	loader_config "$tree.boot" "root=$(root_name "$kind") ro ${IMAGE_CMDLINE-}"
}

# What an installer would do.
debian_settle() {
	local kind=$1 tree=$2 boot=ro,x-cowfs,noatime,nofail
	[ -z "${IMAGE_PLAIN-}${IMAGE_LOWER-}" ] || boot=noatime,nofail
	echo cowfs >"$tree/etc/hostname"
	: >"$tree/etc/machine-id"
	ln -sf /proc/self/mounts "$tree/etc/mtab"
	# The boot loader reads /boot behind the back of cowfs, so it is read-only, and a check at boot would write to it
	cat >"$tree/etc/fstab" <<-END
		$(root_name "$kind")  /      auto  noatime${IMAGE_ROOT_OPTIONS-,discard}  0 1
		PARTUUID=c0ffee00-01  /boot  ext4  $boot  0 0
	END
	stack_settle "$kind" "$tree"
	case $kind in
	*-efi* | *-sdboot* | *-uboot* | *-squashfs* | *-erofs* | *-plain-luks* | *-plain-lvm* | *-plain-md*) small_initramfs "$tree" ;;
	esac
	case $kind in
	*-efi* | *-sdboot*)
		mkdir "$tree/boot/efi"
		echo "PARTUUID=c0ffee00-03  /boot/efi  vfat  umask=0077,nofail  0 0" >>"$tree/etc/fstab"
		;;
	pios*) pios_settle "$tree" ;;
	esac
	case $kind in
	*-sdboot*)
		# as the installer writes it: local-fs.target waits for what systemd-bless-boot.service needs
		sed -i '/ \/boot /d; s/umask=0077,nofail/umask=0077/' "$tree/etc/fstab"
		# it wants a GPT, and images have an MBR
		mkdir -p "$tree/etc/systemd/system/systemd-bless-boot.service.d"
		printf '[Service]\nEnvironment=SYSTEMD_RELAX_ESP_CHECKS=1\n' >"$tree/etc/systemd/system/systemd-bless-boot.service.d/mbr.conf"
		;;
	*-uboot*)
		sed -i '/ \/boot /d' "$tree/etc/fstab"
		echo 'U_BOOT_PARAMETERS="ro console='"$(image_console)"' panic=-1"' >>"$tree/etc/default/u-boot"
		;;
	esac
	# one name that the boot loader knows, whatever the version; the newest by the kernel's own postinst
	printf 'do_symlinks = yes\nlink_in_boot = yes\nno_symlinks = no\n' >"$tree/etc/kernel-img.conf"
	# shellcheck disable=SC2016 # for the inner shell
	chroot_run "$tree" sh -c '
		echo root:cowfs | chpasswd
		v=$(ls /lib/modules | sort -V | tail -1)
		linux-update-symlinks install "$v" /boot/vmlinu[xz]-"$v"
		systemctl -q enable "serial-getty@$0" systemd-networkd
		systemctl -q mask apt-daily.timer apt-daily-upgrade.timer' "$(image_console)" >/dev/null 2>&1 || die "the tree cannot be set up"
	printf '[Match]\nName=en* eth*\n[Network]\nDHCP=yes\n' >"$tree/etc/systemd/network/80-dhcp.network"
}

# For guests that make an initramfs again and again, which takes most of their time. dracut makes a small one by itself.
small_initramfs() {
	[ ! -x "$1/usr/bin/dracut" ] || return 0
	echo 'MODULES=list' >"$1/etc/initramfs-tools/conf.d/small"
	printf '%s\n' virtio_pci virtio_blk ext4 >>"$1/etc/initramfs-tools/modules"
}

# What the image of Raspberry Pi OS has beside Debian's packages. Its firmware loads kernel8.img with initramfs8, on a Pi 5
# kernel_2712.img with initramfs_2712. The raspi-firmware of Debian is told to leave them alone; it writes config.txt and
# cmdline.txt.
pios_settle() {
	local tree=$1 dir
	printf '%s\n' 'PARTUUID=c0ffee00-01  /boot/firmware  vfat  defaults          0  2' \
		'PARTUUID=c0ffee00-02  /               ext4  defaults,noatime  0  1' >"$tree/etc/fstab"
	printf '%s\n' 'KERNEL=kernel8.img' 'INITRAMFS=no' 'CONSOLES="tty0 ttyAMA0,115200 ttyS1,115200"' >>"$tree/etc/default/raspi-firmware"
	printf '%s\n' 'camera_auto_detect=1' 'auto_initramfs=1' '[cm4]' 'otg_mode=1' '[cm5]' 'dtoverlay=dwc2,dr_mode=host' '[all]' \
		>"$tree/etc/default/raspi-firmware-custom"
	echo 'panic=-1' >"$tree/etc/default/raspi-extra-cmdline"
	[ ! -e "$tree/etc/dphys-swapfile" ] || echo 'CONF_SWAPSIZE=16' >"$tree/etc/dphys-swapfile"
	for dir in kernel/postinst.d initramfs/post-update.d; do
		cat >"$tree/etc/$dir/z51-pios" <<-'END'
			#!/bin/sh
			set -e
			[ -e "/boot/initrd.img-$1" ] || exit 0
			for name in 8 _2712; do
				cp "/boot/vmlinuz-$1" "/boot/firmware/kernel$name.img"
				cp "/boot/initrd.img-$1" "/boot/firmware/initramfs$name"
			done
		END
		chmod +x "$tree/etc/$dir/z51-pios"
	done
}

# LUKS: opened in the initramfs, with a key in it. dracut takes the crypttab as it is only if it is made for this host.
stack_settle() {
	local kind=$1 tree=$2
	case $kind in
	*-luks-ask*)
		echo "root PARTUUID=c0ffee00-02 none luks,discard,initramfs" >"$tree/etc/crypttab"
		[ ! -x "$tree/usr/bin/dracut" ] || echo 'install_items+=" /etc/crypttab "' >"$tree/etc/dracut.conf.d/keys.conf"
		;;
	*-luks*)
		mkdir -p "$tree/etc/keys"
		printf cowfs >"$tree/etc/keys/root.key"
		chmod 400 "$tree/etc/keys/root.key"
		echo "root PARTUUID=c0ffee00-02 /etc/keys/root.key luks,discard,initramfs" >"$tree/etc/crypttab"
		mkdir -p "$tree/etc/cryptsetup-initramfs"
		printf '%s\n' 'KEYFILE_PATTERN=/etc/keys/*.key' 'UMASK=0077' >>"$tree/etc/cryptsetup-initramfs/conf-hook"
		[ ! -x "$tree/usr/bin/dracut" ] ||
			echo 'install_items+=" /etc/crypttab /etc/keys/root.key "' >"$tree/etc/dracut.conf.d/keys.conf"
		;;
	*-md*) echo "ARRAY /dev/md0 metadata=1.2 UUID=c0ffee00:00004000:80000000:0000000a" >"$tree/etc/mdadm/mdadm.conf" ;;
	esac
}

debian_protect() {
	mkdir -p "$1/etc/cowfs"
	printf '# SPDX-License-Identifier: MIT\n# see cowfs.conf(5)\n[root]\n%s' "${IMAGE_CONF-}" >"$1/etc/cowfs/cowfs.conf"
}

# An image of dracut that is not made for this host activates a logical volume or an array only with rd.auto.
debian_initramfs() {
	local kind=$1 tree=$2 same=()
	if [ "${SOURCE_DATE_EPOCH-}" ]; then
		same=(env "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH")
		find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	fi
	if [ -x "$tree/usr/bin/dracut" ]; then
		printf 'hostonly="no"\n' >"$tree/etc/dracut.conf.d/image.conf"
		case $kind in
		*-lvm* | *-md*) printf 'mdadmconf="yes"\nkernel_cmdline="rd.auto"\n' >>"$tree/etc/dracut.conf.d/image.conf" ;;
		esac
		# shellcheck disable=SC2016 # for the inner shell
		chroot_run "$tree" "${same[@]}" sh -c 'for v in $(ls /lib/modules); do
			dracut -q ${SOURCE_DATE_EPOCH:+--reproducible} --force "/boot/initrd.img-$v" "$v" || exit 1; done' >"$tree.log" 2>&1
	else
		chroot_run "$tree" "${same[@]}" update-initramfs -u -k all >"$tree.log" 2>&1
	fi || { cat "$tree.log" >&2; die "no initramfs for ${tree#"$TOP"/}"; }
	rm -f "$tree.log"
}

# For GRUB on a PC, U-Boot elsewhere.
loader_config() {
	if [ "$(image_arch)" != amd64 ]; then
		extlinux_config "$@"
		return
	fi
	mkdir -p "$1/grub"
	cat >"$1/grub/grub.cfg" <<-END
		serial --unit=0 --speed=115200
		terminal_input console serial
		terminal_output console serial
		set timeout=${IMAGE_TIMEOUT-2}
		menuentry "cowfs" {
			linux /vmlinuz $2
			initrd /initrd.img
		}
		menuentry "for this boot without cowfs" {
			linux /vmlinuz $2 cowfs=off
			initrd /initrd.img
		}
	END
}

# What bootctl install and kernel-install would make.
sdboot_put() { # TREE COMMAND-LINE
	mkdir -p "$1.efi/EFI/BOOT" "$1.efi/loader/entries" "$1.efi/debian"
	cp "$1/usr/lib/systemd/boot/efi/systemd-bootx64.efi" "$1.efi/EFI/BOOT/BOOTX64.EFI"
	cp -L "$1/boot/vmlinuz" "$1/boot/initrd.img" "$1.efi/debian/"
	echo "timeout ${IMAGE_TIMEOUT-2}" >"$1.efi/loader/loader.conf"
	printf '%s\n' 'title Debian' 'sort-key debian' 'version 1' 'linux /debian/vmlinuz' 'initrd /debian/initrd.img' \
		"options $2" >"$1.efi/loader/entries/debian.conf"
}

extlinux_config() {
	mkdir -p "$1/extlinux"
	cat >"$1/extlinux/extlinux.conf" <<-END
		timeout $((${IMAGE_TIMEOUT-2} * 10))
		default cowfs
		label cowfs
			linux /vmlinuz
			initrd /initrd.img
			append $2
		label bare
			menu label for this boot without cowfs
			linux /vmlinuz
			initrd /initrd.img
			append $2 cowfs=off
	END
}
