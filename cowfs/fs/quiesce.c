/* SPDX-License-Identifier: MIT */
/*
 * Syncs, waits for a moment at which the image is whole or freezes, seals, thaws.
 *
 * Notes on the design
 * - A descriptor on a mount makes umount fail ("target is busy"). So the sync is BLKFLSBUF of the loop
 *   device: the kernel finds the file system of the device by itself, and an unmount waits for the end.
 *   Before Linux 6.17 it does not find a btrfs.
 * - Checkpoint, freeze and thaw need a descriptor of the file system: mount_again.h.
 * - A journal that is already empty is not written. Then this code changes the time stamp of the
 *   mount's root directory and tries again. That is rare: without a transaction since the last
 *   commit only the content of files has changed in place.
 * - A freeze waits for every write under way, and all writers wait for it. So it is used only where
 *   there is no other moment at which the image is whole.
 * - The supervisor gets the descriptor before FIFREEZE. Otherwise the death of this process right
 *   after FIFREEZE would leave the file system frozen forever.
 */
#include "fs/quiesce.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

#include "base/holder.h"
#include "fs/find_mount.h"
#include "fs/freezer.h"
#include "fs/mount_again.h"

#define TOUCH_NS (2 * 1000000000ull)
#define INSTANT_TRIES 3
#define USE_TRIES 10
#define UNMOUNT_NS 300000000ull
#define UNMOUNT_LOOK_MS 100

static int wait_frozen(struct freezer *f, const struct quiesce_target *t, void *seal_ctx,
		       struct quiesce_report *rep)
{
	uint64_t begin_ns = now_ns();
	int r = freezer_wait(f, t, freezer_limit_ns(t), seal_ctx);

	rep->freeze_ns = now_ns() - begin_ns;
	return r;
}

static int seal_frozen(struct freezer *f, const struct quiesce_target *t, int (*seal)(void *ctx),
		       void *seal_ctx, struct quiesce_report *rep)
{
	uint64_t begin_ns = now_ns();
	int r, thawed;

	rep->frozen = true;
	(void)!freezer_tell(f, true);
	r = seal(seal_ctx);
	if (t->stay_frozen && !r)
		return 0;
	/* EINVAL: no longer frozen; the seal may have caught a changing image */
	thawed = freezer_thaw(f);
	if (thawed < 0 && !r)
		r = thawed == -EINVAL ? -ECANCELED : thawed;
	rep->frozen_ns = now_ns() - begin_ns;
	return r;
}

static bool cannot_freeze(int error)
{
	return error == -EALREADY || error == -ETIMEDOUT;
}

static int seal_unfrozen(int (*seal)(void *ctx), void *seal_ctx, struct quiesce_report *rep)
{
	rep->unfrozen = true;
	return seal(seal_ctx);
}

/*
 * No sync has ended since the seal before, also where any moment will do: what the file system has written to blocks
 * that this image calls free may be free in the next image, too, and is only in RAM. So nothing counts as free.
 */
static int seal_stopped(int (*seal)(void *ctx), void *seal_ctx, struct quiesce_report *rep)
{
	rep->stopped = true;
	rep->hidden = false;
	return seal_unfrozen(seal, seal_ctx, rep);
}

/*
 * After write errors a file system fails with one of these. jbd2 no longer checkpoints, and a
 * freeze must checkpoint (EIO). An ext4 that made itself read-only neither syncs nor freezes
 * (EROFS, since Linux 6.14).
 */
static bool has_failed(int error, const struct quiesce_target *t, struct quiesce_report *rep)
{
	rep->failed = error == -EIO || error == -EROFS;
	return rep->failed && t->unfrozen_failed;
}

static bool has_no_checkpoint(int error)
{
	return error == -ENOTTY || error == -EOPNOTSUPP || error == -EINVAL || error == -ENODEV ||
	       error == -EPERM;
}

/* Does anything hold the device exclusively, as a mount and a checker do? A claim of another program
 * fails while this looks, so it looks seldom. */
