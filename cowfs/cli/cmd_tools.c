/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"
#include "base/program.h"
#include "cli/cmd.h"

#define PREFIX "cowctl-"

/* Programs that were built and not installed lie in libexec beside cowctl. */
static int tools_folder(char path[PATH_MAX])
{
	const char *dir = secure_getenv("COWFS_LIBEXEC");
	int e;

	if (dir && *dir)
		return snprintf(path, PATH_MAX, "%s", dir) < PATH_MAX ? 0 : -ENAMETOOLONG;
	e = cmd_beside(path, "/../libexec", "cowfs");
	return e == 0 && access(path, F_OK) < 0 ? cmd_beside(path, "", "libexec") : e;
}

static int tool_path(char path[PATH_MAX], const char *name)
{
	int e = strchr(name, '/') ? -ENOENT : tools_folder(path);
	size_t len = e == 0 ? strlen(path) : 0, left = PATH_MAX - len;

	if (e < 0)
		return e;
	return snprintf(path + len, left, "/" PREFIX "%s", name) < (int)left ? 0 : -ENAMETOOLONG;
}

bool cmd_has_tool(const char *name)
{
	char path[PATH_MAX];

	return tool_path(path, name) == 0 && access(path, X_OK) == 0;
}

void cmd_print_tools(FILE *f)
{
	char path[PATH_MAX];
	glob_t g = { 0 };

	if (tool_path(path, "*") < 0 || glob(path, 0, NULL, &g) != 0)
		return;
	fputs("Installed tools:", f);
	for (size_t i = 0; i < g.gl_pathc; i++)
		if (access(g.gl_pathv[i], X_OK) == 0)
			fprintf(f, " %s", strrchr(g.gl_pathv[i], '/') + strlen("/" PREFIX));
	fputc('\n', f);
	globfree(&g);
}

/* needs: the interpreter that its first line names. Is that not there? */
static bool lacks(const char *path, char needs[64])
{
	FILE *f = fopen(path, "re");
	bool named = f && fscanf(f, "#!%63s", needs) == 1;

	if (f)
		fclose(f);
	return named && access(needs, X_OK) < 0;
}

static int missing(const struct options *o, const char *what, const char *path, int error)
{
	char needs[64];

	if (error != -ENOENT)
		return cmd_fail(o, EXIT_FAILED, error, "%s: %s", what, strerrordesc_np(-error));
	if (lacks(path, needs))
		return cmd_fail(o, EXIT_FAILED, error, "%s: it needs %s", what, needs);
	return cmd_fail(o, EXIT_FAILED, error, "%s: %s: it is in the package cowfs-tools", what,
			strerrordesc_np(ENOENT));
}

int cmd_tool(char **argv)
{
	struct options o = { 0 };
	char path[PATH_MAX] = "", own[PATH_MAX];
	int e = tool_path(path, argv[1]), argc = 0;

	if (e == 0 && cmd_beside(own, "", COWCTL) == 0)
		setenv("COWCTL", own, 1); /* which it may run */
	if (e == 0) {
		execv(path, argv + 1);
		e = -errno;
	}
	while (argv[argc])
		argc++;
	if (options_name_given(argc, argv, "json"))
		o.value[OPT_JSON] = "";
	return missing(&o, argv[1], path, e);
}

/* The document as a file. */
static int document_fd(struct json_object *doc)
{
	const char *text = json_object_to_json_string_ext(
		doc, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	int fd = text ? memfd_create("document", MFD_CLOEXEC) : -1;
	int e = fd < 0 ? -errno : io_pwrite_full(fd, text, strlen(text), 0);

	if (e == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return e < 0 ? e : -ENOMEM;
}

int cmd_filter(const struct options *o, const char *argv[], struct json_object *doc, char **ret,
	       size_t *ret_bytes)
{
	_cleanup_close_ int in = document_fd(doc), out = memfd_create("result", MFD_CLOEXEC);
	char path[PATH_MAX] = "", what[64], needs[64], why[512];
	off_t end;
	int e = in < 0 ? in : out < 0 ? -errno : tool_path(path, argv[0]), status;

	snprintf(what, sizeof(what), "%s", argv[0]);
	if (e == 0 && access(path, X_OK) < 0)
		e = -errno;
	if (e == 0 && lacks(path, needs))
		e = -ENOENT;
	if (e < 0)
		return missing(o, what, path, e);
	argv[0] = path;
	status = program_run(argv, in, out);
	if (status) {
		program_output(out, path, what, why, sizeof(why));
		why[strcspn(why, "\n")] = '\0';
		return cmd_fail(o, EXIT_FAILED, -EIO, "%s: %s (exit %d)", what, why, status);
	}
	end = lseek(out, 0, SEEK_END);
	*ret = end < 0 ? NULL : calloc(1, (size_t)end + 1);
	*ret_bytes = (size_t)end;
	if (!*ret)
		return cmd_fail(o, EXIT_FAILED, -ENOMEM, "no memory");
	e = io_pread_full(out, *ret, *ret_bytes, 0);
	if (e == 0)
		return EXIT_OK;
	free(*ret);
	return cmd_fail(o, EXIT_FAILED, e, "%s: %s", what, strerrordesc_np(-e));
}
