/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - The permitted actions depend on the stage of the commit thread. Before the seal, the sync
 *   flushes dirty pages through the throttle. Writes are then never withheld, only slowed,
 *   to a rate at which the sync is done soon. The reserve of the store takes them. There is one
 *   exception: where a seal needs no sync (monitor_set_stops), writes that no log could hold are
 *   withheld. The seal then comes first, and its record releases them. From the seal on, replies
 *   are held so that the room lasts until the commit is done. Dirty throttling of the kernel then
 *   slows the writers.
 * - `lock` makes "look at the stage, set the throttle" one step. monitor_stage waits for it for
 *   moments.
 * - A commit that fails after its seal keeps the sealed generation and is tried again with it.
 *   There is no second sync, so writers can stay parked meanwhile.
 * - A commit that fails before its seal is requested again after a while. Until then writes
 *   continue, at last into the reserve. Then they fail.
 */
#include "volume/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/invariant.h"
#include "base/msg.h"
#include "base/parse.h"
#include "base/thread.h"
#include "fs/fs_ops.h"
#include "fs/shrink_mark.h"
#include "fs/free_space.h"
#include "volume/private.h"

#define SECOND_NS 1000000000ull
#define IDLE_MS 1000
#define BUSY_MS 100 /* while replies are held or a commit is under way */
#define BOUND_EVERY_NS (5 * SECOND_NS)
#define SAY_EVERY_NS (60 * SECOND_NS)
#define AGAIN_NS (5 * SECOND_NS) /* after a failed attempt */
#define AGAIN_FULL_NS (2 * SECOND_NS)
#define AGAIN_CANNOT_NS (60 * SECOND_NS) /* vfat has no journal: it must be unmounted first */
#define AGAIN_GIVEN_UP_NS (10 * SECOND_NS)
#define MEMORY_LOW_LOOK_NS (SECOND_NS / 20)
#define MEMORY_AGAIN_NS (10 * SECOND_NS) /* between commits that free memory for other programs */
#define MEMORY_WORTH_BYTES (4 * MIB)
#define MEMORY_OURS_BYTES (16 * MIB) /* commit at once if this much of the memory is ours to free */
#define NEWS_BLKS 256u		     /* a commit is due again before NEWS_NS */
#define NEWS_NS SECOND_NS
#define RETRY_PAUSE_NS SECOND_NS
#define NAP_US 50000
#define FREE_AGAIN_NS (SECOND_NS / 10)
#define FREE_LITTLE_AGAIN_NS (SECOND_NS / 100)
#define FREE_LOOK_BYTES (64 * KIB)
#define TIME_PERCENT 75u
#define TIME_LOG_SHARE 4u
#define TIME_LEAST_BLKS 512u
#define SYNC_MAX_NS SECOND_NS /* a longer one waited for a program, not for the card */
#define FREE_LITTLE 5	      /* times the log; the room includes the log itself */
#define SHUT_BYTES (2 * MIB)  /* this close to the hard size, no held reply leaves */
#define AWAY_LASTS_NS                                                                              \
	(60 * SECOND_NS) /* the card is away: RAM lasts for so long, and then writers wait */
#define SHUT_MAX_NS (10 * SECOND_NS)
#define STACK_BYTES (256 * KIB)

struct monitor {
	struct volume *v;
	struct monitor_params p;
	struct throttle *throttle;
	struct bdi_limit bdi;
	struct free_space *free_space; /* NULL: not started */
	int event_fd, meminfo_fd;
	pthread_t thread;
	bool started;
	atomic_bool stop;

	_Atomic uint64_t inhibit_until_ns;
	_Atomic int level;
	_Atomic uint64_t rate, commits, memory_bytes;
	_Atomic bool gave_up, memory_low;
	_Atomic bool too_large; /* the last commit was: more than it can hold is dirty */

	/* lock: everything below. Held for moments. */
	pthread_mutex_t lock;
	enum commit_stage stage;
	/* time and number of blocks of the seal */
	uint64_t sealed_ns, sealed_blks;
	uint64_t first_write_ns, write_calls, written_bytes; /* of the card, at the seal */
	uint64_t usual_bytes_per_s;
	uint64_t quiesce_ns, quiesce_blks; /* when the sync began */
	uint64_t released_ns;
	uint64_t late_bytes; /* became dirty until the seal */
	bool timed;	     /* this commit is in times */
	bool refuses;	     /* writes fail, but those that a sync flushes */
	bool room_limits; /* the plan's second budget would be smaller than RAM without max_commit_ns, too */
	uint64_t not_before_ns;	 /* earliest time of the next request for a commit */
	uint64_t admitted_bytes; /* total of the throttle at the last look */
	bool stops;
	/* the plan without any free blocks, while the query for them runs */
	struct pressure_plan asking;
	uint64_t free_admitted_bytes; /* admitted_bytes at that query */
	uint8_t super[COW_BLK_BYTES];
	uint64_t failing_since_ns;
	uint64_t
		act_until_ns; /* the log is full beside a held generation: until then writes do not fail */

