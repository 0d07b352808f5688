/* SPDX-License-Identifier: MIT */
#include "wire/render.h"

#include <string.h>

#include "wire/proto.h"

#define NAME(table, i) ((size_t)(i) < ARRAY_SIZE(table) && (table)[i] ? (table)[i] : "unknown")

static const char *job_name(enum volume_job job)
{
	static const char *const names[] = {
		[JOB_NONE] = "none",
		[JOB_COMMIT] = "commit",
		[JOB_DRY_RUN] = "dry-run",
		[JOB_CHECKPOINT] = "checkpoint",
		[JOB_DETACH] = "detach",
		[JOB_VIEW] = "view",
		[JOB_COMMIT_SCRATCH] = "commit-files",
		[JOB_TRIM] = "trim",
		[JOB_ACCEPT] = "accept",
		[JOB_RENEW] = "renew",
	};

	return NAME(names, job);
}

const char *phase_name(enum commit_phase phase)
{
	static const char *const names[] = {
		[PHASE_CLASSIFY] = "classify",	   [PHASE_DIRECT] = "direct", [PHASE_LOG] = "log",
		[PHASE_CHECKPOINT] = "checkpoint", [PHASE_TRIM] = "trim",
	};

	return NAME(names, phase);
}

const char *cause_name(enum commit_cause cause)
{
	static const char *const names[] = {
		[CAUSE_MANUAL] = "manual",     [CAUSE_TIMER] = "timer",
		[CAUSE_PRESSURE] = "pressure", [CAUSE_SHUTDOWN] = "shutdown",
		[CAUSE_DETACH] = "detach",     [CAUSE_RECOVER] = "recover",
	};

	return NAME(names, cause);
}

const char *log_state_name(enum log_state state)
{
	static const char *const names[] = {
		[LOG_EMPTY] = "empty",	       [LOG_CLEAN] = "clean",	  [LOG_LIVE] = "live",
		[LOG_FELL_BACK] = "fell-back", [LOG_RETIRED] = "retired", [LOG_BROKEN] = "broken",
		[LOG_FOREIGN] = "foreign",
	};

	return NAME(names, state);
}

void render_ledger(struct jsonw *w, const struct wear_ledger *l)
{
	jsonw_u64(w, "absorbed_bytes", l->absorbed_bytes);
	jsonw_u64(w, "absorbed_writes", l->absorbed_writes);
	jsonw_u64(w, "punched_bytes", l->punched_bytes);
	jsonw_u64(w, "skipped_free_blocks", l->free_blks);
	jsonw_u64(w, "skipped_journal_blocks", l->journal_blks);
	jsonw_u64(w, "skipped_same_blocks", l->same_blks);
	jsonw_u64(w, "skipped_hole_blocks", l->hole_blks);
	jsonw_u64(w, "direct_blocks", l->direct_blks);
	jsonw_u64(w, "logged_blocks", l->logged_blks);
	jsonw_u64(w, "spilled_blocks", l->spilled_blks);
	jsonw_u64(w, "zero_blocks", l->zero_blks);
	jsonw_u64(w, "checkpoint_blocks", l->checkpoint_blks);
	jsonw_u64(w, "padded_blocks", l->padded_blks);
	jsonw_u64(w, "log_metadata_blocks", l->meta_blks);
	jsonw_u64(w, "super_blocks", l->super_blks);
	jsonw_u64(w, "write_calls", l->write_calls);
	jsonw_u64(w, "written_bytes", l->written_bytes);
	jsonw_u64(w, "flushes", l->flushes);
	jsonw_u64(w, "commits", l->commits);
	jsonw_u64(w, "commits_failed", l->commits_failed);
	jsonw_object(w, "commits_by_cause");
	for (enum commit_cause c = CAUSE_MANUAL; c <= CAUSE_RECOVER; c++)
		jsonw_u64(w, cause_name(c), l->cause_commits[c - 1]);
	jsonw_end(w);
	jsonw_u64(w, "checkpoints", l->checkpoints);
	jsonw_u64(w, "attaches", l->attaches);
	jsonw_u64(w, "erase_block_visits", l->visits);
	jsonw_seconds(w, "writable_seconds", l->writable_ns);
	jsonw_seconds(w, "attached_seconds", l->attached_ns);
	jsonw_u64(w, "first_unix_seconds", l->first_s);
	jsonw_u64(w, "foreign_bytes", l->foreign_bytes);
	jsonw_u64(w, "foreign_first_unix_seconds", l->foreign_first_s);
	jsonw_u64(w, "table_losses", l->table_losses);
	jsonw_u64(w, "trims", l->trims);
	jsonw_u64(w, "trimmed_bytes", l->trimmed_bytes);
	jsonw_u64(w, "trimmed_unix_seconds", l->trimmed_s);
	jsonw_u64(w, "retried_requests", l->retried_ios);
	jsonw_u64(w, "times_away", l->away_times);
}

