/* SPDX-License-Identifier: MIT */
/* Prints the answers of a daemon as aligned text for people. Blocks are 4 KiB. */
#include "cli/cmd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"
#include "wire/risk.h"

static PRINTF(2, 3) void row(const char *label, const char *fmt, ...)
{
	char text[5 * KIB];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printf("%-12s%s\n", label, clean_text(text));
}

static const char *size_of(uint64_t blocks)
{
	static char ring[4][24];
	static unsigned next;

	return format_size(blk_to_bytes(blocks), ring[next++ % ARRAY_SIZE(ring)], sizeof(ring[0]));
}

/* ---- status ---- */

bool version_text(struct json_object *s, char *ret, size_t n)
{
	const char *serves = json_text(s, "version");

	if (!*serves || !strcmp(serves, COWFS_VERSION))
		return false;
	snprintf(ret, n, "%s serves until %s; " COWFS_VERSION " is installed", serves,
		 strcmp(json_text(s, "name"), ROOT_NAME) ? "it is detached" : "the next boot");
	return true;
}

bool all_on_card(struct json_object *s)
{
	return (!json_u64(s, "dirty_blocks") || json_true(s, "superblock_only")) &&
	       !json_true(s, "unwritten");
}

const char *next_text(struct json_object *s)
{
	static char text[64];
	uint64_t next = json_u64(s, "next_commit_unix_seconds");

	*text = '\0';
	if (next)
		snprintf(text, sizeof(text), ", next %s", format_time(next));
	return text;
}

static void print_volume(struct json_object *s, bool verbose)
{
	const char *mount = json_text(s, "mountpoint"), *log = json_text(s, "log_device");
	char other[160] = "";

	row("volume", "%s%s", json_text(s, "name"),
	    json_true(s, "readonly") ? ": log is damaged, nothing will be committed" : "");
	row("device", "%s, %s, %s%s%s", json_text(s, "device"), json_text(s, "fs_type"),
	    FORMAT_SIZE(json_u64(s, "volume_bytes")),
	    *json_text(s, "card_identity") ? ", card " : "", json_text(s, "card_identity"));
	if (*log && strcmp(log, json_text(s, "device")))
		row("log device", "%s", log);
	row("use", "%s%s%s", json_text(s, "loop"), *mount ? " on " : ", not mounted", mount);
	if (*json_text(s, "lower"))
		row("image", "%s: the volume has the changes", json_text(s, "lower"));
	if (verbose && *json_text(s, "on_crash"))
		row("on crash", "%s: %s", json_text(s, "on_crash"),
		    json_text(s, "on_crash_reason"));
	if (json_u64(s, "replaced"))
		row("replaced", "%llu time%s since attach%s",
		    (unsigned long long)json_u64(s, "replaced"),
		    json_u64(s, "replaced") == 1 ? "" : "s",
		    json_true(s, "halted") ? "; halted: writes fail" : "");
	if (version_text(s, other, sizeof(other)) || verbose)
		row("version", "%s", *other ? other : json_text(s, "version"));
	if (!verbose)
		return;
	row("attached", "%s", format_time(json_u64(s, "attached_unix_seconds")));
	row("profile", "%s%s%s", json_text(s, "profile"),
	    json_true(s, "profile_guessed")				 ? ": unknown card"
	    : *json_text(s, "profile") && !json_true(s, "profile_plans") ? ": estimates only"
									 : "",
	    json_true(s, "profile_of_another_card") ? " (the saved one is of another card)" : "");
}

/* At most two of the units. */
static const char *time_text(uint64_t s, char *buf, size_t n)
{
	unsigned long long v = s;

	if (s < 60 || (s < 3600 && s % 60))
		snprintf(buf, n, v < 60 ? "%llu s" : "%llu min %llu s", v < 60 ? v : v / 60,
			 v % 60);
	else if (s < 3600)
		snprintf(buf, n, "%llu min", v / 60);
	else
		snprintf(buf, n, v % 3600 < 60 ? "%llu h" : "%llu h %llu min", v / 3600,
			 v % 3600 / 60);
	return buf;
}