static bool is_claimed(const struct quiesce_target *t)
{
	_cleanup_close_ int fd = -1;
	char name[32];

	snprintf(name, sizeof(name), "self/fd/%d", t->loop_fd);
	fd = openat(t->proc_dirfd, name, O_RDONLY | O_EXCL | O_CLOEXEC);
	return fd < 0 && errno == EBUSY;
}

static bool still_mounted(const struct quiesce_target *t, bool readonly)
{
	struct mount_search s = { .proc_dirfd = t->proc_dirfd, .dev = t->dev };

	return find_mount_search(&s) == 1 && s.readonly >= readonly;
}

/* The image may be that of a checker, which writes in another order, or of a mount that began. */
static int sealed_too_late(struct quiesce_report *rep)
{
	rep->hidden = true;
	return -ETXTBSY;
}

/*
 * At any moment, as long as it is mounted, and read-only if it was. An unmount after the last look leaves
 * a whole image, unless something else has got the device since.
 */
static int seal_any(const struct use *u, const struct quiesce_target *t, int (*seal)(void *ctx),
		    void *seal_ctx, struct quiesce_report *rep)
{
	int r;

	if (u->mount_fd < 0 && !still_mounted(t, u->readonly))
		return -ENXIO;
	r = seal(seal_ctx);
	rep->instant = r != -EAGAIN;
	return r == 0 && u->mount_fd < 0 && !still_mounted(t, u->readonly) && is_claimed(t)
		       ? sealed_too_late(rep)
		       : r;
}

/*
 * *ret_sealed: what comes back is the result of the seal. Otherwise -EOPNOTSUPP: this driver has no
 * such call, or does not write its journal; -ETIMEDOUT, -EALREADY: the call does not end; -EBUSY:
 * another program has frozen the file system; -ECANCELED: stopped; -EIO, -EROFS: the file system has
 * failed; -ENXIO, -ESTALE: as join.
 */
static int seal_at_instant(struct use *u, const struct quiesce_target *t, void *seal_ctx,
			   struct quiesce_report *rep, bool *ret_sealed)
{
	uint64_t begin_ns = now_ns();

	for (unsigned i = 0; i < INSTANT_TRIES; i++) {
		bool flush = t->instant_by_sync && u->mount_fd < 0;
		int sealed, called, r = flush ? 0 : join(u, t, seal_ctx);

		if (r == 0)
			r = t->instant(seal_ctx, QUIESCE_BEGIN);
		if (r < 0)
			return r;
		called = flush ? call_within(t, t->loop_fd, QUIESCE_FLUSH, INSTANT_NS, seal_ctx)
			       : call_within(t, u->mount_fd,
					     t->instant_by_sync ? QUIESCE_SYNCFS
								: QUIESCE_CHECKPOINT,
					     INSTANT_NS, seal_ctx);
		sealed = t->instant(seal_ctx, QUIESCE_END);
		rep->freeze_ns = now_ns() - begin_ns;
		*ret_sealed = sealed != -EAGAIN;
		rep->instant = *ret_sealed;
		if (*ret_sealed) {
			/* a journal that gives up writes its superblock as well, and then transactions
			 * may have been under way: this image must not be committed */
			rep->failed = called == -EIO || called == -EROFS;
			return rep->failed && !sealed ? called : sealed;
		}
		if (called < 0)
			return has_no_checkpoint(called) ? -EOPNOTSUPP : called;
		/* without a transaction the driver does not write */
		if (t->instant_by_sync) {
			r = seal_any(u, t, t->now, seal_ctx, rep);
			*ret_sealed = r != -EAGAIN && r != -ENXIO;
			if (r != -EAGAIN)
				return r;
			continue; /* a file was synced: there will be a transaction */
		}
		r = join(u, t, seal_ctx);
		if (r < 0)
			return r;
		r = call_within(t, u->mount_fd, QUIESCE_TOUCH, TOUCH_NS, seal_ctx);
		if (r == -ECANCELED)
			return r;
		/* nothing else keeps a change of a time stamp waiting; one of an earlier try may wait still */
		if (r == -ETIMEDOUT || r == -EALREADY)
			return -EBUSY;
		if (r < 0) /* a root that is immutable */
			break;
	}
	return -EOPNOTSUPP;
}

