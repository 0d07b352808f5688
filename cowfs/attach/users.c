/* SPDX-License-Identifier: MIT */
/*
 * Mounts are distinguished by their id, not by the device: the same file system on another
 * directory, or in another namespace, does not keep this mount busy.
 */
#include "attach/users.h"

#include <fcntl.h>
#include <glob.h>
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

static bool is_on(void *id, int dirfd, const char *path)
{
	return mount_id(dirfd, path) == *(const uint64_t *)id;
}

struct below {
	const char *dir;
	uint64_t id; /* 0: an overlay that has folders there is meant */
	char *user;
};

/* Is the path below the directory? With more text after the path. */
static bool is_under(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && path[n] == '/';
}

static void note_loop(struct below *b)
{
	glob_t files = { 0 };
	char path[PATH_MAX];

	if (glob("/sys/block/loop*/loop/backing_file", GLOB_NOSORT, NULL, &files))
		return;
	for (size_t i = 0; i < files.gl_pathc && !*b->user; i++)
		if (io_read_text(AT_FDCWD, files.gl_pathv[i], path, sizeof(path)) > 0 &&
		    is_under(path, b->dir))
			snprintf(b->user, MOUNT_USER_BYTES, "/dev/%.16s, the loop device of %.255s",
				 strtok(files.gl_pathv[i] + strlen("/sys/block/"), "/"),
				 clean_text(path));
	globfree(&files);
}

static void note_swap(struct below *b)
{
	char text[16 * KIB], *rest = text, *line;

	if (io_read_text(AT_FDCWD, "/proc/swaps", text, sizeof(text)) < 0)
		return;
	while (!*b->user && (line = strsep(&rest, "\n"))) {
		line[strcspn(line, " \t")] = '\0';
		mounts_unescape(line);
		if (is_under(line, b->dir))
			snprintf(b->user, MOUNT_USER_BYTES, "the swap file %.255s",
				 clean_text(line));
	}
}

/* An overlay whose folders are below the directory: upperdir=DIR, lowerdir=DIR:DIR. */
static bool has_folder(const struct mount_entry *m, const char *dir)
{
	mounts_unescape(m->options);
	for (char *p = m->options; (p = strpbrk(p, "=:")); p++)
		if (is_under(p + 1, dir))
			return true;
	return false;
}

static int is_below(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct below *b = ctx;

	(void)root_dirfd;
	if (b->id ? m->parent_id != b->id : strcmp(m->type, "overlay") || !has_folder(m, b->dir))
		return 0;
	mounts_unescape(m->path);
	snprintf(b->user, MOUNT_USER_BYTES, "the mount on %.255s", clean_text(m->path));
	return 1;
}

bool mount_kernel_user_find(const char *dir, char ret[MOUNT_USER_BYTES])
{
	_cleanup_close_ int proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct below b = { dir, 0, ret };

	*ret = '\0';
	(void)!mounts_each(proc_dirfd, "self", is_below, &b);
	if (!*ret)
		note_loop(&b);
	if (!*ret)
		note_swap(&b);
	return *ret;
}

bool mount_user_find(const char *dir, char ret[MOUNT_USER_BYTES])
{
	_cleanup_close_ int proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t id = mount_id(AT_FDCWD, dir);
	DIR *list = proc_dirfd < 0 || !id ? NULL : proclist_open(proc_dirfd, ".");
	int pid;

	*ret = '\0';
	if (!list)
		return false;
	while (!*ret && (pid = proclist_next(list)) >= 0)
		if (pid != getpid() && proclist_any_file(proc_dirfd, pid, is_on, &id))
			(void)proclist_name(proc_dirfd, pid, ret, MOUNT_USER_BYTES);
	closedir(list);
	if (!*ret) /* a mount that cannot be examined is not below */
		(void)!mounts_each(proc_dirfd, "self", is_below, &(struct below){ dir, id, ret });
	return *ret || mount_kernel_user_find(dir, ret);
}
