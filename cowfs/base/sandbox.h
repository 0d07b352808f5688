/* SPDX-License-Identifier: MIT */
/* How a process drops the privileges that it does not need. */
#ifndef COWFS_BASE_SANDBOX_H
#define COWFS_BASE_SANDBOX_H

#include <seccomp.h>

#include "base/util.h"

/*
 * A user for each volume, which all its workers are, and for each process that reads foreign content: a process of the same user
 * could send signals, or use up what the system counts for the user. The pid of the supervisor, or of the process, is added. Above
 * the ids that accounts, containers and user namespaces get.
 */
#define SANDBOX_READER_UID 0x7f000000u
#define SANDBOX_WORKER_UID 0x7f800000u

/*
 * Keeps the capabilities that are permitted and in the mask, and makes none inheritable; this also
 * drops ambient capabilities. Applies to the calling thread.
 */
int sandbox_capabilities(uint64_t keep) MUST_CHECK;

/*
 * Installs a filter of system calls for all threads of the process. rules fills it; calls that it
 * does not name get `others`. If log, the kernel logs refused calls. -errno of the kernel, of
 * libseccomp or of rules: no filter is in force. -ENOSYS: the kernel was built without filters.
 */
int sandbox_filter(uint32_t others, bool log, int (*rules)(scmp_filter_ctx filter, void *ctx),
		   void *ctx) MUST_CHECK;

/*
 * Landlock: from now on this thread, and those that it starts, open, create and remove files only below
 * the n folders, make no links to other folders, and reach no abstract socket and no process outside.
 * What is open already stays usable. Needs "no new privileges". -ENOSYS, -EOPNOTSUPP: the kernel has
 * no Landlock, or it is off.
 */
int sandbox_files(const int *dirfd, unsigned n) MUST_CHECK;

/*
 * A mount namespace in which nothing is mounted, for processes with /dev/fuse: the last process of a
 * namespace unmounts what is mounted there before it closes its files. A process that serves it would
 * wait for its own answers, and sync(2) of the machine for the process. Makes a thread. -errno: EINVAL in
 * an initramfs, whose namespace is the kernel's and never ends.
 */
int sandbox_no_mounts(void) MUST_CHECK;
/* The calling thread moves to it; the descriptor is closed. */
int sandbox_enter_mounts(int fd) MUST_CHECK;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANDBOX_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANDBOX_SANITIZED true
#endif
#endif
#ifndef SANDBOX_SANITIZED
#define SANDBOX_SANITIZED false
#endif

/*
 * For a process that reads foreign content, and has only the descriptors that it needs. Leaves it
 * without capabilities, new privileges and new descriptors, with limits, as a user that no other
 * process has unless keep_root, and with no system calls but those for memory and its own end, and
 * those of rules. Other calls return an error. Programs with a sanitizer have neither the filter nor
 * the limits of memory and descriptors. A kernel without filters is no error.
 */
int sandbox_enter(bool keep_root, uint64_t memory_bytes, unsigned cpu_s,
		  int (*rules)(scmp_filter_ctx filter, void *ctx), void *ctx) MUST_CHECK;

#endif
