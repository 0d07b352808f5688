/* SPDX-License-Identifier: MIT */
/*
 * The monitor thread: watches RAM and ring, asks for commits, and sets the throttle. Private
 * to volume/. It wakes up when a write uses up the throttle's budget, when the commit thread wakes
 * it, and once a second, or ten times under pressure.
 */
#ifndef COWFS_VOLUME_MONITOR_H
#define COWFS_VOLUME_MONITOR_H

#include "commit/commit.h"
#include "export/bdi.h"
#include "export/throttle.h"
#include "volume/commit_time.h"
#include "volume/pressure.h"

struct volume;
struct volume_pressure;
struct monitor;

/*
 * Stage of the commit thread: the state of its job. Only monitor_stage changes it. Replies may be
 * withheld from the seal on, and before by monitor_set_stops.
 *
 * 	IDLE		-> QUIESCE
 * 	QUIESCE		-> SEALED
 * 			-> IDLE		not sealed, or a dry run
 * 			-> QUIESCE	there was nothing to do
 * 	SEALED		-> DURABLE	committed, and a checkpoint follows
 * 			-> RELEASED	committed, without a checkpoint
 * 			-> QUIESCE	failed, the sealed data stays; next attempt with a sync
 * 			-> IDLE		failed, the sealed data stays
 * 	DURABLE		-> RELEASED
 * 	RELEASED	-> QUIESCE	more was dirty than one commit takes, or it had no sync
 * 			-> IDLE
 */
enum commit_stage {
	STAGE_IDLE,
	STAGE_QUIESCE,
	STAGE_SEALED,
	STAGE_DURABLE, /* a checkpoint reads from the sealed generation */
	STAGE_RELEASED
};

struct monitor_params {
	struct pressure_plan plan;
	bool fail;		    /* pressure=fail: no commit, writes fail at the limit */
	bool halted;		    /* no commit, and all writes fail */
	bool bound_dirty;	    /* the plan relies on it */
	bool stops;		    /* see monitor_set_stops */
	uint64_t log_blks;	    /* capacity of the log */
	uint64_t room_blks;	    /* see monitor_set_room; 0: the plan has no such budget */
	uint64_t retry_ns;	    /* 0: PRESSURE_RETRY_NS */
	uint64_t max_commit_ns;	    /* 0: no limit */
	struct commit_times *times; /* what commits took; outlives the monitor, and this process */
};

int monitor_new(struct monitor **ret, struct volume *v, const struct monitor_params *p) MUST_CHECK;
/* Bounds the dirty pages of the loop device and starts the thread. */
int monitor_start(struct monitor *m, dev_t loop_rdev) MUST_CHECK;
void monitor_stop(struct monitor *m); /* joins; the throttle stays open */
void monitor_free(struct monitor *m); /* NULL allowed; stopped */
struct throttle *monitor_throttle(struct monitor *m);
/* Blocks below a snapshot of now take RAM twice once they are written again, until the next commit. Is
 * there one under pressure, or is there room for that? */
bool monitor_bears_now(struct monitor *m);
void monitor_status(struct monitor *m, struct volume_pressure *ret);
void monitor_wake(struct monitor *m); /* something has changed: look at once */

void monitor_inhibit(struct monitor *m, uint64_t ns); /* 0: no longer */
uint64_t monitor_inhibit_left_ns(const struct monitor *m);

/* ---- commit thread */
/* Sets the throttle before it returns. */
void monitor_stage(struct monitor *m, enum commit_stage stage);
/* Under pressure no look at whether a commit is needless delays its seal. */
bool monitor_hurries(const struct monitor *m);
/* A sealed commit failed. Waits, and returns whether to try again: while there is pressure, until
 * the time is over. */
bool monitor_retry(struct monitor *m, int error);
void monitor_result(struct monitor *m, int error); /* of the commit as a whole */
/* The room of the next commit, in the log and in free blocks (pressure_plan_room). The monitor uses
 * less if less is free now. */
void monitor_set_room(struct monitor *m, uint64_t room_blks);
bool monitor_gave_up(const struct monitor *m);
/* Time that a commit of all that is dirty would take. Any thread. */
uint64_t monitor_commit_ns(struct monitor *m);
/* The same of one that would write this much. *ret_by: TIME_BY_GUESS before the first commit. */
uint64_t monitor_write_ns(struct monitor *m, uint64_t bytes, enum time_by *ret_by);
/* Before the first commit of a session: what the wear table says of earlier ones. */
void monitor_remember(struct monitor *m, const struct wear_table *t);
/* Blocks that a commit may hold because of max_commit_time; UINT64_MAX: it is not set. */
uint64_t monitor_time_blks(struct monitor *m);
/* Is max_commit_time set, and does the log hold what may be dirty? Then a checkpoint that nobody asked for
 * makes way for a commit. */
bool monitor_may_stop_checkpoint(struct monitor *m, uint64_t room_blks);
/* The next commit may seal without a sync if necessary. So all replies may be withheld before the
 * seal, at stop_blks. */
void monitor_set_stops(struct monitor *m, bool stops);
/* Are all replies withheld, at stop_blks or because RAM is nearly full? Then a sync cannot succeed,
 * because its writes are withheld, too. Any thread. */
bool monitor_stopped(struct monitor *m);
/* Does the budget contain free blocks, which a seal without a sync does not know? Any thread. */
bool monitor_counts_on_free(struct monitor *m);

#endif
