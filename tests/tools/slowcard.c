/* SPDX-License-Identifier: MIT */
/*
 * A slow card: one file on a FUSE mount that passes reads and writes on to another file, at a
 * card's speed. For loop devices on top of it.
 *
 *	slowcard FILE MOUNTPOINT KIB_PER_SECOND MICROSECONDS QUEUE
 *
 * Each request takes MICROSECONDS, up to QUEUE of them at once (1: a card without command queue),
 * and then its bytes pass a bus of KIB_PER_SECOND, one after another. The file is MOUNTPOINT/card.
 * Runs until it is unmounted.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <fuse_lowlevel.h>

#include "base/io.h"
#include "base/parse.h"

#define CARD_INO 2
#define CARD_NAME "card"
#define MAX_BYTES (1u << 20)
#define FOREVER_S 1e9

static struct {
	int fd;
	uint64_t bytes_per_s, latency_ns;
	pthread_mutex_t lock;
	pthread_cond_t served;
	uint64_t queue, asked, done; /* first come, first served, however busy the machine is */
	uint64_t bus_free_ns; /* when the last byte that was promised the bus will have passed */
} card;

static void sleep_until(uint64_t at_ns)
{
	const struct timespec ts = { .tv_sec = (time_t)(at_ns / 1000000000u),
				     .tv_nsec = (long)(at_ns % 1000000000u) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static void spend(size_t len_bytes)
{
	uint64_t ready_ns, done_ns;

	/* waiting for a place in the queue is not the card's time, but it serves nothing meanwhile
	 */
	pthread_mutex_lock(&card.lock);
	for (uint64_t nr = card.asked++; nr >= card.done + card.queue;)
		pthread_cond_wait(&card.served, &card.lock);
	pthread_mutex_unlock(&card.lock);
	ready_ns = now_ns() + card.latency_ns;
	sleep_until(ready_ns);
	pthread_mutex_lock(&card.lock);
	done_ns = max_u64(ready_ns, card.bus_free_ns) + len_bytes * 1000000000u / card.bytes_per_s;
	card.bus_free_ns = done_ns;
	pthread_mutex_unlock(&card.lock);
	sleep_until(done_ns);
	pthread_mutex_lock(&card.lock);
	card.done++;
	pthread_cond_broadcast(&card.served);
	pthread_mutex_unlock(&card.lock);
}

static bool fill_attr(fuse_ino_t ino, struct stat *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (ino == CARD_INO && fstat(card.fd, ret) < 0)
		return false;
	ret->st_ino = ino;
	ret->st_mode = ino == CARD_INO ? S_IFREG | 0600 : S_IFDIR | 0700;
	return ino == CARD_INO || ino == FUSE_ROOT_ID;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	conn->want = conn->capable & (FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ);
	conn->max_write = MAX_BYTES;
	conn->max_background = 128;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .ino = CARD_INO,
				      .attr_timeout = FOREVER_S,
				      .entry_timeout = FOREVER_S };

	if (parent == FUSE_ROOT_ID && !strcmp(name, CARD_NAME) && fill_attr(CARD_INO, &e.attr))
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

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fi->direct_io = 1;
	if (ino == CARD_INO)
		fuse_reply_open(req, fi);
	else
		fuse_reply_err(req, EISDIR);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	static __thread char *buf;
	int r;

	if (!buf && !(buf = io_alloc(MAX_BYTES))) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	r = size <= MAX_BYTES ? io_pread_full(card.fd, buf, size, (uint64_t)off) : -EINVAL;
	spend(size);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_buf(req, buf, size);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	int r = io_pwrite_full(card.fd, buf, size, (uint64_t)off);

	spend(size);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_write(req, size);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	spend(0);
	fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.fsync = op_fsync,
};

int main(int argc, char **argv)
{
	char *args_v[] = { argv[0], NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, args_v);
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	struct fuse_session *se;
	uint64_t kib, us, queue;
	int r;

	if (argc != 6 || parse_u64(argv[3], &kib) < 0 || parse_u64(argv[4], &us) < 0 ||
	    parse_u64(argv[5], &queue) < 0 || !kib || !queue || !config) {
		fprintf(stderr,
			"usage: slowcard FILE MOUNTPOINT KIB_PER_SECOND MICROSECONDS QUEUE\n");
		return 2;
	}
	card.bytes_per_s = kib * 1024;
	card.latency_ns = us * 1000;
	card.fd = open(argv[1], O_RDWR | O_CLOEXEC);
	if (card.fd < 0) {
		perror(argv[1]);
		return 1;
	}
	prctl(PR_SET_TIMERSLACK, 1);
	card.queue = queue;
	pthread_mutex_init(&card.lock, NULL);
	pthread_cond_init(&card.served, NULL);
	se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!se || fuse_session_mount(se, argv[2]) < 0)
		return 1;
	fuse_loop_cfg_set_max_threads(config, 32);
	fuse_loop_cfg_set_idle_threads(config, 32);
	r = fuse_session_loop_mt(se, config);
	fuse_session_unmount(se);
	fuse_session_destroy(se);
	return r ? 1 : 0;
}
