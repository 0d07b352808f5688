/* SPDX-License-Identifier: MIT */
/* The list: what differs between two trees, name by name. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include "base/array.h"
#include "base/path.h"
#include "files/copy_private.h"

struct seen seen_of(const struct copy *c, const struct node *n)
{
	bool dir = node_is(n, S_IFDIR), by_time = c->opt.overlay && !dir;
	const struct statx_timestamp *t = by_time ? &n->st.stx_mtime : &n->st.stx_btime;

	if (n->fd < 0)
		return (struct seen){ 0 };
	return (struct seen){
		.id = c->opt.overlay ? (struct file_id){ 0 } : node_id(n),
		.size = by_time ? n->st.stx_size : 0,
		.uid = n->st.stx_uid,
		.type = n->st.stx_mode & S_IFMT,
		.gen = !c->opt.overlay ? node_gen(n)
		       : by_time || n->st.stx_mask & STATX_BTIME
			       ? (uint64_t)t->tv_sec * 1000000000u + t->tv_nsec
			       : 0,
	};
}

static bool ends_all(int e)
{
	return e == -EINTR || e == -ENOSPC || e == -EDQUOT || e == -EROFS || e == -ENOMEM;
}

int copy_problem(struct copy *c, const char *path, int e, const char *what)
{
	c->error = c->error ? c->error : e;
	c->report.problems++;
	c->report.refused |= e == -EOPNOTSUPP;
	if (c->opt.problem && e != -EINTR)
		c->opt.problem(c->opt.ctx, path, e, what);
	return ends_all(e) ? e : 0;
}

int copy_open_to(const struct copy *c, struct node *ret, const char *path)
{
	if (c->fresh_fd >= 0 && path_is_below(path, c->fresh)) {
		path += strlen(c->fresh);
		return node_open(ret, c->fresh_fd, path + (*path == '/'));
	}
	return node_open(ret, c->w.root_fd[TO], path);
}

int copy_load_source(struct copy *c, struct node *from, const char *path)
{
	bool first = !from->loaded;
	int e = node_load(from);

	if (e == 0 && node_is_sealed(from))
		e = -EOPNOTSUPP;
	if (e == 0 && first && c->opt.overlay && c->opt.upper_fd >= 0)
		e = node_add_frozen(from, c->opt.upper_fd, path);
	return e;
}

/* ---- comparing ---- */

static int load_both(struct copy *c, struct found *f)
{
	int e = copy_load_source(c, &f->node[FROM], f->path[FROM]);

	if (e == 0)
		e = node_load(&f->node[TO]);
	return e == 0 && node_is_sealed(&f->node[TO]) ? -EOPNOTSUPP : e;
}

/* 1: the same folder, 0: another one, or nothing proves that it is the same, -1: of an overlay, which does not say when a folder
 * was born, and may have two numbers for it, of which the upper bits name a layer. */
static int is_born_as(const struct copy *c, const struct node *from, const struct node *to)
{
	const struct statx *a = &from->st, *b = &to->st;
	uint64_t differ = a->stx_ino ^ b->stx_ino;

	if (c->opt.overlay ? (uint32_t)differ : differ)
		return 0;
	if (c->opt.overlay && !(a->stx_mask & b->stx_mask & STATX_BTIME))
		return -1;
	/* a snapshot of a subvolume has the same number and time, too */
	return a->stx_btime.tv_sec == b->stx_btime.tv_sec &&
	       a->stx_btime.tv_nsec == b->stx_btime.tv_nsec &&
	       (c->opt.overlay || (node_gen(from) && node_gen(from) == node_gen(to)));
}

/* Does it lie where only root could have put it? path: as it was opened. */
static bool lies_in_roots(const struct copy *c, const char *path, const struct node *n)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = strndup(path, slash ? (size_t)(slash - path) : 0);
	struct node parent = NODE_NONE, in = NODE_NONE;
	bool its = *path && dir && node_open(&parent, c->w.root_fd[TO], dir) == 0 &&
		   parent.fd >= 0 && !parent.st.stx_uid && !(parent.st.stx_mode & 022) &&
		   node_open(&in, parent.fd, slash ? slash + 1 : path) == 0 && in.fd >= 0 &&
		   same_id(node_id(&in), node_id(n));

	node_close(&in);
	node_close(&parent);
	return its;
}

