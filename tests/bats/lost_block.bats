#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Blocks of committed generations that the card cannot read any more: everything else stays, and there is a way on without another card.
# seconds: 25
# turn: 3

load lib

setup() {
	cow_setup || return
	mkdir "$T/look"
}

teardown() {
	eio off
	cow_teardown
}

lost() { with_shim "$COWFS_BUILD/cowctl" "$@"; }

# A volume with /first and /hurt, both committed
volume() { # FORMAT-OPTION...
	volume_mounted ext4 200 240 -b 4096 -- "$@"
	random_file "$MNT/first" 2
	random_file "$MNT/hurt" 1
	cow commit --checkpoint >/dev/null
}

cut() {
	give_up_early
	power_cut rw
}

# A block that /hurt had before is written again, committed to the log, and lost there.
lost_in_log() {
	volume
	dd if=/dev/urandom of="$T/block" bs=4096 count=1 status=none
	dd if="$T/block" of="$MNT/hurt" bs=4096 seek=3 conv=notrunc status=none
	cow commit >/dev/null
	FIRST=$(sha256sum <"$MNT/first") HURT=$(sha256sum <"$MNT/hurt")
	cut
	AT=$(python3 -c 'import sys; print(open(sys.argv[1], "rb").read().rindex(open(sys.argv[2], "rb").read()))' "$IMG" "$T/block")
	eio dead "$AT" $((AT + 4096))
}

whole_again() {
	run -0 cow commit --checkpoint
	detach
	run -0 lost check "$CARD"
	eio off
	fsck ext4
}

# bats test_tags=blunt
@test "lost block: of what the newest commit wrote in place: attached, served but for that block, and named" {
	local at
	volume
	random_file "$MNT/newer" 2
	cow commit >/dev/null
	FIRST=$(sha256sum <"$MNT/first")
	at=$(filefrag -b4096 -v "$MNT/newer" | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 * 4096 + 16384 }')
	cut
	eio dead "$at" $((at + 4096))
	run -1 lost check "$CARD"
	[[ $output == *"block $((at / 4096)): written by the newest commit, cannot be read"*"verdict: DAMAGED"* ]]
	[ "$(lost check "$CARD" --json | jq .bad_blocks)" = 1 ]
	with_shim attach
	[[ $(status_of .alarm) == *"cannot be read: 1, one is block $((at / 4096))"* ]]
	mount_volume
	[ "$(sha256sum <"$MNT/first")" = "$FIRST" ]
	run ! cat "$MNT/newer"
	run -3 lost scrub vol
	[[ $output == *" of /newer"* ]]
	rm "$MNT/newer"
	cow commit >/dev/null
	detach
	run -0 lost check "$CARD"
	fsck ext4
}

# bats test_tags=blunt
@test "lost block: with lag 1 of what the newest commit wrote in place: the commit before it counts" {
	local at
	volume --lag 1
	random_file "$MNT/newer" 2
	cow commit >/dev/null
	at=$(filefrag -b4096 -v "$MNT/newer" | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 * 4096 + 16384 }')
	cut
	eio dead "$at" $((at + 4096))
	run -3 lost check "$CARD"
	[[ $output == *"content in place of block $((at / 4096)) cannot be read"* ]]
	run -0 lost release "$CARD"
	[[ $output == *"the previous generation was taken"* ]]
	eio off
	fsck ext4
	mount -o ro "$CARD" "$T/look"
	[ ! -e "$T/look/newer" ] && [ -e "$T/look/hurt" ]
}

# bats test_tags=blunt
@test "lost block: in the log: the log is emptied once its file is deleted" {
	lost_in_log
	run -1 lost check "$CARD"
	[[ $output == *"its copy in the log cannot be read"* ]]
	shim_mounted
	[ "$(sha256sum <"$MNT/first")" = "$FIRST" ]
	run -1 cow commit --checkpoint
	[[ $output == *"the copy of block "*" in the log cannot be read, so the log cannot be emptied"*"cowctl scrub names the file"* ]]
	# commits go on meanwhile
	random_file "$MNT/more" 1
	run -0 cow commit
	run -3 lost scrub vol
	[[ $output == *"4.0 KiB of /hurt"* ]]
	rm "$MNT/hurt"
	whole_again
}

# bats test_tags=blunt
@test "lost block: in the log, and written again" {
	lost_in_log
	shim_mounted
	dd if="$T/block" of="$MNT/hurt" bs=4096 seek=3 conv=notrunc oflag=direct status=none
	[ "$(sha256sum <"$MNT/hurt")" = "$HURT" ]
	whole_again
}

