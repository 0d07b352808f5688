/* SPDX-License-Identifier: MIT */
/*
 * The RAM store: two private tmpfs that are never attached to the tree. So no path leads to them and
 * nothing can unmount them. One has the content; its size= is the hard limit. The other one has the
 * presence maps and the rest of what a later process needs, without a limit.
 *
 * The record of the stack is there twice. `now` says which copy is valid, and changes in one store.
 * So it is whole after a kill at any instruction.
 */
#include "ram/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "base/broker.h"
#include "base/parse.h"

/* a file for each generation: active, sealed, and one for each failed commit not yet merged */
#define STORE_INODES "64"
#define SIDE_INODES "128"
#define RECORD "stack"

struct record {
	_Atomic uint64_t last_id;
	_Atomic uint32_t now;
	struct ram_stack copy[2];
};

static uid_t owner_uid;
static gid_t owner_gid;

struct ram_store {
	int mnt_fd, side_fd;
	struct record *record;
};

static int set_string(int fs_fd, const char *key, const char *value)
{
	return fsconfig(fs_fd, FSCONFIG_SET_STRING, key, value, 0) < 0 ? -errno : 0;
}

static int set_size(int fs_fd, uint64_t limit_bytes)
{
	char size[24];

	snprintf(size, sizeof(size), "%llu", (unsigned long long)limit_bytes);
	return set_string(fs_fd, "size", size);
}

static int set_number(int fs_fd, const char *key, unsigned n)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", n);
	return set_string(fs_fd, key, text);
}

void ram_store_owner(uid_t uid, gid_t gid)
{
	owner_uid = uid;
	owner_gid = gid;
}

/* limit_bytes 0: none */
static int configure(int fs_fd, uint64_t limit_bytes, const char *inodes)
{
	int r;

	if ((r = set_size(fs_fd, limit_bytes)) < 0 ||
	    (r = set_string(fs_fd, "nr_inodes", inodes)) < 0 ||
	    (r = set_string(fs_fd, "mode", "0700")) < 0 ||
	    (r = set_number(fs_fd, "uid", owner_uid)) < 0 ||
	    (r = set_number(fs_fd, "gid", owner_gid)) < 0)
		return r;
	/* Kernels without huge pages reject the first option, those before 6.4 the second. Then the
	 * setting already has the wanted value, or is not available. */
	(void)set_string(fs_fd, "huge", "never");
	(void)fsconfig(fs_fd, FSCONFIG_SET_FLAG, "noswap", NULL, 0);
	return fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0 ? -errno : 0;
}

static int new_mount(uint64_t limit_bytes, const char *inodes)
{
	const unsigned attr = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC |
			      MOUNT_ATTR_NOATIME;
	_cleanup_close_ int fs_fd = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int r = fs_fd < 0 ? -errno : configure(fs_fd, limit_bytes, inodes);

	if (r < 0)
		return r;
	r = fsmount(fs_fd, FSMOUNT_CLOEXEC, attr);
	return r < 0 ? -errno : r;
}

