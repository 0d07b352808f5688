/* SPDX-License-Identifier: MIT */
/*
 * Loop device: attach with direct I/O, queue limits, detach that waits until the device is free.
 *
 * Notes on the design
 * - LOOP_CLR_FD is only a request. With another opener (udev's probe, a status tool) the device is
 *   marked AUTOCLEAR and lives on. So detach first claims the device (O_EXCL: no mount can come in
 *   between), then requests, closes, and polls until the device no longer uses our file.
 * - max_sectors_kb: FUSE would cut a request above its max_write into two. discard_max_bytes: the
 *   default of 4 GiB is one fallocate under the inode's lock.
 * - The limits of the queue, and of dirty pages, outlive LOOP_CLR_FD. Limits left by a killed daemon must not
 *   apply to this one, and ours must not slow the next user of the device number. Where a file system stops
 *   writing, a program waits for ever below a limit of dirty pages.
 * - Linux freezes the queue for each change of a limit, and of flags, and waits for a grace period of RCU: some
 *   15 ms. So a limit that has its value is left alone, and no device is AUTOCLEAR first, and then not.
 */
#include "export/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <linux/fs.h>
#include <linux/loop.h>

#include "base/io.h"
#include "base/thread.h"
#include "export/bdi.h"
#include "export/fuse_mount.h"

#define ATTACH_TRIES 64
#define DISCARD_MAX_BYTES (64 * MIB)
#define DETACH_WAIT_NS (5 * 1000000000ull)
#define LIMIT_WAIT_NS (1 * 1000000000ull)
#define POLL_US 2000
#define CONFIGURE_S 5u

static int open_again(const struct loop_dev *d, int flags)
{
	int fd = openat(d->dev_dirfd, strrchr(d->path, '/') + 1, flags | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static bool is_bound(int number)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/block/loop%d/loop", number);
	return access(path, F_OK) == 0;
}

/*
 * While a device is configured its number is still free, and whoever asks for a free one gets the lowest, and waits for us. So this
 * takes one above that.
 */
static int own_number(int ctl_fd, int above)
{
	int n = ioctl(ctl_fd, LOOP_CTL_GET_FREE);

	if (n < 0)
		return -errno;
	for (n += above; is_bound(n); n++)
		;
	return ioctl(ctl_fd, LOOP_CTL_ADD, n) < 0 && errno != EEXIST ? -errno : n;
}

/* A connection whose server does not answer is aborted. */
static int configure_guarded(int fd, const struct loop_config *config, int abort_fd)
{
	struct fuse_guard guard;
	int r = abort_fd < 0 ? 0 : fuse_guard_start(&guard, abort_fd, CONFIGURE_S);

	if (r < 0)
		return r;
	if (ioctl(fd, LOOP_CONFIGURE, config) < 0)
		r = -errno;
	return abort_fd >= 0 && fuse_guard_stop(&guard) ? -ETIMEDOUT : r;
}

/* One attempt. -EBUSY: another process configured the same free device first, or still detaches it. */
static int take_free(struct loop_dev *d, int ctl_fd, int above, const struct loop_config *config,
		     loop_note *note, int abort_fd)
{
	int n = own_number(ctl_fd, above), fd, r;
	struct stat st;

	if (n < 0)
		return n;
	d->number = (unsigned)n;
	snprintf(d->path, sizeof(d->path), "/dev/loop%d", n);
	fd = open_again(d, O_RDWR);
	if (fd < 0)
		return fd == -ENXIO ? -EBUSY : fd;
	r = fstat(fd, &st) < 0 ? -errno : note ? note(d->path, st.st_rdev) : 0;
	if (r == 0)
		r = configure_guarded(fd, config, abort_fd);
	if (r < 0) {
		close(fd);
		return r;
	}
	d->rdev = st.st_rdev;
	d->fd = fd;
	return 0;
}

enum { MAX_SECTORS, DISCARD_MAX, NR_REQUESTS, READ_AHEAD };

static const char *const limit_name[LOOP_LIMITS] = {
	[MAX_SECTORS] = "max_sectors_kb",
	[DISCARD_MAX] = "discard_max_bytes",
	[NR_REQUESTS] = "nr_requests",
	[READ_AHEAD] = "read_ahead_kb",
};

/* -EBUSY for a moment while another process changes the same queue: nr_requests only tries its
 * lock. */
static int set_limit(const struct loop_dev *d, unsigned which, uint64_t value)
{
	uint64_t until_ns = now_ns() + LIMIT_WAIT_NS, now;
	char text[24];
	int r;

	if (io_read_u64(d->queue_dirfd, limit_name[which], &now) == 0 && now == value)
		return 0;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	while ((r = io_write_text(d->queue_dirfd, limit_name[which], text)) == -EBUSY &&
	       now_ns() < until_ns)
		usleep(POLL_US);
	return r;
}

static int open_queue(struct loop_dev *d)
{
	char path[64];
	int r = 0;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/queue", major(d->rdev), minor(d->rdev));
	d->queue_dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->queue_dirfd < 0)
		return -errno;
	for (unsigned i = 0; i < LOOP_LIMITS && r == 0; i++)
		r = io_read_u64(d->queue_dirfd, limit_name[i], &d->found[i]);
	return r;
}

