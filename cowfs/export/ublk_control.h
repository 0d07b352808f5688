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
void ublk_control_close(struct ublk_control *c); /* NULL allowed */

/* All return 0 or -errno of the kernel. One thread at a time. */
/* Fills in what info wants from the kernel, dev_id in particular. */
int ublk_control_add(struct ublk_control *c, struct ublk_dev_info *info) MUST_CHECK;
int ublk_control_set_params(struct ublk_control *c, uint32_t dev_id,
			    struct ublk_params *p) MUST_CHECK;
/* Waits until the server has fetched with every tag. */
int ublk_control_start(struct ublk_control *c, uint32_t dev_id) MUST_CHECK;
/* Removes the disk. Waits for requests under way. */
int ublk_control_stop(struct ublk_control *c, uint32_t dev_id) MUST_CHECK;
/* The device disappears once nothing has it or its disk open. Waits for nothing. */
int ublk_control_delete(struct ublk_control *c, uint32_t dev_id) MUST_CHECK;
int ublk_control_info(struct ublk_control *c, uint32_t dev_id,
		      struct ublk_dev_info *ret) MUST_CHECK;

#endif
