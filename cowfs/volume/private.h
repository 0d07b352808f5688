/* SPDX-License-Identifier: MIT */
/* Internal state of a volume; private to volume/. */
#ifndef COWFS_VOLUME_PRIVATE_H
#define COWFS_VOLUME_PRIVATE_H

#include <stdatomic.h>

#include "base/thread.h"
#include "fs/extents.h"
#include "fs/replay.h"
#include "volume/away.h"
#include "volume/diverged.h"
#include "volume/monitor.h"
#include "volume/snapshots.h"
#include "volume/volume.h"

/* One caller of volume_run; lives on its stack. */
struct ticket {
	const struct volume_request *rq;
	struct volume_result *res;
	bool done;
	struct ticket *next;
};

/* A job that no caller waits for. */
struct own_job {
	struct ticket t; /* queued while not done */
	struct volume_request rq;
	struct volume_result res;
};

/* Life of a volume. volume_start and volume_stop move it from one state to the next, never back. A
 * volume that cannot be started, or was not started, is closed without further states. */
enum volume_life {
	VOLUME_OPENED,
	VOLUME_RUNNING,
	VOLUME_STOPPING, /* no new jobs; queued jobs are still done */
	VOLUME_STOPPED,	 /* the commit thread has ended */
};

/* In memory that lives as long as the RAM store, for a process that takes the volume over. */
struct volume_kept {
	/* of the attach */
	struct blockdev_kept card[2]; /* base, log device */
	bool bound_dirty;
	uint64_t attached_s;
	struct log_open_report opened;
	struct fsinfo fs;
	struct profile_choice choice;
	struct pressure_plan plan;
	struct pressure_requests requests; /* tags 0: not planned yet */
	uint64_t max_commit_ns;

	/* The commit under way: does what is sealed wait for a record (mark), or is it durable? */
	struct log_mark mark;
	_Atomic bool durable;
	/* free blocks of what is sealed may be in use by the live file system: RAM is not released */
	_Atomic bool keeps;
	_Atomic bool needs_sync; /* the next seal, or there can be none */
	_Atomic bool loose;	 /* replayed.c, I2 */
	_Atomic bool
		stays; /* what lies below the active generation is what a commit has left in RAM */

	_Atomic bool
		resumes; /* what is sealed waits for its commit: of this kind, and how it was sealed */
	enum fs_kind sealed_kind;
	struct quiesce_report sealed;

	_Atomic uint64_t room_blks; /* volume_room_blks of the newest generation */
	/* as in struct volume; volume_keep_state copies it */
	bool discard_armed;
	uint64_t inhibit_until_ns, committed_ns;
	struct volume_result last;
	char alarm[560];
	_Atomic bool diverged;
	_Atomic bool when_unmounted; /* idle.c */
	struct commit_times times;   /* of the monitor */
	_Atomic uint64_t lost;	     /* writes that failed and that no result has reported */
	_Atomic uint64_t lost_said;  /* those that results have reported, until they are accepted */
	/* the generation that an import makes, once it is on the card (single_replaced); 0: none */
	_Atomic uint64_t replaced_by;
	/* an import is under way: what holds again unless it is on the card (single_end_import) */
	_Atomic bool importing;
	bool armed_before, held_before;
	uint64_t replaced_before, imported_before;
};

struct volume {
	/* fixed after volume_open */
	struct volume_kept *kept; /* of this volume; shared */
	bool halted;
	struct extents renewed; /* renew.c: what the next commit writes again; commit thread only */
	uint64_t taken_over_ns; /* when; 0: it was not */

