#!/bin/sh
# SPDX-License-Identifier: MIT
# dracut without systemd: a pre-mount hook, sourced, so that it can set what rootfs-block mounts.
# shellcheck disable=SC2154 # root is dracut's
. /usr/lib/cowfs/cowfs.sh

case ${root-} in
block:*)
	cowfs_start "${root#block:}"
	root=block:$COWFS_MOUNT
	if [ "$COWFS_STATE" = failed ]; then
		# rootfs-block appends rflags to what the fstab says: the last word counts
		rflags=${rflags:+$rflags,}$COWFS_OPTIONS
		fastboot=yes
		export rflags fastboot
	fi
	;;
esac
