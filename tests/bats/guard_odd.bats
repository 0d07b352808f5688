#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Superblocks that are not what mkfs makes today: with a guard, or without one, the card is whole in the end.
# turn: 3

load lib

super_of() { dd if="$1" bs=4096 count=1 skip="$BLK" iflag=direct status=none | cksum; }

# No kernel here mounts each of them.
change() { # FS
	case $1 in
	ext*) debugfs -w -R "write $T/text text" "$DEV" ;;
	xfs-4) xfs_admin -L text "$DEV" ;;
	*) mount_volume && cp "$T/text" "$MNT/" && umount_volume ;;
	esac
}

# The superblock is that of the volume in the end, byte by byte. GUARDED: true or false, before
comes_back() { # GUARDED FS
	local true_one
	seq 2000 >"$T/text"
	cow prepare "$CARD"
	attach
	change "$2"
	cow commit
	true_one=$(super_of "$DEV")
	power_cut rw
	answer=$(cow check --json "$CARD")
	jq -e ".guarded == $1 and .verdict == \"good\" and .log_state == \"live\"" <<<"$answer"
	[ "$(super_of "$CARD")" != "$true_one" ]
	cow release "$CARD"
	[ "$(super_of "$CARD")" = "$true_one" ]
	answer=$(cow check --json "$CARD")
	jq -e '.guarded == false' <<<"$answer"
	case $2 in
	ext*) e2fsck -fn "$CARD" ;;
	*) fsck "$2" ;;
	esac
}

odd() { # GUARDED BLK FS FS_MIB CARD_MIB [MKFS_OPTION]...
	BLK=$2
	card_make "${@:3}"
	comes_back "$1" "$3"
}

@test "odd superblocks: ext2 of revision 0 has no guard" {
	BLK=0
	card_make ext2 100 150 -O none -I 128
	debugfs -w -R "ssv rev_level 0" "$CARD"
	comes_back false ext2
}
@test "odd superblocks: ext4 with blocks of 1 KiB" { odd true 0 ext4 100 150 -b 1024; }
@test "odd superblocks: ext4 with blocks of 64 KiB" { odd true 0 ext4 100 150 -b 65536; }
@test "odd superblocks: xfs of version 4 has no guard" {
	BLK=0
	card_make xfs 310 400 -m crc=0
	comes_back false xfs-4
}
@test "odd superblocks: xfs with sectors of 4 KiB" { odd true 0 xfs 310 400 -s size=4096; }
@test "odd superblocks: btrfs whose copies differ" {
	BLK=16
	card_make btrfs 120 180
	# an older one, with a right checksum or not
	dd if=/dev/urandom of="$IMG" bs=1 seek=$(((64 << 20) + 500)) count=20 conv=notrunc status=none
	blockdev --flushbufs "$CARD"
	comes_back true btrfs
}

# The bits of the guard, and no log that put them there.
@test "odd superblocks: guard bits without a log are refused, and a user may take them away" {
	card_make ext4 100 150
	python3 - "$IMG" <<-'END'
		import struct, sys
		f = open(sys.argv[1], "r+b")
		f.seek(1024)
		sb = bytearray(f.read(1024))
		ro = struct.unpack_from("<I", sb, 0x64)[0] | 0x40001000
		struct.pack_into("<I", sb, 0x64, ro)
		struct.pack_into("<IIIII", sb, 0x180, 0x44526743, 0x12345678, 0xffffffff, 0xffffffff, 0xffffffff)
		f.seek(1024)
		f.write(sb)
	END
	blockdev --flushbufs "$CARD"
	fails 1 'guarded by a log that is not here' attach "$CARD"
	fails 1 'guarded by a log that is not here' prepare "$CARD"
	fails 1 'no cowfs log|guarded' release "$CARD"
	cow prepare --force "$CARD"
	[ "$(dd if="$IMG" bs=1 skip=1408 count=4 status=none | tr -d '\0')" != CgRD ]
}

# A copy of the guard of this card, put on it while its log is empty and where no guard belongs.
@test "odd superblocks: an older guard of the same card, on a card whose log is empty" {
	cut_card 1 ext4
	dd if="$IMG" of="$T/guarded" bs=4096 count=1 status=none
	cow release "$CARD"
	mount "$CARD" "$MNT"
	echo other >"$MNT/other"
	umount "$MNT"
	dd if="$T/guarded" of="$IMG" bs=4096 count=1 conv=notrunc status=none
	blockdev --flushbufs "$CARD"
	run cow check "$CARD"
	echo "$output"
	[[ $output == *guarded* ]]
	run mount "$CARD" "$MNT"
	! mountpoint -q "$MNT" || { run ! touch "$MNT/new"; umount "$MNT"; }
}
