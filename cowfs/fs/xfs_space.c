// SPDX-License-Identifier: MIT
/*
 * Free space of XFS: the by-block B+tree (bnobt) of each allocation group (AG).
 *
 * "Free" is the claim that loses data when it is wrong. Invariants:
 * I1 a unit is free only if all of it lies in one record of a bnobt. Everything else is used,
 *    without a list of what it is: the AG's headers, blocks of the trees, the AG's free list
 *    (AGFL), the log, inodes, data, preallocation, copy-on-write staging, the end of the volume;
 * I2 a record is trusted only if superblock, AGF and every tree block from the root to its leaf
 *    have the right checksum, UUID, address, owner and level, the records ascend without overlap,
 *    each tree block starts with the key that its parent has for it, and no record touches the AG's
 *    headers or the log. A block that the log changes has no valid checksum; the log's records have;
 * I3 the trees are those that the replay of the log leaves (xfs_log.c, xfs_replay.c). What XFS does
 *    later than in the trees is in the log until it is in the trees: deferred frees (intents). An
 *    extent that is freed enters the tree in the transaction that frees it. What XFS does earlier:
 *    an online discard of a free extent changes nothing that is used. Counters in the superblock
 *    may be behind (lazy counters); this code does not read them;
 * I4 no block that is free after the replay is read before it is written: new metadata is made in
 *    memory and logged as a whole, and a replay skips buffers, inodes and new inode chunks whose
 *    blocks were freed, because the free cancels the buffer. Unlinked inodes that were open, and
 *    copy-on-write staging, are freed by the mount, and count as used here.
 *
 * A crafted image causes only bounded work: a tree block is visited only for a key range of its own
 * that is not empty, one block per level is kept, and reads are counted.
 */
#include <errno.h>
#include <string.h>

#include "base/io.h"
#include "fs/xfs_image.h"
#include "fs/xfs_log.h"
#include "fs/xfs_space.h"

/* for the log: 128 MiB to replay, read in parts that overlap, and 4 MiB to find its head */
#define OPEN_READS_BLKS 45056u
/* for a question: 128 MiB of blocks of 1 KiB, every second one free, have 1,100 tree blocks */
#define USED_READS_BLKS 4096u
#define MIN_AG_BYTES MIB /* mkfs.xfs: 16 MiB; limits the AGs of one question */
#define MAX_LEVELS 9u	 /* XFS_BTREE_MAXLEVELS */

/* the superblock: struct xfs_dsb */
#define SB_BYTES 512u
enum {
	SB_MAGICNUM = 0,
	SB_BLOCKSIZE = 4,
	SB_DBLOCKS = 8,
	SB_RBLOCKS = 16,
	SB_REXTENTS = 24,
	SB_UUID = 32,
	SB_LOGSTART = 48,
	SB_AGBLOCKS = 84,
	SB_AGCOUNT = 88,
	SB_LOGBLOCKS = 96,
	SB_VERSIONNUM = 100,
	SB_SECTSIZE = 102,
	SB_AGBLKLOG = 124,
	SB_INPROGRESS = 126,
	SB_FEATURES_RO_COMPAT = 212,
	SB_FEATURES_INCOMPAT = 216,
	SB_FEATURES_LOG_INCOMPAT = 220,
	SB_CRC = 224,
	SB_META_UUID = 248,
};
#define VERSION_NUMBITS 0xfu
#define VERSION_5 5u
/*
 * FTYPE, SPINODES, META_UUID, BIGTIME, NREXT64, EXCHRANGE, PARENT. NEEDSREPAIR (0x10) is excluded;
 * METADIR, ZONED: not supported
 */
#define INCOMPAT_META_UUID 0x4u
#define INCOMPAT_KNOWN 0xefu
#define RO_COMPAT_KNOWN 0xfu /* FINOBT, RMAPBT, REFLINK, INOBTCNT */

