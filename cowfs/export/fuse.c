/* SPDX-License-Identifier: MIT */
/*
 * FUSE session: turns the kernel's requests on one file into calls of the view.
 *
 * Notes on the design
 * - Only this file includes FUSE headers.
 * - The serving threads are our own, not libfuse's loop (serve.h). The leader serves reads from
 *   RAM, and starts reads of the card without blocking. Each started read has a slot with its own
 *   buffer. The thread that takes the card's answers replies to it. Some requests cannot be served
 *   this way: a range in several places on the card, the log, parts of blocks, large punches, no
 *   free slot. The leader hands over before it serves them in its own buffer. The payload of such a
 *   read goes behind the buffer's first page (the request is already decoded by then), aligned for
 *   direct I/O on the card.
 * - While the leader has nothing else to do, it reads small ranges of a fast card by itself:
 *   read_alone.
 * - FOPEN_DIRECT_IO with FOPEN_PARALLEL_DIRECT_WRITES (kernel >= 6.2; older ones ignore the bit):
 *   without them each write takes the inode's exclusive lock and invalidates the page cache.
 *   libfuse before 3.15 has no field for the second flag, hence the raw reply to OPEN.
 * - FSYNC is answered ENOSYS once, and the kernel never asks again. A flush costs nothing, because
 *   above cowfs fsync promises only "in RAM".
 * - A reply is whole or an error, never short: the loop driver takes a short write for success.
 * - The mount is never attached to the tree. It lives as long as the descriptor of its file, which
 *   the loop device holds. The last close aborts the connection. The threads then read ENODEV and
 *   end.
 * - A killed process closes its descriptors from the highest one down. The close of the loop
 *   device's descriptor writes its dirty cache through us. That would block forever if /dev/fuse
 *   were still open, so our /dev/fuse has the highest number. The kernel asks for a FLUSH of the
 *   file before it releases any descriptor, which would block forever whatever the number.
 *   FOPEN_NOFLUSH (kernel >= 5.16) prevents the FLUSH, and so does an earlier close that was
 *   answered ENOSYS.
 * - libfuse answers nothing before it has seen INIT, which the kernel sends once. A process that
 *   takes over shows it the kept one. The answer is refused (ENOENT), which libfuse ignores.
 * - FUSE_NOTIFY_RESEND comes before the first request is received: a request that this process has
 *   already taken would be sent a second time. No thread of the process before may be in a read: the
 *   request that it takes would be lost.
 */
#include "export/fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <fuse_lowlevel.h>
#include <linux/falloc.h>
#include <linux/fuse.h>

#include "base/broker.h"
#include "base/io.h"
#include "base/msg.h"
#include "base/thread.h"
#include "export/fuse_mount.h"
#include "export/loop.h"
#include "export/parked.h"
#include "export/serve.h"
#include "export/transport.h"
#include "export/slots.h"

/* older kernel headers have none */
#ifndef FOPEN_NOFLUSH
#define FOPEN_NOFLUSH (1 << 5)
#endif
#define NOTIFY_RESEND 7 /* FUSE_NOTIFY_RESEND */
#ifndef FOPEN_PARALLEL_DIRECT_WRITES
#define FOPEN_PARALLEL_DIRECT_WRITES (1 << 6)
#endif

#define VOLUME_INO 2
#define FOREVER_S 1e9

#define SERVERS 4
#define IMAGE_SERVERS 2
#define MAX_WRITE_BYTES (LOOP_REQUEST_KB * KIB) /* a buffer per server, locked */
/*
 * Linux cuts a request that touches more pages than this, and a seal could fall between the parts.
 * The loop device has up to 128 segments in a request, and a short one has a page of its own.
 */
#define MAX_PAGES 256u
#define HEADER_BYTES COW_BLK_BYTES /* request headers; aligns the payload of a read */
#define BUF_BYTES (HEADER_BYTES + MAX_WRITE_BYTES)
#define FAST_READ_NS 150000	    /* a card is fast if its small reads take less than this, */
#define FAST_READ_BYTES (16u * KIB) /* and reads up to this size are small */
#define MAX_BACKGROUND                                                                             \
	128 /* the loop device has 128 tags, so no request waits in FUSE's background queue */
