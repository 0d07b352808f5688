/* SPDX-License-Identifier: MIT */
/*
 * cowctl card --facts DEVICE: what a program of cowfs-tools asks before it copies a device or writes to one, as JSON.
 * tools/clone/facts.schema.json describes it.
 */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/boxed.h"
#include "card/blockdev.h"
#include "card/disk.h"
#include "offline/content.h"
#include "offline/signature.h"

static int find_volume(struct offline *f, struct jsonw *w, bool *ret_is_volume,
		       struct failure *fail)
{
	int e = offline_find_log(f, fail);
	bool elsewhere = e < 0 && (f->super.external || *f->attached ||
				   (e == -ENOENT && super_log_missing(f->base)));

	*ret_is_volume = e == 0;
	jsonw_bool(w, "log_elsewhere", elsewhere);
	jsonw_u64(w, "volume_bytes", e == 0 ? f->super.fs_bytes : 0);
	return e == 0 || elsewhere || e == -ENOENT || e == -ESTALE ? 0 : e;
}

/* Of a device without a volume; the kind of a whole device is no file system either. */
static int name_content(const char *device, const struct fsinfo *fs, struct jsonw *w,
			struct failure *fail)
{
	struct signatures s;
	int e = signatures_find(device, fs, &s);

	if (e < 0)
		return failure(fail, e, "%s: cannot be read: %s", device, boxed_error(e));
	jsonw_str(w, "content",
		  fs->kind != FS_UNKNOWN	   ? fs->type
		  : !strcmp(s.text, "a swap area") ? "swap"
						   : s.text);
	return 0;
}

static void json_partitions(const char *device, struct jsonw *w)
{
	struct disk_part part[DISK_PARTS_MAX];
	size_t n = 0;

	jsonw_array(w, "partitions");
	if (disk_parts(device, part, &n) < 0)
		n = 0; /* a file */
	for (size_t i = 0; i < n; i++) {
		jsonw_object(w, NULL);
		jsonw_u64(w, "number", part[i].number);
		jsonw_str(w, "device", part[i].node);
		jsonw_u64(w, "start_bytes", part[i].start_bytes);
		jsonw_u64(w, "bytes", part[i].size_bytes);
		jsonw_end(w);
	}
	jsonw_end(w);
}

/* Who uses it, so that nothing else may write to it? */
static void json_use(const char *device, struct jsonw *w)
{
	struct failure fail = { 0 };
	struct offline f;
	char holder[64];

	disk_holder(device, holder, sizeof(holder));
	jsonw_str(w, "holder", holder);
	if (offline_open(&f, device, NULL, BLOCKDEV_RDONLY | BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE, 0,
			 &fail) == 0)
		fail.why[0] = '\0';
	offline_close(&f);
	jsonw_str(w, "in_use", fail.why);
}

static void json_device(const struct offline *f, struct jsonw *w)
{
	struct clone_target t;

	blockdev_model(f->device, t.model, sizeof(t.model));
	blockdev_identity(f->device, t.identity, sizeof(t.identity));
	jsonw_str(w, "device", f->device);
	jsonw_u64(w, "bytes", f->base->geo.size_bytes);
	jsonw_u64(w, "erase_block_bytes", f->base->geo.erase_block_bytes);
	jsonw_u64(w, "sector_bytes", disk_sector_bytes(f->device));
	jsonw_bool(w, "is_partition", disk_is_partition(f->device));
	jsonw_str(w, "model", t.model);
	jsonw_str(w, "identity", t.identity);
	jsonw_str(w, "fs_type", f->fs.type);
	jsonw_u64(w, "fs_bytes", f->fs.size_bytes);
}

int card_facts(const struct options *o)
{
	const char *device = o->operand[0];
	struct fsinfo fs;
	struct failure fail;
	struct offline f;
	struct jsonw *w = json_begin(true);
	char holds[1200];
	bool is_volume = false;
	int e = offline_open(&f, device, NULL, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, 0, &fail);

	if (e == 0) {
		fs = f.fs;
		json_device(&f, w);
		e = find_volume(&f, w, &is_volume, &fail);
	}
	if (e == 0 && is_volume)
		jsonw_str(w, "content", "volume");
	else if (e == 0)
		e = name_content(device, &fs, w, &fail);
	if (e == 0) {
		e = content_name(&f, &fs, holds, sizeof(holds));
		if (e < 0)
			failure(&fail, e, "%s: cannot be read: %s", device, boxed_error(e));
		jsonw_str(w, "holds", holds);
	}
	offline_close(&f);
	if (e < 0)
		return cmd_failed(o, &fail);
	json_use(device, w);
	json_partitions(device, w);
	json_end(w);
	return EXIT_OK;
}
