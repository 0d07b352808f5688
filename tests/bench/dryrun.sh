#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What `commit --dry-run` says and what the commit takes: the table of docs/BENCHMARKS.md, "The time that a dry run tells". As root.
#
#	tests/bench/dryrun.sh [CARD]...		cards of the model by their ids, and loop; default: loop and all cards
#
# Loads: 60 files of 9 kB in 20 folders (small), a file of 1 MiB and one of 12 MiB, three rounds, on an ext4 of 400 MiB. A card of
# the model answers in real time, and its profile is known. The time is that for which the card is writable. The first
# commit is the estimate by the profile alone; the others are estimated by the commits before.
# Each line has the geometric mean of said/took of a load, and of the worst commit: 0.5 or 2 is half or twice as long.
# shellcheck disable=SC2119 # a function whose argument may be left out
set -euo pipefail
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}"
# shellcheck source=tests/bench/lib.bash
. "$(dirname "$0")/lib.bash"
cow_setup
C=$T/sim
mkdir "$C"
CARD=''
trap 'SIM stop "$C" 2>/dev/null; volume_tidy' EXIT
trap 'exit 130' INT TERM

load_small() {
	local d f
	for d in {01..20}; do
		mkdir -p "$MNT/d$d"
		for f in 1 2 3; do
			head -c 9000 /dev/urandom >"$MNT/d$d/$1-$f"
		done
	done
}
load_1M() { head -c 1M /dev/urandom >"$MNT/one-$1"; }
load_12M() { head -c 12M /dev/urandom >"$MNT/twelve-$1"; }

# What one commit of LOAD ROUND was said to take and took, in seconds
commit_once() {
	local said
	"load_$1" "$2"
	sync -f "$MNT"
	said=$(cow commit --dry-run --json | jq .report.writable_seconds)
	echo "$1 $said $(cow commit --json | jq .report.writable_seconds)"
}

one_card() {
	local options=() load round
	if [ "$WHICH" = loop ]; then
		rm -f "$IMG"
		truncate -s 480M "$IMG"
		card_up
	else
		CARD=$(SIM --loop --real-time --fresh "$WHICH" 480M "$C")
		options=(--profile "$WHICH")
	fi
	mkfs.ext4 -q "$CARD" 400M
	cow format "$CARD" >/dev/null
	attach "${options[@]}"
	mount_volume
	load_1M 0
	commit_once 1M 0 | sed 's/^1M/first/' >"$T/times"
	for round in 1 2 3; do
		for load in small 1M 12M; do
			commit_once $load $round >>"$T/times"
		done
	done
	umount "$MNT"
	cow detach vol >/dev/null
	if [ "$WHICH" = loop ]; then card_down; else SIM stop "$C"; fi
	CARD=''
	awk -v which="$WHICH" '
		function abs(x) { return x < 0 ? -x : x }
		{ r = log($2 / $3); n[$1]++; sum[$1] += r; took[$1] += $3; if ($1 != "first" && abs(r) > abs(worst)) worst = r }
		END {
			printf "| %s |", which
			for (i = 1; i <= split("first small 1M 12M", load, " "); i++)
				printf " %.2f (%.2f s) |", exp(sum[load[i]] / n[load[i]]), took[load[i]] / n[load[i]]
			printf " %.2f |\n", exp(worst)
		}' "$T/times"
}

IMG=$T/card.img
[ $# -gt 0 ] || mapfile -t all < <(SIM list --json | jq -r '.[] | select(.members == 1 and (.profile | endswith("-mft") | not)) | .profile')
[ $# -gt 0 ] || set -- loop "${all[@]}"
echo "| card | first | small files | 1 MiB | 12 MiB | worst |"
echo "|---|---|---|---|---|---|"
for WHICH; do one_card; done
