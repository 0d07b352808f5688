/* SPDX-License-Identifier: MIT */
/*
 * A simulated card (sim/sim.h, with a model) as a directory of files, through FUSE, for
 * cowfs-cardsim:
 *
 * 	card       its contents; of any alignment, rounded to blocks of 4 KiB. fsync is FLUSH, a punched hole DISCARD.
 * 	           Cannot be made smaller or larger
 * 	stat       what has been done to it, for people; stat.json for programs
 * 	control    takes one command a write, with a line end or without; the error is the answer:
 * 	             reset                          counters and clock to zero
 * 	             cut N                          the power goes at the N-th write or flush from now
 * 	             power kept|undone|torn|garbage|random
 * 	                                            the power goes, if it has not, and comes back: what becomes of unflushed writes
 * 	             fail read|write|flush,... N once|forever    fails with EIO from the N-th on; N 0: no more
 * 	             lie N                          the last N flushes have not been done when the power goes
 * 	             collateral on|off              a cut damages the erase block that is being written
 * 	             mark commit|sync               into the trace
 * 	             save FILE                      what is durable, as a sparse image; FILE is an absolute path
 * 	             finish                         what is to be written at the end, now
 */
#ifndef COWFS_SIM_CARDFS_H
#define COWFS_SIM_CARDFS_H

#include "card/card.h"
#include "sim/trace.h"

struct cardfs {
	struct card *card;		  /* a sim with a model, writable */
	struct flash_trace_writer *trace; /* may be NULL */
	bool real_time;			  /* requests take as long as the model says */
	bool no_discard;
	/* What stat and stat.json tell, of less than size_bytes: its length */
	size_t (*tell)(const struct card *c, bool json, char *buf, size_t size_bytes);
	int (*finish)(struct cardfs *f);
	uint64_t changes; /* so often contents or faults have been changed */
};

/* Mounts at dir, calls ready, and serves in this thread until that is unmounted or SIGTERM comes. f
 * stays the caller's. */
int cardfs_serve(struct cardfs *f, const char *dir, void (*ready)(void *ctx), void *ctx) MUST_CHECK;
/* Contents from and to an image file: what is not a hole. The card is not told of it. */
int cardfs_load(struct card *c, const char *path) MUST_CHECK;
int cardfs_save(const struct card *c, const char *path) MUST_CHECK;

#endif
