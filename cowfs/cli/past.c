/* SPDX-License-Identifier: MIT */
/* The life of the card that a card was cloned from: which clone hands on and wear shows. */
#include "cli/cmd.h"

#include <errno.h>
#include <string.h>

#include "card/blockdev.h"
#include "offline/offline.h"

/* Beside a daemon, too: the superblock changes rarely. */
static int open_log(struct offline *f, struct json_object *wear, struct failure *fail)
{
	const char *log_device = json_fact(wear, FACT_LOG_DEVICE);
	int r = offline_open(f, json_fact(wear, FACT_DEVICE), *log_device ? log_device : NULL,
			     BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, 0, fail);

	return r < 0 ? r : offline_find_log(f, fail);
}

/* Of the card whose document this is. */
static int look_back(struct json_object *wear, struct log_past *ret, struct failure *fail)
{
	struct json_object *totals = json_object_object_get(wear, "totals");
	struct log_past older = { 0 };
	struct offline f;
	int r = open_log(&f, wear, fail);

	if (r == 0) {
		if (super_get_past(f.log_card, &f.super, &older) < 0)
			older = (struct log_past){ 0 };
		*ret = (struct log_past){
			.cloned_s = (uint64_t)time(NULL),
			.first_s = json_u64(totals, "first_unix_seconds"),
			.absorbed_bytes = json_u64(totals, "absorbed_bytes"),
			.written_bytes = json_u64(totals, "written_bytes"),
			.visits = json_u64(totals, "erase_block_visits"),
			.commits = json_u64(totals, "commits"),
			.cards = older.cards + 1,
			.all_written_bytes = older.all_written_bytes +
					     json_u64(totals, "written_bytes"),
		};
		memcpy(ret->ring_uuid, f.super.ring_uuid, sizeof(ret->ring_uuid));
		memcpy(ret->identity, f.base->geo.identity, sizeof(ret->identity));
		blockdev_model(f.base->geo.path, ret->model, sizeof(ret->model));
	}
	return offline_end(&f, r, "Nothing was written", fail);
}

bool past_of(const struct options *o, const char *which, struct log_past *ret)
{
	struct options plain = *o; /* one document of JSON is printed, by the clone */
	struct json_object *wear = NULL;
	struct failure fail;
	bool known;

	plain.value[OPT_JSON] = NULL;
	known = wear_gather(&plain, which, &wear) == EXIT_OK && look_back(wear, ret, &fail) == 0;
	json_object_put(wear);
	return known;
}

void past_add(struct json_object *wear)
{
	struct log_past p;
	struct failure fail;
	struct json_object *old;
	struct offline f;
	char text[4096];
	struct jsonw w;

	if (open_log(&f, wear, &fail) == 0 && super_get_past(f.log_card, &f.super, &p) == 0) {
		jsonw_init(&w, text, sizeof(text));
		jsonw_object(&w, NULL);
		jsonw_u64(&w, "cloned_unix_seconds", p.cloned_s);
		jsonw_str(&w, "model", p.model);
		jsonw_str(&w, "card_identity", p.identity);
		jsonw_uuid(&w, "ring_uuid", p.ring_uuid);
		jsonw_u64(&w, "first_unix_seconds", p.first_s);
		jsonw_u64(&w, "absorbed_bytes", p.absorbed_bytes);
		jsonw_u64(&w, "written_bytes", p.written_bytes);
		jsonw_u64(&w, "erase_block_visits", p.visits);
		jsonw_u64(&w, "commits", p.commits);
		jsonw_u64(&w, "cards", p.cards);
		jsonw_u64(&w, "all_written_bytes", p.all_written_bytes);
		jsonw_end(&w);
		old = jsonw_finish(&w) ? json_tokener_parse(text) : NULL;
		if (old)
			json_object_object_add(wear, "predecessor", old);
	}
	offline_close(&f);
}
