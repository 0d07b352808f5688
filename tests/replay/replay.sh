#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Power cuts by a recorder and an oracle that are not ours: a real ext4 on cowfs under a real workload, on a card that is a loop
# device on a file of qemu-storage-daemon, whose driver blklogwrites logs every write and flush. The log is then replayed
# to many points by replay.py, with release, e2fsck and the digest of the tree at each. As root.
#
#	replay.sh [--points N] [--rounds N] [--log MIB] [--seed N]	1000 points, 24 commits and 3 more, 2 MiB, seed by chance
#	COWFS_REPLAY_KEEP=FOLDER	leaves the recording there, for replay.py FOLDER SCRATCH --point ID;
#					a recording that failed is left in build/replay-failed
# shellcheck disable=SC2034 # variables of lib.bash
set -eu
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

here=$(cd "$(dirname "$0")" && pwd)
points=1000 rounds=24 log_mib=2 seed=$((RANDOM * 32768 + RANDOM))
while [ $# -gt 0 ]; do
	case $1 in
	--points) points=$2 ;;
	--rounds) rounds=$2 ;;
	--log) log_mib=$2 ;;
	--seed) seed=$2 ;;
	*) sed -n '/^#$/,/^# shellcheck/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
	esac
	shift 2
done
# nothing mounted here is seen outside
[ -n "${REPLAY_NAMESPACE-}" ] || REPLAY_NAMESPACE=1 exec unshare --mount --propagation private "$0" \
	--points "$points" --rounds "$rounds" --log "$log_mib" --seed "$seed"

# what bats gives to lib.bash
bats_require_minimum_version() { :; }
skip() { echo "replay: $*"; exit 1; }
exec 3>&1
COWFS_BUILD=${COWFS_BUILD:-$here/../../build}
# shellcheck disable=SC1091
. "$here/../bats/lib.bash"

# A small file system. A log of 2 MiB goes round all the time and spills; in one of 8 MiB chains grow long.
fs_mib=56 erase_kib=128
card_mib=$((fs_mib + log_mib + 2))

# ---- the recorder ----

recorder='' rec=''

recorder_start() {
	local file="driver=file,node-name"
	truncate -s 4G "$rec/writes.log"
	touch "$rec/card"
	qemu-storage-daemon --blockdev "$file=card,filename=$rec/data.img,discard=unmap" \
		--blockdev "$file=log,filename=$rec/writes.log" \
		--blockdev driver=blklogwrites,node-name=recorded,file=card,log=log,log-sector-size=512,discard=unmap \
		--export type=fuse,id=export,node-name=recorded,mountpoint="$rec/card",writable=on,growable=off \
		3>&- >"$rec/qsd.out" 2>&1 &
	recorder=$!
	wait_for 10 mountpoint -q "$rec/card" || finish "qemu-storage-daemon: $(cat "$rec/qsd.out")"
	# One request at a time, which is what the loop device does without direct I/O (the FUSE file itself caches nothing): in
	# QEMU 7.2 a second request to a FUSE export overwrites the data of a write that is under way. replay.py notices that.
	loop_up "$rec/card" --direct-io=off
	CARD=$LOOP
}

recorder_gone() { ! kill -0 "$recorder" 2>/dev/null; }

recorder_stop() {
	[ -n "$recorder" ] || return 0
	kill "$recorder"
	wait_for 10 recorder_gone || kill -9 "$recorder"
	wait "$recorder" || true
	recorder=''
}

entries() {
	python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); import blklog; print(blklog.count(sys.argv[2]))' \
		"$here" "$rec/writes.log"
}

# Would a flush be seen? One write, one flush: two entries, or more if the write came in parts.
recorder_checked() {
	dd if=/dev/zero of="$CARD" bs=4096 count=1 seek=$((card_mib * 256 - 3)) oflag=direct conv=fsync status=none
	[ "$(entries 2>/dev/null || echo 0)" -ge 2 ] || finish "the recorder saw no write or no flush"
}

# ---- the workload ----

