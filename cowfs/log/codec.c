/* SPDX-License-Identifier: MIT */
/*
 * The codec of the on-card blocks. Every decoder checks in this order: magic, checksum,
 * identity, fields, bounds. It uses nothing before it is checked. docs/FORMAT.md has the tables;
 * a change here is a change of the format.
 */
#include "log/codec.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "log/escape.h"

/* One prefix for all magics. Payload that begins with it is escaped (escape.h), so content is
 * never one of these blocks. */
#define MAGIC(kind) LOG_MAGIC_PREFIX kind

static const char MAGIC_SUPER[8] = MAGIC("SUP"), MAGIC_HEAD[8] = MAGIC("SEG"),
		  MAGIC_DESC[8] = MAGIC("DSC"), MAGIC_RECORD[8] = MAGIC("REC"),
		  MAGIC_WEAR[8] = MAGIC("WER"), MAGIC_PAST[8] = MAGIC("OLD");

enum { OFF_CRC = 8, OFF_UUID = 16, OFF_BODY = 32 };

static struct bytes_writer begin(uint8_t *blk, const char magic[8], const uint8_t uuid[16])
{
	struct bytes_writer w = { .p = blk, .size_bytes = COW_BLK_BYTES };

	put_bytes(&w, magic, 8);
	put_u32(&w, 0); /* checksum, see seal() */
	put_u32(&w, 0);
	put_bytes(&w, uuid, 16);
	return w;
}

static uint32_t checksum(const uint8_t *blk)
{
	static const uint8_t zero[4];
	uint32_t c = crc32c(0, blk, OFF_CRC);

	c = crc32c(c, zero, 4);
	return crc32c(c, blk + OFF_CRC + 4, COW_BLK_BYTES - OFF_CRC - 4);
}

static void seal(uint8_t *blk)
{
	struct bytes_writer w = { .p = blk, .size_bytes = COW_BLK_BYTES, .pos = OFF_CRC };

	put_u32(&w, checksum(blk));
}

/* uuid NULL: any */
static int check(struct bytes_reader *r, const uint8_t *blk, const char magic[8],
		 const uint8_t *uuid)
{
	*r = (struct bytes_reader){ .p = blk, .size_bytes = COW_BLK_BYTES, .pos = OFF_CRC };
	if (memcmp(blk, magic, 8))
		return -ENOENT;
	if (get_u32(r) != checksum(blk))
		return -EBADMSG;
	if (get_u32(r) != 0)
		return -EUCLEAN;
	if (uuid && memcmp(blk + r->pos, uuid, 16))
		return -ENOENT;
	r->pos = OFF_BODY;
	return 0;
}

static bool rest_is_zero(struct bytes_reader *r)
{
	return get_zeroes(r, r->size_bytes - r->pos);
}

void codec_put_super(uint8_t blk[COW_BLK_BYTES], const struct log_super *s)
{
	struct bytes_writer w = begin(blk, MAGIC_SUPER, s->ring_uuid);

	put_u32(&w, s->version);
	put_u32(&w, (uint32_t)s->state);
	put_u64(&w, s->compat);
	put_u64(&w, s->ro_compat);
	put_u64(&w, s->incompat);
	put_u64(&w, s->revision);
	put_u64(&w, s->fs_bytes);
	put_u64(&w, s->base_bytes);
	put_u64(&w, s->log_bytes);
	put_u64(&w, s->copy_off_bytes[0]);
	put_u64(&w, s->copy_off_bytes[1]);
	put_u64(&w, s->ring_off_bytes);
	put_u32(&w, s->seg_bytes);
	put_u32(&w, s->seg_count);
	put_u32(&w, s->erase_block_bytes);
	put_u32(&w, s->eb_source);
	put_u64(&w, s->disk_off_bytes);
	put_u8(&w, s->external);
	put_u8(&w, s->lag);
	put_u8(&w, s->image_boots);
	put_u8(&w, 0);
	put_u32(&w, s->image);
	put_u64(&w, s->created_s);
	put_bytes(&w, s->fs_uuid, 16);
	put_u64(&w, s->imported_s);
	put_u64(&w, s->offered_s);
	seal(blk);
}

