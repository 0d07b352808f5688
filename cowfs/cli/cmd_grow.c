/* SPDX-License-Identifier: MIT */
/*
 * cowctl grow: after the partition grew, writes copy B of the superblock of the log to its new
 * end.
 */
#include "cli/cmd.h"

#include <stdio.h>

#include "base/parse.h"
#include "fs/fs_ops.h"
#include "offline/offline.h"

static void print_json(const char *device, const struct grow_report *rep)
{
	struct jsonw *w = json_begin(true);

	jsonw_str(w, "device", device);
	jsonw_bool(w, "nothing_to_do", rep->nothing_to_do);
	jsonw_u64(w, "device_bytes", rep->bytes);
	jsonw_u64(w, "device_bytes_before", rep->old_bytes);
	jsonw_u64(w, "volume_bytes", rep->super.fs_bytes);
	json_end(w);
}

static void print_text(const char *device, const char *log_device, const struct grow_report *rep)
{
	const struct log_super *s = &rep->super;

	if (rep->nothing_to_do) {
		printf("%s: nothing to do, its log already covers %s; nothing was written\n",
		       log_device, FORMAT_SIZE(rep->old_bytes));
		return;
	}
	printf("%s: the log now covers %s, was %s\n", log_device, FORMAT_MIB(rep->bytes),
	       FORMAT_MIB(rep->old_bytes));
	if (s->external) {
		printf("  the volume has %s: attach it and enlarge its file system\n",
		       FORMAT_SIZE(s->fs_bytes));
		return;
	}
	printf("  the file system keeps its size (%s): the log is right behind it and does not "
	       "move.\n",
	       FORMAT_SIZE(s->fs_bytes));
	if (fs_ops(rep->fs.kind)->can_shrink && rep->room_bytes > s->fs_bytes)
		printf("  To give it the new space, leave cowfs for a moment:\n    cowctl "
		       "release %s\n    mount %s DIR && resize2fs %s %lluM && umount DIR    (the "
		       "kernel's journal covers it)\n    cowctl prepare --force %s\n",
		       device, device, device, (unsigned long long)(rep->room_bytes / MIB), device);
}

int cmd_grow(const struct options *o)
{
	const char *device = o->operand[0], *log_device = o->value[OPT_LOG];
	struct grow_report rep;
	struct failure fail;

	if (offline_grow(device, log_device, &rep, &fail) < 0)
		return cmd_failed(o, &fail);
	if (has_option(o, OPT_JSON))
		print_json(device, &rep);
	else
		print_text(device, log_device ? log_device : device, &rep);
	return EXIT_OK;
}
