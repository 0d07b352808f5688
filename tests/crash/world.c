/* SPDX-License-Identifier: MIT */
/* The toy file system, its generations, and the log operations of a session: the oracle's side. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "crash.h"
#include "log/codec.h"

struct position at;
struct totals total;
int verbose;
uint64_t thin = 1;
int collateral, force_ext4;
int force_lag = -1, force_lie = -1;
bool force_away;
bool measure;

static _Alignas(4096) uint8_t contents[CONTENTS][COW_BLK_BYTES], volume[MAX_BLKS * COW_BLK_BYTES];

uint64_t rnd_below(struct world *w, uint64_t n)
{
	return rnd_next(&w->rnd) % n;
}

void fail(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "crash: FAILED: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\ncrash: again with: make crash REPLAY=%s:%llu:%llu:%llu:%llu%s\n",
		at.attack ? at.attack : "w", (unsigned long long)at.seed,
		(unsigned long long)at.step, (unsigned long long)at.cut,
		(unsigned long long)at.variant, at.options);
	exit(1);
}

void say(const char *fmt, ...)
{
	va_list ap;

	if (!verbose && !(at.replay && at.seed == at.want.seed && at.step <= at.want.step &&
			  at.step + 3 >= at.want.step))
		return;
	printf("%llu:%llu  ", (unsigned long long)at.step, (unsigned long long)at.cut);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

enum super_kind super_kind;
enum { MARK_AT = 304 };

static void random_bytes(uint8_t *p, size_t len_bytes, uint64_t *seed)
{
	for (size_t k = 0; k < len_bytes; k++)
		p[k] = (uint8_t)rnd_next(seed);
}

static void make_ext(uint8_t *blk, unsigned n, uint64_t *seed)
{
	uint8_t *sb = blk + 1024;

	random_bytes(sb, 0x180, seed);
	le_set(sb, 0x18, 8, 2);	  /* blocks of 4 KiB */
	memset(sb + 0x20, 0, 12); /* groups of nothing */
	le_set(sb, 0x38, 2, 0xef53);
	le_set(sb, 0x4c, 4, 1);
	le_set(sb, 0x5c, 4, n % 3 ? 4 : 0);
	le_set(sb, 0x60, 4, n % 3 == 1 ? 4 : 0);
	le_set(sb, 0x64, 4, n % 5 ? 0x400 : 0);
	memset(sb + 0x68, 0x5a, 16);
	random_bytes(sb + 0x3fc, 4, seed);
}

static void make_xfs(uint8_t *sb, uint64_t *seed)
{
	random_bytes(sb, 264, seed);
	random_bytes(sb + 512, 512, seed); /* the next one, of the first group */
	memcpy(sb, "XFSB\0\0\x10", 8);	   /* blocks of 4 KiB */
	memset(sb + 16, 0, 8);		   /* no realtime section */
	memset(sb + 32, 0x5a, 16);
	memcpy(sb + 100, "\xb4\xa5\2", 4); /* version 5, sectors of 512 bytes */
	sb[212] = sb[219] = sb[220] = 0;
	le_set(sb, 224, 4, 0);
	le_set(sb, 224, 4, crc32c(0, sb, 512));
}

static void make_btrfs(uint8_t *sb, unsigned n, uint64_t *seed)
{
	random_bytes(sb + 32, 900, seed);
	random_bytes(sb + 0xb2b, 500, seed);
	memset(sb + 0x20, 0x5a, 16);
	le_set(sb, 0x30, 8, 65536);
	memcpy(sb + 0x40, "_BHRfS_M", 8);
	le_set(sb, 0x60, 8, n % 3 ? 0 : 4096 * n);
	le_set(sb, 0x88, 8, 1);
	le_set(sb, 0x90, 4, 16384);
	le_set(sb, 0xb4, 8, n % 4);
	le_set(sb, 0xc4, 2, 0);
	le_set(sb, 0, 4, crc32c(0, sb + 32, COW_BLK_BYTES - 32));
}

/* Superblocks of a file system that no tool opens: the toy's bitmap. All are of one kind and one
 * uuid; some have a journal, and orphans. */
