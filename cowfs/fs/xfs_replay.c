// SPDX-License-Identifier: MIT
/*
 * The blocks of free space as the replay of an XFS log would leave them, before the mount carries
 * out intents and frees unlinked inodes.
 *
 * A transaction of the log is a list of items. A buffer item has the address of a buffer, and the
 * parts of it that changed, in chunks of 128 bytes. A region of an item may continue in later
 * records. Invariants, after xlog_recover_buf_commit_pass2 and xlog_recover_process_ophdr in Linux:
 * R1 only transactions whose end is in the log count, in the order of their ends. A transaction
 *    whose start is before the tail does not count;
 * R2 buffers of superblocks, AGFs and tree blocks are kept. Free-space trees are in no other kind
 *    of buffer. A buffer that a later transaction cancels does not count: its block was freed;
 * R3 a buffer item is not replayed where the block has the transaction's LSN or a higher one: it
 *    was written home later. The LSN of a transaction is that of the record where it starts. Its
 *    place depends on the block's magic number. A block of another kind, or with another UUID, is
 *    from before, and has no LSN;
 * R4 a replayed block gets the LSN of its transaction when it is written. Linux writes blocks when
 *    the next transaction to replay has another LSN;
 * R5 intents, inodes, quotas and new inode chunks (ICREATE) do not change free-space trees. An
 *    extent whose free is still an intent is used.
 */
#include "fs/xfs_replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define MAX_OPEN 64u /* transactions at a time; Linux has a few */
#define MAX_MEMORY_BYTES (64 * MIB)
#define MIN_ROOM 4096u

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
enum { BLF_FLAGS = 4, BLF_LEN = 6, BLF_BLKNO = 8, BLF_MAP_SIZE = 16, BLF_MAP = 20 };
#define XFS_BLF_CHUNK 128u
#define XFS_BLF_CANCEL 0x2u
#define BLF_OTHERS 0x1du /* XFS_BLF_INODE_BUF and those of quotas: are replayed differently */
#define XFS_BLF_MAP_WORDS 17u
#define XFS_BLFT_SHIFT 11
enum { XFS_BLFT_BTREE_BUF = 4, XFS_BLFT_AGF_BUF = 5, XFS_BLFT_SB_BUF = 18 };

/* A buffer that a transaction changed, or cancelled. */
struct logged {
	uint64_t daddr, lsn;
	const uint8_t *item; /* its regions, each with its length in front */
	uint32_t at;	     /* until the transaction ends: where they are in its memory */
	uint32_t order, run; /* run: transactions of one LSN, one after another */
	uint16_t bbs, regions;
	uint8_t kind;
	bool cancel;
};

/* Memory of one transaction. */
struct kept {
	struct kept *next;
	uint8_t p[];
};

/* A transaction that has begun and not ended. */
struct trans {
	uint32_t tid;
	uint64_t lsn;
	uint8_t header[TH_BYTES];
	uint32_t header_bytes;
	uint64_t all_regions; /* still to come; Linux counts these in th_num_items */
	/* the item: its regions still to come, and all of them; 0: there is none */
	uint32_t regions, item_regions;
	bool is_buffer;	       /* its regions are kept */
	uint32_t item, region; /* where they begin: the item, its last region */
	struct kept *kept;
	uint32_t bytes, room; /* of kept */
	struct logged *logged;
	uint32_t n, n_room;
};

struct xfs_replay {
	const struct xfs_image *x;
	struct trans open[MAX_OPEN];
	uint32_t opened;
	struct kept *kept; /* of the ended transactions */
	struct logged *logged;
	uint32_t n, n_room, run;
	uint64_t run_lsn;
	size_t memory_bytes;
};

/* ---- memory ---- */

static int memory_take(struct xfs_replay *y, size_t bytes)
{
	if (bytes > MAX_MEMORY_BYTES - y->memory_bytes)
		return -EOPNOTSUPP;
	y->memory_bytes += bytes;
	return 0;
}

