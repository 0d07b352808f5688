/* SPDX-License-Identifier: MIT */
/* A field of statx newer than musl's structure, which has room for it. */
#include_next <sys/stat.h>
#ifndef COWFS_MUSL_SYS_STAT_H
#define COWFS_MUSL_SYS_STAT_H

#include <stddef.h>

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000u
#define stx_mnt_id __pad1[0]
_Static_assert(offsetof(struct statx, stx_mnt_id) == 0x90, "statx");
#endif

#endif
