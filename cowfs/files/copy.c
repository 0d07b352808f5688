/* SPDX-License-Identifier: MIT */
/*
 * Walks two trees side by side. Plan and application are the same walk, so that what is said is
 * what is done.
 *
 * A new file or folder is made in the stage, a folder of root with mode 0700 in the first folder
 * that changes, where no other user can reach it. A folder there gets all its content before one
 * rename shows it.
 */
#include "files/copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>

#include "base/array.h"
#include "base/path.h"
#include "files/copy_private.h"

#define DEPTH_MAX 1000
#define FDS_WANTED 16384u
#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOATIME)

/* Files by device and inode: a hash table with open addressing. */
struct file_id {
	dev_t dev;
	uint64_t ino; /* 0: the entry is free */
};

struct known {
	struct file_id id;
	struct file_id other; /* see the tables; ino 0: not made yet */
	char *path;	      /* may be NULL */
	uint64_t links, seen;
};

struct table {
	struct known *e;
	size_t n, room; /* room: 0 or a power of two */
};

struct stage {
	int parent_fd; /* where it is made when it is needed; -1: no operand under way */
	int fd;	       /* -1: it is not there */
	char name[40];
	unsigned files;
	bool kept; /* it has something that is not ours to remove */
	/* a folder that is being built: the longest path of one, "" none */
	int fresh_fd;
	size_t fresh_len;
};

struct copy {
	struct copy_options opt;
	int from_fd, to_fd;
	bool planning, applied;
	struct copy_report report;
	int error; /* the first problem of this call */
	char *path;
	size_t path_len, path_room, depth;
	struct stage stage;
	struct table planned; /* what the plan has seen in the target, and where */
	uint64_t seed[2];     /* of plan_id */
	struct table links;   /* source inode -> target inode that has its content, path */
	struct table used;    /* target inode that stays -> source inode */
	struct table names;   /* target inode that goes and has several names */
};

/* Both sides of a folder. -1: it is not there. fresh: no one else can reach the target. */
struct level {
	int from, to;
	bool fresh;
};

/* ---- tables ---- */

static struct file_id id_of(const struct statx *st)
{
	return (struct file_id){ makedev(st->stx_dev_major, st->stx_dev_minor), st->stx_ino };
}

static bool same_id(struct file_id a, struct file_id b)
{
	return a.dev == b.dev && a.ino == b.ino;
}

static struct known *slot(const struct table *t, struct file_id id)
{
	size_t i = (size_t)((id.ino ^ (uint64_t)id.dev << 40) * 0x9e3779b97f4a7c15ull >> 20);

	for (;; i++) {
		struct known *k = &t->e[i & (t->room - 1)];

		if (!k->id.ino || same_id(k->id, id))
			return k;
	}
}

static struct known *table_find(const struct table *t, struct file_id id)
{
	struct known *k = t->room ? slot(t, id) : NULL;

	return k && k->id.ino ? k : NULL;
}

/* NULL: out of memory. */
static struct known *table_add(struct table *t, struct file_id id)
{
	struct table grown = { .n = t->n, .room = t->room ? 2 * t->room : 64 };
	struct known *k;

	if (2 * (t->n + 1) > t->room) {
		grown.e = calloc(grown.room, sizeof(*grown.e));
		if (!grown.e)
			return NULL;
		for (size_t i = 0; i < t->room; i++)
			if (t->e[i].id.ino)
				*slot(&grown, t->e[i].id) = t->e[i];
		free(t->e);
		*t = grown;
	}
	k = slot(t, id);
	if (!k->id.ino) {
		k->id = id;
		t->n++;
	}
	return k;
}

static void table_clear(struct table *t)
{
	for (size_t i = 0; i < t->room; i++)
		free(t->e[i].path);
	free(t->e);
	*t = (struct table){ 0 };
}

/* ---- paths and reports ---- */

static int push(struct copy *c, const char *name, size_t *ret_len)
{
	size_t len = strlen(name);
	char *grown = array_grow(c->path, &c->path_room, c->path_len + len + 2, 1);

	if (!grown)
		return -ENOMEM;
	c->path = grown;
	*ret_len = c->path_len;
	if (c->path_len)
		c->path[c->path_len++] = '/';
	memcpy(c->path + c->path_len, name, len + 1);
	c->path_len += len;
	return 0;
}

static void pop(struct copy *c, size_t len)
{
	c->path_len = len;
	c->path[len] = '\0';
}

static bool ends_all(int e)
{
	return e == -EINTR || e == -ENOSPC || e == -EDQUOT || e == -EROFS || e == -ENOMEM;
}

/* Notes a problem with the current path. 0: go on with the next file. */
static int problem(struct copy *c, int e, const char *what)
{
	c->error = c->error ? c->error : e;
	c->report.problems++;
	if (c->opt.problem && e != -EINTR)
		c->opt.problem(c->opt.ctx, c->path, e, what);
	return ends_all(e) ? e : 0;
}

static void count(struct copy *c, enum copy_act act, const struct inode *to)
{
	uint64_t *counter[] = { &c->report.created, &c->report.replaced, &c->report.updated,
				&c->report.removed };

	++*counter[act];
	if (c->opt.each)
		c->opt.each(c->opt.ctx, act, c->path, to && to->fd >= 0 ? &to->st : NULL);
}

static bool stopped(const struct copy *c)
{
	return c->opt.stop && *c->opt.stop;
}

/* ---- what the plan knows ---- */

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t n)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ p[i]) * 0x100000001b3ull; /* FNV-1a */
	return hash;
}

/*
 * What the plan has seen is a file in its place: its path, what it is, and whose. The same file in
 * another place was not seen. The hashes are seeded, or a user could choose names of equal ones.
 *
 * A file of an overlay may get another inode number at any time. Its size and time stand for it, and
 * for a folder that is not of the image the time of its birth. Folders of the image have none, and
 * nobody can rename them, but the next change there makes them folders of the upper.
 */
