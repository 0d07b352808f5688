#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A card that is pulled out while much happens: away.bats has what a person sees.

load lib
load away
AWAY_LIMIT=60s

@test "away: RAM fills up, writers wait, nothing fails, and all is committed when the card is back" {
	local writer
	protected --ram 24M
	random_file "$T/much" 60
	pull_away
	background dd if="$T/much" of="$MNT/much" bs=1M conv=fsync status=none 2>"$T/errors"
	writer=$BG
	full() { [[ $(status_of .pressure.level) =~ commit|full ]]; }
	wait_for 20 full
	sleep 5
	kill -0 "$writer"
	[ "$(status_of .pressure.gave_up)" = false ]
	[ "$(status_of .alarm)" = "" ]
	back_again
	wait "$writer"
	[ ! -s "$T/errors" ]
	detach
	CARD=$LOOP
	fsck ext4
	mount -o ro "$LOOP" "$MNT"
	cmp "$T/much" "$MNT/much"
}

@test "away: a contact that flaps 10 times a second is one line and one event a minute, and costs little" {
	local seconds=${COWFS_FLAP_SECONDS:-6} before pids lines
	protected
	background "$COWFS_BUILD/cowctl" status --follow >"$T/events"
	background bash -c "while :; do dd if='$DEV' of=/dev/null bs=64k skip=\$((RANDOM % 1000)) count=1 iflag=direct status=none
		echo x | dd of='$MNT/w' conv=notrunc,fsync status=none; sleep 0.02; done"
	pids=("$BG")
	background bash -c "while :; do '$COWFS_BUILD/cowctl' commit '$NAME' >/dev/null 2>&1; sleep 1; done"
	pids+=("$BG")
	before=$(cpu_s)
	flaps "$seconds"
	until [ "$(status_of .away.times)" -gt 2 ]; do flaps 2; done
	before=$(awk "BEGIN { print $(cpu_s) - $before }")
	here_again
	kill "${pids[@]}"
	lines=$(dmesg | grep "cowfs: $NAME: " | sed 's/^[^]]*] //')
	say "$before s of CPU in $seconds s, away $(status_of .away.times) times, $(wc -l <<<"$lines") lines of the log, $(wc -l <"$T/events") events"
	echo "$lines"
	awk -v cpu="$before" -v s="$seconds" 'BEGIN { exit !(cpu < s / 5) }'
	[ "$(grep -c 'is away: it was pulled' <<<"$lines")" -le $((1 + seconds / 60)) ]
	[ "$(wc -l <<<"$lines")" -le $((4 + seconds / 10)) ]
	cat "$T/events"
	[ "$(grep -Ec "^$NAME (away|back)" "$T/events")" -le $((2 + 2 * (seconds / 60))) ]
	cow commit "$NAME"
	[ "$(cksum <"$MNT/base")" = "$SUM" ]
	detach_whole ext4
}

# bats test_tags=blunt
@test "away: the worker is killed meanwhile, and the next one waits for the card" {
	local before
	protected --on-crash replace
	echo kept >"$MNT/new"
	sync -f "$MNT"
	pull_away
	before=$(worker_pid)
	kill -9 "$before"
	sleep 3
	back
	wait_for 30 another
	[ "$(status_of .device)" = "$LOOP" ] || { cow status "$NAME"; dmesg | grep "cowfs: $NAME: "; false; }
	[ "$(cat "$MNT/new")" = kept ]
	[ "$(cksum <"$MNT/base")" = "$SUM" ]
	cow commit
	loop_down "$CARD"
	CARD=$LOOP
	# and the one after that has the new device
	before=$(worker_pid)
	kill -9 "$before"
	wait_for 30 another
	[ "$(status_of .device)" = "$LOOP" ]
	cow commit
	detach_whole ext4
}

@test "away: a log on a card of its own, one of the two, and both" {
	local base log
	two_cards
	base=$CARD log=$LOG
	mount_volume
	random_file "$MNT/base" 4
	SUM=$(cksum <"$MNT/base")
	cow commit >/dev/null
	CARD=$log
	pull
	log_away() { [ "$(status_of .away.log)" = true ]; }
	log_here() { [ "$(status_of .away.log)" = false ]; }
	wait_for 5 log_away
	[ "$(status_of .away.base)" = false ]
	echo 1 >"$MNT/1"
	fails 5 'the card is away' commit "$NAME"
	back "$T/log.img"
	wait_for 15 log_here
	[ "$(status_of .log_device)" = "$LOOP" ]
	stays
	loop_down "$log"
	log=$LOOP
	cow commit
	CARD=$base
	pull_away
	echo 2 >"$MNT/2"
	back_again
	stays
	[ "$(status_of .device)" = "$LOOP" ]
	cow commit
	[ "$(cksum <"$MNT/base")" = "$SUM" ]
	detach
	loop_down "$base"
	loop_down "$log"
	CARD=$LOOP
	fsck ext4
	mount -o ro "$CARD" "$MNT"
	[ "$(cat "$MNT/1" "$MNT/2")" = "1
2" ]
}

# bats test_tags=blunt
@test "away: a reader whose device stays while the card is out" {
	protected
	pull_away
	echo 1 >"$MNT/1"
	fails 5 'the card is away' commit "$NAME"
	stays
	here_again
	[ "$(status_of .device)" = "$CARD" ]
	committed() { [ "$(status_of .generation)" = 2 ]; }
	wait_for 5 committed
	detach_whole ext4
}

@test "away: what only the card has waits, for more readers than there are threads, and what RAM has is read as ever" {
	local i pids=()
	protected
	echo ram | dd of="$MNT/ram" conv=fsync status=none
	forget
	for i in $(seq 0 39); do # not where the file system writes its descriptors meanwhile
		dd if="$DEV" bs=64k skip=$((20 * i + 10)) count=1 iflag=direct status=none >"$T/right.$i"
	done
	pull_away
	for i in $(seq 0 39); do
		background dd if="$DEV" of="$T/read.$i" bs=64k skip=$((20 * i + 10)) count=1 iflag=direct status=none
		pids+=("$BG")
	done
	background cat "$MNT/base" >"$T/base"
	pids+=("$BG")
	sleep 1
	goes_on() {
		dd if="$MNT/ram" iflag=direct of=/dev/null bs=4096 count=1 status=none
		echo "$i" | dd of="$MNT/ram$i" conv=fsync status=none
	}
	for i in $(seq 5); do
		soon 2 goes_on
	done
	for i in "${pids[@]}"; do
		kill -0 "$i"
	done
	back_again
	for i in "${pids[@]}"; do
		wait "$i"
	done
	for i in $(seq 0 39); do
		cmp "$T/right.$i" "$T/read.$i"
	done
	[ "$(cksum <"$T/base")" = "$SUM" ]
	detach
}

@test "away: a detach that discards needs no card" {
	protected
	echo lost >"$MNT/lost"
	sync -f "$MNT"
	umount_volume
	pull_away
	fails 5 'the card is away' detach "$NAME"
	cow detach --discard "$NAME"
	wait_for 20 no_daemons
	stays
	fsck ext4
}
