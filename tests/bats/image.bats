#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# image/lib.bash: the same tree gives the same disk. What Debian puts into it: tests/vm/first_boot.py.
# turn: 3

load lib

setup() { cow_setup; }

# FILE: a disk of a tree that was written now
disk_of_tree() {
	local tree=$T/tree-$1
	mkdir -p "$tree/etc/deep/er" "$tree.boot/overlays" "$tree.efi/EFI/BOOT"
	for name in one two three; do
		echo "$name" | tee "$tree/etc/$name" "$tree/etc/deep/er/$name" "$tree.boot/overlays/$name" >"$tree.efi/EFI/BOOT/$name"
	done
	find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	disk_make "$T/$1" "$tree"
}

@test "image: two builds of one tree have the same bits, on ext4 and on FAT; without SOURCE_DATE_EPOCH not" {
	TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd) BUILD=$T CACHE=$T PATH=$PATH:/usr/sbin
	# no GRUB
	IMAGE_ARCH=arm64 DISK_MIB=64 BOOT_MIB=16 EFI_MIB=8 LOG_MIB=0
	export SOURCE_DATE_EPOCH=1700000000 E2FSPROGS_FAKE_TIME=1700000000
	. "$TOP/image/lib.bash"
	for BOOT_FS in '' vfat; do
		disk_of_tree "one$BOOT_FS"
		sleep 2.1 # FAT counts in twos
		disk_of_tree "two$BOOT_FS"
		cmp "$T/one$BOOT_FS" "$T/two$BOOT_FS"
		dd if="$T/one$BOOT_FS" of="$T/root" bs=1M skip=$((4 + 16 + 8)) status=none
		e2fsck -fn "$T/root"
		[ "$(debugfs -R 'stat /etc/deep/er/two' "$T/root" 2>/dev/null | grep -c 'time: 0x6553f100')" = 4 ]
	done
	mtype -i "$T/onevfat@@4M" ::overlays/two | grep -qx two
	unset SOURCE_DATE_EPOCH E2FSPROGS_FAKE_TIME
	BOOT_FS=''
	disk_make "$T/three" "$T/tree-one"
	run ! cmp -s "$T/one" "$T/three"
}
