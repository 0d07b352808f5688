#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031,SC2034,SC2154 # each test is a subshell; run sets status, output and stderr; IMG, NAME: lib.bash
# What an ordinary user tries (as nobody): FUSE mounts that claim to be the volume, writes that never end. And what is left when
# something dies or fails.
# alone: its tasks that are stuck in io_uring or a core dump do not show to which file system they write
# bats file_tags=commands

load lib

setup() {
	cow_setup || return
	export TMPDIR=$T
	mkdir "$T/fusectl" # shared by all tests of this machine: only what CONNS names is touched
	mount -t fusectl none "$T/fusectl"
}

# A task that sleeps in FUSE dies only when its connection is aborted.
teardown() {
	local conn
	[ ! -e "${T-}/conns" ] || while read -r conn; do
		echo 1 2>/dev/null >"$T/fusectl/$conn/abort" || true
	done <"$T/conns"
	cow_teardown
}

protect() {
	card_make "${1:-ext4}" "${2:-200}" "${3:-250}"
	cow format "$CARD"
	attach
	mount_volume
	chmod 1777 "$MNT"
}

# A FUSE mount of nobody's on folder $1 that says it is $2.
fake() {
	background "$COWFS_BUILD/tests/fusehang" mount "$1" "$2" >"$T/ready"
	wait_for 10 grep -q ready "$T/ready"
	grep -q " $1 .* - fuse $2 " /proc/self/mountinfo
}

asleep() { [[ $(cat "/proc/$1/stat") == *") "[SD]" "* ]] && grep -qv running "/proc/$1/syscall"; }

# nobody hangs in a call on file $1 of the volume: hold FILE HOW [ARGUMENT]
hold() {
	background "$COWFS_BUILD/tests/fusehang" hold "$@" >"$T/hold"
	HELD=$BG
	wait_for 10 grep -q ready "$T/hold"
	awk '{ print $2 }' "$T/hold" >>"$T/conns"
	wait_for 5 asleep "$HELD"
	sleep 0.2
	[ "$(stat -c %u "/proc/$HELD")" = 65534 ]
}

let_go() {
	local conn
	conn=$(tail -n 1 "$T/conns")
	echo 1 >"$T/fusectl/$conn/abort"
	wait "$HELD"
}

# root writes to the volume, within a second
can_write() { timeout 1 sh -c "echo $RANDOM >'$MNT/root-$RANDOM'"; }

seconds_of() { date +%s.%N; }

# ---- mounts ----

@test "a FUSE mount that calls itself by the volume's loop device: commit, umount and detach go by device numbers" {
	card_make ext4 100 150
	cow format "$CARD"
	attach
	mkdir "$T/fake" "$T/fake2"
	fake "$T/fake" "$DEV"
	mount_volume
	fake "$T/fake2" "$DEV"
	echo one >"$MNT/one"
	run -0 cow commit --json
	jq -e '.quiesce.mounted and .quiesce.frozen' <<<"$output"
	[ "$(status_of .mountpoint)" = "$MNT" ]
	echo two >"$MNT/two"
	# what looks like a volume is not unmounted either, and nothing was done is said
	run -32 "$COWFS_BUILD/umount.cowfs" "$T/fake"
	[[ $output == *"is not mounted"* ]]
	run -0 "$COWFS_BUILD/umount.cowfs" "$MNT"
	[[ $output != *"stays attached"* ]]
	wait_for 20 no_daemons
	fsck ext4
	mount -o ro "$CARD" "$MNT"
	[ "$(cat "$MNT/one" "$MNT/two")" = $'one\ntwo' ]
	umount "$MNT"
	umount "$T/fake" "$T/fake2"
}

@test "a FUSE mount over the volume's own root: commits go on" {
	protect
	chown nobody "$MNT"
	echo one >"$MNT/one"
	fake "$MNT" "$DEV"
	run -0 cow commit --json
	jq -e '.quiesce.mounted and .quiesce.frozen' <<<"$output"
	# a detach that does not happen says so
	fails 1 'is (mounted|in use)' detach
	run -32 "$COWFS_BUILD/umount.cowfs" "$MNT"
	umount "$MNT"
	[ "$(cat "$MNT/one")" = one ]
	detach
	fsck ext4
}

