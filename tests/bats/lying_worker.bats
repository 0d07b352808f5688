#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031,SC2154 # each test is a subshell; run sets status and output
# What a worker that was taken over says: root's commands act on what root knows.
# seconds: 90

load lib

# each command has a limit of its own
export BATS_TEST_TIMEOUT=$((900 + $(rounds 100) * 30))

setup() {
	cow_setup
	! ldd "$COWFS_BUILD/cowfs" | grep -Eq 'libasan|libtsan' || skip "its preload library comes first"
	LIAR=${COWFS_TEST_LIAR:-$COWFS_BUILD/tests/liar.so}
	# the honest card
	IMG=$T/other.img
	card_make ext4 60 100
	OTHER=$CARD
	fill "$OTHER" honest
	cow prepare "$OTHER"
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
	cow prepare "$CARD"
	mkdir "$T/other" "$T/view"
}

teardown() {
	[ ! -e "$T/number" ] || lies_at_random 0
	cow_teardown
}

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

@test "a worker that calls an ext4 an xfs: a checkpoint freezes nothing" {
	freeze_shim
	liar fs_type=xfs --name vol --checkpoint always
	mount_volume
	echo new >"$MNT/app/new"
	LD_PRELOAD=$FREEZE_SHIM cow commit --checkpoint vol
	LD_PRELOAD=$FREEZE_SHIM cow commit vol
	[ ! -e "$T/freezes" ]
}

# bats test_tags=blunt
@test "a worker that names another kind of file system: nothing is mounted but its volume" {
	local kind
	for kind in devtmpfs proc sysfs overlay vfat; do
		liar "fs_type=$kind" --name vol
		mount_volume
		echo "$kind" >"$MNT/app/new"
		run cow commit "$MNT/app"
		[ "$status" -ne 0 ]
		[ ! -e /dev/app ]
		run cow view vol "$T/view"
		[ "$status" -ne 0 ]
		run ! mountpoint -q "$T/view"
		# vfat is a kind that cowfs knows: what is said of it depends on the kernel
		run -1 cow diff vol
		[ "$kind" = vfat ] || [[ $output == *"the kernel does not support unknown"* ]]
		umount_volume
		cow detach --discard vol
	done
}

@test "a worker that names another card: mount.cowfs mounts that card's own volume" {
	liar "device=$OTHER" --name bad
	[ "$(NAME=bad status_of .device)" = "$CARD" ]
	"$COWFS_BUILD/mount.cowfs" "$OTHER" "$T/other"
	[ "$(cat "$T/other/which")" = honest ]
	[ ! -e "$T/other/app" ]
}

