/* SPDX-License-Identifier: MIT */
/*
 * The wear table in memory, and copies of its items as bytes.
 *
 * A copy is a list of runs: varint(first item), varint(2 * items + z), and unless z (all of them
 * zero) the fields of each item as varints: seven bits a byte, low ones first, the top bit says
 * that more follow.
 */
#include "log/wear.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

enum { FIELDS = 7, UNIT_FIELDS = 2, ZERO_RUN = 4, VARINT_BYTES = 10, DAY_S = 86400 };
#define EB_GUESS_BYTES (4 * MIB)

struct wear {
	uint32_t items, *age_blks; /* WEAR_DUE: must be copied now, or was not found yet */
	uint64_t last_eb;	   /* with the device in bit 63; UINT64_MAX: none */
	uint64_t visits;
	struct wear_ledger day_noted, commit_noted; /* totals that the lines include already */
	struct wear_table t;			    /* last member: its units follow */
};

/* ---- geometry ---- */

static uint32_t count_units(uint64_t off_bytes, uint64_t len_bytes, uint64_t unit_bytes,
			    uint64_t *ret_first)
{
	*ret_first = off_bytes / unit_bytes;
	if (!len_bytes)
		return 0;
	return (uint32_t)min_u64(UINT32_MAX / 2,
				 (off_bytes + len_bytes - 1) / unit_bytes - *ret_first + 1);
}

void wear_plan(struct wear_geometry *ret, uint64_t eb_bytes, uint64_t max_units,
	       uint64_t base_off_bytes, uint64_t base_bytes, uint64_t log_off_bytes,
	       uint64_t log_bytes)
{
	struct wear_geometry g = { 0 };
	uint64_t unit;

	if (!eb_bytes || eb_bytes % COW_BLK_BYTES || eb_bytes > GIB)
		eb_bytes = EB_GUESS_BYTES;
	max_units = min_u64(max_u64(max_units, 16), WEAR_MAX_UNITS);
	for (unit = eb_bytes;; unit *= 2) {
		g.units[0] = count_units(base_off_bytes, base_bytes, unit, &g.first_unit[0]);
		g.units[1] = count_units(log_off_bytes, log_bytes, unit, &g.first_unit[1]);
		if ((uint64_t)g.units[0] + g.units[1] <= max_units || unit > UINT64_MAX / 4)
			break;
	}
	g.eb_blks = (uint32_t)(eb_bytes / COW_BLK_BYTES);
	g.unit_blks = (uint32_t)min_u64(unit / COW_BLK_BYTES, UINT32_MAX);
	*ret = g;
}

size_t wear_table_bytes(const struct wear_geometry *g)
{
	return sizeof(struct wear_table) + wear_units(g) * sizeof(struct wear_unit);
}

/* Offset on its disk of the first byte of unit i, and the device that has it (0: the base). */
static uint64_t wear_unit_off_bytes(const struct wear_geometry *g, uint32_t i, unsigned *ret_dev)
{
	unsigned dev = i >= g->units[0];

	*ret_dev = dev;
	return (g->first_unit[dev] + i - (dev ? g->units[0] : 0)) * blk_to_bytes(g->unit_blks);
}

/* Puts commits and days oldest first. */
void wear_take_part(const struct wear_table *t, uint32_t first, struct wear_part *ret)
{
	const uint32_t units = wear_units(&t->geo), days_at = units + WEAR_COMMITS,
		       end = days_at + WEAR_DAYS;
	uint32_t i = first;

	ret->units = ret->commits = ret->days = 0;
	for (; i < units && ret->units < WEAR_PART_UNITS; i++)
		ret->unit[ret->units++] = t->unit[i];
	for (; first >= units && i < days_at && ret->commits < WEAR_PART_COMMITS; i++) {
		const struct wear_commit *c =
			&t->commit[(t->commit_n + 1 + i - units) % WEAR_COMMITS];

		if (c->n)
			ret->commit[ret->commits++] = *c;
	}
	for (; first >= days_at && i < end && ret->days < WEAR_PART_DAYS; i++) {
		const struct wear_day *d = &t->day[(t->day_n + 1 + i - days_at) % WEAR_DAYS];

		if (d->n)
			ret->day[ret->days++] = *d;
	}
	ret->next = i < end ? i : 0;
}

