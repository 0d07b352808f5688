#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A boot loader writes to the card before cowfs is there: save_env of GRUB changes the block of grubenv in place. It
# reads the bare card, with or without a log. As setup leaves a root with /boot: checkpoint = always.
# seconds: 50
# turn: 3

load lib

ENV=boot/grub/grubenv

setup() {
	cow_setup
	command -v grub-editenv >/dev/null || skip "no grub-editenv"
}

# -b 4096: a small ext4 has blocks of 1 KiB
# FS [MKFS_OPTION...]: a card whose volume is mounted and has /boot/grub, committed
card_with_env() {
	local fs=$1
	shift
	WHEN=always
	if [ "$fs" = xfs ]; then
		card_make xfs 330 500 "$@"
	else
		card_make "$fs" 100 150 "$@"
	fi
	cow prepare "$CARD" ${LAG:+--lag $LAG}
	attach_mounted --checkpoint always
	mkdir -p "$MNT/boot/grub"
	grub-editenv "$MNT/$ENV" create
	grub-editenv "$MNT/$ENV" set saved_entry=0
	cow commit
	# what grub-editenv wrote may have moved: GRUB must find it
	in_place set recordfail=
	cow commit
}

# grub-editenv truncates the file, so it gets another block. This keeps the block.
in_place() {
	cp "$MNT/$ENV" "$T/env"
	grub-editenv "$T/env" "$@"
	dd if="$T/env" of="$MNT/$ENV" conv=notrunc,fsync status=none
}

# Sets WHERE: the place of the file on the bare card, in bytes, as a boot loader finds it there.
where() {
	case $(blkid -p -o value -s TYPE "$CARD") in
	xfs)
		local inode
		inode=$(xfs_db -r -c "path /$ENV" -c "print core.version" "$CARD" >/dev/null && xfs_db -r -c "path /$ENV" -c "bmap" "$CARD")
		WHERE=$(xfs_db -r -c "convert fsblock $(sed -n 's/.*startblock \([0-9]*\).*/\1/p' <<<"$inode") daddr" "$CARD" | sed 's/.*(\([0-9]*\)).*/\1/')
		WHERE=$((WHERE * 512))
		;;
	*)
		WHERE=$(($(debugfs -R "blocks /$ENV" "$CARD" 2>/dev/null) * $(debugfs -R "show_super_stats -h" "$CARD" 2>/dev/null | sed -n 's/^Block size: *//p')))
		;;
	esac
	[ "$WHERE" -gt 0 ]
}

# What GRUB does at a boot: load_env, then save_env, two sectors of the bare card.
loader() {
	blockdev --setrw "$CARD"
	blockdev --flushbufs "$CARD"
	where
	dd if="$IMG" of="$T/env" bs=512 skip=$((WHERE / 512)) count=2 status=none
	loader_saw=$(grub-editenv "$T/env" list)
	echo "GRUB sees: $loader_saw"
	grub-editenv "$T/env" "$@"
	dd if="$T/env" of="$IMG" bs=512 seek=$((WHERE / 512)) conv=notrunc status=none
	blockdev --flushbufs "$CARD"
}

# GRUB itself boots from a disk of its own, takes the entry for one boot from the card, and clears it there.
# Sets loader_saw to the entry.
grub_boots() {
	local said
	if [ ! -e "$T/grub" ]; then
		cat >"$T/grub.cfg" <<-'END'
			serial --unit=0
			terminal_output serial
			set f=(hd1)/boot/grub/grubenv
			load_env -f $f
			echo "entry=[$next_entry]"
			set next_entry=
			save_env -f $f next_entry
			reboot
		END
		grub-mkimage -O i386-pc -o "$T/core" -p '(hd1)/boot/grub' -c "$T/grub.cfg" \
			biosdisk ext2 xfs loadenv echo serial terminal reboot
		cat /usr/lib/grub/i386-pc/boot.img "$T/core" >"$T/grub"
		truncate -s 4M "$T/grub"
	fi
	blockdev --setrw "$CARD"
	said=$(timeout 300 qemu-system-x86_64 -accel tcg -m 64 -nodefaults -display none -no-reboot -serial stdio \
		-drive "file=$T/grub,format=raw,if=ide" -drive "file=$IMG,format=raw,if=ide" | tr -d '\r')
	blockdev --flushbufs "$CARD"
	echo "GRUB says: $said"
	run ! grep -q error: <<<"$said"
	loader_saw=$(sed -n 's/.*entry=\[\(.*\)\].*/\1/p' <<<"$said")
}

