/* SPDX-License-Identifier: MIT */
/*
 * A card: the block device below. One small vtable with two implementations,
 * the kernel's block device (blockdev.h) and the simulator (sim.h), and the
 * account of everything that cowfs itself did to it.
 *
 * Offsets and lengths are multiples of COW_BLK_BYTES and buffers are aligned to
 * it (io_alloc); anything else is -EINVAL, before the device is touched.
 * card_read may be called by any number of threads at once. Everything that
 * writes belongs to one thread (the commit thread). All calls may block; none
 * allocates. Errors are -errno, -EIO for all that a medium can suffer (the
 * kernel has -ENODATA, -EREMOTEIO and others for it); after a failed write or flush nothing is
 * known about any write since the last good flush (see commit/). Once a rule is broken
 * (base/invariant.h) nothing is written any more: -ENOTRECOVERABLE.
 */
#ifndef COWFS_CARD_CARD_H
#define COWFS_CARD_CARD_H

#include <stdatomic.h>

#include "base/util.h"

enum card_eb_source {
	CARD_EB_GUESSED = 0,  /* nothing known: 4 MiB */
	CARD_EB_REPORTED = 1, /* sysfs of the device */
	CARD_EB_CONFIGURED = 2,
};

struct card_geometry {
	uint64_t size_bytes; /* rounded down to COW_BLK_BYTES */
	/* where this partition starts on its disk; 0 for a whole disk */
	uint64_t disk_off_bytes;
	uint32_t erase_block_bytes; /* any multiple of COW_BLK_BYTES, not only powers of two */
	enum card_eb_source eb_source;
	/* CID, serial or name as the device tells; "" if it tells none */
	char identity[64];
	char path[128]; /* for messages */
};

/* What cowfs did, since open. Written by the commit thread, read by any. */
struct card_account {
	_Atomic uint64_t write_calls, written_bytes;
	_Atomic uint64_t read_calls, read_bytes;
	_Atomic uint64_t flushes;
	_Atomic uint64_t writable_ns; /* time between set_writable(true) and (false) */
};

/* What the kernel counted for this device (/sys/block/.../stat) since it appeared. Compare bytes:
 * write_ios counts flushes too, splits and merges; flushes of a partition count for its disk. */
struct card_counters {
	uint64_t write_ios, written_bytes, discard_ios, discarded_bytes, flushes;
};

struct card;

struct card_ops {
	int (*read)(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes);
	int (*write)(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes);
	/* all writes so far are durable on return */
	int (*flush)(struct card *c);
	int (*set_writable)(struct card *c, bool writable);
	int (*counters)(struct card *c, struct card_counters *ret); /* -ENOTSUP: device has none */
	int (*async_fd)(struct card *c);			    /* may be NULL: -ENOTSUP */
	void (*close)(struct card *c);				    /* frees c */
};

struct card {
	const struct card_ops *ops;
	struct card_geometry geo;
	struct card_account account;
	bool writable;
	uint64_t writable_since_ns;
	/* Of the writing thread: writes issued; how many of them a good FLUSH followed. */
	uint64_t writes, durable_writes;
	/* NULL, or told of each write when it is accounted for, and with len_bytes 0 that the card
	 * has been set writable */
	void (*wrote)(void *ctx, struct card *c, uint64_t off_bytes, size_t len_bytes);
	void *wrote_ctx;
};

int card_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes) MUST_CHECK;
/* -EROFS unless set writable before */
int card_write(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes) MUST_CHECK;
int card_flush(struct card *c) MUST_CHECK;
int card_set_writable(struct card *c, bool writable) MUST_CHECK;
int card_counters(struct card *c, struct card_counters *ret) MUST_CHECK;
void card_close(struct card *c); /* NULL allowed */
/* Did a good FLUSH follow all that was written until c->writes was `mark`? */
static inline bool card_is_durable(const struct card *c, uint64_t mark)
{
	return c->durable_writes >= mark;
}

/* ---- for card/async.c */
/* the card's, for direct reads; -ENOTSUP: it has none */
int card_async_fd(struct card *c) MUST_CHECK;
/* Checks a range as card_read does (-EINVAL), and counts the read. */
int card_account_read(struct card *c, uint64_t off_bytes, const void *buf,
		      size_t len_bytes) MUST_CHECK;
int card_error(int r); /* -EIO for all that a medium can suffer */

#endif
