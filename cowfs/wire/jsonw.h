/* SPDX-License-Identifier: MIT */
/*
 * Writes JSON into a buffer of fixed size. Allocates nothing, so that the daemon can answer and
 * refresh its status file when memory is short. Text that does not fit sets `bad`.
 */
#ifndef COWFS_WIRE_JSONW_H
#define COWFS_WIRE_JSONW_H

#include "base/util.h"

struct jsonw {
	char *p;
	size_t size_bytes, pos;
	bool bad, comma;
	unsigned depth;
	uint32_t arrays; /* bit d: an array is open at depth d */
};

void jsonw_init(struct jsonw *w, char *buf, size_t size_bytes);
/*
 * Closes everything and ends the line. Returns the length, or 0 if the text did not fit.
 * Terminated.
 */
size_t jsonw_finish(struct jsonw *w);

/* key NULL: an element of an array, or the outermost value */
void jsonw_object(struct jsonw *w, const char *key);
void jsonw_array(struct jsonw *w, const char *key);
void jsonw_end(struct jsonw *w);
/* Bytes that are not UTF-8 become U+FFFD; invisible characters (base/clean.h) are escaped. */
void jsonw_str(struct jsonw *w, const char *key, const char *s);
/* \uXXXX for the character at s, utf8_bytes() of it n (at most 3; 0: U+FFFD). Returns esc. */
char *jsonw_escape(char esc[8], const char *s, size_t n);
void jsonw_u64(struct jsonw *w, const char *key, uint64_t v);
void jsonw_bool(struct jsonw *w, const char *key, bool v);
/* nanoseconds as decimal seconds: 1.250000 */
void jsonw_seconds(struct jsonw *w, const char *key, uint64_t ns);
/* 16 bytes as 8-4-4-4-12 */
void jsonw_uuid(struct jsonw *w, const char *key, const uint8_t uuid[16]);

#endif
