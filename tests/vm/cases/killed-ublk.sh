# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# As killed, with ublk. With on-crash=replace I/O waits until the next command of cowctl, which also
# thaws.
# guests: debian13-initramfs-kernel-sid-fio
TRANSPORT=ublk
. "$CASES/killed.sh"
APPEND="${APPEND-} cowfs=transport:ublk"

# that of the root
loop_devices_are() {
	set -- "$1" /sys/block/ublkb*
	[ $# = $(($1 + 1)) ]
}

# with on-crash=replace in odd rounds, stop in even ones
odd() { [ $(($1 % 2)) = 1 ]; }
option() { odd "$1" || echo --on-crash=stop; }
killed() { ! odd "$1" || must cowctl status; }
# the kernel removed the disk, and cowctl cannot find the mount any more
ended() { odd "$1" || fsfreeze -u /mnt/data 2>/dev/null || :; }
