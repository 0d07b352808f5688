#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl check and release: each state of a log in plain words, what recovery writes, and that it writes once.

load lib

# check says the regex, exits with the code, and its JSON has state and verdict
checks() {
	local code=$1 regex=$2 state=$3 verdict=$4 sum
	sum=$(image_sum)
	run -"$code" --separate-stderr cow check "$CARD"
	echo "$output"
	grep -Eq -- "$regex" <<<"$output" || return
	run -"$code" --separate-stderr cow check --json "$CARD"
	echo "$output"
	jq -e --arg s "$state" --arg v "$verdict" '.log_state == $s and .verdict == $v and
		.ok == ($v == "good") and (.findings | type == "array") and (.lifetime.written_bytes | type == "number") and
		(.generation | type == "number") and (.ring_uuid | length == 36) and .format_version == 1' <<<"$output" || return
	[ "$(image_sum)" = "$sum" ] # check reads only
}

# bats test_tags=sharp
@test "check: a fresh log" {
	card_prepared ext4 100 150
	checks 0 'state +empty: no commit yet' empty good
	answer=$(cow check "$CARD")
	grep -Eq 'superblock +both copies good' <<<"$answer"
}

@test "check: clean after a detach; it works on the image file too" {
	cut_card 2 ext4
	attach
	detach
	checks 0 'state +clean: everything is checkpointed, detached in order' clean good
	answer=$(cow check "$CARD")
	grep -Eq 'newest record +generation [0-9]+, .*\(detach\)' <<<"$answer"
	answer=$(cow check "$CARD")
	grep -Eq 'not checkpointed +0 blocks' <<<"$answer"
	loop_down "$CARD"
	CARD=$IMG
	checks 0 'state +clean' clean good
}

@test "check: live, with the blocks that are only in the log" {
	cut_card 2 ext4
	checks 0 'state +live: the newest generation is complete' live good
	answer=$(cow check "$CARD")
	grep -Eq "newest record +generation [0-9]+, commit, .*\(manual\)" <<<"$answer"
	answer=$(cow check "$CARD")
	grep -Eq "not checkpointed +[1-9][0-9]* blocks exist in the log only: .*'cowctl release'" <<<"$answer"
	answer=$(cow check "$CARD" --json)
	jq -e '.log_live_blocks > 0 and .cause == "manual" and .time_unix_seconds > 1600000000' <<<"$answer"
}

# bats test_tags=sharp
@test "check: beside a running daemon, without disturbing it" {
	volume_mounted ext4 100 150
	commit_word one
	run -0 cow check "$CARD"
	[[ $output == *"attached as volume vol: the log may change while it is read"* ]]
	run -0 cow check --json "$CARD"
	jq -e '.attached_as == "vol"' <<<"$output"
	commit_word two
	[ "$(status_of .card.foreign_bytes)" = 0 ]
}

@test "check: fell back to the generation before; attach and release take that one" {
	cut_card 2 ext4
	logedit damage 1
	checks 3 'state +fell back: the newest commit is incomplete, the previous generation is used' fell-back repairable
	run -3 cow check "$CARD"
	[[ $output =~ "1 newer record not chosen: "[a-z] ]]
	cp "$IMG" "$T/copy"
	attach_has "$(cat "$T/sum1")"
	[ "$(status_of .log_state_at_attach)" = fell-back ]
	answer=$(cow status)
	grep -q 'the previous generation was used' <<<"$answer"
	# the next commit goes on from there
	commit_word four
	power_cut
	checks 0 'state +live' live good
	recover_whole ext4
	on_bare '[ -e "$MNT/one" ] && [ -e "$MNT/four" ] && [ ! -e "$MNT/two" ]'
	# the same by release alone
	loop_down "$CARD"
	IMG=$T/copy
	card_loop
	run -0 cow release "$CARD"
	[[ $output == *"the previous generation was taken"* ]]
	whole_with ext4 "$(cat "$T/sum1")"
}

@test "check: broken; attach and release refuse and write nothing" {
	local sum
	cut_card 2 ext4
	logedit damage 1
	logedit damage 2
	checks 1 'state +BROKEN' broken broken
	sum=$(image_sum)
	fails 1 'the log is damaged.*cowctl check' attach "$CARD"
	fails 1 'the log is damaged .*nothing was written' release "$CARD"
	fails 1 'the log is damaged' release --json "$CARD"
	[ "$(image_sum)" = "$sum" ]
	# whoever gives it up gets a new log
	cow prepare --force "$CARD"
	checks 0 'state +empty' empty good
}

# refused IMAGE WHY: the newest commit is one that only 0.1.0 can complete
refused() {
	local sum why=$2
	IMG=$T/card.img
	golden "$1" "$IMG"
	card_loop
	sum=$(image_sum)
	checks 1 'NEEDS AN OLDER VERSION' broken broken
	run -1 cow check "$CARD"
	grep -Eq "$why" <<<"$output"
	[[ $output == *"verdict: WAITS: do not mount"* ]]
	fails 1 "$why; nothing was written" attach "$CARD"
	fails 1 "$why; nothing was written" release "$CARD"
	fails 1 "$why" view "$CARD" "$MNT"
	fails 1 "already has a cowfs log: $why" prepare "$CARD"
	fails 1 "$why \(--force does not discard it\)" prepare --force "$CARD"
	run -1 cow scrub "$CARD"
	[ "$(image_sum)" = "$sum" ]
}

