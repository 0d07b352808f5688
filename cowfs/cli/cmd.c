/* SPDX-License-Identifier: MIT */
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clean.h"
#include "base/msg.h"

static char last_failure[1024];

const char *cmd_last_failure(void)
{
	return last_failure;
}

int cmd_fail(const struct options *o, enum exit_code exit, int error, const char *fmt, ...)
{
	char *why = last_failure, text[4096];
	struct jsonw w;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(last_failure), fmt, ap);
	va_end(ap);
	clean_text(why);
	if (!has_option(o, OPT_JSON)) {
		fprintf(stderr, "cowctl: %s\n", why);
		return exit;
	}
	jsonw_init(&w, text, sizeof(text));
	answer_error(&w, error, exit, why);
	if (jsonw_finish(&w))
		fputs(text, stdout);
	return exit;
}

const char *with_commas(uint64_t v)
{
	static char ring[8][32];
	static unsigned next;
	char *buf = ring[next++ % ARRAY_SIZE(ring)], *p = buf + sizeof(ring[0]) - 1;
	int digits = 0;

	*p = '\0';
	do {
		if (digits && digits % 3 == 0)
			*--p = ',';
		*--p = (char)('0' + v % 10);
		v /= 10;
		digits++;
	} while (v);
	return p;
}

const char *format_time(uint64_t unix_s)
{
	static char buf[32];
	time_t t = (time_t)unix_s;
	struct tm tm;

	if (unix_s && unix_s < CLOCK_IS_SET_S)
		return "(clock not set)";
	if (!unix_s || !localtime_r(&t, &tm) ||
	    !strftime(buf, sizeof(buf), "%Y-%m-%d %H:%M:%S", &tm))
		return "never";
	return buf;
}

uint64_t json_u64(struct json_object *o, const char *key)
{
	return json_object_get_uint64(json_object_object_get(o, key));
}

double json_number(struct json_object *o, const char *key)
{
	return json_object_get_double(json_object_object_get(o, key));
}

struct json_object *json_at(struct json_object *o, const char *path)
{
	char name[64];

	while (o && *path) {
		size_t n = strcspn(path, ".");

		snprintf(name, sizeof(name), "%.*s", (int)n, path);
		o = json_object_object_get(o, name);
		path += n + (path[n] == '.');
	}
	return o;
}

bool json_true(struct json_object *o, const char *key)
{
	return json_object_get_boolean(json_object_object_get(o, key));
}

const char *json_raw(struct json_object *o, const char *key)
{
	const char *s = json_object_get_string(json_object_object_get(o, key));

	return s ? s : "";
}

const char *json_text(struct json_object *o, const char *key)
{
	const char *s = json_raw(o, key);
	_cleanup_free_ char *copy = strdup(s);

	if (!copy)
		return "";
	if (strcmp(clean_text(copy), s))
		json_object_set_string(json_object_object_get(o, key), copy);
	return json_raw(o, key);
}

void json_print(struct json_object *o)
{
	const char *s = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);

	while (*s) {
		size_t n = utf8_bytes(s), step = n ? n : 1;

		if (utf8_shows(s, n))
			fwrite(s, 1, step, stdout);
		else
			fputs(jsonw_escape((char[8]){0}, s, n), stdout);
		s += step;
	}
	putchar('\n');
}

int cmd_write_file(const struct options *o, const char *path, const char *text, size_t len)
{
	char temp[4096];
	struct stat st;
	FILE *f = NULL;
	int e = 0, fd;

	if ((size_t)snprintf(temp, sizeof(temp), "%s.XXXXXX", path) >= sizeof(temp))
		return cmd_fail(o, EXIT_USAGE, -ENAMETOOLONG, "--output %s is too long", path);
	/* nobody means to have /dev/null replaced by a file */
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return cmd_fail(o, EXIT_FAILED, -EINVAL, "%s cannot be written: it is no regular file", path);
	fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0)
		return cmd_fail(o, EXIT_FAILED, -errno, "%s cannot be written: %s", path, strerrordesc_np(errno));
	f = fdopen(fd, "w");
	if (fchmod(fd, 0644) < 0 || !f || fwrite(text, 1, len, f) != len)
		e = -errno;
	if (f ? fclose(f) : close(fd))
		e = e ? e : -errno;
	if (e == 0 && rename(temp, path) < 0)
		e = -errno;
	if (e == 0)
		return EXIT_OK;
	unlink(temp);
	return cmd_fail(o, EXIT_FAILED, e, "%s cannot be written: %s", path, strerrordesc_np(-e));
}
