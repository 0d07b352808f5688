#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs each unit test program once, COWFS_UNIT_JOBS (three for two CPUs) at a time, for COWFS_UNIT_SECONDS (1800) each at most: run-unit.sh
# PROGRAM... Those of LONGEST come first, so that none is left at the end. Prints what each took and counts what was skipped; at the end
# the whole output of each that failed, and in the last line the first failure (COWFS_CHECK_FIRST: also in this file).
set -u
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

# one PROGRAM FOLDER: its output goes to FOLDER/NAME.out, its counts to FOLDER/NAME.ok, or its output to FOLDER/NAME.failed
one() {
	name=$(basename "$1") out=$2/$(basename "$1") start=$(date +%s%N)
	# shellcheck disable=SC2086 # words
	env --default-signal timeout "${COWFS_UNIT_SECONDS:-1800}" ${COWFS_UNIT_ALONE-} ${COWFS_EMULATOR-} "$1" >"$out.out" 2>&1 &
	trap 'kill -INT $!; wait $!; exit 130' HUP INT TERM # timeout has a group of its own
	wait $!
	code=$?
	took=$((($(date +%s%N) - start) / 100000000))
	took=$((took / 10)).$((took % 10))
	if [ "$code" != 0 ]; then
		mv "$out.out" "$out.failed"
		echo "  FAIL  $name (exit $code, $took s)"
		return
	fi
	passed=$(grep -c '^\[       OK' "$out.out")
	skipped=$(($(grep -c '^\[  SKIPPED' "$out.out") / 2)) # each is named twice
	echo "$passed $skipped" >"$out.ok"
	why=$([ "$skipped" = 0 ] || grep -i skip "$out.out" | head -5)
	[ -z "$why" ] || echo "$why" | sed "s/^/skipped: $name: /" >>"${COWFS_CHECK_LEFT:-/dev/null}"
	echo "${why:+$why
}  ok    $name ($passed tests, $took s)"
}

if [ "$1" = --one ]; then
	one "$3" "$2"
	exit 0
fi

export COWFS_SECCOMP=kill # a system call that the filter of a daemon's process refuses ends it
# the mount namespaces that one program makes hold no mount of another, which would outlive its unmount
alone='unshare --mount --propagation private'
$alone true 2>/dev/null || alone=
export COWFS_UNIT_ALONE="$alone"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT && trap 'exit 130' HUP INT TERM
LONGEST='measure_test btrfs_space_test xfs_space_test supervisor_test ext4_test ext4_journal_test shrink_test reader_test'
for program; do
	case " $LONGEST " in
	*" ${program##*/} "*) echo "1 $program" ;;
	*) echo "2 $program" ;;
	esac
done | sort -s -k 1,1 | cut -d' ' -f2- | tr '\n' '\0' |
	xargs -0 -n 1 -P "${COWFS_UNIT_JOBS:-$((($(nproc) * 3 + 1) / 2))}" "$0" --one "$dir"
first=
for f in "$dir"/*.failed; do
	[ -e "$f" ] || continue
	name=$(basename "$f" .failed)
	echo "---- $name ----"
	cat "$f"
	[ "$first" ] || first=$(awk -v name="$name" '/^\[ RUN/ { test = $NF } /^\[   LINE/ && !at { at = $5 " " }
		/^\[  ERROR/ { what = substr($0, 18) } /^\[  FAILED/ { exit } END { print "first failure: " at name ": " (test ? test : "no test") (what ? ": " what : "") }' "$f")
done
cat "$dir"/*.ok 2>/dev/null | awk -v programs=$# -v ok="$(find "$dir" -name '*.ok' | wc -l)" '
	{ passed += $1; skipped += $2 }
	END {
		printf "unit: %d passed, %d skipped; %d of %d programs failed\n", passed, skipped, programs - ok, programs
		exit ok != programs
	}' && exit 0
echo "$first" | tee -a "${COWFS_CHECK_FIRST:-/dev/null}"
exit 1
