/* SPDX-License-Identifier: MIT */
/* The device, or the temporary file in a directory, that `cowctl measure --tables` measures. */
#ifndef COWFS_MEASURE_BENCH_TARGET_H
#define COWFS_MEASURE_BENCH_TARGET_H

#include <limits.h>

#include "base/util.h"
#include "wire/failure.h"

struct bench_request {
	const char *path;
	/* device: where writes are allowed. len 0: nowhere */
	uint64_t write_off_bytes, write_len_bytes;
	bool write;	     /* device: anywhere */
	bool force;	     /* although it holds a file system or another signature */
	uint64_t size_bytes; /* of the test; 0: the default */
	uint64_t default_bytes, default_file_bytes;
	uint64_t extra_bytes; /* of further files in a directory */
};

struct bench_target {
	const char *path;
	bool is_dir, writes, direct;
	int fd;		       /* owned */
	int dir_fd;	       /* owned; -1: a device */
	uint64_t size_bytes;   /* of the device or file: what may be read */
	uint64_t sector_bytes; /* the smallest request */
	/* the part that is tested, and the only one that is written */
	uint64_t off_bytes, len_bytes;
	uint64_t unit_bytes; /* erase block, as reported or guessed */
	bool unit_guessed;
	char model[128], identity[64], raid[32], fs[32];
	char content[256]; /* what is lost by writing to the device; "": no signature */
};

/*
 * Opens it. A directory gets one file without a name, which is gone when it is closed, whatever
 * ends the program. Nothing was written on failure, and f says why: neither a block device nor a
 * directory, mounted, in use, in a volume, read-only, a signature without force, no room, outside
 * of the device.
 */
int bench_open(const struct bench_request *rq, struct bench_target *ret,
	       struct failure *f) MUST_CHECK;
void bench_close(struct bench_target *t);
/* -EBUSY, and f says who: the device, its disk or a partition of it is below a loop device, which does
 * not open it exclusively, or it is the device of a volume. 0: neither. */
int bench_check_users(const char *path, dev_t dev, struct failure *f) MUST_CHECK;

#endif
