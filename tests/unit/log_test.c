/* SPDX-License-Identifier: MIT */
/* Tests of log/: codec, index, super record, and the ring's arithmetic. Power cuts: tests/crash. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "card/sim.h"
#include "log/codec.h"
#include "log/index_build.h"
#include "log/log.h"

static uint64_t rnd_state = 1;

static uint64_t rnd(uint64_t below)
{
	rnd_state = rnd_state * 6364136223846793005u + 1442695040888963407u;
	return (rnd_state >> 33) % below;
}

static void rnd_fill(void *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = (uint8_t)rnd(256);
}

/* ---- codec ---- */

static const uint8_t UUID[16] = "ring uuid 123456";

static struct log_super some_super(void)
{
	struct log_super s = { .version = LOG_FORMAT_VERSION,
			       .compat = 5,
			       .state = SUPER_LIVE,
			       .revision = 7,
			       .fs_bytes = 64 * MIB,
			       .base_bytes = 200 * MIB,
			       .log_bytes = 200 * MIB,
			       .copy_off_bytes = { 64 * MIB, 200 * MIB - COW_BLK_BYTES },
			       .ring_off_bytes = 68 * MIB,
			       .seg_bytes = 4 * MIB,
			       .seg_count = 8,
			       .erase_block_bytes = 4 * MIB,
			       .eb_source = CARD_EB_CONFIGURED,
			       .disk_off_bytes = MIB,
			       .created_s = 1700000000 };

	memcpy(s.ring_uuid, UUID, 16);
	rnd_fill(s.fs_uuid, 16);
	return s;
}

static struct log_record some_record(void)
{
	struct log_record r = { .type = RECORD_COMMIT,
				.flags = RECORD_CLEAN,
				.epoch = 3ull << 32 | 99,
				.seq = 1000,
				.lblk = 77,
				.prev = { 998, 2ull << 32, 70 },
				.tail_seq = 990,
				.floor_seq = 1000,
				.fallback_seq = 998,
				.start_lblk = 71,
				.desc_lblk = 76,
				.desc_blks = 1,
				.desc_crc = 0xdeadbeef,
				.desc_epoch = 3ull << 32 | 99,
				.desc_seq = 1000,
				.direct_blks = 11,
				.logged_blks = 12,
				.zero_blks = 13,
				.cause = CAUSE_SHUTDOWN,
				.time_s = 1700000001,
				.identity = "a card" };

	memcpy(r.ring_uuid, UUID, 16);
	r.fingerprint = (struct fs_fingerprint){ .kind = FS_EXT, .mtime = 1, .wtime = 2, .mnt_count = 3, .state = 4 };
	rnd_fill(&r.ledger, sizeof(r.ledger));
	return r;
}

typedef int decode(const uint8_t *blk);

static int decode_super(const uint8_t *blk)
{
	struct log_super s;

	return codec_get_super(blk, &s);
}

static int decode_head(const uint8_t *blk)
{
	struct log_head h;

	return codec_get_head(blk, UUID, &h);
}

static int decode_record(const uint8_t *blk)
{
	struct log_record r;

	return codec_get_record(blk, UUID, &r);
}

static int decode_desc(const uint8_t *blk)
{
	static struct desc_cursor c;
	struct desc_extent e;
	int r = desc_open(&c, blk, UUID, 9, 8, 7);

	while (r == 0 && (r = desc_next(&c, &e)) == 1)
		r = 0;
	return r;
}

/* Each byte, one bit and all bits of it. */
static void each_flip_is_detected(uint8_t *blk, decode *f)
{
	assert_int_equal(f(blk), 0);
	for (size_t i = 0; i < COW_BLK_BYTES; i++)
		for (int k = 0; k < 2; k++) {
			uint8_t mask = k ? 0xff : (uint8_t)(1 << i % 8);

			blk[i] ^= mask;
			assert_true(f(blk) < 0);
			blk[i] ^= mask;
		}
	assert_int_equal(f(blk), 0);
}

static void test_super_codec(void **state)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 }, again[COW_BLK_BYTES] = { 0 };
	struct log_super s = some_super(), t;

	(void)state;
	codec_put_super(blk, &s);
	assert_int_equal(codec_get_super(blk, &t), 0);
	assert_int_equal(t.revision, 7);
	assert_int_equal(t.seg_count, 8);
	assert_int_equal(t.copy_off_bytes[1], s.copy_off_bytes[1]);
	assert_memory_equal(t.fs_uuid, s.fs_uuid, 16);
	codec_put_super(again, &t);
	assert_memory_equal(blk, again, sizeof(blk));
	each_flip_is_detected(blk, decode_super);
}

