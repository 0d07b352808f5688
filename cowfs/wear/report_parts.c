/* SPDX-License-Identifier: MIT */
/*
 * The content of the page: sentences and tables. <data> has the exact number of the document
 * beside the rounded text, and data-json has its path.
 */
#include "wear/report.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "base/parse.h"
#include "base/numbers.h"
#include "base/html.h"
#include "wire/json.h"

static const double year_s = 365.25 * 86400;

static uint64_t number_at(struct json_object *w, const char *path)
{
	return json_object_get_uint64(json_at(w, path));
}

static void data(FILE *f, uint64_t v, const char *path, const char *text)
{
	fprintf(f, "<data value=\"%llu\" data-json=\"%s\">%s</data>", (unsigned long long)v, path,
		text);
}

static void put_bytes(FILE *f, struct json_object *w, const char *path)
{
	data(f, number_at(w, path), path, FORMAT_SIZE(number_at(w, path)));
}

static void put_count(FILE *f, struct json_object *w, const char *path)
{
	data(f, number_at(w, path), path, with_commas(number_at(w, path)));
}

static void put_span(FILE *f, struct json_object *w, const char *path)
{
	double s = json_object_get_double(json_at(w, path));

	fprintf(f, "<data value=\"%.10g\" data-json=\"%s\">%s</data>", s, path, SPAN(s));
}

#define LIFE(o, key) json_life(o, key, (char[24]){ 0 })

/* ---- alarms, and the verdict based on them ---- */

enum level { NOTE, WATCH, ACT };

struct alarms {
	size_t n;
	struct alarm {
		enum level level;
		char text[320];
	} alarm[16];
	enum level worst;
};

static PRINTF(3, 4) void add(struct alarms *a, enum level level, const char *fmt, ...)
{
	va_list ap;

	if (a->n == ARRAY_SIZE(a->alarm))
		return;
	a->alarm[a->n].level = level;
	va_start(ap, fmt);
	vsnprintf(a->alarm[a->n].text, sizeof(a->alarm[a->n].text), fmt, ap);
	va_end(ap);
	a->n++;
	a->worst = level > a->worst ? level : a->worst;
}

#define REPLACE "Copy what you need, and replace the card."

static void find_foreign(struct alarms *a, struct json_object *w)
{
	uint64_t now = number_at(w, "truth.foreign_bytes"),
		 ever = number_at(w, "totals.foreign_bytes");

	if (now)
		add(a, ACT,
		    "Foreign writes to this card: %s since %s. Find and end the program that writes to the "
		    "device, then check the file system.",
		    FORMAT_SIZE(now),
		    format_time(number_at(w, "truth.foreign_since_unix_seconds")));
	else if (ever)
		add(a, WATCH, "Foreign writes to this card before this attach: %s, first seen %s.",
		    FORMAT_SIZE(ever),
		    format_time(number_at(w, "totals.foreign_first_unix_seconds")));
}

static void find_health(struct alarms *a, struct json_object *w)
{
	struct json_object *h = json_object_object_get(w, "health"),
			   *spare = json_object_object_get(h, "spare"), *used;
	const char *eol = json_text(h, "pre_eol");
	size_t n;

	if (json_object_object_get(h, "passed") && !json_true(h, "passed"))
		add(a, ACT, "The card reports that it is failing. " REPLACE);
	if (!strcmp(eol, "urgent"))
		add(a, ACT,
		    "The card reports that 90 %% of its reserved blocks are used up. " REPLACE);
	else if (!strcmp(eol, "warning"))
		add(a, WATCH, "The card reports that 80 %% of its reserved blocks are used up.");
	used = json_array(h, "life_used", &n);
	for (size_t i = 0; i < n; i++) {
		struct json_object *u = json_object_array_get_idx(used, i);

		if (json_number(u, "low") >= 1)
			add(a, ACT, "The card reports that its rated life is used up. " REPLACE);
		else if (json_number(u, "high") >= 0.9)
			add(a, WATCH,
			    "The card reports that up to %.0f %% of its rated life is used.",
			    json_number(u, "high") * 100);
	}
	if (json_object_object_get(spare, "percent") &&
	    json_number(spare, "percent") <= json_number(spare, "threshold_percent"))
		add(a, ACT,
		    "The card's spare blocks (%.0f %%) are at their limit (%.0f %%). " REPLACE,
		    json_number(spare, "percent"), json_number(spare, "threshold_percent"));
	if (json_u64(h, "media_errors"))
		add(a, WATCH, "The card has counted %s errors of its flash.",
		    with_commas(json_u64(h, "media_errors")));
}

