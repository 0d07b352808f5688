/* SPDX-License-Identifier: MIT */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "attach/view_mount.h"
#include "base/clean.h"
#include "base/parse.h"
#include "fs/owners.h"

#define NAMES_MAX 20u
#define JSON_NAMES_MAX 1000u
#define JSON_NAMES_BYTES (200 * KIB / 6) /* \u0001 */

static int find_owners(const struct view_mount *m, const struct owners_query *q, struct owners *ret)
{
	char dir[32];
	int e = owners_ext_boxed(ret, m->disk, q);

	if (e == -EOPNOTSUPP) {
		snprintf(dir, sizeof(dir), "/proc/self/fd/%d", m->dir_fd);
		e = owners_tree(ret, dir, OWNERS_FILES_MAX, OWNERS_NS_MAX, q);
	}
	return e == -EOPNOTSUPP ? owners_add_rest(ret, q) : e;
}

void name_files(const struct view_mount *m, const struct extents *blks, struct jsonw *w)
{
	const struct extents none = { 0 };
	const struct owners_query q = { .all = blks, .fresh = &none };
	struct owners x = { 0 };
	int e = find_owners(m, &q, &x);
	size_t bytes = 0;

	for (size_t i = 0; e == 0 && i < x.n; i++) {
		const char *name = x.o[i].path ? x.o[i].path : "(not of a file)";

		bytes += strlen(name) + 1;
		if (w && i < JSON_NAMES_MAX && bytes <= JSON_NAMES_BYTES)
			jsonw_str(w, NULL, name);
		else if (w)
			break;
		else if (i < NAMES_MAX)
			printf("    %10s of %s\n", FORMAT_SIZE(x.o[i].bytes), CLEAN(name));
	}
	if (!w && e == 0 && x.n > NAMES_MAX)
		printf("    and %s more\n", with_commas(x.n - NAMES_MAX));
	if (!w && e < 0)
		puts("    their files cannot be found out");
	owners_clear(&x);
}
