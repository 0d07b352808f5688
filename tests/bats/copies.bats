#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Tools that copy or shrink a card and know nothing of cowfs: what they make of a card whose superblock is guarded, and of one
# that is not. The table is in docs/design/copies.md.
# seconds: 90
# turn: 3

load lib

# COPY is the card: it has the log, and the newest generation.
is_card() {
	[ "$(cow check --json "$CARD" | jq -c '[.guarded, .base_changed, .verdict]')" = "[$GUARDED,false,\"good\"]" ]
	attach
	mount_volume -o ro
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	detach --discard
	rm "$T/volumes"
	blockdev --setrw "$CARD"
}

# Without a log, and whole.
is_plain() {
	fails 1 'no cowfs log \(if' check "$CARD"
	mount "$CARD" "$MNT"
	findmnt -no OPTIONS "$MNT" | grep -qw rw
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	umount "$MNT"
}

# Guarded, and the log is not in it: nobody takes it for a whole one.
is_refused() {
	local sum
	sum=$(image_sum "$COPY")
	fails 1 'guarded by a log that is not here' check "$CARD"
	fails 1 'guarded by a log that is not here' attach "$CARD"
	fails 1 'guarded by a log that is not here' prepare "$CARD"
	if mount "$CARD" "$MNT"; then
		run ! touch "$MNT/foreign"
		umount "$MNT"
	fi
	[ "$(image_sum "$COPY")" = "$sum" ]
}

# IS COMMAND...: the copy that COMMAND makes, to the device $CARD
copied() {
	local is=$1
	shift
	COPY=$T/copy
	truncate -s "${MIB}M" "$COPY"
	card_loop "$COPY"
	"$@" >"$T/out" 2>&1 || { cat "$T/out"; return 1; }
	blockdev --flushbufs "$CARD"
	"is_$is"
	loop_down "$CARD"
	rm "$COPY"
}

dd_all() { dd if="$SOURCE" of="$CARD" bs=1M conv=fsync; }
dd_fs() { dd if="$SOURCE" of="$CARD" bs=1M count="$FS_MIB" conv=fsync; }
# pc KIND OPTION...: it waits for the thread that shows its progress, which sleeps for 2 s unless told otherwise
pc() { partclone."$1" -f 0 "${@:2}"; }
# through an image, and from device to device
partclone_image() { rm -f "$T/image" && pc "$FS" -c -s "$SOURCE" -o "$T/image" && pc "$FS" -r -s "$T/image" -o "$CARD"; }
partclone_device() { pc "$FS" -b -s "$SOURCE" -o "$CARD"; }
partclone_dd() { pc dd -s "$SOURCE" -o "$CARD"; }

copies() { # FS FS_MIB CARD_MIB
	FS=$1 FS_MIB=$2 MIB=$3
	cut_card 2 "$@"
	SOURCE=$CARD GUARDED=true
	copied card dd_all
	copied card partclone_dd
	copied refused dd_fs
	copied refused partclone_image
	copied refused partclone_device
	cow release "$SOURCE"
	# partclone replays no log
	[ "$FS" != xfs ] || { mount "$SOURCE" "$MNT"; umount "$MNT"; }
	GUARDED=false
	copied card dd_all
	copied card partclone_dd
	copied plain dd_fs
	copied plain partclone_image
	copied plain partclone_device
}

@test "copies of a card by dd and partclone: ext4" { copies ext4 100 150; }
@test "copies of a card by dd and partclone: xfs" { copies xfs 310 360; }
@test "copies of a card by dd and partclone: btrfs" { copies btrfs 120 160; }

# The commands of PiShrink, which goes on if one of them ends with less than 4.
pishrink() {
	e2fsck -pf "$IMG" || [ $? -lt 4 ] || e2fsck -y "$IMG" || [ $? -lt 4 ] || return 9
	resize2fs -p "$IMG" $(($(resize2fs -P "$IMG" | sed 's/.*: //') + 100)) || return 12
	truncate -s "$(dumpe2fs -h "$IMG" 2>/dev/null | awk '/^Block count/ { n = $3 } /^Block size/ { print n * $3 }')" "$IMG"
}

