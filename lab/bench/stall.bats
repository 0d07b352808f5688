#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031,SC2154 # each test is a subshell
# How long a program that creates a small file every millisecond waits while a volume is committed, frozen or synced 8 times, each
# time with 4 MiB and 100 small files dirty. FS=ext4|xfs|btrfs HOW=commit|fsfreeze|sync.

load ../../tests/bats/lib

once() {
	case $HOW in
	commit) cow commit >/dev/null ;;
	fsfreeze) fsfreeze -f "$MNT" && fsfreeze -u "$MNT" ;;
	sync) sync -f "$MNT" ;;
	esac
}

@test "stall of a writer" {
	local i j before total=0 writer written
	card_make "$FS" 400 900 && cow prepare "$CARD" --log-size 400M
	attach
	mount_volume
	background python3 -c '
import os, sys, time
waits, i, top = [], 0, sys.argv[1]
while not os.path.exists(top + "/stop"):
    begin = time.perf_counter()
    with open(f"{top}/w{i % 50}", "wb") as f:
        f.write(os.urandom(4096))
    waits.append(1000 * (time.perf_counter() - begin))
    i += 1
    time.sleep(0.001)
waits.sort()
print(*(f"{waits[int((len(waits) - 1) * q)]:.2f}" for q in (.5, .99, .999, 1)))' "$MNT" >"$T/waits"
	writer=$BG
	written=$(card_written)
	for i in 1 2 3 4 5 6 7 8; do
		dd if=/dev/urandom of="$MNT/big$((i % 3))" bs=1M count=4 status=none
		for j in {1..100}; do echo "$i$j" >"$MNT/s$j"; done
		sleep 0.3
		before=${EPOCHREALTIME/./}
		once
		total=$((total + ${EPOCHREALTIME/./} - before))
	done
	touch "$MNT/stop"
	wait "$writer"
	say "$FS, $HOW: mean $((total / 8000)) ms, the writer waits (50 %, 99 %, 99.9 %, maximum) $(cat "$T/waits") ms," \
		"card $((($(card_written) - written) / 1024)) KiB"
	detach
}
