/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - This process makes the mounts and the loop device, so the server needs no further system call.
 *   It passes its /dev/fuse on and closes it: while it is open here, I/O of the view
 *   would wait forever instead of failing if the server dies.
 * - Whatever waits for the view's FUSE file ends after a minute (struct fuse_guard).
 * - A mount replays the journal of the image, in RAM. The loop device stays writable: the kernel keeps
 *   BLKROSET for the next user of the number.
 * - The scratch image stays writable. It is unmounted ahead of its commit, and its loop device
 *   keeps it until then: a freeze would keep the file system of a killed process forever.
 */
#include "attach/view_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/thread.h"
#include "export/fuse.h"
#include "export/fuse_mount.h"
#include "export/loop.h"
#include "export/transport.h"
#include "fs/fs_ops.h"
#include "wire/json.h"
#include "wire/progress.h"

#define GUARD_S 60u
#define STACK_BYTES (256 * KIB)
#define UNMOUNT_NS 10000000000ull
#define MOUNT_TRIES 10
#define MOUNT_WAIT_US 50000

/* ---- the file system ---- */

static int set_flag(int fs_fd, const char *name)
{
	return fsconfig(fs_fd, FSCONFIG_SET_FLAG, name, NULL, 0) < 0 ? -errno : 0;
}

/* A view may end at any time, and then its reads fail: a superblock that asks for a panic after an
 * error must not get one. Nothing but a replay, and copied files, is written. */
static int set_options(int fs_fd, const char *type, enum view_use use)
{
	int r = 0;

	if (!strcmp(type, "xfs"))
		r = set_flag(fs_fd, "nouuid");
	else if (!strncmp(type, "ext", 3) &&
		 fsconfig(fs_fd, FSCONFIG_SET_STRING, "errors", "continue", 0) < 0)
		r = -errno;
	if (r == 0 && !strcmp(type, "ext4"))
		r = set_flag(fs_fd, "noinit_itable");
	if (r == 0 && use == VIEW_DISK && (!strcmp(type, "xfs") || !strcmp(type, "nilfs2")))
		r = set_flag(fs_fd, "norecovery");
	if (r == 0 && use == VIEW_DISK && !strcmp(type, "btrfs") &&
	    fsconfig(fs_fd, FSCONFIG_SET_STRING, "rescue", "nologreplay", 0) < 0)
		r = -errno;
	if (r == 0 && use == VIEW_DISK && (!strcmp(type, "ext3") || !strcmp(type, "ext4")))
		r = set_flag(fs_fd, "noload");
	return r < 0 || use == VIEW_WRITE ? r : set_flag(fs_fd, "ro");
}

/* Linux says more about a failure than an error number: the last line, "" if none. */
static void kernel_reason(int fs_fd, char *buf, size_t n)
{
	char line[256];
	ssize_t len;

	snprintf(buf, n, "%s", "");
	while ((len = read(fs_fd, line, sizeof(line) - 1)) > 0) {
		line[len] = '\0';
		line[strcspn(line, "\n")] = '\0';
		snprintf(buf, n, " (%s)", line + (len > 2 && line[1] == ' ' ? 2 : 0));
	}
}

/* Linux remembers the devices of a btrfs that has several. A disk with the number of one that is
 * gone would be taken for it, and its mount fail with EEXIST. */
static void forget_btrfs(const char *disk)
{
	_cleanup_close_ int fd = open("/dev/btrfs-control", O_RDWR | O_CLOEXEC);
	struct btrfs_ioctl_vol_args args = { 0 };

	snprintf(args.name, sizeof(args.name), "%s", disk);
	if (fd >= 0)
		(void)ioctl(fd, BTRFS_IOC_FORGET_DEV, &args); /* most are not known */
}

static int unreadable(const char *name, int error, struct failure *err)
{
	return failure(err, error, "%s: cannot be read. Is its card there? See cowctl status",
		       name);
}

