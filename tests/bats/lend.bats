#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A commit that fits neither into the log nor into free blocks is lent room on another device or in a file.
# seconds: 80
# waits: 81 % of its time

load lib

# More is dirty than the log can ever hold. While it is to be dropped no commit begins before it is too much.
overwrite() { # MIB
	cow discard
	dd if=/dev/urandom of="$MNT/big" bs=1M count="$1" conv=notrunc status=none
	sync -f "$MNT"
	cow discard --cancel
}

# 60 MiB of ext4, nearly full, 40 of them rewritten in place: the ring has 8. Sets SUM, and OLD, of the commit before.
stuck_volume() { # [ATTACH_OPTION]...
	card_make ext4 60 100 -b 4096 -J size=4
	cow format "$CARD" --log-size 8M --erase-block 1M
	attach "$@"
	mount_volume
	random_file "$MNT/big" 44
	echo old >"$MNT/small"
	cow commit --checkpoint
	OLD=$(tree_sum "$MNT")
	overwrite 40
	echo new >"$MNT/small"
	SUM=$(tree_sum "$MNT")
}

setup() { cow_setup_on_disk; }

lent_file() { # MIB
	LENT=$T/lent
	rm -f "$LENT"
	truncate -s "$1M" "$LENT"
}

lent_device() { # MIB
	lent_file "$1"
	loop_up "$LENT"
	LENT_DEV=$LOOP
}

home_is() { # SUM
	fsck ext4
	mount -o ro "$CARD" "$MNT"
	[ "$(tree_sum "$MNT")" = "$1" ]
	umount "$MNT"
}

# The daemon dies while a commit with lent room is checkpointed.
cut_checkpoint() {
	with_shim stuck_volume
	lent_file 60
	eio slow 150
	background "$COWFS_BUILD/cowctl" commit --lend "$LENT"
	wait_for 60 in_checkpoint
	power_cut
	eio off
}

in_checkpoint() {
	[ "$(status_of .progress.phase)" = checkpoint ] && [ "$(status_of '.progress.done_blocks > 1000')" = true ]
}

@test "lend: a commit says how much space it needs, and works with a file of that size" {
	local mib
	stuck_volume
	fails 1 'everything stays in RAM\. To commit it, lend [0-9]+ MiB on another device.*cowctl commit --lend DEVICE\|FILE' commit
	fails 1 'To commit it, lend [0-9]+ MiB on another device' commit --dry-run
	run -1 cow commit --json
	jq -e '.code == "EFBIG" and .report.lend_need_blocks > 7000' <<<"$output"
	mib=$(jq -r .error <<<"$output" | grep -o 'lend [0-9]* MiB' | tr -dc 0-9)
	lent_file "$mib"
	run -0 cow commit -v --lend "$LENT"
	[[ $output == *"on the lent device"* ]]
	[ "$(status_of '.last.report.lent_blocks > 7000')" = true ]
	# it is home at once, and the room is void
	[ "$(status_of .log_live_blocks)" = 0 ]
	cmp -n 4096 "$LENT" /dev/zero
	[ "$(status_of .card.foreign_bytes)" = 0 ]
	power_cut
	home_is "$SUM"
}

@test "lend: a device; the unmounted volume, and then detach" {
	stuck_volume
	umount_volume
	fails 1 'too small for this commit.*--lend' detach
	lent_device 60
	cow commit --lend "$LENT_DEV" vol
	# nobody holds it any more
	run -0 cow commit --lend "$LENT_DEV" vol
	detach
	cmp -n 4096 "$LENT_DEV" /dev/zero
	home_is "$SUM"
}

