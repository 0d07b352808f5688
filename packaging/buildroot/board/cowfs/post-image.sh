#!/bin/sh
# SPDX-License-Identifier: MIT
# Initramfs, empty log behind the root file system, and disk.img: less than 64 MiB. cowctl of the building machine writes
# the log (make programs in the clone, or COWCTL=PATH).
set -eu
here=$(dirname "$0")
top=$here/../../../..
cowctl=${COWCTL:-$top/build/cowctl}
out=${BINARIES_DIR:?}

[ -x "$cowctl" ] || {
	echo "post-image.sh: no $cowctl: run make programs in the clone, or set COWCTL" >&2
	exit 1
}
"$top/initramfs/busybox/mkinitramfs" -x -k none -r "${TARGET_DIR:?}" "$out/initrd.img"

cp "$out/rootfs.ext4" "$out/root.img"
truncate -s +4M "$out/root.img"
"$cowctl" prepare --log-size 1M --erase-block 128K "$out/root.img" >/dev/null

if [ -e "$out/bzImage" ]; then
	kernel=bzImage console=ttyS0 type=0xc grub_cfg=boot/grub/grub.cfg
	loader=$here/loader-bios.cfg files=/dev/null
	cp "$TARGET_DIR/lib/grub/i386-pc/boot.img" "$out/"
else
	kernel=Image console=ttyAMA0 type=0xef grub_cfg=EFI/BOOT/grub.cfg
	loader=/dev/null files=$here/files-efi.cfg
fi
sed "s|@KERNEL@|$kernel|; s|@CONSOLE@|$console|" "$here/grub.cfg" >"$out/grub.cfg"
sed -e "s|@KERNEL@|$kernel|; s|@GRUB_CFG@|$grub_cfg|; s|@TYPE@|$type|" \
	-e "/@FILES@/{" -e "r $files" -e d -e "}" -e "/@LOADER@/{" -e "r $loader" -e d -e "}" \
	"$here/genimage.cfg" >"$out/genimage.cfg"
support/scripts/genimage.sh -c "$out/genimage.cfg"
