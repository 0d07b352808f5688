#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# TRIM: the card learns what no generation uses. The backing file of a loop device gets holes for it. What a card
# answers then is noise here: the discards of the daemon write it (tests/tools/eioshim.c).
# seconds: 90
# turn: 3

load lib

setup() {
	cow_setup
	C=$T/sim
}

teardown() { sim_teardown; }

# FS [MKFS_OPTION]...; with the shim
card() {
	case $1 in
	xfs | btrfs) card_make "$1" 320 420 "${@:2}" ;;
	*) card_make "$1" 100 150 -b 4096 "${@:2}" ;;
	esac
	cow prepare "$CARD" ${LAG:+--lag $LAG} >/dev/null
	FS=$1
	volume
}

volume() {
	shim_mounted "$@"
}

# Allocated blocks of the backing file.
blocks() {
	sync "$IMG"
	stat -c %b "$IMG"
}

# of 4 KiB: where the file lies on the card, as ranges FIRST COUNT
extents_of() {
	sync -f "$1"
	filefrag -e -b4096 "$1" | awk -F'[ .:]+' '/^ +[0-9]+:/ { print $5, $6 - $5 + 1 }'
}

# WHAT RANGE...: are all blocks of the ranges data or holes of the backing file (what: data, hole)?
all_are() {
	python3 - "$IMG" "$1" <<-'END'
		import os, sys
		path, want = sys.argv[1:3]
		fd = os.open(path, os.O_RDONLY)
		END_ = os.fstat(fd).st_size
		def is_hole(at):
		    try:
		        return os.lseek(fd, at, os.SEEK_DATA) != at
		    except OSError:
		        return True
		bad = n = 0
		for line in open(os.environ["RANGES"]):
		    first, count = map(int, line.split())
		    for b in range(first, first + count):
		        n += 1
		        bad += is_hole(b * 4096) != (want == "hole")
		print(f"{n} blocks, {bad} are not {want}")
		# a trim leaves the few blocks that the newest records have samples of
		sys.exit(bad > (3 if want == "hole" else 0) or n == 0)
	END
}

# Not to new blocks: the trimmed ones are among the first that it would take.
in_place() { dd if=/dev/urandom of="$1" bs=4096 count=1 conv=notrunc status=none; }
has_trimmed() { [ "$(status_of .trim.last_unix_seconds)" != 0 ]; }
trimmed() { answer=$(cow trim --json) && jq -e .trimmed_bytes <<<"$answer"; }

# The live volume and, after a power cut, the card have what was there before.
intact() {
	local sum
	sum=$(tree_sum "$MNT")
	read_again "$MNT"
	[ "$(tree_sum "$MNT")" = "$sum" ]
	[ "$sum" = "$1" ]
	power_cut
	cow check "$CARD" >/dev/null
	volume
	[ "$(tree_sum "$MNT")" = "$1" ]
	detach_whole "$FS"
	cow check "$CARD" >/dev/null
	[ "$(bare_sum)" = "$1" ]
}

