/* SPDX-License-Identifier: MIT */
/*
 * The daemon: arguments, start in order, end in order. These processes take part in a start:
 *	starter     the process that was called; waits for the line of ready.h, shows it, and exits
 *	supervisor  child of the starter: the small parent of daemon/supervisor.h
 *	spare	    child of the supervisor: forks the next worker if this one dies
 *	worker      child of the supervisor: everything else
 *
 * With --foreground the starter waits for the supervisor and ends with its status, because the
 * supervisor leaves the cgroup in which a service manager kills its main process. A failure before
 * the line was sent is undone and reported through the line. Afterwards messages go to the kernel
 * log.
 */
#include "daemon/cowfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/broker.h"
#include "base/clean.h"
#include "base/invariant.h"
#include "base/kernel.h"
#include "base/mounts.h"
#include "base/msg.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/program.h"
#include "base/sandbox.h"
#include "card/blockdev.h"
#include "fs/fsproc.h"
#include "daemon/broker_serve.h"
#include "daemon/cgroup.h"
#include "daemon/confine.h"
#include "wire/client.h"
#include "wire/facts.h"
#include "daemon/supervisor.h"
#include "config/options.h"
#include "wire/ready.h"
#include "daemon/server.h"
#include "config/volopt.h"
#include "export/transport.h"

#define READ_AHEAD_KB 128
#define FILES_MIN 64
#define AWAY_LIMIT_NS (300 * 1000000000ull)
/* FUSE_NOTIFY_RESEND */
#define REPLACE_MAJOR 6
#define REPLACE_MINOR 9

enum { OPT_RUNNING_ROOT = VOLOPTS, OPT_FOREGROUND, OPT_READY_FD, OPT_HELP, OPT_VERSION };

static const struct option_spec specs[] = {
	VOLOPT_SPECS{ OPT_RUNNING_ROOT, "running-root", NULL,
		      "the volume becomes the root: reboot if the daemon dies" },
	{ OPT_FOREGROUND, "foreground", NULL, "do not go to the background" },
	{ OPT_READY_FD, "ready-fd", "FD", "write a line of JSON to this descriptor once started" },
	{ OPT_HELP, "help", NULL, "show this help" },
	{ OPT_VERSION, "version", NULL, "show the version" },
	{ 0, NULL, NULL, NULL },
};

struct daemon {
	/* arguments */
	char *argv0;
	char device[PATH_MAX], log_device[PATH_MAX], name[RUNDIR_NAME_BYTES];
	struct volopts opt;
	struct profile_choice profile;
	bool running_root, foreground;
	int ready_fd; /* -1: the worker writes to the terminal itself */
	bool replace, halt;
	const char *replace_why;
	/* what has been started; undone in reverse order */
	int proc_dirfd, dev_dirfd, sys_dirfd;
	struct supervisor_link link;
	/* what a worker gets while it is root */
	bool other_user; /* it can become uid and gid */
	uid_t uid;
	gid_t gid;
	int notify_fd; /* to the starter, in the foreground; -1: nobody waits */
	int null_fd, meminfo_fd, listen_fd, mount_fd, abort_fd;
	struct cgroup_limit limit;
	struct volume_prepared prepared;
	struct volume *volume;
	struct rundir dir;
	struct transport *transport;
	bool started;
	struct server *server;
	sem_t ended;
	/* of a worker that has died */
	int kept[SUPERVISOR_KEPT_MAX];
	bool halted;
	struct daemon_kept *shared;
};

/* In memory that lives as long as the volume's RAM. */
struct daemon_kept {
	struct transport_kept transport;
	uint32_t replaced; /* number of workers */
};

/* What the parent keeps. */
enum {
	KEPT_VOLUME = SUPERVISOR_KEPT,
	KEPT_DISK = KEPT_VOLUME + VOLUME_FDS,
	KEPT_LOCK,
	KEPT_LISTEN,
	KEPT_RUN_PARENT,
	KEPT_RUN,
	KEPT_DEV,
	KEPT_SYS,
	KEPT_N
};
_Static_assert(sizeof(struct broker_root) <= SUPERVISOR_ROOT_BYTES, "room for what brokers know");
_Static_assert(KEPT_N <= SUPERVISOR_KEPT_MAX, "room for what is kept");

/* ---- reporting the start ---- */

static int report(const struct daemon *d, const struct ready *r)
{
	if (d->link.replaces)
		msg(MSG_ERR, "%s: cannot take over: %s", d->name, CLEAN(r->why));
	else if (d->ready_fd >= 0)
		ready_send(d->ready_fd, r);
	else if (r->exit == EXIT_OK)
		(void)!write(STDOUT_FILENO, r->loop, strlen(r->loop)),
			(void)!write(STDOUT_FILENO, "\n", 1);
	else
		fprintf(stderr, "cowfs: %s\n", CLEAN(r->why));
	return r->exit;
}

static PRINTF(4, 5) int fail(const struct daemon *d, enum exit_code exit, int error,
			     const char *fmt, ...)
{
	struct ready r = { .exit = exit, .error = error };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r.why, sizeof(r.why), fmt, ap);
	va_end(ap);
	return report(d, &r);
}