	/* monitor thread only */
	uint64_t memory_looked_ns, memory_commit_ns, bounded_ns, bound_bytes,
		said_ns[LEVEL_FULL + 1];
};

/* ---- sampling; lock held where it looks at use ---- */

static void look_at_memory(struct monitor *m, uint64_t now)
{
	uint64_t available;
	char text[1024];
	ssize_t n;
	bool low;

	if (now < m->memory_looked_ns + (m->memory_low ? MEMORY_LOW_LOOK_NS : SECOND_NS))
		return;
	m->memory_looked_ns = now;
	n = m->meminfo_fd < 0 ? -1 : pread(m->meminfo_fd, text, sizeof(text) - 1, 0);
	text[n < 0 ? 0 : n] = '\0';
	low = pressure_memory_low(text, &available);
	m->memory_bytes = available;
	m->memory_low = low;
}

/* Lock held. */
static bool is_durable(const struct monitor *m)
{
	return m->stage >= STAGE_DURABLE;
}

static bool commits_nothing(const struct monitor *m)
{
	return m->v->discard_armed || m->v->opened.state == LOG_FOREIGN || m->v->kept->replaced_by;
}

/* RAM of snapshots and of the scratch image. */
static uint64_t views_bytes(struct volume *v)
{
	struct scratch *s = volume_scratch(v);
	uint64_t bytes = snapshots_held_bytes(v->snapshots) + (s ? scratch_held_bytes(s) : 0);

	scratch_unref(s);
	return bytes;
}

/* What a commit leaves in RAM until a sync has ended (replayed.c), and the next one would leave there, too, is
 * mostly the journal. The reserve has room for that. */
static uint64_t stays_most_bytes(const struct monitor *m)
{
	return m->p.plan.journal_bytes + m->p.plan.slack_bytes / 2;
}

static bool keeps_journal(const struct monitor *m)
{
	return m->p.plan.journal_bytes && fs_ops(m->v->fs.kind)->settle;
}

static void look_at_use(struct monitor *m, struct pressure_use *ret)
{
	struct generation_stats active, below;
	uint64_t used_bytes, kept_blks = view_kept_blks(m->v->view), stays_bytes = 0;

	/* read before the dirty data that it caused is counted */
	m->admitted_bytes = throttle_admitted(m->throttle);
	used_bytes = ram_store_used_bytes(m->v->store);
	view_dirty(m->v->view, &active, &below);
	if (keeps_journal(m)) {
		stays_bytes = min_u64(blk_to_bytes(kept_blks), stays_most_bytes(m));
		kept_blks = m->v->kept->loose ? 0 : kept_blks - stays_bytes / COW_BLK_BYTES;
	}
	*ret = (struct pressure_use){
		.used_bytes = used_bytes,
		.held_bytes = min_u64(views_bytes(m->v) + stays_bytes, used_bytes),
		/* blocks under commit count, because the next commit must hold them if this one
		 * fails; blocks that are never committed do not count */
		.dirty_blks = commits_nothing(m)
				      ? 0
				      : active.data_blks + (is_durable(m) ? 0 : below.data_blks) +
						kept_blks,
		.memory_low = m->memory_low && used_bytes >= MEMORY_WORTH_BYTES,
		.memory_bytes = m->memory_bytes,
	};
}

/* ---- free blocks; lock held ---- */

/* What can be committed in time, with a commit that is under way already. The margin is for the sync and for a card that is slower than it
 * has shown. With a quarter of the log at most, no commit needs a checkpoint first. On a card that
 * takes nearly nothing in that time, there is still room for a sync. */
static uint64_t time_blks(const struct monitor *m)
{
	uint64_t ns = m->p.max_commit_ns / 100 * TIME_PERCENT,
		 running_ns = commit_time_fixed_ns(m->p.times);
	uint64_t blks = commit_time_bytes(m->p.times, ns - min_u64(ns, running_ns)) / COW_BLK_BYTES;

	return max_u64(min_u64(blks, m->p.log_blks / TIME_LOG_SHARE), TIME_LEAST_BLKS);
}

/* Divides the room of the next commit, and its time, into levels. room_blks: of the log and free blocks;
 * 0: a commit has the log alone. */
