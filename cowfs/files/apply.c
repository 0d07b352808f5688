/* SPDX-License-Identifier: MIT */
/*
 * Does what the list says: first owner and mode of folders, so that who owned one before can no longer interfere, then
 * what goes, then what comes, and what has to be last for each folder.
 *
 * A new file or folder is made in the stage, a folder of root with mode 0700 beside its place, where no other user can
 * reach it. A folder there gets all its content before one rename shows it. Without other users all is made in its place.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include "base/array.h"
#include "base/path.h"
#include "files/copy_private.h"

#define KEPT_BYTES (256 * KIB)
#define KEPT_SLACK_BYTES (4 * MIB)
#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOATIME)

/* ---- where ---- */

/* Is this what the plan has seen there? */
static bool is_seen(const struct copy *c, const struct change *x, const struct node *n)
{
	struct seen a = x->to, b = seen_of(c, n);

	return c->opt.trusted || (same_id(a.id, b.id) && a.size == b.size && a.uid == b.uid &&
				  a.type == b.type && (!a.gen || a.gen == b.gen));
}

/* The same, or what was made there, which nobody else can reach yet */
static bool is_its(const struct copy *c, const struct change *x, const struct node *n)
{
	return n->fd >= 0 && (x->made.ino ? c->opt.trusted || c->fresh_fd >= 0 : is_seen(c, x, n));
}

/* A folder that the target has, or that was made. NULL: it has changed meanwhile. */
static struct change *find_folder(const struct copy *c, const char *path, struct node *ret)
{
	size_t at = ARRAY_FIRST(i, c->n, path_order(c->list[i].path, path) >= 0);
	struct change *x = NULL;

	for (; at < c->n && !strcmp(c->list[at].path, path); at++)
		if (c->list[at].made.ino || (S_ISDIR(c->list[at].to.type) && !x))
			x = &c->list[at];
	if (x && (copy_open_to(c, ret, path) < 0 || !is_its(c, x, ret)))
		x = NULL;
	return x;
}

/* Takes what forbids changes away, and notes it. */
static int thaw(struct change *x, struct node *n)
{
	int e = node_thaw(n);

	x->frozen |= n->frozen;
	return e < 0 ? e : 0;
}

/* Removes a file or an empty folder. 0 also if it is gone already. */
static int remove_node(int dir_fd, const char *name, struct node *n)
{
	int how = node_is(n, S_IFDIR) ? AT_REMOVEDIR : 0;
	int e = unlinkat(dir_fd, name, how) < 0 ? -errno : 0;

	/* immutable or append-only */
	if (e == -EPERM && node_thaw(n) > 0)
		e = unlinkat(dir_fd, name, how) < 0 ? -errno : 0;
	return e == -ENOENT ? 0 : e;
}

static struct folder *folder_of(struct copy *c)
{
	return &c->in[c->fresh_fd >= 0];
}

/* Leaves the folder under way, and removes the stage, unless something is kept in it. */
static void leave(struct copy *c)
{
	struct folder *p = folder_of(c);

	if (p->stage_fd >= 0) {
		close(p->stage_fd);
		(void)!unlinkat(p->fd, p->stage, AT_REMOVEDIR);
	}
	cleanup_closep(&p->fd);
	free(p->path);
	*p = (struct folder){ .fd = -1, .stage_fd = -1 };
}

/* The folder of path, which stays open, and may be changed now. *ret_name: in it. */
static int enter(struct copy *c, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = strndup(path, slash ? (size_t)(slash - path) : 0);
	struct folder *p = folder_of(c);
	struct node n = NODE_NONE;
	struct change *x;
	int e;

	*ret_name = slash ? slash + 1 : path;
	if (!dir)
		return -ENOMEM;
	if (p->path && !strcmp(p->path, dir))
		return p->fd;
	leave(c);
	x = find_folder(c, dir, &n);
	e = x ? thaw(x, &n) : -EAGAIN;
	if (e == 0)
		e = node_reopen(&n, FOLDER);
	node_close(&n);
	if (e < 0)
		return e;
	x->entered = true;
	p->path = steal_ptr(dir);
	return p->fd = e;
}

