# shellcheck shell=sh disable=SC2030,SC2031,SC2034,SC2154,SC3028
# SPDX-License-Identifier: MIT
# The card is pulled again and again while its volume is written, read past the page cache, and committed: nothing fails, and all
# contents are right. Strangers and older copies are put in meanwhile: not one byte of them changes. A worker is killed while the card
# is away, where another one can take over. The power goes while the card is away: the next boot has the last commit that has
# returned, or the next one. First a second card, then that of the root. In the long form fio and apt work as well, and the ledger
# grows by what QEMU has counted.
#	AWAY_DATA=100 AWAY_ROOT=100 AWAY_DECOYS=13 AWAY_CUTS=5	of the long form: pulls of each card, at most so many pairs of
#	decoys among them, power cuts
# guests: busybox-fio debian12 debian13
# short: busybox
DRIVE=scsi DATA_DRIVE=scsi DATA_MIB=128 LIMIT=600 STEP_LIMIT=500
TIMES="4 4" DECOYS=1 CUTS=1
[ -z "${LONG-}" ] || TIMES="${AWAY_DATA:-100} ${AWAY_ROOT:-100}" DECOYS=${AWAY_DECOYS:-13} CUTS=${AWAY_CUTS:-5} LIMIT=3600 STEP_LIMIT=3500
case $GUEST in busybox-fio) DISK_MIB=256 ;; esac
BOOTS=$((CUTS + 2)) KILLED=$(seq -s " " 2 $((CUTS + 1)))

# ---- in the guest: DIR is on volume VOL ----

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

# Others than the shell write and read as well: fio, which verifies, and apt and dpkg. Only where they are.
fio_loop() {
	fios=0
	mkdir -p "$DIR/fio"
	until [ -e /run/stop ]; do
		[ $((fios % 2)) = 0 ] || rm -f "$DIR/fio/load.0.0"
		fio --name=load --directory="$DIR/fio" --ioengine=psync --rw=randwrite --bsrange=4k-64k --size=8m --fsync=16 --randrepeat=0 \
			--allrandrepeat=0 --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --aux-path=/run >/run/fio.out 2>&1 ||
			fail "fio: $(grep -iE 'verify:|err=|error' /run/fio.out | head -n 3)"
		fios=$((fios + 1))
	done
	say "$VOL: fio has written and verified $fios times"
}

apt_loop() {
	# apt leaves a version alone that is installed
	debs=$(cat /run/debs 2>/dev/null || echo 0)
	mkdir -p /run/load/DEBIAN /run/load/usr/share/away
	until [ -e /run/stop ]; do
		debs=$((debs + 1))
		echo $debs >/run/debs
		printf 'Package: away\nVersion: %s\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' $debs >/run/load/DEBIAN/control
		dd if=/dev/urandom of=/run/load/usr/share/away/file bs=64k count=8 2>/dev/null
		if [ $((debs % 2)) = 0 ]; then
			set -- dpkg -i
		else
			set -- apt-get -y -o Dpkg::Use-Pty=0 -qq install
		fi
		{ dpkg-deb --root-owner-group -b /run/load /run/away.deb && "$@" /run/away.deb; } >/run/apt.out 2>&1 ||
			fail "package $debs: $(tail -n 3 /run/apt.out)"
		cmp /run/load/usr/share/away/file /usr/share/away/file || fail "package $debs: another file"
		[ "$(dpkg-query -W -f '${Version}' away)" = $debs ] || fail "package $debs: not installed"
	done
	say "$VOL: $debs packages installed since the start"
}

# Until the host has said NAME.
work_until() {
	rm -f /run/stop /run/refused
	commit_loop &
	_loops=$! rounds=0
	if [ "$LONG" ] && type fio >/dev/null; then
		fio_loop &
		_loops="$_loops $!"
	fi
	if [ "$LONG" ] && [ "$VOL" = root ] && type apt-get >/dev/null; then
		apt_loop &
		_loops="$_loops $!"
	fi
	mark "working-$1"
	until told "$1"; do
		new_write $((rounds % 10))
		verify
		no_error
		rounds=$((rounds + 1))
	done
	: >/run/stop
	# shellcheck disable=SC2086 # words
	wait $_loops
	verify
	no_error
	must cowctl commit "$VOL"
	say "$VOL: $rounds rounds, all right; $(cowctl status "$VOL" | grep '^away')"
	sort -u /run/refused 2>/dev/null | while read -r _l; do say "$VOL: $_l"; done
}

