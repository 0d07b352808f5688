# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# As replace, with ublk, and more kills.
# guests: debian13-initramfs-kernel-sid-fio
TRANSPORT=ublk
. "$CASES/replace.sh"
APPEND="$APPEND cowfs=transport:ublk"
[ -z "$LONG" ] || KILLS=100
