/* SPDX-License-Identifier: MIT */
/*
 * One commit of a sealed image: classify, plan, write, record. Independent of the daemon: the crash
 * driver runs the same code on a simulated card.
 */
#ifndef COWFS_COMMIT_COMMIT_H
#define COWFS_COMMIT_COMMIT_H

#include "card/card.h"
#include "fs/extents.h"
#include "fs/fsinfo.h"
#include "flash/costs.h"
#include "log/log.h"
#include "ram/generation.h"

/* The images of a commit. All calls come from the commit thread. */
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
	/* use of blocks in the image of log_older_index(); called only if there is one; NULL: all
	 * used */
	int (*run_older)(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			 uint64_t *ret_blks);
	/* the same in the generation that is held (log_holds) */
	int (*run_held)(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			uint64_t *ret_blks);
	/* NULL, or the bytes that mark metadata blocks (fsinfo.h). Such a block is never written to
	 * blocks that a candidate leaves free, nor spilled */
	const uint8_t *metadata_uuid;
	/* The live file system may have content on the card in blocks that the sealed image leaves free. run_loose says in
	 * which, as fsmap_run; NULL: in all. Nothing else is written there. */
	bool loose;
	int (*run_loose)(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			 uint64_t *ret_blks);
	/* NULL, or: such blocks that no generation uses are written in place, without an entry in the log
	 * (with lag: with one), as the live file system has them. note_loose: they will be, unless it fails.
	 * wrote_loose: RAM need not keep these. */
	int (*read_loose)(void *ctx, uint64_t blk, uint64_t blks, void *buf);
	int (*note_loose)(void *ctx, uint64_t blk, uint64_t blks);
	void (*wrote_loose)(void *ctx, uint64_t blk, uint64_t blks);
};

enum commit_phase { PHASE_CLASSIFY, PHASE_DIRECT, PHASE_LOG, PHASE_CHECKPOINT, PHASE_TRIM };

typedef void commit_progress(void *ctx, enum commit_phase phase, uint64_t done_blks,
			     uint64_t total_blks);

struct commit_options {
	/* only classify and estimate: the commit, and a checkpoint after it if one is due */
	bool dry_run;
	bool checkpoint_asked; /* a checkpoint follows in any case, unless a generation is held */
	/* write to no block of the volume but those that change: nothing is spilled. With a profile
	 * gaps are written over, so there is none */
	bool only_changed;
	enum commit_cause cause;
	uint32_t record_flags;
	/* for commit_checkpoint, may be NULL; its bridge is ignored */
	const struct log_content *content;
	/* for commit_checkpoint, may be NULL: with a profile its run_committed and run_older decide
	 * which gaps it may write over */
	const struct commit_source *uses;
	/* for commit_checkpoint, may be NULL: asked after each unit of the profile, or erase block,
	 * that is written home. True: commit_checkpoint ends with -EINTR and leaves the rest, and the
	 * record, to the next checkpoint. */
	bool (*stop)(void *ctx);
	void *stop_ctx;
	/* for commit_checkpoint: commits follow in this session, so the superblock keeps its guard
	 * (docs/FORMAT.md, "The guard") until a checkpoint at rest or at the end */
	bool goes_on;
	/* NULL, or a counter kept from one commit to the next (0 at first): consecutive blocks that
	 * differed from the committed content. If it is large, only samples are compared */
	uint64_t *differed;
	/* NULL, or blocks that are written also if they are the same as in the committed image */
	const struct extents *renew;
	/* behaviour of the card; NULL: unknown, and every block that may be written in place is
	 * written in place, run by run */
	const struct card_costs *profile;
	/* NULL, or the profile for the estimate of a dry run if profile is NULL; not used
	 * otherwise */
	const struct card_costs *price_by;
	commit_progress *progress; /* NULL: none */
	void *progress_ctx;
};

/* What an estimated time rests on; TIME_UNKNOWN: it is none. */
enum time_by { TIME_UNKNOWN, TIME_BY_COMMITS, TIME_BY_GUESS };

