#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Whose base is it: cards that were mounted, checked, formatted, re-flashed, enlarged, copied or swapped behind the log.
# seconds: 75

load lib

unguard() { "$COWFS_BUILD/tests/unguard" "$CARD"; }
state_of() { { answer=$(cow check --json "$CARD") || [ $? = 3 ]; } && jq -r .log_state <<<"$answer"; }

# Somebody mounts the bare card and changes a file; the guard does not hold him back (guard.bats).
edit_elsewhere() {
	unguard
	mount "$CARD" "$MNT"
	echo foreign >"$MNT/foreign"
	umount "$MNT"
}

# The log is set aside: told by everybody, nothing used, nothing written.
is_set_aside() {
	local sum
	sum=$(image_sum)
	run -1 cow check "$CARD"
	echo "$output"
	[[ $output == *"SET ASIDE: foreign changes"*"--accept base or --accept log"* && $output != *"verdict: BROKEN"* ]]
	run -1 cow check --json "$CARD"
	jq -e '.log_state == "foreign" and .verdict == "broken" and .base_changed and .ok == false' <<<"$output"
	fails 1 "changed without cowfs.*nothing was written. Decide: --accept base" release "$CARD"
	[ "$(image_sum)" = "$sum" ]
}

# ... and the base is served as the card holds it.
serves_base() {
	local sum before
	sum=$(image_sum) before=$(card_written)
	attach
	run -3 cow status
	[[ $output == *alarm*"set aside"*"--accept base or --accept log"* ]]
	run -3 cow status --json
	jq -e '.degraded and .readonly and .base_changed and .log_state_at_attach == "foreign"' <<<"$output"
	mount_has "$1"
	echo more >"$MNT/more"
	fails 1 "set aside because of foreign changes.*nothing can be committed" commit
	cat "$MNT/more"
	umount_volume
	fails 1 "set aside" detach "$NAME"
	detach --discard
	[ "$(card_written)" -eq "$before" ]
	[ "$(image_sum)" = "$sum" ]
}

# cowfs goes on with this card.
goes_on() {
	attach_mounted
	commit_word on
	detach_whole ext4
	[ "$(state_of)" = clean ]
}

@test "mounted and edited elsewhere: set aside, served as found, nothing written; --accept base" {
	local sum
	cut_card 1 ext4
	edit_elsewhere
	sum=$(bare_sum)
	is_set_aside
	[[ $(cow check "$CARD") == *"it was mounted, last on 20"* ]]
	serves_base "$sum"
	fails 2 "base, log or lost, not both" release --accept both "$CARD"
	run -0 cow release --accept base "$CARD"
	[ "$(state_of)" = retired ]
	whole_with ext4 "$sum"
	goes_on
	mount -o ro "$CARD" "$MNT"
	[ -e "$MNT/foreign" ] && [ -e "$MNT/on" ] && [ ! -e "$MNT/one" ]
}

# Without taking a block that the log's generation has in place.
touch_elsewhere() {
	unguard
	mount "$CARD" "$MNT"
	chmod 711 "$MNT/lost+found"
	umount "$MNT"
}

@test "mounted and edited over blocks that were committed in place: --accept log cannot have them back, and says so" {
	local sum image
	cut_card 1 ext4
	edit_elsewhere
	sum=$(bare_sum) image=$(image_sum)
	fails 1 "newest generation cannot be restored.*Nothing was written; only --accept base" release --accept log "$CARD"
	[ "$(image_sum)" = "$image" ]
	is_set_aside
	cow release --accept base "$CARD"
	whole_with ext4 "$sum"
}

@test "mounted and edited elsewhere: --accept log writes the log over it" {
	cut_card 1 ext4
	touch_elsewhere
	is_set_aside
	run -3 cow release --accept log "$CARD"
	[[ $output == *"is checkpointed and the log is retired"*"check the file system before it is mounted"*"e2fsck -f $CARD" ]]
	[ "$(state_of)" = retired ]
	whole_with ext4 "$(cat "$T/sum")"
	goes_on
}

