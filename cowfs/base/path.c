/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - The walk keeps one descriptor, of the folder that it has reached. A folder that another user
 *   renames meanwhile stays the folder that was looked up.
 * - Where another user can write, every name below is his choice, also one that leads to a folder
 *   of root: he may move that within his own folders. So a walk that once left the folders of root
 *   follows no link any more. He can still exchange folders, but only for others that he has there.
 * - Where a user's process says who owns what, as in FUSE, everything is his choice in this sense.
 */
#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clean.h"
#include "base/io.h"

#define LINKS_MAX 40
#define LEASE_WAIT_NS 2000000000ull
#define LEASE_LOOK_NS 20000000

struct walk {
	int dirfd;
	bool ours;    /* nobody but root could have changed a name on the way to here */
	uid_t whose;  /* not ours: the owner of the first such folder or file */
	bool doubted; /* not ours: the file system may lie about owners */
	char *rest;   /* not looked up yet: one of buf */
	char buf[2][2 * PATH_MAX];
	char at[PATH_MAX]; /* where the walk is, for messages */
	unsigned links;
};

static int enter(struct walk *w, int fd)
{
	if (fd < 0)
		return -errno;
	close(w->dirfd);
	w->dirfd = fd;
	return 0;
}

bool path_owners_count(int fd)
{
	struct stat root, st;
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	if (fstat(fd, &st) == 0 && stat("/", &root) == 0 && st.st_dev == root.st_dev)
		return true;
	switch ((uint32_t)fs.f_type) {
	case FUSE_SUPER_MAGIC:
		return false;
	case TMPFS_MAGIC: /* devtmpfs, too */
	case RAMFS_MAGIC:
	case PROC_SUPER_MAGIC:
	case SYSFS_MAGIC:
		return true;
	default:
		return !(fs.f_flags & ST_NOSUID);
	}
}

/* Can others than its owner and the group root? Where there is an ACL, the bits of the group are its mask. */
static bool others_write(int fd, const struct stat *st)
{
	char link[32];

	if (!(st->st_mode & 022) || (st->st_mode & 02) || st->st_gid)
		return st->st_mode & 022;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return getxattr(link, "system.posix_acl_access", NULL, 0) >= 0 ||
	       (errno != ENODATA && errno != EOPNOTSUPP);
}

/* Is the entry, open as fd, in the folder of w the choice of root alone? */
static int judge(struct walk *w, int fd, const struct stat *entry)
{
	struct stat dir;

	if (!w->ours || geteuid() != 0)
		return 0;
	if (fstat(w->dirfd, &dir) < 0)
		return -errno;
	w->doubted = !path_owners_count(w->dirfd) || !path_owners_count(fd);
	if (!w->doubted && dir.st_uid == 0 &&
	    (!others_write(w->dirfd, &dir) || ((dir.st_mode & S_ISVTX) && !entry->st_uid)))
		return 0;
	w->ours = false;
	w->whose = dir.st_uid ? dir.st_uid : entry->st_uid;
	return 0;
}

static int refuse(const struct walk *w, const char *name, uid_t owner, char *why, size_t n)
{
	char whose[64] = "somebody else may change it";

	if (w->doubted)
		strcpy(whose, "its file system (FUSE, or nosuid) may lie about owners");
	else if (owner || w->whose)
		snprintf(whose, sizeof(whose), "user %u controls it", owner ? owner : w->whose);
	snprintf(why, n, "%s%s%s is a symbolic link, and %s: name the place that it leads to",
		 CLEAN(w->at), w->at[strlen(w->at) - 1] == '/' ? "" : "/", CLEAN(name), whose);
	return -ELOOP;
}

