/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - Everything here that changes the volume happens in RAM, because cowfs protects it: a power cut
 *   at any step returns to the last commit. A commit in between (RAM pressure) finds a state that
 *   the next boot handles: the id is written last, and the mark is removed after it.
 * - An upper is moved aside before it is deleted, which works whatever it contains. Deleting moves
 *   folders up instead of descending: any user can make a path that no call takes. What cannot be
 *   deleted (immutable files) stays in `old`.
 * - Options of overlayfs: index=off, because an index ties the upper to one image, which would
 *   exclude new-lower = keep. metacopy=off, because files without data would get that of another
 *   image. redirect_dir=nofollow: a redirect names a path in the image; tools rename a directory
 *   of the image by copying. xino=auto: one device number for all files, as tools with -xdev
 *   expect. Not with a squashfs, which has no UUID; xino=on would follow inode numbers of another
 *   image after new-lower = keep.
 */
#include "attach/compose.h"

#include <blkid.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include <linux/magic.h>

#include "base/io.h"
#include "base/mounts.h"
#include "base/path.h"
#include "base/program.h"
#include "export/loop.h"
#include "wire/rundir.h"

#define WAIT_NS (10 * 1000000000ull)
#define LOOK_US 50000
#define SUPER_MAX 128u
_Static_assert(COMPOSE_ID_BYTES > 16 + 2 * SUPER_MAX, "an id is a type and a superblock");
#define VOLUME_OPTIONS "discard,noinit_itable,dioread_lock" /* as systemd/root-options */
#define OVERLAY_OPTIONS "index=off,metacopy=off,redirect_dir=nofollow,xino=auto"

static const char id_file[] = "lower", id_temp[] = "lower.new";

static const struct lower_type {
	const char *name;
	unsigned off_bytes, super_bytes;
	char magic[5];
} lower_types[] = {
	{ "squashfs", 0, 96, "hsqs" },
	{ "erofs", 1024, 128, "\xe2\xe1\xf5\xe0" },
};

struct lower {
	const struct lower_type *type;
	char device[PATH_MAX];
	char id[COMPOSE_ID_BYTES];
};

/* ---- places in the run directory ---- */

static int make_dir_at(int dirfd, const char *name, mode_t mode)
{
	return mkdirat(dirfd, name, mode) < 0 && errno != EEXIST ? -errno : 0;
}

#define LOWER_DIR(buf) rundir_file(buf, COMPOSE_LOWER_DIR)

/* ---- the lower ---- */

/* Waits for it. The result lives as long as the program. NULL: it is not there. */
static const char *find_device(const char *spec)
{
	uint64_t until_ns = now_ns() + WAIT_NS;

	for (;;) {
		const char *path = blkid_evaluate_spec(spec, NULL);
		struct stat st;

		if (path && stat(path, &st) == 0 && S_ISBLK(st.st_mode))
			return path;
		if (now_ns() >= until_ns)
			return NULL;
		usleep(LOOK_US);
	}
}

/* Mounts a device, attached to no tree and read-only, without a write to its journal. */
static int mount_quietly(const char *device)
{
	static const struct {
		const char *type, *option, *value;
	} types[] = {
		{ "ext4", "noload", NULL },    { "vfat", NULL, NULL },
		{ "xfs", "norecovery", NULL }, { "btrfs", "rescue", "nologreplay" },
		{ "exfat", NULL, NULL },       { "f2fs", "norecovery", NULL },
	};
	int fd = -1, why = -EINVAL;

	for (size_t i = 0; i < ARRAY_SIZE(types) && fd < 0; i++) {
		const char *const options[][2] = { { "source", device },
						   { "ro", NULL },
						   { types[i].option, types[i].value },
						   { NULL, NULL } };

		fd = mounts_new(types[i].type, options, MOUNT_ATTR_RDONLY);
		/* EINVAL: of another type; ENODEV: no driver */
		if (fd < 0 && fd != -EINVAL && fd != -ENODEV)
			why = fd;
	}
	return fd < 0 ? why : fd;
}

/* Makes a loop device of a file on the device, which ends with its last user: *ret_fd. */
static int loop_of_file(struct lower *l, const char *file, int *ret_fd)
{
	_cleanup_close_ int mount_fd = mount_quietly(l->device), fd = -1;
	struct loop_dev d;
	struct stat st;
	int r;

	if (mount_fd < 0)
		return mount_fd;
	fd = path_open_below(mount_fd, file, O_RDONLY);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EINVAL;
	r = loop_attach_lower(&d, fd, file);
	if (r < 0)
		return r;
	close(d.dev_dirfd);
	snprintf(l->device, sizeof(l->device), "%s", d.path);
	*ret_fd = d.fd;
	return 0;
}

