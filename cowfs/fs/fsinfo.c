// SPDX-License-Identifier: MIT
/*
 * Recognises the file system on a volume from its superblock and takes its fingerprint.
 *
 * libblkid cannot read through a blk_reader, so the few fields needed are read here, each at its
 * documented offset. The order of the probes decides when an old superblock survived a mkfs: the
 * place that the newer mkfs surely wrote is asked first. And no file may decide it: in FAT and
 * exFAT a file can have the block where btrfs has its superblock, and mkfs.btrfs clears their boot
 * sector.
 */
#include <errno.h>
#include <ext2fs/ext2_fs.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "fs/reader.h"
#include "fs/fsinfo.h"

/* units 0 and 1 hold every superblock but that of btrfs, which is in unit 16 */
#define HEAD_UNITS 2
#define BTRFS_UNIT 16
#define EXT_SB 1024
#define F2FS_SB 1024

struct supers {
	uint8_t head[HEAD_UNITS * COW_BLK_BYTES];
	uint8_t at64k[COW_BLK_BYTES];
};

static uint64_t le(const uint8_t *p, size_t off, size_t width)
{
	struct bytes_reader r = { .p = p + off, .size_bytes = width };

	return get_uint(&r, width);
}

static uint64_t be(const uint8_t *p, size_t off, size_t width)
{
	uint64_t v = 0;

	for (size_t i = 0; i < width; i++)
		v = v << 8 | p[off + i];
	return v;
}

static bool pow2_between(uint64_t v, uint64_t low, uint64_t high)
{
	return v >= low && v <= high && !(v & (v - 1));
}

/* s is zeroed; what the volume is too short for stays so */
static int supers_read(const struct blk_reader *r, struct supers *s)
{
	uint64_t head_blks = min_u64(r->volume_blks, HEAD_UNITS);
	int err = 0;

	if (head_blks)
		err = r->read(r->ctx, 0, head_blks, s->head);
	if (!err && r->volume_blks > BTRFS_UNIT)
		err = r->read(r->ctx, BTRFS_UNIT, 1, s->at64k);
	return err;
}

#define SB_GET(sb, field)                                                                          \
	le(sb, offsetof(struct ext2_super_block, field),                                           \
	   sizeof(((struct ext2_super_block *)0)->field))

/* the rule of libblkid: anything that the ext3 driver did not know makes it ext4 */
static const char *ext_type(uint64_t compat, uint64_t incompat, uint64_t ro_compat)
{
	const uint64_t old_incompat = EXT2_FEATURE_INCOMPAT_FILETYPE |
				      EXT3_FEATURE_INCOMPAT_RECOVER | EXT2_FEATURE_INCOMPAT_META_BG;
	const uint64_t old_ro_compat = EXT2_FEATURE_RO_COMPAT_SPARSE_SUPER |
				       EXT2_FEATURE_RO_COMPAT_LARGE_FILE;

	if ((incompat & ~old_incompat) || (ro_compat & ~old_ro_compat))
		return "ext4";
	return compat & EXT3_FEATURE_COMPAT_HAS_JOURNAL ? "ext3" : "ext2";
}

