#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl prepare, help and version: what is written, what is refused, and that a refusal changes nothing.

load lib

# The file system's own bytes.
fs_sum() {
	head -c "$1" "$IMG" | sha256sum
}

@test "version and help of the programs and of each command" {
	local c
	run -0 cow --version
	[[ $output =~ ^cowfs\ [0-9]+\.[0-9]+ ]]
	run -0 cow --version --json
	jq -e '.ok and (.version | length > 0) and .protocol == 1 and .log_format == 1' <<<"$output"
	run -0 cow --help
	[[ $output == *"Exit codes: 0 ok, 1 failed, 2 usage, 3 degraded, 4 not running, 5 the card is away."* ]]
	for c in prepare attach detach status commit discard check release; do
		run -0 --separate-stderr cow "$c" --help
		[[ $output == "usage: cowctl $c"* ]]
		[ -z "$stderr" ]
		[[ $output == *--json* ]]
	done
	run -0 "$COWFS_BUILD/cowfs" --help
	[[ $output == "usage: cowfs"* ]]
	run -0 "$COWFS_BUILD/cowfs" --version
}

@test "the former names of prepare and release work, and say the new one, once" {
	card_make ext4 100 150
	run -0 --separate-stderr cow format --json "$CARD"
	[ "$stderr" = "cowctl: format is called prepare now" ]
	jq -e '.ok and .log_bytes > 0' <<<"$output"
	run -0 --separate-stderr cow recover "$CARD"
	[ "$stderr" = "cowctl: recover is called release now" ]
	[ "$output" = "$CARD: nothing to do, the log is empty; nothing was written" ]
	fails 2 'usage: cowctl prepare' format
	run -0 --separate-stderr cow prepare --force "$CARD"
	[ -z "$stderr" ]
}

@test "help: no former names, nothing that only units call, and when undo, revert and discard act" {
	run -0 cow --help
	run ! grep -E '^  (format|recover|boot|shutdown) ' <<<"$output"
	run -0 cow --help
	grep -E '^  undo .* at the next attach, the root at the next boot$' <<<"$output"
	grep -E '^  revert .* at once$' <<<"$output"
	grep -E '^  discard .* at the next detach or shutdown$' <<<"$output"
	for c in boot shutdown; do
		run -0 cow "$c" --help
		[[ $output == "usage: cowctl $c "* ]]
	done
}

@test "wrong usage: exit code 2 and the reason" {
	fails 2 'unknown command frobnicate' frobnicate
	fails 2 "unknown command x \(try 'cowctl --help'\)" x
	fails 2 '^cowctl: unknown command save: is cowctl commit meant\?' save
	fails 2 'unknown command help: is cowctl --help meant' help
	fails 2 'unknown command rollback: is cowctl undo meant' rollback
	fails 2 'unknown command sync: is cowctl commit meant' sync
	fails 2 'unknown command umount: is cowctl detach meant' umount
	fails 2 'unknown command snapshot: is cowctl view --now meant' snapshot
	fails 2 'unknown command log: is cowctl generations meant' log
	fails 2 'unknown command statsu' statsu --json
	fails 2 'frobnicate' status --frobnicate
	fails 2 'usage: cowctl prepare' prepare
	fails 2 'usage: cowctl check' check one two
	fails 2 'name' attach /dev/null --name
	fails 2 'dry-run' commit --dry-run=yes
	fails 2 'unknown command extra' --version extra
	fails 2 'unknown option --commits' detach --commits
	run -2 "$COWFS_BUILD/cowfs"
	run -2 "$COWFS_BUILD/cowfs" --ready-fd 99 /dev/null
	run -2 "$COWFS_BUILD/cowfs" --erase-block lots /dev/null
}

@test "prepare: a log behind the file system, which is not touched" {
	local before
	card_make ext4 100 150
	before=$(fs_sum 100M)
	run -0 cow prepare --json "$CARD"
	jq -e --arg d "$CARD" '.ok and .device == $d and .fs_type == "ext4" and
		.volume_bytes == 104857600 and .log_bytes == 33554432 and .log_offset_bytes >= 104861696 and
		.segment_bytes > 0 and .erase_block_bytes > 0' <<<"$output"
	[ "$(fs_sum 100M)" = "$before" ]
	[ "$(logedit copies)" = "104857600 $((150 * 1024 * 1024 - 4096))" ]
	run -0 cow check "$CARD"
	[[ $output == *"empty: no commit yet"* ]]
}