static const uint8_t *super_of(unsigned n)
{
	static uint8_t supers[SUPER_KINDS][CONTENTS][COW_BLK_BYTES];
	static bool made[SUPER_KINDS][CONTENTS];
	uint8_t *blk = supers[super_kind][n];
	uint64_t seed = n + 1;

	if (made[super_kind][n])
		return blk;
	made[super_kind][n] = true;
	if (super_kind == SUPER_EXT)
		make_ext(blk, n, &seed);
	else if (super_kind == SUPER_XFS)
		make_xfs(blk, &seed);
	else
		make_btrfs(blk, n, &seed);
	return blk;
}

unsigned super_content(unsigned content)
{
	return content < CONTENTS ? SUPERS + content : content;
}

const uint8_t mark[16] = "mark of metadata";

bool is_marked(const uint8_t *blk)
{
	return !memcmp(blk + MARK_AT, mark, sizeof(mark));
}

const uint8_t *content_of(unsigned content)
{
	if (!contents[1][0])
		for (uint64_t i = 1, s = 1; i < CONTENTS; i++) {
			for (size_t k = 0; k < COW_BLK_BYTES; k += 8)
				memcpy(&contents[i][k], &(uint64_t){ rnd_next(&s) | 1 }, 8);
			if (i % 6 == 5)
				memcpy(&contents[i][MARK_AT], mark, sizeof(mark));
		}
	if (content >= FORGED)
		return forged_content(content - FORGED);
	if (content >= SUPERS)
		return super_of(content - SUPERS);
	if (content >= ENVS)
		return loader_content(content - ENVS);
	return content < CONTENTS ? contents[content] : ext4_content(content);
}

/* ---- the two cards ---- */

static void format(struct world *w)
{
	const struct shape *s = &w->shape;
	unsigned seg_blks = s->seg_blks ? s->seg_blks : 16,
		 per_eb = s->segs_per_eb ? s->segs_per_eb : 1;
	unsigned segs = (unsigned)max_u64(s->segs, max_u64(LOG_MIN_SEGMENTS, 5ull * per_eb));
	struct sim_params p = { .erase_block_bytes = seg_blks * per_eb * COW_BLK_BYTES,
				.disk_off_bytes = 32 * KIB };
	uint64_t fs_bytes = blk_to_bytes(s->blks), missing, ring_bytes;
	struct log_super super;
	int r;

	ring_bytes = round_up_u64(blk_to_bytes((uint64_t)segs * seg_blks), p.erase_block_bytes) +
		     p.erase_block_bytes;
	p.size_bytes = (s->external ? 0 : fs_bytes) + ring_bytes + 2ull * p.erase_block_bytes;
	if (sim_new(&w->c.log, &p) < 0)
		fail("no card");
	w->c.base = w->c.log;
	p.size_bytes = fs_bytes;
	if (s->external && sim_new(&w->c.base, &p) < 0)
		fail("no card");
	r = super_plan(w->c.base, w->c.log, fs_bytes, ring_bytes, &super, &missing);
	if (r < 0)
		fail("super_plan: %s, %llu bytes short", strerror(-r), (unsigned long long)missing);
	/* real cards have erase blocks of several segments only above 4 MiB: too large for here */
	super.seg_bytes = seg_blks * COW_BLK_BYTES;
	super.seg_count = segs;
	super.lag = (uint8_t)s->lag;
	for (unsigned b = 0; b < s->blks; b++)
		if (sim_poke(w->c.base, blk_to_bytes(b), content_of(w->n.content[b]),
			     COW_BLK_BYTES) < 0)
			fail("poke");
	if (card_set_writable(w->c.log, true) < 0 || super_write(w->c.log, &super) < 0 ||
	    card_set_writable(w->c.log, false) < 0)
		fail("super_write");
	cards_account_reset(&w->c);
}

