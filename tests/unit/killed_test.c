/* SPDX-License-Identifier: MIT */
/*
 * A view in processes that are killed at any moment: in writes, in commits, in merges after a failed commit, and while
 * they take over from the one before. Each one first compares the whole volume with a model in shared memory.
 *
 * A unit of 512 bytes belongs to one of two writers, which notes the new version before the write and after it. So a
 * unit has its last version or, if the process was killed in a write of it, the next one. COWFS_KILLS: number of kills;
 * COWFS_STRESS_SEED: first seed.
 */
#include "test.h"
#include <stdalign.h>

#include "export/view.h"
#include "log/index_build.h"

enum {
	UNIT_BYTES = 512,
	UNIT_WORDS = UNIT_BYTES / 8,
	BLKS = 520,
	UNITS = BLKS * COW_BLK_BYTES / UNIT_BYTES,
	BYTES = UNITS * UNIT_BYTES,
	WRITERS = 2,
	SPAN = 20, /* units that follow one another and have one writer */
	SPANS = UNITS / SPAN / WRITERS,
};

#define PUNCHED UINT32_MAX

/* Lives longer than a process. */
struct model {
	struct {
		_Atomic uint32_t now, next; /* versions; different: a write is under way, or was */
	} unit[UNITS];
	_Atomic uint32_t version;
	_Atomic bool ready;	/* a process has compared everything */
	_Atomic bool committed; /* the card has what is sealed */
	_Atomic uint64_t writes, full, merges, commits;
	alignas(COW_BLK_BYTES) uint8_t card[BYTES];
};

struct life {
	struct card card;
	struct model *m;
	struct ram_store *store;
	struct view *v;
	uint64_t seed;
};

struct writer {
	struct life *l;
	unsigned me;
	uint64_t rnd, buf[SPAN * UNIT_WORDS];
};

static uint64_t word_of(uint64_t unit, uint32_t version)
{
	return version == PUNCHED ? 0 : (unit + 1) << 32 | version;
}

static void fill(uint64_t *to, uint64_t unit, uint32_t version)
{
	for (unsigned i = 0; i < UNIT_WORDS; i++)
		to[i] = word_of(unit, version);
}

static int read_card(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	memcpy(buf, ((struct life *)c)->m->card + off_bytes, len_bytes);
	return 0;
}

/* ---- in a child, which has no use for cmocka ---- */

static _Noreturn void complain(const char *what, uint64_t a, uint64_t b, uint64_t c)
{
	fprintf(stderr, "%s: %#llx, %#llx, %#llx\n", what, (unsigned long long)a,
		(unsigned long long)b, (unsigned long long)c);
	_exit(1);
}

static bool has(const uint64_t *got, uint64_t unit, uint32_t version)
{
	for (unsigned i = 0; i < UNIT_WORDS; i++)
		if (got[i] != word_of(unit, version))
			return false;
	return true;
}

/* Notes what the units have, the last version or the next one. */
static void settle(struct life *l, uint64_t first, uint64_t units, uint64_t *buf)
{
	int r = view_read(l->v, first * UNIT_BYTES, buf, units * UNIT_BYTES);

	if (r < 0)
		complain("read", first, units, (uint64_t)-r);
	for (uint64_t i = 0; i < units; i++) {
		uint32_t now = l->m->unit[first + i].now, next = l->m->unit[first + i].next;
		const uint64_t *got = buf + i * UNIT_WORDS;

		if (has(got, first + i, next))
			l->m->unit[first + i].now = next;
		else if (has(got, first + i, now))
			l->m->unit[first + i].next = now;
		else
			complain("wrong content of unit, word, expected version", first + i, got[0],
				 now);
	}
}

