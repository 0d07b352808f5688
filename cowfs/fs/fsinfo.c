// SPDX-License-Identifier: MIT
/*
 * Recognises the file system on a volume from its superblock and takes its fingerprint: the part
 * that all kinds share. The rest is in their entries (fs_ops.h).
 *
 * libblkid cannot read through a blk_reader, so each probe reads the few fields that it needs, at
 * their documented offsets. The order of the probes decides when an old superblock survived a mkfs:
 * the place that the newer mkfs always writes is probed first. No file may decide the result: in
 * FAT and exFAT a file can have the block where btrfs has its superblock, and mkfs.btrfs clears the
 * boot sector of FAT and exFAT. mkfs.nilfs2 keeps that sector, and the mkfs of FAT and exFAT clears
 * the superblock of NILFS2, so NILFS2 is probed before them.
 */
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "fs/fs_ops.h"
#include "fs/reader.h"
#include "fs/replay.h"

#define KIND(kind, number, ops) kind,

static void supers_probe(const struct supers *s, struct fsinfo *ret)
{
	static const enum fs_kind order[] = { FS_KINDS(KIND) };

	for (size_t i = below_hides_fs(s) ? ARRAY_SIZE(order) : 0; i < ARRAY_SIZE(order); i++) {
		const struct fs_ops *ops = fs_ops(order[i]);

		*ret = (struct fsinfo){ .kind = order[i], .devices = 1 };
		strcpy(ret->type, ops->names[0]);
		if (ops->probe(s, ret))
			return;
	}
	*ret = (struct fsinfo){ .type = "unknown", .devices = 1, .below = below_find(s) };
}

uint64_t fsinfo_copied_blk(const struct fsinfo *f, uint64_t blk)
{
	const struct fs_ops *ops = fs_ops(f->kind);

	return ops->copied ? ops->copied(blk) : 0;
}

bool fsinfo_is_copy(const struct fsinfo *f, const uint8_t *committed, const uint8_t *copy)
{
	return fs_ops(f->kind)->is_copy(committed, copy);
}

const char *fsinfo_refusal(const struct fsinfo *f)
{
	const struct fs_ops *ops = fs_ops(f->kind);

	return ops->refusal ? ops->refusal(f) : NULL;
}

/* s is zeroed; what lies beyond the end of a short volume stays zero */
static int supers_read(const struct blk_reader *r, struct supers *s)
{
	uint64_t head_blks = min_u64(r->volume_blks, HEAD_UNITS);
	struct fsinfo f;
	int err = 0;

	if (head_blks)
		err = r->read(r->ctx, 0, head_blks, s->head);
	if (err || r->volume_blks <= BTRFS_UNIT)
		return err;
	err = r->read(r->ctx, BTRFS_UNIT, 1, s->at64k);
	if (err != -EIO)
		return err;
	/* a bad block there is one of many for a file system whose superblock is at the start: mkfs.btrfs clears those */
	memset(s->at64k, 0, sizeof(s->at64k));
	supers_probe(s, &f);
	return f.kind == FS_UNKNOWN ? err : 0;
}

static int supers_get(const struct blk_reader *r, struct supers **ret)
{
	_cleanup_free_ struct supers *s = io_alloc(round_up_u64(sizeof(*s), COW_BLK_BYTES));
	int err;

	if (!s)
		return -ENOMEM;
	err = supers_read(r, s);
	if (err)
		return err;
	*ret = steal_ptr(s);
	return 0;
}

int fsinfo_probe_super(const struct blk_reader *r, struct fsinfo *ret)
{
	_cleanup_free_ struct supers *s = NULL;
	int err = supers_get(r, &s);

	if (err)
		return err;
	supers_probe(s, ret);
	return 0;
}

/* a damaged file system leaves fields empty; a read error is an error */
static bool is_damage(int err)
{
	return err == -EUCLEAN || err == -EOPNOTSUPP || err == -ENOENT;
}

