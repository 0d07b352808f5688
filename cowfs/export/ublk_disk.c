// SPDX-License-Identifier: MIT
/*
 * Notes on the design
 * - The driver asks for CAP_SYS_ADMIN at its control device only. Who has the character device may serve
 *   (ublk_ch_open, ublk_ch_mmap, ublk_ch_uring_cmd), whatever its user.
 * - START_DEV and END_USER_RECOVERY are told a process. Linux 6.12 keeps its number and does nothing with
 *   it; newer ones want that of the process that has opened the character device (ublksrv_tgid): this one.
 * - A worker that an attacker has taken over may never fetch, and both commands wait for that. So a wait
 *   ends with the worker; the end of this process cancels the command.
 * - No volatile cache: above cowfs a flush promises only "in RAM", so the kernel need not ask.
 * - Without a recovery, a server that dies ends the disk. The exit of the ring thread cancels the
 *   commands that wait in the kernel, and the first cancelled one makes the driver fail all I/O and
 *   remove the disk. This holds without the supervisor. But if all tags were with the server, none
 *   would be cancelled, and the I/O would fail only after the 30 s time limit of requests. So the
 *   queue uses one tag less than there are (nr_requests). Kernels from 6.15 on wait for the release of
 *   the character device instead.
 * - With it, the kernel queues requests again once the character device is released, and they wait
 *   for the next server, or for a STOP_DEV. The device can be open once only, so nobody can keep it:
 *   the next broker opens it in the kept /dev.
 * - The character device stays until DEL_DEV, also after a kill. It has a mark of the volume.
 */
#include "export/ublk_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <linux/fs.h>

#include "base/crc32c.h"
#include "base/holder.h"
#include "base/io.h"
#include "export/transport_private.h"
#include "export/ublk_control.h"

#define DISK_NAME "ublkb"
#define DISK_PREFIX "/dev/" DISK_NAME
#define CHAR_NAME "ublkc"
#define LEFT_WAIT_NS (5 * 1000000000ull) /* for the release of a server that was killed */
#define LEFT_POLL_NS 20000000
#define MARK (UINT64_C(0x636f776673) << 24) /* "cowfs"; the lower bits are of the label */
#define DISCARD_MAX_BYTES (64 * MIB)
#define SECTOR_SHIFT 9
#define DETACH_WAIT_NS (5 * 1000000000ull)
#define DETACH_POLL_NS 20000000
#define NODE_TRIES 100 /* udev may make it */
#define NODE_POLL_NS 10000000
#define RELEASE_WAIT_NS (60 * 1000000000ull) /* of a server that has died */
#define RELEASE_POLL_MS 1

static uint64_t mark_of(const char *label)
{
	return MARK ^ crc32c(0, label, strlen(label));
}

bool ublk_is_of(struct ublk_control *c, uint32_t id, const char *label)
{
	struct ublk_dev_info info = { 0 };

	return ublk_control_info(c, id, &info) == 0 && info.server_flags == mark_of(label);
}

/* ---- start ---- */

/* The number in "ublkb7" or "ublkc7"; what follows a '/' counts. */
static bool number_of(const char *path, const char *kind, uint32_t *ret)
{
	const char *slash = strrchr(path, '/'), *number = slash ? slash + 1 : path;
	size_t len;

	if (strncmp(number, kind, strlen(kind)))
		return false;
	number += strlen(kind);
	len = strlen(number);
	if (!len || len > 7 || strspn(number, "0123456789") != len)
		return false;
	*ret = (uint32_t)strtoul(number, NULL, 10);
	return true;
}

int ublk_disk_take(struct ublk_disk *d, int disk_fd, int sys_dirfd)
{
	char path[64], target[256];
	struct stat st;
	ssize_t n;

	if (fstat(disk_fd, &st) < 0)
		return -errno;
	snprintf(path, sizeof(path), "dev/block/%u:%u", major(st.st_rdev), minor(st.st_rdev));
	n = S_ISBLK(st.st_mode) ? readlinkat(sys_dirfd, path, target, sizeof(target) - 1) : -1;
	if (n < 0)
		return -ESRCH;
	target[n] = '\0';
	if (!number_of(target, DISK_NAME, &d->id))
		return -ESRCH;
	d->fd = fcntl(disk_fd, F_DUPFD_CLOEXEC, 3);
	if (d->fd < 0)
		return -errno;
	d->rdev = st.st_rdev;
	d->added = d->live = true;
	return 0;
}

