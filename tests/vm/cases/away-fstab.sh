# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A card whose volume is mounted by a line of fstab is pulled: systemd, which has bound the mount to the card's device unit, does not tear
# the volume down, and it goes on when the card is back. At a shutdown it is unmounted, with the card and without it.
# guests: debian12 debian13
# short:
DRIVE=virtio DATA_DRIVE=scsi DATA_MIB=128 LIMIT=900

bound() { systemctl show -p BindsTo --value mnt-data.mount | grep -q '\.device'; }

in_fstab() {
	mkdir -p /mnt/data
	grep -q /mnt/data /etc/fstab || echo "$(data_card) /mnt/data cowfs name=data,ram=64M,nofail 0 0" >>/etc/fstab
	systemctl daemon-reload
	must systemctl start mnt-data.mount
	mountpoint -q /mnt/data || fail "not mounted"
}

step_1() {
	in_fstab
	say "BindsTo=$(systemctl show -p BindsTo --value mnt-data.mount)"
	bound || say "not bound to a device: this shows nothing"
	echo before >/mnt/data/file
	must cowctl commit data
	mark pull
	until cowctl status data | grep -q '^AWAY'; do sleep 0.5; done
	sleep 5
	mountpoint -q /mnt/data || fail "systemd has unmounted it: $(journalctl -b -o cat -u mnt-data.mount | tail -n 5 | tr '\n' ';')"
	journalctl -b -o cat | grep -q 'stays mounted: the card of volume data is away' || say "umount.cowfs was not asked"
	is "what RAM holds" "$(cat /mnt/data/file)" before
	echo after >/mnt/data/file
	sync -f /mnt/data
	mark back
	until ! cowctl status data | grep -q '^AWAY'; do sleep 0.5; done
	sleep 3
	mountpoint -q /mnt/data || fail "unmounted behind the return"
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