static bool plan_commit(const struct monitor *m, struct pressure_plan *p, uint64_t room_blks)
{
	bool room_limits;

	if (room_blks)
		pressure_plan_room(p, m->p.log_blks, room_blks);
	else
		pressure_plan_ring(p, m->p.log_blks);
	room_limits = p->ring_blks.full;
	if (m->p.max_commit_ns)
		pressure_plan_time(p, time_blks(m),
				   commit_time_late_bytes(m->p.times) / COW_BLK_BYTES);
	return room_limits;
}

/* Are free blocks a part of the budget, and is the budget smaller than RAM? */
static bool is_room_limit(const struct monitor *m)
{
	return m->free_space && !m->p.fail && m->p.room_blks && m->room_limits;
}

/* So few that a program can preallocate all of them in a moment. */
static bool is_little_free(const struct monitor *m)
{
	return is_room_limit(m) && m->p.room_blks < FREE_LITTLE * m->p.log_blks;
}

/* Time at which the free blocks should be queried again. */
static uint64_t free_stale_ns(const struct monitor *m)
{
	return free_space_asked_ns(m->free_space) +
	       (is_little_free(m) ? FREE_LITTLE_AGAIN_NS : FREE_AGAIN_NS);
}

static const struct pressure_plan *plan_now(const struct monitor *m)
{
	return is_room_limit(m) && free_space_asking(m->free_space) ? &m->asking : &m->p.plan;
}

/* A different kind of file system was created since the last commit, so the number of its free
 * blocks is unknown. RAM has its superblock. */
static bool is_made_anew(struct monitor *m)
{
	return view_peek_live(m->v->view, 0, 1, m->super) == 0 && !shrink_mark_is_ext(m->super);
}

/*
 * A commit spills to blocks that are free in both images. So blocks that were allocated since the
 * last commit and not written count, too. Free blocks may be taken at any time, so their number is
 * queried again after writes.
 */
static void look_at_free(struct monitor *m, const struct pressure_use *u, uint64_t now)
{
	uint64_t free_blks;

	if (!m->p.room_blks || !m->free_space || m->p.fail) {
		if (m->p.max_commit_ns)
			plan_commit(m, &m->p.plan, m->p.room_blks);
		return;
	}
	free_blks = is_made_anew(m) ? 0
				    : volume_free_blks(&m->v->fs, free_space_bytes(m->free_space));
	m->room_limits = plan_commit(m, &m->p.plan,
				     min_u64(m->p.room_blks, m->p.log_blks + free_blks));
	m->asking = m->p.plan;
	plan_commit(m, &m->asking, min_u64(m->p.room_blks, m->p.log_blks));
	if (!is_room_limit(m) || !u->dirty_blks || free_space_asking(m->free_space) ||
	    m->admitted_bytes == m->free_admitted_bytes || now < free_stale_ns(m))
		return;
	m->free_admitted_bytes = m->admitted_bytes;
	free_space_ask(m->free_space);
}

/* The plan that bounds the dirty pages above. A sync must flush them, however few blocks are free
 * by then. */
static const struct pressure_plan *plan_of_dirty(const struct monitor *m)
{
	return is_little_free(m) ? &m->asking : &m->p.plan;
}

/* ---- the throttle; lock held ---- */

static void card_account(const struct volume *v, uint64_t *ret_calls, uint64_t *ret_bytes)
{
	*ret_calls = v->base->account.write_calls;
	*ret_bytes = v->base->account.written_bytes;
	if (v->log_card != v->base) {
		*ret_calls += v->log_card->account.write_calls;
		*ret_bytes += v->log_card->account.written_bytes;
	}
}

static uint64_t rate_now(struct monitor *m, const struct pressure_use *u, uint64_t now)
{
	struct volume_progress progress;
	struct pressure_commit c = {
		.sealed_blks = m->sealed_blks,
		.since_seal_ns = now - m->sealed_ns,
		.usual_bytes_per_s = m->usual_bytes_per_s,
		.durable = m->stage >= STAGE_DURABLE,
	};
	uint64_t calls, bytes, left_ns;

	volume_get_progress(m->v, &progress);
	c.phase = progress.phase;
	c.done_blks = progress.done_blks;
	c.total_blks = progress.total_blks;
	card_account(m->v, &calls, &bytes);
	if (calls == m->write_calls)
		m->first_write_ns = now;
	c.writing_ns = now - m->first_write_ns;
	c.written_bytes = bytes - m->written_bytes;
	left_ns = pressure_left_ns(&c);
	if (m->failing_since_ns) /* unknown; use at least the time left until writes fail */
		left_ns = max_u64(left_ns, m->p.retry_ns);
	return pressure_rate(pressure_room_bytes(&m->p.plan, u), left_ns);
}

static bool never_commits(const struct monitor *m)
{
	return m->p.fail || m->p.halted || invariant_broken() || commits_nothing(m);
}

/* Who holds a generation has time to end that, while writers share what is left of RAM. */
static bool may_act(const struct monitor *m, uint64_t now)
{
	return m->gave_up && now < m->act_until_ns;
}

