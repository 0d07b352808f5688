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
	{ "bigalloc", "96M", "-t ext4 -b 4096 -O bigalloc -C 65536 -J size=4", 3, true },
	{ "meta-bg", "64M", "-t ext4 -b 1024 -O meta_bg,^resize_inode -J size=8", 3, true },
	{ "no-flex", "64M", "-t ext4 -b 2048 -O ^flex_bg -J size=16", 3, true },
	{ "block-64k", "200M", "-t ext4 -b 65536 -J size=64", 3, true },
	{ "journal-128m", "300M", "-t ext4 -b 4096 -J size=128", 3, true },
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

	sb->s_feature_ro_compat &= ~0x10000u; /* orphan_present, of an orphan file that is empty */
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
	err = replay_open(&y, &im->r, NULL);
	if (err)
		fail_msg("%s: %s", what, strerror(-err));
	r = replay_reader(y);
	reader_save(&r, "ours");
	if (sh("e2fsck -fn ours"))
		fail_msg("%s: not clean", what);
	images_compare(y, im, what);
	assert_int_equal(replay_open(&(struct replay *){ 0 }, &r, NULL), -ENOENT);
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
	if (!strcmp(name, "orphan-file")) {
		((struct ext2_super_block *)(m->im.p + 1024))->s_feature_ro_compat |= 0x10000;
		maker_seal_super(m);
	}
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
	return strtoull(x->size, NULL, 10) > 100 ? 1 : 3;
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

/* The map of the image itself is that of the replayed one; its journal is content. */
static void maps_compare(const struct image *im, const char *what)
{
	struct blk_reader r;
	struct replay *y;
	struct fsmap *raw, *clean;
	uint64_t units[3] = { 0 };

	assert_int_equal(replay_open(&y, &im->r, NULL), 0);
	r = replay_reader(y);
	assert_int_equal(fsmap_open(&raw, &im->r), 0);
	assert_int_equal(fsmap_open(&clean, &r), 0);
	for (uint64_t blk = 0; blk < r.volume_blks; blk++) {
		enum blk_use a, b;

		assert_int_equal(fsmap_use(raw, blk, &a), 0);
		assert_int_equal(fsmap_use(clean, blk, &b), 0);
		units[b]++;
		if (a != (b == USE_JOURNAL ? USE_USED : b))
			fail_msg("%s: unit %llu", what, (unsigned long long)blk);
	}
	assert_true(units[USE_USED] && units[USE_FREE] > 50 && units[USE_JOURNAL] > 50);
	assert_true(fsmap_knows(raw) && fsmap_knows(clean));
	assert_true(fsmap_replayed(raw) && !fsmap_replayed(clean));
	assert_int_equal(fsmap_alarms(raw), FSMAP_NEEDS_RECOVERY);
	assert_int_equal(fsmap_alarms(clean), 0);
	fsmap_close(raw);
	fsmap_close(clean);
	replay_close(y);
}

/* A file is deleted by the journal only, and its blocks are free in the maps. */
TEST(test_maps)
{
	static const char *const args[] = { "-t ext4 -b 4096 -J size=4",
					    "-t ext3 -b 1024 -J size=4",
					    "-t ext4 -b 1024 -O ^metadata_csum -J size=4" };

	for (size_t i = 0; i < ARRAY_SIZE(args); i++) {
		const unsigned csum = i == 0 ? 3 : 0;
		struct image after;
		struct maker m;
		uint64_t block[MAX_WRITES];
		uint8_t *data;
		size_t n = 0;

		assert_int_equal(
			sh("rm -f map after && truncate -s 32M map && mke2fs -q -F -d files %s map && "
			   "cp map after && debugfs -w -R 'rm a' after && e2fsck -fy after; [ $? -le 1 ]",
			   args[i]),
			0);
		image_open(&after, "after");
		maker_open(&m, "map", csum, i == 0, 7, 99);
		data = malloc((size_t)MAX_WRITES * m.bs);
		for (uint64_t b = m.bs == 1024 ? 2 : 1; b < after.size_bytes / m.bs; b++)
			if (memcmp(after.p + b * m.bs, m.im.p + b * m.bs, m.bs) &&
			    b != m.where[0]) {
				assert_true(n < MAX_WRITES);
				memcpy(data + n * m.bs, after.p + b * m.bs, m.bs);
				block[n++] = b;
			}
		maker_write(&m, block, data, n);
		maker_commit(&m);
		free(data);
		maps_compare(&m.im, args[i]);
		image_close(&after);
		maker_close(&m);
	}
}

