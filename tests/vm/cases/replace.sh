# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Workers are killed while their volumes are written and committed, and others take over: no I/O error, no lost write, commits go
# on, sync(2) returns. Workers that die again and again are halted, and the next death is the end.
# guests: debian13-initramfs-fio busybox-kernel-trixie-fio
# short: busybox-kernel-trixie-fio
#	KILLS=200 tests/vm/matrix --short replace	so many kills of the worker of the root; the guest sees it on its command line
ASKED=${KILLS:-$(sed -n 's/.* kills=\([0-9]*\).*/\1/p' /proc/cmdline)}
# the kernel hands the variable to init, and so to the daemon of the root
APPEND="COWFS_DEATHS=100${ASKED:+ kills=$ASKED}"
DATA_MIB=520 DISK_MIB=1536 LIMIT=1200

KILLS=5
[ -z "$LONG" ] || KILLS=40 LIMIT=2700
STEP_LIMIT=$((LIMIT - 100 + ${ASKED:-0} * 15)) LIMIT=$((LIMIT + ${ASKED:-0} * 15))

attach_data() { env -u COWFS_DEATHS "$@" cowctl attach --ram 200M --name data "$(data_card)"; }
# a unit's daemon has the environment of systemd
if command -v systemctl >/dev/null; then
	attach_immortal() { systemctl set-environment COWFS_DEATHS=100 && attach_data && systemctl unset-environment COWFS_DEATHS; }
else
	attach_immortal() { attach_data COWFS_DEATHS=100; }
fi
pid_of() { cat "/run/cowfs/$1/pid"; }
replaced() { [ "$(cowctl status "$1" --json | sed 's/.*"replaced": *\([0-9]*\).*/\1/')" = "$2" ]; }
gone() { [ ! -e "/proc/$1" ]; }

# VOLUME NUMBER [FOLDER]: the worker dies, another one serves. FOLDER: how long a read waits goes to "stalls".
kill_worker() {
	victim=$(pid_of "$1")
	since=$(now_ms)
	kill -9 "$victim"
	[ -z "${3-}" ] || { dd if="$3/probe" of=/dev/null bs=4k iflag=direct 2>/dev/null && echo $(($(now_ms) - since)) >>/run/cowfs-test/stalls; } ||
		fail "$1: the read after a death failed"
	wait_for 60 replaced "$1" "$2" || fail "$1: no worker has replaced $victim as number $2: $(cowctl status "$1" 2>&1 | head -3)"
}

# VOLUME FOLDER: everything, everything and home, one file
commit_on() {
	while [ -e /run/cowfs-test/load ]; do
		cowctl commit "$1" >>/run/cowfs-test/commits 2>&1
		sleep 0.3
		cowctl commit --checkpoint "$1" >>/run/cowfs-test/commits 2>&1
		dd if=/dev/urandom of="$2/single" bs=64k count=8 2>/dev/null
		cowctl commit "$2/single" >>/run/cowfs-test/singles 2>&1
	done
}

# Writes everything, reads and compares it, and begins again with other data: a write that was lost would show the same as
# before. Every second time in a new file.
load_on() {
	round=0
	while [ -e /run/cowfs-test/load ]; do
		[ $((round % 2)) = 0 ] || rm -f "$1/load.0.0"
		round=$((round + 1))
		fio --name=load --directory="$1" --ioengine=psync --rw=randwrite --bsrange=4k-64k --size=12m --fsync=16 --randrepeat=0 \
			--allrandrepeat=0 --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --verify_dump=1 \
			--aux-path=/run/cowfs-test || return
	done
}

