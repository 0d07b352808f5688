# shellcheck shell=sh disable=SC2034,SC2086,SC2154
# SPDX-License-Identifier: MIT
# The daemon of the root is stopped and continued (SIGSTOP, SIGCONT) again and again under load and during commits, as shutdown does it.
# guests: debian12 debian13 busybox
LIMIT=900 STEP_LIMIT=700
case $GUEST in
busybox*) DISK_MIB=768 ;;
esac

daemons() {
	for d in /proc/[0-9]*; do
		[ "$(cat "$d/comm" 2>/dev/null)" != cowfs ] || echo "${d#/proc/}"
	done
}

step_1() {
	protected || fail "the root is $(root_device)"
	pids=$(daemons)
	[ "$pids" ] || fail "there is no daemon"
	mkdir /srv/p
	rounds=20
	[ -z "$LONG" ] || rounds=100
	: >/run/cowfs-test/go
	(
		n=0
		while [ -e /run/cowfs-test/go ]; do
			n=$(((n + 1) % 20))
			dd if=/dev/urandom of=/srv/p/$n bs=65536 count=32 2>/dev/null
			sync
		done
	) &
	load=$!
	n=0
	while [ $n -lt $rounds ]; do
		n=$((n + 1))
		[ $((n % 5)) != 0 ] || cowctl commit root >/dev/null 2>&1 &
		kill -STOP $pids
		sleep 0.3 2>/dev/null || sleep 1
		kill -CONT $pids
		sleep 0.2 2>/dev/null || sleep 1
	done
	# not killed: its dd would go on, into files that have their sum already
	rm /run/cowfs-test/go
	wait $load
	(cd /srv/p && sha256sum -- *) >/srv/sums
	is daemons "$(daemons)" "$pids"
	dmesg | grep -i 'i/o error\|ext4-fs error' && fail "errors in the kernel log"
	say "$rounds rounds"
}

step_2() {
	protected || fail "the root is $(root_device)"
	cd /srv/p && must sha256sum -c /srv/sums
}
