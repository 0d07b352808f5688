/* SPDX-License-Identifier: MIT */
/* The flash model fitted to recorded requests, and the verdict. See engine.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/price.h"
#include "measure/engine.h"
#include "sim/model.h"

/*
 * A model with this profile returns, instead of a time, what the card did: bytes copied, and
 * COUNT for each unit that it closed.
 */
const char *measure_phase_name(enum measure_phase phase)
{
#define X(id, name) name,
	static const char *const names[] = { MEASURE_PHASES(X) };
#undef X
	return names[phase];
}

#define COUNT (1ull << 40)
#define COUNT_RATE 1000000000u

#define UNSHARED 1
#define SHARED 4096 /* a shared log that does not fill up here */
#define OPEN_SEARCHED 8
#define ROUNDS 8 /* of the regression */
#define NOISE_SPREADS 3
#define LOG_CLOSES 10	/* of random writes, for the size of the log to be known */
#define MARGIN 0.02	/* by which the best structure must be better than others */
#define SHARE_LEAST 0.6 /* of the time that a structure must explain to be believed */
#define FLAT_SHARE 0.05 /* closes that cost less than this do not matter */
#define FASTEST_COPY 10000000000000ull /* the most that a profile may say */

/*
 * What one write cost beyond a linear one, and what the card did for it by a structure. A deviation
 * below noise_ns does not count.
 */
struct evidence {
	double extra_ns, copied, closed, noise_ns;
};

struct fitted {
	struct structure s;
	double copy_ns, close_ns; /* per byte, per close */
	double rest_ns, all_ns;	  /* unexplained; sum of absolute extra times */
};

uint64_t fit_linear_ns(const struct measurement *m, uint64_t len_bytes)
{
	struct flash_speed s = { 0 };

	for (unsigned i = 0; i < FLASH_TABLE; i++) {
		if (m->write[i].n)
			s.table_ns[i] = (uint64_t)(m->write[i].value + 0.5);
		else
			s.table_ns[i] = i ? 2 * s.table_ns[i - 1] : 1;
	}
	return flash_speed_ns(&s, len_bytes);
}

static double noise_ns(const struct measurement *m, uint64_t len_bytes)
{
	unsigned i = 0;

	while (i + 1 < FLASH_TABLE && (uint64_t)COW_BLK_BYTES << i < len_bytes)
		i++;
	return NOISE_SPREADS * m->write[i].spread;
}

static unsigned candidates(const struct measurement *m, uint64_t *unit)
{
	uint64_t reported = m->p.reported_unit_bytes;
	bool has = reported % COW_BLK_BYTES || reported < 16 * KIB;
	unsigned n = 0;

	for (uint64_t u = 16 * KIB; u <= 64 * MIB && u <= m->work_bytes / 4; u *= 2) {
		unit[n++] = u;
		if (u / 2 * 3 <= m->work_bytes / 4 && u < 64 * MIB)
			unit[n++] = u / 2 * 3;
	}
	for (unsigned i = 0; i < n; i++)
		has |= unit[i] == reported;
	if (!has && reported <= m->work_bytes / 4)
		unit[n++] = reported;
	return n;
}

/* ---- replaying ---- */

static int new_model(struct flash_model **ret, const struct measurement *m,
		     const struct flash_profile *p, uint64_t end_bytes, uint64_t *ret_shift)
{
	uint64_t disk = m->t->disk_off_bytes;

	/* only the used part, but with the units of the disk; the shift may be negative */
	*ret_shift = round_down_u64(m->start_bytes + disk, p->unit_bytes) - disk;
	return flash_model_new(ret, p, end_bytes - *ret_shift + p->unit_bytes, FLASH_NO_WEAR);
}

/*
 * Replays requests from `first` on through a structure, and returns evidence for those of the
 * phases in mask.
 */
