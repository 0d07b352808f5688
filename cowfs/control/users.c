/* SPDX-License-Identifier: MIT */
/*
 * Mounts are told apart by their id, not by the device: the same file system on another directory,
 * or in another namespace, keeps nobody from unmounting this one.
 */
#include "control/users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/proclist.h"

/* 0 if it cannot be told. Asks no file system: one in trouble might not answer. */
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
	static const char *const places[] = {"cwd", "root", "exe"};
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
	p = strrchr(text, ')'); /* the name before it may hold anything */
	return p && sscanf(p, ") %*c %d", &parent) == 1 && parent > 1 ? parent : 0;
}

static void note_process(int proc_dirfd, int pid, struct mount_users *u)
{
	char name[32], comm[32];

	snprintf(name, sizeof(name), "%d/comm", pid);
	if (io_read_text(proc_dirfd, name, comm, sizeof(comm)) < 0)
		return; /* gone */
	snprintf(u->other, sizeof(u->other), "%s[%d]", comm, pid);
}

/* "40 36 98:0 / /point ..." with the parent's id in the second field */
static void find_mount_below(int proc_dirfd, uint64_t id, struct mount_users *u)
{
	int fd = openat(proc_dirfd, "self/mountinfo", O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "re");
	char *line = NULL, point[256];
	unsigned long long parent;
	size_t size = 0;

	while (f && !*u->other && getline(&line, &size, f) > 0)
		if (sscanf(line, "%*u %llu %*s %*s %255s", &parent, point) == 2 && parent == id)
			snprintf(u->other, sizeof(u->other), "the mount on %s", point);
	free(line);
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
}

int mount_users_find(const char *dir, pid_t worker, struct mount_users *ret)
{
	_cleanup_close_ int proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t id = mount_id(AT_FDCWD, dir);
	DIR *list = proc_dirfd < 0 ? NULL : proclist_open(proc_dirfd, ".");
	struct mount_users u = {0};
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
		if (pid == worker || pid == parent)
			u.own = true;
		else
			note_process(proc_dirfd, pid, &u);
	}
	closedir(list);
	find_mount_below(proc_dirfd, id, &u);
	*ret = u;
	return 0;
}
