/* SPDX-License-Identifier: MIT */
/*
 * An array: members work at the same time. Adjacent chunks on a member are one request to it.
 * RAID-5 rotates its parity, left-symmetric. RAID-10 has pairs, which take turns in reading.
 */
#include "sim/model_private.h"

/* Requests of one phase: the last request to each member, and the total time of its requests. */
struct phase {
	struct flash_model *m;
	bool write;
	unsigned flags;
	struct {
		uint64_t off_bytes, len_bytes, ns;
	} member[MEMBERS_MAX];
};

static void issue(struct phase *ph, unsigned i)
{
	struct flash_model *d = ph->m->member[i];
	uint64_t off = ph->member[i].off_bytes, len = ph->member[i].len_bytes;

	if (!len)
		return;
	ph->member[i].len_bytes = 0;
	d->st.clock_ns += ph->m->p.bridge_ns;
	d->st.busy_ns += ph->m->p.bridge_ns;
	ph->member[i].ns += ph->m->p.bridge_ns +
			    (ph->write ? flash_model_write(d, off, len, ph->flags)
				       : flash_model_read(d, off, len));
}

static void ask(struct phase *ph, unsigned i, uint64_t off_bytes, uint64_t len_bytes)
{
	if (ph->member[i].len_bytes &&
	    ph->member[i].off_bytes + ph->member[i].len_bytes == off_bytes) {
		ph->member[i].len_bytes += len_bytes;
		return;
	}
	issue(ph, i);
	ph->member[i].off_bytes = off_bytes;
	ph->member[i].len_bytes = len_bytes;
}

/* The time of the slowest member */
static uint64_t finish(struct phase *ph)
{
	uint64_t ns = 0;

	for (unsigned i = 0; i < ph->m->p.members; i++) {
		issue(ph, i);
		ns = max_u64(ns, ph->member[i].ns);
	}
	return ns;
}

static unsigned data_members(const struct flash_profile *p)
{
	return p->raid_level == 5    ? p->members - 1
	       : p->raid_level == 10 ? p->members / 2
				     : p->members;
}

uint64_t array_member_bytes(const struct flash_profile *p, uint64_t size_bytes)
{
	return round_up_u64((size_bytes + data_members(p) - 1) / data_members(p), p->chunk_bytes);
}

static unsigned parity_of(const struct flash_profile *p, uint64_t row)
{
	return p->members - 1 - (unsigned)(row % p->members);
}

/* The member that holds the chunk; of a pair the first. */
static unsigned member_of(const struct flash_profile *p, uint64_t row, unsigned k)
{
	if (p->raid_level == 5)
		return (parity_of(p, row) + 1 + k) % p->members;
	return p->raid_level == 10 ? 2 * k : k;
}

static uint64_t bus_ns(struct flash_model *m, uint64_t len_bytes, uint64_t ns)
{
	uint64_t bus = flash_rate_ns(len_bytes, m->p.bus_bytes_per_s);

	m->s.bus_ns += bus;
	return max_u64(ns, bus);
}

uint64_t array_model_read(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes)
{
	const struct flash_profile *p = &m->p;
	struct phase ph = { .m = m };
	uint64_t end = off_bytes + len_bytes, to;

	for (uint64_t at = off_bytes; at < end; at = to) {
		uint64_t chunk = at / p->chunk_bytes, row = chunk / data_members(p);
		unsigned i = member_of(p, row, (unsigned)(chunk % data_members(p)));

		to = min_u64(end, (chunk + 1) * p->chunk_bytes);
		if (p->raid_level == 10)
			i += m->s.turn & 1;
		ask(&ph, i, row * p->chunk_bytes + at % p->chunk_bytes, to - at);
	}
	m->s.turn++;
	return bus_ns(m, len_bytes, finish(&ph));
}

/* Part of a row: reads the old data and the old parity, writes the new data and parity. */
static void write_part(const struct flash_profile *p, struct phase *old, struct phase *new,
		       uint64_t from, uint64_t to)
{
	uint64_t row_bytes = data_members(p) * p->chunk_bytes, row = from / row_bytes,
		 low = p->chunk_bytes, high = 0, next;

	for (uint64_t at = from; at < to; at = next) {
		uint64_t in = at % p->chunk_bytes, at_member = row * p->chunk_bytes + in;
		unsigned i = member_of(p, row, (unsigned)(at % row_bytes / p->chunk_bytes));

		next = min_u64(to, round_down_u64(at, p->chunk_bytes) + p->chunk_bytes);
		low = min_u64(low, in);
		high = max_u64(high, in + next - at);
		ask(old, i, at_member, next - at);
		ask(new, i, at_member, next - at);
	}
	ask(old, parity_of(p, row), row * p->chunk_bytes + low, high - low);
	ask(new, parity_of(p, row), row * p->chunk_bytes + low, high - low);
}

static uint64_t write_raid5(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes,
			    unsigned flags)
{
	const struct flash_profile *p = &m->p;
	struct phase old = { .m = m }, new = { .m = m, .write = true, .flags = flags };
	uint64_t row_bytes = data_members(p) * p->chunk_bytes, end = off_bytes + len_bytes, to, ns;

	for (uint64_t at = off_bytes; at < end; at = to) {
		uint64_t row = at / row_bytes;

		to = min_u64(end, (row + 1) * row_bytes);
		if (to - at < row_bytes) {
			write_part(p, &old, &new, at, to);
			continue;
		}
		for (unsigned i = 0; i < p->members; i++)
			ask(&new, i, row * p->chunk_bytes, p->chunk_bytes);
	}
	ns = finish(&old);
	return ns + finish(&new);
}

uint64_t array_model_write(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes,
			   unsigned flags)
{
	const struct flash_profile *p = &m->p;
	struct phase ph = { .m = m, .write = true, .flags = flags };
	uint64_t end = off_bytes + len_bytes, to;

	if (p->raid_level == 5)
		return bus_ns(m, len_bytes, write_raid5(m, off_bytes, len_bytes, flags));
	for (uint64_t at = off_bytes; at < end; at = to) {
		uint64_t chunk = at / p->chunk_bytes, row = chunk / data_members(p);
		unsigned i = member_of(p, row, (unsigned)(chunk % data_members(p)));

		to = min_u64(end, (chunk + 1) * p->chunk_bytes);
		ask(&ph, i, row * p->chunk_bytes + at % p->chunk_bytes, to - at);
		if (p->raid_level == 10)
			ask(&ph, i + 1, row * p->chunk_bytes + at % p->chunk_bytes, to - at);
	}
	return bus_ns(m, len_bytes, finish(&ph));
}

/* Discards whole rows; leftover parity does not matter to a model. The members work at the same time. */
uint64_t array_model_discard(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t row_bytes = data_members(&m->p) * m->p.chunk_bytes, ns = 0;
	uint64_t first = (off_bytes + row_bytes - 1) / row_bytes,
		 end = (off_bytes + len_bytes) / row_bytes;

	for (unsigned i = 0; first < end && i < m->p.members; i++)
		ns = max_u64(ns, flash_model_discard(m->member[i], first * m->p.chunk_bytes,
						     (end - first) * m->p.chunk_bytes));
	return ns;
}
