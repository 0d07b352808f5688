/* SPDX-License-Identifier: MIT */
/*
 * An ext3 or ext4 image as the replay of its journal leaves it, without a copy of it: reads of
 * blocks that the replay writes come from the journal. The journal is empty then, and the
 * superblock asks for no recovery and has the totals of the image, both with their checksums. Orphans
 * are left to the mount.
 * Whatever the image contains, reads stay inside the volume, and memory is bounded by the journal:
 * 16 bytes for each of its blocks.
 */
#ifndef COWFS_FS_REPLAY_H
#define COWFS_FS_REPLAY_H

#include "fs/fsinfo.h"

struct replay;
struct fsimage_facts;
struct fsimage_move;
struct fsimage_range;
struct fsimage_part;
struct reader;

/* How far the journal was replayed. Zeroes: not known. */
struct replay_mark {
	uint32_t next;	/* transaction */
	uint64_t end;	/* its block */
	uint32_t mount; /* checksum of what each mkfs and each mount changes */
};

/*
 * Reads the journal behind r, in the process without privileges if there is one. r is copied; its
 * ctx must outlive *ret, and its content must not change. before: an earlier image that is known as
 * its replay has left it; NULL: none. Blocks; takes CPU and reads in proportion
 * to what the journal holds.
 *
 * -ENOENT: nothing to replay: not ext, no internal journal, or the image is clean as it is.
 * -EOPNOTSUPP: fast or asynchronous commits, or features that are not known here. -EUCLEAN: damaged
 * or crafted. -EOWNERDEAD: that process died. -ENOMEM; errors of the reader.
 */
int replay_open(struct replay **ret, const struct blk_reader *r,
		const struct replay_mark *before) MUST_CHECK;
void replay_close(struct replay *y); /* NULL allowed */

/* Reads the image after the replay. Valid until replay_close. May be used by several threads if the
 * reader of replay_open may. */
struct blk_reader replay_reader(const struct replay *y);
/* Makes of a unit of the image what the replay leaves. Errors of the reader. */
int replay_unit(const struct replay *y, uint64_t blk, uint8_t *unit) MUST_CHECK;
/*
 * The first unit from blk on that may differ from the image before the replay: all that the replay
 * writes, unit 0, and the unit of the journal's superblock. UINT64_MAX: there is none. Without what
 * the replay of an earlier image of this mount has written.
 */
uint64_t replay_next(const struct replay *y, uint64_t blk);
int replay_mark(const struct replay *y, struct replay_mark *ret) MUST_CHECK;
/*
 * The unit of the journal's superblock. A file system that is mounted goes on with its own version
 * of this unit and of unit 0, never with those of the replay.
 */
uint64_t replay_journal_blk(const struct replay *y);
/*
 * Does the next replay need this unit? Those of the two superblocks, and of the journal from its tail to
 * its end, or all of it if that is not known. *ret_blks: how many from blk on, at most max_blks, have this answer.
 */
bool replay_needs(const struct replay *y, uint64_t blk, uint64_t max_blks, uint64_t *ret_blks);
/* Has the journal been aborted? */
bool replay_aborted(const struct replay *y);

/*
 * Private to fs/: the same of a list that is known, ascending. Takes the list, also on failure. The
 * blocks are inside of r. f: geometry, the journal after the replay, and FSIMAGE_ASK_COUNTS or
 * counts_err.
 */
int replay_new(struct replay **ret, const struct blk_reader *r, const struct fsimage_facts *f,
	       struct fsimage_move *list, size_t n) MUST_CHECK;
/* before: of the same mount, as replay_mount says. */
int replay_since(struct replay *y, const struct replay_mark *before) MUST_CHECK;
int replay_mount(const struct blk_reader *r, uint32_t *ret) MUST_CHECK;
const struct fsimage_move *replay_list(const struct replay *y, size_t *ret_n);
const struct fsimage_part *replay_part(const struct replay *y);
/* The reader of the journal, which has all of the image as after the replay: for a map of it. The first caller gets
 * it, and *f; NULL: it is taken. */
void replay_set_reader(struct replay *y, struct reader *x);
struct reader *replay_take_reader(struct replay *y, struct fsimage_facts *f);
/* The places of the journal, ascending, for replay_needs. -ENOMEM. */
int replay_set_places(struct replay *y, const struct fsimage_range *places, size_t n) MUST_CHECK;

#endif
