// SPDX-License-Identifier: MIT
/*
 * The image that fs/replay.h reads, against what e2fsck makes of the same journal. The journals are
 * written by journal_maker.h at random: no mounting, no root needed. tests/replay/journal.py has
 * journals of the kernel.
 */
#include "test.h"
#include "base/bytes.h"
#include "fs/replay.h"
#include "image.h"
#include "journal_maker.h"

#define MAX_WRITES 40

static const struct layout {
	const char *name, *size, *args;
	unsigned csum;
	bool is64;
} layouts[] = {
	{ "ext3-1k", "16M", "-t ext3 -b 1024 -J size=4", 0, false },
	{ "ext3-2k", "24M", "-t ext3 -b 2048 -J size=4", 0, false },
	{ "ext3-4k", "32M", "-t ext3 -b 4096 -J size=4", 0, false },
	{ "ext3-v1", "32M", "-t ext3 -b 4096 -J size=8", 1, false },
	{ "ext4-1k-v3", "16M", "-t ext4 -b 1024 -J size=4", 3, true },
	{ "ext4-2k-v3", "24M", "-t ext4 -b 2048 -J size=4", 3, true },
	{ "ext4-4k-v3", "32M", "-t ext4 -b 4096 -J size=4", 3, true },
	{ "ext4-4k-v3-32", "32M", "-t ext4 -b 4096 -O ^64bit -J size=4", 3, false },
	{ "ext4-4k-v2", "32M", "-t ext4 -b 4096 -J size=4", 2, true },
	{ "ext4-1k-v2-32", "16M", "-t ext4 -b 1024 -O ^64bit -J size=4", 2, false },
	{ "ext4-no-csum", "32M", "-t ext4 -b 4096 -O ^metadata_csum -J size=4", 0, true },
	{ "ext4-no-csum-v1", "16M", "-t ext4 -b 1024 -O ^metadata_csum,^64bit -J size=4", 1,
	  false },
	{ "v1-64", "24M", "-t ext4 -b 2048 -O ^metadata_csum -J size=4", 1, true },
	{ "csum-seed", "32M", "-t ext4 -b 4096 -O metadata_csum_seed -J size=4", 3, true },
	{ "orphan-file", "32M", "-t ext4 -b 4096 -O orphan_file -J size=4", 3, true },
	{ "bigalloc", "128M", "-t ext4 -b 4096 -O bigalloc -C 65536 -J size=4", 3, true },
	{ "meta-bg", "64M", "-t ext4 -b 1024 -O meta_bg,^resize_inode -J size=8", 3, true },
	{ "no-flex", "64M", "-t ext4 -b 2048 -O ^flex_bg -J size=16", 3, true },
	{ "block-64k", "512M", "-t ext4 -b 65536 -J size=64", 3, true },
	{ "journal-128m", "400M", "-t ext4 -b 4096 -J size=128", 3, true },
};

/* Makes dir/name; false: mke2fs does not know it. */
static bool layout_make(const struct layout *x, const char *name)
{
	return sh("rm -f %s && truncate -s %s %s && mke2fs -q -F -d files %s %s", name, x->size,
		  name, x->args, name) == 0;
}

/* ---- the oracle ---- */

/* What e2fsck changes besides, or a mount does not need: times, counters, totals. */
static void mask_super(uint8_t *unit)
{
	struct ext2_super_block *sb = (void *)(unit + 1024);

	sb->s_wtime = sb->s_lastcheck = sb->s_checksum = 0;
	sb->s_kbytes_written = 0;
	sb->s_free_blocks_count = sb->s_free_blocks_hi = sb->s_free_inodes_count = 0;
}

static void image_save(struct image *im, const char *name)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	for (uint64_t off = 0; off < im->size_bytes; off += MIB)
		if (!bytes_all_zero(im->p + off, min_u64(MIB, im->size_bytes - off)))
			assert_true(pwrite(fd, im->p + off, min_u64(MIB, im->size_bytes - off),
					   (off_t)off) > 0);
	assert_int_equal(ftruncate(fd, (off_t)im->size_bytes), 0);
	close(fd);
}

