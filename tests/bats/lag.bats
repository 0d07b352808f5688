#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A log with lag 1: what recovery may choose is proved on the simulated card; here that the whole of it works.
# turn: 3

load lib

@test "prepare --lag 1: commits that free and use blocks in turns, a kill, a recovery, a clean detach" {
	card_make ext4 100 150
	answer=$(cow prepare --lag 1 "$CARD")
	grep -Eq 'lag +1: the previous commit' <<<"$answer"
	attach
	[ "$(status_of .lag)" = 1 ]
	mount_volume
	for i in 1 2 3 4 5 6; do
		random_file "$MNT/f$i" 3
		rm -f "$MNT/f$((i - 2))"
		answer=$(cow commit --json)
		jq -e '.ok' <<<"$answer" >/dev/null
		[ "$i" != 4 ] || cow commit --checkpoint
	done
	tree_sum "$MNT" >"$T/sum"
	echo lost >"$MNT/lost"
	sync -f "$MNT"
	power_cut
	answer=$(cow check --json "$CARD")
	jq -e '.lag == 1 and .verdict == "good"' <<<"$answer" >/dev/null
	attach_mounted
	diff "$T/sum" <(tree_sum "$MNT")
	random_file "$MNT/g" 5
	cow commit
	tree_sum "$MNT" >"$T/sum"
	detach
	answer=$(cow check "$CARD")
	grep -Eq 'state +clean' <<<"$answer"
	fsck ext4
	diff "$T/sum" <(bare_sum)
}

@test "release of a log with lag writes once" {
	card_make ext4 100 150
	cow prepare --lag 1 "$CARD"
	attach_mounted
	random_file "$MNT/a" 2
	cow commit
	commit_word b
	power_cut
	cow release "$CARD"
	local sum
	sum=$(image_sum)
	cow release "$CARD"
	[ "$(image_sum)" = "$sum" ]
	fsck ext4
	answer=$(cow check "$CARD")
	grep -Eq 'state +retired' <<<"$answer"
}

@test "--lag takes 0 or 1" {
	card_make ext4 100 150
	fails 2 'lag must be 0 or 1' prepare --lag 2 "$CARD"
	cow prepare --lag 0 "$CARD"
	[ "$(cow check --json "$CARD" | jq .lag)" = 0 ]
}
