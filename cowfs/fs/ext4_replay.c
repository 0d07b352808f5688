// SPDX-License-Identifier: MIT
/*
 * The journal of ext3 and ext4, read once from its tail to its end. The kernel reads it three times
 * (scan, revoke, replay); here the writes and revokes of a transaction are noted when they pass,
 * and count once its commit block is there.
 *
 * - What a transaction has written is read for its checksums only: once.
 * - It is always read from the tail. With blocks of less than 4 KiB a unit that was written in part
 *   at the seal is mended only by a transaction that an earlier replay has had already.
 * - A transaction without a commit block ends the log. A commit block whose transaction has a wrong
 *   checksum is damage, unless it is older than the one before: the kernel leaves what a journal of
 *   an earlier file system had there.
 * - Nothing is written outside of the file system, or into the journal, and each block is read at
 *   most once, whatever the journal contains.
 */
#include "fs/ext4_replay.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/crc32c.h"

#define REVOKES_MAX (8u << 20)	    /* 128 MiB of memory */
#define READ_BYTES_MAX (1024 * MIB) /* reader.c allows a session as much */
#define WINDOW_BYTES 131072

enum { DESCRIPTOR = 1, COMMIT = 2, REVOKE = 5 };
enum { INCOMPAT_REVOKE = 1, INCOMPAT_64BIT = 2, INCOMPAT_CSUM2 = 8, INCOMPAT_CSUM3 = 16 };
enum { TAG_ESCAPE = 1, TAG_SAME_UUID = 2, TAG_LAST = 8 };

/* of a commit block, of a revoke block */
enum { CSUM_CRC32 = 1, CSUM_CRC32C = 4 };
enum { COMMIT_CSUM_TYPE = 12, COMMIT_CSUM_BYTES = 13, COMMIT_CSUM = 16, COMMIT_SEC = 48 };
enum { HEADER_BYTES = 12, REVOKE_COUNT = 12, REVOKE_HEADER_BYTES = 16, UUID_BYTES = 16 };

struct noted {
	uint64_t block, from;
	uint32_t transaction, order; /* counted from the tail */
};

/* Items of the transactions that are whole, and behind them those of the one being read. */
struct notes {
	struct noted *item;
	size_t n, cap, whole;
};

struct log {
	struct ext4_image *e;
	uint64_t *where; /* the blocks of the journal in its order; 0: its superblock */
	uint32_t blocks, first, bs;
	bool is64, csum1, csum2, csum3, ascends;
	uint32_t seed;

	const uint32_t *verified;

	uint32_t seq, transaction; /* expected */
	uint32_t pos, seen;	   /* the next block, and how many were passed */
	uint32_t end;		   /* behind the last transaction that is whole */
	bool damaged;		   /* the transaction may not be replayed */
	bool doubtful;		   /* one of its descriptors has a wrong checksum */
	uint32_t crc1;		   /* checksum v1 of it */
	uint64_t last_s;	   /* time of the last commit */
	struct notes writes, revokes;

	uint8_t *block; /* descriptor, revoke or commit block */
	uint8_t *window;
	uint32_t window_at, window_n;
};

static uint32_t be32_at(const uint8_t *p, size_t off)
{
	return (uint32_t)be_at(p, off, 4);
}

/* jbd2 does not invert its CRC32C at the end. */
static uint32_t jbd2_crc(uint32_t seed, const void *p, size_t len_bytes)
{
	return ~crc32c(~seed, p, len_bytes);
}

/* Is the checksum of this block, which is 0 for the calculation, correct? */
static bool block_csum_ok(const struct log *l, uint8_t *p, size_t csum_at)
{
	uint8_t saved[4];
	uint32_t crc;

	if (!l->csum2 && !l->csum3)
		return true;
	memcpy(saved, p + csum_at, sizeof(saved));
	memset(p + csum_at, 0, sizeof(saved));
	crc = jbd2_crc(l->seed, p, l->bs);
	memcpy(p + csum_at, saved, sizeof(saved));
	return crc == be32_at(saved, 0);
}

static void pass_blocks(struct log *l, uint32_t n)
{
	l->seen += n;
	l->pos += n;
	if (l->pos >= l->blocks)
		l->pos -= l->blocks - l->first;
}

/* Has an earlier replay read the content of the transaction that is read now? */
static bool is_verified(const struct log *l)
{
	return l->verified && (int32_t)(l->seq - *l->verified) < 0;
}

