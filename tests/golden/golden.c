/* SPDX-License-Identifier: MIT */
#include "golden/golden.h"

#include <inttypes.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "log/index_build.h"

/* ---- cards as text ---- */

static bool is_zero(const uint8_t *p, size_t len)
{
	while (len && !*p)
		p++, len--;
	return !len;
}

void golden_save_block(FILE *f, uint64_t blk, const uint8_t p[COW_BLK_BYTES])
{
	if (is_zero(p, COW_BLK_BYTES))
		return;
	fprintf(f, "b %" PRIu64 "\n", blk);
	if (!memcmp(p, p + 8, COW_BLK_BYTES - 8)) {
		fputs("w ", f);
		for (int i = 0; i < 8; i++)
			fprintf(f, "%02x", p[i]);
		fputc('\n', f);
		return;
	}
	for (size_t at = 0; at < COW_BLK_BYTES;) {
		size_t n = 0, zeroes = 0;

		if (!p[at]) {
			at++;
			continue;
		}
		/* a line ends at eight zeroes */
		while (at + n + zeroes < COW_BLK_BYTES && zeroes < 8 && n < 40)
			if (p[at + n + zeroes])
				n += zeroes + 1, zeroes = 0;
			else
				zeroes++;
		fprintf(f, "+%zu ", at);
		for (size_t i = 0; i < n; i++)
			fprintf(f, "%02x", p[at + i]);
		fputc('\n', f);
		at += n;
	}
}

void golden_save(FILE *f, struct card *c)
{
	uint8_t blk[COW_BLK_BYTES];

	fprintf(f, "card %" PRIu64 " %u %" PRIu64 "\n", c->geo.size_bytes, c->geo.erase_block_bytes,
		c->geo.disk_off_bytes);
	for (uint64_t b = 0; b < c->geo.size_bytes / COW_BLK_BYTES; b++)
		if (sim_peek(c, blk_to_bytes(b), blk, sizeof(blk)) == 0)
			golden_save_block(f, b, blk);
}

static size_t from_hex(const char *s, uint8_t *p, size_t room)
{
	size_t n = 0;
	unsigned v;

	while (n < room && sscanf(s, "%2x", &v) == 1 && s[1]) {
		p[n++] = (uint8_t)v;
		s += 2;
	}
	return n;
}

static bool load_line(const char *line, struct card **cards, unsigned *n, uint64_t *blk)
{
	struct sim_params p = { .identity = "toy card" };
	uint64_t size, disk;
	uint8_t b[COW_BLK_BYTES];
	unsigned eb;
	size_t at, len;
	int skip = 0;

	if (line[0] == '#')
		return true;
	if (sscanf(line, "card %" SCNu64 " %u %" SCNu64, &size, &eb, &disk) == 3) {
		p.size_bytes = size;
		p.erase_block_bytes = eb;
		p.disk_off_bytes = disk;
		return *n < 2 && sim_new(&cards[(*n)++], &p) == 0;
	}
	if (!*n)
		return false;
	if (line[0] == 'b')
		return sscanf(line, "b %" SCNu64, blk) == 1;
	if (line[0] == 'w') {
		if (from_hex(line + 2, b, 8) != 8)
			return false;
		for (size_t i = 8; i < COW_BLK_BYTES; i++)
			b[i] = b[i - 8];
		return sim_poke(cards[*n - 1], blk_to_bytes(*blk), b, sizeof(b)) == 0;
	}
	if (sscanf(line, "+%zu %n", &at, &skip) != 1 || !skip || at >= COW_BLK_BYTES)
		return false;
	len = from_hex(line + skip, b, COW_BLK_BYTES - at);
	return len && sim_poke(cards[*n - 1], blk_to_bytes(*blk) + at, b, len) == 0;
}

bool golden_load(FILE *f, struct card **ret_base, struct card **ret_card)
{
	struct card *cards[2] = { NULL };
	char line[256];
	uint64_t blk = 0;
	unsigned n = 0;

	while (fgets(line, sizeof(line), f))
		if (!load_line(line, cards, &n, &blk)) {
			card_close(cards[0]);
			card_close(cards[1]);
			return false;
		}
	*ret_base = cards[0];
	*ret_card = n == 2 ? cards[1] : cards[0];
	return n > 0;
}

/* ---- what is in them ---- */

static void print_bytes(FILE *f, const char *name, const void *p, size_t n)
{
	fprintf(f, "%s ", name);
	for (size_t i = 0; i < n; i++)
		fprintf(f, "%02x", ((const uint8_t *)p)[i]);
	fputc('\n', f);
}

