/* SPDX-License-Identifier: MIT */
/*
 * The inner state of the log and the arithmetic of its ring: private to log/.
 *
 * lblk counts 4 KiB blocks from the start of the ring; the first block of every segment is its
 * head. A group (payload, descriptors, record) runs through consecutive segments and skips their
 * heads (ring_next). The busy part reaches from the start of the tail record's group to the
 * cursor. A failed attempt lies behind the cursor and is free again.
 */
#ifndef COWFS_LOG_RING_H
#define COWFS_LOG_RING_H

#include "log/codec.h"
#include "log/index_build.h"
#include "log/log.h"
#include "log/wear.h"

#define STAGE_BLKS 256u	    /* 1 MiB */
#define RING_RESERVE_EBS 3u /* see ring.c */

/* budget left while a log is opened: see scan.h */
struct opening {
	uint64_t ring_blks, base_blks;
	uint64_t
		copied_seq; /* the descriptors of this record are damaged: its copy of them was read; 0: none */
};

/*
 * What may be written to the log now: one state, changed by epoch_set alone.
 *
 *	DUE	-> OPEN		the open record is durable; at open: the newest record is clean
 *	DUE	-> WAIVED	log_prepare finds a ring that is full: its last block is the tail record's
 *	DUE	-> BROKEN	at open: no generation is complete
 *	OPEN	-> ATTEMPT	log_begin
 *	OPEN	-> DUE		a record failed
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
	EPOCH_WAIVED,  /* the same without an open record, because there is no room for one */
	EPOCH_ATTEMPT, /* a commit is under way; nothing else may be written */
	EPOCH_BROKEN,  /* nothing may be written */
};

enum { SENT_RECORDS = 8 };

/* what the current attempt has gathered */
struct attempt {
	uint64_t seq, start_lblk;
	uint64_t head_lblk; /* next block to fill, after the staged ones */
	uint64_t direct_blks, logged_blks, zero_blks, spilled_blks;
	struct log_sample sample; /* one of the direct blocks; blk 0: none */
	struct index_list list;
	uint8_t *desc; /* descriptor blocks so far, desc_blks of them */
	size_t desc_blks, cap_desc;
	struct desc_writer writer;
};

/* lag.c: what recovery may choose besides the newest record, on a card that loses its last
 * acknowledged writes */
struct lag {
	/* What was found at open, or a failed attempt, may still be in the cache of the card,
	 * until lag_settle. */
	bool cold;
	/* The next record is its own floor, until lag_settle. A warm log is alone as well if the
	 * ring is full (lag_pad). */
	bool alone;
	uint64_t older_seq;	 /* the older candidate; 0: none */
	struct log_index *index; /* its index; NULL: the same as that of the newest */
	/* value of tail_lblk once the newest is the older candidate; next member: the same */
	uint64_t tail_lblk;
	bool spilled;
	unsigned same; /* number of records, newest first, that have one image */
	/* sets of blocks that the newest three wrote in place; NULL: none */
	struct log_index *direct[3];
};

/* guarded.c: the first superblock on the base */
struct guarded {
	uint64_t blk; /* where it is: as guard_find */
	/* what the card has there; UNSURE: a write of it failed or was cut */
	enum guard_state { GUARD_OFF, GUARD_ON, GUARD_UNSURE } state;
	uint8_t *truth; /* its content without the guard, of the generation that is home */
	uint8_t packed[RECORD_COPY_MAX];
	size_t packed_bytes; /* 0: it takes no guard */
	bool copied;	     /* the newest record has the copy */
	unsigned since;	     /* number of records since the last write, or since it was read */
	unsigned copies;     /* so have this number of records, newest first; 0: not known */
	uint64_t mark;	     /* base: the last write of it */
	bool odd;	     /* the guard is one with an odd owner */
	bool taken;	     /* at open: the guard that the newest record had seen is gone */
	uint64_t taken_blk;  /* it was there */
	uint64_t sent;	     /* writes and flushes up to the newest record; 0: of another session */
};