@test "e2fsck -f elsewhere" {
	local sum code=0
	cut_card 1 ext4
	unguard
	e2fsck -fp "$CARD" || code=$?
	[ $code -le 1 ]
	sum=$(bare_sum)
	is_set_aside
	[[ $(cow check "$CARD") == *"it was checked, or a tool wrote to it"* ]]
	serves_base "$sum"
	run -3 cow release --accept log --json "$CARD"
	jq -e --arg c "e2fsck -f $CARD" '.ok and .home_blocks > 0 and .log_state_before == "live" and .check_with == $c' <<<"$output"
	whole_with ext4 "$(cat "$T/sum")"
}

# Folders go to other groups than those that the log has blocks of.
@test "edited elsewhere, --accept log: the file system has errors, and the command that is given repairs them" {
	local command code=0
	cut_card 1 ext4
	unguard
	mount "$CARD" "$MNT"
	mkdir "$MNT"/{1,2,3,4,5,6,7,8}
	umount "$MNT"
	debugfs -w -R "rmdir 1" "$CARD"
	run -3 cow release --accept log "$CARD"
	command=$(tail -n 1 <<<"$output")
	[[ $command == "  e2fsck -f $CARD" ]]
	run -4 e2fsck -fn "$CARD"
	$command -y || code=$?
	[ $code = 1 ]
	whole_with ext4 "$(cat "$T/sum")"
	# nothing is left to do
	run -0 cow release --accept log "$CARD"
	[[ $output != *"e2fsck -f"* ]]
}

@test "mounted read-only elsewhere is no change" {
	cut_card 1 ext4
	bare_sum
	[ "$(state_of)" = live ]
	recovers_to ext4 "$(cat "$T/sum")"
}

@test "a new file system over it" {
	local sum
	cut_card 1 ext4
	mke2fs -q -F -t ext4 -E nodiscard "$CARD" 100M
	sum=$(bare_sum)
	is_set_aside
	[[ $(cow check "$CARD") == *"it is a different one"* ]]
	serves_base "$sum"
	cow release --accept base "$CARD"
	whole_with ext4 "$sum"
	goes_on
}

@test "enlarged over its log elsewhere: the log is void, nothing is written over the file system" {
	local sum kind
	for kind in waiting clean; do
		IMG=$T/$kind.img
		cut_card 1 ext4
		if [ $kind = clean ]; then
			attach
			detach
		fi
		unguard
		e2fsck -fp "$CARD"
		resize2fs -f "$CARD" 150M
		random_file "$T/random" 4
		mount "$CARD" "$MNT"
		cp "$T/random" "$MNT/new"
		umount "$MNT"
		sum=$(image_sum)
		fails 1 "enlarged without cowfs .150 MiB, was 100 MiB. and has overwritten its log.*prepare --shrink" \
			attach "$CARD"
		fails 1 "has overwritten its log" check "$CARD"
		fails 1 "has overwritten its log" release "$CARD"
		fails 1 "has overwritten its log" release --accept base "$CARD"
		fails 1 "has overwritten its log" grow "$CARD"
		[ "$(image_sum)" = "$sum" ]
		cow prepare --shrink "$CARD"
		fsck ext4
		goes_on
		on_bare 'cmp "$T/random" "$MNT/new"'
		loop_down "$CARD"
	done
}

# Writes what an image has and leaves alone what it has not, as bmaptool does.
flash() {
	dd if="$1" of="$IMG" bs=4096 conv=sparse,notrunc status=none
	blockdev --flushbufs "$CARD"
}

