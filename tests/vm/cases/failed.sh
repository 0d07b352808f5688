# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Protection is configured but cannot start (the log is broken): the root is read-only, the card is not written, and everybody is told.
# guests: debian12 debian13 busybox

step_1() {
	protected || fail "the root is $(root_device)"
	echo here >/srv-here
}

step_2() {
	is state "$(cat /run/cowfs/root.state)" failed
	is "a file of before" "$(cat /srv-here)" here
	touch /srv-write 2>/dev/null && fail "the root is writable"
	mount -o remount,rw / 2>/dev/null && touch /srv-write 2>/dev/null && fail "the root can be made writable"
	cowctl status >/run/cowfs-test/out 2>&1 && fail "cowctl status says that all is well"
	dmesg | grep -i cowfs | grep -qi 'not protected\|read-only' || fail "the kernel log does not tell"
	login_on_console
	is "sectors written" "$(card_written)" 0
}

# The console is told in the boot, and whoever logs in then; busybox has no banner.
everybody_is_told() { # console
	grep -aq 'cowfs: root: NOT PROTECTED' "$1" || fail "the console does not tell"
	case $GUEST in busybox*) return 0 ;; esac
	tr -d '\r' <"$1" | grep -a -A 1 '^\*\*\*\*\*' | grep -aq '^cowfs: THE ROOT IS NOT PROTECTED' || fail "the banner does not tell"
}

host_before() {
	[ "$1" = 2 ] || return 0
	card_extract "$WORK/part"
	# both copies of the superblock of the log, and what is between them
	size=$(stat -c %s "$WORK/part")
	dd if=/dev/urandom of="$WORK/part" bs=1M seek=$((size / 1048576 - LOG_MIB + 1)) count=$((LOG_MIB - 1)) conv=notrunc status=none
	card_put "$WORK/part"
	card_extract "$WORK/before"
}

host_after() {
	[ "$1" = 2 ] || return 0
	everybody_is_told "$WORK/console-2"
	card_extract "$WORK/after"
	cmp "$WORK/before" "$WORK/after" || fail "the partition has changed"
}
