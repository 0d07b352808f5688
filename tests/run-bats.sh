#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs bats files, COWFS_BATS_JOBS at a time (three for two CPUs, because they wait more than they compute), each in a mount namespace
# of its own and for COWFS_BATS_SECONDS (1200) at most: run-bats.sh FILE... A file with a line "# alone: REASON" runs after the others, by
# itself. Those with "# waits: REASON" need hardly any CPU: two more of these run beside the others. "# seconds: NUMBER" is what a
# file takes if that is much more than two seconds a test.
# A test that fails runs once more when no other one runs, because the load of a machine is not an error of cowfs. Both results
# are printed. The second one counts, unless more than COWFS_BATS_AGAIN (8) tests failed. COWFS_CHECK_FILES: a file for what each took.
# A signal interrupts the tests that run, which tidy up, and ends this.
set -u
# the programs of the system: what somebody has in front of them is slower to start (pyenv), or another version
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

children=() # process ids
interrupted() {
	trap '' HUP INT TERM
	[ ${#children[@]} = 0 ] || kill -s "$1" "${children[@]}" 2>/dev/null
	wait
	exit 130
}
trap 'interrupted TERM' HUP INT TERM

# bats of file $1 with further arguments, output to $2. A process that cannot be killed does not keep this script.
run() {
	local file=$1 out=$2 code=0
	shift 2
	trap 'interrupted INT' HUP INT TERM
	env --default-signal timeout -k 20 "${COWFS_BATS_SECONDS:-1200}" unshare --mount --propagation private \
		bats --tap --timing --print-output-on-failure "$@" "$file" >"$out" 2>&1 </dev/null &
	children=($!)
	wait "${children[0]}" || code=$?
	children=()
	return $code
}

# one FILE: the output goes to $dir/NAME.out, and to $dir/NAME.failed if the file failed
one() {
	local name start=$SECONDS code cpu
	name=$(basename "$1" .bats)
	run "$1" "$dir/$name.out"
	code=$?
	times >"$dir/$name.cpu" # the second line is that of the tests' processes, without daemons
	cpu=$(awk 'NR == 2 { gsub("s", ""); split($1, u, "m"); split($2, s, "m"); printf "%d", (u[1] + s[1]) * 60 + u[2] + s[2] }' "$dir/$name.cpu")
	[ -z "${COWFS_CHECK_FILES-}" ] || echo "$((SECONDS - start)) $name" >>"$COWFS_CHECK_FILES"
	if [ $code = 0 ]; then
		echo "  ok    $name ($(grep -c '^ok' "$dir/$name.out") tests, $((SECONDS - start)) s, $cpu s of CPU)"
	else
		echo "  FAIL  $name ($(grep -c '^not ok' "$dir/$name.out") of $(grep -cE '^(not )?ok' "$dir/$name.out") tests, exit $code, $((SECONDS - start)) s)"
		printf '%s\n' "$1" >"$dir/$name.failed"
	fi
}

dir=$(mktemp -d) || exit
trap 'rm -rf "$dir"' EXIT
# the longest first, so that no long one is left at the end
seconds() {
	local seconds
	seconds=$(sed -n 's/^# seconds: //p' "$1")
	echo "${seconds:-$(($(grep -c '^@test' "$1") * 2))}"
}
mapfile -t files < <(for f in "$@"; do printf '%s %s\n' "$(seconds "$f")" "$f"; done | sort -rn | cut -d' ' -f2-)
alone=() waits=() beside=()
for f in ${files[@]+"${files[@]}"}; do
	if grep -q '^# alone: ' "$f"; then
		alone+=("$f")
	elif grep -q '^# waits: ' "$f"; then
		waits+=("$f")
	else
		beside+=("$f")
	fi
done

# places JOBS FILE...: so many at a time
places() {
	local jobs=$1 f p left
	shift
	children=()
	for f; do
		while [ ${#children[@]} -ge "$jobs" ]; do
			wait -n
			left=()
			for p in "${children[@]}"; do
				! kill -0 "$p" 2>/dev/null || left+=("$p")
			done
			children=(${left[@]+"${left[@]}"})
		done
		one "$f" &
		children+=($!)
	done
	wait
	children=()
}
in_background() {
	trap 'interrupted TERM' HUP INT TERM
	places "$@"
}
in_background 2 ${waits[@]+"${waits[@]}"} &
first=$!
in_background "${COWFS_BATS_JOBS:-$((($(nproc) * 3 + 1) / 2))}" ${beside[@]+"${beside[@]}"} &
children=("$first" $!)
wait
places 1 ${alone[@]+"${alone[@]}"}

# the names of the tests that failed in output $1, as one expression for bats --filter
failed_names() {
	sed -nE 's/^not ok [0-9]+ (.*)$/\1/p' "$1" | sed -E 's/ # timeout after.*$//; s/ in [0-9]+ms$//; s/[][()*+?.^$|{}\\]/\\&/g' | paste -sd '|'
}

bad=0 again=0 left=()
for f in "$dir"/*.failed; do
	[ -e "$f" ] || continue
	name=$(basename "$f" .failed) out=$dir/$(basename "$f" .failed).out
	echo "---- $name: the first run ----"
	grep -v '^ok' "$out"
	names=$(failed_names "$out")
	again=$((again + $(grep -c '^not ok' "$out")))
	# a file that ended before its last test runs again as a whole
	planned=$(sed -n 's/^1\.\.//p' "$out")
	[ "${planned:-0}" = "$(grep -cE '^(not )?ok' "$out")" ] || names=''
	if [ $again -gt "${COWFS_BATS_AGAIN:-8}" ]; then
		bad=$((bad + 1))
		left+=("$(cat "$f")")
		continue
	fi
	echo "---- $name: once more, alone ----"
	if COWFS_BATS_TRACE=1 run "$(cat "$f")" "$out.2" ${names:+--filter "^($names)\$"} && grep -q '^ok' "$out.2"; then
		grep '^ok' "$out.2" | sed 's/^/PASSED ALONE: /'
	else
		cat "$out.2"
		bad=$((bad + 1))
		left+=("$(cat "$f")")
	fi
done
cat "$dir"/*.out | sed -nE 's/^ok [0-9]+ (.*) in ([0-9]+)ms$/\2 \1/p' | sort -rn | head -12 |
	awk '{ ms = $1; sub(/^[0-9]+ /, ""); printf "%6.1f s  %s\n", ms / 1000, $0 }'
echo "bats: $(cat "$dir"/*.out | grep -c '^ok') passed, $(cat "$dir"/*.out | grep -c '^not ok') failed in the first run," \
	"$(cat "$dir"/*.out | grep -c '^ok.*# skip') skipped; $bad files failed"
[ $bad = 0 ] || echo "check-bats make check-bats BATS=\"${left[*]}\"" | tee -a "${COWFS_CHECK_AGAIN:-/dev/null}" | sed 's/^check-bats/bats: again:/'
[ $bad = 0 ] && [ "$(find "$dir" -name '*.out' | wc -l)" = $# ]
