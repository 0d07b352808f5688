/* SPDX-License-Identifier: MIT */
#include "golden/still.h"

#include <endian.h>
#include <sys/random.h>

time_t still_time_s = 1700000000;
uint8_t still_random_byte = 0x40;

ssize_t __wrap_getrandom(void *buf, size_t len, unsigned flags);
time_t __wrap_time(time_t *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
/* their names on 32-bit machines */
time_t __wrap___time64(time_t *t) __attribute__((alias("__wrap_time")));
int __wrap___clock_gettime64(clockid_t id, struct timespec *ts)
	__attribute__((alias("__wrap_clock_gettime")));

ssize_t __wrap_getrandom(void *buf, size_t len, unsigned flags)
{
	/* a number of up to 8 bytes has the same value on all machines */
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[BYTE_ORDER == BIG_ENDIAN && len <= 8 ? len - 1 - i : i] =
			still_random_byte++;
	return (ssize_t)len;
}

time_t __wrap_time(time_t *t)
{
	still_time_s += 60;
	if (t)
		*t = still_time_s;
	return still_time_s;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	static long now_us = 1000000;

	now_us += 1111;
	*ts = (struct timespec){ .tv_sec = now_us / 1000000, .tv_nsec = now_us % 1000000 * 1000 };
	return 0;
}