env_is() {
	local got
	got=$(grub-editenv "$MNT/$ENV" list)
	[ "$got" = "$1" ] || { echo "grubenv has '$got', not '$1'"; return 1; }
}

again() {
	attach_mounted --checkpoint "$WHEN" "$@"
}

# The change of the loader stays, whatever is committed and checkpointed.
stays() {
	local i
	env_is "$1"
	for i in 1 2; do
		random_file "$MNT/more$i" 1
		cow commit
		env_is "$1"
		power_cut
		again
		env_is "$1"
	done
	cow commit --checkpoint
	power_cut
	again
	env_is "$1"
	detach
	fsck "$(blkid -p -o value -s TYPE "$CARD")"
	loader set seen=1
	[ "$loader_saw" = "$1" ]
}

# an entry for one boot: chosen, committed with another file, power cut, taken by the loader; $1: how it is written
one_boot() {
	"$1" set next_entry=2
	random_file "$MNT/same" 1
	tree_sum "$MNT" >"$T/sum"
	cow commit
	power_cut
	loader set next_entry=
	[ "$loader_saw" = $'saved_entry=0\nrecordfail=\nnext_entry=2' ]
	again
	[ -s "$MNT/same" ]
	stays $'saved_entry=0\nrecordfail=\nnext_entry='
}

editenv() { grub-editenv "$MNT/$ENV" "$@"; }

@test "loader: a change after a detach is taken" {
	card_with_env ext4 -b 4096
	editenv set next_entry=2
	detach
	loader set next_entry=
	again
	stays $'saved_entry=0\nrecordfail=\nnext_entry='
}

@test "loader: a change of a block that was overwritten in place survives a power cut and commits (ext4)" {
	card_with_env ext4 -b 4096
	one_boot in_place
}

@test "loader: a change of a block that was free in the previous generation keeps the newest one (ext4)" {
	card_with_env ext4 -b 4096
	one_boot editenv
}

@test "loader: an entry for one boot is booted once, time after time" {
	card_with_env ext4 -b 4096
	one_boot editenv
	again
	for _ in 1 2; do
		editenv set next_entry=2 # as grub-reboot does
		cow commit
		power_cut
		loader set next_entry=
		[[ $loader_saw == *next_entry=2* ]]
		again
		[[ $(editenv list) == *next_entry= ]] || [[ $(editenv list) == *$'next_entry=\n'* ]]
		random_file "$MNT/x" 1
		cow commit
		power_cut
		loader set recordfail=1
		[[ $loader_saw != *next_entry=2* ]]
		again
		[[ $(editenv list) == *recordfail=1* ]]
	done
}

@test "loader: the same with blocks of 1 KiB, on xfs, and with lag" {
	card_with_env ext4 -b 1024
	one_boot in_place
	IMG=''
	loop_down "$CARD"
	card_with_env xfs
	one_boot editenv
	IMG=''
	loop_down "$CARD"
	LAG=1
	card_with_env ext4 -b 4096
	one_boot editenv
}

@test "loader: a commit of the file alone is checkpointed as well" {
	card_with_env ext4 -b 4096
	editenv set next_entry=2
	echo dirty >"$MNT/other"
	cow commit "$MNT/$ENV"
	power_cut
	loader set next_entry=
	[[ $loader_saw == *next_entry=2* ]]
	again
	[ ! -e "$MNT/other" ]
	stays $'saved_entry=0\nrecordfail=\nnext_entry='
}

@test "loader: the block that openSUSE keeps in front of a btrfs" {
	at=$((256 * 1024))
	card_prepared btrfs 250 400
	WHEN=always
	attach_mounted --checkpoint always
	grub-editenv "$T/env" create
	grub-editenv "$T/env" set next_entry=2
	dd if="$T/env" of="$DEV" bs=1024 seek=$((at / 1024)) conv=notrunc,fsync status=none
	random_file "$MNT/same" 1
	cow commit
	power_cut
	where() { WHERE=$at; }
	loader set next_entry=
	[ "$loader_saw" = next_entry=2 ]
	again
	cmp -n 1024 "$DEV" "$T/env" "$at"
	[ -s "$MNT/same" ]
	random_file "$MNT/same" 1
	cow commit --checkpoint
	power_cut
	again
	cmp -n 1024 "$DEV" "$T/env" "$at"
}

