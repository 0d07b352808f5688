// SPDX-License-Identifier: MIT
/*
 * The trees of a btrfs, as far as its free space needs them. The superblock leads to the chunk tree
 * (which maps logical addresses to the device) and to the root tree. The root tree leads to the
 * extent tree (which logical addresses are in use). What fsync has written since is in the log trees.
 *
 * "Free" is the claim that loses data when it is wrong. Invariants:
 * B1 a tree block is trusted only if its checksum, file system, place, level, owner and generation
 *    are what the pointer to it says, its first key is the pointer's, and its keys ascend;
 * B2 the chunks lie inside the device and do not overlap, and together they are as large as the
 *    superblock says that chunks are: none is missing;
 * B3 extents lie inside their chunk and do not overlap. An unknown item in the extent tree means
 *    doubt.
 * B4 each block of a log tree, and each extent that a file has in one, is in use, whatever the extent tree says.
 *    Log trees are of the transaction after that of the superblock, as a whole.
 *
 * Only the chunk tree and the log trees are walked as a whole. The last block of each level is kept, and callers ask
 * for keys in ascending order. Levels descend, so a circle of pointers ends. The blocks that are
 * read for a question are counted.
 */
#include "fs/btrfs_space.h"

#include <errno.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/io.h"

#define LEVELS 8
#define MAX_PIECES (1u << 16)
#define READS_OPEN_BLKS 16384u
/* the extents of 32768 blocks, if each one is alone, fill a third of that in half-full leaves */
#define READS_USED_BLKS 4000u

#define SUPER_BLK 16
#define SUPER_STRIPE_BLKS (64 * KIB / COW_BLK_BYTES)
#define RESERVED_BLKS (MIB / COW_BLK_BYTES) /* the kernel's BTRFS_DEVICE_RANGE_RESERVED */

/* of the superblock; no kernel header for programs has these */
enum {
	SUPER_FSID = 32,
	SUPER_BYTENR = 48,
	SUPER_FLAGS = 56,
	SUPER_MAGIC = 64,
	SUPER_GENERATION = 72,
	SUPER_ROOT = 80,
	SUPER_CHUNK_ROOT = 88,
	SUPER_LOG_ROOT = 96,
	SUPER_NUM_DEVICES = 136,
	SUPER_SECTORSIZE = 144,
	SUPER_NODESIZE = 148,
	SUPER_ARRAY_BYTES = 160,
	SUPER_CHUNK_GENERATION = 164,
	SUPER_COMPAT_RO = 180,
	SUPER_INCOMPAT = 188,
	SUPER_CSUM_TYPE = 196,
	SUPER_ROOT_LEVEL = 198,
	SUPER_CHUNK_LEVEL = 199,
	SUPER_LOG_LEVEL = 200,
	SUPER_DEV_ITEM = 201,
	SUPER_METADATA_UUID = 571,
	SUPER_ARRAY = 811,
	SUPER_ARRAY_MAX = 2048,
};

/* of a tree block */
enum {
	NODE_FSID = 32,
	NODE_BYTENR = 48,
	NODE_GENERATION = 80,
	NODE_OWNER = 88,
	NODE_N = 96,
	NODE_LEVEL = 100,
	NODE_HEADER = 101
};
enum { KEY_BYTES = 17, ITEM_BYTES = 25, POINTER_BYTES = 33 };
enum { CSUM_BYTES = 32 };

#define KNOWN_SUPER_FLAGS BTRFS_HEADER_FLAG_WRITTEN
#define INCOMPAT_SIMPLE_QUOTA (UINT64_C(1) << 16)
#define KNOWN_INCOMPAT                                                                             \
	(BTRFS_FEATURE_INCOMPAT_MIXED_BACKREF | BTRFS_FEATURE_INCOMPAT_DEFAULT_SUBVOL |            \
	 BTRFS_FEATURE_INCOMPAT_MIXED_GROUPS | BTRFS_FEATURE_INCOMPAT_COMPRESS_LZO |               \
	 BTRFS_FEATURE_INCOMPAT_COMPRESS_ZSTD | BTRFS_FEATURE_INCOMPAT_BIG_METADATA |              \
	 BTRFS_FEATURE_INCOMPAT_EXTENDED_IREF | BTRFS_FEATURE_INCOMPAT_SKINNY_METADATA |           \
	 BTRFS_FEATURE_INCOMPAT_NO_HOLES | BTRFS_FEATURE_INCOMPAT_METADATA_UUID |                  \
	 INCOMPAT_SIMPLE_QUOTA)
