/* SPDX-License-Identifier: MIT */
/*
 * The log: a ring of segments on the card that holds commits until their blocks are
 * checkpointed. docs/FORMAT.md has the protocol and the crash argument; the code cites its rules
 * R1..R12.
 *
 * Only one thread (the commit thread) uses a log. Any thread may use log indexes (index.h).
 */
#ifndef COWFS_LOG_LOG_H
#define COWFS_LOG_LOG_H

#include <stdatomic.h>

#include "card/card.h"
#include "log/format.h"
#include "log/index.h"
#include "log/wear.h"

/* ---- superblock of the log and geometry (super.c) ---- */

enum super_trouble {
	/* one copy is unreadable or damaged: the log still works, status reports it */
	SUPER_COPY_A_BAD = 1 << 0,
	SUPER_COPY_B_BAD = 1 << 1,
	SUPER_COPIES_BAD = SUPER_COPY_A_BAD | SUPER_COPY_B_BAD, /* the mask */
	SUPER_GROWN = 1 << 2, /* the device is larger than when formatted */
	SUPER_NEWER = 1 << 3, /* unknown format version or feature */
	/* with -ENOENT: a pending superblock that the base does not vouch for */
	SUPER_CUT_OFF = 1 << 4,
	/* an image on a smaller device: copy B has no place where A says */
	SUPER_SHORTENED = 1 << 5,
};

/* Plans the layout for a volume of fs_bytes. log_bytes 0: max(32 MiB, 8 erase blocks), but 64 MiB
 * on a device of 1 GiB or more if that is more and there is room. logcard may be base. -ENOSPC: no room behind the file system; *ret_short_bytes is the shortage.
 * -EINVAL: log too small. */
int super_plan(const struct card *base, const struct card *logcard, uint64_t fs_bytes,
	       uint64_t log_bytes, struct log_super *ret, uint64_t *ret_short_bytes) MUST_CHECK;
/*
 * Finds the log of the file system on the base. Every program finds its log by this function. It
 * accepts no structure that a file could contain: only copies behind the end of the file system,
 * and a pending superblock that the superblock of the file system vouches for. fs: the file
 * system found on base. -ENOENT no cowfs log (*ret_trouble SUPER_CUT_OFF: there is a void
 * pending superblock, from a shrink that was cut off before its commit, or from a file); -ESTALE
 * the file system lies over the log, which is void (*ret: for the message); -EBADMSG both copies
 * damaged; -EPROTONOSUPPORT newer format (*ret: version and masks); -ERANGE the card is smaller
 * than the log says; -EXDEV the base is a member of an array, which has this log; else an I/O error.
 */
int super_find(struct card *base, struct card *logcard, const struct fsinfo *fs, unsigned flags,
	       struct log_super *ret, unsigned *ret_trouble) MUST_CHECK;
/* What to say about -EXDEV; %s: the base. */
#define SUPER_MEMBER                                                                                \
	"%s: is a member of an array: use the device of the array. If there is none any more, run " \
	"'wipefs -a -t linux_raid_member,drbd' on it from a rescue system"
/* A reader of the whole card for fsinfo.h. It shows the superblock without the guard. */
struct blk_reader super_reader(struct card *base);
/* Does the base have a guard, of this log or of another one? */
int super_guarded(struct card *base, bool *ret) MUST_CHECK;
/* The same where no log was found; an error is none. */
bool super_log_missing(struct card *base);
/* -ERANGE: %s device, %llu bytes, %s device, %llu first byte of copy A */
#define SUPER_TOO_SMALL                                                                                               \
	"%s: a truncated copy of a larger card: a part of the log is missing. Make it %llu bytes or larger, or copy " \
	"it to a card that is, then cowctl release. Or give up what was committed and is in the log only: dd "        \
	"if=/dev/zero of=%s bs=4096 seek=%llu count=1 conv=notrunc"