# bats test_tags=blunt
@test "a worker that names another volume's disk: revert, diff, commit PATH, umount.cowfs and udev take that of root" {
	attach_other
	liar "loop=$OTHER_DEV" --name avol
	cow revert --yes "$T/other/which"
	[ "$(cat "$T/other/which")" = honest ]
	echo changed >"$T/other/which"
	answer=$(cow diff "$T/other/which")
	grep -q which <<<"$answer"
	answer=$(cow commit "$T/other/which")
	grep -q '^zother' <<<"$answer"
	[ "$(systemd_helper which-device "${OTHER_DEV#/dev/}")" = volume ]
	[ "$(NAME=avol status_of .loop)" != "$OTHER_DEV" ]
	"$COWFS_BUILD/umount.cowfs" "$T/other"
	fails 4 'no volume is attached as zother' status zother
	cow detach --discard avol
}

systemd_helper() { "$COWFS_BUILD/../systemd/$1" "${@:2}" || true; }

# bats test_tags=blunt
@test "a worker that names a device of the machine: udev, wear, scrub and clone do not touch it" {
	local disk=$OTHER
	liar "device=$disk" --name vol
	[ "$(systemd_helper which-device "${disk#/dev/}")" = "" ]
	[ "$(systemd_helper which-device "${CARD#/dev/}")" = base ]
	[ "$(cow wear vol --json | jq -r .device)" = "$CARD" ]
	answer=$(cow scrub vol --json)
	jq -e --arg d "$CARD" '.device == $d' <<<"$answer"
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

lies_at_random() { # NUMBER; 0: the worker is honest
	printf '%-8s' "$1" | dd of="$T/number" conv=notrunc status=none
}

random_liar() { # COMMAND...: the worker that it starts lies from a number of lies_at_random on
	truncate -s 4096 "$T/number"
	lies_at_random 0
	COWFS_LIE=random COWFS_LIE_FILE=$T/number LD_PRELOAD=$LIAR "$@"
}

# It ends, and is not killed by a signal
ends() {
	COWFS_SILENCE=300ms run timeout -k 5 300 "$@" </dev/null
	[ "$status" -lt 124 ] || { echo "number $i: $* ended with $status: $output"; return 1; }
}

# bats test_tags=blunt
@test "a worker that answers at random: each command ends, and none crashes" {
	local i ctl=$COWFS_BUILD/cowctl target
	export COWFS_CONF=$T/conf
	printf '%s\n' '[vol]' "keep = $MNT/app" 'on-detach = discard' >"$COWFS_CONF"
	truncate -s 160M "$T/clone.img"
	loop_up "$T/clone.img"
	target=$LOOP
	random_liar attach --name vol
	mount_volume
	echo two >"$MNT/which"
	cow commit vol
	echo three >"$MNT/app/new"
	for i in $(seq "$(rounds 60)"); do
		lies_at_random "$i"
		ends "$ctl" status
		ends "$ctl" status vol --json
		ends "$ctl" wear vol
		# Python and jq take longer than all else here
		((i % 5)) || ends "$ctl" wear vol --html "$T/html"
		((i % 5)) || ends "$ctl" wear --prometheus "$T/prom"
		ends "$ctl" top vol
		ends "$ctl" commit vol --verbose
		ends "$ctl" commit --dry-run vol
		ends "$ctl" commit "$MNT/which"
		ends "$ctl" commit --kept vol
		ends "$ctl" commit --kept vol --timer
		ends "$ctl" commit --timer vol
		ends "$ctl" diff vol
		ends "$ctl" diff "$MNT/app"
		ends "$ctl" revert --yes "$MNT/which"
		ends "$ctl" view vol "$T/view"
		umount -q "$T/view" || true
		ends "$ctl" view --now vol "$T/view"
		umount -q "$T/view" || true
		ends "$ctl" clone --yes vol "$target"
		ends "$ctl" scrub vol --yes
		ends "$ctl" trim vol
		ends "$ctl" inhibit vol
		ends "$ctl" undo vol
		ends "$ctl" accept vol
		ends "$ctl" config vol
		ends setpriv --reuid 65534 --regid 65534 --clear-groups "$ctl" status
		ends "$COWFS_BUILD/mount.cowfs" "$CARD" "$T/other"
		ends "$COWFS_BUILD/umount.cowfs" "$T/other"
		run ! mountpoint -q "$T/other"
		ends "$TOP/systemd/which-device" "${DEV#/dev/}"
		[ "$output" = volume ]
		ends "$TOP/systemd/which-device" "${CARD#/dev/}"
		[ "$output" = base ]
	done
	lies_at_random 0
	[ "$(cat "$MNT/which")" = two ]
	run cow undo vol --cancel
	umount_volume
	cow detach --discard vol
}

@test "a worker that answers at random from its first word on: mount, umount and detach end, and none crashes" {
	local i
	for i in $(seq "$(rounds 8)"); do
		random_liar true
		lies_at_random "$i"
		COWFS_LIE=random COWFS_LIE_FILE=$T/number LD_PRELOAD=$LIAR \
			ends "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" -o name=vol
		! mountpoint -q "$MNT" || [ "$(cat "$MNT/which")" = stolen ]
		mountpoint -q "$MNT" || mount "$(loop_of_vol)" "$MNT" || true
		ends "$COWFS_BUILD/umount.cowfs" "$MNT"
		ends "$COWFS_BUILD/cowctl" detach vol
		lies_at_random 0
		umount -iq "$MNT" || true
		[ -z "$(daemons)" ] || cow detach --discard vol || true # it may be about to end
		wait_for 20 no_daemons
	done
}

loop_of_vol() { sed -n 's/^loop [^ ]* [^ ]* //p' "$COWFS_RUNDIR/vol/facts"; }

# As the unit does it, which waits for it without a limit
exec_stop() { # NAME
	local line
	line=$(sed -n '/^ExecStop=/,/[^\\]$/p' "$COWFS_BUILD/../systemd/cowfs@.service" | sed 's/^ExecStop=-//; s/\\$//' | tr -d '\n')
	line=${line//\/usr\/sbin\/cowctl/$COWFS_BUILD/cowctl}
	line=${line//'$$'/'$'}
	eval "${line//%i/$1}"
}

stops() { # HOW: ends after a client has waited for its answer three times, and once more
	COWFS_SILENCE=300ms run timeout -k 5 300 bash -c "$(declare -f exec_stop); COWFS_BUILD=$COWFS_BUILD exec_stop vol"
	echo "$1: $status: $output"
	[ "$status" -lt 124 ]
	[[ $output == *"does not answer"* ]]
}

@test "the unit of a volume stops although its worker is stopped" {
	attach --name vol
	kill -STOP "$(cat "$COWFS_RUNDIR/vol/pid")"
	stops stopped
	kill -CONT "$(cat "$COWFS_RUNDIR/vol/pid")"
	cow detach vol
}

@test "the unit of a volume stops although its worker never answers" {
	[ -z "${COWFS_TURN-}" ] || skip "in the second circle"
	COWFS_LIE=mute LD_PRELOAD=$LIAR attach --name vol
	stops mute
	kill -9 "$(cat "$COWFS_RUNDIR/vol/pid")"
	run cow status
}

# Before, each of these waited 30 s or more for it.
@test "a volume that never answers keeps no other one waiting" {
	local begin
	COWFS_LIE=mute LD_PRELOAD=$LIAR attach --name avol
	attach_other
	begin=$SECONDS
	run "$COWFS_BUILD/cowctl" status
	[ "$status" -ne 0 ]
	[[ $output == *"the daemon of volume avol does not answer"* ]]
	[[ $output == *"zother"*"generation"* ]]
	[ $((SECONDS - begin)) -lt 28 ]
	run "$COWFS_BUILD/cowctl" shutdown --within 60s
	echo "$status: $output"
	[ "$status" = 1 ]
	[[ $output == *"zother: everything is on the card, generation 1"* ]]
	[[ $output == *"avol: the daemon of volume avol does not answer"* ]]
	kill -9 "$(cat "$COWFS_RUNDIR/avol/pid")"
	run cow status
}

@test "a volume whose next worker does not begin keeps no other one waiting" {
	local begin worker spare
	attach --name avol --on-crash replace
	attach_other
	worker=$(cat "$COWFS_RUNDIR/avol/pid")
	spare=$(pgrep -P "$(sed -n 's/^supervisor //p' "$COWFS_RUNDIR/avol/facts")" | grep -vx "$worker")
	kill -STOP "$spare"
	kill -9 "$worker"
	begin=$SECONDS
	cow commit zother
	cow status --brief
	run "$COWFS_BUILD/cowctl" status
	echo "$status: $output"
	[[ $output == *"the daemon of volume avol does not answer: its worker is being replaced"* ]]
	[[ $output == *"zother"*"generation"* ]]
	[ $((SECONDS - begin)) -lt 28 ]
	kill -CONT "$spare"
	cow detach avol
}

@test "a worker that reports progress for ever: a command that is no job ends, and the unit of the volume stops" {
	COWFS_LIE=progress COWFS_SILENCE=300ms LD_PRELOAD=$LIAR "$COWFS_BUILD/cowctl" attach --name vol "$CARD" >/dev/null || true
	wait_for 10 test -S "$COWFS_RUNDIR/vol/control"
	COW_LIMIT=300 COWFS_SILENCE=300ms fails 1 'does not answer' status vol
	stops progress
	kill -9 "$(cat "$COWFS_RUNDIR/vol/pid")"
	run cow status
}