	struct card *base, *log_card; /* may be the same */
	struct ram_store *store;
	struct view *view;
	struct monitor *monitor;
	struct snapshots *snapshots;
	pthread_mutex_t scratch_lock; /* held for moments; nothing is taken inside */
	struct scratch *scratch;      /* NULL: none */
	struct log *log;	      /* commit thread only, once that runs */
	struct log_open_report opened;
	struct fsinfo fs;
	char name[64], device[128], log_device[128], loop_path[32];
	uint64_t volume_blks, attached_s;
	int loop_fd;
	dev_t loop_rdev;
	int proc_dirfd, meminfo_fd;
	bool always_checkpoint, idle_checkpoint, hold_previous;
	uint64_t quiet_ns;
	struct {
		bool weekly;
		/* the newest commit when a trim of the timer was refused, which stands until the next one;
		 * UINT64_MAX: by the card, until the next attach */
		_Atomic uint64_t refused_ns;
		char refused_why[320];
		struct volume_trim own; /* of the timer */
	} trim;
	struct profile_choice choice;
	const struct card_costs *profile;  /* used to plan commits; NULL: none */
	const struct card_costs *price_by; /* used to estimate a dry run; NULL: none */
	/* lock: */
	struct volume_kernel {
		struct card_counters at_open[2]; /* base, log device */
		struct card_counters
			before[2]; /* of the devices that they were before they were away */
		bool have[2];
	} kernel;

	pthread_t thread;
	_Atomic enum volume_life life;

	/* lock: the queue and everything below it. Held for moments, never across I/O. */
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct ticket *queue;
	bool busy;		   /* with a job; in RUNNING and STOPPING, see enum commit_stage */
	bool idling;		   /* the job makes way: a checkpoint of idle.c, or a trim */
	struct own_job own, idle;  /* a commit, and such a checkpoint */
	struct volume_result last; /* last commit */
	struct volume_log of_log;  /* volume_publish_log */
	struct wear_table *wear;   /* copy for other threads; NULL: none yet */
	uint64_t wear_stamp;
	struct volume_foreign foreign;
	char alarm[560];

	_Atomic bool discard_armed;
	_Atomic bool failed_below;     /* a failed commit left layers below the active one */
	_Atomic uint64_t committed_ns; /* end of the newest commit of this session; 0: none */
	_Atomic bool idle_failed;      /* a checkpoint of idle.c failed since then */
	struct {		       /* monitor thread only: reads of programs */
		uint64_t calls, since_ns;
	} reads;
	uint64_t slept_ns; /* monitor thread only: how long the system had slept at the last look */
	_Atomic bool slept; /* it has slept since, and the card was not looked at yet */
	struct {
		_Atomic int job, phase;
		_Atomic uint64_t done_blks, total_blks, start_ns;
	} progress;

	struct {
		uint64_t limit_ns;
		_Atomic uint64_t times;
		_Atomic bool commit_waits; /* a commit has failed because of it */
		char other[320];	   /* lock */
		_Atomic bool known;	   /* by the commit thread, which changes it */
		/* commit thread only */
		enum commit_cause cause; /* of that commit */
		bool says;		 /* the kernel log has it */
		uint64_t said_ns, refused_ns, rest_until_ns;
	} away;

	/* commit thread only */
	int (*examine)(struct volume *v); /* in place of log_recheck: the log is not open */
	struct view *committing;	  /* image of the scratch under commit; NULL: none */
	struct diverged *diverged; /* NULL: live changes are based on the committed generation */
	/* they are not, but the process that knew more has died: no block counts as free, and no single
	 * files are committed before the next commit of everything */
	bool diverged_lost;
	/* the commit under way: no sync ended before its seal, or what was synced is not on the device */
	bool unsynced;
	enum fs_kind
		live_kind; /* of the live file system at the last seal: mkfs may have made another one */
	struct generation *overlap; /* its holes stay; NULL: the commit under way releases all */
	/* replayed.c, I2: its holes are those blocks. NULL: there are none, or with kept->loose any free block may be one */
	struct generation *loose;
	struct replay *replay; /* the commit under way writes `clean`; NULL: what is sealed */
	struct blk_reader clean;
	/* how far the journal was replayed for the newest generation that is of the live file system; others are below it */
	struct replay_mark replayed;
	/* set at the seal, before the stage, so that what fails afterwards is known */
	bool sealed, seals_nothing;
	bool past_seal;		     /* in this job there was a seal */
	_Atomic uint64_t lost_known; /* writes that failed because RAM was full, already reported */
	struct view_counters counted; /* already in the ledger */
	uint64_t unmounted_ns;	      /* since then nothing is mounted (idle.c); 0: not looked at */
	uint64_t idle_reads;	      /* of programs, when the checkpoint of idle.c began */
	uint64_t foreign_counted;     /* likewise */
	uint64_t retried_counted;     /* likewise */
	uint64_t differed; /* under pressure, see commit_options: several commits form one stream */
};

