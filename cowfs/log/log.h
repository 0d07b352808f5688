/* SPDX-License-Identifier: MIT */
/*
 * The log: a ring of segments on the card that holds commits until their blocks are home.
 * Protocol and crash argument: docs/FORMAT.md; the rules R1..R12 cited in the code are its rules.
 *
 * One thread (the commit thread) uses a log; log indexes (index.h) may be used by any.
 */
#ifndef COWFS_LOG_LOG_H
#define COWFS_LOG_LOG_H

#include "card/card.h"
#include "log/format.h"
#include "log/index.h"
#include "log/wear.h"

/* ---- super record and geometry (super.c) ---- */

enum super_trouble {
	SUPER_COPY_A_BAD = 1 << 0, /* one copy unreadable or damaged: runs on, said in status */
	SUPER_COPY_B_BAD = 1 << 1,
	SUPER_COPIES_BAD = SUPER_COPY_A_BAD | SUPER_COPY_B_BAD, /* the mask */
	SUPER_GROWN = 1 << 2, /* the device is larger than when formatted */
	SUPER_NEWER = 1 << 3, /* format version or feature not known here */
	/* with -ENOENT: a pending super record that nothing vouches for */
	SUPER_CUT_OFF = 1 << 4,
};

/* Plans the layout for a volume of fs_bytes. log_bytes 0: max(32 MiB, 8 erase blocks). logcard may
 * be base. -ENOSPC: no room behind the file system; *ret_short_bytes says how much is missing.
 * -EINVAL: log too small. */
int super_plan(const struct card *base, const struct card *logcard, uint64_t fs_bytes,
	       uint64_t log_bytes, struct log_super *ret, uint64_t *ret_short_bytes) MUST_CHECK;
/*
 * The log of the file system at home, and no structure that a file of it could hold: copies behind
 * its end, and a pending one that its superblock vouches for. fs: what was found on base. Every
 * program finds its log by this function. -ENOENT no cowfs log (*ret_trouble SUPER_CUT_OFF: a
 * pending super record that means nothing: a shrink that was cut off before its commit, or a file);
 * -ESTALE the file system lies over the log, which is void (*ret: for the message); -EBADMSG both
 * copies damaged; -EPROTONOSUPPORT newer format (*ret: version and masks); -ERANGE the card is
 * smaller than the log says; else an I/O error.
 */
int super_find(struct card *base, struct card *logcard, const struct fsinfo *fs, unsigned flags,
	       struct log_super *ret, unsigned *ret_trouble) MUST_CHECK;
/* The card as what fsinfo.h reads, as large as it is. */
struct blk_reader super_reader(struct card *base);
enum {
	SUPER_ANY_HOME = 1 << 0, /* a pending one counts in any case: recover --accept-log */
};
/* The copies at or behind fs_bytes, the file system's end; 0: not known. Never a pending one.
 * Errors as above. */
int super_read(struct card *logcard, uint64_t fs_bytes, struct log_super *ret,
	       unsigned *ret_trouble) MUST_CHECK;
/* Writes both copies, a FLUSH after each; of a pending one only B. The card is writable. */
int super_write(struct card *logcard, struct log_super *s) MUST_CHECK;
/* One copy (0: A, 1: B), of the revision that is in s, and a FLUSH. */
int super_write_copy(struct card *logcard, const struct log_super *s, unsigned i) MUST_CHECK;
/* The same without the FLUSH. */
int super_put_copy(struct card *logcard, const struct log_super *s, unsigned i) MUST_CHECK;
/* The devices have grown: B at the new end, then A. Cut in between, one of the two is found, and
 * good. */
int super_grow(struct card *logcard, struct log_super *s, uint64_t base_bytes) MUST_CHECK;
/* The file system at home reaches over the ring (somebody grew the partition and then it): the ring
 * is its now, and nothing may be written there. fs_bytes: its size, 0 if unknown. */
static inline bool super_overgrown(const struct log_super *s, uint64_t fs_bytes)
{
	return !s->external && s->state != SUPER_PENDING && fs_bytes > s->fs_bytes;
}
/* Where the only copy of a pending super record may lie, best first: 1, 2, 4, 8 ... blocks before
 * the end. 0: no more. */
uint64_t super_pending_off(const struct card *c, unsigned i);

/* ---- opening: reads only ---- */

struct log;