void wear_stop(struct wear_ledger *t)
{
	uint64_t *counter = (uint64_t *)t;

	for (size_t i = 0; i < sizeof(*t) / sizeof(*counter); i++)
		counter[i] = min_u64(counter[i], WEAR_COUNTER_MAX);
}

/* ---- life ---- */

int wear_new(struct wear **ret, const struct wear_geometry *geo)
{
	struct wear *w = calloc(1, sizeof(*w) + wear_units(geo) * sizeof(struct wear_unit));
	uint32_t items = wear_units(geo) + WEAR_COMMITS + WEAR_DAYS;

	if (!w)
		return -ENOMEM;
	w->age_blks = calloc(items, sizeof(*w->age_blks));
	if (!w->age_blks) {
		free(w);
		return -ENOMEM;
	}
	w->items = items;
	wear_make_due(w);
	w->last_eb = UINT64_MAX;
	w->t.geo = *geo;
	*ret = w;
	return 0;
}

void wear_free(struct wear *w)
{
	if (!w)
		return;
	free(w->age_blks);
	free(w);
}

const struct wear_table *wear_table_of(const struct wear *w)
{
	return &w->t;
}

uint64_t wear_visits(const struct wear *w)
{
	return w->visits;
}

/* ---- counting ---- */

static uint64_t eb_of(const struct wear *w, unsigned dev, uint64_t disk_blk)
{
	return disk_blk / w->t.geo.eb_blks | (uint64_t)dev << 63;
}

static uint32_t add_u32(uint32_t a, uint64_t b)
{
	return (uint32_t)min_u64(UINT32_MAX, a + min_u64(b, UINT32_MAX));
}

void wear_count(struct wear *w, unsigned dev, uint64_t disk_blk, uint64_t blks)
{
	const struct wear_geometry *g = &w->t.geo;

	for (uint64_t n; blks; disk_blk += n, blks -= n) {
		uint64_t unit = disk_blk / g->unit_blks - g->first_unit[dev];
		uint32_t i = (uint32_t)unit + (dev ? g->units[0] : 0);
		bool visit = eb_of(w, dev, disk_blk) != w->last_eb;

		n = min_u64(blks, g->eb_blks - disk_blk % g->eb_blks);
		w->last_eb = eb_of(w, dev, disk_blk);
		w->visits += visit;
		if (unit >= g->units[dev])
			continue; /* the device has grown: the write counts in the totals only */
		w->t.unit[i].blks = add_u32(w->t.unit[i].blks, n);
		w->t.unit[i].visits = add_u32(w->t.unit[i].visits, visit);
		w->age_blks[i] = WEAR_DUE;
	}
}

void wear_new_window(struct wear *w)
{
	w->last_eb = UINT64_MAX;
}

void wear_since(struct wear *w, const struct wear_ledger *totals)
{
	w->day_noted = w->commit_noted = *totals;
}

