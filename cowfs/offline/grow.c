/* SPDX-License-Identifier: MIT */
#include "offline/offline.h"

#include <errno.h>
#include <string.h>

#include "card/blockdev.h"

static bool is_grown(const struct offline *f)
{
	return f->super.log_bytes != f->log_card->geo.size_bytes ||
	       f->super.base_bytes != f->base->geo.size_bytes || (f->trouble & SUPER_COPIES_BAD);
}

static int write_supers(struct offline *f, struct failure *fail)
{
	uint64_t from_bytes = f->super.log_bytes;
	int e = from_bytes < f->log_card->geo.size_bytes
			? offline_probe(f->log_card, from_bytes, fail)
			: 0;

	if (e < 0)
		return e;
	e = card_set_writable(f->log_card, true);
	if (e == 0)
		e = super_grow(f->log_card, &f->super, f->base->geo.size_bytes);
	e = offline_lock(f->log_card, e);
	return e < 0 ? failure(fail, e, "%s: cannot be written: %s. Run it again",
			       f->log_card->geo.path, strerrordesc_np(-e))
		     : offline_read_back(f->log_card, &f->super, fail);
}

static int grow(struct offline *f, struct grow_report *ret, struct failure *fail)
{
	int e;

	if (f->super.state == SUPER_PENDING)
		return failure(
			fail, -EBUSY,
			"%s: a shrink was interrupted: run cowctl prepare --shrink %s again first",
			f->device, f->device);
	e = offline_refuse_held(f, fail);
	if (e < 0)
		return e;
	ret->old_bytes = f->super.log_bytes;
	ret->nothing_to_do = !is_grown(f);
	e = ret->nothing_to_do ? 0 : write_supers(f, fail);
	ret->super = f->super;
	ret->fs = f->fs;
	ret->bytes = f->log_card->geo.size_bytes;
	ret->room_bytes = offline_room_for_fs(f, (uint64_t)f->super.seg_bytes * f->super.seg_count);
	return e;
}

int offline_grow(const char *device, const char *log_device, struct grow_report *ret,
		 struct failure *fail)
{
	struct offline f;
	int e = offline_open(&f, device, log_device, BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE, 0, fail);

	if (e == 0)
		e = offline_open_log(&f, fail);
	if (e == 0)
		e = grow(&f, ret, fail);
	return offline_end(&f, e, "Its log is whole", fail);
}