enum log_state {
	LOG_EMPTY = 0, /* virgin: nothing in it */
	LOG_CLEAN = 1, /* all home, last record is clean */
	LOG_LIVE = 2,  /* newest generation found complete; index may be non-empty */
	/* newer records were rejected, an older complete generation was chosen */
	LOG_FELL_BACK = 3,
	LOG_RETIRED = 4,
	/* no complete generation above the floor: nothing is replayed, nothing may be written */
	LOG_BROKEN = 5,
	/* the base was changed by somebody else while blocks waited in the log: set aside, as
	 * BROKEN */
	LOG_FOREIGN = 6,
};

struct log_open_report {
	enum log_state state;
	struct log_record newest; /* the chosen one; zero when EMPTY or BROKEN */
	uint64_t highest_seq;
	unsigned rejected; /* valid records that were not chosen */
	/* the newest of those was rejected, or the base's change; for people */
	char why[160];
	/* by somebody else; state below BROKEN: nothing waited in the log */
	bool base_changed;
	/* BROKEN only because the lent room of the newest generation is not there */
	bool wants_lent;
	bool clone; /* the records are another card's: the ledger starts anew */
	uint64_t chain_records, live_blks, zero_blks;
	uint64_t unreadable_blks; /* of the ring: counted as garbage */
	uint64_t read_bytes;
	struct wear_ledger ledger; /* highest totals seen */
};

enum {
	LOG_ANY_BASE = 1 << 0, /* the base is not compared with the records: recover --accept-log */
	/* the super record is not on the card yet: nothing is looked for (shrink) */
	LOG_FRESH = 1 << 1,
	/* lent room is gone for good: a record that needs it is damaged (recover --lend none) */
	LOG_NO_LENT = 1 << 2,
};

/* base and logcard (may be the same) stay the caller's. Writes nothing, not even for a virgin ring.
 * Its memory and the blocks that it reads are bounded, whatever is in the ring (scan.h): what takes
 * more is BROKEN. Returns 0 also when BROKEN or FOREIGN: the report tells, the index is empty, and
 * every writing call then answers -EUCLEAN until log_accept_base. */
int log_open(struct log **ret, struct card *base, struct card *logcard, const struct log_super *s,
	     unsigned flags, struct log_open_report *ret_report) MUST_CHECK;
/* The same with the room that a commit was lent (log_lend), which stays the caller's and is not
 * written to: NULL none. If the newest generation needs it and this is not it, the log is BROKEN,
 * and the report says wants_lent. */
int log_open_lent(struct log **ret, struct card *base, struct card *logcard,
		  const struct log_super *s, unsigned flags, struct card *lent,
		  struct log_open_report *ret_report) MUST_CHECK;
/* From a signal handler: the log_open that is under way, or comes, ends with -EINTR at its next
 * read. */
void log_cancel_open(void);
/*
 * A log on another device, and the file system at home is neither the one that it was made for nor
 * the one of its newest record. Only where no record could be compared with the base: the log is
 * empty or retired. A file system without uuid passes.
 */
bool log_of_another(const struct log *l, const struct log_open_report *rep,
		    const struct fsinfo *fs);
/* The base as it is now is the truth, whatever the log says: the next write opens an epoch that
 * drops it all. */
void log_accept_base(struct log *l);
void log_close(struct log *l);
/* What super_read found: copies that are bad are written anew by the next log_prepare. */
void log_mend_super(struct log *l, unsigned trouble);
/* What is left of it. */
unsigned log_super_trouble(const struct log *l);
/* Nothing is under way: gives memory back that the next commit takes again. */
void log_relax(struct log *l);

const struct log_super *log_super(const struct log *l);
/* Names this log and gives nothing of its ring uuid away; zeroes before the first attach. For what
 * everybody may read. */
void log_public_id(const struct log *l, uint8_t ret[16]);
struct card *log_card(const struct log *l); /* where the ring is: the base or another device */
/* What the caller counts (absorbed, punched, skipped): it adds here before a record. */
struct wear_ledger *log_ledger(struct log *l);
/* The totals as the next record would carry them, all that cowfs wrote so far included. */
void log_totals(const struct log *l, struct wear_ledger *ret);
/* Finds the wear table in the ring and counts from now on; reads a few dozen blocks. Idempotent;
 * log_prepare does it if nobody has. Errors are not told: what cannot be found starts from zero,
 * and ledger.table_losses says so. */
