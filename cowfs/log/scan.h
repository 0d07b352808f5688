/* SPDX-License-Identifier: MIT */
/*
 * Opening a log, in three steps that share struct scan: scan.c finds the records, chain.c chooses
 * one of them, verify.c holds what it needs against its checksums. Private to log/; open.c begins
 * it.
 *
 * The ring may have been made by somebody who wants all memory, or to be read for ever. So
 *
 * - memory: at most 2 * SCAN_KEPT candidates of 32 bytes, 56 bytes a record of the chain at hand
 *   (CHAIN_MAX), and for its descriptors SCAN_INDEX_BYTES and 1/16 of the ring, a few times (lists,
 *   their merge, the index): 64 MiB with a ring of 32 MiB, whatever is in it. Descriptors are read
 *   in pieces of 256 KiB.
 * - time: SCAN_LAPS times the blocks of the ring are read, and as often those of the base
 *   (manifests). An honest ring needs less than three laps for a candidate, and has few that are
 *   rejected: those behind the newest durable record.
 * - log_cancel_open ends it at the next read.
 */
#ifndef COWFS_LOG_SCAN_H
#define COWFS_LOG_SCAN_H

#include "log/ring.h"

enum {
	SCAN_KEPT = 1024, /* candidates; the oldest go first */
	SCAN_LAPS = 16,
	SCAN_LAP_MIN_BLKS = 1024,
	CHAIN_MAX = 65536, /* a checkpoint is due after 200; each power cut in one adds a few */
	CHAIN_CHECKED_MAX = 64, /* whose content is read back: two, with lag three */
	SCAN_INDEX_BYTES = 14 * MIB,
};

struct candidate {
	uint64_t epoch, seq, lblk;
	bool tried;
};

struct scan {
	struct log *l;
	struct log_open_report *rep;
	uint8_t *buf; /* STAGE_BLKS blocks */
	struct candidate *cand;
	size_t n, cap;
	/* the candidate at hand is not the one */
	char why[sizeof(((struct log_open_report *)0)->why)];
	uint64_t fallback_floor; /* highest fallback_seq seen */
	/* a head knows of it: nothing older is chosen before all segments are scanned */
	uint64_t newest_seq;
	bool all; /* they are */
	/* the newest record that is complete but does not know this base; seq 0: none */
	struct log_record foreign;
	uint64_t foreign_blks; /* that wait in the log with it */
	bool gone;	       /* it knew a file system, and none is known there now */
	char foreign_why[sizeof(((struct log_open_report *)0)->why)];
};

/* Of a record what its chain is followed and its descriptors are found by. */
struct chain_rec {
	uint64_t seq, start_lblk;
	enum record_type type;
	uint32_t desc_blks, desc_crc;
	uint64_t desc_lblk, desc_epoch, desc_seq;
};

/* a record and those that it builds on, back to its tail */
struct chain {
	struct log_record head;
	struct chain_rec *rec; /* newest first, with the head */
	size_t n, cap;
};

/* ring_each_extent of one of them */
int chain_each_extent(struct log *l, const struct chain_rec *c,
		      int (*each)(void *ctx, const struct desc_extent *e), void *ctx) MUST_CHECK;

/* scan.c: all that recovery may choose from, newest segments first. 1 chosen; -EUCLEAN: there is
 * none, and s->foreign and the report tell more; else an error that ends the opening. */
int scan_find_newest(struct scan *s) MUST_CHECK;

/* chain.c: the newest candidate that nobody has tried and that is complete becomes the log's
 * newest, with its index. 1 chosen, 0 none yet, -errno */
int chain_choose(struct scan *s) MUST_CHECK;
void chain_sort(struct scan *s); /* the newest candidate first */

/* verify.c */
/* A record that lies elsewhere than it says is a stray copy; its group lies inside the ring. */
bool verify_record_place(const struct log *l, const struct log_record *rec, uint64_t lblk);
/* R4, R5: content of the records from the newest's floor. -EBADMSG: s->why says which */
int verify_chain(struct scan *s, const struct chain *ch) MUST_CHECK;

#endif
