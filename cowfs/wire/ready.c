/* SPDX-License-Identifier: MIT */
#include "wire/ready.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <json-c/json.h>

#include "base/io.h"

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

static void copy_text(struct json_object *o, const char *key, char *buf, size_t size_bytes)
{
	const char *s = json_object_get_string(json_object_object_get(o, key));

	snprintf(buf, size_bytes, "%s", s ? s : "");
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

void ready_wait(int fd, struct ready *ret)
{
	struct json_object *o;
	char text[2048], code[32];
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
	o = len ? json_tokener_parse(text) : NULL;
	if (!json_object_is_type(o, json_type_object)) {
		json_object_put(o);
		return;
	}
	if (json_object_get_boolean(json_object_object_get(o, "ok"))) {
		*ret = (struct ready){ .exit = EXIT_OK };
		copy_text(o, "loop", ret->loop, sizeof(ret->loop));
		copy_text(o, "name", ret->name, sizeof(ret->name));
	} else {
		copy_text(o, "error", ret->why, sizeof(ret->why));
		copy_text(o, "code", code, sizeof(code));
		ret->error = errno_of(code);
		exit = json_object_get_int(json_object_object_get(o, "exit"));
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
