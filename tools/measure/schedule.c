/* SPDX-License-Identifier: MIT */
/*
 * The requests of a measurement. Each phase is limited in bytes and in time, because there are cards
 * with one random write a second.
 *
 * Short runs must be 128 KiB at least: a card with a shared log gives a run its own unit from 64 KiB
 * on (sim/model.h).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/io.h"
#include "base/util.h"
#include "measure/engine.h"

#define BUFFER_BYTES (16 * MIB)
#define PRIME_BYTES (4 * MIB)
#define RUN_BYTES (64 * KIB)  /* a request of a run */
#define TURN_BYTES (16 * KIB) /* a request of one of several writers */
#define TURNS 12
#define LOG_TURNS 5 /* a run may be in the log for so many turns */
#define SCATTER_MAX 20000
#define TAGS_MAX 384
#define FAR_TAGS_MAX 256 /* of these, where the area is primed around them */
#define SETTLE 6
#define OTHER_BYTES (320 * MIB)	  /* of all phases but priming */
#define RESERVED_BYTES (56 * MIB) /* of the last phases */
#define SLOWER_PERCENT 25	  /* a card that became slower by this */

struct run {
	struct measurement *m;
	struct target *t;
	enum measure_phase phase;
	uint64_t rnd, phase_from_ns, clock_ns, limit_ns;
	unsigned char *buffer;
};

static uint64_t rnd(struct run *r, uint64_t below)
{
	uint64_t z = (r->rnd += 0x9e3779b97f4a7c15u); /* splitmix64 */

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (z ^ (z >> 31)) % below;
}

/* ---- one request ---- */

/* Adds a request. -ENOMEM. */
static int samples_add(struct samples *s, enum measure_phase phase, enum sample_kind kind,
		       uint64_t off_bytes, uint64_t len_bytes, uint64_t ns)
{
	return ARRAY_ADD(
		s->at, s->n, s->room,
		(struct sample){ (uint8_t)phase, (uint8_t)kind, off_bytes, len_bytes, ns });
}

static int failed(struct run *r, const char *what, uint64_t off_bytes, int e)
{
	snprintf(r->m->why, sizeof(r->m->why), "%s at %llu bytes failed: %s", what,
		 (unsigned long long)off_bytes, strerror(-e));
	return e;
}

static int begin(struct run *r, enum measure_phase phase)
{
	r->phase = phase;
	r->phase_from_ns = r->clock_ns;
	if (r->m->p.progress)
		r->m->p.progress(r->m->p.ctx, measure_phase_name(phase), r->m->written_bytes,
				 r->m->plan_bytes);
	return 0;
}

static bool out_of_time(const struct run *r)
{
	return r->clock_ns - r->phase_from_ns > r->limit_ns;
}

/* Has the phase had its time, or the measurement its bytes? */
static bool late(const struct run *r)
{
	return out_of_time(r) || r->m->written_bytes + RESERVED_BYTES > r->m->plan_bytes;
}

static int record(struct run *r, enum sample_kind kind, uint64_t off_bytes, uint64_t len_bytes,
		  int64_t ns, uint64_t *ret_ns)
{
	int e;

	if (ns < 0)
		return failed(r,
			      kind == SAMPLE_READ    ? "a read"
			      : kind == SAMPLE_WRITE ? "a write"
						     : "a flush",
			      off_bytes, (int)ns);
	r->clock_ns += (uint64_t)ns;
	if (ret_ns)
		*ret_ns = (uint64_t)ns;
	e = samples_add(&r->m->s, r->phase, kind, off_bytes, len_bytes, (uint64_t)ns);
	if (e == 0 && r->m->p.stop && *r->m->p.stop) {
		snprintf(r->m->why, sizeof(r->m->why), "stopped");
		e = -EINTR;
	}
	return e;
}

static int put(struct run *r, uint64_t off_bytes, uint64_t len_bytes, uint64_t *ret_ns)
{
	/* other data for each place, incompressible */
	const unsigned char *data = r->buffer + off_bytes / COW_BLK_BYTES % 251 * COW_BLK_BYTES;
	int64_t ns = target_write(r->t, off_bytes, data, len_bytes);

	r->m->written_bytes += len_bytes;
	if (r->m->p.progress && r->m->s.n % 64 == 0)
		r->m->p.progress(r->m->p.ctx, measure_phase_name(r->phase), r->m->written_bytes,
				 r->m->plan_bytes);
	return record(r, SAMPLE_WRITE, off_bytes, len_bytes, ns, ret_ns);
}

