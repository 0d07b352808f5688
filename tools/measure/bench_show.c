/* SPDX-License-Identifier: MIT */
#include "measure/bench_show.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/clean.h"
#include "base/numbers.h"
#include "base/parse.h"
#include "wire/json.h"

/* ---- numbers ---- */

/* "4K", "1M" */
static void block_name(char *buf, size_t size, uint64_t bytes)
{
	if (bytes >= MIB && bytes % MIB == 0)
		snprintf(buf, size, "%lluM", (unsigned long long)(bytes / MIB));
	else if (bytes >= KIB && bytes % KIB == 0)
		snprintf(buf, size, "%lluK", (unsigned long long)(bytes / KIB));
	else
		snprintf(buf, size, "%llu", (unsigned long long)bytes);
}

/* Three digits; more only in front of the point. */
static void digits(char *buf, size_t size, double v)
{
	if (!isfinite(v) || v < -1e12 || v > 1e12)
		snprintf(buf, size, "-");
	else
		snprintf(buf, size, "%.*f", fabs(v) >= 100 ? 0 : fabs(v) >= 10 ? 1 : 2, v);
}

/* How far from a disk: "26x better", "3.1x worse" */
static void ratio(char *buf, size_t size, double v)
{
	char n[16];

	digits(n, sizeof(n), v >= 1 ? v : v > 0 ? 1 / v : NAN);
	snprintf(buf, size, "%sx %s", n, v >= 1 ? "better" : "worse");
}

static void PRINTF(4, 5)
	put(struct bench_grid *g, unsigned row, unsigned column, const char *fmt, ...)
{
	va_list ap;

	if (row >= GRID_ROWS || column >= GRID_COLUMNS)
		return;
	va_start(ap, fmt);
	vsnprintf(g->cell[row][column], sizeof(g->cell[0][0]), fmt, ap);
	va_end(ap);
	g->rows = row + 1 > g->rows ? row + 1 : g->rows;
	g->columns = column + 1 > g->columns ? column + 1 : g->columns;
}

/* A figure of o (NULL: "-"), multiplied by scale. */
static void put_figure(struct bench_grid *g, unsigned row, unsigned column, struct json_object *o,
		       const char *key, double scale)
{
	char text[24] = "-";

	if (json_object_is_type(o, json_type_object))
		digits(text, sizeof(text), json_number(o, key) * scale);
	put(g, row, column, "%s", text);
}

static void put_block(struct bench_grid *g, unsigned row, unsigned column, uint64_t bytes)
{
	char name[24];

	block_name(name, sizeof(name), bytes);
	put(g, row, column, "%s", name);
}

/* ---- documents ---- */

static struct json_object *rows_of(struct json_object *doc, const char *table, size_t *ret_n)
{
	*ret_n = 0;
	return json_object_is_type(doc, json_type_object) ? json_array(doc, table, ret_n) : NULL;
}

static struct json_object *row_at(struct json_object *rows, size_t i)
{
	struct json_object *row = json_object_array_get_idx(rows, i);

	return json_object_is_type(row, json_type_object) ? row : NULL;
}

static struct json_object *member(struct json_object *o, const char *key)
{
	return json_object_is_type(o, json_type_object) ? json_object_object_get(o, key) : NULL;
}

/* The row of the former document with the same key; NULL: none. */
static struct json_object *same_row(struct json_object *former, const char *table, const char *key,
				    uint64_t v)
{
	size_t n;
	struct json_object *rows = rows_of(former, table, &n);

	for (size_t i = 0; i < n; i++)
		if (row_at(rows, i) && json_u64(row_at(rows, i), key) == v)
			return row_at(rows, i);
	return NULL;
}

static bool any_has(struct json_object *rows, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (member(row_at(rows, i), key))
			return true;
	return false;
}

/* ---- the tables ---- */

