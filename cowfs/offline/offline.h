/* SPDX-License-Identifier: MIT */
/*
 * Operations on a card that no daemon serves. All of them block, and none prints. They return 0,
 * or -errno with *fail filled; after an error *ret is undefined. log_device NULL: the log lies on
 * device itself.
 */
#ifndef COWFS_OFFLINE_OFFLINE_H
#define COWFS_OFFLINE_OFFLINE_H

#include "commit/shrink.h"
#include "fs/extents.h"
#include "fs/fsinfo.h"
#include "wire/failure.h"
#include "wire/rundir.h"

/* ---- card_and_log.c: the first steps of every operation ---- */

struct offline {
	const char *device, *log_device; /* caller-owned */
	struct card *base, *log_card;	 /* the same card without a log device */
	struct fsinfo fs;
	struct log_super super;
	unsigned trouble;
	struct log *log;
	unsigned log_flags; /* for log_open; set these before offline_open_log: */
	struct log_open_report report;
	char attached[RUNDIR_NAME_BYTES]; /* name of the daemon that uses it, "" if none */
};

/*
 * Opens the cards, and detects the file system. flags of blockdev.h. erase_block_bytes is that of
 * the card that holds the log; 0: as the card reports. Call offline_close also after an error.
 */
int offline_open(struct offline *f, const char *device, const char *log_device, unsigned flags,
		 uint32_t erase_block_bytes, struct failure *fail) MUST_CHECK;
/* For a plan, of a device that need not be claimed: what but a mount uses it? */
int offline_check_use(const struct offline *f, struct failure *fail) MUST_CHECK;
/* super_find, and does it fit these cards? */
int offline_find_log(struct offline *f, struct failure *fail) MUST_CHECK;
/* The same, and log_open. */
int offline_open_log(struct offline *f, struct failure *fail) MUST_CHECK;
/*
 * The end of an operation that returned r: offline_close, and the result. If a card has gone meanwhile, *fail says that, what is on
 * it (now; nothing written: that), and what to do.
 */
int offline_end(struct offline *f, int r, const char *now, struct failure *fail) MUST_CHECK;
/* Of a boxed child (base/boxed.h). */
int offline_cannot_read(const char *name, int error, struct failure *fail);
/* After -ERANGE of super_find. */
int offline_explain_small(const struct offline *f, struct failure *fail);
/* After log_of_another. */
int offline_explain_another(const struct offline *f, struct failure *fail);
void offline_close(struct offline *f);
/* After writes that returned e: the card is read-only again. Returns the first error. */
int offline_lock(struct card *c, int e) MUST_CHECK;
/* Bytes written to both cards since they were opened. */
uint64_t offline_written_bytes(const struct offline *f);
/* Largest file system that leaves room for the log on the device, 0 if there is none. */
uint64_t offline_room_for_fs(const struct offline *f, uint64_t log_bytes);

/* ---- format.c: an empty log ---- */

/* Enough for a file system all of whose changes may go through the log: requests have full size. */
#define FORMAT_WHOLE_LOG_BYTES (160 * MIB)

enum format_over {
	FORMAT_OVER_NOTHING,
	FORMAT_OVER_OLD_LOG, /* without the only copy of any block */
	FORMAT_OVER_ALL,     /* also over signatures of other formats */
};

/* For a signal handler of the caller: where a shrink is, and how to stop it before its commit. */
struct format_stop {
	_Atomic bool committing; /* too late, and safe against power cuts */
	_Atomic bool wanted;	 /* set it, and end the program */
	_Atomic pid_t program;	 /* 0: none runs */
};

struct format_options {
	const char *device, *log_device;
	uint64_t log_bytes;	    /* 0: the default */
	uint32_t erase_block_bytes; /* 0: what the card reports */
	uint8_t lag;
	enum format_over over;
	/*
	 * Make the file system smaller if there is no room; only ext2/3/4, only without a log
	 * device. Signals and PATH: see shrink_tools.h
	 */
	bool shrink;
	struct format_stop *stop; /* NULL: none, and SIGINT is ignored */
	/* only plan: writes nothing, and the device may be in use */
	bool dry_run;
	/* upper limit of the journal of a smaller file system; 0: 16 MiB */
	uint64_t journal_bytes;
	commit_progress *progress; /* of a shrink; NULL: none */
	void *progress_ctx;
};

struct format_report {
	struct log_super super;		  /* as written */
	struct fsinfo fs;		  /* as found */
	bool has_log;			  /* which can be attached; with an error */
	char attached[RUNDIR_NAME_BYTES]; /* as which volume; "": not */
	bool shrunk; /* the file system was made smaller, or an interrupted shrink was completed */
	struct shrink_report shrink; /* valid if shrunk */
	uint64_t written_bytes;
};

/* -ENOSPC: no room, which shrink makes in a file system that can_shrink. *ret is valid also then. */
int offline_format(const struct format_options *opt, struct format_report *ret,
		   struct failure *fail) MUST_CHECK;

