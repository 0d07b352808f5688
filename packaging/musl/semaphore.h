/* SPDX-License-Identifier: MIT */
/* A wait by another clock than that of the day, which may be set: by its difference to it. */
#include_next <semaphore.h>
#ifndef COWFS_MUSL_SEMAPHORE_H
#define COWFS_MUSL_SEMAPHORE_H

#include <time.h>

static inline int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until)
{
	struct timespec now, today;
	long ns;

	if (clock_gettime(clock, &now) < 0 || clock_gettime(CLOCK_REALTIME, &today) < 0)
		return -1;
	ns = today.tv_nsec + until->tv_nsec - now.tv_nsec;
	today.tv_sec += until->tv_sec - now.tv_sec + (ns >= 1000000000) - (ns < 0);
	today.tv_nsec = ns < 0 ? ns + 1000000000 : ns >= 1000000000 ? ns - 1000000000 : ns;
	return sem_timedwait(sem, &today);
}

#endif
