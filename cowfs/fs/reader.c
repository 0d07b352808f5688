// SPDX-License-Identifier: MIT
/*
 * Questions about an image, here or in another process.
 *
 * On the socket (a stream: where a buffer is small, messages of 64 KiB go in pieces) one question
 * is open at a time. The asking side sends a struct question; the other one sends struct answers,
 * each with its data: one that wants blocks is answered by an error number and these, until one is
 * the last. What a bitmap or a range says cannot be checked here, and need not be: whoever controls
 * the other side controls the image, which may say the same. That it stays inside of the volume and
 * of our memory is checked.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/io.h"
#include "fs/btrfs_space.h"
#include "fs/ext4.h"
#include "fs/reader.h"
#include "fs/fsproc.h"
#include "fs/xfs_space.h"

#define READ_UNITS 16
/* each question has a part of it more: many groups take long where the CPU is busy */
#define QUESTIONS_PER_PATIENCE 600
#define RANGES_PER_ANSWER 2048
#define MAX_RANGES (1u << 17)
/* 256 MiB: what an honest side never needs for descriptors and the map of a journal */
#define READS_SESSION_BLKS 65536u
#define READS_QUESTION_BLKS 64u /* more for each question */
#define READS_TREES_BLKS 4096u	/* the same where the answer is in trees, not in a bitmap */

enum { ASK_OPEN, ASK_LOG, ASK_GROUP };

struct question {
	uint32_t what, ask;
	uint64_t number; /* volume_blks; the first range; the group */
};

struct answer {
	uint32_t more; /* 1: blocks are wanted first */
	int32_t err;
	uint64_t bytes;	    /* of data behind it */
	uint64_t blk, blks; /* or blks: how many ranges there are */
};

/* One of these. */
struct image {
	struct ext4_image *ext;
	struct btrfs_space *btrfs;
	struct xfs_space *xfs;
	uint64_t blocks;
	uint32_t groups, bitmap_bytes;
};

struct reader {
	struct image here; /* unless it is at the other end of fd */
	int fd, pid_fd;
	bool dead;			/* has no answer any more */
	uint64_t patience_ns;		/* left */
	uint64_t reads_blks, more_blks; /* left, and more for each question */
	int read_err;			/* what a read of a block returned last */
	struct blk_reader r;
	uint32_t block_bytes;
	uint64_t blocks;
	struct reader_journal journal;
	uint8_t *buf; /* READ_UNITS */
};

uint64_t reader_patience_ns = 60 * 1000000000ull;

static void iov_skip(struct iovec **iov, size_t *n, size_t bytes)
{
	for (; *n && bytes >= (*iov)->iov_len; (*iov)++, (*n)--)
		bytes -= (*iov)->iov_len;
	if (*n) {
		(*iov)->iov_base = (char *)(*iov)->iov_base + bytes;
		(*iov)->iov_len -= bytes;
	}
}

/* ---- what knows an image ---- */

static void note_block(void *ctx, uint64_t block)
{
	struct reader_facts *f = ctx;

	if (f->gdt_blocks < READER_GDT_MARKS)
		f->gdt_block[f->gdt_blocks++] = block;
}

static int facts_of_ext(struct ext4_image *e, unsigned ask, struct reader_facts *f)
{
	const struct ext2_super_block *sb = e->fs->super;

	*f = (struct reader_facts){
		.blocks = ext2fs_blocks_count(e->fs->super),
		.block_shift = (uint32_t)EXT2_BLOCK_SIZE_BITS(sb),
		.first_data_block = sb->s_first_data_block,
		.blocks_per_group = sb->s_blocks_per_group,
		.cluster_shift = (uint32_t)e->fs->cluster_ratio_bits,
	};
	if (ask & READER_ASK_GDT)
		f->gdt_err = ext4_gdt_crc(e, &f->gdt_crc, note_block, f);
	if (f->gdt_err && f->gdt_err != -EUCLEAN)
		return f->gdt_err;
	if (ask & READER_ASK_JOURNAL)
		f->journal_err = ext4_journal(e, &f->journal);
	return f->journal_err && f->journal_err != -EUCLEAN && f->journal_err != -ENOENT
		       ? f->journal_err
		       : 0;
}

static int image_open(struct image *im, const struct blk_reader *r, unsigned ask,
		      struct reader_facts *f)
{
	uint64_t units = 0;
	int err;

