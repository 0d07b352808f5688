/* SPDX-License-Identifier: MIT */
/*
 * A card: the block device below. It is one small vtable with two implementations, the kernel's
 * block device (blockdev.h) and the simulator (sim.h), and the account of everything that cowfs
 * itself did to the card.
 *
 * Offsets and lengths are multiples of COW_BLK_BYTES, and buffers are aligned to it (io_alloc).
 * Anything else is -EINVAL, before the device is accessed. Any number of threads may call card_read
 * at once. All writing calls belong to one thread (the commit thread). All calls may block; none
 * allocates. Errors are -errno. All errors of a medium are -EIO (the kernel also uses -ENODATA,
 * -EREMOTEIO and others for them). After a failed write or flush the state of every write since the
 * last good flush is unknown (see commit/). Once a rule is broken (base/invariant.h) nothing is
 * written any more: -ENOTRECOVERABLE.
 *
 * A card is away if its device is gone: pulled, or reset, so that it comes back as another device.
 * Whoever finds that makes it so for all threads. Then each call is -ENOMEDIUM, and does not reach the
 * device, until card_back; or -EIO, after card_give_up. docs/design/away.md.
 */
#ifndef COWFS_CARD_CARD_H
#define COWFS_CARD_CARD_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/util.h"

enum card_eb_source {
	CARD_EB_GUESSED = 0,  /* unknown: 4 MiB */
	CARD_EB_REPORTED = 1, /* sysfs of the device */
	CARD_EB_CONFIGURED = 2,
};

struct card_geometry {
	uint64_t size_bytes; /* rounded down to COW_BLK_BYTES */
	/* where this partition starts on its disk; 0 for a whole disk */
	uint64_t disk_off_bytes;
	uint32_t erase_block_bytes; /* any multiple of COW_BLK_BYTES, not only powers of two */
	enum card_eb_source eb_source;
	/* of discards, counted from the start of the disk; 0: the device announces none, or it is known
	 * to lose data by them */
	uint64_t discard_bytes;
	/* CID, serial or name that the device reports; "" if none */
	char identity[64];
	char path[128]; /* for messages */
};

/* I/O of cowfs since open. The commit thread writes it; any thread may read it. */
struct card_account {
	_Atomic uint64_t write_calls, written_bytes;
	_Atomic uint64_t read_calls, read_bytes;
	_Atomic uint64_t flushes;
	_Atomic uint64_t discarded_bytes;
	_Atomic uint64_t retried; /* reads and writes that failed with -EIO and were made again */
	_Atomic uint64_t writable_ns; /* time between set_writable(true) and (false) */
};

/* The kernel's counters of this device (/sys/block/.../stat) since it appeared. Compare bytes:
 * write_ios also counts flushes, splits and merges; flushes of a partition count for its disk. */
struct card_counters {
	uint64_t read_ios, write_ios, written_bytes, discard_ios, discarded_bytes, flushes;
};

struct card;

struct card_ops {
	int (*read)(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes);
	int (*write)(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes);
	/* all writes so far are durable on return */
	int (*flush)(struct card *c);
	int (*set_writable)(struct card *c, bool writable);
	/* -ENOTSUP: the device has none */
	int (*counters)(struct card *c, struct card_counters *ret);
	int (*async_fd)(struct card *c); /* may be NULL: -ENOTSUP */
	/* may be NULL: -EOPNOTSUPP */
	int (*discard)(struct card *c, uint64_t off_bytes, uint64_t len_bytes);
	/* may be NULL: never. Is the device gone? */
	bool (*gone)(struct card *c);
	/* may be NULL: always. Can its first block be read? Only asked after an error. */
	bool (*answers)(struct card *c);
	void (*close)(struct card *c); /* frees c */
};

struct card {
	const struct card_ops *ops;
	struct card_geometry geo;
	struct card_account account;
	bool writable;
	/* of a daemon: a read or write that fails with -EIO is tried again, for up to a third of a second a block, and
	 * behind an error the device is asked whether it is about to go */
	bool retries;
	uint64_t writable_since_ns;
	_Atomic uint64_t away_ns; /* since when it is away (now_ns); 0: it is there */
	_Atomic bool given_up;
	_Atomic uint64_t waited_ns;	/* when it last neither answered nor went away */
	_Atomic unsigned inside;	/* calls and asynchronous reads that are in the device */
	_Atomic(const void *) examiner; /* card_examine: a thread; NULL: none */
	/* Of the writing thread: writes issued, and how many of them precede a good FLUSH. */
	uint64_t writes, durable_writes;
	/* NULL, or called ahead of each write, which waits for its return. It may read the card. */
	void (*before_write)(void *ctx, struct card *c, uint64_t off_bytes, size_t len_bytes);
	void *before_write_ctx;
	/* card_show: the end of the block on the card, and what is read there; 0: none */
	_Atomic uint64_t shown_end_bytes;
	uint8_t *shown;
	pthread_mutex_t shown_lock; /* of both; all zero is unlocked */
	/* NULL, or called for each write once it is accounted for. Also called with len_bytes 0
	 * after the card was set writable. */
	void (*wrote)(void *ctx, struct card *c, uint64_t off_bytes, size_t len_bytes);
	void *wrote_ctx;
};

