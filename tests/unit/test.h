/* SPDX-License-Identifier: MIT */
/*
 * What every unit test has: cmocka, the headers that most need, and TEST, which defines a test and adds it to those that the
 * program runs, in the order of the file:
 *
 *	TEST(test_x) { ... }		TEST(test_x, setup, teardown) { ... }
 *
 * A program whose tests have something in common says TEST_GROUP(setup, teardown), or has a main that calls tests_run().
 */
#ifndef COWFS_TESTS_TEST_H
#define COWFS_TESTS_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "rnd.h"

void test_add(struct CMUnitTest t, int line);
/* Returns what main does: how many have failed. */
int tests_run(CMFixtureFunction setup, CMFixtureFunction teardown);
/* Tells that none is run, and returns 0, if this is not root. */
int tests_run_as_root(CMFixtureFunction setup, CMFixtureFunction teardown);

#define TEST(test, ...)                                                                            \
	static void test(void **state);                                                            \
	static __attribute__((constructor)) void add_##test(void)                                  \
	{                                                                                          \
		test_add((struct CMUnitTest){ .name = #test, .test_func = test, __VA_ARGS__ },     \
			 __LINE__);                                                                \
	}                                                                                          \
	static void test(void **state)

#define TEST_GROUP(setup, teardown)                                                                \
	int main(void)                                                                             \
	{                                                                                          \
		return tests_run(setup, teardown);                                                 \
	}
#define TEST_GROUP_OF_ROOT(setup, teardown)                                                        \
	int main(void)                                                                             \
	{                                                                                          \
		return tests_run_as_root(setup, teardown);                                         \
	}

static inline unsigned count_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

#endif
