#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# max-commit-time: whenever power is about to end, everything is on the card in that time. And commit --deadline.
# seconds: 100

load lib

# each with its own content, over and over, of any size, some in place
writer() {
	python3 - "$MNT" "$T/stop" <<'PY'
import os, random, sys
r, n = random.Random(7), 0
while not os.path.exists(sys.argv[2]):
    size = r.choice([4096, 65536, 1 << 18, 1 << 20])
    with open(f"{sys.argv[1]}/file{n % 40}", "r+b" if n >= 40 else "wb") as f:
        f.seek(r.randrange(0, 4) << 20)
        f.write(os.urandom(size))
    n += 1
PY
}

# What the card has had to do so far takes so many milliseconds, at 2 ms for a request and 5 MB/s.
card_ms() {
	local s
	read -ra s <"/sys/block/${CARD#/dev/}/stat"
	echo $(((s[0] + s[4]) * 2 + (s[2] + s[6]) * 512 / 5000))
}

# FS LIMIT_S: commits at any moment of a writer that never waits, on a card of 5 MB/s
never_longer() {
	local fs=$1 limit=$2 ms worst=0
	shift 2
	card_prepared "$fs" 400 512 "$@"
	with_shim attach --ram 256M --max-commit-time "${limit}s"
	mount_volume -o noatime
	eio card 2 5
	background writer
	wait_for 60 limit_commits 1 # the card has shown how fast it is
	for _ in 1 2 3 4 5; do
		sleep 0.$((RANDOM % 10))
		kill -STOP "$BG"
		ms=$(card_ms)
		cow commit
		ms=$(($(card_ms) - ms))
		kill -CONT "$BG"
		[ $ms -le $worst ] || worst=$ms
	done
	touch "$T/stop"
	say "$fs: longest of 5 commits: work of $worst ms of $((limit * 1000)), $(status_of .pressure.commits) because of the limit"
	[ "$(status_of '.pressure.max_commit_seconds | floor')" = "$limit" ]
	[ "$(status_of .write_errors)" = 0 ]
	[ $worst -le $((limit * 1000)) ]
	wait "$BG"
	eio off
	cow commit # none because of the limit may come while the volume is unmounted
	detach_whole "$fs"
}
limit_commits() { [ "$(status_of .pressure.commits)" -ge "$1" ]; }

@test "max-commit-time: 6 s are kept at any moment on a card of 5 MB/s (ext4)" { never_longer ext4 6 -J size=8 -O orphan_file; }
@test "max-commit-time: 12 s are kept at any moment on a card of 5 MB/s (xfs)" { never_longer xfs 12; }

# Files with a number, each whole at any moment; "n" has the newest one that is written.
numbers() {
	python3 - "$MNT" "$T" <<'PY'
import os, random, sys
mnt, t = sys.argv[1:]
n, test = int(open(t + "/n").read()), os.getppid()
while not os.path.exists(t + "/stop") and os.getppid() == test:
    n += 1
    with open(mnt + "/new", "wb") as f:
        f.write(b"%8d" % n * random.choice([512, 8192, 1 << 15, 1 << 17]))
    os.rename(mnt + "/new", f"{mnt}/{n % 40}")
    with open(t + "/n.new", "w") as f:
        f.write(str(n))
    os.rename(t + "/n.new", t + "/n")
PY
}

