/* SPDX-License-Identifier: MIT */
/* cowctl measure: arguments, the checks before anything is written, and where the result goes. */
#include "measure/measure.h"

#include <blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/clean.h"
#include "base/numbers.h"
#include "base/parse.h"
#include "base/path.h"
#include "config/options.h"
#include "measure/bench.h"
#include "measure/bench_target.h"
#include "measure/engine.h"
#include "offline/measured.h"
#include "wire/json.h"
#include "wire/progress.h"

/* for the share of the card's life, where nothing is known */
#define CYCLES 1000
#define AMPLIFIED 4 /* what the card programs for each byte here */

enum {
	OPT_TABLES,
	OPT_WRITE_AREA,
	OPT_SAVE,
	OPT_OUTPUT,
	OPT_CONVERT,
	OPT_SHARE,
	OPT_RAW,
	OPT_SEED,
	OPT_JSON,
	OPT_HELP
};

static const struct option_spec specs[] = {
	{ OPT_WRITE_AREA, "write-area", "AREA",
	  "what may be overwritten: START+LENGTH, or all for a device without content (default: free "
	  "room of the log)" },
	{ OPT_SAVE, "save", NULL,
	  "make the result the profile of this card: below /etc/cowfs/profiles" },
	{ OPT_OUTPUT, "output", "FILE", "write the profile to FILE" },
	{ OPT_CONVERT, "convert", "FILE",
	  "measure nothing: make a profile of a FILE in JSON, as --share and cowfs 0.1 write it" },
	{ OPT_SHARE, "share", "FILE",
	  "write a profile to FILE that names neither this card nor its machine, for everybody who has such a card" },
	{ OPT_RAW, "raw", "FILE", "write each request and its time to FILE" },
	{ OPT_SEED, "seed", "N", NULL /* of places and data, for tests */ },
	{ OPT_TABLES, "tables", "LIST",
	  "instead of a profile the tables of published reports: all, or some of linear, seek, random, mix, iozone "
	  "and fragments, separated by commas" },
	{ OPT_JSON, "json", NULL, "print the result as JSON" },
	{ OPT_HELP, "help", NULL, "show this help" },
	{ 0, NULL, NULL, NULL }
};

struct command {
	struct options o;
	const char *device;
	uint64_t start_bytes, end_bytes, seed;
	struct measured_facts facts;
	int path_fd;	     /* O_PATH of DEVICE */
	struct stat checked; /* of it */
	char save[512];	     /* "": nowhere */
	FILE *raw;	     /* NULL: nowhere */
	bool in_log;	     /* without an area */
	/* open until the end: with its log, or to see that it is there */
	struct measured_card *card;
};

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static int failed(const struct command *c, struct failure *f)
{
	(void)measured_lost(c->card, f->error,
			    c->in_log ? "Its file system and its log are whole"
				      : "Nothing outside of the area was written",
			    f);
	return failure_print(f, f->exit, c->o.value[OPT_JSON]);
}

static int PRINTF(4, 5)
	complain(const struct command *c, enum exit_code exit, int e, const char *fmt, ...)
{
	struct failure f;
	va_list ap;

	va_start(ap, fmt);
	failure_vset(&f, exit, e, fmt, ap);
	va_end(ap);
	return failed(c, &f);
}

static void help(void)
{
	puts("usage: cowctl measure [OPTION]... DEVICE|DIR\n"
	     "measure a card, and make its profile, or with --tables some tables\n"
	     "Overwrites the area that --write-area names, or else free room of the log of cowfs on "
	     "DEVICE, and nothing else. DEVICE may also be a file.\n"
	     "With --tables a device is only read without --write-area. In DIR a temporary file is written.\n");
	options_help(stdout, specs);
	puts("\nWith --tables:");
	options_help(stdout, bench_options());
}

static bool is_device(const struct command *c, const struct stat *st)
{
	return S_ISBLK(c->checked.st_mode)
		       ? S_ISBLK(st->st_mode) && st->st_rdev == c->checked.st_rdev
		       : st->st_dev == c->checked.st_dev && st->st_ino == c->checked.st_ino;
}