#define START_TIMEOUT_S 10
#define LAST_FD 1000 /* higher than all others */
/* bounds the lock time of WRITE_ZEROES, which may span 4 GiB */
#define PUNCH_PIECE_BYTES (64 * MIB)

struct fuse_export {
	struct view *view;
	struct fuse_image image; /* without a function: it serves the view */
	uint64_t volume_blks;
	int stop_fd;		   /* readable: end; -1: ends with the connection only */
	struct throttle *throttle; /* may be NULL */
	struct fuse_session *session;
	int fuse_fd;
	int session_fd; /* what libfuse writes to and closes: fuse_fd, or see captured_session() */
	int answer_fd;	/* -1, or the answer to INIT comes here */
	int abort_fd;
	bool apart; /* serving_alone() */
	sem_t init_done;
	_Atomic int init_result;
	struct serve *serve; /* NULL: one thread serves alone, with alone_buf */
	void *alone_buf;
	struct fuse_kept *kept; /* NULL: nothing is kept */

	struct parked *parked; /* NULL: a request that finds the card away fails */
	struct slots *slots;
	_Atomic uint64_t read_ns; /* duration of a small read of the card: a moving average */
};

static __thread bool answers_init; /* this thread handles FUSE_INIT */
static __thread char *read_buf; /* MAX_WRITE_BYTES of the serving thread that handles a request */

/* The only place that maps an error to the one that the kernel sees. */
static void reply_error(fuse_req_t req, int r)
{
	int e;

	switch (r) {
	case 0:
	case -ENOSPC:
	case -EOPNOTSUPP:
	case -ENOENT:
	case -ENOSYS:
	case -EINVAL:
		e = -r;
		break;
	default: /* EBADMSG, ENOMEM, EROFS, ...: all EIO for a block device */
		e = EIO;
	}
	fuse_reply_err(req, e);
}

static struct fuse_export *req_export(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static bool serves_image(const struct fuse_export *e)
{
	return e->image.read;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fuse_export *e = userdata;

	e->init_result = conn->capable & FUSE_CAP_ASYNC_DIO ? 0 : -EPROTONOSUPPORT;
	conn->want = conn->capable & (FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ);
	conn->max_write = MAX_WRITE_BYTES;
	conn->max_background = MAX_BACKGROUND;
	conn->congestion_threshold = MAX_BACKGROUND * 3 / 4;
	sem_post(&e->init_done);
}

static bool fill_attr(fuse_req_t req, fuse_ino_t ino, struct stat *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->st_ino = ino;
	ret->st_blksize = COW_BLK_BYTES;
	if (ino == FUSE_ROOT_ID) {
		ret->st_mode = S_IFDIR | 0500;
		ret->st_nlink = 2;
	} else if (ino == VOLUME_INO) {
		ret->st_mode = S_IFREG | 0600;
		ret->st_nlink = 1;
		ret->st_size = (off_t)blk_to_bytes(req_export(req)->volume_blks);
		ret->st_blocks = ret->st_size / 512;
	} else {
		return false;
	}
	return true;
}

/* The file has every name: who opens it decides which one sysfs shows. */
static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry = { .ino = VOLUME_INO,
					  .attr_timeout = FOREVER_S,
					  .entry_timeout = FOREVER_S };

	(void)name;
	if (parent == FUSE_ROOT_ID && fill_attr(req, VOLUME_INO, &entry.attr))
		fuse_reply_entry(req, &entry);
	else
		reply_error(req, -ENOENT);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	if (fill_attr(req, ino, &st))
		fuse_reply_attr(req, &st, FOREVER_S);
	else
		reply_error(req, -ENOENT);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fuse_open_out out = { .open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES |
						   FOPEN_NOFLUSH };

	(void)fi;
	if (ino == VOLUME_INO)
		fuse_reply_buf(req, (const char *)&out, sizeof(out));
	else
		reply_error(req, -EINVAL);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino, (void)fi;
	reply_error(req, 0);
}

static void reply_read(fuse_req_t req, const char *buf, size_t len_bytes, int r)
{
	if (r < 0)
		reply_error(req, r);
	else
		fuse_reply_buf(req, buf, len_bytes);
}

/* ---- requests that the card cannot serve now (parked.h) ---- */

