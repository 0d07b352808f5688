/* SPDX-License-Identifier: MIT */
/* Formats numbers for people. */
#ifndef COWFS_BASE_NUMBERS_H
#define COWFS_BASE_NUMBERS_H

#include "base/util.h"

/* "1,234,567" in one of a few static buffers */
const char *with_commas(uint64_t v);
/* the ending of a noun behind n */
static inline const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}
/* Local time as 2024-01-31 12:30:00 in one of a few static buffers; "never" for 0. */
const char *format_time(uint64_t unix_s);
/* "3 s", "12 min", "5.2 h", "34 days", "2.1 years" */
const char *format_span(double s, char buf[24]);
#define SPAN(s) format_span((s), (char[24]){ 0 })

#endif