static struct file_id plan_id(const struct copy *c, const struct inode *to, bool of_upper)
{
	bool dir = inode_is(to, S_IFDIR), born = to->st.stx_mask & STATX_BTIME;
	const struct statx_timestamp *t = c->opt.overlay && !dir ? &to->st.stx_mtime
								 : &to->st.stx_btime;
	struct file_id id = id_of(&to->st);
	uint64_t what[5] = { id.ino, id.dev, to->st.stx_uid }, hash[2];

	if (c->opt.overlay) {
		what[0] = dir ? 0 : to->st.stx_size;
		what[1] = to->st.stx_mode & S_IFMT;
		born = !dir || (born && of_upper);
	}
	if (born) {
		what[3] = (uint64_t)t->tv_sec;
		what[4] = t->tv_nsec;
	}
	for (size_t i = 0; i < 2; i++) {
		hash[i] = hash_bytes(c->seed[i], c->path, c->path_len);
		hash[i] = hash_bytes(hash[i], what, sizeof(what));
	}
	return (struct file_id){ hash[0], hash[1] | 1 };
}

static int note_planned(struct copy *c, const struct inode *to)
{
	return table_add(&c->planned, plan_id(c, to, true)) ? 0 : -ENOMEM;
}

static bool is_planned(const struct copy *c, const struct inode *to)
{
	return c->opt.trusted || table_find(&c->planned, plan_id(c, to, true)) ||
	       table_find(&c->planned, plan_id(c, to, false));
}

/* A file that goes: other names of it, outside of the reverted files, stay. */
static int note_names(struct copy *c, const struct inode *to)
{
	struct known *k;

	if (inode_is(to, S_IFDIR) || to->st.stx_nlink < 2)
		return 0;
	k = table_add(&c->names, id_of(&to->st));
	if (!k)
		return -ENOMEM;
	if (!k->path)
		k->path = strdup(c->path);
	k->links = to->st.stx_nlink;
	k->seen++;
	return k->path ? 0 : -ENOMEM;
}

/* ---- folders ---- */

struct entry {
	char *name;
	uint64_t ino;
	uint8_t type; /* DT_* */
};

struct names {
	struct entry *e;
	size_t n, cap;
};

static void free_names(struct names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->e[i].name);
	free(l->e);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* Sorted. dir_fd -1: none. */
