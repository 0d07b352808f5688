/* SPDX-License-Identifier: MIT */
/*
 * Estimates a trace: what one system makes of it, on the models of cards. One line of JSON per
 * card.
 *
 *	replay [OPTIONS] SYSTEM TRACE
 *
 *	plain		the trace as it is: the writes of a file system on the card
 *	merge		the same, and each commit point ends a merge in place (rsync, qemu-img
 *			commit)
 *	order		an overlay merged in block order, as cowloop's
 *	dm-snapshot	an overlay merged as dm-snapshot does; --chunk KIB (default 16, as the
 *			kernel's)
 *	cowfs		two lines: the result of a shutdown, with blocks in the log, and ("home")
 *			the result with these blocks written home, too
 *	dirty		no card: the dirty runs of each commit point as lines "OFFSET LENGTH",
 *			followed by a line "commit"
 *
 *	--each		commits at each commit point of the trace; otherwise at the last
 *	--profile ID	one of the cards; default: all that have figures for writing, without arrays
 *			and layers of the host
 *	--log MIB	size of cowfs's log; default: as cowctl prepare chooses
 *	--plan-by measured|none	cowfs plans by the profile that cowctl measure makes of the card, or
 *			without one; default: by the card's own profile
 *	--home		only the second line of cowfs
 *	--trim		cowfs trims once a week of the trace's time
 *	--no-discard	plain: the card knows no discards
 *	--verify	compares the card at the end with what was written (cowfs)
 *	--cuts N	cuts the power after each N-th write of cowfs, in a copy, and compares the
 *			state found (cuts.c)
 *	--verbose	each commit on stderr
 *
 * "risk_seconds" is the time in which a power cut would leave neither the old nor the new state.
 * plain: 0 if the trace's file system has a journal; with --no-journal from the first write after a
 * sync or commit point to the last one before the next, in the trace's time or the card's,
 * whichever is longer. merge, order, dm-snapshot: from the first write of a merge to the flush
 * after the last; a power cut loses the copy in RAM. cowfs: 0, which --cuts, tests/crash and
 * tests/replay try to refute.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "replay.h"
#include "unit/measure_card.h"

static struct {
	const char *system, *profile;
	bool each, no_journal, no_discard, home, measured;
	unsigned chunk_blks;
	struct cowfs_options cowfs;
} opt = { .chunk_blks = 4 };

void die(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fputs("replay: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static void trace_open(struct trace *t, const char *name)
{
	char path[4096], why[200];

	snprintf(path, sizeof(path), "%s.trace", name);
	if (flash_trace_open(&t->t, path, why, sizeof(why)) < 0)
		die("%s: %s", path, why);
	t->name = name;
	t->volume_bytes = flash_trace_volume_bytes(t->t);
	t->records = flash_trace_records(t->t);
}

static void trace_rewind(struct trace *t)
{
	flash_trace_rewind(t->t);
	t->next = 0;
}

bool trace_next(struct trace *t, struct flash_trace_record *ret)
{
	int r = flash_trace_next(t->t, ret);

	if (r < 0)
		die("%s.trace: record %llu: %s", t->name, (unsigned long long)t->next,
		    strerror(-r));
	t->next += (uint64_t)r;
	if (r && trace_at_end(t) && ret->op != FLASH_TRACE_COMMIT)
		die("%s.trace does not end with a commit point: was it recorded to its end?",
		    t->name);
	return r;
}

/* ---- systems without contents ---- */

static uint64_t clock_of(const struct flash_model *m)
{
	struct flash_stats s;

	flash_model_stats(m, &s);
	return s.clock_ns;
}

/* A stretch of writes between two points at which the card is consistent. */
struct window {
	bool open;
	uint64_t first_ns, last_ns, first_clock_ns;
};

static void window_write(struct window *w, uint64_t time_ns, uint64_t clock_ns)
{
	if (!w->open)
		*w = (struct window){ .open = true,
				      .first_ns = time_ns,
				      .first_clock_ns = clock_ns };
	w->last_ns = time_ns;
}

static void window_close(struct window *w, uint64_t clock_ns, struct result *ret)
{
	if (w->open)
		ret->risk_ns += max_u64(w->last_ns - w->first_ns, clock_ns - w->first_clock_ns);
	w->open = false;
}