/* The account of a commit. Unit: blocks, unless the name says otherwise. */
struct commit_report {
	/* in the sealed image: blocks with content; discarded blocks */
	uint64_t dirty, holes;
	/* part of holes: free or in the journal */
	uint64_t skipped_holes;
	/* parts of dirty */
	uint64_t skipped_free, skipped_journal, skipped_same;
	uint64_t direct, logged, zero; /* written in place; to the log; as zero records */
	/* part of logged: written to free blocks of the volume */
	uint64_t spilled;
	/* part of logged: could have been written in place */
	uint64_t moved;
	/* written only because a write continues over a gap */
	uint64_t padded;
	/* part of dirty: free in the sealed image, and written for the live file system only */
	uint64_t loose;
	/* the profile of the options behind these figures; NULL: units and model_ns are unknown */
	const struct card_costs *profile;
	uint64_t units; /* units of the profile with a write in place */
	/* duration of the commit in the profile, without checkpoints */
	uint64_t model_ns;
	uint64_t direct_extents, logged_extents; /* runs of consecutive blocks */
	/* log metadata; blocks that checkpoints within the commit wrote home */
	uint64_t meta, checkpoint;
	/* distinct erase blocks with a write, as planned */
	uint64_t erase_blocks;
	/* those of checkpoints, with two of the log for each; in a dry run only */
	uint64_t home_erase_blocks;
	/* actual moves to another erase block; not in a dry run */
	uint64_t visits;
	uint64_t written_bytes, write_calls, flushes; /* at the card; estimates in a dry run */
	uint64_t duration_ns, writable_ns;	      /* with checkpoints */
	uint64_t need_blks, room_blks; /* log blocks needed and available; set with -EFBIG */
	bool estimate;
	/* with -EFBIG: a generation is held, and nothing says that it would not have fitted otherwise */
	bool held;
	/* with -EFBIG: what is free in the sealed image is not known, and would have been written, too */
	bool free_unknown;
	enum time_by time_by; /* of an estimated writable_ns, which the volume sets */
};

/*
 * On success the new index is in *ret_index (a reference), and the generation is durable. If the
 * ring needs room, a checkpoint makes it: publish(ctx, index) is called then, and must return only
 * when no reader uses an older index. Payload that the ring cannot hold is spilled to blocks that
 * are free in both images. On error nothing is committed: the caller keeps everything sealed and
 * writes it again. Errors: -EFBIG: ring and free blocks are too small (numbers in the report); -ESTALE: card swapped; -EUCLEAN: broken log; card errors.
 * Nothing dirty: 0, *ret_index untouched, report zero.
 */
int commit_run(struct log *log, struct card *base, const struct commit_source *src,
	       const struct commit_options *opt,
	       void (*publish)(void *ctx, struct log_index *index), void *publish_ctx,
	       struct commit_report *ret_report, struct log_index **ret_index) MUST_CHECK;

/* Is a checkpoint due after this commit? True if the log is half full, or if a start would read too
 * many records. With a profile the commit of a shutdown may leave the log nearly full. opt may be
 * NULL. */
bool commit_checkpoint_due(struct log *log, const struct commit_options *opt);
/* Holds the newest generation (log_hold), or ends that (log_release), or goes back (log_go_back). */
int commit_hold(struct log *log, struct card *base, struct log_index **ret_index) MUST_CHECK;
int commit_release(struct log *log, struct card *base) MUST_CHECK;
int commit_go_back(struct log *log, struct card *base, bool on) MUST_CHECK;
int commit_set_image(struct log *log, struct card *base, uint32_t image,
		     uint8_t boots) MUST_CHECK;				       /* log_set_image */
int commit_try(struct log *log, struct card *base, unsigned boots) MUST_CHECK; /* log_try */
int commit_put_order(struct log *log, struct card *base,
		     const struct log_hold *h) MUST_CHECK; /* log_put_order */
int commit_set_imported(struct log *log, struct card *base, uint64_t imported_s,
			uint64_t offered_s) MUST_CHECK; /* log_set_imported */
/* Writes an empty record (log_note). */
int commit_note(struct log *log, struct card *base) MUST_CHECK;
/* Adds what was written to the card since the totals were `before`. */
void commit_bill(struct commit_report *rep, const struct log *log,
		 const struct wear_ledger *before);

/* Writes everything home, then the record that says so (type TAIL or RETIRED, flags from opt).
 * Writes nothing if the newest record already says so, or before the first commit. */
int commit_checkpoint(struct log *log, struct card *base, const struct commit_options *opt,
		      void (*publish)(void *ctx, struct log_index *index), void *publish_ctx,
		      enum record_type tail_type, uint64_t *ret_blks) MUST_CHECK;

#endif
