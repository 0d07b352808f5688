/* SPDX-License-Identifier: MIT */
/* Room on another device that a commit borrows, until no generation needs it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/msg.h"
#include "volume/private.h"
#include "volume/scratch.h"

/* In this case the card did not fail, and the user who lent the room decides whether to try
 * again. */
bool lent_failed(const struct volume *v)
{
	return v->lent && log_lent_failed(v->log);
}

/* Lends room to the log, which uses it until no generation needs it (volume_return_lent). */
int lent_take(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	struct card *lent = rq->lent ? *rq->lent : NULL;
	int r = lent ? log_lend(v->log, lent) : 0;

	if (r == -EBUSY)
		snprintf(res->why, sizeof(res->why),
			 "space lent before is still in use: run cowctl commit --checkpoint first");
	else if (r == -EEXIST)
		snprintf(res->why, sizeof(res->why),
			 "the space to lend holds committed blocks of another volume: checkpoint "
			 "them with cowctl recover --lend. If they are not needed, wipe its first "
			 "4 KiB");
	else if (r < 0)
		snprintf(res->why, sizeof(res->why), "cannot use the lent space: %s",
			 r == -ENOSPC ? "it is smaller than 8 KiB" : strerror(-r));
	if (r == 0 && lent) {
		lent->before_write = snapshots_before_write;
		lent->before_write_ctx = v->snapshots;
		v->lent = lent;
		*rq->lent = NULL;
		if (v->changed)
			v->changed(v->changed_ctx);
	}
	return r;
}

void volume_return_lent(struct volume *v)
{
	int r = v->lent ? log_unlend(v->log) : -EBUSY;
	struct card *lent = v->lent;
	struct scratch *s;

	if (r == -EBUSY) /* still needed, or there is none */
		return;
	if (r < 0)
		msg(MSG_WARN,
		    "%s: the lent space is no longer needed, but its header could not be wiped: "
		    "%s",
		    v->name, strerror(-r));
	snapshots_leave_card(v->snapshots, v->lent);
	/* it has ended, but a read may be under way */
	s = volume_scratch(v);
	if (s)
		scratch_synchronize(s);
	scratch_unref(s);
	v->lent = NULL;
	if (v->changed)
		v->changed(v->changed_ctx);
	card_close(lent);
}