/* ---- arguments ---- */

static int resolve(const struct daemon *d, const char *path, char ret_name[PATH_MAX])
{
	char why[2 * PATH_MAX];
	int e = path_name(path, ret_name, why, sizeof(why));

	return e < 0 ? fail(d, EXIT_FAILED, e, "%s: %s", path, why) : EXIT_OK;
}

static int take_name(struct daemon *d)
{
	const char *name = d->opt.text[VOLOPT_NAME], *slash = strrchr(d->device, '/');

	if (!name) {
		name = slash ? slash + 1 : d->device;
		if (!rundir_name_valid(name))
			return fail(d, EXIT_USAGE, -EINVAL, "'%s' " RUNDIR_NO_NAME, name);
	}
	memcpy(d->name, name, strlen(name) + 1);
	return EXIT_OK;
}

static int take_ready_fd(struct daemon *d, const char *text)
{
	uint64_t fd;

	if (!text)
		return EXIT_OK;
	if (parse_u64(text, &fd) < 0 || fd > INT_MAX || fcntl((int)fd, F_GETFD) < 0)
		return fail(d, EXIT_USAGE, -EBADF, "--ready-fd %s is not open", text);
	d->ready_fd = (int)fd;
	return EXIT_OK;
}

/* 0 if the option was not given */
static uint64_t value_of(const struct daemon *d, enum volopt id)
{
	return d->opt.text[id] ? volopt_value(id, d->opt.text[id]) : 0;
}

static int take_arguments(struct daemon *d, const struct options *o)
{
	char why[256];
	int exit = take_ready_fd(d, o->value[OPT_READY_FD]);

	if (exit != EXIT_OK)
		return exit;
	if (o->operands != 1)
		return fail(d, EXIT_USAGE, -EINVAL,
			    "usage: cowfs [OPTION]... DEVICE (try 'cowfs --help')");
	if (volopts_of_command(o, &d->opt, why, sizeof(why)) < 0)
		return fail(d, EXIT_USAGE, -EINVAL, "%s", why);
	exit = resolve(d, o->operand[0], d->device);
	if (exit == EXIT_OK && d->opt.text[VOLOPT_LOG])
		exit = resolve(d, d->opt.text[VOLOPT_LOG], d->log_device);
	if (exit != EXIT_OK)
		return exit;
	d->running_root = o->value[OPT_RUNNING_ROOT] != NULL;
	d->foreground = o->value[OPT_FOREGROUND] != NULL;
	return take_name(d);
}

/* A root that answers with errors leaves a system that cannot be used any more. */
static uint64_t away_limit_ns(const struct daemon *d)
{
	if (d->opt.text[VOLOPT_AWAY_LIMIT])
		return value_of(d, VOLOPT_AWAY_LIMIT);
	return d->running_root ? UINT64_MAX : AWAY_LIMIT_NS;
}

/* Before anything starts: a kernel that cannot do it is refused with one sentence. */
static int check_kernel(struct daemon *d)
{
	uint64_t wait_s;
	char why[256];
	int e = kernel_check(NULL, why, sizeof(why));

	if (e == 0)
		e = transport_check(why, sizeof(why));
	wait_s = e == 0 ? fuse_longest_wait_s() : 0;
	if (wait_s && wait_s * 1000000000ull < away_limit_ns(d))
		msg(MSG_WARN,
		    "%s: Linux ends the volume, and all that is not committed is lost, when a read has waited for %llu s, for "
		    "example while the card is away. Before the attach: sysctl fs.fuse.default_request_timeout=0 "
		    "fs.fuse.max_request_timeout=0. Or: away-limit below %llu s",
		    d->name, (unsigned long long)wait_s, (unsigned long long)wait_s);
	return e < 0 ? fail(d, EXIT_FAILED, e, "%s", why) : EXIT_OK;
}

/* Is a worker that dies replaced? Tests set another default. */
static void choose_on_crash(struct daemon *d)
{
	const char *text = d->opt.text[VOLOPT_ON_CRASH];
	uint64_t what;

	d->replace_why = text ? "asked for" : "the default";
	if (!text)
		text = secure_getenv("COWFS_ON_CRASH");
	what = text ? volopt_value(VOLOPT_ON_CRASH, text) : ON_CRASH_REPLACE;
	d->replace = what != ON_CRASH_STOP;
	d->halt = what == ON_CRASH_REPLACE;
	if (d->replace && !kernel_is(REPLACE_MAJOR, REPLACE_MINOR)) {
		d->replace = false;
		d->replace_why = "replacing a worker needs Linux 6.9";
	}
}

/* ---- becoming a daemon ---- */

/*
 * Closes inherited descriptors: a pipe of a test runner or a shell must not stay open as long as
 * the volume.
 */
static void close_inherited(int keep_fd)
{
	if (keep_fd > 3)
		close_range(3, (unsigned)keep_fd - 1, 0);
	close_range(keep_fd >= 3 ? (unsigned)keep_fd + 1 : 3, UINT_MAX, 0);
}