static int read_now(struct fuse_export *e, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	return serves_image(e) ? e->image.read(e->image.ctx, off_bytes, buf, len_bytes)
			       : view_read(e->view, off_bytes, buf, len_bytes);
}

static int write_now(struct fuse_export *e, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	return serves_image(e) ? e->image.write(e->image.ctx, off_bytes, buf, len_bytes)
			       : view_write(e->view, off_bytes, buf, len_bytes);
}

static int punch(struct fuse_export *e, uint64_t off_bytes, uint64_t len_bytes)
{
	int r = 0;

	while (len_bytes && !r) {
		uint64_t piece = min_u64(len_bytes,
					 PUNCH_PIECE_BYTES - off_bytes % PUNCH_PIECE_BYTES);

		r = serves_image(e) ? e->image.punch(e->image.ctx, off_bytes, piece)
				    : view_punch(e->view, off_bytes, piece);
		off_bytes += piece;
		len_bytes -= piece;
	}
	return r;
}

static int serve_parked(void *ctx, const struct parked_request *p, void *buf)
{
	switch (p->kind) {
	case PARKED_READ:
		return read_now(ctx, p->off_bytes, buf, p->len_bytes);
	case PARKED_WRITE:
		return write_now(ctx, p->off_bytes, p->data, p->len_bytes);
	case PARKED_PUNCH:
		return punch(ctx, p->off_bytes, p->len_bytes);
	}
	return -EINVAL;
}

static void end_write(fuse_req_t req, uint64_t off_bytes, size_t len_bytes, int r)
{
	struct throttle *throttle = req_export(req)->throttle;

	if (r == -ENOSPC && throttle) {
		throttle_store_full(throttle);
		r = -EIO; /* file systems do not expect ENOSPC from a disk */
	}
	if (throttle && off_bytes < COW_BLK_BYTES)
		throttle_look(throttle); /* the superblock */
	if (!r && throttle && throttle_hold(throttle, req, len_bytes))
		return; /* reply_held answers */
	if (r < 0)
		reply_error(req, r);
	else
		fuse_reply_write(req, len_bytes);
}

static void answer_parked(void *ctx, const struct parked_request *p, void *buf, int r)
{
	(void)ctx;
	if (p->kind == PARKED_READ)
		reply_read(p->req, buf, p->len_bytes, r);
	else if (p->kind == PARKED_WRITE)
		end_write(p->req, p->off_bytes, p->len_bytes, r);
	else
		reply_error(p->req, r);
}

static const struct parked_ops parked_ops = { .buf_bytes = MAX_WRITE_BYTES,
					      .serve = serve_parked,
					      .answer = answer_parked };

/* False: it must be answered. data: of a write. */
static bool park(fuse_req_t req, int r, enum parked_kind kind, uint64_t off_bytes,
		 uint64_t len_bytes, const void *data)
{
	struct fuse_export *e = req_export(req);

	if (r != -ENOMEDIUM || !e->parked)
		return false;
	serve_hand_over(e->serve); /* it may wait for memory */
	parked_add(e->parked, req, kind, off_bytes, len_bytes, data);
	return true;
}

static void end_read(fuse_req_t req, uint64_t off_bytes, const char *buf, size_t len_bytes, int r)
{
	if (!park(req, r, PARKED_READ, off_bytes, len_bytes, NULL))
		reply_read(req, buf, len_bytes, r);
}

/* ---- */

static void note_read(struct fuse_export *e, size_t len_bytes, uint64_t since_ns)
{
	uint64_t before = atomic_load_explicit(&e->read_ns, memory_order_relaxed);

	if (len_bytes <= FAST_READ_BYTES) /* a lost update does no harm */
		atomic_store_explicit(&e->read_ns, (3 * before + (now_ns() - since_ns)) / 4,
				      memory_order_relaxed);
}

static void slot_done(struct view_read *rd, int r)
{
	struct slot *s = container_of(rd, struct slot, rd);

	note_read(req_export(s->req), s->len_bytes, s->since_ns);
	/* a read that blocks tries again after EIO */
	end_read(s->req, s->off_bytes, s->buf, s->len_bytes, r == -EIO ? -ENOMEDIUM : r);
	slot_put(s);
}

/* Answering from another thread costs some microseconds. If the card hardly takes longer and no
 * other request waits, the leader reads by itself. */
