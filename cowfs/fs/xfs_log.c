// SPDX-License-Identifier: MIT
/*
 * Is the log of an XFS clean, so that a mount finds the same free-space trees after the replay of
 * its log?
 *
 * The log is a ring of basic blocks of 512 bytes. The first four bytes of each block are the number
 * of the round (cycle) in which it was written, or the magic number of a record's header, with the
 * cycle after it. The head, where the next record goes, is where the cycle falls by one. The last
 * record before the head contains the tail, from which a mount replays.
 *
 * What XFS leaves there (fs/xfs/xfs_log.c): an unmount writes a record of its own type, and so do
 * mkfs.xfs and xfs_repair. A freeze (xfs_log_quiesce) forces the log, writes all metadata home,
 * logs the superblock, and writes that home. Linux 5.12 and later may do the last step twice
 * (xfs_log_cover); after that tail and head enclose only superblocks. If little was written since
 * the last time, these kernels do it once, and the tail is at the previous record, whose content is
 * home too.
 *
 * So everything that a mount would replay must already be home. A replay skips a buffer that has
 * the LSN of the transaction or a higher one (xlog_recover_buf_commit_pass2). Invariants:
 * L1 the head is searched as in Linux (xlog_find_head: bisection, then a look at all blocks that
 *    may be incomplete), which reads little. If Linux would correct the result, because a write was
 *    torn, the log is not clean, so the two never disagree about the head;
 * L2 every record from the tail to the head has the right checksum, UUID and place, and this code
 *    understands each operation in it;
 * L3 each logged superblock, AGF and tree block is home with an LSN that makes the replay skip it,
 *    unless the replay itself skips it: its transaction has no end, or a later one cancels the
 *    buffer. Buffers of other kinds, inodes and quotas are not where the trees are. Intents whose
 *    end is not in the log are carried out after the replay, like any transaction of a mounted file
 *    system. An image that was sealed without a freeze may pass. In this case it is right for a
 *    mount of it, not for the live file system that continues.
 */
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "fs/xfs_log.h"

#define XLOG_HEADER_MAGIC_NUM 0xfeedbabeu
#define XLOG_VERSION_2 2u
#define XLOG_FMT_LINUX_LE 1u
#define XLOG_CYCLE_DATA_BBS 64u /* blocks whose first words one header keeps: 32 KiB */
#define XLOG_MAX_RECORD_BBS 512u
#define XLOG_MAX_HEADER_BBS 8u
/* XLOG_MAX_ICLOGS (8) of 256 KiB: blocks before the head that may be incomplete */
#define XLOG_TOTAL_REC_BBS 4096u
/* 1 MiB. A freeze leaves two or three records of at most 256 KiB. */
#define MAX_REPLAY_BBS 2048u

/* struct xlog_rec_header and xlog_rec_ext_header */
enum {
	H_MAGICNO = 0,
	H_CYCLE = 4,
	H_VERSION = 8,
	H_LEN = 12,
	H_LSN = 16,
	H_TAIL_LSN = 24,
	H_CRC = 32,
	H_NUM_LOGOPS = 40,
	H_CYCLE_DATA = 44,
	H_FMT = 300,
	H_FS_UUID = 304,
	H_SIZE = 320,
	H_BYTES = 328,
	H_BYTES_I386 = 324,
	XH_CYCLE_DATA = 4,
	XH_BYTES = 260,
};

/* struct xlog_op_header */
enum { OH_TID = 0, OH_LEN = 4, OH_CLIENTID = 8, OH_FLAGS = 9, OH_BYTES = 12 };
#define XFS_TRANSACTION 0x69u
#define XFS_LOG 0xaau
#define XLOG_START_TRANS 0x01u
#define XLOG_COMMIT_TRANS 0x02u
#define XLOG_CONTINUE_TRANS 0x04u
#define XLOG_WAS_CONT_TRANS 0x08u
#define XLOG_END_TRANS 0x10u
#define XLOG_UNMOUNT_TRANS 0x20u
#define XLOG_UNMOUNT_TYPE 0x556eu

