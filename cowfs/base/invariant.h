/* SPDX-License-Identifier: MIT */
/*
 * Rules that hold unless cowfs itself has an error, checked while it runs. Input, media and memory cannot break
 * one: what these can do is an error code.
 *
 * A broken rule is printed with its place in the source. Then the program aborts: tests do, and so does whatever
 * has nothing to lose. A program that has called invariant_survive goes on, but none of its writes reaches a card
 * any more (card_write and card_set_writable refuse with -ENOTRECOVERABLE), until it ends. So a check stands in front
 * of the write that its rule forbids. Any thread; no allocation, no lock.
 */
#ifndef COWFS_BASE_INVARIANT_H
#define COWFS_BASE_INVARIANT_H

#include "base/util.h"

/* Does it hold? A condition has no side effects. rule: its short name in a manual or header, a literal, such as "R9 tail". */
#ifdef COWFS_NO_INVARIANTS /* to measure what they cost, and for nothing else */
#define INVARIANT(rule, condition) ((void)sizeof(!(condition)), true)
#else
#define INVARIANT(rule, condition)                                                                 \
	(__builtin_expect(!!(condition), 1) || invariant_fail(rule, __FILE__, __LINE__))
#endif

/* Always false, if it returns. */
bool invariant_fail(const char *rule, const char *file, int line) __attribute__((cold));
/* NULL, or the first rule that was broken, with its place: for people, valid for ever. */
const char *invariant_broken(void);
/* From now on a broken rule does not end the process, unless COWFS_INVARIANT=abort is in the environment. For the main
 * of a program. */
void invariant_survive(void);

#endif
