// SPDX-License-Identifier: MIT
/*
 * The log of an XFS, from the tail to the head, read as a mount would replay it.
 *
 * The log is a ring of basic blocks of 512 bytes. The first four bytes of each block are the number
 * of the round (cycle) in which it was written, or the magic number of a record's header, with the
 * cycle after it. The head, where the next record goes, is where the cycle falls by one. The last
 * record before the head contains the tail, from which a mount replays.
 *
 * An image is sealed at any moment, as a power cut would leave it. An unmount writes a record of
 * its own type, and so do mkfs.xfs and xfs_repair: then a mount replays nothing. A freeze
 * (xfs_log_quiesce) writes all metadata home, but leaves a few records. Invariants:
 * L1 the head is found as in Linux (xlog_find_head): by bisection, then by a look at all blocks
 *    that may be incomplete. Several writes to the log are under way at a time, so one may be
 *    missing before others that arrived, and of the last one a part may be there. The head is where
 *    the last record ends before the first gap;
 * L2 every record from the tail to the head has the right checksum, UUID and place, its header is
 *    as long as that of the first one, and xfs_replay.c understands each operation in it. Linux
 *    would go back to the last good record (xlog_verify_head), or forward to a later tail
 *    (xlog_verify_tail); here the image is refused. Where nothing is refused, Linux replays the
 *    same records.
 */
#include <errno.h>
#include <stdlib.h>
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
/* 128 MiB. Linux writes all metadata home every 30 s, so most logs have a few MiB to replay. */
#define MAX_REPLAY_BBS 262144u
#define WINDOW_BBS 2048u /* this part of it is in memory */
#define NO_BLOCK UINT32_MAX

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

#define XLOG_UNMOUNT_TYPE 0x556eu

struct xlog {
	struct xfs_image *i;
	uint32_t bbs;
	uint32_t head;	 /* 1 .. bbs */
	uint32_t cycle;	 /* of the blocks before head; blocks from head on have cycle - 1 */
	uint8_t *buf;	 /* the loaded blocks: the window */
	uint32_t first;	 /* the log block that is at buf */
	uint32_t in_buf; /* the number of blocks at buf */
};