#define COMPAT_RO_BLOCK_GROUP_TREE (UINT64_C(1) << 3)
#define KNOWN_COMPAT_RO                                                                            \
	(BTRFS_FEATURE_COMPAT_RO_FREE_SPACE_TREE | BTRFS_FEATURE_COMPAT_RO_FREE_SPACE_TREE_VALID | \
	 BTRFS_FEATURE_COMPAT_RO_VERITY | COMPAT_RO_BLOCK_GROUP_TREE)

struct key {
	uint64_t objectid;
	uint8_t type;
	uint64_t offset;
};

/* What the block at a place must contain. */
struct pointer {
	uint64_t bytenr, generation, owner;
	unsigned level;
	struct key first;
	bool has_first; /* false for a root, whose first key is not known */
};

/* One copy of a chunk. */
struct piece {
	uint64_t place, logical, bytes;
};

struct pieces {
	struct piece *p;
	size_t n, cap;
};

struct node {
	uint64_t bytenr; /* 0: no block is kept */
	uint8_t *p;
};

struct btrfs_space {
	struct blk_reader r;
	uint64_t reads_blks; /* left */
	uint32_t node_bytes;
	uint8_t fsid[16], dev_uuid[16];
	uint64_t devid, device_bytes, generation;
	struct pieces pieces; /* by place */
	struct pieces log;    /* what the log trees have, as they are walked */
	struct pointer *log_trees;
	size_t n_log_trees, cap_log_trees;
	struct pointer extents;
	struct node node[LEVELS];
};

/* Where a search ended: at the first item that is not below the key, if slot < n. */
struct leaf {
	const uint8_t *p;
	uint32_t slot, n;
	struct key next; /* of the next leaf */
	bool has_next;
};

struct item {
	struct key key;
	const uint8_t *p;
	uint32_t bytes;
};

#define GET(p, type, field) le_at(p, offsetof(type, field), sizeof(((type *)0)->field))

static struct key key_at(const uint8_t *p)
{
	return (struct key){ le_at(p, 0, 8), p[8], le_at(p, 9, 8) };
}

static int key_compare(const struct key *a, const struct key *b)
{
	if (a->objectid != b->objectid)
		return a->objectid < b->objectid ? -1 : 1;
	if (a->type != b->type)
		return a->type < b->type ? -1 : 1;
	return a->offset == b->offset ? 0 : a->offset < b->offset ? -1 : 1;
}

static bool checksum_ok(const uint8_t *p, size_t bytes)
{
	return le_at(p, 0, 4) == crc32c(0, p + CSUM_BYTES, bytes - CSUM_BYTES);
}

/* ---- tree blocks ---- */

/* Finds the first copy of these bytes. */
static bool place_of(const struct btrfs_space *x, uint64_t logical, uint64_t bytes, uint64_t *ret)
{
	for (size_t i = 0; i < x->pieces.n; i++) {
		const struct piece *c = &x->pieces.p[i];

		if (logical >= c->logical && logical - c->logical < c->bytes) {
			*ret = c->place + (logical - c->logical);
			return bytes <= c->bytes - (logical - c->logical);
		}
	}
	return false;
}

static unsigned level_of(const uint8_t *p)
{
	return p[NODE_LEVEL];
}

static uint32_t count_of(const uint8_t *p)
{
	return (uint32_t)le_at(p, NODE_N, 4);
}

static const uint8_t *entry_at(const uint8_t *p, uint32_t slot)
{
	return p + NODE_HEADER + (size_t)slot * (level_of(p) ? POINTER_BYTES : ITEM_BYTES);
}

static struct key entry_key(const uint8_t *p, uint32_t slot)
{
	return key_at(entry_at(p, slot));
}

