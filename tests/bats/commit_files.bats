#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl commit PATH: these files, nothing else, atomically, and the running system does not notice. Three trees are
# compared: LIVE, what the volume must show; CARD_TREE, what the card must have; and what is there. SEEDS=1-50: these
# random ones; KILLS: more power cuts.

load lib

setup() {
	cow_setup
	LIVE=$T/live CARD_TREE=$T/card V=$T/view
	mkdir "$LIVE" "$CARD_TREE" "$V"
	view_disks >"$T/view-disks"
	# not the disk of this machine: xattrs of users need 6.6 there, else they are left out of both
	mount -t tmpfs -o mode=755 tmpfs "$LIVE"
	mount -t tmpfs -o mode=755 tmpfs "$CARD_TREE"
}

volume() {
	local fs=$1 lag=$2
	shift 2
	# xfs commits by itself at a share of the log
	local mib=24 log=64
	[ "$fs" != xfs ] || mib=310 log=96
	volume_mounted "$fs" "$mib" $((mib + log + 8)) "$@" -- --lag "$lag" --log-size "${log}M" -- ${PROFILE:+--profile "$PROFILE"}
}

# differ A B: rsync -i, without the times of folders, which a commit of their files changes
differ() { trees_differ "$1" "$2" -H --exclude=/lost+found; }

change() {
	"$BATS_TEST_DIRNAME/random_tree.py" "$1" "$2" "$LIVE" "$MNT"
}

commit_path() {
	local p=$1
	shift
	if [ -e "$LIVE/$p" ] || [ -e "$CARD_TREE/$p" ]; then
		cow commit "$@" "$MNT/$p" >/dev/null || return
		mkdir -p "$CARD_TREE/$(dirname "$p")"
		if [ -e "$LIVE/$p" ]; then
			rsync -aHAX --modify-window=-1 --delete "$LIVE/$p" "$CARD_TREE/$(dirname "$p")/"
		else
			rm -rf "${CARD_TREE:?}/$p"
		fi
	fi
}

committed_is_right() { is_committed_in vol "$CARD_TREE" differ; }

# from the device, not from caches
live_is_right() {
	umount_volume && mount_volume && differ "$LIVE" "$MNT"
}

card_is_right() {
	local bad=0
	cow release "$CARD" >/dev/null || return
	# the log of a frozen xfs has its counters
	[ "$1" = xfs ] || fsck "$1" >/dev/null || return
	mount "$CARD" "$V" || return
	differ "$CARD_TREE" "$V" || bad=1
	umount "$V"
	[ $bad = 0 ] && fsck "$1" >/dev/null 2>&1
}

full_commit() {
	cow commit vol "$@" >/dev/null || return
	rsync -aHAX --modify-window=-1 --delete "$LIVE/" "$CARD_TREE/"
}

one_random() {
	local seed=$1 fs=$2 lag=$3 round n
	echo "SEEDS=$seed"
	RANDOM=$seed
	volume "$fs" "$lag" "${@:4}"
	change "$seed" 150
	full_commit
	for ((round = 1; round <= 5; round++)); do
		change "$((seed * 100 + round))" $((RANDOM % 40 + 5))
		n=f$((RANDOM % 5))
		case $((RANDOM % 8)) in
		0) commit_path "$n" --checkpoint ;;
		1) full_commit ;;
		2) commit_path "$n" && change "$((seed * 100 + round + 50))" 20 && commit_path f$((RANDOM % 5)) ;;
		*) commit_path "$n" ;;
		esac || { echo "round $round: commit"; return 1; }
		committed_is_right || { echo "round $round: committed"; return 1; }
		[ $((RANDOM % 3)) != 0 ] || live_is_right || { echo "round $round: live"; return 1; }
	done
	live_is_right || { echo "live"; return 1; }
	if [ $((seed % 2)) = 0 ]; then
		full_commit && committed_is_right && live_is_right || { echo "full commit"; return 1; }
	fi
	[ "$(status_of .alarm)" = "" ]
	give_up_early
	power_cut
	card_is_right "$fs" || { echo "card"; return 1; }
}

