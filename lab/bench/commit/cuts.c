/* SPDX-License-Identifier: MIT */
/*
 * Power cuts within a replay: after every N-th write of cowfs the card is copied, and the power of
 * the copy is cut (each block that was not flushed is there, or not, or torn, or garbage, by a
 * seed). The state that an attach finds is compared with the two allowed images: all blocks that
 * the file system uses, before the commit or with it. The replay itself, and its clock, are not
 * affected.
 */
#include <string.h>

#include "base/io.h"
#include "sim/sim.h"
#include "fs/fsinfo.h"
#include "log/log.h"
#include "replay.h"

enum { COMPARE_BLKS = 256 };

struct image {
	const uint8_t *bytes;
	struct fsmap *map;
};

struct cuts {
	struct card *card;
	uint64_t every, writes, seed, volume_blks;
	struct image before, after;
	uint8_t *buf;
	struct cuts_counts counts;
	/* the card's own callback */
	void (*wrote)(void *ctx, struct card *c, uint64_t off_bytes, size_t len_bytes);
	void *wrote_ctx;
};

static int read_image(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	memcpy(buf, (const uint8_t *)ctx + blk_to_bytes(blk), blk_to_bytes(blks));
	return 0;
}

static struct image image_open(const struct cuts *c, const uint8_t *bytes)
{
	struct blk_reader r = { .read = read_image,
				.ctx = (void *)bytes,
				.volume_blks = c->volume_blks };
	struct image im = { .bytes = bytes };

	if (fsmap_open(&im.map, &r) < 0 || !fsmap_knows(im.map))
		die("cuts: no map of the file system");
	return im;
}

/* First block that the image uses and that reads differently; the number of blocks if there is
 * none. */
static uint64_t differs(struct cuts *c, const struct image *im, const struct log_index *ix,
			struct card *card)
{
	for (uint64_t b = 0, n; b < c->volume_blks; b += n) {
		enum blk_use use;

		if (fsmap_run(im->map, b, min_u64(c->volume_blks - b, COMPARE_BLKS), &use, &n) < 0)
			die("cuts: the map cannot be read");
		if (use != USE_USED)
			continue;
		if (log_index_read_volume(ix, card, b, n, c->buf) < 0)
			return b;
		for (uint64_t i = 0; i < n; i++)
			if (memcmp(c->buf + blk_to_bytes(i), im->bytes + blk_to_bytes(b + i),
				   COW_BLK_BYTES))
				return b + i;
	}
	return c->volume_blks;
}

static void judge(struct cuts *c, struct card *card)
{
	struct log_open_report rep;
	struct log_index *ix;
	struct log_super super;
	unsigned trouble;
	struct log *log;
	uint64_t a, b;

	if (super_read(card, 0, &super, &trouble) < 0 ||
	    log_open(&log, card, card, &super, 0, NULL, &rep) < 0)
		die("cut %llu: the log cannot be opened", (unsigned long long)c->writes);
	ix = log_index_of(log);
	a = rep.state == LOG_BROKEN ? 0 : differs(c, &c->before, ix, card);
	b = rep.state == LOG_BROKEN ? 0 : differs(c, &c->after, ix, card);
	if (a < c->volume_blks && b < c->volume_blks)
		die("cut behind write %llu: neither the state before nor the one after: state %d, block %llu is not the old one, block "
		    "%llu not the new one",
		    (unsigned long long)c->writes, rep.state, (unsigned long long)a,
		    (unsigned long long)b);
	c->counts.cuts++;
	c->counts.found_new += b == c->volume_blks;
	log_index_unref(ix);
	log_close(log);
}

static void wrote(void *ctx, struct card *card, uint64_t off_bytes, size_t len_bytes)
{
	struct cuts *c = ctx;
	struct card *copy;

	if (c->wrote)
		c->wrote(c->wrote_ctx, card, off_bytes, len_bytes);
	if (!len_bytes || !c->after.map || ++c->writes % c->every)
		return;
	if (sim_clone(&copy, card) < 0)
		die("no memory");
	copy->wrote = NULL;
	sim_seed(copy, c->seed + c->writes);
	sim_power_cycle(copy, NULL, NULL);
	judge(c, copy);
	card_close(copy);
}

struct cuts *cuts_new(struct card *card, uint64_t volume_bytes, uint64_t every)
{
	struct cuts *c = calloc(1, sizeof(*c));

	if (!c || !(c->buf = io_alloc(COMPARE_BLKS * COW_BLK_BYTES)))
		die("no memory");
	c->card = card;
	c->every = every;
	c->volume_blks = volume_bytes >> COW_BLK_SHIFT;
	c->wrote = card->wrote;
	c->wrote_ctx = card->wrote_ctx;
	card->wrote = wrote;
	card->wrote_ctx = c;
	return c;
}

void cuts_begin(struct cuts *c, const uint8_t *before, const uint8_t *after)
{
	c->before = image_open(c, before);
	c->after = image_open(c, after);
}

void cuts_end(struct cuts *c)
{
	fsmap_close(c->before.map);
	fsmap_close(c->after.map);
	c->before = c->after = (struct image){ 0 };
}

struct cuts_counts cuts_free(struct cuts *c)
{
	struct cuts_counts counts = c->counts;

	c->card->wrote = c->wrote;
	c->card->wrote_ctx = c->wrote_ctx;
	free(c->buf);
	free(c);
	return counts;
}