/* version 0: what they have, once more */
static void change(struct writer *w, uint64_t first, uint64_t units, uint32_t version)
{
	struct model *m = w->l->m;
	int r;

	for (uint64_t i = 0; i < units; i++) {
		if (version)
			m->unit[first + i].next = version;
		fill(w->buf + i * UNIT_WORDS, first + i, m->unit[first + i].next);
	}
	r = version == PUNCHED
		    ? view_punch(w->l->v, first * UNIT_BYTES, units * UNIT_BYTES)
		    : view_write(w->l->v, first * UNIT_BYTES, w->buf, units * UNIT_BYTES);
	m->writes++;
	if (r == -ENOSPC) {
		m->full++;
		settle(w->l, first, units, w->buf);
		return;
	}
	if (r < 0)
		complain("write", first, units, (uint64_t)-r);
	for (uint64_t i = 0; i < units; i++)
		m->unit[first + i].now = m->unit[first + i].next;
}

static void *writer(void *arg)
{
	struct writer *w = arg;

	for (;;) {
		/* half of the volume is left alone for long */
		uint64_t span = rnd_of(&w->rnd, 50) ? rnd_of(&w->rnd, SPANS / 2)
						    : rnd_of(&w->rnd, SPANS);
		uint64_t skip = rnd_of(&w->rnd, SPAN), units = 1 + rnd_of(&w->rnd, SPAN - skip);
		uint64_t first = (span * WRITERS + w->me) * SPAN + skip;

		switch (rnd_of(&w->rnd, 8)) {
		case 0:
			change(w, first, units, PUNCHED);
			break;
		case 1:
		case 2:
			change(w, first, units, 0);
			break;
		case 3:
		case 4: /* nothing is under way, so they have the last version */
			settle(w->l, first, units, w->buf);
			break;
		default:
			change(w, first, units, ++w->l->m->version);
		}
		if (rnd_of(&w->rnd, 4) == 0)
			usleep((useconds_t)rnd_of(&w->rnd, 400));
	}
	return NULL;
}

static void write_home(struct life *l)
{
	enum blk_state state;
	uint64_t blks;
	int r;

	for (uint64_t blk = 0; view_next_sealed(l->v, &blk, BLKS, &blks, &state); blk += blks) {
		r = view_read_sealed(l->v, blk, blks, l->m->card + blk_to_bytes(blk));
		if (r < 0)
			complain("sealed blocks", blk, blks, (uint64_t)-r);
	}
	l->m->committed = true;
}

/* The card has all of them: whatever the moment of a kill, they are the same. */
static bool is_kept(void *ctx, bool newest, uint64_t blk, uint64_t max_blks, uint64_t *ret_blks)
{
	(void)newest;
	*ret_blks = 1;
	return blk % 16 == 3;
}

/* The check of what is sealed compares counters and marks. */
static void commit(struct life *l, bool fails)
{
	int r = view_seal(l->v);

	if (r == 0) {
		if (view_check_sealed(l->v) < 0)
			complain("sealed", 0, 0, 0);
		if (fails) {
			r = view_fail(l->v);
			l->m->merges++;
		} else {
			write_home(l);
			if (l->m->commits % 2)
				view_release(l->v, log_index_empty());
			else
				view_release_keeping(l->v, log_index_empty(), l->m->commits % 4,
						     is_kept, NULL);
			l->m->committed = false;
			l->m->commits++;
		}
	}
	if (r < 0 && r != -ENOSPC)
		complain("commit", 0, 0, (uint64_t)-r);
}

/* Nothing but the blocks that are dirty is left in the store. */
static void check_use(struct life *l)
{
	struct generation_stats active, below;
	uint64_t used_bytes = ram_store_used_bytes(l->store);

	view_dirty(l->v, &active, &below);
	if (used_bytes > blk_to_bytes(active.data_blks + below.data_blks))
		complain("bytes in the store, data blocks", used_bytes, active.data_blks,
			 below.data_blks);
}

static struct ram_store *take_over(const struct ram_store *of)
{
	struct ram_store *s;
	int fd[RAM_STORE_FDS];