/* the header of an AG's free space: struct xfs_agf, the AG's second sector */
enum {
	AGF_MAGICNUM = 0,
	AGF_VERSIONNUM = 4,
	AGF_SEQNO = 8,
	AGF_LENGTH = 12,
	AGF_BNO_ROOT = 16,
	AGF_BNO_LEVEL = 28,
	AGF_UUID = 64,
	AGF_CRC = 216,
};
#define AG_HEADER_SECTORS 4u /* superblock, AGF, AGI, AGFL */

/* a tree block: struct xfs_btree_block, short form with checksum */
enum {
	BB_MAGIC = 0,
	BB_LEVEL = 4,
	BB_NUMRECS = 6,
	BB_BLKNO = 16,
	BB_UUID = 32,
	BB_OWNER = 48,
	BB_CRC = 52,
	BB_HEADER = 56,
};
#define REC_BYTES 8u /* ar_startblock, ar_blockcount; a key has the same form */
#define PTR_BYTES 4u

struct node {
	uint8_t *p; /* a block; NULL: not used yet */
	bool valid; /* and checked */
	uint32_t ag, block;
};

struct xfs_space {
	struct xfs_image i;
	struct xfs_replay *replay;
	struct node path[MAX_LEVELS]; /* the last tree block of each level */
};

/* The question about one AG, and the place of the answer. */
struct query {
	struct xfs_space *x;
	uint32_t ag, ag_len;
	uint64_t low, high; /* blocks of the AG: [low, high) */
	uint64_t end;	    /* of the last record */
	uint64_t first_unit, units;
	uint8_t *bits;
};

static bool pow2_between(uint64_t v, uint64_t low, uint64_t high)
{
	return v >= low && v <= high && !(v & (v - 1));
}

/* ---- superblock ---- */

static bool features_known(const uint8_t *sb)
{
	return (be_at(sb, SB_VERSIONNUM, 2) & VERSION_NUMBITS) == VERSION_5 &&
	       !be_at(sb, SB_INPROGRESS, 1) &&
	       !(be_at(sb, SB_FEATURES_INCOMPAT, 4) & ~(uint64_t)INCOMPAT_KNOWN) &&
	       !(be_at(sb, SB_FEATURES_RO_COMPAT, 4) & ~(uint64_t)RO_COMPAT_KNOWN) &&
	       !be_at(sb, SB_FEATURES_LOG_INCOMPAT, 4) && !be_at(sb, SB_RBLOCKS, 8) &&
	       !be_at(sb, SB_REXTENTS, 8);
}

static uint32_t ag_length(const struct xfs_image *x, uint32_t ag)
{
	return (uint32_t)min_u64(x->ag_blocks, x->blocks - (uint64_t)ag * x->ag_blocks);
}

/* sb_logstart has the AG above sb_agblklog bits, and the block of the AG below. */
static bool log_place(struct xfs_image *x, uint64_t logstart, uint64_t agblklog)
{
	uint64_t ag, block;

	if (!logstart || agblklog > 31 || 1ull << agblklog < x->ag_blocks)
		return false;
	ag = logstart >> agblklog;
	block = logstart & ((1ull << agblklog) - 1);
	if (ag >= x->ags || block >= ag_length(x, (uint32_t)ag) ||
	    x->log_blocks > ag_length(x, (uint32_t)ag) - block)
		return false;
	x->log_block = ag * x->ag_blocks + block;
	return x->log_blocks && (uint64_t)x->log_blocks * x->block_bytes <= 2 * GIB;
}

