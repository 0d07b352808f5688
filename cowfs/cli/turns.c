/* SPDX-License-Identifier: MIT */
/*
 * Several volumes are committed one after another, each by itself: data volumes, the root, and last the volumes that are mounted
 * on /boot, where a boot loader finds kernels whose modules are in the root. A power cut between two of them leaves a root that
 * is newer than its /boot: the kernel of before, and modules for both.
 */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_on_boot(struct json_object *status)
{
	static const char *const places[] = { "/boot", "/efi" };
	const char *where = json_fact(status, FACT_MOUNTPOINT);

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		size_t len = strlen(places[i]);

		if (!strncmp(where, places[i], len) && (!where[len] || where[len] == '/'))
			return true;
	}
	return false;
}

static bool is_root(const char *name)
{
	return !strcmp(name, ROOT_NAME);
}

void turns_add(struct turns *t, const char *name, bool on_boot)
{
	snprintf(t->name[t->n], sizeof(t->name[0]), "%s", name);
	t->on_boot[t->n++] = on_boot;
}

void turns_of_all(struct turns *ret)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	bool on_boot[CLIENT_VOLUMES];
	size_t n = client_volumes(names);

	ret->n = 0;
	for (size_t i = 0; i < n; i++) {
		struct json_object *status = fresh_status(names[i]);

		on_boot[i] = !is_root(names[i]) && is_on_boot(status);
		json_object_put(status);
	}
	for (unsigned last = 0; last < 2; last++)
		for (size_t i = 0; i < n; i++)
			if (on_boot[i] == last)
				turns_add(ret, names[i], last);
}

/* Also what is in the page cache only. */
static bool has_changes(const char *name)
{
	const struct request rq = { .command = COMMAND_COMMIT, .dry_run = true };
	struct json_object *answer, *report;
	struct failure err;
	struct client c;
	bool yes;

	if (client_open(&c, name, &err) < 0)
		return false;
	answer = client_call(&c, &rq, NULL, NULL, &err);
	report = json_object_object_get(answer, "report");
	yes = !json_true(answer, "ok") || json_u64(report, "dirty_blocks") ||
	      json_u64(report, "hole_blocks");
	json_object_put(answer);
	client_close(&c);
	return yes;
}

bool turns_of_boot(struct turns *ret, const char *which)
{
	struct json_object *status = fresh_status(which), *root = fresh_status(ROOT_NAME);
	const char *name = json_fact(status, FACT_NAME);
	/* what has not changed does not cost a commit of the root */
	bool both = root && is_on_boot(status) && has_changes(name);

	ret->n = 0;
	if (both) {
		turns_add(ret, ROOT_NAME, false);
		turns_add(ret, name, true);
	}
	json_object_put(root);
	json_object_put(status);
	return both;
}

int turns_take(const struct turns *t, turn_fn *turn, void *ctx)
{
	bool root_is_old = false;
	int exit = EXIT_OK;

	for (size_t i = 0; i < t->n; i++) {
		bool committed = false;
		int e = turn(ctx, t->name[i], t->on_boot[i] && root_is_old, &committed);

		root_is_old |= is_root(t->name[i]) && !committed;
		exit = exit == EXIT_OK ? e : exit;
	}
	return exit;
}

bool turn_committed(struct json_object *answer)
{
	return json_true(answer, "ok") && !json_true(answer, "withheld");
}

int turn_left_out(struct failure *err, const char *name)
{
	return failure_set(
		err, EXIT_FAILED, -ECANCELED,
		"not committed: the next start does not have the root as it is now, and a kernel in /boot may need modules "
		"that are there. First commit the root; or only this: cowctl commit %s",
		name);
}
