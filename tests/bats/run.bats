#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl run: all that a command changes is kept, or nothing, whatever ends it.
# seconds: 35

load lib

volume() {
	volume_mounted "${1:-ext4}" "${2:-100}" "${3:-150}"
	mkdir "$MNT/lib"
	random_file "$MNT/lib/a" 2
	random_file "$MNT/lib/b" 1
	SUM=$(tree_sum "$MNT")
}

# Like a package manager: files replaced, removed and added, a sync now and then. $1: what it does at the end
installer() {
	cat >"$T/installer" <<-EOF
		set -e
		cd "$MNT"
		head -c 500000 /dev/urandom >lib/a.new
		mv lib/a.new lib/a
		rm -f lib/b
		sync -f .
		mkdir -p new
		for i in 1 2 3 4 5 6; do head -c 90000 /dev/urandom >new/f\$i; done
		sync -f .
		$1
	EOF
}

was_before() {
	attach_has "$SUM"
	[ "$(status_of .held)" = null ] || return
	detach_whole "${1:-ext4}"
}

keeps() {
	volume "$@"
	installer 'echo out; echo err >&2'
	run -0 --separate-stderr cow run --volume vol -- sh "$T/installer"
	[ "$output" = out ]
	[[ $stderr == *"cowctl: vol: sh is kept: generation "* ]]
	[ "$(status_of '"\(.held) \(.dirty_bytes)"')" = "null 0" ] || [ "$(status_of .held)" = null ]
	SUM=$(tree_sum "$MNT")
	[ -e "$MNT/new/f6" ]
	power_cut
	was_before "$1"
}

@test "run: a command that succeeds is kept, in one piece: ext4" { keeps ext4; }
@test "run: a command that succeeds is kept, in one piece: xfs" { keeps xfs 320 420; }

fails_and_goes_back() {
	volume "$@"
	installer 'exit 37'
	run -37 --separate-stderr cow run --volume vol -- sh "$T/installer"
	[[ $stderr == *"sh: exit code 37. vol: generation "*" comes back at the next attach, and what is committed until then is lost. To keep what is there now: cowctl accept vol"* ]]
	[ -e "$MNT/new/f6" ] # it goes on with what is there
	echo later >"$MNT/later"
	run -0 cow commit
	[[ $output == *"UNDO PENDING: the next start goes back to generation "*", and this commit is lost. To keep it: cowctl undo --cancel, or cowctl accept" ]]
	run -0 cow commit --json
	[[ $(jq -r .remark <<<"$output") == "UNDO PENDING: "* ]]
	umount_volume
	run -0 --separate-stderr cow detach
	[[ $stderr == *"vol: UNDO PENDING: the next attach goes back to generation "*", and all later changes are lost. "* ]]
	wait_for 20 no_daemons
	was_before "$1"
}

@test "run: a command that fails is not kept: ext4" { fails_and_goes_back ext4; }
@test "run: a command that fails is not kept: btrfs" { fails_and_goes_back btrfs 150 250; }

@test "run: what cannot be synced is neither held nor kept" {
	COWFS_SYNC_HANGS=$T/hang with_shim volume
	touch "$T/hang"
	fails 1 'nothing is held. And the file system could not be synced' commit --hold
	rm "$T/hang"
	run -1 --separate-stderr cow run --volume vol -- sh -c "touch $T/hang; echo new >$MNT/new"
	[[ $stderr == *"could not be synced. First commit again"*"comes back at the next attach"* ]]
	rm "$T/hang"
	cow commit
	cow accept
	[ "$(status_of .held)" = null ]
}

@test "run: a command whose writes fail is not kept" {
	volume_mounted ext4 100 150 -J size=4 -- -- --ram 32M --pressure fail
	run -1 --separate-stderr cow run --volume vol -- sh -c "head -c 60M /dev/urandom >$MNT/new; true"
	[[ $stderr == *"the card may lack a part of what sh has written: writes have failed"*"comes back at the next attach"* ]]
}

@test "run: after a failure accept keeps what is there" {
	volume
	installer 'exit 1'
	run -1 cow run --volume vol -- sh "$T/installer"
	cow accept
	cow commit
	SUM=$(tree_sum "$MNT")
	power_cut
	was_before
}

