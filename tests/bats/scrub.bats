#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl scrub: a patrol read, of a volume or of a card that is not attached.
# seconds: 110
# turn: 3

load lib

setup() {
	cow_setup || return
	export COWFS_STATEDIR=$T/state
	mkdir "$T/look"
}

C=''
teardown() { if [ -n "$C" ]; then sim_teardown; else cow_teardown; fi; }

# A volume whose files are at home on CARD.
volume() { # FS FS_MIB CARD_MIB
	volume_mounted "$1" "$2" "$3"
	random_file "$MNT/hurt" 1
	random_file "$MNT/whole" 30
	cow commit --checkpoint >/dev/null
}

# The first byte of a block of /hurt on CARD
hurt_at() { filefrag -b4096 -v "$MNT/hurt" | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 * 4096 + 16384 }'; }

scrub() { with_shim "$COWFS_BUILD/cowctl" scrub "$@"; }

all_read() { # FS FS_MIB CARD_MIB MOST_MIB
	local before
	volume "$1" "$2" "$3"
	before=$(card_written)
	run -0 cow scrub --json
	[ "$(jq .read_bytes <<<"$output")" = "$(jq .used_bytes <<<"$output")" ]
	[ "$(jq '.used_bytes > 31*1024*1024 and .used_bytes < '"$4"'*1024*1024' <<<"$output")" = true ]
	[ "$(jq -c '[.log_verified, .resumed, .skipped, .lost_blocks, .weak_blocks, .lost_files]' <<<"$output")" = '[true,false,false,0,0,[]]' ]
	[ "$(card_written)" = "$before" ]
	wait_for 5 eval '[ "$(status_of ".views.list | length")" = 0 ]'
}

@test "scrub: all used blocks are read and nothing else, nothing is written, ext4" { all_read ext4 200 240 55; }
@test "scrub: xfs" { all_read xfs 310 360 110; }
@test "scrub: btrfs" { all_read btrfs 160 200 55; }

# bats test_tags=blunt
@test "scrub: blocks that cannot be read are named" {
	local at before
	volume ext4 100 150
	at=$(hurt_at)
	eio bad "$at" $((at + 8192))
	before=$(card_written)
	run -3 scrub vol
	[[ $output == *"2 blocks cannot be read, or are not what was written. Write these files again from a copy:"* ]]
	[[ $output == *"8.0 KiB of /hurt"* ]]
	run -3 scrub vol --json --yes
	[ "$(jq -c '[.lost_blocks, .lost_files, .weak_blocks, .renewed_blocks]' <<<"$output")" = '[2,["/hurt"],0,0]' ]
	[ "$(card_written)" = "$before" ]
	# blocks that are free are not read
	rm "$MNT/hurt"
	cow commit --checkpoint >/dev/null
	run -0 scrub vol
	[[ $output == *": no error" ]]
}

@test "scrub: a block of the log with another content than was written" {
	local at
	volume ext4 100 150
	printf 'this text is in the log %s' "$RANDOM" >"$T/text"
	cp "$T/text" "$MNT/text"
	sync -f "$MNT"
	cow commit >/dev/null
	# in a block of a file that was there before: it is in the log alone
	dd if="$T/text" of="$MNT/hurt" bs=4096 seek=3 conv=notrunc status=none
	cow commit >/dev/null
	at=$(grep -abo "$(cat "$T/text")" "$IMG" | tail -1 | cut -d: -f1)
	logedit flip "$at"
	run -3 cow scrub --json
	[ "$(jq -c '[.lost_blocks, .lost_files, .log_verified]' <<<"$output")" = '[1,["/hurt"],true]' ]
	logedit flip "$at"
	run -0 cow scrub
}

# With the N-th read of cowctl from now on failing once, and the block alone as well
fails_once() { # N
	eio read "$1" 2
	run scrub vol --json "${@:2}"
	eio off
	echo "$output"
	[ "$status" = 3 ] && [ "$(jq '.weak_blocks == 1 and .lost_blocks == 0 and .weak_files == ["/whole"]' <<<"$output")" = true ]
}

# blocks that a commit writes to the log
logged() { answer=$(cow commit --json) && jq '.report.logged_blocks + .report.zero_blocks' <<<"$answer"; }