/*
 * May the folder of the target get owner and mode of the source, or files of it? Only if it is that folder: a user
 * may have put another one of somebody else in its place, and must not get into that. It is so if it
 * was born as that one, or if owner and mode are the same anyway. Who owns its parent now says
 * nothing: that may have changed, and another folder above may have been exchanged. 1, 0, -errno.
 */
static int is_its_folder(struct copy *c, struct found *f)
{
	int born = is_born_as(c, &f->node[FROM], &f->node[TO]), e;

	if (c->opt.trusted || born > 0)
		return 1;
	/* the same number, and nobody could have made a folder that got it again */
	if (born < 0 && lies_in_roots(c, f->path[TO], &f->node[TO]))
		return 1;
	e = load_both(c, f);
	return e < 0 ? e : !(node_differs(&f->node[FROM], &f->node[TO]) & ~(unsigned)DIFF_TIME);
}

/* Two files. *ret_bytes: what differs, if they are changed in place. */
static int files_differ(struct copy *c, struct found *f, bool in_place, uint64_t *ret_bytes)
{
	struct node *from = &f->node[FROM], *to = &f->node[TO];
	const struct node_content how = {
		.changed = c->opt.touched ? c->opt.touched->changed : NULL,
		.stop = c->opt.stop,
		.bytes = in_place ? ret_bytes : NULL,
	};
	int e, differs;

	if ((from->st.stx_mode ^ to->st.stx_mode) & S_IFMT)
		return 1;
	e = load_both(c, f);
	if (e < 0)
		return e;
	differs = node_differs(from, to) != 0;
	if (!differs || in_place)
		e = node_compare_content(from, to, &how);
	return e < 0 ? e : e || differs;
}

/* ---- the list ---- */

static int add(struct copy *c, const struct found *f, enum copy_act act, bool way, uint64_t bytes)
{
	const struct node *from = &f->node[FROM], *to = &f->node[TO];
	const char *path = f->path[FROM] ? f->path[FROM] : f->path[TO];
	struct change *p;

	if (ARRAY_ROOM(c->list, c->cap, c->n + 1) < 0)
		return -ENOMEM;
	p = &c->list[c->n];
	*p = (struct change){ .act = act,
			      .way = way,
			      .path = strdup(path),
			      .type = (from->fd >= 0 ? from : to)->st.stx_mode & S_IFMT,
			      .to = seen_of(c, to),
			      .bytes = bytes };
	for (enum side s = OLD; s <= NEW; s++)
		if (f->node[s].fd >= 0) {
			p->id[s] = node_id(&f->node[s]);
			p->links[s] = node_is(&f->node[s], S_IFDIR) ? 1 : f->node[s].st.stx_nlink;
		}
	c->n += p->path != NULL;
	return p->path ? 0 : -ENOMEM;
}

/* clone: or only if both are equal. */
static bool share(const struct node *from, uint64_t off, uint64_t len, int to_fd, uint64_t pos,
		  bool clone)
{
	_cleanup_close_ int fd = node_reopen(from, O_RDONLY);
	struct file_clone_range whole = {
		.src_fd = fd, .src_offset = off, .src_length = len, .dest_offset = pos
	};
	union {
		struct file_dedupe_range range;
		uint8_t room[sizeof(struct file_dedupe_range) +
			     sizeof(struct file_dedupe_range_info)];
	} equal = { .range = { .src_offset = off, .src_length = len, .dest_count = 1 } };

	equal.range.info[0].dest_fd = to_fd;
	equal.range.info[0].dest_offset = pos;
	return fd >= 0 &&
	       (clone ? ioctl(to_fd, FICLONERANGE, &whole) : ioctl(fd, FIDEDUPERANGE, &equal)) == 0;
}

