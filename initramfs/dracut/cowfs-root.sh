#!/bin/sh
# SPDX-License-Identifier: MIT
# In a systemd initrd: protects what sysroot.mount would mount, checks and mounts the result. The units that would do so
# with the partition are skipped then (cowfs-root.conf). To change them instead takes a daemon-reload, which runs all
# generators once more.
. /usr/lib/cowfs/cowfs.sh

# root.mount: called again, because the check or the mount failed before
[ ! -e "$COWFS_RUN/root.state" ] || [ -e "$COWFS_RUN/root.mount" ] || exit 0
what='' type='' options='' check=''

# The unit as systemd's generator has written it. Fails if there is more to it: another file of that name, a check that is masked,
# a drop-in, or a word that systemd reads in its own way.
generated() {
	for dir in /etc/systemd/system /run/systemd/system /run/systemd/transient /run/systemd/generator.early; do
		[ ! -e "$dir/sysroot.mount" ] && [ ! -h "$dir/systemd-fsck-root.service" ] || return
	done
	for file in /etc/systemd/system/sysroot.mount.d/* /run/systemd/*/sysroot.mount.d/* /usr/lib/systemd/system/sysroot.mount.d/* \
		/etc/systemd/system/mount.d/* /run/systemd/*/mount.d/* /usr/lib/systemd/system/mount.d/*; do
		[ ! -e "$file" ] || [ "${file##*/}" = 50-cowfs.conf ] || return
	done
	while IFS= read -r line; do
		case $line in
		What=*[%\\]* | Type=*[%\\]* | Options=*[%\\]* | *\\) return 1 ;;
		What=*) what=${line#*=} ;;
		Type=*) type=${line#*=} ;;
		Options=*) options=${line#*=} ;;
		Requires=*systemd-fsck-root.service* | Wants=*systemd-fsck-root.service*) check=1 ;; # there is to be a check
		esac
	done <"$1"
}

# systemctl has the same, but its call takes longer than all the rest of this script
asked() {
	what='' type='' options='' check='' unit=mount
	while IFS='=' read -r key value; do
		case $unit:$key in
		mount:What) what=$value ;;
		mount:Type) type=$value ;;
		mount:Options) options=$value ;;
		fsck:Job) check=$value ;;
		mount:) unit=fsck ;; # an empty line
		esac
	done <<END
$(systemctl show -p What -p Type -p Options -p Job sysroot.mount systemd-fsck-root.service)
END
}

generated=/run/systemd/generator/sysroot.mount
{ [ -r $generated ] && generated $generated; } || asked
[ -b "$what" ] || {
	printf '%s\n' "cowfs: the root is not a block device: $what" >&2
	exit 0
}
cowfs_start "$what"
case $COWFS_STATE in
on) ;;
failed)
	# nothing can be repaired on it
	check=''
	cowfs_keep_subvolume "$options"
	options=$COWFS_OPTIONS
	;;
*) exit 0 ;;
esac
: >"$COWFS_RUN/root.mount"
[ -z "$check" ] || /usr/lib/systemd/systemd-fsck "$COWFS_MOUNT" || exit
mkdir -p /sysroot /run/initramfs
[ "$COWFS_STATE$check" = on ] || : >/run/initramfs/fsck-root # no check by the system
exec mount ${type:+-t "$type"} ${options:+-o "$options"} "$COWFS_MOUNT" /sysroot
