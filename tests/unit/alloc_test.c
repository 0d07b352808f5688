/* SPDX-License-Identifier: MIT */
/*
 * Allocation sweep: the n-th allocation of an operation fails, once or with all that follow,
 * n = 1, 2, ... until a run has no failure. Each time: success, or an error that says so; the state
 * usable, nothing lost, and the same operation succeeds when it is repeated.
 *
 * The linker's --wrap takes the calls of cowfs's own code, not those inside libraries: libext2fs
 * 1.47 crashes in two places when it gets no memory (ext2fs_create_inode_cache,
 * ext2fs_extent_open2).
 */
#include "test.h"
#include "config/conf.h"
#include "export/view.h"
#include "log/index_build.h"
#include "toy.h"

/* ---- the allocator ---- */

/* volatile: the compiler assumes that malloc changes nothing here */
static volatile uint64_t countdown; /* 0: none fails */
static volatile bool hit, for_ever; /* or only once */
static volatile int paused;

static bool denied(void)
{
	if (paused || !countdown)
		return false;
	if (countdown > 1) {
		countdown = countdown - 1;
		return false;
	}
	if (!for_ever)
		countdown = 0;
	hit = true;
	return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t each);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
int __real_posix_memalign(void **p, size_t align, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t each);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n);
char *__wrap_strdup(const char *s);

void *__wrap_malloc(size_t n)
{
	return denied() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t each)
{
	return denied() ? NULL : __real_calloc(n, each);
}

void *__wrap_realloc(void *p, size_t n)
{
	return denied() ? NULL : __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
	return denied() ? NULL : __real_aligned_alloc(align, n);
}

int __wrap_posix_memalign(void **p, size_t align, size_t n)
{
	return denied() ? ENOMEM : __real_posix_memalign(p, align, n);
}

char *__wrap_strdup(const char *s)
{
	return denied() ? NULL : __real_strdup(s);
}

/* The simulator cannot handle a lack of memory. */
static void pause_around(bool on)
{
	paused = paused + (on ? 1 : -1);
}

static void arm(uint64_t n)
{
	hit = false;
	countdown = n;
}

/* true: the n-th allocation took place, and was denied */
static bool disarm(void)
{
	countdown = 0;
	return hit;
}

/* For every sweep: some allocation must have been denied, and the sweep must end. */
enum { MAX_ALLOCS = 5000 };

static void swept(const char *what, uint64_t n)
{
	print_message("  %s: %llu allocations\n", what, (unsigned long long)n - 1);
	assert_in_range(n, 2, MAX_ALLOCS - 1);
}

/* ---- the log ---- */

static _Alignas(COW_BLK_BYTES) uint8_t view_now[TOY_BLKS * COW_BLK_BYTES];

static void shows(struct toy *t, const struct toy_image *im)
{
	assert_int_equal(toy_view(t, view_now), 0);
	assert_int_equal(toy_differs(im, view_now), -1);
}

/* A reader of the card finds one of the two images after a power cut now. */
static void card_holds(const struct toy *t, const struct toy_image *a, const struct toy_image *b)
{
	struct toy c;

	toy_clone(&c, t);
	sim_power_cycle(c.card, NULL, NULL);
	if (c.base != c.card)
		sim_power_cycle(c.base, NULL, NULL);
	assert_int_equal(toy_open(&c, 0), 0);
	assert_int_equal(toy_view(&c, view_now), 0);
	assert_true(toy_differs(a, view_now) < 0 || toy_differs(b, view_now) < 0);
	toy_free(&c);
}

TEST(test_open)
{
	static const enum toy_story stories[] = { TOY_LIVE, TOY_CHAIN, TOY_CUT_CHECKPOINT,
						  TOY_RETIRED, TOY_VIRGIN };
	uint64_t n;

	for (size_t i = 0; i < ARRAY_SIZE(stories); i++) {
		struct toy t;
		bool was_hit = true;

		toy_tell(&t, stories[i], NULL, NULL);
		toy_close(&t);
		toy_pause(&t, pause_around);
		for (n = 0; was_hit && n < MAX_ALLOCS;) {
			int r;

			arm(++n);
			r = toy_open(&t, 0);
			was_hit = disarm();
			assert_true(r == 0 || (was_hit && r == -ENOMEM));
			if (r == 0) {
				shows(&t, &t.n);
				assert_true(t.rep.state != LOG_BROKEN &&
					    t.rep.state != LOG_FOREIGN && !t.rep.rejected);
			}
			toy_close(&t);
		}
		swept("log_open", n);
		toy_free(&t);
	}
}

