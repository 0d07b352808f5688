# shellcheck shell=sh disable=SC1091,SC2034
# SPDX-License-Identifier: MIT
# As cycle, but the disk's own boot loader starts kernel and initramfs from its /boot.
# guests: debian12 debian13 busybox
LOADER=1
. "$CASES/cycle.sh"
