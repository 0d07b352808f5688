/* SPDX-License-Identifier: MIT */
/* A file of workdir.h's dir as the image of a volume, in memory: changes stay there. */
#ifndef COWFS_TESTS_IMAGE_H
#define COWFS_TESTS_IMAGE_H

#include "test.h"
#include "fs/fsinfo.h"
#include "workdir.h"

struct image {
	char path[128];
	uint8_t *p; /* NULL: too large for the address space, and read through fd */
	int fd;
	uint64_t size_bytes;
	struct blk_reader r;
	uint64_t calls, units; /* of r */
	uint64_t fail_at;      /* this call returns -EIO; 0: none */
	uint64_t failed_blk;
	uint8_t *touched; /* NULL, or a bit for each unit that was read */
};

static inline int image_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct image *im = ctx;

	assert_int_equal((uintptr_t)buf % COW_BLK_BYTES, 0);
	assert_true(blks && blks <= 32 && blk + blks <= im->r.volume_blks);
	im->units += blks;
	if (++im->calls == im->fail_at) {
		im->failed_blk = blk;
		return -EIO;
	}
	if (im->p)
		memcpy(buf, im->p + blk_to_bytes(blk), blk_to_bytes(blks));
	else if (pread(im->fd, buf, blk_to_bytes(blks), (off_t)blk_to_bytes(blk)) !=
		 (ssize_t)blk_to_bytes(blks))
		return -EIO;
	for (uint64_t k = blk; im->touched && k < blk + blks; k++)
		im->touched[k / 8] |= (uint8_t)(1u << k % 8);
	return 0;
}

static inline void image_open(struct image *im, const char *name)
{
	struct stat st;
	int fd;

	memset(im, 0, sizeof(*im));
	snprintf(im->path, sizeof(im->path), "%s/%s", dir, name);
	fd = open(im->path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	im->size_bytes = (uint64_t)st.st_size;
	im->p = mmap(NULL, im->size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd,
		     0);
	im->fd = -1;
	if (im->p == MAP_FAILED) { /* more than a 32-bit machine can map */
		assert_true(im->size_bytes > SIZE_MAX / 4);
		im->p = NULL;
		im->fd = fd;
	} else {
		close(fd);
	}
	im->r = (struct blk_reader){ image_read, im, im->size_bytes >> COW_BLK_SHIFT };
}

static inline void image_close(struct image *im)
{
	if (im->p)
		munmap(im->p, im->size_bytes);
	else
		close(im->fd);
}

#endif
