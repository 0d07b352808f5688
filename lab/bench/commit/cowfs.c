/* SPDX-License-Identifier: MIT */
/*
 * The trace on cowfs: the volume's blocks are in RAM. At commit points the code of the daemon's
 * commit thread (volume/commit_thread.c) runs on the modelled card: log_open, commit_run with the
 * maps of both file systems, a checkpoint if one is due, and at the end that of a detach. The steps
 * of volume/commit_thread.c come in the same order. Steps that do not touch the card are left out:
 * the freeze (it is in the trace), view, FUSE, memory pressure.
 *
 * The log is not new: the heads of its segments, which the first commit of its life writes, are
 * written before the clock starts.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "sim/sim.h"
#include "commit/commit.h"
#include "fs/fsinfo.h"
#include "log/log.h"
#include "replay.h"

#define WEEK_NS (7 * 86400 * 1000000000ull)

struct run {
	struct trace *t;
	const struct flash_profile *p;
	const struct cowfs_options *opt;
	struct flash_model *model; /* of the card */
	struct card *card;
	struct log *log;
	struct log_index *index;
	uint8_t *live; /* the volume as programs see it */
	struct overlay dirty;
	struct overlay hole; /* of dirty: discarded */
	uint64_t blks;
	struct fsmap *sealed, *committed, *older;
	struct log_index *older_index;
	struct result *res;
	struct cuts *cuts; /* NULL: none */
	uint8_t *before;   /* with cuts: the volume at the last commit */
};

static void check(int r, const char *what)
{
	if (r < 0)
		die("%s: %s", what, strerror(-r));
}

static const struct card_costs *plan_by(const struct run *w)
{
	static struct card_costs costs;

	return !w->opt->no_plan &&
			       flash_profile_costs(w->opt->plan ? w->opt->plan : w->p, &costs) == 0
		       ? &costs
		       : NULL;
}

/* ---- callbacks of commit_run ---- */

static bool src_next(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		     enum blk_state *ret_state)
{
	struct run *w = ctx;
	uint64_t n, h, hn;
	bool hole;

	if (!overlay_next(&w->dirty, blk, &n))
		return false;
	n = min_u64(n, max_blks);
	h = *blk;
	hole = overlay_next(&w->hole, &h, &hn) && h == *blk;
	if (hole)
		n = min_u64(n, hn);
	else if (h > *blk && h < *blk + n)
		n = h - *blk;
	*ret_blks = n;
	*ret_state = hole ? BLK_HOLE : BLK_DATA;
	return true;
}

static int read_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	memcpy(buf, ((struct run *)ctx)->live + blk_to_bytes(blk), blk_to_bytes(blks));
	return 0;
}

static int read_committed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct run *w = ctx;

	return log_index_read_volume(w->index, w->card, blk, blks, buf);
}

static int read_older(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct run *w = ctx;

	return log_index_read_volume(w->older_index, w->card, blk, blks, buf);
}

static int run_sealed(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		      uint64_t *ret_blks)
{
	struct run *w = ctx;

	return fsmap_run_after(w->sealed, w->committed, blk, max_blks, ret, ret_blks);
}

static int run_committed(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			 uint64_t *ret_blks)
{
	return fsmap_run(((struct run *)ctx)->committed, blk, max_blks, ret, ret_blks);
}

static int run_older(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		     uint64_t *ret_blks)
{
	return fsmap_run(((struct run *)ctx)->older, blk, max_blks, ret, ret_blks);
}

static void publish(void *ctx, struct log_index *ix)
{
	struct run *w = ctx;

	log_index_unref(w->index);
	w->index = ix;
}

/* The part of the sealed generation that is still in RAM. */
static bool peek_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct run *w = ctx;

	for (uint64_t b = blk; b < blk + blks; b++)
		if (!(w->dirty.dirty[b / 64] >> (b % 64) & 1))
			return false;
	return read_sealed(ctx, blk, blks, buf) == 0;
}

/* ---- minimum cost of the blocks of a commit ---- */

struct bound {
	uint64_t unit, unit_new_bytes;
};