static bool geometry_take(struct xfs_image *x, const uint8_t *sb)
{
	x->block_bytes = (uint32_t)be_at(sb, SB_BLOCKSIZE, 4);
	x->blocks = be_at(sb, SB_DBLOCKS, 8);
	x->ag_blocks = (uint32_t)be_at(sb, SB_AGBLOCKS, 4);
	x->ags = (uint32_t)be_at(sb, SB_AGCOUNT, 4);
	x->log_blocks = (uint32_t)be_at(sb, SB_LOGBLOCKS, 4);
	if (!pow2_between(x->block_bytes, 512, XFS_MAX_BLOCK_BYTES) ||
	    x->sector_bytes > x->block_bytes ||
	    x->blocks > blk_to_bytes(x->r.volume_blks) / x->block_bytes ||
	    x->ag_blocks > 1u << 31 || (uint64_t)x->ag_blocks * x->block_bytes < MIN_AG_BYTES)
		return false;
	/* the last AG may be shorter, but has its headers */
	if (!x->blocks || x->ags != (x->blocks - 1) / x->ag_blocks + 1 ||
	    (uint64_t)ag_length(x, x->ags - 1) * x->block_bytes <=
		    AG_HEADER_SECTORS * x->sector_bytes)
		return false;
	return log_place(x, be_at(sb, SB_LOGSTART, 8), be_at(sb, SB_AGBLKLOG, 1));
}

static bool super_take(struct xfs_image *x, const uint8_t *sb)
{
	bool other = be_at(sb, SB_FEATURES_INCOMPAT, 4) & INCOMPAT_META_UUID;

	memcpy(x->uuid, sb + SB_UUID, XFS_UUID_BYTES);
	memcpy(x->meta_uuid, sb + (other ? SB_META_UUID : SB_UUID), XFS_UUID_BYTES);
	return !memcmp(sb + SB_MAGICNUM, "XFSB", 4) &&
	       be_at(sb, SB_SECTSIZE, 2) == x->sector_bytes && features_known(sb) &&
	       geometry_take(x, sb);
}

/* Reads a buffer as it is after the replay. *ret_replayed: its checksum is not valid. */
static int buffer_get(struct xfs_space *x, uint64_t off_bytes, uint32_t len_bytes, uint8_t *buf,
		      bool *ret_replayed)
{
	int err = xfs_read(&x->i, off_bytes, len_bytes, buf);

	*ret_replayed = !err && x->replay &&
			xfs_replay_apply(x->replay, off_bytes / XFS_BB_BYTES,
					 len_bytes / XFS_BB_BYTES, buf);
	return err;
}

/* The superblock, before and after the replay: a growfs may be in the log. */
static int super_load(struct xfs_space *x)
{
	_cleanup_free_ uint8_t *sb = malloc(x->i.sector_bytes);
	bool replayed;
	int err;

	if (!sb)
		return -ENOMEM;
	err = buffer_get(x, 0, x->i.sector_bytes, sb, &replayed);
	if (err)
		return err == -EUCLEAN ? -EOPNOTSUPP : err;
	return super_take(&x->i, sb) && (replayed || xfs_crc_ok(sb, x->i.sector_bytes, SB_CRC))
		       ? 0
		       : -EOPNOTSUPP;
}

static int sector_size_load(struct xfs_image *x)
{
	uint8_t head[SB_BYTES];
	int err = xfs_read(x, 0, sizeof(head), head);

	if (err)
		return err == -EUCLEAN ? -EOPNOTSUPP : err;
	x->sector_bytes = (uint32_t)be_at(head, SB_SECTSIZE, 2);
	return pow2_between(x->sector_bytes, 512, 32768) ? 0 : -EOPNOTSUPP;
}

/* ---- the tree ---- */

static bool node_ok(const struct query *q, const uint8_t *p, uint32_t block, unsigned level)
{
	const struct xfs_image *i = &q->x->i;
	uint64_t daddr = ((uint64_t)q->ag * i->ag_blocks + block) * (i->block_bytes / XFS_BB_BYTES);
	uint64_t n = be_at(p, BB_NUMRECS, 2);
	uint64_t max = (i->block_bytes - BB_HEADER) / (level ? REC_BYTES + PTR_BYTES : REC_BYTES);

	return !memcmp(p + BB_MAGIC, "AB3B", 4) && be_at(p, BB_LEVEL, 2) == level && n <= max &&
	       be_at(p, BB_BLKNO, 8) == daddr &&
	       !memcmp(p + BB_UUID, i->meta_uuid, XFS_UUID_BYTES) && be_at(p, BB_OWNER, 4) == q->ag;
}

