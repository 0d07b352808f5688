#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# File systems that keep a part of their state on another device: a commit of one device cannot keep them.
# turn: 3
load lib

# Another device of so many MiB: sets LOOP.
other() { # MIB
	local n=$T/other$RANDOM.img
	truncate -s "$1M" "$n"
	loop_up "$n"
}

@test "elsewhere: btrfs on several devices is refused at prepare and attach" {
	local second
	card_make none 0 400
	other 300
	second=$LOOP
	for profile in raid0 raid1 single; do
		mkfs.btrfs -q -f -b 300M -d "$profile" -m raid1 "$CARD" "$second"
		btrfs device scan --forget
		SUM=$(image_sum)
		fails 1 'btrfs has several devices' prepare "$CARD"
		[ "$(image_sum)" = "$SUM" ]
	done
}

@test "elsewhere: a device that is added to a btrfs later: no commit until it is removed" {
	local second before
	volume_mounted btrfs 300 400
	commit_word one
	other 300
	second=$LOOP
	btrfs device add -f "$second" "$MNT"
	echo two >"$MNT/two"
	before=$(card_written)
	fails 1 'btrfs has several devices.*btrfs device remove' commit
	[ "$(card_written)" -eq "$before" ]
	# what the message says helps
	btrfs device remove "$second" "$MNT"
	cow commit
	detach_whole btrfs
	mount -o ro "$CARD" "$MNT"
	[ "$(cat "$MNT/one" "$MNT/two")" = $'one\ntwo' ]
}

@test "elsewhere: a device added to a btrfs without cowfs: attach refuses it" {
	local second
	volume_mounted btrfs 300 400
	echo one >"$MNT/one"
	detach
	other 300
	second=$LOOP
	mount "$CARD" "$MNT"
	btrfs device add -f "$second" "$MNT"
	umount "$MNT"
	blockdev --flushbufs "$CARD"
	SUM=$(image_sum)
	fails 1 'btrfs has several devices' attach "$CARD"
	[ "$(image_sum)" = "$SUM" ]
	btrfs device scan --forget
}

# A view takes the next free number. Each that was one of several devices is remembered with them.
@test "elsewhere: a view of btrfs on the number of a device that was one of another btrfs" {
	local i devices=()
	volume_mounted btrfs 300 400
	for i in {1..9}; do
		echo "$i" >"$MNT/one" # newer than the other one
		sync -f "$MNT"
	done
	for i in {1..12}; do
		other 300
		devices+=("$LOOP")
	done
	mkfs.btrfs -q -f -d raid1 -m raid1 "${devices[@]}"
	for i in "${devices[@]}"; do
		loop_down "$i"
	done
	for i in {1..8}; do # other tests have numbers as well
		mkdir "$T/view$i"
		cow view --now vol "$T/view$i"
		[ "$(cat "$T/view$i/one")" = 9 ]
		[[ " ${devices[*]} " != *" $(findmnt -no SOURCE "$T/view$i") "* ]] || break
	done
	umount "$T"/view*
	btrfs device scan --forget
	detach_whole btrfs
}

@test "elsewhere: xfs with an external log or a realtime section is refused" {
	card_make none 0 500
	other 100
	mkfs.xfs -q -f -d size=300m -l "logdev=$LOOP" "$CARD"
	SUM=$(image_sum)
	fails 1 'log of its XFS is on another device' prepare "$CARD"
	[ "$(image_sum)" = "$SUM" ]
	mkfs.xfs -q -f -d size=300m -r "rtdev=$LOOP" -m reflink=0 "$CARD"
	SUM=$(image_sum)
	fails 1 'realtime section' prepare "$CARD"
	[ "$(image_sum)" = "$SUM" ]
}

@test "elsewhere: f2fs on several devices is refused" {
	card_make none 0 300
	other 100
	mkfs.f2fs -q -f -c "$LOOP" "$CARD" $((200 * 2048)) || mkfs.f2fs -f -c "$LOOP" "$CARD"
	SUM=$(image_sum)
	fails 1 'several devices' prepare "$CARD"
	[ "$(image_sum)" = "$SUM" ]
}
