# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A card whose volume is mounted by a line of fstab is pulled: systemd does not unmount it with the card's device unit, and it
# goes on when the card is back.
# guests: debian12
# short:
DRIVE=virtio DATA_DRIVE=scsi DATA_MIB=128 LIMIT=900

in_fstab() {
	mkdir -p /mnt/data
	grep -q /mnt/data /etc/fstab || echo "$(data_card) /mnt/data cowfs name=data,ram=64M,nofail 0 0" >>/etc/fstab
	systemctl daemon-reload
	must systemctl start mnt-data.mount
	mountpoint -q /mnt/data || fail "not mounted"
}

step_1() {
	in_fstab
	say "$(systemctl show -p What -p BindsTo -p Requires mnt-data.mount | tr '\n' ' ')"
	echo before >/mnt/data/file
	must cowctl commit data
	mark pull
	until cowctl status data | grep -q '^AWAY'; do sleep 0.5; done
	sleep 5
	mountpoint -q /mnt/data || fail "systemd has unmounted it: $(journalctl -b -o cat -u mnt-data.mount | tail -n 5 | tr '\n' ';')"
	is "what RAM holds" "$(cat /mnt/data/file)" before
	mark back
	until ! cowctl status data | grep -q '^AWAY'; do sleep 0.5; done
	sleep 3
	mountpoint -q /mnt/data || fail "unmounted behind the return"
	echo after >/mnt/data/file
	must cowctl commit data
	echo 3 >/proc/sys/vm/drop_caches
	is "the card" "$(cat /mnt/data/file)" after
}

# ---- the host ----

host_during() {
	[ "$1" = 1 ] || return 0
	wait_mark pull 600
	card_out data
	wait_mark back 120
	card_in data
}

host_after() {
	offline_check "$DATA"
}
