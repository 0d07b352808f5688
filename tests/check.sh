#!/bin/bash
# SPDX-License-Identifier: MIT
# Makes targets one after another and prints how long each took: check.sh MAKE TARGET... [-- TARGET...]
# Those behind -- run beside the others once the first target is made; their output follows at the end.
# Stops at the first failure; under make -k it goes on. Ends with 1 if a target failed, or if COWFS_CHECK_SECONDS (4800) are over:
# then it ends what runs and names the targets that are left.
#
# It always ends, and whoever reads its output sees the end: a target writes to a file, so that nobody but this script holds the
# output. A target must leave nothing behind. A process of it that is still there (they know each other by COWFS_CHECK_TARGET in the
# environment), or a file system that makes sync(2) wait for ever, fails it, is named, and is ended here.
set -u
make=$1
shift
targets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	targets+=("$1")
	shift
done
[ $# = 0 ] || shift
go_on='' failed='' times='' beside='' current='' start=$SECONDS
until=${COWFS_CHECK_UNTIL:-$(($(date +%s) + ${COWFS_CHECK_SECONDS:-4800}))}
export COWFS_CHECK_UNTIL="$until" # those beside end with the others
# the first word holds the flags of one letter, if there are any
flags=${MAKEFLAGS-}
case ${flags%% *} in
-* | *=*) ;;
*k*) go_on=1 ;;
esac
case " $flags " in
*" -j"* | *" --jobserver"*) jobs=() ;;
*) jobs=("-j$(nproc)") ;;
esac
dir=$(mktemp -d) || exit
trap 'rm -rf "$dir"' EXIT

# the processes that target $1 has left, a line each
left_by() {
	local environ pid
	grep -slzxF "COWFS_CHECK_TARGET=$$.$1" /proc/[0-9]*/environ | while read -r environ; do
		pid=${environ#/proc/}
		pid=${pid%/environ}
		printf '%s %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
	done
}

# Waits until command $2... succeeds, $1 seconds at most.
wait_until() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.2
	done
}
nothing_left() { [ -z "$(left_by "$1")" ]; }
ended() { ! kill -0 "$1" 2>/dev/null; }

# Is the machine as target $1 found it? Says what is not, and ends it.
tidy() {
	local left syncing r=0
	if ! wait_until 10 nothing_left "$1"; then
		left=$(left_by "$1")
		printf 'check: %s has left these processes behind:\n%s\n' "$1" "$left" >&2
		# shellcheck disable=SC2046 # process ids
		kill -KILL $(printf '%s\n' "$left" | cut -d' ' -f1) 2>/dev/null
		r=1
	fi
	sync >/dev/null 2>&1 &
	syncing=$!
	if ! wait_until 120 ended $syncing; then
		echo "check: sync(2) hangs after $1. Threads that sleep for ever, and where:" >&2
		for left in /proc/[0-9]*/task/[0-9]*; do
			[ "$(awk '{ print $3 }' "$left/stat" 2>/dev/null)" != D ] || { cat "$left/comm" "$left/stack"; } 2>/dev/null >&2
		done
		for left in /sys/fs/fuse/connections/*/abort; do
			[ ! -e "$left" ] || echo 1 >"$left"
		done
		r=1
	fi
	return $r
}

# $1: TERM to end them; else they are waited for
end_beside() {
	[ -n "$beside" ] || return 0
	[ -z "${1-}" ] || kill -s "$1" -- "-$beside" 2>/dev/null
	wait "$beside" || failed="$failed (beside)"
	cat "$dir/beside"
	beside=''
}
# $target is what runs, if anything does
end_all() {
	[ -z "$current" ] || kill -s TERM "$current" 2>/dev/null
	end_beside TERM
	[ -z "$current" ] || { wait_until 20 ended "$current" && tidy "$target"; }
	exit 1
}
trap end_all HUP INT TERM

for target in "${targets[@]}"; do
	from=$SECONDS
	left=$((until - $(date +%s)))
	if [ $left -le 0 ]; then
		failed="$failed $target (no time left)"
		continue
	fi
	: >"$dir/output"
	# in the background, where a trap need not wait for it; with the signals that a terminal would give it
	COWFS_CHECK_TARGET=$$.$target env --default-signal \
		timeout -k 30 $left "$make" --no-print-directory "${jobs[@]}" "$target" >"$dir/output" 2>&1 </dev/null &
	current=$!
	tail -n +1 -s 0.2 -f --pid=$current "$dir/output" &
	shown=$!
	wait $current
	case $? in
	0) ;;
	124 | 137) failed="$failed $target (out of time)" ;;
	*) failed="$failed $target" ;;
	esac
	current=''
	wait $shown
	tidy "$target" || failed="$failed $target (not tidy)"
	times="$times$(printf '%6d s  %s' $((SECONDS - from)) "$target")
"
	[ -z "$failed" ] || [ -n "$go_on" ] || break
	if [ $# -gt 0 ]; then
		echo "check: beside the following: $*"
		setsid nice "$0" "$make" "$@" >"$dir/beside" 2>&1 </dev/null &
		beside=$!
		shift $#
	fi
done
if [ -z "$failed" ] || [ -n "$go_on" ]; then
	end_beside
else
	end_beside TERM
fi
echo "check: where the time went"
printf '%s' "$times" | sort -n
printf '%6d s  in all\n' $((SECONDS - start))
[ -z "$failed" ] || { echo "check: FAILED:$failed" >&2; exit 1; }