/* As the reports print it: a column for each size. */
static void fill_linear(struct json_object *doc, struct json_object *former, struct bench_grid *g)
{
	static const char *const way[] = { "write", "read" };
	size_t n;
	struct json_object *rows = rows_of(doc, "linear", &n);
	unsigned at = 1;

	put(g, 0, 0, "Block");
	for (size_t i = 0; i < n; i++)
		put_block(g, 0, (unsigned)i + 1, json_u64(row_at(rows, i), "block_bytes"));
	for (size_t w = 0; w < ARRAY_SIZE(way); w++) {
		if (!any_has(rows, n, way[w]))
			continue;
		put(g, at, 0, "%s", w ? "Read" : "Write");
		put(g, at + 1, 0, "  spread %%");
		if (former)
			put(g, at + 2, 0, "  before");
		for (size_t i = 0; i < n; i++) {
			struct json_object *row = row_at(rows, i), *fig = member(row, way[w]);
			unsigned c = (unsigned)i + 1;

			put_figure(g, at, c, fig, "bytes_per_second", 1e-6);
			put_figure(g, at + 1, c, fig, "spread_percent", 1);
			if (former)
				put_figure(g, at + 2, c,
					   member(same_row(former, "linear", "block_bytes",
							   json_u64(row, "block_bytes")),
						  way[w]),
					   "bytes_per_second", 1e-6);
		}
		at += former ? 3 : 2;
	}
}

static void fill_seek(struct json_object *doc, struct json_object *former, struct bench_grid *g)
{
	size_t n;
	struct json_object *rows = rows_of(doc, "seek", &n);

	put(g, 0, 0, "Block");
	put(g, 0, 1, "reads/s");
	put(g, 0, 2, "spread %%");
	put(g, 0, 3, "MB/s");
	put(g, 0, 4, "seek ms");
	if (former) {
		put(g, 0, 5, "before/s");
		put(g, 0, 6, "seek before");
	}
	for (size_t i = 0; i < n; i++) {
		struct json_object *row = row_at(rows, i), *read = member(row, "read"), *old;
		unsigned r = (unsigned)i + 1;

		put_block(g, r, 0, json_u64(row, "block_bytes"));
		put_figure(g, r, 1, read, "requests_per_second", 1);
		put_figure(g, r, 2, read, "spread_percent", 1);
		put_figure(g, r, 3, read, "bytes_per_second", 1e-6);
		put_figure(g, r, 4, row, "seek_ns", 1e-6);
		if (!former)
			continue;
		old = same_row(former, "seek", "block_bytes", json_u64(row, "block_bytes"));
		put_figure(g, r, 5, member(old, "read"), "requests_per_second", 1);
		put_figure(g, r, 6, old, "seek_ns", 1e-6);
	}
}

static void fill_random(struct json_object *doc, struct json_object *former, struct bench_grid *g)
{
	static const char *const way[] = { "write", "read" };
	size_t n;
	struct json_object *rows = rows_of(doc, "random", &n);
	unsigned c = 1;

	put(g, 0, 0, "Block");
	for (size_t i = 0; i < n; i++)
		put_block(g, (unsigned)i + 1, 0, json_u64(row_at(rows, i), "block_bytes"));
	for (size_t w = 0; w < ARRAY_SIZE(way); w++) {
		if (!any_has(rows, n, way[w]))
			continue;
		put(g, 0, c, "%ss/s", way[w]);
		put(g, 0, c + 1, "spread %%");
		put(g, 0, c + 2, "MB/s");
		if (former)
			put(g, 0, c + 3, "before/s");
		for (size_t i = 0; i < n; i++) {
			struct json_object *row = row_at(rows, i), *fig = member(row, way[w]);
			unsigned r = (unsigned)i + 1;

			put_figure(g, r, c, fig, "requests_per_second", 1);
			put_figure(g, r, c + 1, fig, "spread_percent", 1);
			put_figure(g, r, c + 2, fig, "bytes_per_second", 1e-6);
			if (former)
				put_figure(g, r, c + 3,
					   member(same_row(former, "random", "block_bytes",
							   json_u64(row, "block_bytes")),
						  way[w]),
					   "requests_per_second", 1);
		}
		c += former ? 4 : 3;
	}
}

static void fill_mix(struct json_object *doc, struct json_object *former, struct bench_grid *g)
{
	size_t n;
	struct json_object *rows = rows_of(doc, "mix", &n);

	put(g, 0, 0, "writes %%");
	put(g, 0, 1, "IOPS");
	put(g, 0, 2, "spread %%");
	put(g, 0, 3, "vs 15k SAS");
	put(g, 0, 4, "vs 5400 rpm");
	if (former)
		put(g, 0, 5, "before");
	for (size_t i = 0; i < n; i++) {
		struct json_object *row = row_at(rows, i), *both = member(row, "both");
		uint64_t percent = row ? json_u64(row, "write_percent") : 0;
		char text[24] = "-";
		unsigned r = (unsigned)i + 1;

		put(g, r, 0, "%llu", (unsigned long long)percent);
		put_figure(g, r, 1, both, "requests_per_second", 1);
		put_figure(g, r, 2, both, "spread_percent", 1);
		if (row)
			ratio(text, sizeof(text), json_number(row, "to_15k_disk"));
		put(g, r, 3, "%s", text);
		if (row)
			ratio(text, sizeof(text), json_number(row, "to_5400_disk"));
		put(g, r, 4, "%s", text);
		if (former)
			put_figure(
				g, r, 5,
				member(same_row(former, "mix", "write_percent", percent), "both"),
				"requests_per_second", 1);
	}
}

