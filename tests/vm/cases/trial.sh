# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A root on trial (`cowctl commit --trial`): a good update is accepted by the system that comes up, and one whose init hangs is
# gone at the boot after that.
# guests: debian12 debian13 busybox
# short: busybox
KILLED=3

step_1() {
	END=reboot
	protected || fail "the root is $(root_device)"
	mkdir -p /srv
	echo old >/srv/trial
	must cowctl commit root
	echo good >/srv/trial
	must cowctl commit root --trial 2
}

accepted() { cowctl status root --json | grep -qv '"held":'; }

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
	printf '#!/bin/sh\necho this init hangs\nexec sleep 10000\n' >$init
	chmod 755 $init
	must cowctl commit root --trial 1
}

step_4() {
	protected || fail "the root is $(root_device)"
	is "what /srv/trial has" "$(cat /srv/trial)" good
	must cowctl status root
	grep -q 'this boot went back to generation' /run/cowfs-test/out || fail "the status does not tell"
	must cowctl commit root
}

host_during() {
	[ "$1" != 3 ] || { console_wait "this init hangs" && vm_kill; }
}

host_after() {
	case $1 in
	3) grep -aq 'is ON TRIAL, 0 more boots' "$WORK/console-3" || fail "the console of boot 3 does not tell" ;;
	4) grep -aq 'THE TRIAL HAS FAILED' "$WORK/console-4" || fail "the console of boot 4 does not tell" ;;
	esac
}
