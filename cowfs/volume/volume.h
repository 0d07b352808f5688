/* SPDX-License-Identifier: MIT */
/*
 * A protected volume: card, log, merged view, and the commit thread that moves generations between
 * them. Ties the modules together for the daemon. It does not depend on FUSE or on the control
 * protocol.
 *
 * Threads: serving threads use volume_view(). Any thread may ask for a status or a commit. Lock
 * order: docs/design/serving.md.
 */
#ifndef COWFS_VOLUME_VOLUME_H
#define COWFS_VOLUME_VOLUME_H

#include <sys/types.h>

#include "base/msg.h"
#include "card/blockdev.h"
#include "commit/commit.h"
#include "export/bdi.h"
#include "fs/quiesce.h"
#include "export/snapshot.h"
#include "export/throttle.h"
#include "export/view.h"
#include "volume/card_profile.h"
#include "volume/pressure.h"
#include "volume/scratch.h"

struct volume;

struct volume_params {
	const char *device;	/* device of the protected partition */
	const char *log_device; /* NULL: the ring is on the device itself */
	const char *name;
	uint64_t ram_bytes;  /* limit of the RAM layer; 0: half of the memory */
	bool pressure_fails; /* at the limit, writes fail instead of waiting for a commit */
	/* after each commit, for what reads the bare card: a direct write of the next commit may
	 * take blocks that are free in this one only */
	bool always_checkpoint;
	/* a checkpoint while the card is idle and nothing was committed for quiet_ns; 0: 10 min */
	bool idle_checkpoint;
	uint64_t quiet_ns;
	bool trim_weekly;
	bool hold_previous; /* each commit of CAUSE_MANUAL holds the generation before it */
	/* the root of the system: an option that cannot be kept is no reason to leave it unprotected */
	bool running_root;
	uint64_t max_commit_ns; /* holds no more than can be committed in this time; 0: no limit */
	uint64_t
		away_limit_ns; /* how long requests wait for a card that is away; UINT64_MAX: for ever */
	/* how long a failed commit is retried while RAM is full; 0: 60 s */
	uint64_t full_ns;
	uint32_t erase_block_bytes;	      /* 0: as formatted */
	const struct profile_choice *profile; /* NULL: none; copied */
	/* What volume_prepare made; the volume takes it over. Not with `kept`. */
	struct volume_prepared *prepared;
	/* With a broker (base/broker.h) these three are not used: */
	int proc_dirfd; /* /proc */
	int meminfo_fd; /* /proc/meminfo; stays the caller's */
	/* NULL, or VOLUME_FDS descriptors of the process that had it and died. Opens nothing then: the volume goes on where that
	 * was. */
	const int *kept;
	/* Its processes die again and again: writes fail, and commits are made by hand only. */
	bool halted;
};

/*
 * What needs privileges before anything is read from the card: device, log_device, erase_block_bytes and
 * ram_bytes of *p. volume_open takes it over; volume_unprepare drops what it has not.
 */
struct volume_prepared {
	struct card *base, *log; /* log NULL: on the base */
	struct ram_store *store;
};
int volume_prepare(struct volume_prepared *ret, const struct volume_params *p, char *why,
		   size_t n) MUST_CHECK;
void volume_unprepare(struct volume_prepared *p);

/* For a process that takes the volume over: the descriptors that it needs, which stay the volume's. -1:
 * none. */
enum {
	VOLUME_FD_STORE = 0,
	VOLUME_FD_BASE = VOLUME_FD_STORE + RAM_STORE_FDS,
	VOLUME_FD_LOG = VOLUME_FD_BASE + BLOCKDEV_FDS,
	VOLUME_FDS = VOLUME_FD_LOG + BLOCKDEV_FDS
};

/*
 * Opens card and log (read-only: writes nothing), builds the view. On error why gets a sentence for
 * people. -ENOTBLK, -EBUSY, -ENOENT no log, -EBADMSG damaged superblock, -EPROTONOSUPPORT newer
 * format, -ERANGE card smaller than recorded in the log, -EINVAL RAM limit, -EOPNOTSUPP external
 * journal or MMP, or a limit of time that cannot be kept, -ENOSPC the RAM limit cannot hold the
 * journal and the possible dirty data above, -EUCLEAN broken log (opened only with check/release).
 */
int volume_open(struct volume **ret, const struct volume_params *p, char *why,
		size_t why_bytes) MUST_CHECK;
/* No request in flight, commit thread stopped. Uncommitted changes are lost. */
void volume_close(struct volume *v);