static int get(struct run *r, uint64_t off_bytes, uint64_t len_bytes, uint64_t *ret_ns)
{
	return record(r, SAMPLE_READ, off_bytes, len_bytes,
		      target_read(r->t, off_bytes, NULL, len_bytes), ret_ns);
}

static int put_run(struct run *r, uint64_t off_bytes, uint64_t len_bytes, uint64_t piece)
{
	int e = 0;

	for (uint64_t at = 0; at < len_bytes && e == 0; at += piece)
		e = put(r, off_bytes + at, min_u64(piece, len_bytes - at), NULL);
	return e;
}

/* ---- figures ---- */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Middle and spread of n values, which are sorted in place: the mean without the slowest and
 * fastest tenth (quarter, if there are fewer than 30). */
static struct figure figure_of(uint64_t *ns, size_t n)
{
	struct figure f = { .n = (unsigned)n };
	size_t from = n < 30 ? n / 4 : n / 10, to = n - from;
	uint64_t middle;

	if (!n)
		return f;
	qsort(ns, n, sizeof(*ns), by_value);
	middle = ns[n / 2];
	for (size_t i = from; i < to; i++)
		f.value += (double)ns[i] / (double)(to - from);
	for (size_t i = 0; i < n; i++)
		ns[i] = ns[i] > middle ? ns[i] - middle : middle - ns[i];
	qsort(ns, n, sizeof(*ns), by_value);
	f.spread = (double)ns[n / 2];
	return f;
}

static uint64_t size_at(unsigned i)
{
	return (uint64_t)COW_BLK_BYTES << i;
}

static uint64_t linear_count(unsigned i)
{
	static const uint8_t count[MEASURE_SIZES] = {
		64, 48, 40, 32, 32, 32, 24, 20, 20, 4, 4, 2, 2
	};

	return count[i];
}

/* ---- phases ---- */

/*
 * Places in the area at powers of two from its start, its end, and one in each stretch as long as
 * the part that will be primed: of a card that wraps at any size, priming overwrites one of these.
 */
static unsigned tag_places(const struct target *t, uint64_t work_bytes, uint64_t *at)
{
	uint64_t size = t->end_bytes - t->start_bytes,
		 apart = max_u64(work_bytes, round_up_u64(size / FAR_TAGS_MAX, MIB));
	unsigned n = 0;

	at[n++] = 0;
	for (uint64_t step = MIB; step + COW_BLK_BYTES < size; step *= 2)
		at[n++] = step;
	/* odd blocks: none of the others */
	for (uint64_t far = apart + COW_BLK_BYTES; far + COW_BLK_BYTES < size; far += apart)
		at[n++] = far;
	at[n++] = size - COW_BLK_BYTES;
	for (unsigned i = 0; i < n; i++)
		at[i] += t->start_bytes;
	return n;
}

/* Its place makes it differ from the tags that an earlier measurement has left elsewhere. */
static void make_tag(struct run *r, unsigned char *tag, const uint64_t *at, unsigned i)
{
	memcpy(tag, r->buffer + (i + 1) * 7919 % (BUFFER_BYTES - COW_BLK_BYTES), COW_BLK_BYTES);
	memcpy(tag, &i, sizeof(i));
	memcpy(tag + 8, &r->m->p.seed, 8);
	memcpy(tag + 16, &at[i], 8);
}

/* -ENXIO: a tag lies where another one was written, or was lost. */
static int check_tags(struct run *r, const uint64_t *at, unsigned n, unsigned char *tag,
		      unsigned char *back)
{
	for (unsigned i = 0; i < n; i++) {
		int64_t ns = target_read(r->t, at[i], back, COW_BLK_BYTES);
		unsigned other;

		if (ns < 0)
			return failed(r, "a read", at[i], (int)ns);
		make_tag(r, tag, at, i);
		if (!memcmp(back, tag, COW_BLK_BYTES))
			continue;
		memcpy(&other, back, sizeof(other));
		if (other < n) {
			make_tag(r, tag, at, other);
			if (!memcmp(back, tag, COW_BLK_BYTES)) {
				snprintf(r->m->why, sizeof(r->m->why),
					 "the card lies about its capacity: what was written at "
					 "%llu MiB appeared at %llu MiB",
					 (unsigned long long)(at[other] / MIB),
					 (unsigned long long)(at[i] / MIB));
				return -ENXIO;
			}
		}
		snprintf(r->m->why, sizeof(r->m->why),
			 "the card does not keep its data: what was written at %llu MiB is lost",
			 (unsigned long long)(at[i] / MIB));
		return -ENXIO;
	}
	return 0;
}