# Always going on beside, while commits are made; its files are not in the digest.
churn_start() {
	mkdir -p "$MNT/churn"
	fio --minimal --name=churn --filename="$MNT/churn/file" --size=2M --rw=randrw --bs=4k --rate_iops=150 --fsync=16 \
		--ioengine=psync --time_based --runtime=600 --allow_file_create=1 3>&- >"$T/churn.out" 2>&1 &
	churn=$!
}

churn_stop() {
	[ -n "${churn-}" ] || return 0
	kill -INT "$churn" 2>/dev/null || true
	wait "$churn" 2>/dev/null || true
	churn=''
}

sql() {
	sqlite3 "$MNT/data/db" "$@" >/dev/null
}

# Blocks that are logged in one commit, freed in the next, and written in place by the third.
reuse() {
	local i
	mkdir -p "$MNT/data/reuse"
	for i in 1 2 3 4; do
		case $((($1 + i) % 4)) in
		0) random_file "$MNT/data/reuse/$i" 1 ;;
		1) dd if=/dev/urandom of="$MNT/data/reuse/$i" bs=4k count=8 seek=$((RANDOM % 200)) conv=notrunc status=none ;;
		2) rm -f "$MNT/data/reuse/$i" ;;
		esac
	done
}

change() {
	local n=$1 top=$here/../..
	mkdir -p "$MNT/data"
	reuse "$n"
	"$here/mix.py" "$MNT/data/mix" $((seed + n)) 120
	case $((n % 6)) in
	0) mkdir "$MNT/data/tar$n"; tar -C "$top" -cf - cowfs tests/unit | tar -C "$MNT/data/tar$n" -xf - ;;
	1) sql 'CREATE TABLE IF NOT EXISTS t(i INTEGER PRIMARY KEY, x BLOB);
		WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 300) INSERT INTO t(x) SELECT randomblob(900) FROM n;' ;;
	2) fio --minimal --name=f --filename="$MNT/data/fio" --size=3M --rw=randwrite --bsrange=1k-32k --io_size=1M --fsync=8 \
		--ioengine=psync --randseed=$((seed + n)) >"$T/fio.out" ;;
	3) rm -rf "$MNT"/data/tar*/cowfs/[a-e]*; cp -a "$top/tests/crash" "$MNT/data/copy$n" ;;
	4) sql 'PRAGMA journal_mode = WAL; UPDATE t SET x = randomblob(500) WHERE i % 7 = 0; DELETE FROM t WHERE i % 5 = 0; VACUUM;' ;;
	5) rm -rf "$MNT"/data/tar* "$MNT"/data/copy*; fstrim "$MNT" ;;
	esac
	sync -f "$MNT"
}

# ---- commits, and what is known of them ----

commits=0

mark() {
	echo "$commits $1 $2 $3" >>"$rec/marks"
}

digest() {
	"$here/tree.py" "$1"
}

commit() {
	local before sum
	before=$(entries) sum=$(digest "$MNT")
	cow commit "$NAME" "$@" >"$T/out" 2>&1 || finish "commit: $(cat "$T/out")"
	[ "$(digest "$MNT")" = "$sum" ] || finish "the tree changed under the digest"
	commits=$((commits + 1))
	mark "$before" "$(entries)" "$sum"
}

# The daemon dies in the middle of a commit: after a random part of what it writes.
commit_killed() {
	local before sum sectors written worker commit
	before=$(entries) sum=$(digest "$MNT")
	commits=$((commits + 1))
	mark "$before" - "$sum"
	sectors=$(cow commit "$NAME" --dry-run --json | jq '.report.written_bytes / 512')
	worker=$(worker_pid)
	written=$(($(card_written) + (1 + RANDOM % sectors * 3 / 4) * 512))
	cow commit "$NAME" >"$T/out" 2>&1 &
	commit=$!
	until [ "$(card_written)" -ge $written ] || ! kill -0 $commit 2>/dev/null; do :; done
	kill -9 "$worker"
	if wait $commit; then killed='just after a commit'; else killed='in a commit'; fi
	volume_cleared
}

