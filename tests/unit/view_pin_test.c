// SPDX-License-Identifier: MIT
/* Readers that hold a generation while it is released. */
#include "test.h"
#include <semaphore.h>
#include <sys/uio.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "sim/sim.h"
#include "export/pin.h"
#include "export/view.h"
#include "log/index_build.h"
#include "view_model.h"

/* ---- a reader that sleeps between look-up and copy ---- */

static int gate_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	struct gate *g = (struct gate *)c;

	sem_post(&g->arrived);
	sem_wait(&g->go);
	return card_read(g->inner, off_bytes, buf, len_bytes);
}

struct slow_reader {
	struct view *v;
	uint8_t *buf;
	int r;
};

static void *read_three_blocks(void *arg)
{
	struct slow_reader *s = arg;

	s->r = view_read(s->v, 0, s->buf, 3 * COW_BLK_BYTES);
	return NULL;
}

struct releaser {
	struct view *v;
	struct log_index *index;
	_Atomic bool done;
};

static void *release(void *arg)
{
	struct releaser *r = arg;

	view_release(r->v, r->index);
	r->done = true;
	return NULL;
}

TEST(pinned_generation_is_not_freed)
{
	static const struct card_ops ops = { .read = gate_read };
	struct gate gate = { .card.ops = &ops };
	struct slow_reader reader;
	struct releaser rel = { 0 };
	pthread_t reading, releasing;
	struct fixture f;

	setup(&f, 64 * MIB);
	view_free(f.v);
	gate.card.geo = f.card->geo;
	gate.inner = f.card;
	sem_init(&gate.arrived, 0, 0);
	sem_init(&gate.go, 0, 0);
	f.index = log_index_empty();
	assert_int_equal(view_new(&f.v, f.store, &gate.card, BLKS, f.index), 0);
	log_index_unref(f.index);

	/* blocks 0 and 2 from the base, 1 from RAM */
	do_write(&f, COW_BLK_BYTES, COW_BLK_BYTES);
	reader = (struct slow_reader){ .v = f.v, .buf = io_alloc(3 * COW_BLK_BYTES), .r = 1 };
	assert_int_equal(pthread_create(&reading, NULL, read_three_blocks, &reader), 0);
	sem_wait(&gate.arrived);

	do_seal(&f);
	memcpy(f.buf, f.live + COW_BLK_BYTES, COW_BLK_BYTES);
	memset(f.live + COW_BLK_BYTES, 0x11, COW_BLK_BYTES); /* newer content than in its pin */
	assert_int_equal(view_write(f.v, COW_BLK_BYTES, f.live + COW_BLK_BYTES, COW_BLK_BYTES), 0);
	rel.v = f.v;
	rel.index = log_index_empty();
	assert_int_equal(pthread_create(&releasing, NULL, release, &rel), 0);
	usleep(50000);
	assert_false(rel.done);
	assert_int_equal(used_pages(&f), 2);
	/* a later request does not wait, and no thread waits for it */
	assert_int_equal(view_read(f.v, COW_BLK_BYTES, f.buf + COW_BLK_BYTES, COW_BLK_BYTES), 0);
	assert_memory_equal(f.buf + COW_BLK_BYTES, f.live + COW_BLK_BYTES, COW_BLK_BYTES);
	assert_false(rel.done);

	sem_post(&gate.go);
	sem_wait(&gate.arrived); /* block 2: the sealed block is read, the pin remains */
	usleep(20000);
	assert_false(rel.done);
	sem_post(&gate.go);
	pthread_join(reading, NULL);
	pthread_join(releasing, NULL);
	assert_int_equal(reader.r, 0);
	assert_memory_equal(reader.buf, f.committed, COW_BLK_BYTES);
	assert_memory_equal(reader.buf + COW_BLK_BYTES, f.buf, COW_BLK_BYTES);
	assert_memory_equal(reader.buf + 2 * COW_BLK_BYTES, f.committed + 2 * COW_BLK_BYTES,
			    COW_BLK_BYTES);
	assert_int_equal(used_pages(&f), 1);
	free(reader.buf);
	teardown(&f);
}

struct gated {
	struct gate gate;
	struct view *v;
	uint8_t *buf;
	_Atomic bool done;
	int r;
};

static void *read_gated(void *arg)
{
	struct gated *g = arg;

	my_gate = &g->gate;
	g->r = view_read(g->v, 0, g->buf, COW_BLK_BYTES);
	g->done = true;
	return NULL;
}

static void *fail_gated(void *arg)
{
	struct gated *g = arg;

	my_gate = &g->gate;
	g->r = view_fail(g->v);
	g->done = true;
	return NULL;
}

TEST(merged_layer_outlives_its_readers)
{
	struct gated reader = { 0 }, failer = { 0 };
	pthread_t reading, failing;
	struct fixture f;

	setup(&f, 64 * MIB);
	do_write(&f, 0, COW_BLK_BYTES);
	do_seal(&f);
	do_fail(&f);
	do_write(&f, 10 * COW_BLK_BYTES, COW_BLK_BYTES);
	do_seal(&f);
	sem_init(&reader.gate.arrived, 0, 0);
	sem_init(&reader.gate.go, 0, 0);
	sem_init(&failer.gate.arrived, 0, 0);
	sem_init(&failer.gate.go, 0, 0);
	reader.v = failer.v = f.v;
	reader.buf = io_alloc(COW_BLK_BYTES);

	/* the merge is about to copy block 0 up, the reader has found it in the lower layer */
	assert_int_equal(pthread_create(&failing, NULL, fail_gated, &failer), 0);
	sem_wait(&failer.gate.arrived);
	assert_int_equal(pthread_create(&reading, NULL, read_gated, &reader), 0);
	sem_wait(&reader.gate.arrived);
	sem_post(&failer.gate.go);
	while (used_pages(&f) < 3)
		usleep(50000);
	assert_false(failer.done);
	sem_post(&reader.gate.go);
	pthread_join(reading, NULL);
	pthread_join(failing, NULL);
	f.is_sealed = false;
	assert_int_equal(reader.r, 0);
	assert_int_equal(failer.r, 0);
	assert_memory_equal(reader.buf, f.live, COW_BLK_BYTES);
	assert_int_equal(used_pages(&f), 2);
	check_all(&f);
	free(reader.buf);
	teardown(&f);
}

