/* SPDX-License-Identifier: MIT */
#include "cli/boot_trial.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/clean.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "card/blockdev.h"
#include "config/conf.h"
#include "fs/fs_ops.h"
#include "log/log.h"
#include "offline/offline.h"

static bool read_name(int dir_fd, const char *path, char buf[TRIAL_NAME_BYTES])
{
	if (io_read_text(dir_fd, path, buf, TRIAL_NAME_BYTES) < 0)
		return false;
	buf[strcspn(buf, "\n")] = '\0';
	return *buf;
}

bool trial_name(char buf[TRIAL_NAME_BYTES])
{
	char path[PATH_MAX];
	const char *conf = conf_path(), *slash = strrchr(conf, '/');

	snprintf(path, sizeof(path), "%.*strial", slash ? (int)(slash + 1 - conf) : 0, conf);
	return read_name(AT_FDCWD, path, buf);
}

uint32_t trial_crc(const char *name)
{
	uint32_t crc = crc32c(0, name, strlen(name));

	return crc ? crc : 1;
}

/* Options of a mount that replays nothing, and of rootflags= the subvolume. */
static void mount_data(const struct fs_ops *ops, const char *cmdline, char *buf, size_t buf_bytes)
{
	const char *options = strchr(ops->readonly_options, ','),
		   *flags = strstr(cmdline, "rootflags="),
		   *subvol = flags ? strstr(flags, "subvol") : NULL;

	options = options ? options + 1 : "";
	if (subvol && subvol < flags + strcspn(flags, " \n") && ops->several_devices)
		snprintf(buf, buf_bytes, "%s,%.*s", options, (int)strcspn(subvol, ", \n"), subvol);
	else
		snprintf(buf, buf_bytes, "%s", options);
}

static bool read_there(const char *device, const char *type, const char *data,
		       char buf[TRIAL_NAME_BYTES])
{
	_cleanup_close_ int dir_fd = -1;
	char dir[PATH_MAX];
	bool there;

	snprintf(dir, sizeof(dir), "%s/base", rundir_path());
	(void)mkdir(rundir_path(), 0755);
	if ((mkdir(dir, 0700) < 0 && errno != EEXIST) ||
	    mount(device, dir, type, MS_RDONLY | MS_NODEV | MS_NOSUID | MS_NOEXEC, data) < 0)
		return false;
	dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	there = dir_fd >= 0 && read_name(dir_fd, "etc/cowfs/proven", buf);
	cleanup_closep(&dir_fd);
	(void)umount(dir);
	(void)rmdir(dir);
	return there;
}

static bool proven_on_base(const char *name, const char *device, const char *cmdline)
{
	char there[TRIAL_NAME_BYTES], data[PATH_MAX];
	struct fsinfo fs = { 0 };
	const struct fs_ops *ops;
	struct blk_reader r;
	struct card *card;

	if (blockdev_open(&card, device, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, NULL) < 0)
		return false;
	r = super_reader(card);
	ops = fs_ops(fsinfo_probe(&r, &fs) < 0 ? FS_UNKNOWN : fs.kind);
	card_close(card);
	mount_data(ops, cmdline, data, sizeof(data));
	for (size_t i = 0; i < ARRAY_SIZE(ops->names) && ops->names[i]; i++)
		if (read_there(device, ops->names[i], data, there))
			return !strcmp(there, name);
	return false;
}

bool trial_proven(const char *name, const char *device, const char *log_device, const char *cmdline)
{
	struct trial_image im = { .image = trial_crc(name) };
	struct failure fail;

	return offline_count_image(device, log_device, &im, &fail) == 0
		       ? im.what == TRIAL_NONE
		       : proven_on_base(name, device, cmdline);
}
