// SPDX-License-Identifier: MIT
/*
 * fsmap of ext2/3/4 against images of mke2fs. The oracle is e2fsprogs' own view: the free-block
 * lists of dumpe2fs and the journal's block map of debugfs, compared for every unit of the image.
 * No mounting, no root needed.
 */
#include "test.h"
#include "base/crc32c.h"
#include "fs/fsinfo.h"
#include "image.h"
#include "fsmap_oracle.h"

/* ---- configurations ---- */

static const struct config {
	const char *name, *size, *args;
	bool uninit, journal, journal_meta; /* required content of the image */
} configs[] = {
	{ "ext4-4k", "64M", "-t ext4 -b 4096", false, true, false },
	{ "ext4-1k", "64M", "-t ext4 -b 1024", true, true, false },
	{ "ext4-2k-orphan", "96M", "-t ext4 -b 2048 -O orphan_file", true, true, false },
	{ "odd-end", "131069K", "-t ext4 -b 1024", true, true, false },
	{ "bigalloc-64k", "512M", "-t ext4 -b 4096 -O bigalloc -C 65536", false, true, false },
	{ "bigalloc-1k", "256M", "-t ext4 -b 1024 -O bigalloc -C 16384", false, true, false },
	{ "ext3-1k", "64M", "-t ext3 -b 1024 -O ^dir_index", false, true, true },
	{ "ext2-1k", "64M", "-t ext2 -b 1024", false, false, false },
	{ "ext2-4k", "64M", "-t ext2 -b 4096", false, false, false },
	{ "meta-bg", "256M", "-t ext4 -b 1024 -O meta_bg,^resize_inode", true, true, false },
	{ "meta-bg-ext3", "600M", "-t ext3 -b 1024 -O meta_bg,^resize_inode", false, true, true },
	{ "sparse-super2", "128M", "-t ext4 -b 1024 -O sparse_super2,^resize_inode", true, true,
	  false },
	{ "no-64bit", "128M", "-t ext4 -b 1024 -O ^64bit", true, true, false },
	{ "uninit-bg", "128M", "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg", true, true, false },
	{ "uninit-no-flex", "128M", "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^flex_bg", true,
	  true, false },
	{ "csum-seed", "128M", "-t ext4 -b 1024 -O metadata_csum_seed", true, true, false },
	{ "flex-4", "128M", "-t ext4 -b 1024 -G 4", true, true, false },
	{ "packed", "256M", "-t ext4 -b 1024 -E packed_meta_blocks=1", true, true, false },
	{ "no-resize", "2G", "-t ext4 -b 4096 -O ^resize_inode", true, true, false },
	{ "fast-commit", "128M", "-t ext4 -b 4096 -O fast_commit", false, true, false },
	{ "big-journal", "1G", "-t ext4 -b 4096 -J size=400", true, true, false },
	{ "mmp", "64M", "-t ext4 -b 4096 -O mmp", false, true, false },
	{ "block-64k", "1G", "-t ext4 -b 65536", false, true, false },
	{ "card-16g", "16G", "-t ext4 -b 4096", true, true, false },
};

/* Files with holes between them, in the image and in its bitmaps. */
static int config_make(const struct config *c)
{
	return sh("truncate -s %s %s && mke2fs -q -F -U 01234567-89ab-cdef-0123-456789abcdef %s -d "
		  "files %s && debugfs -w -f holes %s",
		  c->size, c->name, c->args, c->name, c->name);
}

TEST(test_configurations)
{
	unsigned uninit = 0, expected = 0;

	for (const struct config *c = configs; c < configs + ARRAY_SIZE(configs); c++) {
		struct oracle o;
		struct image im;

		if (config_make(c)) {
			print_message("SKIP: mke2fs refuses %s\n", c->name);
			continue;
		}
		oracle_read(&o, c->name);
		/* the version of mke2fs decides which groups stay uninitialised: some must */
		uninit += !!o.uninit_groups;
		expected += c->uninit;
		if (c->journal != !!o.journal_blocks || c->journal_meta != !!o.journal_meta ||
		    !o.free_blocks)
			fail_msg("%s is not what it is for: %llu uninit, %llu log, %llu meta",
				 c->name, (unsigned long long)o.uninit_groups,
				 (unsigned long long)o.journal_blocks,
				 (unsigned long long)o.journal_meta);
		image_open(&im, c->name);
		map_compare(&im, &o, 0);
		image_close(&im);
		free(o.use);
		assert_int_equal(sh("rm %s", c->name), 0);
	}
	assert_true(uninit >= 3 && uninit * 2 >= expected);
}