/* Waits for the worker's line and shows it. */
static __attribute__((noreturn)) void starter(int fd, const char *name)
{
	struct ready r;

	ready_wait(fd, name, &r);
	if (r.exit == EXIT_OK)
		puts(r.loop);
	else
		fprintf(stderr, "cowfs: %s\n", r.why);
	fflush(stdout);
	_exit(r.exit);
}

/* Returns in the process that becomes the supervisor. */
static int go_background(struct daemon *d)
{
	bool own_pipe = d->ready_fd < 0;
	int fds[2] = { -1, -1 };
	pid_t pid;

	if (own_pipe && pipe2(fds, O_CLOEXEC) < 0)
		return fail(d, EXIT_FAILED, -errno, "no pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		return fail(d, EXIT_FAILED, -errno, "no process: %s", strerror(errno));
	if (pid > 0) {
		if (!own_pipe)
			/* the process that gave us the descriptor waits for the line */
			_exit(EXIT_OK);
		close(fds[1]);
		starter(fds[0], d->name);
	}
	if (own_pipe) {
		close(fds[0]);
		d->ready_fd = fds[1];
	}
	setsid();
	cgroup_leave(d->proc_dirfd);
	return EXIT_OK;
}

/* The worker writes a byte when it is ready. It has read the card by then, so it says no more. */
static void notify_when_ready(const struct daemon *d, int pipe_fd, int notify_fd)
{
	char status[RUNDIR_NAME_BYTES + 16], byte;
	ssize_t n;

	snprintf(status, sizeof(status), "volume %s", d->name);
	while ((n = read(pipe_fd, &byte, 1)) < 0 && errno == EINTR)
		;
	if (n == 1)
		ready_notify(notify_fd, status);
	close(pipe_fd);
	close(notify_fd);
}

/*
 * Returns in the process that becomes the supervisor. The starter is the main process of the service, and
 * the only one that the service manager believes.
 */
static int stay_foreground(struct daemon *d)
{
	int notify_fd = ready_notify_open(), fds[2] = { -1, -1 };
	pid_t pid;

	if (notify_fd >= 0 && pipe2(fds, O_CLOEXEC) < 0)
		return fail(d, EXIT_FAILED, -errno, "no pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		return fail(d, EXIT_FAILED, -errno, "no process: %s", strerror(errno));
	if (pid == 0) {
		if (notify_fd >= 0) {
			close(notify_fd);
			close(fds[0]);
		}
		d->notify_fd = fds[1];
		return EXIT_OK;
	}
	cleanup_closep(&d->ready_fd); /* otherwise the reader would not see the end of the pipe */
	(void)!harden_process(HARDEN_OOM | HARDEN_SIGNALS | HARDEN_DIR, d->argv0);
	(void)!harden_confine(HARDEN_CAPABILITIES | HARDEN_CALLS, CONFINE_PARENT);
	if (notify_fd >= 0) {
		close(fds[1]);
		notify_when_ready(d, fds[0], notify_fd);
	}
	_exit(program_wait(pid));
}

static int start_supervisor(struct daemon *d)
{
	const struct supervisor_opts opts = {
		.running_root = d->running_root,
		.foreground = d->foreground,
		.replace = d->replace,
		.halt = d->halt,
		.proc_dirfd = d->proc_dirfd,
		.argv0 = d->argv0,
		.kmsg_fd = -1,
	};
	int e = supervisor_start(&opts, &d->link);

	if (e == -EACCES || e == -EPERM)
		return fail(d, EXIT_FAILED, e, "permission denied: only root may attach a volume");
	if (e < 0)
		return fail(d, EXIT_FAILED, e, "no parent process: %s", strerrordesc_np(-e));
	return EXIT_OK;
}

/* ---- the worker's start ---- */

static int explain_open(const struct daemon *d, int e, const char *why)
{
	char name[RUNDIR_NAME_BYTES] = "";

	if (e == -EBUSY) {
		client_find_device(d->device, name);
		if (!*name && d->log_device[0])
			client_find_device(d->log_device, name);
	}
	if (*name)
		return fail(d, EXIT_FAILED, e, "%s is already attached as volume %s", d->device,
			    name);
	if (e == -EROFS)
		return fail(d, EXIT_FAILED, e, CARD_LOCKED, d->device);
	return fail(d, e == -ENOMEDIUM ? EXIT_AWAY : EXIT_FAILED, e, "%s",
		    *why ? why : strerrordesc_np(-e));
}

static int choose_profile(struct daemon *d)
{
	const char *text = d->opt.text[VOLOPT_PROFILE];
	char model[192], identity[64], why[512] = "";
	int e;

	blockdev_model(d->device, model, sizeof(model));
	blockdev_identity(d->device, identity, sizeof(identity));
	e = profile_choose(&d->profile, text ? text : "auto", model, identity, why, sizeof(why));
	if (e < 0)
		return fail(d, e == -ENOMEM ? EXIT_FAILED : EXIT_USAGE, e, "%s", why);
	return EXIT_OK;
}

static void on_signal(int sig)
{
	(void)sig;
	log_cancel_open();
}

/*
 * Opening a large or damaged log takes a while, and nothing depends on it yet. Once the volume
 * serves, signals are ignored.
 */
static void cancel_by_signals(bool on)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		(void)signal(signals[i], on ? on_signal : SIG_IGN);
}

static struct volume_params params(struct daemon *d)
{
	return (struct volume_params){
		.device = d->device,
		.log_device = d->log_device[0] ? d->log_device : NULL,
		.name = d->name,
		.ram_bytes = value_of(d, VOLOPT_RAM),
		.erase_block_bytes = (uint32_t)value_of(d, VOLOPT_ERASE_BLOCK),
		.profile = &d->profile,
		.pressure_fails = value_of(d, VOLOPT_PRESSURE) == PRESSURE_FAIL,
		.always_checkpoint = value_of(d, VOLOPT_CHECKPOINT) == CHECKPOINT_ALWAYS,
		.idle_checkpoint = value_of(d, VOLOPT_CHECKPOINT) == CHECKPOINT_IDLE,
		.trim_weekly = value_of(d, VOLOPT_TRIM) == TRIM_WEEKLY,
		.hold_previous = value_of(d, VOLOPT_HOLD) == HOLD_PREVIOUS,
		.running_root = d->running_root,
		.max_commit_ns = value_of(d, VOLOPT_MAX_COMMIT_TIME),
		.away_limit_ns = away_limit_ns(d),
		.quiet_ns = parse_env_ns("COWFS_QUIET_AFTER"),
		.full_ns = parse_env_ns("COWFS_FULL_TIMEOUT"),
		.prepared = &d->prepared,
		.proc_dirfd = d->proc_dirfd,
		.meminfo_fd = d->meminfo_fd,
		.kept = d->link.replaces ? d->kept + KEPT_VOLUME : NULL,
		.halted = d->halted,
	};
}

static int open_volume(struct daemon *d)
{
	const struct volume_params p = params(d);
	char why[512] = "";
	int e;

	cancel_by_signals(!d->link.replaces);
	e = volume_open(&d->volume, &p, why, sizeof(why));
	cancel_by_signals(false);
	if (e < 0 && !d->link.replaces)
		return explain_open(d, e, why);
	if (e == 0)
		e = volume_share(d->volume, "daemon", sizeof(*d->shared), (void **)&d->shared);
	if (e < 0)
		return fail(d, e == -ENOMEDIUM ? EXIT_AWAY : EXIT_FAILED, e, "%s",
			    *why ? why : strerrordesc_np(-e));
	if (d->link.replaces) {
		d->shared->replaced++;
		return EXIT_OK;
	}
	volume_arm_discard(d->volume, value_of(d, VOLOPT_ON_DETACH) == ON_DETACH_DISCARD);
	return EXIT_OK;
}

/* ---- what a worker does as root ---- */

static int claim(struct daemon *d)
{
	int e = rundir_claim(&d->dir, d->name);

	if (e == -EBUSY)
		return fail(d, EXIT_FAILED, e,
			    "another volume is attached as %s: choose a name with --name", d->name);
	if (e < 0)
		return fail(d, EXIT_FAILED, e, "%s/%s cannot be made: %s", rundir_path(), d->name,
			    strerrordesc_np(-e));
	return EXIT_OK;
}

/* Before anything is read. */
static int write_facts(struct daemon *d)
{
	struct card *const card[] = { d->prepared.base, d->prepared.log };
	struct broker_root *root = d->link.root;
	struct blockdev_kept none;
	int fd[BLOCKDEV_FDS], e;
	struct stat st;

	for (unsigned i = 0; i < ARRAY_SIZE(card) && card[i]; i++) {
		blockdev_keep(card[i], &none, fd);
		if (fstat(fd[0], &st) < 0)
			return fail(d, EXIT_FAILED, -errno, "%s: %s", d->device, strerror(errno));
		facts_set(&root->facts, i ? FACT_LOG_DEVICE : FACT_DEVICE,
			  i ? d->log_device : d->device, st.st_rdev, card[i]->geo.size_bytes);
	}
	root->facts.supervisor = getppid();
	e = facts_write(&d->dir, &root->facts);
	return e < 0 ? fail(d, EXIT_FAILED, e, "%s/%s/%s: %s", rundir_path(), d->name, RUNDIR_FACTS,
			    strerrordesc_np(-e))
		     : EXIT_OK;
}

static int open_dir(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Without CAP_SETUID, or in a user namespace without this user, it stays root, without capabilities. Tried
 * in a process of its own, because the store belongs to the user before the worker is that. */
static bool try_user(const struct daemon *d)
{
	pid_t pid;

	/* systemd ends processes of other users when it leaves an initramfs */
	if (d->link.from_ram)
		return false;
	pid = fork();
	if (pid == 0)
		_exit(confine_user(d->uid, d->gid) < 0);
	return program_wait(pid) == 0;
}

static void open_files(struct daemon *d)
{
	d->meminfo_fd = openat(d->proc_dirfd, "meminfo", O_RDONLY | O_CLOEXEC);
	cgroup_limit(d->proc_dirfd, &d->limit);
	d->other_user = try_user(d);
	if (d->link.replaces)
		return;
	d->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	d->dev_dirfd = open_dir("/dev");
	d->sys_dirfd = open_dir("/sys");
}

/* What the parent keeps from the start on. The broker adds the disk, and another device of a card. */
static int keep(struct daemon *d)
{
	struct card *const card[] = { d->prepared.base, d->prepared.log };
	int kept[SUPERVISOR_KEPT_MAX];
	struct blockdev_kept none;

	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
		kept[i] = -1;
	kept[SUPERVISOR_ABORT] = d->abort_fd;
	if (d->link.replace) {
		kept[SUPERVISOR_KERNEL] = d->link.kernel_fd;
		ram_store_fds(d->prepared.store, kept + KEPT_VOLUME + VOLUME_FD_STORE);
		for (unsigned i = 0; i < 2 && card[i]; i++)
			blockdev_keep(card[i], &none,
				      kept + KEPT_VOLUME + VOLUME_FD_BASE + i * BLOCKDEV_FDS);
		kept[KEPT_LOCK] = d->dir.lock_fd;
		kept[KEPT_LISTEN] = d->listen_fd;
		kept[KEPT_RUN_PARENT] = d->dir.parent_fd;
		kept[KEPT_RUN] = d->dir.fd;
		kept[KEPT_DEV] = d->dev_dirfd;
		kept[KEPT_SYS] = d->sys_dirfd;
	}
	return supervisor_keep(d->link.root_fd, kept, 0);
}

/* Makes what needs privileges. Reads nothing of the card. */
static int prepare(struct daemon *d)
{
	const struct volume_params p = params(d);
	char why[512] = "";
	int e, exit;

	if (d->other_user)
		ram_store_owner(d->uid, d->gid);
	e = volume_prepare(&d->prepared, &p, why, sizeof(why));
	if (e < 0)
		return explain_open(d, e, why);
	exit = claim(d);
	if (exit == EXIT_OK)
		exit = write_facts(d);
	if (exit != EXIT_OK)
		return exit;
	e = d->listen_fd = server_listen(&d->dir, BROKER_SOCKET_NEW);
	if (e < 0)
		return fail(d, EXIT_FAILED, e, "no control socket: %s", strerrordesc_np(-e));
	e = transport_prepare(d->link.kernel_fd, &d->mount_fd, &d->abort_fd);
	if (e < 0)
		return fail(d, EXIT_FAILED, e, "cannot export the volume through FUSE: %s",
			    strerrordesc_np(-e));
	e = keep(d);
	if (e < 0)
		return fail(d, EXIT_FAILED, e, "the parent process does not answer: %s",
			    strerrordesc_np(-e));
	return EXIT_OK;
}

/* Gets what the parent keeps. */
static int take(struct daemon *d)
{
	int e = supervisor_take(&d->link, d->kept, &d->halted);

	if (e < 0)
		return fail(d, EXIT_FAILED, e, "the parent process has nothing: %s", strerror(-e));
	d->dir.parent_fd = d->kept[KEPT_RUN_PARENT];
	d->dir.fd = d->kept[KEPT_RUN];
	d->dir.lock_fd = d->kept[KEPT_LOCK];
	snprintf(d->dir.name, sizeof(d->dir.name), "%s", d->name);
	d->dev_dirfd = d->kept[KEPT_DEV];
	d->sys_dirfd = d->kept[KEPT_SYS];
	d->listen_fd = d->kept[KEPT_LISTEN];
	return EXIT_OK;
}

static void prepare_broker(void *ctx)
{
	const struct daemon *d = ctx;
	const unsigned not = HARDEN_OOM | (d->link.from_ram ? 0u : (unsigned)HARDEN_MARK);

	if (d->foreground && !d->link.replaces)
		cgroup_leave(d->proc_dirfd);
	/* what fails here also fails in the worker, which reports it */
	(void)!harden_process(HARDEN_ALL & ~not, d->argv0);
}

/* Nothing can be committed without it, so it counts as the death of the worker: on-crash says what
 * follows. The next worker has another broker. */
static void broker_lost(void)
{
	msg(MSG_ERR, "the broker died");
	_exit(EXIT_FAILED);
}

static int start_broker(struct daemon *d, const int store_fd[RAM_STORE_FDS])
{
	char label[RUNDIR_LABEL_BYTES];
	int lane_fd[BROKER_LANES], card_fd[2][BLOCKDEV_FDS] = { { -1 }, { -1 } }, e;
	struct blockdev_kept none;
	struct broker_facts f = {
		.name = d->name,
		.label = label,
		.root = d->link.root,
		.proc_dirfd = d->proc_dirfd,
		.dev_dirfd = d->dev_dirfd,
		.sys_dirfd = d->sys_dirfd,
		.store_fd = d->link.replaces ? -1 : store_fd[0],
		.side_fd = store_fd[1],
		.run_fd = d->dir.fd,
		.run_parent_fd = d->dir.parent_fd,
		.mount_fd = d->mount_fd,
		.abort_fd = d->link.replaces ? d->kept[SUPERVISOR_ABORT] : d->abort_fd,
		.keep_fd = d->link.replace ? d->link.root_fd : -1,
		.card_slot = { KEPT_VOLUME + VOLUME_FD_BASE, KEPT_VOLUME + VOLUME_FD_LOG },
		.disk_slot = KEPT_DISK,
		.disk_fd = d->link.replaces ? d->kept[KEPT_DISK] : -1,
		.kmsg_fd = d->link.kmsg_fd,
		.keep_root = d->link.from_ram,
		.prepare = prepare_broker,
		.ctx = d
	};

	rundir_label(d->name, label);
	if (d->link.replaces) {
		f.card_fd[0] = d->kept[KEPT_VOLUME + VOLUME_FD_BASE];
		f.card_fd[1] = d->kept[KEPT_VOLUME + VOLUME_FD_LOG];
		f.stat_fd[0] = d->kept[KEPT_VOLUME + VOLUME_FD_BASE + 2];
		f.stat_fd[1] = d->kept[KEPT_VOLUME + VOLUME_FD_LOG + 2];
	} else {
		blockdev_keep(d->prepared.base, &none, card_fd[0]);
		if (d->prepared.log)
			blockdev_keep(d->prepared.log, &none, card_fd[1]);
		for (unsigned i = 0; i < 2; i++) {
			f.card_fd[i] = card_fd[i][0];
			f.stat_fd[i] = card_fd[i][0] < 0 ? -1 : card_fd[i][2];
		}
	}
	e = broker_start(&f, lane_fd);
	if (e < 0)
		return fail(d, EXIT_FAILED, e, "no broker process: %s", strerrordesc_np(-e));
	broker_use(lane_fd, broker_lost);
	fsproc_start(false, false);
	return EXIT_OK;
}

/* No folder may stay open through which a path leads out, nor root's link to the parent. */
static void close_folders(struct daemon *d)
{
	int *const fds[] = { &d->proc_dirfd, &d->dev_dirfd,	&d->sys_dirfd,	 &d->dir.fd,
			     &d->mount_fd,   &d->dir.parent_fd, &d->link.root_fd };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		cleanup_closep(fds[i]);
}

/* A worker writes its warnings to the terminal until it serves, and reads nothing there: a terminal's descriptors can do both. */
static void leave_terminal(const struct daemon *d)
{
	char path[32];

	if (d->null_fd >= 0)
		dup2(d->null_fd, STDIN_FILENO);
	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
		_cleanup_close_ int write_fd = -1;

		if (!isatty(fd))
			continue;
		snprintf(path, sizeof(path), "self/fd/%d", fd);
		write_fd = openat(d->proc_dirfd, path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
		if (write_fd >= 0 || d->null_fd >= 0)
			dup2(write_fd >= 0 ? write_fd : d->null_fd, fd);
	}
}

/* From here on it has no privileges. Then, and only then, it reads the card, and what a worker that
 * died has left. */
static int drop(struct daemon *d, unsigned *missing)
{
	enum confine_role role = d->link.replaces ? CONFINE_NEXT : CONFINE_START;
	int store_fd[RAM_STORE_FDS], exit;

	if (d->link.replaces)
		memcpy(store_fd, d->kept + KEPT_VOLUME + VOLUME_FD_STORE, sizeof(store_fd));
	else
		ram_store_fds(d->prepared.store, store_fd);
	exit = start_broker(d, store_fd);
	if (exit != EXIT_OK)
		return exit;
	munmap(d->link.root, SUPERVISOR_ROOT_BYTES);
	leave_terminal(d);
	close_folders(d);
	transport_make_room(d->link.kernel_fd);
	if (sandbox_enter_mounts(d->link.mounts_fd) < 0 && !d->link.from_ram)
		*missing |= HARDEN_MOUNTS;
	if (confine_files() < 0)
		*missing |= HARDEN_FILES;
	if (!d->link.from_ram && (!d->other_user || confine_user(d->uid, d->gid) < 0))
		*missing |= HARDEN_USER;
	*missing |= harden_confine(HARDEN_CAPABILITIES, role);
	if (sandbox_files(store_fd, RAM_STORE_FDS) < 0)
		*missing |= HARDEN_LANDLOCK;
	*missing |= harden_confine(HARDEN_CALLS, role);
	return EXIT_OK;
}

/*
 * What failed is reported once the volume serves, so that a failed start reports only its own
 * reason.
 */
static unsigned harden(const struct daemon *d)
{
	unsigned not = d->link.from_ram ? 0u : (unsigned)HARDEN_MARK;

	if (d->link.replaces) /* inherited; /proc may be out of reach */
		not |= HARDEN_OOM;
	return harden_process(HARDEN_ALL & ~not, d->argv0);
}

static void tell_missing(const struct daemon *d, unsigned missing)
{
	const struct cgroup_limit *l = &d->limit;
	char list[200] = "";
	size_t len = 0;

	for (unsigned bit = 1; bit & HARDEN_BITS; bit <<= 1)
		if ((missing & bit) && len < sizeof(list))
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
						len ? ", " : "", harden_name(bit));
	if (missing)
		msg(MSG_WARN, "goes on without: %s", list);
	if (l->bytes)
		msg(MSG_WARN, "cgroup %s limits the daemon's memory to %llu MiB", l->path,
		    l->bytes / MIB);
}

/*
 * Memory that the daemon allocates for a client's write may be charged to a cgroup full of pages
 * that only the daemon can write back. Only an I/O flusher does not wait for them.
 */
static int check_limits(const struct daemon *d, unsigned missing)
{
	const struct cgroup_limit *l = &d->limit;
	struct rlimit files;

	/* a worker that takes over opens more at a time than one that attaches */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < FILES_MIN)
		return fail(
			d, EXIT_FAILED, -EMFILE,
			"at most %llu files can be open, and it needs %u: raise the limit (ulimit -n)",
			(unsigned long long)files.rlim_cur, FILES_MIN);
	if (l->bytes && (missing & HARDEN_IO_FLUSHER))
		return fail(d, EXIT_FAILED, -EPERM,
			    "cgroup %s limits memory to %llu MiB, and a daemon that may not be "
			    "an I/O flusher (no CAP_SYS_RESOURCE) would deadlock in it: start it "
			    "outside",
			    l->path, l->bytes / MIB);
	return EXIT_OK;
}

