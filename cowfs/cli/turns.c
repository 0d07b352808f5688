/* SPDX-License-Identifier: MIT */
/*
 * Several volumes are committed one after another, each by itself. What lies on another volume (its card or its log is an image
 * file there) comes before that one, which has what it wrote in RAM until then. Else data volumes, the root, and last those mounted
 * on /boot, where a boot loader finds kernels whose modules are in the root. A power cut between two of them leaves a root that
 * is newer than its /boot: the kernel of before, and modules for both. What is written to /boot after the root was sealed, with
 * modules that this commit of the root lacks, makes another one.
 */
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/backing.h"
#include "base/mounts.h"

#define ROOT_AGAIN 3u

static int look_at_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	static const char *const places[] = { "/boot", "/efi" };
	const dev_t *dev = ctx;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		size_t len = strlen(places[i]);

		if (!strncmp(m->path, places[i], len) && (!m->path[len] || m->path[len] == '/'))
			return mounts_shows(root_dirfd, m, *dev);
	}
	return 0;
}

/* Is one of its mounts there? Its daemon is not asked, because it might not answer. */
static bool is_on_boot(const struct facts *f)
{
	_cleanup_close_ int proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dev_t disk = f->device[FACT_LOOP].rdev;

	return disk && (mounts_each(proc_fd, "self", look_at_mount, &disk) == 1 ||
			mounts_each(proc_fd, "1", look_at_mount, &disk) == 1);
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

static bool lies_on(const struct facts *inner, const struct facts *outer)
{
	dev_t disk = outer->device[FACT_LOOP].rdev;

	return backing_lies_on(inner->device[FACT_DEVICE].rdev, disk) ||
	       backing_lies_on(inner->device[FACT_LOG_DEVICE].rdev, disk);
}

bool turns_has_inner(const struct turns *t, const char *name)
{
	struct facts inner, outer;
	bool yes = false;

	client_facts(name, false, &outer);
	for (size_t i = 0; i < t->n && !yes; i++) {
		client_facts(t->name[i], false, &inner);
		yes = strcmp(t->name[i], name) && lies_on(&inner, &outer);
	}
	return yes;
}

struct volumes {
	char name[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	struct facts facts[CLIENT_VOLUMES];
	bool on_boot[CLIENT_VOLUMES], taken[CLIENT_VOLUMES];
	size_t n;
};

static bool has_inner(const struct volumes *v, size_t nth)
{
	for (size_t i = 0; i < v->n; i++)
		if (i != nth && !v->taken[i] && lies_on(&v->facts[i], &v->facts[nth]))
			return true;
	return false;
}

/* Mounts can be such that a circle is seen: then in spite of it. */
static size_t next_of(const struct volumes *v)
{
	for (unsigned in_spite = 0; in_spite < 2; in_spite++)
		for (unsigned last = 0; last < 2; last++)
			for (size_t i = 0; i < v->n; i++)
				if (!v->taken[i] && v->on_boot[i] == last &&
				    (in_spite || !has_inner(v, i)))
					return i;
	return v->n;
}

void turns_of_all(struct turns *ret)
{
	struct volumes v = { 0 };
	size_t i;

	v.n = client_volumes(v.name);
	for (i = 0; i < v.n; i++) {
		client_facts(v.name[i], false, &v.facts[i]);
		v.on_boot[i] = !is_root(v.name[i]) && is_on_boot(&v.facts[i]);
	}
	ret->n = 0;
	while ((i = next_of(&v)) < v.n) {
		turns_add(ret, v.name[i], v.on_boot[i]);
		v.taken[i] = true;
	}
}

/*
 * What a commit would write, also of what is in the page cache only: the daemon syncs that. This process may lack the
 * device and the right to do it: it may run in a unit.
 */
static struct json_object *dry_run(const char *name)
{
	const struct request rq = { .command = COMMAND_COMMIT, .dry_run = true };
	struct json_object *answer;
	struct failure err;
	struct client c;

	if (client_open(&c, name, &err) < 0)
		return NULL;
	answer = client_call(&c, &rq, NULL, NULL, &err);
	client_close(&c);
	return answer;
}

static bool has_changes(const char *name)
{
	struct json_object *answer = dry_run(name);
	struct json_object *report = json_object_object_get(answer, "report");
	bool yes = !json_true(answer, "ok") || json_u64(report, "dirty_blocks") ||
		   json_u64(report, "hole_blocks");

	json_object_put(answer);
	return yes;
}

bool turns_of_boot(struct turns *ret, const char *which)
{
	struct json_object *status = fresh_status(which);
	const char *name = json_fact(status, FACT_NAME);
	struct facts root, f;
	bool both;

	client_facts(ROOT_NAME, true, &root);
	client_facts(name, false, &f);
	/* what has not changed does not cost a commit of the root */
	both = *root.device[FACT_DEVICE].path && is_on_boot(&f) && has_changes(name);
	ret->n = 0;
	if (both) {
		turns_add(ret, ROOT_NAME, false);
		turns_add(ret, name, true);
	}
	json_object_put(status);
	return both;
}

/* How often the volume was written until now, with what was in the page cache. *known: false if its daemon does not say. */
static uint64_t writes_to(const char *name, bool *known)
{
	struct json_object *answer = dry_run(name), *status = answer ? fresh_status(name) : NULL;
	uint64_t ret = json_u64(status, "absorbed_writes");

	*known &= status && json_true(answer, "ok") && commit_synced(answer);
	json_object_put(answer);
	json_object_put(status);
	return ret;
}

static uint64_t writes_to_boot(const struct turns *t, size_t from, bool *known)
{
	uint64_t sum = 0;

	for (size_t i = from; i < t->n; i++)
		sum += t->on_boot[i] ? writes_to(t->name[i], known) : 0;
	return sum;
}

int turns_take(const struct turns *t, bool again, turn_fn *turn, void *ctx)
{
	bool root_is_old = false;
	int exit = EXIT_OK;

	for (size_t i = 0; i < t->n; i++) {
		bool committed, known = true, leads = again && is_root(t->name[i]);
		uint64_t before = 0, after = 0;
		unsigned rounds = 0;
		int e;

		do {
			committed = false;
			before = rounds ? after : leads ? writes_to_boot(t, i, &known) : 0;
			e = turn(ctx, t->name[i], t->on_boot[i] && root_is_old, &committed);
			after = leads && committed ? writes_to_boot(t, i, &known) : before;
		} while (after != before && ++rounds < ROOT_AGAIN);
		root_is_old |= is_root(t->name[i]) && (!committed || after != before || !known);
		exit = exit == EXIT_OK ? e : exit;
	}
	return exit;
}

bool commit_synced(struct json_object *answer)
{
	return !json_true(json_object_object_get(answer, "quiesce"), "unsynced");
}

bool turn_committed(struct json_object *answer)
{
	return json_true(answer, "ok") && !json_true(answer, "withheld") && commit_synced(answer);
}

int turn_left_out(struct failure *err, const char *name)
{
	return failure(
		err, -ECANCELED,
		"not committed: the next start does not have the root as it is now, and a kernel in /boot may need modules "
		"that are there. First commit the root; or only this: cowctl commit %s",
		name);
}
