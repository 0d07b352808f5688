# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A root that compresses its changes, on a machine of 256 MiB whose memory is full again and again: files are written, changed in
# place, read and compared meanwhile. Nothing is lost, nothing hangs, the daemon is not killed.
# guests: debian12 busybox
# short: busybox
APPEND=cowfs=compress:zstd,ram:64M
MEM=256 LIMIT=1200 STEP_LIMIT=1000
case $GUEST in
busybox*) DISK_MIB=384 ;;
esac

SOAK_S=40 EACH=2
[ -z "$LONG" ] || SOAK_S=600 EACH=4

FILES=10

available() { awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo; }
number() { cowctl status root --json | sed "s/.*\"$1\": *\([0-9]*\).*/\1/"; }

# 2 MiB that shrink to a part; each is another
text() { seq $(($1 * 1000)) 99999999 | head -c 2097152; }

sums() { (cd /srv/p && sha256sum $(seq $FILES)); }

fill() {
	mount -t tmpfs -o size=100% hog /mnt || return
	i=0
	while [ "$(available)" -gt "$1" ] && [ $i -lt 60 ]; do
		i=$((i + 1))
		dd if=/dev/zero of=/mnt/$i bs=1048576 count=4 2>/dev/null || break
	done
}

step_1() {
	protected || fail "the root is $(root_device)"
	cowctl status root --json | grep -q '"compress": *"zstd"' || fail "not compressed: $(cowctl status root)"
	mkdir -p /srv/p
	round=0 most=0 least=9999 end=$(($(date +%s) + SOAK_S))
	while [ "$(date +%s)" -lt "$end" ]; do
		round=$((round + 1))
		for n in $(seq $FILES); do
			text $((round + n)) >"/srv/p/$n"
		done
		sync
		sleep 7
		n=$(number compressed_blocks)
		[ "$n" -le "$most" ] || most=$n
		# parts of blocks, some blocks, a discard
		for n in 1 2 3; do
			printf %s "$round" | dd of=/srv/p/$n bs=1 seek=$((round * 7919 % 2000000)) conv=notrunc 2>/dev/null
			dd if=/dev/urandom of=/srv/p/$((n + 3)) bs=4096 count=9 seek=$((round * 31 % 500)) conv=notrunc 2>/dev/null
		done
		text 1 >/srv/p/gone && sync && rm /srv/p/gone
		sums >/run/cowfs-test/sums
		fill 20
		n=$(available)
		[ "$n" -gt "$least" ] || least=$n
		sync
		echo 3 >/proc/sys/vm/drop_caches
		(cd /srv/p && sha256sum -c /run/cowfs-test/sums >/run/cowfs-test/compared 2>&1) ||
			fail "round $round: $(grep -v OK /run/cowfs-test/compared)"
		umount /mnt
		[ $((round % EACH)) != 0 ] || cowctl commit root >/dev/null || fail "commit"
	done
	say "$round rounds, at most $most blocks compressed, $(number forgotten_blocks) forgotten, $least MiB of memory left"
	[ "$most" -gt 500 ] || fail "nothing was compressed"
	dmesg | grep -i 'i/o error\|ext4-fs error\|blocked for more\|killed process.*cowfs' && fail "errors in the kernel log"
	sums >/srv/sums
}

step_2() {
	protected || fail "the root is $(root_device)"
	cd /srv/p && must sha256sum -c /srv/sums
}
