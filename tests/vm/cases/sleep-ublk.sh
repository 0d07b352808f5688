# shellcheck shell=sh disable=SC1091,SC2034
# SPDX-License-Identifier: MIT
# As sleep, with ublk.
# guests: debian13-initramfs-fio
TRANSPORT=ublk
. "$CASES/sleep.sh"
