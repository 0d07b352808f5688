/* SPDX-License-Identifier: MIT */
#include "wire/jsonw.h"

#include <stdio.h>
#include <string.h>

#include "base/clean.h"

void jsonw_init(struct jsonw *w, char *buf, size_t size_bytes)
{
	*w = (struct jsonw){ .p = buf, .size_bytes = size_bytes, .bad = size_bytes == 0 };
}

static void put(struct jsonw *w, const char *s, size_t len)
{
	if (w->bad || w->size_bytes - w->pos <= len) {
		w->bad = true;
		return;
	}
	memcpy(w->p + w->pos, s, len);
	w->pos += len;
	w->p[w->pos] = '\0';
}

static void puts_raw(struct jsonw *w, const char *s)
{
	put(w, s, strlen(s));
}

/*
 * Invisible characters are escaped: programs read the same text, and a terminal that shows it is
 * not affected.
 */
char *jsonw_escape(char esc[8], const char *s, size_t n)
{
	uint32_t c = (unsigned char)*s;

	if (n == 2)
		c = (c & 0x1f) << 6 | ((unsigned char)s[1] & 0x3f);
	else if (n == 3)
		c = (c & 0x0f) << 12 | ((unsigned char)s[1] & 0x3fu) << 6 |
		    ((unsigned char)s[2] & 0x3f);
	snprintf(esc, 8, "\\u%04x", n ? c & 0xffff : 0xfffd);
	return esc;
}

static void put_string(struct jsonw *w, const char *s)
{
	puts_raw(w, "\"");
	while (*s) {
		size_t n = utf8_bytes(s);

		if (*s == '"' || *s == '\\')
			put(w, (char[]){ '\\', *s }, 2);
		else if (!utf8_shows(s, n))
			puts_raw(w, jsonw_escape((char[8]){ 0 }, s, n));
		else
			put(w, s, n);
		s += n ? n : 1;
	}
	puts_raw(w, "\"");
}

static void start(struct jsonw *w, const char *key)
{
	if (w->comma)
		puts_raw(w, ",");
	w->comma = true;
	if (key) {
		put_string(w, key);
		puts_raw(w, ":");
	}
}

static void open_level(struct jsonw *w, const char *key, bool array)
{
	start(w, key);
	puts_raw(w, array ? "[" : "{");
	w->comma = false;
	if (++w->depth > 31) {
		w->bad = true;
		w->depth = 31;
	}
	w->arrays = array ? w->arrays | 1u << w->depth : w->arrays & ~(1u << w->depth);
}

void jsonw_object(struct jsonw *w, const char *key)
{
	open_level(w, key, false);
}

void jsonw_array(struct jsonw *w, const char *key)
{
	open_level(w, key, true);
}

void jsonw_end(struct jsonw *w)
{
	if (!w->depth)
		return;
	puts_raw(w, w->arrays & 1u << w->depth ? "]" : "}");
	w->depth--;
	w->comma = true;
}

size_t jsonw_finish(struct jsonw *w)
{
	while (w->depth)
		jsonw_end(w);
	puts_raw(w, "\n");
	return w->bad ? 0 : w->pos;
}

void jsonw_str(struct jsonw *w, const char *key, const char *s)
{
	start(w, key);
	put_string(w, s);
}

void jsonw_u64(struct jsonw *w, const char *key, uint64_t v)
{
	char num[24];

	start(w, key);
	snprintf(num, sizeof(num), "%llu", (unsigned long long)v);
	puts_raw(w, num);
}

void jsonw_bool(struct jsonw *w, const char *key, bool v)
{
	start(w, key);
	puts_raw(w, v ? "true" : "false");
}

void jsonw_seconds(struct jsonw *w, const char *key, uint64_t ns)
{
	char num[32];

	start(w, key);
	snprintf(num, sizeof(num), "%llu.%06llu", (unsigned long long)(ns / 1000000000),
		 (unsigned long long)(ns % 1000000000 / 1000));
	puts_raw(w, num);
}

void jsonw_uuid(struct jsonw *w, const char *key, const uint8_t u[16])
{
	char text[40];
	size_t n = 0;

	for (int i = 0; i < 16; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%02x",
				      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
	jsonw_str(w, key, text);
}
