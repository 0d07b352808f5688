/* SPDX-License-Identifier: MIT */
/*
 * Small xfs images of mkfs.xfs: free-space trees and a log that an input makes, then its edits. The
 * map of all blocks reads them. Input: image u8, flags u8, with FLAG_DEEP a tree, with FLAG_LOG
 * records, then edits as in btrfs.c, with numbers from the highest byte to the lowest. Checksums
 * detect simple damage; FLAG_SEAL makes them right again.
 *
 * A tree: group u8, leaves u8, and for each leaf its number of records u8, and for each record gap
 * and length u8. Records: their number u8, the tail u8, and for each the number of its operations
 * u8, and these. An operation: kind u8, transaction u8, and what the kind takes.
 */
#include "base/bytes.h"
#include "base/crc32c.h"
#include "disk.h"

enum { FLAG_SEAL = 1, FLAG_RUNS = 2, FLAG_DEEP = 4, FLAG_LOG = 8 };
enum { IMAGES = 2, MAX_NODES = 32, MAX_LEAVES = 8, MAX_EDITS = 64, BB = 512 };
enum { SB_CRC = 224, AGF_CRC = 216, BTREE_CRC = 52, BTREE_HEAD = 56 };
enum { RECORD_HEAD = 328, MAX_RECORD = 32 * 1024 };

struct node {
	size_t at, bytes, crc;
};

static struct image {
	struct disk d;
	size_t block_bytes, group_bytes, log_at, log_bytes;
	unsigned groups, n_nodes;
	struct node node[MAX_NODES]; /* superblock, AGF and the tree's root of each group */
} images[IMAGES];

static void image_load(struct image *im, unsigned nr)
{
	const uint8_t *sb;
	char name[16];
	uint64_t log;

	snprintf(name, sizeof(name), "xfs-%u", nr);
	disk_load(&im->d, name);
	sb = im->d.was;
	im->block_bytes = be_at(sb, 4, 4);
	im->group_bytes = be_at(sb, 84, 4) * im->block_bytes;
	im->groups = (unsigned)be_at(sb, 88, 4);
	log = be_at(sb, 48, 8);
	im->log_at = (log >> sb[124]) * im->group_bytes +
		     (log & ((UINT64_C(1) << sb[124]) - 1)) * im->block_bytes;
	im->log_bytes = be_at(sb, 96, 4) * im->block_bytes;
	for (unsigned g = 0; g < im->groups; g++) {
		size_t at = g * im->group_bytes;

		im->node[im->n_nodes++] = (struct node){ at, BB, SB_CRC };
		im->node[im->n_nodes++] = (struct node){ at + BB, BB, AGF_CRC };
		im->node[im->n_nodes++] =
			(struct node){ at + be_at(sb, at + BB + 16, 4) * im->block_bytes,
				       im->block_bytes, BTREE_CRC };
	}
}

static void seal(const struct image *im, const struct node *n)
{
	uint8_t *p = im->d.now + n->at;

	memset(p + n->crc, 0, 4);
	le_set(p + n->crc, 0, 4, crc32c(0, p, n->bytes));
}

/* ---- a tree of two levels ---- */

