/* SPDX-License-Identifier: MIT */
/* Detaches a running volume. */
#ifndef COWFS_ATTACH_DETACH_H
#define COWFS_ATTACH_DETACH_H

#include "wire/client.h"

/*
 * Detaches a volume, with progress on a terminal, and waits until its device is free. Changes are
 * committed or discarded as its on-detach option says; with discard they are discarded. While the
 * volume is in use, the request is repeated for patience_ms, because the last user may be about to
 * end. EXIT_OK, or *err (-EBUSY in use).
 */
enum exit_code detach_volume(const char *name, bool discard, unsigned patience_ms,
			     struct failure *err) MUST_CHECK;

#endif