static int replay(const struct measurement *m, const struct structure *s, unsigned mask,
		  size_t first, struct evidence *ret, size_t *ret_n)
{
	struct flash_profile p = { .class = FLASH_CARD,
				   .unit_bytes = s->unit_bytes,
				   .open_units = s->open_units,
				   .open_random = s->open_random,
				   .absorb = s->absorb,
				   .members = 1,
				   .capacity_bytes = GIB,
				   .copy_bytes_per_s = COUNT_RATE,
				   .merge_ns = COUNT,
				   .read = { .affine = true },
				   .write = { .affine = true } };
	struct flash_model *model;
	uint64_t shift;
	size_t n = 0;
	int e = new_model(&model, m, &p, m->start_bytes + m->work_bytes, &shift);

	if (e < 0)
		return e;
	for (size_t i = first; i < m->s.n; i++) {
		const struct sample *a = &m->s.at[i];
		uint64_t did;

		if (!(mask >> a->phase)) /* nothing of the mask comes behind it */
			break;
		if (a->phase == PHASE_CAPACITY)
			continue;
		if (a->kind == SAMPLE_DISCARD && m->discard != 0)
			flash_model_discard(model, a->off_bytes - shift, a->len_bytes);
		if (a->kind != SAMPLE_WRITE)
			continue;
		did = flash_model_write(model, a->off_bytes - shift, a->len_bytes, 0);
		if (!(mask >> a->phase & 1))
			continue;
		ret[n++] =
			(struct evidence){ (double)a->ns - (double)fit_linear_ns(m, a->len_bytes),
					   (double)(did % COUNT), (double)(did / COUNT),
					   noise_ns(m, a->len_bytes) };
	}
	flash_model_free(model);
	*ret_n = n;
	return 0;
}

/* ---- regression ---- */

/* Weighted least squares of extra = copy * copied + close * closed, neither of them negative. */
static void solve(const struct evidence *e, const double *w, size_t n, double *ret_copy,
		  double *ret_close)
{
	double cc = 0, cn = 0, nn = 0, cy = 0, ny = 0, det, a, b;

	for (size_t i = 0; i < n; i++) {
		double c = e[i].copied * w[i], k = e[i].closed * w[i];

		cc += c * e[i].copied;
		cn += c * e[i].closed;
		nn += k * e[i].closed;
		cy += c * e[i].extra_ns;
		ny += k * e[i].extra_ns;
	}
	det = cc * nn - cn * cn;
	a = det > 1e-9 * cc * nn ? (cy * nn - ny * cn) / det : -1;
	b = det > 1e-9 * cc * nn ? (ny * cc - cy * cn) / det : -1;
	if (a < 0 || b < 0) {
		/* one of them alone: the one that explains more */
		double only_a = cc > 0 ? fmax(cy / cc, 0) : 0,
		       only_b = nn > 0 ? fmax(ny / nn, 0) : 0;
		bool by_copy = only_a * cy >= only_b * ny;

		a = by_copy ? only_a : 0;
		b = by_copy ? 0 : only_b;
	}
	*ret_copy = a;
	*ret_close = b;
}

/* Least absolute deviations, by least squares with weights of the deviations before. */
static void regress(struct evidence *e, size_t n, double *w, struct fitted *f)
{
	double least = 0;

	f->all_ns = f->rest_ns = 0;
	for (size_t i = 0; i < n; i++) {
		w[i] = 1;
		f->all_ns += fmax(fabs(e[i].extra_ns) - e[i].noise_ns, 0);
	}
	least = n ? f->all_ns / (double)n / 1000 + 1 : 1;
	for (unsigned round = 0; round < ROUNDS; round++) {
		solve(e, w, n, &f->copy_ns, &f->close_ns);
		f->rest_ns = 0;
		for (size_t i = 0; i < n; i++) {
			double rest = fabs(e[i].extra_ns - f->copy_ns * e[i].copied -
					   f->close_ns * e[i].closed);

			f->rest_ns += fmax(rest - e[i].noise_ns, 0);
			w[i] = 1 / fmax(rest, least);
		}
	}
}

struct search {
	const struct measurement *m;
	unsigned mask;
	size_t first;
	struct evidence *e;
	double *w;
	struct fitted best, other; /* other: the best one with another erase block */
	bool any;
};

