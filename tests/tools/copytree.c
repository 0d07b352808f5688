/* SPDX-License-Identifier: MIT */
/*
 * files/copy on two folders: copytree [--trusted|--plan] FROM TO PATH...
 * Prints each change and each problem, a line each. Exit code 1: something was not copied.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "files/copy.h"

static void change(void *ctx, enum copy_act act, const char *path, const struct copy_to *to)
{
	static const char *const names[] = { "create", "replace", "update", "remove" };

	printf("%s %s\n", names[act], path);
}

static void problem(void *ctx, const char *path, int error, const char *what)
{
	printf("problem %s: %s (%s)\n", path, what, strerrordesc_np(-error));
}

static void other(void *ctx, const char *path, uint64_t others)
{
	printf("others %s %llu\n", path, (unsigned long long)others);
}

int main(int argc, char **argv)
{
	bool trusted = argc > 1 && !strcmp(argv[1], "--trusted");
	bool plan = argc > 1 && !strcmp(argv[1], "--plan");
	int first = trusted || plan ? 2 : 1, e, bad = 0;
	struct copy_options opt = { .trusted = trusted, .problem = problem };
	struct copy_report rep;
	struct copy *c;

	if (argc < first + 3)
		return 2;
	e = copy_new(&c, open(argv[first], O_RDONLY | O_DIRECTORY),
		     open(argv[first + 1], O_RDONLY | O_DIRECTORY), &opt);
	if (e < 0)
		return 2;
	for (int i = first + 2; i < argc; i++) {
		e = copy_plan(c, argv[i]);
		if (e < 0)
			printf("plan %s: %s\n", argv[i], strerrordesc_np(-e));
		bad |= e < 0;
	}
	e = copy_planned(c, &rep);
	if (e == 0)
		e = copy_other_names(c, other, NULL);
	if (trusted || plan)
		copy_each(c, change, NULL);
	if (e == 0 && !plan) {
		e = copy_apply(c, &rep);
		if (e < 0)
			printf("apply: %s\n", strerrordesc_np(-e));
	}
	bad |= e < 0;
	printf("created %llu replaced %llu updated %llu removed %llu same %llu problems %llu\n",
	       (unsigned long long)rep.created, (unsigned long long)rep.replaced,
	       (unsigned long long)rep.updated, (unsigned long long)rep.removed,
	       (unsigned long long)rep.same, (unsigned long long)rep.problems);
	copy_free(c);
	return bad;
}
