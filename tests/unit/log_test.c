/* SPDX-License-Identifier: MIT */
/* Tests of log/: index, the ring's arithmetic, checkpoints. Power cuts: tests/crash. */
#include "test.h"
#include "log/codec.h"
#include "log/index_build.h"
#include "breaks.h"
#include "logcard.h"

/* ---- index ---- */

enum { INDEX_BLKS = 200 };

struct naive {
	enum index_kind kind[INDEX_BLKS]; /* INDEX_HOME: not in it */
	uint64_t lblk[INDEX_BLKS];
	uint32_t crc[INDEX_BLKS];
};

static void compare_index(const struct log_index *ix, const struct naive *m)
{
	static const enum log_where where_of[] = { [INDEX_DATA] = LOG_DATA,
						   [INDEX_SPILL] = LOG_DATA,
						   [INDEX_ZERO] = LOG_ZERO,
						   [INDEX_HOME] = LOG_HOME };
	uint64_t data = 0, spilled = 0, zero = 0, end = 0;
	struct index_entry e;

	for (uint64_t b = 0; b < INDEX_BLKS; b++) {
		enum log_where where;
		uint64_t n = log_index_run(ix, b, INDEX_BLKS - b, &where);

		assert_in_range(n, 1, INDEX_BLKS - b);
		for (uint64_t i = 0; i < n; i++) {
			assert_int_equal(where, where_of[m->kind[b + i]]);
			if (where == LOG_DATA)
				assert_int_equal(m->lblk[b + i], m->lblk[b] + i);
		}
		data += where_of[m->kind[b]] == LOG_DATA;
		spilled += m->kind[b] == INDEX_SPILL;
		zero += m->kind[b] == INDEX_ZERO;
	}
	assert_int_equal(log_index_data_blks(ix), data);
	assert_int_equal(log_index_spilled_blks(ix), spilled);
	assert_int_equal(log_index_zero_blks(ix), zero);
	for (size_t i = 0; log_index_extent(ix, i, &e); i++) {
		assert_true(e.blk >= end && e.blks);
		end = e.blk + e.blks;
		for (uint64_t k = 0; k < e.blks; k++) {
			assert_int_equal(e.kind, m->kind[e.blk + k]);
			if (e.kind != INDEX_ZERO) {
				assert_int_equal(e.lblk + k, m->lblk[e.blk + k]);
				assert_int_equal(e.crc[k], m->crc[e.blk + k]);
			}
		}
	}
}

/* Entries that do not overlap each other, in any order. */
static void random_list(struct index_list *l, struct naive *m, uint64_t *lblk)
{
	struct {
		uint64_t blk, blks;
	} part[INDEX_BLKS];
	size_t n = 0;

	for (uint64_t b = rnd(10); b < INDEX_BLKS; n++) {
		part[n].blk = b;
		part[n].blks = min_u64(1 + rnd(1 + rnd(40)), INDEX_BLKS - b);
		b += part[n].blks + (rnd(3) ? rnd(60) : 0);
	}
	while (n) {
		size_t k = rnd(n);
		enum index_kind kind = (enum index_kind)rnd(INDEX_HOME + 1);
		uint32_t crc[INDEX_BLKS];

		rnd_fill(crc, sizeof(crc));
		assert_int_equal(index_list_add(l, kind, part[k].blk, part[k].blks, *lblk, crc), 0);
		for (uint64_t i = 0; i < part[k].blks; i++) {
			m->kind[part[k].blk + i] = kind;
			m->lblk[part[k].blk + i] = *lblk + i;
			m->crc[part[k].blk + i] = crc[i];
		}
		*lblk += part[k].blks + rnd(2);
		part[k] = part[--n];
	}
}

