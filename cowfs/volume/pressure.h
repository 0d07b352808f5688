/* SPDX-License-Identifier: MIT */
/*
 * RAM pressure, the arithmetic: budgets, levels, rates. Pure functions; monitor.c acts on them.
 *
 * 	0 ........ 60 % ........ 75 % ............ limit ......... hard size of the store
 * 	    ok          warn         commit                full
 * 	                             paced once sealed     parked once sealed
 *
 * The reserve between limit and hard size holds what a freeze still flushes through us before the
 * seal, when no reply may be withheld: the journal, the dirty page cache, and what writers do in
 * the meantime.
 */
#ifndef COWFS_VOLUME_PRESSURE_H
#define COWFS_VOLUME_PRESSURE_H

#include "commit/commit.h"

#define PRESSURE_MIN_BYTES (8 * MIB) /* least slack, and least limit */
#define PRESSURE_REQUEST_KB 256u     /* max_write of FUSE */
#define PRESSURE_TAGS 128u	     /* of a loop device */
#define PRESSURE_RETRY_NS (60 * 1000000000ull)
#define HOLD_DEFAULT_S 600u
#define HOLD_MAX_S 86400u

enum pressure_level { LEVEL_OK, LEVEL_WARN, LEVEL_COMMIT, LEVEL_FULL };

struct pressure_plan {
	uint64_t limit_bytes;				  /* the user's */
	uint64_t journal_bytes, dirty_bytes, slack_bytes; /* the reserve */
	bool bounded; /* the kernel holds the dirty pages to bound_bytes */
	/* of dirty pages: the bound from level commit on, and what rates count on */
	uint64_t bound_bytes;
	/* Second budget: the dirty blocks that a commit can hold. full 0: more than RAM can. */
	struct pressure_steps {
		uint64_t warn, commit, full;
		uint64_t ruin; /* writes fail, or no commit can hold it any more */
	} ram_bytes, ring_blks;
	/* From here on all replies are withheld until the seal: what the requests in flight bring
	 * still fits. 0: no such limit. Only for file systems that may be sealed without a freeze,
	 * which could not end. */
	uint64_t stop_blks;
};

/* What the reserve holds of the loop device's dirty page cache under this limit, where the kernel
 * can bound it. */
uint64_t pressure_dirty_bytes(uint64_t limit_bytes);
/* What may be dirty above a volume where the kernel bounds only the whole system (system_bytes;
 * UINT64_MAX: not known). Whatever it is lands on blocks of the volume, each of which takes RAM
 * once. */
uint64_t pressure_unbounded_bytes(uint64_t system_bytes, uint64_t volume_bytes);
/* dirty_bytes 0: bounded by pressure_dirty_bytes; else the reserve holds so much, on top of the
 * limit. -ENOSPC: the limit cannot hold journal, bounded dirty pages and slack; *ret_need_bytes is
 * the least that can. *ret is filled in both cases. */
int pressure_plan(struct pressure_plan *ret, uint64_t limit_bytes, uint64_t journal_bytes,
		  uint64_t dirty_bytes, uint64_t *ret_need_bytes) MUST_CHECK;
/* Is the reserve for dirty pages more than the limit could hold itself? */
bool pressure_plan_exceeds(const struct pressure_plan *p);
/* Of a log of this capacity: from how many dirty blocks on it commits, how many a commit can hold,
 * and whether the smallest requests are small enough. */
uint64_t pressure_ring_commits(uint64_t capacity_blks);
uint64_t pressure_ring_fits(uint64_t capacity_blks);
bool pressure_ring_suffices(uint64_t capacity_blks);
/* How large requests may be, and how many at once, so that all that can be in flight fits behind
 * stop_blks. */
struct pressure_requests {
	unsigned kb, tags;
};
struct pressure_requests pressure_requests(uint64_t capacity_blks);
/* All that is dirty must fit into a log of so many blocks. Dirty pages are bounded further, where
 * they can be. */
void pressure_plan_ring(struct pressure_plan *p, uint64_t capacity_blks);
/* The same for a volume whose commits have so much room for now, in the log and in free blocks. The
 * reserve stays. */
void pressure_plan_room(struct pressure_plan *p, uint64_t room_blks);
uint64_t pressure_hard_bytes(const struct pressure_plan *p);

struct pressure_use {
	uint64_t used_bytes;   /* of the store */
	uint64_t dirty_blks;   /* that the next commit will have to hold */
	bool memory_low;       /* of the machine */
	uint64_t memory_bytes; /* that it still has; counts if memory_low */
};

enum pressure_level pressure_level(const struct pressure_plan *p, const struct pressure_use *u);
/* Until `full`, or until half of what a machine short of memory still has is used. */
uint64_t pressure_room_bytes(const struct pressure_plan *p, const struct pressure_use *u);
/* How much may be written before the level can change: at least 64 KiB. */
uint64_t pressure_look_bytes(const struct pressure_plan *p, const struct pressure_use *u);

/* A commit under way, from the seal on. */
struct pressure_commit {
	enum commit_phase phase;
	uint64_t done_blks, total_blks; /* of the phase */
	uint64_t sealed_blks;
	uint64_t since_seal_ns;
	uint64_t written_bytes, writing_ns; /* at the card, since its first write */
	/* sealed bytes by duration of the last one; 0: not known */
	uint64_t usual_bytes_per_s;
	bool durable; /* only a checkpoint is left */
};

uint64_t pressure_left_ns(const struct pressure_commit *c);
/* Before the seal: slower the nearer the ruin is, but never so slow that a freeze, which has to
 * flush all that is dirty and maybe the journal, takes a second longer for it. */
uint64_t pressure_rate_unsealed(const struct pressure_plan *p, const struct pressure_use *u);
/* From the seal on: bytes/s for writers so that the room lasts; 0 without room */
uint64_t pressure_rate(uint64_t room_bytes, uint64_t left_ns);

/*
 * What may be dirty in the page cache now. With room below level commit: half of that room, so all
 * of it lands below that level. From there on: what the reserve holds. While writers are held to a
 * rate, less: what waits in the page cache needs no reply held, and the less is in flight the
 * shorter each one waits.
 */
uint64_t pressure_dirty_now_bytes(const struct pressure_plan *p, const struct pressure_use *u,
				  bool paced, uint64_t bytes_per_s);

/* MemAvailable below max(64 MiB, 5 %)? text: /proc/meminfo. False if it cannot be read.
 * *ret_available_bytes: 0 if it is not known. */
bool pressure_memory_low(const char *meminfo, uint64_t *ret_available_bytes);
/* A hold ends by itself. 0: over. */
uint64_t hold_left_ns(uint64_t until_ns, uint64_t now);

const char *pressure_level_name(enum pressure_level level);

#endif
