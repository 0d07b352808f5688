/* SPDX-License-Identifier: MIT */
/*
 * One commit of several volumes, of one moment. Each volume has a daemon of its own; they meet in
 * memory that the client made and passed to all of them.
 *
 * One word of this memory is the decision. The last member that has written everything but its
 * record decides that the commit counts; a member that gives up first cancels it. So all members
 * read the same decision, whatever process is killed. After it nothing but the card can keep a
 * member from its record.
 */
#ifndef COWFS_VOLUME_JOINT_H
#define COWFS_VOLUME_JOINT_H

#include "base/util.h"

/* Steps at which each member waits for all others, in this order. */
enum joint_step {
	JOINT_SYNCED,  /* what was dirty above is in RAM: the freeze will be short */
	JOINT_FROZEN,  /* nobody changes anything any more */
	JOINT_WRITTEN, /* all is durable but the record; includes the decision */
	JOINT_STEPS
};

struct joint; /* of one member */

struct joint_params {
	int fd;			 /* from joint_new; borrowed */
	bool last;		 /* its record comes after those of members that are not last */
	bool (*gone)(void *ctx); /* has the client ended? called repeatedly */
	void *ctx;
};

/* Makes the memory: its descriptor, or -errno. */
int joint_new(unsigned members, unsigned last) MUST_CHECK;
/* -EINVAL: not such a memory. */
int joint_enter(struct joint **ret, const struct joint_params *p) MUST_CHECK;
/*
 * Waits until all members are at this step; passes earlier ones on the way. hurry: may be NULL; true:
 * do not wait any longer. 0, or -ECANCELED: nobody commits, for the reason of joint_why.
 */
int joint_meet(struct joint *j, enum joint_step step, bool (*hurry)(void *ctx),
	       void *ctx) MUST_CHECK;
const char *joint_why(const struct joint *j);
/* Was it decided that all commit? */
bool joint_decided(const struct joint *j);
/* The record of this member is durable, or there is nothing to write. */
void joint_done(struct joint *j);
/* Unless it is decided. */
void joint_cancel(struct joint *j);
/* Cancels, unless it is decided, and frees. NULL allowed. */
void joint_leave(struct joint *j);

#endif
