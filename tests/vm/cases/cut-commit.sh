# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# As cut-shutdown, but the power goes around commits of the running system under load, as a timer makes them.
# guests: debian12 debian13 busybox busybox-kernel-bullseye busybox-kernel-trixie busybox-squashfs debian12-arm64 debian13-arm64
# guests: busybox-arm64 busybox-armhf debian12-luks debian13-luks debian12-lvm debian13-lvm debian12-md debian13-md
# short:
. "$CASES/cut-shutdown.sh"

load() {
	mkdir -p /srv/load
	n=0
	while :; do
		n=$(((n + 1) % 20))
		dd if=/dev/urandom of=/srv/load/$n.new bs=1k count=$((n * 7 + 1)) conv=fsync 2>/dev/null
		mv /srv/load/$n.new /srv/load/$n
		dd if=/dev/urandom of=/srv/load/$n bs=1k seek=3 count=5 conv=notrunc 2>/dev/null
		rm -f /srv/load/$(((n + 10) % 20))
	done
}

cut_moment() {
	END=none
	cowctl uninhibit root
	load &
	must cowctl commit root --timer
	must cowctl commit root --checkpoint
	kill $!
	verdict ok
	sync
	reboot -ff 2>/dev/null || reboot -f
}
