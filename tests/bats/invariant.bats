#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A rule of cowfs that is broken while it runs (base/invariant.h): nothing of it reaches the card. tests/tools/nopages.c breaks one.

load lib

setup() {
	cow_setup
	card_prepared ext4 100 150
}

teardown() { cow_teardown; }

attach_broken() {
	export LD_PRELOAD=$COWFS_BUILD/tests/nopages.so
	attach --ram 48M
	unset LD_PRELOAD
	mount_volume
}

event_told() {
	answer=$(cow status --follow --once)
	grep "$1" <<<"$answer"
}

@test "a broken rule: the daemon lives, RAM stays, the card is not written, status and events tell" {
	local sum
	attach_mounted
	random_file "$MNT/old" 3
	cow commit
	umount_volume
	cow detach
	sum=$(image_sum)
	unset COWFS_INVARIANT
	attach_broken
	random_file "$MNT/new" 3
	tree_sum "$MNT" >"$T/sum"
	fails 1 'rule M4 store .*no more writes to the card, everything stays in RAM' commit
	[[ $(status_of .alarm) == *"rule M4 store (cowfs/ram/generation.c:"*"no more writes to the card"* ]]
	[ "$(status_of .degraded)" = true ]
	wait_for 10 event_told '^vol alarm internal error: rule M4 store' # status.json is a second behind
	# again, and with a checkpoint
	fails 1 'rule M4 store' commit --checkpoint
	fails 1 'nothing is written to this card any more' trim
	[ "$(tree_sum "$MNT")" = "$(cat "$T/sum")" ]
	random_file "$MNT/newer" 1 # writes go on, and fail when RAM is full
	run -1 timeout 60 dd if=/dev/zero of="$MNT/more" bs=1M count=90 oflag=direct
	umount_volume
	fails 1 'rule M4 store' detach
	[ "$(blockdev --getro "$CARD")" = 1 ]
	cow detach --discard
	wait_for 20 no_daemons
	[ "$(image_sum)" = "$sum" ]
	fsck ext4
}

@test "COWFS_INVARIANT=abort: a broken rule ends the daemon" {
	attach_broken
	random_file "$MNT/new" 3
	run cow commit
	[ "$status" != 0 ]
	wait_for 20 no_daemons
	timeout 300 umount "$MNT" # of a device without a daemon
	loop_removed
}