bool away_text(struct json_object *s, char *ret, size_t n)
{
	struct json_object *a = json_object_object_get(s, "away");
	bool base = json_true(a, "base"), log = json_true(a, "log");
	char since[32];

	if (!base && !log)
		return false;
	snprintf(ret, n, "for %s: %s%s%s was pulled out, or has reset",
		 time_text(json_u64(a, "seconds"), since, sizeof(since)),
		 base ? json_text(s, "device") : "", base && log ? " and the log's " : "",
		 log ? json_text(s, "log_device") : "");
	return true;
}

static void print_away(struct json_object *s)
{
	struct json_object *a = json_object_object_get(s, "away"),
			   *limit = json_object_object_get(a, "limit_seconds");
	uint64_t times = json_u64(a, "times");
	char text[512], until[32] = "";

	if (!away_text(s, text, sizeof(text))) {
		if (times)
			row("away", "%s time%s since attach, not now", with_commas(times),
			    plural(times));
		return;
	}
	if (limit)
		time_text(json_u64(a, "limit_seconds"), until, sizeof(until));
	row("AWAY", "the card is, %s", text);
	if (json_true(a, "given_up"))
		row("", "reads that RAM cannot answer fail, writes go to RAM, commits wait");
	else
		row("", "reads that RAM cannot answer wait, writes go to RAM, commits wait; %s%s",
		    limit ? "reads fail after " : "without a limit", until);
	if (json_true(a, "commit_waits"))
		row("", "a commit was interrupted, and is made when the card is back");
	if (*json_text(a, "refused"))
		row("", "not taken for it: %s", json_text(a, "refused"));
}

static void print_ram(struct json_object *s, bool verbose)
{
	uint64_t used = json_u64(s, "ram_used_bytes"), limit = json_u64(s, "ram_limit_bytes");
	uint64_t holes = json_u64(s, "hole_blocks"), failed = json_u64(s, "failed_blocks");

	row("uncommitted", "%s%s", size_of(json_u64(s, "dirty_blocks")),
	    all_on_card(s) ? ": all files are on the card" : "");
	row("RAM", "%s of %s (%u %%)", FORMAT_SIZE(used), FORMAT_SIZE(limit),
	    limit ? (unsigned)(used * 100 / limit) : 0);
	if (holes && verbose)
		row("", "%s discarded block%s (no RAM needed)", with_commas(holes), plural(holes));
	if (failed)
		row("", "%s of it kept from a commit that failed", size_of(failed));
}

static void print_views(struct json_object *s)
{
	struct json_object *views = json_object_object_get(s, "views");
	size_t n = 0;
	struct json_object *list = json_array(views, "list", &n);

	if (n)
		row("views", "%zu, holding %s of RAM", n,
		    FORMAT_SIZE(json_u64(views, "ram_bytes")));
	for (size_t i = 0; list && i < n; i++) {
		struct json_object *v = json_object_array_get_idx(list, i);
		bool now = !strcmp(json_text(v, "kind"), "now");

		row("", "%s %llu, of %s, %s%s", now ? "now, after generation" : "generation",
		    (unsigned long long)json_u64(v, "generation"),
		    format_time(json_u64(v, "time_unix_seconds")),
		    FORMAT_SIZE(json_u64(v, "ram_bytes")),
		    json_true(v, "ended") ? ": ENDED, its reads fail: unmount it" : "");
	}
	if (*json_text(views, "last_end"))
		row(n ? "" : "views", "the last one that ended early: %s",
		    json_text(views, "last_end"));
}

static void print_pressure(struct json_object *s)
{
	struct json_object *p = json_object_object_get(s, "pressure");
	const char *level = json_text(p, "level");
	uint64_t commits = json_u64(p, "commits");
	double inhibit_s = json_number(s, "inhibit_left_seconds");

	if (strcmp(level, "ok") || commits)
		row("pressure", "%s, %s commit%s because of it, longest delay of a write %.2f s",
		    level, with_commas(commits), plural(commits),
		    json_number(p, "longest_delay_seconds"));
	if (json_number(p, "max_commit_seconds") > 0)
		row("commit time", "about %.1f s now, at most %g s%s",
		    json_number(p, "commit_seconds"), json_number(p, "max_commit_seconds"),
		    json_true(p, "card_too_slow") ? ": THE CARD IS TOO SLOW for that" : "");
	if (json_true(p, "pacing"))
		row("", "writers get %s/s", FORMAT_SIZE(json_u64(p, "rate_bytes_per_second")));
	if (json_true(p, "gave_up"))
		row("", "commits fail: writes fail while RAM is full");
	if (inhibit_s > 0)
		row("inhibit", "no timer commits for another %.0f s", inhibit_s);
}

