#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The tarball of `make dist` as a stranger uses it, in a clean Debian of each suite: dist.sh TARBALL SUITE...
# STEPS are targets of make that run there (deps deb check-unit), for check-bats BATS names files. As root. Loop devices are those of this
# machine, so the tests of the programs run as in a container that has them. KEEP=1 leaves the Debian in build/check-dist/SUITE.
set -euo pipefail

TOP=$(cd "$(dirname "$0")/.." && pwd)
BUILD=$TOP/build
CACHE=${COWFS_CACHE:-$BUILD/cache}
# shellcheck source-path=SCRIPTDIR source=../image/lib.bash
. "$TOP/image/lib.bash"
[ "$(id -u)" = 0 ] || die "needs root (chroot): run it as root"
tarball=$1
shift
mkdir -p "$CACHE"
export COWFS_UNIT_SECONDS="${COWFS_UNIT_SECONDS:-3600}"

# DIR COMMAND...: with all devices and control groups; what it mounts ends with it. No chroot: the kernel makes no user namespace in one, and
# nsenter leaves it. The first process is a shell with that root: cowfs looks for its program below the root of process 1, and no
# signal would end make as process 1.
inside() {
	# shellcheck disable=SC2016 # for the inner shell
	unshare --mount --pid --fork --kill-child --propagation private sh -c '
		mount --rbind "$1" "$1" && cd "$1" && mount -t proc proc proc && mount -t sysfs sysfs sys && mount -t devtmpfs dev dev &&
			mkdir -p dev/pts dev/shm && mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts && mount -t tmpfs tmp tmp &&
			mount -t tmpfs -o mode=755 run run && mount --rbind /sys/fs/cgroup sys/fs/cgroup && mkdir -p run/before &&
			pivot_root . run/before && umount -l /run/before && rmdir /run/before || exit
		run=$2
		shift 2
		exec /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
			LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
			COWFS_UNIT_SECONDS="$COWFS_UNIT_SECONDS" sh -c "$run" sh "$@"' sh "$1" '"$@"; exit' "${@:2}"
}

for suite; do
	root=$BUILD/check-dist/$suite
	rm -rf "$root"
	rootfs_tar "$suite" "$CACHE/clean-$suite.tar" make ca-certificates
	rootfs_unpack "$CACHE/clean-$suite.tar" "$root"
	mkdir -p "$root/home/stranger"
	tar -C "$root/home/stranger" --strip-components=1 --no-same-owner -xf "$tarball"
	for step in ${STEPS:-deps deb check-unit}; do
		start=$SECONDS
		inside "$root" make -C /home/stranger "$step" ${BATS+"BATS=$BATS"} >"$root.log" 2>&1 ||
			{ tail -40 "$root.log" >&2; die "$suite: make $step failed"; }
		echo "check-dist: $suite: make $step: $((SECONDS - start)) s"
		grep -E '^(bats: |check: .* passed in)' "$root.log" || :
	done
	[ "${KEEP-}" ] || rm -rf "$root" "$root.log"
done
