#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A card whose log is not empty, on a machine that knows nothing of cowfs.
# seconds: 50
# turn: 3

load lib

# No kernel and no tool writes to it, and it comes back as it was.
left_alone() { # FS FS_MIB CARD_MIB CHECKER...
	local sum
	cut_card 1 "$1" "$2" "$3"
	sum=$(image_sum)
	run -0 "$BATS_TEST_DIRNAME/../foreign.sh" "$CARD" "$MNT"
	echo "$output"
	grep -qE 'read-only +mount -o (defaults|ro,norecovery|ro):' <<<"$output" # of this one all can be read
	[ "$1" = xfs ] || [ "$(image_sum)" = "$sum" ] # "ro" clears blocks of its log
	run cow check "$CARD"
	[[ $output != *foreign* ]]
	attach_has "$SUM"
	answer=$(cow status --json)
	jq -e '.base_changed == false' <<<"$answer"
	umount "$MNT"
	detach
	blockdev --setrw "$CARD"
	answer=$(cow check --json "$CARD")
	jq -e '.guarded == false' <<<"$answer"
	"${@:4}" "$CARD"
	# all of that is of the guard
	run ! "$BATS_TEST_DIRNAME/../foreign.sh" "$CARD" "$MNT"
	echo "$output"
	grep -q 'rw+writes (expected: .*mount -o defaults:' <<<"$output"
}

@test "a card that was cut is mounted read-only and left alone: ext4" { left_alone ext4 100 150 e2fsck -fn; }
@test "a card that was cut is mounted read-only and left alone: ext3" { left_alone ext3 100 150 e2fsck -fn; }
@test "a card that was cut is mounted read-only and left alone: ext2" { left_alone ext2 100 150 e2fsck -fn; }
@test "a card that was cut is not mounted and left alone: xfs" { left_alone xfs 300 400 xfs_repair -n; }
@test "a card that was cut is not mounted and left alone: btrfs" { left_alone btrfs 300 400 btrfs check; }

# The next one that is written home has the guard from its first block on.
@test "a file system of another kind, made on a volume, is guarded too" {
	local kind OWN_NAME=guard$$ # mkfs.btrfs takes a volume for a mounted one of the same name
	card_prepared ext4 300 400
	for kind in btrfs xfs ext4; do
		attach
		case $kind in
		ext4) mke2fs -q -F -t ext4 "$DEV" ;;
		*) mkfs."$kind" -q -f -K "$DEV" ;;
		esac
		mount_volume
		echo "$kind" >"$MNT/kind"
		umount_volume
		cow commit --checkpoint
		mount_volume
		echo again >"$MNT/again"
		umount_volume
		cow commit
		power_cut rw
		answer=$(cow check --json "$CARD")
		jq -e '.guarded and .base_changed == false' <<<"$answer"
		blkid -p -o value -s TYPE "$CARD" | grep -qx "$kind"
		attach_mounted
		[ "$(cat "$MNT/kind" "$MNT/again")" = "$kind
again" ]
		detach
		blockdev --setrw "$CARD"
		answer=$(cow check --json "$CARD")
		jq -e '.guarded == false' <<<"$answer"
	done
}

# Cut between the tail record of a detach and the last write, that of the superblock: the copy in the record has it.
@test "the last write of a detach is cut: nothing waits in the log, and the next detach removes the guard" {
	volume_mounted ext4 100 150
	commit_word one
	dd if="$IMG" of="$T/guarded" bs=4096 count=1 status=none
	detach
	dd if="$T/guarded" of="$IMG" bs=4096 count=1 conv=notrunc status=none
	blockdev --flushbufs "$CARD"
	mount "$CARD" "$MNT"
	findmnt -no OPTIONS "$MNT" | grep -qw ro
	umount "$MNT"
	answer=$(cow check --json "$CARD")
	jq -e '.verdict == "good" and .log_state == "clean" and .guarded' <<<"$answer"
	answer=$(cow check "$CARD")
	grep 'still guarded' <<<"$answer"
	attach
	detach
	blockdev --setrw "$CARD"
	e2fsck -fn "$CARD"
	mount "$CARD" "$MNT"
	[ "$(cat "$MNT/one")" = one ]
	findmnt -no OPTIONS "$MNT" | grep -qw rw
}