# FIRST NEWEST: all files are whole, and those of the numbers from FIRST to NEWEST are there, or newer ones
has_numbers() {
	python3 - "$MNT" "$1" "$2" <<'PY'
import sys
mnt, first, newest = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for i in range(newest - 39, newest + 1):
    try:
        data = open(f"{mnt}/{i % 40}", "rb").read()
    except FileNotFoundError:
        data = b""
    if data != data[:8] * (len(data) // 8) or i >= first and (not data or int(data[:8]) < i):
        sys.exit(f"{i} is {data[:8]}, {len(data)} bytes")
PY
}

# MS MB_PER_S: power ends 5 s after the signal, which is the limit: a commit may have just begun, and the program goes on
power_ends() {
	local from first newest writer shutdown
	with_shim attach --ram 256M --max-commit-time 5s
	mount_volume -o noatime,dioread_lock # as mount.cowfs does: files that are replaced without fsync
	eio card "$@"
	rm -f "$T/stop"
	first=$(($(cat "$T/n") + 1)) # what was written after the last signal may be lost
	background numbers
	writer=$BG
	sleep $((2 + RANDOM % 2)).$((RANDOM % 10)) # the card shows how fast it is
	newest=$(cat "$T/n")
	from=$EPOCHREALTIME
	background cow shutdown --within 5s >"$T/shutdown" 2>&1
	shutdown=$BG
	sleep "$(python3 -c "print(max(0, 5 - $EPOCHREALTIME + $from))")"
	touch "$T/stop"
	kill -9 "$(worker_pid)"
	wait "$writer" "$shutdown" || :
	clear_after_cut
	eio off
	cat "$T/shutdown"
	attach
	mount_volume -o ro
	if ! grep -q 'vol: everything is on the card' "$T/shutdown"; then
		missed=$((missed + 1))
		has_numbers $((newest + 1)) "$newest"
		has_numbers "$first" "$newest" || told=$((told + 1))
	else
		has_numbers "$first" "$newest"
	fi
	detach
}

@test "max-commit-time: power ends after this time, and all that was written is on the card" {
	local cuts=${COWFS_POWER_CUTS:-2} missed=0 told=0 i
	card_prepared ext4 400 512 -J size=8
	echo 0 >"$T/n"
	for ((i = 1; i <= cuts; i++)); do
		if ((i % 2)); then power_ends 2 5; else power_ends 1 80; fi
	done
	say "$cuts cuts; $missed times it was said that not everything is on the card, $told times something from before the signal was not"
	fsck ext4
}

# Without dioread_lock most of the 40 files may be empty.
@test "commit: files that replace others without an fsync are whole in each generation" {
	local n writer
	volume_attached ext4 400 512 -J size=8
	mount_volume -o noatime,dioread_lock
	echo 0 >"$T/n"
	background numbers
	writer=$BG
	all_there() { [ "$(cat "$T/n")" -ge 40 ]; }
	wait_for 300 all_there
	for _ in 1 2 3; do
		sleep 0.$((RANDOM % 10))
		n=$(cat "$T/n")
		cow commit
		mkdir -p "$T/view"
		cow view vol "$T/view"
		MNT=$T/view has_numbers $((n - 39)) "$n"
		umount "$T/view"
	done
	touch "$T/stop"
	wait "$writer"
}

@test "max-commit-time: a card that is too slow for it is named" {
	card_prepared ext4 200 300 -J size=8
	shim_mounted --ram 96M --max-commit-time 1s
	eio slow 300
	echo 1 >"$MNT/a"
	cow commit
	eio off
	[ "$(status_of .pressure.card_too_slow)" = true ]
	answer=$(cow status)
	grep -q 'commit time.*at most 1 s: THE CARD IS TOO SLOW' <<<"$answer"
	detach
}

@test "max-commit-time: how slow a card was is known at the next attach" {
	card_prepared ext4 200 300 -J size=8
	shim_mounted --ram 96M
	eio card 2 1
	random_file "$MNT/a" 4
	cow commit
	eio off
	detach
	attach_mounted --ram 96M --max-commit-time 5s
	dd if=/dev/urandom of="$MNT/b" bs=64K count=8 status=none # less than what commits by itself
	sync -f "$MNT"
	# 0.5 s is what a card of 4 MiB/s would take
	jq -e '.pressure.commits == 0 and .pressure.commit_seconds > 0.7' <(cow status --json vol)
	# for 5 s: few and small requests
	[ "$(cat "/sys/block/${DEV#/dev/}/queue/nr_requests")" -le 20 ]
	[ "$(cat "/sys/block/${DEV#/dev/}/queue/max_sectors_kb")" -le 128 ]
	detach
}

# more writes at a time than the device has requests
direct_writers() {
	python3 - "$MNT/big" "$T/stop" <<'PY'
import mmap, os, random, sys, threading
def run(k):
    fd, m, r = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, 65536), random.Random(k)
    while not os.path.exists(sys.argv[2]):
        m[:] = os.urandom(65536)
        os.pwritev(fd, [m], r.randrange(0, 60 * 16) * 65536)
threads = [threading.Thread(target=run, args=(k,)) for k in range(32)]
[t.start() for t in threads]
[t.join() for t in threads]
PY
}

@test "max-commit-time: reads go on while the card fails" {
	card_prepared ext4 400 512 -J size=8
	with_shim attach --ram 256M --max-commit-time 5s
	mount_volume -o noatime
	random_file "$MNT/old" 20
	random_file "$MNT/big" 60
	cow commit --checkpoint
	eio card 2 5
	background direct_writers
	wait_for 60 limit_commits 1
	eio write 0 100000000
	sleep 14 # as long as replies may be held
	for i in 1 7 13; do
		timeout "$(patience 5)" dd if="$MNT/old" of=/dev/null bs=4096 count=1 skip=$((i * 256)) iflag=direct status=none
	done
	eio off
	touch "$T/stop"
	wait "$BG"
	cow commit
	detach_whole ext4
}

@test "max-commit-time: refused where it cannot be kept" {
	card_prepared btrfs 200 300
	fails 1 'max-commit-time cannot be kept on btrfs' attach "$CARD" --max-commit-time 5s
	loop_down "$CARD"
	IMG=''
	card_prepared ext4 100 150
	fails 1 'pressure=fail forbids them' attach "$CARD" --max-commit-time 5s --pressure fail
	fails 1 'with checkpoint=always' attach "$CARD" --max-commit-time 5s --checkpoint always
	for t in 0 0.5s 11m 5x ''; do
		fails 2 'is not a time from 1s to 600s' attach "$CARD" --max-commit-time "$t"
	done
}

@test "commit --deadline: only what fits is begun, and nothing is lost" {
	local before
	card_prepared ext4 200 300 -J size=8
	shim_mounted --ram 96M
	random_file "$MNT/a" 30
	sync -f "$MNT"
	before=$(card_written)
	fails 1 'not begun: it would take about [0-9.]+ s, and (2.0|[01].[0-9]) s are left; everything stays in RAM' commit --deadline 2s
	[ "$(card_written)" = "$before" ]
	[ "$(status_of .alarm)" = "" ]
	[ "$(status_of .last)" = null ]
	cow commit --deadline 60s
	# it has shown its speed
	random_file "$MNT/b" 1
	answer=$(cow commit --deadline 2s --json)
	jq -e .ok <<<"$answer"
	for t in 0 x -1s; do
		fails 2 'is not a time' commit "--deadline=$t"
	done
	fails 2 'without --checkpoint' commit --deadline 5s --checkpoint
	fails 2 'a PATH and --deadline are mutually exclusive' commit --deadline 5s "$MNT/a"
	detach_whole ext4
}

@test "max-commit-time: a root where it cannot be kept is protected without it, and says so" {
	card_prepared ext4 100 150
	NAME=vol
	DEV=$("$COWFS_BUILD/cowfs" "$CARD" --name vol --max-commit-time 5s --checkpoint always --running-root)
	[ "$(status_of ".pressure.max_commit_seconds == 0")" = true ]
	[[ "$(status_of .alarm)" == "max-commit-time cannot be kept with checkpoint=always"* ]]
	detach
}
