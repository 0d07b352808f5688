/* SPDX-License-Identifier: MIT */
/* cowctl format: an empty log in the room behind the file system, or on another device. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "card/blockdev.h"
#include "wire/render.h"
#include "offline/signature.h"
#include "commit/shrink.h"
#include "fs/fs_ops.h"

#define DEFAULT_JOURNAL_BYTES (16 * MIB)
/* Of a file system all of whose changes may go through the log: requests have full size then. */
#define WHOLE_LOG_MAX_BYTES (160 * MIB)
#define WHOLE_LOG_SHARE 16u
#define SMALL_REQUEST_KB 64u

static int parse_arguments(const struct options *o, uint64_t *ret_log_bytes, uint32_t *ret_eb_bytes)
{
	const char *log_size = o->value[OPT_LOG_SIZE], *eb = o->value[OPT_ERASE_BLOCK];
	uint64_t log_bytes = 0, eb_bytes = 0;

	if (log_size && (parse_size(log_size, &log_bytes) < 0 || !log_bytes))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--log-size %s is not a size such as 32M",
				log_size);
	if (eb && (parse_size(eb, &eb_bytes) < 0 || !eb_bytes))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--erase-block %s is not a size such as 4M",
				eb);
	if (eb_bytes % COW_BLK_BYTES || eb_bytes > GIB)
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"--erase-block must be a multiple of 4 KiB, at most 1 GiB");
	if (o->value[OPT_LAG] && strcmp(o->value[OPT_LAG], "0") && strcmp(o->value[OPT_LAG], "1"))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--lag must be 0 or 1");
	*ret_log_bytes = log_bytes;
	*ret_eb_bytes = (uint32_t)eb_bytes;
	return EXIT_OK;
}

uint8_t format_lag(const struct options *o)
{
	return o->value[OPT_LAG] && o->value[OPT_LAG][0] == '1';
}

/* What else is there? On a device that holds two things one is a leftover, or it is a part of
 * something larger. */
static int check_alone(const struct options *o, const struct offline *f)
{
	const char *device = o->operand[0];
	struct signatures s;
	int e;

	if (f->fs.kind != FS_UNKNOWN && has_option(o, OPT_FORCE) &&
	    strcmp(o->value[OPT_FORCE], FORCE_OLD_LOG))
		return EXIT_OK;
	e = signatures_find(device, &f->fs, &s);
	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e, "%s: cannot be read: %s", device,
				strerrordesc_np(-e));
	if (!s.n)
		return EXIT_OK;
	if (f->fs.kind == FS_UNKNOWN)
		return cmd_fail(o, EXIT_FAILED, -EMEDIUMTYPE,
				"%s: holds %s, and not a file system that cowfs protects%s%s",
				device, s.text, *s.advice ? ": " : "", s.advice);
	return cmd_fail(
		o, EXIT_FAILED, -EEXIST,
		"%s: holds %s and a file system (%s). One of them is a leftover, or the file system is a part of "
		"something larger: 'wipefs %s' shows both, --force takes the file system",
		device, s.text, f->fs.type, device);
}

static int check_fs(const struct options *o, const struct offline *f, uint64_t log_bytes)
{
	const char *device = o->operand[0];
	uint64_t room = offline_room_for_fs(f, log_bytes);
	bool external = f->log_card != f->base;
	int exit = check_alone(o, f);

	if (exit != EXIT_OK)
		return exit;
	if (f->fs.kind == FS_UNKNOWN || (!f->fs.size_bytes && !external))
		return cmd_fail(o, EXIT_FAILED, -EMEDIUMTYPE,
				"no file system that I know on %s; make one first, of at most %s: "
				"the log needs the rest "
				"of the device's %s",
				device, FORMAT_SIZE(room), FORMAT_SIZE(f->base->geo.size_bytes));
	if (fsinfo_refusal(&f->fs))
		return cmd_fail(o, EXIT_FAILED, -EOPNOTSUPP, "%s: %s", device,
				fsinfo_refusal(&f->fs));
	return EXIT_OK;
}