static bool probe_ext(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = s->head + EXT_SB;
	uint64_t compat = SB_GET(sb, s_feature_compat);
	uint64_t incompat = SB_GET(sb, s_feature_incompat);
	uint64_t blocks = SB_GET(sb, s_blocks_count);
	uint64_t free_blocks = SB_GET(sb, s_free_blocks_count);
	uint64_t log_size = SB_GET(sb, s_log_block_size),
		 log_cluster = SB_GET(sb, s_log_cluster_size);

	if (SB_GET(sb, s_magic) != EXT2_SUPER_MAGIC || log_size > 6)
		return false;
	if (incompat & EXT3_FEATURE_INCOMPAT_JOURNAL_DEV) {
		strcpy(f->type, "jbd");
		return true;
	}
	if (incompat & EXT4_FEATURE_INCOMPAT_64BIT) {
		blocks |= SB_GET(sb, s_blocks_count_hi) << 32;
		free_blocks |= SB_GET(sb, s_free_blocks_hi) << 32;
	}
	f->kind = FS_EXT;
	strcpy(f->type, ext_type(compat, incompat, SB_GET(sb, s_feature_ro_compat)));
	f->block_bytes = 1024u << log_size;
	if (__builtin_mul_overflow(blocks, f->block_bytes, &f->size_bytes))
		f->size_bytes = 0;
	f->free_bytes = min_u64(free_blocks, blocks) * f->block_bytes;
	/* a block in use anywhere in a cluster makes all of it used */
	if (SB_GET(sb, s_feature_ro_compat) & EXT4_FEATURE_RO_COMPAT_BIGALLOC &&
	    log_cluster > log_size)
		f->free_bytes >>= min_u64(log_cluster - log_size, 63);
	memcpy(f->uuid, sb + offsetof(struct ext2_super_block, s_uuid), sizeof(f->uuid));
	f->has_journal = compat & EXT3_FEATURE_COMPAT_HAS_JOURNAL;
	f->external_journal = f->has_journal && !SB_GET(sb, s_journal_inum);
	f->needs_recovery = incompat & EXT3_FEATURE_INCOMPAT_RECOVER;
	f->mmp = incompat & EXT4_FEATURE_INCOMPAT_MMP;
	f->inline_data = incompat & EXT4_FEATURE_INCOMPAT_INLINE_DATA;
	f->error_flag = SB_GET(sb, s_state) & EXT2_ERROR_FS;
	f->clean = SB_GET(sb, s_state) & EXT2_VALID_FS;
	return true;
}

static bool probe_xfs(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = s->head;
	uint64_t block_bytes = be(sb, 4, 4);

	if (memcmp(sb, "XFSB", 4) || !pow2_between(block_bytes, 512, 65536))
		return false;
	f->kind = FS_XFS;
	strcpy(f->type, "xfs");
	f->block_bytes = (uint32_t)block_bytes;
	if (__builtin_mul_overflow(be(sb, 8, 8), block_bytes, &f->size_bytes))
		f->size_bytes = 0;
	memcpy(f->uuid, sb + 32, sizeof(f->uuid));
	f->has_metadata_uuid = (be(sb, 100, 2) & 0xf) == 5; /* sb_versionnum */
	/* sb_features_incompat, sb_meta_uuid, sb_uuid */
	memcpy(f->metadata_uuid, sb + (be(sb, 216, 4) & 4 ? 248 : 32), 16);
	f->external_log = !be(sb, 48, 8); /* sb_logstart */
	f->realtime = be(sb, 16, 8);	  /* sb_rblocks */
	return true;
}

static bool probe_btrfs(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = s->at64k;

	if (memcmp(sb + 0x40, "_BHRfS_M", 8) || le(sb, 0x30, 8) != 65536 ||
	    !pow2_between(le(sb, 0x90, 4), 512, 65536))
		return false;
	f->kind = FS_BTRFS;
	strcpy(f->type, "btrfs");
	f->block_bytes = (uint32_t)le(sb, 0x90, 4);
	f->size_bytes = le(sb, 0xd1, 8); /* dev_item.total_bytes: of this device, not of all */
	memcpy(f->uuid, sb + 0x20, sizeof(f->uuid));
	f->devices = le(sb, 0x88, 8);
	return true;
}

/* the first of the two copies that carries the magic; NULL if none does */
static const uint8_t *f2fs_super(const struct supers *s)
{
	for (size_t i = 0; i < HEAD_UNITS; i++) {
		const uint8_t *sb = s->head + i * COW_BLK_BYTES + F2FS_SB;

		if (le(sb, 0, 4) == 0xF2F52010u && le(sb, 16, 4) >= 12 && le(sb, 16, 4) <= 16)
			return sb;
	}
	return NULL;
}

static bool probe_f2fs(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = f2fs_super(s);

	if (!sb)
		return false;
	f->kind = FS_F2FS;
	strcpy(f->type, "f2fs");
	f->block_bytes = 1u << le(sb, 16, 4);
	if (__builtin_mul_overflow(le(sb, 36, 8), f->block_bytes, &f->size_bytes))
		f->size_bytes = 0;
	memcpy(f->uuid, sb + 108, sizeof(f->uuid));
	/* devs[]: a path and a segment count each; empty where there is one device */
	for (size_t i = 1; i < 8; i++)
		f->devices += sb[2201 + i * 68] != 0;
	return true;
}