static int export_volume(struct daemon *d)
{
	const struct pressure_requests rq = volume_requests(d->volume);
	char label[RUNDIR_LABEL_BYTES], why[256] = "";
	const struct transport_params p = {
		.kernel_fd = d->link.kernel_fd,
		.abort_fd = d->link.replaces ? d->kept[SUPERVISOR_ABORT] : d->abort_fd,
		.view = volume_view(d->volume),
		.throttle = volume_throttle(d->volume),
		.label = label,
		.limits = { READ_AHEAD_KB, rq.kb, rq.tags },
		.kept = &d->shared->transport,
	};
	const struct loop_dev *disk;
	int e;

	rundir_label(d->name, label);
	e = d->link.replaces
		    ? transport_take_over(&d->transport, &p, d->kept[KEPT_DISK], why, sizeof(why))
		    : transport_start(&d->transport, &p, why, sizeof(why));
	if (e < 0)
		return fail(d, EXIT_FAILED, e, "%s", why);
	disk = transport_disk(d->transport);
	e = volume_start(d->volume, disk->fd, disk->rdev, disk->path);
	if (e < 0)
		return fail(d, EXIT_FAILED, e, "no commit thread: %s", strerrordesc_np(-e));
	d->started = true;
	return EXIT_OK;
}

static void serves(struct daemon *d)
{
	int e = supervisor_serving(&d->link);

	if (e < 0)
		msg(MSG_WARN, "%s: the parent process does not answer: %s", d->name, strerror(-e));
}

