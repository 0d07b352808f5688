/* SPDX-License-Identifier: MIT */
#include "volume/pressure.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "export/view.h"

#define WARN_PERCENT 60u
#define COMMIT_PERCENT 75u
#define RING_WARN_PERCENT 40u
#define RING_COMMIT_PERCENT 50u
#define RING_FULL_PERCENT 65u /* the rest: data that a sync flushes */
#define RING_STOP_PERCENT 70u /* later writes were in flight */
#define RING_RUIN_PERCENT 90u /* the rest: descriptors */
#define RING_FIT_PERCENT 96u  /* the rest: descriptors, of extents of one block each */
#define RING_DIRTY_SHARE 16u
#define REQUEST_LEAST_KB 4u
#define REQUEST_GOOD_KB 128u /* smaller requests make a card slow */
#define TAGS_LEAST 16u
#define IN_HAND 8u /* requests that serving threads may hold, besides those in flight */
#define ROOM_DESCRIPTOR_PERCENT 2u /* the worst case has extents of one block */
#define ROOM_DESCRIPTOR_BLKS 64u
/* twice DIRTY_PACED_BYTES, the requests in flight, and slack: a sync flushes them however small
 * the room is */
#define ROOM_SYNC_BLKS 512u
#define TIME_FULL_BLKS 256u /* even if all of the time goes to what is late */
#define DIRTY_SHARE 24u
#define DIRTY_MAX_BYTES (16 * MIB)
#define DIRTY_MIN_BYTES (1 * MIB)
#define DIRTY_PACED_BYTES (512 * KIB)
/* keeps a sync from taking seconds for these pages */
#define DIRTY_WIDE_BYTES (256 * MIB)
#define SLACK_SHARE 8u
#define LOOK_MIN_BYTES (64 * KIB)

#define UNKNOWN_BYTES_PER_S (8 * MIB)	/* speed of a slow card */
#define MEASURE_NS 200000000ull		/* shorter measurements are useless */
#define LEFT_MIN_NS 20000000ull		/* flushes and the record */
#define UNSEALED_NS 500000000ull	/* the way to ruin takes at least this long */
#define UNSEALED_LEAST_BYTES (16 * MIB) /* per second */
/* per second, near the end of the log, which cannot give way as RAM does */
#define UNSEALED_RING_BYTES (2 * MIB)
#define SECOND_NS 1000000000ull

#define MEMORY_LOW_BYTES (64 * MIB)
#define MEMORY_LOW_PERCENT 5u

static uint64_t percent_of(uint64_t whole, unsigned percent)
{
	return whole / 100 * percent + whole % 100 * percent / 100;
}

/* ---- budgets ---- */

uint64_t pressure_dirty_bytes(uint64_t limit_bytes)
{
	return max_u64(min_u64(limit_bytes / DIRTY_SHARE, DIRTY_MAX_BYTES), DIRTY_MIN_BYTES);
}

uint64_t pressure_unbounded_bytes(uint64_t system_bytes, uint64_t volume_bytes)
{
	return max_u64(min_u64(system_bytes, volume_bytes), DIRTY_MIN_BYTES);
}

/* The smallest limit that holds the journal, bounded dirty pages and slack. */
static uint64_t need_bytes(uint64_t journal_bytes)
{
	uint64_t fixed = journal_bytes + PRESSURE_MIN_BYTES;
	uint64_t need = round_up_u64(fixed * DIRTY_SHARE / (DIRTY_SHARE - 1), MIB);

	return min_u64(max_u64(need, fixed + DIRTY_MIN_BYTES), fixed + DIRTY_MAX_BYTES);
}

int pressure_plan(struct pressure_plan *ret, uint64_t limit_bytes, uint64_t journal_bytes,
		  uint64_t dirty_bytes, uint64_t *ret_need_bytes)
{
	*ret = (struct pressure_plan){
		.limit_bytes = limit_bytes,
		.journal_bytes = journal_bytes,
		.dirty_bytes = dirty_bytes ? dirty_bytes : pressure_dirty_bytes(limit_bytes),
		.slack_bytes = max_u64(PRESSURE_MIN_BYTES, limit_bytes / SLACK_SHARE),
		.bounded = !dirty_bytes,
		.ram_bytes = { .warn = percent_of(limit_bytes, WARN_PERCENT),
			       .commit = percent_of(limit_bytes, COMMIT_PERCENT),
			       .full = limit_bytes },
	};
	ret->bound_bytes = ret->dirty_bytes;
	ret->ram_bytes.ruin = pressure_hard_bytes(ret);
	*ret_need_bytes = need_bytes(journal_bytes);
	return limit_bytes < *ret_need_bytes ? -ENOSPC : 0;
}