# As after a power cut, but that the card keeps what it was given.
volume_cleared() {
	wait_for 20 no_daemons || finish "the daemon does not go"
	umount_volume || finish "umount"
	volume_gone "$DEV" || losetup -d "$DEV"
	wait_for 20 volume_gone "$DEV"
	blockdev --setrw "$CARD"
}

session_start() {
	attach --ram 96M >"$T/out" 2>&1 || finish "attach: $(cat "$T/out")"
	mount_volume -o noatime,discard,noinit_itable
	churn_start
}

# Rounds up to the $1-th; every fifth commit also checkpoints.
session_rounds() {
	while [ "$round" -lt "$1" ]; do
		round=$((round + 1))
		change $round
		if [ $((round % 5)) = 0 ]; then commit --checkpoint; else commit; fi
	done
}

session_detach() {
	local before
	churn_stop
	rm -rf "$MNT/churn"
	change 100
	before=$(entries)
	sum=$(digest "$MNT")
	umount_volume
	cow detach "$NAME" >"$T/out" 2>&1 || finish "detach: $(cat "$T/out")"
	wait_for 20 no_daemons || finish "the daemon does not go"
	commits=$((commits + 1))
	mark "$before" "$(entries)" "$sum"
}

# What a session ends with: detach; killed in a commit, then attached as it is; killed between commits, then recovered.
record() {
	round=0
	session_start
	session_rounds $((rounds / 4))
	session_detach
	session_start
	session_rounds $((rounds / 2))
	change 101
	churn_stop
	commit_killed
	session_start
	session_rounds $((rounds * 3 / 4))
	churn_stop
	change 102
	kill -9 "$(worker_pid)"
	volume_cleared
	cow release "$CARD" >"$T/out" 2>&1 || finish "recover: $(cat "$T/out")"
	session_start
	session_rounds "$rounds"
	session_detach
}

# ---- all together ----

finish() {
	failed=1
	echo "replay: FAILED: $* (--log $log_mib --seed $seed)"
	exit 1
}

bye() {
	churn_stop
	[ -z "$replayer" ] || { kill "$replayer" 2>/dev/null; wait "$replayer"; }
	clear_jobs
	mountpoint -q "$MNT" && timeout 30 umount "$MNT"
	clear_volumes
	clear_loops
	recorder_stop
	keep=${COWFS_REPLAY_KEEP:-${failed:+$COWFS_BUILD/replay-failed}}
	if [ -n "$keep" ]; then
		mkdir -p "$keep"
		cp --sparse=always "$rec"/* "$keep" && echo "replay: the recording is in $keep"
	fi
	cow_teardown
}

[ "$(id -u)" = 0 ] || skip "needs root"
command -v qemu-storage-daemon >/dev/null || { echo "replay: no qemu-storage-daemon here: make deps"; exit 1; }
RANDOM=$((seed % 32768))
cow_setup
at_end bye
churn='' replayer='' killed='' failed=''
rec=$T/rec
mkdir "$rec" "$T/cuts"
mount -t tmpfs -o size=1G cowfs-replay "$T/cuts"

truncate -s ${card_mib}M "$rec/data.img"
mke2fs -q -F -t ext4 -b 4096 -J size=4 -E nodiscard,lazy_itable_init=0 "$rec/data.img" ${fs_mib}M
loop_up "$rec/data.img"
mount "$LOOP" "$MNT"
change 0
sum=$(digest "$MNT")
umount "$MNT"
loop_down "$LOOP"
cp --sparse=always "$rec/data.img" "$rec/base.img"

recorder_start
recorder_checked
cow prepare "$CARD" --log-size "${log_mib}M" --erase-block ${erase_kib}K >/dev/null
mark 0 "$(entries)" "$sum"
start=$SECONDS
record
loop_down "$CARD"
recorder_stop
echo "replay: $commits commits recorded in $((SECONDS - start)) s, the daemon killed $killed, $(entries) entries in the log" \
	"(--points $points --rounds $rounds --log $log_mib --seed $seed)"
# not in the foreground, where a signal would have to wait for it
"$here/replay.py" "$rec" "$T/cuts" --points "$points" --seed "$seed" &
replayer=$!
wait $replayer || finish "see above"
