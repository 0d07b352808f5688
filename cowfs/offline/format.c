/* SPDX-License-Identifier: MIT */
/* Creates an empty log in the room behind the file system, or on another device. */
#include "offline/offline.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/boxed.h"
#include "base/numbers.h"
#include "base/parse.h"
#include "card/blockdev.h"
#include "fs/fs_ops.h"
#include "offline/shrink_tools.h"
#include "offline/signature.h"

#define WHOLE_LOG_SHARE 16u /* of the file system */

/*
 * Checks for other content. If a device holds two things, one is a leftover, or the device is a
 * part of something larger.
 */
static int check_alone(const struct format_options *opt, const struct offline *f,
		       struct failure *fail)
{
	const char *device = f->device;
	struct signatures s;
	int e;

	if (f->fs.kind != FS_UNKNOWN && opt->over == FORMAT_OVER_ALL)
		return 0;
	e = signatures_find(device, &f->fs, &s);
	if (e < 0)
		return offline_cannot_read(device, e, fail);
	if (!s.n)
		return 0;
	if (f->fs.kind == FS_UNKNOWN)
		return failure(fail, -EMEDIUMTYPE,
			       "%s: holds %s, and not a file system that cowfs protects%s%s",
			       device, s.text, *s.advice ? ": " : "", s.advice);
	return failure(
		fail, -EEXIST,
		"%s: holds %s and a file system (%s). One of them is a leftover, or the file system is a part of "
		"something larger: 'wipefs %s' shows both, --force takes the file system",
		device, s.text, f->fs.type, device);
}

static int check_fs(const struct format_options *opt, const struct offline *f, struct failure *fail)
{
	const char *device = f->device;
	uint64_t room = offline_room_for_fs(f, opt->log_bytes);
	bool external = f->log_card != f->base;
	int e = check_alone(opt, f, fail);

	if (e < 0)
		return e;
	if (f->fs.kind == FS_UNKNOWN || (!f->fs.size_bytes && !external))
		return failure(
			fail, -EMEDIUMTYPE,
			room ? "%s: no known file system. Make one of at most %s first: the log needs "
			       "the rest of the device's %s"
			     : "%s: no known file system, and %s are too small for a log",
			device, FORMAT_SIZE(room ? room : f->base->geo.size_bytes),
			FORMAT_SIZE(f->base->geo.size_bytes));
	if (fsinfo_refusal(&f->fs))
		return failure(fail, -EOPNOTSUPP, "%s: %s", device, fsinfo_refusal(&f->fs));
	return 0;
}

/* A log on another device begins at its first block and would destroy what lies there. */
static int check_log_device(const struct format_options *opt, const struct offline *f,
			    struct failure *fail)
{
	const struct fsinfo none = { .kind = FS_UNKNOWN };
	struct signatures s;
	int e;

	if (f->log_card == f->base || opt->over)
		return 0;
	e = signatures_find(f->log_card->geo.path, &none, &s);
	if (e < 0)
		return offline_cannot_read(f->log_card->geo.path, e, fail);
	if (!s.n)
		return 0;
	return failure(fail, -EEXIST,
		       "%s: holds %s, which the log would overwrite: --force overwrites it",
		       f->log_card->geo.path, s.text);
}

static int explain_no_room(const struct offline *f, uint64_t log_bytes, uint64_t short_bytes,
			   struct failure *fail)
{
	const char *device = f->device;
	uint64_t room = offline_room_for_fs(f, log_bytes);