no_error() {
	dmesg | grep -E "EXT4-fs (error|warning)|(Buffer I/O|I/O) error.*loop" >/run/errors && fail "the kernel: $(head -n 3 /run/errors)"
	return 0
}

# For the host: the ledger when nothing is written.
ledger() {
	sleep 3
	cowctl wear --json "$VOL" | sed 's/.*"totals": *{\([^}]*\)}.*/\1/' >/run/totals
	for f in written_bytes write_calls; do
		value "$1-$f" "$(sed 's/.*"'$f'": *\([0-9]*\).*/\1/' /run/totals)"
	done
	mark "$1"
	until told "$1"; do sleep 0.5; done
}

# The pulls, half of them counted, and what is there then.
works() {
	base_write 16
	! replaces || value "$VOL-replaces" 1
	work_until "$VOL-pulled"
	# without its card the root has no programs that could ask
	[ "$VOL" = root ] || grep -q 'another state' /run/refused || fail "nothing was refused"
	[ -z "$LONG" ] || is_counted
	taken_over
	value "$VOL-tree" "$(tree "$DIR")"
}

is_counted() {
	ledger "$VOL-before"
	work_until "$VOL-counted"
	ledger "$VOL-after"
	cowctl status "$VOL" --json | grep -q '"foreign_bytes": *0[^0-9]' || fail "foreign writes: $(cowctl status "$VOL" | grep -i foreign)"
}

# The worker dies while the card is away, and another one takes over when it is back. What waited for the card is answered.
taken_over() {
	replaces || return 0
	echo "of RAM" >"$DIR/ram"
	sync
	echo 3 >/proc/sys/vm/drop_caches
	_pid=$(cat "/run/cowfs/$VOL/pid")
	# without its card the root has these programs alone
	is_away
	sleep 0.1
	mark "$VOL-pull"
	until is_away; do sleep 0.2; done
	md5sum "$DIR/base-3" >/run/waited 2>&1 &
	_reader=$!
	sleep 0.5
	kill -9 "$_pid"
	mark "$VOL-killed"
	wait $_reader || fail "a reader failed: $(cat /run/waited)"
	wait_for 60 replaced || fail "no worker has taken over: $(cowctl status "$VOL")"
	is "what a reader has waited for" "$(cat /run/waited)" "$(grep base-3 /run/sums-base)"
	is "what was in RAM" "$(cat "$DIR/ram")" "of RAM"
	verify
	no_error
	must cowctl commit "$VOL"
	say "$VOL: another worker has taken over"
}

replaces() { cowctl status "$VOL" --json | grep -q '"on_crash": *"replace"'; }
is_away() { cowctl status "$VOL" | grep -q '^AWAY'; }
replaced() { cowctl status "$VOL" --json | grep -q '"replaced": *1[^0-9]'; }

tree() { (cd "$1" && find . -type f | sort | xargs md5sum | md5sum | cut -c1-32); }

step_1() {
	protected || fail "the root is $(root_device)"
	mkdir -p /mnt/data
	loop=$(cowctl attach --ram 120M --name data "$(data_card)") || fail "data: not attached"
	must mount "$loop" /mnt/data
	DIR=/mnt/data VOL=data
	works
	must umount /mnt/data
	must cowctl detach data
}

# All files of a generation have its number in each line.
gen_file() { yes "$1" | head -c $(($2 * 50000 + 10)); }

gen_write() {
	mkdir -p /srv/gen
	for n in 0 1 2 3 4 5; do gen_file "$1" $n >/srv/gen/$n; done
}

