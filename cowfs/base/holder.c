/* SPDX-License-Identifier: MIT */
/* Most processes share a few mount namespaces: the search reads each of these once. */
#include "base/holder.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/allowance.h"
#include "base/broker.h"
#include "base/mounts.h"
#include "base/proclist.h"

#define LIMIT_NS 300000000ull /* of processor time */
#define NAMESPACES 16

struct search {
	int proc_dirfd;
	dev_t dev;
	uint64_t seen[NAMESPACES]; /* inodes of the last mount namespaces that were read */
	unsigned n_seen;
};

static int match_dev(void *ctx, int root_dirfd, struct mount_entry *m)
{
	(void)root_dirfd;
	return m->dev == ((struct search *)ctx)->dev;
}

static bool is_of_it(void *ctx, int dirfd, const char *path)
{
	const struct search *s = ctx;
	struct statx st;

	if (statx(dirfd, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st) < 0)
		return false;
	return makedev(st.stx_dev_major, st.stx_dev_minor) == s->dev ||
	       (S_ISBLK(st.stx_mode) && makedev(st.stx_rdev_major, st.stx_rdev_minor) == s->dev);
}

static bool namespace_has(struct search *s, int pid)
{
	struct statx st;
	char name[32];

	snprintf(name, sizeof(name), "%d/ns/mnt", pid);
	if (statx(s->proc_dirfd, name, 0, STATX_INO, &st) < 0)
		return false;
	for (unsigned i = 0; i < NAMESPACES; i++)
		if (s->seen[i] == st.stx_ino)
			return false;
	s->seen[s->n_seen++ % NAMESPACES] = st.stx_ino;
	snprintf(name, sizeof(name), "%d", pid);
	return mounts_each(s->proc_dirfd, name, match_dev, s) == 1;
}

static int own_pid;

void holder_ignore(int pid)
{
	own_pid = pid;
}

static bool ask_there(char *name, size_t size_bytes)
{
	struct broker_message m = { .op = BROKER_HOLDER };

	if (broker_ask(BROKER_LOOK, &m, NULL) != 1)
		return false;
	snprintf(name, size_bytes, "%.*s", (int)m.bytes, m.data);
	return true;
}

bool holder_find(int proc_dirfd, dev_t dev, char *name, size_t size_bytes)
{
	struct search s = { .proc_dirfd = proc_dirfd, .dev = dev };
	uint64_t end_ns = cpu_now_ns() + LIMIT_NS;
	bool found = false;
	DIR *list;
	int pid;

	if (broker_on())
		return ask_there(name, size_bytes);
	list = proclist_open(proc_dirfd, ".");
	while (list && !found && cpu_now_ns() < end_ns && (pid = proclist_next(list)) >= 0)
		if (pid != getpid() && pid != getppid() && pid != own_pid)
			found = (namespace_has(&s, pid) ||
				 proclist_any_file(proc_dirfd, pid, is_of_it, &s)) &&
				proclist_name(proc_dirfd, pid, name, size_bytes);
	if (list)
		closedir(list);
	return found;
}
