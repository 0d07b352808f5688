# shellcheck shell=sh disable=SC1091,SC2034
# SPDX-License-Identifier: MIT
# As cycle, with the root on xfs: everything goes through the log.
# guests: debian12 debian13
ROOT_FS=xfs LOG_MIB=320 DISK_MIB=2048
. "$CASES/cycle.sh"
