# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# All processes of a daemon are killed while its volume is written and committed: they end, the mount goes away, and the volume
# can be attached again. The kernel decides what a killed process waits for.
# guests: busybox busybox-kernel-bullseye
# short:
DATA_MIB=128 LIMIT=600 STEP_LIMIT=500

parent_of() { awk '/^PPid:/ { print $2 }' "/proc/$1/status"; }
no_process() { [ ! -e "/proc/$1" ]; }

loop_devices_are() { [ "$(cat /sys/block/loop*/loop/backing_file | wc -l)" = "$1" ]; }

# On an aborted journal blocks that the file has can be written as before, into the cache: no write fails.
write_until_killed() {
	rm -f /run/cowfs-test/killed
	while [ ! -e /run/cowfs-test/killed ] && dd if=/dev/urandom of=/mnt/data/file bs=64k count=100 conv=notrunc; do
		sync
	done 2>/dev/null
}

attach_data() { cowctl attach --ram 200M --name data "$(data_card)"; }

kill_all() {
	worker=$(cat /run/cowfs/data/pid)
	parent=$(parent_of "$worker")
	kill -9 "$worker" "$parent"
	: >/run/cowfs-test/killed
	wait_for 20 no_process "$worker" || fail "round $1: the worker is still there: $(cat "/proc/$worker/wchan" "/proc/$worker/stack")"
	wait_for 20 no_process "$parent" || fail "round $1: its parent is still there"
}

step_1() {
	protected || fail "the root is $(root_device)"
	mkdir -p /mnt/data
	for n in 0 1 2 3 4 5 6 7 8 9; do
		# stderr says that the daemon of the last round died
		loop=$(attach_data 2>/run/cowfs-test/out) || fail "round $n: $(cat /run/cowfs-test/out)"
		must mount "$loop" /mnt/data
		write_until_killed &
		writer=$!
		sleep 1
		cowctl commit data >/dev/null 2>&1 &
		commit=$!
		sleep 0.$n
		kill_all $n
		wait $writer $commit
		must umount /mnt/data
	done
	must attach_data
	must cowctl detach data
	# only the root is left
	wait_for 20 loop_devices_are 1 || fail "more disks are left than that of the root"
}

host_after() {
	offline_check "$DATA"
}
