/* SPDX-License-Identifier: MIT */
/* Whose base is it (docs/FORMAT.md)? Compares the fingerprint of a record with the base, and finds
 * what another session wrote to the ring meanwhile. Only reads. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "fs/fs_ops.h"
#include "fs/guard.h"
#include "fs/shrink_mark.h"
#include "log/ring.h"

struct images {
	struct log *l;
	const struct log_index *ix;
	const uint8_t *copy; /* of the superblock, in the record; NULL: none */
	bool compares;
	bool trusts;  /* a superblock with the guard is as the log has it */
	bool guarded; /* it was read */
};

static int read_logged(void *ctx, uint64_t blk, uint64_t blks, void *buf);

static bool has_own_guard(const struct log *l, const uint8_t *bare)
{
	uint32_t owner;

	return guard_is(bare, &owner) && (owner & ~(uint32_t)GUARD_ODD) == guarded_owner(l);
}

/* A block that may have the guard, as it was read. */
static int show_true(struct images *im, uint64_t blk, uint8_t *buf)
{
	const struct guarded *g = &im->l->guarded;
	bool own = has_own_guard(im->l, buf);
	int r = 0;

	im->guarded |= own;
	if (im->trusts && own)
		r = read_logged(im, blk, 1, buf);
	else if (!im->compares && g->state == GUARD_UNSURE && blk == g->blk)
		memcpy(buf, g->truth, COW_BLK_BYTES);
	guard_take(buf);
	return r == -ENODATA ? 0 : r;
}

/*
 * What is on the base, without the guard. After a write that failed or was cut the superblock is known
 * from the log only.
 */
static int read_home(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	static const uint64_t may[] = GUARD_BLKS;
	struct images *im = ctx;
	int r = card_read_bare(im->l->base, blk_to_bytes(blk), buf, blk_to_bytes(blks));

	if (r == 0 && im->l->super.state == SUPER_PENDING) {
		guard_take_all(blk, blks, buf);
		return 0;
	}
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(may); i++)
		if (may[i] - blk < blks)
			r = show_true(im, may[i], (uint8_t *)buf + blk_to_bytes(may[i] - blk));
	return r;
}

/* The copy in the log is damaged. A checkpoint may have written the block home before. */
static int read_written(struct images *im, uint64_t blk, void *buf)
{
	uint32_t crc;
	int r = card_read(im->l->base, blk_to_bytes(blk), buf, COW_BLK_BYTES);

	return r == 0 && (!log_index_crc(im->ix, blk, &crc) ||
			  crc32c_back(buf, COW_BLK_BYTES) != crc)
		       ? -ENODATA
		       : r;
}

/* Reads one block, from the log only. */
static int read_logged(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct images *im = ctx;
	enum log_where where;
	int r = 0;

	log_index_run(im->ix, blk, 1, &where);
	if (where == LOG_HOME && im->copy && blk == guard_blk(im->copy))
		memcpy(buf, im->copy, COW_BLK_BYTES);
	else if (where == LOG_HOME)
		return -ENODATA;
	else if (where == LOG_DATA)
		r = log_index_read(im->ix, blk, 1, buf);
	else
		memset(buf, 0, blk_to_bytes(blks));
	/* with lag the card may have lost it: the older candidate counts */
	if (r == -EBADMSG || r == -EIO)
		return lag_on(im->l) ? r : read_written(im, blk, buf);
	return r;
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

struct blk_reader ring_base_reader(const struct log *l,
				   int (*read)(void *ctx, uint64_t blk, uint64_t blks, void *buf),
				   void *ctx)
{
	return (struct blk_reader){ .read = read,
				    .ctx = ctx,
				    .volume_blks = l->base->geo.size_bytes / COW_BLK_BYTES };
}

int ring_look_home(struct log *l)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	struct images im = { .l = l };
	struct blk_reader home = ring_base_reader(l, read_home, &im);
	struct fsinfo fs;
	int r = blk ? card_read(l->base, 0, blk, COW_BLK_BYTES) : -ENOMEM;

	if (r == 0)
		r = fsinfo_probe(&home, &fs);
	if (r == 0)
		guard_take(blk);
	if (r == 0)
		l->home = fs.kind == FS_UNKNOWN || shrink_mark_look(blk, l->super.ring_uuid) ==
							   SHRINK_MARK_MATCH
				  ? HOME_VOUCHES
				  : HOME_STRANGE;
	return r;
}

