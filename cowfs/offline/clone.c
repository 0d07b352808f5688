/* SPDX-License-Identifier: MIT */
/*
 * Copies a volume to another card, which gets a log of its own.
 *
 * Notes on the design
 * - The head of the file system, where its superblocks are, is written last, and then the log. Until then block 0
 *   has a mark, so nothing takes an incomplete copy for a file system. A second run finds the mark of this file
 *   system, and writes only what differs.
 * - What else could be found on the target is wiped first, in each run: superblocks of a run that was interrupted
 *   while it wrote the head, copies of the superblock of an old log, and what arrays, tables of partitions and others
 *   have at the end of a device. The front is copied whole, because some have theirs behind the head.
 * - Used blocks only, and the journal: what a previous file system left in its place could pass for its
 *   continuation. Gaps of a few free blocks are copied as well, for fewer requests.
 * - A request ends at an erase block of the target, counted from the start of its disk.
 * - All of it is read back. A card that has less than it says shows that at once in most cases: blocks at
 *   powers of two, and at equal distances up to the end, are written before anything else, and read.
 * - A source that has gone fails at each read, which is not a bad block: after an error, blocks from all parts that
 *   were read before are read again, and the caller is asked, because a view may have these in RAM.
 */
#include "offline/offline.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/boxed.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "base/numbers.h"
#include "base/parse.h"
#include "card/blockdev.h"
#include "offline/content.h"

#define HEAD_BLKS 32u	/* every superblock of a file system that cowfs knows */
#define FRONT_BLKS 256u /* old signatures lie here */
#define END_BLKS 256u	/* and here */
#define GAP_BLKS 16u
#define GOOD_MAX 32u
#define REQUEST_BLKS 1024u

static const char mark_text[] =
	"cowfs: an incomplete copy of a volume; cowctl clone goes on with it\n";

struct mark {
	char text[80];
	char uuid[16]; /* of the file system that is being copied */
};

struct clone {
	const struct clone_options *opt;
	struct clone_report *ret;
	struct offline from, to;
	struct fsmap *map;
	uint64_t blks;	     /* of the file system */
	uint64_t unit_blks;  /* of a request at most; requests end at its multiples */
	uint64_t start_blks; /* where the target starts, counted from the last of these */
	uint32_t *crc;	     /* of what each unit has from the source */
	char *buf, *there;   /* a unit */
	char *head;
	bool marked, resumes;
	uint64_t done_bytes;
	uint64_t requests,
		good[GOOD_MAX]; /* blocks that were read: the latest one, of each 2nd, 4th, ... request */
};

static void show(struct clone *c, const char *phase, uint64_t bytes)
{
	c->done_bytes += bytes;
	c->opt->progress(c->opt->ctx, phase, c->done_bytes, c->ret->used_bytes);
}

static int target_failed(struct clone *c, int e, struct failure *fail)
{
	return failure(fail, e, "%s: %s. It is incomplete; the same command goes on with it",
		       c->opt->target, strerrordesc_np(-e));
}

static int source_failed(struct clone *c, int e, struct failure *fail)
{
	return failure(
		fail, e,
		e == -ENODEV
			? "%s: can no longer be read: it was detached, its card is gone, or RAM did "
			  "not suffice for both (cowctl status). %s is incomplete; the same command "
			  "goes on with it"
			: "%s: cannot be read. %s is incomplete; the same command goes on with it",
		c->opt->name, c->opt->target);
}

static uint64_t unit_end(const struct clone *c, uint64_t blk)
{
	uint64_t in = (blk + c->start_blks) % c->unit_blks;

	return min_u64(c->blks, blk + c->unit_blks - in);
}

static size_t unit_of(const struct clone *c, uint64_t blk)
{
	return (size_t)((blk + c->start_blks) / c->unit_blks);
}

/* What is copied of [blk, end), which has at least one block. */
static int runs_of(struct clone *c, uint64_t blk, uint64_t end, struct extents *ret)
{
	int r = 0;

	ret->n = 0;
	ret->blks = 0;
	while (blk < end && r == 0) {
		struct extent_run *last = ret->n ? &ret->e[ret->n - 1] : NULL;
		enum blk_use use;
		uint64_t n;

		r = fsmap_run(c->map, blk, end - blk, &use, &n);
		if (r == 0 && blk < FRONT_BLKS)
			n = min_u64(n, FRONT_BLKS - blk);
		if (r == 0 && (use != USE_FREE || blk < FRONT_BLKS)) {
			uint64_t from = last && blk - last->blk - last->blks <= GAP_BLKS
						? last->blk + last->blks
						: blk;

			r = extents_add(ret, from, blk + n - from);
		}
		blk += n;
	}
	return r;
}

