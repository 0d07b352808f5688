/* SPDX-License-Identifier: MIT */
/* Opening a volume, and closing it. */
#include "volume/opening.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#include "base/clean.h"
#include "base/msg.h"
#include "base/parse.h"
#include "base/thread.h"
#include "card/blockdev.h"
#include "fs/fs_ops.h"
#include "volume/away.h"

#define QUIET_NS (600 * 1000000000ull)

static uint64_t memory_bytes(void)
{
	struct sysinfo si;

	return sysinfo(&si) == 0 ? (uint64_t)si.totalram * si.mem_unit : 0;
}

static bool dirty_can_be_bounded(const struct volume *v)
{
	return !fs_ops(v->fs.kind)->own_dirty_limits && bdi_can_limit();
}

/* At attach. Those in flight are written even if RAM, or the room of a commit, is used up: about a quarter of this fits into
 * the slack, and they are few with max_commit_time. */
static struct pressure_requests plan_requests(const struct volume *v, const struct pressure_plan *p)
{
	uint64_t blks = min_u64(monitor_time_blks(v->monitor), 3 * p->slack_bytes / COW_BLK_BYTES);

	if (!fs_ops(v->fs.kind)->counts_on_free)
		blks = min_u64(blks, super_capacity_blks(log_super(v->log)));
	return pressure_requests(blks);
}

struct pressure_requests volume_requests(const struct volume *v)
{
	return v->kept->requests;
}

/* Why a limit of time cannot be kept; "": it can. */
static const char *why_no_limit(const struct volume_params *p, bool bound_dirty)
{
	return p->pressure_fails ? "needs commits under pressure: pressure=fail forbids them"
	       : p->always_checkpoint
		       ? "cannot be kept with checkpoint=always: a checkpoint has no such limit"
	       : bound_dirty ? ""
	       : bdi_can_limit()
		       ? "cannot be kept on btrfs: how much it holds back until a commit is not bounded"
		       : "needs Linux 6.2 or newer: older kernels do not bound what they hold back until "
			 "a commit";
}

static int plan_pressure(struct volume *v, const struct volume_params *p, uint64_t ram_bytes,
			 struct monitor_params *ret, char *why, size_t n)
{
	struct monitor_params mp = { .fail = p->pressure_fails,
				     .bound_dirty = dirty_can_be_bounded(v),
				     .stops = fs_ops(v->fs.kind)->crash_safe,
				     .log_blks = super_capacity_blks(log_super(v->log)),
				     .retry_ns = p->full_ns,
				     .max_commit_ns = p->max_commit_ns,
				     .times = &v->kept->times };
	uint64_t volume_bytes = blk_to_bytes(v->volume_blks), need;
	uint64_t dirty_bytes =
		mp.bound_dirty ? 0 : pressure_unbounded_bytes(global_dirty_bytes(), volume_bytes);
	const char *no_limit = p->max_commit_ns ? why_no_limit(p, mp.bound_dirty) : "";
	int r;

	if (*no_limit) {
		if (!p->running_root)
			return msg_why(why, n, -EOPNOTSUPP, "max-commit-time %s", no_limit);
		mp.max_commit_ns = 0;
		volume_alarm(v, "max-commit-time %s", no_limit);
	}
	r = pressure_plan(&mp.plan, ram_bytes, v->fs.journal_bytes, dirty_bytes, &need);
	if (r < 0)
		return msg_why(
			why, n, r,
			"the RAM limit of %s cannot hold the journal of %s (%s), the kernel's "
			"dirty pages (%s) and some slack: at least %s are needed%s",
			FORMAT_SIZE(ram_bytes), v->device, FORMAT_SIZE(v->fs.journal_bytes),
			FORMAT_SIZE(pressure_dirty_bytes(ram_bytes)), FORMAT_SIZE(need),
			v->fs.journal_bytes > 16 * MIB
				? ", or a smaller journal (tune2fs -O ^has_journal, then -J size=8)"
				: "");
	if (pressure_plan_exceeds(&mp.plan))
		msg(MSG_NOTICE,
		    "%s: the start of a commit may need up to %s above the RAM limit of %s: only "
		    "vm.dirty_bytes limits the kernel's dirty pages",
		    v->name, FORMAT_SIZE(mp.plan.dirty_bytes), FORMAT_SIZE(ram_bytes));
	v->kept->room_blks = volume_room_blks(v, &v->fs);
	if (!fs_ops(v->fs.kind)->counts_on_free)
		pressure_plan_ring(&mp.plan, mp.log_blks);
	else
		pressure_plan_room(&mp.plan, mp.log_blks, mp.room_blks = v->kept->room_blks);
	*ret = mp;
	r = ram_store_resize(v->store, pressure_hard_bytes(&mp.plan));
	return r < 0 ? msg_why(why, n, r, "the RAM store: %s", strerror(-r)) : 0;
}

