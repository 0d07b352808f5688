/* SPDX-License-Identifier: MIT */
/*
 * The superblock of the log: it says where the ring lies. There are two copies. A lies right
 * behind the file system, so that a grown partition still finds it. B is the last block of the
 * device, so that a new file system over the old one does not hide that there was a log. It is
 * seldom written: docs/FORMAT.md ("Superblock") says when.
 *
 * No copy counts where a file of the file system on the base could lie, because a user controls
 * that content (super_find).
 */
#include <errno.h>
#include <string.h>

#include "base/io.h"
#include "fs/guard.h"
#include "fs/shrink_mark.h"
#include "log/codec.h"
#include "log/log.h"

#define DEFAULT_LOG_BYTES (32 * MIB)
#define ROOMY_LOG_BYTES (64 * MIB) /* the default of a large card, if there is room */
#define ROOMY_CARD_BYTES GIB
#define MIN_ERASE_BLOCKS 5u /* three are the reserve, see ring.c */

/* A segment is one erase block, or the largest whole part of one up to LOG_MAX_SEG_BYTES, or as
 * many erase blocks as needed for LOG_MIN_SEG_BYTES. */
static uint32_t segment_bytes(uint32_t eb_bytes)
{
	if (eb_bytes < LOG_MIN_SEG_BYTES)
		return (uint32_t)round_up_u64(LOG_MIN_SEG_BYTES, eb_bytes);
	for (uint32_t k = 1; eb_bytes / k >= LOG_MIN_SEG_BYTES; k++)
		if (eb_bytes % k == 0 && eb_bytes / k <= LOG_MAX_SEG_BYTES &&
		    eb_bytes / k % COW_BLK_BYTES == 0)
			return eb_bytes / k;
	return LOG_MAX_SEG_BYTES;
}

/* By how much the file system must shrink or the device must grow; enough for either. */
static uint64_t short_bytes(const struct card_geometry *g, const struct log_super *s,
			    uint64_t ring_bytes, uint64_t unit)
{
	uint64_t end = s->ring_off_bytes + ring_bytes + COW_BLK_BYTES, short_of = 0, last;

	if (end > g->size_bytes)
		short_of = end - g->size_bytes;
	if (s->fs_bytes > s->base_bytes)
		short_of = max_u64(short_of, s->fs_bytes - s->base_bytes);
	if (s->external || g->size_bytes < ring_bytes + COW_BLK_BYTES)
		return short_of;
	/* the last possible start of the ring, with copy A before it; in an unaligned partition
	 * the ring starts up to a block later (ring_start) */
	last = g->disk_off_bytes + g->size_bytes - COW_BLK_BYTES - ring_bytes;
	last = round_down_u64(last - (g->disk_off_bytes % COW_BLK_BYTES ? COW_BLK_BYTES : 0), unit);
	if (last >= g->disk_off_bytes + COW_BLK_BYTES)
		short_of = max_u64(short_of, round_up_u64(s->fs_bytes - (last - g->disk_off_bytes -
									 COW_BLK_BYTES),
							  COW_BLK_BYTES));
	return short_of;
}

/* Aligned to the erase blocks of the disk. A partition that does not start at a multiple of 4
 * KiB has no block at such a place. Then this is the first block behind it, because the format
 * counts in blocks of the partition. */
static uint64_t ring_start(const struct card_geometry *g, uint64_t from_bytes, uint64_t unit)
{
	uint64_t on_disk = round_up_u64(g->disk_off_bytes + from_bytes, unit);

	return round_up_u64(on_disk - g->disk_off_bytes, COW_BLK_BYTES);
}

