/* SPDX-License-Identifier: MIT */
/*
 * Reads all used blocks of a card, beside whatever else uses it, and verifies what the log holds
 * (docs/design/scrub.md).
 *
 * - It reads the device itself. A view that lasted as long would keep old blocks in RAM, and delay checkpoints.
 * - No read is urgent: requests are small, and followed by rests.
 * - A card that has gone fails at each read, which is not a bad block: after an error, blocks that were read before are
 *   read again.
 */
#include "offline/offline.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/boxed.h"
#include "base/io.h"
#include "card/blockdev.h"

#define REQUEST_BLKS 32u
#define WINDOW_NS 1000000ull /* in which other I/O shows: at least this long */
#define BUSY_WINDOW_NS 50000000ull
#define BUSY_NS 1000000000ull
#define TRIES 3u
#define IDLE_PRIORITY (3 << 13) /* ioprio_set(2) */

struct scrub {
	const struct scrub_options *opt;
	struct scrub_report *ret;
	struct offline f;
	struct extents used, bad; /* bad: at home */
	uint64_t latest_blk;	  /* that was read */
	char *buf;
};

/* ---- what is used ---- */

static int find_used(struct scrub *s, struct failure *fail)
{
	uint64_t blks = s->f.super.fs_bytes / COW_BLK_BYTES;
	struct blk_reader reader;
	struct fsmap *map = NULL;
	struct offline view;
	int r = offline_open(&view, s->opt->image, NULL, BLOCKDEV_RDONLY, 0, fail);

	if (r < 0)
		return r;
	reader = super_reader(view.base);
	reader.volume_blks = blks;
	r = (view.fs.error_flag ? fsmap_open_unread : fsmap_open)(&map, &reader);
	for (uint64_t blk = 0, n; blk < blks && r == 0; blk += n) {
		enum blk_use use;

		r = fsmap_run(map, blk, blks - blk, &use, &n);
		if (r == 0 && use != USE_FREE)
			r = extents_add(&s->used, blk, n);
	}
	fsmap_close(map);
	offline_close(&view);
	return r < 0 ? offline_cannot_read(s->opt->device, r, fail) : 0;
}

/* ---- the log ---- */

static void note_bad(void *ctx, uint64_t blk, const char *line)
{
	(void)line;
	(void)!extents_add(ctx, blk, 1); /* without memory: at least one is there */
}

/* The daemon goes on with its newest record, also if the payload of that can no longer be read. *ret_seq: that record.
 * found NULL: only that. */
static int look_at_log(const struct scrub_options *opt, struct extents *found, uint64_t *ret_seq)
{
	struct failure fail;
	struct offline f;
	uint64_t n;
	int r = offline_open(&f, opt->device, opt->log_device,
			     BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, 0, &fail);

	f.log_flags = *f.attached ? LOG_UNVERIFIED | LOG_NOT_BACK : 0;
	if (r == 0)
		r = offline_open_log(&f, &fail);
	*ret_seq = f.report.newest.seq;
	if (r == 0 && f.report.state >= LOG_BROKEN)
		r = f.report.needs_older ? -EBUSY : -EUCLEAN;
	if (r == 0 && found)
		r = log_verify(f.log, note_bad, found, &n);
	offline_close(&f);
	return r;
}

static int scrub_log(struct scrub *s)
{
	struct extents *found = &s->ret->bad;
	uint64_t seq, later;
	int r;

	for (unsigned i = 0; i < TRIES; i++) {
		extents_clear(found);
		r = look_at_log(s->opt, found, &seq);
		if (r == 0 && !found->n)
			return 0;
		if (look_at_log(s->opt, NULL, &later) == 0 && later == seq)
			return r;
	}
	extents_clear(found);
	return r < 0 ? r : -EBUSY;
}

/* ---- home blocks ---- */

/* Until nothing else has read or written during a rest. */
static void give_way(struct card *c, uint64_t took_ns)
{
	struct card_counters then, now;
	uint64_t window_ns = max_u64(took_ns, WINDOW_NS);

	for (uint64_t rested_ns = 0; rested_ns < BUSY_NS; rested_ns += window_ns) {
		bool known = card_counters(c, &then) == 0;

		window_ns = rested_ns ? max_u64(window_ns, BUSY_WINDOW_NS) : window_ns;
		usleep((useconds_t)(window_ns / 1000));
		if (!known || card_counters(c, &now) < 0 ||
		    (now.read_ios == then.read_ios && now.write_ios == then.write_ios))
			return;
	}
}