static const char *eb_source_name(unsigned source)
{
	static const char *const names[] = {
		[CARD_EB_GUESSED] = "guessed",
		[CARD_EB_REPORTED] = "reported",
		[CARD_EB_CONFIGURED] = "configured",
	};

	return NAME(names, source);
}

static void render_units(struct jsonw *w, const struct volume_wear *v)
{
	const struct wear_geometry *g = &v->geo;

	jsonw_u64(w, "erase_block_bytes", blk_to_bytes(g->eb_blks));
	jsonw_str(w, "erase_block_source", eb_source_name(v->eb_source));
	jsonw_u64(w, "unit_bytes", blk_to_bytes(g->unit_blks));
	jsonw_u64(w, "units", g->units[0]);
	jsonw_u64(w, "disk_offset_bytes", g->first_unit[0] * blk_to_bytes(g->unit_blks));
	jsonw_u64(w, "log_device_units", g->units[1]);
	jsonw_u64(w, "log_device_disk_offset_bytes", g->first_unit[1] * blk_to_bytes(g->unit_blks));
	jsonw_array(w, "written_blocks");
	for (uint32_t i = 0; i < v->part.units; i++)
		jsonw_u64(w, NULL, v->part.unit[i].blks);
	jsonw_end(w);
	jsonw_array(w, "visits");
	for (uint32_t i = 0; i < v->part.units; i++)
		jsonw_u64(w, NULL, v->part.unit[i].visits);
	jsonw_end(w);
}

static void render_history(struct jsonw *w, const struct wear_part *p)
{
	jsonw_array(w, "commits");
	for (uint32_t i = 0; i < p->commits; i++) {
		const struct wear_commit *c = &p->commit[i];

		jsonw_object(w, NULL);
		jsonw_u64(w, "number", c->n);
		jsonw_u64(w, "unix_seconds", c->time_s);
		jsonw_str(w, "cause", cause_name((enum commit_cause)c->cause));
		jsonw_u64(w, "absorbed_bytes", c->absorbed_bytes);
		jsonw_u64(w, "written_bytes", c->written_bytes);
		jsonw_seconds(w, "writable_seconds", min_u64(c->writable_ms, UINT32_MAX) * 1000000);
		jsonw_u64(w, "erase_block_visits", c->visits);
		jsonw_end(w);
	}
	jsonw_end(w);
	jsonw_array(w, "days");
	for (uint32_t i = 0; i < p->days; i++) {
		const struct wear_day *d = &p->day[i];

		jsonw_object(w, NULL);
		jsonw_u64(w, "number", d->n);
		jsonw_u64(w, "unix_day", d->day);
		jsonw_u64(w, "absorbed_bytes", d->absorbed_bytes);
		jsonw_u64(w, "absorbed_writes", d->absorbed_writes);
		jsonw_u64(w, "written_bytes", d->written_bytes);
		jsonw_u64(w, "commits", d->commits);
		jsonw_u64(w, "erase_block_visits", d->visits);
		jsonw_end(w);
	}
	jsonw_end(w);
}

static void render_truth(struct jsonw *w, const struct volume_account *a)
{
	jsonw_bool(w, "have_kernel_counters", a->have_kernel);
	jsonw_u64(w, "cowfs_written_bytes", a->written_bytes);
	jsonw_u64(w, "kernel_written_bytes", a->kernel.written_bytes);
	jsonw_u64(w, "foreign_bytes", a->foreign.bytes);
	jsonw_u64(w, "foreign_since_unix_seconds", a->foreign.since_s);
	jsonw_u64(w, "foreign_noticed_unix_seconds", a->foreign.noticed_s);
	jsonw_u64(w, "agreed_unix_seconds", a->foreign.agreed_s);
}