/* A reader that comes when the stack is the new one, and finds a block that is trimmed before it reads. */
struct late {
	struct fixture *f;
	struct gated reader;
	pthread_t thread;
	_Atomic bool released;
};

static bool keep_one(void *ctx, bool newest, uint64_t blk, uint64_t max_blks, uint64_t *ret_blks)
{
	(void)newest;
	struct late *l = ctx;

	*ret_blks = 1;
	if (blk == 0) {
		assert_int_equal(pthread_create(&l->thread, NULL, read_gated, &l->reader), 0);
		sem_wait(&l->reader.gate.arrived);
	}
	return blk == 10;
}

static void *release_keeping(void *arg)
{
	struct late *l = arg;

	view_release_keeping(l->f->v, log_index_empty(), true, keep_one, l);
	l->released = true;
	return NULL;
}

TEST(trimmed_pages_outlive_their_readers)
{
	struct fixture f;
	struct late l = { .f = &f };
	struct generation *below;
	uint64_t blk = 0, n;
	enum blk_state st;
	pthread_t releasing;

	setup(&f, 64 * MIB);
	do_write(&f, 0, COW_BLK_BYTES);
	do_write(&f, 10 * COW_BLK_BYTES, COW_BLK_BYTES);
	do_seal(&f);
	home_write(&f, 0, 1, f.live);
	memcpy(f.committed, f.live, COW_BLK_BYTES);
	sem_init(&l.reader.gate.arrived, 0, 0);
	sem_init(&l.reader.gate.go, 0, 0);
	l.reader.v = f.v;
	l.reader.buf = io_alloc(COW_BLK_BYTES);
	assert_int_equal(pthread_create(&releasing, NULL, release_keeping, &l), 0);
	usleep(50000);
	assert_false(l.released);
	assert_int_equal(used_pages(&f), 2);
	check_live(&f, 0, 11 * COW_BLK_BYTES); /* others are not held up */
	sem_post(&l.reader.gate.go);
	pthread_join(releasing, NULL);
	pthread_join(l.thread, NULL);
	assert_int_equal(l.reader.r, 0);
	assert_memory_equal(l.reader.buf, f.live, COW_BLK_BYTES);
	assert_int_equal(view_kept_blks(f.v), 1);
	assert_int_equal(used_pages(&f), 1);
	check_live(&f, 0, BYTES);
	/* what is kept is no dirty run, until a layer comes below it */
	assert_false(view_next_live(f.v, &blk, BLKS, &n, &st));
	assert_int_equal(generation_new(&below, f.store, BLKS), 0);
	assert_int_equal(generation_mark(below, 20, 2, BLK_HOLE), 0);
	assert_int_equal(view_add_below(f.v, below), 0);
	blk = 15;
	assert_true(view_next_live(f.v, &blk, BLKS, &n, &st));
	assert_int_equal(blk, 20);
	assert_int_equal(n, 2);
	memset(f.live + 20 * COW_BLK_BYTES, 0, 2 * COW_BLK_BYTES);
	check_live(&f, 0, BYTES);
	free(l.reader.buf);
	teardown(&f);
}

/* One pin after the other, each entered before the last is left: the count never becomes 0. */
struct relay {
	struct pins *pins;
	_Atomic bool stop, running;
};

static void *hand_over(void *arg)
{
	struct relay *r = arg;
	struct pin pin = pins_enter(r->pins), next;

	r->running = true;
	while (!r->stop) {
		next = pins_enter(r->pins);
		pins_leave(pin);
		pin = next;
	}
	pins_leave(pin);
	return NULL;
}

TEST(new_pins_do_not_delay_the_wait)
{
	struct pins *pins = aligned_alloc(alignof(struct pins), sizeof(*pins));
	struct relay r = { .pins = pins };
	pthread_t t;

	memset(pins, 0, sizeof(*pins));
	pins_synchronize(pins);
	assert_int_equal(pthread_create(&t, NULL, hand_over, &r), 0);
	while (!r.running)
		usleep(100);
	alarm(600);
	for (unsigned i = 0; i < 200; i++)
		pins_synchronize(pins);
	alarm(0);
	r.stop = true;
	pthread_join(t, NULL);
	for (unsigned i = 0; i < PIN_SLOTS; i++)
		assert_true(!pins->slot[i].held[0] && !pins->slot[i].held[1]);
	free(pins);
}

static void *synchronize(void *arg)
{
	struct relay *r = arg;

	pins_synchronize(r->pins);
	r->stop = true;
	return NULL;
}

/* A reader may load the phase, sleep, and enter when that phase is no longer current. */
TEST(late_pins_are_waited_for)
{
	struct pins *pins = aligned_alloc(alignof(struct pins), sizeof(*pins));

	memset(pins, 0, sizeof(*pins));
	for (unsigned phase = 0; phase < 2; phase++) {
		struct relay r = { .pins = pins };
		struct pin pin = pins_enter(pins);
		pthread_t t;

		pins->phase ^= phase;
		assert_int_equal(pthread_create(&t, NULL, synchronize, &r), 0);
		usleep(30000);
		assert_false(r.stop);
		pins_leave(pin);
		pthread_join(t, NULL);
	}
	free(pins);
}