static int plan_size(const struct card *base, const struct card *logcard, uint64_t fs_bytes,
		     uint64_t want, struct log_super *ret, uint64_t *ret_short_bytes)
{
	const struct card_geometry *g = &logcard->geo;
	bool external = base != logcard;
	struct log_super s = { .version = LOG_FORMAT_VERSION,
			       .state = SUPER_VIRGIN,
			       .incompat = LOG_INCOMPAT_ESCAPED };
	uint32_t eb = g->erase_block_bytes, seg = segment_bytes(eb);
	uint64_t unit = max_u64(eb, seg), end;

	*ret_short_bytes = 0;
	want = round_up_u64(want, unit);
	if (want / seg < LOG_MIN_SEGMENTS || want / eb < MIN_ERASE_BLOCKS ||
	    want / seg > LOG_MAX_SEGMENTS)
		return -EINVAL;
	s.external = external;
	s.fs_bytes = round_up_u64(fs_bytes, COW_BLK_BYTES);
	s.base_bytes = base->geo.size_bytes;
	s.log_bytes = g->size_bytes;
	s.copy_off_bytes[0] = external ? 0 : s.fs_bytes;
	s.ring_off_bytes = ring_start(g, s.copy_off_bytes[0] + COW_BLK_BYTES, unit);
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

int super_plan(const struct card *base, const struct card *logcard, uint64_t fs_bytes,
	       uint64_t log_bytes, struct log_super *ret, uint64_t *ret_short_bytes)
{
	uint64_t least = max_u64(DEFAULT_LOG_BYTES, 8ull * logcard->geo.erase_block_bytes);

	if (!log_bytes && least < ROOMY_LOG_BYTES && logcard->geo.size_bytes >= ROOMY_CARD_BYTES &&
	    plan_size(base, logcard, fs_bytes, ROOMY_LOG_BYTES, ret, ret_short_bytes) == 0)
		return 0;
	return plan_size(base, logcard, fs_bytes, log_bytes ? log_bytes : least, ret,
			 ret_short_bytes);
}

/* Reads one copy: 0, -ENOENT no copy there, or another error. Everything before end_bytes
 * belongs to the file system on the base. */
static int read_copy(struct card *c, uint64_t off_bytes, uint64_t end_bytes, unsigned i,
		     uint8_t *blk, struct log_super *ret)
{
	struct log_super s;
	int r;

	if (off_bytes % COW_BLK_BYTES || off_bytes > c->geo.size_bytes - COW_BLK_BYTES ||
	    off_bytes < end_bytes)
		return -ENOENT;
	r = card_read(c, off_bytes, blk, COW_BLK_BYTES);
	if (r == 0)
		r = codec_get_super(blk, &s);
	if (r == -EPROTONOSUPPORT)
		*ret = s;
	if (r < 0)
		return r;
	/* next to a file system, an external log lies on a device of its own, and copy A of any
	 * other log lies right behind the file system */
	if (s.state == SUPER_PENDING || s.copy_off_bytes[i] != off_bytes ||
	    (s.external && end_bytes) || s.copy_off_bytes[0] != (s.external ? 0 : s.fs_bytes))
		return -ENOENT;
	*ret = s;
	return 0;
}

uint64_t super_pending_off(const struct card *c, unsigned i)
{
	uint64_t back = i < 32 ? (uint64_t)COW_BLK_BYTES << i : 0;

	return back && back < c->geo.size_bytes ? c->geo.size_bytes - back : 0;
}

/* Otherwise the device did not answer, and the copy is unknown. */
static bool is_damage(int r)
{
	return r == -ENOENT || r == -EBADMSG || r == -EUCLEAN;
}

int super_read(struct card *c, uint64_t fs_bytes, struct log_super *ret, unsigned *ret_trouble)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	uint64_t last = c->geo.size_bytes - COW_BLK_BYTES, end;
	struct log_super a = { 0 }, b = { 0 }, *s;
	unsigned trouble = 0;
	int ra, rb;

	if (!blk)
		return -ENOMEM;
	if (c->geo.size_bytes < 2 * COW_BLK_BYTES || fs_bytes > c->geo.size_bytes)
		return -ENOENT;
	end = round_up_u64(fs_bytes, COW_BLK_BYTES);
	rb = read_copy(c, last, end, 1, blk, &b);
	ra = read_copy(c, rb == 0 ? b.copy_off_bytes[0] : end, end, 0, blk, &a);
	/* left from before an image was written over it: a copy that grow moved is of the same
	 * life */
	if (ra == 0 && rb == 0 && a.copy_off_bytes[1] != last &&
	    (a.state != b.state || memcmp(a.ring_uuid, b.ring_uuid, sizeof(a.ring_uuid))))
		rb = -ENOENT;
	if (ra == 0 && rb < 0 && a.copy_off_bytes[1] != last &&
	    read_copy(c, a.copy_off_bytes[1], end, 1, blk, &b) == 0) {
		trouble |= SUPER_GROWN;
		rb = 0;
	}
	if (ra == -EPROTONOSUPPORT || rb == -EPROTONOSUPPORT) {
		*ret = ra == -EPROTONOSUPPORT ? a : b;
		*ret_trouble = SUPER_NEWER;
		return -EPROTONOSUPPORT;
	}
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
	*ret = *s;
	if (s->log_bytes > c->geo.size_bytes && super_least_bytes(s) > c->geo.size_bytes)
		return -ERANGE;
	if (s->log_bytes > c->geo.size_bytes) { /* an image on a smaller card lacks copy B alone */
		ret->log_bytes = c->geo.size_bytes;
		ret->base_bytes = s->external ? s->base_bytes : c->geo.size_bytes;
		ret->copy_off_bytes[1] = last;
		ret->revision++; /* the new B is newer than A, which is written after it */
		trouble |= SUPER_COPY_B_BAD | SUPER_SHORTENED;
	}
	if (s->log_bytes < c->geo.size_bytes)
		trouble |= SUPER_GROWN;
	*ret_trouble = trouble;
	return 0;
}

