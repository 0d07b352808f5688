#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031,SC2154 # each test is a subshell; run sets status and output
# What a worker that was taken over says: root's commands act on what root knows.

load lib

setup() {
	cow_setup
	! ldd "$COWFS_BUILD/cowfs" | grep -Eq 'libasan|libtsan' || skip "its preload library comes first"
	LIAR=${COWFS_TEST_LIAR:-$COWFS_BUILD/tests/liar.so}
	# the honest card
	IMG=$T/other.img
	card_make ext4 60 100
	OTHER=$CARD
	fill "$OTHER" honest
	cow format "$OTHER"
	# that of the attacker
	IMG=$T/card.img
	card_make ext4 60 100
	fill "$CARD" stolen
	mount "$CARD" "$MNT"
	mkdir "$MNT/app"
	cp /bin/id "$MNT/app/id"
	chmod 4755 "$MNT/app/id"
	umount "$MNT"
	blockdev --setrw "$CARD"
	cow format "$CARD"
	mkdir "$T/other"
}

teardown() { cow_teardown; }

fill() { # DEVICE TEXT
	mount "$1" "$MNT"
	echo "$2" >"$MNT/which"
	umount "$MNT"
	blockdev --setrw "$1"
}

liar() { # KEY=VALUE [OPTION...]
	COWFS_LIE=$1 LD_PRELOAD=$LIAR attach "${@:2}"
}

attach_other() {
	local card=$CARD
	CARD=$OTHER attach --name zother
	OTHER_DEV=$(CARD=$OTHER NAME=zother status_of .loop)
	CARD=$card
	mount "$OTHER_DEV" "$T/other"
	echo changed >"$T/other/which"
}

@test "a worker that names another kind of file system: nothing is mounted but its volume" {
	local kind
	for kind in devtmpfs proc sysfs overlay vfat; do
		liar "fs_type=$kind" --name vol
		mount_volume
		echo "$kind" >"$MNT/app/new"
		run cow commit "$MNT/app"
		[ "$status" -ne 0 ]
		[ ! -e /dev/app ]
		mkdir -p "$T/view"
		run cow view vol "$T/view"
		[ "$status" -ne 0 ]
		! mountpoint -q "$T/view"
		fails 1 . diff vol
		umount_volume
		cow detach --discard vol
	done
}

@test "a worker that names another card: mount.cowfs mounts that card's own volume" {
	liar "device=$OTHER" --name bad
	[ "$(NAME=bad status_of .device)" = "$CARD" ]
	"$COWFS_BUILD/mount.cowfs" "$OTHER" "$T/other"
	[ "$(cat "$T/other/which")" = honest ]
	! [ -e "$T/other/app" ]
	umount "$T/other"
}

@test "a worker that names another volume's disk: revert, diff, commit PATH, umount.cowfs and udev take that of root" {
	attach_other
	liar "loop=$OTHER_DEV" --name avol
	cow revert --yes "$T/other/which"
	[ "$(cat "$T/other/which")" = honest ]
	echo changed >"$T/other/which"
	cow diff "$T/other/which" | grep -q which
	cow commit "$T/other/which" | grep -q '^zother'
	[ "$(systemd_helper which-device "${OTHER_DEV#/dev/}")" = volume ]
	[ "$(NAME=avol status_of .loop)" != "$OTHER_DEV" ]
	"$COWFS_BUILD/umount.cowfs" "$T/other"
	fails 4 . status zother
	cow detach --discard avol
}

systemd_helper() { "$COWFS_BUILD/../systemd/$1" "${@:2}" || true; }

@test "a worker that names a device of the machine: udev, wear, scrub and clone do not touch it" {
	local disk=$OTHER
	liar "device=$disk" --name vol
	[ "$(systemd_helper which-device "${disk#/dev/}")" = "" ]
	[ "$(systemd_helper which-device "${CARD#/dev/}")" = base ]
	[ "$(cow wear vol --json | jq -r .device)" = "$CARD" ]
	cow scrub vol --json | jq -e --arg d "$CARD" '.device == $d'
	cow detach vol
}

@test "a worker that names a device in the line of its start: mount.cowfs mounts the volume" {
	COWFS_LIE=loop=$OTHER LD_PRELOAD=$LIAR "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" -o name=vol
	[ "$(cat "$MNT/which")" = stolen ]
	umount "$MNT"
	cow detach vol || true
}

@test "a worker that names another mount point or another name: kept paths and reports are of its volume" {
	liar "mountpoint=/etc" --name vol
	mount_volume
	[ "$(status_of .mountpoint)" = "$MNT" ]
	umount_volume
	[ "$(status_of .mountpoint)" = "" ]
	cow detach vol
	liar "name=root" --name vol
	[ "$(status_of .name)" = vol ]
	cow detach vol
}

@test "a worker that answers at random: each command ends, and none crashes" {
	local i command
	echo 0 >"$T/number"
	chmod 644 "$T/number"
	COWFS_LIE=random COWFS_LIE_FILE=$T/number LD_PRELOAD=$LIAR "$COWFS_BUILD/cowctl" attach --name vol "$CARD" || true
	wait_for 10 test -S "$COWFS_RUNDIR/vol/control"
	for i in {1..12}; do
		echo "$i" >"$T/number"
		for command in "status vol" "status vol --json" "wear vol" "wear vol --json" "top vol" "top vol --json" "commit vol" \
			"commit --dry-run vol" "diff vol" "trim vol" "inhibit vol" "view vol $T/other" "commit --kept vol" "undo vol" ""; do
			# shellcheck disable=SC2086 # words
			COW_LIMIT=30 run cow $command
			[ "$status" -lt 124 ] || { echo "$command ended with $status: $output"; false; }
		done
	done
	umount -q "$T/other" || true
	kill -9 "$(cat "$COWFS_RUNDIR/vol/pid")"
	run cow status
}

@test "a worker that reports progress for ever: a command that is no job ends" {
	COWFS_LIE=progress LD_PRELOAD=$LIAR "$COWFS_BUILD/cowctl" attach --name vol "$CARD" >/dev/null || true
	wait_for 10 test -S "$COWFS_RUNDIR/vol/control"
	COW_LIMIT=45 fails 1 'does not answer' status vol
	kill -9 "$(cat "$COWFS_RUNDIR/vol/pid")"
	run cow status
}
