// SPDX-License-Identifier: MIT
/*
 * cowfs/files: what changed between two states of a file system, file by file. A real file system
 * on an image is changed by random operations. The oracle lists both states with lstat, read and
 * llistxattr, and knows nothing of inode numbers or blocks: applied to the old list, the differences
 * must give the new one, exactly. Needs root, for mounts in a mount namespace of its own.
 *
 * COWFS_FILES_SEEDS=N: seeds for each layout (default 2); COWFS_FILES_SEED=N: the first one;
 * COWFS_FILES_LAYOUT=NAME: only this layout.
 */
#include <dirent.h>
#include "test.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include "base/crc32c.h"
#include "files/node.h"
#include "files/diff.h"
#include "image.h"
#include "workdir.h"

enum { OPERATIONS = 200, PATHS_MAX = 4096 };

static unsigned seeds = 2, first_seed;
static const char *only;

static void must(int status, const char *what)
{
	int err = errno;

	if (!status)
		return;
	{
		char cmd[128];

		snprintf(cmd, sizeof(cmd), "tail -3 %s/log >&2", dir);
		(void)!system(cmd);
	}
	fail_msg("%s: %d (errno %d)", what, status, err);
}
#define SH(...) must(sh(__VA_ARGS__), #__VA_ARGS__)

/* ---- the oracle ---- */

struct sig {
	char path[256]; /* "" is the root */
	struct stat st;
	uint32_t content, xattrs, acls;
	long flags;
	bool used; /* by a check */
};

struct listing {
	struct sig s[PATHS_MAX];
	size_t n;
};

static uint32_t crc_text(uint32_t crc, const char *text)
{
	return crc32c(crc, text, strlen(text) + 1);
}

static int text_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sign_xattrs(const char *path, struct sig *s)
{
	static char names[65536], value[65536];
	char *name[64];
	ssize_t n = llistxattr(path, names, sizeof(names));
	size_t count = 0;

	for (char *p = names; n > 0 && p < names + n; p += strlen(p) + 1)
		name[count++] = p;
	assert_true(count < 64);
	qsort(name, count, sizeof(*name), text_compare);
	for (size_t i = 0; i < count; i++) {
		bool acl = strstr(name[i], "posix_acl");
		uint32_t *crc = acl ? &s->acls : &s->xattrs;

		/* xfs shows an ACL a second time */
		if (strstr(name[i], "SGI_ACL"))
			continue;
		n = lgetxattr(path, name[i], value, sizeof(value));
		assert_true(n >= 0);
		*crc = crc32c(crc_text(*crc + 1, name[i]), value, (size_t)n);
	}
}

static void sign_file(const char *path, struct sig *s)
{
	static uint8_t buf[65536];
	ssize_t n;
	int fd;

	if (S_ISLNK(s->st.st_mode)) {
		n = readlink(path, (char *)buf, sizeof(buf));
		assert_true(n >= 0);
		s->content = crc32c(1, buf, (size_t)n);
	}
	if (S_ISBLK(s->st.st_mode) || S_ISCHR(s->st.st_mode))
		s->content = (uint32_t)s->st.st_rdev;
	if (!S_ISREG(s->st.st_mode) && !S_ISDIR(s->st.st_mode))
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	if (ioctl(fd, FS_IOC_GETFLAGS, &s->flags) < 0)
		s->flags = 0;
	s->flags &= FS_NODUMP_FL | FS_APPEND_FL | FS_IMMUTABLE_FL;
	while (S_ISREG(s->st.st_mode) && (n = read(fd, buf, sizeof(buf))) > 0)
		s->content = crc32c(s->content, buf, (size_t)n);
	close(fd);
}

static void list_tree(struct listing *l, const char *root, const char *below)
{
	struct sig *s = &l->s[l->n++];
	char path[512];
	DIR *d;

	assert_true(l->n < PATHS_MAX);
	memset(s, 0, sizeof(*s));
	snprintf(s->path, sizeof(s->path), "%s", below);
	snprintf(path, sizeof(path), "%s/%s", root, below);
	must(lstat(path, &s->st), path);
	sign_xattrs(path, s);
	sign_file(path, s);
	if (!S_ISDIR(s->st.st_mode))
		return;
	d = opendir(path);
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));) {
		char name[600];

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		snprintf(name, sizeof(name), "%s%s%s", below, *below ? "/" : "", e->d_name);
		list_tree(l, root, name);
	}
	closedir(d);
}

static struct listing *list_state(const char *root)
{
	struct listing *l = calloc(1, sizeof(*l));