/* Checks what does not depend on the pointer to the block. */
static bool node_ok(const struct btrfs_space *x, const uint8_t *p)
{
	uint32_t n = count_of(p), room = x->node_bytes - NODE_HEADER;
	struct key last, key;

	if (!checksum_ok(p, x->node_bytes) || memcmp(p + NODE_FSID, x->fsid, sizeof(x->fsid)) ||
	    level_of(p) >= LEVELS || n > room / (level_of(p) ? POINTER_BYTES : ITEM_BYTES) ||
	    (level_of(p) && !n))
		return false;
	for (uint32_t i = 0; i < n; i++, last = key) {
		key = entry_key(p, i);
		if (i && key_compare(&last, &key) >= 0)
			return false;
		if (!level_of(p)) {
			uint64_t off = le_at(entry_at(p, i), KEY_BYTES, 4),
				 bytes = le_at(entry_at(p, i), KEY_BYTES + 4, 4);

			if (off < (uint64_t)n * ITEM_BYTES || off > room || bytes > room - off)
				return false;
		}
	}
	return true;
}

static int node_read(struct btrfs_space *x, struct node *node, uint64_t bytenr)
{
	uint64_t place, blks = x->node_bytes / COW_BLK_BYTES;
	int r;

	node->bytenr = 0;
	if (!bytenr || bytenr % COW_BLK_BYTES || !place_of(x, bytenr, x->node_bytes, &place) ||
	    x->reads_blks < blks)
		return -EUCLEAN;
	if (!node->p)
		node->p = io_alloc(x->node_bytes);
	if (!node->p)
		return -ENOMEM;
	x->reads_blks -= blks;
	r = x->r.read(x->r.ctx, place / COW_BLK_BYTES, blks, node->p);
	if (r)
		return r;
	if (le_at(node->p, NODE_BYTENR, 8) != bytenr || !node_ok(x, node->p))
		return -EUCLEAN;
	node->bytenr = bytenr;
	return 0;
}

static int node_get(struct btrfs_space *x, const struct pointer *at, const uint8_t **ret)
{
	struct node *node = &x->node[at->level];
	struct key first;
	int r = at->bytenr && node->bytenr == at->bytenr ? 0 : node_read(x, node, at->bytenr);

	if (r)
		return r;
	if (level_of(node->p) != at->level || le_at(node->p, NODE_OWNER, 8) != at->owner ||
	    le_at(node->p, NODE_GENERATION, 8) != at->generation)
		return -EUCLEAN;
	if (at->has_first) {
		if (!count_of(node->p))
			return -EUCLEAN;
		first = entry_key(node->p, 0);
		if (key_compare(&first, &at->first))
			return -EUCLEAN;
	}
	*ret = node->p;
	return 0;
}

/* The first slot whose key is not below this key. */
static uint32_t lower_bound(const uint8_t *p, const struct key *key)
{
	struct key k;

	return (uint32_t)ARRAY_FIRST(i, count_of(p),
				     (k = entry_key(p, (uint32_t)i), key_compare(&k, key) >= 0));
}

static int step_down(const uint8_t *p, uint32_t slot, struct pointer *at)
{
	const uint8_t *entry = entry_at(p, slot);
	uint64_t generation = le_at(entry, KEY_BYTES + 8, 8);

	if (generation > at->generation)
		return -EUCLEAN;
	at->bytenr = le_at(entry, KEY_BYTES, 8);
	at->generation = generation;
	at->first = key_at(entry);
	at->has_first = true;
	at->level--;
	return 0;
}

/* before: finds the last item below the key instead; slot == n: there is none. */
static int search(struct btrfs_space *x, const struct pointer *root, const struct key *key,
		  bool before, struct leaf *ret)
{
	struct pointer at = *root;
	struct key k;
	uint32_t slot;
	int r;

	*ret = (struct leaf){ 0 };
	for (;;) {
		r = node_get(x, &at, &ret->p);
		if (r)
			return r;
		ret->n = count_of(ret->p);
		slot = lower_bound(ret->p, key);
		if (!at.level)
			break;
		if (!before && slot < ret->n &&
		    (k = entry_key(ret->p, slot), !key_compare(&k, key)))
			slot++;
		slot -= slot > 0;
		if (slot + 1 < ret->n) {
			ret->next = entry_key(ret->p, slot + 1);
			ret->has_next = true;
		}
		r = step_down(ret->p, slot, &at);
		if (r)
			return r;
	}
	ret->slot = !before ? slot : slot ? slot - 1 : ret->n;
	return 0;
}

