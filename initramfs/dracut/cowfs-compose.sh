#!/bin/sh
# SPDX-License-Identifier: MIT
# dracut without systemd: a mount hook behind the one that mounts the root. If the root is composed, that has mounted only
# the volume of its changes.
. /usr/lib/cowfs/cowfs.sh

! ismounted "${NEWROOT:?}" || cowfs_compose "$NEWROOT" || die "cowfs: there is no root on $COWFS_MOUNT"
