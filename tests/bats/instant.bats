#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031,SC2034,SC2154 # each test is a subshell; run sets status, output and stderr; IMG, NAME: lib.bash
# Commits of ext3 and ext4, which are sealed when the journal is empty, of btrfs, which are sealed when a transaction ends, and of xfs:
# nothing is frozen, nobody can hold them, and what they leave on the card is a clean file system.
# alone: a commit that nobody holds has two seconds
# bats file_tags=commands

load lib
load hold

setup() {
	hold_setup || return
	NOISE=$BATS_TEST_DIRNAME/../tools/noise.py
}
teardown() { hold_teardown; }

protect() { # FS [MKFS_OPTION]...
	case $1 in
	# much of an xfs goes to the log, and a log that fills up makes commits of its own
	xfs) card_make xfs 320 680 "${@:2}" && cow format "$CARD" --log-size 340M ;;
	*) card_make "$1" 200 300 "${@:2}" && cow format "$CARD" ;;
	esac
	attach
	mount_volume
	chmod 1777 "$MNT"
}

# A commit that somebody tries to hold: sealed at the instant, at once, and nothing was done to anybody.
unheld() {
	local begin=${EPOCHREALTIME/./}
	can_write
	run -0 --separate-stderr cow commit --json
	jq -e '.ok and (.quiesce | .instant and (.frozen or .unfrozen | not))' <<<"$output"
	[ $((${EPOCHREALTIME/./} - begin)) -lt 2000000 ]
	can_write
	[ "$(status_of .alarm)" = "" ]
}

nothing_holds() { # FOLDER HOW...
	local how core=''
	chown nobody "$1"
	[ "$(cat /proc/sys/kernel/core_pattern)" = core ] && core=core
	for how in write writev write32 uring sendfile setxattr removexattr overlay race threads remap getdents $core "${@:2}"; do
		case $how in
		setversion | getdents) hold "$1" "$how" ;;
		*) hold "$1/hostile-$how" "$how" ;;
		esac
		unheld
		kill -0 "$HELD"
		mkdir -p "$T/view"
		cow view --now "$NAME" "$T/view"
		[ -e "$T/view/folder" ]
		umount "$T/view"
		let_go || true
	done
	detach
}

@test "instant: calls of a user that never end hold no commit, no view and no writer" {
	protect ext4 -O ^metadata_csum # for setversion
	mkdir "$MNT/folder"
	nothing_holds "$MNT/folder" setversion
	fsck ext4
}

@test "instant: calls of a user that never end, on a subvolume of btrfs" {
	protect btrfs
	btrfs subvolume create "$MNT/folder"
	nothing_holds "$MNT/folder"
	fsck btrfs
}

@test "instant: calls of a user that never end, on xfs" {
	protect xfs
	mkdir "$MNT/folder"
	nothing_holds "$MNT/folder"
	fsck xfs
}

@test "instant: leases of a user hold no commit, however many wait for them" {
	leases_hold_nothing ext4
}

@test "instant: leases of a user on btrfs" {
	leases_hold_nothing btrfs
}

@test "instant: leases of a user on xfs" {
	leases_hold_nothing xfs
}

leases_hold_nothing() { # FS
	local files
	protect "$1"
	files=("$MNT"/leased-{1..60})
	touch "${files[@]}"
	chown nobody "${files[@]}"
	leases "${files[@]}"
	wait_for 20 waits_for_leases 60
	for _ in 1 2 3 4 5; do
		unheld
		wait_for 5 waits_for_leases 60
	done
	kill $(pgrep -P "$HELD") "$HELD"
	detach
	fsck "$1"
}

@test "instant: programs that are stopped, or busy with a large truncate, in the middle of a call" {
	protect ext4
	mkdir -m 1777 "$MNT/d"
	background setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c '
import os, sys
while True:
    fd = os.open(sys.argv[1] + "/f", os.O_WRONLY | os.O_CREAT)
    os.posix_fallocate(fd, 0, 60 << 20)
    os.ftruncate(fd, 0)
    os.close(fd)
    for i in range(300):
        open(f"{sys.argv[1]}/{i}", "w").close()
        os.rename(f"{sys.argv[1]}/{i}", f"{sys.argv[1]}/x{i}")' "$MNT/d"
	for _ in $(seq 10); do
		sleep 0.1
		kill -STOP "$BG"
		unheld
		kill -CONT "$BG"
		unheld
	done
	kill "$BG"
	detach
	fsck ext4
}

