/* SPDX-License-Identifier: MIT */
/*
 * Parent and worker.
 *
 * Notes on the design
 * - A killed worker is not dead while one of its threads sleeps unkillably in I/O on its own
 *   volume (a sync). That thread has no descriptors (thread_call_alone), so the link
 *   ends with the other threads, and the I/O ends when the parent closes the FUSE descriptor. A
 *   thread that sleeps elsewhere keeps the link and the FUSE descriptor open, although no thread
 *   reads from it any more. So the parent also checks the worker's state, and aborts the
 *   connection through a descriptor of fusectl that it got from the worker.
 * - All processes of a unit are killed together, so the parent leaves the cgroup.
 */
#include "daemon/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/allowance.h"
#include "base/io.h"
#include "base/msg.h"
#include "base/parse.h"
#include "base/proclist.h"
#include "base/sandbox.h"
#include "daemon/cgroup.h"
#include "daemon/spare.h"
#include "export/transport.h"
#include "wire/proto.h"

#define SLICE_NS 250000000ull
#define SLICE_MS 250
#define LOOK_MS 2000	/* interval of looks at the worker while all is quiet */
#define DYING_SLICES 4	/* time that a death may take by itself */
#define ENDED_SLICES 1	/* the same if only threads without descriptors are left */
#define SLOW_SLICES 240 /* a death that takes longer is reported */
#define DEATHS_MAX 16
#define HALT_AFTER 3 /* deaths within HALT_NS */
#define HALT_NS (60 * 1000000000ull)
#define LEFT_MAX 16
#define STUCK_NS (60 * 1000000000ull)  /* without a sign of life */
#define START_NS (300 * 1000000000ull) /* until a worker that replaces another one serves */
#define STARTS_MAX 10		       /* that fail in a row */
#define START_PAUSE_MS 1000
#define START_END_MS 5000	   /* in which one that failed ends: its link does so first */
#define MESSAGE_COST_NS 1000000ull /* allowance.h */

struct parent {
	struct supervisor_opts opts;
	struct allowance messages; /* of the worker */
	int spare_fd;		   /* -1: none, or it is dead */
	bool mark;		   /* its processes set '@' */
	pid_t worker;
	int worker_pidfd, worker_status_fd, kernel_fd, mounts_fd, null_fd;
	int sock_fd, root_fd; /* links: of the worker; of root, -1: closed */
	int status;	      /* of the worker, once it has ended */
	bool reaped, judged;  /* judged: it is decided what its death leads to */
	int kept[SUPERVISOR_KEPT_MAX];
	bool taken;    /* by the present worker */
	bool serving;  /* a worker has served */
	bool starting; /* the present worker replaces another one and does not serve yet */
	bool halted, ending, ended;
	unsigned failed;	      /* starts in a row */
	uint64_t start_ns;	      /* time for the next one */
	unsigned dying;		      /* slices */
	uint64_t died_ns[DEATHS_MAX]; /* a ring */
	unsigned deaths, halt_after;
	/* workers that had threads left when they were replaced; these threads have no descriptors */
	pid_t left[LEFT_MAX];
	/* NULL without replace; the last sign of life that was seen, and for how long there was no other */
	struct signs *signs;
	uint32_t seen;
	uint64_t silent_ns, stuck_ns;
};

/* ---- main loop of the parent ---- */

static void detach_stdio(struct parent *p)
{
	for (int fd = 0; fd < 3 && p->null_fd >= 0; fd++)
		if (fd != p->opts.kmsg_fd)
			dup2(p->null_fd, fd);
}

/* Takes these descriptors in place of what was kept there; closes what is in the slots of `gone`. */
static void keep(struct parent *p, int fd[SUPERVISOR_KEPT_MAX], uint32_t gone)
{
	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++) {
		if (fd[i] < 0 && !(gone >> i & 1))
			continue;
		if (p->kept[i] >= 0)
			close(p->kept[i]);
		p->kept[i] = steal_fd(&fd[i]);
	}
}

/* ---- messages ---- */

/* Of the worker. */
static void heed(struct parent *p, const struct message *m)
{
	switch (m->what) {
	case LINK_SERVING:
		p->serving = true;
		p->starting = p->ending = false;
		p->failed = 0;
		/* the start may have taken longer than a worker that serves may */
		p->silent_ns = 0;
		if (!p->opts.foreground)
			detach_stdio(p);
		break;
	case LINK_ENDING:
		p->ending = true;
		break;
	default:
		break;
	}
}