static void restore_queue(struct loop_dev *d)
{
	if (d->queue_dirfd < 0)
		return;
	/* a discard size of 0 means that the file could not discard; written back it would be a
	 * limit that Linux never lifts */
	for (unsigned i = 0; i < LOOP_LIMITS; i++)
		if (d->found[i])
			(void)set_limit(d, i, d->found[i]);
	close(steal_fd(&d->queue_dirfd));
}

static int set_queue(struct loop_dev *d, const struct loop_limits *l)
{
	uint64_t max_hw_kb;
	int r = open_queue(d);

	if (!r)
		r = io_read_u64(d->queue_dirfd, "max_hw_sectors_kb", &max_hw_kb);
	if (!r)
		r = set_limit(d, MAX_SECTORS,
			      min_u64(max_hw_kb, min_u64(l->max_kb, LOOP_REQUEST_KB)));
	if (!r && d->found[DISCARD_MAX] > DISCARD_MAX_BYTES)
		r = set_limit(d, DISCARD_MAX, DISCARD_MAX_BYTES);
	if (!r)
		r = set_limit(d, NR_REQUESTS, l->tags);
	if (r == -EINVAL && d->found[NR_REQUESTS] <= l->tags)
		r = 0; /* the driver is configured with fewer */
	return !r && ioctl(d->fd, BLKRASET, l->read_ahead_kb * 2ul) < 0 ? -errno : r;
}

static int read_first(int fd)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);

	return buf ? io_pread_full(fd, buf, COW_BLK_BYTES, 0) : -ENOMEM;
}

/* This process answers the read: without its other descriptors, so that a kill ends it. */
static int verify(const struct loop_dev *d)
{
	_cleanup_close_ int fd = -1;
	struct loop_info64 info;

	if (ioctl(d->fd, LOOP_GET_STATUS64, &info) < 0)
		return -errno;
	if (!(info.lo_flags & LO_FLAGS_DIRECT_IO))
		return -EOPNOTSUPP;
	fd = open_again(d, O_RDONLY | O_DIRECT);
	return fd < 0 ? fd : thread_call_alone("cowfs-verify", fd, read_first);
}

