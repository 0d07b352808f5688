/* SPDX-License-Identifier: MIT */
/*
 * The io_uring of the control device stays for as long as the volume: after the start the filter of
 * system calls allows no new one. It is restricted to commands.
 */
#include "export/ublk_control.h"

#include <errno.h>

#include "export/uring.h"

#ifndef COWFS_URING

int ublk_control_take(struct ublk_control **ret, int fd)
{
	(void)ret, (void)fd;
	return -ENOTSUP;
}

int ublk_control_open(struct ublk_control **ret)
{
	return ublk_control_take(ret, -1);
}

void ublk_control_close(struct ublk_control *c)
{
	(void)c;
}

void ublk_control_until(struct ublk_control *c, int sock_fd)
{
	(void)c, (void)sock_fd;
}

static int run(struct ublk_control *c, uint32_t op, const struct ublk_ctrl_cmd *cmd)
{
	(void)c, (void)op, (void)cmd;
	return -ENOTSUP;
}

static int submit(struct ublk_control *c, uint32_t op, const struct ublk_ctrl_cmd *cmd)
{
	return run(c, op, cmd);
}

bool ublk_control_stopped(struct ublk_control *c)
{
	(void)c;
	return true;
}

#else

#include <fcntl.h>
#include <poll.h>
#include <string.h>

#define WAIT_MS 100

struct ublk_control {
	int fd;
	int sock_fd;	    /* ublk_control_until; -1 */
	struct uring uring; /* entries of 128 bytes */
};

static int make_ring(struct uring *uring)
{
	static const uint8_t op = IORING_OP_URING_CMD;
	int r = uring_new(uring, 1, IORING_SETUP_SQE128);

	if (r < 0)
		return r;
	r = uring_restrict(uring, &op, 1);
	if (r < 0)
		uring_free(uring);
	return r;
}

int ublk_control_take(struct ublk_control **ret, int fd)
{
	struct ublk_control *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	r = make_ring(&c->uring);
	if (r < 0) {
		free(c);
		return r;
	}
	c->fd = fd;
	c->sock_fd = -1;
	*ret = c;
	return 0;
}

int ublk_control_open(struct ublk_control **ret)
{
	int fd = open(UBLK_CONTROL_PATH, O_RDWR | O_CLOEXEC);
	int r = fd < 0 ? -errno : ublk_control_take(ret, fd);

	if (r < 0 && fd >= 0)
		close(fd);
	return r;
}

void ublk_control_until(struct ublk_control *c, int sock_fd)
{
	c->sock_fd = sock_fd;
}

void ublk_control_close(struct ublk_control *c)
{
	if (!c)
		return;
	uring_free(&c->uring);
	close(c->fd);
	free(c);
}

static int submit(struct ublk_control *c, uint32_t op, const struct ublk_ctrl_cmd *cmd)
{
	struct io_uring_sqe *sqe = uring_sqe(&c->uring);

	if (!sqe)
		return -EBUSY;
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = c->fd;
	sqe->off = op; /* cmd_op */
	memcpy(&sqe->addr3, cmd, sizeof(*cmd));
	return uring_submit(&c->uring, 0);
}

/* Waits for a completion, or for the end of the other process. The time limit: a completion that the
 * kernel has left to this process shows only in a call. */
static int await(struct ublk_control *c)
{
	struct pollfd p[] = { { .fd = c->uring.fd, .events = POLLIN }, { .fd = c->sock_fd } };

	if (c->sock_fd < 0)
		return uring_submit(&c->uring, 1);
	if (poll(p, ARRAY_SIZE(p), WAIT_MS) > 0 && p[1].revents)
		return -ECONNRESET;
	return uring_submit(&c->uring, 0);
}

static int run(struct ublk_control *c, uint32_t op, const struct ublk_ctrl_cmd *cmd)
{
	uint64_t user_data;
	int r = submit(c, op, cmd), res;

	while (r >= 0 || r == -EINTR) {
		if (uring_take(&c->uring, &user_data, &res))
			return res;
		r = await(c);
	}
	return r;
}

bool ublk_control_stopped(struct ublk_control *c)
{
	uint64_t user_data;
	int res;

	(void)uring_submit(&c->uring, 0);
	return uring_take(&c->uring, &user_data, &res);
}

#endif

static int command(struct ublk_control *c, uint32_t op, uint32_t dev_id, void *buf, size_t len,
		   uint64_t data)
{
	const struct ublk_ctrl_cmd cmd = { .dev_id = dev_id,
					   .queue_id = UINT16_MAX,
					   .len = (uint16_t)len,
					   .addr = (uintptr_t)buf,
					   .data = data };

	return run(c, op, &cmd);
}

void ublk_control_stop_later(struct ublk_control *c, uint32_t dev_id)
{
	const struct ublk_ctrl_cmd cmd = { .dev_id = dev_id, .queue_id = UINT16_MAX };

	(void)submit(c, UBLK_STOP_DEV, &cmd);
}

int ublk_control_recover(struct ublk_control *c, uint32_t dev_id)
{
	return command(c, UBLK_START_USER_RECOVERY, dev_id, NULL, 0, 0);
}

int ublk_control_recovered(struct ublk_control *c, uint32_t dev_id)
{
	return command(c, UBLK_END_USER_RECOVERY, dev_id, NULL, 0, (uint64_t)getpid());
}

int ublk_control_add(struct ublk_control *c, struct ublk_dev_info *info)
{
	return command(c, UBLK_ADD_DEV, info->dev_id, info, sizeof(*info), 0);
}

int ublk_control_set_params(struct ublk_control *c, uint32_t dev_id, struct ublk_params *p)
{
	p->len = sizeof(*p);
	return command(c, UBLK_SET_PARAMS, dev_id, p, sizeof(*p), 0);
}

int ublk_control_start(struct ublk_control *c, uint32_t dev_id)
{
	return command(c, UBLK_START_DEV, dev_id, NULL, 0, (uint64_t)getpid());
}

int ublk_control_stop(struct ublk_control *c, uint32_t dev_id)
{
	return command(c, UBLK_STOP_DEV, dev_id, NULL, 0, 0);
}

int ublk_control_delete(struct ublk_control *c, uint32_t dev_id)
{
	return command(c, UBLK_DEL_DEV_ASYNC, dev_id, NULL, 0, 0);
}

int ublk_control_info(struct ublk_control *c, uint32_t dev_id, struct ublk_dev_info *ret)
{
	return command(c, UBLK_GET_DEV_INFO, dev_id, ret, sizeof(*ret), 0);
}