/* rules.c: positions in time of past writes, in the unit of card->writes */
struct order {
	uint64_t head_mark, record_mark; /* card: the newest segment head and record */
	uint64_t home_mark;		 /* base: the last write of a checkpoint */
	unsigned pads_due;		 /* records that L4 requires after that */
	uint64_t copy_mark[2];		 /* card: the last write of each copy of the superblock */
	unsigned
		copy_pads; /* records that S1 requires behind the last of these; of another session, too */
};

/* hold.c: a generation that stays complete */
struct hold {
	struct record_ptr at; /* its record; seq 0: none */
	uint64_t tail_seq, generation, time_s;
	uint32_t flags;
	enum commit_cause cause;
	struct log_index *index;
	bool ending;	/* records have no flag any more; with lag it may still be chosen */
	bool back;	/* records have RECORD_BACK */
	unsigned boots; /* they have this in RECORD_BOOTS */
	/* the log was opened at this generation, and the first record, which goes back, is due: nothing is
	 * held */
	bool going;
};

struct log {
	struct card *base, *card;
	struct opening *opening; /* NULL: opening is complete */
	struct log_super super;
	unsigned super_trouble; /* enum super_trouble, until mended */
	uint64_t seg_blks, ring_blks;
	uint32_t segs_per_eb;

	enum epoch_state state;
	unsigned flags;	   /* of log_open */
	bool needs_reader; /* log_need_reader */
	/* for a pending superblock that was on the card at open */
	enum { HOME_PLAIN, HOME_VOUCHES, HOME_STRANGE } home;
	/* the base at open, if no record has its fingerprint */
	struct fs_fingerprint base_then;
	bool base_known;
	/*
	 * Facts that are independent of the state above and of each other:
	 */
	/* What was read at open is durable: a FLUSH came since (log_settle). */
	bool settled;
	/* R8: an attempt failed since the last good commit. The next good commit clears it;
	 * suspect stays set. */
	bool doubt;
	/* Something failed since the log was opened, for example an empty record: a home block
	 * that is read back may not be durable. */
	bool suspect;
	bool lost; /* log_lost */
	uint64_t lost_blk;
	/* R10: payload lies in free blocks, and no durable tail has passed it.
	 * Still set after the payload is written home. */
	bool spilled;
	/* The superblock does not have this life of the ring yet: before and after its open
	 * record. */
	bool super_due;
	/* The whole index is written home and flushed, so the tail may pass newest. Failures do
	 * not change that. */
	bool home_done;
	struct log_record newest; /* seq 0: none yet */
	/* samples of earlier records than the newest, which recovery may choose */
	struct log_sample held[2][LOG_SAMPLES];
	struct log_mark *mark; /* of log_set_mark */
	struct lag lag;
	struct hold hold;
	struct guarded guarded;
	struct order order;
	uint64_t tail_lblk; /* start of the oldest group that any candidate still needs */
	uint64_t highest_seq, max_serial, epoch;
	uint64_t found_seq; /* highest_seq at open */
	/* records that this log has written, or tried to, by seq modulo SENT_RECORDS: the CRC of the block */
	struct {
		uint64_t seq;
		uint32_t crc;
	} sent[SENT_RECORDS];
	/* next free lblk; at a multiple of seg_blks the next segment must be opened */
	uint64_t cursor;
	/* behind the durable head of an erase block in which nothing else was written: the next empty record goes
	 * there; 0: at the cursor */
	uint64_t entered_lblk;
	uint64_t chain_records;
	struct log_index *index;
	/* the part of the index that a checkpoint which was stopped left to do; NULL: all of it */
	struct log_index *left;

