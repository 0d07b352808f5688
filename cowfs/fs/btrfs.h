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

struct btrfs_ioctl_search_header;
struct btrfs_ioctl_search_key;

/* item: h->len bytes. Not 0 ends the search. */
typedef int btrfs_take(void *ctx, const struct btrfs_ioctl_search_header *h, const uint8_t *item);
/*
 * Calls take for each item between two keys, in ascending order, of the leaves that min_transid or a later transaction
 * wrote; max_offset, max_transid and nr_items are set here. fd: any file of the file system. 0, what take has returned, -errno.
 */
int btrfs_search(int fd, const struct btrfs_ioctl_search_key *what, btrfs_take *take,
		 void *ctx) MUST_CHECK;

/* One state of one file system */
struct btrfs_mark {
	uint8_t uuid[32];
	uint64_t transaction; /* the last one that is complete, without what a log adds */
};

/* Of a disk that nothing has mounted yet. -errno. */
int btrfs_mark_read(struct btrfs_mark *ret, int disk_fd) MUST_CHECK;

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