/* A planned count for a record that was then not written is not counted twice. */
static uint64_t grown(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

/* The line of a day, also when the clock has returned to it. */
static struct wear_day *day_of(struct wear *w, uint64_t time_s)
{
	uint64_t day = time_s < CLOCK_IS_SET_S ? 0 : time_s / DAY_S;
	struct wear_day *d;

	for (uint32_t i = 0; i < WEAR_DAYS; i++)
		if (w->t.day[i].n && w->t.day[i].day == day)
			return &w->t.day[i];
	w->t.day_n++;
	d = &w->t.day[w->t.day_n % WEAR_DAYS];
	*d = (struct wear_day){ .n = w->t.day_n, .day = day };
	return d;
}

static void note_day(struct wear *w, const struct wear_ledger *t, uint64_t time_s, bool commit)
{
	struct wear_day *d = day_of(w, time_s);

	d->absorbed_bytes += grown(t->absorbed_bytes, w->day_noted.absorbed_bytes);
	d->absorbed_writes += grown(t->absorbed_writes, w->day_noted.absorbed_writes);
	d->written_bytes += grown(t->written_bytes, w->day_noted.written_bytes);
	d->visits += grown(t->visits, w->day_noted.visits);
	d->commits += commit;
	w->age_blks[wear_units(&w->t.geo) + WEAR_COMMITS + d->n % WEAR_DAYS] = WEAR_DUE;
	w->day_noted = *t;
}

/* The line of a commit; a second attempt at it continues the line of the first. */
static struct wear_commit *begin_commit(struct wear *w, uint64_t n, uint64_t time_s,
					enum commit_cause cause)
{
	struct wear_commit *c = &w->t.commit[n % WEAR_COMMITS];

	if (c->n != n)
		*c = (struct wear_commit){ .n = n };
	c->time_s = time_s;
	c->cause = (uint64_t)cause;
	w->t.commit_n = max_u64(w->t.commit_n, n);
	return c;
}

void wear_note(struct wear *w, const struct wear_ledger *t, uint64_t time_s, enum record_type type,
	       enum commit_cause cause)
{
	const struct wear_ledger *then = &w->commit_noted;
	struct wear_commit *c = &w->t.commit[w->t.commit_n % WEAR_COMMITS];

	note_day(w, t, time_s, type == RECORD_COMMIT);
	if (type == RECORD_COMMIT)
		c = begin_commit(w, t->commits, time_s, cause);
	else if (type == RECORD_OPEN || !c->n)
		return;
	c->absorbed_bytes += grown(t->absorbed_bytes, then->absorbed_bytes);
	c->written_bytes += grown(t->written_bytes, then->written_bytes);
	c->writable_ms += grown(t->writable_ns, then->writable_ns) / 1000000;
	c->visits += grown(t->visits, then->visits);
	w->age_blks[wear_units(&w->t.geo) + c->n % WEAR_COMMITS] = WEAR_DUE;
	w->commit_noted = *t;
}

void wear_skip_commit(struct wear *w, const struct wear_ledger *totals)
{
	w->commit_noted = *totals;
}

/* ---- items as numbers ---- */

static unsigned load_item(const struct wear *w, uint32_t i, uint64_t v[FIELDS])
{
	uint32_t units = wear_units(&w->t.geo);
	const struct wear_commit *c;
	const struct wear_day *d;

	if (i < units) {
		v[0] = w->t.unit[i].blks;
		v[1] = w->t.unit[i].visits;
		return UNIT_FIELDS;
	}
	i -= units;
	if (i < WEAR_COMMITS) {
		c = &w->t.commit[i];
		memcpy(v,
		       (uint64_t[FIELDS]){ c->n, c->time_s, c->cause, c->absorbed_bytes,
					   c->written_bytes, c->writable_ms, c->visits },
		       FIELDS * sizeof(*v));
		return FIELDS;
	}
	d = &w->t.day[i - WEAR_COMMITS];
	memcpy(v,
	       (uint64_t[FIELDS]){ d->n, d->day, d->absorbed_bytes, d->absorbed_writes,
				   d->written_bytes, d->commits, d->visits },
	       FIELDS * sizeof(*v));
	return FIELDS;
}

static uint64_t *raise(uint64_t *have, uint64_t v)
{
	*have = max_u64(*have, min_u64(v, WEAR_COUNTER_MAX)); /* adding to it does not wrap */
	return have;
}

/* Merges by maximum; of two entries of a ring the later one wins. */
static void merge_item(struct wear *w, uint32_t i, const uint64_t v[FIELDS])
{
	uint32_t units = wear_units(&w->t.geo);

	if (i < units) {
		w->t.unit[i].blks = (uint32_t)max_u64(w->t.unit[i].blks, min_u64(v[0], UINT32_MAX));
		w->t.unit[i].visits = (uint32_t)max_u64(w->t.unit[i].visits,
							min_u64(v[1], UINT32_MAX));
		return;
	}
	i -= units;
	if (v[0] > WEAR_COUNTER_MAX)
		return;
	if (i < WEAR_COMMITS) {
		struct wear_commit *c = &w->t.commit[i];

		if (v[0] % WEAR_COMMITS != i || v[0] < c->n || !v[0])
			return;
		if (v[0] > c->n)
			*c = (struct wear_commit){ .n = v[0] };
		raise(&c->time_s, v[1]);
		raise(&c->cause, v[2]);
		raise(&c->absorbed_bytes, v[3]);
		raise(&c->written_bytes, v[4]);
		raise(&c->writable_ms, v[5]);
		raise(&c->visits, v[6]);
		raise(&w->t.commit_n, v[0]);
	} else {
		struct wear_day *d = &w->t.day[i - WEAR_COMMITS];

		if (v[0] % WEAR_DAYS != i - WEAR_COMMITS || v[0] < d->n || !v[0])
			return;
		if (v[0] > d->n)
			*d = (struct wear_day){ .n = v[0] };
		raise(&d->day, v[1]);
		raise(&d->absorbed_bytes, v[2]);
		raise(&d->absorbed_writes, v[3]);
		raise(&d->written_bytes, v[4]);
		raise(&d->commits, v[5]);
		raise(&d->visits, v[6]);
		raise(&w->t.day_n, v[0]);
	}
}

/* ---- bytes ---- */

static size_t varint_bytes(uint64_t v)
{
	size_t n = 1;

	for (; v >= 0x80; v >>= 7)
		n++;
	return n;
}

static size_t put_varint(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		p[n++] = (uint8_t)(v | 0x80);
	p[n++] = (uint8_t)v;
	return n;
}

static bool get_varint(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned shift = 0; *p < end && shift < 64; shift += 7) {
		uint8_t b = *(*p)++;

		v |= (uint64_t)(b & 0x7f) << shift;
		if (b < 0x80) {
			*ret = v;
			return true;
		}
	}
	return false;
}

