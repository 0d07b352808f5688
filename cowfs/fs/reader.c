// SPDX-License-Identifier: MIT
/* The asking side: reads an image in this process, or sends questions to another one (answer.h). */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/io.h"
#include "fs/answer.h"
#include "fs/fs_ops.h"
#include "fs/fsproc.h"
#include "fs/reader.h"

#define READ_UNITS 32
/* each question or group adds a part of the patience: many groups take long on a busy CPU */
#define QUESTIONS_PER_PATIENCE 600
#define MAX_RANGES (1u << 17)
/* 1 GiB: all of a journal of the largest size that mke2fs makes by itself */
#define READS_REPLAY_BLKS 262144u
/* 256 MiB: more than an honest side needs for descriptors and the map of a journal */
#define READS_SESSION_BLKS 65536u

struct reader {
	struct fsimage here; /* unless the image is at the other end of fd */
	int fd;
	pid_t session;			/* if fd is valid */
	bool dead;			/* will not answer again */
	uint64_t patience_ns;		/* left */
	uint64_t reads_blks, more_blks; /* left, and added by each question or group */
	int read_err;			/* the result of the last failed read of a block */
	struct blk_reader r;
	uint32_t block_bytes;
	uint64_t blocks;
	struct fsimage_journal journal;
	uint8_t *buf; /* a block, whose end is the head of an answer, and READ_UNITS */
	/* the last answer: bitmaps of groups_n groups, from groups_first on */
	uint8_t *groups;
	uint64_t groups_first, groups_n;
};

/*
 * A session cannot prolong a commit by slow answers: the limit is on the sum of all waits, not on
 * each pause.
 */
static bool wait_for(struct reader *x, short events)
{
	struct pollfd p = { .fd = x->fd, .events = events };
	uint64_t begin_ns = now_ns();
	int r = poll(&p, 1, (int)(x->patience_ns / 1000000));

	x->patience_ns -= min_u64(x->patience_ns, now_ns() - begin_ns);
	return r > 0 || (r < 0 && errno == EINTR);
}

