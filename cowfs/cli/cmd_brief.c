/* SPDX-License-Identifier: MIT */
/*
 * cowctl status --brief: one line per volume, for a login. Shows uncommitted changes, and a
 * prominent warning about a root that should be protected and is not. That state is in files of
 * the initramfs.
 */
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "cli/cmd.h"
#include "attach/rootstate.h"

static bool brief_volume(struct json_object *s)
{
	const char *alarm = json_text(s, "alarm");

	printf("cowfs: %s: %s not on the card yet, last commit %s%s\n", json_text(s, "name"),
	       FORMAT_SIZE(blk_to_bytes(json_u64(s, "dirty_blocks"))),
	       format_time(json_u64(s, "generation_unix_seconds")),
	       json_true(s, "discard_armed") ? ", to be DISCARDED at shutdown" : "");
	if (json_true(s, "degraded"))
		printf("cowfs: %s: NEEDS ATTENTION: %s\n", json_text(s, "name"),
		       *alarm ? alarm : "see cowctl status");
	return json_true(s, "degraded");
}

static bool brief_root(void)
{
	char why[512];
	enum root_state state = rootstate_read(why, sizeof(why));

	if (state != ROOT_FAILED && state != ROOT_BYPASSED)
		return false;
	printf("cowfs: THE ROOT IS NOT PROTECTED%s: %s\n",
	       state == ROOT_FAILED ? " and read-only" : "", why);
	return true;
}

int status_brief(void)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	bool bad = brief_root();
	struct failure err;

	for (size_t i = 0, n = client_volumes(names); i < n; i++) {
		struct json_object *s = client_status_file(names[i], &err);

		if (s && brief_volume(s))
			bad = true;
		json_object_put(s);
	}
	return bad ? EXIT_DEGRADED : EXIT_OK;
}