/*
 * struct xfs_trans_header, and the beginning of items, in the byte order of the CPU that wrote
 * them: XLOG_FMT_LINUX_LE
 */
enum { TH_MAGIC = 0, TH_NUM_ITEMS = 12, TH_BYTES = 16 };
#define XFS_TRANS_HEADER_MAGIC 0x5452414eu
enum { LI_TYPE = 0, LI_SIZE = 2, LI_BYTES = 4 };
#define XFS_LI_EFI 0x1236u /* the first and the last known type: XFS_LI_XMD */
#define XFS_LI_XMD 0x1249u
#define XFS_LI_BUF 0x123cu

/* struct xfs_buf_log_format; the upper five bits of the flags are the kind of buffer */
enum { BLF_FLAGS = 4, BLF_LEN = 6, BLF_BLKNO = 8, BLF_BYTES = 24 };
#define XFS_BLF_CANCEL 0x2u
#define XFS_BLFT_SHIFT 11
enum { XFS_BLFT_BTREE_BUF = 4, XFS_BLFT_AGF_BUF = 5, XFS_BLFT_SB_BUF = 18 };

struct xlog {
	struct xfs_image *i;
	uint32_t bbs;
	uint32_t head;	 /* 1 .. bbs */
	uint32_t cycle;	 /* of the blocks before head; blocks from head on have cycle - 1 */
	uint8_t *buf;	 /* the loaded blocks, MAX_REPLAY_BBS at most */
	uint32_t first;	 /* the log block that is at buf */
	uint32_t in_buf; /* the number of blocks at buf, up to the head */
};

struct trans {
	/* end: transactions are replayed in this order; 0: without end, and not replayed */
	uint32_t tid, end;
	uint64_t lsn;
	bool has_header;
	uint64_t all_regions; /* still to come; Linux counts these in th_num_items */
	uint64_t regions;     /* of the item, still to come */
};

/* A buffer that a transaction changed. */
struct logged {
	uint64_t daddr;
	uint32_t trans, kind, bbs;
	bool cancel;
};

/* What a mount would replay. */
struct replay {
	struct trans *trans;
	struct logged *logged;
	uint32_t transes, n, ends;
};
#define MAX_TRANS 1024u
#define MAX_LOGGED 8192u

struct record {
	uint8_t *header, *data;
	uint32_t blk, header_bbs, data_bbs, len_bytes, ops;
};

static int log_read(struct xlog *l, uint32_t blk, uint32_t n, uint8_t *buf)
{
	uint64_t start = l->i->log_block * l->i->block_bytes;
	int err = xfs_read(l->i, start + (uint64_t)blk * XFS_BB_BYTES, (size_t)n * XFS_BB_BYTES,
			   buf);

	return err == -EUCLEAN ? -EOPNOTSUPP : err;
}

static uint32_t cycle_of(const uint8_t *bb)
{
	uint32_t word = (uint32_t)be_at(bb, 0, 4);

	return word == XLOG_HEADER_MAGIC_NUM ? (uint32_t)be_at(bb, H_CYCLE, 4) : word;
}

static int cycle_read(struct xlog *l, uint32_t blk, uint32_t *ret)
{
	uint8_t bb[XFS_BB_BYTES];
	int err = log_read(l, blk, 1, bb);

	if (!err)
		*ret = cycle_of(bb);
	return err;
}

/* ---- the head ---- */

/* xlog_find_cycle_start: the first block of the given cycle; the last block has this cycle. */
static int bisect(struct xlog *l, uint32_t cycle, uint32_t *ret)
{
	uint32_t low = 0, high = l->bbs - 1, mid, c;
	int err;

	for (mid = (low + high) / 2; mid != low && mid != high; mid = (low + high) / 2) {
		err = cycle_read(l, mid, &c);
		if (err)
			return err;
		if (c == cycle)
			high = mid;
		else
			low = mid;
	}
	*ret = high;
	return 0;
}

