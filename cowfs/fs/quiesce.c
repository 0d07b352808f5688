/* SPDX-License-Identifier: MIT */
/*
 *	find the mount -> sync -> needed? -> seal -> look again
 *
 *			sync			seal
 *	mounted		BLKFLSBUF, 10 s		at any moment; read-only: any kind. Still mounted, or it does not count
 *	claimed		the same		as mounted, if the kernel says that it is, where this process cannot see
 *	neither		fsync			if nothing has claimed the device since
 *
 * A sync that is stopped, or does not end, is left to its thread. Then a file system that bears a power cut is sealed without it.
 */
#include "fs/quiesce.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/broker.h"
#include "base/holder.h"
#include "base/thread.h"
#include "fs/find_mount.h"

#define SYNC_NS (10 * 1000000000ull)
#define LOOK_NS 10000000ull
#define SHORT_NS 20000000ull
#define AGAIN_NS (2 * 1000000000ull) /* of all together no other one begins behind this */
#define STACK_BYTES (256 * KIB)
#define USE_TRIES 10
#define UNMOUNT_NS 300000000ull
#define UNMOUNT_LOOK_MS 100

/* ---- a sync that can be left behind ---- */

struct syncing {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	int proc_dirfd, loop_fd;
	dev_t dev;
	enum disk_sync how;
	bool done, left; /* lock */
	int result;
};

static atomic_bool left_behind; /* one has not ended */

