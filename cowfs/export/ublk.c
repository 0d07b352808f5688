/* SPDX-License-Identifier: MIT */
/*
 * The transport that needs one hop: the kernel's ublk driver hands each request to the ring thread.
 *
 * Notes on the design
 * - The kernel copies the data of a read from the buffer that its answer names, and that of a write to
 *   the one that NEED_GET_DATA names. So each tag has a small buffer, and the few large ones are for
 *   whatever request needs one, which else waits for it. User copy (reads and writes of the character
 *   device) costs 900 instructions more for each read, and 200 for each write.
 * - No volatile cache: above cowfs a flush promises only "in RAM", so the kernel need not ask.
 * - Without a recovery, a server that dies ends the disk. The exit of the ring thread cancels the
 *   commands that wait in the kernel, and the first cancelled one makes the driver fail all I/O and
 *   remove the disk. This holds without the supervisor. But if all tags were with the server, none
 *   would be cancelled, and the I/O would fail only after the 30 s time limit of requests. So the
 *   queue uses one tag less than there are (nr_requests). Kernels from 6.15 on wait for the release of
 *   the character device instead.
 * - With it, the kernel queues requests again once the character device is released, and they wait
 *   for the next server, or for a STOP_DEV. The device can be open once only, so nobody can keep it:
 *   the next server opens it in the kept /dev. A mapping is a reference as well. So no thread that
 *   shares the memory of the server may sleep in I/O on the disk (calls_apart).
 * - The ring thread fetches without CAP_SYS_ADMIN. Therefore the kernel looks for no partitions, as
 *   on a loop device, and code that it runs for a request has no capability to abuse.
 * - The character device stays until DEL_DEV, also after a kill. It has a mark of the volume.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <linux/capability.h>
#include <linux/fs.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "export/ring_thread.h"
#include "export/transport_private.h"
#include "export/ublk_control.h"
#include "export/uring.h"

#define DISK_PREFIX "/dev/ublkb"
#define LEFT_WAIT_NS (5 * 1000000000ull) /* for the release of a server that was killed */
#define LEFT_POLL_NS 20000000
#define MARK (UINT64_C(0x636f776673) << 24) /* "cowfs"; the lower bits are of the label */

static uint64_t mark_of(const char *label)
{
	return MARK ^ crc32c(0, label, strlen(label));
}

bool ublk_left(const char *path)
{
	char ctl[48];
	const char *number = path + strlen(DISK_PREFIX);

	if (strncmp(path, DISK_PREFIX, strlen(DISK_PREFIX)) || !*number ||
	    strspn(number, "0123456789") != strlen(number))
		return false;
	snprintf(ctl, sizeof(ctl), "/dev/ublkc%.10s", number);
	return access(ctl, F_OK) == 0;
}

/* For a device with the mark of the label, and in that state. -ESRCH: it is another one; -EBUSY: it
 * still has a server; -EAGAIN: it is in another state. */
static int command_left(const char *path, const char *label, unsigned state,
			int (*command)(struct ublk_control *c, uint32_t dev_id))
{
	uint32_t id = (uint32_t)strtoul(path + strlen(DISK_PREFIX), NULL, 10);
	struct ublk_control *c = NULL;
	struct ublk_dev_info info = { 0 };
	int r = ublk_control_open(&c);

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
	int r;

	snprintf(sysfs, sizeof(sysfs), "/sys/block/%.20s/dev", path + strlen("/dev/"));
	if (io_read_text(AT_FDCWD, sysfs, text, sizeof(text)) > 0)
		(void)!sscanf(text, "%u:%u", &major, &minor);
	/* what cannot be ended is reported by what follows */
	while ((r = command_left(path, label, UBLK_S_DEV_QUIESCED, ublk_control_stop)) == -EBUSY &&
	       now_ns() < until_ns)
		nanosleep(&nap, NULL);
	return r == 0 ? makedev(major, minor) : 0;
}

#ifndef COWFS_URING

static int start(struct transport **ret, const struct transport_params *p, char *why, size_t n)
{
	(void)p;
	*ret = NULL;
	return uring_check(why, n);
}

static int take_over(struct transport **ret, const struct transport_params *p,
		     const int fd[TRANSPORT_FDS], char *why, size_t n)
{
	(void)fd;
	return start(ret, p, why, n);
}

