/* SPDX-License-Identifier: MIT */
#include "sim/cardmount.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <fuse_lowlevel.h>

#include "base/io.h"

#define MAX_BYTES (1u << 20)
#define FOREVER_S 1e9

enum { CARD_INO = 2, WORD_INO };

static struct cardmount m; /* the only one of this program */

static bool fill_attr(fuse_ino_t ino, struct stat *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (ino == CARD_INO && fstat(m.fd, ret) < 0)
		return false;
	ret->st_ino = ino;
	ret->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0700 : S_IFREG | 0600;
	ret->st_nlink = 1;
	return ino <= (m.word_name ? WORD_INO : CARD_INO);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->want = conn->capable & (FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ);
	conn->max_write = MAX_BYTES;
	conn->max_background = 128;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .attr_timeout = FOREVER_S, .entry_timeout = FOREVER_S };

	e.ino = !strcmp(name, CARDMOUNT_NAME)		    ? CARD_INO
		: m.word_name && !strcmp(name, m.word_name) ? WORD_INO
							    : 0;
	if (parent == FUSE_ROOT_ID && e.ino && fill_attr(e.ino, &e.attr))
		fuse_reply_entry(req, &e);
	else
		fuse_reply_err(req, ENOENT);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	if (fill_attr(ino, &st))
		fuse_reply_attr(req, &st, FOREVER_S);
	else
		fuse_reply_err(req, ENOENT);
}

/* a shell truncates its output file */
static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	(void)attr;
	if (ino == WORD_INO && to_set & FUSE_SET_ATTR_SIZE)
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
	static __thread char *buf;
	int r = buf || (buf = io_alloc(MAX_BYTES)) ? 0 : -ENOMEM;

	(void)fi;
	if (ino == WORD_INO) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	if (r == 0)
		r = size <= MAX_BYTES ? io_pread_full(m.fd, buf, size, (uint64_t)off) : -EINVAL;
	m.done(CARDMOUNT_READ, (uint64_t)off, size, NULL);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_buf(req, buf, size);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	int r = ino == WORD_INO ? m.word(buf, size)
				: io_pwrite_full(m.fd, buf, size, (uint64_t)off);

	(void)fi;
	if (r == 0 && ino == CARD_INO)
		m.done(CARDMOUNT_WRITE, (uint64_t)off, size, buf);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_write(req, size);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync, (void)fi;
	if (ino == CARD_INO)
		m.done(CARDMOUNT_FLUSH, 0, 0, NULL);
	fuse_reply_err(req, 0);
}

/* Requested zeroes are written, as on a card without another way. */
static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi)
{
	int r = 0;

	(void)fi;
	if (ino != CARD_INO || mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
		r = EOPNOTSUPP;
	else if (fallocate(m.fd, mode, off, len) < 0)
		r = errno;
	else
		m.done(CARDMOUNT_DISCARD, (uint64_t)off, (uint64_t)len, NULL);
	fuse_reply_err(req, r);
}

int cardmount_serve(const struct cardmount *mount, const char *dir)
{
	const struct fuse_lowlevel_ops ops = {
		.init = op_init,
		.lookup = op_lookup,
		.getattr = op_getattr,
		.setattr = op_setattr,
		.open = op_open,
		.read = op_read,
		.write = op_write,
		.fsync = op_fsync,
		.fallocate = mount->discards ? op_fallocate : NULL,
	};
	char *argv[] = { (char *)"cardmount", NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	struct fuse_session *se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	int r = se && config ? 0 : -ENOMEM;

	m = *mount;
	if (r == 0 && fuse_session_mount(se, dir) < 0)
		r = -EBUSY;
	if (r == 0) {
		fuse_loop_cfg_set_max_threads(config, m.threads);
		fuse_loop_cfg_set_idle_threads(config, m.threads);
		r = m.threads == 1 ? fuse_session_loop(se) : fuse_session_loop_mt(se, config);
		fuse_session_unmount(se);
	}
	if (se)
		fuse_session_destroy(se);
	fuse_loop_cfg_destroy(config);
	return r < 0 ? r : r ? -EIO : 0;
}
