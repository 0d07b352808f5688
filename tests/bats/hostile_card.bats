#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Cards whose content was made by somebody who knows the format: what a file holds is never taken for a structure of the log.

load lib

setup() {
	cow_setup || return
	export COWFS_DEVDIR=$T/dev
	mkdir "$COWFS_DEVDIR"
	CONF=$T/cowfs.conf
	: >"$CONF"
}

# Block $2 of file $1 on the device, by FIEMAP.
device_block() {
	filefrag -b4096 -v "$1" | awk -v n="$2" -F'[ .:]+' '$2 ~ /^[0-9]+$/ && $3 <= n && n <= $4 { print $5 + n - $3 }'
}

# Where file $1 has device block $2, and $3 blocks in a row from there; nothing if it has not.
file_block() {
	filefrag -b4096 -v "$1" | awk -v b="$2" -v run="$3" -F'[ .:]+' \
		'$2 ~ /^[0-9]+$/ && $5 <= b && b + run - 1 <= $6 { print $3 + b - $5 }'
}

# An ext4 that fills its partition and that cowfs never touched. A user's file has all the room in it, and so one of the blocks
# where the superblock of the log of a shrink may lie; $1: the first of them to try.
victim_card() {
	card_make ext4 100 100 -m 0 -b 4096
	mount "$CARD" "$MNT"
	echo "root:x:0:0:" >"$MNT/passwd"
	chmod 644 "$MNT/passwd"
	install -d -o 65534 -g 65534 "$MNT/user"
	as_nobody dd if=/dev/zero of="$MNT/user/file" bs=1M status=none 2>/dev/null || true # until it is full
	sync -f "$MNT"
	VICTIM=$(device_block "$MNT/passwd" 0)
	[ "$VICTIM" -lt 25599 ]
	PLACE=''
	local i=${1:-0} at
	for ((; i < 14; i++)); do
		at=$(file_block "$MNT/user/file" $((25600 - (1 << i))) 1)
		[ -z "$at" ] || { PLACE=$((25600 - (1 << i))) PLACE_IN_FILE=$at; break; }
	done
	[ -n "$PLACE" ]
	RING=''
	for ((i = 2000; i < 25000; i += 100)); do
		at=$(file_block "$MNT/user/file" $i 96)
		[ -z "$at" ] || ((PLACE >= i && PLACE < i + 96)) || { RING=$i RING_IN_FILE=$at; break; }
	done
	[ -n "$RING" ]
}

# The user writes a superblock of the log and a ring that put his content over passwd; $@: more for forgepending. Then the machine is
# shut down.
forge() {
	truncate -s 100M "$T/forged"
	echo "root::0:0:" | "$COWFS_BUILD/tests/forgepending" "$@" "$T/forged" 104853504 $((PLACE * 4096)) $((RING * 4096)) "$VICTIM"
	chmod 644 "$T/forged"
	as_nobody dd if="$T/forged" of="$MNT/user/file" bs=4096 skip="$PLACE" seek="$PLACE_IN_FILE" count=1 conv=notrunc status=none
	as_nobody dd if="$T/forged" of="$MNT/user/file" bs=4096 skip="$RING" seek="$RING_IN_FILE" count=96 conv=notrunc status=none
	sync -f "$MNT"
	cmp <(dd if="$IMG" bs=4096 skip="$PLACE" count=1 status=none) <(dd if="$T/forged" bs=4096 skip="$PLACE" count=1 status=none)
	cmp <(dd if="$IMG" bs=4096 skip="$RING" count=96 status=none) <(dd if="$T/forged" bs=4096 skip="$RING" count=96 status=none)
}

passwd() {
	mount -o ro "$CARD" "$MNT" || return
	cat "$MNT/passwd"
	umount "$MNT"
}

# No command takes it for a log, none writes, and none is stopped by it.
all_ignore() {
	local sum
	sum=$(image_sum)
	run -1 --separate-stderr cow boot --device "$CARD" --conf "$CONF" --cmdline ro
	[ "$output" = "$CARD" ]
	[ "$(cat "$COWFS_RUNDIR/root.state")" = unconfigured ]
	[ "$(image_sum)" = "$sum" ]
	printf '[root]\nenabled = no\n' >"$T/off.conf"
	run -1 --separate-stderr cow boot --device "$CARD" --conf "$T/off.conf" --cmdline ro
	run -4 --separate-stderr cow boot --device "$CARD" --conf "$CONF" --cmdline cowfs=off
	[ "$(image_sum)" = "$sum" ]
	fails 1 "${1:-no cowfs log}" check "$CARD"
	fails 1 "${1:-no cowfs log}" release "$CARD"
	fails 1 "${1:-no cowfs log}" release --accept base "$CARD"
	fails 1 "${1:-no cowfs log}" attach "$CARD"
	fails 1 "${1:-no cowfs log}" grow "$CARD"
	fails 1 "no space for the log" prepare "$CARD"
	[ "$(image_sum)" = "$sum" ]
	[ "$(passwd)" = "root:x:0:0:" ]
}