/*
 * Gets the block at this place of the tree, checked; it stays valid until the next call for another
 * block of its level.
 */
static int node_get(const struct query *q, uint32_t block, unsigned level, const uint8_t **ret)
{
	struct xfs_image *i = &q->x->i;
	struct node *n = &q->x->path[level];
	bool replayed;
	int err;

	if ((uint64_t)block * i->block_bytes < AG_HEADER_SECTORS * i->sector_bytes ||
	    block >= q->ag_len)
		return -EUCLEAN;
	if (!n->valid || n->ag != q->ag || n->block != block) {
		n->valid = false;
		if (!n->p)
			n->p = malloc(i->block_bytes);
		if (!n->p)
			return -ENOMEM;
		err = buffer_get(q->x, ((uint64_t)q->ag * i->ag_blocks + block) * i->block_bytes,
				 i->block_bytes, n->p, &replayed);
		if (err)
			return err;
		if (!node_ok(q, n->p, block, level) ||
		    (!replayed && !xfs_crc_ok(n->p, i->block_bytes, BB_CRC)))
			return -EUCLEAN;
		n->ag = q->ag;
		n->block = block;
		n->valid = true;
	}
	*ret = n->p;
	return 0;
}

static void mark_free(const struct query *q, uint64_t start, uint64_t end)
{
	const struct xfs_image *i = &q->x->i;
	uint64_t base = (uint64_t)q->ag * i->ag_blocks;
	uint64_t first = (base + start) * i->block_bytes + COW_BLK_BYTES - 1,
		 last = (base + end) * i->block_bytes;

	first = max_u64(first >> COW_BLK_SHIFT, q->first_unit);
	last = min_u64(last >> COW_BLK_SHIFT, q->first_unit + q->units);
	for (; first < last; first++)
		q->bits[(first - q->first_unit) / 8] &= (uint8_t) ~(1u
								    << (first - q->first_unit) % 8);
}

static int leaf_walk(struct query *q, const uint8_t *p, uint64_t limit)
{
	const struct xfs_image *i = &q->x->i;
	const uint64_t base = (uint64_t)q->ag * i->ag_blocks, n = be_at(p, BB_NUMRECS, 2);

	for (uint64_t k = 0; k < n; k++) {
		const uint8_t *rec = p + BB_HEADER + k * REC_BYTES;
		uint64_t start = be_at(rec, 0, 4), count = be_at(rec, 4, 4), end = start + count;

		if (!count || start < q->end || end > limit ||
		    start * i->block_bytes < AG_HEADER_SECTORS * i->sector_bytes ||
		    (base + start < i->log_block + i->log_blocks && base + end > i->log_block))
			return -EUCLEAN;
		q->end = end;
		if (start < q->high && end > q->low)
			mark_free(q, start, end);
	}
	return 0;
}

/*
 * Walks the part of [low, high) below a block whose records start at key and end at limit. key
 * UINT64_MAX: the root.
 */
static int tree_walk(struct query *q, uint32_t block, unsigned level, uint64_t key, uint64_t limit)
{
	const uint64_t max = (q->x->i.block_bytes - BB_HEADER) / (REC_BYTES + PTR_BYTES);
	const bool root = key == UINT64_MAX;
	const uint8_t *p;
	uint64_t n, first, next;
	int err = node_get(q, block, level, &p);

	if (err)
		return err;
	n = be_at(p, BB_NUMRECS, 2);
	if (!n)
		return root && !level ? 0 : -EUCLEAN;
	if (!root && be_at(p, BB_HEADER, 4) != key)
		return -EUCLEAN;
	if (!level)
		return leaf_walk(q, p, limit);
	for (uint64_t k = 0; k < n && !err; k++) {
		first = be_at(p, BB_HEADER + k * REC_BYTES, 4);
		next = k + 1 < n ? be_at(p, BB_HEADER + (k + 1) * REC_BYTES, 4) : limit;
		if (first >= next || next > limit)
			return -EUCLEAN;
		if (first < q->high && next > q->low)
			err = tree_walk(
				q,
				(uint32_t)be_at(p, BB_HEADER + max * REC_BYTES + k * PTR_BYTES, 4),
				level - 1, first, next);
	}
	return err;
}

