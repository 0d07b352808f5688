#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowfs-recover, one static file, for a card in a machine that has no cowfs.
# turn: 3

load lib

# It runs in a root that has the file, /dev, /proc and /sys alone.
setup() {
	cow_setup || return
	[ -x "$COWFS_BUILD/cowfs-recover" ] || make -C "$BATS_TEST_DIRNAME/../.." -s recover-static B="$COWFS_BUILD" || return
	R=$T/root
	mkdir -p "$R"/{dev,proc,sys,view}
	cp "$COWFS_BUILD/cowfs-recover" "$R/cowfs-recover"
	mount --rbind /dev "$R/dev"
	mount --make-rslave "$R/dev"
	mount -t proc proc "$R/proc"
	mount --rbind /sys "$R/sys"
	mount --make-rslave "$R/sys"
}

teardown() {
	! mountpoint -q "$R/view" || timeout 300 umount "$R/view"
	umount "$R/proc"
	umount -R -l "$R/dev" "$R/sys"
	cow_teardown
}

rec() { timeout -k 5 300 chroot "$R" /cowfs-recover "$@"; }

# It is a plain file system with the newest generation.
is_whole() {
	e2fsck -fn "$CARD"
	mount "$CARD" "$MNT"
	findmnt -no OPTIONS "$MNT" | grep -qw rw
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	umount "$MNT"
	[ "$(cow check --json "$CARD" | jq .guarded)" = false ]
}

@test "cowfs-recover: check, view and release of a cut card, in an empty root" {
	local before
	cut_card 2 ext4
	before=$(image_sum)
	run -0 rec check "$CARD"
	[[ $output == *"live: the newest generation is complete"* ]]
	[[ $output == *"'cowfs-recover release' checkpoints them"* ]]
	[[ $output == *"cowfs-recover view $CARD DIR"* ]]
	[[ $output != *cowctl* ]]
	rec check --json "$CARD" | jq -e '.log_state == "live" and .guarded'
	run -0 rec view "$CARD" /view
	[ "$(cat "$R/view/two")" = two ]
	[ "$(tree_sum "$R/view")" = "$SUM" ]
	run ! touch "$R/view/new"
	run -1 rec release "$CARD" # while the view uses it
	timeout 300 umount "$R/view"
	wait_for 10 no_daemons
	[ "$(image_sum)" = "$before" ]
	run -0 rec release "$CARD"
	[[ $output == *"is checkpointed and the log is retired"* ]]
	is_whole
	run -0 rec release "$CARD"
	[[ $output == *"nothing to do"* ]]
}

@test "cowfs-recover: killed at any moment of release, and started again" {
	local before ms=0 pid code=137 middle=0 times=0
	cut_card 2 ext4
	cp --sparse=always "$IMG" "$T/cut"
	before=$(image_sum)
	# later and later, until one ends before it is killed; anew if none was killed between two writes
	while [ "$code" = 137 ] || [ $middle = 0 ]; do
		[ $((++times)) -le 200 ]
		[ "$code" = 137 ] || ms=0
		ms=$((ms + 2 + ms / 4)) code=0
		dd if="$T/cut" of="$CARD" bs=1M conv=fsync status=none
		chroot "$R" /cowfs-recover release "$CARD" >/dev/null 2>&1 &
		pid=$!
		sleep "$((ms / 1000)).$(printf '%03d' $((ms % 1000)))"
		kill -9 "$pid" 2>/dev/null || :
		wait "$pid" || code=$?
		[ "$code" = 0 ] || [ "$code" = 137 ]
		[ "$code" = 0 ] || [ "$(cksum <"$CARD" | tr ' ' -)" = "$before" ] || middle=$((middle + 1))
		run -0 rec release "$CARD"
		is_whole
	done
	echo "$middle killed after the first write, the last at $ms ms"
}

@test "cowfs-recover: clear errors" {
	local c
	run -2 --separate-stderr rec
	[[ $stderr == "usage: cowfs-recover "* ]]
	run -0 rec --version
	[[ $output == "cowfs "[0-9]* ]]
	run -2 --separate-stderr rec prepare /dev/null
	[[ $stderr == "cowfs-recover: prepare: not in cowfs-recover, only in cowctl" ]]
	for c in check release view; do
		run -0 rec "$c" --help
		[[ $output == "usage: cowfs-recover $c "* ]]
		run -2 rec "$c"
		run -2 rec "$c" --no-such-option /dev/null
	done
	run -1 --separate-stderr rec check /dev/none
	[[ $stderr == "cowfs-recover: /dev/none: No such file"* ]]
	card_make ext4 50 60
	for c in check release; do
		run -1 --separate-stderr rec "$c" "$CARD"
		[[ $stderr == "cowfs-recover: $CARD: no cowfs log"* ]]
		run -1 --separate-stderr timeout 300 chroot --userspec=65534:65534 "$R" /cowfs-recover "$c" "$CARD"
		[[ $stderr == "cowfs-recover: $CARD: Permission denied"* ]]
	done
	run -1 --separate-stderr rec view "$CARD" /view
	[[ $stderr == "cowfs-recover: $CARD: no cowfs log"* ]]
	run -1 --separate-stderr timeout 300 chroot --userspec=65534:65534 "$R" /cowfs-recover view "$CARD" /view
	[[ $stderr == "cowfs-recover: $CARD: only root may mount a view" ]]
}

@test "cowfs-recover: a kernel without FUSE is named" {
	cut_card 2 ext4
	mkdir "$R/few"
	mount -t tmpfs few "$R/few"
	cp -a "$CARD" "$R/few/"
	umount -R -l "$R/dev"
	mount --bind "$R/few" "$R/dev"
	run -1 --separate-stderr rec view "$CARD" /view
	umount "$R/dev" "$R/few"
	[[ $stderr == *"the kernel has no FUSE (/dev/fuse): run modprobe fuse"* ]]
}
