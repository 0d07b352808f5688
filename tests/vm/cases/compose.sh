# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A root of an image and an overlay. Changes, single files and kept paths are committed and survive a power cut (boot 1); files are
# reverted, a factory reset (2) brings back the image (3). Another image is refused (4), kept with the changes (5), or begun anew (6), which a power cut takes back (7) unless the
# first boot of a system commits its identity, as with systemd. Without an image there is no root (8). Nothing is written to the card that was not committed.
# guests: busybox-squashfs busybox-erofs debian12-squashfs debian13-squashfs debian13-initramfs-squashfs
# short: busybox-squashfs
KILLED="1 6 8"
[ "$LONG" ] || BOOTS=3

composed() {
	protected || fail "the root is $(root_device), cowfs says '$(cat /run/cowfs/root.state 2>/dev/null)'"
	is "the root" "$(root_device)" overlay
	settled
}

# what /proc/mounts hides: nothing shows the volume
volume_is_hidden() {
	! grep -q '^/dev/loop[0-9]* [^ ]* ext4' /proc/mounts || fail "the volume can be seen: $(grep ext4 /proc/mounts)"
}

changes() {
	is "the new file" "$(cat /srv-new)" new
	is "the changed file" "$(tail -n 1 /etc/hostname)" changed
	[ ! -e /etc/gone ] || fail "a deleted file is there"
}

no_changes() {
	[ ! -e /srv-new ] || fail "the new file is there"
	[ "$(tail -n 1 /etc/hostname)" != changed ] || fail "the changed file is there"
	[ -e /etc/gone ] || fail "the deleted file is not there"
}

change() {
	echo new >/srv-new
	echo changed >>/etc/hostname
	must rm /etc/gone
}

# also of an image that nothing was committed over yet
single_files() {
	echo single >/srv-single
	echo reverted >/srv-reverted
	must cowctl commit /srv-single
	must cowctl revert --yes /srv-reverted
	[ ! -e /srv-reverted ] || fail "a new file is still there after revert"
}

step_1() {
	composed
	volume_is_hidden
	[ -e /etc/gone ] || fail "the image has no /etc/gone"
	change
	sync
	is "sectors written after sync" "$(card_written)" "$BASE"
	single_files
	must cowctl commit root
	changes
	is "differences after a commit" "$(cowctl diff /srv-new /etc/hostname)" ""
	must sed -i 's/^\[root\]/&\nkeep = \/srv-kept/' /etc/cowfs/cowfs.conf
	mkdir /srv-kept
	echo kept >/srv-kept/file
	must cowctl commit --kept root
	echo committed >/etc/single
	must rm /etc/gone-2
	must cowctl commit /etc/single /etc/gone-2
	echo lost >/srv-lost
	cowctl diff root | grep -q '^A.* /srv-lost$' || fail "cowctl diff: $(cowctl diff root 2>&1)"
	mark now
	sleep 100
}

step_2() {
	composed
	changes
	[ ! -e /srv-lost ] || fail "a change that was not committed is there"
	is "sectors written since boot" "$(card_written)" "$BASE"
	is "the committed file" "$(cat /srv-single /etc/single)" "single
committed"
	[ ! -e /etc/gone-2 ] || fail "a file that was deleted and committed is there"
	is "the kept file" "$(cat /srv-kept/file)" kept
	! grep -q '^keep' /etc/cowfs/cowfs.conf || fail "more was committed than the kept path"
	echo spoiled >/etc/hostname
	rm -r /srv-kept /srv-new
	must cowctl revert --yes /etc/hostname /srv-kept /srv-new
	is "the reverted file" "$(cat /srv-kept/file)" kept
	changes
	must cowctl factory-reset --yes
	changes
}

step_3() {
	composed
	no_changes
	change
}

step_4() {
	is state "$(cat /run/cowfs/root.state)" failed
	grep -q 'another image' /run/cowfs/root.failed || fail "the reason is '$(head -n 1 /run/cowfs/root.failed)'"
	no_changes
	is "the image" "$(cat /etc/image)" 2
	touch /srv-write 2>/dev/null && fail "the root is writable"
	mount -o remount,rw / 2>/dev/null && touch /srv-write 2>/dev/null && fail "the root can be made writable"
	is "sectors written since boot" "$(card_written)" 0
}

step_5() {
	composed
	changes
	is "the image" "$(cat /etc/image)" 2
}

step_6() {
	composed
	no_changes
	is "the image" "$(cat /etc/image)" 3
	mark now
	sleep 100
}

step_7() {
	composed
	case $GUEST in
	busybox*) changes && is "the image" "$(cat /etc/image)" 2 ;;
	*) no_changes && is "the image" "$(cat /etc/image)" 3 ;;
	esac
}

step_8() { fail "there is a root"; }

# image N: the tree of the guest with another file
image() {
	cp -al "$DIR/root" "$WORK/tree"
	echo "$1" >"$WORK/tree/etc/image"
	lower_make "$WORK/lower-$1" "$WORK/tree"
	rm -rf "$WORK/tree"
}

host_before() {
	APPEND=
	case $1 in
	4) image 2 && lower_put "$WORK/lower-2" ;;
	5) APPEND=cowfs=new-lower:keep ;;
	6) image 3 && lower_put "$WORK/lower-3" && APPEND=cowfs=new-lower:fresh ;;
	7) case $GUEST in busybox*) lower_put "$WORK/lower-2" ;; esac ;;
	8) truncate -s 1M "$WORK/zeros" && lower_put "$WORK/zeros" && card_extract "$WORK/before" ;;
	esac
}

host_during() {
	case $1 in
	1 | 6) wait_mark now && vm_kill ;;
	8) console_wait 'NO ROOT' && vm_kill ;;
	esac
}

host_after() {
	card_extract "$WORK/part"
	[ "$1" != 8 ] || cmp "$WORK/before" "$WORK/part" || fail "a boot without an image has written"
	offline_check "$WORK/part"
}
