/* SPDX-License-Identifier: MIT */
/*
 * /run/cowfs/NAME of a running daemon: control (socket, 0600), facts, status.json and pid (0644), lock
 * (0600). The daemon holds the lock for life: a second daemon of the same name is refused, and the
 * files of a dead one are taken over. After the claim all access goes through the kept
 * descriptors.
 */
#ifndef COWFS_WIRE_RUNDIR_H
#define COWFS_WIRE_RUNDIR_H

#include <limits.h>
#include <sys/stat.h>

#include "base/util.h"

#define RUNDIR_SOCKET "control"
#define RUNDIR_STATUS "status.json"
#define RUNDIR_FACTS "facts" /* facts.h */
#define RUNDIR_PID "pid"
#define RUNDIR_LOCK "lock"
#define RUNDIR_NAME_BYTES 64  /* with the terminator */
#define RUNDIR_LABEL_BYTES 64 /* of the kernel */
#define ROOT_NAME "root"      /* the volume that is the root of the system */
/* in /run/cowfs: the root is composed over this volume (attach/compose.h); begins with its device number */
#define RUNDIR_COMPOSE "root.compose"

/* /run/cowfs, or COWFS_RUNDIR of the environment in tests (not when set-uid) */
const char *rundir_path(void);
/* The path of a file in it. Returns buf. */
const char *rundir_file(char buf[PATH_MAX], const char *fmt, ...) PRINTF(2, 3);
/* Replaces a file in it atomically: readers see the old or the new content. */
int rundir_write(const char *file, const char *text) MUST_CHECK;
/* [A-Za-z0-9._-]+, no leading dot, at most 63 */
bool rundir_name_valid(const char *name);
#define RUNDIR_NO_NAME                                                                             \
	"is not a valid volume name: letters, digits, '.', '_' and '-', at most 63, "              \
	"no leading dot"
/* "cowfs:NAME": what the volume's disk is called in the kernel */
void rundir_label(const char *name, char label[RUNDIR_LABEL_BYTES]);

struct rundir {
	int parent_fd, fd, lock_fd;
	char name[RUNDIR_NAME_BYTES];
};

/*
 * Claims the name. -EBUSY another daemon has it; -EINVAL bad name; otherwise the error of the
 * system.
 */
int rundir_claim(struct rundir *ret, const char *name) MUST_CHECK;
/* Replaces a file atomically: readers see the old or the new content. If there is no room for that, the old one gets a time that says so. */
int rundir_publish(const struct rundir *d, const char *file, const char *text,
		   size_t len_bytes) MUST_CHECK;
/* The same for the status. No bytes: there is none any more. */
int rundir_publish_status(const struct rundir *d, const char *text, size_t len_bytes) MUST_CHECK;
bool rundir_is_old(const struct stat *st);
/* The next pid needs no room: /run may be full. */
int rundir_publish_pid(const struct rundir *d, pid_t pid) MUST_CHECK;
/* Closes the descriptors and leaves the files in place. */
void rundir_leave(struct rundir *d);
/* Removes the files and the directory, and closes. */
void rundir_release(struct rundir *d);
#endif
