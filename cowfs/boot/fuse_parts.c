/* SPDX-License-Identifier: MIT */
/*
 * For programs that link libfuse from its archive. An archive is searched for symbols that are
 * still undefined, and each member brings what it refers to. These definitions come first, and keep
 * out members that no path of such a program reaches.
 */
/* The table of requests names it. It answers CUSE_INIT, which only /dev/cuse sends. */
void cuse_lowlevel_init(void *req, unsigned long node, const void *arg);
void cuse_lowlevel_init(void *req, unsigned long node, const void *arg)
{
	(void)req, (void)node, (void)arg;
}

/* Its name in libfuse 3.18 */
void _cuse_lowlevel_init(void *req, unsigned long node, const void *arg);
void _cuse_lowlevel_init(void *req, unsigned long node, const void *arg)
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

/* Of the high level interface, which libfuse 3.18 brings along: a thread that forgets old names. It is never started. */
int fuse_start_thread(void *thread, void *(*work)(void *), void *arg);
int fuse_start_thread(void *thread, void *(*work)(void *), void *arg)
{
	(void)thread, (void)work, (void)arg;
	return -1;
}
