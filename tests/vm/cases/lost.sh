# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# All processes of the machine are killed, those of the root's daemon, too: what was committed is there after a restart that
# nobody has to ask for. A supervisor that is killed alone is no reason for one.
# guests: debian12 debian13
KILLED=''

watched() { [ "$(systemctl show -P MainPID cowfs-parent.service)" = "$worker" ]; }

step_1() {
	END=none
	protected || fail "the root is $(root_device)"
	wait_for 20 systemctl -q is-active cowfs-parent.service || fail "nothing watches the root"
	worker=$(cat /run/cowfs/root/pid)
	kill -9 "$(cat /run/cowfs/.root-parent)"
	wait_for 20 watched || fail "the worker is not watched"
	echo kept >/srv/lost
	must cowctl commit root
	echo lost >/srv/lost
	say "kills everything"
	sleep 1
	kill -9 -1
}

step_2() {
	END=none
	protected || fail "the root is $(root_device)"
	is "what /srv/lost has" "$(cat /srv/lost)" kept
	wait_for 20 systemctl -q is-active cowfs-parent.service || fail "nothing watches the root"
	say "kills everything"
	kill -9 -1
}

step_3() {
	protected || fail "the root is $(root_device)"
}
