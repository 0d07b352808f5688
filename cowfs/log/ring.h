/* SPDX-License-Identifier: MIT */
/*
 * The log's inner state and the arithmetic of its ring: private to log/.
 *
 * lblk counts 4 KiB blocks from the ring's start; the first block of every segment is its head. A
 * group (payload, descriptors, record) runs through consecutive segments and skips their heads
 * (ring_next). Busy is all from the start of the tail record's group to the cursor; a failed
 * attempt lies behind the cursor and is free again.
 */
#ifndef COWFS_LOG_RING_H
#define COWFS_LOG_RING_H

#include "log/codec.h"
#include "log/index_build.h"
#include "log/log.h"
#include "log/wear.h"

#define STAGE_BLKS 256u /* 1 MiB */
#define LENT_HEAD_BLKS 1u
#define RING_RESERVE_EBS 3u /* see ring.c */

/* what is left while a log is opened: see scan.h */
struct opening {
	uint64_t ring_blks, base_blks;
};

/*
 * What may be written to the log now: one state, changed by epoch_set alone.
 *
 *	DUE	-> OPEN		the open record is durable; at open: the newest record is clean
 *	DUE	-> WAIVED	log_prepare finds a ring that is full: its last block is the tail record's
 *	DUE	-> BROKEN	at open: no generation is complete
 *	OPEN	-> ATTEMPT	log_begin
 *	OPEN	-> DUE		a record failed, or a new life begins (log_upgrade)
 *	WAIVED	-> OPEN		that record is durable
 *	WAIVED	-> DUE		it failed
 *	ATTEMPT	-> OPEN		log_end
 *	ATTEMPT	-> DUE		log_abort
 *	BROKEN	-> DUE		log_accept_base
 *	DUE	-> DUE		another failure, or a new life in it
 */
enum epoch_state {
	EPOCH_DUE,     /* R3: an open record comes before any other write */
	EPOCH_OPEN,    /* records may follow */
	EPOCH_WAIVED,  /* the same, without an open record, for which there is no room */
	EPOCH_ATTEMPT, /* a commit is under way, and nothing else may be written */
	EPOCH_BROKEN,  /* nothing may be written */
};

/* what the attempt under way has gathered */
struct attempt {
	uint64_t seq, start_lblk;
	uint64_t head_lblk; /* next block to fill, behind the staged ones */
	uint64_t direct_blks, logged_blks, zero_blks, spilled_blks;
	uint64_t lent_blks; /* not in logged_blks */
	struct index_list list;
	uint8_t *desc; /* descriptor blocks so far, desc_blks of them */
	size_t desc_blks, cap_desc;
	struct desc_writer writer;
};

/* lag.c: what recovery may choose beside the newest record, on a card that loses what it
 * acknowledged last */
struct lag {
	/* What was found, or an attempt that failed, may be in the card's cache: until lag_settle. */
	bool cold;
	/* The next record is its own floor: until that. A warm log is alone, too, if the ring is full (lag_pad). */
	bool alone;
	uint64_t older_seq;	 /* the older candidate; 0: none */
	struct log_index *index; /* its index; NULL: as the newest's */
	/* what tail_lblk will be when the newest is the older candidate; so below */
	uint64_t tail_lblk;
	bool spilled;
	unsigned same;		     /* records, newest first, that have one image */
	struct log_index *direct[3]; /* sets: what the newest three wrote in place; NULL: nothing */
};

/* rules.c: what was written when, as card->writes */
struct order {
	uint64_t head_mark, record_mark; /* card: the newest segment head, and record */
	uint64_t home_mark;		 /* base: what a checkpoint wrote last */
	unsigned pads_due;		 /* records that L4 wants behind that */
};

struct log {
	struct card *base, *card;
	struct opening *opening; /* NULL: it is open */
	struct log_super super;
	unsigned super_trouble; /* enum super_trouble, until it is mended */
	uint64_t seg_blks, ring_blks;
	uint32_t segs_per_eb;

