#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What units and hooks call: commit --timer, shutdown, events, status --brief, config.
# seconds: 75

load lib

protect() {
	volume_mounted ext4 200 250 -J size=8 -- -- "$@"
}

@test "commit --timer writes nothing without need" {
	local written generation
	protect
	random_file "$MNT/a" 5
	cow commit --timer
	[ "$(status_of .last.report.direct_blocks)" -ge 1280 ]
	generation=$(status_of .generation)
	written=$(card_written)
	for _ in 1 2 3; do
		run -0 cow commit --timer
		[[ $output == *"nothing has changed"* ]]
	done
	[ "$(card_written)" = "$written" ]
	[ "$(status_of .generation)" = "$generation" ]
	# what lies in the page cache only is a change
	echo x >"$MNT/small"
	run -0 cow commit --timer
	[[ $output == *": committed "*" as generation "* ]]
	# so is a directory's time
	touch "$MNT"
	run -0 cow commit --timer
	[[ $output == *": committed "*" as generation "* ]]
	power_cut
	attach_mounted
	[ "$(cat "$MNT/small")" = x ]
	detach_whole ext4
}

@test "timer and shutdown do not commit if a discard is armed" {
	local written
	protect --on-detach discard
	written=$(card_written)
	random_file "$MNT/a" 5
	run -0 cow commit --timer
	[[ $output == *"not committed: the changes are to be discarded"* ]]
	run -0 cow shutdown
	[[ $output == *"vol: not committed: the changes are to be discarded"* ]]
	[ "$(card_written)" = "$written" ]
	detach
	[ "$(card_written)" = "$written" ]
}

@test "shutdown: commits and checkpoints, a line per volume" {
	local code=0
	protect
	random_file "$MNT/a" 5
	run -0 --separate-stderr cow shutdown
	[ -z "$output" ]
	[[ $stderr == "cowfs: vol: everything is on the card, generation "*" written in "*" s" ]]
	[ "$(status_of .log_live_blocks)" = 0 ]
	run -0 --separate-stderr cow shutdown vol --within 80s --json
	jq -e .ok <<<"$output"
	# read-only, as a root is at the end
	mount -o remount,ro "$MNT"
	run -0 cow shutdown --within 80s
	mount -o remount,rw "$MNT"
	fails 2 'is not a time such as' shutdown --within soon
	run -4 cow shutdown nobody
	[[ $output == "cowfs: nobody: "* ]]
	detach
	run -0 cow shutdown
	[ -z "$output" ]
}

# bats test_tags=blunt
@test "shutdown: a card that fails, and works again; a sync that ends late" {
	card_prepared ext4 100 150
	COWFS_SYNC_HANGS=$T/hang shim_mounted
	random_file "$MNT/a" 2
	sync -f "$MNT"
	eio write 0 1000
	run -1 cow shutdown
	echo "$output"
	[[ $output == *"vol: NOT COMMITTED: "*" The card holds generation "* ]]
	eio off
	run -0 cow shutdown
	# the commit is made once more
	echo new >"$MNT/new"
	touch "$T/hang"
	{ sleep 13; rm "$T/hang"; } 3>&- &
	run -0 cow shutdown
	[[ $output == *"vol: everything is on the card"* ]]
	detach
}

# KIB COWCTL_ARGUMENT...: it finds so much in the page cache of the machine, which any program fills and empties
with_dirty() {
	sed "s/^Dirty:.*/Dirty: $1 kB/; s/^Writeback:.*/Writeback: 0 kB/" /proc/meminfo >"$T/meminfo"
	run -0 --separate-stderr unshare --mount sh -c 'mount --bind "$0" /proc/meminfo && exec "$@"' "$T/meminfo" "$COWFS_BUILD/cowctl" "${@:2}"
}

# What the first of two stages leaves to the second one.
@test "shutdown --if-longer: leaves a short commit to the next call, a long one not" {
	local generation
	protect
	fails 2 'is not a time such as' shutdown --if-longer soon
	generation=$(status_of .generation)
	echo x >"$MNT/file"
	sync -f "$MNT"
	with_dirty 4096 shutdown vol --if-longer 4s --json
	[ "$stderr" = "cowfs: vol: little to commit: left to the end of the shutdown" ]
	[ "$(jq -c '[.ok, .remark]' <<<"$output")" = '[true,"little to commit: left to the end of the shutdown"]' ]
	[ "$(status_of .generation)" = "$generation" ]
	# a card of unknown speed takes 4 MiB/s, twice
	with_dirty 8192 shutdown vol --if-longer 4s
	[[ $stderr == *"vol: everything is on the card"* ]]
	# no time is short enough
	echo x >"$MNT/file"
	run -0 cow shutdown --if-longer 1ms
	[[ $output == *"vol: everything is on the card"* ]]
	detach
}

