#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# All processes of a daemon are killed at once, at random moments of commits: I/O on the volume ends.
#	COUNT=100 bats tests/bats/kills.bats	so many kills of each kind instead of 5 (make check-kills)
#	FS=xfs, FS=btrfs			of another file system than ext4
# seconds: 45

load lib

COUNT=${COUNT:-$(rounds 5)}
FS=${FS:-ext4}
export BATS_TEST_TIMEOUT=$((900 + COUNT * 30))

setup() {
	cow_setup
	GROUP=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)/cowfs-kills.$$
	mkdir "$GROUP" 2>/dev/null || skip "no cgroup of version 2 can be made here"
	[ -e "$GROUP/cgroup.kill" ] || skip "no cgroup.kill: a kernel before 5.14"
	SLOWEST=0 IN_SYNC=0 CONN=''
}

teardown() {
	local bad=0
	[ ! -e "$GROUP/cgroup.kill" ] || echo 1 >"$GROUP/cgroup.kill"
	[ -n "${BATS_TEST_COMPLETED-}" ] || end_io
	cow_teardown || bad=1
	[ ! -d "$GROUP" ] || wait_for 20 rmdir "$GROUP" || bad=1
	return $bad
}

# Only after a failure: what hangs would hang for ever. Another volume may have the number by now.
end_io() {
	[ -n "$CONN" ] && [ "$(loop_backing "$DEV")" = "0:$CONN" ] || return 0
	mkdir "$T/ctl"
	mount -t fusectl none "$T/ctl"
	cat <<<1 >"$T/ctl/$CONN/abort" || :
	umount "$T/ctl"
} 2>/dev/null

# As its unit starts it: in a cgroup, in the foreground.
attach_in_group() {
	NAME=kills$BASHPID # a dead loop device of another test has the same name otherwise, and is cleared away by its commands
	background bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$GROUP" \
		"$COWFS_BUILD/cowfs" --foreground --name "$NAME" "$CARD" >"$T/dev" 2>"$T/err"
	MAIN=$BG
	wait_for 20 test -s "$T/dev" || { cat "$T/err"; return 1; }
	DEV=$(cat "$T/dev")
	CONN=$(loop_backing "$DEV" | cut -d: -f2)
	is_volume
}

# Until writing fails: mostly dirty pages, so that the next commit has to sync.
write_on() {
	local i
	for ((i = 0; ; i++)); do
		dd if=/dev/zero of="$MNT/dirty$((i % 4))" bs=1M count=8 status=none || break
		[ -e "$T/daemon" ] || break
	done
} 2>/dev/null

commit_on() {
	while [ -e "$T/daemon" ]; do
		cow commit "$NAME" >/dev/null || break
	done
} 2>/dev/null

# Must end within 10 s, well or not. A process that cannot be killed is not waited for.
ends() {
	local begin=${EPOCHREALTIME/./} took pid
	background "$@" >/dev/null 2>&1
	pid=$BG
	wait_for 10 ended "$pid" || { echo "hangs: $*"; cat "/proc/$pid/stack"; return 1; }
	took=$((${EPOCHREALTIME/./} - begin))
	[ $took -le "$SLOWEST" ] || SLOWEST=$took
}

