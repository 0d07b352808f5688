#!/bin/bash
# SPDX-License-Identifier: MIT
# Makes targets one after another: check.sh MAKE TARGET... [-- TARGET...]...
# Those behind -- run beside the others once the first target is made, and those behind another -- beside these in the same way; their
# output follows at the end. The others need the first
# one: nothing else runs if it fails. After any other failure it goes on. The last thing that it prints is a summary: what failed or did
# not run, with the command that runs it again, what passed, and what took longest. Ends with 1 if a target failed, or if
# COWFS_CHECK_SECONDS (4800) are over: then it ends what runs. A signal ends it as well: what runs gets SIGINT and tidies up.
#
# It always ends, within its time and two minutes, and whoever reads its output sees the end: a target writes to a file, so that nobody but
# this script holds the output. A target must leave nothing behind. A process of it that is still there (they know each other by
# COWFS_CHECK_TARGET in the environment), or a file system that makes sync(2) wait for ever, fails it, is named, and is ended here. So is a
# loop device, at the end. A process that cannot be killed is named with what it waits for in the kernel, and nothing waits for it.
# Where sync(2) has not returned after COWFS_SYNC_SECONDS (60), nothing begins.
set -u
. "${0%/*}/end.bash"
make=$1
shift
targets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	targets+=("$1")
	shift
done
[ $# = 0 ] || shift
beside='' current='' start=$SECONDS bad=0
until=${COWFS_CHECK_UNTIL:-$(($(date +%s) + ${COWFS_CHECK_SECONDS:-4800}))}
export COWFS_CHECK_UNTIL="$until" # those beside end with the others
case " ${MAKEFLAGS-} " in
*" -j"* | *" --jobserver"*) jobs=() ;;
*) jobs=("-j$(nproc)") ;;
esac
letters=${MAKEFLAGS-}
letters=${letters%% *}
[[ $letters == -* || $letters != *n* ]] || exit 0 # make -n runs what calls make
dir=$(mktemp -d "${TMPDIR:-/tmp}/ck.XXX") || exit
chmod 755 "$dir"
# rm waits for ever at the mount of a file system that does not answer
trap 'rm -rf "$dir" & wait_until 5 ended $!' EXIT
export TMPDIR=$dir # what is left there is of these targets, and of nobody else's tests
# rows of the table: seconds, target, result. A script that runs beside another one adds to that one's.
table=${COWFS_CHECK_TABLE:-$dir/table}
# what targets add: "SECONDS FILE" of tests, "TARGET COMMAND" that runs again what failed of it, what was left out, and what failed, the
# first one last
export COWFS_CHECK_FILES="$table.files" COWFS_CHECK_AGAIN="$table.again" COWFS_CHECK_LEFT="$table.left" COWFS_CHECK_FIRST="$dir/first"

# The row of target $1 that began at second $2: result $3.
row() {
	[ "$3" = ok ] || bad=1
	printf '%s %s %s\n' "$((SECONDS - $2))" "$1" "$3" >>"$table"
}

# The longest rows of file $1, $2 of them.
longest() {
	[ ! -e "$1" ] || sort -rn "$1" | head -n "$2" | awk '{ printf "%5d s  %s\n", $1, $2 }'
}

print_table() {
	local part result seconds again
	[ -z "${COWFS_CHECK_TABLE-}" ] || return 0
	printf '\ncheck: %s%d of %d parts passed in %d min %d s\n' "$([ $bad = 0 ] || echo 'FAILED: ')" \
		"$(grep -c ' ok$' "$table")" "$(wc -l <"$table")" $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60))
	grep -v ' ok$' "$table" | sort -n | while read -r seconds part result; do
		again=$(sed -n "s/^$part //p" "$COWFS_CHECK_AGAIN" 2>/dev/null | tail -1)
		printf '  %-14s %-20s %5d s   %s\n' "$result" "$part" "$seconds" "${again:-make $part}"
	done
	sed -n 's/^[0-9]* \(.*\) ok$/\1/p' "$table" | sort | xargs | fold -s -w 100 | sed '1s/^/  passed:  /;2,$s/^/           /'
	printf '  %-35s %s\n' 'parts that took longest' "$([ ! -e "$COWFS_CHECK_FILES" ] || echo 'files of tests')"
	paste -d '|' <(longest "$table" 10) <(longest "$COWFS_CHECK_FILES" 10) | awk -F '|' '{ printf "  %-35s %s\n", $1, $2 }'
	[ ! -s "$COWFS_CHECK_LEFT" ] || { echo && echo 'left out:' && fold -s -w 98 "$COWFS_CHECK_LEFT" | sed 's/^/  /'; }
	[ ! -s "$table.first" ] || { echo && tac "$table.first" | sed 's/^first failure/failed/; $s/^failed/first failure/'; }
}

