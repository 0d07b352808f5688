/* SPDX-License-Identifier: MIT */
/*
 * Whole file systems: small ext2/3/4 images of mke2fs, changed by the edits of an input.
 * Input: image u8, flags u8, then edits. All code in cowfs that parses such an
 * image then reads it: probe, fingerprint, the map of all blocks, the replay of the journal, and the walk of cowctl top.
 * Checksums detect simple damage; FLAG_SEAL makes them right again.
 *
 * An edit: what u8, place u16, offset u16, value u32. what: the low two bits are the place's kind,
 * bits 2 and 3 the width, bit 4 adds, bit 5 puts the number of a block of the tables there (so that
 * trees and maps point at metadata).
 */
#include <errno.h>
#include <ext2fs/ext2fs.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "disk.h"
#include "fs/owners.h"
#include "fs/replay.h"

enum { FLAG_SEAL = 1, FLAG_OWNERS = 2, FLAG_RUNS = 4, FLAG_OLDER = 8 };
enum { PLACE_SUPER, PLACE_DESC, PLACE_INODE, PLACE_META };
enum { MAX_INODES = 64, MAX_META = 2048, JOURNAL_INO = 8, IMAGES = 11 };

static struct image {
	struct disk d;
	uint32_t block_bytes, inode_bytes, desc_bytes, groups, per_group_bytes;
	uint64_t descs_off;
	struct {
		uint32_t ino;
		uint64_t off;
	} inode[MAX_INODES];
	unsigned n_inodes;
	uint32_t meta[MAX_META]; /* blocks that are not zero */
	unsigned n_meta;
} images[IMAGES];

static uint8_t *now; /* a mapping of memory_fd */
static int memory_fd, older_fd;

/* ---- the images ---- */

static void note_inodes(struct image *im, const char *path)
{
	ext2_filsys fs;

	if (ext2fs_open(path, EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &fs))
		abort();
	im->block_bytes = fs->blocksize;
	im->inode_bytes = EXT2_INODE_SIZE(fs->super);
	im->desc_bytes = EXT2_DESC_SIZE(fs->super);
	im->groups = fs->group_desc_count;
	im->per_group_bytes = fs->super->s_clusters_per_group / 8;
	im->descs_off = (1024 / fs->blocksize + 1) * (uint64_t)fs->blocksize;
	for (ext2_ino_t ino = 1; ino <= fs->super->s_inodes_count && im->n_inodes < MAX_INODES;
	     ino++) {
		uint64_t n = (ino - 1) % fs->super->s_inodes_per_group;
		uint64_t table = ext2fs_inode_table_loc(fs,
							(ino - 1) / fs->super->s_inodes_per_group);
		struct ext2_inode inode;

		if (ext2fs_read_inode(fs, ino, &inode) || !inode.i_mode)
			continue;
		if (LINUX_S_ISREG(inode.i_mode) && !inode.i_size)
			continue;
		im->inode[im->n_inodes].ino = ino;
		im->inode[im->n_inodes++].off = table * fs->blocksize + n * im->inode_bytes;
	}
	ext2fs_free(fs);
}

static void image_load(struct image *im, unsigned nr)
{
	char name[16], path[32];
	_cleanup_close_ int fd = -1;

	snprintf(name, sizeof(name), "ext-%u", nr);
	disk_load(&im->d, name);
	fd = disk_open(name, &im->d.bytes);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	note_inodes(im, path);
	for (uint32_t b = 0; b < im->d.bytes / im->block_bytes && im->n_meta < MAX_META; b++)
		if (im->d.was[b * (size_t)im->block_bytes] ||
		    memcmp(im->d.was + b * (size_t)im->block_bytes,
			   im->d.was + b * (size_t)im->block_bytes + 1, im->block_bytes - 1))
			im->meta[im->n_meta++] = b;
}

static void images_make(void)
{
	size_t most = 0;

	for (unsigned i = 0; i < IMAGES; i++) {
		image_load(&images[i], i);
		most = images[i].d.bytes > most ? images[i].d.bytes : most;
	}
	memory_fd = memfd_create("image", MFD_CLOEXEC);
	older_fd = memfd_create("older", MFD_CLOEXEC);
	if (memory_fd < 0 || older_fd < 0 || ftruncate(memory_fd, (off_t)most) < 0)
		abort();
	now = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
	if (now == MAP_FAILED)
		abort();
}

/* ---- checksums made right ---- */

/* as in ext4: not inverted before or after */
static uint32_t crc(uint32_t seed, const void *p, size_t n)
{
	return ~crc32c(~seed, p, n);
}

static uint16_t crc16(uint16_t v, const uint8_t *p, size_t n)
{
	while (n--) {
		v ^= *p++;
		for (int i = 0; i < 8; i++)
			v = (uint16_t)(v & 1 ? v >> 1 ^ 0xa001 : v >> 1);
	}
	return v;
}

