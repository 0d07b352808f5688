/* SPDX-License-Identifier: MIT */
/*
 * Serves a simulated card (sim/sim.h, with a model) as a directory of files, through FUSE, for
 * cowfs-cardsim:
 *
 *	card       its contents; of any alignment, rounded to blocks of 4 KiB. fsync is FLUSH, a
 *	           punched hole DISCARD. Its size is fixed
 *	stat       what was done to the card, for people; stat.json for programs
 *	control    takes one command per write, with or without a line end; the error is the answer:
 *	             reset                  sets counters and clock to zero
 *	             settle                 the card completes its pending work
 *	             cut N                  cuts the power at the N-th write or flush from now
 *	             power kept|undone|torn|garbage|random
 *	                                    cuts the power, unless it is cut, and restores it: this
 *	                                    word is the fate of unflushed writes
 *	             fail read|write|flush,... N once|forever
 *	                                    fails with EIO from the N-th on; N 0: no more
 *	             lie N                  a power cut undoes the last N flushes
 *	             collateral on|off      a cut damages the erase block that is being written
 *	             mark commit|sync       writes a mark into the trace
 *	             save FILE              saves the durable content as a sparse image; FILE is an
 *	                                    absolute path
 *	             finish                 writes now what is to be written at the end
 */
#ifndef COWFS_SIM_CARDFS_H
#define COWFS_SIM_CARDFS_H

#include "card/card.h"
#include "sim/trace.h"

struct cardfs {
	struct card *card;		  /* a sim with a model, writable */
	struct flash_trace_writer *trace; /* may be NULL */
	bool real_time;			  /* requests take as long as in the model */
	bool no_discard;
	/* Writes the text of stat or stat.json, less than size_bytes, and returns its length */
	size_t (*tell)(const struct card *c, bool json, char *buf, size_t size_bytes);
	int (*finish)(struct cardfs *f);
	uint64_t changes; /* number of changes to contents or faults */
};

/*
 * Mounts at dir, calls ready, and serves in this thread until an unmount or SIGTERM. f stays
 * caller-owned.
 */
int cardfs_serve(struct cardfs *f, const char *dir, void (*ready)(void *ctx), void *ctx) MUST_CHECK;
/* Copies the contents from and to an image file, without holes. The card does not count this. */
int cardfs_load(struct card *c, const char *path) MUST_CHECK;
int cardfs_save(const struct card *c, const char *path) MUST_CHECK;

#endif
