# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# What the benchmarks begin with, and a slow card. They are root, in a mount namespace of their own.
#
# Sets TOP, the repository; then all of tests/bats/lib.bash is there, outside bats.
#	note TEXT...		on stderr
#	card_up [FILE]		CARD, a loop device on FILE (default: IMG); behind slowcard if SLOW has its options
#	card_down
#	root_tar		$CACHE/debian-root.tar, the root of the demo
#	in_root COMMANDS	in a chroot on MNT, with network
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
	blockdev --setra 256 "$CARD" # as a card has it; a loop device keeps what its last user chose
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

host_sources() {
	# shellcheck disable=SC2016 # apt's variables
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		awk -v c="$VERSION_CODENAME" '$3 == "main" && ($2 == c || $2 == c "-updates" || $2 == c "-security") {
			print "deb", $1, $2, $3 }' | sort -u
}

# The same root as that of the demo, and its cache.
root_tar() {
	local options=()
	[ ! -e "$CACHE/debian-root.tar" ] || return 0
	# shellcheck source=/dev/null
	. /etc/os-release
	note "mmdebstrap of $VERSION_CODENAME"
	mkdir -p "$CACHE"
	mapfile -t options < <(apt-config dump | sed -n 's/^Acquire::.*\(Proxy\|Check-Valid-Until\) ".*/--aptopt=&/p')
	host_sources >"$T/sources.list"
	mmdebstrap -q --variant=minbase "${options[@]}" --format=tar "$VERSION_CODENAME" "$T/root.tar" "$T/sources.list"
	mv "$T/root.tar" "$CACHE/debian-root.tar"
}

in_root() {
	# shellcheck disable=SC2016 # expanded by the inner shell
	unshare --mount --propagation private bash -ec '
		for d in proc sys dev; do mount --rbind "/$d" "$1/$d"; done
		exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
			chroot "$1" bash -euc "$2"' - "$MNT" "$1" >"$T/in_root.log" 2>&1 || { tail "$T/in_root.log" >&2; return 1; }
}
