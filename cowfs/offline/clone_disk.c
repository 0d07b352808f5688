/* SPDX-License-Identifier: MIT */
/*
 * Copies a disk: its partition table, what lies in front of its partitions, and each partition.
 *
 * Notes on the design
 * - The whole target is claimed until the end, and written to by offsets. So nothing can mount a part of it, and no
 *   other program reads its table meanwhile.
 * - The table is written last, and its first block at the very end. Until then that block has a mark without
 *   the signature of a boot sector: no firmware and no kernel finds a partition. A second run that finds the mark of
 *   this table writes only what differs.
 * - A partition that is mounted cannot be claimed, and vfat cannot be frozen. So each is synced, copied, and compared with
 *   its source until one comparison finds no difference. Then the copy is what the source had at the moment between
 *   the two.
 */
#include "offline/offline.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/boxed.h"
#include "base/io.h"
#include "base/numbers.h"
#include "base/parse.h"
#include "card/blockdev.h"
#include "fs/flush.h"
#include "offline/content.h"
#include "offline/signature.h"
#include "offline/table.h"
#include "wire/client.h"

#define UNIT_BYTES MIB
#define END_BYTES MIB /* at the end of a disk: backup GPT, RAID */
#define PASSES 6

static const char mark_text[] =
	"cowfs: an incomplete copy of a disk; cowctl clone goes on with it\n";

struct mark {
	char text[80];
	uint32_t crc; /* of the table that it is to get */
};

enum kind { PART_NONE, PART_VOLUME, PART_SWAP, PART_OTHER };

struct part {
	struct clone_disk_part p;
	struct table_part *t;
	enum kind kind;
	struct fsinfo fs;
	uint64_t fs_bytes; /* of a volume */
};

struct disk_clone {
	_Alignas(COW_BLK_BYTES) char buf[UNIT_BYTES];
	_Alignas(COW_BLK_BYTES) char there[COW_BLK_BYTES];
	const struct clone_disk_options *opt;
	struct table table;
	struct part part[DISK_PARTS_MAX];
	struct card *from;
	struct offline to;
	int image_fd;
	uint32_t crc; /* of the table */
	bool resumes;
};

static int target_failed(struct disk_clone *c, int e, struct failure *fail)
{
	return failure_set(fail, EXIT_FAILED, e,
			   "%s: %s. It is incomplete; the same command goes on with it",
			   c->opt->target, strerrordesc_np(-e));
}

static uint64_t copy_bytes(const struct part *x)
{
	return round_down_u64(x->t->size * TABLE_SECTOR, COW_BLK_BYTES);
}

/* ---- what is on the source? ---- */

static int elsewhere(const struct part *x, struct failure *fail)
{
	return failure_set(
		fail, EXIT_FAILED, -EOPNOTSUPP,
		"%s: a volume with its log on another device, or such a log: cowctl clone N PARTITION "
		"copies a volume alone",
		x->p.node);
}

static int look_for_volume(struct part *x, struct offline *f, struct failure *fail)
{
	int r = offline_find_log(f, fail);

	if (r == 0) {
		x->kind = PART_VOLUME;
		x->fs_bytes = f->super.fs_bytes;
		x->t->need = x->fs_bytes / TABLE_SECTOR;
		snprintf(x->p.what, sizeof(x->p.what), "volume");
		return 0;
	}
	if (f->super.external || *f->attached || (r == -ENOENT && super_log_missing(f->base)))
		return elsewhere(x, fail);
	return r == -ENOENT || r == -ESTALE ? 0 : r;
}

static int look_for_others(struct part *x, struct failure *fail)
{
	struct signatures s;
	int r = signatures_find(x->p.node, &x->fs, &s);

	if (r < 0)
		return failure_set(fail, EXIT_FAILED, r, "%s: cannot be read: %s", x->p.node,
				   boxed_error(r));
	x->kind = x->fs.kind == FS_UNKNOWN && !strcmp(s.text, "a swap area") ? PART_SWAP
									     : PART_OTHER;
	x->t->firmware = x->fs.kind == FS_UNKNOWN && !s.n;
	snprintf(x->p.what, sizeof(x->p.what), "%.60s",
		 x->kind == PART_SWAP	    ? "swap"
		 : x->fs.kind != FS_UNKNOWN ? x->fs.type
		 : s.n			    ? s.text
					    : "unknown");
	return 0;
}

