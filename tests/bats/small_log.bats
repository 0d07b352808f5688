#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# File systems whose changes go through the log, and more of them at once than the log holds: it commits in between.
load lib
OWN_NAME=small$$ # mkfs.btrfs takes a volume for a mounted one of the same name

# FS FS_MIB [FORMAT_OPTION]...: with a file of 1 MiB, committed
volume() {
	volume_mounted "$1" "$2" $(($2 + 100)) -- "${@:3}"
	random_file "$MNT/old" 1
	cp "$MNT/old" "$T/old"
	cow commit
}

# The log holds less than half of what is about to be written.
log_is_small() { # MIB
	[ "$(status_of .log_capacity_blocks)" -lt $(($1 * 128)) ]
}

card_has() { # FS: what was committed, as after a power cut
	power_cut
	cow release "$CARD"
	# the journal is replayed
	blockdev --setrw "$CARD"
	mount "$CARD" "$MNT"
	cmp "$T/old" "$MNT/old"
	[ ! -e "$T/new" ] || cmp "$T/new" "$MNT/new"
	umount "$MNT"
	fsck "$1"
}

@test "btrfs: an unmount flushes more than the log holds" {
	volume btrfs 300 --log-size 32M --erase-block 4M
	log_is_small 40
	random_file "$T/new" 40
	cp "$T/new" "$MNT/new"
	umount_volume
	[ "$(status_of '.pressure.commits > 0')" = true ]
	[ "$(status_of .write_errors)" = 0 ]
	cow commit
	[ "$(status_of .alarm)" = "" ]
	card_has btrfs
}

@test "btrfs: a commit flushes more than the log holds, and goes to the card in several" {
	local before
	volume btrfs 300 --log-size 32M --erase-block 4M
	before=$(status_of .generation)
	random_file "$T/new" 40
	cp "$T/new" "$MNT/new"
	cow commit
	[ "$(status_of .generation)" -gt $((before + 1)) ]
	# all is there
	card_has btrfs
}

# FS FS_MIB MAX_LOGGED: blocks
new_files_go_in_place() {
	local direct logged
	volume "$1" "$2" --log-size 16M --erase-block 1M
	log_is_small 40
	direct=$(status_of .lifetime.direct_blocks) logged=$(status_of .lifetime.logged_blocks)
	random_file "$T/new" 40
	# while it is to be dropped, no commit begins before it is too much
	cow discard
	cp "$T/new" "$MNT/new"
	sync -f "$MNT"
	cow commit
	cow discard --cancel
	[ "$(status_of .alarm)" = "" ]
	[ "$(status_of .write_errors)" = 0 ]
	[ $(($(status_of .lifetime.direct_blocks) - direct)) -ge 10240 ]
	[ $(($(status_of .lifetime.logged_blocks) - logged)) -le "$3" ]
	card_has "$1"
}

@test "btrfs: new files go in place, and more of them than the log holds" { new_files_go_in_place btrfs 500 64; }

# 512 when a log is first used: what is behind its head
@test "xfs: new files go in place, and more of them than the log holds" { new_files_go_in_place xfs 300 600; }

# How often the UUID of the xfs, which is in each block of metadata, is on the card in front of the log.
stamps() {
	python3 - "$IMG" <<-'END'
		import sys
		with open(sys.argv[1], "rb") as card:
		    data = card.read(300 << 20)
		print(data.count(data[32:48]))
	END
}

@test "xfs: new metadata is not written to free blocks before the commit is durable" {
	local before direct
	volume xfs 300 --log-size 64M --erase-block 1M
	cow commit --checkpoint
	before=$(stamps) direct=$(status_of .lifetime.direct_blocks)
	mkdir "$MNT/d"
	touch "$MNT"/d/{1..2000}
	random_file "$MNT/file" 4
	cow commit
	[ $(($(status_of .lifetime.direct_blocks) - direct)) -ge 1024 ]
	[ "$(stamps)" = "$before" ]
	umount_volume # till then the metadata is in the log of the xfs
	cow commit --checkpoint
	[ "$(stamps)" -gt $((before + 2000)) ]
}

