#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031,SC2154 # each test is a subshell; run sets status, output and stderr
# A card that is pulled out, and comes back as another device: what else is on the machine, and in the way. See away.bats.
# bats file_tags=commands

load lib
load away

setup() {
	cow_setup
	stays
}

# two_cards [OPTION]...: CARD, and its log on LOG, attached
two_cards() {
	card_make ext4 100 100 -b 4096
	truncate -s "+${ODD_KIB}K" "$IMG"
	losetup -c "$CARD"
	truncate -s 40M "$T/log.img"
	truncate -s "+$((ODD_KIB + 4))K" "$T/log.img"
	LOG=$(losetup -f --show "$T/log.img")
	cow format --log "$LOG" "$CARD" >/dev/null
	with_gone attach --log "$LOG" "$@"
}

@test "away: the disk of the volume has the size of the card, and is not looked at" {
	two_cards
	pull
	wait_for 5 is_away
	sleep 1.5
	[ "$(blockdev --getro "$DEV")" = 0 ]
	[ "$(status_of .away.refused)" = "" ]
	back
	here_again
	detach
}

@test "away: an older copy of a card whose log is elsewhere" {
	two_cards
	mount_volume
	random_file "$MNT/base" 4
	cow commit --checkpoint >/dev/null
	blockdev --flushbufs "$CARD"
	cp --sparse=always "$IMG" "$T/older.img"
	dd if=/dev/urandom of="$MNT/base" bs=1M count=4 conv=notrunc,fsync status=none
	cow commit --checkpoint >/dev/null
	pull
	wait_for 5 is_away
	back "$T/older.img"
	wait_for 10 refuses "^${LOOP#/dev/}: it has another state"
	is_away
	wait_for 5 released "$LOOP"
	back
	here_again
	detach
}

@test "away: pulled in the middle of a commit, and back as the same device: it is read-only" {
	local n
	protected
	for n in 1 3 5; do
		random_file "$MNT/new$n" 2
		stays
		pull "$n"
		cow commit --hold >/dev/null 2>&1 || true
		wait_for 5 is_away
		stays
		here_again
		[ "$(blockdev --getro "$CARD")" = 1 ]
		[ "$(status_of .card.foreign_bytes)" = 0 ]
		cow commit >/dev/null
	done
	cow accept vol >/dev/null 2>&1 || true
	detach
	fsck ext4
}

@test "away: a stranger that a person has made read-only stays so" {
	local other
	protected
	truncate -s "$(stat -c %s "$IMG")" "$T/other.img"
	pull
	wait_for 5 is_away
	other=$(losetup -f --show "$T/other.img")
	blockdev --setro "$other"
	wait_for 10 refuses "^${other#/dev/}: "
	status_of .away.refused
	free() { python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)' "$other"; }
	wait_for 5 free
	[ "$(blockdev --getro "$other")" = 1 ]
	back
	here_again
	detach
}

@test "away: a commit with a hold is not made later without one" {
	local generation
	protected
	generation=$(status_of .generation)
	echo new >"$MNT/new"
	sync -f "$MNT"
	pull
	wait_for 5 is_away
	run -5 --separate-stderr cow commit vol --hold
	[[ $stderr != *"is made when"* ]]
	back
	here_again
	sleep 1
	[ "$(status_of .generation)" = "$generation" ]
	[ "$(status_of .dirty_blocks)" -gt 0 ]
	detach
}