TEST(test_alarms)
{
	struct fsinfo f;
	struct fsmap *m;
	struct image im;

	small_image("alarm", "-t ext4");
	assert_int_equal(
		sh("head -c 3000 /dev/urandom >payload; printf 'jo -c\\njw -b 30000-30002 "
		   "payload\\njc\\n' >jw; debugfs -w -f jw alarm; debugfs -w -R 'ssv state 2' "
		   "alarm"),
		0);
	image_open(&im, "alarm");
	assert_int_equal(fsmap_open(&m, &im.r), 0);
	assert_int_equal(units_of(m, &im, USE_JOURNAL), 0); /* it has content */
	assert_true(units_of(m, &im, USE_FREE) > 0);
	assert_int_equal(fsmap_alarms(m), FSMAP_NEEDS_RECOVERY | FSMAP_ERROR_FLAG);
	fsmap_close(m);
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_true(f.needs_recovery && f.error_flag && !f.clean && f.has_journal);
	image_close(&im);

	/* s_start alone, the superblock's flag taken away */
	assert_int_equal(sh("debugfs -w -R 'feature -needs_recovery' alarm"), 0);
	image_open(&im, "alarm");
	assert_int_equal(fsmap_open(&m, &im.r), 0);
	assert_int_equal(fsmap_alarms(m), FSMAP_NEEDS_RECOVERY | FSMAP_ERROR_FLAG);
	fsmap_close(m);
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_true(f.needs_recovery);
	image_close(&im);
}

/* Damage affects its group and no other; group g of the 1K images is blocks 1 + 8192 g onwards. */
static void expect_bad_group(struct image *im, uint64_t group)
{
	struct fsmap *m;
	enum blk_use use;
	bool others = false;
	uint64_t blks;

	assert_int_equal(fsmap_open(&m, &im->r), 0);
	assert_int_equal(fsmap_alarms(m), 0);
	for (uint64_t blk = 0; blk < im->r.volume_blks; blk++) {
		assert_int_equal(fsmap_use(m, blk, &use), 0);
		if (blk >= group * 2048 && blk <= group * 2048 + 2048)
			assert_int_equal(use, USE_USED);
		else
			others |= use == USE_FREE;
	}
	assert_true(others);
	assert_int_equal(fsmap_alarms(m), FSMAP_BAD_CHECKSUM);
	/* one run, up to the last unit that lies completely in the group */
	assert_int_equal(fsmap_run(m, group * 2048 + 10, UINT64_MAX, &use, &blks), 0);
	assert_int_equal(use, USE_USED);
	assert_in_range(blks, 2048 - 12, 2048 - 9);
	fsmap_close(m);
}

