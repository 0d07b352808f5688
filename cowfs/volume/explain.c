/* SPDX-License-Identifier: MIT */
/* What a job says about itself, apart from the doing. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/invariant.h"
#include "base/io.h"
#include "base/parse.h"
#include "fs/fs_ops.h"
#include "volume/private.h"

/* What helps while writes do not fail: a deletion, and a commit of files, need RAM. */
static const char *commit_less(const struct volume *v, const struct commit_report *rep)
{
	bool files = fs_ops(v->fs.kind)->single_files;
	struct volume_pressure m;

	monitor_status(v->monitor, &m);
	if (m.refuses)
		return "";
	if (rep->free_unknown)
		return files ? "Commit less: cowctl commit PATH. Or " : "";
	return files ? "Commit less: cowctl commit PATH, or delete changed files, then commit. Or "
		     : "Delete changed files, then commit. Or ";
}

/* What RAM holds cannot be committed as a whole: names what leads out of that without a loss. */
static void explain_room(const struct volume *v, const struct commit_report *rep, char *w, size_t n)
{
	const char *less = commit_less(v, rep);

	snprintf(
		w, n,
		"the log is too small for this commit: %s needed, %s available (with the free "
		"blocks of the file system); everything stays in RAM. %s%s all of it: cowctl clone "
		"%s DEVICE, or a copy from cowctl view --now %s DIR",
		FORMAT_SIZE(blk_to_bytes(rep->need_blks)),
		FORMAT_SIZE(blk_to_bytes(rep->room_blks)), less, *less ? "save" : "Save", v->name,
		v->name);
}

static void explain_stale(const struct quiesce_report *q, char *w, size_t n)
{
	if (q->hidden)
		snprintf(w, n,
			 "the device is used without a mount by %s (a checker, for example), so "
			 "it cannot be sealed; nothing was written",
			 q->holder[0] ? q->holder : "something else");
	else
		snprintf(w, n, CARD_CHANGED "; nothing was written");
}

/* Writes that failed because RAM was full, and that no result has reported. */
uint64_t volume_lost_writes(const struct volume *v)
{
	struct volume_pressure m;

	monitor_status(v->monitor, &m);
	return m.throttle.refused + m.throttle.full_errors - v->lost_known;
}

static const char *explain_io(const struct volume *v)
{
	if (volume_lost_writes(v) && !v->past_seal)
		return "RAM is full, so not everything could be flushed; nothing was written, what RAM holds stays there";
	return volume_lost_writes(v)
		       ? "the card reports an error; everything stays in RAM"
		       : "the card reports an error; nothing is lost, everything stays in RAM";
}

static void explain_lost_blk(const struct volume *v, char *w, size_t n)
{
	uint64_t blk;

	if (log_lost(v->log, &blk))
		snprintf(
			w, n,
			"the copy of block %llu in the log cannot be read, so the log cannot be emptied; nothing else is "
			"lost. cowctl scrub names the file: delete it, or write it again from a copy, then commit",
			(unsigned long long)blk);
}

/* Errors that have one sentence. */
static const struct {
	int error;
	const char *text;
} sentences[] = {
	{ -EALREADY, "an earlier sync of the file system has not ended; nothing was written" },
	{ -ETIMEDOUT, "the sync of the file system did not end in time; nothing was written" },
	{ -EBUSY,
	  "the file system was mounted or unmounted meanwhile, again and again: try again" },
	{ -EOWNERDEAD, FSINFO_DIED
	  "; everything stays in RAM. If the next commit fails too: check the file system, or commit --force, which "
	  "skips this test" },
};

