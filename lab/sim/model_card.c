/* SPDX-License-Identifier: MIT */
/* A card: open units and how they are closed, the shared log, caches. */
#include <string.h>

#include "sim/model_private.h"

static uint8_t *bits_of(const struct flash_model *m, const struct open_unit *o)
{
	return m->bits + (size_t)(o - m->open) * m->bits_bytes;
}

static bool is_valid(const struct flash_model *m, uint64_t blk)
{
	return m->valid[blk / 8] >> blk % 8 & 1;
}

static void set_valid(struct flash_model *m, uint64_t blk, uint64_t end, bool on)
{
	for (; blk < end; blk++) {
		if (blk % 8 == 0 && end - blk >= 8) {
			m->valid[blk / 8] = on ? 0xff : 0;
			blk += 7;
			continue;
		}
		m->valid[blk / 8] &= (uint8_t) ~(1u << blk % 8);
		m->valid[blk / 8] |= (uint8_t)((unsigned)on << blk % 8);
	}
}

/* Valid blocks of the unit, without those that o has new; o may be NULL. */
static uint64_t old_blks(const struct flash_model *m, uint64_t unit, const struct open_unit *o)
{
	const uint8_t *bits = o ? bits_of(m, o) : NULL;
	uint64_t first = unit * m->unit_blks, n = 0, b = 0, valid, gone = 0;

	for (; first % 8 == 0 && b + 64 <= m->unit_blks; b += 64) {
		memcpy(&valid, m->valid + (first + b) / 8, sizeof(valid));
		if (bits)
			memcpy(&gone, bits + b / 8, sizeof(gone));
		n += (unsigned)__builtin_popcountll(valid & ~gone);
	}
	for (; b < m->unit_blks; b++)
		n += is_valid(m, first + b) && !(bits && bits[b / 8] >> b % 8 & 1);
	return n;
}

/* What is copied when the unit is merged: see "page-mapped" in model.h. */
static uint64_t copy_bytes(const struct flash_model *m, uint64_t unit, const struct open_unit *o)
{
	uint64_t blks = old_blks(m, unit, o);

	if (m->log_unit || !blks)
		return blk_to_bytes(blks);
	return m->p.unit_bytes - (o ? blk_to_bytes(o->new_blks) : 0);
}

/* ---- reading ---- */

uint64_t card_model_read(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes)
{
	bool goes_on = off_bytes == m->s.read_end_bytes;

	m->s.read_end_bytes = off_bytes + len_bytes;
	if (off_bytes + len_bytes <= m->p.front_bytes)
		return flash_speed_ns(&m->p.front_read, len_bytes);
	return goes_on ? flash_read_ns(&m->p, len_bytes) : flash_random_read_ns(&m->p, len_bytes);
}

/* ---- open units ---- */

static uint64_t unit_start(const struct flash_model *m, uint64_t unit)
{
	return unit * m->p.unit_bytes;
}

static struct open_unit *find_open(struct flash_model *m, uint64_t unit)
{
	for (unsigned i = 0; i < m->s.n_open; i++)
		if (m->open[i].unit == unit)
			return &m->open[i];
	return NULL;
}

/* Resets everything except the unit's number and its time of use. */
static void restart(struct flash_model *m, struct open_unit *o, uint64_t from_bytes)
{
	memset(bits_of(m, o), 0, m->bits_bytes);
	o->next_bytes = from_bytes;
	o->written_bytes = 0;
	o->new_blks = 0;
	o->in_order = from_bytes == unit_start(m, o->unit);
	o->random = o->full = false;
}

/* Returns the time of closing. The caller reuses the slot, or releases it with drop. */
static uint64_t close_unit(struct flash_model *m, const struct open_unit *o)
{
	uint64_t copy, ns;

	if (o->full)
		return m->p.merge_ns; /* the switch itself is already counted */
	if (!o->written_bytes)
		return 0;
	copy = copy_bytes(m, o->unit, o);
	ns = flash_copy_ns(&m->p, copy);
	m->st.copied_bytes += copy;
	m->st.programmed_bytes += copy;
	if (o->in_order)
		m->st.partial_merges++;
	else
		m->st.full_merges++;
	return ns + wear_model_erase(m, o->unit, o->in_order ? 1 : 2);
}

