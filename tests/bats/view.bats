#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl view: what a view shows, what ends it, and what it costs the volume

load lib

VIEW_LIMIT=${VIEW_LIMIT:-20}

# A view on $T/NAME (made if missing): view_on NAME [OPTION]...
view_on() {
	local dir=$T/$1
	shift
	mkdir -p "$dir"
	COW_LIMIT=$VIEW_LIMIT cow view "$@" "$NAME" "$dir"
}

view_off() { timeout "$VIEW_LIMIT" umount "$T/$1"; }
views() { status_of '.views.list | length'; }
no_views() { [ "$(views)" = 0 ]; }

@test "committed and now: each shows its moment, over commits and checkpoints, and goes with umount" {
	card_make ext4 60 100
	cow format "$CARD"
	attach
	mount_volume
	echo first >"$MNT/file"
	cow commit "$NAME"
	echo second >"$MNT/file"
	echo new >"$MNT/new"
	view_on a
	view_on b --now
	findmnt -no OPTIONS "$T/a" | grep -q 'ro,nosuid,nodev'
	[ "$(cat "$T/a/file")" = first ] && [ ! -e "$T/a/new" ]
	[ "$(cat "$T/b/file")" = second ] && [ "$(cat "$T/b/new")" = new ]
	[ "$(views)" = 2 ]
	cow status "$NAME" | grep -q 'views  *2'
	echo third >"$MNT/file"
	cow commit --checkpoint "$NAME"
	[ "$(cat "$T/a/file")" = first ] && [ "$(cat "$T/b/file")" = second ]
	view_off a
	view_off b
	wait_for 5 no_views
	[ "$(status_of .views.ram_bytes)" = 0 ]
	detach
	fsck ext4
}
