/* SPDX-License-Identifier: MIT */
/*
 * Opening a log, in three steps that share struct scan: scan.c finds the records, chain.c
 * chooses one of them, verify.c checks the blocks that it needs against their checksums. Private
 * to log/; open.c starts it.
 *
 * The ring may be crafted to take all memory or endless reads. Therefore the limits are:
 *
 * - memory: at most 2 * SCAN_KEPT candidates of 32 bytes, 72 bytes for each record of the
 *   current chain (CHAIN_MAX), and for its descriptors SCAN_INDEX_BYTES and 1/16 of the ring, a
 *   few times (lists, their merge, the index). That is 64 MiB with a ring of 32 MiB, for any
 *   content. Descriptors are read in pieces of 256 KiB.
 * - time: at most SCAN_LAPS times the blocks of the ring are read, and as many blocks of the
 *   base (manifests). A ring written by cowfs needs less than three laps for a candidate. It has
 *   few rejected candidates: only those behind the newest durable record.
 * - log_cancel_open ends the opening at the next read.
 */
#ifndef COWFS_LOG_SCAN_H
#define COWFS_LOG_SCAN_H

#include "log/ring.h"

enum {
	SCAN_KEPT = 1024, /* candidates; the oldest are evicted first */
	SCAN_LAPS = 16,
	SCAN_LAP_MIN_BLKS = 1024,
	/* a checkpoint is due after 200 records; each power cut in one adds a few */
	CHAIN_MAX = 65536,
	/* of a card that cannot read more of the newest generation nothing is concluded: each costs 0.3 s of attempts (card.h) */
	LOST_MAX_BLKS = 64,
	CHAIN_CHECKED_MAX = 64, /* records whose content is read back: two, with lag three */
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
	/* why the current candidate is rejected */
	char why[sizeof(((struct log_open_report *)0)->why)];
	uint64_t fallback_floor; /* highest fallback_seq found */
	/* known from a head: nothing older is chosen before all segments are scanned */
	uint64_t newest_seq;
	bool all;	   /* all segments are scanned */
	uint64_t torn_seq; /* highest number in a record whose checksum is wrong */
	/* the newest record that is complete but does not match this base; seq 0: none */
	struct log_record foreign;
	uint64_t foreign_blks; /* blocks that wait in the log with it */
	bool gone; /* it knew a file system, and the base has no known one now: no older record counts */
	char foreign_why[sizeof(((struct log_open_report *)0)->why)];
	const struct log_mark *mark; /* of the process before; NULL: none */
};

/* The fields of a record that are needed to follow its chain and find its descriptors. */
struct chain_rec {
	uint64_t seq, start_lblk;
	enum record_type type;
	uint32_t desc_blks, desc_crc;
	uint64_t desc_lblk, desc_epoch, desc_seq;
	uint64_t lblk;
	bool held;
	bool stand_in; /* the record is damaged: gap.c */
};

/* a record and the records that it builds on, back to its tail */
struct chain {
	struct log_record head;
	struct chain_rec *rec; /* newest first, including the head */
	size_t n, cap;
	uint64_t passed_seq; /* a damaged record of it; 0: none */
};

/* verify.c: what the descriptors of a record name, in their order */
int chain_each_extent(struct log *l, const struct chain_rec *rec,
		      int (*each)(void *ctx, const struct desc_extent *e), void *ctx) MUST_CHECK;

/* scan.c: scans everything that recovery may choose from, newest segments first. 1 chosen;
 * -EUCLEAN: no record qualifies, and s->foreign and the report say more; else an error that ends
 * the opening. */
int scan_find_newest(struct scan *s) MUST_CHECK;

/* chain.c: the newest candidate that is untried and complete becomes the newest record of the
 * log, with its index. 1 chosen, 0 none yet, -errno */
int chain_choose(struct scan *s) MUST_CHECK;
void chain_sort(struct scan *s); /* newest candidate first */

/* gap.c: newer builds on a record that is damaged: what belongs in its place. last: the chain ends there. *ret_prev: what
 * it builds on. -EBADMSG: that cannot be proven, or with lag. */
int chain_stand_in(struct scan *s, const struct log_record *newer, bool last, struct chain_rec *ret,
		   struct log_record *ret_prev) MUST_CHECK;

/* verify.c */
/* Checks the place of a record and that its group lies inside the ring. A record that lies
 * elsewhere than it says is a stray copy. */
bool verify_record_place(const struct log *l, const struct log_record *rec, uint64_t lblk);
/* R4, R5: checks the content of the records from the floor of the newest on. -EBADMSG: s->why
 * has the reason */
int verify_chain(struct scan *s, const struct chain *ch) MUST_CHECK;

#endif
