#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl clone: a volume with what is in RAM, or a card that is not attached, to another card.
# seconds: 100
# turn: 3

load lib

# A volume with a commit and more in RAM: SUM is its tree. NEW: a card of MIB for the copy, with a file system of somebody else on it.
volume_and_new() { # FS FS_MIB CARD_MIB NEW_MIB
	volume_mounted "$1" "$2" "$3"
	random_file "$MNT/committed" 9
	cow commit >/dev/null
	random_file "$MNT/in-ram" 5
	mkdir "$MNT/dir"
	cp "$MNT/in-ram" "$MNT/dir/copy"
	rm "$MNT/in-ram"
	random_file "$MNT/uncommitted" 1
	SUM=$(tree_sum "$MNT")
	new_card "$4"
}

new_card() { # MIB
	truncate -s "$1M" "$T/new.img"
	mke2fs -q -F "$T/new.img"
	loop_up "$T/new.img"
	NEW=$LOOP
}

# NEW, alone, is a card of cowfs with the tree SUM: whole without cowfs, and attached, and it commits.
new_is_whole() { # FS
	local CARD=$NEW
	fsck "$1"
	run -0 cow check "$NEW"
	mount -o ro "$NEW" "$T/look"
	[ "$(tree_sum "$T/look")" = "$SUM" ] || return
	umount "$T/look"
	attach_mounted --name new
	[ "$(tree_sum "$MNT")" = "$SUM" ] || return
	touch "$MNT/more"
	cow commit new >/dev/null
	umount_volume
	cow detach new >/dev/null
	fsck "$1"
}

# as most readers are
no_discard() { export COWFS_NO_DISCARD=1; } # for with_shim
nothing_there() { ! blkid -p "$NEW" && ! mount -o ro "$NEW" "$T/look" && fails 1 'no cowfs log' check "$NEW"; }
no_views() { [ "$(status_of '.views.list | length')" = 0 ]; }

setup() {
	cow_setup || return
	mkdir "$T/look"
}

clones() { # FS FS_MIB CARD_MIB NEW_MIB
	local before
	volume_and_new "$@"
	cow discard
	wait_for 30 job_is null
	before=$(card_written) # no commit begins by itself
	run -0 cow clone vol "$NEW" --yes
	[[ $output == *"$NEW: has the $1 as it was "*", and an empty log of "* ]]
	[[ $output == *"read back and compared"* ]]
	[ "$(card_written)" = "$before" ]
	# the volume goes on, and the copy is of that moment
	cow discard --cancel
	touch "$MNT/later"
	cow commit >/dev/null
	detach >/dev/null
	new_is_whole "$1"
}

@test "clone: what is on the card and in RAM, ext4" { clones ext4 60 100 150; }
@test "clone: ext4, to a smaller card" { clones ext4 60 200 110; }
@test "clone: ext3" { clones ext3 60 100 150; }
@test "clone: xfs" { clones xfs 310 360 400; }
@test "clone: btrfs" { clones btrfs 120 160 200; }

@test "clone: free blocks are not read, and requests are large" {
	volume_and_new ext4 400 460 600
	run -0 cow clone "$NEW" --yes --json
	[ "$(jq .copied_bytes <<<"$output")" -lt $((60 << 20)) ]
	[ "$(jq '.written_bytes < .copied_bytes + 2000000' <<<"$output")" = true ]
	[ "$(jq .lost_blocks <<<"$output")" = 0 ]
	[ "$(jq -c .lost_files <<<"$output")" = '[]' ]
}

@test "clone: a card that is not attached, with commits in its log" {
	cut_card 2 ext4 60 100
	new_card 150
	run -0 cow clone "$CARD" "$NEW" --yes
	new_is_whole ext4
}

@test "clone: asks, and says what will be lost" {
	volume_and_new ext4 60 100 150
	fails 2 'nobody can be asked: add --yes' clone vol "$NEW" </dev/null
	fails 2 'nobody can be asked: add --yes' clone vol "$NEW" --json
	# a terminal, and the answer no
	run -1 script -qec "$COWFS_BUILD/cowctl clone vol $NEW" /dev/null <<<n
	[[ $output == *"$NEW (150.0 MiB) holds a file system (ext2). Overwrite all of it?"* ]]
	[[ $output == *"not confirmed; nothing was written"* ]]
	fsck ext2 "$NEW"
	run -0 script -qec "$COWFS_BUILD/cowctl clone vol $NEW" /dev/null <<<y
	detach >/dev/null
	new_is_whole ext4
}