# What FUSE's requests wait for: is anybody in a call that flushes?
in_sync() {
	grep -lqxE 'cowfs-sync' /proc/"$(worker_pid)"/task/*/comm 2>/dev/null
}

# What is left is cleared by a command, and the card is attached again.
clear_up() {
	local left
	# not mountpoint(1): a file system that has shut down does not answer it
	! grep -qF " $MNT " /proc/self/mounts || wait_for 20 timeout 300 umount "$MNT" || return
	run -4 --separate-stderr cow status
	[[ $stderr == *"volume $NAME: its daemon died"*"$DEV is detached now"* ]] || { echo "$stderr"; return 1; }
	wait_for 20 volume_gone "$DEV" || return
	left=$(ls "$COWFS_RUNDIR")
	[ -z "$left" ] || { echo "left over: $left"; return 1; }
	rm "$T/volumes"
	DEV='' CONN=''
}

kill_in_commits() { # COMMAND... that kills
	local round small=()
	[ "$FS" != ext4 ] || small=(-J size=8)
	card_prepared "$FS" 310 450 "${small[@]}"
	for ((round = 0; round < COUNT; round++)); do
		attach_in_group || return
		mount_volume || return
		give_up_early
		echo content >"$MNT/content"
		sync "$MNT/content"
		: >"$T/daemon"
		background write_on
		background commit_on
		sleep "$((RANDOM % 2)).$((RANDOM % 900 + 100))"
		! in_sync || IN_SYNC=$((IN_SYNC + 1))
		rm "$T/daemon"
		"$@"
		ends cat "$MNT/content" || return
		ends dd if="$DEV" of=/dev/null bs=4096 count=1 iflag=direct || return
		ends dd if=/dev/zero of="$MNT/new" bs=4096 count=1 conv=fsync || return
		clear_jobs || :
		wait_for 10 no_daemons || { echo "left over: $(daemons)"; return 1; }
		clear_up || return
		echo "kill $round at $SECONDS s"
	done
	say "$COUNT kills, $IN_SYNC of them while it synced or froze; slowest end of a read or write $((SLOWEST / 1000)) ms"
}

kill_group() { echo 1 >"$GROUP/cgroup.kill"; }

@test "kills: all of a unit's cgroup" { kill_in_commits kill_group; }

# The parent as well, which has left the cgroup.
kill_everything() {
	local pid
	for pid in $(daemons); do
		echo "$pid" >"$GROUP/cgroup.procs" 2>/dev/null || :
	done
	kill_group
}

kill_everything_and_look() {
	kill_everything
	run cow status
}

@test "kills: all processes, in commits" { kill_in_commits kill_everything_and_look; }

dirties() {
	dd if=/dev/urandom of="$DEV" bs=1M count=24 status=none
	[ "$(awk '$1 == "Dirty:" { print $2 }' /proc/meminfo)" -gt 1000 ]
}

@test "kills: everything, nothing mounted, dirty pages of the loop device" {
	card_prepared ext4 200 300
	attach_in_group
	wait_for 60 dirties # beside a sync(2) of others
	kill_everything
	ends dd if="$DEV" of=/dev/null bs=4096 count=1 iflag=direct
	wait_for 10 no_daemons
	run -4 --separate-stderr cow status
	[[ $stderr == *"volume $NAME: its daemon died"*"$DEV is detached now"* ]]
}

# bats test_tags=blunt
@test "kills: starter and parent, one after the other: the volume stays attached" {
	local pid
	card_prepared ext4 200 300 -J size=8
	attach_in_group
	mount_volume
	kill -9 "$MAIN"
	wait_for 5 ended "$MAIN"
	commit_word one
	# of the worker
	pid=$(awk '$1 == "PPid:" { print $2 }' "/proc/$(worker_pid)/status")
	kill -9 "$pid"
	wait_for 5 ended "$pid"
	commit_word two
	[ "$(status_of .degraded)" = false ]
	detach
	mount -o ro "$CARD" "$MNT"
	[ "$(cat "$MNT/one" "$MNT/two")" = $'one\ntwo' ]
}

@test "kills: attached again while the old file system is mounted; its device goes with the unmount" {
	local old
	card_prepared ext4 200 300 -J size=8
	attach_in_group
	mount_volume
	kill_everything
	wait_for 10 no_daemons
	old=$DEV
	attach
	[ "$DEV" != "$old" ]
	timeout 300 umount "$MNT"
	wait_for 10 volume_gone "$old"
	detach
}

@test "kills: a daemon that cannot end is dead, and nothing waits for it" {
	card_prepared ext4 200 300
	attach_in_group
	kill_everything
	wait_for 20 no_daemons
	# as its sleeping thread would
	background bash -c 'exec 9>>"$0"; flock 9; : >"$1"; exec sleep 1000' "$COWFS_RUNDIR/$NAME/lock" "$T/held"
	wait_for 10 [ -e "$T/held" ] # a process that ends has the lock for a moment
	run -4 --separate-stderr cow status
	[[ $stderr == *"a process of it cannot end, and $DEV may hang"* ]]
	kill "$BG"
	clear_jobs || :
	clear_up
}

# Of a command of ours that may hang, unkillable: exit status and stderr in $status and $stderr.
bounded() { # SECONDS COMMAND...
	local limit=$1
	shift
	background "$@" >/dev/null 2>"$T/bounded"
	wait_for "$limit" ended "$BG" || { echo "hangs: $*"; return 1; }
	status=0
	wait "$BG" || status=$?
	stderr=$(cat "$T/bounded")
}

@test "kills: the parent is stopped while its worker is killed: commands say so and end" {
	local parent worker command
	card_prepared ext4 200 300 -J size=8
	attach_in_group
	mount_volume
	worker=$(worker_pid)
	parent=$(awk '$1 == "PPid:" { print $2 }' "/proc/$worker/status")
	kill -STOP "$parent"
	kill -9 "$worker"
	wait_for 10 grep -q "^State:.*zombie" "/proc/$worker/status" # it answers until then
	for command in status commit detach "status --follow --once"; do
		bounded 20 "$COWFS_BUILD/cowctl" $command
		[ "$command" = "status --follow --once" ] || [ $status = 4 ]
		[ "$command" != status ] || [[ $stderr == *"volume $NAME: its daemon died"*"its parent, process $parent, is stopped, and I/O on $DEV waits for it: kill -CONT $parent"* ]]
	done
	bounded 20 "$COWFS_BUILD/umount.cowfs" "$MNT"
	[ $status = 32 ]
	[[ $stderr == *"process $parent, is stopped"* ]]
	kill -CONT "$parent"
	wait_for 10 no_daemons
	clear_up
}

@test "kills: a worker that is stopped: commands say so and end; it goes on afterwards" {
	card_prepared ext4 200 300 -J size=8
	attach_in_group
	mount_volume
	echo one >"$MNT/one"
	kill -STOP "$(worker_pid)"
	bounded 20 "$COWFS_BUILD/cowctl" commit "$NAME"
	[ $status = 1 ]
	[[ $stderr == *"the daemon of volume $NAME does not answer (process $(worker_pid) is stopped: kill -CONT $(worker_pid))"* ]]
	kill -CONT "$(worker_pid)"
	[ "$(cow status "$NAME" --json | jq -r .alarm)" = "" ]
	detach
}

# Holds the FUSE descriptor of its argument, a pid, until it is killed.
hold_fuse() {
	exec python3 - "$1" <<-'END'
		import ctypes, os, signal, sys
		pid = int(sys.argv[1])
		at = "/proc/%d/fd/" % pid
		held = [ctypes.CDLL(None).syscall(438, os.pidfd_open(pid), int(fd), 0)
		        for fd in os.listdir(at) if os.readlink(at + fd) == "/dev/fuse"]
		print(held, file=sys.stderr, flush=True)
		signal.pause()
	END
}

@test "kills: the FUSE connection outlives the daemon: commands say that its device hangs, and end" {
	local holder
	card_prepared ext4 200 300 -J size=8
	attach_in_group
	background hold_fuse "$(awk '$1 == "PPid:" { print $2 }' "/proc/$(worker_pid)/status")" 2>"$T/held"
	holder=$BG
	wait_for 10 grep -q '\[[0-9]' "$T/held"
	kill_everything
	wait_for 20 no_daemons
	bounded 30 "$COWFS_BUILD/cowctl" status
	[ $status = 4 ]
	[[ $stderr == *"its daemon died"*"a process of it cannot end, and $DEV may hang"* ]]
	kill -9 "$holder"
	clear_up
}

@test "kills: a mounted image has the number of the dead volume's loop device: it is left alone" {
	truncate -s 20M "$T/other.img"
	mke2fs -q -F "$T/other.img"
	card_prepared ext4 200 300
	attach_in_group
	kill_everything
	wait_for 10 no_daemons
	wait_for 10 losetup -d "$DEV"
	wait_for 60 losetup "$DEV" "$T/other.img"
	mount "$DEV" "$MNT"
	run -4 --separate-stderr cow status
	[[ $stderr == *"volume $NAME: its daemon died: uncommitted changes are lost"* ]]
	[[ $stderr != *"returns I/O errors"* ]]
	[ -z "$(ls "$COWFS_RUNDIR")" ]
	umount "$MNT"
	loop_down "$DEV"
	rm "$T/volumes"
}

@test "kills: a daemon keeps its mount namespace until the detach" {
	local other
	truncate -s 50M "$T/other.img"
	mke2fs -q -F "$T/other.img"
	loop_up "$T/other.img"
	other=$LOOP
	card_prepared ext4 100 150
	NAME=vol
	DEV=$(unshare --mount --propagation private sh -c 'mount "$1" "$2" && exec "$COWFS_BUILD/cowctl" attach --name vol "$3"' \
		sh "$other" "$MNT" "$CARD")
	is_volume
	run ! mountpoint -q "$MNT"
	run ! is_free "$other"
	cow detach vol
	wait_for 20 is_free "$other"
}

is_free() { python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)' "$1" 2>/dev/null; }
