/* SPDX-License-Identifier: MIT */
/* cowctl view: mounts an image of a volume or a card, and leaves it to umount(8). */
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "attach/compose.h"
#include "attach/view_mount.h"
#include "base/clean.h"
#include "base/parse.h"
#include "base/path.h"
#include "card/blockdev.h"
#include "fs/fs_ops.h"
#include "offline/offline.h"
#include "wire/render.h"

/* log_state: of a card that is not attached; NULL: of a volume */
static void print_json(const char *name, const char *kind, const char *log_state, const char *dir,
		       const struct view_mount *m)
{
	struct jsonw *w = json_begin(true);

	jsonw_str(w, "name", name);
	jsonw_str(w, "kind", kind);
	jsonw_bool(w, "attached", !log_state);
	if (log_state)
		jsonw_str(w, "log_state", log_state);
	jsonw_u64(w, "generation", m->generation);
	jsonw_u64(w, "time_unix_seconds", m->time_s);
	jsonw_str(w, "fs_type", m->fs_type);
	jsonw_str(w, "disk", m->disk);
	jsonw_str(w, "dir", dir);
	json_end(w);
}

static void print(const struct options *o, const char *name, const char *dir, bool now,
		  const struct view_mount *m)
{
	char word[SHELL_WORD_BYTES];

	if (has_option(o, OPT_JSON))
		print_json(name, now ? "now" : "committed", NULL, dir, m);
	else
		printf("%s: %s%llu of %s on %s, read-only; umount %s ends the view\n", name,
		       now ? "snapshot after generation " : "generation ",
		       (unsigned long long)m->generation, format_time(m->time_s), CLEAN(dir),
		       shell_word(CLEAN(dir), word));
}

/* dir_fd: the root of the mount, which is attached to the folder at_fd. */
static int show(int dir_fd, int at_fd, const char *dir, struct failure *err)
{
	return move_mount(dir_fd, "", at_fd, "",
			  MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0
		       ? failure(err, -errno, "%s: cannot mount here: %s", dir,
				 strerrordesc_np(errno))
		       : 0;
}

/* The root that this volume is the upper of, as it was then. */
static int show_composed(struct view_mount *m, int at_fd, const char *dir, struct failure *err)
{
	_cleanup_close_ int fd = compose_open(m->dir_fd, false, err);

	if (fd < 0)
		return fd;
	m->fs_type = "overlay";
	return show(fd, at_fd, dir, err);
}

void cmd_view_warn(const struct view_mount *m, const char *name)
{
	if (m->unsynced)
		fprintf(stderr,
			"cowctl: volume %s: the file system could not be synced: files that were written last are old in this view, or "
			"missing. Commit first\n",
			name);
}

static int view_volume(const struct options *o, struct client *c, int at_fd, const char *dir)
{
	bool now = has_option(o, OPT_NOW), held = false;
	struct compose_state state;
	struct view_mount m;
	struct failure err;
	int r = has_option(o, OPT_GENERATION) ? choose_generation(o, c, NULL, &held) : EXIT_OK;

	if (r != EXIT_OK)
		return r;
	r = view_mount_open(c, now ? VIEW_NOW : held ? VIEW_HELD : VIEW_COMMITTED, &m, &err);
	if (r < 0)
		return cmd_failed(o, &err);
	r = !strcmp(c->name, ROOT_NAME) && compose_load(&state)
		    ? show_composed(&m, at_fd, dir, &err)
		    : show(m.dir_fd, at_fd, dir, &err);
	if (r == 0) {
		print(o, c->name, dir, now, &m);
		cmd_view_warn(&m, c->name);
	}
	view_mount_close(&m);
	return r < 0 ? cmd_failed(o, &err) : EXIT_OK;
}

/* ---- a card that is not attached ---- */

struct card_view {
	const char *device, *log_device;
	enum offline_image which;
	struct offline_view v;
};

static int serve_card(void *ctx, int fuse_fd, struct view_mount *m, struct failure *err)
{
	struct card_view *x = ctx;
	int r = offline_view(x->device, x->log_device, x->which, fuse_fd, &x->v, err);

	if (r < 0)
		return r;
	m->generation = x->v.generation;
	m->time_s = x->v.time_s;
	m->fs_type = fs_type_named(x->v.fs_type);
	return 0;
}

static bool is_gone(const char *path)
{
	struct card *c;
	int r = path ? blockdev_open(&c, path, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, NULL) : 0;
	bool gone;

	if (!path || r < 0)
		return path && r != -EBUSY && r != -EACCES;
	gone = card_lost(c, -EIO);
	card_close(c);
	return gone;
}

static int mount_card(struct card_view *x, enum view_use use, struct view_mount *ret,
		      struct failure *err)
{
	int r = view_mount_served(x->device, use, serve_card, x, ret, err);
	const char *lost = r != -EIO		    ? NULL
			   : is_gone(x->device)	    ? x->device
			   : is_gone(x->log_device) ? x->log_device
						    : NULL;

	return lost ? failure_set(err, EXIT_AWAY, -ENOMEDIUM, CARD_LOST, lost,
				  "Nothing was written")
		    : r;
}

static void print_card(const struct options *o, const struct card_view *x, const char *dir,
		       const struct view_mount *m)
{
	const struct log_open_report *log = &x->v.log;
	char word[SHELL_WORD_BYTES];

	if (has_option(o, OPT_JSON)) {
		print_json(x->device, "committed", log_state_name(log->state), dir, m);
		return;
	}
	if (m->generation)
		printf("%s: generation %s of %s on %s, read-only; umount %s ends the view\n",
		       CLEAN(x->device), with_commas(m->generation), format_time(m->time_s),
		       CLEAN(dir), shell_word(CLEAN(dir), word));
	else
		printf("%s: as before the first commit, on %s, read-only; umount %s ends the view\n",
		       CLEAN(x->device), CLEAN(dir), shell_word(CLEAN(dir), word));
	if (log->state == LOG_FELL_BACK)
		printf("  the newest commit is incomplete (%s): this is the previous generation\n",
		       CLEAN(log->why));
	if (log->base_changed)
		puts("  with later changes to the file system that were made without cowfs");
}

static int view_card(const struct options *o, int at_fd, const char *dir)
{
	struct card_view x = { .device = o->operand[0], .log_device = o->value[OPT_LOG] };
	struct view_mount m;
	struct failure err;
	int r;

	if (has_option(o, OPT_NOW))
		return cmd_fail(o, EXIT_NOT_RUNNING, -ESRCH,
				"%s: is not attached, so there is nothing uncommitted: leave --now "
				"out",
				x.device);
	if (geteuid() != 0)
		return cmd_fail(o, EXIT_FAILED, -EPERM, "%s: only root may mount a view", x.device);
#ifndef COWFS_RECOVER
	if (has_option(o, OPT_GENERATION)) {
		bool held;

		r = choose_generation(o, NULL, x.device, &held);
		if (r != EXIT_OK)
			return r;
		x.which = held ? OFFLINE_HELD : OFFLINE_NEWEST;
	}
#endif
	r = mount_card(&x, VIEW_READ, &m, &err);
	if (r < 0)
		return cmd_failed(o, &err);
	r = show(m.dir_fd, at_fd, dir, &err);
	if (r == 0)
		print_card(o, &x, dir, &m);
	view_mount_close(&m);
	return r < 0 ? cmd_failed(o, &err) : EXIT_OK;
}

/* ---- */

/* Also the link of another user: to open it says whose it is. */
static bool is_card(const char *path)
{
	char why[2 * PATH_MAX];
	_cleanup_close_ int fd = path_open(path, O_PATH, why, sizeof(why));
	struct stat st;

	return fd < 0 ? *why != '\0'
		      : fstat(fd, &st) == 0 && (S_ISBLK(st.st_mode) || S_ISREG(st.st_mode));
}

static int open_dir(const struct options *o, const char *dir, int *ret_fd)
{
	char why[2 * PATH_MAX];
	int fd = path_open(dir, O_PATH | O_DIRECTORY, why, sizeof(why));
	struct statx st;

	if (fd == -ENOTDIR && o->operands == 1 && is_card(dir))
		return cmd_usage(o, "name the directory, too: " COWCTL " view %s DIR", dir);
	if (fd < 0)
		return cmd_fail(o, EXIT_FAILED, fd, "%s: %s", dir,
				fd == -ENOTDIR ? "is not a directory"
				: *why	       ? why
					       : strerrordesc_np(-fd));
	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &st) == 0 &&
	    (st.stx_attributes & STATX_ATTR_MOUNT_ROOT)) {
		close(fd);
		return cmd_fail(
			o, EXIT_FAILED, -EBUSY,
			"%s: something is mounted there, which the view would hide: name another directory",
			dir);
	}
	*ret_fd = fd;
	return EXIT_OK;
}