# The content changes, and no time stamp: no transaction writes the journal.
@test "instant: nothing but content has changed in place" {
	local ctime
	protect ext4
	umount_volume
	mount_volume -o lazytime
	random_file "$MNT/f" 4
	cow commit
	for _ in 1 2 3; do
		dd if=/dev/urandom of="$MNT/f" bs=64k count=20 oflag=direct conv=notrunc status=none
		run -0 --separate-stderr cow commit --json
		jq -e '.ok and .quiesce.instant' <<<"$output"
	done
	# not even that: the boot sector, as a boot loader's installer writes it
	ctime=$(stat -c %Z.%z "$MNT")
	printf 'boot sector' | dd of="$DEV" bs=512 conv=notrunc,fsync status=none
	run -0 --separate-stderr cow commit --json
	jq -e '.ok and .quiesce.instant' <<<"$output"
	[ "$(stat -c %Z.%z "$MNT")" != "$ctime" ] # what made the journal write
	sha256sum <"$MNT/f" >"$T/sum"
	power_cut
	attach
	[ "$(head -c 11 "$DEV")" = 'boot sector' ]
	mount_volume
	sha256sum -c "$T/sum" <"$MNT/f"
	detach
	fsck ext4
}

# A seal can fall between two requests of FUSE. It would cut one that touches more than 64 pages, if the daemon allowed no more.
@test "instant: a write of the file system is one request, however many pages it touches" {
	local worker waiting before requests
	protect ext4
	dd if=/dev/zero of="$MNT/f" bs=256K count=1 conv=fsync status=none
	cow commit
	worker=$(worker_pid)
	waiting=$T/fusectl/$(loop_backing "$DEV" | cut -d: -f2)/waiting
	before=$(cat "$waiting")
	kill -STOP "$worker"
	# as many segments as a request of the loop device may have, each in a page of its own
	background python3 -c '
import mmap, os, sys
memory = memoryview(mmap.mmap(-1, 2 << 20))
pieces = [memory[at:at + 1024] for at in range(1024, 128 << 13, 8192)]
os.pwritev(os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT), pieces, 0)' "$MNT/f"
	wait_for 5 eval '[ "$(cat "$waiting")" -gt "$before" ]'
	sleep 0.1
	requests=$(($(cat "$waiting") - before))
	kill -CONT "$worker"
	wait "$BG"
	[ "$requests" -eq 1 ]
	detach
}

@test "instant: a file system that another program has frozen" {
	protect ext4
	echo x >"$MNT/f"
	cow commit
	echo y >"$MNT/f"
	sync -f "$MNT"
	fsfreeze -f "$MNT"
	fails 1 'another program has frozen the file system' commit
	fsfreeze -u "$MNT"
	cow commit
	[ "$(status_of .last.quiesce.instant)" = true ]
	detach
	fsck ext4
}

# Programs that write, read back and remove, in folders 1 to N of the volume.
noise_begin() { # N
	local job
	JOBS=()
	for job in $(seq "$1"); do
		"$NOISE" load "$MNT/$job" "$job" >>"$T/mismatches" 3>&- &
		JOBS+=($!)
	done
}

