#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A file system with hardly a free block, and a log smaller than what is written: commits begin before one cannot hold it.
load lib

# 60 MiB of ext4, so many of them in one file, committed.
full_card() { # MIB [ATTACH_OPTION]...
	local mib=$1
	shift
	volume_mounted ext4 60 100 -b 4096 -J size=4 -- --log-size 8M --erase-block 1M -- "$@"
	random_file "$MNT/big" "$mib"
	cow commit --checkpoint
}

@test "nearly full: a large file is rewritten in place, and all of it gets to the card" {
	local sum
	full_card 44
	dd if=/dev/urandom of="$MNT/big" bs=1M count=40 conv=notrunc status=none
	sync -f "$MNT"
	sum=$(tree_sum "$MNT")
	# pressure has committed most of it
	[ "$(status_of '.pressure.commits > 0')" = true ]
	cow commit
	power_cut
	recovers_to ext4 "$sum"
}

@test "nearly full: the same while a program syncs each block" {
	local sum
	full_card 44
	dd if=/dev/urandom of="$MNT/big" bs=64K count=400 oflag=dsync conv=notrunc status=none
	sum=$(tree_sum "$MNT")
	cow commit
	detach
	whole_with ext4 "$sum"
}

@test "nearly full: the budget follows what a commit makes free" {
	local before
	full_card 44
	[ "$(status_of '.pressure.level')" = ok ]
	rm "$MNT/big"
	cow commit --checkpoint
	# no commit is needed for new files now
	before=$(status_of .pressure.commits)
	random_file "$MNT/new" 20
	sync -f "$MNT"
	[ "$(status_of .pressure.commits)" = "$before" ]
	cow commit
}

@test "nearly full: no such limit if the changes are to be discarded" {
	local before
	full_card 44
	before=$(status_of .pressure.commits)
	cow discard
	dd if=/dev/urandom of="$MNT/big" bs=1M count=40 conv=notrunc status=none
	sync -f "$MNT"
	[ "$(status_of '.dirty_blocks > 9000')" = true ]
	[ "$(status_of .pressure.commits)" = "$before" ]
}

@test "nearly full: what is preallocated leaves no free blocks for a commit" {
	local sum free
	COWFS_SYNC_HANGS=$T/hang with_shim full_card 44
	free=$(($(stat -f -c '%f * %S' "$MNT")))
	# ext4 keeps some for itself
	until fallocate -l "$free" "$MNT/preallocated" 2>/dev/null; do
		free=$((free - (128 << 10)))
	done
	touch "$T/hang" # a sync before a seal lasts as long as anything comes
	dd if=/dev/urandom of="$MNT/big" bs=1M count=40 conv=notrunc status=none
	sync -f "$MNT"
	rm "$T/hang"
	sum=$(tree_sum "$MNT")
	cow commit
	[ "$(status_of .write_errors)" = 0 ]
	power_cut
	recovers_to ext4 "$sum"
}
