/* SPDX-License-Identifier: MIT */
/* Operands [N] [PATH...]: a volume, and files on it. */
#ifndef COWFS_CLI_PLACE_H
#define COWFS_CLI_PLACE_H

#include <errno.h>
#include <string.h>

#include "cli/cmd.h"

struct place {
	const char *operand; /* as given, for messages */
	/*
	 * From the root of the file system (btrfs: of its top-level subvolume): "a/b", or "" for
	 * this root itself. No component is "." or "..", no slash is doubled. The file need not
	 * exist.
	 */
	char *path;
};

struct places {
	char name[RUNDIR_NAME_BYTES]; /* of the volume, "": no operand said */
	struct place *p;
	size_t n, room;	 /* n 0: all of the volume */
	bool composed;	 /* paths are of a composed root, whose volume has no paths of its own */
	bool must_exist; /* now, not only on the card */
};

/*
 * Looks at the operands. The first one is N if it is
 * - the name of a running volume (also /dev/cowfs/NAME), or of one whose daemon died,
 * - the device, log device or loop device of a running volume, or
 * - a folder, not a symbolic link, where the root of such a volume's file system is mounted.
 * All others are a PATH each: a file in a folder that lies on the volume. Symbolic links are
 * followed in the folders, unless another user controls them, and not in the last component. Folders that do not exist (any more) are
 * taken as written; they must not contain "..". A file called like a volume is given as ./NAME.
 * Without N the first PATH determines the volume. EXIT_OK, or the return value of cmd_fail: a PATH
 * that lies outside of the volume or on another mount below it, that is too long, or on another
 * volume than the first.
 */
int places_resolve(const struct options *o, struct places *ret) MUST_CHECK;
/*
 * Adds a PATH of the mounted volume p->name. 0, or -errno with *err. path must live as long as p.
 */
int places_add(struct places *p, const char *path, struct failure *err) MUST_CHECK;
/* The same for a volume that is not mounted any more, by the text: nothing is looked up. */
int places_add_below(struct places *p, const char *mountpoint, const char *path,
		     struct failure *err) MUST_CHECK;
void places_clear(struct places *p);

/* By fscrypt: a view has no key, so names in it are not those of the live tree. path "": dirfd itself. */
bool place_is_encrypted(int dirfd, const char *path);
/* The text for error e of a copy: fscrypt's flag cannot be copied, nor can others. */
static inline const char *place_copy_error(int e)
{
	return e == -EOPNOTSUPP ? "encrypted, or another feature that cannot be copied"
				: strerrordesc_np(-e);
}

/* For client_open: the name, or NULL for the only running volume. */
static inline const char *places_volume(const struct places *p)
{
	return *p->name ? p->name : NULL;
}

#endif
