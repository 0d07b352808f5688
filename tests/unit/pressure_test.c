/* SPDX-License-Identifier: MIT */
/* The arithmetic of RAM pressure, and the throttle with a clock of its own. */
#include "test.h"
#include "export/throttle.h"
#include "volume/pressure.h"

#define SECOND_NS 1000000000ull

static struct pressure_plan plan_of(uint64_t limit_bytes, uint64_t journal_bytes)
{
	struct pressure_plan p;
	uint64_t need;

	assert_int_equal(pressure_plan(&p, limit_bytes, journal_bytes, 0, &need), 0);
	return p;
}

TEST(test_plan)
{
	struct pressure_plan p;
	uint64_t need, least;

	p = plan_of(96 * MIB, 8 * MIB);
	assert_int_equal(p.dirty_bytes, 4 * MIB);
	assert_int_equal(p.slack_bytes, 12 * MIB);
	assert_int_equal(pressure_hard_bytes(&p), (96 + 8 + 4 + 12) * MIB);
	p = plan_of(4096 * MIB, 64 * MIB);
	assert_int_equal(p.dirty_bytes, 16 * MIB);
	/* refused, with a figure that is then enough, and is the minimum */
	assert_int_equal(pressure_plan(&p, 64 * MIB, 64 * MIB, 0, &least), -ENOSPC);
	assert_true(least > 72 * MIB && least < 80 * MIB);
	assert_int_equal(pressure_plan(&p, least, 64 * MIB, 0, &need), 0);
	assert_int_equal(pressure_plan(&p, least - 1, 64 * MIB, 0, &need), -ENOSPC);
	assert_false(pressure_plan_exceeds(&p));
}

/* Kernels that bound only the whole system: the reserve holds everything that can be dirty above
 * this volume, on top of the limit. */
TEST(test_plan_unbounded)
{
	struct pressure_plan p, bounded = plan_of(64 * MIB, 8 * MIB);
	struct pressure_use u = { .used_bytes = 60 * MIB };
	uint64_t need;

	assert_int_equal(pressure_unbounded_bytes(113 * MIB, 4096 * MIB), 113 * MIB);
	assert_int_equal(pressure_unbounded_bytes(4096 * MIB, 100 * MIB), 100 * MIB);
	assert_int_equal(pressure_unbounded_bytes(UINT64_MAX, 100 * MIB), 100 * MIB);
	assert_true(pressure_unbounded_bytes(0, 100 * MIB) > 0); /* 0 would mean: bounded */

	/* all of it has room, and the limit is not refused because of it */
	assert_int_equal(pressure_plan(&p, 64 * MIB, 8 * MIB, 113 * MIB, &need), 0);
	assert_int_equal(p.dirty_bytes, 113 * MIB);
	assert_int_equal(pressure_hard_bytes(&p), (64 + 8 + 113 + 8) * MIB);
	assert_true(pressure_plan_exceeds(&p));
	assert_int_equal(p.ram_bytes.commit, bounded.ram_bytes.commit);
	assert_int_equal(p.ram_bytes.full, bounded.ram_bytes.full);
	/* the amount that a freeze flushes in a second at the lowest rate still finds room */
	u.used_bytes = p.ram_bytes.commit;
	assert_true(pressure_rate_unsealed(&p, &u) >= 8 * MIB + 113 * MIB);
	assert_true(pressure_hard_bytes(&p) - u.used_bytes >= 8 * MIB + 113 * MIB);
	/* journal and slack still count */
	assert_int_equal(pressure_plan(&p, 64 * MIB, 64 * MIB, 113 * MIB, &need), -ENOSPC);
	assert_int_equal(pressure_plan(&p, need, 64 * MIB, 113 * MIB, &need), 0);
	assert_int_equal(pressure_plan(&p, 256 * MIB, 8 * MIB, 113 * MIB, &need), 0);
	assert_false(pressure_plan_exceeds(&p));

	/* a log as the second budget: rates assume little, but nothing bounds the amount */
	pressure_plan_ring(&p, 4000);
	assert_int_equal(p.dirty_bytes, 113 * MIB);
	assert_int_equal(p.ram_bytes.ruin, (256 + 8 + 113 + 32) * MIB);
	assert_true(pressure_rate_unsealed(&p, &(struct pressure_use){ .used_bytes = 300 * MIB,
								       .dirty_blks = 3599 }) <
		    16 * MIB);
	pressure_plan_ring(&bounded, 4000);
	assert_true(bounded.dirty_bytes <= 4000 * COW_BLK_BYTES / 16);
	assert_int_equal(bounded.dirty_bytes, bounded.bound_bytes);
}

