#!/bin/sh
# SPDX-License-Identifier: MIT
# What a step of a test finds inside the guest (POSIX sh, also busybox). Started by guest/usr/lib/cowfs-test/run.
#
#	say TEXT...		into the verdict, for people
#	mark NAME		tells the host how far we are (wait_mark there)
#	value NAME NUMBER	a figure for the host
#	fail TEXT...		ends the step and the test
#	told NAME		the host has said `tell_guest NAME`
#	must COMMAND...		fail if it does
#	is WHAT GOT WANTED	fail unless equal
#	wait_for SECONDS COMMAND...
#	data_card		the device of the second card (DATA_MIB)
#	mounted DIR		waits for the volume that a line of fstab mounts there
#	protected		the root is served by cowfs
#	card_written		sectors that the kernel has written to the root partition since boot
#	settled			waits for the commit of a new machine-id; then BASE is what card_written says
#	card_discarded		sectors discarded of it
#	spared SCRIPT		bash runs it in the background; systemd spares it when it ends what is left
#	login_on_console	root logs in there, and stays (not on busybox)
#	BOOT			number of this boot, from 1; STEP is the same
#	now_ms			milliseconds since this boot
#	LONG			not empty in the long form
#	END			how the step is to end: poweroff (default), reboot, or none: the step saw to it, or the host kills
#
# The card may not be used for keeping anything of the test itself, so the verdict lies in RAM and on the marker disk.
# shellcheck disable=SC1091,SC2034

STEP=$(cat boot)
BOOT=$STEP
END=poweroff
GUEST=$(cat guest)
LONG=$(cat long)
CASES=./cases
PART=
LOG=/run/cowfs-test/verdict

# 64 KiB of text at most; dd pads, so that an older and longer verdict never shows through
flush_verdict() {
	dd if=$LOG of="$MARKER" bs=65536 count=1 conv=sync,notrunc,fsync 2>/dev/null
}

verdict() {
	echo "$*" >>$LOG
	echo "test: $*" >/dev/kmsg 2>/dev/null
	flush_verdict
}

say() { verdict "# $*"; }
mark() { verdict "mark $1"; }
value() { verdict "value $1 $2"; }

fail() {
	verdict "fail $*"
	diagnose >>$LOG 2>&1
	flush_verdict
	end_boot poweroff
	exit 1
}

diagnose() {
	echo "# --- state"
	cowctl status 2>&1 | head -40 | sed 's/^/# /'
	head -20 /run/cowfs/root.* 2>/dev/null | sed 's/^/# /'
	grep -v ' \(cgroup2\?\|proc\|sysfs\|devpts\) ' /proc/mounts | sed 's/^/# /'
	dmesg | tail -60 | sed 's/^/# /'
}

told() { grep -qx "$1" /sys/block/vd*/serial 2>/dev/null; }

must() {
	"$@" >/run/cowfs-test/out 2>&1 || {
		_s=$?
		sed 's/^/# /' /run/cowfs-test/out | tail -20 >>$LOG
		fail "exit status $_s of: $*"
	}
}

is() {
	[ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"
}

# the date of busybox has no fractions
now_ms() { awk '{ print int($1 * 1000) }' /proc/uptime; }

wait_for() {
	_n=$1
	shift
	until "$@" >/dev/null 2>&1; do
		_n=$((_n - 1))
		[ $_n -gt 0 ] || return 1
		sleep 1
	done
}

# The partition that the kernel command line names; of an array the array, whose disks have records of their own.
root_part() {
	case $GUEST in
	*-md*) PART=md0 ;;
	esac
	[ "$PART" ] || for d in /sys/class/block/*; do
		[ "$(sed -n 's/^PARTN=//p' "$d/uevent")" = 2 ] || continue
		case ${d##*/} in
		vd?2 | sd?2 | mmcblk?p2 | nvme?n1p2) PART=${d##*/} ;;
		esac
	done
	echo "$PART"
}

settled() {
	# "degraded" is a matter of the case units
	[ ! -d /run/systemd/system ] || timeout 300 systemctl is-system-running --wait >/dev/null 2>&1 || :
	BASE=$(card_written)
}

card_field() {
	root_part >/dev/null
	awk -v f="$1" '{ print $f }' "/sys/class/block/$(root_part)/stat"
}
card_written() { card_field 7; }
card_discarded() { card_field 14; }

# its name begins with @
spared() {
	bash -c 'exec -a @spared bash -c "$0"' "$1" &
	echo $! >/sys/fs/cgroup/cgroup.procs || fail "a process cannot leave its cgroup"
}

login_on_console() {
	case $GUEST in busybox*) return 0 ;; esac
	_tty=$(sed 's/.* //' /sys/class/tty/console/active)
	mkdir -p "/run/systemd/system/serial-getty@$_tty.service.d"
	printf '[Service]\nExecStart=\nExecStart=-/sbin/agetty --autologin root 115200 %%I linux\n' \
		>"/run/systemd/system/serial-getty@$_tty.service.d/login.conf"
	must systemctl daemon-reload
	must systemctl restart "serial-getty@$_tty.service"
	wait_for 30 pgrep -t "$_tty" bash || fail "nobody can log in: $(systemctl status --no-pager "serial-getty@$_tty.service" | tail -n 5)"
}

data_card() {
	for d in /sys/block/[vs]d* /sys/block/nvme*; do
		# of virtio, NVMe, SCSI (behind a head of 4 bytes) and USB
		_s=$(cat "$d/serial" "$d/device/serial" "$d/device/vpd_pg80" "$d/device/../../../../serial" 2>/dev/null | tr -cd '[:lower:]')
		# newer kernels show it twice
		case $_s in data | datadata) echo "/dev/${d##*/}" ;; esac
	done
}

# nofail: nothing that is up has waited for it
mounted() {
	wait_for 200 grep -q "^/dev/loop[0-9]* $1 ext4" /proc/mounts ||
		fail "$1 is not mounted: $(journalctl -b -o cat -u "$(systemd-escape -p --suffix=mount "$1")" -u 'cowfs@*' | tail -n 12)"
}

root_device() {
	awk '$2 == "/" { d = $1 } END { print d }' /proc/mounts
}

# the root, which was on trial
accepted() { cowctl status root --json | grep -qv '"held":'; }

protected() {
	case $(root_device) in
	/dev/loop* | /dev/cowfs/* | overlay) [ "$(cat /run/cowfs/root.state 2>/dev/null)" = on ] ;;
	*) return 1 ;;
	esac
}

end_boot() {
	case $1 in
	none) ;;
	*)
		if [ -d /run/systemd/system ]; then
			systemctl --no-block "$1"
		else
			"$1"
		fi
		;;
	esac
}

[ "${MARKER-}" ] || for d in /sys/block/vd*; do
	[ "$(cat "$d/serial" 2>/dev/null)" != marker ] || MARKER=/dev/${d##*/}
done
: >$LOG
verdict "boot $BOOT up $(cut -d' ' -f1 /proc/uptime) kernel $(uname -r) root $(root_device)"
. ./case.sh
# a step that hangs is told from inside, too
(
	sleep "${STEP_LIMIT:-240}"
	verdict "fail step $STEP is not done after ${STEP_LIMIT:-240} s"
	diagnose >>$LOG 2>&1
	flush_verdict
) &
GUARD=$!
if type "step_$STEP" >/dev/null 2>&1; then
	"step_$STEP"
else
	step
fi
kill $GUARD
verdict ok
end_boot "$END"