@test "btrfs: over what was committed nothing is written in place" {
	local before
	volume btrfs 500 --log-size 64M --erase-block 1M
	chattr +C "$MNT"
	random_file "$T/new" 10
	cp "$T/new" "$MNT/new"
	cow commit --checkpoint
	before=$(status_of .lifetime.logged_blocks)
	random_file "$T/part" 2
	dd if="$T/part" of="$T/new" bs=1M seek=3 conv=notrunc status=none
	dd if="$T/part" of="$MNT/new" bs=1M seek=3 conv=notrunc status=none
	cow commit
	[ $(($(status_of .lifetime.logged_blocks) - before)) -ge 512 ]
	card_has btrfs
}

@test "btrfs: commits by hand and by pressure take nothing away that is read later" {
	local job i jobs=() noise=$BATS_TEST_DIRNAME/../tools/noise.py
	card_prepared btrfs 500 600 -- --log-size 16M --erase-block 1M
	# one that goes on over gaps
	attach --profile x-slow-4g
	mount_volume -o noatime,discard
	for job in 1 2; do
		"$noise" load "$MNT/$job" $job >>"$T/mismatches" 3>&- &
		jobs+=($!)
	done
	for i in 1 2 3 4; do
		random_file "$T/new" 30
		cp "$T/new" "$MNT/new$i"
		sync -f "$MNT"
		[ $((i % 2)) = 0 ] || cow commit
	done
	[ "$(status_of '.pressure.commits > 2')" = true ]
	touch "$MNT"/{1,2}.stop
	for job in "${jobs[@]}"; do
		wait "$job" || { cat "$T/mismatches"; return 1; }
	done
	wait_for 20 detach
	fsck btrfs
	mount -o ro "$CARD" "$MNT"
	for job in 1 2; do
		"$noise" verify "$MNT/$job" $job
	done
	cmp "$T/new" "$MNT/new4"
}

@test "btrfs: a power cut while an unmount flushes" {
	volume btrfs 300 --log-size 32M --erase-block 4M
	random_file "$MNT/new" 100
	background umount "$MNT"
	wait_for 60 jq -e '.pressure.commits > 2' "$COWFS_RUNDIR/$NAME/status.json"
	card_has btrfs
}

@test "xfs: a small log with lag 1, and an unmount" {
	volume xfs 300 --log-size 16M --erase-block 1M --lag 1
	log_is_small 40
	random_file "$T/new" 40
	cp "$T/new" "$MNT/new"
	umount_volume
	cow commit
	card_has xfs
}

@test "xfs: a program syncs each large write" {
	volume xfs 300 --log-size 16M --erase-block 1M
	random_file "$T/new" 30
	dd if="$T/new" of="$MNT/new" bs=8M oflag=dsync status=none
	cow commit
	[ "$(status_of .write_errors)" = 0 ]
	card_has xfs
}

over() { dd if=/dev/urandom of="$MNT/a" bs=1M count="$1" conv=notrunc,fsync status=none; } # MIB

@test "a volume that is attached beside a held generation has the whole log again behind accept" {
	volume_mounted xfs 320 420 -- --log-size 16M --erase-block 1M --
	random_file "$MNT/a" 3
	cow commit --hold
	while [ "$(status_of .log_room_blocks)" -gt 600 ]; do over 1; cow commit; done
	power_cut
	attach
	mount_volume
	cow accept
	over 3
	[ "$(status_of .pressure.commits)" = 0 ]
}

# As before Linux 6.2: all of it is dirty when the sync begins, and several commits come before that ends.
sync_of_more() { # FS
	local code=0
	card_prepared "$1" 400 460 -- --log-size 16M --erase-block 1M
	mount -t tmpfs none /sys/class/bdi
	attach --ram 600M || code=$?
	umount /sys/class/bdi
	[ $code = 0 ]
	mount_volume
	random_file "$T/old" 1
	cp "$T/old" "$MNT/old"
	random_file "$T/new" 120
	cp "$T/new" "$MNT/new"
	sync -f "$MNT"
	[ "$(status_of '.pressure.commits > 2')" = true ]
	read_again "$MNT"
	cmp "$T/new" "$MNT/new"
	umount_volume
	cow commit
	[ "$(status_of .write_errors)" = 0 ]
	card_has "$1"
}

@test "xfs: a sync of more than the log holds" { sync_of_more xfs; }
@test "btrfs: a sync of more than the log holds" { sync_of_more btrfs; }