/* Do all these blocks have that cycle? -EOPNOTSUPP if not. */
static int cycles_check(struct xlog *l, uint32_t blk, uint32_t n, uint32_t cycle)
{
	uint32_t part;

	for (; n; blk += part, n -= part) {
		int err;

		part = (uint32_t)min_u64(n, MAX_REPLAY_BBS);
		err = log_read(l, blk, part, l->buf);
		if (err)
			return err;
		for (uint32_t k = 0; k < part; k++)
			if (cycle_of(l->buf + (size_t)k * XFS_BB_BYTES) != cycle)
				return -EOPNOTSUPP;
	}
	return 0;
}

static int head_find(struct xlog *l)
{
	uint32_t first, last, scan;
	int err = cycle_read(l, 0, &first);

	if (!err)
		err = cycle_read(l, l->bbs - 1, &last);
	if (err)
		return err;
	/* blocks that no round has written have cycle 0 */
	if (!first || (last != first && last != first - 1))
		return -EOPNOTSUPP;
	l->cycle = first;
	l->head = l->bbs;
	if (last != first)
		err = bisect(l, last, &l->head);
	if (err)
		return err;
	scan = (uint32_t)min_u64(XLOG_TOTAL_REC_BBS, l->head);
	err = cycles_check(l, l->head - scan, scan, first);
	scan = (uint32_t)min_u64(XLOG_TOTAL_REC_BBS - scan, l->bbs - l->head);
	if (!err)
		err = cycles_check(l, l->bbs - scan, scan, last);
	return err;
}

/* ---- records ---- */

static bool crc_ok(const struct record *r, size_t header_bytes)
{
	static const uint8_t zero[4];
	const uint8_t *h = r->header;
	uint32_t crc = crc32c(crc32c(0, h, H_CRC), zero, sizeof(zero));

	crc = crc32c(crc, h + H_CRC + 4, header_bytes - H_CRC - 4);
	for (uint32_t k = 1; k < (r->data_bbs + XLOG_CYCLE_DATA_BBS - 1) / XLOG_CYCLE_DATA_BBS; k++)
		crc = crc32c(crc, h + (size_t)k * XFS_BB_BYTES, XH_BYTES);
	return crc32c(crc, r->data, r->len_bytes) == le_at(h, H_CRC, 4);
}

/* Loads the blocks from distance before the head up to the head, in order. */
static int blocks_load(struct xlog *l, uint32_t distance)
{
	uint32_t wrapped = distance > l->head ? distance - l->head : 0;
	int err = 0;

	if (!distance || distance > MAX_REPLAY_BBS || distance > l->bbs)
		return -EOPNOTSUPP;
	l->first = wrapped ? l->bbs - wrapped : l->head - distance;
	l->in_buf = distance;
	if (wrapped)
		err = log_read(l, l->first, wrapped, l->buf);
	if (!err)
		err = log_read(l, l->head - (distance - wrapped), distance - wrapped,
			       l->buf + (size_t)wrapped * XFS_BB_BYTES);
	return err;
}

/*
 * The record at index `at` of the loaded blocks: its header must fit its place, and it must end
 * before or at the head.
 */
static bool record_parse(const struct xlog *l, uint32_t at, struct record *r)
{
	uint8_t *h = l->buf + (size_t)at * XFS_BB_BYTES;
	uint64_t len = be_at(h, H_LEN, 4), size = be_at(h, H_SIZE, 4),
		 blk = (l->first + at) % l->bbs;
	uint64_t cycle = l->cycle - (blk >= l->head);

	if (be_at(h, H_MAGICNO, 4) != XLOG_HEADER_MAGIC_NUM ||
	    be_at(h, H_VERSION, 4) != XLOG_VERSION_2 || be_at(h, H_LSN, 8) != (cycle << 32 | blk) ||
	    be_at(h, H_CYCLE, 4) != cycle || be_at(h, H_FMT, 4) != XLOG_FMT_LINUX_LE ||
	    memcmp(h + H_FS_UUID, l->i->uuid, XFS_UUID_BYTES) || !len ||
	    len > XLOG_MAX_RECORD_BBS * XFS_BB_BYTES || !size ||
	    size > XLOG_MAX_RECORD_BBS * XFS_BB_BYTES)
		return false;
	*r = (struct record){ .header = h,
			      .blk = (uint32_t)blk,
			      .len_bytes = (uint32_t)len,
			      .data_bbs = (uint32_t)((len + XFS_BB_BYTES - 1) / XFS_BB_BYTES),
			      .header_bbs =
				      (uint32_t)((size + XLOG_CYCLE_DATA_BBS * XFS_BB_BYTES - 1) /
						 (XLOG_CYCLE_DATA_BBS * XFS_BB_BYTES)),
			      .ops = (uint32_t)be_at(h, H_NUM_LOGOPS, 4) };
	r->data = h + (size_t)r->header_bbs * XFS_BB_BYTES;
	return r->header_bbs + r->data_bbs <= l->in_buf - at &&
	       r->data_bbs <= r->header_bbs * XLOG_CYCLE_DATA_BBS;
}

