# shellcheck shell=sh disable=SC1091,SC2034
# SPDX-License-Identifier: MIT
# As away, with a root on an SD card, which has the same name each time, and a second card on virtio.
# guests: debian12-generic
# short:
. "$CASES/away.sh"
DRIVE=mmc DISK_MIB=2048 DATA_DRIVE=virtio
