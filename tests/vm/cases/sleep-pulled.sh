# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# While the system sleeps, the SD card of the root is pulled and put back: the volume goes on, and commits. Without the card: sleep-gone.
# guests: debian12-generic
# short:
MEM=640 DRIVE=mmc DISK_MIB=2048 LIMIT=600 STEP_LIMIT=500

is_here() { ! cowctl status root | grep -q '^AWAY'; }

step_1() {
	protected || fail "the root is $(root_device)"
	settled
	echo before >/srv/through
	must cowctl commit root
	mark asleep
	systemctl start systemd-suspend.service >/run/cowfs-test/out 2>&1 || fail "suspend: $(cat /run/cowfs-test/out)"
	echo behind >/srv/through
	wait_for 60 cowctl commit root || fail "no commit: $(cowctl status root)"
	wait_for 30 is_here || fail "status says: $(cowctl status root)"
	say "pulled and put back: $(cowctl status root | grep '^away' || echo 'never away')"
	echo 3 >/proc/sys/vm/drop_caches
	is "the file" "$(cat /srv/through)" behind
}

step_2() {
	protected || fail "the root is $(root_device)"
	is "the file" "$(cat /srv/through)" behind
}

host_during() {
	[ "$1" = 1 ] || return 0
	wait_mark asleep
	until qmp query-status 2>/dev/null | grep -q suspended; do sleep 1; done
	sleep 4
	card_out card
	sleep 3
	card_in card
	qmp system_wakeup >/dev/null
}
