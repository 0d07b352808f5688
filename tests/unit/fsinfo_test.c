// SPDX-License-Identifier: MIT
/*
 * The content of a volume: fsinfo against images of the mkfs programs, with blkid, dumpe2fs and
 * xfs_db as oracles; f2fs and exfat as superblocks of fsmade.h.
 */
#include "test.h"
#include "base/crc32c.h"
#include "fs/fs_ops.h"
#include "fs/fsinfo.h"
#include "fsmade.h"

/* uuid as blkid prints it: with dashes; of FAT and exFAT the four bytes of the serial number */
static void uuid_text(const struct fsinfo *f, char *buf, size_t size_bytes)
{
	const uint8_t *u = f->uuid;

	if (f->kind == FS_VFAT || f->kind == FS_EXFAT)
		snprintf(buf, size_bytes, "%02X%02X-%02X%02X", u[3], u[2], u[1], u[0]);
	else
		snprintf(buf, size_bytes,
			 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
			 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
			 u[12], u[13], u[14], u[15]);
}

TEST(test_kinds)
{
	static const struct {
		const char *name, *size, *mkfs;
		enum fs_kind kind;
		uint32_t block_bytes;
		uint64_t size_bytes; /* 0: xfs, by xfs_db */
		uint64_t journal_bytes;
		bool any_moment;
	} cases[] = {
		{ "ext2", "10M", "mke2fs -q -F -t ext2 -b 1024", FS_EXT, 1024, 10 * MIB, 0, false },
		{ "ext3", "20M", "mke2fs -q -F -t ext3 -b 1024", FS_EXT, 1024, 20 * MIB, 1 * MIB,
		  true },
		{ "ext4", "100M", "mke2fs -q -F -t ext4 -b 4096 -J size=8", FS_EXT, 4096, 100 * MIB,
		  8 * MIB, true },
		{ "xfs", "330M", "mkfs.xfs -q -f", FS_XFS, 4096, 0, 0, true },
		{ "btrfs", "150M", "mkfs.btrfs -q -f", FS_BTRFS, 4096, 150 * MIB, 0, true },
		/* not a whole number of units */
		{ "nilfs2", "34604544", "mkfs.nilfs2 -q -B 256 -b 1024", FS_NILFS2, 1024, 33 * MIB,
		  0, true },
		{ "nilfs2", "130M", "mkfs.nilfs2 -q", FS_NILFS2, 4096, 130 * MIB, 0, true },
		{ "vfat", "2M", "mkfs.vfat -F 12 -s 4", FS_VFAT, 2048, 2 * MIB, 0, false },
		{ "vfat", "40M", "mkfs.vfat -F 16 -s 4", FS_VFAT, 2048, 40 * MIB, 0, false },
		{ "vfat", "100M", "mkfs.vfat -F 32 -s 1", FS_VFAT, 512, 100 * MIB, 0, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t size_bytes = cases[i].size_bytes;
		char uuid[40];
		struct fsinfo f;
		struct image im;
		struct fsmap *m;
		enum blk_use use;

		line_of("rm -f i; truncate -s %s i && %s i >>log", cases[i].size, cases[i].mkfs);
		assert_string_equal(line_of("blkid -p -s TYPE -o value i"), cases[i].name);
		if (!size_bytes)
			size_bytes =
				4096 *
				strtoull(
					line_of("xfs_db -r -c 'sb 0' -c 'p dblocks' i | tr -dc 0-9"),
					NULL, 10);
		image_open(&im, "i");
		assert_int_equal(fsinfo_probe(&im.r, &f), 0);
		assert_int_equal(f.kind, cases[i].kind);
		assert_string_equal(f.type, cases[i].name);
		assert_int_equal(f.size_bytes, size_bytes);
		assert_int_equal(f.block_bytes, cases[i].block_bytes);
		assert_int_equal(f.journal_bytes, cases[i].journal_bytes);
		assert_int_equal(fsinfo_any_moment(&f), cases[i].any_moment);
		assert_int_equal(f.has_journal, f.journal_bytes != 0);
		assert_int_equal(f.clean, f.kind == FS_EXT);
		assert_true(!f.external_journal && !f.mmp && !f.needs_recovery && !f.error_flag);
		uuid_text(&f, uuid, sizeof(uuid));
		assert_string_equal(line_of("blkid -p -s UUID -o value i"), uuid);

		assert_int_equal(fsmap_open(&m, &im.r), 0);
		assert_int_equal(fsmap_knows(m),
				 f.kind == FS_EXT || f.kind == FS_BTRFS || f.kind == FS_XFS);
		assert_int_equal(fsmap_use(m, im.r.volume_blks - 1, &use), 0);
		assert_int_equal(use, fsmap_knows(m) ? USE_FREE : USE_USED);
		assert_int_equal(fsmap_alarms(m), 0);
		fsmap_close(m);
		image_close(&im);
	}
}

TEST(test_written_here)
{
	struct fs_fingerprint a, b;
	struct fsinfo f;
	struct image im;

	blank(&im, 8 * MIB);
	f2fs_put(im.p + 1024);
	f2fs_put(im.p + 4096 + 1024);
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_int_equal(f.kind, FS_F2FS);
	assert_string_equal(f.type, "f2fs");
	assert_int_equal(f.size_bytes, 25000 * 4096);
	assert_int_equal(f.uuid[15], 0xA5);
	assert_true(fsinfo_any_moment(&f));
	memset(im.p + 1024, 0, 1024); /* the second copy is enough */
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_int_equal(f.size_bytes, 25000 * 4096);
	for (uint64_t pack = 512; pack <= 1024; pack += 512) { /* each checkpoint pack counts */
		assert_int_equal(fsinfo_fingerprint(&im.r, &a), 0);
		im.p[pack * 4096 + 3]++;
		assert_int_equal(fsinfo_fingerprint(&im.r, &b), 0);
		assert_int_equal(a.kind, FS_F2FS);
		assert_int_not_equal(a.sb_crc, b.sb_crc);
	}
	image_close(&im);

	blank(&im, 8 * MIB);
	exfat_put(im.p);
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_int_equal(f.kind, FS_EXFAT);
	assert_string_equal(f.type, "exfat");
	assert_int_equal(f.size_bytes, 204800 * 512);
	assert_int_equal(f.block_bytes, 4096);
	assert_false(fsinfo_any_moment(&f));
	image_close(&im);
}

/* An empty volume, an MBR, noise: unknown. Sizes that overflow: no size. */
TEST(test_unknown)
{
	struct fs_fingerprint fp;
	struct fsinfo f;
	struct image im;
	uint64_t seed = 1;

	for (uint64_t blks = 0; blks < 20; blks++) {
		blank(&im, 20 * 4096);
		im.r.volume_blks = blks;
		assert_int_equal(fsinfo_probe(&im.r, &f), 0);
		assert_int_equal(f.kind, FS_UNKNOWN);
		assert_string_equal(f.type, "unknown");
		assert_int_equal(f.size_bytes, 0);
		assert_int_equal(fsinfo_fingerprint(&im.r, &fp), 0);
		image_close(&im);
	}
	blank(&im, 20 * 4096);
	memcpy(im.p, "\xEB\x63\x90", 3);
	le_set(im.p, 510, 2, 0xAA55);
	im.p[446] = 0x80;
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_int_equal(f.kind, FS_UNKNOWN);
	for (int round = 0; round < 20000; round++) { /* noise around each magic */
		for (int i = 0; i < 160; i++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			im.p[i * 13 % 2048] = (uint8_t)(seed >> 56);
			im.p[65536 + i] = (uint8_t)(seed >> 48);
		}
		le_set(im.p, 510, 2, 0xAA55);
		if (round % 5 == 0)
			memcpy(im.p, "XFSB", 4);
		if (round % 5 == 1)
			memcpy(im.p, "\xEB\x58\x90", 3);
		if (round % 5 == 2)
			memcpy(im.p + 3, "EXFAT   ", 8);
		if (round % 5 == 3)
			le_set(im.p, 1024, 4, 0xF2F52010);
		memcpy(im.p + 65536 + 64, "_BHRfS_M", 8);
		assert_int_equal(fsinfo_probe(&im.r, &f), 0);
		assert_int_equal(fsinfo_fingerprint(&im.r, &fp), 0);
	}
	memset(im.p, 0, 8192);
	memcpy(im.p, "XFSB\0\0\x10\0\xff\xff\xff\xff\xff\xff\xff\xff", 16);
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_int_equal(f.kind, FS_XFS);
	assert_int_equal(f.size_bytes, 0);
	image_close(&im);
}

/* What belongs below a file system is refused, unless it is the remains of it under one. */
TEST(test_below)
{
	static const struct {
		size_t off;
		const char *magic, *words;
	} cases[] = {
		{ 0, "LUKS\xba\xbe", "a LUKS device" },
		{ 24, "LVM2 001", "an LVM physical volume" },
		{ 512 + 24, "LVM2 001", "an LVM physical volume" },
		{ 1536 + 24, "LVM2 001", "an LVM physical volume" },
		{ 0, "\xfc\x4e\x2b\xa9", "a member of a RAID array" },
		{ 4096, "\xfc\x4e\x2b\xa9", "a member of a RAID array" },
		{ 4086, "SWAPSPACE2", "a swap area" },
	};
	struct fsinfo f;
	struct image im;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		for (size_t wrong = 0; wrong < 2; wrong++) {
			blank(&im, 20 * 4096);
			memcpy(im.p + cases[i].off + wrong, cases[i].magic, strlen(cases[i].magic));
			assert_int_equal(fsinfo_probe(&im.r, &f), 0);
			assert_int_equal(f.kind, FS_UNKNOWN);
			if (wrong)
				assert_null(fsinfo_refusal(&f));
			else
				assert_non_null(strstr(fsinfo_refusal(&f), cases[i].words));
			image_close(&im);
		}
	}
	line_of("rm -f i; truncate -s 10M i && mke2fs -q -F i");
	line_of("printf 'LUKS\\272\\276' | dd of=i conv=notrunc status=none");
	image_open(&im, "i");
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_int_equal(f.kind, FS_EXT);
	assert_null(fsinfo_refusal(&f));
	image_close(&im);
}

