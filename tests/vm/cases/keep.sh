# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A kiosk: everything is forgotten but /srv/keep, which is committed by timer and before the discard at shutdown.
# guests: debian12 debian13 busybox
KILLED=3 LIMIT=700 STEP_LIMIT=600

step_1() {
	settled
	sed 's|^\[root\]|&\nkeep = /srv/keep\nkeep-interval = 30|' /etc/cowfs/cowfs.conf >/etc/cowfs/new && mv /etc/cowfs/new /etc/cowfs/cowfs.conf
	is "the paths" "$(cowctl config --key keep)" /srv/keep
	mkdir -p /srv/keep
	echo one >/srv/keep/a
	echo one >/srv-gone
}

step_2() {
	protected || fail "the root is $(root_device)"
	is "before" "$(cat /srv/keep/a /srv-gone)" "one
one"
	echo two >/srv/keep/a
	echo two >/srv-gone
}

kept() { cowctl status root | grep -q 'kept .*last committed 2'; }

step_3() {
	protected || fail "the root is $(root_device)"
	is "kept at shutdown, and the rest" "$(cat /srv/keep/a /srv-gone)" "two
one"
	wait_for 200 kept || fail "no keep in 200 s"
	echo three >/srv/keep/a
	echo three >/srv-gone
	sync
	sleep 75
	mark now
	sleep 100
}

step_4() {
	protected || fail "the root is $(root_device)"
	is "kept by the timer, and the rest" "$(cat /srv/keep/a /srv-gone)" "three
one"
}

host_before() {
	APPEND=
	[ "$1" = 1 ] || APPEND=cowfs=discard
}

host_during() {
	[ "$1" != 3 ] || { wait_mark now && vm_kill; }
}
