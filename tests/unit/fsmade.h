/* SPDX-License-Identifier: MIT */
/* Superblocks written by their specifications, of file systems whose mkfs is not a dependency or
 * would make too much; and commands in workdir.h's dir. */
#ifndef COWFS_TESTS_FSMADE_H
#define COWFS_TESTS_FSMADE_H

#include "image.h"

/* the first line that the command prints, in dir; "" if none */
static const char *line_of(const char *fmt, ...) PRINTF(1, 2);
static const char *line_of(const char *fmt, ...)
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

static __attribute__((unused)) void put(uint8_t *p, uint64_t v, size_t width)
{
	for (size_t i = 0; i < width; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static __attribute__((unused)) void blank(struct image *im, uint64_t size_bytes)
{
	memset(im, 0, sizeof(*im));
	im->size_bytes = size_bytes;
	im->p = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(im->p != MAP_FAILED);
	im->r = (struct blk_reader){ image_read, im, size_bytes >> COW_BLK_SHIFT };
}

static __attribute__((unused)) void f2fs_put(uint8_t *sb)
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

static __attribute__((unused)) void btrfs_put(uint8_t *sb, uint64_t size_bytes)
{
	memcpy(sb + 0x40, "_BHRfS_M", 8);
	put(sb + 0x30, 65536, 8);
	put(sb + 0x88, 1, 8);
	put(sb + 0x90, 4096, 4);
	put(sb + 0xd1, size_bytes, 8);
}

static __attribute__((unused)) void exfat_put(uint8_t *sb)
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

static __attribute__((unused)) void fat_put(uint8_t *sb, bool fat32)
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

static __attribute__((unused)) void nilfs2_put(uint8_t *sb, uint64_t size_bytes)
{
	put(sb, 2, 4);		/* s_rev_level */
	put(sb + 6, 0x3434, 2); /* s_magic */
	put(sb + 8, 280, 2);	/* s_bytes */
	put(sb + 0x14, 2, 4);	/* s_log_block_size */
	put(sb + 0x20, size_bytes, 8);
	put(sb + 0x30, 2048, 4); /* s_blocks_per_segment */
}

static __attribute__((unused)) int setup(void **state)
{
	return workdir_new("fsinfo");
}

#endif