static bool is_sealed(const struct monitor *m)
{
	return m->stage >= STAGE_SEALED || m->v->kept->resumes;
}

/* Total of admitted bytes from which on the log, or RAM, could no longer hold the dirty blocks, however late the next look is. */
static uint64_t stop_at(const struct monitor *m, const struct pressure_use *u)
{
	bool sealed = is_sealed(m);
	uint64_t stop_blks = m->p.plan.stop_blks, bytes = UINT64_MAX,
		 full_bytes = pressure_hard_bytes(&m->p.plan) -
			      (sealed ? SHUT_BYTES : m->p.plan.slack_bytes);

	if (m->gave_up || never_commits(m))
		return UINT64_MAX;
	/* a commit after a seal without a sync may have no free blocks to use */
	if (m->stops && stop_blks && !m->p.plan.counts_on_free &&
	    (!m->p.room_blks || u->dirty_blks < m->p.plan.ring_blks.ruin))
		bytes = blk_to_bytes(u->dirty_blks < stop_blks ? stop_blks - u->dirty_blks : 0);
	/* before the seal, the slack is for what is in flight then */
	if ((sealed || !m->v->kept->needs_sync) && !away_any(m->v))
		bytes = min_u64(bytes, full_bytes - min_u64(full_bytes, u->used_bytes));
	return bytes == UINT64_MAX ? bytes : m->admitted_bytes + bytes;
}

/* Total of admitted bytes at which all replies are held until the next look. However late that is, no more is dirty by then
 * than the log holds without any free block, or than the plan allows before a look. */
static uint64_t look_at_latest(const struct monitor *m, const struct pressure_use *u,
			       uint64_t look_bytes)
{
	uint64_t blks = m->asking.ring_blks.full;

	if (!is_room_limit(m) || m->gave_up || never_commits(m))
		return UINT64_MAX;
	blks -= min_u64(blks, u->dirty_blks);
	return m->admitted_bytes +
	       max_u64(blk_to_bytes(blks), max_u64(look_bytes, FREE_LOOK_BYTES));
}

/* Replies leave now and then whatever the rate, so that reads find tags. But not if what they let in would take
 * the room of others: of the store, or of a commit that is in time so far. */
static bool is_shut(const struct monitor *m, const struct pressure_use *u, uint64_t now)
{
	return u->used_bytes + SHUT_BYTES >= pressure_hard_bytes(&m->p.plan) ||
	       (away_waits(m->v) && !pressure_room_bytes(&m->p.plan, u)) ||
	       (m->p.max_commit_ns && m->stage >= STAGE_SEALED && !m->failing_since_ns &&
		now < m->sealed_ns + min_u64(m->p.max_commit_ns, SHUT_MAX_NS) &&
		pressure_near_ruin(&m->p.plan, u));
}

static void set_throttle(struct monitor *m, const struct pressure_use *u, uint64_t now)
{
	enum pressure_level level = pressure_level(plan_now(m), u);
	bool full = pressure_level(&m->p.plan, u) == LEVEL_FULL, sealed = is_sealed(m);
	bool ram_full = pressure_level(&m->p.plan,
				       &(struct pressure_use){ .used_bytes = u->used_bytes,
							       .held_bytes = u->held_bytes }) ==
			LEVEL_FULL;
	bool acts = may_act(m, now),
	     gave_up = (m->gave_up && !acts) || (away_any(m->v) && !away_waits(m->v));
	uint64_t rate = THROTTLE_OPEN, look_bytes;

	m->refuses = m->p.halted || (full && never_commits(m)) || (ram_full && gave_up);
	if (level >= LEVEL_COMMIT && !gave_up && (sealed || !never_commits(m)))
		rate = away_waits(m->v)
			       ? pressure_rate(pressure_room_bytes(&m->p.plan, u), AWAY_LASTS_NS)
		       : acts ? pressure_rate(u->used_bytes < m->p.plan.ram_bytes.full
						      ? m->p.plan.ram_bytes.full - u->used_bytes
						      : 0,
					      m->act_until_ns - now)
		       : sealed ? rate_now(m, u, now)
				: pressure_rate_unsealed(plan_now(m), u);

	/* the writes that a commit flushes may use the reserve, because the commit may be the way
	 * out */
	throttle_refuse(m->throttle,
			m->refuses && (m->p.halted || m->stage != STAGE_QUIESCE) ? -EIO : 0);
	look_bytes = pressure_look_bytes(plan_now(m), u);
	throttle_set_stop(m->throttle, min_u64(stop_at(m, u), look_at_latest(m, u, look_bytes)));
	if (is_little_free(m) || (is_room_limit(m) && now >= free_stale_ns(m)))
		look_bytes = FREE_LOOK_BYTES; /* the free blocks may be taken meanwhile */
	throttle_set_budget(m->throttle, look_bytes);
	throttle_set_rate(m->throttle, rate, is_shut(m, u, now));
	m->rate = rate;
}