/* Goes on with the target of the link name. */
static int follow(struct walk *w, const char *name, char *why, size_t n)
{
	_cleanup_close_ int fd = openat(w->dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char target[PATH_MAX], *to = w->rest < w->buf[1] ? w->buf[1] : w->buf[0];
	struct stat st;
	ssize_t len;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	r = judge(w, fd, &st);
	if (r < 0)
		return r;
	if (!w->ours || (st.st_uid && geteuid() == 0))
		return refuse(w, name, st.st_uid, why, n);
	len = readlinkat(fd, "", target, sizeof(target) - 1);
	if (len < 0)
		return -errno;
	target[len] = '\0';
	if (++w->links > LINKS_MAX)
		return -ELOOP;
	if ((size_t)snprintf(to, sizeof(w->buf[0]), "%s/%s", target, w->rest) >= sizeof(w->buf[0]))
		return -ENAMETOOLONG;
	w->rest = to;
	if (*target != '/')
		return 0;
	strcpy(w->at, "/");
	return enter(w, open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
}

static void note_place(struct walk *w, const char *name)
{
	size_t len = strlen(w->at);

	snprintf(w->at + len, sizeof(w->at) - len, "%s%s", len && w->at[len - 1] == '/' ? "" : "/",
		 name);
}

static bool is_link(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0 &&
	       S_ISLNK(st.st_mode);
}

/* One folder further, or to the target of a link. */
static int step(struct walk *w, const char *name, char *why, size_t n)
{
	int fd = openat(w->dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r;
	struct stat st;

	if (fd < 0 && errno == ENOTDIR && is_link(w->dirfd, name))
		return follow(w, name, why, n);
	if (fd < 0)
		return -errno;
	r = fstat(fd, &st) < 0 ? -errno : strcmp(name, "..") ? judge(w, fd, &st) : 0;
	if (r < 0) {
		close(fd);
		return r;
	}
	note_place(w, name);
	return enter(w, fd);
}

/* Cuts the next name off; NULL: none is left. *ret_last: nothing follows it but slashes. */
static char *next_name(struct walk *w, bool *ret_last)
{
	char *name = w->rest + strspn(w->rest, "/"), *end = name + strcspn(name, "/");

	if (!*name)
		return NULL;
	*ret_last = !end[strspn(end, "/")];
	w->rest = *end ? end + 1 : end;
	*end = '\0';
	return name;
}

/* With O_PATH a link opens that was not there a moment ago. */
static int no_link(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && !S_ISLNK(st.st_mode))
		return fd;
	close(fd);
	return -ELOOP;
}

static int walk(struct walk *w, int flags, char *why, size_t n)
{
	char *name;
	bool last;
	int fd;

	while ((name = next_name(w, &last))) {
		bool stay = last && strcmp(name, "..");
		int r;

		if (stay && ((flags & O_NOFOLLOW) || !is_link(w->dirfd, name))) {
			fd = openat(w->dirfd, name, flags | O_NOFOLLOW | O_CLOEXEC);
			return fd < 0 ? -errno : flags & O_NOFOLLOW ? fd : no_link(fd);
		}
		r = stay ? follow(w, name, why, n) : step(w, name, why, n);
		if (r < 0)
			return r;
	}
	fd = openat(w->dirfd, ".", flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Closes what is not the choice of root alone, or what others can write to. */
static int only_ours(struct walk *w, int fd)
{
	struct stat st;
	int e = fstat(fd, &st) < 0 ? -errno : judge(w, fd, &st);

	if (e == 0 && w->ours && !st.st_uid && !others_write(fd, &st))
		return fd;
	close(fd);
	return e < 0 ? e : -EPERM;
}

static int open_path(const char *path, int flags, bool owned, char *why, size_t n)
{
	_cleanup_free_ struct walk *w = calloc(1, sizeof(*w));
	char here[PATH_MAX] = "";
	int r;

	*why = '\0';
	if (!w)
		return -ENOMEM;
	if (!*path)
		return -ENOENT;
	if (*path != '/' && (!getcwd(here, sizeof(here)) || *here != '/'))
		return -ENOENT;
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	w->rest = w->buf[0];
	snprintf(w->rest, sizeof(w->buf[0]), "%s/%s", here, path);
	w->ours = true;
	strcpy(w->at, "/");
	w->dirfd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (w->dirfd < 0)
		return -errno;
	r = walk(w, flags, why, n);
	if (r >= 0 && owned)
		r = only_ours(w, r);
	close(w->dirfd);
	return r;
}

int path_open(const char *path, int flags, char *why, size_t n)
{
	return open_path(path, flags, false, why, n);
}

int path_open_owned(const char *path)
{
	char why[2 * PATH_MAX];

	return open_path(path, O_PATH, true, why, sizeof(why));
}

int path_open_ours(const char *path)
{
	const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	char why[2 * PATH_MAX];
	int fd;

	if (geteuid() == 0)
		return open_path(path, flags, true, why, sizeof(why));
	fd = open(path, flags);
	return fd < 0 ? -errno : fd;
}

int path_name(const char *path, char ret[PATH_MAX], char *why, size_t n)
{
	_cleanup_close_ int fd = path_open(path, O_PATH, why, n);
	char link[32], name[PATH_MAX];
	ssize_t len;

	if (fd == -ELOOP && !*why)
		snprintf(why, n, "%s", strerrordesc_np(ELOOP));
	if (fd == -ELOOP)
		return fd;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, name, sizeof(name) - 1);
	if (fd < 0 || len < 0 || *name != '/')
		snprintf(ret, PATH_MAX, "%s", path);
	else
		snprintf(ret, PATH_MAX, "%.*s", (int)len, name);
	return 0;
}

const char *path_strerror(const char *path, int e, char *why, size_t n)
{
	_cleanup_close_ int fd = -1;

	*why = '\0';
	if (e == -ELOOP || e == -EBUSY)
		fd = path_open(path, O_PATH, why, n);
	if (fd >= 0 && e == -EBUSY && !path_lease(fd, why, n))
		*why = '\0';
	return *why ? why : strerrordesc_np(-e);
}

/* Of a path that a system call takes. */
static int open_below(int dirfd, const char *path, int flags)
{
	struct open_how how = { .flags = (unsigned)flags | O_CLOEXEC,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
					   RESOLVE_NO_XDEV };
	long fd;

	/* -EAGAIN: something was renamed while ".." was looked up */
	for (unsigned tries = 0; tries < 16; tries++) {
		fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return fd < 0 ? -errno : (int)fd;
}

int path_open_below(int dirfd, const char *path, int flags)
{
	_cleanup_close_ int dir_fd = -1;
	char part[PATH_MAX];

	while (strlen(path) >= sizeof(part)) {
		const char *end = memrchr(path, '/', sizeof(part) - 1);
		int fd;

		if (!end)
			return -ENAMETOOLONG;
		snprintf(part, sizeof(part), "%.*s", (int)(end - path), path);
		fd = open_below(dirfd, part, O_PATH | O_DIRECTORY);
		if (fd < 0)
			return fd;
		cleanup_closep(&dir_fd);
		dirfd = dir_fd = fd;
		path = end + 1;
	}
	return open_below(dirfd, path, flags);
}

/* ---- a file ---- */

/* Makes a new file in the folder, under a name that nobody can know before. */
static int make_temp(int dirfd, const char *name, char temp[NAME_MAX + 1])
{
	uint64_t random;
	int fd;

	do {
		if (getrandom(&random, sizeof(random), 0) < 0)
			return -errno;
		if (snprintf(temp, NAME_MAX + 1, "%s.%016llx", name, (unsigned long long)random) >
		    NAME_MAX)
			return -ENAMETOOLONG;
		fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	} while (fd < 0 && errno == EEXIST);
	return fd < 0 ? -errno : fd;
}

int path_begin_file(struct new_file *f, const char *path, char *why, size_t n)
{
	const char *slash = strrchr(path, '/');
	char folder[PATH_MAX];
	struct stat st;
	int fd;

	*why = f->temp[0] = '\0';
	f->name = slash ? slash + 1 : path;
	f->dirfd = -1;
	if ((size_t)snprintf(folder, sizeof(folder), "%.*s", (int)(f->name - path), path) >=
	    sizeof(folder))
		return -ENAMETOOLONG;
	f->dirfd = path_open(*folder ? folder : ".", O_RDONLY | O_DIRECTORY, why, n);
	if (f->dirfd < 0)
		return f->dirfd;
	if (!*f->name || (fstatat(f->dirfd, f->name, &st, 0) == 0 && !S_ISREG(st.st_mode)))
		return -EINVAL;
	fd = make_temp(f->dirfd, f->name, f->temp);
	if (fd < 0)
		f->temp[0] = '\0';
	return fd;
}

int path_end_file(struct new_file *f, bool keep)
{
	int e = 0;

	if (keep && renameat2(f->dirfd, f->temp, f->dirfd, f->name, RENAME_NOREPLACE) < 0)
		e = -errno;
	if (f->temp[0] && (!keep || e < 0))
		unlinkat(f->dirfd, f->temp, 0);
	cleanup_closep(&f->dirfd);
	return e;
}

/*
 * Opens a pipe or a device that root owns: a reader is waited for. -ENOENT: path leads to neither, or
 * to nothing.
 */
static int open_special(const char *path, char *why, size_t n)
{
	_cleanup_close_ int path_fd = path_open(path, O_PATH, why, n);
	char link[32];
	struct stat st;
	int fd;

	if (path_fd < 0)
		return path_fd;
	if (fstat(path_fd, &st) < 0 || !path_owners_count(path_fd) ||
	    (st.st_uid && st.st_uid != geteuid()) ||
	    (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode)))
		return -ENOENT;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	fd = open(link, O_WRONLY | O_NOCTTY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int path_create_file(const char *path, unsigned mode, char *why, size_t n)
{
	struct new_file f;
	int fd = open_special(path, why, n), e = 0;

	if (fd != -ENOENT && fd != -ELOOP) /* a link at the end is replaced */
		return fd;
	fd = path_begin_file(&f, path, why, n);
	if (fd >= 0 && (fchmod(fd, mode) < 0 || renameat(f.dirfd, f.temp, f.dirfd, f.name) < 0)) {
		e = -errno;
		unlinkat(f.dirfd, f.temp, 0);
		close(fd);
	}
	cleanup_closep(&f.dirfd);
	return e < 0 ? e : fd;
}

int path_replace_file(const char *path, const void *data, size_t len_bytes, char *why, size_t n)
{
	struct new_file f;
	int fd = path_begin_file(&f, path, why, n), e = 0;
	_cleanup_close_ int dirfd = f.dirfd;

	if (fd < 0)
		return fd;
	if (data)
		e = io_write_full(fd, data, len_bytes);
	if (e == 0 && data && (fchmod(fd, 0644) < 0 || fsync(fd) < 0))
		e = -errno;
	if (close(fd) < 0 && e == 0)
		e = -errno;
	if (e == 0 && data && renameat(dirfd, f.temp, dirfd, f.name) < 0)
		e = -errno;
	if (e < 0 || !data)
		unlinkat(dirfd, f.temp, 0);
	return e;
}

/* ---- leases ---- */

int path_reopen(int path_fd, int flags)
{
	static uint64_t waited_ns;
	char link[32];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	/* O_NONBLOCK changes nothing else of files and folders */
	while ((fd = open(link, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) < 0 &&
	       errno == EWOULDBLOCK && waited_ns < LEASE_WAIT_NS) {
		usleep(LEASE_LOOK_NS / 1000);
		waited_ns += LEASE_LOOK_NS;
	}
	if (fd < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	return fd;
}

bool path_lease(int path_fd, char *why, size_t n)
{
	FILE *locks = fopen("/proc/locks", "re");
	unsigned major_nr, minor_nr;
	unsigned long long ino;
	char line[256], user[24];
	bool found = false;
	struct stat st;
	int pid;

	if (!locks)
		return false;
	if (fstat(path_fd, &st) == 0)
		while (!found && fgets(line, sizeof(line), locks))
			found = sscanf(line, "%*u: LEASE %*s %*s %d %x:%x:%llu", &pid, &major_nr,
				       &minor_nr, &ino) == 4 &&
				ino == st.st_ino && makedev(major_nr, minor_nr) == st.st_dev;
	fclose(locks);
	if (!found)
		return false;
	snprintf(line, sizeof(line), "/proc/%d", pid);
	*user = '\0';
	if (stat(line, &st) == 0)
		snprintf(user, sizeof(user), " of user %u", st.st_uid);
	snprintf(why, n, "process %d%s holds a lease on it", pid, user);
	return true;
}

/* ---- below a folder ---- */

bool path_link_below(int dirfd, const char *path, char *why, size_t n)
{
	char part[PATH_MAX];
	struct stat st;

	for (size_t len = strcspn(path, "/"); path[len] && len < sizeof(part);
	     len += strspn(path + len, "/"), len += strcspn(path + len, "/")) {
		_cleanup_close_ int fd = -1;

		memcpy(part, path, len);
		part[len] = '\0';
		fd = path_open_below(dirfd, part, O_PATH | O_NOFOLLOW);
		if (fd < 0 || fstat(fd, &st) < 0)
			break;
		if (S_ISLNK(st.st_mode)) {
			snprintf(why, n, "%s is a symbolic link of user %u", CLEAN(part),
				 st.st_uid);
			return true;
		}
	}
	return false;
}

bool path_exists(int dirfd, const char *name)
{
	return faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}
