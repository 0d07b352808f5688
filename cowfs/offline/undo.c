/* SPDX-License-Identifier: MIT */
#include "offline/offline.h"

#include <errno.h>
#include <string.h>

#include "card/blockdev.h"

static const char done_or_not[] = "Its log is whole, and this is done or not";

static int refuse_state(const struct offline *f, struct failure *fail)
{
	return failure(fail, -EUCLEAN, "%s: %s: nothing was written. See cowctl check",
		       f->base->geo.path,
		       f->report.why[0] ? f->report.why : "the log cannot be used");
}

static int write_end(struct offline *f, enum held_what what)
{
	return what == HELD_ACCEPT ? commit_release(f->log, f->base)
				   : commit_go_back(f->log, f->base, what == HELD_BACK);
}

static int end(struct offline *f, enum held_what what, struct failure *fail)
{
	int e = write_end(f, what);

	if (e == -EBADMSG)
		return failure(fail, e, "%s: the held generation is damaged; nothing was written",
			       f->base->geo.path);
	if (e == -ENOSPC)
		return failure(fail, e, "%s: the log has no room for the record that %s",
			       f->base->geo.path,
			       what == HELD_BACK   ? "goes back: cowctl accept, then release"
			       : what == HELD_STAY ? "takes the undo back"
						   : "ends the hold");
	return e < 0 ? failure(fail, e, "%s: %s. Run it again once the card works",
			       f->base->geo.path, strerrordesc_np(-e))
		     : 0;
}

/* What the next attach finds. */
static int look_again(struct offline *f, struct failure *fail)
{
	int e;

	log_close(f->log);
	f->log = NULL;
	f->log_flags = 0;
	e = offline_open_log(f, fail);
	if (e == 0 && (f->report.state >= LOG_BROKEN || !f->report.back_seq))
		return refuse_state(f, fail);
	return e;
}

static int run(struct offline *f, enum held_what what, struct held_report *ret,
	       struct failure *fail)
{
	int e;

	ret->newest = f->report.newest;
	ret->live_blks = f->report.live_blks + f->report.zero_blks;
	ret->held = log_holds(f->log, &ret->hold);
	if (what == HELD_LOOK)
		return 0;
	if (f->report.state >= LOG_BROKEN)
		return refuse_state(f, fail);
	if (!ret->held || (what == HELD_STAY && !ret->hold.back))
		return failure(fail, -ENOENT,
			       ret->held ? "%s: no undo is pending" : "%s: no generation is held",
			       f->base->geo.path);
	e = what == HELD_BACK && ret->hold.back ? 0 : end(f, what, fail);
	if (e == 0 && what == HELD_BACK)
		e = look_again(f, fail);
	ret->written_bytes = offline_written_bytes(f);
	return e;
}

int offline_held(const char *device, const char *log_device, enum held_what what,
		 struct held_report *ret, struct failure *fail)
{
	struct offline f;
	int e = offline_open(&f, device, log_device,
			     (what == HELD_LOOK ? 0 : BLOCKDEV_EXCL) | BLOCKDEV_ALLOW_FILE, 0,
			     fail);

	*ret = (struct held_report){ 0 };
	f.log_flags = LOG_NOT_BACK; /* what was left is here until the next commit */
	if (e == 0)
		e = offline_open_log(&f, fail);
	if (e == 0)
		e = run(&f, what, ret, fail);
	return offline_end(&f, e, done_or_not, fail);
}

static int count_boot(struct offline *f, enum trial_boot *ret_what, struct held_report *ret,
		      struct failure *fail)
{
	int e = 0;

	ret->newest = f->report.newest;
	ret->held = log_holds(f->log, &ret->hold);
	if (!ret->held || !ret->hold.trial || ret->hold.back)
		return 0;
	*ret_what = ret->hold.boots ? TRIAL_COUNTED : TRIAL_OVER;
	if (ret->hold.boots)
		e = commit_try(f->log, f->base, --ret->hold.boots);
	else
		e = commit_go_back(f->log, f->base, true);
	ret->written_bytes = offline_written_bytes(f);
	return e < 0 ? failure(fail, e, "%s: %s", f->base->geo.path, strerrordesc_np(-e)) : 0;
}

int offline_count_boot(const char *device, const char *log_device, enum trial_boot *ret_what,
		       struct held_report *ret, struct failure *fail)
{
	struct offline f;
	int e = offline_open(&f, device, log_device, BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE, 0, fail);

	*ret = (struct held_report){ 0 };
	*ret_what = TRIAL_NONE;
	f.log_flags = LOG_NOT_BACK;
	if (e == 0)
		e = offline_find_log(&f, fail);
	/* without the feature there is nothing to read */
	if (e == 0 && f.super.incompat & LOG_INCOMPAT_HELD) {
		e = offline_open_log(&f, fail);
		if (e == 0 && f.report.state < LOG_BROKEN)
			e = count_boot(&f, ret_what, ret, fail);
	}
	return offline_end(&f, e, done_or_not, fail);
}

static int count_image(struct offline *f, const struct trial_image *im, struct failure *fail)
{
	int e = offline_open_log(f, fail);

	if (e < 0)
		return e;
	e = commit_set_image(f->log, f->base, im->image, (uint8_t)(im->boots + 1));
	return e < 0 ? failure(fail, e, "%s: %s", f->base->geo.path, strerrordesc_np(-e)) : 0;
}

int offline_count_image(const char *device, const char *log_device, struct trial_image *im,
			struct failure *fail)
{
	unsigned flags = im->most ? BLOCKDEV_EXCL : BLOCKDEV_RDONLY;
	struct offline f;
	int e = offline_open(&f, device, log_device, flags | BLOCKDEV_ALLOW_FILE, 0, fail);

	if (e == 0)
		e = offline_find_log(&f, fail);
	if (e == 0) {
		im->boots = f.super.image == im->image ? f.super.image_boots : 0;
		im->what = im->boots == SUPER_PROVEN ? TRIAL_NONE
			   : im->boots >= im->most   ? TRIAL_OVER
						     : TRIAL_COUNTED;
		if (im->what == TRIAL_COUNTED)
			e = count_image(&f, im, fail);
	}
	return offline_end(&f, e, done_or_not, fail);
}

int offline_refuse_held(const struct offline *f, struct failure *fail)
{
	struct log_hold h;

	return log_holds(f->log, &h)
		       ? failure(fail, -EBUSY,
				 "%s: generation %llu is held: first run cowctl accept %s, or "
				 "cowctl undo %s",
				 f->base->geo.path, (unsigned long long)h.generation, f->device,
				 f->device)
		       : 0;
}