/* Does a file as target lie in this partition? */
static bool has_target(const struct disk_clone *c, const struct part *x)
{
	struct stat file, node;

	return stat(c->opt->target, &file) == 0 && S_ISREG(file.st_mode) &&
	       stat(x->p.node, &node) == 0 && file.st_dev == node.st_rdev;
}

static int look_at(struct disk_clone *c, struct part *x, struct failure *fail)
{
	char holder[64];
	struct offline f;
	int r;

	if (!*x->p.node)
		return failure_set(
			fail, EXIT_FAILED, -ENODEV,
			"%s: the kernel does not know its partition %u as it is in the table: run "
			"partprobe %s",
			c->opt->source, x->t->number, c->opt->source);
	if (has_target(c, x))
		return failure_set(fail, EXIT_FAILED, -EBUSY,
				   "%s: lies on %s, which is to be copied", c->opt->target,
				   x->p.node);
	if (disk_holder(x->p.node, holder, sizeof(holder)))
		return failure_set(
			fail, EXIT_FAILED, -EBUSY,
			"%s: %s is made of it (LVM, LUKS or RAID), which cannot be copied while it "
			"is in use",
			x->p.node, holder);
	r = offline_open(&f, x->p.node, NULL, BLOCKDEV_RDONLY, 0, fail);
	x->fs = f.fs;
	if (r == 0)
		r = look_for_volume(x, &f, fail);
	offline_close(&f);
	return r < 0 || x->kind == PART_VOLUME ? r : look_for_others(x, fail);
}

static int look_at_source(struct disk_clone *c, struct failure *fail)
{
	struct disk_part known[DISK_PARTS_MAX];
	size_t n = 0;
	int r = table_read(c->opt->source, &c->table, fail);

	if (r < 0)
		return r;
	r = disk_parts(c->opt->source, known, &n);
	for (size_t i = 0; i < c->table.n && r == 0; i++) {
		struct part *x = &c->part[i];

		x->t = &c->table.p[i];
		for (size_t k = 0; k < n; k++)
			if (known[k].number == x->t->number &&
			    known[k].start_bytes == x->t->start * TABLE_SECTOR &&
			    known[k].size_bytes == x->t->size * TABLE_SECTOR)
				memcpy(x->p.node, known[k].node, sizeof(x->p.node));
		if (!x->t->extended)
			r = look_at(c, x, fail);
		if (r < 0)
			return r;
	}
	if (r == 0)
		r = blockdev_open(&c->from, c->opt->source, BLOCKDEV_RDONLY, NULL);
	return r < 0 ? failure_set(fail, EXIT_FAILED, r, "%s: cannot be read: %s", c->opt->source,
				   strerrordesc_np(-r))
		     : 0;
}

/* ---- the target, before anything is written ---- */

static int open_target(struct disk_clone *c, struct failure *fail)
{
	const struct clone_disk_options *opt = c->opt;
	struct disk_part known[DISK_PARTS_MAX];
	size_t n = 0;
	int r = disk_parts(opt->target, known, &n);

	if (disk_is_partition(opt->target))
		return failure_set(fail, EXIT_USAGE, -EINVAL, "%s: is a partition: name its disk",
				   opt->target);
	if (client_same_device(opt->source, opt->target))
		return failure_set(fail, EXIT_FAILED, -EBUSY,
				   "%s: is the disk that is to be copied", opt->target);
	if (disk_sector_bytes(opt->source) != TABLE_SECTOR ||
	    disk_sector_bytes(opt->target) != TABLE_SECTOR)
		return failure_set(fail, EXIT_FAILED, -EOPNOTSUPP,
				   "only disks with sectors of 512 bytes can be copied");
	/* names the one that is in use */
	for (size_t i = 0; i < n && r == 0; i++) {
		struct offline f;

		r = offline_open(&f, known[i].node, NULL, BLOCKDEV_RDONLY | BLOCKDEV_EXCL, 0, fail);
		offline_close(&f);
		if (r < 0)
			return r;
	}
	r = offline_open(&c->to, opt->target, NULL, BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE,
			 opt->log.erase_block_bytes, fail);
	if (r == 0 && card_set_writable(c->to.base, true) < 0)
		r = failure_set(fail, EXIT_FAILED, -EROFS, "%s is write-protected", opt->target);
	return r;
}

