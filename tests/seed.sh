#!/bin/sh
# SPDX-License-Identifier: MIT
# The number that the generators of all tests begin from: COWFS_SEED, else the first 8 hexadecimal digits of the commit, else 1.
[ -z "${COWFS_SEED-}" ] || { echo "$COWFS_SEED"; exit; }
commit=$(cd "${0%/*}" && git -c safe.directory='*' rev-parse HEAD 2>/dev/null | cut -c 1-8)
echo $((0x${commit:-1}))
