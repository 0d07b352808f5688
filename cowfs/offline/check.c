/* SPDX-License-Identifier: MIT */
#include "offline/offline.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "card/blockdev.h"

static void keep(void *ctx, uint64_t blk, const char *line)
{
	struct check_report *rep = ctx;

	(void)blk;
	if (rep->findings < CHECK_FINDINGS)
		clean_copy(rep->finding[rep->findings], sizeof(rep->finding[0]), line);
	rep->findings++;
}

static enum check_verdict judge(const struct check_report *rep)
{
	if (rep->bad_blks || rep->log.state >= LOG_BROKEN)
		return CHECK_BROKEN;
	if (rep->shrink_committed || rep->log.state == LOG_FELL_BACK || rep->log.passed_seq ||
	    (rep->trouble & SUPER_COPIES_BAD))
		return CHECK_REPAIRABLE;
	return CHECK_GOOD;
}

/* log_verify reads what is in the log. */
static void note_lost(struct check_report *rep)
{
	char line[160];

	if (!rep->log.lost_home_blks)
		return;
	snprintf(line, sizeof(line), "block %llu: written by the newest commit, cannot be read%s",
		 (unsigned long long)rep->log.lost_blk,
		 rep->log.lost_home_blks > 1 ? ", as others" : "");
	keep(rep, rep->log.lost_blk, line);
	rep->bad_blks += rep->log.lost_home_blks;
}

static int check(struct offline *f, struct check_report *ret, struct failure *fail)
{
	int e = 0;

	*ret = (struct check_report){ .device = f->device,
				      .log_device = f->log_device ? f->log_device : f->device,
				      .fs = f->fs,
				      .super = f->super,
				      .trouble = f->trouble,
				      .log = f->report };
	strcpy(ret->attached, f->attached);
	ret->shrink_committed = f->super.state == SUPER_PENDING && f->report.state < LOG_BROKEN;
	if (f->report.state < LOG_BROKEN)
		e = log_verify(f->log, keep, ret, &ret->bad_blks);
	note_lost(ret);
	if (e < 0)
		return failure(fail, e, "%s: cannot read the log: %s", f->log_card->geo.path,
			       strerrordesc_np(-e));
	ret->verdict = judge(ret);
	return 0;
}

int offline_check(const char *device, const char *log_device, struct check_report *ret,
		  struct failure *fail)
{
	struct offline f;
	int e = offline_open(&f, device, log_device, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, 0,
			     fail);

	if (e == 0)
		e = offline_open_log(&f, fail);
	if (e == 0)
		e = check(&f, ret, fail);
	if (e == 0 && super_guarded(f.base, &ret->guarded) < 0)
		ret->guarded = false; /* the log could be read, which is what was asked */
	return offline_end(&f, e, "Nothing was written", fail);
}
