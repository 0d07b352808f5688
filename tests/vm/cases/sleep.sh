# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Suspend, and hibernation to a swap partition, while the root and a data volume are written and read: every one succeeds, no
# content is lost, commits go on. Then the system is booted and commits while an image waits, and the image is resumed after that:
# nothing is written to that card.
# guests: debian12-fio debian13-fio debian13-initramfs-fio
MEM=640 DATA_MIB=128 LIMIT=1300 STEP_LIMIT=1100 KILLED='1 2' BOOTS=4
case $GUEST in
*-initramfs*) RESUME=resume=/dev/vdd ;; # a disk of its own
*) RESUME=resume=PARTUUID=c0ffee00-03 ;; # on the card of the root
esac

# Writes everything, reads and compares it, and begins again.
load() {
	while [ -e /run/cowfs-test/load ] && type fio >/dev/null; do
		fio --name=load --directory=/srv/p --ioengine=psync --rw=randwrite --bsrange=4k-64k --size=12m --fsync=16 \
			--verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 >/run/cowfs-test/fio 2>&1 || : >/run/cowfs-test/bad
	done
}

pour() { # FILE OPTION
	while [ -e /run/cowfs-test/load ]; do
		dd if=/dev/zero of="$1" bs=64k count=64 "$2" 2>/dev/null || : >/run/cowfs-test/bad
		dd if=/srv/p/old of=/dev/null bs=4k iflag=direct 2>/dev/null || : >/run/cowfs-test/bad
	done
}

stats() { cat "/sys/power/suspend_stats/$1"; }

committed() { cowctl status "$1" --json | sed 's/.*"generation":\([0-9]*\),.*/\1/'; }

# How, and the moment for people.
sleep_by() {
	before=$(committed root) data_before=$(committed data) slept=$(cut -d. -f1 /proc/uptime)
	echo "$2" >/mnt/data/sleep # pour may just be reading
	systemctl start "systemd-$1.service" >/run/cowfs-test/out 2>&1 ||
		fail "$2: $(tail -n 3 /run/cowfs-test/out) $(dmesg | grep -A 8 'refusing to freeze' | tail -n 12)"
	say "$2: $(($(cut -d. -f1 /proc/uptime) - slept)) s; $(stats success) times asleep, $(stats failed_freeze) freezes failed"
	[ ! -e /run/cowfs-test/bad ] || fail "$2: the load failed: $(tail -n 3 /run/cowfs-test/fio)"
	# 90 s are what systemd waits for something that is frozen
	[ -z "$LONG" ] || [ "$1" != suspend ] || [ $(($(cut -d. -f1 /proc/uptime) - slept)) -lt 90 ] || fail "$2: it took too long"
	for one in "root $before" "data $data_before"; do
		[ "$(committed "${one% *}")" -gt "${one#* }" ] ||
			fail "$2: nothing was committed before: $(journalctl -q -u "systemd-$1.service" -o short-monotonic | tail -n 12)"
	done
}

whole() { (cd /srv/p && sha256sum -c old.sum) >/dev/null || fail "$1: a file has other content"; }

commit_both() {
	must cowctl commit root
	must cowctl commit data
}