/* Sums that are right, fields that are not. */
static void test_super_nonsense(void **state)
{
	uint8_t blk[COW_BLK_BYTES];
	struct log_super t;

	(void)state;
	for (int i = 0; i < 27; i++) {
		struct log_super s = some_super();
		int want = -EUCLEAN;

		switch (i) {
		case 0: s.seg_count = 0; break;
		case 1: s.seg_count = UINT32_MAX; break;
		case 2: s.seg_bytes = 4096; break;
		case 3: s.seg_bytes = 64 * KIB + 512; break;
		case 4: s.ring_off_bytes = UINT64_MAX - 4095; break;
		case 5: s.ring_off_bytes = 180 * MIB; break;
		case 6: s.ring_off_bytes = 60 * MIB; break;
		case 7: s.fs_bytes = 0; break;
		case 8: s.fs_bytes = 300 * MIB; break;
		case 9: s.copy_off_bytes[1] = 200 * MIB; break;
		case 10: s.erase_block_bytes = 0; break;
		case 11: s.external = 2; break;
		case 12: s.version = 2; want = -EPROTONOSUPPORT; break;
		case 13: s.incompat = 1; want = -EPROTONOSUPPORT; break;
		case 14: s.ro_compat = 1; want = -EPROTONOSUPPORT; break;
		case 15: s.state = 0; break;
		case 16: s.state = SUPER_PENDING + 1; break;
		case 17: s.seg_bytes = 8 * MIB; break;
		case 18: s.erase_block_bytes = 4 * MIB + 512; break;
		case 19: s.log_bytes = UINT64_MAX; break;
		case 20: s.base_bytes = UINT64_MAX; break;
		case 21: s.copy_off_bytes[0] += 512; break;
		case 22: s.copy_off_bytes[1] -= 512; break;
		case 23: s.copy_off_bytes[0] = 200 * MIB; break;
		case 24: s.fs_bytes += 512; break;
		case 25: s.ring_off_bytes += 512; break;
		case 26: s.lag = LOG_MAX_LAG + 1; want = -EPROTONOSUPPORT; break;
		}
		memset(blk, 0, sizeof(blk));
		codec_put_super(blk, &s);
		assert_int_equal(codec_get_super(blk, &t), want);
	}
}

static void test_head_codec(void **state)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 }, again[COW_BLK_BYTES] = { 0 };
	struct log_head h = { .epoch = 1ull << 40, .serial = 12, .seg = 3, .last = { 5, 6, 7 }, .fallback_seq = 4 }, t;

	(void)state;
	memcpy(h.ring_uuid, UUID, 16);
	codec_put_head(blk, &h);
	assert_int_equal(codec_get_head(blk, UUID, &t), 0);
	assert_int_equal(t.serial, 12);
	assert_int_equal(t.last.lblk, 7);
	codec_put_head(again, &t);
	assert_memory_equal(blk, again, sizeof(blk));
	assert_int_equal(codec_get_head(blk, (const uint8_t *)"another ring uui", &t), -ENOENT);
	each_flip_is_detected(blk, decode_head);
}

static void test_record_codec(void **state)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 }, again[COW_BLK_BYTES] = { 0 };
	struct log_record r = some_record(), t;

	(void)state;
	codec_put_record(blk, &r);
	assert_int_equal(codec_get_record(blk, UUID, &t), 0);
	assert_int_equal(t.prev.seq, 998);
	assert_int_equal(t.desc_crc, 0xdeadbeef);
	assert_string_equal(t.identity, "a card");
	assert_memory_equal(&t.ledger, &r.ledger, sizeof(r.ledger));
	codec_put_record(again, &t);
	assert_memory_equal(blk, again, sizeof(blk));
	assert_int_equal(codec_get_record(blk, (const uint8_t *)"another ring uui", &t), -ENOENT);
	each_flip_is_detected(blk, decode_record);
}

static void test_record_nonsense(void **state)
{
	uint8_t blk[COW_BLK_BYTES];
	struct log_record t;

	(void)state;
	for (int i = 0; i < 9; i++) {
		struct log_record r = some_record();

		switch (i) {
		case 0: r.type = 0; break;
		case 1: r.type = RECORD_RETIRED + 1; break;
		case 2: r.seq = 0; break;
		case 3: r.prev.seq = 1000; break; /* a chain must end */
		case 4: r.tail_seq = 1001; break;
		case 5: r.tail_seq = 0; break;
		case 6: r.fallback_seq = 1001; break;
		case 7: r.floor_seq = 1001; break;
		case 8: r.prev.seq = 1001; break;
		}
		memset(blk, 0, sizeof(blk));
		codec_put_record(blk, &r);
		assert_int_equal(codec_get_record(blk, UUID, &t), -EUCLEAN);
	}
}

