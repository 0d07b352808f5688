/* SPDX-License-Identifier: MIT */
#include "measure/bench_run.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/io.h"
#include "base/parse.h"
#include "wire/json.h"

/* A row of the quick mode ends after one of these. */
#define QUICK_REQUESTS 400u
#define QUICK_MS 2000u
#define QUICK_LINEAR_BYTES (16 * MIB) /* at least, so that small caches do not decide */
#define QUICK_ROW_BYTES (64 * MIB)
/* Rows of the reports whose length they do not say. */
#define PRIME_MS (24 * 3600000u)
#define MAX_REQUEST_BYTES (16 * MIB)
#define SHORT_S 0.1 /* fio counts milliseconds */

uint64_t bench_quick_ms(void)
{
	const char *text = secure_getenv("COWFS_BENCH_ROW_MS");
	uint64_t ms;

	return text && parse_u64(text, &ms) == 0 && ms ? ms : QUICK_MS;
}

/* ---- figures ---- */

static void number(struct json_object *o, const char *key, double v)
{
	char text[40];

	if (!isfinite(v))
		v = 0;
	snprintf(text, sizeof(text), "%.6g", v);
	json_object_object_add(o, key, json_object_new_double_s(v, text));
}

static void integer(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}

static void string(struct json_object *o, const char *key, const char *v)
{
	if (*v)
		json_object_object_add(o, key, json_object_new_string(v));
}

static void boolean(struct json_object *o, const char *key, bool v)
{
	json_object_object_add(o, key, json_object_new_boolean(v));
}

/* Mean and deviation of two kinds of requests together. */
static struct fio_side join(const struct fio_side *a, const struct fio_side *b)
{
	double na = (double)a->requests, nb = (double)b->requests, n = na + nb, mean, square;
	struct fio_side s = { .requests = a->requests + b->requests,
			      .bytes = a->bytes + b->bytes,
			      .seconds = fmax(a->seconds, b->seconds),
			      .longest_ns = max_u64(a->longest_ns, b->longest_ns) };

	if (!b->requests)
		return *a;
	if (!a->requests)
		return *b;
	mean = (na * a->mean_ns + nb * b->mean_ns) / n;
	square = (na * (a->deviation_ns * a->deviation_ns + a->mean_ns * a->mean_ns) +
		  nb * (b->deviation_ns * b->deviation_ns + b->mean_ns * b->mean_ns)) /
		 n;
	s.mean_ns = mean;
	s.deviation_ns = sqrt(fmax(0, square - mean * mean));
	return s;
}

struct json_object *bench_figures(const struct fio_result *r)
{
	struct fio_side s = join(&r->read, &r->write);
	double n = (double)s.requests, seconds = s.seconds;
	struct json_object *o;

	if (seconds < SHORT_S)
		seconds = n * s.mean_ns / 1e9;
	if (!s.requests || seconds <= 0)
		return NULL;
	o = json_object_new_object();
	integer(o, "requests", s.requests);
	number(o, "seconds", seconds);
	number(o, "requests_per_second", n / seconds);
	number(o, "bytes_per_second", (double)s.bytes / seconds);
	/* 95 % of the means of as many requests lie within it, if these are independent */
	number(o, "spread_percent", s.mean_ns > 0 ? 196 * s.deviation_ns / s.mean_ns / sqrt(n) : 0);
	number(o, "mean_ns", s.mean_ns);
	if (s.median_ns)
		integer(o, "median_ns", s.median_ns);
	if (s.p99_ns)
		integer(o, "p99_ns", s.p99_ns);
	integer(o, "longest_ns", s.longest_ns);
	return o;
}

/* ---- steps ---- */

