/* SPDX-License-Identifier: MIT */
/*
 * Layers that belong below a file system, and swap, by their magic numbers.
 *
 * Notes on the design
 * - A base that was changed without cowfs is recognised by what each mount changes in its file
 *   system. Opening a LUKS device or a logical volume changes nothing that cowfs could compare: a
 *   log would be written over changes in it, and the result would be a mixture. So no commit makes
 *   a volume a layer, and no attach accepts one.
 * - Other content that is not known may be a file system that a mkfs is just making.
 */
#include "fs/fs_ops.h"

#include <string.h>

#define UNSEEN ", in which cowfs cannot detect changes made without it"

#define MD_MAGIC "\xfc\x4e\x2b\xa9"

enum { NONE, LUKS, LVM, RAID, SWAP };

static const struct {
	uint16_t off_bytes, len_bytes;
	const char *magic;
	uint8_t kind;
} magics[] = {
	{ 0, 6, "LUKS\xba\xbe", LUKS },
	/* the label lies in one of the first four sectors */
	{ 24, 8, "LVM2 001", LVM },
	{ 512 + 24, 8, "LVM2 001", LVM },
	{ 1024 + 24, 8, "LVM2 001", LVM },
	{ 1536 + 24, 8, "LVM2 001", LVM },
	{ 0, 4, MD_MAGIC, RAID },
	{ 4096, 4, MD_MAGIC, RAID },
	{ 4096 - 10, 10, "SWAPSPACE2", SWAP },
};

static const char *const refusals[] = {
	[LUKS] = "it holds a LUKS device" UNSEEN
		 ". Put cowfs above LUKS: open the device, then prepare and attach the opened one",
	[LVM] = "it holds an LVM physical volume" UNSEEN
		". Put cowfs above LVM: prepare and attach a logical volume",
	[RAID] = "it holds a member of a RAID array" UNSEEN
		 ". Put cowfs above RAID: prepare and attach the array",
	[SWAP] = "it holds a swap area: what is swapped out would stay in RAM. Swap to zram or to "
		 "another partition",
};

/* mdadm keeps the first 4 KiB, with the superblock of the file system that was there, and that of btrfs. Each mkfs
 * writes over these three fields, and no file decides them. */
bool below_hides_fs(const struct supers *s)
{
	const uint8_t *md = s->head + 4096;

	return !memcmp(md, MD_MAGIC, 4) && le_at(md, 4, 4) == 1 && le_at(md, 144, 8) == 8;
}

uint8_t below_find(const struct supers *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(magics); i++)
		if (!memcmp(s->head + magics[i].off_bytes, magics[i].magic, magics[i].len_bytes))
			return magics[i].kind;
	return NONE;
}

const char *below_refusal(const struct fsinfo *f)
{
	return f->below < ARRAY_SIZE(refusals) ? refusals[f->below] : NULL;
}
