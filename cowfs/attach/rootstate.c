/* SPDX-License-Identifier: MIT */
#include "attach/rootstate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clean.h"
#include "base/io.h"
#include "config/conf.h"
#include "wire/rundir.h"

#define ROOT_FILE "root.%s"

static const char *const words[] = { "", "on", "off", "failed", "bypassed", "unconfigured" };

const char *rootstate_word(enum root_state s)
{
	return words[s];
}

static int write_file(const char *what, const char *text)
{
	char file[64];

	snprintf(file, sizeof(file), ROOT_FILE, what);
	return rundir_write(file, text);
}

static bool has_reason(enum root_state s)
{
	return s == ROOT_FAILED || s == ROOT_BYPASSED;
}

int rootstate_write(enum root_state s, const char *device, const char *mount_options,
		    const char *reason)
{
	char text[PATH_MAX + 1024], path[PATH_MAX];
	int e = 0;

	if (mkdir(rundir_path(), 0755) == 0)
		(void)chmod(rundir_path(), 0755);
	else if (errno != EEXIST)
		return -errno;
	for (enum root_state old = ROOT_FAILED; old <= ROOT_BYPASSED; old++)
		if (old != s && unlink(rundir_file(path, ROOT_FILE, words[old])) < 0 &&
		    errno != ENOENT)
			return -errno;
	if (has_reason(s)) {
		/*
		 * one line each, whatever the texts contain: the initramfs mounts with the third
		 * line
		 */
		snprintf(text, sizeof(text), "%s\ndevice=%s\n%s%s%s", CLEAN(reason), CLEAN(device),
			 mount_options ? "mount_options=" : "", mount_options ? mount_options : "",
			 mount_options ? "\n" : "");
		e = write_file(words[s], text);
	}
	if (e < 0)
		return e;
	snprintf(text, sizeof(text), "%s\n", words[s]);
	return write_file("state", text);
}

/* cowctl setup was cut short, or its initramfs is not the one that booted. .enabled: it has run since the boot. */
static bool should_be_on(void)
{
	char run[PATH_MAX], why[512];
	struct conf *c;
	bool should;

	if (access(rundir_file(run, ROOT_NAME "/control"), F_OK) == 0 ||
	    access(rundir_file(run, ".enabled"), F_OK) == 0 || conf_load(&c, why, sizeof(why)) < 0)
		return false;
	should = conf_has_root(c) && !strcmp(conf_root_text(c, ROOTOPT_ENABLED), "yes");
	conf_free(c);
	return should;
}

enum root_state rootstate_read(char *why, size_t why_bytes)
{
	char text[1024], path[PATH_MAX];
	enum root_state s = ROOT_UNCONFIGURED;

	*why = '\0';
	if (io_read_text(AT_FDCWD, rundir_file(path, ROOT_FILE, "state"), text, sizeof(text)) < 0)
		*text = '\0';
	while (s > ROOT_UNKNOWN && strcmp(text, words[s]))
		s--;
	if (!has_reason(s) && s != ROOT_ON && should_be_on()) {
		snprintf(
			why, why_bytes,
			"cowfs.conf enables it, but the initramfs of this boot does not: run cowctl setup again");
		return ROOT_BYPASSED;
	}
	if (has_reason(s) &&
	    io_read_text(AT_FDCWD, rundir_file(path, ROOT_FILE, words[s]), text, sizeof(text)) > 0)
		snprintf(why, why_bytes, "%.*s", (int)strcspn(text, "\n"), text);
	clean_text(why);
	return s;
}

int rootstate_link(const char *loop)
{
	const char *dev = secure_getenv("COWFS_DEVDIR"), *slash = strrchr(loop, '/');
	char dir[PATH_MAX - 16], path[PATH_MAX], target[64];

	snprintf(dir, sizeof(dir), "%s/cowfs", dev && *dev ? dev : "/dev");
	snprintf(path, sizeof(path),
		 "%s/"
		 "root",
		 dir);
	snprintf(target, sizeof(target), "../%s", slash ? slash + 1 : loop);
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return -errno;
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	return symlink(target, path) < 0 ? -errno : 0;
}

void rootstate_note(const char *what, const char *text)
{
	(void)!write_file(what, text);
}

bool rootstate_noted(const char *what)
{
	char path[PATH_MAX];

	return access(rundir_file(path, ROOT_FILE, what), F_OK) == 0;
}
