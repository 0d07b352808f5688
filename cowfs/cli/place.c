/* SPDX-License-Identifier: MIT */
/*
 * A mount id decides where a path lies, not the text of the path: mounts may lie on each other, show
 * a folder of the file system only, or show it a second time. The text that the kernel gives for the
 * opened folder begins with the mount point; the rest is the path inside.
 */
#include "cli/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "attach/compose.h"
#include "base/array.h"
#include "base/mounts.h"

static const char links[] = "/dev/cowfs/";

/* Where a path lies. */
struct spot {
	uint64_t mount_id;
	char dir[PATH_MAX]; /* what exists of its folders, as the kernel names it */
	const char *rest;   /* what follows there; "" if dir is all */
	/* found by look_at_mount */
	char volume[RUNDIR_NAME_BYTES];
	char inside[2 * PATH_MAX]; /* place.path */
	int proc_dirfd;
	bool composed;
	int error; /* -ENODEV: on no volume */
};

/* ---- volumes ---- */

static bool is_listed(size_t n, char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES], const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

/* Does text name a volume, or one of its devices? */
static bool names_volume(const char *text, char name[RUNDIR_NAME_BYTES])
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	struct stat st;

	if (!strncmp(text, links, strlen(links)))
		text += strlen(links);
	if (is_listed(client_volumes(names), names, text) ||
	    is_listed(client_dead_volumes(names), names, text)) {
		snprintf(name, RUNDIR_NAME_BYTES, "%s", text);
		return true;
	}
	if (stat(text, &st) < 0 || S_ISDIR(st.st_mode))
		return false;
	client_find_device(text, name);
	return *name;
}

/* Which running volume does the mount show? */
static void find_volume(struct spot *s, int root_dirfd, const struct mount_entry *m)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	size_t n = client_volumes(names);
	struct compose_state composed;
	bool is_composed = compose_load(&composed);
	struct stat st;

	s->composed = is_composed && composed.dev == m->dev && is_listed(n, names, ROOT_NAME);
	if (s->composed)
		strcpy(s->volume, ROOT_NAME);
	for (size_t i = 0; i < n && !*s->volume; i++) {
		/* it runs, although its worker may have died and the next one begins */
		struct json_object *status = client_left_status(names[i]);
		const char *loop = json_raw(status, "loop");

		/* nothing changes the upper behind the back of overlayfs */
		if (!(is_composed && !strcmp(names[i], ROOT_NAME)) && *loop &&
		    stat(loop, &st) == 0 && S_ISBLK(st.st_mode) &&
		    mounts_shows(s->proc_dirfd, root_dirfd, m, st.st_rdev))
			snprintf(s->volume, sizeof(s->volume), "%s", names[i]);
		json_object_put(status);
	}
}

/* ---- paths ---- */

/* Puts "root/dir-below-the-mount/rest" together, without slashes around it. */
static bool join_inside(struct spot *s, const char *root, const char *below)
{
	const char *part[] = { root, below, s->rest };
	size_t len = 0;

	for (size_t i = 0; i < ARRAY_SIZE(part); i++) {
		const char *text = part[i] + strspn(part[i], "/");

		len += (size_t)snprintf(s->inside + len, sizeof(s->inside) - len, "%s%s",
					len && *text ? "/" : "", text);
		if (len >= PATH_MAX)
			return false;
	}
	return true;
}

static int look_at_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct spot *s = ctx;
	size_t n;

	if (m->id != s->mount_id)
		return 0;
	find_volume(s, root_dirfd, m);
	mounts_unescape(m->root);
	mounts_unescape(m->path);
	n = strcmp(m->path, "/") ? strlen(m->path) : 0;
	if (!*s->volume)
		s->error = -ENODEV;
	else if (strncmp(s->dir, m->path, n) || (s->dir[n] && s->dir[n] != '/'))
		s->error = -ESTALE;
	else
		s->error = join_inside(s, m->root, s->dir + n) ? 0 : -ENAMETOOLONG;
	return 1;
}

/* Opens dir if it is a folder. Fills in its mount and its name. */
static int take_dir(struct spot *s, const char *dir)
{
	_cleanup_close_ int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char link[32];
	struct statx st;
	ssize_t n;

	if (fd < 0)
		return -errno;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
		  STATX_TYPE | STATX_NLINK | STATX_MNT_ID, &st) < 0)
		return -errno;
	if (!st.stx_nlink)
		return -ENOENT; /* a working directory that was deleted */
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, s->dir, sizeof(s->dir) - 1);
	if (n < 0)
		return -errno;
	s->dir[n] = '\0';
	s->mount_id = st.stx_mnt_id;
	return !(st.stx_mask & STATX_MNT_ID) ? -EOPNOTSUPP : s->dir[0] == '/' ? 0 : -ESTALE;
}

static bool is_dots(const char *name, size_t len)
{
	return name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.'));
}

/* No component is "." or ".."; removes doubled slashes. */
static bool rest_is_plain(char *rest)
{
	char *to = rest;

	for (char *from = rest; *from;) {
		size_t len;

		from += strspn(from, "/");
		len = strcspn(from, "/");
		if (is_dots(from, len))
			return false;
		if (len && to != rest)
			*to++ = '/';
		memmove(to, from, len);
		to += len;
		from += len;
	}
	*to = '\0';
	return true;
}

