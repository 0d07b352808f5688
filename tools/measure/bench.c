/* SPDX-License-Identifier: MIT */
/* cowctl measure --tables: what may be read and written. What is then measured, with fio, and shown is tables.py. */
#include "measure/bench.h"

#include <blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"
#include "base/path.h"
#include "config/options.h"
#include "measure/bench_target.h"
#include "sim/profile.h"
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
/* of further files in a directory, by the tables of these names */
#define FRAGMENTS_BYTES (64 * MIB)
#define IOZONE_BYTES (2 * MIB)

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
	struct bench_target t;
	uint64_t seed;
	struct json_object *tables;
};

static int parse_tables(const char *text, struct json_object **ret, struct failure *f)
{
	static const char *const names[] = { "linear", "seek",	 "random",
					     "mix",    "iozone", "fragments" };

	*ret = json_object_new_array();
	if (!strcmp(text, "all"))
		text = "linear,seek,random,mix,iozone,fragments";
	for (size_t len = strcspn(text, ",");; text += len + 1, len = strcspn(text, ",")) {
		size_t i = 0;

		while (i < ARRAY_SIZE(names) &&
		       (strlen(names[i]) != len || memcmp(names[i], text, len)))
			i++;
		if (i == ARRAY_SIZE(names))
			return failure_set(f, EXIT_USAGE, -EINVAL,
					   "--tables: there is no table %.*s",
					   (int)min_u64(len, 40), text);
		json_object_array_add(*ret, json_object_new_string(names[i]));
		if (!text[len])
			return 0;
	}
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
	a->seed = 1;
	if (size && (parse_size(size, &a->rq.size_bytes) < 0 || !a->rq.size_bytes))
		return failure_set(f, EXIT_USAGE, -EINVAL, "--size %s is not a size such as 512M",
				   CLEAN(size));
	if (seed && parse_u64(seed, &a->seed) < 0)
		return failure_set(f, EXIT_USAGE, -EINVAL, "--seed %s is not a number",
				   CLEAN(seed));
	if (area && parse_area(area, &a->rq, f) < 0)
		return f->error;
	return parse_tables(o->value[OPT_TABLES], &a->tables, f);
}

/* ---- questions ---- */

static void explain(const struct arguments *a)
{
	const struct bench_target *t = &a->t;

	fprintf(stderr,
		"%s: %s from %s on will be overwritten. The device holds %s, which may be destroyed\n",
		CLEAN(t->path), FORMAT_SIZE(t->len_bytes), FORMAT_SIZE(t->off_bytes), t->content);
}

static int ask(const struct options *o, const struct arguments *a, struct failure *f)
{
	const struct bench_target *t = &a->t;
	char answer[16];

	if (!*t->content)
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
				   t->path);
	fputs("Continue? [y/N] ", stderr);
	if (!fgets(answer, sizeof(answer), stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
		return failure_set(f, EXIT_FAILED, -ECANCELED, "%s: nothing was measured", t->path);
	return 0;
}

/* ---- what tables.py gets ---- */

/* The published cards and disks of the page; the first is also beside the tables. */
static struct json_object *published_cards(void)
{
	static const char *const ids[] = { "lexar-300x-8g", "kingston-266x-32g",
					   "sandisk-extreme-usb-16g-usb2", "hdd-5400-laptop" };
	static const struct {
		const char *key;
		uint64_t (*ns)(const struct flash_profile *p, uint64_t len_bytes);
	} times[] = { { "read_ns", flash_read_ns },
		      { "write_ns", flash_write_ns },
		      { "random_read_ns", flash_random_read_ns },
		      { "random_write_ns", flash_random_write_ns } };
	struct json_object *list = json_object_new_array(), *o, *rows, *row;
	struct flash_profile p;

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		if (flash_profile_get(&p, ids[i]) < 0)
			continue;
		o = json_object_new_object();
		json_object_array_add(list, o);
		json_object_object_add(o, "id", json_object_new_string(p.id));
		json_object_object_add(o, "title", json_object_new_string(p.title));
		json_object_object_add(o, "source", json_object_new_string(p.source));
		json_object_object_add(o, "writes", json_object_new_boolean(p.has_write));
		json_object_object_add(o, "sync_ns", json_object_new_uint64(flash_sync_ns(&p)));
		for (size_t k = 0; k < ARRAY_SIZE(times); k++) {
			rows = json_object_new_array();
			for (uint64_t size = 512; size <= 16 * MIB; size *= 2) {
				row = json_object_new_array();
				json_object_array_add(row, json_object_new_uint64(size));
				json_object_array_add(
					row, json_object_new_uint64(times[k].ns(&p, size)));
				json_object_array_add(rows, row);
			}
			json_object_object_add(o, times[k].key, rows);
		}
	}
	return list;
}