static void drop(struct flash_model *m, struct open_unit *o)
{
	struct open_unit *last = &m->open[--m->s.n_open];

	if (o != last) {
		*o = *last;
		memcpy(bits_of(m, o), bits_of(m, last), m->bits_bytes);
	}
}

static struct open_unit *oldest(struct flash_model *m, bool random_only)
{
	struct open_unit *o = NULL;

	for (unsigned i = 0; i < m->s.n_open; i++)
		if ((!random_only || m->open[i].random) && (!o || m->open[i].stamp < o->stamp))
			o = &m->open[i];
	return o;
}

/*
 * Finds a slot for a stream that arrives at from_bytes. The slot with which the stream has just
 * filled the previous unit costs nothing.
 */
static struct open_unit *open_unit(struct flash_model *m, uint64_t unit, uint64_t from_bytes,
				   uint64_t *ns)
{
	struct open_unit *o = NULL;

	for (unsigned i = 0; i < m->s.n_open && !o; i++)
		if (m->open[i].full && m->open[i].next_bytes == from_bytes)
			o = &m->open[i];
	if (!o && m->s.n_open < m->p.open_units)
		o = &m->open[m->s.n_open++];
	if (!o) {
		o = oldest(m, false);
		*ns += close_unit(m, o);
	}
	o->unit = unit;
	restart(m, o, from_bytes);
	return o;
}

/* Handles a write that does not continue where the last one ended. */
static void jump(struct flash_model *m, struct open_unit *o, uint64_t from_bytes, uint64_t *ns)
{
	unsigned n = 0;

	if (o->random)
		return;
	if (!m->p.open_random) {
		*ns += close_unit(m, o);
		restart(m, o, from_bytes);
		return;
	}
	for (unsigned i = 0; i < m->s.n_open; i++)
		n += m->open[i].random;
	if (n >= m->p.open_random) {
		struct open_unit *victim = oldest(m, true);
		uint64_t unit = o->unit;

		*ns += close_unit(m, victim);
		drop(m, victim); /* may move o */
		o = find_open(m, unit);
	}
	o->in_order = false;
	o->random = true;
}

static void mark(struct flash_model *m, struct open_unit *o, uint64_t from_bytes, uint64_t to_bytes)
{
	uint8_t *bits = bits_of(m, o);
	uint64_t start = unit_start(m, o->unit);
	uint64_t b = (from_bytes - start) / COW_BLK_BYTES;
	uint64_t end = (to_bytes - start + COW_BLK_BYTES - 1) / COW_BLK_BYTES;

	for (; b < end; b++) {
		o->new_blks += !(bits[b / 8] >> b % 8 & 1);
		bits[b / 8] |= (uint8_t)(1u << b % 8);
	}
}

/* ---- writing ---- */

static void use_log(struct flash_model *m, uint64_t unit, uint64_t len_bytes, uint64_t *ns)
{
	m->st.programmed_bytes += len_bytes;
	m->s.log_bytes += len_bytes;
	while (m->s.log_bytes >= m->p.unit_bytes) {
		m->s.log_bytes -= m->p.unit_bytes;
		*ns += wear_model_erase(m, unit, 1);
	}
}

/* ---- log shared by many units: when full, merges the unit with the oldest block ---- */

/* Forgets the log blocks of a unit: they are obsolete, or another merge includes them. */
static void log_forget(struct flash_model *m, uint64_t unit)
{
	uint32_t i = 0;

	if (!m->log_unit || !m->log_count[unit])
		return;
	while (m->log_unit[i] != unit)
		i++;
	memmove(m->log_unit + i, m->log_unit + i + 1, (--m->s.n_log - i) * sizeof(*m->log_unit));
	m->s.log_blks -= m->log_count[unit];
	m->log_count[unit] = 0;
}

