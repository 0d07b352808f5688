# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A second card as a cowfs mount in fstab: mounted at boot, not written meanwhile, committed at shutdown.
# guests: debian12 debian13
DATA_MIB=128

data_part() {
	for d in /sys/block/vd*; do
		[ "$(cat "$d/serial")" != data ] || echo "${d##*/}"
	done
}

step_1() {
	mkdir /data
	# nofail: what is wrong can be told only if the boot goes on. systemd waits 90 s for a device, and an emulated machine may need more
	echo "/dev/disk/by-id/virtio-data /data cowfs ram=200M,noatime,nofail,x-systemd.device-timeout=15min 0 0" >>/etc/fstab
}

# Both daemons, that of the root and that of the service: their workers and parents, under what systemd gives them.
# The workers have no capabilities; their brokers have.
confined() {
	for pid in /run/cowfs/*/pid; do
		pid=$(cat "$pid")
		state=/proc/$pid/status
		is "filter and privileges of worker $pid" \
			"$(awk '/^(Seccomp|NoNewPrivs|CapEff|CapBnd):/ { printf "%s ", $2 }' "$state")" \
			"0000000000000000 0000000000000000 1 2 "
		state=/proc/$(awk '/^PPid:/ { print $2 }' "$state")/status
		is "filter of its parent" "$(awk '/^(Seccomp|NoNewPrivs):/ { printf "%s ", $2 }' "$state")" "1 2 "
	done
	is "refused system calls" "$(dmesg | grep -c 'type=1326')" 0
	is "what could not be had" "$(dmesg | grep -c 'goes on without\|parent process: no')" 0
}

step_2() {
	mounted /data
	confined
	must cowctl status --brief
	must dd if=/dev/urandom of=/data/file bs=64k count=80
	sha256sum /data/file >/srv-sum
	sync
	is "sectors written to the second card" "$(awk '{ print $7 }' "/sys/block/$(data_part)/stat")" 0
}

step_3() {
	mounted /data
	must sha256sum -c /srv-sum
}

host_after() {
	[ "$1" = 1 ] || offline_check "$DATA"
}
