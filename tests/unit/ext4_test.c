// SPDX-License-Identifier: MIT
/*
 * fsmap of ext2/3/4 against images of mke2fs. The oracle is e2fsprogs' own view: the free-block
 * lists of dumpe2fs and the journal's block map of debugfs, compared for every unit of the image.
 * No mounting, no root needed.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "fs/fsinfo.h"
#include "image.h"
#include "rnd.h"

/* of the jbd2 superblock, in an image of 1 KiB blocks */
static uint64_t jsb_offset(const struct image *im)
{
	for (uint64_t off = 0; off < im->size_bytes; off += 1024)
		if (!memcmp(im->p + off, "\xc0\x3b\x39\x98\0\0\0\4", 8))
			return off;
	fail_msg("no journal in %s", im->path);
	return 0;
}

/* ---- the oracle ---- */

struct oracle {
	uint64_t blocks, block_bytes, ratio, uninit_groups, free_blocks, journal_blocks,
		journal_meta;
	uint8_t *use; /* enum blk_use of each block of the file system */
};

static void oracle_header(struct oracle *o, const char *line)
{
	unsigned long long v;

	if (sscanf(line, "Block count: %llu", &v) == 1)
		o->blocks = v;
	if (sscanf(line, "Block size: %llu", &v) == 1)
		o->block_bytes = v;
	if (sscanf(line, "Cluster size: %llu", &v) == 1)
		o->ratio = v / o->block_bytes;
}

/* "  Free blocks: 4690-8192, 8200": of a bigalloc range, the first block of the last cluster
 * (e2fsprogs 1.47.0) or its last one (1.47.2) */
static void oracle_free(struct oracle *o, char *list)
{
	for (char *p = strtok(list, ", \n"); p; p = strtok(NULL, ", \n")) {
		unsigned long long first, last;

		if (sscanf(p, "%llu-%llu", &first, &last) != 2)
			last = first = strtoull(p, NULL, 10);
		if (last % o->ratio == 0)
			last += o->ratio - 1;
		for (uint64_t b = first; b <= last && b < o->blocks; b++, o->free_blocks++)
			o->use[b] = USE_FREE;
	}
}

static void oracle_journal(struct oracle *o, const char *name)
{
	FILE *f = sh_read("debugfs -R 'stat <8>' %s 2>/dev/null", name);
	char tok[256];

	while (fscanf(f, " %255[^ ,\n]", tok) == 1 || fscanf(f, "%*[,]") != EOF) {
		unsigned long long l0, l1, b;
		int n;

		if (!strncmp(tok, "(IND)", 5) || !strncmp(tok, "(DIND)", 6) ||
		    !strncmp(tok, "(ETB", 4))
			o->journal_meta++;
		n = sscanf(tok, "(%llu-%llu):%llu", &l0, &l1, &b);
		if (n != 3) {
			n = sscanf(tok, "(%llu):%llu", &l0, &b);
			l1 = l0;
		}
		if (n >= 2)
			for (uint64_t l = l0; l <= l1; l++, b++)
				if (l) {
					o->use[b] = USE_JOURNAL;
					o->journal_blocks++;
				}
		tok[0] = 0;
	}
	pclose(f);
}

static void oracle_read(struct oracle *o, const char *name)
{
	FILE *f = sh_read("dumpe2fs %s 2>/dev/null", name);
	_cleanup_free_ char *line = NULL;
	size_t alloc = 0;

	memset(o, 0, sizeof(*o));
	o->ratio = 1;
	while (getline(&line, &alloc, f) > 0) {
		if (!strncmp(line, "Group ", 6)) {
			if (!o->use)
				o->use = calloc(o->blocks, 1);
			o->uninit_groups += strstr(line, "BLOCK_UNINIT") != NULL;
		} else if (!o->use) {
			oracle_header(o, line);
		} else if (!strncmp(line, "  Free blocks: ", 15)) {
			oracle_free(o, line + 15);
		}
	}
	pclose(f);
	assert_non_null(o->use);
	oracle_journal(o, name);
}

static enum blk_use oracle_unit(const struct oracle *o, uint64_t blk)
{
	uint64_t first = blk_to_bytes(blk) / o->block_bytes;
	uint64_t n = o->block_bytes < COW_BLK_BYTES ? COW_BLK_BYTES / o->block_bytes : 1;