/* -ERANGE, the log is on another device: %s device, %llu bytes */
#define SUPER_BASE_TOO_SMALL                                                                       \
	"%s: smaller than the volume of its log. Make it %llu bytes or larger, or copy it to a card that is"
/* What to say about super_log_missing: the newest generation may be in that log. */
#define SUPER_LOG_MISSING                                                                          \
	"its superblock is guarded by a log that is not here and may hold newer blocks"
/* Could the base be guarded, and is not? Then no block exists in a log alone, whatever became of that. */
bool super_whole_alone(struct card *base);
/* A guard of a log that is void now: takes it from the base, which is writable. */
int super_unguard(struct card *base) MUST_CHECK;
enum {
	SUPER_ANY_HOME = 1 << 0, /* a pending superblock counts in any case: release --accept log */
};
/* Reads the copies at or behind fs_bytes, the end of the file system; 0: unknown. Never returns
 * a pending superblock. Errors as above. */
int super_read(struct card *logcard, uint64_t fs_bytes, struct log_super *ret,
	       unsigned *ret_trouble) MUST_CHECK;
/* Writes both copies, with a FLUSH after each; of a pending superblock only B. The card is
 * writable. */
int super_write(struct card *logcard, struct log_super *s) MUST_CHECK;
/* Writes one copy (0: A, 1: B) with the revision in s, and a FLUSH. */
int super_write_copy(struct card *logcard, const struct log_super *s, unsigned i) MUST_CHECK;
/* The same without the FLUSH. */
int super_put_copy(struct card *logcard, const struct log_super *s, unsigned i) MUST_CHECK;
/* The devices have grown: writes B at the new end, then A. After a cut in between, one of the
 * two is found, and it is good. */
int super_grow(struct card *logcard, struct log_super *s, uint64_t base_bytes) MUST_CHECK;
/* The life of the card that this one was cloned from, in a block of its own. Written once, by the clone. -ENOENT: it is no
 * clone; -ENOSPC: it has no room for that; -EBADMSG, -EUCLEAN. */
int super_put_past(struct card *logcard, const struct log_super *s,
		   const struct log_past *p) MUST_CHECK;
int super_get_past(struct card *logcard, const struct log_super *s,
		   struct log_past *ret) MUST_CHECK;
/* The file system on the base reaches over the ring, because it was grown together with its
 * partition. The ring then belongs to the file system, and nothing may be written there.
 * fs_bytes: its size, 0 if unknown. */
static inline bool super_overgrown(const struct log_super *s, uint64_t fs_bytes)
{
	return !s->external && s->state != SUPER_PENDING && fs_bytes > s->fs_bytes;
}
/* Possible offsets of the only copy of a pending superblock, best first: 1, 2, 4, 8 ... blocks
 * before the end. 0: no more. */
uint64_t super_pending_off(const struct card *c, unsigned i);

/* ---- opening: reads only ---- */

struct log;

enum log_state {
	LOG_EMPTY = 0, /* virgin: the log is empty */
	LOG_CLEAN = 1, /* everything is checkpointed, the last record is clean */
	LOG_LIVE = 2,  /* the newest generation is complete; the index may be non-empty */
	/* newer records were rejected and an older complete generation was chosen */
	LOG_FELL_BACK = 3,
	LOG_RETIRED = 4,
	/* no complete generation above the floor: nothing is replayed, nothing may be written */
	LOG_BROKEN = 5,
	/* foreign change of the base while blocks waited in the log: set aside, treated as
	 * BROKEN */
	LOG_FOREIGN = 6,
};

