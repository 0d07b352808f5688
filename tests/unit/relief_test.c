/* SPDX-License-Identifier: MIT */
/* RAM that comes back without a commit: view_relieve, and what a killed process leaves of it. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "sim/sim.h"
#include "export/pin.h"
#include "export/view.h"
#include "log/index_build.h"
#include "rnd.h"
#include "view_model.h"

#define GROUP_BYTES ((size_t)GENERATION_GROUP_BLKS * COW_BLK_BYTES)
#define GROUPS 16u

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static bool at_once(void *ctx)
{
	(void)ctx;
	return true;
}

static uint64_t relieve_with(struct fixture *f, struct view_relief rf)
{
	rf.must_stop = never;
	rf.ctx = f;

	assert_int_equal(view_relieve(f->v, &rf), 0);
	return rf.forgotten_blks;
}

static uint64_t relieve(struct fixture *f, bool compress, bool (*is_used)(void *, uint64_t))
{
	return relieve_with(f, (struct view_relief){ .compress = compress, .is_used = is_used });
}

static uint64_t packed_blks(struct fixture *f)
{
	struct generation_stats active, below;

	view_dirty(f->v, &active, &below);
	return active.packed_blks + below.packed_blks;
}

/* Blocks that shrink to less than a quarter, and none of which is like another. */
static void fill(void *to, size_t len)
{
	uint32_t *p = to;

	for (size_t i = 0; i < len / 4; i++)
		p[i] = i % 8 ? 0x20202020 : (uint32_t)rnd(UINT32_MAX);
}

static void write_groups(struct fixture *f, unsigned first, unsigned n)
{
	fill(f->live + first * GROUP_BYTES, n * GROUP_BYTES);
	assert_int_equal(view_write(f->v, first * GROUP_BYTES, f->live + first * GROUP_BYTES,
				    n * GROUP_BYTES),
			 0);
}

static void set_up(struct fixture *f)
{
	setup(f, 64 * MIB);
	assert_int_equal(ram_store_compress(f->store), 0);
	write_groups(f, 0, GROUPS);
}

/* One pass finds what is cold, the next one compresses it. */
static void set_up_packed(struct fixture *f)
{
	set_up(f);
	relieve(f, true, NULL);
	relieve(f, true, NULL);
}

static void cold_blocks_are_compressed(void **state)
{
	const uint64_t plain = GROUPS * GROUP_BYTES / page_bytes();
	struct generation_stats active, below;
	struct fixture f;

	(void)state;
	set_up(&f);
	assert_int_equal(relieve(&f, true, NULL), 0);
	assert_int_equal(packed_blks(&f), 0); /* just written */
	write_groups(&f, 3, 1);
	relieve(&f, true, NULL);
	assert_int_equal(packed_blks(&f), (GROUPS - 1) * GENERATION_GROUP_BLKS);
	assert_in_range(used_pages(&f), 1, plain / 2);
	view_dirty(f.v, &active, &below);
	assert_int_equal(active.data_blks, GROUPS * GENERATION_GROUP_BLKS);
	assert_int_equal(active.packed_bytes, (used_pages(&f) * page_bytes()) - GROUP_BYTES);
	check_live(&f, 0, BYTES);
	for (unsigned i = 0; i < 500; i++) {
		size_t len = 1 + rnd(3 * GROUP_BYTES), off = rnd(GROUPS * GROUP_BYTES - len);

		check_live(&f, off, len);
	}
	relieve(&f, true, NULL);
	assert_int_equal(packed_blks(&f), GROUPS * GENERATION_GROUP_BLKS);

	/* noise has nothing to gain */
	do_write(&f, 20 * GROUP_BYTES, GROUP_BYTES);
	for (unsigned i = 0; i < 3; i++)
		relieve(&f, true, NULL);
	assert_int_equal(packed_blks(&f), GROUPS * GENERATION_GROUP_BLKS);
	check_live(&f, 0, BYTES);
	teardown(&f);
}