noise_end() { # each has read what it wrote
	local i
	for ((i = 1; i <= ${#JOBS[@]}; i++)); do touch "$MNT/$i.stop"; done
	for i in "${JOBS[@]}"; do
		wait "$i" || { cat "$T/mismatches"; return 1; }
	done
}

noise_verify() {
	local i
	for ((i = 1; i <= ${#JOBS[@]}; i++)); do "$NOISE" verify "$MNT/$i" "$i"; done
}

# A commit by pressure may follow another commit at once. Then the card has its guard, and a copy is of no use.
# An xfs is frozen for a checkpoint that is asked for: the copy is recovered instead.
committed_copy() { # FILE [OPTION-INSTEAD-OF---checkpoint]
	local generation before tries
	for tries in $(seq 20); do
		run -0 --separate-stderr cow commit ${2:---checkpoint} --json
		before=$(card_written)
		jq -e '.ok and .quiesce.instant and (.quiesce.frozen | not)' <<<"$output"
		generation=$(jq .generation <<<"$output")
		cp --sparse=always "$IMG" "$1"
		[ "$(card_written)" = "$before" ] && [ "$(status_of .generation)" = "$generation" ] || continue
		[ -z "${2-}" ] || cow recover "$1"
		return
	done
	echo "the card changed while it was copied, $tries times"
	return 1
}

# The committed image while programs write: nothing to replay, nothing to correct, and what was synced is there.
clean_under_load() { # FS MOUNT_OPTIONS [MKFS_OPTION]...
	local round
	protect "$1" -J size=8 "${@:3}"
	umount_volume
	mount_volume -o "$2"
	noise_begin 2
	for round in 1 2 3 4 5; do
		sleep 0.3
		echo "$round" >"$MNT/closed"
		committed_copy "$T/copy"
		run -0 dumpe2fs -h "$T/copy"
		[[ $output != *needs_recovery* ]]
		[ "$(debugfs -R 'cat closed' "$T/copy" 2>/dev/null)" = "$round" ]
		# files that are deleted and open are orphans, after a freeze as well; nothing else is wrong, not even a number of free blocks
		run debugfs -R 'show_super_stats -h' "$T/copy"
		[[ $output == *"First orphan"* || $output == *orphan_present* ]] || e2fsck -fn "$T/copy"
		e2fsck -fp "$T/copy" >"$T/fsck" || [ $? -le 1 ]
		! grep -v 'orphaned\|Clearing\|files (\|uid=\|orphan' "$T/fsck"
		e2fsck -fn "$T/copy"
	done
	noise_end
	noise_verify
	detach
	fsck "$1"
	loop_down "$CARD"
	IMG='' MNT=$T/mnt
}

@test "instant: each committed image is clean, of the default ext4" {
	clean_under_load ext4 noatime
}

@test "instant: each committed image is clean, with an orphan file" {
	clean_under_load ext4 noatime -O orphan_file
}

# Nothing syncs a file here: Linux 6.18 has deadlocked.
@test "instant: an ext4 with fast commits is frozen" {
	protect ext4 -O fast_commit
	touch "$MNT/f"
	run -0 --separate-stderr cow commit --json
	jq -e '.ok and (.quiesce | .frozen and (.instant | not))' <<<"$output"
	detach
	fsck ext4
}

@test "instant: each committed image is clean, of a 1K ext4 whose journal has the data" {
	clean_under_load ext4 data=journal -b 1024
}

@test "instant: each committed image is clean, of ext3 and of bigalloc" {
	clean_under_load ext3 noatime
	clean_under_load ext4 noatime -O bigalloc -C 16384
}

@test "instant: each committed image of btrfs is whole, and has what was closed" {
	local round
	protect btrfs -m single
	noise_begin 2
	mkdir "$T/copied"
	for round in $(seq 10); do
		sleep "0.$round"
		echo "$round" >"$MNT/closed"
		committed_copy "$T/copy"
		truncate -s 200M "$T/copy"
		btrfs check --check-data-csum "$T/copy"
		[ "$(btrfs restore -x "$T/copy" "$T/copied" >/dev/null 2>&1; cat "$T/copied/closed")" = "$round" ]
		rm -rf "$T/copied" && mkdir "$T/copied"
	done
	noise_end
	detach
	fsck btrfs
}

# A mount replays the log of xfs. Then nothing is wrong with it.
@test "instant: each committed image of xfs is whole after its replay, and has what was closed" {
	local round opts
	for opts in '' '-b size=1k -n size=64k'; do
		IMG=$T/card.img
		# shellcheck disable=SC2086
		protect xfs $opts
		noise_begin 2
		for round in $(seq 8); do
			sleep "0.$round"
			echo "$round" >"$MNT/closed"
			committed_copy "$T/copy" --verbose
			truncate -s 320M "$T/copy"
			mkdir -p "$T/copied"
			mount -o loop,nouuid "$T/copy" "$T/copied"
			[ "$(cat "$T/copied/closed")" = "$round" ]
			umount "$T/copied"
			xfs_repair -n "$T/copy" >"$T/repair" 2>&1 || { cat "$T/repair"; false; }
		done
		noise_end
		detach
		fsck xfs
		loop_down "$CARD"
	done
}

# What is free in the sealed image is not written. The card has noise in those places: whoever reads one gets it.
free_is_noise() { # FS MIB COMMITS [MKFS_OPTION]...
	local commits
	IMG=$T/card.img
	card_make "$1" "$2" 1900 "${@:4}"
	dd if=/dev/urandom of="$T/noise" bs=1M count=250 status=none
	mount -o nodiscard "$CARD" "$MNT"
	cp "$T/noise" "$MNT/"
	sync -f "$MNT"
	rm "$MNT/noise" "$T/noise"
	umount "$MNT"
	cow format "$CARD" --log-size 600M
	attach
	mount_volume -o noatime
	noise_begin 8
	for commits in $(seq "$3"); do
		run -0 --separate-stderr cow commit --json
		# the programs may not have got the processor since
		jq -e '.quiesce.instant or .report.dirty_blocks == 0' <<<"$output"
	done
	noise_end
	umount_volume
	fsck "$1" "$DEV"
	mount_volume
	noise_verify
	detach
	fsck "$1"
}

@test "instant: no program reads what a commit has dropped" {
	free_is_noise ext4 360 150 -b 4096 -J size=4
}

@test "instant: no program reads what a commit of btrfs has dropped" {
	free_is_noise btrfs 1200 80 -m single
}

@test "instant: no program reads what a commit of xfs has dropped" {
	free_is_noise xfs 800 80
}
