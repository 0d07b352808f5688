/* SPDX-License-Identifier: MIT */
#include "control/cmd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

	if (!unix_s || !localtime_r(&t, &tm) ||
	    !strftime(buf, sizeof(buf), "%Y-%m-%d %H:%M:%S", &tm))
		return "never";
	return buf;
}

uint64_t json_u64(struct json_object *o, const char *key)
{
	return json_object_get_uint64(json_object_object_get(o, key));
}

double json_seconds(struct json_object *o, const char *key)
{
	return json_object_get_double(json_object_object_get(o, key));
}

bool json_true(struct json_object *o, const char *key)
{
	return json_object_get_boolean(json_object_object_get(o, key));
}

const char *json_text(struct json_object *o, const char *key)
{
	const char *s = json_object_get_string(json_object_object_get(o, key));

	return s ? s : "";
}
