#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The option `profile`: which one is taken, what it plans, and what that saves.
# turn: 3

load lib

setup() {
	cow_setup
	C=$T/card COWFS_CONF=$T/cowfs.conf
	mkdir "$C"
	export COWFS_CONF
}

teardown() { sim_teardown; }

# "id guessed plans"
profile_is() {
	local is
	is=$(status_of '"\(.profile) \(.profile_guessed) \(.profile_plans)"')
	[ "$is" = "$1" ] || { echo "profile: $is"; return 1; }
}

two_cards() { printf '[%s]\nunit_bytes = 2097152\nwrite_ns = 1000000 20000000\ncopy_bytes_per_s = 50000000\n' a b >"$T/two.conf"; }

attach_and_see() {
	local want=$1
	shift
	attach "$@"
	profile_is "$want"
	answer=$(cow status -v vol)
	grep -q "^profile  *${want%% *}" <<<"$answer"
	detach
}

@test "profile: which one is taken, from where" {
	card_prepared ext4 60 100 -J size=4
	attach_and_see 'guessed true false'
	attach_and_see 'guessed true false' --profile auto
	attach_and_see 'none false false' --profile none
	attach_and_see 'x-slow-4g false true' --profile x-slow-4g
	# a file of cowfs 0.1
	echo '{"mine": {"title": "t", "member": "lexar-300x-8g"}}' >"$T/one.json"
	run -0 cow measure --convert "$T/one.json" --output "$T/one.conf"
	diff <(sed '1,/^.mine/d' "$T/one.conf" | grep -v '^title\|^source') <(sed '1,/^.lexar-300x-8g/d; /^$/,$d' "$COWFS_BUILD/cards.conf" | grep -v '^title\|^source')
	two_cards
	attach_and_see 'mine false true' --profile "$T/one.conf"
	attach_and_see 'b false true' --profile "$T/two.conf:b"
	printf '[default]\nprofile = lexar-300x-8g\n[other]\nprofile = none\n' >"$COWFS_CONF"
	attach_and_see 'lexar-300x-8g false true'
	attach_and_see 'x-slow-4g false true' --profile x-slow-4g
	[ "$(cow config vol --key profile)" = lexar-300x-8g ]
	printf '[vol]\nprofile = %s:a\n' "$T/two.conf" >>"$COWFS_CONF"
	attach_and_see 'a false true'
}

@test "profile: one that is not there is an error, never another one" {
	local sum
	card_prepared ext4 60 100 -J size=4
	sum=$(image_sum)
	fails 2 'unknown profile x-slow: ' attach "$CARD" --profile x-slow
	fails 2 'unknown profile x-slow: ' attach "$CARD" --profile x-slow --json
	fails 2 'is not auto, none, the id of a profile or a file' attach "$CARD" --profile 'a b'
	fails 2 'is not auto, none, the id of a profile or a file' attach "$CARD" --profile cards.conf:a
	fails 2 "$T/none.conf: No such file" attach "$CARD" --profile "$T/none.conf:a"
	two_cards
	fails 2 "$T/two.conf: has 2 profiles: name one" attach "$CARD" --profile "$T/two.conf"
	fails 2 "unknown profile c in $T/two.conf" attach "$CARD" --profile "$T/two.conf:c"
	printf '[a]\nunit = 1\n' >"$T/bad.conf"
	fails 2 "$T/bad.conf: profile 'a': nothing is called unit" attach "$CARD" --profile "$T/bad.conf"
	echo '{"a": {"title": "t", "member": "lexar-300x-8g"}}' >"$T/old.json"
	fails 2 "$T/old.json: is a profile in JSON, as cowfs 0.1 read it: 'cowctl measure --convert FILE'" attach "$CARD" --profile "$T/old.json"
	printf '[default]\nprofile = no-such\n' >"$COWFS_CONF"
	fails 2 'unknown profile no-such: ' attach "$CARD"
	printf '[default]\nprofile = no/such\n' >"$COWFS_CONF"
	fails 2 "$COWFS_CONF:2: profile = no/such is not auto" attach "$CARD"
	rm "$COWFS_CONF"
	run -2 "$COWFS_BUILD/cowfs" --profile x-slow "$CARD"
	[[ $output == *"unknown profile x-slow"* ]]
	run "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" -o profile=x-slow
	[ "$status" -ne 0 ]
	[[ $output == *"unknown profile x-slow"* ]]
	no_daemons
	[ "$(image_sum)" = "$sum" ]
}

# small files in many places: $1 which ones
small_files() {
	local d f
	for d in {01..20}; do
		mkdir -p "$MNT/d$d"
		for f in 1 2 3; do
			head -c 9000 /dev/zero | tr '\0' "$1" >"$MNT/d$d/$1$f"
		done
	done
	sync -f "$MNT"
}

# the file system spreads folders over its groups
spread() {
	volume_mounted ext4 200 250 -J size=8 -g 2048 -- -- "$@"
}

