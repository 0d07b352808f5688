/* SPDX-License-Identifier: MIT */
#include "offline/offline.h"

#include <errno.h>
#include <string.h>

#include "card/blockdev.h"
#include "fs/fs_ops.h"

static int explain_broken(const struct offline *f, struct failure *fail)
{
	if (f->report.needs_older)
		return failure(fail, -EUCLEAN, "%s: %s; nothing was written", f->log_card->geo.path,
			       f->report.why);
	return failure(fail, -EUCLEAN,
		       "%s: the log is damaged (%s) and holds no complete generation; nothing was "
		       "written. Check the file system with its own checker, then '" COWCTL
		       " release "
		       "--accept base' takes it as it is",
		       f->log_card->geo.path, f->report.why[0] ? f->report.why : "no record");
}

static int explain_foreign(const struct offline *f, struct failure *fail)
{
	return failure(fail, -ESTALE,
		       "%s: %s, and its log holds blocks that are not checkpointed; nothing "
		       "was written. Decide: --accept base discards these blocks and keeps "
		       "the file system as it is, --accept log writes them over the foreign "
		       "changes",
		       f->base->geo.path, f->report.why);
}

static struct commit_options commit_options(const struct recover_options *opt)
{
	return (struct commit_options){ .cause = CAUSE_RECOVER,
					.progress = opt->progress,
					.progress_ctx = opt->progress_ctx };
}

static bool give_up(void *ctx, uint64_t blk)
{
	struct recover_report *rep = ctx;

	(void)blk;
	rep->lost = true;
	return true;
}

static int explain_home(const struct offline *f, int e, struct failure *fail)
{
	uint64_t blk;

	if (log_lost(f->log, &blk))
		return failure(
			fail, e,
			"%s: the copy of block %llu in the log cannot be read. '" COWCTL
			" scrub' names its file. "
			"--accept lost writes zeroes in its place; an attach serves all other blocks",
			f->log_card->geo.path, (unsigned long long)blk);
	return failure(fail, e,
		       "%s: %s. The log still holds everything: run it again once the card works",
		       f->base->geo.path, strerrordesc_np(-e));
}

static int bring_home(struct offline *f, const struct recover_options *opt,
		      struct recover_report *rep, struct failure *fail)
{
	const struct log_content lost = { .give_up = give_up, .give_up_ctx = rep };
	struct commit_options co = commit_options(opt);
	int e;

	if (opt->accept == RECOVER_ACCEPT_LOST)
		co.content = &lost;
	e = commit_checkpoint(f->log, f->base, &co, NULL, NULL, RECORD_RETIRED, &rep->home_blks);
	if (e < 0)
		return explain_home(f, e, fail);
	return 0;
}

static int forget_shrink(struct offline *f, struct failure *fail)
{
	int e = shrink_forget(f->base, &f->super);

	return e < 0 ? failure(fail, e, "%s cannot be written: %s", f->base->geo.path,
			       strerrordesc_np(-e))
		     : 0;
}

/* Completes a shrink that was interrupted after its commit. */
static int finish_shrink(struct offline *f, const struct recover_options *opt,
			 struct recover_report *rep, struct failure *fail)
{
	const struct commit_options co = commit_options(opt);
	struct shrink_report shrink;
	int e = shrink_finish(f->base, &f->super, f->log_flags, &co, &shrink);

	if (e < 0)
		return failure(fail, e, "%s: %s. Run it again once the card works",
			       f->base->geo.path, shrink.why);
	rep->home_blks = shrink.home_blks;
	rep->shrink_finished = true;
	return 0;
}

static int recover(struct offline *f, const struct recover_options *opt, struct recover_report *rep,
		   struct failure *fail)
{
	enum log_state state = f->report.state;

	if (opt->accept == RECOVER_ACCEPT_BASE && state >= LOG_BROKEN) {
		rep->dropped = state == LOG_BROKEN;
		if (f->super.state == SUPER_PENDING)
			return forget_shrink(f, fail);
		log_accept_base(f->log); /* the record that retires the log discards its content */
		return bring_home(f, opt, rep, fail);
	}
	if (state == LOG_BROKEN)
		return explain_broken(f, fail);
	if (state == LOG_FOREIGN)
		return explain_foreign(f, fail);
	if (f->super.state == SUPER_PENDING)
		return finish_shrink(f, opt, rep, fail);
	/* the base already holds older generations: only the newest one was requested */
	if (opt->accept == RECOVER_ACCEPT_LOG && state == LOG_FELL_BACK)
		return failure(
			fail, -ESTALE,
			"%s: the newest generation cannot be restored (%s): foreign changes have "
			"overwritten blocks of it. Nothing was written; only --accept base is "
			"left",
			f->base->geo.path, f->report.why);
	if (opt->accept == RECOVER_ACCEPT_LOG && log_holds(f->log, NULL)) {
		int e = commit_release(f->log, f->base);

		if (e < 0)
			return failure(fail, e, "%s: %s", f->base->geo.path, strerrordesc_np(-e));
	}
	if (offline_refuse_held(f, fail) < 0)
		return -EBUSY;
	/* for a retired log, only a bad copy of its superblock is repaired */
	rep->nothing_to_do = state == LOG_EMPTY ||
			     (state == LOG_RETIRED && !(f->trouble & SUPER_COPIES_BAD));
	return rep->nothing_to_do ? 0 : bring_home(f, opt, rep, fail);
}

static int run(struct offline *f, const struct recover_options *opt, struct recover_report *rep,
	       struct failure *fail)
{
	int e = offline_open(f, opt->device, opt->log_device, BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE,
			     0, fail);

	f->log_flags = (opt->accept == RECOVER_ACCEPT_LOG ? LOG_ANY_BASE : 0) |
		       (opt->accept == RECOVER_ACCEPT_LOST || opt->accept == RECOVER_ACCEPT_BASE
				? LOG_UNREADABLE
				: 0);
	if (e == 0)
		e = offline_open_log(f, fail);
	if (e < 0)
		return e;
	e = recover(f, opt, rep, fail);
	rep->log = f->report;
	rep->written_bytes = offline_written_bytes(f);
	/* the base may hold a part of a commit, or foreign changes outside the log's blocks */
	rep->unsure = f->fs.kind != FS_UNKNOWN &&
		      (rep->dropped || rep->lost ||
		       (rep->home_blks && opt->accept == RECOVER_ACCEPT_LOG));
	if (rep->unsure)
		rep->check_with = fs_ops(f->fs.kind)->checker;
	return e;
}

int offline_recover(const struct recover_options *opt, struct recover_report *ret,
		    struct failure *fail)
{
	struct offline f;
	int e;

	*ret = (struct recover_report){ 0 };
	e = run(&f, opt, ret, fail);
	return offline_end(&f, e, "Its log still has everything", fail);
}