/*
 * A card that wraps shows a tag below the area, too: at the same offset modulo a power of two. The
 * tags are in the area only, and what was there before comes back if the card wraps.
 */
static int check_below(struct run *r, const uint64_t *at, unsigned n, unsigned char *tag,
		       unsigned char *back)
{
	make_tag(r, tag, at, n - 1);
	for (uint64_t real = 64 * MIB; real <= at[n - 1]; real *= 2) {
		uint64_t low = at[n - 1] % real;
		int64_t ns;

		if (low >= r->t->start_bytes)
			continue;
		ns = target_read(r->t, low, back, COW_BLK_BYTES);
		if (ns < 0)
			return failed(r, "a read", low, (int)ns);
		if (!memcmp(back, tag, COW_BLK_BYTES)) {
			snprintf(r->m->why, sizeof(r->m->why),
				 "the card lies about its capacity: what was written at %llu MiB "
				 "appeared at %llu MiB",
				 (unsigned long long)(at[n - 1] / MIB),
				 (unsigned long long)(low / MIB));
			return -ENXIO;
		}
	}
	return 0;
}

static int capacity(struct run *r)
{
	uint64_t at[TAGS_MAX];
	unsigned n = tag_places(r->t, r->m->work_bytes, at);
	_cleanup_free_ unsigned char *tag = io_alloc(COW_BLK_BYTES),
				     *back = io_alloc(COW_BLK_BYTES),
				     *old = io_alloc(TAGS_MAX * COW_BLK_BYTES);
	int64_t ns = 0;
	int e = begin(r, PHASE_CAPACITY);

	if (!tag || !back || !old)
		return -ENOMEM;
	for (unsigned i = 0; i < n && ns >= 0; i++)
		ns = target_read(r->t, at[i], old + i * COW_BLK_BYTES, COW_BLK_BYTES);
	if (ns < 0)
		return failed(r, "a read", 0, (int)ns);
	/* from the end: a tag that wraps to a lower place is found there */
	for (unsigned i = n; i-- > 0 && e == 0;) {
		make_tag(r, tag, at, i);
		ns = target_write(r->t, at[i], tag, COW_BLK_BYTES);
		r->m->written_bytes += COW_BLK_BYTES;
		e = record(r, SAMPLE_WRITE, at[i], COW_BLK_BYTES, ns, NULL);
		if (e == 0 && i == n - 1)
			e = check_below(r, at, n, tag, back);
	}
	ns = e == 0 ? target_flush(r->t) : 0;
	if (ns < 0)
		e = failed(r, "a flush", 0, (int)ns);
	if (e == 0)
		e = check_tags(r, at, n, tag, back);
	/* tags of a card that wraps may lie outside of the area */
	for (unsigned i = n; e < 0 && i-- > 0;)
		if (target_write(r->t, at[i], old + i * COW_BLK_BYTES, COW_BLK_BYTES) < 0)
			break;
	return e;
}

/* After priming: are the tags behind the primed part still there? -ENXIO: no. */
static int check_far(struct run *r)
{
	uint64_t at[TAGS_MAX], end = r->m->start_bytes + r->m->work_bytes;
	unsigned n = tag_places(r->t, r->m->work_bytes, at);
	_cleanup_free_ unsigned char *tag = io_alloc(COW_BLK_BYTES),
				     *back = io_alloc(COW_BLK_BYTES);

	if (!tag || !back)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		int64_t ns = at[i] < end ? 0 : target_read(r->t, at[i], back, COW_BLK_BYTES);

		if (ns < 0)
			return failed(r, "a read", at[i], (int)ns);
		make_tag(r, tag, at, i);
		if (at[i] < end || !memcmp(back, tag, COW_BLK_BYTES))
			continue;
		snprintf(r->m->why, sizeof(r->m->why),
			 "the card lies about its capacity, or does not keep its data: what was "
			 "written at %llu MiB was lost when %llu to %llu MiB were written",
			 (unsigned long long)(at[i] / MIB),
			 (unsigned long long)(r->m->start_bytes / MIB),
			 (unsigned long long)(end / MIB));
		return -ENXIO;
	}
	return 0;
}