/* ---- journals that are damaged or crafted ---- */

/* A journal of three transactions in dir/name; their first blocks are those of *target. */
static void three_make(struct maker *m, unsigned csum, bool is64, uint8_t *commit[3])
{
	uint8_t data[2 * 4096];

	maker_open(m, csum >= 2 ? "with-csum" : "without", csum, is64, 50, 1000);
	for (unsigned i = 0; i < 3; i++) {
		maker_revoke(m, m->target + 10, 1);
		data_make(m, data, 2);
		maker_write(m, m->target + i, data, 2);
		commit[i] = maker_commit(m);
	}
}

static int three_open_after(struct maker *m, const struct replay_mark *before,
			    struct replay_mark *ret_mark, uint64_t *ret_units)
{
	struct replay *y = NULL;
	int err = replay_open(&y, &m->im.r, before);

	*ret_units = 0;
	for (uint64_t blk = 0; !err && (blk = replay_next(y, blk)) != UINT64_MAX; blk++)
		++*ret_units;
	if (!err && ret_mark)
		err = replay_mark(y, ret_mark);
	replay_close(y);
	return err;
}

/* Opens what a change of one place makes of it. */
static int three_open(struct maker *m, uint64_t *ret_units)
{
	return three_open_after(m, NULL, NULL, ret_units);
}

static uint8_t *journal_block(struct maker *m, uint32_t n)
{
	return m->im.p + m->where[n] * m->bs;
}

/* A transaction: revoke block 50, descriptor 51, content 52 and 53, commit 54; the next at 55, 60. */
TEST(test_damage)
{
	static const struct {
		const char *what;
		unsigned csum, block, off, bits;
		int err;
		unsigned transactions; /* that are replayed */
	} cases[] = {
		{ "nothing, v3", 3, 0, 3000, 0, 0, 3 },
		{ "nothing, v2", 2, 0, 3000, 0, 0, 3 },
		{ "nothing, v1", 1, 0, 3000, 0, 0, 3 },
		{ "nothing, none", 0, 0, 3000, 0, 0, 3 },
		{ "revoke, v3", 3, 55, 17, 1, -EUCLEAN, 0 },
		{ "descriptor, v3", 3, 56, 20, 1, -EUCLEAN, 0 },
		{ "content, v3", 3, 57, 4000, 1, -EUCLEAN, 0 },
		{ "commit, v3", 3, 59, 3000, 1, -EUCLEAN, 0 },
		{ "descriptor, v2", 2, 56, 20, 1, -EUCLEAN, 0 },
		{ "content, v2", 2, 58, 100, 4, -EUCLEAN, 0 },
		{ "commit, v2", 2, 59, 3000, 1, -EUCLEAN, 0 },
		{ "descriptor, v1", 1, 56, 3000, 1, -EUCLEAN, 0 },
		{ "content, v1", 1, 57, 3000, 1, -EUCLEAN, 0 },
		{ "commit, v1", 1, 59, 17, 1, -EUCLEAN, 0 },
		{ "content, none", 0, 57, 3000, 1, 0, 3 },
		{ "count of revokes", 0, 55, 12, 0x80, -EUCLEAN, 0 },
		{ "target outside", 0, 56, 12, 0x7f, -EUCLEAN, 0 },
		{ "sequence of a descriptor", 3, 56, 11, 1, 0, 1 },
		{ "sequence of a commit", 3, 59, 11, 1, 0, 1 },
		{ "magic of a commit", 3, 64, 0, 1, 0, 2 },
		{ "kind of a revoke block", 3, 60, 7, 8, 0, 2 },
		/* the last commit has an earlier time than the one before: left by another file system */
		{ "old revoke", 3, 60, 17, 1, 0, 2 },
		{ "old descriptor", 3, 61, 20, 1, 0, 2 },
		{ "old commit", 3, 64, 3000, 1, 0, 2 },
		{ "old commit, v1", 1, 64, 17, 1, 0, 2 },
		/* the superblock of the journal, with a checksum that is right */
		{ "first block 0", 3, 0, 23, 1, -EUCLEAN, 0 },
		{ "first block too large", 3, 0, 20, 1, -EUCLEAN, 0 },
		{ "start too large", 3, 0, 28, 1, -EUCLEAN, 0 },
		{ "async commits", 3, 0, 43, 4, -EOPNOTSUPP, 0 },
		{ "fast commits", 3, 0, 43, 32, -EOPNOTSUPP, 0 },
		{ "unknown incompat", 3, 0, 40, 1, -EOPNOTSUPP, 0 },
		{ "unknown ro_compat", 3, 0, 47, 1, -EOPNOTSUPP, 0 },
		{ "v2 and v3", 3, 0, 43, 8, -EUCLEAN, 0 },
		{ "v1 and v3", 3, 0, 39, 1, -EUCLEAN, 0 },
		{ "kind of checksum", 3, 0, 80, 1, -EUCLEAN, 0 },
		{ "blocksize", 3, 0, 14, 1, -EUCLEAN, 0 },
	};

	assert_true(
		layout_make(&(struct layout){ .size = "32M", .args = "-t ext4 -b 4096 -J size=4" },
			    "with-csum") &&
		layout_make(&(struct layout){ .size = "32M", .args = "-t ext3 -b 4096 -J size=4" },
			    "without"));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint8_t *commit[3];
		struct maker m;
		uint64_t units, all;
		int err;

		three_make(&m, cases[i].csum, cases[i].csum >= 2, commit);
		assert_int_equal(three_open(&m, &all), 0);
		assert_int_equal(all, 2 + 4);
		if (!strncmp(cases[i].what, "old", 3)) {
			be_set(commit[2] + 48, 0, 8, 1600000000);
			if (m.csum == 3) { /* right again, but for the damage */
				be_set(commit[2] + 16, 0, 4, 0);
				be_set(commit[2] + 16, 0, 4,
				       ext2fs_crc32c_le(m.seed, commit[2], m.bs));
			}
		}
		journal_block(&m, cases[i].block)[cases[i].off] ^= (uint8_t)cases[i].bits;
		if (!cases[i].block)
			maker_seal_jsb(&m);
		err = three_open(&m, &units);
		if (err != cases[i].err ||
		    (!err && units != 2 + (cases[i].transactions ? cases[i].transactions + 1 : 0)))
			fail_msg("%s: %d, %d expected, %llu units", cases[i].what, err,
				 cases[i].err, (unsigned long long)units);
		maker_close(&m);
	}
}

