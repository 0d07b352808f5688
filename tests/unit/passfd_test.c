/* SPDX-License-Identifier: MIT */
/* Descriptors arrive in order; those that have no place are closed. */
#include "test.h"
#include "base/kernel.h"
#include "base/passfd.h"

static int pair[2];

static int open_pair(void **state)
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int close_pair(void **state)
{
	close(pair[0]);
	close(pair[1]);
	return 0;
}

TEST(test_in_order, open_pair, close_pair)
{
	int pipe_fd[2], got[3];
	struct stat a, b;
	char text[8];
	unsigned n;

	assert_int_equal(pipe2(pipe_fd, O_CLOEXEC), 0);
	assert_int_equal(passfd_send(pair[0], "ab", 2, (int[]){ pipe_fd[0], pipe_fd[1], 0 }, 3, 0),
			 0);
	assert_int_equal(passfd_receive(pair[1], text, sizeof(text), got, 3, &n), 2);
	assert_int_equal(n, 3);
	assert_memory_equal(text, "ab", 2);
	assert_true(fcntl(got[1], F_GETFD) & FD_CLOEXEC);
	assert_int_equal(fstat(got[1], &a) + fstat(pipe_fd[1], &b), 0);
	assert_true(a.st_ino == b.st_ino);
	for (int i = 0; i < 3; i++)
		close(got[i]);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
}

TEST(test_too_many, open_pair, close_pair)
{
	unsigned before = count_fds(), n;
	int many[PASSFD_MAX], got[2];
	char text[8];

	for (unsigned i = 0; i < PASSFD_MAX; i++)
		many[i] = 0;
	assert_int_equal(passfd_send(pair[0], "x", 1, many, PASSFD_MAX, 0), 0);
	assert_int_equal(passfd_receive(pair[1], text, sizeof(text), got, 2, &n), 1);
	assert_int_equal(n, 2);
	close(got[0]);
	close(got[1]);
	assert_int_equal(count_fds(), before);
	assert_int_equal(passfd_send(pair[0], "x", 1, many, PASSFD_MAX + 1, 0), -EINVAL);
}

TEST(test_refuse, open_pair, close_pair)
{
	if (!kernel_is(6, 16))
		skip();
	assert_int_equal(passfd_send(pair[0], "x", 1, (int[]){ 0 }, 1, 0), 0);
	passfd_refuse(pair[1]);
	assert_int_equal(passfd_send(pair[0], "x", 1, (int[]){ 0 }, 1, 0), -EPERM);
	assert_int_equal(passfd_send(pair[0], "x", 1, NULL, 0, 0), 0);
}

TEST(test_none_and_end, open_pair, close_pair)
{
	char text[8];
	unsigned n;

	assert_int_equal(passfd_send(pair[0], "x", 1, NULL, 0, 0), 0);
	assert_int_equal(passfd_receive(pair[1], text, sizeof(text), NULL, 0, &n), 1);
	assert_int_equal(n, 0);
	assert_int_equal(shutdown(pair[0], SHUT_WR), 0);
	assert_int_equal(passfd_receive(pair[1], text, sizeof(text), NULL, 0, &n), 0);
	assert_int_equal(shutdown(pair[1], SHUT_RDWR), 0);
	assert_int_equal(passfd_send(pair[0], "x", 1, NULL, 0, 0), -EPIPE);
}
