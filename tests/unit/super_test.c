/* SPDX-License-Identifier: MIT */
/* Tests of the log's superblock: its planned geometry, its copies, damage to them, and cards that
 * grow. */
#include "test.h"
#include "logcard.h"

/* ---- geometry ---- */

TEST(test_plan_alignment)
{
	static const uint32_t ebs[] = { 4 * MIB,  3 * MIB,   12 * MIB, 64 * KIB,
					16 * KIB, 512 * KIB, 6 * MIB };
	static const uint64_t offs[] = { 0, MIB, 32 * KIB, 4 * MIB + 12 * KIB, 8192 * 512 };

	for (size_t i = 0; i < ARRAY_SIZE(ebs); i++)
		for (size_t k = 0; k < ARRAY_SIZE(offs); k++) {
			struct card *c = card_of(400 * MIB, ebs[i], offs[k]);
			uint64_t missing, ring_bytes, unit;
			struct log_super s;

			assert_int_equal(super_plan(c, c, 100 * MIB + 4096, 0, &s, &missing), 0);
			ring_bytes = (uint64_t)s.seg_bytes * s.seg_count;
			unit = max_u64(ebs[i], s.seg_bytes);
			assert_int_equal((s.ring_off_bytes + offs[k]) % unit, 0);
			assert_true(ring_bytes >= max_u64(32 * MIB, 8ull * ebs[i]));
			assert_int_equal(ring_bytes % ebs[i], 0);
			/* segments fill erase blocks, or the other way round */
			assert_true(ebs[i] % s.seg_bytes == 0 || s.seg_bytes % ebs[i] == 0);
			assert_in_range(s.seg_bytes, LOG_MIN_SEG_BYTES, LOG_MAX_SEG_BYTES);
			assert_true(s.seg_count >= LOG_MIN_SEGMENTS);
			assert_int_equal(s.copy_off_bytes[0], 100 * MIB + 4096);
			assert_true(s.ring_off_bytes > s.copy_off_bytes[0]);
			assert_true(s.ring_off_bytes + ring_bytes <= s.copy_off_bytes[1]);
			assert_int_equal(s.copy_off_bytes[1], 400 * MIB - COW_BLK_BYTES);
			assert_int_equal(super_write(c, &s), 0);
			card_close(c);
		}
}

/* A large device gets a larger log by default, if there is room; nothing is refused for it. */
TEST(test_plan_default)
{
	static const struct {
		uint64_t card_bytes, fs_bytes, eb_bytes, want_bytes;
	} row[] = {
		{ GIB - MIB, 500 * MIB, 4 * MIB, 32 * MIB },
		{ GIB, 500 * MIB, 4 * MIB, 64 * MIB },
		{ GIB, 959 * MIB, 4 * MIB, 32 * MIB },
		{ GIB, GIB - 40 * MIB, 4 * MIB, 32 * MIB },
		{ GIB, 500 * MIB, 16 * MIB, 128 * MIB },
	};

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		struct card *c = card_of(row[i].card_bytes, (uint32_t)row[i].eb_bytes, 0);
		struct log_super s;
		uint64_t missing;

		assert_int_equal(super_plan(c, c, row[i].fs_bytes, 0, &s, &missing), 0);
		assert_int_equal((uint64_t)s.seg_bytes * s.seg_count, row[i].want_bytes);
		card_close(c);
	}
}

/* Partitions that old tools made start at sector 63, or at any other. */
TEST(test_plan_unaligned)
{
	static const uint32_t ebs[] = { 4 * MIB, 3 * MIB, 64 * KIB, 16 * KIB };
	static const uint64_t sectors[] = { 63, 2050, 1, 7, 8191, 8193 };

	for (size_t i = 0; i < ARRAY_SIZE(ebs); i++)
		for (size_t k = 0; k < ARRAY_SIZE(sectors); k++) {
			struct card *c = card_of(200 * MIB, ebs[i], sectors[k] * 512);
			struct log_super s, found;
			uint64_t missing, unit;
			unsigned trouble;

			assert_int_equal(super_plan(c, c, 190 * MIB, 0, &s, &missing), -ENOSPC);
			/* its figure is enough */
			assert_int_equal(super_plan(c, c, 190 * MIB - missing, 0, &s, &missing), 0);
			unit = max_u64(ebs[i], s.seg_bytes);
			assert_in_range((s.ring_off_bytes + sectors[k] * 512) % unit, 0,
					COW_BLK_BYTES - 1);
			assert_int_equal(super_write(c, &s), 0);
			assert_int_equal(super_read(c, s.fs_bytes, &found, &trouble), 0);
			assert_int_equal(trouble, 0);
			assert_int_equal(found.ring_off_bytes, s.ring_off_bytes);
			card_close(c);
		}
}