/* ---- actions; monitor thread ---- */

static void say_level(struct monitor *m, enum pressure_level level, const struct pressure_use *u,
		      uint64_t now)
{
	enum pressure_level before = (enum pressure_level)m->level;

	m->level = (int)level;
	if (level <= before || (m->said_ns[level] && now < m->said_ns[level] + SAY_EVERY_NS))
		return;
	m->said_ns[level] = now;
	msg(level == LEVEL_FULL ? MSG_WARN : MSG_NOTICE, "%s: RAM pressure: %s: %s of %s used%s",
	    m->v->name, pressure_level_name(level), FORMAT_SIZE(u->used_bytes),
	    FORMAT_SIZE(m->p.plan.limit_bytes),
	    u->memory_low ? ", the machine is short of memory" : "");
}

/* Where a commit leaves blocks in RAM, the next one at once would leave the same. */
static bool has_news(const struct monitor *m, uint64_t now)
{
	struct generation_stats active, below;

	view_dirty(m->v->view, &active, &below);
	if (!m->v->kept->loose)
		return active.data_blks || active.hole_blks || below.data_blks || below.hole_blks;
	return below.data_blks || active.data_blks >= NEWS_BLKS ||
	       ((active.data_blks || active.hole_blks) && now >= m->released_ns + NEWS_NS);
}

/* Lock held. */
static bool commit_is_due(struct monitor *m, enum pressure_level level,
			  const struct pressure_use *u, uint64_t now)
{
	if (level < LEVEL_COMMIT || m->stage != STAGE_IDLE || never_commits(m) ||
	    now < m->not_before_ns || away_any(m->v))
		return false;
	if (keeps_journal(m) && !has_news(m, now))
		return false;
	/* repeated commits cannot free memory that other programs took */
	if (u->memory_low &&
	    pressure_level(&m->p.plan, &(struct pressure_use){ .used_bytes = u->used_bytes,
							       .held_bytes = u->held_bytes,
							       .dirty_blks = u->dirty_blks }) <
		    LEVEL_COMMIT) {
		if (m->memory_commit_ns && now < m->memory_commit_ns + MEMORY_AGAIN_NS &&
		    u->used_bytes < MEMORY_OURS_BYTES)
			return false;
		m->memory_commit_ns = now;
	}
	return true;
}

static void ask_commit(struct monitor *m)
{
	if (!volume_ask_commit(m->v, CAUSE_PRESSURE))
		return;
	m->commits++;
	if (monitor_inhibit_left_ns(m))
		msg(MSG_WARN, "%s: RAM pressure: committing although timer commits are inhibited",
		    m->v->name);
}

static void bound_dirty(struct monitor *m, uint64_t bytes, uint64_t now)
{
	/* a lower bound takes effect at once, because the room that it relies on shrinks */
	if (!m->p.bound_dirty || (now < m->bounded_ns + BOUND_EVERY_NS &&
				  bytes <= m->bound_bytes * 2 && bytes >= m->bound_bytes / 4 * 3))
		return;
	m->bound_bytes = bytes;
	if (bdi_limit_set(&m->bdi, bytes) < 0 && !m->bounded_ns)
		msg(MSG_WARN, "%s: cannot limit the dirty pages of the loop device", m->v->name);
	m->bounded_ns = now;
}

static bool ram_is_full(const struct monitor *m)
{
	return ram_store_used_bytes(m->v->store) >= m->p.plan.ram_bytes.full;
}

/*
 * Views go before the volume feels them. One that is being read returns its RAM a moment later. But what no commit
 * can hold is saved from a view, and RAM would be full again soon.
 */
static void end_views(struct monitor *m)
{
	struct scratch *s = volume_scratch(m->v);

	if (s && (m->memory_low || ram_is_full(m)))
		scratch_end(s);
	scratch_unref(s);
	for (unsigned i = 0; i < VOLUME_VIEWS && snapshots_any(m->v->snapshots); i++) {
		uint64_t held_bytes = snapshots_held_bytes(m->v->snapshots);

		if (m->memory_low && held_bytes >= MEMORY_WORTH_BYTES)
			snapshots_end_largest(m->v->snapshots, "the machine is short of memory");
		else if (ram_is_full(m) && !m->too_large)
			snapshots_end_largest(m->v->snapshots,
					      "the volume needs the RAM that it held (ram=)");
		else
			break;
	}
}

