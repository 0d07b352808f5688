#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What the processes of the daemon may do: filter of system calls, capabilities, no new privileges. All other files of tests
# run under the filter as well, and there a refused call ends the daemon (COWFS_SECCOMP in lib.bash).

load lib

# one field of /proc/PID/status
field() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"; }
parent_pid() { field "$(worker_pid)" PPid; }

# The numbers of capabilities as a mask of 16 digits
mask() {
	local c m=0
	for c; do
		m=$((m | 1 << c))
	done
	printf '%016x' $m
}

# PID FILTERS CAPABILITY...: of all its threads
confined() {
	local pid=$1 filters=$2 want held task set
	shift 2
	want=$(mask "$@")
	# what this machine does not give to anybody is missing there
	held=$(printf '%016x' $((0x$want & 0x$(field self CapBnd))))
	for task in "/proc/$pid/task"/*; do
		task=$pid/task/${task##*/}
		echo "$task: $(field "$task" Name), $(grep -E '^(Seccomp|NoNew|Cap)' "/proc/$task/status" | xargs)"
		[ "$(field "$task" Seccomp)" = 2 ] || return 1
		[ "$(field "$task" Seccomp_filters)" = "$filters" ] || return 1
		[ "$(field "$task" NoNewPrivs)" = 1 ] || return 1
		for set in CapEff CapPrm CapBnd; do
			[ "$(field "$task" $set)" = "$held" ] || return 1
		done
		[ "$(field "$task" CapInh)$(field "$task" CapAmb)" = "$(mask)$(mask)" ] || return 1
	done
}

# ipc_lock if the limit of locked memory could not be raised
worker_caps() {
	grep -q 'Max locked memory *unlimited' "/proc/$(worker_pid)/limits" || echo 14
}

# A child of the worker
child_named() {
	local pid
	for pid in $(children "$(worker_pid)"); do
		[ "$(field "$pid" Name)" != "$1" ] || echo "$pid"
	done
}

# dac_override kill setgid setuid ipc_lock sys_ptrace sys_admin; kill ipc_lock sys_admin sys_boot
both_confined() {
	confined "$(worker_pid)" $((3 + outer)) $(worker_caps) &&
		confined "$(child_named cowfs-broker)" $((2 + outer)) 1 5 6 7 14 19 21 &&
		confined "$(parent_pid)" $((2 + outer)) 5 14 21 22
}

setup() {
	cow_setup
	outer=$(field self Seccomp_filters)
	outer=${outer:-0}
}

@test "confine: worker and parent, after attach, commits, pressure" {
	[ -n "$(field self Seccomp_filters)" ] || skip "no Seccomp_filters in /proc/PID/status"
	! ldd "$COWFS_BUILD/cowfs" | grep -Eq 'libasan|libtsan' || skip "no filter in builds with sanitizers"
	volume_attached ext4 100 150 -- -- --ram 32M
	wait_for 1 both_confined # a thread may be just ending
	mount_volume
	random_file "$MNT/a" 8
	cow commit "$NAME"
	wait_for 1 both_confined
	random_file "$MNT/b" 60 # more than the limit
	cow commit "$NAME" --checkpoint
	wait_for 1 both_confined
	detach_whole ext4
}

# Of PID, whichever thread forked them
children() {
	cat "/proc/$1/task"/*/children
} 2>/dev/null

# Stops a session: commits until one is seen
session_seen() {
	local i of broker
	broker=$(child_named cowfs-broker)
	background "$COWFS_BUILD/cowctl" commit "$NAME" --dry-run
	SESSION=''
	while [ -z "$SESSION" ] && [ -e "/proc/$BG" ]; do
		for ((i = 0; i < 200 && ${#SESSION} == 0; i++)); do
			for of in "/proc/$broker/task"/*/children; do
				[ -n "$SESSION" ] || read -r SESSION 2>/dev/null <"$of" || true
			done
		done
	done
	SESSION=${SESSION%% *}
	[ -n "$SESSION" ] && kill -STOP "$SESSION" && cat "/proc/$SESSION/oom_score_adj" "/proc/$SESSION/status" >"$T/session" &&
		no_other_uid && return
	# too early, or too late
	[ -z "$SESSION" ] || kill -CONT "$SESSION" || true
	wait "$BG"
	return 1
}

# What reads a card has a user that nobody has
no_other_uid() {
	local uid=$((2130706432 + SESSION))
	[ "$(sed -n 's/^Uid:[[:space:]]*//p' "$T/session" | tr '\t' ' ')" = "$uid $uid $uid $uid" ]
}