	enum epoch_state state;
	bool any_base;	   /* LOG_ANY_BASE */
	bool needs_reader; /* log_need_reader */
	/* of a pending super record that was on the card at open */
	enum { HOME_PLAIN, HOME_VOUCHES, HOME_STRANGE } home;
	/*
	 * Facts that hold or not in any of these states, and whatever the others are:
	 */
	/* What was read at open is durable: a FLUSH came since. An empty record needs that as a commit does. */
	bool settled;
	/* R8, an attempt failed since the last good commit: ends with that, which suspect outlives. */
	bool doubt;
	/* Something failed since the log was opened, an empty record, say: what home reads may not be durable. */
	bool suspect;
	/* R10, payload lies in free blocks or lent room, and no durable tail has passed it: also when it is home. */
	bool spilled;
	bool super_due; /* The superblock does not tell this life of the ring yet: before and after its open record. */
	/* and tells an older one, whose tail is here: it stays whole; 0: none */
	uint64_t keep_lblk;
	/* All of the index is home and flushed, so the tail may pass newest: failures do not change that. */
	bool home_done;
	struct log_record newest; /* seq 0: none yet */
	struct card *lent;	  /* NULL: no room is lent */
	bool lent_used;		  /* by the newest generation; lent is not NULL */
	bool lent_failed; /* a write to it, since it was lent: known when it is given back */
	bool no_lent;	  /* LOG_NO_LENT */
	struct lag lag;
	struct order order;
	uint64_t tail_lblk; /* start of the oldest group still needed, by any candidate */
	uint64_t highest_seq, max_serial, epoch;
	/* next free lblk; a multiple of seg_blks: the next segment must be opened */
	uint64_t cursor;
	uint64_t chain_records;
	struct log_index *index;

	struct wear_ledger ledger; /* totals up to attach, plus what the caller adds */
	uint64_t opened_ns;
	struct {
		struct wear *table; /* NULL: not loaded, or no memory for it */
		bool loaded;	    /* tried once */
		bool full;	    /* all of it has to be copied anew: no limit */
		/* the next write is that of a record, which is counted already */
		bool planned;
		struct log_record head; /* with the highest totals seen at attach; seq 0: none */
		uint64_t load_blks;	/* how many may still be read to find it */
		uint64_t debt_blks;	/* how far the cursor has moved without the rotor */
		struct record_ptr last; /* the last durable record */
		uint64_t lblk;		/* where the cursor was */
		uint64_t written_bytes; /* then, by the accounts */
	} wear;

	uint8_t *stage; /* STAGE_BLKS blocks */
	uint64_t stage_lblk;
	unsigned stage_blks;
	struct attempt at;
};

static inline bool epoch_is_due(const struct log *l)
{
	return l->state == EPOCH_DUE || l->state == EPOCH_BROKEN;
}

/* May an empty record be written, or blocks home? */
static inline bool epoch_is_open(const struct log *l)
{
	return l->state == EPOCH_OPEN || l->state == EPOCH_WAIVED;
}

static inline uint64_t ring_seg(const struct log *l, uint64_t lblk)
{
	return lblk / l->seg_blks % l->super.seg_count;
}

/* The block behind lblk in a group: skips heads, wraps. */
static inline uint64_t ring_next(const struct log *l, uint64_t lblk)
{
	lblk++;
	if (lblk % l->seg_blks == 0)
		lblk = lblk % l->ring_blks + 1;
	return lblk;
}

static inline uint64_t ring_off_bytes(const struct log *l, uint64_t lblk)
{
	return l->super.ring_off_bytes + blk_to_bytes(lblk);
}

/* can a payload, descriptor or record lie there? */
static inline bool ring_valid(const struct log *l, uint64_t lblk)
{
	return lblk < l->ring_blks && lblk % l->seg_blks;
}

static inline enum index_kind ring_index_kind(enum desc_type type)
{
	switch (type) {
	case DESC_LOGGED:
		return INDEX_DATA;
	case DESC_SPILLED:
		return INDEX_SPILL;
	case DESC_LENT:
		return INDEX_LENT;
	case DESC_ZERO:
		return INDEX_ZERO;
	default:
		return INDEX_HOME;
	}
}

/* ring.c: segments and the stage */
/* the next erase block's first segment behind the newest record */
uint64_t ring_fresh_segment(const struct log *l);
bool ring_fresh_is_free(const struct log *l);
/* Segments that are wholly free when the cursor is at `cursor`; one that begins at the cursor
 * counts. */
uint64_t ring_free_segments(const struct log *l, uint64_t cursor);
int ring_stage_put(struct log *l, uint64_t lblk, const void *data, uint64_t blks) MUST_CHECK;
int ring_stage_flush(struct log *l) MUST_CHECK;
/* Before a block is put at *lblk: opens the segment if it stands at one's start, and steps behind
 * the head. */
int ring_enter(struct log *l, uint64_t *lblk) MUST_CHECK;

/* wearlog.c: copies of the wear table. What cannot be copied now is copied later. */
/* Blocks of copies for the group whose record will be `rec`, through the stage; *lblk is where the
 * next block goes. Fails only as the stage does. */