struct log_open_report {
	enum log_state state;
	struct log_record newest; /* the chosen record; zero when EMPTY or BROKEN */
	uint64_t highest_seq;
	unsigned rejected; /* valid records that were not chosen */
	/* why the newest of those was rejected, or how the base changed; for people */
	char why[160];
	/* by a foreign change; with a state below BROKEN nothing waited in the log */
	bool base_changed;
	/* BROKEN, but complete for an older version: why says which, and what completes it */
	bool needs_older;
	/* the newest record asked to go back, and the log did: its seq, or 0; and to which generation */
	uint64_t back_seq, back_generation, back_s;
	bool clone;	   /* the records are of another card: the ledger starts from zero */
	bool loader_wrote; /* a boot loader has changed a block that the newest commit wrote */
	bool trial_over;   /* back_seq: what it left was on trial, and no boot was left */
	uint64_t live_blks, zero_blks;
	uint64_t unreadable_blks; /* of the ring: counted as garbage */
	/* an older record of the newest generation, or its descriptors, is damaged, and what they said is known from others; 0: none */
	uint64_t passed_seq;
	bool hold_lost; /* that was the record of the held generation: nothing is held any more */
	/* behind all others: a record whose checksum is wrong, of a commit that was cut, or damaged since; 0: none */
	uint64_t torn_seq;
	/* content of the newest generation that the card cannot read: written in place, or in the log. lost_blk: the last one */
	uint64_t lost_home_blks, lost_log_blks, lost_blk;
	struct wear_ledger ledger; /* highest totals found */
};

enum {
	LOG_ANY_BASE = 1 << 0, /* do not compare the base with the records: release --accept log */
	/* the superblock is not on the card yet: do not search for records (shrink) */
	LOG_FRESH = 1 << 1,
	/* not back to the held generation, even if the newest record asks for that */
	LOG_NOT_BACK = 1 << 2,
	/* the newest record that is complete counts, whatever its payload: for log_verify beside a daemon */
	LOG_UNVERIFIED = 1 << 3,
	/* a record is rejected if the card cannot read it, or its descriptors (release --accept lost|base); otherwise that is -EIO */
	LOG_UNREADABLE = 1 << 4,
};
/* What to say about passed_seq, hold_lost and torn_seq; %llu: the number. */
#define LOG_PASSED                                                                                 \
	"record %llu of the log, or its descriptors, is damaged; what they said is known from other blocks"
#define LOG_HOLD_LOST                                                                              \
	"it was that of the held generation: nothing is held any more, and there is no way back to that"
#define LOG_TORN                                                                                                           \
	"record %llu, behind the newest one, is incomplete: its commit was cut off by a loss of power, or it was damaged " \
	"since; that commit is not there"
/* What to say about -EIO; %s: the device. */
#define LOG_CANNOT_BE_READ                                                                                                       \
	"%s: the records of the log cannot be read. If that stays so: cowctl release --accept lost takes the newest generation " \
	"that can be"

struct log_mark;

/* Opens a log. mark: NULL, or of a process that has died, from which this one takes over: the content of a record
 * that it calls sound is not read back. base and logcard may be the same and stay the caller's. Writes nothing, not even
 * for a virgin ring. Memory and blocks read are bounded for any content of the ring (scan.h); a
 * ring that needs more is BROKEN. Returns 0 also when BROKEN or FOREIGN: the report has the
 * state and the index is empty. Every writing call then returns -EUCLEAN until log_accept_base. */
int log_open(struct log **ret, struct card *base, struct card *logcard, const struct log_super *s,
	     unsigned flags, const struct log_mark *mark,
	     struct log_open_report *ret_report) MUST_CHECK;
/* For a signal handler: the current or the next log_open ends with -EINTR at its next read. */
void log_cancel_open(void);
/*
 * The log is on another device, and the file system on the base is neither the one that the log
 * was made for nor the one of its newest record. True only where no record could be compared
 * with the base: the log is empty or retired. A file system without uuid passes.
 */
bool log_of_another(const struct log *l, const struct log_open_report *rep,
		    const struct fsinfo *fs);
/* Makes the base the truth, whatever the log says: the next write opens an epoch that drops
 * everything in the log. */
