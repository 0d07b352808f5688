/* SPDX-License-Identifier: MIT */
/* What the mount helpers share: programs that they run, mounts of a device, the end of a volume. */
#ifndef COWFS_ATTACH_DETACH_H
#define COWFS_ATTACH_DETACH_H

#include <limits.h>

#include "wire/client.h"

/* Runs a program and waits. Its exit status; 127 it cannot be run, 128 + n ended by a signal. */
int leave_run(const char *const argv[]) MUST_CHECK;
/* What it says goes to out_fd; -1: to where ours goes. */
int leave_run_into(const char *const argv[], int out_fd) MUST_CHECK;

/* Does what was mounted last on dir show this block device? dir NULL: is it mounted anywhere; ret_dir
 * (PATH_MAX, may be NULL) gets where. By device numbers, never by what mounts are named. */
bool leave_is_mounted(const char *dir, const char *device, char *ret_dir);
/* The block device of what was mounted last on dir, "/dev/..."; false: nothing is mounted there, or
 * no block device. */
bool leave_device_on(const char *dir, char ret_device[PATH_MAX]);

/*
 * Detaches a volume, with progress on a terminal, and waits until its device is free; changes are
 * committed or dropped as its on-detach says, or dropped. While it is still in use it is asked
 * again for patience_ms: the last user may be about to leave. EXIT_OK, or *err (-EBUSY in use).
 */
enum exit_code leave_volume(const char *name, bool discard, unsigned patience_ms,
			    struct client_error *err) MUST_CHECK;

#endif
