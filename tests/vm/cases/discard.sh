# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Changes that are to be dropped are dropped, by `cowctl discard` and by cowfs=discard: the partition stays the same byte for byte.
# guests: debian12 debian13 busybox

step_1() {
	settled
}

step_2() {
	protected || fail "the root is $(root_device)"
	must dd if=/dev/zero of=/srv-gone bs=64k count=50
	must cowctl discard root
}

step_3() {
	protected || fail "the root is $(root_device)"
	[ ! -e /srv-gone ] || fail "the file is there after cowctl discard"
	echo gone >/srv-gone
	sync
}

step_4() {
	[ ! -e /srv-gone ] || fail "the file is there after a boot with cowfs=discard"
}

host_before() {
	APPEND=
	[ "$1" != 3 ] || APPEND=cowfs=discard
	card_extract "$WORK/before"
}

host_after() {
	case $1 in
	1 | 4) return 0 ;;
	esac
	card_extract "$WORK/after"
	cmp "$WORK/before" "$WORK/after" || fail "the partition has changed"
}
