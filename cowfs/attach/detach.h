/* SPDX-License-Identifier: MIT */
/* The end of a volume that runs. */
#ifndef COWFS_ATTACH_DETACH_H
#define COWFS_ATTACH_DETACH_H

#include "wire/client.h"

/*
 * Detaches a volume, with progress on a terminal, and waits until its device is free; changes are
 * committed or dropped as its on-detach says, or dropped. While it is still in use it is asked
 * again for patience_ms: the last user may be about to leave. EXIT_OK, or *err (-EBUSY in use).
 */
enum exit_code detach_volume(const char *name, bool discard, unsigned patience_ms,
			     struct failure *err) MUST_CHECK;

#endif