/* Makes room for n more. */
static int logged_grow(struct xfs_replay *y, struct logged **logged, uint32_t *room, uint32_t used,
		       uint32_t n)
{
	uint32_t more = used + n > *room ? (uint32_t)max_u64(*room, max_u64(n, 16)) : 0;
	struct logged *p;
	int err = memory_take(y, more * sizeof(**logged));

	if (err || !more)
		return err;
	p = realloc(*logged, (*room + more) * sizeof(*p));
	if (!p)
		return -ENOMEM;
	*logged = p;
	*room += more;
	return 0;
}

static int bytes_keep(struct xfs_replay *y, struct trans *t, const void *p, uint32_t n)
{
	if (n > t->room - t->bytes) {
		uint32_t more = (uint32_t)max_u64(t->room, max_u64(n, MIN_ROOM));
		struct kept *k;
		int err = memory_take(y, more);

		if (err)
			return err;
		k = realloc(t->kept, sizeof(*k) + t->room + more);
		if (!k)
			return -ENOMEM;
		t->kept = k;
		t->room += more;
	}
	memcpy(t->kept->p + t->bytes, p, n);
	t->bytes += n;
	return 0;
}

static void trans_free(struct trans *t)
{
	free(t->kept);
	free(t->logged);
}

/* ---- items ---- */

/* The next region at p; *ret_bytes is its length. */
static const uint8_t *region_get(const uint8_t **p, uint32_t *ret_bytes)
{
	const uint8_t *region = *p + sizeof(*ret_bytes);

	memcpy(ret_bytes, *p, sizeof(*ret_bytes));
	*p = region + *ret_bytes;
	return region;
}

static bool bit_get(const uint8_t *map, uint32_t k)
{
	return map[k / 8] & 1u << k % 8;
}

/* Copies the logged chunks to buf, unless it is NULL. False: they are not as they should be. */
static bool chunks_copy(const struct logged *b, const uint8_t *item, uint8_t *buf)
{
	uint32_t bytes, n, regions = b->regions - 1;
	const uint8_t *format = region_get(&item, &bytes), *map = format + BLF_MAP;
	uint32_t bits = (uint32_t)le_at(format, BLF_MAP_SIZE, 4) * 32;

	for (uint32_t bit = 0; bit < bits; bit += n) {
		const uint8_t *from;

		for (n = 0; bit + n < bits && bit_get(map, bit + n);)
			n++;
		if (!n) {
			n = 1;
			continue;
		}
		if (!regions--)
			return false;
		from = region_get(&item, &bytes);
		/* a run of chunks is more than one region where the buffer's pages are apart */
		n = (uint32_t)min_u64(n, bytes / XFS_BLF_CHUNK);
		if (!n || (bit + n) * XFS_BLF_CHUNK > b->bbs * XFS_BB_BYTES)
			return false;
		if (buf)
			memcpy(buf + bit * XFS_BLF_CHUNK, from, n * XFS_BLF_CHUNK);
	}
	return !regions;
}

static bool is_kept_kind(const struct logged *b)
{
	return b->kind == XFS_BLFT_BTREE_BUF || b->kind == XFS_BLFT_AGF_BUF ||
	       b->kind == XFS_BLFT_SB_BUF;
}

/* All regions of the item are there. */
static int item_end(struct xfs_replay *y, struct trans *t)
{
	struct logged b = { .lsn = t->lsn, .at = t->item, .regions = (uint16_t)t->item_regions };
	const uint8_t *p, *f;
	uint32_t bytes, flags;
	uint64_t words;
	int err;

	if (!t->item_regions || !t->is_buffer)
		return 0;
	p = t->kept->p + t->item;
	f = region_get(&p, &bytes);
	words = bytes < BLF_MAP ? UINT64_MAX : le_at(f, BLF_MAP_SIZE, 4);
	if (words > XFS_BLF_MAP_WORDS || words * 4 > bytes - BLF_MAP)
		return -EOPNOTSUPP;
	flags = (uint32_t)le_at(f, BLF_FLAGS, 2);
	b.daddr = le_at(f, BLF_BLKNO, 8);
	b.bbs = (uint16_t)le_at(f, BLF_LEN, 2);
	b.kind = (uint8_t)(flags >> XFS_BLFT_SHIFT);
	b.cancel = flags & XFS_BLF_CANCEL;
	if (b.cancel || !is_kept_kind(&b))
		t->bytes = t->item;
	else if (flags & BLF_OTHERS || !chunks_copy(&b, t->kept->p + t->item, NULL))
		return -EOPNOTSUPP;
	if (!b.cancel && !is_kept_kind(&b))
		return 0;
	err = logged_grow(y, &t->logged, &t->n_room, t->n, 1);
	if (!err)
		t->logged[t->n++] = b;
	return err;
}

