/* SPDX-License-Identifier: MIT */
/* Whose base is it (docs/FORMAT.md)? Compares the fingerprint of a record with the base, and finds
 * what another session wrote to the ring meanwhile. Only reads. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "fs/fs_ops.h"
#include "fs/shrink_mark.h"
#include "log/ring.h"

struct images {
	struct log *l;
	const struct log_index *ix;
};

static int read_home(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return card_read(((struct images *)ctx)->l->base, blk_to_bytes(blk), buf,
			 blk_to_bytes(blks));
}

/* Reads one block, from the log only. */
static int read_logged(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct images *im = ctx;
	enum log_where where;

	log_index_run(im->ix, blk, 1, &where);
	if (where == LOG_HOME)
		return -ENODATA;
	if (where == LOG_DATA)
		return log_index_read(im->ix, blk, 1, buf);
	memset(buf, 0, blk_to_bytes(blks));
	return 0;
}

/* Block 0 on the base of a shrink has tags, or is garbage: the content of the log replaces it
 * (FORMAT.md, "Shrink"). */
static int read_vouched(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	int r = read_home(ctx, blk, blks, buf);

	if (r == 0 && blk == 0)
		r = read_logged(ctx, 0, 1, buf);
	return r == -ENODATA ? 0 : r;
}

/* The whole base: until a shrink is written home, its file system is larger than the volume. */
static uint64_t base_blks(const struct log *l)
{
	return l->base->geo.size_bytes / COW_BLK_BYTES;
}

int ring_look_home(struct log *l)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	struct images im = { .l = l };
	struct blk_reader home = { .read = read_home, .ctx = &im, .volume_blks = base_blks(l) };
	struct fsinfo fs;
	int r = blk ? card_read(l->base, 0, blk, COW_BLK_BYTES) : -ENOMEM;

	if (r == 0)
		r = fsinfo_probe(&home, &fs);
	if (r == 0)
		l->home = fs.kind == FS_UNKNOWN || shrink_mark_look(blk, l->super.ring_uuid) ==
							   SHRINK_MARK_MATCH
				  ? HOME_VOUCHES
				  : HOME_STRANGE;
	return r;
}

int ring_base_matches(struct log *l, const struct log_record *rec, const struct log_index *ix,
		      bool *ret)
{
	struct images im = { .l = l, .ix = ix };
	struct blk_reader home = { .read = read_home, .ctx = &im, .volume_blks = base_blks(l) };
	struct blk_reader logged = { .read = read_logged,
				     .ctx = &im,
				     .volume_blks = home.volume_blks };

	if (l->home == HOME_STRANGE) {
		*ret = false;
		return 0;
	}
	if (l->home == HOME_VOUCHES)
		home.read = read_vouched;
	/* a checkpoint begins after a record of its own or after an open record; with lag that
	 * record may be lost */
	return fsinfo_fingerprint_match(&rec->fingerprint, &home, &logged,
					rec->type != RECORD_COMMIT || lag_on(l), ret);
}

int ring_base_unchanged(struct log *l, bool *ret)
{
	struct images im = { .l = l, .ix = l->index };
	struct blk_reader home = { .read = read_home, .ctx = &im, .volume_blks = base_blks(l) };
	struct blk_reader logged = { .read = read_logged,
				     .ctx = &im,
				     .volume_blks = home.volume_blks };

	*ret = true;
	return l->base_known ? fsinfo_fingerprint_match(&l->base_then, &home, &logged, false, ret)
			     : 0;
}

/* ---- records of another session ---- */

/* Does this segment begin with a head that is newer than every one of this log? */
static int look_at_head(struct log *l, uint64_t seg, bool *ret)
{
	struct log_head h;
	int r = card_read(l->card, ring_off_bytes(l, seg * l->seg_blks), l->stage, COW_BLK_BYTES);

	if (r == 0 && codec_get_head(l->stage, l->super.ring_uuid, &h) == 0 && h.seg == seg)
		*ret |= h.serial > l->max_serial || h.epoch > l->epoch;
	return r;
}

