#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031,SC2154 # each test is a subshell; run sets status, output and stderr
# cowctl card: what a device is, and whether the commands that it prints do what they say.
# bats file_tags=commands

load lib

# Types the commands of "next:" one after another, with the programs of this build. stdout of the last one: $output
type_commands() {
	local line commands
	commands=$(cow card "$1" --json | jq -r '.commands[].command')
	[ -n "$commands" ] || return
	mkdir -p "$T/bin"
	ln -sf "$COWFS_BUILD/cowctl" "$T/bin/cowctl"
	while IFS= read -r line; do
		echo "$line"
		run -0 --separate-stderr env PATH="$T/bin:$PATH" timeout "$COW_LIMIT" sh -c "$line" || return
	done <<<"$commands"
}

# As `attach`, for a device that another command printed.
attached() {
	DEV=$output
	[ -b "$DEV" ]
	NAME=$(cow status --json | jq -r .name)
	echo "$DEV $(loop_backing "$DEV")" >>"$T/volumes"
}

@test "card: room behind the file system; the commands typed; then its log and its life" {
	local before name
	card_make ext4 100 150
	before=$(card_written)
	run -0 cow card "$CARD"
	[[ $output == "$CARD: disk of 150.0 MiB"*"erase block "*"(assumed)"*"health "*"unknown: "*"file system  ext4 of 100.0 MiB"*"log "*"none"*"room  "* ]]
	[[ $output == *"next:"*"cowctl format $CARD"*"cowctl attach $CARD"* ]]
	run -0 cow card --json "$CARD"
	jq -e --arg d "$CARD" '.ok and .schema == 1 and .device == $d and .kind == "disk" and .fs_type == "ext4" and .fs_bytes == 104857600 and
		.bytes == 157286400 and .log == false and .log_room_bytes == 33554432 and (has("refused") | not) and
		[.commands[].command] == ["cowctl format \($d)", "cowctl attach \($d)"]' <<<"$output"
	[ "$(card_written)" = "$before" ]
	[ "$(blockdev --getro "$CARD")" = 0 ]
	type_commands "$CARD"
	attached
	mount_volume
	echo 1 >"$MNT/a"
	cow commit
	# the mount point and the volume stand for the device
	for name in "$MNT" "$NAME" "$DEV" "$CARD"; do
		run -0 cow card "$name"
		[[ $output == "$CARD: "*"mounted on $MNT"*"protected    as volume $NAME"*"life so far  1 commit since "*"cowctl status $NAME"* ]]
	done
	detach
	before=$(image_sum)
	run -0 cow card "$CARD"
	[[ $output == *"life so far  "[12]" commit"*"cowctl attach $CARD"* && $output != *"cowctl format"* ]]
	[ "$(image_sum)" = "$before" ]
	type_commands "$CARD"
	attached
	detach
}

@test "card: no room: --shrink for ext, another device for others; a mounted one is unmounted first" {
	card_make ext4 150 150
	mount "$CARD" "$MNT"
	run -0 cow card "$MNT"
	[[ $output == *"mounted on $MNT"*"room         none behind the file system"*"next:"*"umount $MNT"*"cowctl format --shrink $CARD"* ]]
	[ "$(blockdev --getro "$CARD")" = 0 ]
	echo 1 >"$MNT/a"
	type_commands "$CARD"
	attached
	mount_volume -o ro
	[ "$(cat "$MNT/a")" = 1 ]
	detach
	IMG=''
	card_make xfs 400 400
	run -0 cow card "$CARD"
	[[ $output == *"NOT NOW"*"no space for the log"*"--log OTHER_DEVICE"* ]]
}

@test "card: an image file" {
	card_make ext4 100 150
	loop_down "$CARD"
	CARD=''
	run -0 cow card "$IMG"
	[[ $output == "$IMG: file of 150.0 MiB"*"cowctl format $IMG"*'cowctl attach "$(losetup -f --show '"$IMG"')"'* ]]
	type_commands "$IMG"
	attached
	detach
	run -0 cow card "$IMG"
	[[ $output == *"life so far  no commit yet"* ]]
}

@test "card: what refuses: LVM, LUKS, swap, nothing, a disk with partitions" {
	local n
	card_make none 0 100
	run -0 cow card "$CARD"
	[[ $output == *"NOT NOW"*"no known file system. Make one of at most "* && $output != *next:* ]]
	mkswap -q "$CARD"
	run -0 cow card --json "$CARD"
	jq -e '.refused | test("holds a swap area")' <<<"$output"
	dd if=/dev/zero of="$CARD" bs=1M count=1 status=none
	python3 - "$IMG" <<-'END'
		import sys
		with open(sys.argv[1], "r+b") as f:
		    f.write(b"LUKS\xba\xbe\0\1aes\0")
	END
	blockdev --flushbufs "$CARD"
	run -0 cow card "$CARD"
	[[ $output == *"NOT NOW"*"LUKS"* && $output != *next:* ]]
	loop_down "$CARD"
	truncate -s 0 "$IMG"
	truncate -s 100M "$IMG"
	printf 'label: dos\n2048,40960,L\n43008,40960,L\n' | sfdisk -q "$IMG"
	loop_up "$IMG" -P
	CARD=$LOOP
	# a kernel may know no partition tables
	for n in 1 2; do
		[ -e "/sys/class/block/${CARD#/dev/}p$n" ] || addpart "$CARD" $n $((2048 + (n - 1) * 40960)) 40960
		wait_for 5 [ -b "${CARD}p$n" ]
	done
	mke2fs -q -t ext4 "${CARD}p2"
	run -0 cow card "$CARD"
	[[ $output == *"partitions   ${CARD}p1  20.0 MiB"*"${CARD}p2  20.0 MiB  ext4"*"NOT NOW      a whole disk with partitions"*"cowctl card ${CARD}p1"* ]]
	run -0 cow card "${CARD}p2"
	[[ $output == "${CARD}p2: partition of 20.0 MiB, number 2 of $CARD"*"file system  ext4"* ]]
	fails 1 'No such file' card /dev/nosuch
	fails 4 'nosuch: neither' card nosuch
	fails 1 'no device is mounted there' card "$T" --json
	fails 1 'neither a block device' card /dev/null
	fails 2 'usage:' card
}

@test "card: commands for a mount point with the name of a crafted label" {
	local dir=$T/"x; touch pwned 'y\$(z)"
	card_make ext4 100 150
	mkdir "$dir"
	mount "$CARD" "$dir"
	cow card "$CARD"
	cd "$T"
	type_commands "$CARD"
	attached
	[ ! -e "$T/pwned" ]
	detach
}
