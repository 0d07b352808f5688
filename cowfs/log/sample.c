/* SPDX-License-Identifier: MIT */
/*
 * Samples: a few blocks of the base that cowfs wrote last, with their checksums, in every record
 * (docs/FORMAT.md, "Whose base is it?"). A superblock with the guard says nothing about the blocks
 * behind it, which checkpoints and commits change. An older copy of the file system has other
 * content there.
 *
 * The samples of a record that recovery may choose stay as they are on the base: no commit writes
 * there in place, and no trim (log_held_run). What a checkpoint writes there, the log has: then the
 * sample says nothing.
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "fs/guard.h"
#include "fs/loader.h"
#include "log/ring.h"

#define READS_MAX 16u /* to find a sample */
#define SAMPLES_BYTES (LOG_SAMPLES * sizeof(struct log_sample))

static bool is_left_open(const struct log *l, uint64_t blk, uint64_t *ret_blks)
{
	uint64_t first;

	return guard_leaves_open(l->guarded.truth, &first, ret_blks) && blk - first < *ret_blks;
}

/*
 * Does nothing but cowfs change it, as long as the superblock has the guard? Of what a kernel may clear
 * it clears the oldest blocks: not those of the last checkpoint, if that did not write most of them.
 */
static bool is_fit_place(const struct log *l, uint64_t blk)
{
	uint64_t open_blks;

	return blk && blk != l->guarded.blk &&
	       (!is_left_open(l, blk, &open_blks) || log_index_data_blks(l->index) < open_blks / 2);
}

static bool is_fit(const struct log *l, uint64_t blk, const uint8_t *content)
{
	uint64_t open_blks;

	return is_fit_place(l, blk) && !loader_has_env(content) &&
	       !(is_left_open(l, blk, &open_blks) && guard_may_clear(content));
}

void sample_note_direct(struct log *l, uint64_t blk, uint64_t blks, const uint8_t *content,
			const uint32_t *crc)
{
	struct log_sample *s = &l->at.sample;

	/* the lowest: low blocks are the ones that were in use before */
	if (blks && (!s->blk || blk < s->blk) && l->super.state != SUPER_PENDING &&
	    is_fit(l, blk, content))
		*s = (struct log_sample){ .blk = blk, .crc = crc[0] };
}

void sample_fill_record(const struct log *l, struct log_record *rec)
{
	struct log_sample *s = rec->sample + LOG_SAMPLES_HOME;

	memcpy(rec->sample, l->newest.sample, SAMPLES_BYTES);
	if (rec->type != RECORD_COMMIT || !l->at.sample.blk)
		return;
	memmove(s + 1, s, (LOG_SAMPLES - LOG_SAMPLES_HOME - 1) * sizeof(*s));
	s[0] = l->at.sample;
}

void sample_accept(struct log *l, const struct log_sample *next)
{
	if (!memcmp(next, l->newest.sample, SAMPLES_BYTES))
		return;
	memcpy(l->held[1], l->held[0], SAMPLES_BYTES);
	memcpy(l->held[0], l->newest.sample, SAMPLES_BYTES);
}

/* The record on the card still has them: as long as it may be chosen they stay as they are. */
void sample_forget(struct log *l)
{
	static const struct log_sample none[LOG_SAMPLES];

	sample_accept(l, none);
	memcpy(l->newest.sample, none, SAMPLES_BYTES);
}

uint64_t sample_held_run(const struct log *l, uint64_t blk, uint64_t max_blks, bool *ret_held)
{
	const struct log_sample *all[] = { l->newest.sample, l->held[0], l->held[1] };

	*ret_held = false;
	for (size_t i = 0; i < ARRAY_SIZE(all) * LOG_SAMPLES; i++) {
		uint64_t at = all[i / LOG_SAMPLES][i % LOG_SAMPLES].blk;

		*ret_held |= at && at == blk;
		if (at > blk)
			max_blks = min_u64(max_blks, at - blk);
	}
	return *ret_held ? 1 : max_blks;
}