/* A write over the journal itself; a log that fills it, and a descriptor whose blocks do not end. */
TEST(test_crafted)
{
	uint8_t *commit[3], *data = calloc(40, 4096);
	struct maker m;
	uint64_t units, block[MAX_WRITES];

	for (unsigned n = 0; n < 3; n++) { /* its superblock, one inside, its end */
		three_make(&m, 0, false, commit);
		block[0] = m.where[n == 0 ? 0 : n == 1 ? 400 : m.blocks - 1];
		maker_write(&m, block, data, 1);
		assert_int_equal(three_open(&m, &units), 0); /* no commit block */
		maker_commit(&m);
		assert_int_equal(three_open(&m, &units), -EUCLEAN);
		maker_close(&m);
	}
	/* the higher half of a number counts */
	maker_open(&m, "without", 0, true, 1, 7);
	block[0] = m.target[0] | 1ull << 32;
	maker_write(&m, block, data, 1);
	maker_commit(&m);
	assert_int_equal(three_open(&m, &units), -EUCLEAN);
	maker_close(&m);
	/* all of the log is one transaction without an end */
	maker_open(&m, "without", 0, false, 1, 7);
	for (uint32_t i = 1; i < m.blocks; i++) {
		maker_header(&m, i % 2 ? MAKER_REVOKE : MAKER_DESC);
		m.pos = i;
		maker_put(&m, m.p);
	}
	assert_int_equal(three_open(&m, &units), 0);
	assert_int_equal(units, 2);
	/* and the same with a commit block for each: they end behind one round */
	for (uint32_t i = 1; i < m.blocks; i++) {
		m.pos = i;
		maker_commit(&m);
	}
	assert_int_equal(three_open(&m, &units), 0);
	assert_int_equal(units, 2);
	maker_close(&m);
	free(data);
}

