// SPDX-License-Identifier: MIT
/*
 * Whose base is it: changes that affect a fingerprint, and changes that pass as a cut checkpoint of
 * cowfs. Images of the mkfs programs, f2fs and exfat as superblocks of fsmade.h.
 */
#include "test.h"
#include "fs/fsinfo.h"
#include "fsmade.h"

/* exFAT and FAT: the fingerprint contains what a mount changes, and no place beyond the end of the
 * volume is read. */
TEST(test_fingerprint_fat)
{
	struct fs_fingerprint a, b;
	struct image im;

	for (int kind = 0; kind < 3; kind++) {
		/* first FAT: of 12 and 16, of exFAT, of 32 */
		uint64_t mark[] = { 4096, 2048 * 512, 8 * 512 };

		blank(&im, 8 * MIB);
		if (kind == 1)
			exfat_put(im.p);
		else
			fat_put(im.p, kind == 2);
		assert_int_equal(fsinfo_fingerprint(&im.r, &a), 0);
		assert_true(a.n_marks >= 2);
		im.p[mark[kind] + 7] ^= 1; /* the dirty flag of a mount lies there */
		assert_int_equal(fsinfo_fingerprint(&im.r, &b), 0);
		assert_int_not_equal(a.sb_crc, b.sb_crc);
		if (kind == 1) {
			le_set(im.p, 80, 4, UINT32_MAX);
			assert_int_equal(fsinfo_fingerprint(&im.r, &b), 0);
			assert_int_equal(b.n_marks, 1);
			le_set(im.p, 72, 8, UINT64_MAX); /* an overflowing length is ignored */
			assert_int_equal(fsinfo_probe(&im.r, &(struct fsinfo){ .kind = 0 }), 0);
		}
		image_close(&im);
	}
	/* f2fs: an impossible segment size is left out */
	blank(&im, 8 * MIB);
	f2fs_put(im.p + 1024);
	le_set(im.p, 1024 + 20, 4, 32);
	assert_int_equal(fsinfo_fingerprint(&im.r, &a), 0);
	assert_int_equal(a.n_marks, 3);
	image_close(&im);
}

/* ---- is it unchanged? ---- */

static struct fs_mark in_log; /* blk 0: the log has nothing */
static int log_err;
static const uint8_t *log_blk;
static const struct image *log_all; /* the log holds a whole volume */

static int read_in_log(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	assert_int_equal(blks, 1);
	if (log_err)
		return log_err;
	if (log_all) {
		memcpy(buf, log_all->p + blk_to_bytes(blk), COW_BLK_BYTES);
		return 0;
	}
	if (!log_blk || blk != in_log.blk)
		return -ENODATA;
	memcpy(buf, log_blk, COW_BLK_BYTES);
	return 0;
}

static bool matches(const struct fs_fingerprint *fp, struct image *im, bool torn)
{
	struct blk_reader logged = { .read = read_in_log, .volume_blks = im->r.volume_blks };
	bool match = !torn;

	assert_int_equal(fsinfo_fingerprint_match(fp, &im->r, &logged, torn, &match), 0);
	return match;
}

/* Each sector is unchanged, or as it is in the log. Garbage is allowed only where a checkpoint was
 * cut, and only without a mount since. */
TEST(test_match)
{
	static uint8_t new[COW_BLK_BYTES];
	struct blk_reader logged = { .read = read_in_log };
	struct fs_fingerprint fp;
	struct image im;
	uint64_t unit;
	bool match;

	line_of("rm -f i; truncate -s 40M i && mke2fs -q -F -t ext4 -b 1024 i");
	image_open(&im, "i");
	assert_int_equal(fsinfo_fingerprint(&im.r, &fp), 0);
	assert_true(fp.n_marks >= 2 && fp.mark[0].blk == 0);
	assert_true(matches(&fp, &im, false));
	unit = fp.mark[1].blk;
	memcpy(new, im.p + unit * 4096, sizeof(new));
	for (size_t k = 0; k < 8; k++)
		new[k * 512 + 300] ^= 0x55;
	log_blk = new;
	in_log.blk = unit;
	/* half of the content of the log is home */
	memcpy(im.p + unit * 4096, new, 2048);
	assert_true(matches(&fp, &im, false));
	/* a sector that is neither */
	im.p[unit * 4096 + 3000] ^= 1;
	assert_false(matches(&fp, &im, false));
	assert_true(matches(&fp, &im, true));
	/* the same where the log has nothing */
	log_blk = NULL;
	assert_false(matches(&fp, &im, true));
	log_blk = new;
	/* and after a foreign mount: the superblock's first sector is neither */
	in_log.blk = 0;
	memcpy(new, im.p, sizeof(new));
	image_close(&im);
	image_open(&im, "i");
	im.p[1024 + 52] ^= 1; /* mount count */
	im.p[1024 + 0x175] ^= 1;
	assert_false(matches(&fp, &im, false));
	assert_false(matches(&fp, &im, true));
	/* the block under write is no file system any more: damage by the cut checkpoint */
	memset(im.p + 1024, 0xA5, 1024);
	assert_true(matches(&fp, &im, true));
	/* another file system appears */
	fat_put(im.p, false);
	assert_false(matches(&fp, &im, true));
	/* errors of either side are returned */
	log_err = -EIO;
	logged.volume_blks = im.r.volume_blks;
	assert_int_equal(fsinfo_fingerprint_match(&fp, &im.r, &logged, true, &match), -EIO);
	log_err = 0;
	im.calls = 0;
	im.fail_at = 1;
	assert_int_equal(fsinfo_fingerprint_match(&fp, &im.r, &logged, true, &match), -EIO);
	im.calls = 0;
	im.fail_at = fp.n_marks + 1; /* while reading the present content */
	memcpy(im.p + 1024, new + 1024, 1024);
	im.p[1024 + 600] ^= 1;
	assert_int_equal(fsinfo_fingerprint_match(&fp, &im.r, &logged, true, &match), -EIO);
	image_close(&im);
	/* the volume has become shorter than a mark */
	image_open(&im, "i");
	im.r.volume_blks = unit;
	assert_false(matches(&fp, &im, true));
	image_close(&im);
	log_blk = NULL;
}

