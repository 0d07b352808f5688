# shellcheck shell=sh disable=SC1091,SC2034
# SPDX-License-Identifier: MIT
# As away, with USB sticks.
# guests: debian12-generic
# short:
. "$CASES/away.sh"
DRIVE=usb DATA_DRIVE=usb
