/* SPDX-License-Identifier: MIT */
/*
 * What is measured: a device, a file, or a model. Every operation returns its duration in
 * nanoseconds, or -errno.
 */
#ifndef COWFS_MEASURE_TARGET_H
#define COWFS_MEASURE_TARGET_H

#include "base/util.h"

struct target;

struct target_ops {
	/* Offsets and lengths are multiples of sector_bytes, buffers of COW_BLK_BYTES (io_alloc). buf NULL:
	 * the content does not matter. A write may leave its data in a volatile cache of the
	 * device. */
	int64_t (*read)(struct target *t, uint64_t off_bytes, void *buf, size_t len_bytes);
	int64_t (*write)(struct target *t, uint64_t off_bytes, const void *buf, size_t len_bytes);
	int64_t (*flush)(struct target *t);
	/* -EOPNOTSUPP: it has none */
	int64_t (*discard)(struct target *t, uint64_t off_bytes, uint64_t len_bytes);
	void (*close)(struct target *t); /* frees t */
};

struct target {
	const struct target_ops *ops;
	uint64_t size_bytes; /* of the device: what may be read */
	/* Only this part is written. Multiples of COW_BLK_BYTES. */
	uint64_t start_bytes, end_bytes;
	/* where the device starts on its disk: units are those of the disk */
	uint64_t disk_off_bytes;
	uint64_t sector_bytes; /* the smallest request */
};

/* Outside of the area a write is refused: -EINVAL. Reads are possible everywhere. */
int64_t target_read(struct target *t, uint64_t off_bytes, void *buf, size_t len_bytes);
int64_t target_write(struct target *t, uint64_t off_bytes, const void *buf, size_t len_bytes);
int64_t target_flush(struct target *t);
int64_t target_discard(struct target *t, uint64_t off_bytes, uint64_t len_bytes);
void target_close(struct target *t); /* NULL allowed */

/*
 * A block device or a file that is open for reading and writing, with O_DIRECT where that is
 * possible. The target owns fd. start_bytes and end_bytes are those of the caller. -ENOTBLK,
 * -ENOMEM, errors of the device.
 */
int target_open_fd(struct target **ret, int fd, uint64_t start_bytes,
		   uint64_t end_bytes) MUST_CHECK;
struct measured_card;
/* From now on writes and flushes go through this card of the same device, which is the caller's
 * and writable: its account has them. */
void target_write_through(struct target *t, struct measured_card *card);

#endif