static void compressed_blocks_change(void **state)
{
	struct fixture f;
	uint64_t used;

	(void)state;
	set_up_packed(&f);
	used = used_pages(&f);
	for (unsigned i = 0; i < 300; i++) {
		size_t len = 4 + round_down_u64(rnd(i % 3 ? 900 : 3 * GROUP_BYTES), 4);
		size_t off = round_down_u64(rnd(GROUPS * GROUP_BYTES - len), 4);

		if (rnd(5)) {
			fill(f.live + off, len);
			assert_int_equal(view_write(f.v, off, f.live + off, len), 0);
		} else {
			memset(f.live + off, 0, len);
			assert_int_equal(view_punch(f.v, off, len), 0);
		}
		if (rnd(10) == 0)
			relieve(&f, true, NULL);
		check_live(&f, 0, GROUPS * GROUP_BYTES);
	}
	/* a group that is compressed in part takes no more than before once it is cold */
	for (unsigned i = 0; i < 3; i++)
		relieve(&f, true, NULL);
	assert_in_range(used_pages(&f), 1, used + 2);
	check_live(&f, 0, BYTES);

	/* sealed, merged after a failure, and compressed there */
	do_seal(&f);
	assert_int_equal(view_read_sealed(f.v, 0, BLKS, f.buf), 0);
	assert_memory_equal(f.buf, f.live, BYTES);
	write_groups(&f, 2, 3);
	do_fail(&f);
	do_seal(&f);
	do_fail(&f);
	relieve(&f, true, NULL);
	relieve(&f, true, NULL);
	assert_true(packed_blks(&f));
	check_live(&f, 0, BYTES);
	teardown(&f);
}

static void a_job_ends_it(void **state)
{
	struct view_relief rf = { .compress = true, .must_stop = at_once };
	struct fixture f;

	(void)state;
	set_up(&f);
	relieve(&f, true, NULL);
	assert_int_equal(view_relieve(f.v, &rf), -EINTR);
	assert_int_equal(packed_blks(&f), 0);
	teardown(&f);
}

static void full_store_loses_nothing(void **state)
{
	struct fixture f;
	struct ram_usage u;

	(void)state;
	set_up(&f);
	relieve(&f, true, NULL);
	ram_store_usage(f.store, &u);
	assert_int_equal(ram_store_resize(f.store, u.used_bytes), 0);
	{
		struct view_relief rf = { .compress = true, .must_stop = never };

		assert_int_equal(view_relieve(f.v, &rf), -ENOSPC);
	}
	assert_int_equal(packed_blks(&f), 0);
	check_live(&f, 0, BYTES);
	assert_int_equal(ram_store_resize(f.store, u.used_bytes + GROUP_BYTES), 0);
	for (unsigned i = 0; i < GROUPS; i++) {
		struct view_relief rf = { .compress = true, .must_stop = never };

		(void)!view_relieve(f.v, &rf);
	}
	assert_int_equal(packed_blks(&f), GROUPS * GENERATION_GROUP_BLKS);
	check_live(&f, 0, BYTES);
	teardown(&f);
}

/* Commits fail when RAM is short: what is compressed must not be unpacked into it. */
static void merged_layers_stay_compressed(void **state)
{
	struct ram_usage before, after;
	struct fixture f;

	(void)state;
	set_up_packed(&f);
	do_seal(&f);
	do_fail(&f);
	write_groups(&f, GROUPS + 2, 1);
	do_seal(&f);
	ram_store_usage(f.store, &before);
	assert_int_equal(ram_store_resize(f.store, before.used_bytes + 4 * GROUP_BYTES), 0);
	do_fail(&f);
	ram_store_usage(f.store, &after);
	assert_int_equal(packed_blks(&f), GROUPS * GENERATION_GROUP_BLKS);
	assert_in_range(after.used_bytes, 1, before.used_bytes);
	check_live(&f, 0, BYTES);
	teardown(&f);
}

/* ---- the same as on the card ---- */

static bool used(void *ctx, uint64_t blk)
{
	(void)ctx;
	return blk % 8 != 5;
}

/* A card in front of the card: while block 0 is read, a program writes block 2. */
struct busy {
	struct card card, *inner;
	struct fixture *f;
};

static int busy_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	struct busy *busy = (struct busy *)c;
	struct fixture *f = busy->f;
	int r = card_read(busy->inner, off_bytes, buf, len_bytes);

	if (f && off_bytes == 0) {
		busy->f = NULL;
		memset(f->live + blk_to_bytes(2), 0x33, COW_BLK_BYTES);
		assert_int_equal(
			view_write(f->v, blk_to_bytes(2), f->live + blk_to_bytes(2), COW_BLK_BYTES),
			0);
	}
	return r;
}

