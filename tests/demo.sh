#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The main job from end to end: protect a real Debian root on a card image, change it, commit it, cut the power
# in the middle of the next commit, recover, and prove what the card holds. A story to read and a test: the exit
# status is 0 only if every claim that it prints was checked.
#
#	tests/demo.sh [--quick]		as root; --quick: no Debian, the host's own documentation as content
#	DEMO_SEED=N			repeat the power cut of an earlier run
#	DEMO_KEEP=1			leave the card image and the logs in build/demo
#	DEMO_DIR=FOLDER			another folder than that
set -euo pipefail
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

QUICK=
case "${1-}" in
"") ;;
--quick) QUICK=1 ;;
*)
	echo "usage: tests/demo.sh [--quick]" >&2
	exit 2
	;;
esac
[ "$(id -u)" = 0 ] || { echo "demo: needs root (loop devices, mounts): run it as root" >&2; exit 1; }
# nothing mounted here is seen outside, and nothing is left when we are gone
[ "${DEMO_NAMESPACE-}" ] || DEMO_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"

TOP=$(cd "$(dirname "$0")/.." && pwd)
BUILD=${COWFS_BUILD:-$TOP/build}
DEMO=${DEMO_DIR:-$BUILD/demo}
CACHE=$BUILD/cache
MNT=$DEMO/root
BARE=$DEMO/bare
IMAGE=$DEMO/card.img
ROOT_TAR=$CACHE/debian-root.tar
NAME=demo-$$
RUNDIR=${COWFS_RUNDIR:-/run/cowfs}/$NAME
SEED=${DEMO_SEED:-$((RANDOM * 32768 + RANDOM))}
START_US=${EPOCHREALTIME/[.,]/}
export LC_ALL=C.UTF-8
PATH=$BUILD:$PATH:/usr/sbin:/sbin

LOG_MIB=48 # room behind the file system: a log of the default 32 MiB, aligned, and its superblocks
CARD='' PART='' LOOP='' DAEMON_PID='' JOB='' JOB_END='' STEP=0

# ---- telling ----

# Tenths of a second of each step on two cores at rest: the share of each in the whole.
TOOK=(21 1 1 71 1 28 43 3 2 19 47)
[ -s "$ROOT_TAR" ] || TOOK[0]=270
[ ! "$QUICK" ] || TOOK=(7 1 1 4 1 8 8 2 1 6 19)

elapsed() {
	local us=$((${EPOCHREALTIME/[.,]/} - START_US))
	printf '%d.%d' $((us / 1000000)) $((us / 100000 % 10))
}

# Seconds that the steps from this one on take, at the speed of those before it.
left() {
	local i now=0 rest=0
	now=$(elapsed)
	for i in "${!TOOK[@]}"; do
		[ "$i" -lt $((STEP - 1)) ] || rest=$((rest + TOOK[i]))
	done
	awk -v now="$now" -v rest="$rest" -v all="$(IFS=+ && echo $((${TOOK[*]})))" \
		'BEGIN { printf "%d", 0.5 + (all > rest ? rest * now / (all - rest) : rest / 10) }'
}