static void replay_plain(struct trace *t, struct flash_model *m, struct result *ret)
{
	bool merge = !strcmp(opt.system, "merge"), risky = merge || opt.no_journal;
	struct flash_trace_record r;
	struct window w = { 0 };

	while (trace_next(t, &r)) {
		switch (r.op) {
		case FLASH_TRACE_WRITE:
			window_write(&w, r.time_ns, clock_of(m));
			flash_model_write(m, r.off_bytes, r.len_bytes, 0);
			break;
		case FLASH_TRACE_FLUSH:
			flash_model_flush(m);
			break;
		case FLASH_TRACE_DISCARD:
			if (!opt.no_discard)
				flash_model_discard(m, r.off_bytes, r.len_bytes);
			break;
		case FLASH_TRACE_COMMIT:
		case FLASH_TRACE_SYNC:
			ret->commits += merge && r.op == FLASH_TRACE_COMMIT;
			if (risky && (r.op == FLASH_TRACE_COMMIT || !merge))
				window_close(&w, clock_of(m), ret);
			break;
		}
	}
	flash_model_flush(m);
}

static void merge(const struct overlay *o, struct flash_model *m, struct result *ret)
{
	uint64_t start_ns = clock_of(m);

	if (!o->dirty_blks)
		return;
	if (!strcmp(opt.system, "order"))
		merge_block_order(o, m);
	else
		merge_dm_snapshot(o, m);
	ret->risk_ns += clock_of(m) - start_ns;
	ret->commits++;
}

static void print_dirty(const struct overlay *o)
{
	uint64_t blk = 0, n;

	for (; overlay_next(o, &blk, &n); blk += n)
		printf("%llu %llu\n", (unsigned long long)blk_to_bytes(blk),
		       (unsigned long long)blk_to_bytes(n));
	puts("commit");
}

static void replay_overlay(struct trace *t, struct flash_model *m, struct result *ret)
{
	struct flash_trace_record r;
	struct overlay o;

	overlay_init(&o, t->volume_bytes, !strcmp(opt.system, "dm-snapshot") ? opt.chunk_blks : 1);
	while (trace_next(t, &r)) {
		if (r.op == FLASH_TRACE_WRITE)
			overlay_write(&o, r.off_bytes, r.len_bytes);
		if (r.op != FLASH_TRACE_COMMIT || !(opt.each || trace_at_end(t)))
			continue;
		if (m)
			merge(&o, m, ret);
		else
			print_dirty(&o);
		overlay_clear(&o);
	}
	overlay_free(&o);
}

void result_settle(struct result *r, struct flash_model *m)
{
	uint64_t longest_ns;

	flash_model_stats(m, &r->stats);
	longest_ns = r->stats.longest_ns;
	flash_model_settle(m);
	flash_model_stats(m, &r->stats);
	r->stats.longest_ns = longest_ns;
}

static void replay_model(struct trace *t, const struct flash_profile *p, struct result *ret)
{
	struct flash_model *m;

	if (flash_model_new(&m, p, cowfs_card_bytes(p, t->volume_bytes, opt.cowfs.log_bytes), 0) <
	    0)
		die("%s: no model", p->id);
	if (!strcmp(opt.system, "order") || !strcmp(opt.system, "dm-snapshot"))
		replay_overlay(t, m, ret);
	else
		replay_plain(t, m, ret);
	result_settle(ret, m);
	flash_model_free(m);
}

/* ---- the program ---- */

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