# That of an unguarded one as a root: boot.bats
@test "PiShrink: a guarded image stays as it is, an unguarded one becomes a plain file system" {
	local sum
	cut_card 2 ext4 100 150 -b 4096
	loop_down "$CARD"
	sum=$(image_sum)
	run -9 pishrink
	[[ $output == *"unsupported feature"* ]]
	[ "$(image_sum)" = "$sum" ]
	cow release "$IMG"
	pishrink
	[ "$(stat -c %s "$IMG")" -lt $((100 << 20)) ]
	card_loop
	is_plain
}

# rpi-clone, and any backup of files
@test "rsync: of a guarded card that is mounted bare it copies an old generation, of a volume or a view the newest one" {
	cut_card 2 ext4
	mkdir "$T/view" "$T/to"
	mount -o ro "$CARD" "$MNT"
	rsync -aAX "$MNT/" "$T/to"
	umount "$MNT"
	[ "$(tree_sum "$T/to")" != "$SUM" ]
	cow view "$CARD" "$T/view"
	rsync -aAX --delete "$T/view/" "$T/to"
	umount "$T/view"
	wait_for 10 no_daemons
	[ "$(tree_sum "$T/to")" = "$SUM" ]
	rm -r "$T/to/one"
	attach_mounted
	rsync -aAX --delete "$MNT/" "$T/to"
	[ "$(tree_sum "$T/to")" = "$SUM" ]
	detach
}

# ---- an older copy of the file system alone, written over the card while the guard is on ----

many() { # FOLDER
	mkdir -p "$1/more"
	python3 -c '
import os, sys
for i in range(1, 301):
    data = os.urandom(i * 20)
    for folder in sys.argv[1], sys.argv[1] + "/more":
        with open(f"{folder}/{i}", "wb") as f:
            f.write(data)' "$1"
}

# What a checkpoint has changed since the copy is old again: the superblock still fits, so the samples tell.
older_copy() { # IS TOOL FS FS_MIB CARD_MIB
	local is=$1 tool=$2 before
	FS=$3 FS_MIB=$4
	volume_mounted "${@:3}"
	many "$MNT/one"
	random_file "$MNT/big" 4
	cow commit
	rm -r "$MNT/one/more"
	random_file "$MNT/big" 3
	cow commit
	before=$(tree_sum "$MNT")
	SOURCE=$IMG
	[ "$tool" = dd ] || SOURCE=$CARD
	"$tool"_out
	many "$MNT/two"
	rm "$MNT/big"
	cow commit
	if [ "$is" != copy ]; then
		cow commit --checkpoint
		random_file "$MNT/new" 1
		cow commit
	fi
	SUM=$(tree_sum "$MNT")
	[ "$is" != copy ] || SUM=$before
	give_up_early
	power_cut rw
	"$tool"_in
	blockdev --flushbufs "$CARD"
	run cow check "$CARD"
	echo "$output"
	if [ "$is" = aside ] || [[ $is == newest && $output == *"SET ASIDE"* ]]; then
		[[ $output == *"still guarded by this log, so an older copy was written over it"* ]]
		[[ $output == *"SET ASIDE"* ]]
		return
	fi
	attach
	mount_volume -o ro
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	detach --discard
}

dd_out() { dd if="$SOURCE" of="$T/copy" bs=1M count="$FS_MIB" status=none; }
dd_in() { dd if="$T/copy" of="$IMG" bs=1M conv=notrunc status=none; }
pc_out() { pc "$FS" -c -s "$SOURCE" -o "$T/copy" >"$T/out" 2>&1 || { cat "$T/out"; return 1; }; }
pc_in() { pc "$FS" -r -s "$T/copy" -o "$CARD" >"$T/out" 2>&1 || { cat "$T/out"; return 1; }; }