static void few(struct toy *t)
{
	toy_write(t, 7, 500);
	toy_write(t, 8, 0);
	toy_write(t, 9, 501);
	toy_write(t, 12, 502); /* free so far, in some stories */
	toy_drop(t, 20);
}

/* More than the ring can hold, whatever it contains: checkpoint and spill. */
static void many(struct toy *t)
{
	for (unsigned b = 4, todo = 51; b < TOY_BLKS && todo; b++)
		if (t->n.use[b] == USE_USED) {
			toy_write(t, b, (uint16_t)(6000 + b));
			todo--;
		}
}

static void sweep_commit(const char *name, enum toy_story story, void (*change)(struct toy *t))
{
	struct toy origin;
	bool was_hit = true;
	uint64_t n;

	toy_tell(&origin, story, NULL, NULL);
	toy_close(&origin);
	for (n = 0; was_hit && n < MAX_ALLOCS;) {
		struct toy_image old = origin.n;
		struct toy t;
		int r;

		toy_clone(&t, &origin);
		toy_pause(&t, pause_around);
		assert_int_equal(toy_open(&t, 0), 0);
		change(&t);
		arm(++n);
		r = toy_commit(&t);
		was_hit = disarm();
		assert_true(r == 0 || (was_hit && r == -ENOMEM));
		assert_false(t.card->writable || t.base->writable);
		card_holds(&t, r == 0 ? &t.n : &old, &t.live);
		shows(&t, r == 0 ? &t.live : &old);
		if (r < 0) { /* in the same session, with the content of RAM */
			assert_int_equal(toy_commit(&t), 0);
			shows(&t, &t.live);
			card_holds(&t, &t.live, &t.live);
		}
		assert_int_equal(toy_checkpoint(&t, RECORD_TAIL, RECORD_CLEAN), 0);
		shows(&t, &t.live);
		toy_close(&t);
		assert_int_equal(toy_open(&t, 0), 0);
		assert_int_equal(t.rep.state, LOG_CLEAN);
		shows(&t, &t.live);
		toy_free(&t);
	}
	swept(name, n);
	toy_free(&origin);
}

TEST(test_commit)
{
	sweep_commit("first commit of a card", TOY_VIRGIN, few);
	sweep_commit("commit after a cut checkpoint", TOY_CUT_CHECKPOINT, few);
	sweep_commit("commit, log device", TOY_CHAIN, few);
}

TEST(test_spill)
{
	sweep_commit("commit after a spill", TOY_LIVE, few);
	sweep_commit("commit with checkpoint and spill", TOY_LIVE, many);
}

TEST(test_checkpoint)
{
	static const enum toy_story stories[] = { TOY_LIVE, TOY_CHAIN, TOY_CUT_CHECKPOINT };
	uint64_t n;

	for (size_t i = 0; i < ARRAY_SIZE(stories); i++) {
		struct toy origin;
		bool was_hit = true;

		toy_tell(&origin, stories[i], NULL, NULL);
		toy_close(&origin);
		for (n = 0; was_hit && n < MAX_ALLOCS;) {
			struct toy t;
			int r;

			toy_clone(&t, &origin);
			toy_pause(&t, pause_around);
			assert_int_equal(toy_open(&t, 0), 0);
			arm(++n);
			r = toy_checkpoint(&t, RECORD_RETIRED, RECORD_CLEAN);
			was_hit = disarm();
			assert_true(r == 0 || (was_hit && r == -ENOMEM));
			shows(&t, &t.n);
			card_holds(&t, &t.n, &t.n);
			assert_int_equal(toy_checkpoint(&t, RECORD_RETIRED, RECORD_CLEAN), 0);
			toy_close(&t);
			assert_int_equal(toy_open(&t, 0), 0);
			assert_int_equal(t.rep.state, LOG_RETIRED);
			shows(&t, &t.n);
			toy_free(&t);
		}
		swept("checkpoint", n);
		toy_free(&origin);
	}
}

/* ---- the view ---- */

struct model {
	struct toy t;
	struct ram_store *store;
	struct view *v;
	uint8_t *image;
};