const struct transport_ops transport_ublk = { .name = "ublk",
					      .start = start,
					      .take_over = take_over };

#else

#include "base/holder.h"
#include "base/msg.h"
#include "base/sandbox.h"
#include "base/thread.h"

#define DEPTH 64u
#define MAX_IO_BYTES (256u * KIB)
#define SMALL_BYTES (8u * KIB) /* most requests are not larger */
#define LARGE 7u
#define DISCARD_MAX_BYTES (64 * MIB)
#define QUICK_PUNCH_BYTES (256u * KIB) /* larger ones hold locks for long */
#define SECTOR_SHIFT 9
#define DETACH_WAIT_NS (5 * 1000000000ull)
#define DETACH_POLL_NS 20000000
#define NODE_TRIES 100 /* udev may make it */
#define NODE_POLL_NS 10000000
#define RELEASE_WAIT_NS (60 * 1000000000ull) /* of a server that has died */
#define RELEASE_POLL_NS 1000000

/* One request of the kernel, or the wait for one. */
struct tag {
	struct ring_op op;
	struct ring_work work; /* in ring_post or ring_block */
	struct ublk *ublk;
	unsigned number;
	int result;
	void *buf; /* its small one, or a large one while it is served */
	struct view_read rd;
	struct tag *next; /* in the list of those that wait for a large buffer */
};

struct ublk {
	struct transport transport; /* must be first */
	struct view *view;
	struct throttle *throttle; /* may be NULL */
	bool throttled;		   /* started */
	struct ublk_control *control;
	struct ring *ring;
	uint32_t id;
	bool added;
	_Atomic bool live; /* the kernel has the disk */
	bool taken_over;
	int ctl_fd;    /* the character device */
	int dev_dirfd; /* /dev: no path is looked up from the root after the start */
	int proc_dirfd;
	_Atomic uint32_t *end;		 /* may be NULL */
	const struct ublk_io_desc *desc; /* of each tag; shared with the kernel */
	size_t desc_bytes;
	unsigned depth, fetching;
	int fetch_error;
	struct tag tag[DEPTH];
	/* of the ring thread */
	struct iovec memory;
	void *large[LARGE]; /* those that nobody uses */
	unsigned larges;
	struct tag *first, **last; /* they wait for a large buffer */
};

static struct ublk *of(const struct transport *t)
{
	return (struct ublk *)t;
}

/* ---- answers ---- */

static void on_command(struct ring_op *op, int res);

static void *small_of(const struct tag *t)
{
	return (char *)t->ublk->memory.iov_base + (size_t)t->number * SMALL_BYTES;
}

/* Ring thread. The answer to a request, and the wait for the next one with its tag. */
static void submit(struct tag *t, uint32_t op)
{
	struct io_uring_sqe *sqe = ring_sqe(t->ublk->ring, &t->op);
	const struct ublk_io_cmd cmd = { .tag = (uint16_t)t->number,
					 .result = t->result,
					 .addr = (uintptr_t)t->buf };

	sqe->opcode = IORING_OP_URING_CMD;
	ring_sqe_file(sqe);
	sqe->off = op; /* cmd_op */
	memcpy(&sqe->addr3, &cmd, sizeof(cmd));
	t->ublk->fetching++;
}

static void start_waiting(struct ublk *u);

/* Ring thread. Nothing uses the buffer any more, the kernel included. */
static void put_buffer(struct tag *t)
{
	struct ublk *u = t->ublk;

	if (t->buf == small_of(t))
		return;
	u->large[u->larges++] = t->buf;
	t->buf = small_of(t);
	start_waiting(u);
}

static void commit(struct ring_work *w)
{
	struct tag *t = container_of(w, struct tag, work);

	submit(t, UBLK_COMMIT_AND_FETCH_REQ);
	if (t->buf != small_of(t)) {
		ring_flush(t->ublk->ring);
		put_buffer(t);
	}
}

/* Any thread. result: bytes, or -errno, of which the kernel knows few. */
static void answer(struct tag *t, int result)
{
	t->result = result >= 0 || result == -EOPNOTSUPP ? result : -EIO;
	if (ring_is_mine(t->ublk->ring)) {
		commit(&t->work);
		return;
	}
	t->work.call = commit;
	ring_post(t->ublk->ring, &t->work);
}

