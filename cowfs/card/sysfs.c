/* SPDX-License-Identifier: MIT */
/* Geometry, identity and counters of a block device, from its directory in sysfs. */
#include "card/sysfs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/crc32c.h"
#include "base/io.h"

#define SECTOR_BYTES 512u
#define EB_GUESS_BYTES ((uint32_t)(4 * MIB))

/* The smallest allocation unit of an SD card is 16 KiB. sysfs also reports 512 for "unknown". */
static bool eb_is_plausible(uint64_t bytes)
{
	return bytes >= 16 * KIB && bytes <= GIB && bytes % COW_BLK_BYTES == 0;
}

bool sysfs_is_mmc(int diskdir)
{
	char target[256];
	ssize_t n = readlinkat(diskdir, "device/subsystem", target, sizeof(target) - 1);
	const char *base;

	if (n < 0)
		return false;
	target[n] = '\0';
	base = strrchr(target, '/');
	return !strcmp(base ? base + 1 : target, "mmc");
}

/* Only mmc reports it: elsewhere discard_granularity is a page of some mapping, not an erase
 * block. */
static void find_erase_block(int diskdir, struct card_geometry *geo)
{
	static const char *const hints[] = { "device/preferred_erase_size",
					     "queue/discard_granularity" };
	uint64_t bytes;

	geo->erase_block_bytes = EB_GUESS_BYTES;
	geo->eb_source = CARD_EB_GUESSED;
	if (!sysfs_is_mmc(diskdir))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(hints); i++) {
		if (io_read_u64(diskdir, hints[i], &bytes) < 0 || !eb_is_plausible(bytes))
			continue;
		geo->erase_block_bytes = (uint32_t)bytes;
		geo->eb_source = CARD_EB_REPORTED;
		return;
	}
}

/*
 * SD cards that damage other data when they are asked to discard, and that Linux asks all the same. They
 * are those with MMC_QUIRK_ERASE_BROKEN in Raspberry Pi's kernel. "Cards that must not be trimmed" of
 * docs/design/flash.md has the devices that Linux itself takes care of.
 */
static bool discard_harms(int diskdir)
{
	static const struct {
		const char *name, *manfid, *oemid;
	} cards[] = {
		/* Kingston: several erases of less than 64 sectors can cause corruption */
		{ "SD16G", "0x000041", "0x3432" },
		{ "SD32G", "0x000041", "0x3432" },
		{ "SD64G", "0x000041", "0x3432" },
		/* Integral, controllers of Phison: an erase destroys flash blocks nearby */
		{ "SD64G", "0x000027", "0x5048" },
		{ "SD128", "0x000027", "0x5048" },
		{ "SD256", "0x000027", "0x5048" },
		{ "SD512", "0x000027", "0x5048" },
	};
	char name[32], manfid[32], oemid[32];

	if (!sysfs_is_mmc(diskdir) ||
	    io_read_text(diskdir, "device/name", name, sizeof(name)) <= 0 ||
	    io_read_text(diskdir, "device/manfid", manfid, sizeof(manfid)) <= 0 ||
	    io_read_text(diskdir, "device/oemid", oemid, sizeof(oemid)) <= 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(cards); i++)
		if (!strcmp(name, cards[i].name) && !strcmp(manfid, cards[i].manfid) &&
		    !strcmp(oemid, cards[i].oemid))
			return true;
	return false;
}

static void find_discard(int diskdir, struct card_geometry *geo)
{
	uint64_t max_bytes, bytes;

	geo->discard_bytes = 0;
	if (!discard_harms(diskdir) &&
	    io_read_u64(diskdir, "queue/discard_max_bytes", &max_bytes) == 0 && max_bytes &&
	    io_read_u64(diskdir, "queue/discard_granularity", &bytes) == 0)
		geo->discard_bytes = max_u64(bytes, SECTOR_BYTES);
}

/* The serial number of an ATA disk is at the end of its wwid. A name that is too long is cut, but
 * its CRC keeps it unique. */
static void find_identity(int diskdir, struct card_geometry *geo)
{
	static const char *const names[] = { "device/cid",  "device/serial", "serial",
					     "device/wwid", "wwid",	     "dm/uuid" };
	char text[512];
	size_t len = 0;

	geo->identity[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(names) && !len; i++) {
		int r = io_read_text(diskdir, names[i], text, sizeof(text));

		len = r > 0 ? (size_t)r : 0;
	}
	for (size_t i = 0; i < len; i++)
		if (!isprint((unsigned char)text[i]))
			text[i] = '_';
	if (len < sizeof(geo->identity))
		memcpy(geo->identity, text, len + (len > 0));
	else
		snprintf(geo->identity, sizeof(geo->identity), "%.54s#%08x", text,
			 crc32c(0, text, len));
}