	if (f->log_card != f->base)
		return failure(fail, -ENOSPC, "%s: too small for the log: %s are missing",
			       f->log_card->geo.path, FORMAT_SIZE(short_bytes));
	if (!room)
		return failure(fail, -ENOSPC, "%s: too small (%s) for a log of this size", device,
			       FORMAT_SIZE(f->base->geo.size_bytes));
	if (fs_ops(f->fs.kind)->can_shrink)
		return failure(
			fail, -ENOSPC,
			"%s: no space for the log: the file system takes %s of %s, %s are "
			"missing. Shrink it while it is not mounted: cowctl prepare --shrink %s "
			"(safe against power cuts), or e2fsck -f %s && resize2fs %s %lluM",
			device, FORMAT_SIZE(f->fs.size_bytes), FORMAT_SIZE(f->base->geo.size_bytes),
			FORMAT_SIZE(short_bytes), device, device, device,
			(unsigned long long)(room / MIB));
	return failure(fail, -ENOSPC,
		       "%s: no space for the log: the file system (%s) takes %s of %s, %s "
		       "are missing. Make a new one of at most %llu MiB, or put the log on "
		       "another device with --log",
		       device, f->fs.type, FORMAT_SIZE(f->fs.size_bytes),
		       FORMAT_SIZE(f->base->geo.size_bytes), FORMAT_SIZE(short_bytes),
		       (unsigned long long)(room / MIB));
}

uint64_t offline_live_blks(struct offline *f)
{
	int e = f->super.external == (f->log_card != f->base)
			? log_open(&f->log, f->base, f->log_card, &f->super, LOG_ANY_BASE, NULL,
				   &f->report)
			: -EINVAL;

	return e < 0 || f->report.state == LOG_BROKEN ? 0
						      : f->report.live_blks + f->report.zero_blks;
}

/* A log that holds the only copy of committed blocks is never overwritten. */
static int check_live(struct offline *f, struct failure *fail)
{
	uint64_t blocks = offline_live_blks(f);

	if (f->report.needs_older)
		return failure(fail, -EUCLEAN, "%s: %s (--force does not discard it)",
			       f->log_card->geo.path, f->report.why);
	if (!blocks) /* or log of another device, or unreadable: --force was given */
		return 0;
	return failure(fail, -ENOTEMPTY,
		       "%s: the log holds %s committed blocks that are not checkpointed: run "
		       "'cowctl release %s%s%s' first (--force does not discard them)",
		       f->log_card->geo.path, with_commas(blocks), f->device,
		       f->log_card == f->base ? "" : " --log ",
		       f->log_card == f->base ? "" : f->log_card->geo.path);
}

/* Completes an interrupted shrink. */
static int finish_shrink(const struct format_options *opt, struct offline *f,
			 struct format_report *ret, struct failure *fail)
{
	const struct commit_options co = { .cause = CAUSE_RECOVER,
					   .progress = opt->progress,
					   .progress_ctx = opt->progress_ctx };
	int e = shrink_finish(f->base, &f->super, 0, &co, &ret->shrink);

	if (e < 0)
		return failure(fail, e,
			       "%s: a shrink was interrupted after its commit and cannot be "
			       "finished (%s): see cowctl check",
			       f->device, ret->shrink.why);
	ret->shrunk = true;
	return 0;
}

/* The blocks of the newest generation may lie in a log that nobody named. */
static int check_guard(const struct format_options *opt, const struct offline *f,
		       struct failure *fail)
{
	bool guarded;
	int e = opt->over == FORMAT_OVER_ALL ? 0 : super_guarded(f->base, &guarded);

	if (opt->over == FORMAT_OVER_ALL || (e == 0 && !guarded))
		return 0;
	if (e < 0)
		return failure(fail, e, "%s cannot be read: %s", f->device, strerrordesc_np(-e));
	return failure(
		fail, -ENOTEMPTY,
		"%s: " SUPER_LOG_MISSING
		": 'cowctl release %s --log DEVICE' writes them home. If that log is lost: --force "
		"takes the file system as it is, for %s",
		f->device, f->device, fs_ops(f->fs.kind)->checker);
}

/* A log that is there already, and may be used: prepare does not touch it. */
static int explain_old_log(const struct format_options *opt, struct offline *f,
			   struct format_report *ret, struct failure *fail)
{
	const char *path = f->log_card->geo.path;
	uint64_t blocks = offline_live_blks(f);