	struct wear_ledger ledger; /* totals up to attach, plus what the caller adds */
	uint64_t opened_ns;
	struct {
		struct wear *table; /* NULL: not loaded, or out of memory */
		bool loaded;	    /* loading was tried once */
		/* the next write is that of a record and is counted already */
		bool planned;
		/* the record with the highest totals found at attach; seq 0: none */
		struct log_record head;
		uint64_t load_blks;	/* how many blocks may still be read to find the table */
		struct record_ptr last; /* the last durable record */
		uint64_t lblk;		/* where the last copies went */
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

/* May an empty record be written, or blocks be written home? */
static inline bool epoch_is_open(const struct log *l)
{
	return l->state == EPOCH_OPEN || l->state == EPOCH_WAIVED;
}

static inline uint64_t ring_seg(const struct log *l, uint64_t lblk)
{
	return lblk / l->seg_blks % l->super.seg_count;
}

void mark_sound(struct log_mark *m, const struct log_record *rec); /* append.c */

/* The next block of a group after lblk: skips heads, wraps. */
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

/* May a payload, descriptor or record block lie there? */
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
	case DESC_ZERO:
		return INDEX_ZERO;
	default:
		return INDEX_HOME;
	}
}

/* ring.c: segments and the stage */
/* the first segment of the next erase block after the newest record */
uint64_t ring_fresh_segment(const struct log *l);
bool ring_fresh_is_free(const struct log *l);
/* Number of wholly free segments for this cursor; a segment that begins at the cursor counts. */
uint64_t ring_free_segments(const struct log *l, uint64_t cursor);
int ring_stage_put(struct log *l, uint64_t lblk, const void *data, uint64_t blks) MUST_CHECK;
int ring_stage_flush(struct log *l) MUST_CHECK;
/* Call before a block is put at *lblk. Opens the segment if *lblk is its start, and steps past
 * the head. */
int ring_enter(struct log *l, uint64_t *lblk) MUST_CHECK;

/* wearlog.c: copies of the wear table. A copy that fails now is made later. */
enum { WEARLOG_MAX_BLKS = 64 }; /* of a group: more than a whole table */
/* Puts blocks of copies, for the group whose record will be `rec`, through the stage. *lblk is
 * the place of the next block. Fails only if the stage fails. */
int wearlog_put_blocks(struct log *l, struct log_record *rec, uint64_t *lblk) MUST_CHECK;
/* Fills the copies that the record itself carries into its block, that of its descriptors among them; rec->ledger has
 * the totals. */
void wearlog_fill_record(struct log *l, struct log_record *rec, uint8_t *blk);
/* counts the write of the record before it is made */
void wearlog_plan_record(struct log *l, uint64_t lblk);
/* The record is durable. NULL: its attempt has failed. */
void wearlog_settled(struct log *l, const struct log_record *rec);
void wearlog_close(struct log *l);

/* checkpoint.c */
/* Call when something has failed: the next checkpoint writes every block. */
void checkpoint_forget(struct log *l);

/* record.c */
void epoch_set(struct log *l, enum epoch_state to); /* by the table above */
int record_flush(struct log *l) MUST_CHECK;	    /* FLUSH of base and log */
/* Fills the fields common to all records, writes the record to lblk, FLUSH. The stage is empty. */
int record_write(struct log *l, struct log_record *rec, uint64_t lblk) MUST_CHECK;
/* the record is durable: it is N now */
void record_accept(struct log *l, const struct log_record *rec);
/* Writes an empty record at the cursor, or in a fresh segment. */
int record_put_empty(struct log *l, struct log_record *rec, bool fresh) MUST_CHECK;
int record_put_open(struct log *l,
		    bool fresh) MUST_CHECK; /* the same, one that only moves the tail */
/* Writes the head of a segment without records. blk: a buffer for it. */
int record_void_head(struct log *l, uint32_t seg, uint8_t *blk) MUST_CHECK;

/* Is there room for one more record and `spare` blocks? */
bool record_has_room(const struct log *l, uint64_t spare);
/* Writes both copies of the superblock of a live log. */
int record_write_super(struct log *l) MUST_CHECK;

/* hold.c */
void hold_forget(struct log *l);
/* This record is held. Takes the index of its generation; NULL: -ENOMEM. */
int hold_set(struct log *l, const struct log_record *h, struct log_index *index) MUST_CHECK;
int hold_set_feature(struct log *l, bool on) MUST_CHECK; /* writes the superblock */
uint32_t hold_flags(const struct log *l);		 /* for the next record */
/* The log was opened at the held generation: the open record of its first epoch goes back. */
void hold_open_record(struct log *l, struct log_record *rec);
void hold_went_back(struct log *l, bool durable); /* behind that write */
/* The superblock has the feature without a hold: a cut came between the two. */
bool hold_feature_is_stale(const struct log *l);

