// SPDX-License-Identifier: MIT
#include "fs/fs_ops.h"

#include <string.h>

#define DECLARE(kind, number, ops) extern const struct fs_ops ops;
#define ENTRY(kind, number, ops) [number] = &(ops),
FS_KINDS(DECLARE)

/* making or repairing a file system is no less safe here than on any other disk */
static const struct fs_ops unknown_ops = {
	.names = { "unknown" },
	.refusal = below_refusal,
	.crash_safe = true,
	.readonly_options = "ro",
	.owners = OWNERS_TREE,
};

static const struct fs_ops *const table[] = { [FS_UNKNOWN] = &unknown_ops, FS_KINDS(ENTRY) };

const struct fs_ops *fs_ops(enum fs_kind kind)
{
	return (size_t)kind < ARRAY_SIZE(table) && table[kind] ? table[kind] : &unknown_ops;
}

static const char *own_name(const struct fs_ops *ops, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(ops->names) && ops->names[i]; i++)
		if (!strcmp(ops->names[i], name))
			return ops->names[i];
	return NULL;
}

bool fs_has_name(const struct fs_ops *ops, const char *name)
{
	return own_name(ops, name);
}

const struct fs_ops *fs_ops_named(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i] && fs_has_name(table[i], name))
			return table[i];
	return &unknown_ops;
}

const char *fs_type_named(const char *name)
{
	const char *own = own_name(fs_ops_named(name), name);

	return own ? own : unknown_ops.names[0];
}
