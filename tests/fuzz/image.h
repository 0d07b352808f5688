/* SPDX-License-Identifier: MIT */
/*
 * Fuzzed cards: a card with a history (toy.h), changed by the edits of an input. Checksums detect
 * simple damage. So an input may ask for all of them to be made right again, from the innermost to
 * the outermost.
 */
#ifndef COWFS_TESTS_FUZZ_IMAGE_H
#define COWFS_TESTS_FUZZ_IMAGE_H

#include "fuzz.h"
#include "toy.h"

enum { IMAGE_MAX_GENS = 64 };

struct image {
	struct toy toy;	    /* closed */
	uint64_t blks;	    /* of the log's card */
	uint16_t meta[512]; /* its blocks that begin with a magic */
	unsigned n_meta;
	struct {
		uint64_t seq;
		struct toy_image image;
		bool direct[TOY_BLKS];
	} gen[IMAGE_MAX_GENS];
	unsigned n_gens;
};

/* Of story n, made at the first call. */
const struct image *image_get(unsigned n);

enum {
	EDIT_FIX_BLOCKS = 1 << 0,  /* the checksum of every block with a magic */
	EDIT_FIX_GROUPS = 1 << 1,  /* and of descriptors, in the records that point to them */
	EDIT_FIX_PAYLOAD = 1 << 2, /* and of payload, in the descriptors */
};

struct edits {
	/* number of distinct blocks of the ring and of the volume that were touched */
	unsigned ring_blks, home_blks;
	uint64_t home_blk; /* the last one of these */
	bool outside;	   /* others were touched: superblock copies, unused blocks */
};

/* Applies the rest of the input to the log's card. */
void image_edit(const struct image *im, struct toy *t, struct fuzz_input *in, unsigned fix,
		struct edits *ret);

#endif