/* What mdadm 1.2 leaves of the file system that was there; and what a mkfs leaves of an array: nothing. */
TEST(test_below_hides)
{
	static const char *const mkfs[] = { "mke2fs -q -F -b 1024 i",
					    "mke2fs -q -F -t ext4 -b 4096 i", "mkfs.xfs -q -f -K i",
					    "mkfs.btrfs -q -f -K i", "mkfs.vfat i >/dev/null" };
	static const char md[] =
		"{ printf '\\374\\116\\053\\251\\001\\000\\000\\000'; head -c 136 /dev/zero; "
		"printf '\\010\\000\\000\\000\\000\\000\\000\\000'; } | "
		"dd of=i bs=4096 seek=1 conv=notrunc status=none";
	struct fsinfo f;
	struct image im;

	for (size_t i = 0; i < 2 * ARRAY_SIZE(mkfs); i++) {
		bool array_last = i % 2;

		line_of("rm -f i; truncate -s 320M i");
		line_of("%s", array_last ? mkfs[i / 2] : md);
		line_of("%s", array_last ? md : mkfs[i / 2]);
		image_open(&im, "i");
		assert_int_equal(fsinfo_probe(&im.r, &f), 0);
		assert_true((f.kind == FS_UNKNOWN) == array_last);
		if (array_last)
			assert_non_null(strstr(fsinfo_refusal(&f), "a member of a RAID array"));
		else
			assert_null(fsinfo_refusal(&f));
		image_close(&im);
	}
}

