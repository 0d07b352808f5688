/* SPDX-License-Identifier: MIT */
/* Compression by libzstd, with memory that is allocated once. One thread makes packs, any thread reads them: it waits
 * for another reader, which takes about 0.1 ms. */
#ifndef COWFS_RAM_PACKER_H
#define COWFS_RAM_PACKER_H

#include "base/util.h"

/* Blocks that are compressed together: most of the gain of larger groups, at a quarter of the time
 * that a read of one block takes with them. */
#define PACK_GROUP_BLKS 8u
#define PACK_GROUP_BYTES ((size_t)PACK_GROUP_BLKS * COW_BLK_BYTES)

/* What stands in the store in place of a group's blocks: this head, then a frame of zstd. */
struct pack_head {
	uint32_t frame_bytes;
	uint8_t mask; /* bit i: block i of the group is in the frame */
	uint8_t zero[3];
};

/* Head and frame. */
struct pack {
	struct pack_head head;
	uint8_t frame[PACK_GROUP_BYTES - sizeof(struct pack_head)];
};
_Static_assert(sizeof(struct pack) == PACK_GROUP_BYTES, "as large as the group");

struct packer;

/* Of the thread that makes packs, whose stack may be small (128 KiB by default with musl). */
struct pack_work {
	uint8_t blocks[PACK_GROUP_BYTES];
	struct pack pack;
};

int packer_new(struct packer **ret) MUST_CHECK; /* -ENOMEM */
void packer_free(struct packer *p);		/* NULL allowed */
struct pack_work *packer_work(struct packer *p);

/*
 * Compresses the blocks of mask, which follow one another in `blocks`. True: head and frame are in
 * *ret and take at least one page less than the blocks; the rest of that page is zero. *ret_bytes:
 * their size, whole pages.
 */
bool packer_pack(struct packer *p, const void *blocks, uint8_t mask, struct pack *ret,
		 size_t *ret_bytes) MUST_CHECK;

/*
 * Copies len_bytes from off_bytes on, relative to the group, of blocks that are in the frame.
 * read(ctx, buf, off_bytes, len_bytes) reads the pack. Passes on its errors; -EIO: damaged.
 */
int packer_read(struct packer *p,
		int (*read)(const void *ctx, void *buf, size_t off_bytes, size_t len_bytes),
		const void *ctx, size_t off_bytes, void *to, size_t len_bytes) MUST_CHECK;

#endif