/* Memory of the caller that lives as long as the volume's RAM: as ram_store_share. */
int volume_share(struct volume *v, const char *name, size_t bytes, void **ret) MUST_CHECK;

struct view *volume_view(struct volume *v);
/* Every write must pass this throttle. The export stops it before volume_close. */
struct throttle *volume_throttle(struct volume *v);
/* Limits of the requests of the volume's loop device. */
struct pressure_requests volume_requests(const struct volume *v);
/* Call once the loop device exists; it is the device to sync. Starts the commit thread. */
int volume_start(struct volume *v, int loop_fd, dev_t loop_rdev, const char *loop_path) MUST_CHECK;
/* The loop device stays, but its owner had to reopen it. No job is running. */
void volume_set_loop_fd(struct volume *v, int loop_fd);
void volume_stop(struct volume *v); /* joins the commit thread; waits for a commit under way */

enum volume_job {
	JOB_NONE = 0,
	JOB_COMMIT = 1,
	JOB_DRY_RUN = 2,
	JOB_CHECKPOINT = 3, /* makes way for other jobs and for reads; the volume asks for it */
	JOB_DETACH = 4,
	JOB_VIEW = 5,
	JOB_COMMIT_SCRATCH = 6, /* commits the scratch image alone */
	JOB_TRIM = 9,		/* makes way for other jobs */
	JOB_ACCEPT = 10,	/* ends a hold */
	JOB_UNDO = 11,		/* the next attach goes back to the generation that is held */
	JOB_RENEW = 12,		/* the next commit writes a block again, also if it is the same */
};

/* Of JOB_TRIM, which continues from next_bytes. Zero-initialised. */
struct volume_trim {
	uint64_t next_bytes; /* 0: from the start */
	uint64_t bytes;	     /* trimmed so far */
};

/* An image for a view, made by JOB_VIEW. */
struct volume_image {
	bool writable; /* wanted: the scratch image, as committed; there is one at a time */
	bool replaces; /* wanted: for an import, which mounts it nowhere. With writable */
	bool held;     /* wanted: the generation that is held */
	bool now;      /* wanted: with all uncommitted changes, from a seal; false: as committed */
	/* result, on success. The caller's reference: volume_end_view. */
	struct snapshot *snapshot;   /* not writable */
	struct scratch *scratch;     /* writable. volume_end_scratch */
	uint64_t generation, time_s; /* as struct volume_view_status */
	char fs_type[16];
	/* replays: an ext whose journal the mount will replay; unsynced: of now, without what no sync has written */
	bool replays, unsynced;
};

struct volume_request {
	enum volume_job job;
	bool checkpoint; /* after the commit, checkpoint everything */
	bool hold;	 /* of JOB_COMMIT: and hold the generation. Implies checkpoint */
	/* of JOB_COMMIT, or an import: and put it on trial for so many boots. Holds the generation before, unless one is held */
	unsigned trial;
	/*
	 * of JOB_COMMIT_SCRATCH: not files but a generation from elsewhere, of this time. The next attach has
	 * it, and nothing else is committed before. 0: files
	 */
	uint64_t replaces_s;
	/* of JOB_UNDO: the next attach does not */
	bool cancel;
	bool on_trial; /* of JOB_ACCEPT: this boot is good, which ends no other hold */
	/* commit although the image has an alarm (ext4 error flag, bad checksum) or cannot be
	 * read */
	bool force;
	bool no_wait; /* -EBUSY instead of waiting for a job under way */
	/* commit: not begun if it would take longer than until then (-ETIME); 0: always begun */
	uint64_t until_ns;

	struct volume_image *image; /* for JOB_VIEW */
	struct volume_trim *trim;   /* for JOB_TRIM */
	bool (*stop)(void *ctx);    /* for JOB_TRIM, may be NULL: it makes way */
	void *stop_ctx;
	uint64_t renew_blk; /* for JOB_RENEW */
	enum commit_cause cause;
};

/* Result of a job. The status also keeps it as "last". */
struct volume_result {
	int error;     /* 0 or -errno */
	char why[480]; /* on error a sentence for people, or a remark */
	enum volume_job job;
	uint64_t generation; /* number of the newest commit on the card, from 1; 0: none */
	uint64_t record_seq; /* of the newest record, which checkpoints advance as well */
	uint64_t time_s;
	struct commit_report report;
	struct quiesce_report quiesce;
	bool not_begun; /* refused, or there was not enough time for it */
	bool again;	/* the card is away: it is made when that is back */
	bool withheld; /* the next start does not have what was to be committed, by an order: why names it */
	bool not_held; /* an error, but only of the hold: everything is committed */
	bool unread; /* the metadata reader died: nothing was checked, free blocks were not known */
};

