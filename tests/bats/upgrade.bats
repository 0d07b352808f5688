#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031,SC2034,SC2154 # each test is a subshell; run sets status, output and stderr
# cowctl upgrade on a volume that is not mounted: only its own commands wait for it. Under load and on the root: the guest `upgrade`.
# bats file_tags=commands

load lib

# The volume has a block of its own in RAM. In FAT nothing is known to be free.
replaced_volume() {
	kernel_is 6 9 || skip "a kernel before 6.9"
	card_make vfat 100 150
	cow format "$CARD"
	COWFS_PROGRAM=$COWFS_BUILD/cowfs attach --on-crash replace
	dd if=/dev/urandom of="$DEV" bs=4k count=1 seek=20000 oflag=direct status=none
	SUM=$(block_sum)
}

kernel_is() {
	local major minor rest
	IFS=.- read -r major minor rest </proc/sys/kernel/osrelease
	[ "$major" -gt "$1" ] || [ "$major" = "$1" ] && [ "$minor" -ge "$2" ]
}

block_sum() { dd if="$DEV" bs=4k count=1 skip=20000 iflag=direct status=none | sha256sum; }

# What the process has mapped of files on a disk
on_disk() { awk '$6 ~ "^/" && $4 !~ "^00:"' "/proc/$1/maps"; }

@test "upgrade: another process of the installed program serves, from RAM, as often as asked" {
	local pid
	replaced_volume
	pid=$(worker_pid)
	[ -n "$(on_disk "$pid")" ]
	for _ in 1 2 3 4; do
		run -0 --separate-stderr cow upgrade vol
		[[ $output == "vol: version "*" replaced by "* ]]
		[ "$(worker_pid)" != "$pid" ]
		pid=$(worker_pid)
		[ -z "$(on_disk "$pid")" ]
		[ "$(cat "/proc/$pid/comm")" = cowfs ]
		[ "$(block_sum)" = "$SUM" ]
	done
	[ "$(status_of .replaced)" = 0 ]
	[ "$(status_of .upgrade)" = "done" ]
	run -0 cow upgrade --json
	jq -e '.ok and .name == "vol" and .version and .version_before' <<<"$output"
	cow commit
	[ "$(block_sum)" = "$SUM" ]
	detach
	[ "$(dd if="$CARD" bs=4k count=1 skip=20000 iflag=direct status=none | sha256sum)" = "$SUM" ]
}

@test "upgrade: a libfuse without custom I/O serves, and takes over" {
	LD_PRELOAD=$COWFS_BUILD/tests/nocustomio.so replaced_volume
	local pid n
	for n in 0 1; do
		pid=$(worker_pid)
		# libfuse's own descriptor of /dev/fuse, in place of the pipe
		[ "$(find "/proc/$pid/fd" -lname /dev/fuse | wc -l)" = 3 ]
		[ "$(block_sum)" = "$SUM" ]
		[ $n = 1 ] || LD_PRELOAD=$COWFS_BUILD/tests/nocustomio.so cow upgrade vol
	done
	cow commit
	detach
	[ "$(dd if="$CARD" bs=4k count=1 skip=20000 iflag=direct status=none | sha256sum)" = "$SUM" ]
}

@test "upgrade: a path that is relative, a log of its own, options" {
	kernel_is 6 9 || skip "a kernel before 6.9"
	card_make ext4 100 100
	truncate -s 64M "$T/log"
	loop_up "$T/log"
	cow format "$CARD" --log "$LOOP"
	cd /dev
	CARD=${CARD#/dev/}
	COWFS_PROGRAM=$COWFS_BUILD/cowfs attach --on-crash replace --log "${LOOP#/dev/}" --ram 32M --checkpoint always
	CARD=/dev/$CARD
	cow upgrade
	[ "$(status_of .device)" = "$CARD" ]
	[ "$(status_of .log_device)" = "$LOOP" ]
	detach
}

@test "upgrade: refused: no program, no process that takes over, no volume" {
	replaced_volume
	local pid
	pid=$(worker_pid)
	detach
	COWFS_PROGRAM=/bin/false attach --on-crash replace
	pid=$(worker_pid)
	fails 1 "^cowctl: vol: /bin/false does not start; the installed version serves when it is attached again" upgrade vol
	fails 1 "does not start" upgrade --json
	[ "$(worker_pid)" = "$pid" ]
	[ "$(status_of .upgrade)" = "none" ]
	detach
	attach --on-crash stop
	fails 1 "no process can take over: on-crash=stop \(asked for\)" upgrade vol
	detach
	fails 4 "no volume is attached as vol" upgrade vol
	run -0 cow upgrade
	[ -z "$output" ]
}