static uint64_t log_merge_oldest(struct flash_model *m)
{
	uint64_t unit = m->log_unit[0], copy = copy_bytes(m, unit, NULL);
	uint64_t ns = flash_copy_ns(&m->p, copy);

	log_forget(m, unit);
	m->st.full_merges++;
	m->st.copied_bytes += copy;
	use_log(m, unit, copy, &ns);
	return ns;
}

static uint64_t absorb(struct flash_model *m, uint64_t unit, uint64_t len_bytes)
{
	uint64_t ns = 0, blks = (len_bytes + COW_BLK_BYTES - 1) / COW_BLK_BYTES;

	m->st.absorbed_writes++;
	use_log(m, unit, len_bytes, &ns);
	while (m->s.n_log && m->s.log_blks + blks > m->log_room_blks)
		ns += log_merge_oldest(m);
	if (!m->log_count[unit])
		m->log_unit[m->s.n_log++] = (uint32_t)unit;
	m->log_count[unit] += (uint32_t)blks;
	m->s.log_blks += blks;
	return ns;
}

/* Scattered: neither part of a long run nor a large part of the log. */
static bool is_scattered(const struct flash_model *m, const struct run *run, uint64_t from_bytes,
			 uint64_t len_bytes)
{
	if (!m->log_unit || len_bytes == m->p.unit_bytes ||
	    len_bytes > blk_to_bytes(m->log_room_blks) / 4)
		return false;
	return run->start_bytes == from_bytes || run->end_bytes - run->start_bytes < STREAM_BYTES;
}

/* Writes the part of a request that lies in one unit. */
static uint64_t write_piece(struct flash_model *m, uint64_t from_bytes, uint64_t to_bytes,
			    struct run *run)
{
	uint64_t unit = from_bytes / m->p.unit_bytes, len = to_bytes - from_bytes, ns = 0,
		 new_from = from_bytes;
	struct open_unit *o = find_open(m, unit);

	if (!o && is_scattered(m, run, from_bytes, len)) {
		run->absorbed |= run->start_bytes == from_bytes;
		return absorb(m, unit, len);
	}
	if (!o) {
		/* the beginning of the run is in the log, and is not older than the rest */
		if (run->absorbed)
			new_from = max_u64(run->start_bytes, unit_start(m, unit));
		log_forget(m, unit);
		o = open_unit(m, unit, new_from, &ns);
	} else if (o->full) {
		restart(m, o, from_bytes);
	} else if (o->next_bytes != from_bytes) {
		jump(m, o, from_bytes, &ns);
		o = find_open(m, unit);
	}
	run->absorbed = false;
	/* rewritten until the log of the unit was full */
	if (o->written_bytes + len > m->p.unit_bytes) {
		ns += close_unit(m, o);
		restart(m, o, from_bytes);
	}
	mark(m, o, new_from, to_bytes);
	o->written_bytes += len;
	o->next_bytes = to_bytes;
	o->stamp = ++m->s.stamp;
	m->st.programmed_bytes += len;
	if (o->new_blks < m->unit_blks)
		return ns;
	if (!o->in_order) {
		ns += close_unit(m, o);
		drop(m, o);
		return ns;
	}
	o->full = true;
	m->st.switch_merges++;
	return ns + wear_model_erase(m, unit, 1);
}

/* The run that this write continues, or a new one. */
static struct run *find_run(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes)
{
	struct run *r = &m->s.run[0];

	for (unsigned i = 0; i < RUNS; i++) {
		struct run *k = &m->s.run[i];

		if (k->stamp && k->end_bytes == off_bytes) {
			r = k;
			break;
		}
		if (k->stamp < r->stamp)
			r = k;
	}
	if (!r->stamp || r->end_bytes != off_bytes)
		*r = (struct run){ .start_bytes = off_bytes };
	r->end_bytes = off_bytes + len_bytes;
	r->stamp = ++m->s.stamp;
	return r;
}