@test "an older copy over the same card, behind a checkpoint: dd, ext4" { older_copy aside dd ext4 100 150; }
@test "an older copy over the same card, behind a checkpoint: dd, xfs" { older_copy aside dd xfs 310 400; }
@test "an older copy over the same card, behind a checkpoint: dd, btrfs" { older_copy aside dd btrfs 120 180; }
@test "an older copy over the same card, behind a checkpoint: partclone, ext4" { older_copy aside pc ext4 100 150; }
@test "an older copy over the same card, behind a checkpoint: partclone, xfs" { older_copy aside pc xfs 310 400; }
# all that it puts back is as it was, or a sample of the newest commit is among it
@test "an older copy over the same card, behind a checkpoint: partclone, btrfs" { older_copy newest pc btrfs 120 180; }
@test "an older copy over the same card is the generation of the copy: dd, ext4" { older_copy copy dd ext4 100 150; }
@test "an older copy over the same card is the generation of the copy: dd, xfs" { older_copy copy dd xfs 310 400; }

# It has no guard, and an empty log: that it looks as before a commit does not bring the blocks of that commit back.
@test "an older copy over the same card, which is a FAT, counts" {
	FS_MIB=60
	card_make vfat $FS_MIB 110
	echo old >"$T/text"
	mcopy -i "$CARD" "$T/text" ::
	cow prepare "$CARD"
	attach
	echo new >"$T/text"
	mcopy -i "$DEV" "$T/text" ::new
	cow commit
	SOURCE=$CARD
	dd_out
	mcopy -o -i "$DEV" "$T/text" ::text
	cow commit
	power_cut rw
	dd_in
	blockdev --flushbufs "$CARD"
	cow check "$CARD"
	attach
	[ "$(mtype -i "$DEV" ::text)" = old ]
	[ "$(mtype -i "$DEV" ::new)" = new ]
}

@test "an image on a smaller card: opened while file system and log fit, else the one way out is named" {
	local log_end try
	volume_mounted ext4 100 150
	echo one >"$MNT/a"
	echo keep >"$MNT/b"
	cow commit
	echo two >"$MNT/a"
	mkdir "$MNT/n"
	cow commit
	SUM=$(tree_sum "$MNT")
	power_cut
	loop_down "$CARD"
	log_end=$(((104 + 32) << 20))
	for try in $((149 << 20)) $((log_end + 4096)); do
		cp --sparse=always "$IMG" "$T/copy.img"
		truncate -s "$try" "$T/copy.img"
		card_loop "$T/copy.img"
		run -3 cow check "$CARD"
		cow view "$CARD" "$MNT"
		[ "$(tree_sum "$MNT")" = "$SUM" ]
		umount "$MNT"
		fails 1 'committed blocks that are not checkpointed' prepare --force "$CARD"
		attach_has "$SUM"
		echo more >"$MNT/c"
		cow commit
		echo more >"$MNT/d"
		cow commit
		[ "$(status_of .super_copy_b_bad)" = false ]
		detach
		run -0 cow check "$CARD"
		fsck ext4
		attach_mounted
		[ "$(cat "$MNT/d")" = more ]
		detach
		loop_down "$CARD"
	done
	cp --sparse=always "$IMG" "$T/copy.img"
	truncate -s "$log_end" "$T/copy.img"
	card_loop "$T/copy.img"
	for try in check release attach prepare 'prepare --force'; do
		# shellcheck disable=SC2086
		fails 1 "a truncated copy of a larger card: a part of the log is missing\. Make it $((log_end + 4096)) bytes or larger" $try "$CARD"
	done
	loop_down "$CARD"
	truncate -s $((log_end + 4096)) "$T/copy.img"
	card_loop "$T/copy.img"
	cow release "$CARD"
	[ "$(bare_sum)" = "$SUM" ]
}

@test "a smaller card with its log on another device: what it takes is named" {
	local command
	card_make ext4 100 150
	truncate -s 40M "$T/log.img"
	loop_up "$T/log.img"
	cow prepare --log "$LOOP" "$CARD"
	losetup -d "$CARD"
	truncate -s 149M "$IMG"
	CARD=$(losetup --show -f "$IMG")
	for command in check release attach; do
		fails 1 "$CARD: smaller than the volume of its log. Make it $((150 << 20)) bytes or larger" "$command" --log "$LOOP" "$CARD"
	done
	losetup -d "$CARD"
	truncate -s 150M "$IMG"
	CARD=$(losetup --show -f "$IMG")
	cow release --log "$LOOP" "$CARD"
	loop_down "$LOOP"
}