/* Everything once, linearly: the card has no empty units afterwards. */
static int prime(struct run *r)
{
	struct measurement *m = r->m;
	uint64_t at = 0, ns[16];
	int e = begin(r, PHASE_PRIME);

	for (unsigned i = FLASH_TABLE; i < MEASURE_SIZES && e == 0; i++) {
		uint64_t n = linear_count(i);

		if (at + n * size_at(i) > m->work_bytes / 2)
			break;
		for (uint64_t k = 0; k < n && e == 0; k++, at += size_at(i))
			e = put(r, m->start_bytes + at, size_at(i), &ns[k]);
		m->write[i] = figure_of(ns, n);
	}
	for (; at < m->work_bytes && e == 0 && r->clock_ns - r->phase_from_ns < 4 * r->limit_ns;
	     at += PRIME_BYTES)
		e = put(r, m->start_bytes + at, min_u64(PRIME_BYTES, m->work_bytes - at), NULL);
	if (e == 0)
		e = check_far(r);
	if (at < m->work_bytes && e == 0) /* the rest is not used */
		m->work_bytes = round_down_u64(at, MIB);
	/* a linear stream takes the place of itself: what was open before is closed by others */
	for (unsigned i = 0; i < SETTLE && e == 0; i++)
		e = put_run(r,
			    m->start_bytes + round_down_u64(m->work_bytes / SETTLE * i, RUN_BYTES),
			    2 * RUN_BYTES, RUN_BYTES);
	return e;
}

static int linear(struct run *r, bool is_read)
{
	struct measurement *m = r->m;
	struct figure *f = is_read ? m->read : m->write;
	uint64_t at = m->start_bytes, end = at + m->work_bytes, ns[80];
	int e = begin(r, is_read ? PHASE_READ : PHASE_WRITE);

	/* the start-up: what was open before is closed */
	if (is_read)
		e = get(r, at, MIB, NULL);
	else
		e = put_run(r, at, MIB, RUN_BYTES);
	at += MIB;
	for (unsigned i = 0; i < (is_read ? MEASURE_SIZES : FLASH_TABLE) && e == 0; i++) {
		uint64_t n = linear_count(i), k;

		for (k = 0; k < n && e == 0 && (k < 4 || !late(r)); k++, at += size_at(i)) {
			if (at + size_at(i) > end) /* a small area */
				at = m->start_bytes;
			if (at + size_at(i) > end)
				break;
			e = is_read ? get(r, at, size_at(i), &ns[k])
				    : put(r, at, size_at(i), &ns[k]);
		}
		f[i] = figure_of(ns, k);
	}
	return e;
}

static int random_reads(struct run *r)
{
	struct measurement *m = r->m;
	int e = begin(r, PHASE_RANDOM_READ);

	for (unsigned i = 0; i <= FLASH_TABLE && e == 0; i++) {
		uint64_t len = i ? size_at(i - 1) : 512, ns[48];
		unsigned k = 0, n = i < 6 ? 48 : 16;

		if (len < r->t->sector_bytes)
			continue;
		for (; k < n && e == 0 && (k < 4 || !late(r)); k++)
			e = get(r,
				m->start_bytes + rnd(r, (m->work_bytes - len) / COW_BLK_BYTES) *
							 COW_BLK_BYTES,
				len, &ns[k]);
		m->random_read[i] = figure_of(ns, k);
	}
	return e;
}

/* An odd multiple of c in the used part, with a block before it; 0: none */
static uint64_t odd_multiple(struct run *r, uint64_t c)
{
	uint64_t disk = r->t->disk_off_bytes,
		 first = (r->m->start_bytes + disk + COW_BLK_BYTES + c - 1) / c | 1,
		 end = (r->m->start_bytes + r->m->work_bytes + disk - COW_BLK_BYTES) / c;

	return first > end ? 0 : (first + rnd(r, (end - first) / 2 + 1) * 2) * c - disk;
}

/*
 * flashbench --align: reads that straddle a boundary, against those before and behind it. Odd
 * multiples of half an erase block are no boundaries of erase blocks.
 */