uint64_t copy_shared(void *ctx, uint64_t at, uint64_t len, int to_fd, uint64_t pos)
{
	struct copy *c = ctx;
	struct shared_part *p = c->shared, *found = NULL;
	struct node n;
	uint64_t off;

	for (size_t i = c->shared_n; i-- > 0 && !found;)
		if (p[i].at <= at && at < p[i].at + p[i].len)
			found = &p[i];
	p += c->shared_n;
	if (!found && c->shared_n && p[-1].entry == c->now && p[-1].at + p[-1].len == at &&
	    p[-1].off + p[-1].len == pos) {
		p[-1].len += len;
		return 0;
	}
	if (!found) {
		(void)!ARRAY_ADD(c->shared, c->shared_n, c->shared_cap,
				 (struct shared_part){ at, len, pos, c->now });
		return 0;
	}
	len = min_u64(len, found->at + found->len - at);
	if (to_fd < 0)
		return len;
	len -= len % COW_BLK_BYTES;
	off = found->off + (at - found->at);
	if ((found->entry == c->now && off == pos) || !len ||
	    copy_open_to(c, &n, c->list[found->entry].path) < 0)
		return 0;
	if (n.fd < 0 || !(c->opt.trusted || same_id(node_id(&n), c->list[found->entry].made)) ||
	    !share(&n, off, len, to_fd, pos, c->opt.trusted))
		len = 0;
	node_close(&n);
	return len;
}

/* A folder or file that the source has and the target lacks, or has another one in its place. */
static int add_new(struct copy *c, struct found *f, enum copy_act act)
{
	const struct node_shared shared = { .clone = copy_shared, .ctx = c };
	uint64_t bytes = 0;
	const struct node_content how = { .bytes = &bytes, .shared = &shared };
	int e = copy_load_source(c, &f->node[FROM], f->path[FROM]);

	if (e == 0 && c->opt.trusted && node_is(&f->node[FROM], S_IFREG))
		e = node_count_data(&f->node[FROM], &how);
	if (e < 0)
		return e;
	e = add(c, f, act, false, bytes);
	return e == 0 ? walk_into(&c->w, f, false) : e;
}

static int add_folder(struct copy *c, struct found *f)
{
	int e = load_both(c, f);

	if (e == 0)
		e = add(c, f, node_differs(&f->node[FROM], &f->node[TO]) ? COPY_UPDATE : COPY_SAME,
			false, 0);
	return e == 0 ? walk_into(&c->w, f, true) : e;
}

static int add_file(struct copy *c, struct found *f)
{
	const struct node *from = &f->node[FROM], *to = &f->node[TO];
	bool in_place = c->opt.trusted && node_is(from, S_IFREG) && node_is(to, S_IFREG) &&
			from->st.stx_nlink == 1 && to->st.stx_nlink == 1;
	uint64_t bytes = 0;
	int e = files_differ(c, f, in_place, &bytes);

	if (e < 0)
		return e;
	if (e > 0 && !in_place)
		return add_new(c, f, COPY_REPLACE);
	c->report.same += e == 0;
	return e > 0 ? add(c, f, COPY_UPDATE, false, bytes)
	       : from->st.stx_nlink > 1 || to->st.stx_nlink > 1
		       ? add(c, f, COPY_SAME, false, from->st.stx_blocks * 512)
		       : 0;
}

static int visit_name(struct copy *c, struct found *f)
{
	bool folders = node_is(&f->node[FROM], S_IFDIR) && node_is(&f->node[TO], S_IFDIR);
	int e;

	if (f->node[FROM].fd < 0) {
		e = add(c, f, COPY_REMOVE, false, 0);
		return e == 0 ? walk_into(&c->w, f, false) : e;
	}
	if (f->node[TO].fd < 0)
		return add_new(c, f, COPY_CREATE);
	if (!folders)
		return add_file(c, f);
	e = *f->path[TO] ? is_its_folder(c, f) : 1;
	return e > 0 ? add_folder(c, f) : e == 0 ? add_new(c, f, COPY_REPLACE) : e;
}

