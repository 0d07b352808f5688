#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# tests/check.sh, which makes the parts of `make check`: its summary, and that nothing is left of it when it is interrupted.
# seconds: 100

load lib

# Three parts, one of them beside the others: bats files, and file systems with a killed daemon. TEST_MARK finds their processes.
a_check() {
	mkdir "$T/bin" # sync(2) waits for all volumes of the machine, and other tests have theirs
	printf '#!/bin/sh\n[ $# = 0 ] || exec /bin/sync "$@"\n' >"$T/bin/sync"
	chmod +x "$T/bin/sync"
	PATH=$T/bin:$PATH
	cat >"$T/Makefile" <<-END
		.RECIPEPREFIX = >
		export COWFS_BUILD := $COWFS_BUILD
		check:
		>@exec $BATS_TEST_DIRNAME/../check.sh "\$(MAKE)" first bats last -- volumes
		first last:
		>@sleep 0.1
		bad:
		>@echo 'x.c: bad'; echo 'x.c:3:1: error: it is bad'; echo 'bad make bad ONE="of it"' >>\$\$COWFS_CHECK_AGAIN; exit 3
		short:
		>@exec $BATS_TEST_DIRNAME/../check.sh "\$(MAKE)" first bad last -- first
		loop:
		>@truncate -s 1M "\$\$TMPDIR/disk" && losetup -f "\$\$TMPDIR/disk" && rm "\$\$TMPDIR/disk"
		stuck:
		>@cat "$T/silent/file"
		hangs:
		>@exec $BATS_TEST_DIRNAME/../check.sh "\$(MAKE)" first stuck last -- first
		leaves:
		>@exec $BATS_TEST_DIRNAME/../check.sh "\$(MAKE)" first loop
		bats:
		>@exec $BATS_TEST_DIRNAME/../run-bats.sh \$(addprefix $BATS_TEST_DIRNAME/,attach.bats hostile.bats interrupt.bats)
		volumes:
		>@exec $BATS_TEST_DIRNAME/../layouts.sh --short
	END
}

