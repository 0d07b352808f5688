/* SPDX-License-Identifier: MIT */
/*
 * Kept paths: keep= of cowfs.conf. `cowctl commit --kept` commits them alone, by timer, and before
 * everything else is discarded. What it did last is in a file of the run directory.
 */
#ifndef COWFS_ATTACH_KEEP_H
#define COWFS_ATTACH_KEEP_H

#include <limits.h>

#include "base/util.h"

struct keep_state {
	uint64_t last_s;	   /* all paths were committed; 0: never in this session */
	char mountpoint[PATH_MAX]; /* at that time; "": not known */
	char error[256];	   /* of the last attempt, "" if there was none */
};

/* Of the last `cowctl commit --kept` of a volume; zeroes if there is none. */
void keep_read(const char *volume, struct keep_state *ret);
void keep_write(const char *volume, const struct keep_state *s);

/*
 * Before the changes of a volume are discarded: runs `cowctl commit --kept`, if paths are configured and the
 * discard is armed. Its messages go to stderr. False: something was not kept.
 */
bool keep_before_discard(const char *volume);

#endif
