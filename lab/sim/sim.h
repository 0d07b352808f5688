/* SPDX-License-Identifier: MIT */
/*
 * A simulated card in memory, for the tests: a volatile write cache, power cuts at any write or
 * flush, and failing operations. Deterministic for a seed.
 *
 * Persistence model: a write goes to the cache; a successful flush makes every cached write
 * durable. At a cut each 4 KiB block of each unflushed write is, by the chosen schedule: done,
 * dropped, torn (each 512-byte sector independently old or new), or garbage. Writes of one flush
 * epoch reorder freely; of two unflushed writes to one block either may be the last. After a cut
 * every operation returns -EIO (the device is dead), so that the code above unwinds normally.
 * sim_power_cycle() restores the card with only its durable content.
 *
 * c->ops->write() itself acts as a writer unknown to cowfs: the device counts it, the account does
 * not. Only for tests: aborts without memory.
 */
#ifndef COWFS_SIM_SIM_H
#define COWFS_SIM_SIM_H

#include "card/card.h"
#include "sim/model.h"

struct sim_params {
	uint64_t size_bytes;
	uint32_t erase_block_bytes; /* 0: 4 MiB */
	uint64_t disk_off_bytes;
	const char *identity; /* NULL: "sim" */
};

enum sim_op { SIM_READ = 1, SIM_WRITE = 2, SIM_FLUSH = 4 };

enum sim_fate { SIM_DONE, SIM_DROPPED, SIM_TORN, SIM_GARBAGE };

int sim_new(struct card **ret, const struct sim_params *p) MUST_CHECK;

/*
 * Cuts the power when the n-th (1-based, counted from now) write or flush is issued; that
 * operation itself fails. 0 disarms.
 */
void sim_cut_at(struct card *c, uint64_t n);
/*
 * Makes the n-th (1-based, from now) operation of the kinds in `ops` fail with err (-EIO, -EROFS,
 * ...), once or forever. A failed write or flush leaves each unflushed write durable, pending or
 * lost, by the seed. n = 0 disarms.
 */
void sim_fail_at(struct card *c, unsigned ops, uint64_t n, int err, bool forever);
/* From now on every operation fails with -EIO, and the card says that its device is gone (card.h). */
void sim_unplug(struct card *c);
/* The same at the n-th (1-based, from now) read, write or flush, which fails. 0 disarms. */
void sim_unplug_at(struct card *c, uint64_t n);
/* The device is there again. lost: with a power cut in between, as of sim_power_cycle by the seed; else
 * each write that was not flushed is pending as before. */
void sim_replug(struct card *c, bool lost);
/*
 * Flushes succeed, but the writes of the last `lie` flush epochs stay volatile: a power cut loses
 * them, a failing operation does not. 0: honest.
 */
void sim_set_lie(struct card *c, unsigned lie);
/*
 * At a power cut the erase block of the newest unflushed write turns to garbage, except for the
 * blocks that were being written, if it lies at or behind from_bytes (UINT64_MAX: never).
 */
void sim_set_collateral(struct card *c, uint64_t from_bytes);
/* Makes the first n pending block writes durable, for other kinds of lies. */
void sim_settle(struct card *c, size_t n);
void sim_seed(struct card *c, uint64_t seed);

/*
 * From now on m records all reads, writes, flushes and discards that succeed: their time by its
 * clock, and their effect on the medium. No caller waits for that time. The card owns m and frees
 * it; NULL: none. A clone gets a clone of m.
 */
void sim_set_model(struct card *c, struct flash_model *m);
/* Borrowed, NULL if there is none. Use it only while no other thread uses the card. */
struct flash_model *sim_model(const struct card *c);
/*
 * Limits the cache to this number of block writes: when it is full, the older half becomes
 * durable. 0: no limit.
 */
void sim_set_cache(struct card *c, size_t blks);
/*
 * Discards whole blocks: they read zero from now on, whether the power is cut or not, and their
 * pending writes are dropped. Not counted as an operation. -EIO while dead, -EINVAL.
 */
int sim_discard(struct card *c, uint64_t off_bytes, uint64_t len_bytes) MUST_CHECK;
/* From now on each read of a discarded block returns something else, and zero now and then. */
void sim_set_noise(struct card *c, bool on);

uint64_t sim_ops(const struct card *c);	  /* writes + flushes issued since sim_new */
size_t sim_pending(const struct card *c); /* unflushed 4 KiB block writes now, in issue order */
/*
 * block number on the card of the i-th pending write, for exhaustive enumeration with a fate
 * chooser
 */
uint64_t sim_pending_blk(const struct card *c, size_t i);

/*
 * Cuts the power, decides each pending block write with fate(arg, i) (NULL: by the seed, all four
 * fates, in random order), clears the cache, and powers on again: not writable. Disarms sim_cut_at,
 * sim_fail_at and sim_unplug_at; a card that was unplugged is there again. The lie stays. fate is called in issue order.
 */
void sim_power_cycle(struct card *c, enum sim_fate (*fate)(void *arg, size_t i), void *arg);
bool sim_is_dead(const struct card *c);

/*
 * Copies the durable state, the cache, the seed, armed faults, counts and the writable flag, for
 * trying many cuts from one point. The cost depends on the used part of the card, not on its size.
 * A copy may belong to another thread.
 */
int sim_clone(struct card **ret, const struct card *from) MUST_CHECK;

/*
 * Direct access to the durable content, at any byte and also while dead, for oracles and for
 * damage (bit rot, foreign writers). Not counted.
 */
int sim_peek(const struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes) MUST_CHECK;
/* Returns what a read would return, at any byte, also while dead. Not counted. */
int sim_look(const struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes) MUST_CHECK;
int sim_poke(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes) MUST_CHECK;

#endif
