/* SPDX-License-Identifier: MIT */
/*
 * Golden images (tests/golden): cards that an earlier cowfs wrote are read as they were meant, and
 * can be continued. A difference here is a change of the format.
 */
#include "test.h"
#include "golden/golden.h"
#include "log/codec.h"

static FILE *open_file(const char *name, const char *suffix)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.%s", GOLDEN_DIR, name, suffix);
	f = fopen(path, "re");
	if (!f)
		fail_msg("%s: %s", path, strerror(errno));
	return f;
}

/* Line by line, so that a difference shows its field. */
static void compare(const char *name, char *is)
{
	FILE *f = open_file(name, "expect");
	char line[4096], where[64] = "";

	while (fgets(line, sizeof(line), f)) {
		char *end = is + strcspn(is, "\n");
		bool last = !*end;

		*end = '\0';
		line[strcspn(line, "\n")] = '\0';
		if (!strchr(line, ' '))
			snprintf(where, sizeof(where), "%.63s", line);
		if (strcmp(line, is))
			fail_msg("%s, %s: '%s', expected '%s'", name, where, is, line);
		is = end + !last;
	}
	if (*is)
		fail_msg("%s: more than expected: '%s'", name, is);
	fclose(f);
}

static void load(const char *name, struct toy *t)
{
	FILE *f = open_file(name, "image");

	*t = (struct toy){ 0 };
	if (!golden_load(f, &t->base, &t->card))
		fail_msg("%s: not an image", name);
	fclose(f);
}

static _Alignas(COW_BLK_BYTES) uint8_t before[TOY_BLKS * COW_BLK_BYTES],
	after[TOY_BLKS * COW_BLK_BYTES];

static struct wear_table *table_of(struct toy *t)
{
	const struct wear_table *w;
	struct wear_table *copy;

	log_wear_load(t->log);
	w = log_wear(t->log);
	assert_non_null(w);
	copy = malloc(wear_table_bytes(&w->geo));
	assert_non_null(copy);
	memcpy(copy, w, wear_table_bytes(&w->geo));
	return copy;
}

/* It is the same log, and keeps all its counters. */
static void assert_goes_on(struct toy *t, const struct log_super *was,
			   const struct wear_ledger *ledger, const struct wear_table *table)
{
	const uint64_t *old = (const uint64_t *)ledger, *new = (const uint64_t *)&t->rep.ledger;
	const struct log_super *s = log_super(t->log);
	struct wear_table *now = table_of(t);

	assert_int_equal(s->incompat, LOG_INCOMPAT_ESCAPED);
	assert_int_equal(log_super_trouble(t->log), 0);
	assert_memory_equal(s->ring_uuid, was->ring_uuid, 16);
	for (size_t i = 0; i < sizeof(*ledger) / sizeof(*old); i++)
		assert_true(new[i] >= old[i]);
	assert_int_equal(t->rep.ledger.table_losses, ledger->table_losses);
	for (uint32_t i = 0; i < wear_units(&table->geo); i++) {
		assert_true(now->unit[i].blks >= table->unit[i].blks);
		assert_true(now->unit[i].visits >= table->unit[i].visits);
	}
	assert_true(now->commit_n >= table->commit_n);
	for (uint32_t i = 0; i < WEAR_COMMITS; i++) /* bytes of the newest one may still grow */
		if (table->commit[i].n && table->commit[i].n < table->commit_n)
			assert_memory_equal(&now->commit[i], &table->commit[i],
					    sizeof(table->commit[i]));
	free(now);
}

/* A commit, a full checkpoint, and another attach: nothing else changes. All blocks count as
 * used. */
static void go_on(struct toy *t)
{
	const struct log_super was = *log_super(t->log);
	const struct wear_ledger ledger = t->rep.ledger;
	struct wear_table *table = table_of(t);

	assert_int_equal(toy_view(t, before), 0);
	toy_write(t, 7, 777);
	toy_content(777, before + blk_to_bytes(7));
	assert_int_equal(toy_commit(t), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(toy_view(t, after), 0);
		assert_memory_equal(before, after, sizeof(before));
		if (i == 1)
			assert_int_equal(toy_checkpoint(t, RECORD_TAIL, RECORD_CLEAN), 0);
		toy_close(t);
		assert_int_equal(toy_open(t, 0), 0);
		assert_int_equal(t->rep.state, i < 1 ? LOG_LIVE : LOG_CLEAN);
		assert_goes_on(t, &was, &ledger, table);
	}
	free(table);
}