/* Does it fit? */
static int plan_part(struct disk_clone *c, struct part *x, struct failure *fail)
{
	uint64_t bytes = round_down_u64(x->t->new_size * TABLE_SECTOR, COW_BLK_BYTES);
	struct log_super super;
	struct offline w;
	int r;

	if (x->kind == PART_SWAP)
		bytes = min_u64(bytes, (uint64_t)sysconf(_SC_PAGESIZE));
	snprintf(x->p.target, sizeof(x->p.target), "%.200s, partition %u", c->opt->target,
		 x->t->number);
	x->p.number = x->t->number;
	x->p.bytes = copy_bytes(x);
	x->p.new_bytes = x->t->new_size * TABLE_SECTOR;
	x->p.copied_bytes = min_u64(bytes, x->p.bytes);
	x->p.resumes = c->resumes;
	if (x->kind == PART_OTHER && x->fs.size_bytes > x->p.bytes)
		return failure_set(
			fail, EXIT_FAILED, -EINVAL,
			"%s: its file system ends within a block of 4 KiB at the end of the partition, "
			"which cannot be copied",
			x->p.node);
	r = blockdev_part(&x->p.window, c->to.base, x->t->new_start * TABLE_SECTOR, bytes);
	if (r < 0)
		return failure_set(fail, EXIT_FAILED, r, "%s: %s", x->p.target,
				   strerrordesc_np(-r));
	w = (struct offline){
		.device = x->p.target, .base = x->p.window, .log_card = x->p.window, .fs = x->fs
	};
	w.fs.size_bytes = x->fs_bytes;
	return x->kind == PART_VOLUME ? clone_plan(&w, x->fs_bytes, &c->opt->log, &super, fail) : 0;
}

static bool has_mark(struct disk_clone *c)
{
	const struct mark *m = (const struct mark *)c->buf;

	return card_read(c->to.base, 0, c->buf, COW_BLK_BYTES) == 0 &&
	       !memcmp(m->text, mark_text, sizeof(mark_text)) && m->crc == c->crc;
}

static void add_text(char *ret, size_t bytes, const char *node, const char *text)
{
	size_t len = strlen(ret);

	snprintf(ret + len, bytes - len, "%s%s%s%s", len ? "; " : "", node, *node ? " holds " : "",
		 text);
}

/* Its content, and that of each of its partitions. */
static int ask(struct disk_clone *c, struct failure *fail)
{
	const struct clone_disk_options *opt = c->opt;
	struct clone_target t = { .bytes = c->to.base->geo.size_bytes };
	struct disk_part known[DISK_PARTS_MAX];
	const struct fsinfo found = c->to.fs;
	size_t n = 0;
	char text[768];
	int r = 0;

	snprintf(t.holds, sizeof(t.holds), "an incomplete copy of this disk");
	if (!c->resumes)
		r = content_name(&c->to, &found, t.holds, sizeof(t.holds));
	if (r < 0)
		return failure_set(fail, EXIT_FAILED, r, "%s: cannot be read: %s", opt->target,
				   boxed_error(r));
	if (disk_parts(opt->target, known, &n) < 0)
		n = 0; /* a file */
	for (size_t i = 0; i < n && !c->resumes; i++) {
		struct failure ignored;
		struct offline f;
		struct fsinfo fs;

		r = offline_open(&f, known[i].node, NULL, BLOCKDEV_RDONLY, 0, &ignored);
		fs = f.fs;
		if (r == 0)
			r = content_name(&f, &fs, text, sizeof(text));
		offline_close(&f);
		add_text(t.holds, sizeof(t.holds), known[i].node,
			 r < 0 ? "what cannot be read" : text);
	}
	return clone_confirm(opt->target, &t, opt->confirm, opt->ctx, fail);
}

