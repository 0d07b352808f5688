/* SPDX-License-Identifier: MIT */
/* Reads a trace (sim/trace.h). All functions may block; a trace belongs to one thread. */
#ifndef COWFS_TESTS_TRACE_READ_H
#define COWFS_TESTS_TRACE_READ_H

#include "sim/trace.h"

struct flash_trace;

/*
 * path: NAME.trace. why gets the reason: -EBADMSG not a trace of this version, -ENOMEM, or the
 * error of reading. Also opens NAME.data beside it, if it exists.
 */
int flash_trace_open(struct flash_trace **ret, const char *path, char *why,
		     size_t why_bytes) MUST_CHECK;
void flash_trace_close(struct flash_trace *t); /* NULL allowed */
uint64_t flash_trace_volume_bytes(const struct flash_trace *t);
uint64_t flash_trace_records(const struct flash_trace *t);
/*
 * 1 and the next record; 0 at the end; -EBADMSG: an invalid record (time, op, sizes, end of the
 * volume); -EIO
 */
int flash_trace_next(struct flash_trace *t, struct flash_trace_record *ret) MUST_CHECK;
void flash_trace_rewind(struct flash_trace *t);
/*
 * The len_bytes of a write; zeroes if it has no contents. -ENODATA: there is no NAME.data; -EIO:
 * NAME.data ends too early.
 */
int flash_trace_contents(struct flash_trace *t, const struct flash_trace_record *rec,
			 void *buf) MUST_CHECK;

#endif
