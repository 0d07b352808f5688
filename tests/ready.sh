#!/bin/sh
# SPDX-License-Identifier: MIT
# Can the tests and the demo run here? Says in one line all that is missing, and ends with 1: before anything starts, not in
# the middle. A container, a chroot or an emulated processor may lack what every machine has.
#
#	tests/ready.sh [PACKAGE...]	packages that must be installed
set -u
cd "$(dirname "$0")/.." || exit
missing=''

lacks() {
	missing="$missing${missing:+; }$1"
}

# A card image with a partition, as the tests use it: devices must appear that were not there before.
cards_work() {
	image=$(mktemp) && truncate -s 4M "$image" && echo 2048 | sfdisk -q --label dos "$image" >/dev/null 2>&1 || return
	loop=$(losetup -f --show -P "$image" 2>/dev/null) && for _ in 1 2 3 4 5 6 7 8 9 10; do
		[ ! -b "${loop}p1" ] || break
		partx -a "$loop" 2>/dev/null
		sleep 0.1
	done && [ -b "${loop}p1" ]
	works=$?
	[ -z "$loop" ] || { partx -d "$loop" 2>/dev/null; losetup -d "$loop"; }
	rm -f "$image"
	return $works
}

packages=0
! command -v dpkg >/dev/null || for package; do
	dpkg -s "$package" >/dev/null 2>&1 || packages=$((packages + 1))
done
# unpacked by make deps
[ $# = 0 ] || [ -x build/prometheus/usr/bin/promtool ] || packages=$((packages + 1))
[ $packages = 0 ] || lacks "$packages packages (make deps)"

if [ "$(id -u)" != 0 ]; then
	lacks "root: run it with sudo"
else
	if ! unshare --mount true 2>/dev/null; then
		lacks "the right to mount (a container must be privileged)"
	elif ! unshare --mount --propagation private true 2>/dev/null; then
		lacks "a / that is a mount point (for a chroot: mount --rbind FOLDER FOLDER before it)"
	fi
	{ [ -c /dev/fuse ] && true <>/dev/fuse; } 2>/dev/null || lacks "/dev/fuse"
	[ $packages != 0 ] || cards_work || lacks "loop devices with partitions (in a container: mount -t devtmpfs none /dev)"
fi
free=$(($(df -Pk . | awk 'NR == 2 { print $4 }') / 1024))
[ "$free" -ge 4096 ] || lacks "4096 MiB of free space for build ($free MiB)"

[ -z "$missing" ] || { echo "not ready for the tests and the demo, what is missing: $missing" >&2; exit 1; }
