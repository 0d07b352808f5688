/* SPDX-License-Identifier: MIT */
/* A commit of several volumes that ended without an answer: does it count? */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/msg.h"
#include "fs/fs_ops.h"
#include "volume/joint.h"
#include "volume/private.h"
#include "volume/scratch.h"

void undecided_end(struct volume *v)
{
	joint_leave(v->leader);
	v->leader = NULL;
}

/* A commit together with others may be on the card, and only the card of the one that leads it knows
 * whether it counts. 1: it does, and is the newest generation now. RAM stays above. */
static int decide(struct volume *v, char *why, size_t n)
{
	struct blk_reader committed;
	struct scratch *s;
	struct fsinfo fs;
	int r;

	if (v->leader && joint_writes(v->leader)) {
		snprintf(why, n, "the volume that decides has not finished its record");
		return -ENOLINK;
	}
	r = log_decide(&v->log, v->leader && joint_decided(v->leader) ? LOG_JOINT_COUNTS : 0, why,
		       n);
	if (r >= 0)
		undecided_end(v);
	if (r <= 0)
		return r;
	committed = volume_committed(v);
	s = volume_scratch(v); /* of the generation before */
	if (s)
		scratch_end(s);
	scratch_unref(s);
	v->kept->mark.seq = 0;
	v->kept->mark.newest = log_newest(v->log)->seq;
	volume_on_publish(v, log_index_of(v->log));
	v->kept->diverged = false;
	single_forget(v);
	if (fsinfo_probe_super(&committed, &fs) == 0 && fs_ops(fs.kind)->counts_on_free)
		single_note_room(v, volume_room_blks(v, &fs));
	return r;
}

/* Before a job that writes. Without an answer a commit is refused, because a power cut in it could
 * leave this volume one generation behind the others. Not if there is no later chance, or no more
 * RAM. */
int undecided_first(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	char why[120] = "";
	int r;

	if (!log_undecided(v->log))
		return 0;
	r = decide(v, why, sizeof(why));
	if (r >= 0) {
		msg(MSG_NOTICE, "%s: the commit of several volumes that ended without an answer %s",
		    v->name, r ? "counts" : "does not count");
		return 0;
	}
	if (v->discard_armed) /* the card stays as it is, and the next attach asks */
		return 0;
	if (volume_goes_on_unread(rq) || rq->cause == CAUSE_PRESSURE) {
		msg(MSG_WARN,
		    "%s: it is not known whether the last commit of several volumes counts (%s): "
		    "committing over it",
		    v->name, *why ? why : strerror(-r));
		log_reject_undecided(v->log);
		undecided_end(v);
		return 0;
	}
	if (r == -ENOLINK)
		snprintf(res->why, sizeof(res->why),
			 "not committed: %s: %s; everything stays in RAM. Or "
			 "commit --force: a power cut in that commit may leave this volume one "
			 "generation behind the others",
			 why, v->leader ? "wait for it" : "plug in its card");
	return r;
}

/* At once, because the log of the leader goes on, and forgets. Of the leader itself all stays in RAM
 * in any case: its card has failed. */
bool volume_decide(struct volume *v)
{
	char why[120];
	bool counts;

	/* its card cannot say yet what it will have */
	if (v->joint && !v->leader)
		v->leader = joint_watch(v->joint);
	counts = decide(v, why, sizeof(why)) == 1 && log_unconfirmed(v->log);

	/* a record that needs no answer; a failure is that of the next commit, too */
	if (!log_undecided(v->log))
		(void)!commit_confirm(v->log, v->base);
	return counts;
}
