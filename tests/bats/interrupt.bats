#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Ctrl-C: what goes on is said, and a second one stops what can be stopped. The line of the progress in a narrow terminal.

load lib

protect() {
	card_prepared ext4 200 250 -J size=8
	shim_mounted
}

# A command in the background that does not ignore SIGINT, as a shell's job would. Its messages: $T/said
start() {
	: >"$T/said"
	background env --default-signal=INT timeout -k 5 300 env --default-signal=INT "$@" >"$T/out" 2>"$T/said"
	# the child of timeout gets the signal
	wait_for 10 pgrep -P "$BG" >/dev/null
	CHILD=$(pgrep -P "$BG")
}

interrupt() { # WHAT IT SAYS
	kill -INT "$CHILD"
	wait_for 10 grep -q "$1" "$T/said"
}

commit_interrupted() {
	random_file "$MNT/a" 30
	eio slow 60000
	start "$COWFS_BUILD/cowctl" commit
	wait_for 10 job_is commit
	interrupt 'the daemon goes on with it, and the card is safe'
}

@test "interrupt: a commit goes on in the daemon; the second one ends the wait" {
	protect
	commit_interrupted
	kill -0 "$CHILD"
	interrupt 'not waiting any longer'
	status=0
	wait "$BG" || status=$?
	[ "$status" = 130 ]
	[ ! -s "$T/out" ]
	eio off
	wait_for 20 job_is null
	[ "$(status_of '[.last.ok, .generation] | @csv')" = true,1 ]
	# one is no reason to end
	commit_interrupted
	eio off
	wait "$BG"
	grep -q 'as generation 2 in' "$T/out"
	detach_whole ext4
}

# Programs that take as long as wanted, in front of those of e2fsprogs; the shrink uses only the system's folders.
slow_tool() {
	printf '#!/bin/sh\necho $$ >"%s"\nexec sleep 100\n' "$T/tool" >"$T/slow"
	chmod +x "$T/slow"
}

@test "interrupt: prepare --shrink stops before its commit, and has written nothing" {
	local before tool
	card_make ext4 100 100 -J size=8
	before=$(image_sum)
	slow_tool
	# in a mount namespace of its own: other tests need their resize2fs
	tool=$(PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v resize2fs)
	start unshare --mount --propagation private sh -c 'mount --bind "$1" "$2" && exec "$3" prepare --shrink "$4"' sh \
		"$T/slow" "$tool" "$COWFS_BUILD/cowctl" "$CARD"
	wait_for 20 [ -s "$T/tool" ]
	interrupt 'nothing is written to the card before the commit'
	kill -0 "$(cat "$T/tool")"
	interrupt 'stopping'
	status=0
	wait "$BG" || status=$?
	[ "$status" = 1 ]
	grep -q "$CARD: stopped; nothing was written to it" "$T/said"
	[ "$(image_sum)" = "$before" ]
	[ "$(blockdev --getro "$CARD")" = 0 ]
	cow prepare --shrink "$CARD"
	fsck ext4
}

# cowctl starts the daemon that lies beside it; this one takes its time.
@test "interrupt: attach; the daemon starts all the same" {
	card_prepared ext4 100 150
	mkdir "$T/bin"
	cp "$COWFS_BUILD/cowctl" "$T/bin/"
	printf '#!/bin/sh\ntouch "%s/started"\nwhile [ ! -e "%s/go" ]; do sleep 0.1; done\nexec "%s/cowfs" "$@"\n' "$T" "$T" "$COWFS_BUILD" >"$T/bin/cowfs"
	chmod +x "$T/bin/cowfs"
	start "$T/bin/cowctl" attach "$CARD" --name vol
	wait_for 10 [ -e "$T/started" ]
	interrupt 'the daemon starts, and writes nothing to the card'
	interrupt 'not waiting any longer'
	status=0
	wait "$BG" || status=$?
	[ "$status" = 130 ]
	touch "$T/go"
	wait_for 20 cow status vol >/dev/null
	NAME=vol DEV=$(status_of .loop)
	is_volume
	detach
}

@test "progress: it fits a narrow terminal" {
	local columns
	protect
	for columns in 30 60; do
		random_file "$MNT/a" 25
		eio slow 60
		TERM=xterm timeout 300 script -q -e -c "stty cols $columns; $COWFS_BUILD/cowctl commit 2>&1 >$T/out" "$T/typescript" >/dev/null
		eio off
		python3 - "$T/typescript" $columns <<-'END'
			import re, sys
			lines = re.split(rb"\r|\n", open(sys.argv[1], "rb").read())
			shown = [l.replace(b"\x1b[K", b"") for l in lines if l.endswith(b"\x1b[K") and len(l) > 3]
			assert shown, lines
			assert max(map(len, shown)) < int(sys.argv[2]), shown
			for l in shown:
			    for p in re.findall(rb"(\d+) %", l):
			        assert int(p) <= 100, l
		END
	done
	detach
}