@test "hostile: a file of a user has a pending superblock and its ring" {
	victim_card 3
	forge
	umount "$MNT"
	all_ignore
	# and the shrink that it pretends can be had
	cow prepare --shrink --log-size 8M --erase-block 1M "$CARD" || true
	[ "$(passwd)" = "root:x:0:0:" ]
	fsck ext4
}

@test "hostile: such a file was deleted, its blocks are free" {
	victim_card 3
	forge
	as_nobody rm "$MNT/user/file"
	umount "$MNT"
	local sum
	sum=$(image_sum)
	run -1 --separate-stderr cow boot --device "$CARD" --conf "$CONF" --cmdline ro
	fails 1 "no cowfs log" attach "$CARD"
	fails 1 "no cowfs log" release "$CARD"
	[ "$(image_sum)" = "$sum" ]
	cow prepare --shrink --log-size 8M --erase-block 1M "$CARD"
	[ "$(passwd)" = "root:x:0:0:" ]
	attach_mounted
	[ "$(cat "$MNT/passwd")" = "root:x:0:0:" ]
	umount_volume
	detach_whole ext4
}

@test "hostile: it is in the last block, in each state" {
	local state
	for state in PENDING VIRGIN LIVE EXTERNAL; do
		IMG=$T/card-$state.img
		for _ in {1..10}; do # the file's own extents may lie in that block
			victim_card
			[ "$PLACE" != 25599 ] || break
			umount "$MNT"
			loop_down "$CARD"
		done
		[ "$PLACE" = 25599 ]
		forge --state "$state"
		umount "$MNT"
		all_ignore "no cowfs log|has overwritten its log"
		loop_down "$CARD"
	done
}

@test "hostile: a root of a file system that cowfs does not know, and a user's file in its last block" {
	local line sum
	card_make none 0 100
	/sbin/mkfs.minix -3 "$CARD" >/dev/null
	echo "root::0:0:" | "$COWFS_BUILD/tests/forgepending" --state LIVE "$IMG" $((50 << 20)) $((104857600 - 4096)) $((60 << 20)) 1000
	blockdev --flushbufs "$CARD"
	sum=$(image_sum)
	printf '[root]\nenabled = no\n' >"$T/off.conf"
	for line in "$CONF 1 ro unconfigured" "$T/off.conf 1 ro unconfigured" "$CONF 4 cowfs=off bypassed" "$T/off.conf 4 cowfs=off bypassed"; do
		read -r conf code cmdline state <<<"$line"
		run "-$code" --separate-stderr cow boot --device "$CARD" --conf "$conf" --cmdline "$cmdline"
		[ "$output" = "$CARD" ]
		[[ $stderr == *"no known file system: left alone"* ]]
		[ "$(cat "$COWFS_RUNDIR/root.state")" = "$state" ]
		[ "$(image_sum)" = "$sum" ]
	done
	# it does not stop a boot either
	cp "$IMG" "$T/good.img"
	printf x | dd of="$CARD" bs=1 seek=$((104857600 - 100)) conv=notrunc,fsync status=none
	run -1 --separate-stderr cow boot --device "$CARD" --conf "$T/off.conf" --cmdline ro
	[[ $stderr == *"no known file system: left alone"* ]]
	# where nothing is known, a cut may have left garbage of a file system: what waits comes home
	dd if="$T/good.img" of="$CARD" bs=1M conv=fsync status=none
	dd if=/dev/zero of="$CARD" bs=4096 count=1 conv=fsync status=none
	run -1 --separate-stderr cow boot --device "$CARD" --conf "$T/off.conf" --cmdline ro
	[ "$(dd if="$CARD" bs=4096 skip=1000 count=1 status=none | head -n 1)" = "root::0:0:" ]
}

# The worker of the daemon that starts; it has no pid file yet.
daemon_starts() { [ "$(daemons | wc -l)" -ge 2 ]; }
no_process() { ! [ -e "/proc/$1" ]; }