static int align(struct run *r)
{
	struct measurement *m = r->m;
	double last = 0;
	int e = begin(r, PHASE_ALIGN);

	for (uint64_t c = 64 * MIB; c >= 16 * KIB && e == 0; c /= 2) {
		uint64_t on[16], off[16], before = 0, behind = 0, at = 0;
		struct figure f_on, f_off;

		for (unsigned k = 0; k < ARRAY_SIZE(on) && e == 0; k++) {
			at = odd_multiple(r, c);
			if (!at || r->t->sector_bytes > COW_BLK_BYTES / 2)
				break;
			e = get(r, at - COW_BLK_BYTES, COW_BLK_BYTES, &before);
			if (e == 0)
				e = get(r, at - COW_BLK_BYTES / 2, COW_BLK_BYTES, &on[k]);
			if (e == 0)
				e = get(r, at, COW_BLK_BYTES, &behind);
			off[k] = (before + behind) / 2;
		}
		if (e < 0 || !at || r->t->sector_bytes > COW_BLK_BYTES / 2)
			continue;
		f_on = figure_of(on, ARRAY_SIZE(on));
		f_off = figure_of(off, ARRAY_SIZE(off));
		if (f_on.value - f_off.value < last / 2 &&
		    last > 5 * (f_on.spread + f_off.spread) && last > f_off.value / 10) {
			m->align_bytes = 2 * c;
			break;
		}
		last = f_on.value - f_off.value;
	}
	return e;
}

static int flushes(struct run *r)
{
	struct measurement *m = r->m;
	uint64_t at = m->start_bytes + m->work_bytes / 2, ns[24];
	unsigned k = 0;
	int e = begin(r, PHASE_FLUSH);

	if (e == 0)
		e = put_run(r, at, 2 * RUN_BYTES, RUN_BYTES);
	at += 2 * RUN_BYTES;
	for (; k < ARRAY_SIZE(ns) && e == 0 && (k < 4 || !late(r)); k++, at += COW_BLK_BYTES) {
		e = put(r, at, COW_BLK_BYTES, NULL);
		if (e == 0)
			e = record(r, SAMPLE_FLUSH, 0, 0, target_flush(r->t), &ns[k]);
	}
	m->flush = figure_of(ns, k);
	return e;
}

/* Is a write by so much slower than a linear one? */
static bool is_slow(const struct run *r, uint64_t len_bytes, uint64_t ns)
{
	unsigned i = 0;
	double linear_ns = (double)fit_linear_ns(r->m, len_bytes);

	while (i + 1 < FLASH_TABLE && size_at(i) < len_bytes)
		i++;
	return (double)ns > linear_ns * 1.3 + 8 * r->m->write[i].spread;
}

/* Several distant writers in turn. *ret_slow: the card closes units all the time. */
static int writers(struct run *r, unsigned n, uint64_t turn_bytes, bool *ret_slow)
{
	struct measurement *m = r->m;
	uint64_t stride = round_down_u64(m->work_bytes / n, RUN_BYTES),
		 shift = rnd(r, stride / 2 / RUN_BYTES) * RUN_BYTES, ns;
	unsigned slow = 0, all = 0, row = 0;
	int e = 0;

	for (unsigned k = 0; k < TURNS && e == 0; k++) {
		unsigned now = 0;

		for (unsigned i = 0; i < n && e == 0; i++) {
			e = put(r, m->start_bytes + i * stride + shift + k * turn_bytes, turn_bytes,
				&ns);
			now += e == 0 && is_slow(r, turn_bytes, ns);
		}
		row = now * 4 >= n * 3 ? row + 1 : 0;
		if (k > LOG_TURNS) {
			slow += now;
			all += n;
		}
		/* twice after the first turn, or eight slow writes where it must be fast */
		if (k >= 1 && row >= 3 && now) {
			*ret_slow = true;
			return e;
		}
		if (late(r))
			break;
	}
	*ret_slow = all && slow * 2 >= all;
	return e;
}

static int open_units(struct run *r, uint64_t turn_bytes)
{
	static const uint8_t counts[] = { 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32 };
	unsigned fast = 0, slow = 0;
	bool is = false;
	int e = begin(r, PHASE_WRITERS);

	for (unsigned i = 0; i < ARRAY_SIZE(counts) && e == 0 && !slow; i++) {
		if (counts[i] * 4 * MIB > r->m->work_bytes)
			break;
		e = writers(r, counts[i], turn_bytes, &is);
		if (is)
			slow = counts[i];
		else
			fast = counts[i];
	}
	while (slow > fast + 1 && e == 0) {
		unsigned n = (slow + fast) / 2;

		e = writers(r, n, turn_bytes, &is);
		*(is ? &slow : &fast) = n;
	}
	r->m->writers = slow ? fast : 0;
	return e;
}

/* A multiple of c in the used part that is no multiple of 2c, and of 3c where that is possible. */
static uint64_t boundary(struct run *r, uint64_t c, uint64_t around)
{
	struct measurement *m = r->m;
	uint64_t disk = r->t->disk_off_bytes, from = m->start_bytes + disk + around,
		 to = m->start_bytes + m->work_bytes + disk - around;
	uint64_t first = (from + c - 1) / c, last = to / c, at, spare = 0;

	if (first > last)
		return 0;
	at = first + rnd(r, last - first + 1);
	for (uint64_t i = 0; i <= last - first; i++, at = at == last ? first : at + 1) {
		if (at % 2 && at % 3)
			return at * c - disk;
		spare = at % 2 ? at : spare;
	}
	return spare ? spare * c - disk : 0;
}

