/* SPDX-License-Identifier: MIT */
#include "base/broker.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "base/passfd.h"

#define HEAD_BYTES offsetof(struct broker_message, data)

static struct {
	int fd[BROKER_LANES];
	pthread_mutex_t lock[BROKER_LANES];
	bool on;
	pthread_once_t once;
	void (*lost)(void);
} own = { .lock = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
		    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER },
	  .once = PTHREAD_ONCE_INIT };

int broker_send(int sock_fd, const struct broker_message *m, const int *fd)
{
	unsigned n = 0;

	while (fd && n < BROKER_FDS && fd[n] >= 0)
		n++;
	return passfd_send(sock_fd, m, HEAD_BYTES + min_u64(m->bytes, BROKER_DATA_BYTES), fd, n, 0);
}

int broker_receive(int sock_fd, struct broker_message *ret, int ret_fd[BROKER_FDS])
{
	unsigned n = 0;
	ssize_t r;

	for (unsigned i = 0; i < BROKER_FDS; i++)
		ret_fd[i] = -1;
	do
		r = passfd_receive(sock_fd, ret, sizeof(*ret), ret_fd, BROKER_FDS, &n);
	while (r == -EINTR);
	if (r <= 0)
		return (int)r;
	if ((size_t)r < HEAD_BYTES || ret->bytes != (size_t)r - HEAD_BYTES) {
		for (unsigned i = 0; i < n; i++)
			close(ret_fd[i]);
		return -EPROTO;
	}
	if (ret->bytes < sizeof(ret->data))
		ret->data[ret->bytes] = '\0';
	return 1;
}

void broker_use(const int lane_fd[BROKER_LANES], void (*lost)(void))
{
	memcpy(own.fd, lane_fd, sizeof(own.fd));
	own.lost = lost;
	own.on = true;
}

bool broker_on(void)
{
	return own.on;
}

static void close_all(const int fd[BROKER_FDS])
{
	for (unsigned i = 0; i < BROKER_FDS; i++)
		if (fd[i] >= 0)
			close(fd[i]);
}

static void report_lost(void)
{
	if (own.lost)
		own.lost();
}

int broker_ask(enum broker_lane lane, struct broker_message *m, int *ret_fd)
{
	int got[BROKER_FDS], r;

	pthread_mutex_lock(&own.lock[lane]);
	r = broker_send(own.fd[lane], m, NULL);
	if (r >= 0)
		r = broker_receive(own.fd[lane], m, got);
	pthread_mutex_unlock(&own.lock[lane]);
	if (r != 1) {
		pthread_once(&own.once, report_lost);
		return -EPIPE;
	}
	if (ret_fd)
		memcpy(ret_fd, got, sizeof(got));
	else
		close_all(got);
	return m->result;
}

int broker_call(enum broker_lane lane, enum broker_op op, uint64_t n0, uint64_t n1)
{
	struct broker_message m = { .op = op, .n = { n0, n1 } };

	return broker_ask(lane, &m, NULL);
}
