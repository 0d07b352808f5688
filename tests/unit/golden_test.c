/* SPDX-License-Identifier: MIT */
/*
 * Golden images (tests/golden): cards that an earlier cowfs wrote are read as it meant them, and go on. A
 * difference here is a change of the format.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

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

static _Alignas(COW_BLK_BYTES) uint8_t before[TOY_BLKS * COW_BLK_BYTES], after[TOY_BLKS * COW_BLK_BYTES];

/* A commit, everything home, and another attach: nothing else changes. All blocks count as used. */
static void go_on(struct toy *t)
{
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
	}
}

static void check_image(const char *name)
{
	uint64_t ops, bad, len;
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
	go_on(&t);
	toy_free(&t);
}

static void test_live(void **state)
{
	(void)state;
	check_image("v1-live");
}

static void test_chain(void **state)
{
	(void)state;
	check_image("v1-chain");
}

static void test_retired(void **state)
{
	(void)state;
	check_image("v1-retired");
}

/* With lag the one before the newest is a candidate as well: it is chosen if the card has lost a part of the newest. */
static void test_lag(void **state)
{
	const uint8_t lost[COW_BLK_BYTES] = { 0 };
	struct log_record newest;
	struct toy t;

	(void)state;
	check_image("v1-lag");
	load("v1-lag", &t);
	assert_int_equal(toy_open(&t, 0), 0);
	newest = t.rep.newest;
	assert_int_equal(log_super(t.log)->lag, 1);
	assert_int_equal(newest.floor_seq, newest.seq - 1);
	assert_int_equal(newest.fallback_seq, newest.seq - 2); /* what was the older one when it was written */
	assert_int_equal(toy_view(&t, before), 0);
	assert_int_equal(sim_poke(t.card, log_super(t.log)->ring_off_bytes + blk_to_bytes(newest.start_lblk), lost, sizeof(lost)), 0);
	toy_close(&t);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(t.rep.state, LOG_FELL_BACK);
	assert_int_equal(t.rep.newest.seq, newest.seq - 1);
	assert_int_equal(toy_view(&t, after), 0);
	assert_memory_not_equal(before, after, sizeof(before));
	/* what a session finds may not be durable: three records of one image come before its first write */
	toy_write(&t, 7, 777);
	assert_int_equal(toy_commit(&t), 0);
	toy_close(&t);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_in_range(t.rep.newest.seq, newest.seq + 3, newest.seq + 4);
	go_on(&t);
	toy_free(&t);
}

/* Every field of every block: read, and written again as the same bytes. */
static void test_blocks(void **state)
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

	(void)state;
	load("v1-blocks", &t);
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
	assert_int_equal(codec_get_wear(blk[5], uuid, 0x1112131415161718, 0x2122232425262728, 0x31323334, &copies), 0);
	memcpy(again[4] + WEAR_BLK_OFF, blk[5] + WEAR_BLK_OFF, copies);
	codec_put_wear(again[4], uuid, 0x1112131415161718, 0x2122232425262728, 0x31323334, copies);
	desc_start(&w, again[3]);
	assert_int_equal(desc_open(&c, blk[3], uuid, 0x1112131415161718, 0x2122232425262728, 0x31323334), 0);
	while ((more = desc_next(&c, &e)) == 1) {
		golden_print_extent(f, &e);
		assert_int_equal(desc_put(&w, &e), e.blks);
	}
	assert_int_equal(more, 0);
	desc_seal(&w, uuid, 0x1112131415161718, 0x2122232425262728, 0x31323334);
	assert_int_equal(codec_get_super(blk[4], &s), -EPROTONOSUPPORT);
	fprintf(f, "not understood %llx %llx\n", (unsigned long long)s.ro_compat, (unsigned long long)s.incompat);
	fclose(f);
	compare("v1-blocks", text);
	free(text);
	for (unsigned i = 0; i < 4; i++)
		assert_memory_equal(blk[i], again[i], COW_BLK_BYTES);
	assert_memory_equal(blk[5], again[4], COW_BLK_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_live),
		cmocka_unit_test(test_chain),
		cmocka_unit_test(test_retired),
		cmocka_unit_test(test_lag),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
