# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# What a root partition holds if the root is on LUKS, LVM or md, made and read without the drivers of the kernel:
#	luks_make, lvm_make, md_make FILE	FILE, the content of the root's device, becomes that of the partition
#	luks_open FILE		the encrypted data becomes the content of the device
#	luks_closed FILE	prints a file with FILE encrypted
#	leg_make		$LEG, the second disk of the RAID1

# That of a header that is always the same.
luks_key() {
	[ -s "$DIR/luks.key" ] || {
		printf cowfs >"$DIR/luks.pass"
		truncate -s "${BELOW_MIB}M" "$DIR/luks.header"
		cryptsetup luksFormat -q --type luks2 --uuid c0ffee00-0000-4000-8000-000000000002 --cipher aes-xts-plain64 \
			--key-size 512 --sector-size 4096 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file "$DIR/luks.pass" \
			"$DIR/luks.header" >/dev/null || die "cryptsetup failed: apt-get install cryptsetup-bin python3-cryptography"
		cryptsetup luksDump -q --dump-volume-key --key-file "$DIR/luks.pass" --volume-key-file "$DIR/luks.key" \
			"$DIR/luks.header" >/dev/null || die "no key"
	}
	echo "$DIR/luks.key"
}

luks_closed() {
	"$TOP/tests/vm/stack.py" encrypt "$(luks_key)" "$1" "$1.closed" || die "encrypting failed"
	echo "$1.closed"
}

luks_open() {
	"$TOP/tests/vm/stack.py" decrypt "$(luks_key)" "$1" "$1.open" && mv "$1.open" "$1"
}

luks_make() {
	local closed
	closed=$(luks_closed "$1")
	cp "$DIR/luks.header" "$1"
	cat "$closed" >>"$1"
	rm "$closed"
}

# shift_down FILE: moves it by BELOW_MIB
shift_down() {
	mv "$1" "$1.data"
	truncate -s "${BELOW_MIB}M" "$1"
	dd if="$1.data" of="$1" bs=1M seek="$BELOW_MIB" conv=sparse,notrunc status=none
	truncate -s $(($(stat -c %s "$1.data") + BELOW_MIB * 1048576)) "$1"
	rm "$1.data"
}

# One linear logical volume: its only segment begins where the physical extents do.
lvm_make() {
	local loop
	shift_down "$1"
	loop=$(losetup -f --show "$1")
	(
		lvm() { command lvm "$@" --config 'backup { backup=0 archive=0 }' --devices "$loop" --driverloaded n >/dev/null 2>&1; }
		lvm pvcreate -y --dataalignment "${BELOW_MIB}m" "$loop" && lvm vgcreate vg "$loop" &&
			lvm lvcreate -an -Zn -Wn -y -l 100%FREE -n root vg
	) || { losetup -d "$loop"; die "no logical volume: apt-get install lvm2"; }
	losetup -d "$loop"
}

md_make() {
	shift_down "$1"
	"$TOP/tests/vm/stack.py" md 0 "$1" || die "no array"
}

# A copy of the first one, with another number and other names for its partitions.
leg_make() {
	local part=$WORK/leg-part
	cp --sparse=always "$CARD" "$LEG"
	sfdisk -q --disk-id "$LEG" 0xc0ffee01
	dd if="$LEG" of="$part" bs=1M iflag=skip_bytes,count_bytes skip=$(($(part_field start) * 512)) \
		count=$(($(part_field size) * 512)) conv=sparse status=none
	truncate -s $(($(part_field size) * 512)) "$part"
	"$TOP/tests/vm/stack.py" md 1 "$part" || die "no array"
	dd if="$part" of="$LEG" bs=1M count=1 oflag=seek_bytes seek=$(($(part_field start) * 512)) conv=notrunc status=none
	rm "$part"
}
