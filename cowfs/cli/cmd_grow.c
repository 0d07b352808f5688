/* SPDX-License-Identifier: MIT */
/* cowctl grow: after the partition grew, copy B of the super record goes to its new end. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "card/blockdev.h"
#include "fs/fs_ops.h"

static bool is_grown(const struct offline *f)
{
	return f->super.log_bytes != f->log_card->geo.size_bytes ||
	       f->super.base_bytes != f->base->geo.size_bytes || (f->trouble & SUPER_COPIES_BAD);
}

static int check(const struct options *o, const struct offline *f)
{
	const char *device = o->operand[0];

	if (f->super.state == SUPER_PENDING)
		return cmd_fail(
			o, EXIT_FAILED, -EBUSY,
			"a shrink of %s was cut off: run cowctl format --shrink %s again first",
			device, device);
	return EXIT_OK;
}

static int write_supers(const struct options *o, struct offline *f)
{
	int e = card_set_writable(f->log_card, true), off;

	if (e == 0)
		e = super_grow(f->log_card, &f->super, f->base->geo.size_bytes);
	off = card_set_writable(f->log_card, false);
	e = e < 0 ? e : off;
	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e, "%s cannot be written: %s. Run it again",
				f->log_card->geo.path, strerrordesc_np(-e));
	return EXIT_OK;
}

static void report(const struct options *o, const struct offline *f, uint64_t old_bytes,
		   bool nothing)
{
	const char *device = f->base->geo.path;
	uint64_t room = offline_room_for_fs(f, (uint64_t)f->super.seg_bytes * f->super.seg_count);
	char text[1024];
	struct jsonw w;

	if (has_option(o, OPT_JSON)) {
		jsonw_init(&w, text, sizeof(text));
		answer_ok(&w);
		jsonw_str(&w, "device", device);
		jsonw_bool(&w, "nothing_to_do", nothing);
		jsonw_u64(&w, "device_bytes", f->log_card->geo.size_bytes);
		jsonw_u64(&w, "device_bytes_before", old_bytes);
		jsonw_u64(&w, "volume_bytes", f->super.fs_bytes);
		if (jsonw_finish(&w))
			fputs(text, stdout);
		return;
	}
	if (nothing) {
		printf("%s: nothing to do, its log knows that it has %s; nothing was written\n",
		       f->log_card->geo.path, FORMAT_SIZE(old_bytes));
		return;
	}
	printf("%s: the log knows now that it has %s, it was %s\n", f->log_card->geo.path,
	       FORMAT_SIZE(f->log_card->geo.size_bytes), FORMAT_SIZE(old_bytes));
	if (f->super.external) {
		printf("  the volume has %s: attach it, and make the file system in it larger\n",
		       FORMAT_SIZE(f->super.fs_bytes));
		return;
	}
	printf("  the file system keeps its size (%s): the log lies right behind it and does not "
	       "move.\n",
	       FORMAT_SIZE(f->super.fs_bytes));
	if (fs_ops(f->fs.kind)->can_shrink && room > f->super.fs_bytes)
		printf("  To give it the new room, leave cowfs for a moment:\n"
		       "    cowctl recover %s\n"
		       "    mount %s DIR && resize2fs %s %lluM && umount DIR    (the kernel's "
		       "journal covers it)\n"
		       "    cowctl format --force %s\n",
		       device, device, device, (unsigned long long)(room / MIB), device);
}

static int grow(struct offline *f, const struct options *o)
{
	uint64_t old_bytes;
	bool nothing;
	int exit = offline_open(f, o, BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE, 0);

	if (exit == EXIT_OK)
		exit = offline_open_log(f, o);
	if (exit == EXIT_OK)
		exit = check(o, f);
	if (exit != EXIT_OK)
		return exit;
	old_bytes = f->super.log_bytes;
	nothing = !is_grown(f);
	if (!nothing)
		exit = write_supers(o, f);
	if (exit == EXIT_OK)
		report(o, f, old_bytes, nothing);
	return exit;
}

int cmd_grow(const struct options *o)
{
	struct offline f = { 0 };
	int exit = grow(&f, o);

	offline_close(&f);
	return exit;
}