static int search_begin(struct search *x, const struct measurement *m, unsigned mask)
{
	*x = (struct search){ .m = m, .mask = mask };
	/* what came before the first phase with runs and jumps has left one open unit at most */
	while (x->first < m->s.n && m->s.at[x->first].phase < PHASE_FLUSH)
		x->first++;
	x->e = malloc((m->s.n + 1) * sizeof(*x->e));
	x->w = malloc((m->s.n + 1) * sizeof(*x->w));
	return x->e && x->w ? 0 : -ENOMEM;
}

static void search_end(struct search *x)
{
	free(x->e);
	free(x->w);
}

static int try(struct search *x, struct structure s)
{
	struct fitted f = { .s = s };
	size_t n;
	int e;

	if (x->m->p.stop && *x->m->p.stop)
		return -EINTR;
	e = replay(x->m, &s, x->mask, x->first, x->e, &n);
	if (e < 0)
		return e;
	regress(x->e, n, x->w, &f);
	if (!x->any || f.rest_ns < x->best.rest_ns) {
		if (x->any && x->best.s.unit_bytes != s.unit_bytes)
			x->other = x->best;
		x->best = f;
	} else if (s.unit_bytes != x->best.s.unit_bytes &&
		   (!x->other.s.unit_bytes || f.rest_ns < x->other.rest_ns)) {
		x->other = f;
	}
	x->any = true;
	return 0;
}

static double share_of(const struct fitted *f)
{
	return f->all_ns > 0 ? 1 - f->rest_ns / f->all_ns : 0;
}

/* Is the erase block of the best structure beyond doubt for these phases? */
static bool is_clear(const struct search *x)
{
	return share_of(&x->best) >= SHARE_LEAST &&
	       (!x->other.s.unit_bytes ||
		x->other.rest_ns > x->best.rest_ns + MARGIN * x->best.all_ns);
}

/* Each erase block, with 1 to OPEN_SEARCHED open units and as many as there were fast writers. */
static int search_units(struct search *x)
{
	static const unsigned logs[] = { UNSHARED, SHARED };
	uint64_t unit[64];
	unsigned n = candidates(x->m, unit);
	int e = 0;

	for (unsigned i = 0; i < n; i++)
		for (unsigned l = 0; l < ARRAY_SIZE(logs); l++)
			for (unsigned k = 1; k <= OPEN_SEARCHED + 1 && e == 0; k++) {
				unsigned open = k <= OPEN_SEARCHED ? k : x->m->writers;

				if (k <= OPEN_SEARCHED || open > OPEN_SEARCHED)
					e = try(x,
						(struct structure){ unit[i], open, open, logs[l] });
			}
	for (unsigned i = 0; i < 2 && e == 0; i++) {
		struct structure s = x->best.s;

		s.open_random = i;
		e = try(x, s);
	}
	return e;
}

static int fit_phase(struct measurement *m, enum measure_phase phase, struct structure *ret)
{
	struct search x;
	int e = search_begin(&x, m, 1u << phase);

	e = e ?: search_units(&x);
	if (e == 0 && is_clear(&x))
		*ret = x.best.s;
	search_end(&x);
	return e;
}

int fit_boundary(struct measurement *m)
{
	return fit_phase(m, PHASE_BOUNDARY, &m->by_boundary);
}

int fit_length(struct measurement *m)
{
	return fit_phase(m, PHASE_LENGTH, &m->by_length);
}

/* ---- all phases ---- */

#define STRUCTURE_PHASES                                                                           \
	(1u << PHASE_WRITERS | 1u << PHASE_BOUNDARY | 1u << PHASE_LENGTH | 1u << PHASE_STRIDE)

static int fit_structure(struct measurement *m, struct search *x)
{
	int e = search_units(x);
	struct structure s = x->best.s;
	uint64_t total = 0;
	unsigned votes = 0;

	if (e < 0)
		return e;
	for (size_t i = 0; i < m->s.n; i++)
		if (STRUCTURE_PHASES >> m->s.at[i].phase & 1)
			total += m->s.at[i].ns;
	m->share = share_of(&x->best);
	m->is_flat = m->share * x->best.all_ns < FLAT_SHARE * (double)total;
	votes = (m->by_boundary.unit_bytes == s.unit_bytes) +
		(m->by_length.unit_bytes == s.unit_bytes) +
		(m->by_stride.unit_bytes == s.unit_bytes);
	m->unit_known = !m->is_flat && votes >= 2 && is_clear(x);
	m->best = s;
	m->open_known = m->unit_known && m->writers == s.open_units &&
			(m->by_boundary.open_units == m->writers ||
			 m->by_length.open_units == m->writers);
	return 0;
}