static void item_get(const struct leaf *l, uint32_t slot, struct item *ret)
{
	const uint8_t *entry = entry_at(l->p, slot);

	ret->key = key_at(entry);
	ret->p = l->p + NODE_HEADER + le_at(entry, KEY_BYTES, 4);
	ret->bytes = (uint32_t)le_at(entry, KEY_BYTES + 4, 4);
}

/* Sets the key where a search continues after this leaf. */
static bool go_on(const struct leaf *l, struct key *key)
{
	if (l->has_next && key_compare(&l->next, key) > 0)
		*key = l->next;
	return l->has_next;
}

/* ---- chunks ---- */

static int add_piece(struct pieces *all, uint64_t place, uint64_t logical, uint64_t bytes)
{
	return all->n < MAX_PIECES ? ARRAY_ADD(all->p, all->n, all->cap,
					       (struct piece){ place, logical, bytes })
				   : -EUCLEAN;
}

/* *ret_bytes: the length of the item. */
static int add_chunk(const struct btrfs_space *x, struct pieces *all, uint64_t logical,
		     const uint8_t *p, size_t max_bytes, size_t *ret_bytes)
{
	const size_t head = offsetof(struct btrfs_chunk, stripe);
	uint64_t bytes, profile, copies;
	int r = 0;

	if (max_bytes < sizeof(struct btrfs_chunk))
		return -EUCLEAN;
	bytes = GET(p, struct btrfs_chunk, length);
	profile = GET(p, struct btrfs_chunk, type) & BTRFS_BLOCK_GROUP_PROFILE_MASK;
	copies = GET(p, struct btrfs_chunk, num_stripes);
	*ret_bytes = head + copies * sizeof(struct btrfs_stripe);
	if ((profile && profile != BTRFS_BLOCK_GROUP_DUP) || copies != (profile ? 2u : 1u))
		return -EOPNOTSUPP;
	if (*ret_bytes > max_bytes || !bytes || bytes % COW_BLK_BYTES || logical % COW_BLK_BYTES ||
	    bytes > UINT64_MAX - logical)
		return -EUCLEAN;
	for (p += head; copies-- && !r; p += sizeof(struct btrfs_stripe)) {
		uint64_t place = GET(p, struct btrfs_stripe, offset);

		if (GET(p, struct btrfs_stripe, devid) != x->devid ||
		    memcmp(p + offsetof(struct btrfs_stripe, dev_uuid), x->dev_uuid,
			   sizeof(x->dev_uuid)))
			return -EOPNOTSUPP;
		if (place % COW_BLK_BYTES || place > x->device_bytes ||
		    bytes > x->device_bytes - place)
			return -EUCLEAN;
		r = add_piece(all, place, logical, bytes);
	}
	return r;
}

/* The chunks of the chunk tree itself. */
static int read_array(struct btrfs_space *x, const uint8_t *super)
{
	size_t left = le_at(super, SUPER_ARRAY_BYTES, 4), used = 0;
	const uint8_t *p = super + SUPER_ARRAY;
	int r = left <= SUPER_ARRAY_MAX ? 0 : -EUCLEAN;

	for (; left && !r; left -= used, p += used) {
		if (left < KEY_BYTES || p[8] != BTRFS_CHUNK_ITEM_KEY)
			return -EUCLEAN;
		r = add_chunk(x, &x->pieces, le_at(p, 9, 8), p + KEY_BYTES, left - KEY_BYTES,
			      &used);
		used += KEY_BYTES;
	}
	return r;
}

static int by_place(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return (x->place > y->place) - (x->place < y->place);
}

/*
 * B2. Keys ascend, so copies of one chunk are neighbours, and the next chunk begins after their
 * end.
 */
static int take_pieces(struct btrfs_space *x, struct pieces *all, uint64_t used_bytes)
{
	const struct piece *p = all->p;

	for (size_t i = 0; i < all->n; i++) {
		if (i && p[i].logical != p[i - 1].logical &&
		    (p[i].logical < p[i - 1].logical ||
		     p[i].logical - p[i - 1].logical < p[i - 1].bytes))
			return -EUCLEAN;
		if (p[i].bytes > used_bytes)
			return -EUCLEAN;
		used_bytes -= p[i].bytes;
	}
	if (used_bytes || !all->n)
		return -EUCLEAN;
	qsort(all->p, all->n, sizeof(*all->p), by_place);
	for (size_t i = 1; i < all->n; i++)
		if (p[i].place - p[i - 1].place < p[i - 1].bytes)
			return -EUCLEAN;
	free(x->pieces.p);
	x->pieces = *all;
	*all = (struct pieces){ 0 };
	return 0;
}