/* Reads all of r, in pieces of any size, into a new file. */
static void reader_save(const struct blk_reader *r, const char *name)
{
	struct image im = { .size_bytes = blk_to_bytes(r->volume_blks) };

	im.p = mmap(NULL, im.size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	assert_true(im.p != MAP_FAILED);
	for (uint64_t blk = 0, n; blk < r->volume_blks; blk += n) {
		n = min_u64(1 + rnd(16), r->volume_blks - blk);
		assert_int_equal(r->read(r->ctx, blk, n, im.p + blk_to_bytes(blk)), 0);
	}
	image_save(&im, name);
	munmap(im.p, im.size_bytes);
}

static void images_compare(const struct replay *y, const struct image *before, const char *what)
{
	struct image ours, theirs;

	image_open(&ours, "ours");
	image_open(&theirs, "theirs");
	mask_super(ours.p);
	mask_super(theirs.p);
	for (uint64_t blk = 0, next = 0; blk < ours.r.volume_blks; blk++) {
		const uint8_t *p = ours.p + blk_to_bytes(blk), *q = theirs.p + blk_to_bytes(blk);

		if (blk > next || blk == 0)
			next = replay_next(y, blk);
		for (size_t i = 0; i < COW_BLK_BYTES; i++)
			if (p[i] != q[i])
				fail_msg("%s: unit %llu byte %zu: %02x, e2fsck %02x", what,
					 (unsigned long long)blk, i, p[i], q[i]);
		if (memcmp(p, before->p + blk_to_bytes(blk), COW_BLK_BYTES) && blk && blk != next)
			fail_msg("%s: unit %llu changes and is not announced", what,
				 (unsigned long long)blk);
	}
	image_close(&ours);
	image_close(&theirs);
}

/* Replays the journal of im, and e2fsck that of a copy. */
static void replay_compare(struct image *im, const char *what)
{
	struct blk_reader r;
	struct replay *y;
	int err;

	image_save(im, "theirs");
	assert_true(sh("e2fsck -y -E journal_only theirs") <= 1 << 8);
	err = replay_open(&y, &im->r);
	if (err)
		fail_msg("%s: %s", what, strerror(-err));
	r = replay_reader(y);
	reader_save(&r, "ours");
	if (sh("e2fsck -fn ours"))
		fail_msg("%s: not clean", what);
	images_compare(y, im, what);
	assert_int_equal(replay_open(&(struct replay *){ 0 }, &r), -ENOENT);
	replay_close(y);
}

/* ---- random journals ---- */

static void data_make(const struct maker *m, uint8_t *data, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t v = rnd(UINT64_MAX);

		for (size_t k = 0; k < m->bs; k += 8)
			memcpy(data + i * m->bs + k, &v, 8);
		if (rnd(4) == 0)
			memcpy(data + i * m->bs, "\xc0\x3b\x39\x98\0\0\0\2", 8);
	}
}

static void revokes_make(struct maker *m)
{
	uint64_t block[8];
	size_t n = 1 + rnd(8);

	for (size_t i = 0; i < n; i++)
		block[i] = m->target[rnd(m->targets > 60 ? 60 : m->targets)];
	maker_revoke(m, block, n);
}

/* The superblock, renamed, as a part of a transaction. */
static void super_write(struct maker *m, uint8_t *data)
{
	uint64_t block = m->bs == 1024;
	uint8_t *was = m->im.p + block * m->bs;
	struct ext2_super_block *sb = (void *)(data + (block ? 0 : 1024));

	memcpy(data, was, m->bs);
	snprintf((char *)sb->s_volume_name, 16, "t%u", m->seq);
	sb->s_mnt_count++;
	if (sb->s_feature_ro_compat & EXT4_FEATURE_RO_COMPAT_METADATA_CSUM)
		sb->s_checksum = ext2fs_crc32c_le(~0u, (void *)sb, 1020);
	maker_write(m, &block, data, 1);
}

