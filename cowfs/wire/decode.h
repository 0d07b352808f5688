/* SPDX-License-Identifier: MIT */
/*
 * What a worker says: the only reader of its JSON. A worker may have been taken over, so
 * - what names something (facts.h) is replaced by what root knows;
 * - an object or an array counts only where this protocol has one;
 * - numbers and texts are as it says: for tables, and for people (json_text).
 */
#ifndef COWFS_WIRE_DECODE_H
#define COWFS_WIRE_DECODE_H

#include <json-c/json.h>

#include "wire/facts.h"

/* The object in this text, of the volume `name` in the run directory. NULL: it is none. */
struct json_object *answer_decode(const char *text, size_t len_bytes, int run_fd,
				  const char *name) MUST_CHECK;

#endif