/* How many units may be written out of order? Asks the phases that do so. */
static int fit_random(struct measurement *m)
{
	struct search x;
	unsigned worst = m->best.open_units;
	double rest[OPEN_SEARCHED + 2];
	int e = search_begin(&x, m, 1u << PHASE_IN_UNIT | 1u << PHASE_STRIDE);

	for (unsigned i = 0; i <= m->best.open_units && i < ARRAY_SIZE(rest) && e == 0; i++) {
		struct structure s = m->best;
		struct search one = x;

		s.open_random = i;
		one.any = false;
		e = try(&one, s);
		rest[i] = one.best.rest_ns;
		if (!x.any || rest[i] < x.best.rest_ns) {
			x.best = one.best;
			x.any = true;
		}
		worst = i;
	}
	if (e == 0 && x.any) {
		m->best.open_random = x.best.s.open_random;
		m->random_known = m->open_known && worst == m->best.open_units &&
				  share_of(&x.best) >= SHARE_LEAST;
		for (unsigned i = 0; i <= worst; i++)
			if (i != m->best.open_random &&
			    rest[i] < x.best.rest_ns + MARGIN * x.best.all_ns)
				m->random_known = false;
	}
	search_end(&x);
	return e;
}

/* Time beyond linear writes of the random writes, by the model and as measured. */
static int scatter_time(const struct measurement *m, struct search *x, const struct structure *s,
			const struct fitted *cost, double *ret_model, double *ret_measured)
{
	size_t n;
	int e = replay(m, s, 1u << PHASE_SCATTER, x->first, x->e, &n);

	*ret_model = *ret_measured = 0;
	for (size_t i = 0; i < n && e == 0; i++) {
		*ret_model += x->e[i].copied * cost->copy_ns + x->e[i].closed * cost->close_ns;
		*ret_measured += x->e[i].extra_ns;
	}
	return e;
}

/* The smallest log by which the random writes take no longer than they did and spare_ns. */
static int smallest_log(struct measurement *m, struct search *x, const struct fitted *cost,
			double spare_ns, double *ret_model, double *ret_measured)
{
	unsigned low = 2, high = SHARED;
	struct structure s = m->best;
	int e = 0;

	while (low < high && e == 0) {
		s.absorb = low + (high - low) / 2;
		e = scatter_time(m, x, &s, cost, ret_model, ret_measured);
		if (*ret_model > *ret_measured + spare_ns)
			low = s.absorb + 1;
		else
			high = s.absorb;
	}
	m->best.absorb = s.absorb = low;
	return e ?: scatter_time(m, x, &s, cost, ret_model, ret_measured);
}

/* Random writes become cheaper with a larger log: the size for which their time fits. */
static int fit_log(struct measurement *m, struct search *x, const struct fitted *cost)
{
	double close_ns = cost->close_ns + cost->copy_ns * (double)m->best.unit_bytes;
	double model, measured;
	int e = smallest_log(m, x, cost, 0, &model, &measured);

	m->absorb_known = m->unit_known && measured > LOG_CLOSES * close_ns &&
			  fabs(model - measured) < 0.1 * measured;
	/* it was hardly ever full, and may be of any size from this one on */
	if (e == 0 && measured <= LOG_CLOSES * close_ns)
		e = smallest_log(m, x, cost, 2 * close_ns, &model, &measured);
	return e;
}

static void assume_flat(struct measurement *m)
{
	uint64_t unit = m->p.reported_unit_bytes;

	m->best = (struct structure){ .unit_bytes = unit && unit % COW_BLK_BYTES == 0 ? unit
										      : 4 * MIB,
				      .open_units = 1,
				      .open_random = 1,
				      .absorb = 1 };
	m->copy_bytes_per_s = FASTEST_COPY;
	m->merge_ns = 0;
}