/* What asks for no replay, or cannot have one. */
TEST(test_no_replay)
{
	struct ext2_super_block *sb;
	uint8_t *commit[3];
	struct maker m;
	uint64_t units;

	/* the file of a user may have this content */
	assert_int_equal(sh("debugfs -w -R 'copy_inode <8> <13>' without"), 0);
	three_make(&m, 0, false, commit);
	sb = (void *)(m.im.p + 1024);
	assert_int_equal(three_open(&m, &units), 0);
	sb->s_journal_inum = 13;
	assert_int_equal(three_open(&m, &units), -EOPNOTSUPP);
	maker_close(&m);
	three_make(&m, 3, true, commit);
	sb = (void *)(m.im.p + 1024);
	sb->s_journal_inum = 0;
	maker_seal_super(&m);
	assert_int_equal(three_open(&m, &units), -EOPNOTSUPP); /* external */
	sb->s_journal_inum = 8;
	sb->s_feature_incompat &= ~EXT3_FEATURE_INCOMPAT_RECOVER;
	maker_seal_super(&m);
	assert_int_equal(three_open(&m, &units), -EUCLEAN); /* a mount throws it away */
	be_set(maker_jsb(&m) + 28, 0, 4, 0);
	maker_seal_jsb(&m);
	assert_int_equal(three_open(&m, &units), -ENOENT);
	sb->s_feature_incompat |= EXT3_FEATURE_INCOMPAT_RECOVER; /* an empty one */
	maker_seal_super(&m);
	assert_int_equal(three_open(&m, &units), 0);
	assert_int_equal(units, 2);
	replay_compare(&m.im, "an empty journal");
	sb->s_magic = 0;
	assert_int_equal(three_open(&m, &units), -ENOENT);
	maker_close(&m);
}

/* What an earlier replay has read is not read again for its checksums, of the same mount only; and it is listed no more. */
TEST(test_verified)
{
	for (unsigned csum = 1; csum <= 3; csum++) {
		struct replay_mark two;
		struct maker m;
		struct ext2_super_block *sb;
		uint8_t *commit[3];
		uint64_t units, all;

		three_make(&m, csum, csum == 3, commit);
		sb = (void *)(m.im.p + 1024);
		journal_block(&m, 64)[0] ^= 1; /* the last one is not there yet */
		assert_int_equal(three_open_after(&m, NULL, &two, &all), 0);
		journal_block(&m, 64)[0] ^= 1;
		assert_int_equal(three_open(&m, &all), 0);
		journal_block(&m, 57)[4000 % m.bs] ^= 1;
		assert_int_equal(three_open(&m, &units), -EUCLEAN);
		assert_int_equal(three_open_after(&m, &two, NULL, &units), 0);
		assert_true(units < all);
		two.next--;
		assert_int_equal(three_open_after(&m, &two, NULL, &units), -EUCLEAN);
		two.next++;
		if (csum == 1) { /* without a checksum of the superblock */
			sb->s_mnt_count++;
			assert_int_equal(three_open_after(&m, &two, NULL, &units), -EUCLEAN);
			sb->s_mnt_count--;
		}
		journal_block(&m, 57)[4000 % m.bs] ^= 1;
		journal_block(&m, 62)[100] ^= 1;
		assert_int_equal(three_open_after(&m, &two, NULL, &units), -EUCLEAN);
		maker_close(&m);
	}
}

/* Each read fails once: its error is the answer, and of a read through the replay as well. */
TEST(test_read_errors)
{
	uint8_t *commit[3], *buf = io_alloc(COW_BLK_BYTES);
	struct blk_reader r;
	struct replay *y;
	struct maker m;
	uint64_t calls, units;
	int err;

	three_make(&m, 3, true, commit);
	assert_int_equal(replay_open(&y, &m.im.r, NULL), 0);
	calls = m.im.calls;
	assert_in_range(calls, 10, 200);
	r = replay_reader(y);
	for (uint64_t blk = 0; (blk = replay_next(y, blk)) != UINT64_MAX; blk++) {
		const bool content = blk && blk != replay_journal_blk(y);

		m.im.fail_at = m.im.calls + 1 + content;
		assert_int_equal(r.read(r.ctx, blk, 1, buf), -EIO);
		m.im.fail_at = m.im.failed_blk = 0;
		assert_int_equal(r.read(r.ctx, blk, 1, buf), 0);
	}
	replay_close(y);
	for (uint64_t i = 1; i <= calls; i++) {
		m.im.calls = 0;
		m.im.fail_at = i;
		/* where a btrfs would have its superblock */
		err = three_open(&m, &units);
		if (err != (m.im.failed_blk == 16 ? 0 : -EIO))
			fail_msg("call %llu, unit %llu: %d", (unsigned long long)i,
				 (unsigned long long)m.im.failed_blk, err);
	}
	maker_close(&m);
	free(buf);
}

static int setup(void **state)
{
	(void)state;
	if (workdir_new("replay"))
		return -1;
	return sh("mkdir -p files/d && head -c 300000 /dev/urandom >files/a && echo b >files/d/b");
}

TEST_GROUP(setup, workdir_remove)