@test "loader: GRUB itself boots the entry of grub-reboot once (ext4, xfs)" {
	local fs how
	command -v qemu-system-x86_64 >/dev/null && [ -e /usr/lib/grub/i386-pc/boot.img ] || skip "no QEMU or no GRUB for a PC"
	for fs in 'ext4 -b 4096' 'ext4 -b 1024' xfs; do
		card_with_env $fs
		for how in in_place editenv; do
			"$how" set next_entry=2
			random_file "$MNT/same" 1
			cow commit
			power_cut
			grub_boots
			[ "$loader_saw" = 2 ]
			again
			[[ $(editenv list) == *next_entry= ]]
			echo "$how" >"$MNT/more"
			cow commit
			power_cut
			grub_boots
			[ "$loader_saw" = '' ]
			again
		done
		detach
		fsck "${fs%% *}"
		IMG=''
		loop_down "$CARD"
	done
}

# without a checkpoint: this is also what a cut between record and checkpoint leaves
due_card() {
	card_with_env ext4 -b 4096
	detach
	WHEN=due
	# without a profile nothing that may be written in place goes to the log
	again --profile none
}

@test "loader: a change between the record and its checkpoint does not cost the generation" {
	due_card
	editenv set next_entry=2
	random_file "$MNT/same" 1
	cow commit
	block=$(filefrag -b4096 -v "$MNT/$ENV" | awk '$1 == "0:" { print $4 + 0 }')
	sum=$(tree_sum "$MNT")
	power_cut
	[ "$(cow check --json "$CARD" | jq .log_live_blocks)" -gt 0 ]
	# a checkpoint that was cut had written the inode, but not the tail
	where() { WHERE=$((block * 4096)); }
	loader set next_entry=
	[ "$(cow check --json "$CARD" | jq -r .log_state)" = live ]
	again 2>"$T/said"
	grep 'the boot loader has changed its environment block' "$T/said"
	env_is $'saved_entry=0\nrecordfail=\nnext_entry='
	editenv set next_entry=2
	[ "$(tree_sum "$MNT")" = "$sum" ]
	# no text: neither GRUB nor any other program wrote that
	power_cut
	dd if=/dev/urandom of="$IMG" bs=1024 seek=$((block * 4)) count=1 conv=notrunc status=none
	blockdev --flushbufs "$CARD"
	[ "$(cow check --json "$CARD" | jq -r .log_state)" = fell-back ]
}

@test "loader: what a cut commit left in the log is emptied before the next commit" {
	due_card
	in_place set next_entry=2
	cow commit
	power_cut
	WHEN=always
	again
	env_is $'saved_entry=0\nrecordfail=\nnext_entry=2'
	echo 1 >"$MNT/x"
	cow commit
	power_cut
	loader set next_entry=
	[ "$loader_saw" = $'saved_entry=0\nrecordfail=\nnext_entry=2' ]
	again
	stays $'saved_entry=0\nrecordfail=\nnext_entry='
}

@test "loader: a file of any user with that header is no mixture" {
	due_card
	detach
	again
	cp "$MNT/$ENV" "$MNT/mine"
	cow commit --checkpoint
	detach
	again
	cp "$MNT/mine" "$T/env"
	grub-editenv "$T/env" set evil=1
	dd if="$T/env" of="$MNT/mine" conv=notrunc status=none
	echo new >"$MNT/beside"
	cow commit
	sum=$(tree_sum "$MNT")
	power_cut
	again
	[ "$(tree_sum "$MNT")" = "$sum" ]
	cmp "$T/env" "$MNT/mine"
}

# GRUB replays no log of xfs. Before a checkpoint by hand the driver writes its metadata home.
@test "GRUB reads a bare xfs behind a checkpoint that was asked for" {
	command -v grub-fstest >/dev/null || skip "no grub-fstest"
	local name
	volume_mounted xfs 310 400
	mkdir "$MNT/boot"
	for name in 1 2 3; do
		echo "kernel $name" >"$MNT/boot/$name"
		cow commit
		cow commit --checkpoint
		dd if="$IMG" of="$T/bare" bs=1M count=310 status=none
		run -0 grub-fstest "$T/bare" cat "(loop0)/boot/$name"
		[ "$output" = "kernel $name" ]
	done
	detach_whole xfs
}