@test "trim: the card gives back a deleted file of a committed generation, exactly, and the rest stays" {
	local before after bytes
	card ext4
	random_file "$MNT/kept" 10
	random_file "$MNT/gone" 20
	cow commit --checkpoint
	export RANGES=$T/gone
	extents_of "$MNT/gone" >"$RANGES"
	all_are data
	rm "$MNT/gone"
	# not committed: the newest generation has it
	bytes=$(trimmed)
	all_are data
	cow commit --checkpoint
	before=$(blocks)
	after=$(trimmed)
	all_are hole
	[ $((after - bytes)) = $((20 * 1024 * 1024)) ]
	[ $((before - $(blocks))) -ge $((20 * 2048)) ]
	[ $((before - $(blocks))) -le $((20 * 2048 + 512)) ]
	[ "$after" -le $((($(stat -f -c %f "$MNT") + 64) * 4096)) ]
	[ "$(blockdev --getro "$CARD")" = 1 ]
	# the second one has nothing to give back
	before=$(blocks)
	[ "$(trimmed)" = "$after" ]
	[ "$(blocks)" = "$before" ]
	[ "$(status_of .trim.announced)" = true ]
	[ "$(status_of .trim.bytes)" = $((bytes + 2 * after)) ]
	[ "$(status_of .lifetime.trimmed_bytes)" = $((bytes + 2 * after)) ]
	[ "$(status_of .card.kernel_discarded_bytes)" = $((bytes + 2 * after)) ]
	[ "$(status_of .trim.last_unix_seconds)" -ge $(($(date +%s) - 300)) ]
	[ "$(status_of .card.foreign_bytes)" = 0 ]
	[ "$(status_of .alarm)" = "" ]
	answer=$(cow trim)
	grep -qx "vol: trimmed [0-9.]* MiB ([0-9,]* bytes)" <<<"$answer"
	answer=$(cow status -v)
	grep -Eqx "trim +weekly, last 20.*, [0-9.]+ MiB since attach" <<<"$answer"
	# the ledger keeps it
	echo 1 >"$MNT/new"
	cow commit
	bytes=$(status_of .lifetime.trimmed_bytes)
	power_cut
	volume
	[ "$(status_of .lifetime.trimmed_bytes)" = "$bytes" ]
	[ "$(status_of .trim.bytes)" = 0 ]
	intact "$(tree_sum "$MNT")"
}

# Noise, then changes over it that are committed and not, a power cut, and noise again.
noise_test() {
	local i sum
	card "$@"
	eio noise 1
	for i in 1 2 3 4; do
		random_file "$MNT/a$i" 3
		rm -f "$MNT/a$((i - 2))"
		fallocate -l 1M "$MNT/f$i"
		cow commit
		eio noise $i
		[ "$(trimmed)" -gt 1000000 ]
		random_file "$MNT/live$i" 2
		head -c 300000 /dev/zero >"$MNT/zero$i"
		truncate -s 5M "$MNT/sparse$i"
		sync -f "$MNT"
		fstrim "$MNT"
		fallocate -l 1M "$MNT/after$i"
		head -c 200000 /dev/zero >"$MNT/zeros$i"
		sync -f "$MNT"
		[ "$(trimmed)" -gt 1000000 ]
		read_again "$MNT"
	done
	cow commit
	trimmed
	sum=$(tree_sum "$MNT")
	echo lost >"$MNT/lost"
	random_file "$MNT/lost2" 2
	sync -f "$MNT"
	trimmed
	rm "$MNT/lost" "$MNT/lost2"
	intact "$sum"
}

@test "trimmed blocks of an ext4 that are noise hurt nobody" { noise_test ext4; }
@test "trimmed blocks of an ext4 with lag 1 that are noise hurt nobody" { LAG=1 noise_test ext4; }
@test "trimmed blocks of an xfs that are noise hurt nobody" { noise_test xfs; }
@test "trimmed blocks of a btrfs that are noise hurt nobody" { noise_test btrfs; }

@test "lag 1: what is free in the newest generation only stays, and before the first commit nothing is trimmed" {
	LAG=1
	card ext4
	fails 1 'not trimmed: with lag 1.*: commit first' trim
	random_file "$MNT/old" 1
	random_file "$MNT/gone" 20
	cow commit --checkpoint
	export RANGES=$T/gone
	extents_of "$MNT/gone" >"$RANGES"
	rm "$MNT/gone"
	cow commit
	trimmed
	all_are data
	in_place "$MNT/old"
	cow commit
	trimmed
	all_are hole
	# written in place for a generation whose blocks recovery of the previous one reads back
	random_file "$MNT/gone" 10
	cow commit
	extents_of "$MNT/gone" >"$RANGES"
	rm "$MNT/gone"
	cow commit
	in_place "$MNT/old"
	cow commit
	trimmed
	all_are data
	in_place "$MNT/old"
	cow commit
	trimmed
	all_are hole
	intact "$(tree_sum "$MNT")"
}

