# shellcheck shell=sh
# SPDX-License-Identifier: MIT
# What a system without systemd does about its root: busybox init, OpenRC and runit. Sourced.

# Nobody in the initramfs knew cowfs, and the configuration wants it: a write past the log would make that log worthless.
unknown_root() {
	grep -q '^[[:space:]]*\[root\]' /etc/cowfs/cowfs.conf 2>/dev/null || return 0
	[ "$(cowctl config root --key enabled)" != no ] || return 0
	device=$(awk '$2 == "/" { d = $1 } END { print d }' /proc/mounts)
	[ -b "$device" ] || device=/dev/$(sed -n 's/^DEVNAME=//p' "/sys/dev/block/$(
		awk '$5 == "/" { d = $3 } END { print d }' /proc/self/mountinfo)/uevent")
	case " $(cat /proc/cmdline) " in
	*" cowfs=off"[\ ,]* | *" cowfs="[!\ ]*",off"[\ ,]*) state=bypassed why="cowfs=off on the kernel command line" ;;
	*)
		why="the initramfs that booted this system lacks cowfs: rebuild it"
		# on trial, and no boot was accepted yet
		if [ "$(cowctl config root --key trial)" != 0 ] && [ ! -e /etc/cowfs/proven ]; then
			state=bypassed why="$why; the protection is on trial, so this boot writes to the card"
		else
			state=failed
			mount -o remount,ro / 2>/dev/null
			blockdev --setro "$device" || why="$why; $device cannot be set read-only"
		fi
		;;
	esac
	printf '%s\n' "<3>cowfs: root: NOT PROTECTED, $state: $why" >/dev/kmsg
	mkdir -p /run/cowfs
	printf '%s\ndevice=%s\n' "$why" "$device" >"/run/cowfs/root.$state"
	echo "$state" >/run/cowfs/root.state
}

# Sets $state, and reports a root that should be protected and is not.
root_state() {
	state=$(cat /run/cowfs/root.state 2>/dev/null)
	[ "$state" ] || unknown_root
	case $state in
	failed | bypassed) printf '%s\n' "cowfs: the root is NOT PROTECTED: $(head -n 1 "/run/cowfs/root.$state" | tr -c '\n\040-\176' '?')" >/dev/console ;;
	esac
}

# The real user of process $1; its folder may be root's though the process is not.
user_of() {
	while read -r key user _; do
		[ "$key" = Uid: ] || continue
		echo "$user"
		return
	done <"/proc/$1/status"
} 2>/dev/null

# Word $2 of the status of process $1, counted behind its name, which can hold anything.
stat_of() {
	stat=$(cat "/proc/$1/stat" 2>/dev/null)
	word=$2
	# shellcheck disable=SC2086 # words
	set -- ${stat##*)}
	eval "echo \"\${$word:-0}\""
}

# Not one that has no command line: a process can have taken its own away.
is_kernel_thread() {
	[ $(($(stat_of "$1" 7) & 0x200000)) != 0 ] # PF_KTHREAD
}

# $1 to all but init, this shell, kernel threads, the session $2 if given, and the daemons that serve file systems, which have
# marked themselves with '@'. That counts only for root: anybody can call a process so.
signal_all() {
	for dir in /proc/[0-9]*; do
		pid=${dir#/proc/}
		case $pid in 1 | "$$") continue ;; esac
		! is_kernel_thread "$pid" || continue
		[ "${2-}" != "$(stat_of "$pid" 4)" ] || continue
		first=$(head -c 1 "$dir/cmdline" 2>/dev/null | tr '\0' ' ')
		case $first in
		@) [ "$(user_of "$pid")" = 0 ] || kill "-$1" "$pid" 2>/dev/null ;;
		*) kill "-$1" "$pid" 2>/dev/null ;;
		esac
	done
}