static int identify(struct lower *l)
{
	_cleanup_close_ int fd = open(l->device, O_RDONLY | O_CLOEXEC);
	uint8_t super[SUPER_MAX];

	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(lower_types); i++) {
		const struct lower_type *t = &lower_types[i];
		int e = io_pread_full(fd, super, t->super_bytes, t->off_bytes), n;

		if (e < 0)
			return e;
		if (memcmp(super, t->magic, 4) != 0)
			continue;
		l->type = t;
		n = snprintf(l->id, sizeof(l->id), "%s ", t->name);
		for (unsigned k = 0; k < t->super_bytes; k++)
			n += snprintf(l->id + n, sizeof(l->id) - (size_t)n, "%02x", super[k]);
		return 0;
	}
	return -EMEDIUMTYPE;
}

static int mount_lower(const struct compose *c, struct lower *l, struct failure *err)
{
	const char *file = strstr(c->lower, ":/"), *device;
	size_t len = file ? (size_t)(file - c->lower) : strlen(c->lower);
	_cleanup_close_ int loop_fd = -1;
	char dir[PATH_MAX];
	int e = 0;

	snprintf(l->device, sizeof(l->device), "%.*s", (int)len, c->lower);
	device = find_device(l->device);
	if (!device)
		return failure(err, -ENODEV, "lower = %s: there is no device %s", c->lower,
			       l->device);
	snprintf(l->device, sizeof(l->device), "%s", device);
	if (file)
		e = loop_of_file(l, file + 2, &loop_fd);
	if (e == 0)
		e = identify(l);
	if (e == 0 && make_dir_at(AT_FDCWD, rundir_path(), 0755) == 0)
		e = make_dir_at(AT_FDCWD, LOWER_DIR(dir), 0755);
	/* no setuid: the image may have a program that the upper has replaced for its security */
	if (e == 0 &&
	    mount(l->device, dir, l->type->name, MS_RDONLY | MS_NODEV | MS_NOSUID, NULL) < 0)
		e = -errno;
	if (e == -EMEDIUMTYPE)
		return failure(err, e, "lower = %s: neither a squashfs nor an erofs", c->lower);
	return e < 0 ? failure(err, e, "lower = %s cannot be mounted: %s", c->lower,
			       strerrordesc_np(-e))
		     : 0;
}

/* ---- the upper ---- */

