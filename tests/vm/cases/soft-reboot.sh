# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# systemctl soft-reboot: everything is stopped and started again but the kernel and the daemon of the root. What was written
# before is on the cards, should the power go later.
# guests: debian13 debian13-initramfs
DATA_MIB=128 LIMIT=900 STEP_LIMIT=800
TURNS=3
KILLED=2

# how often systemd has done it
turn() { systemctl show -P SoftRebootsCount; }

# those of the root's daemon: worker and supervisor
processes() {
	worker=$(cat /run/cowfs/root/pid)
	echo "$worker $(awk '/^PPid:/ { print $2 }' "/proc/$worker/status")"
}

step_1() {
	mkdir -p /data
	echo "/dev/disk/by-id/virtio-data /data cowfs ram=200M,noatime,nofail 0 0" >>/etc/fstab
}

step_2() {
	rm -f /run/forget
	protected || fail "the root is $(root_device)"
	mounted /data
	if [ "$(turn)" -gt 0 ]; then
		is "processes of the root's daemon" "$(processes)" "$(cat /run/processes)"
		is "the last turn" "$(cat /srv/turn)" $(($(turn) - 1))
		must sha256sum -c /srv/sum
		[ "$(card_written)" -gt "$(cat /run/written)" ] || fail "nothing of the root was committed"
		is "units that failed" "$(systemctl list-units --failed --plain --no-legend)" ""
		is "the watch of the root's daemon" "$(systemctl is-active cowfs-parent.service)" active
	fi
	if [ "$(turn)" = $TURNS ]; then
		mark turned
		END=none
		return
	fi
	must dd if=/dev/urandom of=/data/file bs=64k count=80
	must dd if=/dev/urandom of=/srv/file bs=64k count=32
	sha256sum /data/file /srv/file >/srv/sum
	turn >/srv/turn
	processes >/run/processes
	card_written >/run/written
	sync
	: >/run/forget
	# what is read is read from the daemon, which is stopped for a moment
	spared 'exec 9<> <(:)
		while [[ -e /run/forget ]]; do echo 3 >/proc/sys/vm/drop_caches; read -rt 0.02 -u 9; done'
	END=soft-reboot
}

step_3() {
	mounted /data
	must sha256sum -c /srv/sum
	is "the last turn" "$(cat /srv/turn)" $((TURNS - 1))
}

host_during() {
	[ "$1" = 2 ] || return 0
	wait_mark turned 800
	vm_kill
}

host_after() {
	[ "$1" = 1 ] || offline_check "$DATA"
}