/* Takes a free device and configures it. */
static int configure(struct loop_dev *ret, int file_fd, const char *label, uint32_t flags,
		     loop_note *note, int abort_fd)
{
	struct loop_config config = { .fd = (uint32_t)file_fd,
				      .block_size = 512,
				      .info.lo_flags = LO_FLAGS_DIRECT_IO | flags };
	struct loop_dev d = { .fd = -1, .queue_dirfd = -1 };
	_cleanup_close_ int dev_dirfd = open("/dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int ctl_fd = -1;
	int r = -EBUSY;

	if (dev_dirfd < 0)
		return -errno;
	ctl_fd = openat(dev_dirfd, "loop-control", O_RDWR | O_CLOEXEC);
	if (ctl_fd < 0)
		return -errno;
	d.dev_dirfd = dev_dirfd;
	snprintf((char *)config.info.lo_file_name, LO_NAME_SIZE, "%s", label);
	for (int i = 0; i < ATTACH_TRIES && r == -EBUSY; i++)
		r = take_free(&d, ctl_fd, 1 + i, &config, note, abort_fd);
	if (r < 0)
		return r;
	bdi_limit_forget(d.rdev);
	steal_fd(&dev_dirfd);
	*ret = d;
	return 0;
}

static void give_back(struct loop_dev *d)
{
	ioctl(d->fd, LOOP_CLR_FD);
	close(steal_fd(&d->fd));
	restore_queue(d);
	close(steal_fd(&d->dev_dirfd));
}

int loop_attach(struct loop_dev *ret, int file_fd, const struct loop_limits *limits,
		const char *label, bool temporary, loop_note *note, int abort_fd)
{
	const int writable = 0;
	struct loop_dev d;
	int r = configure(&d, file_fd, label, temporary ? LO_FLAGS_AUTOCLEAR : 0, note, abort_fd);

	if (r < 0)
		return r;
	if (limits)
		r = set_queue(&d, limits);
	/* an earlier user of this number may have set it read-only, which outlives LOOP_CLR_FD */
	if (!r && ioctl(d.fd, BLKROSET, &writable) < 0)
		r = -errno;
	if (!r)
		r = verify(&d);
	if (r < 0) {
		give_back(&d);
		return r;
	}
	*ret = d;
	return 0;
}

int loop_attach_lower(struct loop_dev *ret, int file_fd, const char *label)
{
	return configure(ret, file_fd, label, LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR, NULL, -1);
}

void loop_keep(const struct loop_dev *d, struct loop_kept *ret)
{
	ret->number = d->number;
	ret->rdev = d->rdev;
	memcpy(ret->path, d->path, sizeof(ret->path));
}

void loop_take_over(struct loop_dev *ret, const struct loop_kept *kept, int fd)
{
	*ret = (struct loop_dev){ .fd = fd,
				  .dev_dirfd = -1,
				  .queue_dirfd = -1,
				  .number = kept->number,
				  .rdev = kept->rdev };
	memcpy(ret->path, kept->path, sizeof(ret->path));
}

int loop_in_use(const struct loop_dev *d)
{
	int fd = open_again(d, O_RDONLY | O_EXCL);

	if (fd < 0)
		return fd == -EBUSY ? 1 : fd;
	close(fd);
	return 0;
}

/* Does the device still use the file in info? 1, 0 or -errno; the new descriptor in *ret_fd if
 * 1. */
static int still_attached(const struct loop_dev *d, const struct loop_info64 *info, int *ret_fd)
{
	int fd = open_again(
		d,
		/* closing a writable descriptor wakes udev, whose probe would then hold the
		 * device */
		O_RDONLY);
	struct loop_info64 now;

	if (fd == -ENXIO || fd == -ENOENT) /* already being removed, or gone */
		return 0;
	if (fd < 0)
		return fd;
	if (ioctl(fd, LOOP_GET_STATUS64, &now) == 0 && now.lo_device == info->lo_device &&
	    now.lo_inode == info->lo_inode) {
		*ret_fd = fd;
		return 1;
	}
	close(fd);
	return 0;
}

int loop_detach(struct loop_dev *d)
{
	uint64_t until_ns = now_ns() + DETACH_WAIT_NS;
	struct loop_info64 info;
	int fd = open_again(d, O_RDONLY | O_EXCL), r;

	if (fd < 0)
		return fd;
	if (ioctl(fd, LOOP_GET_STATUS64, &info) < 0 || ioctl(fd, LOOP_CLR_FD) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	close(d->fd);
	d->fd = fd;
	for (;;) {
		close(steal_fd(&d->fd));
		r = still_attached(d, &info, &d->fd);
		if (r < 0)
			return r;
		if (r == 0)
			break;
		if (now_ns() > until_ns) {
			/* another process has it open: take AUTOCLEAR back and stay attached */
			info.lo_flags &= ~(uint32_t)LO_FLAGS_AUTOCLEAR;
			(void)ioctl(d->fd, LOOP_SET_STATUS64, &info);
			return -EBUSY;
		}
		usleep(POLL_US);
	}
	restore_queue(d);
	close(steal_fd(&d->dev_dirfd));
	return 0;
}
