#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A card that is pulled out while a command works on it: the command ends, and says what is on the card and what to do; when the
# card is there again, the same command works. away.bash has how a card goes.
# seconds: 75

load lib
load away

# A card goes with the K-th of these, or all; so many that no operation of this file has more
MOMENTS=(0 1 2 3 5 8 12 16 20 25 30 35 40 50 60 80 100 150)

# pulled N REGEX COMMAND...: CARD goes after N (as for pull) while COMMAND runs, which says so and what is on it. Fails if it did not
# come to that.
pulled() {
	local n=$1 regex=$2 code=0 # a minute at most: cow
	shift 2
	stays
	pull $n
	with_gone cow "$@" >"$T/out" 2>"$T/err" </dev/null || code=$?
	if ! is_gone; then
		echo "pulled after $n: never: $code"
		[ $code = 0 ] || { cat "$T/err"; GONE=wrong; }
		return 1
	fi
	stays
	GONE=$((GONE + 1))
	[ $code = 0 ] || # with the last of its requests
		{ [ $code = 5 ] && [ ! -s "$T/out" ] && [ "$(grep -c '^cowctl: ' "$T/err")" = 1 ] &&
			grep -Eq "^cowctl: $CARD: the card is away: it was pulled out, or has reset\. ($regex)\. Plug it in, and run the same command again$" "$T/err"; } ||
		{ echo "pulled after $n: exit code $code"; cat "$T/out" "$T/err"; GONE=wrong; }
	[ "$GONE" != wrong ]
}

# everywhere CLEAR REGEX COMMAND...: pulled at all moments, CARD behind it; CLEAR comes before each, and the command again after each
everywhere() {
	local clear=$1 n
	shift
	GONE=0
	for n in "${MOMENTS[@]}"; do
		"$clear"
		pulled "$n" "$@" "$CARD" || break
		again "${@:2}" "$CARD"
	done
	[ "$GONE" != wrong ]
	for n in 1 2 5 20 50 100 200 400; do
		"$clear"
		pulled "$n reads" "$@" "$CARD" || break
		again "${@:2}" "$CARD"
	done
	[ "$GONE" != wrong ]
	say "gone at $GONE moments of cowctl $2"
	[ "$GONE" -gt 6 ]
}

# the same command, and nothing is gone
again() {
	stays
	cow "$@" >"$T/out" 2>"$T/err" </dev/null || { cat "$T/err"; GONE=wrong; return 1; }
}

# bats test_tags=blunt
@test "away: pulled during prepare" {
	local n
	new() { [ -z "$CARD" ] || loop_down "$CARD"; IMG='' card_make ext4 100 150; e2fsck -fn "$CARD" >"$T/fsck" 2>&1; }
	again() {
		stays
		fsck ext4
		# both superblocks were written
		cow "$@" >"$T/out" 2>"$T/err" || grep -q 'already has a cowfs log, made' "$T/err" || { cat "$T/err"; GONE=wrong; }
		{ answer=$(cow check "$CARD") && grep -q '^verdict: good$' <<<"$answer"; } || GONE=wrong
	}
	GONE=0
	for n in 0 2 5 9 10 "1 reads" "3 reads" "9 reads"; do
		new
		pulled "$n" 'Nothing was written|Its file system is whole, and it may have no complete log' prepare "$CARD"
		again prepare "$CARD"
	done
	[ "$GONE" = 8 ]
}

@test "prepare: a log of which one superblock was written is made without --force, a used one is not" {
	card_make ext4 100 150
	stays
	pull 10
	run -5 with_gone cow prepare "$CARD"
	stays
	run -3 cow check "$CARD"
	[[ $output == *"copy B is DAMAGED, copy A is good"* ]]
	cow prepare "$CARD"
	answer=$(cow check "$CARD")
	grep -q 'both copies good' <<<"$answer"
	attach_mounted
	echo 1 >"$MNT/1"
	detach
	logedit break B
	fails 1 'already has a cowfs log' prepare "$CARD"
}

# bats test_tags=blunt
@test "away: pulled during prepare --shrink" {
	new() {
		[ -z "$CARD" ] || loop_down "$CARD"
		IMG='' card_make ext4 150 150
		mount "$CARD" "$MNT"
		random_file "$MNT/file" 2
		SUM=$(tree_sum "$MNT")
		umount "$MNT"
	}
	again() {
		stays
		cow check "$CARD" >"$T/checked" 2>&1 || true
		cow "$@" >"$T/out" 2>"$T/err" || grep -q 'already has a cowfs log, made' "$T/err" || { cat "$T/err"; GONE=wrong; }
		fsck ext4 || GONE=wrong
		[ "$(bare_sum)" = "$SUM" ] || GONE=wrong
	}
	everywhere new 'Nothing was written|Its file system is whole, and it may have no complete log|The shrink is committed, and not finished' \
		prepare --shrink
}

# bats test_tags=blunt
@test "away: pulled during release" {
	cut_card 2 ext4
	cp --sparse=always "$IMG" "$T/cut.img"
	new() {
		cp --sparse=always "$T/cut.img" "$IMG"
		blockdev --flushbufs "$CARD"
	}
	everywhere new 'Nothing was written|Its log still has everything' release
	whole_with ext4 "$SUM"
}

# bats test_tags=blunt
@test "away: pulled during check, wear and scrub of a card that is not attached" {
	local what n
	cut_card 2 ext4
	for what in check wear scrub; do
		GONE=0
		for n in 0 "1 reads" "2 reads" "5 reads" "20 reads" "50 reads" "100 reads" "200 reads" "400 reads"; do
			pulled "$n" 'Nothing was written' "$what" "$CARD" || break
			again "$what" "$CARD"
		done
		[ "$GONE" != wrong ]
		say "gone at $GONE moments of cowctl $what"
		[ "$GONE" -gt 3 ]
	done
	recovered
}