static bool probe_exfat(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = s->head;
	uint64_t shift = sb[108], cluster_shift = sb[109];

	if (memcmp(sb + 3, "EXFAT   ", 8) || le(sb, 510, 2) != 0xAA55 || shift < 9 || shift > 12 ||
	    cluster_shift > 25 - shift)
		return false;
	f->kind = FS_EXFAT;
	strcpy(f->type, "exfat");
	f->block_bytes = 1u << (shift + cluster_shift);
	if (__builtin_mul_overflow(le(sb, 72, 8), 1ull << shift, &f->size_bytes))
		f->size_bytes = 0;
	memcpy(f->uuid, sb + 100, 4);
	f->can_freeze = false;
	return true;
}

/* A FAT has no magic: a BPB that no MBR, no NTFS and no garbage carries by chance. */
static bool probe_vfat(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = s->head;
	uint64_t sector_bytes = le(sb, 11, 2), sectors = le(sb, 19, 2);
	bool fat32 = !le(sb, 22, 2);

	if (le(sb, 510, 2) != 0xAA55 || (sb[0] != 0xEB && sb[0] != 0xE9) ||
	    !pow2_between(sector_bytes, 512, 4096) || !pow2_between(sb[13], 1, 128) ||
	    !le(sb, 14, 2) || !sb[16] || sb[16] > 2 || (sb[21] != 0xF0 && sb[21] < 0xF8))
		return false;
	if (!sectors)
		sectors = le(sb, 32, 4);
	if (!sectors || (fat32 && !le(sb, 36, 4)))
		return false;
	f->kind = FS_VFAT;
	strcpy(f->type, "vfat");
	f->block_bytes = (uint32_t)(sector_bytes * sb[13]);
	f->size_bytes = sectors * sector_bytes;
	memcpy(f->uuid, sb + (fat32 ? 67 : 39), 4);
	f->can_freeze = false;
	return true;
}

static void supers_probe(const struct supers *s, struct fsinfo *ret)
{
	static bool (*const probes[])(const struct supers *, struct fsinfo *) = {
		probe_ext, probe_xfs, probe_exfat, probe_vfat, probe_btrfs, probe_f2fs,
	};
	struct fsinfo f = {
		.kind = FS_UNKNOWN, .type = "unknown", .can_freeze = true, .devices = 1
	};

	for (size_t i = 0; i < ARRAY_SIZE(probes); i++)
		if (probes[i](s, &f))
			break;
	*ret = f;
}

const char *fsinfo_refusal(const struct fsinfo *f)
{
	if (f->external_journal)
		return "the journal of its file system is on another device, which cannot be committed together "
		       "with this one. Use an internal journal: tune2fs -O ^has_journal, then tune2fs -j";
	if (f->mmp)
		return "its file system has multiple-mount protection, which writes all the time: run tune2fs -O ^mmp";
	if (f->external_log)
		return "the log of its XFS is on another device, which cannot be committed together with this one. "
		       "Make an XFS with an internal log";
	if (f->realtime)
		return "its XFS has a realtime section, which cannot be committed together with the rest. "
		       "Make an XFS without one";
	if (f->devices != 1)
		return f->kind == FS_BTRFS
			       ? "its btrfs has several devices, and each would be committed on its own. Remove the others "
				 "with btrfs device remove"
			       : "its file system has several devices, and each would be committed on its own. "
				 "Make one on a single device";
	return NULL;
}

static int supers_get(const struct blk_reader *r, struct supers **ret)
{
	_cleanup_free_ struct supers *s = io_alloc(round_up_u64(sizeof(*s), COW_BLK_BYTES));
	int err;

	if (!s)
		return -ENOMEM;
	err = supers_read(r, s);
	if (err)
		return err;
	*ret = steal_ptr(s);
	return 0;
}

int fsinfo_probe_super(const struct blk_reader *r, struct fsinfo *ret)
{
	_cleanup_free_ struct supers *s = NULL;
	int err = supers_get(r, &s);

	if (err)
		return err;
	supers_probe(s, ret);
	return 0;
}

/* what a damaged file system cannot say is left unsaid; a read error is an error */
static bool is_damage(int err)
{
	return err == -EUCLEAN || err == -EOPNOTSUPP || err == -ENOENT;
}