/* ---- the table ---- */

static bool in_partition(const struct disk_clone *c, uint64_t off_bytes)
{
	for (size_t i = 0; i < c->table.n; i++) {
		const struct table_part *p = &c->table.p[i];

		if (!p->in_front && !p->extended &&
		    off_bytes + COW_BLK_BYTES > p->new_start * TABLE_SECTOR &&
		    off_bytes < (p->new_start + p->new_size) * TABLE_SECTOR)
			return true;
	}
	return false;
}

static int write_blk(struct disk_clone *c, uint64_t off_bytes)
{
	struct card *to = c->to.base;
	int r = card_write(to, off_bytes, c->buf, COW_BLK_BYTES);

	if (r == 0)
		r = card_flush(to);
	if (r == 0)
		r = card_read(to, off_bytes, c->there, COW_BLK_BYTES);
	return r == 0 && memcmp(c->buf, c->there, COW_BLK_BYTES) ? -EIO : r;
}

/* Of the image, but holes and the first block; writes: or only checks their places. */
static int table_pass(struct disk_clone *c, bool writes)
{
	off_t off = 0, end;
	int r = 0;

	while (r == 0 && (off = lseek(c->image_fd, off, SEEK_DATA)) >= 0) {
		end = lseek(c->image_fd, off, SEEK_HOLE);
		for (; off < end && r == 0; off += COW_BLK_BYTES) {
			r = io_pread_full(c->image_fd, c->buf, COW_BLK_BYTES, (uint64_t)off);
			if (r < 0 || !off ||
			    (!*c->buf && !memcmp(c->buf, c->buf + 1, COW_BLK_BYTES - 1)))
				continue;
			r = writes			     ? write_blk(c, (uint64_t)off)
			    : in_partition(c, (uint64_t)off) ? -ENOTRECOVERABLE
							     : 0;
		}
	}
	return r;
}

/* With the first block the target has partitions. */
static int write_table(struct disk_clone *c, struct failure *fail)
{
	int r = table_pass(c, true);

	if (r == 0)
		r = io_pread_full(c->image_fd, c->buf, COW_BLK_BYTES, 0);
	if (r == 0)
		r = write_blk(c, 0);
	return r < 0 ? target_failed(c, r, fail) : 0;
}

static int wipe(struct disk_clone *c, uint64_t off_bytes, uint64_t end_bytes)
{
	int r = 0;

	memset(c->buf, 0, UNIT_BYTES);
	for (uint64_t n; off_bytes < end_bytes && r == 0; off_bytes += n) {
		n = min_u64(end_bytes - off_bytes, UNIT_BYTES);
		r = card_write(c->to.base, off_bytes, c->buf, n);
	}
	return r < 0 ? r : card_flush(c->to.base);
}

/* No old table, boot loader or array is left, and there is the mark. */
static int begin(struct disk_clone *c, struct failure *fail)
{
	struct card *to = c->to.base;
	struct mark *m = (struct mark *)c->buf;
	uint64_t size = to->geo.size_bytes;
	int r = wipe(c, 0, COW_BLK_BYTES);

	if (r == 0) {
		r = clone_check_size(to, c->buf, fail);
		if (r < 0)
			return r;
		r = wipe(c, COW_BLK_BYTES,
			 round_down_u64(c->table.front * TABLE_SECTOR, COW_BLK_BYTES));
	}
	if (r == 0)
		r = wipe(c, size - min_u64(size, END_BYTES), size);
	if (r == 0) {
		memset(c->buf, 0, COW_BLK_BYTES);
		memcpy(m->text, mark_text, sizeof(mark_text));
		m->crc = c->crc;
		r = card_write(to, 0, c->buf, COW_BLK_BYTES);
	}
	if (r == 0)
		r = card_flush(to);
	return r < 0 ? target_failed(c, r, fail) : 0;
}

/* ---- partitions that are no volumes ---- */

/* What is mounted from it. */
static void flush_source(const char *node)
{
	struct card *from;

	if (blockdev_open(&from, node, BLOCKDEV_RDONLY, NULL) < 0)
		return;
	(void)!flush_disk(card_async_fd(from));
	card_close(from);
}

