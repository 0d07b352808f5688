/* SPDX-License-Identifier: MIT */
/*
 * The io_uring of the control device stays for as long as the volume: after the start the filter of
 * system calls allows no new one. It is restricted to commands.
 */
#include "export/ublk_control.h"

#include <errno.h>

#ifndef COWFS_URING

int ublk_control_open(struct ublk_control **ret)
{
	(void)ret;
	return -ENOTSUP;
}

void ublk_control_close(struct ublk_control *c)
{
	(void)c;
}

static int run(struct ublk_control *c, uint32_t op, const struct ublk_ctrl_cmd *cmd)
{
	(void)c, (void)op, (void)cmd;
	return -ENOTSUP;
}

#else

#include <fcntl.h>
#include <liburing.h>
#include <string.h>

#include "export/ring.h"

struct ublk_control {
	int fd;
	struct io_uring uring; /* entries of 128 bytes */
};

static int make_ring(struct io_uring *uring)
{
	struct io_uring_params params = { .flags = IORING_SETUP_SQE128 | IORING_SETUP_R_DISABLED };
	struct io_uring_restriction only = { .opcode = IORING_RESTRICTION_SQE_OP,
					     .sqe_op = IORING_OP_URING_CMD };
	int r = io_uring_queue_init_params(1, uring, &params);

	if (r < 0)
		return r;
	r = ring_restrict(uring->ring_fd, &only, 1);
	if (r < 0)
		io_uring_queue_exit(uring);
	return r;
}

int ublk_control_open(struct ublk_control **ret)
{
	struct ublk_control *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->fd = open(UBLK_CONTROL_PATH, O_RDWR | O_CLOEXEC);
	r = c->fd < 0 ? -errno : make_ring(&c->uring);
	if (r < 0) {
		if (c->fd >= 0)
			close(c->fd);
		free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void ublk_control_close(struct ublk_control *c)
{
	if (!c)
		return;
	io_uring_queue_exit(&c->uring);
	close(c->fd);
	free(c);
}

static int run(struct ublk_control *c, uint32_t op, const struct ublk_ctrl_cmd *cmd)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&c->uring);
	struct io_uring_cqe *cqe;
	int r;

	if (!sqe)
		return -EBUSY;
	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = c->fd;
	sqe->off = op; /* cmd_op */
	memcpy(&sqe->addr3, cmd, sizeof(*cmd));
	do
		r = io_uring_submit_and_wait(&c->uring, 1);
	while (r == -EINTR);
	if (r < 0)
		return r;
	while ((r = io_uring_wait_cqe(&c->uring, &cqe)) == -EINTR)
		;
	if (r < 0)
		return r;
	r = cqe->res;
	io_uring_cqe_seen(&c->uring, cqe);
	return r;
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
