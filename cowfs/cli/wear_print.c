/* SPDX-License-Identifier: MIT */
/* cowctl wear as text: the meaning first, then the figures. At most 80 columns. */
#include "cli/cmd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"

static PRINTF(2, 3) void row(const char *label, const char *fmt, ...)
{
	char text[5 * KIB];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printf("  %-21s %s\n", label, clean_text(text));
}

/* Wraps at word boundaries, at most 80 columns. */
static PRINTF(1, 2) void say(const char *fmt, ...)
{
	char text[1024], *word, *save = NULL;
	size_t col = 0;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	clean_text(text);
	for (word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		size_t n = strlen(word);

		if (col && col + 1 + n > 78) {
			putchar('\n');
			col = 0;
		}
		col += (size_t)printf("%s%s", col ? " " : "  ", word);
	}
	putchar('\n');
}

#define LIFE(o, key) json_life(o, key, (char[24]){ 0 })

static void print_outlook(struct json_object *w)
{
	struct json_object *p = json_object_object_get(w, "projection"),
			   *s = json_object_object_get(p, "scenarios");
	struct json_object *whole = json_object_object_get(s, "whole_card"),
			   *hot = json_object_object_get(s, "hottest_erase_block"), *sooner;

	if (!json_true(p, "enough_data")) {
		say("Projected life: %s.", json_text(p, "why_not"));
		return;
	}
	sooner = json_object_object_get(json_object_object_get(p, "factors"),
					"sooner_without_cowfs");
	say("At the rate of the last %s days its flash lasts %s to %s if the card levels wear, "
	    "and at least %s if it does not.",
	    with_commas(json_u64(p, "observed_days")), LIFE(whole, "seconds_low"),
	    LIFE(whole, "seconds_high"), LIFE(hot, "seconds_low"));
	if (json_number(sooner, "high") >= 1.05)
		say("Without cowfs it would be worn out %.1f times sooner by the bytes and erase "
		    "blocks counted, up to %.0f times on a card that erases a block for each "
		    "write.",
		    json_number(sooner, "low"), json_number(sooner, "high"));
	say("This is about wear only, not about a controller that fails or a card that does not "
	    "survive a power cut.");
}

static void print_predecessor(struct json_object *w)
{
	struct json_object *p = json_object_object_get(w, "predecessor");
	uint64_t cards = json_u64(p, "cards"), all;
	const char *model = json_text(p, "model"), *identity = json_text(p, "card_identity");

	if (!p)
		return;
	say("It was cloned %s from another card%s%s%s%s. Since %s programs wrote %s there; %s reached that card, "
	    "in %s commit%s.",
	    format_time(json_u64(p, "cloned_unix_seconds")), *model ? ", " : "", model,
	    *identity ? ", " : "", identity, format_time(json_u64(p, "first_unix_seconds")),
	    FORMAT_SIZE(json_u64(p, "absorbed_bytes")), FORMAT_SIZE(json_u64(p, "written_bytes")),
	    with_commas(json_u64(p, "commits")), plural(json_u64(p, "commits")));
	all = json_u64(p, "all_written_bytes") +
	      json_u64(json_object_object_get(w, "totals"), "written_bytes");
	say("To this one and the %s before it, cowfs wrote %s.",
	    cards > 1 ? with_commas(cards) : "one", FORMAT_SIZE(all));
}

static void print_summary(struct json_object *w)
{
	struct json_object *t = json_object_object_get(w, "totals"),
			   *truth = json_object_object_get(w, "truth");
	uint64_t absorbed = json_u64(t, "absorbed_bytes"), written = json_u64(t, "written_bytes");
	uint64_t commits = json_u64(t, "commits"), foreign = json_u64(t, "foreign_bytes");
	double absorption = json_number(json_object_object_get(w, "ratios"), "absorption");

	if (!strcmp(json_text(w, "log_state"), "broken"))
		say("ATTENTION: the log is damaged (see cowctl check); the following could still "
		    "be read.");
	if (!strcmp(json_text(w, "log_state"), "foreign"))
		say("ATTENTION: foreign changes to the card while its log held blocks that are "
		    "not checkpointed: nothing can be committed (see cowctl check).");
	if (json_true(w, "clone"))
		say("The log was written on another card: this card is a copy. The figures begin "
		    "with this card. After a detach, 'cowctl prepare --force' gives it a log of its "
		    "own.");
	if (!written) {
		say("cowfs has not written to this card yet.");
	} else {
		say("Programs wrote %s; %s reached the card, in %s commit%s.",
		    FORMAT_SIZE(absorbed), FORMAT_SIZE(written), with_commas(commits),
		    plural(commits));
		if (absorption >= 1.05)
			say("That is %.1f times less than without the layer in RAM, before write "
			    "amplification by the file system and the card.",
			    absorption);
		else
			say("This saves nothing so far: little was overwritten in RAM before a "
			    "commit.");
		say("The card was writable for %s of %s.", SPAN(json_number(t, "writable_seconds")),
		    SPAN(json_number(t, "attached_seconds")));
	}
	if (json_u64(truth, "foreign_bytes"))
		say("ATTENTION: FOREIGN WRITES to it: %s since %s.",
		    FORMAT_SIZE(json_u64(truth, "foreign_bytes")),
		    format_time(json_u64(truth, "foreign_since_unix_seconds")));
	else if (foreign)
		say("Foreign writes before this attach: %s, first seen %s.", FORMAT_SIZE(foreign),
		    format_time(json_u64(t, "foreign_first_unix_seconds")));
	else if (json_true(truth, "have_kernel_counters"))
		say("No foreign writes were seen.");
	print_predecessor(w);
	print_outlook(w);
}