static enum pressure_level at(const struct pressure_plan *p, uint64_t used_bytes,
			      uint64_t dirty_blks, bool low)
{
	return pressure_level(p, &(struct pressure_use){ .used_bytes = used_bytes,
							 .dirty_blks = dirty_blks,
							 .memory_low = low });
}

TEST(test_levels)
{
	struct pressure_plan p = plan_of(100 * MIB, 0);

	assert_int_equal(at(&p, 0, 0, false), LEVEL_OK);
	assert_int_equal(at(&p, 60 * MIB - 1, 1u << 30, false), LEVEL_OK); /* no second budget */
	assert_int_equal(at(&p, 60 * MIB, 0, false), LEVEL_WARN);
	assert_int_equal(at(&p, 75 * MIB, 0, false), LEVEL_COMMIT);
	assert_int_equal(at(&p, 100 * MIB - 1, 0, false), LEVEL_COMMIT);
	assert_int_equal(at(&p, 100 * MIB, 0, false), LEVEL_FULL);
	assert_int_equal(at(&p, 130 * MIB, 0, true), LEVEL_FULL);
	assert_int_equal(at(&p, MIB, 0, true), LEVEL_COMMIT);

	pressure_plan_ring(&p, 4000);
	assert_int_equal(at(&p, 0, 1599, false), LEVEL_OK);
	assert_int_equal(at(&p, 0, 1600, false), LEVEL_WARN);
	assert_int_equal(at(&p, 0, 2000, false), LEVEL_COMMIT);
	assert_int_equal(at(&p, 0, 2600, false), LEVEL_FULL);
	assert_int_equal(at(&p, 80 * MIB, 0, false), LEVEL_COMMIT);
	/* dirty data above must not fill the log alone */
	assert_true(p.dirty_bytes <= 4000 * COW_BLK_BYTES / 16);
}

/* Room in the log and in free blocks: a small room is divided like a ring; of a large one almost
 * everything may be used. Few free blocks do not count, but a room below the log does. */
TEST(test_room)
{
	struct pressure_plan p = plan_of(1024 * MIB, 8 * MIB), ring = p;

	pressure_plan_ring(&ring, 2000);
	for (uint64_t room = 2000; room < 4000; room += 333) {
		pressure_plan_room(&p, 2000, room);
		assert_in_range(p.ring_blks.full, ring.ring_blks.full, ring.ring_blks.full + 200);
		assert_true(p.ring_blks.commit < p.ring_blks.full &&
			    p.ring_blks.full < p.ring_blks.ruin && p.ring_blks.ruin < 2000);
		assert_int_equal(p.bound_bytes, ring.bound_bytes);
		assert_false(p.counts_on_free);
	}
	pressure_plan_room(&p, 2000, 4000);
	assert_true(p.counts_on_free && p.ring_blks.full > 2000);
	ring = p;
	pressure_plan_ring(&ring, 2000);
	assert_false(ring.counts_on_free);
	pressure_plan_room(&p, 2000, 200000);
	assert_in_range(p.ring_blks.commit, 110000, 200000);
	assert_true(p.ring_blks.ruin - p.ring_blks.full >=
		    (p.journal_bytes + p.dirty_bytes + PRESSURE_MIN_BYTES) / COW_BLK_BYTES);
	/* more than RAM can hold: no budget, and no trace of the previous one */
	pressure_plan_room(&p, 2000, 1000000);
	assert_int_equal(p.ring_blks.full, 0);
	assert_int_equal(p.bound_bytes, p.dirty_bytes);
	assert_int_equal(at(&p, 0, 999999, false), LEVEL_OK);
	/* beside a generation that is held, down to very little, which is not the same as none */
	for (uint64_t room = 0; room < 2000; room += 50) {
		pressure_plan_room(&p, room ? 2000 : 0, room);
		assert_true(p.ring_blks.full > 0 && p.ring_blks.ruin <= max_u64(room, 16));
		assert_false(p.counts_on_free);
	}
}

/* Requests in flight while all replies are withheld fit into the log, with descriptors for extents
 * of one block. */