@test "scrub: a block that is read at the second attempt is written by the next commit" {
	local sum n before
	volume ext4 100 150
	sum=$(tree_sum "$MNT")
	# the reads for the map and the log come first, then what is no file
	for ((n = 100; n < 500; n += 25)); do
		fails_once $((n - 12)) && break
	done
	[ "$(jq .renewed_blocks <<<"$output")" = 0 ]
	logged
	fails_once "$n"
	before=$(logged)
	fails_once "$n" --yes
	[ "$(jq .renewed_blocks <<<"$output")" = 1 ]
	[ "$(logged)" = $((before + 1)) ]
	fails_once "$n"
	[ "$(logged)" = "$before" ]
	[ "$(tree_sum "$MNT")" = "$sum" ]
	detach_whole ext4
}

# bats test_tags=blunt
@test "scrub: asks before it has blocks written again, and only on a terminal" {
	local n before
	volume ext4 100 150
	for ((n = 100; n < 500; n += 25)); do
		fails_once $((n - 12)) && break
	done
	logged
	fails_once "$n"
	before=$(logged)
	eio read "$n" 2
	run scrub vol </dev/null
	[[ $output == *"1 block could not be read at first, but now:"*"With --yes the next commit writes them again."* ]]
	eio off
	eio read "$n" 2
	run with_shim script -qec "$COWFS_BUILD/cowctl scrub vol" /dev/null <<<n
	echo "$output"
	[[ $output == *"Write them again with the next commit? [y/N]"* ]]
	eio off
	[ "$(logged)" = "$before" ]
}

@test "scrub: a simulated card that fails one read" {
	local n
	C=$T/sim
	mkdir "$C"
	CARD=$(SIM --loop x-slow-4g 150M "$C")
	mke2fs -q -F -t ext4 "$CARD" 100M
	cow prepare "$CARD" >/dev/null
	attach_mounted
	random_file "$MNT/file" 20
	cow commit --checkpoint >/dev/null
	# other reads (of the log, of whoever looks at devices) take their share
	for ((n = 200; n > 0; n -= 20)); do
		SIM fail "$C" read $n once
		run cow scrub --json --yes
		[ "$status" = 0 ] || break
	done
	[ "$status" = 3 ]
	[ "$(jq '.lost_blocks == 0 and .weak_blocks > 0 and .renewed_blocks == .weak_blocks' <<<"$output")" = true ]
	cow commit --checkpoint >/dev/null
	run -0 cow scrub
}

# bats test_tags=blunt
@test "scrub: a card that is not attached, with commits in its log" {
	local before at
	cut_card 2 ext4
	before=$(image_sum)
	run -0 cow scrub "$CARD" --json
	[ "$(jq -c '[.log_verified, .lost_blocks]' <<<"$output")" = '[true,0]' ]
	cow view "$CARD" "$T/look"
	at=$(filefrag -b4096 -v "$T/look/two" | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 * 4096 }')
	umount "$T/look"
	eio bad "$at" $((at + 4096))
	run -3 scrub "$CARD"
	eio off
	[[ $output == *"1 block cannot be read, or are not what was written"*" of /two"* ]]
	[ "$(image_sum)" = "$before" ]
}

# the place that an interrupted scrub goes on from
place_is() { grep -qsr --exclude='*.*' "$1" "$T/state"; } # not in what is to be renamed yet

# bats test_tags=blunt
@test "scrub: goes on where it was killed, and ends if the card is pulled" {
	local code=0 before
	volume ext4 100 150
	eio card 25 100
	background with_shim exec "$COWFS_BUILD/cowctl" scrub vol --json
	wait_for 20 place_is .
	kill -9 "$BG"
	wait "$BG" || true
	eio off
	run -0 scrub vol --json
	[ "$(jq '.resumed and .read_bytes < .used_bytes - 4000000' <<<"$output")" = true ]
	# from the start again
	run -0 cow scrub vol --json
	[ "$(jq '.resumed == false and .read_bytes == .used_bytes' <<<"$output")" = true ]
	eio card 25 100
	before=$(card_read)
	with_shim "$COWFS_BUILD/cowctl" scrub vol >"$T/said" 2>&1 &
	wait_for 20 eval '[ "$(card_read)" -gt $((before + (16 << 20))) ]'
	# the head can still be read, as from RAM
	eio bad 1048576 1000000000000
	wait $! || code=$?
	cat "$T/said"
	[ "$code" = 1 ]
	grep 'can no longer be read (No such device). Is the card there? The same command goes on with it' "$T/said"
	eio off
	run -0 cow scrub vol
}

