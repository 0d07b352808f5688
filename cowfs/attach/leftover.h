/* SPDX-License-Identifier: MIT */
/*
 * What a volume leaves behind when its daemon dies: a loop device that returns errors, files below
 * /run, a card that is set read-only.
 */
#ifndef COWFS_ATTACH_LEFTOVER_H
#define COWFS_ATTACH_LEFTOVER_H

#include "wire/client.h"

struct leftover_volume {
	char name[RUNDIR_NAME_BYTES];
	char loop[64];	/* its loop device, or the device that has this number now */
	bool hangs;	/* the volume hangs, as far as it was checked: nothing was cleared */
	char text[512]; /* for people: what is lost, what remains, what to do */
};

/* Lists the leftovers; needs no privileges. Returns their number, at most CLIENT_VOLUMES. */
size_t leftover_volumes(struct leftover_volume list[CLIENT_VOLUMES]);
/*
 * The same, but first detaches each such loop device that is unused, and removes the files. Needs
 * root; otherwise the same as leftover_volumes.
 */
size_t leftover_clear(struct leftover_volume list[CLIENT_VOLUMES]);
/*
 * leftover_clear, and a line on stderr for each volume. attaching: a loop device that is in use is
 * detached with its last user.
 */
void leftover_clear_and_tell(bool attaching);

#endif
