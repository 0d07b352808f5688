#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# mount -t cowfs, umount, fstab and cowfs.conf: as one lives with it.
# seconds: 70

load lib

# mount(8) looks for helpers in /sbin only, and keeps its notes in /run/mount: here both are private.
setup() {
	cow_setup || return
	export COWFS_CONF=$T/cowfs.conf
	FSTAB=$T/fstab
	background unshare -m --propagation private sleep 1000
	HOLDER=$BG
	wait_for 10 holder_ready
	mkdir "$T/sbin"
	ns sh -c 'mount -t tmpfs none "$1" && mkdir "$1/up" "$1/work" &&
		mount -t overlay none -o "lowerdir=$2,upperdir=$1/up,workdir=$1/work" "$2" &&
		ln -s "$COWFS_BUILD/mount.cowfs" "$COWFS_BUILD/umount.cowfs" "$2/" &&
		mkdir -p /run/mount && mount -t tmpfs none /run/mount' sh "$T/sbin" "$(readlink -f /sbin)"
}

teardown() {
	local dir
	if [ -n "${HOLDER-}" ]; then
		for dir in $(ns_mounts); do # before the namespace: a daemon in it keeps it
			ns umount -i "$dir" 2>/dev/null || ns umount -il "$dir"
		done
	fi
	[ -z "${HOLDER-}" ] || under_systemd "$COWFS_BUILD/cowctl" detach vol --discard >/dev/null 2>&1 || true
	cow_teardown
}

holder_ready() { [ "$(cat "/proc/$HOLDER/comm")" = sleep ]; }

ns() {
	timeout -k 5 300 nsenter --mount="/proc/$HOLDER/ns/mnt" -- "$@"
}

ns_mounts() {
	awk -v t="$T/" 'index($5, t) == 1 && $5 != t "sbin" { print $5 }' "/proc/$HOLDER/mountinfo" | sort -r
}

mounted() { [ -n "$(ns_mounts)" ]; }
attached() { [ -S "$COWFS_RUNDIR/$NAME/control" ]; }

# Nothing is mounted, nothing attached, the card is free.
all_gone() {
	! mounted && wait_for 20 no_daemons && [ ! -e "$COWFS_RUNDIR/$NAME" ] && [ "$(blockdev --getro "$CARD")" = 0 ]
}

# $1 options in fstab; the card as volume "vol"
protect() {
	card_prepared ext4 100 150
	NAME=vol
	echo "$CARD $MNT cowfs name=vol,$1 0 0" >"$FSTAB"
}

ns_umount() { ns umount "$MNT"; all_gone; }
protect_mounted() { protect "$1"; fstab_mount; }

fstab_mount() {
	ns mount -T "$FSTAB" "$MNT" || return
	DEV=$(status_of .loop)
	is_volume
}

# What the card holds without cowfs: is there a file?
on_card() {
	local code=0
	mount -o ro "$CARD" "$MNT" || return
	[ -e "$MNT/$1" ] || code=1
	umount "$MNT"
	return $code
}

# $1 exit code, $2 what it says on stderr; nothing is started, nothing written
refuses() {
	local code=$1 regex=$2
	shift 2
	run --separate-stderr "$@"
	echo "$*: exit $status, stdout: $output, stderr: $stderr"
	[ "$status" = "$code" ] && grep -Eq -- "$regex" <<<"$stderr" && all_gone
}

@test "fstab: mount and umount by directory; the card is a plain file system afterwards" {
	protect_mounted ram=64M,on-detach=commit,noatime,nosuid,x-systemd.device-timeout=5,nofail
	[ "$(status_of .ram_limit_bytes)" = 67108864 ]
	[ "$(status_of .discard_armed)" = false ]
	run -0 ns findmnt -n -o SOURCE,FSTYPE,OPTIONS "$MNT"
	[[ $output == "$DEV "*ext4*rw,nosuid,noatime,nodioread_nolock,discard* ]]
	run -0 ns mount
	[[ $output == *"$DEV on $MNT type ext4 ("*"helper=cowfs,x-cowfs.device=$CARD"* ]]
	ns touch "$MNT/one"
	cow commit
	[ "$(status_of .generation)" -gt 0 ]
	ns touch "$MNT/two"
	run -0 --separate-stderr ns umount "$MNT"
	[ -z "$output$stderr" ]
	all_gone
	wait_for 20 volume_gone "$DEV"
	fsck ext4
	on_card one
	on_card two
	run -0 cow check "$CARD"
	[[ $output == *"clean: everything is checkpointed"* ]]
	# and again; by the other name of the device this time
	ns mount -t cowfs -o name=vol "$CARD" "$MNT"
	ns test -e "$MNT/two"
	ns "$COWFS_BUILD/umount.cowfs" "$CARD"
	all_gone
}

