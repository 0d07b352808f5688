#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs each unit test program once, for COWFS_UNIT_SECONDS (300) at most; shows the whole output of one that fails. Counts what was skipped.
set -u
export COWFS_SECCOMP=kill # a system call that the filter of a daemon's process refuses ends it
passed=0 failed=0 skipped=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for t in "$@"; do
	if timeout "${COWFS_UNIT_SECONDS:-300}" "$t" >"$out" 2>&1; then
		n=$(grep -c '^\[       OK' "$out")
		s=$(grep -c '^\[  SKIPPED' "$out")
		[ "$s" -gt 0 ] && s=$((s / 2)) && grep -i 'skip' "$out" | head -5
		passed=$((passed + n)) skipped=$((skipped + s))
		echo "  ok    $(basename "$t") ($n tests)"
	else
		failed=$((failed + 1))
		echo "  FAIL  $(basename "$t")"
		cat "$out"
	fi
done
echo "unit: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
