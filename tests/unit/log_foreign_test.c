// SPDX-License-Identifier: MIT
/* The log and its base: is it still the same card and file system? */
#include "test.h"
#include "log/codec.h"
#include "gens.h"
#include "log_toy.h"

/* ---- calls in the wrong state ---- */

/* Everything is checkpointed, and then the device no longer has a file system: it is refused, as
 * another file system is. */
TEST(test_no_file_system_any_more)
{
	static const struct {
		enum toy_story story;
		enum record_type last;
	} all[] = { { TOY_LIVE, RECORD_TAIL },
		    { TOY_LIVE, RECORD_RETIRED },
		    { TOY_CHAIN, RECORD_TAIL },
		    { TOY_LAG, RECORD_TAIL },
		    { TOY_LAG, RECORD_RETIRED } };
	uint8_t blk[COW_BLK_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		for (int luks = 0; luks < 2; luks++) {
			uint64_t before;
			struct toy t;

			toy_tell(&t, all[i].story, NULL, NULL);
			/* all marks were written home last: to the previous record they would be
			 * garbage of a checkpoint */
			for (unsigned b = 0; b < 4; b++)
				toy_write(&t, b, (uint16_t)(b < 2 ? TOY_SUPER + 50 + b : 600 + b));
			assert_int_equal(toy_commit(&t), 0);
			assert_int_equal(toy_checkpoint(&t, all[i].last, RECORD_CLEAN), 0);
			toy_close(&t);
			toy_content(TOY_SUPER + 99, blk);
			blk[1024 + 108]++; /* uuid */
			if (luks) {
				rnd_fill(blk, COW_BLK_BYTES);
				memcpy(blk, "LUKS\xba\xbe", 6);
			}
			assert_int_equal(sim_poke(t.base, 0, blk, sizeof(blk)), 0);
			rnd_fill(blk, COW_BLK_BYTES);
			for (unsigned b = 1; luks && b < 20; b++)
				assert_int_equal(
					sim_poke(t.base, blk_to_bytes(b), blk, sizeof(blk)), 0);
			before = sim_ops(t.card);
			assert_int_equal(toy_open(&t, 0), 0);
			if (!luks) {
				assert_true(t.rep.state != LOG_FOREIGN);
				toy_free(&t);
				continue;
			}
			assert_int_equal(t.rep.state, LOG_FOREIGN);
			assert_non_null(strstr(t.rep.why, "no known file system"));
			assert_int_equal(card_set_writable(t.card, true), 0);
			assert_int_equal(log_prepare(t.log), -EUCLEAN);
			assert_int_equal(card_set_writable(t.card, false), 0);
			assert_int_equal(sim_ops(t.card), before);
			toy_free(&t);
		}
}

/* A volume without a file system: its records know no marks. */
static void unmarked(struct toy *t, bool made_here)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 };

	toy_format(t, false);
	for (unsigned b = 0; b < 4; b++)
		assert_int_equal(sim_poke(t->base, blk_to_bytes(b), blk, sizeof(blk)), 0);
	t->n.content[0] = t->n.content[1] = t->n.content[2] = t->n.content[3] = 0;
	t->live = t->n;
	assert_int_equal(toy_open(t, 0), 0);
	toy_commit_one(t, 10, 1234);
	assert_int_equal(log_newest(t->log)->fingerprint.n_marks, 0);
	if (!made_here)
		return;
	for (unsigned b = 0; b < 4; b++)
		toy_write(t, b, (uint16_t)(b < 1 ? TOY_SUPER : 500 + b));
	assert_int_equal(toy_commit(t), 0);
	assert_int_equal(log_newest(t->log)->fingerprint.n_marks, 0);
}

/* A record without marks knows no file system. One that exists nevertheless came through this log,
 * or is foreign. */
