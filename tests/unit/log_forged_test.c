/* SPDX-License-Identifier: MIT */
/*
 * Recovery from rings whose checksums are right and whose content is wrong: records, descriptors
 * and heads made by the codec on purpose. A refusal has a reason, and recovery finds the previous
 * generation.
 */
#include "test.h"
#include "base/crc32c.h"
#include "log/codec.h"
#include "gens.h"

enum { RING_BLKS = TOY_SEGS * TOY_SEG_BLKS };

static _Alignas(COW_BLK_BYTES) uint8_t view[TOY_BLKS * COW_BLK_BYTES];

static struct log_super super;
static struct log_record newest;

/* A card with a log of its own: three commits in two epochs, nothing checkpointed. Closed. */
static void chain_new(struct toy *t)
{
	n_gens = 0;
	toy_tell(t, TOY_CHAIN, note, NULL);
	assert_int_equal(n_gens, 3);
	super = *log_super(t->log);
	newest = *log_newest(t->log);
	toy_close(t);
}

static uint64_t off_of(uint64_t lblk)
{
	return super.ring_off_bytes + blk_to_bytes(lblk);
}

static void peek(struct toy *t, uint64_t lblk, uint8_t blk[COW_BLK_BYTES])
{
	assert_int_equal(sim_peek(t->card, off_of(lblk), blk, COW_BLK_BYTES), 0);
}

static void poke(struct toy *t, uint64_t lblk, const uint8_t blk[COW_BLK_BYTES])
{
	assert_int_equal(sim_poke(t->card, off_of(lblk), blk, COW_BLK_BYTES), 0);
}

static struct log_record record_at(struct toy *t, uint64_t lblk)
{
	uint8_t blk[COW_BLK_BYTES];
	struct log_record rec;

	peek(t, lblk, blk);
	assert_int_equal(codec_get_record(blk, super.ring_uuid, &rec), 0);
	return rec;
}

static void forge_at(struct toy *t, uint64_t lblk, const struct log_record *rec)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 };

	codec_put_record(blk, rec);
	poke(t, lblk, blk);
}

static void forge(struct toy *t, const struct log_record *rec)
{
	forge_at(t, rec->lblk, rec);
}

/* Opening finds generation `gen` (of gens) completely, and gives `why` as the reason of the
 * refusal. */
static void assert_found(struct toy *t, unsigned gen, unsigned rejected, const char *why)
{
	assert_int_equal(toy_open(t, 0), 0);
	assert_int_equal(t->rep.state, rejected ? LOG_FELL_BACK : LOG_LIVE);
	assert_int_equal(t->rep.rejected, rejected);
	assert_int_equal(toy_view(t, view), 0);
	assert_int_equal(toy_differs(&gens[gen].image, view), -1);
	assert_true(t->rep.newest.seq >= gens[gen].seq);
	assert_string_equal(t->rep.why, why);
	toy_close(t);
}

/* The newest record with another value in a field, at the place of that one. */
#define FORGE(t, field, value)                                                                     \
	do {                                                                                       \
		struct log_record forged = newest;                                                 \
		forged.field = value;                                                              \
		forge_at(t, newest.lblk, &forged);                                                 \
	} while (0)

/* The newest record is not valid: as if it had not been written. */
#define OUT_OF_PLACE(t, field, value)                                                              \
	do {                                                                                       \
		FORGE(t, field, value);                                                            \
		assert_found(t, 1, 0, "");                                                         \
	} while (0)

TEST(test_record_out_of_place)
{
	struct toy t;

	chain_new(&t);
	assert_found(&t, 2, 0, "");
	OUT_OF_PLACE(&t, lblk, newest.lblk + 1);
	OUT_OF_PLACE(&t, start_lblk, TOY_SEG_BLKS); /* a head lies there */
	OUT_OF_PLACE(&t, start_lblk, RING_BLKS + 1);
	OUT_OF_PLACE(&t, desc_lblk, 2 * TOY_SEG_BLKS);
	OUT_OF_PLACE(&t, desc_lblk, UINT64_MAX);
	OUT_OF_PLACE(&t, desc_blks, RING_BLKS + 1);
	forge(&t, &newest);
	forge_at(&t, newest.lblk + 1, &newest); /* a stray copy of the newest one */
	assert_found(&t, 2, 0, "");
	toy_free(&t);
}

/* Numbers that the next record could not exceed: nothing is committed that would not be found
 * again. */
