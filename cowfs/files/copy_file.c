/* SPDX-License-Identifier: MIT */
/*
 * One file: its metadata and its content. O_PATH descriptors never have side effects, and
 * /proc/self/fd leads from them to the same inode, also if that is a symbolic link.
 */
#include "files/copy_private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/io.h"
#include "base/path.h"

#define CHUNK_BYTES (256 * KIB)
#define FL(x) ((uint64_t)(x) << 32)
#define INODE_XFLAGS                                                                               \
	(FS_XFLAG_IMMUTABLE | FS_XFLAG_APPEND | FS_XFLAG_SYNC | FS_XFLAG_NOATIME |                 \
	 FS_XFLAG_NODUMP | FS_XFLAG_PROJINHERIT)
#define INODE_FL                                                                                   \
	(FS_COMPR_FL | FS_NOCOMP_FL | FS_JOURNAL_DATA_FL | FS_DIRSYNC_FL | FS_TOPDIR_FL |          \
	 FS_NOCOW_FL)
#define NOT_COPIED (FS_ENCRYPT_FL | FS_VERITY_FL)

struct link {
	char text[32];
};

static const char *link_to(const struct inode *n, struct link *buf)
{
	snprintf(buf->text, sizeof(buf->text), "/proc/self/fd/%d", n->fd);
	return buf->text;
}

#define LINK(n) link_to((n), &(struct link){ 0 })

int inode_open(struct inode *ret, int dirfd, const char *name)
{
	*ret = (struct inode)INODE_INIT;
	if (dirfd < 0)
		return 0;
	ret->fd = path_open_below(dirfd, name, O_PATH | O_NOFOLLOW);
	if (ret->fd < 0) {
		int e = ret->fd;

		ret->fd = -1;
		return e == -ENOENT ? 0 : e;
	}
	if (statx(ret->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &ret->st) < 0) {
		int e = -errno;

		inode_close(ret);
		return e;
	}
	return 0;
}

static void free_xattrs(struct inode *n)
{
	for (size_t i = 0; i < n->xattrs; i++) {
		free(n->xattr[i].name);
		free(n->xattr[i].value);
	}
	free(n->xattr);
	n->xattr = NULL;
	n->xattrs = 0;
}

void inode_close(struct inode *n)
{
	free_xattrs(n);
	if (n->fd >= 0)
		close(n->fd);
	*n = (struct inode)INODE_INIT;
}

int inode_reopen(const struct inode *n, int flags)
{
	return path_reopen(n->fd, flags);
}

/* ---- xattrs ---- */

/* xfs shows an ACL a second time under such a name. */
static bool is_shown_twice(const char *name)
{
	return !strncmp(name, "trusted.SGI_ACL_", 16);
}

static int read_value(const char *path, const char *name, struct xattr *ret)
{
	char buf[64 * KIB]; /* XATTR_SIZE_MAX */
	ssize_t n = getxattr(path, name, buf, sizeof(buf));

	if (n < 0)
		return -errno;
	ret->name = strdup(name);
	ret->value = malloc(n ? (size_t)n : 1);
	if (!ret->name || !ret->value) {
		free(ret->name);
		free(ret->value);
		return -ENOMEM;
	}
	memcpy(ret->value, buf, (size_t)n);
	ret->value_bytes = (size_t)n;
	return 0;
}

