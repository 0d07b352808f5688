/* SPDX-License-Identifier: MIT */
/*
 * The transport that needs one hop: the kernel's ublk driver hands each request to the ring thread.
 *
 * Notes on the design
 * - The kernel copies the data of a read from the buffer that its answer names, and that of a write to
 *   the one that NEED_GET_DATA names. So each tag has a small buffer, and the few large ones are for
 *   whatever request needs one, which else waits for it. User copy (reads and writes of the character
 *   device) costs 900 instructions more for each read, and 200 for each write.
 * - All commands to the driver are the broker's (ublk_disk.c). This process gets the character device and
 *   the disk. A mapping of the character device is a reference to it, so no thread that shares this memory
 *   sleeps in I/O on the disk, except for the first read; the broker's memory has no such mapping.
 * - The ring thread fetches without CAP_SYS_ADMIN, as the worker has none. Therefore the kernel looks for
 *   no partitions, as on a loop device.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/broker.h"
#include "base/io.h"
#include "export/parked.h"
#include "export/ring_thread.h"
#include "export/transport_private.h"
#include "export/ublk_abi.h"
#include "export/ublk_disk.h"
#include "export/uring.h"

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

#include "base/msg.h"
#include "base/thread.h"

#define DEPTH UBLK_DEPTH_MAX
#define MAX_IO_BYTES UBLK_IO_BYTES_MAX
#define SMALL_BYTES (8u * KIB) /* most requests are not larger */
#define LARGE 7u
#define QUICK_PUNCH_BYTES (256u * KIB) /* larger ones hold locks for long */
#define SECTOR_SHIFT 9

/* One request of the kernel, or the wait for one. */
struct tag {
	struct ring_op op;
	struct ring_work work; /* in ring_post or ring_block */
	struct ublk *ublk;
	unsigned number;
	int result;
	void *buf; /* its small one, or a large one while it is served */
	struct view_read rd;
	struct parked_request *parked; /* on its way there */
	struct tag *next;	       /* in the list of those that wait for a large buffer */
};

