/* SPDX-License-Identifier: MIT */
/*
 * The volume as one FUSE file. Its mount is never attached to the tree, so nothing can see,
 * force-unmount or abort it.
 */
#ifndef COWFS_EXPORT_FUSE_H
#define COWFS_EXPORT_FUSE_H

#include "base/util.h"
#include "export/throttle.h"
#include "export/view.h"

#define FUSE_IMAGE_NAME "cowfs-view"

struct fuse_export;

/*
 * The longest time in seconds that Linux lets a request wait before it ends the connection, and with it the volume
 * (fs.fuse.default_request_timeout and max_request_timeout, Linux 6.15); 0: for ever. Each connection that this process starts
 * later asks for it.
 */
uint64_t fuse_longest_wait_s(void);

/* What a process that takes the connection over must know: the kernel's first request. */
struct fuse_kept {
	uint32_t init_bytes;
	char init[508];
};

/*
 * kept: NULL, or filled in. fuse_fd: an open /dev/fuse. It is duplicated here and not closed, because the parent process
 * keeps one, too. Mounts (fsopen, fsconfig, fsmount), starts the serving threads, opens the file
 * through the mount descriptor and closes that descriptor. Refuses to start without FUSE_ASYNC_DIO,
 * because a short write would be silent loss: -EPROTONOSUPPORT. -ETIMEDOUT: for 10 s the kernel
 * sent no request, or accepted no reply. *ret_file_fd: O_RDWR|O_DIRECT descriptor of the file, for
 * the loop device; the caller closes it. name: of the file. sysfs and losetup show it as the backing
 * file, and programs take two disks with one backing file for one disk. abort_fd: with a broker, that of
 * transport_prepare, which then is the export's; *ret_file_fd is -1 then, because the broker has the file.
 */
int fuse_export_start(struct fuse_export **ret, struct view *v, int fuse_fd, int abort_fd,
		      const char *name, struct fuse_kept *kept, int *ret_file_fd) MUST_CHECK;
/*
 * Serves the file on the connection of a process that has died. The kernel sends again whatever that
 * process has not answered (kernel >= 6.9). abort_fd: the connection's abort switch, or -1; owned by
 * the export on success. throttle: as in fuse_export_set_throttle. Opens nothing.
 */
int fuse_export_take_over(struct fuse_export **ret, struct view *v, int fuse_fd, int abort_fd,
			  struct fuse_kept *kept, struct throttle *throttle) MUST_CHECK;
/* From now on writes pass this throttle. It is started here and stopped by fuse_export_stop.
 * Call before the loop device exists. */
int fuse_export_set_throttle(struct fuse_export *e, struct throttle *throttle) MUST_CHECK;
/* An image as a FUSE file. */
struct fuse_image {
	void *ctx;
	uint64_t volume_blks;
	/* several threads; may block; any alignment, inside the image: 0 or -errno */
	int (*read)(void *ctx, uint64_t off_bytes, void *buf, size_t len_bytes);
	int (*write)(void *ctx, uint64_t off_bytes, const void *buf, size_t len_bytes);
	/* likewise; the range reads zero from then on. NULL: it takes no discards */
	int (*punch)(void *ctx, uint64_t off_bytes, uint64_t len_bytes);
	/* the connection has ended: call fuse_export_end from another thread. May be NULL. */
	void (*gone)(void *ctx);
};
/*
 * Serves the image as a file on a connection that another process has mounted. fuse_fd is
 * duplicated, and set not to block.
 */
int fuse_export_image(struct fuse_export **ret, const struct fuse_image *image,
		      int fuse_fd) MUST_CHECK;
/*
 * The same in the calling thread, in two steps, because the second one may run in a child without
 * privileges that learns there what the image is. fuse_image_open: *ret_fd is the duplicate, which
 * the child needs. fuse_image_serve returns when the connection ends, and opens nothing; e stays.
 */
int fuse_image_open(struct fuse_export **ret, int fuse_fd, int *ret_fd) MUST_CHECK;
void fuse_image_serve(struct fuse_export *e, const struct fuse_image *image);
void fuse_image_close(struct fuse_export *e); /* NULL allowed */
/* Ends the service, also while the file is in use: its users get errors. Waits for reads of the
 * image that are under way. Frees e. */
void fuse_export_end(struct fuse_export *e);
/* A descriptor of the connection's abort switch, owned by e, or -1 if the kernel has none. Any byte
 * written to it ends all I/O with errors at once, even if another process holds /dev/fuse open. For
 * the parent process. */
int fuse_export_abort_fd(const struct fuse_export *e);
/* Call after the loop device and the descriptor are gone. Joins the threads and frees e. The last
 * close of the file ends the session, so this blocks while anything holds the file (a lazily
 * detached loop device, for example). */
void fuse_export_stop(struct fuse_export *e);
/* on: requests that wait for a card that is away fail, so that whoever holds the file can let go of it. */
void fuse_export_refuse(struct fuse_export *e, bool on);
/* As serve_loops. */
bool fuse_export_loops(struct fuse_export *e, uint64_t cpu_ns);

#endif