static void find_others(struct alarms *a, struct json_object *w)
{
	struct json_object *best = json_at(w, "projection.scenarios.whole_card.seconds_high");
	uint64_t failed = number_at(w, "totals.commits_failed"),
		 lost = number_at(w, "totals.table_losses"),
		 retried = number_at(w, "totals.retried_requests"),
		 away = number_at(w, "totals.times_away");
	uint64_t ignored = number_at(w, "projection.ignored_days");
	const char *state = json_text(w, "log_state");

	if (!strcmp(state, "broken"))
		add(a, ACT,
		    "The cowfs log on this card is damaged: nothing can be committed. Run cowctl check, "
		    "which says what can be saved.");
	else if (!strcmp(state, "foreign"))
		add(a, ACT,
		    "Foreign changes to this card while its log held blocks that are not "
		    "checkpointed: nothing can be committed. Detach, then decide with cowctl release "
		    "--accept base or --accept log.");
	if (best && json_object_get_double(best) < 2 * year_s)
		add(a, json_object_get_double(best) < year_s / 2 ? ACT : WATCH,
		    "At the present rate its flash is used up within %s at best. Find what writes "
		    "most with cowctl top, and commit less often.",
		    format_life(json_object_get_double(best), (char[24]){ 0 }));
	if (failed)
		add(a, WATCH, "%s commit%s failed on this card.", with_commas(failed),
		    plural(failed));
	if (retried)
		add(a, WATCH,
		    "%s request%s of the card failed and had to be made again: a card or a contact that is failing.",
		    with_commas(retried), plural(retried));
	if (away)
		add(a, NOTE, "The card was away %s time%s: pulled, or reset.", with_commas(away),
		    plural(away));
	if (lost)
		add(a, NOTE,
		    "Some counters of erase blocks could not be read %s time%s and come from an "
		    "older copy; the totals are complete.",
		    with_commas(lost), plural(lost));
	if (!json_true(w, "have_table"))
		add(a, NOTE, "Erase block counters and history have not been read yet.");
	if (ignored)
		add(a, NOTE,
		    "%s line%s of the history had a wrong clock; the projection ignores them.",
		    with_commas(ignored), plural(ignored));
}

static struct alarms find_alarms(struct json_object *w)
{
	struct alarms a = { 0 };

	find_foreign(&a, w);
	find_health(&a, w);
	find_others(&a, w);
	return a;
}

static void put_alarms(FILE *f, struct json_object *w)
{
	static const char *const names[] = { [NOTE] = "Note", [WATCH] = "Watch", [ACT] = "Act" };
	static const char *const classes[] = { [NOTE] = "note", [WATCH] = "watch", [ACT] = "act" };
	struct alarms a = find_alarms(w);

	if (!a.n) {
		fputs("<p>None.</p>\n", f);
		return;
	}
	fputs("<ul class=\"alarms\">\n", f);
	for (int level = ACT; level >= NOTE; level--)
		for (size_t i = 0; i < a.n; i++)
			if ((int)a.alarm[i].level == level) {
				fprintf(f, "<li><b class=\"tag %s\">%s</b> ", classes[level],
					names[level]);
				html_text(f, a.alarm[i].text);
				fputs("</li>\n", f);
			}
	fputs("</ul>\n", f);
}

/* ---- summary for every reader ---- */

static void put_title(FILE *f, struct json_object *w)
{
	const char *name = json_text(w, "name");

	html_text(f, *name ? name : json_text(w, "device"));
}

static void put_who(FILE *f, struct json_object *w)
{
	const char *name = json_text(w, "name"), *id = json_text(w, "card_identity"),
		   *model = json_text(json_object_object_get(w, "health"), "model");

	if (*name) {
		html_name(f, name);
		fputs(" on ", f);
	}
	html_name(f, json_text(w, "device"));
	if (*json_text(w, "log_device")) {
		fputs(", log on ", f);
		html_name(f, json_text(w, "log_device"));
	}
	if (*model) {
		fputs(", ", f);
		html_name(f, model);
	}
	if (*id) {
		fputs(", card ", f);
		html_name(f, id);
	}
}