step() {
	STEP=$((STEP + 1))
	printf '\n== %d of %d. %s   (%s s, about %s s left)\n' "$STEP" ${#TOOK[@]} "$1" "$(elapsed)" "$(left)"
	printf '   %s\n' "${@:2}"
}

say() {
	printf '   %s\n' "$*"
}

# Shows a command and, indented, what it prints.
show() {
	local status=0
	printf '   $ %s\n' "$*"
	"$@" >"$DEMO/out" 2>&1 || status=$?
	sed 's/^/     /' "$DEMO/out"
	return $status
}

fail() {
	printf '\ndemo: FAILED in step %d: %s (DEMO_SEED=%s)\n' "$STEP" "$*" "$SEED"
	trap - ERR
	exit 1
}

# ---- tidying, in every exit path ----

daemon_alive() {
	[ "$DAEMON_PID" ] && kill -0 "$DAEMON_PID" 2>/dev/null
}

wait_daemon_gone() {
	for _ in {1..1000}; do
		daemon_alive || return 0
		sleep 0.1
	done
	return 1
}

unmount() {
	mountpoint -q "$1" || return 0
	umount "$1" 2>/dev/null || umount -l "$1"
}

loops_of() {
	losetup -nl -O NAME,BACK-FILE | awk -v file="$1" '$2 == file { print $1 }'
}

# The loop device that a dead daemon leaves behind.
drop_loop() {
	local loop
	for loop in $(loops_of "/cowfs:$NAME"); do
		losetup -d "$loop"
	done
	LOOP=
}

# Waits for the last job in the background: a signal is not kept waiting by it. Its end then is signal $1 (0: its own).
job() {
	local status=0
	JOB=$! JOB_END=$1
	wait "$JOB" || status=$?
	JOB=
	return $status
}

tidy() {
	local loop
	set +e
	trap - ERR
	trap '' INT TERM HUP PIPE
	{
		[ ! "$JOB" ] || kill -s "$JOB_END" "$JOB"
		wait # for one as well that has only just begun, which JOB does not name
	} 2>/dev/null
	unmount "$MNT"
	unmount "$BARE"
	[ "$DAEMON_PID" ] || DAEMON_PID=$(cat "$RUNDIR/pid" 2>/dev/null) # interrupted while it started
	if daemon_alive; then
		for _ in {1..50}; do # what was killed may still have it mounted
			cowctl detach "$NAME" --discard >/dev/null 2>&1 && break
			sleep 0.1
		done
		wait_daemon_gone || kill -9 "$DAEMON_PID"
		wait_daemon_gone
	fi
	drop_loop
	rm -rf "$RUNDIR"
	for loop in $(loops_of "$IMAGE"); do
		partx -d "$loop" 2>/dev/null
		losetup -d "$loop"
	done
	[ "${DEMO_KEEP-}" ] || rm -rf "$DEMO"
	rm -f "$ROOT_TAR.new"
}
trap tidy EXIT
# A signal that came before tidy ignored them interrupts it: it begins again, then.
trap 'tidy; exit 130' INT
trap 'tidy; exit 141' PIPE
trap 'tidy; exit 143' TERM HUP
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR
set -E

# ---- the card ----

# Field 5 of a block device's stat is completed writes, field 7 sectors of 512 bytes written.
card_counters() {
	awk '{ print $5, $7 * 512 }' "/sys/class/block/${PART#/dev/}/stat"
}

ZERO_CALLS=0 ZERO_BYTES=0
card_counters_zero() {
	read -r ZERO_CALLS ZERO_BYTES < <(card_counters)
}

card_written() {
	card_counters | awk -v c="$ZERO_CALLS" -v b="$ZERO_BYTES" -v w="$1" \
		'{ print w == "calls" ? $1 - c : $2 - b }'
}

make_card() {
	local size_mib=$1 start_mib=12 part_mib
	part_mib=$((size_mib - start_mib - 20))
	truncate -s "${size_mib}M" "$IMAGE"
	printf 'label: dos\nstart=%dMiB, size=%dMiB, type=83\n' "$start_mib" "$part_mib" |
		sfdisk -q "$IMAGE"
	CARD=$(losetup -f --show -P "$IMAGE")
	PART=${CARD}p1
	[ -b "$PART" ] || partx -a "$CARD" # a kernel without this partition table
	for _ in {1..50}; do
		[ -b "$PART" ] && break
		sleep 0.1
	done
	[ -b "$PART" ] || fail "no partition $PART appeared"
	say "$PART: $part_mib MiB, from $start_mib MiB on of a card of $size_mib MiB"
	mke2fs -q -F -t ext4 -b 4096 -J size=8 -E lazy_itable_init=0 "$PART" "$((part_mib - LOG_MIB))M"
	say "ext4 of $((part_mib - LOG_MIB)) MiB with a journal of 8 MiB; $LOG_MIB MiB are left for cowfs"
}

# ---- the content ----

# The host's own sources of this Debian, in one format whatever they are written in.
host_sources() {
	# shellcheck disable=SC2016 # apt's variables
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		awk -v c="$1" '$3 == "main" && ($2 == c || $2 == c "-updates" || $2 == c "-security") {
			print "deb", $1, $2, $3 }' | sort -u
}