static void same_blocks_are_forgotten(void **state)
{
	static const struct card_ops ops = { .read = busy_read };
	struct generation_stats active, below;
	struct busy busy = { .card.ops = &ops };
	struct fixture f;

	(void)state;
	setup(&f, 64 * MIB);
	view_free(f.v);
	busy.card.geo = f.card->geo;
	busy.inner = f.card;
	f.index = log_index_empty();
	assert_int_equal(view_new(&f.v, f.store, &busy.card, BLKS, f.index), 0);
	log_index_unref(f.index);
	memcpy(f.live, f.committed, BYTES);
	assert_int_equal(view_write(f.v, 0, f.live, 2 * GROUP_BYTES), 0);
	memset(f.live + COW_BLK_BYTES, 0x11, COW_BLK_BYTES);
	assert_int_equal(view_write(f.v, 100, f.live + 100, 3 * COW_BLK_BYTES), 0);
	assert_int_equal(relieve(&f, false, used), 0); /* not cold */
	busy.f = &f;
	assert_int_equal(relieve(&f, false, used), 7);
	assert_null(busy.f);
	check_live(&f, 0, BYTES);
	assert_int_equal(relieve(&f, false, used), 0);
	assert_int_equal(relieve(&f, false, used), 5); /* of 8: one is free, and 1 and 2 differ */
	view_dirty(f.v, &active, &below);
	assert_int_equal(active.data_blks, 4);
	if (page_bytes() == COW_BLK_BYTES)
		assert_int_equal(used_pages(&f), 4);
	check_live(&f, 0, BYTES);

	/* below a layer of a failed commit is not the card */
	do_seal(&f);
	do_fail(&f);
	memcpy(f.live, f.committed, GROUP_BYTES);
	assert_int_equal(view_write(f.v, 0, f.live, GROUP_BYTES), 0);
	assert_int_equal(relieve(&f, false, used), 0);
	assert_int_equal(relieve(&f, false, used), 0);
	check_live(&f, 0, BYTES);
	teardown(&f);
}

/* Only where the card was never trimmed: zeros that it reads elsewhere may not last. */
static void same_zeros_are_forgotten(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 64 * MIB);
	memset(f.live, 0, 2 * GROUP_BYTES);
	assert_int_equal(view_write(f.v, 0, f.live, 2 * GROUP_BYTES), 0);
	home_write(&f, 0, 2 * GENERATION_GROUP_BLKS, f.live);
	relieve(&f, false, used);
	assert_int_equal(relieve(&f, false, used), 0);
	assert_int_equal(view_write(f.v, 0, f.live, 2 * GROUP_BYTES), 0);
	relieve_with(&f, (struct view_relief){ .zeros = true, .is_used = used });
	assert_int_equal(relieve_with(&f, (struct view_relief){ .zeros = true, .is_used = used }),
			 2 * 7);
	check_live(&f, 0, BYTES);
	teardown(&f);
}

static void compressed_blocks_are_forgotten(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f);
	home_write(&f, 0, GROUPS * GENERATION_GROUP_BLKS, f.live);
	relieve(&f, true, NULL);
	relieve(&f, true, NULL);
	assert_int_equal(packed_blks(&f), GROUPS * GENERATION_GROUP_BLKS);
	assert_int_equal(relieve(&f, true, used), GROUPS * 7);
	relieve(&f, true, NULL);
	/* a pack of one block would take as much */
	assert_int_equal(packed_blks(&f), 0);
	if (page_bytes() == COW_BLK_BYTES)
		assert_int_equal(used_pages(&f), GROUPS);
	check_live(&f, 0, BYTES);
	teardown(&f);
}

static void discarded_blocks_leave_the_pack(void **state)
{
	struct fixture f;
	uint64_t used;

	(void)state;
	set_up_packed(&f);
	used = used_pages(&f);
	for (unsigned i = 0; i < GROUPS; i++) {
		memset(f.live + i * GROUP_BYTES, 0, GROUP_BYTES / 2);
		assert_int_equal(view_punch(f.v, i * GROUP_BYTES, GROUP_BYTES / 2), 0);
	}
	for (unsigned i = 0; i < 3; i++)
		relieve(&f, true, NULL);
	assert_int_equal(packed_blks(&f), GROUPS * GENERATION_GROUP_BLKS / 2);
	if (page_bytes() == COW_BLK_BYTES)
		assert_true(used_pages(&f) < used);
	check_live(&f, 0, BYTES);
	teardown(&f);
}

