/* SPDX-License-Identifier: MIT */
/*
 * A trace: what reached a block device, one record for each write, flush and discard, in the order
 * in which they were done. Little-endian.
 *
 * 	NAME.trace   header of 64 bytes, then records of 32; a part of a record at the end does not count
 * 	NAME.data    the contents of its writes, one after another; not needed by who counts and prices
 *
 * 	header   0  8  "COWTRACE"          record   0  8  time_ns, never less than in the record before
 * 	         8  4  version, 1                   8  8  off_bytes, a multiple of 512
 * 	        12  4  bytes of a record, 32       16  8  where its contents are in NAME.data; all ones: nowhere
 * 	        16  8  bytes of the volume                (of a write: zeroes, or not recorded)
 * 	        24 40  zero                        24  4  len_bytes, a multiple of 512
 * 	                                           28  1  enum flash_trace_op
 * 	                                           29  1  flags, enum flash_trace_flags
 * 	                                           30  2  zero
 */
#ifndef COWFS_SIM_TRACE_H
#define COWFS_SIM_TRACE_H

#include "base/util.h"

#define FLASH_TRACE_VERSION 1u
#define FLASH_TRACE_HEADER_BYTES 64u
#define FLASH_TRACE_RECORD_BYTES 32u
#define FLASH_TRACE_NO_DATA UINT64_MAX

enum flash_trace_op {
	FLASH_TRACE_WRITE = 1,
	FLASH_TRACE_FLUSH = 2,
	FLASH_TRACE_DISCARD = 3,
	/* the file system was consistent and its journal empty: what an overlay may keep */
	FLASH_TRACE_COMMIT = 4,
	FLASH_TRACE_SYNC = 5, /* all that was dirty in memory has been written */
};

enum flash_trace_flags { FLASH_TRACE_FUA = 1 }; /* a write that is durable by itself */

struct flash_trace_record {
	uint64_t time_ns, off_bytes, data;
	uint32_t len_bytes; /* 0 but for writes and discards */
	uint8_t op, flags;
};

/* ---- reading. All may block; a trace belongs to one thread. */

struct flash_trace;

/* path: NAME.trace. What is wrong goes into why: -EBADMSG no trace of this version, -ENOMEM, or
 * what reading gives. A NAME.data beside it is opened as well, if there is one. */
int flash_trace_open(struct flash_trace **ret, const char *path, char *why,
		     size_t why_bytes) MUST_CHECK;
void flash_trace_close(struct flash_trace *t); /* NULL allowed */
uint64_t flash_trace_volume_bytes(const struct flash_trace *t);
uint64_t flash_trace_records(const struct flash_trace *t);
/* 1 and the next record; 0 at the end; -EBADMSG: not a record as above (time, op, sizes, end of the
 * volume); -EIO */
int flash_trace_next(struct flash_trace *t, struct flash_trace_record *ret) MUST_CHECK;
void flash_trace_rewind(struct flash_trace *t);
/* len_bytes of a write; zeroes if it has none. -ENODATA: there is no NAME.data; -EIO: that ends
 * before. */
int flash_trace_contents(struct flash_trace *t, const struct flash_trace_record *rec,
			 void *buf) MUST_CHECK;

/* ---- writing */

struct flash_trace_writer;

/* Files that exist are written anew. contents: NAME.data, too. */
int flash_trace_create(struct flash_trace_writer **ret, const char *path, uint64_t volume_bytes,
		       bool contents) MUST_CHECK;
/* rec->data is set here: buf NULL, zeroes, or a trace without contents have none. Buffered: an
 * error may be an older one's. */
int flash_trace_add(struct flash_trace_writer *w, struct flash_trace_record *rec,
		    const void *buf) MUST_CHECK;
/* What is buffered goes into the files. */
int flash_trace_flush(struct flash_trace_writer *w) MUST_CHECK;
/* The same, and frees w whatever comes out. NULL allowed. */
int flash_trace_finish(struct flash_trace_writer *w) MUST_CHECK;

#endif
