/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - The kernel escapes space, tab, newline and backslash in every field. So fields end at a space
 *   and lines at a newline, whatever names users choose.
 * - A mount point is opened below the root of the process that mountinfo belongs to, with O_PATH
 *   first: this neither waits for a fifo nor touches a device. Then the id is compared. Only a
 *   directory or a regular file is opened for reading, through /proc.
 * - The path to a mount point may lead through a FUSE mount of a user, which may not answer. So the
 *   kernel may use only its cache. It keeps every folder on the path to a mount point there, so the
 *   lookup fails only for a file system that demands revalidation, or beside a mount or a rename: then
 *   it is tried again.
 * - A line that does not fit is dropped as a whole.
 */
#include "base/mounts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/openat2.h>

#include "base/io.h"
#include "base/proclist.h"

#define LOOKUPS 10
#define LOOKUP_WAIT_US 1000

struct lines {
	int fd;
	size_t len, pos;
	bool cut; /* the line that begins at pos has lost its beginning */
	char buf[16384];
};

/* NULL at the end. Text after the last newline is not a line. */
static char *next_line(struct lines *l)
{
	for (;;) {
		char *start = l->buf + l->pos, *end = memchr(start, '\n', l->len - l->pos);
		ssize_t n;

		if (end) {
			bool cut = l->cut;

			*end = '\0';
			l->pos = (size_t)(end + 1 - l->buf);
			l->cut = false;
			if (!cut)
				return start;
			continue;
		}
		l->len -= l->pos;
		memmove(l->buf, start, l->len);
		l->pos = 0;
		if (l->len == sizeof(l->buf)) {
			l->len = 0;
			l->cut = true;
		}
		do
			n = read(l->fd, l->buf + l->len, sizeof(l->buf) - l->len);
		while (n < 0 && errno == EINTR);
		if (n <= 0)
			return NULL;
		l->len += (size_t)n;
	}
}

void mounts_unescape(char *s)
{
	char *to = s;

	for (; *s; s++, to++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*to = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to = *s;
		}
	}
	*to = '\0';
}

/* "36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/source rw,errors=continue" */
static bool parse_line(char *line, struct mount_entry *ret)
{
	char *head[5], *tail[3], *rest = strstr(line, " - ");
	unsigned dev_major, dev_minor;
	int end = -1;

	if (!rest)
		return false;
	*rest = '\0';
	rest += 3;
	for (size_t i = 0; i < ARRAY_SIZE(head); i++)
		if (!(head[i] = strsep(&line, " ")))
			return false;
	for (size_t i = 0; i < ARRAY_SIZE(tail); i++)
		if (!(tail[i] = strsep(&rest, " ")))
			return false;
	if (sscanf(head[2], "%u:%u%n", &dev_major, &dev_minor, &end) != 2 || head[2][end])
		return false;
	*ret = (struct mount_entry){
		.id = strtoull(head[0], NULL, 10),
		.parent_id = strtoull(head[1], NULL, 10),
		.dev = makedev(dev_major, dev_minor),
		.root = head[3],
		.path = head[4],
		.type = tail[0],
		.source = tail[1],
		.options = tail[2],
		.readonly = !strncmp(tail[2], "ro", 2) && (!tail[2][2] || tail[2][2] == ','),
	};
	return true;
}

int mounts_each(int proc_dirfd, const char *who,
		int (*each)(void *ctx, int root_dirfd, struct mount_entry *m), void *ctx)
{
	_cleanup_close_ int info_fd = -1, root_dirfd = -1;
	_cleanup_free_ struct lines *lines = malloc(sizeof(*lines));
	struct mount_entry m;
	char name[32], *line;
	int r = 0;

	if (!lines)
		return -ENOMEM;
	snprintf(name, sizeof(name), "%s/mountinfo", who);
	info_fd = openat(proc_dirfd, name, O_RDONLY | O_CLOEXEC);
	if (info_fd < 0)
		return -errno;
	snprintf(name, sizeof(name), "%s/root", who);
	root_dirfd = openat(proc_dirfd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_dirfd < 0)
		return -errno;
	lines->fd = info_fd;
	lines->len = lines->pos = 0;
	lines->cut = false;
	while (r == 0 && (line = next_line(lines)))
		if (parse_line(line, &m))
			r = each(ctx, root_dirfd, &m);
	return r;
}

