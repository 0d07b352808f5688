#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What was written is what is read: under live commits, after a detach, and after a power cut.
# seconds: 110

load lib

setup() {
	cow_setup
	FSXCOW=$COWFS_BUILD/tests/fsxcow
	NOISE=$BATS_TEST_DIRNAME/../tools/noise.py
}

# ---- helpers ----

# Commits every $1 seconds until commits_stop; every one must succeed.
commits_start() {
	: >"$T/commits"
	(
		while [ ! -e "$T/commits.stop" ]; do
			cow commit "$NAME" --json >"$T/commit.json" 2>"$T/commit.err" ||
				cat "$T/commit.json" "$T/commit.err" >>"$T/commits.failed"
			echo >>"$T/commits"
			sleep "$1"
		done
	) 3>&- &
	COMMITTER=$!
}

# At least $1 commits have run meanwhile.
commits_stop() {
	touch "$T/commits.stop"
	wait "$COMMITTER"
	rm "$T/commits.stop"
	echo "$(wc -l <"$T/commits") commits"
	if [ -e "$T/commits.failed" ]; then
		cat "$T/commits.failed"
		return 1
	fi
	[ "$(wc -l <"$T/commits")" -ge "$1" ]
}

# Names, types, owners, modes, times, links, attributes, contents.
# Not the ctime: a commit may renew that of the root, so that there is a transaction.
tree_digest() {
	tar -C "$1" --sort=name --xattrs --acls --pax-option=delete=ctime --exclude=./lost+found --exclude=./churn -cf - . | sha256sum | cut -d' ' -f1
}

# The card as it is without cowfs.
bare_digest() {
	local opt=ro
	mkdir -p "$T/bare"
	[ "$1" != xfs ] || opt=ro,norecovery,nouuid
	case $1 in
	ext3 | ext4) opt=ro,noload ;;
	esac
	timeout 300 mount -o "$opt" "$CARD" "$T/bare" || return
	tree_digest "$T/bare"
	umount "$T/bare"
}

# A volume without a file system that anything knows: the whole of it belongs to the test.
raw_volume() {
	local mib=$1 log_mib=$2
	volume_attached ext2 "$mib" $((mib + log_mib + 16)) -- --log-size "${log_mib}M"
	dd if=/dev/zero of="$DEV" bs=64K count=4 oflag=direct status=none
	cow commit "$NAME"
}

# fio JOB_NAME OPTION...: random writes that carry their own checksums
verified_fio() {
	timeout 300 fio --minimal --name="$1" --ioengine=libaio --direct=1 --iodepth=64 --verify=crc32c \
		--verify_fatal=1 --verify_state_save=0 --randrepeat=1 --allow_mounted_write=1 "${@:2}" >"$T/fio.out" 2>&1 ||
		{ tail -20 "$T/fio.out"; return 1; }
}

# Two passes over $1, the second one writes over the first; commits meanwhile.
fio_under_commits() {
	local file=$1
	shift
	commits_start 1
	verified_fio first --filename="$file" --rw=randwrite --randseed=1 "$@"
	verified_fio second --filename="$file" --rw=randwrite --randseed=2 --verify_backlog=512 "$@"
	commits_stop 2
}

# ---- fio ----

@test "fio: 1K writes at depth 64 on the device, commits every second" {
	raw_volume 48 192
	fio_under_commits "$DEV" --bs=1k --size=32M --rate_iops=9000
	detach
	attach
	verified_fio second --filename="$DEV" --rw=randwrite --randseed=2 --bs=1k --size=32M --verify_only
}

@test "fio: 512 bytes to 64K mixed on the device, commits every second" {
	local sizes=512/25:1k/15:1536/10:4k/25:5k/5:16k/10:64k/10
	raw_volume 32 160
	fio_under_commits "$DEV" --bssplit=$sizes --size=24M --rate_iops=6000
	detach
	attach
	verified_fio second --filename="$DEV" --rw=randwrite --randseed=2 --bssplit=$sizes --size=24M --verify_only
}

in_a_file() { # BLOCK SIZE IOPS MIB LOG_MIB FS [OPTION...]
	volume_attached "$6" "$4" $(($4 + $5 + 32)) -J size=8 "${@:7}" -- --log-size "$5M"
	mount_volume -o noatime,discard
	fio_under_commits "$MNT/file" --bs="$1" --size="$2" --rate_iops="$3"
	detach_whole ext4
	attach_mounted
	verified_fio second --filename="$MNT/file" --rw=randwrite --randseed=2 --bs="$1" --size="$2" --verify_only
}

