/* SPDX-License-Identifier: MIT */
/*
 * The first superblock on the base, where it is one that takes the guard (fs/guard.h): docs/FORMAT.md,
 * "The guard".
 *
 * Rules
 * G1  No record of a commit is written before the guard is durable.
 * G2  While its block is written on the base, the newest durable record has its true content: in the
 *     log, or as a copy in the record itself.
 * G3  The guard goes only when nothing is left in the log, and the newest durable record says so.
 * G4  No record needs to follow, and count that write: if none does, nothing is sent between the
 *     newest record and the write, and the record says which guard is there. The next opening looks
 *     whether that guard is gone (taken), and counts the write then. What else this session has sent
 *     behind its newest record gets one more.
 */
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "fs/guard.h"
#include "log/rules.h"

uint32_t guarded_owner(const struct log *l)
{
	return crc32c(0, l->super.ring_uuid, sizeof(l->super.ring_uuid)) & ~(uint32_t)GUARD_ODD;
}

static bool has_seen(const struct log_record *rec, bool odd)
{
	return rec->flags & RECORD_GUARDED && odd == !!(rec->flags & RECORD_GUARD_ODD);
}

void guarded_put(struct log *l, uint8_t *blk)
{
	struct guarded *g = &l->guarded;

	g->odd = has_seen(&l->newest, false);
	guard_put(blk, guarded_owner(l) | (g->odd ? GUARD_ODD : 0));
}

static uint64_t count_sent(const struct log *l)
{
	const struct card_account *a = &l->card->account, *b = &l->base->account;

	return a->write_calls + a->flushes + (a == b ? 0 : b->write_calls + b->flushes);
}

void guarded_count(struct wear_ledger *t, uint64_t n)
{
	t->checkpoint_blks += n;
	t->write_calls += n;
	t->written_bytes += n * COW_BLK_BYTES;
	t->flushes += n;
	t->visits += n; /* the ring is in other erase blocks */
}

static void take_truth(struct log *l)
{
	struct guarded *g = &l->guarded;

	g->copied = false;
	g->copies = 0;
	g->packed_bytes = guard_fits(g->truth) ? guard_pack(g->truth, g->packed, sizeof(g->packed))
					       : 0;
}

/* What all readers of the base get. Always, and not only while the guard is there: then no read of
 * the card is under way when it comes. */
int guarded_show(struct log *l)
{
	const struct guarded *g = &l->guarded;

	return card_show(l->base, blk_to_bytes(g->blk),
			 g->packed_bytes || g->state != GUARD_OFF ? g->truth : NULL);
}

int guarded_copy_of(struct log *l, const struct log_record *rec, uint8_t *copy)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	struct log_record now;
	int r = blk ? ring_read_same(l, record_ptr_of(rec), blk, &now) : -ENOMEM;

	if (r == -EBADMSG)
		return 0;
	if (r < 0)
		return r;
	return now.copy_bytes &&
	       guard_unpack(blk + COW_BLK_BYTES - now.copy_bytes, now.copy_bytes, copy) &&
	       guard_fits(copy);
}

/* With LOG_ANY_BASE nothing was compared: is there another file system? */
static bool is_another_fs(struct log *l, const uint8_t *bare)
{
	struct fs_fingerprint fp;

	return l->flags & LOG_ANY_BASE && memcmp(bare, l->guarded.truth, COW_BLK_BYTES) &&
	       (ring_base_fingerprint(l, &fp) < 0 || fp.kind != FS_UNKNOWN);
}

static int read_at(struct log *l, uint64_t blk, uint8_t *bare)
{
	l->guarded.blk = blk;
	return card_read_bare(l->base, blk_to_bytes(blk), bare, COW_BLK_BYTES);
}

static int read_bare(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return card_read_bare(ctx, blk_to_bytes(blk), buf, blk_to_bytes(blks));
}

static int find_home(struct log *l, uint8_t *bare)
{
	struct blk_reader home = ring_base_reader(l, read_bare, l->base);
	uint64_t blk;
	int r = guard_find(&home, &blk);

	return r < 0 ? r : read_at(l, blk, bare);
}

/* G4. truth: the copy that the newest record has. A guard that the record has not seen came after
 * that write. */
static int look_taken(struct log *l, uint8_t *bare)
{
	const struct log_record *head = &l->wear.head;
	struct guarded *g = &l->guarded;
	uint32_t owner;
	int r = read_at(l, guard_blk(g->truth), bare);

	/* a later record that was rejected has counted it */
	g->taken = r == 0 && l->newest.flags & RECORD_GUARDED && head->seq == l->newest.seq &&
		   head->epoch == l->newest.epoch &&
		   !(guard_is(bare, &owner) && has_seen(&l->newest, owner & GUARD_ODD));
	g->taken_blk = g->blk;
	return r;
}