static void fill_iozone(struct json_object *doc, struct json_object *former, struct bench_grid *g)
{
	static const char *const key[] = { "write", "rewrite", "random_read", "random_write" },
				 *const name[] = { "write", "rewrite", "random read",
						   "random write" };
	struct json_object *row = member(doc, "iozone"), *old = member(former, "iozone");

	put(g, 1, 0, "operations/s");
	put(g, 2, 0, "  spread %%");
	if (former)
		put(g, 3, 0, "  before");
	for (unsigned i = 0; i < ARRAY_SIZE(key); i++) {
		put(g, 0, i + 1, "%s", name[i]);
		put_figure(g, 1, i + 1, member(row, key[i]), "requests_per_second", 1);
		put_figure(g, 2, i + 1, member(row, key[i]), "spread_percent", 1);
		if (former)
			put_figure(g, 3, i + 1, member(old, key[i]), "requests_per_second", 1);
	}
}

static struct json_object *former_state(struct json_object *former, const char *state)
{
	size_t n;
	struct json_object *list = rows_of(former, "fragments", &n);

	for (size_t i = 0; i < n; i++)
		if (row_at(list, i) && !strcmp(json_text(row_at(list, i), "state"), state))
			return row_at(list, i);
	return NULL;
}

static void fill_fragments(struct json_object *doc, struct json_object *former,
			   struct bench_grid *g)
{
	size_t n, sizes;
	struct json_object *list = rows_of(doc, "fragments", &n);
	unsigned at = 1;

	put(g, 0, 0, "File");
	put(g, 0, 1, "extents");
	for (size_t i = 0; i < n; i++) {
		struct json_object *o = row_at(list, i), *old, *rows;
		unsigned c = 2;

		if (!o)
			continue;
		old = former_state(former, json_text(o, "state"));
		rows = rows_of(o, "rows", &sizes);
		put(g, at, 0, "%.20s", json_text(o, "state"));
		put(g, at, 1, "%llu", (unsigned long long)json_u64(o, "extents"));
		if (former)
			put(g, at + 1, 0, "  before");
		for (size_t k = 0; k < sizes; k++, c += 2) {
			struct json_object *row = row_at(rows, k), *was;
			uint64_t bytes = row ? json_u64(row, "block_bytes") : 0;
			char name[16];

			block_name(name, sizeof(name), bytes);
			put(g, 0, c, "%.8s write", name);
			put(g, 0, c + 1, "%.8s read", name);
			put_figure(g, at, c, member(row, "write"), "requests_per_second", 60);
			put_figure(g, at, c + 1, member(row, "read"), "requests_per_second", 60);
			if (!former)
				continue;
			was = same_row(old, "rows", "block_bytes", bytes);
			put_figure(g, at + 1, c, member(was, "write"), "requests_per_second", 60);
			put_figure(g, at + 1, c + 1, member(was, "read"), "requests_per_second",
				   60);
		}
		at += former ? 2 : 1;
	}
}

static const struct {
	const char *key, *title;
	void (*fill)(struct json_object *doc, struct json_object *former, struct bench_grid *g);
} tables[] = {
	{ "linear", "Linear, MB/s", fill_linear },
	{ "seek", "Seek: random reads over all of it; seek = 1/IOPS - size/linear rate",
	  fill_seek },
	{ "random", "Random requests in the tested part, by size", fill_random },
	{ "mix", "Mix of random reads and writes of 4 KiB", fill_mix },
	{ "iozone", "As iozone: 4 KiB with O_DIRECT and O_SYNC", fill_iozone },
	{ "fragments", "Fragmentation: operations per minute", fill_fragments },
};

bool bench_grid_next(struct json_object *doc, struct json_object *former, unsigned *state,
		     struct bench_grid *ret)
{
	while (*state < ARRAY_SIZE(tables)) {
		unsigned i = (*state)++;

		if (!member(doc, tables[i].key))
			continue;
		*ret = (struct bench_grid){ .key = tables[i].key };
		snprintf(ret->title, sizeof(ret->title), "%s", tables[i].title);
		tables[i].fill(doc, former, ret);
		return true;
	}
	return false;
}