static int let_go(void *ctx)
{
	struct daemon *d = ctx;
	int e;

	supervisor_ending(&d->link);
	e = transport_detach(d->transport);
	if (e < 0) {
		volume_set_loop_fd(d->volume, transport_disk(d->transport)->fd);
		serves(d);
	}
	return e;
}

static void ended(void *ctx)
{
	struct daemon *d = ctx;

	sem_post(&d->ended);
}

static int serve_clients(struct daemon *d)
{
	const struct server_params p = {
		.volume = d->volume,
		.transport = d->transport,
		.proc_dirfd = d->proc_dirfd,
		.dir = &d->dir,
		.listen_fd = d->listen_fd,
		.hidden = !d->link.replaces,
		.on_crash = !d->link.replace ? "stop"
			    : d->halt	     ? "replace"
					     : "reboot",
		.on_crash_why = d->replace_why,
		.replaced = d->shared->replaced,
		.signs = d->link.signs,
		.running_root = d->running_root,
		.stuck_ns = supervisor_stuck_ns(),
		.let_go = let_go,
		.ended = ended,
		.ctx = d,
	};
	int e = server_start(&d->server, &p);

	if (e == 0 && d->link.replace)
		transport_keep(d->transport, &d->shared->transport);
	if (e == 0)
		e = supervisor_serving(&d->link);
	if (e < 0)
		return fail(d, EXIT_FAILED, e, "no control socket: %s", strerrordesc_np(-e));
	return EXIT_OK;
}