static int open_control(struct ublk_disk *d)
{
	int fd = openat(d->dev_dirfd, strrchr(UBLK_CONTROL_PATH, '/') + 1, O_RDWR | O_CLOEXEC);
	int r = fd < 0 ? -errno : ublk_control_take(&d->control, fd);

	if (r < 0 && fd >= 0)
		close(fd);
	return r == -ENOENT ? -ENODEV : r;
}

static void forget(struct ublk_disk *d)
{
	d->added = d->live = d->queued = false;
	d->rdev = 0;
	if (d->fd >= 0)
		close(steal_fd(&d->fd));
}

void ublk_disk_open(struct ublk_disk *d, const char *label)
{
	d->mark = mark_of(label);
	d->error = open_control(d);
	if (d->error == 0)
		ublk_control_until(d->control, d->worker_fd);
	if (d->error == 0 && d->added && !ublk_is_of(d->control, d->id, label))
		d->error = -ESTALE;
	if (d->error < 0)
		forget(d);
	else if (d->added && d->end)
		*d->end = d->id + 1; /* whatever the worker has left there */
}

static int open_node(const struct ublk_disk *d, const char *prefix, int flags)
{
	const struct timespec nap = { .tv_nsec = NODE_POLL_NS };
	char name[32];
	int fd = -1;

	snprintf(name, sizeof(name), "%s%u", prefix, d->id);
	for (int i = 0; i < NODE_TRIES && fd < 0; i++) {
		fd = openat(d->dev_dirfd, name, flags | O_CLOEXEC);
		if (fd < 0 && errno != ENOENT)
			break;
		if (fd < 0)
			nanosleep(&nap, NULL);
	}
	return fd < 0 ? -errno : fd;
}