	ram_store_fds(of, fd);
	for (unsigned i = 0; i < RAM_STORE_FDS; i++)
		fd[i] = dup(fd[i]);
	if (ram_store_take_over(&s, fd) < 0)
		complain("store", 0, 0, 0);
	return s;
}

/* Until it is killed; last: checks only. */
static _Noreturn void live(struct life *l, bool last)
{
	static struct writer w[WRITERS];
	static uint64_t all[BYTES / 8];
	struct log_index *ix = log_index_empty();
	pthread_t t;
	int r;

	l->store = take_over(l->store);
	r = view_adopt(&l->v, l->store, &l->card, BLKS, ix, l->m->committed);
	if (r < 0)
		complain("adopt", 0, 0, (uint64_t)-r);
	l->m->committed = false;
	if (sysconf(_SC_PAGESIZE) == COW_BLK_BYTES)
		check_use(l);
	settle(l, 0, UNITS, all);
	commit(l, rnd(2));
	settle(l, 0, UNITS, all);
	if (last) {
		uint64_t used_bytes;

		if (view_punch(l->v, 0, BYTES) < 0)
			complain("punch", 0, 0, 0);
		commit(l, true);
		used_bytes = ram_store_used_bytes(l->store);
		if (used_bytes)
			complain("bytes are left", used_bytes, 0, 0);
		_exit(0);
	}
	l->m->ready = true;
	for (unsigned i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){ .l = l, .me = i, .rnd = l->seed * 10 + i };
		if (pthread_create(&t, NULL, writer, &w[i]))
			complain("thread", 0, 0, 0);
	}
	for (uint64_t state = l->seed;;)
		if (rnd_of(&state, 15))
			usleep((useconds_t)rnd_of(&state, 2000));
		else
			commit(l, rnd_of(&state, 3) == 0);
}

/* ---- the parent ---- */

static void end_life(struct life *l, bool last)
{
	pid_t pid;
	int status;

	l->m->ready = false;
	l->seed = rnd(UINT32_MAX);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		live(l, last);
	if (!last) {
		/* or in the middle of a take-over */
		bool waits = rnd(4);

		while (waits && !l->m->ready && waitpid(pid, &status, WNOHANG) == 0)
			usleep(100);
		usleep((useconds_t)rnd(waits ? 20000 : 5000));
		(void)kill(pid, SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (last)
		assert_int_equal(status, 0);
	else
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static uint64_t from_environment(const char *name, uint64_t other)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : other;
}

static void kill_many(uint64_t limit_bytes)
{
	static const struct card_ops ops = { .read = read_card };
	const uint64_t kills = from_environment("COWFS_KILLS", 100);
	struct life l = { .card.ops = &ops, .card.geo.size_bytes = BYTES };
	struct view *v;

	rnd_state = from_environment("COWFS_STRESS_SEED", 1);
	l.m = mmap(NULL, sizeof(*l.m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(l.m != MAP_FAILED);
	for (uint64_t u = 0; u < UNITS; u++)
		fill((uint64_t *)l.m->card + u * UNIT_WORDS, u, 0);
	assert_int_equal(ram_store_open(&l.store, limit_bytes), 0);
	/* never closed: that would take the generation away */
	assert_int_equal(view_new(&v, l.store, &l.card, BLKS, log_index_empty()), 0);
	for (uint64_t i = 0; i < kills; i++)
		end_life(&l, false);
	end_life(&l, true);
	print_message("%llu kills, %llu writes, %llu of them without room, %llu merges, "
		      "%llu commits\n",
		      (unsigned long long)kills, (unsigned long long)l.m->writes,
		      (unsigned long long)l.m->full, (unsigned long long)l.m->merges,
		      (unsigned long long)l.m->commits);
	assert_true(l.m->merges && l.m->commits);
	munmap(l.m, sizeof(*l.m));
	ram_store_close(l.store);
}

TEST(with_room)
{
	kill_many(64 * MIB);
}

TEST(with_little_room)
{
	kill_many(BYTES / 3);
}