step_1() {
	protected || fail "the root is $(root_device)"
	settled
	mkdir -p /srv/p /mnt/data
	must mount -t cowfs -o "ram=64M,name=data" "$(data_card)" /mnt/data
	must dd if=/dev/urandom of=/srv/p/old bs=1M count=8
	(cd /srv/p && sha256sum old >old.sum)
	must cowctl commit root
	: >/run/cowfs-test/load
	load &
	pour /srv/p/pour-1 conv=fsync &
	pour /srv/p/pour-2 oflag=direct &
	pour /mnt/data/pour conv=fsync &
	sleep 10
	for n in 1 ${LONG:+2 3}; do
		sleep_by suspend "suspend $n"
		commit_both
		whole "suspend $n"
	done
	is "suspends" "$(stats success)" "$n"
	must swapon -L swap
	mark asleep-1
	sleep_by hibernate "hibernation"
	commit_both
	whole hibernation
	sleep 5
	[ ! -e /run/cowfs-test/bad ] || fail "the load failed: $(tail -n 3 /run/cowfs-test/fio)"
	rm /run/cowfs-test/load
	wait_for 120 sh -c '! pgrep -x fio' || fail "fio does not end"
	echo before >/srv/p/before
	echo before >/mnt/data/before
	mark asleep-2
	sleep_by hibernate "hibernation of what became stale"
	# the card has another commit by now, and the daemon has looked without being asked
	wait_for 20 sh -c 'cowctl status root | grep -q "while the system slept, the card was swapped"' ||
		fail "status says: $(cowctl status root)"
	# into blocks that it has: the maps of free ones may come from the other commit
	printf stale_ | dd of=/srv/p/before conv=notrunc 2>/dev/null
	is "what RAM holds" "$(cat /srv/p/before)" stale_
	written=$(card_written)
	cowctl commit root >/run/cowfs-test/out 2>&1 && fail "a stale system has committed"
	grep -q 'has foreign changes; nothing was written' /run/cowfs-test/out || fail "the commit says: $(cat /run/cowfs-test/out)"
	is "sectors written" "$(card_written)" "$written"
	is "what RAM holds" "$(cat /srv/p/before)" stale_
	cowctl status root | grep -q 'has foreign changes' || fail "status says: $(cowctl status root)"
	# the other card is as it was
	must cowctl commit data
}

step_2() { fail "the image was not resumed: $(dmesg | grep -i 'hibernat\|PM:' | tail -n 4)"; }

step_3() {
	protected || fail "the root is $(root_device)"
	whole "booted meanwhile"
	is "what was committed before" "$(cat /srv/p/before)" before
	echo meanwhile >/srv/p/meanwhile
	must cowctl commit root
}

step_4() { step_2; }

swap_place() {
	swap_make
	case $RESUME in
	*PARTUUID*)
		DEVICES=''
		sector=$(($(stat -c %s "$CARD") / 512))
		truncate -s +900M "$CARD"
		echo "start=$sector, type=82" | sfdisk -q --append "$CARD"
		disk_place "$WORK/swap.img" "$CARD" "$sector"
		;;
	esac
}

host_before() {
	[ "$1" != 1 ] || swap_place
	APPEND=$RESUME
	[ "$1" != 3 ] || APPEND="$APPEND noresume"
}

# However long the hook takes, it sleeps for some seconds.
host_during() {
	[ "$1" = 1 ] || return 0
	while kill -0 "$QEMU" 2>/dev/null; do
		sleep 2
		case $(qmp query-status 2>/dev/null) in
		*suspended*) sleep 4 && qmp system_wakeup >/dev/null ;;
		esac
	done
}

host_after() {
	case " $KILLED " in
	*" $1 "*)
		! grep -q ^fail "$VERDICT" || fail "$(sed -n 's/^fail //p' "$VERDICT" | head -n 1)"
		grep -qx "mark asleep-$1" "$VERDICT" || fail "it went off before it slept"
		return
		;;
	esac
	[ "$1" = 4 ] || return 0
	card_extract "$WORK/card.ext4"
	offline_check "$WORK/card.ext4"
	"$BUILD/cowctl" release "$WORK/card.ext4" >/dev/null 2>&1 || fail "cowctl release failed"
	debugfs -R 'cat /srv/p/meanwhile' "$WORK/card.ext4" 2>/dev/null | grep -qx meanwhile || fail "the commit of boot 3 is gone"
	! debugfs -R 'cat /srv/p/before' "$WORK/card.ext4" 2>/dev/null | grep -q stale || fail "the stale system is on the card"
	offline_check "$DATA"
	debugfs -R 'cat /before' "$DATA" 2>/dev/null | grep -qx before || fail "the data volume has not its last commit"
}
