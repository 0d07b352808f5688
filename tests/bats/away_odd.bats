#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A card that is pulled out, and comes back as another device: what else is on the machine, and in the way. See away.bats.
# seconds: 55

load lib
load away
AWAY_LIMIT=60s

# one_kib [OPTION]...: as protected, with blocks of 1 KiB: most writes need the card
one_kib() {
	protected_card 250 1024 8 "$@"
	forget
}

# end_all PID...: all of them end well
end_all() {
	local pid
	for pid; do
		timeout 300 tail --pid="$pid" -f /dev/null
		wait "$pid"
	done
}

@test "away: the disk of the volume has the size of the card, and is not looked at" {
	two_cards
	pull_away
	searched 3
	[ "$(blockdev --getro "$DEV")" = 0 ]
	[ "$(status_of .away.refused)" = "" ]
	back_again
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
	pull_away
	back "$T/older.img"
	wait_for 10 refuses "^${LOOP#/dev/}: it has another state"
	is_away
	wait_for 5 released "$LOOP"
	back_again
	detach
}

# bats test_tags=blunt
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
	cow accept "$NAME" >/dev/null 2>&1 || true
	detach_whole ext4
}

@test "away: a stranger that a person has made read-only stays so" {
	local other
	protected
	truncate -s "$(stat -c %s "$IMG")" "$T/other.img"
	pull_away
	other=$(losetup -f --show "$T/other.img")
	blockdev --setro "$other"
	wait_for 10 refuses "^${other#/dev/}: "
	status_of .away.refused
	free() { python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)' "$other"; }
	wait_for 5 free
	[ "$(blockdev --getro "$other")" = 1 ]
	back_again
	detach
}

@test "away: a commit with a hold is not made later without one" {
	local generation
	protected
	generation=$(status_of .generation)
	echo new >"$MNT/new"
	sync -f "$MNT"
	pull_away
	run -5 --separate-stderr cow commit "$NAME" --hold
	[[ $stderr != *"is made when"* ]]
	back_again
	for _ in 1 2; do cow commit "$NAME" --dry-run; done # behind what waited for the card
	[ "$(status_of .generation)" = "$generation" ]
	[ "$(status_of .dirty_blocks)" -gt 0 ]
	detach
}

@test "away: the worker is killed while reads, and writes of parts of blocks, wait" {
	local i before pids=()
	one_kib --on-crash replace
	pull_away
	for i in $(seq 0 19); do
		background dd if="$DEV" of=/dev/null bs=64k skip=$((20 * i)) count=1 iflag=direct status=none
		pids+=("$BG")
	done
	background dd if=/dev/zero of="$MNT/small" bs=1024 count=3000 oflag=direct status=none
	pids+=("$BG")
	background cksum "$MNT/base" >"$T/base"
	pids+=("$BG")
	sleep 1
	before=$(worker_pid)
	kill -9 "$before"
	sleep 1
	back
	wait_for 30 another
	end_all "${pids[@]}"
	[ "$(cut -d' ' -f1-2 "$T/base")" = "$SUM" ]
	cow commit --checkpoint >/dev/null
	# what the kernel counts is compared again
	[ "$(status_of '"\(.card.have_kernel_counters) \(.card.foreign_bytes)"')" = "true 0" ]
	CARD=$LOOP
	detach_whole ext4
}

@test "away: little RAM, writes of parts of blocks, and readers behind them" {
	local i pids=()
	one_kib --ram 16M
	random_file "$T/much" 30
	pull_away
	background dd if="$T/much" of="$MNT/much" bs=1k oflag=direct status=none
	pids+=("$BG")
	background dd if="$T/much" of="$MNT/much2" bs=1M conv=fsync status=none
	pids+=("$BG")
	for i in 1 2 3 4; do
		background cksum "$MNT/base" >"$T/base.$i"
		pids+=("$BG")
	done
	sleep 4
	back_again
	end_all "${pids[@]}"
	for i in 1 2 3 4; do
		[ "$(cut -d' ' -f1-2 "$T/base.$i")" = "$SUM" ]
	done
	cmp "$T/much" "$MNT/much"
	cmp "$T/much" "$MNT/much2"
	[ "$(status_of .card.foreign_bytes)" = 0 ]
	CARD=$LOOP
	detach_whole ext4
}