int fsinfo_probe(const struct blk_reader *r, struct fsinfo *ret)
{
	struct fsinfo f;
	struct reader *e;
	struct fsimage_facts facts;
	int err = fsinfo_probe_super(r, &f);

	if (err)
		return err;
	if (f.has_journal && !f.external_journal) {
		err = reader_open(&e, r, f.kind, FSIMAGE_ASK_JOURNAL, &facts);
		if (!err) {
			err = facts.journal_err;
			reader_close(e);
		}
		if (err && !is_damage(err) && err != -EOWNERDEAD)
			return err;
		if (!err) {
			f.journal_bytes = facts.journal.size_bytes;
			f.needs_recovery |= facts.journal.start != 0;
		}
	}
	*ret = f;
	return 0;
}

bool fsinfo_any_moment(const struct fsinfo *f)
{
	const struct fs_ops *ops = fs_ops(f->kind);

	return f->kind != FS_UNKNOWN &&
	       (ops->crash_safe ||
		(ops->settle && f->has_journal && !f->external_journal && !f->fast_commit));
}

/* Does the content of its transactions need no check, up to *before? */
static int is_same_mount(const struct blk_reader *r, const struct replay_mark *before, bool *ret)
{
	uint32_t mount;
	int err = before && before->end ? replay_mount(r, &mount) : 0;

	*ret = !err && before && before->end && mount == before->mount;
	return err;
}

int replay_open(struct replay **ret, const struct blk_reader *r, const struct replay_mark *before)
{
	_cleanup_free_ struct fsimage_range *places = NULL;
	struct fsimage_move *list = NULL;
	struct replay *y = NULL;
	unsigned what = FSIMAGE_ASK_JOURNAL | FSIMAGE_ASK_COUNTS | FSIMAGE_ASK_REPLAY;
	struct fsimage_facts f = { 0 };
	struct fsinfo info;
	struct reader *x = NULL;
	size_t n, n_places = 0;
	bool same = false;
	int err = fsinfo_probe_super(r, &info);

	if (!err && info.kind != FS_EXT)
		err = -ENOENT;
	if (!err)
		err = is_same_mount(r, before, &same);
	if (same)
		f.journal.part.next = before->next;
	if (!err)
		err = reader_open(&x, r, FS_EXT, what | (same ? FSIMAGE_ASK_VERIFIED : 0u), &f);
	if (err)
		return err;
	err = f.replay_err    ? f.replay_err
	      : f.journal_err ? f.journal_err
			      : reader_log(x, &places, &n_places);
	if (!err)
		err = reader_replay(x, &list, &n);
	if (!err)
		err = replay_new(&y, r, &f, list, n);
	if (!err)
		err = replay_set_places(y, places, n_places);
	if (!err && same)
		err = replay_since(y, before);
	if (err) {
		replay_close(y);
		reader_close(x);
		return err;
	}
	replay_set_reader(y, x);
	*ret = y;
	return 0;
}

static void sector_crcs(const void *buf, uint32_t crc[8])
{
	for (int i = 0; i < 8; i++)
		crc[i] = crc32c_back((const char *)buf + i * 512, 512);
}

static int read_marks(const struct blk_reader *r, struct fs_fingerprint *fp)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);

	if (!buf)
		return -ENOMEM;
	for (uint32_t i = 0; i < fp->n_marks; i++) {
		int err = r->read(r->ctx, fp->mark[i].blk, 1, buf);

		if (err)
			return err;
		sector_crcs(buf, fp->mark[i].sector_crc);
	}
	return 0;
}

/*
 * *ret_bad: bit k for each sector that equals neither its earlier content nor its version in the
 * log; *ret_in_log: the log has the block
 */
