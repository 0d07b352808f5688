# shellcheck shell=sh
# SPDX-License-Identifier: MIT
# What every initramfs does before it mounts the root. Sourced, by dash, busybox or bash; no `set -e` needed or harmed.
#
#	cowfs_start DEVICE	DEVICE: what the root would be without cowfs
#
# sets COWFS_STATE	on | unconfigured | bypassed | failed
#	COWFS_MOUNT	what to mount
#	COWFS_OPTIONS	all the options to mount it with, if it is to be read-only ("failed"); else "": those of the system
#	cowfs_compose DIR	the last step: what cowfs_start named is mounted on DIR. With `compose = overlay` the root
#				is mounted over it. Fails if there is no root then.
#
# cowfs_start leaves its result for the system in /run/cowfs (cowctl boot tells more). It always returns 0: the root gets
# mounted.

COWFS_CTL=/usr/sbin/cowctl
COWFS_CONF=/etc/cowfs/cowfs.conf
COWFS_RUN=/run/cowfs

cowfs_say() {
	printf '%s\n' "cowfs: $*" >&2
	{ printf '%s\n' "<3>cowfs: root: $*" >/dev/kmsg; } 2>/dev/null || :
}

# An initramfs may have neither grep nor sed.
cowfs_configured() {
	[ -r "$COWFS_CONF" ] || return 1
	while read -r cowfs_word _; do
		case $cowfs_word in
		"[root]"*) return 0 ;;
		esac
	done <"$COWFS_CONF"
	return 1
}

cowfs_mount_options() {
	while IFS= read -r cowfs_line; do
		case $cowfs_line in
		mount_options=*) printf '%s\n' "${cowfs_line#*=}" ;;
		esac
	done <"$COWFS_RUN/root.failed"
}

# cowctl could not be run to its end. Was it meant to protect this root? $3: its status. An initramfs on trial in which it
# cannot even be started (126, 127) has never protected anything: better an ordinary root than a machine that is lost. What
# exists in the log only is safe there, too, since no kernel mounts a guarded file system for writing.
cowfs_broken() {
	COWFS_STATE=unconfigured
	cowfs_configured || return 0
	case " $(cat /proc/cmdline),$3 " in
	*" cowfs=off"[\ ,]* | *" cowfs="[!\ ]*",off"[\ ,]*) COWFS_STATE=bypassed ;;
	*,12[67]\ *)
		if [ -s "${COWFS_CONF%/*}/trial" ]; then
			COWFS_STATE=bypassed
			set -- "$1" "$2; the protection is on trial, so this boot writes to the card" "$3"
		fi
		;;
	esac
	case $COWFS_STATE in
	bypassed) ;;
	*)
		COWFS_STATE=failed
		COWFS_OPTIONS=ro
		/usr/lib/cowfs/set-readonly "$1" || :
		;;
	esac
	cowfs_say "NOT PROTECTED, $COWFS_STATE: $2"
	mkdir -p "$COWFS_RUN"
	printf '%s\ndevice=%s\n' "$2" "$1" >"$COWFS_RUN/root.$COWFS_STATE"
	echo "$COWFS_STATE" >"$COWFS_RUN/root.state"
}

# $1: the options that the system would have used. Most of those that a root has speak of its journal, and an ext4 that
# is mounted without it refuses them; what chooses the part of a file system that is the root has to stay.
cowfs_keep_subvolume() {
	cowfs_rest=$1,
	while [ -n "$cowfs_rest" ]; do
		cowfs_option=${cowfs_rest%%,*}
		cowfs_rest=${cowfs_rest#*,}
		case $cowfs_option in
		subvol=* | subvolid=*) COWFS_OPTIONS=$COWFS_OPTIONS,$cowfs_option ;;
		esac
	done
}

# Prints $1 with each $2 replaced by $3: names of devices and subvolumes may have what a shell or a unit file would read.
cowfs_replace() {
	cowfs_rest=$1
	while :; do
		case $cowfs_rest in
		*"$2"*) printf '%s' "${cowfs_rest%%"$2"*}$3" ;;
		*) break ;;
		esac
		cowfs_rest=${cowfs_rest#*"$2"}
	done
	printf '%s\n' "$cowfs_rest"
}

cowfs_start() {
	cowfs_code=0
	COWFS_OPTIONS=
	modprobe -a -q fuse loop 2>/dev/null || : # they may be in the kernel; if not, cowctl boot tells
	COWFS_MOUNT=$("$COWFS_CTL" boot --device "$1") || cowfs_code=$?
	case $cowfs_code in
	0)
		COWFS_STATE=on
		# systemd-shutdown must not look for a file of the root while all is stopped (docs/BOOT.md, "Shutdown")
		cowfs_dir=${COWFS_RUN%/*}/systemd/system.conf.d
		mkdir -p "$cowfs_dir"
		printf '[Manager]\nManagerEnvironment=SYSTEMD_IN_INITRD=0\n' >"$cowfs_dir/cowfs.conf"
		;;
	1) COWFS_STATE=unconfigured ;;
	3)
		COWFS_STATE=failed
		COWFS_OPTIONS=$(cowfs_mount_options)
		: "${COWFS_OPTIONS:=ro}"
		;;
	4) COWFS_STATE=bypassed ;;
	*)
		COWFS_MOUNT=$1
		cowfs_broken "$1" "$COWFS_CTL boot ended with status $cowfs_code" "$cowfs_code"
		;;
	esac
	: "${COWFS_MOUNT:=$1}"
	return 0
}

# A cowctl that cannot be run does not stop the boot of an ordinary root: cowfs_start has reported it.
cowfs_compose() {
	# cowctl boot has said that nothing is to be composed, and the volume of an image's changes has no such folder
	[ ! -e "$COWFS_RUN/root.plain" ] || [ ! -e "$1/etc" ] || return 0
	cowfs_code=0
	"$COWFS_CTL" boot --compose "$1" || cowfs_code=$?
	[ "$cowfs_code" != 3 ]
}
