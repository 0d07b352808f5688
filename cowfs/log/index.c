/* SPDX-License-Identifier: MIT */
/*
 * The log index: a sorted array of extents and one array of CRCs, immutable once built. A commit
 * builds the next index in one linear pass over the old one and its own entries. The size of the
 * ring bounds both.
 */
#include "log/index.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/array.h"
#include "base/invariant.h"
#include "log/escape.h"
#include "log/index_build.h"

struct extent {
	uint64_t blk, blks;
	uint64_t lblk; /* of a data extent */
	/* of a data extent: INDEX_DATA or INDEX_SPILL, which says what lblk refers to */
	uint8_t kind;
	size_t crc_pos; /* position in crcs; NO_CRC: a zero extent */
};

#define NO_CRC SIZE_MAX

struct log_index {
	_Atomic unsigned refs;
	struct card *base, *card;
	uint64_t ring_off_bytes;
	uint64_t data_blks, zero_blks, spilled_blks;
	size_t n, n_crc;
	struct extent *ext;
	uint32_t *crcs;
};

struct log_index *log_index_empty(void)
{
	struct log_index *ix = calloc(1, sizeof(*ix));

	if (ix)
		ix->refs = 1;
	return ix;
}

struct log_index *log_index_ref(struct log_index *ix)
{
	atomic_fetch_add(&ix->refs, 1);
	return ix;
}

void log_index_unref(struct log_index *ix)
{
	unsigned refs = ix ? atomic_fetch_sub(&ix->refs, 1) : 0;

	if (!ix || !INVARIANT("index references", refs) || refs > 1)
		return;
	free(ix->ext);
	free(ix->crcs);
	free(ix);
}

uint64_t log_index_data_blks(const struct log_index *ix)
{
	return ix->data_blks;
}

uint64_t log_index_zero_blks(const struct log_index *ix)
{
	return ix->zero_blks;
}

uint64_t log_index_blks(const struct log_index *ix)
{
	return ix->data_blks + ix->zero_blks;
}

uint64_t log_index_spilled_blks(const struct log_index *ix)
{
	return ix->spilled_blks;
}

static bool has_crc(enum index_kind kind)
{
	return kind == INDEX_DATA || kind == INDEX_SPILL;
}

/* first extent that ends after blk */
static size_t lookup(const struct log_index *ix, uint64_t blk)
{
	return ARRAY_FIRST(i, ix->n, ix->ext[i].blk + ix->ext[i].blks > blk);
}

uint64_t log_index_run(const struct log_index *ix, uint64_t blk, uint64_t max_blks,
		       enum log_where *ret_where)
{
	size_t i = lookup(ix, blk);
	const struct extent *e = i < ix->n ? &ix->ext[i] : NULL;

	if (!e) {
		*ret_where = LOG_HOME;
		return max_blks;
	}
	if (blk < e->blk) {
		*ret_where = LOG_HOME;
		return min_u64(max_blks, e->blk - blk);
	}
	*ret_where = e->crc_pos == NO_CRC ? LOG_ZERO : LOG_DATA;
	return min_u64(max_blks, e->blk + e->blks - blk);
}

bool log_index_has(const struct log_index *ix, uint64_t blk)
{
	enum log_where where;

	log_index_run(ix, blk, 1, &where);
	return where != LOG_HOME;
}

static struct card *place_of(const struct log_index *ix, const struct extent *e, uint64_t skip_blks,
			     uint64_t *ret_off_bytes)
{
	uint64_t off_bytes = blk_to_bytes(e->lblk + skip_blks);

	*ret_off_bytes = e->kind == INDEX_DATA ? ix->ring_off_bytes + off_bytes : off_bytes;
	return e->kind == INDEX_SPILL ? ix->base : ix->card;
}

bool log_index_place(const struct log_index *ix, size_t i, struct log_place *ret)
{
	const struct extent *e = &ix->ext[i];

	if (i >= ix->n)
		return false;
	*ret = (struct log_place){ .blk = e->blk, .blks = e->blks };
	if (e->crc_pos != NO_CRC)
		ret->card = place_of(ix, e, 0, &ret->off_bytes);
	return true;
}