@test "umount says what is lost, and that a held generation leaves no plain file system" {
	protect_mounted noatime
	ns touch "$MNT/one"
	cow commit --hold
	HELD=$(status_of .held.generation)
	ns touch "$MNT/two"
	run -0 --separate-stderr ns umount "$MNT"
	[[ $stderr == *"volume vol: generation $HELD is held, so the card is no plain file system: do not mount it without cowfs. cowctl accept ends that" ]]
	all_gone
	fstab_mount
	cow undo
	run -0 --separate-stderr ns umount "$MNT"
	[[ $stderr == *"volume vol: UNDO PENDING: the next attach goes back to generation $HELD, and all later changes are lost. "* ]]
	all_gone
}

@test "the last umount detaches: of bind mounts in any order, of two mounts on one directory" {
	local last
	protect noatime
	mkdir "$T/b" "$T/c d"
	for last in "$T/b" "$T/c d" "$MNT"; do
		fstab_mount
		ns mkdir -p "$MNT/sub"
		ns mount --bind "$MNT/sub" "$T/b"
		ns mount --bind "$MNT/sub" "$T/c d"
		for dir in "$MNT" "$T/b" "$T/c d"; do
			[ "$dir" = "$last" ] || ns umount "$dir"
		done
		attached
		ns touch "$last/of $(basename "$last")"
		ns umount "$last"
		all_gone
	done
	on_card "sub/of b"
	on_card "sub/of c d"
	on_card "of mnt"
	fstab_mount
	ns mount --bind "$MNT" "$MNT"
	ns umount "$MNT"
	ns touch "$MNT/stacked"
	ns_umount
	on_card stacked
}

@test "the end of the last mount without a helper is noticed: everything is committed and written home" {
	protect_mounted noatime
	ns touch "$MNT/one"
	ns umount -i "$MNT"
	wait_for 20 is_committed
	[ "$(status_of .log_live_blocks)" = 0 ]
	attached
	power_cut
	fsck ext4
	on_card one
	# not what is to be discarded, and nothing while it is mounted
	protect_mounted on-detach=discard
	ns touch "$MNT/two"
	ns umount -i "$MNT"
	wait_for 20 eval '[[ $(status_of .last.remark) == "not committed: the changes are to be discarded"* ]]'
	[ "$(status_of .generation)" = 0 ]
	cow detach vol
}
is_committed() { [ "$(status_of '"\(.dirty_blocks) \(.generation)"')" = "0 1" ]; }

