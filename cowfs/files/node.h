/* SPDX-License-Identifier: MIT */
/* One file of a mounted tree, and what differs between two of them. Follows no symbolic link. */
#ifndef COWFS_FILES_NODE_H
#define COWFS_FILES_NODE_H

#include <sys/stat.h>

#include "files/diff.h"
#include "files/touched.h"

/*
 * Opens path below root_fd (O_PATH and other flags), component by component: through no symbolic
 * link, into no other mount. "" is root_fd itself. The descriptor or -errno.
 */
int node_open(int root_fd, const char *path, int flags) MUST_CHECK;

struct node {
	int fd; /* O_PATH */
	struct statx st;
	uint64_t gen; /* another one for the next file in the same inode */
};

int node_load(int root_fd, const char *path, struct node *ret) MUST_CHECK;
void node_clear(struct node *n);

/*
 * Nothing but access times, numbers of links and numbers of blocks can differ. False also if the
 * times are too coarse to tell.
 */
bool node_untouched(const struct node *a, const struct node *b);

/*
 * Both are of one type. Does not compare the content of directories. t: NULL, or what can differ: content
 * that lies on the same blocks, of which none changed, is not read, and that of encrypted files, which
 * cannot be read, differs if it can. ret_what: enum diff_what. 0 or -errno.
 */
int node_compare(const struct node *a, const struct node *b, const struct touched *t,
		 unsigned *ret_what) MUST_CHECK;

#endif
