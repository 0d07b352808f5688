/* SPDX-License-Identifier: MIT */
/*
 * After switch_root the daemon's own "/" is the emptied initramfs below the mounts that it serves: no path
 * lookup works from there. So this code searches for the mount in mountinfo below the kept /proc, first
 * that of this process, then that of pid 1.
 */
#include "fs/find_mount.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "base/broker.h"
#include "base/mounts.h"

static int look_at_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct mount_search *s = ctx;

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

static int search_as(const char *who, struct mount_search *s)
{
	int r;

	s->failed = 0;
	r = mounts_each(s->proc_dirfd, who, look_at_mount, s);
	return r ? r : s->failed;
}

int find_mount_search(struct mount_search *s)
{
	int own = search_as("self", s);

	/* seal_unmounted detects mounts that pid 1 hides from this process */
	return own == 1 || search_as("1", s) == 1 ? 1 : own;
}

static int find_there(char *where, size_t size_bytes, bool *ret_readonly)
{
	struct broker_message m = { .op = BROKER_FIND_MOUNT };
	int r = broker_ask(BROKER_LOOK, &m, NULL);

	if (r == 1 && where)
		snprintf(where, size_bytes, "%.*s", (int)min_u64(m.bytes, PATH_MAX), m.data);
	if (r == 1 && ret_readonly)
		*ret_readonly = m.n[0];
	return r;
}

int find_mount(int proc_dirfd, dev_t dev, char *where, size_t size_bytes, bool *ret_readonly)
{
	struct mount_search s = {
		.proc_dirfd = proc_dirfd, .dev = dev, .where = where, .where_bytes = size_bytes
	};
	int r;

	if (broker_on())
		return find_there(where, size_bytes, ret_readonly);
	r = find_mount_search(&s);
	if (r == 1 && ret_readonly)
		*ret_readonly = s.readonly;
	return r;
}

int find_mount_open(int proc_dirfd, dev_t dev)
{
	struct mount_search s = {
		.proc_dirfd = proc_dirfd, .dev = dev, .open = true, .mount_fd = -1
	};
	int r = find_mount_search(&s);

	return r == 1 ? s.mount_fd : r ? r : -ENOENT;
}
