/* SPDX-License-Identifier: MIT */
/*
 * A volume is found by its directory below the run directory, or through the status files there,
 * which name device and loop device. Only a connection shows whether its daemon lives.
 */
#include "wire/client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "base/io.h"
#include "base/mounts.h"
#include "base/parse.h"
#include "base/passfd.h"
#include "base/proclist.h"
#include "wire/json.h"

#define STATUS_BYTES (64 * KIB)
/* a silent period: the daemon sends progress five times a second while a job runs */
#define SILENCE_NS (10 * 1000000000ull)
/*
 * number of silent periods before giving up, unless the daemon is stopped: a busy machine is not a
 * failure
 */
#define SILENCES 3
#define STILL 30			   /* the same without progress */
#define JOB_NS (24 * 3600 * 1000000000ull) /* 64 GiB at 1 MB/s are 19 hours */
#define REPLACE_MS 1000 /* until a worker that died is replaced, or all of its daemon has ended */
#define REPLACE_LOOK_MS 50
#define ARRIVED_NS 100000000ull /* to read an answer that is there */
#define REPEATS 8		/* of a request whose worker died before it answered */

static uint64_t silence_ns(void)
{
	uint64_t ns = parse_env_ns("COWFS_SILENCE");

	return ns ? ns : SILENCE_NS;
}

