#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What the rules cost that cowfs checks while it runs (base/invariant.h): instructions in user space for one block, counted by
# callgrind, with them and in a build without. The figures of docs/BENCHMARKS.md.
set -euo pipefail

TOP=$(cd "$(dirname "$0")/../.." && pwd)
FEW=20480 MANY=40960 # blocks: the difference leaves out start and end

make -s -C "$TOP" build/tests/rulecost
CFLAGS='-O2 -g -DCOWFS_NO_INVARIANTS' make -s -C "$TOP" B=build/no-invariants build/no-invariants/tests/rulecost

count() {
	valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 | awk '/Collected/ { print $NF }'
}

# instructions for a block
block() {
	echo $((($(count "$1" "$2" $MANY) - $(count "$1" "$2" $FEW)) * 10 / (MANY - FEW)))
}

for what in write read commit; do
	with=$(block "$TOP/build/tests/rulecost" $what) without=$(block "$TOP/build/no-invariants/tests/rulecost" $what)
	awk -v what=$what -v a="$with" -v b="$without" \
		'BEGIN { printf "%s: %.1f instructions for 4 KiB with the rules, %.1f without: %+.2f %%\n", what, a / 10, b / 10, 100 * (a - b) / b }'
done
