#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031 # each test is a subshell, as it should be
# cowctl format, help and version: what is written, what is refused, and that a refusal changes nothing.
# bats file_tags=commands

load lib

# The file system's own bytes.
fs_sum() {
	head -c "$1" "$IMG" | sha256sum
}

@test "version and help of the programs and of each command" {
	local c
	run -0 cow version
	[[ $output =~ ^cowfs\ [0-9]+\.[0-9]+ ]]
	run -0 cow --version
	run -0 cow version --json
	jq -e '.ok and (.version | length > 0) and .protocol == 1 and .log_format == 1' <<<"$output"
	run -0 cow --help
	[[ $output == *"Exit codes: 0 ok, 1 failed, 2 usage, 3 degraded, 4 not running."* ]]
	for c in format attach detach status commit discard check recover help version; do
		run -0 --separate-stderr cow "$c" --help
		[[ $output == "usage: cowctl $c"* ]]
		# shellcheck disable=SC2154
		[ -z "$stderr" ]
		[ "$output" = "$(cow help "$c")" ]
		[ "$c" = version ] || [[ $output == *--json* ]]
	done
	run -0 "$COWFS_BUILD/cowfs" --help
	[[ $output == "usage: cowfs"* ]]
	run -0 "$COWFS_BUILD/cowfs" --version
}

@test "wrong usage: exit code 2 and what is wrong" {
	run -2 cow
	fails 2 'unknown command frobnicate' frobnicate
	fails 2 'unknown command frobnicate' help frobnicate
	fails 2 'frobnicate' status --frobnicate
	fails 2 'usage: cowctl format' format
	fails 2 'usage: cowctl check' check one two
	fails 2 'name' attach /dev/null --name
	fails 2 'dry-run' commit --dry-run=yes
	fails 2 'usage' version extra
	fails 2 'exclude each other' detach --commit --discard
	run -2 "$COWFS_BUILD/cowfs"
	run -2 "$COWFS_BUILD/cowfs" --ready-fd 99 /dev/null
	run -2 "$COWFS_BUILD/cowfs" --read-ahead lots /dev/null
}

@test "format: a log behind the file system, which is not touched" {
	local before
	card_make ext4 100 150
	before=$(fs_sum 100M)
	run -0 cow format --json "$CARD"
	jq -e --arg d "$CARD" '.ok and .device == $d and .fs_type == "ext4" and
		.volume_bytes == 104857600 and .log_bytes == 33554432 and .log_offset_bytes >= 104861696 and
		.segment_bytes > 0 and .erase_block_bytes > 0' <<<"$output"
	[ "$(fs_sum 100M)" = "$before" ]
	[ "$(logedit copies)" = "104857600 $((150 * 1024 * 1024 - 4096))" ]
	run -0 cow check "$CARD"
	[[ $output == *"empty: nothing was ever committed"* ]]
}

@test "format: writes two blocks and nothing else" {
	local before
	card_make ext4 100 150
	before=$(card_written)
	cow format "$CARD"
	[ $(($(card_written) - before)) -eq 8192 ]
}

@test "format: an image file, other log and erase block sizes, options behind the operand" {
	card_make ext4 100 150
	loop_down "$CARD"
	run -0 cow format "$IMG" --log-size 16M --erase-block 1M --json
	jq -e '.log_bytes == 16777216 and .erase_block_bytes == 1048576' <<<"$output"
	run -0 cow check "$IMG" --json
	jq -e '.verdict == "good" and .log_bytes == 16777216' <<<"$output"
}

@test "format: xfs, btrfs and vfat" {
	local fs
	for fs in "xfs 310 360" "btrfs 120 170" "vfat 60 110"; do
		# shellcheck disable=SC2086
		card_make $fs
		run -0 cow format "$CARD"
		[[ $output == *"${fs%% *} of"* ]]
		loop_down "$CARD"
	done
	[[ $output == *"cannot be frozen"* ]]
}

