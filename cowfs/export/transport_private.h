/* SPDX-License-Identifier: MIT */
/* The interface that a transport implements; private to export/. The functions are those of
 * transport.h. */
#ifndef COWFS_EXPORT_TRANSPORT_PRIVATE_H
#define COWFS_EXPORT_TRANSPORT_PRIVATE_H

#include "export/transport.h"

struct transport_ops {
	int (*start)(struct transport **ret, const struct transport_params *p, char *why, size_t n);
	int (*abort_fd)(const struct transport *t);
	int (*in_use)(const struct transport *t);
	int (*detach)(struct transport *t);
	void (*stop)(struct transport *t);
};

struct transport {
	const struct transport_ops *ops;
	struct transport_disk disk;
};

extern const struct transport_ops transport_fuse_loop;

#endif