	assert_non_null(l);
	list_tree(l, root, "");
	return l;
}

static struct sig *find_sig(struct listing *l, const char *path)
{
	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->s[i].path, path))
			return &l->s[i];
	return NULL;
}

static unsigned sigs_differ(const struct sig *a, const struct sig *b)
{
	unsigned what = 0;

	if ((a->st.st_mode ^ b->st.st_mode) & 07777)
		what |= DIFF_MODE;
	if (a->st.st_uid != b->st.st_uid || a->st.st_gid != b->st.st_gid)
		what |= DIFF_OWNER;
	if (a->st.st_mtim.tv_sec != b->st.st_mtim.tv_sec ||
	    a->st.st_mtim.tv_nsec != b->st.st_mtim.tv_nsec)
		what |= DIFF_TIME;
	if (a->flags != b->flags)
		what |= DIFF_FLAGS;
	if (a->xattrs != b->xattrs)
		what |= DIFF_XATTR;
	if (a->acls != b->acls)
		what |= DIFF_ACL;
	if (!S_ISDIR(b->st.st_mode) &&
	    (a->content != b->content || (!S_ISBLK(b->st.st_mode) && !S_ISCHR(b->st.st_mode) &&
					  a->st.st_size != b->st.st_size)))
		what |= DIFF_CONTENT;
	return what;
}

/* ---- differences against the oracle ---- */

static const struct diff_file *find_new(const struct diff *d, const char *path)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->f[i].kind != DIFF_DELETED && !strcmp(d->f[i].path, path))
			return &d->f[i];
	return NULL;
}

static bool any_below(const struct diff *d, const char *dir_path)
{
	size_t n = strlen(dir_path);

	for (size_t i = 0; i < d->n; i++) {
		const char *names[] = { d->f[i].path, d->f[i].from ? d->f[i].from : "" };

		for (size_t k = 0; k < 2; k++)
			if (strlen(names[k]) > n && path_is_below(names[k], dir_path) &&
			    !strchr(names[k] + n + (n != 0), '/'))
				return true;
	}
	return false;
}

/* The name in the old state of a file that is not added; false: below an added directory. */
static bool old_name(const struct diff *d, const char *path, char ret[256])
{
	const struct diff_file *f = find_new(d, path);
	const char *slash = strrchr(path, '/');
	char above[256] = "", old_above[256];

	ret[0] = '\0';
	if (f && f->kind == DIFF_ADDED)
		return false;
	if (f && f->from) {
		snprintf(ret, 256, "%s", f->from);
		return true;
	}
	if (!*path)
		return true;
	if (slash)
		snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
	if (!old_name(d, above, old_above)) {
		/* the directory is new: only a replaced file has an old name, the same */
		return false;
	}
	assert_true(snprintf(ret, 256, "%s%s%s", old_above, *old_above ? "/" : "",
			     slash ? slash + 1 : path) < 256);
	return true;
}

static void show_all(const struct diff *d)
{
	for (size_t i = 0; i < d->n; i++)
		print_error("  %c %x %s%s%s\n", "ADMmR"[d->f[i].kind], d -> f[i].what,
			    d->f[i].from ? d->f[i].from : "", d->f[i].from ? " -> " : "",
			    d->f[i].path);
}

static char context[256];

#define CHECK(cond, ...)                                                                           \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			show_all(d);                                                               \
			print_error("%s: ", context);                                              \
			fail_msg(__VA_ARGS__);                                                     \
		}                                                                                  \
	} while (0)

/* 200 operations cannot do less, unless none of them can write. */
#define CHECK_MANY(diff)                                                                           \
	if ((diff)->n < 20)                                                                        \
	fail_msg("%s: %zu differences", context, (diff)->n)

static void check_file(const struct diff *d, struct listing *old_list, const struct sig *s)
{
	const struct diff_file *f = find_new(d, s->path);
	char from[256];
	struct sig *o;
	unsigned what, said = f ? f->what : 0;

	if (f && f->kind == DIFF_ADDED)
		return;
	CHECK(old_name(d, s->path, from), "%s: missed", s->path);
	o = find_sig(old_list, from);
	CHECK(o, "%s: was not %s", s->path, from);
	CHECK(!o->used, "%s: %s is used twice", s->path, from);
	o->used = true;
	CHECK(!((o->st.st_mode ^ s->st.st_mode) & S_IFMT), "%s: another type", s->path);
	what = sigs_differ(o, s);
	if (S_ISDIR(s->st.st_mode) && !(said & DIFF_TIME) && any_below(d, s->path))
		what &= ~(unsigned)DIFF_TIME;
	if (S_ISDIR(s->st.st_mode) && !(said & DIFF_TIME) && any_below(d, from))
		what &= ~(unsigned)DIFF_TIME;
	CHECK(what == said, "%s: differs in %x, not in %x", s->path, what, said);
	CHECK(!f || f->kind == DIFF_RENAMED ||
		      f->kind == (what & DIFF_CONTENT ? DIFF_CHANGED : DIFF_META),
	      "%s: kind %d", s->path, f->kind);
}