/*
 * The superblock's block has what neither the record nor its copy knows, and nothing waits in the log: did a cut
 * leave it while cowfs wrote the block? Not if a sector is empty, or has most of its bytes in common
 * with what it should be: then a tool has wiped it, or written something short (wipefs, mkswap,
 * cryptsetup).
 */
static bool was_cut(const struct log_record *rec, const uint8_t *bare, const uint8_t *copy)
{
	const struct fs_mark *m = NULL;

	for (uint32_t i = 0; i < rec->fingerprint.n_marks; i++)
		if (rec->fingerprint.mark[i].blk == guard_blk(copy))
			m = &rec->fingerprint.mark[i];
	for (unsigned k = 0; k < 8; k++) {
		const uint8_t *a = bare + k * 512, *b = copy + k * 512;
		unsigned same = 0;

		if (m && crc32c_back(a, 512) == m->sector_crc[k])
			continue;
		for (unsigned i = 0; i < 512; i++)
			same += a[i] == b[i];
		if (same < 512 && (same >= 256 || bytes_all_zero(a, 512)))
			return false;
	}
	return true;
}

/* The same with the copy of the superblock that the record has. */
static int match_copy(struct images *im, const struct log_record *rec, uint8_t *bare, bool *ret)
{
	struct images plain = { .l = im->l, .compares = true };
	struct blk_reader home = ring_base_reader(im->l, read_home, &plain);
	struct fsinfo fs;
	uint64_t off_bytes = blk_to_bytes(guard_blk(im->copy));
	int r = *ret ? card_read_bare(im->l->base, off_bytes, bare, COW_BLK_BYTES) : 0;

	if (r < 0 || !*ret || guard_is(bare, NULL))
		return r;
	r = fsinfo_probe_super(&home, &fs);
	*ret = r == 0 && !fs.below && was_cut(rec, bare, im->copy);
	return r;
}

int ring_base_matches(struct log *l, const struct log_record *rec, const struct log_index *ix,
		      bool *ret)
{
	_cleanup_free_ uint8_t *buf = NULL;
	struct images im = { .l = l, .ix = ix, .compares = true };
	struct blk_reader home = ring_base_reader(l, read_home, &im);
	struct blk_reader logged = ring_base_reader(l, read_logged, &im);
	int r;

	if (l->home == HOME_STRANGE) {
		*ret = false;
		return 0;
	}
	if (l->home == HOME_VOUCHES)
		home.read = read_vouched;
	if (rec->copy_bytes && !log_index_blks(ix)) {
		buf = io_alloc(2 * COW_BLK_BYTES);
		r = buf ? guarded_copy_of(l, rec, buf) : -ENOMEM;
		if (r < 0)
			return r;
		im.copy = r ? buf : NULL;
	}
	/* a checkpoint begins after a record of its own or after an open record; with lag that
	 * record may be lost */
	r = fsinfo_fingerprint_match(&rec->fingerprint, &home, &logged,
				     rec->type != RECORD_COMMIT || lag_on(l), ret);
	/* nothing that respects the guard has written the superblock, but a kernel may have noted an
	 * error in it */
	im.trusts = im.guarded;
	if (r == 0 && !*ret && im.trusts)
		r = fsinfo_fingerprint_match(&rec->fingerprint, &home, &logged,
					     rec->type != RECORD_COMMIT || lag_on(l), ret);
	return r == 0 && im.copy ? match_copy(&im, rec, buf + COW_BLK_BYTES, ret) : r;
}

int ring_base_unchanged(struct log *l, bool *ret)
{
	struct images im = { .l = l, .ix = l->index };
	struct blk_reader home = ring_base_reader(l, read_home, &im);
	struct blk_reader logged = ring_base_reader(l, read_logged, &im);

	*ret = true;
	return l->base_known ? fsinfo_fingerprint_match(&l->base_then, &home, &logged, false, ret)
			     : 0;
}

/* ---- records of another session ---- */

void ring_note_sent(struct log *l, const struct log_record *rec, const uint8_t *blk)
{
	l->sent[rec->seq % SENT_RECORDS].seq = rec->seq;
	l->sent[rec->seq % SENT_RECORDS].crc = crc32c(0, blk, COW_BLK_BYTES);
}

/* Is this record newer than the newest one, and neither one that was rejected when the log was opened nor one that
 * this log has tried to write? Another session may have used the same number. */
