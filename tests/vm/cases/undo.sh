# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# `cowctl undo` of the root: the next boot has the held generation, after a reboot and after a power cut; what came behind the
# undo is lost, too. Taken back, the newest generation stays.
# guests: debian12 debian13 busybox
# short: busybox
KILLED=2

held() { # what /srv/undo has from now on
	protected || fail "the root is $(root_device)"
	mkdir -p /srv
	echo "$1" >/srv/undo
	must cowctl commit root --hold
}

changed() { # to this, in two commits
	echo between >/srv/undo
	echo new >/srv/undo-new
	must cowctl commit root
	echo "$1" >/srv/undo
	must cowctl commit root
}

back_at() { # this content
	protected || fail "the root is $(root_device)"
	is "what /srv/undo has" "$(cat /srv/undo)" "$1"
	[ ! -e /srv/undo-new ] || fail "a file of a commit that was undone"
	must cowctl status root
	grep -q 'this boot went back to generation' /run/cowfs-test/out || fail "the status does not tell"
	dmesg | grep -q 'cowfs: root: .*BACK AT GENERATION' || fail "the kernel log does not tell"
}

step_1() {
	END=reboot
	held one
	changed two
	must cowctl undo root
	grep -q 'at the next boot; 2 commits since are lost' /run/cowfs-test/out || fail "undo says $(cat /run/cowfs-test/out)"
	is "what /srv/undo has after the undo" "$(cat /srv/undo)" two
	echo three >/srv/undo
	must cowctl commit root
	echo four >/srv/undo
}

step_2() {
	back_at one
	changed two
	cowctl undo root 2>/dev/null && fail "an undo without a hold"
	rm /srv/undo-new
	held three
	changed four
	must cowctl undo root
	echo five >/srv/undo
	must cowctl commit root
	mark undone
	sleep 60
}

step_3() {
	END=reboot
	back_at three
	held six
	changed seven
	must cowctl undo root
	must cowctl undo root --cancel
	echo eight >/srv/undo
}

step_4() {
	protected || fail "the root is $(root_device)"
	is "what /srv/undo has" "$(cat /srv/undo)" eight
	[ -e /srv/undo-new ] || fail "the new file is gone"
	must cowctl accept root
}

host_during() {
	[ "$1" != 2 ] || { wait_mark undone && vm_kill; }
}

host_after() {
	case $1 in
	1) grep -aq 'cowfs: root: not committed: the next start goes back to generation' "$WORK/console-1" || fail "the shutdown does not tell" ;;
	2 | 3) grep -aq 'BACK AT GENERATION' "$WORK/console-$1" || fail "the console of boot $1 does not tell" ;;
	esac
}
