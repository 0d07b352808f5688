# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# cowfs is configured, and the initramfs of boots 2 and 4 has no cowfs in it: the root is read-only, everybody is told why, and nothing
# is written but what the e2fsck of such an initramfs (if it has one) writes into a superblock. After a shutdown that is harmless. With
# commits in the log that are not home (boot 4) it counts as a change elsewhere: the log is set aside, with an alarm, and can be accepted.
# guests: debian12 debian13 debian13-initramfs busybox
. "$CASES/size.sh"
. "$CASES/failed.sh"
KILLED=3

step_1() {
	protected || fail "the root is $(root_device)"
	settled
	echo resting >/srv-resting
}

bare() {
	case $(root_device) in
	/dev/loop* | /dev/cowfs/*) fail "the root is $(root_device)" ;;
	esac
	is state "$(cat /run/cowfs/root.state)" failed
	case $(head -n 1 /run/cowfs/root.failed) in
	*"initramfs"*"lacks cowfs"*) ;;
	*) fail "the reason is '$(head -n 1 /run/cowfs/root.failed)'" ;;
	esac
	is "the device" "$(sed -n 's/^device=//p' /run/cowfs/root.failed)" "/dev/$(root_part)"
	touch /srv-write 2>/dev/null && fail "the root is writable"
	mount -o remount,rw / 2>/dev/null && touch /srv-write 2>/dev/null && fail "the root can be made writable"
	cowctl status >/run/cowfs-test/out 2>&1
	is "the exit code of cowctl status" $? 3
	grep -q 'NOT PROTECTED' /run/cowfs-test/out || fail "cowctl status does not tell: $(head -n 3 /run/cowfs-test/out)"
	dmesg | grep -q 'cowfs: root: NOT PROTECTED' || fail "the kernel log does not tell"
	login_on_console
}

step_2() { bare; }

step_3() {
	protected || fail "the root is $(root_device)"
	must cowctl status
	is "what was there" "$(cat /srv-resting)" resting
	echo committed >/srv-committed
	must cowctl commit root
	echo again >>/etc/hostname
	must cowctl commit root
	mark now
	sleep 100
}

step_4() { bare; }

step_5() {
	protected || fail "the root is $(root_device)"
	is "what was there" "$(cat /srv-resting)" resting
	# the host knows which of the two it has to be
	if cowctl status >/run/cowfs-test/out 2>&1; then
		value aside 0
		is "the first commit" "$(cat /srv-committed)" committed
		is "the second commit" "$(tail -n 1 /etc/hostname)" again
	else
		value aside 1
		grep -qi 'set aside' /run/cowfs-test/out || fail "cowctl status does not tell: $(head -n 5 /run/cowfs-test/out)"
		[ "$(tail -n 1 /etc/hostname)" != again ] || fail "the log shows through"
	fi
	must cowctl discard root
}

host_before() {
	INITRD=''
	case $1 in
	2 | 4) ;;
	*) return 0 ;;
	esac
	INITRD=$WORK/bare
	[ -e "$INITRD" ] || case $GUEST in
	busybox*) initramfs_busybox ;;
	*)
		cp -r "$DIR/root.boot" "$WORK/boot"
		initramfs bare bare
		;;
	esac
	card_extract "$WORK/before"
}

# its init, and a cowfs.sh that does nothing
initramfs_busybox() {
	mkdir "$WORK/top"
	(cd "$WORK/top" && gzip -dc "$DIR/initrd.img" | cpio --quiet -idm)
	rm "$WORK"/top/usr/sbin/cow* "$WORK/top/etc/cowfs/cowfs.conf"
	# shellcheck disable=SC2016 # for that shell
	echo 'cowfs_start() { COWFS_STATE=unconfigured COWFS_MOUNT=$1; }' >"$WORK/top/usr/lib/cowfs/cowfs.sh"
	(cd "$WORK/top" && find . | cpio --quiet -o -H newc -R 0:0) | gzip -1 >"$INITRD"
}

host_during() {
	[ "$1" != 3 ] || { wait_mark now && vm_kill; }
}

host_after() {
	case $1 in
	2 | 4)
		everybody_is_told "$WORK/console-$1"
		card_extract "$WORK/after"
		aside=0
		cmp -s "$WORK/before" "$WORK/after" || aside=1
		cmp -i 4096 "$WORK/before" "$WORK/after" || fail "more than the superblock has changed"
		say "superblock written by the initramfs without cowfs: $aside"
		;;
	5)
		[ "$(value aside)" = "$aside" ] || fail "set aside: $(value aside), superblock written: $aside"
		accept='' code=0
		[ "$aside" = 0 ] || accept=--accept log
		card_extract "$WORK/part"
		# shellcheck disable=SC2086 # none or one
		"$BUILD/cowctl" release $accept "$WORK/part" >/dev/null || code=$?
		[ "$code" = 0 ] || { [ "$aside" = 1 ] && [ "$code" = 3 ]; } || fail "release $accept: exit $code"
		is_there /srv-committed committed
		is_there /etc/hostname again
		e2fsck -fn "$WORK/part" >"$WORK/e2fsck.out" 2>&1 || fail "e2fsck: $(tail -n 3 "$WORK/e2fsck.out")"
		;;
	esac
}

is_there() { # file, its last line
	[ "$(debugfs -R "cat $1" "$WORK/part" 2>/dev/null | tail -n 1)" = "$2" ] || fail "$1 is not what was committed"
}
