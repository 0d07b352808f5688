/* SPDX-License-Identifier: MIT */
/* What was measured: as a profile, as JSON, and for people. */
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/numbers.h"
#include "base/parse.h"
#include "sim/price.h"
#include "measure/engine.h"

/* ---- JSON ---- */

static struct json_object *number(double v)
{
	struct json_object *o = json_object_new_double(v);

	json_object_set_serializer(o, json_object_double_to_json_string, (void *)(uintptr_t) "%.9g",
				   NULL);
	return o;
}

/* A profile that grows, and where its numbers come from. */
struct profile_json {
	struct json_object *values, *from;
};

static void PRINTF(4, 5)
	add(struct profile_json *p, const char *key, struct json_object *v, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_object_object_add(p->values, key, v);
	json_object_object_add(p->from, key, json_object_new_string(text));
}

static double mb_s(uint64_t bytes, double ns)
{
	return ns > 0 ? (double)bytes / ns * 1e3 : 0;
}

static double percent(const struct figure *f)
{
	return f->value > 0 ? 100 * f->spread / f->value : 0;
}

static double worst_percent(const struct figure *f)
{
	double worst = 0;

	for (unsigned i = 0; i < FLASH_TABLE; i++)
		worst = percent(&f[i]) > worst ? percent(&f[i]) : worst;
	return worst;
}

static void add_table(struct profile_json *p, const char *key, const struct flash_speed *s,
		      const struct figure *f)
{
	struct json_object *a = json_object_new_array();

	for (unsigned i = 0; i < FLASH_TABLE; i++)
		json_object_array_add(a, number(mb_s(4096u << i, (double)s->table_ns[i])));
	add(p, key, a, "measured: each +- %.1f %% or less", worst_percent(f));
}

/* Writes below the size of a page take as long as a page. 0: not determined */
static unsigned page_kib(const struct measurement *m)
{
	unsigned kib = 0;

	for (unsigned i = 1; i < 4 && m->write[i].n; i++) {
		if (m->write[i].value > 1.1 * m->write[0].value)
			break;
		kib = 4u << i;
	}
	return kib;
}

static void add_structure(struct profile_json *p, const struct measurement *m)
{
	static const char fits[] = "not determined: fits best",
			  agree[] = "measured: two experiments agree",
			  solved[] = "measured: by regression";
	const struct structure *s = &m->best;
	const char *unit = m->unit_known ? agree : fits, *open = m->open_known ? agree : fits,
		   *costs = m->costs_known ? solved : fits;

	if (m->is_flat) {
		unit = m->p.reported_unit_bytes ? "not determined: as the card reports"
						: "not determined: assumed";
		open = "not determined: assumed";
		costs = "measured: no write was slower because of its place";
	}
	add(p, "unit_kib", json_object_new_int64((int64_t)(s->unit_bytes / KIB)), "%s", unit);
	add(p, "open_units", json_object_new_int((int)s->open_units), "%s", open);
	add(p, "open_random", json_object_new_int((int)s->open_random), "%s",
	    m->random_known ? "measured" : open);
	add(p, "copy_mb_s", number((double)m->copy_bytes_per_s / 1e6), "%s", costs);
	add(p, "merge_ms", number((double)m->merge_ns / 1e6), "%s", costs);
	add(p, "absorb", json_object_new_int((int)s->absorb), "%s",
	    m->absorb_known ? "measured: by random writes of 4 KiB"
	    : m->is_flat    ? "not determined: assumed"
			    : "not determined: the smallest that fits");
}

struct json_object *result_profile(const struct measurement *m, const struct result_names *names)
{
	struct json_object *file = json_object_new_object();
	struct profile_json new = { json_object_new_object(), json_object_new_object() }, *p = &new;
	const struct flash_profile *q = &m->profile;
	unsigned page = page_kib(m);