@test "prepare: writes two blocks, three to try the card, and these as they were" {
	local before
	card_make ext4 100 150
	before=$(card_written)
	cow prepare "$CARD"
	[ $(($(card_written) - before)) -eq 32768 ]
}

@test "prepare: an image file, other log and erase block sizes, options behind the operand" {
	card_make ext4 100 150
	loop_down "$CARD"
	run -0 cow prepare "$IMG" --log-size 16M --erase-block 1M --json
	jq -e '.log_bytes == 16777216 and .erase_block_bytes == 1048576' <<<"$output"
	run -0 cow check "$IMG" --json
	jq -e '.verdict == "good" and .log_bytes == 16777216' <<<"$output"
}

@test "prepare: xfs, btrfs, nilfs2 and vfat" {
	local fs
	for fs in "xfs 310 360" "btrfs 120 170" "nilfs2 64 128" "vfat 60 110"; do
		card_make $fs
		run -0 cow prepare "$CARD"
		[[ $output == *"${fs%% *} of"* ]]
		[[ $output != *"committed only"* || $fs == vfat* ]]
		loop_down "$CARD"
	done
	[[ $output == *"this vfat is committed only while it is not mounted, or read-only"* ]]
	IMG=''
	card_make ext4 60 110
	run -0 cow prepare "$CARD"
	[[ $output != *"committed only"* ]]
	loop_down "$CARD"
	IMG=''
	card_make ext2 60 110
	run -0 cow prepare "$CARD"
	[[ $output == *"this ext2 is committed only while it is not mounted, or read-only. With a journal"*"tune2fs -j"* ]]
}

@test "prepare: sizes that are none" {
	local before
	card_make ext4 100 150
	before=$(image_sum)
	fails 2 'log-size nonsense' prepare "$CARD" --log-size nonsense
	fails 2 'log-size 0 ' prepare "$CARD" --log-size 0
	fails 2 'log-size -4M ' prepare "$CARD" --log-size -4M
	fails 2 'log-size 16777216T' prepare "$CARD" --log-size 16777216T
	fails 2 'erase-block' prepare "$CARD" --erase-block 1000
	fails 2 'erase-block' prepare "$CARD" --erase-block 2G
	fails 2 'too small' prepare "$CARD" --log-size 64K
	fails 2 'too small' prepare "$CARD" --log-size 64K --json
	[ "$(image_sum)" = "$before" ]
}

@test "prepare: no space, with numbers and the command that makes space" {
	local before
	card_make ext4 100 100
	before=$(image_sum)
	fails 1 "100.0 MiB of 100.0 MiB, .* are missing.*resize2fs $CARD [0-9]+M" prepare "$CARD"
	fails 1 'missing' prepare --json "$CARD"
	fails 1 'too small \(.*\) for a log of this size' prepare --log-size 500M "$CARD"
	[ "$(image_sum)" = "$before" ]
	# what the message says is true
	e2fsck -fy "$CARD" >/dev/null
	resize2fs "$CARD" "$(cow prepare "$CARD" 2>&1 | grep -Eo '[0-9]+M$')"
	cow prepare "$CARD"
	loop_down "$CARD"
	card_make xfs 300 300
	fails 1 'Make a new one of at most [0-9]+ MiB' prepare "$CARD"
}

@test "prepare: no file system, an unknown one" {
	local before
	card_make none 0 100
	fails 1 'no known file system' prepare "$CARD"
	dd if=/dev/urandom of="$IMG" bs=1M count=4 conv=notrunc status=none
	before=$(image_sum)
	fails 1 'no known file system' prepare "$CARD"
	[ "$(image_sum)" = "$before" ]
	truncate -s 2K "$T/few"
	truncate -s 8K "$T/small"
	fails 1 'few: too small to be the image of a card$' prepare "$T/few"
	fails 1 'small: no known file system, and 8.0 KiB are too small for a log$' prepare "$T/small"
}