/* The leaves lie at the start of the free space. Returns their number. */
static unsigned make_tree(const struct image *im, struct fuzz_input *in, struct node leaf[])
{
	unsigned g = (unsigned)fuzz_uint(in, 1) % im->groups,
		 leaves = 1 + (unsigned)fuzz_uint(in, 1) % MAX_LEAVES;
	const struct node *root_node = &im->node[g * 3 + 2];
	uint8_t *root = im->d.now + root_node->at;
	size_t most = (im->block_bytes - BTREE_HEAD) / 8,
	       ptrs = BTREE_HEAD + (im->block_bytes - BTREE_HEAD) / 12 * 8;
	uint64_t first = be_at(root, BTREE_HEAD, 4), at = first + MAX_LEAVES;

	for (unsigned i = 0; i < leaves; i++) {
		uint8_t *p;
		size_t recs = 1 + fuzz_uint(in, 1) % most;

		leaf[i] = (struct node){ g * im->group_bytes + (first + i) * im->block_bytes,
					 im->block_bytes, BTREE_CRC };
		p = im->d.now + leaf[i].at;
		memcpy(p, root, BTREE_HEAD);
		be_set(p, 4, 4, recs); /* level 0 and the number */
		be_set(p, 8, 4, i ? first + i - 1 : UINT32_MAX);
		be_set(p, 12, 4, i + 1 < leaves ? first + i + 1 : UINT32_MAX);
		be_set(p, 16, 8, leaf[i].at / BB);
		for (size_t k = 0; k < recs; k++) {
			uint64_t len;

			at += 1 + fuzz_uint(in, 1);
			len = 1 + fuzz_uint(in, 1);
			be_set(p, BTREE_HEAD + k * 8, 4, at);
			be_set(p, BTREE_HEAD + k * 8 + 4, 4, len);
			at += len;
		}
		seal(im, &leaf[i]);
	}
	be_set(root, 4, 4, 1 << 16 | leaves);
	for (unsigned i = 0; i < leaves; i++) {
		memcpy(root + BTREE_HEAD + (size_t)i * 8, im->d.now + leaf[i].at + BTREE_HEAD, 8);
		be_set(root, ptrs + (size_t)i * 4, 4, first + i);
	}
	seal(im, root_node);
	be_set(im->d.now + im->node[g * 3 + 1].at + 28, 0, 4, 2);
	seal(im, &im->node[g * 3 + 1]);
	return leaves;
}

/* ---- a log ---- */

enum { OP_START, OP_HEADER, OP_BUFFER, OP_BYTES, OP_COMMIT, OP_UNMOUNT, OP_ANY, KINDS };

/* Returns its length; it has room for 300 bytes. */
static size_t make_op(const struct image *im, struct fuzz_input *in, uint8_t *op)
{
	unsigned kind = (unsigned)fuzz_uint(in, 1) % KINDS;
	uint8_t *p = op + 12;
	size_t len = 0;

	memset(op, 0, 12 + 24);
	be_set(op, 0, 4, fuzz_uint(in, 1) % 4);
	op[8] = 0x69;
	switch (kind) {
	case OP_START:
		op[9] = 1;
		break;
	case OP_HEADER:
		le_set(p, 0, 4, 0x5452414e);
		le_set(p, 12, 4, fuzz_uint(in, 1));
		len = 16;
		break;
	case OP_BUFFER:
		le_set(p, 0, 2, 0x123c);
		le_set(p, 2, 2, 1 + fuzz_uint(in, 1) % 4);
		le_set(p, 4, 2, fuzz_uint(in, 2));
		le_set(p, 6, 2, 1);
		le_set(p, 8, 8, im->node[fuzz_uint(in, 1) % im->n_nodes].at / BB);
		/* its first chunk changed, if there is a second region */
		le_set(p, 16, 4, 1);
		le_set(p, 20, 4, p[2] > 1);
		len = 24;
		break;
	case OP_COMMIT:
		op[9] = 2;
		break;
	case OP_UNMOUNT:
		op[8] = 0xaa;
		op[9] = 0x20;
		le_set(p, 0, 2, 0x556e);
		len = 8;
		break;
	case OP_ANY:
		op[8] = (uint8_t)fuzz_uint(in, 1);
		op[9] = (uint8_t)fuzz_uint(in, 1);
		__attribute__((fallthrough));
	case OP_BYTES:
		len = fuzz_uint(in, 1);
		for (size_t i = 0; i < len; i++)
			p[i] = (uint8_t)fuzz_uint(in, 1);
		break;
	}
	be_set(op, 4, 4, len);
	return 12 + len;
}