static bool super_sane(const struct log_super *s)
{
	uint64_t ring_bytes = (uint64_t)s->seg_bytes * s->seg_count;

	return s->state >= SUPER_VIRGIN && s->state <= SUPER_PENDING &&
	       s->seg_bytes >= LOG_MIN_SEG_BYTES && s->seg_bytes <= LOG_MAX_SEG_BYTES &&
	       s->seg_bytes % COW_BLK_BYTES == 0 && s->seg_count >= LOG_MIN_SEGMENTS &&
	       s->seg_count <= LOG_MAX_SEGMENTS && s->fs_bytes &&
	       s->fs_bytes % COW_BLK_BYTES == 0 && s->ring_off_bytes % COW_BLK_BYTES == 0 &&
	       s->external <= 1 && s->erase_block_bytes >= COW_BLK_BYTES &&
	       s->erase_block_bytes % COW_BLK_BYTES == 0 && s->fs_bytes <= s->base_bytes &&
	       s->log_bytes <= INT64_MAX && s->base_bytes <= INT64_MAX &&
	       s->ring_off_bytes <= s->log_bytes &&
	       ring_bytes <= s->log_bytes - s->ring_off_bytes &&
	       (s->external || s->state == SUPER_PENDING || s->ring_off_bytes >= s->fs_bytes) &&
	       s->copy_off_bytes[0] % COW_BLK_BYTES == 0 &&
	       s->copy_off_bytes[1] % COW_BLK_BYTES == 0 && s->copy_off_bytes[0] < s->log_bytes &&
	       s->copy_off_bytes[1] < s->log_bytes;
}

int codec_get_super(const uint8_t blk[COW_BLK_BYTES], struct log_super *ret)
{
	struct log_super s = { 0 };
	struct bytes_reader r;
	int e = check(&r, blk, MAGIC_SUPER, NULL);

	if (e < 0)
		return e;
	memcpy(s.ring_uuid, blk + 16, 16);
	s.version = get_u32(&r);
	s.state = (enum super_state)get_u32(&r);
	s.compat = get_u64(&r);
	s.ro_compat = get_u64(&r);
	s.incompat = get_u64(&r);
	if (s.version != LOG_FORMAT_VERSION || (s.incompat & ~LOG_INCOMPAT_KNOWN) ||
	    !(s.incompat & LOG_INCOMPAT_ESCAPED) || (s.ro_compat & ~LOG_RO_COMPAT_KNOWN)) {
		*ret = s;
		return -EPROTONOSUPPORT;
	}
	s.revision = get_u64(&r);
	s.fs_bytes = get_u64(&r);
	s.base_bytes = get_u64(&r);
	s.log_bytes = get_u64(&r);
	s.copy_off_bytes[0] = get_u64(&r);
	s.copy_off_bytes[1] = get_u64(&r);
	s.ring_off_bytes = get_u64(&r);
	s.seg_bytes = get_u32(&r);
	s.seg_count = get_u32(&r);
	s.erase_block_bytes = get_u32(&r);
	s.eb_source = get_u32(&r);
	s.disk_off_bytes = get_u64(&r);
	s.external = get_u8(&r);
	s.lag = get_u8(&r);
	s.image_boots = get_u8(&r);
	if (get_u8(&r))
		return -EUCLEAN;
	s.image = get_u32(&r);
	s.created_s = get_u64(&r);
	get_bytes(&r, s.fs_uuid, 16);
	s.imported_s = get_u64(&r);
	s.offered_s = get_u64(&r);
	if (!rest_is_zero(&r) || r.bad || !super_sane(&s))
		return -EUCLEAN;
	if (s.lag > LOG_MAX_LAG) {
		*ret = s;
		return -EPROTONOSUPPORT;
	}
	*ret = s;
	return 0;
}

