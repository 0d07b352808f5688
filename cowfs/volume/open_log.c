/* SPDX-License-Identifier: MIT */
/* Opening: the devices, the log on them, and what it says about the file system. */
#include "volume/opening.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/msg.h"
#include "base/parse.h"
#include "base/path.h"
#include "card/blockdev.h"
#include "commit/shrink.h"
#include "fs/fs_ops.h"

static bool is_file(const char *path)
{
	char why[2 * PATH_MAX];
	_cleanup_close_ int fd = path_open(path, O_PATH, why, sizeof(why));
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

int volume_open_device(struct card **ret, unsigned card, const char *path, uint32_t eb_bytes,
		       char *why, size_t n)
{
	struct card_options opt = { .erase_block_bytes = eb_bytes };
	int r = blockdev_open(ret, path, BLOCKDEV_EXCL, &opt);
	char link[2 * PATH_MAX];
	const char *layer;

	if (r == -ENOTBLK && is_file(path))
		return msg_why(why, n, r,
			       "%s is not a block device (an image file: losetup -f --show %s)",
			       path, path);
	if (r == -ENOTBLK)
		return msg_why(why, n, r, "%s is not a block device", path);
	if (r == -EBUSY)
		return msg_why(why, n, r, "%s is mounted or in use", path);
	if (r == -ENXIO)
		return msg_why(why, n, r, "%s: no card in the reader", path);
	if (r < 0)
		return msg_why(why, n, r, "%s: %s", path,
			       path_strerror(path, r, link, sizeof(link)));
	blockdev_through_broker(*ret, card);
	layer = blockdev_layer(path);
	if (layer)
		msg(MSG_NOTICE, CARD_LAYER, path, layer);
	return 0;
}

static int read_committed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return view_read_committed(ctx, blk, blks, buf);
}

static const char *explain(int error)
{
	return error == -EOWNERDEAD ? FSINFO_DIED : strerror(-error);
}

/* Finishes a shrink that was interrupted after its commit, before anything else. This is the only
 * case in which an attach writes. */
static int finish_shrink(struct volume *v, struct log_super *super, unsigned *trouble, char *why,
			 size_t n)
{
	const struct commit_options opt = { .cause = CAUSE_RECOVER };
	struct shrink_report rep;
	int r = shrink_finish(v->base, super, 0, &opt, &rep);

	if (r < 0)
		return msg_why(
			why, n, r,
			"%s: a shrink was interrupted after its commit and cannot be finished "
			"(%s): see cowctl check",
			v->device, rep.why);
	msg(MSG_NOTICE, "%s: an interrupted shrink is finished", v->device);
	return super_read(v->base, rep.super.fs_bytes, super, trouble);
}

/* r: return value of super_find. */
static int explain_super(const struct volume *v, const struct log_super *super,
			 const struct fsinfo *fs, unsigned trouble, int r, char *why, size_t n)
{
	const char *where = v->log_card == v->base ? v->device : v->log_device;

	if (r == -ENOENT && (trouble & SUPER_CUT_OFF))
		return msg_why(
			why, n, r,
			"%s: no cowfs log. If you started a shrink, it was interrupted before "
			"its commit and changed nothing: run cowctl prepare --shrink %s again",
			where, v->device);
	if (r == -ESTALE)
		return msg_why(
			why, n, r,
			"%s: the file system was enlarged without cowfs (%s, was %s) and has "
			"overwritten its log: run cowctl prepare --shrink %s",
			v->device, FORMAT_MIB(fs->size_bytes), FORMAT_MIB(super->fs_bytes),
			v->device);
	if (r == -ENOENT && v->log_card == v->base && super_log_missing(v->base))
		return msg_why(why, n, r,
			       "%s: no cowfs log, and " SUPER_LOG_MISSING
			       ": name the device that has it with --log. "
			       "If that log is lost: see cowctl prepare %s",
			       v->device, v->device);
	if (r == -ENOENT && v->log_card == v->base)
		return msg_why(
			why, n, r,
			"%s: no cowfs log: run cowctl prepare %s first ('cowctl card' shows how), or name the device that "
			"has the log with --log",
			where, v->device);
	if (r == -ENOENT)
		return msg_why(why, n, r, "%s: no cowfs log for %s", where, v->device);
	if (r == -EBADMSG || r == -EUCLEAN)
		return msg_why(why, n, -EBADMSG, "%s: both superblocks of the log are damaged",
			       where);
	if (r == -EPROTONOSUPPORT)
		return msg_why(
			why, n, r,
			"%s: the log was made by another version of cowfs (format %u, features %llx/%llx)",
			where, super->version, (unsigned long long)super->ro_compat,
			(unsigned long long)super->incompat);
	if (r == -EXDEV)
		return msg_why(why, n, r, SUPER_MEMBER, v->device);
	if (r == -ERANGE)
		return msg_why(why, n, r, SUPER_TOO_SMALL, where,
			       (unsigned long long)super_least_bytes(super), where,
			       (unsigned long long)super->copy_off_bytes[0] / COW_BLK_BYTES);
	return msg_why(why, n, r, "%s: superblock of the log: %s", where, strerror(-r));
}

