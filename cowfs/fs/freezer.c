/* SPDX-License-Identifier: MIT */
/*
 * - FIFREEZE sleeps uninterruptibly, cannot be cancelled (FITHAW needs a complete freeze), and all
 *   writers wait behind it. A program that keeps a write from ending keeps it waiting. So it has a thread
 *   of its own that can be left behind. An abandoned thread owns its descriptor and thaws by itself; until
 *   then no other freeze is tried.
 * - A sync and a freeze flush everything that is dirty. If that may be more than a commit can hold,
 *   writes are withheld at some point, and neither call ends before the seal. So a sync has such a thread, too.
 */
#include "fs/freezer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>

#include <linux/fs.h>

#include "base/thread.h"

#define GIVEUP_NS (10 * 1000000000ull)
#define STOPPED_LOOK_NS 10000000ull
#define FREEZER_STACK_BYTES (256 * KIB)

struct freezer {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	enum quiesce_call call;
	int mount_fd;
	int (*frozen)(void *ctx, int mount_fd);
	int disk_fd;
	void *ctx;
	bool done, abandoned; /* protected by lock */
	int result;	      /* valid once done */
};

int freezer_thaw(const struct freezer *f)
{
	int r = quiesce_call(QUIESCE_THAW, f->mount_fd, f->disk_fd);

	if (r < 0 && r != -EINVAL) /* no thread: nothing may stay frozen for that reason */
		r = ioctl(f->mount_fd, FITHAW, 0) < 0 ? -errno : 0;
	return r;
}

static atomic_bool hanging;  /* an abandoned freezer is still in FIFREEZE */
static atomic_bool syncing;  /* the same for a sync */
static atomic_bool touching; /* and for a change of a time stamp */

static atomic_bool *left_of(enum quiesce_call call)
{
	return call == QUIESCE_FREEZE ? &hanging : call == QUIESCE_TOUCH ? &touching : &syncing;
}

int freezer_tell(const struct freezer *f, bool frozen)
{
	return f->frozen ? f->frozen(f->ctx, frozen ? f->mount_fd : -1) : 0;
}

void freezer_free(struct freezer *f)
{
	close(f->mount_fd);
	(void)!freezer_tell(f, false);
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static void *freezer_main(void *arg)
{
	struct freezer *f = arg;
	int r = quiesce_call(f->call, f->mount_fd, f->disk_fd);
	atomic_bool *left;
	bool abandoned;

	pthread_mutex_lock(&f->lock);
	f->result = r;
	f->done = true;
	abandoned = f->abandoned;
	pthread_cond_signal(&f->changed);
	pthread_mutex_unlock(&f->lock);
	if (abandoned) {
		if (!r && f->call == QUIESCE_FREEZE)
			(void)!freezer_thaw(f);
		left = left_of(f->call);
		freezer_free(f);
		atomic_store(left, false);
	}
	return NULL;
}

int freezer_new(struct freezer **ret, const struct quiesce_target *t, int mount_fd)
{
	struct freezer *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->mount_fd = mount_fd;
	f->frozen = t->frozen;
	f->disk_fd = t->loop_fd;
	f->ctx = t->ctx;
	pthread_mutex_init(&f->lock, NULL);
	thread_cond_init(&f->changed);
	*ret = f;
	return 0;
}

int freezer_start(struct freezer *f)
{
	return thread_start(&f->thread, "cowfs-freezer", FREEZER_STACK_BYTES, freezer_main, f);
}

/* The caller holds lock; releases it. f now belongs to its thread. */
static int abandon(struct freezer *f, int error)
{
	atomic_store(left_of(f->call), true);
	pthread_detach(f->thread);
	f->abandoned = true;
	pthread_mutex_unlock(&f->lock);
	return error;
}

/* The caller holds lock; releases it during the question. */
static bool is_stopped(struct freezer *f, const struct quiesce_target *t, void *seal_ctx)
{
	bool stopped;

	if (!t->stopped)
		return false;
	pthread_mutex_unlock(&f->lock);
	stopped = t->stopped(seal_ctx);
	pthread_mutex_lock(&f->lock);
	return stopped && !f->done;
}

uint64_t freezer_limit_ns(const struct quiesce_target *t)
{
	return t->giveup_ns ? t->giveup_ns : GIVEUP_NS;
}

int freezer_wait(struct freezer *f, const struct quiesce_target *t, uint64_t limit_ns,
		 void *seal_ctx)
{
	uint64_t begin_ns = now_ns();

	pthread_mutex_lock(&f->lock);
	while (!f->done) {
		thread_cond_wait_until(&f->changed, &f->lock, now_ns() + STOPPED_LOOK_NS);
		if (!f->done && is_stopped(f, t, seal_ctx))
			return abandon(f, -ECANCELED);
		if (!f->done && now_ns() - begin_ns >= limit_ns)
			return abandon(f, -ETIMEDOUT);
	}
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	return f->result;
}

bool call_hangs(enum quiesce_call call)
{
	return atomic_load(left_of(call));
}

int wait_for_left(const struct quiesce_target *t, enum quiesce_call call, uint64_t limit_ns,
		  void *seal_ctx)
{
	uint64_t end_ns = now_ns() + min_u64(limit_ns, freezer_limit_ns(t));

	while (call_hangs(call)) {
		if (t->stopped && t->stopped(seal_ctx))
			return -ECANCELED;
		if (now_ns() >= end_ns)
			return -EALREADY;
		poll(NULL, 0, STOPPED_LOOK_NS / 1000000);
	}
	return 0;
}

int call_within(const struct quiesce_target *t, int fd, enum quiesce_call call, uint64_t limit_ns,
		void *seal_ctx)
{
	struct freezer *f;
	int r, own_fd;

	if (!t->stopped && limit_ns == UINT64_MAX)
		return quiesce_call(call, fd, t->loop_fd);
	r = wait_for_left(t, call, limit_ns, seal_ctx);
	if (r < 0)
		return r;
	own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own_fd < 0)
		return -errno;
	r = freezer_new(&f, t, own_fd);
	if (r < 0) {
		close(own_fd);
		return r;
	}
	f->call = call;
	f->frozen = NULL;
	r = freezer_start(f);
	if (!r)
		r = freezer_wait(f, t, limit_ns, seal_ctx);
	if (r != -ECANCELED && r != -ETIMEDOUT)
		freezer_free(f);
	return r;
}

int call_stoppable(const struct quiesce_target *t, int fd, enum quiesce_call call, void *seal_ctx)
{
	return call_within(t, fd, call, UINT64_MAX, seal_ctx);
}