static void blocks(const char *label, uint64_t n, const char *note)
{
	char count[32];

	snprintf(count, sizeof(count), "%s", with_commas(n));
	row(label, "%14s %12s%s%s", count, FORMAT_SIZE(blk_to_bytes(n)), *note ? "  " : "", note);
}

static void print_totals(struct json_object *t)
{
	struct json_object *by = json_object_object_get(t, "commits_by_cause");

	puts("\nBlocks of 4 KiB since the first attach");
	blocks("not written: free", json_u64(t, "skipped_free_blocks"),
	       "deleted before the commit");
	blocks("not written: journal", json_u64(t, "skipped_journal_blocks"), "of the file system");
	blocks("not written: same", json_u64(t, "skipped_same_blocks"), "as on the card");
	blocks("written in place", json_u64(t, "direct_blocks"), "");
	blocks("written to the log", json_u64(t, "logged_blocks"), "");
	blocks("checkpointed from it", json_u64(t, "checkpoint_blocks"), "");
	blocks("padding", json_u64(t, "padded_blocks"), "");
	blocks("log's own", json_u64(t, "log_metadata_blocks") + json_u64(t, "super_blocks"), "");
	row("write calls", "%14s", with_commas(json_u64(t, "write_calls")));
	row("flushes", "%14s", with_commas(json_u64(t, "flushes")));
	row("commits", "%14s  manual %s, timer %s, pressure %s,",
	    with_commas(json_u64(t, "commits")), with_commas(json_u64(by, "manual")),
	    with_commas(json_u64(by, "timer")), with_commas(json_u64(by, "pressure")));
	row("", "%16sshutdown %s, detach %s, release %s", "", with_commas(json_u64(by, "shutdown")),
	    with_commas(json_u64(by, "detach")), with_commas(json_u64(by, "recover")));
	row("commits that failed", "%14s", with_commas(json_u64(t, "commits_failed")));
	row("first record", "%s", format_time(json_u64(t, "first_unix_seconds")));
}

static void print_ratio(const char *label, struct json_object *r, const char *key, const char *note)
{
	struct json_object *v = json_object_object_get(r, key);

	if (v)
		row(label, "%14.2f  %s", json_object_get_double(v), note);
	else
		row(label, "%14s  %s", "unknown", note);
}

enum unit { BYTES, RATIO, COUNT, PERCENT };

static char *format_number(double v, enum unit unit, char *buf, size_t size_bytes)
{
	if (unit == BYTES)
		return format_size((uint64_t)v, buf, size_bytes);
	snprintf(buf, size_bytes, "%.*f%s", unit == RATIO ? 2 : 0, unit == PERCENT ? v * 100 : v,
		 unit == PERCENT ? " %" : "");
	return buf;
}

static void print_interval(const char *label, struct json_object *i, enum unit unit)
{
	char a[24], b[24] = "?", text[60];

	if (!i)
		return;
	format_number(json_number(i, "low"), unit, a, sizeof(a));
	if (json_object_object_get(i, "high"))
		format_number(json_number(i, "high"), unit, b, sizeof(b));
	if (strcmp(a, b) != 0)
		snprintf(text, sizeof(text), "%s to %s", a, b);
	else
		snprintf(text, sizeof(text), "%s", a);
	row(label, "%-24s %s", text, json_text(i, "basis"));
}

static void print_ratios(struct json_object *w)
{
	struct json_object *r = json_object_object_get(w, "ratios");

	puts("\nRatios");
	print_ratio("absorption", r, "absorption", "bytes of programs per byte on the card");
	print_ratio("cowfs amplification", r, "cowfs_amplification",
		    "bytes on the card per byte of changes");
	print_interval("the device's own", json_object_object_get(r, "device_amplification"),
		       RATIO);
}