format_keeps_guard() { # KIND MIB BLOCK-OF-SUPERBLOCK
	local base
	card_make "$1" "$2" "$(($2 + 50))"
	base=$CARD
	truncate -s 64M "$T/log"
	loop_up "$T/log"
	cow prepare "$base" --log "$LOOP"
	attach_mounted --log "$LOOP"
	commit_word one
	power_cut
	blockdev --setrw "$base"
	blockdev --setrw "$LOOP"
	dd if="$IMG" of="$T/before" bs=4096 count=1 skip="$3" status=none
	sum=$(image_sum)
	fails 1 'guarded by a log that is not here' prepare "$base"
	fails 1 'guarded by a log that is not here' prepare --shrink "$base"
	fails 1 'guarded by a log that is not here' card "$base"
	[ "$(image_sum)" = "$sum" ]
	cow release "$base" --log "$LOOP"
	answer=$(cow check --json "$base" --log "$LOOP")
	jq -e '.guarded == false' <<<"$answer"
	mount -o ro "$base" "$MNT" # what the old superblock refers to stays
	[ "$(cat "$MNT/one")" = one ]
	umount "$MNT"
	dd if="$T/before" of="$IMG" bs=4096 count=1 seek="$3" conv=notrunc status=none
	blockdev --flushbufs "$base"
	cow prepare --force "$base"
	mount "$base" "$MNT"
	findmnt -no OPTIONS "$MNT" | grep -qw rw
	umount "$MNT"
}

@test "prepare keeps the guard of a log that is on another device, or lost" { format_keeps_guard ext4 100 0; }
@test "prepare keeps the guard of such a log: xfs" { format_keeps_guard xfs 300 0; }
@test "prepare keeps the guard of such a log: btrfs" { format_keeps_guard btrfs 120 16; }

# A superblock that a kernel would not take: no guard, and a commit goes on without.
@test "a superblock with a wrong checksum is not touched, and a guard in it not believed" {
	card_prepared xfs 300 400
	printf '\001' | dd of="$IMG" bs=1 seek=300 conv=notrunc status=none # behind the last field
	blockdev --flushbufs "$CARD"
	attach
	dd if=/dev/urandom of="$DEV" bs=1M seek=100 count=1 status=none
	cow commit
	power_cut rw
	answer=$(cow check --json "$CARD")
	jq -e '.guarded == false and .log_state == "live"' <<<"$answer"
	attach
	detach
}

@test "check tells of a guarded file system that was copied in front of a retired log" {
	cut_card 1 ext4
	dd if="$IMG" of="$T/copy" bs=1M count=100 status=none
	cow release "$CARD"
	run -0 cow check "$CARD"
	[[ $output != *guarded* ]]
	image_from "$T/copy"
	answer=$(cow check "$CARD")
	grep 'guarded, and not by this log' <<<"$answer"
}

# Cuts COMMAND at each of its writes and flushes on the card of T/copy; after each it must end when it is repeated.
cut_each() { # COMMAND...
	local n code guarded=0
	for ((n = 1; n <= 60; n++)); do
		code=0
		image_from "$T/copy"
		cut_at $n "$COWFS_BUILD/cowctl" "$@" >/dev/null || code=$?
		whole_or_guarded
		[ -z "$GUARDED" ] || guarded=$((guarded + 1))
		[ $code -gt 128 ] || break
		# its record may be there already, with nothing left to decide
		"$COWFS_BUILD/cowctl" "$@" || "$COWFS_BUILD/cowctl" release "$CARD"
		whole_or_guarded
		[ -z "$GUARDED" ]
	done
	say "$*: $n operations, guarded after $guarded cuts"
	[ "$n" -gt 4 ]
	[ "$n" -lt 60 ]
	CUTS_GUARDED=$guarded
}

# bats test_tags=blunt
@test "release is cut anywhere: the card is whole or guarded, in the end whole" {
	cut_card 1 ext4
	cp --sparse=always "$IMG" "$T/copy"
	cut_each release "$CARD"
	[ "$CUTS_GUARDED" -gt 4 ]
}

# The commit was not checkpointed, so what is on the base is whole.
# bats test_tags=blunt
@test "a changed base: release --accept base is cut anywhere" {
	cut_card 1 ext4
	"$COWFS_BUILD/tests/unguard" "$CARD"
	mount "$CARD" "$MNT"
	echo foreign >"$MNT/foreign"
	umount "$MNT"
	cp --sparse=always "$IMG" "$T/copy"
	cp "$T/sum" "$T/sum2" # the generation of the log
	bare_sum >"$T/sum"
	cut_each release --accept base "$CARD"
	[ "$CUTS_GUARDED" = 0 ]
}

# bats test_tags=blunt
@test "a base that was only mounted: release --accept log is cut anywhere" {
	cut_card 1 ext4
	"$COWFS_BUILD/tests/unguard" "$CARD"
	mount "$CARD" "$MNT"
	umount "$MNT"
	cp --sparse=always "$IMG" "$T/copy"
	cp "$T/sum" "$T/sum2" # the generation of the log
	bare_sum >"$T/sum"
	cut_each release --accept log "$CARD"
	[ "$CUTS_GUARDED" -gt 4 ]
}