uint64_t super_least_bytes(const struct log_super *s)
{
	return s->ring_off_bytes + (uint64_t)s->seg_bytes * s->seg_count + COW_BLK_BYTES;
}

/* ---- finding it on a device with a file system ---- */

static int read_base(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	int r = card_read(ctx, blk_to_bytes(blk), buf, blk_to_bytes(blks));

	if (r == 0)
		guard_take_all(blk, blks, buf);
	return r;
}

struct blk_reader super_reader(struct card *base)
{
	return (struct blk_reader){ .read = read_base,
				    .ctx = base,
				    .volume_blks = base->geo.size_bytes / COW_BLK_BYTES };
}

static int read_guard_blk(struct card *base, uint64_t *ret_blk, uint8_t *buf)
{
	struct blk_reader reader = super_reader(base);
	int r = guard_find(&reader, ret_blk);

	return r < 0 ? r : card_read_bare(base, blk_to_bytes(*ret_blk), buf, COW_BLK_BYTES);
}

int super_guarded(struct card *base, bool *ret)
{
	_cleanup_free_ uint8_t *buf = io_alloc(COW_BLK_BYTES);
	uint64_t blk;
	int r = buf ? read_guard_blk(base, &blk, buf) : -ENOMEM;

	*ret = r == 0 && guard_is(buf, NULL);
	return r;
}

bool super_log_missing(struct card *base)
{
	bool guarded;

	return super_guarded(base, &guarded) == 0 && guarded;
}

bool super_whole_alone(struct card *base)
{
	_cleanup_free_ uint8_t *buf = io_alloc(COW_BLK_BYTES);
	uint64_t blk;

	return buf && read_guard_blk(base, &blk, buf) == 0 && guard_fits(buf);
}

int super_unguard(struct card *base)
{
	_cleanup_free_ uint8_t *buf = io_alloc(COW_BLK_BYTES);
	uint64_t blk;
	int r = buf ? read_guard_blk(base, &blk, buf) : -ENOMEM;

	if (r < 0 || !guard_is(buf, NULL))
		return r;
	guard_take(buf);
	r = card_write(base, blk_to_bytes(blk), buf, COW_BLK_BYTES);
	return r < 0 ? r : card_flush(base);
}

