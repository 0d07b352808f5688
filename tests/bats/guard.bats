#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031 # each test is a subshell, as it should be
# A card whose log is not empty, on a machine that knows nothing of cowfs.
# bats file_tags=foreign

load lib

# A commit that is not home, and a power cut.
cut_card() {
	card_make "$1" 100 150
	cow format "$CARD"
	attach
	mount_volume
	echo one >"$MNT/one"
	random_file "$MNT/big" 2
	cow commit
	tree_sum "$MNT" >"$T/sum"
	power_cut
	blockdev --setrw "$CARD"
}

refuses() {
	run "$@"
	echo "$* ends with $status: $output"
	[ "$status" != 0 ]
	[ "$(image_sum)" = "$sum" ]
}

# No kernel and no tool of e2fsprogs writes to it.
is_left_alone() {
	local sum
	sum=$(image_sum)
	mount "$CARD" "$MNT"
	findmnt -no OPTIONS "$MNT" | grep -qw ro
	run ! touch "$MNT/foreign"
	run ! mount -o remount,rw "$MNT"
	umount "$MNT"
	[ "$(image_sum)" = "$sum" ]
	refuses e2fsck -p "$CARD"
	refuses e2fsck -fy "$CARD"
	refuses tune2fs -L foreign "$CARD"
	refuses resize2fs "$CARD"
	debugfs -w -R 'mkdir foreign' "$CARD" # ends with 0 all the same
	[ "$(image_sum)" = "$sum" ]
	run cow check "$CARD"
	[[ $output != *foreign* ]]
}

comes_back() {
	attach
	mount_volume
	[ "$(tree_sum "$MNT")" = "$(cat "$T/sum")" ]
	cow status --json | jq -e '.base_changed == false'
	umount "$MNT"
	detach
	blockdev --setrw "$CARD"
	e2fsck -fn "$CARD"
	mount "$CARD" "$MNT"
	findmnt -no OPTIONS "$MNT" | grep -qw rw
	umount "$MNT"
}

for_kind() {
	cut_card "$1"
	is_left_alone
	comes_back
}

@test "a card that was cut is mounted read-only and left alone: ext4" { for_kind ext4; }
@test "a card that was cut is mounted read-only and left alone: ext3" { for_kind ext3; }
@test "a card that was cut is mounted read-only and left alone: ext2" { for_kind ext2; }

# Cut between the tail record of a detach and the last write, that of the superblock: the copy in the record has it.
@test "the last write of a detach is cut: nothing waits in the log, and the next detach removes the guard" {
	card_make ext4 100 150
	cow format "$CARD"
	attach
	mount_volume
	echo one >"$MNT/one"
	cow commit
	dd if="$IMG" of="$T/guarded" bs=4096 count=1 status=none
	umount_volume
	detach
	dd if="$T/guarded" of="$IMG" bs=4096 count=1 conv=notrunc status=none
	blockdev --flushbufs "$CARD"
	mount "$CARD" "$MNT"
	findmnt -no OPTIONS "$MNT" | grep -qw ro
	umount "$MNT"
	cow check --json "$CARD" | jq -e '.verdict == "good" and .log_state == "clean" and .guarded'
	cow check "$CARD" | grep 'still guarded'
	attach
	detach
	blockdev --setrw "$CARD"
	e2fsck -fn "$CARD"
	mount "$CARD" "$MNT"
	[ "$(cat "$MNT/one")" = one ]
	findmnt -no OPTIONS "$MNT" | grep -qw rw
	umount "$MNT"
}

@test "format keeps the guard of a log that is on another device, or lost" {
	local base
	card_make ext4 100 150
	base=$CARD
	truncate -s 64M "$T/log"
	loop_up "$T/log"
	cow format "$base" --log "$LOOP"
	attach --log "$LOOP"
	mount_volume
	echo one >"$MNT/one"
	cow commit
	power_cut
	blockdev --setrw "$base"
	blockdev --setrw "$LOOP"
	dd if="$IMG" of="$T/before" bs=4096 count=1 status=none
	sum=$(image_sum)
	fails 1 'guarded by a log that is not here' format "$base"
	fails 1 'guarded by a log that is not here' format --shrink "$base"
	cow card "$base" | grep 'guarded by a log'
	[ "$(image_sum)" = "$sum" ]
	cow recover "$base" --log "$LOOP"
	cow check --json "$base" --log "$LOOP" | jq -e '.guarded == false'
	mount "$base" "$MNT"
	[ "$(cat "$MNT/one")" = one ]
	umount "$MNT"
	dd if="$T/before" of="$IMG" bs=4096 count=1 conv=notrunc status=none
	blockdev --flushbufs "$base"
	cow format --force "$base"
	mount "$base" "$MNT"
	findmnt -no OPTIONS "$MNT" | grep -qw rw
	umount "$MNT"
}

@test "check tells of a guarded file system that was copied in front of a retired log" {
	cut_card ext4
	dd if="$IMG" of="$T/copy" bs=1M count=100 status=none
	cow recover "$CARD"
	run -0 cow check "$CARD"
	[[ $output != *guarded* ]]
	dd if="$T/copy" of="$IMG" bs=1M conv=notrunc status=none
	blockdev --flushbufs "$CARD"
	cow check "$CARD" | grep 'guarded, and not by this log'
}