@test "nothing is trimmed with a view, nor after a commit of single files, nor without a freeze" {
	card ext4
	random_file "$MNT/a" 10
	random_file "$MNT/b" 1
	cow commit --checkpoint
	export RANGES=$T/gone
	extents_of "$MNT/a" >"$RANGES"
	mkdir "$T/view"
	rm "$MNT/a"
	cow view "$NAME" "$T/view" >/dev/null
	cow commit --checkpoint
	fails 1 'not trimmed: there is a view.*umount' trim
	fails 1 'not trimmed: there is a view' trim --json
	all_are data
	timeout 300 umount "$T/view"
	view_gone() { [ "$(status_of '.views.list | length')" = 0 ]; }
	wait_for 10 view_gone
	# a commit of a path: the live file system goes on from the generation before
	in_place "$MNT/b"
	cow commit "$MNT/b"
	fails 1 'not trimmed: the newest generation has only some files' trim
	all_are data
	cow commit
	trimmed
	all_are hole
	intact "$(tree_sum "$MNT")"
}

@test "trim before the first commit of a card: one record, and the card is as it was" {
	local sum
	card ext4
	random_file "$MNT/a" 3
	cow commit --checkpoint
	detach
	cow prepare --force "$CARD"
	volume
	sum=$(tree_sum "$MNT")
	[ "$(trimmed)" -gt 1000000 ]
	[ "$(status_of .card.write_calls)" -gt 0 ]
	[ "$(status_of .lifetime.trims)" = 1 ]
	echo lost >"$MNT/lost"
	sync -f "$MNT"
	power_cut
	volume
	[ "$(tree_sum "$MNT")" = "$sum" ]
	[ "$(status_of .lifetime.trims)" = 1 ]
	[ "$(trimmed)" -gt 1000000 ]
	[ "$(status_of .card.write_calls)" = 0 ]
	cow commit
	intact "$sum"
}

@test "a commit, and whoever waits for the card, come between two calls of a trim" {
	card ext4
	random_file "$MNT/a" 2
	cow commit --checkpoint
	eio trim 2000
	for i in 1 2 3 4 5 6 7 8; do
		random_file "$MNT/f$i" 1
		[ $((i % 2)) = 0 ] || continue
		cow commit --checkpoint
		rm "$MNT/f$((i - 1))"
	done
	cow commit --checkpoint
	background cow trim --json >"$T/trim"
	wait_for 10 phase_is trim
	commit_word x
	kill -0 "$BG"
	eio off
	wait "$BG"
	[ "$(jq .trimmed_bytes "$T/trim")" -gt 1000000 ]
	# whoever goes away ends it
	eio trim 2000
	background "$COWFS_BUILD/cowctl" trim
	wait_for 10 job_is trim
	kill "$BG"
	wait_for 10 job_is null
	eio off
	intact "$(tree_sum "$MNT")"
}

@test "trim = weekly: once the card is idle after a commit, and not again; off and by default" {
	local after
	looks_soon
	card ext4
	stays_idle
	run ! has_trimmed
	random_file "$MNT/a" 5
	cow commit
	wait_for 10 has_trimmed
	after=$(status_of .trim.bytes)
	[ "$after" -gt 10000000 ]
	rm "$MNT/a"
	cow commit
	stays_idle
	[ "$(status_of .trim.bytes)" = "$after" ]
	# nor in the next session
	power_cut
	volume
	echo 1 >"$MNT/b"
	cow commit
	stays_idle
	[ "$(status_of .trim.bytes)" = 0 ]
	intact "$(tree_sum "$MNT")"
	card_prepared ext4 100 150
	volume --trim off
	echo 1 >"$MNT/b"
	cow commit
	stays_idle
	[ "$(status_of '.trim | "\(.mode) \(.bytes)"')" = "off 0" ]
	cow trim
	detach
}

