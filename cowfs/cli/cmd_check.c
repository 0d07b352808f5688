/* SPDX-License-Identifier: MIT */
/*
 * cowctl check: reports in plain words what is on the card. Reads only; works beside a running
 * daemon.
 */
#include "cli/cmd.h"

#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"
#include "offline/offline.h"
#include "wire/render.h"

static const char *state_words(enum log_state state, bool needs_older)
{
	switch (state) {
	case LOG_EMPTY:
		return "empty: no commit yet";
	case LOG_CLEAN:
		return "clean: everything is checkpointed, detached in order";
	case LOG_LIVE:
		return "live: the newest generation is complete";
	case LOG_FELL_BACK:
		return "fell back: the newest commit is incomplete, the previous generation is "
		       "used";
	case LOG_RETIRED:
		return "retired: cowfs has left this card, everything is checkpointed";
	case LOG_BROKEN:
		return needs_older
			       ? "NEEDS AN OLDER VERSION of cowfs, which completes the newest commit"
			       : "BROKEN: no complete generation is left; nothing will be replayed or "
				 "written";
	case LOG_FOREIGN:
		return "SET ASIDE: foreign changes to the file system while the log held blocks "
		       "that are not checkpointed; " COWCTL
		       " release --accept base or --accept log "
		       "decides";
	}
	return "?";
}

static const char *record_words(enum record_type type)
{
	switch (type) {
	case RECORD_COMMIT:
		return "commit";
	case RECORD_OPEN:
		return "start of an epoch";
	case RECORD_CHECKPOINT:
		return "begin of a checkpoint";
	case RECORD_TAIL:
		return "end of a checkpoint";
	case RECORD_RETIRED:
		return "farewell";
	}
	return "none";
}

static const char *const verdict_names[] = { "good", "repairable", "broken" };

static void print_json(const struct check_report *c)
{
	const struct log_open_report *r = &c->log;
	struct jsonw *w = json_begin(c->verdict == CHECK_GOOD);

	jsonw_str(w, "verdict", verdict_names[c->verdict]);
	jsonw_str(w, "device", c->device);
	jsonw_str(w, "log_device", c->log_device);
	jsonw_str(w, "attached_as", c->attached);
	jsonw_str(w, "fs_type", c->fs.type);
	jsonw_u64(w, "volume_bytes", c->super.fs_bytes);
	jsonw_u64(w, "format_version", c->super.version);
	jsonw_uuid(w, "ring_uuid", c->super.ring_uuid);
	jsonw_u64(w, "log_offset_bytes", c->super.ring_off_bytes);
	jsonw_u64(w, "log_bytes", (uint64_t)c->super.seg_bytes * c->super.seg_count);
	jsonw_u64(w, "lag", c->super.lag);
	jsonw_bool(w, "super_copy_a_bad", c->trouble & SUPER_COPY_A_BAD);
	jsonw_bool(w, "super_copy_b_bad", c->trouble & SUPER_COPY_B_BAD);
	jsonw_bool(w, "device_grown", c->trouble & SUPER_GROWN);
	jsonw_str(w, "shrink", c->shrink_committed ? "committed" : "");
	jsonw_bool(w, "guarded", c->guarded);
	jsonw_str(w, "log_state", log_state_name(r->state));
	jsonw_u64(w, "generation", r->newest.ledger.commits);
	if (r->back_seq)
		jsonw_u64(w, "undo_generation", r->back_generation);
	jsonw_u64(w, "record", r->newest.seq);
	jsonw_u64(w, "highest_record_seen", r->highest_seq);
	jsonw_u64(w, "time_unix_seconds", r->newest.time_s);
	jsonw_str(w, "cause", r->newest.seq ? cause_name(r->newest.cause) : "");
	jsonw_bool(w, "unread", r->newest.flags & RECORD_UNREAD);
	jsonw_u64(w, "log_live_blocks", r->live_blks);
	jsonw_u64(w, "log_zero_blocks", r->zero_blks);
	jsonw_bool(w, "base_changed", r->base_changed);
	jsonw_bool(w, "clone", r->clone);
	jsonw_u64(w, "rejected_records", r->rejected);
	jsonw_str(w, "rejected_why", r->why);
	jsonw_u64(w, "bad_blocks", c->bad_blks);
	jsonw_u64(w, "unreadable_log_blocks", r->unreadable_blks);
	jsonw_u64(w, "passed_record", r->passed_seq);
	jsonw_u64(w, "torn_record", r->torn_seq);
	jsonw_array(w, "findings");
	for (unsigned i = 0; i < c->findings && i < CHECK_FINDINGS; i++)
		jsonw_str(w, NULL, c->finding[i]);
	jsonw_end(w);
	jsonw_object(w, "lifetime");
	render_ledger(w, &r->ledger);
	jsonw_end(w);
	json_end(w);
}

static void print_super(const struct check_report *c)
{
	const char *copies = c->trouble & SUPER_COPY_A_BAD   ? "copy A is DAMAGED, copy B is good"
			     : c->trouble & SUPER_COPY_B_BAD ? "copy B is DAMAGED, copy A is good"
							     : "both copies good";

	cmd_row("superblock", "%s%s", copies,
		c->trouble & SUPER_GROWN ? "; the device has grown since the log was made" : "");
	cmd_row("log", "%s at %s of %s, %u segments of %s, made %s",
		FORMAT_SIZE((uint64_t)c->super.seg_bytes * c->super.seg_count),
		FORMAT_SIZE(c->super.ring_off_bytes), c->log_device, c->super.seg_count,
		FORMAT_SIZE(c->super.seg_bytes), format_time(c->super.created_s));
	if (c->super.lag)
		cmd_row("lag", "%u: the previous commit is kept", c->super.lag);
}