static int match_mark(const struct fs_mark *m, const struct blk_reader *home,
		      const struct blk_reader *logged, void *buf, uint8_t *ret_bad,
		      bool *ret_in_log)
{
	uint32_t now[8], then[8];
	int err = m->blk < home->volume_blks ? home->read(home->ctx, m->blk, 1, buf) : -ENODATA;

	*ret_in_log = false;
	*ret_bad = 0;
	if (err) {
		*ret_bad = 0xff;
		return err == -ENODATA ? 0 : err;
	}
	sector_crcs(buf, now);
	if (!memcmp(now, m->sector_crc, sizeof(now)))
		return 0;
	err = logged->read(logged->ctx, m->blk, 1, buf);
	if (err && err != -ENODATA)
		return err;
	*ret_in_log = !err;
	sector_crcs(buf, then);
	for (unsigned k = 0; k < 8; k++)
		if (now[k] != m->sector_crc[k] && (err || now[k] != then[k]))
			*ret_bad |= (uint8_t)(1u << k);
	return 0;
}

static uint8_t *supers_unit(struct supers *s, uint64_t blk)
{
	if (blk < HEAD_UNITS)
		return s->head + blk * COW_BLK_BYTES;
	return blk == BTRFS_UNIT ? s->at64k : NULL;
}

/*
 * Home has sectors, in blocks that the log has too, that are neither old nor new: those of bad[].
 * Did a power cut during a checkpoint of cowfs leave them? A cut leaves garbage. A program that
 * mounts, repairs or makes a file system leaves a superblock, or other content that looks_written
 * recognises. A superblock outside the marks counts too, unless the probe finds a known one before
 * it: it may be older than cowfs on this volume.
 */
static int is_our_tear(const struct fs_fingerprint *fp, const struct blk_reader *home,
		       const uint8_t *bad, void *buf, bool *ret)
{
	bool (*looks_written)(const uint8_t *sector,
			      unsigned k) = fs_ops((enum fs_kind)fp->kind)->looks_written;
	_cleanup_free_ struct supers *s = NULL;
	struct fsinfo now, strange;
	int err = supers_get(home, &s);

	if (err)
		return err;
	supers_probe(s, &now);
	for (uint32_t i = 0; i < fp->n_marks; i++) {
		uint8_t *unit = supers_unit(s, fp->mark[i].blk);

		for (unsigned k = 0; unit && k < 8; k++)
			if (!(bad[i] & 1u << k))
				memset(unit + k * 512, 0, 512);
	}
	supers_probe(s, &strange);
	*ret = strange.kind == FS_UNKNOWN || strange.kind != now.kind;
	for (uint32_t i = 0; *ret && looks_written && i < fp->n_marks; i++) {
		err = bad[i] ? home->read(home->ctx, fp->mark[i].blk, 1, buf) : 0;
		if (err)
			return err;
		for (unsigned k = 0; k < 8; k++)
			if (bad[i] & 1u << k && looks_written((const uint8_t *)buf + k * 512, k))
				*ret = false;
	}
	return 0;
}

/*
 * Where there was no file system, a file system that is there now is a foreign change, unless its
 * marks are as in the log. In that case it was made on the volume, and a checkpoint of cowfs was
 * writing it home.
 */
static int match_unmarked(const struct blk_reader *home, const struct blk_reader *logged, bool torn,
			  bool *ret_match)
{
	struct fs_fingerprint now;
	int err = fsinfo_fingerprint(home, &now);

	if (err == -EOWNERDEAD)
		err = fsinfo_fingerprint_super(home, &now);
	if (err)
		return err;
	*ret_match = !now.n_marks;
	if (!now.n_marks)
		return 0;
	for (uint32_t i = 0; i < now.n_marks; i++)
		for (unsigned k = 0; k < 8; k++) /* never equal: the earlier content is not known */
			now.mark[i].sector_crc[k] = ~now.mark[i].sector_crc[k];
	return fsinfo_fingerprint_match(&now, home, logged, torn, ret_match);
}

int fsinfo_fingerprint_match(const struct fs_fingerprint *fp, const struct blk_reader *home,
			     const struct blk_reader *logged, bool torn, bool *ret_match)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);
	uint8_t bad[FS_MARKS] = { 0 };
	bool in_log, any = false;

	if (!buf)
		return -ENOMEM;
	if (!fp->n_marks)
		return match_unmarked(home, logged, torn, ret_match);
	for (uint32_t i = 0; i < fp->n_marks; i++) {
		int err = match_mark(&fp->mark[i], home, logged, buf, &bad[i], &in_log);

		if (err)
			return err;
		if (bad[i] && (!torn || !in_log)) {
			*ret_match = false;
			return 0;
		}
		any = any || bad[i];
	}
	*ret_match = true;
	return any ? is_our_tear(fp, home, bad, buf, ret_match) : 0;
}

