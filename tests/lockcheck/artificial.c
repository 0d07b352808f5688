/* SPDX-License-Identifier: MIT */
/* One data race, one lock-order inversion that never deadlocks, one lock out of order: tsan.sh must
 * see all three. */
#include <stdio.h>
#include <sys/resource.h>

static pthread_mutex_t lock[2] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
static int shared;

static void *run(void *arg)
{
	int first = arg != NULL;

	shared++;
	pthread_mutex_lock(&lock[first]);
	pthread_mutex_lock(&lock[!first]);
	pthread_mutex_unlock(&lock[!first]);
	pthread_mutex_unlock(&lock[first]);
	return NULL;
}

int main(void)
{
	pthread_t thread;

	/* as the daemon's worker, it opens nothing from now on */
	if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 0 }))
		return 1;
	if (pthread_create(&thread, NULL, run, NULL))
		return 1;
	shared++;
	pthread_join(thread, NULL);
	run(&thread);
	return 0;
}