static void put_saving(FILE *f, struct json_object *w)
{
	double absorption = json_object_get_double(json_at(w, "ratios.absorption"));

	if (!number_at(w, "totals.written_bytes")) {
		fputs("<p>cowfs has not written to this card yet.</p>\n", f);
		return;
	}
	fputs("<p>Programs wrote ", f);
	put_bytes(f, w, "totals.absorbed_bytes");
	fputs("; ", f);
	put_bytes(f, w, "totals.written_bytes");
	fputs(" reached the card. ", f);
	if (absorption >= 1.05)
		fprintf(f,
			"That is <strong><data value=\"%.4g\" "
			"data-json=\"ratios.absorption\">%.1f times less</data></strong> than "
			"without cowfs, before write amplification by the file system and the "
			"card.",
			absorption, absorption);
	else
		fputs("This saves <strong>nothing so far</strong>: little was overwritten in RAM "
		      "before a commit.",
		      f);
	fputs(" The card was writable for ", f);
	put_span(f, w, "totals.writable_seconds");
	fputs(" of ", f);
	put_span(f, w, "totals.attached_seconds");
	fputs(".</p>\n", f);
}

static void put_outlook(FILE *f, struct json_object *w)
{
	struct json_object *p = json_object_object_get(w, "projection"),
			   *whole = json_at(p, "scenarios.whole_card");

	if (!json_true(p, "enough_data")) {
		fputs("<p>Its life cannot be projected yet (", f);
		html_text(f,
			  *json_text(p, "why_not") ? json_text(p, "why_not") : "not enough data");
		fputs(").</p>\n", f);
		return;
	}
	fprintf(f, "<p>As it is used now, its flash lasts <strong>%s", LIFE(whole, "seconds_low"));
	if (strcmp(LIFE(whole, "seconds_low"), LIFE(whole, "seconds_high")) != 0)
		fprintf(f, " at least, %s at best", LIFE(whole, "seconds_high"));
	fputs("</strong> if the card levels wear. This is about wear only, not about a "
	      "controller that fails or a card that does not survive a power cut.</p>\n",
	      f);
}

static void put_verdict(FILE *f, struct json_object *w)
{
	struct json_object *h = json_object_object_get(w, "health");
	struct alarms a = find_alarms(w);
	bool told = *json_text(h, "source");

	if (a.worst == ACT)
		fputs("<section class=\"verdict act\"><h2>This card needs attention</h2>\n", f);
	else if (a.worst == WATCH)
		fputs("<section class=\"verdict watch\"><h2>Keep an eye on this card</h2>\n", f);
	else
		fprintf(f, "<section class=\"verdict good\"><h2>%s</h2>\n",
			told ? "The card is fine" : "No sign of trouble");
	for (size_t i = 0; i < a.n; i++)
		if (a.alarm[i].level == a.worst && a.worst > NOTE) {
			fputs("<p><strong>", f);
			html_text(f, a.alarm[i].text);
			fputs("</strong></p>\n", f);
		}
	put_saving(f, w);
	put_outlook(f, w);
	if (!told) {
		fputs("<p>The card reports nothing about its health", f);
		if (*json_text(h, "unknown_because")) {
			fputs(" (", f);
			html_text(f, json_text(h, "unknown_because"));
			fputs(")", f);
		}
		fputs(": this is based on what cowfs has counted.</p>\n", f);
	}
	fputs("</section>\n", f);
}

/* ---- erase blocks ---- */

static void put_hottest(FILE *f, struct json_object *eb)
{
	size_t n;
	struct json_object *hot = json_array(eb, "hottest", &n);

	if (!n)
		return;
	fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Most visited\"><table id=\"hottest\">"
	      "<caption>Most visited</caption><thead><tr><th scope=\"col\">Place on the disk<th scope=\"col\">Visits"
	      "<th scope=\"col\">Written</tr></thead><tbody>\n",
	      f);
	for (size_t i = 0; i < n; i++) {
		struct json_object *h = json_object_array_get_idx(hot, i);

		fprintf(f, "<tr><td>%s%s<td>%s<td>%s\n",
			FORMAT_SIZE(json_u64(h, "disk_offset_bytes")),
			json_true(h, "log_device") ? " (log device)" : "",
			with_commas(json_u64(h, "visits")),
			FORMAT_SIZE(json_u64(h, "written_bytes")));
	}
	fputs("</tbody></table></div>\n", f);
}

/*
 * Number of units for each range of visits: the heat map as a table, for readers who cannot see
 * it.
 */
