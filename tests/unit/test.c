/* SPDX-License-Identifier: MIT */
/* The tests of a program, and a main for those that need none of their own. */
#include "test.h"

static struct CMUnitTest tests[64];
static int lines[64];
static unsigned count;

void test_add(struct CMUnitTest t, int line)
{
	unsigned at = count;

	if (count == 64)
		abort();
	for (; at > 0 && lines[at - 1] > line; at--) {
		tests[at] = tests[at - 1];
		lines[at] = lines[at - 1];
	}
	tests[at] = t;
	lines[at] = line;
	count++;
}

int tests_run(CMFixtureFunction setup, CMFixtureFunction teardown)
{
	cmocka_set_skip_filter(getenv("COWFS_SKIP"));
	return _cmocka_run_group_tests(program_invocation_short_name, tests, count, setup,
				       teardown);
}

int tests_run_as_root(CMFixtureFunction setup, CMFixtureFunction teardown)
{
	if (geteuid() == 0)
		return tests_run(setup, teardown);
	printf("SKIP: %s: needs root\n", program_invocation_short_name);
	return 0;
}

__attribute__((weak)) TEST_GROUP(NULL, NULL)
