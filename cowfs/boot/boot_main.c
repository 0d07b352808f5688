/* SPDX-License-Identifier: MIT */
/*
 * cowfs-boot: cowfs and cowctl of an initramfs in one program, because they share most of their
 * code. It is the daemon unless it is called as cowctl.
 *
 * libfuse is linked from its archive if there is one. An archive is searched for symbols that are
 * still undefined, and each member brings what it refers to. The definitions below come first, and
 * keep out members that no path of this program reaches.
 */
#include <string.h>

#include "cli/cmd.h"
#include "daemon/cowfs.h"

/* The table of requests names it. It answers CUSE_INIT, which only /dev/cuse sends. */
void cuse_lowlevel_init(void *req, unsigned long node, const void *arg);
void cuse_lowlevel_init(void *req, unsigned long node, const void *arg)
{
	(void)req, (void)node, (void)arg;
}

/* A channel is a descriptor of its own for each thread of libfuse's loop, which needs
 * pthread_cancel. cowfs has its own threads, and NULL for a channel. */
void *fuse_chan_get(void *channel);
void *fuse_chan_get(void *channel)
{
	return channel;
}

void fuse_chan_put(void *channel);
void fuse_chan_put(void *channel)
{
	(void)channel;
}

int main(int argc, char **argv)
{
	const char *slash = argc ? strrchr(argv[0], '/') : NULL;
	const char *name = !argc ? "" : slash ? slash + 1 : argv[0];

	return !strcmp(name, "cowctl") ? cowctl_main(argc, argv) : cowfs_main(argc, argv);
}