TEST(test_requests)
{
	for (uint64_t capacity = 60; capacity < 200000; capacity += capacity / 7 + 1) {
		struct pressure_requests rq = pressure_requests(capacity);
		uint64_t most = pressure_ring_fits(capacity), serving = 8;
		struct pressure_plan p = plan_of(1024 * MIB, 0);

		pressure_plan_ring(&p, capacity);
		assert_true(p.ring_blks.full < p.stop_blks && p.stop_blks < p.ring_blks.ruin);
		assert_int_equal(p.ring_blks.commit, pressure_ring_commits(capacity));
		assert_true(rq.kb >= 4 && rq.kb <= 256 && rq.kb % 4 == 0 && rq.tags >= 16 &&
			    rq.tags <= 128);
		if (pressure_ring_suffices(capacity))
			assert_true(blk_to_bytes(p.stop_blks) + (rq.tags + serving) * rq.kb * KIB <=
				    blk_to_bytes(most));
		assert_true(capacity < 120 || most + most * 28 / 3984 + 3 <= capacity);
	}
	assert_false(pressure_ring_suffices(80));
	assert_true(pressure_ring_suffices(128));
	/* the smallest log of cards with the usual erase blocks */
	assert_int_equal(pressure_requests(4092).kb, 128);
	assert_int_equal(pressure_requests(100000).kb, 256);
	assert_int_equal(pressure_requests(100000).tags, 128);
}

/* A time that is shorter than the room allows, and the other way round. What may be in flight once no reply
 * leaves any more is written in that time, too. */
TEST(test_time)
{
	struct pressure_plan p = plan_of(1024 * MIB, 8 * MIB), room;

	pressure_plan_room(&p, 2000, 20000);
	room = p;
	for (uint64_t blks = 512; blks < 20000; blks += 97) {
		struct pressure_requests rq = pressure_requests(blks);
		uint64_t near, late;

		p = room;
		late = blks * (blks % 7) / 8;
		pressure_plan_time(&p, blks, late);
		assert_true(p.ring_blks.full + late <= blks || p.ring_blks.full == 256);
		assert_in_range(p.ring_blks.full, min_u64(blks * 73 / 100, 256), blks * 75 / 100);
		assert_in_range(p.ring_blks.commit, p.ring_blks.full * 75 / 100,
				p.ring_blks.full * 77 / 100);
		assert_true(p.ring_blks.full < p.ring_blks.ruin && p.ring_blks.ruin <= blks);
		for (near = p.ring_blks.full;
		     !pressure_near_ruin(&p, &(struct pressure_use){ .dirty_blks = near }); near++)
			;
		assert_int_equal(near,
				 p.ring_blks.full + (p.ring_blks.ruin - p.ring_blks.full) / 4);
		assert_true(near + rq.tags * rq.kb / 4 <=
			    blks * 107 / 100); /* the margin is 25 % */
		assert_true(p.bound_bytes <= max_u64(blk_to_bytes(blks) / 16, 512 * KIB));
	}
	p = room;
	pressure_plan_time(&p, 100000, 0);
	assert_memory_equal(&p.ring_blks, &room.ring_blks, sizeof(p.ring_blks));
	p.ring_blks.full = 0;
	assert_false(pressure_near_ruin(&p, &(struct pressure_use){ .dirty_blks = 1000000 }));
}

/* A writer of the amount that look allows does not reach the next level earlier. */
TEST(test_look)
{
	struct pressure_plan p = plan_of(100 * MIB, 0), r = p;

	pressure_plan_ring(&r, 4000);
	for (uint64_t used = 0; used < 130 * MIB; used += 333333) {
		struct pressure_use u = { .used_bytes = used,
					  .dirty_blks = used / COW_BLK_BYTES / 8 };
		uint64_t look = pressure_look_bytes(&p, &u);

		assert_true(look >= 64 * KIB);
		if (look > 64 * KIB)
			assert_int_equal(at(&p, used + look - 1, 0, false), at(&p, used, 0, false));
		look = pressure_look_bytes(&r, &u);
		if (look > 64 * KIB)
			assert_int_equal(at(&r, used + look - 1,
					    u.dirty_blks + look / COW_BLK_BYTES - 1, false),
					 at(&r, used, u.dirty_blks, false));
	}
	assert_int_equal(pressure_room_bytes(&p, &(struct pressure_use){ .used_bytes = 30 * MIB }),
			 70 * MIB);
	assert_int_equal(pressure_room_bytes(&p, &(struct pressure_use){ .used_bytes = 101 * MIB }),
			 0);
	assert_int_equal(pressure_room_bytes(&r, &(struct pressure_use){ .dirty_blks = 2590 }),
			 blk_to_bytes(10));
}