@test "confine: what reads metadata has nothing" {
	! ldd "$COWFS_BUILD/cowfs" | grep -Eq 'libasan|libtsan' || skip "no filter in builds with sanitizers"
	local line
	volume_mounted ext4 100 150 -- -- --ram 32M
	random_file "$MNT/a" 2
	sync -f "$MNT"
	# seen before it gave up all, it is stopped there
	wait_for 60 session_seen
	kill -CONT "$SESSION" || true
	wait "$BG"
	[ "$(head -n 1 "$T/session")" = 0 ] # oom_score_adj
	for line in "Name:	cowfs-meta" "CapEff:	$(mask)" "CapPrm:	$(mask)" "NoNewPrivs:	1"; do
		grep -qx "$line" "$T/session"
	done
	cow commit "$NAME"
	[ -z "$(children "$(child_named cowfs-broker)")" ] # none is left
	umount_volume
	detach_whole ext4
}

# Nothing can read metadata, as on a card that kills whatever reads it: a session fails to set its limit.
no_reader() {
	prlimit --pid "$(child_named cowfs-broker)" --cpu=50:50
}

@test "confine: nothing can read the metadata: a commit says so, --force commits all, shutdown and detach lose nothing" {
	volume_mounted ext4 100 150 -- -- --ram 32M
	random_file "$MNT/a" 4
	cow commit "$NAME"
	no_reader
	random_file "$MNT/b" 4
	rm "$MNT/a"
	fails 1 "process that reads the file system's metadata died; everything stays in RAM.*--force" commit "$NAME"
	answer=$(cow status "$NAME") || [ $? = 3 ]
	grep -q 'FAILED' <<<"$answer"
	answer=$(cow commit --json --force "$NAME")
	jq -e '.ok and .unread' <<<"$answer"
	[ "$(status_of .last.unread)" = true ]
	[[ $(status_of .alarm) == *"not checked"* ]]
	answer=$(cow status -v "$NAME") || [ $? = 3 ]
	grep -q 'metadata not checked' <<<"$answer"
	[ "$(cow check --json "$CARD" | jq .unread)" = true ]
	sum=$(tree_sum "$MNT")
	power_cut

	attach_has "$sum" --ram 32M # with a reader
	no_reader
	random_file "$MNT/c" 4
	sum=$(tree_sum "$MNT")
	cow shutdown
	power_cut
	[ "$(cow check --json "$CARD" | jq .unread)" = true ]
	answer=$(cow check "$CARD")
	grep -q 'not checked' <<<"$answer"

	attach_has "$sum" --ram 32M
	no_reader
	random_file "$MNT/d" 4
	sum=$(tree_sum "$MNT")
	detach
	# empty records that follow repeat it
	[ "$(cow check --json "$CARD" | jq .unread)" = true ]
	[ "$(bare_sum)" = "$sum" ]
	fsck ext4
	# a commit with a reader is one without that flag
	attach_mounted
	random_file "$MNT/e" 1
	cow commit "$NAME"
	[ "$(cow check --json "$CARD" | jq .unread)" = false ]
	detach
}

@test "confine: an image that kills each of its readers: a commit fails, --force and shutdown keep all" {
	! ldd "$COWFS_BUILD/cowfs" | grep -Eq 'libasan|libtsan' || skip "the shim must come first"
	local at sum
	card_prepared ext4 300 350 # three groups
	for at in 1 2; do
		BADIMAGE_AT=$at LD_PRELOAD=$COWFS_BUILD/tests/badimage.so attach --ram 48M
		mount_volume
		random_file "$MNT/a$at" 4
		random_file "$MNT/b$at" 4
		fails 1 "process that reads the file system's metadata died; everything stays in RAM.*--force" commit "$NAME"
		answer=$(cow commit --json --force "$NAME")
		jq -se '.[-1] | .ok and .unread and .report.direct_blocks == 0' <<<"$answer"
		rm "$MNT/a$at"
		random_file "$MNT/c$at" 2
		answer=$(cow commit --json --force --checkpoint "$NAME")
		jq -se '.[-1] | .ok and .unread' <<<"$answer"
		random_file "$MNT/d$at" 2
		fails 1 "process that reads the file system's metadata" commit "$NAME"
		sum=$(tree_sum "$MNT")
		cow shutdown
		power_cut
		[ "$(cow check --json "$CARD" | jq .unread)" = true ]
		attach_has "$sum"
		umount_volume
		detach_whole ext4
	done
}

# The death of a worker under the parent's filter: tests/unit/keeper_test.c.

@test "confine: without CAP_SETPCAP the bounding set stays, nothing else" {
	card_prepared ext4 50 100
	NAME=vol
	! dmesg >/dev/null 2>&1 || echo "$T" >/dev/kmsg
	run -0 --separate-stderr setpriv --bounding-set=-setpcap "$COWFS_BUILD/cowfs" --name vol "$CARD"
	DEV=$output
	[ -b "$DEV" ]
	# where the kernel log cannot be read, nothing is compared
	! dmesg >/dev/null 2>&1 || dmesg | sed "1,\|$T|d" | grep -q 'goes on without: .*dropping capabilities'
	# the effective set needs no permission to be made smaller
	[ "$(field "$(worker_pid)" CapEff)" = "$(mask $(worker_caps))" ]
	[ "$(field "$(worker_pid)" Seccomp)" = 2 ]
	cow detach vol
}
