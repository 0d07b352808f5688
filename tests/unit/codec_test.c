/* SPDX-License-Identifier: MIT */
/* Tests of log/codec: reading returns what was written, all damage is detected, and right checksums
 * do not excuse invalid content. */
#include "test.h"
#include "log/codec.h"
#include "logcard.h"

static const uint8_t UUID[16] = "ring uuid 123456";

static struct log_super some_super(void)
{
	struct log_super s = { .version = LOG_FORMAT_VERSION,
			       .compat = 5,
			       .incompat = LOG_INCOMPAT_ESCAPED,
			       .state = SUPER_LIVE,
			       .revision = 7,
			       .fs_bytes = 64 * MIB,
			       .base_bytes = 200 * MIB,
			       .log_bytes = 200 * MIB,
			       .copy_off_bytes = { 64 * MIB, 200 * MIB - COW_BLK_BYTES },
			       .ring_off_bytes = 68 * MIB,
			       .seg_bytes = 4 * MIB,
			       .seg_count = 8,
			       .erase_block_bytes = 4 * MIB,
			       .eb_source = CARD_EB_CONFIGURED,
			       .disk_off_bytes = MIB,
			       .created_s = 1700000000 };

	memcpy(s.ring_uuid, UUID, 16);
	rnd_fill(s.fs_uuid, 16);
	return s;
}

static struct log_record some_record(void)
{
	struct log_record r = { .type = RECORD_COMMIT,
				.flags = RECORD_CLEAN,
				.epoch = 3ull << 32 | 99,
				.seq = 1000,
				.lblk = 77,
				.prev = { 998, 2ull << 32, 70 },
				.tail_seq = 990,
				.floor_seq = 1000,
				.fallback_seq = 998,
				.start_lblk = 71,
				.desc_lblk = 76,
				.desc_blks = 1,
				.desc_crc = 0xdeadbeef,
				.desc_epoch = 3ull << 32 | 99,
				.desc_seq = 1000,
				.direct_blks = 11,
				.logged_blks = 12,
				.zero_blks = 13,
				.cause = CAUSE_SHUTDOWN,
				.time_s = 1700000001,
				.identity = "a card" };

	memcpy(r.ring_uuid, UUID, 16);
	r.fingerprint = (struct fs_fingerprint){
		.kind = FS_EXT, .mtime = 1, .wtime = 2, .mnt_count = 3, .state = 4
	};
	rnd_fill(&r.ledger, sizeof(r.ledger));
	return r;
}

typedef int decode(const uint8_t *blk);

static int decode_super(const uint8_t *blk)
{
	struct log_super s;

	return codec_get_super(blk, &s);
}

static int decode_head(const uint8_t *blk)
{
	struct log_head h;

	return codec_get_head(blk, UUID, &h);
}

static int decode_record(const uint8_t *blk)
{
	struct log_record r;

	return codec_get_record(blk, UUID, &r);
}

static int decode_desc(const uint8_t *blk)
{
	static struct desc_cursor c;
	struct desc_extent e;
	int r = desc_open(&c, blk, UUID, 9, 8, 7);

	while (r == 0 && (r = desc_next(&c, &e)) == 1)
		r = 0;
	return r;
}

/* Flips one bit, and all bits, of each byte. */
static void each_flip_is_detected(uint8_t *blk, decode *f)
{
	assert_int_equal(f(blk), 0);
	for (size_t i = 0; i < COW_BLK_BYTES; i++)
		for (int k = 0; k < 2; k++) {
			uint8_t mask = k ? 0xff : (uint8_t)(1 << i % 8);

			blk[i] ^= mask;
			assert_true(f(blk) < 0);
			blk[i] ^= mask;
		}
	assert_int_equal(f(blk), 0);
}

static struct log_super past_super;

static int decode_past(const uint8_t *blk)
{
	struct log_past p;

	return codec_get_past(blk, &past_super, &p);
}

