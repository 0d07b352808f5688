/* SPDX-License-Identifier: MIT */
/* Waits for a card that is away: for the end of a volume, which cannot be written without it. */
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/clean.h"
#include "base/parse.h"

#define LOOK_MS 500

struct wait {
	const char *name;
	int kmsg_fd; /* the standard error of a unit is a file: the console shows what the kernel logs; -1: not there */
};

static PRINTF(2, 3) void say(const struct wait *w, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "cowfs: %s: %s\n", w->name, text);
	if (w->kmsg_fd >= 0)
		(void)dprintf(w->kmsg_fd, "<3>cowfs: %s: %s\n", w->name, text);
}

static void say_what(const struct wait *w, struct json_object *s, const char *away, uint64_t wait_s)
{
	struct json_object *a = json_object_object_get(s, "away");
	const char *identity = json_text(s, "card_identity");

	say(w, "THE CARD IS AWAY %s", away);
	say(w, "plug in the card%s%s, %s on %s, which was %s",
	    *identity ? " with serial number " : "", identity, json_text(s, "fs_type"),
	    FORMAT_SIZE(json_u64(s, "volume_bytes")),
	    json_true(a, "base") ? json_text(s, "device") : json_text(s, "log_device"));
	say(w, "without it %s are lost: what came after the commit of %s",
	    FORMAT_SIZE(blk_to_bytes(json_u64(s, "dirty_blocks"))),
	    format_time(json_u64(s, "generation_unix_seconds")));
	say(w, "it is waited for, %llu s at most", (unsigned long long)wait_s);
}

bool await_card(struct client *c, uint64_t limit_ns, bool kmsg)
{
	_cleanup_close_ int kmsg_fd = kmsg ? open("/dev/kmsg", O_WRONLY | O_NOCTTY | O_CLOEXEC)
					   : -1;
	const struct wait w = { c->name, kmsg_fd };
	uint64_t until_ns = now_ns() + limit_ns;
	bool away, told = false;

	do {
		struct failure err;
		struct json_object *status = client_ask(c, COMMAND_STATUS, &err);
		char text[512];

		away = status && away_text(status, text, sizeof(text));
		if (away && !told)
			say_what(&w, status, text, limit_ns / 1000000000u);
		told |= away;
		json_object_put(status);
	} while (away && now_ns() < until_ns && poll(NULL, 0, LOOK_MS) == 0);
	if (told)
		say(&w, away ? "ends WITHOUT the card" : "the card is back");
	return !away;
}

int await_time(const struct options *o, uint64_t *ret_ns)
{
	const char *text = o->value[OPT_AWAY_WAIT];

	if (!text || parse_duration_ns(text, ret_ns) == 0)
		return EXIT_OK;
	return cmd_usage(o, "--away-wait %s is not a time such as 60s", text);
}
