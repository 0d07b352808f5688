# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Three times as much is written as the RAM layer may hold: it is committed on the way, no write fails, and every byte is there.
# guests: debian12 debian13 busybox busybox-arm64 debian12-arm64 debian13-arm64
APPEND=cowfs=ram:160M LIMIT=900 STEP_LIMIT=700
case $GUEST in
busybox*) DISK_MIB=768 ;;
esac

step_1() {
	protected || fail "the root is $(root_device)"
	mkdir -p /srv/p
	for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
		must dd if=/dev/urandom of=/srv/p/$n bs=1048576 count=32
	done
	must sync
	[ "$(card_written)" -gt 200000 ] || fail "only $(card_written) sectors were committed"
	(cd /srv/p && sha256sum 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) >/srv/sums
	dmesg | grep -i 'i/o error\|ext4-fs error' && fail "errors in the kernel log"
}

step_2() {
	protected || fail "the root is $(root_device)"
	cd /srv/p && must sha256sum -c /srv/sums
}
