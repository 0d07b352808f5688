#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes targets one after another and prints how long each took: check.sh MAKE TARGET... [-- TARGET...]
# Those behind -- run beside the others once the first target is made; their output follows at the end.
# Stops at the first failure; under make -k it goes on. Ends with 1 if a target failed, or if COWFS_CHECK_SECONDS (4800) are over:
# then it ends what runs and names the targets that are left.
set -u
make=$1
shift
targets=''
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	targets="$targets $1"
	shift
done
[ $# = 0 ] || shift
go_on='' failed='' times='' beside='' log='' current='' start=$(date +%s)
until=${COWFS_CHECK_UNTIL:-$((start + ${COWFS_CHECK_SECONDS:-4800}))}
export COWFS_CHECK_UNTIL="$until" # those beside end with the others
# the first word holds the flags of one letter, if there are any
flags=${MAKEFLAGS-}
case ${flags%% *} in
-* | *=*) ;;
*k*) go_on=1 ;;
esac
case " $flags " in
*" -j"* | *" --jobserver"*) jobs='' ;;
*) jobs=-j$(nproc) ;;
esac

# $1: TERM to end them; else they are waited for
end_beside() {
	[ -n "$beside" ] || return 0
	[ -z "${1-}" ] || kill -s "$1" -- "-$beside" 2>/dev/null
	wait "$beside" || failed="$failed (beside)"
	cat "$log"
	rm -f "$log"
	beside=''
}
trap 'kill -s TERM $current 2>/dev/null; end_beside TERM; exit 1' HUP INT TERM

for target in $targets; do
	from=$(date +%s)
	if [ "$from" -ge "$until" ]; then
		failed="$failed $target (no time left)"
		continue
	fi
	# in the background, where a trap need not wait for it; with the signals that a terminal would give it
	env --default-signal timeout -k 30 $((until - from)) "$make" --no-print-directory ${jobs:+"$jobs"} "$target" &
	current=$!
	wait $current
	case $? in
	0) ;;
	124 | 137) failed="$failed $target (out of time)" ;;
	*) failed="$failed $target" ;;
	esac
	current=''
	times="$times$(printf '%6d s  %s' $(($(date +%s) - from)) "$target")
"
	[ -z "$failed" ] || [ -n "$go_on" ] || break
	if [ $# -gt 0 ]; then
		echo "check: beside the following: $*"
		log=$(mktemp) || exit
		setsid nice "$0" "$make" "$@" >"$log" 2>&1 &
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
printf '%6d s  in all\n' $(($(date +%s) - start))
[ -z "$failed" ] || { echo "check: FAILED:$failed" >&2; exit 1; }