TEST(test_plan_limits)
{
	struct card *c = card_of(100 * MIB, 4 * MIB, 0), *log = card_of(40 * MIB, 4 * MIB, 0);
	uint64_t missing, enough;
	struct log_super s;

	assert_int_equal(super_plan(c, c, 90 * MIB, 0, &s, &missing), -ENOSPC);
	assert_in_range(missing, 20 * MIB, 32 * MIB);
	/* its figure is enough, and one block less is not */
	enough = missing;
	assert_int_equal(super_plan(c, c, 90 * MIB - enough + COW_BLK_BYTES, 0, &s, &missing),
			 -ENOSPC);
	assert_int_equal(missing, COW_BLK_BYTES);
	assert_int_equal(super_plan(c, c, 90 * MIB - enough, 0, &s, &missing), 0);
	assert_int_equal(super_plan(c, c, 10 * MIB, 20 * MIB, &s, &missing), -EINVAL);
	assert_int_equal(super_plan(c, c, 10 * MIB, 24 * MIB, &s, &missing), 0);
	c->geo.erase_block_bytes = 16 * MIB;
	assert_int_equal(super_plan(c, c, 10 * MIB, 64 * MIB, &s, &missing), -EINVAL);
	assert_int_equal(super_plan(c, c, 10 * MIB, 80 * MIB, &s, &missing), 0);
	c->geo.erase_block_bytes = 4 * MIB;
	assert_int_equal(super_plan(c, log, 100 * MIB, 0, &s, &missing), 0);
	assert_int_equal(s.external, 1);
	assert_int_equal(s.copy_off_bytes[0], 0);
	card_close(c);
	card_close(log);
}

/* An erase block of which no part is a good segment; a log with more segments or fewer erase blocks
 * than allowed. */
TEST(test_plan_odd)
{
	static const uint32_t prime = 1031 * COW_BLK_BYTES;
	struct card *c = card_of(400 * MIB, prime, 0);
	uint64_t missing;
	struct log_super s;

	assert_int_equal(super_plan(c, c, 100 * MIB, 0, &s, &missing), 0);
	assert_int_equal(s.seg_bytes, LOG_MAX_SEG_BYTES);
	assert_int_equal(s.ring_off_bytes % prime, 0);
	assert_true(s.seg_count >= LOG_MIN_SEGMENTS);
	assert_true(s.ring_off_bytes + (uint64_t)s.seg_bytes * s.seg_count <= s.copy_off_bytes[1]);
	card_close(c);
	c = card_of(100 * MIB, 64 * KIB, 0);
	assert_int_equal(
		super_plan(c, c, 50 * MIB, (LOG_MAX_SEGMENTS + 1ull) * 64 * KIB, &s, &missing),
		-EINVAL);
	card_close(c);
	c = card_of(100 * MIB, 16 * MIB, 0);
	assert_int_equal(super_plan(c, c, 10 * MIB, 64 * MIB, &s, &missing), -EINVAL);
	card_close(c);
}

/* The missing amount if the volume is too small, or if the log device is. */
TEST(test_plan_external_short)
{
	struct card *c = card_of(64 * MIB, 64 * KIB, 0), *log = card_of(MIB, 64 * KIB, 0);
	uint64_t missing;
	struct log_super s;

	assert_int_equal(super_plan(c, log, 64 * MIB + 8192, 512 * KIB, &s, &missing), -ENOSPC);
	assert_int_equal(missing, 8192);
	assert_int_equal(super_plan(c, log, 64 * MIB, 2 * MIB, &s, &missing), -ENOSPC);
	assert_in_range(missing, MIB, MIB + 128 * KIB);
	card_close(log);
	log = card_of(MIB + missing, 64 * KIB, 0);
	assert_int_equal(super_plan(c, log, 64 * MIB, 2 * MIB, &s, &missing), 0);
	card_close(log);
	/* a card smaller than the log alone */
	log = card_of(MIB, 64 * KIB, 0);
	assert_int_equal(super_plan(log, log, 64 * KIB, 2 * MIB, &s, &missing), -ENOSPC);
	assert_in_range(missing, MIB, MIB + 256 * KIB);
	card_close(log);
	/* a partition that begins inside its first erase block, and is not longer than the log */
	log = card_of(512 * KIB + 2 * COW_BLK_BYTES, 64 * KIB, 60 * KIB);
	assert_int_equal(super_plan(log, log, 4 * KIB, 512 * KIB, &s, &missing), -ENOSPC);
	assert_true(missing > 0);
	card_close(log);
	card_close(c);
}