@test "clone: a target that is too small, in use, the source itself, or no card" {
	volume_and_new ext4 60 100 64
	fails 1 'too small \(64.0 MiB\): the file system takes 60.0 MiB, and .* are missing for it and its log' clone vol "$NEW" --yes
	fails 1 "is attached as volume vol" clone vol "$CARD" --yes
	mount "$NEW" "$T/look"
	fails 1 "is mounted on $T/look" clone vol "$NEW" --yes
	umount "$T/look"
	fails 1 'No such file' clone vol "$T/absent" --yes
	fails 1 'neither a block device nor an image file' clone vol "$T/look" --yes
	fails 4 'no volume is attached as other' clone other "$NEW" --yes
	fails 2 'usage: cowctl clone' clone --yes
	fails 2 'lag must be' clone vol "$NEW" --yes --lag 3
	fails 2 'too small or too large for erase blocks of 4.0 MiB: use at least 8' clone vol "$NEW" --yes --log-size 1M
	truncate -s 1M "$T/file"
	run -1 setpriv --reuid 65534 --clear-groups "$COWFS_BUILD/cowctl" clone "$T/file" "$NEW" --yes
	[[ $output == *"$T/file: only root may mount a view"* ]]
	fsck ext2 "$NEW"
	[ "$(tree_sum "$MNT")" = "$SUM" ]
}

@test "clone: an image file, with a log of the size that was asked for" {
	volume_and_new ext4 60 100 64
	truncate -s 200M "$T/image"
	run -0 cow clone vol "$T/image" --yes --log-size 48M --lag 1
	[[ $output == *"an empty log of 48.0 MiB"* ]]
	detach >/dev/null
	loop_up "$T/image"
	NEW=$LOOP
	run -0 cow check "$NEW" --json
	[ "$(jq .lag <<<"$output")" = 1 ]
	new_is_whole ext4
}

# SAID: of a clone whose write number N failed
fails_at() { # N; of FROM
	eio write "$1" 1000
	run -1 with_shim "$COWFS_BUILD/cowctl" clone "${FROM:-vol}" "$NEW" --yes
	SAID=$output
	[[ $SAID == *"the copy is complete"* ]] ||
		{ [[ $SAID == *"It is incomplete; the same command goes on with it"* ]] && nothing_there; }
}

@test "clone: a write that fails anywhere, nothing looks like a file system, and the next one goes on" {
	local n
	volume_and_new ext4 60 100 150
	detach >/dev/null
	FROM=$CARD
	# the look at the size, data, what is wiped again, what is left request by request, then the head, then the log
	for n in 1 20 36 2 4 4 4 4 4 4 4 4; do
		fails_at "$n"
		[[ $SAID == *incomplete* ]]
	done
	for ((n = 0; ; n++)); do
		fails_at "$n"
		[[ $SAID != *"the copy is complete"* ]] || break
	done
	[[ $SAID == *"but its log could not be written (Input/output error): cowctl prepare $NEW makes it"* ]]
	[ "$n" -ge 2 ]
	fsck ext4 "$NEW"
	# from the beginning, and stopped again
	fails_at 40
	eio off
	run -0 cow clone "$CARD" "$NEW" --yes
	[[ $output == *"were there from an earlier run"* ]]
	new_is_whole ext4
}

@test "clone: over a card whose newest commit only 0.1.0 completes: asks so" {
	golden v1-lent "$T/old.img"
	truncate -s 100M "$T/old.img"
	loop_up "$T/old.img"
	NEW=$LOOP
	card_prepared ext4 10 60
	run -1 script -qec "$COWFS_BUILD/cowctl clone $CARD $NEW" /dev/null <<<n
	[[ $output == *"holds a cowfs log whose newest generation only cowfs 0.1.0 completes"*"Overwrite all of it?"* ]]
}

