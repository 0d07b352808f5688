/* SPDX-License-Identifier: MIT */
/*
 * Rings of 36 MiB that were made to use up all memory, or to be read forever: every checksum is
 * right. Each is opened in a child, which counts its own memory and time.
 */
#include "test.h"
#include "base/crc32c.h"
#include "log/codec.h"
#include "logcard.h"

/* of CPU time, because other programs run as well; of the ring, how often it may be read */
enum { MAX_SECONDS = 240, MAX_MIB = 64, MAX_RINGS = 20 };

static struct log_super super;
static uint64_t card_bytes = 64 * MIB;

/* A card with a live log and an empty ring of 9 segments of 4 MiB. */
static struct card *ring_new(void)
{
	struct card *c = card_of(card_bytes, 4 * MIB, 0);
	uint64_t missing;

	assert_int_equal(super_plan(c, c, 16 * MIB, 36 * MIB, &super, &missing), 0);
	super.state = SUPER_LIVE;
	memset(super.ring_uuid, 7, 16);
	assert_int_equal(super_write(c, &super), 0);
	return c;
}

static uint64_t seg_blks(void)
{
	return super.seg_bytes / COW_BLK_BYTES;
}

static uint64_t ring_blks(void)
{
	return seg_blks() * super.seg_count;
}

static void put(struct card *c, uint64_t lblk, uint8_t *blk)
{
	assert_int_equal(sim_poke(c, super.ring_off_bytes + blk_to_bytes(lblk), blk, COW_BLK_BYTES),
			 0);
}

static void put_record(struct card *c, const struct log_record *rec)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 };

	codec_put_record(blk, rec);
	put(c, rec->lblk, blk);
}

static void put_heads(struct card *c)
{
	for (uint32_t i = 0; i < super.seg_count; i++) {
		struct log_head h = { .seg = i, .serial = i + 1, .epoch = 1ull << 32 };
		uint8_t blk[COW_BLK_BYTES] = { 0 };

		memcpy(h.ring_uuid, super.ring_uuid, 16);
		codec_put_head(blk, &h);
		put(c, i * seg_blks(), blk);
	}
}

static struct log_record record_of(uint64_t seq, uint64_t lblk)
{
	struct log_record rec = { .type = RECORD_COMMIT,
				  .epoch = 1ull << 32,
				  .seq = seq,
				  .lblk = lblk,
				  .start_lblk = lblk };

	memcpy(rec.ring_uuid, super.ring_uuid, 16);
	rec.tail_seq = rec.floor_seq = seq;
	return rec;
}

/* A descriptor block of 168 zero extents on every other block from blk on; if `wrong`, one of them
 * does not match the base. */
static uint32_t put_desc(struct card *c, uint64_t lblk, uint64_t seq, uint32_t index, uint64_t blk,
			 bool wrong, uint32_t crc)
{
	uint8_t buf[COW_BLK_BYTES] = { 0 };
	const uint32_t other = 1;
	struct desc_extent e = { .type = DESC_DIRECT, .blks = 1, .blk = 0, .crc = &other };
	struct desc_writer w;

	desc_start(&w, buf);
	if (wrong)
		(void)desc_put(&w, &e);
	e = (struct desc_extent){ .type = DESC_ZERO, .blks = 1 };
	for (e.blk = 1 + blk; e.blk < 4096 && desc_put(&w, &e); e.blk += 2)
		;
	desc_seal(&w, super.ring_uuid, 1ull << 32, seq, index);
	put(c, lblk, buf);
	return crc32c(crc, buf, COW_BLK_BYTES);
}

static unsigned long long cpu_ms(const struct rusage *u)
{
	return (unsigned long long)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1000 +
	       (unsigned long long)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1000;
}