/* ---- commit_thread.c, all in the commit thread ---- */

void volume_do(struct volume *v, const struct volume_request *rq, struct volume_result *res);
/* A commit_progress and a log_publish; v. */
void volume_on_progress(void *v, enum commit_phase phase, uint64_t done, uint64_t total);
void volume_on_publish(void *v, struct log_index *index);
/* Classifies what is sealed, writes it, and its record. *ret_index: a reference, NULL on failure. */
int volume_write_sealed(struct volume *v, const struct volume_request *rq, bool goes_on,
			struct volume_result *res, struct log_index **ret_index) MUST_CHECK;
/* Before a commit. 1: there is nothing to do, which is not an error. Else 0, or -errno. */
int volume_refuses(struct volume *v, const struct volume_request *rq, struct volume_result *res);
/* A reference to the scratch image; NULL: none. Any thread. */
struct scratch *volume_scratch(struct volume *v);
/* JOB_VIEW, in view_job.c */
int volume_do_view(struct volume *v, struct volume_image *im, struct volume_result *res);
/* ---- images.c ---- */

/* Gathers the blocks that no generation uses which recovery may choose, and that the live file system
 * does not read from the card. -ENODATA: that is not known; -EUCLEAN: the file system is damaged;
 * -EINTR: stop said so. */
int volume_free_everywhere(struct volume *v, struct extents *ret, bool (*stop)(void *ctx),
			   void *ctx) MUST_CHECK;
/* The newest generation. */
struct blk_reader volume_committed(struct volume *v);
/* Is this a file system whose volume can be committed? -EOPNOTSUPP: no; why names the device and the reason. */
int volume_check_fs(const struct volume *v, const struct fsinfo *fs, char *why,
		    size_t n) MUST_CHECK;

/* ---- seal.c ---- */

/* A seal that does not count: what was sealed stays a layer below the active one. */
void volume_unseal(struct volume *v);
/* Brings the file system to a consistent state and seals the view there (fs/quiesce.h): for a commit, for a view
 * of now, or not, for a dry run. */
enum seal_use { SEAL_COMMIT, SEAL_VIEW, SEAL_NOTHING };
int volume_quiesce(struct volume *v, enum seal_use use, enum commit_cause cause,
		   struct volume_result *res);

/* ---- home.c ---- */

/* The committed blocks that are not home. */
uint64_t home_waiting_blks(const struct volume *v);
/* For boot loaders, which read the bare card, and may write to it. A checkpoint keeps no limit of time. */
bool home_is_wanted(const struct volume *v);
/* What an earlier session, or a checkpoint that failed, left in the log. If that cannot be checkpointed, a commit is still
 * worth more than none. */
void home_first(struct volume *v, const struct volume_request *rq, struct volume_result *res);
/* Writes everything home. sealed: the blocks of the newest commit are still in RAM. stop: NULL, or whether it makes way now
 * (-EINTR). */
int home_write(struct volume *v, enum commit_cause cause, uint32_t flags, bool sealed,
	       bool (*stop)(void *ctx), struct volume_result *res) MUST_CHECK;
/* Such a stop; v: a commit must not wait for a checkpoint that nobody asked for. */
bool home_makes_way(void *v);
/* JOB_CHECKPOINT */
void home_idle(struct volume *v, const struct volume_request *rq, struct volume_result *res);
/* The system has slept: finds a card that was changed meanwhile. Nothing is written. */
void home_look_after_sleep(struct volume *v);
/* Cards are writable only during a job. What cannot be set read-only is tried again after the next one. */
void home_lock_cards(struct volume *v);

/* ---- single.c: a commit of single files ---- */

struct images;
/* JOB_COMMIT_SCRATCH */
int single_commit(struct volume *v, const struct volume_request *rq, struct volume_result *res);
/* The scratch image is about to be committed over im->committed. From now on the live volume and the card have only their
 * common base in common. */
