/* SPDX-License-Identifier: MIT */
/*
 * What is on the volume: kind, size, identity, and for ext2/3/4, btrfs and xfs which blocks are in
 * use. The differences between kinds are in their entries (fs_ops.h).
 */
#ifndef COWFS_FS_FSINFO_H
#define COWFS_FS_FSINFO_H

#include "base/util.h"

/* Reads whole 4 KiB blocks of an image of the volume into an aligned buffer: 0 or -errno. */
struct blk_reader {
	int (*read)(void *ctx, uint64_t blk, uint64_t blks, void *buf);
	void *ctx;
	uint64_t volume_blks; /* reads beyond are -EINVAL */
};

/*
 * Each kind: its number on the card, which never changes, and its entry (fs_ops.h). The order is
 * that of the probes, which fsinfo.c explains.
 */
#define FS_KINDS(X)                                                                                \
	X(FS_EXT, 1, ext_ops)                                                                      \
	X(FS_XFS, 2, xfs_ops)                                                                      \
	X(FS_NILFS2, 7, nilfs2_ops)                                                                \
	X(FS_EXFAT, 6, exfat_ops)                                                                  \
	X(FS_VFAT, 5, vfat_ops)                                                                    \
	X(FS_BTRFS, 3, btrfs_ops)                                                                  \
	X(FS_F2FS, 4, f2fs_ops)

#define FS_KIND_NUMBER(kind, number, ops) kind = (number),
enum fs_kind { FS_UNKNOWN = 0, FS_KINDS(FS_KIND_NUMBER) };

struct fsinfo {
	enum fs_kind kind;
	char type[16];	     /* "ext4", "xfs", ...; "unknown" */
	uint64_t size_bytes; /* end of the file system on the device; 0 if unknown */
	uint32_t block_bytes;
	uint8_t uuid[16];
	uint64_t journal_bytes; /* internal journal; 0 if none */
	/* ext, from its superblock, exact when unmounted; for policy only. Otherwise 0 */
	uint64_t free_bytes;
	/* ext only; needs_recovery: from the superblock or from s_start of an internal log */
	bool external_journal, mmp, has_journal, needs_recovery, error_flag, clean;
	bool inline_data; /* Linux 6.18 deadlocks with it and a small journal */
	bool fast_commit;
	/*
	 * xfs with checksums: each metadata block has this UUID, next to the number of the log
	 * record that changed the block last. The replay of a log skips a block with a higher
	 * number, whatever the block was. So metadata of a commit that was cut must not stay in
	 * free blocks.
	 */
	bool has_metadata_uuid;
	uint8_t metadata_uuid[16];
	/* the file system has state that is not on this device */
	bool external_log, realtime; /* xfs */
	/* FS_UNKNOWN: what it is instead (LUKS, LVM), which fsinfo_refusal names; otherwise 0 */
	uint8_t below;
	/* btrfs, f2fs: devices of the file system, including this one; otherwise 1 */
	uint64_t devices;
};

/* The unit of the superblock of which blk has a copy; 0: blk is not the place of a copy. */
uint64_t fsinfo_copied_blk(const struct fsinfo *f, uint64_t blk);
/* For such a unit: is it a copy of the committed superblock, and nothing newer? */
bool fsinfo_is_copy(const struct fsinfo *f, const uint8_t *committed, const uint8_t *copy);
/* Can it be committed while it is mounted read-write? Its image is whole at any moment after a sync. Otherwise it is
 * committed when it is unmounted, or read-only. */
bool fsinfo_any_moment(const struct fsinfo *f);

/*
 * The reason why a commit of this device alone cannot keep the file system consistent: NULL, or the
 * rest of a sentence that begins with the name of the device and a colon, with what to do. Static.
 * Prepare, attach and commit refuse such a file system.
 */
const char *fsinfo_refusal(const struct fsinfo *f);

/*
 * One 4 KiB unit of the base whose content shows whether another program wrote there: CRC32C of
 * each sector.
 */