# A command that waits; its process is $PID. Others commit meanwhile.
runs() {
	local i
	volume
	installer "$1"
	background "$COWFS_BUILD/cowctl" run --volume vol -- sh "$T/installer"
	wait_for 20 test -s "$MNT/pid"
	PID=$(cat "$MNT/pid")
	echo "$PID" >>"$T/jobs"
	for i in 1 2 3; do
		echo $i >"$MNT/by-others"
		cow commit
	done
	[ "$(status_of .held.undo_pending)" = true ]
}
WAITS='echo $$ >pid; cd /; exec sleep 1000'

ends_with() { # CODE
	local code=0
	wait "$BG" || code=$?
	[ $code = "$1" ]
}

@test "run: the power is cut in the middle" {
	runs "$WAITS"
	power_cut
	kill "$PID"
	ends_with 143
	was_before
}

@test "run: the command is killed in the middle" {
	runs "$WAITS"
	kill -9 "$PID"
	ends_with 137
	detach
	was_before
}

@test "run: SIGTERM and SIGHUP go to the command" {
	runs 'trap "exit 3" TERM; trap "touch hup" HUP; echo $$ >pid; for i in $(seq 9000); do sleep 0.1; done'
	kill -HUP "$BG"
	wait_for 20 test -e "$MNT/hup"
	kill -TERM "$BG"
	ends_with 3
	detach
	was_before
}

@test "run: cowctl itself is killed" {
	runs "$WAITS"
	kill -9 "$BG"
	ends_with 137
	kill "$PID"
	wait_for 20 ended "$PID"
	detach
	was_before
}

# A command that overwrites more than the log and RAM hold
fills_log() { # FS SIZE CARD
	volume_mounted "$1" "$2" "$3" -- --log-size 8M --erase-block 512K -- --ram 24M
	mkdir "$MNT/lib"
	random_file "$MNT/lib/a" 90
	cow commit
	SUM=$(tree_sum "$MNT")
	run timeout 300 "$COWFS_BUILD/cowctl" run --volume vol -- sh -c "
		while dd if=/dev/urandom of='$MNT/lib/a' bs=1M count=90 conv=notrunc,fsync; do :; done
		touch '$T/failed'"
	[ "$status" = 143 ]
	[[ $output == *"cowctl: sh was ended: not committed: the log has no room for this commit while generation "*" available. vol: generation "*" comes back at the next attach"*"cowctl accept vol" ]]
	[ ! -e "$T/failed" ]
	sync -f "$MNT"
	[ "$(status_of .write_errors)" = 0 ]
}

@test "run: what is overwritten fills the log: the command is ended before a write fails, and undone" {
	fills_log ext4 200 250
	power_cut
	was_before
}

@test "run: what is overwritten fills the log: accept keeps all that was written" {
	fills_log ext4 200 250
	cow accept
	cow commit
	[ "$(status_of .alarm)" = "" ]
	SUM=$(tree_sum "$MNT")
	power_cut
	was_before
}

@test "run: what is wrong" {
	volume
	fails 2 'usage: cowctl run' run
	fails 2 'unknown option -c' run sh -c true
	# a slip holds nothing
	for slip in "$T/none" apt-gett "$T/text"; do
		run -127 cow run --volume vol -- "$slip" -y upgrade
		[ "$output" = "cowctl: $slip: no such program; nothing was held" ]
		[ "$(status_of .held)" = null ]
	done
	fails 2 'vol is a volume: cowctl run --volume vol -- COMMAND' run vol -- sh -c true
	fails 4 'run is for the root; of another volume: cowctl run --volume N -- COMMAND' run -- true
	# what no PATH tells
	printf '\177ELF' >"$T/broken"
	chmod +x "$T/broken"
	run -127 cow run --volume vol -- "$T/broken"
	[ "$(status_of .held)" = null ]
	cow commit --hold
	fails 1 'is held already' run --volume vol -- true
	cow accept
	# inside of another one
	run -1 cow run --volume vol -- "$COWFS_BUILD/cowctl" run --volume vol -- true
	[[ $output == *"is held already"*"comes back"* ]]
	cow accept
	fails 4 'no volume is attached as other' run --volume other -- true
	run -0 --separate-stderr cow run --volume vol --json -- true
	[ "$(jq -c '[.ok, .name]' <<<"$output")" = '[true,"vol"]' ]
	fails 1 'exit code 1' run --volume vol --json -- false
	cow accept
	detach
}
