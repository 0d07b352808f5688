#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks hold.pml: run.sh short|all. All: also each mutant, for which spin must find a trace.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
failed=0

# expected errors (0 or 1), then macros
check() {
	want=$1
	shift
	spin -a "$@" "$here/hold.pml" >spin.out || { cat spin.out; exit 1; }
	cc -O1 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=4096 -o pan pan.c
	./pan -m1000000 -w22 >pan.out 2>&1 || true
	errors=$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' pan.out)
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out)
	if [ "$errors" = "$want" ] && ! grep -q 'max search depth\|out of memory' pan.out; then
		echo "ok $*: $states states, $errors errors"
	else
		echo "not ok $*: errors: ${errors:-none}, expected $want"
		cat pan.out
		failed=1
	fi
}

check 0 -DOPS=4 -DCUTS=1
check 0 -DLAG=1 -DOPS=2 -DCUTS=1
check 0 -DTRIAL=1 -DOPS=4 -DCUTS=1 -DNS=16
if [ "${1:-short}" = all ]; then
	check 0 -DOPS=4 -DCUTS=2
	check 0 -DOPS=5 -DCUTS=1
	check 0 -DOPS=5 -DCUTS=1 -DNS=6
	check 0 -DLAG=1 -DOPS=3 -DCUTS=1
	check 0 -DTRIAL=1 -DOPS=4 -DCUTS=2 -DNS=20
	check 0 -DTRIAL=2 -DOPS=5 -DCUTS=1 -DNS=18
	check 0 -DTRIAL=1 -DLAG=1 -DOPS=2 -DCUTS=1 -DNS=40
	for rule in NO_H1_DIRECT NO_H1_HOME NO_H3 NO_H4_CHAIN NO_H4_PLACE NO_H4_FLAG NO_H4_FIRST; do
		check 1 -DOPS=5 -DCUTS=1 -D$rule
	done
	for rule in NO_H1_RING NO_H5; do
		check 1 -DOPS=5 -DCUTS=1 -DNS=6 -D$rule
	done
	check 1 -DLAG=1 -DOPS=3 -DCUTS=1 -DNO_H1_HOME
	for rule in NO_T_FIRST NO_T_REPEAT NO_T_BEFORE NO_T_COUNT NO_T_ACCEPT; do
		check 1 -DTRIAL=1 -DOPS=4 -DCUTS=1 -DNS=16 -D$rule
	done
	check 1 -DTRIAL=1 -DLAG=1 -DOPS=3 -DCUTS=1 -DNS=60 -DNO_T_PAD
fi
exit $failed
