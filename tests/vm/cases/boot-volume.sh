# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# /boot, a partition of its own, as a third volume beside the root and a second card: room is made for its log, fstab mounts it, the
# disk's boot loader starts what it had at the last commit, and joint commits of all three are cut as in joint.
# guests: debian13-initramfs
# short:
. "$CASES/joint.sh"

LOADER=1
KILLED=2
VOLUMES="boot data root"

all_mounted() {
	protected || fail "the root is $(root_device)"
	mounted /boot
	mounted /mnt/data
}

step_1() {
	protected || fail "the root is $(root_device)"
	mkdir -p /mnt/data
	wait_for 60 grep -q ' /boot ' /proc/mounts || fail "/boot is not mounted"
	part=$(findmnt -no SOURCE /boot)
	must umount /boot
	must cowctl format --shrink --journal-size 4M "$part"
	sed -i '/ \/boot /d' /etc/fstab
	cat >>/etc/fstab <<-END
		PARTUUID=c0ffee00-01 /boot cowfs name=boot,checkpoint=always,ram=100M,noatime,nofail 0 0
		/dev/disk/by-id/virtio-data /mnt/data cowfs name=data,ram=200M,noatime,nofail 0 0
	END
	must systemctl daemon-reload
	must systemctl start boot.mount
	must sed -i 's/ ro / ro once=1 /' /boot/grub/grub.cfg
}

step_2() {
	all_mounted
	must grep -q once=1 /proc/cmdline
	must sed -i 's/ once=1 / twice=1 /' /boot/grub/grub.cfg
	commits_under_load
}

step_3() {
	all_mounted
	must grep -q twice=1 /proc/cmdline
	same_numbers
}

copy_boot() { # the partition in front of the root's
	dd if="$CARD" of="$1" bs=64K iflag=skip_bytes,count_bytes skip=$(($(part_field start 1) * 512)) \
		count=$(($(part_field size 1) * 512)) conv=sparse status=none
	truncate -s $(($(part_field size 1) * 512)) "$1"
}
file_boot() { echo "/$1"; }
