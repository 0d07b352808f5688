/* SPDX-License-Identifier: MIT */
/*
 * Small btrfs images of mkfs.btrfs, changed by the edits of an input. The map of all blocks then reads them. Input: image u8, flags u8, then edits. Checksums detect
 * simple damage; FLAG_SEAL makes them right again.
 *
 * An edit: what u8, place u16, offset u16, value u32. what: bit 0 the superblock, else a tree
 * block; bits 2 and 3 the width, bit 4 adds, bit 5 puts the address of a tree block there, bit 6
 * takes the offset from the head of the block.
 */
#include "base/bytes.h"
#include "base/crc32c.h"
#include "disk.h"

enum { FLAG_SEAL = 1, FLAG_RUNS = 2 };
enum {
	SUPER = 65536,
	SUPER_BYTES = 4096,
	MAX_NODES = 1024,
	MAX_EDITS = 64,
	IMAGES = 4,
	LOGGED = 3
};
enum { LOG_OWNER = -6, FS_TREE = 5, ROOT_ITEM = 132 };

static struct image {
	struct disk d;
	size_t node_bytes;
	uint32_t node[MAX_NODES]; /* in units of 4 KiB */
	unsigned n_nodes;
} images[IMAGES];

static void seal(uint8_t *p, size_t bytes)
{
	le_set(p, 0, 4, crc32c(0, p + 32, bytes - 32));
}

static void find_nodes(struct image *im)
{
	im->n_nodes = 0;
	for (size_t at = im->node_bytes;
	     at + im->node_bytes <= im->d.bytes && im->n_nodes < MAX_NODES; at += 4096)
		if (at != SUPER && at != 64 * MIB &&
		    !memcmp(im->d.was + at + 32, im->d.was + SUPER + 32, 16))
			im->node[im->n_nodes++] = (uint32_t)(at / 4096);
	if (!im->n_nodes)
		abort();
}

static void as_log(uint8_t *p, uint64_t bytenr, uint64_t generation)
{
	le_set(p, 48, 8, bytenr);
	le_set(p, 80, 8, generation);
	le_set(p, 88, 8, (uint64_t)LOG_OWNER);
	seal(p, 4096);
}

/* As fsync would: a log tree of one leaf, with items of the file system, behind a block that is in use. */
static void add_log(uint8_t *image, const struct image *im)
{
	static const uint8_t none[8192];
	uint64_t generation = le_at(image, SUPER + 72, 8) + 1, bytenr = 0;
	uint8_t *root = NULL, *item;
	const uint8_t *leaf = NULL;

	for (unsigned i = 0; i < im->n_nodes; i++) {
		uint8_t *p = image + (size_t)im->node[i] * 4096;

		if (le_at(p, 88, 8) == FS_TREE && !p[100] && le_at(p, 96, 4) > 20)
			leaf = p;
		if (!memcmp(p + 4096, none, sizeof(none))) {
			root = p + 4096;
			bytenr = le_at(p, 48, 8) + 4096;
		}
	}
	if (!root || !leaf)
		abort();
	memcpy(root + 4096, leaf, 4096);
	as_log(root + 4096, bytenr + 4096, generation);
	memcpy(root, leaf, 101);
	le_set(root, 96, 4, 1);
	le_set(root, 101, 8, (uint64_t)LOG_OWNER);
	root[109] = ROOT_ITEM;
	le_set(root, 110, 8, FS_TREE);
	le_set(root, 118, 4, 4096 - 101 - 439);
	le_set(root, 122, 4, 439);
	item = root + 4096 - 439;
	le_set(item, 160, 8, generation);
	le_set(item, 176, 8, bytenr + 4096);
	as_log(root, bytenr, generation);
	le_set(image, SUPER + 96, 8, bytenr);
	seal(image + SUPER, SUPER_BYTES);
}

static void image_load(struct image *im, unsigned nr)
{
	char name[16];

	snprintf(name, sizeof(name), "btrfs-%u", nr == LOGGED ? 1 : nr);
	disk_load(&im->d, name);
	im->node_bytes = (size_t)le_at(im->d.was, SUPER + 148, 4);
	find_nodes(im);
	if (nr == LOGGED) {
		struct disk other;

		disk_load(&other, name);
		add_log(other.now, im);
		add_log(im->d.now, im);
		im->d.was = other.now;
		find_nodes(im);
	}
}

/* ---- edits ---- */

/* *ret: place of the block. */
static void edit_one(const struct image *im, struct fuzz_input *in, bool sealed, size_t *ret)
{
	unsigned what = (unsigned)fuzz_uint(in, 1), place = (unsigned)fuzz_uint(in, 2);
	size_t off = (size_t)fuzz_uint(in, 2), width = (size_t)1 << (what >> 2 & 3),
	       bytes = what & 1 ? SUPER_BYTES : im->node_bytes;
	size_t base = what & 1 ? SUPER : (size_t)im->node[place % im->n_nodes] * 4096;
	uint64_t v = fuzz_uint(in, 4);

	off = min_u64(off % (what & 64 ? 512 : bytes), bytes - width);
	if (what & 32)
		v = le_at(im->d.was + (size_t)im->node[v % im->n_nodes] * 4096 + 48, 0, 8);
	if (what & 16)
		v += le_at(im->d.now, base + off, width);
	le_set(im->d.now, base + off, width, v);
	if (sealed)
		seal(im->d.now + base, bytes);
	*ret = base;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };
	const struct image *im = &images[fuzz_uint(&in, 1) % IMAGES];
	unsigned flags = (unsigned)fuzz_uint(&in, 1), n = 0;
	struct blk_reader r = { disk_read, (void *)&im->d, 0 };
	size_t edited[MAX_EDITS];
	struct fsinfo info;

	for (unsigned i = 0; i < IMAGES && !images[i].d.was; i++)
		image_load(&images[i], i);
	r.volume_blks = im->d.bytes / COW_BLK_BYTES;
	while (in.left && n < MAX_EDITS)
		edit_one(im, &in, flags & FLAG_SEAL, &edited[n++]);
	FUZZ_PROMISE(fsinfo_probe(&r, &info) == 0);
	FUZZ_PROMISE(n || info.kind == FS_BTRFS);
	if (info.kind == FS_BTRFS)
		FUZZ_PROMISE(disk_map(&im->d, flags & FLAG_RUNS, 256, NULL) || n);
	for (unsigned i = 0; i < n; i++)
		disk_restore(&im->d, edited[i], max_u64(im->node_bytes, SUPER_BYTES));
	return 0;
}