void render_wear(struct jsonw *w, const struct volume_wear *v)
{
	jsonw_str(w, "version", COWFS_VERSION);
	jsonw_str(w, "name", v->name);
	jsonw_str(w, "device", v->device);
	jsonw_str(w, "log_device", v->log_device);
	jsonw_str(w, "card_identity", v->identity);
	jsonw_u64(w, "volume_bytes", v->volume_bytes);
	jsonw_u64(w, "device_bytes", v->device_bytes);
	jsonw_str(w, "log_state", log_state_name(v->log_state));
	jsonw_bool(w, "clone", v->clone);
	jsonw_u64(w, "last_unix_seconds", v->last_s);
	jsonw_bool(w, "have_table", v->have_table);
	jsonw_u64(w, "stamp", v->stamp);
	jsonw_u64(w, "next", v->part.next);
	jsonw_object(w, "totals");
	render_ledger(w, &v->ledger);
	jsonw_end(w);
	jsonw_object(w, "erase_blocks");
	render_units(w, v);
	jsonw_end(w);
	jsonw_object(w, "history");
	render_history(w, &v->part);
	jsonw_end(w);
	jsonw_object(w, "truth");
	render_truth(w, &v->account);
	jsonw_end(w);
}

static const char *const time_by[] = {
	[TIME_UNKNOWN] = "", [TIME_BY_COMMITS] = "commits", [TIME_BY_GUESS] = "guess"
};

static void render_report(struct jsonw *w, const struct commit_report *r)
{
	jsonw_bool(w, "estimate", r->estimate);
	jsonw_u64(w, "dirty_blocks", r->dirty);
	jsonw_u64(w, "hole_blocks", r->holes);
	jsonw_u64(w, "skipped_hole_blocks", r->skipped_holes);
	jsonw_u64(w, "skipped_free_blocks", r->skipped_free);
	jsonw_u64(w, "skipped_journal_blocks", r->skipped_journal);
	jsonw_u64(w, "skipped_same_blocks", r->skipped_same);
	jsonw_u64(w, "direct_blocks", r->direct);
	jsonw_u64(w, "direct_extents", r->direct_extents);
	jsonw_u64(w, "logged_blocks", r->logged);
	jsonw_u64(w, "logged_extents", r->logged_extents);
	jsonw_u64(w, "spilled_blocks", r->spilled);
	jsonw_u64(w, "moved_blocks", r->moved);
	jsonw_u64(w, "padded_blocks", r->padded);
	jsonw_u64(w, "zero_blocks", r->zero);
	jsonw_u64(w, "log_metadata_blocks", r->meta);
	jsonw_u64(w, "checkpoint_blocks", r->checkpoint);
	jsonw_u64(w, "erase_blocks", r->erase_blocks);
	jsonw_u64(w, "checkpoint_erase_blocks", r->home_erase_blocks);
	jsonw_u64(w, "erase_block_visits", r->visits);
	jsonw_u64(w, "written_bytes", r->written_bytes);
	jsonw_u64(w, "write_calls", r->write_calls);
	jsonw_u64(w, "flushes", r->flushes);
	jsonw_seconds(w, "duration_seconds", r->duration_ns);
	jsonw_seconds(w, "writable_seconds", r->writable_ns);
	jsonw_str(w, "writable_by", time_by[r->time_by]);
	jsonw_u64(w, "log_need_blocks", r->need_blks);
	jsonw_u64(w, "log_room_blocks", r->room_blks);
	if (r->profile) {
		jsonw_str(w, "profile", r->profile->id);
		jsonw_bool(w, "profile_guessed", r->profile->guessed);
		jsonw_u64(w, "profile_units", r->units);
		jsonw_seconds(w, "model_seconds", r->model_ns);
	}
}

static void render_quiesce(struct jsonw *w, const struct quiesce_report *q)
{
	jsonw_bool(w, "mounted", q->mounted);
	jsonw_bool(w, "instant", q->instant);
	jsonw_bool(w, "unsynced", q->unsynced);
	jsonw_bool(w, "raw", q->raw);
	jsonw_seconds(w, "sync_seconds", q->sync_ns);
	jsonw_bool(w, "hidden", q->hidden);
	jsonw_str(w, "holder", q->holder);
}

void render_result(struct jsonw *w, const struct volume_result *r)
{
	jsonw_str(w, "job", job_name(r->job));
	jsonw_u64(w, "generation", r->generation);
	jsonw_u64(w, "record", r->record_seq);
	jsonw_u64(w, "time_unix_seconds", r->time_s);
	jsonw_str(w, "remark", r->why);
	jsonw_bool(w, "withheld", r->withheld);
	jsonw_object(w, "report");
	render_report(w, &r->report);
	jsonw_end(w);
	jsonw_bool(w, "unread", r->unread);
	jsonw_object(w, "quiesce");
	render_quiesce(w, &r->quiesce);
	jsonw_end(w);
}

