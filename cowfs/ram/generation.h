/* SPDX-License-Identifier: MIT */
/*
 * One generation of changes in RAM: a sparse file on a private tmpfs that holds block b at offset b
 * * 4096, and a two-level presence map with two bits a block.
 *
 * Readers and writers of one generation may run in parallel. The caller provides two things: a
 * block's lock (view.c) around [look at state, fill, write, mark] of writers, and freedom from use
 * before generation_free. Order inside: data first, then the mark (release). A reader that sees
 * BLK_DATA (acquire) reads complete data.
 */
#ifndef COWFS_RAM_GENERATION_H
#define COWFS_RAM_GENERATION_H

#include <sys/types.h>

#include "base/util.h"

struct ram_store; /* the tmpfs: never attached to the tree, hard-limited, no swap, no huge pages */

/* -EINVAL limit 0, -ENOMEM, or errors of fsopen/fsmount. */
int ram_store_open(struct ram_store **ret, uint64_t limit_bytes) MUST_CHECK;
/* Changes the hard limit, at any time. -EINVAL: lower than the usage. */
int ram_store_resize(struct ram_store *s, uint64_t limit_bytes) MUST_CHECK;
/* The same for the first of ram_store_fds, in the broker. */
int ram_store_resize_mount(int mnt_fd, uint64_t limit_bytes) MUST_CHECK;
/* The user who alone has access to stores that are opened later, besides root. */
void ram_store_owner(uid_t uid, gid_t gid);
void ram_store_close(struct ram_store *s); /* NULL allowed; all generations freed before */
/*
 * For a process that takes over: the store lives as long as one of its descriptors.
 * ram_store_take_over owns them on success. -EPROTO: this is not a store of this version.
 */
#define RAM_STORE_FDS 2
void ram_store_fds(const struct ram_store *s, int ret[RAM_STORE_FDS]);
int ram_store_take_over(struct ram_store **ret, const int fd[RAM_STORE_FDS]) MUST_CHECK;
/* Memory that lives as long as the store, zero at first. 1: it is new; 0: it was there; -errno;
 * -EPROTO: it has another size. */
int ram_store_share(const struct ram_store *s, const char *name, size_t bytes,
		    void **ret) MUST_CHECK;
void ram_store_unshare(const struct ram_store *s, const char *name, void *p, size_t bytes);
uint64_t ram_store_used_bytes(const struct ram_store *s); /* cheap: fstatfs */
/* What may be added until max_bytes of the store are used. */
uint64_t ram_store_room(const struct ram_store *s, uint64_t max_bytes);

enum blk_state {
	BLK_ABSENT = 0, /* not in this generation: look below */
	BLK_DATA = 1,	/* in the store */
	BLK_HOLE = 2,	/* reads zero, takes no RAM (discard, write zeroes) */
};

struct generation;

struct generation_stats {
	uint64_t data_blks, hole_blks;
};

int generation_new(struct generation **ret, struct ram_store *s, uint64_t volume_blks) MUST_CHECK;
uint64_t generation_id(const struct generation *g);
/* The generation with this id, of a process that has died. -EPROTO: it is not whole. */
int generation_open(struct generation **ret, struct ram_store *s, uint64_t volume_blks,
		    uint64_t id) MUST_CHECK;

/*
 * The stack of a volume, newest first, for a process that takes over. ram_store_record changes it in
 * one step: call it before anything depends on the new stack, and before generations are freed.
 * -ENOSPC: too many. s NULL: 0.
 */
#define RAM_STACK_MAX 64u
struct ram_stack {
	uint32_t n;
	uint32_t sealed; /* what is below the active generation is under commit */
	uint64_t id[RAM_STACK_MAX];
};
int ram_store_record(struct ram_store *s, struct generation *const *gen, unsigned n,
		     bool sealed) MUST_CHECK;
/* Removes all other generations. -EPROTO: there is none. */
int ram_store_stack(const struct ram_store *s, struct ram_stack *ret) MUST_CHECK;

/* One more user, who calls generation_free later. */
struct generation *generation_ref(struct generation *g);
/* Does it have more than one user? Only a user that can add no other may rely on "no". */
bool generation_is_shared(const struct generation *g);
/* NULL allowed. The last user returns the RAM to the store. */
void generation_free(struct generation *g);
uint64_t generation_volume_blks(const struct generation *g);
void generation_stats(const struct generation *g, struct generation_stats *ret);

/* State of blk. Returns how many blocks from it on (at most max_blks, at least 1) are in the same
 * state. The cost grows with the number of runs and present blocks, not with max_blks, because 64 MiB
 * without a block, or of one run of holes, are skipped at once. */
uint64_t generation_run(const struct generation *g, uint64_t blk, uint64_t max_blks,
			enum blk_state *ret_state);
/* Next present (DATA or HOLE) run at or after *blk; false when there is none. *ret_blks is the
 * run's length, cut at max_blks. Skips empty leaves. */
bool generation_next(const struct generation *g, uint64_t *blk, uint64_t max_blks,
		     uint64_t *ret_blks, enum blk_state *ret_state);

/* Bytes of blocks whose state is BLK_DATA. Any alignment. 0 or -errno. */
int generation_read(const struct generation *g, uint64_t off_bytes, void *buf,
		    size_t len_bytes) MUST_CHECK;
/* Writes bytes to the store, any alignment, without marking. -ENOSPC: hard limit reached. A part of a
 * block only if it is data. */
int generation_write(struct generation *g, uint64_t off_bytes, const void *buf,
		     size_t len_bytes) MUST_CHECK;
/*
 * Marks [blk, blk+blks): DATA, HOLE or ABSENT. Atomic per 64-bit word, O(blks/32). -ENOMEM before
 * anything was marked: data, a second run of holes in 64 MiB, and a run that is split, need a page of the
 * map. If other threads mark there meanwhile, that holds for a range in one multiple of 64 MiB, and for data.
 */
int generation_mark(struct generation *g, uint64_t blk, uint64_t blks,
		    enum blk_state state) MUST_CHECK;
/* Marks HOLE, then returns the pages of these blocks to the store. */
int generation_punch(struct generation *g, uint64_t blk, uint64_t blks) MUST_CHECK;

/* Returns the pages of those blocks in the range that are not DATA to the store. A write that
 * failed before its mark, or a mark ABSENT, left them there. Under the block's lock, like a
 * write. */
void generation_drop(struct generation *g, uint64_t blk, uint64_t blks);

/* Does the map match its counters, and are the blocks that it shows in the store? If not, a rule is
 * broken. Only for a generation that does not change meanwhile. */
bool generation_check(const struct generation *g);

/* Current memory of the presence map, in bytes (RSS of its file). */
uint64_t generation_map_bytes(const struct generation *g);

#endif
