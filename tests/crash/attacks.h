/* SPDX-License-Identifier: MIT */
/* Shared parts of the attacks. */
#ifndef COWFS_TESTS_ATTACKS_H
#define COWFS_TESTS_ATTACKS_H

#include "crash.h"

enum { SEEDS = 12 };

extern const struct shape PLAIN;

void attack_expect(bool ok, const char *what);
void attack_start(struct world *w, const struct shape *s, uint64_t seed);
void attack_commit_ok(struct world *w);
/* Writes blocks [blk, blk + n). */
void attack_write_run(struct world *w, unsigned blk, unsigned n);
/* Fills the ring until the next commit of one block would need a checkpoint. */
void attack_fill(struct world *w);
/* A commit whose n-th flush fails. */
void attack_failing_commit(struct world *w, unsigned flush);
/* Damages a byte near the start of a block. */
void attack_rot(struct world *w, struct card *c, uint64_t off_bytes);

/* attacks_fail.c */
void attack_half_checkpoint(void);
void attack_unguard(void);
void attack_stopped_checkpoint(void);
void attack_stopped_super(void);
void attack_stopped_full(void);
void attack_begin(void);
void attack_failed_checkpoint(void);
void attack_cut_checkpoints(void);
void attack_recover(void);
void attack_restart(void);
void attack_swapped(void);
void attack_eio(void);
void attack_measured(void);

/* ends.c */
void attack_ends(void);

/* loader.c */
void attack_loader(void);

/* paths.c */
void attack_paths(void);
void attack_undone(void);

#endif
