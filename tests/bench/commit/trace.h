/* SPDX-License-Identifier: MIT */
/*
 * A recorded trace of a volume: what a file system wrote, when, and with what content. Little-endian.
 *
 *	NAME.trace	a header of 64 bytes, then records of 32 bytes to the end of the file
 *	NAME.data	contents, nothing else
 *	NAME.base	the volume before the first record, a sparse image
 *
 * Header: "COWTRACE", u32 version 1, u32 record bytes 32, u64 volume bytes, zeroes.
 * Record: u64 time_ns (virtual, never decreasing), u64 off_bytes, u64 place in NAME.data (TRACE_ZEROES: none), u32 len_bytes,
 * u8 op, u8 flags, u16 0. Records stand in the order in which requests were completed: a flush covers all before it. Offset 0 is at
 * the start of an erase block.
 */
#ifndef COWFS_TESTS_BENCH_TRACE_H
#define COWFS_TESTS_BENCH_TRACE_H

#include <stdint.h>

#define TRACE_MAGIC "COWTRACE"
#define TRACE_ZEROES UINT64_MAX

enum { TRACE_VERSION = 1, TRACE_HEADER_BYTES = 64, TRACE_RECORD_BYTES = 32 };

enum trace_op {
	TRACE_WRITE = 1,
	TRACE_FLUSH = 2,
	TRACE_DISCARD = 3,
	TRACE_COMMIT = 4, /* frozen or unmounted: consistent, the journal empty; the last record is one */
	TRACE_SYNC = 5,	  /* all that was dirty in RAM is on the volume */
};

#endif