TEST(test_no_marks)
{
	uint8_t blk[COW_BLK_BYTES];
	struct toy t;

	unmarked(&t, false);
	toy_content(TOY_SUPER, blk);
	assert_int_equal(sim_poke(t.base, 0, blk, sizeof(blk)), 0);
	assert_int_equal(log_recheck(t.log), -ESTALE);
	toy_reopen(&t, LOG_FOREIGN);
	toy_free(&t);
	for (unsigned done = 0; done <= 4; done++) {
		unmarked(&t, true);
		for (unsigned b = 0; b < done; b++) {
			toy_content(t.n.content[b], blk);
			assert_int_equal(sim_poke(t.base, blk_to_bytes(b), blk, sizeof(blk)), 0);
		}
		toy_close(&t);
		assert_int_equal(toy_open(&t, 0), 0);
		/* a commit record: no checkpoint had begun, so everything must be as in the log */
		assert_int_equal(t.rep.state, done == 0 || done == 4 ? LOG_LIVE : LOG_FOREIGN);
		toy_free(&t);
	}
}

/* ---- a checkpoint that is cut while it writes the marks of the base ---- */

enum { TOY_MARKS = 4 }; /* both superblocks and both checkpoint packs */

struct cut {
	const struct card *card;
	unsigned fates; /* two bits for each mark; other blocks are written home */
};

static enum sim_fate fate_of_mark(void *arg, size_t i)
{
	const struct cut *cut = arg;
	uint64_t blk = sim_pending_blk(cut->card, i);

	return blk < TOY_MARKS ? (enum sim_fate)(cut->fates >> 2 * blk & 3) : SIM_DONE;
}

static int stop_before_flush(void *ctx, uint64_t done, uint64_t total)
{
	return done == total;
}

static void commit_marks(struct toy *t, unsigned which, uint16_t i)
{
	for (unsigned b = 0; b < TOY_MARKS; b++)
		if (which & 1u << b)
			toy_write(t, b, (uint16_t)((b < 2 ? TOY_SUPER : 0) + 5000 + 8 * i + b));
	toy_write(t, 10, (uint16_t)(5000 + 8 * i + 4));
	assert_int_equal(toy_commit(t), 0);
}

/* All home writes are in flight. */
static void begin_checkpoint(struct toy *t)
{
	struct log_index *ix;

	assert_int_equal(card_set_writable(t->card, true), 0);
	assert_int_equal(card_set_writable(t->base, true), 0);
	assert_int_equal(log_prepare(t->log), 0);
	assert_int_equal(log_checkpoint(t->log, NULL, stop_before_flush, NULL, &ix), -ECANCELED);
	assert_true(sim_pending(t->base) > 0);
}

static void cut_checkpoint(struct toy *t, unsigned fates)
{
	toy_close(t);
	sim_seed(t->base, fates);
	sim_power_cycle(t->base, fate_of_mark, &(struct cut){ .card = t->base, .fates = fates });
	if (t->card != t->base)
		sim_power_cycle(t->card, NULL, NULL);
}

static void assert_ours(struct toy *t)
{
	assert_int_equal(toy_open(t, 0), 0);
	assert_false(t->rep.base_changed);
	assert_true(t->rep.state == LOG_LIVE || t->rep.state == LOG_FELL_BACK);
	assert_int_equal(toy_view(t, view), 0);
	assert_int_equal(toy_differs(&t->n, view), -1);
}

/* Results of a cut in any combination, old, new, torn or garbage: the base is recognised, and
 * nothing committed is lost. The same holds when a cut follows on the result. */
TEST(test_torn_marks)
{
	static const enum toy_story stories[] = { TOY_LIVE, TOY_CHAIN, TOY_LAG };

	for (size_t i = 0; i < ARRAY_SIZE(stories); i++) {
		struct toy origin;

		toy_tell(&origin, stories[i], NULL, NULL);
		commit_marks(&origin, 0xf, 1);
		assert_int_equal(toy_checkpoint(&origin, RECORD_TAIL, 0), 0);
		commit_marks(&origin, 0xf, 2);
		begin_checkpoint(&origin);
		for (unsigned fates = 0; fates < 1u << 2 * TOY_MARKS; fates++) {
			struct toy t;

			toy_clone(&t, &origin);
			cut_checkpoint(&t, fates);
			assert_ours(&t);
			begin_checkpoint(&t);
			cut_checkpoint(&t, fates * 37 % 256);
			assert_ours(&t);
			commit_marks(&t, 1 + fates % 15, 3);
			toy_close(&t);
			assert_ours(&t);
			begin_checkpoint(&t);
			cut_checkpoint(&t, fates * 101 % 256);
			assert_ours(&t);
			assert_int_equal(toy_checkpoint(&t, RECORD_RETIRED, RECORD_CLEAN), 0);
			assert_int_equal(card_read(t.base, 0, view, sizeof(view)), 0);
			assert_int_equal(toy_differs(&t.n, view), -1);
			toy_free(&t);
		}
		toy_free(&origin);
	}
}