static int open_run(void)
{
	int fd = open(rundir_path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* ---- listing volumes ---- */

/* Calls each(ctx, name) for the directory of each volume until it returns true. */
static bool each_volume(int run_fd, bool (*each)(void *ctx, int run_fd, const char *name),
			void *ctx)
{
	int fd = openat(run_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	bool found = false;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	for (struct dirent *e; !found && (e = readdir(d));)
		/* rootstate.h keeps files there */
		if (e->d_type != DT_REG && rundir_name_valid(e->d_name))
			found = each(ctx, run_fd, e->d_name);
	closedir(d);
	return found;
}

#define OLD "/run is full: this status is an old one, and cowctl status asks for a new one"

static struct json_object *read_status(int run_fd, const char *name)
{
	_cleanup_free_ char *text = malloc(STATUS_BYTES);
	char path[RUNDIR_NAME_BYTES + 16];
	struct json_object *o;
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", name, RUNDIR_STATUS);
	if (!text || io_read_text(run_fd, path, text, STATUS_BYTES) <= 0)
		return NULL;
	o = answer_decode(text, strlen(text), run_fd, name);
	if (o && fstatat(run_fd, path, &st, 0) == 0 && rundir_is_old(&st)) {
		json_object_object_add(o, "degraded", json_object_new_boolean(true));
		json_object_object_add(o, "alarm", json_object_new_string(OLD));
	}
	return o;
}

/* Of a volume that a daemon of 0.1.0 serves: what its status says. */
static void take_status(int run_fd, const char *name, struct facts *ret)
{
	struct json_object *o = read_status(run_fd, name);
	struct stat st;

	for (enum fact i = 0; i < FACT_DEVICES; i++) {
		const char *path = json_fact(o, i);

		if (*path)
			facts_set(ret, i, path, stat(path, &st) < 0 ? 0 : st.st_rdev, 0);
	}
	json_object_put(o);
}

static void read_facts(int run_fd, const char *name, bool left, struct facts *ret)
{
	if (facts_read(run_fd, name, left, ret) == -ENOENT)
		take_status(run_fd, name, ret);
}

bool client_same_device(const char *a, const char *b)
{
	struct stat sa, sb;

	if (!*a || !*b)
		return false;
	if (!strcmp(a, b))
		return true;
	if (stat(a, &sa) < 0 || stat(b, &sb) < 0)
		return false;
	if (S_ISBLK(sa.st_mode) && S_ISBLK(sb.st_mode))
		return sa.st_rdev == sb.st_rdev;
	return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* As written by the daemon; 0: none. */
static pid_t pid_of(int run_fd, const char *name)
{
	char path[RUNDIR_NAME_BYTES + 8];
	uint64_t pid;

	snprintf(path, sizeof(path), "%s/%s", name, RUNDIR_PID);
	return io_read_u64(run_fd, path, &pid) < 0 ? 0 : (pid_t)pid;
}

/* The process is dying: its socket still takes connections, but gets no answers. */
static bool is_dying(pid_t pid)
{
	_cleanup_close_ int fd = -1;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && proclist_is_dying(fd);
}

/* The state letter of a process in /proc, 0 if it has ended, and its parent. */
static char state_of(pid_t pid, pid_t *ret_parent)
{
	char path[32], text[256], state = 0;
	const char *end;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (io_read_text(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return 0;
	end = strrchr(text, ')'); /* ends the name, which may contain any character */
	if (!end || sscanf(end + 1, " %c %d", &state, ret_parent) != 2)
		return 0;
	return state;
}

static pid_t stopped_pid(int run_fd, const char *name)
{
	pid_t pid = pid_of(run_fd, name), parent = 0, none;
	char state = pid ? state_of(pid, &parent) : 0;

	if (state == 'Z') { /* a living parent would have reaped it */
		pid = parent;
		state = state_of(pid, &none);
	}
	return state == 'T' || state == 't' ? pid : 0;
}

pid_t client_stopped(const char *name)
{
	_cleanup_close_ int run_fd = open_run();

	return run_fd < 0 ? 0 : stopped_pid(run_fd, name);
}

/*
 * Returns the descriptor, or -errno; ECONNREFUSED: the daemon has died. While a worker is replaced its parent keeps the socket, so
 * the connection waits for the next one.
 */
static int connect_volume(int run_fd, const char *name)
{
	_cleanup_close_ int dir_fd = openat(run_fd, name,
					    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int fd = -1;
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	/* while more clients connect than the daemon takes in */
	const struct timeval limit = { .tv_sec = (time_t)(silence_ns() / 1000000000) };
	int type = SOCK_STREAM | SOCK_CLOEXEC | (stopped_pid(run_fd, name) ? SOCK_NONBLOCK : 0);

	if (dir_fd < 0)
		return -errno;
	fd = socket(AF_UNIX, type, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
		return -errno;
	passfd_refuse(fd);
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", dir_fd, RUNDIR_SOCKET);
	/* clients that wait get their places in order */
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	return steal_fd(&fd);
}

/* kill(0) tests it without any permission. */
static bool is_gone(pid_t pid)
{
	return (kill(pid, 0) < 0 && errno == ESRCH) || is_dying(pid);
}

static bool is_replaced(int run_fd, const char *name)
{
	struct json_object *o = read_status(run_fd, name);
	bool replaced = o && strcmp(json_text(o, "on_crash"), "stop") != 0 &&
			!json_true(o, "halted");
	struct facts f;

	json_object_put(o);
	return replaced &&
	       (facts_read(run_fd, name, true, &f) < 0 || !f.supervisor || !is_gone(f.supervisor));
}

static bool is_dead(int error)
{
	return error == -ECONNREFUSED || error == -ENOENT;
}

/* 0: none runs. */
static pid_t worker_pid(int run_fd, const char *name)
{
	pid_t pid = pid_of(run_fd, name);

	return !pid || is_gone(pid) ? 0 : pid;
}

/* For a daemon that does not answer: " (process P is stopped)", or "". */
static const char *why_silent(const char *name, char text[64])
{
	_cleanup_close_ int run_fd = open_run();
	pid_t pid = client_stopped(name);

	snprintf(text, 64, "%s",
		 run_fd >= 0 && pid_of(run_fd, name) && !worker_pid(run_fd, name)
			 ? ": its worker is being replaced"
			 : "");
	if (pid)
		snprintf(text, 64, " (process %d is stopped: kill -CONT %d)", pid, pid);
	return text;
}

/* May a program wait for the next worker of some volume? Only once: a card that does not answer keeps a worker from beginning,
 * and other volumes from their commands. */
static bool may_wait(void)
{
	static uint64_t until_ns;

	until_ns = until_ns ? until_ns : now_ns() + REPLACE_MS * 1000000ull;
	return now_ns() < until_ns;
}

/*
 * If all processes of a daemon are killed, the socket takes connections until the last of them has closed it. So while
 * there is no worker this waits a moment for the next one, or for the end of the socket.
 */
static bool alive(int run_fd, const char *name)
{
	for (;;) {
		_cleanup_close_ int fd = connect_volume(run_fd, name);
		struct pollfd end = { .fd = fd };

		if (is_dead(fd))
			return false;
		/* one connection: those that end stay in the queue, and keep others out of it */
		do {
			/* without a pid it begins, or is none of ours */
			if (!pid_of(run_fd, name) || worker_pid(run_fd, name))
				return true;
			if (!is_replaced(run_fd, name))
				return false;
			if (fd < 0 || !may_wait())
				return true;
		} while (poll(&end, 1, REPLACE_LOOK_MS) == 0);
	}
}

struct wanted {
	const char *path; /* of a folder: the real one */
	int root_dirfd;
	const struct mount_entry *m; /* NULL: the path is that of a device */
	char *name;
	bool *composed;
};

static bool is_shown(const struct wanted *w, int run_fd, const char *name, dev_t disk)
{
	unsigned dev_major, dev_minor;
	char text[2 * PATH_MAX];

	*w->composed = !strcmp(name, ROOT_NAME) &&
		       io_read_text(run_fd, RUNDIR_COMPOSE, text, sizeof(text)) > 0 &&
		       sscanf(text, "%u:%u ", &dev_major, &dev_minor) == 2 &&
		       w->m->dev == makedev(dev_major, dev_minor);
	return *w->composed || (disk && mounts_shows(w->root_dirfd, w->m, disk));
}

static bool match_volume(void *ctx, int run_fd, const char *name)
{
	struct wanted *w = ctx;
	struct facts f;
	bool match = false;

	read_facts(run_fd, name, false, &f);
	if (w->m)
		match = is_shown(w, run_fd, name, f.device[FACT_LOOP].rdev);
	for (enum fact i = 0; !w->m && i < FACT_DEVICES; i++)
		match |= facts_is(&f.device[i], w->path);
	/* its worker may have died while the next one begins */
	if (!match || !alive(run_fd, name))
		return false;
	snprintf(w->name, RUNDIR_NAME_BYTES, "%s", name);
	return true;
}

static void find_wanted(struct wanted *w)
{
	_cleanup_close_ int run_fd = open_run();

	w->name[0] = '\0';
	if (run_fd >= 0)
		each_volume(run_fd, match_volume, w);
}

void client_find_mount(int root_dirfd, const struct mount_entry *m, char name[RUNDIR_NAME_BYTES],
		       bool *ret_composed)
{
	*ret_composed = false;
	find_wanted(&(struct wanted){ NULL, root_dirfd, m, name, ret_composed });
}

/* Of several mounts on the folder the last one counts. */
static int look_at_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	const struct wanted *w = ctx;
	bool composed;

	mounts_unescape(m->path);
	if (!strcmp(m->path, w->path))
		client_find_mount(root_dirfd, m, w->name, &composed);
	return 0;
}

void client_find_device(const char *path, char name[RUNDIR_NAME_BYTES])
{
	_cleanup_close_ int proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct wanted w = { .path = path, .name = name };
	char dir[PATH_MAX];
	struct stat st;

	name[0] = '\0';
	if (!realpath(path, dir) || stat(dir, &st) < 0 || !S_ISDIR(st.st_mode)) {
		find_wanted(&w);
		return;
	}
	w.path = dir;
	(void)!mounts_each(proc_fd, "self", look_at_mount, &w);
}

struct name_list {
	char (*names)[RUNDIR_NAME_BYTES];
	size_t n;
	bool (*wants)(int run_fd, const char *name);
};

static bool list_name(void *ctx, int run_fd, const char *name)
{
	struct name_list *l = ctx;

	if (l->wants(run_fd, name))
		snprintf(l->names[l->n++], RUNDIR_NAME_BYTES, "%s", name);
	return l->n == CLIENT_VOLUMES;
}

static size_t list_names(char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES],
			 bool (*wants)(int run_fd, const char *name))
{
	_cleanup_close_ int run_fd = open_run();
	struct name_list l = { .names = names, .wants = wants };

	if (run_fd >= 0)
		each_volume(run_fd, list_name, &l);
	return l.n;
}

static int root_last(const void *a, const void *b)
{
	int root = !strcmp(a, ROOT_NAME) - !strcmp(b, ROOT_NAME);

	return root ? root : strcmp(a, b);
}

size_t client_volumes(char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES])
{
	size_t n = list_names(names, alive);

	qsort(names, n, RUNDIR_NAME_BYTES, root_last);
	return n;
}

static bool has_file(int run_fd, const char *name, const char *file)
{
	char path[RUNDIR_NAME_BYTES + 16];

	snprintf(path, sizeof(path), "%s/%s", name, file);
	return faccessat(run_fd, path, F_OK, 0) == 0;
}

static bool has_died(int run_fd, const char *name)
{
	/* one that begins has a status ahead of its pid and its socket, and one that ends has none from the end of that on */
	return has_file(run_fd, name, RUNDIR_STATUS) && !alive(run_fd, name) &&
	       pid_of(run_fd, name) && !worker_pid(run_fd, name) &&
	       has_file(run_fd, name, RUNDIR_STATUS);
}

size_t client_dead_volumes(char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES])
{
	return list_names(names, has_died);
}

static bool is_without_status(int run_fd, const char *name)
{
	return has_file(run_fd, name, RUNDIR_FACTS) &&
	       !(has_file(run_fd, name, RUNDIR_STATUS) && has_file(run_fd, name, RUNDIR_PID));
}

size_t client_volumes_without_status(char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES])
{
	return list_names(names, is_without_status);
}

void client_facts(const char *name, bool left, struct facts *ret)
{
	_cleanup_close_ int run_fd = open_run();

	memset(ret, 0, sizeof(*ret));
	if (run_fd >= 0)
		read_facts(run_fd, name, left, ret);
}

struct by_ring {
	const char *self, *log_id;
	char *name;
};

static bool match_ring(void *ctx, int run_fd, const char *name)
{
	struct by_ring *by = ctx;
	struct json_object *o = strcmp(name, by->self) ? read_status(run_fd, name) : NULL;
	bool match = o && !strcmp(json_text(o, "log_id"), by->log_id);

	json_object_put(o);
	if (!match || !alive(run_fd, name))
		return false;
	snprintf(by->name, RUNDIR_NAME_BYTES, "%s", name);
	return true;
}

void client_find_twin(const char *self, const char *log_id, char name[RUNDIR_NAME_BYTES])
{
	_cleanup_close_ int run_fd = open_run();
	struct by_ring by = { self, log_id, name };

	name[0] = '\0';
	/* a log that was never used has no id yet */
	if (run_fd >= 0 && log_id[strspn(log_id, "0-")])
		each_volume(run_fd, match_ring, &by);
}

struct running {
	unsigned live, dead;
	char first[RUNDIR_NAME_BYTES];
	char list[256];
};

static bool count_running(void *ctx, int run_fd, const char *name)
{
	struct running *r = ctx;
	size_t len = strlen(r->list);

	if (!alive(run_fd, name)) {
		r->dead += has_file(run_fd, name, RUNDIR_STATUS);
		return false;
	}
	if (!r->live++)
		snprintf(r->first, sizeof(r->first), "%s", name);
	snprintf(r->list + len, sizeof(r->list) - len, "%s%s", len ? ", " : "", name);
	return false;
}

/* Turns `which` into a name. */
static int resolve(int run_fd, const char *which, char name[RUNDIR_NAME_BYTES], struct failure *err)
{
	static const char links[] =
		"/dev/cowfs/"; /* a link for the root, a way to say it for others */
	struct running r = { 0 };
	struct stat st;

	if (!which) {
		each_volume(run_fd, count_running, &r);
		if (r.live > 1)
			return failure_set(err, EXIT_USAGE, -EINVAL,
					   "several volumes are attached: name one of %s", r.list);
		if (r.live == 0)
			return failure_set(err, EXIT_NOT_RUNNING, -ESRCH, "no volume is attached%s",
					   r.dead ? " (a daemon died and left its files)" : "");
		snprintf(name, RUNDIR_NAME_BYTES, "%s", r.first);
		return 0;
	}
	if (!strncmp(which, links, strlen(links)))
		which += strlen(links);
	if (rundir_name_valid(which) && fstatat(run_fd, which, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		snprintf(name, RUNDIR_NAME_BYTES, "%s", which);
		return 0;
	}
	client_find_device(which, name);
	if (!*name)
		return failure_set(err, EXIT_NOT_RUNNING, -ESRCH, "no volume is attached as %s",
				   which);
	return 0;
}

/* A start that was cut leaves a folder, and nothing was lost by it. */
static int not_running(int run_fd, const char *name, struct failure *err)
{
	return failure_set(err, EXIT_NOT_RUNNING, -ESRCH,
			   has_file(run_fd, name, RUNDIR_STATUS)
				   ? "volume %s is not running: its daemon died"
				   : "no volume is attached as %s",
			   name);
}

/* ---- connecting ---- */

static int check_peer(int fd, const char *name, struct failure *err)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return failure(err, -errno, "cannot identify the daemon of volume %s", name);
	if (peer.uid != 0 && peer.uid != geteuid())
		return failure_set(
			err, EXIT_FAILED, -EPERM,
			"the control socket of volume %s belongs to user %u, not to root: not used",
			name, (unsigned)peer.uid);
	return 0;
}

int client_open(struct client *ret, const char *which, struct failure *err)
{
	_cleanup_close_ int run_fd = open_run(), fd = -1;
	struct client c = { .fd = -1, .pass_fd = -1, .in.max_bytes = PROTO_LINE_BYTES };
	char silent[64];
	int e;

	if (run_fd == -ENOENT)
		return failure_set(err, EXIT_NOT_RUNNING, -ESRCH, "no volume is attached%s%s",
				   which ? " as " : "", which ? which : "");
	if (run_fd < 0)
		return failure(err, run_fd, "%s: %s", rundir_path(), strerrordesc_np(-run_fd));
	e = resolve(run_fd, which, c.name, err);
	if (e < 0)
		return e;
	fd = connect_volume(run_fd, c.name);
	if (is_dead(fd))
		return not_running(run_fd, c.name, err);
	if (fd == -EACCES || fd == -EPERM)
		return failure(err, fd, "permission denied: only root may control volume %s",
			       c.name);
	if (fd == -EAGAIN)
		return failure(err, fd, "the daemon of volume %s does not answer%s", c.name,
			       why_silent(c.name, silent));
	if (fd < 0)
		return failure(err, fd, "volume %s: %s", c.name, strerrordesc_np(-fd));
	e = check_peer(fd, c.name, err);
	if (e < 0)
		return e;
	c.fd = steal_fd(&fd);
	*ret = c;
	return 0;
}

void client_close(struct client *c)
{
	if (c->fd >= 0)
		close(steal_fd(&c->fd));
	linebuf_free(&c->in);
}

/* ---- requests ---- */

/* Waits for the next line: 0; -ETIMEDOUT; -EPIPE the daemon has ended; or -errno. */
static int next_line(struct client *c, uint64_t until_ns, const char **ret_line, size_t *ret_len)
{
	struct pollfd pfd = { .fd = c->fd, .events = POLLIN };
	unsigned silences = 0;

	until_ns = c->until_ns ? min_u64(until_ns, c->until_ns) : until_ns;
	while (!(*ret_line = linebuf_line(&c->in, ret_len))) {
		uint64_t now = now_ns();
		uint64_t wait_ns = now < until_ns ? min_u64(silence_ns(), until_ns - now) : 0;
		int n = wait_ns ? poll(&pfd, 1, (int)((wait_ns + 999999) / 1000000)) : 0;
		ssize_t got;

		if (!wait_ns)
			return -ETIMEDOUT;
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0 && (wait_ns < silence_ns() || ++silences < SILENCES) &&
		    !client_stopped(c->name))
			continue;
		if (n <= 0)
			return n ? -errno : -ETIMEDOUT;
		got = linebuf_fill(&c->in, c->fd);
		if (got == 0 || got == -ECONNRESET)
			return -EPIPE;
		if (got < 0 && got != -EAGAIN)
			return (int)got;
	}
	return 0;
}

void client_no_seed(void)
{
	json_global_set_string_hash(JSON_C_STR_HASH_PERLLIKE);
}

static int send_request(struct client *c, const struct request *rq)
{
	char text[2048];
	size_t len = request_render(rq, text, sizeof(text));
	int r;

	if (!len)
		return -EINVAL;
	r = passfd_send(c->fd, text, len, &c->pass_fd, c->pass_fd >= 0, 0);
	c->pass_fd = -1;
	/* a daemon that rejected us has already closed: its answer can still be read */
	if (r < 0 && r != -EPIPE)
		return r;
	return 0;
}

/* How long an answer is waited for, from the beginning, or from the last progress of a job: its numbers have to move. A
 * worker that lies can move them for JOB_NS. */
static uint64_t patience_ns(const struct request *rq)
{
	switch (rq->command) {
	case COMMAND_STATUS:
	case COMMAND_WEAR:
	case COMMAND_CHANGES:
	case COMMAND_DISCARD:
	case COMMAND_INHIBIT:
	case COMMAND_UNINHIBIT:
		return SILENCES * silence_ns();
	default:
		return STILL * silence_ns();
	}
}

/* The final answer, or NULL and *ret_error. */
static struct json_object *ask_once(struct client *c, const struct request *rq, client_event *event,
				    void *ctx, int *ret_error)
{
	_cleanup_close_ int run_fd = open_run();
	uint64_t wait_ns = patience_ns(rq), until_ns = now_ns() + wait_ns,
		 end_ns = now_ns() + JOB_NS, done = 0;
	int e = c->asked ? 0 : send_request(c, rq);
	const char *line;
	size_t len;

	c->asked = false;
	while (e == 0 && (e = next_line(c, until_ns, &line, &len)) == 0) {
		struct json_object *o = answer_decode(line, len, run_fd, c->name);

		linebuf_drop_line(&c->in, len);
		if (!o)
			e = -EPROTO;
		else if (json_object_object_get_ex(o, "ok", NULL))
			return o;
		if (o && json_u64(o, "done_blocks") != done && wait_ns > SILENCES * silence_ns()) {
			done = json_u64(o, "done_blocks");
			until_ns = min_u64(now_ns() + wait_ns, end_ns);
		}
		if (o && event && json_object_object_get_ex(o, "event", NULL) && !event(ctx, o))
			e = -ETIMEDOUT;
		json_object_put(o);
	}
	*ret_error = e;
	return NULL;
}

/* Is a request that was made twice the same as one? Not if the first worker had something that the
 * next one has not: a descriptor, or the image of a view. */
static bool may_repeat(const struct request *rq)
{
	return !rq->scratch && rq->command != COMMAND_VIEW;
}

/* Connects to the worker that has taken over. */
static bool open_again(struct client *c)
{
	struct failure none = { 0 };
	struct client next;
	char name[RUNDIR_NAME_BYTES];

	memcpy(name, c->name, sizeof(name));
	if (client_open(&next, name, &none) < 0)
		return false;
	client_close(c);
	next.until_ns = c->until_ns;
	*c = next;
	return true;
}

struct json_object *client_call(struct client *c, const struct request *rq, client_event *event,
				void *ctx, struct failure *err)
{
	bool repeats = c->pass_fd < 0 && may_repeat(rq);
	char silent[64];
	int e = 0;

	for (unsigned i = 0; i <= REPEATS; i++) {
		struct json_object *o = ask_once(c, rq, event, ctx, &e);

		if (o)
			return o;
		if (e != -EPIPE || !repeats || !open_again(c))
			break;
	}
	if (e == -ETIMEDOUT)
		failure(err, e, "the daemon of volume %s does not answer%s", c->name,
			why_silent(c->name, silent));
	else if (e == -EPIPE)
		failure_set(err, EXIT_NOT_RUNNING, e,
			    "the daemon of volume %s ended before it answered", c->name);
	else
		failure(err, e, "volume %s: %s", c->name, strerrordesc_np(-e));
	return NULL;
}

struct json_object *client_ask(struct client *c, enum proto_command command, struct failure *err)
{
	return client_call(c, &(struct request){ .command = command }, NULL, NULL, err);
}

void client_wait_gone(struct client *c)
{
	uint64_t until_ns = now_ns() + SILENCES * silence_ns();
	struct pollfd pfd = { .fd = c->fd, .events = POLLIN };
	char rest[256];

	while (now_ns() < until_ns) {
		if (poll(&pfd, 1, 1000) > 0 && read(c->fd, rest, sizeof(rest)) == 0)
			return;
	}
}

pid_t client_worker(const char *name)
{
	_cleanup_close_ int run_fd = open_run();

	return run_fd < 0 ? 0 : worker_pid(run_fd, name);
}

uint64_t client_left_generation(const char *name)
{
	_cleanup_close_ int run_fd = open_run();
	struct json_object *o = run_fd < 0 ? NULL : read_status(run_fd, name);
	uint64_t generation = json_u64(o, "generation");

	json_object_put(o);
	return generation;
}

struct json_object *client_status_file(const char *which, struct failure *err)
{
	_cleanup_close_ int run_fd = open_run();
	char name[RUNDIR_NAME_BYTES];
	struct json_object *o;
	bool replaced = false;

	if (run_fd < 0) {
		failure_set(err, EXIT_NOT_RUNNING, -ESRCH, "no volume is attached");
		return NULL;
	}
	if (resolve(run_fd, which, name, err) < 0)
		return NULL;
	/* no connection tells whether there will be another worker */
	while (!worker_pid(run_fd, name) && (replaced = is_replaced(run_fd, name)) && may_wait())
		poll(NULL, 0, REPLACE_LOOK_MS);
	o = replaced || worker_pid(run_fd, name) ? read_status(run_fd, name) : NULL;
	if (!o)
		(void)!not_running(run_fd, name, err);
	return o;
}

struct json_object *client_status(const char *which, struct failure *err)
{
	struct json_object *s;
	struct client c;

	if (client_open(&c, which, err) < 0)
		return client_status_file(which, err);
	s = client_ask(&c, COMMAND_STATUS, err);
	client_close(&c);
	return s;
}

void client_statuses(char names[][RUNDIR_NAME_BYTES], size_t n,
		     struct json_object *ret[CLIENT_VOLUMES], struct failure err[CLIENT_VOLUMES])
{
	const struct request rq = { .command = COMMAND_STATUS };
	struct client c[CLIENT_VOLUMES];
	uint64_t begin_ns;

	for (size_t i = 0; i < n; i++) {
		bool open = client_open(&c[i], names[i], &err[i]) == 0;

		ret[i] = open ? NULL : client_status_file(names[i], &err[i]);
		if (open)
			c[i].asked = send_request(&c[i], &rq) == 0;
		else
			c[i].fd = -1;
	}
	begin_ns = now_ns();
	for (size_t i = 0; i < n; i++) {
		if (c[i].fd < 0)
			continue;
		/* what has come meanwhile counts in any case */
		c[i].until_ns = max_u64(now_ns() + ARRIVED_NS,
					client_worker(names[i])
						? begin_ns + silence_ns()
						: begin_ns + REPLACE_MS * 1000000ull);
		ret[i] = client_call(&c[i], &rq, NULL, NULL, &err[i]);
		if (ret[i] && !json_true(ret[i], "ok")) {
			(void)!failure(&err[i], -EIO, "volume %s: %s", names[i],
				       json_text(ret[i], "error"));
			json_object_put(ret[i]);
			ret[i] = NULL;
		}
		client_close(&c[i]);
	}
}
