/* SPDX-License-Identifier: MIT */
/* Card and log for the commands that work without a daemon: format, check, recover. */
#include "base/mounts.h"
#include "cli/cmd.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"
#include "card/blockdev.h"

static int explain_busy(const struct options *o, const char *path)
{
	char name[RUNDIR_NAME_BYTES], where[PATH_MAX];

	client_find_device(path, name);
	if (*name)
		return cmd_fail(o, EXIT_FAILED, -EBUSY,
				"%s is attached as volume %s: detach it first", path, name);
	if (mounts_device_is_on(NULL, path, where))
		return cmd_fail(o, EXIT_FAILED, -EBUSY, "%s is mounted on %s: unmount it first",
				path, clean_text(where));
	return cmd_fail(o, EXIT_FAILED, -EBUSY,
			"%s is in use by something else (swap, LVM, RAID, another program)", path);
}

static int open_card(struct card **ret, const struct options *o, const char *path, unsigned flags,
		     uint32_t erase_block_bytes)
{
	const struct card_options opt = { .erase_block_bytes = erase_block_bytes };
	int e = blockdev_open(ret, path, flags, &opt);

	switch (e) {
	case 0:
		return EXIT_OK;
	case -EBUSY:
		return explain_busy(o, path);
	case -ENOTBLK:
		return cmd_fail(o, EXIT_FAILED, e, "%s is not a block device (nor an image file)",
				path);
	case -EROFS:
		return cmd_fail(o, EXIT_FAILED, e, "%s is write-protected", path);
	case -ENXIO:
		return cmd_fail(o, EXIT_FAILED, e, "%s: there is no card in it", path);
	default:
		return cmd_fail(o, EXIT_FAILED, e, "%s: %s", path, strerrordesc_np(-e));
	}
}

static int read_card(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return card_read(ctx, blk_to_bytes(blk), buf, blk_to_bytes(blks));
}

struct blk_reader offline_reader(struct card *c)
{
	return (struct blk_reader){ .read = read_card,
				    .ctx = c,
				    .volume_blks = c->geo.size_bytes >> COW_BLK_SHIFT };
}

uint64_t offline_room_for_fs(const struct offline *f, uint64_t log_bytes)
{
	uint64_t size = round_down_u64(f->base->geo.size_bytes, COW_BLK_BYTES), short_bytes = 0;
	struct log_super s;

	/* alignment makes "short" depend on where the file system ends: a few steps settle it */
	for (int i = 0; i < 8; i++) {
		int e = super_plan(f->base, f->base, size, log_bytes, &s, &short_bytes);

		if (e == 0)
			return round_down_u64(size, MIB);
		if (e != -ENOSPC || short_bytes >= size)
			return 0;
		size -= round_up_u64(short_bytes, COW_BLK_BYTES);
	}
	return 0;
}

int offline_open(struct offline *f, const struct options *o, unsigned flags,
		 uint32_t erase_block_bytes)
{
	const char *log_path = o->value[OPT_LOG];
	struct blk_reader r;
	int e, exit;

	*f = (struct offline){ 0 };
	if (log_path && client_same_device(o->operand[0], log_path))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--log is for another device than %s",
				o->operand[0]);
	client_find_device(o->operand[0], f->attached);
	/* what --erase-block tells is the card that the log lies on */
	exit = open_card(&f->base, o, o->operand[0], flags, log_path ? 0 : erase_block_bytes);
	if (exit != EXIT_OK)
		return exit;
	f->log_card = f->base;
	if (log_path) {
		f->log_card = NULL;
		exit = open_card(&f->log_card, o, log_path, flags, erase_block_bytes);
		if (exit != EXIT_OK)
			return exit;
	}
	r = offline_reader(f->base);
	e = fsinfo_probe(&r, &f->fs);
	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e, "%s cannot be read: %s", o->operand[0],
				strerrordesc_np(-e));
	return EXIT_OK;
}

static int explain_super(const struct options *o, int e, const struct offline *f)
{
	const char *path = f->log_card->geo.path;

	switch (e) {
	case -ESTALE:
		return cmd_fail(o, EXIT_FAILED, e,
				"the file system on %s was made larger without cowfs (%s, it was "
				"%s) and lies over its log, which is void now. For a new one: "
				"cowctl format --shrink %s",
				path, FORMAT_SIZE(f->fs.size_bytes), FORMAT_SIZE(f->super.fs_bytes),
				path);
	case -ENOENT:
		if (f->trouble & SUPER_CUT_OFF)
			return cmd_fail(
				o, EXIT_FAILED, e,
				"there is no cowfs log on %s. If a shrink was begun: it was "
				"cut off before its commit, the file system is as it was; "
				"run cowctl format --shrink %s again",
				path, path);
		return cmd_fail(o, EXIT_FAILED, e, "there is no cowfs log on %s%s", path,
				has_option(o, OPT_LOG)
					? ""
					: " (is it on another device? then say --log DEVICE)");
	case -EBADMSG:
		return cmd_fail(o, EXIT_FAILED, e,
				"both copies of the super record on %s are damaged: where the log "
				"lies is not known, "
				"nothing was changed",
				path);
	case -EPROTONOSUPPORT:
		return cmd_fail(
			o, EXIT_FAILED, e,
			"the log on %s has format %u or features that this version does not know: "
			"use a newer cowfs",
			path, f->super.version);
	case -ERANGE:
		return cmd_fail(o, EXIT_FAILED, e,
				"%s is smaller (%s) than its log says: it was copied from a larger "
				"card, and a part is "
				"missing",
				path, FORMAT_SIZE(f->log_card->geo.size_bytes));
	default:
		return cmd_fail(o, EXIT_FAILED, e, "the super record on %s cannot be read: %s",
				path, strerrordesc_np(-e));
	}
}

int offline_open_log(struct offline *f, const struct options *o)
{
	unsigned flags = f->log_flags & LOG_ANY_BASE ? SUPER_ANY_HOME : 0;
	int e = super_find(f->base, f->log_card, &f->fs, flags, &f->super, &f->trouble);

	if (e < 0)
		return explain_super(o, e, f);
	if (f->super.external && !has_option(o, OPT_LOG))
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"%s holds the log of another device: give that one, and this one "
				"with --log",
				o->operand[0]);
	if (!f->super.external && has_option(o, OPT_LOG))
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"%s is no log device: the log on it belongs to its own file system",
				f->log_card->geo.path);
	if (f->super.fs_bytes > f->base->geo.size_bytes)
		return cmd_fail(o, EXIT_FAILED, -ERANGE,
				"%s is smaller than the volume that its log belongs to",
				o->operand[0]);
	e = log_open_lent(&f->log, f->base, f->log_card, &f->super, f->log_flags, f->lent,
			  &f->report);
	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e, "the log on %s cannot be read: %s",
				f->log_card->geo.path, strerrordesc_np(-e));
	if (log_of_another(f->log, &f->report, &f->fs))
		return cmd_fail(o, EXIT_FAILED, -ESTALE,
				"the log on %s was made for another file system than the one on "
				"%s: if this one is meant, run cowctl format --force %s --log %s",
				f->log_card->geo.path, o->operand[0], o->operand[0],
				f->log_card->geo.path);
	log_mend_super(f->log, f->trouble);
	return EXIT_OK;
}

void offline_close(struct offline *f)
{
	if (f->log)
		log_close(f->log);
	card_close(f->lent);
	if (f->log_card != f->base)
		card_close(f->log_card);
	card_close(f->base);
	*f = (struct offline){ 0 };
}
