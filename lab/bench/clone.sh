#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A new card by cowctl clone, by dd and by rsync: the table of docs/BENCHMARKS.md, "A new card". As root.
#
#	BENCH_ROUNDS=N lab/bench/clone.sh		default: 3
#
# The source is a volume of 760 MiB, half full of files from /usr, on a card that answers at once. The target is behind build/tests/slowcard:
# 20 MB/s, 1 ms a request, one at a time, for reads as for writes. dd copies the partition in requests of 4 MiB; rsync
# makes an ext4 first, as rpi-clone does. Each ends with a FLUSH.
set -euo pipefail
# shellcheck source=lab/bench/lib.bash
. "$(dirname "$0")/lib.bash"
ROUNDS=${BENCH_ROUNDS:-3} MIB=900 SOURCE=''

tidy() {
	set +e
	umount "$MNT" 2>/dev/null
	cow detach --discard vol >/dev/null 2>&1
	card_down
	[ -z "$SOURCE" ] || loop_down "$SOURCE"
	cow_teardown
}

make_source() {
	mkdir "$T/mem" "$T/slowcard" "$T/to"
	mount -t tmpfs -o size=4G none "$T/mem"
	truncate -s "${MIB}M" "$T/mem/source.img"
	mke2fs -q -F -t ext4 -b 4096 -E nodiscard,lazy_itable_init=0 "$T/mem/source.img" 760M
	loop_up "$T/mem/source.img" --direct-io=on
	SOURCE=$LOOP
	cow prepare "$SOURCE" >/dev/null
	CARD=$SOURCE attach --ram 1G
	mount_volume
	(cd / && find usr/lib usr/share -xdev -type f -size -2048 -print0) | LC_ALL=C sort -z | head -z -n 14000 |
		(cd / && xargs -0 cp --parents -at "$MNT") 2>/dev/null || true
	sync -f "$MNT"
	cow commit --checkpoint >/dev/null
	note "$(df --output=pcent "$MNT" | tail -1 | tr -d ' ') of the file system are used"
}

target_up() {
	rm -f "$T/mem/target.img"
	truncate -s "${MIB}M" "$T/mem/target.img"
	SLOW="19531 1000 1" card_up "$T/mem/target.img"
}

written() { awk '{ print int($7 / 2048), $5 }' "/sys/block/${CARD#/dev/}/stat"; }

by_dd() { dd if="$SOURCE" of="$CARD" bs=4M conv=fsync status=none; }
by_rsync() {
	mke2fs -q -F -t ext4 -b 4096 "$CARD" 760M
	mount "$CARD" "$T/to"
	rsync -aHAX --exclude=lost+found "$MNT/" "$T/to/"
	umount "$T/to"
	blockdev --flushbufs "$CARD"
}
by_clone() { cow clone vol "$CARD" --yes --no-verify >/dev/null; }
by_clone_verified() { cow clone vol "$CARD" --yes >/dev/null; }

command -v rsync >/dev/null || { note "no rsync here"; exit 1; }
cow_setup
trap tidy EXIT
export COW_LIMIT=600
make_source
for ((i = 1; i <= ROUNDS; i++)); do
	for way in dd rsync clone clone_verified; do
		target_up
		read -r mib n < <(written)
		start=$EPOCHREALTIME
		"by_$way"
		end=$EPOCHREALTIME
		read -r mib_after n_after < <(written)
		card_down
		printf '%s\t%s\t%s\t%s\n' "$way" "$(awk -v a="$start" -v b="$end" 'BEGIN { print b - a }')" $((mib_after - mib)) $((n_after - n)) >>"$T/results"
	done
	note "round $i of $ROUNDS, load $(cut -d' ' -f1 /proc/loadavg)"
done
echo "$(date +%F), Linux $(uname -r), medians of $ROUNDS rounds"
python3 - "$T/results" <<'END'
import statistics, sys
rows = {}
for line in open(sys.argv[1], encoding="ascii"):
    way, *v = line.split()
    rows.setdefault(way, []).append([float(x) for x in v])
m = {w: [statistics.median(x) for x in zip(*v)] for w, v in rows.items()}
print("| way | s | of dd | MiB written | requests |\n| --- | --- | --- | --- | --- |")
names = {"dd": "dd", "rsync": "mke2fs, rsync", "clone": "cowctl clone --no-verify", "clone_verified": "cowctl clone, read back"}
for w, (s, mib, n) in m.items():
    print(f"| {names[w]} | {s:.1f} | {s / m['dd'][0]:.2f} | {mib:.0f} | {n:.0f} |")
END