bool pressure_plan_exceeds(const struct pressure_plan *p)
{
	return p->dirty_bytes + p->journal_bytes + PRESSURE_MIN_BYTES > p->limit_bytes;
}

/* Of the blocks that a commit can hold: the part for dirty pages. */
static uint64_t dirty_share(uint64_t blks)
{
	return max_u64(blk_to_bytes(blks) / RING_DIRTY_SHARE, DIRTY_PACED_BYTES);
}

static void bound_by_log(struct pressure_plan *p, uint64_t blks)
{
	p->bound_bytes = min_u64(p->dirty_bytes, dirty_share(blks));
}

/* Keeps the distance from the end that descriptors and a sync need. A small room is divided like
 * a ring. */
static struct pressure_steps steps_of_room(const struct pressure_plan *p, uint64_t room_blks)
{
	uint64_t sync_blks = (p->journal_bytes + p->dirty_bytes + PRESSURE_MIN_BYTES) /
			     COW_BLK_BYTES;
	uint64_t descriptor_blks = percent_of(room_blks, ROOM_DESCRIPTOR_PERCENT) +
				   ROOM_DESCRIPTOR_BLKS;
	struct pressure_steps s;

	s.ruin = room_blks -
		 min_u64(descriptor_blks, room_blks - percent_of(room_blks, RING_RUIN_PERCENT));
	s.full = s.ruin -
		 min_u64(sync_blks,
			 max_u64(percent_of(room_blks, RING_RUIN_PERCENT - RING_FULL_PERCENT),
				 min_u64(ROOM_SYNC_BLKS, room_blks / 2)));
	s.commit = s.full - min_u64(sync_blks,
				    percent_of(room_blks, RING_FULL_PERCENT - RING_COMMIT_PERCENT));
	s.warn = percent_of(s.commit, RING_WARN_PERCENT * 100 / RING_COMMIT_PERCENT);
	return s;
}

static bool exceeds_ram(const struct pressure_plan *p, const struct pressure_steps *s)
{
	return s->full >= pressure_hard_bytes(p) / COW_BLK_BYTES;
}

static uint64_t near_ruin(const struct pressure_steps *s)
{
	return s->full + (s->ruin - s->full) / 4;
}

void pressure_plan_room(struct pressure_plan *p, uint64_t log_blks, uint64_t room_blks)
{
	struct pressure_steps s;

	p->counts_on_free = room_blks >= 2 * max_u64(log_blks, 1);
	if (!p->counts_on_free)
		room_blks = min_u64(room_blks, log_blks);
	room_blks = max_u64(room_blks, 16); /* 0 would mean no room limit */
	s = steps_of_room(p, room_blks);
	p->ring_blks = (struct pressure_steps){ 0 };
	p->bound_bytes = p->dirty_bytes;
	p->stop_blks = 0;
	if (exceeds_ram(p, &s))
		return;
	p->ring_blks = s;
	p->stop_blks = near_ruin(&s);
	bound_by_log(p, room_blks);
}

/* Without room for descriptors, which the measured time includes. */
static struct pressure_steps steps_of_time(uint64_t time_blks, uint64_t late_blks)
{
	struct pressure_steps s = { .ruin = time_blks };

	late_blks = max_u64(late_blks, percent_of(time_blks, RING_FIT_PERCENT - RING_STOP_PERCENT));
	s.full = max_u64(time_blks - min_u64(late_blks, time_blks), TIME_FULL_BLKS);
	s.commit = percent_of(s.full, RING_COMMIT_PERCENT * 100 / RING_FULL_PERCENT);
	s.warn = percent_of(s.commit, RING_WARN_PERCENT * 100 / RING_COMMIT_PERCENT);
	return s;
}

void pressure_plan_time(struct pressure_plan *p, uint64_t time_blks, uint64_t late_blks)
{
	struct pressure_steps *room = &p->ring_blks, s = steps_of_time(time_blks, late_blks);

	if (exceeds_ram(p, &s))
		return;
	if (room->full)
		s = (struct pressure_steps){ .warn = min_u64(s.warn, room->warn),
					     .commit = min_u64(s.commit, room->commit),
					     .full = min_u64(s.full, room->full),
					     .ruin = min_u64(s.ruin, room->ruin) };
	*room = s;
	p->bound_bytes = min_u64(p->bound_bytes, dirty_share(time_blks));
}

static uint64_t in_flight_kb(uint64_t capacity_blks)
{
	return blk_to_bytes(percent_of(capacity_blks, RING_FIT_PERCENT - RING_STOP_PERCENT)) / KIB;
}

