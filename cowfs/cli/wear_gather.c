/* SPDX-License-Identifier: MIT */
/*
 * The document of cowctl wear: the history of a card with cowfs. The ledger comes from the daemon in parts, or
 * from the card itself. All derived values are added here, so that the text, the JSON and the
 * metrics agree. The fields: docs/WEAR.md.
 */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "card/blockdev.h"
#include "offline/offline.h"
#include "wear/card_life.h"
#include "wire/render.h"

enum { TRIES = 5, HOTTEST = 10 };

/* ---- the parts ---- */

static struct json_object *at(struct json_object *o, const char *outer, const char *inner)
{
	return json_object_object_get(json_object_object_get(o, outer), inner);
}

/* Moves the elements of an array behind those of the same array of the first part. */
static void append(struct json_object *to, struct json_object *from, const char *outer,
		   const char *inner)
{
	struct json_object *a = at(to, outer, inner), *b = at(from, outer, inner);

	for (size_t i = 0; a && b && i < json_object_array_length(b); i++)
		json_object_array_add(a, json_object_get(json_object_array_get_idx(b, i)));
}

static void add_part(struct json_object *to, struct json_object *part)
{
	append(to, part, "erase_blocks", "written_blocks");
	append(to, part, "erase_blocks", "visits");
	append(to, part, "history", "commits");
	append(to, part, "history", "days");
}

/* All parts of one stamp. NULL with *err, or without it when a commit came in between. */
static struct json_object *ask_parts(struct client *c, struct failure *err, bool *ret_again)
{
	struct request rq = { .command = COMMAND_WEAR };
	struct json_object *all = NULL, *part;

	*ret_again = false;
	for (;;) {
		part = client_call(c, &rq, NULL, NULL, err);
		if (!part || !json_true(part, "ok") || !all) {
			if (!part || (!json_true(part, "ok") && all)) {
				json_object_put(all);
				return part;
			}
			all = part;
			if (!json_true(part, "ok"))
				return all;
		} else {
			*ret_again = json_u64(part, "stamp") != json_u64(all, "stamp");
			if (!*ret_again)
				add_part(all, part);
		}
		rq.first = json_u64(part, "next");
		if (part != all)
			json_object_put(part);
		if (!rq.first || *ret_again)
			return all;
	}
}

static int ask_daemon(const struct options *o, const char *which, struct json_object **ret)
{
	struct failure err;
	struct client c;
	struct json_object *all = NULL;
	bool again = true;

	if (client_open(&c, which, &err) < 0)
		return cmd_failed(o, &err);
	for (int i = 0; again && i < TRIES; i++) {
		json_object_put(all);
		all = ask_parts(&c, &err, &again);
	}
	client_close(&c);
	if (!all)
		return cmd_failed(o, &err);
	if (again || !json_true(all, "ok")) {
		int exit = cmd_fail(o, EXIT_FAILED, -EBUSY, "%s",
				    again ? "commits are too frequent to read the table"
					  : json_text(all, "error"));

		json_object_put(all);
		return exit;
	}
	json_object_object_add(all, "attached", json_object_new_boolean(true));
	*ret = all;
	return EXIT_OK;
}

static struct json_object *render_part(const struct volume_wear *v)
{
	static char text[16 * KIB];
	struct jsonw w;

	jsonw_init(&w, text, sizeof(text));
	answer_ok(&w);
	render_wear(&w, v);
	return jsonw_finish(&w) ? json_tokener_parse(text) : NULL;
}

static struct json_object *from_card(struct offline *f)
{
	static struct volume_wear v;
	const struct wear_table *t;
	struct json_object *all, *part;

	log_wear_load(f->log);
	t = log_wear(f->log);
	snprintf(v.device, sizeof(v.device), "%s", f->base->geo.path);
	if (f->log_card != f->base)
		snprintf(v.log_device, sizeof(v.log_device), "%s", f->log_card->geo.path);
	memcpy(v.identity, f->base->geo.identity, sizeof(v.identity));
	v.volume_bytes = f->super.fs_bytes;
	v.device_bytes = f->base->geo.size_bytes;
	v.eb_source = f->super.eb_source;
	v.log_state = f->report.state;
	v.clone = f->report.clone;
	v.last_s = f->report.newest.time_s;
	v.ledger = f->report.ledger;
	v.ledger.table_losses = log_ledger(f->log)->table_losses; /* includes this time */
	v.have_table = t;
	if (!t)
		return render_part(&v);
	v.geo = t->geo;
	wear_take_part(t, 0, &v.part);
	all = render_part(&v);
	while (all && v.part.next) {
		wear_take_part(t, v.part.next, &v.part);
		part = render_part(&v);
		if (part)
			add_part(all, part);
		json_object_put(part);
	}
	return all;
}