static int read_xattrs(struct inode *n)
{
	_cleanup_free_ char *names = malloc(64 * KIB); /* XATTR_LIST_MAX */
	struct link buf;
	const char *path = link_to(n, &buf);
	ssize_t len = names ? listxattr(path, names, 64 * KIB) : -1;
	size_t cap = 0;

	if (!names)
		return -ENOMEM;
	if (len < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (const char *name = names; name < names + len; name += strlen(name) + 1) {
		struct xattr *grown;
		int e;

		if (is_shown_twice(name))
			continue;
		grown = array_grow(n->xattr, &cap, n->xattrs + 1, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		n->xattr = grown;
		e = read_value(path, name, &n->xattr[n->xattrs]);
		if (e < 0 && e != -ENODATA)
			return e;
		n->xattrs += e == 0;
	}
	return 0;
}

static const struct xattr *find_xattr(const struct inode *n, const char *name)
{
	for (size_t i = 0; i < n->xattrs; i++)
		if (!strcmp(n->xattr[i].name, name))
			return &n->xattr[i];
	return NULL;
}

static bool has_xattr(const struct inode *n, const struct xattr *x)
{
	const struct xattr *its = find_xattr(n, x->name);

	return its && its->value_bytes == x->value_bytes &&
	       !memcmp(its->value, x->value, x->value_bytes);
}

static bool same_xattrs(const struct inode *a, const struct inode *b)
{
	bool same = a->xattrs == b->xattrs;

	for (size_t i = 0; i < a->xattrs && same; i++)
		same = has_xattr(b, &a->xattr[i]);
	return same;
}

static int set_xattrs(const struct inode *from, const struct inode *to, const struct inode *now)
{
	struct link buf;
	const char *path = link_to(to, &buf);

	for (size_t i = 0; i < now->xattrs; i++)
		if (!find_xattr(from, now->xattr[i].name) &&
		    removexattr(path, now->xattr[i].name) < 0 && errno != ENODATA)
			return -errno;
	for (size_t i = 0; i < from->xattrs; i++) {
		const struct xattr *x = &from->xattr[i];

		if (!has_xattr(now, x) && setxattr(path, x->name, x->value, x->value_bytes, 0) < 0)
			return -errno;
	}
	return 0;
}

/* ---- flags ---- */

static bool has_flags(const struct inode *n)
{
	return inode_is(n, S_IFREG) || inode_is(n, S_IFDIR);
}

static bool is_missing(int error)
{
	return error == ENOTTY || error == EOPNOTSUPP || error == EINVAL;
}

static int read_flags(int fd, uint64_t *ret, uint32_t *ret_projid)
{
	struct fsxattr x = { 0 };
	unsigned fl = 0;

	if ((ioctl(fd, FS_IOC_FSGETXATTR, &x) < 0 || ioctl(fd, FS_IOC_GETFLAGS, &fl) < 0) &&
	    !is_missing(errno))
		return -errno;
	if (fl & NOT_COPIED)
		return -EOPNOTSUPP;
	*ret = (x.fsx_xflags & INODE_XFLAGS) | FL(fl & INODE_FL);
	*ret_projid = x.fsx_projid;
	return 0;
}

static int write_flags(int fd, uint64_t flags, uint32_t projid)
{
	struct fsxattr x;
	unsigned fl, want_fl;

	if (ioctl(fd, FS_IOC_GETFLAGS, &fl) < 0)
		return flags ? -errno : 0;
	want_fl = (fl & ~(unsigned)INODE_FL) | (unsigned)(flags >> 32);
	if (want_fl != fl && ioctl(fd, FS_IOC_SETFLAGS, &want_fl) < 0)
		return -errno;
	if (ioctl(fd, FS_IOC_FSGETXATTR, &x) < 0)
		return (uint32_t)flags || projid ? -errno : 0;
	if ((x.fsx_xflags & INODE_XFLAGS) == (uint32_t)flags && x.fsx_projid == projid)
		return 0;
	x.fsx_xflags = (x.fsx_xflags & ~(uint32_t)INODE_XFLAGS) | (uint32_t)flags;
	x.fsx_projid = projid;
	return ioctl(fd, FS_IOC_FSSETXATTR, &x) < 0 ? -errno : 0;
}

int inode_set_flags(const struct inode *from, const struct inode *to, bool frozen)
{
	_cleanup_close_ int fd = -1;

	if (!has_flags(to) || (frozen && !(from->flags & INODE_FROZEN)))
		return 0;
	fd = inode_reopen(to, O_RDONLY);
	return fd < 0 ? fd
		      : write_flags(fd, from->flags & ~(frozen ? 0ull : (uint64_t)INODE_FROZEN),
				    from->projid);
}

int inode_thaw(struct inode *n)
{
	_cleanup_close_ int fd = -1;
	uint32_t projid;
	uint64_t flags;
	int e;

	n->frozen = 0;
	if (!has_flags(n))
		return 0;
	fd = inode_reopen(n, O_RDONLY);
	e = fd < 0 ? fd : read_flags(fd, &flags, &projid);
	if (e < 0 || !(flags & INODE_FROZEN))
		return e;
	e = write_flags(fd, flags & ~(uint64_t)INODE_FROZEN, projid);
	if (e < 0)
		return e;
	n->frozen = flags & INODE_FROZEN;
	return 1;
}

int inode_freeze(const struct inode *n)
{
	_cleanup_close_ int fd = inode_reopen(n, O_RDONLY);
	uint32_t projid;
	uint64_t flags;
	int e = fd < 0 ? fd : read_flags(fd, &flags, &projid);

	return e < 0 ? e : write_flags(fd, flags | n->frozen, projid);
}

/* ---- all metadata ---- */

int inode_load(struct inode *n)
{
	_cleanup_close_ int fd = -1;
	int e;

	if (n->loaded || n->fd < 0)
		return 0;
	free_xattrs(n);
	e = read_xattrs(n);
	if (e == 0 && has_flags(n)) {
		fd = inode_reopen(n, O_RDONLY);
		e = fd < 0 ? fd : read_flags(fd, &n->flags, &n->projid);
	}
	n->loaded = e == 0;
	return e;
}

int inode_add_frozen(struct inode *n, int upper_fd, const char *path)
{
	struct inode upper = INODE_INIT;
	char letters[32];
	ssize_t len;
	int e;

	if (!has_flags(n))
		return 0;
	e = inode_open(&upper, upper_fd, *path ? path : ".");
	if (e < 0 || upper.fd < 0) /* of the image */
		return e == -ENOTDIR ? 0 : e;
	len = getxattr(LINK(&upper), "trusted.overlay.protattr", letters, sizeof(letters));
	e = len < 0 && errno != ENODATA ? -errno : 0;
	inode_close(&upper);
	for (ssize_t i = 0; i < len; i++)
		n->flags |= letters[i] == 'i'	? FS_XFLAG_IMMUTABLE
			    : letters[i] == 'a' ? FS_XFLAG_APPEND
						: 0;
	return e;
}

static bool same_time(const struct statx_timestamp *a, const struct statx_timestamp *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same_owner(const struct inode *a, const struct inode *b)
{
	return a->st.stx_uid == b->st.stx_uid && a->st.stx_gid == b->st.stx_gid;
}

bool inode_same_meta(const struct inode *a, const struct inode *b, bool times)
{
	return a->st.stx_mode == b->st.stx_mode && same_owner(a, b) &&
	       a->st.stx_rdev_major == b->st.stx_rdev_major &&
	       a->st.stx_rdev_minor == b->st.stx_rdev_minor && a->flags == b->flags &&
	       a->projid == b->projid && same_xattrs(a, b) &&
	       (!times || same_time(&a->st.stx_mtime, &b->st.stx_mtime));
}

/* A change of the owner clears set-id bits and capabilities, an ACL changes the mode. */
int inode_set_meta(const struct inode *from, const struct inode *to)
{
	struct inode now = { .fd = fcntl(to->fd, F_DUPFD_CLOEXEC, 0) };
	int e = 0;

	if (now.fd < 0 || statx(now.fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &now.st) < 0 ||
	    (!same_owner(from, &now) && fchownat(to->fd, "", from->st.stx_uid, from->st.stx_gid,
						 AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0))
		e = -errno;
	if (e == 0)
		e = read_xattrs(&now);
	if (e == 0)
		e = set_xattrs(from, to, &now);
	if (e == 0 && !inode_is(from, S_IFLNK) && chmod(LINK(to), from->st.stx_mode & 07777) < 0)
		e = -errno;
	inode_close(&now);
	return e;
}

int inode_set_times(const struct inode *from, const struct inode *to)
{
	const struct timespec t[2] = {
		{ from->st.stx_atime.tv_sec, from->st.stx_atime.tv_nsec },
		{ from->st.stx_mtime.tv_sec, from->st.stx_mtime.tv_nsec },
	};

	struct statx now;

	if (statx(to->fd, "", AT_EMPTY_PATH, STATX_MTIME, &now) < 0)
		return -errno;
	if (same_time(&from->st.stx_mtime, &now.stx_mtime))
		return 0;
	return utimensat(to->fd, "", t, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

/* ---- content ---- */

/* A part of a file: data or a hole. False: behind the end. */
static int next_part(int fd, uint64_t size, uint64_t pos, bool *ret_data, uint64_t *ret_end)
{
	off_t data = lseek(fd, (off_t)pos, SEEK_DATA), hole;

	if (data < 0 && errno == ENXIO)
		data = (off_t)size;
	if (data < 0)
		return -errno;
	*ret_data = (uint64_t)data <= pos;
	*ret_end = min_u64((uint64_t)data, size);
	if (!*ret_data)
		return 0;
	hole = lseek(fd, (off_t)pos, SEEK_HOLE);
	if (hole < 0)
		return -errno;
	*ret_end = min_u64(max_u64((uint64_t)hole, pos + 1), size);
	return 0;
}

/*
 * The same of what is copied. Its unwritten parts stay so: SEEK_DATA takes them for data once they were
 * read ahead. *ret_unwritten: a part without data that has room.
 */
static int next_source(int fd, uint64_t size, uint64_t pos, bool *ret_data, bool *ret_unwritten,
		       uint64_t *ret_end)
{
	struct {
		struct fiemap map;
		struct fiemap_extent e;
	} f = { .map = { .fm_start = pos,
			 .fm_length = size - pos,
			 .fm_flags = FIEMAP_FLAG_SYNC,
			 .fm_extent_count = 1 } };

	*ret_unwritten = false;
	if (ioctl(fd, FS_IOC_FIEMAP, &f) < 0)
		return next_part(fd, size, pos, ret_data, ret_end);
	*ret_data = f.map.fm_mapped_extents && f.e.fe_logical <= pos;
	*ret_end = size;
	if (f.map.fm_mapped_extents)
		*ret_end = min_u64(f.e.fe_logical + (*ret_data ? f.e.fe_length : 0), size);
	if (*ret_data && f.e.fe_flags & FIEMAP_EXTENT_UNWRITTEN) {
		*ret_data = false;
		*ret_unwritten = true;
	}
	return *ret_end > pos ? 0 : next_part(fd, size, pos, ret_data, ret_end);
}

/* Up to len bytes; what lies behind the end of the file reads zero. */
static int read_some(int fd, uint8_t *buf, size_t len, uint64_t pos)
{
	while (len) {
		ssize_t n = pread(fd, buf, len, (off_t)pos);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0) {
			memset(buf, 0, len);
			return 0;
		}
		buf += n;
		len -= (size_t)n;
		pos += (uint64_t)n;
	}
	return 0;
}

struct pair {
	int from, to;
	struct touched_place place[2]; /* of both */
	const struct extents *changed; /* NULL: not known */
	uint8_t *a, *b;		       /* CHUNK_BYTES each */
	const volatile sig_atomic_t *stop;
	uint64_t *bytes;
};

static int pair_open(struct pair *p, const struct inode *from, int to_fd)
{
	p->from = inode_reopen(from, O_RDONLY | O_NOATIME);
	if (p->from == -EPERM)
		p->from = inode_reopen(from, O_RDONLY);
	p->to = to_fd;
	p->place[0].fd = p->from;
	p->place[1].fd = to_fd;
	p->a = malloc(CHUNK_BYTES);
	p->b = malloc(CHUNK_BYTES);
	return p->from < 0 ? p->from : p->a && p->b ? 0 : -ENOMEM;
}

static void pair_close(struct pair *p)
{
	if (p->from >= 0)
		close(p->from);
	free(p->a);
	free(p->b);
}

/* The end of what need not be read, because both have the same blocks there; pos: it must be. */
static uint64_t same_until(struct pair *p, uint64_t pos)
{
	return p->changed ? touched_same_until(&p->place[0], &p->place[1], pos, p->changed) : pos;
}

/* Writes the blocks of a chunk that differ. In an empty file all do. */
static int write_differing(struct pair *p, size_t n, uint64_t pos, bool compare)
{
	for (size_t i = 0, m; i < n; i += m) {
		m = compare ? min_u64(n - i, COW_BLK_BYTES) : n;
		if (compare && !memcmp(p->a + i, p->b + i, m))
			continue;
		int e = io_pwrite_full(p->to, p->a + i, m, pos + i);

		if (e < 0)
			return e;
		*p->bytes += m;
	}
	return 0;
}

static int copy_data(struct pair *p, uint64_t pos, uint64_t end, bool compare)
{
	int e = 0;

	for (uint64_t n; pos < end && e == 0; pos += n) {
		n = min_u64(same_until(p, pos), end) - pos;
		if (n && compare)
			continue;
		n = min_u64(end - pos, CHUNK_BYTES);
		if (p->stop && *p->stop)
			return -EINTR;
		e = read_some(p->from, p->a, n, pos);
		if (e == 0 && compare)
			e = read_some(p->to, p->b, n, pos);
		if (e == 0)
			e = write_differing(p, n, pos, compare);
	}
	return e;
}

/* A hole where there may be data. */
static int make_hole(struct pair *p, uint64_t size, uint64_t pos, uint64_t end)
{
	off_t data = lseek(p->to, (off_t)pos, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? 0 : -errno;
	if ((uint64_t)data >= end)
		return 0;
	/* the last block of the file, too */
	end = round_up_u64(end, COW_BLK_BYTES);
	if (fallocate(p->to, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)pos,
		      (off_t)(end - pos)) == 0)
		return 0;
	return errno == EOPNOTSUPP ? copy_data(p, pos, min_u64(end, size), true) : -errno;
}

static int transfer(const struct inode *from, int to_fd, const struct extents *changed,
		    const volatile sig_atomic_t *stop, uint64_t *bytes, bool compare)
{
	struct pair p = { .changed = changed, .stop = stop, .bytes = bytes };
	uint64_t size = from->st.stx_size, end;
	int e = pair_open(&p, from, to_fd);

	if (e == 0 && ftruncate(to_fd, (off_t)size) < 0)
		e = -errno;
	for (uint64_t pos = 0; pos < size && e == 0; pos = end) {
		bool data, unwritten;

		e = next_source(p.from, size, pos, &data, &unwritten, &end);
		if (e == 0 && data)
			e = copy_data(&p, pos, end, compare);
		else if (e == 0 && compare)
			e = make_hole(&p, size, pos, end);
		if (e == 0 && unwritten &&
		    fallocate(to_fd, 0, (off_t)pos, (off_t)(end - pos)) < 0 && errno != EOPNOTSUPP)
			e = -errno;
	}
	pair_close(&p);
	return e;
}

int inode_copy_content(const struct inode *from, int to_fd, const volatile sig_atomic_t *stop,
		       uint64_t *bytes)
{
	return transfer(from, to_fd, NULL, stop, bytes, false);
}

int inode_update_content(const struct inode *from, int to_fd, const struct extents *changed,
			 const volatile sig_atomic_t *stop, uint64_t *bytes)
{
	return transfer(from, to_fd, changed, stop, bytes, true);
}

/* The end of the part from pos on that both files have as a hole; pos: there is none. */
static int common_hole(const struct pair *p, uint64_t size, uint64_t pos, uint64_t *ret)
{
	bool data_a, data_b, unwritten;
	uint64_t end_a, end_b;
	int e = next_source(p->from, size, pos, &data_a, &unwritten, &end_a);

	if (e == 0)
		e = next_part(p->to, size, pos, &data_b, &end_b);
	if (e == 0)
		*ret = data_a || data_b ? pos : min_u64(end_a, end_b);
	return e;
}

static int same_bytes(struct pair *p, uint64_t size)
{
	for (uint64_t pos = 0, n; pos < size; pos += n) {
		uint64_t end;
		int e = common_hole(p, size, pos, &end);

		if (e == 0 && end == pos)
			end = min_u64(same_until(p, pos), size);
		if (e == 0 && end > pos) {
			n = end - pos;
			continue;
		}
		n = min_u64(size - pos, CHUNK_BYTES);
		if (p->stop && *p->stop)
			return -EINTR;
		if (e == 0)
			e = read_some(p->from, p->a, n, pos);
		if (e == 0)
			e = read_some(p->to, p->b, n, pos);
		if (e < 0)
			return e;
		if (memcmp(p->a, p->b, n))
			return 0;
	}
	return 1;
}

static int same_target(const struct inode *a, const struct inode *b)
{
	char x[4096], y[4096];
	ssize_t n = readlinkat(a->fd, "", x, sizeof(x)), m = readlinkat(b->fd, "", y, sizeof(y));

	if (n < 0 || m < 0)
		return -errno;
	return n == m && !memcmp(x, y, (size_t)n);
}

int inode_same_content(const struct inode *a, const struct inode *b, const struct extents *changed,
		       const volatile sig_atomic_t *stop)
{
	_cleanup_close_ int fd = -1;
	struct pair p = { .changed = changed, .stop = stop };
	int e;

	if (inode_is(a, S_IFLNK))
		return same_target(a, b);
	if (!inode_is(a, S_IFREG))
		return 1;
	if (a->st.stx_size != b->st.stx_size)
		return 0;
	if (!a->st.stx_size)
		return 1;
	fd = inode_reopen(b, O_RDONLY | O_NOATIME);
	if (fd < 0)
		return fd;
	e = pair_open(&p, a, fd);
	if (e == 0)
		e = same_bytes(&p, a->st.stx_size);
	pair_close(&p);
	return e;
}