static int visit(struct walk *w, struct found *f)
{
	struct copy *c = (struct copy *)w;
	char lease[96];
	int e;

	c->none = f->node[FROM].fd < 0 && f->node[TO].fd < 0;
	if (c->none)
		return 0;
	e = visit_name(c, f);
	return e == 0 ? 0
		      : copy_problem(c, f->path[FROM] ? f->path[FROM] : f->path[TO], e,
				     e == -EBUSY && path_lease(f->node[TO].fd, lease, sizeof(lease))
					     ? lease
				     : e == -EOPNOTSUPP ? "has a feature that cannot be copied"
							: "cannot be compared");
}

static int failed(struct walk *w, const char *path, int e)
{
	return copy_problem((struct copy *)w, path, e,
			    e == -EXDEV ? "something else is mounted there" : "cannot be compared");
}

/* ---- operands ---- */

/* A folder on the way. 1: neither side has it. */
static int plan_folder(struct copy *c, const char *path)
{
	struct found f = { .path = { path, path }, .node = { NODE_NONE, NODE_NONE } };
	struct node *from = &f.node[FROM], *to = &f.node[TO];
	int e = node_open(from, c->w.root_fd[FROM], path);

	if (e == 0)
		e = node_open(to, c->w.root_fd[TO], path);
	if (e == 0 && from->fd < 0 && to->fd < 0)
		e = 1;
	else if (e == 0 && ((from->fd >= 0 && !node_is(from, S_IFDIR)) ||
			    (to->fd >= 0 && !node_is(to, S_IFDIR))))
		e = -ENOTDIR;
	/* an overlay's root has no number of its own */
	if (e == 0 && from->fd >= 0 && to->fd >= 0 &&
	    (*path || (!c->opt.overlay && node_gen(from)))) {
		e = is_its_folder(c, &f);
		e = e < 0 ? e : e == 0 ? -ESTALE : 0;
	}
	if (e == 0)
		e = to->fd >= 0 ? add(c, &f, COPY_SAME, true, 0) : add(c, &f, COPY_CREATE, true, 0);
	node_close(from);
	node_close(to);
	if (e < 0)
		e = copy_problem(c, path, e,
				 e == -ENOTDIR	? "is no folder on both sides"
				 : e == -ESTALE ? "is another folder than at the last commit"
				 : e == -EXDEV	? "something else is mounted there"
						: "cannot be opened");
	return e;
}

static int plan(struct copy *c, const char *path)
{
	_cleanup_free_ char *way = strdup(path);
	bool other = false;
	int e = way ? 0 : -ENOMEM;

	c->error = 0;
	for (const char *end = path; e == 0 && !c->error && end;
	     end = *end ? strchr(end + 1, '/') : NULL) {
		way[end - path] = '\0';
		e = plan_folder(c, way);
		way[end - path] = *end;
	}
	c->none = false;
	if (e == 0 && !c->error)
		e = walk_name(&c->w, path, path, false, &other);
	if (e == 0)
		e = walk_run(&c->w);
	return e > 0 || (e == 0 && c->none) ? -ENOENT : e < 0 ? e : c->error;
}

int copy_plan(struct copy *c, const char *path)
{
	char *copy = strdup(path);

	if (copy && ARRAY_ADD(c->asked, c->asked_n, c->asked_cap, copy) == 0)
		return plan(c, copy);
	free(copy);
	return -ENOMEM;
}

/* ---- the whole list ---- */

static int by_path(const void *a, const void *b)
{
	const struct change *x = a, *y = b;
	int order = path_order(x->path, y->path);

	/* what goes; a folder on the way last */
	return order ? order
		     : (y->act == COPY_REMOVE) - (x->act == COPY_REMOVE) ?: (x->way - y->way);
}