static unsigned candidate_sizes(const struct measurement *m, uint64_t *c)
{
	unsigned n = 0;

	for (uint64_t u = 16 * KIB; u <= 64 * MIB && u <= m->work_bytes / 4; u *= 2) {
		c[n++] = u;
		if (u / 2 * 3 <= m->work_bytes / 4 && u < 64 * MIB)
			c[n++] = u / 2 * 3;
	}
	return n;
}

static int boundaries(struct run *r)
{
	uint64_t c[64];
	unsigned n = candidate_sizes(r->m, c);
	int e = begin(r, PHASE_BOUNDARY);

	for (unsigned pass = 0; pass < 3 && e == 0; pass++) {
		for (unsigned i = n; i > 1; i--) { /* shuffled */
			unsigned k = (unsigned)rnd(r, i);
			uint64_t old = c[i - 1];

			c[i - 1] = c[k];
			c[k] = old;
		}
		for (unsigned i = 0; i < n && e == 0 && !late(r); i++) {
			bool tiny = pass == 1;
			uint64_t before = tiny ? 12 * KIB : RUN_BYTES * (2 + rnd(r, 3)),
				 behind = tiny ? 16 * KIB : RUN_BYTES * (2 + rnd(r, 3)),
				 at = tiny && c[i] > 512 * KIB ? 0 : boundary(r, c[i], MIB);

			if (at)
				e = put_run(r, at - before, before + behind,
					    tiny ? COW_BLK_BYTES : RUN_BYTES);
		}
	}
	return e;
}

static uint64_t known_unit(const struct run *r)
{
	const struct measurement *m = r->m;

	return m->by_boundary.unit_bytes ? m->by_boundary.unit_bytes
	       : m->by_length.unit_bytes ? m->by_length.unit_bytes
					 : 4 * MIB;
}

static int lengths(struct run *r)
{
	struct measurement *m = r->m;
	uint64_t unit = known_unit(r), budget = 72 * MIB,
		 start = m->start_bytes + r->t->disk_off_bytes;
	int e = begin(r, PHASE_LENGTH);

	for (unsigned i = 0; i < 20 && e == 0 && !late(r); i++) {
		/* of a large unit only parts */
		uint64_t most = unit > 8 * MIB ? 6 * MIB : unit * 9 / 4,
			 len = max_u64(2 * RUN_BYTES,
				       round_down_u64(most / 16 + rnd(r, most), COW_BLK_BYTES)),
			 at;

		if (len > budget || len + MIB > m->work_bytes)
			break;
		budget -= len;
		at = rnd(r, (m->work_bytes - len) / COW_BLK_BYTES) * COW_BLK_BYTES;
		if (i % 3 == 0 && at >= unit) /* from the start of a unit on */
			at = round_down_u64(start + at, unit) - start;
		if (at + len <= m->work_bytes)
			e = put_run(r, m->start_bytes + at, len, unit < MIB ? 16 * KIB : RUN_BYTES);
	}
	/* what is still open is closed, and counts */
	for (unsigned i = 0; i <= max_u64(m->writers, 3) && i < 8 && e == 0 && !late(r); i++)
		e = put_run(r,
			    m->start_bytes + rnd(r, m->work_bytes / MIB - 1) * MIB + 2 * RUN_BYTES,
			    2 * RUN_BYTES, RUN_BYTES);
	return e;
}

/* A fixed number of writers, one more than there are open units, at a growing distance. */
static int strides(struct run *r)
{
	struct measurement *m = r->m;
	uint64_t c[64];
	unsigned n = candidate_sizes(m, c), count = m->writers + 1, row = 0;
	int e = begin(r, PHASE_STRIDE);

	for (unsigned i = 0; i < n && e == 0 && row < 2 && !late(r); i++) {
		uint64_t base, ns;
		unsigned slow = 0, all = 0;

		if (c[i] < 256 * KIB || c[i] * count + MIB > m->work_bytes)
			continue;
		base = m->start_bytes +
		       rnd(r, (m->work_bytes - c[i] * count) / RUN_BYTES) * RUN_BYTES;
		for (unsigned k = 0; k < 7 && e == 0 && slow < 16; k++)
			for (unsigned w = 0; w < count && e == 0; w++) {
				e = put(r, base + w * c[i] + k * 32 * KIB, 32 * KIB, &ns);
				slow += is_slow(r, 32 * KIB, ns) && k > 2;
				all += k > 2;
			}
		row = slow * 2 > all ? row + 1 : 0;
	}
	return e;
}