static void print(const struct flash_profile *p, const struct result *r, bool home)
{
	const struct flash_stats *s = &r->stats;
	double linear_s = seconds(flash_write_ns(p, REQUEST_BYTES)) / (double)REQUEST_BYTES;
	bool cowfs = !strcmp(opt.system, "cowfs");

	printf("{\"profile\":\"%s\",\"unit_bytes\":%llu,\"absorb\":%u,\"seconds\":%.6f,\"bytes\":%llu,\"writes\":%llu,\"flushes\":%llu,"
	       "\"reads\":%llu,\"read_bytes\":%llu,\"read_seconds\":%.6f,\"programmed_bytes\":%llu,\"erases\":%llu,\"hottest_unit\":%llu,"
	       "\"hottest_erases\":%llu,\"longest_seconds\":%.6f,\"risk_seconds\":%.6f,\"commits\":%llu,\"linear_bytes_per_s\":%.0f",
	       p->id, (unsigned long long)p->unit_bytes, p->absorb, seconds(s->clock_ns),
	       (unsigned long long)s->written_bytes, (unsigned long long)s->writes,
	       (unsigned long long)s->flushes, (unsigned long long)s->reads,
	       (unsigned long long)s->read_bytes, seconds(s->read_ns),
	       (unsigned long long)s->programmed_bytes, (unsigned long long)s->erases,
	       (unsigned long long)s->hottest_unit, (unsigned long long)s->hottest_erases,
	       seconds(s->longest_ns), seconds(r->risk_ns), (unsigned long long)r->commits,
	       1 / linear_s);
	printf(",\"copied_bytes\":%llu,\"discarded_bytes\":%llu",
	       (unsigned long long)s->copied_bytes, (unsigned long long)s->discarded_bytes);
	if (cowfs)
		printf(",\"home\":%s,\"payload_bytes\":%llu,\"commit_seconds\":%.6f,\"commit_bytes\":%llu,\"linear_seconds\":%.6f,"
		       "\"home_units\":%llu,\"bound_seconds\":%.6f,\"atomic_seconds\":%.6f,\"atomic_erases\":%llu,\"logged_blks\":%llu,\"direct_blks\":%llu,\"checkpoint_blks\":%llu,"
		       "\"meta_blks\":%llu,\"idles\":%llu,\"idle_seconds\":%.6f,\"idle_blks\":%llu,\"rests\":%llu,\"waiting_blks\":%llu,"
		       "\"most_waiting_blks\":%llu,\"chain_records\":%llu,\"trims\":%llu,\"trimmed_blks\":%llu,\"cuts\":%llu,\"cuts_new\":%llu",
		       home ? "true" : "false", (unsigned long long)r->payload_bytes,
		       seconds(r->commit_ns), (unsigned long long)r->commit_bytes,
		       (double)r->payload_bytes * linear_s, (unsigned long long)r->home_units,
		       seconds(r->bound_ns), seconds(r->atomic_ns),
		       (unsigned long long)r->atomic_erases, (unsigned long long)r->logged_blks,
		       (unsigned long long)r->direct_blks, (unsigned long long)r->checkpoint_blks,
		       (unsigned long long)r->meta_blks, (unsigned long long)r->idles,
		       seconds(r->idle_ns), (unsigned long long)r->idle_blks,
		       (unsigned long long)r->rests, (unsigned long long)r->waiting_blks,
		       (unsigned long long)r->most_waiting_blks,
		       (unsigned long long)r->chain_records, (unsigned long long)r->trims,
		       (unsigned long long)r->trimmed_blks, (unsigned long long)r->cuts.cuts,
		       (unsigned long long)r->cuts.found_new);
	puts("}");
	fflush(stdout);
}

static void usage(FILE *f)
{
	fputs("usage: replay [--each] [--profile ID] [--chunk KIB] [--log MIB] [--no-journal] [--plan-by measured|none] [--idle PERCENT] [--every N] [--home] [--trim] [--no-discard] [--verify] [--cuts N] [--verbose]\n"
	      "	plain|merge|order|dm-snapshot|cowfs|dirty TRACE\n",
	      f);
	exit(f == stdout ? 0 : 2);
}

static uint64_t number(const char *s)
{
	uint64_t n;

	if (parse_u64(s, &n) < 0 || !n)
		usage(stderr);
	return n;
}

