/* SPDX-License-Identifier: MIT */
/*
 * What the processes of one volume share although they may be of different versions: a worker takes over
 * from one of another version after cowctl upgrade, and the parent stays as it is.
 */
#ifndef COWFS_BASE_LAYOUT_H
#define COWFS_BASE_LAYOUT_H

/*
 * Raise it when one of these changes, also in meaning:
 *	- the descriptors that the parent keeps, and their order (daemon/cowfs.c, daemon/supervisor.h)
 *	- struct daemon_kept, struct volume_kept and what they consist of
 *	- the record of the stack, names and sizes of files and maps of generations
 *	  (ram/store.c, ram/generation.c)
 *	- the two maps of volume/diverged.c
 *	- what the kernel was told once: sizes of requests and the inode of FUSE (export/fuse.c)
 *	- the messages of parent, worker and spare (daemon/supervisor.c, daemon/spare.h)
 *	- the descriptors and the option that a new spare gets (daemon/upgrade.h)
 */
#ifndef SHARED_LAYOUT /* a test sets another one */
#define SHARED_LAYOUT 15u
#endif

/* A reminder where such a structure is defined; other machines have other sizes. */
#if defined(__x86_64__)
#define SHARED_BYTES(type, bytes)                                                                  \
	_Static_assert(sizeof(type) == (bytes), "changed: raise SHARED_LAYOUT, base/layout.h")
#else
#define SHARED_BYTES(type, bytes) _Static_assert(sizeof(type), "")
#endif

#endif