static void bound_unit_ends(struct run *w, struct bound *b)
{
	uint64_t merge_ns = b->unit_new_bytes < w->p->unit_bytes
				    ? flash_merge_ns(w->p, b->unit_new_bytes)
				    : 0;

	if (!b->unit_new_bytes)
		return;
	w->res->home_units++;
	w->res->bound_ns += w->p->absorb == 1 ? merge_ns : 0;
	w->res->atomic_ns += merge_ns;
	w->res->atomic_erases++;
	b->unit_new_bytes = 0;
}

static bool committed_uses(struct run *w, uint64_t blk)
{
	enum blk_use use;
	uint64_t n;

	check(fsmap_run(w->committed, blk, 1, &use, &n), "map");
	return use == USE_USED;
}

/*
 * All dirty blocks that the sealed file system uses. This includes the few with the same content as
 * on the card. For a system that is atomic and has everything home in the end: those that the
 * committed one uses are written twice, the first time to a log, in units of its own.
 */
static void count_payload(struct run *w)
{
	uint64_t blk = 0, n, twice = 0, bytes = 0;
	struct bound b = { .unit = UINT64_MAX };

	for (; overlay_next(&w->dirty, &blk, &n); blk += n) {
		enum blk_use use;

		check(fsmap_run_after(w->sealed, w->committed, blk, n, &use, &n), "map");
		if (use != USE_USED)
			continue;
		bytes += blk_to_bytes(n);
		for (uint64_t i = blk; i < blk + n; i++)
			twice += committed_uses(w, i);
		for (uint64_t off = blk_to_bytes(blk), end = off + blk_to_bytes(n), m; off < end;
		     off += m) {
			m = min_u64(end - off, w->p->unit_bytes - off % w->p->unit_bytes);
			if (off / w->p->unit_bytes != b.unit)
				bound_unit_ends(w, &b);
			b.unit = off / w->p->unit_bytes;
			b.unit_new_bytes += m;
		}
	}
	bound_unit_ends(w, &b);
	w->res->payload_bytes += bytes;
	w->res->bound_ns += flash_write_ns(w->p, REQUEST_BYTES) * bytes / REQUEST_BYTES;
	w->res->atomic_ns += flash_write_ns(w->p, REQUEST_BYTES) * (bytes + blk_to_bytes(twice)) /
				     REQUEST_BYTES +
			     2 * flash_sync_ns(w->p);
	if (twice && blk_to_bytes(twice) < w->p->unit_bytes)
		w->res->atomic_ns += flash_merge_ns(w->p, blk_to_bytes(twice));
	w->res->atomic_erases += (blk_to_bytes(twice) + w->p->unit_bytes - 1) / w->p->unit_bytes;
}

/* ---- a session ---- */

static uint64_t clock_of(const struct run *w)
{
	struct flash_stats s;

	flash_model_stats(w->model, &s);
	return s.clock_ns;
}

static bool tells_truth(struct fsmap *m)
{
	return m && fsmap_knows(m) && !(fsmap_alarms(m) & FSMAP_NEEDS_RECOVERY);
}

static void open_maps(struct run *w)
{
	struct blk_reader r = { .read = read_sealed, .ctx = w, .volume_blks = w->blks };

	check(fsmap_open(&w->sealed, &r), "map of the sealed file system");
	r.read = read_committed;
	check(fsmap_open(&w->committed, &r), "map of the committed file system");
	w->older_index = log_older_index(w->log);
	r.read = read_older;
	if (w->older_index)
		check(fsmap_open(&w->older, &r), "map of the older file system");
	if (!tells_truth(w->sealed))
		die("%s: the journal is not empty at a commit point", w->t->name);
}

static void close_maps(struct run *w)
{
	fsmap_close(w->sealed);
	fsmap_close(w->committed);
	fsmap_close(w->older);
	log_index_unref(w->older_index);
	w->sealed = w->committed = w->older = NULL;
	w->older_index = NULL;
}

