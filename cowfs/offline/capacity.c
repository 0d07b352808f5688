/* SPDX-License-Identifier: MIT */
/* How large is a card really? */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/io.h"
#include "base/parse.h"
#include "offline/offline.h"

#define HEAD_BLKS 32u /* these are left alone */
#define SPOTS_MAX 64u
#define SPOT_BLKS 64u	/* distance of a spot from a power of two */
#define WRAPS_MAX 2048u /* blocks that are read for find_wrap */

static size_t spots(uint64_t blks, uint64_t ret[SPOTS_MAX])
{
	size_t n = 0;

	ret[n++] = SPOT_BLKS;
	for (uint64_t p = 2 * SPOT_BLKS; p + SPOT_BLKS < blks && n < SPOTS_MAX / 2; p *= 2)
		ret[n++] = p + SPOT_BLKS;
	for (unsigned i = 1; i < 16; i++)
		ret[n++] = max_u64(HEAD_BLKS, blks / 16 * i + i);
	ret[n++] = blks - 1;
	return n;
}

static uint64_t draw_nonce(void)
{
	uint64_t nonce = now_ns();

	(void)!getrandom(&nonce, sizeof(nonce), GRND_NONBLOCK);
	return nonce;
}

static int put_marks(struct card *c, const uint64_t *spot, size_t n, uint64_t nonce, char *buf)
{
	int r = 0;

	memset(buf, 0, COW_BLK_BYTES);
	for (size_t i = 0; i < n && r == 0; i++) {
		memcpy(buf, (uint64_t[]){ nonce, spot[i] }, 2 * sizeof(nonce));
		r = card_write(c, blk_to_bytes(spot[i]), buf, COW_BLK_BYTES);
	}
	return r == 0 ? card_flush(c) : r;
}

/* 1: it is the block of that spot */
static int has_mark(struct card *c, uint64_t blk, uint64_t nonce, uint64_t spot, char *buf)
{
	int r = card_read(c, blk_to_bytes(blk), buf, COW_BLK_BYTES);

	return r < 0 ? r : !memcmp(buf, (uint64_t[]){ nonce, spot }, 2 * sizeof(nonce));
}

/* *ret: the first spot that has something else, 0: none */
static int find_forgotten(struct card *c, const uint64_t *spot, size_t n, uint64_t nonce, char *buf,
			  uint64_t *ret)
{
	*ret = 0;
	for (size_t i = 0; i < n; i++) {
		int r = has_mark(c, spot[i], nonce, spot[i], buf);

		if (r < 0)
			return r;
		if (!r) {
			*ret = spot[i];
			return 0;
		}
	}
	return 0;
}

int clone_check_size(struct card *to, char *buf, struct failure *fail)
{
	uint64_t spot[SPOTS_MAX], nonce = draw_nonce(), forgotten = 0;
	size_t n = spots(to->geo.size_bytes / COW_BLK_BYTES, spot);
	int r = put_marks(to, spot, n, nonce, buf);

	if (r == 0)
		r = find_forgotten(to, spot, n, nonce, buf, &forgotten);
	if (forgotten)
		return failure(
			fail, -EIO,
			"%s: says that it has %s, but a block at %s does not keep what is written "
			"there. Nothing was copied",
			to->geo.path, FORMAT_SIZE(to->geo.size_bytes),
			FORMAT_SIZE(blk_to_bytes(forgotten)));
	return r < 0 ? failure(fail, r,
			       "%s: %s. It is incomplete; the same command goes on with it",
			       to->geo.path, strerrordesc_np(-r))
		     : 0;
}

/* ---- room that a log will use ---- */

/*
 * A card whose addresses wrap keeps the last block, as another one: that many bytes before it. A controller has a
 * multiple of some mebibytes.
 */
static int find_wrap(struct card *c, uint64_t nonce, uint64_t last, char *buf, uint64_t *ret)
{
	uint64_t step = MIB / COW_BLK_BYTES;
	int r = 0;

	while (last / step > WRAPS_MAX)
		step *= 2;
	*ret = 0;
	for (uint64_t real = step; real < last && r == 0 && !*ret; real += step) {
		r = has_mark(c, last - real, nonce, last, buf);
		*ret = r == 1 ? real : 0;
	}
	return r < 0 ? r : 0;
}

/* Each spot as it was. Where addresses wrap, that is the block in its place. */
static int put_back(struct card *c, const uint64_t *spot, size_t n, const char *was)
{
	int r = 0;

	for (size_t i = n; i-- > 0 && r == 0;)
		r = card_write(c, blk_to_bytes(spot[i]), was + blk_to_bytes(i), COW_BLK_BYTES);
	return r == 0 ? card_flush(c) : r;
}

static int probe(struct card *c, const uint64_t *spot, size_t n, char *was, uint64_t *ret_bad,
		 uint64_t *ret_real)
{
	char *buf = was + blk_to_bytes(n);
	uint64_t nonce = draw_nonce();
	int r = 0, e;

	for (size_t i = 0; i < n && r == 0; i++)
		r = card_read(c, blk_to_bytes(spot[i]), was + blk_to_bytes(i), COW_BLK_BYTES);
	if (r < 0)
		return r;
	r = put_marks(c, spot, n, nonce, buf);
	if (r == 0)
		r = find_forgotten(c, spot, n, nonce, buf, ret_bad);
	if (r == 0 && !*ret_bad)
		r = find_wrap(c, nonce, spot[n - 1], buf, ret_real);
	e = put_back(c, spot, n, was);
	return r < 0 ? r : e;
}

int offline_probe(struct card *c, uint64_t from_bytes, struct failure *fail)
{
	const uint64_t from = from_bytes / COW_BLK_BYTES, end = c->geo.size_bytes / COW_BLK_BYTES;
	/* not where the superblocks of an old log are */
	const uint64_t spot[] = { from + 1, from + (end - from) / 2, end - 2 };
	_cleanup_free_ char *was = io_alloc(blk_to_bytes(ARRAY_SIZE(spot) + 1));
	uint64_t bad = 0, real = 0;
	int r = was ? card_set_writable(c, true) : -ENOMEM;

	if (r == 0)
		r = end - from < 4 ? 0 : probe(c, spot, ARRAY_SIZE(spot), was, &bad, &real);
	r = offline_lock(c, r);
	if (r < 0)
		return failure(fail, r, "%s cannot be written: %s", c->geo.path,
			       strerrordesc_np(-r));
	if (real)
		return failure(
			fail, -EIO,
			"%s: says that it has %s, and has %s: what is written behind that overwrites what lies "
			"before. Nothing was changed. Copy it to another card",
			c->geo.path, FORMAT_SIZE(c->geo.size_bytes),
			FORMAT_SIZE(blk_to_bytes(real)));
	if (bad)
		return failure(
			fail, -EIO,
			"%s: does not keep what is written at %s: it has less room than it says, or is at the end "
			"of its life. Nothing was changed. Copy it to another card",
			c->geo.path, FORMAT_SIZE(blk_to_bytes(bad)));
	return 0;
}

int offline_read_back(struct card *c, const struct log_super *s, struct failure *fail)
{
	struct log_super now;
	unsigned trouble;
	int r = super_read(c, s->external ? 0 : s->fs_bytes, &now, &trouble);

	if (r == 0 && !(trouble & SUPER_COPIES_BAD) && now.revision == s->revision)
		return 0;
	return failure(
		fail, -EIO,
		"%s: does not keep what is written: it has no log now. Copy it to another card",
		c->geo.path);
}