void world_new(struct world *w, const struct shape *s, uint64_t seed)
{
	*w = (struct world){ .shape = *s, .rnd = seed, .lie = s->lie };
	super_kind = s->ext4 ? SUPER_EXT : seed % (at.attack || s->blks <= 16 ? 2 : 3);
	content_of(1);
	if (s->ext4)
		ext4_begin(w);
	for (unsigned b = 0; !s->ext4 && b < s->blks; b++) {
		w->n.use[b] = IS_FIXED(b) || s->no_classifier || s->full ||
					      rnd_below(w, 5) < (s->heavy ? 3 : 2)
				      ? USE_USED
				      : USE_FREE;
		if (!IS_FIXED(b) && !s->no_classifier && rnd_below(w, 20) == 0)
			w->n.use[b] = USE_JOURNAL;
		w->n.content[b] = (uint16_t)rnd_below(w, CONTENTS);
		if (b == BITMAP_BLK)
			w->n.content[b] = (uint16_t)super_content(w->n.content[b]);
	}
	w->live = w->n;
	format(w);
	/* A card that also loses what it acknowledged would have to be read back with luck: a lost
	 * block of zeros, and a trimmed block that reads zero just then. */
	sim_set_noise(w->c.base, !s->lie);
	sim_seed(w->c.base, rnd_next(&w->rnd));
	sim_seed(w->c.log, rnd_next(&w->rnd));
	hook_cards(w);
	world_open(w);
}

void world_free(struct world *w)
{
	world_close(w);
	cards_close(&w->kept);
	cards_close(&w->c);
}

uint64_t world_ops(const struct world *w)
{
	return sim_ops(w->c.base) + (w->c.log != w->c.base ? sim_ops(w->c.log) : 0);
}

uint64_t world_writes(const struct world *w)
{
	return w->c.base->writes + (w->c.log != w->c.base ? w->c.log->writes : 0);
}

/* ---- the visible volume ---- */

const uint8_t *volume_read(const struct world *w, const struct cards *c, const struct log_index *ix)
{
	int r = log_index_read_volume(ix, c->base, 0, w->shape.blks, volume);

	if (r < 0 && (w->rotten || measure))
		return NULL;
	if (r < 0)
		fail("the volume cannot be read: %s", strerror(-r));
	return volume;
}

int image_differs(const struct image *im, const uint8_t *v, unsigned blks)
{
	for (unsigned b = 0; b < blks; b++)
		if (im->use[b] == USE_USED &&
		    memcmp(v + blk_to_bytes(b), content_of(im->content[b]), COW_BLK_BYTES))
			return (int)b;
	return -1;
}

static void check_view(struct world *w, const char *when)
{
	int b = image_differs(&w->n, volume_read(w, &w->c, w->index), w->shape.blks);

	if (b >= 0)
		fail("%s: block %d of the committed image reads wrong", when, b);
}

void world_check_base(struct world *w, bool guarded)
{
	static uint8_t blk[COW_BLK_BYTES];

	for (unsigned b = 0; b < w->shape.blks; b++) {
		/* no record comes behind the last write of the superblock */
		if (w->n.use[b] != USE_USED || (b == BITMAP_BLK && (guarded || w->lie)))
			continue;
		if (sim_peek(w->c.base, blk_to_bytes(b), blk, sizeof(blk)) < 0 ||
		    memcmp(blk, content_of(w->n.content[b]), sizeof(blk)))
			fail("block %u is not home after a checkpoint", b);
	}
}

/* ---- sessions ---- */

static void ledger_take_sent(struct wear_ledger *to, const struct wear_ledger *sent)
{
	to->checkpoint_blks = sent->checkpoint_blks;
	to->written_bytes = sent->written_bytes;
	to->write_calls = sent->write_calls;
	to->flushes = sent->flushes;
	to->visits = sent->visits;
}

static void ledger_equal(const struct wear_ledger *sent, const struct wear_ledger *found)
{
	struct wear_ledger equal = *found;

	ledger_take_sent(&equal, sent);
	if (memcmp(&equal, found, sizeof(equal)))
		fail("sent were %llu bytes, %llu writes, %llu flushes and %llu visits; the ledger has %llu, %llu, %llu and %llu",
		     (unsigned long long)sent->written_bytes, (unsigned long long)sent->write_calls,
		     (unsigned long long)sent->flushes, (unsigned long long)sent->visits,
		     (unsigned long long)found->written_bytes,
		     (unsigned long long)found->write_calls, (unsigned long long)found->flushes,
		     (unsigned long long)found->visits);
}

/* A card that lies may go on from either of two ledgers (ledger_check). */
static void acked_least(struct world *w, const struct wear_ledger *found)
{
	uint64_t *a = (uint64_t *)&w->acked, *before = (uint64_t *)&w->acked_before;
	const uint64_t *b = (const uint64_t *)found;

	for (size_t i = 0; w->lie && i < sizeof(*found) / sizeof(*b); i++) {
		a[i] = min_u64(a[i], b[i]);
		before[i] = min_u64(before[i], b[i]);
	}
}