void render_image(struct jsonw *w, const struct volume_image *im)
{
	jsonw_bool(w, "now", im->now);
	jsonw_u64(w, "generation", im->generation);
	jsonw_u64(w, "time_unix_seconds", im->time_s);
	jsonw_str(w, "fs_type", im->fs_type);
	jsonw_bool(w, "replays", im->replays);
	jsonw_bool(w, "unsynced", im->unsynced);
}

void render_progress(struct jsonw *w, const struct volume_progress *p)
{
	jsonw_str(w, "job", job_name(p->job));
	jsonw_str(w, "phase", phase_name(p->phase));
	jsonw_u64(w, "done_blocks", p->done_blks);
	jsonw_u64(w, "total_blocks", p->total_blks);
	jsonw_seconds(w, "elapsed_seconds", p->elapsed_ns);
}

/* The state needs attention: `cowctl status` exits with 3. */
static bool status_degraded(const struct volume_status *s)
{
	return s->alarm[0] || s->readonly || s->pressure.gave_up || s->failed_blks ||
	       s->account.foreign.bytes || (s->log.super_trouble & SUPER_COPIES_BAD) ||
	       s->away.base || s->away.log;
}

static void render_pressure(struct jsonw *w, const struct volume_pressure *p)
{
	bool paced = p->rate_bytes_per_s != THROTTLE_OPEN;

	jsonw_str(w, "level", pressure_level_name(p->level));
	jsonw_str(w, "policy", p->fails ? "fail" : "commit");
	jsonw_bool(w, "gave_up", p->gave_up);
	jsonw_u64(w, "hard_bytes", pressure_hard_bytes(&p->plan));
	jsonw_u64(w, "reserve_journal_bytes", p->plan.journal_bytes);
	jsonw_u64(w, "reserve_dirty_bytes", p->plan.dirty_bytes);
	jsonw_u64(w, "reserve_slack_bytes", p->plan.slack_bytes);
	jsonw_bool(w, "pacing", paced);
	jsonw_u64(w, "rate_bytes_per_second", paced ? p->rate_bytes_per_s : 0);
	jsonw_u64(w, "parked_writes", paced && !p->rate_bytes_per_s ? p->throttle.held : 0);
	jsonw_u64(w, "held_writes", p->throttle.held);
	jsonw_u64(w, "delayed_writes", p->throttle.paced);
	jsonw_seconds(w, "longest_delay_seconds", p->throttle.longest_ns);
	jsonw_u64(w, "full_errors", p->throttle.full_errors);
	jsonw_u64(w, "commits", p->commits);
	jsonw_seconds(w, "commit_seconds", p->commit_ns);
	jsonw_u64(w, "commit_bytes_per_second", p->commit_bytes_per_s);
	jsonw_seconds(w, "max_commit_seconds", p->max_commit_ns);
	jsonw_bool(w, "card_too_slow", p->too_slow);
}

static void render_views(struct jsonw *w, const struct volume_views *v)
{
	jsonw_u64(w, "ram_bytes", v->held_bytes);
	jsonw_str(w, "last_end", v->last_end);
	jsonw_array(w, "list");
	for (unsigned i = 0; i < v->n; i++) {
		jsonw_object(w, NULL);
		jsonw_str(w, "kind", v->view[i].now ? "now" : "committed");
		jsonw_u64(w, "generation", v->view[i].generation);
		jsonw_u64(w, "time_unix_seconds", v->view[i].time_s);
		jsonw_u64(w, "ram_bytes", v->view[i].ram_bytes);
		jsonw_bool(w, "ended", v->view[i].ended);
		jsonw_end(w);
	}
	jsonw_end(w);
}

static void render_trim(struct jsonw *w, const struct volume_status *s)
{
	const struct volume_trim_status *t = &s->trim;

	jsonw_bool(w, "announced", t->announced);
	jsonw_str(w, "mode", t->weekly ? "weekly" : "off");
	jsonw_str(w, "refused", t->refused);
	jsonw_u64(w, "last_unix_seconds", s->log.totals.trimmed_s);
	jsonw_u64(w, "bytes", t->bytes);
}