static void model_write(struct model *m, uint64_t off, size_t len, uint8_t with)
{
	uint8_t *buf;

	pause_around(true);
	buf = malloc(len);
	pause_around(false);
	memset(buf, with, len);
	memset(m->image + off, with, len);
	assert_int_equal(view_write(m->v, off, buf, len), 0);
	free(buf);
}

static void model_check(struct model *m)
{
	assert_int_equal(view_read(m->v, 0, view_now, sizeof(view_now)), 0);
	assert_memory_equal(view_now, m->image, sizeof(view_now));
}

static void model_new(struct model *m)
{
	*m = (struct model){ .image = io_alloc(sizeof(view_now)) };
	toy_tell(&m->t, TOY_CHAIN, NULL, NULL);
	toy_pause(&m->t, pause_around);
	assert_int_equal(toy_view(&m->t, m->image), 0);
	assert_int_equal(ram_store_open(&m->store, 4 * MIB), 0);
	assert_int_equal(view_new(&m->v, m->store, m->t.base, TOY_BLKS, m->t.index), 0);
}

static void model_free(struct model *m)
{
	view_free(m->v);
	assert_int_equal(ram_store_used_bytes(m->store), 0);
	ram_store_close(m->store);
	toy_free(&m->t);
	free(m->image);
}

/* One cycle of a view: write, seal, write, the commit fails, seal again, the commit succeeds. */
static int day(struct model *m, int step)
{
	switch (step) {
	case 0:
		model_write(m, 3 * COW_BLK_BYTES + 100, 9000, 1);
		model_write(m, 50 * COW_BLK_BYTES, 3 * COW_BLK_BYTES, 2);
		return 0;
	case 1:
	case 4:
	case 7:
		return view_seal(m->v);
	case 2:
		model_write(m, 4 * COW_BLK_BYTES - 1, 2, 3);
		memset(m->image + 51 * COW_BLK_BYTES, 0, COW_BLK_BYTES);
		return view_punch(m->v, 51 * COW_BLK_BYTES, COW_BLK_BYTES);
	case 3:
	case 6: /* with an older failed layer: the two are merged */
		return view_fail(m->v);
	case 5:
		model_write(m, 5 * COW_BLK_BYTES, 100, 4);
		return 0;
	case 8: /* instead of a commit: as if it had written everything home */
		assert_int_equal(card_set_writable(m->t.base, true), 0);
		for (uint64_t b = 0; b < TOY_BLKS; b++) {
			assert_int_equal(view_read_sealed(m->v, b, 1, view_now), 0);
			assert_int_equal(
				card_write(m->t.base, blk_to_bytes(b), view_now, COW_BLK_BYTES), 0);
		}
		assert_int_equal(card_set_writable(m->t.base, false), 0);
		view_release(m->v, log_index_empty());
		return 0;
	default:
		return 1;
	}
}

TEST(test_view)
{
	uint64_t all = 1;

	for (int at = 0;; at++) { /* the step whose allocations fail */
		bool was_hit = true, at_end = false;

		for (uint64_t n = 1; was_hit && n < MAX_ALLOCS; n++) {
			struct model m;
			int r = 0;

			model_new(&m);
			for (int step = 0; r <= 0; step++) {
				/* the commit made the index of step 8 before */
				bool armed = step == at && step != 8;

				arm(armed ? n : 0);
				r = day(&m, step);
				if (armed) {
					was_hit = disarm();
					all += was_hit;
				}
				at_end |= r == 1 && step <= at;
				if (r < 0) {
					assert_true(armed && was_hit && r == -ENOMEM);
					model_check(&m);
					/* a failed view_fail has ended the seal; the other steps
					 * are repeated */
					if (step != 3 && step != 6)
						assert_int_equal(day(&m, step), 0);
				}
				model_check(&m);
			}
			was_hit &= at != 8;
			model_free(&m);
		}
		if (at_end)
			break;
	}
	swept("view", all);
}

TEST(test_view_new)
{
	bool was_hit = true;
	struct model m;
	uint64_t n;

	model_new(&m);
	for (n = 0; was_hit && n < MAX_ALLOCS;) {
		struct view *v = NULL;
		int r;

		arm(++n);
		r = view_new(&v, m.store, m.t.base, TOY_BLKS, m.t.index);
		was_hit = disarm();
		assert_true(r == 0 ? !was_hit && v : was_hit && r == -ENOMEM);
		view_free(v);
	}
	swept("view_new", n);
	model_check(&m);
	model_free(&m);
}