static int explain_mount(int error, const char *type, const char *reason, struct failure *err)
{
	if (error == -EEXIST && !strcmp(type, "btrfs"))
		return failure(err, -EOPNOTSUPP,
			       "this kernel cannot mount a second btrfs with the same UUID: a "
			       "view of btrfs needs Linux 6.7%s",
			       reason);
	if (error == -ENODEV)
		return failure(err, error, "the kernel does not support %s", type);
	return failure(err, error, "cannot mount the view (%s): %s%s", type,
		       strerrordesc_np(-error), reason);
}

/* Mounts the disk, attached to no tree; VIEW_DISK: read-only, without a replay. */
static int mount_disk(const struct view_mount *m, enum view_use use, int *ret_dir_fd,
		      struct failure *err)
{
	const char *type = m->fs_type;
	_cleanup_close_ int fs_fd = fsopen(type, FSOPEN_CLOEXEC), fd = -1;
	char reason[300] = "", path[32];
	struct stat st;
	int r;

	if (fs_fd < 0)
		return explain_mount(-errno, type, "", err);
	if (!strcmp(type, "btrfs"))
		forget_btrfs(m->disk);
	r = fsconfig(fs_fd, FSCONFIG_SET_STRING, "source", m->disk, 0) < 0 ? -errno : 0;
	if (r == 0)
		r = set_options(fs_fd, type, use);
	if (r == 0 && fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		r = -errno;
	if (r < 0) {
		kernel_reason(fs_fd, reason, sizeof(reason));
		return explain_mount(r, type, reason, err);
	}
	fd = fsmount(fs_fd, FSMOUNT_CLOEXEC,
		     (use == VIEW_WRITE ? 0 : MOUNT_ATTR_RDONLY) | MOUNT_ATTR_NODEV |
			     MOUNT_ATTR_NOSUID);
	if (fd < 0 || fstat(fd, &st) < 0)
		return explain_mount(-errno, type, "", err);
	/* files of btrfs have device numbers of their own, and Linux finds it by its UUID, which several disks have */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (st.st_dev != m->disk_rdev &&
	    !(fs_ops_named(type)->several_devices && btrfs_lies_on(path, m->disk_rdev)))
		return explain_mount(-ESTALE, type, "", err);
	*ret_dir_fd = steal_fd(&fd);
	return 0;
}

/* ---- the daemon ---- */

/* The connection, from its mount on. */
struct connection {
	int fuse_fd, mount_fd, abort_fd;
};

static void close_connection(struct connection *k)
{
	cleanup_closep(&k->fuse_fd);
	cleanup_closep(&k->mount_fd);
	cleanup_closep(&k->abort_fd);
}

static int open_connection(struct connection *k, struct failure *err)
{
	char why[256];
	int r;

	*k = (struct connection){ -1, -1, -1 };
	r = transport_check(why, sizeof(why));
	if (r < 0)
		return failure(err, r, "%s", why);
	r = k->fuse_fd = transport_open();
	if (r >= 0)
		r = fuse_mount_create(k->fuse_fd, &k->mount_fd);
	if (r >= 0)
		r = k->abort_fd = fuse_mount_open_abort(k->mount_fd);
	if (r >= 0)
		return 0;
	close_connection(k);
	return failure(err, r, "cannot mount through FUSE: %s", strerrordesc_np(-r));
}

/* An answer has the name of the error. */
static int error_of(struct json_object *answer)
{
	static const int known[] = { EMFILE, EOPNOTSUPP, EBUSY, ENOSPC, ENOMEM, ENOENT, ENOMEDIUM };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(json_text(answer, "code"), strerrorname_np(known[i])))
			return -known[i];
	return -EIO;
}

struct question {
	struct client *c;
	enum view_kind kind;
};

