/* SPDX-License-Identifier: MIT */
#include "control/jsonw.h"

#include <stdio.h>
#include <string.h>

void jsonw_init(struct jsonw *w, char *buf, size_t size_bytes)
{
	*w = (struct jsonw){.p = buf, .size_bytes = size_bytes, .bad = size_bytes == 0};
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

size_t jsonw_utf8_bytes(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = s[0] < 0x80			 ? 1
		   : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
		   : (s[0] & 0xf0) == 0xe0	 ? 3
		   : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
						 : 0;

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

static void put_string(struct jsonw *w, const char *str)
{
	const unsigned char *s = (const unsigned char *)str;
	char esc[8];

	puts_raw(w, "\"");
	while (*s) {
		size_t n = jsonw_utf8_bytes((const char *)s);

		if (n == 0) {
			puts_raw(w, "\\ufffd");
			n = 1;
		} else if (*s == '"' || *s == '\\') {
			put(w, (char[]){'\\', (char)*s}, 2);
		} else if (*s < 0x20 || *s == 0x7f) {
			snprintf(esc, sizeof(esc), "\\u%04x", *s);
			puts_raw(w, esc);
		} else {
			put(w, (const char *)s, n);
		}
		s += n;
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