static void checkpoint(struct run *w, bool sealed, uint32_t flags, enum commit_cause cause)
{
	const struct log_content ram = { .read = peek_sealed, .ctx = w };
	const struct commit_source uses = { .ctx = w,
					    .run_committed = run_committed,
					    .run_older = run_older };
	struct commit_options opt = { .cause = cause,
				      .record_flags = flags,
				      .content = sealed ? &ram : NULL,
				      .goes_on = sealed && !(flags & RECORD_CLEAN),
				      .profile = plan_by(w) };
	struct blk_reader r = { .read = sealed ? read_sealed : read_committed,
				.ctx = w,
				.volume_blks = w->blks };
	uint64_t blks;

	check(fsmap_open(&w->committed, &r), "map of the committed file system");
	w->older_index = log_older_index(w->log);
	r.read = read_older;
	if (w->older_index)
		check(fsmap_open(&w->older, &r), "map of the older file system");
	if (tells_truth(w->committed) && (!w->older || tells_truth(w->older)))
		opt.uses = &uses;
	check(commit_checkpoint(w->log, w->card, &opt, publish, w, RECORD_TAIL, &blks),
	      "checkpoint");
	close_maps(w);
	w->res->checkpoint_blks += blks;
}

/* From now on a cut may find only the live image, even if it could find another one before. */
static void cuts_settle(struct run *w)
{
	uint64_t blk = 0, n;

	if (!w->cuts)
		return;
	cuts_end(w->cuts);
	for (; overlay_next(&w->dirty, &blk, &n); blk += n)
		memcpy(w->before + blk_to_bytes(blk), w->live + blk_to_bytes(blk), blk_to_bytes(n));
	cuts_begin(w->cuts, w->before, w->before);
}

static void commit(struct run *w, enum commit_cause cause, bool home)
{
	struct commit_source src = { .ctx = w,
				     .volume_blks = w->blks,
				     .next = src_next,
				     .read_sealed = read_sealed,
				     .read_committed = read_committed,
				     .run_sealed = run_sealed };
	struct commit_options opt = { .cause = cause,
				      .checkpoint_asked = home,
				      .profile = plan_by(w) };
	struct log_index *ix = NULL;
	struct commit_report rep;
	uint64_t start_ns = clock_of(w);

	open_maps(w);
	src.run_committed = tells_truth(w->committed) ? run_committed : NULL;
	src.run_older = tells_truth(w->older) ? run_older : NULL;
	if (w->cuts)
		cuts_begin(w->cuts, w->before, w->live);
	check(commit_run(w->log, w->card, &src, &opt, publish, w, &rep, &ix), "commit");
	cuts_settle(w);
	w->res->commit_ns += clock_of(w) - start_ns;
	w->res->commit_bytes += rep.written_bytes;
	count_payload(w);
	close_maps(w);
	w->res->commits++;
	w->res->logged_blks += rep.logged;
	w->res->direct_blks += rep.direct;
	w->res->meta_blks += rep.meta;
	w->res->checkpoint_blks += rep.checkpoint;
	if (w->opt->verbose)
		fprintf(stderr,
			"commit %llu: dirty %llu, direct %llu in %llu, logged %llu in %llu, same %llu, free %llu, %.3f s\n",
			(unsigned long long)w->res->commits, (unsigned long long)rep.dirty,
			(unsigned long long)rep.direct, (unsigned long long)rep.direct_extents,
			(unsigned long long)rep.logged, (unsigned long long)rep.logged_extents,
			(unsigned long long)rep.skipped_same, (unsigned long long)rep.skipped_free,
			(double)(clock_of(w) - start_ns) / 1e9);
	if (home || commit_checkpoint_due(w->log, &opt)) {
		checkpoint(w, true, home ? RECORD_CLEAN : 0, cause);
		log_index_unref(ix);
		ix = log_index_of(w->log);
	}
	if (ix)
		publish(w, ix);
	if (w->cuts)
		cuts_end(w->cuts);
	overlay_clear(&w->dirty);
	overlay_clear(&w->hole);
}

static uint64_t waiting_blks(const struct run *w)
{
	return log_index_data_blks(w->index) + log_index_zero_blks(w->index);
}

/* The time until the next commit, as a daemon with `checkpoint = idle` uses it. The payload is no
 * longer in RAM. */
static void rest(struct run *w)
{
	uint64_t start_ns = clock_of(w), before_blks = w->res->checkpoint_blks;

	if (w->opt->idle && waiting_blks(w) &&
	    log_index_data_blks(w->index) * 100 >=
		    log_capacity_blks(w->log) * w->opt->idle_percent) {
		if (w->cuts)
			cuts_begin(w->cuts, w->before, w->before);
		checkpoint(w, false, 0, CAUSE_TIMER);
		if (w->cuts)
			cuts_end(w->cuts);
		w->res->idle_ns += clock_of(w) - start_ns;
		w->res->idle_blks += w->res->checkpoint_blks - before_blks;
		w->res->idles++;
	}
	w->res->rests++;
	w->res->waiting_blks += waiting_blks(w);
	w->res->most_waiting_blks = max_u64(w->res->most_waiting_blks, waiting_blks(w));
	w->res->chain_records += log_chain_records(w->log);
}

