#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs bats files, the longest first, each in a mount namespace and a TMPDIR of its own and for COWFS_BATS_SECONDS (3000) at most:
# run-bats.sh FILE... They wait more than they compute: the next one begins when the processors are idle for a fifth of
# the time, or fewer than three for each processor run, and COWFS_BATS_JOBS (five for each) run at most. A file with a line "# alone: REASON" runs after the others, by
# itself. How long a file takes is what it took last (build/bats.times), else its line "# seconds: NUMBER", else two seconds a test.
# With COWFS_TURN, a commit, a third of the files with a line "# turn: 3" runs, another third with another commit. Those that the commit
# changes, and those that COWFS_ALSO names ("clone delta"), run in any case.
# What a test leaves behind fails its file, with the name of the test, and is ended. The last line is the first failure: file, line, test.
# COWFS_CHECK_FILES: a file for what each took; COWFS_CHECK_FIRST: one for the failures, the first one last; COWFS_CHECK_LEFT: one for the
# files, kinds and tests that were left out, which are the last lines before a failure.
# A signal interrupts the tests that run, which tidy up, and ends this.
set -u
. "${0%/*}/end.bash"
# the programs of the system: what somebody has in front of them is slower to start (pyenv), or another version
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end
times=${COWFS_BUILD:-build}/bats.times