static void put_spread(FILE *f, struct json_object *eb)
{
	static const uint64_t from[] = { 0, 1, 10, 100, 1000, 10000, 100000 };
	uint64_t units[ARRAY_SIZE(from)] = { 0 }, bytes[ARRAY_SIZE(from)] = { 0 };
	size_t n, m;
	struct json_object *visits = json_array(eb, "visits", &n),
			   *blks = json_array(eb, "written_blocks", &m);

	for (size_t i = 0; i < n && i < m; i++) {
		uint64_t v = json_object_get_uint64(json_object_array_get_idx(visits, i));
		size_t k = ARRAY_SIZE(from) - 1;

		while (k && v < from[k])
			k--;
		units[k]++;
		bytes[k] +=
			blk_to_bytes(json_object_get_uint64(json_object_array_get_idx(blks, i)));
	}
	fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All erase blocks\"><table id=\"spread\">"
	      "<caption>All of them</caption><thead><tr><th scope=\"col\">Visits<th scope=\"col\">Units"
	      "<th scope=\"col\">Written</tr></thead><tbody>\n",
	      f);
	for (size_t k = 0; k < ARRAY_SIZE(from); k++) {
		if (!units[k])
			continue;
		fprintf(f, "<tr><td>%s", with_commas(from[k]));
		if (k && k + 1 < ARRAY_SIZE(from))
			fprintf(f, " to %s", with_commas(from[k + 1] - 1));
		else if (k)
			fputs(" or more", f);
		fprintf(f, "<td>%s<td>%s\n", with_commas(units[k]), FORMAT_SIZE(bytes[k]));
	}
	fputs("</tbody></table></div>\n", f);
}

static void put_heat(FILE *f, struct json_object *w)
{
	struct json_object *eb = json_object_object_get(w, "erase_blocks");

	if (!json_true(w, "have_table")) {
		fputs("<p>Unknown: the table has not been read yet, or memory ran out.</p>\n", f);
		return;
	}
	fputs("<p>Flash is erased in blocks, of ", f);
	put_bytes(f, w, "erase_blocks.erase_block_bytes");
	fputs(" here (", f);
	html_text(f, json_text(eb, "erase_block_source"));
	fputs(")", f);
	if (json_u64(eb, "unit_bytes") != json_u64(eb, "erase_block_bytes")) {
		fputs(", counted in units of ", f);
		put_bytes(f, w, "erase_blocks.unit_bytes");
	}
	fputs(". A visit is a move to another erase block, which may cost an erase. ", f);
	put_count(f, w, "erase_blocks.touched_units");
	fprintf(f, " of %s were written to, in ",
		with_commas(json_u64(eb, "units") + json_u64(eb, "log_device_units")));
	put_count(f, w, "totals.erase_block_visits");
	fputs(" visits. Only the card knows where it puts them on its flash.</p>\n", f);
	fputs("<div id=\"heat\" class=\"js\"></div>\n<div class=\"columns\">\n", f);
	put_hottest(f, eb);
	put_spread(f, eb);
	fputs("</div>\n", f);
}

/* ---- history ---- */

static const char *format_day(uint64_t unix_day, char buf[16])
{
	time_t t = (time_t)(unix_day * 86400);
	struct tm tm;

	if (!unix_day || unix_day > 3000000 || !gmtime_r(&t, &tm) ||
	    !strftime(buf, 16, "%Y-%m-%d", &tm))
		return "clock not set";
	return buf;
}

static void put_days(FILE *f, struct json_object *w)
{
	size_t n;
	struct json_object *days = json_array(json_object_object_get(w, "history"), "days", &n);

	if (!n) {
		fputs("<p>No day yet.</p>\n", f);
		return;
	}
	fputs("<div class=\"scroll tall\" tabindex=\"0\" role=\"region\" aria-label=\"Days\"><table id=\"days\"><thead><tr>"
	      "<th scope=\"col\">Day (UTC)<th scope=\"col\">Programs wrote<th scope=\"col\">Reached the card<th scope=\"col\">Commits"
	      "<th scope=\"col\">Visits</tr></thead><tbody>\n",
	      f);
	for (size_t i = n; i-- > 0;) {
		struct json_object *d = json_object_array_get_idx(days, i);

		fprintf(f, "<tr><td>%s<td>%s<td>%s<td>%s<td>%s\n",
			format_day(json_u64(d, "unix_day"), (char[16]){ 0 }),
			FORMAT_SIZE(json_u64(d, "absorbed_bytes")),
			FORMAT_SIZE(json_u64(d, "written_bytes")),
			with_commas(json_u64(d, "commits")),
			with_commas(json_u64(d, "erase_block_visits")));
	}
	fputs("</tbody></table></div>\n", f);
}

