#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# umount without the helper, remount and checkers in the middle of commits: as without cowfs.

load lib

ROUNDS=$(rounds 40)

check_now() { # FS
	case $1 in
	ext*) e2fsck -fn "$DEV" ;;
	xfs) xfs_repair -n "$DEV" ;;
	btrfs) btrfs check "$DEV" ;;
	esac >"$T/check" 2>&1
}

protect() { # FS [MKFS_OPTION]...
	case $1 in
	xfs) card_make xfs 320 680 "${@:2}"; cow prepare "$CARD" --log-size 340M ;;
	*) card_make "$1" 200 300 "${@:2}"; cow prepare "$CARD" ;;
	esac
	attach
	random_file "$T/file" 4
}

# A commit that begins, and after up to 0.1 s what is to be tried: BUSY and BAD count what failed.
in_commits() { # FS TRY
	local round pid late
	BUSY=0 BAD=0 REFUSED=0 LATE=0
	for ((round = 1; round <= ROUNDS; round++)); do
		mountpoint -q "$MNT" || mount_volume
		echo "$round" >"$MNT/closed"
		cp "$T/file" "$MNT/file"
		cow commit --json >"$T/out" 2>&1 3>&- &
		pid=$!
		sleep "0.0$(printf %02d $((RANDOM % 100)))"
		"$2" "$1"
		# a checker is a user of the device that is not known
		wait "$pid" || { jq -e '.code == "ESTALE"' "$T/out"; REFUSED=$((REFUSED + 1)); }
	done
	say "$1: busy $BUSY, checker failed $BAD, commits refused because of the checker $REFUSED, of $ROUNDS"
}

unmount_and_check() {
	if ! umount -i "$MNT"; then
		BUSY=$((BUSY + 1))
		return
	fi
	check_now "$1" || { BAD=$((BAD + 1)) && cat "$T/check"; }
}

remount() {
	mount -o remount,ro "$MNT" || BUSY=$((BUSY + 1))
	mount -o remount,rw "$MNT" || { LATE=$((LATE + 1)) && wait_for 10 mount -o remount,rw "$MNT"; }
}

unmounts() { # FS BAD: how often the checker may find it mounted
	protect "$1"
	in_commits "$1" unmount_and_check
	[ $BUSY = 0 ]
	mount_volume
	cow commit
	[ "$(cat "$MNT/closed")" = $ROUNDS ]
	detach_whole "$1"
	[ $BAD -le "$2" ]
}

@test "unmount: in the middle of commits, and a checker right after it: ext4" { unmounts ext4 2; }
@test "unmount: in the middle of commits, and a checker right after it: xfs" { unmounts xfs 0; }
@test "unmount: in the middle of commits, and a checker right after it: btrfs" { unmounts btrfs 2; }

@test "unmount: to remount read-only and back in the middle of commits" {
	local fs
	for fs in ext4 xfs btrfs; do
		IMG=$T/$fs.img
		protect $fs
		in_commits $fs remount
		[ $BUSY = 0 ]
		[ $BAD = 0 ]
		[ $LATE = 0 ]
		detach_whole $fs
		loop_down "$CARD"
	done
}

@test "unmount: to remount read-write in the middle of commits that found a read-only file system" {
	local fs round pid late
	for fs in ext4 ext2 btrfs; do
		IMG=$T/$fs.img late=0
		protect $fs
		mount_volume
		for ((round = 1; round <= ROUNDS; round++)); do
			echo "$round" >"$MNT/closed"
			cp "$T/file" "$MNT/file"
			mount -o remount,ro "$MNT"
			cow commit --json >"$T/out" 2>&1 3>&- &
			pid=$!
			sleep "0.00$((RANDOM % 10))"
			mount -o remount,rw "$MNT" || { late=$((late + 1)); wait_for 10 mount -o remount,rw "$MNT"; }
			# an ext2 that was remounted before the look is refused
			wait "$pid" || [ "$(jq -r .code "$T/out")$fs" = EOPNOTSUPPext2 ]
		done
		say "$fs: $late of $ROUNDS remounts failed"
		[ $late = 0 ]
		mount -o remount,ro "$MNT"
		run -0 --separate-stderr cow commit --json
		jq -e '.ok and (.report.dirty_blocks == 0 or .quiesce.instant)' <<<"$output"
		power_cut
		attach_mounted
		[ "$(cat "$MNT/closed")" = $ROUNDS ]
		detach_whole $fs
		loop_down "$CARD"
	done
}

# The device is free as soon as nobody has it: mkfs, losetup -d and others claim it.
@test "unmount: commits of a volume that is not mounted hold the device from nobody" {
	local failed=0 claims
	protect ext4
	background python3 -c '
import os, sys, time
failed = claims = 0
end = time.time() + 5
while time.time() < end:
    try:
        os.close(os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL))
        claims += 1
    except OSError:
        failed += 1
    time.sleep(0.002)
print(failed, claims)' "$DEV" >"$T/claims"
	while kill -0 "$BG" 2>/dev/null; do
		dd if=/dev/urandom of="$DEV" bs=512 count=1 seek=1 conv=notrunc,fsync status=none
		cow commit >/dev/null
	done
	read -r failed claims <"$T/claims"
	say "$failed of $((failed + claims)) claims failed"
	[ $((failed * 50)) -le "$claims" ]
	detach
}
