/* SPDX-License-Identifier: MIT */
/*
 * Checks what was read from the ring before it is used: the place of a record, the bounds of a
 * descriptor, every CRC.
 *
 * Rules (docs/FORMAT.md): R4 every CRC must match: record, descriptor, payload, manifest; R5
 * payload and manifests are read back over [floor .. N] only, superseded blocks skipped.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "fs/loader.h"
#include "log/escape.h"
#include "log/scan.h"

bool verify_record_place(const struct log *l, const struct log_record *rec, uint64_t lblk)
{
	return rec->lblk == lblk && rec->desc_blks <= l->ring_blks &&
	       ring_valid(l, rec->start_lblk) && (!rec->desc_blks || ring_valid(l, rec->desc_lblk));
}

/*
 * A page whose programming was cut may stay unreadable, so a block that fails twice counts as
 * garbage. Everything behind a valid record was flushed: an error in descriptors
 * ends the attach (chain.c), content that cannot be read is lost and the rest counts (check_block_alone).
 */
int ring_read_tolerant(struct log *l, uint64_t lblk, uint64_t blks, uint8_t *buf,
		       uint64_t *unreadable_blks)
{
	int r = card_read(l->card, ring_off_bytes(l, lblk), buf, blk_to_bytes(blks));

	if (r != -EIO)
		return r;
	for (uint64_t k = 0; k < blks; k++) {
		uint8_t *b = buf + blk_to_bytes(k);

		r = card_read(l->card, ring_off_bytes(l, lblk + k), b, COW_BLK_BYTES);
		if (r == -EIO) {
			memset(b, 0, COW_BLK_BYTES);
			++*unreadable_blks;
		} else if (r < 0) {
			return r;
		}
	}
	return 0;
}

int ring_read_record(struct log *l, uint64_t lblk, uint8_t *blk, struct log_record *ret)
{
	int r;

	if (!ring_valid(l, lblk))
		return -EBADMSG;
	r = ring_spend(l, IN_RING, 1);
	if (r == 0)
		r = card_read(l->card, ring_off_bytes(l, lblk), blk, COW_BLK_BYTES);
	if (r < 0)
		return r;
	r = codec_get_record(blk, l->super.ring_uuid, ret);
	return r == 0 && verify_record_place(l, ret, lblk) ? 0 : -EBADMSG;
}

int ring_read_same(struct log *l, struct record_ptr at, uint8_t *blk, struct log_record *ret)
{
	int r = ring_read_record(l, at.lblk, blk, ret);

	return r == 0 && (ret->seq != at.seq || ret->epoch != at.epoch) ? -EBADMSG : r;
}

/* Payload must not leave its segment; nothing must leave the volume. */
static bool extent_sane(const struct log *l, const struct desc_extent *e)
{
	uint64_t volume_blks = l->super.fs_bytes / COW_BLK_BYTES;

	if (e->blk >= volume_blks || e->blks > volume_blks - e->blk)
		return false;
	if (e->type == DESC_SPILLED)
		return e->lblk < volume_blks && e->blks <= volume_blks - e->lblk;
	return e->type != DESC_LOGGED ||
	       (ring_valid(l, e->lblk) &&
		e->lblk / l->seg_blks == (e->lblk + e->blks - 1) / l->seg_blks);
}

enum { DESC_CHUNK_BLKS = 64 };

/* Reads the next descriptor blocks of a record, at most a chunk of them, from the i-th on. Moves
 * *lblk past them. */
static int read_descs(struct log *l, const struct chain_rec *rec, uint32_t i, uint64_t *lblk,
		      uint8_t *buf, uint32_t *ret_n)
{
	uint32_t n = (uint32_t)min_u64(DESC_CHUNK_BLKS, rec->desc_blks - i);
	int r = ring_spend(l, IN_RING, n);

	for (uint32_t k = 0; k < n && r == 0; k++, *lblk = ring_next(l, *lblk))
		r = card_read(l->card, ring_off_bytes(l, *lblk), buf + (size_t)k * COW_BLK_BYTES,
			      COW_BLK_BYTES);
	*ret_n = n;
	return r;
}

