# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# umount without the helper at any moment of a commit, and at once e2fsck, which claims the device and says if it is in use. Of
# ext4, xfs and btrfs. No mount is ever busy; the figures say how often the device was in use.
# guests: debian12 debian13 debian13-initramfs-kernel-sid-fio
# short:
MEM=1024 LIMIT=3000 STEP_LIMIT=2800

ROUNDS=12
[ -z "$LONG" ] || ROUNDS=40

begin() { # FS: attached and mounted
	device=/dev/disk/by-id/virtio-$1
	must cowctl prepare "$device"
	loop=$(cowctl attach --ram 200M --name "$1" "$device" 2>/run/cowfs-test/said) || fail "$1: not attached"
	mkdir -p /mnt/try
	must mount "$loop" /mnt/try
}

end() { # FS
	must umount -i /mnt/try
	must cowctl detach "$1"
}

unmounts() { # FS ROUNDS
	busy=0 used=0 refused=0 i=0
	while [ $i -lt "$2" ]; do
		i=$((i + 1))
		grep -q ' /mnt/try ' /proc/mounts || must mount "$loop" /mnt/try
		echo $i >/mnt/try/closed
		dd if=/dev/urandom of=/mnt/try/file bs=64k count=16 2>/dev/null
		cowctl commit "$1" >/run/cowfs-test/commit 2>&1 &
		sleep "0.$((i * 3 % 10))"
		if umount -i /mnt/try 2>/dev/null; then
			e2fsck -fn "$loop" >/run/cowfs-test/check 2>&1
			! grep -q 'in use\|busy' /run/cowfs-test/check || used=$((used + 1))
		else
			busy=$((busy + 1))
		fi
		wait $! || refused=$((refused + 1))
	done
	grep -q ' /mnt/try ' /proc/mounts || must mount "$loop" /mnt/try
	must cowctl commit "$1"
	is "last file of $1" "$(cat /mnt/try/closed)" $i
	say "$1: busy $busy, device in use $used, commits refused $refused, of $i"
	[ $busy = 0 ] || fail "$1: busy"
}

step_1() {
	settled
	for fs in ext4 xfs btrfs; do
		modprobe $fs
		begin $fs
		unmounts $fs "$ROUNDS"
		end $fs
	done
}

# three disks beside the card
disks() {
	DEVICES=
	for fs in ext4 xfs btrfs; do
		truncate -s 700M "$WORK/$fs.img"
		case $fs in
		ext4) mke2fs -q -F -t ext4 "$WORK/$fs.img" 320M ;;
		xfs) mkfs.xfs -q -f -d size=320m "$WORK/$fs.img" ;;
		btrfs) mkfs.btrfs -q -b 320M "$WORK/$fs.img" >/dev/null ;;
		esac
		DEVICES="$DEVICES -drive file=$WORK/$fs.img,if=none,id=$fs,format=raw -device virtio-blk-pci,drive=$fs,serial=$fs"
	done
}

host_before() { disks; }