/* The same without an earlier file system: the new one was being written home. */
TEST(test_torn_first_marks)
{
	struct toy origin;

	unmarked(&origin, true);
	begin_checkpoint(&origin);
	for (unsigned fates = 0; fates < 1u << 2 * TOY_MARKS; fates++) {
		struct toy t;

		toy_clone(&t, &origin);
		cut_checkpoint(&t, fates);
		assert_ours(&t);
		toy_free(&t);
	}
	toy_free(&origin);
}

/* Garbage in blocks that the log does not have, or a foreign superblock in a block that it has: not
 * a cut of cowfs. */
TEST(test_torn_marks_foreign)
{
	uint8_t blk[COW_BLK_BYTES];
	struct toy origin, t;

	toy_tell(&origin, TOY_LIVE, NULL, NULL);
	commit_marks(&origin, 0xf, 1);
	assert_int_equal(toy_checkpoint(&origin, RECORD_TAIL, 0), 0);
	commit_marks(&origin, 0x7, 2);
	begin_checkpoint(&origin);
	for (unsigned b = 0; b < TOY_MARKS; b++) {
		toy_clone(&t, &origin);
		cut_checkpoint(&t, 0xff); /* everything is garbage */
		toy_content((uint16_t)(b < 2 ? TOY_SUPER : 4711), blk);
		if (b < 2)
			blk[1024 + 108]++; /* uuid */
		if (b == 2)
			/* checksum_offset of a checkpoint pack */
			memcpy(blk + 164, "\xfc\x0f\0\0", 4);
		assert_int_equal(sim_poke(t.base, blk_to_bytes(b), blk, sizeof(blk)), 0);
		toy_open_is(&t, LOG_FOREIGN);
		assert_true(t.rep.base_changed);
		toy_free(&t);
	}
	toy_free(&origin);
}

/* ---- is it the same card? ---- */

static void other_time(struct log_super *s)
{
	s->created_s++;
}

static void other_fs(struct log_super *s)
{
	s->fs_uuid[3] ^= 1;
}

static void other_ring(struct log_super *s)
{
	s->state = SUPER_LIVE;
	s->ring_uuid[3] ^= 1;
}

static void nothing(struct log_super *s)
{
}

static void damage(struct log_super *s)
{
	s->version = 0;
}

/* Before the first commit only the superblock can show it. */
TEST(test_recheck_virgin)
{
	static void (*const changes[])(struct log_super *) = { other_time, other_fs, other_ring,
							       damage };
	struct toy t;

	toy_begin(&t);
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		poke_super(&t, 2, changes[i]);
		assert_int_equal(log_recheck(t.log), -ESTALE);
		toy_write(&t, 4, 1234);
		assert_int_equal(toy_commit(&t), -ESTALE);
		poke_super(&t, 2, nothing);
		assert_int_equal(log_recheck(t.log), 0);
	}
	for (int i = 0; i < 3; i++) { /* absent; damaged; a smaller card */
		const uint8_t none[16] = { 0 },
			      rot[200] = { 'C', 'O', 'W', 'F', 'S', 'S', 'U', 'P' };
		const uint64_t size_bytes = t.card->geo.size_bytes;

		for (int k = 0; k < 2 && i < 2; k++)
			assert_int_equal(sim_poke(t.card, log_super(t.log)->copy_off_bytes[k],
						  i ? rot : none, i ? sizeof(rot) : sizeof(none)),
					 0);
		t.card->geo.size_bytes -= i == 2 ? COW_BLK_BYTES : 0;
		assert_int_equal(log_recheck(t.log), -ESTALE);
		t.card->geo.size_bytes = size_bytes;
		poke_super(&t, 2, nothing);
		assert_int_equal(log_recheck(t.log), 0);
	}
	sim_fail_at(t.card, SIM_READ, 1, -EIO, true);
	assert_int_equal(log_recheck(t.log), -EIO); /* this proves nothing about the card */
	sim_fail_at(t.card, SIM_READ, 1, -ENXIO, true);
	assert_int_equal(log_recheck(t.log), -ENXIO);
	sim_fail_at(t.card, 0, 0, 0, false);
	assert_int_equal(toy_commit(&t), 0);
	toy_free(&t);
}