/* msg_why: returns error. */
#define volume_why(res, error, ...) msg_why((res)->why, sizeof((res)->why), error, __VA_ARGS__)

struct volume_progress {
	enum volume_job job; /* JOB_NONE: idle */
	enum commit_phase phase;
	uint64_t done_blks, total_blks;
	uint64_t elapsed_ns;
};

/* Runs a job in the commit thread and waits for its end. Requests are served one after another.
 * Returns ret->error. JOB_DETACH: commits and checkpoints everything and writes the clean record
 * (or discards the uncommitted changes if discard is armed). The caller has made sure that nothing
 * is mounted. */
int volume_run(struct volume *v, const struct volume_request *rq, struct volume_result *ret);
/* Ends the view of a snapshot from JOB_VIEW, and drops the caller's reference. */
void volume_end_view(struct volume *v, struct snapshot *s);
/* The same for the scratch image. */
void volume_end_scratch(struct volume *v, struct scratch *s);
void volume_get_progress(const struct volume *v, struct volume_progress *ret); /* lock-free */
/* No commit of CAUSE_TIMER for this time (at most INHIBIT_MAX_S); 0 allows them again. Pressure still
 * commits. */
void volume_inhibit(struct volume *v, uint64_t ns);
void volume_arm_discard(struct volume *v, bool armed); /* the next detach commits nothing */
/* When the last mount ends, umount.cowfs detaches. If it ends in another way, everything is committed and written home. */
void volume_detach_later(struct volume *v);

#define VOLUME_VIEWS 8u

struct volume_views {
	unsigned n;
	struct volume_view_status {
		bool now, ended;
		uint64_t generation; /* the newest commit that it contains */
		uint64_t time_s;     /* of that commit; now: of the snapshot */
		uint64_t ram_bytes;  /* that only views hold */
	} view[VOLUME_VIEWS];
	uint64_t held_bytes; /* of all of them; RAM that two of them share counts once */
	char last_end[160];  /* why a view was ended; "": none was since the attach */
};

/* volume/pressure.h */
struct volume_pressure {
	enum pressure_level level;
	struct pressure_plan plan;
	bool fails;	/* pressure=fail */
	bool gave_up;	/* commits fail, and so do writes while RAM is full */
	bool refuses;	/* writes fail */
	bool too_large; /* the last commit was: what is dirty can only be saved from a view */
	uint64_t rate_bytes_per_s; /* for writes now; THROTTLE_OPEN: not paced */
	struct throttle_stats throttle;
	uint64_t commits; /* caused by pressure */
	uint64_t inhibit_left_ns;
	uint64_t commit_ns, max_commit_ns; /* that a commit would take now, and may; 0: no limit */
	uint64_t commit_bytes_per_s;
	bool too_slow; /* the card is: the limit is not kept */
};

/* A card that is away: docs/design/away.md. */
struct volume_away {
	bool base, log;			 /* which one is; log: a card of its own */
	bool given_up;			 /* away-limit is over */
	uint64_t seconds, limit_seconds; /* since when; UINT64_MAX: for ever */
	uint64_t times;			 /* since the attach, also this one */
	bool commit_waits;		 /* a commit was interrupted, and is made when it is back */
	char other[320]; /* the newest device that was not taken for it, and why; "" */
};

struct volume_trim_status {
	bool announced;	   /* the card takes discards */
	bool weekly;	   /* trim=weekly */
	char refused[320]; /* why the timer waits for the next commit or attach, or "" */
	uint64_t bytes;	   /* since attach; the ledger has the rest */
};

/* The newest generation, and the log that has it, as of the last job. */
struct volume_log {
	uint8_t id[16]; /* log_public_id */
	/* as in struct volume_result; newest_s: commit time, by the clock at that time */
	uint64_t generation, newest_seq, newest_s;
	enum commit_cause newest_cause; /* 0: its newest record is not that of the commit */
	bool holds;			/* a generation is held: hold */
	struct log_hold hold;
	/* less than a quarter of the log is left for commits beside it; of a status also: it is full soon */
	bool hold_low;
	struct {
		uint64_t ns, room_blks;
	} then[2];    /* while one is held: one to two minutes before, and the next such time */
	bool guarded; /* log_guarded */
	uint64_t live_blks, room_blks, capacity_blks;
	unsigned super_trouble;
	uint8_t image_boots;		/* of log_super */
	uint64_t imported_s, offered_s; /* likewise */
	struct wear_ledger totals;	/* committed and since */
};

