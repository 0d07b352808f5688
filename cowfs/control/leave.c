/* SPDX-License-Identifier: MIT */
#include "control/leave.h"

#include <errno.h>
#include <limits.h>
#include <mntent.h>
#include <string.h>
#include <sys/wait.h>

#include "control/cmd.h"

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

bool leave_find_mount(const char *dir, const char *source, char *ret_dir, char *ret_source)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	char line[4 * PATH_MAX];
	struct mntent m;
	bool found = false;

	while (f && getmntent_r(f, &m, line, sizeof(line))) {
		if ((dir && strcmp(m.mnt_dir, dir)) || (source && strcmp(m.mnt_fsname, source)))
			continue;
		found = true;
		if (ret_dir)
			snprintf(ret_dir, PATH_MAX, "%s", m.mnt_dir);
		if (ret_source)
			snprintf(ret_source, PATH_MAX, "%s", m.mnt_fsname);
	}
	if (f)
		endmntent(f);
	return found;
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