static const char *verdict_words(const struct check_report *c)
{
	if (c->verdict == CHECK_GOOD)
		return "good";
	if (c->shrink_committed)
		return "usable";
	if (c->verdict == CHECK_REPAIRABLE)
		return c->log.state == LOG_FELL_BACK ? "usable: an attach or '" COWCTL " release' "
						       "continues from the generation above"
		       : c->log.passed_seq	     ? "usable: an attach or '" COWCTL
					     " release' goes on from the generation "
					     "above"
					   : "usable: one superblock of the log is "
					     "left; 'cowctl grow' writes the second "
					     "one again";
	if (c->bad_blks)
		return "DAMAGED: blocks of committed data cannot be read, or differ from what was written";
	if (c->log.needs_older)
		return "WAITS: do not mount the file system before that, it may be a mixture of "
		       "generations";
	if (c->log.state == LOG_FOREIGN)
		return "SET ASIDE: the file system is as the card holds it, without the log";
	return "BROKEN: the file system is as the card holds it, without the log";
}

static void print_warning(const struct check_report *c)
{
	bool external = strcmp(c->device, c->log_device);

	cmd_row("warning", "do not mount it without cowfs before: it is a mixture of generations");
	if (c->verdict != CHECK_BROKEN)
		cmd_row("", "to look at it: " COWCTL " view %s%s%s DIR; it writes nothing",
			CLEAN(c->device), external ? " --log " : "",
			external ? CLEAN(c->log_device) : "");
}

/* The log is empty: a cut came, or the card was pulled, before the last write of a checkpoint. An
 * unused or retired log leaves no guard: then the base is a copy from another moment. */
static void print_guard(const struct check_report *c)
{
	enum log_state state = c->log.state;

	if (!c->guarded || *c->attached || state >= LOG_BROKEN)
		return;
	if (state == LOG_EMPTY || state == LOG_RETIRED)
		cmd_row("warning",
			"the superblock is guarded, and not by this log: it is a copy of a "
			"file system whose log is not here, and may be a mixture of generations");
	else
		cmd_row("note",
			"the superblock is still guarded: kernels mount it read-only and "
			"e2fsck refuses it, until '" COWCTL " release', or an attach and a detach");
}

static void print_text(const struct check_report *c)
{
	const struct log_open_report *r = &c->log;
	uint64_t blocks = r->live_blks + r->zero_blks;

	printf("%s: %s of %s with a cowfs log of format %u\n", CLEAN(c->device), c->fs.type,
	       FORMAT_SIZE(c->super.fs_bytes), c->super.version);
	if (*c->attached)
		cmd_row("note", "attached as volume %s: the log may change while it is read",
			c->attached);
	print_super(c);
	if (c->shrink_committed)
		cmd_row("state", "a shrink was interrupted after its commit and is valid: attach "
				 "or '" COWCTL " release' finishes it");
	else
		cmd_row("state", "%s", state_words(r->state, r->needs_older));
	if (r->state >= LOG_BROKEN)
		cmd_row("", "%s", r->why);
	if (r->back_seq)
		cmd_row("", "goes back to generation %s of %s, because of an undo",
			with_commas(r->back_generation), format_time(r->back_s));
	if (r->rejected)
		cmd_row("", "%u newer record%s not chosen: %s", r->rejected, plural(r->rejected),
			r->why);
	if (r->passed_seq)
		cmd_row("finding", LOG_PASSED, (unsigned long long)r->passed_seq);
	if (r->hold_lost)
		cmd_row("", LOG_HOLD_LOST);
	if (r->torn_seq)
		cmd_row("note", LOG_TORN, (unsigned long long)r->torn_seq);
	if (r->unreadable_blks)
		cmd_row("note",
			"%s block%s of the log cannot be read; a commit that was in one of them is not there",
			with_commas(r->unreadable_blks), plural(r->unreadable_blks));
	if (r->base_changed && r->state < LOG_BROKEN)
		cmd_row("note", "the file system was changed without cowfs since; the log was "
				"empty, so this is harmless");
	if (r->clone)
		cmd_row("note", "the log was written on another card");
	if (r->newest.seq)
		cmd_row("newest record", "generation %s, %s, %s (%s)",
			with_commas(r->newest.ledger.commits), record_words(r->newest.type),
			format_time(r->newest.time_s), cause_name(r->newest.cause));
	if (r->newest.flags & RECORD_UNREAD)
		cmd_row("", "its metadata was not checked: %s", FSINFO_DIED);
	if (r->newest.seq)
		cmd_row("not checkpointed", "%s block%s%s", with_commas(blocks), plural(blocks),
			blocks ? " exist in the log only: an attach serves them, '" COWCTL
				 " release' "
				 "checkpoints them"
			       : "");
	if (blocks)
		print_warning(c);
	else
		print_guard(c);
	for (unsigned i = 0; i < c->findings && i < CHECK_FINDINGS; i++)
		cmd_row("finding", "%s", c->finding[i]);
	if (c->findings > CHECK_FINDINGS)
		cmd_row("", "and %u more", c->findings - CHECK_FINDINGS);
	printf("verdict: %s\n", verdict_words(c));
}

int cmd_check(const struct options *o)
{
	struct check_report c;
	struct failure fail;

	if (offline_check(o->operand[0], o->value[OPT_LOG], &c, &fail) < 0)
		return cmd_failed(o, &fail);
	if (has_option(o, OPT_JSON))
		print_json(&c);
	else
		print_text(&c);
	return c.verdict == CHECK_GOOD	       ? EXIT_OK
	       : c.verdict == CHECK_REPAIRABLE ? EXIT_DEGRADED
					       : EXIT_FAILED;
}