/* Writes in another order, in a growing number of units. */
static int in_unit(struct run *r)
{
	static const uint8_t order[] = { 5, 1, 6, 3, 0, 7, 2, 4 };
	struct measurement *m = r->m;
	uint64_t unit = known_unit(r), disk = r->t->disk_off_bytes;
	unsigned most = (unsigned)min_u64(m->writers, 8);
	uint64_t piece, ns;
	int e = begin(r, PHASE_IN_UNIT);

	if (unit < 256 * KIB)
		piece = COW_BLK_BYTES;
	else
		piece = 8 * KIB;
	for (unsigned n = 1; n <= most && e == 0 && !late(r); n++) {
		uint64_t first = round_up_u64(m->start_bytes + disk, unit) - disk,
			 units = (m->start_bytes + m->work_bytes - first) / unit,
			 apart = units / (n + 1), at[8], head = min_u64(2 * RUN_BYTES, unit / 4);

		if (!apart)
			break;
		for (unsigned i = 0; i < n && e == 0; i++) {
			at[i] = first + (i * apart + rnd(r, apart)) * unit;
			e = put_run(r, at[i], head, min_u64(RUN_BYTES, head));
		}
		for (unsigned k = 0; k < ARRAY_SIZE(order) && e == 0 && !late(r); k++)
			for (unsigned i = 0; i < n && e == 0; i++)
				e = put(r,
					at[i] + head + order[k] * (unit - head) / 8 / piece * piece,
					piece, &ns);
	}
	return e;
}

static int scatter(struct run *r)
{
	struct measurement *m = r->m;
	_cleanup_free_ uint64_t *ns = calloc(SCATTER_MAX, sizeof(*ns));
	unsigned slow = 0, n = 0;
	int e = begin(r, PHASE_SCATTER);

	if (!ns)
		return -ENOMEM;
	for (; n < SCATTER_MAX && e == 0; n++) {
		e = put(r, m->start_bytes + rnd(r, m->work_bytes / COW_BLK_BYTES) * COW_BLK_BYTES,
			COW_BLK_BYTES, &ns[n]);
		slow += e == 0 && is_slow(r, COW_BLK_BYTES, ns[n]);
		/* each of them, or enough of them, or many without one */
		if ((n >= 24 && slow * 10 > n * 9) || (n >= 3000 && slow >= 200) || late(r))
			break;
	}
	/* the steady state: behind the first of the slow ones */
	if (e == 0) {
		size_t from = n / 2;
		double sum = 0;

		for (size_t i = from; i < n; i++)
			sum += (double)ns[i];
		m->random_write[0] = figure_of(ns + from, n - from);
		m->random_write[0].value = sum / (double)(n - from);
	}
	return e;
}

static int scatter_sizes(struct run *r)
{
	struct measurement *m = r->m;
	int e = begin(r, PHASE_SCATTER_SIZE);

	for (unsigned i = 1; i < FLASH_TABLE && e == 0; i++) {
		uint64_t ns[24];
		unsigned k = 0;

		for (; k < 12 && e == 0 && (k < 3 || !out_of_time(r)); k++)
			e = put(r, m->start_bytes + rnd(r, m->work_bytes / size_at(i)) * size_at(i),
				size_at(i), &ns[k]);
		m->random_write[i] = figure_of(ns, k);
	}
	return e;
}

/* Are units that were discarded closed without a copy? */
static int discards(struct run *r)
{
	struct measurement *m = r->m;
	uint64_t unit = known_unit(r), disk = r->t->disk_off_bytes,
		 first = round_up_u64(m->start_bytes + disk, unit) - disk,
		 units = (m->start_bytes + m->work_bytes - first) / unit;
	int e = begin(r, PHASE_DISCARD);

	m->discard = -1;
	for (unsigned i = 0; i < MEASURE_DISCARD_UNITS && e == 0 &&
			     units >= MEASURE_DISCARD_UNITS && !out_of_time(r);
	     i++) {
		uint64_t apart = units / MEASURE_DISCARD_UNITS,
			 at = first + (i * apart + rnd(r, apart)) * unit;
		int64_t ns = target_discard(r->t, at, unit);

		if (ns == -EOPNOTSUPP || ns == -ENOTTY || ns == -EINVAL)
			return 0;
		e = record(r, SAMPLE_DISCARD, at, unit, ns, NULL);
		if (e == 0)
			e = put_run(r, at, 2 * RUN_BYTES, RUN_BYTES);
	}
	return e;
}

