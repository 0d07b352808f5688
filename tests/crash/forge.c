/* SPDX-License-Identifier: MIT */
/*
 * Forgeries: content of files that is, byte for byte, what recovery searches for in the ring. Its
 * author knows the format, the ring uuid, every record, and the place in the ring where the content
 * will lie.
 *
 * None may be accepted: after a commit of them the newest generation is the genuine one, nothing
 * was rejected, every block reads as it was written, and the ledger is the card's own.
 */
#include <stdio.h>
#include <string.h>

#include "attacks.h"
#include "base/crc32c.h"
#include "log/codec.h"
#include "log/ring.h"

enum { FORGED_MAX = 2048, ROUND_BLKS = 60, TURNS = 6 };

enum kind {
	AS_RECORD = 1 << 0,
	AS_SUPER = 1 << 1,
	AS_HEAD = 1 << 2,
	AS_DESC = 1 << 3,
	AS_WEAR = 1 << 4,
	AS_COPY = 1 << 5,  /* of a block that lies in this card's ring at present */
	AS_GROUP = 1 << 6, /* payload, descriptor and record that belong together */
	AS_ANYTHING = (1 << 7) - 1,
};

uint64_t forgeries = 10000;

static _Alignas(4096) uint8_t forged[FORGED_MAX][COW_BLK_BYTES];

const uint8_t *forged_content(unsigned n)
{
	return forged[n];
}

/* knowledge of the author of a file */
struct author {
	struct world *w;
	const struct log_super *super;
	const struct log_record *newest;
	uint64_t lblk[ROUND_BLKS]; /* place of the k-th block */
};

static uint64_t any(struct author *a, uint64_t n)
{
	return rnd_below(a->w, n);
}

static uint64_t high(struct author *a, uint64_t genuine)
{
	const uint64_t all[] = { genuine,
				 genuine + 1,
				 genuine + 2 + any(a, 5),
				 genuine + 1000000,
				 UINT64_MAX - 1,
				 UINT64_MAX,
				 genuine ? genuine - 1 : 1,
				 ((genuine >> 32) + 1) << 32 | any(a, UINT32_MAX) };

	return all[any(a, ARRAY_SIZE(all))];
}

static struct record_ptr pointer(struct author *a)
{
	const struct log_record *n = a->newest;

	switch (any(a, 4)) {
	case 0:
		return (struct record_ptr){ 0 };
	case 1:
		return n->prev;
	case 2:
		return (struct record_ptr){ high(a, n->seq), n->epoch,
					    a->lblk[any(a, ROUND_BLKS)] };
	default:
		return (struct record_ptr){ n->seq, n->epoch, n->lblk };
	}
}

static struct log_record some_record(struct author *a, unsigned k)
{
	const struct log_record *n = a->newest;
	struct log_record r = *n; /* identity, marks and ledger are mostly right */

	r.type = (enum record_type)(RECORD_COMMIT + any(a, 5));
	r.flags = (uint32_t)any(a, 2);
	r.epoch = high(a, n->epoch);
	r.seq = high(a, n->seq);
	r.lblk = any(a, 16) ? a->lblk[k] : a->lblk[any(a, ROUND_BLKS)];
	r.start_lblk = a->lblk[any(a, k + 1)];
	r.prev = pointer(a);
	if (r.prev.seq >= r.seq)
		r.prev = (struct record_ptr){ 0 };
	r.tail_seq = any(a, 3) ? r.seq : min_u64(r.seq, n->seq);
	r.floor_seq = any(a, 3) ? r.seq : min_u64(r.seq, n->seq);
	r.fallback_seq = any(a, 3) ? r.seq : any(a, 2) ? 0 : min_u64(r.seq, n->seq);
	if (!any(a, 3))
		r.desc_blks = 0;
	if (!any(a, 2))
		r.fingerprint = (struct fs_fingerprint){ 0 };
	if (!any(a, 4))
		memset(&r.ledger, 0x7f, sizeof(r.ledger));
	if (!any(a, 2))
		r.wear = (struct wear_ref){ 0 };
	return r;
}

static void put_record(struct author *a, unsigned k, uint8_t *blk)
{
	struct log_record r = some_record(a, k);

	codec_put_record(blk, &r);
}

