/* SPDX-License-Identifier: MIT */
/* cowctl measure --tables: the tables of published reports about flash cards, measured with fio. */
#include "measure/bench.h"

#include <blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/numbers.h"
#include "base/parse.h"
#include "base/path.h"
#include "config/options.h"
#include "measure/bench_run.h"
#include "measure/bench_show.h"
#include "wire/json.h"

enum {
	OPT_JSON,
	OPT_HTML,
	OPT_COMPARE,
	OPT_TABLES,
	OPT_SIZE,
	OPT_SEED,
	OPT_WRITE_AREA,
	OPT_FORCE,
	OPT_YES,
};

#define QUICK_DEVICE_BYTES (512 * MIB)
#define QUICK_FILE_BYTES (128 * MIB)
#define FORMER_BYTES (4 * MIB) /* of the result to compare with, at most */

static const struct option_spec specs[] = {
	{ OPT_TABLES, "tables", "LIST", NULL },
	{ OPT_WRITE_AREA, "write-area", "AREA", NULL },
	{ OPT_FORCE, "force", NULL, "write although the device holds a file system or a log" },
	{ OPT_SIZE, "size", "SIZE",
	  "size of the tested part or file (default: 512M, a file: 128M)" },
	{ OPT_YES, "yes", NULL, "answer questions with yes" },
	{ OPT_COMPARE, "compare", "FILE",
	  "show the result that --json wrote to FILE beside this one" },
	{ OPT_HTML, "html", "FILE", "write a page with tables and plots to FILE as well" },
	{ OPT_SEED, "seed", "N", NULL /* of data and offsets, for tests */ },
	{ OPT_JSON, "json", NULL, NULL },
	{ 0 },
};

const struct option_spec *bench_options(void)
{
	return specs;
}

/* ---- arguments ---- */

struct arguments {
	struct bench_request rq;
	struct bench_run run;
	struct json_object *former;
};

static int parse_tables(const char *text, unsigned *ret, struct failure *f)
{
	static const char *const names[] = {
#define X(id, name) [id] = name,
		BENCH_TABLES(X)
#undef X
	};
	unsigned mask = 0;

	if (!strcmp(text, "all")) {
		*ret = (1u << BENCH_TABLE_COUNT) - 1;
		return 0;
	}
	while (true) {
		size_t len = strcspn(text, ","), i = 0;

		while (i < ARRAY_SIZE(names) &&
		       (strlen(names[i]) != len || memcmp(names[i], text, len)))
			i++;
		if (i == ARRAY_SIZE(names))
			return failure_set(f, EXIT_USAGE, -EINVAL,
					   "--tables: there is no table %.*s",
					   (int)min_u64(len, 40), text);
		mask |= 1u << i;
		if (!text[len])
			break;
		text += len + 1;
	}
	*ret = mask;
	return 0;
}

static int parse_area(const char *text, struct bench_request *rq, struct failure *f)
{
	rq->write = !strcmp(text, "all");
	if (rq->write)
		return 0;
	if (parse_range(text, &rq->write_off_bytes, &rq->write_len_bytes) == 0 &&
	    rq->write_len_bytes)
		return 0;
	return failure_set(f, EXIT_USAGE, -EINVAL,
			   "--write-area %s is not START+LENGTH, such as 512M+256M, or all",
			   CLEAN(text));
}

static int parse_arguments(const struct options *o, struct arguments *a, struct failure *f)
{
	const char *size = o->value[OPT_SIZE], *area = o->value[OPT_WRITE_AREA],
		   *seed = o->value[OPT_SEED];

	a->rq.path = o->operand[0];
	if (strchr(a->rq.path, '=') && *a->rq.path != '/')
		a->rq.path = blkid_evaluate_spec(a->rq.path, NULL); /* never freed */
	if (!a->rq.path)
		return failure_set(f, EXIT_FAILED, -ENODEV, "no device has %s", o->operand[0]);
	a->rq.force = o->value[OPT_FORCE] != NULL;
	a->run.quiet = !isatty(STDERR_FILENO);
	a->run.seed = 1;
	if (size && (parse_size(size, &a->rq.size_bytes) < 0 || !a->rq.size_bytes))
		return failure_set(f, EXIT_USAGE, -EINVAL, "--size %s is not a size such as 512M",
				   CLEAN(size));
	if (seed && parse_u64(seed, &a->run.seed) < 0)
		return failure_set(f, EXIT_USAGE, -EINVAL, "--seed %s is not a number",
				   CLEAN(seed));
	if (area && parse_area(area, &a->rq, f) < 0)
		return f->error;
	return parse_tables(o->value[OPT_TABLES], &a->run.tables, f);
}

static int read_former(const char *path, struct json_object **ret, struct failure *f)
{
	_cleanup_free_ char *text = calloc(1, FORMER_BYTES + 1);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n = 1;
	struct json_object *doc;

	while (fd >= 0 && text && n > 0 && len < FORMER_BYTES) {
		n = read(fd, text + len, FORMER_BYTES - len);
		len += n > 0 ? (size_t)n : 0;
	}
	if (fd < 0 || !text || n < 0)
		return failure_set(f, EXIT_FAILED, -errno, "%s cannot be read: %s", path,
				   strerrordesc_np(errno));
	doc = len < FORMER_BYTES ? json_tokener_parse(text) : NULL;
	if (!json_object_is_type(doc, json_type_object) || !json_true(doc, "ok") ||
	    json_u64(doc, "schema") != JSON_SCHEMA || strcmp(json_text(doc, "command"), "bench")) {
		json_object_put(doc);
		return failure_set(
			f, EXIT_FAILED, -EINVAL,
			"%s is not what 'cowctl measure --tables --json' prints (schema %d)", path,
			JSON_SCHEMA);
	}
	/* of a comparison itself: it would grow with each of them */
	json_object_object_del(doc, "before");
	*ret = doc;
	return 0;
}

