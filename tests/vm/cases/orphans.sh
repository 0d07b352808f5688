# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Files that are deleted but open at shutdown: the commit is whole, the file system clean, the room comes back.
# guests: debian12 debian13 busybox

step_1() {
	protected || fail "the root is $(root_device)"
	df -P / | awk 'END { print $3 }' >/srv-used
	for n in 1 2 3; do
		dd if=/dev/zero of=/srv-open$n bs=64k count=100 2>/dev/null
		# no signal ends it: it has its file open when the kill comes
		(trap '' TERM HUP; exec 7</srv-open$n; sleep 1000 & trap '' TERM; wait; sleep 1000) >/dev/null 2>&1 &
	done
	sleep 2
	rm /srv-open1 /srv-open2 /srv-open3
	echo here >/srv-here
}

step_2() {
	protected || fail "the root is $(root_device)"
	is "a file of that time" "$(cat /srv-here)" here
	used=$(df -P / | awk 'END { print $3 }')
	[ "$used" -lt $(($(cat /srv-used) + 8000)) ] || fail "$used KiB are used, it was $(cat /srv-used)"
}

host_after() {
	card_extract "$WORK/part"
	offline_check "$WORK/part"
}
