/* SPDX-License-Identifier: MIT */
/* Opens card and log for the operations that work without a daemon. */
#include "offline/offline.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/boxed.h"
#include "base/clean.h"
#include "base/io.h"
#include "base/mounts.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/util.h"
#include "card/blockdev.h"
#include "card/disk.h"
#include "wire/client.h"

#define BUSY_NS 1000000000ull
#define BUSY_LOOK_US 20000

/* False: nobody knows by whom. */
static bool explain_busy(struct failure *fail, const char *path)
{
	char name[RUNDIR_NAME_BYTES], where[PATH_MAX], why[2 * PATH_MAX];
	const char *what = path_strerror(path, -EBUSY, why, sizeof(why));

	client_find_device(path, name);
	if (*name)
		failure(fail, -EBUSY, "%s is attached as volume %s: detach it first", path, name);
	else if (mounts_device_is_on(NULL, path, where))
		failure(fail, -EBUSY, "%s is mounted on %s: unmount it first", path,
			clean_text(where));
	else if (what == why)
		failure(fail, -EBUSY, "%s: %s", path, why);
	else if (disk_holder(path, where, sizeof(where)))
		failure(fail, -EBUSY, "%s is in use by %s (LVM, LUKS or RAID)", path, where);
	else {
		failure(fail, -EBUSY,
			"%s is in use by something else (a view, swap, LVM, RAID, another program)",
			path);
		return false;
	}
	return true;
}

/* The lock on an image file does not show who uses it through a loop device. */
static int check_loops(const char *path, struct failure *fail)
{
	static const char *const dir = "/sys/block/";
	char name[PATH_MAX], backing[PATH_MAX], device[64], why[2 * PATH_MAX];
	glob_t g;
	int e = 0;

	if (path_name(path, name, why, sizeof(why)) < 0 ||
	    glob("/sys/block/loop*/loop/backing_file", 0, NULL, &g))
		return 0;
	for (size_t i = 0; i < g.gl_pathc && e == 0; i++) {
		const char *loop = g.gl_pathv[i] + strlen(dir);
		char volume[RUNDIR_NAME_BYTES];

		/* only the text: to look the name up might wait for a file system of a user */
		if (io_read_text(AT_FDCWD, g.gl_pathv[i], backing, sizeof(backing)) < 0 ||
		    strcmp(backing, name))
			continue;
		snprintf(device, sizeof(device), "/dev/%.*s", (int)strcspn(loop, "/"), loop);
		client_find_device(device, volume);
		e = *volume ? failure(fail, -EBUSY, "%s is attached as volume %s: detach it first",
				      path, volume)
			    : failure(fail, -EBUSY,
				      "%s is in use by %s: name that device, or remove it with "
				      "losetup -d %s",
				      path, device, device);
	}
	globfree(&g);
	return e;
}

static int open_card(struct card **ret, const char *path, unsigned flags,
		     uint32_t erase_block_bytes, struct failure *fail)
{
	const struct card_options opt = { .erase_block_bytes = erase_block_bytes };
	uint64_t end_ns = now_ns() + BUSY_NS;
	char why[2 * PATH_MAX];
	struct stat st;
	int e = flags & BLOCKDEV_EXCL ? check_loops(path, fail) : 0;

	if (e < 0)
		return e;
	/* what served a view of it ends a moment later than its mount */
	while ((e = blockdev_open(ret, path, flags, &opt)) == -EBUSY && !explain_busy(fail, path) &&
	       now_ns() < end_ns)
		usleep(BUSY_LOOK_US);
	switch (e) {
	case 0:
	case -EBUSY:
		return e;
	case -ENOTBLK:
		return failure(fail, e, "%s is %s", path,
			       flags & BLOCKDEV_ALLOW_FILE
				       ? "neither a block device nor an image file"
				       : "not a block device");
	case -EROFS:
		return failure(fail, e, CARD_LOCKED, path);
	case -ENXIO:
		return failure(fail, e,
			       stat(path, &st) == 0 && S_ISREG(st.st_mode)
				       ? "%s: too small to be the image of a card"
				       : "%s: no card in the reader",
			       path);
	default:
		return failure(fail, e, "%s: %s", path, path_strerror(path, e, why, sizeof(why)));
	}
}