# Commits until the power goes.
gen_loop() {
	while :; do
		gen=$((gen + 1))
		gen_write "$gen"
		until cowctl commit root >/run/commit.out 2>&1; do
			[ $? = 5 ] || fail "commit: $(cat /run/commit.out)"
			sleep 0.2
		done
		value gen "$gen"
	done
}

gen_check() {
	gen=$(head -n 1 /srv/gen/0)
	for n in 0 1 2 3 4 5; do
		gen_file "$gen" $n >/run/gen
		cmp /run/gen /srv/gen/$n || fail "a mixture: $n is not of generation $gen"
	done
	said=$(cat gen)
	[ "$gen" = "$said" ] || [ "$gen" = $((said + 1)) ] || fail "generation $gen is there, and commit $said had returned"
	say "generation $gen, commit $said had returned"
}

step_2() {
	END=none
	protected || fail "the root is $(root_device)"
	DIR=/srv/away VOL=root
	works
	gen=0
	cut_here
}

# The host pulls the card, and then the power goes.
cut_here() {
	END=none
	gen_write "$gen"
	must cowctl commit root
	value gen "$gen"
	mark leaving
	gen_loop
}

step() {
	protected || fail "the root is $(root_device)"
	gen_check
	is "the tree" "$(tree /srv/away)" "$(cat tree)"
	[ "$STEP" = "$(cat boots)" ] || cut_here
	must cowctl commit root
}

# ---- the host ----

host_before() {
	EXTRA="$WORK/gen $WORK/tree $WORK/boots"
	[ "$1" != 1 ] || : | tee "$WORK/gen" >"$WORK/tree"
	echo $BOOTS >"$WORK/boots"
	[ "$1" = 1 ] || return 0
	# as large, and a card of cowfs as well
	mv "$DATA" "$WORK/mine.img"
	data_make
	mv "$DATA" "$WORK/stranger-data.img"
	mv "$WORK/mine.img" "$DATA"
	# with the partitions of the card, and another root
	(
		cp --sparse=always "$CARD" "$WORK/stranger-card.img"
		CARD=$WORK/stranger-card.img
		card_extract "$WORK/part"
		mke2fs -q -F -t ext4 -E lazy_itable_init=0 "$WORK/part" $(($(stat -c %s "$WORK/part") / 1048576 - LOG_MIB))M
		"$BUILD/cowctl" prepare --force "$WORK/part" >/dev/null || die "cowctl prepare failed"
		card_put "$WORK/part"
	)
}

# Between 0.2 and 10 s, mostly short; of the long form one in thirty a minute.
pause() {
	[ -z "$LONG" ] || [ $((i % 30)) != 5 ] || sleep 60
	sleep $((RANDOM % 10 * (RANDOM % 4 == 0))).$((2 + RANDOM % 8))
}

# Something else is put in, and nothing happens to it.
decoy() { # NAME FILE
	[ -e "$2.was" ] || cp --sparse=always "$2" "$2.was"
	card_in "$1" "$2"
	sleep 4
	card_out "$1"
	cmp "$2" "$2.was" || fail "$2 was written"
}

# What QEMU has counted of a disk ends with it. The machine stands still between the question and the end, and QEMU has no request.
counted_out() {
	[ -z "$counts" ] || { qmp stop >/dev/null && count "$1"; }
	card_out "$1"
	[ -z "$counts" ] || qmp cont >/dev/null
}

count() {
	# shellcheck disable=SC2046 # words
	set -- $(qmp writes "$1")
	ops=$((ops + $1)) bytes=$((bytes + $2))
}

pull() { # NAME OUT: card_out, or counted_out
	sleep $((1 + RANDOM % 4)).$((RANDOM % 10))
	"$2" "$1"
	i=$((i + 1))
	pause
	card_in "$1"
}