static void put_super(struct author *a, unsigned k, uint8_t *blk)
{
	struct log_super s = *a->super;
	uint64_t here = s.ring_off_bytes + blk_to_bytes(a->lblk[k]);

	s.state = any(a, 2) ? SUPER_PENDING : SUPER_LIVE;
	s.revision = high(a, s.revision);
	s.copy_off_bytes[any(a, 2)] = here;
	if (any(a, 2))
		s.copy_off_bytes[1] = here;
	if (any(a, 2))
		s.ring_uuid[any(a, 16)] ^= 1;
	if (any(a, 2))
		s.incompat = any(a, 4);
	codec_put_super(blk, &s);
}

static void put_head(struct author *a, unsigned k, uint8_t *blk)
{
	struct log_head h = { .epoch = high(a, a->newest->epoch),
			      .serial = high(a, 100),
			      .seg = (uint32_t)(any(a, 2) ? a->lblk[k] * COW_BLK_BYTES /
								    a->super->seg_bytes
							  : any(a, a->super->seg_count)),
			      .last = pointer(a),
			      .fallback_seq = high(a, a->newest->seq) };

	memcpy(h.ring_uuid, a->super->ring_uuid, 16);
	codec_put_head(blk, &h);
}

static void put_desc(struct author *a, uint64_t epoch, uint64_t seq, uint64_t lblk, uint32_t crc,
		     uint8_t *blk)
{
	const struct desc_extent e = { .type = (enum desc_type)(lblk ? DESC_LOGGED : DESC_ZERO),
				       .blks = 1,
				       .blk = any(a, a->w->shape.blks),
				       .lblk = lblk,
				       .crc = &crc };
	struct desc_writer w;

	desc_start(&w, blk);
	if (desc_put(&w, &e) != 1)
		fail("a descriptor cannot be forged");
	desc_seal(&w, a->super->ring_uuid, epoch, seq, 0);
}

static void put_wear(struct author *a, uint8_t *blk)
{
	memset(blk + WEAR_BLK_OFF, 0x7f, 64);
	codec_put_wear(blk, a->super->ring_uuid, a->newest->epoch, high(a, a->newest->seq),
		       (uint32_t)any(a, 3), 64);
}

/* The content of the ring at the place where this block will lie, or at any other. */
static void put_copy(struct author *a, unsigned k, uint8_t *blk)
{
	uint64_t blks = (uint64_t)a->super->seg_bytes / COW_BLK_BYTES * a->super->seg_count;
	uint64_t lblk = any(a, 2) ? a->lblk[k] : any(a, 4) ? a->newest->lblk : any(a, blks);

	if (sim_peek(a->w->c.log, a->super->ring_off_bytes + blk_to_bytes(lblk), blk,
		     COW_BLK_BYTES) < 0)
		fail("peek");
}

/* Three blocks from the k-th on. */
static void put_group(struct author *a, unsigned k, uint8_t *payload, uint8_t *desc,
		      uint8_t *record)
{
	struct log_record r = some_record(a, k + 2);

	memset(payload, (int)(1 + any(a, 255)), COW_BLK_BYTES);
	r.lblk = a->lblk[k + 2];
	r.start_lblk = a->lblk[k];
	r.desc_lblk = a->lblk[k + 1];
	r.desc_blks = 1;
	r.desc_epoch = r.epoch;
	r.desc_seq = r.seq;
	put_desc(a, r.epoch, r.seq, a->lblk[k], crc32c_back(payload, COW_BLK_BYTES), desc);
	r.desc_crc = crc32c(0, desc, COW_BLK_BYTES);
	codec_put_record(record, &r);
}

/* ---- a commit of them ---- */

/* The k-th block of the next commit will lie at the cursor: nothing comes before it. */
static void look_ahead(struct author *a)
{
	const struct log *l = a->w->log;
	uint64_t lblk = l->cursor % l->seg_blks ? l->cursor : l->cursor + 1;

	for (unsigned k = 0; k < ROUND_BLKS; k++, lblk = ring_next(l, lblk))
		a->lblk[k] = lblk;
}

/* Each block of the volume has a few slots in turn: the content of older generations stays
 * unchanged. */
static unsigned next_slot(unsigned blk)
{
	static uint8_t turn[MAX_BLKS];

	turn[blk] = (uint8_t)((turn[blk] + 1) % TURNS);
	return blk * TURNS + turn[blk];
}

