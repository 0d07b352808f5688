/* SPDX-License-Identifier: MIT */
/* cowctl view: mounts an image of a volume, and leaves it to umount(8). */
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

static void print(const struct options *o, const char *name, const char *dir, bool now,
		  const struct view_mount *m)
{
	char text[8 * KIB];
	struct jsonw w;

	if (!has_option(o, OPT_JSON)) {
		printf("%s: %s%llu of %s on %s, read-only; umount %s ends the view\n", name,
		       now ? "snapshot after generation " : "generation ",
		       (unsigned long long)m->generation, format_time(m->time_s), CLEAN(dir),
		       CLEAN(dir));
		return;
	}
	jsonw_init(&w, text, sizeof(text));
	answer_ok(&w);
	jsonw_str(&w, "name", name);
	jsonw_str(&w, "kind", now ? "now" : "committed");
	jsonw_u64(&w, "generation", m->generation);
	jsonw_u64(&w, "time_unix_seconds", m->time_s);
	jsonw_str(&w, "fs_type", m->fs_type);
	jsonw_str(&w, "disk", m->disk);
	jsonw_str(&w, "dir", dir);
	if (jsonw_finish(&w))
		fputs(text, stdout);
}

/* The root that this volume is the upper of, as it was then. */
static int show_composed(struct view_mount *m, const char *dir, struct failure *err)
{
	_cleanup_close_ int fd = compose_open(m->dir_fd, false, err);

	if (fd < 0)
		return fd;
	snprintf(m->fs_type, sizeof(m->fs_type), "overlay");
	return move_mount(fd, "", AT_FDCWD, dir, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_SYMLINKS) <
			       0
		       ? failure_set(err, EXIT_FAILED, -errno, "%s: cannot mount here: %s", dir,
				     strerrordesc_np(errno))
		       : 0;
}

int cmd_view(const struct options *o)
{
	bool now = has_option(o, OPT_NOW);
	const char *which = o->operands == 2 ? o->operand[0] : NULL;
	const char *dir = o->operands ? o->operand[o->operands - 1] : NULL;
	struct compose_state state;
	struct view_mount m;
	struct failure err;
	struct client c;
	struct stat st;
	bool composed;
	int r;

	if (!dir)
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "name the directory for the view");
	if (now && has_option(o, OPT_COMMITTED))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--now and --committed exclude each other");
	if (stat(dir, &st) < 0)
		return cmd_fail(o, EXIT_FAILED, -errno, "%s: %s", dir, strerrordesc_np(errno));
	if (!S_ISDIR(st.st_mode))
		return cmd_fail(o, EXIT_FAILED, -ENOTDIR, "%s: is not a directory", dir);
	if (client_open(&c, which, &err) < 0)
		return cmd_failed(o, &err);
	composed = !strcmp(c.name, ROOT_NAME) && compose_load(&state);
	r = view_mount_open(&c, now ? VIEW_NOW : VIEW_COMMITTED, composed ? NULL : dir, &m, &err);
	if (r == 0) {
		if (composed)
			r = show_composed(&m, dir, &err);
		if (r == 0)
			print(o, c.name, dir, now, &m);
		view_mount_close(&m);
	}
	client_close(&c);
	return r < 0 ? cmd_failed(o, &err) : EXIT_OK;
}