# What failed in the target that has ended, the first one first: what it says itself, else the first line of its output with a file and a line, or an error.
first_failure() {
	local place='^(mandoc: )?[^ ]+:[0-9]+:|^In .* line [0-9]+:$'
	tac "$COWFS_CHECK_FIRST" 2>/dev/null | head -n 5 | grep . ||
		sed 's/^/first failure: /' <(grep -m 1 -E "$place" "$dir/output" || grep -m 1 -E 'FAIL|[Ee]rror' "$dir/output" || tail -n 1 "$dir/output")
}

# the processes that target $1 has left, a line each
left_by() {
	local environ pid
	timeout -k 1 20 grep -slzxF "COWFS_CHECK_TARGET=$$.$1" /proc/[0-9]*/environ | while read -r environ; do
		pid=${environ#/proc/}
		pid=${pid%/environ}
		printf '%s %s\n' "$pid" "$(timeout -k 1 5 tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
	done
}

# Threads /proc/PID/task/TID... that sleep where no signal reaches them, and where.
stuck() {
	local t
	for t; do
		[ "$(awk '/^State:/ { print $2 }' "$t/status")" != D ] ||
			{ printf '%s %s, state D, in %s\n' "${t##*/}" "$(cat "$t/comm")" "$(cat "$t/wchan")" && cat "$t/stack"; }
	done 2>/dev/null
}

nothing_left() { [ -z "$(left_by "$1")" ]; }
# the seconds that are left
rest() { echo $((until - $(date +%s))); }
# Does sync(2) return within $1 seconds?
syncs() {
	sync >/dev/null 2>&1 &
	wait_until "$1" ended $! || { kill -KILL $!; return 1; }
}

foreign_daemons() {
	local p
	for p in /proc/[0-9]*; do
		[ "$(cat "$p/comm" 2>/dev/null)" != cowfs ] || grep -qszF "COWFS_CHECK_TARGET=$$." "$p/environ" || return 0
	done
	return 1
}

# Is the machine as target $1 found it? Says what is not, and ends it.
tidy() {
	local left r=0
	if ! wait_until $(($(rest) < 10 ? 5 : 10)) nothing_left "$1"; then
		left=$(left_by "$1")
		printf 'check: %s has left these processes behind:\n%s\n' "$1" "$left" >&2
		echo "failed: $1: left behind: $(xargs <<<"${left//[\'\"\\]/}")" >>"$table.first"
		# shellcheck disable=SC2046 # process ids
		kill_with_mounts $(printf '%s\n' "$left" | cut -d' ' -f1)
		if ! nothing_left "$1"; then
			echo "check: $1 hangs. Processes that cannot be killed, and where they wait:" >&2
			# shellcheck disable=SC2046
			stuck $(left_by "$1" | sed -E 's|^([0-9]+) .*|/proc/\1/task/*|') >&2
		fi
		r=1
	fi
	left=$(rest)
	if ! syncs $((left < 15 ? 15 : left < 600 ? left : 600)); then
		echo "check: sync(2) hangs after $1. Threads that sleep for ever, and where:" >&2
		stuck /proc/[0-9]*/task/[0-9]* >&2
		# not under somebody else's daemons, which may be why
		mountpoint -q /sys/fs/fuse/connections || mount -t fusectl fusectl /sys/fs/fuse/connections
		foreign_daemons || for left in /sys/fs/fuse/connections/*/abort; do
			[ ! -e "$left" ] || echo 1 >"$left"
		done
		r=1
	fi
	return $r
}

# where these targets put their files
loops() { { loops_in "$TMPDIR" && loops_in "$PWD/build/demo"; } | sort; }
new_loops() { comm -13 "$dir/loops" <(loops); }
no_new_loops() { [ -z "$(new_loops)" ]; }

# Of all targets: which of them has left it is not known.
loops_left() {
	local volumes
	volumes=$(volumes_left "$TMPDIR"/{,*/,*/*/}cowfs-bats.*/run)
	[ -z "$volumes" ] || { printf 'check: volumes are left behind:\n%s\n' "$volumes" >&2 && row check $SECONDS 'volumes left'; }
	[ -z "${COWFS_CHECK_TABLE-}" ] || return 0
	wait_until 10 no_new_loops && return
	printf 'check: these loop devices are left behind:\n%s\n' "$(new_loops)" >&2
	new_loops | while read -r device _; do
		blockdev --setrw "$device"
		losetup -d "$device"
	done
	row check $SECONDS 'loop devices left'
}

# $1: a signal to end them; else they are waited for
end_beside() {
	[ -n "$beside" ] || return 0
	[ -z "${1-}" ] || kill -s "$1" -- "-$beside" 2>/dev/null
	# nothing is left that it would be in the way of
	# shellcheck disable=SC2046 # process ids
	renice -n "$(nice)" $(ps -o pid= -s "$beside") >/dev/null 2>&1
	wait "$beside" || bad=1
	cat "$dir/beside"
	beside=''
}
# $target is what runs, if anything does
end_all() {
	trap '' HUP INT TERM
	[ -z "$current" ] || kill -s INT "$current" 2>/dev/null
	end_beside TERM
	[ -z "$current" ] || { wait_until 120 ended "$current" && tidy "$target"; row "$target" "$from" interrupted; }
	loops_left
	print_table
	exit 1
}
trap end_all HUP INT TERM
if [ -z "${COWFS_CHECK_TABLE-}" ] && ! syncs "${COWFS_SYNC_SECONDS:-60}"; then
	echo "check: sync(2) hangs on this machine, before anything has run: it has not returned in ${COWFS_SYNC_SECONDS:-60} s. Threads that wait:" >&2
	stuck /proc/[0-9]*/task/[0-9]* >&2
	exit 1
fi
loops >"$dir/loops"

# What is left when the time is over or the first target failed.
skip() {
	row "$1" $SECONDS 'not run'
}

for target in "${targets[@]}"; do
	from=$SECONDS
	left=$(rest)
	if [ "$left" -le 0 ] || { [ "$target" != "${targets[0]}" ] && [ ! -e "$dir/begun" ]; }; then
		skip "$target"
		continue
	fi
	: >"$dir/output"
	: >"$COWFS_CHECK_FIRST"
	# in the background, where a trap need not wait for it; with the signals that a terminal would give it
	COWFS_CHECK_TARGET=$$.$target env --default-signal \
		timeout -s INT -k 100 "$left" "$make" --no-print-directory "${jobs[@]}" "$target" >"$dir/output" 2>&1 </dev/null &
	current=$!
	tail -n +1 -s 0.2 -f --pid=$current "$dir/output" &
	shown=$!
	wait $current
	case $? in
	0) result=ok ;;
	124 | 137) result='out of time' ;;
	*) result=FAILED ;;
	esac
	wait $shown
	[ "$result" = ok ] || first_failure >>"$table.first"
	tidy "$target" || result="${result/ok/FAILED}, not tidy"
	current=''
	row "$target" $from "$result"
	# beside others, no target needs the first one
	[ "$target" = "${targets[0]}" ] || continue
	[ "$result" = ok ] || [ -n "${COWFS_CHECK_TABLE-}" ] || continue
	: >"$dir/begun"
	if [ $# -gt 0 ]; then
		echo "check: beside the following: $*"
		COWFS_CHECK_TABLE=$table setsid nice "$0" "$make" "$@" >"$dir/beside" 2>&1 </dev/null &
		beside=$!
		shift $#
	fi
done
for target; do # those that were to run beside it
	skip "$target"
done
end_beside
loops_left
print_table
[ $bad = 0 ] || exit 1
