# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# The machine's memory is full while programs write: nothing is lost, nothing hangs, the daemon is not killed.
# guests: debian12 debian13 busybox
LIMIT=900 STEP_LIMIT=700
case $GUEST in
busybox*) DISK_MIB=768 ;;
esac

available() { awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo; }

step_1() {
	protected || fail "the root is $(root_device)"
	mkdir -p /mnt /srv/p && must mount -t tmpfs -o size=100% hog /mnt
	n=0
	while [ "$(available)" -gt 48 ]; do
		n=$((n + 1))
		dd if=/dev/zero of=/mnt/$n bs=1048576 count=8 2>/dev/null || break
	done
	say "$(available) MiB are left"
	for n in 1 2 3 4 5 6; do
		must dd if=/dev/urandom of=/srv/p/$n bs=1048576 count=16
	done
	must sync
	rm -f /mnt/*
	(cd /srv/p && sha256sum 1 2 3 4 5 6) >/srv/sums
	cowctl status root >/run/cowfs-test/out || [ $? = 3 ] || fail "cowctl status"
	dmesg | grep -i 'i/o error\|ext4-fs error\|killed process.*cowfs' && fail "errors in the kernel log"
	umount /mnt
}

step_2() {
	protected || fail "the root is $(root_device)"
	cd /srv/p && must sha256sum -c /srv/sums
}