void log_wear_load(struct log *l);
/* NULL before that, or without memory. */
const struct wear_table *log_wear(const struct log *l);
/* Records from the tail to the newest: how many a start-up has to read. */
uint64_t log_chain_records(const struct log *l);
const struct log_record *log_newest(const struct log *l);
/* The next write begins with an open record. */
bool log_wants_open(const struct log *l);
/* Of a pending super record: the superblock at home has the tags. If not, the file system is as it
 * was before. */
bool log_shrink_committed(const struct log *l);
/* The newest record is an empty one of this type with these flags, nothing newer was rejected, and
 * both copies of the super record are good. */
bool log_rests(const struct log *l, enum record_type type, uint32_t flags);
/* A reference to the index of what is committed and not home. */
struct log_index *log_index_of(struct log *l);

/* With lag: the index of the generation before the newest, which recovery may still choose, a
 * reference; NULL if there is no other image. Base and ring have what it speaks of until the next
 * record. */
struct log_index *log_older_index(const struct log *l);
/* With lag: may a candidate read back block blk, because it was written in place for it? For how
 * many blocks from blk on (at most max_blks, at least 1) that is so. */
uint64_t log_held_run(const struct log *l, uint64_t blk, uint64_t max_blks, bool *ret_held);

/* Reads every live payload, descriptor and manifest block and compares; for `cowctl check`.
 * say() gets one line per finding; *ret_bad counts them. */
int log_verify(struct log *l, void (*say)(void *ctx, const char *line), void *ctx,
	       uint64_t *ret_bad) MUST_CHECK;

/* ---- writing. The card is set writable by the caller. ---- */

/* First write of a life: draws the ring uuid of a virgin super record, voids the ring's segment
 * heads, and opens an epoch where rule 3 asks for it. Idempotent and cheap when there is nothing to
 * do. */
int log_prepare(struct log *l) MUST_CHECK;

/* The card is of the old form (without LOG_INCOMPAT_ESCAPED), and its log is live: a commit
 * upgrades it before anything else. */
bool log_wants_upgrade(const struct log *l);
/* Begins a new life of the ring, with a new uuid; ledger and wear table go with it. After
 * log_prepare. -EBUSY: nothing is written, a checkpoint and its tail record come first. */
int log_upgrade(struct log *l) MUST_CHECK;

/* Largest payload, in blocks, that a commit could put into the ring right now / after a
 * checkpoint. */
uint64_t log_room_blks(const struct log *l);
uint64_t log_capacity_blks(const struct log *l);
uint64_t super_capacity_blks(const struct log_super *s);
/* Blocks of metadata that a commit of this shape needs in the ring. */
uint64_t log_meta_blks(const struct log *l, uint64_t logged_blks, uint64_t direct_blks,
		       uint64_t extents);

/* A commit: begin, any number of adds, then end. Any error of these poisons the attempt: call
 * log_abort. What is called out of turn breaks a rule: -ENOTRECOVERABLE. */
int log_begin(struct log *l) MUST_CHECK;
/* Appends payload of consecutive blocks. data aligned; at most 1 MiB. */
int log_add_logged(struct log *l, uint64_t blk, uint64_t blks, const void *data) MUST_CHECK;
int log_add_zero(struct log *l, uint64_t blk, uint64_t blks) MUST_CHECK;
/* Payload that the ring cannot hold goes to blocks [to_blk, to_blk + blks) of the volume, which are
 * free in the committed and in the sealed file system and no direct target. Not while there is a
 * spill already: a checkpoint and its tail record come first. */
int log_add_spilled(struct log *l, uint64_t blk, uint64_t blks, uint64_t to_blk,
		    const void *data) MUST_CHECK;
/*
 * Payload that neither the ring nor free blocks can hold may go to `lent`, a device or file
 * elsewhere, from now on until log_unlend. The card stays the caller's. -EBUSY: there is lent room
 * already; -EEXIST: it was lent to another log; -ENOSPC: it is too small for anything; errors of
 * the card.
 */