TEST(test_past_codec)
{
	const struct log_past p = { .cloned_s = 1,
				    .first_s = 2,
				    .absorbed_bytes = 3,
				    .written_bytes = 4,
				    .visits = 5,
				    .commits = 6,
				    .cards = 7,
				    .all_written_bytes = 8,
				    .ring_uuid = { 9 },
				    .model = "a card",
				    .identity = "0x1234" };
	uint8_t blk[COW_BLK_BYTES] = { 0 };
	struct log_super s = some_super();
	struct log_past t = { 0 };

	past_super = s;
	codec_put_past(blk, &s, &p);
	assert_int_equal(codec_get_past(blk, &s, &t), 0);
	assert_memory_equal(&t, &p, sizeof(p));
	each_flip_is_detected(blk, decode_past);
	/* of a log that was made before, or for another file system */
	s.created_s++;
	assert_int_equal(codec_get_past(blk, &s, &t), -ENOENT);
	s = past_super;
	s.fs_uuid[3] ^= 1;
	assert_int_equal(codec_get_past(blk, &s, &t), -ENOENT);
	/* a name without an end */
	memset(t.model, 'x', sizeof(t.model));
	memset(blk, 0, sizeof(blk));
	codec_put_past(blk, &past_super, &t);
	assert_int_equal(decode_past(blk), -EUCLEAN);
}

TEST(test_super_codec)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 }, again[COW_BLK_BYTES] = { 0 };
	struct log_super s = some_super(), t;

	codec_put_super(blk, &s);
	assert_int_equal(codec_get_super(blk, &t), 0);
	assert_int_equal(t.revision, 7);
	assert_int_equal(t.seg_count, 8);
	assert_int_equal(t.copy_off_bytes[1], s.copy_off_bytes[1]);
	assert_memory_equal(t.fs_uuid, s.fs_uuid, 16);
	codec_put_super(again, &t);
	assert_memory_equal(blk, again, sizeof(blk));
	each_flip_is_detected(blk, decode_super);
}

static void super_is(const struct log_super *s, int error)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 };
	struct log_super t;

	codec_put_super(blk, s);
	assert_int_equal(codec_get_super(blk, &t), error);
}

#define SUPER_IS(field, value, error)                                                              \
	do {                                                                                       \
		struct log_super wrong = some_super();                                             \
		wrong.field = value;                                                               \
		super_is(&wrong, error);                                                           \
	} while (0)

/* Checksums that are right, fields that are not. */
TEST(test_super_nonsense)
{
	SUPER_IS(seg_count, 0, -EUCLEAN);
	SUPER_IS(seg_count, UINT32_MAX, -EUCLEAN);
	SUPER_IS(seg_bytes, 4096, -EUCLEAN);
	SUPER_IS(seg_bytes, 64 * KIB + 512, -EUCLEAN);
	SUPER_IS(seg_bytes, 8 * MIB, -EUCLEAN);
	SUPER_IS(ring_off_bytes, UINT64_MAX - 4095, -EUCLEAN);
	SUPER_IS(ring_off_bytes, 180 * MIB, -EUCLEAN);
	SUPER_IS(ring_off_bytes, 60 * MIB, -EUCLEAN);
	SUPER_IS(ring_off_bytes, 68 * MIB + 512, -EUCLEAN);
	SUPER_IS(fs_bytes, 0, -EUCLEAN);
	SUPER_IS(fs_bytes, 300 * MIB, -EUCLEAN);
	SUPER_IS(fs_bytes, 64 * MIB + 512, -EUCLEAN);
	SUPER_IS(copy_off_bytes[0], 200 * MIB, -EUCLEAN);
	SUPER_IS(copy_off_bytes[0], 64 * MIB + 512, -EUCLEAN);
	SUPER_IS(copy_off_bytes[1], 200 * MIB, -EUCLEAN);
	SUPER_IS(copy_off_bytes[1], 200 * MIB - COW_BLK_BYTES - 512, -EUCLEAN);
	SUPER_IS(erase_block_bytes, 0, -EUCLEAN);
	SUPER_IS(erase_block_bytes, 4 * MIB + 512, -EUCLEAN);
	SUPER_IS(external, 2, -EUCLEAN);
	SUPER_IS(state, 0, -EUCLEAN);
	SUPER_IS(state, SUPER_PENDING + 1, -EUCLEAN);
	SUPER_IS(log_bytes, UINT64_MAX, -EUCLEAN);
	SUPER_IS(base_bytes, UINT64_MAX, -EUCLEAN);
	SUPER_IS(version, 2, -EPROTONOSUPPORT);
	SUPER_IS(incompat, LOG_INCOMPAT_ESCAPED | (LOG_INCOMPAT_KNOWN + 1), -EPROTONOSUPPORT);
	SUPER_IS(ro_compat, 1, -EPROTONOSUPPORT);
	SUPER_IS(lag, LOG_MAX_LAG + 1, -EPROTONOSUPPORT);
}