static int seal_in_freeze(struct use *u, const struct quiesce_target *t, int (*seal)(void *ctx),
			  void *seal_ctx, struct quiesce_report *rep)
{
	struct freezer *f;
	int r = freezer_new(&f, t, u->mount_fd);

	if (r < 0)
		return r;
	u->mount_fd = -1; /* it is that of f now */
	r = freezer_tell(f, true);
	if (!r)
		r = freezer_start(f);
	if (!r)
		r = wait_frozen(f, t, seal_ctx, rep);
	if (r == -ECANCELED)
		return seal_stopped(seal, seal_ctx, rep);
	if (r == -ETIMEDOUT)
		return t->unfrozen ? seal_unfrozen(seal, seal_ctx, rep) : r;
	if (!r)
		r = seal_frozen(f, t, seal, seal_ctx, rep);
	else if (r == -EOPNOTSUPP && rep->readonly)
		r = seal(seal_ctx); /* vfat, exfat: synced, and nothing writes */
	else if (has_failed(r, t, rep))
		r = seal_unfrozen(seal, seal_ctx, rep);
	freezer_free(f);
	return r;
}

static int seal_used(struct use *u, const struct quiesce_target *t, int (*seal)(void *ctx),
		     void *seal_ctx, struct quiesce_report *rep)
{
	bool syncs = !t->no_sync || rep->readonly || t->instant || t->any_instant;
	uint64_t begin_ns = now_ns();
	bool failed = false, sealed = false;
	int r = syncs ? sync_used(u, t, seal_ctx) : 0;

	rep->sync_ns = now_ns() - begin_ns;
	if (has_failed(r, t, rep)) {
		rep->failed = false; /* the error may be old: the freeze shows */
		failed = true;
		r = 0;
	}
	if (!r && t->needed && !failed && !t->needed(seal_ctx))
		return -ENODATA;
	if (!r && t->any_instant)
		return seal_any(u, t, seal, seal_ctx, rep);
	/* nothing is frozen, so nothing meets a remount to read-write */
	if (!r && !failed && rep->readonly && u->mount_fd < 0)
		return seal_any(u, t, seal, seal_ctx, rep);
	if (!r && !failed && t->instant && !rep->readonly) {
		r = seal_at_instant(u, t, seal_ctx, rep, &sealed);
		if (sealed)
			return r;
		if (r == -EOPNOTSUPP || r == -EIO || r == -EROFS)
			r = 0; /* the freeze shows */
	}
	if (!r && t->stopped)
		r = wait_for_left(t, QUIESCE_FREEZE, UINT64_MAX, seal_ctx);
	else if (!r && call_hangs(QUIESCE_FREEZE))
		r = -EALREADY;
	if (!r)
		r = join(u, t, seal_ctx);
	if (r == -ECANCELED)
		return seal_stopped(seal, seal_ctx, rep);
	if (cannot_freeze(r) && t->unfrozen)
		return seal_unfrozen(seal, seal_ctx, rep);
	return r < 0 ? r : seal_in_freeze(u, t, seal, seal_ctx, rep);
}

/*
 * No mount is visible. In this case nothing else may hold the device, or the image changes unseen.
 * The device is not claimed: neither a checker nor a mount that begins now shall find it in use.
 */
static int seal_unmounted(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
			  struct quiesce_report *rep)
{
	int r = call_stoppable(t, t->loop_fd, QUIESCE_FSYNC, seal_ctx);

	if (r == -EIO) /* reported once, for any earlier failed write: the file system knows */
		r = call_stoppable(t, t->loop_fd, QUIESCE_FSYNC, seal_ctx);
	if (r == -ECANCELED)
		return seal_stopped(seal, seal_ctx, rep);
	if (r < 0)
		return r;
	if (t->needed && !t->needed(seal_ctx))
		return -ENODATA;
	r = seal(seal_ctx);
	return r == 0 && is_claimed(t) ? sealed_too_late(rep) : r;
}