/* ---- a cut, or a foreign change? ---- */

enum { MADE_BYTES = 330 * MIB };

/* Volumes of one size, made with the mkfs programs or by hand; and the places that a mount changes
 * (bytes, plus at_fat the start of the FAT). All these places lie in marks. */
static const struct made {
	const char *name, *mkfs; /* NULL: made here */
	enum fs_kind kind;
	uint32_t n_marks;     /* at least */
	uint64_t mounted[4];  /* 0: end of the list */
	uint64_t fat_mounted; /* in the FAT; 0: none */
} made[] = {
	{ "ext4",
	  "mke2fs -q -F -t ext4 -b 4096 -J size=8",
	  FS_EXT,
	  3,
	  { 1024 + 44, 1024 + 52 },
	  0 },
	/* sb_lsn, AGF, AGI */
	{ "xfs", "mkfs.xfs -q -f", FS_XFS, 1, { 240, 512 + 40, 1024 + 40 }, 0 },
	{ "btrfs", "mkfs.btrfs -q -f", FS_BTRFS, 1, { 65536 + 0x48 }, 0 }, /* generation */
	/* s_mtime of both superblocks */
	{ "nilfs2",
	  "mkfs.nilfs2 -q -f -K",
	  FS_NILFS2,
	  2,
	  { 1024 + 0x60, MADE_BYTES - 4096 + 0x60 },
	  0 },
	/* dirty, of the boot sector and of FAT[1] */
	{ "fat16", "mkfs.vfat -F 16 -s 64", FS_VFAT, 1, { 37 }, 3 },
	/* and the free clusters in FSInfo */
	{ "fat32", "mkfs.vfat -F 32 -s 4", FS_VFAT, 2, { 65, 512 + 488 }, 7 },
	{ "f2fs", NULL, FS_F2FS, 4, { 1024 + 108, 5120 + 108, 512 * 4096, 1024 * 4096 }, 0 },
	{ "exfat", NULL, FS_EXFAT, 2, { 106, 112 }, 7 },
};

static void write_at(int fd, uint64_t off, const void *p, size_t n)
{
	assert_int_equal(pwrite(fd, p, n, (off_t)off), n);
}

/* What mkfs.f2fs and mkfs.exfat write, as far as cowfs reads it. life: another uuid. */
static void make_here(enum fs_kind kind, uint8_t life)
{
	static uint8_t zero[128 * KIB];
	uint8_t blk[COW_BLK_BYTES] = { 0 };
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/i", dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	write_at(fd, 0, zero, sizeof(zero));
	if (kind == FS_F2FS) {
		f2fs_put(blk + 1024);
		blk[1024 + 108] = life;
		write_at(fd, 0, blk, sizeof(blk));
		write_at(fd, 4096, blk, sizeof(blk));
		memset(blk, 0, sizeof(blk));
		le_set(blk, 164, 4, 4092); /* checksum_offset */
		for (unsigned pack = 1; pack <= 2; pack++) {
			le_set(blk, 0, 8, life * 1000u + pack);
			le_set(blk, 4092, 4, life * 0x9e3779b9u * pack);
			write_at(fd, pack * 512 * 4096, blk, sizeof(blk));
		}
	} else {
		exfat_put(blk);
		blk[100] = life;
		write_at(fd, 0, blk, sizeof(blk));
		memset(blk, 0, sizeof(blk));
		le_set(blk, 0, 4, 0xFFFFFFF8);
		le_set(blk, 4, 4, 0xFFFFFFFF);
		le_set(blk, 8, 4, 0x03000000u + life);
		write_at(fd, 2048 * 512, blk, sizeof(blk));
	}
	close(fd);
}