static void put_commits(FILE *f, struct json_object *w)
{
	size_t n;
	struct json_object *commits = json_array(json_object_object_get(w, "history"), "commits",
						 &n);

	if (!n) {
		fputs("<p>No commit yet.</p>\n", f);
		return;
	}
	fputs("<div class=\"scroll tall\" tabindex=\"0\" role=\"region\" aria-label=\"Commits\"><table id=\"commits\"><thead><tr>"
	      "<th scope=\"col\">Number<th scope=\"col\">When<th scope=\"col\">Cause<th scope=\"col\">Programs wrote"
	      "<th scope=\"col\">Reached the card<th scope=\"col\">Writable<th scope=\"col\">Visits</tr></thead><tbody>\n",
	      f);
	for (size_t i = n; i-- > 0;) {
		struct json_object *c = json_object_array_get_idx(commits, i);

		fprintf(f, "<tr><td>%s<td>%s<td>", with_commas(json_u64(c, "number")),
			format_time(json_u64(c, "unix_seconds")));
		html_text(f, json_text(c, "cause"));
		fprintf(f, "<td>%s<td>%s<td>%.2f s<td>%s\n",
			FORMAT_SIZE(json_u64(c, "absorbed_bytes")),
			FORMAT_SIZE(json_u64(c, "written_bytes")),
			json_number(c, "writable_seconds"),
			with_commas(json_u64(c, "erase_block_visits")));
	}
	fputs("</tbody></table></div>\n", f);
}

/* ---- projection ---- */

/*
 * Position of a life on the scale, in per cent: linear between its ticks. NULL: beyond the end of
 * the scale.
 */
static double place(struct json_object *seconds)
{
	static const struct {
		double years, at;
	} tick[] = { { 0, 0 }, { 1 / 12.0, 20 }, { 1, 45 }, { 5, 70 }, { 20, 92 } };
	double y = json_object_get_double(seconds) / year_s;

	if (!seconds || !(y < 20))
		return 100;
	if (y < 0)
		return 0;
	for (size_t i = 1; i < ARRAY_SIZE(tick); i++)
		if (y <= tick[i].years)
			return tick[i - 1].at + (y - tick[i - 1].years) /
							(tick[i].years - tick[i - 1].years) *
							(tick[i].at - tick[i - 1].at);
	return 100;
}

static void put_basis(FILE *f, const char *basis)
{
	fputs("<b class=\"basis\">", f);
	html_text(f, basis);
	fputs("</b>", f);
}

static void put_band(FILE *f, struct json_object *scenarios, const char *name, const char *label)
{
	struct json_object *s = json_object_object_get(scenarios, name);
	double low = place(json_object_object_get(s, "seconds_low")),
	       high = place(json_object_object_get(s, "seconds_high"));

	if (!s)
		return;
	if (high < low)
		high = low;
	fprintf(f, "<li><div class=\"what\"><span>%s</span> ", label);
	put_basis(f, json_text(s, "basis"));
	fprintf(f,
		"</div><div class=\"track %s\" aria-hidden=\"true\"><i style=\"left:%.1f%%;width:%.1f%%\"></i></div>",
		name, low > 99 ? 99 : low, high - low < 1 ? 1 : high - low);
	if (strcmp(LIFE(s, "seconds_low"), LIFE(s, "seconds_high")) != 0)
		fprintf(f, "<div class=\"span\">%s at least, %s at best</div></li>\n",
			LIFE(s, "seconds_low"), LIFE(s, "seconds_high"));
	else
		fprintf(f, "<div class=\"span\">%s</div></li>\n", LIFE(s, "seconds_low"));
}

enum unit { BYTES, RATIO, COUNT, PERCENT };

static void put_value(FILE *f, double v, enum unit unit)
{
	if (unit == BYTES)
		fputs(FORMAT_SIZE(v > 0 && v < 9e18 ? (uint64_t)v : 0), f);
	else if (unit == COUNT)
		fputs(with_commas(v > 0 && v < 9e18 ? (uint64_t)v : 0), f);
	else
		fprintf(f, "%.*f%s", unit == RATIO ? 2 : 0, unit == PERCENT ? v * 100 : v,
			unit == PERCENT ? " %" : "");
}

