/* SPDX-License-Identifier: MIT */
/*
 * The super record: where the ring lies. Two copies, A right behind the file system (so that a grown
 * partition still finds it), B in the last block of the device (so that a new file system over the old one
 * does not hide that there was a log). Written by format, first attach and grow only.
 */
#include <errno.h>
#include <string.h>

#include "log/codec.h"
#include "log/log.h"

#include "base/io.h"

#define DEFAULT_LOG_BYTES (32 * MIB)
#define MIN_ERASE_BLOCKS 5u /* three stay in reserve, see ring.c */

/* A segment is an erase block, or the largest whole part of one that is not above LOG_MAX_SEG_BYTES, or as
 * many erase blocks as make LOG_MIN_SEG_BYTES. */
static uint32_t segment_bytes(uint32_t eb_bytes)
{
	if (eb_bytes < LOG_MIN_SEG_BYTES)
		return (uint32_t)round_up_u64(LOG_MIN_SEG_BYTES, eb_bytes);
	for (uint32_t k = 1; eb_bytes / k >= LOG_MIN_SEG_BYTES; k++)
		if (eb_bytes % k == 0 && eb_bytes / k <= LOG_MAX_SEG_BYTES && eb_bytes / k % COW_BLK_BYTES == 0)
			return eb_bytes / k;
	return LOG_MAX_SEG_BYTES;
}

/* By how much the file system has to be smaller, or the device larger: enough for either. */
static uint64_t short_bytes(const struct card_geometry *g, const struct log_super *s, uint64_t ring_bytes, uint64_t unit)
{
	uint64_t end = s->ring_off_bytes + ring_bytes + COW_BLK_BYTES, short_of = 0, last;

	if (end > g->size_bytes)
		short_of = end - g->size_bytes;
	if (s->fs_bytes > s->base_bytes)
		short_of = max_u64(short_of, s->fs_bytes - s->base_bytes);
	if (s->external || g->size_bytes < ring_bytes + COW_BLK_BYTES)
		return short_of;
	/* the last place where the ring may start, and copy A before it */
	last = round_down_u64(g->disk_off_bytes + g->size_bytes - COW_BLK_BYTES - ring_bytes, unit);
	if (last >= g->disk_off_bytes + COW_BLK_BYTES)
		short_of = max_u64(short_of, s->fs_bytes - (last - g->disk_off_bytes - COW_BLK_BYTES));
	return short_of;
}

int super_plan(const struct card *base, const struct card *logcard, uint64_t fs_bytes, uint64_t log_bytes,
	       struct log_super *ret, uint64_t *ret_short_bytes)
{
	const struct card_geometry *g = &logcard->geo;
	bool external = base != logcard;
	struct log_super s = { .version = LOG_FORMAT_VERSION, .state = SUPER_VIRGIN };
	uint32_t eb = g->erase_block_bytes, seg = segment_bytes(eb);
	uint64_t unit = max_u64(eb, seg), want, end;

	*ret_short_bytes = 0;
	want = log_bytes ? log_bytes : max_u64(DEFAULT_LOG_BYTES, 8ull * eb);
	want = round_up_u64(want, unit);
	if (want / seg < LOG_MIN_SEGMENTS || want / eb < MIN_ERASE_BLOCKS || want / seg > LOG_MAX_SEGMENTS)
		return -EINVAL;
	s.external = external;
	s.fs_bytes = round_up_u64(fs_bytes, COW_BLK_BYTES);
	s.base_bytes = base->geo.size_bytes;
	s.log_bytes = g->size_bytes;
	s.copy_off_bytes[0] = external ? 0 : s.fs_bytes;
	s.ring_off_bytes =
		round_up_u64(g->disk_off_bytes + s.copy_off_bytes[0] + COW_BLK_BYTES, unit) - g->disk_off_bytes;
	end = s.ring_off_bytes + want + COW_BLK_BYTES;
	if (s.fs_bytes > s.base_bytes || end > g->size_bytes) {
		*ret_short_bytes = short_bytes(g, &s, want, unit);
		return -ENOSPC;
	}
	s.copy_off_bytes[1] = g->size_bytes - COW_BLK_BYTES;
	s.seg_bytes = seg;
	s.seg_count = (uint32_t)(want / seg);
	s.erase_block_bytes = eb;
	s.eb_source = g->eb_source;
	s.disk_off_bytes = g->disk_off_bytes;
	s.created_s = (uint64_t)time(NULL);
	*ret = s;
	return 0;
}

/* one copy: 0, -ENOENT nothing there, or why not */
static int read_copy(struct card *c, uint64_t off_bytes, uint8_t *blk, struct log_super *ret)
{
	int r;

	if (off_bytes % COW_BLK_BYTES || off_bytes > c->geo.size_bytes - COW_BLK_BYTES)
		return -ENOENT;
	r = card_read(c, off_bytes, blk, COW_BLK_BYTES);
	return r < 0 ? r : codec_get_super(blk, ret);
}