static unsigned write_some(struct author *a, unsigned kinds, unsigned n)
{
	uint8_t *slot[ROUND_BLKS];

	for (unsigned k = 0; k < n; k++) {
		unsigned s = next_slot(k + 1);

		slot[k] = forged[s];
		memset(slot[k], 0, COW_BLK_BYTES);
		live_write(a->w, k + 1, FORGED + s);
	}
	for (unsigned k = 0; k < n; k++) {
		unsigned kind;

		do
			kind = 1u << any(a, 7);
		while (!(kind & kinds) || (kind == AS_GROUP && k + 3 > n && kinds != AS_GROUP));
		switch (kind) {
		case AS_RECORD:
			put_record(a, k, slot[k]);
			break;
		case AS_SUPER:
			put_super(a, k, slot[k]);
			break;
		case AS_HEAD:
			put_head(a, k, slot[k]);
			break;
		case AS_DESC:
			put_desc(a, high(a, a->newest->epoch), high(a, a->newest->seq), any(a, 2),
				 0, slot[k]);
			break;
		case AS_WEAR:
			put_wear(a, slot[k]);
			break;
		case AS_COPY:
			put_copy(a, k, slot[k]);
			break;
		default:
			if (k + 3 > n) {
				put_record(a, k, slot[k]);
				break;
			}
			put_group(a, k, slot[k], slot[k + 1], slot[k + 2]);
			k += 2;
		}
	}
	return n;
}

/* ---- is one of them accepted? ---- */

static void check_genuine(struct world *w, const struct log_record *is)
{
	const struct log_open_report *r = &w->rep;

	if (r->rejected || r->state == LOG_FELL_BACK || r->state >= LOG_BROKEN)
		fail("a forgery was looked at: %u rejected, state %d, %s", r->rejected, r->state,
		     r->why);
	if (r->newest.seq != is->seq || r->newest.epoch != is->epoch ||
	    r->newest.lblk != is->lblk || r->highest_seq != is->seq)
		fail("a forgery was accepted: record %llu of epoch %llx instead of %llu of %llx",
		     (unsigned long long)r->newest.seq, (unsigned long long)r->newest.epoch,
		     (unsigned long long)is->seq, (unsigned long long)is->epoch);
	if (memcmp(&r->ledger, &is->ledger, offsetof(struct wear_ledger, attaches)))
		fail("the ledger is a forged one");
	log_wear_load(w->log);
	if (log_ledger(w->log)->table_losses != is->ledger.table_losses)
		fail("a forgery cost a part of the wear table");
}

/* No superblock is found if both copies are gone, and a forged one in a file could lie where
 * recovery searches for a pending one. */
static void check_super(struct world *w)
{
	static const uint8_t none[COW_BLK_BYTES];
	struct log_super s;
	struct cards c;
	unsigned trouble;

	cards_clone(&c, &w->c);
	for (int i = 0; i < 2; i++)
		if (sim_poke(c.log, log_super(w->log)->copy_off_bytes[i], none, sizeof(none)) < 0)
			fail("poke");
	if (super_read(c.log, w->shape.external ? 0 : blk_to_bytes(w->shape.blks), &s, &trouble) ==
	    0)
		fail("a superblock in a file was taken for the log's");
	cards_close(&c);
}

static void check_now(struct world *w, unsigned how)
{
	struct log_record is;

	at.step++;
	if (how == 1 && world_checkpoint(w, RECORD_TAIL, RECORD_CLEAN) < 0)
		fail("checkpoint");
	is = *log_newest(w->log);
	if (how == 1) /* the next session counts the end of this one */
		log_totals(w->log, &is.ledger);
	if (how == 2) {
		world_cut(w, NULL, NULL);
	} else {
		world_close(w);
		world_open(w);
		live_revert(w);
	}
	check_genuine(w, &is);
	check_super(w);
}

/* Room for the commit, and no epoch to open: then its place is known. */
static void make_ready(struct world *w, unsigned n, unsigned turn)
{
	w->mute = true;
	live_write(w, 0, 1 + turn % 100);
	for (unsigned b = 64; w->shape.heavy && b < w->shape.blks; b++)
		live_free(w, b); /* for what spills */
	attack_commit_ok(w);
	if (!log_spilled(w->log) && log_room_blks(w->log) >= n + 5)
		return;
	attack_expect(world_checkpoint(w, RECORD_TAIL, 0) == 0, "checkpoint");
	if (!w->shape.lag)
		return;
	live_write(w, 0, 101 + turn % 100); /* with records ahead of it, for the guard */
	attack_commit_ok(w);
}

