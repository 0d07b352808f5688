# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Hibernation while a data card fails each write (dm-flakey): a commit has failed, and what it was to write is in RAM. Another boot
# commits to the card, which is whole again. When the image is resumed, nothing of it gets there, although writes work by now, and the
# volume that can never be committed does not hold up the shutdown.
# guests: debian12
# short:
MEM=640 DATA_MIB=128 LIMIT=600 STEP_LIMIT=500 KILLED=1 BOOTS=3
RESUME=resume=/dev/vdd

# TARGET WORDS: what serves the card from now on
served_by() {
	must dmsetup suspend --noflush --nolockfs dying
	must dmsetup reload dying --table "0 $(blockdev --getsz "$card") $1 $card 0${2:+ $2}"
	must dmsetup resume dying
}

data_attach() {
	loop=$(cowctl attach "$1" --name data) || fail "no volume on $1"
	mkdir -p /mnt/data
	must mount "$loop" /mnt/data
}

step_1() {
	protected || fail "the root is $(root_device)"
	settled
	card=$(data_card)
	must modprobe dm-flakey
	must dmsetup create dying --table "0 $(blockdev --getsz "$card") linear $card 0"
	data_attach /dev/mapper/dying
	echo one >/mnt/data/file
	must cowctl commit data
	served_by flakey "0 1 1 error_writes"
	echo two >/mnt/data/file
	cowctl commit data >/run/cowfs-test/out 2>&1 && fail "a commit to a card that takes no write"
	say "the commit: $(tail -n 1 /run/cowfs-test/out)"
	must swapon -L swap
	mark asleep-1
	systemctl start systemd-hibernate.service >/run/cowfs-test/out 2>&1 || fail "hibernation: $(tail -n 3 /run/cowfs-test/out)"
	served_by linear
	is "what RAM holds" "$(cat /mnt/data/file)" two
	cowctl commit data >/run/cowfs-test/out 2>&1 && fail "a stale system has committed"
	say "the commit after the sleep: $(tail -n 1 /run/cowfs-test/out)"
	# the timer and the attempts behind a failed commit as well
	sleep 20
	is "what RAM holds" "$(cat /mnt/data/file)" two
	say "status: $(cowctl status data | grep -i 'alarm\|away' | head -n 3)"
}

step_2() {
	protected || fail "the root is $(root_device)"
	data_attach "$(data_card)"
	is "the last commit" "$(cat /mnt/data/file)" one
	echo meanwhile >/mnt/data/file
	must umount /mnt/data
	must cowctl detach data
}

step_3() { fail "the image was not resumed: $(dmesg | grep -i 'hibernat\|PM:' | tail -n 4)"; }

host_before() {
	[ "$1" != 1 ] || swap_make
	APPEND=$RESUME
	[ "$1" != 2 ] || APPEND="$APPEND noresume"
}

host_after() {
	case $1 in
	1) grep -qx 'mark asleep-1' "$VERDICT" || fail "it went off before it slept: $(tail -n 3 "$VERDICT")" ;;
	2) cp --sparse=always "$DATA" "$WORK/meanwhile.img" ;;
	3)
		cmp "$DATA" "$WORK/meanwhile.img" || fail "the stale system has written to the card"
		offline_check "$DATA"
		[ "$(debugfs -R 'cat /file' "$DATA" 2>/dev/null)" = meanwhile ] || fail "the commit of boot 2 is gone"
		! grep -a 'Waiting for process' "$WORK/console-3" || fail "a process holds up the shutdown"
		;;
	esac
}
