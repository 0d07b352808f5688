/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests: a libfuse that was built without custom I/O, as 3.18 of Debian
 * testing. 3.17 and newer have a name of their own for the call.
 */
#include <errno.h>
#include <stddef.h>

struct fuse_session;
struct fuse_custom_io;

int fuse_session_custom_io(struct fuse_session *se, const struct fuse_custom_io *io, int fd);
int fuse_session_custom_io_317(struct fuse_session *se, const struct fuse_custom_io *io,
			       size_t op_bytes, int fd);

int fuse_session_custom_io(struct fuse_session *se, const struct fuse_custom_io *io, int fd)
{
	return -ENOTSUP;
}

int fuse_session_custom_io_317(struct fuse_session *se, const struct fuse_custom_io *io,
			       size_t op_bytes, int fd)
{
	return fuse_session_custom_io(se, io, fd);
}