/* A file or a socket of the service manager is none: a worker must not fill it. */
static bool stays_on_terminal(const struct daemon *d)
{
	return d->foreground && isatty(STDERR_FILENO);
}

static void say_ready(struct daemon *d, unsigned *missing)
{
	struct ready r = { .exit = EXIT_OK };

	snprintf(r.loop, sizeof(r.loop), "%s", transport_disk(d->transport)->path);
	snprintf(r.name, sizeof(r.name), "%s", d->name);
	if (!d->link.replaces) {
		if (d->notify_fd >= 0) {
			(void)!write(d->notify_fd, "", 1);
			close(steal_fd(&d->notify_fd));
		}
		if (!stays_on_terminal(d))
			msg_to_kmsg(d->link.kmsg_fd);
	}
	*missing |= harden_confine(HARDEN_CALLS, CONFINE_WORKER);
	if (d->link.replaces) {
		msg(MSG_NOTICE, "%s: taken over from a worker that died", d->name);
		return;
	}
	report(d, &r);
	for (int fd = 0; fd < 3 && d->null_fd >= 0 && !stays_on_terminal(d); fd++)
		dup2(d->null_fd, fd);
	cleanup_closep(&d->ready_fd);
}

/* Undoes what was started, in reverse order. The rest of a volume that is in use stays in place. */
static int undo(struct daemon *d)
{
	int e = 0;

	if (d->server)
		server_stop(d->server);
	if (d->transport)
		e = transport_detach(d->transport);
	if (e == 0)
		transport_stop(d->transport);
	if (d->started)
		volume_stop(d->volume);
	if (e == 0 && d->volume)
		volume_close(d->volume);
	volume_unprepare(&d->prepared);
	if (broker_on()) {
		(void)!broker_call(BROKER_MAIN, BROKER_RELEASE, 0, 0);
	} else {
		if (d->dir.fd >= 0)
			unlinkat(d->dir.fd, BROKER_SOCKET_NEW, 0);
		rundir_release(&d->dir);
	}
	return e;
}