/* Linear writes once more: does the card become slower? */
static int again(struct run *r)
{
	struct measurement *m = r->m;
	unsigned i = FLASH_TABLE - 1, k = 0;
	uint64_t at = m->start_bytes, ns[12], spare;
	int e = begin(r, PHASE_AGAIN);

	e = put(r, at, MIB, &spare);
	at += MIB;
	for (; k < ARRAY_SIZE(ns) && e == 0; k++, at += MIB) {
		if (at + MIB > m->start_bytes + m->work_bytes) /* a small area */
			at = m->start_bytes;
		e = put(r, at, MIB, &ns[k]);
	}
	if (e < 0)
		return e;
	m->again = figure_of(ns, k);
	if (m->write[i].n && m->again.value > m->write[i].value * (100 + SLOWER_PERCENT) / 100 &&
	    m->again.value - m->write[i].value > 6 * (m->write[i].spread + m->again.spread)) {
		snprintf(m->why, sizeof(m->why),
			 "the card became slower while it was measured (1 MiB: %.1f ms, later %.1f "
			 "ms): it may be hot",
			 m->write[i].value / 1e6, m->again.value / 1e6);
		return -EAGAIN;
	}
	return 0;
}

/* ---- all of them ---- */

uint64_t measure_plan_bytes(uint64_t area_bytes)
{
	return round_down_u64(min_u64(area_bytes, MEASURE_WORK_BYTES), MIB) + OTHER_BYTES;
}

static int phases(struct run *r)
{
	struct measurement *m = r->m;
	int e = capacity(r);

	e = e ?: prime(r);
	e = e ?: linear(r, false);
	e = e ?: linear(r, true);
	e = e ?: random_reads(r);
	e = e ?: align(r);
	e = e ?: flushes(r);
	e = e ?: open_units(r, TURN_BYTES);
	if (e == 0 && !m->writers)
		e = open_units(r, COW_BLK_BYTES);
	e = e ?: boundaries(r);
	e = e ?: fit_boundary(m);
	e = e ?: lengths(r);
	e = e ?: fit_length(m);
	if (e == 0 && m->writers && m->writers < 16) {
		e = strides(r);
		e = e ?: in_unit(r);
	}
	e = e ?: scatter(r);
	e = e ?: scatter_sizes(r);
	e = e ?: again(r);
	e = e ?: discards(r);
	return e ?: fit_all(m);
}

int measure_run(struct measurement *m, struct target *t, const struct measure_params *p)
{
	struct run r = { .m = m, .t = t, .rnd = p->seed, .limit_ns = p->limit_ns };
	uint64_t area = t->end_bytes - t->start_bytes, from = now_ns();
	int e;

	*m = (struct measurement){ .p = *p, .t = t, .discard = -1 };
	m->start_bytes = t->start_bytes;
	m->work_bytes = round_down_u64(min_u64(area, MEASURE_WORK_BYTES), MIB);
	m->plan_bytes = measure_plan_bytes(area);
	if (!r.limit_ns)
		r.limit_ns = 60000000000ull;
	if (m->work_bytes < MEASURE_LEAST_BYTES) {
		snprintf(m->why, sizeof(m->why), "the area is smaller than %llu MiB",
			 (unsigned long long)(MEASURE_LEAST_BYTES / MIB));
		return -ENOSPC;
	}
	r.buffer = io_alloc(BUFFER_BYTES + MIB);
	if (!r.buffer) {
		snprintf(m->why, sizeof(m->why), "out of memory");
		return -ENOMEM;
	}
	for (uint64_t i = 0; i < (BUFFER_BYTES + MIB) / 8; i++)
		((uint64_t *)(void *)r.buffer)[i] = rnd(&r, UINT64_MAX);
	e = phases(&r);
	if (e < 0 && !*m->why)
		snprintf(m->why, sizeof(m->why), "%s", e == -EINTR ? "stopped" : strerror(-e));
	m->took_ns = max_u64(r.clock_ns, now_ns() - from);
	free(r.buffer);
	return e;
}

void measure_free(struct measurement *m)
{
	free(m->s.at);
	m->s.at = NULL;
	m->s.n = m->s.room = 0;
}
