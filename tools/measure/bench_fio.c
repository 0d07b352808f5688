/* SPDX-License-Identifier: MIT */
/*
 * fio is a process group of its own, so that Ctrl-C reaches only this process, which then kills
 * fio. fio opens the target through /proc/self/fd: the file has no name, and a device cannot be
 * replaced by another in between.
 */
#include "measure/bench_fio.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/clean.h"
#include "wire/json.h"

#define TEXT_BYTES (256 * KIB)
#define GRACE_S 60 /* a card may take long for its last request */
#define ARGS 40

static volatile sig_atomic_t got_signal;
static sigset_t waited_mask; /* signals are open only while poll waits */

static void on_signal(int sig)
{
	got_signal = sig;
}

void fio_signals(void)
{
	static const int list[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa = { .sa_handler = on_signal };
	sigset_t mask;

	sigemptyset(&mask);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		sigaddset(&mask, list[i]);
		sigaction(list[i], &sa, NULL);
	}
	sigprocmask(SIG_BLOCK, &mask, &waited_mask);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		sigdelset(&waited_mask, list[i]);
}

int fio_signal(void)
{
	struct timespec zero = { 0 };

	ppoll(NULL, 0, &zero, &waited_mask);
	return got_signal;
}

void fio_pass_signal(void)
{
	signal(got_signal, SIG_DFL);
	sigprocmask(SIG_SETMASK, &waited_mask, NULL);
	raise(got_signal);
}

/* ---- the process ---- */

static void be_fio(char *const argv[], int out_fd)
{
	int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigprocmask(SIG_SETMASK, &waited_mask, NULL);
	if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(out_fd, STDOUT_FILENO) < 0 ||
	    dup2(out_fd, STDERR_FILENO) < 0)
		_exit(127);
	execvp(argv[0], argv);
	_exit(errno == ENOENT ? 127 : 126);
}

/* Waits a little for the end of a process that closed its output or was killed. */
static int reap(pid_t pid)
{
	int status = 0;

	for (int i = 0; i < 1000; i++) {
		pid_t r = waitpid(pid, &status, WNOHANG);

		if (r == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (r < 0)
			break;
		poll(NULL, 0, 10);
	}
	kill(-pid, SIGKILL);
	return -1;
}

/* Reads all output into text. 0, -EINTR, -ETIME. */
static int gather(int fd, char *text, uint64_t limit_s)
{
	uint64_t end_ns = now_ns() + limit_s * 1000000000ull;
	size_t len = 0;
	ssize_t n = 1;

	while (n != 0) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = now_ns();
		struct timespec left = { .tv_sec = (time_t)((end_ns - now) / 1000000000ull),
					 .tv_nsec = (long)((end_ns - now) % 1000000000ull) };

		if (now >= end_ns)
			return -ETIME;
		if (ppoll(&p, 1, &left, &waited_mask) <= 0) {
			if (got_signal)
				return -EINTR;
			continue;
		}
		/* more than fits is read and lost */
		n = len < TEXT_BYTES - 1 ? read(fd, text + len, TEXT_BYTES - 1 - len)
					 : read(fd, (char[512]){ 0 }, 512);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0 && len < TEXT_BYTES - 1)
			len += (size_t)n;
	}
	text[len] = '\0';
	return 0;
}

/* Returns the exit code (127: there is no such program), or -errno. text has TEXT_BYTES. */
static int run(char *const argv[], char *text, uint64_t limit_s)
{
	int fd[2], e, code;
	pid_t pid;

	if (fio_signal())
		return -EINTR;
	if (pipe2(fd, O_CLOEXEC) < 0)
		return -errno;
	signal(SIGCHLD, SIG_DFL); /* ignored, as some starters leave it, fio's end would be lost */
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		be_fio(argv, fd[1]);
	close(fd[1]);
	if (pid < 0) {
		e = -errno;
		close(fd[0]);
		return e;
	}
	setpgid(pid, pid);
	e = gather(fd[0], text, limit_s);
	close(fd[0]);
	if (e < 0)
		kill(-pid, SIGKILL);
	code = reap(pid);
	return e < 0 ? e : code < 0 ? -ETIME : code;
}

int fio_find(char *version, size_t size_bytes, struct failure *f)
{
	char prog[] = "fio", arg[] = "--version", *argv[] = { prog, arg, NULL };
	_cleanup_free_ char *text = malloc(TEXT_BYTES);
	int code = text ? run(argv, text, 10) : -ENOMEM;

	if (code == 127)
		return failure_set(f, EXIT_FAILED, -ENOENT,
				   "fio is not installed: install the package fio");
	if (code < 0)
		return failure_set(f, EXIT_FAILED, code, "fio cannot be run: %s",
				   strerrordesc_np(-code));
	text[strcspn(text, "\n")] = '\0';
	if (code || strncmp(text, "fio-", 4))
		return failure_set(f, EXIT_FAILED, -EBADMSG,
				   "fio --version failed, or is not that of fio");
	snprintf(version, size_bytes, "%s", clean_text(text));
	return 0;
}

/* ---- a job ---- */

struct args {
	char text[ARGS][64];
	char *argv[ARGS + 1];
	unsigned n;
};