int fsinfo_probe(const struct blk_reader *r, struct fsinfo *ret)
{
	struct fsinfo f;
	struct reader *e;
	struct fsimage_facts facts;
	int err = fsinfo_probe_super(r, &f);

	if (err)
		return err;
	if (f.has_journal && !f.external_journal) {
		err = reader_open(&e, r, FSIMAGE_ASK_JOURNAL, &facts);
		if (!err) {
			err = facts.journal_err;
			reader_close(e);
		}
		if (err && !is_damage(err) && err != -EOWNERDEAD)
			return err;
		if (!err) {
			f.journal_bytes = facts.journal.size_bytes;
			f.needs_recovery |= facts.journal.start != 0;
		}
	}
	*ret = f;
	return 0;
}

static void mark_unit(struct fs_fingerprint *fp, uint64_t blk)
{
	for (uint32_t i = 0; i < fp->n_marks; i++)
		if (fp->mark[i].blk == blk)
			return;
	if (fp->n_marks < FS_MARKS)
		fp->mark[fp->n_marks++].blk = blk;
}

/* of a larger block, what matters is in its first unit */
static void mark_block(struct fs_fingerprint *fp, const struct fsimage_facts *f, uint64_t block)
{
	mark_unit(fp, block << f->block_shift >> COW_BLK_SHIFT);
}

static void sector_crcs(const void *buf, uint32_t crc[8])
{
	for (int i = 0; i < 8; i++)
		crc[i] = crc32c_back((const char *)buf + i * 512, 512);
}

static int read_marks(const struct blk_reader *r, struct fs_fingerprint *fp)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);

	if (!buf)
		return -ENOMEM;
	for (uint32_t i = 0; i < fp->n_marks; i++) {
		int err = r->read(r->ctx, fp->mark[i].blk, 1, buf);

		if (err)
			return err;
		sector_crcs(buf, fp->mark[i].sector_crc);
	}
	return 0;
}

/* *ret_bad: bit k for each sector that is neither as it was nor as it is in the log; *ret_in_log:
 * the log has it */
static int match_mark(const struct fs_mark *m, const struct blk_reader *home,
		      const struct blk_reader *logged, void *buf, uint8_t *ret_bad,
		      bool *ret_in_log)
{
	uint32_t now[8], then[8];
	int err = m->blk < home->volume_blks ? home->read(home->ctx, m->blk, 1, buf) : -ENODATA;

	*ret_in_log = false;
	*ret_bad = 0;
	if (err) {
		*ret_bad = 0xff;
		return err == -ENODATA ? 0 : err;
	}
	sector_crcs(buf, now);
	if (!memcmp(now, m->sector_crc, sizeof(now)))
		return 0;
	err = logged->read(logged->ctx, m->blk, 1, buf);
	if (err && err != -ENODATA)
		return err;
	*ret_in_log = !err;
	sector_crcs(buf, then);
	for (unsigned k = 0; k < 8; k++)
		if (now[k] != m->sector_crc[k] && (err || now[k] != then[k]))
			*ret_bad |= (uint8_t)(1u << k);
	return 0;
}

/* A sector that is neither old nor new, behind the superblock: is it what a driver of that kind
 * writes there? A cut leaves no such thing; every mount does (f2fs: one of its two checkpoint
 * packs; FAT: FSInfo, first entries of the FAT). */
static bool looks_written(enum fs_kind kind, const uint8_t *sector, unsigned k)
{
	uint64_t sum_off;

	switch (kind) {
	case FS_XFS: /* the first group's free space, inodes and free list */
		return !memcmp(sector, "XAGF", 4) || !memcmp(sector, "XAGI", 4) ||
		       !memcmp(sector, "XAFL", 4);
	/* checkpoint_ver comes first, so each one changes this sector; checksum_offset */
	case FS_F2FS:
		sum_off = le(sector, 164, 4);
		return k == 0 && sum_off >= 192 && sum_off < 65536 && sum_off % 4 == 0;
	case FS_VFAT:
		if (!memcmp(sector, "RRaA", 4) && !memcmp(sector + 484, "rrAa", 4))
			return true;
		__attribute__((fallthrough));
	/* the media descriptor as the FAT's first entry; 0xFF is what erased flash has */
	case FS_EXFAT:
		return sector[0] >= 0xF0 && sector[0] != 0xFF && sector[1] == 0xFF &&
		       sector[2] == 0xFF;
	case FS_EXT:
	case FS_BTRFS:
	case FS_UNKNOWN:
		return false;
	}
	return false;
}

