# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# As trial-broken, but these updates do not come so far: an init that ends (a panic), no libc, and a system that hangs, which a
# watchdog of QEMU ends.
# guests: debian12-generic debian13
. "$CASES/trial-broken.sh"
KILLED="2 4 6" BOOTS=7 DEVICES="-device i6300esb -action watchdog=reset"

step_1() {
	protected || fail "the root is $(root_device)"
	mkdir -p /srv
	echo old >/srv/trial
	must cowctl commit root
	rm /usr/lib/systemd/systemd
	printf '#!/bin/sh\necho this init ends\n' >/usr/lib/systemd/systemd
	chmod 755 /usr/lib/systemd/systemd
	on_trial init 1
}

step_3() {
	back
	# /run has noexec
	mkdir /srv/lib
	libc=$(ls /lib/*-linux-gnu*/libc.so.6)
	cp "$libc" /srv/lib/
	LD_LIBRARY_PATH=/srv/lib
	export LD_LIBRARY_PATH
	mv "$libc" "$libc.gone"
	on_trial libc 1
	# nothing can shut this down
	END=none
	(sleep 5 && echo b >/proc/sysrq-trigger) &
}

step_5() {
	back
	mkdir -p /etc/systemd/system.conf.d
	printf '[Manager]\nRuntimeWatchdogSec=20s\n' >/etc/systemd/system.conf.d/dog.conf
	echo i6300esb >/etc/modules-load.d/dog.conf
	# shellcheck disable=SC2016 # for that shell
	printf '%s\n' '[Service]' Type=oneshot \
		'ExecStart=/bin/sh -c "until grep -qx active /sys/class/watchdog/watchdog0/state; do sleep 1; done; kill -SEGV 1; sleep 1000"' \
		'[Install]' WantedBy=multi-user.target >/etc/systemd/system/hangs.service
	must systemctl enable hangs.service
	on_trial hang 1
}

step_7() { back; }

step_2() { END=none; }
step_4() { END=none; }
step_6() { END=none; }

host_after() {
	case $1 in
	2 | 4) says 'Kernel panic' ;;
	6)
		says 'Watchdog running with a hardware timeout'
		! grep -aq 'reboot: ' "$WORK/console-6" || fail "it was not the watchdog"
		;;
	3 | 5 | 7) says 'THE TRIAL HAS FAILED' ;;
	esac
	case $1 in
	2 | 4 | 6) says 'is ON TRIAL, 0 more boots' ;;
	esac
	held=held
	[ "$1" -lt 7 ] || held=''
	judge_card "$held"
}