/* ---- header ---- */

static void describe_target(struct json_object *doc, char *buf, size_t size)
{
	const char *model = json_text(doc, "model"), *raid = json_text(doc, "raid"),
		   *fs = json_text(doc, "fs_type");
	uint64_t bytes = json_u64(doc, "device_bytes");
	bool dir = !strcmp(json_text(doc, "kind"), "directory");

	snprintf(buf, size, "%s %s%s%s%s%s%s%s%s", json_text(doc, "target"),
		 dir ? "(a file in this directory)" : "", bytes ? FORMAT_SIZE(bytes) : "",
		 *fs ? ", " : "", fs, *model ? ", " : "", model, *raid ? ", RAID level " : "",
		 raid);
}

void bench_header(struct json_object *doc,
		  void (*line)(void *ctx, const char *name, const char *value), void *ctx)
{
	uint64_t bytes = json_u64(doc, "test_bytes");
	time_t date = (time_t)json_u64(doc, "date_unix_seconds");
	char text[512], when[40] = "?";
	struct tm tm;

	describe_target(doc, text, sizeof(text));
	line(ctx, "device", text);
	snprintf(text, sizeof(text), "%s%s%s, %s, %s", FORMAT_SIZE(bytes),
		 member(doc, "test_offset_bytes") ? " from " : "",
		 member(doc, "test_offset_bytes") ? FORMAT_SIZE(json_u64(doc, "test_offset_bytes"))
						  : "",
		 json_true(doc, "direct") ? "direct I/O"
					  : "through the page cache, because direct I/O is "
					    "not possible here",
		 !json_true(doc, "writes")			? "only read"
		 : !strcmp(json_text(doc, "kind"), "directory") ? "filled with random data"
								: "not filled before");
	line(ctx, "test", text);
	if (member(doc, "erase_block_bytes")) {
		snprintf(text, sizeof(text), "%s (%s)",
			 FORMAT_SIZE(json_u64(doc, "erase_block_bytes")),
			 json_true(doc, "erase_block_guessed") ? "assumed" : "reported");
		line(ctx, "erase block", text);
	}
	snprintf(text, sizeof(text), "%s, seed %llu", json_text(doc, "fio"),
		 (unsigned long long)json_u64(doc, "seed"));
	line(ctx, "method", text);
	snprintf(text, sizeof(text), "%s %s", json_text(doc, "kernel"), json_text(doc, "machine"));
	line(ctx, "kernel", text);
	if (gmtime_r(&date, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M UTC", &tm);
	line(ctx, "date", when);
	snprintf(text, sizeof(text), "%s written, %s read in %s",
		 FORMAT_SIZE(json_u64(doc, "written_bytes")),
		 FORMAT_SIZE(json_u64(doc, "read_bytes")), SPAN(json_number(doc, "run_seconds")));
	line(ctx, "I/O", text);
}

/* ---- text ---- */

static void text_line(void *ctx, const char *name, const char *value)
{
	fprintf(ctx, "  %-12s %s\n", name, value);
}

static void text_grid(FILE *f, const struct bench_grid *g)
{
	fprintf(f, "\n%s\n", g->title);
	for (unsigned r = 0; r < g->rows; r++) {
		for (unsigned c = 0; c < g->columns; c++) {
			int width = 0;

			for (unsigned i = 0; i < g->rows; i++) {
				int n = (int)strlen(g->cell[i][c]);

				width = n > width ? n : width;
			}
			fprintf(f, c ? "  %*s" : "  %-*s", width, g->cell[r][c]);
		}
		fputc('\n', f);
	}
}

void bench_text(FILE *f, struct json_object *doc, struct json_object *former)
{
	struct bench_grid *g = malloc(sizeof(*g));
	struct json_object *list;
	unsigned state = 0;
	size_t n;

	bench_header(doc, text_line, f);
	if (former) {
		fputs("\nbefore: the result given with --compare\n", f);
		bench_header(former, text_line, f);
	}
	while (g && bench_grid_next(doc, former, &state, g))
		text_grid(f, g);
	free(g);
	list = rows_of(doc, "not_measured", &n);
	for (size_t i = 0; i < n; i++)
		if (row_at(list, i))
			fprintf(f, "%snot measured: %s: %s\n", i ? "" : "\n",
				json_text(row_at(list, i), "table"),
				json_text(row_at(list, i), "why"));
}