static void check_diff(const struct diff *d, struct listing *old_list, struct listing *new_list)
{
	for (size_t i = 0; i < old_list->n; i++)
		old_list->s[i].used = false;
	for (size_t i = 0; i < new_list->n; i++)
		check_file(d, old_list, &new_list->s[i]);
	for (size_t i = 0; i < d->n; i++) {
		const struct diff_file *f = &d->f[i];
		struct sig *o = find_sig(old_list, f->path);

		if (f->kind != DIFF_DELETED) {
			CHECK(find_sig(new_list, f->path), "%s: invented", f->path);
			continue;
		}
		CHECK(o && !o->used, "%s: not deleted", f->path);
		o->used = true;
	}
	for (size_t i = 0; i < old_list->n; i++)
		CHECK(old_list->s[i].used, "%s: its end is missed", old_list->s[i].path);
}

/* ---- images ---- */

struct layout {
	const char *name, *mkfs, *options;
	unsigned mib;
	bool ext, no_mount;
};

static void mount_image(const char *image, const char *point, const char *options)
{
	/* again: another process may still hold the other image of this btrfs, with the same UUID (EEXIST) */
	SH("mkdir -p %s; for i in $(seq 20); do ! mount -o loop,%s %s %s || exit 0; sleep 0.5; done; exit 1",
	   point, options, image, point);
}

/* Bounded: a loop device may still be busy with its last writes. */
static void unmount(const char *point)
{
	SH("umount %s", point);
}

/* All units of 4 KiB that differ, and some that do not. */
static void compare_images(struct image *a, struct image *b, struct extents *ret)
{
	assert_int_equal(a->size_bytes, b->size_bytes);
	for (uint64_t blk = 0; blk < a->size_bytes >> COW_BLK_SHIFT; blk++)
		if (rnd(500) == 0 ||
		    memcmp(a->p + blk_to_bytes(blk), b->p + blk_to_bytes(blk), COW_BLK_BYTES) != 0)
			assert_int_equal(extents_add(ret, blk, 1), 0);
}

/* ---- random operations ---- */

static const char *const dirs[] = { "", "a", "a/b", "c", "c/d/e", "c/d" };

static char *some_path(char path[256])
{
	static const char *const odd[] = { "new\nline", "esc\033[1m", "sp ace", "\xff\xfe" };
	const char *d = dirs[rnd(ARRAY_SIZE(dirs))];

	if (rnd(20) == 0)
		snprintf(path, 256, "mnt/%s/%s", d, odd[rnd(ARRAY_SIZE(odd))]);
	else
		snprintf(path, 256, "mnt/%s/f%u", d, (unsigned)rnd(12));
	return path;
}

static void write_some(const char *path, int flags, uint64_t off, size_t len)
{
	int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | flags, 0644);
	uint8_t *buf = aligned_alloc(4096, round_up_u64(len, 4096));

	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)rnd(256);
	if (fd >= 0 && pwrite(fd, buf, len, (off_t)off) < 0 && errno != EINVAL && errno != ENOSPC)
		assert_true(errno == EPERM || errno == EBADF || errno == EIO || errno == ENXIO);
	free(buf);
	if (fd >= 0)
		close(fd);
}

static bool is_regular(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static void mmap_write(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	uint8_t *p;

	if (fd < 0 || fstat(fd, &st) < 0 || !st.st_size) {
		if (fd >= 0)
			close(fd);
		return;
	}
	p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED) {
		if (!rnd(3) || st.st_blocks > 8)
			p[0] ^= 0xff;
		munmap(p, (size_t)st.st_size);
	}
	close(fd);
}

static void change_flags(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), flags = 0;

	if (fd >= 0 && ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0) {
		flags ^= FS_NODUMP_FL;
		(void)!ioctl(fd, FS_IOC_SETFLAGS, &flags);
	}
	if (fd >= 0)
		close(fd);
}