# What fio found: its words, and of the block that it kept how many bytes are wrong in which pages
fio_found() {
	grep -iE 'verify:|err=|error|signal' /run/cowfs-test/fio | head -n 8
	for f in /run/cowfs-test/*.received; do
		cmp -l "$f" "${f%received}expected" | awk '{ wrong[int(($1 - 1) / 4096)]++ } END { for (page in wrong) print page, wrong[page] }'
		od -A d -t x1 "$f" | head -n 8
	done
}

# VOLUME FOLDER ROUNDS NUMBER: kills at random moments under load; then the content is what was written
kill_under_load() {
	: >/run/cowfs-test/load
	: >/run/cowfs-test/commits
	: >/run/cowfs-test/singles
	dd if=/dev/urandom of="$2/known" bs=64k count=64 2>/dev/null
	known=$(sha256sum <"$2/known")
	: >/run/cowfs-test/stalls
	must dd if=/dev/zero of="$2/probe" bs=4k count=1 conv=fsync
	load_on "$2" >/run/cowfs-test/fio 2>&1 &
	fio=$!
	commit_on "$1" "$2" &
	commits=$!
	n=$4
	while [ "$n" -lt $(($3 + $4)) ]; do
		n=$((n + 1))
		sleep "$((n % 3)).$((n * 7 % 10))"
		[ $((n % 4)) != 0 ] || (timeout 120 sync && : >/run/cowfs-test/synced) &
		kill_worker "$1" "$n" "$2"
	done
	rm /run/cowfs-test/load
	wait $fio || fail "$1: fio: $(fio_found)"
	wait $commits
	wait_for 120 [ -e /run/cowfs-test/synced ] || fail "$1: sync(2) has not returned"
	say "$1: $3 kills; commits: $(grep -c committed /run/cowfs-test/commits) of $(wc -l </run/cowfs-test/commits), of a file: $(grep -c committed /run/cowfs-test/singles) of $(wc -l </run/cowfs-test/singles)"
	say "$1: a read waited for ms (median, 99 %, longest): $(sort -n /run/cowfs-test/stalls |
		awk '{ ms[NR] = $1 } END { print ms[int((NR + 1) / 2)], ms[int(NR * 0.99 + 0.99)], ms[NR] }')"
	cached=$(sha256sum <"$2/load.0.0")
	sync
	echo 3 >/proc/sys/vm/drop_caches
	is "$1: file that was written before" "$(sha256sum <"$2/known")" "$known"
	is "$1: file that fio wrote" "$(sha256sum <"$2/load.0.0")" "$cached"
	cat /run/cowfs-test/commits /run/cowfs-test/singles | grep -v committed | sort | uniq -c | sort -rn | head -n 5 | while read -r line; do
		say "$1: $line"
	done
	must cowctl commit "$1"
}

data_rounds() { # ROUNDS CHECK...
	rounds=$1
	shift
	loop=$(attach_immortal) || fail "data: not attached"
	must mount "$loop" /mnt/data
	kill_under_load data /mnt/data "$rounds" 0
	must umount /mnt/data
	must "$@" "$loop"
	must cowctl detach data
	must "$@" "$(data_card)"
}

step_1() {
	protected || fail "the root is $(root_device)"
	must mkdir -p /mnt/data /srv/load
	is "on-crash" "$(cowctl status root --json | sed 's/.*"on_crash": *"\([a-z]*\)".*/\1/')" replace
	data_rounds $KILLS e2fsck -fn
	halted
	kill_under_load root /srv/load "${ASKED:-$KILLS}" 0
	must dd if=/dev/urandom of=/srv/data bs=64k count=32
	sha256sum /srv/data >/srv/sum
}

# Three deaths within a minute: writes fail, RAM is read, a commit by hand is made. The fourth one is the end.
halted() {
	loop=$(attach_data) || fail "data: not attached"
	must mount -o errors=continue "$loop" /mnt/data
	must dd if=/dev/urandom of=/mnt/data/kept bs=64k count=16 conv=fsync
	sum=$(sha256sum </mnt/data/kept)
	for n in 1 2 3; do
		kill_worker data $n
	done
	cowctl status data --json | grep -q '"halted": *true' || fail "not halted after three deaths"
	! dd if=/dev/zero of="$loop" bs=4k count=1 seek=20000 oflag=direct 2>/dev/null || fail "a halted volume takes writes"
	echo 3 >/proc/sys/vm/drop_caches
	is "content" "$(sha256sum </mnt/data/kept)" "$sum"
	victim=$(pid_of data)
	kill -9 "$victim"
	wait_for 60 gone "$victim" || fail "the halted worker is still there"
	wait_for 60 no_status || fail "the fourth death was not the end"
	umount /mnt/data || umount -l /mnt/data
	cowctl status >/dev/null 2>&1
}

no_status() { ! cowctl status data; }

step_2() {
	must sha256sum -c /srv/sum
	protected || fail "the root is $(root_device)"
	[ -z "$LONG" ] || data_rounds $KILLS true # on xfs
}

host_before() {
	[ "$1" = 2 ] && [ "$LONG" ] || return 0
	truncate -s $((DATA_MIB - 40))M "$DATA.xfs"
	mkfs.xfs -q "$DATA.xfs"
	truncate -s "${DATA_MIB}M" "$DATA.xfs"
	"$BUILD/cowctl" prepare "$DATA.xfs" >/dev/null || fail "cowctl prepare"
	mv "$DATA.xfs" "$DATA"
}

host_after() {
	[ "$1" = 2 ] || return 0
	card_extract "$WORK/part" && offline_check "$WORK/part"
	[ -z "$LONG" ] || xfs_repair -n "$DATA" >/dev/null 2>&1 || fail "xfs_repair"
}