uint64_t offline_room_for_fs(const struct offline *f, uint64_t log_bytes)
{
	uint64_t size = round_down_u64(f->base->geo.size_bytes, COW_BLK_BYTES), short_bytes = 0;
	struct log_super s;

	/* alignment makes "short" depend on the end of the file system: a few steps converge */
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

int offline_lock(struct card *c, int e)
{
	int off = card_set_writable(c, false);

	return e < 0 ? e : off;
}

uint64_t offline_written_bytes(const struct offline *f)
{
	return f->base->account.written_bytes +
	       (f->log_card != f->base ? f->log_card->account.written_bytes : 0);
}

int offline_open(struct offline *f, const char *device, const char *log_device, unsigned flags,
		 uint32_t erase_block_bytes, struct failure *fail)
{
	struct blk_reader r;
	int e;

	*f = (struct offline){ .device = device, .log_device = log_device };
	if (log_device && client_same_device(device, log_device))
		return failure_set(fail, EXIT_USAGE, -EINVAL,
				   "--log must name another device than %s", device);
	client_find_device(device, f->attached);
	/* --erase-block describes the card that holds the log */
	e = open_card(&f->base, device, flags, log_device ? 0 : erase_block_bytes, fail);
	if (e < 0)
		return e;
	f->log_card = f->base;
	if (log_device) {
		f->log_card = NULL;
		e = open_card(&f->log_card, log_device, flags, erase_block_bytes, fail);
		if (e < 0)
			return e;
	}
	r = super_reader(f->base);
	e = fsinfo_probe(&r, &f->fs);
	return e < 0 ? failure(fail, e, "%s cannot be read: %s", device, strerrordesc_np(-e)) : 0;
}

int offline_check_use(const struct offline *f, struct failure *fail)
{
	_cleanup_close_ int fd = -1;

	if (*f->attached)
		return failure(fail, -EBUSY, "%s is attached as volume %s", f->device, f->attached);
	if (check_loops(f->device, fail) < 0)
		return -EBUSY;
	if (mounts_device_is_on(NULL, f->device, NULL))
		return 0;
	fd = open(f->device, O_RDONLY | O_EXCL | O_CLOEXEC | O_NONBLOCK);
	return fd < 0 && errno == EBUSY ? explain_busy(fail, f->device) : 0;
}

int offline_cannot_read(const char *name, int error, struct failure *fail)
{
	return failure(fail, error, "%s: cannot be read: %s", name, boxed_error(error));
}

int offline_explain_small(const struct offline *f, struct failure *fail)
{
	const char *path = f->log_card->geo.path;

	return failure(fail, -ERANGE, SUPER_TOO_SMALL, path,
		       (unsigned long long)super_least_bytes(&f->super), path,
		       (unsigned long long)f->super.copy_off_bytes[0] / COW_BLK_BYTES);
}

static int explain_super(const struct offline *f, int e, struct failure *fail)
{
	const char *path = f->log_card->geo.path;

	switch (e) {
	case -ESTALE:
		return failure(
			fail, e,
			"%s: the file system was enlarged without cowfs (%s, was %s) and has "
			"overwritten its log. For a new log: cowctl prepare --shrink %s",
			path, FORMAT_MIB(f->fs.size_bytes), FORMAT_MIB(f->super.fs_bytes), path);
	case -ENOENT:
		if (f->trouble & SUPER_CUT_OFF)
			return failure(
				fail, e,
				"%s: no cowfs log. If you started a shrink, it was interrupted "
				"before its commit and changed nothing: run cowctl prepare "
				"--shrink %s again",
				path, path);
		return failure(fail, e, "%s: no cowfs log%s%s", path,
			       !f->log_device && super_log_missing(f->base)
				       ? ", and " SUPER_LOG_MISSING
				       : "",
			       f->log_device ? "" : " (if it is on another device: --log DEVICE)");
	case -EBADMSG:
		return failure(
			fail, e,
			"%s: both superblocks of the log are damaged, so its place is unknown; "
			"nothing was changed",
			path);
	case -EPROTONOSUPPORT:
		return failure(fail, e,
			       "%s: the log has format %u or features that this version does not "
			       "support: use the cowfs that made it",
			       path, f->super.version);
	case -EXDEV:
		return failure(fail, e, SUPER_MEMBER, f->device);
	case -ERANGE:
		return offline_explain_small(f, fail);
	default:
		return failure(fail, e, "%s: cannot read the superblock of the log: %s", path,
			       boxed_error(e));
	}
}

int offline_find_log(struct offline *f, struct failure *fail)
{
	unsigned flags = f->log_flags & LOG_ANY_BASE ? SUPER_ANY_HOME : 0;
	int e = super_find(f->base, f->log_card, &f->fs, flags, &f->super, &f->trouble);

	if (e < 0)
		return explain_super(f, e, fail);
	if (f->super.external && !f->log_device)
		return failure_set(
			fail, EXIT_USAGE, -EINVAL,
			"%s: holds the log of another device: name that device, and this one "
			"with --log",
			f->device);
	if (!f->super.external && f->log_device)
		return failure_set(fail, EXIT_USAGE, -EINVAL,
				   "%s: its log belongs to its own file system",
				   f->log_card->geo.path);
	if (f->super.fs_bytes > f->base->geo.size_bytes)
		return failure(fail, -ERANGE, SUPER_BASE_TOO_SMALL, f->device,
			       (unsigned long long)f->super.base_bytes);
	return 0;
}

int offline_explain_another(const struct offline *f, struct failure *fail)
{
	return failure(fail, -ESTALE,
		       "%s: this log belongs to another file system than the one on %s. To use "
		       "it for this one: cowctl prepare --force %s --log %s",
		       f->log_card->geo.path, f->device, f->device, f->log_card->geo.path);
}

int offline_open_log(struct offline *f, struct failure *fail)
{
	int e = offline_find_log(f, fail);

	if (e < 0)
		return e;
	e = log_open(&f->log, f->base, f->log_card, &f->super, f->log_flags, NULL, &f->report);
	if (e < 0)
		return failure(fail, e,
			       e == -EIO ? LOG_CANNOT_BE_READ : "%s: cannot read the log: %s",
			       f->log_card->geo.path, strerrordesc_np(-e));
	if (log_of_another(f->log, &f->report, &f->fs))
		return offline_explain_another(f, fail);
	log_mend_super(f->log, f->trouble);
	return 0;
}

void offline_close(struct offline *f)
{
	if (f->log)
		log_close(f->log);
	if (f->log_card != f->base)
		card_close(f->log_card);
	card_close(f->base);
	*f = (struct offline){ 0 };
}

int offline_end(struct offline *f, int r, const char *now, struct failure *fail)
{
	const struct card *lost = card_which_lost(f->base, f->log_card, r);

	if (lost)
		r = failure_set(fail, EXIT_AWAY, -ENOMEDIUM, CARD_LOST, lost->geo.path,
				f->log_card && offline_written_bytes(f) ? now
									: "Nothing was written");
	offline_close(f);
	return r;
}
