/* SPDX-License-Identifier: MIT */
/*
 * What cowfs has to know of a kind of file system: one entry for each, in a file of its own, and
 * the table of them (FS_KINDS in fsinfo.h). How to add one: docs/HACKING.md.
 */
#ifndef COWFS_FS_FS_OPS_H
#define COWFS_FS_FS_OPS_H

#include "base/bytes.h"
#include "fs/fsimage.h"

/* units 0 and 1 hold every superblock but that of btrfs, which is in unit 16 */
#define HEAD_UNITS 2
#define BTRFS_UNIT 16

/* Zeroes where the volume is too short. */
struct supers {
	uint8_t head[HEAD_UNITS * COW_BLK_BYTES];
	uint8_t at64k[COW_BLK_BYTES];
};

#define FS_UNITS 4

enum fs_owners {
	OWNERS_NONE, /* the file system does not tell where its files lie */
	OWNERS_TREE, /* by FIEMAP of all files of a mounted tree */
	OWNERS_EXT,  /* by its inode tables */
};

/* Function pointers that are NULL: nothing to say. */
struct fs_ops {
	/* as libblkid and mount(8) have it; the first one is the driver's */
	const char *names[4];

	/* ---- whose base is it? (docs/FORMAT.md) ---- */
	/* Is it one? *f has the kind, the first name and the defaults, and is undefined if not. */
	bool (*probe)(const struct supers *s, struct fsinfo *f);
	/* How many units each mount read-write changes, and which; of one that probe found. Their
	 * CRC32C is sb_crc. */
	size_t (*units)(const struct supers *s, uint64_t units[FS_UNITS]);
	/* what tells people what changed: the fields of *fp but kind, CRCs of units and marks */
	void (*fields)(const struct supers *s, struct fs_fingerprint *fp);
	/* what needs more than the superblock */
	void (*facts)(const struct fsimage_facts *facts, struct fs_fingerprint *fp);
	/* Sector k of a unit, not a superblock at its place, neither as it was nor as the log has
	 * it: is it what a driver of this kind writes there? A cut leaves no such thing. */
	bool (*looks_written)(const uint8_t *sector, unsigned k);
	/* as fsinfo_refusal */
	const char *(*refusal)(const struct fsinfo *f);

	/* ---- commits ---- */
	/* which blocks are in use; NULL: all are, so all changes go through the log */
	const struct fsimage_ops *image;
	/* commits may rely on image: the log has to hold only what changes in place */
	bool counts_on_free;
	bool freezes; /* FIFREEZE */
	/* what a power cut leaves is valid, at any moment: may be sealed without a freeze */
	bool crash_safe;
	/* after an error it is read-only, and reads a transaction that is not on the device */
	bool reads_lost_transaction;
	bool own_dirty_limits; /* those of the loop device do not bound what is dirty */

	/* ---- programs and people ---- */
	bool can_shrink;	      /* resize2fs, e2fsck -p, tune2fs: cowctl format --shrink */
	bool tells_mounts;	      /* mtime changes with each mount read-write, and only then */
	const char *readonly_options; /* a mount that does not replay a journal */
	const char *checker;	      /* program with options; NULL: there is none */
	enum fs_owners owners;
};

/* Never NULL: of FS_UNKNOWN, or a number that is not in the table, one without probe. */
const struct fs_ops *fs_ops(enum fs_kind kind);
/* By any of its names. */
const struct fs_ops *fs_ops_named(const char *name);
bool fs_has_name(const struct fs_ops *ops, const char *name);

/* ---- for the entries ---- */

static inline bool pow2_between(uint64_t v, uint64_t low, uint64_t high)
{
	return v >= low && v <= high && !(v & (v - 1));
}

/* 0: too many */
static inline uint64_t size_of_blocks(uint64_t blocks, uint64_t block_bytes)
{
	uint64_t bytes;

	return __builtin_mul_overflow(blocks, block_bytes, &bytes) ? 0 : bytes;
}

/* Of a FAT, how many bytes lie before its table, where no file decides what is there; 0: no FAT.
 * In fat.c. */
uint64_t fat_reserved_bytes(const struct supers *s);

/* Once, while there is room. */
static inline void fs_mark_unit(struct fs_fingerprint *fp, uint64_t blk)
{
	for (uint32_t i = 0; i < fp->n_marks; i++)
		if (fp->mark[i].blk == blk)
			return;
	if (fp->n_marks < FS_MARKS)
		fp->mark[fp->n_marks++].blk = blk;
}

#endif