# bats test_tags=blunt
@test "a card that fails a discard: trim = weekly waits for the next attach" {
	looks_soon
	card ext4
	eio discard 0 1000
	echo 1 >"$MNT/b"
	cow commit
	is_refused() { [ "$(status_of .trim.refused)" = "the card refuses a discard: Input/output error" ]; }
	wait_for 15 is_refused
	[ "$(status_of .trim.last_unix_seconds)" = 0 ]
	fails 1 'the card refuses a discard: Input/output error' trim
	[ "$(blockdev --getro "$CARD")" = 1 ]
	eio off
	echo 2 >"$MNT/b"
	cow commit
	stays_idle
	is_refused
	[ "$(status_of .trim.last_unix_seconds)" = 0 ]
	cow trim
	[ "$(status_of .trim.last_unix_seconds)" != 0 ]
	[ "$(status_of .trim.refused)" = "" ]
	intact "$(tree_sum "$MNT")"
}

@test "a card that takes as long for a part of an erase block as for all of it is not asked in parts" {
	local requests
	mkdir "$C"
	cat >"$T/profiles" <<-'END'
		{"slow": {"title": "slow discards", "member": "lexar-300x-8g", "discard_ms": 40, "from": {"discard_ms": "assumed: for a test"}}}
	END
	CARD=$(SIM --loop --real-time --profiles "$T/profiles" slow 400M "$C")
	mke2fs -q -F -t ext4 -b 4096 -E nodiscard "$CARD" 240M
	cow prepare "$CARD" >/dev/null
	volume
	echo 1 >"$MNT/a"
	cow commit
	SIM reset "$C"
	trimmed >"$T/bytes"
	requests=$(SIM stat --json "$C" | jq .discards)
	[ "$(SIM stat --json "$C" | jq .discarded_bytes)" = "$(cat "$T/bytes")" ]
	[ "$(cat "$T/bytes")" -gt $((200 << 20)) ]
	# units of 2 MiB; a call has two of them
	[ "$requests" -le 80 ]
	[ "$(SIM stat --json "$C" | jq .longest_request_ns)" -le 80000000 ]
	detach
	cow prepare --force --erase-block 16M "$CARD" >/dev/null
	volume
	SIM reset "$C"
	trimmed
	[ "$(SIM stat --json "$C" | jq .longest_request_ns)" -gt 80000000 ]
	[ "$(SIM stat --json "$C" | jq .longest_request_ns)" -le 320000000 ]
	detach
	SIM stop "$C"
}

@test "a card that announces no discards is left alone" {
	mkdir "$T/ram"
	mount -t ramfs none "$T/ram" # its files take no fallocate
	IMG=$T/ram/card.img
	volume_attached ext4 24 64
	[ "$(status_of .trim.announced)" = false ]
	answer=$(cow status -v)
	grep -Eqx "trim +the card announces no discards, or is known to lose data by them" <<<"$answer"
	fails 1 'the card announces no discards' trim
	detach
	loop_down "$CARD"
	umount "$T/ram"
}

# A loop device claims nothing below it, and no mount names the volume: a guest looks the same.
@test "nothing is trimmed, nor left out, of an ext4 that something unseen has mounted" {
	local above
	card ext4
	cow commit --checkpoint
	umount_volume
	loop_up "$DEV" --direct-io=on
	above=$LOOP
	mount -o commit=300 "$above" "$MNT"
	echo 1 >"$MNT/journaled"
	sync -f "$MNT"
	# data that is on the device, in blocks that are free there as long as the transaction runs
	head -c 10M /dev/urandom >"$T/late"
	dd if="$T/late" of="$MNT/late" bs=1M oflag=direct status=none
	cow commit --checkpoint
	fails 1 'not trimmed: it is not known which blocks of this ext4 are free' trim
	read_again "$MNT"
	cmp "$T/late" "$MNT/late"
	wait_for 10 timeout 300 umount "$MNT"
	loop_down "$above"
	cow commit --checkpoint
	[ "$(trimmed)" -gt 1000000 ]
	mount_volume
	cmp "$T/late" "$MNT/late"
	detach
}

