#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What must not work: a clear sentence, the right exit code, and nothing lost or changed.
# (Wrong usage: format.bats. Control socket, dead daemon: status.bats. Damaged logs: also check_recover.bats.)
# seconds: 110

load lib

protect() {
	card_prepared ext4 100 150 -J size=8
	"$@" attach
	mount_volume
}

unchanged() {
	[ "$(image_sum)" = "$SUM" ] || { echo "the image has changed"; return 1; }
}

# Every command that looks at a card must say this and end with 1.
all_refuse() {
	local c
	SUM=$(image_sum)
	for c in attach check release; do
		fails 1 "$1" $c "$CARD" || return
		fails 1 "$1" $c --json "$CARD" || return
	done
	unchanged
}

# ---- devices ----

@test "not a block device: a character device, a folder, nothing, a regular file" {
	local c
	for c in attach check release; do
		fails 1 '(not|neither) a block device' $c /dev/null
		fails 1 '(not|neither) a block device' $c "$T"
		fails 1 'No such file' $c "$T/missing"
		fails 1 '(not|neither) a block device|No such file' $c --log /dev/null "$T/missing"
	done
	# an image file will do for the offline commands, but not for the daemon
	card_make ext4 100 150
	loop_down "$CARD"
	cow prepare "$IMG"
	SUM=$(image_sum)
	fails 1 "$IMG is not a block device \(an image file: losetup" attach "$IMG"
	fails 1 '/dev is not a block device$' attach /dev
	fails 2 'an operand is empty: it names no file' revert --yes ''
	fails 2 '--html: the name of the file is empty' wear --html ''
	fails 1 'not a block device' attach --json "$IMG"
	unchanged
}

@test "mounted: attach, release and prepare refuse" {
	card_prepared ext4 100 150
	mount "$CARD" "$MNT"
	fails 1 "$CARD is mounted" attach "$CARD"
	fails 1 "$CARD is mounted on $MNT" release "$CARD"
	fails 1 "$CARD is mounted on $MNT" prepare --force "$CARD"
	# still writable for who had mounted it
	echo x >"$MNT/x"
	sync -f "$MNT"
	[ "$(blockdev --getro "$CARD")" = 0 ]
	umount "$MNT"
	attach
}

@test "already attached: each command names the volume" {
	protect
	fails 1 "$CARD is already attached as volume vol" attach "$CARD" --name other
	fails 1 "$CARD is attached as volume vol" release "$CARD"
	fails 1 "$CARD is attached as volume vol" prepare "$CARD"
	commit_word x
}

@test "no log there" {
	card_make ext4 100 150
	SUM=$(image_sum)
	fails 1 "no cowfs log.*cowctl prepare $CARD" attach "$CARD"
	fails 1 "$CARD: no cowfs log" check "$CARD"
	fails 1 "$CARD: no cowfs log" release "$CARD"
	unchanged
	cow prepare "$CARD"
	logedit wipe
	all_refuse 'no cowfs log'
	loop_down "$CARD"
	card_make none 0 100
	all_refuse 'no cowfs log'
	loop_down "$CARD"
	IMG=$T/tiny.img
	truncate -s 8K "$IMG"
	card_loop
	all_refuse 'no cowfs log'
}

@test "log of a newer format, or with features that are not known" {
	local format
	protect
	commit_word x
	power_cut
	cp "$IMG" "$T/good"
	format=$(cow --version --json | jq .log_format)
	logedit set 32 4 $((format + 1))
	all_refuse "format $((format + 1))"
	fails 1 'newer format: --force' prepare "$CARD"
	unchanged
	logedit set 32 4 "$format"
	logedit set 56 8 0x11 # incompat
	all_refuse 'another version|features'
	logedit set 56 8 0 # without that of each log
	all_refuse 'another version|features'
	logedit set 56 8 1
	logedit set 48 8 0x10 # ro_compat
	all_refuse 'another version|features'
	logedit set 48 8 0
	logedit set 40 8 0x10 # compat: may be ignored
	cow check "$CARD"
	attach_mounted
	[ -e "$MNT/x" ]
}