/* ---- requests ---- */

static const struct ublk_io_desc *desc_of(const struct tag *t)
{
	return &t->ublk->desc[t->number];
}

static unsigned op_of(const struct tag *t)
{
	return desc_of(t)->op_flags & 0xff;
}

static bool has_data(const struct tag *t)
{
	return op_of(t) == UBLK_OP_READ || op_of(t) == UBLK_OP_WRITE;
}

static uint64_t off_of(const struct tag *t)
{
	return desc_of(t)->start_sector << SECTOR_SHIFT;
}

static uint64_t len_of(const struct tag *t)
{
	return (uint64_t)desc_of(t)->nr_sectors << SECTOR_SHIFT;
}

static void answer_read(struct tag *t, int r)
{
	answer(t, r < 0 ? r : (int)len_of(t));
}

static void read_done(struct view_read *rd, int r)
{
	answer_read(container_of(rd, struct tag, rd), r);
}

/* False: this read must block. */
static bool start_read(struct tag *t)
{
	int r;

	t->rd.done = read_done;
	r = view_start_read(t->ublk->view, off_of(t), t->buf, len_of(t), &t->rd);
	if (r != VIEW_PENDING && r != -EAGAIN)
		answer_read(t, r);
	return r != -EAGAIN;
}

/* Ring thread. */
static void end_write(struct tag *t, int r)
{
	struct throttle *throttle = t->ublk->throttle;
	uint64_t off_bytes = off_of(t);
	size_t len_bytes = len_of(t);

	if (r == -ENOSPC && throttle)
		throttle_store_full(throttle);
	if (throttle && off_bytes < COW_BLK_BYTES)
		throttle_look(throttle); /* the superblock */
	if (r == 0 && throttle && throttle_hold(throttle, t, len_bytes)) {
		put_buffer(t);
		return; /* reply_held answers */
	}
	answer(t, r < 0 ? r : (int)len_bytes);
}

static void reply_held(void *req, size_t bytes)
{
	answer(req, (int)bytes);
}

/* False: this write must block. */
static bool try_write(struct tag *t)
{
	struct throttle *throttle = t->ublk->throttle;
	size_t covered = len_of(t) + (size_t)(off_of(t) & (COW_BLK_BYTES - 1));
	int r = throttle ? throttle_admit(throttle, round_up_u64(covered, COW_BLK_BYTES)) : 0;

	if (r == 0)
		r = view_try_write(t->ublk->view, off_of(t), t->buf, len_of(t));
	if (r == -EAGAIN)
		return false;
	end_write(t, r);
	return true;
}

static bool try_punch(struct tag *t)
{
	int r;

	if (len_of(t) > QUICK_PUNCH_BYTES)
		return false;
	r = view_try_write(t->ublk->view, off_of(t), NULL, len_of(t));
	if (r != -EAGAIN)
		answer(t, r);
	return r != -EAGAIN;
}

static void write_ended(struct ring_work *w)
{
	struct tag *t = container_of(w, struct tag, work);

	end_write(t, t->result);
}

/* In a thread that may block. */
static void serve_blocking(struct ring_work *w)
{
	struct tag *t = container_of(w, struct tag, work);
	struct view *v = t->ublk->view;

	switch (op_of(t)) {
	case UBLK_OP_READ:
		answer_read(t, view_read(v, off_of(t), t->buf, len_of(t)));
		break;
	case UBLK_OP_WRITE:
		t->result = view_write(v, off_of(t), t->buf, len_of(t));
		t->work.call = write_ended;
		ring_post(t->ublk->ring, &t->work);
		break;
	default:
		answer(t, view_punch(v, off_of(t), len_of(t)));
	}
}

static void serve(struct tag *t)
{
	unsigned op = op_of(t);
	bool punch = op == UBLK_OP_DISCARD || op == UBLK_OP_WRITE_ZEROES;

	if (op == UBLK_OP_FLUSH) {
		answer(t, 0);
	} else if (!has_data(t) && !punch) {
		answer(t, -EOPNOTSUPP);
	} else if (op == UBLK_OP_READ ? !start_read(t) : punch ? !try_punch(t) : !try_write(t)) {
		t->work.call = serve_blocking;
		ring_block(t->ublk->ring, &t->work);
	}
}

