/* SPDX-License-Identifier: MIT */
/*
 * Messages of the programs. Library code returns errors; it calls these only
 * for what the caller cannot say (which copy was damaged, which task hangs).
 * Lines go to stderr, or, in the daemon after start, to /dev/kmsg through a
 * descriptor that is kept open: no path look-up, no allocation, no syslog.
 * A message is one line, whatever its arguments hold (base/clean.h).
 */
#ifndef COWFS_BASE_MSG_H
#define COWFS_BASE_MSG_H

#include "base/util.h"

enum msg_level { MSG_ERR = 3, MSG_WARN = 4, MSG_NOTICE = 5, MSG_INFO = 6, MSG_DEBUG = 7 };

void msg_set_prog(const char *name);	/* shown before each line; not copied */
void msg_set_level(enum msg_level max); /* default MSG_NOTICE */
/* from now on to this descriptor (kept, not owned); -1: stderr */
void msg_to_kmsg(int fd);
void msg(enum msg_level level, const char *fmt, ...) PRINTF(2, 3);

/* Keeps the newest error and warning text of this process for the status: copies into buf. */
void msg_last_alarm(char *buf, size_t size_bytes);

#endif
