/* SPDX-License-Identifier: MIT */
/*
 * The page of `cowctl wear --html`: the document of `cowctl wear --json` as one HTML file that needs no
 * network. The page contains all text and every table when it is written; its script only draws.
 */
#ifndef COWFS_WEAR_REPORT_H
#define COWFS_WEAR_REPORT_H

#include <json-c/json.h>
#include <stdio.h>

#include "base/util.h"

enum { REPORT_MAX_BYTES = 400 * 1000 };

/*
 * Returns the page, for the caller to free; NULL without memory. wear: the document of `cowctl
 * wear`, or what claims to be one. None of it is trusted: fields may be missing or of another
 * type. The page contains it unchanged, with one exception: if the page would exceed
 * REPORT_MAX_BYTES, counters of neighbouring erase blocks are added up (changes wear).
 */
char *report_page(struct json_object *wear, size_t *ret_bytes) MUST_CHECK;

/* ---- shared by report.c and report_parts.c ---- */

/* A part of the page, by the name of its marker <!--{name}-->. */
struct report_part {
	const char *name;
	void (*put)(FILE *f, struct json_object *wear);
};
extern const struct report_part report_parts[]; /* terminated by a NULL name */

#endif