# A file of $2 MiB (default 100) that holds $1: made by its own program, or the bytes that libblkid looks for.
holds() {
	loop_clear
	IMG=$T/other.img
	rm -f "$IMG"
	truncate -s "${2:-100}M" "$IMG"
	case $1 in
	swap) mkswap -q "$IMG" 2>/dev/null ;;
	gpt | dos) printf 'label: %s\n,20M\n,20M\n,\n' "$1" | sfdisk -q "$IMG" ;;
	empty) echo 'label: dos' | sfdisk -q "$IMG" ;;
	ext4) mke2fs -q -F -t ext4 "$IMG" ;;
	*) plant "$1" "$IMG" ;;
	esac
	loop_up "$IMG"
	OTHER=$LOOP IMG=''
}

loop_clear() {
	[ -z "${OTHER-}" ] || loop_down "$OTHER"
	OTHER=''
}

@test "prepare --log: what the device holds is named and not overwritten" {
	local before base what
	card_make ext4 60 60
	base=$CARD
	while read -r what want; do
		holds "$what"
		before=$(image_sum "$T/other.img")
		fails 1 "^cowctl: $OTHER: holds $want, which the log would overwrite: --force" prepare "$base" --log "$OTHER"
		fails 1 "^$OTHER: holds $want" prepare "$base" --log "$OTHER" --json
		[ "$(image_sum "$T/other.img")" = "$before" ]
	done <<-END
		swap a swap area
		gpt a GPT partition table with 3 partitions
		dos a DOS partition table with 3 partitions
		empty a DOS partition table with 0 partitions
		luks a LUKS device
		lvm an LVM physical volume
		raid a member of a RAID array
		raid-end a member of a RAID array
		iso a file system \(iso9660\)
		ext4 a file system \(ext4\)
	END
	# two at once: both are named
	holds swap
	plant luks "$T/other.img"
	blockdev --flushbufs "$OTHER"
	fails 1 'holds .*(swap area and a LUKS|LUKS device and a swap).*, which' prepare "$base" --log "$OTHER"
	cow prepare "$base" --log "$OTHER" --force
	# a log of cowfs is none of these, and nothing is nothing
	fails 1 'already has a cowfs log' prepare "$base" --log "$OTHER"
	holds nothing
	cow prepare "$base" --log "$OTHER"
}

@test "prepare DEVICE: no file system, but something else" {
	local before what want
	while read -r what want; do
		holds "$what"
		before=$(image_sum "$T/other.img")
		for force in '' --force --shrink; do
			fails 1 "^cowctl: $OTHER: holds $want" prepare "$OTHER" $force
			run ! grep -q 'Make one of at most' <<<"$stderr"
		done
		[ "$(image_sum "$T/other.img")" = "$before" ]
	done <<-END
		swap a swap area, and not a file system that cowfs protects$
		gpt a GPT partition table with 3 partitions, and not .*: name a partition instead
		dos a DOS partition table with 3 partitions, and not .*: name a partition instead
		luks a LUKS device, and not .*: open it
		lvm an LVM physical volume, and not .*: name a logical volume
		raid a member of a RAID array, and not .*: name the array
		iso a file system \(iso9660\), and not
	END
}

@test "prepare DEVICE: a file system and something else" {
	local before what
	for what in luks lvm raid-end; do
		IMG=''
		card_make ext4 140 150
		plant "$what" "$IMG"
		blockdev --flushbufs "$CARD"
		before=$(image_sum)
		fails 1 "$CARD: holds .* and a file system \\(ext4\\).*--force takes" prepare "$CARD" --log-size 4M
		fails 1 "$CARD: holds .* and a file system \\(ext4\\)" prepare "$CARD" --shrink
		# nor does a boot make room there
		printf '[root]\nenabled = yes\nprepare = shrink\n' >"$T/conf"
		run -3 cow boot --device "$CARD" --cmdline '' --conf "$T/conf"
		[[ $output == *"holds "*" and a file system (ext4)"* ]]
		blockdev --setrw "$CARD"
		[ "$(image_sum)" = "$before" ]
		cow prepare "$CARD" --force --log-size 4M --erase-block 256K
		fsck ext4
		loop_down "$CARD"
	done
}

