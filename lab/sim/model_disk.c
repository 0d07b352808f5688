/* SPDX-License-Identifier: MIT */
/* A disk with one head. */
#include "sim/model_private.h"

#define Q 16 /* number of fraction bits of a share of the span */

static uint64_t square_root(uint64_t v)
{
	uint64_t r = 0;

	for (uint64_t bit = (uint64_t)1 << 62; bit; bit >>= 2) {
		if (v >= r + bit) {
			v -= r + bit;
			r = (r >> 1) + bit;
		} else {
			r >>= 1;
		}
	}
	return r;
}

/*
 * track + p*sqrt(x) + q*x. Over random pairs the mean of sqrt(x) is 8/15 and that of x 1/3, so
 * p = 5 * (seek - track - (full - track) / 3), q = full - track - p.
 */
static uint64_t seek_ns(const struct flash_model *m, uint64_t distance_bytes)
{
	const struct flash_profile *p = &m->p;
	uint64_t x = mul_div_u64(distance_bytes, 1u << Q, m->size_bytes);
	int64_t mean = (int64_t)p->seek_ns - (int64_t)p->track_ns,
		full = (int64_t)p->full_ns - (int64_t)p->track_ns;
	int64_t a = 5 * (mean - full / 3), b = full - a;
	int64_t ns = (int64_t)p->track_ns +
		     ((a * (int64_t)square_root(x << Q) + b * (int64_t)x) >> Q);

	return ns > 0 ? (uint64_t)ns : 0;
}

uint64_t disk_model_io(struct flash_model *m, const struct flash_speed *speed, uint64_t off_bytes,
		       uint64_t len_bytes)
{
	uint64_t outer = speed->bytes_per_s, inner = m->p.inner_bytes_per_s, ns = 0;

	if (!speed->affine || !inner || inner > outer)
		ns = flash_speed_ns(speed, len_bytes);
	else
		ns = speed->overhead_ns +
		     flash_rate_ns(len_bytes,
				   outer - mul_div_u64(outer - inner, off_bytes, m->size_bytes));
	if (off_bytes != m->s.head_bytes)
		ns += m->p.latency_ns + seek_ns(m, off_bytes > m->s.head_bytes
							   ? off_bytes - m->s.head_bytes
							   : m->s.head_bytes - off_bytes);
	m->s.head_bytes = off_bytes + len_bytes;
	return ns;
}