static bool read_alone(struct fuse_export *e, size_t len_bytes)
{
	return len_bytes <= FAST_READ_BYTES && !slots_used(e->slots) && serve_waited() &&
	       atomic_load_explicit(&e->read_ns, memory_order_relaxed) < FAST_READ_NS;
}

/* False: this read must block. */
static bool start_read(fuse_req_t req, uint64_t off_bytes, size_t len_bytes)
{
	struct fuse_export *e = req_export(req);
	struct slot *s = slot_get(e->slots, len_bytes);
	int r;

	if (!s)
		return false;
	s->rd.done = slot_done;
	s->req = req;
	s->off_bytes = off_bytes;
	s->len_bytes = len_bytes;
	s->since_ns = now_ns();
	r = view_start_read(e->view, off_bytes, s->buf, len_bytes, &s->rd);
	if (r == VIEW_PENDING)
		return true;
	if (r != -EAGAIN)
		reply_read(req, s->buf, len_bytes, r);
	slot_put(s);
	return r != -EAGAIN;
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct fuse_export *e = req_export(req);

	(void)fi;
	if (ino != VOLUME_INO || size > MAX_WRITE_BYTES || off < 0) {
		reply_error(req, -EINVAL);
	} else if (serves_image(e)) {
		serve_hand_over(e->serve);
		end_read(req, (uint64_t)off, read_buf, size,
			 read_now(e, (uint64_t)off, read_buf, size));
	} else if (read_alone(e, size)) {
		uint64_t since_ns = now_ns();
		int r = read_now(e, (uint64_t)off, read_buf, size);

		note_read(e, size, since_ns);
		end_read(req, (uint64_t)off, read_buf, size, r);
	} else if (!start_read(req, (uint64_t)off, size)) {
		serve_hand_over(e->serve);
		end_read(req, (uint64_t)off, read_buf, size,
			 read_now(e, (uint64_t)off, read_buf, size));
	}
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	struct fuse_export *e = req_export(req);
	struct throttle *throttle = e->throttle;
	size_t covered = size + (size_t)(off & (COW_BLK_BYTES - 1)),
	       whole = round_up_u64(covered, COW_BLK_BYTES);
	int r = throttle ? throttle_admit(throttle, whole) : 0;

	(void)fi;
	if (ino != VOLUME_INO || off < 0)
		r = -EINVAL;
	else if (!r && (serves_image(e) || view_write_waits(e->view, (uint64_t)off, size)))
		serve_hand_over(e->serve);
	if (!r)
		r = write_now(e, (uint64_t)off, buf, size);
	if (!park(req, r, PARKED_WRITE, (uint64_t)off, size, buf))
		end_write(req, (uint64_t)off, size, r);
}

static void reply_held(void *req, size_t bytes)
{
	fuse_reply_write(req, bytes);
}

/* DISCARD and WRITE_ZEROES of the loop driver. Other modes reserve space, which has no meaning
 * here. */
static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi)
{
	uint64_t end_bytes = blk_to_bytes(req_export(req)->volume_blks);
	int what = mode & ~FALLOC_FL_KEEP_SIZE;
	int r = -EINVAL;

	(void)fi;
	if ((serves_image(req_export(req)) && !req_export(req)->image.punch) ||
	    (mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) && what != FALLOC_FL_ZERO_RANGE))
		r = -EOPNOTSUPP;
	else if (ino == VOLUME_INO && off >= 0 && len > 0 &&
		 range_fits((uint64_t)off, (uint64_t)len, end_bytes)) {
		serve_hand_over(req_export(req)->serve);
		r = punch(req_export(req), (uint64_t)off, (uint64_t)len);
		if (park(req, r, PARKED_PUNCH, (uint64_t)off, (uint64_t)len, NULL))
			return;
	}
	reply_error(req, r);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)ino, (void)datasync, (void)fi;
	reply_error(req, -ENOSYS);
}

/* The loop driver asks for it, and uses f_bsize as its discard granularity. */
static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st = { .f_bsize = COW_BLK_BYTES,
			      .f_frsize = COW_BLK_BYTES,
			      .f_blocks = req_export(req)->volume_blks,
			      .f_files = 1,
			      .f_namemax = 255 };

	(void)ino;
	fuse_reply_statfs(req, &st);
}

