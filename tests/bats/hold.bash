# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Behind lib: an ordinary user (nobody) who wants to hold up what needs the volume's file system.

hold_setup() {
	cow_setup || return
	export TMPDIR=$T
	OWN_NAME=hold$$
	mkdir "$T/fusectl" # shared by all tests of this machine: only what belongs to a process of ours is touched
	mount -t fusectl none "$T/fusectl"
}

# CONNECTION PID. A connection that has ended leaves its number to the next mount, which may be a view of another test.
abort_held() {
	! grep -q "^[0-9]* [0-9]* 0:$1 " "/proc/$2/mountinfo" 2>/dev/null || echo 1 >"$T/fusectl/$1/abort"
}

# A task that sleeps in FUSE dies only when its connection is aborted.
hold_teardown() {
	local conn pid
	[ ! -e "${T-}/conns" ] || while read -r conn pid; do
		abort_held "$conn" "$pid" 2>/dev/null || true
	done <"$T/conns"
	cow_teardown
}

asleep() { [[ $(cat "/proc/$1/stat") == *") "[SD]" "* ]] && grep -qv running "/proc/$1/syscall"; }

# nobody hangs in a call on file $1 of the volume: hold FILE HOW [ARGUMENT]
hold() {
	background "$COWFS_BUILD/tests/fusehang" hold "$@" >"$T/hold"
	HELD=$BG
	wait_for 10 grep -q ready "$T/hold"
	echo "$(awk '{ print $2 }' "$T/hold") $HELD" >>"$T/conns"
	wait_for 5 asleep "$HELD"
	sleep 0.2
	[ "$(stat -c %u "/proc/$HELD")" = 65534 ]
}

let_go() {
	local conn pid
	read -r conn pid < <(tail -n 1 "$T/conns")
	abort_held "$conn" "$pid"
	wait "$HELD"
}

# A mounted volume that everybody may write to.
protect() { # FS [MKFS_OPTION]...
	case $1 in
	# much of an xfs goes to the log, and a log that fills up makes commits of its own
	xfs) card_make xfs 320 680 "${@:2}"; cow prepare "$CARD" --log-size 340M ;;
	*) card_make "$1" 200 300 "${@:2}"; cow prepare "$CARD" ;;
	esac
	attach_mounted
	chmod 1777 "$MNT"
}

# root writes to the volume: what holds a writer holds it until let_go
can_write() { timeout "$(patience 10)" sh -c "echo $RANDOM >'$MNT/root-$RANDOM'"; }

# nobody holds a lease on each of these files and does not hear that it is to be given back; programs of nobody wait for them in
# open(O_TRUNC) and truncate(), all the time
leases() {
	background setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c '
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
held = [os.open(p, os.O_RDWR) for p in sys.argv[1:]]
for f in held:
    fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)
for i, path in enumerate(sys.argv[1:]):
    if os.fork() == 0:
        for f in held:
            os.close(f)
        while True:
            if i % 2:
                os.truncate(path, 0)
            else:
                os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
for _ in held:
    os.wait()' "$@"
	HELD=$BG
}

waits_for_leases() { [ "$(grep -l break_lease $(printf '/proc/%s/wchan ' $(pgrep -P "$HELD")) 2>/dev/null | wc -l)" = "$1" ]; }
