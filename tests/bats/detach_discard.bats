#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl detach and discard: what happens to what is in RAM, and who may hinder it.

load lib

protect() {
	card_prepared ext4 100 150
	"$@" attach
	mount_volume
}

@test "detach: commits and checkpoints everything, the card is a plain file system" {
	protect
	random_file "$MNT/a" 5
	cow commit
	echo late >"$MNT/late"
	tree_sum "$MNT" >"$T/sum"
	umount_volume
	run -0 --separate-stderr cow detach
	[[ $output == *"vol: detached, everything is on the card as generation"* ]]
	wait_for 20 no_daemons
	wait_for 20 volume_gone "$DEV"
	[ ! -e "$COWFS_RUNDIR/vol" ]
	[ "$(blockdev --getro "$CARD")" = 0 ]
	run -0 cow check "$CARD"
	[[ $output == *"clean: everything is checkpointed, detached in order"* && $output == *"(detach)"* ]]
	[[ $output == *"verdict: good"* ]]
	fsck ext4
	[ "$(bare_sum)" = "$(cat "$T/sum")" ]
	fails 4 'no volume is attached' status vol
	fails 4 'no volume is attached' detach
}

# bats test_tags=blunt
@test "discard: a commit that failed does not come back" {
	local i end
	protect
	for end in detach shutdown; do
		for i in 0 1 2 3; do
			detach # in order: the first record of the next session is that of its commit
			shim_mounted
			echo "$i" >"$MNT/failed"
			sync -f "$MNT"
			eio flush "$i" 1 # 2: its record is on the card
			if cow commit; then
				eio off
				break
			fi
			eio off
			cow discard
			if [ $end = detach ]; then
				detach
			else
				cow shutdown
				power_cut
			fi
			attach_mounted
			[ ! -e "$MNT/failed" ]
		done
		[ "$i" = 3 ]
		rm "$MNT/failed"
	done
}

@test "a card whose log is not empty: status, check, detach and shutdown say that it is not to be mounted without cowfs" {
	local image
	volume_mounted ext4 200 250 -b 4096
	run -0 cow status
	[[ $output != *"without cowfs"* ]]
	random_file "$MNT/a" 32
	sync -f "$MNT"
	# no time for a checkpoint of so much
	run -0 cow shutdown --within 30s
	[[ $output == *"vol: part of it exists in the log only: run 'cowctl release' before you mount the card without cowfs"* ]]
	run -0 cow status
	[[ $output == *"do not mount the card without cowfs: 'cowctl commit --checkpoint' or a detach empties the log"* ]]
	power_cut
	run -0 cow check "$CARD"
	[[ $output == *"do not mount it without cowfs before: it is a mixture of generations"* ]]
	image=$(image_sum)
	attach
	run -0 cow detach --discard
	[[ $output == *"detached, but "*" committed blocks exist in the log only: run 'cowctl release' before you mount the card without cowfs"* ]]
	wait_for 20 no_daemons
	[ "$(image_sum)" = "$image" ]
	attach
	cow commit --checkpoint
	run -0 cow status
	[[ $output != *"without cowfs"* ]]
	run -0 cow check "$CARD"
	[[ $output != *"without cowfs"* ]]
}

@test "detach --json, by device" {
	protect
	echo x >"$MNT/x"
	umount_volume
	run -0 --separate-stderr cow detach --json "$CARD"
	jq -e '.ok and .job == "detach" and .report.written_bytes > 0 and .generation > 0' <<<"$output"
	wait_for 20 no_daemons
	fsck ext4
	on_bare '[ -e "$MNT/x" ]'
}

@test "detach while mounted: refused, and the volume stays attached" {
	protect
	echo x >"$MNT/x"
	fails 1 "$DEV is mounted on $MNT: unmount it first" detach
	fails 1 'is mounted on' detach --discard
	fails 1 'is mounted on' detach --json
	commit_word y
	[ "$(status_of .discard_armed)" = false ]
	detach
	on_bare '[ -e "$MNT/y" ]'
}

@test "detach while something else uses the loop device: refused, and the volume stays attached" {
	protect
	echo x >"$MNT/x"
	umount_volume
	# held, as by swap or LVM
	background python3 -c 'import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_EXCL); open(sys.argv[2], "w"); time.sleep(1000)' "$DEV" "$T/held"
	wait_for 20 test -e "$T/held"
	fails 1 "$DEV is in use" detach
	kill "$BG"
	wait "$BG" || true
	# only open: it cannot be let go either
	background bash -c 'exec 5<"$0"; touch "$1"; exec sleep 1000' "$DEV" "$T/open"
	wait_for 20 test -e "$T/open"
	fails 1 'cannot detach the loop device|in use' detach
	mount_volume
	[ "$(cat "$MNT/x")" = x ]
	echo y >"$MNT/y"
	umount_volume
	kill "$BG"
	wait "$BG" || true
	detach
	on_bare '[ -e "$MNT/y" ]'
}

@test "detach --discard: discards uncommitted changes, keeps committed ones" {
	protect
	commit_word one
	echo two >"$MNT/two"
	umount_volume
	run -0 cow detach --discard
	wait_for 20 no_daemons
	fsck ext4
	mount -o ro "$CARD" "$MNT"
	[ -e "$MNT/one" ] && [ ! -e "$MNT/two" ]
}

@test "detach --discard without any commit: not one byte is written" {
	local before sum
	card_prepared ext4 100 150
	before=$(card_written) sum=$(image_sum)
	attach_mounted
	random_file "$MNT/a" 5
	detach --discard
	[ "$(card_written)" -eq "$before" ]
	[ "$(image_sum)" = "$sum" ]
}

@test "discard: armed, shown, taken back" {
	protect
	commit_word one
	echo two >"$MNT/two"
	run -0 cow discard
	[[ $output == *"discarded at the next detach"* ]]
	[ "$(status_of .discard_armed)" = true ]
	run -0 cow status
	[[ $output == *"!: uncommitted changes will be DISCARDED at the next detach or shutdown"* ]]
	run -0 cow discard --cancel --json
	jq -e '.ok and .discard_armed == false' <<<"$output"
	run -0 cow discard --json vol
	jq -e '.ok and .discard_armed' <<<"$output"
	# a refused detach changes nothing about it
	fails 1 mounted detach
	[ "$(status_of .discard_armed)" = true ]
	detach_whole ext4
	on_bare '[ -e "$MNT/one" ] && [ ! -e "$MNT/two" ]'
	# undone
	attach_mounted
	echo three >"$MNT/three"
	cow discard
	cow discard --cancel
	detach
	mount -o ro "$CARD" "$MNT"
	[ -e "$MNT/three" ]
}

@test "detach while a commit runs: waits for it" {
	protect with_shim
	random_file "$MNT/a" 20
	tree_sum "$MNT" >"$T/sum"
	umount_volume
	eio slow 60000
	background cow commit --json >"$T/commit"
	wait_for 10 job_is commit
	{ sleep 1; eio off; } 3>&- &
	cow detach
	wait "$BG"
	jq -e .ok "$T/commit"
	wait_for 20 no_daemons
	[ "$(bare_sum)" = "$(cat "$T/sum")" ]
}