void log_accept_base(struct log *l);
void log_close(struct log *l);
/* Takes what super_read found: the next log_prepare rewrites the bad copies. */
void log_mend_super(struct log *l, unsigned trouble);
/* The trouble that is not mended yet. */
unsigned log_super_trouble(const struct log *l);
/* For a log at rest: frees memory that the next commit allocates again. */
void log_relax(struct log *l);

const struct log_super *log_super(const struct log *l);
/* Identifies this log to any reader without revealing its ring uuid; zeroes before the first
 * attach. */
void log_public_id(const struct log *l, uint8_t ret[16]);
struct card *log_card(const struct log *l); /* the device of the ring: the base or another one */
/* The counters that the caller maintains (absorbed, punched, skipped): it adds to them before a
 * record. */
struct wear_ledger *log_ledger(struct log *l);
/* The totals as the next record would carry them, including everything that cowfs wrote so far. */
void log_totals(const struct log *l, struct wear_ledger *ret);
/* Finds the wear table in the ring and starts counting; reads a few dozen blocks. Idempotent;
 * log_prepare does it if it was not done. Returns no errors: a part that is not found starts
 * from zero and counts in ledger.table_losses. */
void log_wear_load(struct log *l);
/* NULL before that, or if out of memory. */
const struct wear_table *log_wear(const struct log *l);
/* Number of records from the tail to the newest: an attach must read them all. */
uint64_t log_chain_records(const struct log *l);
const struct log_record *log_newest(const struct log *l);
/* The next write begins with an open record. */
bool log_wants_open(const struct log *l);
/* Of a pending superblock: the superblock of the file system on the base has the tags. If not,
 * the file system is as before the shrink. */
bool log_shrink_committed(const struct log *l);
/* The newest record is an empty one of this type with these flags, nothing newer was rejected,
 * and both copies of the superblock are good. */
bool log_rests(const struct log *l, enum record_type type, uint32_t flags);
/* A reference to the index of committed blocks that are not checkpointed. */
struct log_index *log_index_of(struct log *l);

/* With lag: a reference to the index of the previous generation, which recovery may still
 * choose; NULL if there is no other image. Base and ring keep the blocks of this index until the
 * next record. */
struct log_index *log_older_index(const struct log *l);
/* With lag: may recovery choose a generation that log_older_index does not return, because this session
 * has committed nothing yet? */
bool log_older_unknown(const struct log *l);
/* With lag: may recovery of a candidate read back block blk, because it was written in place for
 * that candidate? Returns for how many blocks from blk on (at most max_blks, at least 1) the
 * answer is the same. */
uint64_t log_held_run(const struct log *l, uint64_t blk, uint64_t max_blks, bool *ret_held);

/* A generation that is held (hold.c): it stays complete, and nothing is written home meanwhile. */
struct log_hold {
	uint64_t seq, generation, time_s;
	enum commit_cause cause;
	bool back;	/* the next log_open goes back to it */
	bool trial;	/* the newest generation is on trial */
	unsigned boots; /* how many boots may still try it */
};
bool log_holds(const struct log *l, struct log_hold *ret); /* ret may be NULL */
/* A reference to the index of its generation; NULL: none is held. */
struct log_index *log_hold_index(const struct log *l);

/* Reads and compares every live payload, descriptor and manifest block; for `cowctl check`.
 * say() gets the block and one line per finding; *ret_bad counts them. */
int log_verify(struct log *l, void (*say)(void *ctx, uint64_t blk, const char *line), void *ctx,
	       uint64_t *ret_bad) MUST_CHECK;

/* ---- writing: the caller sets the card writable first ---- */

/* First write of a life: draws the ring uuid of a virgin superblock, voids the segment heads of
 * the ring, and opens an epoch where rule 3 requires it. Idempotent, and cheap when there is
 * nothing to do. */
int log_prepare(struct log *l) MUST_CHECK;

/* Writes an empty record, which carries the ledger. */
int log_note(struct log *l) MUST_CHECK;