void world_open(struct world *w)
{
	struct log_super super;
	unsigned trouble, blks = w->shape.blks, gen;
	uint64_t ops = world_ops(w);
	const uint8_t *v;
	bool back, went_back = w->rep.back_seq;
	int r = super_read(w->c.log, w->shape.external ? 0 : blk_to_bytes(blks), &super, &trouble);

	if (r < 0)
		fail("super_read: %s", strerror(-r));
	cards_account_reset(&w->c);
	r = log_open(&w->log, w->c.base, w->c.log, &super, w->not_back ? LOG_NOT_BACK : 0, NULL,
		     &w->rep);
	if (r < 0)
		fail("log_open: %s", strerror(-r));
	log_mend_super(w->log, trouble);
	if (w->rep.state == LOG_BROKEN)
		fail("attach: broken: %s", w->rep.why);
	if (world_ops(w) != ops)
		fail("attach wrote to the card");
	total.attaches++;
	w->settled = false;
	w->index = log_index_of(w->log);
	v = volume_read(w, &w->c, w->index);
	back = hold_opened(w, went_back, v);
	for (gen = 0; !back && gen <= w->n_tried; gen++)
		if (image_differs(gen ? &w->tried[gen - 1] : &w->n, v, blks) < 0)
			break;
	if (gen > w->n_tried)
		fail("attach: no generation");
	if (gen) {
		/* not certainly durable before the next good flush */
		struct image old = w->n;

		w->n = w->tried[gen - 1];
		w->tried[gen - 1] = old;
		w->older = old;
		w->unconfirmed = true;
	}
	if (!measure)
		ledger_check(w, w->log, &w->acked, &w->rep.ledger);
	acked_least(w, &w->rep.ledger);
	if (w->ended)
		ledger_equal(&w->sent, &w->rep.ledger);
	say("attach (%s): state %d, newest %llu type %d, highest %llu, rejected %u, live %llu: generation %u of %u",
	    w->rep.why, w->rep.state, (unsigned long long)w->rep.newest.seq, w->rep.newest.type,
	    (unsigned long long)w->rep.highest_seq, w->rep.rejected,
	    (unsigned long long)w->rep.live_blks, gen, w->n_tried);
}

void world_close(struct world *w)
{
	paths_forget(w);
	log_index_unref(w->index);
	log_close(w->log);
	w->index = NULL;
	w->log = NULL;
}

/* After a cut RAM is lost, and everything found on the card is durable. */
static void after_cut(struct world *w)
{
	w->mute = w->armed = w->failed = w->fault = w->ended = false;
	w->unflushed[0] = w->unflushed[1] = 0;
	hook_cards(w);
	world_open(w);
	w->settled = true;
	/* a rejected record is visible only until its place is used again */
	w->acked = w->acked_before = w->lie || w->rep.rejected ? w->rep.newest.ledger
							       : w->rep.ledger;
	acked_least(w, &w->rep.ledger);
	w->n_tried = w->rep.back_seq != 0; /* what was left */
	w->hold_age = HOLD_SETTLED;	   /* what was found is durable */
	w->unconfirmed = false;
	hold_sure(w);
	lie_forget(w);
	live_revert(w);
	w->last = 0;
}

bool world_crash(struct world *w)
{
	if (!w->kept.base)
		return false;
	world_close(w);
	cards_close(&w->c);
	w->c = w->kept;
	w->kept = (struct cards){ 0 };
	w->kept_of = 0;
	w->n = w->kept_n;
	w->held = w->kept_held;
	w->older = w->kept_older;
	w->n_tried = 0;
	w->acked = w->kept_acked;
	say("power cut, going on from an image");
	after_cut(w);
	return true;
}

void world_cut(struct world *w, enum sim_fate (*fate)(void *arg, size_t i), void *arg)
{
	world_close(w);
	sim_power_cycle(w->c.base, fate, arg);
	if (w->c.log != w->c.base)
		sim_power_cycle(w->c.log, fate, arg);
	say("power cut");
	after_cut(w);
}

/* ---- the live image ---- */

void live_dirty(struct world *w, unsigned blk)
{
	w->dirty[blk] = true;
	paths_wrote(w, blk);
}

