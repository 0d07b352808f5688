# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# `cowctl disable` on a root that is an image and an overlay: the next boot has the same root, whose changes are written to the
# card. `cowctl setup` protects it again.
# guests: debian12-squashfs debian13-squashfs
# short:
LOADER=1 LIMIT=2700 STEP_LIMIT=2400

composed() {
	is "the root" "$(root_device)" overlay
	wait_for 240 grep -q ' /boot ext4' /proc/mounts || fail "/boot is not mounted"
}

step_1() {
	composed
	protected || fail "it is not protected"
	must cowctl setup --dry-run
	sed 's/^/# /' /run/cowfs-test/out >>"$LOG"
	echo one >/srv-file
	must cowctl disable
}

step_2() {
	composed
	is state "$(cat /run/cowfs/root.state)" unconfigured
	is "a file of before" "$(cat /srv-file)" one
	wait_for 240 test ! -e /etc/cowfs/leaving ||
		fail "it does not leave: $(systemctl status --no-pager cowfs-leave.service 2>&1 | tail -n 5)"
	! grep x-cowfs /etc/fstab || fail "the fstab is not as before"
	settled
	echo two >/srv-file
	sync
	[ "$(card_written)" -gt "$BASE" ] || fail "the root is not written to the card"
	must cowctl setup --yes
	grep -q '/boot.*,ro,x-cowfs' /etc/fstab || fail "the fstab is $(grep /boot /etc/fstab)"
}

step_3() {
	composed
	protected || fail "it is not protected again: $(head -2 /run/cowfs/root.* 2>/dev/null)"
	is "a file of before" "$(cat /srv-file)" two
	settled
	echo three >/srv-file
	sync
	is "sectors written since boot" "$(card_written)" "$BASE"
}

host_after() {
	card_extract "$WORK/part"
	offline_check "$WORK/part"
}
