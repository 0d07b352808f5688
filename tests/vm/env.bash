# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Where things are, for the programs in this folder.
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${COWFS_BUILD:-$TOP/build}
VM=$BUILD/vm
CACHE=${COWFS_VM_CACHE:-$VM/cache}
export LC_ALL=C.UTF-8
PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || { echo "${0##*/}: needs root (chroot): run it as root" >&2; exit 1; }
mkdir -p "$VM" "$CACHE"