static bool is_away(const struct clone *c)
{
	return c->opt->is_away && c->opt->is_away(c->opt->ctx);
}

/* Or is it a view that was ended, or is its card gone? */
static bool is_source_there(struct clone *c)
{
	int r = is_away(c) ? -ENOMEDIUM : 0;

	for (unsigned i = 0; i < GOOD_MAX && r == 0; i++)
		r = card_read(c->from.base, blk_to_bytes(c->good[i]), c->there, COW_BLK_BYTES);
	return r == 0;
}

/* Blocks that cannot be read are zeroes in the copy. */
static int read_source(struct clone *c, uint64_t blk, uint64_t blks, char *buf)
{
	struct card *from = c->from.base;
	int r = card_read(from, blk_to_bytes(blk), buf, blk_to_bytes(blks));

	if (r == 0)
		c->good[(unsigned)__builtin_ctzll(++c->requests) % GOOD_MAX] = blk;
	if (r != -EIO)
		return r;
	if (!is_source_there(c))
		return -ENODEV;
	for (uint64_t i = 0; i < blks; i++) {
		char *to = buf + blk_to_bytes(i);

		r = card_read(from, blk_to_bytes(blk + i), to, COW_BLK_BYTES);
		if (r == 0)
			continue;
		memset(to, 0, COW_BLK_BYTES);
		r = r == -EIO ? extents_add(&c->ret->lost, blk + i, 1) : r;
		if (r < 0)
			return r;
	}
	return is_source_there(c) ? 0 : -ENODEV;
}

/* Writes it unless an earlier run did. */
static int write_target(struct clone *c, uint64_t blk, const char *buf, uint64_t blks)
{
	struct card *to = c->to.base;
	uint64_t off = blk_to_bytes(blk), bytes = blk_to_bytes(blks);

	if (c->resumes && card_read(to, off, c->there, bytes) == 0 &&
	    !memcmp(c->there, buf, bytes)) {
		c->ret->there_bytes += bytes;
		return 0;
	}
	return card_write(to, off, buf, bytes);
}

/* ---- one pass over everything behind the head ---- */

enum pass { PASS_COUNT, PASS_COPY, PASS_VERIFY };

static int copy_run(struct clone *c, uint64_t blk, uint64_t blks, uint32_t *crc,
		    struct failure *fail)
{
	int r = read_source(c, blk, blks, c->buf);

	if (r < 0)
		return source_failed(c, r, fail);
	*crc = crc32c(*crc, c->buf, blk_to_bytes(blks));
	r = write_target(c, blk, c->buf, blks);
	if (r < 0)
		return target_failed(c, r, fail);
	show(c, "copy", blk_to_bytes(blks));
	return 0;
}

static int verify_run(struct clone *c, uint64_t blk, uint64_t blks, uint32_t *crc,
		      struct failure *fail)
{
	int r = card_read(c->to.base, blk_to_bytes(blk), c->buf, blk_to_bytes(blks));

	if (r < 0)
		return target_failed(c, r, fail);
	*crc = crc32c(*crc, c->buf, blk_to_bytes(blks));
	show(c, "verify", blk_to_bytes(blks));
	return 0;
}

static int do_unit(struct clone *c, enum pass pass, uint64_t blk, const struct extents *runs,
		   struct failure *fail)
{
	uint32_t crc = 0;
	int r = 0;

	for (size_t i = 0; i < runs->n && r == 0; i++) {
		const struct extent_run *run = &runs->e[i];

		if (pass == PASS_COUNT)
			c->ret->used_bytes += blk_to_bytes(run->blks);
		else
			r = (pass == PASS_COPY ? copy_run : verify_run)(c, run->blk, run->blks,
									&crc, fail);
	}
	if (r < 0 || pass == PASS_COUNT)
		return r;
	if (pass == PASS_COPY)
		c->crc[unit_of(c, blk)] = crc;
	else if (c->crc[unit_of(c, blk)] != crc)
		return failure(
			fail, -EIO,
			"%s: at %s it does not have what was written there: it is damaged, or has less "
			"room than it says. It is left incomplete",
			c->opt->target, FORMAT_MIB(blk_to_bytes(blk)));
	return 0;
}