	if (ask & ASK_BTRFS)
		err = btrfs_space_open(&im->btrfs, r, &units);
	else if (ask & ASK_XFS)
		err = xfs_space_open(&im->xfs, r, &units);
	else
		err = ext4_open(&im->ext, r);
	if (!err && im->ext)
		err = facts_of_ext(im->ext, ask, f);
	else if (!err)
		*f = (struct reader_facts){ .blocks = min_u64(units, r->volume_blks),
					    .block_shift = COW_BLK_SHIFT,
					    .blocks_per_group = GROUP_UNITS,
					    .journal_err = -ENOENT };
	if (err)
		return err;
	im->blocks = f->blocks;
	im->bitmap_bytes = 1u << f->block_shift;
	im->groups = im->ext ? im->ext->fs->group_desc_count
			     : (uint32_t)((f->blocks + GROUP_UNITS - 1) / GROUP_UNITS);
	return 0;
}

static int image_group(struct image *im, uint64_t nr, uint8_t *bits)
{
	uint64_t first = nr * GROUP_UNITS;

	if (nr >= im->groups)
		return -EINVAL;
	if (im->ext)
		return ext4_group_bits(im->ext, (dgrp_t)nr, bits);
	memset(bits, 0, im->bitmap_bytes);
	if (im->xfs)
		return xfs_space_used(im->xfs, first, min_u64(GROUP_UNITS, im->blocks - first),
				      bits);
	return btrfs_space_used(im->btrfs, first, min_u64(GROUP_UNITS, im->blocks - first), bits);
}

static int image_log(struct image *im, const struct reader_journal *j, struct reader_range **ret,
		     size_t *ret_n)
{
	return im->ext ? ext4_log_ranges(im->ext, j, ret, ret_n) : -EINVAL;
}

static void image_close(struct image *im)
{
	ext4_close(im->ext);
	btrfs_space_close(im->btrfs);
	xfs_space_close(im->xfs);
}

/* ---- the side that answers ---- */

struct served {
	int fd;
	struct image im;
	struct reader_facts facts;
	struct reader_range *ranges;
	size_t n;
	uint8_t *bits;
};

/* All of iov, in or out; blocks. */
static bool pass(int fd, bool in, struct iovec *iov, size_t n)
{
	while (n) {
		struct msghdr m = { .msg_iov = iov, .msg_iovlen = n };
		ssize_t done = in ? recvmsg(fd, &m, 0) : sendmsg(fd, &m, MSG_NOSIGNAL);

		if (done <= 0)
			return false;
		iov_skip(&iov, &n, (size_t)done);
	}
	return true;
}

static bool reply(int fd, int err, uint64_t n, const void *data, size_t bytes)
{
	struct answer a = { .err = err, .bytes = err ? 0 : bytes, .blks = n };
	struct iovec iov[2] = { { &a, sizeof(a) }, { (void *)data, (size_t)a.bytes } };

	return pass(fd, false, iov, a.bytes ? 2 : 1);
}

static int read_there(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct answer want = { .more = 1, .blk = blk, .blks = blks };
	struct iovec out = { &want, sizeof(want) };
	int32_t err;
	struct iovec in[2] = { { &err, sizeof(err) }, { buf, blk_to_bytes(blks) } };
	int fd = *(int *)ctx;

	if (!pass(fd, false, &out, 1) || !pass(fd, true, &in[0], 1))
		return -EIO;
	return err ? err : pass(fd, true, &in[1], 1) ? 0 : -EIO;
}

static bool serve_open(struct served *s, const struct question *q)
{
	struct blk_reader r = { read_there, &s->fd, q->number };
	int err = s->bits ? -EINVAL : image_open(&s->im, &r, q->ask, &s->facts);

	if (!err)
		s->bits = malloc(s->im.bitmap_bytes);
	if (!err && !s->bits)
		err = -ENOMEM;
	return reply(s->fd, err, 0, &s->facts, sizeof(s->facts));
}

static bool serve_log(struct served *s, const struct question *q)
{
	int err = s->ranges ? 0 : image_log(&s->im, &s->facts.journal, &s->ranges, &s->n);
	size_t first = (size_t)min_u64(q->number, s->n);

	return reply(s->fd, err, s->n, s->ranges ? s->ranges + first : NULL,
		     min_u64(RANGES_PER_ANSWER, s->n - first) * sizeof(*s->ranges));
}

static bool serve_group(struct served *s, const struct question *q)
{
	return reply(s->fd, image_group(&s->im, q->number, s->bits), 0, s->bits,
		     s->im.bitmap_bytes);
}

void reader_serve(int fd)
{
	struct served s = { .fd = fd };
	struct question q;
	bool ok = true;

	while (ok) {
		struct iovec iov = { &q, sizeof(q) };

		if (!pass(fd, true, &iov, 1))
			return;
		if (q.what == ASK_OPEN)
			ok = serve_open(&s, &q);
		else
			ok = s.bits &&
			     (q.what == ASK_LOG ? serve_log(&s, &q) : serve_group(&s, &q));
	}
}

