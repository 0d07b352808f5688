#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A log device that was away, and a card whose journal was not empty when it came.
# turn: 3

load lib

@test "a log device that was away comes back as it was: set aside, nothing is replayed over the newer file system" {
	local log image=$T/log.img
	card_make ext4 100 100
	IMG=$image
	truncate -s 60M "$IMG"
	loop_up "$IMG"
	log=$LOOP
	IMG=$T/card.img
	cow prepare --log "$log" "$CARD"
	attach_mounted --log "$log"
	commit_word one
	power_cut
	cp "$image" "$T/stale" # the commit waits in this log
	fails 1 'log' attach "$CARD" # without it: not by guess
	attach_mounted --log "$log"
	echo two >"$MNT/two"
	rm "$MNT/one"
	detach # all is home
	dd if="$T/stale" of="$image" bs=1M conv=notrunc status=none
	blockdev --flushbufs "$log"
	local sum
	sum=$(image_sum)
	run cow check --json --log "$log" "$CARD"
	echo "$output"
	jq -e '.log_state == "foreign"' <<<"$output"
	attach --log "$log"
	mount_volume -o ro
	[ -e "$MNT/two" ]
	[ ! -e "$MNT/one" ]
	detach
	[ "$(image_sum)" = "$sum" ]
	fsck ext4
}

# The bitmaps of such a file system are not the truth before its journal is replayed: nothing may be written in place on their
# word. The journal frees and uses blocks that the bitmaps at home tell otherwise.
@test "a card with a journal to be replayed: the first commit writes in place what is free after the replay" {
	card_make ext4 100 150
	mount -o noatime,commit=600 "$CARD" "$MNT"
	random_file "$MNT/a" 4
	sync -f "$MNT"
	random_file "$MNT/b" 4 # only in the journal, and its blocks free in the bitmaps at home
	fsync_file "$MNT/b"
	cp --sparse=always "$IMG" "$T/dirty"
	umount "$MNT"
	image_from "$T/dirty"
	dumpe2fs -h "$CARD" 2>/dev/null | grep -q needs_recovery
	cow prepare "$CARD"
	attach
	mount_volume # replays it, in RAM
	cmp "$MNT/b" "$T/b"
	random_file "$MNT/c" 4
	cow commit --json >"$T/bill"
	jq . "$T/bill"
	jq -e '[.. | .direct_blocks? // empty] | max > 1000' "$T/bill"
	# and nothing else: without this generation the card has what its journal brings
	blocks_at_home "$MNT/b" | cmp - "$T/b"
	random_file "$MNT/d" 4
	answer=$(cow commit --json)
	jq -e '[.. | .direct_blocks? // empty] | max > 1000' <<<"$answer"
	detach_whole ext4
}

# The content of the card where the file lies on the volume.
blocks_at_home() {
	filefrag -e -b1024 "$1" | awk -F'[ .:]+' '/^ +[0-9]+:/ { print $5, $6 - $5 + 1 }' |
		while read -r first count; do dd if="$IMG" bs=1024 skip="$first" count="$count" status=none; done
}

fsync_file() {
	cp "$1" "$T/b"
	python3 -c 'import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDWR))' "$1"
}
