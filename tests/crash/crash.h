/* SPDX-License-Identifier: MIT */
/*
 * The crash driver: log and commit on simulated cards, power cuts everywhere, and an oracle
 * that knows the content of every generation.
 *
 * A world is one card (or a card and a log card), the log on it, and a toy file system: an array
 * of blocks, each used, free or journal, with one of a few hundred contents. One world at a time.
 */
#ifndef COWFS_TESTS_CRASH_H
#define COWFS_TESTS_CRASH_H

#include <setjmp.h>

#include "sim/sim.h"
#include "commit/commit.h"
#include "log/log.h"
#include "rnd.h"

/* The toy's bitmap: always used, and its content changes whenever the use of a block does. */
#define BITMAP_BLK (super_kind == SUPER_BTRFS ? 16u : 0u)
/* never free, as in every file system */
#define IS_FIXED(blk) (!(blk) || (blk) == BITMAP_BLK)
extern enum super_kind { SUPER_EXT, SUPER_XFS, SUPER_BTRFS, SUPER_KINDS } super_kind;
enum { HOLD_SETTLED = 3 };
enum { MAX_BLKS = 640, TOY_BLKS = 96, MAX_TRIED = 12, CONTENTS = 512, MAX_PAST = 24 };
/* world.lie: number of acknowledged FLUSHes that are lost; this value: everything after the record
 * before the last one is lost */
enum { LIE_RECORDS = 1000 };

/* One generation. A block that is not USE_USED may hold anything. Content 0 is zeroes. */
struct image {
	uint8_t use[MAX_BLKS]; /* enum blk_use */
	uint16_t content[MAX_BLKS];
	uint32_t digest; /* of the tree, if there is one */
};

struct shape {
	unsigned blks;
	unsigned seg_blks;    /* 0: 16 */
	unsigned segs;	      /* 0: the allowed minimum */
	unsigned segs_per_eb; /* 0: 1 */
	bool external;	      /* the log on a card of its own */
	bool no_classifier;
	bool full;     /* all blocks used */
	bool marked;   /* metadata has a mark, and must not get into free blocks */
	bool heavy;    /* commits that the ring cannot hold */
	bool wide;     /* more images of each cut */
	bool deep;     /* all subsets of up to 12 writes in flight, instead of 6 */
	unsigned ext4; /* a real file system, of this kind; 0: the toy */
	unsigned lag;  /* as formatted */
	unsigned lie;  /* see world.lie */
	unsigned plan; /* commits are planned for card plan - 1 of source.c; 0: not planned */
};

/* a past generation, or an attempt at one, and the number of commits that had returned when it was
 * replaced */
struct past {
	struct image image;
	uint64_t commit;
};

/* the cards of a world, or of one image of it */
struct cards {
	struct card *base, *log; /* may be the same */
};

struct world {
	struct shape shape;
	struct cards c;
	struct log *log;
	struct log_index *index;
	struct log_open_report rep;
	/* of the newest record that is certainly durable, if the card is honest */
	struct wear_ledger acked;
	/* of the operation before that: even a card that lies has at least this */
	struct wear_ledger acked_before;
	/* if the last operation ended a session, all that was sent: the next attach finds it */
	bool ended;
	struct wear_ledger sent;

	struct image n;		       /* the last generation whose commit returned */
	struct image older;	       /* the previous generation */
	struct image tried[MAX_TRIED]; /* attempts since */
	unsigned n_tried;
	bool unconfirmed; /* n is of an attempt that failed, and no commit has ended well since it was found */
	struct image live;
	bool dirty[MAX_BLKS], hole[MAX_BLKS];
	struct commit_report bill;

	/* paths.c. While there is a view, its layers have what is dirty in the live image. */
	struct view *view;
	struct diverged *diverged;
	bool paths; /* the live image and its view are, for now, those of a commit of paths */

	/* lie.c */
	unsigned lie;
	bool record_written;
	size_t acked_pending[2];
	struct past past[MAX_PAST]; /* newest first */
	unsigned n_past;
	uint64_t commits; /* commits that returned */

	bool rotten; /* images may be broken, or answer with an error, but must not be wrong */

	/* loader.c */
	unsigned loader_blk; /* a boot loader writes there after each cut; 0: none does */
	bool loader_open;    /* the block may have been written since the last checkpoint */

	/* hold.c */
	enum { HOLD_NO, HOLD_YES, HOLD_MAYBE } hold;
	/* its last change failed, and no record came since: what was before may be found, also by a later session */
	bool hold_doubt;
	struct image held;
	struct image held_before;	/* in doubt: of the hold that had ended */
	bool has_before, back_before;	/* there is one; it had the order to go back */
	const struct image *held_found; /* in the image that is judged */
	/* the log is to go back when it is opened; MAYBE: it was, and its first record is due */
	enum { BACK_NO, BACK_YES, BACK_MAYBE } back;
	bool not_back;	   /* open it with LOG_NOT_BACK */
	struct image left; /* the newest generation before it went back */
	unsigned boots;	   /* of a trial, as struct log_hold */
	bool boots_open;   /* they are being changed */
	unsigned hold_age; /* commits since it began or ended, at most HOLD_SETTLED */