@test "check: the newest commit of 0.1.0 lies in lent space: refused, and nothing is written" { refused v1-lent 'a part of generation 3 is in space that was lent to its commit: cowfs 0\.1\.0 completes it, with cowctl recover --lend DEVICE\|FILE'; }
@test "check: the newest commit of 0.1.0 is one of several volumes: refused, and nothing is written" { refused v1-joint-undecided 'record 6 is of a commit of several volumes: cowfs 0\.1\.0 completes it, with cowctl recover while all their cards are plugged in'; }

@test "release: checkpoints everything; the second run writes nothing" {
	local before sum
	cut_card 2 ext4
	run -0 --separate-stderr cow release "$CARD"
	[[ $output == *"is checkpointed and the log is retired"* && $output == *"blocks ("*") checkpointed, "* ]]
	whole_with ext4 "$(cat "$T/sum")"
	checks 0 'state +retired: cowfs has left this card, everything is checkpointed' retired good
	before=$(card_written) sum=$(image_sum)
	run -0 cow release "$CARD"
	[[ $output == *"nothing to do"*"nothing was written"* ]]
	run -0 cow release --json "$CARD"
	jq -e '.ok and .nothing_to_do and .written_bytes == 0 and .home_blocks == 0 and .log_state_before == "retired"' <<<"$output"
	[ "$(card_written)" -eq "$before" ]
	[ "$(image_sum)" = "$sum" ]
	# and cowfs can come back
	attach_has "$(cat "$T/sum")"
	echo back >"$MNT/back"
	detach_whole ext4
	checks 0 'state +clean' clean good
}

@test "release: --json, on an image file, on a fresh log, on a clean one" {
	local sum
	cut_card 2 ext4
	loop_down "$CARD"
	run -0 --separate-stderr cow release "$IMG" --json
	jq -e '.ok and .nothing_to_do == false and .home_blocks > 0 and .written_bytes > 0 and
		.log_state_before == "live" and .generation > 0' <<<"$output"
	cow prepare --force "$IMG"
	sum=$(image_sum)
	run -0 cow release "$IMG" --json
	jq -e '.nothing_to_do and .log_state_before == "empty"' <<<"$output"
	[ "$(image_sum)" = "$sum" ]
	card_loop
	attach_mounted
	echo x >"$MNT/x"
	detach
	run -0 cow release --json "$CARD"
	jq -e '.ok and .log_state_before == "clean" and .home_blocks == 0' <<<"$output"
	checks 0 'state +retired' retired good
	fsck ext4
}

# bats test_tags=blunt
@test "release: killed half way, the next one finishes it" {
	local n
	cut_card 2 ext4
	cp "$IMG" "$T/copy"
	for n in 0 2 4 6; do
		eio write "$n" 1000
		run with_shim cow release "$CARD"
		[ "$status" = 1 ]
		[[ $output == *"The log still holds everything"* ]]
		eio off
		checks 0 'state +live' live good
	done
	recovers_to ext4 "$(cat "$T/sum")"
}

@test "one damaged superblock: keeps running, reports it, and the next commit or release repairs it" {
	local copy
	for copy in A B; do
		IMG=$T/$copy.img
		cut_card 2 ext4
		logedit break $copy
		checks 3 "superblock +copy $copy is DAMAGED" live repairable
		attach_has "$(cat "$T/sum")"
		run -3 cow status
		[[ $output == *"superblock $copy of the log is damaged"* && $output == *"alarm"*"one superblock of the log is damaged"* ]]
		run -3 cow status --json
		jq -e --arg c "$copy" '.degraded and .alarm != "" and .["super_copy_\($c | ascii_downcase)_bad"]' <<<"$output"
		commit_word more
		# the commit has written the copy anew
		cow status
		[ "$(status_of .degraded)" = false ]
		power_cut
		answer=$(cow check "$CARD")
		grep -Eq 'superblock +both copies good' <<<"$answer"
		recover_whole ext4
		# also on a card that rests: but for that nothing is left to do
		logedit break $copy
		run -3 cow check "$CARD"
		cow release "$CARD"
		answer=$(cow check "$CARD")
		grep -Eq 'superblock +both copies good' <<<"$answer"
		[[ $(cow release "$CARD") == *"nothing was written"* ]]
		loop_down "$CARD"
	done
}

@test "check: a card that grew" {
	cut_card 2 ext4
	loop_down "$CARD"
	truncate -s 170M "$IMG"
	card_loop
	run cow check "$CARD"
	[[ $output == *"the device has grown since the log was made"* ]]
	attach_has "$(cat "$T/sum")"
	[ "$(status_of .device_grown)" = true ]
	echo more >"$MNT/more"
	detach_whole ext4
}
