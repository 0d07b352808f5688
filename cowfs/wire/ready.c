/* SPDX-License-Identifier: MIT */
#include "wire/ready.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/io.h"
#include "wire/client.h"
#include "wire/json.h"

void ready_send(int fd, const struct ready *r)
{
	char text[2048];
	struct jsonw w;
	size_t len;

	jsonw_init(&w, text, sizeof(text));
	if (r->exit == EXIT_OK) {
		answer_ok(&w);
		jsonw_str(&w, "loop", r->loop);
		jsonw_str(&w, "name", r->name);
	} else {
		answer_error(&w, r->error, r->exit, r->why);
	}
	len = jsonw_finish(&w);
	if (io_write_full(fd, text, len) < 0)
		return; /* the process that started us has ended */
}

bool ready_found(const char *name, struct ready *ret)
{
	struct facts f;

	client_facts(name, false, &f);
	if (!f.device[FACT_LOOP].rdev)
		return false;
	*ret = (struct ready){ .exit = EXIT_OK };
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	snprintf(ret->loop, sizeof(ret->loop), "%.31s", f.device[FACT_LOOP].path);
	return true;
}

static int errno_of(const char *code)
{
	for (int e = 1; e < 134; e++) {
		const char *name = strerrorname_np(e);

		if (name && !strcmp(name, code))
			return -e;
	}
	return -EIO;
}

void ready_wait(int fd, const char *name, struct ready *ret)
{
	struct json_object *o;
	char text[2048];
	size_t len = 0;
	int exit;
	ssize_t n = 1;

	while (n > 0 && len + 1 < sizeof(text) && !memchr(text, '\n', len)) {
		n = read(fd, text + len, sizeof(text) - 1 - len);
		if (n > 0)
			len += (size_t)n;
		else if (n < 0 && errno == EINTR)
			n = 1;
	}
	text[len] = '\0';
	*ret = (struct ready){ .exit = EXIT_FAILED,
			       .error = -ECHILD,
			       .why = "the daemon died while it started" };
	o = len ? answer_decode(text, len, -1, name) : NULL;
	if (json_true(o, "ok")) {
		(void)!ready_found(name, ret);
	} else if (o) {
		snprintf(ret->why, sizeof(ret->why), "%s", json_text(o, "error"));
		ret->error = errno_of(json_text(o, "code"));
		exit = (int)json_u64(o, "exit");
		if (exit == EXIT_USAGE || exit == EXIT_AWAY)
			ret->exit = (enum exit_code)exit;
	}
	json_object_put(o);
}

int ready_notify_open(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = -1;
	socklen_t len;

	if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof(a.sun_path))
		return -ENOENT;
	memcpy(a.sun_path, path, strlen(path));
	if (*path == '@')
		a.sun_path[0] = '\0';
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	unsetenv("NOTIFY_SOCKET");
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, len) < 0) {
		fprintf(stderr, "cowfs: cannot notify the service manager: %s\n", strerror(errno));
		return -errno;
	}
	return steal_fd(&fd);
}

void ready_notify(int fd, const char *status)
{
	char text[256];
	int n = snprintf(text, sizeof(text), "READY=1\nSTATUS=%s", status);

	if (send(fd, text, (size_t)n, MSG_NOSIGNAL) < 0)
		fprintf(stderr, "cowfs: cannot notify the service manager: %s\n", strerror(errno));
}