/* ---- regions ---- */

static int header_add(struct trans *t, const uint8_t *p, uint32_t len)
{
	if (len > TH_BYTES - t->header_bytes)
		return -EOPNOTSUPP;
	memcpy(t->header + t->header_bytes, p, len);
	t->header_bytes += len;
	if (t->header_bytes < TH_BYTES)
		return 0;
	t->all_regions = le_at(t->header, TH_NUM_ITEMS, 4);
	return le_at(t->header, TH_MAGIC, 4) == XFS_TRANS_HEADER_MAGIC ? 0 : -EOPNOTSUPP;
}

static int item_begin(struct xfs_replay *y, struct trans *t, const uint8_t *p, uint32_t len)
{
	uint64_t type, size;
	int err = item_end(y, t);

	if (err || len < LI_BYTES)
		return err ? err : -EOPNOTSUPP;
	type = le_at(p, LI_TYPE, 2);
	size = le_at(p, LI_SIZE, 2);
	if (!size || type < XFS_LI_EFI || type > XFS_LI_XMD)
		return -EOPNOTSUPP;
	t->regions = t->item_regions = (uint32_t)size;
	t->is_buffer = type == XFS_LI_BUF;
	t->item = t->bytes;
	return 0;
}

static int region_begin(struct xfs_replay *y, struct trans *t, const uint8_t *p, uint32_t len)
{
	int err = 0;

	if (!len) /* a record had no room for more of the region than its header */
		return 0;
	if (t->header_bytes < TH_BYTES)
		return t->header_bytes ? -EOPNOTSUPP : header_add(t, p, len);
	if (!t->all_regions--)
		return -EOPNOTSUPP;
	if (!t->regions)
		err = item_begin(y, t, p, len);
	if (err)
		return err;
	t->regions--;
	if (!t->is_buffer)
		return 0;
	t->region = t->bytes;
	err = bytes_keep(y, t, &len, sizeof(len));
	return err ? err : bytes_keep(y, t, p, len);
}

/* The last region continues. */
static int region_continue(struct xfs_replay *y, struct trans *t, const uint8_t *p, uint32_t len)
{
	uint32_t bytes;
	int err;

	if (t->header_bytes < TH_BYTES) {
		err = header_add(t, p, len);
		return err || t->header_bytes == TH_BYTES ? err : -EOPNOTSUPP;
	}
	if (!t->item_regions)
		return -EOPNOTSUPP;
	if (!t->is_buffer)
		return 0;
	err = bytes_keep(y, t, p, len);
	if (err)
		return err;
	bytes = t->bytes - t->region - (uint32_t)sizeof(bytes);
	memcpy(t->kept->p + t->region, &bytes, sizeof(bytes));
	return 0;
}

/* ---- transactions ---- */

static struct trans *trans_find(struct xfs_replay *y, uint32_t tid)
{
	for (uint32_t k = 0; k < y->opened; k++)
		if (y->open[k].tid == tid)
			return &y->open[k];
	return NULL;
}

static int trans_start(struct xfs_replay *y, uint32_t tid, uint64_t lsn)
{
	if (y->opened == MAX_OPEN)
		return -EOPNOTSUPP;
	y->open[y->opened++] = (struct trans){ .tid = tid, .lsn = lsn };
	return 0;
}

