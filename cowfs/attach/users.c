/* SPDX-License-Identifier: MIT */
/*
 * Mounts are distinguished by their id, not by the device: the same file system on another
 * directory, or in another namespace, does not keep this mount busy.
 */
#include "attach/users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clean.h"
#include "base/io.h"
#include "base/mounts.h"
#include "base/proclist.h"

/*
 * 0 if the id is unknown. Sends no request to a file system, because a damaged one might not
 * answer.
 */
static uint64_t mount_id(int dirfd, const char *path)
{
	struct statx st;

	if (statx(dirfd, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_MNT_ID, &st) < 0 ||
	    !(st.stx_mask & STATX_MNT_ID))
		return 0;
	return st.stx_mnt_id;
}

static bool process_uses(int proc_dirfd, int pid, uint64_t id)
{
	static const char *const places[] = { "cwd", "root", "exe" };
	char name[48];
	bool uses = false;
	DIR *fds;
	int fd;

	for (size_t i = 0; i < ARRAY_SIZE(places) && !uses; i++) {
		snprintf(name, sizeof(name), "%d/%s", pid, places[i]);
		uses = mount_id(proc_dirfd, name) == id;
	}
	snprintf(name, sizeof(name), "%d/fd", pid);
	fds = uses ? NULL : proclist_open(proc_dirfd, name);
	if (!fds)
		return uses;
	while (!uses && (fd = proclist_next(fds)) >= 0) {
		snprintf(name, sizeof(name), "%d", fd);
		uses = mount_id(dirfd(fds), name) == id;
	}
	closedir(fds);
	return uses;
}

static pid_t parent_of(int proc_dirfd, pid_t pid)
{
	char name[32], text[512];
	const char *p;
	int parent;

	snprintf(name, sizeof(name), "%d/stat", (int)pid);
	if (!pid || io_read_text(proc_dirfd, name, text, sizeof(text)) < 0)
		return 0;
	p = strrchr(text, ')'); /* the name before it may contain any character */
	return p && sscanf(p, ") %*c %d", &parent) == 1 && parent > 1 ? parent : 0;
}

static void note_process(int proc_dirfd, int pid, struct mount_users *u)
{
	char name[32], comm[32];

	snprintf(name, sizeof(name), "%d/comm", pid);
	if (io_read_text(proc_dirfd, name, comm, sizeof(comm)) < 0)
		return; /* the process has ended */
	snprintf(u->other, sizeof(u->other), "%s[%d]", clean_text(comm), pid);
}

struct below {
	uint64_t id;
	struct mount_users *u;
};

static int is_below(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct below *b = ctx;

	(void)root_dirfd;
	if (m->parent_id != b->id)
		return 0;
	snprintf(b->u->other, sizeof(b->u->other), "the mount on %.255s", clean_text(m->path));
	return 1;
}

int mount_users_find(const char *dir, pid_t worker, struct mount_users *ret)
{
	_cleanup_close_ int proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t id = mount_id(AT_FDCWD, dir);
	DIR *list = proc_dirfd < 0 ? NULL : proclist_open(proc_dirfd, ".");
	struct mount_users u = { 0 };
	pid_t parent;
	int pid;

	if (!list || !id) {
		if (list)
			closedir(list);
		return list ? -ENOENT : -errno;
	}
	parent = parent_of(proc_dirfd, worker);
	while (!*u.other && (pid = proclist_next(list)) >= 0) {
		if (pid == getpid() || !process_uses(proc_dirfd, pid, id))
			continue;
		if (pid == worker || pid == parent ||
		    (worker && parent_of(proc_dirfd, pid) == worker)) /* its broker */
			u.own = true;
		else
			note_process(proc_dirfd, pid, &u);
	}
	closedir(list);
	if (!*u.other) /* a mount that cannot be examined is not below */
		(void)!mounts_each(proc_dirfd, "self", is_below, &(struct below){ id, &u });
	*ret = u;
	return 0;
}
