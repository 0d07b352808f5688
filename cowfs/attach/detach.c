/* SPDX-License-Identifier: MIT */
#include "attach/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/mounts.h"
#include "cli/cmd.h"

#define ASK_AGAIN_US 100000

int leave_run(const char *const argv[])
{
	return leave_run_into(argv, -1);
}

int leave_run_into(const char *const argv[], int out_fd)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		if (out_fd >= 0 && (dup2(out_fd, STDOUT_FILENO) < 0 || dup2(out_fd, STDERR_FILENO) < 0))
			_exit(127);
		execvp(argv[0], (char *const *)argv);
		fprintf(stderr, "%s cannot be run: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid < 0)
		return 127;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct wanted {
	int proc_dirfd;
	const char *dir; /* NULL: anywhere */
	bool by_device;
	dev_t dev;
	/* of the last mount on dir, or the last one that shows the device */
	bool found;
	dev_t found_dev;
	char *ret_dir;
};

static int look_at_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct wanted *w = ctx;
	bool shows = w->by_device && mounts_shows(w->proc_dirfd, root_dirfd, m, w->dev);

	mounts_unescape(m->path);
	if (w->dir ? strcmp(m->path, w->dir) != 0 : !shows)
		return 0;
	w->found = !w->by_device || shows;
	w->found_dev = m->dev;
	if (w->ret_dir)
		snprintf(w->ret_dir, PATH_MAX, "%s", m->path);
	return 0;
}

static bool find_mount(struct wanted *w)
{
	_cleanup_close_ int proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	w->proc_dirfd = proc_dirfd;
	return mounts_each(proc_dirfd, "self", look_at_mount, w) == 0 && w->found;
}

bool leave_is_mounted(const char *dir, const char *device, char *ret_dir)
{
	struct wanted w = {.dir = dir, .by_device = true, .ret_dir = ret_dir};
	struct stat st;

	if (stat(device, &st) < 0 || !S_ISBLK(st.st_mode))
		return false;
	w.dev = st.st_rdev;
	return find_mount(&w);
}

bool leave_device_on(const char *dir, char ret_device[PATH_MAX])
{
	struct wanted w = {.dir = dir};
	char path[64], text[1024], *name;

	if (!find_mount(&w) || major(w.found_dev) == 0)
		return false;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/uevent", major(w.found_dev), minor(w.found_dev));
	if (io_read_text(AT_FDCWD, path, text, sizeof(text)) < 0 || !(name = strstr(text, "DEVNAME=")))
		return false;
	name[strcspn(name, "\n")] = '\0';
	snprintf(ret_device, PATH_MAX, "/dev/%s", name + strlen("DEVNAME="));
	return true;
}

static void take_refusal(struct json_object *answer, struct client_error *err)
{
	err->exit = EXIT_FAILED;
	err->error = strcmp(json_text(answer, "code"), "EBUSY") ? -EIO : -EBUSY;
	snprintf(err->why, sizeof(err->why), "%s", json_text(answer, "error"));
}

/* Once. */
static enum exit_code ask(const char *name, const struct request *rq, struct progress *progress,
			  struct client_error *err)
{
	struct json_object *answer;
	struct client c;
	bool ok;

	if (client_open(&c, name, err) < 0)
		return err->exit;
	answer = client_call(&c, rq, progress_event, progress, err);
	ok = answer && json_true(answer, "ok");
	if (ok)
		client_wait_gone(&c);
	else if (answer)
		take_refusal(answer, err);
	json_object_put(answer);
	client_close(&c);
	return ok ? EXIT_OK : err->exit;
}

enum exit_code leave_volume(const char *name, bool discard, unsigned patience_ms,
			    struct client_error *err)
{
	const struct request rq = {.command = COMMAND_DETACH, .discard = discard};
	uint64_t until_ns = now_ns() + patience_ms * 1000000ull;
	struct progress progress;
	enum exit_code exit;

	progress_start(&progress);
	while ((exit = ask(name, &rq, &progress, err)) != EXIT_OK && err->error == -EBUSY &&
	       now_ns() < until_ns)
		usleep(ASK_AGAIN_US);
	progress_end(&progress);
	return exit;
}