/* Over the present content. */
static void make(const struct made *m, uint8_t life)
{
	if (!m->mkfs)
		make_here(m->kind, life);
	else if (m->kind == FS_VFAT)
		assert_string_equal(line_of("%s -i 1234%04x i >>log && echo ok", m->mkfs, life),
				    "ok");
	else
		assert_string_equal(line_of("%s i >>log && echo ok", m->mkfs), "ok");
}

static uint64_t fat_start(const struct image *im)
{
	return im->p[3] == 'E' ? 2048 * 512 : (im->p[14] | im->p[15] << 8) * 512ull;
}

static void fill(uint8_t *p, size_t n, unsigned how)
{
	static uint64_t seed = 1;

	for (size_t i = 0; i < n; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		p[i] = how == 0 ? (uint8_t)(seed >> 56) : how == 1 ? 0 : 0xFF;
	}
}

/* Marks [first, end) as a cut leaves them; how 0: noise, 1: zeroes, 2: erased; sectors: the
 * affected ones, the others are old or new. */
static void tear(struct image *im, const struct fs_fingerprint *fp, uint32_t first, uint32_t end,
		 unsigned how, unsigned sectors)
{
	for (uint32_t i = first; i < end; i++) {
		uint8_t *home = im->p + blk_to_bytes(fp->mark[i].blk);
		const uint8_t *new = log_all->p + blk_to_bytes(fp->mark[i].blk);

		for (unsigned k = 0; k < 8; k++)
			if (sectors & 1u << k)
				fill(home + k * 512, 512, how);
			else if (k % 2)
				memcpy(home + k * 512, new + k * 512, 512);
	}
}

static void check_tears(const struct fs_fingerprint *fp, struct image *im)
{
	uint8_t *old = malloc(fp->n_marks * COW_BLK_BYTES);

	assert_non_null(old);
	for (uint32_t i = 0; i < fp->n_marks; i++)
		memcpy(old + i * COW_BLK_BYTES, im->p + blk_to_bytes(fp->mark[i].blk),
		       COW_BLK_BYTES);
	for (uint32_t first = 0; first <= fp->n_marks; first++) /* each mark, then all */
		for (unsigned how = 0; how < 3; how++)
			for (unsigned k = 0; k < 10; k++) {
				bool all = first == fp->n_marks;
				unsigned sectors = k < 8 ? 1u << k : k == 8 ? 0xff : 0;

				tear(im, fp, all ? 0 : first, all ? first : first + 1, how,
				     sectors);
				assert_true(matches(fp, im, true));
				/* without a checkpoint under way it is a foreign change; zeroes may
				 * be old */
				assert_true(how || !sectors || !matches(fp, im, false));
				for (uint32_t i = 0; i < fp->n_marks; i++)
					memcpy(im->p + blk_to_bytes(fp->mark[i].blk),
					       old + i * COW_BLK_BYTES, COW_BLK_BYTES);
			}
	free(old);
}

/* A byte that every mount changes, or a new mkfs: it does not count as a cut, whatever the other
 * marks are. */
static void check_mounted(const struct made *m, const struct fs_fingerprint *fp, struct image *im)
{
	for (unsigned i = 0; i < 5; i++) {
		uint64_t off = i < 4		? m->mounted[i]
			       : m->fat_mounted ? fat_start(im) + m->fat_mounted
						: 0;

		if (!off)
			continue;
		im->p[off] ^= 8;
		if (matches(fp, im, true))
			fail_msg("%s: a change at %llu is not seen", m->name,
				 (unsigned long long)off);
		im->p[off] ^= 8;
		assert_true(matches(fp, im, true));
	}
}

/* Every mark waits in the log, and a checkpoint was cut: garbage there counts as its own, whatever
 * its kind. The result of a mount or a mkfs does not. */
TEST(test_tear_or_foreign)
{
	for (size_t a = 0; a < ARRAY_SIZE(made); a++) {
		struct fs_fingerprint fp;
		struct image im, new;

		line_of("rm -f i; truncate -s %llu i", (unsigned long long)MADE_BYTES);
		make(&made[a], 1);
		line_of("cp --sparse=always i before");
		image_open(&im, "i");
		image_open(&new, "before");
		assert_int_equal(fsinfo_fingerprint(&im.r, &fp), 0);
		assert_int_equal(fp.kind, made[a].kind);
		assert_true(fp.n_marks >= made[a].n_marks);
		for (uint32_t i = 0; i < fp.n_marks; i++)
			for (unsigned k = 0; k < 8; k++)
				new.p[blk_to_bytes(fp.mark[i].blk) + k * 512 + 300] ^= 0x55;
		log_all = &new;
		assert_true(matches(&fp, &im, false));
		check_tears(&fp, &im);
		check_mounted(&made[a], &fp, &im);
		image_close(&im);
		for (size_t b = 0; b < ARRAY_SIZE(made); b++) {
			line_of("cp --sparse=always before i");
			make(&made[b], 2);
			image_open(&im, "i");
			if (matches(&fp, &im, true))
				fail_msg("%s made over %s is not seen", made[b].name, made[a].name);
			image_close(&im);
		}
		log_all = NULL;
		image_close(&new);
	}
}