/* res: of a command that brought no request. */
static void end_fetching(struct ublk *u, int res)
{
	if (res != -ENODEV) { /* ENODEV: the disk was removed */
		u->fetch_error = res;
		msg(MSG_ERR, "%s: the kernel refuses commands of ublk: %s", u->transport.disk.path,
		    strerrordesc_np(-res));
	}
	if (!u->fetching)
		ring_end(u->ring);
}

/* The request has a buffer. */
static void begin_request(struct tag *t)
{
	if (op_of(t) == UBLK_OP_WRITE)
		submit(t, UBLK_NEED_GET_DATA);
	else
		serve(t);
}

static void start_waiting(struct ublk *u)
{
	while (u->first && u->larges) {
		struct tag *t = u->first;

		u->first = t->next;
		if (!u->first)
			u->last = &u->first;
		t->buf = u->large[--u->larges];
		begin_request(t);
	}
}

static void on_request(struct tag *t)
{
	struct ublk *u = t->ublk;

	/* it has one if the kernel could not copy its data, and asks again */
	if (!has_data(t) || len_of(t) <= SMALL_BYTES || t->buf != small_of(t)) {
		begin_request(t);
	} else if (len_of(t) > MAX_IO_BYTES) {
		answer(t, -EINVAL);
	} else {
		t->next = NULL;
		*u->last = t;
		u->last = &t->next;
		start_waiting(u);
	}
}

static void on_command(struct ring_op *op, int res)
{
	struct tag *t = container_of(op, struct tag, op);
	struct ublk *u = t->ublk;

	u->fetching--;
	if (res == UBLK_IO_RES_OK && op_of(t) == UBLK_OP_WRITE) {
		serve(t);
	} else if (res == UBLK_IO_RES_OK || res == UBLK_IO_RES_NEED_GET_DATA) {
		on_request(t);
	} else {
		put_buffer(t);
		end_fetching(u, res);
	}
}

static int begin(void *ctx, struct ring *r)
{
	struct ublk *u = ctx;
	int e = sandbox_capabilities(UINT64_C(1) << CAP_IPC_LOCK);

	if (e == 0)
		e = view_take_over(u->view, ring_read, r);
	if (e < 0 && e != -ENOTSUP)
		return e;
	u->taken_over = e == 0;
	u->ring = r;
	for (unsigned i = 0; i < u->depth; i++)
		submit(&u->tag[i], UBLK_FETCH_REQ);
	return 0;
}

/* ---- start ---- */

static int open_node(const struct ublk *u, const char *name, int flags)
{
	const struct timespec nap = { .tv_nsec = NODE_POLL_NS };
	int fd = -1;

	for (int i = 0; i < NODE_TRIES && fd < 0; i++) {
		fd = openat(u->dev_dirfd, name, flags | O_CLOEXEC);
		if (fd < 0 && errno != ENOENT)
			break;
		if (fd < 0)
			nanosleep(&nap, NULL);
	}
	return fd < 0 ? -errno : fd;
}

