/* SPDX-License-Identifier: MIT */
/* cowctl check: what is on the card, in plain words; reads only, works beside a running daemon. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"
#include "card/blockdev.h"
#include "wire/render.h"

#define FINDINGS 32

enum verdict { GOOD, REPAIRABLE, BROKEN };

struct findings {
	unsigned count; /* may be more than are kept */
	char line[FINDINGS][200];
};

static void keep(void *ctx, const char *line)
{
	struct findings *fs = ctx;

	if (fs->count < FINDINGS)
		clean_copy(fs->line[fs->count], sizeof(fs->line[0]), line);
	fs->count++;
}

static const char *state_words(enum log_state state, bool wants_lent)
{
	switch (state) {
	case LOG_EMPTY:
		return "empty: nothing was ever committed";
	case LOG_CLEAN:
		return "clean: everything is at home, detached in order";
	case LOG_LIVE:
		return "live: the newest generation is complete";
	case LOG_FELL_BACK:
		return "fell back: a newer commit is not complete, the one before it is";
	case LOG_RETIRED:
		return "retired: cowfs has left this card, everything is at home";
	case LOG_BROKEN:
		return wants_lent
			       ? "WAITS FOR LENT ROOM: the newest commit is complete only with the device or file "
				 "that was lent to it; cowctl recover --lend DEVICE|FILE brings it home"
			       : "BROKEN: no complete generation is left; nothing will be replayed or "
				 "written";
	case LOG_FOREIGN:
		return "SET ASIDE: the file system was changed by somebody else while blocks "
		       "waited in the log; cowctl recover --accept-base or --accept-log decides";
	}
	return "?";
}

static const char *record_words(enum record_type type)
{
	switch (type) {
	case RECORD_COMMIT:
		return "commit";
	case RECORD_OPEN:
		return "opening of an epoch";
	case RECORD_CHECKPOINT:
		return "begin of a checkpoint";
	case RECORD_TAIL:
		return "end of a checkpoint";
	case RECORD_RETIRED:
		return "farewell";
	}
	return "none";
}

/* NULL, or that a shrink was cut off */
static const char *shrink_state(const struct offline *f)
{
	return f->super.state == SUPER_PENDING && f->report.state < LOG_BROKEN ? "committed" : NULL;
}

static enum verdict judge(const struct offline *f, uint64_t bad)
{
	if (bad || f->report.state >= LOG_BROKEN)
		return BROKEN;
	if (shrink_state(f) || f->report.state == LOG_FELL_BACK || (f->trouble & SUPER_COPIES_BAD))
		return REPAIRABLE;
	return GOOD;
}

static const char *const verdict_names[] = { "good", "repairable", "broken" };

static void print_json(const struct offline *f, const struct findings *fs, uint64_t bad,
		       enum verdict v)
{
	static char text[16 * KIB];
	const struct log_open_report *r = &f->report;
	struct jsonw w;

	jsonw_init(&w, text, sizeof(text));
	jsonw_object(&w, NULL);
	jsonw_bool(&w, "ok", v == GOOD);
	jsonw_str(&w, "verdict", verdict_names[v]);
	jsonw_str(&w, "device", f->base->geo.path);
	jsonw_str(&w, "log_device", f->log_card->geo.path);
	jsonw_str(&w, "attached_as", f->attached);
	jsonw_str(&w, "fs_type", f->fs.type);
	jsonw_u64(&w, "volume_bytes", f->super.fs_bytes);
	jsonw_u64(&w, "format_version", f->super.version);
	jsonw_uuid(&w, "ring_uuid", f->super.ring_uuid);
	jsonw_u64(&w, "log_offset_bytes", f->super.ring_off_bytes);
	jsonw_u64(&w, "log_bytes", (uint64_t)f->super.seg_bytes * f->super.seg_count);
	jsonw_u64(&w, "lag", f->super.lag);
	jsonw_bool(&w, "super_copy_a_bad", f->trouble & SUPER_COPY_A_BAD);
	jsonw_bool(&w, "super_copy_b_bad", f->trouble & SUPER_COPY_B_BAD);
	jsonw_bool(&w, "device_grown", f->trouble & SUPER_GROWN);
	jsonw_str(&w, "shrink", shrink_state(f) ? shrink_state(f) : "");
	jsonw_str(&w, "log_state", log_state_name(r->state));
	jsonw_bool(&w, "wants_lent", r->wants_lent);
	jsonw_u64(&w, "generation", r->newest.seq);
	jsonw_u64(&w, "highest_generation_seen", r->highest_seq);
	jsonw_u64(&w, "time_unix_seconds", r->newest.time_s);
	jsonw_str(&w, "cause", r->newest.seq ? cause_name(r->newest.cause) : "");
	jsonw_bool(&w, "unfrozen", r->newest.flags & RECORD_UNFROZEN);
	jsonw_bool(&w, "unread", r->newest.flags & RECORD_UNREAD);
	jsonw_u64(&w, "log_live_blocks", r->live_blks);
	jsonw_u64(&w, "log_zero_blocks", r->zero_blks);
	jsonw_bool(&w, "base_changed", r->base_changed);
	jsonw_bool(&w, "clone", r->clone);
	jsonw_u64(&w, "rejected_records", r->rejected);
	jsonw_str(&w, "rejected_why", r->why);
	jsonw_u64(&w, "bad_blocks", bad);
	jsonw_array(&w, "findings");
	for (unsigned i = 0; i < fs->count && i < FINDINGS; i++)
		jsonw_str(&w, NULL, fs->line[i]);
	jsonw_end(&w);
	jsonw_object(&w, "lifetime");
	render_ledger(&w, &r->ledger);
	jsonw_end(&w);
	if (jsonw_finish(&w))
		fputs(text, stdout);
}

