# shellcheck shell=sh disable=SC1091,SC2034
# SPDX-License-Identifier: MIT
# As cycle, with the root on ublk, whose module the initramfs brings.
# guests: debian13 debian13-initramfs
TRANSPORT=ublk APPEND=cowfs=transport:ublk LIMIT=900
. "$CASES/cycle.sh"