/* Operands may overlap, and what goes with its folder is not listed. */
static void sort_list(struct copy *c)
{
	const char *replaced = NULL;
	size_t n = 0;

	if (c->n)
		qsort(c->list, c->n, sizeof(*c->list), by_path);
	for (size_t i = 0; i < c->n; i++) {
		struct change *x = &c->list[i], *last = n ? &c->list[n - 1] : NULL;

		if (last && !strcmp(last->path, x->path) &&
		    (last->act == COPY_REMOVE) == (x->act == COPY_REMOVE)) {
			free(x->path);
			continue;
		}
		if (replaced && !path_is_below(x->path, replaced))
			replaced = NULL;
		x->quiet = replaced && x->act == COPY_REMOVE;
		if (!replaced && x->act == COPY_REPLACE && S_ISDIR(x->to.type))
			replaced = x->path;
		c->list[n++] = *x;
	}
	c->n = n;
	for (size_t i = 0; i < n; i++)
		c->list[i].first = c->list[i].at = i;
}

struct by_id {
	const struct copy *c;
	enum side side;
};

/* Names of one inode, those that stay as they are first. */
static int by_id(const void *a, const void *b, void *ctx)
{
	const struct by_id *by = ctx;
	size_t i = *(const size_t *)a, k = *(const size_t *)b;
	const struct change *x = &by->c->list[i], *y = &by->c->list[k];
	struct file_id p = x->id[by->side], q = y->id[by->side];

	if (!same_id(p, q))
		return p.dev < q.dev || (p.dev == q.dev && p.ino < q.ino) ? -1 : 1;
	if ((x->act == COPY_SAME) != (y->act == COPY_SAME))
		return x->act == COPY_SAME ? -1 : 1;
	return i < k ? -1 : i > k;
}

/* Calls fn for all names of each inode that has several. */
static int each_inode(struct copy *c, enum side side,
		      void (*fn)(struct copy *c, const size_t *at, size_t n, void *ctx), void *ctx)
{
	_cleanup_free_ size_t *at = malloc((c->n + 1) * sizeof(*at));
	struct by_id by = { c, side };
	size_t n = 0, k;

	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < c->n; i++)
		if (c->list[i].links[side] > 1)
			at[n++] = i;
	qsort_r(at, n, sizeof(*at), by_id, &by);
	for (size_t i = 0; i < n; i = k) {
		for (k = i + 1; k < n && same_id(c->list[at[i]].id[side], c->list[at[k]].id[side]);)
			k++;
		fn(c, at + i, k - i, ctx);
	}
	return 0;
}

/* Names of one inode that are to be several. */
static void part_names(struct copy *c, const size_t *at, size_t n, void *ctx)
{
	(void)ctx;
	for (size_t i = 1; i < n && c->list[at[i]].act == COPY_SAME; i++)
		if (!same_id(c->list[at[0]].id[FROM], c->list[at[i]].id[FROM]))
			c->list[at[i]].act = COPY_REPLACE;
}

/* Names that are to be of one inode. */
static void join_names(struct copy *c, const size_t *at, size_t n, void *ctx)
{
	struct change *first = &c->list[at[0]];
	/* a link of a file of an overlay's image makes it another inode */
	bool moves = c->opt.overlay && c->list[at[n - 1]].act != COPY_SAME;

	(void)ctx;
	if (first->act == COPY_SAME) {
		first->made = first->id[TO];
		first->made_gen = first->to.gen;
	}
	for (size_t i = 1; i < n; i++) {
		struct change *x = &c->list[at[i]];

		x->first = at[0];
		x->bytes = 0;
		if (x->act == COPY_SAME && (moves || !same_id(first->id[TO], x->id[TO])))
			x->act = COPY_REPLACE;
	}
}

/* An inode of which one name is made, and another one was not looked at because nothing in the inode differs. */
static void miss_names(struct copy *c, const size_t *at, size_t n, void *ctx)
{
	int *missed = ctx;
	bool made = false;

	for (size_t i = 0; i < n && n < c->list[at[0]].links[FROM]; i++)
		made |= c->list[at[i]].act == COPY_CREATE || c->list[at[i]].act == COPY_REPLACE;
	if (made && *missed >= 0)
		*missed = touched_add_inode(c->opt.touched, c->list[at[0]].id[FROM].ino) ?: 1;
}

