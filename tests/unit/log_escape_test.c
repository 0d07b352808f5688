/* SPDX-License-Identifier: MIT */
/*
 * Content of files that is, byte for byte, what a scan of the ring searches for. Its author knows
 * every field. It always stays content: tests/crash/mutants.sh shows what happens without the escape.
 */
#include "test.h"
#include "base/crc32c.h"
#include "log/codec.h"
#include "log/escape.h"
#include "log/ring.h"
#include "logcard.h"

enum { VICTIM = 10, MINE = 20, MINE_BLKS = 3 };

static _Alignas(COW_BLK_BYTES) uint8_t genuine[COW_BLK_BYTES], mine[MINE_BLKS][COW_BLK_BYTES],
	buf[COW_BLK_BYTES];

/* ---- the two functions ---- */

TEST(test_delta)
{
	uint8_t zeroes[COW_BLK_BYTES] = { 0 }, blk[COW_BLK_BYTES];
	uint32_t crc;

	assert_int_not_equal(escape_delta(), 0);
	for (int i = 0; i < 1000; i++) {
		rnd_fill(blk, sizeof(blk));
		memcpy(blk, zeroes, LOG_MAGIC_PREFIX_BYTES);
		crc = crc32c_back(blk, sizeof(blk));
		memcpy(blk, LOG_MAGIC_PREFIX, LOG_MAGIC_PREFIX_BYTES);
		assert_int_equal(crc ^ crc32c_back(blk, sizeof(blk)), escape_delta());
	}
}

TEST(test_get)
{
	uint8_t blk[COW_BLK_BYTES], is[COW_BLK_BYTES];
	uint32_t crc;

	rnd_fill(blk, sizeof(blk));
	memcpy(blk, "COWFSxyz", 8);
	crc = crc32c_back(blk, sizeof(blk));
	assert_true(escape_needed(blk));
	memcpy(is, blk, sizeof(is));
	escape_put(is);
	assert_false(escape_needed(is));
	assert_true(escape_get(is, crc));
	assert_memory_equal(is, blk, sizeof(is));
	/* content equal to the escaped form of another content is itself escaped */
	escape_put(is);
	memcpy(blk, is, sizeof(is));
	assert_true(escape_get(is, crc32c_back(is, sizeof(is))));
	assert_memory_equal(is, blk, sizeof(is));
	/* the right difference is not enough without the zeros, and the zeros are not enough
	 * without it */
	is[3] = 1;
	memcpy(blk, is, sizeof(is));
	assert_false(escape_get(is, crc32c_back(is, sizeof(is)) ^ escape_delta()));
	is[3] = 0;
	assert_false(escape_get(is, crc ^ 1));
	is[100] ^= 1;
	assert_false(escape_get(is, crc));
	/* only a prefix is not enough, either */
	memcpy(blk, "COWF", 5);
	assert_false(escape_needed(blk));
}

/* ---- a record in a file ---- */

static uint64_t behind(const struct log *l, uint64_t lblk, unsigned n)
{
	while (n--)
		lblk = ring_next(l, lblk);
	return lblk;
}

static void commit(struct ring *r, uint64_t blk, uint64_t blks, const void *data)
{
	struct log_index *ix;

	assert_int_equal(log_prepare(r->log), 0);
	assert_int_equal(log_begin(r->log), 0);
	assert_int_equal(log_add_logged(r->log, blk, blks, data), 0);
	assert_int_equal(log_end(r->log, CAUSE_TIMER, 0, &ix), 0);
	log_index_unref(ix);
}

/* Payload for the victim's block, its descriptor, and the record, as they will lie from the cursor
 * on. */
static void forge(const struct log *l)
{
	const struct log_record *newest = log_newest(l);
	uint64_t first = l->cursor % l->seg_blks ? l->cursor : l->cursor + 1;
	struct log_record rec = { .type = RECORD_COMMIT,
				  .cause = CAUSE_TIMER,
				  .epoch = INT64_MAX,
				  .seq = newest->seq + 1000,
				  .tail_seq = newest->seq + 1000,
				  .floor_seq = newest->seq + 1000,
				  .fallback_seq = newest->seq + 1000,
				  .lblk = behind(l, first, 2),
				  .start_lblk = first,
				  .desc_lblk = behind(l, first, 1),
				  .desc_blks = 1,
				  .desc_epoch = INT64_MAX,
				  .desc_seq = newest->seq + 1000,
				  .logged_blks = 1 };
	struct desc_writer w;
	uint32_t crc;

	memset(mine, 0, sizeof(mine));
	memcpy(rec.ring_uuid, log_super(l)->ring_uuid, 16);
	memcpy(mine[0], "root::0:0::/:/bin/sh\n", 21);
	crc = crc32c_back(mine[0], COW_BLK_BYTES);
	desc_start(&w, mine[1]);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ DESC_LOGGED, 1, VICTIM, first, &crc }),
			 1);
	desc_seal(&w, rec.ring_uuid, rec.desc_epoch, rec.desc_seq, 0);
	rec.desc_crc = crc32c(0, mine[1], COW_BLK_BYTES);
	codec_put_record(mine[2], &rec);
}