struct ublk {
	struct transport transport; /* must be first */
	struct view *view;
	struct throttle *throttle; /* may be NULL */
	bool throttled;		   /* started */
	struct ring *ring;
	bool attached; /* the broker has a device */
	bool taken_over;
	int ctl_fd;			 /* the character device */
	const struct ublk_io_desc *desc; /* of each tag; shared with the kernel */
	size_t desc_bytes;
	unsigned depth, fetching;
	int fetch_error;
	struct parked *parked;
	void *lent; /* the buffer of its thread, until a post */
	sem_t lent_back;
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

static void serve_blocking(struct ring_work *w);

static void block(struct tag *t)
{
	t->work.call = serve_blocking;
	ring_block(t->ublk->ring, &t->work);
}

static void read_done(struct view_read *rd, int r)
{
	struct tag *t = container_of(rd, struct tag, rd);

	if (r == -EIO || r == -ENOMEDIUM)
		block(t); /* tries again, or parks it */
	else
		answer_read(t, r);
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

/* ---- requests that the card cannot serve now (parked.h) ---- */

static int serve_now(const struct tag *t, const void *from, void *to)
{
	struct view *v = t->ublk->view;

	switch (op_of(t)) {
	case UBLK_OP_READ:
		return view_read(v, off_of(t), to, len_of(t));
	case UBLK_OP_WRITE:
		return view_write(v, off_of(t), from, len_of(t));
	default:
		return view_punch(v, off_of(t), len_of(t));
	}
}

/* Ring thread. The parked thread waits until the kernel has taken its buffer. */
static void commit_lent(struct ring_work *w)
{
	struct tag *t = container_of(w, struct tag, work);
	struct ublk *u = t->ublk;

	t->buf = u->lent;
	submit(t, UBLK_COMMIT_AND_FETCH_REQ);
	ring_flush(u->ring);
	t->buf = small_of(t);
	sem_post(&u->lent_back);
}

static void answer_long_read(struct tag *t, void *buf)
{
	struct ublk *u = t->ublk;

	t->result = (int)len_of(t);
	u->lent = buf;
	t->work.call = commit_lent;
	ring_post(u->ring, &t->work);
	while (sem_wait(&u->lent_back) < 0)
		; /* EINTR */
}

/* buf: what was read, if that is not in the tag's buffer. */
static void end_blocking(struct tag *t, void *buf, int r)
{
	switch (op_of(t)) {
	case UBLK_OP_READ:
		if (r == 0 && buf && len_of(t) > SMALL_BYTES) {
			answer_long_read(t, buf);
			break;
		}
		if (r == 0 && buf)
			memcpy(t->buf, buf, len_of(t));
		answer_read(t, r);
		break;
	case UBLK_OP_WRITE:
		t->result = r;
		t->work.call = write_ended;
		ring_post(t->ublk->ring, &t->work);
		break;
	default:
		answer(t, r);
	}
}

static int serve_parked(void *ctx, const struct parked_request *p, void *buf)
{
	(void)ctx;
	return serve_now(p->req, p->data, buf);
}

static void answer_parked(void *ctx, const struct parked_request *p, void *buf, int r)
{
	(void)ctx;
	end_blocking(p->req, buf, r);
}

static const struct parked_ops parked_ops = { .buf_bytes = MAX_IO_BYTES,
					      .serve = serve_parked,
					      .answer = answer_parked };

/* Ring thread. Its large buffer is free for others. */
static void add_parked(struct ring_work *w)
{
	struct tag *t = container_of(w, struct tag, work);

	put_buffer(t);
	parked_add(t->ublk->parked, t->parked);
}

/* In a thread that may block. */
static void serve_blocking(struct ring_work *w)
{
	struct tag *t = container_of(w, struct tag, work);
	bool write = op_of(t) == UBLK_OP_WRITE;
	int r = serve_now(t, t->buf, t->buf);

	if (r != -ENOMEDIUM) {
		end_blocking(t, NULL, r);
		return;
	}
	t->parked = parked_take(t->ublk->parked, t,
				write	      ? PARKED_WRITE
				: has_data(t) ? PARKED_READ
					      : PARKED_PUNCH,
				off_of(t), len_of(t), write ? t->buf : NULL);
	t->work.call = add_parked;
	ring_post(t->ublk->ring, &t->work);
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
		block(t);
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
	int e = view_take_over(u->view, ring_read, r);

	if (e < 0 && e != -ENOTSUP)
		return e;
	u->taken_over = e == 0;
	u->ring = r;
	for (unsigned i = 0; i < u->depth; i++)
		submit(&u->tag[i], UBLK_FETCH_REQ);
	return 0;
}

/* ---- start ---- */

/* The broker makes the device, or takes it away from a dead server. */
static int open_ctl(struct ublk *u, uint64_t max_io_bytes)
{
	struct broker_message m = { .op = BROKER_UBLK_QUEUE,
				    .n = { u->depth, blk_to_bytes(view_volume_blks(u->view)),
					   max_io_bytes } };
	int fd[BROKER_FDS], r = broker_ask(BROKER_MAIN, &m, NULL, fd);
	void *map;

	if (r < 0)
		return r;
	u->attached = true;
	u->ctl_fd = fd[0];
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

/* All tags have fetched. ret_fd: of a new disk, and one for direct reads; -1. */
static int start_disk(struct ublk *u, unsigned read_ahead_kb, int ret_fd[BROKER_FDS])
{
	struct broker_message m = { .op = BROKER_UBLK_START, .n = { read_ahead_kb } };
	int r = broker_ask(BROKER_MAIN, &m, NULL, ret_fd);

	if (r == 0)
		snprintf(u->transport.disk.path, sizeof(u->transport.disk.path), "/dev/ublkb%u",
			 (unsigned)m.n[0]);
	return r;
}

static int read_first(int fd)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);

	return buf ? io_pread_full(fd, buf, COW_BLK_BYTES, 0) : -ENOMEM;
}

static int start_and_verify(struct ublk *u, unsigned read_ahead_kb)
{
	struct transport_disk *d = &u->transport.disk;
	_cleanup_close_ int direct_fd = -1;
	int fd[BROKER_FDS], r = start_disk(u, read_ahead_kb, fd);
	struct stat st;

	if (r < 0)
		return r;
	d->fd = fd[0];
	direct_fd = fd[1];
	if (fstat(d->fd, &st) < 0)
		return -errno;
	d->rdev = st.st_rdev;
	return thread_call_alone("cowfs-verify", direct_fd, read_first);
}

/* The disk is gone: ends the ring thread, and lets go of the device. */
static void end_serving(struct ublk *u)
{
	u->attached = false;
	if (u->taken_over)
		(void)!view_take_over(u->view, NULL, NULL);
	parked_free(u->parked);
	u->parked = NULL;
	ring_free(u->ring);
	u->ring = NULL;
	if (u->desc)
		munmap((void *)u->desc, u->desc_bytes);
	u->desc = NULL;
	if (u->ctl_fd >= 0)
		close(steal_fd(&u->ctl_fd));
	if (u->transport.disk.fd >= 0)
		close(steal_fd(&u->transport.disk.fd));
}

static int in_use(const struct transport *t)
{
	(void)t;
	return broker_call(BROKER_LOOK, BROKER_IN_USE, 0, 0);
}

/* failed: the start did, so nobody uses the disk. */
static int remove_disk(struct ublk *u, bool failed)
{
	int r = u->attached && !failed ? in_use(&u->transport) : 0;

	if (r > 0)
		return -EBUSY;
	if (u->parked) /* the kernel waits for requests of the disk, also of one that looks at it only */
		parked_refuse(u->parked, true);
	r = u->attached ? broker_call(BROKER_MAIN, BROKER_DETACH, failed, 0) : 0;
	if (r == 0)
		end_serving(u);
	else if (u->parked)
		parked_refuse(u->parked, false);
	return r;
}

static void free_ublk(struct ublk *u)
{
	parked_free(u->parked);
	sem_destroy(&u->lent_back);
	if (u->throttled)
		throttle_stop(u->throttle);
	free(u->memory.iov_base);
	if (u->transport.disk.fd >= 0)
		close(u->transport.disk.fd);
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
	return parked_new(&u->parked, &parked_ops, u);
}

static int try_start(struct ublk *u, const struct transport_params *p, char *why, size_t n)
{
	int e = make_buffers(u);

	if (e < 0)
		return msg_why(why, n, e, "no memory");
	e = open_ctl(u, p->max_kb ? p->max_kb * KIB : MAX_IO_BYTES);
	if (e == -ENODEV)
		return msg_why(why, n, e, "the kernel has no ublk (module ublk_drv)");
	if (e < 0)
		return msg_why(why, n, e, "no device of ublk: %s", strerrordesc_np(-e));
	e = start_throttle(u, p->throttle);
	if (e < 0)
		return msg_why(why, n, e, "no thread: %s", strerrordesc_np(-e));
	e = start_ring(u);
	if (e == 0)
		e = start_and_verify(u, p->read_ahead_kb);
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
	u->transport.disk.fd = u->ctl_fd = -1;
	u->view = p->view;
	u->last = &u->first;
	sem_init(&u->lent_back, 0, 0);
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
		if (p->abort_fd >= 0) /* of FUSE, which is not needed any more */
			close(p->abort_fd);
		*ret = &u->transport;
		return 0;
	}
	(void)!remove_disk(u, true);
	free_ublk(u);
	return e;
}