@test "a bind mount of a file is left when the volume is unmounted: commits go on" {
	protect
	echo one >"$MNT/a file"
	touch "$T/left"
	mount --bind "$MNT/a file" "$T/left"
	umount_volume
	echo two >>"$T/left"
	run -0 cow commit --json
	jq -e '.quiesce.mounted and .quiesce.frozen' <<<"$output"
	fails 1 "is mounted on $T/left" detach
	power_cut_left
	attach
	mount_volume
	[ "$(cat "$MNT/a file")" = $'one\ntwo' ]
	detach
	fsck ext4
}

power_cut_left() {
	kill -9 "$(worker_pid)"
	wait_for 20 no_daemons
	umount "$T/left"
	volume_gone "$DEV" || losetup -d "$DEV"
	wait_for 20 volume_gone "$DEV"
}

@test "a user keeps a copy of the mount in a namespace of his own: commits go on, and the process is named" {
	local fs keeper
	for fs in ext4 xfs btrfs; do
		command -v "mkfs.$fs" || continue
		if [ "$fs" = ext4 ]; then protect; else protect "$fs" 320 400; fi
		background setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Urm --propagation private sleep 1000
		keeper=$BG
		wait_for 20 grep -qs "^sleep" "/proc/$keeper/comm"
		[ "$(stat -c %u "/proc/$keeper")" = 65534 ]
		grep -q " $MNT " "/proc/$keeper/mountinfo"
		echo one >"$MNT/one"
		umount_volume
		run -0 cow commit --json
		jq -e '.quiesce | .mounted and .frozen and .hidden' <<<"$output"
		# the numbers of btrfs are its own
		[ "$fs" = btrfs ] || jq -e --arg holder "sleep[$keeper]" '.quiesce.holder == $holder' <<<"$output"
		# mounted again it is the same file system
		mount_volume
		[ "$(cat "$MNT/one")" = one ]
		echo two >"$MNT/two"
		umount_volume
		run -0 --separate-stderr cow shutdown --json
		jq -e '.ok and .quiesce.frozen and .quiesce.hidden' <<<"$output"
		fails 1 "is in use by .*: stop that first" detach
		[ "$fs" = btrfs ] || [[ $stderr == *"by sleep[$keeper]:"* ]]
		kill "$keeper"
		wait "$keeper" || true
		wait_for 20 cow detach vol
		wait_for 20 no_daemons
		fsck "$fs"
		mount -o ro "$CARD" "$MNT"
		[ "$(cat "$MNT/one" "$MNT/two")" = $'one\ntwo' ]
		umount "$MNT"
		loop_down "$CARD"
		IMG=''
	done
}

@test "a FUSE mount that does not answer, above the mount point: neither commit nor status waits for it" {
	local above=$T/above fs
	for fs in ext4 btrfs; do
		command -v "mkfs.$fs" || continue
		mkdir -p "$above/mnt"
		MNT=$above/mnt
		if [ "$fs" = ext4 ]; then protect; else protect "$fs" 320 400; fi
		echo one >"$MNT/one"
		# everybody may use it, so root would ask it what is in it
		background "$COWFS_BUILD/tests/fusehang" mount "$above" theirs 65534 >"$T/ready"
		wait_for 10 grep -q ready "$T/ready"
		kill -STOP "$BG"
		run -0 cow commit --json
		jq -e '.quiesce | .mounted and .frozen' <<<"$output"
		run -0 cow status
		kill -CONT "$BG"
		umount "$above"
		wait "$BG"
		echo two >"$MNT/two"
		detach
		fsck "$fs"
		loop_down "$CARD"
		IMG=''
	done
}

# ---- writes that do not end ----

@test "a write from a mapping that never comes: commit says who, and nobody else waits" {
	local start how core=''
	protect
	# a core dump holds the file system from its first page on
	[ "$(cat /proc/sys/kernel/core_pattern)" = core ] && core=core
	for how in write writev write32 uring $core; do
		hold "$MNT/hostile-$how" "$how"
		can_write
		start=$SECONDS
		fails 1 "stuck in a write to the file system.*nothing was written" commit
		[[ $stderr == *"[$HELD]"* ]]
		[ $((SECONDS - start)) -le 15 ] # not the 30 s of a freeze
		can_write
		[ "$(status_of .last.quiesce.frozen)" = false ]
		fails 1 "\\[$HELD\\]" commit --json
		can_write
		let_go || [ "$how" = core ]
		# and it recovers by itself
		run -0 cow commit --timer
		[[ $output == *"as generation "* ]]
		[ "$(status_of .alarm)" = "" ]
	done
	detach
	fsck ext4
}