static int open_in_root(int root_dirfd, const char *path, uint64_t resolve)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | resolve };
	int fd = (int)syscall(SYS_openat2, root_dirfd, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

int mounts_open(int proc_dirfd, int root_dirfd, const struct mount_entry *m)
{
	_cleanup_free_ char *path = strdup(m->path);
	_cleanup_close_ int path_fd = -EAGAIN;
	struct statx st;
	char name[32];
	int fd;

	if (!path)
		return -ENOMEM;
	mounts_unescape(path);
	for (unsigned i = 0; i < LOOKUPS && path_fd == -EAGAIN; i++) {
		if (i)
			usleep(LOOKUP_WAIT_US);
		path_fd = open_in_root(root_dirfd, path, RESOLVE_CACHED);
	}
	if (path_fd == -EINVAL) /* Linux before 5.12 */
		path_fd = open_in_root(root_dirfd, path, 0);
	if (path_fd < 0)
		return path_fd;
	if (statx(path_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &st) <
		    0 ||
	    !(st.stx_mask & STATX_MNT_ID) || st.stx_mnt_id != m->id)
		return -ESTALE;
	if (!S_ISDIR(st.stx_mode) && !S_ISREG(st.stx_mode))
		return -ENODEV;
	snprintf(name, sizeof(name), "self/fd/%d", path_fd);
	fd = S_ISDIR(st.stx_mode)
		     ? openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
		     : openat(proc_dirfd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* 0: nothing, or no block device, is there. */
static dev_t device_at(int root_dirfd, const char *path)
{
	_cleanup_close_ int fd = open_in_root(root_dirfd, path, 0);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISBLK(st.st_mode) ? st.st_rdev : 0;
}

/* top: in front of a path in sysfs. */
static bool name_of(int sys_dirfd, const char *top, dev_t dev, char *ret, size_t size_bytes)
{
	char name[48], target[PATH_MAX], *slash;
	ssize_t n;

	snprintf(name, sizeof(name), "%sdev/block/%u:%u", top, major(dev), minor(dev));
	n = readlinkat(sys_dirfd, name, target, sizeof(target) - 1);
	if (n <= 0)
		return false;
	target[n] = '\0';
	slash = strrchr(target, '/');
	return snprintf(ret, size_bytes, "%s", slash ? slash + 1 : target) < (int)size_bytes;
}

static bool in_btrfs(DIR *list, const char *fs, const char *disk)
{
	char path[3 * NAME_MAX];

	snprintf(path, sizeof(path), "%s/devices/%s", fs, disk);
	return faccessat(dirfd(list), path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Are both disks of one btrfs that is mounted? */
static bool in_one_btrfs(int sys_dirfd, const char *folder, const char *a, const char *b)
{
	DIR *list = proclist_open(sys_dirfd, folder);
	bool one = false;
	struct dirent *d;

	while (list && !one && (d = readdir(list)))
		one = in_btrfs(list, d->d_name, a) && in_btrfs(list, d->d_name, b);
	if (list)
		closedir(list);
	return one;
}

static bool shares_btrfs(int root_dirfd, dev_t a, dev_t b)
{
	_cleanup_close_ int sys_fd = open_in_root(root_dirfd, "/sys", 0);
	char name_a[NAME_MAX], name_b[NAME_MAX];

	return sys_fd >= 0 && name_of(sys_fd, "", a, name_a, sizeof(name_a)) &&
	       name_of(sys_fd, "", b, name_b, sizeof(name_b)) &&
	       in_one_btrfs(sys_fd, "fs/btrfs", name_a, name_b);
}

bool mounts_shows(int root_dirfd, const struct mount_entry *m, dev_t dev)
{
	dev_t first;

	if (m->dev == dev)
		return true;
	/* the kernel chooses the type: for FUSE it is "fuse" or "fuse.SUBTYPE" */
	if (major(m->dev) != 0 || strcmp(m->type, "btrfs"))
		return false;
	mounts_unescape(m->source);
	first = device_at(root_dirfd, m->source);
	return first && (first == dev || shares_btrfs(root_dirfd, first, dev));
}

struct wanted {
	int proc_dirfd;
	const char *dir; /* NULL: anywhere */
	bool by_device;
	dev_t dev;
	/* about the last mount on dir, or the last one that shows the device */
	bool found;
	dev_t found_dev;
	char *ret_dir;
};

static int look_at_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct wanted *w = ctx;
	bool shows = w->by_device && mounts_shows(root_dirfd, m, w->dev);

	mounts_unescape(m->path);
	if (w->dir ? strcmp(m->path, w->dir) != 0 : !shows)
		return 0;
	w->found = !w->by_device || shows;
	w->found_dev = m->dev;
	if (w->ret_dir)
		snprintf(w->ret_dir, PATH_MAX, "%s", m->path);
	return 0;
}

static bool last_mount(struct wanted *w)
{
	_cleanup_close_ int proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	w->proc_dirfd = proc_dirfd;
	return mounts_each(proc_dirfd, "self", look_at_mount, w) == 0 && w->found;
}

dev_t mounts_device_number(const char *device)
{
	char path[64];
	struct stat st;

	if (stat(device, &st) == 0)
		return S_ISBLK(st.st_mode) ? st.st_rdev : 0;
	if (strncmp(device, "/dev/", 5) != 0)
		return 0;
	snprintf(path, sizeof(path), "/sys/class/block/%.40s/dev", device + 5);
	return io_read_rdev(AT_FDCWD, path);
}

bool mounts_device_is_on(const char *dir, const char *device, char *ret_dir)
{
	struct wanted w = { .dir = dir,
			    .by_device = true,
			    .dev = mounts_device_number(device),
			    .ret_dir = ret_dir };

	return w.dev && last_mount(&w);
}

bool mounts_device_on(const char *dir, char ret_device[PATH_MAX])
{
	struct wanted w = { .dir = dir };
	char path[64], text[1024], *name;

	if (!last_mount(&w) || major(w.found_dev) == 0)
		return false;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/uevent", major(w.found_dev),
		 minor(w.found_dev));
	if (io_read_text(AT_FDCWD, path, text, sizeof(text)) < 0 ||
	    !(name = strstr(text, "DEVNAME=")))
		return false;
	name[strcspn(name, "\n")] = '\0';
	snprintf(ret_device, PATH_MAX, "/dev/%s", name + strlen("DEVNAME="));
	return true;
}

int mounts_new(const char *type, const char *const options[][2], unsigned attributes)
{
	_cleanup_close_ int fs_fd = fsopen(type, FSOPEN_CLOEXEC);
	int fd;

	if (fs_fd < 0)
		return -errno;
	for (size_t i = 0; options && options[i][0]; i++)
		if (fsconfig(fs_fd, options[i][1] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
			     options[i][0], options[i][1], 0) < 0)
			return -errno;
	if (fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, attributes);
	if (fd < 0 && errno == EINVAL) /* Linux before 5.14 */
		fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, attributes & ~MOUNT_ATTR_NOSYMFOLLOW);
	return fd < 0 ? -errno : fd;
}

bool mounts_in_btrfs(int sys_dirfd, dev_t dev)
{
	const char *top = sys_dirfd < 0 ? "/sys/" : "";
	char path[32], disk[NAME_MAX];

	snprintf(path, sizeof(path), "%sfs/btrfs", top);
	return name_of(sys_dirfd, top, dev, disk, sizeof(disk)) &&
	       in_one_btrfs(sys_dirfd, path, disk, disk);
}

bool mounts_in_kernel(int sys_dirfd, dev_t dev)
{
	static const char *const drivers[] = { "ext4", "xfs", "f2fs", "nilfs2" };
	const char *top = sys_dirfd < 0 ? "/sys/" : "";
	char path[PATH_MAX], disk[NAME_MAX];

	if (!name_of(sys_dirfd, top, dev, disk, sizeof(disk)))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(drivers); i++) {
		snprintf(path, sizeof(path), "%sfs/%s/%s", top, drivers[i], disk);
		if (faccessat(sys_dirfd, path, F_OK, 0) == 0)
			return true;
	}
	return mounts_in_btrfs(sys_dirfd, dev);
}