/* Is the whole log passed? */
static bool log_ends(const struct log *l)
{
	return l->seen >= l->blocks - l->first;
}

/* Reads the next block, and those behind it that lie together. *ret is valid until the next call. */
static int block_next(struct log *l, const uint8_t **ret)
{
	uint32_t n = 1, at = l->pos;
	int err;

	if (at - l->window_at >= l->window_n) {
		if ((uint64_t)l->seen * l->bs >= READ_BYTES_MAX)
			return -EOPNOTSUPP;
		while ((n + 1) * l->bs <= WINDOW_BYTES && at + n < l->blocks &&
		       l->where[at + n] == l->where[at] + n)
			n++;
		l->window_n = 0;
		err = ext4_result(
			l->e, io_channel_read_blk64(l->e->fs->io, l->where[at], (int)n, l->window));
		if (err)
			return err;
		l->window_at = at;
		l->window_n = n;
	}
	*ret = l->window + (size_t)(at - l->window_at) * l->bs;
	pass_blocks(l, 1);
	return 0;
}

static int note(struct log *l, struct notes *s, uint64_t block, uint64_t from)
{
	const struct noted x = { block, from, l->transaction, (uint32_t)s->n };

	return ARRAY_ADD(s->item, s->n, s->cap, x);
}

/* ---- the blocks of a transaction ---- */

struct tag {
	uint64_t block;
	uint32_t flags, csum;
};

static size_t tag_bytes(const struct log *l)
{
	return l->csum3 ? 16 : 8u + (l->is64 ? 4 : 0) + (l->csum2 ? 2 : 0);
}

static struct tag tag_at(const struct log *l, const uint8_t *p)
{
	struct tag t = { .block = be32_at(p, 0) };

	t.csum = l->csum3 ? be32_at(p, 12) : (uint32_t)be_at(p, 4, 2);
	t.flags = (uint32_t)be_at(p, 6, 2); /* v3: the lower half of 32 bits */
	if (l->is64)
		t.block |= (uint64_t)be32_at(p, 8) << 32;
	return t;
}

static int content_pass(struct log *l, const struct tag *t)
{
	uint8_t seq[4];
	const uint8_t *p;
	uint32_t crc;
	int err;

	if ((!l->csum1 && !l->csum2 && !l->csum3) || is_verified(l)) {
		pass_blocks(l, 1);
		return 0;
	}
	err = block_next(l, &p);
	if (err)
		return err;
	if (l->csum1) {
		l->crc1 = ext2fs_crc32_be(l->crc1, p, l->bs);
		return 0;
	}
	memcpy(seq, l->block + 8, sizeof(seq));
	crc = jbd2_crc(jbd2_crc(l->seed, seq, sizeof(seq)), p, l->bs);
	l->damaged |= t->csum != (l->csum3 ? crc : crc & 0xffff);
	return 0;
}

static int take_descriptor(struct log *l)
{
	const size_t tail = l->csum2 || l->csum3 ? 4 : 0, bytes = tag_bytes(l);
	size_t at = HEADER_BYTES;
	struct tag t = { 0 };

	l->doubtful |= tail && !block_csum_ok(l, l->block, l->bs - tail);
	if (l->csum1)
		l->crc1 = ext2fs_crc32_be(l->crc1, l->block, l->bs);
	for (; at + bytes <= l->bs - tail && !(t.flags & TAG_LAST);
	     at += bytes + (t.flags & TAG_SAME_UUID ? 0 : UUID_BYTES)) {
		uint64_t from = l->where[l->pos];
		int err;

		t = tag_at(l, l->block + at);
		if (log_ends(l)) {
			l->damaged = true; /* and there is no room for a commit block */
			break;
		}
		l->damaged |= t.block >= blk_to_bytes(l->e->r.volume_blks) / l->bs;
		err = note(l, &l->writes, t.block,
			   from | (t.flags & TAG_ESCAPE ? FSIMAGE_ESCAPED : 0));
		if (!err)
			err = content_pass(l, &t);
		if (err)
			return err;
	}
	return 0;
}