TEST(test_numbers_at_their_end)
{
	static const struct {
		uint64_t seq, epoch, serial; /* 0: as it is */
	} ends[] = { { .seq = UINT64_MAX },
		     { .seq = INT64_MAX },
		     { .epoch = UINT64_MAX },
		     { .epoch = 0xffffffff00000000 },
		     { .serial = UINT64_MAX } };

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		struct log_head h = { .seg = 5, .serial = ends[i].serial };
		uint8_t blk[COW_BLK_BYTES] = { 0 };
		struct log_record rec;
		struct toy t;

		chain_new(&t);
		rec = newest;
		if (ends[i].seq)
			rec.seq = rec.tail_seq = rec.floor_seq = ends[i].seq;
		if (ends[i].epoch)
			rec.epoch = ends[i].epoch;
		memcpy(h.ring_uuid, super.ring_uuid, 16);
		codec_put_head(blk, &h);
		if (h.serial)
			poke(&t, 5 * TOY_SEG_BLKS, blk);
		forge(&t, &rec);
		assert_int_equal(toy_open(&t, 0), 0);
		assert_int_equal(t.rep.state, LOG_BROKEN);
		assert_string_equal(t.rep.why,
				    "its sequence numbers are exhausted: cowfs did not write them");
		assert_int_equal(log_prepare(t.log), -EUCLEAN);
		assert_int_equal(t.rep.live_blks, 0);
		toy_free(&t);
	}
}

/* The newest record builds on one that is not there. */
static void without(struct toy *t, uint64_t seq)
{
	char gone[96];

	snprintf(gone, sizeof(gone), "record %d, which record %d builds on, is gone", (int)seq,
		 (int)newest.seq);
	assert_found(t, 1, 1, gone);
}

/* The newest record is whole, its predecessor is not. */
TEST(test_chain_broken)
{
	struct log_record open;
	char misses[96];
	struct toy t;

	chain_new(&t);
	open = record_at(&t, newest.prev.lblk);
	assert_int_equal(open.type, RECORD_OPEN);
	FORGE(&t, prev.lblk, TOY_SEG_BLKS);
	without(&t, open.seq);
	FORGE(&t, prev.lblk, RING_BLKS + 1);
	without(&t, open.seq);
	FORGE(&t, prev.lblk, newest.prev.lblk + 1);
	without(&t, open.seq);
	FORGE(&t, prev.epoch, newest.prev.epoch + 1);
	without(&t, open.seq);
	FORGE(&t, prev.seq, newest.prev.seq - 1); /* such a record exists elsewhere */
	without(&t, open.seq - 1);
	/* the chain jumps over the tail that the record names */
	newest.seq += 10;
	newest.tail_seq = newest.seq - 5;
	forge(&t, &newest);
	snprintf(misses, sizeof(misses), "the chain of record %d misses its tail %d",
		 (int)newest.seq, (int)newest.tail_seq);
	assert_found(&t, 1, 1, misses);
	toy_free(&t);
}

/* Replaces the newest record's descriptors by these extents. */
static void forge_extents(struct toy *t, const struct desc_extent *e, unsigned n)
{
	struct log_record rec = newest;
	uint8_t blk[COW_BLK_BYTES] = { 0 };
	struct desc_writer w;

	desc_start(&w, blk);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(desc_put(&w, &e[i]), e[i].blks);
	desc_seal(&w, super.ring_uuid, rec.desc_epoch, rec.desc_seq, 0);
	poke(t, rec.desc_lblk, blk);
	rec.desc_blks = 1;
	rec.desc_crc = crc32c(0, blk, sizeof(blk));
	forge(t, &rec);
}

TEST(test_extents_out_of_bounds)
{
	static const uint32_t crc[2 * TOY_SEG_BLKS];
	static const struct desc_extent bad[] = {
		{ DESC_ZERO, 1, TOY_BLKS, 0, NULL },	 /* after the volume */
		{ DESC_ZERO, 2, TOY_BLKS - 1, 0, NULL }, /* beyond its end */
		{ DESC_DIRECT, 1, TOY_BLKS, 0, crc },	 /* the same in place */
		/* payload after the volume */
		{ DESC_SPILLED, 1, 4, TOY_BLKS, crc },
		{ DESC_SPILLED, 2, 4, TOY_BLKS - 1, crc }, /* or beyond its end */
		{ DESC_LOGGED, 1, 4, TOY_SEG_BLKS, crc },  /* at a head */
		{ DESC_LOGGED, 1, 4, RING_BLKS, crc },	   /* after the ring */
		/* into the next segment */
		{ DESC_LOGGED, 2, 4, 2 * TOY_SEG_BLKS - 1, crc },
		{ DESC_LOGGED, TOY_SEG_BLKS, 4, TOY_SEG_BLKS + 1, crc }, /* more than one holds */
	};
	static const struct desc_extent twice[] = { { DESC_ZERO, 3, 10, 0, NULL },
						    { DESC_ZERO, 1, 12, 0, NULL } };
	char why[64];
	struct toy t;

	chain_new(&t);
	snprintf(why, sizeof(why), "the descriptors of record %d are damaged", (int)newest.seq);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		forge_extents(&t, &bad[i], 1);
		assert_found(&t, 1, 1, why);
	}
	forge_extents(&t, twice, 2);
	assert_found(&t, 1, 1, why);
	toy_free(&t);
}

