# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Not one write to the card over a whole boot and a minute (long form: ten) of a workload that logs and syncs.
# guests: debian12 debian13 busybox
# short:
LIMIT=1500 STEP_LIMIT=1300

step_1() {
	settled
}

step_2() {
	protected || fail "the root is $(root_device)"
	seconds=60
	[ -z "$LONG" ] || seconds=600
	# a timer commit is a commit: not in this test
	must cowctl inhibit root --for 30m
	start=$(cut -d. -f1 /proc/uptime) n=0
	while [ $(($(cut -d. -f1 /proc/uptime) - start)) -lt $seconds ]; do
		n=$((n + 1))
		echo "$(date) line $n of a program that logs" >>/var/log/test.log
		sync /var/log/test.log 2>/dev/null || sync
		[ ! -x /usr/bin/logger ] || logger "line $n"
		[ $((n % 50)) != 0 ] || { mv /var/log/test.log /var/log/test.log.1 && dd if=/dev/zero of=/var/log/rotated bs=4k count=64 2>/dev/null; }
		sleep 0.2 2>/dev/null || sleep 1
	done
	say "$n lines in $seconds s"
	is "sectors written" "$(card_written)" 0
	is "sectors discarded" "$(card_discarded)" 0
	mark quiet
	sleep 5
}

host_during() {
	[ "$1" != 1 ] || return 0
	wait_mark quiet
	# shellcheck disable=SC2046 # words
	set -- $(qemu_writes)
	[ "$1 $3" = "0 0" ] || fail "QEMU has seen $1 writes and $3 discards"
}
