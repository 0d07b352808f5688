/* SPDX-License-Identifier: MIT */
/*
 * What a volume is: /run/cowfs/NAME/facts. Root writes it before a worker reads a byte of the card, and the broker after
 * that; no worker can. A client takes nothing else for a device, a disk or a path. What a worker says about them is
 * replaced by this (decode.h).
 */
#ifndef COWFS_WIRE_FACTS_H
#define COWFS_WIRE_FACTS_H

#include <sys/types.h>

#include "wire/rundir.h"

enum fact {
	FACT_DEVICE,
	FACT_LOG_DEVICE, /* "": on the device */
	FACT_LOOP,	 /* the disk; "": there is none */
	FACT_DEVICES,
	FACT_NAME = FACT_DEVICES,
	FACT_MOUNTPOINT, /* where this process sees the disk mounted, or pid 1 */
	FACT_LOWER,	 /* of the composed root */
	FACT_N
};

/* The names of them in JSON; those of devices also in the file, a line each: NAME MAJOR:MINOR BYTES PATH. */
extern const char *const fact_names[FACT_N];

struct facts {
	pid_t supervisor; /* in the first line; 0: not known */
	struct fact_device {
		dev_t rdev;	/* 0: none */
		uint64_t bytes; /* 0: not known */
		char path[256];
	} device[FACT_DEVICES];
};

/* path: of a block device; NULL: none. */
void facts_set(struct facts *f, enum fact which, const char *path, dev_t rdev, uint64_t bytes);
int facts_write(const struct rundir *d, const struct facts *f) MUST_CHECK;
/*
 * Reads those of a volume. Its disk counts only while its file has the volume's name, as the number may belong to another
 * program now, or if it is what a dead daemon has left. -ENOENT: there is no such file, the daemon is of 0.1.0.
 */
int facts_read(int run_fd, const char *name, bool left, struct facts *ret) MUST_CHECK;
/* Is this the path of that device? */
bool facts_is(const struct fact_device *d, const char *path);

#endif
