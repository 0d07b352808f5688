# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# As cut-shutdown, but the power goes around a commit of the running system, as a timer makes it.
# guests: debian12 debian13 busybox busybox-squashfs debian12-arm64 debian13-arm64 busybox-arm64 busybox-armhf
# guests: debian12-luks debian13-luks debian12-lvm debian13-lvm debian12-md debian13-md
# short:
. "$CASES/cut-shutdown.sh"

cut_moment() {
	END=none
	cowctl uninhibit root
	must cowctl commit root --timer
	must cowctl commit root --checkpoint
	verdict ok
	sync
	reboot -ff 2>/dev/null || reboot -f
}