TEST(test_index_against_model)
{
	for (int round = 0; round < 300; round++) {
		struct log_index *ix = log_index_empty(), *next;
		struct naive m;
		uint64_t lblk = 1;

		for (int b = 0; b < INDEX_BLKS; b++)
			m.kind[b] = INDEX_HOME;
		for (int layer = 0; layer < 8; layer++) {
			struct naive before = m;
			struct index_list l = { 0 };

			random_list(&l, &m, &lblk);
			assert_int_equal(index_list_overlay(&next, ix, &l, NULL, NULL, 0), 0);
			compare_index(ix, &before);
			compare_index(next, &m);
			log_index_unref(ix);
			ix = next;
			index_list_clear(&l);
		}
		log_index_unref(ix);
	}
}

TEST(test_index_overlap)
{
	struct index_entry e[] = { { .kind = INDEX_ZERO, .blk = 5, .blks = 3 },
				   { .kind = INDEX_ZERO, .blk = 7, .blks = 1 } };
	struct log_index *ix = log_index_empty(), *next;

	assert_int_equal(log_index_overlay(&next, ix, e, 2, NULL, NULL, 0), -EINVAL);
	log_index_unref(ix);
}

/* ---- the ring's arithmetic ---- */

/* One commit of exactly this shape; it must fit where room is reported. */
static void ring_commit(struct ring *r, uint64_t logged, uint64_t direct)
{
	struct log_index *ix;

	assert_int_equal(log_begin(r->log), 0);
	for (uint64_t i = 0, n; i < direct; i += n) {
		n = min_u64(256, direct - i);
		assert_int_equal(log_add_direct(r->log, i, n, r->data), 0);
	}
	for (uint64_t i = 0, n; i < logged; i += n) {
		n = min_u64(1 + rnd(256), logged - i);
		assert_int_equal(log_add_logged(r->log, direct + i, n, r->data), 0);
	}
	assert_int_equal(log_end(r->log, CAUSE_MANUAL, 0, &ix), 0);
	log_index_unref(ix);
}

static void ring_checkpoint(struct ring *r)
{
	struct log_index *ix;

	assert_int_equal(log_checkpoint(r->log, NULL, NULL, NULL, &ix), 0);
	log_index_unref(ix);
	assert_int_equal(log_put_tail(r->log, RECORD_TAIL, 0, CAUSE_MANUAL), 0);
	assert_true(log_room_blks(r->log) >= log_capacity_blks(r->log));
}

static void ring_attach_again(struct ring *r)
{
	uint64_t seq = log_newest(r->log)->seq;

	log_close(r->log);
	ring_open(r);
	assert_int_equal(log_newest(r->log)->seq, seq);
	assert_int_equal(r->rep.rejected, 0);
	assert_int_equal(log_prepare(r->log), 0);
}

/* Long runs: the reported room always fits, a checkpoint always returns all of it, and an attach
 * finds the newest. */
TEST(test_ring_room)
{
	struct ring r = { .data = io_alloc(256 * COW_BLK_BYTES) };

	for (unsigned round = 0; round < 6; round++) {
		unsigned full = 0;
		uint64_t seed = round, missing;

		rnd_begin(seed + 77);
		r.c = card_of(12 * MIB, 64 * KIB, 0);
		assert_int_equal(
			super_plan(r.c, r.c, 4 * MIB, (384 + 64 * round) * KIB, &r.super, &missing),
			0);
		if (round % 2) { /* two segments an erase block */
			r.super.erase_block_bytes = 128 * KIB;
			r.super.seg_count = max_u64(10, r.super.seg_count / 2 * 2);
		}
		assert_int_equal(super_write(r.c, &r.super), 0);
		ring_open(&r);
		assert_int_equal(r.rep.state, LOG_EMPTY);
		assert_int_equal(log_prepare(r.log), 0);
		for (int i = 0; i < 1500; i++) {
			uint64_t room = log_room_blks(r.log), direct = rnd(4) ? rnd(10) : rnd(500),
				 logged;

			/* as much as fits, a little, or a random amount */
			for (logged = rnd(3) ? rnd(20) : room; logged; logged--)
				if (logged +
					    log_meta_blks(r.log, logged, direct, logged + direct) <=
				    room)
					break;
			if (logged + log_meta_blks(r.log, logged, direct, logged + direct) > room) {
				ring_checkpoint(&r);
				full++;
				continue;
			}
			ring_commit(&r, logged, direct);
			/* it may have freed the segment of the previous record, if that held
			 * nothing else */
			assert_true(log_room_blks(r.log) <
				    room + r.super.seg_bytes / COW_BLK_BYTES);
			if (rnd(20) == 0)
				ring_attach_again(&r);
		}
		assert_true(full > 20);
		log_close(r.log);
		card_close(r.c);
	}
	free(r.data);
}