/* One field of a boot sector wrong: not what it looks like. The kinds below have no checksum. */
TEST(test_one_field_wrong)
{
	static const struct {
		enum fs_kind kind;
		bool fat32;
		size_t off, width;
		uint64_t value;
	} cases[] = {
		{ FS_VFAT, false, 0, 1, 0x33 },
		{ FS_VFAT, false, 11, 2, 500 },
		{ FS_VFAT, false, 11, 2, 8192 },
		{ FS_VFAT, false, 13, 1, 0 },
		{ FS_VFAT, false, 13, 1, 3 },
		{ FS_VFAT, false, 14, 2, 0 },
		{ FS_VFAT, false, 16, 1, 0 },
		{ FS_VFAT, false, 16, 1, 3 },
		{ FS_VFAT, false, 21, 1, 0xF1 },
		{ FS_VFAT, false, 19, 2, 0 },
		{ FS_VFAT, false, 510, 2, 0 },
		{ FS_VFAT, true, 32, 4, 0 },
		{ FS_VFAT, true, 36, 4, 0 },
		{ FS_EXFAT, false, 3, 1, 'e' },
		{ FS_EXFAT, false, 510, 2, 0 },
		{ FS_EXFAT, false, 108, 1, 8 },
		{ FS_EXFAT, false, 108, 1, 13 },
		{ FS_EXFAT, false, 109, 1, 17 },
		{ FS_F2FS, false, 1024 + 16, 4, 11 },
		{ FS_F2FS, false, 1024 + 16, 4, 17 },
		{ FS_F2FS, false, 1024, 4, 1 },
		{ FS_BTRFS, false, 65536 + 0x30, 8, 0 },
		{ FS_BTRFS, false, 65536 + 0x90, 4, 3000 },
		{ FS_NILFS2, false, 1024 + 6, 2, 0x3435 },
		{ FS_NILFS2, false, 1024, 4, 3 },
		{ FS_NILFS2, false, 1024 + 8, 2, 0x98 },
		{ FS_NILFS2, false, 1024 + 8, 2, 1025 },
		{ FS_NILFS2, false, 1024 + 0x14, 4, 7 },
		{ FS_NILFS2, false, 1024 + 0x20, 8, 8191 },
		{ FS_NILFS2, false, 1024 + 0x30, 4, 15 },
		{ FS_XFS, false, 4, 4, 0 },
		{ FS_XFS, false, 0, 1, 'x' },
	};
	struct fsinfo f;
	struct image im;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		blank(&im, 8 * MIB);
		switch (cases[i].kind) {
		case FS_VFAT:
			fat_put(im.p, cases[i].fat32);
			break;
		case FS_EXFAT:
			exfat_put(im.p);
			break;
		case FS_F2FS:
			f2fs_put(im.p + 1024);
			break;
		case FS_NILFS2:
			nilfs2_put(im.p + 1024, 8 * MIB);
			break;
		case FS_XFS:
			memcpy(im.p, "XFSB\0\0\x10\0\0\0\0\0\0\0\x08\0", 16);
			break;
		default:
			memcpy(im.p + 65536 + 0x40, "_BHRfS_M", 8);
			le_set(im.p, 65536 + 0x30, 8, 65536);
			le_set(im.p, 65536 + 0x90, 4, 4096);
		}
		assert_int_equal(fsinfo_probe(&im.r, &f), 0);
		assert_int_equal(f.kind, cases[i].kind);
		le_set(im.p, cases[i].off, cases[i].width, cases[i].value);
		assert_int_equal(fsinfo_probe(&im.r, &f), 0);
		assert_int_equal(f.kind, FS_UNKNOWN);
		assert_int_equal(f.size_bytes, 0);
		image_close(&im);
	}
}

