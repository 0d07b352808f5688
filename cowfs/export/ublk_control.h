/* SPDX-License-Identifier: MIT */
/* The control device of ublk: each command is an operation of an io_uring of its own. */
#ifndef COWFS_EXPORT_UBLK_CONTROL_H
#define COWFS_EXPORT_UBLK_CONTROL_H

#include "base/util.h"
#include "export/ublk_abi.h"

#define UBLK_CONTROL_PATH "/dev/ublk-control"

struct ublk_control;

/* -errno of opening the device, or of the io_uring; -ENOTSUP: this build has none. */
int ublk_control_open(struct ublk_control **ret) MUST_CHECK;
/* The same with a descriptor of the device. On success c owns it. */
int ublk_control_take(struct ublk_control **ret, int fd) MUST_CHECK;
void ublk_control_close(struct ublk_control *c); /* NULL allowed */
/* A wait for a command ends with -ECONNRESET when the other end of this socket is closed, and c is of no use
 * any more. */
void ublk_control_until(struct ublk_control *c, int sock_fd);

/* All return 0 or -errno of the kernel. One thread at a time. */
/* Fills in what info wants from the kernel, dev_id in particular. */
int ublk_control_add(struct ublk_control *c, struct ublk_dev_info *info) MUST_CHECK;
int ublk_control_set_params(struct ublk_control *c, uint32_t dev_id,
			    struct ublk_params *p) MUST_CHECK;
/* Waits until the server has fetched with every tag. */
int ublk_control_start(struct ublk_control *c, uint32_t dev_id) MUST_CHECK;
/* Removes the disk. Waits for requests under way. */
int ublk_control_stop(struct ublk_control *c, uint32_t dev_id) MUST_CHECK;
/* The same, without waiting for it, as the last command of c. ublk_control_stopped: is it done? */
void ublk_control_stop_later(struct ublk_control *c, uint32_t dev_id);
bool ublk_control_stopped(struct ublk_control *c);
/* The device of a server that died waits for another one. -EBUSY: not yet. */
int ublk_control_recover(struct ublk_control *c, uint32_t dev_id) MUST_CHECK;
/* There is another server. Waits until it has fetched with every tag. This process has opened the character
 * device, as for ublk_control_start. */
int ublk_control_recovered(struct ublk_control *c, uint32_t dev_id) MUST_CHECK;
/* The device disappears once nothing has it or its disk open. Waits for nothing. */
int ublk_control_delete(struct ublk_control *c, uint32_t dev_id) MUST_CHECK;
int ublk_control_info(struct ublk_control *c, uint32_t dev_id,
		      struct ublk_dev_info *ret) MUST_CHECK;

#endif