@test "lend: cut in the checkpoint; only with the file is it recovered, without it nothing is written" {
	local sum
	cut_checkpoint
	sum=$(image_sum)
	cp "$LENT" "$T/keep"
	fails 1 'was committed with lent space.*cowctl recover --lend DEVICE\|FILE' attach "$CARD"
	fails 1 'was committed with lent space.*nothing was written.*--lend none' recover "$CARD"
	run -1 cow check "$CARD"
	[[ $output == *"NEEDS LENT SPACE"*"verdict: WAITS: do not mount"* ]]
	run -1 cow check --json "$CARD"
	jq -e '.wants_lent and .verdict == "broken"' <<<"$output"
	fails 1 'was committed with lent space.*no whole generation to show.*cowctl recover --lend DEVICE\|FILE' view "$CARD" "$MNT"
	# blocks are in place already: there is no way back
	fails 1 'no complete generation' recover --lend none "$CARD"
	# not what was lent to this commit
	dd if=/dev/urandom of="$LENT" bs=4096 count=1 conv=notrunc status=none
	fails 1 'names another one' recover --lend "$LENT" "$CARD"
	printf 'COWFSLNT' | dd of="$LENT" bs=1 conv=notrunc status=none
	fails 1 'names another one' recover --lend "$LENT" "$CARD"
	[ "$(image_sum)" = "$sum" ]
	cow recover --lend "$T/keep" "$CARD"
	cmp -n 4096 "$T/keep" /dev/zero
	home_is "$SUM"
	attach
	mount_volume
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	detach
}

@test "lend: the file goes bad before it is recovered: no mixture" {
	cut_checkpoint
	dd if=/dev/urandom of="$LENT" bs=4096 seek=3000 count=2 conv=notrunc status=none
	fails 1 'the log is damaged' recover --lend "$LENT" "$CARD"
	# given up: whose part of it is in place has to be found out
	run -3 cow recover --accept base "$CARD"
	[[ $output == *"the blocks in it are discarded"*"mixture of generations: check"*"e2fsck -f $CARD" ]]
	blockdev --setrw "$CARD"
	e2fsck -fy "$CARD" || [ $? = 1 ]
	run -0 cow check "$CARD"
}

@test "lend: cut before the checkpoint; --lend none takes the previous generation" {
	local n
	with_shim stuck_volume
	lent_file 60
	# so many writes that the last good one is the commit's record
	for ((n = 4; n < 60; n++)); do
		eio write "$n" 100000
		run -1 cow commit --lend "$LENT"
		[[ $output != *"is committed, but the lent space holds"* ]] || break
	done
	power_cut
	eio off
	cp "$IMG" "$T/copy"
	cp "$LENT" "$T/copy.lent"
	fails 1 'was committed with lent space' recover "$CARD"
	run -0 cow recover --lend none "$CARD"
	[[ $output == *"the previous generation was taken"* ]]
	home_is "$OLD"
	# the newer one was whole, too
	loop_down "$CARD"
	IMG=$T/copy
	loop_up "$IMG"
	CARD=$LOOP
	cow recover --lend "$T/copy.lent" "$CARD"
	home_is "$SUM"
}

@test "lend: the checkpoint fails; the space stays in use until one succeeds" {
	with_shim stuck_volume
	lent_file 60
	eio write 40 100000
	fails 1 'lent space holds blocks of it.*leave it in place.*commit --checkpoint' commit --lend "$LENT"
	# whatever fails next is no reason to take it away
	fails 1 'the lent space holds committed blocks: leave it in place' commit
	[[ "$(status_of .alarm)" == *"leave it in place"* ]]
	eio off
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	run ! cmp -s -n 4096 "$LENT" /dev/zero
	fails 1 'in use by something else' commit --lend "$LENT"
	lent_device_2=$T/second
	truncate -s 60M "$lent_device_2"
	echo more >"$MNT/more"
	fails 1 'lent before is still in use' commit --lend "$lent_device_2"
	cow commit --checkpoint
	cmp -n 4096 "$LENT" /dev/zero
	SUM=$(tree_sum "$MNT")
	detach
	home_is "$SUM"
}

