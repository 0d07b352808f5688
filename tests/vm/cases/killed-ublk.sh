# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# As killed, with ublk. With on-crash=replace I/O waits until the next command of cowctl, which also
# thaws.
# guests: debian13-initramfs-kernel-sid-fio
TRANSPORT=ublk
. "$CASES/killed.sh"
APPEND="${APPEND-} cowfs=transport:ublk"

# that of the root
loop_devices_are() {
	set -- "$1" /sys/block/ublkb*
	[ $# = $(($1 + 1)) ]
}

# with on-crash=replace in odd rounds, stop in even ones
odd() { [ $(($1 % 2)) = 1 ]; }
option() { odd "$1" || echo --on-crash=stop; }
killed() { ! odd "$1" || must cowctl status; }
# the kernel removed the disk, and cowctl cannot find the mount any more
ended() { odd "$1" || fsfreeze -u /mnt/data 2>/dev/null || :; }

# No other program is started: a moment matters.
programs() { # LIST: sets it to the numbers of those of cowfs
	_list=' '
	for _dir in /proc/[0-9]*; do
		read -r _comm 2>/dev/null <"$_dir/comm" || continue
		case $_comm in cow*) _list="$_list${_dir#/proc/} " ;; esac
	done
	eval "$1=\$_list"
}

others_are_killed() {
	programs now
	for pid in $now; do
		case $before in *" $pid "*) ;; *) kill -9 "$pid" 2>/dev/null ;; esac
	done
}

# Everything of a start, once its disk is there and before the status names it.
step_2() {
	protected || fail "the root is $(root_device)"
	programs before
	set -- /dev/ublkc*
	n=0 untold=0
	while [ $n -lt 20 ]; do
		# shellcheck disable=SC2046 # words
		attach_data $(option $n) >/run/cowfs-test/out 2>&1 &
		start=$!
		while no_more_devices "$@"; do kill -0 $start || fail "no start: $(cat /run/cowfs-test/out)"; done
		for _ in 1 2 3; do others_are_killed; done
		wait $start
		[ -e /run/cowfs/data/status.json ] || untold=$((untold + 1))
		must timeout 60 cowctl status
		[ ! -e /run/cowfs/data/status.json ] || must cowctl detach data
		wait_for 20 no_more_devices "$@" || fail "kill $n left $(echo /dev/ublkc*)"
		n=$((n + 1))
	done
	say "$untold of $n starts were killed before a status"
	[ $untold -ge 5 ] || fail "too few"
	must attach_data
	must cowctl detach data
}

no_more_devices() { [ "$(echo /dev/ublkc*)" = "$*" ]; }