#define U64(f, s, field) fprintf(f, #field " %" PRIu64 "\n", (uint64_t)(s)->field)

void golden_print_super(FILE *f, const struct log_super *s)
{
	print_bytes(f, "ring_uuid", s->ring_uuid, 16);
	U64(f, s, version);
	U64(f, s, state);
	U64(f, s, compat);
	U64(f, s, ro_compat);
	U64(f, s, incompat);
	U64(f, s, revision);
	U64(f, s, fs_bytes);
	U64(f, s, base_bytes);
	U64(f, s, log_bytes);
	U64(f, s, copy_off_bytes[0]);
	U64(f, s, copy_off_bytes[1]);
	U64(f, s, ring_off_bytes);
	U64(f, s, seg_bytes);
	U64(f, s, seg_count);
	U64(f, s, erase_block_bytes);
	U64(f, s, eb_source);
	U64(f, s, disk_off_bytes);
	U64(f, s, external);
	U64(f, s, lag);
	U64(f, s, image_boots);
	U64(f, s, image);
	U64(f, s, created_s);
	print_bytes(f, "fs_uuid", s->fs_uuid, 16);
}

void golden_print_head(FILE *f, const struct log_head *h)
{
	print_bytes(f, "ring_uuid", h->ring_uuid, 16);
	U64(f, h, epoch);
	U64(f, h, serial);
	U64(f, h, seg);
	U64(f, h, last.seq);
	U64(f, h, fallback_seq);
	U64(f, h, last.epoch);
	U64(f, h, last.lblk);
}

static void print_fingerprint(FILE *f, const struct fs_fingerprint *p)
{
	U64(f, p, kind);
	U64(f, p, mtime);
	U64(f, p, wtime);
	U64(f, p, mnt_count);
	U64(f, p, state);
	U64(f, p, kbytes_written);
	U64(f, p, journal_seq);
	U64(f, p, sb_crc);
	U64(f, p, gdt_crc);
	print_bytes(f, "uuid", p->uuid, 16);
	for (uint32_t i = 0; i < p->n_marks; i++) {
		fprintf(f, "mark %" PRIu64, p->mark[i].blk);
		for (int k = 0; k < 8; k++)
			fprintf(f, " %08x", p->mark[i].sector_crc[k]);
		fputc('\n', f);
	}
}

static void print_ledger(FILE *f, const struct wear_ledger *l)
{
	U64(f, l, absorbed_bytes);
	U64(f, l, absorbed_writes);
	U64(f, l, punched_bytes);
	U64(f, l, free_blks);
	U64(f, l, journal_blks);
	U64(f, l, same_blks);
	U64(f, l, direct_blks);
	U64(f, l, logged_blks);
	U64(f, l, zero_blks);
	U64(f, l, checkpoint_blks);
	U64(f, l, meta_blks);
	U64(f, l, super_blks);
	U64(f, l, write_calls);
	U64(f, l, written_bytes);
	U64(f, l, flushes);
	U64(f, l, commits);
	U64(f, l, commits_failed);
	U64(f, l, checkpoints);
	U64(f, l, attaches);
	U64(f, l, writable_ns);
	U64(f, l, spilled_blks);
	U64(f, l, hole_blks);
	U64(f, l, padded_blks);
	for (enum commit_cause c = CAUSE_MANUAL; c <= CAUSE_RECOVER; c++)
		fprintf(f, "commits of cause %d: %" PRIu64 "\n", c, l->cause_commits[c - 1]);
	U64(f, l, visits);
	U64(f, l, attached_ns);
	U64(f, l, first_s);
	U64(f, l, foreign_bytes);
	U64(f, l, foreign_first_s);
	U64(f, l, table_losses);
}

static void print_table(FILE *f, const struct wear_table *t)
{
	for (uint32_t i = 0; i < wear_units(&t->geo); i++)
		fprintf(f, "unit %u %u blocks %u visits\n", i, t->unit[i].blks, t->unit[i].visits);
	for (uint32_t i = 0; i < WEAR_COMMITS; i++) {
		const struct wear_commit *c = &t->commit[i];

		if (c->n)
			fprintf(f,
				"commit %" PRIu64 " at %" PRIu64 " cause %" PRIu64
				" absorbed %" PRIu64 " written %" PRIu64 " ms %" PRIu64
				" visits %" PRIu64 "\n",
				c->n, c->time_s, c->cause, c->absorbed_bytes, c->written_bytes,
				c->writable_ms, c->visits);
	}
	for (uint32_t i = 0; i < WEAR_DAYS; i++) {
		const struct wear_day *d = &t->day[i];

		if (d->n)
			fprintf(f,
				"day %" PRIu64 " %" PRIu64 " absorbed %" PRIu64 " in %" PRIu64
				" written %" PRIu64 " commits %" PRIu64 " visits %" PRIu64 "\n",
				d->n, d->day, d->absorbed_bytes, d->absorbed_writes,
				d->written_bytes, d->commits, d->visits);
	}
}