/*
 * Splits path (PATH_MAX, changed) where its folders end that exist. -EINVAL: ".." behind that; or
 * the error of the look-up.
 */
static int split(struct spot *s, char *path)
{
	char folder[PATH_MAX];
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
	for (size_t cut = len;;) {
		char *last;
		int e;

		memcpy(folder, path, cut);
		folder[cut] = '\0';
		last = strrchr(folder, '/');
		last = last ? last + 1 : folder;
		/* of the whole path only what can be no symbolic link */
		if (cut < len || !*last || is_dots(last, strlen(last))) {
			e = take_dir(s, *folder ? folder : ".");
			if (!e) {
				s->rest = path + cut;
				return rest_is_plain(path + cut) ? 0 : -EINVAL;
			}
			if ((e != -ENOENT && e != -ENOTDIR) || !*folder || !strcmp(folder, "/"))
				return e;
		}
		/* cut 0: the working directory */
		while (cut && path[cut - 1] != '/')
			cut--;
		while (cut > 1 && path[cut - 1] == '/')
			cut--;
	}
}

/* If the path itself is the root of another mount, that mount counts. */
static int enter_mount(struct spot *s, const char *operand)
{
	struct statx st;

	if (!*s->rest || statx(AT_FDCWD, operand, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
			       STATX_TYPE | STATX_MNT_ID, &st) < 0)
		return 0;
	if (!(st.stx_mask & STATX_MNT_ID) || st.stx_mnt_id == s->mount_id)
		return 0;
	if (!S_ISDIR(st.stx_mode))
		return -EXDEV;
	s->rest = "";
	return take_dir(s, operand);
}

static int locate(struct spot *s, const char *operand, char path[PATH_MAX])
{
	int e;

	if (!*operand)
		return -ENOENT;
	if (strlen(operand) >= PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(path, operand);
	e = split(s, path);
	if (!e)
		e = enter_mount(s, operand);
	if (e)
		return e;
	s->proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	s->error = -ESTALE;
	e = mounts_each(s->proc_dirfd, "self", look_at_mount, s);
	if (s->proc_dirfd >= 0)
		close(s->proc_dirfd);
	return e < 0 ? e : s->error;
}

/* ---- operands ---- */

static int refuse(const struct options *o, const struct places *p, const char *operand, int e)
{
	const char *name = p->name;

	switch (e) {
	case -ENODEV:
		if (*name)
			return cmd_fail(o, EXIT_USAGE, e, "%s: does not lie on volume %s", operand,
					name);
		return cmd_fail(
			o, EXIT_NOT_RUNNING, -ESRCH,
			"no volume is attached as %s, and no file of a volume has this name",
			operand);
	case -EINVAL:
		return cmd_fail(o, EXIT_USAGE, e, "%s: has .. behind a folder that does not exist",
				operand);
	case -EXDEV:
		return cmd_fail(o, EXIT_USAGE, e, "%s: something else is mounted there", operand);
	case -ENAMETOOLONG:
		return cmd_fail(o, EXIT_USAGE, e, "%.60s...: the path is too long", operand);
	default:
		return cmd_fail(o, EXIT_FAILED, e, "%s: %s", operand, strerrordesc_np(-e));
	}
}

static int add_place(struct places *p, size_t *cap, const char *operand, const char *path)
{
	struct place *grown = array_grow(p->p, cap, p->n + 1, sizeof(*p->p));
	char *copy = strdup(path);

	if (grown)
		p->p = grown;
	if (!grown || !copy) {
		free(copy);
		return -ENOMEM;
	}
	p->p[p->n++] = (struct place){ operand, copy };
	return 0;
}

static int take_operand(const struct options *o, struct places *p, size_t *cap, const char *operand,
			bool first)
{
	_cleanup_free_ struct spot *s = calloc(1, sizeof(*s));
	_cleanup_free_ char *path = malloc(PATH_MAX);
	int e;

	if (!s || !path)
		return cmd_fail(o, EXIT_FAILED, -ENOMEM, "out of memory");
	e = locate(s, operand, path);
	if (e)
		return refuse(o, p, operand, e);
	if (*p->name && strcmp(p->name, s->volume))
		return cmd_fail(o, EXIT_USAGE, -EXDEV, "%s: lies on volume %s, not on volume %s",
				operand, s->volume, p->name);
	strcpy(p->name, s->volume);
	p->composed |= s->composed;
	if (first && !*s->inside)
		return EXIT_OK;
	return add_place(p, cap, operand, s->inside)
		       ? cmd_fail(o, EXIT_FAILED, -ENOMEM, "out of memory")
		       : EXIT_OK;
}

void places_clear(struct places *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->p[i].path);
	free(p->p);
	*p = (struct places){ 0 };
}

int places_resolve(const struct options *o, unsigned first_operand, struct places *ret)
{
	struct places p = { 0 };
	size_t cap = 0;
	int exit = EXIT_OK;

	for (unsigned i = first_operand; i < o->operands && exit == EXIT_OK; i++)
		if (i > first_operand || !names_volume(o->operand[i], p.name))
			exit = take_operand(o, &p, &cap, o->operand[i], i == first_operand);
	if (exit == EXIT_OK)
		*ret = p;
	else
		places_clear(&p);
	return exit;
}