static void child(struct card *c, int fd)
{
	struct rusage before, after;
	struct log_open_report rep;
	char line[256];
	struct log *log;
	int r;

	getrusage(RUSAGE_SELF, &before);
	r = log_open(&log, c, c, &super, 0, NULL, &rep);
	if (r == 0 && rep.state == LOG_LIVE)
		log_wear_load(log);
	getrusage(RUSAGE_SELF, &after);
	snprintf(line, sizeof(line), "%d %d %llu %ld %llu %s", r, r == 0 ? (int)rep.state : -1,
		 cpu_ms(&after) - cpu_ms(&before), (after.ru_maxrss - before.ru_maxrss) / 1024,
		 (unsigned long long)(c->account.read_bytes / COW_BLK_BYTES),
		 r == 0 ? rep.why : "");
	(void)!write(fd, line, strlen(line));
	_exit(0);
}

static void open_bounded(struct card *c, const char *what, int want_state)
{
	char line[256] = "", why[200] = "";
	unsigned long long ms, blks;
	int r, state, fds[2], status;
	long mib;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		alarm(2 * MAX_SECONDS);
		child(c, fds[1]);
	}
	close(fds[1]);
	(void)!read(fds[0], line, sizeof(line) - 1);
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (sscanf(line, "%d %d %llu %ld %llu %199[^\n]", &r, &state, &ms, &mib, &blks, why) < 5)
		fail_msg("%s: no answer in %d seconds", what, 2 * MAX_SECONDS);
	print_message(
		"%s: %llu ms of CPU, %ld MiB, %llu blocks read of a ring of %llu; state %d %s\n",
		what, ms, mib, blks, (unsigned long long)ring_blks(), state, why);
	assert_int_equal(r, 0);
	assert_int_equal(state, want_state);
	assert_true(ms < MAX_SECONDS * 1000);
	assert_true(blks <= MAX_RINGS * ring_blks());
	assert_true(mib <= MAX_MIB);
	card_close(c);
}

/* Every block is a record that builds on the previous one, back to one that does not exist. */
TEST(test_linked)
{
	struct card *c = ring_new();
	uint64_t seq = 2, last = 0;

	put_heads(c);
	for (uint64_t lblk = 1; lblk < ring_blks(); lblk++) {
		struct log_record rec = record_of(seq, lblk);

		if (lblk % seg_blks() == 0)
			continue;
		rec.prev = (struct record_ptr){ seq - 1, rec.epoch, last };
		rec.tail_seq = 1;
		put_record(c, &rec);
		last = lblk;
		seq++;
	}
	open_bounded(c, "linked records", LOG_BROKEN);
}

/* Commits up to this number, or to the end of the ring: each builds on the one before. wrong: the base matches none. */
static void put_chain(struct card *c, uint64_t max_seq, bool wrong)
{
	uint64_t seq = 1, last = 0;

	put_heads(c);
	for (uint64_t lblk = 1; lblk + 1 < ring_blks() && seq <= max_seq; lblk++) {
		struct log_record rec = record_of(seq, lblk + 1);

		if (lblk % seg_blks() == 0 || (lblk + 1) % seg_blks() == 0)
			continue;
		rec.prev = (struct record_ptr){ last ? seq - 1 : 0, rec.epoch, last };
		rec.tail_seq = 1;
		rec.floor_seq = wrong ? 1 : seq;
		rec.start_lblk = rec.desc_lblk = lblk;
		rec.desc_blks = 1;
		rec.desc_epoch = rec.epoch;
		rec.desc_seq = seq;
		rec.desc_crc = put_desc(c, lblk, seq, 0, seq % 3000, wrong, 0);
		put_record(c, &rec);
		last = ++lblk;
		seq++;
	}
}

/* All records share one long chain, and the base matches none of them. */
TEST(test_wrong_for_each)
{
	struct card *c = ring_new();

	put_chain(c, UINT64_MAX, true);
	open_bounded(c, "wrong for each", LOG_BROKEN);
}