@test "profile: the dry run prints what the commit does, and a cut loses nothing" {
	local dry did sum f padded=0 n=0
	spread --profile x-slow-4g
	for f in a b c; do
		small_files "$f"
		if [ "$f" = b ]; then # a hole in what would fill a unit otherwise
			random_file "$MNT/big" 11
			sync -f "$MNT"
		fi
		run -0 cow commit --dry-run
		[[ $output == *"  by profile x-slow-4g: "*" written in place"* ]]
		[[ $output == *" s at a guess: no commit was made since attach"* ]]
		dry=$(cow commit --dry-run --json | jq -c .report)
		did=$(cow commit --json | jq -c .report)
		say "$f: direct, moved, padded, units, s: $(jq -c '[.direct_blocks, .moved_blocks, .padded_blocks, .profile_units, .model_seconds]' <<<"$did")"
		jq -e --argjson dry "$dry" '.profile == "x-slow-4g" and (.profile_guessed | not) and .model_seconds > 0 and
			.moved_blocks > 0 and .moved_blocks <= .logged_blocks and
			(. as $did | all("direct_blocks", "moved_blocks", "padded_blocks", "profile_units"; $did[.] == $dry[.])) and
			(.logged_blocks - $dry.logged_blocks | fabs) <= 2 and
			(.model_seconds / $dry.model_seconds | . > 0.95 and . < 1.05)' <<<"$did" || { echo "$dry"; echo "$did"; return 1; }
		padded=$((padded + $(jq .padded_blocks <<<"$did")))
		n=$((n + 1))
		sum=$(tree_sum "$MNT")
		[ "$n" = 3 ] || echo lost >"$MNT/lost"
		power_cut
		attach --profile x-slow-4g
		fsck ext4 "$DEV" # home and log together: the card alone is the image of the last checkpoint
		mount_has "$sum"
	done
	[ $padded -gt 0 ]
	[ "$(cow wear --json vol | jq .totals.padded_blocks)" = $padded ]
	detach_whole ext4
	run -0 cow wear --json "$CARD"
	[ "$(jq .totals.padded_blocks <<<"$output")" -ge $padded ]
}

@test "profile: without one, or with a guess, nothing is moved or padded" {
	spread
	small_files a
	run -0 cow commit --dry-run
	[[ $output == *" s at a guess: no commit was made since attach"* ]]
	answer=$(cow commit --dry-run --json)
	jq -e '.report | .writable_by == "guess" and .writable_seconds > 0' <<<"$answer"
	detach
	attach_mounted --profile none
	small_files b
	answer=$(cow commit --dry-run --json)
	jq -e <<<"$answer" '.report | (has("profile") | not) and .moved_blocks == 0 and .padded_blocks == 0 and
		.writable_by == "guess" and .writable_seconds > 0'
	cow commit
	small_files b
	answer=$(cow commit --dry-run --json)
	jq -e '.report | .writable_by == "commits" and .writable_seconds > 0' <<<"$answer"
	detach
	attach_mounted
	small_files c
	answer=$(cow commit --dry-run --json)
	jq -e <<<"$answer" '.report | .profile == "guessed" and .profile_guessed and .model_seconds > 0 and
		.profile_units > 0 and .moved_blocks == 0 and .padded_blocks == 0'
	answer=$(cow commit --json)
	jq -e '.report | (has("profile") | not) and .moved_blocks == 0 and .padded_blocks == 0' <<<"$answer"
	detach
	[ "$(cow wear --json "$CARD" | jq .totals.padded_blocks)" = 0 ]
}

# erases that some commits, and to checkpoint everything, cost on the simulated card with `--profile $1`
erases_with() {
	local round
	CARD=$(SIM --loop x-slow-4g 300M "$C")
	mke2fs -q -F -t ext4 -J size=8 -g 2048 -E nodiscard,lazy_itable_init=0 "$CARD" 220M
	cow prepare "$CARD" >&2
	attach_mounted --profile "$1"
	SIM reset "$C"
	for round in a b c d e; do
		small_files $round
		cow commit >&2
	done
	sum=$(tree_sum "$MNT")
	detach >&2
	erases=$(SIM stat --json "$C" | jq .erases) seconds=$(SIM stat --json "$C" | jq .virtual_seconds)
	fsck ext4 >&2
	[ "$(bare_sum)" = "$sum" ] || return 1
	SIM stop "$C"
}

@test "profile: on the card that it is of, fewer erases than without" {
	local erases seconds sum with with_s
	erases_with x-slow-4g >/dev/null
	with=$erases with_s=$seconds
	erases_with none >/dev/null
	say "erases: $with with the profile, $erases without, $((100 * with / erases)) %; seconds of the card: $with_s, $seconds"
	[ "$with" -gt 0 ]
	[ "$with" -le "$erases" ]
}
