/* SPDX-License-Identifier: MIT */
/* The model as a whole: its clock and counters, and the appending layer. */
#include "sim/model.h"

#include <errno.h>
#include <string.h>

#include "sim/model_private.h"

/* ---- making ---- */

static bool is_array(const struct flash_model *m)
{
	return m->p.members > 1;
}

static bool is_card(const struct flash_model *m)
{
	return !is_array(m) && m->p.class == FLASH_CARD;
}

static int check(const struct flash_profile *p, uint64_t size_bytes)
{
	if (size_bytes < COW_BLK_BYTES || !p->members || p->members > MEMBERS_MAX)
		return -EINVAL;
	if (p->class == FLASH_CARD &&
	    (!p->unit_bytes || p->unit_bytes % COW_BLK_BYTES || !p->open_units || !p->absorb ||
	     !p->copy_bytes_per_s || p->front_bytes % COW_BLK_BYTES))
		return -EINVAL;
	if (p->wear == FLASH_WEAR_ZONE && p->class == FLASH_CARD && p->zone_bytes < p->unit_bytes)
		return -EINVAL;
	if (p->append_bytes && (!p->append_map_every || p->append_bytes > size_bytes))
		return -EINVAL;
	if (p->members == 1)
		return 0;
	if (!p->chunk_bytes || (p->raid_level != 0 && p->raid_level != 5 && p->raid_level != 10))
		return -EINVAL;
	return (p->raid_level == 5 && p->members < 3) || (p->raid_level == 10 && p->members % 2)
		       ? -EINVAL
		       : 0;
}

static int new_array(struct flash_model *m)
{
	struct flash_profile one = m->p;
	int r = 0;

	one.members = 1;
	one.append_bytes = 0;
	m->member = calloc(m->p.members, sizeof(struct flash_model *));
	if (!m->member)
		return -ENOMEM;
	for (unsigned i = 0; i < m->p.members && !r; i++)
		r = flash_model_new(&m->member[i], &one, array_member_bytes(&m->p, m->size_bytes),
				    m->flags);
	return r;
}

static size_t valid_bytes(const struct flash_model *m)
{
	return (m->units * m->unit_blks + 7) / 8;
}

static int new_card(struct flash_model *m)
{
	m->units = (m->size_bytes + m->p.unit_bytes - 1) / m->p.unit_bytes;
	if (m->units > UINT32_MAX)
		return -EINVAL;
	m->unit_blks = m->p.unit_bytes / COW_BLK_BYTES;
	m->bits_bytes = (m->unit_blks + 7) / 8;
	m->open = calloc(m->p.open_units, sizeof(*m->open));
	m->bits = calloc(m->p.open_units, m->bits_bytes);
	m->valid = malloc(valid_bytes(m));
	if (!m->open || !m->bits || !m->valid)
		return -ENOMEM;
	memset(m->valid, m->flags & FLASH_FRESH ? 0 : 0xff, valid_bytes(m));
	if (m->p.absorb > 1) {
		m->log_room_blks = max_u64(1, m->p.absorb * (MEASURED_BYTES / m->p.unit_bytes) / 2);
		m->log_unit = calloc(min_u64(m->units, m->log_room_blks) + 1, sizeof(*m->log_unit));
		m->log_count = calloc(m->units, sizeof(*m->log_count));
		if (!m->log_unit || !m->log_count)
			return -ENOMEM;
	}
	if (m->p.cheat_bytes) {
		m->cheat_chunk_bytes = max_u64(
			64 * KIB, round_up_u64(m->p.cheat_bytes / CHEAT_CHUNKS, COW_BLK_BYTES));
		m->cheat_chunks = (unsigned)(m->p.cheat_bytes / m->cheat_chunk_bytes);
		m->cheat = calloc(m->cheat_chunks + 1, sizeof(*m->cheat));
		if (!m->cheat)
			return -ENOMEM;
	}
	return wear_model_new(m);
}

