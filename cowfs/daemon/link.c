/* SPDX-License-Identifier: MIT */
#include "daemon/link.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/io.h"
#include "base/msg.h"

int link_send(int sock_fd, struct message m, const int *fd)
{
	int fds[SUPERVISOR_KEPT_MAX];
	unsigned n = 0;

	for (unsigned i = 0; fd && i < SUPERVISOR_KEPT_MAX; i++)
		if (fd[i] >= 0) {
			m.slots |= UINT32_C(1) << i;
			fds[n++] = fd[i];
		}
	return passfd_send(sock_fd, &m, sizeof(m), fds, n, MSG_DONTWAIT);
}

int link_receive(int sock_fd, struct message *ret, int ret_fd[SUPERVISOR_KEPT_MAX])
{
	int fds[SUPERVISOR_KEPT_MAX];
	unsigned n, next = 0;
	ssize_t r = passfd_receive(sock_fd, ret, sizeof(*ret), fds, SUPERVISOR_KEPT_MAX, &n);

	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
		ret_fd[i] = r == sizeof(*ret) && (ret->slots >> i & 1) && next < n ? fds[next++]
										   : -1;
	while (next < n)
		close(fds[next++]);
	return r < 0 ? (int)r : r == 0 ? 0 : r == sizeof(*ret) ? 1 : -EPROTO;
}

void link_close(int fd[SUPERVISOR_KEPT_MAX])
{
	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
		if (fd[i] >= 0)
			close(steal_fd(&fd[i]));
}

/* ---- the worker ---- */

/* Sends to the parent and waits for its answer. One thread at a time: another one would take the
 * answer. -EPIPE: there was no parent; -ECONNRESET: it died before it answered. */
static int ask_parent(int sock_fd, struct message m, const int *fd, struct message *answer,
		      int ret_fd[SUPERVISOR_KEPT_MAX])
{
	static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
	static uint32_t number;
	int r;

	pthread_mutex_lock(&asking);
	m.number = ++number;
	r = link_send(sock_fd, m, fd);
	while (r >= 0) {
		r = link_receive(sock_fd, answer, ret_fd);
		if (r == 1 && answer->number == m.number)
			break;
		if (r == 1) /* an answer that was late */
			link_close(ret_fd);
		else if (r == 0)
			r = -ECONNRESET;
		else if (r == -EINTR)
			r = 0;
	}
	pthread_mutex_unlock(&asking);
	return r == 1 ? 0 : r;
}

/* For an answer without descriptors; returns its error, too. */
static int tell_parent(int sock_fd, struct message m, const int *fd)
{
	int none[SUPERVISOR_KEPT_MAX];
	struct message answer;
	int r = ask_parent(sock_fd, m, fd, &answer, none);

	if (r < 0)
		return r;
	link_close(none);
	return answer.error;
}

int supervisor_keep(int root_fd, const int fd[SUPERVISOR_KEPT_MAX], uint32_t gone)
{
	return tell_parent(root_fd, (struct message){ .what = LINK_KEEP, .gone = gone }, fd);
}

int supervisor_serving(struct supervisor_link *l)
{
	return tell_parent(l->sock_fd, (struct message){ .what = LINK_SERVING }, NULL);
}

void supervisor_ending(struct supervisor_link *l)
{
	/* without a parent nothing is kept */
	(void)tell_parent(l->sock_fd, (struct message){ .what = LINK_ENDING }, NULL);
}

int supervisor_take(struct supervisor_link *l, int kept[SUPERVISOR_KEPT_MAX], bool *ret_halted)
{
	struct message answer;
	int r = ask_parent(l->root_fd, (struct message){ .what = LINK_TAKE }, NULL, &answer, kept);

	if (r < 0)
		return r;
	*ret_halted = answer.halted;
	l->kernel_fd = kept[SUPERVISOR_KERNEL];
	return l->kernel_fd < 0 ? -EPROTO : 0;
}