/* libfuse answers all other operations (FLUSH, xattrs, locks, ...) with ENOSYS, and the kernel
 * never asks again. */
static const struct fuse_lowlevel_ops ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.open = op_open,
	.release = op_release,
	.read = op_read,
	.write = op_write,
	.fallocate = op_fallocate,
	.fsync = op_fsync,
	.statfs = op_statfs,
};

/* Waits for a request or for the stop. The descriptor does not block, because another thread may
 * take the request. */
static bool is_stopped(struct fuse_export *e)
{
	struct pollfd fds[] = { { .fd = e->fuse_fd, .events = POLLIN },
				{ .fd = e->stop_fd, .events = POLLIN } };

	return poll(fds, ARRAY_SIZE(fds), -1) > 0 && fds[1].revents;
}

static ssize_t receive(void *ctx, void *buf)
{
	struct fuse_export *e = ctx;
	ssize_t n;

	if (e->stop_fd >= 0 && is_stopped(e))
		return -ESHUTDOWN;
	n = read(e->fuse_fd, buf, BUF_BYTES);
	if (n > 0)
		return n;
	/* ENOENT: the request was cancelled while it was delivered */
	if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
		return -EAGAIN;
	if (e->image.gone)
		e->image.gone(e->image.ctx);
	if (n == 0)
		errno = EIO;
	if (errno != ENODEV && errno != ECONNABORTED)
		msg(MSG_ERR, "cannot receive FUSE requests: %m");
	return -errno;
}

#define REQUEST_TIMEOUT2 (1u << 10) /* FUSE_REQUEST_TIMEOUT, of flags2 */

static uint16_t longest_wait_s;

uint64_t fuse_longest_wait_s(void)
{
	uint64_t usual = 0, most = 0;

	if (io_read_u64(AT_FDCWD, "/proc/sys/fs/fuse/default_request_timeout", &usual) < 0 ||
	    io_read_u64(AT_FDCWD, "/proc/sys/fs/fuse/max_request_timeout", &most) < 0)
		return 0;
	/* who asks where there is no limit gets one */
	longest_wait_s = !usual && !most ? 0
					 : (uint16_t)min_u64(most ? most : UINT16_MAX, UINT16_MAX);
	return longest_wait_s;
}

/* libfuse derives max_pages from max_write, and does not know request_timeout, which follows max_stack_depth. */
static void raise_limits(void *init_out, size_t len_bytes)
{
	struct fuse_init_out *o = init_out;

	if (len_bytes >= offsetof(struct fuse_init_out, flags2))
		o->max_pages = MAX_PAGES;
	if (!longest_wait_s || len_bytes < sizeof(*o))
		return;
	o->flags |= FUSE_INIT_EXT;
	o->flags2 |= REQUEST_TIMEOUT2;
	memcpy((char *)&o->flags2 + 2 * sizeof(o->flags2), &longest_wait_s, sizeof(longest_wait_s));
}

/*
 * What libfuse has answered to INIT goes to the kernel, and from now on libfuse writes there. A write
 * that fails is an answer that does not come, or, in a process that takes over, one too many.
 */
static void pass_answer(struct fuse_export *e)
{
	struct {
		struct fuse_out_header head;
		struct fuse_init_out init;
		char more[256];
	} answer;
	ssize_t n = read(e->answer_fd, &answer, sizeof(answer));

	if (n > (ssize_t)sizeof(answer.head))
		raise_limits(&answer.init, (size_t)n - sizeof(answer.head));
	(void)!(n > 0 && write(e->fuse_fd, &answer, (size_t)n) > 0);
	if (dup3(e->fuse_fd, e->session_fd, O_CLOEXEC) < 0)
		msg(MSG_ERR, "cannot answer FUSE requests: %m");
	cleanup_closep(&e->answer_fd);
}

static void handle(void *ctx, void *buf, size_t len_bytes)
{
	struct fuse_export *e = ctx;
	struct fuse_buf request = { .size = len_bytes, .mem = buf };

	const struct fuse_in_header *in = buf;

	if (e->kept && !e->kept->init_bytes && in->opcode == FUSE_INIT &&
	    len_bytes <= sizeof(e->kept->init)) {
		memcpy(e->kept->init, buf, len_bytes);
		e->kept->init_bytes = (uint32_t)len_bytes;
	}
	answers_init = in->opcode == FUSE_INIT;
	read_buf = (char *)buf + HEADER_BYTES;
	fuse_session_process_buf(e->session, &request);
	if (answers_init && e->answer_fd >= 0)
		pass_answer(e);
}