/* A log on another device begins at its first block: whatever lies there would be gone. */
static int check_log_device(const struct options *o, struct offline *f)
{
	const struct fsinfo none = { .kind = FS_UNKNOWN };
	struct signatures s;
	int e;

	if (f->log_card == f->base || has_option(o, OPT_FORCE))
		return EXIT_OK;
	e = signatures_find(f->log_card->geo.path, &none, &s);
	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e, "%s: cannot be read: %s", f->log_card->geo.path,
				strerrordesc_np(-e));
	if (!s.n)
		return EXIT_OK;
	return cmd_fail(o, EXIT_FAILED, -EEXIST,
			"%s: holds %s, which the log would destroy: --force if that is meant",
			f->log_card->geo.path, s.text);
}

static int explain_no_room(const struct options *o, const struct offline *f, uint64_t log_bytes,
			   uint64_t short_bytes)
{
	const char *device = o->operand[0];
	uint64_t room = offline_room_for_fs(f, log_bytes);

	if (f->log_card != f->base)
		return cmd_fail(o, EXIT_FAILED, -ENOSPC,
				"%s is too small for the log: %s are missing",
				f->log_card->geo.path, FORMAT_SIZE(short_bytes));
	if (!room)
		return cmd_fail(o, EXIT_FAILED, -ENOSPC,
				"%s (%s) is too small for a log of this size", device,
				FORMAT_SIZE(f->base->geo.size_bytes));
	if (fs_ops(f->fs.kind)->can_shrink)
		return cmd_fail(
			o, EXIT_FAILED, -ENOSPC,
			"no room for the log: the file system on %s takes %s of %s, %s are "
			"missing. Make it smaller while it is not mounted: cowctl format --shrink "
			"%s (a power cut does no harm), or e2fsck -f %s && resize2fs %s %lluM",
			device, FORMAT_SIZE(f->fs.size_bytes), FORMAT_SIZE(f->base->geo.size_bytes),
			FORMAT_SIZE(short_bytes), device, device, device,
			(unsigned long long)(room / MIB));
	return cmd_fail(o, EXIT_FAILED, -ENOSPC,
			"no room for the log: the file system on %s (%s) takes %s of %s, %s are "
			"missing. Make a new one "
			"of at most %llu MiB, or put the log on another device with --log",
			device, f->fs.type, FORMAT_SIZE(f->fs.size_bytes),
			FORMAT_SIZE(f->base->geo.size_bytes), FORMAT_SIZE(short_bytes),
			(unsigned long long)(room / MIB));
}

/* A log that holds the only copy of committed blocks is never overwritten. */
static int check_live(const struct options *o, struct offline *f)
{
	uint64_t blocks;
	int e = f->super.external == (f->log_card != f->base)
			? log_open(&f->log, f->base, f->log_card, &f->super, LOG_ANY_BASE,
				   &f->report)
			: -EINVAL;

	if (e < 0) /* of another device, or unreadable: --force has been given */
		return EXIT_OK;
	blocks = f->report.live_blks + f->report.zero_blks;
	if (f->report.state == LOG_BROKEN || !blocks)
		return EXIT_OK;
	return cmd_fail(o, EXIT_FAILED, -ENOTEMPTY,
			"the log on %s holds %s committed blocks that are not at home yet: run "
			"'cowctl recover %s%s%s' first (--force does not drop them)",
			f->log_card->geo.path, with_commas(blocks), o->operand[0],
			f->log_card == f->base ? "" : " --log ",
			f->log_card == f->base ? "" : f->log_card->geo.path);
}

/* A shrink that was cut off. */
static int finish_shrink(const struct options *o, struct offline *f, struct shrink_report *ret)
{
	const struct commit_options opt = { .cause = CAUSE_RECOVER };
	int e = shrink_finish(f->base, &f->super, 0, &opt, ret);

	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e,
				"a shrink of %s was cut off after its commit and cannot go on "
				"(%s): see cowctl check",
				o->operand[0], ret->why);
	return EXIT_OK;
}

static int check_old_log(const struct options *o, struct offline *f,
			 struct shrink_report *ret_shrink)
{
	const char *path = f->log_card->geo.path;
	int e = super_find(f->base, f->log_card, &f->fs, 0, &f->super, &f->trouble);

