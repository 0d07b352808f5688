/* SPDX-License-Identifier: MIT */
/* Calls that break a rule of cowfs (base/invariant.h). Behind cmocka.h. */
#ifndef COWFS_TESTS_BREAKS_H
#define COWFS_TESTS_BREAKS_H

#include "test.h"
#include "base/invariant.h"

/* In a child that survives it: the call returns -ENOTRECOVERABLE, because of this rule. */
#define assert_breaks(rule, call)                                                                  \
	do {                                                                                       \
		int breaks_status_;                                                                \
		pid_t breaks_pid_ = fork();                                                        \
                                                                                                   \
		if (!breaks_pid_) {                                                                \
			invariant_survive();                                                       \
			_exit((call) == -ENOTRECOVERABLE && invariant_broken() &&                  \
					      !strncmp(invariant_broken(), rule " (",              \
						       sizeof(rule " (") - 1)                      \
				      ? 0                                                          \
				      : 1);                                                        \
		}                                                                                  \
		assert_int_equal(waitpid(breaks_pid_, &breaks_status_, 0), breaks_pid_);           \
		assert_int_equal(breaks_status_, 0);                                               \
	} while (0)

#endif
