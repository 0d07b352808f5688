/* SPDX-License-Identifier: MIT */
/*
 * The card as a block device of the kernel, or an image file.
 *
 * An exclusive open holds two descriptors: `claim` (O_RDONLY|O_EXCL), which cannot be shared, and
 * `fd` (O_RDWR), which does everything else. The claim comes first. Some kernels refuse O_RDWR on a
 * read-only device, so a device that a crashed run left read-only must be made writable before the
 * open. Under the claim no other process can mount it meanwhile. (The claim itself could not be
 * opened a second time for writing, because the kernel accepts one holder per open.)
 *
 * A device left read-only by a crash and one protected by hardware look the same until BLKROSET 0.
 * After that, a protected device is still read-only.
 *
 * No path is looked up after blockdev_open: udev may be gone by then, or the root.
 */
#include "card/blockdev.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/broker.h"
#include "base/io.h"
#include "base/msg.h"
#include "base/path.h"
#include "card/sysfs.h"

struct blockdev {
	struct card card;  /* must be first: see blockdev_of */
	int fd, claim;	   /* claim -1: not exclusive */
	int stat_fd;	   /* -1: no counters */
	bool rdonly;	   /* BLOCKDEV_RDONLY */
	bool was_readonly; /* when it was opened */
	bool locked;	   /* we own BLKROSET: on at open, off in commits, cleared on close */
	int there;	   /* the number by which the broker knows it; -1: it does not */
	/* of a part: where it begins */
	uint64_t off_bytes;
};

static struct blockdev *blockdev_of(struct card *c)
{
	return (struct blockdev *)c;
}

static int set_readonly(int fd, bool readonly)
{
	int on = readonly;

	return ioctl(fd, BLKROSET, &on) < 0 ? -errno : 0;
}

/* 1 read-only, 0 writable, or -errno */
static int get_readonly(int fd)
{
	int on = 0;

	return ioctl(fd, BLKROGET, &on) < 0 ? -errno : on != 0;
}

/* ---- operations ---- */

static int blockdev_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	return io_pread_full(blockdev_of(c)->fd, buf, len_bytes,
			     blockdev_of(c)->off_bytes + off_bytes);
}

static int blockdev_write(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	return io_pwrite_full(blockdev_of(c)->fd, buf, len_bytes,
			      blockdev_of(c)->off_bytes + off_bytes);
}

static int blockdev_flush(struct card *c)
{
	return fdatasync(blockdev_of(c)->fd) < 0 ? -errno : 0;
}

static int blockdev_discard(struct card *c, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t range[2] = { blockdev_of(c)->off_bytes + off_bytes, len_bytes };

	return ioctl(blockdev_of(c)->fd, BLKDISCARD, range) < 0 ? -errno : 0;
}

int blockdev_fd_set_writable(int fd, bool writable)
{
	int r = set_readonly(fd, !writable);

	if (r < 0 || !writable)
		return r;
	/* the card's write-protect switch, or the setting of the whole disk, may have changed
	 * meanwhile */
	r = get_readonly(fd);
	if (r == 0)
		return 0;
	(void)set_readonly(fd, true);
	return r < 0 ? r : -EROFS;
}

static int change(struct blockdev *b, bool writable)
{
	return b->there >= 0 && broker_on()
		       ? broker_call(BROKER_MAIN, BROKER_WRITABLE, (uint64_t)b->there, writable)
		       : blockdev_fd_set_writable(b->fd, writable);
}

static int blockdev_set_writable(struct card *c, bool writable)
{
	struct blockdev *b = blockdev_of(c);

	if (b->rdonly)
		return writable ? -EROFS : 0;
	return b->locked ? change(b, writable) : 0;
}

static int blockdev_counters(struct card *c, struct card_counters *ret)
{
	struct blockdev *b = blockdev_of(c);

	return b->stat_fd < 0 ? -ENOTSUP : sysfs_counters(b->stat_fd, ret);
}

static void blockdev_close(struct card *c)
{
	struct blockdev *b = blockdev_of(c);

	if (b->locked)
		(void)change(b, true);
	if (b->fd >= 0)
		close(b->fd);
	if (b->claim >= 0)
		close(b->claim);
	if (b->stat_fd >= 0)
		close(b->stat_fd);
	free(b);
}