static uint8_t *supers_unit(struct supers *s, uint64_t blk)
{
	if (blk < HEAD_UNITS)
		return s->head + blk * COW_BLK_BYTES;
	return blk == BTRFS_UNIT ? s->at64k : NULL;
}

/*
 * Where the log has blocks, home has sectors that are neither old nor new, those of bad[]: did a
 * cut of our own leave them? It leaves garbage; who mounts, repairs or makes a file system leaves a
 * superblock, or what else looks_written. One that is found outside of the marks counts too, unless
 * one that is known is found before it: it may be older than us.
 */
static int is_our_tear(const struct fs_fingerprint *fp, const struct blk_reader *home,
		       const uint8_t *bad, void *buf, bool *ret)
{
	_cleanup_free_ struct supers *s = NULL;
	struct fsinfo now, strange;
	int err = supers_get(home, &s);

	if (err)
		return err;
	supers_probe(s, &now);
	for (uint32_t i = 0; i < fp->n_marks; i++) {
		uint8_t *unit = supers_unit(s, fp->mark[i].blk);

		for (unsigned k = 0; unit && k < 8; k++)
			if (!(bad[i] & 1u << k))
				memset(unit + k * 512, 0, 512);
	}
	supers_probe(s, &strange);
	*ret = strange.kind == FS_UNKNOWN || strange.kind != now.kind;
	for (uint32_t i = 0; *ret && i < fp->n_marks; i++) {
		err = bad[i] ? home->read(home->ctx, fp->mark[i].blk, 1, buf) : 0;
		if (err)
			return err;
		for (unsigned k = 0; k < 8; k++)
			if (bad[i] & 1u << k && looks_written((enum fs_kind)fp->kind,
							      (const uint8_t *)buf + k * 512, k))
				*ret = false;
	}
	return 0;
}

/* Where no file system was, one that is there now is somebody's, unless its marks are as the log
 * has them: it was made on the volume, and a checkpoint of ours was writing it home. */
static int match_unmarked(const struct blk_reader *home, const struct blk_reader *logged, bool torn,
			  bool *ret_match)
{
	struct fs_fingerprint now;
	int err = fsinfo_fingerprint(home, &now);

	if (err == -EOWNERDEAD)
		err = fsinfo_fingerprint_super(home, &now);
	if (err)
		return err;
	*ret_match = !now.n_marks;
	if (!now.n_marks)
		return 0;
	for (uint32_t i = 0; i < now.n_marks; i++)
		for (unsigned k = 0; k < 8; k++) /* not as it was: nobody knows how it was */
			now.mark[i].sector_crc[k] = ~now.mark[i].sector_crc[k];
	return fsinfo_fingerprint_match(&now, home, logged, torn, ret_match);
}

int fsinfo_fingerprint_match(const struct fs_fingerprint *fp, const struct blk_reader *home,
			     const struct blk_reader *logged, bool torn, bool *ret_match)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);
	uint8_t bad[FS_MARKS] = { 0 };
	bool in_log, any = false;

	if (!buf)
		return -ENOMEM;
	if (!fp->n_marks)
		return match_unmarked(home, logged, torn, ret_match);
	for (uint32_t i = 0; i < fp->n_marks; i++) {
		int err = match_mark(&fp->mark[i], home, logged, buf, &bad[i], &in_log);

		if (err)
			return err;
		if (bad[i] && (!torn || !in_log)) {
			*ret_match = false;
			return 0;
		}
		any = any || bad[i];
	}
	*ret_match = true;
	return any ? is_our_tear(fp, home, bad, buf, ret_match) : 0;
}

static void fingerprint_ext_super(const uint8_t *sb, struct fs_fingerprint *fp)
{
	fp->mtime = (uint32_t)SB_GET(sb, s_mtime);
	fp->wtime = (uint32_t)SB_GET(sb, s_wtime);
	fp->mnt_count = (uint16_t)SB_GET(sb, s_mnt_count);
	fp->state = (uint16_t)SB_GET(sb, s_state);
	fp->kbytes_written = SB_GET(sb, s_kbytes_written);
	/* not over s_checksum, which comes last: a CRC over data and its CRC is a constant */
	fp->sb_crc = crc32c(0, sb, offsetof(struct ext2_super_block, s_checksum));
	memcpy(fp->uuid, sb + offsetof(struct ext2_super_block, s_uuid), sizeof(fp->uuid));

	mark_unit(fp, 0);
}

