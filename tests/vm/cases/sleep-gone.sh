# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# While the system sleeps, the SD card of the root is removed: the status says that it is away, what the page cache has can be read,
# cowctl shutdown says what is lost and gives the card up, and the machine goes off. Or an older copy is put in its place: the status
# says that it was swapped, nothing is written to it, and a shutdown ends. The next boot has what was committed before the sleep.
# guests: debian12-generic
# short:
MEM=640 DRIVE=mmc DISK_MIB=2048 LIMIT=900 STEP_LIMIT=600 KILLED=3 RESUME=resume=/dev/vdb

# How, what the status says after that, and the exit status of a commit. Programs that have not run before wait for the card, systemd-sleep for one.
sleep_by() {
	echo "$1" >/srv/last
	# what this step needs when the card is gone
	status | grep -q x
	cowctl commit root >/run/cowfs-test/out
	read -r up _ </proc/uptime
	cat /srv/last "$(command -v cowctl)" "$(command -v systemctl)" >/dev/null
	sleep 0
	say "$1: at $up s"
	mark "asleep-$STEP"
	systemctl start --no-block "systemd-$1.service"
	wait_for 200 sh -c "cowctl status root | grep -q '$2'" || fail "status says: $(status)"
	read -r up _ </proc/uptime
	say "$1: awake at $up s"
	say "status: $(status | grep '^AWAY\|^alarm')"
	# systemd-sleep waits for the card, and what it has frozen goes on by itself
	! status | grep -q '^AWAY .* min ' || fail "$1: everything was frozen long after the wake"
	# it waits for the folder: the commit before the sleep has dropped it from the page cache (before Linux 6.5)
	echo ram >/srv/ram &
	WRITER=$!
	cowctl commit root >/run/cowfs-test/out 2>&1
	is "exit status of the commit" $? "$3"
	say "the commit: $(cat /run/cowfs-test/out)"
	is "what the page cache has" "$(cat /srv/last)" "$1"
}

status() { cowctl status root; }

# Process 1 waits for the card like any other program until it is given up.
off_without_card() {
	cowctl shutdown root --away-wait 5s >/run/cowfs-test/out 2>&1
	is "exit status of the shutdown" $? 5
	grep -q 'THE CARD IS AWAY' /run/cowfs-test/out || fail "shutdown says: $(cat /run/cowfs-test/out)"
	say "shutdown: $(cat /run/cowfs-test/out)"
	status | grep -q 'reads that RAM cannot answer fail' || fail "status says: $(status)"
	wait "$WRITER"
	say "the program that waited has ended with exit status $?"
	mark leaving
	verdict ok
	# process 1 cannot read the unit of an orderly end
	systemctl poweroff >/run/cowfs-test/out 2>&1 || systemctl poweroff -ff
	END=none
}

step_1() {
	protected || fail "the root is $(root_device)"
	settled
	sleep_by suspend 'AWAY .*the card is' 5
	off_without_card
}

step_2() {
	protected || fail "the root is $(root_device)"
	is "the last commit" "$(cat /srv/last)" suspend
	[ ! -e /srv/ram ] || fail "what was not committed is there"
	# the kernel has not seen it go: it has the same serial number, and the same block device
	sleep_by suspend 'while the system slept, the card was swapped' 1
	wait "$WRITER"
	mark leaving
}

step_3() {
	protected || fail "the root is $(root_device)"
	must swapon -L swap
	sleep_by hibernate 'AWAY .*the card is' 5
	off_without_card
}

step_4() { fail "the image was not resumed: $(dmesg | grep -i 'hibernat\|PM:' | tail -n 4)"; }

step_5() {
	protected || fail "the root is $(root_device)"
	is "the last commit" "$(cat /srv/last)" hibernate
	[ ! -e /srv/ram ] || fail "what was not committed is there"
}

host_before() {
	APPEND=$RESUME
	[ "$1" = 1 ] || return 0
	swap_make
	# an older copy of the same card
	cp --sparse=always "$CARD" "$WORK/other.img"
	cp --sparse=always "$CARD" "$WORK/other.was"
}

ends_soon() {
	wait_mark leaving
	start=$(date +%s)
	while kill -0 "$QEMU" 2>/dev/null; do
		[ $(($(date +%s) - start)) -lt 120 ] || { vm_kill; fail "the shutdown does not end: $(tail -n 3 "$WORK/console-$N")"; }
		sleep 1
	done
	say "shutdown: $(($(date +%s) - start)) s"
}

host_during() {
	case $1 in
	1 | 2)
		wait_mark "asleep-$1"
		until qmp query-status 2>/dev/null | grep -q suspended; do sleep 1; done
		sleep 4
		case $1 in
		1) qmp eject '{"device": "card", "force": true}' >/dev/null ;;
		2) qmp blockdev-change-medium "{\"device\": \"card\", \"filename\": \"$WORK/other.img\", \"format\": \"raw\"}" >/dev/null ;;
		esac
		qmp system_wakeup >/dev/null
		ends_soon
		;;
	4)
		until [ -S "$SOCK" ] && qmp query-status >/dev/null 2>&1; do sleep 0.2; done
		qmp eject '{"device": "card", "force": true}' >/dev/null
		ends_soon
		;;
	esac
}

host_after() {
	case $1 in
	2) cmp "$WORK/other.img" "$WORK/other.was" || fail "the other card was written" ;;
	3) grep -qx 'mark asleep-3' "$VERDICT" || fail "it went off before it slept" ;;
	esac
}
