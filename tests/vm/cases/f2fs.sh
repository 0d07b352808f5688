# shellcheck shell=sh disable=SC1091,SC2034
# SPDX-License-Identifier: MIT
# As cycle, with the root on f2fs: everything goes through the log.
# guests: debian12-generic
ROOT_FS=f2fs LOG_MIB=320 DISK_MIB=2048
. "$CASES/cycle.sh"
