/* SPDX-License-Identifier: MIT */
#include "cli/open_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/clean.h"
#include "base/io.h"
#include "base/proclist.h"

struct search {
	const struct open_file *list, *last; /* last: of the process under way */
	size_t n;
	int proc_fd, pid;
	void (*each)(void *ctx, const struct open_file *f, const char *holder);
	void *ctx;
};

static int by_inode(const void *a, const void *b)
{
	const struct open_file *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static void look(struct search *s, int dir_fd, const char *name)
{
	struct open_file key = { 0 };
	const struct open_file *f;
	char path[32], comm[32], holder[64];
	struct statx st;

	if (statx(dir_fd, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_INO, &st) < 0)
		return;
	key.dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	key.ino = st.stx_ino;
	f = bsearch(&key, s->list, s->n, sizeof(key), by_inode);
	if (!f || f == s->last)
		return;
	s->last = f;
	snprintf(path, sizeof(path), "%d/comm", s->pid);
	if (io_read_text(s->proc_fd, path, comm, sizeof(comm)) < 0)
		return;
	snprintf(holder, sizeof(holder), "%s[%d]", clean_text(comm), s->pid);
	s->each(s->ctx, f, holder);
}

static void look_at_process(struct search *s)
{
	static const char *const places[] = { "cwd", "root", "exe" };
	char name[48];
	DIR *fds;
	int fd;

	s->last = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		snprintf(name, sizeof(name), "%d/%s", s->pid, places[i]);
		look(s, s->proc_fd, name);
	}
	snprintf(name, sizeof(name), "%d/fd", s->pid);
	fds = proclist_open(s->proc_fd, name);
	while (fds && (fd = proclist_next(fds)) >= 0) {
		snprintf(name, sizeof(name), "%d", fd);
		look(s, dirfd(fds), name);
	}
	if (fds)
		closedir(fds);
}

void open_files_find(struct open_file *list, size_t n,
		     void (*each)(void *ctx, const struct open_file *f, const char *holder),
		     void *ctx)
{
	struct search s = { .list = list, .n = n, .each = each, .ctx = ctx };
	DIR *dir = n ? proclist_open(AT_FDCWD, "/proc") : NULL;

	if (!dir)
		return;
	qsort(list, n, sizeof(*list), by_inode);
	s.proc_fd = dirfd(dir);
	while ((s.pid = proclist_next(dir)) >= 0)
		if (s.pid != getpid())
			look_at_process(&s);
	closedir(dir);
}