static void put_factors(FILE *f, struct json_object *factors)
{
	static const struct {
		const char *key, *label;
		enum unit unit;
	} factor[] = { { "daily_bytes", "Written a day", BYTES },
		       { "device_amplification", "Write amplification of the card", RATIO },
		       { "erase_cycles", "Erase cycles of a block", COUNT },
		       { "capacity_bytes", "Capacity", BYTES },
		       { "life_left", "Life left", PERCENT },
		       { "daily_bytes_without_cowfs", "Written a day by programs", BYTES },
		       { "sooner_without_cowfs", "Times sooner worn out without cowfs", RATIO } };

	fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"What the "
	      "projection is based on\"><table id=\"factors\"><caption>What it is based "
	      "on</caption><thead><tr><th scope=\"col\">Factor<th scope=\"col\">From<th "
	      "scope=\"col\">To<th scope=\"col\">Basis<th scope=\"col\" "
	      "class=\"text\">Source</tr></thead><tbody>\n",
	      f);
	for (size_t i = 0; i < ARRAY_SIZE(factor); i++) {
		struct json_object *o = json_object_object_get(factors, factor[i].key);

		if (!o)
			continue;
		fprintf(f, "<tr><th scope=\"row\">%s<td>", factor[i].label);
		put_value(f, json_number(o, "low"), factor[i].unit);
		fputs("<td>", f);
		if (json_object_object_get(o, "high"))
			put_value(f, json_number(o, "high"), factor[i].unit);
		else
			fputs("no end", f);
		fputs("<td>", f);
		put_basis(f, json_text(o, "basis"));
		fputs("<td class=\"text\">", f);
		html_text(f, !strcmp(factor[i].key, "erase_cycles") &&
					     !strcmp(json_text(o, "source"), "unknown")
				     ? "kind of flash unknown"
				     : json_text(o, "source"));
		fputc('\n', f);
	}
	fputs("</tbody></table></div>\n", f);
}

static void put_projection(FILE *f, struct json_object *w)
{
	struct json_object *p = json_object_object_get(w, "projection"),
			   *s = json_object_object_get(p, "scenarios"),
			   *factors = json_object_object_get(p, "factors"),
			   *sooner = json_object_object_get(factors, "sooner_without_cowfs");

	if (!json_true(p, "enough_data")) {
		fputs("<p><strong>Cannot be projected yet</strong>: ", f);
		html_text(f,
			  *json_text(p, "why_not") ? json_text(p, "why_not") : "not enough data");
		fputs(".</p>\n", f);
	} else {
		fputs("<p>At the rate of the last ", f);
		put_count(f, w, "projection.observed_days");
		fputs(" days. No projection goes beyond 20 years.</p>\n<ul class=\"bands\">\n", f);
		put_band(f, s, "whole_card", "With cowfs, if the card levels wear");
		put_band(f, s, "hottest_erase_block", "With cowfs, if it does not");
		fputs("<li class=\"scale\" aria-hidden=\"true\"><span style=\"left:20%\">1 month</span><span style=\"left:45%\">1 year"
		      "</span><span style=\"left:70%\">5 years</span><span style=\"left:92%\">20</span></li>\n</ul>\n",
		      f);
		if (json_number(sooner, "high") >= 1.05)
			fprintf(f,
				"<p>Without cowfs it would be worn out <strong>%.1f times sooner</strong> by the bytes and "
				"erase blocks counted, up to %.0f times on a card that erases a block for each write.</p>\n",
				json_number(sooner, "low"), json_number(sooner, "high"));
	}
	put_factors(f, factors);
	fputs("<p class=\"small\"><b class=\"basis\">measured</b> counted, or reported by the "
	      "card. <b class=\"basis\">bounded</b> certainly within these limits. <b "
	      "class=\"basis\">assumed</b> nominal figures of such flash. <b "
	      "class=\"basis\">model</b> computed for a case that did not happen.</p>\n",
	      f);
}

/* ---- health ---- */

static void row(FILE *f, const char *label)
{
	fprintf(f, "<tr><th scope=\"row\">%s<td class=\"text\">", label);
}