int card_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes) MUST_CHECK;
/*
 * From now on card_read gives this for the block at off_bytes, whatever the card has there, and of any
 * other block what the card has; NULL: of all. Calls before_write if what is shown there changes. Of
 * the writing thread. -ENOMEM.
 */
int card_show(struct card *c, uint64_t off_bytes, const void *blk) MUST_CHECK;
/* card_read without card_show: what the card has. */
int card_read_bare(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes) MUST_CHECK;
/* -EROFS unless the card was set writable before */
int card_write(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes) MUST_CHECK;
int card_flush(struct card *c) MUST_CHECK;
/*
 * The card need not keep this range any more: from now on each read of it may return anything, until it
 * is written. Any multiple of a sector. Nothing is saved for views (before_write). -EROFS unless the
 * card was set writable before; -EOPNOTSUPP.
 */
int card_discard(struct card *c, uint64_t off_bytes, uint64_t len_bytes) MUST_CHECK;
int card_set_writable(struct card *c, bool writable) MUST_CHECK;
int card_counters(struct card *c, struct card_counters *ret) MUST_CHECK;
void card_close(struct card *c); /* NULL allowed */
/* Does a read of these bytes get what card_show has? */
static inline bool card_shows(const struct card *c, uint64_t off_bytes, size_t len_bytes)
{
	uint64_t end_bytes = atomic_load(&c->shown_end_bytes);

	return end_bytes > off_bytes && end_bytes <= off_bytes + len_bytes;
}
/* Did a good FLUSH follow all writes up to the moment when c->writes was `mark`? */
static inline bool card_is_durable(const struct card *c, uint64_t mark)
{
	return c->durable_writes >= mark;
}

/* ---- a card that is away */
static inline bool card_is_away(const struct card *c)
{
	return atomic_load(&c->away_ns) != 0;
}
/* card_is_away, of a card that nobody has used for a while. Any thread. */
bool card_look(struct card *c);
/* The device itself, for the thread that examines. */
static inline bool card_device_gone(struct card *c)
{
	return c->ops->gone && c->ops->gone(c);
}
/* on: waits until no call is in the device. From then on the calls of this thread reach it, and those of
 * others do not, so it can put another device in its place and read that. Of a card that is away. */
void card_examine(struct card *c, bool on);
/* The device in its place is the card. What was not flushed may be lost. */
void card_back(struct card *c);
void card_give_up(struct card *c);
/* After an operation that returned r: has the device gone, or is it about to? Then that is why. 1.27 s at most. */
bool card_lost(struct card *c, int r);
/* The same of a volume's two, which may be one or NULL: which of them, or NULL. */
struct card *card_which_lost(struct card *base, struct card *log_card, int r);
/* Of such a card: its path, what is on it now. */
#define CARD_LOST                                                                                  \
	"%s: the card is away: it was pulled out, or has reset. %s. Plug it in, and run the same command again"

/* -EROFS: its path */
#define CARD_LOCKED "%s is write-protected: move the lock tab of the card, or of its adapter"

/* ---- for card/async.c */
/* Around each call of the device: 0, or the error of a card that is away. r: of the call; what to return. A card that is about to
 * go is -EIO: card_leave does not wait, and a call that reads again does. */
int card_enter(struct card *c) MUST_CHECK;
int card_leave(struct card *c, int r) MUST_CHECK;
/* the card's descriptor for direct reads; -ENOTSUP: none */
int card_async_fd(struct card *c) MUST_CHECK;
/* -EINVAL as card_read has it, and of no byte. */
int card_check_read(const struct card *c, uint64_t off_bytes, const void *buf,
		    size_t len_bytes) MUST_CHECK;
/* Of a read that has reached the device. */
void card_account_read(struct card *c, size_t len_bytes);

#endif
