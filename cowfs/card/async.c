/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - Linux AIO and not io_uring: it is in every kernel that meets the daemon's other requirements,
 *   no setting disables it, and it creates no threads of its own. For direct reads of a block
 *   device it does everything needed here.
 * - io_setup allocates all of the kernel's memory for it, except the request itself. The request is
 *   allocated under the I/O flusher flag of the submitting thread, like every other request.
 * - The thread sleeps in io_getevents. An eventfd, polled through the same AIO context, ends it.
 */
#include "card/async.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "base/thread.h"

#define STACK_BYTES (128 * KIB) /* done may copy data and reply */
#define BATCH 16

struct async {
	struct card *card;
	int fd; /* the card's descriptor */
	int stop_fd;
	io_context_t ctx;
	struct iocb stop;
	pthread_t thread;
};

static void complete(struct async_read *io, long res)
{
	/* acquires the submitter's earlier writes, which TSan cannot see otherwise */
	(void)atomic_load_explicit(&io->armed, memory_order_acquire);
	if (res >= 0)
		res = (size_t)res == io->iocb.u.c.nbytes ? 0 : -EIO;
	io->done(io, card_leave(io->card, (int)res));
}

static void *answers(void *arg)
{
	struct async *a = arg;
	struct io_event ev[BATCH];
	bool stop = false;

	while (!stop) {
		int n = io_getevents(a->ctx, 1, BATCH, ev, NULL);

		for (int i = 0; i < n; i++) {
			struct async_read *io = ev[i].data;

			if (!io) {
				stop = true;
				continue;
			}
			complete(io, (long)ev[i].res); /* unsigned in libaio's header */
		}
		if (n < 0 && n != -EINTR)
			break; /* the context is gone, so nothing can be in flight */
	}
	return NULL;
}

int async_new(struct async **ret, struct card *c, unsigned depth)
{
	struct async *a = NULL;
	struct iocb *stop;
	int fd = card_async_fd(c), r;

	if (fd < 0)
		return fd;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->card = c;
	a->fd = fd;
	a->stop_fd = eventfd(0, EFD_CLOEXEC);
	r = a->stop_fd < 0 ? -errno : io_setup((int)depth + 1, &a->ctx);
	if (r < 0)
		goto fail;
	stop = &a->stop;
	io_prep_poll(stop, a->stop_fd, POLLIN);
	r = io_submit(a->ctx, 1, &stop);
	if (r == 1)
		r = thread_start(&a->thread, "cowfs-reads", STACK_BYTES, answers, a);
	if (r < 0) {
		(void)io_destroy(a->ctx);
		goto fail;
	}
	*ret = a;
	return 0;
fail:
	if (a->stop_fd >= 0)
		close(a->stop_fd);
	free(a);
	/* this kernel has no AIO or no poll in it, or its system-wide limit is used up */
	return r == -ENOSYS || r == -EINVAL || r == -EAGAIN ? -ENOTSUP : r;
}

void async_free(struct async *a)
{
	if (!a)
		return;
	(void)eventfd_write(a->stop_fd, 1);
	pthread_join(a->thread, NULL);
	(void)io_destroy(a->ctx);
	close(a->stop_fd);
	free(a);
}

int async_read(struct async *a, struct async_read *io, uint64_t off_bytes, void *buf,
	       size_t len_bytes)
{
	struct iocb *list = &io->iocb;
	int r = card_check_read(a->card, off_bytes, buf, len_bytes);

	if (r < 0)
		return r;
	if (card_shows(a->card, off_bytes, len_bytes))
		return -EAGAIN; /* card_read has it */
	r = card_enter(a->card);
	if (r < 0)
		return r;
	io->card = a->card;
	io_prep_pread(&io->iocb, a->fd, buf, len_bytes, (long long)off_bytes);
	io->iocb.data = io;
	atomic_store_explicit(&io->armed, true, memory_order_release);
	r = io_submit(a->ctx, 1, &list);
	if (r != 1)
		return card_leave(a->card, r < 0 ? r : -EAGAIN);
	card_account_read(a->card, len_bytes);
	return 0;
}