make_root_tar() {
	local codename options=()
	# shellcheck disable=SC1091
	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mapfile -t options < <(apt-config dump | sed -n 's/^Acquire::.*\(Proxy\|Check-Valid-Until\) ".*/--aptopt=&/p')
	host_sources "$codename" >"$DEMO/sources.list"
	say "mmdebstrap builds Debian $codename (once: it is kept in ${ROOT_TAR#"$TOP"/})"
	mkdir -p "$CACHE"
	mmdebstrap -q --variant=minbase "${options[@]}" --format=tar "$codename" "$ROOT_TAR.new" \
		"$DEMO/sources.list" &
	job TERM || fail "mmdebstrap"
	mv "$ROOT_TAR.new" "$ROOT_TAR"
}

populate() {
	mount "$PART" "$MNT"
	if [ "$QUICK" ]; then
		mkdir -p "$MNT/var/log" "$MNT/srv" "$MNT/usr/share/doc"
		copy_some "$MNT/usr/share/doc" 0
	else
		tar -C "$MNT" --numeric-owner -xf "$ROOT_TAR"
		cp -L /etc/resolv.conf "$MNT/etc/resolv.conf"
		printf '#!/bin/sh\nexit 101\n' >"$MNT/usr/sbin/policy-rc.d" # no service starts by itself
		chmod 755 "$MNT/usr/sbin/policy-rc.d"
	fi
	say "$(find "$MNT" -xdev | wc -l) files, $(du -xsm "$MNT" | cut -f1) MiB"
	umount "$MNT"
}

# Every third file of the host's documentation, from the $2-th on, at most 4000 of them.
copy_some() {
	(cd /usr/share/doc && find . -type f | sort | awk -v n="$2" 'NR % 3 == n' | head -4000 >"$DEMO/list" &&
		tar -cf - -T "$DEMO/list") | tar -C "$1" -xf -
}

# A script from stdin inside the protected root, with /proc, /sys and /dev there as long as it runs. All that it starts ends with it.
in_root() {
	# shellcheck disable=SC2016 # expanded by the inner shell
	unshare --mount --propagation private --pid --fork --kill-child bash -ec '
		mount -t proc proc "$1/proc"
		for d in sys dev; do mount --rbind "/$d" "$1/$d"; done
		exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
			DEBIAN_FRONTEND=noninteractive chroot "$1" bash -eu -s' - "$MNT" <&0 >"$DEMO/in_root.log" 2>&1 &
	job KILL ||
		{ tail -20 "$DEMO/in_root.log"; fail "inside the root (above: its last lines)"; }
}

install_packages() {
	say "apt-get install $*"
	in_root <<-SCRIPT
		apt-get -q update
		apt-get -q -y --no-install-recommends install $*
	SCRIPT
}

