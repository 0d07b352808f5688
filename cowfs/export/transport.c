/* SPDX-License-Identifier: MIT */
#include "export/transport_private.h"

int transport_start(struct transport **ret, const struct transport_params *p, char *why, size_t n)
{
	return transport_fuse_loop.start(ret, p, why, n);
}

const struct transport_disk *transport_disk(const struct transport *t)
{
	return &t->disk;
}

int transport_abort_fd(const struct transport *t)
{
	return t->ops->abort_fd(t);
}

int transport_in_use(const struct transport *t)
{
	return t->ops->in_use(t);
}

int transport_detach(struct transport *t)
{
	return t->ops->detach(t);
}

void transport_stop(struct transport *t)
{
	if (t)
		t->ops->stop(t);
}