/*
 * Writes a commit without blocks and holds its generation. -EEXIST: another one is held; -EBUSY: blocks
 * are spilled: a checkpoint must come first;
 * -ENOSPC: no room.
 */
int log_hold(struct log *l, struct log_index **ret_index) MUST_CHECK;
/* Ends the hold. -ENOENT: there is none. After any other error log_holds says whether it has ended: the record is durable before
 * the superblock is written. */
int log_release(struct log *l) MUST_CHECK;
/*
 * on: from the next log_open on the held generation is the newest one, and is no longer held. This log
 * goes on as before; what it commits is lost, too. off: takes that back. The log that was opened after it
 * makes it final with its first record. -ENOENT: none is held; -ENOSPC: no room for the record;
 * -EBADMSG: it is damaged, and nothing was written.
 */
int log_go_back(struct log *l, bool on) MUST_CHECK;
/* What log_go_back and log_try order is as h says. Errors as log_go_back. */
int log_put_order(struct log *l, const struct log_hold *h) MUST_CHECK;
/* An initramfs (a CRC of its name) is on trial: boots as in log_super. Writes the superblock. */
int log_set_image(struct log *l, uint32_t image, uint8_t boots) MUST_CHECK;
/* Those of log_super: the time of a generation that is imported, or (one is held) on trial. Writes the superblock. */
int log_set_imported(struct log *l, uint64_t imported_s, uint64_t offered_s) MUST_CHECK;
/* The newest generation, and all that follow while this one is held, are on trial for so many boots (at
 * most RECORD_BOOTS_MAX), which whoever boots them counts. The same record ends an order to go back.
 * Errors as log_go_back. */
int log_try(struct log *l, unsigned boots) MUST_CHECK;

/* Largest payload, in blocks, that a commit could put into the ring now / after a checkpoint. */
uint64_t log_room_blks(const struct log *l);
uint64_t log_capacity_blks(const struct log *l);
uint64_t super_capacity_blks(const struct log_super *s);
/* The smallest device for it: all but copy B has its place, and that the last block. */
uint64_t super_least_bytes(const struct log_super *s);
/* Blocks of metadata in the ring for a commit of this shape. */
uint64_t log_meta_blks(const struct log *l, uint64_t logged_blks, uint64_t direct_blks,
		       uint64_t extents);

/* A commit: begin, any number of adds, then end. Any error poisons the attempt: call log_abort.
 * A call out of order breaks a rule: -ENOTRECOVERABLE. */
int log_begin(struct log *l) MUST_CHECK;
/* Appends payload of consecutive blocks. data aligned; at most 1 MiB. */
int log_add_logged(struct log *l, uint64_t blk, uint64_t blks, const void *data) MUST_CHECK;
int log_add_zero(struct log *l, uint64_t blk, uint64_t blks) MUST_CHECK;
/* Writes payload that the ring cannot hold to blocks [to_blk, to_blk + blks) of the volume. They
 * must be free in the committed and in the sealed file system, and must not be direct targets.
 * Not allowed while an older spill exists: a checkpoint and its tail record must come first. */
int log_add_spilled(struct log *l, uint64_t blk, uint64_t blks, uint64_t to_blk,
		    const void *data) MUST_CHECK;
/* Blocks that are free in both file systems hold payload of the newest generation, until a durable tail record marks it as checkpointed. Before that nothing may be
 * written in place (R10). */
bool log_spilled(const struct log *l);
/* Call before writing blocks in place or as a spill: do the rules of the log allow it?
 * -ENOTRECOVERABLE: no (base/invariant.h), and the blocks must not be written. */
int log_may_write(const struct log *l, uint64_t blk, uint64_t blks) MUST_CHECK;
/* Notes blocks that the caller has written in place, or will write before log_end. */
int log_add_direct(struct log *l, uint64_t blk, uint64_t blks, const void *data) MUST_CHECK;
/* Behind log_begin: the payload begins in a fresh erase block, if need_blks have room from there on and the
 * card, which keeps open_units open, has closed that of the newest record: the attempt writes in place to this
 * number of units, or another session wrote the record. */
