#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A commit that fits neither into the log nor into free blocks, and what the message names: each way leads out of it.
# seconds: 100

load lib

ATTACH=() HOLD=''

# No commit begins by itself, however much is dirty.
held_back() { # COMMAND...
	cow discard
	"$@"
	sync -f "$MNT"
	cow discard --cancel
}

rewrite() { # MIB
	dd if=/dev/urandom of="$MNT/big" bs=1M count="$1" conv=notrunc status=none
}

# A volume with hardly a free block, or one of which nothing is known, and more rewritten in place than the ring of 8 MiB holds.
# SUM: its tree. OLD: that of the newest commit.
stuck_volume() { # FS FS_MIB CARD_MIB FILE_MIB REWRITTEN_MIB [MKFS_OPTION]...
	volume_mounted "$1" "$2" "$3" "${@:6}" -- --log-size 8M --erase-block 1M -- ${HOLD:+--hold previous}
	random_file "$MNT/big" "$4"
	echo old >"$MNT/small"
	cow commit "${HOLD:---checkpoint}" || { umount_volume; cow commit --checkpoint; mount_volume; } # vfat
	OLD=$(tree_sum "$MNT")
	held_back rewrite "$5"
	echo new >"$MNT/small"
	sync -f "$MNT"
	SUM=$(tree_sum "$MNT")
}

ext4_stuck() { stuck_volume ext4 60 100 44 40 -b 4096 -J size=4; }
btrfs_stuck() { stuck_volume btrfs 300 340 25 25 --csum xxhash; } # of which cowfs knows no free blocks
vfat_stuck() { stuck_volume vfat 64 100 40 25; }

card_is() { # FS SUM
	whole_with "$1" "$2"
}

new_card() { # MIB
	truncate -s "$1M" "$T/new.img"
	loop_up "$T/new.img"
	NEW=$LOOP
}

# All is there, and can be committed.
clone_is_whole() { # FS
	local CARD=$NEW
	attach_has "$SUM" --name new
	touch "$MNT/more"
	umount_volume
	cow commit new
	cow detach new
	fsck "$1"
	NAME=vol
}

says_ways() {
	local held ways='Commit less: cowctl commit PATH, or delete changed files, then commit\. Or save all of it: cowctl clone vol DEVICE, or a copy from cowctl view --now vol DIR$'
	ext4_stuck
	held=$(status_of .held.generation)
	fails 1 "the log is too small for this commit: [0-9.]+ MiB needed, [0-9.]+ MiB available .*; everything stays in RAM\\. $ways" commit
	fails 1 "$ways" commit --dry-run
	run -1 cow commit --json
	jq -e '.code == "EFBIG" and .report.log_need_blocks > .report.log_room_blocks' <<<"$output"
	[[ $(status_of .alarm) == "commit failed: the log is too small for this commit"*"view --now vol DIR"* ]]
	[ "$(tree_sum "$MNT") $(status_of .held.generation)" = "$SUM $held" ]
	umount_volume
	fails 1 "$ways" detach
	# the card has the newest commit
	power_cut
	[ -z "$HOLD" ] || { cow accept "$CARD"; cow release "$CARD"; }
	card_is ext4 "$OLD"
}

@test "too large: the message says what is missing, and what to do" { says_ways; }
@test "too large: it says so beside a generation that is held, which stays" { HOLD=--hold && says_ways; }

@test "too large: files are committed one after another until the rest fits" {
	local i
	volume_mounted ext4 60 100 -b 4096 -J size=4 -- --log-size 8M --erase-block 1M
	for i in {1..13}; do
		random_file "$MNT/$i" 3
	done
	cow commit --checkpoint
	rewrite_all() {
		for i in {1..13}; do
			dd if=/dev/urandom of="$MNT/$i" bs=1M count=3 conv=notrunc status=none
		done
	}
	held_back rewrite_all
	SUM=$(tree_sum "$MNT")
	fails 1 'cowctl commit PATH' commit
	wait_for 30 jq -e .pressure.gave_up "$COWFS_RUNDIR/vol/status.json"
	for i in {1..10}; do
		cow commit "$MNT/$i"
	done
	cow commit
	[ "$(status_of .pressure.gave_up)" = false ] # writers wait again when RAM is full
	power_cut
	cow release "$CARD"
	card_is ext4 "$SUM"
}

@test "too large: a large file is deleted, and the rest is kept" {
	local sum
	ext4_stuck
	rm "$MNT/big"
	sum=$(tree_sum "$MNT")
	cow commit
	power_cut
	cow release "$CARD"
	card_is ext4 "$sum"
}