	/* a log that the file system lies over is its own now: there is nothing to lose */
	if (e == -ENOENT || e == -ESTALE)
		return EXIT_OK;
	if (e == 0 && f->super.state == SUPER_PENDING)
		return finish_shrink(o, f, ret_shrink);
	if (e == 0 && has_option(o, OPT_FORCE))
		return check_live(o, f);
	if (e == 0)
		return cmd_fail(o, EXIT_FAILED, -EEXIST,
				"%s has a cowfs log already, made %s: --force makes a new one",
				path, format_time(f->super.created_s));
	if (e != -EBADMSG && e != -EPROTONOSUPPORT && e != -ERANGE)
		return cmd_fail(o, EXIT_FAILED, e, "%s cannot be read: %s", path,
				strerrordesc_np(-e));
	if (has_option(o, OPT_FORCE))
		return EXIT_OK;
	return cmd_fail(o, EXIT_FAILED, e,
			"%s has a cowfs log %s: --force makes a new one and gives up what it holds",
			path,
			e == -EBADMSG  ? "whose super record is damaged"
			: e == -ERANGE ? "that was made for a larger device"
				       : "of a newer format");
}

static int plan(const struct options *o, struct offline *f, uint64_t log_bytes,
		struct log_super *ret)
{
	bool external = f->log_card != f->base;
	uint64_t short_bytes = 0;
	int e = super_plan(f->base, f->log_card,
			   external ? f->base->geo.size_bytes : f->fs.size_bytes, log_bytes, ret,
			   &short_bytes);

	if (e == -ENOSPC)
		return explain_no_room(o, f, log_bytes, short_bytes);
	if (e == -EINVAL)
		return cmd_fail(o, EXIT_USAGE, e,
				"a log of %s is too small or too large for erase blocks of %s: at "
				"least 8 of them are good",
				o->value[OPT_LOG_SIZE] ? o->value[OPT_LOG_SIZE]
						       : "the default size",
				FORMAT_SIZE(f->log_card->geo.erase_block_bytes));
	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e, "cannot lay out the log: %s",
				strerrordesc_np(-e));
	memcpy(ret->fs_uuid, f->fs.uuid, sizeof(ret->fs_uuid));
	ret->lag = format_lag(o);
	return EXIT_OK;
}

static int write_log(const struct options *o, struct offline *f, struct log_super *s)
{
	int e = card_set_writable(f->log_card, true), off;

	if (e == 0)
		e = super_write(f->log_card, s);
	off = card_set_writable(f->log_card, false);
	if (e == 0)
		e = off;
	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e, "%s cannot be written: %s",
				f->log_card->geo.path, strerrordesc_np(-e));
	return EXIT_OK;
}

/* What a log as small as this one means where all changes may have to go through it. */
static void report_whole(const struct offline *f, const struct log_super *s)
{
	uint64_t capacity = super_capacity_blks(s);
	unsigned kb = pressure_requests(capacity).kb;

	if (fs_ops(f->fs.kind)->counts_on_free)
		return;
	if (!f->fs.can_freeze) {
		printf("warning: all that is written to the %s between two unmounts has to fit into the log, %s\n",
		       f->fs.type, FORMAT_SIZE(blk_to_bytes(pressure_ring_fits(capacity))));
		return;
	}
	printf("  %-14s all changes of %s may have to go through the log: it commits by itself from %s on\n",
	       "commits", f->fs.type, FORMAT_SIZE(blk_to_bytes(pressure_ring_commits(capacity))));
	if (!pressure_ring_suffices(capacity))
		printf("warning: the log is so small that a burst of writes can make a commit impossible: at least 16 MiB are "
		       "good\n");
	else if (kb < SMALL_REQUEST_KB)
		printf("warning: with so small a log writes go in pieces of %u KiB, and commits are frequent; a log of %s "
		       "has neither\n",
		       kb, FORMAT_SIZE(WHOLE_LOG_MAX_BYTES));
}