@test "fio: 1K writes at depth 64 in a file of a 1K ext4, commits every second" { in_a_file 1k 16M 4000 128 80 ext4 -b 1024; }
@test "fio: 4K writes at depth 64 in a file of a 4K ext4, commits every second" { in_a_file 4k 64M 5000 192 224 ext4; }

# ---- fsxcow ----

@test "fsxcow: commits between operations, detach, the bare card is the model" {
	raw_volume 24 64
	"$FSXCOW" --ops 10000 --seed 1 --every 400 --run "$COWFS_BUILD/cowctl commit vol >/dev/null" \
		--model "$T/model" "$DEV"
	detach
	cow check "$CARD"
	"$FSXCOW" --size 24M --verify-only "$T/model" "$CARD"
}

@test "fsxcow: commits beside operations, detach, the bare card is the model" {
	raw_volume 24 64
	"$FSXCOW" --ops 20000 --seed 2 --every 50 --background --run "$COWFS_BUILD/cowctl commit vol >/dev/null" \
		--model "$T/model" "$DEV"
	detach
	"$FSXCOW" --size 24M --verify-only "$T/model" "$CARD"
}

@test "fsxcow: power cut, then release, then attach: the last commit" {
	local seed
	for seed in 3 4; do
		rm -f "$T/card.img"
		raw_volume 24 64
		"$FSXCOW" --ops 6300 --seed $seed --every 400 --run "$COWFS_BUILD/cowctl commit vol >/dev/null" \
			--committed "$T/committed" "$DEV"
		power_cut
		attach
		"$FSXCOW" --verify-only "$T/committed" "$DEV"
		power_cut
		cow release "$CARD"
		"$FSXCOW" --size 24M --verify-only "$T/committed" "$CARD"
		loop_down "$CARD"
	done
}

@test "fsxcow: it sees a wrong sector" {
	raw_volume 24 64
	"$FSXCOW" --ops 500 --seed 5 --model "$T/model" "$DEV"
	detach
	dd if=/dev/urandom of="$CARD" bs=512 seek=20001 count=1 conv=notrunc status=none
	run "$FSXCOW" --size 24M --verify-only "$T/model" "$CARD"
	[ "$status" = 1 ]
	[[ $output == *MISMATCH*"first is 20001"* ]]
}

# ---- noise ----

# FS MIB MKFS_OPTION...; with room in the log for all that noise, so that no commit comes by itself
noise_test() {
	local job bad='' jobs=() fs=$1
	volume_attached "$1" "$2" 900 "${@:3}" -- --log-size 600M
	mount_volume -o noatime,discard
	for job in 1 2 3; do
		"$NOISE" load "$MNT/$job" $job >>"$T/mismatches" 3>&- &
		jobs+=($!)
	done
	for _ in 1 2 3 4; do
		sleep 0.7
		timeout 300 fsfreeze -f "$MNT"
		blockdev --flushbufs "$DEV" # xfs has metadata in buffers of its own: these may be old
		"$COWFS_BUILD/tests/fsmap_dump" "$DEV" >"$T/map" && "$NOISE" over "$DEV" "$T/map" || bad=1
		[ "$fs" != ext4 ] || grep -q journal "$T/map" || bad=1
		fsfreeze -u "$MNT"
		[ -z "$bad" ]
		sleep 0.5
		cow commit "$NAME" >"$T/bill"
	done
	cat "$T/bill"
	touch "$MNT"/{1,2,3}.stop
	for job in "${jobs[@]}"; do
		wait "$job" || { cat "$T/mismatches"; return 1; }
	done
	umount_volume
	fsck "$fs" "$DEV"
	mount_volume
	for job in 1 2 3; do
		"$NOISE" verify "$MNT/$job" $job
	done
	detach_whole "$fs"
	mount -o ro "$CARD" "$MNT"
	for job in 1 2 3; do
		"$NOISE" verify "$MNT/$job" $job
	done
	umount "$MNT"
}

@test "noise over every skipped block of a frozen 4K ext4 hurts nobody" { noise_test ext4 128 -J size=4; }
@test "noise over every skipped block of a frozen 1K ext4 hurts nobody" { noise_test ext4 128 -J size=4 -b 1024; }
@test "noise over every skipped block of a frozen btrfs hurts nobody" { noise_test btrfs 256; }
@test "noise over every skipped block of a frozen btrfs of mixed block groups hurts nobody" { noise_test btrfs 256 -M; }

# mkfs.xfs makes small ones for its own tests only
@test "noise over every skipped block of an xfs hurts nobody" { QA_CHECK_FS=1 TEST_DIR=x TEST_DEV=x noise_test xfs 256; }
@test "noise over every skipped block of a 1K xfs with a small log hurts nobody" { QA_CHECK_FS=1 TEST_DIR=x TEST_DEV=x noise_test xfs 256 -b size=1024 -l size=10m; }

