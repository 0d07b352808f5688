/* SPDX-License-Identifier: MIT */
#include "attach/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clean.h"
#include "base/io.h"
#include "base/kernel.h"
#include "base/path.h"
#include "base/program.h"
#include "wire/client.h"
#include "config/conf.h"
#include "attach/leftover.h"

#define END_WAIT_MS 20000
#define ARGS_MAX (VOLOPTS + 8)
/* systemd's word splitting leaves these characters unchanged */
#define PLAIN_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-=:@+,%"

/* The arguments of the daemon, "--name=value" each. */
struct arguments {
	char device[PATH_MAX], log[PATH_MAX], name[RUNDIR_NAME_BYTES];
	char *word[ARGS_MAX];
	size_t words;
};

static PRINTF(4, 5) void tell(struct ready *r, enum exit_code exit, int error, const char *fmt, ...)
{
	va_list ap;

	*r = (struct ready){ .exit = exit, .error = error };
	va_start(ap, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
}

/* ---- arguments ---- */

static int add(struct arguments *a, const char *name, const char *value)
{
	char *word;

	if (asprintf(&word, "%s%s%s", name, value ? "=" : "", value ? value : "") < 0)
		return -ENOMEM;
	a->word[a->words++] = word;
	return 0;
}

/* False: another user decides what path leads to. Opening it reports any other reason. */
static bool resolve(const char *path, char ret_name[PATH_MAX], struct ready *ret)
{
	char why[2 * PATH_MAX];
	int e = path_name(path, ret_name, why, sizeof(why));

	if (e < 0)
		tell(ret, EXIT_FAILED, e, "%s: %s", path, why);
	return e == 0;
}

static int add_options(struct arguments *a, const struct volopts *o)
{
	char name[32];
	int e = 0;

	for (size_t id = 0; e == 0 && id < VOLOPTS; id++) {
		const char *value = o->text[id];

		if (id == VOLOPT_LOG && value)
			value = a->log;
		snprintf(name, sizeof(name), "--%s", volopt_name((enum volopt)id));
		if (value)
			e = add(a, name, value);
	}
	return e;
}

static int make_arguments(struct arguments *a, const struct volopts *o, unsigned flags)
{
	const char *name = o->text[VOLOPT_NAME], *slash;
	int e = add_options(a, o);

	slash = strrchr(a->device, '/');
	name = name ? name : slash ? slash + 1 : a->device;
	if (rundir_name_valid(name))
		memcpy(a->name, name, strlen(name) + 1);
	if (e == 0 && (flags & LAUNCH_BOOT))
		e = add(a, "--running-root", NULL);
	if (e == 0)
		e = add(a, "--", NULL);
	return e == 0 ? add(a, a->device, NULL) : e;
}

static void free_arguments(struct arguments *a)
{
	while (a->words)
		free(a->word[--a->words]);
}

/* ---- a daemon without a service ---- */

/* The daemon that belongs to this program is installed beside it. */
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

static __attribute__((noreturn)) void child(const struct arguments *a, int ready_fd)
{
	char program[] = "cowfs", fd_text[32];
	char *argv[ARGS_MAX + 3] = { program, fd_text };
	struct ready r;

	for (size_t i = 0; i < a->words; i++)
		argv[2 + i] = a->word[i];
	snprintf(fd_text, sizeof(fd_text), "--ready-fd=%d", ready_fd);
	exec_daemon(argv);
	tell(&r, EXIT_FAILED, -errno, "cannot start the daemon 'cowfs': %s", strerror(errno));
	ready_send(ready_fd, &r);
	_exit(EXIT_FAILED);
}

/*
 * A daemon that could not start reports that before it undoes its work. It holds the card until
 * its last process has ended.
 */
static void wait_end(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char rest[64];

	while (poll(&p, 1, END_WAIT_MS) > 0 && read(fd, rest, sizeof(rest)) > 0)
		;
}

static void start_child(const struct arguments *a, struct ready *ret)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0) {
		tell(ret, EXIT_FAILED, -errno, "no pipe: %s", strerror(errno));
		return;
	}
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0); /* Ctrl-C is for the program that waits */
		close(fds[0]);
		fcntl(fds[1], F_SETFD, 0);
		child(a, fds[1]);
	}
	close(fds[1]);
	if (pid < 0)
		tell(ret, EXIT_FAILED, -errno, "no process: %s", strerror(errno));
	else
		ready_wait(fds[0], a->name, ret);
	if (pid > 0 && ret->exit != EXIT_OK)
		wait_end(fds[0]);
	close(fds[0]);
	(void)program_wait(pid);
}

/* ---- a service ---- */

/* ARGS_FILE is written for the unit, ERROR_FILE by it */
#define ARGS_FILE ".%s.args"
#define ERROR_FILE ".%s.error"

/* True under systemd, unless this is a test. */
static bool service_possible(const struct arguments *a)
{
	if (strcmp(rundir_path(), "/run/cowfs") || access("/run/systemd/system", F_OK) < 0 ||
	    geteuid() != 0 || !*a->name)
		return false;
	for (size_t i = 0; i < a->words; i++)
		if (strspn(a->word[i], PLAIN_CHARS) != strlen(a->word[i]))
			return false;
	return true;
}