static bool is_strange(const struct log *l, const struct log_record *rec, const uint8_t *blk)
{
	uint64_t sent_seq = l->sent[rec->seq % SENT_RECORDS].seq;

	if (rec->seq > l->highest_seq || rec->epoch > l->epoch)
		return true;
	if (rec->seq <= max_u64(l->newest.seq, l->found_seq) || sent_seq > rec->seq)
		return false;
	return sent_seq < rec->seq ||
	       l->sent[rec->seq % SENT_RECORDS].crc != crc32c(0, blk, COW_BLK_BYTES);
}

/* May a record that this log does not count be on the card? */
static bool is_uncertain(const struct log *l)
{
	return l->doubt || l->highest_seq > l->newest.seq;
}

/* Does this segment have a strange record, from lblk on? */
static int look_behind(struct log *l, uint64_t lblk, bool *ret)
{
	uint64_t end = round_up_u64(lblk, l->seg_blks), unreadable = 0;
	struct log_record rec;
	int r = 0;

	for (uint64_t n; lblk < end && !*ret && r == 0; lblk += n) {
		n = min_u64(STAGE_BLKS, end - lblk);
		r = ring_read_tolerant(l, lblk, n, l->stage, &unreadable);
		for (uint64_t k = 0; k < n && r == 0; k++) {
			const uint8_t *blk = l->stage + blk_to_bytes(k);

			if (codec_get_record(blk, l->super.ring_uuid, &rec) == 0)
				*ret |= rec.lblk == lblk + k && is_strange(l, &rec, blk);
		}
	}
	return r;
}

/* Does this segment begin with a head that is newer than every one of this log; or with one that came behind the
 * newest record, and a strange record? */
static int look_at_segment(struct log *l, uint64_t seg, bool *ret)
{
	struct log_head h;
	uint64_t unreadable = 0;
	int r = ring_read_tolerant(l, seg * l->seg_blks, 1, l->stage, &unreadable);

	if (r < 0 || codec_get_head(l->stage, l->super.ring_uuid, &h) < 0 || h.seg != seg)
		return r;
	*ret |= h.serial > l->max_serial || h.epoch > l->epoch;
	return is_uncertain(l) && h.last.seq == l->newest.seq && h.last.epoch == l->newest.epoch
		       ? look_behind(l, seg * l->seg_blks + 1, ret)
		       : 0;
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
		if (is_uncertain(l) || seg == next || seg == fresh)
			r = look_at_segment(l, seg, ret);
	if (r == 0 && !*ret &&
	    (is_uncertain(l) || l->newest.flags & RECORD_CLEAN || !ring_fresh_is_free(l)))
		r = look_behind(l, l->newest.lblk + 1, ret);
	return r;
}

/* ---- fingerprint ---- */

int ring_base_fingerprint(struct log *l, struct fs_fingerprint *ret)
{
	struct images im = { .l = l, .ix = l->index };
	struct blk_reader home =
		ring_base_reader(l, l->home == HOME_VOUCHES ? read_vouched : read_home, &im);
	bool known = !l->opening && l->newest.seq && l->home == HOME_PLAIN;
	int r = fsinfo_fingerprint_since(&home, known ? &l->newest.fingerprint : NULL, ret);

	return r == -EOWNERDEAD && !l->needs_reader ? fsinfo_fingerprint_super(&home, ret) : r;
}

/* What respects the guard has not changed this base. */
bool ring_base_guarded(struct log *l)
{
	static const uint64_t may[] = GUARD_BLKS;
	_cleanup_free_ uint8_t *buf = io_alloc(COW_BLK_BYTES);
	bool ret = false;

	for (size_t i = 0; buf && i < ARRAY_SIZE(may); i++)
		ret |= card_read_bare(l->base, blk_to_bytes(may[i]), buf, COW_BLK_BYTES) == 0 &&
		       has_own_guard(l, buf);
	return ret;
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
	else if (ring_base_guarded(l))
		snprintf(why + len, n - len,
			 ": it is still guarded by this log, so an older copy was written over it");
	else if (tells_mounts && now.mtime != then->mtime && gmtime_r(&mtime, &tm) &&
		 strftime(when, sizeof(when), "%F %T UTC", &tm))
		snprintf(why + len, n - len, ": it was mounted, last on %s", when);
	else if (tells_mounts)
		snprintf(why + len, n - len, ": it was checked, or a tool wrote to it");
	return -EBADMSG;
}