recovered() {
	recovers_to ext4 "$SUM"
}

# bats test_tags=blunt
@test "away: pulled during scrub and clone of a volume: they end when away-limit is over" {
	local n code target gone=0
	protected --away-limit 3s
	IMG=$T/target.img
	truncate -s 160M "$IMG"
	loop_up "$IMG"
	target=$LOOP
	for n in 0 "1 reads" "20 reads" "50 reads" "100 reads"; do
		for what in "scrub $NAME" "clone $NAME $target --yes"; do
			stays
			here_again
			pull $n
			code=0
			with_gone cow $what >"$T/out" 2>"$T/err" || code=$?
			! is_gone || gone=$((gone + 1))
			[ $code = 5 ] || [ $code = 0 ] || grep -q "$NAME: cannot be read. Is its card there? See cowctl status" "$T/err" ||
				{ echo "$what, $n: $code"; cat "$T/err"; false; }
			stays
			here_again
			[ $code = 0 ] || cow $what >/dev/null
		done
	done
	[ $gone -gt 6 ]
	detach
	CARD=$target
	fsck ext4
	[ "$(bare_cksum)" = "$SUM" ]
}

bare_cksum() {
	mount -o ro "$CARD" "$MNT"
	cksum <"$MNT/base"
	umount "$MNT"
}

@test "away: the target is pulled during clone" {
	local source=$CARD
	cut_card 2 ext4
	source=$CARD
	new() {
		[ "$CARD" = "$source" ] || loop_down "$CARD"
		IMG=$T/target.img card_make none 0 160
	}
	new
	MOMENTS=(0 1 3 8 20 30 40 44 46 48 50 52 54 56 58)
	again() {
		stays
		cow "$@" >"$T/out" 2>"$T/err" || { cat "$T/err"; GONE=wrong; }
		fsck ext4 || GONE=wrong
		[ "$(bare_sum)" = "$SUM" ] || GONE=wrong
	}
	GONE=0
	for n in "${MOMENTS[@]}" "1 reads" "5 reads" "20 reads" "50 reads" "100 reads"; do
		new
		pulled "$n" 'Nothing was written|The copy on it is incomplete' clone --yes "$source" "$CARD" || continue
		again clone --yes "$source" "$CARD"
	done
	[ "$GONE" != wrong ]
	say "gone at $GONE moments of cowctl clone"
	[ "$GONE" -gt 10 ]
	CARD=$source
	recovered
}

# bats test_tags=blunt
@test "away: pulled during measure" {
	local n
	card_make ext4 100 200
	mount "$CARD" "$MNT"
	random_file "$MNT/file" 2
	SUM=$(tree_sum "$MNT")
	umount "$MNT"
	cow prepare "$CARD"
	GONE=0
	pulled_in() { # N REGEX OPTION...
		local code=0
		stays
		pull $1
		with_gone cow measure "${@:3}" "$CARD" >"$T/out" 2>"$T/err" </dev/null || code=$?
		is_gone || { echo "pulled after $1: never: $code"; cat "$T/err"; false; }
		stays
		[ $code = 5 ] || { echo "pulled after $1: $code"; cat "$T/err"; false; }
		grep -Eq "^cowctl: $CARD: the card is away: it was pulled out, or has reset\. $2\. Plug it in" "$T/err"
	}
	for n in 0 1 3 6 10 100 500 "1 reads" "100 reads" "500 reads"; do
		pulled_in "$n" 'Its file system and its log are whole'
		answer=$(cow check "$CARD")
		grep -q '^verdict: good$' <<<"$answer"
	done
	whole_with ext4 "$SUM"
	attach
	detach
	for n in 1 100 "100 reads"; do
		IMG=$T/free.img card_make none 0 100
		pulled_in "$n" 'Nothing outside of the area was written' --write-area all
	done
}

# bats test_tags=blunt
@test "away: pulled during attach" {
	local n
	cut_card 2 ext4
	attach --name "$NAME" # what the dead one left is said once
	cow detach --discard "$NAME"
	wait_for 10 no_daemons
	GONE=0
	for n in 0 "1 reads" "2 reads" "3 reads" "4 reads" "8 reads" "12 reads" "16 reads" "24 reads" "32 reads" "48 reads" "64 reads"; do
		pulled "$n" 'What was committed is there' attach --name "$NAME" "$CARD" || break
		wait_for 10 no_daemons
	done
	[ "$GONE" = 12 ]
	attach_has "$SUM"
	detach
}

# bats test_tags=blunt
@test "away: pulled during detach: the volume stays, and the same detach ends it" {
	local n code gone=0
	protected
	for n in 1 2 4 8 12 16 20 24 28 32; do
		random_file "$MNT/new$n" 1
		SUM=$(tree_sum "$MNT")
		umount_volume
		pull "$n"
		code=0
		cow detach "$NAME" >"$T/out" 2>"$T/err" || code=$?
		if [ $code != 0 ]; then
			gone=$((gone + 1))
			[ $code = 5 ]
			grep -q 'the card is away (pulled out, or reset): nothing is lost, everything stays in RAM: plug it in, and try again$' "$T/err"
			back_again
			stays
			loop_down "$CARD"
			CARD=$LOOP
			cow detach "$NAME"
		fi
		stays
		wait_for 20 no_daemons
		whole_with ext4 "$SUM"
		with_gone attach
		mount_volume
	done
	detach
	say "gone at $gone moments of cowctl detach"
	[ "$gone" -gt 5 ]
}