static void read_block(struct ring *r, uint64_t blk)
{
	struct log_index *ix = log_index_of(r->log);

	assert_int_equal(log_index_read_volume(ix, r->c, blk, 1, buf), 0);
	log_index_unref(ix);
}

static void start(struct ring *r)
{
	*r = (struct ring){ .c = formatted(&r->super) };
	ring_open(r);
	rnd_fill(genuine, sizeof(genuine));
	commit(r, VICTIM, 1, genuine);
}

static void attack(struct ring *r)
{
	start(r);
	assert_int_equal(log_prepare(r->log), 0);
	forge(r->log);
	commit(r, MINE, MINE_BLKS, mine);
	log_close(r->log);
	ring_open(r);
}

TEST(test_record_in_a_file)
{
	struct log_index *ix;
	uint64_t bad;
	struct ring r;

	attack(&r);
	assert_int_equal(r.rep.state, LOG_LIVE);
	assert_int_equal(r.rep.rejected, 0);
	assert_true(r.rep.newest.epoch != INT64_MAX);
	read_block(&r, VICTIM);
	assert_memory_equal(buf, genuine, sizeof(buf));
	for (unsigned i = 0; i < MINE_BLKS; i++) {
		read_block(&r, MINE + i);
		assert_memory_equal(buf, mine[i], sizeof(buf));
	}
	assert_int_equal(log_verify(r.log, NULL, NULL, &bad), 0);
	assert_int_equal(bad, 0);
	/* home it is the original content, in full */
	assert_int_equal(log_prepare(r.log), 0);
	assert_int_equal(log_checkpoint(r.log, NULL, NULL, NULL, &ix), 0);
	log_index_unref(ix);
	assert_int_equal(log_put_tail(r.log, RECORD_TAIL, RECORD_CLEAN, CAUSE_DETACH), 0);
	for (unsigned i = 0; i < MINE_BLKS; i++) {
		assert_int_equal(sim_peek(r.c, blk_to_bytes(MINE + i), buf, sizeof(buf)), 0);
		assert_memory_equal(buf, mine[i], sizeof(buf));
	}
	log_close(r.log);
	ring_open(&r);
	assert_int_equal(r.rep.state, LOG_CLEAN);
	log_close(r.log);
	card_close(r.c);
}

/* A mebibyte of it in one call, and single blocks of it between others, across the end of the
 * ring. */
TEST(test_runs)
{
	uint8_t *data = io_alloc(64 * COW_BLK_BYTES), *back = io_alloc(64 * COW_BLK_BYTES);
	struct log_index *ix;
	struct ring r;

	start(&r);
	for (int i = 0; i < 40; i++) {
		unsigned n = 1 + (unsigned)rnd(48);

		rnd_fill(data, n * COW_BLK_BYTES);
		for (unsigned k = 0; k < n; k++)
			if (i % 3 == 0 || rnd(3) == 0)
				memcpy(data + blk_to_bytes(k), "COWFSREC", 5 + rnd(4));
		assert_int_equal(log_prepare(r.log), 0);
		assert_int_equal(log_checkpoint(r.log, NULL, NULL, NULL, &ix), 0);
		log_index_unref(ix);
		assert_int_equal(log_put_tail(r.log, RECORD_TAIL, 0, CAUSE_TIMER), 0);
		commit(&r, 100, n, data);
		ix = log_index_of(r.log);
		assert_int_equal(log_index_read_volume(ix, r.c, 100, n, back), 0);
		log_index_unref(ix);
		assert_memory_equal(data, back, n * COW_BLK_BYTES);
	}
	log_close(r.log);
	card_close(r.c);
	free(data);
	free(back);
}

/* The flags of an image are repeated in each empty record that follows, and not in the records of the
 * next image. */
TEST(test_flags_are_repeated)
{
	const uint32_t of_image = RECORD_UNREAD, of_another_release = 1 << 1;
	struct log_index *ix;
	struct ring r;

	r = (struct ring){ .c = formatted(&r.super) };
	ring_open(&r);
	assert_int_equal(log_prepare(r.log), 0);
	assert_int_equal(log_begin(r.log), 0);
	assert_int_equal(log_add_logged(r.log, VICTIM, 1, genuine), 0);
	assert_int_equal(log_end(r.log, CAUSE_SHUTDOWN, of_image | of_another_release, &ix), 0);
	log_index_unref(ix);
	assert_int_equal(log_checkpoint(r.log, NULL, NULL, NULL, &ix), 0);
	log_index_unref(ix);
	assert_int_equal(log_newest(r.log)->flags, of_image);
	assert_int_equal(log_put_tail(r.log, RECORD_TAIL, RECORD_CLEAN, CAUSE_DETACH), 0);
	log_close(r.log);
	ring_open(&r);
	assert_int_equal(r.rep.state, LOG_CLEAN);
	assert_int_equal(r.rep.newest.flags, of_image | RECORD_CLEAN);
	assert_int_equal(log_prepare(r.log), 0);
	assert_int_equal(log_newest(r.log)->flags & of_image, of_image);
	commit(&r, VICTIM, 1, genuine);
	assert_int_equal(log_newest(r.log)->flags, 0);
	log_close(r.log);
	card_close(r.c);
}