/* Of root: of a worker that starts, or of its broker. False: nobody has the other end any more. */
static bool serve_root(struct parent *p)
{
	int fd[SUPERVISOR_KEPT_MAX];
	const int *answer = NULL;
	struct message m;
	int r = link_receive(p->root_fd, &m, fd);

	if (r == -EINTR)
		return true;
	if (r != 1)
		return false;
	if (m.what == LINK_KEEP)
		keep(p, fd, m.gone);
	if (m.what == LINK_TAKE && p->starting && !p->taken) {
		answer = p->kept;
		p->taken = true;
	}
	link_close(fd);
	m = (struct message){ .what = m.what, .number = m.number, .halted = p->halted };
	(void)!link_send(p->root_fd, m, answer);
	return true;
}

/* False: the worker has closed its end. */
static bool take_message(struct parent *p)
{
	struct message m;
	ssize_t n = recv(p->sock_fd, &m, sizeof(m), 0); /* and no descriptor */

	if (n > 0 && n != sizeof(m)) { /* no worker of ours sends that */
		(void)!pidfd_send_signal(p->worker_pidfd, SIGKILL, NULL, 0);
		return true;
	}
	if (n <= 0)
		return n < 0 && (errno == EINTR || errno == EAGAIN);
	heed(p, &m);
	m = (struct message){ .what = m.what, .number = m.number, .halted = p->halted };
	(void)!link_send(p->sock_fd, m, NULL);
	return true;
}

/* The same. A worker that sends very many messages waits: this process is root. */
static bool serve_link(struct parent *p)
{
	uint64_t cpu_ns = cpu_now_ns(), wait_ns;
	bool linked = take_message(p);

	wait_ns = allowance_use(&p->messages, now_ns(),
				MESSAGE_COST_NS + 2 * (cpu_now_ns() - cpu_ns));
	if (wait_ns)
		poll(NULL, 0, (int)(min_u64(wait_ns, SLICE_NS) / 1000000) + 1);
	return linked;
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
	int abort_fd = p->kept[SUPERVISOR_ABORT], none[SUPERVISOR_KEPT_MAX];

	if (abort_fd >= 0 && write(abort_fd, "1", 1) < 0)
		msg(MSG_ERR, "cannot abort the FUSE connection: %s", strerror(errno));
	p->ended = true;
	if (p->kernel_fd >= 0)
		close(steal_fd(&p->kernel_fd));
	/* the FUSE descriptor comes before that of the loop device, whose close may write */
	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
		none[i] = -1;
	keep(p, none, SUPERVISOR_ALL);
}

static void reap(struct parent *p)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == p->worker) {
			p->status = status;
			p->reaped = true;
		}
		for (unsigned i = 0; i < LEFT_MAX; i++)
			if (p->left[i] == pid)
				p->left[i] = 0;
	}
}

/* Have all threads ended, or been killed? */
static bool is_dead(const struct parent *p)
{
	return p->reaped || proclist_is_dying(p->worker_status_fd);
}

/* ---- the next worker ---- */

static bool may_replace(const struct parent *p)
{
	return p->spare_fd >= 0 && p->serving && !p->ending && !p->halted && !p->ended &&
	       p->kept[SUPERVISOR_KERNEL] >= 0;
}

/* Too many deaths in a short time: the next worker is halted, or there is none (false). */
static bool count_death(struct parent *p)
{
	uint64_t now = now_ns();
	unsigned n = min_u64(p->halt_after, DEATHS_MAX);

	p->died_ns[p->deaths++ % n] = now;
	if (p->halt_after > DEATHS_MAX || p->deaths < n ||
	    now - p->died_ns[p->deaths % n] > HALT_NS)
		return true;
	p->halted = p->opts.halt;
	msg(MSG_ERR, "%u workers died within %llu s: %s", n, HALT_NS / 1000000000ull,
	    p->halted ? "from now on writes fail, and only a commit by hand is made"
		      : what_next(p));
	if (!p->halted)
		close(steal_fd(&p->spare_fd));
	return p->halted;
}

/* A start that failed is made again: memory may come, or a card may be read again. */
static bool may_start_again(struct parent *p)
{
	if (WEXITSTATUS(p->status) == EXIT_AWAY || ++p->failed >= STARTS_MAX)
		return false;
	poll(NULL, 0, START_PAUSE_MS);
	return true;
}

/* False: the one that died was the last. */
static bool use_up(struct parent *p)
{
	return p->starting && p->reaped && WIFEXITED(p->status) ? may_start_again(p)
								: count_death(p);
}

