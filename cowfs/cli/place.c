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
#include "base/path.h"

static const char links[] = "/dev/cowfs/";

/* Where a path lies. */
struct spot {
	uint64_t mount_id;
	char dir[PATH_MAX]; /* what exists of its folders, as the kernel names it */
	int dirfd;	    /* and opened; -1: not yet */
	const char *rest;   /* what follows there; "" if dir is all */
	/* found by look_at_mount */
	char volume[RUNDIR_NAME_BYTES];
	char inside[2 * PATH_MAX]; /* place.path */
	int proc_dirfd;
	bool composed;
	int error;		/* -ENODEV: on no volume */
	char why[2 * PATH_MAX]; /* of path_open */
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
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES], why[2 * PATH_MAX];
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (!strncmp(text, links, strlen(links)))
		text += strlen(links);
	if (is_listed(client_volumes(names), names, text) ||
	    is_listed(client_dead_volumes(names), names, text)) {
		snprintf(name, RUNDIR_NAME_BYTES, "%s", text);
		return true;
	}
	fd = path_open(text, O_PATH, why, sizeof(why));
	if (fd < 0 || fstat(fd, &st) < 0 || S_ISDIR(st.st_mode))
		return false;
	client_find_device(text, name);
	return *name;
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

/*
 * Is dir in the place where the two texts together say? Whoever owns a folder above may have renamed
 * it between them.
 */
static bool is_there(struct spot *s, const char *mount_point, const char *below)
{
	_cleanup_close_ int root_fd = path_open(mount_point, O_PATH | O_DIRECTORY, s->why,
						sizeof(s->why));
	_cleanup_close_ int fd = -1;
	struct statx root;
	struct stat is, want;

	*s->why = '\0';
	if (root_fd < 0 ||
	    statx(root_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &root) < 0)
		return false;
	if (!(root.stx_attributes & STATX_ATTR_MOUNT_ROOT) || root.stx_mnt_id != s->mount_id)
		return false;
	below += strspn(below, "/");
	fd = path_open_below(root_fd, *below ? below : ".", O_PATH | O_DIRECTORY);
	return fd >= 0 && fstat(fd, &is) == 0 && fstat(s->dirfd, &want) == 0 &&
	       is.st_dev == want.st_dev && is.st_ino == want.st_ino;
}

static int look_at_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct spot *s = ctx;
	struct compose_state composed;
	size_t n;

	if (m->id != s->mount_id)
		return 0;
	client_find_mount(root_dirfd, m, s->volume, &s->composed);
	/* nothing changes the upper behind the back of overlayfs */
	if (!s->composed && !strcmp(s->volume, ROOT_NAME) && compose_load(&composed))
		s->volume[0] = '\0';
	mounts_unescape(m->root);
	mounts_unescape(m->path);
	n = strcmp(m->path, "/") ? strlen(m->path) : 0;
	if (!*s->volume)
		s->error = -ENODEV;
	else if (strncmp(s->dir, m->path, n) || (s->dir[n] && s->dir[n] != '/') ||
		 !is_there(s, m->path, s->dir + n))
		s->error = -ESTALE;
	else
		s->error = join_inside(s, m->root, s->dir + n) ? 0 : -ENAMETOOLONG;
	return 1;
}

/* Opens dir if it is a folder. Fills in its mount and its name. */
static int take_dir(struct spot *s, const char *dir)
{
	_cleanup_close_ int fd = path_open(dir, O_PATH | O_DIRECTORY, s->why, sizeof(s->why));
	char link[32];
	struct statx st;
	ssize_t n;

	if (fd < 0)
		return fd;
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
	cleanup_closep(&s->dirfd);
	s->dirfd = steal_fd(&fd);
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
	_cleanup_close_ int fd =
		*s->rest ? path_open(operand, O_PATH | O_NOFOLLOW, s->why, sizeof(s->why)) : -1;
	struct statx st;

	if (fd < 0 ||
	    statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &st) < 0)
		return 0;
	if (!(st.stx_mask & STATX_MNT_ID) || st.stx_mnt_id == s->mount_id)
		return 0;
	if (!S_ISDIR(st.stx_mode))
		return -EXDEV;
	s->rest = "";
	return take_dir(s, operand);
}

bool place_is_encrypted(int dirfd, const char *path)
{
	struct statx st;

	return statx(dirfd, path,
		     AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
		     STATX_TYPE, &st) == 0 &&
	       st.stx_attributes & STATX_ATTR_ENCRYPTED;
}