/* The ring uuid of a superblock is drawn later. */
void codec_put_past(uint8_t blk[COW_BLK_BYTES], const struct log_super *s, const struct log_past *p)
{
	struct bytes_writer w = begin(blk, MAGIC_PAST, s->fs_uuid);

	put_u64(&w, s->created_s);
	put_u64(&w, p->cloned_s);
	put_u64(&w, p->first_s);
	put_u64(&w, p->absorbed_bytes);
	put_u64(&w, p->written_bytes);
	put_u64(&w, p->visits);
	put_u64(&w, p->commits);
	put_u64(&w, p->cards);
	put_u64(&w, p->all_written_bytes);
	put_bytes(&w, p->ring_uuid, sizeof(p->ring_uuid));
	put_bytes(&w, p->model, sizeof(p->model));
	put_bytes(&w, p->identity, sizeof(p->identity));
	seal(blk);
}

int codec_get_past(const uint8_t blk[COW_BLK_BYTES], const struct log_super *s,
		   struct log_past *ret)
{
	struct bytes_reader r;
	struct log_past p;
	int e = check(&r, blk, MAGIC_PAST, s->fs_uuid);

	if (e < 0)
		return e;
	if (get_u64(&r) != s->created_s)
		return -ENOENT;
	p.cloned_s = get_u64(&r);
	p.first_s = get_u64(&r);
	p.absorbed_bytes = get_u64(&r);
	p.written_bytes = get_u64(&r);
	p.visits = get_u64(&r);
	p.commits = get_u64(&r);
	p.cards = get_u64(&r);
	p.all_written_bytes = get_u64(&r);
	get_bytes(&r, p.ring_uuid, sizeof(p.ring_uuid));
	get_bytes(&r, p.model, sizeof(p.model));
	get_bytes(&r, p.identity, sizeof(p.identity));
	if (r.bad || p.model[sizeof(p.model) - 1] || p.identity[sizeof(p.identity) - 1])
		return -EUCLEAN;
	*ret = p;
	return 0;
}

static void put_ptr(struct bytes_writer *w, const struct record_ptr *p)
{
	put_u64(w, p->seq);
	put_u64(w, p->epoch);
	put_u64(w, p->lblk);
}

static struct record_ptr get_ptr(struct bytes_reader *r)
{
	struct record_ptr p;

	p.seq = get_u64(r);
	p.epoch = get_u64(r);
	p.lblk = get_u64(r);
	return p;
}

void codec_put_head(uint8_t blk[COW_BLK_BYTES], const struct log_head *h)
{
	struct bytes_writer w = begin(blk, MAGIC_HEAD, h->ring_uuid);

	put_u64(&w, h->epoch);
	put_u64(&w, h->serial);
	put_u32(&w, h->seg);
	put_u32(&w, 0);
	put_ptr(&w, &h->last);
	put_u64(&w, h->fallback_seq);
	seal(blk);
}

int codec_get_head(const uint8_t blk[COW_BLK_BYTES], const uint8_t uuid[16], struct log_head *ret)
{
	struct log_head h = { 0 };
	struct bytes_reader r;
	int e = check(&r, blk, MAGIC_HEAD, uuid);

	if (e < 0)
		return e;
	memcpy(h.ring_uuid, uuid, 16);
	h.epoch = get_u64(&r);
	h.serial = get_u64(&r);
	h.seg = get_u32(&r);
	if (!get_zeroes(&r, 4))
		return -EUCLEAN;
	h.last = get_ptr(&r);
	h.fallback_seq = get_u64(&r);
	if (!rest_is_zero(&r) || r.bad)
		return -EUCLEAN;
	*ret = h;
	return 0;
}

/* The ledger is a list of u64 in this order; new counters are added at its end (reserved room:
 * 64). */
enum { LEDGER_ROOM = 64 - 2 * LOG_SAMPLES };