static int take_hello(struct parent *p)
{
	int fd[SUPERVISOR_KEPT_MAX], r;
	struct message m;

	while ((r = link_receive(p->root_fd, &m, fd)) == -EINTR)
		;
	if (r != 1)
		return r < 0 ? r : -EPIPE;
	if (m.what != LINK_HELLO || fd[0] < 0 || fd[1] < 0) {
		link_close(fd);
		return -EPROTO;
	}
	p->worker = m.pid;
	p->worker_pidfd = steal_fd(&fd[0]);
	p->worker_status_fd = steal_fd(&fd[1]);
	link_close(fd);
	return 0;
}

static bool note_left(struct parent *p)
{
	for (unsigned i = 0; i < LEFT_MAX; i++)
		if (!p->left[i]) {
			p->left[i] = p->worker;
			return true;
		}
	return false;
}

static void forget_worker(struct parent *p)
{
	if (p->worker_pidfd >= 0)
		close(steal_fd(&p->worker_pidfd));
	if (p->worker_status_fd >= 0)
		close(steal_fd(&p->worker_status_fd));
	close(p->sock_fd);
	cleanup_closep(&p->root_fd);
	p->reaped = p->judged = p->taken = false;
	p->status = 0;
	p->silent_ns = 0;
	p->starting = true;
}

/* A worker that dies before it says who it is counts like one that dies later. */
static bool next_worker(struct parent *p)
{
	int link_fd[2], r;
	bool asked;

	do {
		r = spare_ask(p->spare_fd, link_fd);
		asked = r >= 0;
		if (asked) {
			forget_worker(p);
			p->sock_fd = link_fd[0];
			p->root_fd = link_fd[1];
			r = take_hello(p);
		}
		if (r >= 0)
			return true;
		msg(MSG_ERR, "no new worker: %s", strerror(-r));
	} while (!p->halted && asked && count_death(p));
	if (p->worker_pidfd < 0) { /* watch returns */
		p->status = SIGKILL;
		p->reaped = true;
	}
	return false;
}

/*
 * All threads with descriptors have ended, so nothing of the dead worker takes requests or writes
 * any more. Others may sleep in a call on the volume (thread_call_alone): they end once the next
 * worker serves.
 */
static bool replace(struct parent *p)
{
	struct pollfd end = { .fd = p->worker_pidfd, .events = POLLIN };

	if (p->judged || !may_replace(p))
		return false;
	/* its status tells a start that failed from a death */
	if (p->starting && !p->reaped)
		poll(&end, 1, START_END_MS);
	reap(p);
	if (!p->reaped && !note_left(p))
		return false;
	p->judged = true;
	if (!use_up(p))
		return false;
	if (p->reaped && WIFSIGNALED(p->status))
		msg(MSG_ERR, "worker %d was killed by signal %d: another one takes over", p->worker,
		    WTERMSIG(p->status));
	else
		msg(MSG_ERR, "worker %d died: another one takes over", p->worker);
	return next_worker(p);
}

/* ---- */

static void look(struct parent *p)
{
	if (!p->serving || !proclist_is_dying(p->worker_status_fd)) {
		p->dying = 0;
		return;
	}
	if (++p->dying < DYING_SLICES || p->ended)
		return;
	/* its I/O on the card may take long, and RAM outlasts that */
	if (may_replace(p)) {
		if (p->dying == SLOW_SLICES)
			msg(MSG_ERR,
			    "worker %d waits for the card, and cannot end: another one takes over when it has",
			    p->worker);
		return;
	}
	msg(MSG_ERR, "worker %d cannot end, it waits for its own device: %s", p->worker,
	    what_next(p));
	reboot_if_root(p);
	let_go(p);
}

/*
 * Kills a worker that does not answer. One that somebody has stopped is left alone. A stop of all
 * processes (systemd before it kills them, suspend) lets little time pass.
 */
static void watchdog(struct parent *p, uint64_t passed_ns)
{
	uint64_t limit_ns = p->starting ? max_u64(p->start_ns, p->stuck_ns) : p->stuck_ns;

	if (!may_replace(p) || !p->signs || p->dying)
		return;
	if (p->signs->alive != p->seen || proclist_is_stopped(p->worker_status_fd)) {
		p->seen = p->signs->alive;
		p->silent_ns = 0;
		return;
	}
	p->silent_ns += min_u64(passed_ns, 2 * LOOK_MS * 1000000ull);
	if (p->silent_ns < limit_ns)
		return;
	p->silent_ns = 0;
	p->start_ns *= p->starting ? 2 : 1; /* a slow start ends at last */
	msg(MSG_ERR, "worker %d has given no sign of life for %llu s: it is killed", p->worker,
	    (unsigned long long)(limit_ns / 1000000000));
	(void)!pidfd_send_signal(p->worker_pidfd, SIGKILL, NULL, 0);
}