TEST(test_head_codec)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 }, again[COW_BLK_BYTES] = { 0 };
	struct log_head h = { .epoch = 1ull << 40,
			      .serial = 12,
			      .seg = 3,
			      .last = { 5, 6, 7 },
			      .fallback_seq = 4 },
			t;

	memcpy(h.ring_uuid, UUID, 16);
	codec_put_head(blk, &h);
	assert_int_equal(codec_get_head(blk, UUID, &t), 0);
	assert_int_equal(t.serial, 12);
	assert_int_equal(t.last.lblk, 7);
	codec_put_head(again, &t);
	assert_memory_equal(blk, again, sizeof(blk));
	assert_int_equal(codec_get_head(blk, (const uint8_t *)"another ring uui", &t), -ENOENT);
	each_flip_is_detected(blk, decode_head);
}

TEST(test_record_codec)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 }, again[COW_BLK_BYTES] = { 0 };
	struct log_record r = some_record(), t;

	codec_put_record(blk, &r);
	assert_int_equal(codec_get_record(blk, UUID, &t), 0);
	assert_int_equal(t.prev.seq, 998);
	assert_int_equal(t.desc_crc, 0xdeadbeef);
	assert_string_equal(t.identity, "a card");
	assert_memory_equal(&t.ledger, &r.ledger, sizeof(r.ledger));
	codec_put_record(again, &t);
	assert_memory_equal(blk, again, sizeof(blk));
	assert_int_equal(codec_get_record(blk, (const uint8_t *)"another ring uui", &t), -ENOENT);
	each_flip_is_detected(blk, decode_record);
}

static void record_is_refused(const struct log_record *r)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 };
	struct log_record t;

	codec_put_record(blk, r);
	assert_int_equal(codec_get_record(blk, UUID, &t), -EUCLEAN);
}

#define RECORD_IS_REFUSED(field, value)                                                            \
	do {                                                                                       \
		struct log_record wrong = some_record();                                           \
		wrong.field = value;                                                               \
		record_is_refused(&wrong);                                                         \
	} while (0)

TEST(test_record_nonsense)
{
	RECORD_IS_REFUSED(type, 0);
	RECORD_IS_REFUSED(type, RECORD_RETIRED + 1);
	RECORD_IS_REFUSED(seq, 0);
	RECORD_IS_REFUSED(prev.seq, 1000); /* a chain must end */
	RECORD_IS_REFUSED(prev.seq, 1001);
	RECORD_IS_REFUSED(tail_seq, 0);
	RECORD_IS_REFUSED(tail_seq, 1001);
	RECORD_IS_REFUSED(fallback_seq, 1001);
	RECORD_IS_REFUSED(floor_seq, 1001);
}

TEST(test_desc_codec)
{
	static struct desc_cursor c;
	uint8_t blk[COW_BLK_BYTES] = { 0 };
	uint32_t crc[2000], n_full;
	struct desc_writer w;
	struct desc_extent e;

	rnd_fill(crc, sizeof(crc));
	desc_start(&w, blk);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ DESC_LOGGED, 3, 10, 100, crc }), 3);
	assert_int_equal(
		desc_put(&w,
			 &(struct desc_extent){ .type = DESC_ZERO, .blks = 4000000, .blk = 20 }),
		4000000);
	n_full = desc_put(&w, &(struct desc_extent){ DESC_DIRECT, 2000, 5, 0, crc });
	assert_in_range(n_full, 900, 1000);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ DESC_DIRECT, 1, 5, 0, crc }), 0);
	desc_seal(&w, UUID, 9, 8, 7);
	assert_int_equal(desc_open(&c, blk, UUID, 9, 8, 6), -EBADMSG);
	assert_int_equal(desc_open(&c, blk, UUID, 9, 7, 7), -EBADMSG);
	assert_int_equal(desc_open(&c, blk, UUID, 9, 8, 7), 0);
	assert_int_equal(desc_next(&c, &e), 1);
	assert_true(e.type == DESC_LOGGED && e.blks == 3 && e.blk == 10 && e.lblk == 100);
	assert_memory_equal(e.crc, crc, 12);
	assert_int_equal(desc_next(&c, &e), 1);
	assert_true(e.type == DESC_ZERO && e.blks == 4000000 && !e.crc);
	assert_int_equal(desc_next(&c, &e), 1);
	assert_true(e.type == DESC_DIRECT && e.blks == n_full);
	assert_memory_equal(e.crc, crc, n_full * 4);
	assert_int_equal(desc_next(&c, &e), 0);
	each_flip_is_detected(blk, decode_desc);
}

