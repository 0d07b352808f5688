#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The demo interrupted at any moment leaves nothing behind. The whole of it is check-demo.
# seconds: 30
# turn: 3

load lib

# what the demo with process group $1 left: processes, devices, mounts, files
left() {
	pgrep -r R,S,D,T -g "$1" -a || true
	daemons
	losetup -nl -O NAME,BACK-FILE | grep -F -e "$T/" -e "/cowfs:demo-$1" || true
	grep -hF "$T/demo" /proc/[0-9]*/mountinfo 2>/dev/null || true
	ls -d "$COWFS_RUNDIR"/* "$T/demo" 2>/dev/null || true
}
nothing_left() { [ -z "$(left "$1")" ]; }
in_step() { [ "$(grep -c '^==' "$T/out")" -ge "$1" ]; }

# The demo in a process group of its own; signal $1 for it ($2: -, or nothing for the first process alone) in step $3, $4 s later.
# A quick machine may have come to its end by then, but not within 0.1 s.
interrupted() {
	local code=0 group
	: >"$T/out"
	DEMO_DIR=$T/demo setsid env --default-signal "$BATS_TEST_DIRNAME/../demo.sh" --quick >>"$T/out" 2>&1 3>&- &
	group=$!
	wait_for 120 in_step "$3"
	sleep "$4"
	kill -s "$1" -- "$2$group" 2>/dev/null || grep -q '^demo: PASSED' "$T/out"
	wait $group || code=$?
	say "SIG$1 $4 s after step $3: exit $code, in step $(grep -c '^==' "$T/out")"
	wait_for 5 nothing_left $group || { cat "$T/out"; left $group; return 1; }
	[ $code != 0 ] || { [[ $4 != 0.0? ]] && grep -q '^demo: PASSED' "$T/out"; }
}

@test "demo: interrupted at any moment it leaves nothing behind" {
	RANDOM=${EPOCHREALTIME#*.}
	# while it attaches, also for the second time, and anywhere
	interrupted INT - 3 "0.0$((RANDOM % 10))"
	interrupted INT - 11 "0.0$((RANDOM % 10))"
	interrupted TERM '' 3 "0.0$((RANDOM % 10))"
	interrupted TERM - $((RANDOM % 10 + 1)) "0.$((RANDOM % 10))"
	interrupted HUP '' $((RANDOM % 10 + 1)) "0.$((RANDOM % 10))"
	interrupted INT - $((RANDOM % 10 + 1)) "0.$((RANDOM % 10))"
}
