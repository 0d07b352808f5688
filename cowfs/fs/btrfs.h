/* SPDX-License-Identifier: MIT */
/*
 * Where btrfs places its content. Its files lie in an address space of their own, which FIEMAP
 * reports and which its chunk tree maps to the device. For file systems on one device, with each
 * chunk once or twice (single, DUP). For cowctl, not for the daemon: asks the kernel.
 */
#ifndef COWFS_FS_BTRFS_H
#define COWFS_FS_BTRFS_H

#include <sys/types.h>

#include "base/util.h"

struct btrfs_chunk_place {
	uint64_t logical, len_bytes;
	uint64_t place[2]; /* on the device */
	unsigned copies;
	bool metadata; /* trees only, no file content */
};

struct btrfs_chunks {
	struct btrfs_chunk_place *c; /* ascending by logical */
	size_t n, cap;
};

/* Is the file system of this directory btrfs, and is rdev its only device? */
bool btrfs_lies_on(const char *dir, dev_t rdev);
/*
 * Reads the chunks of a file system on one device. -EOPNOTSUPP: stripes, or copies of another kind;
 * -errno of the search; -ENOMEM.
 */
int btrfs_chunks_read(struct btrfs_chunks *ret, int fd) MUST_CHECK;
void btrfs_chunks_clear(struct btrfs_chunks *x);
/* Calls take with each place on the device of [logical, logical + len_bytes). */
void btrfs_map(const struct btrfs_chunks *x, uint64_t logical, uint64_t len_bytes,
	       void (*take)(void *ctx, uint64_t start_bytes, uint64_t end_bytes), void *ctx);
/* The size on the device of the compressed extent at this address; 0: not known. */
uint64_t btrfs_extent_bytes(int fd, uint64_t logical);

#endif