static int fingerprint_ext(const struct blk_reader *r, struct fs_fingerprint *fp)
{
	struct reader *e;
	struct fsimage_facts f;
	int err = reader_open(&e, r, FSIMAGE_ASK_GDT | FSIMAGE_ASK_JOURNAL, &f);

	if (err)
		return is_damage(err) ? 0 : err;
	reader_close(e);
	fp->gdt_crc = f.gdt_crc;
	for (uint32_t i = 0; i < f.gdt_blocks; i++)
		mark_block(fp, &f, f.gdt_block[i]);
	if (!f.journal_err) {
		fp->journal_seq = f.journal.sequence;
		mark_block(fp, &f, f.journal.sb_block);
	}
	return 0;
}

/*
 * Where the others keep what changes when they are mounted read-write. f2fs never touches its
 * superblock: its two checkpoint packs; FAT: its FSInfo sector and the first entries of the FAT.
 */
static size_t fingerprint_units(const struct supers *s, enum fs_kind kind, uint64_t units[4])
{
	const uint8_t *sb = s->head;
	uint64_t sector_bytes;

	units[0] = 0;
	switch (kind) {
	case FS_EXT:
		return 0;
	case FS_XFS:
		return 1;
	case FS_BTRFS:
		units[0] = BTRFS_UNIT;
		return 1;
	case FS_F2FS:
		sb = f2fs_super(s);
		units[1] = 1;
		units[2] = (le(sb, 76, 4) << le(sb, 16, 4)) >> COW_BLK_SHIFT;
		units[3] = units[2];
		if (le(sb, 20, 4) < 32)
			units[3] += (1ull << le(sb, 20, 4) << le(sb, 16, 4)) >> COW_BLK_SHIFT;
		return 4;
	case FS_VFAT:
		sector_bytes = le(sb, 11, 2);
		units[1] = le(sb, 22, 2) ? 0 : le(sb, 48, 2) * sector_bytes >> COW_BLK_SHIFT;
		units[2] = le(sb, 14, 2) * sector_bytes >> COW_BLK_SHIFT;
		return 3;
	case FS_EXFAT:
		units[1] = (le(sb, 80, 4) << sb[108]) >> COW_BLK_SHIFT;
		return 2;
	case FS_UNKNOWN:
		return 0;
	}
	return 0;
}

static int fingerprint_other(const struct blk_reader *r, const struct supers *s,
			     struct fs_fingerprint *fp)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);
	uint64_t units[4];
	size_t n = fingerprint_units(s, (enum fs_kind)fp->kind, units);
	int err;

	if (!buf)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (units[i] >= r->volume_blks)
			continue;
		err = r->read(r->ctx, units[i], 1, buf);
		if (err)
			return err;
		fp->sb_crc = crc32c(fp->sb_crc, buf, COW_BLK_BYTES);
		mark_unit(fp, units[i]);
	}
	return 0;
}

static int fingerprint(const struct blk_reader *r, bool super_only, struct fs_fingerprint *ret)
{
	_cleanup_free_ struct supers *s = NULL;
	struct fs_fingerprint fp;
	struct fsinfo f;
	int err = supers_get(r, &s);

	if (err)
		return err;
	supers_probe(s, &f);
	memset(&fp, 0, sizeof(fp)); /* padding too: callers may compare bytes */
	fp.kind = f.kind;
	if (f.kind == FS_EXT)
		fingerprint_ext_super(s->head + EXT_SB, &fp);
	else
		err = fingerprint_other(r, s, &fp);
	if (f.kind == FS_EXT && !super_only)
		err = fingerprint_ext(r, &fp);
	if (!err)
		err = read_marks(r, &fp);
	if (err)
		return err;
	memcpy(ret, &fp, sizeof(fp));
	return 0;
}

int fsinfo_fingerprint(const struct blk_reader *r, struct fs_fingerprint *ret)
{
	return fingerprint(r, false, ret);
}

int fsinfo_fingerprint_super(const struct blk_reader *r, struct fs_fingerprint *ret)
{
	return fingerprint(r, true, ret);
}