# $1 rows, each a transaction of its own with its own sync, and as many lines of a log.
write_database() {
	local rows=$1 i
	say "sqlite3: $rows inserts, each synced; as many lines of a log"
	{
		echo 'CREATE TABLE IF NOT EXISTS reading(id INTEGER PRIMARY KEY, t TEXT, value REAL);'
		for ((i = 0; i < rows; i++)); do
			echo "INSERT INTO reading(t, value) VALUES(datetime('now'), $RANDOM.$((i % 10)));"
		done
		echo 'SELECT count(*) FROM reading;'
	} >"$DEMO/rows.sql"
	if [ "$QUICK" ]; then
		sqlite3 "$MNT/srv/readings.db" <"$DEMO/rows.sql" >/dev/null
	else
		cp "$DEMO/rows.sql" "$MNT/tmp/rows.sql"
		in_root <<<"sqlite3 /srv/readings.db </tmp/rows.sql; rm /tmp/rows.sql"
	fi
	for ((i = 0; i < rows; i++)); do
		printf '%(%F %T)T sensor[%d]: reading %d stored\n' -1 $$ "$i"
	done >>"$MNT/var/log/sensor.log"
	sync -d "$MNT/var/log/sensor.log"
}

serve_pages() {
	say "nginx: configured, started on the loopback interface, asked for a page 100 times, stopped"
	in_root <<-'SCRIPT'
		echo '<h1>cowfs demo</h1>' >/var/www/html/index.html
		for port in $((20000 + RANDOM % 9000)) $((30000 + RANDOM % 2000)); do
			echo "server { listen 127.0.0.1:$port; root /var/www/html; }" >/etc/nginx/sites-available/default
			nginx && break
		done
		for i in {1..100}; do
			exec 3<>/dev/tcp/127.0.0.1/$port
			printf 'GET /index.html HTTP/1.0\r\n\r\n' >&3
			grep -q 'cowfs demo' <&3
			exec 3<&-
		done
		nginx -s quit
		while [ -s /run/nginx.pid ]; do sleep 0.1; done
	SCRIPT
}

change_first() {
	if [ "$QUICK" ]; then
		mkdir -p "$MNT/srv/a"
		copy_some "$MNT/srv/a" 1
		sync -f "$MNT"
		rm -rf "$MNT"/usr/share/doc/libc*
		say "some thousand files copied in, others removed"
	else
		install_packages sqlite3 nginx-light
		serve_pages
	fi
	write_database 300
}

change_second() {
	if [ "$QUICK" ]; then
		mkdir -p "$MNT/srv/b"
		copy_some "$MNT/srv/b" 2
		sync -f "$MNT"
		rm -rf "$MNT"/srv/a/libc*
		say "some thousand files copied in, others removed"
	else
		install_packages git
		rm -rf "$MNT"/usr/share/doc/perl* "$MNT"/usr/share/man
	fi
	write_database 200
}

# Everything that makes up a file tree but the access times: names, modes, owners, sizes, link targets, times, content.
digest() {
	(
		cd "$1"
		find . -xdev ! -type d -printf '%p %y %m %U:%G %n %s %T@ %l\0' | sort -z
		find . -xdev -type d -printf '%p %y %m %U:%G %T@\0' | sort -z
		find . -xdev -type f -print0 | sort -z | xargs -0 -r sha256sum -b
	) | sha256sum | cut -c1-16
}

# ---- cowfs ----

attach() {
	DAEMON_PID='' # of one that is gone, tidy would look for no other
	say "\$ cowctl attach $PART --name $NAME"
	setsid env "$@" cowctl attach "$PART" --name "$NAME" --json >"$DEMO/attached" 2>"$DEMO/out" &
	job 0 || fail "cowctl attach: $(cat "$DEMO/attached" "$DEMO/out")"
	DAEMON_PID=$(cat "$RUNDIR/pid")
	LOOP=$(jq -r .loop "$DEMO/attached")
	sed 's/^/     /' "$DEMO/out"
	say "  $LOOP"
	mount -o noatime,discard "$LOOP" "$MNT"
	say "\$ mount -o noatime,discard $LOOP ${MNT#"$TOP"/}"
}