static void print_last(struct json_object *s, bool verbose)
{
	struct json_object *last = json_object_object_get(s, "last"),
			   *report = json_object_object_get(last, "report");

	row("last commit", "generation %s of %s%s", with_commas(json_u64(s, "generation")),
	    format_time(json_u64(s, "generation_unix_seconds")), next_text(s));
	if (last && !json_true(last, "ok"))
		row("", "%s FAILED (%s): %s", format_time(json_u64(last, "time_unix_seconds")),
		    json_text(last, "code"), json_text(last, "remark"));
	else if (last && verbose)
		row("", "%s written, blocks: %s direct, %s logged; %.2f s%s%s",
		    FORMAT_SIZE(json_u64(report, "written_bytes")),
		    with_commas(json_u64(report, "direct_blocks")),
		    with_commas(json_u64(report, "logged_blocks")),
		    json_number(report, "duration_seconds"),
		    json_true(json_object_object_get(last, "quiesce"), "raw")
			    ? ", sealed as a power cut would leave it"
			    : "",
		    json_true(last, "unread") ? ", metadata not checked" : "");
}

/* What is held, on trial, or undone. */
static void print_held(struct json_object *s)
{
	struct json_object *held = json_object_object_get(s, "held"),
			   *undone = json_object_object_get(s, "undone");

	if (held)
		row("held", "generation %s of %s, until cowctl accept or undo",
		    with_commas(json_u64(held, "generation")),
		    format_time(json_u64(held, "time_unix_seconds")));
	if (json_true(held, "log_low"))
		row("", "LOG NEARLY FULL: %s are left for commits while it is held",
		    size_of(json_u64(s, "log_room_blocks")));
	if (json_u64(held, "log_full_seconds"))
		row("", "full in %llu s at the present rate",
		    (unsigned long long)json_u64(held, "log_full_seconds"));
	if (json_true(held, "trial"))
		row("trial",
		    "UNTIL cowctl accept: after %llu more boot%s without that it goes back",
		    (unsigned long long)json_u64(held, "boots_left"),
		    plural(json_u64(held, "boots_left")));
	if (undone)
		row("undone", "this %s went back to generation %s of %s%s",
		    strcmp(json_text(s, "name"), ROOT_NAME) ? "attach" : "boot",
		    with_commas(json_u64(undone, "generation")),
		    format_time(json_u64(undone, "time_unix_seconds")),
		    json_true(undone, "trial_failed")
			    ? ": THE TRIAL HAS FAILED, no boot was accepted"
			    : "");
	if (json_true(s, "protection_on_trial"))
		row("protection",
		    "ON TRIAL: without cowctl accept in some boot the root becomes an ordinary one");
}

static void print_log(struct json_object *s, bool verbose)
{
	uint64_t live = json_u64(s, "log_live_blocks");
	char twin[RUNDIR_NAME_BYTES];

	if (json_u64(s, "generation_unix_seconds") > (uint64_t)time(NULL) + 24 * 3600)
		row("clock", "the last commit is of %s: the clock was wrong then, or is now",
		    format_time(json_u64(s, "generation_unix_seconds")));
	print_held(s);
	print_last(s, verbose);
	if (verbose)
		row("log",
		    "%s block%s (%s) not checkpointed, room for %s; after a checkpoint a commit may have %s",
		    with_commas(live), plural(live), size_of(live),
		    size_of(json_u64(s, "log_room_blocks")),
		    size_of(json_u64(s, "log_capacity_blocks")));
	if (live)
		row(verbose ? "" : "log", "do not mount the card without cowfs: %s empties the log",
		    json_u64(s, "lag") ? "a detach" : "'cowctl commit --checkpoint' or a detach");
	if (json_u64(s, "lag"))
		row("",
		    "lag %llu: the previous commit is kept in case the card loses the newest one",
		    (unsigned long long)json_u64(s, "lag"));
	if (json_true(s, "super_copy_a_bad") || json_true(s, "super_copy_b_bad"))
		row("", "superblock %s of the log is damaged",
		    json_true(s, "super_copy_a_bad") ? "A" : "B");
	if (json_true(s, "device_grown"))
		row("", "the device has grown since the log was made");
	if (!strcmp(json_text(s, "log_state_at_attach"), "fell-back"))
		row("", "at attach the previous generation was used: the newest was incomplete");
	if (json_true(s, "base_changed") && !json_true(s, "readonly"))
		row("", "before the attach the file system was changed without cowfs; the log "
			"was empty, so the change was accepted");
	if (json_true(s, "clone"))
		row("", "the log was written on another card: its wear account restarts; after a "
			"detach, 'cowctl prepare --force' gives this card a log of its own");
	client_find_twin(json_text(s, "name"), json_text(s, "log_id"), twin);
	if (*twin)
		row("",
		    "volume %s has the same log: it is a copy of this card; each serves its own "
		    "device",
		    twin);
}