static int do_pass(struct clone *c, enum pass pass, struct failure *fail)
{
	struct extents runs = { 0 };
	int r = 0;

	c->done_bytes = 0;
	for (uint64_t blk = HEAD_BLKS, end; blk < c->blks && r == 0; blk = end) {
		end = unit_end(c, blk);
		r = runs_of(c, blk, end, &runs);
		if (r < 0 && pass == PASS_COUNT)
			r = failure(fail, r, "%s: its metadata cannot be read: %s", c->opt->name,
				    boxed_error(r));
		else if (r < 0)
			r = source_failed(c, is_source_there(c) ? r : -ENODEV, fail);
		else
			r = do_unit(c, pass, blk, &runs, fail);
	}
	extents_clear(&runs);
	return r;
}

/* ---- the head ---- */

static bool has_mark(struct clone *c)
{
	const struct mark *m = (const struct mark *)c->there;

	return card_read(c->to.base, 0, c->there, COW_BLK_BYTES) == 0 &&
	       !memcmp(m->text, mark_text, sizeof(mark_text)) &&
	       !memcmp(m->uuid, c->from.fs.uuid, sizeof(m->uuid));
}

static int wipe(struct clone *c, uint64_t blk, uint64_t end)
{
	int r = 0;

	memset(c->buf, 0, blk_to_bytes(c->unit_blks));
	for (uint64_t n; blk < end && r == 0; blk += n) {
		n = min_u64(end - blk, c->unit_blks);
		r = card_write(c->to.base, blk_to_bytes(blk), c->buf, blk_to_bytes(n));
	}
	return r;
}

/* From now on there is no file system. */
static int wipe_head(struct clone *c)
{
	int r = wipe(c, c->marked ? 1 : 0, HEAD_BLKS);

	return r < 0 ? r : card_flush(c->to.base);
}

static uint64_t end_blk(const struct clone *c)
{
	uint64_t blks = c->to.base->geo.size_bytes / COW_BLK_BYTES;

	return max_u64(c->blks, blks - min_u64(blks, END_BLKS));
}

/* Behind the file system: the copies of the superblock of an old log, and what others have at the end. */
static int wipe_behind(struct clone *c)
{
	int r = wipe(c, c->blks, c->blks + 1);

	if (r == 0)
		r = wipe(c, end_blk(c), c->to.base->geo.size_bytes / COW_BLK_BYTES);
	return r < 0 ? r : card_flush(c->to.base);
}

/* Is it still so? If not, the card has less than it says, and the log would overwrite the copy. */
static int verify_behind(struct clone *c)
{
	uint64_t blk = end_blk(c), end = c->to.base->geo.size_bytes / COW_BLK_BYTES;
	int r = 0;

	for (; blk < end && r == 0; blk++) {
		r = card_read(c->to.base, blk_to_bytes(blk), c->buf, COW_BLK_BYTES);
		if (r == 0 && (c->buf[0] || memcmp(c->buf, c->buf + 1, COW_BLK_BYTES - 1)))
			r = -EIO;
	}
	return r;
}

static int write_mark(struct clone *c)
{
	struct mark *m = (struct mark *)c->buf;
	int r;

	memset(c->buf, 0, COW_BLK_BYTES);
	memcpy(m->text, mark_text, sizeof(mark_text));
	memcpy(m->uuid, c->from.fs.uuid, sizeof(m->uuid));
	r = card_write(c->to.base, 0, c->buf, COW_BLK_BYTES);
	return r < 0 ? r : card_flush(c->to.base);
}

/* With block 0 the target has a file system. */
static int write_head(struct clone *c)
{
	struct card *to = c->to.base;
	int r = card_write(to, COW_BLK_BYTES, c->head + COW_BLK_BYTES, blk_to_bytes(HEAD_BLKS - 1));

	if (r == 0)
		r = card_flush(to);
	if (r == 0)
		r = card_write(to, 0, c->head, COW_BLK_BYTES);
	if (r == 0)
		r = card_flush(to);
	if (r == 0)
		r = card_read(to, 0, c->buf, blk_to_bytes(HEAD_BLKS));
	return r == 0 && memcmp(c->buf, c->head, blk_to_bytes(HEAD_BLKS)) ? -EIO : r;
}

/* ---- */