/* R10: spilled blocks stay reserved until the tail record, not only until the checkpoint. */
TEST(test_spill_is_reserved)
{
	struct ring r = { .data = io_alloc(256 * COW_BLK_BYTES) };
	struct log_index *ix;

	r.c = formatted(&r.super);
	ring_open(&r);
	assert_int_equal(log_prepare(r.log), 0);
	assert_int_equal(log_begin(r.log), 0);
	assert_int_equal(log_add_spilled(r.log, 3, 2, 100, r.data), 0);
	assert_false(log_spilled(r.log));
	assert_int_equal(log_end(r.log, CAUSE_MANUAL, 0, &ix), 0);
	log_index_unref(ix);
	assert_true(log_spilled(r.log));
	ring_attach_again(&r);
	assert_true(log_spilled(r.log));
	assert_int_equal(log_checkpoint(r.log, NULL, NULL, NULL, &ix), 0);
	log_index_unref(ix);
	assert_true(log_spilled(r.log));
	assert_int_equal(log_begin(r.log), 0);
	assert_breaks("R10 spill", log_add_spilled(r.log, 7, 1, 101, r.data));
	log_abort(r.log);
	assert_int_equal(log_prepare(r.log), 0); /* its record carries the tail */
	assert_false(log_spilled(r.log));
	log_close(r.log);
	card_close(r.c);
	free(r.data);
}

/* ---- a checkpoint from RAM ---- */

struct at_hand {
	uint8_t *data;
	unsigned calls;
	uint64_t not_blk, wrong_blk; /* refused; content other than the logged one */
};

static bool read_at_hand(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct at_hand *h = ctx;

	h->calls++;
	memcpy(buf, h->data + blk_to_bytes(blk), blk_to_bytes(blks));
	if (h->wrong_blk >= blk && h->wrong_blk < blk + blks)
		((uint8_t *)buf)[blk_to_bytes(h->wrong_blk - blk) + 5] ^= 1;
	return h->not_blk < blk || h->not_blk >= blk + blks;
}

