/* SPDX-License-Identifier: MIT */
#include "wire/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/numbers.h"
#include "base/parse.h"
#include "wire/json.h"

#define SHOW_AFTER_NS 1000000000ull
#define BAR_CHARS 20	/* at most, if the terminal has room */
#define LONGEST_S 86400 /* a longer estimate is none */

void progress_start(struct progress *p)
{
	*p = (struct progress){ .on_terminal = isatty(STDERR_FILENO), .start_ns = now_ns() };
}

static int columns(void)
{
	struct winsize w;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
}

void progress_show(void *progress, const char *phase, uint64_t done_bytes, uint64_t total_bytes)
{
	struct progress *p = progress;
	static const char full[] = "####################", empty[] = "....................";
	uint64_t now = now_ns(),
		 percent = total_bytes ? min_u64(100, done_bytes * 100 / total_bytes) : 0;
	double seconds, rate = 0, left = 0;
	/* of a commit, for people */
	static const char *const said[][2] = { { "classify", "comparing" },
					       { "direct", "writing" },
					       { "log", "writing the log" } };
	char text[128], words[40];
	int n, width;

	if (!p->on_terminal)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(said); i++)
		phase = strcmp(phase, said[i][0]) ? phase : said[i][1];
	if (strcmp(phase, p->phase) || done_bytes < p->phase_start_bytes) {
		snprintf(p->phase, sizeof(p->phase), "%s", phase);
		p->phase_start_ns = now;
		p->phase_start_bytes = done_bytes;
	}
	if (now - p->start_ns < SHOW_AFTER_NS)
		return;
	done_bytes = total_bytes ? min_u64(done_bytes, total_bytes) : done_bytes;
	seconds = (double)(now - p->phase_start_ns) / 1e9;
	if (seconds > 0.1)
		rate = (double)(done_bytes - p->phase_start_bytes) / seconds;
	n = total_bytes	 ? snprintf(text, sizeof(text), "%u %%, %s of %s", (unsigned)percent,
				    FORMAT_SIZE(done_bytes), FORMAT_SIZE(total_bytes))
	    : done_bytes ? snprintf(text, sizeof(text), "%s", FORMAT_SIZE(done_bytes))
			 : snprintf(text, sizeof(text), "...");
	if (rate > 0)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ", %s/s",
			      FORMAT_SIZE((uint64_t)rate));
	if (rate > 0 && total_bytes > done_bytes)
		left = (double)(total_bytes - done_bytes) / rate;
	if (left > 0 && left < LONGEST_S)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ", %s left", SPAN(left));
	width = total_bytes ? columns() - 1 - (int)strlen(phase) - (int)strlen(" [] ") - n : 0;
	width = width < BAR_CHARS ? width : BAR_CHARS;
	snprintf(words, sizeof(words), "%s ", phase);
	if (width > 2)
		fprintf(stderr, "\r%s [%.*s%.*s] %s\033[K", phase, width * (int)percent / 100, full,
			width - width * (int)percent / 100, empty, text);
	else
		fprintf(stderr, "\r%.*s%.*s\033[K", columns() - 1 - n > 0 ? columns() - 1 - n : 0,
			words, columns() - 1, text);
	fflush(stderr);
	p->shown = true;
}

void progress_end(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = false;
}

bool progress_event(void *ctx, struct json_object *event)
{
	/* for another commit, whose figures are not ours */
	if (!strcmp(json_text(event, "event"), "waiting"))
		progress_show(ctx, "waiting for another commit", 0, 0);
	else
		progress_show(ctx, json_text(event, "phase"),
			      blk_to_bytes(json_u64(event, "done_blocks")),
			      blk_to_bytes(json_u64(event, "total_blocks")));
	return true;
}
