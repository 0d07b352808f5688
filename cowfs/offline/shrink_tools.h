/* SPDX-License-Identifier: MIT */
/* Makes an ext file system smaller with the programs of e2fsprogs, in one atomic step. */
#ifndef COWFS_OFFLINE_SHRINK_TOOLS_H
#define COWFS_OFFLINE_SHRINK_TOOLS_H

#include "offline/offline.h"

/*
 * Makes room for a log of opt->log_bytes behind the file system, with the journal that opt
 * specifies, and leaves an empty log there. Needs root, /dev/fuse and a loop device. From then on
 * the process ignores SIGINT (unless opt->stop is set), SIGTERM, SIGHUP and SIGPIPE, and PATH has
 * only the system's directories.
 */
int shrink_with_tools(struct offline *f, const struct format_options *opt,
		      struct shrink_report *ret, struct failure *fail) MUST_CHECK;

#endif
