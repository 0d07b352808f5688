/* SPDX-License-Identifier: MIT */
/*
 * Inside of a model: an appending layer (model.c) above an array (model_array.c) or one device, a
 * disk (model_disk.c) or a card (model_card.c, model_wear.c).
 *
 * I1  a unit is open at most once; it is full if and only if all of its blocks are new, and then
 *     its switch is accounted for.
 * I2  erases * unit_bytes >= programmed_bytes once nothing is open and no log is part full.
 * I3  a copy needs only state, open, bits, valid, the log and cheat to continue; none of them
 *     grows.
 * I4  a unit is in log_unit once if and only if log_count of it is not 0; log_blks is the sum. No
 *     open unit is in the log.
 */
#ifndef COWFS_SIM_MODEL_PRIVATE_H
#define COWFS_SIM_MODEL_PRIVATE_H

#include "sim/model.h"
#include "sim/price.h"

#define RUNS 16
#define STREAM_BYTES (64 * KIB)	   /* a run of this length gets its own unit */
#define MEASURED_BYTES (512 * MIB) /* the area over which absorb was measured */
#define CHEAT_CHUNKS 512
#define MEMBERS_MAX 64
#define NOWHERE UINT64_MAX

struct open_unit {
	uint64_t unit, stamp;
	uint64_t next_bytes;	/* on the card: end of the last write */
	uint64_t written_bytes; /* since opened */
	uint32_t new_blks;
	bool in_order, random, full;
};

/* Consecutive writes */
struct run {
	uint64_t start_bytes, end_bytes, stamp;
	bool absorbed; /* so far the run is in the shared log */
};

struct cheat_chunk {
	uint64_t chunk, stamp;
};

/* members without pointers, copied whole */
struct state {
	uint64_t stamp;
	uint64_t read_end_bytes;
	bool dirty, read_only;
	struct run run[RUNS];
	unsigned n_open, n_cheat;
	uint32_t n_log;	    /* number of units with blocks in the shared log */
	uint64_t log_blks;  /* number of these blocks */
	uint64_t log_bytes; /* bytes written to logs and caches since the last erase for them */
	uint64_t append_bytes, append_rest, append_at_bytes;
	uint64_t head_bytes;
	uint64_t bus_ns;
	unsigned turn; /* of mirrors in reading */
};

struct wear {
	uint64_t units_per_zone, spares_per_zone, zones, tick;
	uint32_t *caused; /* by logical unit; NULL: FLASH_NO_WEAR, and the rest is NULL as well */
	uint32_t *home;	  /* physical unit of each logical unit */
	uint32_t *count;  /* erases of each physical unit */
	uint32_t *spare;  /* free units: spares_per_zone for each zone */
	uint32_t *n_spare;
};

struct flash_model {
	struct flash_profile p;
	uint64_t size_bytes, units, unit_blks;
	unsigned flags;
	struct flash_stats st;
	struct state s;
	struct open_unit *open;
	uint8_t *bits;	     /* which blocks of an open unit are new */
	size_t bits_bytes;   /* for each open unit */
	uint8_t *valid;	     /* one bit per block: written, and not discarded since */
	uint32_t *log_unit;  /* sorted by the age of their oldest block; NULL: no shared log */
	uint32_t *log_count; /* blocks in the log for each unit */
	uint64_t log_room_blks;
	struct cheat_chunk *cheat;
	uint64_t cheat_chunk_bytes;
	unsigned cheat_chunks;
	struct wear wear;
	struct flash_model **member;
};

/*
 * Return the time of the request. They count its effect on the medium, but advance neither clock
 * nor request counters.
 */
uint64_t card_model_read(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
uint64_t card_model_write(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
uint64_t card_model_discard(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
uint64_t card_model_settle(struct flash_model *m);

uint64_t disk_model_io(struct flash_model *m, const struct flash_speed *speed, uint64_t off_bytes,
		       uint64_t len_bytes);

uint64_t array_model_read(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
uint64_t array_model_write(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes,
			   unsigned flags);
uint64_t array_model_discard(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
uint64_t array_member_bytes(const struct flash_profile *p, uint64_t size_bytes);

int wear_model_new(struct flash_model *m) MUST_CHECK;
/* Erases a logical unit n times. Returns the time of the copies by wear levelling. */
uint64_t wear_model_erase(struct flash_model *m, uint64_t unit, unsigned n);
void wear_model_copy(struct flash_model *to, const struct flash_model *from);
void wear_model_free(struct flash_model *m);
uint64_t wear_model_spares(const struct flash_model *m);

#endif
