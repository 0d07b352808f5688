/* SPDX-License-Identifier: MIT */
/* cowctl wear as text: the meaning first, then the figures. One screen of 80 columns. */
#include "cli/cmd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"

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
}

static uint64_t blk_bytes(struct json_object *t, const char *key)
{
	return blk_to_bytes(json_u64(t, key));
}

static void print_totals(struct json_object *w)
{
	struct json_object *t = json_object_object_get(w, "totals"),
			   *by = json_object_object_get(t, "commits_by_cause"),
			   *used = json_at(w, "ratios.cowfs_amplification");

	cmd_row("not written", "%s free, %s journal, %s as on the card",
		FORMAT_SIZE(blk_bytes(t, "skipped_free_blocks")),
		FORMAT_SIZE(blk_bytes(t, "skipped_journal_blocks")),
		FORMAT_SIZE(blk_bytes(t, "skipped_same_blocks")));
	cmd_row("written", "%s in place, %s to the log,",
		FORMAT_SIZE(blk_bytes(t, "direct_blocks")),
		FORMAT_SIZE(blk_bytes(t, "logged_blocks")));
	cmd_row("", "%s checkpointed, %s padding, %s of the log itself",
		FORMAT_SIZE(blk_bytes(t, "checkpoint_blocks")),
		FORMAT_SIZE(blk_bytes(t, "padded_blocks")),
		FORMAT_SIZE(blk_bytes(t, "log_metadata_blocks") + blk_bytes(t, "super_blocks")));
	if (used)
		cmd_row("amplification", "%.2f bytes on the card per byte of changes",
			json_object_get_double(used));
	cmd_row("calls", "%s writes, %s flushes", with_commas(json_u64(t, "write_calls")),
		with_commas(json_u64(t, "flushes")));
	cmd_row("commits", "%s: manual %s, timer %s, pressure %s,",
		with_commas(json_u64(t, "commits")), with_commas(json_u64(by, "manual")),
		with_commas(json_u64(by, "timer")), with_commas(json_u64(by, "pressure")));
	cmd_row("", "shutdown %s, detach %s, release %s; %s failed",
		with_commas(json_u64(by, "shutdown")), with_commas(json_u64(by, "detach")),
		with_commas(json_u64(by, "recover")), with_commas(json_u64(t, "commits_failed")));
	cmd_row("first record", "%s", format_time(json_u64(t, "first_unix_seconds")));
	cmd_row("last record", "%s", format_time(json_u64(w, "last_unix_seconds")));
}

static void print_units(struct json_object *w)
{
	struct json_object *eb = json_object_object_get(w, "erase_blocks"), *hot, *h;
	size_t n;

	if (!json_true(w, "have_table")) {
		cmd_row("erase blocks",
			"unknown: the table has not been read yet, or memory ran out");
		return;
	}
	cmd_row("erase blocks", "%s (%s), %s of %s %swritten to, %s visits",
		FORMAT_SIZE(json_u64(eb, "erase_block_bytes")), json_text(eb, "erase_block_source"),
		with_commas(json_u64(eb, "touched_units")),
		with_commas(json_u64(eb, "units") + json_u64(eb, "log_device_units")),
		json_u64(eb, "unit_bytes") != json_u64(eb, "erase_block_bytes") ? "units " : "",
		with_commas(json_u64(json_object_object_get(w, "totals"), "erase_block_visits")));
	hot = json_array(eb, "hottest", &n);
	if (!n)
		return;
	h = json_object_array_get_idx(hot, 0);
	cmd_row("most visited", "at %s%s: %s visits, written %s",
		FORMAT_SIZE(json_u64(h, "disk_offset_bytes")),
		json_true(h, "log_device") ? " of the log device" : "",
		with_commas(json_u64(h, "visits")), FORMAT_SIZE(json_u64(h, "written_bytes")));
}

static void print_disk(struct json_object *w)
{
	struct json_object *disk = json_object_object_get(w, "disk");
	uint64_t used = json_u64(disk, "life_used_percent");

	if (*json_text(disk, "model"))
		cmd_row("card", "%s, %s", json_text(disk, "model"),
			FORMAT_SIZE(json_u64(disk, "bytes")));
	if (used > 100)
		cmd_row("its rated life", "USED UP, as it reports itself");
	else if (used)
		cmd_row("its rated life", "up to %s %% used, as it reports itself",
			with_commas(used));
}

static void print_last_commit(struct json_object *w)
{
	struct json_object *a, *c;
	size_t n;

	a = json_array(json_object_object_get(w, "history"), "commits", &n);
	if (!n)
		return;
	c = json_object_array_get_idx(a, n - 1);
	cmd_row("last commit", "%s, %s: %s absorbed,", format_time(json_u64(c, "unix_seconds")),
		json_text(c, "cause"), FORMAT_SIZE(json_u64(c, "absorbed_bytes")));
	cmd_row("", "%s written, %.2f s writable", FORMAT_SIZE(json_u64(c, "written_bytes")),
		json_number(c, "writable_seconds"));
}

void print_wear(struct json_object *w)
{
	const char *name = json_text(w, "name"), *id = json_text(w, "card_identity");

	printf("%s%s%s%s%s\n\n", name, *name ? " on " : "", json_text(w, "device"),
	       *id ? ", card " : "", id);
	print_summary(w);
	putchar('\n');
	print_totals(w);
	print_units(w);
	print_disk(w);
	print_last_commit(w);
}
