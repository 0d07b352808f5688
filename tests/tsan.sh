#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The whole daemon under ThreadSanitizer, and with its lock order checked (tests/lockcheck): fio on ext4, commits every
# second, checkpoints, discards, commits that fail, status, detach; then a card that goes away in commits and comes
# back. Not one report is allowed. As root, after
# `make SAN=thread all`; COWFS_TSAN_SECONDS (12) is how long it goes on.
# shellcheck disable=SC2034 # variables of lib.bash
set -eu
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

# a mount namespace that somebody makes meanwhile would keep our file systems busy; the sanitizer does not like every layout of
# memory
[ "${COWFS_TSAN_NAMESPACE-}" ] || COWFS_TSAN_NAMESPACE=1 exec setarch -R unshare --mount --propagation private "$0" "$@"

here=$(cd "$(dirname "$0")" && pwd)
COWFS_BUILD=${COWFS_BUILD:-$here/../build-thread}
seconds=${COWFS_TSAN_SECONDS:-12}

# what bats gives to lib.bash
bats_require_minimum_version() { :; }
skip() { echo "tsan: $*"; exit 1; }
exec 3>&1
# shellcheck disable=SC1091
. "$here/bats/lib.bash"
# shellcheck disable=SC1091
. "$here/bats/away.bash"

cow_setup
at_end cow_teardown
logs=$T/logs
mkdir "$logs"
export TSAN_OPTIONS="second_deadlock_stack=1 history_size=3 ${TSAN_OPTIONS-}"
export COWFS_LOCKCHECK_LOG=$logs/all # tests/lockcheck writes both there: the daemon's worker can open no file

reports() { cat "$logs"/* 2>/dev/null | tr -d '\0' || true; }

finish() {
	reports
	echo "tsan: FAILED: $*"
	exit 1
}

# ---- would it see anything? ----

cc -D_GNU_SOURCE -fsanitize=thread -g -include "$here/lockcheck/lockcheck.h" -o "$T/artificial" "$here/lockcheck/artificial.c" \
	"$here/lockcheck/lockcheck.c"
for _ in 1 2 3; do # what a thread does may be over before the other one begins
	"$T/artificial" >/dev/null 2>&1 || true
done
for what in "data-race" "lock-order-inversion" "lockcheck: .*artificial.c"; do
	reports | grep -q "WARNING: .*$what" || finish "an artificial $what goes unseen"
done
rm "$logs"/*

# ---- the daemon ----

card_make ext4 224 288 -J size=8
cow prepare "$CARD" >/dev/null
with_shim attach --ram 96M
grep -q libtsan "/proc/$(worker_pid)/maps" || finish "$COWFS_BUILD is not built with SAN=thread"
mount_volume -o noatime,discard
mkdir "$MNT/fio" "$MNT/small"

background fio --minimal --name=mixed --directory="$MNT/fio" --numjobs=4 --size=16M --rw=randrw --bsrange=1k-64k \
	--ioengine=psync --time_based --runtime="$seconds" --rate_iops=400 --output="$T/fio.out"
fio=$BG

small_files() {
	local i
	for ((i = 0; ; i++)); do
		head -c $((i % 7 * 3000)) /dev/urandom >"$MNT/small/$((i % 50))"
		[ $((i % 9)) -gt 0 ] || rm -f "$MNT/small/$((i % 50))"
		sleep 0.01
	done
}
background small_files

asks=0
ask() {
	while :; do
		cow status --json >/dev/null || true
		[ $((asks % 10)) -gt 0 ] || cow top --json >/dev/null || true
		asks=$((asks + 1))
		sleep 0.1
	done
}
background ask

commits=0 failures=0 round=0 end=$((SECONDS + seconds))
while [ $SECONDS -lt $end ]; do
	round=$((round + 1))
	case $((round % 4)) in
	1) fstrim "$MNT" ;;
	2) cow commit --dry-run >/dev/null ;;
	3)
		eio "$([ $((round % 8)) = 3 ] && echo flush || echo write)" 1 1
		if cow commit >/dev/null 2>&1; then
			finish "a commit succeeded although the card failed"
		fi
		eio off
		failures=$((failures + 1))
		;;
	0) cow commit --checkpoint >/dev/null && commits=$((commits + 1)) ;;
	esac
	cow commit >/dev/null
	commits=$((commits + 1))
	sleep 0.5
done
wait "$fio" || { cat "$T/fio.out"; finish "fio"; }
clear_jobs || true
cow discard >/dev/null; cow discard --cancel >/dev/null
detach >/dev/null
fsck ext4 >/dev/null || finish "e2fsck"

# ---- a card that goes away ----

rounds=0
away_round() { # LEFT
	background dd if=/dev/urandom of="$MNT/new" bs=64k count=32 oflag=direct status=none
	background dd if="$DEV" of=/dev/null bs=64k count=200 iflag=direct status=none
	stays
	pull "$1"
	cow commit --checkpoint >/dev/null 2>&1 || true
	wait_for 5 is_away || finish "the card is not away"
	back
	here_again || finish "the card is not back"
	loop_down "$CARD"
	CARD=$LOOP
	rounds=$((rounds + 1))
}
loop_down "$CARD"
stays
IMG=''
protected >/dev/null
background ask
for left in 0 1 3 6 9 12; do
	away_round "$left"
done
flaps 3
here_again || finish "the card that flapped is not back"
clear_jobs || true
stays
detach >/dev/null
fsck ext4 >/dev/null || finish "e2fsck"

[ -z "$(reports)" ] || finish "reports"
if [ "$commits" -lt 4 ] || [ "$failures" -lt 1 ]; then
	finish "only $commits commits, $failures that failed"
fi
echo "tsan: $commits commits, $failures failed ones, $round rounds, a card that went away $rounds times: no report"