static int locate(struct spot *s, const char *operand, char path[PATH_MAX])
{
	int e;

	if (strlen(operand) >= PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(path, operand);
	e = split(s, path);
	if (!e)
		e = enter_mount(s, operand);
	if (e)
		return e;
	if (place_is_encrypted(s->dirfd, "") || place_is_encrypted(AT_FDCWD, operand))
		return -ENOKEY;
	s->proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	s->error = -ESTALE;
	e = mounts_each(s->proc_dirfd, "self", look_at_mount, s);
	if (s->proc_dirfd >= 0)
		close(s->proc_dirfd);
	return e < 0 ? e : s->error;
}

/* ---- operands ---- */

static int refuse(const struct places *p, const char *operand, const struct spot *s, int e,
		  struct failure *err)
{
	const char *name = p->name;

	switch (e) {
	case -ENODEV:
		if (*name)
			return failure_set(err, EXIT_USAGE, e, "%s: does not lie on volume %s",
					   operand, name);
		return failure_set(
			err, EXIT_NOT_RUNNING, -ESRCH,
			"no volume is attached as %s, and no file of a volume has this name",
			operand);
	case -EINVAL:
		return failure_set(err, EXIT_USAGE, e,
				   "%s: has .. behind a folder that does not exist", operand);
	case -ENOKEY:
		return failure(
			err, e,
			"%s: encrypted (fscrypt): its files cannot be compared, committed or reverted one by one: commit "
			"everything",
			operand);
	case -EXDEV:
		return failure_set(err, EXIT_USAGE, e, "%s: something else is mounted there",
				   operand);
	case -ESTALE:
		return failure(err, e,
			       "%s: a folder of this path was renamed just now, or something was "
			       "mounted there: try again",
			       operand);
	case -ENAMETOOLONG:
		return failure_set(err, EXIT_USAGE, e, "%.60s...: the path is too long", operand);
	default:
		return failure(err, e, "%s: %s", operand, *s->why ? s->why : strerrordesc_np(-e));
	}
}

static int add_place(struct places *p, const char *operand, const char *path, struct failure *err)
{
	const struct place x = { operand, strdup(path) };

	if (x.path && ARRAY_ADD(p->p, p->n, p->room, x) == 0)
		return 0;
	free(x.path);
	return failure(err, -ENOMEM, "out of memory");
}

static int take_operand(struct places *p, const char *operand, bool first, struct failure *err)
{
	_cleanup_free_ struct spot *s = calloc(1, sizeof(*s));
	_cleanup_free_ char *path = malloc(PATH_MAX);
	int e;

	if (!s || !path)
		return failure(err, -ENOMEM, "out of memory");
	if (!*operand)
		return failure_set(err, EXIT_USAGE, -EINVAL,
				   "an operand is empty: it names no file");
	s->dirfd = -1;
	e = locate(s, operand, path);
	cleanup_closep(&s->dirfd);
	if (e)
		return refuse(p, operand, s, e, err);
	if (*p->name && strcmp(p->name, s->volume))
		return failure_set(err, EXIT_USAGE, -EXDEV,
				   "%s: lies on volume %s, not on volume %s", operand, s->volume,
				   p->name);
	strcpy(p->name, s->volume);
	p->composed |= s->composed;
	if (first && !*s->inside)
		return 0;
	return add_place(p, operand, s->inside, err);
}

void places_clear(struct places *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->p[i].path);
	free(p->p);
	*p = (struct places){ 0 };
}

int places_resolve(const struct options *o, struct places *ret)
{
	struct places p = { 0 };
	struct failure err;
	int e = 0;

	for (unsigned i = 0; i < o->operands && e == 0; i++)
		if (i || !names_volume(o->operand[i], p.name))
			e = take_operand(&p, o->operand[i], !i, &err);
	if (e < 0) {
		places_clear(&p);
		return cmd_failed(o, &err);
	}
	*ret = p;
	return EXIT_OK;
}

int places_add(struct places *p, const char *path, struct failure *err)
{
	return take_operand(p, path, false, err);
}

int places_add_below(struct places *p, const char *mountpoint, const char *path,
		     struct failure *err)
{
	size_t n = strcmp(mountpoint, "/") ? strlen(mountpoint) : 0;
	_cleanup_free_ char *inside = NULL;

	if (strncmp(path, mountpoint, n) || path[n] != '/')
		return failure_set(err, EXIT_USAGE, -EXDEV,
				   "%s: is not below %s, where volume %s was mounted", path,
				   mountpoint, p->name);
	inside = strdup(path + n);
	if (!inside)
		return failure(err, -ENOMEM, "out of memory");
	if (!rest_is_plain(inside))
		return failure_set(err, EXIT_USAGE, -EINVAL, "%s: has . or .. in it", path);
	return add_place(p, path, inside, err);
}