static void poke_record(struct toy *t, int64_t seq, uint64_t epoch)
{
	const struct log_super *s = log_super(t->log);
	struct log_record rec = *log_newest(t->log);
	uint8_t blk[COW_BLK_BYTES] = { 0 };

	memcpy(rec.ring_uuid, s->ring_uuid, 16);
	rec.seq += (uint64_t)seq;
	rec.epoch += epoch;
	codec_put_record(blk, &rec);
	assert_int_equal(
		sim_poke(t->card, s->ring_off_bytes + blk_to_bytes(rec.lblk), blk, sizeof(blk)), 0);
}

TEST(test_recheck)
{
	uint8_t blk[COW_BLK_BYTES];
	struct toy t;

	toy_begin(&t);
	toy_commit_one(&t, 4, 1234);
	assert_int_equal(log_recheck(t.log), 0);
	poke_record(&t, 1, 0);
	assert_int_equal(log_recheck(t.log), -ESTALE);
	poke_record(&t, 0, 1);
	assert_int_equal(log_recheck(t.log), -ESTALE);
	poke_record(&t, 0, 0);
	assert_int_equal(log_recheck(t.log), 0);
	/* the same card, but mounted elsewhere in between */
	toy_content(TOY_SUPER + 99, blk);
	assert_int_equal(sim_poke(t.base, 0, blk, sizeof(blk)), 0);
	assert_int_equal(log_recheck(t.log), -ESTALE);
	toy_write(&t, 4, 1235);
	assert_int_equal(toy_commit(&t), -ESTALE);
	/* nothing after the open record and the commit */
	assert_int_equal(log_newest(t.log)->seq, t.rep.newest.seq + 2);
	toy_free(&t);
}

/* Another system on the same card. */
static void open_beside(struct toy *ret, const struct toy *t)
{
	*ret = *t;
	ret->log = NULL;
	ret->index = NULL;
	assert_int_equal(toy_open(ret, 0), 0);
}

static void writes_no_more(struct toy *t)
{
	uint64_t ops = sim_ops(t->card);

	assert_int_equal(log_recheck(t->log), -ESTALE);
	toy_write(t, 4, 1234);
	assert_int_equal(toy_commit(t), -ESTALE);
	assert_int_equal(sim_ops(t->card), ops);
}

/* A hibernated system, and another one that commits to its card meanwhile: once, often, more than a
 * segment holds, or only a record that begins an epoch. Nothing of that is at home. */
TEST(test_used_elsewhere)
{
	static const enum toy_story stories[] = { TOY_LIVE,  TOY_RETIRED, TOY_CUT_CHECKPOINT,
						  TOY_CHAIN, TOY_VIRGIN,  TOY_LAG };

	for (size_t i = 0; i < 4 * 5 * ARRAY_SIZE(stories); i++) {
		unsigned how = i % 4, before = i / 4 % 5;
		struct toy t, other;

		toy_tell(&t, stories[i / 20], NULL, NULL);
		for (unsigned k = 0; k < before % 4; k++) { /* wherever the segment ends */
			toy_commit_one(&t, 5, (uint16_t)(2000 + k));
		}
		if (before == 3)
			assert_int_equal(toy_checkpoint(&t, RECORD_TAIL, RECORD_CLEAN), 0);
		if (before >= 3) { /* a session that has not written yet */
			toy_close(&t);
			assert_int_equal(toy_open(&t, 0), 0);
		}
		open_beside(&other, &t);
		assert_int_equal(log_recheck(t.log), 0);
		if (how == 3) {
			assert_int_equal(card_set_writable(t.card, true), 0);
			if (t.base != t.card)
				assert_int_equal(card_set_writable(t.base, true), 0);
			assert_int_equal(log_prepare(other.log), 0);
			if (t.base != t.card)
				assert_int_equal(card_set_writable(t.base, false), 0);
			assert_int_equal(card_set_writable(t.card, false), 0);
		}
		for (unsigned k = 0; k < (how == 1 ? 12 : 1) && how < 3; k++) {
			for (unsigned b = 4; b < (how == 2 ? 4 + TOY_SEG_BLKS : 5); b++)
				toy_write(&other, b, (uint16_t)(3000 + k + b));
			assert_int_equal(toy_commit(&other), 0);
		}
		if (how < 3 || log_newest(other.log)->seq != log_newest(t.log)->seq)
			writes_no_more(&t);
		toy_close(&other);
		toy_free(&t);
	}
}

