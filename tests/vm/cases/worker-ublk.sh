# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# The worker of a disk of ublk has no privileges: no capabilities, a filter, an empty root directory, and on a volume that was
# attached later another user. The first start, commits, a detach that is refused, one that is not, FUSE if ublk is not to be had;
# and code of an attacker in such a worker. Where another worker can take over, that one as well.
# guests: debian13-initramfs debian13-initramfs-kernel-sid-fio
TRANSPORT=ublk APPEND=cowfs=transport:ublk DATA_MIB=128 LIMIT=1200 STEP_LIMIT=900

pid_of() { cat "/run/cowfs/$1/pid"; }
field() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"; }
attach_data() { loop=$(cowctl attach --ram 60M --transport ublk --name data "$(data_card)") || fail "data: not attached"; }
transport_is() { is "transport of data" "$(cowctl status data --json | sed 's/.*"transport": *"\([a-z]*\)".*/\1/')" "$1"; }
replaced() { [ "$(cowctl status data --json | sed 's/.*"replaced": *\([0-9]*\).*/\1/')" = "$1" ]; }
attack_is_over() { grep -aqx 'done' "$file" || ! [ -e "/proc/$1" ]; }

# VOLUME: no capabilities, a filter, no file of the system in reach; its broker is root
powerless() {
	pid=$(pid_of "$1")
	for set in CapEff CapPrm CapBnd CapAmb; do
		is "$1: $set" "$(field "$pid" $set)" 0000000000000000
	done
	is "$1: NoNewPrivs" "$(field "$pid" NoNewPrivs)" 1
	is "$1: Seccomp" "$(field "$pid" Seccomp)" 2
	[ -z "$(ls -A "/proc/$pid/root/")" ] || fail "$1: the worker's root directory has $(ls -A "/proc/$pid/root/")"
	for fd in /proc/"$pid"/fd/*; do
		[ "$(readlink "$fd")" != /dev/ublk-control ] || fail "$1: the worker has the control device"
	done
	! dmesg | grep 'goes on without' || fail "$1: not all protections: $(dmesg | grep 'goes on without')"
	! dmesg | grep 'cannot be registered' || fail "$1: its memory is not locked"
	! dmesg | grep 'type=1326' || fail "$1: refused calls: $(dmesg | grep 'type=1326')"
}

another_user() { [ "$(field "$(pid_of "$1")" Uid | cut -f 1)" != 0 ] || fail "$1: the worker is root"; }

commits() {
	must dd if=/dev/urandom of=/mnt/data/file bs=64k count=32 conv=fsync
	must cowctl commit data
}

step_1() {
	protected || fail "the root is $(root_device)"
	mkdir -p /mnt/data
	powerless root
	must cowctl commit root
	attach_data
	transport_is ublk
	powerless data
	another_user data
	must mount "$loop" /mnt/data
	commits
	sum=$(sha256sum </mnt/data/file)
	! cowctl detach data >/run/cowfs-test/out 2>&1 || fail "a disk that is mounted was taken away"
	echo 3 >/proc/sys/vm/drop_caches
	is "content" "$(sha256sum </mnt/data/file)" "$sum"
	case $(cowctl status data --json) in
	*'"on_crash": "replace"'* | *'"on_crash":"replace"'*) taken_over ;;
	*) say "a worker is not replaced on $(uname -r)" ;;
	esac
	must umount /mnt/data
	must cowctl detach data
	[ ! -e "$loop" ] || fail "$loop is left"
	is "char devices" "$(echo /dev/ublkc*)" /dev/ublkc0
	without_ublk
	hostile
}

taken_over() {
	kill -9 "$(pid_of data)"
	is "content after a death" "$(sha256sum </mnt/data/file)" "$sum"
	wait_for 60 replaced 1 || fail "no worker has taken over"
	powerless data
	another_user data
	commits
	sum=$(sha256sum </mnt/data/file)
}

# No io_uring for it: FUSE, and the disk that was begun is gone
without_ublk() {
	[ -e /proc/sys/kernel/io_uring_disabled ] || return 0
	echo 1 >/proc/sys/kernel/io_uring_disabled
	attach_data 2>/run/cowfs-test/out
	echo 0 >/proc/sys/kernel/io_uring_disabled
	transport_is fuse
	is "char devices" "$(echo /dev/ublkc*)" /dev/ublkc0
	must cowctl detach data
}

# Both attacks of hostile_worker.bats: what is not the volume's stays out of reach, and the volume of the root works
hostile() {
	cp hostile.so /srv/ # /run is noexec
	paths=/etc/shadow:$(root_device):$(data_card):/dev/ublk-control:/dev/ublkc0:/dev/ublkc1:/dev/kmsg:/dev/fuse
	for attack in 1 2; do
		file=/run/hostile.$attack # the worker has it mapped
		truncate -s 65536 $file
		# the daemon is a unit's
		must systemctl set-environment COWFS_HOSTILE_FILE=$file COWFS_HOSTILE_PATHS="$paths" \
			COWFS_HOSTILE_PIDS="1:$(pid_of root):$$" LD_PRELOAD=/srv/hostile.so
		attach_data
		must systemctl unset-environment COWFS_HOSTILE_FILE LD_PRELOAD
		transport_is ublk
		must mount "$loop" /mnt/data
		victim=$(pid_of data) parent=$(field "$(pid_of data)" PPid)
		printf %s $attack | dd of=$file conv=notrunc 2>/dev/null
		timeout 5 cowctl status data >/dev/null 2>&1 & # wakes the thread that polls
		wait_for 120 attack_is_over "$victim" || fail "attack $attack does not end"
		tr -d '\0' <$file >/run/report
		! grep -a SUCCEEDED /run/report || fail "attack $attack: $(grep -a SUCCEEDED /run/report)"
		say "attack $attack: $(grep -ac refused /run/report) refused"
		[ $attack != 1 ] || [ "$(grep -ac refused /run/report)" -gt 100 ] || fail "things were left out"
		must timeout 60 cowctl commit root
		[ -e /dev/ublkb0 ] || fail "the disk of the root is gone"
		if [ $attack = 1 ]; then
			commits
			must umount /mnt/data
			must cowctl detach data
		else
			kill -9 "$(pid_of data)" "$victim" "$parent" 2>/dev/null
			cowctl status >/dev/null 2>&1
			must timeout 60 umount /mnt/data
		fi
	done
	must timeout 60 cowctl commit root
}

host_before() { EXTRA=$BUILD/tests/hostile.so; }

host_after() { offline_check "$DATA"; }