static void options(int argc, char **argv)
{
	static const struct option names[] = {
		{ "each", 0, NULL, 'e' },	{ "profile", 1, NULL, 'p' },
		{ "chunk", 1, NULL, 'c' },	{ "log", 1, NULL, 'l' },
		{ "verify", 0, NULL, 'v' },	{ "no-journal", 0, NULL, 'n' },
		{ "cuts", 1, NULL, 'C' },	{ "verbose", 0, NULL, 'V' },
		{ "help", 0, NULL, 'h' },	{ "plan-by", 1, NULL, 'P' },
		{ "idle", 1, NULL, 'i' },	{ "every", 1, NULL, 'E' },
		{ "home", 0, NULL, 'H' },	{ "trim", 0, NULL, 't' },
		{ "no-discard", 0, NULL, 'd' }, { 0 }
	};
	static const char *const systems[] = { "plain",	      "merge", "order",
					       "dm-snapshot", "cowfs", "dirty" };
	int c;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (c) {
		case 'e':
			opt.each = true;
			break;
		case 'p':
			opt.profile = optarg;
			break;
		case 'c':
			opt.chunk_blks = (unsigned)(number(optarg) / 4);
			break;
		case 'l':
			opt.cowfs.log_bytes = number(optarg) * MIB;
			break;
		case 'C':
			opt.cowfs.cuts_every = number(optarg);
			break;
		case 'P':
			opt.measured = !strcmp(optarg, "measured");
			opt.cowfs.no_plan = !strcmp(optarg, "none");
			if (!opt.measured && !opt.cowfs.no_plan)
				usage(stderr);
			break;
		case 'i':
			opt.cowfs.idle = true;
			if (parse_u64(optarg, &opt.cowfs.idle_percent) < 0)
				usage(stderr);
			break;
		case 'E':
			opt.cowfs.every = number(optarg);
			break;
		case 'H':
			opt.home = true;
			break;
		case 't':
			opt.cowfs.trim = true;
			break;
		case 'd':
			opt.no_discard = true;
			break;
		case 'v':
			opt.cowfs.verify = true;
			break;
		case 'n':
			opt.no_journal = true;
			break;
		case 'V':
			opt.cowfs.verbose = true;
			break;
		case 'h':
			usage(stdout);
			break;
		default:
			usage(stderr);
		}
	}
	if (argc - optind != 2 || !opt.chunk_blks)
		usage(stderr);
	for (size_t i = 0; i < ARRAY_SIZE(systems); i++)
		if (!strcmp(argv[optind], systems[i]))
			opt.system = systems[i];
	if (!opt.system)
		usage(stderr);
}

/* What cowctl measure makes of the card. NULL: a profile that is not confirmed, and plans nothing. */
static const struct flash_profile *measured_of(const struct flash_profile *p)
{
	static struct flash_profile profile;
	static struct measurement m;
	const struct measure_params params = { .seed = 1 };
	struct target *t = model_target(p, NULL, p->capacity_bytes / 2 + 60 * KIB,
					round_down_u64(min_u64(GIB, p->capacity_bytes / 3), MIB),
					1);

	if (!t)
		die("no memory");
	if (measure_run(&m, t, &params) < 0)
		die("%s: %s", p->id, m.why);
	profile = m.profile;
	measure_free(&m);
	target_close(t);
	return m.confirmed ? &profile : NULL;
}

int main(int argc, char **argv)
{
	struct flash_profiles *ps;
	bool found = false, cowfs;
	struct trace t = { 0 };
	char why[200];

	options(argc, argv);
	cowfs = !strcmp(opt.system, "cowfs");
	trace_open(&t, argv[optind + 1]);
	if (!strcmp(opt.system, "dirty")) {
		replay_overlay(&t, NULL, NULL);
		return 0;
	}
	if (flash_profiles_open(&ps, NULL, why, sizeof(why)) < 0)
		die("%s", why);
	for (size_t i = 0; i < flash_profiles_count(ps); i++) {
		const struct flash_profile *p = flash_profiles_at(ps, i);
		struct result r = { 0 }, home = { 0 };

		if (opt.profile ? strcmp(p->id, opt.profile) != 0
				: p->class != FLASH_CARD || !p->has_write || p->members > 1 ||
					  p->append_bytes)
			continue;
		found = true;
		trace_rewind(&t);
		if (opt.measured) {
			opt.cowfs.plan = measured_of(p);
			opt.cowfs.no_plan = !opt.cowfs.plan;
		}
		if (!cowfs)
			replay_model(&t, p, &r);
		else if (!opt.home)
			cowfs_replay(&t, p, opt.each, false, &opt.cowfs, &r);
		if (!opt.home)
			print(p, &r, false);
		if (!cowfs)
			continue;
		trace_rewind(&t);
		cowfs_replay(&t, p, opt.each, true, &opt.cowfs, &home);
		print(p, &home, true);
	}
	flash_profiles_close(ps);
	flash_trace_close(t.t);
	if (!found)
		die("no card is called %s", opt.profile ? opt.profile : "(any)");
	return 0;
}
