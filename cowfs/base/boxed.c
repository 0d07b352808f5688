// SPDX-License-Identifier: MIT
#include "base/boxed.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <linux/fs.h>

#include "base/io.h"
#include "base/sandbox.h"

/* Address space, including the program's own. Honest images take a small part of it. */
#define MEMORY_BYTES (2048 * MIB)
#define BUFFER_BYTES (2 * BOXED_MESSAGE_BYTES)

unsigned boxed_patience_s = 3600;
uint64_t boxed_heard_bytes = 1024 * MIB;

enum { SAY, END };

struct head {
	uint32_t what;
	int32_t end;	/* END: the result of the work */
	uint32_t bytes; /* of the message that follows */
};

struct boxed {
	int fd;
	size_t used;
	_Alignas(8) uint8_t buf[BUFFER_BYTES];
};

static char last_death[128];

const char *boxed_error(int error)
{
	return error == -EOWNERDEAD && *last_death ? last_death : strerrordesc_np(-error);
}

/* ---- the child ---- */

static void flush(struct boxed *b)
{
	if (io_write_full(b->fd, b->buf, b->used) < 0)
		_exit(1);
	b->used = 0;
}

static void put(struct boxed *b, const struct head *h, const void *message)
{
	size_t bytes = sizeof(*h) + round_up_u64(h->bytes, 8);

	if (h->bytes > BOXED_MESSAGE_BYTES)
		_exit(1);
	if (b->used + bytes > sizeof(b->buf))
		flush(b);
	memset(b->buf + b->used, 0, bytes);
	memcpy(b->buf + b->used, h, sizeof(*h));
	if (h->bytes)
		memcpy(b->buf + b->used + sizeof(*h), message, h->bytes);
	b->used += bytes;
}

void boxed_say(struct boxed *b, const void *message, size_t bytes)
{
	put(b, &(struct head){ .what = SAY, .bytes = (uint32_t)bytes }, message);
}

void boxed_say_now(struct boxed *b, const void *message, size_t bytes)
{
	boxed_say(b, message, bytes);
	flush(b);
}

struct child {
	const struct boxed_job *job;
	int fd;
};

static int stay_calls(scmp_filter_ctx filter, int fd)
{
	const struct scmp_arg_cmp out = SCMP_CMP64(0, SCMP_CMP_EQ, (unsigned)fd, 0);
	const struct scmp_arg_cmp without_parent[] = {
		SCMP_CMP64(0, SCMP_CMP_EQ, PR_SET_PDEATHSIG, 0), SCMP_CMP64(1, SCMP_CMP_EQ, 0, 0)
	};
	int r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(writev), 1, &out);

	return r ? r
		 : seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 2,
					  without_parent);
}

/*
 * Reading descriptors and writing to the socket. A device's descriptor may be open for writing: so
 * no other call writes, and a mapping is not shared. Any other call returns an error: libblkid makes
 * some that it can do without.
 */
static int box_calls(scmp_filter_ctx filter, void *ctx)
{
	const struct child *c = ctx;
	static const int allowed[] = { SCMP_SYS(read),	    SCMP_SYS(pread64),
				       SCMP_SYS(lseek),	    SCMP_SYS(_llseek),
				       SCMP_SYS(fstat),	    SCMP_SYS(fstat64),
				       SCMP_SYS(fadvise64), SCMP_SYS(clock_gettime),
				       SCMP_SYS(getppid) };
	static const uint64_t ioctls[] = { BLKGETSIZE64, BLKSSZGET };
	/* what begins when the filter is there: see box_main */
	const struct scmp_arg_cmp end_with_parent[] = { SCMP_CMP64(0, SCMP_CMP_EQ, PR_SET_PDEATHSIG,
								   0),
							SCMP_CMP64(1, SCMP_CMP_EQ, SIGKILL, 0) };
	const struct scmp_arg_cmp out = SCMP_CMP64(0, SCMP_CMP_EQ, (unsigned)c->fd, 0);
	int r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(write), 1, &out);

	if (!r)
		r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 2,
					   end_with_parent);
	for (size_t i = 0; i < ARRAY_SIZE(allowed) && !r; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
	for (size_t i = 0; i < ARRAY_SIZE(ioctls) && !r; i++) {
		const struct scmp_arg_cmp request = SCMP_CMP64(1, SCMP_CMP_MASKED_EQ, ~0u,
							       ioctls[i]);

		r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, &request);
	}
	return !r && c->job->stay ? stay_calls(filter, c->job->stay_fd) : r;
}

static void close_others(const struct boxed_job *job, int fd)
{
	for (int from = 0; from >= 0;) {
		int next = fd >= from ? fd : -1;

		for (size_t i = 0; i < job->fds; i++)
			if (job->fd[i] >= from && (next < 0 || job->fd[i] < next))
				next = job->fd[i];
		if (next != from &&
		    close_range((unsigned)from, next < 0 ? ~0u : (unsigned)next - 1, 0) < 0)
			_exit(1);
		from = next < 0 ? -1 : next + 1;
	}
}

