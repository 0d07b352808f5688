# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# As clone, and the new card starts by its own boot loader: the commands of cowctl(8), "clone", for the rest of a disk.
# guests: debian12 debian12-efi debian12-uboot
LOADER=1
. "$CASES/clone.sh"

# boot code, what lies before the first partition, and the partitions that are not the root
copy_rest() { # OLD-DISK NEW-DISK
	first=$(cat "/sys/class/block/${1}1/start")
	must dd if="/dev/$1" of="/dev/$2" bs=440 count=1 conv=notrunc
	must dd if="/dev/$1" of="/dev/$2" bs=512 skip=34 seek=34 count=$((first - 34)) conv=notrunc
	for p in "/sys/block/$1/$1"[0-9]*; do
		[ "${p##*/}" = "$(root_part)" ] || must dd if="/dev/${p##*/}" of="/dev/$2${p##*[!0-9]}" bs=1M
	done
}

step_1() {
	part=$(new_part)
	disk=$(root_part)
	copy_rest "${disk%[0-9]}" "${part%[0-9]}"
	clone_root
}
