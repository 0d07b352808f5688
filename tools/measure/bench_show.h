/* SPDX-License-Identifier: MIT */
/* Shows the document of `cowctl measure --tables` (bench_run.h) as text and as a page of HTML. */
#ifndef COWFS_MEASURE_BENCH_SHOW_H
#define COWFS_MEASURE_BENCH_SHOW_H

#include <json-c/json.h>
#include <stdio.h>

#include "base/util.h"

enum { GRID_COLUMNS = 16, GRID_ROWS = 24 };

/* A table of texts. The first row and the first column are headings. */
struct bench_grid {
	const char *key; /* of the table: "linear" */
	char title[128];
	unsigned columns, rows;
	char cell[GRID_ROWS][GRID_COLUMNS][24];
};

/*
 * Neither document is trusted: fields may be missing or of another type. former may be NULL.
 */

/* The next table from *state on, which is 0 at first. false: there is none. */
bool bench_grid_next(struct json_object *doc, struct json_object *former, unsigned *state,
		     struct bench_grid *ret);
/* The lines of the header: what was measured, and how. line gets "name" and "value". */
void bench_header(struct json_object *doc,
		  void (*line)(void *ctx, const char *name, const char *value), void *ctx);

void bench_text(FILE *f, struct json_object *doc, struct json_object *former);
/* A whole page that needs no network and no script. */
void bench_page(FILE *f, struct json_object *doc, struct json_object *former);

#endif
