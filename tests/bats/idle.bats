#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# checkpoint = idle: everything is written home while the card has nothing else to do.
# seconds: 40
# turn: 3

load lib

setup() {
	cow_setup
	looks_soon
}

# An old file of 8 MiB, committed and home. Units of the card are 64 KiB.
volume() {
	card_prepared ext4 100 160 -- --erase-block 64K
	shim_mounted --checkpoint idle --trim off "$@" # which would write a record and set the card writable
	random_file "$MNT/file" 8
	cow commit --checkpoint
}

# Every second unit of the file is changed, and in the log, which nothing empties before cow uninhibit.
change() {
	cow inhibit >/dev/null
	python3 -c 'import os, sys
f = os.open(sys.argv[1], os.O_WRONLY)
for i in range(int(sys.argv[2]), 128, 2):
    os.pwrite(f, os.urandom(65536), i << 16)' "$MNT/file" "${1:-0}"
	cow commit
	SUM=$(sha256sum <"$MNT/file")
	[ "$(live)" -gt 1000 ]
}

live() { status_of .log_live_blocks; }
is_empty() { [ "$(live)" = 0 ]; }
writes_nothing() { local before=$(card_written); stays_idle && [ "$(card_written)" = "$before" ]; }
home_blocks() { status_of .lifetime.checkpoint_blocks; }
# uncached, of the base
read_card() { dd if="$DEV" of=/dev/null bs=4096 skip=$((RANDOM % 20000)) count=1 iflag=direct status=none; }

# The card alone holds the newest commit.
card_has_it() {
	power_cut rw
	mount "$CARD" "$MNT"
	[ "$(sha256sum <"$MNT/file")" = "$SUM" ]
	umount "$MNT"
	fsck ext4
}

@test "checkpoint = idle: the log gets empty by itself, and nothing else changes" {
	local before generation last
	volume
	background "$COWFS_BUILD/cowctl" status --follow >"$T/events"
	change
	before=$(home_blocks) generation=$(status_of .generation) last=$(status_of .last.report)
	cow uninhibit
	wait_for 10 is_empty
	wait_for 5 job_is null
	[ "$(home_blocks)" -gt $((before + 1000)) ]
	[ "$(status_of .generation)" = "$generation" ]
	[ "$(status_of .last.report)" = "$last" ]
	[ "$(status_of .card.foreign_bytes)" = 0 ]
	wait_for 5 grep -qx "vol checkpoint" "$T/events"
	[ "$(blockdev --getro "$CARD")" = 1 ]
	# and once only
	writes_nothing
	card_has_it
}

@test "checkpoint = idle: not before a commit of the session, nor with a view, nor inhibited; and not by default" {
	volume
	change
	power_cut
	# what an earlier session left stays until this one commits
	shim_mounted --checkpoint idle
	writes_nothing
	mkdir "$T/view"
	cow view "$NAME" "$T/view"
	change 1
	cow uninhibit
	stays_idle
	[ "$(live)" -gt 1000 ]
	cow inhibit
	umount "$T/view"
	stays_idle
	[ "$(live)" -gt 1000 ]
	cow uninhibit
	wait_for 10 is_empty
	detach
	shim_mounted
	change
	cow uninhibit
	stays_idle
	[ "$(live)" -gt 1000 ]
}

@test "checkpoint = idle: reads and commits stop it, and no block is written home twice for nothing" {
	local before left
	volume
	before=$(home_blocks)
	eio slow 200
	change
	left=$(live)
	cow uninhibit
	wait_for 10 job_is checkpoint
	wait_for 2 eval 'read_card; job_is null'
	cow inhibit
	[ "$(live)" = "$left" ] # as a power cut would find it
	[ "$(home_blocks)" -gt "$before" ]
	[ "$(home_blocks)" -lt $((before + left)) ]
	cow uninhibit
	wait_for 10 job_is checkpoint
	# a commit does not wait for the end
	dd if=/dev/urandom of="$MNT/file" bs=64K seek=2 count=1 conv=notrunc status=none
	cow commit --no-wait
	SUM=$(sha256sum <"$MNT/file")
	[ "$(live)" -ge "$left" ]
	eio off
	wait_for 20 is_empty
	left=$(($(home_blocks) - before - left))
	echo "written home again: $left blocks"
	# 16 of the file and a few of metadata, as the commit logged them again
	[ $left -le 40 ]
	card_has_it
}

@test "checkpoint = idle: the daemon is killed in it, then the volume detached in it" {
	local i
	volume
	for i in 1 2; do
		eio slow 60
		change
		cow uninhibit
		wait_for 10 job_is checkpoint
		sleep 0.$((RANDOM % 7))
		power_cut
		eio off
		shim_mounted --checkpoint idle
		[ "$(sha256sum <"$MNT/file")" = "$SUM" ]
	done
	eio slow 60
	change
	cow uninhibit
	wait_for 10 job_is checkpoint
	detach
	blockdev --setrw "$CARD"
	mount "$CARD" "$MNT"
	[ "$(sha256sum <"$MNT/file")" = "$SUM" ]
	umount "$MNT"
	fsck ext4
}

# bats test_tags=blunt
@test "checkpoint = idle: an error of the card leaves everything in the log, and it waits for the next commit" {
	local before
	volume
	change
	eio write 5 1000
	before=$(home_blocks)
	cow uninhibit
	wait_for 10 eval '[ "$(home_blocks)" -gt "$before" ] && job_is null'
	[ "$(live)" -gt 1000 ]
	[ "$(status_of .alarm)" = "" ]
	eio off
	writes_nothing
	[ "$(sha256sum <"$MNT/file")" = "$SUM" ]
	change 1
	cow uninhibit
	wait_for 10 is_empty
	card_has_it
}