/* ---- where may it write? ---- */

static int parse_area(struct command *c)
{
	const char *text = c->o.value[OPT_WRITE_AREA];
	uint64_t len;

	if (!strcmp(text, "all")) {
		c->start_bytes = 0;
		c->end_bytes = UINT64_MAX;
		return 0;
	}
	if (parse_range(text, &c->start_bytes, &len) < 0 || c->start_bytes % COW_BLK_BYTES ||
	    len % COW_BLK_BYTES || len > UINT64_MAX - c->start_bytes)
		return -EINVAL;
	c->end_bytes = c->start_bytes + len;
	return 0;
}

/* Is the card that was opened by its path what will be written? */
static bool is_opened(const struct command *c)
{
	struct stat st;

	return fstat(measured_fd(c->card), &st) == 0 && is_device(c, &st);
}

static int check_device(struct command *c)
{
	char why[2 * PATH_MAX];
	struct failure fail;
	int e;

	c->path_fd = path_open(c->device, O_PATH, why, sizeof(why));
	e = c->path_fd < 0 ? c->path_fd : fstat(c->path_fd, &c->checked) < 0 ? -errno : 0;
	if (e < 0)
		return complain(c, EXIT_FAILED, e, "%s: %s", c->device,
				*why ? why : strerrordesc_np(-e));
	e = measured_open(&c->card, c->device, c->in_log, &c->facts, &fail);
	if (e == 0 && !is_opened(c))
		e = failure_set(&fail, EXIT_FAILED, -ESTALE,
				"%s: was replaced by another file meanwhile", c->device);
	if (e == 0 && S_ISBLK(c->checked.st_mode))
		e = bench_check_users(c->device, c->checked.st_rdev, &fail);
	if (e == 0)
		e = c->in_log ? measured_check_log(c->card, &fail)
			      : measured_check_area(c->card, c->path_fd, c->start_bytes,
						    &c->end_bytes, &fail);
	e = e < 0 ? failed(c, &fail) : EXIT_OK;
	/* the claim is that of open_target */
	if (!c->in_log && c->card)
		measured_unclaim(c->card);
	return e;
}

/* ---- the room of the log ---- */

static int begin_in_log(struct command *c)
{
	struct failure fail;

	return measured_begin(c->card, MEASURE_WORK_BYTES, MEASURE_LEAST_BYTES, &c->start_bytes,
			      &c->end_bytes, &fail) < 0
		       ? failed(c, &fail)
		       : EXIT_OK;
}

/* The ledger of the card counts what was written. */
static void end_in_log(struct command *c)
{
	uint64_t written_bytes;
	int e = measured_end(c->card, &written_bytes);

	if (e < 0)
		fprintf(stderr, "%s: the wear ledger lacks this measurement, which wrote %s: %s\n",
			c->device, FORMAT_MIB(written_bytes), strerrordesc_np(-e));
}

static int open_target(struct command *c, struct target **ret)
{
	/* in the log the open card has the claim */
	bool claim = !c->in_log && S_ISBLK(c->checked.st_mode);
	int fd = path_reopen(c->path_fd, O_RDWR | (claim ? O_EXCL : 0)), e = fd, on = 0;

	if (fd >= 0 && !c->in_log && S_ISREG(c->checked.st_mode) &&
	    flock(fd, LOCK_EX | LOCK_NB) < 0) {
		close(fd);
		e = -EBUSY;
	}
	if (e < 0)
		return complain(c, EXIT_FAILED, e, "%s: %s", c->device,
				e == -EROFS || e == -EACCES ? "is write-protected"
				: e == -EBUSY		    ? "is in use"
							    : strerrordesc_np(-e));
	if (S_ISBLK(c->checked.st_mode) && ioctl(fd, BLKROGET, &on) == 0 && on) {
		close(fd);
		return complain(c, EXIT_FAILED, -EROFS, "%s: is write-protected", c->device);
	}
	e = target_open_fd(ret, fd, c->start_bytes, c->end_bytes);
	if (e < 0) {
		close(fd);
		return complain(c, EXIT_FAILED, e, "%s: %s", c->device, strerrordesc_np(-e));
	}
	(*ret)->disk_off_bytes = c->facts.disk_off_bytes;
	if (c->in_log) {
		(*ret)->disk_off_bytes = round_down_u64(c->facts.disk_off_bytes, COW_BLK_BYTES);
		target_write_through(*ret, c->card);
	}
	return EXIT_OK;
}