/* The same after an attempt of the first system that failed anywhere: parts of it may be on the card. */
TEST(test_used_elsewhere_in_doubt)
{
	static const enum toy_story stories[] = { TOY_LIVE, TOY_CHAIN, TOY_VIRGIN, TOY_LAG,
						  TOY_CUT_CHECKPOINT };
	unsigned failed = 0;

	for (size_t i = 0; i < 2 * ARRAY_SIZE(stories); i++)
		for (uint64_t n = 1;; n++) {
			struct toy t, other;
			int r;

			toy_tell(&t, stories[i / 2], NULL, NULL);
			toy_write(&t, 5, 2000);
			sim_fail_at(t.card, SIM_WRITE | SIM_FLUSH, n, -EIO, i % 2);
			r = toy_commit(&t);
			sim_fail_at(t.card, 0, 0, 0, false);
			if (r == 0) {
				toy_free(&t);
				break;
			}
			failed++;
			open_beside(&other, &t);
			toy_commit_one(&other, 4, 3000);
			writes_no_more(&t);
			toy_close(&other);
			toy_free(&t);
		}
	assert_true(failed > 20);
}

/* Nothing was committed yet, or the session before has ended for good: no record knows the base. */
TEST(test_base_without_record)
{
	uint8_t blk[COW_BLK_BYTES];

	for (int i = 0; i < 2; i++) {
		struct toy t;

		toy_tell(&t, i ? TOY_RETIRED : TOY_VIRGIN, NULL, NULL);
		toy_reopen(&t, i ? LOG_RETIRED : LOG_EMPTY);
		assert_int_equal(log_recheck(t.log), 0);
		toy_content(TOY_SUPER + 99, blk);
		assert_int_equal(sim_poke(t.base, 0, blk, sizeof(blk)), 0);
		assert_int_equal(log_recheck(t.log), -ESTALE);
		toy_write(&t, 4, 1234);
		assert_int_equal(toy_commit(&t), -ESTALE);
		toy_free(&t);
	}
}

/* ---- an older copy of the base, whose marks are as they should be ---- */

static void poke(struct toy *t, unsigned blk, uint16_t content)
{
	uint8_t buf[COW_BLK_BYTES];

	toy_content(content, buf);
	assert_int_equal(sim_poke(t->base, blk_to_bytes(blk), buf, sizeof(buf)), 0);
}

static bool is_held(struct toy *t, unsigned blk)
{
	bool held;

	(void)log_held_run(t->log, blk, 1, &held);
	return held;
}

/* Block 20 was written home by a checkpoint, 30 in place by the commit behind it, and 21 waits. */
static void tell_samples(struct toy *t)
{
	toy_begin(t);
	toy_commit_one(t, 20, 201);
	toy_write(t, 20, 202);
	toy_write(t, 21, 211);
	assert_int_equal(toy_commit(t), 0);
	assert_int_equal(toy_checkpoint(t, RECORD_TAIL, 0), 0);
	assert_true(is_held(t, 20));
	assert_false(is_held(t, 30));
	toy_commit_one(t, 30, 301);
	assert_true(t->direct[30]);
	toy_commit_one(t, 21, 212);
	assert_true(is_held(t, 30));
	/* free, and yet not written in place */
	toy_drop(t, 30);
	assert_int_equal(toy_commit(t), 0);
	toy_commit_one(t, 30, 302);
	assert_int_equal(log_newest(t->log)->direct_blks, 0);
}