	if (first + n > o->blocks || !blk)
		return USE_USED;
	for (uint64_t i = 1; i < n; i++)
		if (o->use[first + i] != o->use[first])
			return USE_USED;
	return (enum blk_use)o->use[first];
}

/* From many places on, with many limits: what a run says is what each of its units is. */
static void runs_compare(struct fsmap *m, const struct image *im, const struct oracle *o)
{
	static const uint64_t steps[] = { 1, 7, 333, UINT64_MAX },
			      limits[] = { 1, 2, 60, UINT64_MAX };
	uint64_t runs = 0, changes = 0, n;
	enum blk_use use;

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		for (uint64_t blk = 0; blk < im->r.volume_blks; blk += min_u64(n, steps[i])) {
			assert_int_equal(fsmap_run(m, blk, limits[i], &use, &n), 0);
			assert_true(n >= 1 && n <= limits[i]);
			for (uint64_t b = blk; b < blk + n && b < im->r.volume_blks; b++)
				if (use != oracle_unit(o, b))
					fail_msg(
						"%s: unit %llu of run %llu+%llu is %d, e2fsprogs says %d",
						im->path, (unsigned long long)b,
						(unsigned long long)blk, (unsigned long long)n, use,
						oracle_unit(o, b));
		}
	for (uint64_t blk = 0; blk < im->r.volume_blks; blk += n, runs++)
		assert_int_equal(fsmap_run(m, blk, UINT64_MAX, &use, &n), 0);
	for (uint64_t blk = 1; blk < im->r.volume_blks; blk++)
		changes += oracle_unit(o, blk) != oracle_unit(o, blk - 1);
	/* and they are long: cut only at changes and at groups; units of small blocks may have
	 * several uses each */
	if (o->block_bytes == COW_BLK_BYTES && runs > 2 * changes + im->r.volume_blks / 512 + 3)
		fail_msg("%s: %llu runs for %llu changes in %llu units", im->path,
			 (unsigned long long)runs, (unsigned long long)changes,
			 (unsigned long long)im->r.volume_blks);
}

static void map_compare(struct image *im, const struct oracle *o, unsigned alarms)
{
	uint64_t seen[3] = { 0 };
	struct fsmap *m;
	enum blk_use use;

	assert_int_equal(fsmap_open(&m, &im->r), 0);
	assert_true(fsmap_knows(m));
	for (uint64_t blk = 0; blk < im->r.volume_blks; blk++) {
		assert_int_equal(fsmap_use(m, blk, &use), 0);
		if (use != oracle_unit(o, blk))
			fail_msg("%s: unit %llu is %d, e2fsprogs says %d", im->path,
				 (unsigned long long)blk, use, oracle_unit(o, blk));
		seen[use]++;
	}
	runs_compare(m, im, o);
	assert_true(seen[USE_USED] && seen[USE_FREE]);
	assert_true(!seen[USE_JOURNAL] == !o->journal_blocks);
	/* far out of range */
	static const uint64_t far[] = { 1ull << 32, 1ull << 52, UINT64_MAX };

	for (size_t i = 0; i < ARRAY_SIZE(far); i++) {
		assert_int_equal(fsmap_use(m, far[i], &use), 0);
		assert_int_equal(use, USE_USED);
	}
	assert_int_equal(fsmap_alarms(m), alarms);
	fsmap_close(m);
}

/* ---- configurations ---- */

