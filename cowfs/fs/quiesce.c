/* SPDX-License-Identifier: MIT */
/*
 * Syncs, waits for a moment at which the image is whole or freezes, seals, thaws.
 *
 * Notes on the design
 * - A descriptor on a mount makes umount fail ("target is busy"). So the sync is BLKFLSBUF of the loop
 *   device: the kernel finds the file system of the device by itself, and an unmount waits for the end.
 *   Before Linux 6.17 it does not find a btrfs.
 * - Checkpoint, freeze and thaw need a descriptor of the file system. They get one of a second mount of
 *   it, which is never attached and is closed at once: it makes no unmount fail. Its source is the
 *   device, so no path is looked up, and no other file system, and no mount namespace, is in the way.
 * - If the file system is unmounted just before, the second mount would be the first one. An option
 *   (`joins_by`) makes that mount fail before anything is written.
 * - A journal that is already empty is not written. Then this code changes the time stamp of the
 *   mount's root directory and tries again. That is rare: without a transaction since the last
 *   commit only the content of files has changed in place.
 * - After switch_root the daemon's own "/" is the emptied initramfs below the mounts that it
 *   serves: no path lookup works from there. So this code searches for the mount in mountinfo below
 *   the kept /proc, first that of this process, then that of pid 1.
 * - FIFREEZE sleeps uninterruptibly, cannot be cancelled (FITHAW needs a complete freeze), and all
 *   writers wait behind it. A program that keeps a write from ending keeps it waiting. So it is used
 *   only where there is no other moment at which the image is whole.
 * - FIFREEZE has a thread of its own that can be left behind. An abandoned thread owns its
 *   descriptor and thaws by itself; until then no other freeze is tried.
 * - Calls that flush (BLKFLSBUF, syncfs, FIFREEZE, FITHAW, fsync) sleep uninterruptibly in I/O that this
 *   process serves. Each is made by a thread that has no descriptor of /dev/fuse
 *   (thread_call_alone). If all processes are killed at once, the kernel then ends the FUSE
 *   connection, and with it this I/O.
 * - A sync and a freeze flush everything that is dirty. If that may be more than a commit can hold,
 *   writes are withheld at some point, and neither call ends before the seal. So both have a thread
 *   that can be left behind.
 * - The supervisor gets the descriptor before FIFREEZE. Otherwise the death of this process right
 *   after FIFREEZE would leave the file system frozen forever.
 */
#include "fs/flush.h"
#include "fs/fs_ops.h"
#include "fs/quiesce.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <linux/fs.h>

#include "base/kernel.h"
#include "base/holder.h"
#include "base/mounts.h"
#include "base/msg.h"
#include "base/thread.h"
#include "fs/quiesce_broker.h"

#define GIVEUP_NS (10 * 1000000000ull)
#define STOPPED_LOOK_NS 10000000ull
#define FREEZER_STACK_BYTES (256 * KIB)
/* Time limit of a checkpoint, which RAM serves; longer than a commit of several volumes waits in it. */
#define INSTANT_NS (10 * 1000000000ull)
#define TOUCH_NS (2 * 1000000000ull)
#define INSTANT_TRIES 3
#define USE_TRIES 10
#define UNMOUNT_NS 300000000ull
#define UNMOUNT_LOOK_MS 100

/* ---- the mount ---- */

struct search {
	int proc_dirfd;
	dev_t dev;
	bool open; /* the caller needs an open descriptor, not only the line */
	char *where;
	size_t where_bytes;
	int mount_fd, failed;
	bool readonly;
	char type[32];
};

static int look_at_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct search *s = ctx;

	if (!mounts_shows(root_dirfd, m, s->dev))
		return 0;
	s->readonly = m->readonly;
	snprintf(s->type, sizeof(s->type), "%s", m->type);
	s->mount_fd = s->open ? mounts_open(s->proc_dirfd, root_dirfd, m) : -1;
	if (s->open && s->mount_fd < 0) {
		s->failed = s->mount_fd;
		return 0;
	}
	mounts_unescape(m->path);
	if (s->where)
		snprintf(s->where, s->where_bytes, "%s", m->path);
	return 1;
}

/* 1: found, 0: not found, -errno: no look was possible, or the mount was found and not opened */
static int search_as(const char *who, struct search *s)
{
	int r;

	s->failed = 0;
	r = mounts_each(s->proc_dirfd, who, look_at_mount, s);
	return r ? r : s->failed;
}

static int search_mount(struct search *s)
{
	int own = search_as("self", s);

	/* seal_unmounted detects mounts that pid 1 hides from this process */
	return own == 1 || search_as("1", s) == 1 ? 1 : own;
}