# bats test_tags=blunt
@test "lost block: in the log: release writes zeroes only if told to" {
	lost_in_log
	for way in "" "--accept base" "--accept log"; do
		run -1 lost release $way "$CARD"
		[[ $output == *"the copy of block "*" in the log cannot be read. 'cowctl scrub' names its file. --accept lost writes zeroes"* ]]
	done
	run -3 lost scrub "$CARD"
	[[ $output == *"4.0 KiB of /hurt"* ]]
	run -3 lost release --accept lost "$CARD" --json
	[ "$(jq -c '[.lost, .check_with]' <<<"$output")" = "[true,\"e2fsck -f $CARD\"]" ]
	run -0 lost check "$CARD"
	eio off
	fsck ext4
	mount -o ro "$CARD" "$T/look"
	[ "$(sha256sum <"$T/look/first")" = "$FIRST" ]
	dd if="$T/look/hurt" bs=4096 skip=3 count=1 status=none | cmp -n 4096 - /dev/zero
	cp "$T/look/hurt" "$T/hurt"
	dd if="$T/block" of="$T/hurt" bs=4096 seek=3 conv=notrunc status=none
	[ "$(sha256sum <"$T/hurt")" = "$HURT" ]
}

# Before it, commits read what a block was before, and failed for ever.
# bats test_tags=blunt
@test "lost block: of a file at home, written again in place" {
	local at
	volume
	at=$(filefrag -b4096 -v "$MNT/hurt" | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 * 4096 + 16384 }')
	cut
	eio dead "$at" $((at + 8192))
	shim_mounted
	dd if=/dev/urandom of="$MNT/hurt" bs=4096 seek=4 count=1 conv=notrunc oflag=direct status=none
	dd if=/dev/zero of="$MNT/hurt" bs=4096 seek=5 count=1 conv=notrunc oflag=direct status=none
	HURT=$(sha256sum <"$MNT/hurt")
	run -0 cow commit --json
	[ "$(jq '.report.logged_blocks >= 2' <<<"$output")" = true ]
	run -0 cow commit --checkpoint
	detach
	eio off
	fsck ext4
	mount -o ro "$CARD" "$T/look"
	[ "$(sha256sum <"$T/look/hurt")" = "$HURT" ]
}

# The record and what describes it lie behind each other: the last blocks of the log that were written
# bats test_tags=blunt
@test "lost block: of the records of the log: nothing is dropped unless somebody says so" {
	local from at way
	volume
	random_file "$MNT/newer" 8 # more than one block describes, which the record has a copy of
	cow commit >/dev/null
	cut
	from=$(cow check "$CARD" --json | jq .log_offset_bytes)
	at=$(python3 -c 'import sys
log = open(sys.argv[1], "rb").read()[int(sys.argv[2]):]
print(max(i for i in range(0, len(log) - 4095, 4096) if log[i:i + 8] == b"COWFSREC" and log[i + 32] == 1) + int(sys.argv[2]))' "$IMG" "$from")
	eio dead $((at - 4096)) "$at"
	for way in check attach release; do
		run -1 lost $way "$CARD"
		[[ $output == *"$CARD: the records of the log cannot be read. If that stays so: cowctl release --accept lost takes the newest generation that can be" ]]
	done
	run -0 lost release --accept lost "$CARD"
	[[ $output == *"the newest commit was incomplete (record "*", or what it refers to, cannot be read): the previous generation was taken"* ]]
	eio off
	fsck ext4
	mount -o ro "$CARD" "$T/look"
	[ ! -e "$T/look/newer" ] && [ -e "$T/look/hurt" ]
}

# bats test_tags=blunt
@test "lost block: of the log, in which nothing is: commits go on, and check tells of it" {
	local from at sum n
	volume
	random_file "$MNT/newer" 2
	cow commit >/dev/null
	sum=$(tree_sum "$MNT")
	cut
	# the head of a segment that is free, and what is behind it
	from=$(cow check "$CARD" --json | jq .log_offset_bytes)
	at=$((from + 5 * 4194304))
	eio dead "$at" $((at + 8 * 4096))
	run -0 lost check "$CARD"
	[[ $output == *"8 blocks of the log cannot be read; a commit that was in one of them is not there"*"verdict: good"* ]]
	with_shim attach
	mount_has "$sum"
	for ((n = 0; n < 3; n++)); do
		random_file "$MNT/more$n" 7
		run -0 cow commit
	done
	run -0 cow commit --checkpoint
	sum=$(tree_sum "$MNT")
	detach
	eio off
	whole_with ext4 "$sum"
}
