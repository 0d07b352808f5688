# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Commits by timer: one comes by itself, none while nothing has changed (busybox), and what it wrote survives the plug.
# guests: debian12 debian13 busybox busybox-arm64 debian12-arm64 debian13-arm64
KILLED=2 LIMIT=700 STEP_LIMIT=600

step_1() {
	protected || fail "the root is $(root_device)"
	sed 's/^\[root\]/&\ncommit-interval = 60/' /etc/cowfs/cowfs.conf >/etc/cowfs/new && mv /etc/cowfs/new /etc/cowfs/cowfs.conf
	is "the interval" "$(cowctl config --key commit-interval)" 60
}

committed() { [ "$(card_written)" != "$1" ]; }

step_2() {
	protected || fail "the root is $(root_device)"
	echo timer >/srv-timer
	sync
	before=$(card_written)
	wait_for 200 committed "$before" || fail "no commit in 200 s"
	sleep 5
	# only there nothing else writes, such as a journal
	case $GUEST in
	busybox*)
		after=$(card_written)
		sleep 80
		is "sectors written with nothing changed" "$(card_written)" "$after"
		;;
	esac
	mark now
	sleep 100
}

step_3() {
	protected || fail "the root is $(root_device)"
	is "what the timer committed" "$(cat /srv-timer)" timer
}

host_during() {
	[ "$1" != 2 ] || { wait_mark now && vm_kill; }
}
