# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A root on trial (`cowctl commit --trial`): a good update is accepted by the system that comes up, and one whose init hangs is
# gone at the boot after that. One whose check fails restarts by itself, and is gone then, too.
# guests: debian12 debian13 busybox debian12-arm64
# short: busybox
KILLED="3 5"

step_1() {
	END=reboot
	protected || fail "the root is $(root_device)"
	mkdir -p /srv
	echo old >/srv/trial
	must cowctl commit root
	echo good >/srv/trial
	must cowctl commit root --trial 2
}

step_2() {
	END=reboot
	protected || fail "the root is $(root_device)"
	is "what /srv/trial has" "$(cat /srv/trial)" good
	dmesg | grep -q 'is ON TRIAL, 1 more boot' || fail "the boot is not counted"
	wait_for 100 accepted || fail "nothing accepts the root: $(cowctl status root)"
	echo bad >/srv/trial
	# a systemd in the initramfs starts that of the system, whatever /sbin/init is
	init=/usr/lib/systemd/systemd
	[ -e $init ] || init=/sbin/init
	rm $init
	printf '#!/bin/sh\necho this init hangs >/dev/console\nexec sleep 10000\n' >$init
	chmod 755 $init
	must cowctl commit root --trial 1
}

back() {
	protected || fail "the root is $(root_device)"
	is "what /srv/trial has" "$(cat /srv/trial)" good
	cowctl status root >/run/cowfs-test/out
	is "the status of cowctl status" $? 3
	grep -q 'this boot went back to generation .*: THE TRIAL HAS FAILED' /run/cowfs-test/out || fail "the status does not tell"
}

step_4() {
	END=reboot
	back
	must cowctl commit root
	mkdir -p /etc/cowfs/accept.d
	printf '#!/bin/sh\nexit 1\n' >/etc/cowfs/accept.d/bad
	chmod 755 /etc/cowfs/accept.d/bad
	must cowctl commit root --trial 1
}

# ends by itself
step_5() { END=none; }

step_6() {
	back
	[ ! -e /etc/cowfs/accept.d/bad ] || fail "the check is still there"
	must cowctl commit root
}

host_during() {
	[ "$1" != 3 ] || { console_wait "this init hangs" && vm_kill; }
}

host_after() {
	case $1 in
	3) grep -aq 'is ON TRIAL, 0 more boots' "$WORK/console-3" || fail "the console of boot 3 does not tell" ;;
	5) grep -aq 'ON TRIAL, and this boot is not accepted: restart in 30 s' "$WORK/console-5" || fail "the console of boot 5 does not tell" ;;
	4 | 6) grep -aq 'THE TRIAL HAS FAILED' "$WORK/console-$1" || fail "the console of boot $1 does not tell" ;;
	esac
}