void golden_print_record(FILE *f, const struct log_record *r)
{
	print_bytes(f, "ring_uuid", r->ring_uuid, 16);
	U64(f, r, type);
	U64(f, r, cause);
	U64(f, r, flags);
	U64(f, r, epoch);
	U64(f, r, seq);
	U64(f, r, lblk);
	U64(f, r, prev.seq);
	U64(f, r, prev.epoch);
	U64(f, r, prev.lblk);
	U64(f, r, tail_seq);
	U64(f, r, floor_seq);
	U64(f, r, fallback_seq);
	U64(f, r, start_lblk);
	U64(f, r, desc_lblk);
	U64(f, r, desc_blks);
	U64(f, r, desc_crc);
	U64(f, r, desc_epoch);
	U64(f, r, desc_seq);
	U64(f, r, direct_blks);
	U64(f, r, logged_blks);
	U64(f, r, zero_blks);
	U64(f, r, time_s);
	print_fingerprint(f, &r->fingerprint);
	fprintf(f, "identity %s\n", r->identity);
	print_ledger(f, &r->ledger);
	U64(f, r, wear.prev.seq);
	U64(f, r, wear.prev.epoch);
	U64(f, r, wear.prev.lblk);
	U64(f, r, wear.lblk);
	U64(f, r, wear.blks);
	U64(f, r, wear.crc);
	U64(f, r, wear.eb_blks);
	U64(f, r, wear.unit_blks);
	U64(f, r, wear.units[0]);
	U64(f, r, wear.units[1]);
	U64(f, r, wear.first_unit[0]);
	U64(f, r, wear.first_unit[1]);
	U64(f, r, wear.bytes);
}

void golden_print_extent(FILE *f, const struct desc_extent *e)
{
	fprintf(f, "extent %d %u+%u at %u:", e->type, (unsigned)e->blk, e->blks, (unsigned)e->lblk);
	for (uint32_t i = 0; e->crc && i < e->blks; i++)
		fprintf(f, " %08x", e->crc[i]);
	fputc('\n', f);
}

void golden_report(FILE *f, struct toy *t)
{
	static const char *const kinds[] = {
		[INDEX_DATA] = "data", [INDEX_SPILL] = "spilled", [INDEX_ZERO] = "zero"
	};
	const struct log_open_report *r = &t->rep;
	uint8_t *view = io_alloc(blk_to_bytes(TOY_BLKS));
	struct log_hold held;
	struct index_entry e;

	fprintf(f, "super\n");
	golden_print_super(f, log_super(t->log));
	fprintf(f, "found\n");
	U64(f, r, state);
	fprintf(f, "super_trouble %u\n", log_super_trouble(t->log));
	U64(f, r, highest_seq);
	U64(f, r, rejected);
	U64(f, r, base_changed);
	U64(f, r, clone);
	U64(f, r, back_seq);
	U64(f, r, back_generation);
	U64(f, r, trial_over);
	fprintf(f, "chain_records %" PRIu64 "\n", log_chain_records(t->log));
	U64(f, r, live_blks);
	U64(f, r, zero_blks);
	U64(f, r, unreadable_blks);
	fprintf(f, "why %s\n", r->why);
	fprintf(f, "newest\n");
	golden_print_record(f, &r->newest);
	fprintf(f, "ledger\n");
	print_ledger(f, &r->ledger);
	log_wear_load(t->log);
	if (log_wear(t->log))
		print_table(f, log_wear(t->log));
	fprintf(f, "index\n");
	for (size_t i = 0; log_index_extent(t->index, i, &e); i++)
		fprintf(f, "%s %" PRIu64 "+%" PRIu64 " at %" PRIu64 "\n", kinds[e.kind], e.blk,
			e.blks, e.lblk);
	if (log_holds(t->log, &held))
		fprintf(f, "held %" PRIu64 " generation %" PRIu64 " time %" PRIu64 "\n", held.seq,
			held.generation, held.time_s);
	if (!view || toy_view(t, view) < 0)
		fprintf(f, "view unreadable\n");
	else
		for (unsigned b = 0; b < TOY_BLKS; b++)
			fprintf(f, "block %u %08x\n", b,
				crc32c(0, view + blk_to_bytes(b), COW_BLK_BYTES));
	free(view);
}
