/* SPDX-License-Identifier: MIT */
/* cowctl card: the devices that may be meant, each with its next command; of one what prepare --dry-run prints, which is no failure
 * if there is a next command. Reads only. */
#include "cli/cmd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mounts.h"
#include "base/parse.h"
#include "base/program.h"
#include "card/disk.h"
#include "fs/fs_ops.h"
#include "offline/offline.h"

#define SECTOR_BYTES 512u
#define ANSWER_MS 3000

/* Not: disks without a card, RAM, optical drives, disks of cowfs itself. */
static bool is_meant(const struct dirent *e, uint64_t *ret_bytes)
{
	static const char *const others[] = { "ram", "zram", "sr", "fd" };
	char path[PATH_MAX], file[16];
	uint64_t sectors;

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (!strncmp(e->d_name, others[i], strlen(others[i])))
			return false;
	snprintf(path, sizeof(path), "/sys/class/block/%s/loop/backing_file", e->d_name);
	if (io_read_text(AT_FDCWD, path, file, sizeof(file)) > 0 && !strncmp(file, "/cowfs", 6))
		return false;
	snprintf(path, sizeof(path), "/sys/class/block/%s/size", e->d_name);
	if (io_read_u64(AT_FDCWD, path, &sectors) < 0)
		return false;
	*ret_bytes = sectors * SECTOR_BYTES;
	return sectors;
}

static void read_a_block(void *device)
{
	_Alignas(COW_BLK_BYTES) static uint8_t block[COW_BLK_BYTES];
	_cleanup_close_ int fd = open(device, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK);

	(void)!pread(fd, block, sizeof(block), 0);
}

static struct json_object *look(const struct options *o, char *device, uint64_t bytes)
{
	const struct format_options opt = { .device = device, .dry_run = true };
	struct json_object *row = json_object_new_object(), *steps;
	char where[PATH_MAX] = "", why[PATH_MAX + 16];
	struct format_report r = { 0 };
	struct failure fail;
	/* one dying card is no reason to show none; to open it may take as long as to read it */
	bool is_well = program_apart(-1, read_a_block, device, ANSWER_MS);
	int e = is_well ? offline_format(&opt, &r, &fail) : -ETIMEDOUT;

	(void)mounts_device_is_on(NULL, device, where);
	steps = prepare_steps(o, &opt, e, &r);
	snprintf(why, sizeof(why),
		 is_well ? "cowctl card %s" /* which says why not */ : "# %s does not answer",
		 device);
	json_object_object_add(row, "device", json_object_new_string(device));
	json_object_object_add(row, "bytes", json_object_new_uint64(bytes));
	json_object_object_add(row, "fs_type", json_object_new_string(r.fs.type));
	json_object_object_add(row, "mountpoint", json_object_new_string(where));
	json_object_object_add(row, "next",
			       json_object_array_length(steps)
				       ? json_object_get(json_object_array_get_idx(steps, 0))
				       : json_object_new_string(why));
	json_object_put(steps);
	return row;
}

static void print_row(struct json_object *row)
{
	const char *where = json_text(row, "mountpoint");

	printf("%-16s %10s  %-6s %s%s%s\n", json_text(row, "device"),
	       FORMAT_SIZE(json_u64(row, "bytes")), json_text(row, "fs_type"),
	       json_text(row, "next"), *where ? "   # mounted on " : "", where);
}

static int list(const struct options *o)
{
	struct json_object *answer = json_answer(true), *rows = json_object_new_array();
	struct disk_part part[DISK_PARTS_MAX];
	struct dirent **e = NULL;
	int n = scandir("/sys/class/block", &e, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		char device[PATH_MAX] = "/dev/", *p;
		size_t parts = 0;
		uint64_t bytes;

		strcat(device, e[i]->d_name);
		while ((p = strchr(device, '!')))
			*p = '/';
		/* of a disk with partitions only those */
		if (e[i]->d_name[0] != '.' && is_meant(e[i], &bytes) &&
		    (disk_parts(device, part, &parts) < 0 || !parts))
			json_object_array_add(rows, look(o, device, bytes));
		free(e[i]);
	}
	free(e);
	json_object_object_add(answer, "devices", rows);
	if (has_option(o, OPT_JSON))
		json_print(answer);
	for (size_t i = 0; !has_option(o, OPT_JSON) && i < json_object_array_length(rows); i++)
		print_row(json_object_array_get_idx(rows, i));
	json_object_put(answer);
	return EXIT_OK;
}

int cmd_card(const struct options *o)
{
	char device[PATH_MAX];
	struct options one = *o;
	struct stat st;

	if (!o->operands)
		return list(o);
	one.value[OPT_DRY_RUN] = "";
	if (stat(o->operand[0], &st) == 0 && S_ISDIR(st.st_mode)) {
		if (!mounts_device_on(o->operand[0], device))
			return cmd_fail(o, EXIT_FAILED, -ENOTBLK,
					"%s: no device is mounted there: name a device, an image "
					"file or a mount point",
					o->operand[0]);
		one.operand[0] = device;
	}
	return prepare_inform(&one);
}