static size_t item_bytes(const struct wear *w, uint32_t i, bool *ret_zero)
{
	uint64_t v[FIELDS], any = 0;
	unsigned n = load_item(w, i, v);
	size_t bytes = 0;

	for (unsigned k = 0; k < n; k++) {
		bytes += varint_bytes(v[k]);
		any |= v[k];
	}
	*ret_zero = !any;
	return bytes;
}

static uint32_t zeros_from(const struct wear *w, uint32_t i, uint32_t end)
{
	uint32_t n = 0;
	bool zero = true;

	for (; i + n < end; n++) {
		(void)item_bytes(w, i + n, &zero);
		if (!zero)
			break;
	}
	return n;
}

static size_t run_header(uint8_t *p, uint32_t first, uint32_t items, bool zero)
{
	size_t n = put_varint(p, first);

	return n + put_varint(p + n, (uint64_t)items << 1 | zero);
}

/* Encodes one run of items [i, end) as far as there is room; p NULL: only counts. Returns the
 * number of items; 0: no room. */
static uint32_t put_run(const struct wear *w, uint8_t *p, size_t room, uint32_t i, uint32_t end,
			size_t *ret_bytes)
{
	uint8_t header[2 * VARINT_BYTES];
	uint32_t n = zeros_from(w, i, end);
	size_t h, bytes = 0;
	bool zero = n >= ZERO_RUN || (n && i + n == end);

	if (!zero) {
		/* up to the next long run of zeros; counts the header at its maximum length */
		size_t most = varint_bytes(i) + varint_bytes((uint64_t)(end - i) << 1);

		for (n = 0; i + n < end; n++) {
			bool z;
			size_t b = item_bytes(w, i + n, &z);

			if (most + bytes + b > room ||
			    (z && zeros_from(w, i + n, (uint32_t)min_u64(end, i + n + ZERO_RUN)) ==
					  ZERO_RUN))
				break;
			bytes += b;
		}
	}
	h = run_header(header, i, n, zero);
	if (!n || h + bytes > room)
		return 0;
	*ret_bytes = h + bytes;
	if (!p)
		return n;
	memcpy(p, header, h);
	p += h;
	for (uint32_t k = 0; k < n && !zero; k++) {
		uint64_t v[FIELDS];
		unsigned fields = load_item(w, i + k, v);

		for (unsigned f = 0; f < fields; f++)
			p += put_varint(p, v[f]);
	}
	return n;
}

static uint32_t next_due(const struct wear *w, uint32_t i, uint32_t *ret_end)
{
	while (i < w->items && w->age_blks[i] != WEAR_DUE)
		i++;
	for (*ret_end = i; *ret_end < w->items && w->age_blks[*ret_end] == WEAR_DUE;)
		++*ret_end;
	return i;
}