static int check_source(struct clone *c, struct failure *fail)
{
	const struct fsinfo *fs = &c->from.fs;

	/* with small blocks it may end within one of ours */
	c->blks = round_up_u64(fs->size_bytes, COW_BLK_BYTES) / COW_BLK_BYTES;
	if (fs->kind == FS_UNKNOWN || fs->size_bytes < blk_to_bytes(HEAD_BLKS) ||
	    blk_to_bytes(c->blks) > c->from.base->geo.size_bytes)
		return failure(fail, -EMEDIUMTYPE, "%s: no file system that cowfs knows",
			       c->opt->name);
	if (fsinfo_refusal(fs))
		return failure(fail, -EOPNOTSUPP, "%s: %s", c->opt->name, fsinfo_refusal(fs));
	return 0;
}

int clone_plan(const struct offline *to, uint64_t fs_bytes, const struct format_options *log,
	       struct log_super *ret, struct failure *fail)
{
	const struct card_geometry *geo = &to->base->geo;
	uint64_t short_bytes = 0;
	int e = super_plan(to->base, to->base, fs_bytes,
			   log->log_bytes ? log->log_bytes : offline_default_log_bytes(to), ret,
			   &short_bytes);

	if (e == -ENOSPC)
		return failure(fail, e,
			       "%s: too small (%s): the file system takes %s, and %s are missing "
			       "for it and its log",
			       to->device, FORMAT_SIZE(geo->size_bytes), FORMAT_SIZE(fs_bytes),
			       FORMAT_SIZE(short_bytes));
	return e < 0 ? failure_set(
			       fail, EXIT_USAGE, e,
			       "%s: a log of this size is too small or too large for erase blocks "
			       "of %s: use at least 8 of them",
			       to->device, FORMAT_SIZE(geo->erase_block_bytes))
		     : 0;
}

static int ask(struct clone *c, const struct fsinfo *found, struct failure *fail)
{
	const struct clone_options *opt = c->opt;
	struct clone_target t = { .bytes = c->to.base->geo.size_bytes };
	int e;

	snprintf(t.holds, sizeof(t.holds), "an incomplete copy of this volume");
	e = c->resumes ? 0 : content_name(&c->to, found, t.holds, sizeof(t.holds));
	if (e < 0)
		return offline_cannot_read(opt->target, e, fail);
	blockdev_model(opt->target, t.model, sizeof(t.model));
	blockdev_identity(opt->target, t.identity, sizeof(t.identity));
	return opt->confirm(opt->ctx, &t)
		       ? 0
		       : failure(fail, -ECANCELED, "%s: not confirmed; nothing was written",
				 opt->target);
}

/* Does file system and log fit? */
static int check_target(struct clone *c, struct failure *fail)
{
	const struct clone_options *opt = c->opt;
	const struct fsinfo found = c->to.fs;
	int e;

	c->resumes = opt->resumes;
	c->to.fs = c->from.fs;
	e = clone_plan(&c->to, c->from.fs.size_bytes, &opt->log, &c->ret->super, fail);
	if (e < 0)
		return e;
	memcpy(c->ret->super.fs_uuid, c->from.fs.uuid, sizeof(c->ret->super.fs_uuid));
	c->ret->super.lag = opt->log.lag;
	c->marked = has_mark(c);
	c->resumes |= c->marked;
	return opt->window ? 0 : ask(c, &found, fail);
}

static int allocate(struct clone *c)
{
	const struct card_geometry *geo = &c->to.base->geo;
	uint64_t eb = geo->erase_block_bytes / COW_BLK_BYTES;

	c->unit_blks = eb;
	while (c->unit_blks > REQUEST_BLKS && c->unit_blks % 2 == 0)
		c->unit_blks /= 2;
	if (c->unit_blks > 4 * REQUEST_BLKS || c->unit_blks < HEAD_BLKS)
		c->unit_blks = REQUEST_BLKS;
	c->start_blks = geo->disk_off_bytes / COW_BLK_BYTES % c->unit_blks;
	c->crc = calloc(unit_of(c, c->blks) + 1, sizeof(*c->crc));
	c->buf = io_alloc(blk_to_bytes(c->unit_blks));
	c->there = io_alloc(blk_to_bytes(c->unit_blks));
	c->head = io_alloc(blk_to_bytes(HEAD_BLKS));
	return c->crc && c->buf && c->there && c->head ? 0 : -ENOMEM;
}

/* Leaves a mark on a target that keeps what is written. */
static int begin(struct clone *c, struct failure *fail)
{
	struct card *to = c->to.base;
	uint64_t head = blk_to_bytes(HEAD_BLKS);
	int r = wipe_head(c);

	if (r == 0 && !c->resumes && to->geo.discard_bytes)
		(void)!card_discard(to, head, to->geo.size_bytes - head);
	if (r == 0 && !c->resumes && !c->opt->window) {
		r = clone_check_size(to, c->buf, fail);
		if (r < 0)
			return r;
	}
	if (r == 0)
		r = wipe_behind(c);
	if (r == 0 && !c->marked)
		r = write_mark(c);
	return r < 0 ? target_failed(c, r, fail) : 0;
}