/* After super_find: blocks that only the log has. Opens it; 0: also of another device, or unreadable. */
uint64_t offline_live_blks(struct offline *f);

/* The size of the log for f->fs where nobody names one; 0: that of super_plan. */
uint64_t offline_default_log_bytes(const struct offline *f);

/* ---- clone.c: copies a volume to another card ---- */

struct clone_target {
	uint64_t bytes;
	char model[64], identity[64]; /* as blockdev_model and blockdev_identity */
	char holds[1200];	      /* what will be lost: a log of cowfs, and signatures_find */
};

typedef bool clone_confirm_fn(void *ctx, const struct clone_target *t);

struct clone_options {
	const char *source; /* a device that nothing writes to meanwhile: a view's */
	const char *name;   /* of what it shows, for messages */
	const char *target; /* a block device or a file, as large as it is to be */
	/* NULL, or a writable part of a disk that the caller has claimed and asked for; target is its name */
	struct card *window;
	bool resumes; /* of a window: an earlier run may have written to it */
	struct format_options
		log;	/* of the new log: its size, the erase block of the target, and lag */
	bool no_verify; /* do not read the copy back */
	const struct log_past *past; /* of the card before; NULL: not known */
	/* may all of it be overwritten? Called once, while the target is claimed. */
	clone_confirm_fn *confirm;
	/* NULL, or: has the card of the source gone since the start? Asked after an error: reads of a view then fail like bad blocks */
	bool (*is_away)(void *ctx);
	void (*progress)(void *ctx, const char *phase, uint64_t done_bytes, uint64_t total_bytes);
	void *ctx;
};

struct clone_report {
	struct log_super super; /* of the new log */
	struct fsinfo fs;
	/* what was copied, what of it an interrupted run had copied, and all that was written */
	uint64_t used_bytes, there_bytes, written_bytes;
	/* blocks of the source that cannot be read, zeroes in the copy; the caller clears it, after an error too */
	struct extents lost;
};

/*
 * The target has all of the source's used blocks, or no file system: after an error the next call
 * goes on, or only the log is missing. -ECANCELED: confirm said no. -EIO: also a target that does not keep what is written.
 */
int offline_clone(const struct clone_options *opt, struct clone_report *ret,
		  struct failure *fail) MUST_CHECK;

/* Is there room behind the file system for such a log? to->fs: its kind. Writes nothing. */
int clone_plan(const struct offline *to, uint64_t fs_bytes, const struct format_options *log,
	       struct log_super *ret, struct failure *fail) MUST_CHECK;
/* capacity.c: writes blocks to all parts of it, and reads them. buf: a block. */
int clone_check_size(struct card *to, char *buf, struct failure *fail) MUST_CHECK;
/* Does the card keep what is written behind from_bytes, where nothing counts? Everything is as before then. -EIO: no. */
int offline_probe(struct card *c, uint64_t from_bytes, struct failure *fail) MUST_CHECK;
/* Are both copies of the superblock as they were written? */
int offline_read_back(struct card *c, const struct log_super *s, struct failure *fail) MUST_CHECK;

/* ---- recover.c: checkpoints the log, and retires it ---- */

enum recover_accept {
	RECOVER_ACCEPT_NOTHING,
	RECOVER_ACCEPT_BASE, /* for a log that is broken or set aside: discard its content */
	RECOVER_ACCEPT_LOG,  /* for a log that is set aside: overwrite the foreign changes */
	RECOVER_ACCEPT_LOST, /* zeroes for blocks whose copy in the log cannot be read */
};

struct recover_options {
	const char *device, *log_device;
	enum recover_accept accept;
	commit_progress *progress; /* NULL: none */
	void *progress_ctx;
};

struct recover_report {
	struct log_open_report log; /* as found */
	bool nothing_to_do;	    /* nothing was written */
	bool dropped;		    /* the content of the log was discarded */
	/* an interrupted shrink was completed; there is an empty log now */
	bool shrink_finished;
	uint64_t home_blks, written_bytes;
	bool lost;   /* some of them are zeroes, or an older superblock: RECOVER_ACCEPT_LOST */
	bool unsure; /* the file system may not be consistent */
	/* valid if unsure: the command that checks it, without the device; NULL: there is none */
	const char *check_with;
};

int offline_recover(const struct recover_options *opt, struct recover_report *ret,
		    struct failure *fail) MUST_CHECK;

/* ---- held.c: a generation that is held ---- */

enum held_what {
	HELD_LOOK,   /* writes nothing; also works beside a running daemon */
	HELD_ACCEPT, /* ends the hold */
	HELD_BACK,   /* the next attach goes back to it */
	HELD_STAY,   /* it does not */
};

struct held_report {
	bool held; /* as found: hold */
	struct log_hold hold;
	struct log_record newest; /* as found: what an undo leaves */
	uint64_t live_blks;	  /* in the log, of that */
	uint64_t written_bytes;
};

int offline_held(const char *device, const char *log_device, enum held_what what,
		 struct held_report *ret, struct failure *fail) MUST_CHECK;