int volume_open_monitor(struct volume *v, const struct monitor_params *mp, char *why, size_t n)
{
	int r = monitor_new(&v->monitor, v, mp);

	if (r == 0 && !v->kept->requests.tags)
		v->kept->requests = plan_requests(v, &mp->plan);
	if (r == 0)
		throttle_set_tags(monitor_throttle(v->monitor), v->kept->requests.tags);
	return r < 0 ? msg_why(why, n, r, "the monitor: %s", strerror(-r)) : 0;
}

/* A profile that is guessed or unconfirmed is used to estimate a dry run, but not to plan. */
void volume_take_profile(struct volume *v, const struct profile_choice *choice)
{
	if (choice)
		v->choice = *choice;
	if (v->choice.source == PROFILE_NONE)
		return;
	if (v->choice.source == PROFILE_GUESSED)
		costs_guess(&v->choice.profile, v->base->geo.erase_block_bytes);
	v->price_by = &v->choice.profile;
	v->profile = v->choice.source == PROFILE_GUESSED || v->choice.profile.unconfirmed
			     ? NULL
			     : &v->choice.profile;
}

/* Commit thread. */
static void before_write(void *ctx, struct card *c, uint64_t off_bytes, size_t len_bytes)
{
	struct volume *v = ctx;
	struct scratch *s = v->committing ? NULL : volume_scratch(v);

	if (s)
		scratch_end(s);
	scratch_unref(s);
	snapshots_before_write(v->snapshots, c, off_bytes, len_bytes);
}

int volume_open_snapshots(struct volume *v, char *why, size_t n)
{
	struct card *cards[] = { v->base, v->log_card };
	struct volume_pressure m;
	int r;

	monitor_status(v->monitor, &m);
	r = snapshots_new(&v->snapshots, v->name, v->store, v->view, m.plan.ram_bytes.full);
	if (r < 0)
		return msg_why(why, n, r, "no memory");
	for (size_t i = 0; i < ARRAY_SIZE(cards); i++) {
		cards[i]->before_write = before_write;
		cards[i]->before_write_ctx = v;
	}
	return 0;
}

static uint64_t ram_limit(const struct volume_params *p)
{
	return p->ram_bytes ? p->ram_bytes : memory_bytes() / 2;
}

int volume_prepare(struct volume_prepared *ret, const struct volume_params *p, char *why, size_t n)
{
	uint64_t memory = memory_bytes(), ram = ram_limit(p);
	int r;

	*ret = (struct volume_prepared){ 0 };
	if (memory && ram > memory)
		return msg_why(why, n, -EINVAL,
			       "the RAM limit of %s exceeds the memory of this machine (%s)",
			       FORMAT_SIZE(ram), FORMAT_SIZE(memory));
	if (ram < PRESSURE_MIN_BYTES)
		return msg_why(why, n, -EINVAL, "the RAM limit of %s is too small: at least %s",
			       FORMAT_SIZE(ram), FORMAT_SIZE(PRESSURE_MIN_BYTES));
	r = volume_open_device(&ret->base, 0, p->device, p->erase_block_bytes, why, n);
	if (r == 0 && p->log_device)
		r = volume_open_device(&ret->log, 1, p->log_device, p->erase_block_bytes, why, n);
	if (r == 0) {
		r = ram_store_open(&ret->store, ram);
		if (r < 0)
			msg_why(why, n, r, "cannot create the RAM store: %s", strerror(-r));
	}
	if (r < 0)
		volume_unprepare(ret);
	return r;
}