static int worker(struct daemon *d)
{
	unsigned missing;
	int exit = EXIT_OK, e;

	sem_init(&d->ended, 0, 0);
	if (!d->link.replaces) { /* before memory is locked: it reads many profiles to keep one */
		exit = choose_profile(d);
		if (exit != EXIT_OK) {
			server_farewell(d->server, 0, NULL);
			return exit;
		}
	}
	/* first: locking fills what is mapped, and the presence map must stay sparse */
	missing = harden(d);
	open_files(d);
	exit = d->link.replaces ? take(d) : check_limits(d, missing);
	if (exit == EXIT_OK && !d->link.replaces)
		exit = prepare(d);
	/* before anything is read from the card or from a worker that died, and before there is a
	 * second thread */
	if (exit == EXIT_OK)
		exit = drop(d, &missing);
	if (exit == EXIT_OK)
		exit = open_volume(d);
	if (exit == EXIT_OK)
		exit = export_volume(d);
	if (exit == EXIT_OK)
		exit = serve_clients(d);
	if (exit != EXIT_OK && d->link.replaces)
		_exit(exit); /* the parent tries again, or ends the volume */
	if (exit != EXIT_OK) {
		undo(d);
		server_farewell(d->server, 0, NULL);
		return exit;
	}
	say_ready(d, &missing);
	tell_missing(d, missing);
	while (sem_wait(&d->ended) < 0)
		;
	e = undo(d);
	server_farewell(d->server, e, e ? strerrordesc_np(-e) : NULL);
	return e ? EXIT_FAILED : EXIT_OK;
}

