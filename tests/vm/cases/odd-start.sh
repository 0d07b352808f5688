# shellcheck shell=sh disable=SC1091,SC2034
# SPDX-License-Identifier: MIT
# As cycle, with a root partition that starts on an odd sector.
# guests: debian12 debian13 busybox
ROOT_START=393217
case $GUEST in
busybox*) DISK_MIB=224 ROOT_START=131073 ;;
esac
. "$CASES/cycle.sh"