/* The first word of each block is in the headers, because the cycle takes its place. */
static void record_unpack(struct record *r)
{
	for (uint32_t k = 0; k < r->data_bbs; k++) {
		const uint32_t ext = k / XLOG_CYCLE_DATA_BBS, word = k % XLOG_CYCLE_DATA_BBS;
		const uint8_t *from = r->header +
				      (ext ? ext * XFS_BB_BYTES + XH_CYCLE_DATA : H_CYCLE_DATA) +
				      word * 4;

		memcpy(r->data + (size_t)k * XFS_BB_BYTES, from, 4);
	}
}

/* ---- operations ---- */

static bool item_region(struct replay *y, struct trans *t, const uint8_t *p, uint32_t len)
{
	uint64_t type = len < LI_BYTES ? 0 : le_at(p, LI_TYPE, 2),
		 size = len < LI_BYTES ? 0 : le_at(p, LI_SIZE, 2);
	uint64_t flags;

	if (!size || type < XFS_LI_EFI || type > XFS_LI_XMD)
		return false;
	t->regions = size - 1;
	if (type != XFS_LI_BUF)
		return true;
	if (len < BLF_BYTES || y->n == MAX_LOGGED)
		return false;
	flags = le_at(p, BLF_FLAGS, 2);
	y->logged[y->n++] = (struct logged){ .daddr = le_at(p, BLF_BLKNO, 8),
					     .trans = (uint32_t)(t - y->trans),
					     .kind = (uint32_t)flags >> XFS_BLFT_SHIFT,
					     .bbs = (uint32_t)le_at(p, BLF_LEN, 2),
					     .cancel = flags & XFS_BLF_CANCEL };
	return true;
}

static bool trans_region(struct replay *y, struct trans *t, const uint8_t *p, uint32_t len)
{
	if (!t->has_header) {
		t->has_header = len == TH_BYTES && le_at(p, TH_MAGIC, 4) == XFS_TRANS_HEADER_MAGIC;
		t->all_regions = len == TH_BYTES ? le_at(p, TH_NUM_ITEMS, 4) : 0;
		return t->has_header;
	}
	if (!t->all_regions--)
		return false;
	if (t->regions) {
		t->regions--;
		return true;
	}
	return item_region(y, t, p, len);
}

/* The transaction of this number that has begun and not ended. */
static struct trans *trans_find(const struct replay *y, uint32_t tid)
{
	for (uint32_t k = y->transes; k; k--)
		if (y->trans[k - 1].tid == tid && !y->trans[k - 1].end)
			return &y->trans[k - 1];
	return NULL;
}

static bool trans_op(struct replay *y, uint64_t lsn, const uint8_t *op, uint32_t len)
{
	uint32_t tid = (uint32_t)be_at(op, OH_TID, 4), flags = op[OH_FLAGS];
	struct trans *t = trans_find(y, tid);

	if (op[OH_CLIENTID] != XFS_TRANSACTION)
		return false;
	if (flags == XLOG_START_TRANS) {
		if (t || len || y->transes == MAX_TRANS)
			return false;
		y->trans[y->transes++] = (struct trans){ .tid = tid, .lsn = lsn };
		return true;
	}
	/* the transaction began before the tail: a replay skips it */
	if (!t)
		return !(flags & (XLOG_START_TRANS | XLOG_UNMOUNT_TRANS));
	if (flags == XLOG_COMMIT_TRANS) {
		t->end = ++y->ends;
		return t->has_header && !t->all_regions && !t->regions && !len;
	}
	/*
	 * a region that continues in the next record: its first part has the fields that are read
	 * here, or it is too short
	 */
	if (flags & XLOG_WAS_CONT_TRANS)
		return t->has_header &&
		       !(flags & ~(XLOG_WAS_CONT_TRANS | XLOG_CONTINUE_TRANS | XLOG_END_TRANS));
	return !(flags & ~XLOG_CONTINUE_TRANS) && trans_region(y, t, op + OH_BYTES, len);
}

