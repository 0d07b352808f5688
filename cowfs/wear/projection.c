/* SPDX-License-Identifier: MIT */
#include "wear/projection.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/numbers.h"
#include "wire/json.h"

#define DAY_S 86400.0

enum { MAX_WINDOW_DAYS = 4000, PAUSE_DAYS = 60 };

static const struct flash_kind classes[] = {
	{ "unknown", 500, 5000 }, { "slc", 30000, 100000 }, { "mlc", 1500, 5000 },
	{ "tlc", 500, 3000 },	  { "qlc", 100, 1000 },
};

const struct flash_kind *projection_class(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
		if (!strcmp(classes[i].name, name))
			return &classes[i];
	return NULL;
}

/* instead of fmin and fmax, which alone would make the programs, and each initramfs, need libm */
static double smaller(double a, double b)
{
	return a < b ? a : b;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* ---- JSON ---- */

static struct json_object *number(double v)
{
	char text[32];

	if (!isfinite(v))
		return NULL;
	snprintf(text, sizeof(text), "%.10g", v);
	return json_object_new_double_s(v, text);
}

struct interval {
	double low, high;
	const char *basis; /* measured, bounded, assumed, model */
	const char *source;
};

static struct json_object *render(const struct interval *i)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "low", number(i->low));
	json_object_object_add(o, "high", number(i->high));
	json_object_object_add(o, "basis", json_object_new_string(i->basis));
	json_object_object_add(o, "source", json_object_new_string(i->source));
	return o;
}

/* ---- the factors ---- */

static struct interval device_amplification(struct json_object *wear)
{
	struct json_object *health = json_object_object_get(wear, "health"),
			   *t = json_object_object_get(wear, "totals");
	double host = json_number(health, "host_written_bytes"),
	       flash = json_number(health, "flash_written_bytes");
	double eb = json_number(json_object_object_get(wear, "erase_blocks"), "erase_block_bytes");
	double written = json_number(t, "written_bytes"),
	       visits = json_number(t, "erase_block_visits");

	if (host > 0 && flash > 0)
		return (struct interval){
			flash / host, flash / host, "measured",
			"the device: bytes written to flash per byte written by the host, over "
			"its life"
		};
	if (written <= 0 || visits <= 0 || eb <= 0)
		return (struct interval){ 1, NAN, "bounded", "nothing written yet" };
	return (struct interval){ 1, larger(1, eb * visits / written), "bounded",
				  "from no copying to one erase block copied per visit" };
}

/* Without an account of the device only what cowfs wrote is known to be used. */
static struct interval life_left_of_new(struct json_object *wear, const struct interval *cycles,
					const struct interval *amp, double capacity)
{
	double written = json_number(json_object_object_get(wear, "totals"), "written_bytes") /
			 capacity;
	struct interval left = { 1, 1, "assumed",
				 "the card reports nothing: assumed to be new at its first "
				 "attach, less what cowfs wrote" };

	if (written > 0 && capacity > 0) {
		left.low = larger(0, 1 - written * amp->high / cycles->low);
		left.high = larger(0, 1 - written * amp->low / cycles->high);
	}
	return left;
}

static struct interval life_left(struct json_object *wear, const struct interval *cycles,
				 const struct interval *amp, double capacity)
{
	struct json_object *used = json_object_object_get(json_object_object_get(wear, "health"),
							  "life_used");
	size_t n = used ? json_object_array_length(used) : 0;
	struct interval left = { 1, 0, "measured", "reported by the device" };

	if (!n)
		return life_left_of_new(wear, cycles, amp, capacity);
	for (size_t i = 0; i < n; i++) {
		struct json_object *u = json_object_array_get_idx(used, i);

		left.low = smaller(left.low, larger(0, 1 - json_number(u, "high")));
		left.high = larger(left.high, larger(0, 1 - json_number(u, "low")));
	}
	/* the most worn part decides */
	for (size_t i = 0; i < n; i++)
		left.high = smaller(
			left.high,
			larger(0, 1 - json_number(json_object_array_get_idx(used, i), "low")));
	return left;
}

static struct interval cycles(struct json_object *wear, const struct flash_kind *flash)
{
	struct json_object *e = json_object_object_get(json_object_object_get(wear, "health"),
						       "erase_cycles");
	double rated = json_number(e, "rated");

	if (rated > 0)
		return (struct interval){ rated, rated, "measured", "the device's rating" };
	return (struct interval){ flash->cycles_low, flash->cycles_high, "assumed", flash->name };
}

/* ---- days ---- */

struct days {
	unsigned observed;	    /* whole days, starting with the first day with a write */
	unsigned ignored;	    /* days whose clock was not set, or ahead */
	double *written, *absorbed; /* bytes per day */
	double written_bytes, absorbed_bytes, absorbed_writes, visits; /* of all of them */
};