# A commit with its bill; fails if the kernel counted other bytes at the card than cowfs says.
commit_and_compare() {
	local before after billed
	before=$(card_written bytes)
	show cowctl commit "$NAME" "$@" || fail "cowctl commit"
	after=$(card_written bytes)
	billed=$(cowctl status "$NAME" --json | jq '.last.report.written_bytes')
	say "written to the card, by the bill of cowfs:        $billed bytes"
	say "written to the card, by the kernel's own counter: $((after - before)) bytes"
	[ "$billed" = $((after - before)) ] || fail "the two counts differ"
}

expect_e2fsck_clean() {
	say "\$ e2fsck -fn $PART"
	if ! e2fsck -fn "$PART" >"$DEMO/e2fsck.log" 2>&1; then
		cat "$DEMO/e2fsck.log"
		fail "e2fsck finds faults on the bare partition"
	fi
	say "  $(tail -1 "$DEMO/e2fsck.log")"
}

digest_of_bare_partition() {
	mount -o ro,noload "$PART" "$BARE"
	digest "$BARE"
	umount "$BARE"
}

# Where the power goes, as the shim understands it and in words: half of the time anywhere (the estimate may be a
# little too high), half of the time around the commit record. A commit flushes before the record and after it; the
# estimate may tell a checkpoint besides, which comes before, after, or not at all: then the first flushes may be its.
choose_cut() {
	local operations around="the commit record"
	operations=$(jq '(.report.write_calls + .report.flushes) * 3 / 4 | floor' "$1")
	if [ "$(jq '.report.checkpoint_blocks' "$1")" != 0 ]; then
		operations=$((operations / 2))
		around="a record of the log"
	fi
	RANDOM=$((SEED % 32768))
	case $((RANDOM % 6)) in
	0) CUT=s1 CUT_WORDS="in the flush before $around" ;;
	1) CUT=s1+1 CUT_WORDS="behind the first flush, when $around is due" ;;
	2) CUT=s2 CUT_WORDS="in the second flush, that of $around" ;;
	*)
		CUT=$((1 + RANDOM % operations))
		CUT_WORDS="at write or flush $CUT of $((operations * 4 / 3)) or so"
		;;
	esac
}

# ---- the story ----

echo "cowfs demo: a flash card under a running system that is written only by commits, and a power cut"
mkdir -p "$DEMO" "$MNT" "$BARE"
rm -f "$DEMO/arm" "$DEMO/cut.log"

step "A card" \
	"A card image of 2 GiB with one partition, and on it a real Debian."
if [ "$QUICK" ]; then
	make_card 512
else
	[ -s "$ROOT_TAR" ] || make_root_tar
	make_card 2048
fi
populate

step "Make it a cowfs card" \
	"An empty log goes into the room behind the file system, which itself is not touched."
show cowctl prepare "$PART" || fail "cowctl prepare"

step "Protect it" \
	"The partition becomes read-only; the system uses a loop device whose writes go to RAM." \
	"(The daemon runs with a shim that can cut the power of this card; it sleeps until step 8.)"
card_counters_zero
attach LD_PRELOAD="$BUILD/tests/powercut.so" COWFS_CUT_FILE="$DEMO/arm" COWFS_CUT_SEED="$SEED"
echo 1 2>/dev/null >"$PART" && fail "the partition can be written"
say "writing to $PART: refused"

step "Use it" \
	"An ordinary busy system: packages, a database, a web server, logs."
change_first

step "Where is all this?" \
	"In RAM. The card has not been written once, says the kernel's own counter of the card."
show cowctl status "$NAME" || fail "cowctl status"
say "writes to $PART since it was attached: $(card_written calls) calls, $(card_written bytes) bytes"
[ "$(card_written calls) $(card_written bytes)" = "0 0" ] || fail "the card was written without a commit"

step "Commit it" \
	"First what it would cost, then for real. From its return on this state survives any power cut."
syncfs_digest_of() {
	sync -f "$MNT"
	digest "$MNT"
}
FIRST=$(syncfs_digest_of)
show cowctl commit "$NAME" --dry-run || fail "cowctl commit --dry-run"
[ "$(card_written bytes)" = 0 ] || fail "the dry run wrote"
commit_and_compare
GENERATION=$(cowctl status "$NAME" --json | jq .generation)
say "state 1 (generation $GENERATION) has the digest $FIRST"