/* ---- another process takes over ---- */

static void keep(const struct transport *t, struct transport_kept *ret, int fd[TRANSPORT_FDS])
{
	const struct ublk *u = (const struct ublk *)t;

	ret->ublk.depth = u->depth;
	ret->ublk.rdev = t->disk.rdev;
	memcpy(ret->ublk.path, t->disk.path, sizeof(ret->ublk.path));
	for (unsigned i = 0; i < TRANSPORT_FDS; i++)
		fd[i] = -1;
	/* the kernel lets one process have the character device, so the disk stands for it */
	fd[TRANSPORT_KERNEL] = fd[TRANSPORT_OTHER] = t->disk.fd;
}

static int take_over(struct transport **ret, const struct transport_params *p,
		     const int fd[TRANSPORT_FDS], char *why, size_t n)
{
	struct ublk *u = new_ublk(p);
	struct transport_disk *d;
	int none[BROKER_FDS], e;

	if (!u)
		return msg_why(why, n, -ENOMEM, "no memory");
	*ret = &u->transport;
	u->depth = (unsigned)min_u64(p->kept->ublk.depth, DEPTH);
	d = &u->transport.disk;
	d->fd = fd[TRANSPORT_OTHER];
	d->rdev = p->kept->ublk.rdev;
	memcpy(d->path, p->kept->ublk.path, sizeof(d->path));
	e = make_buffers(u);
	if (e == 0)
		e = start_throttle(u, p->throttle);
	if (e == 0)
		e = open_ctl(u, 0);
	if (e == 0)
		e = start_ring(u);
	if (e == 0)
		e = start_disk(u, 0, none);
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

static int detach(struct transport *t)
{
	return remove_disk(of(t), false);
}

static void stop(struct transport *t)
{
	free_ublk(of(t));
}

const struct transport_ops transport_ublk = {
	.name = "ublk",
	.kind = TRANSPORT_UBLK,
	.start = start,
	.abort_fd = abort_fd,
	.in_use = in_use,
	.detach = detach,
	.stop = stop,
	.keep = keep,
	.take_over = take_over,
};

#endif
