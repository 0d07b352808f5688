#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Partitions that do not start at a multiple of 4 KiB, and whose size is none.
# turn: 3
load lib

# A partition from sector $1 on, of $2 sectors: sets CARD.
partition() {
	IMG=$T/disk.img
	rm -f "$IMG"
	truncate -s 300M "$IMG"
	loop_up "$IMG"
	# not by a partition table: not every kernel here reads one
	addpart "$LOOP" 1 "$1" "$2"
	wait_for 5 test -b "${LOOP}p1"
	DISK=$LOOP CARD=${LOOP}p1
}

@test "unaligned: prepare, commit, power cut and check on partitions at odd sectors" {
	local start
	for start in 63 2050 2049; do
		partition "$start" $((250 * 2048 + start % 8))
		mkfs.ext4 -q -b 4096 "$CARD" 150M
		cow prepare "$CARD"
		cow check "$CARD"
		attach_mounted
		random_file "$MNT/one" 3
		cow commit
		random_file "$MNT/one" 2
		cow commit
		SUM=$(tree_sum "$MNT")
		power_cut
		cow check "$CARD"
		attach_has "$SUM"
		detach
		cow check "$CARD"
		fsck ext4
		delpart "$DISK" 1
		loop_down "$DISK"
		DISK=''
	done
}

@test "unaligned: shrink on a partition at sector 63" {
	partition 63 $((250 * 2048 + 5))
	mkfs.ext4 -q -b 4096 "$CARD"
	mount "$CARD" "$MNT"
	random_file "$MNT/one" 3
	SUM=$(tree_sum "$MNT")
	umount "$MNT"
	cow prepare --shrink "$CARD"
	cow check "$CARD"
	attach_has "$SUM"
	detach_whole ext4
}