static void transaction_make(struct maker *m, uint8_t *data)
{
	unsigned descriptors = 1 + (unsigned)rnd(3);

	if (rnd(2))
		revokes_make(m);
	if (rnd(8) == 0)
		super_write(m, data);
	while (descriptors--) {
		size_t n = 1 + rnd(min_u64(MAX_WRITES, maker_room(m)));
		uint64_t block[MAX_WRITES];

		data_make(m, data, n);
		/* few places, so that they are written and revoked again */
		for (size_t i = 0; i < n; i++)
			block[i] = m->target[rnd(rnd(2) ? 60 : m->targets)];
		maker_write(m, block, data, n);
		if (rnd(6) == 0)
			revokes_make(m);
	}
}

/* What was in the journal before: descriptors and commits of all kinds, and of the next transactions. */
static void stale_make(struct maker *m, uint8_t *data)
{
	struct maker old = *m;

	for (uint32_t i = 1; i < m->blocks; i += 1 + (uint32_t)rnd(4)) {
		old.pos = i;
		old.seq = m->seq - 1 - (uint32_t)rnd(300);
		data_make(&old, data, 1);
		if (rnd(3))
			maker_header(&old, 1 + (unsigned)rnd(6));
		maker_put(&old, rnd(3) ? m->p : data);
	}
}

static void journal_make(struct maker *m, const char *name, const struct layout *x)
{
	uint8_t *data;
	uint32_t start, blocks, left;

	maker_open(m, name, x->csum, x->is64, 1,
		   rnd(3) ? (uint32_t)rnd(100000) + 1 : UINT32_MAX - 3);
	blocks = m->blocks;
	maker_close(m);
	start = 1 + (uint32_t)rnd(blocks - 1);
	if (rnd(2)) /* it passes the end */
		start = blocks - 1 - (uint32_t)rnd(100);
	maker_open(m, name, x->csum, x->is64, start,
		   rnd(3) ? (uint32_t)rnd(100000) + 1 : UINT32_MAX - 3);
	data = malloc((size_t)MAX_WRITES * m->bs);
	stale_make(m, data);
	left = m->blocks - 200;
	for (unsigned n = (unsigned)rnd(20); n; n--) {
		uint32_t was = m->pos, used;

		transaction_make(m, data);
		maker_commit(m);
		used = m->pos >= was ? m->pos - was : m->pos + m->blocks - 1 - was;
		if (used + 200 > left)
			break;
		left -= used;
	}
	if (rnd(2))
		transaction_make(m, data); /* and no commit block */
	free(data);
}

static unsigned rounds_of(const struct layout *x)
{
	return strtoull(x->size, NULL, 10) > 100 ? 2 : 6;
}

TEST(test_layouts)
{
	unsigned known = 0;

	for (const struct layout *x = layouts; x < layouts + ARRAY_SIZE(layouts); x++) {
		if (!layout_make(x, x->name)) {
			print_message("SKIP: mke2fs refuses %s\n", x->name);
			continue;
		}
		known++;
		rnd_state = (uint64_t)(x - layouts) + 1;
		for (unsigned round = 0; round < rounds_of(x); round++) {
			struct maker m;
			char what[64];

			journal_make(&m, x->name, x);
			snprintf(what, sizeof(what), "%s, round %u", x->name, round);
			replay_compare(&m.im, what);
			maker_close(&m);
		}
		sh("rm -f %s ours theirs", x->name);
	}
	assert_true(known >= 18);
}

static int setup(void **state)
{
	(void)state;
	if (workdir_new("replay"))
		return -1;
	return sh("mkdir -p files/d && head -c 300000 /dev/urandom >files/a && echo b >files/d/b");
}

TEST_GROUP(setup, workdir_remove)