	/* cuts */
	bool mute;   /* no cuts now */
	bool armed;  /* an operation will fail */
	bool failed; /* it did */
	bool fault;  /* so the operation under way must fail */
	int expect;  /* an error that must come although nothing failed */
	enum { UNPLUG_BASE = 1, UNPLUG_LOG = 2, UNPLUG_BOTH = 3 } unplug; /* away.c: armed */
	bool loses;	       /* what was not flushed, then */
	bool returned;	       /* a card did, in this step */
	jmp_buf refused;       /* workload.c: a card that lies was refused */
	bool settled;	       /* what the log was opened with is durable */
	uint64_t unflushed[2]; /* number of writes, to log and base, when a job failed */
	uint64_t last;	       /* number of card operations at the last cut */
	uint64_t rnd;

	/* one of the images seen, drawn evenly, from which the run continues */
	struct cards kept;
	struct image kept_held, kept_n, kept_older; /* its content, and the previous generation */
	struct wear_ledger kept_acked;
	uint64_t kept_of;
};

/* position of the run: a failure prints it as its id */
struct position {
	const char *attack; /* NULL: a random workload */
	uint64_t seed, step, cut, variant;
	bool replay;
	struct {
		uint64_t seed, step, cut, variant;
	} want;
	const char *options; /* of the run, as part of an id */
};

struct totals {
	uint64_t cuts, images, is_old, is_new, is_older, commits, failed, too_big, checkpoints,
		recoveries, spills, fresh, fscks, attaches, wraps, faults, workloads, max_pending,
		paths, stopped, guarded, trims, holds, backs, returns, refusals;
	/* results of lies: commits lost, no valid generation, none that is complete */
	uint64_t lost[MAX_PAST + 2], mixed, broken;
};

extern struct position at;
extern struct totals total;
extern int verbose;
extern uint64_t thin; /* only one image of this number is tried */
enum { COLLATERAL_NO, COLLATERAL_RING, COLLATERAL_ALL };
extern int collateral, force_ext4; /* 1: always, -1: never */
extern int force_lag, force_lie;   /* for all workloads; -1: chosen by the workload */
extern bool force_away;		   /* instead of operations that fail */
extern bool measure;		   /* effects of lies are counted, not judged */

/* ---- world.c ---- */
uint64_t rnd_below(struct world *w, uint64_t n);
void fail(const char *fmt, ...) PRINTF(1, 2) __attribute__((noreturn));
void say(const char *fmt, ...) PRINTF(1, 2);

void world_new(struct world *w, const struct shape *s, uint64_t seed);
void world_free(struct world *w);
void world_open(struct world *w); /* attach: must find n or one of the tried, which becomes n */
void world_close(struct world *w);
/* Continues from the image that the cuts kept since the last call. false: there is none. */
bool world_crash(struct world *w);
/* Cuts the power now; fate as in sim_power_cycle. Then attaches. */
void world_cut(struct world *w, enum sim_fate (*fate)(void *arg, size_t i), void *arg);

/* changes of the live image */
void live_write(struct world *w, unsigned blk, unsigned content);
void live_punch(struct world *w, unsigned blk); /* zeroes without content */
void live_free(struct world *w, unsigned blk);
void live_dirty(struct world *w, unsigned blk); /* what it has is written again */
void live_revert(struct world *w);

/* Commits the live image; checks the outcome and all cuts within it. Errors of commit_run. */
int world_commit(struct world *w);
int world_commit_as(struct world *w, const struct commit_options *opt);
int world_checkpoint(struct world *w, enum record_type type, uint32_t flags);
/* Stops after this number of units, with -EINTR, if any is left; 0: after all. */
int world_checkpoint_units(struct world *w, enum record_type type, uint32_t flags, unsigned units);
/* Trims what no candidate uses, if that is known. */
void world_trim(struct world *w);
void world_fail_at(struct world *w, unsigned ops, uint64_t n, bool forever);
void world_disarm(struct world *w);
void check_flushed(struct world *w, const char *what, int r); /* of a job */
/* the base alone holds n, durably; guarded: but for the superblock */
void world_check_base(struct world *w, bool guarded);
uint64_t world_ops(const struct world *w);
uint64_t world_writes(const struct world *w);

/* Copies the volume as index and base show it into a static buffer. NULL: a read error, where that
 * is allowed. */
const uint8_t *volume_read(const struct world *w, const struct cards *c,
			   const struct log_index *ix);
/* First block used in the image that differs; -1: none. */
int image_differs(const struct image *im, const uint8_t *volume, unsigned blks);
const uint8_t *content_of(unsigned content);
extern const uint8_t mark[16]; /* in every sixth content, if the shape says so */
bool is_marked(const uint8_t *blk);