static const struct serve_ops serve_ops = { .buf_bytes = BUF_BYTES,
					    .receive = receive,
					    .handle = handle };

static ssize_t send_reply(int fd, struct iovec *iov, int n, void *userdata)
{
	(void)userdata;
	if (answers_init && n == 2)
		raise_limits(iov[1].iov_base, iov[1].iov_len);
	return writev(fd, iov, n);
}

static ssize_t never_read(int fd, void *buf, size_t len_bytes, void *userdata)
{
	(void)fd, (void)buf, (void)len_bytes, (void)userdata;
	errno = EINVAL;
	return -1;
}

static int last_fd(int fd)
{
	int r = fcntl(fd, F_DUPFD_CLOEXEC, LAST_FD);

	if (r < 0)
		r = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return r < 0 ? -errno : r;
}

/*
 * For libfuse 3.18, which may have been built without custom I/O: it gets a pipe, and the kernel's
 * descriptor in its place when INIT is answered.
 */
static int captured_session(struct fuse_export *e)
{
	char name[sizeof("/dev/fd/") + 12];
	int fds[2], fd;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	e->answer_fd = fds[0];
	fd = last_fd(fds[1]);
	close(fds[1]);
	if (fd < 0)
		return fd;
	snprintf(name, sizeof(name), "/dev/fd/%d", fd);
	if (fuse_session_mount(e->session, name) < 0) {
		close(fd);
		return -EIO;
	}
	e->session_fd = fd;
	return 0;
}

static void no_log(enum fuse_log_level level, const char *format, va_list words)
{
	(void)level, (void)format, (void)words;
}

static int new_session(struct fuse_export *e, int fuse_fd)
{
	static const struct fuse_custom_io io = { .writev = send_reply, .read = never_read };
	char *argv[] = { (char *)"cowfs", NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	int r;

	e->session = fuse_session_new(&args, &ops, sizeof(ops), e);
	fuse_opt_free_args(&args);
	if (!e->session)
		return -ENOMEM;
	r = last_fd(fuse_fd);
	if (r < 0)
		return r;
	e->fuse_fd = r;
	fuse_set_log_func(no_log);
	r = fuse_session_custom_io(e->session, &io, e->fuse_fd);
	fuse_set_log_func(NULL);
	if (r == 0)
		e->session_fd = e->fuse_fd;
	return r == -EOPNOTSUPP ? captured_session(e) : r;
}

static int wait_init(struct fuse_export *e)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += START_TIMEOUT_S;
	while (sem_clockwait(&e->init_done, CLOCK_MONOTONIC, &until) < 0)
		if (errno != EINTR)
			return -errno;
	return e->init_result;
}

/* If the kernel did not accept the reply to INIT (a filter refused the call, for example), every
 * request waits forever, whatever happens to this process. op_init only knows that a reply was
 * sent. */
static int open_file(struct fuse_export *e, int mount_fd, const char *name)
{
	struct fuse_guard guard;
	int r = e->abort_fd >= 0 ? fuse_guard_start(&guard, e->abort_fd, START_TIMEOUT_S) : 0;

	if (r < 0)
		return r;
	r = mount_fd < 0 ? broker_call(BROKER_MAIN, BROKER_FILE, 0, 0)
			 : fuse_mount_open_file(mount_fd, name);
	return e->abort_fd >= 0 && fuse_guard_stop(&guard) && r < 0 ? -ETIMEDOUT : r;
}

static void free_export(struct fuse_export *e)
{
	parked_free(e->parked); /* answers */
	if (e->session)
		fuse_session_destroy(e->session); /* and session_fd */
	if (e->fuse_fd >= 0 && e->fuse_fd != e->session_fd)
		close(e->fuse_fd);
	cleanup_closep(&e->answer_fd);
	cleanup_closep(&e->abort_fd);
	cleanup_closep(&e->stop_fd);
	slots_free(e->slots);
	free(e->alone_buf);
	sem_destroy(&e->init_done);
	free(e);
}

