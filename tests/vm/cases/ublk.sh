# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# As cycle, with the root on ublk, whose module the initramfs brings.
# guests: debian13 debian13-initramfs
APPEND=cowfs=transport:ublk LIMIT=900
. "$CASES/cycle.sh"

protected() {
	case $(root_device) in
	/dev/ublkb* | /dev/cowfs/*) ;;
	*) return 1 ;;
	esac
	is "transport" "$(cowctl status root --json | sed -n 's/.*"transport":"\([^"]*\)".*/\1/p')" ublk
	[ "$(cat /run/cowfs/root.state 2>/dev/null)" = on ]
}