#ifndef COWFS_RECOVER
int cmd_view_open(const struct options *o, const char *which, enum view_kind kind,
		  enum view_use use, struct view_mount *ret, struct failure *err)
{
	struct card_view x = { .device = which,
			       .log_device = o->value[OPT_LOG],
			       .which = kind == VIEW_HELD ? OFFLINE_HELD_BESIDE : OFFLINE_NEWEST };
	struct client c;
	int r = client_open(&c, which, err);

	if (r < 0 && which && err->exit == EXIT_NOT_RUNNING && is_card(which) && geteuid() != 0)
		return failure(err, -EPERM, "%s: only root may mount a view", which);
	if (r < 0 && which && err->exit == EXIT_NOT_RUNNING && is_card(which))
		return mount_card(&x, use, ret, err);
	if (r < 0)
		return r;
	r = (use == VIEW_DISK ? view_mount_disk : view_mount_open)(&c, kind, ret, err);
	if (r == 0)
		cmd_view_warn(ret, c.name);
	client_close(&c);
	return r;
}
#endif

int cmd_view(const struct options *o)
{
	const char *which = o->operands == 2 ? o->operand[0] : NULL;
	const char *dir = o->operands ? o->operand[o->operands - 1] : NULL;
	_cleanup_close_ int at_fd = -1;
	struct failure err;
	struct client c;
	int exit;

	if (!dir)
		return cmd_usage(o, "name the directory for the view");
	if (has_option(o, OPT_GENERATION) && has_option(o, OPT_NOW))
		return cmd_usage(o, "--generation and --now are mutually exclusive");
	exit = open_dir(o, dir, &at_fd);
	if (exit != EXIT_OK)
		return exit;
	if (client_open(&c, which, &err) < 0)
		return which && err.exit == EXIT_NOT_RUNNING && is_card(which)
			       ? view_card(o, at_fd, dir)
			       : cmd_failed(o, &err);
	exit = view_volume(o, &c, at_fd, dir);
	client_close(&c);
	return exit;
}