@test "re-flashed with an image that was never attached: the first attach voids the ring of the last life" {
	local old new
	IMG=$T/factory.img
	card_make ext4 100 150
	mount "$CARD" "$MNT"
	echo factory >"$MNT/factory"
	umount "$MNT"
	cow prepare "$CARD"
	loop_down "$CARD"
	cp --sparse=always "$T/factory.img" "$T/card.img"
	IMG=$T/card.img
	card_loop
	attach_mounted
	commit_word one
	commit_word two
	power_cut rw
	old=$(cow check --json "$CARD" | jq -r .ring_uuid)
	flash "$T/factory.img"
	run -0 cow check "$CARD"
	[[ $output == *"no commit yet"* ]]
	attach_mounted
	[ "$(cat "$MNT/factory")" = factory ]
	[ ! -e "$MNT/one" ]
	commit_word three
	tree_sum "$MNT" >"$T/sum"
	power_cut
	new=$(cow check --json "$CARD" | jq -r .ring_uuid)
	[[ $new != "$old" && $new != 00000000-* ]]
	[ "$(state_of)" = live ]
	recovers_to ext4 "$(cat "$T/sum")"
}

# A golden image of a card in use, detached in order; then the card's life goes on: a commit that is checkpointed, and one
# that waits in the log.
golden_card() {
	volume_mounted ext4 100 150
	random_file "$MNT/golden" 1
	detach
	bare_sum >"$T/sum.golden"
	cp --sparse=always "$IMG" "$T/golden.img"
	attach_mounted
	random_file "$MNT/one" 1
	cow commit --checkpoint
	tree_sum "$MNT" >"$T/sum.one"
	rm "$MNT/golden"
	cow commit
	power_cut rw
}

@test "re-flashed with the file system of an older image of itself: newer records are set aside, not replayed" {
	golden_card
	dd if="$T/golden.img" of="$IMG" bs=1M count=100 conv=notrunc status=none
	blockdev --flushbufs "$CARD"
	is_set_aside
	serves_base "$(cat "$T/sum.golden")"
	cow release --accept base "$CARD"
	whole_with ext4 "$(cat "$T/sum.golden")"
	goes_on
}

# The card is then, block by block, as it was in some moment after the image was taken: that moment's generation is
# whole, or it is set aside.
@test "re-flashed with the mapped blocks of an older image of itself: a whole generation, never a mixture" {
	local sum
	golden_card
	flash "$T/golden.img"
	run cow release "$CARD"
	echo "$output"
	[ "$status" = 0 ] || cow release --accept base "$CARD"
	fsck ext4
	sum=$(bare_sum)
	[ "$sum" = "$(cat "$T/sum.golden")" ] || [ "$sum" = "$(cat "$T/sum.one")" ]
	goes_on
}

@test "changed while everything was checkpointed: accepted and reported" {
	volume_mounted ext4 100 150
	echo one >"$MNT/one"
	detach
	edit_elsewhere
	run -0 cow check "$CARD"
	[[ $output == *"changed without cowfs since; the log was empty"*"verdict: good"* ]]
	attach
	run -0 cow status
	[[ $output == *"changed without cowfs; the log was empty, so the change was accepted"* ]]
	[ "$(status_of .base_changed)" = true ]
	mount_volume
	[ -e "$MNT/foreign" ]
	[ -e "$MNT/one" ]
	commit_word two
	power_cut
	[ "$(state_of)" = live ]
	recover_whole ext4
	on_bare '[ -e "$MNT/foreign" ] && [ -e "$MNT/two" ]'
	# after a farewell the card is anybody's
	blockdev --setrw "$CARD"
	mount "$CARD" "$MNT"
	echo three >"$MNT/three"
	umount "$MNT"
	[ "$(state_of)" = retired ]
	attach
	[ "$(status_of .base_changed)" = false ]
	mount_volume
	[ -e "$MNT/three" ]
	detach
}