@test "a file system whose free blocks are not known is left alone" {
	volume_attached vfat 100 150
	fails 1 'not trimmed: it is not known which blocks of this vfat are free' trim
	detach
}

# bats test_tags=blunt
@test "nothing is trimmed after a failed commit, nor in a file system with errors" {
	card ext4
	random_file "$MNT/a" 5
	cow commit --checkpoint
	random_file "$MNT/b" 5
	eio flush 0 1000
	warns 'the card reports an error' commit
	fails 1 'not trimmed: it is not certain which commit is the newest: commit first' trim
	eio off
	fails 1 'not trimmed: it is not certain which commit is the newest: commit first' trim
	cow commit
	trimmed
	detach
	tune2fs -E force_fsck "$CARD" >/dev/null # an error flag
	volume
	fails 1 'not trimmed: the file system is damaged: check it first' trim
	detach
}

@test "a swapped card is not trimmed, and there is an alarm" {
	local before at
	card ext4
	random_file "$MNT/a" 5
	cow commit --checkpoint
	trimmed
	rm "$MNT/a"
	cow commit
	at=$(($(logedit newest) + 60))
	logedit flip $at
	before=$(blocks)
	fails 1 'the card was swapped, or has foreign changes; nothing was written' trim
	[ "$(blocks)" = "$before" ]
	[[ $(status_of .alarm) == *"the card was swapped, or has foreign changes"* ]]
	logedit flip $at
	trimmed
	[ "$(blocks)" -lt "$before" ]
}

@test "two trims come one after the other, and commit --no-wait does not wait for them" {
	local a b
	card ext4
	random_file "$MNT/a" 5
	cow commit --checkpoint
	eio trim 2000
	background cow trim --json >"$T/trim1"
	a=$BG
	wait_for 10 job_is trim
	echo x >"$MNT/x"
	cow commit --no-wait
	background "$COWFS_BUILD/cowctl" trim --json >"$T/trim2"
	b=$BG
	wait_for 10 eval 'find /proc/$b/fd -lname "socket:*" | grep -q .'
	echo y >"$MNT/y"
	cow commit --no-wait
	kill -0 "$a"
	eio off
	both() { [ -s "$T/trim1" ] && [ -s "$T/trim2" ]; }
	wait_for 20 both
	wait "$a"
	wait "$b"
	jq -se 'all(.trimmed_bytes > 1000000)' "$T/trim1" "$T/trim2"
	detach
}

# bats test_tags=blunt
@test "a log that cannot be written is not a card that refuses a discard" {
	card ext4
	random_file "$MNT/a" 5
	cow commit --checkpoint
	eio flush 0 1000
	fails 1 'not trimmed: the log cannot be written: Input/output error' trim
	eio off
	cow commit
	trimmed
	detach
}

@test "trim = weekly: status shows a refusal; one by hand changes nothing" {
	looks_soon
	card ext4
	mkdir "$T/view"
	random_file "$MNT/a" 1
	cow view "$NAME" "$T/view" >/dev/null
	cow commit
	fails 1 'not trimmed: there is a view' trim
	[ "$(status_of .trim.refused)" = "" ]
	timeout 300 umount "$T/view"
	wait_for 15 has_trimmed
	detach
	card_prepared ext4 100 150 -b 4096
	volume
	random_file "$MNT/a" 1
	cow commit
	in_place "$MNT/a"
	random_file "$MNT/b" 1
	cow commit "$MNT/a"
	is_refused() { [[ $(status_of .trim.refused) == "not trimmed: the newest generation has only some files"* ]]; }
	wait_for 15 is_refused
	answer=$(cow status -v)
	grep -Eq "^trim +weekly, refused: not trimmed: .*, last never" <<<"$answer"
	cow commit
	wait_for 15 has_trimmed
	[ "$(status_of .trim.refused)" = "" ]
	detach
}