static int take_revokes(struct log *l)
{
	const size_t tail = l->csum2 || l->csum3 ? 4 : 0, bytes = l->is64 ? 8 : 4;
	uint32_t end = be32_at(l->block, REVOKE_COUNT);
	int err = 0;

	l->doubtful |= tail && !block_csum_ok(l, l->block, l->bs - tail);
	if (end > l->bs - tail) {
		l->damaged = true;
		return 0;
	}
	for (size_t at = REVOKE_HEADER_BYTES; at + bytes <= end && !err; at += bytes)
		err = l->revokes.n < REVOKES_MAX
			      ? note(l, &l->revokes, be_at(l->block, at, bytes), 0)
			      : -EOPNOTSUPP;
	return err;
}

static bool commit_csum_ok(struct log *l)
{
	uint32_t csum = be32_at(l->block, COMMIT_CSUM);
	uint8_t type = l->block[COMMIT_CSUM_TYPE], bytes = l->block[COMMIT_CSUM_BYTES];

	if (!l->csum1)
		return block_csum_ok(l, l->block, COMMIT_CSUM);
	return is_verified(l) || (type == CSUM_CRC32 && bytes == 4 && csum == l->crc1) ||
	       (!type && !bytes && !csum);
}

/* *more false: the log has ended before this transaction. */
static int take_commit(struct log *l, bool *more)
{
	uint64_t commit_s = be_at(l->block, COMMIT_SEC, 8);

	if (l->doubtful || !commit_csum_ok(l)) {
		*more = false;
		return commit_s < l->last_s ? 0 : -EUCLEAN;
	}
	if (l->damaged)
		return -EUCLEAN;
	l->writes.whole = l->writes.n;
	l->revokes.whole = l->revokes.n;
	l->last_s = commit_s;
	l->crc1 = ~0u;
	l->end = l->pos;
	l->seq++;
	l->transaction++;
	return 0;
}

static int take_next(struct log *l, bool *more)
{
	const uint8_t *p;
	int err;

	*more = !log_ends(l);
	if (!*more)
		return 0;
	err = block_next(l, &p);
	if (err)
		return err;
	*more = be32_at(p, 0) == JBD2_MAGIC && be32_at(p, 8) == l->seq;
	if (!*more)
		return 0;
	memcpy(l->block, p, l->bs);
	switch (be32_at(p, 4)) {
	case DESCRIPTOR:
		return take_descriptor(l);
	case REVOKE:
		return take_revokes(l);
	case COMMIT:
		return take_commit(l, more);
	default:
		*more = false;
		return 0;
	}
}

/* ---- the whole ---- */