TEST(test_left)
{
	struct pressure_commit c = { .phase = PHASE_CLASSIFY,
				     .sealed_blks = 2560,
				     .usual_bytes_per_s = 10 * MIB };

	assert_int_equal(pressure_left_ns(&c), SECOND_NS); /* 10 MiB as fast as last time */
	c.since_seal_ns = SECOND_NS / 2;
	assert_int_equal(pressure_left_ns(&c), SECOND_NS / 2);
	c.since_seal_ns = 100 * SECOND_NS; /* overdue: not finished */
	assert_int_equal(pressure_left_ns(&c), SECOND_NS / 10);
	/* measured: 5 MiB/s, 5 MiB left */
	c = (struct pressure_commit){ .phase = PHASE_DIRECT,
				      .done_blks = 1280,
				      .total_blks = 2560,
				      .sealed_blks = 2560,
				      .written_bytes = 5 * MIB,
				      .writing_ns = SECOND_NS,
				      .usual_bytes_per_s = 50 * MIB };
	assert_int_equal(pressure_left_ns(&c), SECOND_NS);
	c.writing_ns = 1000; /* too short for a rate */
	assert_int_equal(pressure_left_ns(&c), SECOND_NS / 10);
	/* a checkpoint that makes room comes before all writing; one after it frees no RAM */
	c = (struct pressure_commit){ .phase = PHASE_CHECKPOINT,
				      .done_blks = 0,
				      .total_blks = 2560,
				      .sealed_blks = 2560,
				      .usual_bytes_per_s = 10 * MIB };
	assert_int_equal(pressure_left_ns(&c), 2 * SECOND_NS);
	c.durable = true;
	assert_int_equal(pressure_left_ns(&c), SECOND_NS);
	c.done_blks = c.total_blks;
	assert_true(pressure_left_ns(&c) > 0);
}

TEST(test_rate)
{
	struct pressure_plan p = plan_of(96 * MIB, 8 * MIB);
	uint64_t hard = pressure_hard_bytes(&p);

	assert_int_equal(pressure_rate(10 * MIB, 2 * SECOND_NS), 5 * MIB);
	assert_int_equal(pressure_rate(0, SECOND_NS), 0);
	assert_true(pressure_rate(UINT64_MAX, 0) < THROTTLE_OPEN);
	/* before the seal: slower the nearer, but never so slow that a freeze takes long */
	for (uint64_t used = 0; used < hard + 10 * MIB; used += MIB) {
		struct pressure_use u = { .used_bytes = used };
		uint64_t rate = pressure_rate_unsealed(&p, &u);

		assert_true(rate >= p.journal_bytes + p.dirty_bytes + 16 * MIB);
		if (used + 28 * MIB < hard)
			assert_true(rate + 1 >= (hard - used) * 2 && rate <= (hard - used) * 2);
	}
}

/*
 * Dirty data above lands below level commit, or in the reserve. This also holds with the bound of
 * the last look; the bound is renewed once it is wrong by a quarter.
 */
TEST(test_dirty)
{
	struct pressure_plan p = plan_of(300 * MIB, 8 * MIB), r = p;

	pressure_plan_ring(&r, 4000);
	for (uint64_t used = 0; used < 320 * MIB; used += 333333) {
		struct pressure_use u = { .used_bytes = used,
					  .dirty_blks = used / COW_BLK_BYTES / 50 };
		uint64_t look = pressure_look_bytes(&p, &u),
			 bound = pressure_dirty_now_bytes(&p, &u, false, 0);

		assert_true(bound >= p.dirty_bytes);
		assert_true(bound == p.dirty_bytes || used + look + bound / 3 * 4 <= 225 * MIB);
		look = pressure_look_bytes(&r, &u);
		bound = pressure_dirty_now_bytes(&r, &u, false, 0);
		assert_true(bound >= r.dirty_bytes);
		assert_true(bound == r.dirty_bytes ||
			    blk_to_bytes(u.dirty_blks) + look + bound / 3 * 4 <=
				    blk_to_bytes(2000));
	}
	assert_int_equal(pressure_dirty_now_bytes(
				 &p, &(struct pressure_use){ .used_bytes = 25 * MIB }, false, 0),
			 100 * MIB);
	assert_int_equal(pressure_dirty_now_bytes(&p, &(struct pressure_use){ .memory_low = true },
						  false, 0),
			 p.dirty_bytes);
	/* writers have a rate: the amount of a quarter of a second */
	assert_int_equal(pressure_dirty_now_bytes(&p, &(struct pressure_use){ 0 }, true, 4 * MIB),
			 MIB);
	assert_int_equal(pressure_dirty_now_bytes(&p, &(struct pressure_use){ 0 }, true, 0),
			 512 * KIB);
	assert_int_equal(
		pressure_dirty_now_bytes(&p, &(struct pressure_use){ 0 }, true, 1000 * MIB),
		p.dirty_bytes);
	p = plan_of(4096 * MIB, 8 * MIB);
	assert_int_equal(pressure_dirty_now_bytes(&p, &(struct pressure_use){ 0 }, false, 0),
			 256 * MIB);
}