static bool record_ops(const struct record *r, struct replay *y)
{
	uint64_t lsn = be_at(r->header, H_LSN, 8);
	uint32_t at = 0;

	for (uint32_t k = 0; k < r->ops; k++) {
		const uint8_t *op = r->data + at;
		uint64_t len;

		if (r->len_bytes - at < OH_BYTES)
			return false;
		len = be_at(op, OH_LEN, 4);
		if (len > r->len_bytes - at - OH_BYTES || !trans_op(y, lsn, op, (uint32_t)len))
			return false;
		at += OH_BYTES + (uint32_t)len;
	}
	return true;
}

/*
 * The offsets of LSN and UUID for the kinds of L3, from the content at home: 0 if it is none of
 * these kinds.
 */
static size_t lsn_place(const uint8_t *p, size_t *ret_uuid)
{
	static const struct {
		char magic[5];
		uint8_t lsn, uuid;
	} kinds[] = {
		{ "XAGF", 208, 64 }, { "AB3B", 24, 32 }, { "AB3C", 24, 32 },
		{ "IAB3", 24, 32 },  { "FIB3", 24, 32 }, { "RMB3", 24, 32 },
		{ "R3FC", 24, 32 },  { "BMA3", 32, 40 }, { "XFSB", 240, 32 },
	};

	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		*ret_uuid = kinds[k].uuid;
		if (!memcmp(p, kinds[k].magic, 4))
			return kinds[k].lsn;
	}
	return 0;
}

/* L3 for one buffer. -EOPNOTSUPP: a mount would replay it. */
static int home_check(struct xfs_image *x, const struct logged *b, uint64_t lsn)
{
	uint8_t head[XFS_BB_BYTES];
	const uint8_t *expected;
	size_t at, uuid;
	int err;

	if (b->daddr > UINT64_MAX / XFS_BB_BYTES)
		return -EOPNOTSUPP;
	err = xfs_read(x, b->daddr * XFS_BB_BYTES, sizeof(head), head);
	if (err)
		return err == -EUCLEAN ? -EOPNOTSUPP : err;
	at = lsn_place(head, &uuid);
	expected = memcmp(head, "XFSB", 4) ? x->meta_uuid : x->uuid;
	return at && !memcmp(head + uuid, expected, XFS_UUID_BYTES) && be_at(head, at, 8) >= lsn &&
			       be_at(head, at, 8) != UINT64_MAX
		       ? 0
		       : -EOPNOTSUPP;
}

static bool is_cancelled(const struct replay *y, const struct logged *b)
{
	for (uint32_t k = 0; k < y->n; k++)
		if (y->logged[k].cancel && y->logged[k].daddr == b->daddr &&
		    y->logged[k].bbs == b->bbs &&
		    y->trans[y->logged[k].trans].end > y->trans[b->trans].end)
			return true;
	return false;
}

static int all_home(struct xfs_image *x, const struct replay *y)
{
	int err = 0;

	for (uint32_t k = 0; k < y->n && !err; k++) {
		const struct logged *b = &y->logged[k];
		const struct trans *t = &y->trans[b->trans];

		if (t->end && !b->cancel &&
		    (b->kind == XFS_BLFT_BTREE_BUF || b->kind == XFS_BLFT_AGF_BUF ||
		     b->kind == XFS_BLFT_SB_BUF) &&
		    !is_cancelled(y, b))
			err = home_check(x, b, t->lsn);
	}
	return err;
}

