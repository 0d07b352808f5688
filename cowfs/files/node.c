/* SPDX-License-Identifier: MIT */
#include "files/node.h"

#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>

#define CHUNK (64 * KIB)
#define ATTRIBUTES                                                                                 \
	(STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND | STATX_ATTR_NODUMP | STATX_ATTR_COMPRESSED |    \
	 STATX_ATTR_ENCRYPTED | STATX_ATTR_VERITY | STATX_ATTR_DAX)

/* what chattr(1) shows; the others say how the file is stored */
#define FLAGS                                                                                      \
	(FS_SECRM_FL | FS_UNRM_FL | FS_COMPR_FL | FS_SYNC_FL | FS_IMMUTABLE_FL | FS_APPEND_FL |    \
	 FS_NODUMP_FL | FS_NOATIME_FL | FS_JOURNAL_DATA_FL | FS_NOTAIL_FL | FS_DIRSYNC_FL |        \
	 FS_TOPDIR_FL | FS_ENCRYPT_FL | FS_VERITY_FL | FS_NOCOW_FL | FS_DAX_FL |                   \
	 FS_PROJINHERIT_FL | FS_CASEFOLD_FL)
int node_open(int root_fd, const char *path, int flags)
{
	/* its users keep paths in so many bytes */
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	return path_open_below(root_fd, *path ? path : ".", flags | O_NOFOLLOW);
}

/* From the handle, which has the generation number of the inode; else the time of birth. */
static uint64_t gen_of(int fd, const struct statx *st)
{
	struct {
		struct file_handle h;
		uint8_t bytes[MAX_HANDLE_SZ];
	} x = { .h = { .handle_bytes = MAX_HANDLE_SZ } };
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
	int mount;

	if (name_to_handle_at(fd, "", &x.h, &mount, AT_EMPTY_PATH) == 0) {
		for (unsigned i = 0; i < x.h.handle_bytes && i < MAX_HANDLE_SZ; i++)
			hash = (hash ^ x.bytes[i]) * 0x100000001b3ull;
		return hash;
	}
	return st->stx_mask & STATX_BTIME
		       ? (uint64_t)st->stx_btime.tv_sec * 1000000000u + st->stx_btime.tv_nsec
		       : 0;
}

int node_load(int root_fd, const char *path, struct node *ret)
{
	struct node n = { .fd = node_open(root_fd, path, O_PATH) };

	if (n.fd < 0)
		return n.fd;
	if (statx(n.fd, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC,
		  STATX_BASIC_STATS | STATX_BTIME, &n.st) < 0) {
		int err = -errno;

		close(n.fd);
		return err;
	}
	n.gen = gen_of(n.fd, &n.st);
	*ret = n;
	return 0;
}

void node_clear(struct node *n)
{
	if (n->fd >= 0)
		close(n->fd);
	n->fd = -1;
}