void live_write(struct world *w, unsigned blk, unsigned content)
{
	/* without a file system now and then */
	if (blk == BITMAP_BLK && !w->shape.ext4 && (content || w->commits % 8))
		content = super_content(content);
	w->live.use[blk] = USE_USED;
	w->live.content[blk] = (uint16_t)content;
	w->hole[blk] = false;
	live_dirty(w, blk);
}

void live_punch(struct world *w, unsigned blk)
{
	w->live.use[blk] = USE_USED;
	w->live.content[blk] = 0;
	w->hole[blk] = true;
	live_dirty(w, blk);
}

void live_free(struct world *w, unsigned blk)
{
	w->live.use[blk] = USE_FREE;
}

void live_revert(struct world *w)
{
	paths_forget(w);
	w->live = w->n;
	memset(w->dirty, 0, sizeof(w->dirty));
	memset(w->hole, 0, sizeof(w->hole));
	if (w->shape.ext4)
		ext4_revert(w);
}

/* ---- operations of a session ---- */

static void publish(void *ctx, struct log_index *ix)
{
	struct world *w = ctx;

	log_index_unref(w->index);
	w->index = ix;
	paths_publish(w);
	if (!w->armed)
		check_view(w, "publish");
}

void world_fail_at(struct world *w, unsigned ops, uint64_t n, bool forever)
{
	/* As the daemon does, before its first job. A read that fails there costs a part of the
	 * table of erase blocks, and no job fails (wear_test). */
	if (w->log)
		log_wear_load(w->log);
	w->armed = true;
	w->failed = w->fault = false;
	sim_fail_at(w->c.base, ops, n, -EIO, forever);
	if (w->c.log != w->c.base)
		sim_fail_at(w->c.log, ops, n, -EIO, forever);
}

void world_disarm(struct world *w)
{
	w->armed = w->failed = w->fault = false;
	sim_fail_at(w->c.base, 0, 0, 0, false);
	sim_fail_at(w->c.log, 0, 0, 0, false);
	away_return(w);
}

/* A job that ends well leaves nothing without a FLUSH, so that only a job that has failed loses what it wrote
 * when the card goes away. */
void check_flushed(struct world *w, const char *what, int r)
{
	struct card *c[] = { w->c.log, w->c.base };

	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		if (r == 0 && !w->failed && c[i]->writes != c[i]->durable_writes &&
		    c[i]->writes != w->unflushed[i])
			fail("%s has ended well, and left writes without a FLUSH", what);
		if (r < 0 || w->failed)
			w->unflushed[i] = c[i]->writes;
	}
}

static void check_outcome(struct world *w, const char *what, int r)
{
	total.faults += w->failed;
	check_flushed(w, what, r);
	if (w->expect) {
		if (r != w->expect)
			fail("%s: %s instead of %s", what, strerror(-r), strerror(-w->expect));
		return;
	}
	if (r == 0 && w->fault)
		fail("%s returned 0 although an operation failed", what);
	if (r < 0 && !w->armed && r != -EFBIG)
		fail("%s: %s (newest %llu, room %llu)", what, strerror(-r),
		     (unsigned long long)log_newest(w->log)->seq,
		     (unsigned long long)log_room_blks(w->log));
	if (r < 0 && r != -EFBIG && !w->failed)
		fail("%s: %s, and no operation failed", what, strerror(-r));
	if ((w->c.base->writable || w->c.log->writable) && !sim_is_dead(w->c.base))
		fail("%s left the card writable", what);
}

static void count_fresh(const struct world *w)
{
	const struct log_super *s = log_super(w->log);
	const struct log_record *n = log_newest(w->log);

	total.fresh +=
		(n->type == RECORD_COMMIT || n->type == RECORD_TAIL) &&
		n->start_lblk % (max_u64(s->seg_bytes, s->erase_block_bytes) / COW_BLK_BYTES) == 1;
}

