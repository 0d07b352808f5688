/* SPDX-License-Identifier: MIT */
/* What the running system does with its composed root: no part of an initramfs. */
#include "attach/compose.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "base/mounts.h"
#include "base/path.h"
#include "base/thread.h"
#include "wire/rundir.h"

/* in the run directory, empty: where a thread of its own mounts views. No volume has such a name. */
#define VIEW_DIR ".compose"
#define STACK_BYTES (256 * KIB)

bool compose_load(struct compose_state *ret)
{
	char text[PATH_MAX + COMPOSE_ID_BYTES + 32], path[PATH_MAX], *id;
	unsigned dev_major, dev_minor;
	int n = 0;

	if (io_read_text(AT_FDCWD, rundir_file(path, RUNDIR_COMPOSE), text, sizeof(text)) < 0 ||
	    sscanf(text, "%u:%u %n", &dev_major, &dev_minor, &n) < 2 || !n)
		return false;
	id = strchr(text, '\n');
	if (id)
		*id++ = '\0';
	snprintf(ret->id, sizeof(ret->id), "%.*s", COMPOSE_ID_BYTES - 1, id ? id : "");
	ret->dev = makedev(dev_major, dev_minor);
	snprintf(ret->lower, sizeof(ret->lower), "%.*s", PATH_MAX - 1, text + n);
	return true;
}

struct where {
	dev_t dev;
	char *path;
};

static int look_at_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct where *w = ctx;

	(void)root_dirfd;
	if (m->dev != w->dev || strcmp(m->root, "/"))
		return 0;
	mounts_unescape(m->path);
	snprintf(w->path, PATH_MAX, "%s", m->path);
	return 1;
}

void compose_where(const struct compose_state *s, char ret[PATH_MAX])
{
	_cleanup_close_ int proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct where w = { s->dev, ret };

	if (mounts_each(proc_dirfd, "self", look_at_mount, &w) != 1)
		*ret = '\0';
}

static int load_id(struct compose_state *s, struct failure *err)
{
	return compose_load(s) && *s->id
		       ? 0
		       : failure(err, -ESTALE,
				 "the initramfs has an older cowfs: rebuild it, then restart");
}

int compose_check(int volume_fd, struct failure *err)
{
	struct compose_state s;
	int e = load_id(&s, err);

	if (e == 0 && path_exists(volume_fd, COMPOSE_RESET))
		e = failure(err, -ESTALE, "a factory reset is committed");
	else if (e == 0 && path_exists(volume_fd, "upper") && !compose_is_begun_on(volume_fd, s.id))
		e = failure(err, -ESTALE, "what is committed belongs to another image");
	return e;
}

/* Both volumes are states of one file system. */
static bool is_same_upper(int a_fd, int b_fd)
{
	struct statx a, b;

	return statx(a_fd, "upper", AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &a) == 0 &&
	       statx(b_fd, "upper", AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &b) == 0 &&
	       a.stx_ino == b.stx_ino && a.stx_btime.tv_sec == b.stx_btime.tv_sec &&
	       a.stx_btime.tv_nsec == b.stx_btime.tv_nsec;
}

int compose_adopt(int volume_fd, int now_fd, struct failure *err)
{
	struct compose_state s;
	bool mine;
	int e = load_id(&s, err);

	if (e < 0)
		return e;
	if (path_exists(now_fd, COMPOSE_RESET))
		return failure(err, -ESTALE, "a factory reset is committed: restart first");
	mine = compose_is_begun_on(volume_fd, s.id);
	if (!path_exists(volume_fd, "upper") || path_exists(volume_fd, COMPOSE_RESET) ||
	    (!mine && !is_same_upper(volume_fd, now_fd))) {
		e = compose_begin(volume_fd, s.id);
		compose_remove_old(
			volume_fd); /* a full volume has no room for the new files else */
	} else if (!mine) {
		e = compose_write_id(volume_fd, s.id);
	}
	if (e == 0 && mkdirat(volume_fd, "work", 0755) < 0 && errno != EEXIST)
		e = -errno;
	return e < 0 ? failure(err, e, "the volume cannot be prepared: %s", strerrordesc_np(-e))
		     : 0;
}

/*
 * Older kernels (6.12) accept layers only from the mount namespace of the caller, and a view is in
 * none. So a thread gets a namespace of its own, mounts the view there, makes the overlay and ends.
 * No other process sees that mount, and nothing stays if this process is killed.
 */
struct composition {
	int volume_fd;
	bool writable;
	struct failure *err;
	int fd; /* the result, or -errno with *err */
};

static int set(int fs_fd, const char *key, const char *value)
{
	return fsconfig(fs_fd, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, key, value, 0) < 0
		       ? -errno
		       : 0;
}

/* second_fd -1: one layer. */
static int set_layers(int fs_fd, const char *key, int first_fd, int second_fd)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "/proc/self/fd/%d", first_fd);

	if (second_fd >= 0)
		snprintf(text + n, sizeof(text) - (size_t)n, ":/proc/self/fd/%d", second_fd);
	return set(fs_fd, key, text);
}

