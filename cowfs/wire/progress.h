/* SPDX-License-Identifier: MIT */
/* Shows one line on stderr, if that is a terminal, for work that takes longer than a second. */
#ifndef COWFS_WIRE_PROGRESS_H
#define COWFS_WIRE_PROGRESS_H

#include <json-c/json.h>

#include "base/util.h"

struct progress {
	bool on_terminal, shown;
	uint64_t start_ns;
	char phase[32];
	uint64_t phase_start_ns, phase_start_bytes;
};

void progress_start(struct progress *p);
/* progress: a struct progress */
void progress_show(void *progress, const char *phase, uint64_t done_bytes, uint64_t total_bytes);
void progress_end(struct progress *p);
/* A client_event; ctx is a struct progress. */
bool progress_event(void *ctx, struct json_object *event);

#endif