static void syncing_free(struct syncing *s)
{
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static void *syncing_main(void *arg)
{
	struct syncing *s = arg;
	int r = broker_on() ? broker_call(BROKER_SYNC, BROKER_FLUSH, s->how, 0)
			    : disk_sync(s->proc_dirfd, -1, s->dev, s->loop_fd, s->how);
	bool left;

	pthread_mutex_lock(&s->lock);
	s->result = r;
	s->done = true;
	left = s->left;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	if (left) {
		syncing_free(s);
		left_behind = false;
	}
	return NULL;
}

/* -ECANCELED, -ETIMEDOUT: not, and s belongs to its thread. */
static int syncing_wait(struct syncing *s, const struct quiesce_target *t, uint64_t end_ns,
			void *seal_ctx)
{
	int r = 0;

	pthread_mutex_lock(&s->lock);
	while (!s->done && r == 0) {
		thread_cond_wait_until(&s->changed, &s->lock, now_ns() + LOOK_NS);
		pthread_mutex_unlock(&s->lock);
		if (t->stopped && t->stopped(seal_ctx))
			r = -ECANCELED;
		else if (now_ns() >= end_ns)
			r = -ETIMEDOUT;
		pthread_mutex_lock(&s->lock);
	}
	if (s->done)
		r = 0;
	else
		left_behind = s->left = true;
	if (r < 0)
		pthread_detach(s->thread);
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* -EALREADY: an earlier one does not end. */
static int sync_within(const struct quiesce_target *t, enum disk_sync how, void *seal_ctx)
{
	uint64_t end_ns = now_ns() + (t->sync_ns ? t->sync_ns : SYNC_NS);
	struct syncing *s;
	int r;

	for (; left_behind; poll(NULL, 0, LOOK_NS / 1000000)) {
		if (t->stopped && t->stopped(seal_ctx))
			return -ECANCELED;
		if (now_ns() >= end_ns)
			return -EALREADY;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	*s = (struct syncing){
		.proc_dirfd = t->proc_dirfd, .loop_fd = t->loop_fd, .dev = t->dev, .how = how
	};
	pthread_mutex_init(&s->lock, NULL);
	thread_cond_init(&s->changed);
	r = thread_start(&s->thread, "cowfs-sync", STACK_BYTES, syncing_main, s);
	if (r == 0) {
		r = syncing_wait(s, t, end_ns, seal_ctx);
		if (r < 0)
			return r;
		pthread_join(s->thread, NULL);
		r = s->result;
	}
	syncing_free(s);
	return r;
}

/* ---- who has the device? ---- */

static bool is_claimed(const struct quiesce_target *t, bool *ret_mounted)
{
	struct broker_message m = { .op = BROKER_CLAIMED };
	int r;

	if (!broker_on())
		return disk_claimed(t->proc_dirfd, -1, t->dev, t->loop_fd, ret_mounted);
	r = broker_ask(BROKER_LOOK, &m, NULL);
	*ret_mounted = r > 0 && m.n[0];
	return r != 0;
}

/*
 * An unmount keeps the device claimed until it has written everything, and its mount is not visible
 * any more: it is waited for. *ret_mounted: it is mounted where this process cannot see it.
 */
static bool stays_claimed(const struct quiesce_target *t, void *seal_ctx, bool *ret_mounted)
{
	uint64_t end_ns = now_ns() + UNMOUNT_NS;

	while (is_claimed(t, ret_mounted)) {
		if (now_ns() >= end_ns || (t->stopped && t->stopped(seal_ctx)))
			return true;
		poll(NULL, 0, UNMOUNT_LOOK_MS);
	}
	return false;
}

static bool still_mounted(const struct quiesce_target *t, const struct quiesce_report *rep)
{
	bool readonly = false, mounted = false;

	if (rep->hidden)
		return is_claimed(t, &mounted) && mounted;
	return find_mount(t->proc_dirfd, t->dev, NULL, 0, &readonly) == 1 &&
	       readonly >= rep->readonly;
}

/* ---- seals ---- */

static int seal_unsynced(int (*seal)(void *ctx), void *seal_ctx, struct quiesce_report *rep,
			 bool stopped)
{
	rep->stopped = stopped;
	rep->hidden &= !stopped;
	rep->unsynced = true;
	return seal(seal_ctx);
}

/*
 * As long as it is mounted, and read-only if it was: a checker, or a mount that begins, writes in another order. An unmount after
 * the last look leaves a whole image, unless something else has got the device since.
 */
static int seal_mounted(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
			struct quiesce_report *rep)
{
	bool mounted;
	int r;

	if (!still_mounted(t, rep))
		return -ENXIO;
	r = seal(seal_ctx);
	rep->instant = true;
	if (r < 0 || still_mounted(t, rep) || !is_claimed(t, &mounted))
		return r;
	rep->hidden = true;
	return -ETXTBSY;
}

/* Once it was synced, another sync that is stopped or does not end changes nothing. */
static int sync_again(const struct quiesce_target *t, void *seal_ctx)
{
	uint64_t begin_ns = now_ns(), from_ns = begin_ns, end_ns;
	int r = sync_within(t, SYNC_FLUSH, seal_ctx), e = r;

	for (end_ns = now_ns();
	     t->again && e == 0 && end_ns - from_ns > SHORT_NS && end_ns - begin_ns < AGAIN_NS;
	     end_ns = now_ns()) {
		from_ns = end_ns;
		e = sync_within(t, SYNC_FLUSH, seal_ctx);
	}
	return e == -EIO || e == -EROFS ? e : r;
}

static int run_mounted(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		       struct quiesce_report *rep)
{
	uint64_t begin_ns = now_ns();
	int r = sync_again(t, seal_ctx);

	rep->mounted = true;
	rep->sync_ns = now_ns() - begin_ns;
	rep->failed = r == -EIO || r == -EROFS;
	if (r == -ECANCELED)
		return seal_unsynced(seal, seal_ctx, rep, true);
	if (r < 0 && t->unsynced)
		return seal_unsynced(seal, seal_ctx, rep, false);
	if (r < 0)
		return r;
	if (t->needed && !t->needed(seal_ctx))
		return -ENODATA;
	return t->any || rep->readonly ? seal_mounted(t, seal, seal_ctx, rep) : -EOPNOTSUPP;
}

/* The device is not claimed: neither a checker nor a mount that begins now shall find it in use. */
static int run_unmounted(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
			 struct quiesce_report *rep)
{
	int r = sync_within(t, SYNC_FSYNC, seal_ctx);
	bool mounted;

	if (r == -EIO) /* reported once, for any earlier failed write: the file system knows */
		r = sync_within(t, SYNC_FSYNC, seal_ctx);
	if (r == -ECANCELED)
		return seal_unsynced(seal, seal_ctx, rep, true);
	if (r < 0)
		return r;
	if (t->needed && !t->needed(seal_ctx))
		return -ENODATA;
	r = seal(seal_ctx);
	if (r < 0 || !is_claimed(t, &mounted))
		return r;
	rep->hidden = true;
	return -ETXTBSY;
}

/* Whatever holds it, if anything does: then there is no need to look, which disturbs others. */
static bool is_unchanged(const struct quiesce_target *t, void *seal_ctx)
{
	return t->needed && sync_within(t, SYNC_FLUSH, seal_ctx) == 0 && !t->needed(seal_ctx);
}

/* -ENXIO: it was mounted or unmounted meanwhile, and nothing was sealed. */
static int run(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
	       struct quiesce_report *ret)
{
	bool mounted = false;
	int r;

	*ret = (struct quiesce_report){ 0 };
	r = find_mount(t->proc_dirfd, t->dev, NULL, 0, &ret->readonly);
	if (r < 0)
		return r;
	if (r > 0)
		return run_mounted(t, seal, seal_ctx, ret);
	ret->readonly = false;
	if (is_unchanged(t, seal_ctx))
		return -ENODATA;
	if (!stays_claimed(t, seal_ctx, &mounted))
		return run_unmounted(t, seal, seal_ctx, ret);
	ret->hidden = true;
	(void)!holder_find(t->proc_dirfd, t->dev, ret->holder, sizeof(ret->holder));
	return mounted ? run_mounted(t, seal, seal_ctx, ret) : -ESTALE;
}

int quiesce_run(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		struct quiesce_report *ret)
{
	int r = -ENXIO;

	for (unsigned i = 0; i < USE_TRIES && r == -ENXIO; i++)
		r = run(t, seal, seal_ctx, ret);
	r = r == -ENXIO ? -EBUSY : r;
	if (r >= 0 || r == -ENODATA || r == -ETXTBSY || !t->stopped || ret->unsynced ||
	    ret->instant)
		return r;
	/* the program that waits for the seal cannot remove what it waits for. The broker of a worker that was killed in a
	 * sync may be that */
	return (ret->hidden && t->unsynced && t->unseen) || t->stopped(seal_ctx)
		       ? seal_unsynced(seal, seal_ctx, ret, true)
		       : r;
}