/* A device for a log only: if it has a file system as well, that owns the last block, too. */
static int find_external(struct card *logcard, struct log_super *ret, unsigned *ret_trouble)
{
	struct blk_reader r = super_reader(logcard);
	struct fsinfo fs;
	int e = super_read(logcard, 0, ret, ret_trouble);

	if (e < 0 || !(*ret_trouble & SUPER_COPY_A_BAD))
		return e;
	e = fsinfo_probe(&r, &fs);
	return e < 0 ? e : fs.kind == FS_UNKNOWN ? 0 : -ENOENT;
}

/* What the base of a shrink says about its superblock. */
struct home {
	uint8_t *blk0;
	uint64_t end_bytes; /* of its file system; 0: unknown */
	bool gone;	    /* its superblock is garbage, and nothing else was found there */
};

static int look_home(struct card *base, const struct fsinfo *fs, struct home *h)
{
	struct blk_reader r = super_reader(base);
	bool other = true;
	int e;

	h->blk0 = io_alloc(COW_BLK_BYTES);
	e = h->blk0 ? card_read(base, 0, h->blk0, COW_BLK_BYTES) : -ENOMEM;
	if (e == 0)
		guard_take(h->blk0);
	h->end_bytes = fs->size_bytes;
	if (e == 0 && fs->kind == FS_UNKNOWN)
		e = shrink_mark_signature(&r, &other);
	h->gone = !other;
	if (e == 0 && h->gone)
		e = shrink_mark_backup_end(&r, &h->end_bytes);
	return e;
}

/*
 * Every possible place of a pending superblock can be a block of a file, so the base decides. 0:
 * the base vouches for this one. -ENOENT: it vouches for none; *ret_n is their number, and *ret
 * is the first of them.
 */
static int find_pending(struct card *c, const struct home *h, struct log_super *ret,
			unsigned *ret_n)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	uint64_t off;

	*ret_n = 0;
	if (!blk)
		return -ENOMEM;
	for (unsigned i = 0; (off = super_pending_off(c, i)); i++) {
		struct log_super s;

		if (card_read(c, off, blk, COW_BLK_BYTES) < 0 || codec_get_super(blk, &s) < 0 ||
		    s.state != SUPER_PENDING || s.copy_off_bytes[1] != off || s.external ||
		    s.log_bytes != c->geo.size_bytes)
			continue;
		if (!*ret_n || shrink_mark_look(h->blk0, s.ring_uuid) == SHRINK_MARK_MATCH)
			*ret = s;
		++*ret_n;
		if (shrink_mark_look(h->blk0, s.ring_uuid) == SHRINK_MARK_MATCH)
			return 0;
	}
	return -ENOENT;
}

/* Was a file system grown over the log? Only for a good message. */
static bool is_void(struct card *c, uint64_t end_bytes, struct log_super *ret)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);

	return blk && end_bytes &&
	       read_copy(c, c->geo.size_bytes - COW_BLK_BYTES, 0, 1, blk, ret) == 0 &&
	       !ret->external && ret->fs_bytes < end_bytes;
}

static int find_internal(struct card *c, const struct home *h, unsigned flags,
			 struct log_super *ret, unsigned *ret_trouble)
{
	struct log_super pending;
	unsigned n;
	int r = find_pending(c, h, &pending, &n), e;
	/* a shrink had begun: no other program leaves tags. If the superblock is destroyed, only
	 * this pending one can say */
	bool begun = n && ((flags & SUPER_ANY_HOME) || (h->gone && n == 1) ||
			   shrink_mark_look(h->blk0, pending.ring_uuid) == SHRINK_MARK_STALE);

	*ret_trouble = 0;
	if (r == 0)
		*ret = pending;
	if (r != -ENOENT)
		return r;
	r = super_read(c, h->end_bytes, ret, ret_trouble);
	/* a log that was never used writes nothing home: it is the one that the shrink leaves,
	 * so the shrink comes first */
	if (begun && (is_damage(r) || (r == 0 && h->gone && ret->state == SUPER_VIRGIN))) {
		*ret_trouble = 0;
		*ret = pending;
		return 0;
	}
	e = r == 0 ? super_overgrown(ret, h->end_bytes)
		   : r == -ENOENT && is_void(c, h->end_bytes, ret);
	if (r == -ENOENT && n)
		*ret_trouble = SUPER_CUT_OFF;
	return e ? -ESTALE : r;
}