@test "superblock: both copies damaged" {
	protect
	commit_word x
	power_cut
	logedit break AB
	all_refuse 'both superblocks of the log are damaged'
	fails 1 'superblock is damaged: --force' prepare "$CARD"
	unchanged
}

@test "card smaller than the log says" {
	local mib
	protect
	commit_word x
	power_cut
	for mib in 135 120 104; do # 149: it is opened (copies.bats)
		loop_down "$CARD"
		truncate -s ${mib}M "$IMG"
		card_loop
		all_refuse 'smaller|a truncated copy of a larger card'
		fails 1 'larger device|or larger' prepare "$CARD"
		unchanged
	done
}

@test "the file system does not fit in front of the log, the log of another card" {
	local log
	IMG=$T/log.img
	card_make none 0 60
	log=$CARD
	IMG=$T/base.img
	card_prepared ext4 100 100 -- --log "$log"
	SUM=$(image_sum)
	fails 2 'the log of another device' check "$log"
	fails 1 'log on another device|no file system|smaller' attach "$log"
	loop_down "$CARD"
	IMG=$T/small.img
	card_make ext4 50 50
	SUM=$(image_sum)
	fails 1 'smaller' attach "$CARD" --log "$log"
	fails 1 'smaller' check "$CARD" --log "$log"
	fails 1 'smaller' release "$CARD" --log "$log"
	unchanged
	# a card with its own log is no log device
	IMG=$T/own.img
	card_prepared ext4 60 110
	fails 1 'its log belongs to its own file system' attach "$log" --log "$CARD"
}

# ---- RAM ----

@test "RAM limit: 0, nonsense, more than there is, too little" {
	local ram
	card_prepared ext4 100 150 -J size=8
	SUM=$(image_sum)
	for ram in 0 0% 0M nonsense 12Q -1 -5% '' 5M5 1e999 99999999999999999999 101% 1000%; do
		fails 2 '--ram' attach "$CARD" --ram "$ram"
	done
	fails 2 'exceeds the memory of this machine, [0-9.]+ [KMGT]iB' attach "$CARD" --ram 16T
	fails 2 'exceeds the memory' attach "$CARD" --ram 16T --json
	fails 1 'too small: at least 8.0 MiB' attach "$CARD" --ram 64K
	unchanged
	no_daemons
}

@test "RAM limit that cannot hold the journal" {
	card_prepared ext4 200 240 -J size=64
	SUM=$(image_sum)
	fails 1 'RAM limit of 32.0 MiB cannot hold the journal of .* \(64.0 MiB\).*at least 76.0 MiB' attach "$CARD" --ram 32M
	unchanged
	attach_mounted --ram 80M
}

@test "RAM full: writes fail, the card is untouched, what was there stays readable" {
	local before
	protect
	echo precious >"$MNT/file"
	detach
	before=$(card_written)
	attach --ram 24M --pressure fail
	run dd if=/dev/zero of="$DEV" bs=1M seek=20 count=60 oflag=direct
	[ "$status" -ne 0 ]
	[[ $output == *"No space left"* || $output == *"Input/output error"* ]]
	[ "$(status_of '.write_errors > 0 and .ram_used_bytes <= .pressure.hard_bytes')" = true ]
	[ "$(card_written)" -eq "$before" ]
	detach --discard
	fsck ext4
	attach_mounted
	[ "$(cat "$MNT/file")" = precious ]
}

# ---- file systems ----