int ram_store_open(struct ram_store **ret, uint64_t limit_bytes)
{
	struct ram_store *s = limit_bytes ? calloc(1, sizeof(*s)) : NULL;
	int r;

	if (!s)
		return limit_bytes ? -ENOMEM : -EINVAL;
	s->side_fd = -1;
	r = s->mnt_fd = new_mount(limit_bytes, STORE_INODES);
	if (r >= 0)
		r = s->side_fd = new_mount(0, SIDE_INODES);
	if (r >= 0) { /* a file of the owner's */
		setfsgid(owner_gid);
		setfsuid(owner_uid);
		r = ram_store_share(s, RECORD, sizeof(*s->record), (void **)&s->record);
		setfsuid(geteuid());
		setfsgid(getegid());
	}
	if (r < 0) {
		ram_store_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

int ram_store_take_over(struct ram_store **ret, const int fd[RAM_STORE_FDS])
{
	struct ram_store *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->mnt_fd = fd[0];
	s->side_fd = fd[1];
	r = ram_store_share(s, RECORD, sizeof(*s->record), (void **)&s->record);
	if (r == 1)
		r = -EPROTO; /* it was not there */
	if (r < 0) {
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void ram_store_fds(const struct ram_store *s, int ret[RAM_STORE_FDS])
{
	ret[0] = s->mnt_fd;
	ret[1] = s->side_fd;
}

int ram_store_resize_mount(int mnt_fd, uint64_t limit_bytes)
{
	_cleanup_close_ int fs_fd = fspick(mnt_fd, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
	int r;

	if (fs_fd < 0)
		return -errno;
	r = set_size(fs_fd, limit_bytes);
	if (r < 0)
		return r;
	return fsconfig(fs_fd, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0 ? -errno : 0;
}

int ram_store_resize(struct ram_store *s, uint64_t limit_bytes)
{
	return broker_on() ? broker_call(BROKER_MAIN, BROKER_RESIZE, limit_bytes, 0)
			   : ram_store_resize_mount(s->mnt_fd, limit_bytes);
}

void ram_store_close(struct ram_store *s)
{
	if (!s)
		return;
	if (s->record)
		munmap(s->record, sizeof(*s->record));
	if (s->mnt_fd >= 0)
		close(s->mnt_fd);
	if (s->side_fd >= 0)
		close(s->side_fd);
	free(s);
}

uint64_t ram_store_used_bytes(const struct ram_store *s)
{
	struct statfs st = { 0 };

	/* cannot fail on an open descriptor */
	(void)fstatfs(s->mnt_fd, &st);
	return (uint64_t)(st.f_blocks - st.f_bfree) * (uint64_t)st.f_bsize;
}

uint64_t ram_store_room(const struct ram_store *s, uint64_t max_bytes)
{
	uint64_t used_bytes = ram_store_used_bytes(s);

	return used_bytes < max_bytes ? max_bytes - used_bytes : 0;
}

/* ---- files ---- */

static int open_named(int dirfd, const char *name, uint64_t size_bytes, bool *ret_new)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_RDWR | O_CLOEXEC);
	struct stat st;

	*ret_new = fd < 0;
	if (fd < 0)
		fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || (*ret_new && ftruncate(fd, (off_t)size_bytes) < 0) || fstat(fd, &st) < 0)
		return -errno;
	return (uint64_t)st.st_size == size_bytes ? steal_fd(&fd) : -EPROTO;
}

static const char *name_of(char buf[24], uint64_t id)
{
	snprintf(buf, 24, "%llu", (unsigned long long)id);
	return buf;
}

uint64_t ram_store_new_id(struct ram_store *s)
{
	return ++s->record->last_id;
}

int ram_store_file(const struct ram_store *s, uint64_t id, uint64_t size_bytes)
{
	char name[24];
	bool new;

	return open_named(s->mnt_fd, name_of(name, id), size_bytes, &new);
}

int ram_store_map_file(const struct ram_store *s, uint64_t id, uint64_t size_bytes)
{
	char name[24];
	bool new;

	return open_named(s->side_fd, name_of(name, id), size_bytes, &new);
}

bool ram_store_has(const struct ram_store *s, uint64_t id)
{
	_cleanup_close_ int fd = -1, map_fd = -1;
	char name[24];

	fd = openat(s->mnt_fd, name_of(name, id), O_RDWR | O_CLOEXEC);
	map_fd = openat(s->side_fd, name, O_RDWR | O_CLOEXEC);
	return fd >= 0 && map_fd >= 0;
}

void ram_store_remove(const struct ram_store *s, uint64_t id)
{
	char name[24];

	unlinkat(s->mnt_fd, name_of(name, id), 0);
	unlinkat(s->side_fd, name, 0);
}

int ram_store_share(const struct ram_store *s, const char *name, size_t bytes, void **ret)
{
	_cleanup_close_ int fd = -1;
	bool new;
	void *p;

	fd = open_named(s->side_fd, name, bytes, &new);
	if (fd < 0)
		return fd;
	/* now, so that no lack of memory arrives as SIGBUS */
	if (fallocate(fd, 0, 0, (off_t)bytes) < 0)
		return -ENOMEM;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	/* a child could change it */
	(void)madvise(p, bytes, MADV_DONTFORK);
	*ret = p;
	return new;
}

void ram_store_unshare(const struct ram_store *s, const char *name, void *p, size_t bytes)
{
	unlinkat(s->side_fd, name, 0);
	munmap(p, bytes);
}

/* ---- the stack ---- */

int ram_store_record(struct ram_store *s, struct generation *const *gen, unsigned n, bool sealed)
{
	struct ram_stack *to = s ? &s->record->copy[!s->record->now] : NULL;

	if (!to)
		return 0;
	if (n > RAM_STACK_MAX)
		return -ENOSPC;
	to->n = n;
	to->sealed = sealed;
	for (unsigned i = 0; i < n; i++)
		to->id[i] = generation_id(gen[i]);
	s->record->now = !s->record->now;
	return 0;
}

static bool is_listed(const struct ram_stack *stack, uint64_t id)
{
	for (unsigned i = 0; i < stack->n; i++)
		if (stack->id[i] == id)
			return true;
	return false;
}

/* Generations of views, and those that a process made or freed when it died. */
static void remove_unlisted(const struct ram_stack *stack, int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	uint64_t id;

	for (struct dirent *e; d && (e = readdir(d));)
		if (parse_u64(e->d_name, &id) == 0 && !is_listed(stack, id))
			unlinkat(dirfd, e->d_name, 0);
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
}

int ram_store_stack(const struct ram_store *s, struct ram_stack *ret)
{
	*ret = s->record->copy[s->record->now & 1];
	if (!ret->n || ret->n > RAM_STACK_MAX)
		return -EPROTO;
	remove_unlisted(ret, s->mnt_fd);
	remove_unlisted(ret, s->side_fd);
	return 0;
}