static void render_away(struct jsonw *w, const struct volume_away *a)
{
	jsonw_bool(w, "base", a->base);
	jsonw_bool(w, "log", a->log);
	jsonw_bool(w, "given_up", a->given_up);
	jsonw_u64(w, "seconds", a->seconds);
	if (a->limit_seconds != UINT64_MAX)
		jsonw_u64(w, "limit_seconds", a->limit_seconds);
	jsonw_u64(w, "times", a->times);
	jsonw_bool(w, "commit_waits", a->commit_waits);
	jsonw_str(w, "refused", a->other);
}

static void render_card(struct jsonw *w, const struct volume_account *a)
{
	jsonw_u64(w, "write_calls", a->write_calls);
	jsonw_u64(w, "written_bytes", a->written_bytes);
	jsonw_u64(w, "flushes", a->flushes);
	jsonw_seconds(w, "writable_seconds", a->writable_ns);
	jsonw_bool(w, "have_kernel_counters", a->have_kernel);
	jsonw_u64(w, "kernel_write_ios", a->kernel.write_ios);
	jsonw_u64(w, "kernel_written_bytes", a->kernel.written_bytes);
	jsonw_u64(w, "kernel_discarded_bytes", a->kernel.discarded_bytes);
	jsonw_u64(w, "kernel_flushes", a->kernel.flushes);
	jsonw_u64(w, "foreign_bytes", a->foreign.bytes);
	jsonw_u64(w, "foreign_since_unix_seconds", a->foreign.since_s);
	jsonw_u64(w, "foreign_noticed_unix_seconds", a->foreign.noticed_s);
}

static void render_last(struct jsonw *w, const struct volume_result *last)
{
	jsonw_bool(w, "ok", last->error == 0);
	if (last->error) {
		const char *code = strerrorname_np(-last->error);

		jsonw_str(w, "code", code ? code : "EIO");
	}
	render_result(w, last);
}

/* The newest generation, and the log that has it. */
static void render_log(struct jsonw *w, const struct volume_status *s)
{
	jsonw_u64(w, "generation", s->log.generation);
	if (s->log.holds) {
		jsonw_object(w, "held");
		jsonw_u64(w, "generation", s->log.hold.generation);
		jsonw_u64(w, "time_unix_seconds", s->log.hold.time_s);
		jsonw_str(w, "cause", cause_name(s->log.hold.cause));
		jsonw_bool(w, "undo_pending", s->log.hold.back);
		jsonw_bool(w, "trial", s->log.hold.trial);
		jsonw_u64(w, "boots_left", s->log.hold.boots);
		jsonw_bool(w, "log_low", s->log.hold_low);
		jsonw_u64(w, "log_full_seconds", s->log_full_s);
		jsonw_end(w);
	}
	if (s->back_generation) {
		jsonw_object(w, "undone");
		jsonw_u64(w, "generation", s->back_generation);
		jsonw_u64(w, "time_unix_seconds", s->back_s);
		jsonw_bool(w, "trial_failed", s->trial_over);
		jsonw_end(w);
	}
	if (s->log.imported_s)
		jsonw_u64(w, "imported_unix_seconds", s->log.imported_s);
	if (s->log.offered_s)
		jsonw_u64(w, "offered_unix_seconds", s->log.offered_s);
	if (s->replaced_by)
		jsonw_u64(w, "replaced_by", s->replaced_by);
	jsonw_bool(w, "protection_on_trial",
		   s->log.image_boots && s->log.image_boots != SUPER_PROVEN);
	jsonw_u64(w, "record", s->log.newest_seq);
	jsonw_u64(w, "generation_unix_seconds", s->log.newest_s);
	if (s->log.newest_cause)
		jsonw_str(w, "generation_cause", cause_name(s->log.newest_cause));
	jsonw_str(w, "log_state_at_attach", log_state_name(s->log_state_at_attach));
	jsonw_u64(w, "log_live_blocks", s->log.live_blks);
	jsonw_u64(w, "log_room_blocks", s->log.room_blks);
	jsonw_u64(w, "log_capacity_blocks", s->log.capacity_blks);
	jsonw_u64(w, "lag", s->lag);
	jsonw_str(w, "profile", s->profile);
	jsonw_bool(w, "profile_guessed", s->profile_guessed);
	jsonw_bool(w, "profile_plans", s->profile_plans);
	jsonw_bool(w, "profile_of_another_card", s->profile_of_another);
	jsonw_bool(w, "super_copy_a_bad", s->log.super_trouble & SUPER_COPY_A_BAD);
	jsonw_bool(w, "super_copy_b_bad", s->log.super_trouble & SUPER_COPY_B_BAD);
	jsonw_bool(w, "device_grown", s->log.super_trouble & SUPER_GROWN);
	jsonw_bool(w, "base_changed", s->base_changed);
	jsonw_bool(w, "clone", s->clone);
	jsonw_uuid(w, "log_id", s->log.id);
}