@test "the partition grows under a running volume and behind its back: it runs on and says so; grow" {
	local sum before
	volume_mounted ext4 100 150
	commit_word one
	truncate -s 200M "$IMG"
	losetup -c "$CARD"
	commit_word two
	tree_sum "$MNT" >"$T/sum"
	power_cut rw
	run -0 cow check "$CARD"
	[[ $output == *"the device has grown since the log was made"* ]]
	attach
	run -0 cow status
	[[ $output == *"the device has grown"* ]]
	fails 1 "attached as volume vol" grow "$CARD"
	mount_has "$(cat "$T/sum")"
	power_cut rw
	run -0 cow grow "$CARD"
	echo "$output"
	[[ $output == *"the log now covers 200 MiB, was 150 MiB"*"cowctl release"*"resize2fs"*"cowctl prepare --force"* ]]
	run -0 cow check "$CARD"
	[[ $output != *"has grown"* && $output == *"both copies good"* && $output == *live* ]]
	sum=$(image_sum) before=$(card_written)
	run -0 cow grow --json "$CARD"
	jq -e '.ok and .nothing_to_do and .device_bytes == 209715200' <<<"$output"
	[ "$(card_written)" -eq "$before" ]
	[ "$(image_sum)" = "$sum" ]
	# what it told to do for a larger file system
	cow release "$CARD"
	mount "$CARD" "$MNT"
	if ! resize2fs "$CARD" 150M; then # not allowed in a container
		umount "$MNT"
		fsck ext4
		resize2fs -f "$CARD" 150M
	fi
	! mountpoint -q "$MNT" || umount "$MNT"
	cow prepare --force "$CARD"
	fsck ext4
	attach_has "$(cat "$T/sum")"
	[ "$(df --output=size -BM "$MNT" | tail -1 | tr -dc 0-9)" -gt 120 ]
	detach
}

# bats test_tags=blunt
@test "grow: cut at each write, one good superblock is always found" {
	local n done=0 cuts=0
	cut_card 1 ext4
	truncate -s 200M "$IMG"
	losetup -c "$CARD"
	cp --sparse=always "$IMG" "$T/copy"
	for ((n = 1; n <= 30 && !done; n++)); do
		run cut_at $n "$COWFS_BUILD/cowctl" grow "$CARD"
		[ "$status" != 0 ] || done=1
		[ "$status" -le 128 ] || cuts=$((cuts + 1))
		[ "$(state_of)" = live ]
		cow grow "$CARD"
		answer=$(cow check "$CARD")
		grep -q 'both copies good' <<<"$answer"
		answer=$(cow check --json "$CARD")
		jq -e '.device_grown == false' <<<"$answer"
		image_from "$T/copy"
	done
	[ $done = 1 ] # the last one came to its end
	[ $cuts = 13 ] # three blocks tried and put back, and two copies: each with its FLUSHes
}

@test "grow: a log device and its volume" {
	local log
	card_make ext4 100 100
	IMG=$T/log.img
	truncate -s 60M "$IMG"
	loop_up "$IMG"
	log=$LOOP
	cow prepare --log "$log" "$CARD"
	truncate -s 80M "$IMG"
	losetup -c "$log"
	truncate -s 120M "$T/card.img"
	losetup -c "$CARD"
	run -0 cow grow --log "$log" "$CARD"
	[[ $output == *"the volume has 120.0 MiB"* ]]
	attach --log "$log"
	[ "$(blockdev --getsize64 "$DEV")" = 125829120 ]
	resize2fs "$DEV"
	mount_volume
	echo x >"$MNT/x"
	detach_whole ext4
}

@test "two copies of one card at once: each is served from its own path, and status reports it" {
	local first second=$T/copy.img dev
	cut_card 1 ext4
	cp "$IMG" "$second"
	loop_up "$second"
	first=$CARD
	attach
	dev=$DEV
	mount_volume
	echo first >"$MNT/which"
	umount_volume
	CARD=$LOOP
	attach_mounted --name other
	[ ! -e "$MNT/which" ]
	echo other >"$MNT/which"
	cow commit other
	run -0 cow status other
	[[ $output == *"volume vol has the same log: it is a copy of this card"* ]]
	run -0 cow status vol
	[[ $output == *"volume other has the same log"* ]]
	umount_volume
	NAME=other detach_one
	DEV=$dev NAME=vol CARD=$first
	mount_volume
	[ "$(cat "$MNT/which")" = first ]
	run -0 cow status
	[[ $output != *"same log"* ]]
	detach_whole ext4
	CARD=$LOOP
	fsck ext4
	[ "$(mount -o ro "$CARD" "$MNT" && cat "$MNT/which" && umount "$MNT")" = other ]
}

detach_one() { cow detach "$NAME"; }