int flash_model_new(struct flash_model **ret, const struct flash_profile *p, uint64_t size_bytes,
		    unsigned flags)
{
	struct flash_model *m;
	int r;

	size_bytes = round_down_u64(size_bytes ? size_bytes : p->capacity_bytes, COW_BLK_BYTES);
	r = check(p, size_bytes);
	if (r < 0)
		return r;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->p = *p;
	m->size_bytes = size_bytes;
	m->flags = flags;
	m->s.read_end_bytes = NOWHERE;
	m->s.head_bytes = 0;
	if (is_array(m))
		r = new_array(m);
	else if (is_card(m))
		r = new_card(m);
	if (r < 0) {
		flash_model_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

void flash_model_free(struct flash_model *m)
{
	if (!m)
		return;
	for (unsigned i = 0; m->member && i < m->p.members; i++)
		flash_model_free(m->member[i]);
	free(m->member);
	free(m->open);
	free(m->bits);
	free(m->valid);
	free(m->log_unit);
	free(m->log_count);
	free(m->cheat);
	wear_model_free(m);
	free(m);
}

static bool is_same(const struct flash_model *a, const struct flash_model *b)
{
	return a->size_bytes == b->size_bytes && a->p.class == b->p.class &&
	       a->p.unit_bytes == b->p.unit_bytes && a->p.open_units == b->p.open_units &&
	       a->p.members == b->p.members && a->p.wear == b->p.wear &&
	       a->p.raid_level == b->p.raid_level && a->p.chunk_bytes == b->p.chunk_bytes &&
	       a->p.cheat_bytes == b->p.cheat_bytes && a->p.zone_bytes == b->p.zone_bytes &&
	       a->p.spare_ppm == b->p.spare_ppm && a->p.absorb == b->p.absorb &&
	       !strcmp(a->p.id, b->p.id);
}

int flash_model_copy(struct flash_model *to, const struct flash_model *from)
{
	if (!is_same(to, from) || (from->flags & FLASH_NO_WEAR && !(to->flags & FLASH_NO_WEAR)))
		return -EINVAL;
	to->p = from->p;
	to->st = from->st;
	to->s = from->s;
	if (is_array(from)) {
		for (unsigned i = 0; i < from->p.members; i++) {
			int r = flash_model_copy(to->member[i], from->member[i]);

			if (r < 0)
				return r;
		}
	} else if (is_card(from)) {
		memcpy(to->open, from->open, from->s.n_open * sizeof(*from->open));
		memcpy(to->bits, from->bits, from->s.n_open * from->bits_bytes);
		memcpy(to->valid, from->valid, valid_bytes(from));
		if (from->log_unit) {
			memcpy(to->log_unit, from->log_unit,
			       from->s.n_log * sizeof(*from->log_unit));
			memcpy(to->log_count, from->log_count,
			       from->units * sizeof(*from->log_count));
		}
		if (from->s.n_cheat)
			memcpy(to->cheat, from->cheat, from->s.n_cheat * sizeof(*from->cheat));
		wear_model_copy(to, from);
	}
	return 0;
}

int flash_model_clone(struct flash_model **ret, const struct flash_model *from)
{
	struct flash_model *m;
	int r = flash_model_new(&m, &from->p, from->size_bytes, from->flags);

	if (r < 0)
		return r;
	r = flash_model_copy(m, from);
	if (r < 0) {
		flash_model_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

const struct flash_profile *flash_model_profile(const struct flash_model *m)
{
	return &m->p;
}

uint64_t flash_model_size_bytes(const struct flash_model *m)
{
	return m->size_bytes;
}

/* ---- requests ---- */

static uint64_t pass(struct flash_model *m, uint64_t ns)
{
	m->st.clock_ns += ns;
	m->st.busy_ns += ns;
	m->st.longest_ns = max_u64(m->st.longest_ns, ns);
	return ns;
}

static uint64_t cut(const struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes)
{
	return off_bytes >= m->size_bytes ? 0 : min_u64(len_bytes, m->size_bytes - off_bytes);
}

uint64_t flash_model_read(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t ns;

	len_bytes = cut(m, off_bytes, len_bytes);
	if (!len_bytes)
		return 0;
	m->st.reads++;
	m->st.read_bytes += len_bytes;
	if (is_array(m))
		ns = array_model_read(m, off_bytes, len_bytes);
	else if (m->p.class == FLASH_DISK)
		ns = disk_model_io(m, &m->p.read, off_bytes, len_bytes);
	else
		ns = card_model_read(m, off_bytes, len_bytes);
	m->st.read_ns += ns;
	return pass(m, ns);
}

static uint64_t device_write(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes,
			     unsigned flags)
{
	if (is_array(m))
		return array_model_write(m, off_bytes, len_bytes, flags);
	if (m->p.class == FLASH_DISK)
		return disk_model_io(m, &m->p.write, off_bytes, len_bytes);
	return card_model_write(m, off_bytes, len_bytes);
}

static uint64_t append_out(struct flash_model *m, uint64_t len_bytes)
{
	uint64_t off = m->s.append_at_bytes;

	if (off + len_bytes > m->size_bytes)
		off = 0;
	m->s.append_at_bytes = off + len_bytes;
	return device_write(m, off, len_bytes, 0);
}

/* Written data waits until it fills a segment, together with its share of the map. */
static uint64_t append(struct flash_model *m, uint64_t len_bytes)
{
	uint64_t ns = 0, map = len_bytes + m->s.append_rest;

	m->s.append_rest = map % m->p.append_map_every;
	m->s.append_bytes += len_bytes + map / m->p.append_map_every;
	for (; m->s.append_bytes >= m->p.append_bytes; m->s.append_bytes -= m->p.append_bytes)
		ns += append_out(m, m->p.append_bytes);
	return ns;
}

static uint64_t append_rest(struct flash_model *m)
{
	uint64_t len = round_up_u64(m->s.append_bytes, COW_BLK_BYTES);

	m->s.append_bytes = 0;
	return len ? append_out(m, len) : 0;
}

uint64_t flash_model_write(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes,
			   unsigned flags)
{
	int64_t ns;

	len_bytes = cut(m, off_bytes, len_bytes);
	if (!len_bytes)
		return 0;
	m->st.writes++;
	m->st.written_bytes += len_bytes;
	if (m->p.append_bytes) {
		ns = (int64_t)append(m, len_bytes);
		if (flags & FLASH_SYNC)
			ns += (int64_t)append_rest(m);
	} else {
		ns = (int64_t)device_write(m, off_bytes, len_bytes, flags);
	}
	if (!(flags & FLASH_SYNC))
		m->s.dirty = true;
	else if (!is_array(m)) /* the members have counted it */
		ns += m->p.sync_ns + (flags & FLASH_ALLOC ? m->p.alloc_ns : 0);
	return pass(m, ns > 0 ? (uint64_t)ns : 0);
}

uint64_t flash_model_flush(struct flash_model *m)
{
	uint64_t ns = 0;

	m->st.flushes++;
	if (!m->s.dirty)
		return 0;
	m->s.dirty = false;
	if (m->p.append_bytes)
		ns = append_rest(m);
	if (is_array(m)) {
		uint64_t slowest = 0;

		for (unsigned i = 0; i < m->p.members; i++)
			slowest = max_u64(slowest, flash_model_flush(m->member[i]));
		return pass(m, ns + slowest);
	}
	return pass(m, ns + flash_sync_ns(&m->p));
}

uint64_t flash_model_discard(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t ns = 0;

	len_bytes = cut(m, off_bytes, len_bytes);
	if (!len_bytes)
		return 0;
	m->st.discards++;
	m->st.discarded_bytes += len_bytes;
	if (m->p.append_bytes)
		return 0; /* the appending layer uses other positions than the host */
	if (is_array(m))
		ns = array_model_discard(m, off_bytes, len_bytes);
	else if (is_card(m))
		ns = card_model_discard(m, off_bytes, len_bytes);
	return pass(m, ns);
}

void flash_model_wait(struct flash_model *m, uint64_t ns)
{
	m->st.clock_ns += ns;
}

uint64_t flash_model_settle(struct flash_model *m)
{
	uint64_t ns = m->p.append_bytes ? append_rest(m) : 0, slowest = 0;

	for (unsigned i = 0; is_array(m) && i < m->p.members; i++)
		slowest = max_u64(slowest, flash_model_settle(m->member[i]));
	if (is_card(m))
		ns += card_model_settle(m);
	return pass(m, ns + slowest);
}

/* ---- counters ---- */

static void add_member(struct flash_stats *to, const struct flash_model *d)
{
	struct flash_stats st;

	flash_model_stats(d, &st);
	to->programmed_bytes += st.programmed_bytes;
	to->copied_bytes += st.copied_bytes;
	to->erases += st.erases;
	to->switch_merges += st.switch_merges;
	to->partial_merges += st.partial_merges;
	to->full_merges += st.full_merges;
	to->absorbed_writes += st.absorbed_writes;
	to->spares_left += st.spares_left;
	to->bad_units += st.bad_units;
	to->read_only |= st.read_only;
	to->busy_ns = max_u64(to->busy_ns, st.busy_ns);
	to->worst_erases = max_u64(to->worst_erases, st.worst_erases);
	if (st.hottest_erases > to->hottest_erases) {
		to->hottest_erases = st.hottest_erases;
		to->hottest_unit = st.hottest_unit;
	}
}

void flash_model_stats(const struct flash_model *m, struct flash_stats *ret)
{
	struct flash_stats st = m->st;

	if (is_array(m)) {
		st.busy_ns = m->s.bus_ns;
		for (unsigned i = 0; i < m->p.members; i++)
			add_member(&st, m->member[i]);
	} else {
		st.spares_left = wear_model_spares(m);
		st.read_only = m->s.read_only;
		if (!is_card(m))
			st.programmed_bytes = 0;
	}
	*ret = st;
}

void flash_model_reset(struct flash_model *m)
{
	uint64_t worst = m->st.worst_erases, bad = m->st.bad_units;

	memset(&m->st, 0, sizeof(m->st));
	m->st.worst_erases = worst;
	m->st.bad_units = bad;
	m->s.bus_ns = 0;
	for (unsigned i = 0; is_array(m) && i < m->p.members; i++)
		flash_model_reset(m->member[i]);
	if (m->wear.caused)
		memset(m->wear.caused, 0, m->units * sizeof(*m->wear.caused));
}

uint64_t flash_model_unit_erases(const struct flash_model *m, uint64_t unit)
{
	return m->wear.caused && unit < m->units ? m->wear.caused[unit] : 0;
}
