/* SPDX-License-Identifier: MIT */
/* For cowfs-recover, as in fuse_parts.c: it keeps nothing in RAM that could be compressed, and looks
 * up no names that differ in case only. */
#include <errno.h>
#include <ext2fs/ext2fs.h>

#include "ram/packer.h"

int packer_new(struct packer **ret)
{
	(void)ret;
	return -ENOMEM;
}

void packer_free(struct packer *p)
{
	(void)p;
}

struct pack_work *packer_work(struct packer *p)
{
	(void)p;
	return NULL;
}

bool packer_pack(struct packer *p, const void *blocks, uint8_t mask, struct pack *ret,
		 size_t *ret_bytes)
{
	(void)p, (void)blocks, (void)mask, (void)ret, (void)ret_bytes;
	return false;
}

int packer_read(struct packer *p,
		int (*read)(const void *ctx, void *buf, size_t off_bytes, size_t len_bytes),
		const void *ctx, size_t off_bytes, void *to, size_t len_bytes)
{
	(void)p, (void)read, (void)ctx, (void)off_bytes, (void)to, (void)len_bytes;
	return -EIO;
}

/* The tables of Unicode; libext2fs knows the name by no header. */
const struct ext2fs_nls_table *ext2fs_load_nls_table(int encoding);
const struct ext2fs_nls_table *ext2fs_load_nls_table(int encoding)
{
	(void)encoding;
	return NULL;
}