int guarded_opened(struct log *l, bool changed)
{
	_cleanup_free_ uint8_t *bare = io_alloc(COW_BLK_BYTES);
	struct guarded *g = &l->guarded;
	int r = bare ? 0 : -ENOMEM, copied = 0;
	bool counts = !changed && l->state != EPOCH_BROKEN && !log_index_blks(l->index);
	uint32_t owner;

	if (r == 0 && !g->truth)
		g->truth = io_alloc(COW_BLK_BYTES);
	if (r < 0 || !g->truth)
		return -ENOMEM;
	if (l->super.state == SUPER_PENDING)
		return card_show(l->base, 0, NULL);
	if (l->newest.copy_bytes)
		copied = guarded_copy_of(l, &l->newest, g->truth);
	if (copied < 0 && counts)
		return copied;
	r = copied > 0 ? look_taken(l, bare) : find_home(l, bare);
	if (r == 0 && copied > 0 &&
	    (!counts || (!guard_is(bare, NULL) && is_another_fs(l, bare)))) {
		copied = 0;
		r = find_home(l, bare);
	}
	/* a base that cannot be read gets no guard */
	if (r < 0)
		return card_show(l->base, 0, NULL);
	g->state = guard_is(bare, &owner) ? GUARD_ON : GUARD_OFF;
	g->odd = g->state == GUARD_ON && owner & GUARD_ODD;
	if (copied > 0 && g->state == GUARD_OFF && memcmp(bare, g->truth, COW_BLK_BYTES))
		g->state = GUARD_UNSURE;
	if (copied <= 0) {
		memcpy(g->truth, bare, COW_BLK_BYTES);
		guard_take(g->truth);
	}
	take_truth(l);
	g->copied = copied > 0;
	return guarded_show(l);
}

void guarded_close(struct log *l)
{
	free(l->guarded.truth);
}

/* ---- records ---- */

uint32_t guarded_copy_bytes(const struct log *l, enum record_type type)
{
	/* behind a retired record the base may change */
	return (type == RECORD_OPEN || type == RECORD_TAIL) && !log_index_blks(l->index)
		       ? (uint32_t)l->guarded.packed_bytes
		       : 0;
}

void guarded_fill_record(const struct log *l, struct log_record *rec, uint8_t *blk)
{
	rec->copy_bytes = guarded_copy_bytes(l, rec->type);
	if (rec->copy_bytes && l->guarded.state == GUARD_ON)
		rec->flags |= RECORD_GUARDED | (l->guarded.odd ? RECORD_GUARD_ODD : 0);
	memcpy(blk + COW_BLK_BYTES - rec->copy_bytes, l->guarded.packed, rec->copy_bytes);
}

void guarded_accept(struct log *l, const struct log_record *rec)
{
	l->guarded.copied = rec->copy_bytes;
	l->guarded.since++;
	l->guarded.sent = count_sent(l);
	l->guarded.copies = rec->copy_bytes ? l->guarded.copies + 1 : 0;
}

/* ---- the guard comes ---- */

/* G2. A record of a commit is not enough: recovery would not take garbage in the block for that of a
 * write of cowfs. */
bool guarded_is_covered(const struct log *l)
{
	return l->guarded.copied ||
	       (log_index_has(l->index, l->guarded.blk) && l->newest.type != RECORD_COMMIT);
}

bool guarded_wants_copy(const struct log *l)
{
	return l->guarded.packed_bytes && l->guarded.state != GUARD_ON && !guarded_is_covered(l) &&
	       !log_index_blks(l->index);
}

static int write_first(struct log *l, const uint8_t *blk, enum guard_state to)
{
	struct guarded *g = &l->guarded;
	int r = rules_guard_write(l, to == GUARD_OFF);

	if (r < 0)
		return r;
	r = card_write(l->base, blk_to_bytes(g->blk), blk, COW_BLK_BYTES);
	g->mark = l->base->writes;
	g->since = 0;
	g->state = r < 0 ? GUARD_UNSURE : to;
	l->suspect |= r < 0;
	return r;
}

bool guarded_is_due(const struct log *l)
{
	return l->guarded.packed_bytes && l->guarded.state != GUARD_ON && guarded_is_covered(l);
}

