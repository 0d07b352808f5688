/* SPDX-License-Identifier: MIT */
/* CRC32C (Castagnoli, reflected polynomial 0x82F63B78), as in iSCSI, ext4 and btrfs. */
#ifndef COWFS_BASE_CRC32C_H
#define COWFS_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* libblkid.a has a function of this name */
#define crc32c cowfs_crc32c

/* crc32c(0, "123456789", 9) == 0xE3069283; chains: crc32c(crc32c(0, a), b). */
uint32_t crc32c(uint32_t crc, const void *buf, size_t len_bytes);
/*
 * CRC32C of the bytes from the last to the first, for blocks that other programs wrote.
 *
 * ext4 ends its superblock and its extent blocks with a CRC32C of the bytes before it. A plain
 * CRC32C over such a block has the same value for all contents: a CRC is linear, and a CRC that
 * follows its data cancels it.
 */
uint32_t crc32c_back(const void *buf, size_t len_bytes);
/* The same from tables only, whatever the CPU supports: for the test that compares the two. */
uint32_t crc32c_sw(uint32_t crc, const void *buf, size_t len_bytes);
uint32_t crc32c_back_sw(const void *buf, size_t len_bytes);

#endif