static void add_target(struct json_object *o, const struct bench_target *t)
{
	const struct {
		const char *key;
		uint64_t v;
	} numbers[] = { { "size_bytes", t->size_bytes },
			{ "sector_bytes", t->sector_bytes },
			{ "test_offset_bytes", t->off_bytes },
			{ "test_bytes", t->len_bytes },
			{ "erase_block_bytes", t->unit_bytes } };
	const struct {
		const char *key, *v;
	} texts[] = { { "path", t->path },
		      { "model", t->model },
		      { "identity", t->identity },
		      { "raid", t->raid },
		      { "fs_type", t->fs } };

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		json_object_object_add(o, numbers[i].key, json_object_new_uint64(numbers[i].v));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		json_object_object_add(o, texts[i].key, json_object_new_string(texts[i].v));
	json_object_object_add(o, "erase_block_guessed", json_object_new_boolean(t->unit_guessed));
	json_object_object_add(o, "direct", json_object_new_boolean(t->direct));
	json_object_object_add(o, "writes", json_object_new_boolean(t->writes));
	json_object_object_add(o, "fd", json_object_new_int(t->fd));
	json_object_object_add(o, "dir_fd", json_object_new_int(t->dir_fd));
}

static void add_text(struct json_object *o, const char *key, const char *text)
{
	json_object_object_add(o, key, text ? json_object_new_string(text) : NULL);
}

/* The folder of the page, looked up once; tables.py makes and renames in it. */
static int open_page_folder(const char *path, struct json_object *o, struct failure *f)
{
	const char *slash = strrchr(path, '/');
	char folder[PATH_MAX], why[2 * PATH_MAX];
	int fd;

	if (snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1,
		     slash ? path : ".") >= (int)sizeof(folder))
		return failure_set(f, EXIT_USAGE, -ENAMETOOLONG, "--html FILE is too long");
	fd = path_open(folder, O_PATH | O_DIRECTORY, why, sizeof(why));
	if (fd < 0)
		return failure_set(f, EXIT_FAILED, fd, "%s cannot be written: %s", path,
				   *why ? why : strerrordesc_np(-fd));
	(void)fcntl(fd, F_SETFD, 0);
	add_text(o, "html_name", slash ? slash + 1 : path);
	json_object_object_add(o, "html_dir_fd", json_object_new_int(fd));
	return 0;
}

/* Becomes tables.py, which lies in the folder measure beside this program. Returns only on failure. */
static int become_tables(struct json_object *rq, struct failure *f)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof("measure/tables.py"));

	if (n < 0)
		return failure_set(f, EXIT_FAILED, -errno, "/proc/self/exe: %s",
				   strerrordesc_np(errno));
	path[n] = '\0';
	strcpy(strrchr(path, '/') + 1, "measure/tables.py");
	signal(SIGCHLD, SIG_DFL); /* ignored, as some starters leave it, fio's end would be lost */
	execlp("python3", "python3", "-I", "-B", path,
	       json_object_to_json_string_ext(rq, JSON_C_TO_STRING_PLAIN), NULL);
	return failure_set(f, EXIT_FAILED, -errno, "python3: %s: install the package python3",
			   strerrordesc_np(errno));
}

/* ---- main ---- */

static uint64_t extra_bytes(struct json_object *tables)
{
	uint64_t extra = 0;

	for (size_t i = 0; i < json_object_array_length(tables); i++) {
		const char *name = json_object_get_string(json_object_array_get_idx(tables, i));

		if (!strcmp(name, "fragments"))
			extra = FRAGMENTS_BYTES;
		else if (!strcmp(name, "iozone"))
			extra = max_u64(extra, IOZONE_BYTES);
	}
	return extra;
}

static int measure(const struct options *o, struct arguments *a, struct failure *f)
{
	struct json_object *rq = json_object_new_object();
	int e = 0;

	a->rq.default_bytes = QUICK_DEVICE_BYTES;
	a->rq.default_file_bytes = QUICK_FILE_BYTES;
	a->rq.extra_bytes = extra_bytes(a->tables);
	if (o->value[OPT_HTML])
		e = open_page_folder(o->value[OPT_HTML], rq, f);
	if (e == 0)
		e = bench_open(&a->rq, &a->t, f);
	if (e == 0)
		e = ask(o, a, f);
	if (e == 0) {
		add_target(rq, &a->t);
		add_text(rq, "html", o->value[OPT_HTML]);
		add_text(rq, "compare", o->value[OPT_COMPARE]);
		json_object_object_add(rq, "json",
				       json_object_new_boolean(o->value[OPT_JSON] != NULL));
		json_object_object_add(rq, "schema", json_object_new_int(JSON_SCHEMA));
		json_object_object_add(rq, "seed", json_object_new_uint64(a->seed));
		json_object_object_add(rq, "tables", json_object_get(a->tables));
		json_object_object_add(rq, "published", published_cards());
		e = become_tables(rq, f);
		bench_close(&a->t);
	}
	json_object_put(rq);
	return e;
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
	exit = failure_print(&f, e < 0 ? f.exit : EXIT_FAILED, o->value[OPT_JSON]);
	json_object_put(a.tables);
	free(o);
	return exit;
}