static int add_item(struct btrfs_space *x, struct pieces *all, const struct item *it,
		    unsigned *devices)
{
	size_t bytes;

	switch (it->key.type) {
	case BTRFS_DEV_ITEM_KEY:
		return ++*devices == 1 && it->key.offset == x->devid ? 0 : -EOPNOTSUPP;
	case BTRFS_CHUNK_ITEM_KEY:
		return it->key.objectid == BTRFS_FIRST_CHUNK_TREE_OBJECTID
			       ? add_chunk(x, all, it->key.offset, it->p, it->bytes, &bytes)
			       : -EUCLEAN;
	default:
		return -EOPNOTSUPP;
	}
}

static int read_chunks(struct btrfs_space *x, const struct pointer *root, uint64_t used_bytes)
{
	struct pieces all = { 0 };
	struct key at = { 0 };
	unsigned devices = 0;
	struct leaf l;
	struct item it;
	int r;

	do {
		r = search(x, root, &at, false, &l);
		for (; !r && l.slot < l.n; l.slot++) {
			item_get(&l, l.slot, &it);
			r = add_item(x, &all, &it, &devices);
		}
	} while (!r && go_on(&l, &at));
	if (!r)
		r = devices == 1 ? take_pieces(x, &all, used_bytes) : -EUCLEAN;
	free(all.p);
	return r;
}

/* ---- log trees ---- */

/* Notes each copy as used. */
static int log_add(struct btrfs_space *x, uint64_t logical, uint64_t bytes)
{
	int r = -EUCLEAN;

	if (logical % COW_BLK_BYTES || !bytes || bytes % COW_BLK_BYTES)
		return r;
	for (size_t i = 0; i < x->pieces.n; i++) {
		const struct piece *c = &x->pieces.p[i];
		uint64_t in = logical - c->logical;

		if (logical < c->logical || in >= c->bytes)
			continue;
		if (bytes > c->bytes - in)
			return -EUCLEAN;
		r = add_piece(&x->log, c->place + in, logical, bytes);
		if (r)
			return r;
	}
	return r;
}

static int root_item(const struct item *it, uint64_t owner, struct pointer *ret)
{
	if (it->key.type != BTRFS_ROOT_ITEM_KEY ||
	    it->bytes < offsetof(struct btrfs_root_item, generation_v2) ||
	    it->p[offsetof(struct btrfs_root_item, level)] >= LEVELS)
		return -EUCLEAN;
	*ret = (struct pointer){ .bytenr = GET(it->p, struct btrfs_root_item, bytenr),
				 .generation = GET(it->p, struct btrfs_root_item, generation),
				 .owner = owner,
				 .level = it->p[offsetof(struct btrfs_root_item, level)] };
	return 0;
}

/* Of the tree of log trees. */
static int log_tree(struct btrfs_space *x, const struct item *it)
{
	if (ARRAY_ROOM(x->log_trees, x->cap_log_trees, x->n_log_trees + 1) < 0)
		return -ENOMEM;
	return it->key.objectid == BTRFS_TREE_LOG_OBJECTID
		       ? root_item(it, BTRFS_TREE_LOG_OBJECTID, &x->log_trees[x->n_log_trees++])
		       : -EUCLEAN;
}

/* Of a log tree: only the extents of files lie outside of its blocks. */
static int log_item(struct btrfs_space *x, const struct item *it)
{
	uint8_t type;

	if (it->key.type != BTRFS_EXTENT_DATA_KEY)
		return 0;
	if (it->bytes < offsetof(struct btrfs_file_extent_item, disk_bytenr))
		return -EUCLEAN;
	type = it->p[offsetof(struct btrfs_file_extent_item, type)];
	if (type == BTRFS_FILE_EXTENT_INLINE)
		return 0;
	if ((type != BTRFS_FILE_EXTENT_REG && type != BTRFS_FILE_EXTENT_PREALLOC) ||
	    it->bytes < sizeof(struct btrfs_file_extent_item))
		return -EUCLEAN;
	if (!GET(it->p, struct btrfs_file_extent_item, disk_bytenr))
		return 0; /* a hole */
	return log_add(x, GET(it->p, struct btrfs_file_extent_item, disk_bytenr),
		       GET(it->p, struct btrfs_file_extent_item, disk_num_bytes));
}