	json_object_object_add(p->values, "title", json_object_new_string(names->title));
	json_object_object_add(p->values, "source", json_object_new_string(names->source));
	if (names->identity && *names->identity)
		json_object_object_add(p->values, "identity",
				       json_object_new_string(names->identity));
	if (*m->doubt)
		json_object_object_add(p->values, "note", json_object_new_string(m->doubt));
	json_object_object_add(p->values, "plan", json_object_new_boolean(m->confirmed));
	add(p, "capacity_gb", number((double)q->capacity_bytes / 1e9),
	    "measured: size of the device");
	add_table(p, "read_mb_s", &q->read, m->read);
	add_table(p, "write_mb_s", &q->write, m->write);
	add(p, "random_read_per_s", number(1e9 / (double)max_u64(1, q->random_read_ns)),
	    "measured: +- %.1f %%", percent(&m->random_read[1]));
	if (m->random_write[0].n)
		add(p, "random_write_per_s", number(1e9 / m->random_write[0].value),
		    "measured: 4 KiB over %s", FORMAT_MIB(m->work_bytes));
	add(p, "sync_rewrite_per_s",
	    number(1e9 / ((double)flash_write_ns(q, COW_BLK_BYTES) + m->flush.value)),
	    "derived: a write of 4 KiB and a flush of %.3f +- %.3f ms", m->flush.value / 1e6,
	    m->flush.spread / 1e6);
	add(p, "page_kib", json_object_new_int(page ? (int)page : 4), "%s",
	    page ? "derived: smaller writes take as long" : "not determined: assumed");
	add_structure(p, m);
	add(p, "wear", json_object_new_string("dynamic"), "assumed: the commonest kind");
	add(p, "spare_percent", json_object_new_int(3), "assumed: as of the published cards");
	json_object_object_add(p->values, "from", p->from);
	json_object_object_add(file, names->id, p->values);
	return file;
}

static struct json_object *figure_json(const struct figure *f, uint64_t bytes)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "bytes", json_object_new_uint64(bytes));
	json_object_object_add(o, "seconds", number(f->value / 1e9));
	json_object_object_add(o, "spread_seconds", number(f->spread / 1e9));
	json_object_object_add(o, "requests", json_object_new_int((int)f->n));
	return o;
}

static void add_figures(struct json_object *o, const char *key, const struct figure *f, unsigned n,
			bool has_sector)
{
	struct json_object *a = json_object_new_array();

	for (unsigned i = 0; i < n; i++)
		if (f[i].n)
			json_object_array_add(a, figure_json(&f[i], !has_sector ? 4096ull << i
								    : i		? 4096ull << (i - 1)
										: 512));
	json_object_object_add(o, key, a);
}

static struct json_object *structure_json(const struct structure *s)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "unit_bytes", json_object_new_uint64(s->unit_bytes));
	json_object_object_add(o, "open_units", json_object_new_int((int)s->open_units));
	return o;
}

struct json_object *result_figures(const struct measurement *m)
{
	struct json_object *o = json_object_new_object(), *phases = json_object_new_array(), *e;

	add_figures(o, "linear_read", m->read, MEASURE_SIZES, false);
	add_figures(o, "linear_write", m->write, MEASURE_SIZES, false);
	add_figures(o, "random_read", m->random_read, FLASH_TABLE + 1, true);
	add_figures(o, "random_write", m->random_write, FLASH_TABLE, false);
	json_object_object_add(o, "flush", figure_json(&m->flush, 0));
	json_object_object_add(o, "reported_unit_bytes",
			       json_object_new_uint64(m->p.reported_unit_bytes));
	json_object_object_add(o, "aligned_reads_unit_bytes",
			       json_object_new_uint64(m->align_bytes));
	e = json_object_new_object();
	json_object_object_add(e, "boundaries", structure_json(&m->by_boundary));
	json_object_object_add(e, "lengths", structure_json(&m->by_length));
	json_object_object_add(e, "distances", structure_json(&m->by_stride));
	json_object_object_add(e, "writers", json_object_new_int((int)m->writers));
	json_object_object_add(o, "experiments", e);
	json_object_object_add(o, "unit_determined", json_object_new_boolean(m->unit_known));
	json_object_object_add(o, "open_units_determined", json_object_new_boolean(m->open_known));
	json_object_object_add(o, "explained", number(m->share));
	if (m->discard >= 0)
		json_object_object_add(o, "discard_empties_units",
				       json_object_new_boolean(m->discard));
	for (unsigned i = 0; i < PHASES; i++) {
		const struct phase_verdict *v = &m->verdict[i];

		if (!v->measured_ns)
			continue;
		e = json_object_new_object();
		json_object_object_add(
			e, "phase",
			json_object_new_string(measure_phase_name((enum measure_phase)i)));
		json_object_object_add(e, "seconds", number((double)v->measured_ns / 1e9));
		json_object_object_add(e, "model_seconds", number((double)v->model_ns / 1e9));
		json_object_object_add(e, "agrees", json_object_new_boolean(v->agrees));
		json_object_array_add(phases, e);
	}
	json_object_object_add(o, "verdict", phases);
	json_object_object_add(o, "confirmed", json_object_new_boolean(m->confirmed));
	json_object_object_add(o, "doubt", json_object_new_string(m->doubt));
	json_object_object_add(o, "area_bytes", json_object_new_uint64(m->work_bytes));
	json_object_object_add(o, "full_area_bytes", json_object_new_uint64(MEASURE_FULL_BYTES));
	json_object_object_add(o, "written_bytes", json_object_new_uint64(m->written_bytes));
	json_object_object_add(o, "seconds", number((double)m->took_ns / 1e9));
	return o;
}