static __attribute__((noreturn)) void box_main(const struct boxed_job *job, int fd, pid_t parent)
{
	static struct boxed b;
	struct child c = { job, fd };
	sigset_t none;
	int r;

	/* a terminal's signals are for this process's parent, whose end ends it */
	for (int s = 1; s < SIGSYS; s++)
		signal(s, s == SIGINT || s == SIGQUIT || s == SIGHUP ? SIG_IGN : SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_NAME, job->stay ? "cowfs-view" : "cowfs-meta");
	/* a pipe of the caller must not stay open with the child */
	if (!SANDBOX_SANITIZED || job->stay)
		close_others(job, fd);
	if (job->stay)
		setsid();
	b.fd = fd;
	/* best effort: it serves what is mounted */
	if (job->stay)
		(void)!sandbox_enter_mounts(sandbox_no_mounts());
	if (sandbox_enter(false, MEMORY_BYTES, job->stay ? UINT_MAX : boxed_patience_s + 1,
			  box_calls, &c) < 0)
		_exit(1);
	/* after the change of the user, which would undo it. In a loop of its own the child would not
	 * notice that nobody listens */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(1);
	r = job->work(job->ctx, &b);
	/* before the parent may end */
	if (r == 0 && job->stay && prctl(PR_SET_PDEATHSIG, 0) < 0)
		_exit(1);
	put(&b, &(struct head){ .what = END, .end = r }, NULL);
	flush(&b);
	if (r == 0 && job->stay)
		job->stay(job->ctx);
	_exit(0);
}

/* ---- this process ---- */

struct listener {
	const struct boxed_job *job;
	int fd;
	uint64_t end_ns, left_bytes;
	bool too_long;
	_Alignas(8) uint8_t message[BOXED_MESSAGE_BYTES];
};

/* All bytes; else -EOWNERDEAD. */
static int receive(struct listener *x, void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		struct pollfd p = { .fd = x->fd, .events = POLLIN };
		uint64_t now = now_ns();
		ssize_t n;

		x->too_long = now >= x->end_ns;
		if (x->too_long)
			return -EOWNERDEAD;
		n = recv(x->fd, (uint8_t *)data + done, bytes - done, MSG_DONTWAIT);
		if (n > 0)
			done += (size_t)n;
		else if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return -EOWNERDEAD;
		else
			(void)!poll(&p, 1, (int)((x->end_ns - now) / 1000000) + 1);
	}
	return 0;
}

/* Hears one message. 1: it was the last one, with the result in *ret. */
static int hear_one(struct listener *x, int *ret)
{
	struct head h;
	int e = receive(x, &h, sizeof(h));

	if (e < 0)
		return e;
	if (h.what > END || h.bytes > BOXED_MESSAGE_BYTES || h.bytes > x->left_bytes ||
	    (h.what == END && (h.end > 0 || h.end < -4095 || h.end == -EOWNERDEAD)))
		return -EPROTO;
	if (h.what == END) {
		*ret = h.end;
		return 1;
	}
	x->left_bytes -= h.bytes;
	e = receive(x, x->message, (size_t)round_up_u64(h.bytes, 8));
	return e < 0 ? e : x->job->hear(x->job->ctx, x->message, h.bytes);
}

static void note_death(const struct listener *x, int e, int status)
{
	int s = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	if (x->too_long || s == SIGXCPU)
		snprintf(last_death, sizeof(last_death),
			 "the content made its reader take longer than %u s", boxed_patience_s);
	else if (e == -EPROTO)
		snprintf(last_death, sizeof(last_death),
			 "the content made its reader send an invalid answer");
	else if (s)
		snprintf(last_death, sizeof(last_death),
			 "the content made its reader crash (signal %d)", s);
	else
		snprintf(last_death, sizeof(last_death), "the content made its reader exit");
}

/* The status of a child that ends by itself within a second, or is ended. */
static int bury(pid_t pid, bool at_once)
{
	int status = 0;
	pid_t r = 0;

	for (int i = 0; i < 1000 && !at_once && r == 0; i++) {
		r = waitpid(pid, &status, WNOHANG);
		if (r == 0)
			usleep(1000);
	}
	if (r == 0)
		kill(pid, SIGKILL);
	while (r == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static int listen_to(const struct boxed_job *job, int fd, pid_t pid)
{
	struct listener *x = calloc(1, sizeof(*x));
	int e = x ? 0 : -ENOMEM, r = 0, status;

	if (x)
		*x = (struct listener){ .job = job,
					.fd = fd,
					.left_bytes = boxed_heard_bytes + job->more_bytes,
					.end_ns = now_ns() + boxed_patience_s * 1000000000ull };
	while (e == 0)
		e = hear_one(x, &r);
	close(fd);
	status = e == 1 && r == 0 && job->stay ? 0 : bury(pid, e != -EOWNERDEAD || x->too_long);
	if (e == -EOWNERDEAD || e == -EPROTO) {
		note_death(x, e, status);
		e = -EOWNERDEAD;
	}
	free(x);
	return e == 1 ? r : e;
}

int boxed_run(const struct boxed_job *job)
{
	pid_t pid, parent = getpid();
	int pair[2], e;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		box_main(job, pair[1], parent);
	e = pid < 0 ? -errno : 0;
	close(pair[1]);
	if (e == 0)
		return listen_to(job, pair[0], pid);
	close(pair[0]);
	return e;
}

/* ---- progress ---- */

struct boxed_progress boxed_progress(const char *phase, uint64_t done_bytes, uint64_t total_bytes)
{
	struct boxed_progress p = { .done_bytes = done_bytes, .total_bytes = total_bytes };

	snprintf(p.phase, sizeof(p.phase), "%s", phase);
	return p;
}

int boxed_hear_progress(const struct boxed_progress *p, boxed_show *show, void *ctx)
{
	size_t len = strnlen(p->phase, sizeof(p->phase));

	if (len == sizeof(p->phase) || strspn(p->phase, "abcdefghijklmnopqrstuvwxyz") != len)
		return -EPROTO;
	if (show)
		show(ctx, p->phase, p->done_bytes, p->total_bytes);
	return 0;
}
