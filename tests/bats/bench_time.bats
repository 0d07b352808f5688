#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl measure --tables in real time: its figures are those of the profile of a simulated card.
# alone: it measures time

load lib

setup() {
	cow_setup
	mkdir "$T/card"
}

teardown() {
	sim_end "$T/card"
	cow_teardown
}

# How far the rows are from the profile, in percent. The median, because other programs may hold the processor; the rate
# itself is that of the mean.
differences() {
	jq -r '(.linear + .random)[] | select(.block_bytes >= 8192 and .block_bytes <= 262144) |
		.read.median_ns / 1e9 / (0.0007832 + .block_bytes / 5.2e6) - 1 | . * 100 | round' "$1"
}

@test "bench: a simulated card in real time has the figures of its profile" {
	local card try
	[ -z "${COWFS_TURN-}" ] || skip "not its turn: a busy machine has other figures"
	card=$(timeout "$COW_LIMIT" "$COWFS_BUILD/cowfs-cardsim" --loop --real-time kingston-24x-1g 64M "$T/card")
	export COWFS_BENCH_ROW_MS=150
	for try in 1 2 3; do
		cow measure "$card" --size 1M --tables linear,random --json >"$T/a.json"
		differences "$T/a.json" >"$T/differences.$try"
		say "differences from the profile, %, attempt $try: $(xargs <"$T/differences.$try")"
		[ "$(wc -l <"$T/differences.$try")" = 12 ]
		# each row in one of the attempts
		paste -d' ' "$T"/differences.* | awk '{ ok = 0; for (i = 1; i <= NF; i++) ok += $i >= -15 && $i <= 15; bad += !ok } END { exit bad }' &&
			jq -e '[(.linear + .random)[].read | .requests_per_second * .mean_ns / 1e9] | add / length | . > 0.9 and . < 1.1' "$T/a.json" &&
			return 0
	done
	return 1
}