static int ask(void *ctx, int fuse_fd, struct view_mount *m, struct failure *err)
{
	struct client *c = ((struct question *)ctx)->c;
	enum view_kind kind = ((struct question *)ctx)->kind;
	const struct request rq = { .command = COMMAND_VIEW,
				    .now = kind == VIEW_NOW,
				    .held = kind == VIEW_HELD,
				    .scratch = kind == VIEW_SCRATCH || kind == VIEW_IMPORT,
				    .replaces = kind == VIEW_IMPORT };
	struct json_object *answer;
	struct progress progress;
	int r = 0;

	c->pass_fd = fuse_fd;
	progress_start(&progress);
	answer = client_call(c, &rq, progress_event, &progress, err);
	progress_end(&progress);
	if (!answer)
		return err->error;
	if (!json_true(answer, "ok")) {
		r = error_of(answer);
		failure_set(err, r == -ENOMEDIUM ? EXIT_AWAY : EXIT_FAILED, r, "%s",
			    json_text(answer, "error"));
	} else {
		m->generation = json_u64(answer, "generation");
		m->time_s = json_u64(answer, "time_unix_seconds");
		m->fs_type = fs_type_named(json_text(answer, "fs_type"));
		m->replays = json_true(answer, "replays");
		m->unsynced = json_true(answer, "unsynced");
	}
	json_object_put(answer);
	return r;
}

/* ---- the disk ---- */

static int make_disk(const char *name, struct connection *k, struct view_mount *m,
		     struct failure *err)
{
	_cleanup_close_ int file_fd = fuse_mount_open_file(k->mount_fd, FUSE_IMAGE_NAME);
	struct loop_dev loop;
	char label[64];
	int r = file_fd;

	snprintf(label, sizeof(label), "cowfs-view:%.40s", name);
	if (r >= 0)
		r = loop_attach(&loop, file_fd, NULL, label, true, NULL, k->abort_fd);
	if (r < 0 && r != -EIO)
		return failure(err, r, "no loop device for the view: %s", strerrordesc_np(-r));
	if (r < 0)
		return r;
	close(loop.dev_dirfd);
	m->disk_fd = loop.fd;
	m->disk_rdev = loop.rdev;
	memcpy(m->disk, loop.path, sizeof(m->disk));
	return 0;
}

static int mount_image(const char *name, enum view_use use, struct connection *k,
		       struct view_mount *m, struct failure *err)
{
	struct fuse_guard guard;
	int r = fuse_guard_start(&guard, k->abort_fd, GUARD_S);

	if (r < 0)
		return failure(err, r, "no thread: %s", strerrordesc_np(-r));
	r = make_disk(name, k, m, err);
	if (r == 0 && fs_ops_named(m->fs_type)->owners == OWNERS_BTRFS)
		r = btrfs_mark_read(&m->btrfs, m->disk_fd);
	for (unsigned i = 0; r == 0 && use != VIEW_DISK; i++) {
		r = mount_disk(m, use, &m->dir_fd, err);
		/* another view of this btrfs begins or ends */
		if ((r != -EOPNOTSUPP && r != -ESTALE) || i == MOUNT_TRIES)
			break;
		usleep(MOUNT_WAIT_US);
		r = 0;
	}
	if (r == -EIO)
		unreadable(name, r, err);
	if (fuse_guard_stop(&guard) && r < 0)
		r = failure(err, -ETIMEDOUT,
			    "%s: nothing has answered reads of the view for %u seconds", name,
			    GUARD_S);
	return r;
}

/* ---- */

struct opening {
	const char *name;
	enum view_use use;
	struct connection k;
	struct view_mount m;
	struct failure err;
	int r;
};

static void ask_server(struct opening *o, view_serve *serve, void *ctx)
{
	o->m = (struct view_mount){ .dir_fd = -1, .disk_fd = -1 };
	o->r = open_connection(&o->k, &o->err);
	if (o->r < 0)
		return;
	o->r = serve(ctx, o->k.fuse_fd, &o->m, &o->err);
	close(steal_fd(&o->k.fuse_fd));
	if (o->r < 0)
		close_connection(&o->k);
}