static void check_image(const char *name, void (*go)(struct toy *t))
{
	uint64_t ops, bad;
	size_t len;
	char *text = NULL;
	struct toy t;
	FILE *f;

	load(name, &t);
	ops = sim_ops(t.base) + sim_ops(t.card);
	assert_int_equal(toy_open(&t, 0), 0);
	f = open_memstream(&text, &len);
	golden_report(f, &t);
	fclose(f);
	compare(name, text);
	free(text);
	assert_int_equal(log_verify(t.log, NULL, NULL, &bad), 0);
	assert_int_equal(bad, 0);
	assert_int_equal(sim_ops(t.base) + sim_ops(t.card), ops);
	go(&t);
	toy_free(&t);
}

/* Recovery writes everything home and leaves the superblock as it is. */
static void check_recover(const char *name)
{
	struct log_super was;
	struct toy t;

	load(name, &t);
	assert_int_equal(toy_open(&t, 0), 0);
	was = *log_super(t.log);
	assert_int_equal(toy_view(&t, before), 0);
	assert_int_equal(toy_checkpoint(&t, RECORD_RETIRED, RECORD_CLEAN), 0);
	toy_close(&t);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(t.rep.state, LOG_RETIRED);
	assert_int_equal(t.rep.live_blks + t.rep.zero_blks, 0);
	assert_memory_equal(&was, log_super(t.log), sizeof(was));
	assert_int_equal(toy_view(&t, after), 0);
	assert_memory_equal(before, after, sizeof(before));
	toy_free(&t);
}

TEST(test_cards)
{
	static const char *const names[] = { "v1-live", "v1-chain",   "v1-retired",
					     "v1-lag",	"v1-payload", "v1-joint" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		check_image(names[i], go_on);
		check_recover(names[i]);
	}
}

/* Nothing is checkpointed; back to the held generation, and then on as ever. */
static void go_back(struct toy *t)
{
	struct log_index *ix = log_hold_index(t->log);
	uint64_t blks;

	assert_int_equal(toy_checkpoint(t, RECORD_TAIL, 0), -EBUSY);
	assert_non_null(ix);
	assert_int_equal(log_index_read_volume(ix, t->base, 0, TOY_BLKS, before), 0);
	log_index_unref(ix);
	assert_int_equal(toy_view(t, after), 0);
	assert_memory_not_equal(before, after, sizeof(before));
	assert_int_equal(commit_go_back(t->log, t->base, true), 0);
	toy_close(t);
	assert_int_equal(toy_open(t, 0), 0);
	assert_false(log_holds(t->log, NULL));
	assert_int_equal(toy_view(t, after), 0);
	assert_memory_equal(before, after, sizeof(before));
	assert_int_equal(toy_checkpoint(t, RECORD_TAIL, 0), 0);
	assert_int_equal(log_super(t->log)->incompat, LOG_INCOMPAT_ESCAPED);
	assert_int_equal(toy_view(t, after), 0);
	assert_memory_equal(before, after, sizeof(before));
	blks = log_index_data_blks(t->index);
	assert_int_equal(blks, 0);
}

TEST(test_held)
{
	check_image("v1-held", go_back);
	check_image("v1-back", go_on);
}

/* With lag the previous generation is a candidate as well: it is chosen if the card has lost a part
 * of the newest. */
static void lost_newest(const char *name)
{
	const uint8_t lost[COW_BLK_BYTES] = { 0 };
	struct log_record newest;
	struct toy t;

	load(name, &t);
	assert_int_equal(toy_open(&t, 0), 0);
	newest = t.rep.newest;
	assert_int_equal(log_super(t.log)->lag, 1);
	assert_int_equal(newest.floor_seq, newest.seq - 1);
	/* the older candidate when it was written */
	assert_int_equal(newest.fallback_seq, newest.seq - 2);
	assert_int_equal(toy_view(&t, before), 0);
	assert_int_equal(
		sim_poke(t.card, log_super(t.log)->ring_off_bytes + blk_to_bytes(newest.start_lblk),
			 lost, sizeof(lost)),
		0);
	toy_close(&t);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(t.rep.state, LOG_FELL_BACK);
	assert_int_equal(t.rep.newest.seq, newest.seq - 1);
	assert_int_equal(toy_view(&t, after), 0);
	assert_memory_not_equal(before, after, sizeof(before));
	/* a generation found by a session may not be durable: three records of one image come
	 * before its first write */
	toy_write(&t, 7, 777);
	assert_int_equal(toy_commit(&t), 0);
	toy_close(&t);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_in_range(t.rep.newest.seq, newest.seq + 3, newest.seq + 4);
	go_on(&t);
	toy_free(&t);
}

TEST(test_lag)
{
	lost_newest("v1-lag");
}