/* ---- for people ---- */

static void rate(const struct figure *f, uint64_t bytes)
{
	if (f->n)
		printf("  %8.1f +- %4.1f%%", mb_s(bytes, f->value), percent(f));
	else
		printf("  %17s", "-");
}

static void per_second(const struct figure *f)
{
	if (f->n)
		printf("  %8.1f +- %4.1f%%", f->value > 0 ? 1e9 / f->value : 0, percent(f));
	else
		printf("  %17s", "-");
}

static void print_table(const struct measurement *m)
{
	printf("request    linear read MB/s   linear write MB/s  random reads/s     random "
	       "writes/s\n");
	printf("%8s  %17s  %17s", "512 B", "", "");
	per_second(&m->random_read[0]);
	putchar('\n');
	for (unsigned i = 0; i < MEASURE_SIZES; i++) {
		uint64_t bytes = 4096ull << i;

		printf("%4llu %s", (unsigned long long)(bytes < MIB ? bytes / KIB : bytes / MIB),
		       bytes < MIB ? "KiB" : "MiB");
		rate(&m->read[i], bytes);
		rate(&m->write[i], bytes);
		if (i < FLASH_TABLE) {
			per_second(&m->random_read[i + 1]);
			per_second(&m->random_write[i]);
		}
		putchar('\n');
	}
}

static const char *or_not(const struct measurement *m, bool known)
{
	return known ? ""
	       : m->work_bytes < MEASURE_FULL_BYTES
		       ? " (not determined: fits best; needs a larger area)"
		       : " (not determined: fits best)";
}

static void print_notes(const struct measurement *m)
{
	if (m->work_bytes < MEASURE_FULL_BYTES)
		printf("note                  the area has only %s: it can show erase blocks up to "
		       "%s and %u open units. %s are enough for all figures\n",
		       FORMAT_MIB(m->work_bytes), FORMAT_SIZE(m->work_bytes / 4),
		       (unsigned)max_u64(m->work_bytes / (4 * MIB) - 1, 1),
		       FORMAT_MIB(MEASURE_FULL_BYTES));
	if (m->work_bytes <= 128 * MIB)
		printf("note                  a cache of the card may hide the cost of random writes "
		       "in a small area\n");
}

void result_print(const struct measurement *m)
{
	const struct structure *s = &m->best;
	char reported[48] = "none";
	unsigned page = page_kib(m);

	if (m->p.reported_unit_bytes)
		snprintf(reported, sizeof(reported), "%s", FORMAT_SIZE(m->p.reported_unit_bytes));
	print_table(m);
	printf("flush after a write   %.3f +- %.3f ms\n", m->flush.value / 1e6,
	       m->flush.spread / 1e6);
	if (m->is_flat)
		printf("erase block           not determined: no write was slower because of its "
		       "place; assumed %s, the card reports %s\n",
		       FORMAT_SIZE(s->unit_bytes), reported);
	else
		printf("erase block           %s%s; by reads across boundaries %s; the card reports "
		       "%s\n",
		       FORMAT_SIZE(s->unit_bytes), or_not(m, m->unit_known),
		       m->align_bytes ? FORMAT_SIZE(m->align_bytes) : "not determined", reported);
	if (!m->is_flat) {
		printf("open units            %u%s, written in any order: %u%s\n", s->open_units,
		       or_not(m, m->open_known), s->open_random, or_not(m, m->random_known));
		printf("closing a unit        copies at %.1f MB/s and takes %.1f ms more%s\n",
		       (double)m->copy_bytes_per_s / 1e6, (double)m->merge_ns / 1e6,
		       or_not(m, m->costs_known));
		if (s->absorb > 1)
			printf("shared log            one unit is closed for %u random writes%s\n",
			       s->absorb, or_not(m, m->absorb_known));
		else
			printf("shared log            none\n");
	}
	if (page)
		printf("page                  %u KiB\n", page);
	else
		printf("page                  not determined\n");
	printf("discard               %s", m->discard > 0    ? "empties units: they are not copied"
					   : m->discard == 0 ? "has no effect on the time"
							     : "not determined");
	if (m->discard < 0 && m->work_bytes < MEASURE_DISCARD_UNITS * s->unit_bytes)
		printf(": needs an area of %s", FORMAT_SIZE(MEASURE_DISCARD_UNITS * s->unit_bytes));
	putchar('\n');
	if (m->confirmed)
		printf("model                 reproduces each part of the measurement: commits can "
		       "be planned by this profile\n");
	else
		printf("model                 does not reproduce the measurement: estimates only, no "
		       "plans (%s)\n",
		       m->doubt);
	print_notes(m);
}