/* user::rw-,user:UID:r--,group::r--,mask::r--,other::--- */
static void set_acl(const char *path, uint32_t uid)
{
	uint8_t acl[4 + 5 * 8] = { 2 };
	const uint32_t e[5][3] = {
		{ 1, 6, ~0u }, { 2, 4, uid }, { 4, 4, ~0u }, { 16, 4, ~0u }, { 32, 0, ~0u }
	};

	for (size_t i = 0; i < 5; i++) {
		memcpy(acl + 4 + 8 * i, &(uint16_t){ (uint16_t)e[i][0] }, 2);
		memcpy(acl + 6 + 8 * i, &(uint16_t){ (uint16_t)e[i][1] }, 2);
		memcpy(acl + 8 + 8 * i, &e[i][2], 4);
	}
	(void)!lsetxattr(path, "system.posix_acl_access", acl, sizeof(acl), 0);
}

static void set_xattr(const char *path)
{
	static char value[60000];
	size_t len = rnd(4) ? rnd(40) : rnd(3) ? 200 + rnd(700) : rnd(10000);
	char name[32];

	memset(value, 'a' + (char)rnd(3),
	       sizeof(value)); /* few values, so that blocks are shared */
	snprintf(name, sizeof(name), "trusted.x%u", (unsigned)rnd(3));
	if (rnd(4) == 0)
		(void)!lremovexattr(path, name);
	else
		(void)!lsetxattr(path, name, value, len, 0);
}

static void make_socket(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (snprintf(a.sun_path, sizeof(a.sun_path), "%s", path) < (int)sizeof(a.sun_path))
		(void)!bind(fd, (struct sockaddr *)&a, sizeof(a));
	close(fd);
}

static void truncate_some(const char *path, char *other)
{
	struct stat st;

	if (is_regular(path) && stat(path, &st) == 0)
		(void)!truncate(path, (off_t)rnd((uint64_t)st.st_size * 2 + 100));
}

/* Holes, unwritten parts and shifts of what follows, where and how small a block may be. */
static void reshape(const char *path)
{
	static const int how[] = { 0,
				   FALLOC_FL_KEEP_SIZE,
				   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
				   FALLOC_FL_ZERO_RANGE,
				   FALLOC_FL_COLLAPSE_RANGE,
				   FALLOC_FL_INSERT_RANGE };
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	uint64_t unit = 512u << rnd(4), off = unit * rnd(32768 / unit), len = unit * (1 + rnd(8));

	if (fd >= 0 && fallocate(fd, how[rnd(ARRAY_SIZE(how))], (off_t)off, (off_t)len) < 0)
		errno = 0;
	if (fd >= 0)
		close(fd);
}

static void operate(void)
{
	char a[256], b[256], name[600];
	struct timespec times[2] = { { .tv_sec = (time_t)rnd(2000000000) },
				     { .tv_nsec = (long)rnd(1000000000) } };

	times[1].tv_sec = (time_t)rnd(2000000000);
	some_path(a);
	some_path(b);
	switch (rnd(27)) {
	case 0:
	case 1:
	case 2:
		write_some(a, O_CREAT | O_TRUNC, 0, 1 + rnd(30000));
		break;
	case 3:
		write_some(a, O_CREAT, rnd(200000), 1 + rnd(9000));
		break;
	case 4:
		write_some(a, O_APPEND, 0, 1 + rnd(9000));
		break;
	case 5:
		truncate_some(a, b);
		break;
	case 6:
	case 7:
		(void)!rename(a, b);
		break;
	case 8:
		(void)!renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
		break;
	case 9:
		(void)!link(a, b);
		break;
	case 10:
	case 11:
		(void)!unlink(a);
		break;
	case 12:
		memset(name, 'l', rnd(400) + 1);
		name[rnd(400)] = '\0';
		name[500] = '\0';
		(void)!symlink(*name && strlen(name) < 450 ? name : "x", a);
		break;
	case 13:
		set_acl(a, (uint32_t)rnd(5));
		break;
	case 14:
	case 15:
		set_xattr(a);
		break;
	case 16:
		(void)!chmod(a, (mode_t)rnd(010000));
		break;
	case 17:
		(void)!lchown(a, (uid_t)rnd(70000), (gid_t)rnd(70000));
		break;
	case 18:
		(void)!utimensat(AT_FDCWD, a, times, AT_SYMLINK_NOFOLLOW);
		break;
	case 19:
		if (is_regular(a))
			change_flags(a);
		break;
	case 20:
		rnd(3) == 0 ? (void)!mknod(a, S_IFCHR | 0600,
					   makedev((unsigned)rnd(300), (unsigned)rnd(300)))
		: rnd(2)    ? (void)!mkfifo(a, 0600)
			    : make_socket(a);
		break;
	case 21:
		(void)!mkdir(a, 0755);
		snprintf(name, sizeof(name), "%s/sub%u", a, (unsigned)rnd(3));
		if (rnd(2))
			write_some(name, O_CREAT, 0, 100);
		else
			(void)!rmdir(a);
		break;
	case 22: /* directories move, with all in them */
		snprintf(a, sizeof(a), "mnt/%s", dirs[1 + rnd(ARRAY_SIZE(dirs) - 1)]);
		if (rnd(3))
			snprintf(b, sizeof(b), "mnt/%s", dirs[1 + rnd(ARRAY_SIZE(dirs) - 1)]);
		if (rnd(4))
			(void)!rename(a, b);
		else
			(void)!mkdir(a, 0755);
		break;
	case 23:
		if (!is_regular(a))
			break;
		if (rnd(2))
			write_some(a, O_DIRECT, 4096 * rnd(4), 4096);
		else
			mmap_write(a);
		break;
	default:
		if (is_regular(a))
			reshape(a);
	}
}

