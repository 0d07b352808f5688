// SPDX-License-Identifier: MIT
/* owners_ext in a child without privileges, and the check of what it sends. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/boxed.h"
#include "fs/owners.h"

enum { PROGRESS, OWNER, TOTALS };

struct message {
	uint32_t what;
	union {
		struct boxed_progress progress;
		struct owner owner; /* path: only whether there is one; it follows, with its NUL */
		struct owners totals; /* no list */
	};
};

struct box {
	struct boxed *b; /* in the child */
	struct owners w;
	const struct owners_query *q;
	int fd, old_fd;
};

/* ---- the child ---- */

static void show(void *ctx, const char *phase, uint64_t done_bytes, uint64_t total_bytes)
{
	struct message m = { .what = PROGRESS,
			     .progress = boxed_progress(phase, done_bytes, total_bytes) };

	boxed_say_now(((struct box *)ctx)->b, &m, sizeof(m));
}

static void say_owner(struct boxed *b, const struct owner *o)
{
	struct {
		struct message m;
		char path[PATH_MAX + NAME_MAX + 2];
	} r = { .m = { .what = OWNER, .owner = *o } };
	size_t bytes = o->path ? strlen(o->path) + 1 : 0;

	if (bytes)
		memcpy(r.path, o->path, bytes);
	boxed_say(b, &r, offsetof(typeof(r), path) + bytes);
}

static int work(void *ctx, struct boxed *b)
{
	struct box *x = ctx;
	struct owners_query q = *x->q;
	struct message m = { .what = TOTALS };
	int e;

	x->b = b;
	q.progress = show;
	q.ctx = x;
	q.old_fd = q.old_fd ? &x->old_fd : NULL;
	e = owners_ext_fd(&x->w, x->fd, &q);
	for (size_t i = 0; i < x->w.n && e == 0; i++)
		say_owner(b, &x->w.o[i]);
	m.totals = x->w;
	boxed_say(b, &m, sizeof(m));
	return e;
}

/* ---- this process ---- */

static int hear_owner(struct box *x, const struct message *m, const char *path, size_t path_bytes)
{
	struct owner o = m->owner;
	uint64_t most = blk_to_bytes(x->q->all->blks);
	int e;

	if ((unsigned)o.kind >= OWNER_KINDS || o.differs > (x->q->old_fd ? 15u : 0) ||
	    o.bytes > most || o.fresh_bytes > o.bytes ||
	    (path_bytes && (*path != '/' || strnlen(path, path_bytes) != path_bytes - 1)))
		return -EPROTO;
	o.path = path_bytes ? strdup(path) : NULL;
	if (path_bytes && !o.path)
		return -ENOMEM;
	e = owners_keep(&x->w, &o);
	free(o.path);
	return e;
}

static int hear(void *ctx, const void *message, size_t bytes)
{
	const struct message *m = message;
	struct box *x = ctx;

	if (bytes < sizeof(*m))
		return -EPROTO;
	switch (m->what) {
	case PROGRESS:
		return boxed_hear_progress(&m->progress, x->q->progress, x->q->ctx);
	case OWNER:
		return hear_owner(x, m, (const char *)(m + 1), bytes - sizeof(*m));
	case TOTALS:
		x->w.looked_at = m->totals.looked_at;
		x->w.unreadable = m->totals.unreadable;
		x->w.too_long = m->totals.too_long;
		x->w.complete = *(const uint8_t *)&m->totals.complete;
		return 0;
	default:
		return -EPROTO;
	}
}

int owners_ext_boxed(struct owners *ret, const char *device, const struct owners_query *q)
{
	_cleanup_close_ int fd = open(device, O_RDONLY | O_CLOEXEC);
	struct box x = { .q = q, .fd = fd, .old_fd = q->old_fd ? *q->old_fd : -1 };
	const struct boxed_job job = { .work = work,
				       .hear = hear,
				       .ctx = &x,
				       .fd = { fd, x.old_fd },
				       .fds = q->old_fd ? 2 : 1 };
	int e = fd < 0 ? -errno : boxed_run(&job);

	if (e < 0)
		owners_clear(&x.w);
	else
		*ret = x.w;
	return e;
}
