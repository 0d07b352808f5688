/* SPDX-License-Identifier: MIT */
#include "wire/decode.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "fs/find_mount.h"
#include "wire/proto.h"

#define PATH_BYTES 64

/* Where they are; anything else is plain. */
static const char objects[] =
	" away card erase_blocks held history last last.quiesce last.report lifetime lifetime.commits_by_cause pressure "
	"progress quiesce report totals totals.commits_by_cause trim truth undone views ";
static const char arrays[] =
	" erase_blocks.visits erase_blocks.written_blocks history.commits history.days runs views.list ";

static bool fits(const char *path, enum json_type type)
{
	char word[PATH_BYTES + 2];

	snprintf(word, sizeof(word), " %s ", path);
	return !strchr(path, ' ') && !strstr(objects, word) == (type != json_type_object) &&
	       !strstr(arrays, word) == (type != json_type_array);
}

/* Removes what does not fit. Below an array there are objects of plain members. */
static void prune(struct json_object *o, const char *above)
{
	size_t n = json_object_is_type(o, json_type_array) ? json_object_array_length(o) : 0;

	for (size_t i = 0; i < n; i++)
		prune(json_object_array_get_idx(o, i), "-");
	if (!json_object_is_type(o, json_type_object))
		return;
	json_object_object_foreach(o, key, value)
	{
		char path[PATH_BYTES];
		int len = snprintf(path, sizeof(path), "%s%s%s", above, *above ? "." : "", key);

		if (len >= PATH_BYTES || !fits(path, json_object_get_type(value)))
			json_object_object_del(o, key);
		else
			prune(value, path);
	}
}

static void replace(struct json_object *o, enum fact which, const char *text)
{
	if (json_object_object_get_ex(o, fact_names[which], NULL))
		json_object_object_add(o, fact_names[which], json_object_new_string(text));
}

static void find_place(dev_t disk, char where[PATH_MAX])
{
	_cleanup_close_ int proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (!disk || find_mount(proc_fd, disk, where, PATH_MAX, NULL) != 1)
		where[0] = '\0';
}

/* The daemon of 0.1.0 that serves a volume until its end has written no facts. */
static void replace_all(struct json_object *o, int run_fd, const char *name)
{
	struct facts f;
	char where[PATH_MAX];
	bool any = false;
	int r;

	replace(o, FACT_NAME, name);
	for (enum fact i = 0; i < FACT_N; i++)
		any |= i != FACT_NAME && json_object_object_get_ex(o, fact_names[i], NULL);
	r = any ? facts_read(run_fd, name, false, &f) : -ENOENT;
	if (r == -ENOENT)
		return;
	for (enum fact i = 0; i < FACT_DEVICES; i++)
		replace(o, i, f.device[i].path);
	find_place(f.device[FACT_LOOP].rdev, where);
	replace(o, FACT_MOUNTPOINT, where);
	json_object_object_del(o, fact_names[FACT_LOWER]);
}

struct json_object *answer_decode(const char *text, size_t len_bytes, int run_fd, const char *name)
{
	struct json_tokener *tok = json_tokener_new_ex(PROTO_DEPTH);
	struct json_object *o = tok ? json_tokener_parse_ex(tok, text, (int)len_bytes) : NULL;

	if (tok)
		json_tokener_free(tok);
	if (!json_object_is_type(o, json_type_object)) {
		json_object_put(o);
		return NULL;
	}
	prune(o, "");
	replace_all(o, run_fd, name);
	return o;
}