static void operations(unsigned n)
{
	char old[256];

	assert_non_null(getcwd(old, sizeof(old)));
	must(chdir(dir), "chdir");
	for (size_t i = 1; i < ARRAY_SIZE(dirs); i++)
		if (rnd(3) == 0 || n > OPERATIONS) {
			char path[256];

			snprintf(path, sizeof(path), "mnt/%s", dirs[i]);
			(void)!mkdir(path, 0755);
		}
	for (unsigned i = 0; i < n; i++)
		operate();
	must(chdir(old), "chdir");
}

/* ---- both ways against the oracle ---- */

static int open_dir(const char *name)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void check_walk(struct listing *old_list, struct listing *new_list)
{
	int a = open_dir("old"), b = open_dir("new");

	for (int ids = 0; ids < 2; ids++) {
		struct diff d = { 0 };

		assert_int_equal(walk_diff(&d, a, b, ids, NULL, NULL), 0);
		CHECK_MANY(&d);
		check_diff(&d, old_list, new_list);
		diff_clear(&d);
	}
	close(a);
	close(b);
}

/* What the blocks say, by mounted states. ret: unsorted */
static int diff_touched(struct diff *ret)
{
	struct extents runs = { 0 };
	struct touched t = { 0 };
	struct image a, b;
	int old_fd, fd[2] = { open_dir("old"), open_dir("new") }, err;

	image_open(&a, "old.img");
	image_open(&b, "new.img");
	compare_images(&a, &b, &runs);
	old_fd = open(a.path, O_RDONLY | O_CLOEXEC);
	err = touched_find_ext(&t, old_fd, b.path, &runs, true, NULL);
	if (!err)
		err = walk_diff(ret, fd[0], fd[1], true, &t, NULL);
	touched_clear(&t);
	extents_clear(&runs);
	close(old_fd);
	close(fd[0]);
	close(fd[1]);
	image_close(&a);
	image_close(&b);
	return err;
}

