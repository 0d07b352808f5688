#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The data path against its peers: the tables of docs/BENCHMARKS.md, "Data path". As root.
#
#	lab/bench/path.sh [path|card]...	default: both
#	BENCH_ROUNDS=N		rounds; in each, every candidate runs every row once (5)
#	BENCH_CANDIDATES="..."	plain overlay fuse-overlayfs qsd cowfs
#	BENCH_ROWS="..."	walk read warm copyin remove rand append ram sqlite
#	BENCH_FIO_S=N		seconds of one fio run (1)
#	BENCH_SETTLE=N		before each measurement: up to N tenths of a second until nothing else runs (10)
#	BENCH_RESULTS=FILE	keeps the single values: round, candidate, row, value
#	BENCH_ALSO=FOLDER	a second build of cowfs, as candidate "also" (paired before/after)
#
# The image lies in a tmpfs of its own (2 GiB) under a loop device with direct I/O, for all candidates: the card answers
# at once and nobody's reads of it come from a page cache. That is the hardest card for a layer in between. "card" is the
# opposite: the same image behind build/tests/slowcard, 20 MB/s and 1 ms per request.
# A row is cold when the file system and the device below it were set up anew before it.
# shellcheck disable=SC2119,SC2120 # functions whose arguments may be left out
set -euo pipefail
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

[ $# -gt 0 ] || set -- path card
for what; do
	case $what in
	path | card) ;;
	*) echo "usage: lab/bench/path.sh [path|card]..." >&2; exit 2 ;;
	esac
done
# shellcheck source=lab/bench/lib.bash
. "$(dirname "$0")/lib.bash"

ROUNDS=${BENCH_ROUNDS:-5}
FIO_S=${BENCH_FIO_S:-1}
SETTLE=${BENCH_SETTLE:-10}
ROWS=${BENCH_ROWS:-walk read warm copyin remove rand append ram sqlite}
# Those of the words that can run here; the others are named, and their columns left out.
there() {
	local c program words=()
	for c; do
		case $c in
		fuse-overlayfs) program=fuse-overlayfs ;;
		qsd) program=qemu-storage-daemon ;;
		plain | overlay | cowfs | also) program="sh" ;;
		*) note "no candidate is called $c" && return 1 ;;
		esac
		if command -v "$program" >/dev/null; then words+=("$c"); else note "no $program here: $c is left out"; fi
	done
	echo "${words[*]}"
}

# shellcheck disable=SC2086 # words
CANDIDATES=$(there ${BENCH_CANDIDATES:-plain overlay fuse-overlayfs qsd cowfs})
# shellcheck disable=SC2086
CARD_CANDIDATES=$(there ${BENCH_CANDIDATES:-plain cowfs})
OPTIONS=noatime,noinit_itable # of every ext4 here
FILES=18000 READ_FILES=9000 SLOW_FILES=2000 # and 3,000 to copy in

tidy() {
	set +e
	down "${UP-}" 2>/dev/null
	card_down 2>/dev/null
	cow_teardown
}

# ---- the image ----

# The first 18,000 regular files below /usr/share and /usr/lib of at most 256 KiB, in the order of their names: about
# 200 MiB; and a file of 300 MiB.
make_image() {
	local src=$T/src
	mkdir "$src" "$T/mem" "$T/slowcard"
	mount -t tmpfs -o size=4G none "$T/mem"
	# sed and awk read to the end, head would end the pipe
	(cd / && find usr/share usr/lib -xdev -type f -size -513 -print0) | LC_ALL=C sort -z | sed -zn "1,${FILES}p" >"$T/list"
	IMG=$T/mem/card.img
	truncate -s 1G "$IMG"
	mke2fs -q -F -t ext4 -b 4096 -J size=16 -N 65536 -E nodiscard,lazy_itable_init=0 "$IMG" 944M
	mount -o loop "$IMG" "$src"
	tar -C / --null -T "$T/list" -cf - | tar -C "$src" -xf -
	head -c 300M /dev/urandom >"$src/big"
	# every second file, in the order of names
	sed -zn '1~2p' "$T/list" | sed -zn "1,${READ_FILES}p" >"$T/read"
	sed -zn "1,${SLOW_FILES}p" "$T/read" >"$T/slow"
	umount "$src"
	# what is copied in comes from memory
	mkdir "$T/mem/in"
	sed -zn "2~6p" "$T/list" | (cd / && xargs -0 cp --parents -at "$T/mem/in")
	awk 'BEGIN { print "create table t(a integer primary key, b text);"
		for (i = 0; i < 200; i++) print "insert into t(b) values (hex(randomblob(100)));" }' >"$T/inserts"
	loop_up "$IMG"
	cow prepare "$LOOP" --log-size 64M >/dev/null
	loop_down "$LOOP"
	note "$(tr -cd '\0' <"$T/list" | wc -c) files, $(du -sm --apparent-size "$T/mem/in" | cut -f1) MiB to copy in"
}

