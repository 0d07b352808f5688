/* SPDX-License-Identifier: MIT */
#include "sim/describe.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

void profile_describe(const struct flash_profiles *ps, size_t i, profile_describe_fn *each,
		      void *ctx)
{
	const struct flash_profile *p = flash_profiles_at(ps, i);
	struct json_object *json = flash_profiles_raw(ps, i), *from;
	char text[64];

	if (!p)
		return;
	from = json_object_object_get(json, "from");
	json_object_object_foreach(json, key, v)
	{
		const char *source = json_object_get_string(json_object_object_get(from, key));

		if (strcmp(key, "from") && strcmp(key, "title") && strcmp(key, "source") &&
		    !each(ctx, key,
			  json_object_is_type(v, json_type_string)
				  ? json_object_get_string(v)
				  : json_object_to_json_string_ext(v, JSON_C_TO_STRING_PLAIN),
			  source ? source : ""))
			return;
	}
	if (p->class == FLASH_DISK) {
		snprintf(text, sizeof(text), "%.3f", (double)p->seek_ns / 1e6);
		if (!json_object_object_get_ex(json, "seek_ms", NULL))
			each(ctx, "seek_ms", text, "derived: access - latency");
		return;
	}
	if (json_object_object_get_ex(json, "sync_rewrite_per_s", NULL)) {
		snprintf(text, sizeof(text), "%.3f", (double)p->sync_ns / 1e6);
		if (!each(ctx, "sync_ms", text, "derived: 1/sync_rewrite_per_s - t_W(4 KiB)"))
			return;
		snprintf(text, sizeof(text), "%.3f", (double)p->alloc_ns / 1e6);
		if (!each(ctx, "alloc_ms", text,
			  "derived: 1/sync_write_per_s - 1/sync_rewrite_per_s"))
			return;
	}
	if (!json_object_object_get_ex(json, "copy_mb_s", NULL) &&
	    !json_object_object_get_ex(json, "member", NULL)) {
		snprintf(text, sizeof(text), "%.3g", (double)p->copy_bytes_per_s / 1e6);
		each(ctx, "copy_mb_s", text,
		     p->absorb > 1
			     ? "derived: unit / (G * absorb - merge), G = 1/random_write - t_W(4 KiB) - sync"
			     : "derived: (unit - 4 KiB) / (G - merge), G = 1/random_write - t_W(4 KiB) - sync");
	}
}
