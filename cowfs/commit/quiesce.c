/* SPDX-License-Identifier: MIT */
/*
 * Find the mount, sync, freeze, seal, thaw.
 *
 * Notes on the design
 * - After switch_root our own "/" is the emptied initramfs below the mounts that we serve: nothing
 *   can be found from it. So the mount is looked for in mountinfo below the kept /proc, ours and
 *   pid 1's, opened below the same process' root, and accepted only if its mount id is the one of
 *   the line.
 * - btrfs and other file systems with anonymous device numbers are recognised by their mount
 *   source.
 * - FIFREEZE sleeps uninterruptibly, so it gets a thread of its own that can be left behind. One
 *   that was left behind owns its descriptor and thaws by itself; until then no further freeze is
 *   tried.
 * - The descriptor on the mount is closed at once: it would keep the file system from being
 *   unmounted.
 * - The parent hears of the descriptor before FIFREEZE, or our death right after it would freeze
 *   for ever.
 */
#include "commit/quiesce.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <linux/fs.h>
#include <linux/openat2.h>

#include "base/io.h"
#include "base/thread.h"
#include "commit/bounce.h"

#define BOUNCE_NS 500000000ull
#define GIVEUP_NS (30 * 1000000000ull)
#define FREEZER_STACK_BYTES (256 * KIB)

/* ---- mountinfo ---- */

struct lines {
	int fd;
	size_t len, pos;
	char buf[8192];
};

struct mount_line {
	unsigned long id;
	dev_t dev;
	const char *path, *source; /* into the line */
	bool readonly;		   /* the file system, not only this mount */
};

/* A line that does not fit loses its head and is no valid line any more. */
static char *next_line(struct lines *l)
{
	for (;;) {
		char *start = l->buf + l->pos, *end = memchr(start, '\n', l->len - l->pos);
		ssize_t n;

		if (end) {
			*end = '\0';
			l->pos = (size_t)(end + 1 - l->buf);
			return start;
		}
		l->len -= l->pos;
		memmove(l->buf, start, l->len);
		l->pos = 0;
		if (l->len == sizeof(l->buf))
			l->len = 0;
		n = read(l->fd, l->buf + l->len, sizeof(l->buf) - l->len);
		if (n <= 0)
			return NULL;
		l->len += (size_t)n;
	}
}

/* \040 and the like, in place */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++, to++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
			*to = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to = *s;
		}
	}
	*to = '\0';
}

/* "36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/source rw,errors=continue" */
static bool parse_line(char *line, struct mount_line *ret)
{
	char *head[5], *tail[3], *rest = strstr(line, " - ");
	unsigned dev_major, dev_minor;

	if (!rest)
		return false;
	*rest = '\0';
	rest += 3;
	for (size_t i = 0; i < ARRAY_SIZE(head); i++)
		if (!(head[i] = strsep(&line, " ")))
			return false;
	for (size_t i = 0; i < ARRAY_SIZE(tail); i++)
		if (!(tail[i] = strsep(&rest, " ")))
			return false;
	if (sscanf(head[2], "%u:%u", &dev_major, &dev_minor) != 2)
		return false;
	unescape(head[4]);
	unescape(tail[1]);
	*ret = (struct mount_line){
		.id = strtoul(head[0], NULL, 10),
		.dev = makedev(dev_major, dev_minor),
		.path = head[4],
		.source = tail[1],
		.readonly = !strncmp(tail[2], "ro", 2) && (!tail[2][2] || tail[2][2] == ','),
	};
	return true;
}