@test "a folder read into a mapping that never comes: who waits for its lock does not hold a freeze" {
	protect
	mkdir -m 1777 "$MNT/d"
	hold "$MNT/d" getdents
	# it writes nothing itself
	run -0 cow commit --json
	jq -e '.quiesce.frozen and .quiesce.freeze_seconds < 1 and .quiesce.aborted_connections == 0' <<<"$output"
	background touch "$MNT/d/x"
	sleep 0.5
	kill -0 "$BG"
	echo x >"$MNT/other" # a commit without changes freezes nothing
	run -0 cow commit --json
	jq -e '.quiesce.frozen and .quiesce.freeze_seconds < 5 and .quiesce.aborted_connections == 1' <<<"$output"
	wait "$BG"
	wait "$HELD"
	[ -e "$MNT/d/x" ]
	detach
	fsck ext4
}

@test "a write that hangs when the freeze has begun: its FUSE connection is aborted, and the commit goes on" {
	protect
	# it answers until the freeze waits for it; sometimes the freeze is faster
	hold "$MNT/hostile" race
	for _ in 1 2 3 4 5 6 7 8; do
		run -0 cow commit --json
		can_write
		jq -e '.quiesce.frozen and .quiesce.freeze_seconds < 5' <<<"$output"
		jq -e '.quiesce.aborted_connections == 0' <<<"$output" || break
	done
	jq -e '.quiesce.aborted_connections == 1' <<<"$output"
	jq -e --arg pid "[$HELD]" '.quiesce.culprit | endswith($pid)' <<<"$output"
	can_write
	wait "$HELD"
	detach
	fsck ext4
}

@test "shutdown and a timer that fails for long: sealed without a freeze, and whole after a power cut" {
	local fs
	for fs in ext4 xfs; do
		[ $fs = xfs ] && ! command -v mkfs.xfs && continue
		if [ $fs = xfs ]; then COWFS_UNFROZEN_AFTER=1s protect xfs 320 400; else COWFS_UNFROZEN_AFTER=1s protect ext4; fi
		mkdir "$MNT/d"
		rm -f "$T/synced"
		cow commit
		hold "$MNT/hostile" write
		background stress
		wait_for 30 test -s "$T/synced"
		fails 1 "stuck in a write" commit
		for _ in 1 2 3 4; do # by pressure, which waits for nobody, some may have been tried as well
			cp "$T/synced" "$T/before"
			run cow commit --timer
			echo "$output"
			[ "$status" = 1 ] || break
		done
		[ "$status" = 0 ]
		[[ $output == *"sealed without a freeze"*"[$HELD]"* ]]
		[[ $(status_of .alarm) == *"sealed without a freeze"* ]]
		[ "$(status_of .last.quiesce.unfrozen)" = true ]
		kill "$BG"
		wait "$BG" || true
		power_cut_held
		cow check "$CARD" | grep 'without a freeze'
		[ "$(cow check --json "$CARD" | jq .unfrozen)" = true ]
		whole "$fs" "$T/before"
		# at shutdown, at once; after a commit of the image whose journal was replayed
		attach
		mount_volume
		cow commit
		rm "$T/synced" # what came after the seal is gone
		hold "$MNT/hostile2" write
		background stress
		wait_for 30 test -s "$T/synced"
		cp "$T/synced" "$T/before"
		run cow shutdown
		echo "$output"
		[ "$status" = 0 ]
		[[ $output == *"sealed without a freeze"* ]]
		kill "$BG"
		wait "$BG" || true
		power_cut_held
		whole "$fs" "$T/before"
		attach
		mount_volume
		cow commit
		[ "$(status_of .last.quiesce.frozen)" = true ]
		detach
		fsck $fs
		loop_down "$CARD"
		IMG=''
	done
}