static int open_disk(const struct ublk *u, int flags)
{
	int fd = openat(u->dev_dirfd, strrchr(u->transport.disk.path, '/') + 1, flags | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int add_device(struct ublk *u, const char *label)
{
	struct ublk_dev_info info = { .nr_hw_queues = 1,
				      .queue_depth = (uint16_t)u->depth,
				      .max_io_buf_bytes = MAX_IO_BYTES,
				      .dev_id = UINT32_MAX,
				      .flags = UBLK_F_NEED_GET_DATA | UBLK_F_CMD_IOCTL_ENCODE,
				      .server_flags = mark_of(label) };
	int r;

	if (u->end)
		info.flags |= UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE;
	r = ublk_control_add(u->control, &info);
	if (r < 0)
		return r;
	u->added = true;
	u->id = info.dev_id;
	if (u->end)
		*u->end = u->id + 1;
	return info.flags & UBLK_F_NEED_GET_DATA ? 0 : -EOPNOTSUPP;
}

static int open_ctl(struct ublk *u)
{
	char name[32];
	void *map;

	snprintf(name, sizeof(name), "ublkc%u", u->id);
	u->ctl_fd = open_node(u, name, O_RDWR);
	if (u->ctl_fd < 0)
		return u->ctl_fd;
	u->desc_bytes = round_up_u64(u->depth * sizeof(u->desc[0]),
				     (uint64_t)sysconf(_SC_PAGESIZE));
	map = mmap(NULL, u->desc_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, u->ctl_fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	u->desc = map;
	return 0;
}

static int start_ring(struct ublk *u)
{
	const struct ring_params ring = {
		.fd = u->ctl_fd, .memory = u->memory, .begin = begin, .ctx = u
	};
	int r = ring_new(&u->ring, &ring);

	if (r < 0)
		u->ring = NULL;
	return r < 0 ? r : u->fetch_error;
}

static int start_device(struct ublk *u, const struct transport_params *p)
{
	const uint64_t max_io = p->max_kb ? min_u64(p->max_kb * KIB, MAX_IO_BYTES) : MAX_IO_BYTES;
	struct ublk_params params = {
		.types = UBLK_PARAM_TYPE_BASIC | UBLK_PARAM_TYPE_DISCARD,
		.basic = { .logical_bs_shift = SECTOR_SHIFT,
			   .physical_bs_shift = SECTOR_SHIFT,
			   .io_opt_shift = SECTOR_SHIFT,
			   .io_min_shift = SECTOR_SHIFT,
			   .max_sectors = (uint32_t)(max_io >> SECTOR_SHIFT),
			   .dev_sectors = blk_to_bytes(view_volume_blks(u->view)) >> SECTOR_SHIFT },
		.discard = { .discard_granularity = COW_BLK_BYTES,
			     .max_discard_sectors = DISCARD_MAX_BYTES >> SECTOR_SHIFT,
			     .max_write_zeroes_sectors = DISCARD_MAX_BYTES >> SECTOR_SHIFT,
			     .max_discard_segments = 1 },
	};
	int r = ublk_control_set_params(u->control, u->id, &params);

	if (r == 0)
		r = start_ring(u);
	if (r == 0)
		r = ublk_control_start(u->control, u->id);
	u->live = r == 0;
	return r;
}

static int set_queue(struct ublk *u, unsigned read_ahead_kb)
{
	_cleanup_close_ int queue_dirfd = -1;
	char path[64], text[16];
	int r;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/queue", major(u->transport.disk.rdev),
		 minor(u->transport.disk.rdev));
	queue_dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (queue_dirfd < 0)
		return -errno;
	/* requests are sorted and merged below cowfs, if at all; a scheduler also has tags of its
	 * own, to which nr_requests would apply */
	(void)!io_write_text(queue_dirfd, "scheduler", "none");
	snprintf(text, sizeof(text), "%u", u->depth - 1);
	r = io_write_text(queue_dirfd, "nr_requests", text);
	if (r >= 0 && ioctl(u->transport.disk.fd, BLKRASET, read_ahead_kb * 2ul) < 0)
		r = -errno;
	return r < 0 ? r : 0;
}

static int read_first(int fd)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);

	return buf ? io_pread_full(fd, buf, COW_BLK_BYTES, 0) : -ENOMEM;
}

static int open_and_verify(struct ublk *u, unsigned read_ahead_kb)
{
	struct transport_disk *d = &u->transport.disk;
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	snprintf(d->path, sizeof(d->path), DISK_PREFIX "%u", u->id);
	d->fd = open_node(u, strrchr(d->path, '/') + 1, O_RDWR);
	if (d->fd < 0)
		return d->fd;
	if (fstat(d->fd, &st) < 0)
		return -errno;
	d->rdev = st.st_rdev;
	r = set_queue(u, read_ahead_kb);
	if (r < 0)
		return r;
	fd = open_disk(u, O_RDONLY | O_DIRECT);
	return fd < 0 ? fd : thread_call_alone("cowfs-verify", fd, read_first);
}

/* Removes the disk, ends the ring thread, removes the device. */
static int remove_device(struct ublk *u)
{
	/* without a start, too: it cancels the commands, and the ring thread ends */
	int r = u->added ? ublk_control_stop(u->control, u->id) : 0;

	if (r < 0)
		return r;
	u->live = false;
	if (u->end) /* from the deletion on the number may be another program's */
		*u->end = 0;
	if (u->taken_over)
		(void)!view_take_over(u->view, NULL, NULL);
	ring_free(u->ring);
	u->ring = NULL;
	if (u->desc)
		munmap((void *)u->desc, u->desc_bytes);
	u->desc = NULL;
	if (u->ctl_fd >= 0)
		close(steal_fd(&u->ctl_fd));
	if (u->transport.disk.fd >= 0)
		close(steal_fd(&u->transport.disk.fd));
	if (u->added)
		r = ublk_control_delete(u->control, u->id);
	u->added = false;
	return r;
}

