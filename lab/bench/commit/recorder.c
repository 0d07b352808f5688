/* SPDX-License-Identifier: MIT */
/*
 * Records the requests to a card: a file on a FUSE mount, for a loop device or a virtual machine on
 * top of it.
 *
 *	recorder IMAGE MOUNTPOINT TRACE [no-contents]
 *
 * MOUNTPOINT/card is IMAGE; its writes, flushes and discards go to TRACE.trace and TRACE.data
 * (sim/trace.h) in the order of their answers. MOUNTPOINT/mark takes words, one per write(2):
 *
 *	on		starts recording
 *	off		stops recording
 *	clock NS	sets virtual time to NS; before the first of these, time is the real time
 *			since the first "on"
 *	commit, sync	a commit point or a sync point
 *
 * A mark is answered when all earlier answers have been recorded. With no-contents there is no
 * TRACE.data: for traces that are only estimated. Runs until it is unmounted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <fuse_lowlevel.h>

#include "base/io.h"
#include "sim/trace.h"

enum { CARD_INO = 2, MARK_INO = 3 };

#define MAX_BYTES (1u << 20)
#define FOREVER_S 1e9
#define DISCARD_BYTES ((uint64_t)UINT32_MAX + 1 - MIB)

static struct {
	int fd;
	struct flash_trace_writer *trace;
	bool on, clock_set;
	int failed;
	uint64_t start_ns, clock_ns;
} rec;

/* ---- the trace ---- */

static void put(enum flash_trace_op op, uint64_t off_bytes, uint64_t len_bytes, const void *buf)
{
	struct flash_trace_record r = { .time_ns = rec.clock_set ? rec.clock_ns
								 : now_ns() - rec.start_ns,
					.off_bytes = off_bytes,
					.len_bytes = (uint32_t)len_bytes,
					.op = (uint8_t)op };

	if (rec.on && !rec.failed)
		rec.failed = flash_trace_add(rec.trace, &r, buf);
}

static int mark(const char *buf, size_t size)
{
	char word[64];

	if (size >= sizeof(word))
		return -EINVAL;
	memcpy(word, buf, size);
	word[size] = 0;
	word[strcspn(word, "\n")] = 0;
	if (!strncmp(word, "clock ", 6)) {
		rec.clock_ns = strtoull(word + 6, NULL, 10);
		rec.clock_set = true;
	} else if (!strcmp(word, "on")) {
		rec.start_ns = rec.start_ns ? rec.start_ns : now_ns();
		rec.on = true;
	} else if (!strcmp(word, "off")) {
		rec.on = false;
	} else if (!strcmp(word, "commit")) {
		put(FLASH_TRACE_COMMIT, 0, 0, NULL);
	} else if (!strcmp(word, "sync")) {
		put(FLASH_TRACE_SYNC, 0, 0, NULL);
	} else {
		return -EINVAL;
	}
	/* the next reader of the trace finds all of it */
	if (!rec.failed)
		rec.failed = flash_trace_flush(rec.trace);
	return rec.failed;
}

/* ---- FUSE ---- */

static bool fill_attr(fuse_ino_t ino, struct stat *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (ino == CARD_INO && fstat(rec.fd, ret) < 0)
		return false;
	ret->st_ino = ino;
	ret->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0700 : S_IFREG | 0600;
	ret->st_nlink = 1;
	return ino <= MARK_INO;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	conn->want = conn->capable & (FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ);
	conn->max_write = MAX_BYTES;
	conn->max_background = 128;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .attr_timeout = FOREVER_S, .entry_timeout = FOREVER_S };

	e.ino = !strcmp(name, "card") ? CARD_INO : !strcmp(name, "mark") ? MARK_INO : 0;
	if (parent == FUSE_ROOT_ID && e.ino && fill_attr(e.ino, &e.attr))
		fuse_reply_entry(req, &e);
	else
		fuse_reply_err(req, ENOENT);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	if (fill_attr(ino, &st))
		fuse_reply_attr(req, &st, FOREVER_S);
	else
		fuse_reply_err(req, ENOENT);
}

/* a shell truncates its output file */
static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	if (ino == MARK_INO && to_set & FUSE_SET_ATTR_SIZE)
		op_getattr(req, ino, fi);
	else
		fuse_reply_err(req, EPERM);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fi->direct_io = 1;
	if (ino == FUSE_ROOT_ID)
		fuse_reply_err(req, EISDIR);
	else
		fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	static char buf[MAX_BYTES];
	int r;

	if (ino == MARK_INO) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	r = size <= MAX_BYTES ? io_pread_full(rec.fd, buf, size, (uint64_t)off) : -EINVAL;
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_buf(req, buf, size);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	int r = ino == MARK_INO ? mark(buf, size)
				: io_pwrite_full(rec.fd, buf, size, (uint64_t)off);

	if (r == 0 && ino == CARD_INO)
		put(FLASH_TRACE_WRITE, (uint64_t)off, size, buf);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_write(req, size);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	if (ino == CARD_INO)
		put(FLASH_TRACE_FLUSH, 0, 0, NULL);
	fuse_reply_err(req, 0);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi)
{
	uint64_t at = (uint64_t)off, end = at + (uint64_t)len;

	/* requested zeroes are written, as on a card without another way */
	if (ino != CARD_INO || mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	if (fallocate(rec.fd, mode, off, len) < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	for (uint64_t n; at < end; at += n) {
		n = min_u64(end - at, DISCARD_BYTES);
		put(FLASH_TRACE_DISCARD, at, n, NULL);
	}
	fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.fsync = op_fsync,
	.fallocate = op_fallocate,
};

/* ---- main ---- */

int main(int argc, char **argv)
{
	char *args_v[] = { argv[0], NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, args_v);
	struct fuse_session *se;
	struct stat st;
	char path[4096];
	bool contents = argc == 4;
	int r;

	if (!contents && (argc != 5 || strcmp(argv[4], "no-contents") != 0)) {
		fprintf(stderr, "usage: recorder IMAGE MOUNTPOINT TRACE [no-contents]\n");
		return 2;
	}
	rec.fd = open(argv[1], O_RDWR | O_CLOEXEC);
	if (rec.fd < 0 || fstat(rec.fd, &st) < 0) {
		perror(argv[1]);
		return 1;
	}
	snprintf(path, sizeof(path), "%s.trace", argv[3]);
	r = flash_trace_create(&rec.trace, path, (uint64_t)st.st_size, contents);
	if (r < 0) {
		fprintf(stderr, "recorder: %s: %s\n", path, strerror(-r));
		return 1;
	}
	se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!se || fuse_session_mount(se, argv[2]) < 0)
		return 1;
	/* one thread: the order of the answers is the order of the records */
	r = fuse_session_loop(se);
	fuse_session_unmount(se);
	fuse_session_destroy(se);
	if (!rec.failed)
		rec.failed = flash_trace_finish(rec.trace);
	if (rec.failed)
		fprintf(stderr, "recorder: %s: not all was recorded: %s\n", argv[3],
			strerror(-rec.failed));
	return r || rec.failed ? 1 : 0;
}