static void ledger_fields(struct wear_ledger *l, uint64_t *f[LEDGER_ROOM], size_t *n)
{
	uint64_t *const all[] = { &l->absorbed_bytes,	&l->absorbed_writes,  &l->punched_bytes,
				  &l->free_blks,	&l->journal_blks,     &l->same_blks,
				  &l->direct_blks,	&l->logged_blks,      &l->zero_blks,
				  &l->checkpoint_blks,	&l->meta_blks,	      &l->super_blks,
				  &l->write_calls,	&l->written_bytes,    &l->flushes,
				  &l->commits,		&l->commits_failed,   &l->checkpoints,
				  &l->attaches,		&l->writable_ns,      &l->spilled_blks,
				  &l->hole_blks,	&l->padded_blks,      &l->cause_commits[0],
				  &l->cause_commits[1], &l->cause_commits[2], &l->cause_commits[3],
				  &l->cause_commits[4], &l->cause_commits[5], &l->visits,
				  &l->attached_ns,	&l->first_s,	      &l->foreign_bytes,
				  &l->foreign_first_s,	&l->table_losses,     &l->trims,
				  &l->trimmed_bytes,	&l->trimmed_s,	      &l->retried_ios,
				  &l->away_times };

	_Static_assert(ARRAY_SIZE(all) <= LEDGER_ROOM, "ledger too long for its space");
	_Static_assert(sizeof(all) / sizeof(all[0]) * 8 == sizeof(struct wear_ledger),
		       "a counter is missing here");
	*n = ARRAY_SIZE(all);
	memcpy(f, all, sizeof(all));
}

static void put_fingerprint(struct bytes_writer *w, const struct fs_fingerprint *f)
{
	put_u32(w, f->kind);
	put_u32(w, f->mtime);
	put_u32(w, f->wtime);
	put_u16(w, f->mnt_count);
	put_u16(w, f->state);
	put_u64(w, f->kbytes_written);
	put_u32(w, f->journal_seq);
	put_u32(w, f->sb_crc);
	put_u32(w, f->gdt_crc);
	put_u32(w, f->n_marks);
	put_bytes(w, f->uuid, 16);
}

static bool get_fingerprint(struct bytes_reader *r, struct fs_fingerprint *f)
{
	f->kind = get_u32(r);
	f->mtime = get_u32(r);
	f->wtime = get_u32(r);
	f->mnt_count = get_u16(r);
	f->state = get_u16(r);
	f->kbytes_written = get_u64(r);
	f->journal_seq = get_u32(r);
	f->sb_crc = get_u32(r);
	f->gdt_crc = get_u32(r);
	f->n_marks = get_u32(r);
	get_bytes(r, f->uuid, 16);
	return f->n_marks <= FS_MARKS;
}

static void put_marks(struct bytes_writer *w, const struct fs_fingerprint *f)
{
	for (uint32_t i = 0; i < f->n_marks; i++) {
		put_u64(w, f->mark[i].blk);
		for (int k = 0; k < 8; k++)
			put_u32(w, f->mark[i].sector_crc[k]);
	}
}

static void get_marks(struct bytes_reader *r, struct fs_fingerprint *f)
{
	for (uint32_t i = 0; i < f->n_marks; i++) {
		f->mark[i].blk = get_u64(r);
		for (int k = 0; k < 8; k++)
			f->mark[i].sector_crc[k] = get_u32(r);
	}
}

enum { OFF_WEAR = 1616 };

static void put_wear_ref(struct bytes_writer *w, const struct wear_ref *f)
{
	w->pos = OFF_WEAR;
	put_ptr(w, &f->prev);
	put_u64(w, f->lblk);
	put_u32(w, f->blks);
	put_u32(w, f->crc);
	put_u32(w, f->eb_blks);
	put_u32(w, f->unit_blks);
	put_u32(w, f->units[0]);
	put_u32(w, f->units[1]);
	put_u64(w, f->first_unit[0]);
	put_u64(w, f->first_unit[1]);
	put_u64(w, 0);
	put_u32(w, f->bytes);
}

static void get_wear_ref(struct bytes_reader *r, struct wear_ref *f)
{
	r->pos = OFF_WEAR;
	f->prev = get_ptr(r);
	f->lblk = get_u64(r);
	f->blks = get_u32(r);
	f->crc = get_u32(r);
	f->eb_blks = get_u32(r);
	f->unit_blks = get_u32(r);
	f->units[0] = get_u32(r);
	f->units[1] = get_u32(r);
	f->first_unit[0] = get_u64(r);
	f->first_unit[1] = get_u64(r);
	(void)get_u64(r); /* of 0.1.0 */
	f->bytes = get_u32(r);
	if (f->bytes > RECORD_WEAR_ROOM)
		*f = (struct wear_ref){ 0 };
}

