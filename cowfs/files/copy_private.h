/* SPDX-License-Identifier: MIT */
/* What copy.c and copy_file.c share: one file or folder, its metadata, its content. */
#ifndef COWFS_FILES_COPY_PRIVATE_H
#define COWFS_FILES_COPY_PRIVATE_H

#include <signal.h>
#include <sys/stat.h>

#include "base/util.h"
#include "files/touched.h"

struct xattr {
	char *name; /* "user.x" */
	void *value;
	size_t value_bytes;
};

/* A file of any type, opened with O_PATH. */
struct inode {
	int fd; /* -1: nothing is there */
	struct statx st;
	/* read by inode_load */
	bool loaded;
	struct xattr *xattr;
	size_t xattrs;
	uint64_t flags; /* FS_XFLAG_*, and FS_*_FL << 32: those that are copied */
	uint32_t projid;
	uint64_t frozen; /* by inode_thaw */
};

#define INODE_INIT                                                                                 \
	{                                                                                          \
		.fd = -1                                                                           \
	}
/* Immutable and append-only: they forbid every change of the file, so they are set last. */
#define INODE_FROZEN (FS_XFLAG_IMMUTABLE | FS_XFLAG_APPEND)

static inline bool inode_is(const struct inode *n, unsigned type)
{
	return n->fd >= 0 && (n->st.stx_mode & S_IFMT) == type;
}

/* dirfd -1, and a name that is not there: 0 with fd -1. -EXDEV: another mount lies on it. */
int inode_open(struct inode *ret, int dirfd, const char *name) MUST_CHECK;
void inode_close(struct inode *n);
/* path_reopen: a regular file or a directory. */
int inode_reopen(const struct inode *n, int flags) MUST_CHECK;
/* Reads xattrs, flags and the project id, once. -EOPNOTSUPP: fs-verity or fscrypt. */
int inode_load(struct inode *n) MUST_CHECK;

/*
 * n lies in an overlay whose upper layer is mounted as a lower one: overlayfs does not read what it
 * has stored there of INODE_FROZEN. Adds that, from the file of the upper.
 */
int inode_add_frozen(struct inode *n, int upper_fd, const char *path) MUST_CHECK;

/* Owner, mode, device, flags, xattrs, and (times) the modification time are the same. Both are
 * loaded. */
bool inode_same_meta(const struct inode *a, const struct inode *b, bool times);
/* Gives `to` owner, xattrs and mode of `from`, in this order. Changes only what differs. */
int inode_set_meta(const struct inode *from, const struct inode *to) MUST_CHECK;
/* Access and modification time. Does nothing if the latter is right. */
int inode_set_times(const struct inode *from, const struct inode *to) MUST_CHECK;
/* Sets flags and project id; also INODE_FROZEN only if asked. `to` need not be loaded. */
int inode_set_flags(const struct inode *from, const struct inode *to, bool frozen) MUST_CHECK;
/* Takes INODE_FROZEN away, and notes in n what was set. Returns whether any was, or -errno. */
int inode_thaw(struct inode *n) MUST_CHECK;
/* Sets what inode_thaw has taken away. */
int inode_freeze(const struct inode *n) MUST_CHECK;

/*
 * 1: the same bytes, 0: not, or -errno (-EINTR: stopped). changed: NULL, or the blocks that may differ: what
 * lies on the same ones otherwise is not read.
 */
int inode_same_content(const struct inode *a, const struct inode *b, const struct extents *changed,
		       const volatile sig_atomic_t *stop) MUST_CHECK;
/* Fills the empty file to_fd. Holes stay holes. */
int inode_copy_content(const struct inode *from, int to_fd, const volatile sig_atomic_t *stop,
		       uint64_t *bytes) MUST_CHECK;
/* Writes only what differs into a file that has other content. */
int inode_update_content(const struct inode *from, int to_fd, const struct extents *changed,
			 const volatile sig_atomic_t *stop, uint64_t *bytes) MUST_CHECK;

#endif
