// SPDX-License-Identifier: MIT
/*
 * Which inodes differ between two mounted states of an xfs, by what XFS_IOC_BULKSTAT says of each. It reads the inodes and
 * no directory.
 *
 * Each change of a file or folder sets its change time, which no call can set. So one that is equal in all that is compared
 * did not change, unless it changed twice in one tick of the clock: before the states parted, and again. No inode that
 * is equal has a later change time then, so those with the latest one count as touched. So do those of the future: the
 * clock has been set back.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/array.h"
#include "base/thread.h"
#include "fs/owners.h"

#define BATCH 2048
#define STACK_BYTES (64 * KIB)

/* linux/fs/xfs/libxfs/xfs_fs.h, which is no header of user space */
struct bulk {
	uint64_t ino, size, blocks, xflags;
	int64_t atime, mtime, ctime, btime;
	uint32_t gen, uid, gid, projid;
	uint32_t atime_ns, mtime_ns, ctime_ns, btime_ns;
	uint32_t blksize, rdev, cowextsize, extsize;
	uint32_t nlink, extents, aextents;
	uint16_t version, forkoff, sick, checked, mode, pad;
	uint64_t extents64, room[6];
};
_Static_assert(sizeof(struct bulk) == 192, "struct xfs_bulkstat");

struct bulk_request {
	uint64_t ino;
	uint32_t flags, icount, ocount, agno;
	uint64_t room[5];
};
#define BULKSTAT _IOR('X', 127, struct bulk_request)

/* A thread reads the next batch while this one is compared. */
struct state {
	int dir_fd, e;
	unsigned at;
	bool reads;
	pthread_t thread;
	struct {
		struct bulk_request rq;
		struct bulk b[BATCH];
	} x, then;
};

static void *read_batch(void *arg)
{
	struct state *s = arg;

	s->then.rq = (struct bulk_request){ .ino = s->x.rq.ino, .icount = BATCH };
	s->e = ioctl(s->dir_fd, BULKSTAT, &s->then.rq) < 0 ? -errno : 0;
	return NULL;
}

static void begin_batch(struct state *s)
{
	s->reads = thread_start(&s->thread, NULL, STACK_BYTES, read_batch, s) == 0;
}

static void end_batch(struct state *s)
{
	if (s->reads)
		pthread_join(s->thread, NULL);
	else
		read_batch(s);
	s->reads = false;
}

/* NULL: there are no more. */
static int next(struct state *s, struct bulk **ret)
{
	if (s->at == s->x.rq.ocount) {
		end_batch(s);
		if (s->e < 0)
			return s->e;
		s->at = 0;
		s->x = s->then;
		if (s->x.rq.ocount)
			begin_batch(s);
	}
	*ret = s->at < s->x.rq.ocount ? &s->x.b[s->at++] : NULL;
	if (*ret) {
		(*ret)->atime = 0;
		(*ret)->atime_ns = 0;
		(*ret)->sick = (*ret)->checked = 0;
	}
	return 0;
}

/* Equal inodes of one change time */
struct latest {
	int64_t s;
	uint32_t ns;
	uint64_t *ino;
	size_t n, cap;
};

static int touch(struct owners *w, uint64_t ino)
{
	struct owner o = { .kind = OWNER_FILE, .differs = OWNER_TOUCHED, .ino = ino };

	return owners_keep(w, &o);
}

static int take_equal(struct latest *l, const struct bulk *b)
{
	if (b->ctime < l->s || (b->ctime == l->s && b->ctime_ns < l->ns))
		return 0;
	if (b->ctime != l->s || b->ctime_ns != l->ns)
		l->n = 0;
	l->s = b->ctime;
	l->ns = b->ctime_ns;
	return ARRAY_ADD(l->ino, l->n, l->cap, b->ino);
}

static int compare(struct owners *w, struct latest *l, struct state *old, struct state *new,
		   int64_t now_s)
{
	struct bulk *a, *b;
	int e = next(old, &a);

	for (int f = next(new, &b); (e = e ?: f) == 0 && b; f = next(new, &b)) {
		w->looked_at++;
		while (e == 0 && a && a->ino < b->ino)
			e = next(old, &a);
		if (e == 0 && a && b->ctime <= now_s && !memcmp(a, b, sizeof(*a)))
			e = take_equal(l, b);
		else if (e == 0)
			e = touch(w, b->ino);
	}
	for (size_t i = 0; i < l->n && e == 0; i++)
		e = touch(w, l->ino[i]);
	return e;
}

int owners_xfs(struct owners *ret, int old_dir_fd, int new_dir_fd, uint64_t now_s)
{
	struct state *s = calloc(2, sizeof(*s));
	struct latest l = { .s = INT64_MIN };
	struct owners w = { .complete = true };
	/* those of a mount are O_PATH */
	_cleanup_close_ int old_fd = openat(old_dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
			    new_fd = openat(new_dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int e = old_fd < 0 || new_fd < 0 ? -errno : s ? 0 : -ENOMEM;

	if (e == 0) {
		s[0].dir_fd = old_fd;
		s[1].dir_fd = new_fd;
		begin_batch(&s[0]);
		begin_batch(&s[1]);
		e = compare(&w, &l, &s[0], &s[1], (int64_t)now_s);
		for (unsigned i = 0; i < 2; i++)
			if (s[i].reads)
				end_batch(&s[i]);
	}
	free(s);
	free(l.ino);
	if (e < 0)
		owners_clear(&w);
	else
		*ret = w;
	return e;
}
