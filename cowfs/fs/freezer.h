/* SPDX-License-Identifier: MIT */
/*
 * Calls of quiesce_call.h that can be left behind. One that was is waited for before the next of its kind.
 */
#ifndef COWFS_FS_FREEZER_H
#define COWFS_FS_FREEZER_H

#include "fs/quiesce.h"
#include "fs/quiesce_call.h"

/*
 * Makes a call that waits for writes, if only for those of an unmount. -ECANCELED: stopped, and the
 * call was left behind; -ETIMEDOUT: left behind as well; -EALREADY: an earlier one does not end.
 */
int call_within(const struct quiesce_target *t, int fd, enum quiesce_call call, uint64_t limit_ns,
		void *seal_ctx) MUST_CHECK;
int call_stoppable(const struct quiesce_target *t, int fd, enum quiesce_call call,
		   void *seal_ctx) MUST_CHECK;
/* Was a call of this kind left behind? */
bool call_hangs(enum quiesce_call call);
/* Waits for the end of a call that was left behind. -EALREADY: not in time; -ECANCELED: stopped. */
int wait_for_left(const struct quiesce_target *t, enum quiesce_call call, uint64_t limit_ns,
		  void *seal_ctx) MUST_CHECK;

/* ---- a freeze ---- */

struct freezer;

/* Owns mount_fd from now on. */
int freezer_new(struct freezer **ret, const struct quiesce_target *t, int mount_fd) MUST_CHECK;
int freezer_start(struct freezer *f) MUST_CHECK;
/* -ECANCELED: writes are withheld, so the call would not end; -ETIMEDOUT. In both cases f now belongs
 * to its thread. */
int freezer_wait(struct freezer *f, const struct quiesce_target *t, uint64_t limit_ns,
		 void *seal_ctx) MUST_CHECK;
uint64_t freezer_limit_ns(const struct quiesce_target *t);
/* The supervisor: frozen of struct quiesce_target, with the descriptor or -1. */
int freezer_tell(const struct freezer *f, bool frozen) MUST_CHECK;
/* -EINVAL: not frozen any more */
int freezer_thaw(const struct freezer *f) MUST_CHECK;
void freezer_free(struct freezer *f);

#endif
