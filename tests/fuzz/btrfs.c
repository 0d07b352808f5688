/* SPDX-License-Identifier: MIT */
/*
 * Small btrfs images of mkfs.btrfs, made at the first call and changed by the edits of an input.
 * The map of all blocks then reads them. Input: image u8, flags u8, then edits. Checksums detect
 * simple damage; FLAG_SEAL makes them right again.
 *
 * An edit: what u8, place u16, offset u16, value u32. what: bit 0 the superblock, else a tree
 * block; bits 2 and 3 the width, bit 4 adds, bit 5 puts the address of a tree block there, bit 6
 * takes the offset from the head of the block.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "fs/fsinfo.h"
#include "fuzz.h"

enum { FLAG_SEAL = 1, FLAG_RUNS = 2 };
enum { SUPER = 65536, SUPER_BYTES = 4096, MAX_NODES = 1024, MAX_EDITS = 64 };

static const char *const kinds[] = { "-M -b 24M", "-m single -d single -n 4096 -b 100M",
				     "-m dup -n 16384 -b 150M" };

static struct image {
	uint8_t *was, *now;
	size_t bytes, node_bytes;
	uint32_t node[MAX_NODES]; /* in units of 4 KiB */
	unsigned n_nodes;
} images[ARRAY_SIZE(kinds)];

static void image_make(struct image *im, const char *options)
{
	char dir[] = "/tmp/cowfs-fuzz-XXXXXX", cmd[1024], path[64];
	struct stat st;
	int fd;

	if (!mkdtemp(dir))
		abort();
	snprintf(
		cmd, sizeof(cmd),
		"export PATH=$PATH:/sbin:/usr/sbin; cd %s && mkdir t && for i in $(seq 400); do head -c $((i * 25)) "
		"/dev/zero >t/a-name-that-is-long-enough-$i; done && mkfs.btrfs -q -f -r t %s image >log 2>&1",
		dir, options);
	snprintf(path, sizeof(path), "%s/image", dir);
	if (system(cmd) || (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0 || fstat(fd, &st) < 0) {
		fprintf(stderr, "cannot make an image: %s (%s/log)\n", options, dir);
		abort();
	}
	im->bytes = (size_t)st.st_size;
	im->was = malloc(im->bytes);
	im->now = malloc(im->bytes);
	if (!im->was || !im->now || io_pread_full(fd, im->was, im->bytes, 0) < 0)
		abort();
	close(fd);
	memcpy(im->now, im->was, im->bytes);
	im->node_bytes = (size_t)fuzz_get(im->was + SUPER + 148, 4);
	for (size_t at = im->node_bytes;
	     at + im->node_bytes <= im->bytes && im->n_nodes < MAX_NODES; at += 4096)
		if (at != SUPER && at != 64 * MIB &&
		    !memcmp(im->was + at + 32, im->was + SUPER + 32, 16))
			im->node[im->n_nodes++] = (uint32_t)(at / 4096);
	if (!im->n_nodes)
		abort();
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	if (system(cmd))
		abort();
}

/* ---- edits ---- */

static void seal(uint8_t *p, size_t bytes)
{
	fuzz_put(p, crc32c(0, p + 32, bytes - 32), 4);
}

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
		v = fuzz_get(im->was + (size_t)im->node[v % im->n_nodes] * 4096 + 48, 8);
	if (what & 16)
		v += fuzz_get(im->now + base + off, width);
	fuzz_put(im->now + base + off, v, width);
	if (sealed)
		seal(im->now + base, bytes);
	*ret = base;
}

/* ---- the code under test ---- */

static int memory_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	const struct image *im = ctx;

	FUZZ_PROMISE(blks && blk < im->bytes / COW_BLK_BYTES &&
		     blks <= im->bytes / COW_BLK_BYTES - blk);
	memcpy(buf, im->now + blk_to_bytes(blk), blk_to_bytes(blks));
	return 0;
}

static void try_map(const struct blk_reader *r, bool runs, bool whole)
{
	struct fsmap *m;
	enum blk_use use, one;
	uint64_t n, free_blks = 0;

	FUZZ_PROMISE(fsmap_open(&m, r) == 0);
	for (uint64_t b = 0; b < r->volume_blks + 2; b += n) {
		n = 1;
		if (runs)
			FUZZ_PROMISE(fsmap_run(m, b, r->volume_blks + 2 - b, &use, &n) == 0);
		else
			FUZZ_PROMISE(fsmap_use(m, b, &use) == 0);
		FUZZ_PROMISE(n && n <= r->volume_blks + 2 - b);
		FUZZ_PROMISE(use == USE_USED || (use == USE_FREE && b >= 256 &&
						 b + n <= r->volume_blks && fsmap_knows(m)));
		FUZZ_PROMISE(fsmap_use(m, b + n - 1, &one) == 0 && one == use);
		free_blks += use == USE_FREE ? n : 0;
	}
	FUZZ_PROMISE(!fsmap_alarms(m));
	FUZZ_PROMISE(!whole || (fsmap_knows(m) && free_blks));
	fsmap_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };
	const struct image *im = &images[fuzz_uint(&in, 1) % ARRAY_SIZE(images)];
	unsigned flags = (unsigned)fuzz_uint(&in, 1), n = 0;
	struct blk_reader r = { memory_read, (void *)im, 0 };
	size_t edited[MAX_EDITS];
	struct fsinfo info;

	for (size_t i = 0; i < ARRAY_SIZE(images) && !images[i].was; i++)
		image_make(&images[i], kinds[i]);
	r.volume_blks = im->bytes / COW_BLK_BYTES;
	while (in.left && n < MAX_EDITS)
		edit_one(im, &in, flags & FLAG_SEAL, &edited[n++]);
	FUZZ_PROMISE(fsinfo_probe(&r, &info) == 0);
	FUZZ_PROMISE(n || info.kind == FS_BTRFS);
	if (info.kind == FS_BTRFS)
		try_map(&r, flags & FLAG_RUNS, !n);
	for (unsigned i = 0; i < n; i++)
		memcpy(im->now + edited[i], im->was + edited[i],
		       max_u64(im->node_bytes, SUPER_BYTES));
	return 0;
}