static void drop_list(struct copy *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->list[i].path);
	c->n = 0;
	c->shared_n = 0;
	c->report = (struct copy_report){ 0 };
}

/* The name may lie anywhere, for a folder that is renamed takes its files along. */
static int plan_missed(struct copy *c)
{
	bool looks = c->opt.touched && !c->report.problems;
	int missed = 0, e = looks ? each_inode(c, FROM, miss_names, &missed) : 0;

	if (e == 0 && missed > 0)
		e = touched_sort_inodes(c->opt.touched);
	if (e < 0 || missed <= 0)
		return e ?: missed;
	drop_list(c);
	for (size_t i = 0; i < c->asked_n && e == 0; i++) {
		e = plan(c, c->asked[i]);
		/* others are problems of the report */
		if (e == -ENOENT || (e != -EINTR && e != -ENOMEM && !c->opt.trusted))
			e = 0;
	}
	sort_list(c);
	return e;
}

bool copy_count(struct copy_report *r, const struct change *x)
{
	uint64_t *const counters[] = { &r->created, &r->replaced, &r->updated, &r->removed };

	if (x->act == COPY_SAME || x->quiet)
		return false;
	++*counters[x->act];
	return true;
}

int copy_planned(struct copy *c, struct copy_report *ret)
{
	int e;

	sort_list(c);
	e = plan_missed(c);
	if (e == 0)
		e = each_inode(c, TO, part_names, NULL);
	if (e == 0)
		e = each_inode(c, FROM, join_names, NULL);
	for (size_t i = 0; i < c->n; i++)
		if (copy_count(&c->report, &c->list[i]))
			c->report.bytes += c->list[i].bytes;
	*ret = c->report;
	return e;
}

void copy_each(const struct copy *c,
	       void (*each)(void *ctx, enum copy_act act, const char *path,
			    const struct copy_to *to),
	       void *ctx)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct change *x = &c->list[i];
		const struct file_id *id = &x->id[TO];

		if (x->act != COPY_SAME && !x->quiet)
			each(ctx, x->act, x->path,
			     &(struct copy_to){
				     makedev((unsigned)(id->dev >> 32), (unsigned)id->dev), id->ino,
				     x->to.type });
	}
}

struct other_names {
	void (*each)(void *ctx, const char *path, uint64_t others);
	void *ctx;
};

static void count_names(struct copy *c, const size_t *at, size_t n, void *ctx)
{
	const struct other_names *o = ctx;
	const struct change *first = NULL;
	uint64_t seen = 0;

	for (size_t i = 0; i < n; i++) {
		const struct change *x = &c->list[at[i]];

		if (x->act != COPY_REPLACE && x->act != COPY_REMOVE)
			continue;
		first = first ? first : x;
		seen++;
	}
	if (first && seen < first->links[TO])
		o->each(o->ctx, first->path, first->links[TO] - seen);
}

int copy_other_names(struct copy *c, void (*each)(void *ctx, const char *path, uint64_t others),
		     void *ctx)
{
	return each_inode(c, TO, count_names, &(struct other_names){ each, ctx });
}

/* ---- */

int copy_new(struct copy **ret, int from_fd, int to_fd, const struct copy_options *opt)
{
	struct copy *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	*c = (struct copy){ .w = { .root_fd = { [TO] = to_fd, [FROM] = from_fd },
				   .touched = opt->touched,
				   .stop = opt->stop,
				   .visit = visit,
				   .failed = failed },
			    .opt = *opt,
			    .in = { { .fd = -1, .stage_fd = -1 }, { .fd = -1, .stage_fd = -1 } },
			    .fresh_fd = -1 };
	*ret = c;
	return 0;
}

void copy_free(struct copy *c)
{
	if (!c)
		return;
	drop_list(c);
	while (c->kept_n)
		close(c->kept[--c->kept_n]);
	for (size_t i = 0; i < c->asked_n; i++)
		free(c->asked[i]);
	free(c->asked);
	free(c->list);
	free(c->shared);
	free(c);
}