int single_keep_live(struct volume *v, struct images *im, struct volume_result *res) MUST_CHECK;
/* Has the next attach a generation that was imported, and nothing of what is mounted? */
bool single_replaced(const struct volume *v);
/* Of an import that a process before had begun: it is on the card, or all is as it was. */
void single_end_import(struct volume *v);
/* Live changes are based on the newest generation again. */
void single_forget(struct volume *v);
/* The room that lets the monitor hold writes and start a commit before the next one cannot hold the dirty blocks. */
void single_note_room(struct volume *v, uint64_t room_blks);

/* ---- explain.c: what a job says about itself, in res->why ---- */

/* Sets res->error, and a sentence for it, if there is none yet. */
void explain_result(const struct volume *v, struct volume_result *res, int error);
/* Of a success that is not as it should be. */
void explain_remarks(struct volume_result *res);
/* With blocks only in the log, the file system at the home locations is a mixture. */
void explain_waiting(const struct volume *v, struct volume_result *res);
/* Writes that failed, after a commit or detach. */
void explain_lost(struct volume *v, int r, struct volume_result *res);
/* Writes that failed because RAM was full, and that no result has reported. */
uint64_t volume_lost_writes(const struct volume *v);

/* overlap.c: the commit under way keeps in RAM what overlap_note was called for. -ENOMEM, but not for all
 * blocks. */
int overlap_begin(struct volume *v) MUST_CHECK;
int overlap_note(struct volume *v, uint64_t blk, uint64_t blks) MUST_CHECK;
void overlap_forget(struct volume *v, uint64_t blk, uint64_t blks); /* it does not stay after all */
view_keeps overlap_keeps;
void overlap_end(struct volume *v);

/* replayed.c. After a seal at any moment: sets `replay`, if the sealed image has a journal that can be replayed. */
int replayed_begin(struct volume *v, struct quiesce_report *q) MUST_CHECK;
/* An image of now that a view has: writes into it what the replay changes. */
int replayed_in_view(struct volume *v, struct snapshot *s) MUST_CHECK;
/* As view_next_sealed, with the blocks that the replay writes. */
bool replayed_next(struct volume *v, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		   enum blk_state *state);
void replayed_committed(struct volume *v);
/* Neither on the card nor in RAM is anything of a seal without a sync. */
void replayed_forget(struct volume *v);
void replayed_end(struct volume *v);

/* Copies the state of the log that the status shows. */
void volume_publish_log(struct volume *v);

/* account.c: what cowfs wrote to the card, compared with the kernel's counters */
void account_get(struct volume *v, struct volume_account *ret);
void account_foreign_text(const struct volume_foreign *f, char *buf, size_t size_bytes);
/* Commit thread, while it writes nothing: compares the counters, and enters foreign changes into
 * the ledger. */
void account_check(struct volume *v);
/* Commit thread, lock held: copies the table for other threads. */
void account_copy_wear(struct volume *v);

/* Any thread: they change when a card comes back (away.h). */
void volume_copy_devices(struct volume *v, char device[128], char log_device[128]);

/* Lock held: what another process would need to know. */
void volume_keep_state(struct volume *v);

/* ---- state.c, any thread ---- */

/* Lock held. */
void volume_enqueue(struct volume *v, struct ticket *t);
/* Asks for a commit, or for a checkpoint that makes way, without waiting for it. False: a job is already
 * queued or running. */
bool volume_ask_commit(struct volume *v, enum commit_cause cause);
bool volume_ask_checkpoint(struct volume *v);
bool volume_ask_trim(struct volume *v);
/* Lock held. Is a job queued or running that does not make way? */
bool volume_works(const struct volume *v);
/* Is a job queued? Commit thread: another one than its own. Takes the lock. */
bool volume_job_waits(struct volume *v);
/* Sets the newest alarm ("" clears it) and logs it. */
void volume_alarm(struct volume *v, const char *fmt, ...) PRINTF(2, 3);
/* Of this number of free bytes, the blocks that a spill can use. */
uint64_t volume_free_blks(const struct fsinfo *fs, uint64_t free_bytes);
/* The room of a commit over this committed file system: the log, and the free blocks of the file
 * system. Each dirty block takes at most one of these, because a newly allocated block is written
 * in place. */
