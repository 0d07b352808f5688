#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl view: what a view shows, what ends it, and what it costs the volume

load lib

VIEW_LIMIT=${VIEW_LIMIT:-300}

# A view on $T/NAME (made if missing): view_on NAME [OPTION]...
view_on() {
	local dir=$T/$1
	shift
	mkdir -p "$dir"
	COW_LIMIT=$VIEW_LIMIT cow view "$@" "$NAME" "$dir"
}

view_off() { timeout "$VIEW_LIMIT" umount "$T/$1"; }
views() { status_of '.views.list | length'; }
views_are() { [ "$(views)" = "$1" ]; }
no_views() { views_are 0; }

@test "committed and now: each shows its moment, over commits and checkpoints, and goes with umount" {
	volume_mounted ext4 60 100
	echo first >"$MNT/file"
	cow commit "$NAME"
	echo second >"$MNT/file"
	echo new >"$MNT/new"
	view_on a
	view_on b --now
	findmnt -no OPTIONS "$T/a" | grep -q 'ro,nosuid,nodev'
	[ "$(cat "$T/a/file")" = first ]
	[ ! -e "$T/a/new" ]
	[ "$(cat "$T/b/file")" = second ]
	[ "$(cat "$T/b/new")" = new ]
	[ "$(views)" = 2 ]
	answer=$(cow status "$NAME")
	grep -q 'views  *2' <<<"$answer"
	echo third >"$MNT/file"
	cow commit --checkpoint "$NAME"
	[ "$(cat "$T/a/file")" = first ]
	[ "$(cat "$T/b/file")" = second ]
	view_off a
	view_off b
	wait_for 5 no_views
	[ "$(status_of .views.ram_bytes)" = 0 ]
	detach_whole ext4
}

# Bytes of the view's disk, past the page cache.
disk_sum() {
	timeout "$VIEW_LIMIT" dd if="$(findmnt -no SOURCE "$T/$1")" bs=1M iflag=direct status=none | cksum
}

# Ten commits, every third with a checkpoint, over files that both views have.
unchanged() { # FS FS_MIB CARD_MIB
	local i a b now

	volume_mounted "$@" -- --log-size 16M --erase-block 1M
	random_file "$MNT/big" 8
	mkdir "$MNT/d"
	for i in {1..50}; do echo "$i" >"$MNT/d/$i"; done
	cow commit "$NAME"
	echo now >"$MNT/d/1"
	view_on a
	view_on b --now
	now=$(tree_sum "$MNT")
	[ "$(tree_sum "$T/b")" = "$now" ]
	[ "$(cat "$T/a/d/1")" = 1 ]
	a=$(disk_sum a) b=$(disk_sum b)
	for i in {1..10}; do
		dd if=/dev/urandom of="$MNT/big" bs=64k count=20 seek=$((i * 9)) conv=notrunc status=none
		rm "$MNT/d/$i"
		random_file "$MNT/d/new$i" 1
		if [ $((i % 3)) = 0 ]; then cow commit --checkpoint "$NAME"; else cow commit "$NAME"; fi
	done
	[ "$(disk_sum a)" = "$a" ]
	[ "$(disk_sum b)" = "$b" ]
	[ "$(tree_sum "$T/b")" = "$now" ]
	[ "$(status_of '[.views.list[].ended] | any')" = false ]
	[ "$(status_of .views.ram_bytes)" -gt 0 ]
	view_off a
	view_off b
	wait_for 5 no_views
	detach_whole "$1"
}

@test "ten commits change no byte of the views: ext4" { unchanged ext4 60 100; }
@test "ten commits change no byte of the views: xfs" { unchanged xfs 310 340; }
@test "ten commits change no byte of the views: btrfs" { unchanged btrfs 120 160; }

reads_fail() { ! timeout "$VIEW_LIMIT" dd if="$1" of=/dev/null bs=1M iflag=direct status=none 2>/dev/null; }