/* Does what opening has found let a volume work? */
static int check_report(const struct volume *v, const char *where, char *why, size_t n)
{
	if (v->opened.needs_older)
		return msg_why(why, n, -EUCLEAN, "%s: %s; nothing was written", where,
			       v->opened.why);
	if (v->opened.state == LOG_BROKEN)
		return msg_why(why, n, -EUCLEAN, "%s: the log is damaged (%s): see cowctl check",
			       where, v->opened.why);
	return 0;
}

int volume_open_log(struct volume *v, unsigned flags, char *why, size_t n)
{
	struct blk_reader home = super_reader(v->base);
	const char *where = v->log_card == v->base ? v->device : v->log_device;
	struct log_super super;
	struct fsinfo fs;
	unsigned trouble;
	int r = fsinfo_probe(&home, &fs);

	if (r < 0)
		return msg_why(why, n, r, "%s: cannot be read: %s", v->device, explain(r));
	r = super_find(v->base, v->log_card, &fs, 0, &super, &trouble);
	if (r < 0)
		return explain_super(v, &super, &fs, trouble, r, why, n);
	if (super.state == SUPER_PENDING && v->log_card == v->base) {
		r = finish_shrink(v, &super, &trouble, why, n);
		if (r < 0)
			return r;
		r = fsinfo_probe(&home, &fs); /* the file system is smaller now */
		if (r < 0)
			return msg_why(why, n, r, "%s: cannot be read: %s", v->device, explain(r));
	}
	if (super.external != (v->log_card != v->base))
		return msg_why(why, n, -EINVAL,
			       super.external
				       ? "%s: keeps its log on another device: name it with --log"
				       : "%s: its log belongs to its own file system",
			       where);
	if (super.base_bytes > v->base->geo.size_bytes)
		return msg_why(why, n, -ERANGE, SUPER_BASE_TOO_SMALL, v->device,
			       (unsigned long long)super.base_bytes);
	r = log_open(&v->log, v->base, v->log_card, &super, flags, v->kept ? &v->kept->mark : NULL,
		     &v->opened);
	if (r < 0)
		return msg_why(why, n, r,
			       r == -EIO ? LOG_CANNOT_BE_READ : "%s: cannot read the log: %s",
			       where, explain(r));
	if (log_of_another(v->log, &v->opened, &fs))
		return msg_why(
			why, n, -ESTALE,
			"%s: this log belongs to another file system than the one on %s. To use "
			"it for this one: cowctl prepare --force %s --log %s",
			where, v->device, v->device, where);
	log_mend_super(v->log, trouble);
	r = check_report(v, where, why, n);
	if (r < 0)
		return r;
	if (!v->base->geo.eb_source)
		v->base->geo.erase_block_bytes = super.erase_block_bytes;
	v->volume_blks = super.fs_bytes / COW_BLK_BYTES;
	return 0;
}

struct blk_reader volume_committed(struct volume *v)
{
	return (struct blk_reader){ .read = read_committed,
				    .ctx = v->view,
				    .volume_blks = v->volume_blks };
}

int volume_check_fs(const struct volume *v, const struct fsinfo *fs, char *why, size_t n)
{
	const char *refusal = fsinfo_refusal(fs);

	return refusal ? msg_why(why, n, -EOPNOTSUPP, "%s: %s", v->device, refusal) : 0;
}

/* Requirements of the committed file system. */
int volume_probe_fs(struct volume *v, char *why, size_t n)
{
	struct blk_reader r = volume_committed(v);
	int e = fsinfo_probe(&r, &v->fs);

	if (e < 0)
		return msg_why(why, n, e, "%s: cannot be read: %s", v->device, explain(e));
	return volume_check_fs(v, &v->fs, why, n);
}