/* Calls take with each item. Only blocks of lower levels are read meanwhile. */
static int log_walk(struct btrfs_space *x, const struct pointer *at,
		    int (*take)(struct btrfs_space *x, const struct item *it))
{
	struct leaf l = { 0 };
	struct item it;
	int r = at->generation == x->generation + 1 ? node_get(x, at, &l.p) : -EUCLEAN;

	if (!r)
		r = log_add(x, at->bytenr, x->node_bytes);
	l.n = r ? 0 : count_of(l.p);
	for (; !r && l.slot < l.n; l.slot++) {
		struct pointer below = *at;

		if (at->level) {
			r = step_down(l.p, l.slot, &below);
			r = r ? r : log_walk(x, &below, take);
		} else {
			item_get(&l, l.slot, &it);
			r = take(x, &it);
		}
	}
	return r;
}

static int read_log(struct btrfs_space *x, const uint8_t *s)
{
	const struct pointer trees = { .bytenr = le_at(s, SUPER_LOG_ROOT, 8),
				       .generation = x->generation + 1,
				       .owner = BTRFS_TREE_LOG_OBJECTID,
				       .level = s[SUPER_LOG_LEVEL] };
	int r = trees.bytenr ? log_walk(x, &trees, log_tree) : 0;

	for (size_t i = 0; i < x->n_log_trees && !r; i++)
		r = log_walk(x, &x->log_trees[i], log_item);
	return r;
}

/* ---- opening ---- */

static int find_extents(struct btrfs_space *x, const struct pointer *roots)
{
	const struct key at = { BTRFS_EXTENT_TREE_OBJECTID, BTRFS_ROOT_ITEM_KEY, 0 };
	struct leaf l;
	struct item it;
	int r = search(x, roots, &at, false, &l);

	if (r)
		return r;
	if (l.slot == l.n)
		return -EUCLEAN;
	item_get(&l, l.slot, &it);
	r = key_compare(&it.key, &at) ? -EUCLEAN
				      : root_item(&it, BTRFS_EXTENT_TREE_OBJECTID, &x->extents);
	return r ? r : x->extents.generation <= roots->generation ? 0 : -EUCLEAN;
}

static bool super_known(const uint8_t *s, const struct blk_reader *r)
{
	const uint8_t *dev = s + SUPER_DEV_ITEM;
	uint64_t incompat = le_at(s, SUPER_INCOMPAT, 8), node = le_at(s, SUPER_NODESIZE, 4);

	return !memcmp(s + SUPER_MAGIC, "_BHRfS_M", 8) && !le_at(s, SUPER_CSUM_TYPE, 2) &&
	       checksum_ok(s, COW_BLK_BYTES) &&
	       le_at(s, SUPER_BYTENR, 8) == blk_to_bytes(SUPER_BLK) &&
	       !(le_at(s, SUPER_FLAGS, 8) & ~(uint64_t)KNOWN_SUPER_FLAGS) &&
	       s[SUPER_LOG_LEVEL] < LEVELS && le_at(s, SUPER_NUM_DEVICES, 8) == 1 &&
	       !(incompat & ~(uint64_t)KNOWN_INCOMPAT) &&
	       !(le_at(s, SUPER_COMPAT_RO, 8) & ~(uint64_t)KNOWN_COMPAT_RO) &&
	       le_at(s, SUPER_SECTORSIZE, 4) == COW_BLK_BYTES && node >= COW_BLK_BYTES &&
	       node <= 64 * KIB && !(node & (node - 1)) && s[SUPER_ROOT_LEVEL] < LEVELS &&
	       s[SUPER_CHUNK_LEVEL] < LEVELS &&
	       le_at(s, SUPER_CHUNK_GENERATION, 8) <= le_at(s, SUPER_GENERATION, 8) &&
	       GET(dev, struct btrfs_dev_item, total_bytes) <= blk_to_bytes(r->volume_blks);
}

