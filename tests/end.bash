# SPDX-License-Identifier: MIT
# For check.sh and run-bats.sh: ends processes whatever they serve.
# shellcheck shell=bash

# Waits until command $2... succeeds, $1 seconds at most.
wait_until() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.2
	done
}
ended() { ! kill -0 "$1" 2>/dev/null; }
all_ended() { ! ps -o stat= -p "$(tr ' ' , <<<"$*")" | grep -qv '^Z'; }

# SIGKILL for processes that may serve what is mounted. A last process in its mount namespace unmounts as it ends, and nothing answers
# the file system that it serves: that sleeps for ever, and sync(2) of the machine with it. So their mounts outlive them.
kill_with_mounts() {
	local p fd all=()
	for p; do
		{ exec {fd}<"/proc/$p/ns/mnt"; } 2>/dev/null && all+=("$fd")
	done
	kill -KILL "$@" 2>/dev/null
	wait_until 30 all_ended "$@"
	for fd in ${all[@]+"${all[@]}"}; do
		exec {fd}<&-
	done
}

# The volumes of the run folders that tests have left whose daemons have died: detaches them where nothing uses them, and names them.
volumes_left() {
	local run
	for run; do
		[ ! -d "$run" ] || COWFS_RUNDIR=$run timeout 60 "${COWFS_BUILD:-build}/cowctl" status 2>&1 |
			sed -nE '/is detached now|returns I\/O errors|may hang|waits for it/s/.*(volume [^:]*: its daemon died)/\1/p'
	done
}

# Loop devices on files in folder $1, and which these are, also if they are deleted by now
loops_in() { losetup -nlO NAME,BACK-FILE 2>/dev/null | awk -v folder="$1/" 'index($2, folder) == 1'; }