void volume_unprepare(struct volume_prepared *p)
{
	ram_store_close(p->store);
	card_close(p->log);
	card_close(p->base);
	*p = (struct volume_prepared){ 0 };
}

void volume_note_counters(struct volume *v)
{
	v->kernel.have[0] = card_counters(v->base, &v->kernel.at_open[0]) == 0;
	v->kernel.have[1] = v->log_card == v->base ||
			    card_counters(v->log_card, &v->kernel.at_open[1]) == 0;
}

static int open_all(struct volume *v, const struct volume_params *p, char *why, size_t n)
{
	uint64_t ram = ram_limit(p);
	struct monitor_params mp;
	struct log_index *ix;
	int r;

	v->base = p->prepared->base;
	v->log_card = p->prepared->log ? p->prepared->log : v->base;
	v->store = p->prepared->store;
	*p->prepared = (struct volume_prepared){ 0 };
	volume_note_counters(v);
	r = volume_open_log(v, 0, why, n);
	if (r < 0)
		return r;
	volume_take_profile(v, p->profile);
	r = ram_store_share(v->store, "volume", sizeof(*v->kept), (void **)&v->kept);
	if (r < 0)
		return msg_why(why, n, r, "cannot create the RAM store: %s", strerror(-r));
	ix = log_index_of(v->log);
	r = view_new(&v->view, v->store, v->base, v->volume_blks, ix);
	log_index_unref(ix);
	if (r < 0)
		return msg_why(why, n, r, "cannot create the merged view: %s", strerror(-r));
	r = volume_probe_fs(v, why, n);
	if (r == 0)
		r = plan_pressure(v, p, ram, &mp, why, n);
	if (r == 0)
		r = volume_open_monitor(v, &mp, why, n);
	if (r == 0)
		r = volume_open_snapshots(v, why, n);
	if (r == 0) {
		volume_keep_attach(v, &mp);
		away_know(v);
	}
	return r;
}

static void take_params(struct volume *v, const struct volume_params *p)
{
	pthread_mutex_init(&v->lock, NULL);
	pthread_mutex_init(&v->scratch_lock, NULL);
	thread_cond_init(&v->work);
	pthread_cond_init(&v->done, NULL);
	snprintf(v->name, sizeof(v->name), "%s", p->name);
	v->away.limit_ns = p->away_limit_ns;
	snprintf(v->device, sizeof(v->device), "%s", p->device);
	snprintf(v->log_device, sizeof(v->log_device), "%s", p->log_device ? p->log_device : "");
	v->loop_fd = -1;
	v->proc_dirfd = p->proc_dirfd;
	v->meminfo_fd = p->meminfo_fd;
	v->always_checkpoint = p->always_checkpoint;
	v->idle_checkpoint = p->idle_checkpoint;
	v->trim.weekly = p->trim_weekly;
	v->hold_previous = p->hold_previous && !p->always_checkpoint;
	v->quiet_ns = p->quiet_ns ? p->quiet_ns : QUIET_NS;
	v->attached_s = (uint64_t)time(NULL);
	v->halted = p->halted;
}

