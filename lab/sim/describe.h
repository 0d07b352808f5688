/* SPDX-License-Identifier: MIT */
/* A profile for people: `cowfs-cardsim show`. */
#ifndef COWFS_SIM_DESCRIBE_H
#define COWFS_SIM_DESCRIBE_H

#include "sim/profile.h"

/* from: "printed", "measured: ...", "derived: ...", "assumed: ...", "not determined: ..." */
typedef bool profile_describe_fn(void *ctx, const char *key, const char *value, const char *from);

/* Each key as its file has it, with the origin of the value, and what is derived from others. Ends when each returns false. */
void profile_describe(const struct flash_profiles *ps, size_t i, profile_describe_fn *each,
		      void *ctx);

#endif
