/* SPDX-License-Identifier: MIT */
/*
 * cowctl wear --prometheus: the figures of cowctl wear and status in Prometheus' text format, for
 * node_exporter's textfile collector or any other reader. Base units; the names of counters that
 * only grow end in _total. The names: docs/WEAR.md.
 */
#include "cli/cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attach/rootstate.h"
#include "base/clean.h"
#include "wire/proto.h"

struct volume_json {
	char name[RUNDIR_NAME_BYTES];
	struct json_object *wear, *status;
};

struct metrics {
	FILE *f;
	struct volume_json volume[CLIENT_VOLUMES];
	size_t n;
};

/* ---- the format ---- */

static void family(struct metrics *m, const char *name, const char *type, const char *help)
{
	fprintf(m->f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void label(FILE *f, const char *name, const char *value)
{
	fprintf(f, "%s=\"", name);
	for (value = CLEAN(value); *value; value++) {
		if (*value == '"' || *value == '\\')
			fprintf(f, "\\%c", *value);
		else
			fputc(*value, f);
	}
	fputc('"', f);
}

/*
 * Pairs of label and value, terminated by NULL. value: a number of the documents; NULL: no sample.
 */
static void sample(struct metrics *m, const char *name, const struct volume_json *v,
		   struct json_object *value, double scale, ...)
{
	const char *l;
	va_list ap;

	if (!value)
		return;
	fprintf(m->f, "%s{", name);
	label(m->f, "volume", v->name);
	va_start(ap, scale);
	while ((l = va_arg(ap, const char *))) {
		fputc(',', m->f);
		label(m->f, l, va_arg(ap, const char *));
	}
	va_end(ap);
	if (json_object_is_type(value, json_type_boolean))
		fprintf(m->f, "} %d\n", json_object_get_boolean(value));
	else if (json_object_is_type(value, json_type_int))
		fprintf(m->f, "} %llu\n",
			(unsigned long long)(json_object_get_uint64(value) * (uint64_t)scale));
	else
		fprintf(m->f, "} %.10g\n", json_object_get_double(value) * scale);
}

/* ---- families with one sample per volume, or one per value of a label ---- */

static const struct plain {
	const char *name, *type, *help;
	bool status; /* from the status, not from the wear */
	const char *path;
	double scale;
	const char *label, *value; /* NULL: none. Rows of the same name are adjacent. */
} plain[] = {
	{ "cowfs_absorbed_bytes_total", "counter", "Bytes that programs wrote into RAM.", 0,
	  "totals.absorbed_bytes", 1, 0, 0 },
	{ "cowfs_absorbed_writes_total", "counter", "Writes of programs.", 0,
	  "totals.absorbed_writes", 1, 0, 0 },
	{ "cowfs_discarded_bytes_total", "counter", "Bytes that were discarded in RAM.", 0,
	  "totals.punched_bytes", 1, 0, 0 },
	{ "cowfs_skipped_bytes_total", "counter", "Dirty bytes that commits skipped, by reason.", 0,
	  "totals.skipped_free_blocks", 4096, "reason", "free" },
	{ "cowfs_skipped_bytes_total", 0, 0, 0, "totals.skipped_journal_blocks", 4096, "reason",
	  "journal" },
	{ "cowfs_skipped_bytes_total", 0, 0, 0, "totals.skipped_same_blocks", 4096, "reason",
	  "same" },
	{ "cowfs_skipped_bytes_total", 0, 0, 0, "totals.skipped_hole_blocks", 4096, "reason",
	  "hole" },
	{ "cowfs_committed_bytes_total", "counter",
	  "Bytes of commits and checkpoints, by destination.", 0, "totals.direct_blocks", 4096,
	  "how", "direct" },
	{ "cowfs_committed_bytes_total", 0, 0, 0, "totals.logged_blocks", 4096, "how", "logged" },
	{ "cowfs_committed_bytes_total", 0, 0, 0, "totals.checkpoint_blocks", 4096, "how",
	  "checkpoint" },
	{ "cowfs_committed_bytes_total", 0, 0, 0, "totals.padded_blocks", 4096, "how", "padding" },
	{ "cowfs_committed_bytes_total", 0, 0, 0, "totals.log_metadata_blocks", 4096, "how",
	  "log" },
	{ "cowfs_committed_bytes_total", 0, 0, 0, "totals.super_blocks", 4096, "how", "super" },
	{ "cowfs_card_written_bytes_total", "counter", "Bytes that cowfs sent to the card.", 0,
	  "totals.written_bytes", 1, 0, 0 },
	{ "cowfs_card_writes_total", "counter", "Write calls to the card.", 0, "totals.write_calls",
	  1, 0, 0 },
	{ "cowfs_card_flushes_total", "counter", "Flushes of the card.", 0, "totals.flushes", 1, 0,
	  0 },
	{ "cowfs_card_erase_block_visits_total", "counter", "Moves to another erase block.", 0,
	  "totals.erase_block_visits", 1, 0, 0 },
	{ "cowfs_card_writable_seconds_total", "counter",
	  "Time during which the card was writable.", 0, "totals.writable_seconds", 1, 0, 0 },
	{ "cowfs_attached_seconds_total", "counter",
	  "Time during which cowfs had the card attached.", 0, "totals.attached_seconds", 1, 0, 0 },
	{ "cowfs_commits_total", "counter", "Commits, by cause.", 0,
	  "totals.commits_by_cause.manual", 1, "cause", "manual" },
	{ "cowfs_commits_total", 0, 0, 0, "totals.commits_by_cause.timer", 1, "cause", "timer" },
	{ "cowfs_commits_total", 0, 0, 0, "totals.commits_by_cause.pressure", 1, "cause",
	  "pressure" },
	{ "cowfs_commits_total", 0, 0, 0, "totals.commits_by_cause.shutdown", 1, "cause",
	  "shutdown" },
	{ "cowfs_commits_total", 0, 0, 0, "totals.commits_by_cause.detach", 1, "cause", "detach" },
	{ "cowfs_commits_total", 0, 0, 0, "totals.commits_by_cause.recover", 1, "cause",
	  "recover" },
	{ "cowfs_commit_failures_total", "counter", "Commits that failed.", 0,
	  "totals.commits_failed", 1, 0, 0 },
	{ "cowfs_card_retries_total", "counter",
	  "Reads and writes of the card that had to be made again.", 0, "totals.retried_requests",
	  1, 0, 0 },
	{ "cowfs_card_aways_total", "counter", "How often the card's device was gone.", 0,
	  "totals.times_away", 1, 0, 0 },
	{ "cowfs_checkpoints_total", "counter", "Checkpoints of the log.", 0, "totals.checkpoints",
	  1, 0, 0 },
	{ "cowfs_attaches_total", "counter", "Attaches that wrote.", 0, "totals.attaches", 1, 0,
	  0 },
	{ "cowfs_foreign_written_bytes_total", "counter",
	  "Bytes on the card that cowfs did not write.", 0, "totals.foreign_bytes", 1, 0, 0 },
	{ "cowfs_wear_table_losses_total", "counter",
	  "Attaches that could not read part of the wear table.", 0, "totals.table_losses", 1, 0,
	  0 },
	{ "cowfs_erase_block_units_touched", "gauge", "Units of erase blocks that were written to.",
	  0, "erase_blocks.touched_units", 1, 0, 0 },
	{ "cowfs_absorption_ratio", "gauge",
	  "Bytes that programs wrote per byte that reached the card, since the first attach.", 0,
	  "ratios.absorption", 1, 0, 0 },
	{ "cowfs_amplification_ratio", "gauge", "Bytes that reached the card per byte of changes.",
	  0, "ratios.cowfs_amplification", 1, 0, 0 },
	{ "cowfs_device_amplification_ratio", "gauge",
	  "Bytes written to the flash per byte that reached the card.", 0,
	  "ratios.device_amplification.low", 1, "bound", "low" },
	{ "cowfs_device_amplification_ratio", 0, 0, 0, "ratios.device_amplification.high", 1,
	  "bound", "high" },
	{ "cowfs_projected_life_seconds", "gauge",
	  "Time until the flash is worn out at the rate of the days observed.", 0,
	  "projection.scenarios.whole_card.seconds_low", 1, "bound", "low" },
	{ "cowfs_projected_life_seconds", 0, 0, 0, "projection.scenarios.whole_card.seconds_high",
	  1, "bound", "high" },
	{ "cowfs_ram_used_bytes", "gauge", "RAM that holds uncommitted changes.", 1,
	  "ram_used_bytes", 1, 0, 0 },
	{ "cowfs_ram_limit_bytes", "gauge", "Limit of that.", 1, "ram_limit_bytes", 1, 0, 0 },
	{ "cowfs_dirty_bytes", "gauge", "Uncommitted changes.", 1, "dirty_blocks", 4096, 0, 0 },
	{ "cowfs_log_live_bytes", "gauge", "Committed changes that exist in the log only.", 1,
	  "log_live_blocks", 4096, 0, 0 },
	{ "cowfs_generation", "gauge", "Number of the newest generation.", 1, "generation", 1, 0,
	  0 },
	{ "cowfs_last_commit_timestamp_seconds", "gauge",
	  "When the newest generation was committed.", 1, "generation_unix_seconds", 1, 0, 0 },
	{ "cowfs_degraded", "gauge", "1: something needs attention, see cowctl status.", 1,
	  "degraded", 1, 0, 0 },
	{ "cowfs_card_away_seconds", "gauge",
	  "How long the card has been away: pulled out, or reset. 0: it is there.", 1,
	  "away.seconds", 1, 0, 0 },
	{ "cowfs_daemon_replacements_total", "counter",
	  "Workers of the daemon that died and were replaced, since the attach.", 1, "replaced", 1,
	  0, 0 },
};

static void put_plain(struct metrics *m)
{
	for (size_t i = 0; i < ARRAY_SIZE(plain);) {
		size_t end = i + 1;

		while (end < ARRAY_SIZE(plain) && !strcmp(plain[end].name, plain[i].name))
			end++;
		family(m, plain[i].name, plain[i].type, plain[i].help);
		for (size_t k = 0; k < m->n; k++)
			for (size_t j = i; j < end; j++) {
				const struct volume_json *v = &m->volume[k];

				sample(m, plain[j].name, v,
				       json_at(plain[j].status ? v->status : v->wear,
					       plain[j].path),
				       plain[j].scale, plain[j].label, plain[j].value, NULL);
			}
		i = end;
	}
}

/* ---- other families ---- */

static void put_hottest(struct metrics *m)
{
	static const char name[] = "cowfs_hottest_erase_block_visits";

	family(m, name, "gauge", "Visits of the most visited unit of erase blocks.");
	for (size_t k = 0; k < m->n; k++) {
		struct json_object *hot = json_at(m->volume[k].wear, "erase_blocks.hottest");

		if (hot && json_object_array_length(hot))
			sample(m, name, &m->volume[k],
			       json_object_object_get(json_object_array_get_idx(hot, 0), "visits"),
			       1, NULL);
	}
}

static void put_health(struct metrics *m)
{
	static const char used[] = "cowfs_device_life_used_ratio",
			  eol[] = "cowfs_device_pre_eol_info";

	family(m, used, "gauge", "Used life that the device reports, from low to high.");
	for (size_t k = 0; k < m->n; k++) {
		struct json_object *a = json_at(m->volume[k].wear, "health.life_used");

		for (size_t i = 0; a && i < json_object_array_length(a); i++) {
			struct json_object *u = json_object_array_get_idx(a, i);

			sample(m, used, &m->volume[k], json_object_object_get(u, "low"), 1, "part",
			       json_text(u, "part"), "bound", "low", NULL);
			sample(m, used, &m->volume[k], json_object_object_get(u, "high"), 1, "part",
			       json_text(u, "part"), "bound", "high", NULL);
		}
	}
	family(m, eol, "gauge", "1 for the state of the reserved blocks that the device reports.");
	for (size_t k = 0; k < m->n; k++) {
		struct json_object *yes = json_object_new_boolean(true);

		sample(m, eol, &m->volume[k], yes, 1, "state",
		       json_text(json_at(m->volume[k].wear, "health"), "pre_eol"), NULL);
		json_object_put(yes);
	}
}

/* What the status names only while it is so. */
static void put_flag(struct metrics *m, const char *name, const char *help, const char *path)
{
	family(m, name, "gauge", help);
	for (size_t k = 0; k < m->n; k++) {
		struct json_object *no = json_object_new_boolean(false),
				   *value = json_at(m->volume[k].status, path);

		sample(m, name, &m->volume[k], value ? value : no, 1, NULL);
		json_object_put(no);
	}
}

static void put_root(struct metrics *m)
{
	static const char name[] = "cowfs_root_unprotected";
	char why[512];
	enum root_state s = rootstate_read(why, sizeof(why));

	family(m, name, "gauge", "1: the root should be protected and is not.");
	fprintf(m->f, "%s %d\n", name, s == ROOT_FAILED || s == ROOT_BYPASSED);
}

static void put_info(struct metrics *m)
{
	struct json_object *yes = json_object_new_boolean(true);

	family(m, "cowfs_build_info", "gauge", "Version of cowctl.");
	fprintf(m->f, "cowfs_build_info{version=\"%s\"} 1\n", COWFS_VERSION);
	family(m, "cowfs_volumes", "gauge", "Attached volumes.");
	fprintf(m->f, "cowfs_volumes %zu\n", m->n);
	family(m, "cowfs_volume_info", "gauge", "Device, card and file system of a volume.");
	for (size_t k = 0; k < m->n; k++)
		sample(m, "cowfs_volume_info", &m->volume[k], yes, 1, "device",
		       json_text(m->volume[k].wear, "device"), "card",
		       json_text(m->volume[k].wear, "card_identity"), "fs_type",
		       json_text(m->volume[k].status, "fs_type"), NULL);
	json_object_put(yes);
}

/* ---- gathering ---- */

static int gather(struct metrics *m, const struct options *o, const char *which)
{
	const struct request rq = { .command = COMMAND_STATUS };
	struct volume_json *v = &m->volume[m->n];
	struct failure err;
	struct client c;
	int exit;

	if (client_open(&c, which, &err) < 0)
		return cmd_failed(o, &err);
	snprintf(v->name, sizeof(v->name), "%s", c.name);
	v->status = client_call(&c, &rq, NULL, NULL, &err);
	client_close(&c);
	if (!v->status)
		return cmd_failed(o, &err);
	exit = wear_gather(o, v->name, &v->wear);
	if (exit == EXIT_OK)
		m->n++;
	else
		json_object_put(v->status);
	return exit;
}

int wear_prometheus(const struct options *o)
{
	static struct metrics m;
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	size_t n = o->operands ? 1 : client_volumes(names), len;
	int exit = EXIT_OK, e;
	char *text = NULL;

	for (size_t i = 0; i < n; i++) {
		e = gather(&m, o, o->operands ? o->operand[0] : names[i]);
		exit = exit ? exit : e;
	}
	if (exit && o->operands)
		return exit;
	m.f = open_memstream(&text, &len);
	if (!m.f)
		return cmd_fail(o, EXIT_FAILED, -ENOMEM, "no memory");
	put_info(&m);
	put_root(&m);
	put_plain(&m);
	put_flag(&m, "cowfs_on_trial", "1: the newest generation is on trial.", "held.trial");
	put_flag(&m, "cowfs_trial_failed", "1: no boot of a trial was accepted, and it went back.",
		 "undone.trial_failed");
	put_hottest(&m);
	put_health(&m);
	fclose(m.f);
	e = cmd_write_file(o, "--prometheus", o->value[OPT_PROMETHEUS], text, len);
	exit = exit ? exit : e;
	free(text);
	for (size_t k = 0; k < m.n; k++) {
		json_object_put(m.volume[k].wear);
		json_object_put(m.volume[k].status);
	}
	return exit;
}
