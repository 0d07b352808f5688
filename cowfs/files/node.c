/* SPDX-License-Identifier: MIT */
/*
 * O_PATH descriptors never have side effects, and /proc/self/fd leads from them to the same inode, also if that is
 * a symbolic link.
 */
#include "files/node.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/io.h"
#include "base/path.h"

#define CHUNK_BYTES (256 * KIB)
#define PART_BYTES (64 * KIB)
#define SEALED (FS_ENCRYPT_FL | FS_VERITY_FL)
/* they forbid every change of the file, so they are set last */
#define FROZEN ((unsigned)(FS_IMMUTABLE_FL | FS_APPEND_FL))
/* what chattr(1) can change; others say how the file is stored */
#define COPIED                                                                                     \
	((unsigned)(FS_SECRM_FL | FS_UNRM_FL | FS_COMPR_FL | FS_NOCOMP_FL | FS_SYNC_FL | FROZEN |  \
		    FS_NODUMP_FL | FS_NOATIME_FL | FS_JOURNAL_DATA_FL | FS_NOTAIL_FL |             \
		    FS_DIRSYNC_FL | FS_TOPDIR_FL | FS_NOCOW_FL | FS_DAX_FL | FS_PROJINHERIT_FL |   \
		    FS_CASEFOLD_FL))

struct link {
	char text[32];
};

static const char *link_to(const struct node *n, struct link *buf)
{
	snprintf(buf->text, sizeof(buf->text), "/proc/self/fd/%d", n->fd);
	return buf->text;
}

#define LINK(n) link_to((n), &(struct link){ 0 })

int node_open(struct node *ret, int dirfd, const char *path)
{
	*ret = (struct node)NODE_NONE;
	if (dirfd < 0)
		return 0;
	int fd = path_open_below(dirfd, *path ? path : ".", O_PATH | O_NOFOLLOW);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	ret->fd = fd;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &ret->st) < 0) {
		int e = -errno;

		node_close(ret);
		return e;
	}
	return 0;
}

static void free_xattrs(struct node *n)
{
	for (size_t i = 0; i < n->xattrs; i++) {
		free(n->xattr[i].name);
		free(n->xattr[i].value);
	}
	free(n->xattr);
	n->xattr = NULL;
	n->xattrs = 0;
}

void node_close(struct node *n)
{
	free_xattrs(n);
	if (n->fd >= 0)
		close(n->fd);
	*n = (struct node)NODE_NONE;
}

int node_reopen(const struct node *n, int flags)
{
	return path_reopen(n->fd, flags);
}

