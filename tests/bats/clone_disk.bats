#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl clone of a whole disk: its table, boot loader, volume and other partitions, to a disk of another size.
# seconds: 100
# turn: 3

load lib

setup() {
	cow_setup || return
	mkdir "$T/look" "$T/esp"
}

# The kernel may know no partition tables. Partitions are those of the table, and none of an earlier one.
know_parts() { # DISK
	local n start size
	for n in "/sys/class/block/${1#/dev/}/${1#/dev/}"p*; do
		[ ! -e "$n" ] || delpart "$1" "${n##*p}"
	done
	while read -r n start size; do
		# as the kernel has an extended one
		[ "$n" != 2 ] || [ "$size" -lt 100000 ] || size=2
		addpart "$1" "$n" "$start" "$size"
		wait_for 5 [ -b "${1}p$n" ]
	done < <(sfdisk -d "$1" | sed -n "s|^${1}p\([0-9]*\) : start= *\([0-9]*\), size= *\([0-9]*\),.*|\1 \2 \3|p")
}

# DISK: p14 for GRUB, p1 an EFI partition (with FS), p2 swap, p3 a volume with a commit and more in RAM, SUM its tree. In front of them are
# boot code and a loader.
disk_make() { # [gpt|dos [FS]]
	IMG=$T/disk.img
	truncate -s 200M "$IMG"
	if [ "${1-gpt}" = gpt ]; then
		printf '%s\n' 'label: gpt' 'first-lba: 34' '' \
			'/dev/p14 : start=1024, size=1024, type=21686148-6449-6E6F-744E-656564454649' \
			'/dev/p1 : start=2048, size=40960, type=U, name="EFI, first"' \
			'/dev/p2 : start=43008, size=20480, type=S, attrs="GUID:50"' \
			'/dev/p3 : start=65536, size=300000, type=L' | sfdisk -q "$IMG"
		FRONT=34
	else
		printf '%s\n' 'label: dos' '' '/dev/p1 : start=2048, size=40960, type=c, bootable' \
			'/dev/p2 : start=43008, size=350000, type=5' '/dev/p5 : start=45056, size=20480, type=82' \
			'/dev/p6 : start=70000, size=300000, type=83' | sfdisk -q "$IMG"
		FRONT=1
	fi
	dd if=/dev/urandom of="$IMG" bs=440 count=1 conv=notrunc status=none
	dd if=/dev/urandom of="$IMG" bs=512 seek=$FRONT count=$((2048 - FRONT)) conv=notrunc status=none
	loop_up "$IMG" -P
	DISK=$LOOP
	know_parts "$DISK"
	random_file "$T/loader.efi" 3
	if [ "${2-vfat}" = vfat ]; then # the kernel may know no vfat
		mkfs.vfat "${DISK}p1" >/dev/null
		mcopy -i "${DISK}p1" "$T/loader.efi" ::
	else
		mke2fs -q -t "$2" "${DISK}p1"
	fi
	if [ "${1-gpt}" = gpt ]; then SWAP=2 ROOT=3; else SWAP=5 ROOT=6; fi
	mkswap "${DISK}p$SWAP" >/dev/null 2>&1
	CARD=${DISK}p$ROOT
	mke2fs -q -t ext4 -E nodiscard,lazy_itable_init=0 "$CARD" 60M
	cow prepare "$CARD" >/dev/null
	attach_mounted
	random_file "$MNT/committed" 9
	cow commit >/dev/null
	random_file "$MNT/in-ram" 5
	SUM=$(tree_sum "$MNT")
}

new_disk() { # MIB
	truncate -s "$1M" "$T/new.img"
	printf 'label: dos\n2048,40960,c\n43008,40960,L\n' | sfdisk -q "$T/new.img"
	loop_up "$T/new.img" -P
	NEW=$LOOP
	know_parts "$NEW"
	mke2fs -q -t ext2 "${NEW}p2"
}

# what sfdisk says of each partition but its place
table_of() { sfdisk -d "$1" | sed -n "s|^$1p*\([0-9]* :\) start= *[0-9]*, size= *[0-9]*,|\1|p; /^label/p"; }
field() { sfdisk --json "$1" | jq ".partitiontable.partitions[] | select(.node | endswith(\"p$2\")).$3"; }

