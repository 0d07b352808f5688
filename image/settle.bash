# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# What makes a tree an image for many cards: nothing of the machine that has built it, nothing that two cards may not share.
#
#	debian_image DEBIAN MACHINE TREE	the tree, and what disk_make needs to know, for debian12 or debian13 and pc, rpi or uboot

IMAGE_FIRST_PACKAGES="fdisk openssh-server iproute2 less nano systemd-resolved systemd-timesyncd"
# what the card of a Raspberry Pi or of another board may be behind
IMAGE_PI_MODULES="sdhci_iproc bcm2835 sdhci_brcmstb pcie_brcmstb reset_raspberrypi xhci_pci usb_storage uas sd_mod nvme vfat nls_ascii"
IMAGE_BOARD_MODULES="dw_mmc_rockchip sdhci_of_dwcmshc sdhci_of_arasan sunxi_mmc meson_gx_mmc sdhci_esdhc_imx sdhci_tegra sdhci_msm dw_mmc_k3 phy_rockchip_emmc rk808_regulator fan53555 pwm_regulator axp20x_rsb xhci_plat_hcd usb_storage uas sd_mod nvme ahci"

# shellcheck disable=SC2034 # for disk_make
debian_image() { # DEBIAN MACHINE TREE
	local kind=$1-generic tree=$3
	# the time of all files: that of the last commit of the sources
	SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory="$TOP" -C "$TOP" log -1 --format=%ct 2>/dev/null || stat -c %Y "$TOP/CHANGES.md")}
	export SOURCE_DATE_EPOCH E2FSPROGS_FAKE_TIME=$SOURCE_DATE_EPOCH
	IMAGE_PACKAGES="$IMAGE_FIRST_PACKAGES ${IMAGE_PACKAGES-}"
	IMAGE_CONF="prepare = grow
${IMAGE_CONF-}"
	# the UUID of a file system that is mounted can be changed
	ROOT_FEATURES=metadata_csum_seed LOG_MIB=0 JOURNAL_MIB=16 DISK_MIB=${DISK_MIB:-2048} BOOT_MIB=256
	case $2 in
	pc) EFI_MIB=16 IMAGE_CMDLINE=${IMAGE_CMDLINE-console=tty0 console=ttyS0} ;;
	rpi) kind=${kind/debian/pios} BOOT_FS=vfat IMAGE_MODULES=$IMAGE_PI_MODULES IMAGE_COMPONENTS='main non-free-firmware' ;;
	# boot loaders lie in front of the first partition. The device tree names the console
	uboot) BOOT_START=32768 IMAGE_MODULES=$IMAGE_BOARD_MODULES ;;
	*) die "no image is called $1-$2" ;;
	esac
	debian_tree "$kind" "$tree" "$TOP/image/first-boot"
	"image_$2" "$tree"
	image_settle "$(suite_of "$1")" "$tree"
}

image_pc() { # TREE
	mkdir "$1.boot/efi"
	echo "PARTUUID=c0ffee00-03  /boot/efi  vfat  umask=0077,nofail,ro  0 0" >>"$1/etc/fstab"
}

# As cowctl setup leaves it.
image_rpi() { # TREE
	sed -i 's|/boot/firmware .*|/boot/firmware  vfat  nofail,ro,x-cowfs  0 0|' "$1/etc/fstab"
	echo 'ROOTPART="PARTUUID=c0ffee00-02"' >>"$1/etc/default/raspi-firmware"
}

image_uboot() { # TREE
	local hook=$1/etc/kernel/postinst.d/zz-device-trees
	cp -rL "$1"/usr/lib/linux-image-* "$1.boot/dtbs"
	sed -i 's|^\(\s*\)initrd .*|&\n\1fdtdir /dtbs|' "$1.boot/extlinux/extlinux.conf"
	printf '%s\n' '#!/bin/sh' '# U-Boot looks for those of the newest kernel here' "cp -rL \"/usr/lib/linux-image-\$1/.\" /boot/dtbs/" >"$hook"
	chmod +x "$hook"
}

image_settle() {
	local suite=$1 tree=$2
	rm -f "$tree"/etc/ssh/ssh_host_* "$tree"/etc/apt/sources.list{,.d/*} "$tree"/etc/apt/apt.conf.d/99mmdebstrap "$tree"/etc/*- \
		"$tree"/var/lib/dbus/machine-id "$tree"/var/lib/systemd/{random-seed,credential.secret} "$tree"/etc/.resolv.conf.*
	rm -rf "$tree"/var/lib/apt/lists/* "$tree"/var/cache/{apt,ldconfig,debconf,man}/* "$tree"/var/lib/dpkg/*-old
	find "$tree/var/log" -type f -delete
	# systemd starts one on each console that the kernel has
	rm -f "$tree"/etc/systemd/system/getty.target.wants/serial-getty@*
	: >"$tree/etc/machine-id"
	ln -sf ../run/systemd/resolve/stub-resolv.conf "$tree/etc/resolv.conf"
	apt_sources "$suite" >"$tree/etc/apt/sources.list" # the mirror of this machine
	image_password "$tree/etc/shadow"
	# nothing in /etc and /var is older than /usr: no boot has to renew caches
	: >"$tree/etc/.updated"
	: >"$tree/var/.updated"
	find "$tree" "$tree.boot" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# root has the password "cowfs" at the console alone, where the first login must change it: sshd lets root in by key only.
image_password() {
	# shellcheck disable=SC2016 # a hash, of crypt("cowfs", "$6$cowfs$")
	awk -F : -v OFS=: -v day=$((SOURCE_DATE_EPOCH / 86400)) \
		-v hash='$6$cowfs$inNiyome4J3fGjkPMe05VQohmxlsBUCXWMU9264oyd5HS107cAatr3ekNrJ15zhu6oKKydh8XUNgiiE52.j9D/' '
		{ $3 = day }
		$1 == "root" { $2 = hash; $3 = 0 }
		{ print }' "$1" >"$1.new"
	cat "$1.new" >"$1"
	rm "$1.new"
}