int world_commit_as(struct world *w, const struct commit_options *opt)
{
	struct commit_source src = source_of(w);
	struct commit_options planned = *opt;
	uint64_t before = log_newest(w->log)->lblk, ops = world_ops(w);
	/* the open record of a session comes before the plan */
	bool opens = log_wants_open(w->log);
	unsigned bitmap = w->n.content[BITMAP_BLK] % SUPERS;
	uint64_t seq = log_newest(w->log)->seq;
	struct log_index *ix = NULL;
	bool wrote;
	int r;

	w->ended = false;
	if (w->n_tried == MAX_TRIED)
		fail("too many attempts for this test");
	if (!w->shape.ext4 && memcmp(w->live.use, w->n.use, sizeof(w->n.use)))
		live_write(w, BITMAP_BLK, /* never the same */
			   1 + (bitmap + 1 + rnd_below(w, CONTENTS - 3)) % (CONTENTS - 1));
	w->tried[w->n_tried++] = w->live;
	planned.profile = w->paths ? NULL : profile_of(w);
	planned.checkpoint_asked |= !at.attack && at.seed % 2;
	r = paths_seal(w);
	if (r == 0)
		r = commit_run(w->log, w->c.base, &src, &planned, publish, w, &w->bill, &ix);
	say("commit: %s; dirty %llu, same %llu, direct %llu, logged %llu (spilled %llu), zero %llu, checkpoint %llu, "
	    "newest %llu at %llu",
	    r < 0 ? strerror(-r) : "ok", (unsigned long long)w->bill.dirty,
	    (unsigned long long)w->bill.skipped_same, (unsigned long long)w->bill.direct,
	    (unsigned long long)w->bill.logged, (unsigned long long)w->bill.spilled,
	    (unsigned long long)w->bill.zero, (unsigned long long)w->bill.checkpoint,
	    (unsigned long long)log_newest(w->log)->seq,
	    (unsigned long long)log_newest(w->log)->lblk);
	check_outcome(w, "commit", r);
	world_disarm(w);
	total.checkpoints += w->bill.checkpoint > 0;
	if (r == -EFBIG && log_holds(w->log, NULL) && !w->shape.lag && !opens &&
	    world_ops(w) != ops)
		fail("a commit that was refused has written");
	if (r < 0) {
		paths_committed(w, r);
		total.failed += r != -EFBIG;
		total.too_big += r == -EFBIG;
		if (r == -EFBIG)
			w->n_tried--;
		cut_here(w);
		return r;
	}
	/* a commit that writes nothing may still send a FLUSH */
	wrote = log_newest(w->log)->seq != seq;
	total.commits++;
	total.spills += w->bill.spilled > 0;
	total.wraps += log_newest(w->log)->lblk < before;
	if (log_newest(w->log)->seq != seq)
		count_fresh(w);
	if (ix) {
		log_index_unref(w->index);
		w->index = ix;
	}
	paths_committed(w, r);
	if (wrote || w->unconfirmed)
		lie_remember(w);
	w->unconfirmed = false;
	if (wrote) {
		w->acked_before = w->acked;
		w->acked = log_newest(w->log)->ledger;
	}
	hold_wrote(w);
	if (wrote)
		hold_sure(w);
	w->hold_age += wrote && w->hold_age < HOLD_SETTLED;
	if (wrote)
		w->older = w->n;
	w->n = w->live;
	hold_no_tried(w);
	memset(w->dirty, 0, sizeof(w->dirty));
	memset(w->hole, 0, sizeof(w->hole));
	check_view(w, "after a commit");
	w->last = 0;
	cut_here(w);
	return 0;
}

int world_commit(struct world *w)
{
	return world_commit_as(w, &(struct commit_options){ .cause = CAUSE_TIMER });
}

static bool units_are_over(void *ctx)
{
	unsigned *units = ctx;

	return --*units == 0;
}

