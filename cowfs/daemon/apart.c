/* SPDX-License-Identifier: MIT */
#include "daemon/apart.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/thread.h"

#define THAW_STACK_BYTES (256 * KIB)

static void *thawer_main(void *arg)
{
	struct thawer *t = arg;
	uint64_t count;

	while (read(t->event_fd, &count, sizeof(count)) == sizeof(count)) {
		t->result = quiesce_call(QUIESCE_THAW, t->job_fd, -1);
		close(t->job_fd);
		t->busy = false;
	}
	return NULL;
}

int thawer_start(struct thawer *t)
{
	pthread_t thread;
	int r;

	t->event_fd = eventfd(0, EFD_CLOEXEC);
	if (t->event_fd < 0)
		return -errno;
	r = thread_start(&thread, NULL, THAW_STACK_BYTES, thawer_main, t);
	if (r == 0)
		pthread_detach(thread);
	return r;
}

int thaw(struct thawer *t, int mount_fd, uint64_t wait_ns)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	uint64_t until_ns = now_ns() + wait_ns, one = 1;

	if (!t->busy && !t->started) {
		t->job_fd = fcntl(mount_fd, F_DUPFD_CLOEXEC, 3);
		if (t->job_fd < 0)
			return -errno;
		t->started = true;
		t->busy = true;
		if (write(t->event_fd, &one, sizeof(one)) < 0)
			return -errno;
	}
	while (t->busy && now_ns() < until_ns)
		nanosleep(&nap, NULL);
	if (t->busy)
		return -EAGAIN;
	if (!t->started) /* it was for an earlier freeze */
		return -EAGAIN;
	t->started = t->result == 0;
	return t->result;
}