/* A file that differs has an inode on the list that is made without names. */
static void check_inodes(struct listing *old_list, struct listing *new_list)
{
	struct extents runs = { 0 };
	struct touched t = { 0 };
	struct diff none = { 0 }, *d = &none;
	struct image a, b;
	int fd;

	image_open(&a, "old.img");
	image_open(&b, "new.img");
	for (uint64_t blk = 0; blk < a.size_bytes >> COW_BLK_SHIFT; blk++)
		if (memcmp(a.p + blk_to_bytes(blk), b.p + blk_to_bytes(blk), COW_BLK_BYTES) != 0)
			assert_int_equal(extents_add(&runs, blk, 1), 0);
	fd = open(a.path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(touched_find_ext(&t, fd, b.path, &runs, false, NULL), 0);
	for (size_t i = 0; i < new_list->n; i++) {
		struct sig *s = &new_list->s[i], *o = NULL;

		for (size_t k = 0; k < old_list->n && !o; k++)
			if (old_list->s[k].st.st_ino == s->st.st_ino)
				o = &old_list->s[k];
		CHECK(touched_ino(&t, s->st.st_ino) ||
			      (o && !((o->st.st_mode ^ s->st.st_mode) & S_IFMT) &&
			       !sigs_differ(o, s) && o->st.st_nlink == s->st.st_nlink),
		      "%s: its inode %lu is missed", s->path, (unsigned long)s->st.st_ino);
	}
	touched_clear(&t);
	extents_clear(&runs);
	close(fd);
	image_close(&a);
	image_close(&b);
}

static void check_touched(struct listing *old_list, struct listing *new_list)
{
	struct diff x = { 0 }, *d = &x;
	int err = diff_touched(d);

	CHECK(!err, "touched: %d", err);
	CHECK_MANY(d);
	check_diff(d, old_list, new_list);
	diff_clear(d);
}

/* Each file gets the content of its new state, of which nothing is read that lies on blocks that did not change. */
static void check_content(struct listing *old_list, struct listing *new_list, const char *options)
{
	struct extents changed = { 0 };
	const struct node_content how = { .changed = &changed };
	struct image a, b;
	char path[256];
	int old_fd, new_fd;
	struct listing *now;
	unsigned n = 0;

	image_open(&a, "old.img");
	image_open(&b, "new.img");
	compare_images(&a, &b, &changed);
	image_close(&a);
	image_close(&b);
	unmount("old");
	mount_image("old.img", "old", options);
	old_fd = open_dir("old");
	new_fd = open_dir("new");
	for (size_t i = 0; i < new_list->n; i++) {
		struct sig *s = &new_list->s[i], *o = find_sig(old_list, s->path);
		struct node from;
		int fd;

		s->used = o && S_ISREG(s->st.st_mode) && S_ISREG(o->st.st_mode) &&
			  s->st.st_nlink == 1 && o->st.st_nlink == 1;
		if (!s->used)
			continue;
		assert_int_equal(node_open(&from, new_fd, s->path), 0);
		fd = openat(old_fd, s->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		assert_true(fd >= 0);
		assert_int_equal(node_write_content(&from, fd, &how), 0);
		close(fd);
		node_close(&from);
		n++;
	}
	close(old_fd);
	close(new_fd);
	extents_clear(&changed);
	snprintf(path, sizeof(path), "%s/old", dir);
	now = list_state(path);
	for (size_t i = 0; i < new_list->n; i++)
		if (new_list->s[i].used &&
		    find_sig(now, new_list->s[i].path)->content != new_list->s[i].content)
			fail_msg("%s: %s: not the content of its source", context,
				 new_list->s[i].path);
	if (!n)
		fail_msg("%s: no file in both states", context);
	free(now);
}

static void run_seed(const struct layout *l, unsigned seed)
{
	const char *ro = l->ext			  ? strcmp(l->name, "ext2") ? "ro,noload" : "ro"
			 : strstr(l->name, "xfs") ? "ro,norecovery,nouuid"
						  : "ro";
	struct listing *old_list, *new_list;
	char path[256];

	rnd_state = seed * 7919 + 1;
	snprintf(context, sizeof(context), "%s, seed %u", l->name, seed);
	SH("rm -f *.img && truncate -s %uM new.img && %s new.img", l->mib, l->mkfs);
	mount_image("new.img", "mnt", l->options);
	operations(2 * OPERATIONS);
	unmount("mnt");
	SH("cp --sparse=always new.img old.img");
	mount_image("new.img", "mnt", l->options);
	operations(OPERATIONS);
	unmount("mnt");
	mount_image("old.img", "old", ro);
	snprintf(path, sizeof(path), "%s/old", dir);
	old_list = list_state(path);
	/* two btrfs of one UUID cannot be mounted at the same time */
	mount_image("new.img", "new", ro);
	snprintf(path, sizeof(path), "%s/new", dir);
	new_list = list_state(path);
	check_walk(old_list, new_list);
	if (l->ext) {
		check_touched(old_list, new_list);
		check_inodes(old_list, new_list);
	}
	check_content(old_list, new_list, strstr(l->name, "xfs") ? "nouuid" : "noatime");
	unmount("old");
	unmount("new");
	free(old_list);
	free(new_list);
}

/* ---- kinds ---- */

static void add_line(char *text, size_t size, const struct diff_file *f)
{
	size_t n = strlen(text);

	n += (size_t)snprintf(text + n, size - n, "%c", "ADMmR"[f->kind]);
	for (unsigned i = 0; DIFF_LETTERS[i]; i++)
		if (f->what & 1u << i)
			n += (size_t)snprintf(text + n, size - n, "%c", DIFF_LETTERS[i]);
	snprintf(text + n, size - n, " %s%s%s\n", f->from ? f->from : "", f->from ? " > " : "",
		 f->path);
}

static void expect_lines(struct diff *d, const char *expected)
{
	char text[8192] = "";

	diff_sort(d);
	for (size_t i = 0; i < d->n; i++)
		add_line(text, sizeof(text), &d->f[i]);
	assert_string_equal(text, expected);
	diff_clear(d);
}

static void expect_touched(const char *expected)
{
	struct diff d = { 0 };
	char path[256];

	mount_image("old.img", "old", "ro,noload");
	mount_image("new.img", "new", "ro,noload");
	assert_int_equal(diff_touched(&d), 0);
	expect_lines(&d, expected);
	snprintf(path, sizeof(path), "%s/old", dir);
	struct listing *old_list = list_state(path), *new_list;

	snprintf(path, sizeof(path), "%s/new", dir);
	new_list = list_state(path);
	check_inodes(old_list, new_list);
	free(old_list);
	free(new_list);
	unmount("old");
	unmount("new");
}

static void expect_walk(const char *expected, bool ids)
{
	struct diff d = { 0 };
	int a, b;

	mount_image("old.img", "old", "ro,noload");
	mount_image("new.img", "new", "ro,noload");
	a = open_dir("old");
	b = open_dir("new");
	assert_int_equal(walk_diff(&d, a, b, ids, NULL, NULL), 0);
	expect_lines(&d, expected);
	close(a);
	close(b);
	unmount("old");
	unmount("new");
}

static void make_states(const char *mkfs, const char *before, const char *after)
{
	SH("rm -f *.img && truncate -s 32M new.img && mkfs.ext4 -q %s new.img", mkfs);
	mount_image("new.img", "mnt", "noatime");
	SH("cd mnt && %s", before);
	unmount("mnt");
	SH("cp new.img old.img");
	mount_image("new.img", "mnt", "noatime");
	SH("cd mnt && %s", after);
	unmount("mnt");
}

/* after a failure */
static int unmount_all(void **state)
{
	(void)sh("for m in mnt old new; do mountpoint -q $m && umount -l $m; done");
	return 0;
}

TEST(test_kinds, NULL, unmount_all)
{
	static const char expected[] =
		"R a > a.new\nR d > dd\nMct dd/x\nRp b > e/b\nR gone/file > file\n"
		"D gone\nA other\nMct over\nD reused\nmx same\nA same/link2\n"
		"mt touched\nD type\nA type\nA type/new\n";
	/* of a file system whose inode numbers mean nothing */
	static const char by_name[] =
		"D a\nA a.new\nD b\nD d\nD d/x\nD d/y\nA dd\nA dd/x\nA dd/y\n"
		"A e/b\nA file\nD gone\nD gone/file\nA other\nMct over\nD reused\n"
		"mx same\nA same/link2\nmt swap\nmt touched\nD type\nA type\nA type/new\n";

	if (geteuid())
		skip();
	make_states(
		"",
		"mkdir d e gone swap; echo s >swap/f; echo 1 >d/x; echo 2 >d/y; echo 3 >a; echo 4 >b; echo 5 >over;"
		"echo 6 >touched; echo 7 >gone/file; mkdir same; echo 8 >same/link; echo t >type;"
		"echo r >reused; touch -d 2020-01-01 d/* * same same/*",
		"mv swap/f f; rmdir swap; mkdir swap; mv f swap/f; mv d dd; echo 1+ >>dd/x; mv a a.new; mv b e/b; chmod 600 e/b; mv over tmp;"
		"echo 5+ >over; rm tmp; touch -d 2021-01-01 touched; mv gone/file . && rmdir gone;"
		"ln same/link same/link2; rm type; mkdir type; echo 9 >type/new;"
		"rm reused; echo r2 >other; setfattr -n user.k -v v same 2>/dev/null ||"
		" python3 -c 'import os; os.setxattr(\"same\", \"user.k\", b\"v\")'");
	expect_touched(expected);
	expect_walk(expected, true);
	expect_walk(by_name, false);
}

/* A block changes, and no inode does. */
static void check_in_place(unsigned block_bytes)
{
	char cmd[128];
	struct image b;
	unsigned long block;
	FILE *f;

	snprintf(cmd, sizeof(cmd), "-I 128 -b %u -O ^metadata_csum", block_bytes);
	make_states(
		cmd,
		/* its inode is in another block than those of the file system itself */
		"mkdir n; touch $(seq -f n/%g 100); head -c 20000 /dev/urandom >data; mkdir d; touch d/f d/g d/h; ln data d/hard;"
		"python3 -c 'import os; [os.setxattr(\"d/\" + f, \"user.k\", b\"v\" * 500) for f in \"fg\"]'",
		"true");
	SH("cp old.img new.img");
	image_open(&b, "new.img");
	snprintf(cmd, sizeof(cmd), "debugfs -R 'bmap /data 3' new.img");
	f = sh_read("%s", cmd);
	assert_int_equal(fscanf(f, "%lu", &block), 1);
	pclose(f);
	b.p[block * block_bytes + 17] ^= 1;
	f = sh_read("debugfs -R 'stat /d/f' new.img | sed -n 's/.*File ACL: //p'");
	assert_int_equal(fscanf(f, "%lu", &block), 1);
	pclose(f);
	assert_true(block);
	b.p[block * block_bytes + block_bytes - 1] ^= 1;
	{
		int fd = open(b.path, O_WRONLY | O_CLOEXEC);

		assert_true(fd >= 0);
		assert_int_equal(pwrite(fd, b.p, b.size_bytes, 0), (ssize_t)b.size_bytes);
		close(fd);
	}
	image_close(&b);
	expect_touched("mx d/f\nmx d/g\nMc d/hard\nMc data\n");
}

TEST(test_in_place, NULL, unmount_all)
{
	if (geteuid())
		skip();
	check_in_place(4096);
	check_in_place(1024);
}

/* Files and directories inside their inodes; made without a mount. */
TEST(test_inline, NULL, unmount_all)
{
	if (geteuid())
		skip();
	SH("rm -rf tree *.img && mkdir -p tree/d tree/e && echo small >tree/s &&"
	   "printf '%%0100d' 1 >tree/m && ln -s target tree/l && echo x >tree/d/x &&"
	   "truncate -s 32M old.img && mkfs.ext4 -q -O inline_data -I 256 -d tree old.img &&"
	   "cp old.img new.img && printf '%%0100d' 2 >m2 && echo other >s2");
	SH("printf '%%s\\n' 'rm m' 'write m2 m' 'rm s' 'write s2 s' 'cd d' 'write s2 y' 'cd ..' "
	   "'mkdir n' 'ln d/x e/x2' 'sif d/x links_count 2' 'sif e mode 040700' 'sif m mtime 20200101' 'sif s mtime 20200101' | debugfs -w -f - new.img");
	expect_touched("A d/y\nmp e\nA e/x2\nMct m\nA n\nMct s\n");
}

static const struct layout layouts[] = {
	{ "ext4", "mkfs.ext4 -q -b 4096", "noatime", 64, true, false },
	{ "ext4 1k", "mkfs.ext4 -q -b 1024", "noatime", 32, true, false },
	{ "ext4 2k", "mkfs.ext4 -q -b 2048", "noatime", 32, true, false },
	{ "ext4 small inodes", "mkfs.ext4 -q -I 128 -O ^metadata_csum,^dir_index", "noatime", 32,
	  true, false },
	{ "ext2", "mkfs.ext2 -q", "noatime", 32, true, false },
	{ "ext3", "mkfs.ext3 -q -b 1024", "noatime", 32, true, false },
	{ "ext4 bigalloc", "mkfs.ext4 -q -O bigalloc,ea_inode -C 16384", "noatime", 64, true,
	  false },
	{ "ext4 lazytime", "mkfs.ext4 -q -O ^metadata_csum,^64bit,ea_inode,^extent", "lazytime", 64,
	  true, false },
	{ "xfs", "mkfs.xfs -q", "noatime", 320, false, false },
	{ "xfs 1k", "mkfs.xfs -q -b size=1024", "noatime", 320, false, false },
	{ "btrfs", "mkfs.btrfs -q", "noatime", 128, false, false },
};

static void test_layout(void **state)
{
	const struct layout *l = *state;

	if (geteuid() || (only && strcmp(only, l->name) != 0))
		skip();
	for (unsigned seed = first_seed; seed < first_seed + seeds; seed++)
		run_seed(l, seed);
}

static int setup(void **state)
{
	const char *text = getenv("COWFS_FILES_SEEDS");

	if (text)
		seeds = (unsigned)strtoul(text, NULL, 10);
	only = getenv("COWFS_FILES_LAYOUT");
	text = getenv("COWFS_FILES_SEED");
	if (text)
		first_seed = (unsigned)strtoul(text, NULL, 10);
	if (!geteuid() &&
	    (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
		return -1;
	return workdir_new("files");
}

int main(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++)
		test_add((struct CMUnitTest){ layouts[i].name, test_layout, NULL, unmount_all,
					      (void *)&layouts[i] },
			 __LINE__);
	return tests_run(setup, workdir_remove);
}