# bats test_tags=blunt
@test "grow is cut anywhere, and a commit waits" {
	cut_card 1 ext4
	truncate -s 170M "$IMG"
	losetup -c "$CARD"
	cp --sparse=always "$IMG" "$T/copy"
	local n guarded=0 code
	for n in 1 2 3 4 5 6 7 8; do
		code=0
		image_from "$T/copy"
		cut_at $n "$COWFS_BUILD/cowctl" grow "$CARD" || code=$?
		whole_or_guarded
		[ "$GUARDED" ]
		guarded=$((guarded + 1))
		[ $code -gt 128 ] || break
	done
	[ $guarded -gt 2 ]
	cow release "$CARD"
	whole_or_guarded
	[ -z "$GUARDED" ]
}

# FAT has no guard. It is committed unmounted, so that a checkpoint can follow at once.
@test "a commit of a FAT is checkpointed: another machine finds it whole" {
	volume_attached vfat 60 110
	seq 20000 >"$T/text"
	mcopy -i "$DEV" "$T/text" ::text
	cow commit
	power_cut rw
	answer=$(cow check --json "$CARD")
	jq -e '.verdict == "good" and .guarded == false' <<<"$answer"
	run -0 cow check "$CARD"
	[[ $output != *"do not mount it"* ]]
	fsck vfat
	mcopy -i "$CARD" ::text "$T/again"
	cmp "$T/text" "$T/again"
}

put_label() { # DEVICE LABEL
	if [ "$FS" = vfat ]; then echo "$2" >"$T/label" && mcopy -o -i "$1" "$T/label" ::label; else exfatlabel "$1" "$2" >/dev/null; fi
}
get_label() {
	if [ "$FS" = vfat ]; then mtype -i "$1" ::label; else exfatlabel "$1" | sed -n 's/^label: //p'; fi
}

# FAT and exFAT: a cut at each write and flush of a commit. Only between its record and the end of its checkpoint are there
# blocks that another machine does not see; the next attach has the label of before or of the commit.
cut_in_fat() { # FS
	local n code before between=0
	FS=$1
	volume_attached "$FS" 60 110
	put_label "$DEV" L0
	cow commit
	detach
	blockdev --setrw "$CARD"
	for n in $(seq 40); do
		before=$(get_label "$CARD")
		truncate -s 4096 "$T/arm"
		LD_PRELOAD=$COWFS_BUILD/tests/powercut.so COWFS_CUT_FILE=$T/arm COWFS_CUT_SEED=$n attach
		put_label "$DEV" "L$n"
		blockdev --flushbufs "$DEV"
		printf %s "$n" | dd of="$T/arm" conv=notrunc status=none
		code=0
		cow commit >"$T/out" 2>&1 || code=$?
		[ $code != 0 ] || break
		clear_after_cut
		rm "$T/arm" "$T/volumes"
		blockdev --setrw "$CARD"
		run -0 cow check "$CARD"
		[[ $output == *"verdict: good"* ]]
		if [[ $output == *"do not mount it"* ]]; then
			between=$((between + 1))
		else
			[[ $(get_label "$CARD") =~ ^($before|L$n)$ ]]
			fsck "$FS"
		fi
		cow release "$CARD"
		[[ $(get_label "$CARD") =~ ^($before|L$n)$ ]]
	done
	say "$FS: $n writes and flushes of a commit, $between of them with blocks that only the log has"
	[ $n -gt 6 ]
	[ $n -lt 40 ]
	[ $between -gt 0 ]
	power_cut
	blockdev --flushbufs "$CARD"
	[ "$(get_label "$CARD")" = "L$n" ]
}

# bats test_tags=blunt
@test "a cut in the commit of a FAT" { cut_in_fat vfat; }
# bats test_tags=blunt
@test "a cut in the commit of an exFAT" { cut_in_fat exfat; }

# The kernel may have no nilfs2: what Linux 6.1 makes of the guard is in the case kinds of tests/vm.
@test "a card that was cut has the guard, and loses it: nilfs2" {
	local before
	card_make nilfs2 64 128
	before=$(head -c 4096 "$IMG" | cksum)
	cow prepare "$CARD"
	attach
	printf x | dd of="$DEV" bs=1 seek=$((32 << 20)) conv=notrunc status=none
	cow commit
	power_cut rw
	answer=$(cow check --json "$CARD")
	jq -e '.guarded and .base_changed == false' <<<"$answer"
	[ "$(dd if="$IMG" bs=1 skip=1504 count=4 status=none)" = CgRD ]
	nilfs-tune -l "$CARD" | grep -q 'Filesystem magic number'
	run nilfs-tune -L name "$CARD"
	echo "nilfs-tune: $status $output"
	cow release "$CARD"
	[ "$(head -c 4096 "$IMG" | cksum)" = "$before" ]
	answer=$(cow check --json "$CARD")
	jq -e '.guarded == false' <<<"$answer"
}
