/* SPDX-License-Identifier: MIT */
/*
 * Parent and worker.
 *
 * Notes on the design
 * - The link is a SOCK_SEQPACKET pair. A message is one byte. 'F' with a descriptor of the mount:
 *   a freeze is requested, or has happened (restarts the timer). 'T': thawed. 'S': serving. Each
 *   message is answered by the same byte.
 * - The dead-man timer counts slices. A stop of all processes (systemd before it kills them,
 *   suspend) lets at most one slice pass, so the worker gets its time after it as well.
 * - FITHAW writes the superblock through the worker. If the worker hangs, so does the thaw. So a
 *   helper thread thaws, and the parent can still see the worker's death and close the FUSE
 *   descriptor, which ends the hang. For the same reason the parent closes the descriptor first
 *   after a death.
 * - A killed worker is not dead while one of its threads sleeps unkillably in I/O on its own
 *   volume (syncfs, FIFREEZE). That thread has no descriptors (thread_call_alone), so the link
 *   ends with the other threads, and the I/O ends when the parent closes the FUSE descriptor. A
 *   thread that sleeps elsewhere keeps the link and the FUSE descriptor open, although no thread
 *   reads from it any more. So the parent also checks the worker's state, and aborts the
 *   connection through a descriptor of fusectl that it got from the worker.
 * - Only another process can thaw what a killed worker had frozen. All processes of a unit are
 *   killed together, so the parent leaves the cgroup.
 * - The worker notices a dead-man thaw: its own FITHAW fails (-ECANCELED of quiesce_run).
 */
#include "daemon/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <linux/fs.h>

#include "base/io.h"
#include "base/msg.h"
#include "base/proclist.h"
#include "base/thread.h"
#include "daemon/cgroup.h"
#include "export/transport.h"

#define DEADMAN_NS (10 * 1000000000ull)
#define SLICE_NS 250000000ull
#define SLICE_MS 250
#define LOOK_MS 2000   /* interval of looks at the worker while all is quiet */
#define DYING_SLICES 4 /* time that a death may take by itself */
#define ENDED_SLICES 1 /* the same if only threads without descriptors are left */
#define THAW_TRIES 20  /* slices */
#define ANSWER_WAIT_S 1
#define THAW_STACK_BYTES (256 * KIB)

/* Thaws in its own thread, one job at a time. */
struct thawer {
	int event_fd;
	int job_fd;   /* owned by the thread while busy */
	bool started; /* a job for the current freeze; earlier jobs do not count */
	atomic_bool busy;
	atomic_bool thawed; /* the last job succeeded */
};

struct parent {
	struct supervisor_opts opts;
	pid_t worker;
	int worker_pidfd, worker_status_fd, sock_fd, kernel_fd, null_fd;
	int abort_fd; /* ends the FUSE connection even if others hold /dev/fuse; -1: none */
	bool serving;
	unsigned dying; /* slices */
	int mount_fd;	/* of the mount that may be frozen; -1: none */
	uint64_t armed_ns;
	struct thawer thawer;
};

/* ---- link ---- */

static int send_message(int sock_fd, char what, int fd)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = &what, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		struct cmsghdr *c;

		m.msg_control = control.space;
		m.msg_controllen = sizeof(control.space);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	return sendmsg(sock_fd, &m, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

/* 1 a message; 0 end of file, or no message in time; -errno. *ret_fd: -1 if none was passed */
static int receive_message(int sock_fd, char *what, int *ret_fd)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = what, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.space,
			    .msg_controllen = sizeof(control.space) };
	ssize_t n = recvmsg(sock_fd, &m, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);

	*ret_fd = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	return n < 0 ? -errno : (int)n;
}

/* Sends to the parent and waits for its answer. */
static int tell_parent(struct supervisor_link *l, char what, int fd)
{
	int r = send_message(l->sock_fd, what, fd), none;
	char answer = 0;

	if (r < 0)
		return r;
	/* an answer that was late last time may still be in the queue */
	while ((r = receive_message(l->sock_fd, &answer, &none)) == 1 && answer != what)
		;
	return r == 1 ? 0 : r < 0 ? r : -EPIPE;
}

int supervisor_serving(struct supervisor_link *l)
{
	return tell_parent(l, 'S', l->abort_fd);
}

void supervisor_frozen(void *link, int mount_fd)
{
	int r = tell_parent(link, mount_fd >= 0 ? 'F' : 'T', mount_fd);

	if (r < 0)
		msg(MSG_WARN, "the parent process does not answer: %s", strerror(-r));
}

/* ---- thawing ---- */

static int call_thaw(int fd)
{
	return ioctl(fd, FITHAW, 0);
}