/* For a process that takes over. */
static void keep_lost(struct monitor *m)
{
	struct throttle_stats t;

	throttle_stats(m->throttle, &t);
	m->v->kept->lost = t.refused + t.full_errors - m->v->lost_known;
}

static void look(struct monitor *m)
{
	uint64_t now = now_ns(), dirty_bytes;
	enum pressure_level level;
	struct pressure_use u;
	bool due;

	look_at_memory(m, now);
	end_views(m);
	pthread_mutex_lock(&m->lock);
	look_at_use(m, &u);
	look_at_free(m, &u, now);
	level = pressure_level(&m->p.plan, &u);
	set_throttle(m, &u, now);
	due = commit_is_due(m, level, &u, now);
	/* a file system that gave up keeps its dirty pages, and the kernel lets no writer go above a bound */
	dirty_bytes = m->refuses ? BDI_NO_LIMIT
				 : pressure_dirty_now_bytes(plan_of_dirty(m), &u,
							    m->rate != THROTTLE_OPEN, m->rate);
	pthread_mutex_unlock(&m->lock);
	say_level(m, level, &u, now);
	if (due)
		ask_commit(m);
	bound_dirty(m, dirty_bytes, now);
	keep_lost(m);
	away_look(m->v);
	if (away_any(m->v))
		return;
	idle_look_after_sleep(m->v);
	idle_look(m->v, now);
}

static int nap_ms(struct monitor *m)
{
	bool busy;

	pthread_mutex_lock(&m->lock);
	busy = m->stage != STAGE_IDLE;
	pthread_mutex_unlock(&m->lock);
	if (busy || (m->level >= LEVEL_COMMIT && !never_commits(m)))
		return BUSY_MS;
	return IDLE_MS;
}

static void *monitor_thread(void *arg)
{
	struct monitor *m = arg;
	uint64_t count;

	while (!m->stop) {
		struct pollfd pfd = { .fd = m->event_fd, .events = POLLIN };

		look(m);
		if (poll(&pfd, 1, nap_ms(m)) > 0 && read(m->event_fd, &count, sizeof(count)) < 0)
			continue; /* spurious wake-up: the counter is empty */
	}
	return NULL;
}

