/* SPDX-License-Identifier: MIT */
#include "fs/free_space.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/broker.h"
#include "base/thread.h"
#include "fs/find_mount.h"

#define STACK_BYTES (256 * KIB)
#define OPEN_TRIES 20

struct free_space {
	int proc_dirfd, wake_fd;
	dev_t dev;
	atomic_uint refs; /* one for the owner, one for the thread */
	atomic_bool asking;
	_Atomic uint64_t bytes, asked_ns;
};

static void unref(struct free_space *l)
{
	if (atomic_fetch_sub(&l->refs, 1) > 1)
		return;
	close(l->wake_fd);
	free(l);
}

/* Tries again: -EAGAIN means that the path is not cached, perhaps only for this moment. */
static int open_mount(int proc_dirfd, dev_t dev)
{
	int fd = find_mount_open(proc_dirfd, dev);

	for (int i = 0; i < OPEN_TRIES && fd < 0 && fd != -ENOENT; i++) {
		poll(NULL, 0, 1);
		fd = find_mount_open(proc_dirfd, dev);
	}
	return fd;
}

uint64_t free_space_now(int proc_dirfd, dev_t dev)
{
	_cleanup_close_ int mount_fd = open_mount(proc_dirfd, dev);
	struct statfs st;

	if (mount_fd >= 0 && fstatfs(mount_fd, &st) == 0)
		return (uint64_t)st.f_bfree * (uint64_t)st.f_bsize;
	/* a file system that is mounted but cannot be asked may have no space left */
	return mount_fd == -ENOENT ? UINT64_MAX : 0;
}

static uint64_t ask_there(void)
{
	struct broker_message m = { .op = BROKER_FREE_BYTES };

	return broker_ask(BROKER_SPACE, &m, NULL) < 0 ? 0 : m.n[0];
}

static void *ask_main(void *arg)
{
	struct free_space *l = arg;
	uint64_t one = 1;

	l->bytes = broker_on() ? ask_there() : free_space_now(l->proc_dirfd, l->dev);
	l->asking = false;
	(void)!write(l->wake_fd, &one, sizeof(one)); /* full: the reader is awake */
	unref(l);
	return NULL;
}

int free_space_new(struct free_space **ret, int proc_dirfd, dev_t dev, int wake_fd)
{
	struct free_space *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	*l = (struct free_space){
		.proc_dirfd = proc_dirfd, .dev = dev, .refs = 1, .bytes = UINT64_MAX
	};
	l->wake_fd = fcntl(wake_fd, F_DUPFD_CLOEXEC, 0);
	if (l->wake_fd < 0) {
		free(l);
		return -errno;
	}
	*ret = l;
	return 0;
}

void free_space_free(struct free_space *l)
{
	if (l)
		unref(l);
}

void free_space_ask(struct free_space *l)
{
	pthread_t thread;

	if (l->asking)
		return;
	l->asking = true;
	l->asked_ns = now_ns();
	l->refs++;
	if (thread_start(&thread, "cowfs-statfs", STACK_BYTES, ask_main, l) == 0) {
		pthread_detach(thread);
		return;
	}
	l->asking = false;
	unref(l);
}

bool free_space_asking(const struct free_space *l)
{
	return l->asking;
}

uint64_t free_space_bytes(const struct free_space *l)
{
	return l->bytes;
}

uint64_t free_space_asked_ns(const struct free_space *l)
{
	return l->asked_ns;
}