static void PRINTF(2, 3) add(struct args *a, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(a->text[a->n], sizeof(a->text[0]), fmt, ap);
	va_end(ap);
	a->argv[a->n] = a->text[a->n];
	a->argv[++a->n] = NULL;
}

static void add_size(struct args *a, const char *name, uint64_t bytes)
{
	add(a, "--%s=%llu", name, (unsigned long long)bytes);
}

static void arguments(struct args *a, const struct fio_job *job)
{
	bool writes = strcmp(job->rw, "read") && strcmp(job->rw, "randread");

	*a = (struct args){ 0 };
	add(a, "fio");
	/* a second look whether nothing is written */
	if (!writes)
		add(a, "--readonly");
	add(a, "--output-format=json");
	add(a, "--eta=never");
	add(a, "--name=bench");
	add(a, "--thread");
	/* neither calibrates a clock nor reads /proc/diskstats: a start takes half as long */
	add(a, "--clocksource=clock_gettime");
	add(a, "--disk_util=0");
	add(a, "--ioengine=psync");
	add(a, "--filename=/proc/self/fd/%d", job->fd);
	add(a, "--allow_file_create=0");
	add(a, "--fallocate=none");
	add(a, "--rw=%s", job->rw);
	if (!strcmp(job->rw, "randrw"))
		add(a, "--rwmixwrite=%u", job->write_percent);
	add_size(a, "offset", job->off_bytes);
	add_size(a, "size", job->len_bytes);
	add_size(a, "bs", job->request_bytes);
	if (!job->each_once) {
		add_size(a, "io_size", job->total_bytes);
		add(a, "--norandommap");
	}
	add(a, "--runtime=%llums", (unsigned long long)job->limit_ms);
	add(a, "--direct=%d", job->direct);
	add(a, "--sync=%d", job->sync);
	add(a, "--invalidate=1");
	/* random data: a card may compress or skip zeros */
	add(a, "--refill_buffers");
	add(a, "--randseed=%llu", (unsigned long long)job->seed);
	if (writes)
		add(a, "--end_fsync=1");
}

static bool take_side(struct json_object *side, struct fio_side *ret)
{
	struct json_object *lat = json_at(side, "lat_ns"), *p = json_at(side, "clat_ns");

	if (!json_object_is_type(side, json_type_object) ||
	    !json_object_is_type(lat, json_type_object))
		return false;
	p = json_object_object_get(p, "percentile");
	*ret = (struct fio_side){
		.requests = json_u64(side, "total_ios"),
		.bytes = json_u64(side, "io_bytes"),
		.seconds = json_number(side, "runtime") / 1e3,
		.mean_ns = json_number(lat, "mean"),
		.deviation_ns = json_number(lat, "stddev"),
		.median_ns = json_u64(p, "50.000000"),
		.p99_ns = json_u64(p, "99.000000"),
		.longest_ns = json_u64(lat, "max"),
	};
	return true;
}

int fio_parse(const char *text, struct fio_result *ret)
{
	struct json_object *doc = NULL, *jobs, *job;
	struct fio_result r = { 0 };
	int error = -EBADMSG;
	size_t n;

	/* warnings stand before it, a line each */
	while (text && *text != '{') {
		text = strchr(text, '\n');
		text = text ? text + 1 : NULL;
	}
	if (text)
		doc = json_tokener_parse(text);
	jobs = json_object_is_type(doc, json_type_object) ? json_array(doc, "jobs", &n) : NULL;
	job = jobs && n == 1 ? json_object_array_get_idx(jobs, 0) : NULL;
	if (json_object_is_type(job, json_type_object) &&
	    take_side(json_object_object_get(job, "read"), &r.read) &&
	    take_side(json_object_object_get(job, "write"), &r.write)) {
		error = -(int)json_u64(job, "error");
		if (error == 0)
			*ret = r;
	}
	json_object_put(doc);
	return error > 0 || error < -4095 ? -EIO : error;
}

int fio_run(const struct fio_job *job, struct fio_result *ret, struct failure *f)
{
	_cleanup_free_ char *text = malloc(TEXT_BYTES);
	uint64_t limit_s = job->limit_ms / 1000 + GRACE_S;
	struct args a;
	int code, e;

	if (!text)
		return failure_set(f, EXIT_FAILED, -ENOMEM, "out of memory");
	arguments(&a, job);
	code = run(a.argv, text, limit_s);
	if (code == -EINTR)
		return failure_set(f, EXIT_FAILED, -EINTR, "interrupted");
	if (code == -ETIME)
		return failure_set(f, EXIT_FAILED, -ETIME,
				   "fio did not end within %llu s and was killed",
				   (unsigned long long)limit_s);
	if (code < 0)
		return failure_set(f, EXIT_FAILED, code, "fio cannot be run: %s",
				   strerrordesc_np(-code));
	e = fio_parse(text, ret);
	if (code == 0 && e == 0)
		return 0;
	if (e < 0 && e != -EBADMSG)
		failure_set(f, EXIT_FAILED, e, "%s", strerrordesc_np(-e));
	else
		failure_set(f, EXIT_FAILED, e ? e : -EIO, "fio failed with exit code %d", code);
	text[strcspn(text, "{")] = '\0';
	snprintf(f->said, sizeof(f->said), "%s", text);
	return f->error;
}