/* The record of a commit has a copy of its only descriptor block. It lies behind that, and behind its wear blocks. */
static int read_copy(struct log *l, const struct chain_rec *rec, uint8_t *buf)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	uint64_t lblk = rec->desc_lblk;
	struct log_record own;
	int r = blk ? -EBADMSG : -ENOMEM;

	for (unsigned n = 0; r == -EBADMSG && n <= WEARLOG_MAX_BLKS; n++) {
		lblk = ring_next(l, lblk);
		r = ring_read_record(l, lblk, blk, &own);
	}
	if (r < 0)
		return r;
	codec_get_desc_copy(blk, &own, buf);
	if (crc32c(0, buf, COW_BLK_BYTES) != rec->desc_crc)
		return -EBADMSG;
	if (l->opening)
		l->opening->copied_seq = rec->desc_seq;
	return 0;
}

static int check_descs(struct log *l, const struct chain_rec *rec, uint8_t *buf)
{
	uint64_t lblk = rec->desc_lblk;
	uint32_t crc = 0, n;
	int r = 0;

	for (uint32_t i = 0; i < rec->desc_blks && r == 0; i += n) {
		r = read_descs(l, rec, i, &lblk, buf, &n);
		crc = r == 0 ? crc32c(crc, buf, (size_t)n * COW_BLK_BYTES) : 0;
	}
	if (r == 0 && crc != rec->desc_crc)
		r = -EBADMSG;
	if ((r == -EBADMSG || r == -EIO) && rec->desc_blks == 1 && read_copy(l, rec, buf) == 0)
		r = 0;
	return r;
}

static int each_of_block(struct log *l, const struct chain_rec *rec, uint32_t i, const uint8_t *blk,
			 int (*each)(void *ctx, const struct desc_extent *e), void *ctx)
{
	struct desc_cursor c;
	struct desc_extent e;
	int r = desc_open(&c, blk, l->super.ring_uuid, rec->desc_epoch, rec->desc_seq, i);

	while (r == 0 && (r = desc_next(&c, &e)) == 1)
		r = extent_sane(l, &e) ? each(ctx, &e) : -EBADMSG;
	return r == -EUCLEAN ? -EBADMSG : r;
}

/* A record may claim that its descriptors fill the ring, so they are read twice, a chunk at a
 * time. A single chunk is read once. */
int chain_each_extent(struct log *l, const struct chain_rec *rec,
		      int (*each)(void *ctx, const struct desc_extent *e), void *ctx)
{
	_cleanup_free_ uint8_t *buf = NULL;
	uint64_t lblk = rec->desc_lblk;
	uint32_t n = rec->desc_blks;
	int r;

	if (!rec->desc_blks)
		return 0;
	buf = io_alloc_raw(min_u64(DESC_CHUNK_BLKS, rec->desc_blks) * COW_BLK_BYTES);
	if (!buf)
		return -ENOMEM;
	r = check_descs(l, rec, buf);
	for (uint32_t i = 0; i < rec->desc_blks && r == 0; i += n) {
		if (rec->desc_blks > DESC_CHUNK_BLKS)
			r = read_descs(l, rec, i, &lblk, buf, &n);
		for (uint32_t k = 0; k < n && r == 0; k++)
			r = each_of_block(l, rec, i + k, buf + (size_t)k * COW_BLK_BYTES, each,
					  ctx);
	}
	return r;
}

/* Has a boot loader changed this block since the commit wrote it in place? With lag a card may have lost what
 * the newest commit wrote there: then no other content counts. */
static bool is_of_loader(const struct log *l, const struct desc_extent *e, const uint8_t *blk)
{
	return e->type == DESC_DIRECT && !lag_on(l) && loader_has_env(blk);
}

/* ---- one candidate ---- */