static void put_attributes(FILE *f, struct json_object *h)
{
	size_t n;
	struct json_object *a = json_array(h, "attributes", &n);

	if (!n)
		return;
	fputs("<details><summary>Attributes, with smartctl's names</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
	      "aria-label=\"Attributes\"><table><thead><tr><th scope=\"col\">Id<th scope=\"col\">Name<th scope=\"col\">Value"
	      "<th scope=\"col\">Raw</tr></thead><tbody>\n",
	      f);
	for (size_t i = 0; i < n && i < 100; i++) {
		struct json_object *o = json_object_array_get_idx(a, i);

		fprintf(f, "<tr><td>%s<td class=\"text\">", with_commas(json_u64(o, "id")));
		html_text(f, json_text(o, "name"));
		fprintf(f, "<td>%s<td>%s\n", with_commas(json_u64(o, "value")),
			with_commas(json_u64(o, "raw")));
	}
	fputs("</tbody></table></div></details>\n", f);
}

static void put_life_used(FILE *f, struct json_object *h)
{
	size_t n;
	struct json_object *used = json_array(h, "life_used", &n);

	for (size_t i = 0; i < n && i < 8; i++) {
		struct json_object *u = json_object_array_get_idx(used, i);

		row(f, "Life used");
		if (json_number(u, "high") > 1)
			fprintf(f, "more than %.0f %%", json_number(u, "low") * 100);
		else
			fprintf(f, "%.0f to %.0f %%", json_number(u, "low") * 100,
				json_number(u, "high") * 100);
		fputs(" (", f);
		html_text(f, json_text(u, "part"));
		fputs(": ", f);
		html_text(f, json_text(u, "raw"));
		fputs(")", f);
	}
}

static void put_health(FILE *f, struct json_object *w)
{
	struct json_object *h = json_object_object_get(w, "health"),
			   *e = json_object_object_get(h, "erase_cycles");
	struct json_object *spare = json_object_object_get(h, "spare");

	fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Health\"><table id=\"health\"><tbody>\n",
	      f);
	row(f, "Who says so");
	html_text(f, *json_text(h, "source") ? json_text(h, "source") : "unknown");
	if (*json_text(h, "unknown_because")) {
		row(f, "Why not");
		html_text(f, json_text(h, "unknown_because"));
	}
	row(f, "Device");
	html_name(f, *json_text(h, "model") ? json_text(h, "model") : "unknown");
	fputs(", ", f);
	html_text(f, *json_text(h, "kind") ? json_text(h, "kind") : "unknown");
	if (json_u64(h, "disk_bytes")) {
		fputs(", ", f);
		put_bytes(f, w, "health.disk_bytes");
	}
	put_life_used(f, h);
	if (*json_text(h, "pre_eol") && strcmp(json_text(h, "pre_eol"), "unknown") != 0) {
		row(f, "Reserved blocks");
		html_text(f, json_text(h, "pre_eol"));
	}
	if (e) {
		row(f, "Erase cycles");
		fprintf(f, "%s on average, %s at most, rated for %s",
			with_commas(json_u64(e, "average")), with_commas(json_u64(e, "most")),
			json_object_object_get(e, "rated") ? with_commas(json_u64(e, "rated"))
							   : "unknown");
	}
	if (json_object_object_get(spare, "percent")) {
		row(f, "Spare");
		fprintf(f, "%s %% (limit %s %%)", with_commas(json_u64(spare, "percent")),
			with_commas(json_u64(spare, "threshold_percent")));
	} else if (spare) {
		row(f, "Spare blocks");
		fputs(with_commas(json_u64(spare, "blocks")), f);
	}
	if (json_u64(h, "host_written_bytes")) {
		row(f, "Written by hosts");
		put_bytes(f, w, "health.host_written_bytes");
	}
	if (json_u64(h, "flash_written_bytes")) {
		row(f, "Written to flash");
		put_bytes(f, w, "health.flash_written_bytes");
	}
	if (json_object_object_get(h, "passed")) {
		row(f, "Its own verdict");
		fputs(json_true(h, "passed") ? "passed" : "FAILS", f);
	}
	fputs("\n</tbody></table></div>\n", f);
	put_attributes(f, h);
}

/* ---- all figures ---- */

