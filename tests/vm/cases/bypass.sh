# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# cowfs=off on the kernel command line, with a log on the card that is not empty: the newest commit is there, the system runs on
# the bare partition and says so; the boot after that is protected again and has what was written meanwhile.
# guests: debian12 debian13 busybox
KILLED=1

step_1() {
	protected || fail "the root is $(root_device)"
	# some of it in place, some through the log
	echo committed >/srv-committed
	must dd if=/dev/urandom of=/srv-data bs=64k count=20
	must cowctl commit root
	echo again >>/etc/hostname
	must cowctl commit root
	mark now
	sleep 100
}

step_2() {
	case $(root_device) in
	/dev/loop* | /dev/cowfs/*) fail "the root is $(root_device)" ;;
	esac
	is state "$(cat /run/cowfs/root.state)" bypassed
	is committed "$(cat /srv-committed)" committed
	is "second commit" "$(tail -1 /etc/hostname)" again
	cowctl status >/run/cowfs-test/out 2>&1 && fail "cowctl status says that all is well"
	grep -qi 'bypass\|not protected' /run/cowfs-test/out || fail "cowctl status does not tell: $(head -3 /run/cowfs-test/out)"
	mount -o remount,rw /
	echo bare >/srv-bare || fail "the bare root cannot be written"
}

step_3() {
	protected || fail "the root is $(root_device)"
	is "written without cowfs" "$(cat /srv-bare)" bare
	is committed "$(cat /srv-committed)" committed
	echo 3 >/srv-bare
}

step_4() {
	protected || fail "the root is $(root_device)"
	is "written with cowfs again" "$(cat /srv-bare)" 3
}

host_before() {
	APPEND=
	[ "$1" != 2 ] || APPEND=cowfs=off
}

host_during() {
	[ "$1" != 1 ] || { wait_mark now && vm_kill; }
}

host_after() {
	[ "$1" = 1 ] || { card_extract "$WORK/part" && offline_check "$WORK/part"; }
}
