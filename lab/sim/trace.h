/* SPDX-License-Identifier: MIT */
/*
 * A trace of the requests that reached a block device: one record for each write, flush and
 * discard, in the order of execution. Little-endian.
 *
 *	NAME.trace   header of 64 bytes, then records of 32; an incomplete last record is ignored
 *	NAME.data    the contents of its writes, one after another; not needed for counts, estimates
 *
 *	header   0  8  "COWTRACE"          record   0  8  time_ns, never less than in the one before
 *	         8  4  version, 1                   8  8  off_bytes, a multiple of 512
 *	        12  4  bytes of a record, 32       16  8  offset of contents in NAME.data; all ones
 *	        16  8  bytes of the volume                none (of a write: zeroes, or not recorded)
 *	        24 40  zero                        24  4  len_bytes, a multiple of 512
 *	                                           28  1  enum flash_trace_op
 *	                                           29  1  flags, enum flash_trace_flags
 *	                                           30  2  zero
 */
#ifndef COWFS_SIM_TRACE_H
#define COWFS_SIM_TRACE_H

#include <limits.h>

#include "base/util.h"

#define FLASH_TRACE_MAGIC "COWTRACE"
#define FLASH_TRACE_MAGIC_BYTES 8
#define FLASH_TRACE_VERSION 1u
#define FLASH_TRACE_HEADER_BYTES 64u
#define FLASH_TRACE_RECORD_BYTES 32u
#define FLASH_TRACE_NO_DATA UINT64_MAX

enum flash_trace_op {
	FLASH_TRACE_WRITE = 1,
	FLASH_TRACE_FLUSH = 2,
	FLASH_TRACE_DISCARD = 3,
	/*
	 * the file system was consistent and its journal empty: a state that an overlay may commit
	 */
	FLASH_TRACE_COMMIT = 4,
	FLASH_TRACE_SYNC = 5, /* all dirty data in memory was written */
};

enum flash_trace_flags { FLASH_TRACE_FUA = 1 }; /* this write is durable without a flush */

struct flash_trace_record {
	uint64_t time_ns, off_bytes, data;
	uint32_t len_bytes; /* 0 except for writes and discards */
	uint8_t op, flags;
};

/* The path of the data: NAME.trace, or any other NAME, gives NAME.data. -ENAMETOOLONG. */
int flash_trace_data_path(const char *path, char ret[PATH_MAX]) MUST_CHECK;

struct flash_trace_writer;

/* Overwrites existing files. contents: create NAME.data, too. */
int flash_trace_create(struct flash_trace_writer **ret, const char *path, uint64_t volume_bytes,
		       bool contents) MUST_CHECK;
/*
 * Sets rec->data: buf NULL, zeroes, or a trace without contents have none. Buffered: the error may
 * come from an earlier call.
 */
int flash_trace_add(struct flash_trace_writer *w, struct flash_trace_record *rec,
		    const void *buf) MUST_CHECK;
/* Writes the buffered data to the files. */
int flash_trace_flush(struct flash_trace_writer *w) MUST_CHECK;
/* The same, and frees w in any case. NULL allowed. */
int flash_trace_finish(struct flash_trace_writer *w) MUST_CHECK;

#endif
