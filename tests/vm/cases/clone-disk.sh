# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# As clone, but the new card is empty and gets the whole disk: partition table, boot loader, all partitions. The machine then starts from
# that card alone by its own firmware and loader: GRUB on MBR, GRUB for EFI (without what the firmware has stored), U-Boot.
# guests: debian12-grub debian12-efi debian12-uboot
. "$CASES/clone.sh"
LOADER=${LOADER:-1}

step_1() {
	before_clone
	mark plug
	for m in virtio_scsi sd_mod; do modprobe -q $m; done
	wait_for 60 test -b /dev/sda
	# somebody writes all the time
	(while :; do dd if=/dev/urandom of=/srv/writer bs=4k count=50 2>/dev/null; done) &
	writer=$!
	must cowctl clone root /dev/sda --yes
	kill $writer
	grep -q 'what lies in front of the first partition' /run/cowfs-test/out || fail "clone says $(cat /run/cowfs-test/out)"
	while read -r line; do say "$line"; done </run/cowfs-test/out
	# the kernel has read the new table
	wait_for 20 test -b /dev/sda2
	must cowctl check /dev/sda2
	echo "on the old card alone" >/srv/clone/later
}

host_before() {
	if [ "$1" = 1 ]; then
		truncate -s "$(($(stat -c %s "$CARD") + (256 << 20)))" "$WORK/new.img"
		sfdisk -d "$CARD" | sed '/^device\|^last-lba/d; s/.* : start= *[0-9]*, size= *[0-9]*,//' >"$WORK/old-table"
		DEVICES="-device virtio-scsi-pci,id=reader"
	else
		DEVICES=
		rm -f "$WORK/efivars"
	fi
}

host_after() {
	[ "$1" != 1 ] || mv "$WORK/new.img" "$CARD"
	sfdisk -d "$CARD" | sed '/^device\|^last-lba/d; s/.* : start= *[0-9]*, size= *[0-9]*,//' | cmp - "$WORK/old-table" ||
		fail "another partition table"
	sfdisk -V "$CARD" | grep -q '^No errors' || fail "sfdisk -V: $(sfdisk -V "$CARD")"
	card_extract "$WORK/part"
	offline_check "$WORK/part"
}
