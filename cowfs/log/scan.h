/* SPDX-License-Identifier: MIT */
/*
 * Opening a log, in three steps that share struct scan: scan.c finds the records, chain.c chooses one of them, verify.c
 * holds what it needs against its checksums. Private to log/; open.c begins it.
 */
#ifndef COWFS_LOG_SCAN_H
#define COWFS_LOG_SCAN_H

#include "log/ring.h"

struct candidate {
	struct log_record rec;
	bool tried;
};

struct scan {
	struct log *l;
	struct log_open_report *rep;
	uint8_t *buf; /* STAGE_BLKS blocks */
	struct candidate *cand;
	size_t n, cap;
	char why[sizeof(((struct log_open_report *)0)->why)]; /* the candidate at hand is not the one */
	uint64_t fallback_floor; /* highest fallback_seq seen */
	uint64_t newest_seq;	 /* a head knows of it: nothing older is chosen before all segments are scanned */
	bool all;		 /* they are */
	struct log_record foreign; /* the newest record that is complete but does not know this base; seq 0: none */
	uint64_t foreign_blks;	   /* that wait in the log with it */
	char foreign_why[sizeof(((struct log_open_report *)0)->why)];
};

/* a record and those that it builds on, back to its tail */
struct chain {
	struct log_record *rec; /* newest first */
	size_t n, cap;
};

/* scan.c: all that recovery may choose from, newest segments first. 1 chosen; -EUCLEAN: there is none, and s->foreign and
 * the report tell more; else an error that ends the opening. */
int scan_find_newest(struct scan *s) MUST_CHECK;

/* chain.c: the newest candidate that nobody has tried and that is complete becomes the log's newest, with its index.
 * 1 chosen, 0 none yet, -errno */
int chain_choose(struct scan *s) MUST_CHECK;

/* verify.c */
/* A record that lies elsewhere than it says is a stray copy; its group lies inside the ring. */
bool verify_record_place(const struct log *l, const struct log_record *rec, uint64_t lblk);
/* R4, R5: content of the records from the newest's floor. -EBADMSG: s->why says which */
int verify_chain(struct scan *s, const struct chain *ch) MUST_CHECK;

#endif