static int find_there(char *where, size_t size_bytes, bool *ret_readonly)
{
	struct broker_message m = { .op = BROKER_FIND_MOUNT };
	int r = broker_ask(BROKER_LOOK, &m, NULL, NULL);

	if (r == 1 && where)
		snprintf(where, size_bytes, "%.*s", (int)min_u64(m.bytes, PATH_MAX), m.data);
	if (r == 1 && ret_readonly)
		*ret_readonly = m.n[0];
	return r;
}

int quiesce_find_mount(int proc_dirfd, dev_t dev, char *where, size_t size_bytes,
		       bool *ret_readonly)
{
	struct search s = {
		.proc_dirfd = proc_dirfd, .dev = dev, .where = where, .where_bytes = size_bytes
	};
	int r;

	if (broker_on())
		return find_there(where, size_bytes, ret_readonly);
	r = search_mount(&s);
	if (r == 1 && ret_readonly)
		*ret_readonly = s.readonly;
	return r;
}

int quiesce_open_mount(int proc_dirfd, dev_t dev)
{
	struct search s = { .proc_dirfd = proc_dirfd, .dev = dev, .open = true, .mount_fd = -1 };
	int r = search_mount(&s);

	return r == 1 ? s.mount_fd : r ? r : -ENOENT;
}

/* ---- freeze ---- */

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

static int call_freeze(int fd)
{
	return ioctl(fd, FIFREEZE, 0);
}

static int call_thaw(int fd)
{
	return ioctl(fd, FITHAW, 0);
}

static int call_checkpoint(int fd)
{
	uint32_t flags = 0;

	return ioctl(fd, EXT4_IOC_CHECKPOINT, &flags);
}

static int call_touch(int fd)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -1;
	times[1] = st.st_mtim;
	return futimens(fd, times);
}

static int call_create(int fs_fd)
{
	return fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
}

int quiesce_call(enum quiesce_call call, int fd, int disk_fd)
{
	static const struct {
		const char *name;
		int (*make)(int fd);
	} calls[QUIESCE_CALLS] = { [QUIESCE_FREEZE] = { "cowfs-freeze", call_freeze },
				   [QUIESCE_THAW] = { "cowfs-thaw", call_thaw },
				   [QUIESCE_FLUSH] = { "cowfs-sync", flush_disk },
				   [QUIESCE_SYNCFS] = { "cowfs-sync", syncfs },
				   [QUIESCE_FSYNC] = { "cowfs-sync", fsync },
				   [QUIESCE_CREATE] = { "cowfs-sync", call_create },
				   [QUIESCE_CHECKPOINT] = { "cowfs-sync", call_checkpoint },
				   [QUIESCE_TOUCH] = { "cowfs-sync", call_touch } };
	char source[32];

	snprintf(source, sizeof(source), "/proc/self/fd/%d", disk_fd);
	if (call == QUIESCE_CREATE && fsconfig(fd, FSCONFIG_SET_STRING, "source", source, 0) < 0)
		return -errno;
	return thread_call_alone(calls[call].name, fd, calls[call].make);
}

static int thaw(const struct freezer *f)
{
	int r = quiesce_call(QUIESCE_THAW, f->mount_fd, f->disk_fd);

	if (r < 0 && r != -EINVAL) /* no thread: nothing may stay frozen for that reason */
		r = call_thaw(f->mount_fd) < 0 ? -errno : 0;
	return r;
}

static atomic_bool hanging;  /* an abandoned freezer is still in FIFREEZE */
static atomic_bool syncing;  /* the same for a sync */
static atomic_bool touching; /* and for a change of a time stamp */

static atomic_bool *left_of(enum quiesce_call call)
{
	return call == QUIESCE_FREEZE ? &hanging : call == QUIESCE_TOUCH ? &touching : &syncing;
}

static int tell(const struct freezer *f, int mount_fd)
{
	return f->frozen ? f->frozen(f->ctx, mount_fd) : 0;
}

static void freezer_free(struct freezer *f)
{
	close(f->mount_fd);
	(void)tell(f, -1);
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
			(void)thaw(f);
		left = left_of(f->call);
		freezer_free(f);
		atomic_store(left, false);
	}
	return NULL;
}

static int freezer_new(struct freezer **ret, const struct quiesce_target *t, int mount_fd)
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

static int freezer_start(struct freezer *f)
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

static uint64_t giveup_ns(const struct quiesce_target *t)
{
	return t->giveup_ns ? t->giveup_ns : GIVEUP_NS;
}

/* -ECANCELED: writes are withheld, so the call would not end; -ETIMEDOUT. In both cases f now belongs
 * to its thread. */
