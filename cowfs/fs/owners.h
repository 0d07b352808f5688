/* SPDX-License-Identifier: MIT */
/*
 * Who owns these blocks: maps a list of runs to the files, directories and tables of the file
 * system on a device, while it is in use. For cowctl, not for the daemon: it allocates and reads a
 * lot. Its result is a picture of a moving target: it may miss a file that changed meanwhile.
 */
#ifndef COWFS_FS_OWNERS_H
#define COWFS_FS_OWNERS_H

#include "fs/extents.h"

enum owner_kind {
	/* everything except directories; a block of extended attributes counts as OWNER_XATTRS */
	OWNER_FILE,
	OWNER_DIRECTORY,
	OWNER_DELETED, /* no name left, but still open */
	/* superblock, group descriptors, their copies, and the reserved room for more of them */
	OWNER_SUPER,
	OWNER_BITMAPS,
	OWNER_INODES,
	OWNER_JOURNAL,
	OWNER_XATTRS,
	OWNER_METADATA, /* all trees of btrfs */
	OWNER_FREE,	/* deleted after the write */
	OWNER_OTHER,	/* none of these, or not found */
	OWNER_KINDS
};

/* Of owners_query.old_fd: how the inode differs from that of the older state. */
enum owner_differs {
	OWNER_TOUCHED = 1, /* the bytes of the inode, or a block that it owns */
	OWNER_SAME = 2,	   /* the older state has this file, not another one in this inode */
	OWNER_CONTENT = 4, /* what may be its content */
	OWNER_BELOW = 8,   /* path is an encrypted directory, and this file lies somewhere below */
};

struct owner {
	enum owner_kind kind;
	unsigned differs; /* enum owner_differs */
	uint64_t ino;	  /* 0 for the file system's own blocks */
	uint32_t links;
	uint64_t bytes, fresh_bytes; /* of q->all, of q->fresh */
	/*
	 * from the file system's root, "/a/b", directories "/a/"; NULL: the kind is enough, or no
	 * name was found
	 */
	char *path;
};

struct owners {
	struct owner *o; /* only those with bytes; unordered */
	size_t n, cap;
	uint64_t looked_at; /* inodes in use, or files of the tree */
	/* of these: changed during the look at them, damaged, or impossible to open */
	uint64_t unreadable;
	uint64_t too_long; /* names of files in both states: PATH_MAX */
	bool complete;	   /* false: it took too long, and the rest is in OWNER_OTHER */
};

struct owners_query {
	const struct extents *all, *fresh;
	/* phase is a word. May be NULL. */
	void (*progress)(void *ctx, const char *phase, uint64_t done_bytes, uint64_t total_bytes);
	void *ctx;
	/*
	 * Only for owners_ext: a device with an older state of the file system, which differs only in
	 * q->all. Then the result is one owner for each name of each touched inode, and nothing else.
	 * NULL: none
	 */
	const int *old_fd;
	/*
	 * Then no name is looked for, and one owner stands for an inode. Reads changed blocks of the inode
	 * tables only, unless a changed block has no owner among their inodes and differs. The older state may be mounted
	 * for writing, if nothing was written yet.
	 */
	bool no_names;
};

/*
 * For ext2/3/4 on a device that may be mounted. Reads through the device's page cache, where a
 * mounted ext4 keeps its metadata. -EOPNOTSUPP: not ext2/3/4, or features that libext2fs does not
 * know; -EUCLEAN, -ENOMEM, -errno of the open. With old_fd both must hold still; -EOPNOTSUPP also if a
 * journal is to be replayed, or the states are not of one layout, and nothing may be unreadable.
 */
int owners_ext(struct owners *ret, const char *device, const struct owners_query *q) MUST_CHECK;
int owners_ext_fd(struct owners *ret, int fd, const struct owners_query *q) MUST_CHECK;
/* The same in a boxed child (base/boxed.h). -EOWNERDEAD: boxed_error. */
int owners_ext_boxed(struct owners *ret, const char *device,
		     const struct owners_query *q) MUST_CHECK;
/*
 * For xfs: roots of two mounted states, which hold still. now_s: of the newer one. The result is one owner for each inode of
 * it that may differ from that of the older one, without a name. -errno, also if the kernel does not know the call.
 */
int owners_xfs(struct owners *ret, int old_dir_fd, int new_dir_fd, uint64_t now_s) MUST_CHECK;
/*
 * The same for btrfs. Both states descend from that of `old`. -EOPNOTSUPP: they do not.
 */
struct btrfs_mark;
int owners_btrfs(struct owners *ret, int old_dir_fd, const struct btrfs_mark *old, int new_dir_fd,
		 const struct btrfs_mark *new) MUST_CHECK;
/*
 * For any other kind: asks all files of the tree mounted at dir for their places (FIEMAP). Ends
 * after max_files, or max_ns. -EOPNOTSUPP: the file system does not report places, or is a btrfs in
 * stripes. A btrfs must be on one device.
 */
int owners_tree(struct owners *ret, const char *dir, uint64_t max_files, uint64_t max_ns,
		const struct owners_query *q) MUST_CHECK;
/* for a command that somebody waits for */
#define OWNERS_FILES_MAX 1000000u
#define OWNERS_NS_MAX (60 * 1000000000ull)
/* Adds the rest of q->all, as OWNER_OTHER. Both functions above do this. */
int owners_add_rest(struct owners *w, const struct owners_query *q) MUST_CHECK;
/* Adds [start_bytes, end_bytes) to an owner. */
void owner_claim(struct owner *o, const struct owners_query *q, uint64_t start_bytes,
		 uint64_t end_bytes);
/* Keeps o if it has any, and takes its path in that case. -ENOMEM. */
int owners_keep(struct owners *w, struct owner *o) MUST_CHECK;
void owners_clear(struct owners *w);

#endif
