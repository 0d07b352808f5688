/* SPDX-License-Identifier: MIT */
/* What copy.c and copy_file.c share: one file or folder, its metadata, its content. */
#ifndef COWFS_FILES_COPY_PRIVATE_H
#define COWFS_FILES_COPY_PRIVATE_H

#include <signal.h>
#include <sys/stat.h>

#include "base/util.h"

struct xattr {
	char *name; /* "user.x" */
	void *value;
	size_t value_bytes;
};

/* A file of any type, opened with O_PATH. */
struct node {
	int fd; /* -1: nothing is there */
	struct statx st;
	/* read by node_load */
	bool loaded;
	struct xattr *xattr;
	size_t xattrs;
	uint64_t flags; /* FS_XFLAG_*, and FS_*_FL << 32: those that are copied */
	uint32_t projid;
	uint64_t frozen; /* by node_thaw */
};

#define NODE_INIT                                                                                  \
	{                                                                                          \
		.fd = -1                                                                           \
	}
/* Immutable and append-only: they forbid every change of the file, so they are set last. */
#define NODE_FROZEN (FS_XFLAG_IMMUTABLE | FS_XFLAG_APPEND)

static inline bool node_is(const struct node *n, unsigned type)
{
	return n->fd >= 0 && (n->st.stx_mode & S_IFMT) == type;
}

/* dirfd -1, and a name that is not there: 0 with fd -1. -EXDEV: another mount lies on it. */
int node_open(struct node *ret, int dirfd, const char *name) MUST_CHECK;
void node_close(struct node *n);
/* Opens the same inode again: a regular file or a directory. Returns the descriptor or -errno. */
int node_reopen(const struct node *n, int flags) MUST_CHECK;
/* Reads xattrs, flags and the project id, once. -EOPNOTSUPP: fs-verity or fscrypt. */
int node_load(struct node *n) MUST_CHECK;

/* Owner, mode, device, flags, xattrs, and (times) the modification time are the same. Both are
 * loaded. */
bool node_same_meta(const struct node *a, const struct node *b, bool times);
/* Gives `to` owner, xattrs and mode of `from`, in this order. Changes only what differs. */
int node_set_meta(const struct node *from, const struct node *to) MUST_CHECK;
/* Access and modification time. Does nothing if the latter is right. */
int node_set_times(const struct node *from, const struct node *to) MUST_CHECK;
/* Sets flags and project id; also NODE_FROZEN only if asked. `to` need not be loaded. */
int node_set_flags(const struct node *from, const struct node *to, bool frozen) MUST_CHECK;
/* Takes NODE_FROZEN away, and notes in n what was set. Returns whether any was, or -errno. */
int node_thaw(struct node *n) MUST_CHECK;
/* Sets what node_thaw has taken away. */
int node_freeze(const struct node *n) MUST_CHECK;

/* 1: the same bytes, 0: not, or -errno (-EINTR: stopped). */
int node_same_content(const struct node *a, const struct node *b,
		      const volatile sig_atomic_t *stop) MUST_CHECK;
/* Fills the empty file to_fd. Holes stay holes. */
int node_copy_content(const struct node *from, int to_fd, const volatile sig_atomic_t *stop,
		      uint64_t *bytes) MUST_CHECK;
/* Writes only what differs into a file that has other content. */
int node_update_content(const struct node *from, int to_fd, const volatile sig_atomic_t *stop,
			uint64_t *bytes) MUST_CHECK;

#endif