/* ---- results ---- */

/* text NULL: only finds out whether it can be written. */
static int write_text(const struct command *c, const char *path, const char *text)
{
	char why[2 * PATH_MAX];
	struct stat st;
	int e;

	if (stat(path, &st) == 0 && is_device(c, &st))
		return complain(c, EXIT_FAILED, -EINVAL, "%s: is what is measured", path);
	e = path_replace_file(path, text, text ? strlen(text) : 0, why, sizeof(why));
	return e == 0 ? EXIT_OK
		      : complain(c, EXIT_FAILED, e, "%s: %s", path,
				 *why		? why
				 : e == -EINVAL ? "is not a regular file"
						: strerrordesc_np(-e));
}

static void make_folder(const struct command *c)
{
	char dir[sizeof(c->save)];

	snprintf(dir, sizeof(dir), "%s", c->save);
	for (char *p = strchr(dir + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		(void)mkdir(dir, 0755);
		*p = '/';
	}
}

/* What could not be written must not be found out when the card has been measured. */
static int check_results(struct command *c)
{
	const char *paths[] = { c->o.value[OPT_OUTPUT], c->o.value[OPT_SHARE],
				*c->save ? c->save : NULL },
		   *raw = c->o.value[OPT_RAW];
	char why[2 * PATH_MAX];
	struct stat st;
	int fd;

	if (*c->save)
		make_folder(c);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		if (paths[i] && write_text(c, paths[i], NULL) != EXIT_OK)
			return EXIT_FAILED;
	if (raw && stat(raw, &st) == 0 && is_device(c, &st))
		return complain(c, EXIT_FAILED, -EINVAL, "%s: is what is measured", raw);
	fd = raw ? path_create_file(raw, 0644, why, sizeof(why)) : -1;
	if (raw && fd < 0)
		return complain(c, EXIT_FAILED, fd, "%s: %s", raw,
				*why ? why : strerrordesc_np(-fd));
	c->raw = raw ? fdopen(fd, "w") : NULL;
	return EXIT_OK;
}

static const char *pretty(struct json_object *profile)
{
	return json_object_to_json_string_ext(profile,
					      JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED);
}

/* The profile as the planner reads it. NULL, and says why. */
static char *card_text(const struct command *c, const char *json, const char *path)
{
	struct flash_profiles *ps;
	char why[512], *text = NULL;
	size_t len;
	int e = json ? flash_profiles_parse(&ps, json, strlen(json), why, sizeof(why))
		     : flash_profiles_open(&ps, path, why, sizeof(why));
	FILE *f;

	if (e < 0) {
		(void)complain(c, EXIT_FAILED, e, "%s: %s", path, why);
		return NULL;
	}
	f = open_memstream(&text, &len);
	if (f) {
		fputs("# cowfs.conf(5), profile\n", f);
		flash_profiles_write(f, ps, true);
		(void)fclose(f);
	}
	flash_profiles_close(ps);
	return text;
}

static int convert(const struct command *c)
{
	_cleanup_free_ char *text = card_text(c, NULL, c->o.value[OPT_CONVERT]);

	if (text && c->o.value[OPT_OUTPUT])
		return write_text(c, c->o.value[OPT_OUTPUT], text);
	if (text)
		fputs(text, stdout);
	return text ? EXIT_OK : EXIT_FAILED;
}

static int save(const struct command *c, const char *json)
{
	_cleanup_free_ char *text = card_text(c, json, c->device);
	const char *output = c->o.value[OPT_OUTPUT];
	int exit = !text ? EXIT_FAILED : output ? write_text(c, output, text) : EXIT_OK;

	return exit == EXIT_OK && *c->save ? write_text(c, c->save, text) : exit;
}

/* One line each: phase, kind, offset, length, nanoseconds. */
static int write_raw(const struct command *c, const struct measurement *m)
{
	static const char *const kinds[] = { "read", "write", "flush", "discard" };
	int e = 0;

	if (!c->raw)
		return EXIT_OK;
	for (size_t i = 0; i < m->s.n; i++) {
		const struct sample *s = &m->s.at[i];

		if (fprintf(c->raw, "%s\t%s\t%llu\t%llu\t%llu\n",
			    measure_phase_name((enum measure_phase)s->phase), kinds[s->kind],
			    (unsigned long long)s->off_bytes, (unsigned long long)s->len_bytes,
			    (unsigned long long)s->ns) < 0 &&
		    e == 0)
			e = -errno;
	}
	if (fclose(c->raw) == EOF && e == 0)
		e = -errno;
	return e ? complain(c, EXIT_FAILED, e, "%s: %s", c->o.value[OPT_RAW], strerrordesc_np(-e))
		 : EXIT_OK;
}

/* Without a word about this very card, its machine or its owner: for everybody who has such a card. */
static int share(const struct command *c, const struct measurement *m)
{
	const char *path = c->o.value[OPT_SHARE];
	struct json_object *profile;
	int exit;

	if (!path)
		return EXIT_OK;
	profile = names_shared(c->device, m);
	exit = write_text(c, path, pretty(profile));
	json_object_put(profile);
	return exit;
}

static int report(const struct command *c, const struct measurement *m)
{
	struct json_object *profile, *all;
	int exit = share(c, m);

	profile = names_own(c->device, c->facts.identity, c->start_bytes, c->end_bytes, m);
	if (exit == EXIT_OK)
		exit = save(c, pretty(profile));
	if (exit != EXIT_OK && c->o.value[OPT_JSON]) {
		json_object_put(profile);
		return exit;
	}
	if (c->o.value[OPT_JSON]) {
		all = json_answer(true);
		json_object_object_add(all, "profile", profile);
		json_object_object_add(all, "figures", result_figures(m));
		if (c->o.value[OPT_SAVE])
			json_object_object_add(all, "saved", json_object_new_string(c->save));
		json_print(all);
		json_object_put(all);
		return EXIT_OK;
	}
	printf("%s: measured in %s, %s written\n", c->device, SPAN((double)m->took_ns / 1e9),
	       FORMAT_MIB(m->written_bytes));
	result_print(m);
	if (exit == EXIT_OK && c->o.value[OPT_SAVE])
		printf("saved                 %s: found by profile=auto from the next attach on. An "
		       "initramfs has it once it is rebuilt\n",
		       c->save);
	if (exit == EXIT_OK && c->o.value[OPT_SHARE])
		printf("to share              %s: read it, and see CONTRIBUTING.md for what to do with it\n",
		       c->o.value[OPT_SHARE]);
	json_object_put(profile);
	return exit;
}

/* ---- the command ---- */

static void say_price(const struct command *c)
{
	uint64_t plan = measure_plan_bytes(c->end_bytes - c->start_bytes);

	if (c->o.value[OPT_JSON])
		return;
	fprintf(stderr,
		"%s: overwrites %llu+%llu%s. Writes at most %s, which takes about 2 to 10 minutes and "
		"%.4f %% of the card's life (at %d erase cycles). Ctrl-C stops it\n",
		c->device, (unsigned long long)c->start_bytes,
		(unsigned long long)(c->end_bytes - c->start_bytes),
		c->in_log ? ", free room of its log" : "", FORMAT_MIB(plan),
		100.0 * AMPLIFIED * (double)plan / ((double)c->facts.size_bytes * CYCLES), CYCLES);
}

static int run(struct command *c)
{
	struct progress progress;
	struct measure_params p = {
		.seed = c->seed, .progress = progress_show, .ctx = &progress, .stop = &stop
	};
	struct sigaction sa = { .sa_handler = on_signal };
	static struct measurement m;
	struct target *t = NULL;
	int e, exit = c->in_log ? begin_in_log(c) : EXIT_OK;

	if (exit == EXIT_OK)
		exit = open_target(c, &t);
	if (exit != EXIT_OK)
		return exit;
	if (c->facts.reports_erase_block)
		p.reported_unit_bytes = c->facts.erase_block_bytes;
	say_price(c);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	progress_start(&progress);
	e = measure_run(&m, t, &p);
	progress_end(&progress);
	if (c->in_log)
		end_in_log(c);
	exit = write_raw(c, &m);
	if (e < 0) {
		exit = complain(c, EXIT_FAILED, e, "%s: %s. There is no profile%s", c->device,
				m.why, e == -EINTR ? ", and only the area was written" : "");
	} else if (exit == EXIT_OK || !c->o.value[OPT_JSON]) {
		int other = report(c, &m);

		exit = exit == EXIT_OK ? other : exit;
	}
	measure_free(&m);
	target_close(t);
	return exit;
}

static int arguments(struct command *c)
{
	const char *tag = c->o.operand[0];

	c->seed = 1;
	if (c->o.value[OPT_SEED] && parse_u64(c->o.value[OPT_SEED], &c->seed) < 0)
		return complain(c, EXIT_USAGE, -EINVAL, "measure: --seed is a number, not '%s'",
				c->o.value[OPT_SEED]);
	c->device = tag;
	if (strchr(tag, '=') && *tag != '/')
		c->device = blkid_evaluate_spec(tag, NULL); /* lives as long as the program */
	if (!c->device)
		return complain(c, EXIT_FAILED, -ENODEV, "no device has %s", tag);
	if (access(c->device, F_OK) < 0)
		return complain(c, EXIT_FAILED, -errno, "%s: %s", c->device,
				strerrordesc_np(errno));
	c->in_log = !c->o.value[OPT_WRITE_AREA];
	if (!c->in_log && parse_area(c) < 0)
		return complain(c, EXIT_USAGE, -EINVAL,
				"measure: --write-area is START+LENGTH in multiples of 4 KiB, or "
				"all, not '%s'",
				c->o.value[OPT_WRITE_AREA]);
	return EXIT_OK;
}

int measure_main(int argc, char **argv)
{
	struct command *c = calloc(1, sizeof(*c));
	char why[256];
	int exit;

	if (!c)
		return EXIT_FAILED;
	if (options_parse(argc - 1, argv + 1, specs, &c->o, why, sizeof(why)) < 0) {
		/* the option may stand behind the wrong one */
		if (options_name_given(argc, argv, "json"))
			c->o.value[OPT_JSON] = "";
		exit = complain(c, EXIT_USAGE, -EINVAL, "measure: %s (try 'cowctl measure --help')",
				why);
	} else if (c->o.value[OPT_HELP]) {
		help();
		exit = EXIT_OK;
	} else if (c->o.value[OPT_CONVERT] && !c->o.operands) {
		exit = convert(c);
	} else if (c->o.operands != 1 || c->o.value[OPT_CONVERT]) {
		exit = complain(c, EXIT_USAGE, -EINVAL,
				"usage: cowctl measure [OPTION]... DEVICE|DIR");
	} else {
		exit = arguments(c);
		if (exit == EXIT_OK)
			exit = check_device(c);
		if (exit == EXIT_OK && c->o.value[OPT_SAVE] &&
		    costs_saved(c->facts.identity, c->save, sizeof(c->save)) < 0)
			exit = complain(c, EXIT_FAILED, -ENOENT,
					"%s: reports no identity by which --save could name its "
					"profile: use --output FILE, and profile=FILE",
					c->device);
		if (exit == EXIT_OK)
			exit = check_results(c);
		if (exit == EXIT_OK)
			exit = run(c);
		measured_close(c->card);
	}
	free(c);
	return exit;
}
