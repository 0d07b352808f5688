# shellcheck shell=sh disable=SC1091,SC2034
# SPDX-License-Identifier: MIT
# As away, with ublk.
# guests: debian13-initramfs-fio debian13-initramfs-kernel-sid-fio
# short:
TRANSPORT=ublk
. "$CASES/away.sh"
APPEND="${APPEND-} cowfs=transport:ublk"