uint64_t node_gen(const struct node *n)
{
	struct {
		struct file_handle h;
		uint8_t bytes[MAX_HANDLE_SZ];
	} x = { .h = { .handle_bytes = MAX_HANDLE_SZ } };
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
	int mount;

	if (name_to_handle_at(n->fd, "", &x.h, &mount, AT_EMPTY_PATH) == 0) {
		for (unsigned i = 0; i < x.h.handle_bytes && i < MAX_HANDLE_SZ; i++)
			hash = (hash ^ x.bytes[i]) * 0x100000001b3ull;
		return hash;
	}
	return n->st.stx_mask & STATX_BTIME
		       ? (uint64_t)n->st.stx_btime.tv_sec * 1000000000u + n->st.stx_btime.tv_nsec
		       : 0;
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

static int read_xattrs(struct node *n)
{
	char names[64 * KIB]; /* XATTR_LIST_MAX */
	struct link buf;
	const char *path = link_to(n, &buf);
	ssize_t len = listxattr(path, names, sizeof(names));
	size_t cap = 0;

	if (len < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (const char *name = names; name < names + len; name += strlen(name) + 1) {
		int e;

		if (is_shown_twice(name))
			continue;
		if (ARRAY_ROOM(n->xattr, cap, n->xattrs + 1) < 0)
			return -ENOMEM;
		e = read_value(path, name, &n->xattr[n->xattrs]);
		if (e < 0 && e != -ENODATA)
			return e;
		n->xattrs += e == 0;
	}
	return 0;
}

static const struct xattr *find_xattr(const struct node *n, const char *name)
{
	for (size_t i = 0; i < n->xattrs; i++)
		if (!strcmp(n->xattr[i].name, name))
			return &n->xattr[i];
	return NULL;
}

static bool has_xattr(const struct node *n, const struct xattr *x)
{
	const struct xattr *its = find_xattr(n, x->name);

	return its && its->value_bytes == x->value_bytes &&
	       !memcmp(its->value, x->value, x->value_bytes);
}

/* Those of a that b lacks, or has with another value. */
static unsigned xattrs_differ(const struct node *a, const struct node *b)
{
	unsigned differs = 0;

	for (size_t i = 0; i < a->xattrs; i++)
		if (!has_xattr(b, &a->xattr[i]))
			differs |= !strncmp(a->xattr[i].name, "system.posix_acl_", 17) ? DIFF_ACL
										       : DIFF_XATTR;
	return differs;
}

static int set_xattrs(const struct node *from, const struct node *to, const struct node *now)
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

static bool has_flags(const struct node *n)
{
	return node_is(n, S_IFREG) || node_is(n, S_IFDIR);
}

static int read_flags(const struct node *n, unsigned *ret, uint32_t *ret_projid)
{
	_cleanup_close_ int fd = node_reopen(n, O_RDONLY);
	struct fsxattr x = { 0 };

	*ret = 0;
	if (fd < 0)
		return fd;
	if ((ioctl(fd, FS_IOC_GETFLAGS, ret) < 0 || ioctl(fd, FS_IOC_FSGETXATTR, &x) < 0) &&
	    errno != ENOTTY && errno != EOPNOTSUPP && errno != EINVAL)
		return -errno;
	*ret_projid = x.fsx_projid;
	return 0;
}

static int write_flags(const struct node *n, unsigned flags, const uint32_t *projid)
{
	_cleanup_close_ int fd = node_reopen(n, O_RDONLY);
	struct fsxattr x;
	unsigned now;

	if (fd < 0)
		return fd;
	if (ioctl(fd, FS_IOC_GETFLAGS, &now) < 0)
		return flags ? -errno : 0;
	flags |= now & ~COPIED;
	if (flags != now && ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0)
		return -errno;
	if (!projid)
		return 0;
	if (ioctl(fd, FS_IOC_FSGETXATTR, &x) < 0)
		return *projid ? -errno : 0;
	if (x.fsx_projid == *projid)
		return 0;
	x.fsx_projid = *projid;
	return ioctl(fd, FS_IOC_FSSETXATTR, &x) < 0 ? -errno : 0;
}

int node_set_flags(const struct node *from, const struct node *to, bool frozen)
{
	if (!has_flags(to) || (frozen && !(from->flags & FROZEN)))
		return 0;
	return write_flags(to, from->flags & COPIED & ~(frozen ? 0 : FROZEN), &from->projid);
}

int node_thaw(struct node *n)
{
	uint32_t projid;
	unsigned flags = 0;
	int e = has_flags(n) ? read_flags(n, &flags, &projid) : 0;

	n->frozen = flags & FROZEN;
	if (e == 0 && n->frozen)
		e = write_flags(n, flags & COPIED & ~FROZEN, NULL);
	return e < 0 ? e : n->frozen != 0;
}

int node_freeze(const struct node *n)
{
	uint32_t projid;
	unsigned flags;
	int e = read_flags(n, &flags, &projid);

	return e < 0 ? e : write_flags(n, (flags & COPIED) | n->frozen, NULL);
}

/* ---- all metadata ---- */

int node_load(struct node *n)
{
	int e;

	if (n->loaded || n->fd < 0)
		return 0;
	free_xattrs(n);
	e = read_xattrs(n);
	if (e == 0 && has_flags(n))
		e = read_flags(n, &n->flags, &n->projid);
	if (e == -ENOKEY) {
		n->flags = FS_ENCRYPT_FL;
		e = 0;
	}
	n->flags &= COPIED | SEALED;
	n->loaded = e == 0;
	return e;
}

bool node_is_sealed(const struct node *n)
{
	return n->flags & SEALED;
}

int node_add_frozen(struct node *n, int upper_fd, const char *path)
{
	struct node upper;
	char letters[32];
	ssize_t len;
	int e;

	if (!has_flags(n))
		return 0;
	e = node_open(&upper, upper_fd, path);
	if (e < 0 || upper.fd < 0) /* of the image */
		return e == -ENOTDIR ? 0 : e;
	len = getxattr(LINK(&upper), "trusted.overlay.protattr", letters, sizeof(letters));
	e = len < 0 && errno != ENODATA ? -errno : 0;
	node_close(&upper);
	for (ssize_t i = 0; i < len; i++)
		n->flags |= letters[i] == 'i'	? FS_IMMUTABLE_FL
			    : letters[i] == 'a' ? FS_APPEND_FL
						: 0;
	return e;
}

static bool same_time(const struct statx_timestamp *a, const struct statx_timestamp *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same_owner(const struct node *a, const struct node *b)
{
	return a->st.stx_uid == b->st.stx_uid && a->st.stx_gid == b->st.stx_gid;
}

bool node_untouched(const struct node *x, const struct node *y)
{
	const struct statx *a = &x->st, *b = &y->st;

	/* whole seconds: a write in the same second would not show */
	return a->stx_ctime.tv_nsec && a->stx_ino == b->stx_ino && node_gen(x) == node_gen(y) &&
	       same_time(&a->stx_ctime, &b->stx_ctime) && same_time(&a->stx_mtime, &b->stx_mtime) &&
	       a->stx_size == b->stx_size && a->stx_mode == b->stx_mode && same_owner(x, y);
}

unsigned node_differs(const struct node *a, const struct node *b)
{
	unsigned what = xattrs_differ(a, b) | xattrs_differ(b, a);

	if ((a->st.stx_mode ^ b->st.stx_mode) & 07777)
		what |= DIFF_MODE;
	if (!same_owner(a, b))
		what |= DIFF_OWNER;
	if (!same_time(&a->st.stx_mtime, &b->st.stx_mtime))
		what |= DIFF_TIME;
	if (a->flags != b->flags || a->projid != b->projid)
		what |= DIFF_FLAGS;
	if (a->st.stx_rdev_major != b->st.stx_rdev_major ||
	    a->st.stx_rdev_minor != b->st.stx_rdev_minor)
		what |= DIFF_CONTENT;
	return what;
}

/* A change of the owner clears set-id bits and capabilities, an ACL changes the mode. */
int node_set_meta(const struct node *from, const struct node *to)
{
	struct node now = { .fd = fcntl(to->fd, F_DUPFD_CLOEXEC, 0) };
	int e = 0;

	if (now.fd < 0 || statx(now.fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &now.st) < 0 ||
	    (!same_owner(from, &now) && fchownat(to->fd, "", from->st.stx_uid, from->st.stx_gid,
						 AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0))
		e = -errno;
	if (e == 0)
		e = read_xattrs(&now);
	if (e == 0)
		e = set_xattrs(from, to, &now);
	if (e == 0 && !node_is(from, S_IFLNK) && chmod(LINK(to), from->st.stx_mode & 07777) < 0)
		e = -errno;
	node_close(&now);
	return e;
}

int node_set_times(const struct node *from, const struct node *to)
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

/* A part of a file: where its data lies. */
struct part {
	int fd;
	uint64_t size;
	uint64_t off, end; /* the same: not known */
	bool data;	   /* else it reads zero */
	bool room;	   /* unwritten */
	bool placed, shared;
	uint64_t at; /* on the device, of off; only if placed */
	bool asked;
};

/* Where there is no FIEMAP, all is data. */
static void find_part(struct part *p, uint64_t off)
{
	union {
		struct fiemap map;
		uint8_t room[sizeof(struct fiemap) + sizeof(struct fiemap_extent)];
	} f = { .map = { .fm_start = off,
			 .fm_length = p->size - off,
			 .fm_flags = p->asked ? 0 : FIEMAP_FLAG_SYNC,
			 .fm_extent_count = 1 } };
	const struct fiemap_extent *x = f.map.fm_extents;

	if (off >= p->off && off < p->end)
		return;
	*p = (struct part){
		.fd = p->fd, .size = p->size, .off = off, .end = p->size, .asked = true
	};
	p->data = ioctl(p->fd, FS_IOC_FIEMAP, &f) < 0;
	if (p->data || !f.map.fm_mapped_extents)
		return;
	if (x->fe_logical > off) {
		p->end = min_u64(x->fe_logical, p->size);
		return;
	}
	p->room = x->fe_flags & FIEMAP_EXTENT_UNWRITTEN;
	p->data = !p->room;
	p->placed = !(x->fe_flags & (FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC |
				     FIEMAP_EXTENT_ENCODED | FIEMAP_EXTENT_DATA_INLINE |
				     FIEMAP_EXTENT_DATA_TAIL | FIEMAP_EXTENT_NOT_ALIGNED));
	p->shared = x->fe_flags & FIEMAP_EXTENT_SHARED && p->placed;
	p->at = x->fe_physical + (off - x->fe_logical);
	p->end = min_u64(max_u64(x->fe_logical + x->fe_length, off + 1), p->size);
}

struct pair {
	struct part a, b;
	const struct node_content *how;
	bool write;
	bool differs;
};

static int open_quietly(const struct node *n)
{
	int fd = node_reopen(n, O_RDONLY | O_NOATIME);

	return fd == -EPERM ? node_reopen(n, O_RDONLY) : fd;
}

static int pair_open(struct pair *p, const struct node *from, int b_fd)
{
	p->a.size = p->b.size = from->st.stx_size;
	p->b.fd = b_fd;
	p->a.fd = open_quietly(from);
	return p->a.fd < 0 ? p->a.fd : 0;
}

/* Of both files. Its programs have one thread. */
static uint8_t chunk[2][CHUNK_BYTES];

/* How much from pos on, up to n bytes, both have on the same blocks, of which none changed. */
static uint64_t same_blocks(const struct pair *p, uint64_t pos, uint64_t n)
{
	uint64_t at = p->a.at + (pos - p->a.off), done = 0;

	if (!p->how->changed || !p->a.placed || !p->b.placed || p->a.room != p->b.room ||
	    at != p->b.at + (pos - p->b.off))
		return 0;
	while (done < n) {
		uint64_t part = min_u64(PART_BYTES, n - done);

		if (extents_covered_bytes(p->how->changed, at + done, at + done + part))
			break;
		done += part;
	}
	return done;
}

/* What lies behind the end of the file, or is no data, reads zero. */
static int read_part(const struct part *p, uint8_t *buf, size_t len, uint64_t pos)
{
	while (len && p->data) {
		ssize_t n = pread(p->fd, buf, len, (off_t)pos);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		buf += n;
		len -= (size_t)n;
		pos += (uint64_t)n;
	}
	memset(buf, 0, len);
	return 0;
}

/* A hole where there is data, to the byte: a block may be small, and hold data behind it. -EOPNOTSUPP: write zeros. */
static int make_hole(const struct pair *p, uint64_t pos, uint64_t n)
{
	/* the last block of the file, too */
	if (pos + n == p->a.size)
		n = round_up_u64(pos + n, COW_BLK_BYTES) - pos;
	return fallocate(p->b.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)pos,
			 (off_t)n) < 0
		       ? -errno
		       : 0;
}

/* The blocks of a chunk that differ. */
static int take_differing(struct pair *p, uint64_t pos, uint64_t n)
{
	/* where nothing is: all, unless nobody says whether zeros are a hole */
	bool look = p->b.data || !p->write || !p->a.placed;

	for (uint64_t i = 0, m; i < n; i += m) {
		m = look ? min_u64(n - i, COW_BLK_BYTES) : n;
		if (look && !memcmp(chunk[0] + i, chunk[1] + i, m))
			continue;
		p->differs = true;
		if (p->how->bytes && p->a.data)
			*p->how->bytes += m;
		if (p->write) {
			int e = io_pwrite_full(p->b.fd, chunk[0] + i, m, pos + i);

			if (e < 0)
				return e;
		}
	}
	return 0;
}

/* Up to n bytes at pos, of which at least one file has data. *ret: how many were done. */
static int take_data(struct pair *p, uint64_t pos, uint64_t n, uint64_t *ret)
{
	const struct node_shared *s = p->write && p->a.shared ? p->how->shared : NULL;
	uint64_t at = p->a.at + (pos - p->a.off);
	int e = 0;

	*ret = same_blocks(p, pos, n);
	if (!*ret && s && !s->later)
		*ret = s->clone(s->ctx, at, n, p->b.fd, pos);
	if (!*ret && p->write && !p->a.data) {
		e = make_hole(p, pos, n);
		*ret = e == -EOPNOTSUPP ? 0 : n;
	}
	if (*ret)
		return e;
	n = *ret = min_u64(n, CHUNK_BYTES);
	if (p->how->stop && *p->how->stop)
		return -EINTR;
	e = read_part(&p->a, chunk[0], n, pos);
	if (e == 0)
		e = read_part(&p->b, chunk[1], n, pos);
	if (e == 0)
		e = take_differing(p, pos, n);
	if (e == 0 && s && s->later)
		s->clone(s->ctx, at, n, p->b.fd, pos);
	return e;
}

/* Goes through both files until the end of a, or to the first difference. */
static int pair_walk(struct pair *p)
{
	int e = 0;

	for (uint64_t pos = 0, n; pos < p->a.size && e == 0; pos += n) {
		if (p->differs && !p->write && !p->how->bytes)
			break;
		find_part(&p->a, pos);
		find_part(&p->b, pos);
		n = min_u64(p->a.end, p->b.end) - pos;
		if (p->a.data || p->b.data)
			e = take_data(p, pos, n, &n);
		/* what was said before a change speaks for nothing behind it */
		if (p->write)
			p->b.end = 0;
		if (e == 0 && p->write && p->a.room && !p->b.room &&
		    fallocate(p->b.fd, 0, (off_t)pos, (off_t)n) < 0 && errno != EOPNOTSUPP)
			e = -errno;
	}
	return e;
}

int node_write_content(const struct node *from, int to_fd, const struct node_content *how)
{
	struct pair p = { .how = how, .write = true };
	int e = pair_open(&p, from, to_fd);

	if (e == 0 && ftruncate(to_fd, (off_t)from->st.stx_size) < 0)
		e = -errno;
	if (e == 0)
		e = pair_walk(&p);
	if (p.a.fd >= 0)
		close(p.a.fd);
	return e;
}

int node_count_data(const struct node *n, const struct node_content *how)
{
	_cleanup_close_ int fd = open_quietly(n);
	struct part p = { .fd = fd, .size = n->st.stx_size };

	for (uint64_t pos = 0, len; fd >= 0 && pos < p.size; pos += len) {
		find_part(&p, pos);
		len = p.end - pos;
		if (p.data && !(p.shared && how->shared &&
				how->shared->clone(how->shared->ctx, p.at, len, -1, pos)))
			*how->bytes += len;
	}
	return fd < 0 ? fd : 0;
}

static int links_differ(const struct node *a, const struct node *b)
{
	char x[PATH_MAX], y[PATH_MAX];
	ssize_t n = readlinkat(a->fd, "", x, sizeof(x));
	ssize_t m = n < 0 ? n : readlinkat(b->fd, "", y, sizeof(y));

	return m < 0 ? -errno : n != m || memcmp(x, y, (size_t)n);
}

int node_compare_content(const struct node *a, const struct node *b, const struct node_content *how)
{
	_cleanup_close_ int fd = -1;
	struct pair p = { .how = how, .differs = a->st.stx_size != b->st.stx_size };
	int e;

	if (node_is(a, S_IFLNK))
		return links_differ(a, b);
	if (!node_is(a, S_IFREG))
		return 0;
	if (p.differs && !how->bytes)
		return 1;
	fd = open_quietly(b);
	if (fd < 0)
		return fd;
	e = pair_open(&p, a, fd);
	if (e == 0)
		e = pair_walk(&p);
	if (p.a.fd >= 0)
		close(p.a.fd);
	return e < 0 ? e : p.differs;
}
