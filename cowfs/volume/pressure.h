/* SPDX-License-Identifier: MIT */
/*
 * RAM pressure, the arithmetic: budgets, levels, rates. Pure functions; monitor.c acts on them.
 *
 * 	0 ........ 60 % ........ 75 % ............ limit ......... hard size of the store
 * 	    ok          warn         commit                full
 * 	                             paced once sealed     parked once sealed
 *
 * The reserve between limit and hard size holds the data that a sync flushes through us before
 * the seal, when a withheld reply would stop it. This data is the journal, the dirty page cache,
 * and the writes that programs make in the meantime.
 */
#ifndef COWFS_VOLUME_PRESSURE_H
#define COWFS_VOLUME_PRESSURE_H

#include "commit/commit.h"

#define PRESSURE_MIN_BYTES (8 * MIB) /* smallest slack and smallest limit */
#define PRESSURE_REQUEST_KB 256u     /* max_write of FUSE */
#define PRESSURE_TAGS 128u	     /* of a loop device */
#define PRESSURE_RETRY_NS (60 * 1000000000ull)
#define INHIBIT_DEFAULT_S 600u
#define INHIBIT_MAX_S 86400u

enum pressure_level { LEVEL_OK, LEVEL_WARN, LEVEL_COMMIT, LEVEL_FULL };

struct pressure_plan {
	uint64_t limit_bytes;				  /* set by the user */
	uint64_t journal_bytes, dirty_bytes, slack_bytes; /* the reserve */
	bool bounded; /* the kernel holds the dirty pages to bound_bytes */
	/* of dirty pages: the bound from level commit on, and the amount that rates assume */
	uint64_t bound_bytes;
	/* Second budget: the dirty blocks that a commit can hold, in the log and in the time that
	 * it may take. full 0: more than RAM can hold. */
	struct pressure_steps {
		uint64_t warn, commit, full;
		uint64_t ruin; /* writes fail, or no commit can hold the dirty data any more */
	} ram_bytes, ring_blks;
	/* From here on all replies are withheld until the record. The requests in flight still fit.
	 * 0: no such limit. Used only for file systems that may be sealed without a sync, because a
	 * sync could not complete. */
	uint64_t stop_blks;
	bool counts_on_free; /* the second budget has free blocks, which a sync can use up */
};

/* The part of the reserve for the loop device's dirty page cache under this limit, where the kernel
 * can bound it. */
uint64_t pressure_dirty_bytes(uint64_t limit_bytes);
/* Dirty data possible above a volume where the kernel bounds only the whole system
 * (system_bytes; UINT64_MAX: not known). All of it lands on blocks of the volume, and each block
 * takes RAM once. */
uint64_t pressure_unbounded_bytes(uint64_t system_bytes, uint64_t volume_bytes);
/* dirty_bytes 0: bounded by pressure_dirty_bytes; otherwise the reserve holds this amount, on top
 * of the limit. -ENOSPC: the limit cannot hold journal, bounded dirty pages and slack;
 * *ret_need_bytes is the smallest limit that can. *ret is filled in both cases. */
int pressure_plan(struct pressure_plan *ret, uint64_t limit_bytes, uint64_t journal_bytes,
		  uint64_t dirty_bytes, uint64_t *ret_need_bytes) MUST_CHECK;
/* Is the reserve for dirty pages larger than the limit itself could hold? */
bool pressure_plan_exceeds(const struct pressure_plan *p);
/* For a log of this capacity: the number of dirty blocks at which it commits, the number that a
 * commit can hold, and whether the smallest requests are small enough. */
uint64_t pressure_ring_commits(uint64_t capacity_blks);
uint64_t pressure_ring_fits(uint64_t capacity_blks);
bool pressure_ring_suffices(uint64_t capacity_blks);
/* The size and number of requests for which all requests in flight fit behind stop_blks. */
struct pressure_requests {
	unsigned kb, tags;
};
struct pressure_requests pressure_requests(uint64_t capacity_blks);
/* All dirty data must fit into a log of this capacity. Dirty pages are bounded further, where
 * possible. */