static void seal_inode(const struct image *im, uint32_t seed, uint32_t ino, uint8_t *p)
{
	bool large = im->inode_bytes > 128 && le_at(p, 128, 2) >= 4;
	uint8_t le[4];
	uint32_t v;

	le_set(le, 0, 4, ino);
	le_set(p, 124, 2, 0);
	if (large)
		le_set(p, 130, 2, 0);
	v = crc(crc(crc(seed, le, 4), p + 100, 4), p, im->inode_bytes);
	le_set(p, 124, 2, v);
	if (large)
		le_set(p, 130, 2, v >> 16);
}

/* Blocks of trees belong to the journal: no code checks the checksums of others. */
static void seal_trees(const struct image *im, uint32_t seed)
{
	uint8_t head[8] = { JOURNAL_INO };

	for (unsigned i = 0; i < im->n_inodes; i++)
		if (im->inode[i].ino == JOURNAL_INO)
			memcpy(head + 4, now + im->inode[i].off + 100, 4);
	for (unsigned i = 0; i < im->n_meta; i++) {
		uint8_t *p = now + (size_t)im->meta[i] * im->block_bytes;
		size_t at = 12 + 12 * (size_t)le_at(p, 4, 2);

		if (le_at(p, 0, 2) == EXT3_EXT_MAGIC && at + 4 <= im->block_bytes)
			le_set(p, at, 4, crc(crc(seed, head, 8), p, at));
	}
}

static void seal_journal(const struct image *im)
{
	for (unsigned i = 0; i < im->n_meta; i++) {
		uint8_t *p = now + (size_t)im->meta[i] * im->block_bytes;

		if (memcmp(p, "\xc0\x3b\x39\x98\0\0\0\4", 8) || !(p[0x2b] & 0x18))
			continue;
		le_set(p, 0xfc, 4, 0);
		le_set(p, 0xfc, 4, __builtin_bswap32(~crc32c(0, p, 1024)));
	}
}

static void seal_desc(const struct image *im, uint32_t seed, uint32_t group, bool crc32)
{
	uint8_t *p = now + im->descs_off + (size_t)group * im->desc_bytes, le[4];
	uint64_t bitmap = le_at(p, 0, 4) * im->block_bytes;
	uint32_t v;

	le_set(le, 0, 4, group);
	le_set(p, 30, 2, 0);
	if (!crc32) {
		v = crc16(crc16(crc16((uint16_t)~0u, now + 1024 + 104, 16), le, 4), p, 30);
		if (im->desc_bytes > 32)
			v = crc16((uint16_t)v, p + 32, im->desc_bytes - 32);
		le_set(p, 30, 2, v);
		return;
	}
	if (bitmap + im->block_bytes <= im->d.bytes) {
		v = crc(seed, now + bitmap, im->per_group_bytes);
		le_set(p, 0x18, 2, v);
		if (im->desc_bytes >= 64)
			le_set(p, 0x38, 2, v >> 16);
	}
	le_set(p, 30, 2, crc(crc(seed, le, 4), p, im->desc_bytes));
}

static void seal(const struct image *im)
{
	uint8_t *sb = now + 1024;
	bool crc32 = le_at(sb, 100, 4) & 0x400;
	uint32_t seed = le_at(sb, 96, 4) & 0x2000 ? (uint32_t)le_at(sb, 624, 4)
						  : crc(~0u, sb + 104, 16);

	seal_journal(im);
	if (crc32) {
		for (unsigned i = 0; i < im->n_inodes; i++)
			seal_inode(im, seed, im->inode[i].ino, now + im->inode[i].off);
		seal_trees(im, seed);
	}
	for (uint32_t g = 0; g < im->groups && g < im->block_bytes / im->desc_bytes; g++)
		seal_desc(im, seed, g, crc32);
	if (crc32)
		le_set(sb, 1020, 4, crc(~0u, sb, 1020));
}

/* ---- edits ---- */

static void edit_one(const struct image *im, struct fuzz_input *in)
{
	unsigned what = (unsigned)fuzz_uint(in, 1), place = (unsigned)fuzz_uint(in, 2);
	size_t off = (size_t)fuzz_uint(in, 2), width = (size_t)1 << (what >> 2 & 3);
	uint64_t v = fuzz_uint(in, 4), base = 0, room = im->block_bytes;

	switch (what & 3) {
	case PLACE_SUPER:
		base = 1024;
		room = 1020;
		break;
	case PLACE_DESC:
		base = im->descs_off + place % im->groups % (im->block_bytes / im->desc_bytes) *
					       (uint64_t)im->desc_bytes;
		room = im->desc_bytes;
		break;
	case PLACE_INODE:
		base = im->inode[place % im->n_inodes].off;
		room = im->inode_bytes;
		break;
	case PLACE_META:
		base = (uint64_t)im->meta[place % im->n_meta] * im->block_bytes;
		break;
	}
	off = min_u64(off % room, room - width);
	if (what & 32)
		v = im->meta[v % im->n_meta];
	if (what & 16)
		v += le_at(now, base + off, width);
	le_set(now, base + off, width, v);
}

/* ---- the code under test ---- */