/* Gives back what the memory of the transaction does not need. */
static void kept_shrink(struct xfs_replay *y, struct trans *t)
{
	struct kept *k = t->bytes ? realloc(t->kept, sizeof(*k) + t->bytes) : NULL;

	if (k) {
		t->kept = k;
		y->memory_bytes -= t->room - t->bytes;
		t->room = t->bytes;
	} else if (!t->bytes) {
		free(t->kept);
		t->kept = NULL;
		y->memory_bytes -= t->room;
		t->room = 0;
	}
}

static int trans_commit(struct xfs_replay *y, struct trans *t)
{
	int err = t->header_bytes < TH_BYTES || t->all_regions || t->regions ? -EOPNOTSUPP
									     : item_end(y, t);

	if (!err)
		err = logged_grow(y, &y->logged, &y->n_room, y->n, t->n);
	if (err)
		return err;
	if (y->run_lsn != t->lsn)
		y->run++;
	y->run_lsn = t->lsn;
	kept_shrink(y, t);
	for (uint32_t k = 0; k < t->n; k++) {
		struct logged *b = &y->logged[y->n];

		*b = t->logged[k];
		b->order = y->n++;
		b->run = y->run;
		b->item = b->cancel ? NULL : t->kept->p + b->at;
	}
	if (t->kept) {
		t->kept->next = y->kept;
		y->kept = t->kept;
	}
	y->memory_bytes -= t->n_room * sizeof(*t->logged);
	free(t->logged);
	*t = y->open[--y->opened];
	return 0;
}

int xfs_replay_op(struct xfs_replay *y, uint64_t lsn, const uint8_t *op, uint32_t len_bytes)
{
	uint32_t tid = (uint32_t)be_at(op, OH_TID, 4), flags = op[OH_FLAGS];
	struct trans *t = trans_find(y, tid);
	const uint8_t *p = op + OH_BYTES;

	if (op[OH_CLIENTID] != XFS_TRANSACTION)
		return -EOPNOTSUPP;
	if (flags == XLOG_START_TRANS)
		return t || len_bytes ? -EOPNOTSUPP : trans_start(y, tid, lsn);
	/* the transaction began before the tail: a replay skips it */
	if (!t)
		return flags & (XLOG_START_TRANS | XLOG_UNMOUNT_TRANS) ? -EOPNOTSUPP : 0;
	if (flags == XLOG_COMMIT_TRANS)
		return len_bytes ? -EOPNOTSUPP : trans_commit(y, t);
	if (flags & ~(XLOG_WAS_CONT_TRANS | XLOG_CONTINUE_TRANS | XLOG_END_TRANS))
		return -EOPNOTSUPP;
	return flags & XLOG_WAS_CONT_TRANS ? region_continue(y, t, p, len_bytes)
					   : region_begin(y, t, p, len_bytes);
}

/* ---- the result ---- */

