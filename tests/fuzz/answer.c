/* SPDX-License-Identifier: MIT */
/*
 * What a worker says, and the file of facts: any bytes. Names are those of the file, nothing has another form than the
 * protocol, and what prints an answer takes each that was decoded.
 *
 * Input: the file, a zero byte, the answer.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/clean.h"
#include "base/io.h"
#include "cli/cmd.h"
#include "fuzz.h"
#include "wire/client.h"
#include "wire/json.h"

#define NAME "vol"

static char run_path[] = "/tmp/cowfs-fuzz-XXXXXX";
static int run_fd = -1;
static FILE *null;
static struct rundir dir = { -1, -1, -1, NAME };

static void stop(void)
{
	unlinkat(dir.fd, RUNDIR_FACTS, 0);
	unlinkat(run_fd, NAME, AT_REMOVEDIR);
	rmdir(run_path);
}

static void start(void)
{
	if (!mkdtemp(run_path) ||
	    (run_fd = open(run_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
	    mkdirat(run_fd, NAME, 0700) < 0 ||
	    (dir.fd = openat(run_fd, NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
	    !(null = fopen("/dev/null", "we")))
		abort();
	atexit(stop);
}

static void write_file(const void *text, size_t len)
{
	int fd = openat(dir.fd, RUNDIR_FACTS, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || io_write_full(fd, text, len) < 0)
		abort();
	close(fd);
}

static bool same(const struct facts *a, const struct facts *b)
{
	bool same = a->supervisor == b->supervisor;

	for (enum fact i = 0; i < FACT_DEVICES; i++)
		same &= a->device[i].rdev == b->device[i].rdev &&
			(!a->device[i].rdev || (a->device[i].bytes == b->device[i].bytes &&
						!strcmp(a->device[i].path, b->device[i].path)));
	return same;
}

/* What was read can be written, and is read again. Leaves that file. */
static void facts_come_back(void)
{
	struct facts f, again;

	FUZZ_PROMISE(facts_read(run_fd, NAME, true, &f) == 0);
	for (enum fact i = 0; i < FACT_DEVICES; i++)
		FUZZ_PROMISE(memchr(f.device[i].path, 0, sizeof(f.device[i].path)) &&
			     !strchr(f.device[i].path, '\n'));
	FUZZ_PROMISE(facts_write(&dir, &f) == 0);
	FUZZ_PROMISE(facts_read(run_fd, NAME, true, &again) == 0 && same(&f, &again));
}

/* Objects only at a few places, objects of plain members below arrays; texts are visible. */
static void look(struct json_object *o, unsigned above)
{
	FUZZ_PROMISE(above < PROTO_DEPTH);
	for (size_t i = 0;
	     json_object_is_type(o, json_type_array) && i < json_object_array_length(o); i++)
		look(json_object_array_get_idx(o, i), above + 1);
	if (!json_object_is_type(o, json_type_object))
		return;
	json_object_object_foreach(o, key, value)
	{
		size_t n;

		look(value, above + 1);
		(void)json_u64(o, key);
		(void)json_true(o, key);
		(void)json_number(o, key);
		(void)json_array(o, key, &n);
		if (json_object_is_type(value, json_type_string)) {
			const char *s = json_text(o, key);

			for (size_t step; *s; s += step) {
				step = utf8_bytes(s);
				FUZZ_PROMISE(step && utf8_shows(s, step));
			}
		}
	}
}

static void names_are_roots(struct json_object *o)
{
	struct facts f;

	if (facts_read(run_fd, NAME, false, &f) < 0)
		abort();
	for (enum fact i = 0; i < FACT_N; i++) {
		const char *says = json_fact(o, i);

		FUZZ_PROMISE(!*says || (i < FACT_DEVICES ? !strcmp(says, f.device[i].path)
					: i == FACT_NAME ? !strcmp(says, NAME)
							 : i == FACT_MOUNTPOINT && *says == '/'));
	}
}

static void print_all(struct json_object *o)
{
	const struct options none = { 0 };
	FILE *out = stdout;

	stdout = null;
	json_print(o);
	print_status(o, true);
	print_wear(o);
	print_commit(NAME, &none, o);
	print_bill(o);
	print_remarks(o);
	stdout = out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	const uint8_t *zero = memchr(data, 0, len), *answer = zero ? zero + 1 : data + len;
	struct json_object *o;
	char *text;

	if (run_fd < 0)
		start();
	write_file(data, (size_t)((zero ? zero : data + len) - data));
	facts_come_back();
	text = fuzz_text(answer, (size_t)(data + len - answer));
	o = answer_decode(text, (size_t)(data + len - answer), run_fd, NAME);
	if (o) {
		names_are_roots(o);
		print_all(o);
		look(o, 0);
		json_object_put(o);
	}
	free(text);
	return 0;
}
