/* SPDX-License-Identifier: MIT */
/*
 * One commit of several volumes, of one moment, that counts for all or for none. Each volume has a
 * daemon of its own; they meet in memory that the client made and passed to all of them.
 *
 * One of those that have changed leads: that of the lowest rank. The others write everything, a
 * record included that names the leader's, and wait. Then the leader writes its record: the power
 * cut decides at that moment for all. The memory has one word for the decision, so the members read
 * the same, whatever process is killed.
 */
#ifndef COWFS_VOLUME_JOINT_H
#define COWFS_VOLUME_JOINT_H

#include "commit/commit.h"

struct joint; /* of one member */

struct joint_params {
	int fd;	       /* from joint_new; borrowed */
	unsigned rank; /* each member has another one */
	/* both are called again and again until the decision */
	bool (*gone)(void *ctx);    /* has the client ended? */
	bool (*hurries)(void *ctx); /* can this volume not wait any more? NULL: it can */
	void *ctx;
};

/* Makes the memory for so many members: its descriptor, or -errno. */
int joint_new(unsigned members) MUST_CHECK;
/* -EINVAL: not such a memory. */
int joint_enter(struct joint **ret, const struct joint_params *p) MUST_CHECK;
/*
 * The members call these in this order. 0, or -ECANCELED: nobody commits, for the reason of
 * joint_why.
 */
/* What was dirty above is in RAM, so the freeze will be short: waits for all members. */
int joint_synced(struct joint *j) MUST_CHECK;
/* Nobody changes anything any more: waits for all members. */
int joint_frozen(struct joint *j, bool changed) MUST_CHECK;
/* For log_end, of members that have changed. */
struct log_together joint_log(struct joint *j);

const char *joint_why(const struct joint *j);
/* Do all commit? */
bool joint_decided(const struct joint *j);
/* Nobody commits, unless that is decided, or the leader's record may be on its way to the card. */
void joint_cancel(struct joint *j);
/* The member of this rank has ended: if it leads and writes its record, the others must ask its
 * card. */
void joint_ended(struct joint *j, unsigned rank);
/*
 * For a member that waits no longer while the leader still writes its record: what the leader makes of it, for as long as
 * that is wanted (joint_leave). NULL: nobody writes it.
 */
struct joint *joint_watch(const struct joint *j);
/* Of that: the record may still come. */
bool joint_writes(const struct joint *watch);
/* Cancels if this member has not done its part, and frees. NULL allowed. */
void joint_leave(struct joint *j);

#endif