	/* the card went away before both superblocks were written */
	if ((f->trouble & SUPER_COPIES_BAD) && !blocks && f->report.state == LOG_EMPTY &&
	    !f->report.newest.seq)
		return check_guard(opt, f, fail);
	if (f->super.external != (f->log_card != f->base))
		return failure(
			fail, -EEXIST,
			f->super.external
				? "%s: already has a cowfs log, made %s, of another device: name that "
				  "device, and this one with --log"
				: "%s: already has a cowfs log, made %s, of its own file system",
			path, format_time(f->super.created_s));
	if (f->report.needs_older)
		return failure(fail, -EEXIST, "%s: already has a cowfs log: %s", path,
			       f->report.why);
	if (f->report.state >= LOG_BROKEN)
		return failure(
			fail, -EEXIST,
			"%s: already has a cowfs log, made %s, that is %s: see cowctl check %s",
			path, format_time(f->super.created_s),
			f->report.state == LOG_BROKEN ? "damaged" : "set aside", f->device);
	ret->has_log = true;
	if (blocks)
		return failure(
			fail, -ENOTEMPTY,
			"%s: already has a cowfs log, made %s: %s committed blocks exist only in it",
			path, format_time(f->super.created_s), with_commas(blocks));
	return failure(fail, -EEXIST,
		       "%s: already has a cowfs log, made %s: --force makes a new one", path,
		       format_time(f->super.created_s));
}

static int check_old_log(const struct format_options *opt, struct offline *f,
			 struct format_report *ret, struct failure *fail)
{
	const char *path = f->log_card->geo.path;
	int e = super_find(f->base, f->log_card, &f->fs, 0, &f->super, &f->trouble);

	/* the file system covers the old log and owns its blocks: nothing can be lost */
	if (e == -ENOENT || e == -ESTALE)
		return check_guard(opt, f, fail);
	if (e == 0 && f->super.state == SUPER_PENDING && opt->dry_run)
		return failure(fail, -EINPROGRESS,
			       "%s: a shrink was interrupted after its commit: run cowctl "
			       "prepare --shrink %s again",
			       f->device, f->device);
	if (e == 0 && f->super.state == SUPER_PENDING)
		return finish_shrink(opt, f, ret, fail);
	if (e == 0 && opt->over)
		return check_live(f, fail);
	if (e == 0)
		return explain_old_log(opt, f, ret, fail);
	if (e == -EXDEV)
		return failure(fail, e, SUPER_MEMBER, f->device);
	if (e == -ERANGE) /* what it has committed cannot be looked at */
		return offline_explain_small(f, fail);
	if (e != -EBADMSG && e != -EPROTONOSUPPORT)
		return failure(fail, e, "%s cannot be read: %s", path, strerrordesc_np(-e));
	if (opt->over)
		return 0;
	return failure(fail, e,
		       "%s: has a cowfs log %s: --force makes a new one and discards its content",
		       path, e == -EBADMSG ? "whose superblock is damaged" : "of a newer format");
}

/*
 * For ext the log holds the blocks that change in place; for other file systems it may hold all
 * changes. A larger log allows larger commits and requests. The result is a share of the file
 * system, if there is enough room. 0: the general default.
 */
uint64_t offline_default_log_bytes(const struct offline *f)
{
	bool external = f->log_card != f->base;
	uint64_t fs_bytes = external ? f->base->geo.size_bytes : f->fs.size_bytes, least,
		 short_bytes;
	struct log_super s;

	if (fs_ops(f->fs.kind)->counts_on_free ||
	    super_plan(f->base, f->log_card, fs_bytes, 0, &s, &short_bytes) < 0)
		return 0;
	least = (uint64_t)s.seg_bytes * s.seg_count;
	for (uint64_t n = min_u64(fs_bytes / WHOLE_LOG_SHARE, FORMAT_WHOLE_LOG_BYTES); n > least;
	     n -= min_u64(n, 4 * MIB))
		if (super_plan(f->base, f->log_card, fs_bytes, n, &s, &short_bytes) == 0)
			return n;
	return 0;
}

static int plan(const struct format_options *opt, const struct offline *f, struct log_super *ret,
		struct failure *fail)
{
	bool external = f->log_card != f->base;
	uint64_t log_bytes = opt->log_bytes ? opt->log_bytes : offline_default_log_bytes(f),
		 short_bytes = 0;
	int e = super_plan(f->base, f->log_card,
			   external ? f->base->geo.size_bytes : f->fs.size_bytes, log_bytes, ret,
			   &short_bytes);

