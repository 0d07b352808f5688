/* SPDX-License-Identifier: MIT */
/* Tests of base/program.h. */
#include "test.h"

#include <errno.h>
#include <signal.h>
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

TEST_GROUP(NULL, NULL)
