/* SPDX-License-Identifier: MIT */
/* What a volume leaves behind when its daemon dies: a loop device that gives errors, files below /run,
 * a card that is set read-only. */
#ifndef COWFS_ATTACH_LEFTOVER_H
#define COWFS_ATTACH_LEFTOVER_H

#include "wire/client.h"

struct dead_volume {
	char name[RUNDIR_NAME_BYTES];
	char text[512]; /* for people: what is lost, what is left, what to do */
};

/* What there is; needs no privileges. How many, at most CLIENT_VOLUMES. */
size_t dead_volumes(struct dead_volume list[CLIENT_VOLUMES]);
/* The same, but first detaches each such loop device that nobody uses, and takes the files away. As
 * root; else as dead_volumes. */
size_t dead_clear(struct dead_volume list[CLIENT_VOLUMES]);
/* dead_clear, and a line on stderr for each. attaching: a loop device that is in use is detached with its last user. */
void dead_clear_and_tell(bool attaching);

#endif