void codec_put_record(uint8_t blk[COW_BLK_BYTES], const struct log_record *rec)
{
	struct bytes_writer w = begin(blk, MAGIC_RECORD, rec->ring_uuid);
	struct wear_ledger ledger = rec->ledger;
	uint64_t *f[LEDGER_ROOM];
	size_t n;

	put_u16(&w, (uint16_t)rec->type);
	put_u16(&w, (uint16_t)rec->cause);
	put_u32(&w, rec->flags);
	put_u64(&w, rec->epoch);
	put_u64(&w, rec->seq);
	put_u64(&w, rec->lblk);
	put_ptr(&w, &rec->prev);
	put_u64(&w, rec->tail_seq);
	put_u64(&w, rec->floor_seq);
	put_u64(&w, rec->fallback_seq);
	put_u64(&w, rec->start_lblk);
	put_u64(&w, rec->desc_lblk);
	put_u32(&w, rec->desc_blks);
	put_u32(&w, rec->desc_crc);
	put_u64(&w, rec->desc_epoch);
	put_u64(&w, rec->desc_seq);
	put_u64(&w, rec->direct_blks);
	put_u64(&w, rec->logged_blks);
	put_u64(&w, rec->zero_blks);
	put_u64(&w, rec->time_s);
	put_fingerprint(&w, &rec->fingerprint);
	put_bytes(&w, rec->identity, sizeof(rec->identity));
	ledger_fields(&ledger, f, &n);
	for (size_t i = 0; i < LEDGER_ROOM; i++)
		put_u64(&w, i < n ? *f[i] : 0);
	for (size_t i = 0; i < LOG_SAMPLES; i++) {
		put_u64(&w, rec->sample[i].blk);
		put_u64(&w, rec->sample[i].crc);
	}
	put_marks(&w, &rec->fingerprint);
	put_wear_ref(&w, &rec->wear);
	put_u32(&w, rec->copy_bytes);
	seal(blk);
}

int codec_get_record(const uint8_t blk[COW_BLK_BYTES], const uint8_t uuid[16],
		     struct log_record *ret)
{
	struct log_record rec = { 0 };
	struct bytes_reader r;
	uint64_t *f[LEDGER_ROOM];
	size_t n;
	int e = check(&r, blk, MAGIC_RECORD, uuid);

	if (e < 0)
		return e;
	memcpy(rec.ring_uuid, uuid, 16);
	rec.type = (enum record_type)get_u16(&r);
	rec.cause = (enum commit_cause)get_u16(&r);
	rec.flags = get_u32(&r);
	rec.epoch = get_u64(&r);
	rec.seq = get_u64(&r);
	rec.lblk = get_u64(&r);
	rec.prev = get_ptr(&r);
	rec.tail_seq = get_u64(&r);
	rec.floor_seq = get_u64(&r);
	rec.fallback_seq = get_u64(&r);
	rec.start_lblk = get_u64(&r);
	rec.desc_lblk = get_u64(&r);
	rec.desc_blks = get_u32(&r);
	rec.desc_crc = get_u32(&r);
	rec.desc_epoch = get_u64(&r);
	rec.desc_seq = get_u64(&r);
	rec.direct_blks = get_u64(&r);
	rec.logged_blks = get_u64(&r);
	rec.zero_blks = get_u64(&r);
	rec.time_s = get_u64(&r);
	if (!get_fingerprint(&r, &rec.fingerprint))
		return -EUCLEAN;
	get_bytes(&r, rec.identity, sizeof(rec.identity));
	rec.identity[sizeof(rec.identity) - 1] = '\0';
	ledger_fields(&rec.ledger, f, &n);
	for (size_t i = 0; i < n; i++)
		*f[i] = get_u64(&r);
	/* not checked: the rest of the room of the ledger may hold counters of a later release */
	r.pos += (LEDGER_ROOM - n) * 8;
	for (size_t i = 0; i < LOG_SAMPLES; i++) {
		rec.sample[i].blk = get_u64(&r);
		rec.sample[i].crc = get_u64(&r);
	}
	get_marks(&r, &rec.fingerprint);
	if (!get_zeroes(&r, OFF_WEAR - r.pos) || r.bad)
		return -EUCLEAN;
	get_wear_ref(&r, &rec.wear);
	rec.copy_bytes = get_u32(&r);
	if (rec.copy_bytes > min_u64(RECORD_COPY_MAX, RECORD_WEAR_ROOM - rec.wear.bytes))
		rec.copy_bytes = 0;
	if (rec.type < RECORD_COMMIT || rec.type > RECORD_RETIRED || !rec.seq ||
	    rec.prev.seq >= rec.seq || rec.tail_seq > rec.seq || rec.floor_seq > rec.seq ||
	    rec.fallback_seq > rec.seq || !rec.tail_seq)
		return -EUCLEAN;
	*ret = rec;
	return 0;
}