random() {
	local seed
	for seed in $(seeds 1); do
		one_random "$seed" "$@"
		loop_down "$CARD"
		rm -rf "$IMG" "${LIVE:?}"/* "${CARD_TREE:?}"/*
	done
}

@test "random trees, ext4" { random ext4 0; }
@test "random trees, ext4 with blocks of 1 KiB and lag 1" { random ext4 1 -b 1024; }
@test "random trees, ext4 with blocks of 2 KiB" { random ext4 0 -b 2048; }
@test "random trees, xfs" { random xfs 0; }
@test "random trees, xfs with blocks of 1 KiB" { random xfs 0 -b size=1024; }
@test "random trees, ext3" { random ext3 0; }

# With a profile, gaps between blocks are written over: only where nothing reads them.
@test "random trees, ext4 with a planned profile" {
	PROFILE=$("$COWFS_BUILD/cowfs-cardsim" list | awk 'NR == 1 { print $1 }')
	random ext4 0
}

@test "refused with a sentence" {
	volume ext4 0
	echo x >"$MNT/a"
	fails 2 'exists neither now nor in generation' commit vol "$MNT/nothing"
	fails 2 'a PATH and --dry-run are mutually exclusive' commit --dry-run vol "$MNT/a"
	fails 2 'mutually exclusive' commit --json --force "$MNT/a"
	fails 2 'does not lie on volume vol' commit vol "$T/live"
	fails 4 'no volume is attached' commit "$T/live"
	cow commit "$MNT/a"
	detach_whole ext4
	volume_mounted btrfs 200 300
	echo x >"$MNT/a"
	fails 1 'on ext3, ext4 and xfs only' commit "$MNT/a"
}

@test "everything a file has, hard links, deleted files" {
	volume ext4 0
	"$BATS_TEST_DIRNAME/mktree.py" "$MNT/d"
	mkdir "$MNT/other"
	ln "$MNT/d/big" "$MNT/other/big"
	cow commit "$MNT/d"
	cow view vol "$V"
	rsync -n -i --checksum -aHAX --numeric-ids --delete "$MNT/d/" "$V/d/" >"$T/out"
	[ ! -s "$T/out" ]
	[ ! -e "$V/other" ]
	umount "$V"
	chattr -i "$MNT/d/immutable"
	rm "$MNT/d/immutable" "$MNT/d/a"
	cow commit "$MNT/d/immutable" "$MNT/d/a"
	cow view vol "$V"
	[ ! -e "$V/d/immutable" ]
	[ ! -e "$V/d/a" ]
	[ "$V/d/a2" -ef "$V/d/e/a3" ]
	umount "$V"
	chattr -R -f -i -a "$MNT" || true
}

# What is left uncommitted is what differs, and a full commit takes it.
@test "generations, and what is not committed" {
	local before
	volume ext4 0
	before=$(status_of .generation)
	echo 1 >"$MNT/a"
	echo 1 >"$MNT/b"
	run -0 cow commit "$MNT/a"
	[[ $output == *"as generation $((before + 1)) in"* ]]
	[ "$(status_of .generation)" = $((before + 1)) ]
	[ "$(status_of '.dirty_blocks > 0')" = true ]
	run -0 cow commit "$MNT/a"
	[[ $output == *"nothing to commit"* ]]
	run -0 cow commit --json "$MNT/a"
	jq -e ".ok and .schema == 1 and .generation == $((before + 1)) and .report.written_bytes == 0" <<<"$output"
	run -0 cow diff vol
	[[ $output == *"$MNT/b"* && $output != *"$MNT/a"$'\n'* ]]
	cow commit vol
	cow view vol "$V"
	grep -q 1 "$V/b"
}

@test "a database with its log is committed as of one moment" {
	volume ext4 0
	mkdir "$MNT/db"
	sqlite3 "$MNT/db/x" 'PRAGMA journal_mode=WAL; CREATE TABLE t (n); INSERT INTO t VALUES (0);' >/dev/null
	cow commit vol
	background sh -c 'i=1; while sqlite3 "$1" "BEGIN; DELETE FROM t; INSERT INTO t VALUES ($i); INSERT INTO t VALUES ($i); COMMIT;"; do i=$((i + 1)); done 2>/dev/null' sh "$MNT/db/x"
	for _ in 1 2 3 4; do
		cow commit "$MNT/db"
		cow view vol "$V"
		rm -rf "$T/db"
		cp -r "$V/db" "$T/db"
		umount "$V"
		[ "$(sqlite3 "$T/db/x" 'PRAGMA integrity_check; SELECT count(*) = 2 AND min(n) = max(n) FROM t;' | xargs)" = "ok 1" ] ||
			[ "$(sqlite3 "$T/db/x" 'SELECT count(*) FROM t;')" = 1 ]
	done
	kill "$BG"
}

@test "what only the journal has differs as well" {
	card_prepared ext4 60 100
	mount "$CARD" "$MNT"
	mkdir "$MNT/d"
	touch "$MNT/mode" "$MNT/d/gone" "$MNT/d/stays"
	umount "$MNT"
	attach_mounted
	chmod 600 "$MNT/mode"
	rm "$MNT/d/gone"
	touch "$MNT/d/new"
	sync "$MNT/d/new" # into the journal
	run -0 cow diff vol
	[[ $output == *"$MNT/mode"* && $output == *"$MNT/d/gone"* && $output == *"$MNT/d/new"* ]]
	cow commit vol "$MNT/mode" "$MNT/d"
	power_cut
	cow release "$CARD"
	mount -o ro "$CARD" "$MNT"
	[ "$(stat -c %a "$MNT/mode")" = 600 ]
	[ "$(ls "$MNT/d")" = $'new\nstays' ]
	umount "$MNT"
	fsck ext4
}

# The sync of the view of this command does not end, or with FULL=1 the log is full before.
view_lacks() { # COMMAND...
	local one
	COWFS_SYNC_HANGS=$T/hang with_shim volume xfs 0
	echo old >"$MNT/file"
	cow commit vol
	echo new >"$MNT/file"
	touch "$T/hang"
	background "$COWFS_BUILD/cowctl" "$@" >"$T/out" 2>&1
	one=$BG
	wait_for 20 job_is view
	background dd if=/dev/zero of="$MNT/big" bs=1M count=${FULL:+9}0 oflag=direct status=none
	code=0
	wait "$one" || code=$?
	rm "$T/hang"
	cat "$T/out"
	wait "$BG"
}

@test "the log is full before the sync of a view has ended: what the view lacks is not called committed" {
	local code
	FULL=1 view_lacks commit vol "$MNT/file"
	[ $code = 1 ]
	cow commit vol
	cow commit vol "$MNT/file"
	detach
	mount "$CARD" "$MNT"
	[ "$(cat "$MNT/file")" = new ]
}

view_warns() { # COMMAND...
	local code
	view_lacks "$@"
	[ $code = 0 ] || return
	grep 'volume vol: the file system could not be synced: files that were written last are old' "$T/out"
}

@test "the sync of a view does not end: diff says so" { view_warns diff vol; }

@test "the log is full before the sync of a view has ended: view --now says so" {
	mkdir "$T/look"
	FULL=1 view_warns view --now vol "$T/look"
	[[ $(cat "$T/look/file") =~ ^(old|new)$ ]]
}

@test "the log is full before the sync of a view has ended: clone says so" {
	truncate -s 450M "$T/copy"
	FULL=1 view_warns clone vol "$T/copy" --yes
}

@test "stopped at any time: nothing stays mounted, the next one works" {
	local i
	volume ext4 0
	change 1 60
	full_commit
	for i in 1 2 3 5 7 10 14 20; do
		change "10$i" 10
		"$COWFS_BUILD/cowctl" commit "$MNT/f1" >/dev/null 2>&1 &
		sleep "0.0$i"
		kill -"$([ $((i % 2)) = 0 ] && echo INT || echo KILL)" $! 2>/dev/null || true
		wait $! || true
	done
	views_gone 60
	commit_path f1
	rsync -aHAX --modify-window=-1 --delete "$LIVE/f1" "$CARD_TREE/"
	committed_is_right
	live_is_right
	detach
}

@test "another commit in between: it starts again, and commits what is newer" {
	local i
	volume ext4 0
	change 1 60
	for i in 1 2 3 4; do
		change "10$i" 20
		background cow commit vol
		cow commit "$MNT/f1" || true
		wait "$BG" || true
	done
	cow commit "$MNT/f1"
	full_commit
	committed_is_right
	live_is_right
}

@test "several at a time, one after another" {
	local i pids=()
	volume ext4 0
	change 1 60
	full_commit
	change 2 60
	for i in 0 1 2 3; do
		cow commit "$MNT/f$i" >/dev/null 3>&- &
		pids+=($!)
	done
	for i in "${pids[@]}"; do
		wait "$i"
	done
	for i in 0 1 2 3; do
		[ ! -e "$LIVE/f$i" ] || rsync -aHAX --modify-window=-1 --delete "$LIVE/f$i" "$CARD_TREE/"
	done
	committed_is_right
	live_is_right
}

what_changed() { # BLOCK_BYTES
	local before
	volume_mounted ext4 180 260 -b "$1" -N 30000 -- --log-size 64M --
	mkdir "$MNT/k" "$MNT/other"
	random_file "$MNT/k/big" 64
	# tables of inodes of 5 MiB
	(cd "$MNT/other" && seq 20000 | xargs touch)
	echo 1 >"$MNT/k/f"
	ln "$MNT/k/f" "$MNT/k/g"
	# whole, so that it does not begin by itself
	cow commit vol --checkpoint
	echo 2 >"$MNT/k/f"
	before="$(card_read) $(card_written)"
	cow commit "$MNT/k"
	echo "$before, then $(card_read) $(card_written)"
	(($(card_read) - ${before% *} < 2 << 20 && $(card_written) - ${before#* } < 200 << 10)) || return
	cow view vol "$V"
	[ "$(cat "$V/k/f" "$V/k/g")" = $'2\n2' ]
	cmp "$V/k/big" "$MNT/k/big" || return
	umount "$V"
	# all over the tables, and blocks beside those of others
	cow commit vol --checkpoint
	(cd "$MNT/other" && for i in $(seq 1 100 20000); do echo "$i" >"$i"; done)
	echo 3 >"$MNT/k/f"
	before=$(card_read)
	cow commit "$MNT/k"
	before=$(($(card_read) - before))
	echo "$before"
	((before < 4 << 20)) || return
	detach_whole ext4
}

@test "what did not change is neither read nor written" { what_changed 4096; }
@test "what did not change is neither read nor written, blocks of 1 KiB" { what_changed 1024; }

# What cowctl(8) says that it costs.
@test "an xfs: some 2 MiB for its mount, and for the first one after a commit what its live log held" {
	local before i written=()
	volume_mounted xfs 310 460 -- --log-size 128M --
	mkdir "$MNT/k" "$MNT/other"
	(cd "$MNT/other" && seq 8000 | xargs touch)
	cow commit vol
	for i in 0 1 2; do
		echo "$i" >"$MNT/k/f"
		before=$(card_written)
		cow commit "$MNT/k"
		written+=($((($(card_written) - before) >> 10)))
	done
	echo "KiB: ${written[*]}"
	((written[0] > written[1] && written[0] < 16 << 10 && written[1] < 3 << 10 && written[2] < 3 << 10))
	detach_whole xfs
}

@test "what is preallocated is not written, and stays so: commit PATH, revert" {
	local before
	volume_mounted ext4 180 260 -- --log-size 64M --
	mkdir "$MNT/d"
	sync -f "$MNT"
	cow commit vol
	fallocate -l 60M "$MNT/d/db"
	echo head | dd of="$MNT/d/db" conv=notrunc status=none
	before=$(card_written)
	cow commit "$MNT/d/db"
	(($(card_written) - before < 1 << 20))
	# in place, too
	echo middle | dd of="$MNT/d/db" bs=1M seek=30 conv=notrunc status=none
	before=$(card_written)
	cow commit "$MNT/d/db"
	(($(card_written) - before < 1 << 20))
	cow view vol "$V"
	cmp "$V/d/db" "$MNT/d/db"
	[ "$(stat -c %b "$V/d/db")" -ge $((60 << 11)) ]
	umount "$V"
	cow commit vol
	rm "$MNT/d/db"
	cow revert --yes "$MNT/d"
	sync -f "$MNT"
	[ "$(stat -c %b "$MNT/d/db")" -ge $((60 << 11)) ]
	[ "$(status_of .dirty_blocks)" -lt 1000 ]
	detach_whole ext4
}

one_block_reshaped() { # BLOCK_BYTES FS [MKFS_OPTION]...
	local block=$1 how
	volume "$2" 0 "${@:3}"
	for how in p z c i; do
		head -c 16384 /dev/zero | tr '\0' x >"$MNT/$how"
		cow commit vol
		fallocate "-$how" -o 4096 -l "$block" "$MNT/$how"
		cow commit "$MNT/$how"
		cow view vol "$V"
		cmp "$MNT/$how" "$V/$how" || return
		umount "$V"
	done
	detach_whole "$2"
}

@test "a hole of one block, with data behind it: blocks of 1 KiB" { one_block_reshaped 1024 ext4 -b 1024; }
@test "a hole of one block, with data behind it: blocks of 2 KiB" { one_block_reshaped 2048 ext4 -b 2048; }
@test "a hole of one block, with data behind it: blocks of 4 KiB" { one_block_reshaped 4096 ext4 -b 4096; }
@test "a hole of one block, with data behind it: an xfs with blocks of 1 KiB" { one_block_reshaped 1024 xfs -b size=1024; }

@test "files that are exchanged for as many bytes of others: what goes makes room, commit PATH and revert" {
	local i
	volume_mounted ext4 60 180 -- --log-size 96M --
	mkdir "$MNT/d"
	for i in 1 2 3 4 5; do random_file "$MNT/d/m$i" 7; done
	cow commit vol
	rm "$MNT"/d/m*
	sync -f "$MNT"
	for i in 1 2 3 4 5; do random_file "$MNT/d/z$i" 7; done
	cow revert --yes "$MNT/d"
	[ "$(ls "$MNT/d" | xargs)" = "m1 m2 m3 m4 m5" ]
	rm "$MNT"/d/m*
	sync -f "$MNT"
	for i in 1 2 3 4 5; do random_file "$MNT/d/b$i" 7; done
	cow commit "$MNT/d"
	cow view vol "$V"
	[ "$(ls "$V/d" | xargs)" = "b1 b2 b3 b4 b5" ]
	umount "$V"
	detach_whole ext4
}

@test "files that need more RAM than is free are refused before the first byte, with the sizes" {
	volume_mounted ext4 180 260 -b 4096 -- --log-size 64M -- --ram 64M
	mkdir "$MNT/d"
	cow commit vol
	random_file "$MNT/d/large" 38
	sync -f "$MNT"
	# what is preallocated needs none
	fallocate -l 40M "$MNT/d/room"
	for _ in 1 2; do
		run -1 --separate-stderr cow commit "$MNT/d"
		[[ $stderr == *"these files need 38.0 MiB of RAM, of which "*" (of 64.0 MiB) are free"*"nothing was committed" ]]
	done
	rm -r "$MNT/d"
	# of a large file only what differs counts
	cow commit vol
	random_file "$MNT/large" 70
	cow commit vol
	echo x | dd of="$MNT/large" bs=1M seek=30 conv=notrunc status=none
	cow commit "$MNT/large"
	cow view vol "$V"
	cmp "$MNT/large" "$V/large"
	umount "$V"
	detach_whole ext4
}

@test "blocks that files share stay shared" {
	local before
	volume_mounted xfs 310 420 -m reflink=1 -- --log-size 96M --
	mkdir "$MNT/d"
	cow commit vol
	random_file "$MNT/d/1" 20
	echo tail >>"$MNT/d/1"
	cp --reflink=always "$MNT/d/1" "$MNT/d/2"
	cp --reflink=always "$MNT/d/1" "$MNT/d/3"
	echo x | dd of="$MNT/d/3" bs=1M seek=5 conv=notrunc status=none
	before=$(card_written)
	cow commit "$MNT/d"
	(($(card_written) - before < 30 << 20))
	cow view vol "$V"
	cmp "$V/d/1" "$MNT/d/1"
	cmp "$V/d/2" "$MNT/d/2"
	cmp "$V/d/3" "$MNT/d/3"
	umount "$V"
	detach_whole xfs
}

@test "RAM that is short fails it, and nothing else" {
	volume ext4 0
	change 1 30
	full_commit
	detach
	attach_mounted --ram 16M
	random_file "$MNT/large" 12
	cp -p "$MNT/large" "$LIVE/"
	run cow commit "$MNT/large" # 0 if pressure has committed it
	[[ $status = 0 || $output == *"RAM"* ]]
	live_is_right
	cow commit vol
	detach_whole ext4
}

@test "the power fails at any time: the old generation, or these files as well" {
	local i
	volume ext4 0
	change 1 60
	full_commit
	for ((i = 0; i < ${KILLS:-6}; i++)); do
		change "20$i" 12
		"$COWFS_BUILD/cowctl" commit "$MNT/f2" "$MNT/f3" >/dev/null 2>&1 &
		sleep "0.$((RANDOM % 20 + 2))"
		power_cut 2>/dev/null
		wait $! || true
		cow release "$CARD" >/dev/null
		fsck ext4 >/dev/null
		mount "$CARD" "$V"
		if ! differ "$CARD_TREE" "$V" >/dev/null; then
			rsync -aHAX --modify-window=-1 --delete "$LIVE/f2" "$LIVE/f3" "$CARD_TREE/"
			differ "$CARD_TREE" "$V"
		fi
		rsync -aHAX --modify-window=-1 --delete "$CARD_TREE/" "$LIVE/"
		umount "$V"
		attach_mounted
	done
}

# The copy takes blocks, and the running system still uses those that the scratch image frees.
@test "a small log holds what is changed after a renamed file was committed" {
	volume_mounted ext4 200 240 -- --log-size 16M --erase-block 1M
	random_file "$MNT/a" 50
	random_file "$MNT/c" 70
	cow commit vol
	mv "$MNT/a" "$MNT/b"
	cow commit "$MNT/a" "$MNT/b"
	random_file "$T/new" 70
	dd if="$T/new" of="$MNT/c" bs=1M conv=notrunc,fsync status=none
	cow commit vol
	[ "$(status_of .alarm)" = "" ]
	power_cut
	cow release "$CARD"
	mount "$CARD" "$V"
	cmp "$T/new" "$V/c"
	umount "$V"
	fsck ext4
}

# Does an image that the command in the background has mounted have this file?
image_has() { # FILE
	local file
	for file in /proc/"$BG"/fd/*/"$1"; do
		[ ! -e "$file" ] || return 0
	done
	return 1
}

# Linux gives away the blocks of a deleted file once the journal has committed, and the log cannot hold what is written there.
@test "a copy that takes longer than a transaction of the journal goes where the file system was free" {
	volume_mounted ext4 200 240 -- --log-size 16M --erase-block 1M
	random_file "$MNT/a" 50
	random_file "$MNT/c" 50
	cow commit vol
	rm "$MNT/a"
	mv "$MNT/c" "$MNT/b"
	background "$COWFS_BUILD/cowctl" commit "$MNT/a" "$MNT/b" "$MNT/c"
	until image_has a || [ ! -e "/proc/$BG/exe" ]; do :; done
	while image_has a; do :; done
	kill -STOP "$BG"
	sleep 8 # a transaction lasts 5
	kill -CONT "$BG"
	wait "$BG"
}