@test "RAM: a view that needs too much is ended with EIO, and the volume works on" {
	volume_mounted ext4 100 140 -J size=4 -- -- --ram 48M
	random_file "$MNT/big" 30
	cow commit --checkpoint "$NAME"
	view_on a
	view_on b
	sum=$(tree_sum "$MNT")
	[ "$(tree_sum "$T/a")" = "$sum" ]
	background "$COWFS_BUILD/cowctl" status --follow >"$T/events"
	wait_for 5 grep -q poll "/proc/$BG/wchan" # it has looked
	dd if=/dev/urandom of="$MNT/big" bs=1M count=30 conv=notrunc,fsync status=none
	cow commit --checkpoint "$NAME"
	[ "$(status_of '[.views.list[].ended] | any')" = true ]
	answer=$(status_of .views.last_end)
	grep -q RAM <<<"$answer"
	wait_for 5 grep -q "^$NAME view-ended .*RAM" "$T/events"
	answer=$(cow status "$NAME")
	grep -q 'ENDED' <<<"$answer"
	reads_fail "$T/a/big" || reads_fail "$T/b/big"
	sum=$(tree_sum "$MNT")
	[ "$(status_of .pressure.level)" = ok ]
	view_off a
	view_off b
	wait_for 5 no_views
	[ "$(status_of .views.ram_bytes)" = 0 ]
	[ "$(status_of .ram_used_bytes)" -lt $((4 << 20)) ]
	detach
	[ "$(bare_sum)" = "$sum" ]
	fsck ext4
}

@test "RAM: commits by pressure do not end a view, and a view causes none" {
	volume_mounted ext4 200 240 -J size=4 -- -- --ram 96M
	random_file "$MNT/big" 8
	cow commit "$NAME"
	random_file "$MNT/new" 8
	view_on a
	view_on b --now
	a=$(tree_sum "$T/a")
	b=$(tree_sum "$MNT")
	for i in {1..4}; do
		dd if=/dev/urandom of="$MNT/f$i" bs=1M count=30 conv=fsync status=none
	done
	dd if=/dev/urandom of="$MNT/big" bs=1M count=8 conv=notrunc,fsync status=none
	[ "$(status_of .pressure.commits)" -gt 0 ]
	cow commit --checkpoint "$NAME"
	[ "$(tree_sum "$T/a")" = "$a" ]
	[ "$(tree_sum "$T/b")" = "$b" ]
	# what is left in RAM is held by the views: 16 of 96 MiB, far from a limit
	[ "$(status_of .views.ram_bytes)" -gt $((8 << 20)) ]
	[ "$(status_of .pressure.level)" = ok ]
	[ "$(status_of '[.views.list[].ended] | any')" = false ]
	view_off a
	view_off b
	detach_whole ext4
}

@test "eight views of a volume; what cannot be viewed is refused with a reason" {
	card_prepared ext4 60 100
	fails 4 'no volume is attached' view "$MNT"
	attach_mounted
	fails 1 'No such file' view "$NAME" "$T/none"
	touch "$T/file"
	fails 1 'not a directory' view "$NAME" "$T/file"
	fails 2 'usage' view
	fails 4 'no volume is attached as other' view other "$T"
	fails 1 'not a directory' view --json "$NAME" "$T/file"
	no_views
	for i in 1 3 5 7; do view_on "$i" --now; done
	for i in 2 4 6 8; do view_on "$i"; done
	mkdir "$T/9"
	fails 1 '8 views: end one with umount' view "$NAME" "$T/9"
	[ "$(views)" = 8 ]
	echo more >"$MNT/file"
	cow commit "$NAME"
	[ ! -e "$T/1/file" ]
	view_off 1
	wait_for 5 views_are 7
	view_on 9 --now
	[ "$(cat "$T/9/file")" = more ]
	for i in {2..9}; do view_off "$i"; done
	wait_for 5 no_views
	detach_whole ext4
}

@test "a view survives neither detach nor the death of the daemon, and umount ends it" {
	volume_mounted ext4 60 100
	random_file "$MNT/big" 4
	cow commit "$NAME"
	view_on a
	view_on b --now
	umount_volume
	answer=$(cow detach "$NAME" 2>&1)
	grep -q '2 views were ended' <<<"$answer"
	wait_for 20 no_daemons
	reads_fail "$T/a/big"
	reads_fail "$T/b/big"
	view_off a
	view_off b
	fsck ext4

	attach_mounted
	view_on a
	view_on b --now
	background dd if="$(findmnt -no SOURCE "$T/b")" of=/dev/null bs=4k iflag=direct status=none
	power_cut
	reads_fail "$T/a/big"
	reads_fail "$T/b/big"
	view_off a
	view_off b
	fsck ext4
}

@test "vfat: as committed; of now only while it cannot change" {
	grep -qw vfat /proc/filesystems || modprobe vfat 2>/dev/null || skip "no vfat in this kernel"
	volume_mounted vfat 60 100
	echo one >"$MNT/file"
	mkdir "$T/no"
	fails 1 'is committed only while it is not mounted, or read-only' view --now "$NAME" "$T/no"
	umount_volume
	cow commit "$NAME"
	view_on a
	view_on b --now
	[ "$(cat "$T/a/file")" = one ]
	[ "$(cat "$T/b/file")" = one ]
	view_off a
	view_off b
	detach
}