static int read_card(const struct options *o, struct json_object **ret)
{
	struct offline f;
	struct failure fail;
	int e = offline_open(&f, o->operand[0], o->value[OPT_LOG],
			     BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, 0, &fail);

	if (e == 0)
		e = offline_open_log(&f, &fail);
	if (e == 0) {
		*ret = from_card(&f);
		if (*ret)
			json_object_object_add(*ret, "attached", json_object_new_boolean(false));
		else
			e = failure(&fail, -ENOMEM, "no memory");
	}
	e = offline_end(&f, e, "Nothing was written", &fail);
	return e < 0 ? cmd_failed(o, &fail) : EXIT_OK;
}

/* ---- derived values ---- */

static struct json_object *number(double v)
{
	char text[32];

	snprintf(text, sizeof(text), "%.4g", v);
	return json_object_new_double_s(v, text);
}

/* a / b, null if b is not usable */
static struct json_object *ratio(double a, double b)
{
	return b > 0 ? number(a / b) : NULL;
}

static void add_ratios(struct json_object *wear)
{
	struct json_object *t = json_object_object_get(wear, "totals"),
			   *r = json_object_new_object();
	double written = (double)json_u64(t, "written_bytes");
	double payload =
		(double)blk_to_bytes(json_u64(t, "direct_blocks") + json_u64(t, "logged_blocks"));

	json_object_object_add(r, "absorption",
			       ratio((double)json_u64(t, "absorbed_bytes"), written));
	json_object_object_add(r, "cowfs_amplification", ratio(written, payload));
	json_object_object_add(wear, "ratios", r);
}

struct unit {
	size_t index;
	uint64_t blks, visits;
};

static int most_visits_first(const void *a, const void *b)
{
	const struct unit *x = a, *y = b;

	if (x->visits != y->visits)
		return x->visits > y->visits ? -1 : 1;
	return x->blks > y->blks ? -1 : x->blks < y->blks;
}

static struct json_object *hot_unit(struct json_object *eb, const struct unit *u)
{
	uint64_t unit_bytes = json_u64(eb, "unit_bytes"), units = json_u64(eb, "units");
	bool log = u->index >= units;
	uint64_t off = log ? json_u64(eb, "log_device_disk_offset_bytes") +
				       (u->index - units) * unit_bytes
			   : json_u64(eb, "disk_offset_bytes") + u->index * unit_bytes;
	struct json_object *h = json_object_new_object();

	json_object_object_add(h, "unit", json_object_new_uint64(u->index));
	json_object_object_add(h, "log_device", json_object_new_boolean(log));
	json_object_object_add(h, "disk_offset_bytes", json_object_new_uint64(off));
	json_object_object_add(h, "written_bytes", json_object_new_uint64(blk_to_bytes(u->blks)));
	json_object_object_add(h, "visits", json_object_new_uint64(u->visits));
	return h;
}

static void add_hottest(struct json_object *wear)
{
	struct json_object *eb = json_object_object_get(wear, "erase_blocks"),
			   *hot = json_object_new_array();
	struct json_object *blks = json_object_object_get(eb, "written_blocks");
	struct json_object *visits = json_object_object_get(eb, "visits");
	size_t n = blks ? json_object_array_length(blks) : 0, touched = 0;
	_cleanup_free_ struct unit *unit = calloc(n + 1, sizeof(*unit));
	uint64_t bytes = 0;

	if (!eb) /* of a worker that was taken over */
		json_object_object_add(wear, "erase_blocks", eb = json_object_new_object());
	for (size_t i = 0; unit && visits && i < n && i < json_object_array_length(visits); i++) {
		unit[touched] = (struct unit){
			i, json_object_get_uint64(json_object_array_get_idx(blks, i)),
			json_object_get_uint64(json_object_array_get_idx(visits, i))
		};
		bytes += blk_to_bytes(unit[touched].blks);
		touched += unit[touched].blks != 0;
	}
	if (touched)
		qsort(unit, touched, sizeof(*unit), most_visits_first);
	for (size_t i = 0; i < touched && i < HOTTEST; i++)
		json_object_array_add(hot, hot_unit(eb, &unit[i]));
	json_object_object_add(eb, "touched_units", json_object_new_uint64(touched));
	json_object_object_add(eb, "counted_bytes", json_object_new_uint64(bytes));
	json_object_object_add(eb, "hottest", hot);
}

static void derive(struct json_object *wear)
{
	json_object_object_del(wear, "stamp");
	json_object_object_del(wear, "next");
	json_object_object_add(wear, "generated_unix_seconds",
			       json_object_new_uint64((uint64_t)time(NULL)));
	add_ratios(wear);
	add_hottest(wear);
	json_object_object_add(wear, "disk", card_life_disk(json_fact(wear, FACT_DEVICE)));
}

int wear_gather(const struct options *o, const char *which, struct json_object **ret)
{
	char name[RUNDIR_NAME_BYTES] = "";
	int exit;

	if (which && strchr(which, '/'))
		client_find_device(which, name);
	exit = which && strchr(which, '/') && !*name ? read_card(o, ret)
						     : ask_daemon(o, which, ret);
	if (exit == EXIT_OK)
		derive(*ret);
	return exit;
}