uint64_t volume_room_blks(const struct volume *v, const struct fsinfo *fs);

/* ---- idle.c: checkpoints while the card has nothing else to do ---- */

/* Monitor thread, about once a second: asks for one if it is time. */
void idle_look(struct volume *v, uint64_t now);
void idle_look_after_sleep(struct volume *v);
/* Commit thread: may one begin? */
bool idle_may_begin(struct volume *v);
/* Commit thread, v: must the one under way stop? */
bool idle_must_stop(void *v);

/* Is there a view, or the image of a commit of single files? */
bool volume_has_views(struct volume *v);

#define LOG_SET_ASIDE                                                                              \
	"the log is set aside because of foreign changes to the file system: nothing can be "      \
	"committed"
#define CARD_CHANGED "the card was swapped, or has foreign changes"

/* ---- trim.c: the card learns what is free ---- */

/* Monitor thread: by option, time and earlier trims. */
bool trim_is_due(struct volume *v);
/* held.c. Why the job is refused because of a generation that is held, or is not; 0: it is not. */
int held_check(struct volume *v, const struct volume_request *rq, char *why, size_t n) MUST_CHECK;
int held_begin(struct volume *v, struct volume_result *res) MUST_CHECK; /* holds the newest */
void held_price(const struct volume *v, struct commit_report *rep); /* adds that of held_begin */
int held_end(struct volume *v, struct volume_result *res) MUST_CHECK;
/* on_trial: ends a hold of a trial only, and the trial of the initramfs */
int held_accept(struct volume *v, bool on_trial, struct volume_result *res) MUST_CHECK;
/* The next attach goes back, or not. */
/*
 * hold = previous, before a commit: what is committed now becomes the generation that is held. Adds to *rep
 * what was written. If that fails, why says so, and the commit goes on.
 */
void held_previous(struct volume *v, const struct volume_request *rq, struct commit_report *rep,
		   char *why, size_t n);
/* Before a commit on trial. why: a remark. */
int held_try(struct volume *v, const struct volume_request *rq, struct volume_result *res,
	     char *why, size_t n) MUST_CHECK;
/* Would the commit, or what is imported, be refused whatever is held? Asked ahead of each change of a hold; res: the plan. */
bool held_too_large(struct volume *v, const struct volume_request *rq, struct volume_result *res);
/* Behind a commit or an import that has failed: what it began is taken back. held, was: of before. */
int held_put_back(struct volume *v, bool held, const struct log_hold *was) MUST_CHECK;
/* The same behind a commit on trial; res: says so. */
void held_take_back(struct volume *v, bool held, const struct log_hold *was, int error,
		    struct volume_result *res);
/* A commit was refused for the sake of such a generation (rep): ends the hold. False: it must stay. */
bool held_makes_way(struct volume *v, const struct commit_report *rep, char *why, size_t n);
int held_undo(struct volume *v, bool cancel, struct volume_result *res) MUST_CHECK;
/* Does it? Then what this session commits at its end would be lost: why says so. */
bool held_drops(struct volume *v, char *why, size_t n);
void held_explain(const struct volume *v, const struct commit_report *rep, char *why, size_t n);
/* Is less than a quarter of the log left beside the generation that is held? */
bool held_low(const struct volume *v);
void held_note_room(const struct volume_log *before, struct volume_log *now);
/* Half of the log is used: seconds until it is full at the present rate, if less than ten minutes. Else 0. */
uint64_t held_full_s(const struct volume *v, const struct volume_log *l);
/* A remark about that, or that a boot loader has to wait. */
void held_warn(const struct volume *v, enum commit_cause cause, char *why, size_t n);
/* JOB_TRIM. Returns res->error; -EINTR: made way, and continues from rq->trim. */
int trim_do(struct volume *v, const struct volume_request *rq, struct volume_result *res);
void trim_status(struct volume *v, struct volume_trim_status *ret);

/* ---- renew.c: a block that the card can hardly read ---- */

/* JOB_RENEW. Reads the block if RAM does not have it; nothing is written before the next commit. */
int renew_do(struct volume *v, uint64_t blk, char *why, size_t n);

#endif