@test "prepare DEVICE: what is no second thing" {
	# boot code in front of a file system
	card_make ext4 100 150
	plant boot-code "$IMG"
	blockdev --flushbufs "$CARD"
	cow prepare "$CARD"
	loop_down "$CARD"
	# the content of a file (here: a free block) that looks like the end of an array
	card_make ext4 150 150
	plant raid-end "$IMG"
	blockdev --flushbufs "$CARD"
	[[ $(wipefs -n "$CARD") == *linux_raid_member* ]]
	cow prepare --shrink "$CARD"
	loop_down "$CARD"
	# the old partition table of a disk that has a file system of its own now: its end is left
	IMG=$T/whole.img
	truncate -s 150M "$IMG"
	printf 'label: gpt\n,100M\n' | sfdisk -q "$IMG"
	mkfs.vfat "$IMG" 60000 >/dev/null
	loop_up "$IMG"
	cow prepare "$LOOP"
}

@test "prepare: a label that a terminal would obey" {
	card_make ext4 100 150 -L $'a\e[31mb\nc'
	cow prepare "$CARD" >"$T/out" 2>&1
	cow check "$CARD" >>"$T/out" 2>&1
	fails 1 'already has a cowfs log' prepare "$CARD"
	run ! grep -q $'\e' "$T/out"
}

@test "prepare: a mounted device, one that is used, one that is attached" {
	card_make ext4 100 150
	mount "$CARD" "$MNT"
	fails 1 "$CARD is mounted on $MNT" prepare "$CARD"
	umount "$MNT"
	cow prepare "$CARD"
	attach
	fails 1 "$CARD is attached as volume vol" prepare --force "$CARD"
}

@test "prepare: a log that is there already" {
	local before
	card_prepared ext4 100 150
	before=$(image_sum)
	fails 1 'already has a cowfs log.*--force' prepare "$CARD"
	[ "$(image_sum)" = "$before" ]
	cow prepare --force "$CARD"
	attach_mounted
	echo precious >"$MNT/file"
	cow commit
	power_cut
	# the log holds the only copy of something: no force is enough
	before=$(image_sum)
	fails 1 "not checkpointed: run 'cowctl release $CARD'" prepare --force "$CARD"
	[ "$(image_sum)" = "$before" ]
	cow release "$CARD"
	cow prepare --force "$CARD"
	cow check "$CARD"
	fsck ext4
	mount -o ro "$CARD" "$MNT"
	[ "$(cat "$MNT/file")" = precious ]
}

@test "prepare: external journal and multi-mount protection are refused" {
	local before journal
	IMG=$T/journal.img
	truncate -s 20M "$IMG"
	mke2fs -q -F -O journal_dev -b 4096 "$IMG"
	loop_up "$IMG"
	journal=$LOOP
	IMG=''
	card_make ext4 100 150 -b 4096 -J "device=$journal"
	before=$(image_sum)
	fails 1 'journal .* is on another device' prepare "$CARD"
	[ "$(image_sum)" = "$before" ]
	loop_down "$CARD"
	card_make ext4 100 150 -O mmp
	before=$(image_sum)
	fails 1 'multiple-mount protection.*tune2fs -O \^mmp' prepare "$CARD"
	[ "$(image_sum)" = "$before" ]
	# a journal device itself
	fails 1 'no known file system|journal' prepare "$journal"
}

@test "prepare: not a block device" {
	fails 1 'neither a block device nor an image file' prepare /dev/null
	fails 1 'neither a block device nor an image file' prepare "$T"
	fails 1 'No such file' prepare "$T/missing"
	fails 1 'No such file' prepare --json "$T/missing"
}

@test "prepare: inline_data is warned of" {
	# never mounted here: some kernels deadlock
	card_make ext4 100 150 -O inline_data
	answer=$(cow prepare --json "$CARD")
	jq -e .inline_data <<<"$answer"
	run -0 cow prepare --force "$CARD"
	[[ $output == *"warning: the ext4 has the feature inline_data"*"-O ^inline_data"* ]]
	card_make ext4 100 150
	run -0 cow prepare "$CARD"
	[[ $output != *inline_data* ]]
}