int bench_step(struct bench_run *b, struct fio_job *job, struct fio_result *ret, const char *fmt,
	       ...)
{
	char name[80], why[1024];
	va_list ap;
	int e;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	if (!job->fd)
		job->fd = b->t.fd;
	if (!job->len_bytes) {
		job->off_bytes = b->t.off_bytes;
		job->len_bytes = b->t.len_bytes;
	}
	/* the last request of fio goes beyond the end of a range that is no multiple of it */
	job->len_bytes = round_down_u64(job->len_bytes, job->request_bytes);
	job->direct = b->t.direct;
	job->seed = (b->seed + b->step) & INT64_MAX; /* as fio takes it */
	b->step++;
	if (b->planning)
		return 0;
	if (!b->quiet) {
		fprintf(stderr, "\r%u of %u: %s\033[K", b->step, b->steps, name);
		fflush(stderr);
	}
	e = fio_run(job, ret, b->f);
	if (!b->quiet)
		fputs("\r\033[K", stderr);
	if (e < 0) {
		snprintf(why, sizeof(why), "%s", b->f->why);
		snprintf(b->f->why, sizeof(b->f->why), "%.200s: %s: %.700s", b->t.path, name, why);
		return e;
	}
	b->read_bytes += ret->read.bytes;
	b->written_bytes += ret->write.bytes;
	return 0;
}

/* A step whose figures become a member of o. */
static int step_into(struct bench_run *b, struct fio_job job, struct json_object *o,
		     const char *key, const char *name)
{
	struct fio_result r;
	int e = bench_step(b, &job, &r, "%s %s", name, FORMAT_SIZE(job.request_bytes));

	if (e == 0 && !b->planning)
		json_object_object_add(o, key, bench_figures(&r));
	return e;
}

void bench_skip(struct bench_run *b, const char *table, const char *why)
{
	struct json_object *list = json_object_object_get(b->doc, "not_measured"),
			   *o = json_object_new_object();

	if (!list) {
		list = json_object_new_array();
		json_object_object_add(b->doc, "not_measured", list);
	}
	string(o, "table", table);
	string(o, "why", why);
	json_object_array_add(list, o);
}

static struct json_object *new_table(struct bench_run *b, const char *name)
{
	struct json_object *rows = json_object_new_array();

	json_object_object_add(b->doc, name, rows);
	return rows;
}

static struct json_object *new_row(struct json_object *rows, const char *key, uint64_t v)
{
	struct json_object *row = json_object_new_object();

	integer(row, key, v);
	json_object_array_add(rows, row);
	return row;
}

/* ---- tables ---- */

static bool fits(const struct bench_run *b, uint64_t request_bytes)
{
	return request_bytes >= b->t.sector_bytes && request_bytes <= b->t.len_bytes;
}

static uint64_t random_total(uint64_t request_bytes)
{
	return max_u64(min_u64(QUICK_REQUESTS * request_bytes, QUICK_ROW_BYTES), request_bytes);
}

static struct fio_job linear_job(const char *rw, uint64_t request_bytes)
{
	uint64_t quick = max_u64(QUICK_REQUESTS * request_bytes, QUICK_LINEAR_BYTES);

	return (struct fio_job){
		.rw = rw,
		.request_bytes = request_bytes,
		.total_bytes = min_u64(quick, QUICK_ROW_BYTES),
		.limit_ms = bench_quick_ms(),
	};
}

static int run_linear(struct bench_run *b)
{
	struct json_object *rows = new_table(b, "linear"), *row;
	int e = 0;

	for (uint64_t size = 4 * KIB; size <= MIB && e == 0; size *= 2) {
		if (!fits(b, size))
			continue;
		row = new_row(rows, "block_bytes", size);
		if (b->t.writes)
			e = step_into(b, linear_job("write", size), row, "write", "linear write");
		if (e == 0)
			e = step_into(b, linear_job("read", size), row, "read", "linear read");
	}
	return e;
}

/* The rate of linear reads of 1 MiB. */
static int linear_rate(struct bench_run *b, double *ret)
{
	struct json_object *rows, *row = NULL;
	struct fio_job job = linear_job("read", MIB);
	size_t n;
	int e = 0;

	rows = json_array(b->doc, "linear", &n);
	if (n)
		row = json_object_array_get_idx(rows, n - 1);
	if (!row) {
		row = json_object_new_object();
		json_object_object_add(b->doc, "transfer", row);
		e = step_into(b, job, row, "read", "linear read");
	}
	*ret = json_number(json_object_object_get(row, "read"), "bytes_per_second");
	return e;
}