int log_lend(struct log *l, struct card *lent) MUST_CHECK;
uint64_t log_lent_blks(const struct log *l); /* of payload that it holds; 0: no room is lent */
/* the newest room that was lent: it was an error of its own */
bool log_lent_failed(const struct log *l);
/* Appends to it, as log_add_logged to the ring. Not if it is full, or while there is a spill. */
int log_add_lent(struct log *l, uint64_t blk, uint64_t blks, const void *data) MUST_CHECK;
bool log_lent_needed(const struct log *l); /* by the newest generation */
/* No room is lent any more, and what was in it is void. -EBUSY: a generation that recovery may
 * choose needs it. Any other error: its header could not be wiped, no more. */
int log_unlend(struct log *l) MUST_CHECK;
/* Blocks that both file systems call free, or lent room, hold payload of the newest generation,
 * until a tail record that is durable says that it is home: nothing may be written in place before
 * (R10). */
bool log_spilled(const struct log *l);
/* Before blocks are written in place, or as a spill: do the log's rules allow it? -ENOTRECOVERABLE: no
 * (base/invariant.h), and they must not be written. */
int log_may_write(const struct log *l, uint64_t blk, uint64_t blks) MUST_CHECK;
/* Notes blocks that the caller has written (or will write before log_end) in place. */
int log_add_direct(struct log *l, uint64_t blk, uint64_t blks, const void *data) MUST_CHECK;
/* Descriptor blocks; FLUSH of base and log; record; FLUSH. On 0 the generation is durable and
 * *ret_index is a new reference to the index that replaces the old one. */
int log_end(struct log *l, enum commit_cause cause, uint32_t flags,
	    struct log_index **ret_index) MUST_CHECK;
/* After an error: the attempt is dead, the next write opens an epoch (rule 3), nothing counts as
 * same (rule 8). */
void log_abort(struct log *l);
bool log_doubt(const struct log *l); /* an attempt failed since the last good commit */

/* What makes bringing home cheaper. Each function may be NULL. */
struct log_content {
	/* Logged content that is at hand elsewhere, in RAM, so that the log need not be read for
	 * it. Fills all of buf, or says no. What it fills in is compared with the log's CRCs; if it
	 * differs the log is read. */
	bool (*read)(void *ctx, uint64_t blk, uint64_t blks, void *buf);
	void *ctx;
	/* Shall the write that ends before end_blk go on, with zeros, to next_blk, where next_blks
	 * follow? Only if no generation that recovery may choose uses a block of the gap.
	 * written_blks: how many are in this write so far. */
	bool (*bridge)(void *ctx, uint64_t end_blk, uint64_t next_blk, uint64_t written_blks,
		       uint64_t next_blks);
	void *bridge_ctx;
};

/* Checkpoint-begin record, home writes in order, FLUSH. The ring is not reusable before
 * log_put_tail. content, progress: may be NULL; a non-zero return of progress stops (-ECANCELED).
 * *ret_index: new (empty) index. */
int log_checkpoint(struct log *l, const struct log_content *content,
		   int (*progress)(void *ctx, uint64_t done_blks, uint64_t total_blks), void *ctx,
		   struct log_index **ret_index) MUST_CHECK;
/*
 * The same for the ring of a shrink: tags in the superblock at home are the moment of the commit,
 * and a superblock without tags is the last that is written. before_last() comes when all else is
 * home and durable; what it writes is flushed when it returns. The log is of no use after that.
 */
int log_checkpoint_shrink(struct log *l,
			  int (*progress)(void *ctx, uint64_t done_blks, uint64_t total_blks),
			  void *ctx, int (*before_last)(void *ctx), void *last_ctx) MUST_CHECK;
/* Is no record to be written while nothing can read the metadata of the file system at home
 * (-EOWNERDEAD)? Else its superblock is all that the record knows of it; so it is at first. */
void log_need_reader(struct log *l, bool needed);
/* An empty record that carries the new tail (type TAIL or RETIRED). Before it, the caller made sure
 * that no reader uses an older index (view_set_index). */
int log_put_tail(struct log *l, enum record_type type, uint32_t flags,
		 enum commit_cause cause) MUST_CHECK;

/* Is the newest record on the card still ours, and the base what it was? -ESTALE if not (card
 * swapped, foreign writer). Reads a few blocks. */
int log_recheck(struct log *l) MUST_CHECK;
/* error, of a read through the log, or -ESTALE if it is -EBADMSG because the card was swapped: then
 * there is other content where the log was. */
int log_read_error(struct log *l, int error) MUST_CHECK;

#endif