static const struct config {
	const char *name, *size, *args;
	bool uninit, journal, journal_meta; /* what the image must contain to be worth the test */
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

static void test_configurations(void **state)
{
	unsigned uninit = 0, expected = 0;

	(void)state;
	for (const struct config *c = configs; c < configs + ARRAY_SIZE(configs); c++) {
		struct oracle o;
		struct image im;

		if (config_make(c)) {
			print_message("SKIP: mke2fs refuses %s\n", c->name);
			continue;
		}
		oracle_read(&o, c->name);
		/* which groups stay uninitialised depends on the version of mke2fs: some must */
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

/* A journal made late lies in many pieces: an extent tree with blocks of its own. */
static void test_fragmented_journal(void **state)
{
	struct oracle o;
	struct image im;

	(void)state;
	assert_int_equal(
		sh("truncate -s 20M frag && mke2fs -q -F -t ext4 -b 1024 -N 2048 -O "
		   "^has_journal frag && mkdir many && for i in $(seq 1500); do head -c 9000 "
		   "/dev/zero | tr '\\0' x >many/$i; done && (echo cd /; for i in $(seq "
		   "1500); do echo write many/$i f$i; done; for i in $(seq 1 2 1500); do echo "
		   "rm f$i; done) >frag.cmd && debugfs -w -f frag.cmd frag && tune2fs -O "
		   "has_journal -J size=4 frag"),
		0);
	oracle_read(&o, "frag");
	assert_true(o.journal_meta > 0 && o.journal_blocks > 4000);
	image_open(&im, "frag");
	map_compare(&im, &o, 0);
	image_close(&im);
	free(o.use);
}

static void small_image(const char *name, const char *args)
{
	assert_int_equal(
		sh("rm -f %s && truncate -s 40M %s && mke2fs -q -F -b 1024 %s -d files %s && "
		   "debugfs -w -f holes %s",
		   name, name, args, name, name),
		0);
}

static uint64_t units_of(struct fsmap *m, const struct image *im, enum blk_use want)
{
	uint64_t n = 0;
	enum blk_use use;

	for (uint64_t blk = 0; blk < im->r.volume_blks; blk++) {
		assert_int_equal(fsmap_use(m, blk, &use), 0);
		n += use == want;
	}
	return n;
}

/* Units that a commit of `name` over `before` leaves out as journal. */
static uint64_t left_out(const char *before, const char *name)
{
	struct image a, b;
	struct fsmap *old = NULL, *m;
	uint64_t n = 0, blks;
	enum blk_use use, one;

	if (before) {
		image_open(&a, before);
		assert_int_equal(fsmap_open(&old, &a.r), 0);
	}
	image_open(&b, name);
	assert_int_equal(fsmap_open(&m, &b.r), 0);
	for (uint64_t blk = 0; blk < b.r.volume_blks; blk += blks) {
		assert_int_equal(fsmap_run_after(m, old, blk, b.r.volume_blks - blk, &use, &blks),
				 0);
		for (uint64_t i = 0; i < blks; i++) {
			assert_int_equal(fsmap_use(m, blk + i, &one), 0);
			assert_true(one == use || (one == USE_JOURNAL && use == USE_USED));
		}
		n += use == USE_JOURNAL ? blks : 0;
	}
	fsmap_close(m);
	image_close(&b);
	if (before) {
		fsmap_close(old);
		image_close(&a);
	}
	return n;
}

/* Made anew, moved or larger: what the card has in its blocks is not its own past. */
static void test_journal_after(void **state)
{
	uint64_t all, part;

	(void)state;
	small_image("before", "-t ext4");
	/* three transactions: its number goes up */
	assert_int_equal(
		sh("cp before same; head -c 3000 /dev/urandom >payload; printf 'jo -c\\njw -b 30000-30002 "
		   "payload\\njc\\n' >jw; for i in 1 2 3; do debugfs -w -f jw before; e2fsck -fy before; done; "
		   "cp before after; tune2fs -O ^has_journal after; cp after none; tune2fs -j after"),
		0);
	all = left_out("before", "before");
	assert_true(all > 200);
	assert_int_equal(left_out("same", "before"), all);
	assert_int_equal(left_out("before", "after"), 0);
	assert_int_equal(left_out("none", "after"), 0);
	assert_int_equal(left_out(NULL, "before"), 0);
	/* the card's journal is not empty, or the card has no file system at all: nothing is known
	 * of it */
	assert_int_equal(sh("cp before dirty; debugfs -w -f jw dirty; truncate -s 40M blank"), 0);
	assert_int_equal(left_out("dirty", "before"), 0);
	assert_int_equal(left_out("blank", "before"), 0);
	/* one of another size: what both have */
	assert_int_equal(sh("tune2fs -O ^has_journal same; tune2fs -j same; cp same larger; "
			    "tune2fs -O ^has_journal larger; tune2fs -J size=8 larger"),
			 0);
	all = left_out("larger", "larger");
	part = left_out("same", "larger");
	assert_true(part > 0 && part < all);
	assert_int_equal(left_out("larger", "same"), part);
}

static void test_alarms(void **state)
{
	struct fsinfo f;
	struct fsmap *m;
	struct image im;

	(void)state;
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

static uint64_t field_of(const char *name, uint64_t group, const char *field)
{
	FILE *f = sh_read("dumpe2fs %s 2>/dev/null | sed -n '/^Group %d:/,/^Group %d:/s/.*%s at "
			  "\\([0-9]*\\).*/\\1/p'",
			  name, (int)group, (int)group + 1, field);
	unsigned long long v = 0;

	assert_int_equal(fscanf(f, "%llu", &v), 1);
	pclose(f);
	return v;
}

/* Damage spoils its group and no other; group g of the 1K images is blocks 1 + 8192 g onwards. */
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
	/* one run, up to the last unit that is wholly in the group */
	assert_int_equal(fsmap_run(m, group * 2048 + 10, UINT64_MAX, &use, &blks), 0);
	assert_int_equal(use, USE_USED);
	assert_in_range(blks, 2048 - 12, 2048 - 9);
	fsmap_close(m);
}

static void test_damage(void **state)
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

	(void)state;
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

/* A bitmap that calls everything free that is not in the file system, nor block 0: volumes that are
 * longer, and both ends of the bitmap. */
static void test_edges(void **state)
{
	static const struct {
		const char *args;
		uint64_t block_bytes, fs_blocks;
	} kinds[] = {
		{ "-t ext2 -b 4096", 4096, 10000 },
		{ "-t ext2 -b 1024", 1024, 40001 },
		{ "-t ext2 -b 65536 -g 65528", 65536, 1001 },
	};

	(void)state;
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

/* A damaged superblock, journal or an unknown feature: nothing free, and which alarm. */
static void test_spoiled_superblock(void **state)
{
	static const struct {
		size_t off;
		uint8_t mask;
		bool knows;
		unsigned alarms;
	} cases[] = {
		/* but for the first the checksum is right */
		{ 1024 + 0x100, 1, true, FSMAP_BAD_CHECKSUM },	 /* under the checksum only */
		{ 1024 + 0x07, 0x10, true, FSMAP_BAD_CHECKSUM }, /* more blocks than the volume */
		{ 1024 + 0x63, 0x40, false, 0 },		 /* unknown incompat feature */
		{ 1024 + 0x67, 0x40, false, 0 },		 /* unknown ro_compat feature */
		/* a journal's device, no file system */
		{ 1024 + 0x60, 0x08, false, 0 },
		{ 1024 + 0x153, 0x80, true,
		  FSMAP_BAD_CHECKSUM }, /* blocks without end, with 64bit */
		/* clusters of a group: not of eight */
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

	(void)state;
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
		/* one run for all */
		assert_int_equal(fsmap_run(m, 5, 1000, &use, &blks), 0);
		assert_true(use == USE_USED && blks == 1000);
		fsmap_close(m);
		image_close(&im);
	}
	fsmap_close(NULL);
}

/* Group 0 without a bitmap of its own: superblock, descriptors and boot sector are used all the
 * same. */
static void test_first_group_uninit(void **state)
{
	static const unsigned block_bytes[] = { 1024, 4096 };
	struct image im;
	struct fsmap *m;
	enum blk_use use;

	(void)state;
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

/* An inode table at the end of all numbers: nothing of it lies in the group, and it is not
 * walked. */
static void test_far_tables(void **state)
{
	struct image im;
	struct fsmap *m;
	uint64_t n;

	(void)state;
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

static void test_journal_damage(void **state)
{
	struct fsmap *m;
	struct image im;
	struct fsinfo f;

	(void)state;
	small_image("jdamage", "-t ext4");
	image_open(&im, "jdamage");
	im.p[jsb_offset(&im)] ^= 1;
	assert_int_equal(fsmap_open(&m, &im.r), 0);
	assert_int_equal(fsmap_alarms(m), FSMAP_BAD_CHECKSUM);
	assert_int_equal(units_of(m, &im, USE_JOURNAL), 0);
	assert_true(units_of(m, &im, USE_FREE) > 0);
	fsmap_close(m);
	image_close(&im);

	assert_int_equal(sh("debugfs -w -R 'ssv journal_inum 0' jdamage"), 0);
	image_open(&im, "jdamage"); /* as if the journal were on another device */
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_true(f.has_journal && f.external_journal && !f.journal_bytes);
	assert_int_equal(fsmap_open(&m, &im.r), 0);
	assert_int_equal(fsmap_alarms(m), 0);
	assert_int_equal(units_of(m, &im, USE_JOURNAL), 0);
	fsmap_close(m);
	image_close(&im);
}

static void put_be32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void expect_journal(struct image *im, bool known)
{
	struct fsmap *m;

	assert_int_equal(fsmap_open(&m, &im->r), 0);
	assert_int_equal(fsmap_alarms(m), known ? 0 : FSMAP_BAD_CHECKSUM);
	assert_true(known == (units_of(m, im, USE_JOURNAL) > 0));
	assert_true(units_of(m, im, USE_FREE) > 0);
	fsmap_close(m);
}

/* One field of the journal's superblock is strange: it is no journal then, or another kind of
 * one. */
static void test_journal_superblock(void **state)
{
	static const struct {
		size_t off;
		uint32_t value;
		bool good_csum, known;
	} cases[] = {
		{ 0x04, 3, false, true },      /* the first version */
		{ 0x04, 5, false, false },     /* not a superblock */
		{ 0x0c, 4096, false, false },  /* other blocks than the file system's */
		{ 0x10, 1, false, false },     /* no room for a log */
		{ 0x10, 39000, false, false }, /* longer than its file */
		{ 0x10, 60000, false, false }, /* longer than the file system, see below */
		{ 0x28, 0x08, false, false },  /* checksums of version 2: this is none */
		{ 0x28, 0x10, false, false },
		{ 0x28, 0x08, true, true },
		{ 0x28, 0x10, true, true },
		{ 0x28, 0x01, false, true }, /* revokes: no checksum */
	};
	struct image im;

	(void)state;
	small_image("jfield", "-t ext4");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint8_t *jsb;

		if (cases[i].value == 60000)
			assert_int_equal(sh("debugfs -w -R 'sif <8> size 100000000' jfield"), 0);
		image_open(&im, "jfield");
		jsb = im.p + jsb_offset(&im);
		put_be32(jsb + cases[i].off, cases[i].value);
		if (cases[i].good_csum)
			put_be32(jsb + 0xfc, ~crc32c(0, jsb, 1024));
		expect_journal(&im, cases[i].known);
		image_close(&im);
	}
}

/* The inode that should be the journal's is none, or leads nowhere. */
static void test_journal_inode(void **state)
{
	static const struct {
		const char *args, *command;
	} cases[] = {
		{ "-t ext4", "ssv journal_inum 99999" }, { "-t ext4", "sif <8> mode 040755" },
		{ "-t ext4", "sif <8> links_count 0" },	 { "-t ext4", "sif <8> block[0] 0" },
		{ "-t ext3", "sif <8> block[0] 0" },	 { "-t ext3", "sif <8> block[0] 4000000" },
		{ "-t ext3", "sif <8> block[5] 0" },	 { "-t ext3", "sif <8> block[IND] 0" },
	};
	struct image im;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		small_image("jinode", cases[i].args);
		image_open(&im, "jinode");
		expect_journal(&im, true);
		image_close(&im);
		assert_int_equal(sh("debugfs -w -R '%s' jinode", cases[i].command), 0);
		image_open(&im, "jinode");
		expect_journal(&im, false);
		image_close(&im);
	}
}

static uint64_t journal_block(const char *name, unsigned logical)
{
	FILE *f = sh_read("debugfs -R 'bmap <8> %u' %s 2>/dev/null", logical, name);
	unsigned long long v = 0;

	assert_int_equal(fscanf(f, "%llu", &v), 1);
	pclose(f);
	return v;
}

/* All is mapped, and looks like a journal. What is mapped decides. */
static void claim(const char *field, uint64_t block, bool known)
{
	struct image im;

	small_image("claim", "-t ext3");
	assert_int_equal(sh("debugfs -w -R 'sif <8> block[%s] %llu' claim", field,
			    (unsigned long long)block),
			 0);
	image_open(&im, "claim");
	expect_journal(&im, known);
	image_close(&im);
}

static void test_journal_claims(void **state)
{
	uint64_t table, ind;
	struct fsmap *m;
	struct image im;

	(void)state;
	small_image("claim", "-t ext3");
	table = field_of("claim", 4, "Inode table");
	assert_int_equal(field_of("claim", 3, "Inode table"), 24740);
	claim("5", 35000, true); /* of no file: the map cannot know */
	claim("5", field_of("claim", 4, "Block bitmap"), false);
	claim("5", field_of("claim", 1, "Inode bitmap"), false);
	claim("5", table, false);
	claim("5", table + 511, false);
	claim("5", table + 512, true);
	claim("5", 1, false);	     /* superblock */
	claim("5", 2, false);	     /* descriptors */
	claim("5", 8193 + 0, false); /* copies */
	claim("5", 24578, false);
	claim("5", 24579 + 20, false); /* room for more descriptors */
	claim("5", 40959, true);
	claim("5", 40960, false); /* outside */
	claim("5", journal_block("claim", 4), false);
	claim("5", journal_block("claim", 0), false);

	/* a block of the tree, right but for its place */
	for (int i = 0; i < 3; i++) {
		const uint64_t place[] = { 36000, table + 500, 36000 + (1u << 20) };

		small_image("claim", "-t ext3");
		image_open(&im, "claim");
		/* the first one lists the blocks from logical block 12 on */
		for (ind = 0; ind < 40960; ind++)
			if (!memcmp(im.p + ind * 1024,
				    &(uint32_t){ (uint32_t)journal_block("claim", 12) }, 4))
				break;
		image_close(&im);
		assert_true(ind < 40960);
		assert_int_equal(
			sh("dd if=claim of=claim bs=1024 count=1 skip=%llu seek=%llu conv=notrunc && "
			   "debugfs -w -R 'sif <8> block[IND] %llu' claim",
			   (unsigned long long)ind, (unsigned long long)place[i] % 40000,
			   (unsigned long long)place[i]),
			0);
		image_open(&im, "claim");
		expect_journal(&im, i == 0);
		image_close(&im);
	}

	/* an extent that begins in a table */
	small_image("claim", "-t ext4");
	table = field_of("claim", 4, "Inode table");
	assert_int_equal(
		sh("debugfs -w -R 'sif <8> block[5] %llu' claim", (unsigned long long)table + 100),
		0);
	image_open(&im, "claim");
	memcpy(im.p + (table + 100) * 1024, im.p + jsb_offset(&im), 1024);
	expect_journal(&im, false);
	image_close(&im);

	/* not everything is known: no alarm for a group that nobody asks about, but nothing is left
	 * out */
	small_image("claim", "-t ext4");
	image_open(&im, "claim");
	im.p[2048 + 4 * 64 + 12] ^= 1;
	assert_int_equal(fsmap_open(&m, &im.r), 0);
	assert_int_equal(fsmap_alarms(m), 0);
	assert_int_equal(units_of(m, &im, USE_JOURNAL), 0);
	assert_true(units_of(m, &im, USE_FREE) > 0);
	fsmap_close(m);
	image_close(&im);
}

/* Blocks read to open a map and to ask one block of each of n far groups. */
static void test_cost(void **state)
{
	struct fsmap *m;
	struct image im;
	enum blk_use use;
	uint64_t before;

	(void)state;
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
		if (err) { /* a failure is not remembered: the same question again is answered */
			again = err;
			assert_int_equal(fsmap_use(m, blk, &use), 0);
		}
		uses[blk] = (uint8_t)use;
	}
	assert_int_equal(fsmap_alarms(m), 0);
	fsmap_close(m);
	return again;
}

static void test_read_errors(void **state)
{
	static const char *const args[] = { "-t ext4", "-t ext3" };

	(void)state;
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
			assert_int_equal(err, -EIO);
			assert_memory_equal(uses, good, im.r.volume_blks);
		}
		image_close(&im);
	}
}

/* The same of runs: the error is told, and what comes after it is right. */
static void test_read_errors_in_runs(void **state)
{
	_cleanup_free_ uint8_t *good = NULL;
	uint64_t total = 0, errors = 0, blks;
	struct image im;
	struct fsmap *m, *before;
	enum blk_use use;

	(void)state;
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

/* ---- hostile images ---- */

/* whatever the answers are: they come, soon, and without a crash */
static void poke(struct image *im)
{
	struct fs_fingerprint fp;
	struct fsinfo f;
	struct fsmap *m;
	enum blk_use use;
	int err = fsinfo_probe(&im->r, &f);

	assert_true(err <= 0);
	err = fsinfo_fingerprint(&im->r, &fp);
	assert_true(err <= 0);
	err = fsmap_open(&m, &im->r);
	assert_true(err == 0 || err == -ENOMEM);
	if (err)
		return;
	for (int i = 0; i < 40; i++) {
		err = fsmap_use(m, rnd(im->r.volume_blks + 20), &use);
		assert_true(err == 0 || err == -ENOMEM);
	}
	assert_int_equal(fsmap_use(m, 0, &use), 0);
	assert_int_equal(use, USE_USED);
	fsmap_close(m);
}

static void fuzz_image(struct image *im, int rounds, uint64_t jinode, uint64_t jsb)
{
	const struct {
		uint64_t off, len;
	} places[] = {
		{ 1024, 0x180 }, { 2048, 320 }, { jinode, 128 }, { jsb, 64 }, { 1024, 0x70 }
	};

	for (int i = 0; i < rounds; i++) {
		uint64_t off[6];
		uint8_t old[6];
		int n = 1 + (int)(rnd(6));

		for (int k = 0; k < n; k++) {
			size_t at = rnd(ARRAY_SIZE(places));
			uint8_t *p;

			off[k] = places[at].off + rnd(places[at].len);
			p = im->p + off[k];
			old[k] = *p;
			switch (rnd(4)) {
			case 0:
				*p = (uint8_t)rnd(256);
				break;
			case 1:
				*p ^= (uint8_t)(1 << rnd(8));
				break;
			default:
				*p = rnd(2) ? 0xff : 0;
			}
		}
		uint32_t crc = ~crc32c(0, im->p + 1024, 1020), old_crc;

		memcpy(&old_crc, im->p + 2044, 4);
		memcpy(im->p + 2044, &crc, 4);
		poke(im);
		memcpy(im->p + 2044, &old_crc, 4);
		while (n--)
			im->p[off[n]] = old[n];
	}
}

static void test_fuzz(void **state)
{
	static const char *const args[] = { "-t ext3", "-t ext4 -O ^metadata_csum,^uninit_bg",
					    "-t ext4",
					    "-t ext4 -O ^metadata_csum,meta_bg,^resize_inode" };

	(void)state;
	for (size_t a = 0; a < ARRAY_SIZE(args); a++) {
		struct image im;
		uint64_t jinode;

		small_image("fuzz", args[a]);
		jinode = field_of("fuzz", 0, "Inode table") * 1024 + 7 * 256;
		image_open(&im, "fuzz");
		poke(&im);
		fuzz_image(&im, 1500, jinode, jsb_offset(&im));
		/* readers of every length, and a superblock of noise */
		for (uint64_t blks = 0; blks < 40; blks++) {
			im.r.volume_blks = blks;
			poke(&im);
		}
		im.r.volume_blks = im.size_bytes / 2 >> COW_BLK_SHIFT;
		poke(&im);
		im.r.volume_blks = im.size_bytes >> COW_BLK_SHIFT;
		for (int i = 0; i < 300; i++) {
			for (int k = 0; k < 1024; k++)
				im.p[1024 + k] = rnd(3) ? 0 : (uint8_t)rnd(256);
			memcpy(im.p + 1024 + 0x38, "\x53\xef", 2);
			if (i % 2) /* past the first checks of the library */
				memcpy(im.p + 1024 + 0x14, "\1\0\0\0\0\0\0\0\0\0\0\0", 12);
			poke(&im);
		}
		image_close(&im);
	}
}

/* An indirect block that points to itself as triple, double, single and data. */
static void test_cyclic_journal(void **state)
{
	struct image im;
	struct fsmap *m;
	uint64_t start;

	(void)state;
	small_image("cycle", "-t ext3");
	assert_int_equal(sh("printf 'sif <8> block[IND] 20000\\nsif <8> block[DIND] 20000\\n"
			    "sif <8> block[TIND] 20000\\nsif <8> size 30000000\\n' >cycle.cmd; "
			    "debugfs -w -f cycle.cmd cycle"),
			 0);
	image_open(&im, "cycle");
	for (uint32_t i = 0, block = 20000; i < 256; i++)
		memcpy(im.p + block * 1024 + i * 4ull, &block, 4);
	memcpy(im.p + jsb_offset(&im) + 16, "\0\0\x70\0", 4); /* s_maxlen */
	start = now_ns();
	assert_int_equal(fsmap_open(&m, &im.r), 0);
	assert_int_equal(fsmap_alarms(m), FSMAP_BAD_CHECKSUM);
	assert_int_equal(units_of(m, &im, USE_JOURNAL), 0);
	fsmap_close(m);
	assert_true(now_ns() - start < 5000000000ull);
	image_close(&im);
}

static void put_le32(struct image *im, uint64_t block, uint32_t index, uint32_t value)
{
	memcpy(im->p + block * 1024 + index * 4ull, &value, 4);
}

static void expect_spoiled_journal(struct image *im)
{
	uint64_t start = now_ns();
	struct fsmap *m;

	assert_int_equal(fsmap_open(&m, &im->r), 0);
	assert_int_equal(fsmap_alarms(m), FSMAP_BAD_CHECKSUM);
	assert_int_equal(units_of(m, im, USE_JOURNAL), 0);
	fsmap_close(m);
	assert_true(now_ns() - start < 5000000000ull);
}

/* Trees larger than any journal's: one that has 65536 empty indirect blocks, one whose 65792 blocks
 * lie all alone. */
static void test_endless_journal(void **state)
{
	struct image im;

	(void)state;
	small_image("endless", "-t ext3");
	assert_int_equal(
		sh("printf 'sif <8> block[TIND] 20000\\nsif <8> size 67381248\\n' >endless.cmd; "
		   "debugfs -w -f endless.cmd endless"),
		0);
	image_open(&im, "endless");
	memset(im.p + 20002 * 1024, 0, 1024);
	for (uint32_t i = 0; i < 256; i++) {
		put_le32(&im, 20000, i, 20001);
		put_le32(&im, 20001, i, 20002);
	}
	put_be32(im.p + jsb_offset(&im) + 0x10, 30000);
	expect_spoiled_journal(&im);
	image_close(&im);

	assert_int_equal(
		sh("truncate -s 128M pieces && mke2fs -q -F -t ext3 -b 1024 -O ^dir_index pieces && "
		   "printf 'sif <8> block[IND] 100300\\nsif <8> block[DIND] 100000\\nsif <8> size 67381248\\n' >pieces.cmd && "
		   "debugfs -w -f pieces.cmd pieces"),
		0);
	image_open(&im, "pieces");
	for (uint32_t i = 0; i < 256; i++) {
		put_le32(&im, 100300, i, 110000 - 2 * i);
		put_le32(&im, 100000, i, 100001 + i);
		for (uint32_t k = 0; k < 256; k++)
			put_le32(&im, 100001 + i, k, 99999 - i * 256 - k);
	}
	put_be32(im.p + jsb_offset(&im) + 0x10, 65802);
	expect_spoiled_journal(&im);
	image_close(&im);
}

static int setup(void **state)
{
	(void)state;
	if (workdir_new("ext4") < 0)
		return -1;
	alarm(1200); /* a hang is a failure: of a build for coverage or with a sanitizer, too */
	return sh("mkdir files && for i in $(seq 40); do head -c $((i * 3000)) /dev/urandom "
		  ">files/$i; done && for i in $(seq 1 3 40); do echo rm $i; done >holes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_configurations),
		cmocka_unit_test(test_fragmented_journal),
		cmocka_unit_test(test_alarms),
		cmocka_unit_test(test_journal_after),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_spoiled_superblock),
		cmocka_unit_test(test_first_group_uninit),
		cmocka_unit_test(test_far_tables),
		cmocka_unit_test(test_journal_damage),
		cmocka_unit_test(test_journal_superblock),
		cmocka_unit_test(test_journal_inode),
		cmocka_unit_test(test_journal_claims),
		cmocka_unit_test(test_cost),
		cmocka_unit_test(test_read_errors),
		cmocka_unit_test(test_read_errors_in_runs),
		cmocka_unit_test(test_fuzz),
		cmocka_unit_test(test_cyclic_journal),
		cmocka_unit_test(test_endless_journal),
	};

	return cmocka_run_group_tests(tests, setup, workdir_remove);
}
