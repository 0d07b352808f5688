/* SPDX-License-Identifier: MIT */
#include "wire/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "wire/json.h"

#define SHOW_AFTER_NS 1000000000ull
#define BAR_CHARS 20u

void progress_start(struct progress *p)
{
	*p = (struct progress){ .on_terminal = isatty(STDERR_FILENO), .start_ns = now_ns() };
}

void progress_show(struct progress *p, const char *phase, uint64_t done_bytes, uint64_t total_bytes)
{
	uint64_t now = now_ns(),
		 percent = total_bytes ? min_u64(100, done_bytes * 100 / total_bytes) : 0;
	double seconds, rate = 0;
	char bar[BAR_CHARS + 1];

	if (!p->on_terminal)
		return;
	if (strcmp(phase, p->phase) || done_bytes < p->phase_start_bytes) {
		snprintf(p->phase, sizeof(p->phase), "%s", phase);
		p->phase_start_ns = now;
		p->phase_start_bytes = done_bytes;
	}
	if (now - p->start_ns < SHOW_AFTER_NS)
		return;
	seconds = (double)(now - p->phase_start_ns) / 1e9;
	if (seconds > 0.1)
		rate = (double)(done_bytes - p->phase_start_bytes) / 1e6 / seconds;
	memset(bar, '.', BAR_CHARS);
	memset(bar, '#', (size_t)(percent * BAR_CHARS / 100));
	bar[BAR_CHARS] = '\0';
	fprintf(stderr, "\r%-10s [%s] %3u %%  %.1f of %.1f MiB  %.1f MB/s\033[K", phase, bar,
		(unsigned)percent, (double)done_bytes / (double)MIB,
		(double)total_bytes / (double)MIB, rate);
	fflush(stderr);
	p->shown = true;
}

void progress_end(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = false;
}

void progress_event(void *ctx, struct json_object *event)
{
	bool waiting = !strcmp(json_text(event, "event"), "waiting");

	progress_show(ctx, waiting ? "waiting" : json_text(event, "phase"),
		      blk_to_bytes(json_u64(event, "done_blocks")),
		      blk_to_bytes(json_u64(event, "total_blocks")));
}
