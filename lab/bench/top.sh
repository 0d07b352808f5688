#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# How long cowctl top and cowctl diff take on a file system of many files. The figures of docs/BENCHMARKS.md, "Who fills
# the RAM". As root; 0.5 GiB in TMPDIR.
#
#	lab/bench/top.sh [FILES]	(500000)
#	BENCH_SLOW="KIB_PER_S US QUEUE"	the card, as build/tests/slowcard takes it (none)
#
# One file system, FILES files of one block in folders of 200, three names deep; 1,000 of the files, from all over, are
# written anew. Then cowctl diff, whose views are new devices each time: with these files in the inode cache, and after a
# new mount. Then cowctl top, first with nothing of the volume in the page cache, then five times more.
# shellcheck disable=SC2119,SC2120 # functions whose arguments may be left out
set -euo pipefail
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

FILES=${1:-500000}
[[ $# -le 1 && $FILES =~ ^[0-9]+$ ]] || { echo "usage: lab/bench/top.sh [FILES]" >&2; exit 2; }
# shellcheck source=lab/bench/lib.bash
. "$(dirname "$0")/lib.bash"

SLOW=${BENCH_SLOW-}

# allocated, not written: what counts is how many there are
make_files() {
	python3 - "$MNT" "$FILES" <<'EOF'
import os, sys
top, files = sys.argv[1], int(sys.argv[2])
for n in range(files):
    folder = f"{top}/d{n // 20000}/e{n // 200}"
    if n % 200 == 0:
        os.makedirs(folder, exist_ok=True)
    fd = os.open(f"{folder}/file-{n}", os.O_WRONLY | os.O_CREAT)
    os.posix_fallocate(fd, 0, 4096)
    os.close(fd)
EOF
}

change_files() {
	local i
	for ((i = 0; i < FILES; i += FILES / 1000)); do
		echo new >"$MNT/d$((i / 20000))/e$((i / 200))/file-$i"
	done
	sync -f "$MNT"
}

remount() {
	umount_volume
	blockdev --flushbufs "$DEV"
	mount_volume -o noatime
}

seconds() { # COMMAND...
	local start
	start=$(date +%s%N)
	"$@"
	echo "$(($(date +%s%N) - start))" | awk '{ printf "%.2f\n", $1 / 1e9 }'
}

top_seconds() {
	seconds cow top vol --json -n 0 >"$T/out"
	head -n -1 "$T/out" >"$T/top"
	tail -n 1 "$T/out"
}

diff_seconds() {
	seconds cow diff vol --json >"$T/out"
	head -n -1 "$T/out" >"$T/diff"
	[ "$(jq '[.files[] | select(.kind == "changed")] | length' "$T/diff")" = 1000 ]
	tail -n 1 "$T/out"
}

cow_setup
mkdir "$T/slowcard"
trap volume_tidy EXIT
note "$FILES files"
card_make ext4 $((FILES / 200 + 400)) $((FILES / 200 + 480)) -N $((FILES + FILES / 10)) -J size=64
timeout 30 mount "$CARD" "$MNT"
make_files
umount_volume
cow prepare "$CARD" >/dev/null
loop_down "$CARD"
card_up
attach --ram 1G 2>/dev/null
mount_volume -o noatime
change_files
echo "diff, files in the inode cache: $(diff_seconds) s, again $(diff_seconds) s"
remount
echo "diff, after a new mount: $(diff_seconds) s"
remount
echo "cold: $(top_seconds) s"
for _ in 1 2 3 4 5; do
	top_seconds
done | sort -n | awk '{ t[NR] = $1 } END { print "warm, median of 5: " t[3] " s, at most " t[5] " s" }'
jq -r '"\(.files_looked_at) inodes looked at, \(.uncommitted_blocks) blocks of \(.files) files and directories"' "$T/top"
[ "$(jq '[.rows[] | select(.kind == "file" and (.path | test("/file-[0-9]+$")) and .uncommitted_blocks == 1)] | length' "$T/top")" = 1000 ]