static uint64_t day_at(struct json_object *a, size_t i)
{
	return json_object_get_uint64(
		json_object_object_get(json_object_array_get_idx(a, i), "unix_day"));
}

static int days_rising(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * The first of these days that counts: after the last long pause. A machine without a
 * battery-backed clock uses the date of some package, years ago, until its clock is first set.
 * Days without a write would then dilute all others.
 */
static uint64_t first_day(uint64_t *day, size_t n, uint64_t today)
{
	uint64_t first = today;

	if (n)
		qsort(day, n, sizeof(*day), days_rising);
	for (size_t i = n; i-- > 0; first = day[i])
		if (today - day[i] > MAX_WINDOW_DAYS ||
		    (i + 1 < n && day[i + 1] - day[i] > PAUSE_DAYS))
			break;
	return first;
}

/* Excludes today, which is not over. Days without a line had no write. */
static struct days find_days(struct json_object *wear, uint64_t now_s)
{
	struct json_object *a = json_object_object_get(json_object_object_get(wear, "history"),
						       "days");
	uint64_t today = now_s / 86400, first;
	size_t n = a ? json_object_array_length(a) : 0, set = 0;
	_cleanup_free_ uint64_t *sorted = calloc(n + 1, sizeof(*sorted));
	struct days d = { 0 };

	for (size_t i = 0; sorted && i < n; i++) {
		if (!day_at(a, i) || day_at(a, i) > today)
			d.ignored++;
		else
			sorted[set++] = day_at(a, i);
	}
	first = first_day(sorted, set, today);
	d.observed = (unsigned)(today - first);
	d.written = calloc(d.observed + 1, sizeof(double));
	d.absorbed = calloc(d.observed + 1, sizeof(double));
	for (size_t i = 0; i < n && d.written && d.absorbed; i++) {
		struct json_object *o = json_object_array_get_idx(a, i);
		uint64_t day = day_at(a, i);

		if (day < first || day >= today)
			continue;
		d.written[day - first] += json_number(o, "written_bytes");
		d.absorbed[day - first] += json_number(o, "absorbed_bytes");
		d.written_bytes += json_number(o, "written_bytes");
		d.absorbed_bytes += json_number(o, "absorbed_bytes");
		d.absorbed_writes += json_number(o, "absorbed_writes");
		d.visits += json_number(o, "erase_block_visits");
	}
	if (!d.written || !d.absorbed)
		d.observed = 0;
	return d;
}

/*
 * Median and 90th percentile (nearest rank) of n numbers, which this function sorts, and their
 * average. The average lies outside of the two if nearly all data is written on a few days. The
 * percentile alone would then predict an endless life.
 */
static struct interval spread(double *v, unsigned n, const char *source)
{
	double sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += v[i];
	qsort(v, n, sizeof(*v), rising_double);
	return (struct interval){ smaller(v[(n - 1) / 2], sum / n),
				  larger(v[(9 * n + 9) / 10 - 1], sum / n), "measured", source };
}

/* ---- life ---- */

static struct interval life(const struct interval *p, double capacity, const struct interval *left,
			    const struct interval *daily, const struct interval *amp,
			    const char *basis, const char *source)
{
	return (struct interval){ p->low * capacity * left->low / (daily->high * amp->high) * DAY_S,
				  p->high * capacity * left->high / (daily->low * amp->low) * DAY_S,
				  basis, source };
}

/*
 * The visits of the hottest block happened in the time since the first record, if the clock was
 * right then. That time is at least the time attached, and at least the days observed.
 */
static struct interval hottest_life(struct json_object *wear, const struct interval *p,
				    const struct interval *left, const struct days *d,
				    uint64_t now_s)
{
	struct json_object *eb = json_object_object_get(wear, "erase_blocks");
	struct json_object *hot = json_object_object_get(eb, "hottest");
	struct json_object *t = json_object_object_get(wear, "totals");
	double first_s = json_number(t, "first_unix_seconds"), least_s, most_s, visits;
	double ebs = json_number(eb, "unit_bytes") /
		     larger(1, json_number(eb, "erase_block_bytes"));
	struct json_object *h = hot && json_object_array_length(hot)
					? json_object_array_get_idx(hot, 0)
					: NULL;

	visits = h ? json_number(h, "visits") : NAN;
	least_s = larger(json_number(t, "attached_seconds"), d->observed * DAY_S);
	most_s = first_s > 0 ? larger((double)now_s - first_s, least_s) : least_s;
	/* every visit erases; low: all visits of a unit hit one erase block; high: evenly spread */
	return (struct interval){
		p->low * left->low / visits * least_s,
		p->high * left->high * larger(1, ebs) / visits * most_s, "bounded",
		"no wear levelling: the most visited erase block, erased at each visit"
	};
}

/*
 * How many times sooner the flash would be worn out if all writes of programs went to the card at
 * once. Erase cycles, capacity and the card's amplification are the same in both cases. What
 * remains: the bytes, if the card appends them wherever it has room; or the erases, if each write
 * and each visit of an erase block costs one.
 */
static struct interval sooner_without(const struct days *d)
{
	double bytes = d->absorbed_bytes / larger(1, d->written_bytes),
	       erases = d->absorbed_writes / larger(1, d->visits);

	return (struct interval){ smaller(bytes, erases), larger(bytes, erases), "model",
				  "from the bytes alone to one erase for each write and visit" };
}

static void add_scenario(struct json_object *to, const char *name, const struct interval *i)
{
	struct json_object *o = render(i);

	json_object_object_add(o, "seconds_low", number(i->low));
	json_object_object_add(o, "seconds_high", number(i->high));
	json_object_object_del(o, "low");
	json_object_object_del(o, "high");
	json_object_object_add(to, name, o);
}

static void project(struct json_object *ret, struct json_object *wear, struct days *d,
		    struct json_object *factors, const struct interval *p,
		    const struct interval *left, const struct interval *amp, double capacity,
		    uint64_t now_s)
{
	struct json_object *scenarios = json_object_new_object();
	struct interval daily =
		spread(d->written, d->observed,
		       "median and 90th percentile of the days observed, or their average");
	struct interval absorbed = spread(d->absorbed, d->observed,
					  "the same for what programs wrote");
	struct interval sooner = sooner_without(d);
	struct interval whole = life(p, capacity, left, &daily, amp, amp->basis,
				     "the wear is spread over the whole card");
	struct interval hot = hottest_life(wear, p, left, d, now_s);

	json_object_object_add(factors, "daily_bytes", render(&daily));
	json_object_object_add(factors, "daily_bytes_without_cowfs", render(&absorbed));
	json_object_object_add(factors, "sooner_without_cowfs", render(&sooner));
	add_scenario(scenarios, "whole_card", &whole);
	add_scenario(scenarios, "hottest_erase_block", &hot);
	json_object_object_add(ret, "scenarios", scenarios);
}

struct json_object *projection_make(struct json_object *wear, const struct flash_kind *flash,
				    uint64_t now_s)
{
	struct json_object *ret = json_object_new_object(), *factors = json_object_new_object();
	struct interval amp = device_amplification(wear), p = cycles(wear, flash), left;
	double disk = json_number(json_object_object_get(wear, "health"), "disk_bytes");
	struct interval capacity = { disk, disk, "measured", "the whole disk" };
	struct days d = find_days(wear, now_s);
	char why[96] = "";

	if (disk <= 0)
		capacity = (struct interval){ json_number(wear, "device_bytes"),
					      json_number(wear, "device_bytes"), "bounded",
					      "the partition; the disk is at least as large" };
	left = life_left(wear, &p, &amp, capacity.low);
	json_object_object_add(json_object_object_get(wear, "ratios"), "device_amplification",
			       render(&amp));
	json_object_object_add(factors, "erase_cycles", render(&p));
	json_object_object_add(factors, "capacity_bytes", render(&capacity));
	json_object_object_add(factors, "life_left", render(&left));
	json_object_object_add(factors, "device_amplification", render(&amp));
	if (d.observed < PROJECTION_MIN_DAYS)
		snprintf(why, sizeof(why), "not enough data: %u whole days, at least %d are needed",
			 d.observed, PROJECTION_MIN_DAYS);
	json_object_object_add(ret, "enough_data", json_object_new_boolean(!*why));
	json_object_object_add(ret, "why_not", json_object_new_string(why));
	json_object_object_add(ret, "observed_days", json_object_new_uint64(d.observed));
	json_object_object_add(ret, "ignored_days", json_object_new_uint64(d.ignored));
	if (*why)
		json_object_object_add(ret, "scenarios", NULL);
	else
		project(ret, wear, &d, factors, &p, &left, &amp, capacity.low, now_s);
	json_object_object_add(ret, "factors", factors);
	free(d.written);
	free(d.absorbed);
	return ret;
}

void projection_share(const struct flash_kind *flash, double capacity_bytes,
		      double erase_block_bytes, double bytes, double erase_blocks, double *ret_low,
		      double *ret_high)
{
	*ret_low = bytes / (flash->cycles_high * capacity_bytes);
	*ret_high = larger(bytes, erase_blocks * erase_block_bytes) /
		    (flash->cycles_low * capacity_bytes);
}