/* Each read of each function fails: its error is returned, and nothing written. But where only btrfs has a superblock, a bad
 * block of another file system does not hide that one. */
TEST(test_read_errors)
{
	static const char *const mkfs[] = { "mke2fs -q -F -t ext4 -b 1024", "mkfs.vfat",
					    "mkfs.btrfs -q -f" };

	for (size_t i = 0; i < ARRAY_SIZE(mkfs); i++) {
		struct fs_fingerprint fp, fp0;
		struct fsinfo f, f0;
		struct image im;
		bool done = false, btrfs = strstr(mkfs[i], "btrfs");

		line_of("rm -f i; truncate -s 150M i && %s i >>log", mkfs[i]);
		image_open(&im, "i");
		memset(&f0, 0x77, sizeof(f0));
		memset(&fp0, 0x77, sizeof(fp0));
		for (uint64_t n = 1; !done; n++) {
			int err;

			f = f0;
			fp = fp0;
			im.calls = 0;
			im.fail_at = n;
			err = fsinfo_probe(&im.r, &f);
			if (err) {
				assert_int_equal(err, -EIO);
				assert_memory_equal(&f, &f0, sizeof(f));
				continue;
			}
			if (im.calls >= n) {
				assert_true(im.failed_blk == 16 && !btrfs && f.kind != FS_UNKNOWN);
				continue;
			}
			err = fsinfo_fingerprint(&im.r, &fp);
			done = im.calls < n;
			if (!done && !err)
				assert_true(im.failed_blk == 16 && !btrfs);
			else
				assert_int_equal(err, done ? 0 : -EIO);
			if (err)
				assert_memory_equal(&fp, &fp0, sizeof(fp));
		}
		image_close(&im);
	}
}

/* The block where btrfs has its superblock may belong to a file of a FAT or exFAT. */
TEST(test_file_as_btrfs)
{
	struct fsinfo f;
	struct image im;

	line_of("rm -f i; truncate -s 40M i && mkfs.vfat -F 16 -s 4 i >>log");
	image_open(&im, "i");
	btrfs_put(im.p + 65536, 10 * GIB);
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_int_equal(f.kind, FS_VFAT);
	assert_int_equal(f.size_bytes, 40 * MIB);
	image_close(&im);
	blank(&im, MIB);
	exfat_put(im.p);
	btrfs_put(im.p + 65536, 10 * GIB);
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_int_equal(f.kind, FS_EXFAT);
	image_close(&im);
	/* the table of a FAT is made by files, its reserved sectors are not */
	blank(&im, MIB);
	fat_put(im.p, false);
	nilfs2_put(im.p + 1024, MIB);
	le_set(im.p, 14, 2, 1);
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_int_equal(f.kind, FS_VFAT);
	le_set(im.p, 14, 2, 4);
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_int_equal(f.kind, FS_NILFS2);
	image_close(&im);
	/* a btrfs made over either is a btrfs */
	line_of("rm -f i; truncate -s 150M i && mkfs.vfat -F 16 i >>log && mkfs.btrfs -q -f i");
	image_open(&im, "i");
	assert_int_equal(fsinfo_probe(&im.r, &f), 0);
	assert_int_equal(f.kind, FS_BTRFS);
	image_close(&im);
}

TEST_GROUP(setup, workdir_remove)