/* The superblock of an older life after a known one whose other blocks were hit by a cut. */
TEST(test_tear_old_superblock)
{
	struct fs_fingerprint fp;
	struct image im, new;
	struct fsinfo f;

	blank(&im, 8 * MIB);
	blank(&new, 8 * MIB);
	memcpy(im.p, "XFSB\0\0\x10\0\0\0\0\0\0\0\x08\0", 16);
	memcpy(im.p + 65536 + 0x40, "_BHRfS_M", 8);
	le_set(im.p, 65536 + 0x30, 8, 65536);
	le_set(im.p, 65536 + 0x90, 4, 4096);
	assert_int_equal(fsinfo_fingerprint(&im.r, &fp), 0);
	assert_int_equal(fp.kind, FS_XFS);
	log_all = &new;
	fill(im.p + 512, 512, 0);
	assert_true(matches(&fp, &im, true));
	/* but if nothing else is found, it may be a new one */
	fill(im.p, 512, 0);
	assert_true(fsinfo_probe(&im.r, &f) == 0 && f.kind == FS_BTRFS);
	assert_false(matches(&fp, &im, true));
	memset(im.p + 65536, 0, 4096);
	assert_true(matches(&fp, &im, true));
	log_all = NULL;
	image_close(&im);
	image_close(&new);
}

static void fingerprint_file(struct fs_fingerprint *fp)
{
	struct image im;

	image_open(&im, "i");
	assert_int_equal(fsinfo_fingerprint(&im.r, fp), 0);
	image_close(&im);
}

static uint64_t dumpe2fs_time(const char *field)
{
	return strtoull(line_of("date +%%s -d \"$(dumpe2fs -h i | sed -n 's/^%s: *//p')\"", field),
			NULL, 10);
}

TEST(test_fingerprint_ext)
{
	struct fs_fingerprint a, b;
	uint8_t uuid[16];

	for (size_t i = 0; i < sizeof(uuid); i++)
		uuid[i] = (uint8_t)(0x11 * i);
	line_of("rm -f i; truncate -s 40M i && mke2fs -q -F -t ext4 -b 1024 -U "
		"00112233-4455-6677-8899-aabbccddeeff i; debugfs -w -R 'ssv mnt_count 7' i; debugfs -w "
		"-R "
		"'ssv mtime 20260102030405' i; debugfs -w -R 'ssv kbytes_written 123456789012' i; "
		"printf "
		"'jo\\njw -b 30000 /dev/null\\njc\\n' >c; debugfs -w -f c i");
	fingerprint_file(&a);
	assert_int_equal(a.kind, FS_EXT);
	assert_memory_equal(a.uuid, uuid, 16);
	assert_int_equal(a.mnt_count, 7);
	assert_int_equal(a.mtime, dumpe2fs_time("Last mount time"));
	assert_int_equal(a.wtime, dumpe2fs_time("Last write time"));
	assert_int_equal(a.kbytes_written, 123456789012);
	assert_int_equal(a.state, 1);
	assert_int_equal(
		a.journal_seq,
		strtoul(line_of("dumpe2fs -h i | sed -n 's/^Journal sequence: *//p'"), NULL, 16));
	assert_true(a.journal_seq && a.gdt_crc);
	fingerprint_file(&b);
	assert_memory_equal(&a, &b, sizeof(a));

	/* a label alone: the superblock's CRC, which must not be the constant of data and its CRC
	 */
	line_of("tune2fs -L other i");
	fingerprint_file(&b);
	assert_int_not_equal(a.sb_crc, b.sb_crc);
	assert_int_equal(a.gdt_crc, b.gdt_crc);
	/* only a descriptor */
	line_of("debugfs -w -R 'set_bg 1 itable_unused 5' i");
	fingerprint_file(&a);
	assert_int_not_equal(a.gdt_crc, b.gdt_crc);
	/* e2fsck */
	line_of("e2fsck -fy i");
	fingerprint_file(&b);
	assert_memory_not_equal(&a, &b, sizeof(a));
	assert_int_equal(b.state & 1, 1);
}

TEST_GROUP(setup, workdir_remove)