static void forge_turn(struct world *w, unsigned kinds, unsigned turn, bool cuts, bool *reached,
		       uint64_t *done)
{
	unsigned room = (unsigned)(w->shape.heavy ? 52
						  : min_u64(w->shape.blks - 2,
							    log_capacity_blks(w->log) -
								    (w->shape.lag ? 16 : 5)));
	unsigned n = 1 + (unsigned)rnd_below(w, room);
	struct author a = { .w = w, .super = log_super(w->log), .newest = log_newest(w->log) };

	make_ready(w, n, turn);
	look_ahead(&a);
	*done += write_some(&a, kinds, n);
	w->mute = !cuts || turn % 8;
	attack_commit_ok(w);
	w->mute = true;
	if (w->bill.logged == n && !w->bill.spilled) { /* no zeroes, and none unchanged */
		if (log_newest(w->log)->start_lblk != a.lblk[0])
			fail("the forgeries lie elsewhere than foreseen: at %llu, not %llu",
			     (unsigned long long)log_newest(w->log)->start_lblk,
			     (unsigned long long)a.lblk[0]);
		for (unsigned k = 0; k < n; k++)
			reached[a.lblk[k]] = true;
	}
	check_now(w, turn % 4);
}

/* Counts places of the ring where no forgery has lain. */
static uint64_t missed(const struct world *w, const bool *reached)
{
	uint64_t seg_blks = log_super(w->log)->seg_bytes / COW_BLK_BYTES, n = 0;

	for (uint64_t i = 0; i < seg_blks * log_super(w->log)->seg_count; i++)
		n += i % seg_blks && !reached[i];
	return n;
}

static void forge_world(const struct shape *s, uint64_t seed, unsigned kinds, uint64_t want,
			bool cuts, uint64_t *done)
{
	struct world w;
	bool *reached;

	attack_start(&w, s, seed);
	w.mute = true;
	reached = calloc(log_super(w.log)->seg_bytes / COW_BLK_BYTES, log_super(w.log)->seg_count);
	if (!reached)
		fail("no memory");
	for (unsigned turn = 0; *done < want || missed(&w, reached); turn++) {
		forge_turn(&w, kinds, turn, cuts, reached, done);
		if (turn > 5000)
			fail("%llu places of the ring are never reached",
			     (unsigned long long)missed(&w, reached));
	}
	free(reached);
	world_free(&w);
}

static const struct shape forge_shapes[] = {
	{ .blks = 24, .full = true },
	{ .blks = 40, .full = true, .lag = 1, .segs = 8 },
	{ .blks = 24, .full = true, .external = true },
	{ .blks = 96, .full = true, .heavy = true },
};

static void forge_all(unsigned kinds, uint64_t each, bool cuts)
{
	uint64_t done = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(forge_shapes); i++) {
		uint64_t want = done + each;

		forge_world(&forge_shapes[i], i + 1, kinds, want, cuts, &done);
	}
}

static void as_record(void)
{
	forge_all(AS_RECORD, 300, true);
}
static void as_super(void)
{
	forge_all(AS_SUPER, 300, true);
}
static void as_head(void)
{
	forge_all(AS_HEAD, 300, true);
}
static void as_group(void)
{
	forge_all(AS_GROUP | AS_DESC, 300, true);
}
static void as_wear(void)
{
	forge_all(AS_WEAR, 300, true);
}
static void as_copy(void)
{
	forge_all(AS_COPY, 300, true);
}

static void forgery(void)
{
	uint64_t done = 0;

	for (uint64_t seed = 1; done < forgeries; seed++)
		forge_world(&forge_shapes[seed % ARRAY_SIZE(forge_shapes)], seed * 31, AS_ANYTHING,
			    min_u64(forgeries, done + 4000), false, &done);
	printf("crash: %llu forgeries in files, 0 accepted\n", (unsigned long long)done);
}

const struct attack forge_attacks[] = {
	{ "file-record", "a file is a record of this log, in every place of the ring", as_record },
	{ "file-super", "a file is a superblock of this log", as_super },
	{ "file-head", "a file is a segment head", as_head },
	{ "file-group", "a file is payload, descriptors and record of a whole commit", as_group },
	{ "file-wear", "a file is a copy of the wear table", as_wear },
	{ "file-copy", "a file is an image of this card's own ring", as_copy },
	{ "forgeries", "files that are any of these, by the thousand (--forgeries N)", forgery },
};
const unsigned n_forge_attacks = ARRAY_SIZE(forge_attacks);
