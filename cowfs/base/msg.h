/* SPDX-License-Identifier: MIT */
/*
 * Messages of the programs. Library code returns errors; it calls these functions only for details
 * that the caller does not know (which copy was damaged, which task hangs). Lines go to stderr. In
 * the daemon after its start they go to /dev/kmsg through a descriptor that stays open: no path
 * look-up, no allocation, no syslog. A message is one line, whatever its arguments hold
 * (base/clean.h).
 */
#ifndef COWFS_BASE_MSG_H
#define COWFS_BASE_MSG_H

#include "base/util.h"

enum msg_level { MSG_ERR = 3, MSG_WARN = 4, MSG_NOTICE = 5 };

void msg_set_prog(const char *name); /* printed before each line; not copied */
/* sends later messages to this descriptor (kept, not owned); -1: stderr */
void msg_to_kmsg(int fd);
void msg(enum msg_level level, const char *fmt, ...) PRINTF(2, 3);

/* Puts a sentence into why (n bytes) that explains error, and returns error. */
int msg_why(char *why, size_t n, int error, const char *fmt, ...) PRINTF(4, 5);

#endif