void log_begin_fresh(struct log *l, uint64_t units, unsigned open_units, uint64_t need_blks);
/* Writes descriptor blocks; FLUSH of base and log; record; FLUSH. On 0 the generation is durable
 * and *ret_index is a new reference to the index that replaces the old one. */
int log_end(struct log *l, enum commit_cause cause, uint32_t flags,
	    struct log_index **ret_index) MUST_CHECK;
/* Which record the attempt under way ends with; seq 0: it has not come so far. For a process that
 * finds a record on the card after the death of this one. */
struct log_mark {
	_Atomic uint64_t epoch, seq;
	_Atomic uint64_t newest; /* seq of the newest commit that is durable; 0: none yet */
	/* of the last record that this log has written, or tried to; or the highest that it found */
	_Atomic uint64_t last_epoch, last_seq;
	/* the newest record whose content was read back at open, or is durable since; seq 0: none */
	_Atomic uint64_t sound_epoch, sound_seq;
};
/* From now on log_begin, log_end and every record note it there. NULL: nowhere. The caller clears it when the content
 * to commit changes. */
void log_set_mark(struct log *l, struct log_mark *to);
/* Is the newest record one that the process before cannot know, so that another session wrote it? */
bool log_is_beyond(const struct log *l, const struct log_mark *mark);
/* Is the newest record the one that was noted? */
bool log_reached(const struct log *l, const struct log_mark *mark);
/* Makes what was read at open durable, so that it may be relied on. */
int log_settle(struct log *l) MUST_CHECK;
/* Call after an error. The attempt is dead, the next write opens an epoch (rule 3), and no block
 * counts as same (rule 8). */
void log_abort(struct log *l);
bool log_doubt(const struct log *l); /* an attempt failed since the last good commit */

/* Callbacks that make a checkpoint cheaper. Each may be NULL. */
struct log_content {
	/* Supplies logged content from RAM, so that the log need not be read for it. Fills all
	 * of buf, or returns false. The content is compared with the CRCs of the log; if it
	 * differs, the log is read. */
	bool (*read)(void *ctx, uint64_t blk, uint64_t blks, void *buf);
	void *ctx;
	/* Shall the write that ends before end_blk continue, with zeros, to next_blk, where
	 * next_blks follow? Only if no generation that recovery may choose uses a block of the
	 * gap. written_blks: blocks in this write so far. */
	bool (*bridge)(void *ctx, uint64_t end_blk, uint64_t next_blk, uint64_t written_blks,
		       uint64_t next_blks);
	void *bridge_ctx;
	/* Will the caller write to this free block of the volume, behind the checkpoint? NULL: to none. */
	bool (*writes)(void *ctx, uint64_t blk);
	void *writes_ctx;
	/* Neither RAM nor the log gives the content of this block, which is damaged there: may zeroes take its place? NULL: no. */
	bool (*give_up)(void *ctx, uint64_t blk);
	void *give_up_ctx;
	/* Asked when every block of a unit (unit_bytes of the disk) is written home and others are
	 * left: shall the checkpoint stop here? */
	bool (*stop)(void *ctx);
	void *stop_ctx;
	uint64_t unit_bytes;
	/* Behind writes to so many other units the card has closed that of the ring: then the tail record begins
	 * an erase block. 0: not known, it follows the newest record. */
	unsigned open_units;
	bool unguards; /* log_unguard follows the tail record */
};

/* Writes the checkpoint-begin record, then the home blocks in order (the unit of the superblock last, if the
 * guard is taken off behind the tail record, and the card keeps two units open), then FLUSH. The ring is not
 * reusable before log_put_tail. content and progress may be NULL; a non-zero return of progress
 * stops (-ECANCELED). *ret_index: new (empty) index. -EINTR: content->stop has stopped it. Nothing
 * has failed, and the index stays. The log remembers the blocks that are home and durable: the next
 * checkpoint does not write them unless a commit has replaced them. */
