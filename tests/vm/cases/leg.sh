# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# One disk of the RAID1 below the root is lost in the middle of a commit, and the power goes right after that commit. It counts:
# the degraded array boots protected, with the new generation. The lost disk has one of the two, in every file.
# guests: debian12-md debian13-md
# short:
. "$CASES/cut-shutdown.sh"
KILLED='' BPS=8000000 LIMIT=900

step_1() {
	protected || fail "the root is $(root_device)"
	is "disks missing" "$(cat /sys/block/md0/md/degraded)" 0
	tree_write 1
	must cowctl commit root --checkpoint
	must cowctl inhibit root --for 60m
	rm /srv/gen/only-1
	tree_write 2
	dd if=/dev/urandom of=/srv/bulk bs=1M count=40 2>/dev/null
	sync
	mark ready
	must cowctl commit root
	is "disks missing" "$(cat /sys/block/md0/md/degraded)" 1
	END=none
	verdict ok
	reboot -ff
}

step_2() {
	protected || fail "the root is $(root_device)"
	is "disks missing" "$(cat /sys/block/md0/md/degraded)" 1
	is "generation" "$(cat /srv/gen/only-*)" 2
	is "files of another generation" "$(head -qn 1 /srv/gen/f* | grep -vac '^2$')" 0
	echo degraded >/srv/degraded
	must cowctl commit root
}

host_before() {
	[ "$1" != 2 ] || mv "$LEG" "$WORK/lost.img"
}

host_during() {
	[ "$1" = 1 ] || return 0
	wait_mark ready
	sleep 2
	qmp device_del '{"id": "leg-disk"}' >/dev/null
}

host_after() {
	judge_cut
	[ "$1" = 1 ] || return 0
	[ "$seen_2" = 1 ] || fail "the disk that stayed has not the commit that was reported"
	CARD=$LEG judge_cut
	say "the lost disk has generation $gen"
}
seen_1=0 seen_2=0