/* Not for image files, because there a submission does the whole read. */
static int blockdev_async_fd(struct card *c)
{
	struct blockdev *b = blockdev_of(c);
	int flags = fcntl(b->fd, F_GETFL);
	struct stat st;

	if (flags < 0 || fstat(b->fd, &st) < 0)
		return -errno;
	return (flags & O_DIRECT) && S_ISBLK(st.st_mode) && !b->off_bytes ? b->fd : -ENOTSUP;
}

int blockdev_bytes(int fd, uint64_t *ret)
{
	return ioctl(fd, BLKGETSIZE64, ret) < 0 ? -errno : 0;
}

bool blockdev_gone(int fd, int stat_fd)
{
	uint64_t size_bytes;
	char byte;

	return (stat_fd >= 0 && pread(stat_fd, &byte, 1, 0) < 0 && errno == ENODEV) ||
	       (blockdev_bytes(fd, &size_bytes) == 0 && !size_bytes);
}

static bool is_gone(struct card *c)
{
	return blockdev_gone(blockdev_of(c)->fd, blockdev_of(c)->stat_fd);
}

/* A file or what is not in sysfs does not go away. */
static bool answers(struct card *c)
{
	const struct blockdev *b = blockdev_of(c);
	_Alignas(COW_BLK_BYTES) uint8_t blk[COW_BLK_BYTES];

	return b->stat_fd < 0 || io_pread_full(b->fd, blk, sizeof(blk), b->off_bytes) == 0;
}

static const struct card_ops blockdev_ops = {
	.read = blockdev_read,
	.write = blockdev_write,
	.flush = blockdev_flush,
	.set_writable = blockdev_set_writable,
	.counters = blockdev_counters,
	.async_fd = blockdev_async_fd,
	.discard = blockdev_discard,
	.gone = is_gone,
	.answers = answers,
	.close = blockdev_close,
};

/* ---- opening ---- */

/* A device node. */
struct node {
	int dirfd;
	const char *name;
};

static int open_block(struct node node, int flags)
{
	int fd = openat(node.dirfd, node.name, flags | O_DIRECT | O_CLOEXEC);

	return fd >= 0 ? fd : errno == ENOMEDIUM ? -ENXIO : -errno;
}

