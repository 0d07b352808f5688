/* SPDX-License-Identifier: MIT */
/*
 * The parent process: its actions when its worker ends or dies; and that the hardening is really in
 * force. No test sets running_root: that would reboot.
 */
#include "test.h"

#include <poll.h>
#include <sys/prctl.h>

#include <linux/capability.h>

#include "base/msg.h"
#include "base/thread.h"
#include "daemon/spare.h"
#include "daemon/confine.h"
#include "daemon/supervisor.h"
#include "export/fuse.h"
#include "scratch.h"

#ifndef PR_GET_IO_FLUSHER
#define PR_GET_IO_FLUSHER 58
#endif

#ifdef __has_feature
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static struct scratch s;

static int setup_bare(void **state)
{
	return scratch_new(&s, NULL, MIB) ? 0 : -1;
}

static int setup(void **state)
{
	return scratch_new(&s, "mkfs.ext4 -q -F", 32 * MIB) && scratch_mount(&s, "ext4", 0) == 0
		       ? 0
		       : -1;
}

static int teardown(void **state)
{
	scratch_thaw(&s);
	scratch_free(&s);
	return 0;
}

/* ---- a supervisor with a worker of the test ---- */

struct supervisor {
	pid_t pid;
	int log_fd, go_fd; /* its messages; the worker continues when this is closed or written */
	char log[1024];
};

static bool replace; /* workers that die are replaced */
static bool halt = true;
static bool mute; /* but the next one cannot say who it is */

static struct supervisor start(void (*worker)(struct supervisor_link *l, int go_fd))
{
	struct supervisor k = { 0 };
	int log[2], go[2];

	assert_int_equal(pipe2(log, O_CLOEXEC), 0);
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	k.pid = fork();
	if (k.pid == 0) {
		struct supervisor_opts o = { .kmsg_fd = log[1], .replace = replace, .halt = halt };
		struct supervisor_link l;

		if (mute)
			o.proc_dirfd = -1;
		else if (replace)
			o.proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(log[0]);
		close(go[1]);
		close(s.janitor_fd);
		close(s.loop.fd);
		close(s.loop.dev_dirfd);
		if (supervisor_start(&o, &l) < 0)
			_exit(99);
		worker(&l, go[0]);
		_exit(98);
	}
	close(log[1]);
	close(go[0]);
	k.log_fd = log[0];
	k.go_fd = go[1];
	return k;
}