/* ---- source.c ---- */
struct commit_source source_of(struct world *w);
const struct card_costs *profile_of(const struct world *w); /* NULL: not planned */
/* For a checkpoint, some blocks of the live image: they may have changed since they were logged. */
bool content_at_hand(void *world, uint64_t blk, uint64_t blks, void *buf);

/* ---- paths.c ---- */
/* A commit of paths: change() sees the committed image as the live one. Errors as world_commit. The
 * live image must stay as it is. */
int world_commit_paths(struct world *w, void (*change)(struct world *w));
/* for world.c, without effect unless there is a view */
void paths_wrote(struct world *w, unsigned blk);
void paths_check(struct world *w, const char *when);
void paths_publish(struct world *w); /* the index of w is new */
void paths_forget(struct world *w);
/* around a commit of any kind */
int paths_seal(struct world *w);
void paths_committed(struct world *w, int result);

/* ---- hold.c ---- */
/* Without effect (-EEXIST, -ENOENT) unless there is none, or one. After going back the log is open
 * again, and the live image is that of the card. */
int world_hold(struct world *w);
int world_release(struct world *w);
int world_back(struct world *w);
/* The log was opened, and has this content. went_back: the session before had gone back, and had no durable record.
 * True: it went back, and n is what is held. */
bool hold_opened(struct world *w, bool went_back, const uint8_t *volume);
void hold_wrote(struct world *w); /* records were written */
void hold_sure(struct world *w);  /* and are durable */
/* Recovery chooses n; or what was left, before the first record behind it. */
void hold_no_tried(struct world *w);
/* Of an image: does it go back as it should? If so, opens its log without that. */
void hold_back_judged(struct world *w, const struct cards *c, const struct log_super *super,
		      struct log **l, struct log_open_report *rep);
int world_ask(struct world *w, bool back); /* to go back when it is opened */
int world_try(struct world *w);		   /* on trial, for a number of boots */
void hold_judged(struct world *w, const struct cards *c, const struct log *l,
		 const struct log_super *super);
void attack_hold(void);
void attack_hold_full(void);

/* ---- away.c ---- */
/* One card, or each at its n-th request from now, which fails; the other follows it if both do. They are there
 * again at world_disarm. */
void world_unplug_at(struct world *w, unsigned which, uint64_t n, bool lost);
void away_failed(struct world *w); /* a request did */
void away_return(struct world *w);
void attack_away(void);

/* ---- loader.c ---- */
/* The card of this image, before cowfs is there. volume: what an attach without that has shown. */
void loader_boots(struct world *w, const struct cards *c, const struct log_super *super,
		  const struct log_open_report *rep, const uint8_t *volume);
const uint8_t *loader_content(unsigned n);

/* ---- lie.c ---- */
void lie_start(struct world *w);		   /* new cards, or cards after a power cut */
void lie_wrote(struct world *w, const void *data); /* to the log card */
void lie_flushed(struct world *w);
void lie_remember(struct world *w);
void lie_forget(struct world *w);
/* The past image that the volume holds, and the number of returned commits that are lost with it.
 * NULL: none. */
const struct image *lie_find(const struct world *w, const uint8_t *volume, unsigned *ret_lost);

/* ---- ext4.c ---- */
enum { EXT4_KINDS = 5 };
void ext4_begin(struct world *w); /* n is a fresh file system */
void ext4_change(struct world *w);
void ext4_revert(struct world *w); /* the memory file is the live image */
const uint8_t *ext4_content(unsigned id);
void ext4_check(const struct image *im, const uint8_t *volume); /* e2fsck, and the tree */

/* ---- cut.c ---- */
void hook_cards(struct world *w); /* from now on every write and flush of them is a cut point */
void cut_here(struct world *w);	  /* tries images of a cut at this point */
/* attaches the result of a cut and asks the oracle; takes over the cards */
void judge(struct world *w, struct cards *c);
void cards_clone(struct cards *ret, const struct cards *c);
void cards_close(struct cards *c);
void cards_account_reset(struct cards *c);
/* Of a log that was opened: no counter went back. */
void ledger_check(const struct world *w, const struct log *l, const struct wear_ledger *old,
		  const struct wear_ledger *new);

/* ---- workload.c ---- */
void workload_run(uint64_t seed);

/* ---- attacks.c, attacks_fail.c ---- */
struct attack {
	const char *name, *what;
	void (*run)(void);
};
/* attacks.c, attacks_card.c, forge.c */
extern const struct attack attacks[], card_attacks[], forge_attacks[];
extern const unsigned n_attacks, n_card_attacks, n_forge_attacks;
extern uint64_t forgeries; /* their number */
/* Contents from FORGED on are those of forge.c; from SUPERS on, superblocks for BITMAP_BLK. */
enum { FORGED = 61000, SUPERS = FORGED - CONTENTS };
/* from here on: environment blocks of a boot loader */
enum { ENVS_N = 32, ENVS = SUPERS - ENVS_N };
unsigned super_content(unsigned content);
const uint8_t *forged_content(unsigned n);

#endif