/* One record whose descriptors fill the whole ring. */
TEST(test_giant)
{
	struct card *c = ring_new();
	struct log_record rec = record_of(1, ring_blks() - 1);
	uint64_t lblk = 1;

	put_heads(c);
	rec.desc_lblk = rec.start_lblk = lblk;
	rec.desc_epoch = rec.epoch;
	rec.desc_seq = rec.seq;
	for (; lblk < rec.lblk; lblk++)
		if (lblk % seg_blks())
			rec.desc_crc = put_desc(c, lblk, rec.seq, rec.desc_blks++, 0, false,
						rec.desc_crc);
	put_record(c, &rec);
	open_bounded(c, "giant descriptors", LOG_BROKEN);
	/* and one with descriptors that lie nowhere */
	c = ring_new();
	put_heads(c);
	rec = record_of(1, ring_blks() - 1);
	rec.desc_lblk = rec.start_lblk = 1;
	rec.desc_blks = (uint32_t)ring_blks();
	put_record(c, &rec);
	open_bounded(c, "giant claim", LOG_BROKEN);
}

/* Valid: a long chain whose records each describe other blocks. */
TEST(test_long_chain)
{
	struct card *c = ring_new();

	put_chain(c, 1000, false);
	open_bounded(c, "a long chain", LOG_LIVE);
}

/* A block of copies that say repeatedly that only the last unit was written. */
static void put_wear(struct card *c, const struct log_record *rec, uint64_t lblk, uint32_t index,
		     uint32_t items)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 };
	const uint32_t run = (items - 1) << 1 | 1;
	size_t n = 0;

	for (; n + 4 <= WEAR_BLK_ROOM; n += 4) /* this number of items from item 0 on, all zero */
		memcpy(blk + WEAR_BLK_OFF + n,
		       ((uint8_t[]){ 0, (uint8_t)(run | 0x80), (uint8_t)(run >> 7 | 0x80),
				     (uint8_t)(run >> 14) }),
		       4);
	codec_put_wear(blk, super.ring_uuid, rec->epoch, rec->seq, index, n);
	put(c, lblk, blk);
}

/* A wear table of a card of 32 GiB without one item, in records of which the oldest builds on the
 * newest. */
TEST(test_wear)
{
	enum { BLKS = 64 };
	struct wear_geometry g;
	uint64_t seq = 0, first = 0;
	struct log_record rec;
	struct card *c;

	card_bytes = 32 * GIB;
	c = ring_new();
	card_bytes = 64 * MIB;
	wear_plan(&g, 4 * MIB, WEAR_MAX_UNITS, 0, 32 * GIB, 0, 0);
	put_heads(c);
	for (uint64_t lblk = 1; lblk + BLKS < ring_blks(); lblk += BLKS + 1) {
		if (lblk / seg_blks() != (lblk + BLKS) / seg_blks())
			lblk = lblk / seg_blks() * seg_blks() + seg_blks() + 1;
		rec = record_of(++seq, lblk + BLKS);
		first = first ? first : rec.lblk;
		rec.wear = (struct wear_ref){ .prev = { seq - 1, rec.epoch, lblk - 1 },
					      .lblk = lblk,
					      .blks = BLKS,
					      .eb_blks = g.eb_blks,
					      .unit_blks = g.unit_blks };
		memcpy(rec.wear.units, g.units, sizeof(g.units));
		memcpy(rec.wear.first_unit, g.first_unit, sizeof(g.first_unit));
		if (rec.wear.prev.lblk % seg_blks() == 0)
			rec.wear.prev.lblk -= BLKS + 1; /* approximately */
		for (uint32_t i = 0; i < BLKS; i++)
			put_wear(c, &rec, lblk + i, i, wear_units(&g) + WEAR_COMMITS + WEAR_DAYS);
		put_record(c, &rec);
	}
	rec.wear.prev = (struct record_ptr){ rec.seq, rec.epoch, rec.lblk };
	put_record(c, &rec);
	open_bounded(c, "a wear table that is never whole", LOG_LIVE);
}

TEST(test_cancel)
{
	struct card *c = ring_new();
	struct log_open_report rep;
	struct log *log;

	put_heads(c);
	log_cancel_open();
	assert_int_equal(log_open(&log, c, c, &super, 0, NULL, &rep), -EINTR);
	card_close(c);
}