# Small files, each on stable storage when its name is in the list.
stress() {
	exec python3 - "$MNT/d" "$T/synced" <<-'END'
	import os, sys, hashlib
	n = 0
	while True:
	    name, data = f"{n}-{os.getpid()}", os.urandom(100 + n * 977 % 30000)
	    for path in (f"{sys.argv[1]}/{name}", f"{sys.argv[1]}/churn{n % 20}"):
	        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
	        os.write(fd, data)
	        os.fsync(fd)
	        os.close(fd)
	    dirfd = os.open(sys.argv[1], os.O_RDONLY)
	    os.fsync(dirfd)
	    os.close(dirfd)
	    with open(sys.argv[2], "a") as f:
	        f.write(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
	    n += 1
	END
}

# The journal is replayed, by an attach and a mount; what was in the list is there.
whole() {
	attach
	[ "$1" = xfs ] || dumpe2fs -h "$DEV" 2>/dev/null | grep -q needs_recovery
	mount_volume
	(cd "$MNT/d" && sha256sum --quiet -c "$2")
	umount_volume
	fsck "$1" "$DEV"
	cow detach vol --discard
	wait_for 20 no_daemons
}

power_cut_held() {
	kill -9 "$(worker_pid)"
	wait_for 20 no_daemons
	let_go || true
	timeout 60 umount "$MNT"
	volume_gone "$DEV" || losetup -d "$DEV"
	wait_for 20 volume_gone "$DEV"
}

@test "writes that hang in many threads of a process with many mappings: found in time, and cured" {
	local start
	protect
	random_file "$MNT/big" 40
	cow commit
	start=$SECONDS
	hold "$MNT/hostile" threads
	fails 1 "stuck in a write to the file system.*nothing was written" commit
	[[ $stderr == *"[$HELD]"* ]]
	[ $((SECONDS - start)) -le 15 ]
	can_write
	# with a cure: more than a commit without a freeze can hold
	dd if=/dev/urandom of="$MNT/big" bs=1M count=40 conv=notrunc status=none
	run -0 --separate-stderr cow shutdown --json
	jq -e '.ok and .quiesce.frozen and (.quiesce.unfrozen | not) and .quiesce.aborted_connections == 1' <<<"$output"
	wait "$HELD"
	power_cut
	fsck ext4
}

@test "a write whose source is mapped away while it hangs: found, and ended" {
	protect
	hold "$MNT/hostile" remap
	wait_for 5 remapped
	fails 1 "\\[$HELD\\].*stuck in a write to the file system" commit
	can_write
	random_file "$MNT/big" 40
	let_go || true # the call goes on with what is there now
	cow commit
	# with a cure
	hold "$MNT/hostile2" remap
	wait_for 5 remapped
	dd if=/dev/urandom of="$MNT/big" bs=1M count=40 conv=notrunc status=none
	run -0 --separate-stderr cow shutdown --json
	jq -e '.ok and .quiesce.frozen and .quiesce.aborted_connections == 1' <<<"$output"
	wait "$HELD" || true
	power_cut
	fsck ext4
}

remapped() { ! grep -q "/page$" "/proc/$HELD/maps"; }

@test "a write from pages of two FUSE mounts: that of another user lives on" {
	local victim
	protect
	mkdir "$T/victim"
	background "$COWFS_BUILD/tests/fusehang" mount "$T/victim" theirs 1 >"$T/ready"
	wait_for 10 grep -q ready "$T/ready"
	random_file "$MNT/big" 40
	cow commit
	hold "$MNT/hostile" beside "$T/victim/page"
	[ "$(grep -c "/page$" "/proc/$HELD/maps")" -ge 2 ]
	fails 1 "\\[$HELD\\].*stuck in a write to the file system" commit
	dd if=/dev/urandom of="$MNT/big" bs=1M count=40 conv=notrunc status=none
	run -0 --separate-stderr cow shutdown --json
	jq -e '.ok and .quiesce.frozen and .quiesce.aborted_connections == 1' <<<"$output"
	wait "$HELD" || true # half of it was written
	# a page that nobody has read yet
	dd if="$T/victim/page" bs=4k skip=1000 count=1 status=none | cmp - <(head -c 4096 /dev/zero)
	umount "$T/victim"
	power_cut
	fsck ext4
}

@test "a task that waits for completions of io_uring is in nobody's way" {
	protect
	background "$COWFS_BUILD/tests/fusehang" hold "$MNT/harmless" waiter >"$T/hold"
	HELD=$BG
	wait_for 10 grep -q ready "$T/hold"
	awk '{ print $2 }' "$T/hold" >>"$T/conns"
	wait_for 5 waits_for_completions
	for _ in 1 2; do
		echo x >>"$MNT/other" # a commit without changes freezes nothing
		run -0 cow commit --json
		jq -e '.quiesce.frozen and .quiesce.freeze_seconds < 2 and .quiesce.culprit == "" and .quiesce.aborted_connections == 0' <<<"$output"
		sleep 0.5
	done
	waits_for_completions
	kill "$HELD"
	wait "$HELD" || true
	detach
	fsck ext4
}

waits_for_completions() { cat /proc/"$HELD"/task/*/wchan | grep -q io_cqring; }

# ---- what is left ----

@test "a daemon that died: status cleans up after it, events reports it" {
	protect
	echo one >"$MNT/one"
	kill -9 "$(worker_pid)"
	wait_for 20 no_daemons
	run -0 cow events --once
	[[ $output == "vol died its daemon died: uncommitted changes are lost; $DEV returns I/O errors and is still mounted on $MNT"* ]]
	run -0 setpriv --reuid 65534 --regid 65534 --clear-groups "$COWFS_BUILD/cowctl" events --once
	[[ $output == "vol died "* ]]
	# it is in use: nothing is touched
	run -4 --separate-stderr cow status vol
	[[ $stderr == *"$DEV returns I/O errors and is still mounted on $MNT: unmount it"* ]]
	[ -d "$COWFS_RUNDIR/vol" ]
	timeout 60 umount "$MNT"
	run -4 --separate-stderr cow status
	[[ $stderr == *"$DEV is detached now; $CARD is still read-only: cowctl attach, or blockdev --setrw"* ]]
	wait_for 20 volume_gone "$DEV"
	[ ! -e "$COWFS_RUNDIR/vol" ]
	run -0 cow events --once
	[ "$output" = "" ]
	# attach does the same, and a number that belongs to somebody else is left alone
	attach
	kill -9 "$(worker_pid)"
	wait_for 20 no_daemons
	run -0 --separate-stderr cow attach "$CARD" --name again
	[[ $stderr == *"volume vol: its daemon died"*"$DEV is detached now"* ]]
	DEV=$output NAME=again
	echo "$DEV $(loop_backing "$DEV")" >>"$T/volumes"
	[ ! -e "$COWFS_RUNDIR/vol" ]
	detach
}

@test "a card that stays writable after a commit raises an alarm until it is read-only again" {
	card_make ext4 100 150
	cow format "$CARD"
	with_shim attach
	mount_volume
	echo one >"$MNT/one"
	eio lock 0 1000
	run -0 cow commit
	run -3 cow status
	[[ $output == *"$CARD: cannot be set read-only after a commit"* ]]
	[ "$(blockdev --getro "$CARD")" = 0 ]
	alarmed() { cow events --once | grep -q "^vol alarm $CARD: cannot be set read-only"; }
	wait_for 5 alarmed
	eio off
	echo two >"$MNT/two"
	cow commit
	[ "$(blockdev --getro "$CARD")" = 1 ]
	[ "$(status_of .alarm)" = "" ]
	detach
	fsck ext4
}

@test "an attach while the wall clock is set: nothing waits by it" {
	card_make ext4 100 150
	cow format "$CARD"
	for _ in 1 2 3 4 5; do
		COWFS_CLOCK_BACK=1 with_shim attach
		detach
	done
}

@test "a write that never comes, into a subvolume of btrfs: found as well" {
	command -v mkfs.btrfs || skip "no btrfs-progs"
	protect btrfs 300 360
	btrfs subvolume create "$MNT/sub"
	chmod 1777 "$MNT/sub"
	hold "$MNT/sub/hostile" write
	fails 1 "\\[$HELD\\]" commit
	can_write
	let_go
	cow commit
	detach
	fsck btrfs
}

@test "more than the log holds without a freeze: what is in the way is ended, and the file system frozen" {
	protect
	random_file "$MNT/big" 40
	cow commit
	hold "$MNT/hostile" write
	dd if=/dev/urandom of="$MNT/big" bs=1M count=40 conv=notrunc status=none
	tree_sum "$MNT" >"$T/sum"
	run -0 --separate-stderr cow shutdown --json
	jq -e '.ok and .quiesce.frozen and (.quiesce.unfrozen | not) and .quiesce.aborted_connections == 1' <<<"$output"
	wait "$HELD"
	power_cut
	fsck ext4
	mount -o ro "$CARD" "$MNT"
	[ "$(tree_sum "$MNT")" = "$(cat "$T/sum")" ]
	umount "$MNT"
}