void codec_put_wear(uint8_t blk[COW_BLK_BYTES], const uint8_t uuid[16], uint64_t epoch,
		    uint64_t seq, uint32_t index, size_t len_bytes)
{
	struct bytes_writer w = begin(blk, MAGIC_WEAR, uuid);

	put_u64(&w, epoch);
	put_u64(&w, seq);
	put_u32(&w, index);
	put_u32(&w, (uint32_t)len_bytes);
	put_u64(&w, 0);
	seal(blk);
}

int codec_get_wear(const uint8_t blk[COW_BLK_BYTES], const uint8_t uuid[16], uint64_t epoch,
		   uint64_t seq, uint32_t index, size_t *ret_len_bytes)
{
	struct bytes_reader r;
	int e = check(&r, blk, MAGIC_WEAR, uuid);
	uint32_t len;

	if (e < 0)
		return e;
	if (get_u64(&r) != epoch || get_u64(&r) != seq || get_u32(&r) != index)
		return -EUCLEAN;
	len = get_u32(&r);
	if (len > WEAR_BLK_ROOM || get_u64(&r) != 0)
		return -EUCLEAN;
	*ret_len_bytes = len;
	return 0;
}

enum {
	OFF_SEQ = 48,
	OFF_DESC_EXTENTS = 52
}; /* of a record; the number of extents in a descriptor block */

size_t codec_desc_copy_bytes(size_t desc_bytes)
{
	return desc_bytes - OFF_DESC_EXTENTS;
}

void codec_put_desc_copy(uint8_t rec_blk[COW_BLK_BYTES], size_t wear_bytes,
			 const uint8_t desc[COW_BLK_BYTES], size_t desc_bytes)
{
	memcpy(rec_blk + RECORD_WEAR_OFF + wear_bytes, desc + OFF_DESC_EXTENTS,
	       codec_desc_copy_bytes(desc_bytes));
}

void codec_get_desc_copy(const uint8_t rec_blk[COW_BLK_BYTES], const struct log_record *rec,
			 uint8_t desc[COW_BLK_BYTES])
{
	size_t off = RECORD_WEAR_OFF + rec->wear.bytes;
	struct desc_writer w = { .blk = desc };

	memset(desc, 0, COW_BLK_BYTES);
	memcpy(desc + OFF_DESC_EXTENTS, rec_blk + off, COW_BLK_BYTES - off);
	w.extents = get_u32(&(struct bytes_reader){
		.p = desc, .size_bytes = COW_BLK_BYTES, .pos = OFF_DESC_EXTENTS });
	desc_seal(&w, rec->ring_uuid, rec->desc_epoch, rec->desc_seq, 0);
}

enum group_part codec_part_of(const uint8_t blk[COW_BLK_BYTES], const uint8_t uuid[16],
			      uint64_t epoch, uint64_t seq, uint32_t *ret_index)
{
	struct bytes_reader r;
	enum group_part part = check(&r, blk, MAGIC_DESC, uuid) == 0   ? PART_DESC
			       : check(&r, blk, MAGIC_WEAR, uuid) == 0 ? PART_WEAR
								       : PART_NONE;

	if (part == PART_NONE || get_u64(&r) != epoch || get_u64(&r) != seq)
		return PART_NONE;
	*ret_index = get_u32(&r);
	return part;
}