enum trial_boot {
	TRIAL_NONE,    /* nothing is on trial; nothing was written */
	TRIAL_COUNTED, /* this boot is counted */
	TRIAL_OVER,    /* no boot was left: the next attach goes back */
};
/* A boot of what may be on trial: one record. *ret: hold.boots are left. */
int offline_count_boot(const char *device, const char *log_device, enum trial_boot *ret_what,
		       struct held_report *ret, struct failure *fail) MUST_CHECK;
/* An initramfs on trial. most: boots without cowctl accept, 0: only look. Returned: those of before,
 * and TRIAL_OVER if there are so many (nothing is written), TRIAL_NONE if one was accepted. */
struct trial_image {
	uint32_t image; /* CRC of its name */
	unsigned most;
	unsigned boots;
	enum trial_boot what;
};
int offline_count_image(const char *device, const char *log_device, struct trial_image *im,
			struct failure *fail) MUST_CHECK;
/* For an operation that would break a hold: an error if there is one. */
int offline_refuse_held(const struct offline *f, struct failure *fail) MUST_CHECK;

/* ---- check.c: reads only; also works beside a running daemon ---- */

#define CHECK_FINDINGS 32

enum check_verdict { CHECK_GOOD, CHECK_REPAIRABLE, CHECK_BROKEN };

struct check_report {
	const char *device, *log_device; /* caller-owned; equal without a log device */
	enum check_verdict verdict;
	/* name of the volume that uses it: the log may change while it is read */
	char attached[RUNDIR_NAME_BYTES];
	struct fsinfo fs;
	struct log_super super;
	unsigned trouble;      /* enum super_trouble */
	bool shrink_committed; /* a shrink was interrupted after its commit */
	bool guarded;	       /* docs/FORMAT.md, "The guard" */
	struct log_open_report log;
	uint64_t bad_blks; /* blocks whose content differs from what was written */
	unsigned findings; /* number of findings; may exceed those kept */
	char finding[CHECK_FINDINGS][200];
};

/* Returns 0 also for a broken log: the verdict reports it. */
int offline_check(const char *device, const char *log_device, struct check_report *ret,
		  struct failure *fail) MUST_CHECK;

/* ---- scrub.c: reads all used blocks; reads only, also beside a running daemon ---- */

struct scrub_options {
	const char *device, *log_device;
	const char *image; /* device of a view: which blocks are used? */
	/* The image is not needed any more. *ret_blk: where to go on. False: nothing is due, which is no error. */
	bool (*begin)(void *ctx, const struct log_super *super, uint64_t *ret_blk);
	/* An interrupted scrub may go on at blk: all before it was read, without an error. */
	void (*reached)(void *ctx, uint64_t blk, uint64_t done_bytes, uint64_t total_bytes);
	void *ctx;
};

struct scrub_report {
	uint64_t used_bytes, read_bytes; /* read_bytes: of this run */
	int log_error; /* 0, or why the log was not verified; -EBUSY: it changed all the time */
	/* blocks that could not be read at home at the first attempt, or not as they were written in the log. The caller
	 * clears it, also after an error. A newer copy of such a block may be in the log or in RAM. */
	struct extents bad;
};

/* Blocks for as long as it takes, with rests for what else uses the card. */
int offline_scrub(const struct scrub_options *opt, struct scrub_report *ret,
		  struct failure *fail) MUST_CHECK;

/* ---- view_card.c: serves the newest generation of a card, and reads only ---- */

struct offline_view {
	struct log_open_report log;
	uint64_t generation, time_s; /* of the image; 0: before the first commit */
	char fs_type[16];
};

enum offline_image {
	OFFLINE_NEXT,	     /* what the next attach finds */
	OFFLINE_NEWEST,	     /* the same, but an undo that is pending */
	OFFLINE_HELD,	     /* the generation that is held */
	OFFLINE_HELD_BESIDE, /* the same, while another view of the caller claims the card */
};

/*
 * Leaves a process without privileges behind that serves the image on fuse_fd, the /dev/fuse of a
 * mount, as a file. It claims the device, so that nothing is written there meanwhile, and ends with
 * the connection. fuse_fd stays the caller's, who closes it: as long as it is open, reads do not fail
 * if that process dies. Errors also where no whole generation can be shown: the log is broken or set
 * aside, or a journal is to be replayed.
 */
int offline_view(const char *device, const char *log_device, enum offline_image which, int fuse_fd,
		 struct offline_view *ret, struct failure *fail) MUST_CHECK;

/* ---- grow.c: the partition has grown ---- */

struct grow_report {
	bool nothing_to_do; /* nothing was written */
	struct log_super super;
	struct fsinfo fs;
	uint64_t old_bytes, bytes; /* of the device that holds the log */
	uint64_t room_bytes;	   /* largest file system beside a log of this size */
};

/* Writes copy B of the superblock of the log to the new end, then copy A. */
int offline_grow(const char *device, const char *log_device, struct grow_report *ret,
		 struct failure *fail) MUST_CHECK;

#endif