static int call_wait(struct freezer *f, const struct quiesce_target *t, uint64_t limit_ns,
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

/* Waits for FIFREEZE. -ETIMEDOUT, -ECANCELED (writes are withheld): f now belongs to its thread. */
static int freezer_wait(struct freezer *f, const struct quiesce_target *t, void *seal_ctx,
			struct quiesce_report *rep)
{
	uint64_t begin_ns = now_ns();
	int r = call_wait(f, t, giveup_ns(t), seal_ctx);

	rep->freeze_ns = now_ns() - begin_ns;
	return r;
}

static int seal_frozen(struct freezer *f, const struct quiesce_target *t, int (*seal)(void *ctx),
		       void *seal_ctx, struct quiesce_report *rep)
{
	uint64_t begin_ns = now_ns();
	int r, thawed;

	rep->frozen = true;
	(void)tell(f, f->mount_fd);
	r = seal(seal_ctx);
	if (t->stay_frozen && !r)
		return 0;
	/* EINVAL: no longer frozen; the seal may have caught a changing image */
	thawed = thaw(f);
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

static int seal_stopped(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
			struct quiesce_report *rep)
{
	rep->stopped = true;
	rep->hidden = false;
	if (!t->any_instant)
		return seal_unfrozen(seal, seal_ctx, rep);
	rep->instant = true;
	return seal(seal_ctx);
}

/* Waits for the end of a call that was left behind. -EALREADY: not in time; -ECANCELED: stopped. */
static int wait_for_left(const struct quiesce_target *t, atomic_bool *left, uint64_t limit_ns,
			 void *seal_ctx)
{
	uint64_t end_ns = now_ns() + min_u64(limit_ns, giveup_ns(t));

	while (atomic_load(left)) {
		if (t->stopped && t->stopped(seal_ctx))
			return -ECANCELED;
		if (now_ns() >= end_ns)
			return -EALREADY;
		poll(NULL, 0, STOPPED_LOOK_NS / 1000000);
	}
	return 0;
}

/*
 * Makes a call that waits for writes, if only for those of an unmount. -ECANCELED: stopped, and the
 * call was left behind; -ETIMEDOUT: left behind as well.
 */
static int call_within(const struct quiesce_target *t, int fd, enum quiesce_call call,
		       uint64_t limit_ns, void *seal_ctx)
{
	struct freezer *f;
	int r, own_fd;

	if (!t->stopped && limit_ns == UINT64_MAX)
		return quiesce_call(call, fd, t->loop_fd);
	r = wait_for_left(t, left_of(call), limit_ns, seal_ctx);
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
		r = call_wait(f, t, limit_ns, seal_ctx);
	if (r != -ECANCELED && r != -ETIMEDOUT)
		freezer_free(f);
	return r;
}

static int call_stoppable(const struct quiesce_target *t, int fd, enum quiesce_call call,
			  void *seal_ctx)
{
	return call_within(t, fd, call, UINT64_MAX, seal_ctx);
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

/* ---- a second mount ---- */

struct use {
	const char *type;
	bool readonly;
	int mount_fd; /* -1: none yet */
};

/*
 * Opens the root of another mount of the file system, never attached. It waits for an unmount in
 * progress. -ECANCELED: stopped; other errors: not mounted, or not by this driver.
 */
static int mount_again(const struct quiesce_target *t, const char *type, bool readonly,
		       void *seal_ctx)
{
	_cleanup_close_ int fs_fd = fsopen(type, FSOPEN_CLOEXEC), mount_fd = -1;
	const char *const *joins_by = fs_ops_named(type)->joins_by;
	struct stat st;
	int fd, r;

	if (fs_fd < 0 || (readonly && fsconfig(fs_fd, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0) ||
	    (joins_by[0] && fsconfig(fs_fd, FSCONFIG_SET_STRING, joins_by[0], joins_by[1], 0) < 0))
		return -errno;
	r = call_stoppable(t, fs_fd, QUIESCE_CREATE, seal_ctx);
	if (r < 0)
		return r;
	mount_fd = fsmount(fs_fd, FSMOUNT_CLOEXEC,
			   MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (mount_fd < 0)
		return -errno;
	fd = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* files of btrfs have device numbers of their own */
	if (fstat(fd, &st) == 0 && (st.st_dev == t->dev || fs_ops_named(type)->several_devices))
		return fd;
	close(fd);
	return -ESTALE;
}

/*
 * For a file system that is mounted where this process cannot see it: in another mount namespace,
 * or unmounted lazily. A second mount must name the same driver, and be read-only if the first one
 * is. A device that is not mounted at all (a checker has it) is busy whatever the name.
 */
static int join_hidden(struct use *u, const struct quiesce_target *t, void *seal_ctx)
{
	const struct fs_ops *ops = fs_ops_named(t->type ? t->type : "");
	const char *const *types = ops->names;

	for (size_t i = 0; i < ARRAY_SIZE(ops->names) && types[i]; i++)
		for (int readonly = 0; readonly < (ops->several_devices ? 1 : 2); readonly++) {
			int fd = mount_again(t, types[i], readonly, seal_ctx);

			*u = (struct use){ types[i], readonly, fd };
			if (fd >= 0 || fd == -ECANCELED)
				return fd < 0 ? fd : 0;
		}
	return -ESTALE;
}

/* -ENXIO: it is not mounted any more; -ESTALE: it is, but cannot be mounted again. */
static int join(struct use *u, const struct quiesce_target *t, void *seal_ctx)
{
	int r;

	if (u->mount_fd >= 0)
		return 0;
	u->mount_fd = mount_again(t, u->type, u->readonly, seal_ctx);
	if (u->mount_fd >= 0 || u->mount_fd == -ECANCELED)
		return u->mount_fd < 0 ? u->mount_fd : 0;
	/* for example, the security module wants the same options as for the first mount */
	u->mount_fd = quiesce_open_mount(t->proc_dirfd, t->dev);
	r = u->mount_fd == -ENOENT ? -ENXIO : -ESTALE;
	return u->mount_fd < 0 ? r : 0;
}

/* Does BLKFLSBUF sync it? */
static bool flush_syncs(const char *type)
{
	return !fs_ops_named(type)->several_devices || kernel_is(6, 17);
}

static int sync_used(struct use *u, const struct quiesce_target *t, void *seal_ctx)
{
	int r;

	if (flush_syncs(u->type))
		return call_stoppable(t, t->loop_fd, QUIESCE_FLUSH, seal_ctx);
	r = join(u, t, seal_ctx);
	return r < 0 ? r : call_stoppable(t, u->mount_fd, QUIESCE_SYNCFS, seal_ctx);
}

/* ---- the seal ---- */

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
	struct search s = { .proc_dirfd = t->proc_dirfd, .dev = t->dev };

	return search_mount(&s) == 1 && s.readonly >= readonly;
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
	r = tell(f, f->mount_fd);
	if (!r)
		r = freezer_start(f);
	if (!r)
		r = freezer_wait(f, t, seal_ctx, rep);
	if (r == -ECANCELED)
		return seal_stopped(t, seal, seal_ctx, rep);
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
	if (!r && !failed && t->now && rep->readonly && u->mount_fd < 0) {
		r = seal_any(u, t, t->now, seal_ctx, rep);
		if (r != -EAGAIN)
			return r;
		r = 0; /* not clean, mounted so that nothing is replayed */
	}
	if (!r && !failed && t->instant && !rep->readonly) {
		r = seal_at_instant(u, t, seal_ctx, rep, &sealed);
		if (sealed)
			return r;
		if (r == -EOPNOTSUPP || r == -EIO || r == -EROFS)
			r = 0; /* the freeze shows */
	}
	if (!r && t->stopped)
		r = wait_for_left(t, &hanging, UINT64_MAX, seal_ctx);
	else if (!r && atomic_load(&hanging))
		r = -EALREADY;
	if (!r)
		r = join(u, t, seal_ctx);
	if (r == -ECANCELED)
		return seal_stopped(t, seal, seal_ctx, rep);
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
		return seal_stopped(t, seal, seal_ctx, rep);
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
	struct search s = { .proc_dirfd = t->proc_dirfd, .dev = t->dev };
	struct use u = { .mount_fd = -1 };
	int r;

	*ret = (struct quiesce_report){ 0 };
	if (atomic_load(&hanging) && !t->unfrozen && !t->stopped)
		return -EALREADY;
	r = search_mount(&s);
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

int quiesce_run(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		struct quiesce_report *ret)
{
	bool sealed = false;
	int r = broker_on() ? quiesce_ask(t, seal, seal_ctx, ret, &sealed)
			    : run_again(t, seal, seal_ctx, ret);

	/* whatever blocks the freeze: the program that waits for the seal cannot remove it. The broker of
	 * a worker that was killed in a sync may be what blocks it: it ends with the writes that wait. */
	if (r < 0 && r != -ENODATA && r != -ETXTBSY && !sealed && t->stopped && !ret->frozen &&
	    !ret->unfrozen && !ret->instant &&
	    ((ret->hidden && t->unfrozen) || t->stopped(seal_ctx)))
		r = seal_stopped(t, seal, seal_ctx, ret);
	return r;
}
