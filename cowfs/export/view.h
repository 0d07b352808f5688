/* SPDX-License-Identifier: MIT */
/*
 * The merged view. For each 4 KiB block it shows the newest of
 * 	1 active generation	RAM
 * 	2 sealed generation	RAM, while a commit is under way
 * 	3 older generation	RAM, left by a commit, or shared with a snapshot; may be several
 * 	4 log			card, through the log index
 * 	5 base			card, at the home location
 *
 * I1  A request pins the layer stack from look-up to the end of its copying. A layer is freed, and
 *     ring space is reused, only after every pin older than the removal is gone (view_synchronize).
 * I2  Every write holds the seal lock shared from its first look-up to its last mark, so that a seal
 *     has all of it or nothing. A punch holds it piece by piece. The seal takes it exclusively, for
 *     microseconds.
 * I3  A striped lock serialises the writers of one block. The first write to a part of a block
 *     fills the rest from below, once.
 * I4  view_read, view_write and view_punch never wait for a commit.
 */
#ifndef COWFS_EXPORT_VIEW_H
#define COWFS_EXPORT_VIEW_H

#include "base/util.h"
#include "card/card.h"
#include "export/readahead.h"
#include "export/pin.h"
#include "log/index.h"
#include "ram/generation.h"

struct layers;
struct view;

/* Cumulative; any thread may read them. They count what programs asked for, before any merging. */
struct view_counters {
	uint64_t read_calls, read_bytes;
	uint64_t write_calls, written_bytes; /* absorbed in RAM */
	uint64_t punch_calls, punched_bytes;
	uint64_t read_errors, write_errors;
};

/* A read that was started. Caller-owned; reusable once done() is called. */
struct view_read {
	/* from another thread, possibly before view_start_read returns */
	void (*done)(struct view_read *rd, int r);
	/* private */
	struct view *view;
	struct pin pin;
	size_t len_bytes;
	struct readahead_read readahead;
};

#define VIEW_READS 40u /* maximum in flight; further reads get -EAGAIN */

/* Takes its own reference to index; the caller keeps its own. The caller keeps ownership of store
 * and base, which must outlive the view. volume_blks * 4096 <= base size. */
int view_new(struct view **ret, struct ram_store *store, struct card *base, uint64_t volume_blks,
	     struct log_index *index) MUST_CHECK;
/*
 * The same with the stack that a process had when it died. committed: what was under commit then is
 * durable, and dropped if it still is in the stack. -EPROTO: the store has no stack.
 */
int view_adopt(struct view **ret, struct ram_store *store, struct card *base, uint64_t volume_blks,
	       struct log_index *index, bool committed) MUST_CHECK;
/* Number of generations below the active one. Commit thread only. */
unsigned view_layers_below(const struct view *v);
/* The same without read-ahead and without view_start_read: allocates little, and no AIO context. Its
 * stack ends with the process. */
int view_new_plain(struct view **ret, struct ram_store *store, struct card *base,
		   uint64_t volume_blks, struct log_index *index) MUST_CHECK;
void view_free(struct view *v); /* no request in flight */
uint64_t view_volume_blks(const struct view *v);
void view_counters(const struct view *v, struct view_counters *ret);

/* ---- serving threads: any alignment down to 1 byte, whole range or an error (-EINVAL outside the
 * volume, -EIO and -EBADMSG from below, -ENOSPC hard limit of the store). A failed write changes no
 * block that it did not complete, and none at all if it failed below. -ENOMEDIUM: the card is away,
 * nothing is counted, and the caller repeats all of it. */
int view_read(struct view *v, uint64_t off_bytes, void *buf, size_t len_bytes) MUST_CHECK;
int view_write(struct view *v, uint64_t off_bytes, const void *buf, size_t len_bytes) MUST_CHECK;
/* the range reads zero afterwards */
int view_punch(struct view *v, uint64_t off_bytes, uint64_t len_bytes) MUST_CHECK;

/* view_read without blocking on the card. 0 or the error: at once. VIEW_PENDING: done will be
 * called. -EAGAIN: the read would block; nothing is counted, buf may be changed. Nor is anything
 * counted if done gets -EIO or -ENOMEDIUM: the caller repeats it with view_read, which tries again. The
 * view must not be freed meanwhile. */
#define VIEW_PENDING READAHEAD_PENDING
int view_start_read(struct view *v, uint64_t off_bytes, void *buf, size_t len_bytes,
		    struct view_read *rd) MUST_CHECK;
/* Would this write first have to read from the card? Only a hint: the answer can change at any
 * moment. */
bool view_write_waits(struct view *v, uint64_t off_bytes, size_t len_bytes);

/* ---- commit thread only ---- */

/* Statistics of the active generation, and of the sealed and failed ones together. Without what
 * view_release_keeping has kept. */