/* What was written to the card since the attach: by cowfs, and by the kernel's counters. */
struct volume_account {
	uint64_t write_calls, written_bytes, flushes, writable_ns;
	bool have_kernel;
	struct card_counters kernel;
	struct volume_foreign {
		uint64_t
			bytes; /* kernel minus cowfs, the maximum seen; a value other than 0 is an alarm */
		/* last agreement of kernel and account before the first foreign change, and when that was
		 * noticed; 0: never */
		uint64_t since_s, noticed_s;
		uint64_t agreed_s; /* last comparison that agreed */
	} foreign;
};

struct volume_status {
	char name[64], device[128], log_device[128], loop[32], fs_type[16], identity[64];
	char mountpoint[128]; /* "" if not mounted */
	uint64_t volume_bytes, device_bytes,
		log_device_bytes; /* log: of a card of its own, else 0 */
	bool always_checkpoint;
	bool discard_armed, readonly; /* readonly: broken log, nothing will be committed */
	bool halted;		      /* see struct volume_params */
	uint64_t ram_used_bytes;
	struct volume_pressure pressure;
	struct volume_views views;
	struct volume_trim_status trim;
	struct volume_away away;
	struct volume_log log;
	/* the attach went back to this generation; 0: it did not */
	uint64_t back_generation, back_s;
	bool trial_over; /* because no boot had accepted what it left */
	/* Not committed. A block that was changed again since a failed or unfinished commit counts
	 * twice. */
	uint64_t dirty_blks, hole_blks;
	bool superblock_only; /* dirty is block 0, which has nothing of a file in any kind */
	uint64_t failed_blks; /* part of dirty_blks: left by a failed commit */
	enum log_state log_state_at_attach;
	bool base_changed, clone; /* found at attach, see log.h */
	uint64_t replaced_by;	  /* the imported generation that the next attach has; 0: none */
	unsigned lag;
	char profile[FLASH_ID_BYTES]; /* "none" */
	bool profile_guessed;
	bool profile_of_another; /* the one that was saved for this card: not used */
	bool profile_plans;	 /* false: it is only used to estimate a dry run */
	uint64_t attached_s;
	struct view_counters counters;
	struct volume_account account;
	struct volume_result last; /* last commit; job JOB_NONE if none yet */
	struct volume_progress progress;
	uint64_t lost_writes; /* that failed since the last accept, also in an earlier process */
	char alarm[560];      /* newest alarm, "" if none */
	uint64_t log_full_s;  /* held_full_s */
};

/* Wear of the card during its life with cowfs, as of the last job. */
struct volume_wear {
	char name[64], device[128], log_device[128], identity[64];
	uint64_t volume_bytes, device_bytes;
	unsigned eb_source;	  /* enum card_eb_source */
	enum log_state log_state; /* at attach */
	bool clone;		  /* likewise: the log was written on another card */
	uint64_t last_s;	  /* clock of the newest record, 0: none */
	struct wear_ledger ledger;
	bool have_table; /* false: not read yet, or out of memory */
	uint64_t stamp;	 /* changes with the table; parts with the same stamp belong together */
	struct wear_geometry geo;
	struct wear_part part;
	struct volume_account account;
};

/* first: the item at which the returned part of the table begins. Does not block on a commit. */
void volume_get_wear(struct volume *v, uint32_t first, struct volume_wear *ret);

/* A part of the list of uncommitted blocks: runs of blocks that RAM has as data, ascending.
 * Discarded blocks are not included. */
#define VOLUME_CHANGES_RUNS 512
struct volume_changes {
	uint64_t
		generation; /* that the runs are on top of; parts with different values do not belong together */
	uint64_t next_blk; /* where the next part begins; 0: this is the last one */
	uint32_t runs;
	struct {
		uint64_t blk, blks;
	} run[VOLUME_CHANGES_RUNS];
};

/* Returns the part from first_blk on. The work is bounded. It blocks writers and commits only while
 * it looks at one run, so the list changes meanwhile: each run was present when it was read. */
void volume_get_changes(struct volume *v, uint64_t first_blk, struct volume_changes *ret);

/* Never blocks on a commit: copies the known state. */
void volume_get_status(struct volume *v, struct volume_status *ret);

#endif