static int read_super(struct btrfs_space *x, const uint8_t *s)
{
	const uint8_t *dev = s + SUPER_DEV_ITEM;
	bool other_uuid = le_at(s, SUPER_INCOMPAT, 8) & BTRFS_FEATURE_INCOMPAT_METADATA_UUID;
	const struct pointer chunks = { .bytenr = le_at(s, SUPER_CHUNK_ROOT, 8),
					.generation = le_at(s, SUPER_CHUNK_GENERATION, 8),
					.owner = BTRFS_CHUNK_TREE_OBJECTID,
					.level = s[SUPER_CHUNK_LEVEL] };
	const struct pointer roots = { .bytenr = le_at(s, SUPER_ROOT, 8),
				       .generation = le_at(s, SUPER_GENERATION, 8),
				       .owner = BTRFS_ROOT_TREE_OBJECTID,
				       .level = s[SUPER_ROOT_LEVEL] };
	int r;

	x->node_bytes = (uint32_t)le_at(s, SUPER_NODESIZE, 4);
	x->generation = roots.generation;
	x->devid = GET(dev, struct btrfs_dev_item, devid);
	x->device_bytes = GET(dev, struct btrfs_dev_item, total_bytes);
	memcpy(x->fsid, s + (other_uuid ? SUPER_METADATA_UUID : SUPER_FSID), sizeof(x->fsid));
	memcpy(x->dev_uuid, dev + offsetof(struct btrfs_dev_item, uuid), sizeof(x->dev_uuid));
	r = read_array(x, s);
	if (!r)
		r = read_chunks(x, &chunks, GET(dev, struct btrfs_dev_item, bytes_used));
	if (!r)
		r = find_extents(x, &roots);
	return r ? r : read_log(x, s);
}

static int open_space(struct btrfs_space *x)
{
	_cleanup_free_ uint8_t *super = io_alloc(COW_BLK_BYTES);
	int r;

	if (!super)
		return -ENOMEM;
	if (x->r.volume_blks <= SUPER_BLK)
		return -EOPNOTSUPP;
	r = x->r.read(x->r.ctx, SUPER_BLK, 1, super);
	if (r)
		return r;
	r = super_known(super, &x->r) ? read_super(x, super) : -EOPNOTSUPP;
	return r == -EUCLEAN ? -EOPNOTSUPP : r;
}

int btrfs_space_open(struct btrfs_space **ret, const struct blk_reader *r, uint64_t *ret_units)
{
	struct btrfs_space *x = calloc(1, sizeof(*x));
	int e;

	if (!x)
		return -ENOMEM;
	x->r = *r;
	x->reads_blks = READS_OPEN_BLKS;
	e = open_space(x);
	if (e) {
		btrfs_space_close(x);
		return e;
	}
	*ret_units = x->device_bytes / COW_BLK_BYTES;
	*ret = x;
	return 0;
}

void btrfs_space_close(struct btrfs_space *x)
{
	if (!x)
		return;
	for (unsigned i = 0; i < LEVELS; i++)
		free(x->node[i].p);
	free(x->pieces.p);
	free(x->log.p);
	free(x->log_trees);
	free(x);
}

/* ---- extents ---- */

/* Part of a piece, and the place of its first unit's bit. */
struct part {
	const struct piece *piece;
	uint64_t from, to; /* logical */
	uint8_t *bits;
	uint64_t bit;
};

static void set_bits(uint8_t *bits, uint64_t bit, uint64_t n)
{
	for (; n && bit % 8; bit++, n--)
		bits[bit / 8] |= (uint8_t)(1u << bit % 8);
	memset(bits + bit / 8, 0xff, n / 8);
	for (bit += n / 8 * 8, n %= 8; n; bit++, n--)
		bits[bit / 8] |= (uint8_t)(1u << bit % 8);
}

/* B3 */
static int extent_bytes(const struct btrfs_space *x, const struct piece *c, const struct item *it,
			uint64_t *ret)
{
	uint64_t start = it->key.objectid, bytes;

	if (it->key.type == BTRFS_EXTENT_ITEM_KEY)
		bytes = it->key.offset;
	else if (it->key.type == BTRFS_METADATA_ITEM_KEY)
		bytes = x->node_bytes;
	else
		return -EUCLEAN;
	if (it->bytes < sizeof(struct btrfs_extent_item) || start % COW_BLK_BYTES || !bytes ||
	    bytes % COW_BLK_BYTES || start < c->logical || start - c->logical >= c->bytes ||
	    bytes > c->bytes - (start - c->logical))
		return -EUCLEAN;
	*ret = bytes;
	return 0;
}