TEST(test_pending_places)
{
	struct card c = { .geo.size_bytes = 100 * MIB };

	assert_int_equal(super_pending_off(&c, 0), 100 * MIB - COW_BLK_BYTES);
	assert_int_equal(super_pending_off(&c, 3), 100 * MIB - 8 * COW_BLK_BYTES);
	assert_int_equal(super_pending_off(&c, 14), 36 * MIB);
	assert_int_equal(super_pending_off(&c, 15), 0);
	assert_int_equal(super_pending_off(&c, 32), 0);
	assert_int_equal(super_pending_off(&c, 63), 0);
}

/* A file system that a user grew over the ring owns it; one beside its log, or one that is being
 * shrunk, does not. */
TEST(test_overgrown)
{
	struct log_super s = { .state = SUPER_LIVE, .fs_bytes = 64 * MIB };

	assert_false(super_overgrown(&s, 0));
	assert_false(super_overgrown(&s, s.fs_bytes));
	assert_true(super_overgrown(&s, s.fs_bytes + 1024));
	s.external = 1;
	assert_false(super_overgrown(&s, s.fs_bytes + 1024));
	s.external = 0;
	s.state = SUPER_PENDING;
	assert_false(super_overgrown(&s, s.fs_bytes + 1024));
}

/* ---- copies ---- */

TEST(test_super_copies)
{
	struct log_super s, t;
	unsigned trouble;

	for (int mask = 0; mask < 4; mask++)
		for (int known = 0; known < 2; known++) {
			struct card *c = formatted(&s);
			int want = mask == 3 ? -EBADMSG : 0, r;

			if (mask & 1)
				damage(c, s.copy_off_bytes[0]);
			if (mask & 2)
				damage(c, s.copy_off_bytes[1]);
			r = super_read(c, known ? 4 * MIB : 0, &t, &trouble);
			/* with B gone and the file system's end unknown, A cannot be found */
			if (mask >= 2 && !known)
				want = r == -ENOENT ? -ENOENT : -EBADMSG;
			assert_int_equal(r, want);
			if (r == 0)
				assert_int_equal(trouble,
						 (mask & 1 ? SUPER_COPY_A_BAD : 0) |
							 (mask & 2 ? SUPER_COPY_B_BAD : 0));
			card_close(c);
		}
}

/* An upgrade that was cut between its copies: a release that does not know the bit refuses, one
 * that knows it takes the newer copy. */
TEST(test_super_mixed_features)
{
	for (unsigned i = 0; i < 2; i++) {
		struct log_super s, t;
		unsigned trouble;
		struct card *c = formatted(&s);

		t = s;
		assert_int_equal(super_write(c, &s), 0);
		t.revision = s.revision + 1;
		t.ring_uuid[0] ^= 1;
		assert_int_equal(super_write_copy(c, &t, i), 0);
		assert_int_equal(super_read(c, 4 * MIB, &s, &trouble), 0);
		assert_int_equal(trouble, i ? SUPER_COPY_A_BAD : SUPER_COPY_B_BAD);
		assert_memory_equal(s.ring_uuid, t.ring_uuid, sizeof(s.ring_uuid));
		for (unsigned form = 0; form < 2; form++) {
			t.incompat = form ? LOG_INCOMPAT_KNOWN + 1 : 0;
			assert_int_equal(super_write_copy(c, &t, i), 0);
			assert_int_equal(super_read(c, 4 * MIB, &s, &trouble), -EPROTONOSUPPORT);
		}
		card_close(c);
	}
}

/* One copy damaged, the other unreadable: the result is the read error and not "damaged", because
 * the card may work again later. */
