#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The protection on trial: a new initramfs with which no boot was accepted.
# turn: 3

load lib

setup() {
	cow_setup || return
	initramfs_setup
	mkdir "$T/etc"
	CONF=$T/etc/cowfs.conf
	printf '[root]\nram = 64M\ntrial = 2\n' >"$CONF"
	echo first >"$T/etc/trial"
	NAME=root
}

formatted() {
	card_prepared ext4 60 110
}

# As an initramfs does. $1: the exit status; then words of the command line
boots() {
	local code=$1
	shift
	rm -f "$COWFS_RUNDIR"/root.*
	run --separate-stderr timeout -k 5 "$COW_LIMIT" "$T/sbin/cowctl" boot --device "$CARD" --conf "$CONF" --cmdline "ro quiet $*"
	echo "exit $status, $output, $stderr"
	[ "$status" = "$code" ] || return 1
	if [ "$code" = 0 ]; then
		DEV=$output
		is_volume
		mount_volume
	else
		[ "$output" = "$CARD" ]
	fi
}

# What cowfs-accept.service does.
accepts() {
	[ "$(status_of .protection_on_trial)" = true ]
	run -0 cow status root
	[[ $output == *"ON TRIAL: without cowctl accept"* ]]
	mkdir -p "$MNT/etc/cowfs"
	COWFS_CTL=$COWFS_BUILD/cowctl "$BATS_TEST_DIRNAME/../../systemd/proven" "$MNT/etc/cowfs/proven"
	run -0 cow accept root --trial --dry-run
	[ -z "$output" ]
	[ "$(status_of .protection_on_trial)" = true ]
	run -0 cow accept root --trial
	[ -z "$output" ]
	[ "$(status_of .protection_on_trial)" = false ]
}

# The partition as the system has it after a bypass: with what was committed, and writable
writable() { # FS SUM
	[ "$(cat "$COWFS_RUNDIR/root.state")" = bypassed ]
	grep -q "the protection is on trial" "$COWFS_RUNDIR/root.bypassed"
	[ "$(blockdev --getro "$CARD")" = 0 ]
	run -3 cow status
	[[ $output == *"the protection is on trial"* ]]
	mount "$CARD" "$MNT"
	[ "$(tree_sum "$MNT")" = "$2" ]
	date >"$MNT/written"
	umount "$MNT"
	fsck "$1"
}

readonly_root() {
	[ "$(cat "$COWFS_RUNDIR/root.state")" = failed ]
	[ "$(blockdev --getro "$CARD")" = 1 ]
	blockdev --setrw "$CARD"
}

fails_twice() { # FS [FS_MIB CARD_MIB]
	local n before sum
	card_prepared "$1" "${2:-60}" "${3:-110}" -- ${LAG:+--lag 1}
	for n in 1 0; do
		before=$(card_written)
		boots 0
		[[ $stderr == *"THE PROTECTION IS ON TRIAL, $n more boot"*" without cowctl accept"* ]]
		[ "$(cat "$COWFS_RUNDIR/root.trial")" = first ]
		# the first one begins the life of the log as well
		echo "written: $(($(card_written) - before))"
		[ $(($(card_written) - before)) -le $((n ? 65536 : 32768)) ]
		random_file "$MNT/$n" 1
		sync -f "$MNT"
		cow commit root
		sum=$(tree_sum "$MNT")
		power_cut
	done
	boots 4
	[[ $stderr == *"no boot with this initramfs was accepted (cowctl setup tries again); the protection is on trial"* ]]
	writable "$1" "$sum"
	# so it stays, until there is another initramfs
	boots 4
	echo second >"$T/etc/trial"
	boots 0
	[[ $stderr == *"ON TRIAL, 1 more boot"* ]]
	[ -e "$MNT/written" ]
	detach_whole "$1"
}

@test "the protection on trial: after BOOTS boots the root is an ordinary one: ext4" { fails_twice ext4; }
@test "the protection on trial: after BOOTS boots the root is an ordinary one: xfs" { fails_twice xfs 320 420; }
@test "the protection on trial: after BOOTS boots the root is an ordinary one: btrfs" { fails_twice btrfs 150 250; }
@test "the protection on trial: after BOOTS boots the root is an ordinary one: lag 1" { LAG=1 fails_twice ext4; }