static void print_health(struct json_object *w)
{
	struct json_object *h = json_object_object_get(w, "health"),
			   *used = json_object_object_get(h, "life_used");
	struct json_object *e = json_object_object_get(h, "erase_cycles"),
			   *spare = json_object_object_get(h, "spare");
	const char *why = json_text(h, "unknown_because");

	printf("\nHealth reported by the device");
	if (*json_text(h, "source"))
		printf(" (%s)", json_text(h, "source"));
	putchar('\n');
	if (*json_text(h, "model"))
		row("device", "%s, %s", json_text(h, "model"),
		    FORMAT_SIZE(json_u64(h, "disk_bytes")));
	if (*why)
		say("Unknown: %s.", why);
	for (size_t i = 0; used && i < json_object_array_length(used); i++) {
		struct json_object *u = json_object_array_get_idx(used, i);

		if (json_number(u, "high") > 1)
			row("life used", "more than %.0f %% (%s: %s)", json_number(u, "low") * 100,
			    json_text(u, "part"), json_text(u, "raw"));
		else
			row("life used", "%.0f to %.0f %% (%s: %s)", json_number(u, "low") * 100,
			    json_number(u, "high") * 100, json_text(u, "part"),
			    json_text(u, "raw"));
	}
	if (strcmp(json_text(h, "pre_eol"), "unknown") != 0)
		row("reserved blocks", "%s", json_text(h, "pre_eol"));
	if (e)
		row("erase cycles", "%s on average, %s at most, rated for %s",
		    with_commas(json_u64(e, "average")), with_commas(json_u64(e, "most")),
		    json_object_object_get(e, "rated") ? with_commas(json_u64(e, "rated"))
						       : "unknown");
	if (spare && json_object_object_get(spare, "percent"))
		row("spare", "%s %% (limit %s %%)", with_commas(json_u64(spare, "percent")),
		    with_commas(json_u64(spare, "threshold_percent")));
	else if (spare)
		row("spare blocks", "%s", with_commas(json_u64(spare, "blocks")));
	if (json_object_object_get(h, "passed") && !json_true(h, "passed"))
		say("ATTENTION: the device reports that it is FAILING.");
}

static void print_factors(struct json_object *w)
{
	struct json_object *f = json_object_object_get(json_object_object_get(w, "projection"),
						       "factors");

	puts("\nWhat the projection is based on");
	print_interval("written a day", json_object_object_get(f, "daily_bytes"), BYTES);
	print_interval("without cowfs", json_object_object_get(f, "daily_bytes_without_cowfs"),
		       BYTES);
	print_interval("device amplification", json_object_object_get(f, "device_amplification"),
		       RATIO);
	print_interval("erase cycles", json_object_object_get(f, "erase_cycles"), COUNT);
	print_interval("capacity", json_object_object_get(f, "capacity_bytes"), BYTES);
	print_interval("life left", json_object_object_get(f, "life_left"), PERCENT);
}

static void print_units(struct json_object *w)
{
	struct json_object *eb = json_object_object_get(w, "erase_blocks"),
			   *hot = json_object_object_get(eb, "hottest");

	printf("\nErase blocks of %s (%s)", FORMAT_SIZE(json_u64(eb, "erase_block_bytes")),
	       json_text(eb, "erase_block_source"));
	if (json_u64(eb, "unit_bytes") != json_u64(eb, "erase_block_bytes"))
		printf(", counted in units of %s", FORMAT_SIZE(json_u64(eb, "unit_bytes")));
	putchar('\n');
	if (!json_true(w, "have_table")) {
		say("Unknown: the table has not been read yet, or memory ran out.");
		return;
	}
	row("written to", "%s of %s", with_commas(json_u64(eb, "touched_units")),
	    with_commas(json_u64(eb, "units") + json_u64(eb, "log_device_units")));
	row("visits", "%s",
	    with_commas(json_u64(json_object_object_get(w, "totals"), "erase_block_visits")));
	for (size_t i = 0; hot && i < json_object_array_length(hot) && i < 5; i++) {
		struct json_object *h = json_object_array_get_idx(hot, i);

		row(i ? "" : "most visited", "at %s%s: visits %s, written %s",
		    FORMAT_SIZE(json_u64(h, "disk_offset_bytes")),
		    json_true(h, "log_device") ? " of the log device" : "",
		    with_commas(json_u64(h, "visits")), FORMAT_SIZE(json_u64(h, "written_bytes")));
	}
}

static void print_commits(struct json_object *w)
{
	struct json_object *a = json_object_object_get(json_object_object_get(w, "history"),
						       "commits");
	size_t n = a ? json_object_array_length(a) : 0;

	if (!n)
		return;
	printf("\nLast commits\n  %-19s  %-8s %12s %12s %9s %7s\n", "when", "cause", "absorbed",
	       "written", "writable", "visits");
	for (size_t i = n > 5 ? n - 5 : 0; i < n; i++) {
		struct json_object *c = json_object_array_get_idx(a, i);

		printf("  %-19s  %-8s %12s %12s %7.2f s %7s\n",
		       format_time(json_u64(c, "unix_seconds")), json_text(c, "cause"),
		       FORMAT_SIZE(json_u64(c, "absorbed_bytes")),
		       FORMAT_SIZE(json_u64(c, "written_bytes")),
		       json_number(c, "writable_seconds"),
		       with_commas(json_u64(c, "erase_block_visits")));
	}
}

void print_wear(struct json_object *w)
{
	const char *name = json_text(w, "name"), *id = json_text(w, "card_identity");

	printf("%s%s%s%s%s\n\n", name, *name ? " on " : "", json_text(w, "device"),
	       *id ? ", card " : "", id);
	print_summary(w);
	print_totals(json_object_object_get(w, "totals"));
	row("last record", "%s", format_time(json_u64(w, "last_unix_seconds")));
	print_ratios(w);
	print_health(w);
	print_factors(w);
	print_units(w);
	print_commits(w);
}
