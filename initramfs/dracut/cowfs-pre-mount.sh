#!/bin/sh
# SPDX-License-Identifier: MIT
# dracut without systemd: a pre-mount hook, sourced, so that it can set what rootfs-block mounts.
# shellcheck disable=SC2154 # root, NEWROOT: dracut's
. /usr/lib/cowfs/cowfs.sh

case ${root-} in
block:*)
	cowfs_start "${root#block:}"
	root=block:$COWFS_MOUNT
	if [ "$COWFS_STATE" = failed ]; then
		# rootfs-block would check it, and add what the fstab says; it finds it mounted
		cowfs_keep_subvolume "${rflags-}"
		mount -o "$COWFS_OPTIONS" "$COWFS_MOUNT" "$NEWROOT"
	fi
	;;
esac