@test "file system that cannot be frozen: commits unmounted or read-only" {
	volume_attached vfat 60 110
	# unmounted: whatever it is
	dd if=/dev/urandom of="$DEV" bs=1M count=3 seek=40 oflag=direct status=none
	dd if="$DEV" of="$T/part" bs=1M count=3 skip=40 status=none
	cow commit
	power_cut
	attach
	dd if="$DEV" bs=1M count=3 skip=40 status=none | cmp - "$T/part"
	detach
	dd if="$CARD" bs=1M count=3 skip=40 status=none | cmp - "$T/part"
	fsck vfat
	modprobe -q vfat || true
	grep -qw vfat /proc/filesystems || skip "no vfat in this kernel: the mounted half was left out"
	attach_mounted
	echo one >"$MNT/one"
	sync -f "$MNT"
	fails 1 'is committed only while it is not mounted, or read-only: unmount it or remount it read-only' commit
	fails 1 'is committed only while' commit --json
	[ "$(status_of .card.written_bytes)" = 0 ]
	mount -o remount,ro "$MNT"
	cow commit
	mount -o remount,rw "$MNT"
	echo two >"$MNT/two"
	umount_volume
	cow commit
	power_cut
	attach_mounted
	[ "$(cat "$MNT/one" "$MNT/two")" = $'one\ntwo' ]
	detach_whole vfat
}

@test "external journal and multi-mount protection that came after the prepare" {
	local journal
	IMG=$T/journal.img
	truncate -s 20M "$IMG"
	mke2fs -q -F -O journal_dev -b 4096 "$IMG"
	loop_up "$IMG"
	journal=$LOOP IMG=''
	card_prepared ext4 100 150 -b 4096
	tune2fs -O ^has_journal "$CARD"
	tune2fs -J "device=$journal" "$CARD"
	blockdev --flushbufs "$CARD"
	SUM=$(image_sum)
	fails 1 'journal .* is on another device' attach "$CARD"
	unchanged
	loop_down "$CARD"
	card_prepared ext4 100 150
	tune2fs -O mmp "$CARD"
	blockdev --flushbufs "$CARD"
	SUM=$(image_sum)
	fails 1 'multiple-mount protection.*tune2fs -O \^mmp' attach "$CARD"
	unchanged
	# what the message says helps
	tune2fs -f -O ^mmp "$CARD"
	attach
}

@test "a volume that becomes LUKS, LVM, RAID or swap: no commit, no attach" {
	local before what text
	protect
	commit_word one
	while read -r what text; do
		umount_volume
		before=$(card_written)
		dd if=/dev/zero of="$DEV" bs=64k count=1 conv=fsync status=none
		# a mkfs may begin like this: no reason to refuse
		cow commit --dry-run
		plant "$what" "$DEV"
		fails 1 "$CARD: it holds $text" commit
		fails 1 "$CARD: it holds $text" commit --force
		fails 1 "$CARD: it holds $text" commit --dry-run
		run -3 cow status
		[[ $output == *"commit failed: $CARD: it holds "* ]]
		fails 1 "$CARD: it holds $text" detach
		[ "$(card_written)" -eq "$before" ]
		cow detach --discard
		attach_mounted
		[ "$(cat "$MNT/one")" = one ]
	done <<-END
		luks a LUKS device, .*: open the device
		lvm an LVM physical volume, .*: prepare and attach a logical volume
		raid a member of a RAID array, .*: prepare and attach the array
		swap a swap area
	END
	# mdadm leaves the superblock of ext4 where it is
	umount_volume
	plant raid "$DEV"
	fails 1 "$CARD: it holds a member of a RAID array" commit --force
	cow detach --discard
	attach_mounted
	# what a mkfs began and did not end, and what somebody has then made without cowfs
	umount_volume
	dd if=/dev/zero of="$DEV" bs=64k count=1 conv=fsync status=none
	detach
	plant luks "$CARD"
	blockdev --flushbufs "$CARD"
	SUM=$(image_sum)
	fails 1 "$CARD: it holds a LUKS device" attach "$CARD"
	unchanged
}