static bool is_unmount(const struct record *r)
{
	const uint8_t *op = r->data;
	uint8_t type[2];

	if (r->ops != 1 || r->len_bytes < OH_BYTES + sizeof(type) || op[OH_CLIENTID] != XFS_LOG ||
	    op[OH_FLAGS] != XLOG_UNMOUNT_TRANS)
		return false;
	memcpy(type, op + OH_BYTES, sizeof(type));
	return le_at(type, 0, 2) == XLOG_UNMOUNT_TYPE;
}

/* ---- from the tail to the head ---- */

/*
 * The record that ends at the head; the loaded blocks end there too. -EOPNOTSUPP: no record does.
 */
static int last_record(struct xlog *l, struct record *ret)
{
	uint32_t most = (uint32_t)min_u64(XLOG_MAX_RECORD_BBS + XLOG_MAX_HEADER_BBS, l->bbs);
	uint32_t at = most;
	int err = blocks_load(l, most);

	if (err)
		return err;
	while (at && be_at(l->buf + (size_t)(at - 1) * XFS_BB_BYTES, 0, 4) != XLOG_HEADER_MAGIC_NUM)
		at--;
	if (!at || !record_parse(l, at - 1, ret) ||
	    at - 1 + ret->header_bbs + ret->data_bbs != l->in_buf)
		return -EOPNOTSUPP;
	return 0;
}

static int replay_parse(struct xlog *l, uint64_t tail_lsn, struct replay *y)
{
	uint64_t cycle = tail_lsn >> 32, blk = tail_lsn & UINT32_MAX;
	struct record r;
	int err;

	if (blk >= l->bbs || cycle != l->cycle - (blk >= l->head))
		return -EOPNOTSUPP;
	err = blocks_load(l, (uint32_t)(blk < l->head ? l->head - blk : l->head + l->bbs - blk));
	for (uint32_t at = 0; !err && at < l->in_buf; at += r.header_bbs + r.data_bbs) {
		if (!record_parse(l, at, &r) || (!crc_ok(&r, H_BYTES) && !crc_ok(&r, H_BYTES_I386)))
			return -EOPNOTSUPP;
		record_unpack(&r);
		if (!record_ops(&r, y))
			return -EOPNOTSUPP;
	}
	return err;
}

static int replay_check(struct xlog *l, uint64_t tail_lsn)
{
	_cleanup_free_ struct trans *trans = malloc(MAX_TRANS * sizeof(*trans));
	_cleanup_free_ struct logged *logged = malloc(MAX_LOGGED * sizeof(*logged));
	struct replay y = { .trans = trans, .logged = logged };
	int err;

	if (!trans || !logged)
		return -ENOMEM;
	err = replay_parse(l, tail_lsn, &y);
	return err ? err : all_home(l->i, &y);
}

int xfs_log_clean(struct xfs_image *x)
{
	struct xlog l = {
		.i = x, .bbs = (uint32_t)((uint64_t)x->log_blocks * x->block_bytes / XFS_BB_BYTES)
	};
	_cleanup_free_ uint8_t *buf = malloc(MAX_REPLAY_BBS * XFS_BB_BYTES);
	uint64_t tail_lsn;
	struct record r;
	bool crc;
	int err;

	if (!buf)
		return -ENOMEM;
	l.buf = buf;
	err = l.bbs > XLOG_MAX_RECORD_BBS + XLOG_MAX_HEADER_BBS ? head_find(&l) : -EOPNOTSUPP;
	if (!err)
		err = last_record(&l, &r);
	if (err)
		return err;
	tail_lsn = be_at(r.header, H_TAIL_LSN, 8);
	crc = crc_ok(&r, H_BYTES) || crc_ok(&r, H_BYTES_I386);
	/*
	 * the record of mkfs.xfs and xfs_repair has no checksum, and Linux requires none in a
	 * record of this kind
	 */
	if (!crc && le_at(r.header, H_CRC, 4))
		return -EOPNOTSUPP;
	record_unpack(&r);
	if (is_unmount(&r))
		return 0;
	return crc ? replay_check(&l, tail_lsn) : -EOPNOTSUPP;
}