/* As mount_overlay() of compose.c does, but for xino, which nothing on the volume depends on. */
static int set_options(const struct composition *c, int fs_fd, int lower_fd, int empty_fd,
		       int upper_fd, int work_fd)
{
	static const char *const option[][2] = { { "index", "off" },
						 { "metacopy", "off" },
						 { "redirect_dir", "nofollow" } };
	int e;

	if (c->writable) {
		e = set_layers(fs_fd, "lowerdir", lower_fd, -1);
		if (e == 0)
			e = set_layers(fs_fd, "upperdir", upper_fd, -1);
		if (e == 0)
			e = set_layers(fs_fd, "workdir", work_fd, -1);
	} else {
		/* an overlay has two layers at least */
		e = upper_fd < 0 ? set_layers(fs_fd, "lowerdir", lower_fd, empty_fd)
				 : set_layers(fs_fd, "lowerdir", upper_fd, lower_fd);
		if (e == 0)
			e = set(fs_fd, "ro", NULL);
	}
	for (size_t i = 0; i < ARRAY_SIZE(option) && e == 0; i++)
		e = set(fs_fd, option[i][0], option[i][1]);
	return e;
}

static int open_folder(const char *path)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Upper and work of the volume; upper -1: there is none. */
static int open_parts(const struct composition *c, int *ret_upper_fd, int *ret_work_fd)
{
	int fd = path_open_below(c->volume_fd, "upper", O_PATH | O_DIRECTORY | O_NOFOLLOW);

	if (fd == -ENOENT && !c->writable)
		return 0;
	if (fd < 0)
		return fd;
	*ret_upper_fd = fd;
	if (!c->writable)
		return 0;
	fd = path_open_below(c->volume_fd, "work", O_PATH | O_DIRECTORY | O_NOFOLLOW);
	*ret_work_fd = fd < 0 ? -1 : fd;
	return fd < 0 ? fd : 0;
}

static int mount_composition(const struct composition *c, int lower_fd, int empty_fd)
{
	_cleanup_close_ int fs_fd = fsopen("overlay", FSOPEN_CLOEXEC), upper_fd = -1, work_fd = -1,
			    fd = -1;
	struct statvfs st;
	int e = fs_fd < 0 ? -errno : open_parts(c, &upper_fd, &work_fd);

	if (e == 0)
		e = set_options(c, fs_fd, lower_fd, empty_fd, upper_fd, work_fd);
	if (e == 0 && fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		e = -errno;
	if (e < 0)
		return e;
	fd = fsmount(fs_fd, FSMOUNT_CLOEXEC,
		     (c->writable ? MOUNT_ATTR_NOATIME : MOUNT_ATTR_RDONLY) | MOUNT_ATTR_NODEV |
			     MOUNT_ATTR_NOSUID);
	if (fd < 0 || fstatvfs(fd, &st) < 0)
		return -errno;
	/* overlayfs does not fail if it cannot work in its upper */
	return c->writable && (st.f_flag & ST_RDONLY) ? -EROFS : steal_fd(&fd);
}

static int compose_here(const struct composition *c)
{
	_cleanup_close_ int lower_fd = -1, empty_fd = -1;
	char lower[PATH_MAX], dir[PATH_MAX];
	struct stat st, run;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return -errno;
	lower_fd = open_folder(rundir_file(lower, COMPOSE_LOWER_DIR));
	if (lower_fd < 0 || fstat(lower_fd, &st) < 0 || stat(rundir_path(), &run) < 0 ||
	    st.st_dev == run.st_dev)
		return failure(c->err, -ENODEV, "the image is not mounted on %s", lower);
	if (mkdir(rundir_file(dir, VIEW_DIR), 0700) < 0 && errno != EEXIST)
		return -errno;
	empty_fd = open_folder(dir);
	if (empty_fd < 0)
		return empty_fd;
	return move_mount(c->volume_fd, "", empty_fd, "",
			  MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0
		       ? -errno
		       : mount_composition(c, lower_fd, empty_fd);
}

static void *compose_main(void *arg)
{
	struct composition *c = arg;

	c->fd = compose_here(c);
	return NULL;
}

int compose_open(int volume_fd, bool writable, struct failure *err)
{
	struct composition c = { volume_fd, writable, err, -1 };
	pthread_t thread;
	int e;

	*err = (struct failure){ 0 };
	e = thread_start(&thread, NULL, STACK_BYTES, compose_main, &c);
	if (e == 0) {
		pthread_join(thread, NULL);
		e = c.fd;
	}
	if (e < 0 && !err->why[0])
		failure(err, e, "%s cannot be composed with the image: %s", ROOT_NAME,
			strerrordesc_np(-e));
	return e;
}

int compose_mark_reset(const char *loop, struct failure *err)
{
	const char *const options[][2] = { { "source", loop }, { NULL, NULL } };
	/* another mount of the file system that is mounted already: the same state */
	_cleanup_close_ int mount_fd = mounts_new("ext4", options,
						  MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID),
			    fd = -1;
	int e = mount_fd < 0 ? mount_fd : 0;

	if (e == 0) {
		fd = openat(mount_fd, COMPOSE_RESET,
			    O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
		if (fd < 0 || fsync(fd) < 0)
			e = -errno;
	}
	return e < 0 ? failure(err, e, "%s: the volume cannot be written: %s", loop,
			       strerrordesc_np(-e))
		     : 0;
}