@test "a volume of xfs that becomes LUKS: writes go on until RAM is full, then they fail" {
	export COWFS_FULL_TIMEOUT=3s
	volume_attached xfs 320 400 -- --log-size 16M --erase-block 1M -- --ram 64M
	plant luks "$DEV"
	blockdev --flushbufs "$DEV"
	# more than the log holds, and then more than RAM
	background dd if=/dev/urandom of="$DEV" bs=1M seek=1 count=40 oflag=direct status=none
	wait_for 300 ended "$BG" || { cow detach --discard; false; }
	wait "$BG"
	background dd if=/dev/urandom of="$DEV" bs=1M seek=90 count=200 oflag=direct
	wait_for 300 ended "$BG" || { cow detach --discard; false; }
	run -1 wait "$BG"
	fails 1 "$CARD: it holds a LUKS device" commit
	cow detach --discard
}

@test "file system with its error flag set: not committed without --force" {
	local before
	protect
	commit_word one
	umount_volume
	debugfs -w -R 'ssv state 3' "$DEV"
	before=$(card_written)
	fails 1 'has recorded errors: not committed \(commit --force overrides\)' commit
	[ "$(card_written)" -eq "$before" ]
	run -3 cow status
	[[ $output == *"has recorded errors"* ]]
	# nor by a detach
	fails 1 'has recorded errors' detach
	[ "$(card_written)" -eq "$before" ]
	# mended above the card, it goes without force
	e2fsck -fy "$DEV" || [ $? = 1 ]
	cow commit
	cow status
	# or forced
	debugfs -w -R 'ssv state 3' "$DEV"
	fails 1 'has recorded errors' commit
	cow commit --force
	[ "$(card_written)" -gt "$before" ]
	cow status
	# known since: the next one asks no more
	mount_volume
	[ "$(cat "$MNT/one")" = one ]
	detach
}

# ---- the log ----

@test "ring too small for the commit: numbers, RAM kept, and a smaller commit goes" {
	local before sum
	volume_mounted ext4 60 100 -J size=4 -- --log-size 8M --erase-block 1M
	random_file "$MNT/big" 44
	echo old >"$MNT/small"
	cow commit --checkpoint
	before=$(card_written)
	# in place over used blocks: all of it would have to be logged, and hardly a block is free. While it is to be dropped,
	# no commit begins before it is too much
	cow discard
	dd if=/dev/urandom of="$MNT/big" bs=1M count=40 conv=notrunc status=none
	sync -f "$MNT"
	cow discard --cancel
	echo new >"$MNT/small"
	sum=$(tree_sum "$MNT")
	fails 1 'too small for this commit: [0-9.]+ MiB needed, [0-9.]+ [KM]iB available.*; everything stays in RAM' commit
	run -1 cow commit --json
	jq -e '.ok == false and .code == "EFBIG" and .exit == 1 and
		.report.log_need_blocks > .report.log_room_blocks and .report.log_room_blocks > 0' <<<"$output"
	fails 1 'too small for this commit' commit --dry-run
	run -3 cow status
	[[ $output == *"FAILED"* && $output == *"kept from a commit that failed"* ]]
	[ "$(status_of '.failed_blocks > 9000')" = true ]
	# all that is not on the card, not only what came since
	[ "$(status_of '.dirty_blocks >= .failed_blocks')" = true ]
	[ "$(card_written)" -eq "$before" ]
	# readable, also after the page cache is gone
	umount_volume
	blockdev --flushbufs "$DEV"
	mount_has "$sum"
	# a detach would lose it: refused
	umount_volume
	fails 1 'too small for this commit' detach
	mount_has "$sum"
	# what is dropped need not be written
	rm "$MNT/big"
	cow commit
	cow status
	power_cut
	attach_mounted
	[ "$(cat "$MNT/small")" = new ]
	[ ! -e "$MNT/big" ]
	detach_whole ext4
}

@test "ring too small: a power cut leaves the last commit" {
	local sum
	volume_mounted ext4 60 100 -J size=4 -- --log-size 8M --erase-block 1M
	random_file "$MNT/big" 44
	cow commit
	sum=$(tree_sum "$MNT")
	cow discard
	dd if=/dev/urandom of="$MNT/big" bs=1M count=40 conv=notrunc status=none
	sync -f "$MNT"
	cow discard --cancel
	fails 1 'too small for this commit' commit
	power_cut
	recovers_to ext4 "$sum"
}