static void free_ublk(struct ublk *u)
{
	if (u->throttled)
		throttle_stop(u->throttle);
	free(u->memory.iov_base);
	ublk_control_close(u->control);
	if (u->transport.disk.fd >= 0)
		close(u->transport.disk.fd);
	if (u->dev_dirfd >= 0)
		close(u->dev_dirfd);
	if (u->proc_dirfd >= 0)
		close(u->proc_dirfd);
	free(u);
}

static int start_throttle(struct ublk *u, struct throttle *throttle)
{
	int e = throttle ? throttle_start(throttle, reply_held) : 0;

	if (e < 0 || !throttle)
		return e;
	u->throttle = throttle;
	u->throttled = true;
	throttle_set_tags(throttle, u->depth - 1);
	return 0;
}

static int make_buffers(struct ublk *u)
{
	char *buf;

	u->memory.iov_len = DEPTH * SMALL_BYTES + LARGE * MAX_IO_BYTES;
	u->memory.iov_base = io_alloc(u->memory.iov_len);
	if (!u->memory.iov_base)
		return -ENOMEM;
	for (unsigned i = 0; i < DEPTH; i++)
		u->tag[i].buf = small_of(&u->tag[i]);
	buf = (char *)u->memory.iov_base + DEPTH * SMALL_BYTES;
	for (; u->larges < LARGE; u->larges++, buf += MAX_IO_BYTES)
		u->large[u->larges] = buf;
	return 0;
}