TEST(test_damage)
{
	static const struct {
		const char *args;
		uint64_t desc_bytes;
		bool bitmap_csum, desc_csum;
	} kinds[] = {
		{ "-t ext4 -O ^flex_bg", 64, true, true },
		{ "-t ext4 -O ^flex_bg,^64bit", 32, true, true },
		{ "-t ext4 -O ^flex_bg,^metadata_csum,uninit_bg,^64bit", 32, false, true },
		{ "-t ext3", 32, false, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct image im;
		uint64_t loc, group;

		small_image("damage", kinds[i].args);
		image_open(&im, "damage");
		group = (jsb_offset(&im) / 1024 - 1) / 8192; /* so it is not UNINIT */
		loc = field_of("damage", group, "Block bitmap") * 1024;
		if (kinds[i].bitmap_csum) {
			im.p[loc + 700] ^= 4;
			expect_bad_group(&im, group);
			im.p[loc + 700] ^= 4;
		} else {
			memset(im.p + loc, 0, 1024);
			expect_bad_group(&im, group);
		}
		image_close(&im);
		image_open(&im, "damage");
		if (kinds[i].desc_csum) {
			im.p[2048 + 4 * kinds[i].desc_bytes + 12] ^= 1; /* bg_free_blocks_count */
			expect_bad_group(&im, 4);
		} else {
			memset(im.p + 2048 + 4 * kinds[i].desc_bytes, 0xff,
			       4); /* bitmap out of range */
			expect_bad_group(&im, 4);
		}
		image_close(&im);
	}
}

/* A bitmap that marks as free everything outside the file system, and block 0: longer volumes, and
 * both ends of the bitmap. */
TEST(test_edges)
{
	static const struct {
		const char *args;
		uint64_t block_bytes, fs_blocks;
	} kinds[] = {
		{ "-t ext2 -b 4096", 4096, 10000 },
		{ "-t ext2 -b 1024", 1024, 40001 },
		{ "-t ext2 -b 65536 -g 65528", 65536, 1001 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		uint64_t fs_bytes = kinds[i].block_bytes * kinds[i].fs_blocks, loc, used;
		struct image im;
		struct fsmap *m;
		enum blk_use use;

		assert_int_equal(
			sh("rm -f edges; mke2fs -q -F %s edges %lluK && truncate -s %llu edges",
			   kinds[i].args, (unsigned long long)fs_bytes / 1024,
			   (unsigned long long)fs_bytes / 4096 * 4096 + 300 * MIB),
			0);
		loc = field_of("edges", 0, "Block bitmap") * kinds[i].block_bytes;
		image_open(&im, "edges");
		assert_int_equal(fsmap_open(&m, &im.r), 0);
		used = units_of(m, &im, USE_USED);
		fsmap_close(m);
		if (kinds[i].block_bytes > 1024) {
			im.p[loc] &= 0xfe; /* block 0 */
			for (uint64_t b = kinds[i].fs_blocks; b < kinds[i].block_bytes * 8; b++)
				im.p[loc + b / 8] &= (uint8_t) ~(1 << b % 8);
		}
		assert_int_equal(fsmap_open(&m, &im.r), 0);
		assert_int_equal(units_of(m, &im, USE_USED), used);
		assert_int_equal(fsmap_use(m, 0, &use), 0);
		assert_int_equal(use, USE_USED);
		assert_int_equal(fsmap_use(m, fs_bytes / 4096 - 1, &use), 0);
		assert_int_equal(use, USE_FREE);
		for (uint64_t blk = fs_bytes / 4096; blk < im.r.volume_blks; blk++) {
			assert_int_equal(fsmap_use(m, blk, &use), 0);
			assert_int_equal(use, USE_USED);
		}
		assert_int_equal(fsmap_alarms(m), 0);
		fsmap_close(m);
		image_close(&im);
	}
}

/* A damaged superblock, damaged journal or unknown feature: no block is free, and the expected
 * alarm. */
TEST(test_spoiled_superblock)
{
	static const struct {
		size_t off;
		uint8_t mask;
		bool knows;
		unsigned alarms;
	} cases[] = {
		/* except for the first one the checksum is right */
		{ 1024 + 0x100, 1, true, FSMAP_BAD_CHECKSUM },	 /* under the checksum only */
		{ 1024 + 0x07, 0x10, true, FSMAP_BAD_CHECKSUM }, /* more blocks than the volume */
		{ 1024 + 0x63, 0x40, false, 0 },		 /* unknown incompat feature */
		{ 1024 + 0x67, 0x40, false, 0 },		 /* unknown ro_compat feature */
		/* a journal's device, not a file system */
		{ 1024 + 0x60, 0x08, false, 0 },
		{ 1024 + 0x153, 0x80, true,
		  FSMAP_BAD_CHECKSUM }, /* a huge number of blocks, with 64bit */
		/* clusters of a group: not a multiple of eight */
		{ 1024 + 0x24, 0x04, true, FSMAP_BAD_CHECKSUM },
		/* more of them than a bitmap holds */
		{ 1024 + 0x25, 0x40, true, FSMAP_BAD_CHECKSUM },
		/* more inodes than a bitmap holds */
		{ 1024 + 0x29, 0x80, true, FSMAP_BAD_CHECKSUM },
		{ 1024 + 0xFE, 0x20, true, FSMAP_BAD_CHECKSUM }, /* descriptors of 96 bytes */
		/* descriptors larger than a block */
		{ 1024 + 0xFF, 0x40, true, FSMAP_BAD_CHECKSUM },
		{ 1024 + 0x174, 0x20, true, FSMAP_BAD_CHECKSUM }, /* flex groups of 2^36 */
		{ 1024 + 0x14, 0x02, true, FSMAP_BAD_CHECKSUM },  /* the first data block is 3 */
	};
	struct fsmap *m;
	struct image im;
	enum blk_use use;
	uint64_t blks;

	small_image("super", "-t ext4");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		image_open(&im, "super");
		im.p[cases[i].off] ^= cases[i].mask;
		if (i) {
			uint32_t crc = ~crc32c(0, im.p + 1024, 1020);

			memcpy(im.p + 2044, &crc, 4);
		}
		assert_int_equal(fsmap_open(&m, &im.r), 0);
		assert_int_equal(fsmap_knows(m), cases[i].knows);
		assert_int_equal(fsmap_alarms(m), cases[i].alarms);
		assert_int_equal(units_of(m, &im, USE_USED), im.r.volume_blks);
		/* a single run */
		assert_int_equal(fsmap_run(m, 5, 1000, &use, &blks), 0);
		assert_true(use == USE_USED && blks == 1000);
		fsmap_close(m);
		image_close(&im);
	}
	fsmap_close(NULL);
}

/* Group 0 without a bitmap of its own: superblock, descriptors and boot sector still count as
 * used. */
TEST(test_first_group_uninit)
{
	static const unsigned block_bytes[] = { 1024, 4096 };
	struct image im;
	struct fsmap *m;
	enum blk_use use;

	for (size_t i = 0; i < ARRAY_SIZE(block_bytes); i++) {
		uint64_t units = 8ull * block_bytes[i] * block_bytes[i] / COW_BLK_BYTES, n = 0;

		assert_int_equal(
			sh("rm -f first; truncate -s 300M first && mke2fs -q -F -t ext4 -b %u -N 1024 first && "
			   "printf 'set_bg 0 flags 2\\nset_bg 0 checksum calc\\n' >first.cmd && "
			   "debugfs -w -f first.cmd first",
			   block_bytes[i]),
			0);
		image_open(&im, "first");
		assert_int_equal(fsmap_open(&m, &im.r), 0);
		/* boot sector, superblock, descriptors */
		for (uint64_t blk = 0; blk < 2 + i; blk++) {
			assert_int_equal(fsmap_use(m, blk, &use), 0);
			assert_int_equal(use, USE_USED);
		}
		for (uint64_t blk = 0; blk < units; blk++) {
			assert_int_equal(fsmap_use(m, blk, &use), 0);
			n += use == USE_FREE;
		}
		assert_in_range(n, units / 4, units - 2);
		assert_int_equal(fsmap_alarms(m), 0);
		fsmap_close(m);
		image_close(&im);
	}
}

/* An inode table at the highest numbers: no part of it lies in the group, and it is not walked. */
TEST(test_far_tables)
{
	struct image im;
	struct fsmap *m;
	uint64_t n;

	small_image("far", "-t ext4 -O ^metadata_csum,^uninit_bg,^flex_bg,64bit");
	image_open(&im, "far");
	assert_int_equal(fsmap_open(&m, &im.r), 0);
	n = units_of(m, &im, USE_FREE);
	fsmap_close(m);
	memset(im.p + 2048 + 3 * 64 + 0x08, 0xff, 4); /* bg_inode_table, both halves, of group 3 */
	memset(im.p + 2048 + 3 * 64 + 0x28, 0xff, 4);
	assert_int_equal(fsmap_open(&m, &im.r), 0);
	assert_int_equal(units_of(m, &im, USE_FREE), n);
	assert_int_equal(fsmap_alarms(m), 0);
	fsmap_close(m);
	image_close(&im);
}

/* Blocks read to open a map and to ask for one block of each of n far groups. */
TEST(test_cost)
{
	struct fsmap *m;
	struct image im;
	enum blk_use use;
	uint64_t before;

	assert_int_equal(sh("truncate -s 16G cost && mke2fs -q -F -t ext4 cost"), 0);
	image_open(&im, "cost");
	assert_int_equal(fsmap_open(&m, &im.r), 0);
	print_message("16 GiB: open reads %llu units\n", (unsigned long long)im.units);
	assert_true(im.units <= 12);
	before = im.units;
	for (uint64_t g = 20; g < 120; g++)
		assert_int_equal(fsmap_use(m, g * 32768 + 1000, &use), 0);
	print_message("16 GiB: 100 groups read %llu units more\n",
		      (unsigned long long)(im.units - before));
	assert_true(im.units - before <= 110);
	before = im.units;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(fsmap_use(m, 119 * 32768 + (uint64_t)i, &use), 0);
	assert_int_equal(im.units, before);
	fsmap_close(m);
	image_close(&im);

	/* 16 groups stay decoded */
	assert_int_equal(
		sh("rm cost && truncate -s 512M cost && mke2fs -q -F -t ext2 -b 1024 cost"), 0);
	image_open(&im, "cost");
	assert_int_equal(fsmap_open(&m, &im.r), 0);
	for (uint64_t i = 0; i < 32; i++) {
		before = i == 16 ? im.units : before;
		assert_int_equal(fsmap_use(m, i % 16 * 2048 + 1000, &use), 0);
	}
	assert_int_equal(im.units, before);
	fsmap_close(m);
	image_close(&im);
}

static int sweep_run(struct image *im, uint8_t *uses)
{
	struct fs_fingerprint fp;
	struct fsinfo f;
	struct fsmap *m;
	enum blk_use use;
	int err = fsinfo_probe(&im->r, &f), again = 0;

	if (!err)
		err = fsinfo_fingerprint(&im->r, &fp);
	if (err)
		return err;
	err = fsmap_open(&m, &im->r);
	if (err)
		return err;
	for (uint64_t blk = 0; blk < im->r.volume_blks; blk++) {
		err = fsmap_use(m, blk, &use);
		if (err) { /* a failure is not kept: the same question succeeds later */
			again = err;
			assert_int_equal(fsmap_use(m, blk, &use), 0);
		}
		uses[blk] = (uint8_t)use;
	}
	assert_int_equal(fsmap_alarms(m), 0);
	fsmap_close(m);
	return again;
}

TEST(test_read_errors)
{
	static const char *const args[] = { "-t ext4", "-t ext3" };

	for (size_t a = 0; a < ARRAY_SIZE(args); a++) {
		_cleanup_free_ uint8_t *good = NULL, *uses = NULL;
		struct image im;
		uint64_t total;

		small_image("eio", args[a]);
		image_open(&im, "eio");
		good = malloc(im.r.volume_blks);
		uses = malloc(im.r.volume_blks);
		assert_int_equal(sweep_run(&im, good), 0);
		total = im.calls;
		for (uint64_t n = 1; n <= total; n++) {
			int err;

			im.calls = 0;
			im.fail_at = n;
			memcpy(uses, good, im.r.volume_blks);
			err = sweep_run(&im, uses);
			/* where btrfs would have its superblock */
			assert_true(err == -EIO || (!err && im.failed_blk == 16));
			assert_memory_equal(uses, good, im.r.volume_blks);
		}
		image_close(&im);
	}
}

/* The same for runs: the error is returned, and answers after it are right. */
TEST(test_read_errors_in_runs)
{
	_cleanup_free_ uint8_t *good = NULL;
	uint64_t total = 0, errors = 0, blks;
	struct image im;
	struct fsmap *m, *before;
	enum blk_use use;

	small_image("eior", "-t ext2");
	image_open(&im, "eior");
	good = malloc(im.r.volume_blks);
	assert_int_equal(sweep_run(&im, good), 0);
	for (uint64_t n = 0; n <= total; n++) {
		im.fail_at = 0;
		assert_int_equal(fsmap_open(&m, &im.r), 0);
		assert_int_equal(fsmap_open(&before, &im.r), 0);
		im.calls = 0;
		im.fail_at = n;
		for (uint64_t blk = 0; blk < im.r.volume_blks; blk += blks) {
			int err = fsmap_run_after(m, before, blk, UINT64_MAX, &use, &blks);

			if (err) {
				assert_int_equal(err, -EIO);
				errors++;
				assert_int_equal(
					fsmap_run_after(m, before, blk, UINT64_MAX, &use, &blks),
					0);
			}
			for (uint64_t b = blk; b < blk + blks && b < im.r.volume_blks; b++)
				assert_int_equal(use, good[b]);
		}
		total = n ? total : im.calls;
		fsmap_close(m);
		fsmap_close(before);
	}
	assert_true(total > 4);
	assert_int_equal(errors, total);
	/* beyond the end */
	im.fail_at = 0;
	assert_int_equal(fsmap_open(&m, &im.r), 0);
	assert_int_equal(fsmap_run(m, im.r.volume_blks + 3, 10, &use, &blks), 0);
	assert_true(use == USE_USED && blks == 1);
	fsmap_close(m);
	image_close(&im);
}

/* A volume that ends anywhere before its file system: nothing behind the end is read, and no block is free. */
TEST(test_short_volume)
{
	struct fs_fingerprint fp;
	struct fsinfo f;
	struct image im;
	struct fsmap *m;

	small_image("short", "-t ext4");
	image_open(&im, "short");
	for (uint64_t blks = 0; blks <= 40; blks++) {
		im.r.volume_blks = blks < 40 ? blks : im.size_bytes / 2 >> COW_BLK_SHIFT;
		assert_int_equal(fsinfo_probe(&im.r, &f), 0);
		assert_int_equal(fsinfo_fingerprint(&im.r, &fp), 0);
		assert_int_equal(fsmap_open(&m, &im.r), 0);
		assert_int_equal(units_of(m, &im, USE_USED), im.r.volume_blks);
		fsmap_close(m);
	}
	image_close(&im);
}

TEST_GROUP(setup, workdir_remove)
