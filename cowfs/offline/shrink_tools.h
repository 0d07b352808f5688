/* SPDX-License-Identifier: MIT */
/* Makes an ext file system smaller with the programs of e2fsprogs, in one atomic step. */
#ifndef COWFS_OFFLINE_SHRINK_TOOLS_H
#define COWFS_OFFLINE_SHRINK_TOOLS_H

#include "offline/offline.h"

/*
 * So that there is room for a log of opt->log_bytes behind it, with the journal that opt wants; an
 * empty log is there afterwards. Needs root, /dev/fuse and a loop device. The process ignores
 * SIGINT, SIGTERM, SIGHUP and SIGPIPE from then on, and PATH has the system's folders only.
 */
int shrink_with_tools(struct offline *f, const struct format_options *opt,
		      struct shrink_report *ret, struct failure *fail) MUST_CHECK;

#endif