# NEW, alone, has all of it.
new_is_whole() {
	local n
	cmp -n 440 "$IMG" "$NEW"
	cmp -i $((FRONT * 512)) -n $(((2048 - FRONT) * 512)) "$IMG" "$NEW"
	[ "$(table_of "$NEW")" = "$(table_of "$DISK")" ]
	sfdisk -V "$NEW" 2>&1 | grep -q '^No errors detected'
	know_parts "$NEW"
	[ "$(blkid -p -o value -s UUID "${NEW}p$SWAP")" = "$(blkid -p -o value -s UUID "${DISK}p$SWAP")" ]
	cmp "${DISK}p1" "${NEW}p1"
	detach >/dev/null
	CARD=${NEW}p$ROOT
	fsck ext4
	run -0 cow check "$CARD"
	attach_mounted --name new
	[ "$(tree_sum "$MNT")" = "$SUM" ] || return
	touch "$MNT/more"
	cow commit new >/dev/null
	umount_volume
	cow detach new >/dev/null
	fsck ext4
}

no_table() { [ -z "$(blkid -p -o value -s PTTYPE "$NEW")" ]; }

clones() { # LABEL MIB
	local n
	disk_make "$1"
	new_disk "$2"
	run -0 cow clone vol "$NEW" --yes
	[[ $output == *"$NEW, partition 1: has the vfat of ${DISK}p1 (20.0 MiB)"* ]]
	[[ $output == *"$NEW, partition $SWAP: has the swap of ${DISK}p$SWAP (4.0 KiB)"* ]]
	[[ $output == *"$NEW, partition $ROOT: has the ext4 as it was "*", and an empty log of 32.0 MiB"* ]]
	[[ $output == *"$NEW: has the partition table ("*") of $DISK, what lies in front of the first partition, and 3 partitions"* ]]
	for n in 1 $SWAP $ROOT; do
		[ $(($(field "$NEW" "$n" start) % 8192)) = 0 ]
	done
	# the last one has the rest
	[ $(($(field "$NEW" "$ROOT" start) + $(field "$NEW" "$ROOT" size))) -gt $(($2 * 2048 - 64)) ]
	new_is_whole
}

@test "clone disk: GPT, to a larger one" { clones gpt 300; }
@test "clone disk: GPT, to a smaller one" { clones gpt 170; }
@test "clone disk: MBR with logical partitions, to a larger one" { clones dos 300; }

@test "clone disk: a file, as JSON" {
	disk_make
	truncate -s 250M "$T/new.img"
	fails 2 'nobody can be asked' clone "$T/new.img" --disk
	run -0 cow clone "$T/new.img" --disk --yes --json
	[ "$(jq -c '[.partitions[] | [.number, .content]]' <<<"$output")" = '[[1,"vfat"],[2,"swap"],[3,"volume"]]' ]
	[ "$(jq -r '.table + " " + .source' <<<"$output")" = "gpt $DISK" ]
	[ "$(jq '.partitions[2].lost_blocks' <<<"$output")" = 0 ]
	loop_up "$T/new.img" -P
	NEW=$LOOP
	know_parts "$NEW"
	new_is_whole
}

@test "clone disk: asks, and says what each partition holds" {
	disk_make
	new_disk 300
	run -1 script -qec "$COWFS_BUILD/cowctl clone $NEW" /dev/null <<<n
	[[ $output == *"$NEW (300.0 MiB"*") holds a DOS partition table with 2 partitions; ${NEW}p1 holds nothing that is known; ${NEW}p2 holds a file system (ext2). Overwrite all of it with the disk $DISK?"* ]]
	[[ $output == *"not confirmed; nothing was written"* ]]
	fsck ext2 "${NEW}p2"
	[ "$(field "$NEW" 2 start)" = 43008 ]
	run -0 script -qec "$COWFS_BUILD/cowctl clone $NEW" /dev/null <<<y
	new_is_whole
}