children=() # process ids
# shellcheck disable=SC2317 # by traps
interrupted() {
	trap '' HUP INT TERM
	[ ${#children[@]} = 0 ] || kill -s "$1" "${children[@]}" 2>/dev/null
	wait
	# bats ends at once, its test when it has tidied up, if it can
	# shellcheck disable=SC2046 # process ids
	[ -z "${2-}" ] || { wait_until 6 none_of "$2" || kill_with_mounts $(processes_of "$2"); left_in "$2" >/dev/null; }
	exit 130
}
trap 'interrupted TERM' HUP INT TERM

# The processes of the tests whose TMPDIR is $1
processes_of() { grep -slzxF "TMPDIR=$1" /proc/[0-9]*/environ | cut -d/ -f3; }
# shellcheck disable=SC2317 # by wait_until
none_of() { [ -z "$(processes_of "$1")" ]; }

# What tests have left in folder $1: says whose it is, and ends it.
left_in() {
	local t p devices
	for t in "$1"/cowfs-bats.*; do
		[ -d "$t" ] || continue
		p=$({ grep -slzE "^[A-Z_]+=$t(/|\$)" /proc/[0-9]*/environ | cut -d/ -f3; processes_of "$1"; } | sort -u | xargs)
		echo "not ok 0 left behind by $(cat "$t/test" 2>/dev/null): $t${p:+, processes $p}"
		loops_in "$t"
		# shellcheck disable=SC2086 # words
		[ -z "$p" ] || kill_with_mounts $p
		volumes_left "$t/run"
		devices=$(loops_in "$t" | cut -d' ' -f1 | xargs) # a number may be another's by now
		# shellcheck disable=SC2086
		[ -z "$devices" ] || { blockdev --setrw $devices && losetup -d $devices; }
		rm -rf "$t"
	done
	wait_until 60 none_of "$1" && return # one that looks at a device of others waits for it
	for p in $(processes_of "$1"); do
		echo "not ok 0 left behind: process $p, $(tr '\0' ' ' <"/proc/$p/cmdline")"
	done
	# shellcheck disable=SC2046 # words
	kill_with_mounts $(processes_of "$1")
}

# one NUMBER FILE: the output goes to $dir/NAME.out. A process that cannot be killed does not keep this script.
one() {
	local name start=$SECONDS code=0 cpu out
	name=$(basename "$2" .bats)
	out=$dir/$name.out
	mkdir -m 755 "$dir/$1"
	# shellcheck disable=SC2064 # now
	trap "interrupted INT '$dir/$1'" HUP INT TERM
	TMPDIR=$dir/$1 env --default-signal timeout -k 8 "${COWFS_BATS_SECONDS:-3000}" unshare --mount --propagation private \
		bats --tap --timing --print-output-on-failure "$2" >"$out" 2>&1 </dev/null &
	children=($!)
	wait "${children[0]}" || code=$?
	children=()
	left_in "$dir/$1" >>"$out"
	! grep -q '^not ok 0' "$out" || code=1
	times >"$dir/$name.cpu" # the second line is that of the tests' processes, without daemons
	cpu=$(awk 'NR == 2 { gsub("s", ""); split($1, u, "m"); split($2, s, "m"); printf "%d", (u[1] + s[1]) * 60 + u[2] + s[2] }' "$dir/$name.cpu")
	[ -z "${COWFS_CHECK_FILES-}" ] || echo "$((SECONDS - start)) $name" >>"$COWFS_CHECK_FILES"
	echo "$name $((SECONDS - start))" >>"$dir/times"
	if [ $code = 0 ]; then
		echo "  ok    $name ($(grep -c '^ok' "$out") tests, $((SECONDS - start)) s, $cpu s of CPU)"
	else
		echo "  FAIL  $name ($(grep -c '^not ok' "$out") of $(grep -cE '^(not )?ok' "$out") tests, exit $code, $((SECONDS - start)) s)"
		grep -v '^ok' "$out"
		printf '%s\n' "$2" >>"$dir/failed"
	fi
}

dir=$(mktemp -d "${TMPDIR:-/tmp}/cb.XXX") || exit
chmod 755 "$dir"
trap 'rm -rf "$dir"' EXIT
seconds() {
	local seconds
	seconds=$(awk -v name="$(basename "$1" .bats)" '$1 == name { s = $2 } END { print s }' "$times" 2>/dev/null)
	seconds=${seconds:-$(sed -n 's/^# seconds: //p' "$1")}
	echo "${seconds:-$(($(grep -c '^@test' "$1") * 2))}"
}
mapfile -t files < <(for f in "$@"; do printf '%s %s\n' "$(seconds "$f")" "$f"; done | sort -rn | cut -d' ' -f2-)
in_any_case=" ${COWFS_ALSO-} $([ -z "${COWFS_TURN-}" ] || git diff --name-only HEAD~1 -- 'tests/bats/*.bats' 2>/dev/null |
	sed 's|.*/||; s|\.bats$||' | xargs) "
turn=$(cksum <<<"${COWFS_TURN-}")
alone=() beside=() later=0 n=0
declare -A other # those that have their turn with another commit
for f in ${COWFS_TURN:+"$@"}; do # in the order of their names: how long they take differs from run to run
	every=$(sed -n 's/^# turn: //p' "$f")
	[ -z "$every" ] || [ $(((n++ + ${turn% *}) % every)) = 0 ] || [[ $in_any_case == *" $(basename "$f" .bats) "* ]] || other[$f]=1
done
for f in ${files[@]+"${files[@]}"}; do
	if [ -n "${other[$f]-}" ]; then
		later=$((later + 1))
	elif grep -q '^# alone: ' "$f"; then
		alone+=("$f")
	else
		beside+=("$f")
	fi
done

# Have the processors been idle for $1 percent of the time since the last call? What is nice is in nobody's way.
spent=0 idle=0
is_idle() {
	local cpu total=0 n was_spent=$spent was_idle=$idle
	read -ra cpu </proc/stat
	for n in "${cpu[@]:1:8}"; do total=$((total + n)); done
	spent=$total idle=$((cpu[2] + cpu[4] + cpu[5]))
	[ $(((idle - was_idle) * 100)) -ge $((($1) * (spent - was_spent))) ]
}

# places JOBS FILE...: so many at a time
number=0
places() {
	local jobs=$1 f p left
	shift
	children=()
	for f; do
		while [ ${#children[@]} -ge "$jobs" ] || { [ ${#children[@]} -ge $(($(nproc) * 3)) ] && ! is_idle 20; }; do
			sleep 1
			left=()
			for p in "${children[@]}"; do
				! kill -0 "$p" 2>/dev/null || left+=("$p")
			done
			children=(${left[@]+"${left[@]}"})
		done
		number=$((number + 1))
		one $number "$f" &
		children+=($!)
		sleep 0.3 # so that what began is seen
	done
	wait
	children=()
}
places "${COWFS_BATS_JOBS:-$(($(nproc) * 5))}" ${beside[@]+"${beside[@]}"}
places 1 ${alone[@]+"${alone[@]}"}

[ -d "${times%/*}" ] && { cat "$times" "$dir/times" 2>/dev/null | tac | awk '!seen[$1]++' >"$times.new" && mv "$times.new" "$times"; }
cat "$dir"/*.out | sed -nE 's/^ok [0-9]+ (.*) in ([0-9]+)ms$/\2 \1/p' | sort -rn | head -12 |
	awk '{ ms = $1; sub(/^[0-9]+ /, ""); printf "%6.1f s  %s\n", ms / 1000, $0 }'
count() { cat "$dir"/*.out | grep -c "$1"; }
echo "bats: $(($(count '^ok') - $(count '^ok.*# skip'))) passed, $(count '^not ok') failed," \
	"$(($(count '^ok.*# skip') - $(count '^ok.*# skip not its turn'))) skipped, $(count '^ok.*# skip not its turn') and $later files have their turn with another commit"
# what is not judged: files, kinds, and each skip with its reason
{
	[ $later = 0 ] || for f in "${!other[@]}"; do basename "$f" .bats; done | sort | xargs | sed 's/^/files of bats that have their turn with another commit: /'
	(cd "$dir" && grep -c '^ok.*# skip not its turn' /dev/null -- *.out) | sed -n '/:0$/!s/\.out:/ /p' | xargs -n 2 2>/dev/null | paste -sd, | sed '/./s/^/tests of one kind of file system that have their turn then: /; s/,/, /g'
	sed -nE '/# skip not its turn/d; s/^ok [0-9]+ (.*) # skip ?(.*)$/skipped: \1: \2/p' "$dir"/*.out | sed -E 's/ in [0-9]+ms//'
} 2>/dev/null | grep . | tee -a "${COWFS_CHECK_LEFT:-/dev/null}"
[ $(($(find "$dir" -name '*.out' | wc -l) + later)) = $# ] || exit 1
[ -e "$dir/failed" ] || exit 0
echo "check-bats make check-bats BATS=\"$(xargs <"$dir/failed")\"" | tee -a "${COWFS_CHECK_AGAIN:-/dev/null}" | sed 's/^check-bats/bats: again:/'
# FILE:LINE of the test, and what failed there, of each file that failed; the first one last
tac "$dir/failed" | while read -r file; do
	awk -v file="$file" '/^not ok/ { if (test) exit; test = $0; sub(/^not ok [0-9]+ /, "", test); sub(/ in [0-9]+ms/, "", test) }
		test && !at && match($0, /in test file [^,]*, line [0-9]+/) { at = substr($0, RSTART + 13, RLENGTH - 13); sub(/, line /, ":", at) }
		test && !what && match($0, /`.*failed/) { what = substr($0, RSTART) }
		END { print (at ? at : file) ": " test (what ? ": " what : "") }' "$dir/$(basename "$file" .bats).out"
done | sed 's/^/failed: /; $s/^failed/first failure/' | tee -a "${COWFS_CHECK_FIRST:-/dev/null}"
exit 1
