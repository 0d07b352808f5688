// SPDX-License-Identifier: MIT
/*
 * The entries of FAT and exFAT. These have no journal, so they are committed unmounted. A mount
 * writes the FSInfo sector and the first entries of the FAT.
 */
#include <string.h>

#include "fs/fs_ops.h"

static bool probe_exfat(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = s->head;
	uint64_t shift = sb[108], cluster_shift = sb[109];

	if (memcmp(sb + 3, "EXFAT   ", 8) || le_at(sb, 510, 2) != 0xAA55 || shift < 9 ||
	    shift > 12 || cluster_shift > 25 - shift)
		return false;
	f->block_bytes = 1u << (shift + cluster_shift);
	f->size_bytes = size_of_blocks(le_at(sb, 72, 8), 1ull << shift);
	memcpy(f->uuid, sb + 100, 4);
	return true;
}

/*
 * A FAT has no magic number: the code checks for a BPB that no MBR, no NTFS and no garbage has by
 * chance.
 */
static bool probe_vfat(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = s->head;
	uint64_t sector_bytes = le_at(sb, 11, 2), sectors = le_at(sb, 19, 2);
	bool fat32 = !le_at(sb, 22, 2);

	if (le_at(sb, 510, 2) != 0xAA55 || (sb[0] != 0xEB && sb[0] != 0xE9) ||
	    !pow2_between(sector_bytes, 512, 4096) || !pow2_between(sb[13], 1, 128) ||
	    !le_at(sb, 14, 2) || !sb[16] || sb[16] > 2 || (sb[21] != 0xF0 && sb[21] < 0xF8))
		return false;
	if (!sectors)
		sectors = le_at(sb, 32, 4);
	if (!sectors || (fat32 && !le_at(sb, 36, 4)))
		return false;
	f->block_bytes = (uint32_t)(sector_bytes * sb[13]);
	f->size_bytes = sectors * sector_bytes;
	memcpy(f->uuid, sb + (fat32 ? 67 : 39), 4);
	return true;
}

uint64_t fat_reserved_bytes(const struct supers *s)
{
	struct fsinfo f;

	return probe_vfat(s, &f) ? le_at(s->head, 14, 2) * le_at(s->head, 11, 2) : 0;
}

static size_t units_exfat(const struct supers *s, uint64_t units[FS_UNITS])
{
	const uint8_t *sb = s->head;

	units[0] = 0;
	units[1] = (le_at(sb, 80, 4) << sb[108]) >> COW_BLK_SHIFT;
	return 2;
}

static size_t units_vfat(const struct supers *s, uint64_t units[FS_UNITS])
{
	const uint8_t *sb = s->head;
	uint64_t sector_bytes = le_at(sb, 11, 2);

	units[0] = 0;
	units[1] = le_at(sb, 22, 2) ? 0 : le_at(sb, 48, 2) * sector_bytes >> COW_BLK_SHIFT;
	units[2] = le_at(sb, 14, 2) * sector_bytes >> COW_BLK_SHIFT;
	return 3;
}

/* the media descriptor as the FAT's first entry; 0xFF is the content of erased flash */
static bool looks_written_exfat(const uint8_t *sector, unsigned k)
{
	(void)k;
	return sector[0] >= 0xF0 && sector[0] != 0xFF && sector[1] == 0xFF && sector[2] == 0xFF;
}

static bool looks_written_vfat(const uint8_t *sector, unsigned k)
{
	return (!memcmp(sector, "RRaA", 4) && !memcmp(sector + 484, "rrAa", 4)) ||
	       looks_written_exfat(sector, k);
}

const struct fs_ops exfat_ops = {
	.unguarded = true,
	.names = { "exfat" },
	.probe = probe_exfat,
	.units = units_exfat,
	.looks_written = looks_written_exfat,
	.readonly_options = "ro",
	.checker = "fsck.exfat",
	.owners = OWNERS_NONE,
};

const struct fs_ops vfat_ops = {
	.unguarded = true,
	.names = { "vfat" },
	.probe = probe_vfat,
	.units = units_vfat,
	.looks_written = looks_written_vfat,
	.readonly_options = "ro",
	.checker = "fsck.vfat",
	.owners = OWNERS_NONE,
};