@test "lend: an unsuitable target is refused and not touched" {
	stuck_volume
	mkdir "$T/ram"
	mount -t tmpfs none "$T/ram"
	truncate -s 60M "$T/ram/file" "$MNT/file" "$T/file" "$T/tiny.img"
	fails 1 'is or may be in RAM' commit --lend "$T/ram/file"
	fails 1 'is on volume vol' commit --lend "$MNT/file"
	fails 1 'belongs to volume vol' commit --lend "$CARD"
	fails 1 'belongs to volume vol' commit --lend "$DEV"
	fails 1 'No such file' commit --lend "$T/none"
	fails 1 'neither a block device nor a file' commit --lend "$T"
	fails 1 'neither a block device nor a file' commit --lend /dev/null
	fails 2 'are mutually exclusive' commit --lend "$T/file" --dry-run
	truncate -s 4096 "$T/tiny.img"
	fails 1 'too small' commit --lend "$T/tiny.img"
	truncate -s 10M "$T/tiny.img"
	fails 1 'too small for this commit.*To commit it, lend [0-9]+ MiB' commit --lend "$T/tiny.img"
	# a text, a file system, a log of cowfs, a device that is mounted
	echo "not empty" | dd of="$T/file" conv=notrunc status=none
	fails 1 'is not empty and would be overwritten' commit --lend "$T/file"
	mkfs.ext4 -q -F "$T/file"
	fails 1 'holds a file system \(ext4\), which would be overwritten' commit --lend "$T/file"
	loop_up "$T/file"
	mkdir "$T/mnt2"
	mount "$LOOP" "$T/mnt2"
	fails 1 'mounted or in use' commit --lend "$LOOP"
	umount "$T/mnt2"
	fails 1 'holds a file system' commit --lend "$LOOP"
	umount "$T/ram"
	rm "$MNT/file"
	[ "$(tree_sum "$MNT")" = "$SUM" ]
}