# bats test_tags=blunt
@test "shutdown --if-longer: leaves nothing to the next call if anything is wrong" {
	card_prepared ext4 100 150
	shim_mounted
	random_file "$MNT/a" 8
	sync -f "$MNT"
	# a commit is under way: what it writes does not count as dirty
	eio slow 1000
	background cow commit
	wait_for 10 job_is commit
	run -0 cow shutdown --if-longer 24h
	[[ $output == *"vol: everything is on the card"* ]]
	# the commit before it has failed
	eio write 0 1000
	echo x >"$MNT/file"
	run -1 cow commit
	run -1 cow shutdown --if-longer 24h
	[[ $output == *"vol: NOT COMMITTED: "* ]]
	eio off
	cow commit
	# there is nothing to leave
	cow discard
	run -0 cow shutdown --if-longer 24h
	[[ $output == *"vol: not committed: the changes are to be discarded"* ]]
	detach
}

@test "shutdown --within: says so when there is no time" {
	card_prepared ext4 100 150
	shim_mounted
	random_file "$MNT/a" 8
	eio slow 2000
	run -1 cow shutdown --within 1s
	echo "$output"
	[[ $output == *"NOT everything is on the card: out of time"* ]]
	eio off
	cow commit
	detach
}

@test "events and status --brief" {
	local line
	protect --ram 64M
	background "$COWFS_BUILD/cowctl" status --follow >"$T/events"
	wait_for 5 grep -q poll "/proc/$BG/wchan" # it has looked
	random_file "$MNT/a" 4
	cow commit
	wait_for 5 grep -q '^vol commit ' "$T/events"
	run ! grep view-ended "$T/events"
	umount_volume
	cow detach
	wait_for 10 grep -q '^vol gone' "$T/events"
	attach
	wait_for 10 grep -q '^vol attached' "$T/events"
	run -0 cow status --brief
	[[ $output == "cowfs: vol: all files are on the card, last commit 20"* ]]
	fails 2 'are mutually exclusive' status --brief --json
	mkdir -p "$COWFS_RUNDIR"
	printf 'failed\n' >"$COWFS_RUNDIR/root.state"
	printf 'no memory\nKEY=x\n' >"$COWFS_RUNDIR/root.failed"
	run -3 cow status --brief
	[[ $output == *"THE ROOT IS NOT PROTECTED and read-only: no memory"* ]]
	printf 'bypassed\n' >"$COWFS_RUNDIR/root.state"
	printf 'cowfs=off was said\n' >"$COWFS_RUNDIR/root.bypassed"
	run -3 cow status --brief
	[[ $output == *"cowfs=off"* ]]
	rm "$COWFS_RUNDIR"/root.*
	run -0 cow status --follow --once
	[ -z "$output" ]
	cow detach
}

@test "config: what holds for a volume" {
	export COWFS_CONF=$T/conf
	printf '[default]\ncommit-interval = 5m\n[root]\nram = 10%%\nvolatile = /tmp\n' >"$COWFS_CONF"
	[ "$(cow config --key commit-interval)" = 5m ]
	[ "$(cow config root --key volatile)" = /tmp ]
	[ "$(cow config data --key volatile)" = "" ]
	[ "$(cow config data --key enabled)" = yes ]
	answer=$(cow config --json)
	jq -e '.configured and .volume == "root" and .ram == "10%" and .prepare == "no"' <<<"$answer"
	# what it prints is a configuration
	cow config >"$T/conf2"
	COWFS_CONF=$T/conf2 cow config | cmp - "$T/conf2"
	fails 2 'is not a key of cowfs.conf' config --key nonsense
	fails 2 'is not a key of cowfs.conf' config --key ram,volatile
	fails 2 'is not a key of cowfs.conf' config --list --key ram,,volatile
	[ "$(cow config --list --key ram,volatile)" = $'- ram \n- volatile \nroot ram 10%\nroot volatile /tmp' ]
	[ "$(cow config --list)" = root ]
	[ "$(cow config --list --json)" = '{"ok":true,"schema":1,"volumes":[{"volume":"root"}]}' ]
	[ "$(cow config --list --key ram,volatile --json | jq -c .volumes)" = '[{"volume":"root","ram":"10%","volatile":"/tmp"}]' ]
	[ "$(cow config --key ram --json | jq -r .ram)" = 10% ]
	echo nonsense >>"$COWFS_CONF"
	fails 2 'conf:6: ' config --key ram
}

@test "shutdown --json: an answer for each volume, also for one that is not there" {
	fails 4 'no volume is attached as nosuch' shutdown nosuch
	run -4 --separate-stderr cow shutdown nosuch --json
	[ "$(jq -c '[.ok, .exit]' <<<"$output")" = '[false,4]' ]
	protect
	random_file "$MNT/a" 5
	run -0 --separate-stderr cow shutdown --json
	[ "$(jq .ok <<<"$output")" = true ]
}
