/* SPDX-License-Identifier: MIT */
#include "wear/card_life.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "card/sysfs.h"

/* sysfs directory of the whole disk, or -errno */
static int open_disk(const char *device)
{
	const char *sysfs = getenv("COWFS_SYSFS");
	_cleanup_close_ int dir = -1;
	char path[512];
	struct stat st;

	if (stat(device, &st) < 0)
		return -errno;
	if (!S_ISBLK(st.st_mode))
		return -ENOTBLK;
	snprintf(path, sizeof(path), "%s/dev/block/%u:%u", sysfs ? sysfs : "/sys",
		 major(st.st_rdev), minor(st.st_rdev));
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	if (faccessat(dir, "partition", F_OK, 0) == 0) {
		int up = openat(dir, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

		return up < 0 ? -errno : up;
	}
	return steal_fd(&dir);
}

static const char *kind_of(int dir)
{
	char text[16];

	if (dir < 0)
		return dir == -ENOTBLK ? "file" : "unknown";
	if (sysfs_is_mmc(dir))
		return io_read_text(dir, "device/type", text, sizeof(text)) > 0 &&
				       !strcmp(text, "SD")
			       ? "sd"
			       : "emmc";
	return faccessat(dir, "device", F_OK, 0) == 0 ? "disk" : "virtual";
}

static void add_text(struct json_object *o, const char *key, const char *text)
{
	json_object_object_add(o, key, json_object_new_string(text));
}

/* A file of sysfs as it is, if it is there. */
static bool add_file(struct json_object *o, const char *key, int dir, const char *file)
{
	char text[128];

	if (io_read_text(dir, file, text, sizeof(text)) <= 0)
		return false;
	add_text(o, key, text);
	return true;
}

static void add_node(struct json_object *o, int dir)
{
	char text[1024], node[128];
	const char *name = io_read_text(dir, "uevent", text, sizeof(text)) > 0
				   ? strstr(text, "DEVNAME=")
				   : NULL;

	if (!name)
		return;
	name += strlen("DEVNAME=");
	snprintf(node, sizeof(node), "/dev/%.*s", (int)strcspn(name, "\n"), name);
	add_text(o, "device", node);
}

/* JEDEC: for two kinds of flash, in steps of a tenth of the rated life. 0: not defined, 11: beyond it. */
static void add_life_used(struct json_object *o, const char *life_time)
{
	unsigned a, b;

	if (sscanf(life_time, "%x %x", &a, &b) == 2 && a <= 11 && b <= 11 && (a || b))
		json_object_object_add(o, "life_used_percent",
				       json_object_new_uint64(10 * (a > b ? a : b)));
}

struct json_object *card_life_disk(const char *device)
{
	struct json_object *o = json_object_new_object();
	_cleanup_close_ int dir = open_disk(device);
	uint64_t sectors;

	if (!o)
		return NULL;
	add_text(o, "kind", kind_of(dir));
	if (dir < 0)
		return o;
	add_node(o, dir);
	if (io_read_u64(dir, "size", &sectors) == 0)
		json_object_object_add(o, "bytes", json_object_new_uint64(sectors * 512));
	if (!add_file(o, "model", dir, "device/name"))
		add_file(o, "model", dir, "device/model");
	if (sysfs_is_mmc(dir)) {
		if (add_file(o, "life_time", dir, "device/life_time"))
			add_life_used(
				o, json_object_get_string(json_object_object_get(o, "life_time")));
		add_file(o, "pre_eol_info", dir, "device/pre_eol_info");
	}
	return o;
}

uint64_t card_life_bytes(const char *device)
{
	struct json_object *disk = card_life_disk(device);
	uint64_t bytes = json_object_get_uint64(json_object_object_get(disk, "bytes"));

	json_object_put(disk);
	return bytes;
}

static const struct flash_kind kinds[] = {
	{ "unknown", 500, 5000 }, { "slc", 30000, 100000 }, { "mlc", 1500, 5000 },
	{ "tlc", 500, 3000 },	  { "qlc", 100, 1000 },
};

const struct flash_kind *flash_kind_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i].name, name))
			return &kinds[i];
	return NULL;
}

void card_life_share(const struct flash_kind *flash, double capacity_bytes,
		     double erase_block_bytes, double bytes, double erase_blocks, double *ret_low,
		     double *ret_high)
{
	double erased = erase_blocks * erase_block_bytes;

	*ret_low = bytes / (flash->cycles_high * capacity_bytes);
	*ret_high = (bytes > erased ? bytes : erased) / (flash->cycles_low * capacity_bytes);
}