/* What is odd about this card, once. */
static void tell_opened(struct volume *v)
{
	if (v->of_log.super_trouble & SUPER_COPIES_BAD)
		volume_alarm(v, "one superblock of the log is damaged");
	if (v->of_log.super_trouble & SUPER_GROWN)
		msg(MSG_NOTICE, "%s has grown since it was prepared", v->device);
	if (v->opened.state == LOG_FOREIGN)
		volume_alarm(v,
			     "%s; its log is set aside and nothing will be committed: detach, then "
			     "decide with cowctl release --accept base or --accept log",
			     v->opened.why);
	else if (v->opened.base_changed)
		msg(MSG_NOTICE,
		    "%s: was changed without cowfs; its log was empty, so the change is accepted",
		    v->device);
	if (v->opened.clone)
		msg(MSG_NOTICE,
		    "%s: this log was written on another card: its wear ledger restarts",
		    v->device);
	if (v->opened.state == LOG_FELL_BACK)
		msg(MSG_NOTICE,
		    "%s: the newest commit is incomplete (%s); the previous generation is used",
		    v->name, v->opened.why);
	if (v->opened.lost_home_blks + v->opened.lost_log_blks)
		volume_alarm(
			v,
			"blocks of the newest generation that cannot be read: %llu, one is block %llu; cowctl scrub names the files",
			(unsigned long long)(v->opened.lost_home_blks + v->opened.lost_log_blks),
			(unsigned long long)v->opened.lost_blk);
	if (v->opened.passed_seq)
		msg(MSG_WARN, "%s: " LOG_PASSED, v->name, (unsigned long long)v->opened.passed_seq);
	if (v->opened.hold_lost)
		msg(MSG_WARN, "%s: " LOG_HOLD_LOST, v->name);
	if (v->opened.torn_seq)
		msg(MSG_NOTICE, "%s: " LOG_TORN, v->name, (unsigned long long)v->opened.torn_seq);
	if (v->opened.unreadable_blks)
		msg(MSG_WARN,
		    "%s: blocks of the log that cannot be read: %llu; a commit that was in one of them is not there",
		    v->name, (unsigned long long)v->opened.unreadable_blks);
	if (v->opened.back_seq)
		msg(MSG_WARN, "%s: back at generation %llu (cowctl undo); later commits are lost",
		    v->name, (unsigned long long)v->opened.back_generation);
	if (v->opened.loader_wrote)
		msg(MSG_NOTICE,
		    "%s: the boot loader has changed its environment block since the last commit; "
		    "the change is kept",
		    v->name);
	if (v->fs.kind != FS_UNKNOWN && !fsinfo_any_moment(&v->fs))
		msg(MSG_NOTICE,
		    "%s: the %s is committed only while it is not mounted, or read-only%s", v->name,
		    v->fs.type,
		    fs_ops(v->fs.kind)->settle ? " (tune2fs -j gives it a journal)" : "");
}

static int explain_gone(struct volume *v, int r, char *why, size_t n)
{
	const struct card *lost = card_which_lost(v->base, v->log_card, r);

	if (lost)
		return msg_why(why, n, -ENOMEDIUM, CARD_LOST,
			       lost == v->base ? v->device : v->log_device,
			       "What was committed is there");
	return r;
}

int volume_open(struct volume **ret, const struct volume_params *p, char *why, size_t why_bytes)
{
	struct volume *v = calloc(1, sizeof(*v));
	int r;

	if (!v)
		return msg_why(why, why_bytes, -ENOMEM, "no memory");
	take_params(v, p);
	v->taken_over_ns = p->kept ? now_ns() : 0;
	r = p->kept ? volume_take_over(v, p, why, why_bytes) : open_all(v, p, why, why_bytes);
	if (r == 0)
		log_set_mark(v->log, &v->kept->mark);
	if (r < 0) {
		if (!p->kept)
			r = explain_gone(v, r, why, why_bytes);
		volume_close(v);
		return r;
	}
	volume_publish_log(v);
	tell_opened(v);
	*ret = v;
	return 0;
}

void volume_close(struct volume *v)
{
	if (!v)
		return;
	monitor_free(v->monitor);
	log_close(v->log);
	snapshots_free(v->snapshots);
	diverged_free(v->diverged);
	scratch_unref(v->scratch);
	generation_free(v->loose);
	if (v->view)
		view_free(v->view);
	if (v->kept)
		munmap(v->kept, sizeof(*v->kept));
	ram_store_close(v->store);
	if (v->log_card != v->base)
		card_close(v->log_card);
	card_close(v->base);
	extents_clear(&v->renewed);
	free(v->wear);
	pthread_mutex_destroy(&v->lock);
	pthread_mutex_destroy(&v->scratch_lock);
	pthread_cond_destroy(&v->work);
	pthread_cond_destroy(&v->done);
	free(v);
}

struct view *volume_view(struct volume *v)
{
	return v->view;
}

struct throttle *volume_throttle(struct volume *v)
{
	return monitor_throttle(v->monitor);
}
