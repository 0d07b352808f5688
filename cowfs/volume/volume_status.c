/* SPDX-License-Identifier: MIT */
/* What a volume says about itself to other threads. */
#include "volume/private.h"

#include <stdio.h>
#include <string.h>

#include "base/invariant.h"
#include "base/numbers.h"
#include "fs/find_mount.h"

void volume_publish_log(struct volume *v)
{
	const struct log_super *super = log_super(v->log);
	const struct log_record *newest = log_newest(v->log);
	struct log_index *ix = log_index_of(v->log);
	struct volume_log now = {
		.generation = log_ledger(v->log)->commits,
		.newest_seq = newest->seq,
		.newest_s = newest->time_s,
		.newest_cause = newest->cause,
		.hold_low = held_low(v),
		.guarded = log_guarded(v->log),
		.live_blks = log_index_blks(ix),
		.room_blks = log_room_blks(v->log),
		.capacity_blks = log_capacity_blks(v->log),
		.super_trouble = log_super_trouble(v->log),
		.image_boots = super->image_boots,
		.imported_s = super->imported_s,
		.offered_s = super->offered_s,
	};

	log_public_id(v->log, now.id); /* the first commit chooses the uuid */
	now.holds = log_holds(v->log, &now.hold);
	log_totals(v->log, &now.totals);
	held_note_room(&v->of_log, &now);
	pthread_mutex_lock(&v->lock);
	v->of_log = now;
	/* together with the totals, so that a reader gets both of one moment */
	account_copy_wear(v);
	pthread_mutex_unlock(&v->lock);
	log_index_unref(ix);
}

/* What jobs leave for other threads. */
static void copy_locked(struct volume *v, uint64_t below_blks, struct volume_status *ret)
{
	LOCKED(&v->lock);
	ret->log = v->of_log;
	ret->replaced_by = v->kept->replaced_by <= ret->log.generation ? v->kept->replaced_by : 0;
	ret->last = v->last;
	/* also while the commit is retried */
	ret->failed_blks = v->failed_below ? below_blks : 0;
	memcpy(ret->alarm, v->alarm, sizeof(ret->alarm));
}

/* What is worse replaces the alarm of the last job, or shows if there is none. */
static void choose_alarm(const struct volume *v, struct volume_status *ret)
{
	unsigned long long lost = volume_lost_writes(v) + v->kept->lost_said;

	ret->lost_writes = lost;
	if (invariant_broken())
		snprintf(ret->alarm, sizeof(ret->alarm),
			 "internal error: rule %s violated; no more writes to the card, and "
			 "uncommitted changes exist in RAM only",
			 invariant_broken());
	if (ret->away.given_up && !ret->alarm[0])
		snprintf(
			ret->alarm, sizeof(ret->alarm),
			"the card is away and no longer waited for: reads that RAM cannot answer fail; what RAM holds "
			"stays there");
	if (v->halted && !ret->alarm[0])
		snprintf(
			ret->alarm, sizeof(ret->alarm),
			"the daemon has died several times: writes fail, and only a commit by hand "
			"is made");
	if (lost && !ret->alarm[0])
		snprintf(
			ret->alarm, sizeof(ret->alarm),
			"%llu write%s failed because RAM was full: the data is lost. cowctl accept ends this "
			"alarm",
			lost, plural(lost));
	if (ret->account.foreign.bytes && !ret->alarm[0])
		account_foreign_text(&ret->account.foreign, ret->alarm, sizeof(ret->alarm));
}

static bool only_superblock(struct volume *v, uint64_t dirty_blks)
{
	uint64_t blk = 0, blks;
	enum blk_state state;

	return dirty_blks == 1 && view_next_live(v->view, &blk, v->volume_blks, &blks, &state) &&
	       blk == 0 && state == BLK_DATA;
}

void volume_get_status(struct volume *v, struct volume_status *ret)
{
	struct generation_stats active, below;
	bool readonly;

	memset(ret, 0, sizeof(*ret));
	memcpy(ret->name, v->name, sizeof(ret->name));
	volume_copy_devices(v, ret->device, ret->log_device);
	memcpy(ret->loop, v->loop_path, sizeof(ret->loop));
	memcpy(ret->fs_type, v->fs.type, sizeof(ret->fs_type));
	memcpy(ret->identity, v->base->geo.identity, sizeof(ret->identity));
	if (v->loop_fd >= 0 && find_mount(v->proc_dirfd, v->loop_rdev, ret->mountpoint,
					  sizeof(ret->mountpoint), &readonly) <= 0)
		ret->mountpoint[0] = '\0';
	ret->volume_bytes = blk_to_bytes(v->volume_blks);
	ret->device_bytes = v->base->geo.size_bytes;
	ret->log_device_bytes = v->log_card == v->base ? 0 : v->log_card->geo.size_bytes;
	ret->discard_armed = v->discard_armed;
	ret->always_checkpoint = v->always_checkpoint;
	ret->back_generation = v->opened.back_generation;
	ret->back_s = v->opened.back_s;
	ret->trial_over = v->opened.trial_over;
	ret->halted = v->halted;
	monitor_status(v->monitor, &ret->pressure);
	ret->ram_used_bytes = ram_store_used_bytes(v->store);
	view_dirty(v->view, &active, &below);
	ret->dirty_blks = active.data_blks + below.data_blks;
	ret->hole_blks = active.hole_blks + below.hole_blks;
	ret->superblock_only = only_superblock(v, ret->dirty_blks);
	ret->readonly = v->opened.state == LOG_FOREIGN;
	ret->base_changed = v->opened.base_changed;
	ret->clone = v->opened.clone;
	ret->log_state_at_attach = v->opened.state;
	ret->lag = log_super(v->log)->lag;
	snprintf(ret->profile, sizeof(ret->profile), "%s", v->price_by ? v->price_by->id : "none");
	ret->profile_guessed = v->price_by && v->price_by->guessed;
	ret->profile_of_another = v->choice.of_another;
	ret->profile_plans = v->profile != NULL;
	ret->attached_s = v->attached_s;
	view_counters(v->view, &ret->counters);
	ret->counters.write_errors += ret->pressure.throttle.refused;
	account_get(v, &ret->account);
	snapshots_status(v->snapshots, &ret->views);
	trim_status(v, &ret->trim);
	away_status(v, &ret->away);
	volume_get_progress(v, &ret->progress);
	copy_locked(v, below.data_blks, ret);
	ret->log_full_s = held_full_s(v, &ret->log);
	ret->log.hold_low |= ret->log_full_s != 0;
	choose_alarm(v, ret);
}
