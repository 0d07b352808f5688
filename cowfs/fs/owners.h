/* SPDX-License-Identifier: MIT */
/*
 * Whose are these blocks: from a list of runs to the files, directories and tables of the file
 * system that lies on a device, while it is in use. For cowctl, not for the daemon: it allocates,
 * reads a lot, and what it tells is a picture of a moving target, in which a file that changed
 * meanwhile may be missed.
 */
#ifndef COWFS_FS_OWNERS_H
#define COWFS_FS_OWNERS_H

#include "fs/extents.h"
#include "fs/tally.h"

enum owner_kind {
	/* whatever is no directory; its block of extended attributes belongs to the row of these */
	OWNER_FILE,
	OWNER_DIRECTORY,
	OWNER_DELETED, /* no name left, still open */
	/* superblock, group descriptors, their copies, and the room for more of them */
	OWNER_SUPER,
	OWNER_BITMAPS,
	OWNER_INODES,
	OWNER_JOURNAL,
	OWNER_XATTRS,
	OWNER_METADATA, /* all trees of btrfs */
	OWNER_FREE,	/* deleted since it was written */
	OWNER_OTHER,	/* none of these, or not found */
	OWNER_KINDS
};

struct owner {
	enum owner_kind kind;
	uint64_t ino; /* 0 for the file system's own */
	uint32_t links;
	uint64_t bytes, fresh_bytes;	       /* of q->all, of q->fresh */
	uint64_t rewritten_bytes[TALLY_KINDS]; /* of q->rewrites */
	/* from the file system's root, "/a/b", directories "/a/"; NULL: the kind tells, or no
	 * name was found */
	char *path;
};

struct owners {
	struct owner *o; /* only those with bytes or rewrites; in no order */
	size_t n, cap;
	uint64_t looked_at; /* inodes in use, or files of the tree */
	/* of these: changed while they were looked at, damaged, or not to be opened */
	uint64_t unreadable;
	bool complete; /* false: it took too long, and the rest is in OWNER_OTHER */
};

struct owners_query {
	const struct extents *all, *fresh;
	const struct tally *rewrites; /* also of blocks that are not in `all`; may be NULL */
	/* phase is a word. May be NULL. */
	void (*progress)(void *ctx, const char *phase, uint64_t done_bytes, uint64_t total_bytes);
	void *ctx;
};

/* ext2/3/4 on a device that may be mounted: through its page cache, which is where a mounted one
 * keeps its metadata. -EOPNOTSUPP: no ext2/3/4, or features that libext2fs does not know; -EUCLEAN,
 * -ENOMEM, -errno of the open. */
int owners_ext(struct owners *ret, const char *device, const struct owners_query *q) MUST_CHECK;
/* Any other, by asking all files of the tree mounted at dir where they lie (FIEMAP). Ends after
 * max_files, or max_ns. -EOPNOTSUPP: the file system does not tell, or is a btrfs in stripes. A
 * btrfs has to be on one device. */
int owners_tree(struct owners *ret, const char *dir, uint64_t max_files, uint64_t max_ns,
		const struct owners_query *q) MUST_CHECK;
/* Adds what is left of q->all and q->rewrites, as OWNER_OTHER. Both of the above do it. */
int owners_add_rest(struct owners *w, const struct owners_query *q) MUST_CHECK;
/* Adds [start_bytes, end_bytes) to an owner. */
void owner_claim(struct owner *o, const struct owners_query *q, uint64_t start_bytes,
		 uint64_t end_bytes);
bool owner_has_some(const struct owner *o); /* bytes or rewrites */
/* Keeps o if it has some, takes its path then. -ENOMEM. */
int owners_keep(struct owners *w, struct owner *o) MUST_CHECK;
void owners_clear(struct owners *w);

#endif