bool log_index_crc(const struct log_index *ix, uint64_t blk, uint32_t *ret)
{
	size_t i = lookup(ix, blk);
	const struct extent *e = &ix->ext[i];

	if (i >= ix->n || blk < e->blk || e->crc_pos == NO_CRC)
		return false;
	*ret = ix->crcs[e->crc_pos + (blk - e->blk)];
	return true;
}

int log_index_read(const struct log_index *ix, uint64_t blk, uint64_t blks, void *buf)
{
	size_t i = lookup(ix, blk);
	const struct extent *e = &ix->ext[i];
	struct card *c;
	uint64_t off;
	int r;

	if (i >= ix->n || blk < e->blk || blk + blks > e->blk + e->blks || e->crc_pos == NO_CRC)
		return -EINVAL;
	c = place_of(ix, e, blk - e->blk, &off);
	r = card_read(c, off, buf, blk_to_bytes(blks));
	if (r < 0)
		return r;
	for (uint64_t k = 0; k < blks; k++)
		if (!escape_content_ok(e->kind == INDEX_DATA, (uint8_t *)buf + blk_to_bytes(k),
				       ix->crcs[e->crc_pos + (blk - e->blk) + k]))
			return -EBADMSG;
	return 0;
}

int log_index_read_volume(const struct log_index *ix, struct card *base, uint64_t blk,
			  uint64_t blks, void *buf)
{
	uint8_t *to = buf;
	int r = 0;

	for (uint64_t n; blks && r == 0; blk += n, blks -= n, to += blk_to_bytes(n)) {
		enum log_where where;

		n = log_index_run(ix, blk, blks, &where);
		if (where == LOG_ZERO)
			memset(to, 0, blk_to_bytes(n));
		else if (where == LOG_DATA)
			r = log_index_read(ix, blk, n, to);
		else
			r = card_read(base, blk_to_bytes(blk), to, blk_to_bytes(n));
	}
	return r;
}

bool log_index_extent(const struct log_index *ix, size_t i, struct index_entry *ret)
{
	const struct extent *e;

	if (i >= ix->n)
		return false;
	e = &ix->ext[i];
	*ret = (struct index_entry){ .kind = e->crc_pos == NO_CRC ? INDEX_ZERO
								  : (enum index_kind)e->kind,
				     .blk = e->blk,
				     .blks = e->blks,
				     .lblk = e->lblk,
				     .crc = e->crc_pos == NO_CRC ? NULL : ix->crcs + e->crc_pos };
	return true;
}

static int by_blk(const void *a, const void *b)
{
	const struct index_entry *x = a, *y = b;

	return x->blk < y->blk ? -1 : x->blk > y->blk;
}

static uint64_t end_of(const struct index_entry *e)
{
	return e->blk + e->blks;
}

int index_sort(struct index_entry *e, size_t n)
{
	if (n)
		qsort(e, n, sizeof(*e), by_blk);
	for (size_t i = 1; i < n; i++)
		if (end_of(&e[i - 1]) > e[i].blk)
			return -EINVAL;
	return 0;
}

static void put_part(const struct index_entry *e, uint64_t blk, uint64_t end,
		     void (*put)(void *to, const struct index_entry *e), void *to)
{
	struct index_entry part = *e;

	if (blk >= end)
		return;
	part.blk = blk;
	part.blks = end - blk;
	part.lblk += blk - e->blk;
	part.crc = e->crc ? e->crc + (blk - e->blk) : NULL;
	put(to, &part);
}

void index_overlay(bool (*older)(const void *ctx, size_t i, struct index_entry *ret),
		   const void *ctx, const struct index_entry *newer, size_t n,
		   void (*put)(void *to, const struct index_entry *e), void *to)
{
	struct index_entry o;
	size_t j = 0;

	for (size_t i = 0; older(ctx, i, &o); i++) {
		uint64_t pos = o.blk;

		for (; j < n && newer[j].blk < end_of(&o); j++) {
			put_part(&o, pos, newer[j].blk, put, to);
			pos = max_u64(pos, end_of(&newer[j]));
			if (end_of(&newer[j]) > end_of(&o))
				break; /* it also covers a part of the next one */
			put(to, &newer[j]);
		}
		put_part(&o, pos, end_of(&o), put, to);
	}
	for (; j < n; j++)
		put(to, &newer[j]);
}