static bool same_time(const struct statx_timestamp *a, const struct statx_timestamp *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool node_untouched(const struct node *x, const struct node *y)
{
	const struct statx *a = &x->st, *b = &y->st;

	/* whole seconds: a write in the same second would not show */
	return a->stx_ctime.tv_nsec && a->stx_ino == b->stx_ino && x->gen == y->gen &&
	       same_time(&a->stx_ctime, &b->stx_ctime) && same_time(&a->stx_mtime, &b->stx_mtime) &&
	       a->stx_size == b->stx_size && a->stx_mode == b->stx_mode &&
	       a->stx_uid == b->stx_uid && a->stx_gid == b->stx_gid;
}

/* ---- content ---- */

static int reopen(const struct node *n)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", n->fd);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Reads until the buffer is full or the file ends. */
static ssize_t read_chunk(int fd, uint8_t *buf, off_t off)
{
	size_t len = 0;
	ssize_t n = 1;

	while (len < CHUNK && n > 0) {
		n = pread(fd, buf + len, CHUNK - len, off + (off_t)len);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			len += (size_t)n;
	}
	return n < 0 ? -errno : (ssize_t)len;
}

/* The next data from off on; size at the end. */
static off_t next_data(int fd, off_t off, off_t size)
{
	off_t at = lseek(fd, off, SEEK_DATA);

	return at >= 0 ? at : errno == ENXIO ? size : off;
}

static int files_differ(int a_fd, int b_fd, off_t size, const struct extents *changed, bool *ret)
{
	_cleanup_free_ uint8_t *buf = malloc(2 * CHUNK);
	struct touched_place a = { .fd = a_fd }, b = { .fd = b_fd };
	off_t off = 0;

	if (!buf)
		return -ENOMEM;
	while (!*ret) {
		off_t x = next_data(a_fd, off, size), y = next_data(b_fd, off, size), next;
		ssize_t n, m;

		off = x < y ? x : y;
		if (off >= size)
			return 0;
		next = changed ? (off_t)touched_same_until(&a, &b, (uint64_t)off, changed) : off;
		if (next > off) {
			off = next;
			continue;
		}
		n = read_chunk(a_fd, buf, off);
		m = n < 0 ? n : read_chunk(b_fd, buf + CHUNK, off);
		if (m < 0)
			return (int)m;
		*ret = n != m || memcmp(buf, buf + CHUNK, (size_t)n);
		if (n <= 0)
			return 0;
		off += n;
	}
	return 0;
}

static int links_differ(const struct node *a, const struct node *b, bool *ret)
{
	char x[PATH_MAX], y[PATH_MAX];
	ssize_t n = readlinkat(a->fd, "", x, sizeof(x));
	ssize_t m = n < 0 ? n : readlinkat(b->fd, "", y, sizeof(y));

	if (m < 0)
		return -errno;
	*ret = n != m || memcmp(x, y, (size_t)n);
	return 0;
}

/* What is not a regular file. */
static int content_differs(const struct node *a, const struct node *b, bool *ret)
{
	switch (b->st.stx_mode & S_IFMT) {
	case S_IFLNK:
		return links_differ(a, b, ret);
	case S_IFBLK:
	case S_IFCHR:
		*ret = a->st.stx_rdev_major != b->st.stx_rdev_major ||
		       a->st.stx_rdev_minor != b->st.stx_rdev_minor;
		return 0;
	default:
		return 0;
	}
}

struct flags {
	unsigned fl, projid;
};

static int flags_load(int fd, struct flags *ret)
{
	struct fsxattr x = { 0 };

	if ((ioctl(fd, FS_IOC_GETFLAGS, &ret->fl) < 0 || ioctl(fd, FS_IOC_FSGETXATTR, &x) < 0) &&
	    errno != ENOTTY && errno != EOPNOTSUPP && errno != EINVAL)
		return -errno;
	ret->fl &= FLAGS;
	ret->projid = x.fsx_projid;
	return 0;
}

/* What is read through a descriptor of a regular file or a directory. */
static int opened_differ(const struct node *a, const struct node *b, const struct touched *t,
			 unsigned *ret)
{
	_cleanup_close_ int a_fd = reopen(a), b_fd = a_fd < 0 ? a_fd : reopen(b);
	bool file = S_ISREG(b->st.stx_mode), differs = file && a->st.stx_size != b->st.stx_size;
	struct flags x = { 0 }, y = { 0 };
	int err = b_fd < 0 ? b_fd : flags_load(a_fd, &x);

	if (!err)
		err = flags_load(b_fd, &y);
	if (!err && (x.fl != y.fl || x.projid != y.projid))
		*ret |= DIFF_FLAGS;
	if (!err && file && !differs)
		err = files_differ(a_fd, b_fd, (off_t)b->st.stx_size, t ? t->changed : NULL,
				   &differs);
	if (err == -ENOKEY && t && t->by_ino) {
		const struct owner *o = touched_ino(t, b->st.stx_ino);

		differs = differs || (o && o->differs & OWNER_CONTENT);
		err = 0;
	}
	if (differs)
		*ret |= DIFF_CONTENT;
	return err;
}

/* ---- extended attributes ---- */

struct names {
	char *text; /* terminated names one after another; NULL: none */
	char **name;
	size_t n;
};

static int name_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int names_load(const char *path, struct names *ret)
{
	ssize_t len = listxattr(path, NULL, 0), got;

	if (len < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	if (!len)
		return 0;
	ret->text = malloc((size_t)len + 1);
	ret->name = calloc((size_t)len, sizeof(*ret->name));
	if (!ret->text || !ret->name)
		return -ENOMEM;
	got = listxattr(path, ret->text, (size_t)len);
	if (got < 0)
		return -errno;
	ret->text[got] = '\0';
	for (char *p = ret->text; p < ret->text + got; p += strlen(p) + 1)
		ret->name[ret->n++] = p;
	if (ret->n)
		qsort(ret->name, ret->n, sizeof(*ret->name), name_compare);
	return 0;
}

static void names_clear(struct names *x)
{
	free(x->text);
	free(x->name);
}

/* Both values are in buf, 2 * XATTR_SIZE_MAX. */
static int value_differs(const char *a, const char *b, const char *name, char *buf, bool *ret)
{
	ssize_t n = getxattr(a, name, buf, XATTR_SIZE_MAX);
	ssize_t m = n < 0 ? n : getxattr(b, name, buf + XATTR_SIZE_MAX, XATTR_SIZE_MAX);

	if (m < 0)
		return -errno;
	*ret = n != m || memcmp(buf, buf + XATTR_SIZE_MAX, (size_t)n);
	return 0;
}

static unsigned xattr_bit(const char *name)
{
	return !strncmp(name, "system.posix_acl_", strlen("system.posix_acl_")) ? DIFF_ACL
										: DIFF_XATTR;
}

static int xattrs_differ(const struct node *x, const struct node *y, unsigned *ret)
{
	struct names a = { 0 }, b = { 0 };
	char a_path[32], b_path[32];
	_cleanup_free_ char *buf = NULL;
	size_t i = 0, k = 0;
	int err;

	snprintf(a_path, sizeof(a_path), "/proc/self/fd/%d", x->fd);
	snprintf(b_path, sizeof(b_path), "/proc/self/fd/%d", y->fd);
	err = names_load(a_path, &a);
	if (!err)
		err = names_load(b_path, &b);
	if (!err && (a.n || b.n)) {
		buf = malloc(2 * XATTR_SIZE_MAX);
		err = buf ? 0 : -ENOMEM;
	}
	while ((i < a.n || k < b.n) && !err) {
		int order = i == a.n ? 1 : k == b.n ? -1 : strcmp(a.name[i], b.name[k]);
		bool differs = true;

		if (!order)
			err = value_differs(a_path, b_path, a.name[i], buf, &differs);
		if (differs)
			*ret |= xattr_bit(order <= 0 ? a.name[i] : b.name[k]);
		i += order <= 0;
		k += order >= 0;
	}
	names_clear(&a);
	names_clear(&b);
	return err;
}

int node_compare(const struct node *a, const struct node *b, const struct touched *t,
		 unsigned *ret_what)
{
	unsigned what = 0;
	bool differs = false;
	int err;

	if ((a->st.stx_mode ^ b->st.stx_mode) & 07777)
		what |= DIFF_MODE;
	if (a->st.stx_uid != b->st.stx_uid || a->st.stx_gid != b->st.stx_gid)
		what |= DIFF_OWNER;
	if (!same_time(&a->st.stx_mtime, &b->st.stx_mtime))
		what |= DIFF_TIME;
	if ((a->st.stx_attributes ^ b->st.stx_attributes) & a->st.stx_attributes_mask &
	    b->st.stx_attributes_mask & ATTRIBUTES)
		what |= DIFF_FLAGS;
	if (S_ISREG(b->st.stx_mode) || S_ISDIR(b->st.stx_mode))
		err = opened_differ(a, b, t, &what);
	else
		err = content_differs(a, b, &differs);
	if (differs)
		what |= DIFF_CONTENT;
	if (!err)
		err = xattrs_differ(a, b, &what);
	if (!err)
		*ret_what = what;
	return err;
}