@test "errors of a view panic no machine, whatever the superblock says" {
	card_make ext4 60 100
	tune2fs -e panic "$CARD" >/dev/null
	cow prepare "$CARD"
	attach
	view_on a
	findmnt -no OPTIONS "$T/a" | grep -q errors=continue
	view_off a
	detach
}

@test "views of now, one after another without a commit, hold each block once" {
	volume_mounted ext4 60 100 -J size=4
	random_file "$MNT/big" 6
	for i in {1..3}; do
		dd if=/dev/urandom of="$MNT/big" bs=1M count=6 conv=notrunc,fsync status=none
		view_on a --now
		[ "$(status_of .ram_used_bytes)" -lt $((10 << 20)) ]
		view_off a
		wait_for 5 no_views
	done
	[ "$(status_of .generation)" = 0 ]
	detach --discard
}

@test "the generation of a view is that of the commit, also after a checkpoint" {
	volume_mounted ext4 60 100
	echo one >"$MNT/file"
	cow commit "$NAME"
	commit=$(status_of '"\(.generation) \(.generation_unix_seconds)"')
	sleep 1.1
	cow commit --checkpoint "$NAME"
	cow commit --checkpoint "$NAME"
	view_on a
	[ "$(status_of '.views.list[0] | "\(.generation) \(.time_unix_seconds)"')" = "$commit" ]
	view_off a
	detach
}

@test "overlapping views of now without a commit: their layers are bounded" {
	volume_mounted ext4 60 100
	mkdir "$T/link-to"
	ln -s link-to "$T/0"
	view_on 0 --now
	for i in {1..15}; do
		echo "$i" >"$MNT/file"
		view_on "$i" --now
		view_off "$((i - 1))"
		wait_for 5 eval '[ "$(views)" = 1 ]'
	done
	echo more >"$MNT/file"
	mkdir "$T/no"
	fails 1 'hold 16 states.*commit first' view --now "$NAME" "$T/no"
	view_on 0
	view_off 0
	[ "$(cat "$T/15/file")" = 15 ]
	cow commit "$NAME"
	view_on 0 --now
	[ "$(cat "$T/0/file")" = more ]
	[ "$(cat "$T/15/file")" = 15 ]
	view_off 0
	view_off 15
	detach_whole ext4
}

@test "pressure=fail: a view of now that could make writes fail is refused" {
	volume_mounted ext4 100 140 -J size=4 -- -- --ram 64M --pressure fail
	random_file "$MNT/big" 28
	sync -f "$MNT"
	mkdir "$T/no"
	fails 1 'take RAM twice.*commit first, or look at what is committed: cowctl view' view --now "$NAME" "$T/no"
	view_on b
	dd if=/dev/urandom of="$MNT/big" bs=1M count=28 conv=notrunc,fsync status=none
	cow commit "$NAME"
	view_on a --now
	dd if=/dev/urandom of="$MNT/big" bs=1M count=4 conv=notrunc,fsync status=none
	[ "$(status_of .write_errors)" = 0 ]
	view_off a
	view_off b
	detach --discard
}

@test "a view is mounted where root said, not where the link of another user leads" {
	volume_attached ext4 60 100
	mkdir "$T/home" "$T/etc"
	ln -s etc "$T/ours"
	chown nobody "$T/home"
	setpriv --reuid 65534 --regid 65534 --clear-groups ln -s ../etc "$T/home/dir"
	fails 1 "$T/home/dir is a symbolic link, and user 65534 controls it: name the place that it leads to" view vol "$T/home/dir"
	fails 1 "$T/home/dir is a symbolic link" view vol "$T/home/dir/."
	run ! mountpoint -q "$T/etc"
	mkdir "$T/home/own"
	view_on home/own
	view_off home/own
	view_on ours/.
	mountpoint -q "$T/etc"
	view_off etc
	detach
}

@test "a view over a mount point of anything is refused, and hides nothing" {
	volume_mounted ext4 100 150
	mkdir "$T/other" "$T/view"
	mount -t tmpfs none "$T/other"
	for dir in "$MNT" "$T/other" /; do
		fails 1 "^cowctl: $dir: something is mounted there, which the view would hide: name another directory" view vol "$dir"
	done
	umount "$T/other"
	cow view vol "$T/view"
	fails 1 'something is mounted there' view vol "$T/view"
	fails 1 'something is mounted there' view --now vol "$T/view"
	umount "$T/view"
	detach
}
