/* SPDX-License-Identifier: MIT */
/*
 * One file of a mounted tree: what it is, what differs between two of them, and how one becomes like another.
 * Follows no symbolic link and enters no other mount.
 */
#ifndef COWFS_FILES_NODE_H
#define COWFS_FILES_NODE_H

#include <signal.h>
#include <sys/stat.h>

#include "base/util.h"
#include "fs/extents.h"

/* What differs between the two states of a file. */
enum diff_what {
	DIFF_CONTENT = 1, /* of a regular file, a symbolic link, a device node */
	DIFF_MODE = 2,
	DIFF_OWNER = 4, /* user or group */
	DIFF_TIME = 8,	/* of the last modification */
	DIFF_XATTR = 16,
	DIFF_ACL = 32,
	DIFF_FLAGS = 64 /* of chattr(1), project id */
};
#define DIFF_LETTERS "cpotxaf" /* of these bits, in this order */

struct xattr {
	char *name; /* "user.x" */
	void *value;
	size_t value_bytes;
};

struct node {
	int fd; /* O_PATH; -1: nothing is there */
	struct statx st;
	/* read by node_load */
	bool loaded;
	struct xattr *xattr;
	size_t xattrs;
	unsigned flags; /* FS_*_FL, those of chattr(1) */
	uint32_t projid;
	unsigned frozen; /* by node_thaw */
};

#define NODE_NONE                                                                                  \
	{                                                                                          \
		.fd = -1                                                                           \
	}

static inline bool node_is(const struct node *n, unsigned type)
{
	return n->fd >= 0 && (n->st.stx_mode & S_IFMT) == type;
}

/* path: "a/b" below dirfd, "" is dirfd itself. dirfd -1, or a path that is not there: 0 with fd -1.
 * -EXDEV: another mount lies on it. */
int node_open(struct node *ret, int dirfd, const char *path) MUST_CHECK;
void node_close(struct node *n);
/* path_reopen: a regular file or a directory. */
int node_reopen(const struct node *n, int flags) MUST_CHECK;
/* Reads xattrs, flags and the project id, once. */
int node_load(struct node *n) MUST_CHECK;
/* Does it have what no copy can have: fs-verity or fscrypt? Loaded. */
bool node_is_sealed(const struct node *n);
/* From the handle of the file, else the time of its birth: another one for the next file in the same inode. */
uint64_t node_gen(const struct node *n);
/*
 * n lies in an overlay whose upper layer is mounted as a lower one: overlayfs does not read what it
 * has stored there of immutable and append-only. Adds that, from the file of the upper.
 */
int node_add_frozen(struct node *n, int upper_fd, const char *path) MUST_CHECK;

/*
 * Nothing but access times, numbers of links and numbers of blocks can differ. False also if the
 * times are too coarse to tell.
 */
bool node_untouched(const struct node *a, const struct node *b);
/* enum diff_what of two files of one type that are loaded; of DIFF_CONTENT only device numbers. */
unsigned node_differs(const struct node *a, const struct node *b);

/* A file that is stored several times in the same blocks: what was copied of them already */
struct node_shared {
	/* Clones up to len bytes at `at` of the device to pos of to_fd. How many: whole blocks; 0: none */
	uint64_t (*clone)(void *ctx, uint64_t at, uint64_t len, int to_fd, uint64_t pos);
	void *ctx;
	bool later; /* once they are written, and only if they are equal: somebody could change the source */
};

struct node_content {
	/* NULL, or the blocks that may differ: what lies on the same ones otherwise is not read */
	const struct extents *changed;
	const volatile sig_atomic_t *stop; /* not 0: -EINTR; may be NULL */
	uint64_t *bytes; /* what is written, or would be; NULL: compare to the first difference */
	const struct node_shared *shared; /* may be NULL */
};

/* 1: another content (of regular files and symbolic links), 0: the same, or -errno. */
int node_compare_content(const struct node *a, const struct node *b,
			 const struct node_content *how) MUST_CHECK;
/*
 * Gives the file to_fd the content of `from`, and writes only what differs. Holes stay holes, and unwritten parts
 * unwritten. O_RDWR, or (an empty one) O_WRONLY.
 */
int node_write_content(const struct node *from, int to_fd,
		       const struct node_content *how) MUST_CHECK;
/* Counts the data of a file, holes and unwritten parts left out; of how only shared: what it clones is not counted. */
int node_count_data(const struct node *n, const struct node_content *how) MUST_CHECK;

/* Gives `to` owner, xattrs and mode of `from`, in this order. Changes only what differs. */
int node_set_meta(const struct node *from, const struct node *to) MUST_CHECK;
/* Access and modification time. Does nothing if the latter is right. */
int node_set_times(const struct node *from, const struct node *to) MUST_CHECK;
/* Sets flags and project id; immutable and append-only, which forbid every change, only if asked: then nothing else if there are none. */
int node_set_flags(const struct node *from, const struct node *to, bool frozen) MUST_CHECK;
/* Takes immutable and append-only away. Returns whether any was set, or -errno. */
int node_thaw(struct node *n) MUST_CHECK;
/* Sets what node_thaw has taken away. */
int node_freeze(const struct node *n) MUST_CHECK;

#endif
