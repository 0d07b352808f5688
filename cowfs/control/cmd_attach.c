/* SPDX-License-Identifier: MIT */
/* cowctl attach: starts the daemon and waits until its loop device answers. */
#include "control/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "control/ready.h"

/* The daemon that belongs to this cowctl lies beside it. */
static void exec_daemon(char **argv)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof("cowfs"));
	char *slash;

	if (n > 0) {
		path[n] = '\0';
		slash = strrchr(path, '/');
		memcpy(slash ? slash + 1 : path, "cowfs", sizeof("cowfs"));
		execv(path, argv);
	}
	execvp("cowfs", argv);
}

static __attribute__((noreturn)) void child(const struct options *o, int ready_fd)
{
	static const struct {
		enum cmd_option id;
		const char *name;
	} passed[] = {{OPT_NAME, "--name"}, {OPT_RAM, "--ram"}, {OPT_LOG, "--log"}};
	char fd_text[16];
	const char *argv[16] = {"cowfs", "--ready-fd", fd_text};
	size_t n = 3;
	struct ready r = {.exit = EXIT_FAILED};

	for (size_t i = 0; i < ARRAY_SIZE(passed); i++) {
		if (!has_option(o, passed[i].id))
			continue;
		argv[n++] = passed[i].name;
		argv[n++] = o->value[passed[i].id];
	}
	argv[n++] = "--";
	argv[n++] = o->operand[0];
	snprintf(fd_text, sizeof(fd_text), "%d", ready_fd);
	exec_daemon((char **)argv);
	r.error = -errno;
	snprintf(r.why, sizeof(r.why), "the daemon 'cowfs' cannot be started: %s", strerror(errno));
	ready_send(ready_fd, &r);
	_exit(EXIT_FAILED);
}

static void report(const struct options *o, const struct ready *r)
{
	char text[1024];
	struct jsonw w;

	if (!has_option(o, OPT_JSON)) {
		puts(r->loop);
		return;
	}
	jsonw_init(&w, text, sizeof(text));
	answer_ok(&w);
	jsonw_str(&w, "name", r->name);
	jsonw_str(&w, "device", o->operand[0]);
	jsonw_str(&w, "loop", r->loop);
	if (jsonw_finish(&w))
		fputs(text, stdout);
}

int cmd_attach(const struct options *o)
{
	struct ready r;
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return cmd_fail(o, EXIT_FAILED, -errno, "no pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		return cmd_fail(o, EXIT_FAILED, -errno, "no process: %s", strerror(errno));
	if (pid == 0) {
		close(fds[0]);
		fcntl(fds[1], F_SETFD, 0);
		child(o, fds[1]);
	}
	close(fds[1]);
	ready_wait(fds[0], &r);
	close(fds[0]);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (r.exit != EXIT_OK)
		return cmd_fail(o, r.exit, r.error, "%s", r.why);
	report(o, &r);
	return EXIT_OK;
}