/* The end is that of a run of items that this group does not copy yet: empty if it copies all. */
static uint32_t next_oldest(const struct wear *w, uint32_t *ret_end)
{
	uint32_t i = 0;

	for (uint32_t k = 1; k < w->items; k++)
		if (w->age_blks[k] > w->age_blks[i])
			i = k;
	for (*ret_end = i; *ret_end < w->items && w->age_blks[*ret_end];)
		++*ret_end;
	return i;
}

bool wear_missing(const struct wear *w)
{
	uint32_t end;

	return next_due(w, 0, &end) < w->items;
}

size_t wear_encode(struct wear *w, uint8_t *buf, size_t room_bytes)
{
	size_t pos = 0, b;
	uint32_t end, n = 1;

	for (uint32_t i = next_due(w, 0, &end); n; i = next_due(w, i, &end)) {
		if (i == w->items)
			i = next_oldest(w, &end);
		n = put_run(w, buf + pos, room_bytes - pos, i, end, &b);
		memset(w->age_blks + i, 0, n * sizeof(*w->age_blks));
		pos += n ? b : 0;
	}
	return pos;
}

size_t wear_due_bytes(const struct wear *w)
{
	size_t bytes = 0, b = 0;
	uint32_t end, n;

	for (uint32_t i = next_due(w, 0, &end); i < w->items; i = next_due(w, i, &end))
		for (; i < end; i += n, bytes += b)
			n = put_run(w, NULL, SIZE_MAX / 2, i, end, &b);
	return bytes;
}

void wear_grow_older(struct wear *w, uint64_t blks, uint64_t due_blks)
{
	for (uint32_t i = 0; i < w->items; i++) {
		uint64_t age_blks = w->age_blks[i] + blks; /* of WEAR_DUE: too much */

		w->age_blks[i] = age_blks < due_blks ? (uint32_t)age_blks : WEAR_DUE;
	}
}

void wear_make_due(struct wear *w)
{
	memset(w->age_blks, 0xff, w->items * sizeof(*w->age_blks));
}

bool wear_merge(struct wear *w, const uint8_t *buf, size_t len_bytes, uint32_t age_blks)
{
	const uint8_t *p = buf, *end = buf + len_bytes;
	/* what is due, and one round: a few bytes may stand for all items */
	uint64_t left = 2ull * w->items;

	while (p < end) {
		uint64_t first, n;
		bool zero;

		if (!get_varint(&p, end, &first) || !get_varint(&p, end, &n))
			return false;
		zero = n & 1;
		n >>= 1;
		if (!n || first >= w->items || n > w->items - first || n > left)
			return false;
		left -= n;
		for (uint32_t i = (uint32_t)first; n; i++, n--) {
			uint64_t v[FIELDS] = { 0 };
			unsigned fields = load_item(w, i, v);

			for (unsigned f = 0; f < fields && !zero; f++)
				if (!get_varint(&p, end, &v[f]))
					return false;
			if (!zero)
				merge_item(w, i, v);
			if (w->age_blks[i] == WEAR_DUE)
				w->age_blks[i] = age_blks;
		}
	}
	return true;
}

void wear_take_over(struct wear *w, const struct wear *from)
{
	const struct wear_geometry *g = &w->t.geo;

	for (uint32_t i = 0; i < wear_units(&from->t.geo); i++) {
		unsigned dev;
		uint64_t unit = wear_unit_off_bytes(&from->t.geo, i, &dev) /
					blk_to_bytes(g->unit_blks) -
				g->first_unit[dev];
		uint32_t to = (uint32_t)unit + (dev ? g->units[0] : 0);

		if (unit >= g->units[dev])
			continue;
		w->t.unit[to].blks = add_u32(w->t.unit[to].blks, from->t.unit[i].blks);
		w->t.unit[to].visits = add_u32(w->t.unit[to].visits, from->t.unit[i].visits);
	}
	memcpy(w->t.commit, from->t.commit, sizeof(w->t.commit));
	memcpy(w->t.day, from->t.day, sizeof(w->t.day));
	w->t.commit_n = from->t.commit_n;
	w->t.day_n = from->t.day_n;
	wear_make_due(w);
}