int log_checkpoint(struct log *l, const struct log_content *content,
		   int (*progress)(void *ctx, uint64_t done_blks, uint64_t total_blks), void *ctx,
		   struct log_index **ret_index) MUST_CHECK;
/* Did the last checkpoint fail because the log's copy of a block cannot be read? */
bool log_lost(const struct log *l, uint64_t *ret_blk);
/*
 * The same for the ring of a shrink. Tags in the superblock of the file system on the base mark
 * the moment of the commit; a superblock without tags is written last. before_last() runs when
 * everything else is written home and durable; its writes are flushed when it returns. The log
 * is unusable after that.
 */
int log_checkpoint_shrink(struct log *l,
			  int (*progress)(void *ctx, uint64_t done_blks, uint64_t total_blks),
			  void *ctx, int (*before_last)(void *ctx), void *last_ctx) MUST_CHECK;
/* needed: write no record while no process can read the metadata of the file system on the base
 * (-EOWNERDEAD). Otherwise the record knows only its superblock. The default is false. */
void log_need_reader(struct log *l, bool needed);
/* Writes an empty record that carries the new tail (type TAIL or RETIRED). Before the call, the
 * caller makes sure that no reader uses an older index (view_set_index). */
int log_put_tail(struct log *l, enum record_type type, uint32_t flags,
		 enum commit_cause cause) MUST_CHECK;

/* Everything is home, and the newest record says so, but the superblock of the file system on the
 * base still has the guard (docs/FORMAT.md, "The guard"), or a cut has left garbage there. */
bool log_guarded(const struct log *l);
/* Ends that: writes the superblock, FLUSH. Does nothing in any other state. */
int log_unguard(struct log *l) MUST_CHECK;

/* A part of the ring for measurements: what is written there may have any content. */
struct log_scratch {
	uint64_t off_bytes, bytes; /* on the device of the ring; whole erase blocks */
	uint32_t first_seg, segs;
};
/*
 * Finds the largest part of the ring that no generation needs, and writes a few records so that a
 * cut at any moment of the measurement leaves the log as it is. If enough_bytes are free, the
 * records stay where they are. -EBUSY: blocks exist only in the log; -ENOSPC: there is no room.
 * Until log_scratch_end nothing else of this log may be called. Writes to the room go through the
 * card, whose account has them.
 */
int log_scratch_begin(struct log *l, uint64_t enough_bytes, struct log_scratch *ret) MUST_CHECK;
/* Makes the room a free part of the ring again, and writes a record with what was written there. */
int log_scratch_end(struct log *l, const struct log_scratch *s, enum record_type type,
		    uint32_t flags) MUST_CHECK;

/* Is the newest record on the card still the one of this log, with none of another session behind
 * it, and the base unchanged? -ESTALE if not (card swapped, foreign change, a hibernated system that
 * is resumed too late). Not while an attempt is under way. After a failed one its record may be there
 * or not. Reads a few blocks, but up to a segment
 * before the first commit of a session. */
int log_recheck(struct log *l) MUST_CHECK;
/*
 * Call after log_recheck, before card_back of a card that was away: writes without a FLUSH may be lost or torn, and count
 * as that. Writes nothing. With lag it reads the log as log_open does. -ESTALE: the card has lost a part of the newest
 * generation, which it had acknowledged; errors of reads.
 */
int log_lost_writes(struct log *l) MUST_CHECK;
/* Translates the error of a read through the log: -EBADMSG and -EUCLEAN (a file system that looks
 * damaged) become -ESTALE if the card was swapped or changed elsewhere. Other errors are returned
 * unchanged. */
int log_read_error(struct log *l, int error) MUST_CHECK;

#endif