static int guarded_set(struct log *l)
{
	_cleanup_free_ uint8_t *blk = NULL;
	int r;

	if (!guarded_is_due(l))
		return 0;
	blk = io_alloc(COW_BLK_BYTES);
	if (!blk)
		return -ENOMEM;
	memcpy(blk, l->guarded.truth, COW_BLK_BYTES);
	guarded_put(l, blk);
	r = write_first(l, blk, GUARD_ON);
	l->ledger.meta_blks += r == 0;
	return r;
}

static int set_now(struct log *l)
{
	int r = guarded_set(l);

	if (r == 0)
		r = record_flush(l);
	guarded_failed(l);
	return r;
}

int guarded_repair(struct log *l)
{
	return l->guarded.state == GUARD_UNSURE && guarded_is_due(l) ? set_now(l) : 0;
}

int guarded_before_home(struct log *l)
{
	int r;

	if (!guarded_is_due(l))
		return 0;
	r = set_now(l);
	return r < 0 ? r : lag_pad(l, 2);
}

/*
 * The guard is the first write of an attempt, so that what follows in the ring stays together; the
 * FLUSH of the attempt is its own. On a card that loses what it acknowledged last, both candidates
 * have the copy, and two records come in between.
 */
int guarded_begin(struct log *l)
{
	struct guarded *g = &l->guarded;
	bool due = guarded_is_due(l);
	int r = 0;

	if (!lag_on(l))
		return guarded_set(l);
	if (due && g->copied && g->copies < 2)
		r = lag_pad(l, 2 - g->copies);
	if (r == 0)
		r = guarded_set(l);
	if (r == 0 && due)
		r = record_flush(l);
	guarded_failed(l);
	return r == 0 && g->state == GUARD_ON && g->since < 2 ? lag_pad(l, 2 - g->since) : r;
}

void guarded_failed(struct log *l)
{
	if (!card_is_durable(l->base, l->guarded.mark))
		l->guarded.state = GUARD_UNSURE;
}

int guarded_log_first(struct log *l)
{
	uint64_t blk = l->guarded.blk;

	if (!l->guarded.packed_bytes || log_index_has(l->index, blk))
		return 0;
	for (size_t i = 0; i < l->at.list.n; i++)
		if (blk - l->at.list.e[i].blk < l->at.list.e[i].blks)
			return 0;
	return log_add_logged(l, blk, 1, l->guarded.truth);
}

uint64_t guarded_extra_blks(const struct log *l)
{
	return l->guarded.packed_bytes && !log_index_has(l->index, l->guarded.blk);
}

/* ---- the guard goes ---- */

bool guarded_fits(const struct log *l, uint64_t blk, const uint8_t *next)
{
	uint8_t packed[RECORD_COPY_MAX];

	return log_index_has(l->index, blk) && guard_fits(next) &&
	       guard_pack(next, packed, sizeof(packed));
}

int guarded_leave(struct log *l)
{
	struct guarded *g = &l->guarded;

	if (!log_index_has(l->index, g->blk))
		return 0;
	g->state = GUARD_OFF;
	g->packed_bytes = 0;
	return guarded_show(l);
}

int guarded_home(struct log *l, uint64_t blk, const uint8_t *next)
{
	struct guarded *g = &l->guarded;

	if (!log_index_has(l->index, blk) && !log_index_has(l->index, g->blk))
		return 0;
	if (!guarded_fits(l, blk, next))
		g->state = GUARD_OFF;
	else if (g->state == GUARD_OFF || blk != g->blk)
		g->state = GUARD_ON;
	g->blk = blk;
	memcpy(g->truth, next, COW_BLK_BYTES);
	take_truth(l);
	return guarded_show(l);
}

bool log_guarded(const struct log *l)
{
	return l->guarded.state != GUARD_OFF && l->guarded.copied && !log_index_blks(l->index);
}

int guarded_take_off(struct log *l)
{
	int r;

	if (!log_guarded(l))
		return 0;
	r = write_first(l, l->guarded.truth, GUARD_OFF);
	l->ledger.checkpoint_blks += r == 0;
	if (r == 0)
		r = card_flush(l->base);
	guarded_failed(l);
	l->suspect |= r < 0;
	return r;
}

int log_unguard(struct log *l)
{
	const struct guarded *g = &l->guarded;
	bool counted = g->sent == count_sent(l);
	int r = 0;

	if (!counted || (log_guarded(l) && !has_seen(&l->newest, g->odd))) /* G4 */
		r = log_put_tail(l, l->newest.type, l->newest.flags & RECORD_CLEAN,
				 l->newest.cause);
	return r < 0 ? r : guarded_take_off(l);
}