uint64_t codec_torn_seq(const uint8_t blk[COW_BLK_BYTES], const uint8_t uuid[16])
{
	struct bytes_reader r;

	if (check(&r, blk, MAGIC_RECORD, NULL) != -EBADMSG || memcmp(blk + OFF_UUID, uuid, 16))
		return 0;
	r.pos = OFF_SEQ;
	return get_u64(&r);
}

/* Does this type use lblk? */
static bool has_place(enum desc_type type)
{
	return type == DESC_LOGGED || type == DESC_SPILLED || type == DESC_LENT;
}

void desc_start(struct desc_writer *w, uint8_t *blk)
{
	*w = (struct desc_writer){ .blk = blk, .pos = DESC_HEADER_BYTES };
}

uint32_t desc_put(struct desc_writer *w, const struct desc_extent *e)
{
	struct bytes_writer b = { .p = w->blk, .size_bytes = COW_BLK_BYTES, .pos = w->pos };
	size_t room = COW_BLK_BYTES - w->pos;
	uint32_t blks = e->blks;

	if (room < DESC_EXTENT_BYTES)
		return 0;
	if (e->type != DESC_ZERO)
		blks = (uint32_t)min_u64(blks, (room - DESC_EXTENT_BYTES) / 4);
	if (!blks)
		return 0;
	put_u8(&b, (uint8_t)e->type);
	put_u8(&b, 0);
	put_u16(&b, 0);
	put_u32(&b, blks);
	put_u64(&b, e->blk);
	put_u64(&b, has_place(e->type) ? e->lblk : 0);
	for (uint32_t i = 0; e->type != DESC_ZERO && i < blks; i++)
		put_u32(&b, e->crc[i]);
	w->pos = b.pos;
	w->extents++;
	return blks;
}

void desc_seal(struct desc_writer *w, const uint8_t uuid[16], uint64_t epoch, uint64_t seq,
	       uint32_t index)
{
	struct bytes_writer b = begin(w->blk, MAGIC_DESC, uuid);

	put_u64(&b, epoch);
	put_u64(&b, seq);
	put_u32(&b, index);
	put_u32(&b, w->extents);
	put_u64(&b, 0);
	seal(w->blk);
}

int desc_open(struct desc_cursor *c, const uint8_t *blk, const uint8_t uuid[16], uint64_t epoch,
	      uint64_t seq, uint32_t index)
{
	struct bytes_reader r;
	int e = check(&r, blk, MAGIC_DESC, uuid);

	if (e < 0)
		return -EBADMSG;
	if (get_u64(&r) != epoch || get_u64(&r) != seq || get_u32(&r) != index)
		return -EBADMSG;
	c->blk = blk;
	c->left = get_u32(&r);
	c->pos = DESC_HEADER_BYTES;
	return get_u64(&r) == 0 ? 0 : -EBADMSG;
}

int desc_next(struct desc_cursor *c, struct desc_extent *ret)
{
	struct bytes_reader r = { .p = c->blk, .size_bytes = COW_BLK_BYTES, .pos = c->pos };
	struct desc_extent e = { 0 };

	if (!c->left)
		return rest_is_zero(&r) ? 0 : -EUCLEAN;
	e.type = (enum desc_type)get_u8(&r);
	if (!get_zeroes(&r, 3))
		return -EUCLEAN;
	e.blks = get_u32(&r);
	e.blk = get_u64(&r);
	e.lblk = get_u64(&r);
	if (r.bad || !e.blks || e.type < DESC_LOGGED || e.type > DESC_JOINT ||
	    e.blk > INT64_MAX >> COW_BLK_SHIFT || e.lblk > INT64_MAX >> COW_BLK_SHIFT)
		return -EUCLEAN;
	if (e.lblk && !has_place(e.type))
		return -EUCLEAN;
	if (e.type != DESC_ZERO) {
		if (e.blks > ARRAY_SIZE(c->crcs))
			return -EUCLEAN;
		for (uint32_t i = 0; i < e.blks; i++)
			c->crcs[i] = get_u32(&r);
		e.crc = c->crcs;
	}
	if (r.bad)
		return -EUCLEAN;
	c->pos = r.pos;
	c->left--;
	*ret = e;
	return 1;
}