/* This process must not keep /dev/fuse open while a thaw sleeps either. */
static void *thawer_main(void *arg)
{
	struct thawer *t = arg;
	uint64_t count;

	while (read(t->event_fd, &count, sizeof(count)) == sizeof(count)) {
		t->thawed = thread_call_alone("cowfs-thaw", t->job_fd, call_thaw) == 0;
		close(t->job_fd);
		t->busy = false;
	}
	return NULL;
}

static int thawer_start(struct thawer *t)
{
	pthread_t thread;
	int r;

	t->event_fd = eventfd(0, EFD_CLOEXEC);
	if (t->event_fd < 0)
		return -errno;
	r = thread_start(&thread, NULL, THAW_STACK_BYTES, thawer_main, t);
	if (r == 0)
		pthread_detach(thread);
	return r;
}

/* Is the file system thawed? Waits at most wait_ns for the answer; call again if not. */
static bool thaw(struct thawer *t, int mount_fd, uint64_t wait_ns)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	uint64_t until_ns = now_ns() + wait_ns, one = 1;

	if (!t->busy && !t->started) {
		t->job_fd = fcntl(mount_fd, F_DUPFD_CLOEXEC, 3);
		if (t->job_fd < 0)
			return false;
		t->started = true;
		t->busy = true;
		if (write(t->event_fd, &one, sizeof(one)) < 0)
			return false;
	}
	while (t->busy && now_ns() < until_ns)
		nanosleep(&nap, NULL);
	if (t->busy)
		return false;
	if (t->started && t->thawed)
		return true;
	t->started = false;
	return false;
}

/* ---- main loop of the parent ---- */

static void drop_mount(struct parent *p)
{
	if (p->mount_fd >= 0)
		close(steal_fd(&p->mount_fd));
	p->armed_ns = 0;
	p->thawer.started = false;
}

static void detach_stdio(struct parent *p)
{
	for (int fd = 0; fd < 3 && p->null_fd >= 0; fd++)
		if (fd != p->opts.kmsg_fd)
			dup2(p->null_fd, fd);
}

/* False: the worker has closed its end. */
static bool serve_link(struct parent *p)
{
	char what;
	int fd, r = receive_message(p->sock_fd, &what, &fd);

	if (r == 0 || (r < 0 && r != -EINTR && r != -EAGAIN))
		return false;
	if (r < 0)
		return true;
	drop_mount(p);
	if (what == 'F')
		p->mount_fd = steal_fd(&fd);
	else if (what == 'S') {
		p->serving = true;
		p->abort_fd = steal_fd(&fd);
	}
	if (fd >= 0)
		close(fd);
	if (what == 'S' && p->opts.detach_stdio)
		detach_stdio(p);
	(void)send_message(p->sock_fd, what, -1);
	return true;
}

static void deadman(struct parent *p, uint64_t passed_ns)
{
	if (p->mount_fd < 0)
		return;
	p->armed_ns += min_u64(passed_ns, 2 * SLICE_NS);
	/*
	 * repeated at each slice: a freeze may still be in progress (EINVAL until it is complete)
	 */
	if (p->armed_ns < p->opts.deadman_ns || !thaw(&p->thawer, p->mount_fd, SLICE_NS))
		return;
	msg(MSG_ERR, "the worker left the file system frozen for %llu ms: thawed",
	    (unsigned long long)(p->armed_ns / 1000000));
	drop_mount(p);
}

/* Nothing else can help a root without a disk. */
static void reboot_if_root(const struct parent *p)
{
	if (!p->opts.running_root || !p->serving)
		return;
	reboot(RB_AUTOBOOT); /* no sync: it would wait for the dead disk */
	msg(MSG_ERR, "reboot failed: %s", strerror(errno));
}

static const char *what_next(const struct parent *p)
{
	return p->opts.running_root && p->serving ? "rebooting" : "its I/O now fails";
}

static void let_go(struct parent *p)
{
	if (p->abort_fd >= 0 && write(p->abort_fd, "1", 1) < 0)
		msg(MSG_ERR, "cannot abort the FUSE connection: %s", strerror(errno));
	if (p->kernel_fd >= 0)
		close(steal_fd(&p->kernel_fd));
}

static void look(struct parent *p)
{
	if (!p->serving || !proclist_is_dying(p->worker_status_fd)) {
		p->dying = 0;
		return;
	}
	if (++p->dying != DYING_SLICES)
		return;
	msg(MSG_ERR, "worker %d cannot end, it waits for its own device: %s", p->worker,
	    what_next(p));
	reboot_if_root(p);
	let_go(p);
}