static void explain_error(const struct volume *v, struct volume_result *res)
{
	char *w = res->why;
	size_t n = sizeof(res->why);

	if (io_lost(res->error))
		explain_lost_blk(v, w, n);
	for (size_t i = 0; i < ARRAY_SIZE(sentences); i++)
		if (sentences[i].error == res->error)
			snprintf(w, n, "%s", sentences[i].text);
	switch (w[0] ? 0 : res->error) {
	case 0:
		break;
	case -EFBIG:
		if (res->report.held)
			held_explain(v, &res->report, w, n);
		else
			explain_room(v, &res->report, w, n);
		break;
	case -ESTALE:
		explain_stale(&res->quiesce, w, n);
		break;
	case -EOPNOTSUPP:
		snprintf(
			w, n,
			"this %s is committed only while it is not mounted, or read-only: unmount it or remount it "
			"read-only, then %s%s",
			v->fs.type, res->job == JOB_VIEW ? "try again" : "commit",
			fs_ops(v->fs.kind)->settle ? ". tune2fs -j gives it a journal" : "");
		break;
	case -ENOTRECOVERABLE:
		snprintf(w, n,
			 "internal error: rule %s violated; no more writes to the card, "
			 "everything stays in RAM: copy what you need to another place, then "
			 "detach with --discard",
			 invariant_broken() ? invariant_broken() : "of the kernel");
		break;
	case -ENOMEDIUM:
		snprintf(
			w, n,
			"the card is away (pulled out, or reset): nothing is lost, everything stays in RAM%s",
			res->again ? ", and the commit is made when it is back"
				   : ": plug it in, and try again");
		break;
	case -EIO:
		snprintf(w, n, "%s", explain_io(v));
		break;
	default:
		snprintf(w, n, "%s; everything stays in RAM", strerror(-res->error));
	}
}

void explain_result(const struct volume *v, struct volume_result *res, int error)
{
	const struct quiesce_report *q = &res->quiesce;

	res->error = error;
	if (!error || res->why[0])
		return;
	if (q->failed && !q->unsynced)
		volume_why(
			res, error,
			"the file system has seen I/O errors and can no longer be synced: unmount it, then "
			"commit; what RAM holds stays there");
	else
		explain_error(v, res);
}

void explain_remarks(struct volume_result *res)
{
	const struct quiesce_report *q = &res->quiesce;
	size_t n = strlen(res->why);
	const char *text = NULL;

	if (res->error && !res->not_held)
		return;
	if (q->stopped && q->raw)
		text = "sealed without a sync, as a power cut would leave it: the log is full "
		       "and the file system still writes";
	else if (q->failed)
		text = "sealed as a power cut would leave it: the file system has seen I/O errors: unmount "
		       "it and mount it again (if it is the root: reboot)";
	else if (q->unsynced && !q->stopped)
		text = "the file system could not be synced: files that were written last may be "
		       "old on the card, or missing. Commit again";
	else if (q->raw)
		text = "sealed with a journal that cannot be replayed: as a power cut would leave it";
	else if (res->unread)
		text = "committed, but the metadata was not checked (" FSINFO_DIED
		       "): check the file system (e2fsck)";
	if (text)
		snprintf(res->why + n, sizeof(res->why) - n, "%s%s", n ? ". And " : "", text);
}

/* With blocks only in the log, the file system at the home locations is a mixture. */
void explain_waiting(const struct volume *v, struct volume_result *res)
{
	uint64_t blks = home_waiting_blks(v);
	struct log_hold h;

	if (log_holds(v->log, &h) && !res->why[0])
		snprintf(
			res->why, sizeof(res->why),
			"but generation %llu is held, so nothing was checkpointed: run 'cowctl accept' "
			"or 'cowctl undo' before you mount the card without cowfs",
			(unsigned long long)h.generation);
	else if (blks && !res->why[0])
		snprintf(res->why, sizeof(res->why),
			 "but %llu committed block%s in the log only: run 'cowctl release' "
			 "before you mount the card without cowfs",
			 (unsigned long long)blks, blks == 1 ? " exists" : "s exist");
}

/* Programs may not have noticed: most writes fail after the call that made them. */
void explain_lost(struct volume *v, int r, struct volume_result *res)
{
	uint64_t lost = volume_lost_writes(v);
	size_t n = strlen(res->why);

	if (!lost || (res->job != JOB_COMMIT && res->job != JOB_DETACH) || v->discard_armed)
		return;
	snprintf(res->why + n, sizeof(res->why) - n,
		 "%s%llu write%s failed because %s: the data is lost", n ? ". And " : "",
		 (unsigned long long)lost, lost == 1 ? "" : "s",
		 v->halted ? "the daemon has died several times" : "RAM was full");
	if (r == 0) {
		v->lost_known += lost;
		v->kept->lost_said += lost;
	}
}