# bats test_tags=blunt
@test "clone: over a card with commits in its log: asks so, and nothing of that log is left" {
	local old
	cut_card 2 ext4 60 150
	old=$CARD
	IMG=$T/source.img
	volume_and_new ext4 60 100 64
	NEW=$old FROM=$CARD
	no_discard
	detach >/dev/null
	run -1 script -qec "$COWFS_BUILD/cowctl clone $CARD $NEW" /dev/null <<<n
	[[ $output == *"holds a cowfs log with "*" committed blocks that no other place has, and a file system (ext4). Overwrite all of it?"* ]]
	fails_at 40
	[[ $SAID == *incomplete* ]]
	# behind block 0: the file system is as large as the old one
	eio flush 4 1000
	run -1 with_shim "$COWFS_BUILD/cowctl" clone "$CARD" "$NEW" --yes
	eio off
	fails 1 'no cowfs log' check "$NEW"
	fsck ext4 "$NEW"
	[ "$(blkid -p -o value -s TYPE "$NEW")" = ext4 ]
}

@test "clone: over an older clone, whose log shows another first block" {
	volume_and_new ext4 60 100 150
	cow clone vol "$NEW" --yes >/dev/null
	sleep 1.1 # the superblock has seconds
	echo newer >"$MNT/newer"
	SUM=$(tree_sum "$MNT")
	cow clone vol "$NEW" --yes >/dev/null
	detach >/dev/null
	new_is_whole ext4
}

@test "clone: over a guarded btrfs, and a member of an array" {
	cut_card 1 btrfs 120 160
	NEW=$CARD
	IMG=$T/source.img
	card_prepared ext4 60 100
	run -1 script -qec "$COWFS_BUILD/cowctl clone $CARD $NEW" /dev/null <<<n
	[[ $output == *" that no other place has, and a file system (btrfs). Overwrite"* ]]
	loop_down "$NEW"
	truncate -s 150M "$T/new.img"
	plant raid-end "$T/new.img"
	loop_up "$T/new.img"
	NEW=$LOOP
	no_discard
	run -0 with_shim "$COWFS_BUILD/cowctl" clone "$CARD" "$NEW" --yes
	[ "$(blkid -p -o value -s TYPE "$NEW")" = ext4 ]
}

# NEW has what a run leaves that is cut between the head's two writes.
cut_in_head() {
	eio write 40 1000
	run -1 with_shim "$COWFS_BUILD/cowctl" clone vol "$NEW" --yes
	dd if="$NEW" of="$T/mark" bs=4096 count=1 status=none
	eio off
	cow clone vol "$NEW" --yes
	dd if="$T/mark" of="$NEW" bs=4096 count=1 conv=fsync status=none
}

@test "clone: goes on with a copy whose head is there in part, btrfs" {
	volume_and_new btrfs 120 160 200
	cut_in_head
	[ "$(blkid -p -o value -s TYPE "$NEW")" = btrfs ]
	random_file "$MNT/later" 9
	SUM=$(tree_sum "$MNT")
	# from here on it would be a mixture
	fails_at 3
	[[ $SAID == *incomplete* ]]
	eio off
	run -0 cow clone vol "$NEW" --yes
	[[ $output == *"were there from an earlier run"* ]]
	detach >/dev/null
	new_is_whole btrfs
}

@test "clone: a full file system of 1 KiB blocks that ends within a block of 4 KiB" {
	IMG=$T/card.img
	truncate -s 100M "$IMG"
	mke2fs -q -F -t ext4 -b 1024 -m 0 -E nodiscard,lazy_itable_init=0 "$IMG" 40961
	card_loop
	cow prepare "$CARD" >/dev/null
	mount -o nodelalloc "$CARD" "$T/look"
	echo 0 >"/sys/fs/ext4/${CARD#/dev/}/reserved_clusters"
	dd if=/dev/urandom of="$T/look/all" bs=64k status=none || true
	umount "$T/look"
	debugfs -R 'testb 40960' "$CARD" | grep -q 'marked in use'
	new_card 150
	run -0 cow clone "$CARD" "$NEW" --yes
	[[ $output == *"as it was before the first commit, and an empty log"* ]]
	# not all of it: a few blocks may be free after ENOSPC, and have what the size was tried with
	cmp -i $((40960 * 1024)) -n 1024 "$CARD" "$NEW"
	cmp <(debugfs -R 'cat all' "$CARD") <(debugfs -R 'cat all' "$NEW")
}