void sample_forget_logged(struct log *l)
{
	struct log_sample next[LOG_SAMPLES];

	memcpy(next, l->newest.sample, sizeof(next));
	for (size_t i = 0; i < LOG_SAMPLES; i++)
		if (log_index_has(l->index, next[i].blk))
			next[i] = (struct log_sample){ 0 };
	sample_accept(l, next);
	memcpy(l->newest.sample, next, sizeof(next));
}

/* Sets *s to the first fit block, from `from` on, of those that were written home since the last stop: a trim may
 * have taken one that was written before, if it is free now. */
static int choose(struct log *l, const struct log_content *c, uint64_t from, uint8_t *buf,
		  struct log_sample *s)
{
	const struct log_index *written = l->left ? l->left : l->index;
	struct index_entry e;
	unsigned reads = 0;

	for (size_t i = 0; log_index_extent(written, i, &e) && reads < READS_MAX; i++)
		for (uint64_t k = 0; e.kind != INDEX_ZERO && k < e.blks && reads < READS_MAX; k++) {
			uint64_t blk = e.blk + k;
			int r;

			if (blk < from || !is_fit_place(l, blk) ||
			    (c && c->writes && c->writes(c->writes_ctx, blk)))
				continue;
			reads++;
			r = log_index_read(written, blk, 1, buf);
			if (r == 0 && is_fit(l, blk, buf)) {
				*s = (struct log_sample){ .blk = blk, .crc = e.crc[k] };
				return 0;
			}
			if (r < 0 && !io_lost(r))
				return r;
		}
	return 0;
}

/* The first one, and one of the log of xfs, or of the second half: low blocks, and a log, are what is in use
 * in older copies, too. */
int sample_home(struct log *l, const struct log_content *c)
{
	_cleanup_free_ uint8_t *buf = io_alloc(COW_BLK_BYTES);
	uint64_t from = l->super.fs_bytes / COW_BLK_BYTES / 2, open_blks;
	struct log_sample next[LOG_SAMPLES];
	int r = buf ? 0 : -ENOMEM;

	memcpy(next, l->newest.sample, sizeof(next));
	(void)guard_leaves_open(l->guarded.truth, &from, &open_blks);
	if (r == 0)
		r = choose(l, c, 0, buf, &next[0]);
	if (r == 0)
		r = choose(l, c, from, buf, &next[1]);
	if (r < 0)
		return r;
	sample_accept(l, next);
	memcpy(l->newest.sample, next, sizeof(next));
	return 0;
}

/*
 * While the newest record is a commit, no home write has come behind that, so the base keeps a sample that
 * the log has by now. The log's content is there if the record of a checkpoint was lost.
 */
static bool says_nothing(struct log *l, const struct log_record *rec, const struct log_index *ix,
			 uint64_t blk)
{
	return log_index_has(ix, blk) && (rec->type != RECORD_COMMIT || lag_on(l));
}

static bool is_as_logged(const struct log_index *ix, uint64_t blk, const uint8_t *content)
{
	uint32_t crc;

	return log_index_has(ix, blk) &&
	       (log_index_crc(ix, blk, &crc) ? crc32c_back(content, COW_BLK_BYTES) == crc
					     : bytes_all_zero(content, COW_BLK_BYTES));
}

int sample_match(struct log *l, const struct log_record *rec, const struct log_index *ix, bool *ret)
{
	_cleanup_free_ uint8_t *buf = io_alloc(COW_BLK_BYTES);
	uint64_t base_blks = l->base->geo.size_bytes / COW_BLK_BYTES;

	*ret = true;
	if (!buf)
		return -ENOMEM;
	for (size_t i = 0; i < LOG_SAMPLES && *ret; i++) {
		const struct log_sample *s = &rec->sample[i];
		int r;

		if (!s->blk || s->blk >= base_blks || says_nothing(l, rec, ix, s->blk))
			continue;
		r = ring_spend(l, IN_BASE, 1);
		if (r < 0)
			return r;
		/* a block that cannot be read is not that of another base */
		r = card_read_bare(l->base, blk_to_bytes(s->blk), buf, COW_BLK_BYTES);
		*ret = r < 0 || crc32c_back(buf, COW_BLK_BYTES) == s->crc ||
		       is_as_logged(ix, s->blk, buf);
	}
	return 0;
}
