/* SPDX-License-Identifier: MIT */
/* What a commit costs whose blocks go home at once, in erases of a card that closes a unit when others are written. */
#include "test.h"
#include "fs/fsinfo.h"
#include "logcard.h"
#include "sim/model.h"

enum { UNIT_BLKS = 16 };

static const struct flash_profile card_profile = { .id = "closes",
						   .class = FLASH_CARD,
						   .members = 1,
						   .unit_bytes = UNIT_BLKS * COW_BLK_BYTES,
						   .open_units = 1,
						   .open_random = 1,
						   .copy_bytes_per_s = 10000000,
						   .absorb = 1 };

static struct ring ring;

static uint64_t in_segment(uint64_t lblk)
{
	return lblk % (ring.super.seg_bytes / COW_BLK_BYTES);
}

/* Blocks of the first n units. open_units: what is known of the card; 0: nothing. */
static void all_home(unsigned n, unsigned open_units)
{
	const struct log_content content = { .unit_bytes = card_profile.unit_bytes,
					     .open_units = open_units,
					     .unguards = true };
	struct log_index *ix;

	assert_int_equal(log_prepare(ring.log), 0);
	assert_int_equal(log_begin(ring.log), 0);
	if (open_units)
		log_begin_fresh(ring.log, 0, open_units, 20);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(log_add_logged(ring.log, i * UNIT_BLKS + 3, 2, ring.data), 0);
	assert_int_equal(log_end(ring.log, CAUSE_DETACH, 0, &ix), 0);
	log_index_unref(ix);
	assert_int_equal(in_segment(log_newest(ring.log)->start_lblk) == 1, open_units != 0);
	assert_int_equal(log_checkpoint(ring.log, &content, NULL, NULL, &ix), 0);
	log_index_unref(ix);
	assert_int_equal(log_put_tail(ring.log, RECORD_TAIL, RECORD_CLEAN, CAUSE_DETACH), 0);
	assert_true(log_guarded(ring.log));
	assert_int_equal(log_unguard(ring.log), 0);
}

/* A card with an ext superblock, which takes the guard, and a log that a session has ended. */
static void set_up(unsigned open_units)
{
	struct flash_profile p = card_profile;
	struct flash_model *m;
	uint8_t blk[COW_BLK_BYTES] = { 0 };

	p.open_units = p.open_random = open_units;
	ring = (struct ring){ .data = io_alloc(256 * COW_BLK_BYTES) };
	ring.c = formatted(&ring.super);
	memcpy(blk + 1024 + 0x38, "\x53\xef", 2);
	memcpy(blk + 1024 + 0x4c, "\1\0\0\0", 4);
	memcpy(blk + 1024 + 0x18, "\2\0\0\0", 4); /* blocks of 4 KiB, 1024 of them */
	memcpy(blk + 1024 + 0x04, "\0\4\0\0", 4);
	assert_int_equal(sim_poke(ring.c, 0, blk, sizeof(blk)), 0);
	assert_int_equal(flash_model_new(&m, &p, ring.c->geo.size_bytes, 0), 0);
	sim_set_model(ring.c, m);
	ring_open(&ring);
	all_home(1, 0);
	log_close(ring.log);
	flash_model_settle(m);
	flash_model_reset(m);
	ring_open(&ring);
}

static void tear_down(void)
{
	log_close(ring.log);
	card_close(ring.c);
	free(ring.data);
}

static uint64_t erases(void)
{
	struct flash_stats s;

	flash_model_settle(sim_model(ring.c));
	flash_model_stats(sim_model(ring.c), &s);
	return s.erases;
}

static void check(unsigned card_opens, unsigned units, unsigned known, uint64_t expected,
		  bool fresh)
{
	set_up(card_opens);
	all_home(units, known);
	assert_int_equal(in_segment(log_newest(ring.log)->lblk) == 1, fresh);
	assert_int_equal(erases(), expected);
	tear_down();
}

/*
 * Guard on 1, payload 2 since it does not begin the unit, copy of the record 1, three units of the volume 2 each,
 * tail record 2, guard off 1.
 */
TEST(test_not_known)
{
	check(1, 3, 0, 13, false);
	check(2, 3, 0, 13, false);
}

/* Payload and tail record begin erase blocks: 1 each. */
TEST(test_begins_erase_blocks)
{
	check(1, 3, 1, 11, true);
}

/* And the unit of the superblock is still open when the guard goes. */
TEST(test_superblock_last)
{
	check(2, 3, 2, 10, true);
}

/* The unit of the copy is still open, so the tail record follows it. */
TEST(test_still_open)
{
	check(4, 3, 4, 8, false);
}
