/* SPDX-License-Identifier: MIT */
/* For tests of log/: a simulated card with a log on it. Behind cmocka.h. */
#ifndef COWFS_TESTS_LOGCARD_H
#define COWFS_TESTS_LOGCARD_H

#include "test.h"
#include "sim/sim.h"
#include "log/log.h"

static inline struct card *card_of(uint64_t size_bytes, uint32_t eb_bytes, uint64_t disk_off_bytes)
{
	struct sim_params p = { .size_bytes = size_bytes,
				.erase_block_bytes = eb_bytes,
				.disk_off_bytes = disk_off_bytes };
	struct card *c;

	assert_int_equal(sim_new(&c, &p), 0);
	assert_int_equal(card_set_writable(c, true), 0);
	return c;
}

/* 10 MiB, 4 MiB of them the file system, 512 KiB the log */
static inline struct card *formatted(struct log_super *s)
{
	struct card *c = card_of(10 * MIB, 64 * KIB, 0);
	uint64_t missing;

	assert_int_equal(super_plan(c, c, 4 * MIB, 512 * KIB, s, &missing), 0);
	assert_int_equal(super_write(c, s), 0);
	return c;
}

/* Copies a card to one of another size, as after a resize of its partition. */
static inline struct card *resized(struct card *from, uint64_t size_bytes)
{
	struct card *c = card_of(size_bytes, 64 * KIB, 0);
	uint8_t *blk = io_alloc(COW_BLK_BYTES);

	for (uint64_t off = 0; off < min_u64(size_bytes, from->geo.size_bytes);
	     off += COW_BLK_BYTES) {
		assert_int_equal(sim_peek(from, off, blk, COW_BLK_BYTES), 0);
		assert_int_equal(sim_poke(c, off, blk, COW_BLK_BYTES), 0);
	}
	free(blk);
	return c;
}

static inline void damage(struct card *c, uint64_t off)
{
	assert_int_equal(sim_poke(c, off + 100, "rot", 3), 0);
}

struct ring {
	struct card *c;
	struct log *log;
	struct log_super super;
	struct log_open_report rep;
	uint8_t *data;
};

static inline void ring_open(struct ring *r)
{
	unsigned trouble;

	assert_int_equal(super_read(r->c, 4 * MIB, &r->super, &trouble), 0);
	assert_int_equal(log_open(&r->log, r->c, r->c, &r->super, 0, NULL, &r->rep), 0);
	log_mend_super(r->log, trouble);
	assert_int_not_equal(r->rep.state, LOG_BROKEN);
}

#endif
