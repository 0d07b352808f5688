/* SPDX-License-Identifier: MIT */
/* Tests of base/program.h. */
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/program.h"

TEST(test_closed_pipe)
{
	static const char *const argv[] = { "sh", "-c", "kill -s PIPE $$; exit 3", NULL };
	int fds[2];

	program_begin();
	assert_int_equal(pipe(fds), 0);
	close(fds[0]);
	assert_int_equal(write(fds[1], "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	close(fds[1]);
	assert_int_equal(program_run(argv, -1, -1), 128 + SIGPIPE);
}

static bool no_processes;

/* replaces the C library's */
pid_t fork(void)
{
	if (!no_processes)
		return _Fork();
	errno = EAGAIN;
	return -1;
}

static void tell_fds(void *ctx)
{
	unsigned fds = count_fds();

	(void)ctx;
	(void)!write(0, &fds, sizeof(fds));
}

static void work_for_ever(void *ctx)
{
	(void)ctx;
	for (;;)
		pause();
}

static void ignore(int sig)
{
	(void)sig;
}

TEST(test_apart)
{
	const struct itimerval often = { { 0, 10000 }, { 0, 10000 } }, never = { 0 };
	const struct sigaction act = { .sa_handler = ignore }; /* poll is interrupted */
	int fd = memfd_create("fds", MFD_CLOEXEC);
	unsigned fds = 0;

	/* it may stay for ever, and nobody waits for the end of a pipe that it has */
	assert_true(program_apart(fd, tell_fds, NULL, 50000));
	assert_int_equal(pread(fd, &fds, sizeof(fds), 0), sizeof(fds));
	assert_int_equal(fds, 1);
	close(fd);
	assert_int_equal(sigaction(SIGALRM, &act, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	assert_false(program_apart(0, work_for_ever, NULL, 200));
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	no_processes = true;
	assert_false(program_apart(0, work_for_ever, NULL, 50000));
	no_processes = false;
}

TEST_GROUP(NULL, NULL)