/* ---- readers ---- */

struct reader {
	struct gate gate;
	struct view *v;
	uint8_t buf[COW_BLK_BYTES];
	uint64_t blk;
	int r;
};

/* Stops between look-up and copy. */
static void *read_slowly(void *arg)
{
	struct reader *rd = arg;

	my_gate = &rd->gate;
	rd->r = view_read(rd->v, blk_to_bytes(rd->blk), rd->buf, COW_BLK_BYTES);
	my_gate = NULL;
	return NULL;
}

struct passes {
	struct fixture *f;
	bool (*is_used)(void *ctx, uint64_t blk);
	_Atomic bool done;
};

static void *relieve_twice(void *arg)
{
	struct passes *p = arg;

	relieve(p->f, true, p->is_used);
	relieve(p->f, true, p->is_used);
	p->done = true;
	return NULL;
}

static void begin_read(struct reader *rd, pthread_t *t, struct fixture *f, uint64_t blk)
{
	*rd = (struct reader){ .v = f->v, .blk = blk, .r = 1 };
	sem_init(&rd->gate.arrived, 0, 0);
	sem_init(&rd->gate.go, 0, 0);
	assert_int_equal(pthread_create(t, NULL, read_slowly, rd), 0);
	sem_wait(&rd->gate.arrived);
}

static void end_read(struct reader *rd, pthread_t t, const uint8_t *want)
{
	for (unsigned i = 0; i < 3; i++)
		sem_post(&rd->gate.go);
	pthread_join(t, NULL);
	assert_int_equal(rd->r, 0);
	assert_memory_equal(rd->buf, want, COW_BLK_BYTES);
}

static void readers_are_waited_for(void **state)
{
	pthread_t reading, passing;
	struct passes p;
	struct reader rd;
	struct fixture f;
	uint8_t *before;

	(void)state;
	/* pages of blocks that are compressed, or forgotten, under a reader */
	for (unsigned forgets = 0; forgets < 2; forgets++) {
		set_up(&f);
		if (forgets)
			home_write(&f, 0, GROUPS * GENERATION_GROUP_BLKS, f.live);
		begin_read(&rd, &reading, &f, 7);
		p = (struct passes){ .f = &f, .is_used = forgets ? used : NULL };
		assert_int_equal(pthread_create(&passing, NULL, relieve_twice, &p), 0);
		usleep(50000);
		assert_false(p.done);
		end_read(&rd, reading, f.live + blk_to_bytes(7));
		pthread_join(passing, NULL);
		check_live(&f, 0, BYTES);
		teardown(&f);
	}
	/* a pack that gets no block any more under a reader */
	set_up_packed(&f);
	before = io_alloc(COW_BLK_BYTES);
	memcpy(before, f.live + blk_to_bytes(7), COW_BLK_BYTES);
	begin_read(&rd, &reading, &f, 7);
	write_groups(&f, 0, 1);
	p = (struct passes){ .f = &f };
	assert_int_equal(pthread_create(&passing, NULL, relieve_twice, &p), 0);
	usleep(50000);
	assert_false(p.done);
	end_read(&rd, reading, before);
	pthread_join(passing, NULL);
	check_live(&f, 0, BYTES);
	free(before);
	teardown(&f);
}

