/* SPDX-License-Identifier: MIT */
/* libblkid does not know a log of cowfs, nor a file system that is guarded by one. */
#include "offline/content.h"

#include <errno.h>
#include <stdio.h>

#include "base/numbers.h"
#include "offline/signature.h"

static void name_log(struct offline *f, const struct fsinfo *found, char *ret, size_t bytes)
{
	int e = super_find(f->base, f->base, found, 0, &f->super, &f->trouble);
	uint64_t live = e == 0 ? offline_live_blks(f) : 0;

	if (e == 0 && f->super.external)
		snprintf(ret, bytes, "the cowfs log of another device");
	else if (live)
		snprintf(ret, bytes,
			 "a cowfs log with %s committed block%s that no other place has",
			 with_commas(live), plural(live));
	else if (f->report.needs_older)
		snprintf(ret, bytes,
			 "a cowfs log whose newest generation only cowfs 0.1.0 completes");
	else if (e != -ENOENT && e != -ESTALE)
		snprintf(ret, bytes, "a cowfs log");
	else
		snprintf(ret, bytes, "%s",
			 super_log_missing(f->base)
				 ? "changes that only a log on another device has"
				 : "");
	/* the caller may overwrite what that log shows */
	log_close(f->log);
	f->log = NULL;
	(void)!card_show(f->base, 0, NULL);
}

int content_name(struct offline *f, const struct fsinfo *found, char *ret, size_t bytes)
{
	const struct fsinfo none = { .kind = FS_UNKNOWN };
	char log[128], fs[64];
	const char *what = fs;
	struct signatures s;
	int e = signatures_find(f->base->geo.path, &none, &s);

	if (e < 0)
		return e;
	name_log(f, found, log, sizeof(log));
	snprintf(fs, sizeof(fs), "a file system (%s)", found->type);
	if (s.n)
		what = s.text;
	else if (found->kind == FS_UNKNOWN)
		what = *log ? "" : "nothing that is known";
	snprintf(ret, bytes, "%s%s%s", log, *log && *what ? ", and " : "", what);
	return 0;
}