TEST(test_super_no_answer)
{
	struct log_super s, t;
	unsigned trouble;

	for (int copy = 0; copy < 2; copy++) {
		struct card *c = formatted(&s);

		damage(c, s.copy_off_bytes[copy]);
		sim_fail_at(c, SIM_READ, copy ? 2 : 1, -ENXIO, false); /* B is read first */
		assert_int_equal(super_read(c, 4 * MIB, &t, &trouble), -ENXIO);
		card_close(c);
	}
}

TEST(test_super_newest_copy)
{
	struct log_super s, t;
	uint8_t *old = io_alloc(COW_BLK_BYTES);
	unsigned trouble;

	for (int copy = 0; copy < 2; copy++) {
		struct card *c = formatted(&s);

		assert_int_equal(sim_peek(c, s.copy_off_bytes[copy], old, COW_BLK_BYTES), 0);
		s.state = SUPER_LIVE;
		assert_int_equal(super_write(c, &s), 0);
		assert_int_equal(sim_poke(c, s.copy_off_bytes[copy], old, COW_BLK_BYTES), 0);
		assert_int_equal(super_read(c, 4 * MIB, &t, &trouble), 0);
		assert_int_equal(t.state, SUPER_LIVE);
		assert_int_equal(trouble, copy ? SUPER_COPY_B_BAD : SUPER_COPY_A_BAD);
		card_close(c);
	}
	free(old);
}

TEST(test_super_other_sizes)
{
	struct log_super s, t;
	struct card *c = formatted(&s), *d;
	unsigned trouble = 0;

	d = resized(c, 12 * MIB);
	assert_int_equal(super_read(d, 4 * MIB, &t, &trouble), 0);
	assert_int_equal(trouble, SUPER_GROWN);
	damage(d, s.copy_off_bytes[1]);
	assert_int_equal(super_read(d, 4 * MIB, &t, &trouble), 0);
	assert_int_equal(trouble, SUPER_GROWN | SUPER_COPY_B_BAD);
	card_close(d);
	/* an image on a smaller device: as long as the ring and a copy B have their place */
	d = resized(c, super_least_bytes(&s));
	assert_int_equal(super_read(d, 4 * MIB, &t, &trouble), 0);
	assert_int_equal(trouble, SUPER_COPY_B_BAD | SUPER_SHORTENED);
	assert_int_equal(t.log_bytes, super_least_bytes(&s));
	assert_int_equal(t.base_bytes, super_least_bytes(&s));
	assert_int_equal(super_write_copy(d, &t, 1), 0);
	assert_int_equal(super_read(d, 4 * MIB, &t, &trouble), 0);
	assert_int_equal(trouble, SUPER_COPY_A_BAD);
	card_close(d);
	d = resized(c, super_least_bytes(&s) - COW_BLK_BYTES);
	assert_int_equal(super_read(d, 4 * MIB, &t, &trouble), -ERANGE);
	card_close(d);
	s.version = LOG_FORMAT_VERSION + 1;
	assert_int_equal(super_write(c, &s), 0);
	assert_int_equal(super_read(c, 4 * MIB, &t, &trouble), -EPROTONOSUPPORT);
	assert_int_equal(trouble, SUPER_NEWER);
	assert_int_equal(t.version, LOG_FORMAT_VERSION + 1);
	card_close(c);
	c = card_of(10 * MIB, 64 * KIB, 0);
	assert_int_equal(super_read(c, 4 * MIB, &t, &trouble), -ENOENT);
	card_close(c);
}

/*
 * An image, taken before its first attach, is written over a card that had it before, and whose
 * partition was grown: copy B of that life is still at the end.
 */
TEST(test_super_leftover)
{
	struct log_super virgin, old, t;
	struct card *c = formatted(&virgin), *d = resized(c, 12 * MIB);
	unsigned trouble;

	old = virgin;
	old.state = SUPER_LIVE;
	memset(old.ring_uuid, 7, 16);
	assert_int_equal(super_grow(d, &old, 12 * MIB), 0);
	assert_int_equal(super_write_copy(d, &virgin, 0), 0);
	for (int live = 0; live < 2; live++) {
		/* once with the B of the image, once without */
		for (int bad = 0; bad < 2; bad++) {
			if (bad)
				damage(d, virgin.copy_off_bytes[1]);
			else
				assert_int_equal(super_write_copy(d, &virgin, 1), 0);
			assert_int_equal(super_read(d, 4 * MIB, &t, &trouble), 0);
			assert_int_equal(t.state, live ? SUPER_LIVE : SUPER_VIRGIN);
			assert_memory_equal(t.ring_uuid, virgin.ring_uuid, 16);
			assert_int_equal(t.copy_off_bytes[1], virgin.copy_off_bytes[1]);
			assert_int_equal(trouble, SUPER_GROWN | (bad ? SUPER_COPY_B_BAD : 0));
		}
		/* its first attach */
		virgin.state = SUPER_LIVE;
		memset(virgin.ring_uuid, 8, 16);
		assert_int_equal(super_write(d, &virgin), 0);
	}
	assert_int_equal(super_grow(d, &virgin, 12 * MIB), 0);
	assert_int_equal(super_read(d, 4 * MIB, &t, &trouble), 0);
	assert_int_equal(trouble, 0);
	card_close(c);
	card_close(d);
}