@test "card swapped, or a foreign writer: nothing is written, alarm" {
	local before at
	protect
	commit_word one
	before=$(card_written)
	at=$(($(logedit newest) + 60))
	logedit flip $at
	echo two >"$MNT/two"
	fails 1 'the card was swapped, or has foreign changes; nothing was written' commit
	[ "$(card_written)" -eq "$before" ]
	run -3 cow status
	[ "$(cat "$MNT/two")" = two ]
	# nor by a detach, unless what is in RAM may be dropped
	umount_volume
	fails 1 'the card was swapped, or has foreign changes' detach
	mount_volume
	logedit flip $at # as it was
	cow commit
	cow status
	blockdev --setrw "$CARD"
	dd if=/dev/zero of="$CARD" bs=4k count=1 seek=$((149 * 256)) oflag=direct status=none
	blockdev --setro "$CARD"
	run -3 cow status --json
	jq -e '.card.foreign_bytes == 4096 and .degraded' <<<"$output"
}

# ---- errors of the card ----

# bats test_tags=blunt
@test "EIO on read: at attach, below programs, in check" {
	local n
	card_prepared ext4 100 150 -J size=8
	shim_mounted
	random_file "$MNT/a" 3
	detach
	SUM=$(image_sum)
	for n in 0 1 3; do
		eio read "$n" 100000
		run -1 --separate-stderr with_shim cow attach "$CARD" --name vol
		[[ -z $output && $stderr == *"$CARD"*"Input/output error"* ]]
		run -1 --separate-stderr with_shim cow check "$CARD"
		[[ $stderr$output == *"Input/output error"* || $output == *"DAMAGED"* || $output == *"BROKEN"* ]]
	done
	no_daemons
	unchanged
	eio off
	with_shim attach
	# what ext4 itself needs is read now, and nothing by its own thread: it takes an error there for its own. What it writes, where
	# a part of a block has to be read first, is written now: the first open of a file changes the superblock
	mount_volume -o noatime,noinit_itable,no_prefetch_block_bitmaps
	stat "$MNT/a"
	: <"$MNT/a"
	sync -f "$MNT"
	eio read 0 100000
	run cat "$MNT/a"
	[ "$status" -ne 0 ]
	[[ $output == *"Input/output error"* ]]
	[ "$(status_of '.read_errors > 0')" = true ]
	eio off
	cat "$MNT/a" >/dev/null
	commit_word x
	detach_whole ext4
}

# A commit with checkpoint whose n-th operation of this kind fails; then all is well again.
commit_fails() {
	local kind=$1 n=$2 sum
	random_file "$MNT/a" 3
	echo "$kind $n" >"$MNT/b"
	sum=$(tree_sum "$MNT")
	eio "$kind" "$n" "${3:-1}"
	run --separate-stderr cow commit --checkpoint
	echo "$kind $n: exit $status, $output $stderr"
	if [ "$status" = 0 ]; then
		# there are not that many
		[ "$n" -gt 4 ] || return
		eio off
		return 0
	fi
	[ "$status" = 1 ] || return
	[[ $stderr == *"card reports an error; nothing is lost, everything stays in RAM"* ]] || return
	run -3 cow status
	[[ $output == *"FAILED (EIO)"* && $output == *"alarm"*"commit failed"* ]] || return
	eio off
	read_again "$MNT"
	[ "$(tree_sum "$MNT")" = "$sum" ] || return
}