/*
 * An unmount keeps the device claimed until it has written everything, and its mount is not visible
 * any more. It is better not to try a second mount then.
 */
static bool stays_claimed(const struct quiesce_target *t, void *seal_ctx)
{
	uint64_t end_ns = now_ns() + UNMOUNT_NS;

	while (is_claimed(t)) {
		if (now_ns() >= end_ns || (t->stopped && t->stopped(seal_ctx)))
			return true;
		poll(NULL, 0, UNMOUNT_LOOK_MS);
	}
	return false;
}

/* The file system is mounted, but no mount is visible. */
static int seal_hidden(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		       struct quiesce_report *rep)
{
	struct use u = { .mount_fd = -1 };
	int r = join_hidden(&u, t, seal_ctx);

	if (r == 0) {
		rep->readonly = u.readonly;
		rep->mounted = true;
		r = seal_used(&u, t, seal, seal_ctx, rep);
	}
	if (u.mount_fd >= 0)
		close(u.mount_fd);
	if (r == -ESTALE && !rep->mounted && !is_claimed(t))
		return -ENXIO; /* that was the end of an unmount */
	rep->hidden = true;
	(void)!holder_find(t->proc_dirfd, t->dev, rep->holder, sizeof(rep->holder));
	return r;
}

/* Whatever holds it, if anything does: then there is no need to look, which disturbs others. */
static bool is_unchanged(const struct quiesce_target *t, void *seal_ctx)
{
	return t->needed && t->type && flush_syncs(t->type) &&
	       call_stoppable(t, t->loop_fd, QUIESCE_FLUSH, seal_ctx) == 0 && !t->needed(seal_ctx);
}

/* -ENXIO: it was mounted or unmounted meanwhile, and nothing was sealed. */
static int run(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
	       struct quiesce_report *ret)
{
	struct mount_search s = { .proc_dirfd = t->proc_dirfd, .dev = t->dev };
	struct use u = { .mount_fd = -1 };
	int r;

	*ret = (struct quiesce_report){ 0 };
	if (call_hangs(QUIESCE_FREEZE) && !t->unfrozen && !t->stopped)
		return -EALREADY;
	r = find_mount_search(&s);
	if (r < 0)
		return r;
	if (r == 0) {
		if (is_unchanged(t, seal_ctx))
			return -ENODATA;
		return stays_claimed(t, seal_ctx) ? seal_hidden(t, seal, seal_ctx, ret)
						  : seal_unmounted(t, seal, seal_ctx, ret);
	}
	ret->mounted = true;
	ret->readonly = s.readonly;
	u.type = s.type;
	u.readonly = s.readonly;
	r = seal_used(&u, t, seal, seal_ctx, ret);
	if (u.mount_fd >= 0)
		close(u.mount_fd);
	ret->hidden |= r == -ESTALE;
	return r;
}

static int run_again(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		     struct quiesce_report *ret)
{
	int r = -ENXIO;

	for (unsigned i = 0; i < USE_TRIES && r == -ENXIO; i++)
		r = run(t, seal, seal_ctx, ret);
	return r == -ENXIO ? -EBUSY : r;
}

int quiesce_unblock(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx, int r,
		    struct quiesce_report *rep)
{
	if (r >= 0 || r == -ENODATA || r == -ETXTBSY || !t->stopped || rep->frozen ||
	    rep->unfrozen || rep->instant)
		return r;
	return (rep->hidden && t->unfrozen && t->unseen) || t->stopped(seal_ctx)
		       ? seal_stopped(seal, seal_ctx, rep)
		       : r;
}

int quiesce_here(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		 struct quiesce_report *ret)
{
	int r = run_again(t, seal, seal_ctx, ret);

	return quiesce_unblock(t, seal, seal_ctx, r, ret);
}
