/* SPDX-License-Identifier: MIT */
/*
 * One commit of a sealed image: classify, plan, write, record. Knows no daemon: the crash driver
 * runs the very same code on a simulated card.
 */
#ifndef COWFS_COMMIT_COMMIT_H
#define COWFS_COMMIT_COMMIT_H

#include "card/card.h"
#include "fs/fsinfo.h"
#include "flash/profile.h"
#include "log/log.h"
#include "ram/generation.h"

/* What a commit needs to know of the images. All from the commit thread. */
struct commit_source {
	void *ctx;
	uint64_t volume_blks;
	/* next present run of the sealed image at or after *blk, see generation_next */
	bool (*next)(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		     enum blk_state *ret_state);
	int (*read_sealed)(void *ctx, uint64_t blk, uint64_t blks, void *buf);
	int (*read_committed)(void *ctx, uint64_t blk, uint64_t blks, void *buf);
	/* use of blocks in the sealed and in the committed file system, as fsmap_run; NULL: all
	 * used (no classifier) */
	int (*run_sealed)(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			  uint64_t *ret_blks);
	int (*run_committed)(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			     uint64_t *ret_blks);
	/* the same of log_older_index(), asked only if there is one; NULL: all used */
	int (*run_older)(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			 uint64_t *ret_blks);
	/* NULL, or what the blocks of metadata have in them (fsinfo.h): these are never written to
	 * blocks that a candidate leaves free, so nothing is spilled */
	const uint8_t *metadata_uuid;
};

enum commit_phase { PHASE_CLASSIFY, PHASE_DIRECT, PHASE_LOG, PHASE_CHECKPOINT };

typedef void commit_progress(void *ctx, enum commit_phase phase, uint64_t done_blks,
			     uint64_t total_blks);

struct commit_options {
	/* classify and price only: the commit, and a checkpoint behind it if one is due */
	bool dry_run;
	bool checkpoint_asked; /* one follows in any case */
	enum commit_cause cause;
	uint32_t record_flags;
	/* for commit_checkpoint, may be NULL; its bridge is not looked at */
	const struct log_content *content;
	/* for commit_checkpoint with a profile, may be NULL: its run_committed and run_older tell
	 * over which gaps it may write */
	const struct commit_source *uses;
	/* NULL, or kept from one commit to the next (0 at first): blocks in a row that differed
	 * from what was committed; many: samples are compared only */
	uint64_t *differed;
	/* how the card likes to be written, NULL: not known, then all that may be written in place
	 * is, run by run */
	const struct flash_profile *profile;
	/* NULL, or only what the price of a dry run is by, if profile is NULL */
	const struct flash_profile *price_by;
	commit_progress *progress; /* NULL: none */
	void *progress_ctx;
};

/* The bill. Blocks unless the name says otherwise. */
struct commit_report {
	/* in the sealed image: with content, and discarded ones */
	uint64_t dirty, holes;
	/* those of holes that are free or in the journal */
	uint64_t skipped_holes;
	/* those of dirty; same: of holes as well */
	uint64_t skipped_free, skipped_journal, skipped_same;
	uint64_t direct, logged, zero; /* written in place; to the log; as zero records */
	/* those of logged that went to free blocks of the volume */
	uint64_t spilled;
	/* those of logged that went to lent room (log_lend), which is not the card */
	uint64_t lent;
	/* those of logged that could have been written in place */
	uint64_t moved;
	/* written only because a write goes on over a gap */
	uint64_t padded;
	/* of the options, that this is by; NULL: units and model_ns are not known */
	const struct flash_profile *profile;
	uint64_t units; /* of the profile, that get a write in place */
	/* what the profile says that the commit takes, checkpoints apart */
	uint64_t model_ns;
	uint64_t direct_extents, logged_extents; /* runs of consecutive blocks */
	/* log metadata; blocks written home by checkpoints on the way */
	uint64_t meta, checkpoint;
	/* distinct erase blocks that get a write, as planned */
	uint64_t erase_blocks;
	/* those of checkpoints, and two of the log; in a dry run only */
	uint64_t home_erase_blocks;
	/* moves to another erase block, as they were; not in a dry run */
	uint64_t visits;
	uint64_t written_bytes, write_calls, flushes; /* at the card; estimates in a dry run */
	uint64_t duration_ns, writable_ns;
	uint64_t need_blks, room_blks; /* log blocks needed and there; set with -EFBIG */
	/* set with -EFBIG: with so much lent room it could; 0: never */
	uint64_t lend_blks;
	bool estimate;
};

/*
 * On success the new index is in *ret_index (a reference) and the generation is durable. Makes room
 * by a checkpoint if the ring needs it: publish(ctx, index) is called then, and must not return
 * before no reader uses an older index. What the ring cannot hold is spilled to blocks that are
 * free in both images, or goes to lent room. On error nothing is committed: everything sealed must
 * be kept and written again. Errors: -EFBIG neither ring nor free blocks nor lent room can hold it
 * (numbers in the report); -ESTALE card swapped; -EUCLEAN broken log; card errors.
 * Nothing dirty: 0, *ret_index untouched, report zero.
 */
int commit_run(struct log *log, struct card *base, const struct commit_source *src,
	       const struct commit_options *opt,
	       void (*publish)(void *ctx, struct log_index *index), void *publish_ctx,
	       struct commit_report *ret_report, struct log_index **ret_index) MUST_CHECK;

/* Is the log to be brought home behind this commit? It is half full, or a start-up would read too
 * much. With a profile the commit of a shutdown may leave it full. opt may be NULL. */
bool commit_checkpoint_due(struct log *log, const struct commit_options *opt);
/* Adds what the card has seen since the totals were `before`. */
void commit_bill(struct commit_report *rep, const struct log *log,
		 const struct wear_ledger *before);

/* Everything home, then the record that says so (type TAIL or RETIRED, flags from opt). Writes
 * nothing if the newest record says it already, or if nothing was ever committed. */
int commit_checkpoint(struct log *log, struct card *base, const struct commit_options *opt,
		      void (*publish)(void *ctx, struct log_index *index), void *publish_ctx,
		      enum record_type tail_type, uint64_t *ret_blks) MUST_CHECK;

#endif
