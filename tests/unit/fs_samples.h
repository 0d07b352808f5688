/* SPDX-License-Identifier: MIT */
/* File systems made by hand or by mkfs. Behind cmocka.h. */
#ifndef COWFS_TESTS_FS_SAMPLES_H
#define COWFS_TESTS_FS_SAMPLES_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "fs/fsinfo.h"
#include "image.h"

/* the first line that the command prints, in dir; "" if none */
static const char *line_of(const char *fmt, ...) PRINTF(1, 2);
static inline const char *line_of(const char *fmt, ...)
{
	static char line[512];
	char cmd[1024];
	va_list ap;
	FILE *f;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	f = sh_read("%s", cmd);
	if (!fgets(line, sizeof(line), f))
		line[0] = 0;
	while (fgetc(f) != EOF)
		;
	pclose(f);
	line[strcspn(line, "\n")] = 0;
	return line;
}

static inline void put(uint8_t *p, uint64_t v, size_t width)
{
	for (size_t i = 0; i < width; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static inline void blank(struct image *im, uint64_t size_bytes)
{
	memset(im, 0, sizeof(*im));
	im->size_bytes = size_bytes;
	im->p = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(im->p != MAP_FAILED);
	im->r = (struct blk_reader){ image_read, im, size_bytes >> COW_BLK_SHIFT };
}

static inline void f2fs_put(uint8_t *sb)
{
	put(sb, 0xF2F52010, 4);
	put(sb + 8, 9, 4);
	put(sb + 12, 3, 4);
	put(sb + 16, 12, 4); /* log_blocksize */
	put(sb + 20, 9, 4);  /* log_blocks_per_seg */
	put(sb + 36, 25000, 8);
	put(sb + 76, 512, 4); /* cp_blkaddr */
	memset(sb + 108, 0xA5, 16);
}

static inline void exfat_put(uint8_t *sb)
{
	memcpy(sb,
	       "\xEB\x76\x90"
	       "EXFAT   ",
	       11);
	put(sb + 72, 204800, 8); /* VolumeLength */
	put(sb + 80, 2048, 4);	 /* FatOffset */
	put(sb + 100, 0x12345678, 4);
	sb[108] = 9;
	sb[109] = 3;
	put(sb + 510, 0xAA55, 2);
}

static inline void fat_put(uint8_t *sb, bool fat32)
{
	memcpy(sb, "\xEB\x3C\x90", 3);
	put(sb + 11, 512, 2);		   /* bytes of a sector */
	put(sb + 13, 4, 1);		   /* sectors of a cluster */
	put(sb + 14, 8, 2);		   /* reserved */
	put(sb + 16, 2, 1);		   /* FATs */
	put(sb + 19, fat32 ? 0 : 4000, 2); /* sectors */
	put(sb + 21, 0xF8, 1);		   /* media */
	put(sb + 22, fat32 ? 0 : 16, 2);   /* sectors of a FAT */
	put(sb + 32, fat32 ? 8000 : 0, 4);
	put(sb + 36, fat32 ? 64 : 0, 4);
	put(sb + 48, 1, 2); /* FSInfo */
	put(sb + 510, 0xAA55, 2);
}

/* ---- a cut, or somebody else? ---- */

enum { MADE_BYTES = 330 * MIB };

static inline int setup(void **state)
{
	(void)state;
	return workdir_new("fsinfo");
}

#endif