static void print_card(struct json_object *s)
{
	struct json_object *c = json_object_object_get(s, "card"),
			   *l = json_object_object_get(s, "lifetime");
	uint64_t foreign = json_u64(c, "foreign_bytes");

	row("absorbed", "%s in %s write%s since attach", FORMAT_SIZE(json_u64(s, "absorbed_bytes")),
	    with_commas(json_u64(s, "absorbed_writes")), plural(json_u64(s, "absorbed_writes")));
	row("card", "%s in %s write%s, %s flush%s, writable %.2f s since attach",
	    FORMAT_SIZE(json_u64(c, "written_bytes")), with_commas(json_u64(c, "write_calls")),
	    plural(json_u64(c, "write_calls")), with_commas(json_u64(c, "flushes")),
	    json_u64(c, "flushes") == 1 ? "" : "es", json_number(c, "writable_seconds"));
	if (json_true(c, "have_kernel_counters"))
		row("", "counted by the kernel: %s written",
		    FORMAT_SIZE(json_u64(c, "kernel_written_bytes")));
	if (foreign)
		row("", "FOREIGN WRITES: %s", FORMAT_SIZE(foreign));
	row("lifetime", "%s absorbed, %s written to the card, %s commit%s",
	    FORMAT_SIZE(json_u64(l, "absorbed_bytes")), FORMAT_SIZE(json_u64(l, "written_bytes")),
	    with_commas(json_u64(l, "commits")), plural(json_u64(l, "commits")));
}

static void print_trim(struct json_object *t)
{
	if (!json_true(t, "announced"))
		row("trim", "the card announces no discards, or is known to lose data by them");
	else
		row("trim", "%s%s%s, last %s, %s since attach",
		    strcmp(json_text(t, "mode"), "weekly") ? "by hand" : "weekly",
		    *json_text(t, "refused") ? ", refused: " : "", json_text(t, "refused"),
		    json_u64(t, "last_unix_seconds") ? format_time(json_u64(t, "last_unix_seconds"))
						     : "never",
		    FORMAT_SIZE(json_u64(t, "bytes")));
}

static void print_keep(struct json_object *k)
{
	if (!k)
		return;
	row("kept", "%s, %s%s, last committed %s", json_text(k, "paths"),
	    strcmp(json_text(k, "interval"), "0") ? "every " : "before a discard",
	    strcmp(json_text(k, "interval"), "0") ? json_text(k, "interval") : "",
	    format_time(json_u64(k, "last_unix_seconds")));
	if (*json_text(k, "error"))
		row("", "NOT KEPT: %s", json_text(k, "error"));
}

void print_status(struct json_object *s, bool verbose)
{
	struct json_object *p = json_object_object_get(s, "progress");
	const char *alarm = json_text(s, "alarm");

	print_volume(s, verbose);
	risk_print(stdout, "!", s, false);
	print_away(s);
	print_ram(s, verbose);
	print_views(s);
	print_pressure(s);
	print_keep(json_object_object_get(s, "keep"));
	print_log(s, verbose);
	if (verbose)
		print_card(s);
	if (verbose && json_object_object_get(s, "trim"))
		print_trim(json_object_object_get(s, "trim"));
	if (p)
		row("now", "%s: %s, %s of %s, %.1f s", json_text(p, "job"), json_text(p, "phase"),
		    size_of(json_u64(p, "done_blocks")), size_of(json_u64(p, "total_blocks")),
		    json_number(p, "elapsed_seconds"));
	if (verbose || *alarm)
		row("alarm", "%s", *alarm ? alarm : "none");
}