/* Does the segment of the newest record go on with a record that is newer than every one of this
 * log? */
static int look_behind(struct log *l, bool *ret)
{
	uint64_t end = round_up_u64(l->newest.lblk + 1, l->seg_blks);
	struct log_record rec;
	int r = 0;

	for (uint64_t lblk = l->newest.lblk + 1, n; lblk < end && !*ret && r == 0; lblk += n) {
		n = min_u64(STAGE_BLKS, end - lblk);
		r = card_read(l->card, ring_off_bytes(l, lblk), l->stage, blk_to_bytes(n));
		for (uint64_t k = 0; k < n && r == 0; k++)
			if (codec_get_record(l->stage + blk_to_bytes(k), l->super.ring_uuid,
					     &rec) == 0)
				*ret |= rec.lblk == lblk + k &&
					(rec.seq > l->highest_seq || rec.epoch > l->epoch);
	}
	return r;
}

/*
 * Another session begins where this one would have gone on: behind the newest record if that is
 * clean or the ring is full, else in a fresh segment (R3). Whatever does not end in the segment
 * where it begins has a head in the next one. After a failed attempt the other session may have
 * seen a record that this one does not count, so all heads are read.
 */
int ring_used_elsewhere(struct log *l, bool *ret)
{
	uint64_t next = (ring_seg(l, l->newest.lblk) + 1) % l->super.seg_count,
		 fresh = ring_fresh_segment(l);
	int r = 0;

	*ret = false;
	for (uint64_t seg = 0; seg < l->super.seg_count && !*ret && r == 0; seg++)
		if (l->doubt || seg == next || seg == fresh)
			r = look_at_head(l, seg, ret);
	if (r == 0 && !*ret &&
	    (l->doubt || l->newest.flags & RECORD_CLEAN || !ring_fresh_is_free(l)))
		r = look_behind(l, ret);
	return r;
}

/* ---- fingerprint ---- */

int ring_base_fingerprint(struct log *l, struct fs_fingerprint *ret)
{
	struct images im = { .l = l, .ix = l->index };
	struct blk_reader home = { .read = l->home == HOME_VOUCHES ? read_vouched : read_home,
				   .ctx = &im,
				   .volume_blks = base_blks(l) };
	int r = fsinfo_fingerprint(&home, ret);

	return r == -EOWNERDEAD && !l->needs_reader ? fsinfo_fingerprint_super(&home, ret) : r;
}

int ring_explain_foreign(struct log *l, const struct log_record *rec, char *why, size_t n)
{
	const struct fs_fingerprint *then = &rec->fingerprint;
	struct fs_fingerprint now;
	char when[32];
	size_t len;
	struct tm tm;
	time_t mtime;
	bool tells_mounts;
	int r = ring_base_fingerprint(l, &now);

	if (r < 0)
		return r;
	len = (size_t)snprintf(why, n,
			       "the file system was changed without cowfs after record %llu",
			       (unsigned long long)rec->seq);
	mtime = now.mtime;
	tells_mounts = fs_ops((enum fs_kind)now.kind)->tells_mounts;
	if (now.kind == FS_UNKNOWN && then->kind != FS_UNKNOWN)
		snprintf(why + len, n - len, ": no known file system is left");
	else if (now.kind != then->kind || memcmp(now.uuid, then->uuid, sizeof(now.uuid)))
		snprintf(why + len, n - len, ": it is a different one");
	else if (tells_mounts && now.mtime != then->mtime && gmtime_r(&mtime, &tm) &&
		 strftime(when, sizeof(when), "%F %T UTC", &tm))
		snprintf(why + len, n - len, ": it was mounted, last on %s", when);
	else if (tells_mounts)
		snprintf(why + len, n - len, ": it was checked, or a tool wrote to it");
	return -EBADMSG;
}