static bool extent_at(const void *ctx, size_t i, struct index_entry *ret)
{
	return log_index_extent(ctx, i, ret);
}

static void append(void *to, const struct index_entry *e)
{
	struct log_index *ix = to;
	struct extent *x;

	if (e->kind == INDEX_HOME)
		return;
	x = &ix->ext[ix->n++];
	*x = (struct extent){ .blk = e->blk,
			      .blks = e->blks,
			      .lblk = e->lblk,
			      .kind = (uint8_t)e->kind,
			      .crc_pos = NO_CRC };
	if (e->kind == INDEX_ZERO) {
		ix->zero_blks += e->blks;
		return;
	}
	x->crc_pos = ix->n_crc;
	memcpy(ix->crcs + ix->n_crc, e->crc, e->blks * sizeof(uint32_t));
	ix->n_crc += e->blks;
	ix->data_blks += e->blks;
	ix->spilled_blks += x->kind != INDEX_DATA ? e->blks : 0;
}

int log_index_overlay(struct log_index **ret, const struct log_index *old,
		      struct index_entry *entries, size_t n, struct card *base, struct card *card,
		      uint64_t ring_off_bytes)
{
	struct log_index *ix = log_index_empty();
	size_t crcs = old->n_crc;
	int r = ix ? index_sort(entries, n) : -ENOMEM;

	for (size_t i = 0; i < n && r == 0; i++)
		crcs += has_crc(entries[i].kind) ? entries[i].blks : 0;
	if (r == 0) {
		ix->base = base;
		ix->card = card;
		ix->ring_off_bytes = ring_off_bytes;
		ix->ext = calloc(old->n + 2 * n + 1, sizeof(*ix->ext));
		ix->crcs = calloc(crcs + 1, sizeof(*ix->crcs));
		r = ix->ext && ix->crcs ? 0 : -ENOMEM;
	}
	if (r < 0) {
		log_index_unref(ix);
		return r;
	}
	index_overlay(extent_at, old, entries, n, append, ix);
	*ret = ix;
	return 0;
}

int index_list_add(struct index_list *l, enum index_kind kind, uint64_t blk, uint64_t blks,
		   uint64_t lblk, const uint32_t *crc)
{
	size_t n_crc = has_crc(kind) ? blks : 0;
	struct index_entry *last;

	if ((n_crc && ARRAY_ROOM(l->crcs, l->cap_crcs, l->n_crcs + n_crc) < 0) ||
	    ARRAY_ROOM(l->e, l->cap, l->n + 1) < 0)
		return -ENOMEM;
	last = l->n ? &l->e[l->n - 1] : NULL;
	if (n_crc)
		memcpy(l->crcs + l->n_crcs, crc, n_crc * sizeof(*crc));
	if (last && last->kind == kind && last->blk + last->blks == blk &&
	    (!has_crc(kind) || last->lblk + last->blks == lblk))
		last->blks += blks;
	else
		l->e[l->n++] = (struct index_entry){
			.kind = kind, .blk = blk, .blks = blks, .lblk = lblk, .crc_pos = l->n_crcs
		};
	l->n_crcs += n_crc;
	return 0;
}

int index_list_overlay(struct log_index **ret, const struct log_index *old, struct index_list *l,
		       struct card *base, struct card *card, uint64_t ring_off_bytes)
{
	for (size_t i = 0; i < l->n; i++)
		/* NULL: only zero extents */
		l->e[i].crc = l->crcs ? l->crcs + l->e[i].crc_pos : NULL;
	return log_index_overlay(ret, old, l->e, l->n, base, card, ring_off_bytes);
}

void index_list_clear(struct index_list *l)
{
	free(l->e);
	free(l->crcs);
	*l = (struct index_list){ 0 };
}