/*
 * As volume/trim.c: what is free in each generation that recovery may choose. From then on it reads as
 * noise, so that verify finds a block too many.
 */
static void trim(struct run *w)
{
	struct wear_ledger *ledger = log_ledger(w->log);
	struct blk_reader r = { .read = read_committed, .ctx = w, .volume_blks = w->blks };
	enum blk_use use;
	bool held;

	check(fsmap_open(&w->committed, &r), "map of the committed file system");
	w->older_index = log_older_index(w->log);
	r.read = read_older;
	if (w->older_index)
		check(fsmap_open(&w->older, &r), "map of the older file system");
	if (!ledger->trims++)
		check(commit_note(w->log, w->card), "note");
	sim_set_noise(w->card, true);
	check(card_set_writable(w->card, true), "set_writable");
	for (uint64_t blk = 0, n; blk < w->blks; blk += n) {
		check(run_committed(w, blk, w->blks - blk, &use, &n), "map");
		if (use == USE_FREE && w->older)
			check(run_older(w, blk, n, &use, &n), "map");
		if (use != USE_FREE)
			continue;
		n = log_held_run(w->log, blk, n, &held);
		if (held)
			continue;
		check(card_discard(w->card, blk_to_bytes(blk), blk_to_bytes(n)), "discard");
		w->res->trimmed_blks += n;
	}
	check(card_set_writable(w->card, false), "set_writable");
	close_maps(w);
	w->res->trims++;
}

/* ---- the card ---- */

static void format(struct run *w, struct log_super *super)
{
	uint64_t missing;
	int r = super_plan(w->card, w->card, w->t->volume_bytes, w->opt->log_bytes, super,
			   &missing);

	if (r < 0)
		die("super_plan: %s, %llu bytes short", strerror(-r), (unsigned long long)missing);
	check(card_set_writable(w->card, true), "set_writable");
	check(super_write(w->card, super), "super_write");
	check(card_set_writable(w->card, false), "set_writable");
}

uint64_t cowfs_card_bytes(const struct flash_profile *p, uint64_t volume_bytes, uint64_t log_bytes)
{
	uint64_t log = log_bytes ? log_bytes : max_u64(64 * MIB, 8 * p->unit_bytes);

	/* a card on which there is room */
	return GIB + round_up_u64(volume_bytes, p->unit_bytes) + round_up_u64(log, p->unit_bytes) +
	       2 * max_u64(p->unit_bytes, 4 * MIB);
}

/* The initial content of the trace, in RAM as the live volume and on the card. */
static void load(struct run *w)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s.base", w->t->name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	w->live = mmap(NULL, w->t->volume_bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_NORESERVE, fd, 0);
	w->before = mmap(NULL, w->t->volume_bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_NORESERVE, fd, 0);
	if (w->live == MAP_FAILED || w->before == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	close(fd);
	for (uint64_t off = 0; off < w->t->volume_bytes; off += COW_BLK_BYTES)
		if (!bytes_all_zero(w->live + off, COW_BLK_BYTES))
			check(sim_poke(w->card, off, w->live + off, COW_BLK_BYTES), "poke");
}

static void set_up(struct run *w)
{
	struct sim_params params = { .size_bytes = cowfs_card_bytes(w->p, w->t->volume_bytes,
								    w->opt->log_bytes),
				     .erase_block_bytes = (uint32_t)w->p->unit_bytes,
				     .identity = w->p->id };
	struct log_open_report rep;
	struct log_super super;

	check(sim_new(&w->card, &params), "card");
	load(w);
	check(flash_model_new(&w->model, w->p, params.size_bytes, 0), "model");
	sim_set_model(w->card, w->model);
	w->blks = w->t->volume_bytes >> COW_BLK_SHIFT;
	overlay_init(&w->dirty, w->t->volume_bytes, 1);
	overlay_init(&w->hole, w->t->volume_bytes, 1);
	format(w, &super);
	check(log_open(&w->log, w->card, w->card, &super, 0, NULL, &rep), "log_open");
	w->index = log_index_of(w->log);
	log_wear_load(w->log);
	check(card_set_writable(w->card, true), "set_writable");
	check(log_prepare(w->log), "log_prepare");
	check(card_set_writable(w->card, false), "set_writable");
	flash_model_settle(w->model);
	flash_model_reset(w->model);
	if (w->opt->cuts_every)
		w->cuts = cuts_new(w->card, w->t->volume_bytes, w->opt->cuts_every);
}

