#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A generation is held while a root commits every hour: what fills, when it warns, what is refused, and both ways out.
#
#	WEEKS=3	so long, on a card of 1 GiB with a log of usual size; otherwise until a small log is full
#	SEED=1	of what changes
# seconds: 20

[ -z "${WEEKS-}" ] || export BATS_TEST_TIMEOUT=1800
load lib

SEED=${SEED:-1}

# $SHADOW gets the same without cowfs.
hour() { "$BATS_TEST_DIRNAME/root_hour.py" "$SEED" "$1" "$MNT/root" "$SHADOW"; }

in_view() { # [OPTION]...: tree_sum of a view
	cow view vol "$T/view" "$@" >/dev/null
	tree_sum "$T/view/root"
	timeout 300 umount "$T/view"
}

# Each block of the volume comes from RAM or the card again.
all_is_whole() {
	[ "$(in_view --generation held)" = "$SUM" ]
	[ "$(status_of .held.generation)" = "$HELD" ]
	umount_volume
	mount_volume
	[ "$(tree_sum "$MNT/root")" = "$(tree_sum "$SHADOW")" ]
}

cut_and_attach() {
	power_cut
	attach_mounted --ram 64M
}

# Commits of each hour from the first on until one is refused: N, which is also that hour; $output has the answer.
hours_until_refused() {
	local warned='' room low
	for ((N = 1; ; N++)); do
		hour "$N"
		run cow commit --timer
		[ "$status" = 0 ] || return 0
		read -r room low < <(status_of '"\(.log_room_blocks) \(.held.log_low)"')
		[[ $output != *"nothing to commit"* ]] || continue # RAM pressure has committed all of this hour
		if [ -z "$warned" ] && [ $((room * 4)) -lt "$CAPACITY" ]; then
			warned=$N
			figure "$(tail -1 <<<"$output")"
			warns_everywhere
		elif [ -z "$warned" ]; then
			[[ $output != *"of the log are left"* ]]
			[ "$low" = false ]
		fi
		case $N in
		10 | *00)
			all_is_whole
			figure
			;;
		12 | *50)
			cut_and_attach
			all_is_whole
			;;
		esac
	done
}

figure() { say "$(printf 'hour %3d, %5.1f MiB left' "$N" "$(status_of '.log_room_blocks / 256')")${1:+: $1}"; }

warns_everywhere() {
	[[ $output == *"of the log are left for commits while generation $HELD is held: cowctl accept, or cowctl undo"* ]]
	run -0 cow status
	[[ $output == *"LOG NEARLY FULL: "*" are left for commits while it is held"* ]]
	wait_for 60 is_in_brief "vol: LOG NEARLY FULL: .* are left for commits while generation $HELD is held: cowctl accept, or cowctl undo"
	wait_for 60 grep -q "^vol log-room low .* while generation $HELD is held" "$T/events"
}

is_in_brief() { { answer=$(cow status --brief) || [ $? = 3 ]; } && grep -q "$1" <<<"$answer"; }

# The card $1 alone has this tree, and is clean.
is_alone() { # FILE TREE
	loop_up "$1"
	fsck ext4 "$LOOP"
	mount -o ro "$LOOP" "$MNT"
	[ "$(tree_sum "$MNT/root")" = "$2" ]
	umount "$MNT"
	loop_down "$LOOP"
}

@test "hold: hourly commits until the log is full, and both ways out" {
	local newest before weeks_end n
	echo "SEED=$SEED"
	mkdir "$T/view" "$T/shadow"
	mount -t tmpfs shadow "$T/shadow"
	SHADOW=$T/shadow
	if [ "${WEEKS-}" ]; then
		card_prepared ext4 900 1024
	else
		card_prepared ext4 100 150 -- --log-size 4M --erase-block 512K
	fi
	attach_mounted --ram 64M
	CAPACITY=$(status_of .log_capacity_blocks)
	background "$COWFS_BUILD/cowctl" status --follow >"$T/events"
	mkdir "$MNT/root"
	hour 0
	cow commit --hold
	SUM=$(tree_sum "$SHADOW")
	HELD=$(status_of .held.generation)
	N=0
	figure "held"

	# full: nothing is written, everything stays in RAM, also for the rest of the weeks
	hours_until_refused
	figure "${output#*cowctl: }"
	[ "$status" = 1 ]
	[[ $output == *"not committed: the log has no room for this commit while generation $HELD is held: "*" needed, "*" available; everything stays in RAM. cowctl accept ends the hold, and cowctl undo goes back to that generation" ]]
	cp --sparse=always "$IMG" "$T/back.img"
	newest=$(in_view) # RAM pressure may have committed a part of this hour
	before=$(card_written)
	fails 1 "no room for this commit while generation $HELD is held" commit
	fails 1 "nothing is checkpointed" commit --checkpoint
	[ "$(card_written)" = "$before" ]
	run -3 cow status
	weeks_end=$((${WEEKS:-0} * 168))
	for ((n = N + 1; n <= weeks_end || n <= N + 2; n++)); do
		hour $n
		run -1 cow commit --timer
	done
	N=$((n - 1))
	figure "$(status_of '"\(.dirty_blocks / 256 * 10 | floor / 10) MiB in RAM, pressure: \(.pressure.level), writes that failed: \(.write_errors)"')"
	all_is_whole

	# forward
	cow accept
	figure "accepted, pressure: $(status_of .pressure.level)"
	[ "$(status_of .held)" = null ]
	wait_for 60 grep -q "^vol log-room ok" "$T/events"
	weeks_end=$((N + (WEEKS ? 24 : 4)))
	for ((; n <= weeks_end; n++)); do
		cow commit --timer
		hour $n
	done
	cow commit
	N=$((n - 1))
	figure "goes on"
	cut_and_attach
	[ "$(tree_sum "$MNT/root")" = "$(tree_sum "$SHADOW")" ]
	detach
	is_alone "$IMG" "$(tree_sum "$SHADOW")"
	loop_down "$CARD"

	# the full card goes through three more sessions, whose changes no commit takes; then back, and forward
	IMG=$T/back.img
	card_loop
	for n in 1 2 3; do
		attach_mounted --ram 64M
		[ "$(tree_sum "$MNT/root")" = "$newest" ]
		[ "$(in_view --generation held)" = "$SUM" ]
		dd if=/dev/urandom of="$MNT/root/var/lib/db" bs=4096 count=60 conv=notrunc,fsync status=none
		run -1 cow commit
		newest=$(in_view)
		power_cut
	done
	cp --sparse=always "$IMG" "$T/forward.img"
	cow accept "$T/forward.img"
	cow release "$T/forward.img"
	is_alone "$T/forward.img" "$newest"
	cow undo "$CARD"
	attach_mounted
	[ "$(tree_sum "$MNT/root")" = "$SUM" ]
	[ "$(status_of .undone.generation)" = "$HELD" ]
	cow commit --checkpoint
	echo more >"$MNT/root/more"
	cow commit
	detach_whole ext4
}