static void report(const struct options *o, const struct offline *f, const struct log_super *s)
{
	uint64_t ring_bytes = (uint64_t)s->seg_bytes * s->seg_count;
	char text[2048];
	struct jsonw w;

	if (has_option(o, OPT_JSON)) {
		jsonw_init(&w, text, sizeof(text));
		answer_ok(&w);
		jsonw_str(&w, "device", f->base->geo.path);
		jsonw_str(&w, "log_device", f->log_card->geo.path);
		jsonw_str(&w, "fs_type", f->fs.type);
		jsonw_u64(&w, "volume_bytes", s->fs_bytes);
		jsonw_u64(&w, "log_offset_bytes", s->ring_off_bytes);
		jsonw_u64(&w, "log_bytes", ring_bytes);
		jsonw_u64(&w, "segment_bytes", s->seg_bytes);
		jsonw_u64(&w, "erase_block_bytes", s->erase_block_bytes);
		jsonw_u64(&w, "lag", s->lag);
		jsonw_bool(&w, "inline_data", f->fs.inline_data);
		jsonw_finish(&w);
		fputs(text, stdout);
		return;
	}
	printf("%s: an empty log was written\n", f->log_card->geo.path);
	printf("  %-14s %s of %s%s\n", "file system", f->fs.type, FORMAT_SIZE(s->fs_bytes),
	       s->external || f->fs.size_bytes <= s->fs_bytes ? ", untouched" : "");
	printf("  %-14s %s at %s, %u segments of %s\n", "log", FORMAT_SIZE(ring_bytes),
	       FORMAT_SIZE(s->ring_off_bytes), s->seg_count, FORMAT_SIZE(s->seg_bytes));
	printf("  %-14s %s%s\n", "erase block", FORMAT_SIZE(s->erase_block_bytes),
	       s->eb_source == CARD_EB_GUESSED	  ? " (guessed; --erase-block if you know better)"
	       : s->eb_source == CARD_EB_REPORTED ? " (as the card says)"
						  : "");
	if (s->lag)
		printf("  %-14s %u: the commit before the newest is kept, in case the card loses "
		       "that\n",
		       "lag", s->lag);
	report_whole(f, s);
	if (!f->fs.can_freeze)
		printf("  %s cannot be frozen: it commits only while it is not mounted\n",
		       f->fs.type);
	if (f->fs.inline_data)
		printf("warning: the ext4 has the feature inline_data. Linux 6.18 can deadlock with it "
		       "and a small journal,\n  and sync then hangs on the whole machine. Make the file "
		       "system with -O ^inline_data\n");
	printf("protect it with: cowctl attach %s%s%s\n", f->base->geo.path,
	       s->external ? " --log " : "", s->external ? f->log_card->geo.path : "");
}

/* Is there room behind the file system as it is? */
static bool has_room(const struct offline *f, uint64_t log_bytes)
{
	uint64_t short_bytes;
	struct log_super s;

	return super_plan(f->base, f->base, f->fs.size_bytes, log_bytes, &s, &short_bytes) !=
	       -ENOSPC;
}

/*
 * Of ext the log holds what changes in place, of the others it may be all that changes: the larger
 * it is, the larger commits and requests may be. A share of the file system, if there is so much
 * room. 0: the general default.
 */
static uint64_t default_log_bytes(const struct offline *f)
{
	bool external = f->log_card != f->base;
	uint64_t fs_bytes = external ? f->base->geo.size_bytes : f->fs.size_bytes, least,
		 short_bytes;
	struct log_super s;

	if (fs_ops(f->fs.kind)->counts_on_free ||
	    super_plan(f->base, f->log_card, fs_bytes, 0, &s, &short_bytes) < 0)
		return 0;
	least = (uint64_t)s.seg_bytes * s.seg_count;
	for (uint64_t n = min_u64(fs_bytes / WHOLE_LOG_SHARE, WHOLE_LOG_MAX_BYTES); n > least;
	     n -= min_u64(n, 4 * MIB))
		if (super_plan(f->base, f->log_card, fs_bytes, n, &s, &short_bytes) == 0)
			return n;
	return 0;
}

static int journal_size(const struct options *o, uint64_t *ret)
{
	const char *text = o->value[OPT_JOURNAL_SIZE];

	*ret = DEFAULT_JOURNAL_BYTES;
	if (text && !has_option(o, OPT_SHRINK))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--journal-size goes with --shrink");
	if (text && (parse_size(text, ret) < 0 || *ret < 4 * MIB || *ret > GIB || *ret % MIB))
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"--journal-size %s is not a whole number of MiB, at least 4M",
				text);
	if (has_option(o, OPT_SHRINK) && has_option(o, OPT_LOG))
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"--shrink makes room on DEVICE itself, --log needs none there");
	return EXIT_OK;
}