static int memory_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	const struct image *im = ctx;

	FUZZ_PROMISE(blks && blk < im->d.bytes / COW_BLK_BYTES &&
		     blks <= im->d.bytes / COW_BLK_BYTES - blk);
	memcpy(buf, now + blk_to_bytes(blk), blk_to_bytes(blks));
	return 0;
}

static void try_map(const struct blk_reader *r, bool runs)
{
	struct fsmap *m;
	enum blk_use use, one;
	uint64_t n;

	FUZZ_PROMISE(fsmap_open(&m, r) == 0);
	for (uint64_t b = 0; b < r->volume_blks + 2; b += n) {
		n = 1;
		if (runs)
			FUZZ_PROMISE(fsmap_run(m, b, r->volume_blks + 2 - b, &use, &n) == 0);
		else
			FUZZ_PROMISE(fsmap_use(m, b, &use) == 0);
		FUZZ_PROMISE(n && n <= r->volume_blks + 2 - b);
		FUZZ_PROMISE(use == USE_USED || (b && b < r->volume_blks));
		FUZZ_PROMISE(use == USE_USED || fsmap_knows(m));
		FUZZ_PROMISE(fsmap_use(m, b + n - 1, &one) == 0 && one == use);
	}
	fsmap_close(m);
}

/* Reads all of the image after the replay, if there is one; its map says nothing of a journal to be replayed. */
static void try_replay(const struct blk_reader *r)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);
	struct blk_reader after;
	struct replay *y, *again;
	uint64_t next = 0;
	int e = replay_open(&y, r, NULL);

	FUZZ_PROMISE(e == 0 || e == -ENOENT || e == -EUCLEAN || e == -EOPNOTSUPP);
	if (e < 0)
		return;
	after = replay_reader(y);
	for (uint64_t b = 0; b < r->volume_blks; b++) {
		FUZZ_PROMISE(after.read(after.ctx, b, 1, buf) == 0);
		if (b == next) {
			next = replay_next(y, b + 1);
			FUZZ_PROMISE(next > b && (next < r->volume_blks || next == UINT64_MAX));
		} else {
			FUZZ_PROMISE(!memcmp(buf, now + blk_to_bytes(b), COW_BLK_BYTES));
		}
	}
	FUZZ_PROMISE(next == UINT64_MAX && replay_journal_blk(y) < r->volume_blks);
	e = replay_open(&again, &after, NULL);
	if (e == 0)
		replay_close(again);
	try_map(&after, true);
	replay_close(y);
}

/* older: against the image before its edits; no_names: only of that */
static void try_owners(const struct image *im, bool older, bool no_names)
{
	struct extents all = { 0 }, none = { 0 };
	struct owners_query q = { .all = &all,
				  .fresh = &none,
				  .old_fd = older ? &older_fd : NULL,
				  .no_names = no_names };
	struct owners w = { 0 };
	char path[32];
	int e;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory_fd);
	if (extents_add(&all, 0, im->d.bytes / COW_BLK_BYTES) < 0)
		abort();
	if (older && (ftruncate(older_fd, 0) < 0 ||
		      pwrite(older_fd, im->d.was, im->d.bytes, 0) != (ssize_t)im->d.bytes))
		abort();
	e = owners_ext(&w, path, &q);
	FUZZ_PROMISE(e == 0 || e == -EUCLEAN || e == -EOPNOTSUPP);
	for (size_t i = 0; i < w.n; i++) {
		FUZZ_PROMISE(older ? w.o[i].differs & OWNER_TOUCHED : w.o[i].bytes);
		FUZZ_PROMISE(!w.o[i].path || (w.o[i].path[0] == '/' && !strstr(w.o[i].path, "//")));
	}
	owners_clear(&w);
	extents_clear(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };
	const struct image *im = &images[fuzz_uint(&in, 1) % ARRAY_SIZE(images)];
	unsigned flags = (unsigned)fuzz_uint(&in, 1);
	struct blk_reader r = { memory_read, (void *)im, 0 };
	struct fs_fingerprint fp;
	struct fsinfo info;
	bool match;

	if (!now)
		images_make();
	r.volume_blks = im->d.bytes / COW_BLK_BYTES;
	if (ftruncate(memory_fd, (off_t)im->d.bytes) < 0)
		abort();
	memcpy(now, im->d.was, im->d.bytes);
	while (in.left)
		edit_one(im, &in);
	if (flags & FLAG_SEAL)
		seal(im);
	FUZZ_PROMISE(fsinfo_probe(&r, &info) == 0);
	FUZZ_PROMISE(fsinfo_fingerprint(&r, &fp) == 0);
	FUZZ_PROMISE(fp.n_marks <= FS_MARKS);
	FUZZ_PROMISE(fsinfo_fingerprint_match(&fp, &r, &r, false, &match) == 0 && match);
	if (len <= 2)
		FUZZ_PROMISE(info.kind == FS_EXT);
	try_map(&r, flags & FLAG_RUNS);
	try_replay(&r);
	if (flags & FLAG_OWNERS)
		try_owners(im, flags & FLAG_OLDER, false);
	if (flags & FLAG_OWNERS && flags & FLAG_OLDER)
		try_owners(im, true, true);
	return 0;
}
