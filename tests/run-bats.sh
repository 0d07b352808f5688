#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs bats files, COWFS_BATS_JOBS at a time (three for two CPUs, because they wait more than they compute), each in a mount namespace
# of its own and for COWFS_BATS_SECONDS (1200) at most: run-bats.sh FILE... A file with a line "# alone: REASON" runs after the others, by
# itself. "# seconds: NUMBER" is what a file takes if that is much more than two seconds a test.
# A test that fails runs once more when no other one runs, because the load of a machine is not an error of cowfs. Both results
# are printed. The second one counts, unless more than COWFS_BATS_AGAIN (8) tests failed.
set -u
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

# bats of file $1 with further arguments, output to $2. A process that cannot be killed does not keep this script.
run() {
	local file=$1 out=$2
	shift 2
	env --default-signal timeout -k 20 "${COWFS_BATS_SECONDS:-1200}" unshare --mount --propagation private \
		bats --tap --timing --print-output-on-failure "$@" "$file" >"$out" 2>&1 </dev/null
}

# one FILE FOLDER: the output goes to FOLDER/NAME.out, and to FOLDER/NAME.failed if the file failed
one() {
	local name start=$SECONDS code
	name=$(basename "$1" .bats)
	run "$1" "$2/$name.out"
	code=$?
	if [ $code = 0 ]; then
		echo "  ok    $name ($(grep -c '^ok' "$2/$name.out") tests, $((SECONDS - start)) s)"
	else
		echo "  FAIL  $name ($(grep -c '^not ok' "$2/$name.out") of $(grep -cE '^(not )?ok' "$2/$name.out") tests, exit $code, $((SECONDS - start)) s)"
		printf '%s\n' "$1" >"$2/$name.failed"
	fi
}

if [ "$1" = --one ]; then
	one "$3" "$2"
	exit 0
fi

dir=$(mktemp -d) || exit
trap 'rm -rf "$dir"' EXIT
alone=() beside=()
for f in "$@"; do
	if grep -q '^# alone: ' "$f"; then alone+=("$f"); else beside+=("$f"); fi
done
# the longest first, so that no long one is left at the end
seconds() {
	local seconds
	seconds=$(sed -n 's/^# seconds: //p' "$1")
	echo "${seconds:-$(($(grep -c '^@test' "$1") * 2))}"
}
for f in "${beside[@]}"; do printf '%s %s\n' "$(seconds "$f")" "$f"; done | sort -rn | cut -d' ' -f2- | tr '\n' '\0' |
	xargs -r -0 -n 1 -P "${COWFS_BATS_JOBS:-$((($(nproc) * 3 + 1) / 2))}" "$0" --one "$dir"
for f in "${alone[@]}"; do one "$f" "$dir"; done

# the names of the tests that failed in output $1, as one expression for bats --filter
failed_names() {
	sed -nE 's/^not ok [0-9]+ (.*)$/\1/p' "$1" | sed -E 's/ in [0-9]+ms$//; s/ # timeout after.*$//; s/[][()*+?.^$|{}\\]/\\&/g' | paste -sd '|'
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
[ $bad = 0 ] || echo "bats: again: make check-bats BATS=\"${left[*]}\""
[ $bad = 0 ] && [ "$(find "$dir" -name '*.out' | wc -l)" = $# ]