@test "fstab: an option that was removed is reported, and not passed on" {
	protect ram=64M,transport=ublk,compress=zstd,noatime
	run -0 --separate-stderr ns mount -T "$FSTAB" "$MNT"
	[ "$stderr" = "mount.cowfs: mount option transport=ublk was removed: volumes are always served by FUSE; remove it
mount.cowfs: mount option compress=zstd was removed: changes in RAM are not compressed; remove it (for btrfs: compress-force)" ]
	[ "$(status_of .ram_limit_bytes)" = 67108864 ]
	ns_umount
}

@test "on-detach=discard: umount discards uncommitted changes" {
	protect_mounted on-detach=discard
	[ "$(status_of .discard_armed)" = true ]
	ns touch "$MNT/one"
	cow commit
	ns touch "$MNT/two"
	ns_umount
	fsck ext4
	on_card one
	run -1 on_card two
}

@test "on-detach: what cowctl detach does without --discard" {
	protect on-detach=discard
	attach_mounted --on-detach discard
	touch "$MNT/one"
	umount_volume
	run -0 cow detach vol
	[[ $output == *"uncommitted changes were discarded"* ]]
	wait_for 20 no_daemons
	attach_mounted --on-detach discard
	[ ! -e "$MNT/one" ]
	touch "$MNT/two"
	umount_volume
	cow discard --cancel vol
	cow detach vol
	wait_for 20 no_daemons
	attach --on-detach discard
	cow discard --cancel vol
	mount_volume
	[ -e "$MNT/two" ]
	touch "$MNT/three"
	detach
	attach_mounted --on-detach commit
	[ -e "$MNT/three" ]
	detach --discard
	fails 2 '--on-detach drop is not one of commit.discard' attach "$CARD" --on-detach drop
}

@test "umount -i, or without utab: the volume stays attached, status says so, mount takes it again" {
	protect_mounted noatime
	ns touch "$MNT/one"
	ns umount -i "$MNT"
	run ! mounted
	attached
	run -0 cow status
	[[ $output == *"$DEV, not mounted"* ]]
	# its own options stay
	run -0 --separate-stderr ns mount -t cowfs -o ram=32M,name=other "$CARD" "$MNT"
	[[ $stderr == *"$CARD: already attached as volume vol, which keeps its options"* ]]
	ns test -e "$MNT/one"
	ns_umount
	on_card one
	# no utab
	ns mount -o remount,ro /run/mount
	run -0 --separate-stderr ns mount -T "$FSTAB" "$MNT"
	[[ $stderr == *"mounted, but umount will not detach it"* ]]
	ns touch "$MNT/two"
	ns umount "$MNT"
	run ! mounted
	attached
	detach
	on_card two
	ns mount -o remount,rw /run/mount
	ns mount -n -T "$FSTAB" "$MNT"
	ns umount "$MNT"
	run ! mounted
	attached
	detach
}

@test "ro: nothing can be written, umount writes nothing" {
	local before
	protect ro,ram=64M
	before=$(card_written)
	fstab_mount
	run -0 ns findmnt -n -o OPTIONS "$MNT"
	[[ $output == ro,* && $output != *discard* ]]
	run ! ns touch "$MNT/one"
	run ! ns mount -o remount,rw,size=5 "$MNT"
	ns_umount
	[ "$(card_written)" -le $((before + 65536)) ] # the record that says "detached in order"
	fsck ext4
	# -r is the same
	ns mount -r -t cowfs -o name=vol "$CARD" "$MNT"
	run ! ns touch "$MNT/one"
	ns_umount
}

@test "remount: the file system's options; those of cowfs stay" {
	protect_mounted ram=64M,noatime
	ns mount -T "$FSTAB" -o remount,ro "$MNT"
	run ! ns touch "$MNT/one"
	ns mount -T "$FSTAB" -o remount,rw "$MNT"
	ns touch "$MNT/one"
	[ "$(status_of .ram_limit_bytes)" = 67108864 ]
	ns_umount
	on_card one
	refuses 32 'is not attached: nothing to remount' ns mount -t cowfs -o remount,ro,name=vol "$CARD" "$MNT"
}

@test "discard is added for ext4 unless something else is said" {
	protect_mounted nodiscard
	run -0 ns findmnt -n -o OPTIONS "$MNT"
	[[ $output != *discard* ]]
	ns_umount
	sed -i s/nodiscard/ram=64M/ "$FSTAB"
	fstab_mount
	# what is deleted gives back its RAM
	ns dd if=/dev/urandom of="$MNT/a" bs=1M count=20 conv=fsync status=none
	[ "$(status_of '.ram_used_bytes > 20000000')" = true ]
	ns rm "$MNT/a"
	ns sync -f "$MNT"
	wait_for 10 ram_below 10000000
	ns_umount
}

ram_below() { [ "$(status_of ".ram_used_bytes < $1")" = true ]; }

@test "busy: umount fails, everything goes on; lazily: stays attached, and says so" {
	local pid
	protect_mounted noatime
	ns touch "$MNT/one"
	background nsenter --mount="/proc/$HOLDER/ns/mnt" -- bash -c 'exec 5>"$0/held"; touch "$1"; exec sleep 1000' \
		"$MNT" "$T/held"
	pid=$BG
	wait_for 20 grep -qsx sleep "/proc/$pid/comm"
	run -32 --separate-stderr ns umount "$MNT"
	[[ $stderr == *"$MNT: target is busy"* && $stderr == *"$MNT is used by sleep[$pid]" ]]
	mounted
	attached
	ns touch "$MNT/two"
	run -1 --separate-stderr ns umount -l "$MNT"
	[[ $stderr == *"$MNT is unmounted, but volume vol stays attached with its changes in RAM: "* ]]
	[[ $stderr == *"cowctl detach vol"* ]]
	run ! mounted
	attached
	kill "$pid"
	wait "$pid" || true
	wait_for 20 cow detach vol
	all_gone
	on_card two
	# lazily, but nobody is there
	fstab_mount
	ns umount -l "$MNT"
	all_gone
	# a namespace that has the mount for a moment, as of a service that starts, is waited for
	fstab_mount
	background ns unshare -m --propagation private sh -c 'touch "$0"; exec sleep 1' "$T/copied"
	wait_for 20 test -e "$T/copied"
	ns_umount
}

# Until the volume is gone; each commit holds the mount for a moment.
commit_again_and_again() {
	rm -f "$T/committed"
	while cow commit vol >/dev/null 2>&1; do touch "$T/committed"; done
}

@test "busy with its own commit: umount waits for it, but not for anybody else" {
	local round pid
	local -a how
	protect noatime
	for round in {1..6}; do
		fstab_mount
		random_file "$T/file" 24
		ns touch "$MNT/$round"
		ns cp "$T/file" "$MNT/file"
		rm -f "$T/committed"
		background commit_again_and_again
		pid=$BG
		wait_for 10 test -e "$T/committed"
		sleep "0.0$round"
		how=()
		((round % 2)) || how=(-r) # which must not make it read-only for that
		run -0 --separate-stderr ns umount "${how[@]}" "$MNT"
		[ -z "$output$stderr" ]
		all_gone
		wait "$pid" || true
		on_card "$round"
	done
	# a real user is told at once, also while commits hold the mount
	fstab_mount
	background nsenter --mount="/proc/$HOLDER/ns/mnt" -- bash -c 'cd "$0" && touch "$1" && exec sleep 1000' \
		"$MNT" "$T/inside"
	pid=$BG
	wait_for 20 grep -qsx sleep "/proc/$pid/comm"
	background commit_again_and_again
	for round in {1..5}; do
		soon 4 run -32 --separate-stderr ns umount "$MNT" # less than it waits for a commit that freezes
		[[ $stderr == *"$MNT is used by sleep[$pid]" ]]
	done
	mounted
	kill "$pid"
	wait "$pid" || true
	# and what lies below it
	ns mkdir "$MNT/sub"
	ns mount -t tmpfs none "$MNT/sub"
	run -32 --separate-stderr ns umount "$MNT"
	[[ $stderr == *"$MNT is used by the mount on $MNT/sub" ]]
	ns umount "$MNT/sub"
	# and what only the kernel uses
	kept_by() {
		run -32 --separate-stderr ns umount "$MNT"
		[[ $stderr == *"$MNT is used by $1" ]] || { echo "$stderr"; return 1; }
	}
	random_file "$T/zeroes" 1
	ns cp "$T/zeroes" "$MNT/image"
	LOOP=$(ns losetup -f --show "$MNT/image")
	kept_by "$LOOP, the loop device of $MNT/image"
	losetup -d "$LOOP"
	ns chmod 600 "$MNT/image"
	ns mkswap -q "$MNT/image"
	ns swapon "$MNT/image"
	kept_by "the swap file $MNT/image"
	ns swapoff "$MNT/image"
	mkdir "$T/low" "$T/over"
	ns mkdir "$MNT/up" "$MNT/work"
	ns mount -t overlay none "$T/over" -o "lowerdir=$T/low,upperdir=$MNT/up,workdir=$MNT/work"
	run -1 --separate-stderr ns umount "$MNT" # an overlay has a mount of its own
	[[ $stderr == *"volume vol stays attached with its changes in RAM: it is used by the mount on $T/over. "* ]]
	ns umount "$T/over"
	cow detach vol
	fstab_mount
	ns_umount
}

@test "mounted twice: the last umount detaches" {
	protect_mounted noatime
	mkdir "$T/second" "$T/third"
	# there already, as by mount -a; but not in this way
	run -0 --separate-stderr ns mount -a -T "$FSTAB"
	[[ $stderr == *"$CARD is already mounted on $MNT"* ]]
	[ "$(ns_mounts | wc -l)" = 1 ]
	run -32 --separate-stderr ns mount -r -T "$FSTAB" "$MNT"
	[[ $stderr == *"$CARD is already mounted on $MNT"* ]]
	ns mount -t cowfs "$CARD" "$T/second"
	ns mount --bind "$MNT" "$T/third"
	[ "$(ns_mounts | wc -l)" = 3 ]
	ns touch "$T/second/one"
	ns test -e "$MNT/one"
	run -0 --separate-stderr ns umount "$T/second"
	[[ $stderr == *"volume vol stays attached: it is mounted on $T/third"* ]]
	run -0 --separate-stderr ns umount "$MNT"
	[[ $stderr == *"stays attached"* ]]
	attached
	ns "$COWFS_BUILD/umount.cowfs" "$T/third"
	all_gone
	on_card one
}

@test "the daemon died: umount unmounts and says what that means" {
	protect_mounted noatime
	ns touch "$MNT/one"
	kill_worker
	run -1 --separate-stderr ns umount "$MNT"
	[[ $stderr == *"is unmounted, but the daemon of $DEV is gone"* ]]
	run ! mounted
	loop_removed
	fstab_mount
	run ! ns test -e "$MNT/one"
	ns_umount
}

@test "as on Linux before 6.2, without bounds of one device: ram=64M is taken, and no write fails" {
	ns mount -t tmpfs none /sys/class/bdi
	card_prepared ext4 320 400 -J size=8
	NAME=vol
	echo "$CARD $MNT cowfs name=vol,ram=64M,noatime 0 0" >"$FSTAB"
	run -0 --separate-stderr ns mount -T "$FSTAB" "$MNT"
	[[ $stderr == *"above the RAM limit of 64.0 MiB"* ]]
	DEV=$(status_of .loop)
	is_volume
	# the volume, or what the kernel allows for all if that is less
	[ "$(status_of '.pressure.reserve_dirty_bytes <= 320 * 1048576')" = true ]
	random_file "$T/file" 220
	ns cp "$T/file" "$MNT/file" # all of it may be dirty above when the freeze comes
	cow commit
	[ "$(status_of '.pressure.full_errors == 0')" = true ]
	ns cmp "$T/file" "$MNT/file"
	ns_umount
	fsck ext4
	on_card file
}

@test "wrong options and operands: nothing is started" {
	local sum
	protect noatime
	sum=$(image_sum)
	refuses 2 'ram=64Q is not a size' ns mount -t cowfs -o ram=64Q "$CARD" "$MNT"
	refuses 2 'ram=0 leaves no memory' ns mount -t cowfs -o noatime,ram=0 "$CARD" "$MNT"
	refuses 2 'ram needs a value' ns mount -t cowfs -o ram "$CARD" "$MNT"
	refuses 2 'on-detach=never is not one of commit.discard' ns mount -t cowfs -o on-detach=never "$CARD" "$MNT"
	refuses 2 'pressure=x is not one of' ns mount -t cowfs -o pressure=x "$CARD" "$MNT"
	refuses 2 'name=a b is not a valid volume name' ns "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" -o 'name=a b'
	refuses 2 'needs an argument' ns "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" -o
	refuses 2 'unknown option -x' ns "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" -x
	refuses 2 'too many arguments at c' ns "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" c
	refuses 2 usage ns "$COWFS_BUILD/mount.cowfs" "$CARD"
	refuses 2 usage ns "$COWFS_BUILD/umount.cowfs"
	refuses 2 'unknown option -x' ns "$COWFS_BUILD/umount.cowfs" "$MNT" -x
	refuses 32 'is not mounted' ns "$COWFS_BUILD/umount.cowfs" "$MNT"
	refuses 32 'No such file' ns mount -t cowfs -o name=vol "$CARD" "$T/nowhere"
	refuses 32 'is not a directory' ns "$COWFS_BUILD/mount.cowfs" "$CARD" "$IMG"
	refuses 1 'is not a block device' ns mount -t cowfs /dev/null "$MNT"
	refuses 1 '/nowhere: No such file' ns "$COWFS_BUILD/mount.cowfs" /nowhere "$MNT"
	# one that nobody knows: told by mount(8), with what was passed on
	refuses 32 "$CARD on /dev/loop[0-9]+: mount on $MNT failed \(type ext4, options rw,ramm=1G," ns mount -t cowfs -o name=vol,ramm=1G "$CARD" "$MNT"
	[[ $stderr == *"bad superblock on $CARD,"* ]]
	# only looked at
	refuses 2 'ram=0 leaves' ns mount -f -t cowfs -o ram=0 "$CARD" "$MNT"
	ns mount -f -T "$FSTAB" "$MNT"
	all_gone
	[ "$(image_sum)" = "$sum" ]
	run -0 --separate-stderr ns mount -v -T "$FSTAB" "$MNT"
	[[ $output == *"$CARD is volume vol on /dev/loop"* ]]
	run -0 --separate-stderr ns umount -v "$MNT"
	[[ $output == *"detaching volume vol"* ]]
	all_gone
}

@test "no file system, no log: nothing stays attached" {
	card_make ext4 60 100
	NAME=vol
	refuses 1 'no cowfs log' ns mount -t cowfs -o name=vol "$CARD" "$MNT"
	IMG=$T/second.img
	protect noatime
	wipefs -qa "$CARD"
	refuses 32 "$CARD: no file system found" ns mount -T "$FSTAB" "$MNT"
}

# Ctrl-C goes to the helper and to the mount(8) that it runs: before that has mounted, and when it has.
interrupted() { # COMMAND...: of the mount(8) that the helper runs, before it is ended
	mkdir -p "$T/bin"
	printf '#!/bin/sh\n%s\nkill -INT $PPID $$\n' "$*" >"$T/bin/mount"
	chmod 755 "$T/bin/mount"
	run ! ns env --default-signal=INT PATH="$T/bin:$PATH" "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" -o name=vol
	wait_for 20 no_daemons
	run ! ns mountpoint -q "$MNT"
}

@test "a mount that is interrupted: nothing stays mounted or attached" {
	protect noatime
	interrupted true
	interrupted "$(command -v mount)" '"$@"'
	# and it can be mounted
	ns mount -T "$FSTAB" "$MNT"
	ns umount "$MNT"
	all_gone
}

@test "a mount that fails after it has written: the card does not see it" {
	local sum
	protect noatime
	sum=$(image_sum)
	mkdir "$T/bin"
	printf '#!/bin/sh\nshift $(($# - 2))\ndd if=/dev/urandom of="$1" bs=1M count=1 conv=fsync status=none && touch %s\nexit 32\n' \
		"$T/written" >"$T/bin/mount"
	chmod 755 "$T/bin/mount"
	refuses 32 "mount on $MNT failed" ns env PATH="$T/bin:$PATH" "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" -o name=vol
	[[ $stderr != *"stays attached"* ]]
	[ -e "$T/written" ]
	[ "$(image_sum)" = "$sum" ]
}

@test "xfs, btrfs: mounted with their own options" {
	local fs
	for fs in xfs btrfs; do
		IMG=$T/$fs.img NAME=vol
		card_prepared $fs 320 420 -- --log-size 64M
		ns mount -t cowfs -o "name=vol,noatime,$([ $fs = xfs ] && echo logbsize=64k || echo commit=77)" "$CARD" "$MNT"
		DEV=$(status_of .loop)
		run -0 ns findmnt -n -o SOURCE,FSTYPE,OPTIONS "$MNT"
		[[ $output == "$DEV"*$fs*noatime* ]]
		[[ $output == *logbsize=64k* || $output == *commit=77* ]]
		ns touch "$MNT/one"
		ns_umount
		fsck $fs
		on_card one
	done
}

# ---- cowfs.conf ----

@test "cowfs.conf: default, the volume's section, the command line, in this order" {
	card_prepared ext4 100 150
	cat >"$COWFS_CONF" <<-END
		[default]
		ram = 80M
		on-detach = discard
		[vol]
		ram = 64M
		[$CARD]
		name = named
	END
	NAME=named
	ns mount -t cowfs "$CARD" "$MNT"
	[ "$(status_of .ram_limit_bytes)" = 83886080 ]
	[ "$(status_of .discard_armed)" = true ]
	ns_umount
	cow attach "$CARD" --ram 32M --on-detach commit
	[ "$(status_of .ram_limit_bytes)" = 33554432 ]
	[ "$(status_of .discard_armed)" = false ]
	cow detach named
	wait_for 20 no_daemons
	sed -i "/^.$(printf %s "${CARD//\//\\/}")/,\$d" "$COWFS_CONF"
	attach
	[ "$(status_of .ram_limit_bytes)" = 67108864 ]
	[ "$(status_of .discard_armed)" = true ]
	detach
	# two sections of one volume
	printf '[%s]\nname = vol\n' "$CARD" >>"$COWFS_CONF"
	fails 2 "$COWFS_CONF:4: .vol. is the same volume as .$CARD. in line 6" attach "$CARD"
	all_gone
}

@test "cowfs.conf: errors are told with file and line, exit code 2, nothing is started" {
	local sum at # not i: run has it
	local -a text=('[vol]\nram = 64Q' '[default]\n\n# x\nrom = 5' '[vol]\nonsense' '[a]\n[b]\n[a]' 'ram = 64M'
		'[default]\nname = x' '[vol\nram = 64M' '[elsewhere]\non-detach = maybe' '[a]\nram=1M\nram=1M')
	local -a line=(2 4 2 3 1 2 1 2 3)
	protect noatime
	sum=$(image_sum)
	for at in "${!text[@]}"; do
		printf '%b\n' "${text[at]}" >"$COWFS_CONF"
		fails 2 "^cowctl: $COWFS_CONF:${line[at]}: " attach "$CARD" --name vol
		fails 2 "^$COWFS_CONF:${line[at]}: " attach "$CARD" --json --name vol
		refuses 2 "$COWFS_CONF:${line[at]}: " ns mount -T "$FSTAB" "$MNT"
		refuses 2 "$COWFS_CONF:${line[at]}: " ns mount -f -T "$FSTAB" "$MNT"
	done
	head -c 3000 /dev/urandom >"$COWFS_CONF"
	fails 2 "$COWFS_CONF:[0-9]+: " attach "$CARD" --name vol
	rm "$COWFS_CONF"
	mkdir "$COWFS_CONF"
	fails 1 "$COWFS_CONF: Is a directory" attach "$CARD" --name vol
	rmdir "$COWFS_CONF"
	[ "$(image_sum)" = "$sum" ]
	cp "${BATS_TEST_DIRNAME}/../../systemd/cowfs.conf.example" "$COWFS_CONF"
	sed -i 's/^#\([a-z-]* = \|\[\)/\1/' "$COWFS_CONF" # everything in it
	grep -q '^\[data\]' "$COWFS_CONF"
	attach --log "$CARD" || attach
	[ "$(status_of .name)" = vol ]
}

@test "cowfs.conf: a key that was removed is a warning, and the volume is protected" {
	protect noatime
	printf '[vol]\ncompress = zstd\nram = 64M\n' >"$COWFS_CONF"
	run -0 --separate-stderr ns mount -T "$FSTAB" "$MNT"
	[ "$stderr" = "mount.cowfs: $COWFS_CONF:2: compress was removed: changes in RAM are not compressed; remove the line" ]
	[ "$(status_of .ram_limit_bytes)" = 67108864 ]
	# what reads it again and again does not repeat this
	run -0 --separate-stderr cow status
	[ -z "$stderr" ]
	run -0 --separate-stderr cow config vol --key ram
	[ "$output $stderr" = "64M " ]
	run -0 --separate-stderr cow config vol
	[ "$stderr" = "cowctl: $COWFS_CONF:2: compress was removed: changes in RAM are not compressed; remove the line" ]
	ns_umount
	fails 2 'compress was removed: ' attach "$CARD" --name vol --compress zstd
}

# ---- systemd ----

# What systemctl start does with the unit, as far as we need it.
fake_systemctl() {
	mkdir "$T/bin"
	cat >"$T/bin/systemctl" <<-'END'
		#!/bin/bash
		[ "$1 $2" = "--no-ask-password start" ] || exit 1
		name=${3#cowfs@} name=${name%.service}
		unit=$TOP/systemd/cowfs@.service
		echo "$3" >>"$T/started"
		file=$(sed -n 's/^EnvironmentFile=//p' "$unit")
		error=$(sed -n 's/^StandardError=truncate://p' "$unit")
		file=${file#-} # gone when we stop
		. <(sed 's/=\(.*\)/="\1"/' "${file//%i/$name}") || exit 1
		command=$(sed -n 's/^ExecStart=//p' "$unit")
		command=${command/#\/usr\/sbin/$COWFS_BUILD}
		command=${command/\$COWFS_ARGS/$COWFS_ARGS}
		rm -f "$T/unit.out"
		setsid $command </dev/null >"$T/unit.out" 2>"${error//%i/$name}" 3>&- &
		echo $! >"$T/unit.pid"
		for i in {1..200}; do
			[ ! -s "$T/unit.out" ] || exit 0
			kill -0 $! 2>/dev/null || exit 1
			sleep 0.05
		done
		exit 1
	END
	chmod 755 "$T/bin/systemctl"
	ns sh -c 'mount -t tmpfs none /run && mkdir -p /run/mount /run/systemd/system'
	# mount(8) starts its helpers without a PATH
	ns mount --bind "$T/bin/systemctl" "$(command -v systemctl)"
	export T
}

under_systemd() {
	ns env COWFS_RUNDIR=/run/cowfs TOP="${BATS_TEST_DIRNAME%/tests/bats}" "$@"
}

@test "under systemd: the daemon is a service of its own" {
	local loop
	command -v systemctl >/dev/null || skip "no systemctl"
	protect ram=64M,on-detach=commit
	fake_systemctl
	under_systemd mount -T "$FSTAB" "$MNT"
	[ "$(cat "$T/started")" = cowfs@vol.service ]
	kill -0 "$(cat "$T/unit.pid")"
	run -0 under_systemd sh -c 'ls -A /run/cowfs'
	[ "$output" = vol ]
	# ExecStop must do without the file of the arguments
	grep -q '^EnvironmentFile=-' "${BATS_TEST_DIRNAME%/tests/bats}/systemd/cowfs@.service"
	loop=$(under_systemd "$COWFS_BUILD/cowctl" status --json | jq -r .loop)
	[ "$(under_systemd "$COWFS_BUILD/cowctl" status --json | jq -r .ram_limit_bytes)" = 67108864 ]
	[ "$(ns findmnt -n -o SOURCE "$MNT")" = "$loop" ]
	# a name that is taken, a device that is attached, an error of the daemon
	run -1 --separate-stderr under_systemd "$COWFS_BUILD/cowctl" attach "$CARD"
	[[ $stderr == *"$CARD is already attached as volume vol"* ]]
	run -1 --separate-stderr under_systemd "$COWFS_BUILD/cowctl" attach /dev/null --name other
	[[ $stderr == "cowctl: "*"is not a block device"* ]]
	run -0 under_systemd umount "$MNT"
	wait_for 20 unit_ended
	on_card lost+found
	# cowctl attach as well
	run -0 --separate-stderr under_systemd "$COWFS_BUILD/cowctl" attach "$CARD" --name vol
	[[ $output == /dev/loop* ]]
	[ "$(wc -l <"$T/started")" = 3 ]
	under_systemd "$COWFS_BUILD/cowctl" detach vol
	wait_for 20 unit_ended
	# no such unit, or a systemd that does not answer: without it
	printf '#!/bin/sh\nexit 5\n' >"$T/bin/systemctl"
	under_systemd mount -T "$FSTAB" "$MNT"
	under_systemd umount "$MNT"
	[ "$(blockdev --getro "$CARD")" = 0 ]
}

unit_ended() { ! kill -0 "$(cat "$T/unit.pid")" 2>/dev/null; }

@test "mount: a key of cowfs.conf, or a slip of an option, is named and not passed on" {
	protect noatime
	refuses 2 'commit-interval is no mount option: it stands in cowfs.conf' ns mount -t cowfs -o commit-interval=10m "$CARD" "$MNT"
	refuses 2 'rma is unknown: did you mean ram\?' ns mount -t cowfs -o rma=256M "$CARD" "$MNT"
	ns mount -t cowfs -o ram=64M,data=ordered,name=vol "$CARD" "$MNT"
	ns_umount
}
