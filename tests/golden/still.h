/* SPDX-License-Identifier: MIT */
/*
 * A world that stands still, for programs that write the same bytes at every run and on every
 * machine. The linker replaces random numbers and clocks by these (--wrap, tests.mk): random bytes
 * count up, each look at a clock takes its step.
 */
#ifndef COWFS_TESTS_STILL_H
#define COWFS_TESTS_STILL_H

#include <stdint.h>
#include <time.h>

extern time_t still_time_s;	  /* the last time() */
extern uint8_t still_random_byte; /* the next random byte */

#endif