/* Every field of every block: read, and written again as the same bytes. */
static void check_blocks(const char *name)
{
	static struct desc_cursor c;
	uint8_t blk[6][COW_BLK_BYTES], again[5][COW_BLK_BYTES] = { 0 };
	uint8_t uuid[16] = "ring uuid 123456";
	struct desc_writer w;
	struct desc_extent e;
	struct log_super s;
	struct log_head h;
	struct log_record r;
	struct toy t;
	char *text = NULL;
	size_t len, copies;
	FILE *f = open_memstream(&text, &len);
	int more;

	load(name, &t);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(sim_peek(t.base, blk_to_bytes(i), blk[i], COW_BLK_BYTES), 0);
	card_close(t.base);
	assert_int_equal(codec_get_super(blk[0], &s), 0);
	golden_print_super(f, &s);
	codec_put_super(again[0], &s);
	assert_int_equal(codec_get_head(blk[1], (const uint8_t *)"ring uuid 12345", &h), 0);
	golden_print_head(f, &h);
	codec_put_head(again[1], &h);
	assert_int_equal(codec_get_record(blk[2], uuid, &r), 0);
	golden_print_record(f, &r);
	assert_int_equal(r.wear.bytes, RECORD_WEAR_ROOM);
	memcpy(again[2] + RECORD_WEAR_OFF, blk[2] + RECORD_WEAR_OFF, RECORD_WEAR_ROOM);
	codec_put_record(again[2], &r);
	assert_int_equal(codec_get_record(again[2], uuid, &r), 0);
	/* 0.1.0 had two numbers here, which are zero now, and so its checksum differs */
	memset(blk[2] + 1688, 0, 8);
	memcpy(blk[2] + 8, again[2] + 8, 4);
	assert_int_equal(codec_get_wear(blk[5], uuid, 0x1112131415161718, 0x2122232425262728,
					0x31323334, &copies),
			 0);
	memcpy(again[4] + WEAR_BLK_OFF, blk[5] + WEAR_BLK_OFF, copies);
	codec_put_wear(again[4], uuid, 0x1112131415161718, 0x2122232425262728, 0x31323334, copies);
	desc_start(&w, again[3]);
	assert_int_equal(
		desc_open(&c, blk[3], uuid, 0x1112131415161718, 0x2122232425262728, 0x31323334), 0);
	while ((more = desc_next(&c, &e)) == 1) {
		golden_print_extent(f, &e);
		assert_int_equal(desc_put(&w, &e), e.blks);
	}
	assert_int_equal(more, 0);
	desc_seal(&w, uuid, 0x1112131415161718, 0x2122232425262728, 0x31323334);
	assert_int_equal(codec_get_super(blk[4], &s), -EPROTONOSUPPORT);
	fprintf(f, "not understood %llx %llx\n", (unsigned long long)s.ro_compat,
		(unsigned long long)s.incompat);
	fclose(f);
	compare(name, text);
	free(text);
	for (unsigned i = 0; i < 4; i++)
		assert_memory_equal(blk[i], again[i], COW_BLK_BYTES);
	assert_memory_equal(blk[5], again[4], COW_BLK_BYTES);
}

TEST(test_blocks)
{
	check_blocks("v1-blocks");
}

/* The newest commit of 0.1.0 lies in lent space: no older generation is taken in its place, and nothing
 * is written. */
TEST(test_lent)
{
	struct toy t;
	uint64_t ops;

	load("v1-lent", &t);
	ops = sim_ops(t.base);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(t.rep.state, LOG_BROKEN);
	assert_true(t.rep.needs_older);
	assert_string_equal(
		t.rep.why,
		"a part of generation 3 is in space that was lent to its commit: cowfs 0.1.0 "
		"completes it, with cowctl recover --lend DEVICE|FILE");
	assert_int_equal(toy_checkpoint(&t, RECORD_RETIRED, 0), -EUCLEAN);
	assert_int_equal(sim_ops(t.base), ops);
	toy_free(&t);
}

/* Nor is it if it is one of several volumes, and no record behind it says that it counts. */
TEST(test_joint)
{
	uint64_t ops;
	struct toy t;

	load("v1-joint-undecided", &t);
	ops = sim_ops(t.base);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(t.rep.state, LOG_BROKEN);
	assert_true(t.rep.needs_older);
	assert_string_equal(t.rep.why,
			    "record 6 is of a commit of several volumes: cowfs 0.1.0 "
			    "completes it, with cowctl recover while all their cards are "
			    "plugged in");
	assert_int_equal(t.rep.live_blks + t.rep.zero_blks, 0);
	toy_write(&t, 7, 777);
	assert_int_equal(toy_commit(&t), -EUCLEAN);
	assert_int_equal(toy_checkpoint(&t, RECORD_RETIRED, RECORD_CLEAN), -EUCLEAN);
	assert_int_equal(sim_ops(t.base), ops);
	toy_free(&t);
}
