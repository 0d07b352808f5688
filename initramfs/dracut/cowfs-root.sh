#!/bin/sh
# SPDX-License-Identifier: MIT
# In a systemd initrd: protects what sysroot.mount would mount, and redirects that.
. /usr/lib/cowfs/cowfs.sh

drop_in() { # unit, then lines
	dir=/run/systemd/system/$1.d
	shift
	mkdir -p "$dir"
	printf '%s\n' "$@" >"$dir/50-cowfs.conf"
}

[ ! -e "$COWFS_RUN/root.state" ] || exit 0
what=$(systemctl show -P What sysroot.mount)
options=$(systemctl show -P Options sysroot.mount)
[ -b "$what" ] || {
	printf '%s\n' "cowfs: the root is not a block device: $what" >&2
	exit 0
}
cowfs_start "$what"
case $COWFS_STATE in
on)
	drop_in sysroot.mount '[Mount]' "What=$COWFS_MOUNT"
	drop_in systemd-fsck-root.service '[Service]' 'ExecStart=' "ExecStart=/usr/lib/systemd/systemd-fsck $COWFS_MOUNT"
	;;
failed)
	cowfs_keep_subvolume "$options"
	drop_in sysroot.mount '[Mount]' "Options=$(cowfs_replace "$COWFS_OPTIONS" % %%)"
	drop_in systemd-fsck-root.service '[Unit]' 'ConditionPathExists=!/run/cowfs/root.failed'
	;;
*) exit 0 ;;
esac
systemctl daemon-reload
