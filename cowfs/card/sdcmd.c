/* SPDX-License-Identifier: MIT */
#include "card/sdcmd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/major.h>
#include <linux/mmc/ioctl.h>
#include <string.h>
#include <sys/ioctl.h>

/* from linux/mmc/core.h, which is not a userspace header: response R1, and a command with data */
enum {
	RSP_PRESENT = 1 << 0,
	RSP_CRC = 1 << 2,
	RSP_OPCODE = 1 << 4,
	CMD_ADTC = 1 << 5,
	RSP_SPI_S1 = 1 << 7
};
enum { SD_GEN_CMD = 56, BLOCK_BYTES = 512 };

int sdcmd_read56(const char *disk, uint32_t arg, uint8_t ret[512])
{
	_cleanup_close_ int fd = open(disk, O_RDONLY | O_CLOEXEC);
	uint8_t data[BLOCK_BYTES] = { 0 };
	struct mmc_ioc_cmd cmd = { .opcode = SD_GEN_CMD,
				   .arg = arg,
				   .flags = RSP_PRESENT | RSP_CRC | RSP_OPCODE | CMD_ADTC |
					    RSP_SPI_S1,
				   .blksz = BLOCK_BYTES,
				   .blocks = 1 };

	if (fd < 0)
		return -errno;
	mmc_ioc_cmd_set_data(cmd, data);
	if (ioctl(fd, MMC_IOC_CMD, &cmd) < 0)
		return -errno;
	memcpy(ret, data, sizeof(data));
	return 0;
}
