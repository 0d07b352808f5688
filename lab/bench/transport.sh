#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Instructions for each operation of 4 KiB, or 128 KiB, on the disk of a volume, and of what is below it or like it: a tiny guest whose clock counts instructions (QEMU
# -icount, one processor, no KVM), with the card in RAM. As root.
#
#	lab/bench/transport.sh [VMLINUZ MODULES]	MODULES: /lib/modules/VERSION of that kernel
#
# Needs dmsetup. Without arguments: the kernel of the guest debian13 (tests/vm/guests debian13). Columns: read and write, one at a time and 32 at a time.
set -euo pipefail
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end
TOP=$(cd "$(dirname "$0")/../.." && pwd)
B=${COWFS_BUILD:-$TOP/build}
GUEST=$TOP/build/vm/debian13
KERNEL=${1:-$GUEST/vmlinuz} MODULES=${2:-$(echo "$GUEST"/root/usr/lib/modules/*)}
make -s -C "$TOP" "$B/cowfs" "$B/cowctl" "$B/tests/blkops"
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
R=$T/root
mkdir -p "$R"/{bin,dev,proc,sys,run,tmp,lib/modules,lib64,etc}

add() { # PROGRAM...: with its libraries
	local f
	for f; do
		cp -L "$f" "$R/bin/"
		{ ldd "$f" 2>/dev/null || :; } | { grep -o '/[^ ]*' || :; } | while read -r lib; do
			mkdir -p "$R${lib%/*}" && cp -L "$lib" "$R$lib"
		done
	done
}
add /bin/busybox /sbin/mke2fs /sbin/losetup "$(command -v dmsetup)" "$B/cowfs" "$B/cowctl" "$B/tests/blkops"
cp /etc/mke2fs.conf "$R/etc/"
for m in loop brd dm-mod dm-bufio dm-snapshot; do
	f=$(find "$MODULES" -name "$m.ko*")
	case $f in
	*.xz) xz -dc "$f" >"$R/lib/modules/$m.ko" ;;
	?*) cp "$f" "$R/lib/modules/$m.ko" ;;
	esac
done
cat >"$R/init" <<'INIT'
#!/bin/busybox sh
export PATH=/bin
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs dev /dev
busybox mount -t tmpfs tmpfs /run
busybox dmesg -n 1
busybox insmod /lib/modules/brd.ko rd_nr=3 rd_size=262144
for m in loop dm-mod dm-bufio dm-snapshot; do busybox insmod /lib/modules/$m.ko; done
/bin/mke2fs -q -t ext4 -F /dev/ram0 200M
cowctl prepare /dev/ram0 >/dev/null
busybox dd if=/dev/zero of=/dev/ram1 bs=1M count=64 2>/dev/null
# TEXT DEVICE BLOCKS OPERATION...; KIB of each and COUNT
row() {
	text=$1 device=$2 blocks=$3
	shift 3
	for op; do
		text="$text | $(blkops "$device" ${op%:*} ${op#*:} ${COUNT:-8000} $blocks ${KIB:-4})"
	done
	echo "| $text |"
}
all="read:1 read:32 write:1 write:32"
echo
row "the card itself" /dev/ram1 8192 $all
loop=$(/bin/losetup --direct-io=on -f --show /dev/ram1)
row "a plain loop device, direct I/O" $loop 8192 $all
/bin/losetup -d $loop
# what the kernel itself has: chunks of 4 KiB, changes in RAM, table without an end to it
dmsetup create snap --table "0 524288 snapshot /dev/ram1 /dev/ram2 N 8" >/dev/null
row "dm-snapshot, from the card" /dev/dm-0 8192 read:1 read:32
busybox dd if=/dev/urandom of=/dev/dm-0 bs=1M count=4 oflag=direct 2>/dev/null
row "dm-snapshot, RAM" /dev/dm-0 1024 $all
dmsetup remove snap
dev=$(cowfs --ram 500M --name v /dev/ram0)
row "cowfs, from the card" $dev 40000 read:1 read:32
KIB=128 COUNT=1000 row "cowfs, from the card, 128 KiB" $dev 1250 read:1 read:32
busybox dd if=/dev/urandom of=$dev bs=1M count=4 oflag=direct 2>/dev/null
row "cowfs, RAM" $dev 1024 $all
KIB=128 COUNT=1000 row "cowfs, RAM, 128 KiB" $dev 32 $all
for p in $(busybox pidof cowfs); do
	[ "$(busybox cat /proc/$p/comm)" != cowfs ] || busybox grep VmRSS /proc/$p/status
done
cowctl detach --discard v >/dev/null 2>&1
busybox reboot -f
INIT
chmod 755 "$R/init"
(cd "$R" && find . | cpio --quiet -o -H newc -R 0:0) | gzip -1 >"$T/initrd"
timeout 300 qemu-system-x86_64 -M q35 -accel tcg -icount shift=0,sleep=off -m 1024 -nographic -no-reboot -nic none \
	-kernel "$KERNEL" -initrd "$T/initrd" -append "console=ttyS0 quiet panic=-1" </dev/null | grep -a '^| \|^VmRSS'
