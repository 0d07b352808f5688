/* SPDX-License-Identifier: MIT */
/* mount -o: separates the options of cowfs from those of the file system on the volume. */
#ifndef COWFS_CONFIG_MNTOPTS_H
#define COWFS_CONFIG_MNTOPTS_H

#include "config/volopt.h"

#define MNTOPTS_BYTES 4096

struct mntopts {
	struct volopts vol;	  /* its texts are in own */
	char own[MNTOPTS_BYTES];  /* zero-terminated texts, one after another */
	char rest[MNTOPTS_BYTES]; /* for mount(8), separated by commas */
	size_t own_bytes;
	bool readonly, remount;
	bool discard; /* the discard option was given: discard, nodiscard, discard=... */
	bool dioread; /* dioread_lock or dioread_nolock was given */
};

/*
 * Adds the options of one -o. *m starts as zeros and must not be copied. If an option is given
 * twice, the last one counts. Warns of an option that was removed. -EINVAL with a sentence in why.
 */
int mntopts_add(struct mntopts *m, const char *text, char *why, size_t why_bytes) MUST_CHECK;
/* Adds an option for mount(8). -E2BIG */
int mntopts_pass(struct mntopts *m, const char *option) MUST_CHECK;

#endif
