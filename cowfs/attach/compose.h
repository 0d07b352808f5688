/* SPDX-License-Identifier: MIT */
/*
 * A composed root: an image (squashfs or erofs, the lower) that nothing ever writes, and overlayfs
 * with its upper on an ext4, the volume. In the root folder of the volume:
 *
 *	upper, work	of overlayfs
 *	lower		which image the upper was begun on: one line, ID below
 *	reset		exists: the next boot begins a new upper
 *	old		what remains of earlier uppers; each boot tries to remove it
 *
 * ID is the type of the image and its superblock in hexadecimal.
 */
#ifndef COWFS_ATTACH_COMPOSE_H
#define COWFS_ATTACH_COMPOSE_H

#include <limits.h>
#include <sys/types.h>

#include "wire/failure.h"

#define COMPOSE_RESET "reset"
#define COMPOSE_LOWER_DIR "lower" /* in the run directory: where the lower is mounted */
#define COMPOSE_ID_BYTES 280	  /* of ID, with its end */

struct compose {
	const char *lower;     /* DEVICE[:/FILE], as in cowfs.conf */
	const char *new_lower; /* "refuse", "fresh", "keep" */
	bool readonly;	       /* the volume must not be written: shows the root read-only */
};

enum compose_result {
	COMPOSE_DONE,
	COMPOSE_FRESH,	 /* done, with a new upper */
	COMPOSE_LOWER,	 /* the lower alone is mounted, read-only: *err has the reason */
	COMPOSE_NOTHING, /* nothing is mounted: *err has the reason */
};

/* ---- compose.c, in the initramfs ---- */

/*
 * The file system of the volume is mounted on dir. Mounts the root over it: the volume stays
 * mounted below, where only processes see it whose root is that of the initramfs, such as the
 * daemon, which syncs it. Waits up to 10 s for the device of the lower.
 */
enum compose_result compose_root(const struct compose *c, const char *dir,
				 struct failure *err) MUST_CHECK;

/* Was the upper on this volume begun on the image ID? */
bool compose_is_begun_on(int volume_fd, const char *id);
/* Begins a new upper on ID, the image that is mounted in the run directory. 0 or -errno. */
int compose_begin(int volume_fd, const char *id) MUST_CHECK;
/* What remains of earlier uppers. */
void compose_remove_old(int volume_fd);
/* The upper belongs to ID from now on. 0 or -errno. */
int compose_write_id(int volume_fd, const char *id) MUST_CHECK;

/* What is mounted on dir is such a volume, and no root by itself. */
bool compose_holds_upper(const char *dir);

/* ---- compose_live.c, in the running system ---- */

struct compose_state {
	dev_t dev; /* of the overlay */
	char lower[PATH_MAX];
	char id[COMPOSE_ID_BYTES]; /* "": the initramfs has an older cowfs */
};

/* Is the root of this system composed? */
bool compose_load(struct compose_state *ret);
/* Where it is mounted: "/", but in tests. "": not where this process sees it. */
void compose_where(const struct compose_state *s, char ret[PATH_MAX]);

/*
 * Does the committed state of the volume belong to the image of this system, and to no factory reset?
 * Also if it has no upper yet. 0, or -ESTALE with *err.
 */
int compose_check(int volume_fd, struct failure *err) MUST_CHECK;

/*
 * Does to a volume in its committed state what this boot has done to the running one, now_fd: begins
 * an upper, or makes the one that is there belong to the image of this system. -ESTALE: the next
 * boot begins anew, whatever is committed. 0, or -errno with *err.
 */
int compose_adopt(int volume_fd, int now_fd, struct failure *err) MUST_CHECK;

/*
 * Opens a composition of the lower of this system and the upper of a volume whose root folder is
 * volume_fd, a mount that is attached to no tree. So is the composition. Returns its root folder, or
 * -errno with *err. Without an upper a read-only one shows the lower alone.
 */
int compose_open(int volume_fd, bool writable, struct failure *err) MUST_CHECK;

/*
 * Makes the mark for a new upper on the volume with this loop device, whatever is mounted there
 * stays. It counts once it is committed. 0, or -errno with *err.
 */
int compose_mark_reset(const char *loop, struct failure *err) MUST_CHECK;

#endif
