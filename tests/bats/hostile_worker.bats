#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Code of an attacker in the worker of a volume: what is not that volume's stays out of reach.
# seconds: 50

load lib

setup() {
	cow_setup
	! ldd "$COWFS_BUILD/cowfs" | grep -Eq 'libasan|libtsan' || skip "no filter in builds with sanitizers"
	unset COWFS_SECCOMP # refused calls return errors, so that the attacker tries them all
	echo secret >"$T/secret"
	chmod 600 "$T/secret"
	truncate -s 65536 "$T/hostile"
	# the one that is not to be reached
	IMG=$T/other.img
	volume_attached ext4 60 100 -- -- --name other
	OTHER=$CARD OTHER_DEV=$DEV
	mkdir "$T/other"
	mount "$DEV" "$T/other"
	random_file "$T/other/a" 2
	cow commit other
	other_sum=$(tree_sum "$T/other")
	other_card=$(image_sum "$OTHER")
	other_pid=$(worker_pid)
	# the one with the attacker
	IMG=$T/card.img
	card_prepared ext4 60 100
	COWFS_HOSTILE_FILE=$T/hostile COWFS_HOSTILE_PIDS=1:$other_pid:$(field "$other_pid" PPid):$$ \
		COWFS_HOSTILE_PATHS=/etc/shadow:$T/secret:$OTHER:$OTHER_DEV:$CARD:/dev/kmsg:/dev/fuse:/dev/loop-control:$COWFS_RUNDIR/other/control:$COWFS_RUNDIR/vol/status.json:/proc/sys/kernel/core_pattern:/proc/sysrq-trigger \
		LD_PRELOAD=$COWFS_BUILD/tests/hostile.so attach --name vol
	mount_volume
	random_file "$MNT/a" 2
	pid=$(worker_pid)
}

teardown() { cow_teardown; }
field() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"; }

# NUMBER: until the attack is over, or its process is
attack() {
	printf %s "$1" | dd of="$T/hostile" conv=notrunc status=none
	wait_for 120 attack_is_over
	tr -d '\0' <"$T/hostile" >"$T/report"
}

attack_is_over() { grep -aqx 'done' "$T/hostile" || ! [ -e "/proc/$pid" ]; }

# The other volume, and what root has
others_unharmed() {
	[ "$(cat "$T/secret")" = secret ]
	[ "$(stat -c %a "$T/secret")" = 600 ]
	[ "$(NAME=other worker_pid)" = "$other_pid" ]
	[ "$(tree_sum "$T/other")" = "$other_sum" ]
	[ "$(image_sum "$OTHER")" = "$other_card" ]
	timeout 300 touch "$T/other/b" # not frozen
	cow commit other
	other_sum=$(tree_sum "$T/other")
	other_card=$(image_sum "$OTHER")
	cow status other >/dev/null
}

# bats test_tags=blunt
@test "hostile worker: files, devices, sockets, processes and the kernel refuse it" {
	[ "$(field "$pid" Uid | cut -f 1)" -ne 0 ]
	[ "$(field "$pid" Uid | cut -f 1)" -ne "$(field "$other_pid" Uid | cut -f 1)" ]
	attack 1
	[ -e "/proc/$pid" ]
	grep -a SUCCEEDED "$T/report" || true
	[ "$(grep -ac SUCCEEDED "$T/report")" = 0 ]
	# nothing was left out
	[ "$(grep -ac refused "$T/report")" -gt 150 ]
	others_unharmed
	# and its volume works
	cow commit vol
	umount_volume
	cow detach vol
	umount "$T/other"
	cow detach other
}

# bats test_tags=blunt
@test "hostile worker: random messages to its broker and to the supervisor spoil its own volume at most" {
	local parent
	parent=$(field "$pid" PPid)
	attack 2
	grep -a SUCCEEDED "$T/report" || true
	[ "$(grep -ac SUCCEEDED "$T/report")" = 0 ]
	others_unharmed
	# whatever became of it, it ends, and its card is free then
	kill -9 "$(worker_pid)" "$parent" 2>/dev/null || true
	kill -9 "$pid" 2>/dev/null || true
	timeout 300 umount "$MNT"
	run cow status
	others_unharmed
	umount "$T/other"
	cow detach other
}

# NAME MOST: how often a call was answered within 8 s
answered() {
	local n
	n=$(sed -n "s/^0*flood $1 //p" "$T/report")
	echo "$1: $n answers"
	[ "$n" -gt 0 ]
	[ "$n" -le "$2" ]
}

# bats test_tags=blunt
@test "hostile worker: the broker and the supervisor do not answer as often as it asks" {
	attack 3
	# what ALLOWANCE_NS and 8 s more pay for, and one second that has begun
	answered publish 14000
	answered readers 16
	answered messages 14000
	others_unharmed
	timeout 300 touch "$MNT/b"
	cow commit vol
	umount_volume
	cow detach vol
	umount "$T/other"
	cow detach other
}

@test "hostile worker: it can write to the terminal where root has started it, and cannot read what root types there" {
	umount_volume
	cow detach vol
	background python3 -c 'import pty, sys
pty.spawn(sys.argv[1:])' "$COWFS_BUILD/cowfs" --foreground --name vol "$CARD" >"$T/out" </dev/null
	wait_for 20 test -e "$COWFS_RUNDIR/vol/pid"
	wait_for 20 cow status vol
	pid=$(worker_pid)
	[ "$(readlink "/proc/$pid/fd/0")" = /dev/null ]
	[[ $(readlink "/proc/$pid/fd/2") == /dev/pts/* ]]
	grep -q '^flags:.*1$' "/proc/$pid/fdinfo/1"
	grep -q '^flags:.*1$' "/proc/$pid/fdinfo/2"
	umount "$T/other"
	cow detach other
	cow detach vol
}

# What can be written of a file system that is the machine's could fill it.
@test "hostile worker: what it has open for writing is its volume's only, also where a service manager starts it" {
	local fd
	umount_volume
	cow detach vol
	# which leaves it a descriptor and a group, that of disks
	background setpriv --groups 6 "$COWFS_BUILD/cowfs" --foreground --name vol "$CARD" >"$T/out" 2>"$T/err" 9>"$T/nine"
	wait_for 20 test -s "$T/out"
	DEV=$(cat "$T/out") pid=$(worker_pid)
	is_volume
	wait_for 20 eval '[ "$(readlink "/proc/$pid/fd/2")" = /dev/null ]'
	for fd in /proc/"$pid"/fd/*; do
		echo "$(readlink "$fd") $(grep ^flags "${fd/fd\//fdinfo/}")"
	done >"$T/open"
	cat "$T/open"
	# flags end with the mode: 1 and 2 write
	run ! grep -E "^$T/.*[12]\$" "$T/open"
	run ! grep -E "^/run/.*[12]\$" "$T/open"
	[ "$(wc -l <"$T/open")" -gt 20 ]
	[ -z "$(field "$pid" Groups)" ]
	umount "$T/other"
	cow detach other
	cow detach vol
}
