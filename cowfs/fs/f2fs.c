// SPDX-License-Identifier: MIT
/* The entry of F2FS. A mount writes one of its two checkpoint packs, never the superblock. */
#include <string.h>

#include "fs/fs_ops.h"

#define F2FS_SB 1024

/* the first of the two copies that has the magic number; NULL if none has */
static const uint8_t *f2fs_super(const struct supers *s)
{
	for (size_t i = 0; i < HEAD_UNITS; i++) {
		const uint8_t *sb = s->head + i * COW_BLK_BYTES + F2FS_SB;

		if (le_at(sb, 0, 4) == 0xF2F52010u && le_at(sb, 16, 4) >= 12 &&
		    le_at(sb, 16, 4) <= 16)
			return sb;
	}
	return NULL;
}

static bool probe_f2fs(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = f2fs_super(s);

	if (!sb)
		return false;
	f->block_bytes = 1u << le_at(sb, 16, 4);
	f->size_bytes = size_of_blocks(le_at(sb, 36, 8), f->block_bytes);
	memcpy(f->uuid, sb + 108, sizeof(f->uuid));
	/* devs[]: a path and a segment count each; empty if there is one device */
	for (size_t i = 1; i < 8; i++)
		f->devices += sb[2201 + i * 68] != 0;
	return true;
}

static size_t units_f2fs(const struct supers *s, uint64_t units[FS_UNITS])
{
	const uint8_t *sb = f2fs_super(s);

	units[0] = 0;
	units[1] = 1;
	units[2] = (le_at(sb, 76, 4) << le_at(sb, 16, 4)) >> COW_BLK_SHIFT;
	units[3] = units[2];
	if (le_at(sb, 20, 4) < 32)
		units[3] += (1ull << le_at(sb, 20, 4) << le_at(sb, 16, 4)) >> COW_BLK_SHIFT;
	return 4;
}

/* checkpoint_ver comes first, so each pack changes this sector; the code checks checksum_offset */
static bool looks_written_f2fs(const uint8_t *sector, unsigned k)
{
	uint64_t sum_off = le_at(sector, 164, 4);

	return k == 0 && sum_off >= 192 && sum_off < 65536 && sum_off % 4 == 0;
}

static const char *refusal_f2fs(const struct fsinfo *f)
{
	return f->devices == 1
		       ? NULL
		       : "its file system has several devices, and each would be committed on its own. "
			 "Make one on a single device";
}

const struct fs_ops f2fs_ops = {
	.names = { "f2fs" },
	.probe = probe_f2fs,
	.units = units_f2fs,
	.looks_written = looks_written_f2fs,
	.refusal = refusal_f2fs,
	.crash_safe = true,
	.readonly_options = "ro",
	.checker = "fsck.f2fs -f",
	.owners = OWNERS_TREE,
	.keeps_inode_numbers = true,
};
