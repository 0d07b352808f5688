/* SPDX-License-Identifier: MIT */
/*
 * A disk is detached only if it has the label of this volume and a read of it fails, because another
 * volume may have its number by now.
 *
 * The card stays read-only: its log may hold blocks that are not checkpointed.
 */
#include "attach/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <linux/fs.h>

#include "base/io.h"
#include "base/mounts.h"
#include "base/msg.h"
#include "base/program.h"
#include "export/bdi.h"
#include "export/transport.h"

#define DYING_NS (5 * 1000000000ull)
#define DYING_POLL_US 20000
#define ANSWER_MS 10000

static bool is_readonly(const char *device)
{
	dev_t dev = mounts_device_number(device);
	char path[64], text[8];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/ro", major(dev), minor(dev));
	return dev && io_read_text(AT_FDCWD, path, text, sizeof(text)) > 0 && text[0] == '1';
}

static void check_label(void *label)
{
	(void)!transport_left_check(0, label);
}

/* Does a read of the loop device hang? Then a process still holds the connection, or the parent is stopped. */
static bool hangs(const char *loop, char *label)
{
	_cleanup_close_ int fd = open(loop, O_RDONLY | O_DIRECT | O_CLOEXEC);

	return fd >= 0 && transport_left_label(fd, label) == 0 &&
	       !program_apart(fd, check_label, label, ANSWER_MS);
}

/*
 * The device is detached with its last user. A new volume of the same name makes cowfs forget the
 * device.
 */
static void detach_later(const char *loop, const char *label)
{
	int r = transport_left_detach(loop, label, true);

	if (r < 0 && r != -ESRCH)
		msg(MSG_WARN, "%s: stays until losetup -d: %s", loop, strerrordesc_np(-r));
}

/* For a loop device that is no longer in use: its limit would slow down the next user. */
static void forget_bound(const char *loop)
{
	struct stat st;

	if (stat(loop, &st) == 0 && S_ISBLK(st.st_mode))
		bdi_limit_forget(st.st_rdev);
}

static void add(struct leftover_volume *d, const char *fmt, ...) PRINTF(2, 3);
static void add(struct leftover_volume *d, const char *fmt, ...)
{
	size_t len = strlen(d->text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(d->text + len, sizeof(d->text) - len, fmt, ap);
	va_end(ap);
}

static void describe(struct leftover_volume *d, uint64_t generation, const char *device,
		     const char *loop, bool detached, bool left)
{
	pid_t stopped = client_stopped(d->name);
	char where[PATH_MAX];

	add(d,
	    "its daemon died: uncommitted changes are lost, generation %llu or a newer one is on the card",
	    (unsigned long long)generation);
	if (stopped) {
		add(d,
		    "; its parent, process %d, is stopped, and I/O on %s waits for it: kill -CONT %d",
		    stopped, loop, stopped);
		return;
	}
	if (d->hangs) {
		add(d,
		    "; a process of it cannot end, and %s may hang: see cowfs(8), \"When the "
		    "daemon is killed\"",
		    loop);
		return;
	}
	if (detached)
		add(d, "; %s is detached now", loop);
	else if (left && mounts_device_is_on(NULL, loop, where))
		add(d,
		    "; %s returns I/O errors and is still mounted on %.200s: unmount it, then "
		    "run cowctl status",
		    loop, where);
	else if (left)
		add(d, "; %s returns I/O errors: once nothing uses it, run cowctl status as root",
		    loop);
	if (is_readonly(device))
		add(d, "; %s is still read-only: cowctl attach, or blockdev --setrw", device);
}

/* A killed daemon takes a moment to end. */
static int claim(struct rundir *ret, const char *name)
{
	uint64_t until_ns = now_ns() + DYING_NS;
	int r;

	while ((r = rundir_claim(ret, name)) == -EBUSY && now_ns() < until_ns)
		usleep(DYING_POLL_US);
	return r;
}

/* Nobody has lost anything by a start or an end that was cut. But a device must not be taken for one of a volume by its facts. */
static void clear_cut(void)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	size_t n = client_volumes_without_status(names);

	for (size_t i = 0; i < n; i++) {
		char label[RUNDIR_LABEL_BYTES];
		struct facts facts;
		struct rundir dir;
		const char *loop = facts.device[FACT_LOOP].path;

		if (rundir_claim(&dir, names[i]) < 0)
			continue; /* it goes on */
		client_facts(names[i], true, &facts);
		rundir_label(names[i], label);
		if (transport_left(loop) &&
		    (hangs(loop, label) || transport_left_detach(loop, label, false) == -EBUSY))
			rundir_leave(&dir);
		else
			rundir_release(&dir);
	}
}

static size_t find(struct leftover_volume list[CLIENT_VOLUMES], bool clear, bool attaching)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	size_t n = client_dead_volumes(names);

	if (clear)
		clear_cut();
	for (size_t i = 0; i < n; i++) {
		struct facts facts;
		const char *loop = facts.device[FACT_LOOP].path;
		char label[RUNDIR_LABEL_BYTES];
		struct rundir dir;
		bool detached = false, left;
		uint64_t generation = client_left_generation(names[i]);
		int e = clear ? claim(&dir, names[i]) : -EPERM;

		client_facts(names[i], true, &facts);
		left = transport_left(loop);
		list[i] = (struct leftover_volume){ 0 };
		rundir_label(names[i], label);
		memcpy(list[i].name, names[i], sizeof(list[i].name));
		snprintf(list[i].loop, sizeof(list[i].loop), "%.63s", loop);
		if (e == 0 && left && (client_stopped(names[i]) || hangs(loop, label))) {
			rundir_leave(&dir);
			e = -EBUSY;
		}
		list[i].hangs = e == -EBUSY;
		/* holds the lock, so that no daemon starts with this name meanwhile */
		if (e == 0) {
			if (left) {
				int r;

				r = transport_left_detach(loop, label, false);
				detached = r == 0;
				left = r < 0 && r != -ESRCH && r != -ENXIO;
				if (r == -EBUSY && attaching)
					detach_later(loop, label);
			}
			if (!transport_left(loop))
				forget_bound(loop);
			if (left)
				rundir_leave(&dir);
			else
				rundir_release(&dir);
		}
		describe(&list[i], generation, facts.device[FACT_DEVICE].path, loop, detached,
			 left);
	}
	return n;
}

size_t leftover_volumes(struct leftover_volume list[CLIENT_VOLUMES])
{
	return find(list, false, false);
}

size_t leftover_clear(struct leftover_volume list[CLIENT_VOLUMES])
{
	return find(list, geteuid() == 0, false);
}

void leftover_clear_and_tell(bool attaching)
{
	struct leftover_volume list[CLIENT_VOLUMES];
	size_t n = find(list, geteuid() == 0, attaching);

	for (size_t i = 0; i < n; i++)
		msg(MSG_WARN, "volume %s: %s", list[i].name, list[i].text);
}
