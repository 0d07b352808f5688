#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Somebody kills any process of a daemon whose card is away or looked at, and cards that change while they are looked at.
# COWFS_ATTACKS: how often
# seconds: 55

load lib
load away
AWAY_LIMIT=60s

# stamp N: a file all of whose blocks say N, synced
stamp() {
	python3 -c 'import os, sys
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(f, sys.argv[2].rjust(4096).encode() * 64)
os.fsync(f)' "$MNT/stamp" "$1"
}

# the N of that file; fails if its blocks differ
stamped() {
	python3 -c 'import sys
b = open(sys.argv[1], "rb").read()
n = {b[i:i + 4096] for i in range(0, len(b), 4096)}
assert len(n) == 1 and len(b) == 64 * 4096, (len(n), len(b))
print(n.pop().decode().strip())' "$MNT/stamp"
}

# no process of these daemons has crashed since the line that was the last then (others do so in other tests, on purpose)
no_crash() {
	local pids
	pids=$(sort -u "$T/pids" | paste -sd '|')
	run bash -c "dmesg | sed '1,/$MARK/d' | grep -E ' pid=($pids) .* sig=[1-9]|cowfs\[($pids)\]: segfault|worker ($pids) was killed by signal ([0-8]|[1-9].)\b'"
	echo "$output"
	[ "$status" = 1 ]
}

mark() {
	MARK=cowfs-away-attack-$$-$RANDOM
	echo "$MARK" >/dev/kmsg
}

# what the card has, without the daemon that is dead: N
seen_again() {
	timeout 300 umount "$MNT"
	wait_for 20 no_daemons
	loop_removed
	blockdev --setrw "$CARD"
	attach_mounted
	stamped
}

gone_or_here() { [ -z "$(daemons)" ] || is_here; }