static int fit_costs(struct measurement *m, unsigned mask, struct fitted *ret)
{
	struct search x;
	int e = search_begin(&x, m, mask);

	e = e ?: try(&x, m->best);
	if (e == 0)
		*ret = x.best;
	search_end(&x);
	return e;
}

static void take_costs(struct measurement *m, const struct fitted *f)
{
	double rate = f->copy_ns > 0 ? 1e9 / f->copy_ns : (double)FASTEST_COPY;

	m->copy_bytes_per_s = rate < (double)FASTEST_COPY ? (uint64_t)(rate + 0.5) : FASTEST_COPY;
	m->merge_ns = (uint64_t)(f->close_ns + 0.5);
	m->costs_known = share_of(f) >= SHARE_LEAST;
}

/* ---- the profile and the verdict ---- */

static void take_table(struct flash_speed *ret, const struct figure *f)
{
	*ret = (struct flash_speed){ 0 };
	for (unsigned i = 0; i < FLASH_TABLE; i++) {
		if (f[i].n)
			ret->table_ns[i] = max_u64(1, (uint64_t)(f[i].value + 0.5));
		else
			ret->table_ns[i] = i ? 2 * ret->table_ns[i - 1] : 1;
	}
}

static void make_profile(struct measurement *m)
{
	struct flash_profile *p = &m->profile;

	*p = (struct flash_profile){ .id = "measured",
				     .class = FLASH_CARD,
				     .has_write = true,
				     .capacity_bytes = m->t->size_bytes,
				     .page_bytes = 4096,
				     .unit_bytes = m->best.unit_bytes,
				     .open_units = m->best.open_units,
				     .open_random = m->best.open_random,
				     .absorb = m->best.absorb,
				     .copy_bytes_per_s = m->copy_bytes_per_s,
				     .merge_ns = m->merge_ns,
				     .sync_ns = (int64_t)m->flush.value,
				     .wear = FLASH_WEAR_DYNAMIC,
				     .spare_ppm = 30000,
				     .members = 1 };
	take_table(&p->write, m->write);
	take_table(&p->read, m->read);
	p->random_read_ns = (uint64_t)m->random_read[1].value;
}

static void compare(struct measurement *m, enum measure_phase phase, uint64_t least_ns)
{
	struct phase_verdict *v = &m->verdict[phase];
	uint64_t apart = v->measured_ns > v->model_ns ? v->measured_ns - v->model_ns
						      : v->model_ns - v->measured_ns,
		 percent = v->measured_ns < VERDICT_SHORT_NS ? VERDICT_SHORT_PERCENT
							     : VERDICT_PERCENT;
	unsigned allowed = v->closes / 10;
	bool slow;

	allowed = allowed > VERDICT_CLOSES ? allowed : VERDICT_CLOSES;
	slow = v->closes + allowed >= v->model_sure && v->closes <= v->model_closes + allowed;
	v->agrees = apart <= max_u64(v->measured_ns / 100 * percent, least_ns) && slow;
	if (!v->agrees && !*m->doubt)
		snprintf(
			m->doubt, sizeof(m->doubt),
			"%s took %.2f s, and by the profile %.2f s; %u and %u of them closed a unit",
			measure_phase_name(phase), (double)v->measured_ns / 1e9,
			(double)v->model_ns / 1e9, v->closes, v->model_closes);
}

/* Phases whose start state or requests are outside of the model, and what lies behind its table. */
static bool is_judged(const struct sample *a)
{
	return a->phase != PHASE_CAPACITY && a->phase != PHASE_PRIME && a->phase != PHASE_ALIGN &&
	       a->phase != PHASE_AGAIN && a->phase != PHASE_DISCARD && a->len_bytes <= MIB &&
	       (a->kind != SAMPLE_READ || a->len_bytes >= COW_BLK_BYTES);
}

