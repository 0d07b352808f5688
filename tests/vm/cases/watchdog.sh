# shellcheck shell=sh disable=SC2034,SC2154,SC3028
# SPDX-License-Identifier: MIT
# A watchdog of 10 s is armed, and the last commit of a shutdown takes three times as long: the hook of systemd-shutdown, or rcK, feeds it.
# When it does not (boot 2), the watchdog ends the machine. On Debian it is one of QEMU, on busybox that of the kernel.
# guests: debian13 debian12-generic busybox
MEM=1024 BPS=4000000 DEVICES="-device i6300esb -action watchdog=poweroff" LIMIT=600 STEP_LIMIT=400
FEEDS=/usr/lib/systemd/system-shutdown/cowfs
case $GUEST in
busybox*) DISK_MIB=768 DEVICES='' FEEDS=/etc/init.d/rcK ;;
esac

dog_state() { [ "$(cat /sys/class/watchdog/watchdog0/state)" = "$1" ]; }

# systemd keeps it armed in a reboot, not in a poweroff; busybox takes it back, if that can be
arm() {
	case $GUEST in
	busybox*)
		must insmod ./watchdog.ko
		must insmod ./softdog.ko soft_margin=10 nowayout=1
		must watchdog -t 2 -T 10 /dev/watchdog0
		;;
	*)
		mkdir -p /etc/systemd/system.conf.d
		printf '[Manager]\nRuntimeWatchdogSec=10s\nRebootWatchdogSec=10s\n' >/etc/systemd/system.conf.d/dog.conf
		modprobe i6300esb
		wait_for 20 test -e /sys/class/watchdog/watchdog0/state || fail "there is no watchdog"
		must systemctl daemon-reload
		;;
	esac
	wait_for 20 dog_state active || fail "nobody arms the watchdog"
}

# $1: a name
armed_end() {
	arm
	settled
	mkdir -p /srv/p
	must dd if=/dev/urandom of="/srv/p/$1" bs=1048576 count=120
	(cd /srv/p && sha256sum "$1" >"$1.sum")
	sync
	is "sectors written before" "$(card_written)" "$BASE"
	END=none
	mark end
	verdict ok
	# forced: without the first commit of a shutdown, so that all is left to the hook
	if [ -d /run/systemd/system ]; then systemctl --no-block --force reboot; else reboot; fi
}

step_1() {
	protected || fail "the root is $(root_device)"
	armed_end fed
}

step_2() {
	protected || fail "the root is $(root_device)"
	(cd /srv/p && sha256sum -c fed.sum) || fail "what was committed meanwhile is not there"
	# opened, which feeds it once, and then never again
	must sed -i 's/while echo . >&9; do/while :; do/' $FEEDS
	grep -q 'while :; do' $FEEDS || fail "$FEEDS feeds in another way now"
	armed_end unfed
}

step_3() {
	protected || fail "the root is $(root_device)"
	(cd /srv/p && sha256sum -c fed.sum) || fail "what was committed in the first boot is not there"
	[ ! -e /srv/p/unfed.sum ] || fail "nobody fed the watchdog, and the commit came to its end"
}

host_before() {
	case $GUEST in
	busybox*)
		"$TOP/tests/vm/guests" debian12
		EXTRA=$(find "$VM/debian12/root/usr/lib/modules" -name watchdog.ko -o -name softdog.ko | tr '\n' ' ')
		;;
	esac
}

host_during() {
	[ "$1" != 3 ] || return 0
	wait_mark end
	start=$SECONDS
	while kill -0 "$QEMU" 2>/dev/null; do
		sleep 0.2
	done
	echo $((SECONDS - start)) >"$WORK/took"
}

committed_on_console() { grep -aq 'cowfs: root: everything is on the card' "$WORK/console-$1"; }

host_after() {
	case $1 in
	1)
		committed_on_console 1 || fail "no commit at shutdown on the console"
		[ "$(cat "$WORK/took")" -ge 25 ] || fail "the shutdown took $(cat "$WORK/took") s: nothing that a watchdog would mind"
		;;
	2)
		! committed_on_console 2 || fail "a watchdog that nobody feeds does nothing"
		;;
	*) return 0 ;;
	esac
	say "the shutdown took $(cat "$WORK/took") s"
}