void monitor_wake(struct monitor *m)
{
	uint64_t one = 1;

	if (write(m->event_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full, so the thread wakes up anyway */
}

static void on_look(void *ctx)
{
	monitor_wake(ctx);
}

/* ---- the commit thread's side ---- */

/* Lock held. */
static void note_seal(struct monitor *m, uint64_t now)
{
	struct generation_stats active, below;

	view_dirty(m->v->view, &active, &below);
	m->sealed_ns = m->first_write_ns = now;
	m->sealed_blks = below.data_blks;
	m->late_bytes = blk_to_bytes(below.data_blks - min_u64(below.data_blks, m->quiesce_blks));
	m->timed = false;
	m->failing_since_ns = 0;
	card_account(m->v, &m->write_calls, &m->written_bytes);
}

/* What the commit took until its record was on the card. An attempt that failed counts in. Lock held. */
static void note_durable(struct monitor *m, uint64_t now)
{
	uint64_t calls, bytes;

	if (m->timed)
		return;
	m->timed = true;
	card_account(m->v, &calls, &bytes);
	commit_time_note(m->p.times, blk_to_bytes(m->sealed_blks), m->late_bytes,
			 bytes - m->written_bytes,
			 now - m->sealed_ns + min_u64(m->sealed_ns - m->quiesce_ns, SYNC_MAX_NS));
}

static bool may_follow(enum commit_stage from, enum commit_stage to)
{
	static const unsigned may[] = {
		[STAGE_IDLE] = 1 << STAGE_IDLE | 1 << STAGE_QUIESCE,
		[STAGE_QUIESCE] = 1 << STAGE_QUIESCE | 1 << STAGE_SEALED | 1 << STAGE_IDLE,
		[STAGE_SEALED] = 1 << STAGE_DURABLE | 1 << STAGE_RELEASED | 1 << STAGE_QUIESCE |
				 1 << STAGE_IDLE,
		[STAGE_DURABLE] = 1 << STAGE_RELEASED,
		[STAGE_RELEASED] = 1 << STAGE_QUIESCE | 1 << STAGE_IDLE,
	};

	return may[from] >> to & 1;
}

void monitor_stage(struct monitor *m, enum commit_stage stage)
{
	uint64_t now = now_ns();
	struct pressure_use u;

	pthread_mutex_lock(&m->lock);
	if (stage == STAGE_QUIESCE) {
		look_at_use(m, &u);
		m->quiesce_ns = now;
		m->quiesce_blks = u.dirty_blks;
	}
	if (stage == STAGE_SEALED)
		note_seal(m, now);
	if (stage >= STAGE_DURABLE)
		note_durable(m, now);
	if (stage == STAGE_RELEASED && m->sealed_blks)
		m->usual_bytes_per_s = max_u64((uint64_t)((double)blk_to_bytes(m->sealed_blks) /
							  (double)(now - m->sealed_ns + 1) * 1e9),
					       1);
	if (stage == STAGE_RELEASED)
		m->released_ns = now;
	(void)INVARIANT("commit stage", may_follow(m->stage, stage));
	m->stage = stage;
	look_at_use(m, &u);
	set_throttle(m, &u, now);
	pthread_mutex_unlock(&m->lock);
	monitor_wake(m);
}

bool monitor_hurries(const struct monitor *m)
{
	return m->p.bound_dirty && m->level >= LEVEL_COMMIT;
}

/* Errors that the next attempt may not meet again. */
static bool may_pass(int error)
{
	return error == -EIO || error == -ENOMEM || error == -EAGAIN || error == -EBUSY ||
	       error == -ETIMEDOUT || error == -ENODATA || error == -EREMOTEIO ||
	       error == -EOWNERDEAD;
}

bool monitor_retry(struct monitor *m, int error)
{
	uint64_t now = now_ns(), end_ns = now + RETRY_PAUSE_NS;

	if (m->level < LEVEL_COMMIT || m->gave_up || !may_pass(error))
		return false;
	pthread_mutex_lock(&m->lock);
	if (!m->failing_since_ns) {
		m->failing_since_ns = now;
		m->write_calls = m->v->base->account.write_calls;
	}
	end_ns = min_u64(end_ns, m->failing_since_ns + m->p.retry_ns);
	pthread_mutex_unlock(&m->lock);
	while (now_ns() < end_ns && m->v->life == VOLUME_RUNNING)
		usleep(NAP_US);
	return m->v->life == VOLUME_RUNNING && now_ns() < m->failing_since_ns + m->p.retry_ns;
}

void monitor_result(struct monitor *m, int error)
{
	uint64_t now = now_ns();

	pthread_mutex_lock(&m->lock);
	m->too_large = error == -EFBIG;
	if (!error)
		m->gave_up = false;
	else if (m->stage == STAGE_SEALED && m->level >= LEVEL_COMMIT && error != -ENOMEDIUM) {
		if (m->too_large && !m->gave_up && log_holds(m->v->log, NULL))
			m->act_until_ns = now + m->p.retry_ns;
		m->gave_up = true; /* all useful attempts were made, with everything sealed */
	}
	m->failing_since_ns = 0;
	m->not_before_ns = !error		    ? 0
			   : error == -EOPNOTSUPP   ? now + AGAIN_CANNOT_NS
			   : m->gave_up		    ? now + AGAIN_GIVEN_UP_NS
			   : m->level >= LEVEL_FULL ? now + AGAIN_FULL_NS
						    : now + AGAIN_NS;
	pthread_mutex_unlock(&m->lock);
	monitor_stage(m, STAGE_IDLE);
}

void monitor_set_room(struct monitor *m, uint64_t room_blks)
{
	LOCKED(&m->lock);
	m->p.room_blks = room_blks;
	m->room_limits = plan_commit(m, &m->p.plan, room_blks);
}

void monitor_set_stops(struct monitor *m, bool stops)
{
	pthread_mutex_lock(&m->lock);
	m->stops = stops;
	pthread_mutex_unlock(&m->lock);
	monitor_wake(m);
}

bool monitor_counts_on_free(struct monitor *m)
{
	LOCKED(&m->lock);
	return m->p.plan.counts_on_free;
}

bool monitor_stopped(struct monitor *m)
{
	struct pressure_use u;

	LOCKED(&m->lock);
	look_at_use(m, &u);
	return stop_at(m, &u) <= m->admitted_bytes;
}

bool monitor_gave_up(const struct monitor *m)
{
	return m->gave_up;
}

/* ---- time of a commit ---- */

/* Lock held. */
static uint64_t commit_ns(struct monitor *m)
{
	struct pressure_use u;

	look_at_use(m, &u);
	return commit_time_ns(m->p.times, blk_to_bytes(u.dirty_blks)) +
	       (m->stage == STAGE_SEALED ? commit_time_fixed_ns(m->p.times) : 0);
}

uint64_t monitor_commit_ns(struct monitor *m)
{
	LOCKED(&m->lock);

	return commit_ns(m);
}

uint64_t monitor_write_ns(struct monitor *m, uint64_t bytes, enum time_by *ret_by)
{
	LOCKED(&m->lock);

	*ret_by = m->p.times->rates + m->p.times->fixed ? TIME_BY_COMMITS : TIME_BY_GUESS;
	return commit_time_ns(m->p.times, bytes);
}

void monitor_remember(struct monitor *m, const struct wear_table *t)
{
	LOCKED(&m->lock);
	commit_time_remember(m->p.times, t);
}

uint64_t monitor_time_blks(struct monitor *m)
{
	LOCKED(&m->lock);

	return m->p.max_commit_ns ? time_blks(m) : UINT64_MAX;
}

bool monitor_may_stop_checkpoint(struct monitor *m, uint64_t room_blks)
{
	LOCKED(&m->lock);

	return m->p.max_commit_ns && room_blks >= m->p.log_blks / TIME_LOG_SHARE;
}

/* ---- inhibited timer commits ---- */

void monitor_inhibit(struct monitor *m, uint64_t ns)
{
	m->inhibit_until_ns = ns ? now_ns() + min_u64(ns, INHIBIT_MAX_S * SECOND_NS) : 0;
}

uint64_t monitor_inhibit_left_ns(const struct monitor *m)
{
	return inhibit_left_ns(m->inhibit_until_ns, now_ns());
}

/* ---- construction, status, end ---- */

int monitor_new(struct monitor **ret, struct volume *v, const struct monitor_params *p)
{
	struct monitor *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	m->v = v;
	m->p = *p;
	m->stops = p->stops;
	m->p.retry_ns = p->retry_ns ? p->retry_ns : PRESSURE_RETRY_NS;
	m->bdi = BDI_LIMIT_CLOSED;
	m->rate = THROTTLE_OPEN;
	m->meminfo_fd = fcntl(v->meminfo_fd, F_DUPFD_CLOEXEC, 0);
	m->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&m->lock, NULL);
	m->room_limits = m->p.plan.ring_blks.full;
	if (m->p.max_commit_ns)
		plan_commit(m, &m->p.plan, m->p.room_blks);
	r = m->event_fd < 0 ? -errno : throttle_new(&m->throttle, on_look, m);
	if (r < 0) {
		monitor_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

int monitor_start(struct monitor *m, dev_t loop_rdev)
{
	int r = m->p.bound_dirty ? bdi_limit_open(&m->bdi, loop_rdev) : 0;

	pthread_mutex_lock(&m->lock); /* the commit thread already runs */
	if (r == 0 && m->p.room_blks)
		r = free_space_new(&m->free_space, m->v->proc_dirfd, loop_rdev, m->event_fd);
	pthread_mutex_unlock(&m->lock);
	if (r < 0)
		return r;
	r = thread_start(&m->thread, "cowfs-monitor", STACK_BYTES, monitor_thread, m);
	m->started = r == 0;
	return r;
}

void monitor_stop(struct monitor *m)
{
	if (!m->started)
		return;
	m->stop = true;
	monitor_wake(m);
	pthread_join(m->thread, NULL);
	m->started = false;
	throttle_set_rate(m->throttle, THROTTLE_OPEN, false);
	throttle_set_stop(m->throttle, UINT64_MAX);
	bdi_limit_close(&m->bdi);
}

void monitor_free(struct monitor *m)
{
	if (!m)
		return;
	throttle_free(m->throttle);
	free_space_free(m->free_space);
	cleanup_closep(&m->event_fd);
	cleanup_closep(&m->meminfo_fd);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

struct throttle *monitor_throttle(struct monitor *m)
{
	return m->throttle;
}

bool monitor_bears_now(struct monitor *m)
{
	struct pressure_use u;

	LOCKED(&m->lock);
	look_at_use(m, &u);
	u.used_bytes += u.used_bytes - u.held_bytes;
	u.dirty_blks *= 2;
	u.memory_low = false;
	return m->too_large || !never_commits(m) || pressure_level(&m->p.plan, &u) < LEVEL_COMMIT;
}

void monitor_status(struct monitor *m, struct volume_pressure *ret)
{
	pthread_mutex_lock(&m->lock);
	*ret = (struct volume_pressure){
		.level = (enum pressure_level)m->level,
		.plan = m->p.plan,
		.fails = m->p.fail,
		.rate_bytes_per_s = m->rate,
		.commits = m->commits,
		.gave_up = m->gave_up,
		.refuses = m->refuses,
		.too_large = m->too_large,
		.inhibit_left_ns = monitor_inhibit_left_ns(m),
		.commit_ns = commit_ns(m),
		.commit_bytes_per_s = commit_time_bytes_per_s(m->p.times),
		.max_commit_ns = m->p.max_commit_ns,
		.too_slow = m->p.max_commit_ns &&
			    commit_time_ns(m->p.times, blk_to_bytes(TIME_LEAST_BLKS)) +
					    commit_time_fixed_ns(m->p.times) >
				    m->p.max_commit_ns,
	};
	pthread_mutex_unlock(&m->lock);
	throttle_stats(m->throttle, &ret->throttle);
}
