/* SPDX-License-Identifier: MIT */
/* Reads the answers of a daemon. A missing member reads as 0, false or "". */
#ifndef COWFS_WIRE_JSON_H
#define COWFS_WIRE_JSON_H

#include <json-c/json.h>

#include "wire/facts.h"
#include "wire/jsonw.h"

uint64_t json_u64(struct json_object *o, const char *key);
double json_number(struct json_object *o, const char *key);
bool json_true(struct json_object *o, const char *key);
/* path: member names joined by dots, for objects within objects. NULL if the member is missing. */
struct json_object *json_at(struct json_object *o, const char *path);
/* An array and its length, or NULL; a member of another type counts as missing. */
struct json_object *json_array(struct json_object *o, const char *key, size_t *ret_n);
/* What root knows (decode.h), unchanged. */
const char *json_fact(struct json_object *o, enum fact which);
/* Any other text: for people, and to be compared. Invisible characters (base/clean.h) are replaced, in the object as well. */
const char *json_text(struct json_object *o, const char *key);
/* Opens an answer as answer_ok does: {"ok":...,"schema":...}. The caller puts it. */
struct json_object *json_answer(bool ok);
/*
 * The same, written member by member: json_end prints it on stdout. One at a time. What has no room in 512 KiB, or
 * finds no memory, is not printed.
 */
struct jsonw *json_begin(bool ok);
void json_end(struct jsonw *w);
/* Prints a line of JSON on stdout, with invisible characters escaped. */
void json_print(struct json_object *o);

#endif