static void help(void)
{
	puts("usage: cowfs [OPTION]... DEVICE\n"
	     "Protects DEVICE from writes: changes stay in RAM until a commit. Prints the loop "
	     "device to mount.\n"
	     "DEVICE must have been prepared with 'cowctl prepare'; 'cowctl' controls it "
	     "afterwards.\n");
	options_help(stdout, specs);
	puts("\nExit codes: 0 ok, 1 failed, 2 usage, 5 the card was pulled out.");
}

int cowfs_main(int argc, char **argv)
{
	static struct daemon d = { .ready_fd = -1,
				   .proc_dirfd = -1,
				   .dev_dirfd = -1,
				   .sys_dirfd = -1,
				   .notify_fd = -1,
				   .null_fd = -1,
				   .meminfo_fd = -1,
				   .listen_fd = -1,
				   .mount_fd = -1,
				   .abort_fd = -1,
				   .dir = { -1, -1, -1, "" } };
	struct options o;
	char why[256];
	int exit;

	program_begin();
	msg_set_prog("cowfs");
	invariant_survive(); /* the worker holds the RAM */
	d.argv0 = argv[0];
	if (options_parse(argc - 1, argv + 1, specs, &o, why, sizeof(why)) < 0)
		return fail(&d, EXIT_USAGE, -EINVAL, "%s (try 'cowfs --help')", why);
	if (o.value[OPT_HELP]) {
		help();
		return EXIT_OK;
	}
	if (o.value[OPT_VERSION]) {
		puts("cowfs " COWFS_VERSION);
		return EXIT_OK;
	}
	exit = take_arguments(&d, &o);
	if (exit != EXIT_OK)
		return exit;
	exit = check_kernel(&d);
	if (exit != EXIT_OK)
		return exit;
	close_inherited(d.ready_fd);
	d.proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d.proc_dirfd < 0)
		return fail(&d, EXIT_FAILED, -errno, "/proc is not mounted");
	exit = d.foreground ? stay_foreground(&d) : go_background(&d);
	d.uid = d.gid = SANDBOX_WORKER_UID + (uid_t)getpid();
	choose_on_crash(&d);
	if (exit == EXIT_OK)
		exit = start_supervisor(&d);
	if (d.link.replaces) {
		d.ready_fd = -1; /* the spare has closed it */
		msg_to_kmsg(d.link.kmsg_fd);
	}
	return exit == EXIT_OK ? worker(&d) : exit;
}
