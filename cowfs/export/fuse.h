/* SPDX-License-Identifier: MIT */
/*
 * The volume as one FUSE file, whose mount is never attached to the tree, so that nothing can see,
 * force-unmount or abort it.
 */
#ifndef COWFS_EXPORT_FUSE_H
#define COWFS_EXPORT_FUSE_H

#include "base/util.h"
#include "export/gate.h"
#include "export/view.h"

struct fuse_export;

/*
 * fuse_fd: an open /dev/fuse, duplicated here and not closed (the parent process keeps one, too).
 * Mounts (fsopen, fsconfig, fsmount), starts the serving threads and opens the file through the
 * mount descriptor, which is closed again. Refuses to start without FUSE_ASYNC_DIO (a short write
 * would be silent loss): -EPROTONOSUPPORT. -ETIMEDOUT: for 10 s the kernel said nothing, or took no
 * reply. *ret_file_fd: O_RDWR|O_DIRECT descriptor of the file, for the loop device; the caller
 * closes it.
 */
int fuse_export_start(struct fuse_export **ret, struct view *v, int fuse_fd,
		      int *ret_file_fd) MUST_CHECK;
/* From now on writes pass this gate, which is started here and stopped by fuse_export_stop. Before
 * the loop device is there. */
int fuse_export_set_gate(struct fuse_export *e, struct gate *gate) MUST_CHECK;
/* A descriptor of the connection's abort switch, e's own, or -1 if the kernel does not give one:
 * any byte written to it ends all I/O with errors at once, whoever still holds /dev/fuse open. For
 * the parent process. */
int fuse_export_abort_fd(const struct fuse_export *e);
/* After the loop device and the descriptor are gone: joins the threads, frees. The last close of
 * the file is what ends the session, so this waits as long as anybody (a lazily detached loop
 * device) holds it. */
void fuse_export_stop(struct fuse_export *e);

#endif