int ublk_disk_reopen(const struct ublk_disk *d, int flags)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), DISK_NAME "%u", d->id);
	fd = openat(d->dev_dirfd, name, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int add_device(struct ublk_disk *d)
{
	struct ublk_dev_info info = { .nr_hw_queues = 1,
				      .queue_depth = (uint16_t)d->depth,
				      .max_io_buf_bytes = UBLK_IO_BYTES_MAX,
				      .dev_id = UINT32_MAX,
				      .flags = UBLK_F_NEED_GET_DATA | UBLK_F_CMD_IOCTL_ENCODE,
				      .server_flags = d->mark };
	int r;

	if (d->end)
		info.flags |= UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE;
	r = ublk_control_add(d->control, &info);
	if (r < 0)
		return r;
	d->added = true;
	d->id = info.dev_id;
	if (d->end)
		*d->end = d->id + 1;
	return info.flags & UBLK_F_NEED_GET_DATA ? 0 : -EOPNOTSUPP;
}

static int set_params(struct ublk_disk *d, uint64_t bytes, uint64_t max_io_bytes)
{
	struct ublk_params params = {
		.types = UBLK_PARAM_TYPE_BASIC | UBLK_PARAM_TYPE_DISCARD,
		.basic = { .logical_bs_shift = SECTOR_SHIFT,
			   .physical_bs_shift = SECTOR_SHIFT,
			   .io_opt_shift = SECTOR_SHIFT,
			   .io_min_shift = SECTOR_SHIFT,
			   .max_sectors = (uint32_t)(min_u64(max_io_bytes, UBLK_IO_BYTES_MAX) >>
						     SECTOR_SHIFT),
			   .dev_sectors = bytes >> SECTOR_SHIFT },
		.discard = { .discard_granularity = COW_BLK_BYTES,
			     .max_discard_sectors = DISCARD_MAX_BYTES >> SECTOR_SHIFT,
			     .max_write_zeroes_sectors = DISCARD_MAX_BYTES >> SECTOR_SHIFT,
			     .max_discard_segments = 1 },
	};

	return ublk_control_set_params(d->control, d->id, &params);
}

/* Has the worker closed its end? Waits for that as long. */
static bool worker_gone(const struct ublk_disk *d, int wait_ms)
{
	struct pollfd p = { .fd = d->worker_fd };

	return poll(&p, 1, wait_ms) > 0;
}

/* The kernel releases the device of a dead server some time after its last thread. */
static int wait_released(const struct ublk_disk *d)
{
	uint64_t until_ns = now_ns() + RELEASE_WAIT_NS;
	int r;

	while ((r = ublk_control_recover(d->control, d->id)) == -EBUSY && now_ns() < until_ns)
		if (worker_gone(d, RELEASE_POLL_MS))
			return -ECONNRESET;
	return r;
}

/* The kernel warns of a request of less than a page. */
static bool valid(const struct ublk_disk *d, uint64_t bytes, uint64_t max_io_bytes)
{
	return bytes <= d->card_bytes && max_io_bytes >= (uint64_t)sysconf(_SC_PAGESIZE) &&
	       max_io_bytes % (1u << SECTOR_SHIFT) == 0;
}

int ublk_disk_queue(struct ublk_disk *d, unsigned depth, uint64_t bytes, uint64_t max_io_bytes)
{
	bool taken = d->live;
	int r = d->error;

	if (r == 0 && d->made)
		return -EALREADY;
	if (r == 0 && !taken && !valid(d, bytes, max_io_bytes))
		r = -EINVAL;
	if (r == 0) {
		d->made = true;
		d->depth = (unsigned)min_u64(depth, UBLK_DEPTH_MAX);
		r = taken ? wait_released(d) : add_device(d);
	}
	if (r == 0 && !taken)
		r = set_params(d, bytes, max_io_bytes);
	if (r == 0)
		r = open_node(d, CHAR_NAME, O_RDWR);
	d->queued = r >= 0;
	if (r < 0 && d->added && !taken)
		(void)!ublk_disk_remove(d, true);
	return r;
}

static int set_queue(const struct ublk_disk *d, unsigned read_ahead_kb)
{
	_cleanup_close_ int queue_dirfd = -1;
	char path[64], text[16];
	int r;

	snprintf(path, sizeof(path), "dev/block/%u:%u/queue", major(d->rdev), minor(d->rdev));
	queue_dirfd = openat(d->sys_dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (queue_dirfd < 0)
		return -errno;
	/* requests are sorted and merged below cowfs, if at all; a scheduler also has tags of its
	 * own, to which nr_requests would apply */
	(void)!io_write_text(queue_dirfd, "scheduler", "none");
	snprintf(text, sizeof(text), "%u", d->depth - 1);
	r = io_write_text(queue_dirfd, "nr_requests", text);
	if (r >= 0 && ioctl(d->fd, BLKRASET, read_ahead_kb * 2ul) < 0)
		r = -errno;
	return r < 0 ? r : 0;
}

int ublk_disk_start(struct ublk_disk *d, unsigned read_ahead_kb)
{
	struct stat st;
	int r;

	if (!d->queued)
		return -ENODEV;
	if (d->live)
		return ublk_control_recovered(d->control, d->id);
	r = ublk_control_start(d->control, d->id);
	if (r < 0)
		return r;
	d->live = true;
	r = d->fd = open_node(d, DISK_NAME, O_RDWR);
	if (r >= 0 && fstat(d->fd, &st) < 0)
		r = -errno;
	if (r < 0)
		return r;
	d->rdev = st.st_rdev;
	return set_queue(d, read_ahead_kb);
}

/* ---- end ---- */

int ublk_disk_in_use(const struct ublk_disk *d)
{
	int fd = ublk_disk_reopen(d, O_RDONLY | O_EXCL);

	if (fd < 0)
		return fd == -EBUSY ? 1 : fd;
	close(fd);
	return 0;
}

/* STOP_DEV would take the disk away from its users. The caller claims the disk, so no mount can come in
 * between. */
static int wait_unused(const struct ublk_disk *d)
{
	const struct timespec nap = { .tv_nsec = DETACH_POLL_NS };
	uint64_t until_ns = now_ns() + DETACH_WAIT_NS;
	char holder[64];

	while (holder_find(d->proc_dirfd, d->rdev, holder, sizeof(holder))) {
		if (now_ns() > until_ns)
			return -EBUSY;
		nanosleep(&nap, NULL);
	}
	return 0;
}

int ublk_disk_remove(struct ublk_disk *d, bool failed)
{
	_cleanup_close_ int claim_fd = -1;
	int r = 0;

	if (d->live && !failed) {
		r = claim_fd = ublk_disk_reopen(d, O_RDONLY | O_EXCL);
		if (r >= 0)
			r = wait_unused(d);
	}
	/* without a start, too: it cancels the worker's commands, and its ring thread ends */
	if (r == 0)
		r = ublk_control_stop(d->control, d->id);
	if (r < 0)
		return r;
	if (d->end) /* from the deletion on the number may be another program's */
		*d->end = 0;
	forget(d);
	return ublk_control_delete(d->control, d->id);
}

/* ---- a disk whose processes were killed ---- */

/* The path comes from a worker that may have been taken over. */
static bool left_number(const char *path, uint32_t *ret)
{
	return !strncmp(path, DISK_PREFIX, strlen(DISK_PREFIX)) &&
	       !strchr(path + strlen("/dev/"), '/') && number_of(path, DISK_NAME, ret);
}

bool ublk_left(const char *path)
{
	char ctl[48];
	uint32_t id;

	if (!left_number(path, &id))
		return false;
	snprintf(ctl, sizeof(ctl), "/dev/ublkc%u", id);
	return access(ctl, F_OK) == 0;
}

bool ublk_left_find(const char *label, char *path, size_t n)
{
	struct ublk_control *c = NULL;
	const struct dirent *e;
	bool found = false;
	uint32_t id = 0;
	DIR *dev;

	if (ublk_control_open(&c) < 0)
		return false;
	dev = opendir("/dev");
	while (dev && !found && (e = readdir(dev)))
		found = number_of(e->d_name, CHAR_NAME, &id) && ublk_is_of(c, id, label);
	if (found)
		snprintf(path, n, DISK_PREFIX "%u", id);
	if (dev)
		closedir(dev);
	ublk_control_close(c);
	return found;
}

/* For a device with the mark of the label, and in that state. -ESRCH: it is another one; -EBUSY: it
 * still has a server; -EAGAIN: it is in another state. */
static int command_left(const char *path, const char *label, unsigned state,
			int (*command)(struct ublk_control *c, uint32_t dev_id))
{
	struct ublk_control *c = NULL;
	struct ublk_dev_info info = { 0 };
	uint32_t id = 0;
	int r = left_number(path, &id) ? ublk_control_open(&c) : -ESRCH;

	if (r == 0)
		r = ublk_control_info(c, id, &info);
	if (r == 0 && info.server_flags != mark_of(label))
		r = -ESRCH;
	else if (r == 0 && info.state != state)
		r = info.state == UBLK_S_DEV_LIVE ? -EBUSY : -EAGAIN;
	if (r == 0)
		r = command(c, id);
	ublk_control_close(c);
	return r;
}

int ublk_left_detach(const char *path, const char *label)
{
	return command_left(path, label, UBLK_S_DEV_DEAD, ublk_control_delete);
}

dev_t ublk_left_end(const char *path, const char *label)
{
	const struct timespec nap = { .tv_nsec = LEFT_POLL_NS };
	uint64_t until_ns = now_ns() + LEFT_WAIT_NS;
	unsigned major = 0, minor = 0;
	char sysfs[48], text[32];
	uint32_t id;
	int r;

	if (!left_number(path, &id))
		return 0;
	snprintf(sysfs, sizeof(sysfs), "/sys/block/" DISK_NAME "%u/dev", id);
	if (io_read_text(AT_FDCWD, sysfs, text, sizeof(text)) > 0)
		(void)!sscanf(text, "%u:%u", &major, &minor);
	/* what cannot be ended is reported by what follows */
	while ((r = command_left(path, label, UBLK_S_DEV_QUIESCED, ublk_control_stop)) == -EBUSY &&
	       now_ns() < until_ns)
		nanosleep(&nap, NULL);
	return r == 0 ? makedev(major, minor) : 0;
}