/* ---- what a commit wrote ---- */

static void item(const char *label, uint64_t blocks, const char *note)
{
	printf("  %-24s %12s  %12s%s%s\n", label, with_commas(blocks), size_of(blocks),
	       *note ? "  " : "", note);
}

static void item_extents(const char *label, struct json_object *r, const char *blocks,
			 const char *extents)
{
	char note[48];

	snprintf(note, sizeof(note), "in %s extent%s", with_commas(json_u64(r, extents)),
		 plural(json_u64(r, extents)));
	item(label, json_u64(r, blocks), json_u64(r, blocks) ? note : "");
}

static const char *time_by(struct json_object *report)
{
	const char *by = json_text(report, "writable_by");

	return !strcmp(by, "commits") ? ", by the slowest of its last commits"
	       : !strcmp(by, "guess") ? " at a guess: no commit was made since attach"
				      : "";
}

void print_bill(struct json_object *result)
{
	struct json_object *r = json_object_object_get(result, "report");
	struct json_object *q = json_object_object_get(result, "quiesce");
	const char *about = json_true(r, "estimate") ? "about " : "";
	uint64_t calls = json_u64(r, "write_calls"), flushes = json_u64(r, "flushes");
	uint64_t erase_blocks = json_u64(r, "erase_blocks") +
				json_u64(r, "checkpoint_erase_blocks");

	printf("  %-24s %12s\n", "", "4 KiB blocks");
	item("dirty", json_u64(r, "dirty_blocks"), "");
	if (json_u64(r, "hole_blocks"))
		item("discarded", json_u64(r, "hole_blocks"), "");
	if (json_u64(r, "skipped_hole_blocks"))
		item("  of them nothing to do", json_u64(r, "skipped_hole_blocks"), "");
	item("skipped, free", json_u64(r, "skipped_free_blocks"), "");
	item("skipped, journal", json_u64(r, "skipped_journal_blocks"), "");
	item("skipped, same content", json_u64(r, "skipped_same_blocks"), "");
	item_extents("written in place", r, "direct_blocks", "direct_extents");
	item_extents("written to the log", r, "logged_blocks", "logged_extents");
	if (json_u64(r, "spilled_blocks"))
		item("  spilled to free blocks", json_u64(r, "spilled_blocks"), "");
	if (json_u64(r, "moved_blocks"))
		item("  moved there, cheaper", json_u64(r, "moved_blocks"), "");
	if (json_u64(r, "padded_blocks"))
		item("padding of gaps", json_u64(r, "padded_blocks"), "");
	item("zero (no payload)", json_u64(r, "zero_blocks"), "");
	item("log metadata", json_u64(r, "log_metadata_blocks"), "");
	item("checkpointed", json_u64(r, "checkpoint_blocks"), "");
	printf("  card: %s%s in %s write call%s, %s flush%s, %s erase block%s; ", about,
	       FORMAT_SIZE(json_u64(r, "written_bytes")), with_commas(calls), plural(calls),
	       with_commas(flushes), flushes == 1 ? "" : "es", with_commas(erase_blocks),
	       plural(erase_blocks));
	printf("writable for %s%.3f s%s\n", about, json_number(r, "writable_seconds"), time_by(r));
	if (*json_text(r, "profile") && !json_true(r, "profile_guessed"))
		printf("  by profile %s: %s unit%s written in place\n", json_text(r, "profile"),
		       with_commas(json_u64(r, "profile_units")),
		       plural(json_u64(r, "profile_units")));
	if (json_true(q, "instant"))
		printf("  sealed after a sync of %.3f s\n", json_number(q, "sync_seconds"));
}

void print_remarks(struct json_object *result)
{
	struct json_object *q = json_object_object_get(result, "quiesce");

	if (json_true(q, "hidden"))
		printf("  mounted in a mount namespace that is not visible here, kept by %s\n",
		       *json_text(q, "holder") ? json_text(q, "holder") : "an unknown process");
}