static int by_place(const void *a, const void *b)
{
	const struct logged *x = a, *y = b;

	if (x->daddr != y->daddr)
		return x->daddr < y->daddr ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

void xfs_replay_ready(struct xfs_replay *y)
{
	if (y->n)
		qsort(y->logged, y->n, sizeof(*y->logged), by_place);
}

/*
 * The offset of the LSN, according to the magic number; *ret_uuid is the one of the UUID, and
 * *ret_kind the kind of buffer, if it is a kept one. 0: it has no LSN.
 */
static size_t lsn_place(const uint8_t *p, size_t *ret_uuid, unsigned *ret_kind)
{
	static const struct {
		char magic[5];
		uint8_t kind;
		uint16_t lsn, uuid;
	} kinds[] = {
		{ "AB3B", XFS_BLFT_BTREE_BUF, 24, 32 },
		{ "AB3C", XFS_BLFT_BTREE_BUF, 24, 32 },
		{ "IAB3", XFS_BLFT_BTREE_BUF, 24, 32 },
		{ "FIB3", XFS_BLFT_BTREE_BUF, 24, 32 },
		{ "RMB3", XFS_BLFT_BTREE_BUF, 24, 32 },
		{ "R3FC", XFS_BLFT_BTREE_BUF, 24, 32 },
		{ "BMA3", XFS_BLFT_BTREE_BUF, 32, 40 },
		{ "ABTB", 0, 24, 32 },
		{ "ABTC", 0, 24, 32 },
		{ "IABT", 0, 24, 32 },
		{ "FIBT", 0, 24, 32 },
		{ "BMAP", 0, 32, 40 },
		{ "XAGF", XFS_BLFT_AGF_BUF, 208, 64 },
		{ "XAGI", 0, 320, 296 },
		{ "XAFL", 0, 24, 8 },
		{ "XSLM", 0, 48, 16 },
		{ "XDB3", 0, 16, 24 },
		{ "XDD3", 0, 16, 24 },
		{ "XDF3", 0, 16, 24 },
		{ "XFSB", XFS_BLFT_SB_BUF, 240, 32 },
	};
	/* directories and attributes: xfs_da3_blkinfo */
	static const uint16_t da_magics[] = { 0x3df1, 0x3dff, 0x3bee, 0x3ebe };

	*ret_kind = 0;
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
		if (!memcmp(p, kinds[k].magic, 4)) {
			*ret_uuid = kinds[k].uuid;
			*ret_kind = kinds[k].kind;
			return kinds[k].lsn;
		}
	*ret_uuid = 32;
	for (size_t k = 0; k < ARRAY_SIZE(da_magics); k++)
		if (be_at(p, 8, 2) == da_magics[k])
			return 24;
	return 0;
}

/* R3: is this block newer than the transaction with this LSN? */
static bool is_newer(const struct xfs_image *x, const uint8_t *p, uint64_t trans_lsn)
{
	unsigned kind;
	size_t uuid, at = lsn_place(p, &uuid, &kind);
	uint64_t lsn = at ? be_at(p, at, 8) : 0;
	const uint8_t *expected = kind == XFS_BLFT_SB_BUF ? x->uuid : x->meta_uuid;

	return lsn && lsn != UINT64_MAX && !memcmp(p + uuid, expected, XFS_UUID_BYTES) &&
	       lsn >= trans_lsn;
}

/* R4 */
static void lsn_set(uint8_t *p, const struct logged *b)
{
	unsigned kind;
	size_t uuid, at = lsn_place(p, &uuid, &kind);

	if (kind == b->kind)
		be_set(p, at, 8, b->lsn);
}

/* The first buffer at this address; n: there is none. */
static uint32_t first_at(const struct xfs_replay *y, uint64_t daddr)
{
	return (uint32_t)ARRAY_FIRST(i, y->n, y->logged[i].daddr >= daddr);
}

bool xfs_replay_apply(const struct xfs_replay *y, uint64_t daddr, uint32_t bbs, uint8_t *buf)
{
	uint32_t first = first_at(y, daddr), end;
	const struct logged *last = NULL;

	for (end = first; end < y->n && y->logged[end].daddr == daddr; end++)
		if (y->logged[end].cancel && y->logged[end].bbs == bbs)
			first = end + 1;
	for (; first < end; first++) {
		const struct logged *b = &y->logged[first];

		if (b->cancel || b->bbs != bbs)
			continue;
		if (last && last->run != b->run)
			lsn_set(buf, last);
		if (is_newer(y->x, buf, b->lsn) || !chunks_copy(b, b->item, buf))
			continue;
		last = b;
	}
	return last;
}

struct xfs_replay *xfs_replay_new(const struct xfs_image *x)
{
	struct xfs_replay *y = calloc(1, sizeof(*y));

	if (y)
		y->x = x;
	return y;
}

void xfs_replay_free(struct xfs_replay *y)
{
	if (!y)
		return;
	for (uint32_t k = 0; k < y->opened; k++)
		trans_free(&y->open[k]);
	while (y->kept) {
		struct kept *next = y->kept->next;

		free(y->kept);
		y->kept = next;
	}
	free(y->logged);
	free(y);
}
