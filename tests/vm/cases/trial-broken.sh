# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Updates on trial that fail: a service that is a check and fails, or never ends, a program of accept.d, and a mount of fstab that sends the system to
# emergency mode. Nobody cuts the power: each machine restarts by itself until it is back at the old root, which says so. A good
# update after that is accepted.
# guests: debian12 debian13
KILLED="2 3 5 7" STEP_LIMIT=400

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
	# fails in the first boot, and never ends in the second one
	printf '%s\n' '[Unit]' Before=boot-complete.target '[Service]' Type=oneshot \
		'ExecStart=/bin/sh -c "dmesg | grep -q \"0 more boots\" || exit 1; sleep 10000"' '[Install]' \
		RequiredBy=boot-complete.target >/etc/systemd/system/check.service
	mkdir -p /etc/systemd/system/cowfs-accept.service.d
	printf '[Unit]\nJobTimeoutSec=100\n' >/etc/systemd/system/cowfs-accept.service.d/soon.conf
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
	echo 'none /mnt nofs defaults 0 0' >>/etc/fstab
	on_trial fstab 1
}

step_8() {
	back
	mkdir -p /etc/cowfs/accept.d
	ln -s /bin/true /etc/cowfs/accept.d/good
	on_trial good 1
}

step_9() {
	END=reboot
	protected || fail "the root is $(root_device)"
	wait_for 100 accepted || fail "nothing accepts the root: $(cowctl status root) $(systemctl status cowfs-accept)"
	is "what /srv/trial has" "$(cat /srv/trial)" good
}

step_10() {
	protected || fail "the root is $(root_device)"
	is "what /srv/trial has" "$(cat /srv/trial)" good
	must cowctl status root
}

says() { grep -aq "$1" "$WORK/console-$N" || fail "the console of boot $N does not have '$1'"; }

# A held generation is whole, too.
judge_card() {
	card_extract "$WORK/root.img"
	[ -z "$1" ] || "$BUILD/cowctl" undo "$WORK/root.img" >/dev/null || fail "no way back"
	offline_check "$WORK/root.img"
	rm "$WORK/root.img"
}

host_after() {
	case $1 in
	2 | 3 | 5 | 7) says 'ON TRIAL, and this boot is not accepted: restart in 30 s' ;;
	4 | 6 | 8) says 'THE TRIAL HAS FAILED' ;;
	esac
	case $1 in
	2) says 'is ON TRIAL, 1 more boot' ;;
	3 | 5 | 7 | 9) says 'is ON TRIAL, 0 more boots' ;;
	esac
	held=held
	[ "$1" -lt 9 ] || held=''
	judge_card "$held"
}