@test "hostile: a ring that takes long to look at: a signal ends it at once, and the card is released" {
	local at len start pid
	card_make ext4 100 40000
	cow prepare --log-size 36G --erase-block 4M "$CARD"
	attach_mounted
	echo x >"$MNT/x"
	detach
	# no head can be read: all of it has to be
	at=$(cow check --json "$CARD" | jq -r .log_offset_bytes)
	len=$(cow check --json "$CARD" | jq -r .log_bytes)
	fallocate -p -o "$at" -l "$len" "$IMG"
	blockdev --flushbufs "$CARD"
	background "$COWFS_BUILD/cowctl" attach "$CARD" --name vol
	wait_for 10 daemon_starts
	sleep 1
	daemon_starts
	start=$EPOCHREALTIME
	for pid in $(daemons); do
		kill -TERM "$pid" || no_process "$pid" # the end of one ends the other
	done
	wait_for 10 no_daemons
	say "ended $(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }') s after the signal"
	[ "$(blockdev --getro "$CARD")" = 0 ]
	background "$COWFS_BUILD/cowctl" check "$CARD"
	sleep 0.5
	kill -TERM "$BG"
	wait_for 10 no_process "$BG"
}

# An image that takes over libext2fs or libblkid in a command; it gets no file, and the command names it.
owned() { # DEVICE COMMAND...
	local device=$1
	shift
	run -1 env BADIMAGE_OWNS="$T/owned" LD_PRELOAD="$COWFS_BUILD/tests/badimage.so" \
		ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS-}" "$@"
	[[ $output == *"$device: "*'made its reader crash (signal '* ]] || { echo "$*: $output"; return 1; }
	[ ! -e "$T/owned" ] || { echo "$*: it opened a file"; return 1; }
}

@test "a card that takes over the libraries by which commands read it gets nothing, and changes nothing" {
	local cow=$COWFS_BUILD/cowctl sum
	card_make ext4 60 160
	sum=$(image_sum)
	owned "$CARD" "$cow" prepare "$CARD" --log-size 64M
	owned "$CARD" "$cow" measure "$CARD" --write-area all
	owned "$CARD" "$cow" measure "$CARD" --write-area all --size 4M --tables mix
	[ "$(image_sum)" = "$sum" ]
	cow prepare "$CARD" --log-size 64M
	attach_mounted
	echo x >"$MNT/x"
	sync -f "$MNT"
	owned "volume vol" "$cow" diff vol
	owned "$CARD" "$cow" top vol
	umount_volume
	run -32 env BADIMAGE_OWNS="$T/owned" LD_PRELOAD="$COWFS_BUILD/tests/badimage.so" "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT"
	[[ $output == *'made its reader crash'* ]]
	[ ! -e "$T/owned" ]
	cow diff vol
	cow top vol
}

@test "directories in a circle, and a tree of extents whose block points to itself: each command ends" {
	local i leaf cow=$COWFS_BUILD/cowctl
	card_make ext4 60 160 -b 1024 -O ^metadata_csum
	mount "$CARD" "$MNT"
	mkdir -p "$MNT/a/b/c" "$MNT/z"
	for ((i = 0; i < 300; i += 2)); do
		printf x | dd of="$MNT/holes" bs=1024 seek=$i conv=notrunc status=none
	done
	umount "$MNT"
	debugfs -w -R 'link /a /a/b/c/again' "$CARD" 2>/dev/null
	leaf=$(debugfs -R 'ex /holes' "$CARD" 2>/dev/null | awk '$1 == "0/" && !n++ { print $8 }')
	[ "$leaf" -gt 0 ]
	# the magic number, one entry of at most 84, depth 1: logical block 0 is in this block
	python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<HHHHIIIHH", 0xf30a, 1, 84, 1, 0, 0, int(sys.argv[1]), 0, 0))' "$leaf" |
		dd of="$CARD" bs=1024 seek="$leaf" conv=notrunc,fsync status=none
	cow prepare "$CARD" --log-size 64M
	cow check "$CARD"
	attach_mounted
	mv "$MNT/z" "$MNT/a/b/y"
	touch "$MNT/holes"
	sync -f "$MNT"
	run timeout 300 "$cow" diff vol
	[ "$status" -le 1 ]
	run timeout 300 "$cow" top vol --json
	[ "$status" -le 1 ]
	run timeout 300 "$cow" commit vol
	[ "$status" -le 1 ]
}