# ---- candidates: up NAME mounts its file system on MNT, down NAME takes everything away ----

# a tmpfs for what is changed
upper_up() {
	mkdir -p "$T/upper" "$T/lower"
	mount -t tmpfs -o size=3G none "$T/upper"
	mkdir -p "$T/upper/up" "$T/upper/work"
}

lower_up() {
	card_up
	upper_up
	mount -o "ro,noload,$OPTIONS" "$CARD" "$T/lower"
	LAYERS=lowerdir=$T/lower,upperdir=$T/upper/up,workdir=$T/upper/work
}

# what a commit, or anybody else, would have to do with what a candidate has in RAM
lower_down() {
	umount "$MNT"
	umount "$T/lower"
	umount "$T/upper"
	card_down
}

up() {
	UP=$1
	case $1 in
	plain)
		# its changes stay in the image: a copy for each time
		cp --sparse=always "$IMG" "$T/mem/plain.img"
		card_up "$T/mem/plain.img"
		mount -o "$OPTIONS" "$CARD" "$MNT"
		;;
	overlay)
		lower_up
		mount -t overlay -o "$LAYERS" none "$MNT"
		;;
	fuse-overlayfs)
		lower_up
		fuse-overlayfs -o "$LAYERS" "$MNT" 2>>"$T/fuse-overlayfs.err"
		;;
	qsd) qsd_up ;;
	cowfs | also) cowfs_up "$1" ;;
	esac
}

down() {
	case $1 in
	plain)
		umount "$MNT"
		card_down
		rm -f "$T/mem/plain.img"
		;;
	overlay | fuse-overlayfs) lower_down ;;
	qsd) qsd_down ;;
	cowfs | also) cowfs_down ;;
	esac
	UP=''
}

qsd_up() {
	card_up
	upper_up
	qemu-img create -q -f qcow2 -F raw -b "$CARD" "$T/upper/top.qcow2"
	: >"$T/upper/export"
	qemu-storage-daemon \
		--blockdev "driver=host_device,node-name=card,filename=$CARD,read-only=on,cache.direct=on,aio=native" \
		--blockdev "driver=file,node-name=file,filename=$T/upper/top.qcow2" \
		--blockdev "driver=qcow2,node-name=top,file=file,backing=card,discard=unmap" \
		--export "type=fuse,id=top,node-name=top,mountpoint=$T/upper/export,writable=on,growable=off" \
		>"$T/qsd.log" 2>&1 &
	QSD=$!
	wait_for 10 is_mounted "$T/upper/export"
	loop_up "$T/upper/export" --direct-io=on
	TOP_LOOP=$LOOP
	mount -o "$OPTIONS,discard" "$TOP_LOOP" "$MNT"
}

qsd_down() {
	umount "$MNT"
	loop_down "$TOP_LOOP"
	kill "$QSD"
	wait "$QSD" || true
	umount "$T/upper"
	card_down
}

cowfs_up() {
	local build=$COWFS_BUILD
	card_up
	[ "$1" = cowfs ] || COWFS_BUILD=$BENCH_ALSO
	attach --ram 3G 2>>"$T/attach.err"
	COWFS_BUILD=$build
	mount_volume -o "$OPTIONS,discard"
}

cowfs_down() {
	detach --discard >/dev/null
	card_down
}

# ---- rows: each prints one value, or several as ROW VALUE ----

# Nothing but this shell runs, five times in a row; or the time is up.
settle() {
	local calm=0 i
	for ((i = 0; i < SETTLE * 5 && calm < 5; i++)); do
		if grep -qx 'procs_running [12]' /proc/stat; then # grep itself
			calm=$((calm + 1))
		else
			calm=0
		fi
		sleep 0.02
	done
}

seconds() {
	local start
	settle
	start=$EPOCHREALTIME
	"$@" >/dev/null || note "$UP: failed: $*" # -e is off in here
	awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.6f\n", b - a }'
}

# Requests that ext4 made of the device below it, flushes included
fs_requests() {
	local on=$MNT
	case $UP in overlay | fuse-overlayfs) on=$T/lower ;; esac
	awk '{ print $1 + $5 + $12 + $16 }' "/sys/block/$(basename "$(findmnt -no SOURCE "$on")")/stat"
}

# A row of seconds, and one of what was asked of the device meanwhile
timed() {
	local before
	before=$(fs_requests)
	result "$UP" "$1" "$(seconds "${@:2}")"
	result "$UP" "$1_requests" "$(($(fs_requests) - before))"
}

walk() { find "$MNT" -printf '%s %m %n\n'; }
read_files() { (cd "$MNT" && xargs -0 cat <"$1"); }

copy_in() {
	cp -a "$T/mem/in" "$MNT/in"
	sync -f "$MNT"
}

remove() {
	local try
	# fuse-overlayfs leaves some directories behind the first time, and again
	for try in 1 2 3 4 5; do
		rm -rf "$MNT/in" 2>"$T/rm.err" && break
	done
	[ "$try" = 1 ] || note "$UP: removed at the ${try}th try"
	sync -f "$MNT"
}