uint64_t pressure_ring_commits(uint64_t capacity_blks)
{
	return percent_of(capacity_blks, RING_COMMIT_PERCENT);
}

uint64_t pressure_ring_fits(uint64_t capacity_blks)
{
	return percent_of(capacity_blks, RING_FIT_PERCENT);
}

bool pressure_ring_suffices(uint64_t capacity_blks)
{
	return in_flight_kb(capacity_blks) >= (TAGS_LEAST + IN_HAND) * REQUEST_LEAST_KB;
}

struct pressure_requests pressure_requests(uint64_t capacity_blks)
{
	uint64_t room_kb = in_flight_kb(capacity_blks), tags, kb;

	tags = min_u64(max_u64(room_kb / REQUEST_GOOD_KB, TAGS_LEAST + IN_HAND),
		       PRESSURE_TAGS + IN_HAND);
	kb = round_down_u64(room_kb / tags, COW_BLK_BYTES / KIB);
	return (struct pressure_requests){ .kb = (unsigned)min_u64(max_u64(kb, REQUEST_LEAST_KB),
								   PRESSURE_REQUEST_KB),
					   .tags = (unsigned)tags - IN_HAND };
}

void pressure_plan_ring(struct pressure_plan *p, uint64_t capacity_blks)
{
	p->counts_on_free = false;
	p->stop_blks = percent_of(capacity_blks, RING_STOP_PERCENT);
	p->ring_blks =
		(struct pressure_steps){ .warn = percent_of(capacity_blks, RING_WARN_PERCENT),
					 .commit = percent_of(capacity_blks, RING_COMMIT_PERCENT),
					 .full = percent_of(capacity_blks, RING_FULL_PERCENT),
					 .ruin = percent_of(capacity_blks, RING_RUIN_PERCENT) };
	bound_by_log(p, capacity_blks);
	if (p->bounded)
		p->dirty_bytes = p->bound_bytes;
	p->ram_bytes.ruin = pressure_hard_bytes(p);
}

uint64_t pressure_hard_bytes(const struct pressure_plan *p)
{
	return p->limit_bytes + p->journal_bytes + p->dirty_bytes + p->slack_bytes;
}

/* ---- levels ---- */

static enum pressure_level level_of(uint64_t n, const struct pressure_steps *s)
{
	return n >= s->full	? LEVEL_FULL
	       : n >= s->commit ? LEVEL_COMMIT
	       : n >= s->warn	? LEVEL_WARN
				: LEVEL_OK;
}

static uint64_t missing(uint64_t n, uint64_t to)
{
	return n < to ? to - n : 0;
}

/* Distance to the next step up. */
static uint64_t to_next(uint64_t n, const struct pressure_steps *s)
{
	return missing(n, n < s->warn ? s->warn : n < s->commit ? s->commit : s->full);
}

enum pressure_level pressure_level(const struct pressure_plan *p, const struct pressure_use *u)
{
	enum pressure_level a = level_of(u->used_bytes - u->held_bytes, &p->ram_bytes);
	enum pressure_level b = p->ring_blks.full ? level_of(u->dirty_blks, &p->ring_blks)
						  : LEVEL_OK;

	a = b > a ? b : a;
	return u->memory_low && a < LEVEL_COMMIT ? LEVEL_COMMIT : a;
}

bool pressure_near_ruin(const struct pressure_plan *p, const struct pressure_use *u)
{
	return p->ring_blks.full && u->dirty_blks >= near_ruin(&p->ring_blks);
}

/* Written data takes memory twice: in the page cache of the writer, and in the store. */
static uint64_t in_memory(const struct pressure_use *u, uint64_t bytes)
{
	return u->memory_low ? min_u64(bytes, u->memory_bytes / 2) : bytes;
}

uint64_t pressure_room_bytes(const struct pressure_plan *p, const struct pressure_use *u)
{
	uint64_t room = in_memory(u, missing(u->used_bytes, p->ram_bytes.full));

	return p->ring_blks.full
		       ? min_u64(room, blk_to_bytes(missing(u->dirty_blks, p->ring_blks.full)))
		       : room;
}

static uint64_t to_ruin_bytes(const struct pressure_plan *p, const struct pressure_use *u)
{
	uint64_t bytes = missing(u->used_bytes, p->ram_bytes.ruin);

	return p->ring_blks.full
		       ? min_u64(bytes, blk_to_bytes(missing(u->dirty_blks, p->ring_blks.ruin)))
		       : bytes;
}