@test "clone: what a file system with errors calls free is copied" {
	local at
	card_prepared ext4 60 100 -b 4096
	mount "$CARD" "$T/look"
	random_file "$T/look/file" 3
	sync -f "$T/look"
	at=$(filefrag -b4096 -v "$T/look/file" | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 }')
	cp "$T/look/file" "$T/file"
	umount "$T/look"
	debugfs -w -R "freeb $at 700" "$CARD"
	debugfs -w -R "ssv state 2" "$CARD"
	new_card 150
	run -0 cow clone "$CARD" "$NEW" --yes
	mount -o ro "$NEW" "$T/look"
	cmp "$T/file" "$T/look/file"
}

# A clone that is in its data
slow_clone() {
	FROM=$1 fails_at 32
	[[ $SAID == *incomplete* ]]
	eio slow 500
	# exec: $! is the command, not a shell that waits for it
	local before=$(card_written "$NEW")
	with_shim exec "$COWFS_BUILD/cowctl" clone "$1" "$NEW" --yes >"$T/said" 2>&1 &
	wait_for 10 eval '[ "$(card_written "$NEW")" -gt $((before + (3 << 20))) ]' && eio slow 60000 # data
}

ends_incomplete() {
	local code=0
	wait $! || code=$?
	cat "$T/said"
	[ $code = 1 ]
	grep -q 'can no longer be read: .* is incomplete; the same command goes on with it' "$T/said"
	nothing_there
}

@test "clone: the volume is detached meanwhile" {
	volume_and_new ext4 60 100 150
	umount_volume
	slow_clone vol
	detach >/dev/null
	eio off
	ends_incomplete
	run -0 cow clone "$CARD" "$NEW" --yes
	[[ $output == *"were there from an earlier run"* ]]
	new_is_whole ext4
}

# bats test_tags=blunt
@test "clone: the old card is pulled meanwhile" {
	volume_and_new ext4 60 100 150
	detach >/dev/null
	slow_clone "$CARD"
	# the head can still be read, as from RAM
	eio bad 1048576 1000000000000
	ends_incomplete
	eio off
	run -0 cow clone "$CARD" "$NEW" --yes
	new_is_whole ext4
}

@test "clone: killed at the question, the target is writable" {
	volume_and_new ext4 60 100 150
	mkfifo "$T/input"
	exec 5<>"$T/input"
	script -qfec "$COWFS_BUILD/cowctl clone vol $NEW" "$T/typescript" <&5 >/dev/null 2>&1 3>&- &
	wait_for 20 grep -qs 'Overwrite all of it' "$T/typescript"
	kill -9 $!
	exec 5>&-
	wait_for 10 no_views
	[ "$(blockdev --getro "$NEW")" = 0 ]
	fsck ext2 "$NEW"
}

@test "clone: the process dies by SIGKILL" {
	volume_and_new ext4 60 100 150
	slow_clone vol
	kill -9 $!
	wait $! || true
	eio off
	nothing_there
	# the view of the dead process is gone
	wait_for 10 no_views
	run -0 cow clone vol "$NEW" --yes
	[[ $output == *"were there from an earlier run"* ]]
	detach >/dev/null
	new_is_whole ext4
}

# bats test_tags=blunt
@test "clone: blocks of the old card that cannot be read are named, and the rest is there" {
	local at
	volume_mounted ext4 60 100
	random_file "$MNT/hurt" 1
	random_file "$MNT/whole" 3
	cow commit --checkpoint >/dev/null
	at=$(filefrag -b4096 -v "$MNT/hurt" | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 * 4096 + 16384 }')
	new_card 150
	eio bad "$at" $((at + 8192))
	run -3 with_shim "$COWFS_BUILD/cowctl" clone vol "$NEW" --yes
	[[ $output == *"2 blocks of it cannot be read, and are zeroes in the copy"* ]]
	[[ $output == *"8.0 KiB of /hurt"* ]]
	run -3 with_shim "$COWFS_BUILD/cowctl" clone vol "$NEW" --yes --json
	[ "$(jq -c .lost_files <<<"$output")" = '["/hurt"]' ]
	eio off
	mount -o ro "$NEW" "$T/look"
	cmp "$MNT/whole" "$T/look/whole"
	[ "$(cmp -l "$MNT/hurt" "$T/look/hurt" | awk '$3 != 0' | wc -l)" = 0 ]
	[ "$(cmp -l "$MNT/hurt" "$T/look/hurt" | wc -l)" -gt 8000 ]
}

