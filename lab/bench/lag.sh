#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What a log with lag 1 costs: the same commits with lag 0 and 1 in turn, on a slow card. The figures of docs/BENCHMARKS.md,
# "Lag 1". As root; 1 GiB in TMPDIR.
#
#	lab/bench/lag.sh
#	BENCH_PAIRS=N		(1) runs of each
#	BENCH_KEEP=FILE		single figures are added to it, and the table is of all that it has
#	BENCH_SLOW="KIB_PER_S US QUEUE"	the card, as build/tests/slowcard takes it (19531 1000 1: 20 MB/s, 1 ms)
#
# One run: 1,500 small files (24 MiB) arrive as by a package manager, a commit; they are replaced twice, each with a commit; three
# times 60 × (sqlite insert, log line, sync) and a commit; three times one file of one line and a commit; a checkpoint.
# shellcheck disable=SC2119,SC2120 # functions whose arguments may be left out
set -euo pipefail
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

[ $# = 0 ] || { echo "usage: lab/bench/lag.sh" >&2; exit 2; }
# shellcheck source=lab/bench/lib.bash
. "$(dirname "$0")/lib.bash"

MEASURE=$TOP/lab/bench/measure.py
SLOW=${BENCH_SLOW:-19531 1000 1}

# committed STEP [OPTION]...: one commit, as a line of figures
committed() {
	local step=$1 before
	shift
	before=$(card_written)
	cow commit "$NAME" --json "$@" >"$T/bill"
	printf '%s %s %s %s %s %s\n' "$LAG" "$step" "$(jq -r .report.duration_seconds "$T/bill")" $(($(card_written) - before)) \
		"$(jq -r .report.flushes "$T/bill")" "$(jq -r .report.logged_blocks "$T/bill")" >>"$KEEP"
}

run() {
	local i
	LAG=$1
	IMG=$T/card.img
	rm -f "$IMG"
	card_make ext4 320 384 -J size=8
	cow prepare "$CARD" --log-size 48M --lag "$LAG" >/dev/null
	loop_down "$CARD"
	card_up
	attach --ram 256M 2>/dev/null
	mount_volume -o noatime,discard,noinit_itable
	mkdir "$MNT/data" "$MNT/files"
	cow commit "$NAME" >/dev/null # the first one writes the heads of all segments
	"$MEASURE" packages "$MNT/files" 1500 1
	committed install
	for i in first second; do
		"$MEASURE" packages "$MNT/files" 1500 "$i"
		committed "upgrade-$i"
	done
	for i in 1 2 3; do
		"$MEASURE" logger "$MNT/data" 60
		committed logger
	done
	for i in 1 2 3; do
		echo "$i" >"$MNT/line"
		committed line
	done
	committed checkpoint --checkpoint
	detach >/dev/null
	card_down
}

cow_setup
trap volume_tidy EXIT
mkdir "$T/slowcard"
KEEP=${BENCH_KEEP:-$T/figures}
touch "$KEEP"
for _ in $(seq "${BENCH_PAIRS:-1}"); do
	first=$(($(grep -c install "$KEEP" || true) / 2 % 2)) # in turn
	run $first
	run $((1 - first))
done
echo "$(date +%F), Linux $(uname -r), $(nproc) CPUs, $("$COWFS_BUILD/cowctl" --version), load $(cut -d' ' -f1 /proc/loadavg), card $SLOW"
"$MEASURE" lag "$KEEP"
