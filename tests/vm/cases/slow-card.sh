# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A GiB is not committed yet at shutdown, and the card takes 10 MB/s: the shutdown takes its two minutes, and all of it is there.
# guests: debian12 debian13 busybox
MEM=2560 DISK_MIB=3072 BPS=10000000 APPEND=cowfs=ram:1600M LIMIT=1500 STEP_LIMIT=900

step_1() {
	protected || fail "the root is $(root_device)"
	settled
	mkdir -p /srv/p
	for n in 1 2 3 4 5 6 7 8; do
		must dd if=/dev/urandom of=/srv/p/$n bs=1048576 count=128
	done
	must sync
	is "sectors written before" "$(card_written)" "$BASE"
	(cd /srv/p && sha256sum 1 2 3 4 5 6 7 8) >/srv/sums
}

step_2() {
	protected || fail "the root is $(root_device)"
	cd /srv/p && must sha256sum -c /srv/sums
}