int world_checkpoint_units(struct world *w, enum record_type type, uint32_t flags, unsigned units)
{
	const struct log_content ram = { .read = content_at_hand, .ctx = w };
	const struct commit_source src = source_of(w);
	struct commit_options opt = { .cause = CAUSE_DETACH,
				      .record_flags = flags,
				      .content = at.seed % 3 ? &ram : NULL,
				      .profile = profile_of(w),
				      .uses = w->diverged ? NULL : &src,
				      .goes_on = !at.attack && !flags && type == RECORD_TAIL &&
						 at.seed % 5 == 0,
				      .stop = units ? units_are_over : NULL,
				      .stop_ctx = &units };
	/* a part of a checkpoint may write no record */
	uint64_t blks, seq = log_newest(w->log)->seq, ops = world_ops(w);
	bool held = log_holds(w->log, NULL);
	/* a FLUSH at most, which no record counts */
	bool rests = log_rests(w->log, type, flags) && (opt.goes_on || !log_guarded(w->log));
	int r = commit_checkpoint(w->log, w->c.base, &opt, publish, w, type, &blks);
	bool stopped;

	if (held) {
		if (r != -EBUSY || world_ops(w) != ops)
			fail("a checkpoint while a generation is held: %s", strerror(-r));
		world_disarm(w);
		return r;
	}
	w->ended &= r == 0;
	say("checkpoint, record type %d flags %u: %s, %llu blocks, newest %llu", type, flags,
	    r < 0 ? strerror(-r) : "ok", (unsigned long long)blks,
	    (unsigned long long)log_newest(w->log)->seq);
	stopped = r == -EINTR && opt.stop && !units;
	check_outcome(w, "checkpoint", stopped ? 0 : r);
	world_disarm(w);
	paths_check(w, "after a checkpoint");
	if (r == 0 || stopped) {
		total.checkpoints += r == 0;
		total.stopped += stopped;
		if (stopped)
			check_view(w, "after a part of a checkpoint");
		else if (!measure)
			world_check_base(w, opt.goes_on);
		hold_wrote(w);
		if (log_newest(w->log)->seq != seq) {
			count_fresh(w);
			w->acked_before = w->acked;
			w->acked = log_newest(w->log)->ledger;
			w->n_tried = 0; /* its record is newer than theirs: they cannot win */
		}
		if (!rests) {
			w->ended = r == 0 && !opt.goes_on && !w->lie && !measure &&
				   (w->ended || world_ops(w) != ops);
			log_totals(w->log, &w->sent);
		}
		/* no record counts the last write of the superblock: the next attach does */
		if (w->ended)
			ledger_take_sent(&w->acked, &w->sent);
		w->last = 0;
	}
	cut_here(w);
	return r;
}

/* May nothing be trimmed? As in volume/trim.c. A card that loses more than the lag has no past. */
static bool keeps_all(const struct world *w)
{
	return w->shape.no_classifier || (w->lie && !w->shape.lag) || w->n_tried || w->diverged ||
	       log_holds(w->log, NULL) || log_doubt(w->log) || log_spilled(w->log) ||
	       log_older_unknown(w->log);
}

static int note_first_trim(struct world *w)
{
	struct wear_ledger *l = log_ledger(w->log);
	uint64_t seq = log_newest(w->log)->seq;
	int r = l->trims++ ? 0 : commit_note(w->log, w->c.base);

	say("trim: record: %s", strerror(-r));
	check_flushed(w, "trim", r);
	if (r < 0)
		l->trims--;
	if (log_newest(w->log)->seq != seq && r == 0)
		w->acked = log_newest(w->log)->ledger;
	return r;
}

void world_trim(struct world *w)
{
	const struct commit_source src = source_of(w);
	struct log_index *older;
	uint64_t n, trimmed = 0;
	enum blk_use use;

	w->ended = false;
	if (keeps_all(w) || note_first_trim(w) < 0 || card_set_writable(w->c.base, true) < 0) {
		world_disarm(w);
		return;
	}
	older = log_older_index(w->log);
	for (uint64_t blk = 0; blk < w->shape.blks; blk += n) {
		bool held = false;

		(void)!src.run_committed(w, blk, w->shape.blks - blk, &use, &n);
		if (use == USE_FREE && older)
			(void)!src.run_older(w, blk, n, &use, &n);
		if (use == USE_FREE)
			n = log_held_run(w->log, blk, n, &held);
		if (use != USE_FREE || held)
			continue;
		if (card_discard(w->c.base, blk_to_bytes(blk), blk_to_bytes(n)) < 0)
			fail("discard");
		trimmed += n;
	}
	log_index_unref(older);
	if (card_set_writable(w->c.base, false) < 0)
		fail("cannot be set read-only");
	world_disarm(w);
	say("trimmed %llu blocks", (unsigned long long)trimmed);
	total.trims++;
	check_view(w, "after a trim");
	paths_check(w, "after a trim");
	cut_here(w);
}

int world_checkpoint(struct world *w, enum record_type type, uint32_t flags)
{
	return world_checkpoint_units(w, type, flags, 0);
}
