/* SPDX-License-Identifier: MIT */
#include "ram/packer.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#define LEVEL 1

struct packer {
	size_t page_bytes; /* of the store */
	ZSTD_CCtx *c;
	struct pack_work work;
	pthread_mutex_t lock; /* of what follows; held for one group */
	ZSTD_DCtx *d;
	struct pack in;
	uint8_t out[PACK_GROUP_BYTES];
};

/* The first frame of a size allocates what all of them need, and a smaller one may need more. */
static bool allocate(struct packer *p)
{
	for (size_t blks = PACK_GROUP_BLKS; blks; blks--)
		if (ZSTD_isError(ZSTD_compressCCtx(p->c, p->in.frame, sizeof(p->in.frame), p->out,
						   blk_to_bytes(blks), LEVEL)))
			return false;
	return true;
}

int packer_new(struct packer **ret)
{
	struct packer *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	pthread_mutex_init(&p->lock, NULL);
	p->c = ZSTD_createCCtx();
	p->d = ZSTD_createDCtx();
	if (!p->c || !p->d || !allocate(p)) {
		packer_free(p);
		return -ENOMEM;
	}
	*ret = p;
	return 0;
}

void packer_free(struct packer *p)
{
	if (!p)
		return;
	ZSTD_freeCCtx(p->c);
	ZSTD_freeDCtx(p->d);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

struct pack_work *packer_work(struct packer *p)
{
	return &p->work;
}

bool packer_pack(struct packer *p, const void *blocks, uint8_t mask, struct pack *ret,
		 size_t *ret_bytes)
{
	size_t bytes = blk_to_bytes((uint64_t)__builtin_popcount(mask)), room, n;

	room = round_up_u64(bytes, p->page_bytes);
	if (room <= p->page_bytes || room > sizeof(*ret))
		return false;
	room -= p->page_bytes + sizeof(ret->head);
	n = ZSTD_compressCCtx(p->c, ret->frame, room, blocks, bytes, LEVEL);
	if (ZSTD_isError(n))
		return false;
	ret->head = (struct pack_head){ .frame_bytes = (uint32_t)n, .mask = mask };
	*ret_bytes = round_up_u64(sizeof(ret->head) + n, COW_BLK_BYTES);
	memset(ret->frame + n, 0, *ret_bytes - sizeof(ret->head) - n);
	return true;
}

/* Lock held. The blocks of the frame are in p->out. */
static int unpack(struct packer *p,
		  int (*read)(const void *ctx, void *buf, size_t off_bytes, size_t len_bytes),
		  const void *ctx)
{
	const struct pack_head *head = &p->in.head;
	/* nearly half of all packs are not longer */
	size_t first = 2 * COW_BLK_BYTES, bytes;
	int r = read(ctx, &p->in, 0, first);

	if (r < 0)
		return r;
	bytes = sizeof(*head) + head->frame_bytes;
	if (head->frame_bytes > sizeof(p->in.frame))
		return -EIO;
	if (bytes > first)
		r = read(ctx, (uint8_t *)&p->in + first, first, bytes - first);
	if (r < 0)
		return r;
	bytes = ZSTD_decompressDCtx(p->d, p->out, sizeof(p->out), p->in.frame, head->frame_bytes);
	return bytes == blk_to_bytes((uint64_t)__builtin_popcount(head->mask)) ? 0 : -EIO;
}

int packer_read(struct packer *p,
		int (*read)(const void *ctx, void *buf, size_t off_bytes, size_t len_bytes),
		const void *ctx, size_t off_bytes, void *to, size_t len_bytes)
{
	unsigned first = (unsigned)(off_bytes >> COW_BLK_SHIFT),
		 last = (unsigned)((off_bytes + len_bytes - 1) >> COW_BLK_SHIFT);
	unsigned wanted = (2u << last) - (1u << first);
	int r;

	pthread_mutex_lock(&p->lock);
	r = unpack(p, read, ctx);
	if (r == 0 && (p->in.head.mask & wanted) != wanted)
		r = -EIO;
	if (r == 0) {
		size_t skip = (size_t)__builtin_popcount(p->in.head.mask & ((1u << first) - 1));

		memcpy(to, p->out + blk_to_bytes(skip) + off_bytes % COW_BLK_BYTES, len_bytes);
	}
	pthread_mutex_unlock(&p->lock);
	return r;
}