@test "clone disk: a target that is in use, too small, the source, a partition, or on the volume" {
	disk_make
	new_disk 300
	mount "${NEW}p2" "$T/look"
	fails 1 "${NEW}p2 is mounted on $T/look" clone vol "$NEW" --yes
	umount "$T/look"
	mkswap "${NEW}p1" >/dev/null 2>&1
	swapon "${NEW}p1"
	fails 1 "${NEW}p1 is in use by something else \(a view, swap" clone vol "$NEW" --yes
	swapoff "${NEW}p1"
	fails 1 "is the disk that is to be copied" clone vol "$DISK" --yes
	fails 2 "${NEW}p1: is a partition: name its disk" clone vol "${NEW}p1" --yes --disk
	fails 1 "${DISK}p1: too small" clone vol "${DISK}p1" --yes
	fails 2 '--log is for a card that is not attached' clone vol "$NEW" --yes --log "${NEW}p1"
	fails 2 'too small or too large for erase blocks' clone vol "$NEW" --yes --log-size 1M
	loop_up "${NEW}p2"
	fails 1 "${NEW}p2 is in use by $LOOP" clone vol "$NEW" --yes
	loop_down "$LOOP"
	fsck ext2 "${NEW}p2"
	truncate -s 100M "$T/small"
	fails 1 "partition 3: too small .*: the file system takes 60.0 MiB, and .* are missing" clone vol "$T/small" --disk --yes
	truncate -s 20M "$T/small"
	fails 1 "too small \(20.0 MiB\): .* are missing" clone vol "$T/small" --disk --yes
	[ -z "$(blkid -p "$T/small")" ]
	truncate -s 300M "$MNT/file"
	fails 1 "$MNT/file: lies on volume vol, which is to be copied" clone vol "$MNT/file" --disk --yes
	fails 1 "$MNT/file: lies on volume vol, which is to be copied" clone vol "$MNT/file" --yes
	rm "$MNT/file"
	fails 1 'too small \(20.0 MiB\): .* are missing' clone "$NEW" "$T/small" --disk --yes <<<''
	[ "$(tree_sum "$MNT")" = "$SUM" ]
}

@test "clone disk: partitions begin at erase blocks, however cowctl is told their size" {
	local size start
	disk_make
	for size in 4M 4m 4096KiB 0x400000 4.0mib; do
		rm -f "$T/new.img"
		truncate -s 300M "$T/new.img"
		cow clone vol "$T/new.img" --disk --yes --erase-block "$size" >/dev/null
		start=$(sfdisk --json "$T/new.img" | jq '.partitiontable.partitions[] | select(.node | endswith("img2")).start')
		echo "$size: $start"
		[ $((start % 8192)) = 0 ]
	done
}

@test "clone disk: without a table that could be copied" {
	volume_attached ext4 60 100
	truncate -s 300M "$T/new.img"
	fails 1 'cannot be copied|sfdisk has failed' clone vol "$T/new.img" --disk --yes
	[ -z "$(blkid -p "$T/new.img")" ]
}

@test "clone disk: a partition that is mounted, and written to" {
	disk_make gpt ext4
	new_disk 300
	mount "${DISK}p1" "$T/esp"
	random_file "$T/esp/later" 2
	truncate -s 300M "$T/esp/file"
	fails 1 "$T/esp/file: lies on ${DISK}p1, which is to be copied" clone vol "$T/esp/file" --disk --yes
	rm "$T/esp/file"
	run -0 cow clone vol "$NEW" --yes
	umount "$T/esp"
	know_parts "$NEW"
	mount -o ro "${NEW}p1" "$T/look"
	mount -o ro "${DISK}p1" "$T/esp"
	cmp "$T/look/later" "$T/esp/later"
	umount "$T/esp" "$T/look"
	fsck ext4 "${NEW}p1"
	# all the time
	mount -o sync "${DISK}p1" "$T/esp"
	(while dd if=/dev/urandom of="$T/esp/later" bs=64k count=8 conv=notrunc,fsync status=none; do :; done) &
	eio slow 30
	run -1 with_shim "$COWFS_BUILD/cowctl" clone vol "$NEW" --yes
	eio off
	kill -9 $!
	wait $! || true
	[[ $output == *"partition 1 (${DISK}p1) is written to all the time, or does not keep what is copied. Unmount it, or mount it read-only"* ]]
	no_table
	wait_for 10 umount "$T/esp"
	run -0 cow clone vol "$NEW" --yes
	new_is_whole
}

# bats test_tags=blunt
@test "clone disk: killed at any moment, nothing can be found on it, and the next one goes on" {
	local mib before
	disk_make
	new_disk 300
	eio write 2 1000
	run -1 with_shim "$COWFS_BUILD/cowctl" clone vol "$NEW" --yes
	no_table
	eio slow 20
	for mib in 4 0 1 2 6; do # those behind the first one find its mark
		before=$(card_written "$NEW")
		# exec: $! is the command, not a shell that waits for it
		with_shim exec "$COWFS_BUILD/cowctl" clone vol "$NEW" --yes >"$T/said" 2>&1 &
		wait_for 10 eval '[ "$(card_written "$NEW")" -ge $((before + (mib << 20))) ] || ended $!'
		kill -9 $! || break
		wait $! || true
		no_table
	done
	eio off
	run -0 cow clone vol "$NEW" --yes
	[[ $output == *"were there from an earlier run"* ]]
	new_is_whole
}

