# shellcheck shell=sh disable=SC2034,SC2154,SC3028
# SPDX-License-Identifier: MIT
# The card is pulled again and again while its volume is written, read past the page cache, and committed: nothing fails, and all
# contents are right. A stranger and an older copy are put in meanwhile: not one byte of them changes. The power goes while the
# card is away: the next boot has the last commit. First a second card, then that of the root. Long form: 60 times each.
# guests: busybox debian12 debian13
# short: busybox
DRIVE=scsi DATA_DRIVE=scsi DATA_MIB=128 LIMIT=600 STEP_LIMIT=500 KILLED=2
[ -z "${LONG-}" ] || LIMIT=3600 STEP_LIMIT=3500

# ---- in the guest: DIR is on volume VOL ----

files() { echo "$DIR"/base-[0-9] "$DIR"/new-[0-9]; }

# What the card alone has, and is read again and again.
base_write() {
	mkdir -p "$DIR"
	for n in 0 1 2 3 4 5 6 7 8 9; do
		dd if=/dev/urandom of="$DIR/base-$n" bs=64k count="$1" 2>/dev/null || fail "base-$n"
	done
	md5sum "$DIR"/base-* >/run/sums-base
	must cowctl commit "$VOL" --checkpoint
}

# A file that is whole in RAM of the test first, so that its sum does not come from what is tested.
new_write() {
	dd if=/dev/urandom of=/run/new bs=64k count=4 2>/dev/null
	_sum=$(md5sum </run/new)
	cat /run/new >"$DIR/new-$1" || fail "new-$1: not written"
	echo "${_sum%% *}  $DIR/new-$1" >"/run/sums-new-$1"
	[ $(($1 % 2)) = 1 ] || sync "$DIR/new-$1" || fail "new-$1: fsync"
}

verify() {
	echo 3 >/proc/sys/vm/drop_caches
	cat /run/sums-base /run/sums-new-* >/run/sums
	md5sum -c /run/sums >/run/verified 2>&1 || fail "$(grep -v OK$ /run/verified | head -n 3)"
}

commit_loop() {
	commits=0 interrupted=0
	until [ -e /run/stop ]; do
		cowctl commit "$VOL" >/run/commit.out 2>&1 && _s=0 || _s=$?
		case $_s in
		0) commits=$((commits + 1)) ;;
		5)
			interrupted=$((interrupted + 1))
			cowctl status "$VOL" | grep -o 'not taken for it: .*' >>/run/refused
			;;
		*) fail "commit: exit status $_s: $(cat /run/commit.out)" ;;
		esac
		sleep 0.2
	done
	say "$VOL: $commits commits, $interrupted interrupted"
}

# Until the host has said NAME.
work_until() {
	rm -f /run/stop /run/sums-new-* /run/refused
	commit_loop &
	_loop=$! rounds=0
	mark "working-$VOL"
	until told "$1"; do
		new_write $((rounds % 10))
		verify
		rounds=$((rounds + 1))
	done
	: >/run/stop
	wait $_loop
	verify
	must cowctl commit "$VOL"
	say "$VOL: $rounds rounds, all right; $(cowctl status "$VOL" | grep '^away')"
	sort -u /run/refused | while read -r _l; do say "$VOL: $_l"; done
	# without its card the root has no programs that could ask
	[ "$VOL" = root ] || grep -q 'another state' /run/refused || fail "nothing was refused"
	dmesg | grep -E "EXT4-fs (error|warning)|(Buffer I/O|I/O) error.*(loop|ublk)" >/run/errors && fail "the kernel: $(head -n 3 /run/errors)"
	return 0
}

step_1() {
	protected || fail "the root is $(root_device)"
	mkdir -p /mnt/data
	loop=$(cowctl attach --ram 120M --name data "$(data_card)") || fail "data: not attached"
	must mount "$loop" /mnt/data
	DIR=/mnt/data VOL=data
	base_write 16
	work_until data-done
	must umount /mnt/data
	must cowctl detach data
}

step_2() {
	END=none
	protected || fail "the root is $(root_device)"
	DIR=/srv/away VOL=root
	base_write 16
	work_until root-done
	echo kept >/srv/last
	must cowctl commit root
	cat /srv/last >/dev/null
	mark leaving
	until cowctl status root --json | grep -q '"away":{"base":true'; do sleep 0.5; done
	echo lost >/srv/last
	is "what RAM holds" "$(cat /srv/last)" lost
	mark cut
}

step_3() {
	protected || fail "the root is $(root_device)"
	is "the last commit" "$(cat /srv/last)" kept
	echo on >/srv/last
	must cowctl commit root
}

# ---- the host ----

host_before() {
	[ "$1" = 1 ] || return 0
	times=3
	[ -z "$LONG" ] || times=60
	# as large, and a card of cowfs as well
	mv "$DATA" "$WORK/mine.img"
	data_make
	mv "$DATA" "$WORK/stranger.img"
	mv "$WORK/mine.img" "$DATA"
}

# Between 0.2 and 10 s, mostly short.
pause() { sleep $((RANDOM % 10 * (RANDOM % 4 == 0))).$((2 + RANDOM % 8)); }

# Something else is put in, and nothing happens to it.
decoy() { # NAME FILE
	cp --sparse=always "$2" "$WORK/decoy.was"
	card_in "$1" "$2"
	sleep 4
	card_out "$1"
	cmp "$2" "$WORK/decoy.was" || fail "$2 was written"
}

pull() { # NAME FILE
	i=0
	while [ $i -lt "$times" ]; do
		i=$((i + 1))
		sleep $((1 + RANDOM % 4)).$((RANDOM % 10))
		card_out "$1"
		[ $i != 1 ] || cp --sparse=always "$2" "$WORK/older.img"
		pause
		card_in "$1"
	done
	sleep 3
	card_out "$1"
	[ "$1" = card ] || decoy "$1" "$WORK/stranger.img"
	decoy "$1" "$WORK/older.img"
	card_in "$1"
}

host_during() {
	case $1 in
	1)
		wait_mark working-data
		pull data "$DATA"
		tell_guest data-done
		;;
	2)
		wait_mark working-root
		pull card "$CARD"
		tell_guest root-done
		wait_mark leaving
		card_out card
		wait_mark cut
		sleep 2
		vm_kill
		;;
	esac
}

host_after() {
	case $1 in
	1) offline_check "$DATA" ;;
	2)
		verdict_read
		! grep -q ^fail "$VERDICT" || fail "$(sed -n 's/^fail //p' "$VERDICT" | head -1)"
		grep -qx 'mark cut' "$VERDICT" || fail "it went off before it was told to"
		sed -n 's/^# /    /p' "$VERDICT"
		;;
	esac
	card_extract "$WORK/part"
	offline_check "$WORK/part"
}
