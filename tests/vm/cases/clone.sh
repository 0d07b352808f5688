# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# The root that is in use is cloned to a larger card with the same partition table; the machine then starts from that card alone, protected,
# with what was only in RAM, and commits to it.
# guests: debian12 debian13 busybox debian12-arm64
LIMIT=1500 STEP_LIMIT=1400

# The new card has the names and numbers of the old one, so it is not there when the system starts: the host puts it into a reader.
# A busybox has no drivers for one, and takes the root by another name.
new_part() { # its partition with the number of the root
	number=$(root_part)
	number=${number##*[!0-9]}
	for disk in /sys/block/vd*; do
		[ "$(cat "$disk/serial" 2>/dev/null)" = new ] || continue
		echo "${disk##*/}$number"
		return
	done
	mark plug
	for m in virtio_scsi sd_mod; do modprobe -q $m; done
	wait_for 60 test -e /sys/block/sda/size
	wait_for 20 test -b "/dev/sda$number"
	echo "sda$number"
}

before_clone() {
	protected || fail "the root is $(root_device)"
	mkdir -p /srv/clone
	must dd if=/dev/urandom of=/srv/clone/committed bs=64k count=40
	must cowctl commit root
	must dd if=/dev/urandom of=/srv/clone/in-ram bs=64k count=40
	(cd /srv/clone && sha256sum committed in-ram >sum)
}

clone_root() {
	before_clone
	[ "${part-}" ] || part=$(new_part)
	[ -b "/dev/$part" ] || fail "no new card: $part"
	# somebody writes all the time
	(while :; do dd if=/dev/urandom of=/srv/writer bs=4k count=50 2>/dev/null; done) &
	writer=$!
	must cowctl clone root "/dev/$part" --yes
	kill $writer
	grep -q 'read back and compared' /run/cowfs-test/out || fail "clone says $(cat /run/cowfs-test/out)"
	must cowctl check "/dev/$part"
	echo "on the old card alone" >/srv/clone/later
}

step_1() { clone_root; }

on_the_clone() {
	protected || fail "the root is $(root_device), cowfs says '$(cat /run/cowfs/root.state 2>/dev/null)'"
	[ ! -e /srv/clone/later ] || fail "a file that was written after the clone"
	(cd /srv/clone && must sha256sum -c sum)
}

step_2() {
	on_the_clone
	cowctl generations root
	echo committed >/srv/clone/again
	must cowctl commit root
}

step_3() {
	on_the_clone
	is "what was committed to the clone" "$(cat /srv/clone/again)" committed
}

host_before() {
	if [ "$1" = 1 ]; then
		truncate -s "$(($(stat -c %s "$CARD") + (256 << 20)))" "$WORK/new.img"
		# the last partition takes the rest
		sfdisk -d "$CARD" | sed '/^last-lba/d; $s/size= *[0-9]*, *//' | sfdisk -q "$WORK/new.img"
		case $GUEST in
		busybox*) DEVICES="-drive file=$WORK/new.img,if=none,id=new,format=raw -device virtio-blk-pci,drive=new,serial=new" ;;
		*) DEVICES="-device virtio-scsi-pci,id=reader" ;;
		esac
	else
		DEVICES=
	fi
}

host_during() {
	case $1:$GUEST in
	[23]:* | *:busybox*) return ;;
	esac
	wait_mark plug
	qmp blockdev-add '{"node-name": "new", "driver": "raw", "file": {"driver": "file", "filename": "'"$WORK"'/new.img"}}'
	qmp device_add '{"driver": "scsi-hd", "bus": "reader.0", "drive": "new", "id": "stick"}'
}

host_after() {
	[ "$1" != 1 ] || mv "$WORK/new.img" "$CARD"
	card_extract "$WORK/part"
	offline_check "$WORK/part"
}