/* Room for the head of an extent and none of its CRCs: the next block takes it. An extent without
 * CRCs still fits. */
TEST(test_desc_brim)
{
	static struct desc_cursor c;
	static const uint32_t crc[1000];
	uint8_t blk[COW_BLK_BYTES] = { 0 };
	struct desc_writer w;
	struct desc_extent e;

	desc_start(&w, blk);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ DESC_LOGGED, 996, 10, 100, crc }),
			 996);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ DESC_LOGGED, 1, 5, 7, crc }), 0);
	assert_int_equal(
		desc_put(&w, &(struct desc_extent){ .type = DESC_ZERO, .blks = 9, .blk = 20 }), 9);
	desc_seal(&w, UUID, 9, 8, 7);
	assert_int_equal(desc_open(&c, blk, UUID, 9, 8, 7), 0);
	assert_int_equal(desc_next(&c, &e), 1);
	assert_int_equal(desc_next(&c, &e), 1);
	assert_true(e.type == DESC_ZERO && e.blk == 20 && e.blks == 9);
	assert_int_equal(desc_next(&c, &e), 0);
}

/* Checksums that are right, extents that are not. */
TEST(test_desc_nonsense)
{
	static const uint32_t crc[4];
	static const struct desc_extent bad[] = {
		{ 0, 1, 1, 0, crc },
		{ DESC_JOINT + 1, 1, 1, 0, crc },
		{ DESC_LOGGED, 1, (uint64_t)INT64_MAX / COW_BLK_BYTES + 1, 1, crc },
		{ DESC_LOGGED, 1, 1, (uint64_t)INT64_MAX / COW_BLK_BYTES + 1, crc },
		{ DESC_SPILLED, 1, 1, UINT64_MAX, crc },
	};
	uint8_t blk[COW_BLK_BYTES];
	struct desc_writer w;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		memset(blk, 0, sizeof(blk));
		desc_start(&w, blk);
		assert_int_equal(desc_put(&w, &bad[i]), 1);
		desc_seal(&w, UUID, 9, 8, 7);
		assert_int_equal(decode_desc(blk), -EUCLEAN);
	}
	/* more CRCs than fit into a block */
	memset(blk, 0, sizeof(blk));
	desc_start(&w, blk);
	assert_int_equal(desc_put(&w, &(struct desc_extent){ DESC_LOGGED, 1, 1, 1, crc }), 1);
	blk[DESC_HEADER_BYTES + 5] = 0x10;
	desc_seal(&w, UUID, 9, 8, 7);
	assert_int_equal(decode_desc(blk), -EUCLEAN);
	/* the head or the CRCs of an extent extend beyond the block */
	for (uint32_t n = 996; n <= 997; n++) {
		static const uint32_t many[1000];

		memset(blk, 0, sizeof(blk));
		desc_start(&w, blk);
		assert_int_equal(
			desc_put(&w, &(struct desc_extent){ DESC_LOGGED, n, 10, 100, many }), n);
		w.extents++;
		blk[w.pos] = DESC_LOGGED;
		blk[w.pos + 4] = 1;
		desc_seal(&w, UUID, 9, 8, 7);
		assert_int_equal(decode_desc(blk), -EUCLEAN);
	}
	/* more extents than fit into the block */
	memset(blk, 0, sizeof(blk));
	desc_start(&w, blk);
	while (desc_put(&w, &(struct desc_extent){ .type = DESC_ZERO, .blks = 1, .blk = 5 }))
		;
	w.extents++;
	desc_seal(&w, UUID, 9, 8, 7);
	assert_int_equal(decode_desc(blk), -EUCLEAN);
}
