#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031 # each test is a subshell, as it should be
# cowctl wear: the ledger is what the device counted, survives power cuts, and is told to people and to programs.
# bats file_tags=wear

load lib

protect() {
	card_make ext4 300 340 -J size=8
	cow format "$CARD"
	start=$(card_written)
	attach
	mount_volume
}

change() { # FILE MIB, twice: the first is absorbed
	random_file "$MNT/$1" "$2"
	sync -f "$MNT"
	random_file "$MNT/$1" "$2"
	sync -f "$MNT"
}

wear_of() { # FILTER [N]
	cow wear "${2:-vol}" --json | jq -r "$1"
}

# What the device has counted since the attach, and the sum over the erase blocks.
is_exact() { # N
	local n=${1:-vol} want=$(($(card_written) - start))
	[ "$(wear_of .totals.written_bytes "$n")" = "$want" ] || { echo "device: $want"; return 1; }
	[ "$(wear_of .erase_blocks.counted_bytes "$n")" = "$want" ]
	[ "$(wear_of '[.erase_blocks.written_blocks[]] | add * 4096' "$n")" = "$want" ]
	[ "$(wear_of '[.erase_blocks.visits[]] | add' "$n")" = "$(wear_of .totals.erase_block_visits "$n")" ]
}

@test "wear: the ledger is what the device counted, attached, detached, and over many attaches" {
	local i
	protect
	for i in 1 2 3; do
		change f$i 2
		cow commit
		is_exact
	done
	cow commit --checkpoint
	is_exact
	detach
	is_exact "$CARD"
	for i in 4 5; do
		attach
		mount_volume
		change f$i 1
		cow commit
		detach
		is_exact "$CARD"
	done
	[ "$(wear_of '.totals | [.attaches, .commits_by_cause.manual, .table_losses] | @csv' "$CARD")" = 3,6,0 ]
	[ "$(wear_of '[.history.commits[].written_bytes] | add' "$CARD")" = "$(wear_of .totals.written_bytes "$CARD")" ]
	[ "$(wear_of '[.history.days[].absorbed_bytes] | add' "$CARD")" = "$(wear_of .totals.absorbed_bytes "$CARD")" ]
}

@test "wear: a power cut loses what was in flight only, and nothing goes back" {
	local before after
	protect
	change a 2
	cow commit
	before=$(wear_of '[.totals.written_bytes, .erase_blocks.counted_bytes, .totals.commits] | @csv')
	change b 2
	power_cut
	after=$(wear_of '[.totals.written_bytes, .erase_blocks.counted_bytes, .totals.commits] | @csv' "$CARD")
	[ "$before" = "$after" ]
	start=$(($(card_written) - $(cut -d, -f1 <<<"$before")))
	attach
	mount_volume
	change c 1
	cow commit
	is_exact
}

@test "wear: the documented fields, and a text for 80 columns" {
	protect
	change a 2
	cow commit
	run -0 --separate-stderr cow wear --json
	jq -e '.ok and .schema == 1 and .attached and .name == "vol" and .have_table and .erase_blocks.units == 85 and
		(.erase_blocks.written_blocks | length) == 85 and (.erase_blocks.visits | length) == 85 and
		.erase_blocks.erase_block_source == "guessed" and (.erase_blocks.hottest | length) > 0 and
		(.history.commits | length) == 1 and .history.commits[0].cause == "manual" and
		(.history.days | length) == 1 and .ratios.absorption > 1.5 and .ratios.cowfs_amplification > 1 and
		.truth.have_kernel_counters and .truth.foreign_bytes == 0 and
		.truth.cowfs_written_bytes == .truth.kernel_written_bytes and
		.totals.attached_seconds > .totals.writable_seconds' <<<"$output"
	# every name in backquotes of the tables of the manual is there, and the reverse
	keys=$(jq -r '[paths | map(strings) | .[]] | unique | .[]' <<<"$output")
	for k in $keys; do
		grep -q "\`[a-z_.]*$k\(\[\]\)*\`\|$k" "$BATS_TEST_DIRNAME/../../docs/WEAR.md" || { echo "$k is not documented"; return 1; }
	done
	run -0 --separate-stderr cow wear
	[ "$(wc -L <<<"$output")" -le 80 ]
	[[ $output == *"Programs wrote"*"times less"*"Nothing else has"* ]]
}

@test "wear: bad input" {
	card_make none 0 20
	fails 4 'no volume|not running' wear nobody
	fails 1 'no cowfs log' wear "$CARD"
	fails 1 'o such file' wear /dev/nosuchthing
	fails 2 'unknown option|usage' wear --nonsense
	fails 2 'usage' wear a b
}
