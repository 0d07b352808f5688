/* SPDX-License-Identifier: MIT */
/* Inner state of a volume: private to volume/. */
#ifndef COWFS_VOLUME_PRIVATE_H
#define COWFS_VOLUME_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "volume/monitor.h"
#include "volume/volume.h"

/* One caller of volume_run; lives on its stack. */
struct ticket {
	const struct volume_request *rq;
	struct volume_result *res;
	bool done;
	struct ticket *next;
};

/* Of a volume: from one to the next, by volume_start and volume_stop, and never back. One that cannot be started, or
 * was never, is closed as it is. */
enum volume_life {
	VOLUME_OPENED,
	VOLUME_RUNNING,
	VOLUME_STOPPING, /* no new jobs; those that are queued are done */
	VOLUME_STOPPED,	 /* the commit thread has ended */
};

struct volume {
	/* fixed after volume_open */
	struct card *base, *log_card; /* may be the same */
	struct ram_store *store;
	struct view *view;
	struct rewrites *rewrites; /* NULL: no memory for it */
	struct monitor *monitor;
	struct log *log; /* commit thread only, once it runs */
	struct log_open_report opened;
	struct fsinfo fs;
	char name[64], device[128], log_device[128], loop_path[32];
	uint64_t volume_blks, attached_s;
	int loop_fd;
	dev_t loop_rdev;
	int proc_dirfd, fuse_dirfd;
	uint64_t unfrozen_ns;
	void (*frozen)(void *ctx, int mount_fd);
	void *frozen_ctx;
	struct profile_choice choice;
	const struct flash_profile *profile;	/* what commits are planned by; NULL: by nothing */
	const struct flash_profile *price_by;	/* what a dry run is priced by; NULL: nothing */
	struct card_counters kernel_at_open[2]; /* base, log device */
	bool have_kernel;

	pthread_t thread;
	_Atomic enum volume_life life;

	/* lock: the queue and everything below it. Held for moments, never across I/O. */
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct ticket *queue;
	bool busy; /* with a job: in RUNNING and STOPPING, see enum commit_stage */
	struct {
		struct ticket t; /* queued while not done */
		struct volume_request rq;
		struct volume_result res;
	} own;			   /* the commit that nobody waits for */
	struct volume_result last; /* last commit */
	struct wear_ledger totals;
	struct wear_table *wear; /* copy for others; NULL: none yet */
	uint64_t wear_stamp;
	struct {
		uint64_t bytes; /* most that were seen */
		uint64_t since_s, noticed_s, agreed_s;
	} foreign;
	uint8_t log_id[16];
	uint64_t newest_seq, newest_s, live_blks, room_blks, capacity_blks;
	unsigned super_trouble;
	char alarm[400];

	_Atomic bool discard_armed;
	struct {
		_Atomic int job, phase;
		_Atomic uint64_t done_blks, total_blks, start_ns;
	} progress;

	/* commit thread only */
	bool sealed; /* from within the freeze on, before the stage is: so a freeze that failed after it is known */
	struct card *lent;	      /* room that the log is lent; NULL: none */
	struct view_counters counted; /* already in the ledger */
	uint64_t foreign_counted;     /* the same */
	/* since then it could not be frozen, at so many attempts; 0: it could */
	uint64_t thawed_since_ns;
	unsigned thawed_times;
	bool cure;		      /* the next freeze may end what is in its way */
	uint64_t committed_room_blks; /* volume_room_blks of the newest generation */
	uint64_t differed; /* under pressure, see commit_options: many commits are one stream */
};

/* commit_thread.c, all in the commit thread */
void volume_do(struct volume *v, const struct volume_request *rq, struct volume_result *res);
/* Copies what the status shows of the log. */
void volume_publish_log(struct volume *v);

/* account.c: what cowfs did to the card, and what others say of that */
void account_card_status(struct volume *v, struct volume_status *s);
void account_foreign_text(const struct volume_status *s, char *buf, size_t size_bytes);
/* Commit thread, while it writes nothing: compares, and puts what others wrote into the ledger. */
void account_check(struct volume *v);
/* commit thread, lock held: the table, for those who ask */
void account_copy_wear(struct volume *v);

/* ---- state.c, any thread ---- */

/* Lock held. */
void volume_enqueue(struct volume *v, struct ticket *t);
/* Asks for a commit without waiting for it; false if there is a job already. */
bool volume_ask_commit(struct volume *v, enum commit_cause cause);
/* Sets the newest alarm ("" takes it away) and says it. */
void volume_alarm(struct volume *v, const char *fmt, ...) PRINTF(2, 3);
/* Of so many free bytes, the blocks that a spill can have. */
uint64_t volume_free_blks(const struct fsinfo *fs, uint64_t free_bytes);
/* What a commit over this committed file system has room for: the log, and blocks that are free in
 * it. Each dirty block takes at most one of these, because a newly allocated one is written in
 * place. */
uint64_t volume_room_blks(const struct volume *v, const struct fsinfo *fs);

#endif
