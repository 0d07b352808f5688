#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A root on trial: each boot is counted in the log before the daemon starts, and the one too many goes back.

load lib

setup() {
	cow_setup || return
	initramfs_setup
	NAME=root
}

old_root() { # FS [FS_MIB CARD_MIB]
	card_prepared "$1" "${2:-100}" "${3:-150}" -- ${LAG:+--lag 1}
	boots
	random_file "$MNT/old" 2
	sync -f "$MNT"
	cow commit root
	SUM=$(tree_sum "$MNT")
}

new_root() {
	rm "$MNT/old"
	random_file "$MNT/new" 2
	sync -f "$MNT"
	run -0 cow commit root --trial "$1"
	echo "$output"
	NEW=$(tree_sum "$MNT")
}

fails_thrice() {
	local n before
	old_root "$@"
	new_root 2
	[ "$(status_of '"\(.held.trial) \(.held.boots_left)"')" = "true 2" ]
	run -0 cow generations root
	[[ $output == *"held: the newest is on trial, for 2 more boots"* ]]
	for n in 1 0; do
		power_cut
		before=$(card_written)
		boots
		[ $(($(card_written) - before)) -le $((LAG ? 65536 : 16384)) ]
		[[ $stderr == *"is ON TRIAL, $n more boot"*" without cowctl accept"* ]]
		[ -e "$COWFS_RUNDIR/root.trial" ]
		[ "$(tree_sum "$MNT")" = "$NEW" ]
		[ "$(status_of .held.boots_left)" = "$n" ]
		answer=$(cow wear --prometheus -)
		grep -qx 'cowfs_on_trial{volume="root"} 1' <<<"$answer"
		[ "$(cow generations root --json | jq -c '[.trial, .boots_left]')" = "[true,$n]" ]
		run -0 cow status --brief
		[[ $output == *"ON TRIAL: after $n more boot"* ]]
		echo "$n" >"$MNT/more" # commits of timers do not end it
		cow commit root --timer
		NEW=$(tree_sum "$MNT")
	done
	cut_boots
	[[ $stderr == *"THE TRIAL HAS FAILED: no boot of generation "*" was accepted"* ]]
	[[ $stderr == *"BACK AT GENERATION"* ]]
	[ ! -e "$COWFS_RUNDIR/root.trial" ]
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	[ "$(status_of '"\(.held) \(.undone.trial_failed)"')" = "null true" ]
	[ "$(cow wear --prometheus - | grep -c '^cowfs_on_trial{volume="root"} 0$\|^cowfs_trial_failed{volume="root"} 1$')" = 2 ]
	run -3 cow status
	[[ $output == *"this boot went back to generation "*": THE TRIAL HAS FAILED, no boot was accepted"* ]]
	run -3 cow status --brief
	[[ $output == *"THE TRIAL HAS FAILED: back at generation "*"(no boot was accepted)"* ]]
	run -0 cow status --follow --once
	[[ $output == "root undo trial-failed generation "* ]]
	# and stays there
	echo more >"$MNT/more"
	cow commit root
	SUM=$(tree_sum "$MNT")
	cut_boots
	[[ $stderr != *TRIAL* ]]
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	detach_whole "$1"
}

@test "trial: without cowctl accept the root goes back: ext4" { fails_thrice ext4; }
@test "trial: without cowctl accept the root goes back: xfs" { fails_thrice xfs 320 420; }
@test "trial: without cowctl accept the root goes back: btrfs" { fails_thrice btrfs 150 250; }
@test "trial: without cowctl accept the root goes back: lag 1" { LAG=1 fails_thrice ext4; }

@test "trial: what is accepted stays, and the unit ends no other hold" {
	local n
	old_root ext4
	run -0 cow accept root --trial
	[ -z "$output" ]
	cow commit root --hold
	run -0 cow accept root --trial
	[ -z "$output" ]
	HELD=$(status_of .held.generation)
	# what is held already is what it goes back to
	new_root 1
	[ "$(status_of .held.generation)" = "$HELD" ]
	fails 1 "nothing is checkpointed" commit root --checkpoint
	cut_boots
	[ "$(tree_sum "$MNT")" = "$NEW" ]
	run -0 cow accept root --trial
	[[ $output == *"generation $HELD is no longer held"* ]]
	for n in 1 2 3; do
		cut_boots
		[[ $stderr != *TRIAL* ]]
		[ "$(tree_sum "$MNT")" = "$NEW" ]
	done
	detach_whole ext4
}