/* -errno: no disk */
static int open_disk(int devdir, bool is_partition)
{
	int fd = openat(devdir, is_partition ? ".." : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static bool is_of_partition(int devdir)
{
	return faccessat(devdir, "partition", F_OK, 0) == 0;
}

/* Of the identification "t10.ATA     MODEL SERIAL": the model alone, which has 40 characters. */
static int ata_model(int diskdir, char *ret, size_t size_bytes)
{
	static const char vendor[] = "t10.ATA     ";
	char text[256];
	int r = io_read_text(diskdir, "device/wwid", text, sizeof(text));
	size_t len;

	if (r <= 0 || strncmp(text, vendor, strlen(vendor)) != 0)
		return -ENOENT;
	snprintf(ret, size_bytes, "%.40s", text + strlen(vendor));
	len = strlen(ret);
	while (len && ret[len - 1] == ' ')
		ret[--len] = '\0';
	return len ? 0 : -ENOENT;
}

void sysfs_model(int devdir, char *ret, size_t size_bytes)
{
	_cleanup_close_ int diskdir = open_disk(devdir, is_of_partition(devdir));
	char text[256] = "";

	if (diskdir >= 0 && io_read_text(diskdir, "device/name", text, sizeof(text)) <= 0 &&
	    ata_model(diskdir, text, sizeof(text)) < 0 &&
	    io_read_text(diskdir, "device/model", text, sizeof(text)) <= 0)
		text[0] = '\0';
	snprintf(ret, size_bytes, "%s", text);
	clean_text(ret);
}

const char *sysfs_layer(int devdir)
{
	_cleanup_close_ int diskdir = open_disk(devdir, is_of_partition(devdir));
	char text[256] = "";

	if (diskdir < 0)
		return NULL;
	if (faccessat(diskdir, "dm", F_OK, 0) < 0)
		return faccessat(diskdir, "md", F_OK, 0) == 0 ? "RAID (md)" : NULL;
	(void)!io_read_text(diskdir, "dm/uuid", text, sizeof(text));
	return !strncmp(text, "CRYPT-", 6) ? "LUKS (dm-crypt)"
	       : !strncmp(text, "LVM-", 4) ? "LVM"
					   : "the device mapper";
}

int sysfs_geometry(int devdir, struct card_geometry *geo)
{
	_cleanup_close_ int diskdir = -1;
	bool is_partition = is_of_partition(devdir);
	uint64_t start_sectors = 0;

	if (is_partition && (io_read_u64(devdir, "start", &start_sectors) < 0 ||
			     start_sectors > UINT64_MAX / SECTOR_BYTES))
		return -EINVAL;
	diskdir = open_disk(devdir, is_partition);
	if (diskdir < 0)
		return diskdir;
	geo->disk_off_bytes = start_sectors * SECTOR_BYTES;
	find_erase_block(diskdir, geo);
	find_discard(diskdir, geo);
	find_identity(diskdir, geo);
	return 0;
}

int sysfs_open_stat(int devdir)
{
	const char *iostats = faccessat(devdir, "partition", F_OK, 0) == 0 ? "../queue/iostats"
									   : "queue/iostats";
	uint64_t on;
	int fd;

	if (io_read_u64(devdir, iostats, &on) == 0 && !on)
		return -ENOTSUP;
	fd = openat(devdir, "stat", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -ENOTSUP : fd;
}

/* Fields of Documentation/block/stat.rst, counted from 0; sectors of 512 bytes. Discards came
 * with 4.18, flushes with 5.5. */
int sysfs_counters(int stat_fd, struct card_counters *ret)
{
	enum {
		READ_IOS = 0,
		WRITE_IOS = 4,
		WRITE_SECTORS = 6,
		DISCARD_IOS = 11,
		DISCARD_SECTORS = 13,
		FLUSHES = 15
	};
	char text[512], *p = text, *end;
	uint64_t v[FLUSHES + 1] = { 0 };
	size_t fields = 0;
	ssize_t n;

	do
		n = pread(stat_fd, text, sizeof(text) - 1, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	text[n] = '\0';
	for (; fields < ARRAY_SIZE(v); fields++, p = end) {
		v[fields] = strtoull(p, &end, 10);
		if (end == p)
			break;
	}
	if (fields <= WRITE_SECTORS)
		return -EIO;
	*ret = (struct card_counters){ .read_ios = v[READ_IOS],
				       .write_ios = v[WRITE_IOS],
				       .written_bytes = v[WRITE_SECTORS] * SECTOR_BYTES,
				       .discard_ios = v[DISCARD_IOS],
				       .discarded_bytes = v[DISCARD_SECTORS] * SECTOR_BYTES,
				       .flushes = v[FLUSHES] };
	return 0;
}
