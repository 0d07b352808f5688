# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Updates on trial that do not come up: a service that fails its check, a program of accept.d, a mount of fstab that sends the
# system to emergency mode, no init (a panic), no libc, and a system that hangs, which a watchdog ends. Nobody cuts the power: each
# machine restarts by itself until it is back at the old root, which says so. A good update after that is accepted.
# guests: debian12-generic debian13
KILLED="2 3 5 7 9 11 13" DEVICES="-device i6300esb -action watchdog=reset" STEP_LIMIT=400

# What the next boot has, $1, on trial for $2 boots
on_trial() {
	END=reboot
	echo "$1" >/srv/trial
	must cowctl commit root --trial "$2"
}

# The old root is back, and says so everywhere.
back() {
	protected || fail "the root is $(root_device)"
	is "what /srv/trial has" "$(cat /srv/trial)" old
	[ ! -e /run/cowfs/root.trial ] || fail "this boot counts as one on trial"
	dmesg | grep -q 'THE TRIAL HAS FAILED' || fail "the kernel log does not tell"
	cowctl status root >out
	is "the status of cowctl status" $? 3
	grep -q 'THE TRIAL HAS FAILED' out || fail "the status does not tell: $(cat out)"
	cowctl status --brief >out
	is "the status of cowctl status --brief" $? 3
	/etc/update-motd.d/90-cowfs | grep -q 'THE TRIAL HAS FAILED' || fail "the banner does not tell"
	wait_for 60 told || fail "no event"
}

told() { journalctl -b -u cowfs-events | grep -q 'root: undo trial-failed generation'; }

# A boot on trial: its end is its own matter.
step() { END=none; }

step_1() {
	protected || fail "the root is $(root_device)"
	mkdir -p /srv
	echo old >/srv/trial
	must cowctl commit root
	printf '%s\n' '[Unit]' Before=boot-complete.target '[Service]' Type=oneshot ExecStart=/bin/false '[Install]' \
		RequiredBy=boot-complete.target >/etc/systemd/system/check.service
	must systemctl enable check.service
	on_trial check 2
}

step_4() {
	back
	[ ! -e /etc/systemd/system/check.service ] || fail "the service is still there"
	mkdir -p /etc/cowfs/accept.d
	ln -s /bin/true /etc/cowfs/accept.d/good
	ln -s /bin/false /etc/cowfs/accept.d/bad
	on_trial accept.d 1
}

step_6() {
	back
	echo '/nowhere /mnt none bind 0 0' >>/etc/fstab
	on_trial fstab 1
}

step_8() {
	back
	rm /usr/lib/systemd/systemd
	printf '#!/bin/sh\necho this init ends\n' >/usr/lib/systemd/systemd
	chmod 755 /usr/lib/systemd/systemd
	on_trial init 1
}

step_10() {
	back
	mkdir lib
	libc=$(ls /lib/*-linux-gnu*/libc.so.6)
	cp "$libc" lib/
	LD_LIBRARY_PATH=$PWD/lib
	export LD_LIBRARY_PATH
	mv "$libc" "$libc.gone"
	on_trial libc 1
	# nothing can shut this down
	END=none
	(sleep 5 && echo b >/proc/sysrq-trigger) &
}

step_12() {
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

step_14() {
	back
	mkdir -p /etc/cowfs/accept.d
	ln -s /bin/true /etc/cowfs/accept.d/good
	on_trial good 1
}

accepted() { cowctl status root --json | grep -qv '"held":'; }

step_15() {
	END=reboot
	protected || fail "the root is $(root_device)"
	wait_for 100 accepted || fail "nothing accepts the root: $(cowctl status root) $(systemctl status cowfs-accept)"
	is "what /srv/trial has" "$(cat /srv/trial)" good
}

step_16() {
	protected || fail "the root is $(root_device)"
	is "what /srv/trial has" "$(cat /srv/trial)" good
	must cowctl status root
}

says() { grep -aq "$1" "$WORK/console-$N" || fail "the console of boot $N does not have '$1'"; }

host_after() {
	case $1 in
	2 | 3 | 5 | 7) says 'ON TRIAL, and this boot is not accepted: restart in 30 s' ;;
	9 | 11) says 'Kernel panic' ;;
	13) says 'Freezing execution' ;;
	4 | 6 | 8 | 10 | 12 | 14) says 'THE TRIAL HAS FAILED' ;;
	esac
	case $1 in
	2) says 'is ON TRIAL, 1 more boot' ;;
	3 | 5 | 7 | 9 | 11 | 13 | 15) says 'is ON TRIAL, 0 more boots' ;;
	esac
	card_extract "$WORK/root.img"
	# a held generation is whole, too; boots 15 and 16 have none
	[ "$1" -ge 15 ] || "$BUILD/cowctl" undo "$WORK/root.img" >/dev/null || fail "no way back"
	offline_check "$WORK/root.img"
	rm "$WORK/root.img"
}