/*
 * An array whose superblock is at the end of its members (md 0.90, 1.0) is a shorter image of each of
 * them. A write to a member alone makes them differ, and the array does not notice.
 */
static int check_member(struct card *base, const struct log_super *s)
{
	struct blk_reader r = super_reader(base);
	bool member = false;
	int e = 0;

	if (base->geo.size_bytes > s->base_bytes)
		e = shrink_mark_member(&r, &member);
	return e < 0 ? e : member ? -EXDEV : 0;
}

static int find(struct card *base, struct card *logcard, const struct fsinfo *fs, unsigned flags,
		struct log_super *ret, unsigned *ret_trouble)
{
	struct home h = { 0 };
	int r;

	*ret_trouble = 0;
	if (base != logcard)
		return find_external(logcard, ret, ret_trouble);
	if (base->geo.size_bytes < 2 * COW_BLK_BYTES)
		return -ENOENT;
	r = look_home(base, fs, &h);
	if (r == 0)
		r = find_internal(base, &h, flags, ret, ret_trouble);
	free(h.blk0);
	return r;
}

int super_find(struct card *base, struct card *logcard, const struct fsinfo *fs, unsigned flags,
	       struct log_super *ret, unsigned *ret_trouble)
{
	int r = find(base, logcard, fs, flags, ret, ret_trouble);

	return r < 0 ? r : check_member(base, ret);
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
	/* what another session wrote, and could not flush, may be the other copy */
	int r = card_flush(c);

	s->revision++;
	/* at the future place of copy A, the file system that is being shrunk has other content */
	if (r == 0 && s->state != SUPER_PENDING)
		r = super_write_copy(c, s, 0);
	return r < 0 ? r : super_write_copy(c, s, 1);
}

int super_grow(struct card *c, struct log_super *s, uint64_t base_bytes)
{
	int r = card_flush(c); /* as above */

	s->log_bytes = c->geo.size_bytes;
	s->base_bytes = base_bytes;
	if (s->external)
		s->fs_bytes = round_down_u64(base_bytes, COW_BLK_BYTES);
	s->copy_off_bytes[1] = c->geo.size_bytes - COW_BLK_BYTES;
	s->revision++;
	if (r == 0)
		r = super_write_copy(c, s, 1);
	return r < 0 ? r : super_write_copy(c, s, 0);
}

/* It lies behind copy A, where nothing else does. -ENOSPC: the ring begins there. */
static int past_place(const struct log_super *s, uint64_t *ret_off_bytes)
{
	*ret_off_bytes = s->copy_off_bytes[0] + COW_BLK_BYTES;
	return s->external || s->state == SUPER_PENDING ||
			       s->ring_off_bytes < *ret_off_bytes + COW_BLK_BYTES
		       ? -ENOSPC
		       : 0;
}

int super_put_past(struct card *c, const struct log_super *s, const struct log_past *p)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	uint64_t off_bytes;
	int r = past_place(s, &off_bytes);

	if (r < 0 || !blk)
		return r < 0 ? r : -ENOMEM;
	codec_put_past(blk, s, p);
	r = card_write(c, off_bytes, blk, COW_BLK_BYTES);
	return r < 0 ? r : card_flush(c);
}

int super_get_past(struct card *c, const struct log_super *s, struct log_past *ret)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	uint64_t off_bytes;
	int r = past_place(s, &off_bytes);

	if (r < 0 || !blk)
		return r < 0 ? r : -ENOMEM;
	r = card_read(c, off_bytes, blk, COW_BLK_BYTES);
	return r < 0 ? r : codec_get_past(blk, s, ret);
}