# bats test_tags=blunt
@test "trial: power cuts in each write of a boot: never a third state" {
	local n left=14 cuts=0
	old_root ext4
	new_root 14
	detach
	for n in $(seq 1 12); do
		run env LD_PRELOAD="$COWFS_BUILD/tests/powercut.so" COWFS_CUT_AFTER=$n COWFS_CUT_SEED=$n COWFS_CUT_LOG="$T/cut" \
			timeout -k 5 "$COW_LIMIT" "$T/sbin/cowctl" boot --device "$CARD" --conf "$T/cowfs.conf" --cmdline ro
		echo "$n: $status $output"
		[ "$status" -le 128 ] || cuts=$((cuts + 1))
		clear_volumes || true
		[ "$(cow check "$CARD" --json | jq -r .verdict)" = good ]
		now=$(cow generations "$CARD" --json | jq -c '[.undo_pending, .trial, (.generations | length)]')
		[ "$now" = "[false,true,2]" ]
	done
	say "$cuts boots were cut"
	[ $cuts -ge 4 ]
}

@test "trial: what does not go says so" {
	card_prepared ext4 100 150
	boots
	fails 2 "for the root alone" commit --trial 3
	fails 2 "is not a number from 1 to 14" commit root --trial 15
	fails 2 "is not a number from 1 to 14" commit root --trial 0
	fails 2 "mutually exclusive" commit root --trial 3 --hold
	echo a >"$MNT/a"
	cow commit root --hold
	cow undo
	run -0 cow commit root --trial 3
	[[ $output == *"the undo that was pending is taken back"* ]]
	[ "$(status_of '"\(.held.undo_pending) \(.held.boots_left)"')" = "false 3" ]
	cow accept
	cow commit root --hold
	rm "$COWFS_RUNDIR/root.counts"
	fails 1 "the initramfs of this boot does not count boots" commit root --trial 3
	[ "$(status_of .held.trial)" = false ]
	cow accept
	detach
}

@test "trial: a commit that is refused leaves nothing on trial, and an undo as it was" {
	card_prepared ext4 60 100 -b 4096 -J size=4 -- --log-size 8M --erase-block 1M
	boots
	random_file "$MNT/big" 44
	cow commit root --hold
	cow undo root
	# no commit begins by itself, and hardly a block is free
	cow discard root
	dd if=/dev/urandom of="$MNT/big" bs=1M count=40 conv=notrunc status=none
	sync -f "$MNT"
	cow discard --cancel root
	fails 1 "too small for this commit" commit root --trial 3
	[ "$(status_of '"\(.held.trial) \(.held.undo_pending)"')" = "false true" ]
	cow undo --cancel root
	cow accept root
	fails 1 "too small for this commit" commit root --trial 3
	[ "$(status_of .held)" = null ]
	umount_volume
	cow detach root --discard
}

@test "trial: a kernel that only one of the two generations has modules for" {
	local modules=$MNT/usr/lib/modules where
	export COWFS_ROOTDIR=$MNT
	old_root ext4
	mkdir -p "$modules/9.9" "$MNT/boot/efi" "$modules/left-over"
	touch "$modules/9.9/modules.dep"
	# systemd-boot; one with GRUB alone has no kernels
	mount -t tmpfs efi "$MNT/boot/efi"
	for where in loader/entries EFI/Linux; do
		mkdir -p "$MNT/boot/efi/$where"
		fails 1 "kernel 9.9 is new, and the boot loader does not read it from the volume" commit root --trial 2
		rm -r "$MNT/boot/efi/${where%/*}"
	done
	mkdir -p "$MNT/boot/efi/EFI/debian"
	cow commit root --trial 2
	cow undo root
	umount "$MNT/boot/efi"
	cut_boots
	mkdir -p "$modules/9.9" "$MNT/boot/firmware"
	touch "$modules/9.9/modules.dep"
	for where in boot/firmware boot; do
		mount -t tmpfs boot "$MNT/$where"
		fails 1 "kernel 9.9 is new, and the boot loader does not read it from the volume" commit root --trial 2
		[ "$where" = boot ] || umount "$MNT/$where"
	done
	[ "$(status_of .held)" = null ]
	cow commit root
	cow commit root --trial 2
	umount "$MNT/boot"
	cow accept root
	# inside: the one that runs
	mkdir "$modules/$(uname -r)"
	touch "$modules/$(uname -r)/modules.dep"
	cow commit root
	rm -r "$modules/$(uname -r)"
	fails 1 "the boot loader starts kernel $(uname -r) until cowctl accept" commit root --trial 2
	cow commit root --trial 2 --force
	detach
}