decoys() { # NAME FILE
	n=0
	while [ $n -lt "$pairs" ]; do
		card_out "$1"
		# older as soon as there was another commit
		[ $((n % 10)) != 0 ] || { rm -f "$WORK/older.img.was" && cp --sparse=always "$2" "$WORK/older.img"; }
		decoy "$1" "$WORK/stranger-$1.img"
		card_in "$1"
		sleep $((6 + RANDOM % 3))
		card_out "$1"
		decoy "$1" "$WORK/older.img"
		card_in "$1"
		sleep 1
		n=$((n + 1))
	done
	i=$((i + 2 * pairs))
}

card_works() { # NAME FILE VOLUME
	counts='' ops=0 bytes=0 i=0
	times=${TIMES% *} counted=0 pairs=$DECOYS
	[ "$3" = data ] || times=${TIMES#* }
	[ -z "$LONG" ] || counted=$((times / 2))
	[ "$pairs" -le $((times / 4)) ] || pairs=$((times / 4))
	wait_mark "working-$3-pulled"
	while [ $i -lt $((times - counted - 2 * pairs)) ]; do pull "$1" card_out; done
	decoys "$1" "$2"
	tell_guest "$3-pulled"
	[ "$counted" = 0 ] || counted_pulls "$1" "$3"
	say "$3: pulled $i times"
	worker_killed "$1" "$3"
}

counted_pulls() { # NAME VOLUME
	case $DRIVE in scsi | usb) counts=1 ;; esac
	wait_mark "$2-before"
	count "$1"
	ops=$((-ops)) bytes=$((-bytes))
	tell_guest "$2-before"
	wait_mark "working-$2-counted"
	while [ "$i" -lt "$times" ]; do pull "$1" counted_out; done
	tell_guest "$2-counted"
	wait_mark "$2-after"
	count "$1"
	[ -z "$counts" ] || compare "$2"
	tell_guest "$2-after"
}

# A request that the kernel failed, because its device had just gone, is in the ledger alone. The kernel splits some.
compare() { # VOLUME
	written=$(($(value "$1-after-written_bytes") - $(value "$1-before-written_bytes")))
	calls=$(($(value "$1-after-write_calls") - $(value "$1-before-write_calls")))
	say "$1: $counted pulls: the ledger has $calls requests, $written bytes; QEMU $ops, $bytes; the kernel failed writes: $(
		grep -ac 'op 0x1:(WRITE)' "$WORK/console-$N")"
	[ "$written" = "$bytes" ] || { [ "$written" -gt "$bytes" ] && [ $((written - bytes)) -le $((counted * 2097152)) ]; } ||
		fail "the ledger is wrong"
}

worker_killed() { # NAME VOLUME
	[ "$(value "$2-replaces")" = 1 ] || return 0
	wait_mark "$2-pull"
	card_out "$1"
	wait_mark "$2-killed"
	sleep 5
	card_in "$1"
}

host_during() {
	case $1 in
	1) card_works data "$DATA" data ;;
	2) card_works card "$CARD" root ;;
	esac
	[ "$1" != 1 ] && [ "$1" != $BOOTS ] || return 0
	wait_mark leaving
	sleep $((RANDOM % 3)).$((RANDOM % 10))
	card_out card
	sleep $((2 + RANDOM % 3))
	vm_kill
}

host_after() {
	if [ "$1" = 1 ]; then
		offline_check "$DATA"
		mkdir "$WORK/tree.data"
		# /fio and the rest, as the guest had it
		debugfs -R "rdump / $WORK/tree.data" "$DATA" 2>/dev/null
		rm -rf "$WORK/tree.data/lost+found"
		[ "$(cd "$WORK/tree.data" && find . -type f | sort | xargs md5sum | md5sum | cut -c1-32)" = "$(value data-tree)" ] || fail "the tree of the card differs"
		rm -rf "$WORK/tree.data"
	elif [ "$1" != $BOOTS ]; then
		verdict_read
		! grep -q ^fail "$VERDICT" || fail "$(sed -n 's/^fail //p' "$VERDICT" | head -1)"
		sed -n 's/^# /    /p' "$VERDICT"
		value gen >"$WORK/gen"
		[ "$1" != 2 ] || value root-tree >"$WORK/tree"
	fi
	card_extract "$WORK/part"
	offline_check "$WORK/part"
}