# ---- every file system ----

populate() {
	local i
	mkdir -p "$1"/{many,deep/er/still,churn}
	for i in $(seq 300); do
		echo "file $i" >"$1/many/$i"
	done
	random_file "$1/large" 6
	truncate -s 3M "$1/sparse"
	echo middle | dd of="$1/sparse" bs=1 seek=1500000 conv=notrunc status=none
	ln "$1/large" "$1/hard"
	ln -s ../large "$1/deep/soft"
	mknod "$1/null" c 1 3
	mkfifo "$1/fifo"
	chown 1000:100 "$1/many/7"
	chmod 4711 "$1/many/8"
	setfattr -n user.note -v "an attribute" "$1/many/9" 2>/dev/null || true
}

# Changes of every kind; $2 makes them differ.
change() {
	local i
	for i in $(seq "$2" 5 300); do
		rm -f "$1/many/$i"
	done
	for i in $(seq "$2" 7 300); do
		echo "change $2 of $i" >"$1/many/$i.new"
	done
	random_file "$1/new$2" 3
	dd if=/dev/urandom of="$1/large" bs=4k seek=$((100 * $2)) count=50 conv=notrunc status=none
	dd if=/dev/urandom of="$1/sparse" bs=700 seek=$((500 * $2)) count=3 conv=notrunc status=none
	truncate -s $((2000000 + $2)) "$1/sparse"
	fallocate -l 1M "$1/unwritten$2" 2>/dev/null || truncate -s 1M "$1/unwritten$2"
	mkdir "$1/deep/$2"
	mv "$1/many/20$2.new" "$1/deep/$2/" 2>/dev/null || true
	ln "$1/new$2" "$1/deep/$2/link"
}

# Makes, renames and removes files for ever in a folder that the digest leaves out.
churn() {
	local i=0
	while [ -e "$1" ]; do
		i=$((i + 1))
		head -c $((i % 50 * 1000)) /dev/zero >"$1/a$((i % 20))" 2>/dev/null
		mv "$1/a$((i % 20))" "$1/b$((i % 10))" 2>/dev/null
		rm -f "$1/b$(((i + 5) % 10))"
	done
}

# fs_test FS FS_MIB LOG_MIB MKFS_OPTION...
fs_test() {
	local fs=$1 fs_mib=$2 log_mib=$3 sum pid
	shift 3
	card_make "$fs" "$fs_mib" $((fs_mib + log_mib + 16)) "$@"
	mount "$CARD" "$MNT"
	populate "$MNT"
	umount "$MNT"
	cow prepare "$CARD" --log-size "${log_mib}M"
	attach
	mount_volume -o noatime
	churn "$MNT/churn" 3>&- &
	pid=$!
	change "$MNT" 1
	cow commit "$NAME"
	change "$MNT" 2
	cow commit "$NAME" --checkpoint
	change "$MNT" 3
	kill $pid
	wait $pid || true
	umount_volume
	mount_volume -o noatime
	sum=$(tree_digest "$MNT")
	detach_whole "$fs"
	[ "$(bare_digest "$fs")" = "$sum" ]

	# once more, and the daemon dies instead
	attach
	mount_volume -o noatime
	churn "$MNT/churn" 3>&- &
	pid=$!
	change "$MNT" 4
	sum=$(tree_digest "$MNT")
	cow commit "$NAME"
	kill $pid
	wait $pid || true
	random_file "$MNT/lost" 2
	rm -r "$MNT/many"
	sync -f "$MNT"
	power_cut
	cow release "$CARD"
	[ "$fs" != xfs ] || { mount "$CARD" "$MNT"; umount "$MNT"; } # it has a log to replay
	[ "$(bare_digest "$fs")" = "$sum" ]
	fsck "$fs"
	[ "$(bare_digest "$fs")" = "$sum" ]
	cow check "$CARD"
}

@test "ext4, 4K blocks" { fs_test ext4 160 64 -J size=8; }
@test "ext4, 1K blocks" { fs_test ext4 96 64 -b 1024 -J size=8; }
@test "ext4, bigalloc" { fs_test ext4 160 64 -O bigalloc -C 16384 -J size=8; }
@test "ext4 without 64bit and metadata_csum" { fs_test ext4 160 64 -O ^64bit,^metadata_csum -J size=8; }
@test "ext3" { fs_test ext3 96 64 -J size=8; }
@test "xfs" { fs_test xfs 320 192; }
@test "btrfs" { fs_test btrfs 160 192; }