static void report_shrink(const struct options *o, const struct offline *f,
			  const struct shrink_report *rep)
{
	const struct log_super *s = &rep->super;
	const struct commit_report *c = &rep->commit;
	uint64_t written = f->base->account.written_bytes;
	char text[2048];
	struct jsonw w;

	if (!has_option(o, OPT_JSON)) {
		printf("%s: the file system was made smaller: %s, it was %s\n", f->base->geo.path,
		       FORMAT_SIZE(s->fs_bytes), FORMAT_SIZE(f->fs.size_bytes));
		printf("  %-14s %s blocks in place, %s through a log of %s; %s written in all\n",
		       "commit", with_commas(c->direct), with_commas(c->logged + c->zero),
		       FORMAT_SIZE(rep->ring_bytes), FORMAT_SIZE(written));
		report(o, f, s);
		return;
	}
	jsonw_init(&w, text, sizeof(text));
	answer_ok(&w);
	jsonw_str(&w, "device", f->base->geo.path);
	jsonw_u64(&w, "volume_bytes", s->fs_bytes);
	jsonw_u64(&w, "shrunk_from_bytes", f->fs.size_bytes);
	jsonw_u64(&w, "log_offset_bytes", s->ring_off_bytes);
	jsonw_u64(&w, "log_bytes", (uint64_t)s->seg_bytes * s->seg_count);
	jsonw_u64(&w, "segment_bytes", s->seg_bytes);
	jsonw_u64(&w, "erase_block_bytes", s->erase_block_bytes);
	jsonw_u64(&w, "direct_blocks", c->direct);
	jsonw_u64(&w, "logged_blocks", c->logged);
	jsonw_u64(&w, "zero_blocks", c->zero);
	jsonw_u64(&w, "home_blocks", rep->home_blks);
	jsonw_u64(&w, "written_bytes", written);
	if (jsonw_finish(&w))
		fputs(text, stdout);
}

static int prepare(struct offline *f, const struct options *o, uint64_t log_bytes,
		   uint32_t eb_bytes, struct shrink_report *ret_shrink)
{
	int exit = offline_open(f, o, BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE, eb_bytes);

	if (exit == EXIT_OK)
		exit = check_log_device(o, f);
	/* before the file system is looked at: a shrink that was cut off may have left it without a
	 * superblock */
	if (exit == EXIT_OK)
		exit = check_old_log(o, f, ret_shrink);
	if (exit == EXIT_OK && !ret_shrink->committed)
		exit = check_fs(o, f, log_bytes);
	return exit;
}

static int format(struct offline *f, const struct options *o)
{
	struct shrink_report shrunk = { 0 };
	struct log_super s;
	uint64_t log_bytes = 0, journal_bytes;
	uint32_t eb_bytes = 0;
	int exit = parse_arguments(o, &log_bytes, &eb_bytes);

	if (exit == EXIT_OK)
		exit = journal_size(o, &journal_bytes);
	if (exit == EXIT_OK)
		exit = prepare(f, o, log_bytes, eb_bytes, &shrunk);
	if (exit != EXIT_OK)
		return exit;
	if (!shrunk.committed && has_option(o, OPT_SHRINK) && !has_room(f, log_bytes)) {
		exit = shrink_run(o, f, offline_room_for_fs(f, log_bytes), journal_bytes, &shrunk);
		if (exit != EXIT_OK)
			return exit;
	}
	if (shrunk.committed) {
		report_shrink(o, f, &shrunk);
		return EXIT_OK;
	}
	if (!log_bytes)
		log_bytes = default_log_bytes(f);
	exit = plan(o, f, log_bytes, &s);
	if (exit == EXIT_OK)
		exit = write_log(o, f, &s);
	if (exit == EXIT_OK)
		report(o, f, &s);
	return exit;
}

int cmd_format(const struct options *o)
{
	struct offline f = { 0 };
	int exit = format(&f, o);

	offline_close(&f);
	return exit;
}
