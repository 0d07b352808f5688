/* SPDX-License-Identifier: MIT */
/* A process takes a volume over from one that has died: what that kept, and how it is found. */
#include "volume/opening.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clean.h"
#include "base/msg.h"
#include "card/blockdev.h"
#include "fs/fs_ops.h"

#define AWAY_LEAST_NS 240000000000ull

static void keep_card(struct volume *v, unsigned i, struct card *c)
{
	int none[BLOCKDEV_FDS];

	blockdev_keep(c, &v->kept->card[i], none);
}

/* What a process that takes over cannot find out. */
void volume_keep_attach(struct volume *v, const struct monitor_params *mp)
{
	struct volume_kept *k = v->kept;

	keep_card(v, 0, v->base);
	if (v->log_card != v->base)
		keep_card(v, 1, v->log_card);
	k->bound_dirty = mp->bound_dirty;
	k->attached_s = v->attached_s;
	k->opened = v->opened;
	k->fs = v->fs;
	k->choice = v->choice;
	k->plan = mp->plan;
	k->max_commit_ns = mp->max_commit_ns;
}

int volume_share(struct volume *v, const char *name, size_t bytes, void **ret)
{
	return ram_store_share(v->store, name, bytes, ret);
}

void volume_keep_state(struct volume *v)
{
	struct volume_kept *k = v->kept;
	uint64_t inhibit_ns = v->monitor ? monitor_inhibit_left_ns(v->monitor) : 0;

	k->discard_armed = v->discard_armed;
	k->inhibit_until_ns = inhibit_ns ? now_ns() + inhibit_ns : 0;
	k->committed_ns = v->committed_ns;
	k->last = v->last;
	memcpy(k->alarm, v->alarm, sizeof(k->alarm));
}

static int take_card(struct card **ret, const struct volume_kept *k, unsigned i, const int *fd)
{
	return blockdev_take_over(ret, &k->card[i], fd, i);
}

/* The state that the process left in memory. */
static void take_state(struct volume *v)
{
	const struct volume_kept *k = v->kept;
	uint64_t now = now_ns();

	v->attached_s = k->attached_s;
	v->opened = k->opened;
	v->discard_armed = k->discard_armed;
	v->committed_ns = k->committed_ns;
	v->last = k->last;
	v->last.report.profile = NULL;
	memcpy(v->alarm, k->alarm, sizeof(v->alarm) - 1); /* it may be half a text */
	v->last.why[sizeof(v->last.why) - 1] = '\0';
	v->diverged_lost = k->diverged &&
			   diverged_take_over(&v->diverged, v->store, v->volume_blks) < 0;
	v->lost_known = 0 - k->lost; /* modulo 2^64: the counters of this process begin at 0 */
	if (v->kept->stays)
		view_keep_below(v->view);
	v->failed_below = view_layers_below(v->view) > 0 && !v->kept->stays;
	v->kept->resumes &= v->failed_below;
	log_ledger(v->log)->attaches--; /* it is the same attach */
	if (k->inhibit_until_ns > now)
		monitor_inhibit(v->monitor, k->inhibit_until_ns - now);
}

/* What is in RAM belongs to the newest commit that the process before knew. On an older one, or on a
 * file system that was changed without cowfs, it would be a mixture. */
static int check_same_card(const struct volume *v, char *why, size_t n)
{
	const struct log_open_report *then = &v->kept->opened;

	if (v->opened.base_changed && !then->base_changed)
		return msg_why(why, n, -ESTALE, "%s: %s", v->device, v->opened.why);
	if (log_is_beyond(v->log, &v->kept->mark))
		return msg_why(why, n, -ESTALE, "%s: another system has committed to it",
			       v->device);
	if (log_newest(v->log)->seq < max_u64(then->newest.seq, v->kept->mark.newest))
		return msg_why(why, n, -EUCLEAN, "%s: the newest commit cannot be read any more",
			       v->device);
	return 0;
}

static int open_again(struct volume *v, unsigned flags, char *why, size_t n)
{
	log_close(v->log);
	v->log = NULL;
	return volume_open_log(v, flags, why, n);
}

static int open_kept_log(struct volume *v, char *why, size_t n)
{
	unsigned back = v->kept->opened.back_seq ? 0 : LOG_NOT_BACK;
	int r = volume_open_log(v, back, why, n);

	/* RAM belongs to the generation that was left if the order came in this session */
	if (r == 0 && v->opened.back_seq != v->kept->opened.back_seq && v->opened.back_seq)
		r = open_again(v, LOG_NOT_BACK, why, n);
	return r;
}

static void close_log(struct volume *v)
{
	log_close(v->log);
	v->log = NULL;
}

static int open_same_log(struct volume *v, char *why, size_t n)
{
	int r = open_kept_log(v, why, n);

	return r < 0 ? r : check_same_card(v, why, n);
}

/* Is a device that came meanwhile the card that the process before had? */
static int examine(struct volume *v)
{
	char why[512];
	int r = open_same_log(v, why, sizeof(why));

	close_log(v);
	return r;
}