static struct fuse_export *alloc_export(void)
{
	struct fuse_export *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->abort_fd = e->stop_fd = e->fuse_fd = e->session_fd = e->answer_fd = -1;
	e->read_ns = 2 * FAST_READ_NS;
	sem_init(&e->init_done, 0, 0);
	return e;
}

/* image NULL: serves the view. */
static int new_export(struct fuse_export **ret, struct view *v, const struct fuse_image *image,
		      int fuse_fd)
{
	struct fuse_export *e = alloc_export();
	int r = 0;

	if (!e)
		return -ENOMEM;
	e->view = v;
	e->volume_blks = image ? image->volume_blks : view_volume_blks(v);
	if (!image) {
		r = slots_new(&e->slots, MAX_WRITE_BYTES);
	} else {
		e->image = *image;
		e->stop_fd = eventfd(0, EFD_CLOEXEC);
		if (e->stop_fd < 0 || fcntl(fuse_fd, F_SETFL, O_NONBLOCK) < 0)
			r = -errno;
	}
	if (!r)
		r = parked_new(&e->parked, &parked_ops, e);
	if (!r)
		r = new_session(e, fuse_fd);
	if (!r)
		r = serve_new(&e->serve, image ? IMAGE_SERVERS : SERVERS, &serve_ops, e);
	if (r < 0) {
		free_export(e);
		return r;
	}
	*ret = e;
	return 0;
}

int fuse_export_image(struct fuse_export **ret, const struct fuse_image *image, int fuse_fd)
{
	struct fuse_export *e;
	int r = new_export(&e, NULL, image, fuse_fd);

	if (r < 0)
		return r;
	r = serve_start(e->serve);
	if (r < 0) {
		fuse_export_end(e);
		return r;
	}
	*ret = e;
	return 0;
}

void fuse_export_end(struct fuse_export *e)
{
	const uint64_t one = 1;

	fuse_export_refuse(e, true);
	if (write(e->stop_fd, &one, sizeof(one)) < 0)
		msg(MSG_ERR, "cannot end the service of a view: %m");
	serve_free(e->serve);
	free_export(e);
}

int fuse_image_open(struct fuse_export **ret, int fuse_fd, int *ret_fd)
{
	struct fuse_export *e = alloc_export();
	int r;

	if (!e)
		return -ENOMEM;
	e->alone_buf = io_alloc(BUF_BYTES);
	r = e->alone_buf ? new_session(e, fuse_fd) : -ENOMEM;
	if (r < 0) {
		free_export(e);
		return r;
	}
	*ret = e;
	*ret_fd = e->fuse_fd;
	return 0;
}

void fuse_image_serve(struct fuse_export *e, const struct fuse_image *image)
{
	ssize_t n;

	e->image = *image;
	e->volume_blks = image->volume_blks;
	while ((n = receive(e, e->alone_buf)) > 0 || n == -EAGAIN)
		if (n > 0)
			handle(e, e->alone_buf, (size_t)n);
}

void fuse_image_close(struct fuse_export *e)
{
	if (e)
		free_export(e);
}

/* The kernel sends all requests again that were taken and not answered. */
static int ask_again(int fuse_fd)
{
	const struct fuse_out_header resend = { .len = sizeof(resend), .error = NOTIFY_RESEND };

	return write(fuse_fd, &resend, sizeof(resend)) < 0 ? -errno : 0;
}

int fuse_export_take_over(struct fuse_export **ret, struct view *v, int fuse_fd, int abort_fd,
			  struct fuse_kept *kept, struct throttle *throttle)
{
	struct fuse_buf init = { .size = kept->init_bytes, .mem = kept->init };
	struct fuse_export *e;
	int r;

	if (init.size < sizeof(struct fuse_in_header) || init.size > sizeof(kept->init))
		return -EPROTO;
	r = new_export(&e, v, NULL, fuse_fd);
	if (r < 0)
		return r;
	fuse_session_process_buf(e->session, &init);
	if (e->answer_fd >= 0)
		pass_answer(e);
	r = e->init_result;
	if (r == 0)
		r = ask_again(e->fuse_fd);
	if (r == 0 && throttle)
		r = fuse_export_set_throttle(e, throttle);
	if (r == 0)
		r = serve_start(e->serve);
	/* on an error the process ends */
	e->abort_fd = abort_fd;
	*ret = e;
	return r;
}