static int stage_get(struct folder *p)
{
	struct stat st;

	if (p->stage_fd >= 0)
		return p->stage_fd;
	for (unsigned i = 0;; i++) {
		snprintf(p->stage, sizeof(p->stage), ".cowfs-%d-%u", getpid(), i);
		if (mkdirat(p->fd, p->stage, 0700) == 0)
			break;
		if (errno != EEXIST || i > 1000)
			return -errno;
	}
	int fd = path_open_below(p->fd, p->stage, FOLDER);

	/* The owner of the folder may have put another one there. */
	if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_uid != geteuid() || st.st_mode & 077)) {
		close(fd);
		fd = -ESTALE;
	}
	return fd < 0 ? fd : (p->stage_fd = fd);
}

static int open_source(struct copy *c, struct node *from, const char *path)
{
	int e = node_open(from, c->w.root_fd[FROM], path);

	return e == 0 ? copy_load_source(c, from, path) : e;
}

/* ---- what goes ---- */

/* With room for what comes and its metadata: a commit writes that in place where blocks were free before, and to the log where they are
 * those of a file that has gone. */
static bool keeps_blocks(const struct copy *c)
{
	struct statvfs st;

	return c->opt.trusted && fstatvfs(c->w.root_fd[TO], &st) == 0 &&
	       st.f_bfree * st.f_frsize > c->report.bytes + c->report.bytes / 8 + KEPT_SLACK_BYTES;
}

/* It has been removed. */
static void keep_blocks(struct copy *c, struct node *n)
{
	if (c->keeps && c->kept_n < KEPT_MAX && node_is(n, S_IFREG) &&
	    n->st.stx_blocks * 512 >= KEPT_BYTES)
		c->kept[c->kept_n++] = steal_fd(&n->fd);
}

static int remove_one(struct copy *c, struct change *x)
{
	const char *name, *what = "cannot be removed";
	struct node n = NODE_NONE;
	int dir_fd = enter(c, x->path, &name);
	int e = dir_fd < 0 ? dir_fd : node_open(&n, dir_fd, name);

	if (e == 0 && n.fd >= 0 && !is_seen(c, x, &n)) {
		e = -EAGAIN;
		what = "is new since the check, and is kept";
	} else if (e == 0 && n.fd >= 0) {
		e = remove_node(dir_fd, name, &n);
		if (e == -ENOTEMPTY)
			what = "has something new since the check, and is kept";
		if (e == 0)
			keep_blocks(c, &n);
	}
	node_close(&n);
	if (e == 0)
		copy_count(&c->report, x);
	/* what is kept in it has been reported */
	return e == 0 || (e == -ENOTEMPTY && c->error) ? 0 : copy_problem(c, x->path, e, what);
}

/* ---- hard links ---- */

/* Makes name a further link of what this source inode has become. 1: done, 0: it is the first. */
static int link_again(struct copy *c, struct change *x, int dir_fd, const char *name)
{
	struct change *first = &c->list[x->first];
	struct node n = NODE_NONE;
	int e;

	if (!first->made.ino || first == x)
		return 0;
	e = copy_open_to(c, &n, c->list[first->at].path);
	if (e == 0 && (n.fd < 0 || !same_id(node_id(&n), first->made) ||
		       (!c->opt.overlay && first->made_gen != node_gen(&n))))
		e = -ESTALE; /* renamed or removed meanwhile */
	if (e == 0 && linkat(n.fd, "", dir_fd, name, AT_EMPTY_PATH) < 0) {
		e = -errno;
		/* immutable */
		if (e == -EPERM && node_thaw(&n) > 0) {
			e = linkat(n.fd, "", dir_fd, name, AT_EMPTY_PATH) < 0 ? -errno : 0;
			if (node_freeze(&n) < 0)
				e = -EIO;
		}
	}
	/* a link of a file of an overlay's image has made it another inode */
	if (e == 0 && statx(n.fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &n.st) == 0)
		first->made = node_id(&n);
	node_close(&n);
	if (e == 0 || e == -ENOMEM)
		return e == 0 ? 1 : e;
	return copy_problem(c, x->path, e,
			    e == -EXDEV ? "cannot be a hard link across project ids, and is copied"
					: "cannot be a hard link, and is copied");
}

