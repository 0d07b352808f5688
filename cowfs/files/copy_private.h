/* SPDX-License-Identifier: MIT */
/* What copy.c and apply.c share: the list. */
#ifndef COWFS_FILES_COPY_PRIVATE_H
#define COWFS_FILES_COPY_PRIVATE_H

#include "files/copy.h"

/* sides of the walk */
#define TO OLD
#define FROM NEW

struct file_id {
	dev_t dev;
	uint64_t ino; /* 0: none */
};

/*
 * What the plan has seen in its place is that file. A file of an overlay may get another inode number at any time. Its
 * size and time stand for it, and for a folder that is not of the image the time of its birth. Folders of the image
 * have none, and nobody can rename them, but the next change there makes them folders of the upper.
 */
struct seen {
	struct file_id id;
	uint64_t size;
	uint32_t uid;
	mode_t type;  /* S_IFMT; 0: nothing is there */
	uint64_t gen; /* node_gen, or that time; 0: not known */
};

struct change {
	enum copy_act act;
	bool way;   /* a folder on the way: its metadata stay as they are */
	bool quiet; /* goes because something takes the place of its folder */
	char *path;
	mode_t type; /* of what comes, or goes */
	struct seen to;
	/* of either side */
	struct file_id id[2];
	uint64_t links[2];
	uint64_t bytes;
	size_t first; /* of the names of one source: the one that the others become links to */
	/* of that one: the target inode that has its content, and the name under which it was made */
	struct file_id made;
	uint64_t made_gen; /* node_gen */
	size_t at;
	/* apply */
	bool entered;	 /* a folder: something in it was changed */
	bool finished;	 /* a folder: what comes last was done */
	unsigned frozen; /* immutable or append-only was taken away */
};

#define KEPT_MAX 256u

/* Blocks of the source that several files have, and where the target has them already */
struct shared_part {
	uint64_t at, len, off;
	size_t entry;
};

/* The folder under way */
struct folder {
	int fd; /* -1: none */
	char *path;
	/* root's folder in it, where new files are made; -1: none */
	int stage_fd;
	char stage[40];
	unsigned files;
};

struct copy {
	struct walk w; /* the first: its functions get it */
	struct copy_options opt;
	struct copy_report report;
	int error;	     /* the first problem of this call */
	bool none;	     /* the path exists on neither side */
	struct change *list; /* ascending by path once planned */
	size_t n, cap;
	char **asked; /* the paths of copy_plan */
	size_t asked_n, asked_cap;
	struct shared_part *shared;
	size_t shared_n, shared_cap;
	struct folder in[2]; /* of the target, and of fresh */
	/* a new folder that is not in its place yet; -1: none */
	int fresh_fd;
	const char *fresh;
	size_t now; /* the file that is written */
	/* large files of the target that are gone, open until copy_free */
	bool keeps;
	int kept[KEPT_MAX];
	unsigned kept_n;
};

static inline struct file_id node_id(const struct node *n)
{
	return (struct file_id){ (dev_t)n->st.stx_dev_major << 32 | n->st.stx_dev_minor,
				 n->st.stx_ino };
}

static inline bool same_id(struct file_id a, struct file_id b)
{
	return a.dev == b.dev && a.ino == b.ino;
}

struct seen seen_of(const struct copy *c, const struct node *n);
/* Counts what is shown of it; false: nothing. */
bool copy_count(struct copy_report *r, const struct change *x);
/* Notes a problem. 0: go on with the next file. */
int copy_problem(struct copy *c, const char *path, int e, const char *what) MUST_CHECK;
/* Loads a file of the source. -EOPNOTSUPP: it cannot be copied. */
int copy_load_source(struct copy *c, struct node *from, const char *path) MUST_CHECK;
/* Opens a file of the target, or below a folder that is not in its place yet. */
int copy_open_to(const struct copy *c, struct node *ret, const char *path) MUST_CHECK;
/* A struct node_shared.clone */
uint64_t copy_shared(void *ctx, uint64_t at, uint64_t len, int to_fd, uint64_t pos);

#endif