static int run_seek(struct bench_run *b)
{
	struct json_object *rows, *row, *read;
	double rate = 0;
	int e = linear_rate(b, &rate);

	rows = new_table(b, "seek");
	for (uint64_t size = 512; size <= MIB && e == 0; size *= 2) {
		struct fio_job job = {
			.rw = "randread",
			.len_bytes = round_down_u64(b->t.size_bytes, size),
			.request_bytes = size,
			.total_bytes = random_total(size),
			.limit_ms = bench_quick_ms(),
		};

		if (!fits(b, size))
			continue;
		row = new_row(rows, "block_bytes", size);
		e = step_into(b, job, row, "read", "random read, all of it,");
		read = json_object_object_get(row, "read");
		if (read && rate > 0)
			number(row, "seek_ns",
			       1e9 / json_number(read, "requests_per_second") -
				       1e9 * (double)size / rate);
	}
	return e;
}

static int random_row(struct bench_run *b, struct json_object *rows, uint64_t size)
{
	struct fio_job job = {
		.rw = "randwrite",
		.off_bytes = b->t.off_bytes,
		.len_bytes = round_down_u64(b->t.len_bytes, size),
		.request_bytes = size,
		.total_bytes = random_total(size),
		.limit_ms = bench_quick_ms(),
	};
	struct json_object *row = new_row(rows, "block_bytes", size);
	int e = 0;

	if (b->t.writes)
		e = step_into(b, job, row, "write", "random write");
	job.rw = "randread";
	return e ? e : step_into(b, job, row, "read", "random read");
}

static int run_random(struct bench_run *b)
{
	uint64_t last = min_u64(b->t.unit_bytes, MAX_REQUEST_BYTES), size;
	struct json_object *rows = new_table(b, "random");
	int e = 0;

	for (size = 4 * KIB; size < last && size <= b->t.len_bytes / 4 && e == 0; size *= 2)
		if (fits(b, size))
			e = random_row(b, rows, size);
	/* the erase block itself, which need not be a power of two */
	return e || last > b->t.len_bytes / 4 ? e : random_row(b, rows, last);
}

static int run_mix(struct bench_run *b)
{
	static const unsigned percent[] = { 0, 5, 10, 20, 50, 100 };
	struct json_object *rows = new_table(b, "mix"), *row, *both;
	int e = 0;

	for (size_t i = 0; i < ARRAY_SIZE(percent) && e == 0; i++) {
		struct fio_job job = {
			.rw = !percent[i]	  ? "randread"
			      : percent[i] == 100 ? "randwrite"
						  : "randrw",
			.write_percent = percent[i],
			.request_bytes = 4 * KIB,
			.total_bytes = random_total(4 * KIB),
			.limit_ms = bench_quick_ms(),
		};

		if (percent[i] && !b->t.writes)
			break;
		row = new_row(rows, "write_percent", percent[i]);
		e = step_into(b, job, row, "both", percent[i] ? "reads and writes" : "reads");
		both = json_object_object_get(row, "both");
		if (!both)
			continue;
		number(row, "to_15k_disk",
		       json_number(both, "requests_per_second") / BENCH_15K_IOPS);
		number(row, "to_5400_disk",
		       json_number(both, "requests_per_second") / BENCH_5400_IOPS);
	}
	return e;
}

/* write: in a directory the requests extend a new file, as those of iozone do. */
static int iozone_write(struct bench_run *b, struct fio_job job, struct json_object *row)
{
	_cleanup_close_ int fd = -1;
	int e;

	if (b->t.is_dir && !b->planning) {
		fd = bench_file(&b->t, b->t.len_bytes, false);
		if (fd < 0)
			return failure_set(b->f, EXIT_FAILED, fd, "%s: no file can be made: %s",
					   b->t.path, strerrordesc_np(-fd));
		job.fd = fd;
	}
	e = step_into(b, job, row, "write", "new records of");
	return e ? e : step_into(b, job, row, "rewrite", "the same records of");
}

