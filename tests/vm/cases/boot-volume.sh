# shellcheck shell=sh disable=SC2034,SC2153,SC2154,SC3028
# SPDX-License-Identifier: MIT
# /boot, a partition of its own, as a third volume beside the root and a second card: room is made for its log, fstab mounts it, the
# disk's boot loader starts what it had at the last commit. Then cowctl commit --all again and again, under load, and the power goes
# at a random moment (long form: 30 times, short: 8). The machine is saved once and goes on from there each time. All volumes have
# the same number in a file, which is written before each commit. Offline each time, after a boot once, /boot is not newer than the
# root, nor the root newer than the data.
# guests: debian13-initramfs
# short:
DATA_MIB=200 LIMIT=900 STEP_LIMIT=800
LOADER=1
KILLED=2
VOLUMES="data root boot" # in the order in which they are committed

# A folder on the volume; debugfs has other names for it
place() {
	case $1 in
	root) echo /srv ;;
	data) echo /mnt/data ;;
	boot) echo /boot ;;
	esac
}

load_on() {
	while dd if=/dev/urandom of="$1" bs=64k count=12 conv=notrunc 2>/dev/null; do
		sleep 0.2
	done
}

write_number() {
	for volume in $VOLUMES; do
		echo "$1" >"$(place "$volume")/n"
	done
}

commits_under_load() {
	for volume in $VOLUMES; do
		must cowctl inhibit "$volume" --for 60m
	done
	write_number 0
	must cowctl commit --all
	# not on /boot: one that is written all the time is left out, because the root may lack modules for it
	load_on /srv/load &
	load_on /mnt/data/load &
	mark ready
	sleep 4
	n=0
	while :; do
		n=$((n + 1))
		write_number $n
		cowctl commit --all >/run/cowfs-test/out 2>&1 || say "$(cat /run/cowfs-test/out)"
	done
}

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
	must cowctl prepare --shrink --journal-size 4M "$part"
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
	ordered "$(cat /mnt/data/n) $(cat /srv/n) $(cat /boot/n)" || fail "numbers on $VOLUMES: $(cat /mnt/data/n /srv/n /boot/n)"
	must cowctl commit --all
}

# "DATA ROOT BOOT": at most one commit apart
ordered() {
	# shellcheck disable=SC2086 # three words
	set -- $1
	[ $# = 3 ] && [ "$1" -ge "$2" ] && [ "$2" -ge "$3" ] && [ $(($1 - $3)) -le 1 ]
}

host_during() {
	[ "$1" = "$KILLED" ] || return 0
	wait_mark ready && vm_save
}

recover_all() {
	for card; do
		"$BUILD/cowctl" release "$card" || return
		e2fsck -fp "$card" || [ $? = 1 ] || return
		e2fsck -fn "$card" || return
	done
}

copy_root() { card_extract "$1"; }
copy_data() { cp --sparse=always "$DATA" "$1"; }
copy_boot() { # the partition in front of the root's
	dd if="$CARD" of="$1" bs=64K iflag=skip_bytes,count_bytes skip=$(($(part_field start 1) * 512)) \
		count=$(($(part_field size 1) * 512)) conv=sparse status=none
	truncate -s $(($(part_field size 1) * 512)) "$1"
}
file_root() { echo "/srv/$1"; }
file_data() { echo "/$1"; }
file_boot() { echo "/$1"; }

judge_cut() {
	set --
	for volume in $VOLUMES; do
		"copy_$volume" "$WORK/$volume"
		set -- "$@" "$WORK/$volume"
	done
	recover_all "$@" >"$WORK/recover.out" 2>&1 || fail "recover: $(tail -3 "$WORK/recover.out")"
	for volume in $VOLUMES; do
		debugfs -R "cat $("file_$volume" n)" "$WORK/$volume" 2>/dev/null || echo "$volume has none"
	done >"$WORK/numbers"
	say "cut $i: $(paste -sd ' ' "$WORK/numbers") ($VOLUMES)"
	ordered "$(paste -sd ' ' "$WORK/numbers")" || fail "in another order"
	verdict_read
	! grep -q ^fail "$VERDICT" || fail "cut $i: $(sed -n 's/^fail //p' "$VERDICT")"
	number=$(head -n 1 "$WORK/numbers")
	highest=$((number > highest ? number : highest))
}

host_after() {
	[ "$1" = "$KILLED" ] || return 0
	cuts=8
	[ -z "$LONG" ] || cuts=30
	i=0 highest=0
	while [ $i -lt $cuts ]; do
		i=$((i + 1))
		vm_load
		sleep $((4 + RANDOM % 50)).$((RANDOM % 10))
		vm_kill
		wait_gone
		judge_cut
	done
	[ $highest -gt 1 ] || fail "no more than $highest commits"
}
