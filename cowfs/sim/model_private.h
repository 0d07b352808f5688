/* SPDX-License-Identifier: MIT */
/*
 * Inside of a model: an appending layer (model.c) above an array (model_array.c) or one device, a
 * disk (model_disk.c) or a card (model_card.c, model_wear.c).
 *
 * I1  a unit is open at most once; it is full if and only if all of its blocks are new, and then
 *     its switch is accounted for.
 * I2  erases * unit_bytes >= programmed_bytes once nothing is open and no log is part full.
 * I3  what a copy needs to go on is in state, open, bits, holds, the log and cheat: none of them
 *     grows.
 * I4  a unit is in log_unit once if and only if log_count of it is not 0; log_blks is the sum. No
 *     open unit is in the log.
 */
#ifndef COWFS_SIM_MODEL_PRIVATE_H
#define COWFS_SIM_MODEL_PRIVATE_H

#include "sim/model.h"
#include "flash/price.h"

#define RUNS 16
#define STREAM_BYTES (64 * KIB)	   /* a run that is so long gets a unit of its own */
#define MEASURED_BYTES (512 * MIB) /* the area over which absorb was measured */
#define CHEAT_CHUNKS 512
#define MEMBERS_MAX 64
#define NOWHERE UINT64_MAX

struct open_unit {
	uint64_t unit, stamp;
	uint64_t next_bytes;	/* on the card: where the last write ended */
	uint64_t written_bytes; /* since opened */
	uint32_t new_blks;
	bool in_order, random, full;
};

/* Writes that follow each other */
struct run {
	uint64_t start_bytes, end_bytes, stamp;
	bool absorbed; /* so far it is in the shared log */
};

struct cheat_chunk {
	uint64_t chunk, stamp;
};

/* the plain part */
struct state {
	uint64_t stamp;
	uint64_t read_end_bytes;
	bool dirty, read_only;
	struct run run[RUNS];
	unsigned n_open, n_cheat;
	uint32_t n_log;	    /* units that have blocks in the shared log, */
	uint64_t log_blks;  /* and how many blocks these are */
	uint64_t log_bytes; /* written to logs and caches since the last erase for them */
	uint64_t append_bytes, append_rest, append_at_bytes;
	uint64_t head_bytes;
	uint64_t bus_ns;
	unsigned turn; /* mirrors */
};

struct wear {
	uint64_t units_per_zone, spares_per_zone, zones, tick;
	uint32_t *caused; /* by logical unit; NULL: FLASH_NO_WEAR. All below is NULL then */
	uint32_t *home;	  /* physical unit of a logical one */
	uint32_t *count;  /* erases of a physical unit */
	uint32_t *spare;  /* free ones: spares_per_zone for each zone */
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
	size_t bits_bytes;   /* of each */
	uint8_t *holds;	     /* a bit for each unit: has data */
	uint32_t *log_unit;  /* by the age of their oldest block; NULL: no shared log */
	uint32_t *log_count; /* blocks of a unit */
	uint64_t log_room_blks;
	struct cheat_chunk *cheat;
	uint64_t cheat_chunk_bytes;
	unsigned cheat_chunks;
	struct wear wear;
	struct flash_model **member;
};

/* What the request takes; counts what it does to the medium, but neither clock nor request. */
uint64_t card_model_read(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
uint64_t card_model_write(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
void card_model_discard(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
uint64_t card_model_settle(struct flash_model *m);

uint64_t disk_model_io(struct flash_model *m, const struct flash_speed *speed, uint64_t off_bytes,
		       uint64_t len_bytes);

uint64_t array_model_read(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
uint64_t array_model_write(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes,
			   unsigned flags);
void array_model_discard(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
uint64_t array_member_bytes(const struct flash_profile *p, uint64_t size_bytes);

int wear_model_new(struct flash_model *m) MUST_CHECK;
/* n erases for a logical unit: the time of what levelling copies. */
uint64_t wear_model_erase(struct flash_model *m, uint64_t unit, unsigned n);
void wear_model_copy(struct flash_model *to, const struct flash_model *from);
void wear_model_free(struct flash_model *m);
uint64_t wear_model_spares(const struct flash_model *m);

#endif
