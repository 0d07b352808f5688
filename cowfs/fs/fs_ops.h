/* SPDX-License-Identifier: MIT */
/*
 * What cowfs needs to know about a kind of file system: one entry for each kind, in a file of its
 * own, and the table of the entries (FS_KINDS in fsinfo.h). How to add one: CONTRIBUTING.md.
 */
#ifndef COWFS_FS_FS_OPS_H
#define COWFS_FS_FS_OPS_H

#include "base/bytes.h"
#include "fs/fsimage.h"

/* units 0 and 1 hold every superblock except that of btrfs, which is in unit 16 */
#define HEAD_UNITS 2
#define BTRFS_UNIT 16

/* Zeroes where the volume is too short. */
struct supers {
	uint8_t head[HEAD_UNITS * COW_BLK_BYTES];
	uint8_t at64k[COW_BLK_BYTES];
};

#define FS_UNITS 4

enum fs_owners {
	OWNERS_NONE,  /* the file system does not report where its files lie */
	OWNERS_TREE,  /* by FIEMAP of all files of a mounted tree */
	OWNERS_XFS,   /* the same; owners_xfs says what differs */
	OWNERS_BTRFS, /* the same; owners_btrfs does */
	OWNERS_EXT,   /* by its inode tables */
};

/* A function pointer is NULL if a kind has nothing to add there. */
struct fs_ops {
	/* as libblkid and mount(8) name it; the first one is the name of the driver */
	const char *names[4];

	/* ---- whose base is it? (docs/FORMAT.md) ---- */
	/*
	 * Is it this kind? Sets *f to the kind, the first name and the defaults; else *f is
	 * undefined.
	 */
	bool (*probe)(const struct supers *s, struct fsinfo *f);
	/*
	 * The number of units that each read-write mount changes, and which ones; for a volume that
	 * probe recognised. NULL: first_unit alone. Their CRC32C is sb_crc.
	 */
	uint64_t first_unit;
	size_t (*units)(const struct supers *s, uint64_t units[FS_UNITS]);
	/*
	 * fills the fields that show people what changed: all of *fp except kind, CRCs of units and
	 * marks
	 */
	void (*fields)(const struct supers *s, struct fs_fingerprint *fp);
	/* fills the fields that need more than the superblock */
	void (*facts)(const struct fsimage_facts *facts, struct fs_fingerprint *fp);
	/*
	 * Sector k of a unit is not a superblock in its place, and equals neither its earlier
	 * content nor its version in the log. Is it what a driver of this kind writes there? A
	 * power cut does not leave such content.
	 */
	bool (*looks_written)(const uint8_t *sector, unsigned k);
	/* as fsinfo_refusal */
	const char *(*refusal)(const struct fsinfo *f);

	/* ---- commits ---- */
	/* which blocks are in use; NULL: all, so all changes go through the log */
	const struct fsimage_ops *image;
	/* commits may rely on image: the log must hold only what changes in place */
	bool counts_on_free;
	/* single files can be committed: two descendants of one image can be told apart by `image`,
	 * and Linux mounts both at a time */
	bool single_files;
	bool unguarded; /* the log puts no guard into its superblock, which is none that each write changes */
	/* It may lie on several devices: a mount has a device number of its own, and is not found by its device before
	 * Linux 6.17 (BLKFLSBUF). */
	bool several_devices;
	/* as fsinfo_copied_blk, fsinfo_is_copy; NULL: it has no copies that are written by themselves */
	uint64_t (*copied)(uint64_t blk);
	bool (*is_copy)(const uint8_t *committed, const uint8_t *copy);
	/* Boot loaders replay no log, and its driver keeps metadata there until it is frozen. */
	bool log_hides;
	/* With an internal journal it is committed at any moment, as its replay leaves it (replay.h): sets in unit 0 what
	 * that and an unmount leave there. */
	void (*settle)(const struct fsimage_facts *f, uint8_t *unit);
	/* the image after a power cut is valid at any moment, also without a sync */
	bool crash_safe;
	/* after an error it is read-only, and it reads a transaction that is not on the device */
	bool reads_lost_transaction;
	bool own_dirty_limits; /* the limits of the loop device do not limit its dirty data */

	/* ---- programs and people ---- */
	bool can_shrink;   /* resize2fs, e2fsck -p, tune2fs: cowctl prepare --shrink */
	bool tells_mounts; /* each read-write mount changes mtime, and nothing else does */
	const char *readonly_options; /* for a mount that does not replay a journal */
	const char *checker;	      /* program with options; NULL: there is none */
	enum fs_owners owners;
	bool keeps_inode_numbers; /* a file has the same number after each mount */
};

/*
 * Never NULL: for FS_UNKNOWN, or a number that is not in the table, returns an entry without probe.
 */
const struct fs_ops *fs_ops(enum fs_kind kind);
/* By any of its names. */
const struct fs_ops *fs_ops_named(const char *name);
/* The same name, of the table. "unknown", which no kernel has: it is none of these. */
const char *fs_type_named(const char *name);
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

/*
 * The number of bytes before the table of a FAT, where no file decides the content; 0: not a FAT.
 * In fat.c.
 */
uint64_t fat_reserved_bytes(const struct supers *s);

/* In below.c. Is what the probes would recognise only the rest of what was there before? */
bool below_hides_fs(const struct supers *s);
/* For a volume that no probe recognised. */
uint8_t below_find(const struct supers *s);
const char *below_refusal(const struct fsinfo *f);

/* Adds each unit once, while there is room. */
static inline void fs_mark_unit(struct fs_fingerprint *fp, uint64_t blk)
{
	for (uint32_t i = 0; i < fp->n_marks; i++)
		if (fp->mark[i].blk == blk)
			return;
	if (fp->n_marks < FS_MARKS)
		fp->mark[fp->n_marks++].blk = blk;
}

#endif