static int finish(struct clone *c, struct failure *fail)
{
	struct card *to = c->to.base;
	int r = write_head(c);

	if (r < 0)
		return target_failed(c, r, fail);
	r = super_write(to, &c->ret->super);
	if (r == 0 && c->opt->past)
		r = super_put_past(to, &c->ret->super, c->opt->past);
	if (r == -ENOSPC) /* no block is free for it */
		r = 0;
	r = offline_lock(to, r);
	return r < 0 ? failure(fail, r,
			       "%s: the copy is complete, but its log could not be written (%s): cowctl "
			       "prepare %s makes it",
			       c->opt->target, strerrordesc_np(-r), c->opt->target)
		     : 0;
}

static int copy(struct clone *c, struct failure *fail)
{
	int r = begin(c, fail);

	if (r == 0)
		r = do_pass(c, PASS_COPY, fail);
	if (r < 0)
		return r;
	r = card_flush(c->to.base);
	if (r < 0)
		return target_failed(c, r, fail);
	r = c->opt->no_verify ? 0 : do_pass(c, PASS_VERIFY, fail);
	if (r < 0)
		return r;
	r = verify_behind(c);
	return r < 0 ? target_failed(c, r, fail) : finish(c, fail);
}

/* What the bitmaps call free is not left out if the file system knows that it has errors, or its journal has newer
 * ones. */
static int open_map(struct clone *c, const struct blk_reader *r)
{
	const struct fsinfo *fs = &c->from.fs;

	return (fs->error_flag || fs->needs_recovery ? fsmap_open_unread : fsmap_open)(&c->map, r);
}

static int open_target(struct clone *c, struct failure *fail)
{
	const struct clone_options *opt = c->opt;

	if (!opt->window)
		return offline_open(&c->to, opt->target, NULL, BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE,
				    opt->log.erase_block_bytes, fail);
	c->to = (struct offline){ .device = opt->target,
				  .base = opt->window,
				  .log_card = opt->window };
	return 0;
}

static int run(struct clone *c, struct failure *fail)
{
	struct blk_reader reader;
	int r = offline_open(&c->from, c->opt->source, NULL, BLOCKDEV_RDONLY, 0, fail);

	if (r == 0)
		r = check_source(c, fail);
	if (r == 0)
		r = open_target(c, fail);
	/* a process that is killed while it asks must not leave it read-only */
	if (r == 0 && card_set_writable(c->to.base, true) < 0)
		r = failure(fail, -EROFS, "%s is write-protected", c->opt->target);
	if (r < 0)
		return r;
	reader = super_reader(c->from.base);
	reader.volume_blks = c->blks;
	r = allocate(c);
	if (r == 0)
		r = open_map(c, &reader);
	if (r == 0)
		r = read_source(c, 0, HEAD_BLKS, c->head);
	if (r < 0)
		return offline_cannot_read(c->opt->name, r, fail);
	if (extents_blks(&c->ret->lost))
		return failure(fail, -EIO, "%s: the superblocks of its file system cannot be read",
			       c->opt->name);
	r = do_pass(c, PASS_COUNT, fail);
	if (r == 0)
		r = check_target(c, fail);
	return r < 0 ? r : copy(c, fail);
}

int offline_clone(const struct clone_options *opt, struct clone_report *ret, struct failure *fail)
{
	struct clone c = { .opt = opt, .ret = ret };
	int r;

	*ret = (struct clone_report){ 0 };
	r = run(&c, fail);
	if (r < 0 && is_away(&c))
		r = failure_set(fail, EXIT_AWAY, -ENOMEDIUM, CARD_LOST, opt->name,
				"What was committed is there, and the copy is incomplete");
	ret->fs = c.from.fs;
	if (c.to.base)
		ret->written_bytes = c.to.base->account.written_bytes;
	fsmap_close(c.map);
	if (opt->window) /* the caller's */
		c.to.base = c.to.log_card = NULL;
	offline_close(&c.from);
	r = offline_end(&c.to, r, "The copy on it is incomplete", fail);
	free(c.crc);
	free(c.buf);
	free(c.there);
	free(c.head);
	return r;
}
