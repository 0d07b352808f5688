#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Commits of ext3 and ext4, which are sealed when the journal is empty, and of btrfs and xfs, which are sealed at any moment:
# nothing is frozen, and no program can hold them. What they leave on the card: instant_images.bats.
# seconds: 55

load lib
load hold

setup() { hold_setup; }
teardown() { hold_teardown; }

commits_at_instant() {
	can_write
	run -0 --separate-stderr cow commit --json
	jq -e '.ok and (.quiesce | .instant and (.raw | not))' <<<"$output"
}

# A commit that somebody tries to hold: sealed at the instant, at once, and nothing was done to anybody.
unheld() {
	soon 8 commits_at_instant
	can_write
	[ "$(status_of .alarm)" = "" ]
}

nothing_holds() { # FOLDER HOW...
	local how core=''
	chown nobody "$1"
	[ "$(cat /proc/sys/kernel/core_pattern)" != core ] || core=core
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

@test "instant: leases of a user hold no commit, however many wait for them" { leases_hold_nothing ext4; }
@test "instant: leases of a user on btrfs" { leases_hold_nothing btrfs; }
@test "instant: leases of a user on xfs" { leases_hold_nothing xfs; }

leases_hold_nothing() { # FS
	local files round
	protect "$1"
	for round in 1 2 3; do # a lease is taken away 45 s after it was asked for
		files=("$MNT/leased-$round"-{1..60})
		touch "${files[@]}"
		chown nobody "${files[@]}"
		leases "${files[@]}"
		wait_for 20 waits_for_leases 60
		unheld
		wait_for 5 waits_for_leases 60
		kill $(pgrep -P "$HELD") "$HELD"
	done
	detach_whole "$1"
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
	detach_whole ext4
}

# The content changes, and no time stamp: no transaction writes the journal.
@test "instant: nothing but content has changed in place" {
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
	printf 'boot sector' | dd of="$DEV" bs=512 conv=notrunc,fsync status=none
	run -0 --separate-stderr cow commit --json
	jq -e '.ok and .quiesce.instant' <<<"$output"
	sha256sum <"$MNT/f" >"$T/sum"
	power_cut
	attach
	[ "$(head -c 11 "$DEV")" = 'boot sector' ]
	mount_volume
	sha256sum -c "$T/sum" <"$MNT/f"
	detach_whole ext4
}

is_one_request() {
	local worker waiting before requests
	worker=$(worker_pid)
	waiting=$T/fusectl/$(loop_backing "$DEV" | cut -d: -f2)/waiting
	before=$(cat "$waiting")
	kill -STOP "$worker"
	# as many segments as a request of the loop device may have, each in a page of its own
	background python3 -c '
import mmap, os, sys
memory = memoryview(mmap.mmap(-1, 2 << 20))
pieces = [memory[at:at + 1024] for at in range(1024, 128 << 13, 8192)]
os.pwritev(os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT), pieces, 100 << 20)' "$DEV"
	wait_for 5 eval '[ "$(cat "$waiting")" -gt "$before" ]'
	sleep 0.1
	requests=$(($(cat "$waiting") - before))
	kill -CONT "$worker"
	wait "$BG"
	echo "$requests"
	[ "$requests" -eq 1 ]
}

# A seal can fall between two requests of FUSE. It would cut one that touches more than 64 pages, if the daemon allowed no more.
@test "instant: a write of the file system is one request, however many pages it touches" {
	protect ext4
	umount_volume # of a mount, ext4lazyinit reads the bitmaps and jbd2 writes the journal meanwhile
	# a stranger's request may come meanwhile, but not each time
	is_one_request || is_one_request || is_one_request || is_one_request
	detach
}

@test "instant: a file system that another program has frozen" {
	protect ext4
	echo x >"$MNT/f"
	cow commit
	echo y >"$MNT/f"
	sync -f "$MNT"
	fsfreeze -f "$MNT"
	run -0 --separate-stderr cow commit --json
	jq -e '.ok and .quiesce.instant' <<<"$output"
	fsfreeze -u "$MNT"
	power_cut
	attach_mounted
	[ "$(cat "$MNT/f")" = y ]
	detach_whole ext4
}

@test "instant: an ext4 with fast commits is refused, with what to do" {
	card_make ext4 100 150 -O fast_commit
	fails 1 'has fast commits: unmount it, then tune2fs -O .fast_commit' prepare "$CARD"
	tune2fs -O ^fast_commit "$CARD"
	cow prepare "$CARD"
	tune2fs -O fast_commit "$CARD"
	fails 1 'tune2fs -O .fast_commit' attach "$CARD"
}

@test "instant: what has no journal is committed when it is read-only or unmounted, and says so before" {
	protect ext2
	echo x >"$MNT/f"
	fails 1 'ext2 is committed only while it is not mounted, or read-only.*tune2fs -j gives it a journal' commit
	mount -o remount,ro "$MNT"
	cow commit
	mount -o remount,rw "$MNT"
	echo y >"$MNT/g"
	detach_whole ext2
	mount "$CARD" "$MNT"
	[ "$(cat "$MNT/f" "$MNT/g")" = $'x\ny' ]
}
