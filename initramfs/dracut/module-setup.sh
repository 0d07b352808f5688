#!/bin/bash
# SPDX-License-Identifier: MIT
# dracut: puts cowfs into the initramfs, with its configuration. Configured or not: `cowfs=on` at boot, and a card
# whose log is in use, need it. shellcheck cannot know dracut's variables.
# shellcheck disable=SC2154

# called by dracut
check() {
	require_binaries /usr/sbin/cowctl /usr/lib/cowfs/cowfs-boot /usr/lib/cowfs/set-readonly || return 1
	return 0
}

# called by dracut
depends() {
	echo base
}

# called by dracut
installkernel() {
	hostonly='' instmods fuse loop
	if [[ $(/usr/sbin/cowctl config --key compose) == overlay ]]; then
		hostonly='' instmods overlay squashfs erofs
	fi
}

# called by dracut
install() {
	inst_multiple /usr/lib/cowfs/set-readonly grep sed cat mkdir
	# the daemon, and of cowctl the commands of boot and rescue
	inst_binary /usr/lib/cowfs/cowfs-boot /usr/sbin/cowfs
	ln -s cowfs "${initdir:?}/usr/sbin/cowctl"
	inst_simple /usr/lib/cowfs/cowfs.sh
	if [[ -e /etc/cowfs/cowfs.conf ]]; then
		# dracut does not look at what install returns: the image would be made without the rest
		/usr/sbin/cowctl config >/dev/null || exit 1
		inst_simple /etc/cowfs/cowfs.conf
	fi
	# a new initramfs is on trial, if so configured: this is its name
	if [[ $(/usr/sbin/cowctl config --key trial) != 0 ]]; then
		echo "${SOURCE_DATE_EPOCH:-$(cat /proc/sys/kernel/random/uuid)}" >"$initdir/etc/cowfs/trial"
	fi
	# published cards, and measured ones
	inst_simple /usr/lib/cowfs/cards.conf
	local profile
	for profile in /etc/cowfs/profiles/*.conf; do
		[[ ! -e $profile ]] || inst_simple "$profile"
	done
	# each loop device that nothing uses is two events for udev in a boot: Linux 6.2 makes them when they are asked for
	mkdir -p "$initdir/etc/modprobe.d"
	echo 'options loop max_loop=0' >"$initdir/etc/modprobe.d/cowfs.conf"
	case $(/usr/sbin/cowctl config --key prepare) in
	shrink) inst_multiple e2fsck resize2fs tune2fs ;;
	grow)
		inst_multiple e2fsck resize2fs tune2fs sfdisk partx blkid dd readlink mount umount
		inst_script /usr/lib/cowfs/grow-root
		;;
	esac
	if dracut_module_included systemd; then
		inst_script "$moddir/cowfs-root.sh" /usr/lib/cowfs/cowfs-root.sh
		inst_simple "$moddir/cowfs-root.service" "$systemdsystemunitdir/cowfs-root.service"
		inst_simple "$moddir/cowfs-compose.service" "$systemdsystemunitdir/cowfs-compose.service"
		local unit
		for unit in sysroot.mount systemd-fsck-root.service; do
			inst_simple "$moddir/cowfs-root.conf" "$systemdsystemunitdir/$unit.d/50-cowfs.conf"
		done
		$SYSTEMCTL -q --root "$initdir" add-requires initrd-root-fs.target cowfs-root.service cowfs-compose.service
	else
		# dracut unmounts what has no /proc, /sys and /dev, such as the volume of a composed root
		if [[ $(/usr/sbin/cowctl config --key compose) == overlay ]]; then
			dfatal "cowfs: compose = overlay needs the dracut module systemd"
			exit 1
		fi
		inst_hook pre-mount 50 "$moddir/cowfs-pre-mount.sh"
	fi
}