/* ---- making ---- */

/* An empty file of the type of `from`, that only root can open. */
static int make_empty(const struct node *from, int dir_fd, const char *name)
{
	const struct statx *st = &from->st;
	char target[PATH_MAX + 1];
	ssize_t n;
	int fd, e;

	switch (st->stx_mode & S_IFMT) {
	case S_IFREG:
		fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			    0600);
		if (fd >= 0)
			close(fd);
		e = fd;
		break;
	case S_IFDIR:
		e = mkdirat(dir_fd, name, 0700);
		break;
	case S_IFLNK:
		n = readlinkat(from->fd, "", target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = '\0';
		e = n < 0 ? -1 : symlinkat(target, dir_fd, name);
		break;
	default:
		e = mknodat(dir_fd, name, (st->stx_mode & S_IFMT) | 0600,
			    makedev(st->stx_rdev_major, st->stx_rdev_minor));
	}
	return e < 0 ? -errno : 0;
}

static int write_content(struct copy *c, const struct change *x, const struct node *from,
			 const struct node *to)
{
	const struct node_shared shared = { copy_shared, c, !c->opt.trusted };
	const struct touched *t = c->opt.touched;
	const struct node_content how = { .changed = x->act == COPY_UPDATE && t ? t->changed : NULL,
					  .stop = c->opt.stop,
					  .shared = &shared };
	_cleanup_close_ int fd = node_reopen(to, O_RDWR);

	c->now = (size_t)(x - c->list);
	return fd < 0 ? fd : node_write_content(from, fd, &how);
}

/* Makes a file, or an empty folder, in a place that no one else sees. */
static int make_first(struct copy *c, const struct change *x, struct node *from, int dir_fd,
		      const char *name, struct node *made)
{
	int e = make_empty(from, dir_fd, name);

	if (e == 0)
		e = node_open(made, dir_fd, name);
	if (e == 0 && made->fd < 0)
		e = -ESTALE;
	/* the project id first: quotas; flags such as no-copy-on-write want an empty file */
	if (e == 0)
		e = node_set_flags(from, made, false);
	if (e == 0 && node_is(from, S_IFREG))
		e = write_content(c, x, from, made);
	if (e == 0 && !node_is(from, S_IFDIR))
		e = node_set_meta(from, made);
	if (e == 0 && !node_is(from, S_IFDIR))
		e = node_set_times(from, made);
	if (e < 0 && e != -EEXIST)
		(void)!unlinkat(dir_fd, name, node_is(from, S_IFDIR) ? AT_REMOVEDIR : 0);
	return e;
}

/*
 * An exchange has put what lay in the place into the stage, where its owner can no longer rename it.
 * What the plan has not seen there goes back. If the owner exchanges names then, too, something else
 * of his choice comes into the stage: that is kept there.
 */
static int take_away(struct copy *c, const struct change *x, const char *name, const char *temp,
		     const struct node *made)
{
	const struct folder *p = &c->in[0];
	char what[128];

	for (unsigned tries = 0; tries < 2; tries++) {
		struct node out;
		int e = node_open(&out, p->stage_fd, temp);
		/* a hard link may be what was made, without having gone back */
		bool settled = tries && e == 0 &&
			       (out.fd < 0 || same_id(node_id(&out), node_id(made)));
		bool gone = !settled && e == 0 && out.fd >= 0 && is_seen(c, x, &out) &&
			    remove_node(p->stage_fd, temp, &out) == 0;

		node_close(&out);
		if (gone)
			return tries ? -EAGAIN : 0;
		if (settled)
			return -EAGAIN;
		if (tries || renameat2(p->stage_fd, temp, p->fd, name, RENAME_EXCHANGE) < 0)
			break;
	}
	snprintf(what, sizeof(what), "what came there meanwhile is kept in %s/%s", p->stage, temp);
	(void)!copy_problem(c, x->path, -EAGAIN, what);
	return -EAGAIN;
}