static int open_dir(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Gives it a name in the directory old that is free. */
static int move_aside(int dirfd, const char *name, int old_fd)
{
	static unsigned n;
	char free_name[16];

	do
		snprintf(free_name, sizeof(free_name), "%u", n++);
	while (renameat2(dirfd, name, old_fd, free_name, RENAME_NOREPLACE) < 0 && errno == EEXIST);
	return path_exists(dirfd, name) ? -errno : 0;
}

static bool remove_name(int dirfd, const char *name)
{
	return unlinkat(dirfd, name, 0) == 0 || unlinkat(dirfd, name, AT_REMOVEDIR) == 0;
}

/*
 * One pass over a directory: removes what can be removed, and moves directories into old_fd. True
 * if anything changed. depth 1: dirfd is old_fd itself, and its directories are looked into.
 */
static bool remove_pass(int dirfd, int old_fd, int depth)
{
	int fd = open_dir(dirfd, ".");
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	bool changed = false;
	struct dirent *e;

	if (!d) {
		cleanup_closep(&fd);
		return false;
	}
	while ((e = readdir(d))) {
		_cleanup_close_ int child_fd = -1;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (remove_name(dirfd, e->d_name)) {
			changed = true;
			continue;
		}
		child_fd = open_dir(dirfd, e->d_name);
		if (child_fd < 0)
			continue;
		if (depth ? remove_pass(child_fd, old_fd, 0)
			  : move_aside(dirfd, e->d_name, old_fd) == 0)
			changed = true;
	}
	closedir(d);
	return changed;
}

void compose_remove_old(int volume_fd)
{
	_cleanup_close_ int old_fd = open_dir(volume_fd, "old");

	if (old_fd < 0)
		return;
	while (remove_pass(old_fd, old_fd, 1))
		;
	(void)!unlinkat(volume_fd, "old", AT_REMOVEDIR);
}

int compose_write_id(int volume_fd, const char *id)
{
	_cleanup_close_ int fd = -1;
	int e;

	/* whatever it is: to open a fifo would wait */
	(void)!unlinkat(volume_fd, id_temp, 0);
	fd = openat(volume_fd, id_temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	e = fd < 0 ? -errno : io_write_full(fd, id, strlen(id));
	if (e == 0)
		e = io_write_full(fd, "\n", 1);
	if (e == 0 && (fsync(fd) < 0 || renameat(volume_fd, id_temp, volume_fd, id_file) < 0))
		e = -errno;
	return e;
}

/* The root directory of an overlay is that of the upper. */
static int copy_root(int volume_fd)
{
	_cleanup_close_ int upper_fd = open_dir(volume_fd, "upper");
	char lower[PATH_MAX];
	struct stat st;

	if (upper_fd < 0)
		return upper_fd;
	return stat(LOWER_DIR(lower), &st) < 0 || fchown(upper_fd, st.st_uid, st.st_gid) < 0 ||
			       fchmod(upper_fd, st.st_mode & 07777) < 0
		       ? -errno
		       : 0;
}

static int try_to_begin(int volume_fd, const char *id)
{
	static const char *const parts[] = { "upper", "work" };
	_cleanup_close_ int old_fd = -1;
	int e = make_dir_at(volume_fd, "old", 0700);

	if (e == 0)
		e = old_fd = open_dir(volume_fd, "old");
	for (size_t i = 0; i < ARRAY_SIZE(parts) && e >= 0; i++) {
		if (path_exists(volume_fd, parts[i]))
			e = move_aside(volume_fd, parts[i], old_fd);
		if (e >= 0)
			e = make_dir_at(volume_fd, parts[i], 0755);
	}
	if (e >= 0)
		e = copy_root(volume_fd);
	if (e >= 0)
		e = compose_write_id(volume_fd, id);
	if (e >= 0 && path_exists(volume_fd, COMPOSE_RESET) &&
	    !remove_name(volume_fd, COMPOSE_RESET))
		e = move_aside(volume_fd, COMPOSE_RESET, old_fd);
	return e < 0 ? e : 0;
}

int compose_begin(int volume_fd, const char *id)
{
	int e = try_to_begin(volume_fd, id), upper_fd;

	if (e != -ENOSPC)
		return e;
	/* no room for a directory to move things to: make some */
	upper_fd = open_dir(volume_fd, "upper");
	while (upper_fd >= 0 && remove_pass(upper_fd, upper_fd, 1))
		;
	cleanup_closep(&upper_fd);
	compose_remove_old(volume_fd);
	return try_to_begin(volume_fd, id);
}

/* Only a regular file holds an id: a card may come from anywhere. */
bool compose_is_begun_on(int volume_fd, const char *id)
{
	char text[COMPOSE_ID_BYTES + 16];
	struct stat st;

	return fstatat(volume_fd, id_file, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       io_read_text(volume_fd, id_file, text, sizeof(text)) > 0 && !strcmp(text, id);
}

static int check_work(int volume_fd)
{
	int e = make_dir_at(volume_fd, "work", 0755);
	_cleanup_close_ int fd = e < 0 ? e : open_dir(volume_fd, "work");

	return fd < 0 ? fd : 0;
}

/* Makes the upper fit the lower, or refuses. */
static int prepare_upper(const struct compose *c, int volume_fd, const struct lower *l,
			 bool *ret_fresh, struct failure *err)
{
	_cleanup_close_ int upper_fd = open_dir(volume_fd, "upper");
	bool other = !compose_is_begun_on(volume_fd, l->id);
	int e = 0;

	*ret_fresh = upper_fd == -ENOENT || path_exists(volume_fd, COMPOSE_RESET) ||
		     (other && !strcmp(c->new_lower, "fresh"));
	if (c->readonly && (*ret_fresh || upper_fd < 0))
		return failure(err, -EROFS,
			       "the volume has no changes of this image, and is read-only");
	if (upper_fd < 0 && !*ret_fresh)
		return failure(err, upper_fd, "upper on the volume is not a directory");
	if (other && !*ret_fresh && strcmp(c->new_lower, "keep") != 0)
		return failure(err, -ESTALE,
			       "lower = %s is another image than the one that the changes on "
			       "the volume belong to: boot with cowfs=new-lower:fresh to drop "
			       "them, with cowfs=new-lower:keep to keep them",
			       c->lower);
	if (c->readonly)
		return 0;
	if (*ret_fresh)
		e = compose_begin(volume_fd, l->id);
	else if (other)
		e = compose_write_id(volume_fd, l->id);
	if (e == 0)
		e = check_work(volume_fd);
	if (e == 0)
		compose_remove_old(volume_fd);
	return e < 0 ? failure(err, e, "the volume cannot be prepared: %s", strerrordesc_np(-e))
		     : 0;
}

bool compose_holds_upper(const char *dir)
{
	_cleanup_close_ int volume_fd = open_dir(AT_FDCWD, dir);
	struct stat st;

	/* a root of another program may have the three names as directories */
	return volume_fd >= 0 && fstatat(volume_fd, id_file, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISREG(st.st_mode) && path_exists(volume_fd, "upper") &&
	       path_exists(volume_fd, "work") && !path_exists(volume_fd, "etc");
}

/* ---- the state that outlives the initramfs ---- */

static int save_state(const struct compose *c, const char *dir, const struct lower *l)
{
	char text[PATH_MAX + COMPOSE_ID_BYTES + 32], path[PATH_MAX], why[2 * PATH_MAX];
	struct stat st;

	if (stat(dir, &st) < 0)
		return -errno;
	snprintf(text, sizeof(text), "%u:%u %s\n%s\n", major(st.st_dev), minor(st.st_dev), c->lower,
		 l->id);
	return path_replace_file(rundir_file(path, RUNDIR_COMPOSE), text, strlen(text), why,
				 sizeof(why));
}

/* ---- the root ---- */

static int mount_overlay(const struct compose *c, const char *dir, struct failure *err)
{
	char options[4 * PATH_MAX], lower[PATH_MAX];
	struct statvfs st;

	LOWER_DIR(lower);
	if (c->readonly)
		snprintf(options, sizeof(options), "lowerdir=%s/upper:%s," OVERLAY_OPTIONS, dir,
			 lower);
	else
		snprintf(options, sizeof(options),
			 "lowerdir=%s,upperdir=%s/upper,workdir=%s/work," OVERLAY_OPTIONS, lower,
			 dir, dir);
	if (mount("overlay", dir, "overlay", c->readonly ? MS_RDONLY : MS_NOATIME, options) < 0)
		return failure(err, -errno, "overlayfs cannot be mounted: %s",
			       strerrordesc_np(errno));
	if (!c->readonly && statvfs(dir, &st) == 0 && (st.f_flag & ST_RDONLY))
		return failure(err, -EROFS,
			       "overlayfs has made the root read-only: see the kernel log");
	return 0;
}

static int compose_upper(const struct compose *c, const char *dir, const struct lower *l,
			 bool *ret_fresh, struct failure *err)
{
	_cleanup_close_ int volume_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct statfs st;
	int e;

	if (volume_fd < 0 || fstatfs(volume_fd, &st) < 0)
		return failure(err, -errno, "%s: %s", dir, strerrordesc_np(errno));
	if (st.f_type != EXT4_SUPER_MAGIC)
		return failure(err, -EMEDIUMTYPE, "the volume is not an ext4");
	if (!c->readonly && mount(NULL, dir, NULL, MS_REMOUNT | MS_NOATIME, VOLUME_OPTIONS) < 0)
		return failure(err, -errno, "the volume cannot be written: %s",
			       strerrordesc_np(errno));
	e = prepare_upper(c, volume_fd, l, ret_fresh, err);
	if (e == 0)
		e = mount_overlay(c, dir, err);
	if (e == 0 && (e = save_state(c, dir, l)) < 0)
		failure(err, e, "%s/%s: %s", rundir_path(), RUNDIR_COMPOSE, strerrordesc_np(-e));
	return e;
}

static void load_modules(void)
{
	static const char *const argv[] = { "modprobe", "-a",	 "-q", "overlay",
					    "squashfs", "erofs", NULL };
	_cleanup_close_ int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	(void)!program_run(argv, -1, fd); /* they may be in the kernel; if not, mount reports it */
}

enum compose_result compose_root(const struct compose *c, const char *dir, struct failure *err)
{
	struct lower l = { 0 };
	char path[PATH_MAX];
	bool fresh = false;
	struct statfs st;

	if (statfs(dir, &st) == 0 && st.f_type == OVERLAYFS_SUPER_MAGIC)
		return COMPOSE_DONE; /* a second call */
	load_modules();
	if (mount_lower(c, &l, err) < 0)
		return COMPOSE_NOTHING;
	if (compose_upper(c, dir, &l, &fresh, err) == 0)
		return fresh ? COMPOSE_FRESH : COMPOSE_DONE;
	if (statfs(dir, &st) == 0 && st.f_type == OVERLAYFS_SUPER_MAGIC)
		return COMPOSE_LOWER; /* it is read-only, with the changes */
	/* as a root it gets other options */
	if (mount(LOWER_DIR(path), dir, NULL, MS_BIND, NULL) < 0 ||
	    mount(NULL, dir, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0)
		return COMPOSE_NOTHING;
	return COMPOSE_LOWER;
}