struct fs_mark {
	uint64_t blk;
	uint32_t sector_crc[8];
};

#define FS_MARKS 20u

/*
 * Identity of the file system in its present state at home, kept in every log record. Any
 * read-write mount or e2fsck elsewhere changes it; cowfs itself changes it only by its own
 * checkpoints. The first fields show people what changed. The marks decide
 * (fsinfo_fingerprint_match), by sectors, so that an interrupted checkpoint of cowfs is recognised
 * as old or new. ext: the units of the superblock, of the group descriptors (first 64 KiB) and of
 * the journal's superblock. ext: the fields below from the superblock and CRC32C of the group
 * descriptor blocks (first 64 KiB of them), sb_crc up to s_checksum. Others: CRC32C of the
 * superblock locations (f2fs: and checkpoint packs, FAT: and start of the FAT) in sb_crc, the rest
 * 0, but NILFS2 has times, count, state and uuid of its first superblock. xfs changes it even when
 * it is mounted read-only.
 */
struct fs_fingerprint {
	uint32_t kind;	       /* enum fs_kind */
	uint32_t mtime, wtime; /* s_mtime, s_wtime */
	uint16_t mnt_count, state;
	uint64_t kbytes_written;
	uint32_t journal_seq; /* jbd2 superblock s_sequence; 0 without journal */
	uint32_t sb_crc, gdt_crc;
	uint8_t uuid[16];
	uint32_t n_marks; /* 0: nothing to compare (unknown kind) */
	struct fs_mark mark[FS_MARKS];
};

/*
 * A process without privileges, if there is one (fsproc.h), reads the metadata of ext2/3/4, btrfs
 * and xfs. In the functions below -EOWNERDEAD means that it died, or took too long; the next
 * question goes to a new process. fsinfo_probe then has only what is in the superblock.
 */
#define FSINFO_DIED "the process that reads the file system's metadata died"

/* 0 (kind FS_UNKNOWN if nothing is recognised), or a read error. */
int fsinfo_probe(const struct blk_reader *r, struct fsinfo *ret) MUST_CHECK;
/* The same, only from the superblock (ext: without the journal's size and state). */
int fsinfo_probe_super(const struct blk_reader *r, struct fsinfo *ret) MUST_CHECK;
int fsinfo_fingerprint(const struct blk_reader *r, struct fs_fingerprint *ret) MUST_CHECK;
/* The same, for a volume whose earlier fingerprint is known: if no mark has changed, no metadata is read. */
int fsinfo_fingerprint_since(const struct blk_reader *r, const struct fs_fingerprint *known,
			     struct fs_fingerprint *ret) MUST_CHECK;
/* The same, only from the superblock: ext then has only the superblock as a mark. */
int fsinfo_fingerprint_super(const struct blk_reader *r, struct fs_fingerprint *ret) MUST_CHECK;
/*
 * Is home unchanged, except for what a checkpoint of cowfs may have written? Each sector has its
 * earlier content or that of the log (a read of a block that is not in the log is -ENODATA). torn:
 * a checkpoint may have been cut, and the blocks that it was writing may be garbage. Garbage is
 * accepted in blocks that the log has, unless it looks written: a superblock, or other content that
 * a mount changes (docs/FORMAT.md, "Whose base is it?").
 */
int fsinfo_fingerprint_match(const struct fs_fingerprint *fp, const struct blk_reader *home,
			     const struct blk_reader *logged, bool torn,
			     bool *ret_match) MUST_CHECK;

/* ---- which blocks does an image use? ---- */

enum blk_use {
	USE_USED = 0, /* or not known to be free: out of range, block 0, doubt */
	USE_FREE = 1, /* every file-system block in this 4 KiB unit is free */
	/*
	 * inside the internal jbd2 log, except its superblock (and the unit that holds it). No
	 * block has this use while the log is not empty: the log is content then, USE_USED.
	 */
	USE_JOURNAL = 2,
};