# bats test_tags=blunt
@test "clone: a card that has less than it says is found before anything is copied" {
	local mib
	volume_and_new ext4 60 100 150
	for mib in 64 128; do
		eio wrap "$mib"
		run -1 with_shim "$COWFS_BUILD/cowctl" clone vol "$NEW" --yes
		[[ $output == *"says that it has 150.0 MiB, but a block at "*" does not keep what is written there. Nothing was copied"* ]]
		nothing_there
	done
}

# bats test_tags=blunt
@test "clone: a card that has less than it says is found by reading all of it" {
	volume_and_new ext4 120 160 200
	random_file "$MNT/much" 80
	SUM=$(tree_sum "$MNT")
	# no spot of the first look tells this one: 100 is none of their distances
	eio wrap 90
	run -1 with_shim "$COWFS_BUILD/cowctl" clone vol "$NEW" --yes
	echo "$output"
	nothing_there
	eio off
}

# bats test_tags=blunt
@test "clone: on a card that has less than it says, the log does not overwrite the copy" {
	card_prepared ext4 60 100 -m 0
	mount -o nodelalloc "$CARD" "$T/look"
	echo 0 >"/sys/fs/ext4/${CARD#/dev/}/reserved_clusters"
	dd if=/dev/urandom of="$T/look/all" bs=64k status=none || true
	umount "$T/look"
	new_card 150
	# the end of the log is the end of the file system, whose copy is there alone
	eio wrap 90
	run -1 with_shim "$COWFS_BUILD/cowctl" clone "$CARD" "$NEW" --yes
	[[ $output == *"It is incomplete"* ]]
	nothing_there
	eio off
}

@test "clone: the copy knows the life of the old card, and of the one before that" {
	local written all first
	volume_and_new ext4 60 100 150
	written=$(cow wear --json | jq .totals.written_bytes)
	[ "$(cow wear --json | jq .predecessor)" = null ]
	run -0 cow clone vol "$NEW" --yes
	run -0 cow wear "$NEW" --json
	[ "$(jq -c '[.predecessor.written_bytes, .predecessor.cards, .predecessor.all_written_bytes, .totals.written_bytes]' <<<"$output")" = "[$written,1,$written,0]" ]
	[ "$(jq -r .predecessor.ring_uuid <<<"$output")" = "$(cow check "$CARD" --json | jq -r .ring_uuid)" ]
	run -0 cow wear "$NEW"
	[[ $output == *"It was cloned "*" from another card"* ]]
	detach >/dev/null
	CARD=$NEW
	attach_mounted
	random_file "$MNT/again" 2
	cow commit --checkpoint >/dev/null
	first=$(cow wear --json | jq .totals.written_bytes)
	[ "$first" -gt 0 ]
	all=$((written + first))
	run -0 cow wear
	grep 'To this one and the one before it, cowfs wrote' <<<"$output"
	truncate -s 200M "$T/image"
	run -0 cow clone "$T/image" --yes
	run -0 cow wear "$T/image" --json
	[ "$(jq -c '[.predecessor.written_bytes, .predecessor.cards, .predecessor.all_written_bytes]' <<<"$output")" = "[$first,2,$all]" ]
	# of this log alone, which has another time
	detach >/dev/null
	sleep 1.1
	cow prepare --force "$CARD" >/dev/null
	[ "$(cow wear "$CARD" --json | jq .predecessor)" = null ]
	# a bit of it that is not what was written: it is not shown
	printf damaged! | dd of="$T/image" bs=1 seek=$((60 * 1048576 + 4096 + 100)) conv=notrunc status=none
	[ "$(cow wear "$T/image" --json | jq .predecessor)" = null ]
	run -0 cow check "$T/image"
}
