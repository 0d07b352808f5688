/* SPDX-License-Identifier: MIT */
#include "base/numbers.h"

#include <stdio.h>
#include <time.h>

const char *with_commas(uint64_t v)
{
	static char ring[8][32];
	static unsigned next;
	char *buf = ring[next++ % ARRAY_SIZE(ring)], *p = buf + sizeof(ring[0]) - 1;
	int digits = 0;

	*p = '\0';
	do {
		if (digits && digits % 3 == 0)
			*--p = ',';
		*--p = (char)('0' + v % 10);
		v /= 10;
		digits++;
	} while (v);
	return p;
}

const char *format_time(uint64_t unix_s)
{
	static char ring[4][32];
	static unsigned next;
	char *buf = ring[next++ % ARRAY_SIZE(ring)];
	time_t t = (time_t)unix_s;
	struct tm tm;

	if (unix_s && unix_s < CLOCK_IS_SET_S)
		return "(clock not set)";
	if (!unix_s || !localtime_r(&t, &tm) ||
	    !strftime(buf, sizeof(ring[0]), "%Y-%m-%d %H:%M:%S", &tm))
		return "never";
	return buf;
}

const char *format_span(double s, char buf[24])
{
	static const struct {
		double s;
		const char *unit;
	} units[] = { { 365.25 * 86400, "years" },
		      { 86400, "days" },
		      { 3600, "h" },
		      { 60, "min" },
		      { 1, "s" } };

	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (s >= 2 * units[i].s || i + 1 == ARRAY_SIZE(units)) {
			double v = s / units[i].s;

			snprintf(buf, 24, v < 10 ? "%.1f %s" : "%.0f %s", v, units[i].unit);
			break;
		}
	return buf;
}