TEST(test_memory)
{
	struct pressure_plan p = plan_of(400 * MIB, 8 * MIB);
	struct pressure_use u = { .used_bytes = 10 * MIB, .memory_bytes = 40 * MIB };
	uint64_t left;

	assert_true(pressure_memory_low(
		"MemTotal:  512000 kB\nMemFree: 1 kB\nMemAvailable:   65535 kB\n", &left));
	assert_false(
		pressure_memory_low("MemTotal:  512000 kB\nMemAvailable:   65536 kB\n", &left));
	/* 5 % */
	assert_true(
		pressure_memory_low("MemTotal:  8000000 kB\nMemAvailable:   399999 kB\n", &left));
	assert_false(
		pressure_memory_low("MemTotal:  8000000 kB\nMemAvailable:   400000 kB\n", &left));
	assert_false(pressure_memory_low("", &left));
	assert_false(pressure_memory_low("MemTotal:  8000000 kB\n", &left));
	assert_int_equal(left, 0);
	assert_true(pressure_memory_low("MemTotal:  512000 kB\nMemAvailable:   1024 kB\n", &left));
	assert_int_equal(left, MIB);
	/* the limit is not available if the machine has less memory left */
	assert_int_equal(pressure_room_bytes(&p, &u), 390 * MIB);
	u.memory_low = true;
	assert_int_equal(pressure_room_bytes(&p, &u), 20 * MIB);
	assert_true(pressure_rate_unsealed(&p, &u) < 100 * MIB);
	assert_int_equal(inhibit_left_ns(100, 40), 60);
	assert_int_equal(inhibit_left_ns(100, 100), 0);
	assert_int_equal(inhibit_left_ns(0, 100), 0);
}

TEST(test_due)
{
	/* behind the one before it, or its own arrival */
	assert_int_equal(throttle_due_ns(1000, 10, 100, 1, SECOND_NS, false), 1100);
	assert_int_equal(throttle_due_ns(10, 1000, 100, 1, SECOND_NS, false), 1100);
	assert_int_equal(throttle_due_ns(10, 1000, 100, 1, THROTTLE_OPEN, false), 1000);
	/* parked: until something changes, or nobody may take the device for dead */
	assert_int_equal(throttle_due_ns(10, 1000, 100, 1, 0, true), UINT64_MAX);
	assert_int_equal(throttle_due_ns(10, 1000, 100, 1, 0, false), 1000 + THROTTLE_LONGEST_NS);
	/* tags come free */
	assert_int_equal(throttle_due_ns(5000, 1000, 100, THROTTLE_TAGS_HELD + 1, 0, false),
			 5000 + THROTTLE_TAG_NS);
	assert_int_equal(throttle_due_ns(5000, 1000, 100, THROTTLE_TAGS_HELD, 0, false),
			 1000 + THROTTLE_LONGEST_NS);
	assert_int_equal(throttle_due_ns(5000, 1000, 100, THROTTLE_TAGS_HELD + 1, 0, true),
			 UINT64_MAX);
	assert_int_equal(
		throttle_due_ns(5000, 1000, 100, THROTTLE_TAGS_HELD + 1, 100 * SECOND_NS, false),
		5001);
}

/* ---- the throttle itself ---- */

static atomic_uint looks, replies, out_of_order;
static uint64_t replied_ns[300];

static void on_look(void *ctx)
{
	looks++;
}

static void on_reply(void *req, size_t bytes)
{
	if ((uintptr_t)req != replies)
		out_of_order++;
	replied_ns[replies % 300] = now_ns();
	replies++;
}

static struct throttle *throttle_up(void)
{
	struct throttle *g;

	looks = replies = out_of_order = 0;
	assert_int_equal(throttle_new(&g, on_look, NULL), 0);
	assert_int_equal(throttle_start(g, on_reply), 0);
	return g;
}