static int read_names(int dir_fd, struct names *ret)
{
	int fd = dir_fd < 0 ? -1 : openat(dir_fd, ".", FOLDER | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;
	int e = 0;

	if (dir_fd < 0)
		return 0;
	if (!dir) {
		e = -errno;
		if (fd >= 0)
			close(fd);
		return e;
	}
	while (errno = 0, e == 0 && (d = readdir(dir))) {
		struct entry *grown;

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		grown = array_grow(ret->e, &ret->cap, ret->n + 1, sizeof(*grown));
		if (grown) {
			ret->e = grown;
			grown[ret->n] = (struct entry){ strdup(d->d_name), d->d_ino, d->d_type };
		}
		if (!grown || !grown[ret->n].name)
			e = -ENOMEM;
		else
			ret->n++;
	}
	if (e == 0 && errno)
		e = -errno;
	closedir(dir);
	if (ret->n)
		qsort(ret->e, ret->n, sizeof(*ret->e), by_name);
	return e;
}

/* ---- the stage ---- */

static int stage_get(struct copy *c)
{
	struct stage *s = &c->stage;
	struct names l = { 0 };
	struct stat st;
	int e;

	if (s->fd >= 0)
		return s->fd;
	for (unsigned i = 0; s->fd < 0; i++) {
		snprintf(s->name, sizeof(s->name), ".cowfs-%d-%u", getpid(), i);
		if (mkdirat(s->parent_fd, s->name, 0700) < 0) {
			if (errno != EEXIST || i > 1000)
				return -errno;
			continue;
		}
		s->fd = path_open_below(s->parent_fd, s->name, FOLDER);
		if (s->fd < 0)
			return s->fd;
	}
	/* The owner of the parent may have put another folder there. What is in the stage will be
	 * removed, so nothing may be in it. */
	e = fstat(s->fd, &st) < 0 ? -errno : read_names(s->fd, &l);
	if (e == 0 && (st.st_uid != geteuid() || st.st_mode & 077 || l.n))
		e = -ESTALE;
	free_names(&l);
	if (e == 0)
		return s->fd;
	close(s->fd);
	s->fd = -1;
	return e;
}

static int stage_name(struct copy *c, char name[24])
{
	int fd = stage_get(c);

	snprintf(name, 24, "%u", c->stage.files++);
	return fd;
}

enum removal {
	ASKED,	  /* the source lacks it */
	REPLACED, /* something else takes, or has taken, its place */
	OURS,	  /* it was made in the stage: the plan need not have seen it */
};

static int remove_content(struct copy *c, int dir_fd, enum removal how);

static void stage_close(struct copy *c)
{
	struct stage *s = &c->stage;

	if (s->fd < 0)
		return;
	if (!s->kept)
		(void)!remove_content(c, s->fd, OURS);
	close(s->fd);
	s->fd = -1;
	s->kept = false;
	(void)!unlinkat(s->parent_fd, s->name, AT_REMOVEDIR);
}

/* ---- removing ---- */

static int remove_node(struct copy *c, int dir_fd, const char *name, struct inode *to,
		       enum removal how)
{
	bool is_dir = inode_is(to, S_IFDIR);
	int e = 0, thawed = 0;

	if (c->planning) {
		e = note_planned(c, to);
		if (e == 0)
			e = note_names(c, to);
	} else if (how != OURS && !is_planned(c, to)) {
		return problem(c, -EAGAIN, "is new since the check, and is kept");
	}
	if (how == ASKED)
		count(c, COPY_REMOVE, to);
	if (is_dir && e == 0) {
		int fd = inode_reopen(to, FOLDER);

		if (fd < 0)
			return problem(c, fd, "cannot be removed");
		if (!c->planning)
			thawed = inode_thaw(to);
		e = thawed < 0 ? thawed : remove_content(c, fd, how);
		close(fd);
	}
	if (e == 0 && !c->planning && unlinkat(dir_fd, name, is_dir ? AT_REMOVEDIR : 0) < 0) {
		e = -errno;
		/* immutable or append-only */
		if (e == -EPERM && inode_thaw(to) > 0)
			e = unlinkat(dir_fd, name, is_dir ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
		if (e == -ENOENT || (e == -ENOTEMPTY && c->error))
			e = 0; /* gone already; or what is kept in it has been reported */
		return e < 0 ? problem(c, e, "cannot be removed") : 0;
	}
	return e;
}

static int remove_content(struct copy *c, int dir_fd, enum removal how)
{
	struct names l = { 0 };
	int e = ++c->depth > DEPTH_MAX ? problem(c, -ELOOP, "lies too deep")
				       : read_names(dir_fd, &l);

	for (size_t i = 0; i < l.n && e == 0; i++) {
		struct inode to = INODE_INIT;
		size_t len;

		e = stopped(c) && how == ASKED ? -EINTR : push(c, l.e[i].name, &len);
		if (e < 0)
			break;
		e = inode_open(&to, dir_fd, l.e[i].name);
		if (e < 0)
			e = problem(c, e, "cannot be removed");
		else if (to.fd >= 0)
			e = remove_node(c, dir_fd, l.e[i].name, &to, how);
		inode_close(&to);
		pop(c, len);
	}
	c->depth--;
	free_names(&l);
	return e;
}

/* Has the plan seen this file, or this folder and all that is in it now? 1: yes, 0, or -errno. */
static int is_all_planned(struct copy *c, const struct inode *dir)
{
	_cleanup_close_ int fd = -1;
	struct names l = { 0 };
	int e = is_planned(c, dir);

	if (e != 1 || c->opt.trusted || !inode_is(dir, S_IFDIR))
		return e;
	fd = inode_reopen(dir, FOLDER);
	e = fd < 0 ? fd : ++c->depth > DEPTH_MAX ? -ELOOP : read_names(fd, &l);
	e = e < 0 ? e : 1;
	for (size_t i = 0; i < l.n && e == 1; i++) {
		struct inode n = INODE_INIT;
		size_t len;

		e = push(c, l.e[i].name, &len);
		if (e < 0)
			break;
		e = inode_open(&n, fd, l.e[i].name);
		if (e == 0)
			e = n.fd < 0 ? 1 : is_all_planned(c, &n);
		inode_close(&n);
		pop(c, len);
	}
	c->depth -= fd >= 0;
	free_names(&l);
	return e;
}

/* ---- hard links ---- */

/* Opens the target inode that has the content of this source inode. fd -1: there is none, or its
 * place has changed. */
static int open_linked(struct copy *c, const struct known *k, struct inode *ret)
{
	const struct stage *s = &c->stage;
	const char *path = k->path;
	int dir = c->to_fd;

	/* in a folder that is not in its place yet */
	if (s->fresh_fd >= 0 && !strncmp(path, c->path, s->fresh_len) &&
	    path[s->fresh_len] == '/') {
		path += s->fresh_len + 1;
		dir = s->fresh_fd;
	}
	int e = inode_open(ret, dir, path);

	if (e == 0 && ret->fd >= 0 && !same_id(id_of(&ret->st), k->other))
		inode_close(ret);
	return e;
}

static int note_link(struct copy *c, const struct inode *from, const struct statx *made)
{
	struct known *k;

	if (inode_is(from, S_IFDIR) || from->st.stx_nlink < 2)
		return 0;
	k = table_add(&c->links, id_of(&from->st));
	if (!k)
		return -ENOMEM;
	free(k->path);
	k->path = strdup(c->path);
	k->other = made ? id_of(made) : (struct file_id){ 0 };
	return k->path ? 0 : -ENOMEM;
}

/* Makes name a further link of what this source inode has become. 1: done, 0: it is the first. */
static int link_again(struct copy *c, const struct inode *from, int dir_fd, const char *name)
{
	struct known *k = table_find(&c->links, id_of(&from->st));
	struct inode linked = INODE_INIT;
	struct statx st;
	int e;

	if (!k || from->st.stx_nlink < 2 || !k->other.ino)
		return 0;
	e = open_linked(c, k, &linked);
	if (e == 0 && linked.fd >= 0) {
		e = linkat(linked.fd, "", dir_fd, name, AT_EMPTY_PATH) < 0 ? -errno : 1;
		/* immutable */
		if (e == -EPERM && inode_thaw(&linked) > 0) {
			e = linkat(linked.fd, "", dir_fd, name, AT_EMPTY_PATH) < 0 ? -errno : 1;
			if (inode_freeze(&linked) < 0)
				e = -EIO;
		}
	}
	if (e == 0)
		e = -ESTALE; /* renamed or removed meanwhile */
	/* a link of a file of an overlay's image has made it another inode */
	if (e > 0 && statx(linked.fd, "", AT_EMPTY_PATH, STATX_INO, &st) == 0)
		k->other = id_of(&st);
	inode_close(&linked);
	if (e < 0 && e != -ENOMEM) {
		e = problem(c, e,
			    e == -EXDEV ? "cannot be a hard link across project ids, and is copied"
					: "cannot be a hard link, and is copied");
	}
	return e;
}

/* ---- comparing ---- */

/* The current path of the source. */
static int load_source(struct copy *c, struct inode *from)
{
	bool first = !from->loaded;
	int e = inode_load(from);

	if (e == 0 && first && from->loaded && c->opt.overlay && c->opt.upper_fd >= 0)
		e = inode_add_frozen(from, c->opt.upper_fd, c->path);
	return e;
}

static const struct extents *changed_blocks(const struct copy *c)
{
	return c->opt.touched ? c->opt.touched->changed : NULL;
}

static int is_same(struct copy *c, struct inode *from, struct inode *to)
{
	const struct known *link = table_find(&c->links, id_of(&from->st));
	struct known *used = table_find(&c->used, id_of(&to->st));
	int e;

	if ((from->st.stx_mode ^ to->st.stx_mode) & S_IFMT)
		return 0;
	if (from->st.stx_nlink > 1 && link && !same_id(link->other, id_of(&to->st)))
		return 0;
	if (used && !same_id(used->other, id_of(&from->st)))
		return 0;
	e = load_source(c, from);
	if (e == 0)
		e = inode_load(to);
	if (e < 0)
		return e;
	return inode_same_meta(from, to, true)
		       ? inode_same_content(from, to, changed_blocks(c), c->opt.stop)
		       : 0;
}

static int note_same(struct copy *c, const struct inode *from, const struct inode *to)
{
	c->report.same++;
	if (to->st.stx_nlink > 1) {
		struct known *k = table_add(&c->used, id_of(&to->st));

		if (!k)
			return -ENOMEM;
		k->other = id_of(&from->st);
	}
	return note_link(c, from, &to->st);
}

/* ---- making ---- */

/* An empty file of the type of `from`, that only root can open. */
static int make_empty(const struct inode *from, int dir_fd, const char *name)
{
	const struct statx *st = &from->st;
	char target[4097];
	ssize_t n;
	int fd;

	switch (st->stx_mode & S_IFMT) {
	case S_IFREG:
		fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			    0600);
		if (fd >= 0)
			close(fd);
		return fd < 0 ? -errno : 0;
	case S_IFDIR:
		return mkdirat(dir_fd, name, 0700) < 0 ? -errno : 0;
	case S_IFLNK:
		n = readlinkat(from->fd, "", target, sizeof(target) - 1);
		if (n < 0)
			return -errno;
		target[n] = '\0';
		return symlinkat(target, dir_fd, name) < 0 ? -errno : 0;
	default:
		return mknodat(dir_fd, name, (st->stx_mode & S_IFMT) | 0600,
			       makedev(st->stx_rdev_major, st->stx_rdev_minor)) < 0
			       ? -errno
			       : 0;
	}
}

static int fill_file(struct copy *c, const struct inode *from, const struct inode *made)
{
	int fd = inode_reopen(made, O_WRONLY), e;

	if (fd < 0)
		return fd;
	e = inode_copy_content(from, fd, c->opt.stop, &c->report.bytes);
	close(fd);
	return e;
}

static int walk(struct copy *c, const struct level *l);

/* All that is in a new folder, which nobody can reach. */
static int fill_folder(struct copy *c, const struct inode *from, const struct inode *made)
{
	struct level l = { .from = inode_reopen(from, FOLDER),
			   .to = inode_reopen(made, FOLDER),
			   .fresh = true };
	bool outermost = c->stage.fresh_fd < 0;
	int e = l.from < 0 ? l.from : l.to < 0 ? l.to : 0;

	if (outermost && e == 0) {
		c->stage.fresh_fd = l.to;
		c->stage.fresh_len = c->path_len;
	}
	if (e == 0)
		e = walk(c, &l);
	if (outermost)
		c->stage.fresh_fd = -1;
	if (l.from >= 0)
		close(l.from);
	if (l.to >= 0)
		close(l.to);
	return e;
}

/* What lies in the stage under this name is not ours, and cannot go back. */
static int keep_staged(struct copy *c, const char *temp)
{
	char what[96];

	c->stage.kept = true;
	snprintf(what, sizeof(what), "what came there meanwhile is kept in %s/%s", c->stage.name,
		 temp);
	return problem(c, -EAGAIN, what);
}

/*
 * An exchange has put what lay in the place into the stage, where its owner can no longer rename it.
 * What the plan has not seen there goes back. If the owner exchanges names then, too, something else
 * of his choice comes into the stage: that is kept there.
 */
static int take_away(struct copy *c, const struct level *l, const char *name, int stage_fd,
		     const char *temp, const struct inode *made)
{
	for (unsigned tries = 0; tries < 2; tries++) {
		struct inode out = INODE_INIT;
		int e = inode_open(&out, stage_fd, temp);
		/* a hard link may be what was made, without having gone back */
		bool settled = tries && e == 0 &&
			       (out.fd < 0 || same_id(id_of(&out.st), id_of(&made->st)));

		if (e == 0 && !settled)
			e = out.fd < 0 ? -ESTALE : is_all_planned(c, &out);
		if (e == 1) {
			e = remove_node(c, stage_fd, temp, &out, REPLACED);
			if (e == 0 && path_exists(stage_fd, temp))
				e = keep_staged(c, temp);
			inode_close(&out);
			return e == 0 && tries ? -EAGAIN : e;
		}
		inode_close(&out);
		if (settled)
			return -EAGAIN;
		if (tries || renameat2(stage_fd, temp, l->to, name, RENAME_EXCHANGE) < 0)
			break;
	}
	(void)!keep_staged(c, temp);
	return -EAGAIN;
}

/* Puts what was made into its place, if what is there is what the plan has seen. */
static int put(struct copy *c, const struct level *l, const char *name, int stage_fd,
	       const char *temp, const struct inode *made, struct inode *to)
{
	bool there = to->fd >= 0, swapped = there;
	struct statx st;
	int e, thawed = 0;

	e = there ? is_all_planned(c, to) : 1;
	if (e != 1)
		return e < 0 ? e : -EAGAIN;
	if (there)
		thawed = inode_thaw(to);
	if (thawed < 0)
		return thawed;
	e = renameat2(stage_fd, temp, l->to, name, there ? RENAME_EXCHANGE : RENAME_NOREPLACE) < 0
		    ? -errno
		    : 0;
	if (e == -EXDEV && c->opt.overlay && inode_is(to, S_IFDIR)) {
		/* a folder of the image cannot be renamed: it is removed first */
		e = remove_node(c, l->to, name, to, REPLACED);
		if (e == 0)
			e = renameat2(stage_fd, temp, l->to, name, RENAME_NOREPLACE) < 0 ? -errno
											 : 0;
		swapped = false;
	} else if (e == -EINVAL && there) { /* a file system without RENAME_EXCHANGE */
		char old[24];

		swapped = inode_is(to, S_IFDIR) || inode_is(made, S_IFDIR);
		if (swapped) {
			stage_name(c, old);
			e = renameat(l->to, name, stage_fd, old) < 0 ? -errno : 0;
		}
		if (e == 0 || !swapped)
			e = renameat2(stage_fd, temp, l->to, name, swapped ? RENAME_NOREPLACE : 0) <
					    0
				    ? -errno
				    : 0;
		if (e == 0 && swapped)
			(void)!renameat(stage_fd, old, stage_fd, temp);
	}
	if (e == 0 && swapped)
		e = take_away(c, l, name, stage_fd, temp, made);
	if (e < 0) {
		/* what stays in its place stays as it was */
		if (thawed && inode_freeze(to) < 0)
			return -EIO;
		return e;
	}
	if (statx(l->to, name, AT_SYMLINK_NOFOLLOW, STATX_INO, &st) < 0 ||
	    st.stx_ino != made->st.stx_ino)
		e = -EAGAIN; /* the owner of the folder has renamed something meanwhile */
	return e;
}

static int make_first(struct copy *c, struct inode *from, int dir_fd, const char *temp,
		      struct inode *made, bool with_content)
{
	int e = load_source(c, from);

	if (e == 0)
		e = make_empty(from, dir_fd, temp);
	if (e == 0)
		e = inode_open(made, dir_fd, temp);
	if (e == 0 && made->fd < 0)
		e = -ESTALE;
	/* the project id first: quotas; flags such as no-copy-on-write want an empty file */
	if (e == 0)
		e = inode_set_flags(from, made, false);
	if (e == 0 && inode_is(from, S_IFREG))
		e = fill_file(c, from, made);
	if (e == 0 && inode_is(from, S_IFDIR) && with_content)
		e = fill_folder(c, from, made);
	if (e == 0)
		e = inode_set_meta(from, made);
	if (e == 0)
		e = inode_set_times(from, made);
	return e;
}

/* Makes a new inode and puts it in its place. ret_made: for a folder, may be NULL. */
static int make_new(struct copy *c, const struct level *l, const char *name, struct inode *from,
		    struct inode *to, bool with_content, struct inode *ret_made)
{
	int dir_fd = l->fresh ? l->to : stage_get(c), e, linked;
	struct inode made = INODE_INIT;
	char temp[24];
	const char *at = name;

	if (dir_fd < 0)
		return dir_fd;
	if (!l->fresh) {
		stage_name(c, temp);
		at = temp;
	}
	e = linked = link_again(c, from, dir_fd, at);
	if (e > 0)
		e = inode_open(&made, dir_fd, at);
	else if (e == 0)
		e = make_first(c, from, dir_fd, at, &made, with_content);
	if (e == 0 && !l->fresh)
		e = put(c, l, name, dir_fd, at, &made, to);
	/* xfs: a folder with another parent */
	if (e == 0 && !l->fresh && inode_is(from, S_IFDIR))
		e = inode_set_times(from, &made);
	if (e == 0 && !linked)
		e = note_link(c, from, &made.st);
	if (e == 0 && inode_is(from, S_IFDIR)) /* another operand may lie in it */
		e = note_planned(c, &made);
	if (e == 0 && !linked && (!inode_is(from, S_IFDIR) || with_content))
		e = inode_set_flags(from, &made, true);
	if (e == 0 && ret_made) {
		*ret_made = made;
		return 0;
	}
	inode_close(&made);
	return e;
}

static int plan_new(struct copy *c, struct inode *from, struct inode *to, bool with_content)
{
	int e = note_link(c, from, NULL);

	if (e == 0 && to->fd >= 0)
		e = note_planned(c, to);
	if (e == 0 && to->fd >= 0)
		e = note_names(c, to);
	if (e == 0 && inode_is(to, S_IFDIR)) {
		int fd = inode_reopen(to, FOLDER);

		e = fd < 0 ? fd : remove_content(c, fd, ASKED);
		if (fd >= 0)
			close(fd);
	}
	if (e == 0 && inode_is(from, S_IFDIR) && with_content) {
		struct level l = { .from = inode_reopen(from, FOLDER), .to = -1 };

		e = l.from < 0 ? l.from : walk(c, &l);
		if (l.from >= 0)
			close(l.from);
	}
	if (inode_is(from, S_IFREG))
		c->report.bytes += min_u64(from->st.stx_blocks * 512, from->st.stx_size);
	return e;
}

/* A file of one name that nobody else changes. */
static int update_in_place(struct copy *c, struct inode *from, struct inode *to)
{
	int fd, e = load_source(c, from);

	if (e == 0)
		e = inode_load(to);
	if (e == 0)
		e = inode_thaw(to);
	fd = e < 0 ? e : inode_reopen(to, O_RDWR);
	if (fd < 0)
		return fd;
	e = inode_update_content(from, fd, changed_blocks(c), c->opt.stop, &c->report.bytes);
	close(fd);
	if (e == 0)
		e = inode_set_meta(from, to);
	if (e == 0)
		e = inode_set_flags(from, to, false);
	if (e == 0)
		e = inode_set_times(from, to);
	return e < 0 ? e : inode_set_flags(from, to, true);
}

/* ---- the walk ---- */

/* 1: the same folder, 0: another one, -1: its file system does not say when a folder was born. An
 * overlay may have two numbers for it, of which the upper bits name a layer. */
static int is_born_as(const struct copy *c, const struct inode *from, const struct inode *to)
{
	const struct statx *a = &from->st, *b = &to->st;
	uint64_t differ = a->stx_ino ^ b->stx_ino;

	if (c->opt.overlay ? (uint32_t)differ : differ)
		return 0;
	if (!(a->stx_mask & b->stx_mask & STATX_BTIME))
		return -1;
	return a->stx_btime.tv_sec == b->stx_btime.tv_sec &&
	       a->stx_btime.tv_nsec == b->stx_btime.tv_nsec;
}

/*
 * May the folder `to` get owner and mode of `from`, or files of it? Only if it is that folder: a user
 * may have put another one of somebody else in its place, and must not get into that. It is so if it
 * was born as that one, or if owner and mode are the same anyway. Who owns its parent now says
 * nothing: that may have changed, and another folder above may have been exchanged. 1, 0, -errno.
 */
static int is_its_folder(struct copy *c, int parent_fd, struct inode *from, struct inode *to)
{
	int born = is_born_as(c, from, to), e;
	struct stat parent;

	if (c->opt.trusted || born > 0)
		return 1;
	/* the same number, and nobody could have made a folder that got it again */
	if (born < 0 && fstat(parent_fd, &parent) == 0 && !parent.st_uid && !(parent.st_mode & 022))
		return 1;
	e = load_source(c, from);
	if (e == 0)
		e = inode_load(to);
	return e < 0 ? e : inode_same_meta(from, to, false);
}

/* A folder on both sides. Its owner and mode come first: then who owned it can no longer interfere. */
static int both_folders(struct copy *c, struct inode *from, struct inode *to)
{
	struct level l = { -1, -1, false };
	bool has_stage = c->stage.parent_fd < 0, same;
	int e = load_source(c, from), thawed = 0;

	if (e == 0)
		e = inode_load(to);
	if (e == 0 && c->planning)
		e = note_planned(c, to);
	else if (e == 0 && !is_planned(c, to))
		return problem(c, -EAGAIN, "is new since the check, and is kept");
	same = e == 0 && inode_same_meta(from, to, true);
	if (e == 0 && !same)
		count(c, COPY_UPDATE, to);
	if (e == 0 && !c->planning)
		e = thawed = inode_thaw(to);
	if (e >= 0 && !c->planning && !inode_same_meta(from, to, false)) {
		e = inode_set_meta(from, to);
		if (e == 0)
			e = inode_set_flags(from, to, false);
	}
	if (e >= 0)
		e = l.from = inode_reopen(from, FOLDER);
	if (e >= 0)
		e = l.to = inode_reopen(to, FOLDER);
	if (e < 0)
		e = problem(c, e, "cannot be changed");
	if (l.to >= 0 && has_stage)
		c->stage.parent_fd = l.to;
	if (e >= 0 && l.to >= 0)
		e = walk(c, &l);
	if (has_stage) {
		stage_close(c);
		c->stage.parent_fd = -1;
	}
	/* also after an error: what was made here has changed the times */
	if (l.to >= 0 && !c->planning) {
		int f = inode_set_times(from, to);

		if (f == 0 && (thawed > 0 || from->flags & INODE_FROZEN))
			f = inode_set_flags(from, to, true);
		if (f < 0)
			f = problem(c, f, "cannot be changed");
		e = e < 0 ? e : f;
	}
	if (l.from >= 0)
		close(l.from);
	if (l.to >= 0)
		close(l.to);
	return e < 0 ? e : 0;
}

static int entry(struct copy *c, const struct level *l, const char *name)
{
	struct inode from = INODE_INIT, to = INODE_INIT;
	int e = inode_open(&from, l->from, name), same = 0;
	char lease[96];

	if (e == 0)
		e = inode_open(&to, l->to, name);
	if (e == 0 && from.fd >= 0 && to.fd >= 0)
		e = same = inode_is(&from, S_IFDIR) && inode_is(&to, S_IFDIR)
				   ? is_its_folder(c, l->to, &from, &to)
				   : is_same(c, &from, &to);
	if (e < 0) {
		e = problem(c, e,
			    e == -EXDEV ? "something else is mounted there"
			    : e == -EBUSY && path_lease(to.fd, lease, sizeof(lease))
				    ? lease
				    : "cannot be compared");
	} else if (from.fd < 0) {
		e = to.fd < 0 ? 0 : remove_node(c, l->to, name, &to, ASKED);
	} else if (same) {
		e = inode_is(&from, S_IFDIR) ? both_folders(c, &from, &to)
					     : note_same(c, &from, &to);
	} else {
		bool in_place = c->opt.trusted && inode_is(&from, S_IFREG) &&
				inode_is(&to, S_IFREG) && from.st.stx_nlink == 1 &&
				to.st.stx_nlink == 1;

		count(c, in_place ? COPY_UPDATE : to.fd >= 0 ? COPY_REPLACE : COPY_CREATE, &to);
		e = c->planning ? plan_new(c, &from, &to, true)
		    : in_place	? update_in_place(c, &from, &to)
				: make_new(c, l, name, &from, &to, true, NULL);
		if (e < 0)
			e = problem(c, e,
				    e == -EAGAIN       ? "has changed meanwhile"
				    : e == -EOPNOTSUPP ? "has a feature that cannot be copied"
						       : "cannot be copied");
	}
	inode_close(&from);
	inode_close(&to);
	return e;
}

/* The next of two sorted lists. NULL: that one lacks it. */
static void next_name(const struct names *a, size_t *i, const struct names *b, size_t *j,
		      const struct entry **ret_a, const struct entry **ret_b)
{
	int order = *i == a->n ? 1 : *j == b->n ? -1 : strcmp(a->e[*i].name, b->e[*j].name);

	*ret_a = order <= 0 ? &a->e[*i] : NULL;
	*ret_b = order >= 0 ? &b->e[*j] : NULL;
	*i += order <= 0;
	*j += order >= 0;
}

/* Is it the same file on both sides, with nothing in it that differs? */
static bool is_untouched(const struct copy *c, const struct entry *a, const struct entry *b)
{
	return c->opt.touched && a && b && a->ino == b->ino && a->type == b->type &&
	       a->type != DT_DIR && a->type != DT_UNKNOWN && !touched_ino(c->opt.touched, a->ino);
}

enum which {
	WALK_ALL,
	WALK_GOES, /* only what the source lacks */
	WALK_REST,
};

static int walk_names(struct copy *c, const struct level *l, const struct names *from,
		      const struct names *to, enum which which)
{
	const struct entry *a, *b;
	int e = 0;

	for (size_t i = 0, j = 0; e == 0 && (i < from->n || j < to->n);) {
		size_t len;

		next_name(from, &i, to, &j, &a, &b);
		if (which != WALK_ALL && (which == WALK_GOES) != !a)
			continue;
		if (is_untouched(c, a, b)) {
			c->report.same++;
			continue;
		}
		e = stopped(c) ? -EINTR : push(c, a ? a->name : b->name, &len);
		if (e < 0)
			break;
		e = entry(c, l, a ? a->name : b->name);
		pop(c, len);
	}
	return e;
}

/* All that either side has. What goes makes room for the rest. */
static int walk(struct copy *c, const struct level *l)
{
	struct names from = { 0 }, to = { 0 };
	int e = ++c->depth > DEPTH_MAX ? problem(c, -ELOOP, "lies too deep")
				       : read_names(l->from, &from);

	if (e == 0 && c->depth <= DEPTH_MAX)
		e = read_names(l->fresh ? -1 : l->to, &to);
	if (e == 0 && !c->planning)
		e = walk_names(c, l, &from, &to, WALK_GOES);
	if (e == 0)
		e = walk_names(c, l, &from, &to, c->planning ? WALK_ALL : WALK_REST);
	c->depth--;
	free_names(&from);
	free_names(&to);
	return e;
}

/* ---- operands ---- */

/* A folder on the way: goes into it, makes it if the target lacks it. 1: neither side has it. */
static int descend(struct copy *c, struct level *l, const char *name)
{
	struct inode from = INODE_INIT, to = INODE_INIT, made = INODE_INIT;
	int e = inode_open(&from, l->from, name), from_fd = -1, to_fd = -1;

	if (e == 0)
		e = inode_open(&to, l->to, name);
	if (e == 0 && from.fd < 0 && to.fd < 0)
		e = 1;
	else if (e == 0 && ((from.fd >= 0 && !inode_is(&from, S_IFDIR)) ||
			    (to.fd >= 0 && !inode_is(&to, S_IFDIR))))
		e = -ENOTDIR;
	if (e == 0 && from.fd >= 0 && to.fd >= 0) {
		e = is_its_folder(c, l->to, &from, &to);
		e = e < 0 ? e : e == 0 ? -ESTALE : 0;
	}
	if (e == 0 && to.fd >= 0 && c->planning)
		e = note_planned(c, &to);
	else if (e == 0 && to.fd >= 0 && !is_planned(c, &to))
		e = -EAGAIN;
	if (e == 0 && to.fd < 0) {
		count(c, COPY_CREATE, NULL);
		c->stage.parent_fd = l->to;
		e = c->planning ? 0 : make_new(c, l, name, &from, &to, false, &made);
		stage_close(c);
		c->stage.parent_fd = -1;
	}
	if (e == 0 && from.fd >= 0)
		e = from_fd = inode_reopen(&from, FOLDER);
	if (e >= 0 && e != 1 && (to.fd >= 0 || made.fd >= 0))
		e = to_fd = inode_reopen(to.fd >= 0 ? &to : &made, FOLDER);
	if (l->from >= 0)
		close(l->from);
	if (l->to >= 0)
		close(l->to);
	*l = (struct level){ from_fd, to_fd, false };
	inode_close(&from);
	inode_close(&to);
	inode_close(&made);
	return e > 1 || e == 0 ? 0 : e;
}

static int last_name(struct copy *c, struct level *l, const char *name)
{
	struct inode from = INODE_INIT, to = INODE_INIT, parent = INODE_INIT;
	int e = inode_open(&from, l->from, name), thawed = 0, goes_in = 0;
	bool there;

	if (e == 0)
		e = inode_open(&to, l->to, name);
	there = from.fd >= 0 || to.fd >= 0;
	if (e == 0 && inode_is(&from, S_IFDIR) && inode_is(&to, S_IFDIR))
		goes_in = is_its_folder(c, l->to, &from, &to);
	inode_close(&from);
	inode_close(&to);
	if (e == 0 && !there)
		return -ENOENT;
	/* the folder of the operand stays as it is, but must allow changes */
	if (e == 0 && goes_in < 1 && !c->planning) {
		parent.fd = fcntl(l->to, F_DUPFD_CLOEXEC, 0);
		if (parent.fd < 0 ||
		    statx(parent.fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &parent.st) < 0)
			e = -errno;
		if (e == 0)
			e = thawed = inode_thaw(&parent);
		c->stage.parent_fd = l->to;
	}
	if (e >= 0)
		e = entry(c, l, name);
	else
		e = problem(c, e, "cannot be changed");
	stage_close(c);
	c->stage.parent_fd = -1;
	if (thawed > 0) {
		int f = inode_freeze(&parent);

		if (f < 0)
			e = problem(c, f, "its folder is no longer immutable");
	}
	inode_close(&parent);
	return e;
}

/* go: goes into them. -ESTALE: only a folder is mounted, and it is not the one of the source. */
static int roots(struct copy *c, bool go)
{
	struct inode from = { .fd = fcntl(c->from_fd, F_DUPFD_CLOEXEC, 0) },
		     to = { .fd = fcntl(c->to_fd, F_DUPFD_CLOEXEC, 0) };
	int e;

	if (from.fd < 0 || to.fd < 0 ||
	    statx(from.fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &from.st) < 0 ||
	    statx(to.fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &to.st) < 0)
		e = -errno;
	else if (!c->opt.overlay && is_born_as(c, &from, &to) == 0)
		e = is_its_folder(c, -1, &from, &to);
	else
		e = 1;
	if (e == 1)
		e = go ? both_folders(c, &from, &to) : 0;
	else if (e == 0)
		e = problem(c, -ESTALE, "is another folder than at the last commit");
	inode_close(&from);
	inode_close(&to);
	return e;
}

static int operand(struct copy *c, char *path)
{
	struct level l = { fcntl(c->from_fd, F_DUPFD_CLOEXEC, 0),
			   fcntl(c->to_fd, F_DUPFD_CLOEXEC, 0), false };
	char *save = NULL, *name = strtok_r(path, "/", &save), *next;
	int e = l.from < 0 || l.to < 0 ? -EMFILE : 0;
	size_t len;

	if (e == 0)
		e = roots(c, !name);
	if (e == 0)
		e = c->error;
	for (; name && e == 0; name = next) {
		next = strtok_r(NULL, "/", &save);
		e = push(c, name, &len);
		if (e == 0)
			e = next ? descend(c, &l, name) : last_name(c, &l, name);
		if (e < 0 && next &&
		    !problem(c, e,
			     e == -ENOTDIR  ? "is no folder on both sides"
			     : e == -ESTALE ? "is another folder than at the last commit"
			     : e == -EAGAIN ? "has changed meanwhile"
			     : e == -EXDEV  ? "something else is mounted there"
					    : "cannot be opened"))
			e = c->error;
		else if (e == 1)
			e = -ENOENT;
	}
	if (l.from >= 0)
		close(l.from);
	if (l.to >= 0)
		close(l.to);
	return e;
}

/* A deep tree takes four descriptors a level. */
static void raise_limit(struct rlimit *ret_old)
{
	struct rlimit more;

	*ret_old = (struct rlimit){ 0 };
	if (getrlimit(RLIMIT_NOFILE, ret_old) < 0 || ret_old->rlim_cur >= FDS_WANTED)
		return;
	more = (struct rlimit){ FDS_WANTED,
				ret_old->rlim_max > FDS_WANTED ? ret_old->rlim_max : FDS_WANTED };
	(void)!setrlimit(RLIMIT_NOFILE, &more);
}

static int run(struct copy *c, const char *path)
{
	_cleanup_free_ char *copy = strdup(path);
	struct rlimit old;
	int e;

	if (!copy)
		return -ENOMEM;
	raise_limit(&old);
	c->error = 0;
	pop(c, 0);
	e = operand(c, copy);
	if (old.rlim_cur)
		(void)!setrlimit(RLIMIT_NOFILE, &old);
	return e < 0 ? e : c->error;
}

int copy_plan(struct copy *c, const char *path)
{
	c->planning = true;
	return run(c, path);
}

int copy_apply(struct copy *c, const char *path)
{
	if (!c->applied) {
		table_clear(&c->links);
		table_clear(&c->used);
		c->report = (struct copy_report){ 0 };
		c->applied = true;
	}
	c->planning = false;
	return run(c, path);
}

void copy_report(const struct copy *c, struct copy_report *ret)
{
	*ret = c->report;
}

void copy_other_names(const struct copy *c,
		      void (*each)(void *ctx, const char *path, uint64_t others), void *ctx)
{
	for (size_t i = 0; i < c->names.room; i++) {
		const struct known *k = &c->names.e[i];

		if (k->id.ino && k->seen < k->links)
			each(ctx, k->path, k->links - k->seen);
	}
}

int copy_new(struct copy **ret, int from_fd, int to_fd, const struct copy_options *opt)
{
	struct copy *c = calloc(1, sizeof(*c));
	char *path = calloc(1, 256);

	if (!c || !path) {
		free(c);
		free(path);
		return -ENOMEM;
	}
	c->opt = *opt;
	c->from_fd = from_fd;
	c->to_fd = to_fd;
	c->path = path;
	c->path_room = 256;
	if (getrandom(c->seed, sizeof(c->seed), 0) <
	    0) /* early in a boot, when there are no users */
		memset(c->seed, 0x5a, sizeof(c->seed));
	c->stage = (struct stage){ .parent_fd = -1, .fd = -1, .fresh_fd = -1 };
	*ret = c;
	return 0;
}

void copy_free(struct copy *c)
{
	if (!c)
		return;
	table_clear(&c->planned);
	table_clear(&c->links);
	table_clear(&c->used);
	table_clear(&c->names);
	free(c->path);
	free(c);
}