static int interval_ms(const struct parent *p)
{
	return p->dying ? SLICE_MS : p->serving ? LOOK_MS : -1;
}

/* Returns when the worker is dead and is not replaced. */
static void watch(struct parent *p)
{
	uint64_t last_ns = now_ns();
	bool linked = true;

	for (;;) {
		struct pollfd fds[4] = { { .fd = p->worker_pidfd, .events = POLLIN },
					 { .fd = linked ? p->sock_fd : -1, .events = POLLIN },
					 { .fd = p->spare_fd, .events = POLLIN },
					 { .fd = p->root_fd, .events = POLLIN } };
		int n = poll(fds, 4, interval_ms(p));
		uint64_t now = now_ns();

		watchdog(p, now - last_ns);
		last_ns = now;
		reap(p);
		if (n == 0)
			look(p);
		if (n > 0 && fds[2].revents) {
			msg(MSG_WARN, "the spare process died: a worker that dies is not replaced");
			close(steal_fd(&p->spare_fd));
			if (p->signs)
				p->signs->no_spare = true;
		}
		if (n > 0 && fds[3].revents) {
			if (!serve_root(p))
				cleanup_closep(&p->root_fd);
			continue; /* what is to be kept comes before what a worker says */
		}
		if (n > 0 && fds[1].revents) {
			linked = serve_link(p);
			if (!linked)
				p->dying = max_u64(p->dying, DYING_SLICES - 1 - ENDED_SLICES);
			else
				continue; /* the worker's last messages come first */
		}
		/* another process may have a copy of its end for a moment */
		linked &= !(n > 0 && fds[0].revents);
		if (!linked && is_dead(p) && replace(p)) {
			linked = true;
			p->dying = 0;
			continue;
		}
		if (!linked && (p->worker_pidfd < 0 || (n > 0 && fds[0].revents)))
			return;
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
	int status;

	if (!p->reaped)
		while (waitpid(p->worker, &p->status, 0) < 0 && errno == EINTR)
			;
	status = p->status;
	if (status != 0) {
		report_death(p, status);
		reboot_if_root(p);
	}
	let_go(p);
	_exit(status_of(status));
}

static __attribute__((noreturn)) void parent_main(struct parent *p)
{
	unsigned failed, flags = HARDEN_ALL & ~(p->mark ? 0u : (unsigned)HARDEN_MARK);

	prctl(PR_SET_NAME, "cowfs-parent");
	failed = harden_process(flags, p->opts.argv0);
	if (sandbox_enter_mounts(p->mounts_fd) < 0 && !p->mark)
		failed |= HARDEN_MOUNTS;
	failed |= harden_confine(HARDEN_CAPABILITIES, CONFINE_PARENT);
	failed |= harden_confine(HARDEN_CALLS, CONFINE_PARENT);
	for (unsigned bit = 1; bit & HARDEN_BITS; bit <<= 1)
		if (failed & bit)
			msg(MSG_WARN, "parent process: no %s", harden_name(bit));
	watch(p);
	bury(p);
}

static void prepare_spare(void *ctx)
{
	const struct parent *p = ctx;

	(void)!harden_process(HARDEN_ALL & ~(p->mark ? 0u : (unsigned)HARDEN_MARK), p->opts.argv0);
	if (p->opts.foreground)
		cgroup_leave(p->opts.proc_dirfd);
}

/* A later worker tells its parent who it is. */
static int say_hello(int root_fd, int proc_dirfd)
{
	int fd[SUPERVISOR_KEPT_MAX], r;

	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
		fd[i] = -1;
	fd[0] = pidfd_open(getpid(), 0);
	fd[1] = openat(proc_dirfd, "self/status", O_RDONLY | O_CLOEXEC);
	r = link_send(root_fd, (struct message){ .what = LINK_HELLO, .pid = getpid() }, fd);
	link_close(fd);
	return r;
}

/* Returns 1 in later workers. */
static int start_spare(struct parent *p, struct supervisor_link *ret)
{
	const int keep[] = { p->opts.proc_dirfd, p->opts.kmsg_fd, p->mounts_fd };
	int fd[2], r;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	r = spare_start(keep, ARRAY_SIZE(keep), prepare_spare, p, fd);
	if (r == 0)
		p->spare_fd = fd[0];
	if (r <= 0)
		return r;
	prctl(PR_SET_NAME, "cowfs");
	ret->sock_fd = fd[0];
	ret->root_fd = fd[1];
	ret->replaces = true;
	return say_hello(fd[1], p->opts.proc_dirfd) < 0 ? -EPIPE : 1;
}

static unsigned halt_after(void)
{
	const char *text = secure_getenv("COWFS_DEATHS");
	uint64_t n;

	return text && parse_u64(text, &n) == 0 && n ? (unsigned)min_u64(n, DEATHS_MAX + 1)
						     : HALT_AFTER;
}

uint64_t supervisor_stuck_ns(void)
{
	uint64_t ns = parse_env_ns("COWFS_STUCK_AFTER");

	return ns ? ns : STUCK_NS;
}

static void close_start(struct parent *p, const struct supervisor_opts *o)
{
	if (p->spare_fd >= 0)
		close(p->spare_fd);
	if (o->kmsg_fd < 0 && p->opts.kmsg_fd >= 0)
		close(p->opts.kmsg_fd);
}

static void init_parent(struct parent *p, const struct supervisor_opts *o, bool from_ram,
			struct supervisor_link *ret)
{
	void *signs = MAP_FAILED;

	*p = (struct parent){ .opts = *o, .spare_fd = -1, .mark = from_ram, .start_ns = START_NS };
	p->halt_after = halt_after();
	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
		p->kept[i] = -1;
	if (o->kmsg_fd < 0)
		p->opts.kmsg_fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	p->mounts_fd = sandbox_no_mounts();
	*ret = (struct supervisor_link){ .sock_fd = -1,
					 .root_fd = -1,
					 .kernel_fd = -1,
					 .kmsg_fd = p->opts.kmsg_fd,
					 .mounts_fd = p->mounts_fd,
					 .from_ram = from_ram,
					 .replace = o->replace };
	if (o->replace)
		signs = mmap(NULL, sizeof(*p->signs), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	p->signs = ret->signs = signs == MAP_FAILED ? NULL : signs;
	ret->root = mmap(NULL, SUPERVISOR_ROOT_BYTES, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	p->stuck_ns = supervisor_stuck_ns();
}

/* In the worker: nothing of its parent stays open. */
static void become_worker(struct parent *p, int own_fd, int root_fd)
{
	close(own_fd);
	close(root_fd);
	if (p->spare_fd >= 0)
		close(p->spare_fd);
}

static _Noreturn void become_parent(struct parent *p, const struct supervisor_opts *o,
				    bool from_ram)
{
	char path[32];

	p->worker_pidfd = pidfd_open(p->worker, 0);
	snprintf(path, sizeof(path), "/proc/%d/status", p->worker);
	p->worker_status_fd = open(path, O_RDONLY | O_CLOEXEC);
	p->opts.running_root &= from_ram;
	msg_to_kmsg(p->opts.kmsg_fd);
	if (o->foreground)
		cgroup_leave(o->proc_dirfd);
	parent_main(p);
}

int supervisor_start(const struct supervisor_opts *o, struct supervisor_link *ret)
{
	_cleanup_close_ int kernel_fd = -1;
	static struct parent p;
	bool from_ram = harden_started_from_ram();
	int own[2] = { -1, -1 }, root[2] = { -1, -1 }, r = 0;

	init_parent(&p, o, from_ram, ret);
	if (ret->root == MAP_FAILED)
		r = -ENOMEM;
	/* first: it must have nothing of the volume open */
	if (r == 0 && o->replace)
		r = start_spare(&p, ret);
	if (r == 1)
		return 0;
	if (r == 0)
		r = kernel_fd = transport_open();
	if (r >= 0)
		r = spare_link(own, root);
	if (r >= 0) {
		p.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		p.worker = fork();
		r = p.worker < 0 ? -errno : 0;
	}
	if (r < 0) {
		for (unsigned i = 0; i < 2; i++) {
			cleanup_closep(&own[i]);
			cleanup_closep(&root[i]);
		}
		close_start(&p, o);
		return r;
	}
	if (p.worker == 0) {
		close(p.null_fd);
		become_worker(&p, own[0], root[0]);
		ret->sock_fd = own[1];
		ret->root_fd = root[1];
		ret->kernel_fd = steal_fd(&kernel_fd);
		return 0;
	}
	close(own[1]);
	close(root[1]);
	p.sock_fd = own[0];
	p.root_fd = root[0];
	p.kernel_fd = steal_fd(&kernel_fd);
	become_parent(&p, o, from_ram);
}
