/* SPDX-License-Identifier: MIT */
/*
 * What the daemon reports for cowctl top: its status, and its list of blocks, which comes in parts.
 */
#include "cli/top.h"

#include <errno.h>
#include <string.h>

enum { TRIES = 5 };

void top_sample_clear(struct sample *s)
{
	json_object_put(s->status);
	extents_clear(&s->runs);
	*s = (struct sample){ 0 };
}

const char *top_mount_prefix(const struct sample *s)
{
	const char *mount = json_fact(s->status, FACT_MOUNTPOINT);

	return strcmp(mount, "/") ? mount : "";
}

void top_render_head(struct jsonw *w, const struct sample *s)
{
	static const enum fact copied[] = { FACT_NAME, FACT_DEVICE, FACT_LOOP, FACT_MOUNTPOINT };

	answer_ok(w);
	for (size_t i = 0; i < ARRAY_SIZE(copied); i++)
		jsonw_str(w, fact_names[copied[i]], json_fact(s->status, copied[i]));
	jsonw_str(w, "fs_type", json_text(s->status, "fs_type"));
}

/* -EPROTO: not a valid list of blocks. */
static int add_runs(struct extents *x, struct json_object *part)
{
	struct json_object *runs = json_object_object_get(part, "runs");
	size_t n = json_object_is_type(runs, json_type_array) ? json_object_array_length(runs) : 1;

	if (n % 2)
		return -EPROTO;
	for (size_t i = 0; i < n; i += 2) {
		uint64_t blk = json_object_get_uint64(json_object_array_get_idx(runs, i));
		uint64_t blks = json_object_get_uint64(json_object_array_get_idx(runs, i + 1));
		uint64_t end = x->n ? x->e[x->n - 1].blk + x->e[x->n - 1].blks : 0;

		if (blk < end || !blks || blks > UINT32_MAX || blk > UINT32_MAX)
			return -EPROTO;
		if (extents_add(x, blk, blks) < 0)
			return -ENOMEM;
	}
	return 0;
}

int top_runs(struct client *c, struct sample *s, bool *ret_again, struct failure *err)
{
	struct request rq = { .command = COMMAND_CHANGES };

	*ret_again = false;
	s->runs.n = 0;
	s->runs.blks = 0;
	for (bool first = true;; first = false) {
		struct json_object *part = client_call(c, &rq, NULL, NULL, err);
		uint64_t seq = json_u64(part, "newest_generation"), next = json_u64(part, "next");
		int e;

		if (!part)
			return err->error;
		e = json_true(part, "ok") ? add_runs(&s->runs, part) : 0;
		if (!json_true(part, "ok"))
			e = failure(err, -EOPNOTSUPP, "%s", json_text(part, "error"));
		else if (e < 0 || (next && next <= rq.first))
			e = failure(err, e < 0 ? e : -EPROTO,
				    "the list of blocks cannot be read: %s",
				    strerrordesc_np(e < 0 ? -e : EPROTO));
		json_object_put(part);
		if (e < 0)
			return e;
		*ret_again = !first && seq != s->generation_seq;
		s->generation_seq = seq;
		rq.first = next;
		if (!next || *ret_again)
			return 0;
	}
}

int top_sample_take(const struct options *o, struct sample *ret)
{
	struct sample s = { 0 };
	struct failure err;
	struct client c;
	bool again = true;
	int exit = EXIT_OK;

	if (client_open(&c, o->operands ? o->operand[0] : NULL, &err) < 0)
		return cmd_failed(o, &err);
	s.status = cmd_composed(client_ask(&c, COMMAND_STATUS, &err));
	if (!s.status)
		exit = cmd_failed(o, &err);
	s.time_ns = now_ns();
	/* repeat if a commit comes in between; the last try is used as it is */
	for (int i = 0; i < TRIES && again && exit == EXIT_OK; i++)
		exit = top_runs(&c, &s, &again, &err) < 0 ? cmd_failed(o, &err) : EXIT_OK;
	client_close(&c);
	s.written_bytes = json_u64(s.status, "absorbed_bytes");
	if (exit == EXIT_OK)
		*ret = s;
	else
		top_sample_clear(&s);
	return exit;
}