static int open_in_root(int root_dirfd, const char *path, uint64_t flags)
{
	struct open_how how = {.flags = flags | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	int fd = (int)syscall(SYS_openat2, root_dirfd, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

static bool line_matches(int root_dirfd, const struct mount_line *m, dev_t dev)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (m->dev == dev)
		return true;
	if (major(m->dev) != 0 || strncmp(m->source, "/dev/", 5))
		return false;
	fd = open_in_root(root_dirfd, m->source, O_PATH);
	return fd >= 0 && fstat(fd, &st) == 0 && S_ISBLK(st.st_mode) && st.st_rdev == dev;
}

/* Opens the mount of the line; -ESTALE if something else lies over it. */
static int open_line(int root_dirfd, const struct mount_line *m)
{
	int fd = open_in_root(root_dirfd, m->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	struct statx st;

	if (fd < 0)
		return fd;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &st) < 0 ||
	    !(st.stx_mask & STATX_MNT_ID) || st.stx_mnt_id != m->id) {
		close(fd);
		return -ESTALE;
	}
	return fd;
}

struct search {
	dev_t dev;
	bool open; /* an open descriptor is wanted, not only the line */
	char *where;
	size_t where_bytes;
	int mount_fd;
	bool readonly;
};

/* 1 found, 0 not, -errno: could not look, or found and could not open */
static int search_as(int proc_dirfd, const char *who, struct search *s)
{
	_cleanup_close_ int info_fd = -1, root_dirfd = -1;
	struct lines lines = {.fd = -1};
	struct mount_line m;
	char name[32], *line;
	int failed = 0;

	snprintf(name, sizeof(name), "%s/mountinfo", who);
	info_fd = openat(proc_dirfd, name, O_RDONLY | O_CLOEXEC);
	if (info_fd < 0)
		return -errno;
	snprintf(name, sizeof(name), "%s/root", who);
	root_dirfd = openat(proc_dirfd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_dirfd < 0)
		return -errno;
	lines.fd = info_fd;
	while ((line = next_line(&lines))) {
		if (!parse_line(line, &m) || !line_matches(root_dirfd, &m, s->dev))
			continue;
		s->mount_fd = s->open ? open_line(root_dirfd, &m) : -1;
		if (s->open && s->mount_fd < 0) {
			failed = s->mount_fd;
			continue;
		}
		s->readonly = m.readonly;
		if (s->where)
			snprintf(s->where, s->where_bytes, "%s", m.path);
		return 1;
	}
	return failed;
}

static int search_mount(int proc_dirfd, struct search *s)
{
	int own = search_as(proc_dirfd, "self", s);

	/* what pid 1 hides from us is found out by seal_unmounted */
	return own == 1 || search_as(proc_dirfd, "1", s) == 1 ? 1 : own;
}

int quiesce_find_mount(int proc_dirfd, dev_t dev, char *where, size_t size_bytes,
		       bool *ret_readonly)
{
	struct search s = {.dev = dev, .where = where, .where_bytes = size_bytes};
	int r = search_mount(proc_dirfd, &s);

	if (r == 1 && ret_readonly)
		*ret_readonly = s.readonly;
	return r;
}

/* ---- freeze ---- */

struct freezer {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	int mount_fd;
	void (*frozen)(void *ctx, int mount_fd);
	void *ctx;
	bool done, abandoned; /* under lock */
	int result;	      /* once done */
};

static atomic_bool hanging; /* an abandoned freezer is still in FIFREEZE */

static void tell(const struct freezer *f, int mount_fd)
{
	if (f->frozen)
		f->frozen(f->ctx, mount_fd);
}

static void freezer_free(struct freezer *f)
{
	close(f->mount_fd);
	tell(f, -1);
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static void *freezer_main(void *arg)
{
	struct freezer *f = arg;
	int r = ioctl(f->mount_fd, FIFREEZE, 0) < 0 ? -errno : 0;
	bool abandoned;

	pthread_mutex_lock(&f->lock);
	f->result = r;
	f->done = true;
	abandoned = f->abandoned;
	pthread_cond_signal(&f->changed);
	pthread_mutex_unlock(&f->lock);
	if (abandoned) {
		if (!r)
			(void)ioctl(f->mount_fd, FITHAW, 0);
		freezer_free(f);
		atomic_store(&hanging, false);
	}
	return NULL;
}

static int freezer_new(struct freezer **ret, const struct quiesce_target *t, int mount_fd)
{
	struct freezer *f = calloc(1, sizeof(*f));
	pthread_condattr_t attr;

	if (!f)
		return -ENOMEM;
	f->mount_fd = mount_fd;
	f->frozen = t->frozen;
	f->ctx = t->ctx;
	pthread_mutex_init(&f->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&f->changed, &attr);
	pthread_condattr_destroy(&attr);
	*ret = f;
	return 0;
}

static int freezer_start(struct freezer *f)
{
	return thread_start(&f->thread, "cowfs-freezer", FREEZER_STACK_BYTES, freezer_main, f);
}

static struct timespec ns_to_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
				 .tv_nsec = (long)(ns % 1000000000u)};
}

/* Waits for FIFREEZE, bounces what it hangs behind. -ETIMEDOUT: f now belongs to its thread. */
static int freezer_wait(struct freezer *f, const struct quiesce_target *t,
			struct quiesce_report *rep)
{
	uint64_t every_ns = t->bounce_ns ? t->bounce_ns : BOUNCE_NS;
	uint64_t begin_ns = now_ns(), bounce_at_ns = begin_ns + every_ns;
	uint64_t end_ns = begin_ns + (t->giveup_ns ? t->giveup_ns : GIVEUP_NS);
	struct stat st;