/* The kernel waits for a grace period when it enlarges a table that threads share. */
void transport_make_room(int kernel_fd)
{
	int fd = fcntl(kernel_fd, F_DUPFD_CLOEXEC, LAST_FD);

	cleanup_closep(&fd);
}

int transport_prepare(int kernel_fd, int *ret_mount_fd, int *ret_abort_fd)
{
	int e = fuse_mount_create(kernel_fd, ret_mount_fd);

	if (e < 0)
		return e;
	*ret_abort_fd = fuse_mount_open_abort(*ret_mount_fd);
	if (*ret_abort_fd < 0)
		msg(MSG_WARN, "cannot abort FUSE connections later (fusectl): %s",
		    strerrordesc_np(-*ret_abort_fd));
	return 0;
}

/*
 * From now on only the threads that serve have /dev/fuse: this one, which has the other descriptors, may
 * be killed in a call that waits for their answer. LOOP_CONFIGURE does so with a lock that all users of
 * loop devices need. The mount lasts as long as their descriptors, so fuse_export_stop aborts it.
 */
static int serving_alone(struct fuse_export *e, int fuse_fd)
{
	const int fds[] = { fuse_fd, e->fuse_fd, e->session_fd };
	_cleanup_close_ int null_fd = e->abort_fd >= 0 ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;

	if (e->abort_fd < 0)
		return 0;
	e->apart = null_fd >= 0 && unshare(CLONE_FILES) == 0;
	for (size_t i = 0; e->apart && i < ARRAY_SIZE(fds); i++)
		if (dup3(null_fd, fds[i], O_CLOEXEC) < 0)
			return -errno;
	return e->apart ? 0 : -errno;
}

/* What fails here makes no mount: the caller's. */
static int make_mount(struct fuse_export *e, int abort_fd, int *ret_mount_fd)
{
	if (!broker_on())
		return transport_prepare(e->fuse_fd, ret_mount_fd, &e->abort_fd);
	e->abort_fd = abort_fd;
	return 0;
}

int fuse_export_start(struct fuse_export **ret, struct view *v, int fuse_fd, int abort_fd,
		      const char *name, struct fuse_kept *kept, int *ret_file_fd)
{
	_cleanup_close_ int mount_fd = -1;
	struct fuse_export *e;
	int file_fd = -1, r;

	r = new_export(&e, v, NULL, fuse_fd);
	if (r < 0)
		return r;
	e->kept = kept;
	r = make_mount(e, abort_fd, &mount_fd);
	if (!r)
		r = serve_start(e->serve);
	if (!r)
		r = wait_init(e);
	if (!r && !broker_on())
		r = serving_alone(e, fuse_fd);
	if (!r)
		r = file_fd = open_file(e, mount_fd, name);
	if (r < 0) {
		cleanup_closep(&mount_fd); /* the last close: wakes the threads */
		if (broker_on())
			(void)!broker_call(BROKER_MAIN, BROKER_DETACH, 0, 0);
		fuse_export_stop(e);
		return r;
	}
	*ret_file_fd = broker_on() ? -1 : file_fd;
	*ret = e;
	return 0;
}

int fuse_export_set_throttle(struct fuse_export *e, struct throttle *throttle)
{
	int r = throttle_start(throttle, reply_held);

	if (r == 0)
		e->throttle = throttle;
	return r;
}

int fuse_export_abort_fd(const struct fuse_export *e)
{
	return e->abort_fd < 0 ? -1 : e->abort_fd;
}

bool fuse_export_loops(struct fuse_export *e, uint64_t cpu_ns)
{
	return serve_loops(e->serve, cpu_ns);
}

void fuse_export_refuse(struct fuse_export *e, bool on)
{
	parked_refuse(e->parked, on);
}

void fuse_export_stop(struct fuse_export *e)
{
	fuse_export_refuse(e, true);
	if (e->apart && write(e->abort_fd, "1", 1) < 0)
		msg(MSG_ERR, "cannot abort the FUSE connection: %m");
	serve_free(e->serve);
	slots_wait(e->slots);
	parked_free(e->parked);
	e->parked = NULL; /* its thread passes the throttle */
	if (e->throttle)
		throttle_stop(e->throttle);
	free_export(e);
}
