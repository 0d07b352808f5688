# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Ends without a shutdown are power cuts: reboot -ff, sysrq-b, panic, the plug. The last commit is there, what came after it is not.
# guests: debian12 debian13 busybox
KILLED=4

seen() {
	protected || fail "the root is $(root_device)"
	is "the last commit" "$(cat /srv-commit 2>/dev/null)" "$1"
	[ ! -e /srv-lost ] || fail "what was not committed is there"
}

change() {
	echo "$1" >/srv-commit
	must cowctl commit root
	echo "$1" >/srv-lost
	sync
	END=none
	verdict ok # nothing comes after it
}

step_1() {
	change 1
	sync
	reboot -ff 2>/dev/null || reboot -f
}

step_2() {
	seen 1
	change 2
	echo 1 >/proc/sys/kernel/sysrq
	echo b >/proc/sysrq-trigger
}

step_3() {
	seen 2
	change 3
	mark panic
	echo c >/proc/sysrq-trigger
}

step_4() {
	seen 3
	change 4
	mark now
	sleep 100
}

step_5() {
	seen 4
}

host_during() {
	[ "$1" != 4 ] || { wait_mark now && vm_kill; }
}

host_after() {
	card_extract "$WORK/part"
	offline_check "$WORK/part"
}
