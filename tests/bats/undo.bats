#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A generation is held, changes like those of a package manager are committed, and the card goes back or does not.
# seconds: 55

load lib

# Files in folders, so that there are blocks of all kinds: $1 MiB
fill_tree() {
	local i
	for i in $(seq 1 40); do
		mkdir -p "$MNT/lib/$((i % 7))"
		head -c $((i * 3000)) /dev/urandom >"$MNT/lib/$((i % 7))/f$i"
	done
	random_file "$MNT/big" "${1:-4}"
	sync -f "$MNT"
}

# As apt does: files replaced through a rename, removed, added, large ones rewritten in part.
upgrade() {
	local i f
	for f in "$MNT"/lib/*/f*; do
		case $((RANDOM % 4)) in
		0) head -c $((RANDOM * 2)) /dev/urandom >"$f.new"; mv "$f.new" "$f" ;;
		1) rm "$f" ;;
		2) dd if=/dev/urandom of="$f" bs=4096 count=1 conv=notrunc status=none ;;
		esac
	done
	mkdir -p "$MNT/new$1"
	for i in 1 2 3 4 5; do head -c 70000 /dev/urandom >"$MNT/new$1/g$i"; done
	dd if=/dev/urandom of="$MNT/big" bs=1M seek=1 count=1 conv=notrunc status=none
	rm -f "$MNT/gone"
	head -c 512K "$MNT/big" >"$MNT/gone"
	sync -f "$MNT"
	rm "$MNT/gone"
	sync -f "$MNT"
}

# BYTES more than a checkpoint. Again if the file system wrote between the two.
hold_costs() {
	[ $(($(cow commit --dry-run --hold --json | jq .report.written_bytes) - $(cow commit --dry-run --checkpoint --json | jq .report.written_bytes))) = "$1" ]
}

held() { # FS [FS_MIB CARD_MIB]
	volume_mounted "$1" "${2:-100}" "${3:-150}"
	fill_tree
	wait_for 10 hold_costs 28672
	cow commit --hold
	SUM=$(tree_sum "$MNT")
	HELD=$(status_of .held.generation)
	[ "$HELD" = "$(status_of .generation)" ]
}

three_commits() {
	upgrade 1
	cow commit --timer
	upgrade 2
	cow commit
	upgrade 3
	cow commit --timer
	[ "$(status_of .held.generation)" = "$HELD" ]
	[ "$(tree_sum "$MNT")" != "$SUM" ]
	NEWEST=$(status_of .generation)
	NEWEST_SUM=$(tree_sum "$MNT")
	[ "$NEWEST" -ge $((HELD + 3)) ] # a commit without its sync is followed by another one
}

ends_as_sum() { # FS: the card alone does, after a detach
	detach_whole "$1"
	[ "$(bare_sum)" = "$SUM" ]
}

goes_back() { # FS
	local before written
	held "$@"
	three_commits
	detach
	[ "$(cow check "$CARD" --json | jq .guarded)" = true ] # no kernel mounts the card read-write
	NEWEST=$(cow check "$CARD" --json | jq .generation) # the unmount is committed, too
	[ "$(cow generations "$CARD" --json | jq -c '[.generations[] | [.generation, .held]]')" = "[[$NEWEST,false],[$HELD,true]]" ]
	run -0 cow undo "$CARD" --dry-run
	[[ $output == *"would go back to generation $HELD of "*"; $((NEWEST - HELD)) commits since would be lost" ]]
	[ "$(cow generations "$CARD" --json | jq '.generations | length')" = 2 ]
	before=$(card_written)
	run -0 cow undo "$CARD" --json
	written=$(jq .written_bytes <<<"$output")
	say "undo on $1: $written bytes"
	[ "$written" -le 65536 ]
	[ $(($(card_written) - before)) -le 65536 ]
	# nothing is lost before the next commit
	before=$(card_written)
	cow undo "$CARD"
	[ "$(card_written)" = "$before" ]
	[ "$(cow generations "$CARD" --json | jq -c '[.undo_pending, .generations[1].held]')" = "[true,true]" ]
	cow undo --cancel "$CARD"
	fails 1 "no undo is pending" undo --cancel "$CARD"
	attach
	mount_volume -o ro
	[ "$(tree_sum "$MNT")" = "$NEWEST_SUM" ]
	detach
	cow undo "$CARD"
	[ "$(cow check "$CARD" --json | jq -c "[.verdict, .guarded]")" = '["good",true]' ]
	attach_has "$SUM"
	[ "$(status_of '"\(.held) \(.undone.generation) \(.undone.trial_failed)"')" = "null $HELD false" ]
	upgrade 4
	cow commit
	SUM=$(tree_sum "$MNT")
	ends_as_sum "$1"
}

@test "undo: ext4 goes back after three commits" { goes_back ext4; }
@test "undo: xfs goes back after three commits" { goes_back xfs 320 420; }
@test "undo: btrfs goes back after three commits" { goes_back btrfs 150 250; }

accepts() {
	held "$@"
	three_commits
	SUM=$(tree_sum "$MNT")
	fails 1 "generation $HELD is held, and nothing is checkpointed" commit --checkpoint
	cow accept
	[ "$(blockdev --getro "$CARD")" = 1 ] # as behind any job
	[ "$(status_of .held)" = null ]
	fails 1 "no generation is held" accept
	cow commit --checkpoint
	ends_as_sum "$1"
}

@test "undo: ext4, accepted" { accepts ext4; }
@test "undo: xfs, accepted" { accepts xfs 320 420; }
@test "undo: btrfs, accepted" { accepts btrfs 150 250; }

@test "undo: the daemon is killed in the middle, ext4 goes back" {
	held ext4
	upgrade 1
	cow commit
	for i in 2 3 4; do
		upgrade $i
		background cow commit
		sleep 0.0$i
		power_cut
		attach_mounted
		[ "$(status_of .held.generation)" = "$HELD" ]
	done
	detach
	cow undo "$CARD"
	attach_has "$SUM"
	ends_as_sum ext4
}

until_refused() { # [OPTION]: commits, until the log beside the held generation is full
	local n
	for n in $(seq 1 60); do
		# used blocks get other content: all of it goes to the log
		dd if=/dev/urandom of="$MNT/big" bs=256K seek=$((n % 8)) count=2 conv=notrunc,fsync status=none
		run cow commit "$@"
		[ "$status" = 0 ] || break
	done
	[ "$status" = 1 ]
}

@test "undo: the log gets full: a commit is refused, nothing is lost, and both ways lead on" {
	volume_mounted ext4 100 150 -- --log-size 8M --erase-block 512K
	fill_tree 2
	cow commit --hold
	SUM=$(tree_sum "$MNT")
	until_refused
	[[ $output == *"the log has no room for this commit while generation"*"everything stays in RAM. cowctl accept ends the hold, and cowctl undo goes back"* ]]
	NOW=$(tree_sum "$MNT")
	cow accept
	cow commit
	[ "$(tree_sum "$MNT")" = "$NOW" ]
	detach_whole ext4
	[ "$(bare_sum)" = "$NOW" ]
}

@test "undo: what does not go with a hold says so" {
	held ext4
	fails 1 "generation $HELD is held already" commit --hold
	fails 2 "mutually exclusive" commit --hold --timer
	fails 2 "mutually exclusive" commit "$MNT/big" --hold
	run -0 cow status
	[[ $output == *"generation $HELD of "*", until cowctl accept or undo"* ]]
	run -0 cow generations
	[[ $output == *held* ]]
	fails 1 "a generation is held" trim
	echo more >"$MNT/more"
	run -0 cow shutdown
	[[ $output == *"a generation is held, so part of it exists in the log only: run 'cowctl accept' or 'cowctl undo'"* ]]
	detach
	fails 1 "generation $HELD is held: first run cowctl accept" release "$CARD"
	fails 1 "generation $HELD is held: first run cowctl accept" grow "$CARD"
	fails 1 'is in use|holds|committed|log' prepare "$CARD"
	fails 4 'no volume is attached' undo
	fails 1 'nothing: No such file' undo "$T/nothing"
	cow accept "$CARD"
	fails 1 "no generation is held" accept "$CARD"
	cow release "$CARD"
	fails 1 "no generation is held" undo "$CARD"
}

@test "undo: single files are committed while a generation is held" {
	held ext4
	upgrade 1
	cow commit "$MNT/new1"
	cow commit
	detach
	cow undo "$CARD"
	attach_has "$SUM"
	detach_whole ext4
}

@test "undo: lag 1" {
	volume_mounted ext4 100 150 -- --lag 1
	fill_tree
	cow commit --hold
	SUM=$(tree_sum "$MNT")
	HELD=$(status_of .held.generation)
	three_commits
	detach
	cow undo "$CARD"
	attach_has "$SUM"
	ends_as_sum ext4
}

@test "undo: a log on another device" {
	card_make ext4 100 100
	truncate -s 64M "$T/log.img"
	loop_up "$T/log.img"
	cow prepare "$CARD" --log "$LOOP"
	attach_mounted --log "$LOOP"
	fill_tree
	cow commit --hold
	SUM=$(tree_sum "$MNT")
	HELD=$(status_of .held.generation)
	three_commits
	detach
	cow undo "$CARD" --log "$LOOP"
	attach_has "$SUM" --log "$LOOP"
	ends_as_sum ext4
}

tells() { [ "$(cow status --follow --once)" = "$1" ]; }

# What follows an undo of a running volume is lost like what came before it.
@test "undo: of a mounted volume, with commits, a worker and a daemon that are killed behind it" {
	held ext4
	COWFS_DEATHS=100
	three_commits
	fails 1 "no undo is pending" undo --cancel
	run -0 cow undo --dry-run
	[[ $output == "vol: would go back to generation $HELD of "*" when it is attached again: unmount it, then detach it; $((NEWEST - HELD)) commits since would be lost" ]]
	[ "$(status_of .held.undo_pending)" = false ]
	run -0 cow undo
	[[ $output == "vol: goes back to generation $HELD of "*"; $((NEWEST - HELD)) commits since are lost, and so is what follows. cowctl undo --cancel takes that back" ]]
	[ "$(status_of .held.undo_pending)" = true ]
	wait_for 10 tells "vol undo pending generation $HELD" # its file is written a moment later
	run -0 cow status --brief
	[[ $output == *"vol: UNDO PENDING: the next attach goes back to generation $HELD, and all later changes are lost. "* ]]
	cow undo
	[[ $(cow generations) == *"held, and the next attach goes back to it (cowctl undo)" ]]
	fails 1 "generation $HELD is held already" commit --hold
	upgrade 4
	cow commit
	[ "$(status_of .held.undo_pending)" = true ]
	NOW=$(tree_sum "$MNT")
	run -0 cow shutdown
	[[ $output == *"vol: not committed: the next start goes back to generation $HELD (cowctl undo)" ]]
	[ "$(tree_sum "$MNT")" = "$NOW" ]
	power_cut
	run -0 cow check "$CARD"
	[[ $output == *"goes back to generation $HELD"* ]]
	attach_has "$SUM"
	[ "$(status_of .undone.generation)" = "$HELD" ]
	wait_for 10 tells "vol undo done generation $HELD"
	fails 1 "it was attached at generation $HELD and has committed nothing" undo --cancel
	upgrade 5
	cow commit
	fails 1 "no generation is held" undo --cancel
	SUM=$(tree_sum "$MNT")
	ends_as_sum ext4
}

@test "undo: is taken back while the volume is mounted, and when it was detached" {
	held ext4
	three_commits
	cow undo
	run -0 cow undo --cancel
	[[ $output == "vol: stays at generation "*", and generation $HELD is still held: the card is no plain file system until cowctl accept" ]]
	[ "$(status_of .held.undo_pending)" = false ]
	cow undo
	upgrade 4
	cow commit
	NEWEST_SUM=$(tree_sum "$MNT")
	echo lost >"$MNT/lost"
	umount_volume
	run -0 cow detach
	[[ $output == *"not committed: the next start goes back to generation $HELD (cowctl undo)"* ]]
	wait_for 20 no_daemons
	# the next session writes nothing if it commits nothing
	attach
	mount_volume -o ro
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	detach --discard
	cow undo --cancel "$CARD"
	attach_has "$NEWEST_SUM"
	cow undo
	run -0 cow accept --dry-run
	[[ $output == "vol: generation $HELD would no longer be held, and nothing goes back to it: "*" of the log can be checkpointed then" ]]
	run -0 cow accept
	[[ $output == "vol: generation $HELD is no longer held, and nothing goes back to it" ]]
	SUM=$NEWEST_SUM
	ends_as_sum ext4
}

@test "undo: of a volume that is attached and not mounted is done at once" {
	held ext4
	three_commits
	umount_volume
	run -0 cow undo
	[[ $output == "vol: back at generation $HELD of "*" Until the next commit cowctl undo --cancel takes that back" ]]
	wait_for 20 no_daemons
	attach_has "$SUM"
	ends_as_sum ext4
}

@test "undo: a view, a recovery and a check of the card have the generation that it goes back to" {
	held ext4
	three_commits
	cow undo
	power_cut
	mkdir "$T/view"
	cow view "$CARD" "$T/view"
	[ "$(tree_sum "$T/view")" = "$SUM" ]
	umount "$T/view"
	wait_for 10 no_daemons
	cow release "$CARD"
	[ "$(bare_sum)" = "$SUM" ]
	fsck ext4
}

@test "undo: a worker that takes over goes on with what is in RAM, and later ones too" {
	local pid
	card_prepared ext4 100 150
	COWFS_DEATHS=100 attach --on-crash replace
	mount_volume
	fill_tree
	cow commit --hold
	SUM=$(tree_sum "$MNT")
	HELD=$(status_of .held.generation)
	three_commits
	cow undo
	for i in 4 5; do
		upgrade $i
		NOW=$(tree_sum "$MNT")
		pid=$(worker_pid)
		kill -9 "$pid"
		wait_for 20 taken_over "$pid"
		[ "$(status_of .held.undo_pending)" = true ]
		read_again "$MNT"
		[ "$(tree_sum "$MNT")" = "$NOW" ]
		cow commit
	done
	detach
	COWFS_DEATHS=100 attach --on-crash replace
	mount_has "$SUM"
	# and one that takes over from a session that went back
	for i in 6 7; do
		upgrade $i
		NOW=$(tree_sum "$MNT")
		pid=$(worker_pid)
		kill -9 "$pid"
		wait_for 20 taken_over "$pid"
		[ "$(status_of .undone.generation)" = "$HELD" ]
		[ "$(tree_sum "$MNT")" = "$NOW" ]
		cow commit
	done
	SUM=$NOW
	ends_as_sum ext4
}

taken_over() { # PID
	[ "$(worker_pid 2>/dev/null)" != "$1" ] && cow status >/dev/null 2>&1
}

@test "undo: hold = previous: each commit by hand can be taken back" {
	local n
	volume_mounted ext4 100 150 -- -- --hold previous
	fill_tree
	cow commit
	for n in 1 2; do
		SUM=$(tree_sum "$MNT")
		HELD=$(status_of .generation)
		upgrade "$n"
		run -0 cow commit --dry-run --json
		cow commit
		# the hold is a commit without blocks on top of what it holds
		[ "$(status_of .held.generation)" = $((HELD + 1)) ]
		# nothing has changed: it does not move
		cow commit
		[ "$(status_of .held.generation)" = $((HELD + 1)) ]
		echo "$n" >"$MNT/timer"
		cow commit --timer
		[ "$(status_of .held.generation)" = $((HELD + 1)) ]
	done
	cow undo
	echo more >"$MNT/more"
	cow commit # behind an undo it stays
	[ "$(status_of '"\(.held.generation) \(.held.undo_pending)"')" = "$((HELD + 1)) true" ]
	fails 1 "nothing is checkpointed" commit --checkpoint
	detach
	attach_has "$SUM" --hold previous
	upgrade 4
	cow commit
	[ "$(status_of .held)" != null ]
	echo boot >"$MNT/boot"
	run -0 cow commit --checkpoint
	[[ $output == *"no generation is held, because a checkpoint was asked for"* ]]
	[ "$(status_of '"\(.held) \(.log_live_blocks)"')" = "null 0" ]
	SUM=$(tree_sum "$MNT")
	ends_as_sum ext4
}

@test "undo: hold = previous: what has no room beside the held generation is committed without it" {
	local n
	volume_mounted ext4 100 150 -- --log-size 8M --erase-block 512K -- --hold previous
	fill_tree 2
	cow commit
	upgrade 3
	cow commit
	[ "$(status_of .held)" != null ]
	for n in $(seq 1 40); do
		dd if=/dev/urandom of="$MNT/big" bs=256K seek=$((n % 8)) count=2 conv=notrunc,fsync status=none
		run -0 cow commit --timer
		[ "$(status_of .held)" != null ] || break
	done
	[ "$n" -lt 40 ]
	# a commit because of RAM pressure may have been the one
	[ "$(status_of .pressure.commits)" != 0 ] || [[ $output == *"is no longer held: the log had no room for this commit beside it"* ]]
	upgrade 4
	cow commit
	[ "$(status_of .held)" != null ]
	# not if an undo waits for it
	cow undo
	until_refused --timer
	[ "$(status_of .held.undo_pending)" = true ]
	cow accept
	SUM=$(tree_sum "$MNT")
	ends_as_sum ext4
}

sees_held() { # FS [FS_MIB CARD_MIB]
	held "$@"
	echo old >"$MNT/lib/1/name"
	cow commit
	upgrade 1
	cow commit
	mkdir "$T/view" "$T/now"
	cow view vol "$T/view" --generation held
	[ "$(tree_sum "$T/view")" = "$SUM" ]
	umount "$T/view"
	cow view vol "$T/view" --generation "$HELD"
	cow view vol "$T/now" --generation "$(status_of .generation)"
	[ "$(tree_sum "$T/view")" = "$SUM" ]
	[ "$(tree_sum "$T/now")" = "$(tree_sum "$MNT")" ]
	umount "$T/now"
	fails 1 "generation 99999 is not on the card: there are $(status_of .generation), the newest, and $HELD, which is held" view vol "$T/now" --generation 99999
	fails 2 "neither a number nor held" view vol "$T/now" --generation last
	fails 2 "mutually exclusive" view vol "$T/now" --generation held --now
	[ -z "$(cow diff)" ]
	run -0 cow diff --generation held
	[[ $output == *"A "*"$MNT/new1/g1"* ]]
	# the same as of both trees, names only
	diff <(cow diff --generation held --json | jq -r '.files[] | select(.kind == "added" or .kind == "deleted") | .path' | sort) \
		<(cd "$T/view" && diff <(find . ! -path './lost+found*' | sort) <(cd "$MNT" && find . ! -path './lost+found*' | sort) | sed -n "s|^[<>] \.|$MNT|p" | sort)
	# the view stays when nothing on the card keeps that generation any more
	cow accept
	cow commit --checkpoint
	for i in 2 3; do
		upgrade $i
		cow commit --checkpoint
	done
	read_again "$T/view"
	[ "$(tree_sum "$T/view")" = "$SUM" ]
	umount "$T/view"
	fails 1 "no generation is held: the card has generation" diff --generation held
	detach_whole "$1"
}

@test "undo: a view of the held generation, and what has changed since: ext4" { sees_held ext4; }
@test "undo: a view of the held generation, and what has changed since: xfs" { sees_held xfs 320 420; }
@test "undo: a view of the held generation, and what has changed since: btrfs" { sees_held btrfs 150 250; }

@test "undo: a view of a card shows each of its generations, also behind an undo" {
	held ext4
	three_commits
	detach
	mkdir "$T/view"
	for undo in '' 1; do
		[ -z "$undo" ] || cow undo "$CARD"
		cow view "$CARD" "$T/view" --generation held
		[ "$(tree_sum "$T/view")" = "$SUM" ]
		umount "$T/view"
		wait_for 10 no_daemons
		run -0 cow view "$CARD" "$T/view" --generation "$(cow generations "$CARD" --json | jq .generations[0].generation)"
		[ "$(tree_sum "$T/view")" = "$NEWEST_SUM" ]
		umount "$T/view"
		wait_for 10 no_daemons
	done
	run -0 cow view "$CARD" "$T/view"
	[[ $output == *"generation $HELD of "* ]]
	[ "$(tree_sum "$T/view")" = "$SUM" ]
}

@test "undo: a refusal is no failed commit and no alarm, and an empty commit is not the last one" {
	local last
	held ext4
	commit_word one
	last=$(status_of .last)
	fails 1 'nothing is checkpointed' commit --checkpoint
	fails 1 'is held already' commit --hold
	fails 1 'is held already' run --volume vol -- true
	[ "$(status_of .last)" = "$last" ]
	[ "$(status_of '"\(.alarm) \(.degraded)"')" = " false" ]
	cow commit
	cow commit
	[ "$(status_of .last.report.written_bytes)" != 0 ]
	[ "$(status_of .last.generation)" = "$(status_of .generation)" ]
}

# $1 what is typed, then arguments of cowctl: on a terminal
typed() {
	timeout 300 python3 - "$@" <<-'END'
		import os, pty, sys
		sys.stdout.reconfigure(line_buffering=True)
		pid, fd = pty.fork()
		if pid == 0:
		    os.execv(os.environ["COWFS_BUILD"] + "/cowctl", ["cowctl"] + sys.argv[2:])
		os.write(fd, (sys.argv[1] + "\n").encode())
		text = b""
		try:
		    while part := os.read(fd, 4096):
		        text += part
		except OSError:
		    pass
		print(text.decode())
		sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
	END
}

@test "undo, discard: say what is lost, and ask on a terminal" {
	held ext4
	commit_word one
	run -1 typed n undo
	[[ $output == *"vol: would go back to generation $HELD of "*"1 commit since would be lost"*"Go on? [y/N]"*"nothing was changed"* ]]
	[ "$(status_of .held.undo_pending)" = false ]
	run -0 typed y undo
	[ "$(status_of .held.undo_pending)" = true ]
	run -0 typed '' undo --cancel
	run -0 typed '' undo --yes
	[ "$(status_of .held.undo_pending)" = true ]
	run -0 typed '' accept
	run -1 typed n discard
	[[ $output == *"that are not on the card would be lost at the next detach or shutdown"*"Go on? [y/N]"* ]]
	[ "$(status_of .discard_armed)" = false ]
	run -0 typed y discard
	[ "$(status_of .discard_armed)" = true ]
}
