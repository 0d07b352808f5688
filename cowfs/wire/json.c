/* SPDX-License-Identifier: MIT */
#include "wire/json.h"

#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/numbers.h"
#include "wire/proto.h"

#define ANSWER_BYTES (512 * KIB)

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

struct json_object *json_array(struct json_object *o, const char *key, size_t *ret_n)
{
	struct json_object *a = json_object_object_get(o, key);

	if (!json_object_is_type(a, json_type_array)) {
		*ret_n = 0;
		return NULL;
	}
	*ret_n = json_object_array_length(a);
	return a;
}

bool json_true(struct json_object *o, const char *key)
{
	return json_object_get_boolean(json_object_object_get(o, key));
}

static const char *raw(struct json_object *o, const char *key)
{
	const char *s = json_object_get_string(json_object_object_get(o, key));

	return s ? s : "";
}

const char *json_fact(struct json_object *o, enum fact which)
{
	return raw(o, fact_names[which]);
}

const char *json_text(struct json_object *o, const char *key)
{
	const char *s = raw(o, key);
	_cleanup_free_ char *copy = strdup(s);

	if (!copy)
		return "";
	if (strcmp(clean_text(copy), s))
		json_object_set_string(json_object_object_get(o, key), copy);
	return raw(o, key);
}

void json_print(struct json_object *o)
{
	const char *s = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN |
								  JSON_C_TO_STRING_NOSLASHESCAPE);

	while (*s) {
		size_t n = utf8_bytes(s), step = n ? n : 1;

		if (utf8_shows(s, n))
			fwrite(s, 1, step, stdout);
		else
			fputs(jsonw_escape((char[8]){ 0 }, s, n), stdout);
		s += step;
	}
	putchar('\n');
}

struct json_object *json_answer(bool ok)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "ok", json_object_new_boolean(ok));
	json_object_object_add(o, "schema", json_object_new_uint64(JSON_SCHEMA));
	return o;
}

struct jsonw *json_begin(bool ok)
{
	static struct jsonw w;
	char *text = malloc(ANSWER_BYTES);

	jsonw_init(&w, text, text ? ANSWER_BYTES : 0);
	jsonw_object(&w, NULL);
	jsonw_bool(&w, "ok", ok);
	jsonw_u64(&w, "schema", JSON_SCHEMA);
	return &w;
}

void json_end(struct jsonw *w)
{
	if (jsonw_finish(w))
		fputs(w->p, stdout);
	free(w->p);
	w->p = NULL;
}