void pressure_plan_ring(struct pressure_plan *p, uint64_t capacity_blks);
/* The same for a volume whose commits have this room for now, in the log and in free blocks, or, beside a generation that is held,
 * in what is left of the log. Fewer free blocks than the log holds are not counted on: a sync can use them up, and then nothing but
 * the log is left. Without them, writes can be withheld before a seal. The reserve stays. */
void pressure_plan_room(struct pressure_plan *p, uint64_t log_blks, uint64_t room_blks);
/* After one of these two: a commit must also be done in a time, in which the card takes so many blocks. late_blks
 * of them become dirty between the decision and the seal. */
void pressure_plan_time(struct pressure_plan *p, uint64_t time_blks, uint64_t late_blks);
uint64_t pressure_hard_bytes(const struct pressure_plan *p);

struct pressure_use {
	uint64_t used_bytes; /* of the store */
	/* part of it that only views hold: they end before it matters; or that no commit would free */
	uint64_t held_bytes;
	uint64_t dirty_blks;   /* dirty blocks that the next commit must hold */
	bool memory_low;       /* the machine is short of memory */
	uint64_t memory_bytes; /* available memory of the machine; valid if memory_low */
};

enum pressure_level pressure_level(const struct pressure_plan *p, const struct pressure_use *u);
/* Is a quarter of what is between `full` and ruin of the second budget used? */
bool pressure_near_ruin(const struct pressure_plan *p, const struct pressure_use *u);
/* Room until `full`. If the machine is short of memory, at most until half of the available memory
 * is used. */
uint64_t pressure_room_bytes(const struct pressure_plan *p, const struct pressure_use *u);
/* Bytes that may be written before the level can change: at least 64 KiB. */
uint64_t pressure_look_bytes(const struct pressure_plan *p, const struct pressure_use *u);

/* A commit under way, from the seal on. */
struct pressure_commit {
	enum commit_phase phase;
	uint64_t done_blks, total_blks; /* of the phase */
	uint64_t sealed_blks;
	uint64_t since_seal_ns;
	uint64_t written_bytes, writing_ns; /* to the card, since its first write */
	/* sealed bytes divided by duration, of the last commit; 0: not known */
	uint64_t usual_bytes_per_s;
	bool durable; /* only a checkpoint is left */
};

uint64_t pressure_left_ns(const struct pressure_commit *c);
/* Before the seal: slower towards ruin, but bounded from below. A sync must flush all dirty data
 * and possibly the journal, and the rate delays it by less than a second. */
uint64_t pressure_rate_unsealed(const struct pressure_plan *p, const struct pressure_use *u);
/* From the seal on: bytes/s for writers so that the room lasts; 0: no room */
uint64_t pressure_rate(uint64_t room_bytes, uint64_t left_ns);

/*
 * Bound of the dirty page cache now. With room below level commit: half of that room, so that all
 * of it lands below that level. From there on: the size that the reserve holds. While a rate limits
 * the writers, less: data that waits in the page cache holds no reply, and with less in flight each
 * reply waits for a shorter time.
 */
uint64_t pressure_dirty_now_bytes(const struct pressure_plan *p, const struct pressure_use *u,
				  bool paced, uint64_t bytes_per_s);

/* MemAvailable below max(64 MiB, 5 %)? text: /proc/meminfo. False if it cannot be read.
 * *ret_available_bytes: 0 if it is not known. */
bool pressure_memory_low(const char *meminfo, uint64_t *ret_available_bytes);
/* How long timer commits stay inhibited. 0: they are allowed. */
uint64_t inhibit_left_ns(uint64_t until_ns, uint64_t now);

const char *pressure_level_name(enum pressure_level level);

#endif
