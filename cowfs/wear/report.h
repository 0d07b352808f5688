/* SPDX-License-Identifier: MIT */
/*
 * The page of `cowctl report`: the document of `cowctl wear --json` as one HTML file that needs no
 * network. All text and every table is in the page as it is written; its script only draws.
 */
#ifndef COWFS_WEAR_REPORT_H
#define COWFS_WEAR_REPORT_H

#include <json-c/json.h>
#include <stdio.h>

#include "base/util.h"

enum { REPORT_MAX_BYTES = 400 * 1000 };

/*
 * The page, for the caller to free; NULL without memory. wear: what `cowctl wear` has gathered, or
 * what claims to be that: nothing in it is trusted, fields may be missing or of another type. It is
 * in the page as it is, but for counters of neighbouring erase blocks, which are added up where the
 * page would be larger than REPORT_MAX_BYTES otherwise (changes wear).
 */
char *report_page(struct json_object *wear, size_t *ret_bytes) MUST_CHECK;

/* ---- what report.c and report_parts.c share ---- */

/* A part of the page, by the name of its marker <!--{name}-->. */
struct report_part {
	const char *name;
	void (*put)(FILE *f, struct json_object *wear);
};
extern const struct report_part report_parts[]; /* ends with a name of NULL */

#endif
