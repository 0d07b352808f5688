/* SPDX-License-Identifier: MIT */
/* mount -o: which options are cowfs's own, and which are for the file system on the volume. */
#ifndef COWFS_CONFIG_MNTOPTS_H
#define COWFS_CONFIG_MNTOPTS_H

#include "config/volopt.h"

#define MNTOPTS_BYTES 4096

struct mntopts {
	struct volopts vol;	  /* texts are in own */
	char own[MNTOPTS_BYTES];  /* zero-terminated texts, one after another */
	char rest[MNTOPTS_BYTES]; /* for mount(8), with commas between */
	size_t own_bytes;
	bool readonly, remount;
	bool discard; /* somebody has decided: discard, nodiscard, discard=... */
};

/* Adds the options of one -o. *m starts as zeros and must not be copied. Of an option that is given
 * twice the last one counts. -EINVAL with a sentence in why. */
int mntopts_add(struct mntopts *m, const char *text, char *why, size_t why_bytes) MUST_CHECK;
/* One more for mount(8). -E2BIG */
int mntopts_pass(struct mntopts *m, const char *option) MUST_CHECK;

#endif