# $1: what GRUB finds on the bare card
loader_reads() {
	sync -f "$IMG"
	head -c "${FS_MIB}M" "$IMG" >"$T/bare"
	[ "$(grub-fstest "$T/bare" cat "(loop0)/boot/kernel")" = "kernel $1" ]
}

# A kernel in a folder that is made anew, so that the old one's blocks are free
new_kernel() {
	rm -r "$MNT/boot"
	mkdir "$MNT/boot"
	echo "kernel $1" >"$MNT/boot/kernel"
}

boot_inside() { # FS FS_MIB CARD_MIB
	command -v grub-fstest >/dev/null || skip "no grub-fstest"
	local n
	FS_MIB=$2
	printf 'checkpoint = always\n' >>"$T/cowfs.conf"
	mkdir -p "$T/mnt"
	old_root "$@"
	mkdir "$MNT/boot"
	new_kernel old
	sync -f "$MNT"
	cow commit root
	loader_reads old
	SUM=$(tree_sum "$MNT")
	for n in 1 2; do
		new_kernel new
		cow commit root --trial 1
		loader_reads old
		random_file "$MNT/more" 8
		cow commit root --timer --checkpoint
		loader_reads old
		cut_boots
		[[ $stderr == *"is ON TRIAL, 0 more boots"* ]]
		[ "$(cat "$MNT/boot/kernel")" = "kernel new" ]
		rm "$MNT/more"
		random_file "$MNT/even-more" 8
		cow commit root
		loader_reads old
		[ $n = 1 ] || break
		cut_boots
		[[ $stderr == *"THE TRIAL HAS FAILED"* ]]
		[ "$(tree_sum "$MNT")" = "$SUM" ]
		loader_reads old
	done
	cow accept root --trial
	loader_reads new
	new_kernel newer
	cow commit root
	loader_reads newer
	detach_whole "$1"
}

@test "trial: with checkpoint = always a boot loader reads the held generation until accept: ext4" { boot_inside ext4 100 150; }
@test "trial: with checkpoint = always a boot loader reads the held generation until accept: xfs" { boot_inside xfs 320 420; }

@test "trial: a command whose result is on trial" {
	old_root ext4
	run -0 --separate-stderr cow run --trial 1 -- sh -c "rm '$MNT/old'; echo new >'$MNT/new'"
	[[ $stderr == *"sh is kept"* ]]
	[ "$(status_of '"\(.held.trial) \(.held.undo_pending) \(.held.boots_left)"')" = "true false 1" ]
	NEW=$(tree_sum "$MNT")
	cut_boots
	[[ $stderr == *"is ON TRIAL, 0 more boots"* ]]
	[ "$(tree_sum "$MNT")" = "$NEW" ]
	cut_boots
	[[ $stderr == *"BACK AT GENERATION"* ]]
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	cow commit root
	# accepted
	run -0 cow run --trial 2 -- touch "$MNT/kept"
	cut_boots
	run -0 cow accept root --trial
	[ -e "$MNT/kept" ]
	NEW=$(tree_sum "$MNT")
	# one that fails is never on trial
	run -7 cow run --trial 2 -- sh -c "rm '$MNT/kept'; exit 7"
	[ "$(status_of '"\(.held.trial) \(.held.undo_pending)"')" = "false true" ]
	cut_boots
	[ "$(tree_sum "$MNT")" = "$NEW" ]
	fails 2 "for the root alone" run --volume vol --trial 2 -- true
	fails 2 "is not a number from 1 to 14" run --trial 0 -- true
	detach_whole ext4
}

# apt's part: what is in /etc/apt/apt.conf.d/80cowfs, with a dpkg whose packages are configured, or not.
hook() {
	PATH=$T/bin:$PATH COWFS_CTL=$COWFS_BUILD/cowctl "$BATS_TEST_DIRNAME/../../systemd/dpkg-hook" "$@" 2>&1
}