/* The next session that writes rewrites a rotten copy of the superblock, and the ledger counts
 * it. */
TEST(test_super_mended)
{
	struct ring r = { .data = io_alloc(256 * COW_BLK_BYTES) };

	r.c = formatted(&r.super);
	ring_open(&r);
	assert_int_equal(log_prepare(r.log), 0);
	for (unsigned copy = 0; copy < 2; copy++) {
		uint64_t before;

		damage(r.c, r.super.copy_off_bytes[copy]);
		log_close(r.log);
		ring_open(&r);
		assert_int_equal(log_super_trouble(r.log),
				 copy ? SUPER_COPY_B_BAD : SUPER_COPY_A_BAD);
		assert_false(log_rests(r.log, log_newest(r.log)->type, 0));
		before = log_ledger(r.log)->super_blks;
		assert_int_equal(log_prepare(r.log), 0);
		assert_int_equal(log_super_trouble(r.log), 0);
		assert_int_equal(log_ledger(r.log)->super_blks, before + 1);
		log_close(r.log);
		ring_open(&r);
		assert_int_equal(log_super_trouble(r.log), 0);
	}
	log_close(r.log);
	card_close(r.c);
	free(r.data);
}

/* ---- growing ---- */

/* Both devices of an external log grow; the volume grows with its device. */
TEST(test_grow_external)
{
	struct card *c = card_of(64 * MIB, 64 * KIB, 0), *log = card_of(2 * MIB, 64 * KIB, 0),
		    *grown;
	struct log_super s, t;
	uint64_t missing;
	unsigned trouble;

	assert_int_equal(super_plan(c, log, 64 * MIB, MIB, &s, &missing), 0);
	assert_int_equal(super_write(log, &s), 0);
	grown = card_of(3 * MIB, 64 * KIB, 0);
	assert_int_equal(super_grow(grown, &s, 80 * MIB + 512), 0);
	assert_int_equal(super_read(grown, 0, &t, &trouble), 0);
	assert_int_equal(trouble, 0);
	assert_int_equal(t.fs_bytes, 80 * MIB);
	assert_int_equal(t.log_bytes, 3 * MIB);
	assert_int_equal(t.copy_off_bytes[1], 3 * MIB - COW_BLK_BYTES);
	card_close(grown);
	card_close(log);
	card_close(c);
}

/* Grow, cut at each write and flush: a good superblock with the right ring is always found. */
TEST(test_grow_cuts)
{
	struct log_super s, t;
	struct card *c = formatted(&s), *d = resized(c, 12 * MIB), *e;
	unsigned trouble;

	for (uint64_t n = 1; n <= 4; n++)
		for (uint64_t seed = 1; seed <= 40; seed++) {
			assert_int_equal(sim_clone(&e, d), 0);
			assert_int_equal(card_set_writable(e, true), 0);
			t = s;
			sim_cut_at(e, n);
			assert_true(super_grow(e, &t, e->geo.size_bytes) < 0);
			sim_seed(e, seed);
			sim_power_cycle(e, NULL, NULL);
			assert_int_equal(super_read(e, 4 * MIB, &t, &trouble), 0);
			assert_int_equal(t.ring_off_bytes, s.ring_off_bytes);
			/* again, to the end */
			assert_int_equal(card_set_writable(e, true), 0);
			assert_int_equal(super_grow(e, &t, e->geo.size_bytes), 0);
			assert_int_equal(super_read(e, 4 * MIB, &t, &trouble), 0);
			assert_int_equal(trouble, 0);
			assert_int_equal(t.copy_off_bytes[1], 12 * MIB - COW_BLK_BYTES);
			card_close(e);
		}
	card_close(c);
	card_close(d);
}