/* at: where to begin; on return the end of the extent. */
static int note_item(const struct btrfs_space *x, const struct part *part, const struct item *it,
		     struct key *at)
{
	uint64_t bytes, from, to;
	int r;

	/* a reference of an extent that was already seen, or a block group */
	if (key_compare(&it->key, at) < 0 || it->key.type == BTRFS_BLOCK_GROUP_ITEM_KEY)
		return 0;
	r = extent_bytes(x, part->piece, it, &bytes);
	if (r)
		return r;
	*at = (struct key){ .objectid = it->key.objectid + bytes };
	from = max_u64(it->key.objectid, part->from);
	to = min_u64(it->key.objectid + bytes, part->to);
	if (from < to)
		set_bits(part->bits, part->bit + (from - part->from) / COW_BLK_BYTES,
			 (to - from) / COW_BLK_BYTES);
	return 0;
}

static int extents_of(struct btrfs_space *x, const struct part *part)
{
	struct key at = { .objectid = part->from };
	struct leaf l;
	struct item it;
	int r = search(x, &x->extents, &at, true, &l);

	/* an extent that begins earlier may reach into the part */
	if (!r && l.slot < l.n) {
		item_get(&l, l.slot, &it);
		if (it.key.objectid >= part->piece->logical)
			at.objectid = it.key.objectid;
	}
	while (!r) {
		r = search(x, &x->extents, &at, false, &l);
		for (; !r && l.slot < l.n; l.slot++) {
			item_get(&l, l.slot, &it);
			if (it.key.objectid >= part->to)
				return 0;
			r = note_item(x, part, &it, &at);
		}
		if (!r && (!go_on(&l, &at) || at.objectid >= part->to))
			return 0;
	}
	return r;
}

/* Marks the reserved places as used, whatever the chunks say. */
static void set_reserved(uint64_t first_unit, uint64_t units, uint8_t *bits)
{
	const struct {
		uint64_t first, end;
	} kept[] = {
		{ 0, RESERVED_BLKS },
		{ 64 * MIB / COW_BLK_BYTES, 64 * MIB / COW_BLK_BYTES + SUPER_STRIPE_BLKS },
		{ 256 * GIB / COW_BLK_BYTES, 256 * GIB / COW_BLK_BYTES + SUPER_STRIPE_BLKS },
	};

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		uint64_t from = max_u64(first_unit, kept[i].first),
			 to = min_u64(first_unit + units, kept[i].end);

		if (from < to)
			set_bits(bits, from - first_unit, to - from);
	}
}

static void set_log(const struct btrfs_space *x, uint64_t first, uint64_t end, uint8_t *bits)
{
	for (size_t i = 0; i < x->log.n; i++) {
		const struct piece *c = &x->log.p[i];
		uint64_t from = max_u64(first, c->place), to = min_u64(end, c->place + c->bytes);

		if (from < to)
			set_bits(bits, (from - first) / COW_BLK_BYTES, (to - from) / COW_BLK_BYTES);
	}
}

int btrfs_space_used(struct btrfs_space *x, uint64_t first_unit, uint64_t units, uint8_t *bits)
{
	uint64_t first = blk_to_bytes(first_unit), end = blk_to_bytes(first_unit + units);
	int r = 0;

	x->reads_blks = READS_USED_BLKS;
	set_reserved(first_unit, units, bits);
	set_log(x, first, end, bits);
	for (size_t i = 0; i < x->pieces.n && !r; i++) {
		const struct piece *c = &x->pieces.p[i];
		uint64_t from = max_u64(first, c->place), to = min_u64(end, c->place + c->bytes);
		const struct part part = { .piece = c,
					   .from = c->logical + (from - c->place),
					   .to = c->logical + (to - c->place),
					   .bits = bits,
					   .bit = (from - first) / COW_BLK_BYTES };

		if (from < to)
			r = extents_of(x, &part);
	}
	return r;
}