teardown() {
	. "$BATS_TEST_DIRNAME/../end.bash"
	mapfile -t left < <(grep -slzxF "TEST_MARK=$T" /proc/[0-9]*/environ | cut -d/ -f3)
	[ ${#left[@]} = 0 ] || kill_with_mounts "${left[@]}"
	cow_teardown
}

# make in place of this shell, without what bats and a make around it have set
outside() {
	mkdir -p "$T/tmp"
	exec env -i PATH="${PATH#/usr/libexec/bats-core:}" HOME=/root LC_ALL=C TMPDIR="$T/tmp" COWFS_BUILD="$COWFS_BUILD" TEST_MARK="$T" "$@"
}

left() {
	grep -slzxF "TEST_MARK=$T" /proc/[0-9]*/environ
	losetup -nl -O NAME,BACK-FILE | grep -F "$T/"
	find "$T/tmp" -mindepth 1 -maxdepth 1
	grep -hF "$T/" /proc/[0-9]*/mountinfo 2>/dev/null
	true
}
nothing_left() { [ -z "$(left)" ]; }
nothing_left_but_mounts() { [ -z "$(grep -slzxF "TEST_MARK=$T" /proc/[0-9]*/environ)" ]; }
devices() { [ "$(losetup -nl -O BACK-FILE | grep -cF "$T/tmp")" -ge "$1" ]; }

# signal $1 for make ($2: -, or nothing for it alone) when so many devices are there: $3
interrupted() {
	local code=0 group from
	: >"$T/out"
	outside setsid env --default-signal make -C "$T" check >>"$T/out" 2>&1 3>&- &
	group=$!
	wait_for 180 devices "$3" || { cat "$T/out"; return 1; }
	sleep "0.$((RANDOM % 10))"
	from=$SECONDS
	kill -s "$1" -- "$2$group"
	wait $group || code=$?
	say "SIG$1 for ${2:+all of }make: exit $code after $((SECONDS - from)) s"
	wait_for 10 nothing_left || { cat "$T/out"; left; return 1; }
	[ $code != 0 ]
	grep -q "interrupted *bats" "$T/out"
	! grep -A 5 "left these processes\|left behind" "$T/out"
}

@test "check: interrupted it leaves nothing behind" {
	RANDOM=${EPOCHREALTIME#*.}
	a_check
	interrupted INT - 2
	interrupted TERM '' 1
	interrupted TERM - 3
}

@test "check: the summary says what failed, what passed and what took longest" {
	a_check
	run ! outside make -C "$T" short
	grep -qE '^check: FAILED: 3 of 4 parts passed in [0-9]+ min [0-9]+ s$' <<<"$output"
	grep -qE '^  FAILED +bad +[0-9]+ s   make bad ONE="of it"$' <<<"$output"
	grep -qE '^  passed:  first first last$' <<<"$output"
	[ "$(sed -n '/^check: FAILED/,$p' <<<"$output" | grep -cE '^ +[0-9]+ s  ')" = 4 ]
	# what make says follows
	[ "$(grep -v '^make' <<<"$output" | tail -n 1)" = 'first failure: x.c:3:1: error: it is bad' ]
}

@test "check: a loop device that a part leaves is named and detached" {
	a_check
	run ! outside make -C "$T" leaves
	grep -qE "^/dev/loop[0-9]+ +$T/tmp/ck\.[^/]+/disk \(deleted\)$" <<<"$output"
	grep -qE '^check: FAILED: 2 of 3 parts passed' <<<"$output"
	wait_for 10 nothing_left
}

# The read of a request that its server has taken and never answers ends by no signal.
@test "check: a part that sleeps where no signal reaches is named, with where, and nothing waits for it" {
	local server
	a_check
	mkdir "$T/silent"
	"$BATS_TEST_DIRNAME/../tools/fuse_silent.py" "$T/silent" >"$T/server" 2>&1 3>&- &
	server=$!
	wait_for 10 [ -s "$T/server" ]
	run ! outside COWFS_CHECK_SECONDS=5 make -C "$T" hangs
	grep -q '^request' "$T/server"
	grep -slzxF "TEST_MARK=$T" /proc/[0-9]*/environ >"$T/still" || true # it was stuck until now
	kill $server # the kernel then ends the connection
	wait_for 10 nothing_left_but_mounts
	umount "$T/silent"
	[ -s "$T/still" ]
	grep -q '^check: stuck hangs. Processes that cannot be killed, and where they wait:$' <<<"$output"
	grep -qE '^[0-9]+ cat, state D, in [a-z_]*(fuse|request)[a-z_]*$' <<<"$output"
	grep -qE '^\[<0>\] .*fuse' <<<"$output"
	grep -qE '^  out of time, not tidy *stuck ' <<<"$output"
	grep -qE '^  not run +last ' <<<"$output"
}

@test "check: where sync(2) hangs, it says so and begins nothing" {
	a_check
	printf '#!/bin/sh\nexec sleep 300\n' >"$T/bin/sync"
	run ! outside COWFS_SYNC_SECONDS=1 make -C "$T" short
	grep -q '^check: sync(2) hangs on this machine, before anything has run' <<<"$output"
	run ! grep -E 'bad|parts' <<<"$output"
}

# which of the files 1 to 6, that take turns, and 7 run: $1 the commit, $2 COWFS_ALSO
taken() {
	(outside COWFS_TURN="$1" COWFS_ALSO="${2-}" "$BATS_TEST_DIRNAME/../run-bats.sh" "$T"/[1-7].bats) >"$T/out"
	sed -n 's/^  ok    \([1-7]\) .*/\1/p' "$T/out" | sort | xargs
}

@test "check: a third of the files with a turn runs with each commit, what is named in any case, and all have a turn" {
	local n commit all=''
	for n in 1 2 3 4 5 6 7; do
		{ [ $n = 7 ] || echo '# turn: 3'; printf '@test "it" {\n\ttrue\n}\n'; } >"$T/$n.bats"
	done
	for commit in a b c; do
		run -0 taken $commit
		[[ $output =~ ^[1-6]\ [1-6]\ 7$ ]]
		grep -q ' 0 and 4 files have their turn with another commit$' "$T/out"
		all+=" $output"
	done
	[ "$(tr ' ' '\n' <<<"$all" | sort -u | xargs)" = "1 2 3 4 5 6 7" ]
	[ "$(taken a '1 2 3 4 5')" = "$(tr ' ' '\n' <<<"1 2 3 4 5 $(taken a)" | sort -u | xargs)" ]
	[ "$(taken '')" = "1 2 3 4 5 6 7" ]
}
