/* SPDX-License-Identifier: MIT */
/*
 * Rules that hold unless cowfs itself has an error, checked at run time. Input, media and memory
 * cannot break a rule: their faults are error codes.
 *
 * A broken rule is printed with its place in the source. Then the program aborts: tests do, and so
 * does every program that has nothing to lose. A program that has called invariant_survive
 * continues, but none of its writes reaches a card until it ends (card_write and card_set_writable
 * refuse with -ENOTRECOVERABLE). So a check stands before the write that its rule forbids. Any
 * thread; no allocation, no lock.
 */
#ifndef COWFS_BASE_INVARIANT_H
#define COWFS_BASE_INVARIANT_H

#include "base/util.h"

/*
 * Does the rule hold? A condition has no side effects. rule: its short name in a manual or header,
 * a literal, such as "R9 tail".
 */
#ifdef COWFS_NO_INVARIANTS /* only to measure the cost of the checks */
#define INVARIANT(rule, condition) ((void)sizeof(!(condition)), true)
#else
#define INVARIANT(rule, condition)                                                                 \
	(__builtin_expect(!!(condition), 1) || invariant_fail(rule, __FILE__, __LINE__))
#endif

/* Always false, if it returns. */
bool invariant_fail(const char *rule, const char *file, int line) __attribute__((cold));
/* NULL, or the first broken rule with its place: for people, valid until the program ends. */
const char *invariant_broken(void);
/*
 * From now on a broken rule does not end the process, unless COWFS_INVARIANT=abort is in the
 * environment. For the main function of a program.
 */
void invariant_survive(void);

#endif
