#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What serves a file system is killed, and nothing else is in the mount namespace where that is mounted: it ends. If not, it
# waits for its own answers, and sync(2) of the machine for it: so its connection is aborted then, which the test sees.

load lib

# The disk's connection is aborted after some time, whatever becomes of this test. One process: none outlives the test.
abort_later() { # DISK
	local fd
	mkdir "$T/ctl"
	mount -t fusectl none "$T/ctl"
	exec {fd}>"$T/ctl/$(loop_backing "$1" | cut -d: -f2)/abort"
	umount -l "$T/ctl"
	# shellcheck disable=SC2016
	setsid bash -c 'read -rt 60 <> <(:); echo 1; : >"$0"' "$T/aborted" 3>&- >&"$fd" 2>/dev/null &
	exec {fd}>&-
}

alone() { # SCRIPT ARGUMENT...
	unshare --mount --propagation private bash -ec "$@"
}

has_left() { [ -z "$(readlink /proc/"$1"/task/*/ns/mnt)" ]; }
is_gone() { ! cat /proc/"$1"/task/*/stat 2>/dev/null | grep -qv ') [ZX] '; }

# Those that serve are killed at once, after the others of their namespace have left it.
kill_last() { # "PID..." [PID...]
	local pid
	# shellcheck disable=SC2086
	set -- "$1" $2
	# shellcheck disable=SC2086
	kill -STOP $1
	for pid in "${@:2}"; do
		kill -KILL "$pid"
		wait_for 10 has_left "$pid"
	done
	# shellcheck disable=SC2086
	kill -KILL $1
	for pid in $1; do
		wait_for 10 is_gone "$pid" || break
	done
	[ ! -e "$T/aborted" ] && is_gone "$pid"
}

daemon_alone() { # ON_CRASH
	local pid serving=() others=()
	export COWFS_ON_CRASH=$1
	card_prepared ext4 100 150
	NAME=vol
	# shellcheck disable=SC2016
	DEV=$(alone '"$COWFS_BUILD/cowctl" attach --name vol "$0" | tee "$2/dev"; mount "$(cat "$2/dev")" "$1"; echo new >"$1/new"' \
		"$CARD" "$MNT" "$T")
	is_volume
	for pid in $(daemons); do
		case $(cat "/proc/$pid/comm") in
		cowfs | cowfs-parent) serving+=("$pid") ;;
		*) others+=("$pid") ;;
		esac
	done
	[ "${#serving[@]}" = 2 ]
	abort_later "$DEV"
	kill_last "${serving[*]}" "${others[*]}"
	clear_after_cut
}

@test "namespace: worker and supervisor are the last" { daemon_alone stop; }
@test "namespace: the same, with a spare that was killed" { daemon_alone replace; }

@test "namespace: a simulated card is the last" {
	local server
	C=$T/card
	mkdir "$C"
	# shellcheck disable=SC2016
	alone '"$COWFS_BUILD/cowfs-cardsim" --loop lexar-300x-8g 64M "$0" >"$2/dev"; "$COWFS_BUILD/cowfs-cardsim" stat --json "$0" >"$2/stat"
		mke2fs -q -F "$(cat "$2/dev")"; mount "$(cat "$2/dev")" "$1"; echo new >"$1/new"' "$C" "$MNT" "$T"
	DEV=$(cat "$T/dev")
	server=$(jq .pid "$T/stat")
	abort_later "$DEV"
	run kill_last "$server"
	losetup -d "$DEV"
	[ "$status" = 0 ]
}

@test "namespace: a view of a card ends with it" {
	local server
	cut_card 1 ext4
	# shellcheck disable=SC2016
	background unshare --mount --propagation private bash -ec '"$COWFS_BUILD/cowctl" view "$0" "$1"; findmnt -no SOURCE "$1" >"$2/dev"; mv "$2/dev" "$2/disk"; exec sleep 1000' \
		"$CARD" "$MNT" "$T"
	wait_for 20 test -e "$T/disk"
	server=$(daemons)
	[ "$(cat "/proc/$server/comm")" = cowfs-view ]
	abort_later "$(cat "$T/disk")"
	kill "$BG"
	wait_for 10 is_gone "$server"
	[ ! -e "$T/aborted" ]
}