	if (fstat(f->mount_fd, &st) < 0)
		st.st_dev = t->dev;
	pthread_mutex_lock(&f->lock);
	while (!f->done && now_ns() < end_ns) {
		struct timespec until = ns_to_timespec(min_u64(bounce_at_ns, end_ns));

		if (now_ns() < bounce_at_ns) {
			pthread_cond_timedwait(&f->changed, &f->lock, &until);
			continue;
		}
		pthread_mutex_unlock(&f->lock);
		rep->bounced += bounce_writers(t->proc_dirfd, st.st_dev, rep->culprit,
					       sizeof(rep->culprit));
		bounce_at_ns = now_ns() + every_ns;
		pthread_mutex_lock(&f->lock);
	}
	rep->freeze_ns = now_ns() - begin_ns;
	if (!f->done) {
		atomic_store(&hanging, true);
		pthread_detach(f->thread);
		f->abandoned = true;
		pthread_mutex_unlock(&f->lock);
		return -ETIMEDOUT;
	}
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	return f->result;
}

static int seal_frozen(struct freezer *f, const struct quiesce_target *t, int (*seal)(void *ctx),
		       void *seal_ctx, struct quiesce_report *rep)
{
	uint64_t begin_ns = now_ns();
	int r;

	rep->frozen = true;
	tell(f, f->mount_fd);
	r = seal(seal_ctx);
	if (t->stay_frozen && !r)
		return 0;
	/* EINVAL: not frozen any more; the seal may have caught a moving image */
	if (ioctl(f->mount_fd, FITHAW, 0) < 0 && !r)
		r = errno == EINVAL ? -ECANCELED : -errno;
	rep->frozen_ns = now_ns() - begin_ns;
	return r;
}

/* Owns mount_fd. */
static int seal_mounted(int mount_fd, const struct quiesce_target *t, int (*seal)(void *ctx),
			void *seal_ctx, struct quiesce_report *rep)
{
	uint64_t begin_ns = now_ns();
	struct freezer *f = NULL;
	int r = (!t->no_sync || rep->readonly) && syncfs(mount_fd) < 0 ? -errno : 0;

	rep->sync_ns = now_ns() - begin_ns;
	if (!r && t->needed && !t->needed(seal_ctx))
		r = -ENODATA;
	if (!r)
		r = freezer_new(&f, t, mount_fd);
	if (r < 0) {
		close(mount_fd);
		return r;
	}
	tell(f, mount_fd);
	r = freezer_start(f);
	if (!r)
		r = freezer_wait(f, t, rep);
	if (r == -ETIMEDOUT)
		return r;
	if (!r)
		r = seal_frozen(f, t, seal, seal_ctx, rep);
	else if (r == -EOPNOTSUPP && rep->readonly)
		r = seal(seal_ctx); /* vfat, exfat: synced, and nobody writes */
	freezer_free(f);
	return r;
}

/* Nothing in sight is mounted: then nobody may hold the device, or the image is moving unseen. */
static int seal_unmounted(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
			  struct quiesce_report *rep)
{
	_cleanup_close_ int excl_fd = -1;
	char name[32];

	snprintf(name, sizeof(name), "self/fd/%d", t->loop_fd);
	excl_fd = openat(t->proc_dirfd, name, O_RDONLY | O_EXCL | O_CLOEXEC);
	if (excl_fd < 0) {
		rep->hidden = errno == EBUSY;
		return rep->hidden ? -ESTALE : -errno;
	}
	if (fsync(t->loop_fd) < 0)
		return -errno;
	return t->needed && !t->needed(seal_ctx) ? -ENODATA : seal(seal_ctx);
}

int quiesce_run(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		struct quiesce_report *ret)
{
	struct search s = {.dev = t->dev, .open = true, .mount_fd = -1};
	int r;

	*ret = (struct quiesce_report){0};
	if (atomic_load(&hanging))
		return -EALREADY;
	r = search_mount(t->proc_dirfd, &s);
	ret->hidden = r == -ESTALE;
	if (r < 0)
		return r;
	if (r == 0)
		return seal_unmounted(t, seal, seal_ctx, ret);
	ret->mounted = true;
	ret->readonly = s.readonly;
	return seal_mounted(s.mount_fd, t, seal, seal_ctx, ret);
}