/* Room up to level commit. */
static uint64_t to_commit_bytes(const struct pressure_plan *p, const struct pressure_use *u)
{
	uint64_t bytes = u->memory_low ? 0 : missing(u->used_bytes, p->ram_bytes.commit);

	return p->ring_blks.full
		       ? min_u64(bytes, blk_to_bytes(missing(u->dirty_blks, p->ring_blks.commit)))
		       : bytes;
}

uint64_t pressure_look_bytes(const struct pressure_plan *p, const struct pressure_use *u)
{
	uint64_t bytes = to_next(u->used_bytes, &p->ram_bytes), wide = to_commit_bytes(p, u);

	if (p->ring_blks.full)
		bytes = min_u64(bytes, blk_to_bytes(to_next(u->dirty_blks, &p->ring_blks)));
	if (pressure_level(p, u) >= LEVEL_COMMIT)
		bytes = min_u64(bytes, to_ruin_bytes(p, u) / 8);
	else if (wide / 2 > p->bound_bytes) /* the bound follows the room */
		bytes = min_u64(bytes, wide / 4);
	return max_u64(bytes, LOOK_MIN_BYTES);
}

const char *pressure_level_name(enum pressure_level level)
{
	static const char *const names[] = { [LEVEL_OK] = "ok",
					     [LEVEL_WARN] = "warn",
					     [LEVEL_COMMIT] = "commit",
					     [LEVEL_FULL] = "full" };

	return (size_t)level < ARRAY_SIZE(names) ? names[level] : "unknown";
}

/* ---- rates ---- */

static uint64_t time_for_ns(uint64_t bytes, uint64_t bytes_per_s)
{
	return (uint64_t)((double)bytes / (double)max_u64(bytes_per_s, 1) * 1e9);
}

uint64_t pressure_left_ns(const struct pressure_commit *c)
{
	uint64_t usual = c->usual_bytes_per_s ? c->usual_bytes_per_s : UNKNOWN_BYTES_PER_S,
		 speed = usual, left_ns;
	uint64_t left_blks = missing(c->done_blks, c->total_blks);

	if (!c->durable && c->phase == PHASE_CLASSIFY) {
		/* the amount to be written is not known yet */
		left_ns = time_for_ns(blk_to_bytes(c->sealed_blks), usual);
		return max_u64(missing(c->since_seal_ns, left_ns), left_ns / 10);
	}
	if (c->writing_ns >= MEASURE_NS && c->written_bytes)
		speed = (uint64_t)((double)c->written_bytes / (double)c->writing_ns * 1e9);
	if (!c->durable && c->phase == PHASE_CHECKPOINT)
		/* the checkpoint makes room for the sealed blocks, which follow it */
		left_blks += c->sealed_blks;
	return max_u64(time_for_ns(blk_to_bytes(left_blks), speed), LEFT_MIN_NS);
}

uint64_t pressure_rate_unsealed(const struct pressure_plan *p, const struct pressure_use *u)
{
	uint64_t least = (p->ring_blks.full ? UNSEALED_RING_BYTES : UNSEALED_LEAST_BYTES) +
			 p->journal_bytes + p->bound_bytes;

	return max_u64(pressure_rate(in_memory(u, to_ruin_bytes(p, u)), UNSEALED_NS), least);
}

uint64_t pressure_rate(uint64_t room_bytes, uint64_t left_ns)
{
	double rate = (double)room_bytes / (double)max_u64(left_ns, 1) * (double)SECOND_NS;

	return rate < 1e15 ? (uint64_t)rate : (uint64_t)1e15;
}

uint64_t pressure_dirty_now_bytes(const struct pressure_plan *p, const struct pressure_use *u,
				  bool paced, uint64_t bytes_per_s)
{
	if (paced)
		return min_u64(max_u64(bytes_per_s / 4, DIRTY_PACED_BYTES), p->bound_bytes);
	return max_u64(min_u64(to_commit_bytes(p, u) / 2, DIRTY_WIDE_BYTES), p->bound_bytes);
}

/* ---- memory of the machine, and time ---- */

bool pressure_memory_low(const char *meminfo, uint64_t *ret_available_bytes)
{
	uint64_t total;

	*ret_available_bytes = 0;
	return parse_meminfo(meminfo, "MemTotal:", &total) &&
	       parse_meminfo(meminfo, "MemAvailable:", ret_available_bytes) &&
	       *ret_available_bytes <
		       max_u64(MEMORY_LOW_BYTES, percent_of(total, MEMORY_LOW_PERCENT));
}

uint64_t inhibit_left_ns(uint64_t until_ns, uint64_t now)
{
	return missing(now, until_ns);
}