append() { printf ab | dd of="$MNT/big" oflag=append conv=notrunc,fsync status=none; }

sqlite() { sqlite3 "$MNT/db" <"$T/inserts"; }

# IOPS of rw at a depth
rand() {
	settle
	fio --output-format=json --name=rand --filename="$MNT/big" --size=300M --rw="$1" --bs=4k --direct=1 --ioengine=libaio \
		--iodepth="$2" --time_based --runtime="$FIO_S" --norandommap |
		jq ".jobs[0].${1#rand}.iops"
}

# bytes in RAM for what was changed
ram_used() {
	sync -f "$MNT"
	case $UP in
	plain) echo 0 ;;
	overlay | fuse-overlayfs | qsd) echo $(($(stat -fc '(%b - %f) * %S' "$T/upper"))) ;;
	cowfs | also) status_of .ram_used_bytes ;;
	esac
}

# 1,000 blocks of 4 KiB all over the big file
change_blocks() {
	python3 -c 'import os, random, sys
r = random.Random(1)
fd = os.open(sys.argv[1], os.O_WRONLY)
for b in r.sample(range(75000), 1000):
    os.pwrite(fd, os.urandom(4096), b * 4096)' "$MNT/big"
}

row_ram() {
	local before
	before=$(ram_used)
	change_blocks
	awk -v a="$before" -v b="$(ram_used)" 'BEGIN { print (b - a) / 4096000 }'
}

result() {
	printf '%s\t%s\t%s\t%s\n' "$ROUND" "$1" "$2" "$3" >>"$T/results"
}

again() {
	down "$1"
	up "$1"
}

# One candidate, all rows. Rows that need fresh layers say so.
run_candidate() {
	local c=$1 row
	up "$c"
	for row in $ROWS; do
		case $row in
		walk) timed walk walk ;;
		read)
			again "$c"
			timed read read_files "$T/read"
			;;
		warm) timed warm read_files "$T/read" ;;
		copyin) timed copyin copy_in ;;
		remove) timed remove remove ;;
		ram)
			again "$c"
			result "$c" ram "$(row_ram)"
			;;
		append)
			again "$c"
			result "$c" append "$(seconds append)"
			;;
		rand) # reads come from the card, writes go where changes go
			again "$c"
			result "$c" randread "$(rand randread 32)"
			result "$c" randread1 "$(rand randread 1)"
			append
			result "$c" randwrite "$(rand randwrite 32)"
			result "$c" randwrite1 "$(rand randwrite 1)"
			;;
		sqlite)
			again "$c"
			timed sqlite sqlite
			;;
		esac
	done
	down "$c"
}

bench_path() {
	local c
	SLOW=''
	for ROUND in $(seq "$ROUNDS"); do
		for c in $CANDIDATES; do
			run_candidate "$c"
		done
		note "round $ROUND of $ROUNDS, load $(cut -d' ' -f1 /proc/loadavg)"
	done
}

# Bytes of the listed files, of the card and of the device above it that lie in page caches
cached_bytes() {
	"$TOP/lab/bench/path.py" cached "$T/slow" "$MNT" "$CARD" "$(findmnt -no SOURCE "$MNT")"
}

card_requests() { awk '{ print $1 }' "/sys/block/${CARD#/dev/}/stat"; }

run_card() {
	local c=$1 q=$2 requests
	up "$c"
	requests=$(card_requests)
	result "$c" "slow_read_q$q" "$(seconds read_files "$T/slow")"
	result "$c" "slow_requests_q$q" "$(($(card_requests) - requests))"
	result "$c" "slow_memory_q$q" "$(cached_bytes)"
	result "$c" "slow_big_q$q" "$(seconds head -c 50M "$MNT/big")"
	again "$c"
	result "$c" "slow_walk_q$q" "$(seconds walk)"
	down "$c"
}

# 20 MB/s and 1 ms for each request: one at a time, as an SD card, or eight, as one with a command queue
bench_card() {
	local c q
	for ROUND in $(seq "$ROUNDS"); do
		for q in 1 8; do
			SLOW="19531 1000 $q"
			for c in $CARD_CANDIDATES; do
				run_card "$c" "$q"
			done
		done
		note "card: round $ROUND of $ROUNDS, load $(cut -d' ' -f1 /proc/loadavg)"
	done
	SLOW=''
}

cow_setup
trap tidy EXIT
: >"$T/results"
make_image
echo "$(date +%F), Linux $(uname -r), $(nproc) CPUs ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)), $("$COWFS_BUILD/cowctl" --version), load $(cut -d' ' -f1 /proc/loadavg), medians of $ROUNDS rounds"
for what; do
	"bench_$what"
	cp "$T/results" "${BENCH_RESULTS:-/dev/null}"
	echo
	"$TOP/lab/bench/path.py" "$what" "$T/results"
done
