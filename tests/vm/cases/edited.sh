# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# The card is edited in a PC between two boots, first when it rests (after a shutdown), then when its log holds commits that
# are not home. What was edited is never overwritten by an old log and never mixed with it.
# guests: debian12 debian13 busybox
KILLED=2

step_1() {
	protected || fail "the root is $(root_device)"
	echo before >/srv-file
}

step_2() {
	is "the edit of a resting card" "$(cat /srv-edit)" edited
	is "what was committed" "$(cat /srv-file)" before
	say "after an edit at rest the state is $(cat /run/cowfs/root.state): $(head -1 /run/cowfs/root.failed 2>/dev/null)"
	# whatever it decided, it must have said so or go on protecting
	protected || [ "$(cat /run/cowfs/root.state)" = failed ] || fail "neither protected nor told"
	if protected; then
		echo logged >>/etc/hostname
		must cowctl commit root
	fi
	mark now
	sleep 100
}

step_3() {
	state=$(cat /run/cowfs/root.state)
	say "after an edit over a log the state is $state: $(head -1 /run/cowfs/root.failed 2>/dev/null)"
	case $state in
	failed)
		cowctl status >/run/cowfs-test/out 2>&1 && fail "cowctl status says that all is well"
		touch /srv-write 2>/dev/null && fail "the root is writable"
		is "sectors written" "$(card_written)" 0
		;;
	on)
		is "the second edit" "$(cat /srv-edit2 2>/dev/null)" edited
		# all of the base, nothing of the log, and an alarm
		[ "$(tail -1 /etc/hostname)" != logged ] || fail "the log shows through an edited file system"
		cowctl status >/run/cowfs-test/out 2>&1 && fail "cowctl status says that all is well"
		;;
	*) fail "state $state" ;;
	esac
	END=poweroff
}

edit() { # name
	card_extract "$WORK/part"
	echo edited >"$WORK/edit"
	debugfs -w -R "write $WORK/edit $1" "$WORK/part" >/dev/null 2>&1
	# a PC mounts it, and that changes the superblock
	tune2fs -C 7 "$WORK/part" >/dev/null 2>&1
	card_put "$WORK/part"
}

host_during() {
	[ "$1" != 2 ] || { wait_mark now && vm_kill; }
}

host_before() {
	case $1 in
	2) edit srv-edit ;;
	3) edit srv-edit2 ;;
	esac
}