/* The ring block of `blk` in the payload of a record with one descriptor block. */
static uint64_t payload_of(struct toy *t, const struct log_record *rec, uint64_t blk)
{
	static struct desc_cursor c;
	uint8_t desc[COW_BLK_BYTES];
	struct desc_extent e;

	assert_int_equal(rec->desc_blks, 1);
	peek(t, rec->desc_lblk, desc);
	assert_int_equal(desc_open(&c, desc, super.ring_uuid, rec->desc_epoch, rec->desc_seq, 0),
			 0);
	while (desc_next(&c, &e) == 1)
		if (e.type == DESC_LOGGED && e.blk <= blk && blk < e.blk + e.blks)
			return e.lblk + (blk - e.blk);
	return 0;
}

static void rot(struct toy *t, uint64_t lblk)
{
	uint8_t blk[COW_BLK_BYTES];

	peek(t, lblk, blk);
	blk[1000] ^= 4;
	poke(t, lblk, blk);
}

/* A block whose payload `rec` has; and one that the newest record also has, or does not have. */
static uint64_t block_of(struct toy *t, const struct log_record *rec, bool superseded)
{
	for (uint64_t b = 0; b < TOY_BLKS; b++)
		if (payload_of(t, rec, b) && superseded == (payload_of(t, &newest, b) > 0))
			return b;
	fail_msg("no such block");
	return 0;
}

static void has_line(void *ctx, uint64_t blk, const char *line)
{
	assert_string_equal(line, ctx);
}

/*
 * floor_seq: the oldest record whose payload an attach reads. Normally this is the record itself.
 * An older floor makes the older payload count, except for blocks that newer records have.
 */
TEST(test_floor)
{
	struct log_record first, rec;
	uint64_t found, old, live;
	char why[96];
	struct toy t;

	chain_new(&t);
	for (first = record_at(&t, newest.prev.lblk);
	     first.type != RECORD_COMMIT || first.seq != gens[0].seq;)
		first = record_at(&t, first.prev.lblk);
	old = block_of(&t, &first, true);
	live = block_of(&t, &first, false);
	rec = newest;
	rec.floor_seq = rec.tail_seq;
	forge(&t, &rec);
	assert_found(&t, 2, 0, "");
	rot(&t, payload_of(&t, &first, old)); /* it is not read again */
	assert_found(&t, 2, 0, "");
	rot(&t, payload_of(&t, &first, live));
	assert_int_equal(toy_open(&t, 0), 0);
	assert_true(t.rep.rejected > 0);
	assert_true(t.rep.newest.seq < newest.seq);
	toy_close(&t);
	snprintf(why, sizeof(why), "block %d: its copy in the log does not match its checksum",
		 (int)live);
	/* with its own floor the attach finds the newest one; check and readers find the rot */
	forge(&t, &newest);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(t.rep.newest.seq, newest.seq);
	assert_int_equal(t.rep.rejected, 0);
	assert_int_equal(toy_view(&t, view), -EBADMSG);
	assert_int_equal(log_verify(t.log, has_line, why, &found), 0);
	assert_int_equal(found, 1);
	toy_free(&t);
}

/* A head that names another segment does not count: the segment is searched nevertheless. */
TEST(test_head_of_another)
{
	uint8_t blk[COW_BLK_BYTES];
	struct toy t;

	chain_new(&t);
	for (unsigned from = 0; from < TOY_SEGS; from++)
		for (unsigned to = 0; to < TOY_SEGS; to++) {
			struct toy u;

			toy_clone(&u, &t);
			peek(&u, from * TOY_SEG_BLKS, blk);
			poke(&u, to * TOY_SEG_BLKS, blk);
			assert_found(&u, 2, 0, "");
			toy_free(&u);
		}
	toy_free(&t);
}

/* A record that cannot be compared with anything: of a retired log, or one that knows no file
 * system. It has blocks, or home has one. */
TEST(test_record_for_any_base)
{
	struct log_record rec;
	char why[160];
	struct toy t;

	chain_new(&t);
	rec = newest;
	rec.type = RECORD_RETIRED;
	forge(&t, &rec);
	snprintf(why, sizeof(why), "record %d is retired, but blocks wait for their checkpoint",
		 (int)newest.seq);
	assert_found(&t, 1, 1, why);
	rec = newest;
	rec.fingerprint = (struct fs_fingerprint){ 0 };
	forge(&t, &rec);
	snprintf(why, sizeof(why),
		 "the file system was changed without cowfs after record %d: it is a different one",
		 (int)newest.seq);
	assert_found(&t, 1, 1, why);
	toy_free(&t);
}