/* Records behind that of mkfs.xfs, in the first round of the log. Returns where they end. */
static size_t make_log(const struct image *im, struct fuzz_input *in)
{
	unsigned n = (unsigned)fuzz_uint(in, 1) % 4, tail = (unsigned)fuzz_uint(in, 1);
	size_t at = 2;

	for (unsigned i = 0; i < n; i++) {
		unsigned ops = (unsigned)fuzz_uint(in, 1) % 32;
		uint8_t *h = im->d.now + im->log_at + at * BB, *data = h + BB;
		size_t len = 0, bbs;
		uint32_t crc;

		memset(h, 0, BB);
		for (unsigned k = 0; k < ops; k++)
			len += make_op(im, in, data + len);
		be_set(h, 0, 4, 0xfeedbabe);
		be_set(h, 4, 4, 1);
		be_set(h, 8, 4, 2);
		be_set(h, 12, 4, len);
		be_set(h, 16, 8, UINT64_C(1) << 32 | at);
		be_set(h, 24, 8, UINT64_C(1) << 32 | (tail & 1 ? 2 : at + tail / 2));
		be_set(h, 40, 4, ops);
		be_set(h, 300, 4, 1);
		memcpy(h + 304, im->d.now + 32, 16);
		be_set(h, 320, 4, MAX_RECORD);
		bbs = (len + BB - 1) / BB;
		for (size_t k = 0; k < bbs; k++) {
			memcpy(h + 44 + k * 4, data + k * BB, 4);
			be_set(data, k * BB, 4, 1);
		}
		crc = crc32c(crc32c(0, h, RECORD_HEAD), data, len);
		le_set(h, 32, 4, crc);
		at += 1 + bbs;
	}
	return at * BB;
}

/* ---- edits ---- */

static const struct node *edit_one(const struct image *im, const struct node leaf[],
				   unsigned leaves, struct fuzz_input *in)
{
	unsigned what = (unsigned)fuzz_uint(in, 1), place = (unsigned)fuzz_uint(in, 2);
	const struct node *n = place % 2 && leaves ? &leaf[place / 2 % leaves]
						   : &im->node[place / 2 % im->n_nodes];
	size_t off = (size_t)fuzz_uint(in, 2), width = (size_t)1 << (what >> 2 & 3);
	uint64_t v = fuzz_uint(in, 4);
	uint8_t *p;

	off = min_u64(off % (what & 64 ? 128 : n->bytes), n->bytes - width);
	p = im->d.now + n->at + off;
	if (what & 16)
		v += be_at(p, 0, width);
	be_set(p, 0, width, v);
	return n;
}

static bool is_kept(const struct disk *d, uint64_t blk)
{
	const struct image *im = (const struct image *)d;
	uint64_t at = blk_to_bytes(blk);

	return (at + COW_BLK_BYTES > im->log_at && at < im->log_at + im->log_bytes) ||
	       at % im->group_bytes < 4 * (uint64_t)BB;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };
	const struct image *im = &images[fuzz_uint(&in, 1) % IMAGES];
	unsigned flags = (unsigned)fuzz_uint(&in, 1), n = 0, leaves = 0;
	struct blk_reader r = { disk_read, (void *)&im->d, 0 };
	struct node leaf[MAX_LEAVES];
	bool as_made = len <= 2, supers = false;
	struct fsinfo info;
	size_t log_end = 0;

	for (unsigned i = 0; i < IMAGES && !images[i].d.was; i++)
		image_load(&images[i], i);
	r.volume_blks = im->d.bytes / COW_BLK_BYTES;
	if (flags & FLAG_DEEP)
		leaves = make_tree(im, &in, leaf);
	if (flags & FLAG_LOG)
		log_end = make_log(im, &in);
	while (in.left && n++ < MAX_EDITS) {
		const struct node *e = edit_one(im, leaf, leaves, &in);

		supers |= e->crc == SB_CRC;
		if (flags & FLAG_SEAL)
			seal(im, e);
	}
	FUZZ_PROMISE(fsinfo_probe(&r, &info) == 0);
	FUZZ_PROMISE(n || info.kind == FS_XFS);
	if (info.kind == FS_XFS)
		FUZZ_PROMISE(disk_map(&im->d, flags & FLAG_RUNS, 1, supers ? NULL : is_kept) ||
			     !as_made);
	for (unsigned i = 0; i < im->n_nodes; i++)
		disk_restore(&im->d, im->node[i].at, im->node[i].bytes);
	for (unsigned i = 0; i < leaves; i++)
		disk_restore(&im->d, leaf[i].at, leaf[i].bytes);
	disk_restore(&im->d, im->log_at, log_end);
	return 0;
}