/* Puts what was made into its place, where this is. */
static int put_over(struct copy *c, const struct change *x, const char *name, const char *temp,
		    const struct node *made, struct node *to)
{
	const struct folder *p = &c->in[0];
	/* it is empty; a folder of an overlay's image cannot be renamed */
	bool first = node_is(to, S_IFDIR);
	unsigned how = to->fd >= 0 && !first ? RENAME_EXCHANGE : RENAME_NOREPLACE;
	int e = first ? remove_node(p->fd, name, to) : 0;

	if (e == 0 && renameat2(p->stage_fd, temp, p->fd, name, how) == 0)
		return how == RENAME_EXCHANGE ? take_away(c, x, name, temp, made) : 0;
	e = e < 0 ? e : -errno;
	if (e == -EINVAL && how == RENAME_EXCHANGE) { /* a file system that has none */
		e = node_is(made, S_IFDIR) ? remove_node(p->fd, name, to) : 0;
		if (e == 0 && renameat2(p->stage_fd, temp, p->fd, name, 0) < 0)
			e = -errno;
	}
	return e == -ENOTEMPTY || e == -EEXIST ? -EAGAIN : e;
}

/* The same, if what is there is what the plan has seen. */
static int put(struct copy *c, const struct change *x, const char *name, const char *temp,
	       const struct node *made)
{
	const struct folder *p = &c->in[0];
	struct node to;
	struct statx st;
	int e = node_open(&to, p->fd, name);

	if (e == 0 && (to.fd >= 0 ? !x->to.type || !is_seen(c, x, &to) : x->to.type != 0))
		e = -EAGAIN;
	if (e == 0)
		e = node_thaw(&to);
	if (e >= 0)
		e = put_over(c, x, name, temp, made, &to);
	/* what stays in its place stays as it was */
	if (e < 0 && to.frozen && node_freeze(&to) < 0)
		e = -EIO;
	node_close(&to);
	/* the owner of the folder may have renamed something meanwhile */
	if (e == 0 && (statx(p->fd, name, AT_SYMLINK_NOFOLLOW, STATX_INO, &st) < 0 ||
		       st.stx_ino != made->st.stx_ino))
		e = -EAGAIN;
	return e;
}

/* What comes last for a folder: its times, and that it is immutable. */
static int finish_folder(struct copy *c, struct change *x)
{
	struct node from = NODE_NONE, to = NODE_NONE;
	int e = 0;

	if (x->finished || find_folder(c, x->path, &to) != x) {
		node_close(&to);
		return 0;
	}
	x->finished = c->fresh != x->path;
	if (x->made.ino || !(x->way || x->act == COPY_REPLACE))
		e = open_source(c, &from, x->path);
	if (e == 0 && from.fd < 0) { /* it stays as it was */
		to.frozen = x->frozen;
		e = x->frozen ? node_freeze(&to) : 0;
	} else if (e == 0) {
		if (x->made.ino)
			e = node_set_meta(&from, &to);
		if (e == 0)
			e = node_set_times(&from, &to);
		/* one that is not in its place must still be renamed */
		if (e == 0 && x->finished)
			e = node_set_flags(&from, &to, true);
	}
	node_close(&from);
	node_close(&to);
	return e < 0 ? copy_problem(c, x->path, e,
				    x->way ? "its folder is no longer immutable"
					   : "cannot be changed")
		     : 0;
}

static int make_one(struct copy *c, struct change *x);

/* What lies below a folder on the list ends there. */
static struct change *end_of(const struct copy *c, struct change *x)
{
	struct change *end = x + 1;

