/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: an image whose metadata this process reads. reader.h asks it; for that, this
 * process may be one without privileges.
 */
#ifndef COWFS_FS_FSIMAGE_H
#define COWFS_FS_FSIMAGE_H

#include <errno.h>
#include <string.h>

#include "fs/fsinfo.h"

struct fsimage_range {
	uint64_t first, count; /* blocks of the file system, not units */
};

/* A block that a replay writes, and the one that has its content. */
struct fsimage_move {
	uint64_t block;
	uint64_t from; /* with FSIMAGE_ESCAPED: the first four bytes are the magic number of jbd2 */
};

#define FSIMAGE_ESCAPED (1ull << 63)

/* What a replay has read of a journal that lies in ascending order; read 0: nothing, or not known. */
struct fsimage_part {
	uint32_t tail, read; /* blocks of the log, the first transaction's first */
	uint32_t sequence,
		next;	     /* of the first transaction, and behind the last one that is whole */
	uint64_t first, end; /* blocks of the file system: where they begin */
};

/* The internal journal according to its inode and its jbd2 superblock. */
struct fsimage_journal {
	uint32_t ino;
	uint32_t log_blocks;	  /* s_maxlen: the superblock is logical block 0 */
	uint32_t sequence, start; /* s_start 0: the log is empty */
	uint64_t sb_block;	  /* file-system block of its superblock */
	uint64_t size_bytes;
	uint32_t error;		  /* s_errno: it was aborted */
	struct fsimage_part part; /* FSIMAGE_ASK_REPLAY */
};

#define FSIMAGE_GDT_MARKS 64

enum {
	FSIMAGE_ASK_GDT = 1,
	FSIMAGE_ASK_JOURNAL = 2,
	FSIMAGE_ASK_COUNTS = 4,
	FSIMAGE_ASK_REPLAY =
		8, /* if its journal can be replayed, all of the image is as after that */
	/*
	 * The facts that open gets have in journal.part.next a transaction. What those before it have
	 * written was read with its checksums, in an earlier image of the same mount: it is not read again.
	 */
	FSIMAGE_ASK_VERIFIED = 16,
};

struct fsimage_facts {
	uint64_t blocks;
	/* blocks per cluster */
	uint32_t block_shift, first_data_block, blocks_per_group, cluster_shift;
	/*
	 * FSIMAGE_ASK_GDT: CRC32C of the descriptor blocks, at most 64 KiB, and their places.
	 * -EUCLEAN: no CRC.
	 */
	int gdt_err;
	uint32_t gdt_crc, gdt_blocks;
	uint64_t gdt_block[FSIMAGE_GDT_MARKS];
	/* FSIMAGE_ASK_JOURNAL. -ENOENT: no internal journal; -EUCLEAN: damaged inode or journal
	 * superblock. */
	int journal_err;
	struct fsimage_journal journal;
	/* FSIMAGE_ASK_COUNTS: the sums of all group descriptors, in blocks, and whether the orphan
	 * file has an entry. -EUCLEAN: damaged. */
	int counts_err;
	uint64_t free_blocks, free_inodes;
	bool orphans;
	/* 0: the image is read as after the replay. -ENOENT: there is nothing to replay, or it was not
	 * asked for. Else as ext4_replay. */
	int replay_err;
};

/* The operations of one kind: they read the metadata that say which blocks are in use. */
struct fsimage_ops {
	/* Errors as for ext4_open (ext4.h), btrfs_space_open, xfs_space_open. */
	int (*open)(void **ret, const struct blk_reader *r, unsigned ask, struct fsimage_facts *f);
	/*
	 * Reads the block bitmap of group nr into a buffer of one block; blocks: from the facts.
	 * -EINVAL: no such group; -EUCLEAN: not to be trusted.
	 */
	int (*group)(void *image, uint64_t nr, uint64_t blocks, uint8_t *bits);
	/* as reader_log; NULL: this kind has no journal */
	int (*log)(void *image, const struct fsimage_journal *j, struct fsimage_range **ret,
		   size_t *ret_n);
	/* the list of the replay, which image keeps; NULL: as log */
	const struct fsimage_move *(*replay)(void *image, size_t *ret_n);
	void (*close)(void *image);
	/*
	 * True: damage is an alarm, and an error is an error. False: what cannot be read counts as
	 * used, whatever the reason.
	 */
	bool alarms;
	uint32_t reads_blks; /* the most that a question about an honest image needs */
};

/*
 * ---- for kinds that keep their free space in trees: windows of the device instead of groups ----
 */

#define GROUP_UNITS (8 * COW_BLK_BYTES)
#define FSIMAGE_READS_TREES_BLKS 4096u

static inline struct fsimage_facts fsimage_windows(const struct blk_reader *r, uint64_t units)
{
	return (struct fsimage_facts){ .blocks = min_u64(units, r->volume_blks),
				       .block_shift = COW_BLK_SHIFT,
				       .blocks_per_group = GROUP_UNITS,
				       .journal_err = -ENOENT };
}

/*
 * Clears the bits of window nr. Returns its number of units, from *ret_first on; 0: no such window.
 */
static inline uint64_t fsimage_window(uint64_t nr, uint64_t units, uint64_t *ret_first,
				      uint8_t *bits)
{
	if (nr > units / GROUP_UNITS)
		return 0;
	memset(bits, 0, COW_BLK_BYTES);
	*ret_first = nr * GROUP_UNITS;
	return min_u64(GROUP_UNITS, units - *ret_first);
}

/* ---- an open image ---- */

struct fsimage {
	const struct fsimage_ops *ops; /* NULL: not open */
	void *image;
	uint64_t blocks;
	uint32_t bitmap_bytes;
};

/* -EOPNOTSUPP: this kind has no reader */
int fsimage_open(struct fsimage *im, const struct blk_reader *r, enum fs_kind kind, unsigned ask,
		 struct fsimage_facts *f) MUST_CHECK;
/* As reader_replay; the list is of im. */
const struct fsimage_move *fsimage_replay(struct fsimage *im, size_t *ret_n);
void fsimage_close(struct fsimage *im); /* allowed for an image that was never opened */
/* Reads the block bitmap of group nr into bitmap_bytes. -EUCLEAN: not to be trusted. */
int fsimage_group(struct fsimage *im, uint64_t nr, uint8_t *bits) MUST_CHECK;
/* As reader_log. */
int fsimage_log(struct fsimage *im, const struct fsimage_journal *j, struct fsimage_range **ret,
		size_t *ret_n) MUST_CHECK;

#endif