/* Waits for the end of the parent: returns its exit status; its messages are in k->log. */
static int finish(struct supervisor *k)
{
	int status;
	ssize_t n;

	close(k->go_fd);
	assert_int_equal(waitpid(k->pid, &status, 0), k->pid);
	n = read(k->log_fd, k->log, sizeof(k->log) - 1);
	k->log[n > 0 ? n : 0] = '\0';
	close(k->log_fd);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* No message, except about something that this machine does not permit. */
static void assert_quiet(const struct supervisor *k)
{
	assert_null(strstr(k->log, "worker"));
}

static void wait_go(int go_fd)
{
	struct pollfd p = { .fd = go_fd, .events = POLLIN };

	poll(&p, 1, -1);
}

static int serving(struct supervisor_link *l, int abort_fd)
{
	int kept[SUPERVISOR_KEPT_MAX];

	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
		kept[i] = -1;
	kept[SUPERVISOR_ABORT] = abort_fd;
	if (abort_fd >= 0 && supervisor_keep(l->root_fd, kept, 0) < 0)
		return -EPIPE;
	return supervisor_serving(l);
}

static void worker_exits_0(struct supervisor_link *l, int go_fd)
{
	wait_go(go_fd);
	_exit(serving(l, -1) < 0);
}

static void worker_fails_to_start(struct supervisor_link *l, int go_fd)
{
	_exit(3);
}

static void worker_fails_later(struct supervisor_link *l, int go_fd)
{
	_exit(serving(l, -1) < 0 ? 9 : 4);
}

static void worker_dies(struct supervisor_link *l, int go_fd)
{
	raise(SIGKILL);
}

/* Reads no answer. */
static void worker_floods(struct supervisor_link *l, int go_fd)
{
	const char letter[56] = "?"; /* as large as a message */

	if (serving(l, -1) < 0)
		_exit(1);
	for (int i = 0; i < 100000; i++)
		(void)!send(l->sock_fd, letter, sizeof(letter), MSG_DONTWAIT);
	wait_go(go_fd);
	_exit(5);
}

TEST(test_exit_status, setup, teardown)
{
	struct supervisor k = start(worker_exits_0);

	assert_int_equal(finish(&k), 0);
	assert_quiet(&k);
	k = start(worker_fails_to_start);
	assert_int_equal(finish(&k), 3);
	assert_quiet(&k);
	k = start(worker_fails_later);
	assert_int_equal(finish(&k), 4);
	assert_non_null(strstr(k.log, "ended with status 4"));
	k = start(worker_dies);
	assert_int_equal(finish(&k), 128 + SIGKILL);
	assert_non_null(strstr(k.log, "killed by signal 9"));
}

/* A worker that takes no answers does not stop the parent. */
TEST(test_flood, setup, teardown)
{
	struct supervisor k = start(worker_floods);
	int status = finish(&k);

	assert_true(status == 5 || status == 128 + SIGKILL); /* one that is no message */
}

/* ---- a worker that serves a file system, and dies ---- */

#define VOLUME_BYTES (32 * MIB)

struct served {
	struct loop_dev loop;
	atomic_bool serves, failed, stalled; /* stalled: no write is answered */
	pid_t worker;
	char data[VOLUME_BYTES];
};

static struct served *served;				  /* shared with the worker */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER; /* one server after another */

uint64_t view_volume_blks(const struct view *v)
{
	return VOLUME_BYTES / COW_BLK_BYTES;
}

int view_read(struct view *v, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	pthread_mutex_lock(&order);
	memcpy(buf, served->data + off_bytes, len_bytes);
	pthread_mutex_unlock(&order);
	return 0;
}

int view_start_read(struct view *v, uint64_t off_bytes, void *buf, size_t len_bytes,
		    struct view_read *rd)
{
	return view_read(v, off_bytes, buf, len_bytes);
}

bool view_write_waits(struct view *v, uint64_t off_bytes, size_t len_bytes)
{
	return false;
}

int view_write(struct view *v, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	while (served->stalled)
		usleep(1000);
	pthread_mutex_lock(&order);
	memcpy(served->data + off_bytes, buf, len_bytes);
	pthread_mutex_unlock(&order);
	return 0;
}

int view_punch(struct view *v, uint64_t off_bytes, uint64_t len_bytes)
{
	pthread_mutex_lock(&order);
	memset(served->data + off_bytes, 0, len_bytes);
	pthread_mutex_unlock(&order);
	return 0;
}

static void serve_volume(struct supervisor_link *l)
{
	struct fuse_export *e;
	char command[128];
	int file_fd;

	served->worker = getpid();
	served->failed =
		fuse_export_start(&e, NULL, l->kernel_fd, -1, "cowfs:test", NULL, &file_fd) < 0 ||
		loop_attach(&served->loop, file_fd, &usual_limits, s.label, false, NULL, -1) < 0;
	if (!served->failed) {
		snprintf(command, sizeof(command), "PATH=$PATH:/sbin:/usr/sbin; mkfs.ext4 -q -F %s",
			 served->loop.path);
		served->failed = system(command) != 0 ||
				 mount(served->loop.path, s.mnt, "ext4", 0, NULL) < 0 ||
				 serving(l, fuse_export_abort_fd(e)) < 0;
	}
}

static void worker_serves(struct supervisor_link *l, int go_fd)
{
	serve_volume(l);
	served->serves = !served->failed;
	wait_go(go_fd);
	raise(SIGKILL);
}

static int sync_all(int fd)
{
	return syncfs(fd);
}

static bool alone; /* the thread that syncs has no descriptors of the others */

/* A sync that waits, unkillable, for writes that this same process does not answer. */
static void worker_syncs_stalled(struct supervisor_link *l, int go_fd)
{
	char path[160];
	int fd;

	serve_volume(l);
	if (served->failed)
		_exit(1);
	snprintf(path, sizeof(path), "%s/dirty", s.mnt);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	served->stalled = true;
	served->serves = true; /* the write may wait, too, if another's sync(2) began a commit */
	(void)!write(fd, path, sizeof(path));
	(void)!(alone ? thread_call_alone("sync", fd, sync_all) : sync_all(fd));
}

static struct supervisor start_serving(void (*worker)(struct supervisor_link *l, int go_fd))
{
	struct supervisor k;

	served = mmap(NULL, sizeof(*served), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_true(served != MAP_FAILED);
	k = start(worker);
	while (!served->serves && !served->failed)
		usleep(1000);
	assert_false(served->failed);
	return k;
}

static void end_serving(void)
{
	struct scratch of_worker = s;
	int fd;

	of_worker.loop = served->loop;
	assert_int_equal(umount(s.mnt), 0);
	scratch_clear_loop(&of_worker);
	fd = open(served->loop.path, O_RDONLY | O_EXCL | O_CLOEXEC);
	assert_true(fd >= 0 || errno != EBUSY);
	if (fd >= 0)
		close(fd);
	munmap(served, sizeof(*served));
}

TEST(test_death_of_serving_worker, setup_bare, teardown)
{
	struct supervisor k = start_serving(worker_serves);

	assert_int_equal(finish(&k), 128 + SIGKILL);
	assert_non_null(strstr(k.log, "killed by signal 9"));
	assert_null(strstr(k.log, "cannot end")); /* nor is it waited for */
	end_serving();
}

static void dies_in_sync(void)
{
	struct supervisor k = start_serving(worker_syncs_stalled);
	char waits[80];

	snprintf(waits, sizeof(waits), "grep -qs '^State:.D' /proc/%d/task/*/status",
		 served->worker);
	while (system(waits) != 0)
		usleep(10000);
	assert_int_equal(kill(served->worker, SIGKILL), 0);
	assert_int_equal(finish(&k), 128 + SIGKILL);
	assert_non_null(strstr(k.log, "cannot end, it waits for its own device"));
	assert_non_null(strstr(k.log, "killed by signal 9"));
	end_serving();
}

/* The worker's descriptors stay open while its sync hangs, and the sync hangs while they are
 * open. */
TEST(test_death_in_sync, setup_bare, teardown)
{
	dies_in_sync();
}

/* Its link ends, and its sync hangs while the parent has its descriptor. */
TEST(test_death_beside_sync, setup_bare, teardown)
{
	alone = true;
	dies_in_sync();
	alone = false;
}

/* ---- what passes to and from a worker that has no rights ---- */

/* The other end of the pipe whose end was passed is closed once nobody has it. */
static bool is_kept(int pipe_fd[2])
{
	struct pollfd p = { .fd = pipe_fd[0] };

	close(pipe_fd[1]);
	return poll(&p, 1, 2000) == 0;
}

/* Its question, with a descriptor for the parent. */
static bool gives(int sock_fd, uint32_t what, int fd)
{
	struct message m = { .what = what,
			     .slots = UINT32_C(1) << SUPERVISOR_KEPT,
			     .number = 4711 };

	return passfd_send(sock_fd, &m, sizeof(m), &fd, 1, 0) == 0;
}

static void worker_gives(struct supervisor_link *l, int go_fd)
{
	static const uint32_t asks[] = { LINK_SERVING, LINK_ENDING, LINK_KEEP, LINK_HELLO };
	int fd[SUPERVISOR_KEPT_MAX], pipe_fd[2];
	struct message answer;

	(void)go_fd;
	/* root's link is the way */
	if (pipe(pipe_fd) < 0 || !gives(l->root_fd, LINK_KEEP, pipe_fd[1]) ||
	    link_receive(l->root_fd, &answer, fd) != 1 || !is_kept(pipe_fd))
		_exit(2);
	for (size_t i = 0; i < ARRAY_SIZE(asks); i++) {
		if (pipe(pipe_fd) < 0)
			_exit(3);
		/* Linux 6.16 refuses it; before, it is closed */
		if (gives(l->sock_fd, asks[i], pipe_fd[1]) &&
		    link_receive(l->sock_fd, &answer, fd) != 1)
			_exit(4);
		if (is_kept(pipe_fd))
			_exit(5);
	}
	/* and nothing comes out of it, nor of root's while no worker takes over */
	for (unsigned i = 0; i < 2; i++) {
		int sock_fd = i ? l->root_fd : l->sock_fd;

		if (link_send(sock_fd, (struct message){ .what = LINK_TAKE }, NULL) < 0 ||
		    link_receive(sock_fd, &answer, fd) != 1)
			_exit(6);
		for (unsigned k = 0; k < SUPERVISOR_KEPT_MAX; k++)
			if (fd[k] >= 0)
				_exit(7);
	}
	_exit(0);
}

TEST(test_no_descriptors, setup_bare, teardown)
{
	struct supervisor k = start(worker_gives);

	assert_int_equal(finish(&k), 0);
}

/* ---- workers that are replaced ---- */

static struct replaced {
	_Atomic pid_t worker; /* that serves; 0: none */
	atomic_uint started;
	atomic_uint dies_at_start; /* the worker with this number; the next one fails */
	atomic_bool halted, wrong;
} * rep; /* shared with all workers */

static void worker_of_many(struct supervisor_link *l, int go_fd)
{
	int kept[SUPERVISOR_KEPT_MAX];
	char byte = 0;
	bool halted;

	(void)go_fd; /* only the first one has it */
	rep->started++;
	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
		kept[i] = -1;
	if (l->replaces) {
		int again[SUPERVISOR_KEPT_MAX];

		rep->wrong |= supervisor_take(l, kept, &halted) < 0;
		rep->halted = halted;
		/* what is kept is given once */
		rep->wrong |= supervisor_take(l, again, &halted) != -EPROTO;
	} else {
		int fd[2];

		rep->wrong |= pipe(fd) < 0 || write(fd[1], "k", 1) != 1;
		kept[SUPERVISOR_KERNEL] = l->kernel_fd;
		kept[SUPERVISOR_KEPT] = fd[0];
		kept[SUPERVISOR_KEPT + 3] = fd[1];
	}
	if (rep->started == rep->dies_at_start)
		raise(SIGKILL);
	if (rep->dies_at_start && rep->started == rep->dies_at_start + 1)
		_exit(EXIT_FAILURE);
	/* each one finds what the one before left */
	rep->wrong |= read(kept[SUPERVISOR_KEPT], &byte, 1) != 1 || byte != 'k' ||
		      write(kept[SUPERVISOR_KEPT + 3], "k", 1) != 1 ||
		      kept[SUPERVISOR_KEPT + 1] >= 0;
	rep->wrong |= (!l->replaces && supervisor_keep(l->root_fd, kept, 0) < 0) ||
		      supervisor_serving(l) < 0;
	rep->worker = getpid();
	for (;;)
		pause();
}

static struct supervisor start_many(unsigned dies_at_start)
{
	struct supervisor k;

	rep = mmap(NULL, sizeof(*rep), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(rep != MAP_FAILED);
	rep->dies_at_start = dies_at_start;
	replace = true;
	k = start(worker_of_many);
	replace = false;
	return k;
}

static bool wait_worker(void)
{
	for (unsigned ms = 60000; ms && !rep->worker; ms--)
		usleep(1000);
	return rep->worker;
}

/* Waits for the next one. */
static bool kill_worker(void)
{
	pid_t pid = atomic_exchange(&rep->worker, 0);

	assert_int_equal(kill(pid, SIGKILL), 0);
	return wait_worker();
}

TEST(test_replace, setup_bare, teardown)
{
	struct supervisor k = start_many(0);

	assert_true(wait_worker());
	for (unsigned n = 1; n <= 3; n++) {
		assert_int_equal(rep->started, n);
		assert_false(rep->halted);
		assert_true(kill_worker());
	}
	assert_true(rep->halted); /* three within a minute */
	assert_false(rep->wrong);
	assert_int_equal(kill(rep->worker, SIGKILL), 0);
	assert_int_equal(finish(&k), 128 + SIGKILL);
	assert_int_equal(rep->started, 4);
	assert_non_null(strstr(k.log, "another one takes over"));
	munmap(rep, sizeof(*rep));
}

/* Nobody looks after the machine: the third death is the end. */
TEST(test_not_halted, setup, teardown)
{
	struct supervisor k;

	halt = false;
	k = start_many(0);
	halt = true;
	assert_true(wait_worker());
	assert_true(kill_worker());
	assert_true(kill_worker());
	assert_int_equal(kill(rep->worker, SIGKILL), 0);
	assert_int_equal(finish(&k), 128 + SIGKILL);
	assert_int_equal(rep->started, 3);
	assert_false(rep->halted);
	assert_non_null(strstr(k.log, "3 workers died within 60 s: its I/O now fails"));
	munmap(rep, sizeof(*rep));
}

/* The next worker dies before it serves, and the one after it fails. */
TEST(test_replace_many, setup, teardown)
{
	struct supervisor k;

	setenv("COWFS_DEATHS", "17", 1);
	k = start_many(2);
	unsetenv("COWFS_DEATHS");
	assert_true(wait_worker());
	assert_true(kill_worker());
	assert_int_equal(rep->started, 4);
	for (unsigned i = 0; i < 20; i++)
		assert_true(kill_worker());
	assert_false(rep->halted);
	assert_false(rep->wrong);
	assert_int_equal(kill(k.pid, SIGKILL), 0); /* the spare ends with its parent */
	assert_int_equal(kill(rep->worker, SIGKILL), 0);
	assert_int_equal(waitpid(k.pid, NULL, 0), k.pid);
	close(k.go_fd);
	close(k.log_fd);
	munmap(rep, sizeof(*rep));
}

static struct {
	atomic_uint started;
	int sock_fd;
} * fails;

static void *closes_the_link_first(void *unused)
{
	close(fails->sock_fd);
	poll(NULL, 0, 200);
	_exit(EXIT_FAILURE);
	return unused;
}

/* Of the next ones the first thread and the link end some time before the process, as they may on a busy machine. */
static void worker_serves_once(struct supervisor_link *l, int go_fd)
{
	int kept[SUPERVISOR_KEPT_MAX];
	pthread_t thread;
	bool halted;

	(void)go_fd;
	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
		kept[i] = -1;
	kept[SUPERVISOR_KERNEL] = l->kernel_fd;
	if (!l->replaces && supervisor_keep(l->root_fd, kept, 0) == 0 && supervisor_serving(l) == 0)
		raise(SIGKILL);
	fails->started++;
	fails->sock_fd = l->sock_fd;
	if (supervisor_take(l, kept, &halted) < 0 ||
	    pthread_create(&thread, NULL, closes_the_link_first, NULL))
		_exit(EXIT_FAILURE);
	pthread_exit(NULL);
}

/* A start that fails is no death in a row, is judged once, and the tenth is the last. */
TEST(test_starts_fail, setup_bare, teardown)
{
	struct supervisor k;

	fails = mmap(NULL, sizeof(*fails), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	assert_true(fails != MAP_FAILED);
	replace = true;
	k = start(worker_serves_once);
	replace = false;
	assert_int_equal(finish(&k), EXIT_FAILURE);
	assert_int_equal(fails->started, 10);
	assert_null(strstr(k.log, "workers died within"));
	munmap(fails, sizeof(*fails));
}

static void worker_is_alone(struct supervisor_link *l, int go_fd)
{
	int kept[SUPERVISOR_KEPT_MAX];
	bool halted;

	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
		kept[i] = -1;
	kept[SUPERVISOR_KERNEL] = l->kernel_fd;
	if (!l->replaces && supervisor_keep(l->root_fd, kept, 0) == 0 && supervisor_serving(l) == 0)
		raise(SIGKILL);
	/* the parent waits for it no more */
	_exit(supervisor_take(l, kept, &halted) == 0);
}

TEST(test_no_next_worker, setup_bare, teardown)
{
	struct supervisor k;

	replace = mute = true;
	k = start(worker_is_alone);
	replace = mute = false;
	assert_int_equal(finish(&k), 128 + SIGKILL);
	assert_non_null(strstr(k.log, "no new worker"));
	assert_non_null(strstr(k.log, "its I/O now fails"));
}

/* Two threads ask the parent at the same time: each one gets its answer. */
static void *asks_again_and_again(void *link)
{
	for (unsigned i = 0; i < 2000; i++)
		if (serving(link, -1) < 0)
			return link;
	return NULL;
}

static void worker_asks_twice(struct supervisor_link *l, int go_fd)
{
	pthread_t thread;
	void *failed;

	if (pthread_create(&thread, NULL, asks_again_and_again, l))
		_exit(1);
	for (unsigned i = 0; i < 2000; i++)
		(void)!supervisor_serving(l);
	pthread_join(thread, &failed);
	_exit(failed ? 2 : 0);
}

TEST(test_two_ask, setup_bare, teardown)
{
	struct supervisor k = start(worker_asks_twice);

	assert_int_equal(finish(&k), 0);
	assert_quiet(&k);
}

/* No worker of this test gives a sign of life. */
TEST(test_watchdog, setup_bare, teardown)
{
	struct supervisor k;
	pid_t first;

	setenv("COWFS_STUCK_AFTER", "1s", 1);
	k = start_many(0);
	unsetenv("COWFS_STUCK_AFTER");
	assert_true(wait_worker());
	first = atomic_exchange(&rep->worker, 0);
	assert_int_equal(kill(first, SIGSTOP), 0); /* somebody looks at it */
	sleep(6);
	assert_int_equal(rep->started, 1);
	assert_int_equal(kill(first, SIGCONT), 0);
	assert_true(wait_worker());
	assert_int_equal(rep->started, 2);
	assert_int_equal(kill(k.pid, SIGKILL), 0);
	assert_int_equal(kill(rep->worker, SIGKILL), 0);
	assert_int_equal(waitpid(k.pid, NULL, 0), k.pid);
	assert_true(read(k.log_fd, k.log, sizeof(k.log) - 1) > 0);
	assert_non_null(strstr(k.log, "has given no sign of life"));
	close(k.go_fd);
	close(k.log_fd);
	munmap(rep, sizeof(*rep));
}

/* ---- hardening ---- */

/* Failures for lack of CAP_SYS_RESOURCE (containers): everything else is tested nevertheless. */
static unsigned not_permitted;

static uint64_t status_field(const char *name, int base)
{
	char text[8192], *p;

	if (io_read_text(AT_FDCWD, "/proc/self/status", text, sizeof(text)) < 0)
		return 0;
	p = strstr(text, name);
	return p ? strtoull(p + strlen(name), NULL, base) : 0;
}

static int hardened_child(char *argv0)
{
	static char lazy[64 * MIB];
	const uint64_t ignored = 1u << (SIGTERM - 1) | 1u << (SIGHUP - 1) | 1u << (SIGINT - 1) |
				 1u << (SIGPIPE - 1);
	char text[64];
	struct rlimit lim;
	uint64_t locked_kib;
	void *later;

	if (harden_process(HARDEN_ALL & ~(unsigned)HARDEN_MARK, NULL) != not_permitted)
		return 1;
	if (!not_permitted && prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0) != 1)
		return 2;
	if (!not_permitted &&
	    (io_read_text(AT_FDCWD, "/proc/self/oom_score_adj", text, sizeof(text)) < 0 ||
	     strcmp(text, "-1000")))
		return 3;
	if ((status_field("SigIgn:", 16) & ignored) != ignored)
		return 4;
	if (getrlimit(RLIMIT_NOFILE, &lim) < 0 || lim.rlim_cur < 4096)
		return 5;
	if (!getcwd(text, sizeof(text)) || strcmp(text, "/"))
		return 6;
	/* later memory is locked, but only touched pages */
	locked_kib = status_field("VmLck:", 10);
	later = malloc(32 * MIB);
	if (!SANITIZED &&
	    (locked_kib == 0 || !later || status_field("VmLck:", 10) < locked_kib + 32 * 1024 ||
	     status_field("VmRSS:", 10) > 16 * 1024 + sizeof(lazy) / 1024))
		return 7;
	free(later);
	if (harden_process(HARDEN_MARK, NULL) != HARDEN_MARK)
		return 8;
	if (harden_process(HARDEN_MARK, argv0) != 0 ||
	    io_read_text(AT_FDCWD, "/proc/self/cmdline", text, sizeof(text)) < 0 || text[0] != '@')
		return 9;
	return 0;
}

static int powerless_child(void)
{
	const unsigned expected = HARDEN_IO_FLUSHER | HARDEN_OOM;
	unsigned failed;

	if (setresuid(65534, 65534, 65534) < 0)
		return 1;
	failed = harden_process(HARDEN_ALL & ~(unsigned)HARDEN_MARK, NULL);
	return (failed & expected) == expected && !(failed & (HARDEN_SIGNALS | HARDEN_DIR)) ? 0 : 2;
}

static int crashing_child(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_CORE, &lim) < 0)
		return 1;
	lim.rlim_cur = lim.rlim_max;
	if (setrlimit(RLIMIT_CORE, &lim) < 0 || harden_process(HARDEN_NO_CORE, NULL))
		return 2;
	signal(SIGSEGV, SIG_DFL);
	raise(SIGSEGV);
	return 3;
}

static char *main_argv0;

static int child_status(int (*child)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static int hardened(void)
{
	return hardened_child(main_argv0);
}

TEST(test_harden)
{
	if (!(status_field("CapEff:", 16) >> CAP_SYS_RESOURCE & 1)) {
		printf("           SKIP: no CAP_SYS_RESOURCE: I/O flusher and oom_score_adj\n");
		not_permitted = HARDEN_IO_FLUSHER | HARDEN_OOM;
	}
	assert_int_equal(child_status(hardened), 0);
	assert_int_equal(child_status(powerless_child), 0);
	assert_int_equal(child_status(crashing_child), SIGSEGV); /* and no WCOREFLAG */
	for (unsigned bit = 1; bit & HARDEN_BITS; bit <<= 1)
		assert_string_not_equal(harden_name(bit), "?");
}

int main(int argc, char **argv)
{
	main_argv0 = argv[0];
	return tests_run_as_root(NULL, NULL);
}