@test "a program that has the device for itself writes more than the log holds" {
	volume xfs 300 --log-size 16M --erase-block 1M
	umount_volume
	random_file "$T/raw" 40
	# where the file system has nothing yet
	python3 - "$T/raw" "$DEV" $((200 << 20)) <<-'END'
		import mmap, os, sys
		fd = os.open(sys.argv[2], os.O_WRONLY | os.O_EXCL | os.O_DIRECT)
		data = open(sys.argv[1], 'rb').read()
		page = mmap.mmap(-1, 1 << 20)
		for i in range(0, len(data), 1 << 20):
		    page[:] = data[i:i + (1 << 20)]
		    os.pwrite(fd, page, int(sys.argv[3]) + i)
	END
	[ "$(status_of '.pressure.commits > 0')" = true ]
	[ "$(status_of .write_errors)" = 0 ]
	cow commit
	power_cut
	cow release "$CARD"
	cmp -n $((40 << 20)) -i 0:$((200 << 20)) "$T/raw" "$CARD"
}

# FS: what was made on the volume is filled with more than the log holds
made_anew() {
	mount_volume
	random_file "$T/new" 40
	cp "$T/new" "$MNT/new"
	umount_volume
	cow commit
	[ "$(status_of .write_errors)" = 0 ]
	detach_whole "$1"
	mount -o ro "$CARD" "$MNT"
	cmp "$T/new" "$MNT/new"
}

attach_ext4() {
	volume_attached ext4 320 420 -- --log-size 32M --erase-block 4M
}

@test "a committed wipefs, then another ext4" {
	attach_ext4
	wipefs -aq "$DEV"
	cow commit
	mke2fs -q -F -t ext4 "$DEV"
	cow commit
	made_anew ext4
}

@test "a committed wipefs, then an xfs" {
	attach_ext4
	wipefs -aq "$DEV"
	cow commit
	mkfs.xfs -q "$DEV"
	cow commit
	made_anew xfs
}

@test "a committed wipefs, then a btrfs" {
	attach_ext4
	wipefs -aq "$DEV"
	cow commit
	mkfs.btrfs -q "$DEV"
	cow commit
	detach
	attach # requests get the size that a btrfs needs with such a log
	made_anew btrfs
}

@test "an xfs over an ext4, without a commit in between" {
	attach_ext4
	mkfs.xfs -q -f "$DEV"
	made_anew xfs
}

@test "a btrfs over a full ext4, without a commit in between" {
	volume_mounted ext4 600 700 -- --log-size 32M --erase-block 1M -- --ram 900M
	random_file "$MNT/full" 400
	cow commit --checkpoint
	umount_volume
	mkfs.btrfs -q -f "$DEV"
	mount_volume
	random_file "$T/new" 120
	# what was free in the ext4 is no room for most of it
	dd if="$T/new" of="$MNT/new" bs=1M oflag=dsync status=none
	umount_volume
	cow commit
	[ "$(status_of .alarm)" = "" ]
	[ "$(status_of .write_errors)" = 0 ]
	detach_whole btrfs
	mount -o ro "$CARD" "$MNT"
	cmp "$T/new" "$MNT/new"
}

@test "prepare: what a log means where everything goes through it" {
	card_make xfs 300 400
	run -0 cow prepare "$CARD" --log-size 8M --erase-block 1M
	[[ $output == *"commits on its own from "*" MiB on"* ]]
	[[ $output == *"warning: with so small a log, writes are split into 44 KiB"* ]]
	run -0 cow prepare --force "$CARD" --log-size 512K --erase-block 64K
	[[ $output == *"warning: the log is so small that a burst of writes can make a commit impossible"* ]]
	IMG='' # card_make looks at it
	card_make btrfs 1600 1800
	run -0 cow prepare "$CARD"
	[[ $output == *"log            100.0 MiB"* ]]
	[[ $output != *warning* ]]
	IMG='' # card_make looks at it
	card_make vfat 64 128
	run -0 cow prepare "$CARD"
	[[ $output == *"warning: everything written to the vfat between two unmounts must fit in the log ("*" MiB)"* ]]
	IMG='' # card_make looks at it
	card_make ext4 64 128
	run -0 cow prepare "$CARD"
	[[ $output != *"commits on its own"* && $output != *warning* ]]
}