/* guarded.c. Without a superblock that takes the guard these do nothing. */
/* The owner of the guards of this ring, without its lowest bit (GUARD_ODD). */
enum { GUARD_ODD = 1 };
uint32_t guarded_owner(const struct log *l);
/* Gives the superblock a guard that the newest record has not seen. */
void guarded_put(struct log *l, uint8_t *blk);
/* Adds the write that took the guard away n times to a ledger (modulo 2^64). */
void guarded_count(struct wear_ledger *t, uint64_t n);
/* Writes the superblock without the guard, FLUSH, if log_guarded(). */
int guarded_take_off(struct log *l) MUST_CHECK;
/* Reads the superblock and what the newest record has of it. changed: the record does not count for the
 * base. */
int guarded_opened(struct log *l, bool changed) MUST_CHECK;
int guarded_show(struct log *l) MUST_CHECK; /* to readers of the base */
void guarded_close(struct log *l);
/* The copy of the superblock in this record: 1, or 0 if it has none. */
int guarded_copy_of(struct log *l, const struct log_record *rec, uint8_t *copy) MUST_CHECK;
/* bytes of the copy that a record of this type would carry now */
uint32_t guarded_copy_bytes(const struct log *l, enum record_type type);
void guarded_fill_record(const struct log *l, struct log_record *rec, uint8_t *blk);
void guarded_accept(struct log *l, const struct log_record *rec); /* the record is durable */
bool guarded_is_covered(const struct log *l);
bool guarded_is_due(const struct log *l); /* a commit puts the guard on */
/* but a record with a copy must come before */
bool guarded_wants_copy(const struct log *l);
/* Writes the superblock again after a write of it failed or was cut, before its marks go into a record. */
int guarded_repair(struct log *l) MUST_CHECK;
/* Puts a guard on where there is none, before a checkpoint: on a card that had none, or one
 * that was changed elsewhere. */
int guarded_before_home(struct log *l) MUST_CHECK;
int guarded_begin(struct log *l) MUST_CHECK; /* before an attempt */
void guarded_failed(struct log *l);	     /* a FLUSH may have failed */
/* The superblock is in the log behind each commit: adds it to an attempt that does not have it. */
int guarded_log_first(struct log *l) MUST_CHECK;
uint64_t guarded_extra_blks(const struct log *l); /* room of the ring for that */
/* next, in blk: the superblock of the generation that is in the log. If it takes the guard, a
 * checkpoint leaves a guard where it is, and writes the block with one where there is none. */
bool guarded_fits(const struct log *l, uint64_t blk, const uint8_t *next);
/* Home writes will replace the superblock on the base by what takes no guard, or is none. Until guarded_home, which may be at the
 * end of a later checkpoint, there is none that could have a guard. */
int guarded_leave(struct log *l) MUST_CHECK;
/* Everything else is home. */
int guarded_home(struct log *l, uint64_t blk, const uint8_t *next) MUST_CHECK;

/* sample.c */
/* for blocks that the attempt writes in place */
void sample_note_direct(struct log *l, uint64_t blk, uint64_t blks, const uint8_t *content,
			const uint32_t *crc);
void sample_fill_record(const struct log *l, struct log_record *rec);
void sample_forget(struct log *l); /* the newest record has none that a base must have */
/* Call before the newest record gets other samples. */
void sample_accept(struct log *l, const struct log_sample *next);
/* as log_held_run, for samples only */
uint64_t sample_held_run(const struct log *l, uint64_t blk, uint64_t max_blks, bool *ret_held);
/* What the index has may be home, as a whole or in part: that says nothing about the base. */
void sample_forget_logged(struct log *l);
/* All blocks of the index are home: chooses new samples for the next record. */
int sample_home(struct log *l, const struct log_content *content) MUST_CHECK; /* may be NULL */
/* Has the base the samples of this record? Those that the index has may be home. */
int sample_match(struct log *l, const struct log_record *rec, const struct log_index *ix,
		 bool *ret) MUST_CHECK;