# Whatever is killed in between. Not tested by a write, which would hang.
@test "an xfs does not stay frozen if what froze it for a checkpoint is killed" {
	local victim how
	freeze_shim
	volume_mounted xfs 310 400
	for victim in nobody freezer watcher; do
		echo "$victim" >"$MNT/$victim"
		: >"$T/freezes"
		FREEZE_KILLS=$victim LD_PRELOAD=$FREEZE_SHIM cow commit --checkpoint
		grep -qx frozen "$T/freezes"
		[ "$victim" != watcher ] || wait_for 20 grep -qx thawed "$T/freezes"
		run ! fsfreeze -u "$MNT"
	done
	umount_volume
	cow detach --discard vol
	attach_mounted --checkpoint always # all of these freeze as well
	for how in "run --volume vol -- touch $MNT/by-run" 'commit --all' 'commit --all --checkpoint'; do
		: >"$T/freezes"
		LD_PRELOAD=$FREEZE_SHIM cow $how
		[ "$(cat "$T/freezes")" = $'frozen\nthawed' ]
	done
	: >"$T/freezes"
	LD_PRELOAD=$FREEZE_SHIM cow commit --all --dry-run
	[ ! -s "$T/freezes" ]
	# in a unit without the capability, and with what the generator gives it
	run -0 timeout 300 setpriv --bounding-set=-all "$COWFS_BUILD/cowctl" commit vol --timer
	[[ $output == *"could not be frozen for a moment (Operation not permitted): a boot loader may not find what is new"* ]]
	run -0 timeout 300 setpriv --bounding-set=-all,+sys_admin "$COWFS_BUILD/cowctl" commit vol --timer
	[[ $output != *frozen* ]]
	detach_whole xfs
}

# /boot inside the root, as setup leaves it (checkpoint = always). While a generation is held, the loader has its kernel,
# which is the one that runs; going back brings that kernel back.
loader_of_held() { # FS
	command -v grub-fstest >/dev/null || skip "no grub-fstest"
	volume_mounted "$1" 330 430 -- -- --checkpoint always
	mkdir "$MNT/boot"
	kernel old
	cow commit --hold
	kernel new
	run -0 cow commit
	[[ $output == *"a boot loader finds /boot as it was then, until cowctl accept"* ]]
	[ "$(grub_finds)" = old ]
	cow accept
	[ "$(grub_finds)" = new ]
	cow commit --hold
	kernel bad
	cow commit
	cow undo
	detach
	[ "$(grub_finds)" = new ]
	attach_mounted --checkpoint always
	[ "$(cat "$MNT/boot/kernel")" = new ]
	kernel next
	cow commit
	[ "$(grub_finds)" = next ]
	cow run --volume vol -- sh -c "echo done >'$MNT/boot/kernel'"
	[ "$(grub_finds)" = done ]
	run -1 cow run --volume vol -- sh -c "echo half >'$MNT/boot/kernel'; exit 1"
	detach
	[ "$(grub_finds)" = done ]
	attach_mounted --checkpoint always
	detach_whole "$1"
}

@test "checkpoint = always: GRUB reads the held generation until it is accepted, also behind an undo (ext4)" { loader_of_held ext4; }
@test "checkpoint = always: GRUB reads the held generation until it is accepted, also behind an undo (btrfs)" { loader_of_held btrfs; }

kernel() { echo "$1" >"$MNT/boot/kernel"; }

# what GRUB's own driver reads from the bare card
grub_finds() {
	dd if="$IMG" of="$T/bare" bs=1M count=330 status=none
	grub-fstest "$T/bare" cat "(loop0)/boot/kernel"
}

# U-Boot's environment has the size that the board was built for, and one checksum over all of it.
boot_counter() { # DEVICE [NUMBER]: reads it, or writes it as saveenv does
	mcopy -n -o -i "$1" ::uboot.env "$T/uboot.env"
	echo "$T/uboot.env 0 0x4000" >"$T/fw"
	if [ $# = 2 ]; then
		fw_setenv -c "$T/fw" bootcount "$2" && mcopy -o -i "$1" "$T/uboot.env" ::
	else
		fw_printenv -n -c "$T/fw" bootcount
	fi
}

@test "U-Boot's environment on a FAT: a cut comes behind the checkpoint of a commit, and what saveenv writes counts" {
	command -v fw_setenv mkenvimage >/dev/null || skip "no fw_setenv"
	card_make vfat 60 110
	echo bootcount=0 | mkenvimage -s 0x4000 -o "$T/uboot.env" -
	mcopy -i "$CARD" "$T/uboot.env" ::
	cow prepare "$CARD"
	attach
	boot_counter "$DEV" 1
	cow commit
	power_cut rw
	[ "$(boot_counter "$CARD")" = 1 ]
	boot_counter "$CARD" 2
	blockdev --flushbufs "$CARD"
	attach
	[ "$(boot_counter "$DEV")" = 2 ]
	boot_counter "$DEV" 3
	cow commit
	detach
	[ "$(boot_counter "$CARD")" = 3 ]
	fsck vfat
}