upgrades() { # off|whole|trial
	mkdir -p "$T/bin"
	export COWFS_CONF=$T/cowfs.conf COWFS_ROOTDIR=$MNT
	printf '[root]\nupgrades = %s\n' "$1" >"$COWFS_CONF"
	configured
}

configured() { printf '#!/bin/sh\n' >"$T/bin/dpkg" && chmod 755 "$T/bin/dpkg"; }
half_configured() { printf '#!/bin/sh\necho apt is half configured\n' >"$T/bin/dpkg"; }

@test "upgrades = whole: a run of apt is kept, or gone at the next boot" {
	old_root ext4
	upgrades off
	run -0 hook begin <<</var/cache/apt/archives/linux-image-1.deb
	run -0 hook end
	[ "$(status_of .held)" = null ]
	upgrades whole
	run -0 hook begin <<</a.deb
	[[ $output == *"the state of now is held"* ]]
	echo new >"$MNT/upgraded"
	[ "$(status_of .held.undo_pending)" = true ]
	run -0 hook end
	[[ $output == *"this upgrade is kept"* ]]
	[ "$(status_of .held)" = null ]
	# it fails, and the next one mends it
	hook begin </dev/null
	echo half >"$MNT/upgraded"
	half_configured
	run -0 hook end
	[[ $output == *"THE UPGRADE IS NOT COMPLETE"* ]]
	hook begin </dev/null
	echo mended >"$MNT/upgraded"
	configured
	run -0 hook end
	[[ $output == *"this upgrade is kept"* ]]
	SUM=$(tree_sum "$MNT")
	# a cut in the middle, behind a commit of RAM pressure
	hook begin </dev/null
	echo half >"$MNT/upgraded"
	cow commit root
	cut_boots
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	# of somebody else
	cow commit root --hold
	run -0 hook begin </dev/null
	[[ $output == *"held already"* ]]
	run -0 hook end
	[ "$(status_of .held.undo_pending)" = false ]
	cow accept
	cow run --volume root -- sh -c "$(declare -f hook); BATS_TEST_DIRNAME='$BATS_TEST_DIRNAME' T=$T; hook begin </dev/null; hook end; echo run >$MNT/upgraded"
	[ "$(status_of .held)" = null ]
	cow commit root --hold
	echo 'hold = previous' >>"$COWFS_CONF"
	run -0 hook begin </dev/null
	[[ $output == *"the state of now is held"* ]]
	hook end
	run -0 hook begin <<</var/cache/apt/archives/grub-pc_2.06-13_amd64.deb
	[[ $output == *"GRUB"*"not kept in one piece"* ]]
	[ "$(status_of .held)" = null ]
	# a kernel goes with a /boot of its own
	mkdir "$MNT/boot"
	mount -t tmpfs boot "$MNT/boot"
	run -0 hook begin <<</var/cache/apt/archives/linux-image-1.deb
	[[ $output == *"not kept in one piece"* ]]
	[ "$(status_of .held)" = null ]
	umount "$MNT/boot"
	detach_whole ext4
}

@test "upgrades = trial: what apt has installed is on trial; apt stops if nothing can be held" {
	old_root ext4
	upgrades trial
	hook begin </dev/null
	echo new >"$MNT/upgraded"
	run -0 hook end
	[[ $output == *"this upgrade is on trial"* ]]
	[ "$(status_of '"\(.held.undo_pending) \(.held.boots_left)"')" = "false 3" ]
	# the next one belongs to it
	run -0 hook begin </dev/null
	[[ $output == *"held already"* ]]
	hook end
	for _ in 1 2 3; do
		cut_boots
		[ -e "$MNT/upgraded" ]
	done
	cut_boots
	[ ! -e "$MNT/upgraded" ]
	rm "$COWFS_RUNDIR/root.counts"
	hook begin </dev/null
	run -0 hook end
	[[ $output == *"does not count boots"*"this upgrade is kept"* ]]
	echo more >"$MNT/more"
	printf '#!/bin/sh\n[ "$1" != commit ] || exit 1\nexec %s "$@"\n' "$COWFS_BUILD/cowctl" >"$T/bin/cowctl"
	chmod 755 "$T/bin/cowctl"
	PATH=$T/bin:$PATH COWFS_CTL=$T/bin/cowctl run -1 "$BATS_TEST_DIRNAME/../../systemd/dpkg-hook" begin </dev/null
	[ "$(status_of .held)" = null ]
	detach
}