static void nap_ms(unsigned ms)
{
	usleep(ms * 1000);
}

TEST(test_gate_budget)
{
	struct throttle *g = throttle_up();
	struct throttle_stats st;

	throttle_set_budget(g, 10000);
	assert_int_equal(throttle_admit(g, 4096), 0);
	assert_int_equal(throttle_admit(g, 4096), 0);
	assert_int_equal(looks, 0);
	assert_int_equal(throttle_admit(g, 4096), 0);
	assert_int_equal(looks, 1);
	assert_int_equal(throttle_admit(g, 4096), 0); /* told once */
	assert_int_equal(looks, 1);
	throttle_refuse(g, -EIO);
	assert_int_equal(throttle_admit(g, 1), -EIO);
	throttle_stats(g, &st);
	assert_int_equal(st.refused, 1);
	throttle_refuse(g, 0);
	assert_int_equal(throttle_admit(g, 1), 0);
	assert_false(throttle_hold(g, NULL, 1)); /* open */
	throttle_stop(g);
	throttle_free(g);
}

TEST(test_gate_pace)
{
	struct throttle *g = throttle_up();
	uint64_t start = now_ns();
	struct throttle_stats st;

	throttle_set_rate(g, 0, true);
	for (uintptr_t i = 0; i < 20; i++)
		assert_true(throttle_hold(g, (void *)i, 10000)); /* 10 ms each */
	throttle_stats(g, &st);
	assert_true(st.held == 20 && st.paced == 20);
	throttle_set_rate(g, 1000000, false);
	while (replies < 20)
		nap_ms(1);
	assert_int_equal(out_of_order, 0);
	for (unsigned i = 1; i < 20; i++)
		assert_true(replied_ns[i] - start >= (i + 1) * 10000000ull);
	throttle_stats(g, &st);
	assert_true(st.held == 0 && st.longest_ns >= 190000000);
	throttle_stop(g);
	throttle_free(g);
}

TEST(test_gate_park)
{
	struct throttle *g = throttle_up();

	throttle_set_rate(g, 0, true);
	for (uintptr_t i = 0; i < 100; i++)
		assert_true(throttle_hold(g, (void *)i, 4096));
	nap_ms(100);
	assert_int_equal(replies, 0);
	throttle_set_rate(g, 0, false); /* not shut: tags come free down to the limit */
	while (replies < 100 - THROTTLE_TAGS_HELD)
		nap_ms(1);
	nap_ms(50);
	assert_int_equal(replies, 100 - THROTTLE_TAGS_HELD);
	throttle_set_rate(g, THROTTLE_OPEN, false);
	while (replies < 100)
		nap_ms(1);
	assert_false(throttle_hold(g, NULL, 1));
	/* the end answers what is held, and holds nothing more */
	throttle_set_rate(g, 0, true);
	assert_true(throttle_hold(g, (void *)100, 1));
	throttle_stop(g);
	assert_int_equal(replies, 101);
	assert_int_equal(out_of_order, 0);
	assert_false(throttle_hold(g, NULL, 1));
	throttle_free(g);
}

/* Replies are held once this amount was admitted, at any rate, until the stop is raised. */
TEST(test_gate_stop)
{
	struct throttle *g = throttle_up();

	throttle_set_tags(g, 16);
	throttle_set_stop(g, throttle_admitted(g) + 10000);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(throttle_admit(g, 4096), 0);
		assert_false(throttle_hold(g, NULL, 4096));
	}
	assert_int_equal(looks, 0);
	for (uintptr_t i = 0; i < 16; i++) {
		assert_int_equal(throttle_admit(g, 4096), 0);
		assert_true(throttle_hold(g, (void *)i, 4096));
	}
	assert_int_equal(looks, 1);
	nap_ms(100);
	assert_int_equal(replies, 0); /* not one, for a tag, either */
	throttle_set_stop(g, UINT64_MAX);
	while (replies < 16)
		nap_ms(1);
	/* of fewer tags half may be held */
	throttle_set_rate(g, 0, false);
	for (uintptr_t i = 16; i < 32; i++)
		assert_true(throttle_hold(g, (void *)i, 4096));
	while (replies < 24)
		nap_ms(1);
	nap_ms(100);
	assert_int_equal(replies, 24);
	throttle_set_stop(g, throttle_admitted(g));
	throttle_stop(g); /* answers what is held */
	assert_int_equal(replies, 32);
	assert_int_equal(out_of_order, 0);
	throttle_free(g);
}