/* The facts are those of an earlier fingerprint if no mark has changed since. One without facts has a single mark. */
static int facts_known(const struct blk_reader *r, const struct fs_fingerprint *known,
		       struct fs_fingerprint *fp, bool *ret)
{
	struct fs_fingerprint now;
	int err;

	*ret = false;
	if (!known || known->kind != fp->kind || known->sb_crc != fp->sb_crc || known->n_marks < 2)
		return 0;
	memcpy(&now, known, sizeof(now));
	err = read_marks(r, &now);
	*ret = !err && !memcmp(&now, known, sizeof(now));
	if (*ret)
		memcpy(fp, known, sizeof(*fp));
	return err;
}

/* Adds the facts that need more than the superblock, if they are available. */
static int fingerprint_facts(const struct blk_reader *r, const struct fs_fingerprint *known,
			     struct fs_fingerprint *fp)
{
	const struct fs_ops *ops = fs_ops((enum fs_kind)fp->kind);
	struct fsimage_facts f;
	struct reader *x;
	bool same;
	int err;

	if (!ops->facts)
		return 0;
	err = facts_known(r, known, fp, &same);
	if (err || same)
		return err;
	err = reader_open(&x, r, (enum fs_kind)fp->kind, FSIMAGE_ASK_GDT | FSIMAGE_ASK_JOURNAL, &f);
	if (err)
		return is_damage(err) ? 0 : err;
	reader_close(x);
	ops->facts(&f, fp);
	return 0;
}

static int fingerprint_units(const struct blk_reader *r, const struct supers *s,
			     struct fs_fingerprint *fp)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);
	const struct fs_ops *ops = fs_ops((enum fs_kind)fp->kind);
	uint64_t units[FS_UNITS] = { ops->first_unit };
	size_t n = fp->kind == FS_UNKNOWN ? 0 : ops->units ? ops->units(s, units) : 1;

	if (!buf)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		int err;

		if (units[i] >= r->volume_blks)
			continue;
		err = r->read(r->ctx, units[i], 1, buf);
		if (err)
			return err;
		fp->sb_crc = crc32c(fp->sb_crc, buf, COW_BLK_BYTES);
		fs_mark_unit(fp, units[i]);
	}
	if (ops->fields)
		ops->fields(s, fp);
	return 0;
}

static int fingerprint(const struct blk_reader *r, bool super_only,
		       const struct fs_fingerprint *known, struct fs_fingerprint *ret)
{
	_cleanup_free_ struct supers *s = NULL;
	struct fs_fingerprint fp;
	struct fsinfo f;
	int err = supers_get(r, &s);

	if (err)
		return err;
	supers_probe(s, &f);
	memset(&fp, 0, sizeof(fp)); /* clears padding too: callers may compare bytes */
	fp.kind = f.kind;
	err = fingerprint_units(r, s, &fp);
	if (!err && !super_only)
		err = fingerprint_facts(r, known, &fp);
	if (!err)
		err = read_marks(r, &fp);
	if (err)
		return err;
	memcpy(ret, &fp, sizeof(fp));
	return 0;
}

int fsinfo_fingerprint(const struct blk_reader *r, struct fs_fingerprint *ret)
{
	return fingerprint(r, false, NULL, ret);
}

int fsinfo_fingerprint_since(const struct blk_reader *r, const struct fs_fingerprint *known,
			     struct fs_fingerprint *ret)
{
	return fingerprint(r, false, known, ret);
}

int fsinfo_fingerprint_super(const struct blk_reader *r, struct fs_fingerprint *ret)
{
	return fingerprint(r, true, NULL, ret);
}
