/* SPDX-License-Identifier: MIT */
/* Targets of cowctl measure that are models with a virtual clock, and those that are unlike one. */
#ifndef COWFS_TESTS_MEASURE_CARD_H
#define COWFS_TESTS_MEASURE_CARD_H

#include "test.h"
#include <math.h>

#include "measure/engine.h"
#include "sim/model.h"

struct odd {
	double noise;  /* sigma of a log-normal factor */
	double spikes; /* share of the requests that take spike_ns more */
	uint64_t spike_ns;
	uint64_t stall_every_bytes, stall_ns; /* background garbage collection */
	uint64_t constant_ns;		      /* a write of any kind takes this */
	uint64_t hot_after_bytes;	      /* slower by 60 % from there on */
	uint64_t boundary_ns;		      /* of a read across a boundary of units */
	uint64_t real_bytes;		      /* wraps there */
	uint64_t lost_behind;		      /* writes behind it have no effect */
	uint64_t dies_after_bytes;
	bool no_discard, no_writes;
};

#define TAGS 512

struct model_target {
	struct target t; /* must be first */
	struct flash_model *m;
	struct odd odd;
	uint64_t rnd, written_bytes;
	/* contents of single blocks: for the check of the capacity */
	struct {
		uint64_t at;
		unsigned char data[COW_BLK_BYTES];
	} tag[TAGS];
	unsigned tags;
};

static inline double uniform(struct model_target *m)
{
	return (double)(rnd_next(&m->rnd) >> 11) / 9007199254740992.0;
}

static inline int64_t took(struct model_target *m, uint64_t ns)
{
	double d = (double)ns;

	if (m->odd.noise > 0)
		d *= exp(m->odd.noise * sqrt(-2 * log(1 - uniform(m))) *
			 cos(2 * M_PI * uniform(m)));
	if (m->odd.spikes > 0 && uniform(m) < m->odd.spikes)
		d += (double)m->odd.spike_ns;
	if (m->odd.hot_after_bytes && m->written_bytes > m->odd.hot_after_bytes)
		d *= 1.6;
	return (int64_t)d;
}

static inline uint64_t place(const struct model_target *m, uint64_t off)
{
	return m->odd.real_bytes ? off % m->odd.real_bytes : off;
}

static inline int find_tag(struct model_target *m, uint64_t at)
{
	for (unsigned i = 0; i < m->tags; i++)
		if (m->tag[i].at == at)
			return (int)i;
	return -1;
}

static int64_t model_target_read(struct target *t, uint64_t off, void *buf, size_t len)
{
	struct model_target *m = (struct model_target *)t;
	uint64_t unit = flash_model_profile(m->m)->unit_bytes, more = 0;

	if (buf) {
		int i = find_tag(m, place(m, off));

		memset(buf, 0, len);
		if (i >= 0 && len == COW_BLK_BYTES)
			memcpy(buf, m->tag[i].data, len);
	}
	off += t->disk_off_bytes;
	if (off / unit != (off + len - 1) / unit)
		more = m->odd.boundary_ns;
	return took(m, flash_model_read(m->m, off, len) + more);
}

static int64_t model_target_write(struct target *t, uint64_t off, const void *buf, size_t len)
{
	struct model_target *m = (struct model_target *)t;
	uint64_t ns, before = m->written_bytes;

	if (m->odd.no_writes)
		return -EROFS;
	if (m->odd.dies_after_bytes && before > m->odd.dies_after_bytes)
		return -EIO;
	if (buf && len == COW_BLK_BYTES && before < MIB &&
	    (!m->odd.lost_behind || off < m->odd.lost_behind)) {
		int i = find_tag(m, place(m, off));

		if (i < 0 && m->tags < TAGS)
			i = (int)m->tags++;
		if (i >= 0) {
			m->tag[i].at = place(m, off);
			memcpy(m->tag[i].data, buf, len);
		}
	}
	for (unsigned i = 0; len > COW_BLK_BYTES && i < m->tags; i++)
		if (m->tag[i].at - place(m, off) < len)
			memset(m->tag[i].data, 0, COW_BLK_BYTES);
	m->written_bytes += len;
	ns = flash_model_write(m->m, t->disk_off_bytes + off, len, 0);
	if (m->odd.constant_ns)
		ns = m->odd.constant_ns + len * 20;
	if (m->odd.stall_every_bytes &&
	    before / m->odd.stall_every_bytes != m->written_bytes / m->odd.stall_every_bytes)
		ns += m->odd.stall_ns;
	return took(m, ns);
}

static int64_t model_target_flush(struct target *t)
{
	struct model_target *m = (struct model_target *)t;

	return took(m, flash_model_flush(m->m));
}

static int64_t model_target_discard(struct target *t, uint64_t off, uint64_t len)
{
	struct model_target *m = (struct model_target *)t;

	if (m->odd.no_discard)
		return -EOPNOTSUPP;
	flash_model_discard(m->m, t->disk_off_bytes + off, len);
	return 1000;
}

static void model_target_close(struct target *t)
{
	struct model_target *m = (struct model_target *)t;

	flash_model_free(m->m);
	free(m);
}

/* An area of area_bytes in the middle of a card of this profile. NULL: no memory. */
static inline struct target *model_target(const struct flash_profile *p, const struct odd *odd,
					  uint64_t start_bytes, uint64_t area_bytes, uint64_t seed)
{
	static const struct target_ops ops = { model_target_read, model_target_write,
					       model_target_flush, model_target_discard,
					       model_target_close };
	struct model_target *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->t = (struct target){ .ops = &ops,
				.size_bytes = p->capacity_bytes,
				.start_bytes = start_bytes,
				.end_bytes = start_bytes + area_bytes,
				.sector_bytes = 512 };
	m->rnd = seed;
	if (odd)
		m->odd = *odd;
	if (flash_model_new(&m->m, p, 0, FLASH_NO_WEAR) < 0) {
		free(m);
		return NULL;
	}
	return &m->t;
}

#endif