/* ---- the side that asks ---- */

/* A session cannot prolong a commit by answering slowly: the wait counts, not the pause. */
static bool wait_for(struct reader *x, short events)
{
	struct pollfd p = { .fd = x->fd, .events = events };
	uint64_t begin_ns = now_ns();
	int r = poll(&p, 1, (int)(x->patience_ns / 1000000));

	x->patience_ns -= min_u64(x->patience_ns, now_ns() - begin_ns);
	return r > 0 || (r < 0 && errno == EINTR);
}

/* All of iov, in or out, or -EOWNERDEAD for good. */
static int exchange(struct reader *x, bool in, struct iovec *iov, size_t n)
{
	while (n && !x->dead) {
		struct msghdr m = { .msg_iov = iov, .msg_iovlen = n };
		ssize_t done = in ? recvmsg(x->fd, &m, MSG_DONTWAIT)
				  : sendmsg(x->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (done > 0)
			iov_skip(&iov, &n, (size_t)done);
		else
			x->dead = done == 0 || (errno != EAGAIN && errno != EINTR) ||
				  !wait_for(x, in ? POLLIN : POLLOUT);
	}
	return x->dead ? -EOWNERDEAD : 0;
}

static int send_blocks(struct reader *x, const struct answer *want)
{
	int32_t err = 0;
	struct iovec iov[2] = { { &err, sizeof(err) }, { x->buf, 0 } };

	if (!want->blks || want->blks > READ_UNITS || want->blks > x->reads_blks ||
	    want->blk >= x->r.volume_blks || want->blks > x->r.volume_blks - want->blk)
		return -EOWNERDEAD;
	x->reads_blks -= want->blks;
	err = x->r.read(x->r.ctx, want->blk, want->blks, x->buf);
	if (err)
		x->read_err = err;
	else
		iov[1].iov_len = blk_to_bytes(want->blks);
	return exchange(x, false, iov, err ? 1 : 2);
}

/* An error that an honest session may answer: of the image, or that of a read it was told. */
static bool may_answer(const struct reader *x, int err)
{
	return err == -EUCLEAN || err == -EOPNOTSUPP || err == -ENOMEM || err == -EINVAL ||
	       err == -ENOENT || err == -EIO || (err < 0 && err == x->read_err);
}

/* The last answer to a question. */
static int ask_answer(struct reader *x, const struct question *q, struct answer *ret)
{
	struct iovec out = { (void *)q, sizeof(*q) };
	int err = exchange(x, false, &out, 1);

	x->patience_ns += reader_patience_ns / QUESTIONS_PER_PATIENCE;
	x->reads_blks += x->more_blks;
	while (!err) {
		struct iovec in = { ret, sizeof(*ret) };

		err = exchange(x, true, &in, 1);
		if (err || !ret->more)
			break;
		err = send_blocks(x, ret);
	}
	return err;
}

/* The answer's data into data, at most max bytes; *ret_bytes of them. ret_n may be NULL. */
static int ask(struct reader *x, const struct question *q, void *data, size_t max,
	       size_t *ret_bytes, uint64_t *ret_n)
{
	struct answer a;
	struct iovec in = { data, 0 };
	int err = ask_answer(x, q, &a);

	if (!err && (a.err ? !may_answer(x, a.err) : a.bytes > max))
		err = -EOWNERDEAD;
	if (!err && !a.err && a.bytes) {
		in.iov_len = (size_t)a.bytes;
		err = exchange(x, true, &in, 1);
	}
	x->dead |= err == -EOWNERDEAD;
	if (err || a.err)
		return err ? err : a.err;
	*ret_bytes = (size_t)a.bytes;
	if (ret_n)
		*ret_n = a.blks;
	return 0;
}

static bool part_err_sane(const struct reader *x, int err)
{
	return !err || may_answer(x, err);
}

/* What the map calculates with. */
static bool facts_sane(const struct reader *x, const struct reader_facts *f)
{
	uint64_t all;

	if (f->block_shift < 10 || f->block_shift > 16 || f->cluster_shift > 20 || !f->blocks ||
	    f->blocks > blk_to_bytes(x->r.volume_blks + 1) >> f->block_shift)
		return false;
	all = blk_to_bytes(x->r.volume_blks) >> f->block_shift;
	if (f->first_data_block > 1 || f->blocks <= f->first_data_block ||
	    f->blocks_per_group < 8 || f->blocks_per_group & ((1u << f->cluster_shift) - 1) ||
	    f->blocks_per_group >> f->cluster_shift > 8u << f->block_shift ||
	    f->gdt_blocks > READER_GDT_MARKS)
		return false;
	if (!part_err_sane(x, f->gdt_err) || !part_err_sane(x, f->journal_err))
		return false;
	for (uint32_t i = 0; i < f->gdt_blocks; i++)
		if (f->gdt_block[i] >= all)
			return false;
	return f->journal_err ||
	       (f->journal.sb_block < all && f->journal.size_bytes >> f->block_shift <= f->blocks);
}

static int open_there(struct reader *x, unsigned asked, struct reader_facts *f)
{
	const struct question q = { .what = ASK_OPEN, .ask = asked, .number = x->r.volume_blks };
	size_t bytes;
	int err;

	x->fd = fsproc_session(&x->pid_fd);
	x->dead = x->fd < 0;
	if (x->fd < 0)
		return x->fd;
	x->patience_ns = reader_patience_ns;
	x->reads_blks = READS_SESSION_BLKS;
	x->more_blks = asked & (ASK_BTRFS | ASK_XFS) ? READS_TREES_BLKS : READS_QUESTION_BLKS;
	x->buf = io_alloc(READ_UNITS * COW_BLK_BYTES);
	if (!x->buf)
		return -ENOMEM;
	err = ask(x, &q, f, sizeof(*f), &bytes, NULL);
	if (err)
		return err;
	return bytes == sizeof(*f) && facts_sane(x, f) ? 0 : -EOWNERDEAD;
}

int reader_open(struct reader **ret, const struct blk_reader *r, unsigned asked,
		struct reader_facts *ret_facts)
{
	struct reader *x = calloc(1, sizeof(*x));
	struct reader_facts f = { 0 };
	int err;

	if (!x)
		return -ENOMEM;
	x->fd = x->pid_fd = -1;
	x->r = *r;
	err = fsproc_on() ? open_there(x, asked, &f) : image_open(&x->here, r, asked, &f);
	if (err) {
		reader_close(x);
		return err;
	}
	x->block_bytes = 1u << f.block_shift;
	x->blocks = f.blocks;
	x->journal = f.journal;
	*ret_facts = f;
	*ret = x;
	return 0;
}

void reader_close(struct reader *x)
{
	if (!x)
		return;
	if (x->fd >= 0)
		close(x->fd);
	/* one that has been taken over does not end by itself */
	if (x->pid_fd >= 0) {
		syscall(SYS_pidfd_send_signal, x->pid_fd, SIGKILL, NULL, 0);
		close(x->pid_fd);
	}
	image_close(&x->here);
	free(x->buf);
	free(x);
}

static bool ranges_sane(const struct reader *x, const struct reader_range *ranges, size_t n)
{
	uint64_t end = 0;

	for (size_t i = 0; i < n; i++) {
		if (!ranges[i].count || ranges[i].first < end || ranges[i].first >= x->blocks ||
		    ranges[i].count > x->blocks - ranges[i].first)
			return false;
		end = ranges[i].first + ranges[i].count;
	}
	return true;
}

static int log_there(struct reader *x, struct reader_range **ret, size_t *ret_n)
{
	_cleanup_free_ struct reader_range *all = NULL;
	uint64_t n = 0, done = 0;
	size_t bytes;

	do {
		struct reader_range some[RANGES_PER_ANSWER];
		const struct question q = { .what = ASK_LOG, .number = done };
		uint64_t was = n;
		int err = ask(x, &q, some, sizeof(some), &bytes, &n);

		if (err)
			return err;
		if (n > MAX_RANGES || (done && n != was) ||
		    bytes != min_u64(n - done, RANGES_PER_ANSWER) * sizeof(*some))
			return -EOWNERDEAD;
		if (!done && n)
			all = malloc(n * sizeof(*all));
		if (n && !all)
			return -ENOMEM;
		if (bytes)
			memcpy(all + done, some, bytes);
		done += bytes / sizeof(*some);
	} while (done < n);
	if (!ranges_sane(x, all, n))
		return -EOWNERDEAD;
	*ret = steal_ptr(all);
	*ret_n = n;
	return 0;
}

int reader_log(struct reader *x, struct reader_range **ret, size_t *ret_n)
{
	return x->fd < 0 ? image_log(&x->here, &x->journal, ret, ret_n) : log_there(x, ret, ret_n);
}

int reader_group(struct reader *x, uint32_t nr, uint8_t *bits)
{
	const struct question q = { .what = ASK_GROUP, .number = nr };
	size_t bytes;
	int err;

	if (x->fd < 0)
		return image_group(&x->here, nr, bits);
	err = ask(x, &q, bits, x->block_bytes, &bytes, NULL);
	return err ? err : bytes == x->block_bytes ? 0 : -EOWNERDEAD;
}