static void apply(struct run *w, const struct flash_trace_record *r)
{
	uint64_t blk = r->off_bytes >> COW_BLK_SHIFT, end;

	if (r->op == FLASH_TRACE_WRITE)
		check(flash_trace_contents(w->t->t, r, w->live + r->off_bytes), "contents");
	else
		memset(w->live + r->off_bytes, 0, r->len_bytes);
	overlay_write(&w->dirty, r->off_bytes, r->len_bytes);
	end = (r->off_bytes + r->len_bytes) >> COW_BLK_SHIFT;
	for (; r->op == FLASH_TRACE_WRITE && blk <= end && blk < w->blks; blk++)
		w->hole.dirty[blk / 64] &= ~(1ull << (blk % 64));
	if (r->op == FLASH_TRACE_DISCARD)
		overlay_write(&w->hole, round_up_u64(r->off_bytes, COW_BLK_BYTES),
			      round_down_u64(r->off_bytes + r->len_bytes, COW_BLK_BYTES) -
				      round_up_u64(r->off_bytes, COW_BLK_BYTES));
}

/* Every block that the file system uses is on the card with the content that programs wrote: at
 * home, or in the log. */
static void verify(struct run *w, bool home)
{
	static _Alignas(COW_BLK_BYTES) uint8_t blk[COW_BLK_BYTES];
	struct blk_reader r = { .read = read_sealed, .ctx = w, .volume_blks = w->blks };
	enum blk_use use;

	check(fsmap_open(&w->sealed, &r), "map");
	for (uint64_t b = 0, n; b < w->blks; b += n) {
		check(fsmap_run(w->sealed, b, w->blks - b, &use, &n), "map");
		for (uint64_t i = b; i < b + n && use == USE_USED; i++) {
			check(home ? card_read(w->card, blk_to_bytes(i), blk, sizeof(blk))
				   : read_committed(w, i, 1, blk),
			      "read");
			if (memcmp(blk, w->live + blk_to_bytes(i), sizeof(blk)))
				die("%s on %s: block %llu of the card is not what was written",
				    w->t->name, w->p->id, (unsigned long long)i);
		}
	}
	fsmap_close(w->sealed);
	w->sealed = NULL;
}

void cowfs_replay(struct trace *t, const struct flash_profile *p, bool each, bool home,
		  const struct cowfs_options *opt, struct result *ret)
{
	struct result res = { 0 };
	struct run w = { .t = t, .p = p, .opt = opt, .res = &res };
	struct flash_trace_record r;
	uint64_t points = 0, trimmed_ns = 0;

	set_up(&w);
	while (trace_next(t, &r)) {
		bool last = trace_at_end(t), due;

		if (r.op == FLASH_TRACE_WRITE || r.op == FLASH_TRACE_DISCARD)
			apply(&w, &r);
		if (r.op != FLASH_TRACE_COMMIT)
			continue;
		due = each && (!opt->every || ++points % opt->every == 0);
		if ((due || last) && w.dirty.dirty_blks)
			commit(&w,
			       !last  ? CAUSE_TIMER
			       : home ? CAUSE_DETACH
				      : CAUSE_SHUTDOWN,
			       last && home);
		/* also a time in which nothing changed */
		if (due && !last)
			rest(&w);
		if (opt->trim && due && !last && r.time_ns >= trimmed_ns + WEEK_NS) {
			trimmed_ns = r.time_ns;
			trim(&w);
		}
	}
	if (w.cuts)
		res.cuts = cuts_free(w.cuts);
	*ret = res;
	result_settle(ret, w.model);
	if (opt->verify)
		verify(&w, home);
	log_index_unref(w.index);
	log_close(w.log);
	card_close(w.card);
	munmap(w.live, t->volume_bytes);
	munmap(w.before, t->volume_bytes);
	overlay_free(&w.dirty);
	overlay_free(&w.hole);
}
