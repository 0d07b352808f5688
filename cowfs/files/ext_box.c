// SPDX-License-Identifier: MIT
/* ext_diff in a child without privileges, and the check of what it sends. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/boxed.h"
#include "base/io.h"
#include "files/ext_diff.h"
#include "files/ext_live.h"

enum { PROGRESS, NAMES, FILE_DIFFERS, LEFT_OUT };

struct message {
	uint32_t what;
	union {
		struct boxed_progress progress;
		struct {
			uint32_t n;
			struct ext_live_id id[EXT_LIVE_IDS];
		} names;
		struct {
			uint32_t kind, differs, type, path_bytes, from_bytes; /* 0: no from */
			uint64_t old_bytes, new_bytes;
		} file; /* path and from follow, each with its final NUL */
		uint64_t left_out;
	};
};

struct box {
	struct boxed *b; /* in the child */
	struct diff *ret;
	int old_fd, new_fd;
	const struct extents *changed;
	struct ext_live *live;
	const struct diff_progress *progress;
};

/* ---- the child ---- */

static void show(void *ctx, const char *phase, uint64_t done_bytes, uint64_t total_bytes)
{
	struct message m = { .what = PROGRESS,
			     .progress = boxed_progress(phase, done_bytes, total_bytes) };

	boxed_ask(((struct box *)ctx)->b, &m, sizeof(m), NULL, 0);
}

static void find(void *ctx, const struct ext_live_id *id, uint32_t n, struct ext_live_names *ret)
{
	struct message m = { .what = NAMES, .names = { .n = n } };

	memcpy(m.names.id, id, n * sizeof(*id));
	boxed_ask(((struct box *)ctx)->b, &m, sizeof(m), ret, sizeof(*ret));
}

static int device_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return io_pread_full(*(int *)ctx, buf, blk_to_bytes(blks), blk_to_bytes(blk));
}

static struct blk_reader reader_of(int *fd)
{
	off_t bytes = lseek(*fd, 0, SEEK_END);

	return (struct blk_reader){ device_read, fd,
				    bytes < 0 ? 0 : (uint64_t)bytes >> COW_BLK_SHIFT };
}

static void say_file(struct boxed *b, const struct diff_file *f)
{
	struct {
		struct message m;
		char text[2 * PATH_MAX];
	} r = { .m = { .what = FILE_DIFFERS,
		       .file = { .kind = f->kind,
				 .differs = f->what,
				 .type = f->type,
				 .path_bytes = (uint32_t)strlen(f->path) + 1,
				 .from_bytes = f->from ? (uint32_t)strlen(f->from) + 1 : 0,
				 .old_bytes = f->old_bytes,
				 .new_bytes = f->new_bytes } } };

	memcpy(r.text, f->path, r.m.file.path_bytes);
	if (f->from)
		memcpy(r.text + r.m.file.path_bytes, f->from, r.m.file.from_bytes);
	boxed_say(b, &r, offsetof(typeof(r), text) + r.m.file.path_bytes + r.m.file.from_bytes);
}

static int work(void *ctx, struct boxed *b)
{
	struct box *x = ctx;
	struct blk_reader old_state = reader_of(&x->old_fd), new_state = reader_of(&x->new_fd);
	const struct ext_live_source live = { find, x };
	const struct diff_progress progress = { show, x };
	struct message m = { .what = LEFT_OUT };
	struct diff d = { 0 };
	int e;

	x->b = b;
	e = ext_diff(&d, &old_state, &new_state, x->changed, x->live ? &live : NULL, &progress);
	for (size_t i = 0; i < d.n && e == 0; i++)
		say_file(b, &d.f[i]);
	m.left_out = d.too_long;
	boxed_say(b, &m, sizeof(m));
	return e;
}

/* ---- this process ---- */

/* Is this text, with its NUL, a path from the root, "a/b"? */
static bool is_path(const char *text, size_t bytes)
{
	return bytes && bytes <= PATH_MAX && strnlen(text, bytes) == bytes - 1 && *text != '/';
}

static int hear_file(struct diff *d, const struct message *m, size_t bytes)
{
	const char *path = (const char *)(m + 1), *from = path + m->file.path_bytes;
	uint64_t all = sizeof(*m) + (uint64_t)m->file.path_bytes + m->file.from_bytes;
	struct diff_file f = { .kind = m->file.kind,
			       .what = m->file.differs,
			       .type = m->file.type,
			       .old_bytes = m->file.old_bytes,
			       .new_bytes = m->file.new_bytes };
	struct diff_file *p;

	if (all != bytes || m->file.kind >= DIFF_KINDS || m->file.type & ~S_IFMT ||
	    m->file.differs >= 1u << strlen(DIFF_LETTERS) || !is_path(path, m->file.path_bytes) ||
	    (m->file.kind == DIFF_RENAMED) != (m->file.from_bytes != 0) ||
	    (m->file.from_bytes && !is_path(from, m->file.from_bytes)))
		return -EPROTO;
	p = array_grow(d->f, &d->cap, d->n + 1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	d->f = p;
	f.path = strdup(path);
	f.from = m->file.from_bytes ? strdup(from) : NULL;
	d->f[d->n++] = f;
	return f.path && (f.from || !m->file.from_bytes) ? 0 : -ENOMEM;
}

static int hear(void *ctx, const void *message, size_t bytes, void *reply, size_t reply_bytes)
{
	const struct message *m = message;
	struct box *x = ctx;

	if (bytes < sizeof(*m) ||
	    reply_bytes != (m->what == NAMES ? sizeof(struct ext_live_names) : 0))
		return -EPROTO;
	switch (m->what) {
	case PROGRESS:
		return boxed_hear_progress(&m->progress, x->progress ? x->progress->show : NULL,
					   x->progress ? x->progress->ctx : NULL);
	case NAMES:
		if (!x->live || !m->names.n || m->names.n > EXT_LIVE_IDS)
			return -EPROTO;
		ext_live_find(x->live, m->names.id, m->names.n, reply);
		return 0;
	case FILE_DIFFERS:
		return hear_file(x->ret, m, bytes);
	case LEFT_OUT:
		x->ret->too_long = m->left_out;
		return 0;
	default:
		return -EPROTO;
	}
}

int ext_diff_boxed(struct diff *ret, int old_fd, int new_fd, const struct extents *changed,
		   struct ext_live *live, const struct diff_progress *progress)
{
	struct box x = { .ret = ret,
			 .old_fd = old_fd,
			 .new_fd = new_fd,
			 .changed = changed,
			 .live = live,
			 .progress = progress };
	const struct boxed_job job = {
		.work = work, .hear = hear, .ctx = &x, .fd = { old_fd, new_fd }, .fds = 2
	};

	return boxed_run(&job);
}