static void test_desc_codec(void **state)
{
	static struct desc_cursor c;
	uint8_t blk[COW_BLK_BYTES] = { 0 };
	uint32_t crc[2000], n_full;
	struct desc_writer w;
	struct desc_extent e;

	(void)state;
	rnd_fill(crc, sizeof(crc));
	desc_start(&w, blk);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ DESC_LOGGED, 3, 10, 100, crc }), 3);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ .type = DESC_ZERO, .blks = 4000000, .blk = 20 }), 4000000);
	n_full = desc_put(&w, &(struct desc_extent){ DESC_DIRECT, 2000, 5, 0, crc });
	assert_in_range(n_full, 900, 1000);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ DESC_DIRECT, 1, 5, 0, crc }), 0);
	desc_seal(&w, UUID, 9, 8, 7);
	assert_int_equal(desc_open(&c, blk, UUID, 9, 8, 6), -EBADMSG);
	assert_int_equal(desc_open(&c, blk, UUID, 9, 7, 7), -EBADMSG);
	assert_int_equal(desc_open(&c, blk, UUID, 9, 8, 7), 0);
	assert_int_equal(desc_next(&c, &e), 1);
	assert_true(e.type == DESC_LOGGED && e.blks == 3 && e.blk == 10 && e.lblk == 100);
	assert_memory_equal(e.crc, crc, 12);
	assert_int_equal(desc_next(&c, &e), 1);
	assert_true(e.type == DESC_ZERO && e.blks == 4000000 && !e.crc);
	assert_int_equal(desc_next(&c, &e), 1);
	assert_true(e.type == DESC_DIRECT && e.blks == n_full);
	assert_memory_equal(e.crc, crc, n_full * 4);
	assert_int_equal(desc_next(&c, &e), 0);
	each_flip_is_detected(blk, decode_desc);
}

/* Room for an extent's head and none of its CRCs: the next block takes it, what needs no CRC still fits. */
static void test_desc_brim(void **state)
{
	static struct desc_cursor c;
	static const uint32_t crc[1000];
	uint8_t blk[COW_BLK_BYTES] = { 0 };
	struct desc_writer w;
	struct desc_extent e;

	(void)state;
	desc_start(&w, blk);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ DESC_LOGGED, 996, 10, 100, crc }), 996);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ DESC_LOGGED, 1, 5, 7, crc }), 0);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ .type = DESC_ZERO, .blks = 9, .blk = 20 }), 9);
	desc_seal(&w, UUID, 9, 8, 7);
	assert_int_equal(desc_open(&c, blk, UUID, 9, 8, 7), 0);
	assert_int_equal(desc_next(&c, &e), 1);
	assert_int_equal(desc_next(&c, &e), 1);
	assert_true(e.type == DESC_ZERO && e.blk == 20 && e.blks == 9);
	assert_int_equal(desc_next(&c, &e), 0);
}

/* Sums that are right, extents that are not. */
static void test_desc_nonsense(void **state)
{
	static const uint32_t crc[4];
	static const struct desc_extent bad[] = {
		{ 0, 1, 1, 0, crc },
		{ DESC_SPILLED + 1, 1, 1, 0, crc },
		{ DESC_LOGGED, 1, (uint64_t)INT64_MAX / COW_BLK_BYTES + 1, 1, crc },
		{ DESC_LOGGED, 1, 1, (uint64_t)INT64_MAX / COW_BLK_BYTES + 1, crc },
		{ DESC_SPILLED, 1, 1, UINT64_MAX, crc },
	};
	uint8_t blk[COW_BLK_BYTES];
	struct desc_writer w;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		memset(blk, 0, sizeof(blk));
		desc_start(&w, blk);
		assert_int_equal(desc_put(&w, &bad[i]), 1);
		desc_seal(&w, UUID, 9, 8, 7);
		assert_int_equal(decode_desc(blk), -EUCLEAN);
	}
	/* more CRCs than a block could hold */
	memset(blk, 0, sizeof(blk));
	desc_start(&w, blk);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ DESC_LOGGED, 1, 1, 1, crc }), 1);
	blk[DESC_HEADER_BYTES + 5] = 0x10;
	desc_seal(&w, UUID, 9, 8, 7);
	assert_int_equal(decode_desc(blk), -EUCLEAN);
	/* an extent over the end of the block, its head or its CRCs */
	for (uint32_t n = 996; n <= 997; n++) {
		static const uint32_t many[1000];

		memset(blk, 0, sizeof(blk));
		desc_start(&w, blk);
		assert_int_equal(desc_put(&w, &(struct desc_extent){ DESC_LOGGED, n, 10, 100, many }), n);
		w.extents++;
		blk[w.pos] = DESC_LOGGED;
		blk[w.pos + 4] = 1;
		desc_seal(&w, UUID, 9, 8, 7);
		assert_int_equal(decode_desc(blk), -EUCLEAN);
	}
	/* more extents than the block holds */
	memset(blk, 0, sizeof(blk));
	desc_start(&w, blk);
	while (desc_put(&w, &(struct desc_extent){ .type = DESC_ZERO, .blks = 1, .blk = 5 }))
		;
	w.extents++;
	desc_seal(&w, UUID, 9, 8, 7);
	assert_int_equal(decode_desc(blk), -EUCLEAN);
}