struct verify {
	struct scan *s;
	const struct log_index *dom; /* blocks that newer records name */
	struct index_list own;	     /* those of this record */
	uint8_t *buf;		     /* STAGE_BLKS */
	bool check;
	/* a checkpoint has begun behind the commit: no older generation is left, and what does not match is damage */
	bool is_last;
};

static int reject(struct scan *s, const struct desc_extent *e, uint64_t i, const char *why)
{
	snprintf(s->why, sizeof(s->why), "%s of block %llu %s",
		 e->type == DESC_DIRECT ? "content in place" : "payload",
		 (unsigned long long)(e->blk + i), why);
	return -EBADMSG;
}

static bool may_lose(const struct log_open_report *rep)
{
	return rep->lost_home_blks + rep->lost_log_blks < LOST_MAX_BLKS;
}

static void note_lost(struct log_open_report *rep, const struct desc_extent *e, uint64_t i)
{
	if (e->type == DESC_DIRECT)
		rep->lost_home_blks++;
	else
		rep->lost_log_blks++;
	rep->lost_blk = e->blk + i;
}

/* Payload or manifest blocks against their CRCs. */
static int check_blocks(struct verify *v, const struct desc_extent *e, uint64_t i, uint64_t n)
{
	struct log *l = v->s->l;
	struct card *c = e->type == DESC_LOGGED ? l->card : l->base;
	uint64_t off = e->type == DESC_LOGGED
			       ? ring_off_bytes(l, e->lblk)
			       : blk_to_bytes(e->type == DESC_DIRECT ? e->blk : e->lblk);
	int r = ring_spend(l, e->type == DESC_LOGGED ? IN_RING : IN_BASE, n);

	if (r == 0)
		r = card_read(c, off + blk_to_bytes(i), v->buf, blk_to_bytes(n));
	for (uint64_t k = 0; k < n && r == 0; k++) {
		uint8_t *blk = v->buf + blk_to_bytes(k);

		if (escape_content_ok(e->type == DESC_LOGGED, blk, e->crc[i + k]))
			continue;
		if (is_of_loader(l, e, blk))
			v->s->rep->loader_wrote = true;
		else if (v->is_last && e->type != DESC_DIRECT && may_lose(v->s->rep))
			note_lost(v->s->rep, e, i + k);
		else
			r = reject(v->s, e, i + k, "does not match its checksum");
	}
	return r;
}

/*
 * The record says that its content was durable. What the card cannot read now, even alone, is damage as in any older block:
 * the generation stays as it is, and reads of this block fail. With lag the card may have lost the newest commit: the
 * older generation counts.
 */
static int check_block_alone(struct verify *v, const struct desc_extent *e, uint64_t i)
{
	int r = check_blocks(v, e, i, 1);

	if (r != -EIO || !may_lose(v->s->rep))
		return r;
	if (lag_on(v->s->l))
		return reject(v->s, e, i, "cannot be read");
	note_lost(v->s->rep, e, i);
	return 0;
}

static int check_each(struct verify *v, const struct desc_extent *e, uint64_t i, uint64_t n)
{
	int r = 0;

	for (uint64_t k = 0; k < n && r == 0; k++)
		r = check_block_alone(v, e, i + k);
	return r;
}

static int check_extent(struct verify *v, const struct desc_extent *e)
{
	int r = 0;

	if (e->type == DESC_ZERO)
		return 0;
	for (uint64_t i = 0; i < e->blks && r == 0; i += STAGE_BLKS) {
		uint64_t n = min_u64(STAGE_BLKS, e->blks - i);

		r = check_blocks(v, e, i, n);
		if (r == -EIO)
			r = check_each(v, e, i, n);
	}
	return r;
}