static int open_file(struct blockdev *b, int path_fd, unsigned flags, const struct stat *st)
{
	int how = b->rdonly ? O_RDONLY : O_RDWR;

	b->fd = path_reopen(path_fd, how | O_DIRECT);
	if (b->fd == -EINVAL)
		b->fd = path_reopen(path_fd, how);
	if (b->fd < 0)
		return b->fd;
	if ((flags & BLOCKDEV_EXCL) && flock(b->fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	b->card.geo.size_bytes = round_down_u64((uint64_t)st->st_size, COW_BLK_BYTES);
	b->card.geo.erase_block_bytes = 4 * MIB;
	return 0;
}

/* Under the claim: makes a device writable again that an earlier run left read-only. */
static int unlock_leftover(int claim, bool *ret_was_readonly)
{
	int r = get_readonly(claim);

	*ret_was_readonly = r > 0;
	if (r <= 0)
		return r;
	r = set_readonly(claim, false);
	if (r == 0)
		r = get_readonly(claim);
	if (r == 0)
		return 0;
	(void)set_readonly(claim, true);
	return r < 0 ? r : -EROFS;
}

static int open_exclusive(struct blockdev *b, struct node node)
{
	int r;

	b->claim = open_block(node, O_RDONLY | O_EXCL);
	if (b->claim < 0)
		return b->claim;
	if (b->rdonly) {
		b->fd = b->claim, b->claim = -1;
		return 0;
	}
	r = unlock_leftover(b->claim, &b->was_readonly);
	if (r < 0)
		return r;
	b->fd = open_block(node, O_RDWR);
	if (b->fd < 0)
		return b->fd;
	r = set_readonly(b->fd, true);
	b->locked = r == 0;
	return r;
}

static int open_shared(struct blockdev *b, struct node node)
{
	int r;

	b->fd = open_block(node, b->rdonly ? O_RDONLY : O_RDWR);
	if (b->fd < 0)
		return b->fd;
	r = get_readonly(b->fd);
	if (r > 0)
		r = b->rdonly ? 0 : -EROFS;
	return r;
}

static int open_sysfs(dev_t rdev, char *name, size_t name_bytes)
{
	int fd;

	snprintf(name, name_bytes, "/sys/dev/block/%u:%u", major(rdev), minor(rdev));
	fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Reads cost less; not for a node of another user. */
static void set_noatime(int fd)
{
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NOATIME);
}

static int open_device(struct blockdev *b, int path_fd, unsigned flags, const struct stat *st)
{
	_cleanup_close_ int devdir = -1;
	struct card_geometry *geo = &b->card.geo;
	char name[64], link[32];
	struct node node = { AT_FDCWD, link };
	uint64_t size_bytes;
	int r;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd); /* the path is looked up once */
	r = flags & BLOCKDEV_EXCL ? open_exclusive(b, node) : open_shared(b, node);
	if (r < 0)
		return r;
	r = blockdev_bytes(b->fd, &size_bytes);
	if (r < 0)
		return r;
	geo->size_bytes = round_down_u64(size_bytes, COW_BLK_BYTES);
	set_noatime(b->fd);
	devdir = open_sysfs(st->st_rdev, name, sizeof(name));
	if (devdir < 0) {
		msg(MSG_ERR, "%s: no %s: is /sys mounted?", b->card.geo.path, name);
		return devdir;
	}
	b->stat_fd = sysfs_open_stat(devdir);
	return sysfs_geometry(devdir, geo);
}

int blockdev_open(struct card **ret, const char *path, unsigned flags,
		  const struct card_options *opt)
{
	uint32_t erase_block_bytes = opt ? opt->erase_block_bytes : 0;
	_cleanup_close_ int path_fd = -1;
	struct blockdev *b;
	struct stat st;
	char why[2 * PATH_MAX];
	int r;

	if (erase_block_bytes % COW_BLK_BYTES)
		return -EINVAL;
	path_fd = path_open(path, O_PATH, why, sizeof(why));
	if (path_fd < 0 || fstat(path_fd, &st) < 0)
		return path_fd < 0 ? path_fd : -errno;
	if (!S_ISBLK(st.st_mode) && !(S_ISREG(st.st_mode) && (flags & BLOCKDEV_ALLOW_FILE)))
		return -ENOTBLK;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->card.ops = &blockdev_ops;
	b->rdonly = flags & BLOCKDEV_RDONLY;
	b->fd = b->claim = b->stat_fd = b->there = -1;
	snprintf(b->card.geo.path, sizeof(b->card.geo.path), "%s", path);
	r = S_ISBLK(st.st_mode) ? open_device(b, path_fd, flags, &st)
				: open_file(b, path_fd, flags, &st);
	if (r == 0 && !b->card.geo.size_bytes)
		r = -ENXIO;
	if (r < 0) {
		blockdev_close(&b->card);
		return r;
	}
	if (erase_block_bytes) {
		b->card.geo.erase_block_bytes = erase_block_bytes;
		b->card.geo.eb_source = CARD_EB_CONFIGURED;
	}
	*ret = &b->card;
	return 0;
}

int blockdev_claim(int dirfd, const char *name, dev_t rdev, int devdir, bool *ret_was_readonly,
		   int ret_fd[BLOCKDEV_FDS])
{
	struct blockdev b = { .fd = -1, .claim = -1, .stat_fd = -1 };
	struct stat st;
	int r = open_exclusive(&b, (struct node){ dirfd, name });

	*ret_was_readonly = b.was_readonly;
	if (r == 0 && (fstat(b.fd, &st) < 0 || st.st_rdev != rdev))
		r = -ESTALE;
	if (r < 0) {
		if (b.locked)
			(void)set_readonly(b.fd, b.was_readonly);
		if (b.fd >= 0)
			close(b.fd);
		if (b.claim >= 0)
			close(b.claim);
		return r;
	}
	set_noatime(b.fd);
	ret_fd[0] = b.fd;
	ret_fd[1] = b.claim;
	ret_fd[2] = sysfs_open_stat(devdir);
	return 0;
}

int blockdev_part(struct card **ret, struct card *disk, uint64_t off_bytes, uint64_t size_bytes)
{
	struct blockdev *b = calloc(1, sizeof(*b));
	int fd = b ? fcntl(blockdev_of(disk)->fd, F_DUPFD_CLOEXEC, 0) : -1, e = errno;

	if (fd < 0 || (off_bytes | size_bytes) % COW_BLK_BYTES ||
	    !range_fits(off_bytes, size_bytes, disk->geo.size_bytes)) {
		if (fd >= 0)
			close(fd);
		free(b);
		return !b ? -ENOMEM : fd < 0 ? -e : -EINVAL;
	}
	b->card.ops = &blockdev_ops;
	b->card.geo = disk->geo;
	b->card.geo.size_bytes = size_bytes;
	b->card.geo.disk_off_bytes += off_bytes;
	b->off_bytes = off_bytes;
	b->fd = fd;
	b->claim = b->stat_fd = b->there = -1;
	*ret = &b->card;
	return 0;
}

void blockdev_keep(struct card *c, struct blockdev_kept *ret, int ret_fd[BLOCKDEV_FDS])
{
	const struct blockdev *b = blockdev_of(c);

	ret->geo = c->geo;
	ret->locked = b->locked;
	ret_fd[0] = b->fd;
	ret_fd[1] = b->claim;
	ret_fd[2] = b->stat_fd;
}

static void swap(int *a, int *b)
{
	int other = *a;

	*a = *b;
	*b = other;
}

int blockdev_exchange(struct card *c, int fd[BLOCKDEV_FDS])
{
	struct blockdev *b = blockdev_of(c);
	int old_fd = fcntl(b->fd, F_DUPFD_CLOEXEC, 0), e = errno;

	/* the number stays: asynchronous reads know it */
	if (old_fd >= 0 && dup3(fd[0], b->fd, O_CLOEXEC) < 0) {
		e = errno;
		close(steal_fd(&old_fd));
	}
	if (old_fd < 0)
		return -e;
	close(fd[0]);
	fd[0] = old_fd;
	swap(&b->claim, &fd[1]);
	swap(&b->stat_fd, &fd[2]);
	return 0;
}

void blockdev_through_broker(struct card *c, unsigned number)
{
	blockdev_of(c)->there = (int)number;
	c->retries = true;
}

int blockdev_take_over(struct card **ret, const struct blockdev_kept *kept,
		       const int fd[BLOCKDEV_FDS], unsigned number)
{
	struct blockdev *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return -ENOMEM;
	b->card.ops = &blockdev_ops;
	b->card.geo = kept->geo;
	b->locked = kept->locked;
	b->fd = fd[0];
	b->claim = fd[1];
	b->stat_fd = fd[2];
	blockdev_through_broker(&b->card, number);
	/* the process may have died in a commit */
	r = blockdev_set_writable(&b->card, false);
	if (r < 0) {
		free(b);
		return r;
	}
	*ret = &b->card;
	return 0;
}

int blockdev_open_sysfs(const char *path)
{
	char name[64];
	struct stat st;

	return stat(path, &st) < 0 || !S_ISBLK(st.st_mode)
		       ? -ENOTBLK
		       : open_sysfs(st.st_rdev, name, sizeof(name));
}

void blockdev_model(const char *path, char *ret, size_t size_bytes)
{
	_cleanup_close_ int devdir = blockdev_open_sysfs(path);

	ret[0] = '\0';
	if (devdir >= 0)
		sysfs_model(devdir, ret, size_bytes);
}

const char *blockdev_layer(const char *path)
{
	_cleanup_close_ int devdir = blockdev_open_sysfs(path);

	return devdir >= 0 ? sysfs_layer(devdir) : NULL;
}

void blockdev_identity(const char *path, char *ret, size_t size_bytes)
{
	_cleanup_close_ int devdir = blockdev_open_sysfs(path);
	struct card_geometry geo;

	ret[0] = '\0';
	if (devdir >= 0 && sysfs_geometry(devdir, &geo) == 0)
		snprintf(ret, size_bytes, "%s", geo.identity);
}

int blockdev_set_readonly(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : set_readonly(fd, true);
}