uint64_t super_pending_off(const struct card *c, unsigned i)
{
	uint64_t back = i < 32 ? (uint64_t)COW_BLK_BYTES << i : 0;

	return back && back < c->geo.size_bytes ? c->geo.size_bytes - back : 0;
}

/* The super record of a shrink that could not have the last block. */
static int read_pending(struct card *c, uint8_t *blk, struct log_super *ret)
{
	uint64_t off;

	for (unsigned i = 1; (off = super_pending_off(c, i)); i++) {
		struct log_super s;

		if (read_copy(c, off, blk, &s) == 0 && s.state == SUPER_PENDING && s.copy_off_bytes[1] == off) {
			*ret = s;
			return 0;
		}
	}
	return -ENOENT;
}

/* Else the device did not answer: nothing is known of the copy. */
static bool is_damage(int r)
{
	return r == -ENOENT || r == -EBADMSG || r == -EUCLEAN;
}

int super_read(struct card *c, uint64_t fs_bytes, struct log_super *ret, unsigned *ret_trouble)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	uint64_t last = c->geo.size_bytes - COW_BLK_BYTES, where = round_up_u64(fs_bytes, COW_BLK_BYTES);
	struct log_super a = { 0 }, b = { 0 }, *s;
	unsigned trouble = 0;
	int ra, rb;

	if (!blk)
		return -ENOMEM;
	if (c->geo.size_bytes < 2 * COW_BLK_BYTES)
		return -ENOENT;
	rb = read_copy(c, last, blk, &b);
	ra = read_copy(c, rb == 0 ? b.copy_off_bytes[0] : where, blk, &a);
	if (ra < 0 && ra != -EPROTONOSUPPORT && where) /* an external log has A at its start */
		if (read_copy(c, 0, blk, &a) == 0)
			ra = 0;
	if (ra == 0 && rb < 0 && a.copy_off_bytes[1] != last && read_copy(c, a.copy_off_bytes[1], blk, &b) == 0) {
		trouble |= SUPER_GROWN;
		rb = 0;
	}
	if (ra == -EPROTONOSUPPORT || rb == -EPROTONOSUPPORT) {
		*ret = ra == -EPROTONOSUPPORT ? a : b;
		*ret_trouble = SUPER_NEWER;
		return -EPROTONOSUPPORT;
	}
	if (ra < 0 && rb < 0 && read_pending(c, blk, &b) == 0)
		rb = 0;
	if (ra < 0 && rb < 0) {
		if (ra == -ENOENT && rb == -ENOENT)
			return -ENOENT;
		return !is_damage(ra) ? ra : !is_damage(rb) ? rb : -EBADMSG;
	}
	if (ra < 0)
		trouble |= SUPER_COPY_A_BAD;
	if (rb < 0)
		trouble |= SUPER_COPY_B_BAD;
	s = ra < 0 || (rb == 0 && b.revision > a.revision) ? &b : &a;
	if (ra == 0 && rb == 0 && a.revision != b.revision)
		trouble |= a.revision < b.revision ? SUPER_COPY_A_BAD : SUPER_COPY_B_BAD;
	if (s->log_bytes > c->geo.size_bytes)
		return -ERANGE;
	if (s->log_bytes < c->geo.size_bytes)
		trouble |= SUPER_GROWN;
	if (s->state == SUPER_PENDING) /* has but one */
		trouble &= ~(unsigned)SUPER_COPIES_BAD;
	*ret = *s;
	*ret_trouble = trouble;
	return 0;
}

int super_put_copy(struct card *c, const struct log_super *s, unsigned i)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);

	if (!blk)
		return -ENOMEM;
	codec_put_super(blk, s);
	return card_write(c, s->copy_off_bytes[i], blk, COW_BLK_BYTES);
}

int super_write_copy(struct card *c, const struct log_super *s, unsigned i)
{
	int r = super_put_copy(c, s, i);

	return r < 0 ? r : card_flush(c);
}

int super_write(struct card *c, struct log_super *s)
{
	s->revision++;
	/* where copy A will be, the file system that is being shrunk has something else */
	if (s->state != SUPER_PENDING) {
		int r = super_write_copy(c, s, 0);

		if (r < 0)
			return r;
	}
	return super_write_copy(c, s, 1);
}

int super_grow(struct card *c, struct log_super *s, uint64_t base_bytes)
{
	int r;

	s->log_bytes = c->geo.size_bytes;
	s->base_bytes = base_bytes;
	if (s->external)
		s->fs_bytes = round_down_u64(base_bytes, COW_BLK_BYTES);
	s->copy_off_bytes[1] = c->geo.size_bytes - COW_BLK_BYTES;
	s->revision++;
	r = super_write_copy(c, s, 1);
	return r < 0 ? r : super_write_copy(c, s, 0);
}