/* The objects of a status. */
static void render_parts(struct jsonw *w, const struct volume_status *s)
{
	jsonw_object(w, "pressure");
	render_pressure(w, &s->pressure);
	jsonw_end(w);
	jsonw_object(w, "views");
	render_views(w, &s->views);
	jsonw_end(w);
	jsonw_object(w, "away");
	render_away(w, &s->away);
	jsonw_end(w);
	jsonw_object(w, "trim");
	render_trim(w, s);
	jsonw_end(w);
	jsonw_object(w, "card");
	render_card(w, &s->account);
	jsonw_end(w);
	jsonw_object(w, "lifetime");
	render_ledger(w, &s->log.totals);
	jsonw_end(w);
	if (s->last.job != JOB_NONE) {
		jsonw_object(w, "last");
		render_last(w, &s->last);
		jsonw_end(w);
	}
	if (s->progress.job != JOB_NONE) {
		jsonw_object(w, "progress");
		render_progress(w, &s->progress);
		jsonw_end(w);
	}
}

void render_status(struct jsonw *w, const struct volume_status *s)
{
	jsonw_u64(w, "protocol", PROTO_VERSION);
	jsonw_str(w, "version", COWFS_VERSION);
	jsonw_str(w, "name", s->name);
	jsonw_str(w, "device", s->device);
	jsonw_str(w, "log_device", s->log_device);
	jsonw_str(w, "loop", s->loop);
	jsonw_str(w, "mountpoint", s->mountpoint);
	jsonw_str(w, "fs_type", s->fs_type);
	jsonw_str(w, "card_identity", s->identity);
	jsonw_u64(w, "volume_bytes", s->volume_bytes);
	jsonw_u64(w, "device_bytes", s->device_bytes);
	jsonw_u64(w, "log_device_bytes", s->log_device_bytes);
	jsonw_u64(w, "attached_unix_seconds", s->attached_s);
	jsonw_bool(w, "degraded", status_degraded(s));
	jsonw_str(w, "alarm", s->alarm);
	jsonw_bool(w, "readonly", s->readonly);
	jsonw_bool(w, "discard_armed", s->discard_armed);
	jsonw_bool(w, "checkpoint_always", s->always_checkpoint);
	jsonw_u64(w, "ram_limit_bytes", s->pressure.plan.limit_bytes);
	jsonw_u64(w, "ram_used_bytes", s->ram_used_bytes);
	jsonw_u64(w, "dirty_blocks", s->dirty_blks);
	jsonw_bool(w, "superblock_only", s->superblock_only);
	jsonw_u64(w, "hole_blocks", s->hole_blks);
	jsonw_u64(w, "failed_blocks", s->failed_blks);
	render_log(w, s);
	jsonw_u64(w, "read_bytes", s->counters.read_bytes);
	jsonw_u64(w, "read_errors", s->counters.read_errors);
	jsonw_u64(w, "absorbed_writes", s->counters.write_calls);
	jsonw_u64(w, "absorbed_bytes", s->counters.written_bytes);
	jsonw_u64(w, "write_errors", s->counters.write_errors);
	jsonw_u64(w, "lost_writes", s->lost_writes);
	jsonw_u64(w, "punched_bytes", s->counters.punched_bytes);
	jsonw_seconds(w, "inhibit_left_seconds", s->pressure.inhibit_left_ns);
	render_parts(w, s);
}

void render_changes(struct jsonw *w, const struct volume_changes *v)
{
	jsonw_u64(w, "newest_generation", v->generation);
	jsonw_u64(w, "next", v->next_blk);
	jsonw_array(w, "runs");
	for (uint32_t i = 0; i < v->runs; i++) {
		jsonw_u64(w, NULL, v->run[i].blk);
		jsonw_u64(w, NULL, v->run[i].blks);
	}
	jsonw_end(w);
}