# The volume is not mounted: if the test fails, nothing is left that sync(2) would wait for.
# bats test_tags=blunt
@test "EIO while another worker takes over: it tries again" {
	local worker
	[ "$(printf '%s\n' 6.9 "$(uname -r)" | sort -V | head -n 1)" = 6.9 ] || skip "no worker is replaced"
	card_prepared ext4 100 150 -J size=8
	with_shim attach --on-crash replace
	dd if=/dev/urandom of="$T/data" bs=1M count=1 status=none
	dd if="$T/data" of="$DEV" bs=1M seek=60 oflag=direct status=none
	worker=$(worker_pid)
	eio read 0 100000
	kill -9 "$worker"
	sleep 2.5
	[ "$(worker_pid)" = "$worker" ]
	eio off
	timeout 300 dd if="$DEV" bs=1M skip=60 count=1 iflag=direct status=none | cmp - "$T/data"
	wait_for 20 eval '[ "$(status_of .replaced)" = 1 ]'
	[ "$(worker_pid)" != "$worker" ]
	detach --discard
}

next_does_it_all() { # NUMBERS KIND [COUNT]: of those that fail
	local n sum
	protect with_shim
	commit_word one
	for n in $1; do
		commit_fails "$2" "$n" "${@:3}"
		sum=$(tree_sum "$MNT")
		cow commit
		cow status
		# what is committed now survives
		power_cut
		with_shim attach
		mount_has "$sum"
	done
	detach_whole ext4
}

# with all attempts at a block
@test "EIO on write: the commit fails, RAM is kept, the next commit does it all" { next_does_it_all "0 1 2 3 5 6 7 8 9 10 13" write 4; }
@test "EIO on flush: the commit fails, and is not taken for good the second time" { next_does_it_all "0 1 2 3 4 5 6" flush; }

# bats test_tags=blunt
@test "EIO on a write that follows a FLUSH: it is made again, and counted" {
	protect with_shim
	commit_word one
	[ "$(status_of .lifetime.retried_requests)" = 0 ]
	echo two >"$MNT/two"
	eio write 0 1
	cow commit
	eio off
	[ "$(status_of .lifetime.retried_requests)" = 1 ]
	[ "$(status_of .card.foreign_bytes)" = 0 ]
	detach_whole ext4
}

@test "EIO, then a power cut: the last good commit or the one that failed, whole" {
	local kind n before after
	protect with_shim
	for kind in write flush; do
		for n in 0 1 2 3 4; do
			random_file "$MNT/a" 2
			cow commit
			before=$(tree_sum "$MNT")
			commit_fails $kind $n 1000
			after=$(tree_sum "$MNT")
			power_cut
			shim_mounted
			case $(tree_sum "$MNT") in
			"$before" | "$after") ;;
			*) echo "neither"; return 1 ;;
			esac
		done
	done
	detach_whole ext4
}

@test "a card that is gone for good: detach --discard gets rid of it" {
	local at kind
	for kind in read write flush; do
		protect with_shim
		commit_word one
		echo two >"$MNT/two"
		umount_volume
		eio $kind 0 100000
		fails 1 'card reports an error' detach
		cow detach --discard
		wait_for 20 no_daemons
		eio off
		recover_whole ext4
		on_bare '[ -e "$MNT/one" ] && [ ! -e "$MNT/two" ]'
		loop_down "$CARD"
	done
	protect
	cow commit
	echo two >"$MNT/two"
	umount_volume
	at=$(($(logedit newest) + 60))
	logedit flip $at
	SUM=$(image_sum)
	cow detach --discard
	wait_for 20 no_daemons
	unchanged
}

# bats test_tags=blunt
@test "EIO at detach and at prepare: refused, nothing lost" {
	protect with_shim
	echo precious >"$MNT/file"
	umount_volume
	eio write 0 1000
	fails 1 'card reports an error' detach
	eio flush 0 1000
	fails 1 'card reports an error' detach
	eio off
	mount_volume
	[ "$(cat "$MNT/file")" = precious ]
	detach_whole ext4
	on_bare '[ "$(cat "$MNT/file")" = precious ]'
	loop_down "$CARD"
	card_make ext4 100 150
	SUM=$(image_sum)
	eio write 0 1000
	run -1 --separate-stderr with_shim cow prepare "$CARD"
	[[ $stderr == *"$CARD cannot be written: Input/output error"* ]]
	unchanged
}