static int run_iozone(struct bench_run *b)
{
	struct json_object *row = json_object_new_object();
	struct fio_job job = {
		.rw = "write",
		.request_bytes = 4 * KIB,
		.total_bytes = random_total(4 * KIB),
		.limit_ms = bench_quick_ms(),
		.sync = true,
	};
	int e = 0;

	json_object_object_add(b->doc, "iozone", row);
	if (b->t.writes)
		e = iozone_write(b, job, row);
	job.rw = "randread";
	if (e == 0)
		e = step_into(b, job, row, "random_read", "iozone's random reads of");
	job.rw = "randwrite";
	if (e == 0 && b->t.writes)
		e = step_into(b, job, row, "random_write", "iozone's random writes of");
	return e;
}

/* ---- all of it ---- */

/* Fills a new file with random data, so that it has blocks. */
static int prime(struct bench_run *b)
{
	struct fio_job job = {
		.rw = "write",
		.request_bytes = min_u64(MIB, b->t.len_bytes),
		.total_bytes = b->t.len_bytes,
		.limit_ms = PRIME_MS,
	};
	struct fio_result r;

	return b->t.writes && b->t.is_dir ? bench_step(b, &job, &r, "filling with random data") : 0;
}

static int run_tables(struct bench_run *b)
{
	static int (*const run[])(struct bench_run *) = {
		[BENCH_LINEAR] = run_linear, [BENCH_SEEK] = run_seek,
		[BENCH_RANDOM] = run_random, [BENCH_MIX] = run_mix,
		[BENCH_IOZONE] = run_iozone, [BENCH_FRAGMENTS] = bench_fragments,
	};
	int e = prime(b);

	for (size_t i = 0; i < ARRAY_SIZE(run) && e == 0; i++)
		if (b->tables & 1u << i)
			e = run[i](b);
	if (!b->t.writes)
		bench_skip(b, "writes", "a device is only read without --write-area");
	return e;
}

static void header(struct bench_run *b, uint64_t now_s)
{
	const struct bench_target *t = &b->t;
	struct utsname u;

	string(b->doc, "target", t->path);
	string(b->doc, "kind", t->is_dir ? "directory" : "device");
	string(b->doc, "model", t->model);
	string(b->doc, "identity", t->identity);
	string(b->doc, "raid", t->raid);
	string(b->doc, "fs_type", t->fs);
	if (uname(&u) == 0) {
		string(b->doc, "kernel", u.release);
		string(b->doc, "machine", u.machine);
	}
	integer(b->doc, "date_unix_seconds", now_s);
	integer(b->doc, "seed", b->seed);
	if (!t->is_dir) {
		integer(b->doc, "device_bytes", t->size_bytes);
		integer(b->doc, "test_offset_bytes", t->off_bytes);
		integer(b->doc, "erase_block_bytes", t->unit_bytes);
		boolean(b->doc, "erase_block_guessed", t->unit_guessed);
	}
	integer(b->doc, "test_bytes", t->len_bytes);
	integer(b->doc, "sector_bytes", t->sector_bytes);
	boolean(b->doc, "direct", t->direct);
	boolean(b->doc, "writes", t->writes);
}

void bench_plan(struct bench_run *b)
{
	int e;

	b->planning = true;
	b->doc = json_object_new_object();
	e = run_tables(b);
	(void)e; /* cannot fail */
	json_object_put(b->doc);
	b->doc = NULL;
	b->planning = false;
	b->steps = b->step;
	b->step = 0;
}

uint64_t bench_extra_bytes(const struct bench_run *b)
{
	uint64_t extra = 0;

	if (b->tables & 1u << BENCH_IOZONE)
		extra = random_total(4 * KIB);
	if (b->tables & 1u << BENCH_FRAGMENTS)
		extra = max_u64(extra, BENCH_FRAGMENTS_BYTES);
	return extra;
}

int bench_run(struct bench_run *b, const char *fio_version)
{
	uint64_t from = now_ns();
	int e;

	b->doc = json_answer(true);
	string(b->doc, "command", "bench");
	string(b->doc, "fio", fio_version);
	header(b, (uint64_t)time(NULL));
	e = run_tables(b);
	integer(b->doc, "read_bytes", b->read_bytes);
	integer(b->doc, "written_bytes", b->written_bytes);
	number(b->doc, "run_seconds", (double)(now_ns() - from) / 1e9);
	return e;
}
