#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What a commit of ext4 costs those who write meanwhile: sealed when the journal is empty, and with a freeze (as before Linux 5.14).
# As root.
#
#	lab/bench/seal.sh [ROUNDS] [COMMITS]	default: 3 rounds, each of both kinds in turn, of 20 commits
#
# Four programs create files of 20 KiB and sync each of them; every 0.3 s there is a commit. Prints the median of the rounds: time of
# a commit (the command), of its quiesce (sync, and journal or freeze), how long the driver waits for the seal, the time that 99.9 %
# of the programs' files took at most, the longest, and what a commit wrote to the card.
set -euo pipefail
TOP=$(cd "$(dirname "$0")/../.." && pwd)
B=${COWFS_BUILD:-$TOP/build}
ROUNDS=${1:-3} COMMITS=${2:-20}
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 2; }
T=$(mktemp -d "${TMPDIR:-/tmp}/cowfs-seal.XXXXXX")
export COWFS_RUNDIR=$T/run COWFS_ON_CRASH=stop
LOOP=''
clean() {
	touch "$T/stop"
	wait
	umount -q "$T/mnt" 2>/dev/null || :
	"$B/cowctl" detach --discard seal >/dev/null 2>&1 || :
	[ -z "$LOOP" ] || losetup -d "$LOOP" 2>/dev/null || :
	rm -rf "$T"
}
trap clean EXIT

WRITER='
import os, sys, time
n, took = 0, []
data = os.urandom(20480)
while not os.path.exists(sys.argv[2]):
    begin = time.monotonic()
    fd = os.open(f"{sys.argv[1]}/{n % 300}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    took.append(time.monotonic() - begin)
    n += 1
print("\n".join(f"{t * 1000:.3f}" for t in took))'

round() { # KIND
	local i
	mkdir -p "$T/mnt"
	rm -f "$T"/stop "$T"/out.* "$T/bills"
	truncate -s 0 "$T/img" && truncate -s 700M "$T/img"
	mke2fs -q -F -t ext4 -b 4096 -J size=16 "$T/img" 400M
	LOOP=$(losetup -f --show "$T/img")
	"$B/cowctl" prepare "$LOOP" --log-size 200M >/dev/null
	export LD_PRELOAD=$B/tests/eioshim.so COWFS_EIO_FILE=$T/eio
	[ "$1" = instant ] || export COWFS_NO_CHECKPOINT=1
	dev=$("$B/cowctl" attach --name seal "$LOOP")
	unset LD_PRELOAD COWFS_NO_CHECKPOINT
	mount -o noatime "$dev" "$T/mnt"
	for i in 1 2 3 4; do
		mkdir "$T/mnt/$i"
		/usr/bin/python3 -c "$WRITER" "$T/mnt/$i" "$T/stop" >"$T/out.$i" &
	done
	for i in $(seq "$COMMITS"); do
		sleep 0.3
		begin=${EPOCHREALTIME/./}
		"$B/cowctl" commit --json seal >"$T/bill"
		jq -c --argjson ms "$((${EPOCHREALTIME/./} - begin))" '[$ms / 1000, (.quiesce | .sync_seconds * 1000, (.sync_seconds + .freeze_seconds + .frozen_seconds) * 1000,
			.frozen_seconds * 1000), .report.written_bytes, .quiesce.instant]' "$T/bill" >>"$T/bills"
	done
	touch "$T/stop"
	wait
	umount "$T/mnt"
	# another program's copy of the mount namespace may keep it for a moment
	for i in $(seq 100); do
		"$B/cowctl" detach seal >/dev/null 2>"$T/why" && break
		sleep 0.2
	done
	losetup -d "$LOOP"
	LOOP=''
	/usr/bin/python3 - "$1" "$T" <<-'END'
		import json, statistics, sys
		bills = [json.loads(line) for line in open(sys.argv[2] + "/bills")]
		assert all(b[5] == (sys.argv[1] == "instant") for b in bills), bills
		took = sorted(float(t) for i in (1, 2, 3, 4) for t in open(f"{sys.argv[2]}/out.{i}"))
		m = lambda k: statistics.median(b[k] for b in bills)
		print(sys.argv[1], f"{m(0):.1f} {m(2):.2f} {m(3):.3f} {took[int(len(took) * 0.999)]:.1f} {took[-1]:.1f}",
		      f"{sum(b[4] for b in bills) / len(bills) / 2**20:.2f} {len(took)}")
	END
}

for _ in $(seq "$ROUNDS"); do
	for kind in instant freeze; do
		round $kind | tee -a "$T/rows" >&2
	done
done
/usr/bin/python3 - "$T/rows" <<'END'
import statistics, sys
rows = [line.split() for line in open(sys.argv[1])]
print("| sealed | commit, ms | quiesce, ms | seal, ms | file 99.9 %, ms | longest, ms | MiB a commit |\n|---|---|---|---|---|---|---|")
for kind in ("instant", "freeze"):
    mine = [r[1:] for r in rows if r[0] == kind]
    print(f"| {kind} | " + " | ".join(f"{statistics.median(float(r[k]) for r in mine):g}" for k in range(6)) + " |")
END