/* ---- file systems ---- */

struct file {
	int fd;
};

static int file_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return io_pread_full(((struct file *)ctx)->fd, buf, blk_to_bytes(blks), blk_to_bytes(blk));
}

static int map_all(const struct blk_reader *r, uint64_t *ret_free, unsigned *ret_alarms)
{
	struct fsmap *m;
	uint64_t free_blks = 0;
	int e = fsmap_open(&m, r);

	if (e < 0)
		return e;
	for (uint64_t b = 0; b < r->volume_blks && e == 0; b++) {
		enum blk_use use;

		e = fsmap_use(m, b, &use);
		free_blks += e == 0 && use == USE_FREE;
	}
	*ret_free = free_blks;
	*ret_alarms = fsmap_alarms(m);
	if (e == 0 && !fsmap_knows(m))
		e = -EOPNOTSUPP;
	fsmap_close(m);
	return e;
}

TEST(test_fsmap)
{
	char path[] = "/tmp/cowfs-alloc-XXXXXX", cmd[160];
	struct file f = { .fd = mkstemp(path) };
	struct blk_reader r = { file_read, &f, 24 * MIB / COW_BLK_BYTES };
	struct fs_fingerprint want, got;
	uint64_t want_free, got_free = 0, n;
	unsigned alarms = 0;
	bool was_hit = true;
	struct fsinfo info;
	int e;

	assert_true(f.fd >= 0 && ftruncate(f.fd, 24 * MIB) == 0);
	snprintf(cmd, sizeof(cmd), "mke2fs -q -F -t ext4 -b 1024 %s", path);
	assert_int_equal(system(cmd), 0);
	assert_int_equal(map_all(&r, &want_free, &alarms), 0);
	assert_true(want_free > 1000 && !alarms);
	assert_int_equal(fsinfo_fingerprint(&r, &want), 0);
	for (n = 0; was_hit && n < MAX_ALLOCS;) {
		arm(++n);
		e = map_all(&r, &got_free, &alarms);
		was_hit = disarm();
		assert_true(e == 0 || (was_hit && e == -ENOMEM));
		if (e == 0) /* without a cache, perhaps, but with the same answer */
			assert_true(got_free == want_free && !alarms);
	}
	swept("fsmap", n);
	for (n = 0, was_hit = true; was_hit && n < MAX_ALLOCS;) {
		arm(++n);
		e = fsinfo_fingerprint(&r, &got);
		was_hit = disarm();
		assert_true(e == 0 || (was_hit && e == -ENOMEM));
		if (e == 0)
			assert_memory_equal(&want, &got, sizeof(got));
	}
	swept("fingerprint", n);
	for (n = 0, was_hit = true; was_hit && n < MAX_ALLOCS;) {
		arm(++n);
		e = fsinfo_probe(&r, &info);
		was_hit = disarm();
		assert_true(e == 0 || (was_hit && e == -ENOMEM));
		if (e == 0)
			assert_true(info.kind == FS_EXT && info.journal_bytes);
	}
	swept("probe", n);
	close(f.fd);
	unlink(path);
}

/* ---- the configuration ---- */

TEST(test_conf)
{
	static const char text[] =
		"[default]\nram = 40%\n[root]\ntrim = off\n[/dev/null]\nname = x\nlog = /dev/zero\n";
	bool was_hit = true;
	uint64_t n;

	for (n = 0; was_hit && n < MAX_ALLOCS;) {
		FILE *f = fmemopen((void *)text, sizeof(text) - 1, "r");
		char why[200] = "", c;
		struct conf *conf = NULL;
		int e;

		assert_non_null(f);
		c = (char)fgetc(f); /* stdio's own buffer is there */
		ungetc(c, f);
		arm(++n);
		e = conf_parse(f, "conf", false, &conf, why, sizeof(why));
		was_hit = disarm();
		assert_true(e == 0 || (was_hit && e == -ENOMEM));
		if (e == 0)
			conf_free(conf);
		fclose(f);
	}
	swept("conf_parse", n);
}

int main(void)
{
	int r = tests_run(NULL, NULL);

	for_ever = true; /* not only the n-th one */
	return r + tests_run(NULL, NULL);
}