/* Passes all of it, in or out; else -EOWNERDEAD, permanently. The filter of a worker has no sendmsg. */
static int exchange(struct reader *x, bool in, void *data, size_t bytes)
{
	while (bytes && !x->dead) {
		ssize_t done = in ? recv(x->fd, data, bytes, MSG_DONTWAIT)
				  : send(x->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (done > 0) {
			data = (char *)data + done;
			bytes -= (size_t)done;
		} else {
			x->dead = done == 0 || (errno != EAGAIN && errno != EINTR) ||
				  !wait_for(x, in ? POLLIN : POLLOUT);
		}
	}
	return x->dead ? -EOWNERDEAD : 0;
}

static int send_blocks(struct reader *x, const struct answer *want)
{
	uint8_t *blks = x->buf + COW_BLK_BYTES, *head = blks - sizeof(int32_t);
	int32_t err;

	if (!want->blks || want->blks > READ_UNITS || want->blks > x->reads_blks ||
	    want->blk >= x->r.volume_blks || want->blks > x->r.volume_blks - want->blk)
		return -EOWNERDEAD;
	x->reads_blks -= want->blks;
	err = x->r.read(x->r.ctx, want->blk, want->blks, blks);
	if (err)
		x->read_err = err;
	memcpy(head, &err, sizeof(err));
	return exchange(x, false, head, sizeof(err) + (err ? 0 : blk_to_bytes(want->blks)));
}

/*
 * Is this an error that an honest session may return: an error of the image, or the error of a read
 * that the session received?
 */
static bool may_answer(const struct reader *x, int err)
{
	return err == -EUCLEAN || err == -EOPNOTSUPP || err == -ENOMEM || err == -EINVAL ||
	       err == -ENOENT || err == -EIO || (err < 0 && err == x->read_err);
}

/* Gets the last answer to a question. */
static int ask_answer(struct reader *x, const struct question *q, struct answer *ret)
{
	uint64_t n = q->what == ASK_GROUP ? q->ask : 1;
	int err = exchange(x, false, (void *)q, sizeof(*q));

	x->patience_ns += n * (answer_patience_ns / QUESTIONS_PER_PATIENCE);
	x->reads_blks += n * x->more_blks;
	while (!err) {
		err = exchange(x, true, ret, sizeof(*ret));
		if (err || !ret->more)
			break;
		err = send_blocks(x, ret);
	}
	return err;
}

/*
 * Copies the answer's data to data, at most max bytes; *ret_bytes is their number. ret_n may be
 * NULL.
 */
static int ask(struct reader *x, const struct question *q, void *data, size_t max,
	       size_t *ret_bytes, uint64_t *ret_n)
{
	struct answer a;
	int err = ask_answer(x, q, &a);

	if (!err && (a.err ? !may_answer(x, a.err) : a.bytes > max))
		err = -EOWNERDEAD;
	if (!err && !a.err && a.bytes)
		err = exchange(x, true, data, (size_t)a.bytes);
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

/* Checks the values that the map uses in its calculations. */
static bool facts_sane(const struct reader *x, const struct fsimage_facts *f)
{
	uint64_t all;

	if (f->block_shift < 10 || f->block_shift > 16 || f->cluster_shift > 20 || !f->blocks ||
	    f->blocks > blk_to_bytes(x->r.volume_blks + 1) >> f->block_shift)
		return false;
	all = blk_to_bytes(x->r.volume_blks) >> f->block_shift;
	if (f->first_data_block > 1 || f->blocks <= f->first_data_block ||
	    f->blocks_per_group < 8 || f->blocks_per_group & ((1u << f->cluster_shift) - 1) ||
	    f->blocks_per_group >> f->cluster_shift > 8u << f->block_shift ||
	    f->gdt_blocks > FSIMAGE_GDT_MARKS)
		return false;
	if (!part_err_sane(x, f->gdt_err) || !part_err_sane(x, f->journal_err) ||
	    !part_err_sane(x, f->counts_err) || !part_err_sane(x, f->replay_err))
		return false;
	for (uint32_t i = 0; i < f->gdt_blocks; i++)
		if (f->gdt_block[i] >= all)
			return false;
	return f->journal_err ||
	       (f->journal.sb_block < all && f->journal.size_bytes >> f->block_shift <= f->blocks);
}

static int open_there(struct reader *x, enum fs_kind kind, unsigned asked, struct fsimage_facts *f)
{
	const struct question q = { .what = ASK_OPEN,
				    .kind = kind,
				    .ask = asked,
				    .verified = f->journal.part.next,
				    .number = x->r.volume_blks };
	size_t bytes;
	int err;

	x->fd = fsproc_session(&x->session);
	x->dead = x->fd < 0;
	if (x->fd < 0)
		return x->fd;
	x->patience_ns = answer_patience_ns;
	x->reads_blks = READS_SESSION_BLKS + (asked & FSIMAGE_ASK_REPLAY ? READS_REPLAY_BLKS : 0);
	x->more_blks = fs_ops(kind)->image->reads_blks;
	x->buf = io_alloc((READ_UNITS + 1) * COW_BLK_BYTES);
	if (!x->buf)
		return -ENOMEM;
	err = ask(x, &q, f, sizeof(*f), &bytes, NULL);
	if (err)
		return err;
	return bytes == sizeof(*f) && facts_sane(x, f) ? 0 : -EOWNERDEAD;
}

int reader_open(struct reader **ret, const struct blk_reader *r, enum fs_kind kind, unsigned asked,
		struct fsimage_facts *ret_facts)
{
	struct reader *x = calloc(1, sizeof(*x));
	struct fsimage_facts f = { 0 };
	int err;

	if (!x)
		return -ENOMEM;
	if (asked & FSIMAGE_ASK_VERIFIED)
		f.journal.part.next = ret_facts->journal.part.next;
	x->fd = -1;
	x->r = *r;
	if (!fs_ops(kind)->image)
		err = -EOPNOTSUPP;
	else if (fsproc_on())
		err = open_there(x, kind, asked, &f);
	else
		err = fsimage_open(&x->here, r, kind, asked, &f);
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
	if (x->fd >= 0) {
		close(x->fd);
		fsproc_end(x->session);
	}
	fsimage_close(&x->here);
	free(x->buf);
	free(x->groups);
	free(x);
}

static bool ranges_sane(const struct reader *x, const struct fsimage_range *ranges, size_t n)
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

/* Gets all items of an answer, at most max; the caller frees *ret. */
static int items_there(struct reader *x, uint32_t what, uint64_t max, void **ret, size_t *ret_n)
{
	_cleanup_free_ uint8_t *all = NULL;
	uint64_t n = 0, done = 0;
	size_t bytes;

	do {
		uint8_t some[ITEMS_PER_ANSWER * ITEM_BYTES];
		const struct question q = { .what = what, .number = done };
		uint64_t was = n;
		int err = ask(x, &q, some, sizeof(some), &bytes, &n);

		if (err)
			return err;
		if (n > max || (done && n != was) ||
		    bytes != min_u64(n - done, ITEMS_PER_ANSWER) * ITEM_BYTES)
			return -EOWNERDEAD;
		if (!done && n)
			all = malloc(n * ITEM_BYTES);
		if (n && !all)
			return -ENOMEM;
		if (bytes)
			memcpy(all + done * ITEM_BYTES, some, bytes);
		done += bytes / ITEM_BYTES;
	} while (done < n);
	*ret = steal_ptr(all);
	*ret_n = n;
	return 0;
}

int reader_log(struct reader *x, struct fsimage_range **ret, size_t *ret_n)
{
	void *all;
	size_t n;
	int err;

	if (x->fd < 0)
		return fsimage_log(&x->here, &x->journal, ret, ret_n);
	err = items_there(x, ASK_LOG, MAX_RANGES, &all, &n);
	if (err)
		return err;
	if (!ranges_sane(x, all, n)) {
		free(all);
		return -EOWNERDEAD;
	}
	*ret = all;
	*ret_n = n;
	return 0;
}

/* Inside the volume, of which the file system may be a part that is about to grow. */
static bool replay_sane(const struct reader *x, const struct fsimage_move *list, size_t n)
{
	const uint64_t blocks = blk_to_bytes(x->r.volume_blks) / x->block_bytes;

	for (size_t i = 0; i < n; i++)
		if (list[i].block >= blocks || (list[i].from & ~FSIMAGE_ESCAPED) >= blocks ||
		    (i && list[i].block <= list[i - 1].block))
			return false;
	return true;
}

int reader_replay(struct reader *x, struct fsimage_move **ret, size_t *ret_n)
{
	/* each has a block of the journal, of which a session reads this much, whatever the card claims */
	const uint64_t max = min_u64(x->journal.size_bytes, blk_to_bytes(READS_REPLAY_BLKS)) /
			     x->block_bytes;
	const struct fsimage_move *list;
	void *all = NULL;
	size_t n;
	int err = 0;

	if (x->fd >= 0) {
		err = items_there(x, ASK_REPLAY, max, &all, &n);
	} else {
		list = fsimage_replay(&x->here, &n);
		if (n && !(all = malloc(n * sizeof(*list))))
			return -ENOMEM;
		if (n)
			memcpy(all, list, n * sizeof(*list));
	}
	if (!err && !replay_sane(x, all, n)) {
		free(all);
		err = -EOWNERDEAD;
	}
	if (err)
		return err;
	*ret = all;
	*ret_n = n;
	return 0;
}

/*
 * Gets this group, and those behind it if the last ones have led here: each time twice as many. A change of
 * process costs more than a bitmap, and a trimmed card has holes in all groups.
 */
static int ask_groups(struct reader *x, uint32_t nr)
{
	const bool goes_on = x->groups_n && nr == x->groups_first + x->groups_n;
	const struct question q = {
		.what = ASK_GROUP,
		.number = nr,
		.ask = goes_on ? (uint32_t)min_u64(2 * x->groups_n, GROUPS_PER_ANSWER) : 1,
	};
	size_t bytes;
	int err;

	if (!x->groups)
		x->groups = malloc((size_t)GROUPS_PER_ANSWER * x->block_bytes);
	if (!x->groups)
		return -ENOMEM;
	x->groups_n = 0;
	err = ask(x, &q, x->groups, (size_t)q.ask * x->block_bytes, &bytes, NULL);
	if (err)
		return err;
	if (!bytes || bytes % x->block_bytes)
		return -EOWNERDEAD;
	x->groups_first = nr;
	x->groups_n = bytes / x->block_bytes;
	return 0;
}

int reader_group(struct reader *x, uint32_t nr, uint8_t *bits)
{
	int err;

	if (x->fd < 0)
		return fsimage_group(&x->here, nr, bits);
	err = nr - x->groups_first < x->groups_n ? 0 : ask_groups(x, nr);
	if (err)
		return err;
	memcpy(bits, x->groups + (nr - x->groups_first) * x->block_bytes, x->block_bytes);
	return 0;
}
