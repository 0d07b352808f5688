/* SPDX-License-Identifier: MIT */
#include "commit/card_time.h"

#include <stdlib.h>

#define SAMPLES 8u
#define ROUNDS 8u
#define SIZES_DIFFER 4 /* by this factor: both parts can be told */

struct sample {
	double x, t;
};

struct line {
	double a, b;
};

static double profile_ns(const struct flash_profile *p, uint64_t bytes)
{
	return (double)(flash_write_ns(p, bytes) +
			2 * (flash_write_ns(p, COW_BLK_BYTES) + flash_sync_ns(p)));
}

/* The least sum of squares of deviations in shares of what the line before said. Neither part is negative: a card is
 * not faster because there is more to write. */
static struct line fit(const struct sample *s, size_t n, struct line before)
{
	double sum = 0, x = 0, t = 0, xx = 0, xt = 0, det;
	struct line l = { 0 };

	for (size_t i = 0; i < n; i++) {
		double said = before.a + before.b * s[i].x, w = 1 / (said * said);

		sum += w;
		x += w * s[i].x;
		t += w * s[i].t;
		xx += w * s[i].x * s[i].x;
		xt += w * s[i].x * s[i].t;
	}
	det = sum * xx - x * x;
	if (det > 0)
		l.b = (sum * xt - x * t) / det;
	l.a = (t - l.b * x) / sum;
	if (l.a < 0)
		l = (struct line){ .b = xt / xx };
	if (l.b < 0)
		l = (struct line){ .a = t / sum };
	return l;
}

/* The card of a profile, made as fast as this one by the median of its commits. */
static struct line scaled(const struct sample *s, size_t n, const struct flash_profile *like)
{
	double slower[SAMPLES], small = COW_BLK_BYTES, large = 64 * MIB;
	struct line l;

	for (size_t i = 0; i < n; i++)
		slower[i] = s[i].t / profile_ns(like, (uint64_t)s[i].x);
	qsort(slower, n, sizeof(*slower), rising_double);
	l.b = (profile_ns(like, (uint64_t)large) - profile_ns(like, (uint64_t)small)) /
	      (large - small) * slower[n / 2];
	l.a = profile_ns(like, (uint64_t)small) * slower[n / 2] - l.b * small;
	return l;
}

uint64_t card_time_ns(const struct wear_table *wear, const struct flash_profile *like,
		      uint64_t bytes)
{
	uint64_t first = wear->commit_n - min_u64(wear->commit_n, SAMPLES);
	struct sample s[SAMPLES];
	double least = 0, most = 0;
	struct line l;
	size_t n = 0;

	for (uint64_t i = first + 1; i <= wear->commit_n; i++) {
		const struct wear_commit *c = &wear->commit[i % WEAR_COMMITS];

		if (c->n != i || !c->written_bytes)
			continue;
		s[n] = (struct sample){ (double)c->written_bytes,
					((double)c->writable_ms + 0.5) * 1e6 };
		least = n && least < s[n].x ? least : s[n].x;
		most = most > s[n].x ? most : s[n].x;
		n++;
	}
	if (!n)
		return 0;
	l = scaled(s, n, like);
	for (unsigned i = 0; i < ROUNDS && most >= SIZES_DIFFER * least; i++)
		l = fit(s, n, l);
	return (uint64_t)(l.a + l.b * (double)bytes);
}