cloned() { # FS NEW_MIB
	new_card "$2"
	cow clone vol "$NEW" --yes
	detach --discard
	card_is "$1" "$OLD"
	clone_is_whole "$1"
}

@test "too large: all of it is cloned, ext4" { ext4_stuck && cloned ext4 150; }

# Nothing is known of its free blocks, so nothing but saving helps.
@test "too large: all of it is cloned, btrfs" {
	btrfs_stuck
	fails 1 'stays in RAM\. Save all of it: cowctl clone vol' commit
	cloned btrfs 400
}

@test "too large: all of it is cloned, vfat" {
	modprobe -q vfat || true
	grep -qw vfat /proc/filesystems || skip "no vfat in this kernel"
	vfat_stuck
	umount_volume
	fails 1 'stays in RAM\. Save all of it: cowctl clone vol' commit
	cloned vfat 150
}

@test "too large: all of it is copied from a view" {
	mkdir "$T/view" "$T/copy"
	ext4_stuck
	cow view --now vol "$T/view"
	cp -a "$T/view/." "$T/copy"
	umount "$T/view"
	[ "$(tree_sum "$T/copy")" = "$SUM" ]
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

# All that was accepted: a part of the file, and what write_until_error wrote.
written_is_in() { # DIRECTORY
	local at sum
	cmp -n $((60 << 20)) "$T/big" "$1/big"
	while read -r at sum; do
		[ "$(dd if="$1/big" bs=1M skip="$at" count=1 status=none | sha256sum | cut -d' ' -f1)" = "$sum" ]
	done <"$T/written"
}

# More than the log holds is dirty, and RAM is full: what a program writes after that fails. Then COMMAND, and all that was accepted
# is seen in a view, and saved on another card.
clone_when_full() { # MOUNT_OPTIONS COMMAND...
	local at less='(Commit less.*)?' # it merges the layers of two commits that failed, which frees what both have
	[ -z "${ATTACH[*]}" ] || less=''
	volume_attached ext4 160 220 -b 4096 -J size=4 -- --log-size 8M --erase-block 1M -- --ram 64M "${ATTACH[@]}"
	mount_volume -o "noatime,$1"
	shift
	for at in {1..14}; do
		dd if=/dev/urandom bs=1M count=10 status=none >>"$MNT/big"
		cow commit --checkpoint
	done
	held_back rewrite 40
	cp "$MNT/big" "$T/big"
	fails 1 'the log is too small for this commit' commit
	[ -n "${ATTACH[*]}" ] || wait_for 30 jq -e .pressure.gave_up "$COWFS_RUNDIR/vol/status.json"
	write_until_error "$MNT/big" 60 >"$T/written" 2>"$T/error"
	grep -q 'Errno' "$T/error"
	[ "$(status_of .pressure.level)" = full ]
	[[ "$(status_of .alarm)" == *"cowctl clone vol DEVICE"* ]]
	[ -n "${ATTACH[*]}" ] || [ "$(wc -l <"$T/written")" -gt 4 ]
	"$@" || :
	# reads go on, of what is in RAM and of what is on the card
	cmp -n $((60 << 20)) "$T/big" "$MNT/big"
	fails 1 "stays in RAM\\. $less[Ss]ave all of it: cowctl clone vol DEVICE" commit
	mkdir "$T/view"
	cow view --now vol "$T/view"
	written_is_in "$T/view"
	umount "$T/view"
	new_card 260
	cow clone vol "$NEW" --yes
	detach --discard
	CARD=$NEW
	fsck ext4
	mount -o ro "$CARD" "$MNT"
	written_is_in "$MNT"
}

@test "too large: writers went on until RAM was full; all that was accepted is cloned" { clone_when_full errors=continue true; }

# Its metadata: jbd2 ends checkpoints for good after that, so a freeze fails.
flush_device() { blockdev --flushbufs "$DEV"; }

# Where writes fail before that.
@test "too large: the same with pressure=fail" {
	ATTACH=(--pressure fail)
	clone_when_full errors=continue true
}

@test "too large: RAM was full when the file system wrote its metadata home" { clone_when_full errors=continue flush_device; }

# Or at another time: it has made itself read-only.
write_journal() {
	touch "$MNT/new"
	sync -f "$MNT"
}

@test "too large: RAM was full when the file system wrote its journal" { clone_when_full errors=remount-ro write_journal; }