TEST(test_older_base)
{
	static const struct {
		unsigned blk;
		uint16_t content;
		enum log_state state;
	} all[] = { { 20, 202, LOG_LIVE },  { 20, 201, LOG_FOREIGN },
		    { 30, 301, LOG_LIVE },  { 30, 302, LOG_LIVE }, /* the log has it by now, too */
		    { 30, 7, LOG_FOREIGN }, /* but nothing has written it home */
		    { 21, 211, LOG_LIVE },  { 21, 7, LOG_FOREIGN },
		    { 22, 7, LOG_LIVE },    { 40, 7, LOG_LIVE } };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct toy t;

		tell_samples(&t);
		toy_close(&t);
		poke(&t, all[i].blk, all[i].content);
		toy_open_is(&t, all[i].state);
		toy_free(&t);
	}
}

/* A checkpoint was cut: what it was writing, and no other block, may be anything. */
TEST(test_older_base_cut)
{
	static const struct {
		unsigned blk;
		enum log_state state;
	} all[] = { { 20, LOG_FOREIGN }, { 30, LOG_LIVE }, { 21, LOG_LIVE } };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct log_record cut;
		struct toy t;

		tell_samples(&t);
		sim_fail_at(t.base, SIM_WRITE, 3, -EIO, false); /* behind the record */
		assert_int_equal(toy_checkpoint(&t, RECORD_TAIL, 0), -EIO);
		cut = *log_newest(t.log);
		assert_int_equal(cut.type, RECORD_CHECKPOINT);
		toy_close(&t);
		poke(&t, all[i].blk, 7);
		toy_open_is(&t, all[i].state);
		if (all[i].state ==
		    LOG_LIVE) { /* a commit comes before the rest of the checkpoint */
			toy_commit_one(&t, 33, 331);
			toy_reopen(&t, LOG_LIVE);
		}
		toy_free(&t);
	}
}

/* The newest four commits that wrote in place have a sample each. */
TEST(test_older_base_in_place)
{
	static const struct {
		unsigned blk;
		bool changed;
	} all[] = { { 31, false }, { 35, true }, { 41, true }, { 43, true }, { 47, true } };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct toy t;

		toy_begin(&t);
		for (size_t k = 0; k < ARRAY_SIZE(all); k++)
			toy_drop(&t, all[k].blk);
		assert_int_equal(toy_commit(&t), 0);
		for (size_t k = 0; k < ARRAY_SIZE(all); k++) {
			toy_write(&t, all[k].blk, (uint16_t)(310 + k));
			toy_write(&t, 23, (uint16_t)(500 + k));
			assert_int_equal(toy_commit(&t), 0);
			assert_true(t.direct[all[k].blk]);
		}
		/* the three newest records have samples of their own */
		for (size_t k = 0; k < ARRAY_SIZE(all); k++)
			assert_true(is_held(&t, all[k].blk));
		assert_int_equal(toy_checkpoint(&t, RECORD_TAIL, 0), 0);
		toy_commit_one(&t, 23, 600);
		toy_close(&t);
		poke(&t, all[i].blk, 7);
		assert_int_equal(toy_open(&t, 0), 0);
		assert_int_equal(t.rep.base_changed || t.rep.state == LOG_FOREIGN, all[i].changed);
		toy_free(&t);
	}
}

/* The base was accepted as it is: records do not know its samples any more. */
TEST(test_older_base_accepted)
{
	struct toy t;

	tell_samples(&t);
	assert_int_equal(toy_checkpoint(&t, RECORD_TAIL, 0), 0);
	toy_close(&t);
	poke(&t, 20, 201);
	poke(&t, 21, 7);
	poke(&t, 30, 7);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_true(t.rep.base_changed);
	assert_int_equal(t.rep.state, LOG_LIVE);
	t.n.content[20] = 201;
	t.n.content[21] = t.n.content[30] = 7;
	t.live = t.n;
	toy_commit_one(&t, 22, 221);
	toy_reopen(&t, LOG_LIVE);
	assert_false(t.rep.base_changed);
	toy_free(&t);
}

