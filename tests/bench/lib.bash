# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# What the benchmarks begin with, and a slow card. They are root, in a mount namespace of their own.
#
# Sets TOP, the repository; then all of tests/bats/lib.bash is there, outside bats.
#	note TEXT...		on stderr
#	card_up [FILE]		CARD, a loop device on FILE (default: IMG); behind slowcard if SLOW has its options
#	card_down
#	volume_tidy	for a trap: all of the above away, and the volume on it

[ "$(id -u)" = 0 ] || { echo "bench: needs root" >&2; exit 1; }
# what somebody else does with mount namespaces meanwhile cannot keep our file systems busy
[ "${BENCH_NAMESPACE-}" ] || BENCH_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"

TOP=$(cd "$(dirname "$0")/../.." && pwd)
export BATS_TEST_DIRNAME=$TOP/tests/bats
bats_require_minimum_version() { :; }
export COW_LIMIT=300
skip() { echo "bench: $*" >&2; exit 1; }
# shellcheck source=tests/bats/lib.bash
. "$TOP/tests/bats/lib.bash"

note() {
	echo "bench: $*" >&2
}

is_mounted() { grep -qF " $1 " /proc/self/mountinfo; }

card_up() {
	local file=${1:-$IMG}
	if [ "${SLOW-}" ]; then
		# shellcheck disable=SC2086 # several options
		"$TOP/build/tests/slowcard" "$file" "$T/slowcard" $SLOW 2>>"$T/slowcard.err" &
		SLOW_PID=$!
		wait_for 10 is_mounted "$T/slowcard"
		file=$T/slowcard/card
	fi
	loop_up "$file" --direct-io=on
	CARD=$LOOP
}

card_down() {
	[ -z "${CARD-}" ] || loop_down "$CARD"
	CARD=''
	if [ "${SLOW_PID-}" ]; then
		umount "$T/slowcard"
		wait "$SLOW_PID" || true
		SLOW_PID=''
	fi
}

volume_tidy() {
	set +e
	umount "$MNT" 2>/dev/null
	cow detach --discard vol 2>/dev/null
	card_down
	cow_teardown
}