@test "the card is swapped between two commits: refused, everything stays in RAM" {
	local sum
	IMG=$T/other.img
	volume_mounted ext4 100 150
	echo other >"$MNT/other"
	detach
	loop_down "$CARD"
	IMG=$T/card.img
	volume_mounted ext4 100 150
	commit_word one
	cp --sparse=always "$IMG" "$T/mine.img"
	echo two >"$MNT/two"
	sync -f "$MNT"
	image_from "$T/other.img"
	sum=$(image_sum)
	fails 1 "the card was swapped, or has foreign changes; nothing was written" commit
	[ "$(image_sum)" = "$sum" ]
	[ "$(cat "$MNT/two")" = two ]
	[ "$(status_of '.failed_blocks > 0')" = true ]
	run -3 cow status
	[[ $output == *"the card was swapped, or has foreign changes"* ]]
	# the right card is back
	image_from "$T/mine.img"
	cow commit
	run -0 cow status
	tree_sum "$MNT" >"$T/sum"
	detach_whole ext4
	[ "$(bare_sum)" = "$(cat "$T/sum")" ]
}

# What hibernation does to a card: this system sleeps, another one is booted from the card, commits, and this one goes on.
@test "another system commits to the card meanwhile: refused, and its commit stays" {
	local sum case
	for case in first second clean; do
		IMG=$T/$case.img
		volume_mounted ext4 100 150
		echo one >"$MNT/one"
		case $case in
		first) ;;
		second) cow commit ;;
		clean)
			detach
			attach_mounted
			;;
		esac
		echo two >"$MNT/two"
		sync -f "$MNT"
		cp --sparse=always "$IMG" "$T/other.img"
		loop_up "$T/other.img"
		mkdir -p "$T/other"
		timeout 300 mount "$(cow attach --name other "$LOOP")" "$T/other"
		echo other >"$T/other/other"
		cow commit other # it waits in the log
		dd if="$T/other.img" of="$IMG" bs=1M conv=notrunc status=none
		umount "$T/other"
		cow detach other
		loop_down "$LOOP"
		blockdev --flushbufs "$CARD"
		sum=$(image_sum)
		fails 1 "the card was swapped, or has foreign changes; nothing was written" commit
		fails 1 "the card was swapped, or has foreign changes; nothing was written" commit --checkpoint
		run -3 cow status
		[[ $output == *"the card was swapped, or has foreign changes"* ]]
		[ "$(cat "$MNT/two")" = two ]
		umount_volume
		fails 1 "the card was swapped, or has foreign changes" detach "$NAME"
		detach --discard
		[ "$(image_sum)" = "$sum" ]
		recover_whole ext4
		on_bare '[ "$(cat "$MNT/other")" = other ] && [ ! -e "$MNT/two" ]'
		loop_down "$CARD"
	done
}

@test "another system commits to the card meanwhile, then the worker dies: no other one takes over, nothing is written" {
	local sum pid major minor rest
	IFS=.- read -r major minor rest </proc/sys/kernel/osrelease
	[ $((major * 1000 + minor)) -ge 6009 ] || skip "a kernel before 6.9"
	volume_attached ext4 100 150 -- -- --on-crash replace
	dd if=/dev/urandom of="$DEV" bs=1M seek=50 count=1 oflag=direct status=none
	cow commit
	dd if=/dev/urandom of="$DEV" bs=1M seek=52 count=1 oflag=direct status=none
	# a death alone is no such case
	kill -9 "$(worker_pid)"
	wait_for 30 replaced_once
	cow commit
	dd if=/dev/urandom of="$DEV" bs=1M seek=54 count=1 oflag=direct status=none
	cp --sparse=always "$IMG" "$T/other.img"
	loop_up "$T/other.img"
	dd if=/dev/urandom of="$(cow attach --name other "$LOOP")" bs=1M seek=56 count=1 oflag=direct status=none
	cow commit other
	image_from "$T/other.img"
	sum=$(image_sum)
	cow detach other
	kill -9 "$(worker_pid)"
	wait_for 30 no_daemons
	[ "$(image_sum)" = "$sum" ]
	loop_removed
}