/* Returns when the worker is dead. */
static void watch(struct parent *p)
{
	struct pollfd fds[2] = { { .fd = p->worker_pidfd, .events = POLLIN },
				 { .fd = p->sock_fd, .events = POLLIN } };
	uint64_t last_ns = now_ns();

	for (;;) {
		bool hurry = p->mount_fd >= 0 || p->dying;
		int n = poll(fds, 2, hurry ? SLICE_MS : p->serving ? LOOK_MS : -1);
		uint64_t now = now_ns();

		deadman(p, now - last_ns);
		last_ns = now;
		if (n == 0)
			look(p);
		if (n <= 0)
			continue;
		if (fds[1].revents && !serve_link(p)) {
			if (fds[0].fd < 0)
				return;
			fds[1].fd = -1;
			p->dying = max_u64(p->dying, DYING_SLICES - 1 - ENDED_SLICES);
		} else if (fds[0].revents && !fds[1].revents) {
			return; /* after the worker's last messages */
		}
	}
}

static int status_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void report_death(const struct parent *p, int status)
{
	if (WIFSIGNALED(status))
		msg(MSG_ERR, "worker %d was killed by signal %d: %s", p->worker, WTERMSIG(status),
		    what_next(p));
	else if (p->serving) /* otherwise a failed start: the worker has reported the reason */
		msg(MSG_ERR, "worker %d ended with status %d: %s", p->worker, WEXITSTATUS(status),
		    what_next(p));
}

static __attribute__((noreturn)) void bury(struct parent *p)
{
	int status = 0;

	while (waitpid(p->worker, &status, 0) < 0 && errno == EINTR)
		;
	if (status != 0) {
		report_death(p, status);
		reboot_if_root(p);
	}
	let_go(p);
	for (int i = 0; i < THAW_TRIES && p->mount_fd >= 0; i++)
		if (thaw(&p->thawer, p->mount_fd, SLICE_NS)) {
			msg(MSG_ERR, "thawed the file system that the worker had frozen");
			break;
		}
	_exit(status_of(status));
}

static __attribute__((noreturn)) void parent_main(struct parent *p, bool mark)
{
	unsigned failed, flags = HARDEN_ALL & ~(mark ? 0u : (unsigned)HARDEN_MARK);

	prctl(PR_SET_NAME, "cowfs-parent");
	failed = harden_process(flags, p->opts.argv0);
	failed |= harden_confine(HARDEN_CAPABILITIES, CONFINE_PARENT);
	if (thawer_start(&p->thawer) < 0)
		msg(MSG_WARN, "parent process: no dead-man timer");
	failed |= harden_confine(HARDEN_CALLS, CONFINE_PARENT);
	for (unsigned bit = 1; bit & HARDEN_BITS; bit <<= 1)
		if (failed & bit)
			msg(MSG_WARN, "parent process: no %s", harden_name(bit));
	watch(p);
	bury(p);
}

static void leave_cgroup(void)
{
	_cleanup_close_ int proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	cgroup_leave(proc_dirfd);
}

static int open_link(int pair[2])
{
	const struct timeval wait = { .tv_sec = ANSWER_WAIT_S };

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	return 0;
}

int supervisor_start(const struct supervisor_opts *o, struct supervisor_link *ret)
{
	_cleanup_close_ int kernel_fd = transport_open(), null_fd = -1;
	struct parent p = { .opts = *o, .mount_fd = -1, .abort_fd = -1 };
	bool from_ram = harden_started_from_ram();
	char path[32];
	int pair[2], r;

	if (kernel_fd < 0)
		return kernel_fd;
	r = open_link(pair);
	if (r < 0)
		return r;
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (o->kmsg_fd < 0)
		p.opts.kmsg_fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	p.worker = fork();
	if (p.worker < 0) {
		r = -errno;
		close(pair[0]);
		close(pair[1]);
		if (o->kmsg_fd < 0 && p.opts.kmsg_fd >= 0)
			close(p.opts.kmsg_fd);
		return r;
	}
	if (p.worker == 0) {
		close(pair[0]);
		*ret = (struct supervisor_link){ .sock_fd = pair[1],
						 .kernel_fd = steal_fd(&kernel_fd),
						 .kmsg_fd = p.opts.kmsg_fd,
						 .abort_fd = -1,
						 .from_ram = from_ram };
		return 0;
	}
	close(pair[1]);
	p.worker_pidfd = pidfd_open(p.worker, 0);
	snprintf(path, sizeof(path), "/proc/%d/status", p.worker);
	p.worker_status_fd = open(path, O_RDONLY | O_CLOEXEC);
	p.sock_fd = pair[0];
	p.kernel_fd = kernel_fd;
	p.null_fd = null_fd;
	p.opts.running_root &= from_ram;
	p.opts.deadman_ns = o->deadman_ns ? o->deadman_ns : DEADMAN_NS;
	msg_to_kmsg(p.opts.kmsg_fd);
	if (o->leave_cgroup)
		leave_cgroup();
	parent_main(&p, o->mark || from_ram);
}