/* lag.c. With lag 0 these return the values of a log without lag, and write nothing. */
bool lag_on(const struct log *l);
uint64_t lag_tail_seq(const struct log *l); /* for the next record; 0: its own seq */
void lag_floors(const struct log *l, struct log_record *rec);
uint64_t lag_oldest_seq(const struct log *l); /* oldest candidate */
/* call before newest, cursor and index change */
void lag_accept(struct log *l, const struct log_record *rec);
/* The set of blocks that the attempt writes in place; NULL: none, or not needed. lag_note_direct
 * takes it and gives it to the newest record. */
int lag_direct_set(const struct log *l, struct log_index **ret) MUST_CHECK;
void lag_note_direct(struct log *l, struct log_index *direct);
/* older_tail_lblk: of the record before the newest; same: see struct lag */
void lag_opened(struct log *l, uint64_t tail_lblk, uint64_t older_tail_lblk, unsigned same);
void lag_begin_anew(struct log *l); /* the content of the ring is not needed any more */
void lag_close(struct log *l);
void lag_forget_tail(struct log *l); /* as with lag 0: the ring is free from here on */

/* record.c, with lag */
/* writes empty records until what was found is durable */
int lag_settle(struct log *l) MUST_CHECK;
/* writes empty records until both candidates have one image */
int lag_same_image(struct log *l) MUST_CHECK;
int lag_pad(struct log *l, unsigned n) MUST_CHECK;

/* foreign.c */
/* Does the base of a shrink that was cut off vouch for it? Sets home. */
int ring_look_home(struct log *l) MUST_CHECK;
/* Fingerprint of the base now; every record carries it. */
int ring_base_fingerprint(struct log *l, struct fs_fingerprint *ret) MUST_CHECK;
/* Does the base match `rec`, or what a checkpoint of index ix would make of it? */
int ring_base_matches(struct log *l, const struct log_record *rec, const struct log_index *ix,
		      bool *ret) MUST_CHECK;
/* The same against the base at open, for a log whose records do not know the base. */
int ring_base_unchanged(struct log *l, bool *ret) MUST_CHECK;
/* Has another session written records, or segment heads, since the newest record? Reads two heads;
 * the rest of the segment only if the other session may have gone on there. The stage is empty. */
int ring_used_elsewhere(struct log *l, bool *ret) MUST_CHECK;
/* This block, a record, is about to be written. */
void ring_note_sent(struct log *l, const struct log_record *rec, const uint8_t *blk);
/* Has a superblock on the base the guard of this ring? */
bool ring_base_guarded(struct log *l);
/* Explains to people why the base does not match. Always returns an error: -EBADMSG, or that of
 * a read. */
int ring_explain_foreign(struct log *l, const struct log_record *rec, char *why,
			 size_t n) MUST_CHECK;

/* The whole base: until a shrink is written home, its file system is larger than the volume. */
struct blk_reader ring_base_reader(const struct log *l,
				   int (*read)(void *ctx, uint64_t blk, uint64_t blks, void *buf),
				   void *ctx);

enum ring_place { IN_RING, IN_BASE };
/* ring.c: call before blks blocks are read. Returns 0; while the log is opened also -EINTR
 * (log_cancel_open), or -E2BIG if the ring needs more reads than any ring of cowfs. */
int ring_spend(struct log *l, enum ring_place where, uint64_t blks) MUST_CHECK;

/* verify.c: reading */
/* A block of the ring that cannot be read is zero, and counted. */
int ring_read_tolerant(struct log *l, uint64_t lblk, uint64_t blks, uint8_t *buf,
		       uint64_t *unreadable_blks) MUST_CHECK;
int ring_read_record(struct log *l, uint64_t lblk, uint8_t *blk, struct log_record *ret) MUST_CHECK;
/* -EBADMSG as well if another record is there. */
int ring_read_same(struct log *l, struct record_ptr at, uint8_t *blk,
		   struct log_record *ret) MUST_CHECK;

#endif
