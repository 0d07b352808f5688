/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - libblkid knows the formats and their look-alikes (a FAT's boot sector is not a partition
 *   table). Everything it finds counts, one by one as for wipefs(8): a first match would hide a
 *   second one.
 * - Where cowfs knows the file system, its first 4 KiB and the area behind its end show whether it
 *   is a leftover, or a part of something larger (a member of a RAID array has its superblock at
 *   the end). The blocks between belong to files.
 * - A backup GPT without a primary one counts only where the device is to be overwritten from its
 *   first block on: mkfs leaves it on a disk that once had partitions.
 * - libblkid reads the content in a boxed child. What it asks sysfs for, it asks before.
 */
#include "offline/signature.h"

#include <blkid.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/boxed.h"
#include "base/clean.h"
#include "base/numbers.h"
#include "fs/fs_ops.h"

static const struct {
	const char *type, *text, *advice;
} known[] = {
	{ "swap", "a swap area", "" },
	{ "swsuspend", "a hibernated system", "" },
	{ "LVM2_member", "an LVM physical volume", "name a logical volume instead" },
	{ "LVM1_member", "an LVM physical volume", "name a logical volume instead" },
	{ "crypto_LUKS", "a LUKS device", "open it and name the opened device instead" },
	{ "linux_raid_member", "a member of a RAID array", "name the array instead" },
	{ "zfs_member", "a member of a ZFS pool", "" },
	{ "bcache", "a bcache device", "name the bcache instead" },
	{ "jbd", "an external journal", "" },
};

static bool is_fs_type(const struct fsinfo *fs, const char *type)
{
	return fs_has_name(fs_ops(fs->kind), type) || !strcmp(type, fs->type);
}

struct search {
	blkid_probe all, partitions;
	const struct fsinfo *fs;
	struct signatures s;
};

/* 0 if there are none, or if the number is unknown. */
static int count_partitions(blkid_probe pr)
{
	blkid_partlist list;
	int n = 0;

	blkid_probe_enable_superblocks(pr, 0);
	blkid_probe_enable_partitions(pr, 1);
	list = blkid_probe_get_partitions(pr);
	if (list)
		n = blkid_partlist_numof_partitions(list);
	return n > 0 ? n : 0;
}

static void add(struct signatures *s, const char *text, const char *advice)
{
	size_t len = strlen(s->text);

	if (!s->n++)
		snprintf(s->advice, sizeof(s->advice), "%s", advice);
	snprintf(s->text + len, sizeof(s->text) - len, "%s%s", len ? " and " : "", text);
}

static void add_table(struct search *x, const char *type)
{
	int n = count_partitions(x->partitions);
	char text[96];

	/* boot code has the signature of an MBR as well */
	if (!n && x->fs->kind != FS_UNKNOWN && !strcmp(type, "dos"))
		return;
	snprintf(text, sizeof(text), "a %s partition table with %d partition%s",
		 !strcmp(type, "gpt")	? "GPT"
		 : !strcmp(type, "dos") ? "DOS"
					: CLEAN(type),
		 n, plural(n));
	add(&x->s, text, n ? "name a partition instead" : "");
}

static void add_superblock(struct signatures *s, blkid_probe pr, const char *type)
{
	const char *usage;
	char text[96];

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(known[i].type, type)) {
			add(s, known[i].text, known[i].advice);
			return;
		}
	if (blkid_probe_lookup_value(pr, "USAGE", &usage, NULL) < 0)
		usage = "";
	snprintf(text, sizeof(text), "%s (%s)",
		 !strcmp(usage, "filesystem") ? "a file system"
		 : !strcmp(usage, "raid")     ? "a member of an array"
					      : "something else",
		 CLEAN(type));
	add(s, text, "");
}

/* True in blocks that the file system gives to files. */
static bool is_content(blkid_probe pr, const struct fsinfo *fs, const char *key)
{
	const char *text;
	uint64_t off_bytes;

	if (fs->kind == FS_UNKNOWN || blkid_probe_lookup_value(pr, key, &text, NULL) < 0)
		return false;
	off_bytes = strtoull(text, NULL, 10);
	return off_bytes >= COW_BLK_BYTES && off_bytes < fs->size_bytes;
}

static void take(struct search *x)
{
	const char *type;

	if (blkid_probe_lookup_value(x->all, "TYPE", &type, NULL) == 0) {
		if (!is_fs_type(x->fs, type) && !is_content(x->all, x->fs, "SBMAGIC_OFFSET"))
			add_superblock(&x->s, x->all, type);
	} else if (blkid_probe_lookup_value(x->all, "PTTYPE", &type, NULL) == 0) {
		if (!is_content(x->all, x->fs, "PTMAGIC_OFFSET"))
			add_table(x, type);
	}
}

/* In the child. */
static int work(void *ctx, struct boxed *b)
{
	struct search *x = ctx;
	int r;

	blkid_probe_enable_superblocks(x->all, 1);
	blkid_probe_set_superblocks_flags(x->all, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE |
							  BLKID_SUBLKS_MAGIC);
	blkid_probe_enable_partitions(x->all, 1);
	blkid_probe_set_partitions_flags(
		x->all,
		BLKID_PARTS_MAGIC | (x->fs->kind == FS_UNKNOWN ? BLKID_PARTS_FORCE_GPT : 0));
	while ((r = blkid_do_probe(x->all)) == 0)
		take(x);
	boxed_say(b, &x->s, sizeof(x->s));
	return r < 0 ? -EIO : 0;
}

static int hear(void *ctx, const void *message, size_t bytes)
{
	struct search *x = ctx;

	if (bytes != sizeof(x->s))
		return -EPROTO;
	memcpy(&x->s, message, bytes);
	x->s.text[sizeof(x->s.text) - 1] = x->s.advice[sizeof(x->s.advice) - 1] = '\0';
	return 0;
}

int signatures_find(const char *path, const struct fsinfo *fs, struct signatures *ret)
{
	struct search x = { .fs = fs };
	struct boxed_job job = { .work = work, .hear = hear, .ctx = &x, .fds = 2 };
	int e = -EIO;

	errno = 0;
	x.all = blkid_new_probe_from_filename(path);
	x.partitions = blkid_new_probe_from_filename(path);
	if (x.all && x.partitions) {
		job.fd[0] = blkid_probe_get_fd(x.all);
		job.fd[1] = blkid_probe_get_fd(x.partitions);
		/* the child cannot ask sysfs for it */
		(void)blkid_probe_get_wholedisk_devno(x.all);
		(void)blkid_probe_get_wholedisk_devno(x.partitions);
		e = boxed_run(&job);
	} else if (errno) {
		e = -errno;
	}
	blkid_free_probe(x.all);
	blkid_free_probe(x.partitions);
	if (e == 0)
		*ret = x.s;
	return e;
}