int wearlog_put_blocks(struct log *l, struct log_record *rec, uint64_t *lblk) MUST_CHECK;
/* What the record itself carries, into its block; rec->ledger has the totals. */
void wearlog_fill_record(struct log *l, struct log_record *rec, uint8_t *blk);
/* counts the write of it, before it is made */
void wearlog_plan_record(struct log *l, uint64_t lblk);
/* The record is durable; NULL: its attempt has failed. */
void wearlog_settled(struct log *l, const struct log_record *rec);
void wearlog_close(struct log *l);

/* lend.c */
/* The header of the attempt, and the FLUSH, before its record. */
int lend_seal(struct log *l) MUST_CHECK;
/* Is the room at hand that was lent to the attempt with these descriptors? -ENOMEDIUM: no. */
int lend_check(struct log *l, uint64_t epoch, uint64_t seq) MUST_CHECK;

/* record.c */
void epoch_set(struct log *l, enum epoch_state to); /* by the table above */
int record_flush(struct log *l) MUST_CHECK;	    /* FLUSH of base and log */
/* Fills what every record has in common, writes it to lblk, FLUSH. The stage is empty. */
int record_write(struct log *l, struct log_record *rec, uint64_t lblk) MUST_CHECK;
void record_accept(struct log *l, const struct log_record *rec); /* it is durable: it is N now */
/* An empty record at the cursor, or in a fresh segment. */
int record_put_empty(struct log *l, struct log_record *rec, bool fresh) MUST_CHECK;

/* lag.c. With lag 0 they answer what is right without, and write nothing. */
bool lag_on(const struct log *l);
uint64_t lag_tail_seq(const struct log *l); /* for the next record; 0: itself */
void lag_floors(const struct log *l, struct log_record *rec);
uint64_t lag_oldest_seq(const struct log *l); /* candidate */
/* before newest, cursor and index change */
void lag_accept(struct log *l, const struct log_record *rec);
/* What the attempt writes in place; NULL: nothing, or not needed. The newest record has it from now
 * on: takes it. */
int lag_direct_set(const struct log *l, struct log_index **ret) MUST_CHECK;
void lag_note_direct(struct log *l, struct log_index *direct);
/* older_tail_lblk: of the record before the newest; same: see struct lag */
void lag_opened(struct log *l, uint64_t tail_lblk, uint64_t older_tail_lblk, unsigned same);
void lag_begin_anew(struct log *l); /* what is in the ring is of no use any more */
/* the candidates of the old one move to *ret_was */
void lag_new_life(struct log *l, struct lag *ret_was);
/* of the old one, or (resume) of the new one */
void lag_end_life(struct log *l, struct lag *was, bool resume);
void lag_close(struct log *l);
bool lag_is_cold(const struct log *l);
int lag_settle(struct log *l) MUST_CHECK;     /* empty records until what was found is durable */
int lag_same_image(struct log *l) MUST_CHECK; /* until both candidates have one image */
int lag_pad(struct log *l, unsigned n) MUST_CHECK;
int lag_repeat_tail(struct log *l, const struct log_record *tail) MUST_CHECK;

/* foreign.c */
/* Does the home of a shrink that was cut off vouch for it? Sets home. */
int ring_look_home(struct log *l) MUST_CHECK;
/* Of the base at home, now: every record carries it. */
int ring_base_fingerprint(struct log *l, struct fs_fingerprint *ret) MUST_CHECK;
/* Is the base what `rec` says, or what a checkpoint of index ix would make of it? */
int ring_base_matches(struct log *l, const struct log_record *rec, const struct log_index *ix,
		      bool *ret) MUST_CHECK;
/* It is not: why, for people. Always an error, -EBADMSG if not one of a read. */
int ring_explain_foreign(struct log *l, const struct log_record *rec, char *why,
			 size_t n) MUST_CHECK;

enum ring_place { IN_RING, IN_BASE };
/* open.c: before blks blocks are read. 0; while the log is opened also -EINTR (log_cancel_open),
 * -E2BIG no honest ring takes as much. */
int ring_spend(struct log *l, enum ring_place where, uint64_t blks) MUST_CHECK;

/* verify.c: reading */
int ring_read_record(struct log *l, uint64_t lblk, uint8_t *blk, struct log_record *ret) MUST_CHECK;
/* Calls each() for every extent of a record's descriptors, after all checks of header, CRC and
 * bounds. -EBADMSG with why filled, or each()'s error. */
int ring_each_extent(struct log *l, const struct log_record *rec,
		     int (*each)(void *ctx, const struct desc_extent *e), void *ctx) MUST_CHECK;
/* Payload or manifest blocks of an extent against its CRCs. -EBADMSG: *ret_bad_blk. */
int ring_check_extent(struct log *l, const struct desc_extent *e, uint64_t *ret_bad_blk) MUST_CHECK;

#endif