/* It has found the block in this generation, and comes to the bytes after the block was forgotten. */
static void late_readers_find_what_is_forgotten(void **state)
{
	static uint8_t data[GROUP_BYTES], got[GROUP_BYTES];
	struct generation *g;
	struct ram_store *s;

	(void)state;
	fill(data, sizeof(data));
	assert_int_equal(ram_store_open(&s, 64 * MIB), 0);
	assert_int_equal(ram_store_compress(s), 0);
	/* all of the compressed blocks, or some */
	for (unsigned mask = 0xff; mask; mask = mask == 0xff ? 0x5a : 0) {
		assert_int_equal(generation_new(&g, s, 1000), 0);
		assert_int_equal(generation_write(g, 0, data, sizeof(data)), 0);
		assert_int_equal(generation_mark(g, 0, GENERATION_GROUP_BLKS, BLK_DATA), 0);
		assert_false(generation_is_cold(g, 0));
		assert_int_equal(generation_pack(g, 0), 1);
		assert_true(generation_pack_end(g, 0));
		generation_drop(g, 0, GENERATION_GROUP_BLKS);
		assert_true(generation_forget(g, 0, (uint8_t)mask));
		assert_int_equal(generation_read(g, 0, got, sizeof(got)), 0);
		assert_memory_equal(got, data, sizeof(data));
		generation_drop(g, 0, GENERATION_GROUP_BLKS);
		assert_true(generation_check(g));
		for (unsigned i = 0; i < GENERATION_GROUP_BLKS; i++)
			if (!(mask >> i & 1)) {
				assert_int_equal(
					generation_read(g, blk_to_bytes(i), got, COW_BLK_BYTES), 0);
				assert_memory_equal(got, data + blk_to_bytes(i), COW_BLK_BYTES);
			}
		generation_free(g);
	}
	ram_store_close(s);
}

/* ---- a process that is killed in between ---- */

static void remains_are_whole(void **state)
{
	static uint8_t data[GROUP_BYTES], got[GROUP_BYTES];
	struct generation_stats stats;
	struct generation *g, *next;
	struct ram_store *s;
	struct ram_usage u;

	(void)state;
	fill(data, sizeof(data));
	for (unsigned step = 0; step < 6; step++) {
		assert_int_equal(ram_store_open(&s, 64 * MIB), 0);
		assert_int_equal(ram_store_compress(s), 0);
		assert_int_equal(generation_new(&g, s, 1000), 0);
		assert_int_equal(generation_write(g, 0, data, sizeof(data)), 0);
		assert_int_equal(generation_mark(g, 0, GENERATION_GROUP_BLKS, BLK_DATA), 0);
		assert_false(generation_is_cold(g, 0));
		assert_true(generation_is_cold(g, 0));
		assert_int_equal(generation_pack(g, 0), 1);
		if (step > 0)
			assert_true(generation_pack_end(g, 0));
		if (step > 1)
			generation_drop(g, 0, GENERATION_GROUP_BLKS);
		if (step == 3 || step == 4) {
			memset(data, 0x55, COW_BLK_BYTES);
			assert_int_equal(generation_write(g, 0, data, COW_BLK_BYTES), 0);
			assert_int_equal(generation_mark(g, 0, 1, BLK_DATA), 0);
			assert_int_equal(generation_group_state(g, 0), GROUP_MIXED);
		}
		if (step == 4)
			assert_int_equal(generation_unpack(g, 0), 0);
		if (step == 5) /* written before its mark */
			assert_int_equal(generation_write(g, 0, got, COW_BLK_BYTES), 0);

		assert_int_equal(generation_open(&next, s, 1000, generation_id(g)), 0);
		generation_stats(next, &stats);
		assert_int_equal(stats.data_blks, GENERATION_GROUP_BLKS);
		assert_int_equal(stats.packed_blks, step == 0 || step == 4 ? 0 : step == 3 ? 7 : 8);
		assert_int_equal(generation_read(next, 0, got, sizeof(got)), 0);
		assert_memory_equal(got, data, sizeof(data));
		ram_store_usage(s, &u);
		if (step == 0 || step == 4)
			assert_int_equal(u.used_bytes, GROUP_BYTES);
		else if (step != 3)
			assert_in_range(u.used_bytes, 1, GROUP_BYTES / 2);
		assert_true(generation_check(next));
		generation_free(next);
		generation_free(g);
		ram_store_close(s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cold_blocks_are_compressed),
		cmocka_unit_test(compressed_blocks_change),
		cmocka_unit_test(a_job_ends_it),
		cmocka_unit_test(full_store_loses_nothing),
		cmocka_unit_test(merged_layers_stay_compressed),
		cmocka_unit_test(same_blocks_are_forgotten),
		cmocka_unit_test(same_zeros_are_forgotten),
		cmocka_unit_test(compressed_blocks_are_forgotten),
		cmocka_unit_test(discarded_blocks_leave_the_pack),
		cmocka_unit_test(readers_are_waited_for),
		cmocka_unit_test(late_readers_find_what_is_forgotten),
		cmocka_unit_test(remains_are_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
