/* SPDX-License-Identifier: MIT */
/* Superblocks written by their specifications, of file systems whose mkfs is not a dependency or
 * would make too much; and commands in workdir.h's dir. */
#ifndef COWFS_TESTS_FSMADE_H
#define COWFS_TESTS_FSMADE_H

#include "base/bytes.h"
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
	le_set(sb, 0, 4, 0xF2F52010);
	le_set(sb, 8, 4, 9);
	le_set(sb, 12, 4, 3);
	le_set(sb, 16, 4, 12); /* log_blocksize */
	le_set(sb, 20, 4, 9);  /* log_blocks_per_seg */
	le_set(sb, 36, 8, 25000);
	le_set(sb, 76, 4, 512); /* cp_blkaddr */
	memset(sb + 108, 0xA5, 16);
}

static __attribute__((unused)) void btrfs_put(uint8_t *sb, uint64_t size_bytes)
{
	memcpy(sb + 0x40, "_BHRfS_M", 8);
	le_set(sb, 0x30, 8, 65536);
	le_set(sb, 0x88, 8, 1);
	le_set(sb, 0x90, 4, 4096);
	le_set(sb, 0xd1, 8, size_bytes);
}

static __attribute__((unused)) void exfat_put(uint8_t *sb)
{
	memcpy(sb,
	       "\xEB\x76\x90"
	       "EXFAT   ",
	       11);
	le_set(sb, 72, 8, 204800); /* VolumeLength */
	le_set(sb, 80, 4, 2048);   /* FatOffset */
	le_set(sb, 100, 4, 0x12345678);
	sb[108] = 9;
	sb[109] = 3;
	le_set(sb, 510, 2, 0xAA55);
}

static __attribute__((unused)) void fat_put(uint8_t *sb, bool fat32)
{
	memcpy(sb, "\xEB\x3C\x90", 3);
	le_set(sb, 11, 2, 512);		     /* bytes of a sector */
	le_set(sb, 13, 1, 4);		     /* sectors of a cluster */
	le_set(sb, 14, 2, 8);		     /* reserved */
	le_set(sb, 16, 1, 2);		     /* FATs */
	le_set(sb, 19, 2, fat32 ? 0 : 4000); /* sectors */
	le_set(sb, 21, 1, 0xF8);	     /* media */
	le_set(sb, 22, 2, fat32 ? 0 : 16);   /* sectors of a FAT */
	le_set(sb, 32, 4, fat32 ? 8000 : 0);
	le_set(sb, 36, 4, fat32 ? 64 : 0);
	le_set(sb, 48, 2, 1); /* FSInfo */
	le_set(sb, 510, 2, 0xAA55);
}

static __attribute__((unused)) void nilfs2_put(uint8_t *sb, uint64_t size_bytes)
{
	le_set(sb, 0, 4, 2);	  /* s_rev_level */
	le_set(sb, 6, 2, 0x3434); /* s_magic */
	le_set(sb, 8, 2, 280);	  /* s_bytes */
	le_set(sb, 0x14, 4, 2);	  /* s_log_block_size */
	le_set(sb, 0x20, 8, size_bytes);
	le_set(sb, 0x30, 4, 2048); /* s_blocks_per_segment */
}

static __attribute__((unused)) int setup(void **state)
{
	return workdir_new("fsinfo");
}

#endif