replaced_once() { [ "$(status_of .replaced)" = 1 ]; }

@test "mounted elsewhere before the first commit of a session: refused" {
	local case sum
	for case in virgin retired; do
		IMG=$T/$case.img
		card_prepared ext4 100 150
		if [ $case = retired ]; then
			attach_mounted
			commit_word one
			power_cut rw
			cow release "$CARD"
			[ "$(state_of)" = retired ]
		fi
		attach_mounted
		echo two >"$MNT/two"
		sync -f "$MNT"
		printf '\1\2\3\4' | dd of="$IMG" bs=1 seek=$((1024 + 44)) conv=notrunc status=none # s_mtime
		blockdev --flushbufs "$CARD"
		sum=$(image_sum)
		fails 1 "the card was swapped, or has foreign changes; nothing was written" commit
		[ "$(image_sum)" = "$sum" ]
		detach --discard
		loop_down "$CARD"
	done
}

@test "foreign changes between two commits: refused" {
	cut_card 1 ext4
	attach_mounted
	echo two >"$MNT/two"
	# one field that any mount changes: s_mtime
	"$COWFS_BUILD/tests/unguard" "$IMG"
	printf '\1\2\3\4' | dd of="$IMG" bs=1 seek=$((1024 + 44)) conv=notrunc status=none
	blockdev --flushbufs "$CARD"
	fails 1 "the card was swapped, or has foreign changes; nothing was written" commit
	[ "$(cat "$MNT/two")" = two ]
	detach --discard
	is_set_aside
}

# bats test_tags=blunt
@test "a checkpoint of our own, cut at each write: recognised as ours" {
	local n code
	cut_card 1 ext4
	cp --sparse=always "$IMG" "$T/copy"
	for ((n = 1; n <= 40; n++)); do
		code=0
		cut_at $n "$COWFS_BUILD/cowctl" release "$CARD" >/dev/null || code=$?
		[ $code = 0 ] && break
		run cow check --json "$CARD"
		echo "cut $n: $(tail -1 "$T/cut"): $output"
		[ "$status" = 0 ] || [ "$status" = 3 ]
		recovers_to ext4 "$(cat "$T/sum")"
		image_from "$T/copy"
	done
	[ "$n" -gt 8 ]
	[ "$n" -lt 40 ]
	say "$n cuts"
}

# bats test_tags=blunt
@test "xfs, btrfs: garbage of a cut checkpoint in the superblock is ours, a new file system is not" {
	local fs at
	for fs in xfs btrfs; do
		[ $fs = xfs ] && at=1 || at=129 # its second sector: it is still seen what is there
		IMG=$T/$fs.img
		volume_mounted $fs 330 380
		commit_word one
		tree_sum "$MNT" >"$T/sum"
		power_cut rw
		run env LD_PRELOAD="$COWFS_BUILD/tests/powercut.so" COWFS_CUT_AFTER=s2+1 COWFS_CUT_LOG="$T/cut" \
			"$COWFS_BUILD/cowctl" release "$CARD"
		[ "$status" -gt 128 ]
		blockdev --setrw "$CARD"
		cp --sparse=always "$IMG" "$T/copy"
		if [ $fs = xfs ]; then
			mkfs.xfs -q -f -K -d size=330m "$CARD"
		else
			mkfs.btrfs -q -f -K -b 330M "$CARD"
		fi
		blockdev --flushbufs "$CARD"
		is_set_aside
		dd if="$T/copy" of="$IMG" bs=1M conv=notrunc status=none
		dd if=/dev/urandom of="$IMG" bs=512 seek=$at count=3 conv=notrunc status=none
		blockdev --flushbufs "$CARD"
		[ "$(state_of)" = live ]
		cow release "$CARD"
		[ "$(bare_sum)" = "$(cat "$T/sum")" ] # and the journal is played back
		fsck $fs
		loop_down "$CARD"
	done
}

