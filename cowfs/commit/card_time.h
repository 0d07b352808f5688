/* SPDX-License-Identifier: MIT */
/*
 * How long a commit will write to the card, from what the last ones took. A pure function.
 *
 * A commit of x bytes takes a + b x. If the last commits in the wear table differ in size, both come from them: the
 * least sum of squares of deviations, in shares of the time. Otherwise the card is as a profile, times a factor.
 */
#ifndef COWFS_COMMIT_CARD_TIME_H
#define COWFS_COMMIT_CARD_TIME_H

#include "flash/profile.h"
#include "log/wear.h"

/* 0: the table has no commit */
uint64_t card_time_ns(const struct wear_table *wear, const struct flash_profile *like,
		      uint64_t bytes);

#endif