static void *mount_served(void *arg)
{
	struct opening *o = arg;

	if (o->r < 0)
		return NULL;
	o->r = mount_image(o->name, o->use, &o->k, &o->m, &o->err);
	close_connection(&o->k);
	if (o->r < 0)
		view_mount_close(&o->m);
	return NULL;
}

int view_mount_served(const char *name, enum view_use use, view_serve *serve, void *ctx,
		      struct view_mount *ret, struct failure *err)
{
	struct opening o = { .name = name, .use = use };

	ask_server(&o, serve, ctx);
	mount_served(&o);
	if (o.r < 0)
		*err = o.err;
	else
		*ret = o.m;
	return o.r;
}

/* The replay of a large log takes its time. Two mounts of one btrfs would disturb each other. */
int view_mount_open_both(struct client *c, enum view_kind kind, struct view_mount *ret,
			 struct view_mount *ret_now, struct failure *err)
{
	struct question q = { c, kind };
	struct opening o = { .name = c->name, .use = VIEW_READ };
	pthread_t thread;
	bool beside;
	int r = 0;

	ask_server(&o, ask, &q);
	beside = o.r == 0 && !fs_ops_named(o.m.fs_type)->several_devices &&
		 thread_start(&thread, NULL, STACK_BYTES, mount_served, &o) == 0;
	if (!beside)
		mount_served(&o);
	if (beside || o.r == 0)
		r = view_mount_open(c, VIEW_NOW, ret_now, err);
	if (beside)
		pthread_join(thread, NULL);
	if (o.r < 0)
		*err = o.err;
	else
		*ret = o.m;
	return o.r < 0 ? o.r : r;
}

int view_mount_open(struct client *c, enum view_kind kind, struct view_mount *ret,
		    struct failure *err)
{
	struct question q = { c, kind };

	return view_mount_served(c->name, kind == VIEW_SCRATCH ? VIEW_WRITE : VIEW_READ, ask, &q,
				 ret, err);
}

int view_mount_disk(struct client *c, enum view_kind kind, struct view_mount *ret,
		    struct failure *err)
{
	struct question q = { c, kind };

	return view_mount_served(c->name, VIEW_DISK, ask, &q, ret, err);
}

int view_mount_look(const struct view_mount *m, int *ret_dir_fd, struct failure *err)
{
	return mount_disk(m, VIEW_DISK, ret_dir_fd, err);
}

void view_mount_close(struct view_mount *m)
{
	cleanup_closep(&m->dir_fd);
	cleanup_closep(&m->disk_fd);
}

void view_mount_scattered(const struct view_mount *m)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/fs/ext4/%s/inode_readahead_blks",
		 strrchr(m->disk, '/') + 1);
	(void)!io_write_text(AT_FDCWD, path, "1");
}

int view_mount_sync(struct view_mount *m, struct failure *err)
{
	_cleanup_close_ int fd = openat(m->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd < 0 || syncfs(fd) < 0 ? -errno : 0;

	if (r == -EIO || r == -ENOSPC) /* the disk of the image has no other error for full RAM */
		return failure(
			err, r,
			"the files need more RAM than is free (ram=), or the card cannot be read. "
			"'cowctl commit' without a path commits what is in RAM");
	if (r < 0)
		return failure(err, r, "cannot write the files: %s", strerrordesc_np(-r));
	return 0;
}

/* The last reference to the mount is gone, but another process may hold a file for a moment. */
int view_mount_unmount(struct view_mount *m, struct failure *err)
{
	uint64_t end_ns = now_ns() + UNMOUNT_NS;
	int fd, r = view_mount_sync(m, err);

	close(steal_fd(&m->dir_fd));
	if (r < 0)
		return r;
	/* the file system claims its device */
	while ((fd = open(m->disk, O_RDONLY | O_EXCL | O_CLOEXEC)) < 0) {
		if (errno != EBUSY || now_ns() > end_ns)
			return failure(err, -errno, "%s: is still mounted: %s", m->disk,
				       strerrordesc_np(errno));
		usleep(10000);
	}
	close(fd);
	return 0;
}
