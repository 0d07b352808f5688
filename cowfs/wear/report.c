/* SPDX-License-Identifier: MIT */
/*
 * The page: its template (page/, joined into one file by the Makefile), its parts, and the
 * document itself.
 */
#include "wear/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/clean.h"
#include "wire/json.h"
#include "wire/jsonw.h"

/* The template is part of the program: any machine with cowctl can make a page. */
__asm__(".pushsection .rodata\n"
	".global report_template\n"
	".hidden report_template\n"
	"report_template:\n"
	".incbin \"" REPORT_TEMPLATE "\"\n"
	".byte 0\n"
	".popsection\n");
extern const char report_template[] __attribute__((visibility("hidden")));

static const char marker_begin[] = "<!--{", marker_end[] = "}-->", json_marker[] = "json";

/* Closes a memory stream. NULL: out of memory, and the text is freed. */
static char *close_text(FILE *f, char *const *text)
{
	bool failed = ferror(f);

	if (fclose(f) == EOF || failed) {
		free(*text);
		return NULL;
	}
	return *text;
}

/*
 * Escapes three characters for use inside a <script>. They can occur only in strings, where JSON
 * has an alternative form. NULL: no memory.
 */
static char *json_for_script(struct json_object *wear, size_t *ret_bytes)
{
	const char *s = json_object_to_json_string_ext(
		wear, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	char *text = NULL;
	FILE *f = s ? open_memstream(&text, ret_bytes) : NULL;

	if (!f)
		return NULL;
	while (*s) {
		size_t n = utf8_bytes(s), step = n ? n : 1;

		if (*s == '<' || *s == '>' || *s == '&' || !utf8_shows(s, n))
			fputs(jsonw_escape((char[8]){ 0 }, s, n), f);
		else
			fwrite(s, 1, step, f);
		s += step;
	}
	return close_text(f, &text);
}

static void put_part(FILE *f, struct json_object *wear, const char *name, size_t len)
{
	for (const struct report_part *p = report_parts; p->name; p++)
		if (strlen(p->name) == len && !memcmp(p->name, name, len))
			p->put(f, wear);
}

/* The page without the document, and the position of the document. */
static char *fill(struct json_object *wear, size_t *ret_bytes, size_t *ret_json_at)
{
	const char *from = report_template, *mark, *end;
	char *text = NULL;
	FILE *f = open_memstream(&text, ret_bytes);

	if (!f)
		return NULL;
	while ((mark = strstr(from, marker_begin)) && (end = strstr(mark, marker_end))) {
		fwrite(from, 1, (size_t)(mark - from), f);
		mark += strlen(marker_begin);
		if ((size_t)(end - mark) == strlen(json_marker) &&
		    !memcmp(mark, json_marker, strlen(json_marker)))
			*ret_json_at = (size_t)ftell(f);
		else
			put_part(f, wear, mark, (size_t)(end - mark));
		from = end + strlen(marker_end);
	}
	fputs(from, f);
	return close_text(f, &text);
}

/* ---- too many erase blocks for a page ---- */

/* Appends to `to` the sums of adjacent pairs of the numbers from `first` up to n. */
static void add_pairs(struct json_object *to, struct json_object *from, size_t first, size_t n)
{
	for (size_t i = first; i < n; i += 2) {
		uint64_t sum = json_object_get_uint64(json_object_array_get_idx(from, i));

		if (i + 1 < n)
			sum += json_object_get_uint64(json_object_array_get_idx(from, i + 1));
		json_object_array_add(to, json_object_new_uint64(sum));
	}
}

/* Halves the number of cells. false: no further reduction is possible. */
static bool coarsen(struct json_object *wear)
{
	static const char *const keys[] = { "written_blocks", "visits" };
	struct json_object *eb = json_object_object_get(wear, "erase_blocks");
	uint64_t per = json_object_get_uint64(json_object_object_get(eb, "page_units_per_cell"));
	uint64_t device = json_object_get_uint64(json_object_object_get(eb, "units"));
	bool shorter = false;

	per = per ? per : 1;
	device = device / per + (device % per != 0); /* cells of the device after the reduction */
	for (size_t k = 0; k < ARRAY_SIZE(keys); k++) {
		struct json_object *to = json_object_new_array(), *from;
		size_t n, split;

		from = json_array(eb, keys[k], &n);
		split = device < n ? (size_t)device : n;
		add_pairs(to, from, 0, split);
		add_pairs(to, from, split, n);
		shorter = shorter || json_object_array_length(to) < n;
		if (from)
			json_object_object_add(eb, keys[k], to);
		else
			json_object_put(to);
	}
	if (shorter)
		json_object_object_add(eb, "page_units_per_cell", json_object_new_uint64(per * 2));
	return shorter;
}

char *report_page(struct json_object *wear, size_t *ret_bytes)
{
	size_t rest_bytes, json_bytes, json_at = 0;
	_cleanup_free_ char *rest = fill(wear, &rest_bytes, &json_at),
			    *json = json_for_script(wear, &json_bytes);
	char *page;

	while (rest && json && rest_bytes + json_bytes > REPORT_MAX_BYTES && coarsen(wear)) {
		free(json);
		json = json_for_script(wear, &json_bytes);
	}
	page = rest && json ? malloc(rest_bytes + json_bytes + 1) : NULL;
	if (!page)
		return NULL;
	memcpy(page, rest, json_at);
	memcpy(page + json_at, json, json_bytes);
	memcpy(page + json_at + json_bytes, rest + json_at, rest_bytes - json_at + 1);
	*ret_bytes = rest_bytes + json_bytes;
	return page;
}