/* Logs four runs of eight blocks, spoils the payload of those below end_blk, checkpoints. */
static int checkpoint_at_hand(struct at_hand *h, uint64_t end_blk)
{
	const struct log_content content = { .read = read_at_hand, .ctx = h };
	uint8_t *home = io_alloc(8 * COW_BLK_BYTES);
	struct log_index *ix;
	struct index_entry e;
	struct ring r = { 0 };
	int res;

	r.c = formatted(&r.super);
	ring_open(&r);
	assert_int_equal(log_prepare(r.log), 0);
	assert_int_equal(log_begin(r.log), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(log_add_logged(r.log, i * 16, 8, h->data + blk_to_bytes(i * 16)),
				 0);
	assert_int_equal(log_end(r.log, CAUSE_MANUAL, 0, &ix), 0);
	assert_int_equal(card_set_writable(r.c, true), 0);
	memset(home, 0xee, 8 * COW_BLK_BYTES);
	for (size_t i = 0; log_index_extent(ix, i, &e) && e.blk < end_blk; i++)
		assert_int_equal(card_write(r.c, r.super.ring_off_bytes + blk_to_bytes(e.lblk),
					    home, COW_BLK_BYTES),
				 0);
	log_index_unref(ix);
	res = log_checkpoint(r.log, &content, NULL, NULL, &ix);
	if (res == 0) {
		log_index_unref(ix);
		for (unsigned i = 0; i < 4; i++) {
			assert_int_equal(
				card_read(r.c, blk_to_bytes(i * 16), home, 8 * COW_BLK_BYTES), 0);
			assert_memory_equal(home, h->data + blk_to_bytes(i * 16),
					    8 * COW_BLK_BYTES);
		}
	}
	log_close(r.log);
	card_close(r.c);
	free(home);
	return res;
}

/* The log is read where RAM has no content or other content, and nowhere else. */
TEST(test_checkpoint_at_hand)
{
	struct at_hand h = { .data = io_alloc(64 * COW_BLK_BYTES),
			     .not_blk = 1000,
			     .wrong_blk = 1000 };

	for (size_t i = 0; i < 64 * COW_BLK_BYTES; i++)
		h.data[i] = (uint8_t)rnd(256);
	assert_int_equal(checkpoint_at_hand(&h, 64), 0);
	assert_true(h.calls >= 4);
	h.wrong_blk = 3 * 16 + 7;
	assert_int_equal(checkpoint_at_hand(&h, 48), 0);
	assert_int_equal(checkpoint_at_hand(&h, 64), -EBADMSG);
	h.wrong_blk = 1000;
	h.not_blk = 3 * 16;
	assert_int_equal(checkpoint_at_hand(&h, 48), 0);
	assert_int_equal(checkpoint_at_hand(&h, 64), -EBADMSG);
	free(h.data);
}

/* ---- one log, two cards ---- */

static void commit_block(struct log *l, uint64_t blk, uint8_t byte)
{
	uint8_t *buf = io_alloc(COW_BLK_BYTES);
	struct log_index *ix;

	memset(buf, byte, COW_BLK_BYTES);
	assert_int_equal(log_prepare(l), 0);
	assert_int_equal(log_begin(l), 0);
	assert_int_equal(log_add_logged(l, blk, 1, buf), 0);
	assert_int_equal(log_end(l, CAUSE_MANUAL, 0, &ix), 0);
	log_index_unref(ix);
	free(buf);
}

static struct log *reopen(struct card *c, struct log_open_report *rep)
{
	struct log_super s;
	struct log *l;
	unsigned trouble;

	assert_int_equal(super_read(c, 4 * MIB, &s, &trouble), 0);
	assert_int_equal(log_open(&l, c, c, &s, 0, NULL, rep), 0);
	return l;
}

/* A card that was copied to another one: the generations stay, the ledger starts again. */
TEST(test_clone)
{
	struct log_super s;
	struct log_open_report rep;
	struct card *c = formatted(&s), *d;
	struct log *l = reopen(c, &rep);

	assert_int_equal(card_set_writable(c, true), 0);
	commit_block(l, 7, 1);
	commit_block(l, 8, 2);
	log_close(l);
	l = reopen(c, &rep);
	assert_false(rep.clone);
	assert_int_equal(rep.ledger.commits, 2);
	log_close(l);

	d = resized(c, 10 * MIB);
	snprintf(d->geo.identity, sizeof(d->geo.identity), "another");
	l = reopen(d, &rep);
	assert_true(rep.clone);
	assert_int_equal(rep.state, LOG_LIVE);
	assert_int_equal(rep.live_blks, 2);
	assert_int_equal(rep.ledger.commits, 0);
	assert_int_equal(log_ledger(l)->attaches, 1);
	assert_int_equal(card_set_writable(d, true), 0);
	commit_block(l, 9, 3);
	log_close(l);
	/* its own log from now on */
	l = reopen(d, &rep);
	assert_false(rep.clone);
	assert_int_equal(rep.live_blks, 3);
	assert_int_equal(rep.ledger.commits, 1);
	log_close(l);
	/* a card without an identity is never called a clone */
	d->geo.identity[0] = '\0';
	l = reopen(d, &rep);
	assert_false(rep.clone);
	log_close(l);
	/* one of a single character has one */
	for (const char *id = "xy"; *id; id++) {
		snprintf(d->geo.identity, sizeof(d->geo.identity), "%c", *id);
		l = reopen(d, &rep);
		assert_true(rep.clone);
		commit_block(l, 10, 4);
		log_close(l);
	}
	card_close(c);
	card_close(d);
}