/* Were all its chunks in the cache? Afterwards they are. */
static bool cheat(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t first = off_bytes / m->cheat_chunk_bytes,
		 last = (off_bytes + len_bytes - 1) / m->cheat_chunk_bytes;
	bool all = true;

	if (last - first >= m->cheat_chunks)
		return false;
	for (uint64_t c = first; c <= last; c++) {
		struct cheat_chunk *use = &m->cheat[0];
		unsigned i = 0;

		for (; i < m->s.n_cheat && m->cheat[i].chunk != c; i++)
			if (m->cheat[i].stamp < use->stamp)
				use = &m->cheat[i];
		if (i < m->s.n_cheat) {
			use = &m->cheat[i];
		} else {
			all = false;
			if (m->s.n_cheat < m->cheat_chunks)
				use = &m->cheat[m->s.n_cheat++];
		}
		*use = (struct cheat_chunk){ c, ++m->s.stamp };
	}
	return all;
}

static uint64_t write_range(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t ns = 0, end = off_bytes + len_bytes, at;
	struct run *run;

	if (off_bytes < m->p.front_bytes) {
		uint64_t part = min_u64(end, m->p.front_bytes) - off_bytes;

		ns += flash_speed_ns(&m->p.front_write, part);
		use_log(m, off_bytes / m->p.unit_bytes, part, &ns);
		off_bytes += part;
		len_bytes -= part;
	}
	if (!len_bytes)
		return ns;
	ns += flash_write_ns(&m->p, len_bytes);
	run = find_run(m, off_bytes, len_bytes);
	if (m->cheat_chunks &&
	    run->end_bytes - run->start_bytes <= max_u64(len_bytes, m->cheat_chunk_bytes) &&
	    cheat(m, off_bytes, len_bytes)) {
		use_log(m, off_bytes / m->p.unit_bytes, len_bytes, &ns);
		return ns;
	}
	for (at = off_bytes; at < end && !m->s.read_only;) {
		uint64_t to = min_u64(end, round_down_u64(at, m->p.unit_bytes) + m->p.unit_bytes);

		ns += write_piece(m, at, to, run);
		at = to;
	}
	return ns;
}

/* New blocks count as valid when they are written: before, no merge has to copy them. */
uint64_t card_model_write(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t ns;

	if (m->s.read_only)
		return flash_write_ns(&m->p, COW_BLK_BYTES);
	ns = write_range(m, off_bytes, len_bytes);
	set_valid(m, off_bytes >> COW_BLK_SHIFT,
		  (off_bytes + len_bytes + COW_BLK_BYTES - 1) >> COW_BLK_SHIFT, true);
	return ns;
}

/* Nothing in the unit is valid any more. */
static void empty_unit(struct flash_model *m, uint64_t unit)
{
	struct open_unit *o = find_open(m, unit);

	log_forget(m, unit);
	if (!o)
		return;
	if (!o->full && o->written_bytes)
		wear_model_erase(m, unit, 1);
	drop(m, o);
}

uint64_t card_model_discard(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t blk = (off_bytes + COW_BLK_BYTES - 1) >> COW_BLK_SHIFT, n = 0, next,
		 end = (off_bytes + len_bytes) >> COW_BLK_SHIFT;

	if (off_bytes + len_bytes == m->size_bytes)
		end = m->units * m->unit_blks;
	for (; blk < end; blk = next, n++) {
		uint64_t unit = blk / m->unit_blks;

		next = min_u64(end, (unit + 1) * m->unit_blks);
		set_valid(m, blk, next, false);
		if (!old_blks(m, unit, NULL))
			empty_unit(m, unit);
	}
	return m->p.discard_us * 1000u * n;
}

uint64_t card_model_settle(struct flash_model *m)
{
	uint64_t ns = 0;

	for (unsigned i = 0; i < m->s.n_open; i++)
		ns += close_unit(m, &m->open[i]);
	m->s.n_open = 0;
	while (m->s.n_log)
		ns += log_merge_oldest(m);
	return ns;
}