# Writes a byte of the bare card.
poke() { printf '%b' "\\x$2" | dd of="$CARD" bs=1 seek="$1" conv=notrunc,fsync status=none; }
peek() { od -An -tx1 -j "$1" -N 1 "$CARD" | tr -d ' '; }

# The kernel may have no nilfs2: what its mount would change is written here.
@test "nilfs2: s_mtime of the superblock, or the second superblock, was changed elsewhere" {
	local mtime=$((1024 + 0x60)) second=$((64 * 1024 * 1024 - 4096 + 0x38)) before off
	volume_attached nilfs2 64 128
	head -c 2M /dev/urandom >"$T/noise"
	dd if="$T/noise" of="$DEV" bs=1M seek=32 conv=fsync status=none
	run -0 cow status --json
	jq -e '.fs_type == "nilfs2"' <<<"$output"
	cow commit
	power_cut rw
	"$COWFS_BUILD/tests/unguard" "$CARD"
	[ "$(state_of)" = live ]
	for off in "$mtime" "$second"; do
		before=$(peek "$off")
		poke "$off" a5
		is_set_aside
		[ "$off" = "$second" ] || [[ $(cow check "$CARD") == *"it was mounted, last on"* ]]
		poke "$off" "$before"
		[ "$(state_of)" = live ]
	done
	poke "$mtime" a5
	run -3 cow release --accept log "$CARD"
	[[ $output == *"is checkpointed and the log is retired"*"no program checks this file system"* ]]
	cmp "$T/noise" <(dd if="$CARD" bs=1M skip=32 count=2 status=none)
}

@test "nilfs2: committed changes are restored, and a detach checkpoints them" {
	volume_attached nilfs2 64 128
	head -c 2M /dev/urandom >"$T/noise"
	dd if="$T/noise" of="$DEV" bs=1M seek=32 conv=fsync status=none
	cow commit
	dd if=/dev/zero of="$DEV" bs=1M seek=32 count=2 conv=fsync status=none
	power_cut rw
	attach
	cmp "$T/noise" <(dd if="$DEV" bs=1M skip=32 count=2 status=none)
	detach
	[ "$(state_of)" = clean ]
	cmp "$T/noise" <(dd if="$CARD" bs=1M skip=32 count=2 status=none)
	[ "$(blkid -p -s TYPE -o value "$CARD")" = nilfs2 ]
}

# A log on an array is also the log of each of its members, which are a little longer.
@test "a member of an array whose superblock is at its end" {
	local sum
	volume_mounted ext4 100 150
	commit_word one
	power_cut rw
	truncate -s $((150 * 1048576 + 131072)) "$IMG"
	losetup -c "$CARD"
	cow check "$CARD"
	"$BATS_TEST_DIRNAME/../vm/stack.py" md 0 "$IMG" end
	[ "$(blkid -p -o value -s TYPE "$IMG")" = linux_raid_member ]
	sum=$(image_sum)
	fails 1 "$CARD: is a member of an array" attach "$CARD"
	fails 1 "$CARD: is a member of an array" check "$CARD"
	fails 1 "$CARD: is a member of an array" release "$CARD"
	fails 1 "$CARD: is a member of an array" prepare --force "$CARD"
	# whatever is asked for: its log is in use
	: >"$T/empty.conf"
	for words in cowfs=on cowfs=off ''; do
		blockdev --setrw "$CARD"
		run -3 cow boot --device "$CARD" --conf "$T/empty.conf" --cmdline "root=$CARD $words"
		[ "$(image_sum)" = "$sum" ]
		[ "$(blockdev --getro "$CARD")" = 1 ]
	done
}

# What the RAID of a BIOS left on the disk says nothing of an ext4 in a partition.
@test "something like a member of an array, but not of md" {
	card_prepared ext4 100 150
	truncate -s $((151 * 1048576)) "$IMG"
	losetup -c "$CARD"
	printf 'Intel Raid ISM Cfg Sig. 1.3.00' | dd of="$IMG" bs=512 seek=$((151 * 2048 - 2)) conv=notrunc status=none
	[ "$(blkid -p -o value -s TYPE "$IMG")" != ext4 ]
	attach
	detach
}