static int write_arguments(const struct arguments *a)
{
	char path[PATH_MAX];
	FILE *f;
	int e;

	if (mkdir(rundir_path(), 0755) < 0 && errno != EEXIST)
		return -errno;
	unlink(rundir_file(path, ERROR_FILE, a->name));
	f = fopen(rundir_file(path, ARGS_FILE, a->name), "we");
	if (!f)
		return -errno;
	fputs("COWFS_ARGS=", f);
	for (size_t i = 0; i < a->words; i++)
		fprintf(f, "%s%s", i ? " " : "", a->word[i]);
	fputc('\n', f);
	e = ferror(f) ? -EIO : 0;
	return fclose(f) == 0 ? e : -errno;
}

/*
 * The exit status of systemctl start, which returns once the daemon has reported that it is ready.
 */
static int systemctl_start(const char *name)
{
	char unit[RUNDIR_NAME_BYTES + 32];
	int null_fd;
	pid_t pid;

	snprintf(unit, sizeof(unit), "cowfs@%s.service", name);
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0); /* Ctrl-C is for the program that waits */
		null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		for (int fd = 0; fd < 3; fd++)
			/* it only refers to the journal; our message says more */
			dup2(null_fd, fd);
		execlp("systemctl", "systemctl", "--no-ask-password", "start", unit, (char *)NULL);
		_exit(127);
	}
	return program_wait(pid);
}

/* Reads what the daemon wrote on its standard error: "cowfs: why". */
static void read_error(const struct arguments *a, char *buf, size_t buf_bytes)
{
	static const char prefix[] = "cowfs: ";
	char path[PATH_MAX];
	char *start;

	if (io_read_text(AT_FDCWD, rundir_file(path, ERROR_FILE, a->name), buf, buf_bytes) <= 0)
		buf[0] = '\0';
	start = strncmp(buf, prefix, strlen(prefix)) ? buf : buf + strlen(prefix);
	memmove(buf, start, strlen(start) + 1);
	buf[strcspn(buf, "\n")] = '\0';
}

/* False: a service could not be tried. */
static bool start_service(const struct arguments *a, struct ready *ret)
{
	char attached[RUNDIR_NAME_BYTES], path[PATH_MAX], why[512];
	int exit;

	if (!service_possible(a) || write_arguments(a) < 0)
		return false;
	client_find_device(a->device, attached);
	if (*attached) { /* systemctl would accept a service that already runs */
		tell(ret, EXIT_FAILED, -EBUSY, "%s is already attached as volume %s", a->device,
		     attached);
		return true;
	}
	exit = systemctl_start(a->name);
	read_error(a, why, sizeof(why));
	unlink(rundir_file(path, ARGS_FILE, a->name));
	unlink(rundir_file(path, ERROR_FILE, a->name));
	client_find_device(a->device, attached);
	if (exit == 0 && !strcmp(attached, a->name) && ready_found(a->name, ret))
		return true;
	if (exit == 0)
		tell(ret, EXIT_FAILED, -EBUSY,
		     "another volume is attached as %s: choose a name with --name", a->name);
	else if (*why)
		tell(ret, EXIT_FAILED, -EIO, "%s", why);
	else
		return false; /* no such unit, or systemd cannot be reached */
	return true;
}

/* ---- both ---- */

/* udev examined both devices before the status could identify them. */
static void tell_udev(const char *device)
{
	const char *slash = strrchr(device, '/');
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "/sys/class/block/%s/uevent", slash ? slash + 1 : device);
	(void)!io_write_text(AT_FDCWD, path, "change");
}

enum exit_code launch_configure(const char *device, struct volopts *o, struct conf **ret_conf,
				struct ready *ret)
{
	struct conf *c = NULL;
	char why[512];
	int e = conf_load_and_tell(&c, why, sizeof(why));

	if (e == 0)
		e = conf_volume(c, device, o, why, sizeof(why));
	if (e < 0) {
		conf_free(c);
		tell(ret, e == -EINVAL ? EXIT_USAGE : EXIT_FAILED, e, "%s", why);
		return ret->exit;
	}
	*ret_conf = c;
	return EXIT_OK;
}

void launch_volume(const char *device, const struct volopts *o, unsigned flags, struct ready *ret)
{
	struct arguments a = { 0 };
	struct volopts all = *o;
	struct conf *c;
	char why[128];
	int e = kernel_check(NULL, why, sizeof(why));

	if (e < 0) {
		tell(ret, EXIT_FAILED, e, "%s", why);
		return;
	}
	if (!resolve(device, a.device, ret) || launch_configure(device, &all, &c, ret) != EXIT_OK)
		return;
	if (all.text[VOLOPT_LOG] && !resolve(all.text[VOLOPT_LOG], a.log, ret)) {
		conf_free(c);
		return;
	}
	if (!(flags & LAUNCH_BOOT))
		leftover_clear_and_tell(true);
	if (make_arguments(&a, &all, flags) < 0)
		tell(ret, EXIT_FAILED, -ENOMEM, "out of memory");
	else if ((flags & LAUNCH_BOOT) || !start_service(&a, ret))
		start_child(&a, ret);
	if (ret->exit == EXIT_OK) {
		tell_udev(a.device);
		tell_udev(ret->loop);
	}
	free_arguments(&a);
	conf_free(c);
}