	while (end < c->list + c->n && path_is_below(end->path, x->path))
		end++;
	return end;
}

/* All that is in a new folder, which nobody can reach yet. */
static int fill_folder(struct copy *c, struct change *x, const struct node *made)
{
	struct change *end = end_of(c, x);
	int e = c->fresh_fd = node_reopen(made, FOLDER);

	c->fresh = x->path;
	for (struct change *k = x + 1; k < end && e >= 0; k++)
		e = make_one(c, k);
	for (struct change *k = end; k-- > x && e >= 0;)
		if (S_ISDIR(k->type) && k->made.ino)
			e = finish_folder(c, k);
	return e < 0 ? e : 0;
}

/* Removes what was made and has not come into its place. */
static void discard(struct copy *c, struct change *x, const char *temp, const struct node *made)
{
	struct node n;
	bool ours = node_open(&n, c->in[0].stage_fd, temp) == 0 && n.fd >= 0 &&
		    same_id(node_id(&n), node_id(made));

	for (struct change *k = end_of(c, x); ours && c->fresh_fd >= 0 && --k > x;) {
		const char *name;
		struct node child = NODE_NONE;
		int fd = k->made.ino ? enter(c, k->path, &name) : -1;

		if (fd >= 0 && node_open(&child, fd, name) == 0 && child.fd >= 0 &&
		    remove_node(fd, name, &child) == 0)
			c->report.created--;
		node_close(&child);
		k->made = (struct file_id){ 0 };
	}
	if (ours)
		(void)!remove_node(c->in[0].stage_fd, temp, &n);
	node_close(&n);
}

/* Makes a new inode and puts it in its place. */
static int make_new(struct copy *c, struct change *x, struct node *from)
{
	bool staged = !c->opt.trusted && c->fresh_fd < 0, dir = node_is(from, S_IFDIR);
	struct node made = NODE_NONE;
	const char *name;
	char temp[24];
	int fd = enter(c, x->path, &name), e = 0, linked;

	if (fd >= 0 && staged)
		fd = stage_get(&c->in[0]);
	if (fd < 0)
		return fd;
	snprintf(temp, sizeof(temp), "%u", c->in[0].files++);
	if (!staged && x->to.type) { /* nobody looks */
		e = node_open(&made, fd, name);
		if (e == 0 && made.fd >= 0)
			e = remove_node(fd, name, &made);
		if (e == 0)
			keep_blocks(c, &made);
		node_close(&made);
	}
	e = linked = e < 0 ? e : link_again(c, x, fd, staged ? temp : name);
	if (e > 0)
		e = node_open(&made, fd, staged ? temp : name);
	else if (e == 0)
		e = make_first(c, x, from, fd, staged ? temp : name, &made);
	if (e == 0)
		x->made = node_id(&made);
	if (e == 0 && dir && staged)
		e = fill_folder(c, x, &made);
	if (e == 0 && staged)
		e = put(c, x, name, temp, &made);
	if (e < 0 && staged && x->made.ino)
		discard(c, x, temp, &made);
	if (dir && staged && c->fresh_fd >= 0) {
		leave(c);
		cleanup_closep(&c->fresh_fd);
		c->fresh_fd = -1;
		c->fresh = NULL;
	}
	if (e < 0)
		x->made = (struct file_id){ 0 };
	if (e == 0 && !linked && !dir) {
		c->list[x->first].made = x->made;
		c->list[x->first].made_gen = node_gen(&made);
		c->list[x->first].at = (size_t)(x - c->list);
	}
	/* what its name leads to may be another folder by now */
	x->finished = e == 0 && dir && staged;
	if (x->finished)
		e = node_set_times(from, &made);
	if (e == 0 && !linked && (x->finished || !dir))
		e = node_set_flags(from, &made, true);
	node_close(&made);
	return e;
}

