#!/bin/sh
# SPDX-License-Identifier: MIT
# What a machine that knows nothing of cowfs does with a file system: foreign.sh DEVICE DIR. Mounts it on DIR and runs the
# tools that check, change and repair it. One line each: kind, answer, command, what it said. An answer with "+writes" has
# written to DEVICE, by the kernel's count. Fails if an answer is not the one that a guarded file system gives.
# Runs in a guest, too: POSIX, and no program of cowfs.
dev=$1 dir=$2 bad=0
export LC_ALL=C
stat=/sys/class/block/$(basename "$(readlink -f "$dev")")/stat
kind=$(blkid -p -o value -s TYPE "$dev") || { echo "$dev: no file system" && exit 1; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT

written() {
	blockdev --flushbufs "$dev"
	awk '{ print $7 }' "$stat"
}

# EXPECTED (ANSWER|ANSWER...) ANSWER COMMAND...
row() {
	expected=$1 answer=$2
	shift 2
	[ "$(written)" = "$before" ] || answer=$answer+writes
	case "|$expected|" in
	*"|$answer|"*) ;;
	*) bad=1 answer="$answer (expected: $expected)" ;;
	esac
	says=$(grep -iEm1 'unsupported|cannot|write-protected|wrong fs|ctree' "$out" || grep . "$out" | tail -n 1)
	printf '%-5s  %-9s  %s: %s\n' "$kind" "$answer" "$*" "$says"
}

mounts() { # EXPECTED OPTIONS
	before=$(written) answer=refused
	if timeout 60 mount -o "$2" "$dev" "$dir" >"$out" 2>&1; then
		answer=read-only
		! touch "$dir/foreign" 2>/dev/null || answer=rw
		! mount -o remount,rw "$dir" >"$out" 2>&1 || answer=rw
		ls -R "$dir" >/dev/null 2>&1
		umount "$dir"
	fi
	row "$1" $answer "mount -o $2"
}

tool() { # EXPECTED COMMAND...
	want=$1
	shift
	before=$(written) answer=refused
	! timeout 60 "$@" "$dev" >"$out" 2>&1 </dev/null || answer=ends
	row "$want" $answer "$@"
}

case $kind in
ext*)
	# of a mixture, in the middle of a checkpoint: "structure needs cleaning", or the kernel notes an error in the superblock
	ext='read-only|refused|read-only+writes|refused+writes'
	mounts "$ext" defaults
	mounts "$ext" ro
	tool 'refused|ends' fsck -a # of systemd, with pass 2
	tool refused e2fsck -p
	tool refused e2fsck -fy
	tool refused tune2fs -L foreign
	tool refused tune2fs -O ^dir_index
	tool refused resize2fs
	tool refused resize2fs -M
	tool ends debugfs -w -R 'mkdir foreign'
	;;
xfs)
	mounts refused defaults
	mounts 'read-only|refused' ro,norecovery
	tool ends fsck -a
	tool refused xfs_repair
	tool refused xfs_repair -L
	tool refused xfs_repair -n
	# wants to replay or end the log: nothing can be read, and only the log gets blocks
	mounts 'refused|read-only|refused+writes|read-only+writes' ro
	mounts refused defaults
	;;
btrfs)
	mounts refused defaults
	mounts 'read-only|refused' ro
	mounts 'read-only|refused' ro,usebackuproot
	tool ends fsck -a
	tool 'ends|refused' btrfs check --force
	tool refused btrfs check --repair --force
	tool refused btrfs rescue zero-log
	tool refused btrfstune -S 1
	# with -y, or after a yes, it writes if a copy is newer, which may be in the middle of a checkpoint
	tool 'ends|refused' btrfs rescue super-recover
	;;
*) echo "$dev: $kind has no guard" && exit 1 ;;
esac
exit $bad