static bool can_read(struct scrub *s, uint64_t blk)
{
	int r = -EIO;

	for (unsigned i = 0; i < TRIES && r < 0; i++)
		r = card_read(s->f.base, blk_to_bytes(blk), s->buf, COW_BLK_BYTES);
	return r == 0;
}

/* Where the request failed, and no block alone: all of it. */
static int read_singly(struct scrub *s, uint64_t blk, uint64_t blks)
{
	uint64_t bad = s->bad.blks;
	int r = 0;

	for (uint64_t i = 0; i < blks && (r == 0 || r == -EIO); i++) {
		r = card_read(s->f.base, blk_to_bytes(blk + i), s->buf, COW_BLK_BYTES);
		s->ret->read_bytes += r == 0 ? COW_BLK_BYTES : 0;
		if (r == -EIO && extents_add(&s->bad, blk + i, 1) < 0)
			return -ENOMEM;
	}
	if (r < 0 && r != -EIO)
		return r;
	if (!can_read(s, 0) || !can_read(s, s->latest_blk))
		return -ENODEV;
	return s->bad.blks == bad ? extents_add(&s->bad, blk, blks) : 0;
}

static int read_blocks(struct scrub *s, uint64_t blk, uint64_t blks)
{
	uint64_t start_ns = now_ns();
	int r = card_read(s->f.base, blk_to_bytes(blk), s->buf, blk_to_bytes(blks));

	if (r == -EIO)
		return read_singly(s, blk, blks);
	if (r < 0)
		return r;
	s->latest_blk = blk;
	s->ret->read_bytes += blk_to_bytes(blks);
	give_way(s->f.base, now_ns() - start_ns);
	return 0;
}

static int read_used(struct scrub *s, uint64_t from_blk)
{
	const struct scrub_options *opt = s->opt;
	struct extents_chunk c = { 0 };
	uint64_t done = 0;
	int r = can_read(s, 0) ? 0 : -EIO;

	while (r == 0 && extents_next_chunk(&s->used, &c, REQUEST_BLKS)) {
		done += c.blks;
		if (c.blk + c.blks <= from_blk)
			continue;
		r = read_blocks(s, c.blk, c.blks);
		if (r == 0)
			opt->reached(opt->ctx, s->bad.n ? s->bad.e[0].blk : c.blk + c.blks,
				     blk_to_bytes(done), s->ret->used_bytes);
	}
	return r;
}

static int scrub_home(struct scrub *s, uint64_t from_blk, struct failure *fail)
{
	struct extents x = { 0 };
	int r = read_used(s, from_blk);

	if (r < 0)
		return failure(fail, r,
			       "%s: can no longer be read (%s). Is the card there? The same "
			       "command goes on with it",
			       s->opt->device, strerrordesc_np(-r));
	r = extents_without(&x, &s->bad, &s->ret->bad);
	if (r == 0)
		r = extents_merge(&s->ret->bad, &x);
	extents_clear(&x);
	return r < 0 ? failure(fail, r, "no memory") : 0;
}

static int run(struct scrub *s, struct failure *fail)
{
	const struct scrub_options *opt = s->opt;
	uint64_t from_blk;
	int r = offline_open(&s->f, opt->device, opt->log_device,
			     BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, 0, fail);

	if (r == 0)
		r = offline_find_log(&s->f, fail);
	if (r == 0)
		r = find_used(s, fail);
	if (r < 0)
		return r;
	s->ret->used_bytes = blk_to_bytes(s->used.blks);
	if (!opt->begin(opt->ctx, &s->f.super, &from_blk))
		return 0;
	/* where the kernel has no priorities, there are the rests */
	(void)syscall(SYS_ioprio_set, 1, 0, IDLE_PRIORITY);
	s->ret->log_error = scrub_log(s);
	return scrub_home(s, from_blk, fail);
}

int offline_scrub(const struct scrub_options *opt, struct scrub_report *ret, struct failure *fail)
{
	struct scrub s = { .opt = opt, .ret = ret, .buf = io_alloc(blk_to_bytes(REQUEST_BLKS)) };
	int r;

	*ret = (struct scrub_report){ 0 };
	r = s.buf ? run(&s, fail) : failure(fail, -ENOMEM, "no memory");
	r = offline_end(&s.f, r, "Nothing was written", fail);
	extents_clear(&s.used);
	extents_clear(&s.bad);
	free(s.buf);
	return r;
}
