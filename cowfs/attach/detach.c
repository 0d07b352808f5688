/* SPDX-License-Identifier: MIT */
#include "attach/detach.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "wire/json.h"
#include "wire/progress.h"

#define ASK_AGAIN_US 100000

/* Sends the request once. */
static enum exit_code ask(const char *name, const struct request *rq, struct progress *progress,
			  struct failure *err)
{
	struct json_object *answer;
	struct client c;
	bool ok;

	if (client_open(&c, name, err) < 0)
		return err->exit;
	answer = client_call(&c, rq, progress_event, progress, err);
	ok = answer && json_true(answer, "ok");
	if (ok)
		client_wait_gone(&c);
	else if (answer)
		failure(err, strcmp(json_text(answer, "code"), "EBUSY") ? -EIO : -EBUSY, "%s",
			json_text(answer, "error"));
	json_object_put(answer);
	client_close(&c);
	return ok ? EXIT_OK : err->exit;
}

enum exit_code detach_volume(const char *name, bool discard, unsigned patience_ms,
			     struct failure *err)
{
	const struct request rq = { .command = COMMAND_DETACH, .discard = discard };
	uint64_t until_ns = now_ns() + patience_ms * 1000000ull;
	struct progress progress;
	enum exit_code exit;

	progress_start(&progress);
	while ((exit = ask(name, &rq, &progress, err)) != EXIT_OK && err->error == -EBUSY &&
	       now_ns() < until_ns)
		usleep(ASK_AGAIN_US);
	progress_end(&progress);
	return exit;
}