void view_dirty(struct view *v, struct generation_stats *ret_active,
		struct generation_stats *ret_below);
uint64_t view_changed_blks(struct view *v); /* data and holes of all of these */

/* The active generation becomes the sealed one, and a new empty generation becomes active. Older
 * failed layers, merged as in view_fail, stay below the sealed one and belong to it from now on.
 * -EBUSY: already sealed. -ENOMEM: nothing changed. */
int view_seal(struct view *v) MUST_CHECK;
/* After view_adopt, whose process died between a seal and its release. */
void view_seal_again(struct view *v);
/* After a seal: does RAM match its counters? -ENOTRECOVERABLE: a rule is broken (base/invariant.h),
 * and the generation must not be committed. */
int view_check_sealed(const struct view *v) MUST_CHECK;
/* The commit succeeded. Publishes index (takes the caller's reference). Then frees the sealed and
 * the failed generation and the old index once no pin needs them. */
void view_release(struct view *v, struct log_index *index);
/* Does blk stay in RAM? newest: as the newest sealed generation has it. *ret_blks: number of blocks from blk on with
 * this answer, at most max_blks. */
typedef bool view_keeps(void *ctx, bool newest, uint64_t blk, uint64_t max_blks,
			uint64_t *ret_blks);
/* The same, but keep() says which blocks of the sealed generation stay in RAM until the next
 * release. The commit did not write them. The next seal seals them again, below what was written
 * later. all: blocks of the layers below as well, which are released otherwise. */
void view_release_keeping(struct view *v, struct log_index *index, bool all, view_keeps *keep,
			  void *ctx);
/* After view_adopt: all below the active generation is what view_release_keeping has kept. */
void view_keep_below(struct view *v);
/* How many blocks of data view_release_keeping has kept. Any thread. */
uint64_t view_kept_blks(struct view *v);
/* The commit failed, or there is none: the sealed generation becomes the failed layer. An older
 * failed layer is merged with it, block by block, in bounded extra memory, unless one of the two is
 * in a copy of the stack. Writes to the active generation and reads continue meanwhile. -ENOSPC,
 * -ENOMEM: nothing is lost, the layers only stay separate (there may be many) until the next
 * view_fail or view_release. -EINVAL: not sealed. */
int view_fail(struct view *v) MUST_CHECK;
/* A copy of the stack with references of its own, and room for `room` more generations: the content
 * of the card, or that and everything below the active generation. A generation that is in such a
 * copy never changes. -ENOMEM. */
int view_copy_layers(struct view *v, bool committed, unsigned room, struct layers **ret) MUST_CHECK;
/* Adds a generation below all others, over the content of the card; on success it belongs to the
 * view. For each of its blocks that no other layer has, the image stays the same: it has what the
 * card has now. On return no reader looks at these blocks on the card any more. -ENOMEM, -EBUSY:
 * sealed. */
int view_add_below(struct view *v, struct generation *g) MUST_CHECK;
/* Makes the block present in the active generation, with the content that it has. Not with the seal lock held; any
 * thread. Errors of the store, and of reading below. */
int view_fill(struct view *v, uint64_t blk) MUST_CHECK;
/* Is this generation one of the layers? Any thread. */
bool view_has_generation(struct view *v, const struct generation *g);
/* After a checkpoint: publishes a new index only. Returns once nothing can use the old index. */
void view_set_index(struct view *v, struct log_index *index);
/* Waits until every request that pinned the stack before this call has ended. */
void view_synchronize(struct view *v);

/* Immutable images for the commit. 4 KiB blocks, aligned buffers. */
/* committed: log over base. Allowed at any time. */
int view_read_committed(struct view *v, uint64_t blk, uint64_t blks, void *buf) MUST_CHECK;
/* sealed (and failed) over committed. Between view_seal and view_release/view_fail. */
int view_read_sealed(struct view *v, uint64_t blk, uint64_t blks, void *buf) MUST_CHECK;
/* The same, but only if RAM has the whole range as data; otherwise -ENODATA. */
int view_peek_sealed(struct view *v, uint64_t blk, uint64_t blks, void *buf) MUST_CHECK;
/* The same for the live image; any thread. */
int view_peek_live(struct view *v, uint64_t blk, uint64_t blks, void *buf) MUST_CHECK;
/* Next present run of the sealed pair at or after *blk, as generation_next. */
bool view_next_sealed(struct view *v, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		      enum blk_state *ret_state);
/* The live image and its runs (all RAM layers merged, without what view_release_keeping has kept), for dry
 * runs. They change while they are read. */
int view_read_live(struct view *v, uint64_t blk, uint64_t blks, void *buf) MUST_CHECK;
bool view_next_live(struct view *v, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		    enum blk_state *ret_state);

#endif