static int judge(struct measurement *m)
{
	struct flash_model *model;
	uint64_t shift,
		close_ns = m->merge_ns + m->best.unit_bytes / 4 * 1000000000u / m->copy_bytes_per_s;
	int e = new_model(&model, m, &m->profile, m->t->end_bytes, &shift);

	if (e < 0)
		return e;
	for (size_t i = 0; i < m->s.n; i++) {
		const struct sample *a = &m->s.at[i];
		struct phase_verdict *v = &m->verdict[a->phase];
		uint64_t ns = 0, limit = fit_linear_ns(m, a->len_bytes) + close_ns;

		if (a->kind == SAMPLE_READ)
			ns = flash_model_read(model, a->off_bytes - shift, a->len_bytes);
		else if (a->kind == SAMPLE_WRITE)
			ns = flash_model_write(model, a->off_bytes - shift, a->len_bytes, 0);
		else if (a->kind == SAMPLE_FLUSH)
			ns = flash_model_flush(model);
		if (!is_judged(a))
			continue;
		v->measured_ns += a->ns;
		v->model_ns += ns;
		if (m->is_flat || a->kind != SAMPLE_WRITE)
			continue;
		v->closes += a->ns > limit;
		v->model_closes += ns > limit - close_ns / 2;
		v->model_sure += ns > limit + close_ns;
	}
	flash_model_free(model);
	for (unsigned i = 0; i < PHASES; i++)
		if (m->verdict[i].measured_ns)
			compare(m, (enum measure_phase)i,
				VERDICT_CLOSES * flash_merge_ns(&m->profile, 0));
	return 0;
}

static int fit_discard(struct measurement *m)
{
	double rest[2];
	bool any = false;
	int e = 0;

	for (size_t i = 0; i < m->s.n; i++)
		any |= m->s.at[i].kind == SAMPLE_DISCARD;
	if (!any || m->is_flat || !m->unit_known)
		return 0;
	for (int i = 0; i < 2 && e == 0; i++) {
		struct search x;

		m->discard = i;
		e = search_begin(&x, m, 1u << PHASE_DISCARD);
		if (e == 0) {
			size_t n;

			e = replay(m, &m->best, x.mask, x.first, x.e, &n);
			rest[i] = 0;
			for (size_t k = 0; k < n && e == 0; k++)
				rest[i] += fabs(x.e[k].extra_ns -
						x.e[k].copied * 1e9 / (double)m->copy_bytes_per_s -
						x.e[k].closed * (double)m->merge_ns);
		}
		search_end(&x);
	}
	if (e == 0)
		m->discard = rest[0] > 2 * rest[1] ? 1 : rest[1] > 2 * rest[0] ? 0 : -1;
	return e;
}

int fit_all(struct measurement *m)
{
	struct search x;
	struct fitted cost = { 0 };
	int e = fit_phase(m, PHASE_STRIDE, &m->by_stride);

	e = e ?: search_begin(&x, m, STRUCTURE_PHASES);
	if (e < 0)
		return e;
	e = fit_structure(m, &x);
	search_end(&x);
	if (e < 0)
		return e;
	if (m->is_flat) {
		assume_flat(m);
	} else {
		bool shared = m->best.absorb > 1;

		/* when a shared log is full depends on its size, which is searched below */
		e = fit_random(m);
		e = e
			    ?: fit_costs(m,
					 STRUCTURE_PHASES | 1u << PHASE_IN_UNIT |
						 (shared ? 0 : 1u << PHASE_SCATTER),
					 &cost);
		if (e == 0)
			take_costs(m, &cost);
		if (e == 0 && shared) {
			e = search_begin(&x, m, STRUCTURE_PHASES);
			e = e ?: fit_log(m, &x, &cost);
			search_end(&x);
		} else {
			m->absorb_known = m->unit_known;
		}
	}
	e = e ?: fit_discard(m);
	if (e < 0)
		return e;
	make_profile(m);
	e = judge(m);
	if (!m->is_flat && !m->unit_known && !*m->doubt)
		snprintf(m->doubt, sizeof(m->doubt), "the erase block is not determined");
	m->confirmed = e == 0 && !*m->doubt;
	return e;
}
