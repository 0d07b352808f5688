// SPDX-License-Identifier: MIT
/* fsmap of ext2/3/4: the journal, wherever it lies or claims to lie, intact or damaged. */
#include "test.h"
#include "base/crc32c.h"
#include "fs/fsinfo.h"
#include "image.h"
#include "fsmap_oracle.h"

/* ---- configurations ---- */

/* A journal made late lies in many pieces: an extent tree with its own blocks. */
TEST(test_fragmented_journal)
{
	struct oracle o;
	struct image im;

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

/* Made again, moved or enlarged: the content of its blocks on the card is not its own past. */
TEST(test_journal_after)
{
	uint64_t all, part;

	small_image("before", "-t ext4");
	/* three transactions: its number grows */
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
	/* the card's journal is not empty, or the card has no file system: nothing is known about
	 * it */
	assert_int_equal(sh("cp before dirty; debugfs -w -f jw dirty; truncate -s 40M blank"), 0);
	assert_int_equal(left_out("dirty", "before"), 0);
	assert_int_equal(left_out("blank", "before"), 0);
	/* one of another size: the common part */
	assert_int_equal(sh("tune2fs -O ^has_journal same; tune2fs -j same; cp same larger; "
			    "tune2fs -O ^has_journal larger; tune2fs -J size=8 larger"),
			 0);
	all = left_out("larger", "larger");
	part = left_out("same", "larger");
	assert_true(part > 0 && part < all);
	assert_int_equal(left_out("larger", "same"), part);
}

TEST(test_journal_damage)
{
	struct fsmap *m;
	struct image im;
	struct fsinfo f;

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

/* One field of the journal's superblock is invalid: then it is no journal, or another kind of
 * one. */
TEST(test_journal_superblock)
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

/* The inode of the journal is not one, or leads nowhere. */
TEST(test_journal_inode)
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

/* Everything is mapped, and looks like a journal. The mapped blocks decide. */
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

TEST(test_journal_claims)
{
	uint64_t table, ind;
	struct fsmap *m;
	struct image im;

	small_image("claim", "-t ext3");
	table = field_of("claim", 4, "Inode table");
	assert_int_equal(field_of("claim", 3, "Inode table"), 24740);
	claim("5", 35000, true); /* in no file: the map cannot know */
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

	/* a block of the tree, right except for its place */
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

	/* not everything is known: no alarm for a group that is not read, but no block is left
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

/* ---- hostile images ---- */

/* An indirect block that points to itself as triple, double, single and data. */
TEST(test_cyclic_journal)
{
	struct image im;
	struct fsmap *m;

	small_image("cycle", "-t ext3");
	assert_int_equal(sh("printf 'sif <8> block[IND] 20000\\nsif <8> block[DIND] 20000\\n"
			    "sif <8> block[TIND] 20000\\nsif <8> size 30000000\\n' >cycle.cmd; "
			    "debugfs -w -f cycle.cmd cycle"),
			 0);
	image_open(&im, "cycle");
	for (uint32_t i = 0, block = 20000; i < 256; i++)
		memcpy(im.p + block * 1024 + i * 4ull, &block, 4);
	memcpy(im.p + jsb_offset(&im) + 16, "\0\0\x70\0", 4); /* s_maxlen */
	assert_int_equal(fsmap_open(&m, &im.r), 0);
	assert_int_equal(fsmap_alarms(m), FSMAP_BAD_CHECKSUM);
	assert_int_equal(units_of(m, &im, USE_JOURNAL), 0);
	fsmap_close(m);
	assert_in_range(im.calls, 1, 1000);
	image_close(&im);
}

static void put_le32(struct image *im, uint64_t block, uint32_t index, uint32_t value)
{
	memcpy(im->p + block * 1024 + index * 4ull, &value, 4);
}

static void expect_spoiled_journal(struct image *im)
{
	struct fsmap *m;

	assert_int_equal(fsmap_open(&m, &im->r), 0);
	assert_int_equal(fsmap_alarms(m), FSMAP_BAD_CHECKSUM);
	assert_int_equal(units_of(m, im, USE_JOURNAL), 0);
	fsmap_close(m);
	assert_in_range(im->calls, 1, 70000);
}

/* Trees larger than any journal's: one with 65536 empty indirect blocks, one whose 65792 blocks are
 * all isolated. */
TEST(test_endless_journal)
{
	struct image im;

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

TEST_GROUP(setup, workdir_remove)
