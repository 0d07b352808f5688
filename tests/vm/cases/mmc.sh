# shellcheck shell=sh disable=SC1091,SC2034
# SPDX-License-Identifier: MIT
# As cycle, with the root on an SD card (mmcblk0p2).
# guests: debian12-generic
# a card has a power of two
DRIVE=mmc DISK_MIB=2048
. "$CASES/cycle.sh"
