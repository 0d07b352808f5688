/* SPDX-License-Identifier: MIT */
/*
 * `checkpoint = idle`: a checkpoint while the card has nothing else to do.
 *
 * It begins once nothing was committed for a while and programs have read nothing for some seconds.
 * It stops between two units of the card when a program reads or a job is queued, and continues
 * later. A unit is never left half way: that would cost a second merge. What is home is not written
 * again, so reads in the wrong moment cannot make it write more.
 *
 * The while is longer than the usual shortest interval of commits. Commits in a row change the same
 * blocks again and again, and the log is there to save their home writes.
 *
 * A trim that is due (trim.c) comes after it, by the same rules.
 *
 * The end of the last mount without umount.cowfs (umount -i, a bind mount, utab was lost) is noticed, too, if mount.cowfs
 * has mounted it: then everything is committed and written home, as umount.cowfs would have done.
 *
 * The same job looks at the card after the system has slept: it may be another one now, or another
 * system may have written to it. The next commit would find that as well, but it may be far away.
 */
#include <time.h>

#include "base/invariant.h"
#include "base/msg.h"
#include "fs/find_mount.h"
#include "volume/private.h"

#define READS_NS 5000000000ull
#define SLEPT_NS 1000000000ull
#define UNMOUNTED_NS 3000000000ull /* umount.cowfs comes first */

static uint64_t read_calls(const struct volume *v)
{
	struct view_counters c;

	view_counters(v->view, &c);
	return c.read_calls;
}

bool volume_has_views(struct volume *v)
{
	struct scratch *s = volume_scratch(v);

	scratch_unref(s);
	return s || snapshots_any(v->snapshots);
}

/* A session that has committed nothing writes nothing. Views would have to copy to RAM what is
 * overwritten. Inhibiting is for commits by timer, and for this. */
static bool may_begin(struct volume *v)
{
	return !v->halted && v->committed_ns && v->life == VOLUME_RUNNING && !v->idle_failed &&
	       !v->failed_below && !monitor_inhibit_left_ns(v->monitor) && !invariant_broken() &&
	       !volume_has_views(v);
}

static void look_at_mounts(struct volume *v, uint64_t now)
{
	if (!v->kept->when_unmounted || v->life != VOLUME_RUNNING || !view_changed_blks(v->view) ||
	    find_mount(v->proc_dirfd, v->loop_rdev, NULL, 0, NULL) != 0) {
		v->unmounted_ns = 0;
		return;
	}
	if (!v->unmounted_ns)
		v->unmounted_ns = now;
	if (now < v->unmounted_ns + UNMOUNTED_NS || !volume_ask_commit(v, CAUSE_TIMER))
		return;
	v->kept->when_unmounted = false;
	msg(MSG_WARN,
	    "%s: unmounted without umount.cowfs: %s; it stays attached until cowctl detach",
	    v->name,
	    v->discard_armed ? "its changes stay in RAM" : "its changes are being committed");
}

void idle_look(struct volume *v, uint64_t now)
{
	uint64_t calls = read_calls(v), committed_ns = v->committed_ns, live_blks;
	bool guarded, holds;

	look_at_mounts(v, now);
	if (calls != v->reads.calls || !v->reads.since_ns) {
		v->reads.calls = calls;
		v->reads.since_ns = now;
	}
	if (!may_begin(v) || now < committed_ns + v->quiet_ns ||
	    now < v->reads.since_ns + min_u64(READS_NS, v->quiet_ns))
		return;
	pthread_mutex_lock(&v->lock);
	live_blks = v->of_log.live_blks;
	guarded = v->of_log.guarded;
	holds = v->of_log.holds;
	pthread_mutex_unlock(&v->lock);
	if (holds)
		return;
	if (v->idle_checkpoint && (live_blks || guarded))
		volume_ask_checkpoint(v);
	else if (trim_is_due(v))
		volume_ask_trim(v);
}

/* For how long the system has slept since it was booted; never 0. */
static uint64_t slept_ns(void)
{
	uint64_t awake_ns = now_ns();
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return ((uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec - awake_ns) | 1;
}

void idle_look_after_sleep(struct volume *v)
{
	uint64_t slept = slept_ns();

	/* the clocks are read one after another, so a preempted thread sees a short sleep */
	if (v->slept_ns && slept > v->slept_ns + SLEPT_NS)
		v->slept = true;
	if (!v->slept_ns || v->slept)
		v->slept_ns = slept;
	if (v->slept)
		volume_ask_checkpoint(v);
}

bool idle_may_begin(struct volume *v)
{
	v->idle_reads = read_calls(v);
	/* something failed already: the next commit shows whether it still does */
	v->idle_failed |= log_doubt(v->log) || log_spilled(v->log);
	return may_begin(v);
}

bool idle_must_stop(void *ctx)
{
	struct volume *v = ctx;

	return volume_job_waits(v) || v->life != VOLUME_RUNNING ||
	       monitor_inhibit_left_ns(v->monitor) || read_calls(v) != v->idle_reads;
}