/* A file of one name that nobody else changes. */
static int update_in_place(struct copy *c, struct change *x, struct node *from)
{
	struct node to;
	int e = copy_open_to(c, &to, x->path);

	if (e == 0)
		e = to.fd < 0 ? -ESTALE : thaw(x, &to);
	if (e == 0)
		e = write_content(c, x, from, &to);
	if (e == 0)
		e = node_set_meta(from, &to);
	if (e == 0)
		e = node_set_flags(from, &to, false);
	if (e == 0)
		e = node_set_times(from, &to);
	if (e == 0)
		e = node_set_flags(from, &to, true);
	node_close(&to);
	return e;
}

/* A file or folder that comes. */
static int make_one(struct copy *c, struct change *x)
{
	struct node from;
	int e;

	if (x->act == COPY_REMOVE || x->act == COPY_SAME ||
	    (x->act == COPY_UPDATE && S_ISDIR(x->type)))
		return 0;
	if (c->opt.stop && *c->opt.stop)
		return -EINTR;
	e = open_source(c, &from, x->path);
	if (e == 0)
		e = x->act == COPY_UPDATE ? update_in_place(c, x, &from) : make_new(c, x, &from);
	node_close(&from);
	if (e == 0)
		copy_count(&c->report, x);
	return e == 0 ? 0
		      : copy_problem(c, x->path, e,
				     e == -EAGAIN	? "has changed meanwhile"
				     : e == -EOPNOTSUPP ? "has a feature that cannot be copied"
							: "cannot be copied");
}

/* ---- folders ---- */

/* A folder on both sides gets owner and mode. */
static int update_folder(struct copy *c, struct change *x)
{
	struct node from = NODE_NONE, to = NODE_NONE;
	int e = open_source(c, &from, x->path);

	if (e == 0)
		e = copy_open_to(c, &to, x->path);
	if (e == 0 && (to.fd < 0 || !is_seen(c, x, &to)))
		e = -EAGAIN;
	x->entered = e == 0;
	if (e == 0)
		e = thaw(x, &to);
	if (e == 0)
		e = node_set_meta(&from, &to);
	if (e == 0)
		e = node_set_flags(&from, &to, false);
	if (e == 0) {
		x->to.uid = from.st.stx_uid;
		copy_count(&c->report, x);
	}
	node_close(&from);
	node_close(&to);
	return e == 0 ? 0
		      : copy_problem(c, x->path, e,
				     e == -EAGAIN ? "is new since the check, and is kept"
						  : "cannot be changed");
}

int copy_apply(struct copy *c, struct copy_report *ret)
{
	int e = 0;

	if (c->report.refused)
		return -EOPNOTSUPP;
	c->report = (struct copy_report){ .same = c->report.same,
					  .problems = c->report.problems,
					  .bytes = c->report.bytes };
	c->error = 0;
	c->shared_n = 0;
	c->keeps = keeps_blocks(c);
	for (size_t i = 0; i < c->n && e == 0; i++)
		if (c->list[i].act == COPY_UPDATE && S_ISDIR(c->list[i].type))
			e = update_folder(c, &c->list[i]);
	for (size_t i = c->n; i-- > 0 && e == 0;)
		if (c->list[i].act == COPY_REMOVE)
			e = c->opt.stop && *c->opt.stop ? -EINTR : remove_one(c, &c->list[i]);
	for (size_t i = 0; i < c->n && e == 0; i++) {
		struct change *x = &c->list[i];

		e = make_one(c, x);
		/* what is in a new folder was made with it, or the folder was not made */
		if (e == 0 && x->act <= COPY_REPLACE && S_ISDIR(x->type) &&
		    !(c->opt.trusted && x->made.ino))
			i = (size_t)(end_of(c, x) - c->list) - 1;
	}
	leave(c);
	/* also after an error: what was changed has changed the times */
	for (size_t i = c->n; i-- > 0;) {
		struct change *x = &c->list[i];
		int f = S_ISDIR(x->type) && (x->entered || x->made.ino) ? finish_folder(c, x) : 0;

		e = e < 0 ? e : f;
	}
	*ret = c->report;
	return e < 0 ? e : c->error;
}