/* Nothing is served meanwhile. */
static void wait_for_card(struct volume *v)
{
	const struct timespec pause = { .tv_nsec = (long)AWAY_LOOK_NS };
	uint64_t most_ns = max_u64(AWAY_LEAST_NS, v->away.limit_ns), begin_ns = now_ns();

	v->examine = examine;
	while (away_any(v) && now_ns() - begin_ns < most_ns) {
		away_search(v);
		if (away_any(v))
			nanosleep(&pause, NULL);
	}
	v->examine = NULL;
}

static int open_log_of_same_card(struct volume *v, char *why, size_t n)
{
	int r;

	do {
		wait_for_card(v);
		if (away_any(v))
			return msg_why(why, n, -ENOMEDIUM, "%s: it is still away", v->device);
		r = open_same_log(v, why, n);
		if (r < 0)
			close_log(v);
	} while (r < 0 && away_any(v));
	return r;
}

/* The descriptors of the process before, and what it shares. */
static int take_kept(struct volume *v, const int *fd)
{
	struct volume_kept *k;
	int r = ram_store_take_over(&v->store, fd + VOLUME_FD_STORE);

	if (r == 0)
		r = ram_store_share(v->store, "volume", sizeof(*v->kept), (void **)&v->kept);
	k = v->kept;
	if (r == 0)
		r = take_card(&v->base, k, 0, fd + VOLUME_FD_BASE);
	v->log_card = v->base;
	if (r == 0 && *v->log_device)
		r = take_card(&v->log_card, k, 1, fd + VOLUME_FD_LOG);
	if (r < 0)
		return r;
	/* it may have come back with another name */
	snprintf(v->device, sizeof(v->device), "%s", v->base->geo.path);
	if (v->log_card != v->base)
		snprintf(v->log_device, sizeof(v->log_device), "%s", v->log_card->geo.path);
	(void)card_look(v->base);
	(void)card_look(v->log_card);
	return 0;
}

/* Is what is sealed in RAM on the card? */
static bool is_committed(struct volume *v)
{
	struct volume_kept *k = v->kept;
	struct ram_stack stack;
	/* a record that is only in the cache of the card does not count */
	bool committed = log_settle(v->log) == 0 && (k->durable || log_reached(v->log, &k->mark)) &&
			 !k->keeps;

	/* everything is committed, so what single files left behind is of the past */
	if (committed && ram_store_stack(v->store, &stack) == 0 && stack.sealed)
		k->diverged = false;
	return committed;
}

static int take_monitor(struct volume *v, const struct volume_params *p, char *why, size_t n)
{
	struct volume_kept *k = v->kept;
	struct monitor_params mp = { .fail = p->pressure_fails,
				     .halted = p->halted,
				     .retry_ns = p->full_ns,
				     .plan = k->plan,
				     .max_commit_ns = k->max_commit_ns,
				     .times = &v->kept->times,
				     .bound_dirty = k->bound_dirty,
				     .stops = fs_ops(v->fs.kind)->crash_safe,
				     .log_blks = super_capacity_blks(log_super(v->log)) };
	struct blk_reader committed = volume_committed(v);
	struct fsinfo fs;

	if (fs_ops(v->fs.kind)->counts_on_free) {
		/* the process may have died before it noted the room beside its last record */
		if (fsinfo_probe_super(&committed, &fs) == 0)
			k->room_blks = min_u64(k->room_blks, volume_room_blks(v, &fs));
		pressure_plan_room(&mp.plan, mp.log_blks, mp.room_blks = k->room_blks);
	}
	return volume_open_monitor(v, &mp, why, n);
}

/*
 * Opens nothing by its name, and no block device: a sync(2) may hold a mutex of the volume's loop
 * device until this process serves.
 */
int volume_take_over(struct volume *v, const struct volume_params *p, char *why, size_t n)
{
	struct log_index *ix;
	bool committed;
	int r = take_kept(v, p->kept);

	if (r < 0)
		return msg_why(why, n, r, "what the process kept cannot be used: %s", strerror(-r));
	volume_note_counters(v);
	r = open_log_of_same_card(v, why, n);
	if (r < 0)
		return r;
	committed = is_committed(v);
	v->choice = v->kept->choice;
	volume_take_profile(v, NULL);
	ix = log_index_of(v->log);
	r = view_adopt(&v->view, v->store, v->base, v->volume_blks, ix, committed);
	log_index_unref(ix);
	if (r < 0)
		return msg_why(why, n, r, "what the process kept in RAM cannot be used: %s",
			       strerror(-r));
	v->fs = v->kept->fs;
	r = take_monitor(v, p, why, n);
	if (r == 0)
		r = volume_open_snapshots(v, why, n);
	if (r < 0)
		return r;
	take_state(v);
	monitor_stage(v->monitor, STAGE_IDLE); /* sets the throttle before a write comes */
	return 0;
}
