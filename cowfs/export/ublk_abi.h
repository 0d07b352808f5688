/* SPDX-License-Identifier: MIT */
/*
 * The part of the kernel's interface to ublk that cowfs uses, as of Linux 6.9
 * (include/uapi/linux/ublk_cmd.h, which is GPL-2.0 WITH Linux-syscall-note OR MIT). Headers of older
 * kernels have no DEL_DEV_ASYNC, and some have none of it.
 */
#ifndef COWFS_EXPORT_UBLK_ABI_H
#define COWFS_EXPORT_UBLK_ABI_H

#include <stdint.h>
#include <sys/ioctl.h>

struct ublk_ctrl_cmd {
	uint32_t dev_id;
	uint16_t queue_id; /* UINT16_MAX: the command is for the device */
	uint16_t len;
	uint64_t addr; /* of len bytes, in or out */
	uint64_t data;
	uint16_t dev_path_len, pad;
	uint32_t reserved;
};

struct ublk_dev_info {
	uint16_t nr_hw_queues, queue_depth, state, pad0;
	uint32_t max_io_buf_bytes;
	uint32_t dev_id;
	int32_t pid;
	uint32_t pad1;
	uint64_t flags;
	uint64_t server_flags; /* kept by the kernel for the server */
	uint32_t owner_uid, owner_gid;
	uint64_t reserved1, reserved2;
};

struct ublk_param_basic {
	uint32_t attrs;
	uint8_t logical_bs_shift, physical_bs_shift, io_opt_shift, io_min_shift;
	uint32_t max_sectors, chunk_sectors;
	uint64_t dev_sectors, virt_boundary_mask;
};

struct ublk_param_discard {
	uint32_t discard_alignment, discard_granularity, max_discard_sectors,
		max_write_zeroes_sectors;
	uint16_t max_discard_segments, reserved0;
};

struct ublk_params {
	uint32_t len; /* of this structure */
	uint32_t types;
	struct ublk_param_basic basic;
	struct ublk_param_discard discard;
};

/* One request, in memory that the kernel shares; written before its command completes. */
struct ublk_io_desc {
	uint32_t op_flags; /* the operation is in the lowest byte */
	uint32_t nr_sectors;
	uint64_t start_sector;
	uint64_t addr;
};

/* In the entry of the io_uring. */
struct ublk_io_cmd {
	uint16_t q_id, tag;
	int32_t result;
	uint64_t addr; /* where the data of the request is, or goes */
};

_Static_assert(sizeof(struct ublk_ctrl_cmd) == 32 && sizeof(struct ublk_dev_info) == 64 &&
		       sizeof(struct ublk_io_desc) == 24 && sizeof(struct ublk_io_cmd) == 16 &&
		       sizeof(struct ublk_param_basic) == 32 &&
		       sizeof(struct ublk_param_discard) == 20,
	       "the kernel's layout");

#define UBLK_GET_DEV_INFO _IOR('u', 0x02, struct ublk_ctrl_cmd)
#define UBLK_ADD_DEV _IOWR('u', 0x04, struct ublk_ctrl_cmd)
#define UBLK_START_DEV _IOWR('u', 0x06, struct ublk_ctrl_cmd)
#define UBLK_STOP_DEV _IOWR('u', 0x07, struct ublk_ctrl_cmd)
#define UBLK_START_USER_RECOVERY _IOWR('u', 0x10, struct ublk_ctrl_cmd)
#define UBLK_END_USER_RECOVERY _IOWR('u', 0x11, struct ublk_ctrl_cmd)
#define UBLK_SET_PARAMS _IOWR('u', 0x08, struct ublk_ctrl_cmd)
#define UBLK_DEL_DEV_ASYNC _IOR('u', 0x14, struct ublk_ctrl_cmd)

#define UBLK_FETCH_REQ _IOWR('u', 0x20, struct ublk_io_cmd)
#define UBLK_COMMIT_AND_FETCH_REQ _IOWR('u', 0x21, struct ublk_io_cmd)

#define UBLK_NEED_GET_DATA _IOWR('u', 0x22, struct ublk_io_cmd)

/* Results of these commands: a request; a write whose data UBLK_NEED_GET_DATA asks for. */
#define UBLK_IO_RES_OK 0
#define UBLK_IO_RES_NEED_GET_DATA 1

#define UBLK_F_NEED_GET_DATA (1ull << 2)
#define UBLK_F_USER_RECOVERY (1ull << 3)
#define UBLK_F_USER_RECOVERY_REISSUE (1ull << 4)
#define UBLK_F_CMD_IOCTL_ENCODE (1ull << 6)

#define UBLK_S_DEV_DEAD 0
#define UBLK_S_DEV_LIVE 1
#define UBLK_S_DEV_QUIESCED 2 /* it waits for a server */

#define UBLK_PARAM_TYPE_BASIC (1u << 0)
#define UBLK_PARAM_TYPE_DISCARD (1u << 1)

#define UBLK_OP_READ 0
#define UBLK_OP_WRITE 1
#define UBLK_OP_FLUSH 2
#define UBLK_OP_DISCARD 3
#define UBLK_OP_WRITE_ZEROES 5

#endif