/* Until a pass finds no difference. */
static int copy_other(struct disk_clone *c, struct part *x, struct failure *fail)
{
	struct clone_options o = { .source = x->p.node,
				   .name = x->p.node,
				   .target = x->p.target,
				   .window = x->p.window,
				   .raw_bytes = x->p.copied_bytes,
				   .resumes = c->resumes,
				   .no_verify = true,
				   .progress = c->opt->progress,
				   .ctx = c->opt->ctx };
	int r = 0;

	flush_source(x->p.node);
	for (unsigned i = 0;; i++) {
		uint64_t before = x->p.window->account.written_bytes;
		struct clone_report report;

		r = offline_clone(&o, &report, fail);
		x->p.lost_blks = extents_blks(&report.lost);
		extents_clear(&report.lost);
		if (r < 0 || (o.resumes && x->p.window->account.written_bytes == before))
			break;
		o.resumes = true;
		if (i == PASSES)
			return failure_set(
				fail, EXIT_FAILED, -EBUSY,
				"%s: is incomplete: partition %u (%s) is written to all the time, or does not "
				"keep what is copied. Unmount it, or mount it read-only; then the same "
				"command goes on",
				c->opt->target, x->t->number, x->p.node);
	}
	if (r == 0)
		c->opt->copied(c->opt->ctx, &x->p);
	return r;
}

/* ---- */

static bool is_copied(const struct part *x)
{
	return x->kind != PART_NONE && !x->t->in_front;
}

static int prepare(struct disk_clone *c, struct failure *fail)
{
	uint64_t bytes;
	int r = look_at_source(c, fail);

	if (r == 0)
		r = open_target(c, fail);
	if (r < 0)
		return r;
	bytes = c->to.base->geo.size_bytes;
	r = table_plan(&c->table, c->opt->target, bytes, c->to.base->geo.erase_block_bytes, fail);
	if (r == 0)
		r = table_image(&c->table, c->from, bytes, &c->image_fd, &c->crc, fail);
	if (r < 0)
		return r;
	c->resumes = has_mark(c);
	for (size_t i = 0; i < c->table.n && r == 0; i++)
		if (is_copied(&c->part[i]))
			r = plan_part(c, &c->part[i], fail);
	if (r == 0 && table_pass(c, false) < 0)
		r = failure_set(fail, EXIT_FAILED, -ENOTRECOVERABLE,
				"%s: its partition table would lie within a partition",
				c->opt->target);
	return r;
}

static int run(struct disk_clone *c, struct failure *fail)
{
	int r = prepare(c, fail);

	if (r == 0)
		r = ask(c, fail);
	if (r == 0 && !c->resumes)
		r = begin(c, fail);
	for (size_t i = 0; i < c->table.n && r == 0; i++) {
		struct part *x = &c->part[i];

		if (!is_copied(x))
			continue;
		r = x->kind == PART_VOLUME ? c->opt->volume(c->opt->ctx, &x->p, fail)
					   : copy_other(c, x, fail);
	}
	if (r == 0)
		r = write_table(c, fail);
	if (r == 0)
		blockdev_reread_table(c->to.base);
	return r;
}

int offline_clone_disk(const struct clone_disk_options *opt, bool *ret_gpt, struct failure *fail)
{
	struct disk_clone *c = io_alloc(sizeof(*c));
	int r;

	if (!c)
		return failure_set(fail, EXIT_FAILED, -ENOMEM, "out of memory");
	c->opt = opt;
	c->image_fd = -1;
	r = run(c, fail);
	*ret_gpt = c->table.gpt;
	for (size_t i = 0; i < DISK_PARTS_MAX; i++)
		card_close(c->part[i].p.window);
	if (c->from && card_lost(c->from, r))
		r = failure_set(fail, EXIT_AWAY, -ENOMEDIUM, CARD_LOST, opt->source,
				"The copy is incomplete");
	card_close(c->from);
	r = offline_end(&c->to, r, "The copy on it is incomplete", fail);
	if (c->image_fd >= 0)
		close(c->image_fd);
	free(c);
	return r;
}
