/* SPDX-License-Identifier: MIT */
/* Looks for the device of a card that was away: it comes back with another name. No path is looked up, except below /sys and /dev. */
#ifndef COWFS_CARD_FIND_H
#define COWFS_CARD_FIND_H

#include "card/blockdev.h"

#define FIND_SKIP 16

/* What is known of the card, and where to look. */
struct find {
	int dev_dirfd, sys_dirfd;
	uint64_t size_bytes, disk_off_bytes; /* of card_geometry */
	char identity[64];		     /* "": none */
	bool loop;			     /* it is a loop device; otherwise none is the card */
	uint64_t skip[FIND_SKIP]; /* numbers of devices that are not; the oldest is forgotten */
	unsigned n_skip;
	/* Is this the card? fd: of the device, to be read with O_DIRECT. 1, 0, -errno. NULL: all are */
	int (*is_it)(const struct find *f, int fd);
};

struct find_result {
	char name[64];	 /* in /dev */
	uint64_t number; /* no other device of this boot has it */
	bool readonly;	 /* it was before it was claimed */
	/* 2: its identity is that of the card, which another reader may not show; 1: it lies at the same place of its disk */
	unsigned likeness;
	/* it cannot be claimed: -EBUSY in use, -EROFS, ...; -ESTALE: it is not the card. Then there are no descriptors */
	int error;
};

/* Takes size, offset, identity and kind of this device. */
int find_init(struct find *f, int fd) MUST_CHECK;
/*
 * The i-th device that may be the card, which it claims; then one of those that are not, which find_skip is for. -ENOENT: there
 * are no more.
 */
int find_next(const struct find *f, unsigned i, struct find_result *ret,
	      int ret_fd[BLOCKDEV_FDS]) MUST_CHECK;
void find_skip(struct find *f, uint64_t number);

#endif