/* The log is empty and nothing guards the base: later records have no samples, but the newest one may be chosen again
 * behind a power cut, and what it has must not be written or trimmed meanwhile. */
TEST(test_forgotten_samples)
{
	struct log_record rec;
	unsigned n = 0;
	struct toy t;

	tell_samples(&t);
	assert_int_equal(toy_checkpoint(&t, RECORD_TAIL, RECORD_CLEAN), 0);
	rec = *log_newest(t.log);
	toy_close(&t);
	assert_int_equal(toy_open(&t, 0), 0);
	for (size_t i = 0; i < LOG_SAMPLES; i++) {
		assert_int_equal(log_newest(t.log)->sample[i].blk, 0);
		assert_true(!rec.sample[i].blk || is_held(&t, (unsigned)rec.sample[i].blk));
		n += rec.sample[i].blk != 0;
	}
	assert_int_not_equal(n, 0);
	toy_free(&t);
}

static bool always(void *ctx)
{
	return true;
}

static int checkpoint(struct toy *t, const struct commit_options *opt)
{
	uint64_t blks;

	return commit_checkpoint(t->log, t->base, opt, toy_publish, t, RECORD_TAIL, &blks);
}

/* One commit of three blocks; opt stops a checkpoint. */
static void commit_three(struct toy *t, struct commit_options *opt, struct commit_source *src)
{
	toy_begin(t);
	*src = toy_source(t);
	*opt = (struct commit_options){ .cause = CAUSE_TIMER, .stop = always, .uses = src };
	toy_write(t, 20, 201);
	toy_write(t, 40, 401);
	toy_write(t, 70, 701);
	assert_int_equal(toy_commit(t), 0);
}

/* While a checkpoint rests, a commit makes an environment block of what would be its sample: GRUB may change it. */
TEST(test_sample_becomes_env)
{
	for (int env = 0; env < 2; env++) {
		struct commit_options opt;
		struct commit_source src;
		struct toy t;

		commit_three(&t, &opt, &src);
		assert_int_equal(checkpoint(&t, &opt), -EINTR);
		toy_commit_one(&t, 20, env ? TOY_ENV : 202);
		opt.stop = NULL;
		assert_int_equal(checkpoint(&t, &opt), 0);
		assert_int_equal(is_held(&t, 20), !env);
		toy_commit_one(&t, 41, 411);
		toy_close(&t);
		if (env)
			poke(&t, 20, TOY_ENV + 1);
		toy_open_is(&t, LOG_LIVE);
		toy_free(&t);
	}
}

TEST(test_env_in_place)
{
	for (uint16_t now = TOY_ENV; now < TOY_ENV + 2; now++) {
		struct toy t;

		toy_begin(&t);
		toy_drop(&t, 33);
		assert_int_equal(toy_commit(&t), 0);
		toy_commit_one(&t, 33, TOY_ENV);
		assert_true(t.direct[33]);
		toy_close(&t);
		poke(&t, 33, now);
		t.n.content[33] = now;
		t.live = t.n;
		toy_open_is(&t, LOG_LIVE);
		assert_int_equal(t.rep.loader_wrote, now != TOY_ENV);
		toy_free(&t);
	}
}

/* While a checkpoint rests, a trim takes a block that it has written home, and that is free by now. */
TEST(test_sample_is_trimmed)
{
	struct commit_options opt;
	struct commit_source src;
	struct toy t;

	commit_three(&t, &opt, &src);
	toy_drop(&t, 20);
	assert_int_equal(toy_commit(&t), 0);
	assert_int_equal(checkpoint(&t, &opt), -EINTR);
	assert_false(is_held(&t, 20));
	poke(&t, 20, 999);
	opt.stop = NULL;
	assert_int_equal(checkpoint(&t, &opt), 0);
	toy_commit_one(&t, 41, 411);
	toy_reopen(&t, LOG_LIVE);
	toy_free(&t);
}