struct fsmap;
struct replay;

/* Why an image may not be committed automatically; bit mask. */
enum {
	FSMAP_BAD_CHECKSUM = 1 << 0, /* a superblock, descriptor or bitmap checksum is wrong */
	FSMAP_ERROR_FLAG = 1 << 1,   /* EXT4_ERROR_FS is set in s_state */
	/* jbd2 log is not empty: s_start != 0 or needs_recovery set. The uses are believed only if
	 * fsmap_replayed. */
	FSMAP_NEEDS_RECOVERY = 1 << 2,
};

/*
 * Opens the image behind r (copied; its ctx must outlive the map). FS_EXT: reads bitmaps group by
 * group on demand; computes BLOCK_UNINIT groups; an LRU of groups bounds the memory. FS_BTRFS,
 * FS_XFS: the same from their trees, without alarms or errors: what cannot be read is USE_USED. Any
 * other kind: every block is USE_USED. Not for concurrent use.
 */
int fsmap_open(struct fsmap **ret, const struct blk_reader *r) MUST_CHECK;
/* The same of replay_reader(y), which outlives the map. The first time it goes on with the process that has read the journal. */
int fsmap_open_replayed(struct fsmap **ret, struct replay *y) MUST_CHECK;
/*
 * The same as fsmap_open for an image that nothing can read: it has the alarms of its superblock, every
 * block is USE_USED, fsmap_knows is false.
 */
int fsmap_open_unread(struct fsmap **ret, const struct blk_reader *r) MUST_CHECK;
void fsmap_close(struct fsmap *m); /* NULL allowed */
/*
 * For an estimate, never for a commit: the image is live, and its journal will be empty when it is
 * frozen.
 */
void fsmap_assume_empty_journal(struct fsmap *m);
/*
 * True if this image has a classifier: ext, unless it has a feature that libext2fs does not know;
 * btrfs and xfs with the limits in btrfs_space.h, xfs_space.h.
 */
bool fsmap_knows(const struct fsmap *m);
/*
 * Does the image need recovery, and are the uses those after the replay of its journal? Then a block is
 * free for everything that reads the image after a mount or a check. It need not be free for a file system
 * that is mounted now, which may have written there without any change of the image's metadata.
 */
bool fsmap_replayed(const struct fsmap *m);
/* Did something of it count as used only because it could not be read? Another fsmap of the image may
 * know that it is free. */
bool fsmap_doubts(const struct fsmap *m);
/*
 * Use of one 4 KiB unit. A read error is an error; a wrong checksum makes the whole group USE_USED
 * and sets FSMAP_BAD_CHECKSUM.
 */
int fsmap_use(struct fsmap *m, uint64_t blk, enum blk_use *ret) MUST_CHECK;
/*
 * The same, and the number of units from blk on (at most max_blks, at least 1) with this use: long
 * runs cost little. A run ends at the end of its group, or earlier in doubt: the next run may have
 * the same use.
 */
int fsmap_run(struct fsmap *m, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
	      uint64_t *ret_blks) MUST_CHECK;
/*
 * The same for an image that is to replace `before` (NULL: unknown). Blocks of a journal that was
 * newly made, or moved, are USE_USED. Such a journal counts its transactions from 1, and old
 * journal blocks in that place on the card could pass for their continuation after a crash. A
 * journal that continues has higher numbers than all its earlier ones.
 */
int fsmap_run_after(struct fsmap *m, const struct fsmap *before, uint64_t blk, uint64_t max_blks,
		    enum blk_use *ret, uint64_t *ret_blks) MUST_CHECK;
unsigned fsmap_alarms(const struct fsmap *m);
/* Number of the journal's next transaction; 0: no journal. */
uint32_t fsmap_log_sequence(const struct fsmap *m);
/* For `before` of fsmap_run_after: the journal blocks on the card are older than this transaction. */
void fsmap_set_log_sequence(struct fsmap *m, uint32_t sequence);

#endif