@test "scrub: a place of an earlier run, or that is no place" {
	local place text
	volume ext4 100 150
	cow scrub >/dev/null
	place=$(echo "$T"/state/scrub-*)
	echo "9000 1000000000" >"$place"
	run -0 cow scrub --json
	[ "$(jq '.resumed and .read_bytes < .used_bytes - 4000000' <<<"$output")" = true ]
	for text in '' x '-1 1' '99999999999999999999 1' '20000' '20000 x 7'; do
		printf '%s' "$text" >"$place"
		run -0 cow scrub
	done
}

# bats test_tags=blunt
@test "scrub: goes on in front of what it had found" {
	local hurt
	volume ext4 100 150
	hurt=$(hurt_at)
	detach >/dev/null
	loop_down "$CARD"
	mkdir "$T/slow"
	background "$COWFS_BUILD/tests/slowcard" "$IMG" "$T/slow" 4000 1000 1
	wait_for 10 test -e "$T/slow/card"
	loop_up "$T/slow/card"
	eio bad "$hurt" $((hurt + 4096))
	background with_shim exec "$COWFS_BUILD/cowctl" scrub "$LOOP"
	wait_for 20 place_is "^$((hurt / 4096)) "
	kill -9 "$BG"
	wait "$BG" || true
	loop_down "$LOOP"
	umount "$T/slow"
	loop_up "$IMG"
	run -3 scrub "$LOOP" --json
	[ "$(jq -c '[.resumed, .lost_files]' <<<"$output")" = '[true,["/hurt"]]' ]
}

@test "scrub: --timer does nothing for 30 days after a pass" {
	local place
	volume ext4 100 150
	run -0 cow scrub --timer --json
	[ "$(jq -c '[.skipped, .read_bytes == .used_bytes]' <<<"$output")" = '[false,true]' ]
	run -0 cow scrub --timer --json
	[ "$(jq -c '[.skipped, .read_bytes]' <<<"$output")" = '[true,0]' ]
	run -0 cow scrub --timer
	[[ $output == *'not due: the last pass ended less than 30 days ago' ]]
	place=$(echo "$T"/state/scrub-*)
	echo "18446744073709551615 $(($(date +%s) - 31 * 86400))" >"$place"
	run -0 cow scrub --timer --json
	[ "$(jq .skipped <<<"$output")" = false ]
	# a place is of one log
	cow detach --discard vol || { umount_volume; cow detach vol; }
	cow prepare --force "$CARD" >/dev/null
	run -0 cow scrub "$CARD" --timer --json
	[ "$(jq .skipped <<<"$output")" = false ]
}

# Sets MS, how long a scrub takes.
timed_scrub() { # WORDS
	local start
	start=$(date +%s%N)
	run -0 cow scrub
	MS=$((($(date +%s%N) - start) / 1000000))
	say "$1: $MS ms"
}

@test "scrub: gives way to programs" {
	local alone reader
	volume ext4 100 150
	timed_scrub alone
	alone=$MS
	timeout 12 sh -c "while :; do dd if=$CARD of=/dev/null bs=64k iflag=direct status=none; done" 3>&- &
	reader=$!
	timed_scrub "beside a reader of 12 s"
	wait "$reader" || true
	[ "$MS" -gt $((alone + 3000)) ]
}

@test "scrub: what cannot be scrubbed" {
	fails 4 'no volume is attached$' scrub
	fails 4 'no volume is attached as other' scrub other
	card_make ext4 60 100
	fails 1 'no cowfs log' scrub "$CARD"
	truncate -s 1M "$T/file"
	run -1 setpriv --reuid 65534 --clear-groups "$COWFS_BUILD/cowctl" scrub "$T/file"
	[[ $output == *"only root may mount a view"* ]]
	cow prepare "$CARD" >/dev/null
	attach
	# the place cannot be kept
	export COWFS_STATEDIR=/proc/nowhere
	run -0 cow scrub
	[[ $output == *"an interrupted scrub will not go on where it was"* ]]
}