/* ---- the page ---- */

/* Writes a page, or nothing (doc NULL): to know before the measurement that it can be written. */
static int write_page(const char *path, struct json_object *doc, struct json_object *former,
		      struct failure *f)
{
	_cleanup_free_ char *page = NULL;
	size_t len = 0;
	FILE *out = doc ? open_memstream(&page, &len) : NULL;
	int e = doc && !out ? -errno : 0;
	char why[2 * PATH_MAX] = "";

	if (out)
		bench_page(out, doc, former);
	if (out && fclose(out))
		e = -errno;
	if (e == 0)
		e = path_replace_file(path, page, len, why, sizeof(why));
	if (e == -ENAMETOOLONG)
		return failure_set(f, EXIT_USAGE, e, "--html FILE is too long");
	return e < 0 ? failure_set(f, EXIT_FAILED, e, "%s cannot be written: %s", path,
				   *why		  ? why
				   : e == -EINVAL ? "it is not a regular file"
						  : strerrordesc_np(-e))
		     : 0;
}

/* ---- questions ---- */

static void explain(const struct arguments *a)
{
	const struct bench_run *b = &a->run;

	fprintf(stderr,
		"%s: %s from %s on will be overwritten. The device holds %s, which may be destroyed\n",
		CLEAN(b->t.path), FORMAT_SIZE(b->t.len_bytes), FORMAT_SIZE(b->t.off_bytes),
		b->t.content);
}

static int ask(const struct options *o, const struct arguments *a, struct failure *f)
{
	const struct bench_run *b = &a->run;
	char answer[16];

	if (!*b->t.content)
		return 0;
	/* nobody reads it beside an answer in JSON */
	if (!o->value[OPT_JSON] || isatty(STDIN_FILENO))
		explain(a);
	if (o->value[OPT_YES])
		return 0;
	if (!isatty(STDIN_FILENO))
		return failure_set(f, EXIT_FAILED, -EPERM,
				   "%s: standard input is not a terminal to confirm this; --yes "
				   "confirms it",
				   b->t.path);
	fputs("Continue? [y/N] ", stderr);
	if (!fgets(answer, sizeof(answer), stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
		return failure_set(f, EXIT_FAILED, -ECANCELED, "%s: nothing was measured",
				   b->t.path);
	return 0;
}

/* ---- main ---- */

static int measure(const struct options *o, struct arguments *a, struct failure *f)
{
	const char *html = o->value[OPT_HTML], *compare = o->value[OPT_COMPARE];
	struct bench_run *b = &a->run;
	char version[64];
	int e = fio_find(version, sizeof(version), f);

	if (e == 0 && compare)
		e = read_former(compare, &a->former, f);
	if (e == 0 && html)
		e = write_page(html, NULL, NULL, f);
	if (e < 0)
		return e;
	a->rq.default_bytes = QUICK_DEVICE_BYTES;
	a->rq.default_file_bytes = QUICK_FILE_BYTES;
	a->rq.extra_bytes = bench_extra_bytes(b);
	e = bench_open(&a->rq, &b->t, f);
	if (e < 0)
		return e;
	b->f = f;
	bench_plan(b);
	e = ask(o, a, f);
	if (e == 0) {
		fio_signals();
		e = bench_run(b, version);
	}
	bench_close(&b->t);
	return e;
}

/* The result first: it took minutes. */
static int show(const struct options *o, struct arguments *a)
{
	struct failure f;

	if (o->value[OPT_JSON]) {
		if (a->former)
			json_object_object_add(a->run.doc, "before", json_object_get(a->former));
		json_print(a->run.doc);
	} else {
		bench_text(stdout, a->run.doc, a->former);
	}
	if (fflush(stdout) == EOF || ferror(stdout)) {
		fprintf(stderr, "cowctl: cannot write the result\n");
		return EXIT_FAILED;
	}
	if (o->value[OPT_HTML] && write_page(o->value[OPT_HTML], a->run.doc, a->former, &f) < 0) {
		fprintf(stderr, "cowctl: %s\n", f.why);
		return EXIT_FAILED;
	}
	return EXIT_OK;
}

int bench_main(int argc, char **argv)
{
	struct arguments a = { 0 };
	struct options *o = calloc(1, sizeof(*o));
	struct failure f = { 0 };
	char why[256];
	int e, exit;

	if (!o)
		return EXIT_FAILED;
	if (options_parse(argc - 1, argv + 1, specs, o, why, sizeof(why)) < 0) {
		/* the option may stand behind the wrong one */
		if (options_name_given(argc, argv, "json"))
			o->value[OPT_JSON] = "";
		e = failure_set(&f, EXIT_USAGE, -EINVAL, "%s; see: cowctl measure --help", why);
	} else if (o->operands != 1) {
		e = failure_set(&f, EXIT_USAGE, -EINVAL,
				"usage: cowctl measure --tables LIST [OPTION]... DEVICE|DIR");
	} else {
		e = parse_arguments(o, &a, &f);
		e = e ? e : measure(o, &a, &f);
	}
	exit = e < 0 ? failure_print(&f, f.exit, o->value[OPT_JSON]) : show(o, &a);
	json_object_put(a.run.doc);
	json_object_put(a.former);
	free(o);
	if (fio_signal())
		fio_pass_signal();
	return exit;
}