	if (e == -ENOSPC)
		return explain_no_room(f, log_bytes, short_bytes, fail);
	if (e == -EINVAL)
		return failure_set(
			fail, EXIT_USAGE, e,
			"a log of %s is too small or too large for erase blocks of %s: use at "
			"least 8 erase blocks",
			opt->log_bytes ? FORMAT_SIZE(opt->log_bytes) : "the default size",
			FORMAT_SIZE(f->log_card->geo.erase_block_bytes));
	if (e < 0)
		return failure(fail, e, "cannot lay out the log: %s", strerrordesc_np(-e));
	memcpy(ret->fs_uuid, f->fs.uuid, sizeof(ret->fs_uuid));
	ret->lag = opt->lag;
	return 0;
}

static int write_log(struct offline *f, struct log_super *s, struct failure *fail)
{
	int e = offline_probe(f->log_card, s->external ? 0 : s->fs_bytes, fail);

	if (e < 0)
		return e;
	e = card_set_writable(f->log_card, true);
	if (e == 0)
		e = super_write(f->log_card, s);
	e = offline_lock(f->log_card, e);
	if (e == 0)
		e = card_set_writable(f->base, true);
	if (e == 0)
		e = super_unguard(f->base);
	e = offline_lock(f->base, e);
	if (e < 0)
		return failure(fail, e, "%s cannot be written: %s", f->log_card->geo.path,
			       strerrordesc_np(-e));
	return offline_read_back(f->log_card, s, fail);
}

/* Is there room behind the file system at its present size? */
static bool has_room(const struct offline *f, uint64_t log_bytes)
{
	uint64_t short_bytes;
	struct log_super s;

	return super_plan(f->base, f->base, f->fs.size_bytes, log_bytes, &s, &short_bytes) !=
	       -ENOSPC;
}

static int look(const struct format_options *opt, struct offline *f, struct format_report *ret,
		struct failure *fail)
{
	unsigned flags = BLOCKDEV_ALLOW_FILE | (opt->dry_run ? BLOCKDEV_RDONLY : BLOCKDEV_EXCL);
	int e = offline_open(f, opt->device, opt->log_device, flags, opt->erase_block_bytes, fail);

	ret->fs = f->fs;
	snprintf(ret->attached, sizeof(ret->attached), "%s", f->attached);
	if (e == 0 && opt->dry_run)
		e = offline_check_use(f, fail);
	if (e == 0)
		e = check_log_device(opt, f, fail);
	/*
	 * before the file system is examined: an interrupted shrink may have left it without a
	 * superblock
	 */
	if (e == 0)
		e = check_old_log(opt, f, ret, fail);
	if (e == 0 && !ret->shrunk)
		e = check_fs(opt, f, fail);
	return e;
}

static int format(const struct format_options *opt, struct offline *f, struct format_report *ret,
		  struct failure *fail)
{
	int e = look(opt, f, ret, fail);

	if (e == 0 && opt->shrink && !opt->dry_run && !ret->shrunk &&
	    !has_room(f, opt->log_bytes)) {
		e = shrink_with_tools(f, opt, &ret->shrink, fail);
		ret->shrunk = e == 0;
	}
	if (e < 0)
		return e;
	if (ret->shrunk) {
		ret->super = ret->shrink.super;
	} else {
		e = plan(opt, f, &ret->super, fail);
		if (e == 0 && !opt->dry_run)
			e = write_log(f, &ret->super, fail);
	}
	ret->written_bytes = offline_written_bytes(f);
	return e;
}

int offline_format(const struct format_options *opt, struct format_report *ret,
		   struct failure *fail)
{
	struct offline f;
	int e;

	if (opt->shrink && opt->log_device)
		return failure_set(fail, EXIT_USAGE, -EINVAL,
				   "--shrink is for a log on DEVICE itself: omit --log");
	*ret = (struct format_report){ 0 };
	e = format(opt, &f, ret, fail);
	return offline_end(&f, e,
			   ret->shrink.committed
				   ? "The shrink is committed, and not finished"
				   : "Its file system is whole, and it may have no complete log",
			   fail);
}