static int try_start(struct ublk *u, const struct transport_params *p, char *why, size_t n)
{
	int e;

	u->dev_dirfd = open("/dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	u->proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (u->dev_dirfd < 0 || u->proc_dirfd < 0)
		return msg_why(why, n, -errno, "no /dev or no /proc");
	e = make_buffers(u);
	if (e < 0)
		return msg_why(why, n, e, "no memory");
	e = ublk_control_open(&u->control);
	if (e < 0)
		return msg_why(why, n, e, UBLK_CONTROL_PATH ": %s", strerrordesc_np(-e));
	e = add_device(u, p->label);
	if (e == 0)
		e = open_ctl(u);
	if (e < 0)
		return msg_why(why, n, e, "no device of ublk: %s", strerrordesc_np(-e));
	e = start_throttle(u, p->throttle);
	if (e < 0)
		return msg_why(why, n, e, "no thread: %s", strerrordesc_np(-e));
	e = start_device(u, p);
	if (e == 0)
		e = open_and_verify(u, p->read_ahead_kb);
	return e < 0 ? msg_why(why, n, e, "the device of ublk does not start: %s",
			       strerrordesc_np(-e))
		     : 0;
}

static struct ublk *new_ublk(const struct transport_params *p)
{
	struct ublk *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->transport.ops = &transport_ublk;
	u->transport.disk.fd = u->ctl_fd = u->dev_dirfd = u->proc_dirfd = -1;
	u->view = p->view;
	u->end = p->end;
	u->last = &u->first;
	for (unsigned i = 0; i < DEPTH; i++)
		u->tag[i] = (struct tag){ .op.done = on_command, .ublk = u, .number = i };
	return u;
}

static int start(struct transport **ret, const struct transport_params *p, char *why, size_t n)
{
	struct ublk *u = new_ublk(p);
	int e;

	*ret = NULL;
	if (!u)
		return msg_why(why, n, -ENOMEM, "no memory");
	u->depth = p->tags ? (unsigned)min_u64(p->tags + 1, DEPTH) : DEPTH;
	e = try_start(u, p, why, n);
	if (e == 0) {
		*ret = &u->transport;
		return 0;
	}
	(void)!remove_device(u);
	free_ublk(u);
	return e;
}

/* ---- another process takes over ---- */

enum { FD_DISK = TRANSPORT_OTHER, FD_DEV, FD_PROC };

static void keep(const struct transport *t, struct transport_kept *ret, int fd[TRANSPORT_FDS])
{
	const struct ublk *u = (const struct ublk *)t;

	ret->ublk.id = u->id;
	ret->ublk.depth = u->depth;
	ret->ublk.rdev = t->disk.rdev;
	memcpy(ret->ublk.path, t->disk.path, sizeof(ret->ublk.path));
	fd[TRANSPORT_ABORT] = -1;
	fd[TRANSPORT_KERNEL] = ublk_control_fd(u->control);
	fd[FD_DISK] = t->disk.fd;
	fd[FD_DEV] = u->dev_dirfd;
	fd[FD_PROC] = u->proc_dirfd;
}

/* The kernel releases the device of a dead server some time after its last thread. */
static int wait_released(const struct ublk *u)
{
	const struct timespec nap = { .tv_nsec = RELEASE_POLL_NS };
	uint64_t until_ns = now_ns() + RELEASE_WAIT_NS;
	int r;

	while ((r = ublk_control_recover(u->control, u->id)) == -EBUSY && now_ns() < until_ns)
		nanosleep(&nap, NULL);
	return r;
}

static int take_over(struct transport **ret, const struct transport_params *p,
		     const int fd[TRANSPORT_FDS], char *why, size_t n)
{
	struct ublk *u = new_ublk(p);
	struct transport_disk *d;
	int e;

	if (!u)
		return msg_why(why, n, -ENOMEM, "no memory");
	*ret = &u->transport;
	u->id = p->kept->ublk.id;
	u->depth = (unsigned)min_u64(p->kept->ublk.depth, DEPTH);
	u->added = true;
	u->dev_dirfd = fd[FD_DEV];
	u->proc_dirfd = fd[FD_PROC];
	d = &u->transport.disk;
	d->fd = fd[FD_DISK];
	d->rdev = p->kept->ublk.rdev;
	memcpy(d->path, p->kept->ublk.path, sizeof(d->path));
	e = make_buffers(u);
	if (e == 0)
		e = ublk_control_take(&u->control, fd[TRANSPORT_KERNEL]);
	if (e == 0)
		e = start_throttle(u, p->throttle);
	if (e == 0)
		e = wait_released(u);
	if (e == 0)
		e = open_ctl(u);
	if (e == 0)
		e = start_ring(u);
	if (e == 0)
		e = ublk_control_recovered(u->control, u->id);
	u->live = e == 0;
	/* on an error the process ends */
	return e < 0 ? msg_why(why, n, e, "cannot take %s over: %s", d->path, strerrordesc_np(-e))
		     : 0;
}

/* ---- end ---- */

/* None: without a server the I/O ends, or transport_end ends it. */
static int abort_fd(const struct transport *t)
{
	(void)t;
	return -1;
}

static int in_use(const struct transport *t)
{
	int fd = open_disk(of(t), O_RDONLY | O_EXCL);

	if (fd < 0)
		return fd == -EBUSY ? 1 : fd;
	close(fd);
	return 0;
}

/* STOP_DEV would take the disk away from its users. fd claims the disk, so no mount can come in
 * between. */
static int wait_unused(const struct ublk *u)
{
	const struct timespec nap = { .tv_nsec = DETACH_POLL_NS };
	uint64_t until_ns = now_ns() + DETACH_WAIT_NS;
	char holder[64];

	while (holder_find(u->proc_dirfd, u->transport.disk.rdev, holder, sizeof(holder))) {
		if (now_ns() > until_ns)
			return -EBUSY;
		nanosleep(&nap, NULL);
	}
	return 0;
}

static int detach(struct transport *t)
{
	struct ublk *u = of(t);
	_cleanup_close_ int fd = -1;
	int r;

	if (!u->live)
		return 0;
	fd = open_disk(u, O_RDONLY | O_EXCL);
	if (fd < 0)
		return fd;
	r = wait_unused(u);
	return r < 0 ? r : remove_device(u);
}

static void stop(struct transport *t)
{
	free_ublk(of(t));
}

const struct transport_ops transport_ublk = {
	.name = "ublk",
	.kind = TRANSPORT_UBLK,
	.calls_apart = true,
	.start = start,
	.abort_fd = abort_fd,
	.in_use = in_use,
	.detach = detach,
	.stop = stop,
	.keep = keep,
	.take_over = take_over,
};

#endif
