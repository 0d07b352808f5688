/* SPDX-License-Identifier: MIT */
/*
 * Paths that lead through folders of other users. A user who owns a folder decides what a name in it
 * means, and may change that between two look-ups. So root looks a path up once, here, and uses the
 * descriptor from then on. What such a user made lead elsewhere is refused.
 */
#ifndef COWFS_BASE_PATH_H
#define COWFS_BASE_PATH_H

#include <limits.h>

#include "base/util.h"

/*
 * Opens path. A symbolic link is followed only if no other user controls it: the link and all
 * folders on the way to it belong to root, nobody else can write to those folders, and
 * path_owners_count() is true of all of them. O_NOFOLLOW: a
 * link at the end is not followed at all. flags as for open(), O_CLOEXEC is added; nothing is
 * created. Mounts are entered. Returns the descriptor or -errno. -ELOOP: a link of another user, or
 * more than 40 links; -ENAMETOOLONG. why: gets a clause about the refused link that names it and its
 * owner, "" after any other error. For a process that is not root's the links are followed: it can
 * only do what its user can do.
 */
int path_open(const char *path, int flags, char *why, size_t n) MUST_CHECK;
/*
 * The same with O_PATH, for a file whose content counts as root's word: -EPERM if another user can
 * change it, or put something else in its place.
 */
int path_open_owned(const char *path) MUST_CHECK;
/* Opens that for reading; a process that is not root's any file. */
int path_open_ours(const char *path) MUST_CHECK;
#define PATH_NOT_OURS "not used: others than root can change it, or put something else in its place"
/* The kernel's name of what path leads to, which has no link in it. -ELOOP, and why; any other error is
 * that of the one who opens it: ret is path then. */
int path_name(const char *path, char ret[PATH_MAX], char *why, size_t n) MUST_CHECK;
/*
 * Are owners and modes in the file system of fd what root said? Not in FUSE, where a process of any
 * user answers, nor in what is mounted nosuid, as a desktop mounts a medium that a user has brought.
 * tmpfs, devtmpfs, proc and sysfs are often nosuid, too, and only the kernel speaks for them. The root is
 * what the system runs from, even if it is virtiofs or nosuid.
 */
bool path_owners_count(int fd) MUST_CHECK;
/*
 * The text for error e of a function that opens path by the means of this module: which link was
 * refused (-ELOOP), who holds a lease (-EBUSY), otherwise that of strerror(). why: room for it.
 */
const char *path_strerror(const char *path, int e, char *why, size_t n);

/*
 * Replaces the file at path by these bytes (mode 0644) in one step: by a new file beside it, whose
 * name is not known before, synced and renamed. Its folder is looked up as by path_open. A symbolic
 * link at the end is replaced, not what it names. data NULL: only finds out whether that is possible,
 * and changes nothing. -EINVAL: path leads to something else than a regular file, such as /dev/null,
 * which must not become one; -ENAMETOOLONG; errors and why of path_open.
 */
int path_replace_file(const char *path, const void *data, size_t len_bytes, char *why,
		      size_t n) MUST_CHECK;
/* Puts a new, empty file there in the same way. Returns its descriptor, O_WRONLY. A pipe or a character
 * device of this process's user or root is opened instead. */
int path_create_file(const char *path, unsigned mode, char *why, size_t n) MUST_CHECK;

/* A file that nobody sees before it is whole. */
struct new_file {
	int dirfd;
	const char *name;	 /* where it is to go */
	char temp[NAME_MAX + 1]; /* and where it is */
};
/* Makes it, beside path, whose folder is looked up as by path_open. Returns its descriptor, O_WRONLY, or -errno. -EINVAL: path
 * leads to something else than a regular file. path_end_file in any case. */
int path_begin_file(struct new_file *f, const char *path, char *why, size_t n) MUST_CHECK;
/* keep: gives it the name; -EEXIST: there is one. Otherwise, and after an error, removes it. */
int path_end_file(struct new_file *f, bool keep) MUST_CHECK;

/*
 * Opens path below dirfd without following a symbolic link anywhere and without entering another
 * mount; "." is dirfd itself. flags as for open(), O_CLOEXEC is added. Returns the descriptor or
 * -errno: -ELOOP a symbolic link is on the way (O_PATH | O_NOFOLLOW opens one at the end), -EXDEV
 * another mount is, or ".." leaves dirfd.
 */
int path_open_below(int dirfd, const char *path, int flags) MUST_CHECK;
/*
 * Opens the file of an O_PATH descriptor, a regular file or a directory: flags as for open(). Returns
 * the descriptor or -errno. -EBUSY: a lease on it (F_SETLEASE) was not given back in time. All calls
 * of a process together wait at most 2 s for leases, because every user can have any number of them.
 */
int path_reopen(int path_fd, int flags) MUST_CHECK;
/* For a message about -EBUSY of path_reopen: a clause that names who holds a lease on this file. */
bool path_lease(int path_fd, char *why, size_t n) MUST_CHECK;
/* For a message about -ELOOP of path_open_below: a clause that names the first folder of path that
 * is a link, and its owner. False: there is none any more. */
bool path_link_below(int dirfd, const char *path, char *why, size_t n) MUST_CHECK;
/* Is there a file, of whatever type, under this name? */
bool path_exists(int dirfd, const char *name);

#endif