@test "lend: on top of RAM or of the volume, by a loop device; a file of somebody else" {
	stuck_volume
	mkdir "$T/ram" "$T/mnt2"
	mount -t tmpfs none "$T/ram"
	truncate -s 60M "$T/ram/file" "$MNT/file" "$T/file"
	loop_up "$T/ram/file"
	fails 1 'is or may be in RAM' commit --lend "$LOOP"
	mke2fs -q -F -t ext2 "$LOOP"
	mount "$LOOP" "$T/mnt2"
	truncate -s 60M "$T/mnt2/file"
	fails 1 'is or may be in RAM' commit --lend "$T/mnt2/file"
	umount "$T/mnt2"
	loop_down "$LOOP"
	loop_up "$MNT/file"
	fails 1 'is on volume vol' commit --lend "$LOOP"
	loop_down "$LOOP"
	umount "$T/ram"
	rm "$MNT/file"
	# what a user has put where the file of a loop device seems to be is not opened: a fifo's writer would go on
	mkdir "$T/his"
	truncate -s 60M "$T/his/file"
	loop_up "$T/his/file"
	mke2fs -q -F -t ext2 "$LOOP"
	rm "$T/his/file"
	mkfifo "$T/his/file (deleted)" # as the kernel names it now
	chown nobody "$T/his" "$T/his"/*
	background sh -c ': >"$1"; : >"$2"' sh "$T/his/file (deleted)" "$T/opened"
	fails 1 'holds a file system .ext2.' commit --lend "$LOOP"
	sleep 0.2
	[ ! -e "$T/opened" ]
	kill "$BG"
	loop_down "$LOOP"
	# who may write there could make recovery believe anything, and who may read sees all that is committed
	chown 65534 "$T/file"
	fails 1 'other users could read or change' commit --lend "$T/file"
	chown 0 "$T/file"
	chmod 662 "$T/file"
	fails 1 'other users could read or change' commit --lend "$T/file"
	chmod 644 "$T/file"
	cow commit --lend "$T/file"
	[ "$(stat -c %a "$T/file")" = 600 ]
}

@test "lend: the disk of the file is full" {
	stuck_volume
	truncate -s 20M "$T/disk"
	mke2fs -q -F -t ext4 "$T/disk"
	mkdir "$T/mnt2"
	loop_up "$T/disk"
	mount "$LOOP" "$T/mnt2"
	truncate -s 60M "$T/mnt2/file"
	fails 1 'cannot write to the lent space \(No space left on device\); nothing was committed' commit --lend "$T/mnt2/file"
	umount "$T/mnt2"
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	lent_file 60
	cow commit --lend "$LENT"
	power_cut
	home_is "$SUM"
}

# Writes FILE over from MIB on, each MiB synced, until a write fails; prints the checksum of each that did not.
write_until_error() { # FILE MIB
	python3 - "$1" "$2" <<-'END'
		import hashlib, os, sys
		fd, at = os.open(sys.argv[1], os.O_WRONLY), int(sys.argv[2])
		try:
		    while at < os.fstat(fd).st_size >> 20:
		        data = os.urandom(1 << 20)
		        os.pwrite(fd, data, at << 20)
		        os.fsync(fd)
		        print(at, hashlib.sha256(data).hexdigest(), flush=True)
		        at += 1
		except OSError as e:
		    print(e, file=sys.stderr)
	END
}

# More than the log holds is dirty, and RAM is full: what a program writes after that fails. Then COMMAND, then room is lent.
lend_when_full() { # MOUNT_OPTIONS COMMAND...
	local mib at sum force=()
	card_make ext4 160 220 -b 4096 -J size=4
	cow format "$CARD" --log-size 8M --erase-block 1M
	attach --ram 64M
	mount_volume -o "noatime,$1"
	shift
	random_file "$MNT/big" 140
	cow commit --checkpoint
	overwrite 40
	cp "$MNT/big" "$T/big"
	fails 1 'To commit it, lend [0-9]+ MiB on another device' commit
	wait_for 30 jq -e .pressure.gave_up "$COWFS_RUNDIR/vol/status.json"
	write_until_error "$MNT/big" 60 >"$T/written" 2>"$T/error"
	grep -q 'Errno' "$T/error"
	[ "$(status_of .pressure.level)" = full ]
	[[ "$(status_of .alarm)" == *"--lend DEVICE|FILE; writes fail while RAM is full" ]]
	[ "$(wc -l <"$T/written")" -gt 4 ]
	"$@" || :
	# reads go on, of what is in RAM and of what is on the card
	cmp -n $((60 << 20)) "$T/big" "$MNT/big"
	run -1 cow commit
	[[ $output != *"has recorded errors"* ]] || force=(--force)
	run -1 cow commit "${force[@]}"
	echo "$output"
	mib=$(grep -o 'lend [0-9]* MiB' <<<"$output" | tr -dc 0-9)
	lent_file "$mib"
	cow commit --lend "$LENT" "${force[@]}"
	[ "$(status_of .pressure.gave_up)" = false ]
	UNFROZEN=$(status_of .last.quiesce.unfrozen) ALARM=$(status_of .alarm)
	detach "${force[@]}"
	fsck ext4
	mount -o ro "$CARD" "$MNT"
	cmp -n $((60 << 20)) "$T/big" "$MNT/big"
	while read -r at sum; do
		[ "$(dd if="$MNT/big" bs=1M skip="$at" count=1 status=none | sha256sum | cut -d' ' -f1)" = "$sum" ]
	done <"$T/written"
	umount "$MNT"
}

@test "lend: writers went on until RAM was full; all that was accepted is committed" {
	lend_when_full errors=continue true
}

# Its metadata: jbd2 ends checkpoints for good after that, so a freeze fails.
flush_device() { blockdev --flushbufs "$DEV"; }

@test "lend: RAM was full when the file system wrote its metadata home" {
	lend_when_full errors=continue flush_device
	[ "$UNFROZEN" = true ]
	[[ $ALARM == *"sealed without a freeze"*"unmount it and mount it again"* ]]
}

# Or at another time: it has made itself read-only.
write_journal() {
	touch "$MNT/new"
	sync -f "$MNT"
}

@test "lend: RAM was full when the file system wrote its journal" {
	lend_when_full errors=remount-ro write_journal
}

# Without a classifier all goes to the log, and on xfs nothing is spilled.
@test "lend: xfs, and btrfs with other checksums, with a log smaller than the commit" {
	local fs
	for fs in btrfs xfs; do
		IMG=
		if [ $fs = btrfs ]; then card_make btrfs 300 340 --csum xxhash; else card_make xfs 300 340; fi
		cow format "$CARD" --log-size 8M --erase-block 1M
		attach
		mount_volume
		random_file "$MNT/big" 25
		cow commit
		random_file "$T/new" 25
		cow discard
		dd if="$T/new" of="$MNT/big" bs=1M conv=notrunc status=none
		sync -f "$MNT"
		cow discard --cancel
		SUM=$(tree_sum "$MNT")
		fails 1 'too small for this commit.*--lend' commit
		lent_file 60
		cow commit --lend "$LENT"
		detach
		fsck $fs
		mount -o ro "$CARD" "$MNT"
		[ "$(tree_sum "$MNT")" = "$SUM" ]
		umount "$MNT"
	done
}