# attack I: one life
attack() {
	local moment=$((RANDOM % 3)) n before=$((2 * $1)) victim pids code
	stays
	with_gone attach --away-limit $AWAY_LIMIT --on-crash replace
	mount_volume
	echo before >"$MNT/pulled"
	stamp "$before"
	cow commit >/dev/null
	stamp $((before + 1))
	forget
	pull $((RANDOM % 12))
	cow commit >/dev/null 2>&1 || true
	echo pulled | dd of="$MNT/pulled" conv=notrunc,fsync status=none
	pull # if the commit had no more writes
	wait_for 5 is_away
	background dd if="$DEV" of=/dev/null bs=64k count=20 iflag=direct status=none
	mapfile -t pids < <(daemons | tee -a "$T/pids")
	victim=${pids[RANDOM % ${#pids[@]}]}
	echo "$1: $victim of ${pids[*]}, worker $(worker_pid), at moment $moment"
	[ $moment != 0 ] || kill -9 "$victim"
	back
	[ $moment = 0 ] || sleep "0.$((RANDOM % 7))$((RANDOM % 10))"
	[ $moment = 0 ] || kill -9 "$victim" 2>/dev/null || true
	wait_for 40 gone_or_here
	stays
	loop_down "$CARD"
	CARD=$LOOP
	if [ -n "$(daemons | tee -a "$T/pids")" ]; then
		GOES_ON=$((GOES_ON + 1))
		n=$(stamped)
		[ "$n" = $((before + 1)) ]
		code=0
		cow commit >/dev/null 2>"$T/err" || code=$?
		# without a broker the card cannot be made writable
		[ $code = 0 ] || { cat "$T/err"; grep -q 'broker\|everything stays in RAM' "$T/err"; }
		if [ $code != 0 ]; then
			umount_volume
			cow detach --discard "$NAME"
			wait_for 20 no_daemons
			attach_mounted
			n=$(stamped)
		fi
	else
		n=$(seen_again)
	fi
	[ "$n" = "$before" ] || [ "$n" = $((before + 1)) ]
	detach_whole ext4
}

@test "away: any process is killed while the card is away, or is looked at" {
	local i
	GOES_ON=0
	protected
	detach
	mark
	for i in $(seq "${COWFS_ATTACKS:-$(rounds 6)}"); do
		attack "$i"
		clear_jobs || true
	done
	say "${COWFS_ATTACKS:-$(rounds 6)} lives: $GOES_ON went on, the others ended; each had one of the two moments, whole"
	no_crash
}

@test "away: a card changes while it is looked at" {
	local i n taken=0 refused=0 writer
	protected
	detach
	cp --sparse=always "$IMG" "$T/keep.img"
	mark
	for i in $(seq "${COWFS_ATTACKS:-$(rounds 6)}"); do
		cp --sparse=always "$T/keep.img" "$IMG"
		blockdev --flushbufs "$CARD"
		stays
		with_gone attach --away-limit $AWAY_LIMIT
		mount_volume
		daemons >>"$T/pids"
		stamp "$i"
		cow commit >/dev/null
		forget
		pull_away
		# what a reader that lies would give: the log, its superblocks and the file system, each block this way and that
		cat >"$T/changes.py" <<-'END'
			import os, random, sys, time
			f = os.open(sys.argv[1], os.O_RDWR)
			size = os.fstat(f).st_size
			log = 102 << 20
			while not os.path.exists(sys.argv[2]): # so that the last block is put back
			    at = random.choice((0, log + random.randrange(0, 40 << 20) // 4096 * 4096, (size - 1) // 4096 * 4096 - 4096))
			    old = os.pread(f, 4096, at)
			    if any(old):
			        os.pwrite(f, os.urandom(64), at + random.randrange(0, 4032))
			        time.sleep(random.choice((0, 0.002, 0.02)))
			        os.pwrite(f, old, at)
		END
		rm -f "$T/stop"
		background python3 "$T/changes.py" "$IMG" "$T/stop"
		writer=$BG
		back
		for n in 1 2 3 4 5 6; do
			sleep 0.3
			soon 2 status_of .away.base >"$T/away"
		done
		if [ "$(cat "$T/away")" = true ]; then refused=$((refused + 1)); else taken=$((taken + 1)); fi
		cow commit >/dev/null 2>&1 || true
		touch "$T/stop"
		wait "$writer"
		[ "$(stamped)" = "$i" ]
		stays
		umount_volume
		daemons >>"$T/pids"
		cow detach --discard "$NAME"
		wait_for 20 no_daemons
		loop_down "$CARD"
		CARD=$LOOP
	done
	say "taken $taken times, refused $refused times"
	no_crash
}

# the card is gone, another device of its size is there, and the search is attacked; other: what that had
search_attacked() {
	truncate -s 65536 "$T/hostile"
	ATTACKER=$COWFS_BUILD/tests/hostile.so COWFS_HOSTILE_FILE=$T/hostile protected_card 150 4096 4
	truncate -s "$(stat -c %s "$IMG")" "$T/other.img"
	head -c 1M /dev/urandom | dd of="$T/other.img" conv=notrunc status=none
	other=$(image_sum "$T/other.img")
	pull
	back "$T/other.img"
	wait_for 5 is_away
	printf 4 | dd of="$T/hostile" conv=notrunc status=none
	wait_for 60 grep -aqx 'done' "$T/hostile"
}

# bats test_tags=blunt
@test "away: code in a worker whose card is gone gets no other device of its size, and the card when it is back" {
	local other
	! ldd "$COWFS_BUILD/cowfs" | grep -Eq 'libasan|libtsan' || skip "no filter in builds with sanitizers"
	unset COWFS_SECCOMP
	# a broker that takes each device for the card
	COWFS_HOSTILE_OPEN=card search_attacked
	grep -aqx 'search another device SUCCEEDED' "$T/hostile"
	[ "$(image_sum "$T/other.img")" != "$other" ]
	kill -9 $(daemons)
	wait_for 20 no_daemons
	timeout 300 umount "$MNT"
	wait_for 20 loop_removed
	loop_down "$LOOP"
	cow status >/dev/null 2>&1 || :
	rm "$T/hostile"
	stays
	search_attacked
	grep -aq 'search answered SUCCEEDED' "$T/hostile"
	grep -aqx 'search another device refused' "$T/hostile"
	[ "$(image_sum "$T/other.img")" = "$other" ]
	wait_for 5 released "$LOOP"
	back_again
	[ "$(cksum <"$MNT/base")" = "$SUM" ]
	cow commit "$NAME"
	detach
}

# a FAT32 without serial number, label and kind, which a driver mounts all the same: only the geometry is left
@test "away: a card that says nothing of whose it is is not found again, and code in its worker gets no other one" {
	local other size=$((100 * 1024 + ODD_KIB))
	! ldd "$COWFS_BUILD/cowfs" | grep -Eq 'libasan|libtsan' || skip "no filter in builds with sanitizers"
	unset COWFS_SECCOMP
	IMG=$T/card.img
	truncate -s "${size}K" "$IMG" "$T/other.img"
	mkfs.vfat -F 32 -i 11111111 "$IMG" >/dev/null
	mkfs.vfat -F 32 -i DEADBEEF -n OTHER "$T/other.img" >/dev/null
	dd if=/dev/zero of="$IMG" bs=1 seek=66 count=38 conv=notrunc status=none
	other=$(image_sum "$T/other.img")
	CARD=$(losetup -f --show "$IMG")
	truncate -s "$((40 * 1024 + ODD_KIB + 4))K" "$T/log.img"
	LOG=$(losetup -f --show "$T/log.img")
	cow prepare --log "$LOG" "$CARD" >/dev/null
	truncate -s 65536 "$T/hostile"
	ATTACKER=$COWFS_BUILD/tests/hostile.so COWFS_HOSTILE_FILE=$T/hostile with_gone attach --away-limit $AWAY_LIMIT --log "$LOG"
	pull
	back "$T/other.img"
	wait_for 5 is_away
	printf 4 | dd of="$T/hostile" conv=notrunc status=none
	wait_for 60 grep -aqx 'done' "$T/hostile"
	grep -aq 'search answered SUCCEEDED' "$T/hostile"
	grep -aqx 'search another device refused' "$T/hostile"
	[ "$(image_sum "$T/other.img")" = "$other" ]
	cow detach --discard "$NAME"
}

@test "away: a card comes back among 24 others of its size" {
	local i
	protected
	pull_away
	for i in {1..24}; do
		truncate -s "$(stat -c %s "$IMG")" "$T/other$i.img"
		back "$T/other$i.img"
	done
	sleep 3
	back_again
	[ "$(status_of .device)" = "$LOOP" ]
	detach
}