static int verify_extent(void *ctx, const struct desc_extent *e)
{
	struct verify *v = ctx;

	if (e->type == DESC_JOINT)
		return 0;
	for (uint64_t i = 0; v->check && i < e->blks;) {
		enum log_where where;
		uint64_t run = log_index_run(v->dom, e->blk + i, e->blks - i, &where);
		struct desc_extent part = *e;
		int r;

		part.blk = e->blk + i;
		part.lblk = e->lblk + i;
		part.blks = (uint32_t)run;
		part.crc = e->crc ? e->crc + i : NULL;
		i += run;
		if (where != LOG_HOME)
			continue;
		r = check_extent(v, &part);
		if (r < 0)
			return r;
	}
	return index_list_add(&v->own, INDEX_ZERO, e->blk, e->blks, 0, NULL);
}

/*
 * A process has died, but the power has not failed since this record was durable. The process did not read its
 * content again either.
 */
static bool is_sound(const struct scan *s, const struct log_record *rec)
{
	return s->mark && rec->seq && rec->seq == s->mark->sound_seq &&
	       rec->epoch == s->mark->sound_epoch;
}

/* What is said of a damaged record is a conclusion. */
static bool is_checked(const struct chain *ch, size_t i)
{
	return ch->rec[i].seq >= ch->head.floor_seq || ch->rec[i].stand_in;
}

int verify_chain(struct scan *s, const struct chain *ch)
{
	_cleanup_free_ uint8_t *buf = NULL;
	struct log_index *dom, *next;
	uint64_t oldest_seq = ch->passed_seq ? min_u64(ch->passed_seq, ch->head.floor_seq)
					     : ch->head.floor_seq;
	unsigned checked = 0;
	int r;

	s->rep->loader_wrote = false;
	s->rep->lost_home_blks = s->rep->lost_log_blks = 0;
	if (s->l->flags & LOG_UNVERIFIED || is_sound(s, &ch->head))
		return 0;
	buf = io_alloc_raw(STAGE_BLKS * COW_BLK_BYTES);
	dom = log_index_empty();
	r = buf && dom ? 0 : -ENOMEM;
	for (size_t i = 0; i < ch->n && r == 0; i++) {
		struct verify v = { .s = s,
				    .dom = dom,
				    .buf = buf,
				    .check = is_checked(ch, i),
				    .is_last = ch->head.type == RECORD_CHECKPOINT &&
					       !lag_on(s->l) };

		if (ch->rec[i].seq < oldest_seq)
			break;
		checked += v.check;
		if (checked > CHAIN_CHECKED_MAX) {
			snprintf(s->why, sizeof(s->why), "record %llu needs too many other records",
				 (unsigned long long)ch->head.seq);
			r = -EBADMSG;
			break;
		}
		r = chain_each_extent(s->l, &ch->rec[i], verify_extent, &v);
		if (r == 0)
			r = index_list_overlay(&next, dom, &v.own, NULL, NULL, 0);
		if (r == 0) {
			log_index_unref(dom);
			dom = next;
		}
		index_list_clear(&v.own);
	}
	log_index_unref(dom);
	return r;
}

/* ---- check ---- */

int log_verify(struct log *l, void (*say)(void *ctx, uint64_t blk, const char *line), void *ctx,
	       uint64_t *ret_bad)
{
	_cleanup_free_ uint8_t *buf = io_alloc(COW_BLK_BYTES);
	struct index_entry e;
	uint64_t bad = 0;
	char line[160];

	if (!buf)
		return -ENOMEM;
	if (l->state == EPOCH_BROKEN)
		bad++;
	for (size_t i = 0; log_index_extent(l->index, i, &e); i++)
		for (uint64_t k = 0; e.kind != INDEX_ZERO && k < e.blks; k++) {
			int r = log_index_read(l->index, e.blk + k, 1, buf);

			if (r == 0)
				continue;
			if (!io_lost(r))
				return r;
			bad++;
			snprintf(line, sizeof(line), "block %llu: its copy in the log %s",
				 (unsigned long long)(e.blk + k),
				 r == -EIO ? "cannot be read" : "does not match its checksum");
			say(ctx, e.blk + k, line);
		}
	*ret_bad = bad;
	return 0;
}