# bats test_tags=blunt
@test "clone disk: a write that fails anywhere, and the next one goes on" {
	local n=1 step=$((36 / $(rounds 4)))
	disk_make
	new_disk 300
	while eio write "$n" 1000; ! run -0 with_shim "$COWFS_BUILD/cowctl" clone vol "$NEW" --yes; do
		[[ $output == *"incomplete; the same command goes on with it"* || $output == *"the copy is complete, but its log"* ]]
		no_table
		n=$((n + 1 + RANDOM % (2 * step)))
		[ "$n" -lt 1000 ]
	done
	[ "$n" -gt 20 ]
	eio off
	new_is_whole
}

# bats test_tags=blunt
@test "clone disk: a disk that has less than it says" {
	disk_make
	new_disk 300
	eio wrap 128
	run -1 with_shim "$COWFS_BUILD/cowctl" clone vol "$NEW" --yes
	[[ $output == *"says that it has 300.0 MiB, but a block at "*"Nothing was copied"* ]]
	eio off
	no_table
}

@test "clone disk: a volume that is not attached, by its disk" {
	disk_make
	cow commit >/dev/null
	detach >/dev/null
	new_disk 300
	run -0 cow clone "$DISK" "$NEW" --yes
	attach_mounted
	new_is_whole
}

@test "clone disk: what cannot be copied is refused before anything is written" {
	disk_make
	new_disk 300
	printf '\x83' | dd of="$DISK" bs=1 seek=$((446 + 16 + 4)) conv=notrunc status=none
	fails 1 "its MBR has partitions of its own \(a hybrid MBR\)" clone vol "$NEW" --yes
	printf '\0' | dd of="$DISK" bs=1 seek=$((446 + 16 + 4)) conv=notrunc status=none
	delpart "$DISK" 1
	fails 1 "the kernel does not know its partition 1 as it is in the table: run partprobe $DISK" clone vol "$NEW" --yes
	addpart "$DISK" 1 2048 40960
	mke2fs -q -t ext4 -E nodiscard,lazy_itable_init=0 "${DISK}p1"
	truncate -s 50M "$T/log.img"
	loop_up "$T/log.img"
	cow prepare "${DISK}p1" --log "$LOOP" >/dev/null
	cow attach "${DISK}p1" --log "$LOOP" --name two >/dev/null
	fails 1 "${DISK}p1: a volume with its log on another device" clone vol "$NEW" --yes
	cow detach two >/dev/null
	fsck ext2 "${NEW}p2"
	run -0 cow clone vol "$NEW" --yes
	know_parts "$NEW"
	fsck ext4 "${NEW}p1"
}

# bats test_tags=blunt
@test "clone disk: blocks that cannot be read, of a volume and beside it" {
	disk_make gpt ext4
	new_disk 300
	eio bad $((2048 * 512 + 8192)) $((2048 * 512 + 16384))
	run -3 with_shim "$COWFS_BUILD/cowctl" clone vol "$NEW" --yes
	eio off
	[[ $output == *"$NEW, partition 1: has the ext4"*"cannot be read, and are zeroes in the copy"*"$NEW: has the partition table"* ]]
}

@test "clone disk: names of partitions and paths are any text" {
	local name=$'a"\n/dev/p9 : start=8, size=8 `id`' new
	names() { sfdisk --json "$1" | jq -c '[.partitiontable.partitions[].name]'; }
	disk_make
	sfdisk -q --no-reread --part-label "$DISK" 1 "$name"
	sfdisk -q --no-reread --part-label "$DISK" 3 '$(touch ran); \x41'
	new="$T/a dir"$'\n'"-x; \$(touch ran)"
	mkdir "$new"
	cd "$new"
	truncate -s 250M ./--yes
	run -0 cow clone --disk --yes -- vol "$new/--yes"
	[[ $output == *"$T/a dir?-x; \$(touch ran)/--yes, partition 1: has the vfat of "* ]]
	[ "$(names "$new/--yes")" = "$(names "$DISK")" ]
	[[ $(names "$DISK") == '["a\"\n/dev/p9 : start=8, size=8 `id`",'* ]]
	[ -z "$(find "$T" -name ran)" ]
	run -0 cow clone --disk --yes --json -- vol ./--yes
	jq -e '.ok and .device == "./--yes"' <<<"$output"
}