static int ag_walk(struct query *q)
{
	struct xfs_image *i = &q->x->i;
	_cleanup_free_ uint8_t *agf = malloc(i->sector_bytes);
	bool replayed;
	uint64_t level;
	int err;

	if (!agf)
		return -ENOMEM;
	err = buffer_get(q->x, (uint64_t)q->ag * i->ag_blocks * i->block_bytes + i->sector_bytes,
			 i->sector_bytes, agf, &replayed);
	if (err)
		return err;
	level = be_at(agf, AGF_BNO_LEVEL, 4);
	if (memcmp(agf + AGF_MAGICNUM, "XAGF", 4) || be_at(agf, AGF_VERSIONNUM, 4) != 1 ||
	    be_at(agf, AGF_SEQNO, 4) != q->ag || be_at(agf, AGF_LENGTH, 4) != q->ag_len || !level ||
	    level > MAX_LEVELS || memcmp(agf + AGF_UUID, i->meta_uuid, XFS_UUID_BYTES) ||
	    (!replayed && !xfs_crc_ok(agf, i->sector_bytes, AGF_CRC)))
		return -EUCLEAN;
	return tree_walk(q, (uint32_t)be_at(agf, AGF_BNO_ROOT, 4), (unsigned)level - 1, UINT64_MAX,
			 q->ag_len);
}

int xfs_space_used(struct xfs_space *x, uint64_t first_unit, uint64_t units, uint8_t *bits)
{
	const struct xfs_image *i = &x->i;
	const uint64_t all = i->blocks * i->block_bytes >> COW_BLK_SHIFT;
	uint64_t low, high;
	int err = 0;

	x->i.reads_blks = USED_READS_BLKS;
	memset(bits, 0xff, (size_t)((units + 7) / 8));
	if (first_unit >= all)
		return 0;
	units = min_u64(units, all - first_unit);
	low = blk_to_bytes(first_unit) / i->block_bytes;
	high = (blk_to_bytes(first_unit + units) + i->block_bytes - 1) / i->block_bytes;
	for (uint64_t ag = low / i->ag_blocks; ag < i->ags && ag * i->ag_blocks < high && !err;
	     ag++) {
		uint64_t base = ag * i->ag_blocks;
		struct query q = { .x = x,
				   .ag = (uint32_t)ag,
				   .ag_len = ag_length(i, (uint32_t)ag),
				   .first_unit = first_unit,
				   .units = units,
				   .bits = bits };

		q.low = low > base ? low - base : 0;
		q.high = min_u64(high - base, q.ag_len);
		err = ag_walk(&q);
	}
	return err;
}

int xfs_space_open(struct xfs_space **ret, const struct blk_reader *r, uint64_t *ret_units)
{
	struct xfs_space *x = calloc(1, sizeof(*x));
	int err;

	if (!x)
		return -ENOMEM;
	x->i.r = *r;
	x->i.reads_blks = OPEN_READS_BLKS;
	x->i.buf = io_alloc(XFS_READ_UNITS * COW_BLK_BYTES);
	err = x->i.buf ? sector_size_load(&x->i) : -ENOMEM;
	if (!err)
		err = super_load(x);
	if (!err)
		err = xfs_log_replay(&x->replay, &x->i);
	if (!err)
		err = super_load(x);
	if (err) {
		xfs_space_close(x);
		return err;
	}
	*ret = x;
	*ret_units = x->i.blocks * x->i.block_bytes >> COW_BLK_SHIFT;
	return 0;
}

void xfs_space_close(struct xfs_space *x)
{
	if (!x)
		return;
	for (size_t k = 0; k < MAX_LEVELS; k++)
		free(x->path[k].p);
	xfs_replay_free(x->replay);
	free(x->i.buf);
	free(x);
}