static void print_super(const struct offline *f)
{
	const char *copies = f->trouble & SUPER_COPY_A_BAD   ? "copy A is DAMAGED, copy B is good"
			     : f->trouble & SUPER_COPY_B_BAD ? "copy B is DAMAGED, copy A is good"
							     : "both copies good";

	printf("  %-14s %s%s\n", "super record", copies,
	       f->trouble & SUPER_GROWN ? "; the device is larger than when the log was made" : "");
	printf("  %-14s %s at %s of %s, %u segments of %s, made %s\n", "log",
	       FORMAT_SIZE((uint64_t)f->super.seg_bytes * f->super.seg_count),
	       FORMAT_SIZE(f->super.ring_off_bytes), CLEAN(f->log_card->geo.path),
	       f->super.seg_count, FORMAT_SIZE(f->super.seg_bytes),
	       format_time(f->super.created_s));
	if (f->super.lag)
		printf("  %-14s %u: the commit before the newest is kept\n", "lag", f->super.lag);
}

static const char *verdict_words(const struct offline *f, enum verdict v, uint64_t bad)
{
	if (v == GOOD)
		return "good";
	if (shrink_state(f))
		return "usable";
	if (v == REPAIRABLE)
		return f->report.state == LOG_FELL_BACK ? "usable: an attach or 'cowctl recover' "
							  "goes on from the generation above"
							: "usable: one copy of the super record is "
							  "left; 'cowctl grow' makes two again";
	if (bad)
		return "DAMAGED: blocks of committed data do not have the content that was written";
	if (f->report.wants_lent)
		return "WAITS: do not mount the file system before, it may be a mixture of generations";
	if (f->report.state == LOG_FOREIGN)
		return "SET ASIDE: the file system is as the card holds it, without the log";
	return "BROKEN: the file system is as the card holds it, without the log";
}

static void print_text(const struct offline *f, const struct findings *fs, uint64_t bad,
		       enum verdict v)
{
	const struct log_open_report *r = &f->report;
	uint64_t blocks = r->live_blks + r->zero_blks;

	printf("%s: %s of %s with a cowfs log of format %u\n", CLEAN(f->base->geo.path), f->fs.type,
	       FORMAT_SIZE(f->super.fs_bytes), f->super.version);
	if (*f->attached)
		printf("  %-14s attached as volume %s: the log may change while it is read\n",
		       "note", f->attached);
	print_super(f);
	if (shrink_state(f))
		printf("  %-14s a shrink was cut off after its commit: the smaller file system "
		       "stands, attach or 'cowctl recover' finishes it\n",
		       "state");
	else
		printf("  %-14s %s\n", "state", state_words(r->state, r->wants_lent));
	if (r->state >= LOG_BROKEN)
		printf("  %-14s %s\n", "", CLEAN(r->why));
	if (r->rejected)
		printf("  %-14s %u newer record(s) not chosen: %s\n", "", r->rejected,
		       CLEAN(r->why));
	if (r->base_changed && r->state < LOG_BROKEN)
		printf("  %-14s the file system was changed without cowfs since; nothing waited in "
		       "the log, so that is no trouble\n",
		       "note");
	if (r->clone)
		printf("  %-14s the log was written on another card\n", "note");
	if (r->newest.seq)
		printf("  %-14s generation %s, %s, %s (%s)\n", "newest record",
		       with_commas(r->newest.seq), record_words(r->newest.type),
		       format_time(r->newest.time_s), cause_name(r->newest.cause));
	if (r->newest.flags & RECORD_UNFROZEN)
		printf("  %-14s sealed without a freeze: as a power cut would leave it, with a journal to be replayed\n",
		       "");
	if (r->newest.flags & RECORD_UNREAD)
		printf("  %-14s its metadata were not checked: %s\n", "", FSINFO_DIED);
	if (r->newest.seq)
		printf("  %-14s %s blocks%s\n", "not home yet", with_commas(blocks),
		       blocks ? " are in the log only: an attach serves them, 'cowctl recover' "
				"brings them home"
			      : "");
	if (blocks)
		printf("  %-14s do not mount it without cowfs before that: it is a mixture of generations\n",
		       "warning");
	for (unsigned i = 0; i < fs->count && i < FINDINGS; i++)
		printf("  %-14s %s\n", "finding", fs->line[i]);
	if (fs->count > FINDINGS)
		printf("  %-14s and %u more\n", "", fs->count - FINDINGS);
	printf("verdict: %s\n", verdict_words(f, v, bad));
}

static int check(struct offline *f, const struct options *o)
{
	static struct findings fs;
	uint64_t bad = 0;
	enum verdict v;
	int e, exit = offline_open(f, o, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, 0);

	if (exit == EXIT_OK)
		exit = offline_open_log(f, o);
	if (exit != EXIT_OK)
		return exit;
	if (f->report.state < LOG_BROKEN) {
		e = log_verify(f->log, keep, &fs, &bad);
		if (e < 0)
			return cmd_fail(o, EXIT_FAILED, e, "the log on %s cannot be read: %s",
					f->log_card->geo.path, strerrordesc_np(-e));
	}
	v = judge(f, bad);
	if (has_option(o, OPT_JSON))
		print_json(f, &fs, bad, v);
	else
		print_text(f, &fs, bad, v);
	return v == GOOD ? EXIT_OK : v == REPAIRABLE ? EXIT_DEGRADED : EXIT_FAILED;
}

int cmd_check(const struct options *o)
{
	struct offline f = { 0 };
	int exit = check(&f, o);

	offline_close(&f);
	return exit;
}