@test "format: sizes that are none" {
	local before
	card_make ext4 100 150
	before=$(image_sum)
	fails 2 'log-size nonsense' format "$CARD" --log-size nonsense
	fails 2 'log-size 0 ' format "$CARD" --log-size 0
	fails 2 'log-size -4M ' format "$CARD" --log-size -4M
	fails 2 'log-size 16777216T' format "$CARD" --log-size 16777216T
	fails 2 'erase-block' format "$CARD" --erase-block 1000
	fails 2 'erase-block' format "$CARD" --erase-block 2G
	fails 2 'too small' format "$CARD" --log-size 64K
	fails 2 'too small' format "$CARD" --log-size 64K --json
	[ "$(image_sum)" = "$before" ]
}

@test "format: no room, with numbers and the command that makes room" {
	local before
	card_make ext4 100 100
	before=$(image_sum)
	fails 1 "100.0 MiB of 100.0 MiB, .* are missing.*resize2fs $CARD [0-9]+M" format "$CARD"
	fails 1 'missing' format --json "$CARD"
	fails 1 'too small for a log of this size' format --log-size 500M "$CARD"
	[ "$(image_sum)" = "$before" ]
	# what the message says is true
	e2fsck -fy "$CARD" >/dev/null
	resize2fs "$CARD" "$(cow format "$CARD" 2>&1 | grep -Eo '[0-9]+M$')"
	cow format "$CARD"
	loop_down "$CARD"
	card_make xfs 300 300
	fails 1 'Make a new one of at most [0-9]+ MiB' format "$CARD"
}

@test "format: no file system, an unknown one" {
	local before
	card_make none 0 100
	fails 1 'no file system that I know' format "$CARD"
	dd if=/dev/urandom of="$IMG" bs=1M count=4 conv=notrunc status=none
	before=$(image_sum)
	fails 1 'no file system that I know' format "$CARD"
	[ "$(image_sum)" = "$before" ]
}

@test "format: a mounted device, one that is used, one that is attached" {
	card_make ext4 100 150
	mount "$CARD" "$MNT"
	fails 1 "$CARD is mounted on $MNT" format "$CARD"
	umount "$MNT"
	cow format "$CARD"
	attach
	fails 1 "$CARD is attached as volume vol" format --force "$CARD"
}

@test "format: a log that is there already" {
	local before
	card_make ext4 100 150
	cow format "$CARD"
	before=$(image_sum)
	fails 1 'has a cowfs log already.*--force' format "$CARD"
	[ "$(image_sum)" = "$before" ]
	cow format --force "$CARD"
	attach
	mount_volume
	echo precious >"$MNT/file"
	cow commit
	power_cut
	# the log holds the only copy of something: no force is enough
	before=$(image_sum)
	fails 1 "not at home yet: run 'cowctl recover $CARD'" format --force "$CARD"
	[ "$(image_sum)" = "$before" ]
	cow recover "$CARD"
	cow format --force "$CARD"
	cow check "$CARD"
	fsck ext4
	mount -o ro "$CARD" "$MNT"
	[ "$(cat "$MNT/file")" = precious ]
}

@test "format: external journal and multi-mount protection are refused" {
	local before journal
	IMG=$T/journal.img
	truncate -s 20M "$IMG"
	mke2fs -q -F -O journal_dev -b 4096 "$IMG"
	loop_up "$IMG"
	journal=$LOOP
	IMG=''
	card_make ext4 100 150 -b 4096 -J "device=$journal"
	before=$(image_sum)
	fails 1 'journal on another device' format "$CARD"
	[ "$(image_sum)" = "$before" ]
	loop_down "$CARD"
	card_make ext4 100 150 -O mmp
	before=$(image_sum)
	fails 1 'multi-mount protection.*tune2fs -O \^mmp' format "$CARD"
	[ "$(image_sum)" = "$before" ]
	# a journal device itself
	fails 1 'no file system|journal' format "$journal"
}

@test "format: not a block device" {
	fails 1 'not a block device' format /dev/null
	fails 1 'not a block device' format "$T"
	fails 1 'No such file' format "$T/missing"
	fails 1 'No such file' format --json "$T/missing"
}
