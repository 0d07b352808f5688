/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - The mount point of a hierarchy is read, not assumed: v2 alone, v1 alone and both at once
 *   exist.
 * - Without a cgroup namespace, a container sees its own cgroup as the root of the mount, but its
 *   path starts at the true root. A path that is not below the mount is therefore taken for the
 *   mount's root.
 * - memory.high counts as a limit: a process above it is put to sleep, and so is every process
 *   that waits for it.
 */
#include "daemon/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/io.h"

#define LIST_BYTES 8192 /* of /proc/self/cgroup */
#define NAME_BYTES 32	/* of the files in a cgroup */

static const struct kind {
	const char *type, *option; /* in /proc/self/mounts */
	const char *controller;	   /* in /proc/self/cgroup */
	const char *limits[2];
	bool kills;
} kinds[] = {
	{ "cgroup2", NULL, "", { "memory.max", "memory.high" }, true },
	{ "cgroup", "name=systemd", "name=systemd", { NULL }, true },
	{ "cgroup", "memory", "memory", { "memory.limit_in_bytes" }, false },
};

struct place {
	int mount_fd;
	char path[PATH_MAX]; /* below the mount, without the first '/'; "": its root */
};

/* "ID:CONTROLLER,...:/PATH" */
static char *match_line(char *line, const char *controller)
{
	char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
	char *save, *word;

	if (!path || path[1] != '/')
		return NULL;
	*path = '\0';
	if (!*controller && !list[1])
		return path + 2;
	for (word = strtok_r(list + 1, ",", &save); word; word = strtok_r(NULL, ",", &save))
		if (!strcmp(word, controller))
			return path + 2;
	return NULL;
}

static bool find_path(int proc_dirfd, const struct kind *k, char *buf)
{
	char text[LIST_BYTES], *save, *line, *path = NULL;

	if (io_read_text(proc_dirfd, "self/cgroup", text, sizeof(text)) < 0)
		return false;
	for (line = strtok_r(text, "\n", &save); line && !path; line = strtok_r(NULL, "\n", &save))
		path = match_line(line, k->controller);
	if (!path || strlen(path) >= PATH_MAX - NAME_BYTES)
		return false;
	memcpy(buf, path, strlen(path) + 1);
	return true;
}

/* The descriptor of the mount point, or -1. */
static int open_mount(int proc_dirfd, const struct kind *k)
{
	int list_fd = openat(proc_dirfd, "self/mounts", O_RDONLY | O_CLOEXEC), fd = -1;
	FILE *f = list_fd < 0 ? NULL : fdopen(list_fd, "r");
	char line[4 * PATH_MAX];
	struct mntent m;

	if (list_fd >= 0 && !f)
		close(list_fd);
	while (f && fd < 0 && getmntent_r(f, &m, line, sizeof(line)))
		if (!strcmp(m.mnt_type, k->type) && (!k->option || hasmntopt(&m, k->option)))
			fd = open(m.mnt_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (f)
		fclose(f);
	return fd;
}

static bool find(int proc_dirfd, const struct kind *k, struct place *ret)
{
	if (!find_path(proc_dirfd, k, ret->path))
		return false;
	ret->mount_fd = open_mount(proc_dirfd, k);
	if (ret->mount_fd < 0)
		return false;
	if (*ret->path && faccessat(ret->mount_fd, ret->path, F_OK, 0) < 0)
		*ret->path = '\0';
	return true;
}

static void read_limit(const struct place *p, const char *file, struct cgroup_limit *tightest)
{
	char path[PATH_MAX + NAME_BYTES];
	uint64_t bytes;

	snprintf(path, sizeof(path), "%s%s%s", p->path, *p->path ? "/" : "", file);
	/* "max" is not a number */
	if (io_read_u64(p->mount_fd, path, &bytes) < 0 || bytes >= tightest->bytes)
		return;
	tightest->bytes = bytes;
	snprintf(tightest->path, sizeof(tightest->path), "/%.*s", PATH_MAX - 2, p->path);
}

/* From the cgroup up to the root. */
static void take_limits(struct place *p, const struct kind *k, struct cgroup_limit *tightest)
{
	char *slash;

	for (;;) {
		for (size_t i = 0; i < ARRAY_SIZE(k->limits) && k->limits[i]; i++)
			read_limit(p, k->limits[i], tightest);
		if (!*p->path)
			return;
		slash = strrchr(p->path, '/');
		*(slash ? slash : p->path) = '\0';
	}
}

/* v1 expresses "no limit" as a number larger than any memory. */
static uint64_t machine_bytes(void)
{
	struct sysinfo info;

	return sysinfo(&info) == 0 ? (uint64_t)info.totalram * info.mem_unit : UINT64_MAX;
}

static void limit_of(int proc_dirfd, const struct kind *k, struct cgroup_limit *tightest)
{
	struct place p;

	if (!find(proc_dirfd, k, &p))
		return;
	take_limits(&p, k, tightest);
	close(p.mount_fd);
}

void cgroup_leave(int proc_dirfd)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct cgroup_limit l = { .bytes = machine_bytes() };
		struct place p;

		limit_of(proc_dirfd, &kinds[i], &l);
		if ((!*l.path && !kinds[i].kills) || !find(proc_dirfd, &kinds[i], &p))
			continue;
		if (*p.path) /* a container may have a root that takes no processes */
			(void)!io_write_text(p.mount_fd, "cgroup.procs", "0");
		close(p.mount_fd);
	}
}

void cgroup_limit(int proc_dirfd, struct cgroup_limit *ret)
{
	*ret = (struct cgroup_limit){ .bytes = machine_bytes() };
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		limit_of(proc_dirfd, &kinds[i], ret);
	if (!*ret->path)
		ret->bytes = 0;
}
