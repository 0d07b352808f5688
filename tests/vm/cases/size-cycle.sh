# shellcheck shell=sh disable=SC1091
# SPDX-License-Identifier: MIT
# As cycle, with the initramfs that `size` has measured: the two in one, for the short form.
# guests:
# short: debian12 debian13
. "$CASES/size.sh"
. "$CASES/cycle.sh"