static int noted_compare(const void *a, const void *b)
{
	const struct noted *x = a, *y = b;

	if (x->block != y->block)
		return x->block < y->block ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

static int where_compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void notes_sort(struct notes *s)
{
	if (s->whole)
		qsort(s->item, s->whole, sizeof(*s->item), noted_compare);
}

/* The last of the items from *i on that are of the same block; *i moves behind it. */
static const struct noted *notes_last(const struct notes *s, size_t *i)
{
	const struct noted *last = &s->item[*i];

	while (++*i < s->whole && s->item[*i].block == last->block)
		last = &s->item[*i];
	return last;
}

/* Keeps the last write of each block, unless the same or a later transaction revokes it. */
static int list_make(struct log *l, struct fsimage_move **ret, size_t *ret_n)
{
	struct fsimage_move *list = NULL;
	size_t w = 0, r = 0, k = 0, n = 0;

	notes_sort(&l->writes);
	notes_sort(&l->revokes);
	if (!l->ascends)
		qsort(l->where, l->blocks, sizeof(*l->where), where_compare);
	if (l->writes.whole && !(list = malloc(l->writes.whole * sizeof(*list))))
		return -ENOMEM;
	while (w < l->writes.whole) {
		const struct noted *write = notes_last(&l->writes, &w), *revoke = NULL;

		while (r < l->revokes.whole && l->revokes.item[r].block <= write->block)
			revoke = notes_last(&l->revokes, &r);
		if (revoke && revoke->block == write->block &&
		    revoke->transaction >= write->transaction)
			continue;
		while (k < l->blocks && l->where[k] < write->block)
			k++;
		if (k < l->blocks && l->where[k] == write->block) {
			free(list);
			return -EUCLEAN;
		}
		list[n++] = (struct fsimage_move){ write->block, write->from };
	}
	*ret = list;
	*ret_n = n;
	return 0;
}

/* Gets from the superblock of the journal what ext4_journal leaves out. */
static int super_take(struct log *l, const struct fsimage_journal *j)
{
	uint8_t *s = l->block;
	uint32_t incompat, compat;
	int err = ext4_result(l->e, io_channel_read_blk64(l->e->fs->io, j->sb_block, 1, s));

	if (err)
		return err;
	l->first = be32_at(s, JSB_FIRST);
	if (!l->first)
		return -EUCLEAN;
	if (be32_at(s, 4) != JSB_V2)
		return 0;
	compat = be32_at(s, JSB_COMPAT);
	incompat = be32_at(s, JSB_INCOMPAT);
	if (incompat & ~(uint32_t)(INCOMPAT_REVOKE | INCOMPAT_64BIT | INCOMPAT_CSUM2 |
				   INCOMPAT_CSUM3) ||
	    be32_at(s, JSB_RO_COMPAT))
		return -EOPNOTSUPP;
	l->is64 = incompat & INCOMPAT_64BIT;
	l->csum1 = compat & 1;
	l->csum2 = incompat & INCOMPAT_CSUM2;
	l->csum3 = incompat & INCOMPAT_CSUM3;
	if (l->csum1 + l->csum2 + l->csum3 > 1 ||
	    ((l->csum2 || l->csum3) && s[JSB_CSUM_TYPE] != CSUM_CRC32C))
		return -EUCLEAN;
	l->seed = jbd2_crc(~0u, s + JSB_UUID, UUID_BYTES);
	return 0;
}

/* Gets the places of all blocks. */
static int where_get(struct log *l, const struct fsimage_journal *j)
{
	_cleanup_free_ struct fsimage_range *ranges = NULL;
	size_t n = 0, at = 0;
	int err = ext4_log_places(l->e, j, &ranges, &n);

	if (err)
		return err;
	if (!n)
		return -EUCLEAN; /* its inode cannot be believed */
	l->where = malloc(l->blocks * sizeof(*l->where));
	if (!l->where)
		return -ENOMEM;
	l->where[at++] = j->sb_block;
	for (size_t i = 0; i < n; i++)
		for (uint64_t k = 0; k < ranges[i].count && at < l->blocks; k++)
			l->where[at++] = ranges[i].first + k;
	for (uint32_t k = 1; k < l->blocks; k++)
		l->ascends &= l->where[k] > l->where[k - 1];
	return at == l->blocks ? 0 : -EUCLEAN;
}

static int log_open(struct log *l, const struct fsimage_journal *j)
{
	int err;

	l->block = malloc(l->bs);
	l->window = malloc(max_u64(WINDOW_BYTES, l->bs));
	if (!l->block || !l->window)
		return -ENOMEM;
	err = super_take(l, j);
	if (!err)
		err = where_get(l, j);
	if (!err && j->start && (j->start < l->first || j->start >= l->blocks))
		err = -EUCLEAN;
	return err;
}

static void log_close(struct log *l)
{
	free(l->where);
	free(l->block);
	free(l->window);
	free(l->writes.item);
	free(l->revokes.item);
}

/* Before list_make, which sorts the places. */
static void part_note(const struct log *l, struct fsimage_journal *j)
{
	if (!j->start || !l->ascends || l->first != 1)
		return;
	j->part = (struct fsimage_part){ .tail = j->start,
					 .read = l->seen,
					 .sequence = j->sequence,
					 .first = l->where[j->start],
					 .end = l->where[l->end] };
}

int ext4_replay(struct ext4_image *e, struct fsimage_journal *j, const uint32_t *verified,
		struct fsimage_move **ret_list, size_t *ret_n)
{
	struct log l = { .e = e,
			 .blocks = j->log_blocks,
			 .bs = e->fs->blocksize,
			 .seq = j->sequence,
			 .pos = j->start,
			 .end = j->start,
			 .crc1 = ~0u,
			 .verified = verified,
			 .ascends = true };
	bool more = j->start;
	int err;

	if (!ext2fs_has_feature_journal_needs_recovery(e->fs->super))
		return j->start ? -EUCLEAN : -ENOENT;
	err = log_open(&l, j);
	while (!err && more)
		err = take_next(&l, &more);
	if (!err) {
		part_note(&l, j);
		err = list_make(&l, ret_list, ret_n);
	}
	if (!err) {
		j->part.next = l.seq;
		j->sequence = l.seq + 1; /* as the kernel, which skips one */
		j->start = 0;
	}
	log_close(&l);
	return err;
}
