/* SPDX-License-Identifier: MIT */
#include "wire/facts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/backing.h"
#include "base/io.h"

#define TEXT_BYTES 1024
#define FACT_SUPERVISOR "supervisor %d"

const char *const fact_names[FACT_N] = { "device", "log_device", "loop",
					 "name",   "mountpoint", "lower" };

void facts_set(struct facts *f, enum fact which, const char *path, dev_t rdev, uint64_t bytes)
{
	struct fact_device *d = &f->device[which];

	d->rdev = path ? rdev : 0;
	d->bytes = bytes;
	if (snprintf(d->path, sizeof(d->path), "%s", path ? path : "") >= (int)sizeof(d->path) ||
	    strchr(d->path, '\n'))
		snprintf(d->path, sizeof(d->path), "/dev/block/%u:%u", major(rdev), minor(rdev));
}

int facts_write(const struct rundir *dir, const struct facts *f)
{
	char text[TEXT_BYTES];
	size_t len = (size_t)sprintf(text, FACT_SUPERVISOR "\n", f->supervisor);

	for (unsigned i = 0; i < FACT_DEVICES; i++) {
		const struct fact_device *d = &f->device[i];

		if (d->rdev)
			len += (size_t)snprintf(text + len, sizeof(text) - len,
						"%s %u:%u %llu %s\n", fact_names[i], major(d->rdev),
						minor(d->rdev), (unsigned long long)d->bytes,
						d->path);
	}
	return rundir_publish(dir, RUNDIR_FACTS, text, len);
}

static void take_line(struct facts *f, const char *line)
{
	(void)sscanf(line, FACT_SUPERVISOR, &f->supervisor);
	for (unsigned i = 0; i < FACT_DEVICES; i++) {
		size_t len = strlen(fact_names[i]);
		unsigned dev_major, dev_minor;
		unsigned long long bytes;
		int at = 0;

		if (!strncmp(line, fact_names[i], len) && line[len] == ' ' &&
		    sscanf(line + len, " %u:%u %llu %n", &dev_major, &dev_minor, &bytes, &at) == 3)
			facts_set(f, i, line + len + at, makedev(dev_major, dev_minor), bytes);
	}
}

int facts_read(int run_fd, const char *name, bool left, struct facts *ret)
{
	char text[TEXT_BYTES], path[RUNDIR_NAME_BYTES + 8], label[RUNDIR_LABEL_BYTES], *rest = text;
	struct fact_device *loop = &ret->device[FACT_LOOP];
	int r;

	memset(ret, 0, sizeof(*ret));
	snprintf(path, sizeof(path), "%s/%s", name, RUNDIR_FACTS);
	r = io_read_text(run_fd, path, text, sizeof(text));
	for (char *line; r > 0 && (line = strsep(&rest, "\n"));)
		take_line(ret, line);
	rundir_label(name, label);
	if (!left && loop->rdev && !backing_is(-1, loop->rdev, label))
		facts_set(ret, FACT_LOOP, NULL, 0, 0);
	return r < 0 ? r : 0;
}

bool facts_is(const struct fact_device *d, const char *path)
{
	struct stat st;

	return *d->path && (stat(path, &st) == 0 && S_ISBLK(st.st_mode) ? st.st_rdev == d->rdev
									: !strcmp(path, d->path));
}