/* ---- index ---- */

enum { INDEX_BLKS = 200 };

struct naive {
	enum index_kind kind[INDEX_BLKS]; /* INDEX_HOME: not in it */
	uint64_t lblk[INDEX_BLKS];
	uint32_t crc[INDEX_BLKS];
};

static void compare_index(const struct log_index *ix, const struct naive *m)
{
	static const enum log_where where_of[] = {
		[INDEX_DATA] = LOG_DATA, [INDEX_SPILL] = LOG_DATA, [INDEX_ZERO] = LOG_ZERO, [INDEX_HOME] = LOG_HOME
	};
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
		data += m->kind[b] == INDEX_DATA || m->kind[b] == INDEX_SPILL;
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
		enum index_kind kind = (enum index_kind)rnd(4);
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

static void test_index_against_model(void **state)
{
	(void)state;
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

static void test_index_overlap(void **state)
{
	struct index_entry e[] = { { .kind = INDEX_ZERO, .blk = 5, .blks = 3 }, { .kind = INDEX_ZERO, .blk = 7, .blks = 1 } };
	struct log_index *ix = log_index_empty(), *next;

	(void)state;
	assert_int_equal(log_index_overlay(&next, ix, e, 2, NULL, NULL, 0), -EINVAL);
	log_index_unref(ix);
}

/* ---- super record ---- */

static struct card *card_of(uint64_t size_bytes, uint32_t eb_bytes, uint64_t disk_off_bytes)
{
	struct sim_params p = { .size_bytes = size_bytes, .erase_block_bytes = eb_bytes, .disk_off_bytes = disk_off_bytes };
	struct card *c;

	assert_int_equal(sim_new(&c, &p), 0);
	assert_int_equal(card_set_writable(c, true), 0);
	return c;
}

static void test_plan_alignment(void **state)
{
	static const uint32_t ebs[] = { 4 * MIB, 3 * MIB, 12 * MIB, 64 * KIB, 16 * KIB, 512 * KIB, 6 * MIB };
	static const uint64_t offs[] = { 0, MIB, 32 * KIB, 4 * MIB + 12 * KIB, 8192 * 512 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ebs); i++)
		for (size_t k = 0; k < ARRAY_SIZE(offs); k++) {
			struct card *c = card_of(400 * MIB, ebs[i], offs[k]);
			uint64_t missing, ring_bytes, unit;
			struct log_super s;

			assert_int_equal(super_plan(c, c, 100 * MIB + 4096, 0, &s, &missing), 0);
			ring_bytes = (uint64_t)s.seg_bytes * s.seg_count;
			unit = max_u64(ebs[i], s.seg_bytes);
			assert_int_equal((s.ring_off_bytes + offs[k]) % unit, 0);
			assert_true(ring_bytes >= max_u64(32 * MIB, 8ull * ebs[i]));
			assert_int_equal(ring_bytes % ebs[i], 0);
			/* segments fill erase blocks, or the other way round */
			assert_true(ebs[i] % s.seg_bytes == 0 || s.seg_bytes % ebs[i] == 0);
			assert_in_range(s.seg_bytes, LOG_MIN_SEG_BYTES, LOG_MAX_SEG_BYTES);
			assert_true(s.seg_count >= LOG_MIN_SEGMENTS);
			assert_int_equal(s.copy_off_bytes[0], 100 * MIB + 4096);
			assert_true(s.ring_off_bytes > s.copy_off_bytes[0]);
			assert_true(s.ring_off_bytes + ring_bytes <= s.copy_off_bytes[1]);
			assert_int_equal(s.copy_off_bytes[1], 400 * MIB - COW_BLK_BYTES);
			assert_int_equal(super_write(c, &s), 0);
			card_close(c);
		}
}

static void test_plan_limits(void **state)
{
	struct card *c = card_of(100 * MIB, 4 * MIB, 0), *log = card_of(40 * MIB, 4 * MIB, 0);
	uint64_t missing, enough;
	struct log_super s;

	(void)state;
	assert_int_equal(super_plan(c, c, 90 * MIB, 0, &s, &missing), -ENOSPC);
	assert_in_range(missing, 20 * MIB, 32 * MIB);
	/* what it says is enough, and one block less is not */
	enough = missing;
	assert_int_equal(super_plan(c, c, 90 * MIB - enough + COW_BLK_BYTES, 0, &s, &missing), -ENOSPC);
	assert_int_equal(missing, COW_BLK_BYTES);
	assert_int_equal(super_plan(c, c, 90 * MIB - enough, 0, &s, &missing), 0);
	assert_int_equal(super_plan(c, c, 10 * MIB, 8 * MIB, &s, &missing), -EINVAL);
	assert_int_equal(super_plan(c, log, 100 * MIB, 0, &s, &missing), 0);
	assert_int_equal(s.external, 1);
	assert_int_equal(s.copy_off_bytes[0], 0);
	card_close(c);
	card_close(log);
}

/* An erase block of which no part is a good segment; a log of more segments, or fewer erase blocks, than there may be. */
static void test_plan_odd(void **state)
{
	static const uint32_t prime = 1031 * COW_BLK_BYTES;
	struct card *c = card_of(400 * MIB, prime, 0);
	uint64_t missing;
	struct log_super s;

	(void)state;
	assert_int_equal(super_plan(c, c, 100 * MIB, 0, &s, &missing), 0);
	assert_int_equal(s.seg_bytes, LOG_MAX_SEG_BYTES);
	assert_int_equal(s.ring_off_bytes % prime, 0);
	assert_true(s.seg_count >= LOG_MIN_SEGMENTS);
	assert_true(s.ring_off_bytes + (uint64_t)s.seg_bytes * s.seg_count <= s.copy_off_bytes[1]);
	card_close(c);
	c = card_of(100 * MIB, 64 * KIB, 0);
	assert_int_equal(super_plan(c, c, 50 * MIB, (LOG_MAX_SEGMENTS + 1ull) * 64 * KIB, &s, &missing), -EINVAL);
	card_close(c);
	c = card_of(100 * MIB, 16 * MIB, 0);
	assert_int_equal(super_plan(c, c, 10 * MIB, 64 * MIB, &s, &missing), -EINVAL);
	card_close(c);
}

/* What is missing where it is the volume that is too small, or the log's device by itself. */
static void test_plan_external_short(void **state)
{
	struct card *c = card_of(64 * MIB, 64 * KIB, 0), *log = card_of(MIB, 64 * KIB, 0);
	uint64_t missing;
	struct log_super s;

	(void)state;
	assert_int_equal(super_plan(c, log, 64 * MIB + 8192, 512 * KIB, &s, &missing), -ENOSPC);
	assert_int_equal(missing, 8192);
	assert_int_equal(super_plan(c, log, 64 * MIB, 2 * MIB, &s, &missing), -ENOSPC);
	assert_in_range(missing, MIB, MIB + 128 * KIB);
	card_close(log);
	log = card_of(MIB + missing, 64 * KIB, 0);
	assert_int_equal(super_plan(c, log, 64 * MIB, 2 * MIB, &s, &missing), 0);
	card_close(log);
	/* a card smaller than the log alone */
	log = card_of(MIB, 64 * KIB, 0);
	assert_int_equal(super_plan(log, log, 64 * KIB, 2 * MIB, &s, &missing), -ENOSPC);
	assert_in_range(missing, MIB, MIB + 256 * KIB);
	card_close(log);
	/* a partition that begins in the middle of its first erase block, and is not longer than the log */
	log = card_of(512 * KIB + 2 * COW_BLK_BYTES, 64 * KIB, 60 * KIB);
	assert_int_equal(super_plan(log, log, 4 * KIB, 512 * KIB, &s, &missing), -ENOSPC);
	assert_true(missing > 0);
	card_close(log);
	card_close(c);
}

/* Both devices of an external log grow: the volume with its device. */
static void test_grow_external(void **state)
{
	struct card *c = card_of(64 * MIB, 64 * KIB, 0), *log = card_of(2 * MIB, 64 * KIB, 0), *grown;
	struct log_super s, t;
	uint64_t missing;
	unsigned trouble;

	(void)state;
	assert_int_equal(super_plan(c, log, 64 * MIB, MIB, &s, &missing), 0);
	assert_int_equal(super_write(log, &s), 0);
	grown = card_of(3 * MIB, 64 * KIB, 0);
	assert_int_equal(super_grow(grown, &s, 80 * MIB + 512), 0);
	assert_int_equal(super_read(grown, 0, &t, &trouble), 0);
	assert_int_equal(trouble, 0);
	assert_int_equal(t.fs_bytes, 80 * MIB);
	assert_int_equal(t.log_bytes, 3 * MIB);
	assert_int_equal(t.copy_off_bytes[1], 3 * MIB - COW_BLK_BYTES);
	card_close(grown);
	card_close(log);
	card_close(c);
}

static void test_pending_places(void **state)
{
	struct card c = { .geo.size_bytes = 100 * MIB };

	(void)state;
	assert_int_equal(super_pending_off(&c, 0), 100 * MIB - COW_BLK_BYTES);
	assert_int_equal(super_pending_off(&c, 3), 100 * MIB - 8 * COW_BLK_BYTES);
	assert_int_equal(super_pending_off(&c, 14), 36 * MIB);
	assert_int_equal(super_pending_off(&c, 15), 0);
	assert_int_equal(super_pending_off(&c, 32), 0);
	assert_int_equal(super_pending_off(&c, 63), 0);
}

/* A file system that somebody grew over the ring owns it; one beside its log, or one that is being shrunk, does not. */
static void test_overgrown(void **state)
{
	struct log_super s = some_super();

	(void)state;
	assert_false(super_overgrown(&s, 0));
	assert_false(super_overgrown(&s, s.fs_bytes));
	assert_true(super_overgrown(&s, s.fs_bytes + 1024));
	s.external = 1;
	assert_false(super_overgrown(&s, s.fs_bytes + 1024));
	s.external = 0;
	s.state = SUPER_PENDING;
	assert_false(super_overgrown(&s, s.fs_bytes + 1024));
}

static void damage(struct card *c, uint64_t off)
{
	assert_int_equal(sim_poke(c, off + 100, "rot", 3), 0);
}

static struct card *formatted(struct log_super *s)
{
	struct card *c = card_of(10 * MIB, 64 * KIB, 0);
	uint64_t missing;

	assert_int_equal(super_plan(c, c, 4 * MIB, 512 * KIB, s, &missing), 0);
	assert_int_equal(super_write(c, s), 0);
	return c;
}

static void test_super_copies(void **state)
{
	struct log_super s, t;
	unsigned trouble;

	(void)state;
	for (int mask = 0; mask < 4; mask++)
		for (int known = 0; known < 2; known++) {
			struct card *c = formatted(&s);
			int want = mask == 3 ? -EBADMSG : 0, r;

			if (mask & 1)
				damage(c, s.copy_off_bytes[0]);
			if (mask & 2)
				damage(c, s.copy_off_bytes[1]);
			r = super_read(c, known ? 4 * MIB : 0, &t, &trouble);
			/* with B gone and the file system's end unknown, A cannot be found */
			if (mask >= 2 && !known)
				want = r == -ENOENT ? -ENOENT : -EBADMSG;
			assert_int_equal(r, want);
			if (r == 0)
				assert_int_equal(trouble, (mask & 1 ? SUPER_COPY_A_BAD : 0) |
								  (mask & 2 ? SUPER_COPY_B_BAD : 0));
			card_close(c);
		}
}

/* One copy damaged, no answer about the other: not "damaged", the card may be well tomorrow. */
static void test_super_no_answer(void **state)
{
	struct log_super s, t;
	unsigned trouble;

	(void)state;
	for (int copy = 0; copy < 2; copy++) {
		struct card *c = formatted(&s);

		damage(c, s.copy_off_bytes[copy]);
		sim_fail_at(c, SIM_READ, copy ? 2 : 1, -ENXIO, false); /* B is read first */
		assert_int_equal(super_read(c, 4 * MIB, &t, &trouble), -ENXIO);
		card_close(c);
	}
}

static void test_super_newest_copy(void **state)
{
	struct log_super s, t;
	uint8_t *old = io_alloc(COW_BLK_BYTES);
	unsigned trouble;

	(void)state;
	for (int copy = 0; copy < 2; copy++) {
		struct card *c = formatted(&s);

		assert_int_equal(sim_peek(c, s.copy_off_bytes[copy], old, COW_BLK_BYTES), 0);
		s.state = SUPER_LIVE;
		assert_int_equal(super_write(c, &s), 0);
		assert_int_equal(sim_poke(c, s.copy_off_bytes[copy], old, COW_BLK_BYTES), 0);
		assert_int_equal(super_read(c, 4 * MIB, &t, &trouble), 0);
		assert_int_equal(t.state, SUPER_LIVE);
		assert_int_equal(trouble, copy ? SUPER_COPY_B_BAD : SUPER_COPY_A_BAD);
		card_close(c);
	}
	free(old);
}

/* Copies a card to one of another size, as a partition that was resized. */
static struct card *resized(struct card *from, uint64_t size_bytes)
{
	struct card *c = card_of(size_bytes, 64 * KIB, 0);
	uint8_t *blk = io_alloc(COW_BLK_BYTES);

	for (uint64_t off = 0; off < min_u64(size_bytes, from->geo.size_bytes); off += COW_BLK_BYTES) {
		assert_int_equal(sim_peek(from, off, blk, COW_BLK_BYTES), 0);
		assert_int_equal(sim_poke(c, off, blk, COW_BLK_BYTES), 0);
	}
	free(blk);
	return c;
}

static void test_super_other_sizes(void **state)
{
	struct log_super s, t;
	struct card *c = formatted(&s), *d;
	unsigned trouble = 0;

	(void)state;
	d = resized(c, 12 * MIB);
	assert_int_equal(super_read(d, 4 * MIB, &t, &trouble), 0);
	assert_int_equal(trouble, SUPER_GROWN);
	damage(d, s.copy_off_bytes[1]);
	assert_int_equal(super_read(d, 4 * MIB, &t, &trouble), 0);
	assert_int_equal(trouble, SUPER_GROWN | SUPER_COPY_B_BAD);
	card_close(d);
	d = resized(c, 9 * MIB);
	assert_int_equal(super_read(d, 4 * MIB, &t, &trouble), -ERANGE);
	card_close(d);
	s.version = LOG_FORMAT_VERSION + 1;
	assert_int_equal(super_write(c, &s), 0);
	assert_int_equal(super_read(c, 4 * MIB, &t, &trouble), -EPROTONOSUPPORT);
	assert_int_equal(trouble, SUPER_NEWER);
	assert_int_equal(t.version, LOG_FORMAT_VERSION + 1);
	card_close(c);
	c = card_of(10 * MIB, 64 * KIB, 0);
	assert_int_equal(super_read(c, 4 * MIB, &t, &trouble), -ENOENT);
	card_close(c);
}

/* ---- the ring's arithmetic ---- */

struct ring {
	struct card *c;
	struct log *log;
	struct log_super super;
	struct log_open_report rep;
	uint8_t *data;
};

static void ring_open(struct ring *r)
{
	unsigned trouble;

	assert_int_equal(super_read(r->c, 4 * MIB, &r->super, &trouble), 0);
	assert_int_equal(log_open(&r->log, r->c, r->c, &r->super, 0, &r->rep), 0);
	log_mend_super(r->log, trouble);
	assert_int_not_equal(r->rep.state, LOG_BROKEN);
}

/* One commit of exactly this shape; it must fit where room says so. */
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

/* A copy of the super record that rots is written again by the next session that writes, and the ledger has it. */
static void test_super_mended(void **state)
{
	struct ring r = { .data = io_alloc(256 * COW_BLK_BYTES) };

	(void)state;
	r.c = formatted(&r.super);
	ring_open(&r);
	assert_int_equal(log_prepare(r.log), 0);
	for (unsigned copy = 0; copy < 2; copy++) {
		uint64_t before;

		damage(r.c, r.super.copy_off_bytes[copy]);
		log_close(r.log);
		ring_open(&r);
		assert_int_equal(log_super_trouble(r.log), copy ? SUPER_COPY_B_BAD : SUPER_COPY_A_BAD);
		assert_false(log_rests(r.log, log_newest(r.log)->type, 0));
		before = log_ledger(r.log)->super_blks;
		assert_int_equal(log_prepare(r.log), 0);
		assert_int_equal(log_super_trouble(r.log), 0);
		assert_int_equal(log_ledger(r.log)->super_blks, before + 1);
		log_close(r.log);
		ring_open(&r);
		assert_int_equal(log_super_trouble(r.log), 0);
	}
	log_close(r.log);
	card_close(r.c);
	free(r.data);
}

/* Long runs: what room promises always fits, a checkpoint always gives all of it back, and an attach finds the newest. */
static void test_ring_room(void **state)
{
	struct ring r = { .data = io_alloc(256 * COW_BLK_BYTES) };

	(void)state;
	for (unsigned round = 0; round < 6; round++) {
		unsigned full = 0;
		uint64_t seed = round, missing;

		rnd_state = seed + 77;
		r.c = card_of(12 * MIB, 64 * KIB, 0);
		assert_int_equal(super_plan(r.c, r.c, 4 * MIB, (384 + 64 * round) * KIB, &r.super, &missing), 0);
		if (round % 2) { /* two segments an erase block */
			r.super.erase_block_bytes = 128 * KIB;
			r.super.seg_count = max_u64(10, r.super.seg_count / 2 * 2);
		}
		assert_int_equal(super_write(r.c, &r.super), 0);
		ring_open(&r);
		assert_int_equal(r.rep.state, LOG_EMPTY);
		assert_int_equal(log_prepare(r.log), 0);
		for (int i = 0; i < 1500; i++) {
			uint64_t room = log_room_blks(r.log), direct = rnd(4) ? rnd(10) : rnd(500), logged;

			/* as much as fits, a little, or something */
			for (logged = rnd(3) ? rnd(20) : room; logged; logged--)
				if (logged + log_meta_blks(r.log, logged, direct, logged + direct) <= room)
					break;
			if (logged + log_meta_blks(r.log, logged, direct, logged + direct) > room) {
				ring_checkpoint(&r);
				full++;
				continue;
			}
			ring_commit(&r, logged, direct);
			assert_true(log_room_blks(r.log) <= room);
			if (rnd(20) == 0)
				ring_attach_again(&r);
		}
		assert_true(full > 20);
		log_close(r.log);
		card_close(r.c);
	}
	free(r.data);
}

/* R10: what was spilled stays reserved until the tail record, not only until the checkpoint. */
static void test_spill_is_reserved(void **state)
{
	struct ring r = { .data = io_alloc(256 * COW_BLK_BYTES) };
	struct log_index *ix;

	(void)state;
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
	assert_int_equal(log_add_spilled(r.log, 7, 1, 101, r.data), -EINVAL);
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
	uint64_t not_blk, wrong_blk; /* refused; something else than what was logged */
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
		assert_int_equal(log_add_logged(r.log, i * 16, 8, h->data + blk_to_bytes(i * 16)), 0);
	assert_int_equal(log_end(r.log, CAUSE_MANUAL, 0, &ix), 0);
	assert_int_equal(card_set_writable(r.c, true), 0);
	memset(home, 0xee, 8 * COW_BLK_BYTES);
	for (size_t i = 0; log_index_extent(ix, i, &e) && e.blk < end_blk; i++)
		assert_int_equal(card_write(r.c, r.super.ring_off_bytes + blk_to_bytes(e.lblk), home, COW_BLK_BYTES), 0);
	log_index_unref(ix);
	res = log_checkpoint(r.log, &content, NULL, NULL, &ix);
	if (res == 0) {
		log_index_unref(ix);
		for (unsigned i = 0; i < 4; i++) {
			assert_int_equal(card_read(r.c, blk_to_bytes(i * 16), home, 8 * COW_BLK_BYTES), 0);
			assert_memory_equal(home, h->data + blk_to_bytes(i * 16), 8 * COW_BLK_BYTES);
		}
	}
	log_close(r.log);
	card_close(r.c);
	free(home);
	return res;
}

/* The log is read where RAM has nothing, or something else, and nowhere else. */
static void test_checkpoint_at_hand(void **state)
{
	struct at_hand h = { .data = io_alloc(64 * COW_BLK_BYTES), .not_blk = 1000, .wrong_blk = 1000 };

	(void)state;
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
	assert_int_equal(log_open(&l, c, c, &s, 0, rep), 0);
	return l;
}

/* A card that was copied to another one: the generations are its own, the ledger starts anew. */
static void test_clone(void **state)
{
	struct log_super s;
	struct log_open_report rep;
	struct card *c = formatted(&s), *d;
	struct log *l = reopen(c, &rep);

	(void)state;
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
	/* its own from now on */
	l = reopen(d, &rep);
	assert_false(rep.clone);
	assert_int_equal(rep.live_blks, 3);
	assert_int_equal(rep.ledger.commits, 1);
	log_close(l);
	/* a card that tells no identity is never called a clone */
	d->geo.identity[0] = '\0';
	l = reopen(d, &rep);
	assert_false(rep.clone);
	log_close(l);
	card_close(c);
	card_close(d);
}

/* Grow, cut at each write and flush: a good super record with the right ring is always found. */
static void test_grow_cuts(void **state)
{
	struct log_super s, t;
	struct card *c = formatted(&s), *d = resized(c, 12 * MIB), *e;
	unsigned trouble;

	(void)state;
	for (uint64_t n = 1; n <= 4; n++)
		for (uint64_t seed = 1; seed <= 40; seed++) {
			assert_int_equal(sim_clone(&e, d), 0);
			assert_int_equal(card_set_writable(e, true), 0);
			t = s;
			sim_cut_at(e, n);
			assert_true(super_grow(e, &t, e->geo.size_bytes) < 0);
			sim_seed(e, seed);
			sim_power_cycle(e, NULL, NULL);
			assert_int_equal(super_read(e, 4 * MIB, &t, &trouble), 0);
			assert_int_equal(t.ring_off_bytes, s.ring_off_bytes);
			/* again, to its end */
			assert_int_equal(card_set_writable(e, true), 0);
			assert_int_equal(super_grow(e, &t, e->geo.size_bytes), 0);
			assert_int_equal(super_read(e, 4 * MIB, &t, &trouble), 0);
			assert_int_equal(trouble, 0);
			assert_int_equal(t.copy_off_bytes[1], 12 * MIB - COW_BLK_BYTES);
			card_close(e);
		}
	card_close(c);
	card_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_super_codec),	    cmocka_unit_test(test_super_nonsense),
		cmocka_unit_test(test_head_codec),	    cmocka_unit_test(test_record_codec),
		cmocka_unit_test(test_record_nonsense),	    cmocka_unit_test(test_desc_codec),
		cmocka_unit_test(test_index_against_model), cmocka_unit_test(test_index_overlap),
		cmocka_unit_test(test_plan_alignment),	    cmocka_unit_test(test_plan_limits),
		cmocka_unit_test(test_super_copies),	    cmocka_unit_test(test_super_newest_copy),
		cmocka_unit_test(test_clone),		    cmocka_unit_test(test_grow_cuts),
		cmocka_unit_test(test_super_other_sizes),   cmocka_unit_test(test_super_mended),
		cmocka_unit_test(test_ring_room),	    cmocka_unit_test(test_super_no_answer),
		cmocka_unit_test(test_spill_is_reserved),   cmocka_unit_test(test_desc_brim),
		cmocka_unit_test(test_desc_nonsense),	    cmocka_unit_test(test_plan_odd),
		cmocka_unit_test(test_plan_external_short), cmocka_unit_test(test_grow_external),
		cmocka_unit_test(test_pending_places),	    cmocka_unit_test(test_overgrown), cmocka_unit_test(test_checkpoint_at_hand),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