step "Change it again" \
	"More of the same: this is what the next commit carries."
change_second
SECOND=$(syncfs_digest_of)
say "state 2 has the digest $SECOND"
[ "$FIRST" != "$SECOND" ] || fail "nothing was changed"

step "Commit, and cut the power in the middle" \
	"What the card had not flushed is then kept, lost, torn or garbage, at random."
cowctl commit "$NAME" --dry-run --json >"$DEMO/dry.json" || fail "cowctl commit --dry-run"
choose_cut "$DEMO/dry.json"
say "the power goes $CUT_WORDS (DEMO_SEED=$SEED)"
printf '%s' "$CUT" | dd of="$DEMO/arm" conv=notrunc status=none
STATUS=0
show cowctl commit "$NAME" || STATUS=$?
[ "$STATUS" != 0 ] || fail "the commit returned: the power did not go"
tail -c +65 "$DEMO/arm" | tr -d '\0' >"$DEMO/cut.log"
[ -s "$DEMO/cut.log" ] || fail "the commit failed by itself, not by the power cut"
wait_daemon_gone || fail "the daemon lives on"
sed 's/^/   /' "$DEMO/cut.log"
say "the daemon is dead, and with it everything in RAM"
show cowctl status "$NAME" && fail "status still answers"
unmount "$MNT"
drop_loop
rm -rf "$RUNDIR"

step "Power on again" \
	"Another machine could do this as well: the card tells everything by itself."
STATUS=0
show cowctl check "$PART" || STATUS=$?
case $STATUS in 0 | 3) ;; *) fail "cowctl check: exit status $STATUS" ;; esac
show cowctl release "$PART" || fail "cowctl release"
show cowctl check "$PART" || fail "cowctl check after release"

step "What does the card hold?" \
	"The bare partition, without any cowfs, must be exactly one of the two states."
expect_e2fsck_clean
say "\$ mount -o ro,noload $PART ${BARE#"$TOP"/}"
FOUND=$(digest_of_bare_partition)
say "digest of its file tree: $FOUND"
case $FOUND in
"$FIRST") WHICH=1 ;;
"$SECOND") WHICH=2 ;;
*) fail "this is neither state 1 ($FIRST) nor state 2 ($SECOND)" ;;
esac
say "this is state $WHICH, every byte of it"

step "And life goes on" \
	"Attach, change, commit and detach: afterwards the card is a plain file system."
card_counters_zero
attach
[ "$(digest "$MNT")" = "$FOUND" ] || fail "the protected view differs from the partition"
write_database 100
FOUND=$(syncfs_digest_of)
commit_and_compare --checkpoint
umount "$MNT"
show cowctl detach "$NAME" || fail "cowctl detach"
wait_daemon_gone || fail "the daemon lives on"
LOOP=
expect_e2fsck_clean
[ "$(digest_of_bare_partition)" = "$FOUND" ] || fail "the partition does not hold what was committed last"
say "the bare partition holds what was committed last"

printf '\ndemo: PASSED in %s s: after the power cut the card held state %d, exactly (DEMO_SEED=%s)\n' \
	"$(elapsed)" "$WHICH" "$SEED"
[ ! "$QUICK" ] || exit 0
cat <<END

Nothing of it is left but ${BUILD#"$TOP"/}. To try next, as root; docs/USING.md says more:
  make install                          programs, manuals and units; protects nothing (make uninstall takes them away)
  cowctl card                           your devices, and the next command for each; writes nothing
  cowctl setup --dry-run                on a system that runs from its card: checks it, prints what setup would do
  make run-image IMAGE=busybox          a small system with cowfs inside, in QEMU (make image IMAGE=busybox builds it)
  make check                            all tests that fit in CI
END