struct record {
	uint8_t *header, *data;
	uint32_t blk, header_bbs, data_bbs, len_bytes, size_bytes, ops;
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

/* xlog_find_verify_cycle: the first of these blocks that has this cycle, or NO_BLOCK. */
static int cycle_find(struct xlog *l, uint32_t blk, uint32_t n, uint32_t cycle, uint32_t *ret)
{
	uint32_t part;

	*ret = NO_BLOCK;
	for (; n; blk += part, n -= part) {
		int err;

		part = (uint32_t)min_u64(n, WINDOW_BBS);
		err = log_read(l, blk, part, l->buf);
		if (err)
			return err;
		for (uint32_t k = 0; k < part; k++)
			if (cycle_of(l->buf + (size_t)k * XFS_BB_BYTES) == cycle) {
				*ret = blk + k;
				return 0;
			}
	}
	return 0;
}

/* xlog_logrec_hblks: the blocks of a header, for records of this size. */
static uint32_t header_bbs(uint64_t size_bytes)
{
	return (uint32_t)((max_u64(size_bytes, 1) + XLOG_CYCLE_DATA_BBS * XFS_BB_BYTES - 1) /
			  (XLOG_CYCLE_DATA_BBS * XFS_BB_BYTES));
}

/*
 * xlog_find_verify_log_record: if the record that lies last before *last does not end there, *last
 * becomes its start. more: blocks of it from the start of the log on. -ENOENT: none begins in the
 * log's blocks before *last.
 */
static int record_trim(struct xlog *l, uint32_t *last, uint32_t more)
{
	uint32_t n = (uint32_t)min_u64(*last, XLOG_MAX_RECORD_BBS - more), k = n;
	const uint8_t *h;
	int err = n ? log_read(l, *last - n, n, l->buf) : 0;

	if (err)
		return err;
	while (k && be_at(l->buf + (size_t)(k - 1) * XFS_BB_BYTES, 0, 4) != XLOG_HEADER_MAGIC_NUM)
		k--;
	if (!k)
		return *last == n ? -ENOENT : -EOPNOTSUPP;
	h = l->buf + (size_t)(k - 1) * XFS_BB_BYTES;
	if (be_at(h, H_VERSION, 4) != XLOG_VERSION_2 ||
	    memcmp(h + H_FS_UUID, l->i->uuid, XFS_UUID_BYTES))
		return -EOPNOTSUPP;
	if (n - (k - 1) + more != (be_at(h, H_LEN, 4) + XFS_BB_BYTES - 1) / XFS_BB_BYTES +
					  header_bbs(be_at(h, H_SIZE, 4)))
		*last -= n - (k - 1);
	return 0;
}

/* The end of the log's last block is the same place as the start of its first. */
static void head_set(struct xlog *l, uint32_t head)
{
	if (!head || head > l->head) /* back over the start of the log */
		l->cycle--;
	l->head = head ? head : l->bbs;
}

/* Moves the head to the first block before it that was not written. last: the last block's cycle */
static int head_before_gap(struct xlog *l, uint32_t last)
{
	uint32_t stop = last == l->cycle ? last - 1 : last;
	uint32_t scan = (uint32_t)min_u64(XLOG_TOTAL_REC_BBS, l->bbs), gap = NO_BLOCK;
	uint32_t at_end = l->head < scan && last ? scan - l->head : 0;
	int err = 0;

	if (at_end)
		err = cycle_find(l, l->bbs - at_end, at_end, stop - 1, &gap);
	if (!err && gap == NO_BLOCK) {
		scan = (uint32_t)min_u64(scan, l->head);
		err = cycle_find(l, l->head - scan, scan, stop, &gap);
	}
	if (!err && gap != NO_BLOCK)
		head_set(l, gap);
	return err;
}

/* Moves the head to the start of a record that ends behind it. */
static int head_before_part(struct xlog *l, uint32_t last)
{
	uint32_t head = l->head;
	int err = record_trim(l, &head, 0);

	if (err == -ENOENT && last) {
		uint32_t more = head;

		head = l->bbs;
		err = more < XLOG_MAX_RECORD_BBS ? record_trim(l, &head, more) : -EOPNOTSUPP;
		if (head == l->bbs)
			head = more;
	}
	if (!err)
		head_set(l, head);
	return err == -ENOENT ? -EOPNOTSUPP : err;
}

static int head_find(struct xlog *l)
{
	uint32_t first, last;
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
	if (!err)
		err = head_before_gap(l, last);
	return err ? err : head_before_part(l, last);
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

/* Loads n blocks, in order, from the block at this distance before the head on. */
static int blocks_load(struct xlog *l, uint32_t distance, uint32_t n)
{
	uint32_t part;
	int err;

	l->first = distance > l->head ? l->bbs - (distance - l->head) : l->head - distance;
	l->in_buf = n;
	part = (uint32_t)min_u64(n, l->bbs - l->first);
	err = log_read(l, l->first, part, l->buf);
	return err || part == n ? err
				: log_read(l, 0, n - part, l->buf + (size_t)part * XFS_BB_BYTES);
}

/*
 * The record at index `at` of the loaded blocks: its header must fit its place, and it must end
 * in them.
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
			      .header_bbs = header_bbs(size),
			      .size_bytes = (uint32_t)size,
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

static int record_ops(const struct record *r, struct xfs_replay *y)
{
	uint64_t lsn = be_at(r->header, H_LSN, 8);
	uint32_t at = 0;
	int err = 0;

	for (uint32_t k = 0; k < r->ops && !err; k++) {
		const uint8_t *op = r->data + at;
		uint64_t len;

		if (r->len_bytes - at < OH_BYTES)
			return -EOPNOTSUPP;
		len = be_at(op, OH_LEN, 4);
		if (len > r->len_bytes - at - OH_BYTES)
			return -EOPNOTSUPP;
		err = xfs_replay_op(y, lsn, op, (uint32_t)len);
		at += OH_BYTES + (uint32_t)len;
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

/* The record that ends at the head. -EOPNOTSUPP: no record does. */
static int last_record(struct xlog *l, struct record *ret)
{
	uint32_t most = (uint32_t)min_u64(XLOG_MAX_RECORD_BBS + XLOG_MAX_HEADER_BBS, l->bbs);
	uint32_t at = most;
	int err = blocks_load(l, most, most);

	if (err)
		return err;
	while (at && be_at(l->buf + (size_t)(at - 1) * XFS_BB_BYTES, 0, 4) != XLOG_HEADER_MAGIC_NUM)
		at--;
	if (!at || !record_parse(l, at - 1, ret) ||
	    at - 1 + ret->header_bbs + ret->data_bbs != l->in_buf)
		return -EOPNOTSUPP;
	return 0;
}

static bool has_crc(const struct record *r)
{
	return crc_ok(r, H_BYTES) || crc_ok(r, H_BYTES_I386);
}

/* All records of this distance before the head. */
static int records_take(struct xlog *l, uint32_t distance, struct xfs_replay *y)
{
	const uint32_t most = XLOG_MAX_RECORD_BBS + XLOG_MAX_HEADER_BBS;
	uint32_t tail_size = 0, at = l->in_buf = 0;
	struct record r;
	int err = 0;

	while (distance && !err) {
		if (l->in_buf - at < min_u64(distance, most)) {
			err = blocks_load(l, distance, (uint32_t)min_u64(distance, WINDOW_BBS));
			at = 0;
		}
		if (err)
			return err;
		if (!record_parse(l, at, &r) || !has_crc(&r))
			return -EOPNOTSUPP;
		/* Linux takes the size of all headers from the first one */
		tail_size = tail_size ? tail_size : r.size_bytes;
		if (r.header_bbs != header_bbs(tail_size) || r.len_bytes > tail_size)
			return -EOPNOTSUPP;
		record_unpack(&r);
		err = record_ops(&r, y);
		at += r.header_bbs + r.data_bbs;
		distance -= r.header_bbs + r.data_bbs;
	}
	return err;
}

static int tail_distance(const struct xlog *l, uint64_t tail_lsn, uint32_t *ret)
{
	uint64_t cycle = tail_lsn >> 32, blk = tail_lsn & UINT32_MAX;

	/* Linux takes a tail at the head for an empty log */
	if (blk >= l->bbs || cycle != l->cycle - (blk >= l->head) || blk == l->head % l->bbs)
		return -EOPNOTSUPP;
	*ret = (uint32_t)(blk < l->head ? l->head - blk : l->head + l->bbs - blk);
	return *ret > MAX_REPLAY_BBS ? -EOPNOTSUPP : 0;
}

static int log_take(struct xlog *l, struct xfs_replay *y)
{
	uint32_t distance = 0;
	struct record r;
	bool crc;
	int err = head_find(l);

	if (!err)
		err = last_record(l, &r);
	if (err)
		return err;
	crc = has_crc(&r);
	/*
	 * the record of mkfs.xfs and xfs_repair has no checksum, and Linux requires none in a
	 * record of this kind
	 */
	if (!crc && le_at(r.header, H_CRC, 4))
		return -EOPNOTSUPP;
	err = tail_distance(l, be_at(r.header, H_TAIL_LSN, 8), &distance);
	record_unpack(&r);
	if (is_unmount(&r))
		return 0;
	return err || !crc ? -EOPNOTSUPP : records_take(l, distance, y);
}

int xfs_log_replay(struct xfs_replay **ret, struct xfs_image *x)
{
	struct xlog l = {
		.i = x, .bbs = (uint32_t)((uint64_t)x->log_blocks * x->block_bytes / XFS_BB_BYTES)
	};
	_cleanup_free_ uint8_t *buf = malloc(WINDOW_BBS * XFS_BB_BYTES);
	struct xfs_replay *y = xfs_replay_new(x);
	int err = buf && y ? 0 : -ENOMEM;

	l.buf = buf;
	if (!err)
		err = l.bbs > XLOG_MAX_RECORD_BBS + XLOG_MAX_HEADER_BBS ? log_take(&l, y)
									: -EOPNOTSUPP;
	if (err) {
		xfs_replay_free(y);
		return err;
	}
	xfs_replay_ready(y);
	*ret = y;
	return 0;
}