static const struct {
	const char *path, *label; /* lower case: belongs to the previous line */
	enum { IN_BYTES, IN_BLOCKS, AS_COUNT, AS_TIME, AS_SPAN } as;
} detail[] = {
	{ "totals.absorbed_bytes", "Written by programs, into RAM", IN_BYTES },
	{ "totals.absorbed_writes", "Writes of programs", AS_COUNT },
	{ "totals.punched_bytes", "Discarded in RAM", IN_BYTES },
	{ "totals.skipped_free_blocks", "Not written: free again", IN_BLOCKS },
	{ "totals.skipped_journal_blocks", "Not written: the file system's journal", IN_BLOCKS },
	{ "totals.skipped_same_blocks", "Not written: the same as on the card", IN_BLOCKS },
	{ "totals.skipped_hole_blocks", "Not written: discarded", IN_BLOCKS },
	{ "totals.direct_blocks", "Written in place", IN_BLOCKS },
	{ "totals.logged_blocks", "Written to the log", IN_BLOCKS },
	{ "totals.spilled_blocks", "of these to free blocks", IN_BLOCKS },
	{ "totals.checkpoint_blocks", "Checkpointed from the log", IN_BLOCKS },
	{ "totals.padded_blocks", "Padding", IN_BLOCKS },
	{ "totals.log_metadata_blocks", "The log's own", IN_BLOCKS },
	{ "totals.super_blocks", "Its super blocks", IN_BLOCKS },
	{ "totals.written_bytes", "Reached the card, in total", IN_BYTES },
	{ "totals.write_calls", "Write calls", AS_COUNT },
	{ "totals.flushes", "Flushes", AS_COUNT },
	{ "totals.erase_block_visits", "Visits to erase blocks", AS_COUNT },
	{ "totals.commits", "Commits", AS_COUNT },
	{ "totals.commits_by_cause.manual", "by hand", AS_COUNT },
	{ "totals.commits_by_cause.timer", "by timer", AS_COUNT },
	{ "totals.commits_by_cause.pressure", "by RAM pressure", AS_COUNT },
	{ "totals.commits_by_cause.shutdown", "at shutdown", AS_COUNT },
	{ "totals.commits_by_cause.detach", "at detach", AS_COUNT },
	{ "totals.commits_by_cause.recover", "by recovery", AS_COUNT },
	{ "totals.commits_failed", "Commits that failed", AS_COUNT },
	{ "totals.checkpoints", "Checkpoints", AS_COUNT },
	{ "totals.attaches", "Attaches that wrote", AS_COUNT },
	{ "totals.writable_seconds", "The card was writable for", AS_SPAN },
	{ "totals.attached_seconds", "Attached to cowfs for", AS_SPAN },
	{ "totals.foreign_bytes", "Foreign writes", IN_BYTES },
	{ "totals.first_unix_seconds", "First write", AS_TIME },
	{ "last_unix_seconds", "Newest record", AS_TIME },
	{ "volume_bytes", "File system", IN_BYTES },
	{ "device_bytes", "Partition", IN_BYTES },
};

static void put_details(FILE *f, struct json_object *w)
{
	fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All figures\"><table id=\"details\"><tbody>\n",
	      f);
	for (size_t i = 0; i < ARRAY_SIZE(detail); i++) {
		const char *path = detail[i].path;
		uint64_t v = number_at(w, path);

		if (!json_at(w, path))
			continue;
		fprintf(f, "<tr><th scope=\"row\"%s>%s<td>",
			islower((unsigned char)*detail[i].label) ? " class=\"sub\"" : "",
			detail[i].label);
		switch (detail[i].as) {
		case IN_BYTES:
			put_bytes(f, w, path);
			break;
		case IN_BLOCKS:
			data(f, v, path, FORMAT_SIZE(blk_to_bytes(v)));
			break;
		case AS_COUNT:
			put_count(f, w, path);
			break;
		case AS_TIME:
			data(f, v, path, format_time(v));
			break;
		case AS_SPAN:
			put_span(f, w, path);
			break;
		}
		fputc('\n', f);
	}
	fputs("</tbody></table></div>\n", f);
}

static void put_footer(FILE *f, struct json_object *w)
{
	fputs("Made by cowfs ", f);
	html_text(f, *json_text(w, "version") ? json_text(w, "version") : COWFS_VERSION);
	fputs(" on ", f);
	data(f, json_u64(w, "generated_unix_seconds"), "generated_unix_seconds",
	     format_time(json_u64(w, "generated_unix_seconds")));
	fputs(json_true(w, "attached") ? ", from the daemon of the volume."
				       : ", from the card itself.",
	      f);
}

const struct report_part report_parts[] = {
	{ "title", put_title },	    { "who", put_who },
	{ "verdict", put_verdict }, { "alarms", put_alarms },
	{ "heat", put_heat },	    { "days", put_days },
	{ "commits", put_commits }, { "projection", put_projection },
	{ "health", put_health },   { "details", put_details },
	{ "footer", put_footer },   { NULL, NULL },
};
