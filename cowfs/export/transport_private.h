/* SPDX-License-Identifier: MIT */
/* The interface that a transport implements; private to export/. The functions are those of
 * transport.h. */
#ifndef COWFS_EXPORT_TRANSPORT_PRIVATE_H
#define COWFS_EXPORT_TRANSPORT_PRIVATE_H

#include "export/transport.h"

struct transport_ops {
	const char *name;
	enum transport_kind kind;
	int (*start)(struct transport **ret, const struct transport_params *p, char *why, size_t n);
	int (*abort_fd)(const struct transport *t);
	bool (*loops)(struct transport *t, uint64_t cpu_ns); /* NULL: it cannot tell */
	int (*in_use)(const struct transport *t);
	int (*detach)(struct transport *t);
	void (*stop)(struct transport *t);
	void (*keep)(const struct transport *t, struct transport_kept *ret, int fd[TRANSPORT_FDS]);
	int (*take_over)(struct transport **ret, const struct transport_params *p,
			 const int fd[TRANSPORT_FDS], char *why, size_t n);
};

struct transport {
	const struct transport_ops *ops;
	struct transport_disk disk;
	char reason[160];
};

extern const struct transport_ops transport_fuse_loop;
/* Its start leaves *ret NULL if it fails: nothing is left of it, and another transport may start. */
extern const struct transport_ops transport_ublk;

/* ---- disks whose processes were killed; as in transport.h, for a path of theirs */
bool fuse_loop_left(const char *path);
int fuse_loop_left_label(int fd, const char *label) MUST_CHECK;
int fuse_loop_left_check(int fd, const char *label) MUST_CHECK;
int fuse_loop_left_detach(const char *path, const char *label, bool later) MUST_CHECK;
bool ublk_left_find(const char *label, char *path, size_t n);
/* The block device is gone by itself; its character device is left. */
bool ublk_left(const char *path);
int ublk_left_detach(const char *path, const char *label) MUST_CHECK;
dev_t ublk_left_end(const char *path, const char *label);

#endif