@test "the protection on trial: what was accepted is never writable" {
	local n before
	formatted
	boots 0
	accepts
	[ "$(cat "$MNT/etc/cowfs/proven")" = first ]
	power_cut
	for n in 1 2 3; do
		before=$(card_written)
		boots 0
		[ "$(card_written)" = "$before" ]
		[[ $stderr != *TRIAL* ]]
		[ ! -e "$COWFS_RUNDIR/root.trial" ]
		power_cut
	done
	# by the superblock, though nothing starts
	echo nonsense >>"$CONF"
	boots 3
	readonly_root
	sed -i '$d' "$CONF"
	boots 0
	detach
	# by the file system, if there is no log any more
	cow check "$CARD"
	log_lost
	boots 3
	readonly_root
	# of another initramfs nothing is known
	echo second >"$T/etc/trial"
	boots 4
	rm "$T/etc/trial"
	boots 3
	readonly_root
	printf '[root]\nram = 64M\n' >"$CONF"
	echo second >"$T/etc/trial"
	boots 4
}

# All copies of the superblock of the log
log_lost() {
	local size
	size=$(blockdev --getsize64 "$CARD")
	blockdev --setrw "$CARD"
	dd if=/dev/zero of="$CARD" bs=1M seek=60 count=$((size / 1048576 - 60)) oflag=direct status=none
}

@test "the protection on trial: a start that fails is an ordinary root at once" {
	formatted
	mount "$CARD" "$MNT"
	echo file >"$MNT/file"
	umount "$MNT"
	SUM=$(mount -o ro "$CARD" "$MNT" && tree_sum "$MNT" && umount "$MNT")
	# a configuration that cannot work
	echo nonsense >>"$CONF"
	boots 4
	[[ $stderr == *"neither [SECTION] nor KEY = VALUE; the protection is on trial"* ]]
	SUM=$(mount -o ro "$CARD" "$MNT" && tree_sum "$MNT" && umount "$MNT")
	writable ext4 "$SUM"
	printf '[root]\nram = 1G\ntrial = 2\nlog = /dev/none\n' >"$CONF"
	boots 4
	# no log
	printf '[root]\nram = 64M\ntrial = 2\n' >"$CONF"
	log_lost
	boots 4
	[[ $stderr == *"no cowfs log"* ]]
	cow prepare "$CARD"
	printf '[root]\nram = 1M\ntrial = 2\n' >"$CONF"
	boots 4
}

@test "the protection on trial: what exists in the log alone is not given up with it" {
	formatted
	boots 0
	random_file "$MNT/file" 1
	sync -f "$MNT"
	cow commit root
	power_cut
	log_lost
	boots 3
	[[ $stderr == *"its superblock is guarded by a log that is not here"* ]]
	readonly_root
}

@test "the protection on trial: the trial of a generation comes first" {
	formatted
	boots 0
	accepts
	cow commit root
	echo new >"$MNT/new"
	sync -f "$MNT"
	cow commit root --trial 1
	echo second >"$T/etc/trial"
	power_cut
	boots 0
	[[ $stderr == *"is ON TRIAL, 0 more boots"* ]]
	[[ $stderr != *"THE PROTECTION"* ]]
	[ -e "$MNT/new" ]
	power_cut
	boots 0
	[[ $stderr == *"BACK AT GENERATION"* ]]
	[ ! -e "$MNT/new" ]
	power_cut
	boots 0
	[[ $stderr == *"THE PROTECTION IS ON TRIAL, 1 more boot"* ]]
	detach_whole ext4
}

# bats test_tags=blunt
@test "the protection on trial: power cuts in each write of a boot" {
	local n sum cuts=0
	sed -i 's/^trial.*/trial = 10/' "$CONF"
	formatted
	boots 0
	random_file "$MNT/file" 1
	sync -f "$MNT"
	cow commit root
	sum=$(tree_sum "$MNT")
	power_cut
	for n in 1 2 3 4 5 6 7 8; do
		run env LD_PRELOAD="$COWFS_BUILD/tests/powercut.so" COWFS_CUT_AFTER=$n COWFS_CUT_SEED=$n COWFS_CUT_LOG="$T/cut" \
			timeout -k 5 "$COW_LIMIT" "$T/sbin/cowctl" boot --device "$CARD" --conf "$CONF" --cmdline ro
		echo "$n: $status $output"
		[ "$status" -le 128 ] || cuts=$((cuts + 1))
		clear_after_cut
	done
	say "$cuts boots were cut"
	[ $cuts -ge 4 ]
	boots 0
	[ "$(tree_sum "$MNT")" = "$sum" ]
	accepts
	detach_whole ext4
}
