// SPDX-License-Identifier: MIT
/*
 * A commit of several volumes: how the members meet, and power cuts at every write and FLUSH of
 * two simulated cards that lose their power at the same time. After each cut both volumes are at
 * the old generation, or both at the new one. Other faults leave one or both alive: these go on and
 * commit again, and the power is cut then.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "volume/joint.h"
#include "log_toy.h"

enum { MEMBERS = 3 };

/* ---- the meeting ---- */

struct member {
	struct joint *j;
	struct joint_params p;
	pthread_t thread;
	bool changed, gives_up, hurries;
	int frozen_r, written_r;
	struct log_joint leader; /* that it was told; seq 0: it leads, or does not write */
};

static _Atomic bool client_gone;

static bool is_gone(void *ctx)
{
	(void)ctx;
	return client_gone;
}

static bool hurries(void *ctx)
{
	return ((struct member *)ctx)->hurries;
}

static void *meet(void *arg)
{
	struct member *m = arg;
	struct log_together t = joint_log(m->j);
	const struct log_joint self = { .epoch = 7, .seq = 100 + m->p.rank };
	int r = m->gives_up ? -EIO : joint_synced(m->j);

	m->frozen_r = r == 0 ? joint_frozen(m->j, m->changed) : r;
	r = m->frozen_r == 0 && m->changed ? t.choose(t.ctx, &self, &m->leader) : m->frozen_r;
	if (r == 0 && m->changed)
		r = t.before_record(t.ctx);
	if (r == 0 && m->changed)
		r = t.after_record(t.ctx);
	m->written_r = r;
	joint_leave(m->j);
	return NULL;
}

/* Leaves fd open: the decision is read there afterwards. */
static int meet_all(struct member m[MEMBERS])
{
	int fd = joint_new(MEMBERS);

	assert_true(fd >= 0);
	client_gone = false;
	for (unsigned i = 0; i < MEMBERS; i++) {
		m[i].p = (struct joint_params){ .fd = fd,
						.rank = m[i].p.rank,
						.gone = is_gone,
						.hurries = hurries,
						.ctx = &m[i] };
		assert_int_equal(joint_enter(&m[i].j, &m[i].p), 0);
		assert_int_equal(pthread_create(&m[i].thread, NULL, meet, &m[i]), 0);
	}
	return fd;
}

static void join_all(struct member m[MEMBERS])
{
	for (unsigned i = 0; i < MEMBERS; i++)
		pthread_join(m[i].thread, NULL);
}

static bool decided(int fd)
{
	const struct joint_params p = { .fd = fd, .rank = 99, .gone = is_gone };
	struct joint *j;
	bool yes;

	assert_int_equal(joint_enter(&j, &p), 0);
	yes = joint_decided(j);
	joint_leave(j);
	close(fd);
	return yes;
}

static void test_leader(void **state)
{
	(void)state;
	/* the lowest rank of those that have changed */
	for (unsigned changed = 0; changed < 1u << MEMBERS; changed++) {
		struct member m[MEMBERS] = { 0 };
		unsigned leader = MEMBERS;
		int fd;

		for (unsigned i = 0; i < MEMBERS; i++) {
			m[i].p.rank = MEMBERS - 1 - i;
			m[i].changed = changed >> i & 1;
			if (m[i].changed && m[i].p.rank < leader)
				leader = m[i].p.rank;
		}
		fd = meet_all(m);
		join_all(m);
		assert_int_equal(decided(fd), changed != 0);
		for (unsigned i = 0; i < MEMBERS; i++) {
			bool told = m[i].changed && m[i].p.rank != leader;

			assert_int_equal(m[i].frozen_r, 0);
			assert_int_equal(m[i].written_r, 0);
			assert_int_equal(m[i].leader.seq, told ? 100 + leader : 0);
			assert_int_equal(m[i].leader.epoch, told ? 7 : 0);
		}
	}
}

static void test_cancel(void **state)
{
	(void)state;
	for (unsigned who = 0; who < MEMBERS; who++)
		for (int how = 0; how < 2; how++) {
			struct member m[MEMBERS] = { { .changed = true },
						     { .changed = true },
						     { 0 } };
			int fd;

			for (unsigned i = 0; i < MEMBERS; i++)
				m[i].p.rank = i;
			m[who].gives_up = how == 0;
			/* the others let it wait */
			m[who].hurries = how == 1;
			m[(who + 1) % MEMBERS].gives_up = how == 1;
			fd = meet_all(m);
			join_all(m);
			assert_false(decided(fd));
			for (unsigned i = 0; i < MEMBERS; i++)
				assert_int_equal(m[i].written_r, m[i].gives_up ? -EIO : -ECANCELED);
		}
}

static void test_gone(void **state)
{
	struct member m[MEMBERS] = { { .changed = true }, { .changed = true }, { 0 } };
	const struct joint_params p = { .rank = 9, .gone = is_gone };
	struct joint_params q = p;
	struct joint *one;
	int fd;

	(void)state;
	/* a fourth never comes */
	fd = joint_new(MEMBERS + 1);
	q.fd = fd;
	assert_int_equal(joint_enter(&one, &q), 0);
	client_gone = false;
	for (unsigned i = 0; i < MEMBERS; i++) {
		m[i].p = (struct joint_params){ .fd = fd, .rank = i, .gone = is_gone };
		assert_int_equal(joint_enter(&m[i].j, &m[i].p), 0);
		assert_int_equal(pthread_create(&m[i].thread, NULL, meet, &m[i]), 0);
	}
	client_gone = true;
	join_all(m);
	for (unsigned i = 0; i < MEMBERS; i++)
		assert_int_equal(m[i].written_r, -ECANCELED);
	assert_string_equal(joint_why(one), "cowctl has ended"); /* all say the reason of one */
	joint_leave(one);
	assert_false(decided(fd));
}

/* The daemon of the leader ends while it writes its record. */
static void test_leader_ends(void **state)
{
	struct joint_params p = { .fd = joint_new(1), .rank = 4, .gone = is_gone };
	const struct log_joint self = { .epoch = 7, .seq = 100 };
	struct log_joint leader = { 0 };
	struct log_together t;
	struct joint *j, *client;

	(void)state;
	client_gone = false;
	assert_int_equal(joint_enter(&j, &p), 0);
	p.rank = 9;
	assert_int_equal(joint_enter(&client, &p), 0);
	assert_int_equal(joint_frozen(j, true), 0);
	t = joint_log(j);
	assert_int_equal(t.choose(t.ctx, &self, &leader), 0);
	assert_int_equal(t.before_record(t.ctx), 0);
	/* too late to cancel */
	joint_cancel(client);
	joint_ended(client, 3);
	assert_false(joint_decided(client));
	/* the members must not wait for ever */
	joint_ended(client, 4);
	assert_int_equal(t.after_record(t.ctx), 0);
	assert_false(joint_decided(client));
	/* nor think that they know */
	t = joint_log(client);
	assert_int_equal(t.after_record(t.ctx), -ENOLINK);
	joint_leave(j);
	joint_leave(client);
	close(p.fd);
}

static void test_bad_memory(void **state)
{
	struct joint_params p = { .gone = is_gone };
	struct joint *j;

	(void)state;
	p.fd = memfd_create("x", 0); /* could be cut off below a reader */
	assert_int_equal(ftruncate(p.fd, 4096), 0);
	assert_int_equal(joint_enter(&j, &p), -EINVAL);
	close(p.fd);
	p.fd = memfd_create("x", MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(p.fd, 8), 0);
	assert_int_equal(fcntl(p.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	assert_int_equal(joint_enter(&j, &p), -EINVAL);
	close(p.fd);
}

/* ---- power cuts ---- */

/* All cards have one power supply. */
static struct {
	pthread_mutex_t lock;
	const struct card_ops *real;
	struct card_ops ops;
	uint64_t n, cut_at; /* writes and FLUSHes of all cards; 0: never */
	/* this one fails, and all later ones of its card, or only this one; 0: none */
	uint64_t fail_at;
	bool fails_on, fails_late; /* late: it is done all the same */
	struct card *failing;
} power = { .lock = PTHREAD_MUTEX_INITIALIZER };

enum fate { IS_DONE, IS_LOST, IS_DONE_BUT_FAILS };

static enum fate fate_of(struct card *c)
{
	enum fate fate = IS_DONE;

	pthread_mutex_lock(&power.lock);
	power.n++;
	if (power.n == power.fail_at) {
		power.failing = c;
		fate = power.fails_late ? IS_DONE_BUT_FAILS : IS_LOST;
	} else if (power.failing == c && power.fails_on) {
		fate = IS_LOST;
	}
	if (power.cut_at && power.n >= power.cut_at)
		fate = IS_LOST;
	pthread_mutex_unlock(&power.lock);
	return fate;
}

static int cut_write(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	enum fate fate = fate_of(c);
	int r = fate == IS_LOST ? -EIO : power.real->write(c, off_bytes, buf, len_bytes);

	return fate == IS_DONE_BUT_FAILS ? -EIO : r;
}

static int cut_flush(struct card *c)
{
	enum fate fate = fate_of(c);
	int r = fate == IS_LOST ? -EIO : power.real->flush(c);

	return fate == IS_DONE_BUT_FAILS ? -EIO : r;
}

static void connect_power(struct toy *t)
{
	power.real = power.real ? power.real : t->card->ops;
	power.ops = *power.real;
	power.ops.write = cut_write;
	power.ops.flush = cut_flush;
	t->card->ops = t->base->ops = &power.ops;
}

struct side {
	struct toy toy;
	struct joint *joint;
	struct log_together real;
	struct log_mark mark;
	pthread_t thread;
	bool dies; /* before it learns what the leader did */
	bool went_on;
	int r;
};

static int choose(void *ctx, const struct log_joint *self, struct log_joint *ret_leader)
{
	struct side *s = ctx;

	return s->real.choose(s->real.ctx, self, ret_leader);
}

static int before_record(void *ctx)
{
	struct side *s = ctx;

	return s->real.before_record(s->real.ctx);
}

static int after_record(void *ctx)
{
	struct side *s = ctx;
	int r = s->real.after_record(s->real.ctx);

	return s->dies ? -ENOLINK : r;
}

static void *commit_side(void *arg)
{
	struct side *s = arg;
	const struct log_together together = { choose, before_record, after_record, s };
	const struct commit_source src = toy_source(&s->toy);
	const struct commit_options opt = { .cause = CAUSE_MANUAL, .together = &together };
	struct commit_report bill;
	struct log_index *ix = NULL;

	s->real = joint_log(s->joint);
	log_set_mark(s->toy.log, &s->mark);
	s->r = joint_frozen(s->joint, true);
	if (s->r == 0)
		s->r = commit_run(s->toy.log, s->toy.base, &src, &opt, toy_publish, &s->toy, &bill,
				  &ix);
	if (s->r == 0)
		toy_publish(&s->toy, ix);
	joint_leave(s->joint);
	return NULL;
}

static void commit_both(struct side s[2])
{
	struct joint_params p = { .fd = joint_new(2), .gone = is_gone };

	assert_true(p.fd >= 0);
	client_gone = false;
	for (unsigned i = 0; i < 2; i++, p.rank++)
		assert_int_equal(joint_enter(&s[i].joint, &p), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&s[i].thread, NULL, commit_side, &s[i]), 0);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(s[i].thread, NULL);
	close(p.fd);
}

/* The same, cut at this operation; 0: not. The power comes back, and both logs are closed. */
static void commit_cut(struct side s[2], uint64_t cut_at)
{
	power.n = 0;
	power.cut_at = cut_at;
	commit_both(s);
	power.cut_at = 0;
	for (unsigned i = 0; i < 2; i++) {
		toy_close(&s[i].toy);
		sim_power_cycle(s[i].toy.card, NULL, NULL);
		if (s[i].toy.base != s[i].toy.card)
			sim_power_cycle(s[i].toy.base, NULL, NULL);
	}
}

static struct toy *leader; /* NULL: its card is not there */
static unsigned questions;

static int ask(const struct log_joint *j, char *why, size_t why_bytes)
{
	uint8_t id[16];

	questions++;
	snprintf(why, why_bytes, "it is in a drawer");
	if (!leader)
		return -ENOLINK;
	log_public_id(leader->log, id);
	assert_memory_equal(id, j->log_id, sizeof(id));
	return log_has_record(leader->log, j->epoch, j->seq);
}

/* 0: the old generation, 1: the new one */
static int which(struct toy *t, const struct toy_image *before, const struct toy_image *after)
{
	assert_int_equal(toy_view(t, view), 0);
	if (toy_differs(after, view) < 0)
		return 1;
	assert_int_equal(toy_differs(before, view), -1);
	return 0;
}

static void change(struct toy *t, uint16_t content)
{
	toy_write(t, 9, content);		   /* logged */
	toy_write(t, 40, (uint16_t)(content + 1)); /* in place */
	toy_write(t, 41, (uint16_t)(content + 2));
}

static const enum toy_story stories[] = { TOY_LIVE, TOY_CUT_CHECKPOINT, TOY_CHAIN, TOY_VIRGIN };

/* One commit of both that is cut at this operation; 0: is not cut. Returns the operations. */
static uint64_t cut_once(const struct toy from[2], uint64_t cut_at, uint64_t seed,
			 unsigned count[2])
{
	struct toy_image before[2], after[2];
	struct side s[2] = { 0 };
	unsigned asked = questions;
	int got[2];

	for (unsigned i = 0; i < 2; i++) {
		toy_clone(&s[i].toy, &from[i]);
		assert_int_equal(toy_open(&s[i].toy, 0), 0);
		before[i] = s[i].toy.n;
		change(&s[i].toy, (uint16_t)(100 + 10 * i));
		after[i] = s[i].toy.live;
		sim_seed(s[i].toy.card, seed + i);
		connect_power(&s[i].toy);
	}
	commit_cut(s, cut_at);
	if (!cut_at)
		assert_true(s[0].r == 0 && s[1].r == 0);
	/* what one has been told is what is there afterwards */
	leader = &s[0].toy;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(toy_open(&s[i].toy, 0), 0);
		assert_true(s[i].toy.rep.state < LOG_BROKEN);
		got[i] = which(&s[i].toy, &before[i], &after[i]);
		assert_true(s[i].r < 0 || got[i] == 1);
	}
	if (got[0] != got[1])
		fail_msg("cut %lu, seed %lu: %d and %d", (unsigned long)cut_at, (unsigned long)seed,
			 got[0], got[1]);
	assert_true(cut_at || questions == asked); /* confirmed */
	count[got[0]]++;
	/* and it stays, without a question, after the next commit */
	for (unsigned i = 0; i < 2; i++) {
		unsigned n = questions;

		s[i].toy.n = s[i].toy.live = got[i] ? after[i] : before[i];
		memset(s[i].toy.dirty, 0, sizeof(s[i].toy.dirty));
		toy_write(&s[i].toy, 12, 77);
		assert_int_equal(toy_commit(&s[i].toy), 0);
		toy_close(&s[i].toy);
		leader = NULL;
		assert_int_equal(toy_open(&s[i].toy, 0), 0);
		assert_int_equal(questions, n);
		assert_int_equal(toy_view(&s[i].toy, view), 0);
		assert_int_equal(toy_differs(&s[i].toy.n, view), -1);
		toy_free(&s[i].toy);
	}
	return power.n;
}

static void test_cuts(void **state)
{
	enum { SEEDS = 3 };
	unsigned count[2] = { 0 };

	(void)state;
	log_set_joint_ask(ask);
	questions = 0;
	for (size_t a = 0; a < ARRAY_SIZE(stories); a++)
		for (size_t b = a; b < a + 2; b++) {
			struct toy from[2];
			uint64_t ops;

			toy_tell(&from[0], stories[a], NULL, NULL);
			toy_tell(&from[1], stories[b % ARRAY_SIZE(stories)], NULL, NULL);
			ops = cut_once(from, 0, 1, count);
			for (uint64_t k = 1; k <= ops; k++)
				for (uint64_t seed = 1; seed <= SEEDS; seed++)
					(void)cut_once(from, k, seed * 1000 + k, count);
			toy_free(&from[0]);
			toy_free(&from[1]);
		}
	print_message("%u times the old, %u times the new generation; %u questions\n", count[0],
		      count[1], questions);
	assert_true(count[0] > 500 && count[1] > 100 && questions > 30);
	log_set_joint_ask(NULL);
}

/* A member whose record is there, and nothing after it. */
static void doubtful(struct toy *member, struct toy *lead)
{
	struct side s[2] = { 0 };

	for (uint64_t k = 1;; k++) {
		assert_true(k < 100);
		toy_tell(&s[0].toy, TOY_LIVE, NULL, NULL);
		toy_tell(&s[1].toy, TOY_LIVE, NULL, NULL);
		for (unsigned i = 0; i < 2; i++) {
			change(&s[i].toy, (uint16_t)(100 + 10 * i));
			connect_power(&s[i].toy);
		}
		commit_cut(s, k);
		leader = NULL;
		assert_int_equal(toy_open(&s[0].toy, 0), 0);
		assert_int_equal(toy_open(&s[1].toy, 0), 0);
		if (s[1].toy.rep.wants_joint)
			break;
		toy_free(&s[0].toy);
		toy_free(&s[1].toy);
	}
	*lead = s[0].toy;
	*member = s[1].toy;
}

static void test_doubt(void **state)
{
	struct toy member, lead;

	(void)state;
	log_set_joint_ask(ask);
	doubtful(&member, &lead);
	/* not known: nothing may be written, and nothing older is taken */
	assert_int_equal(member.rep.state, LOG_BROKEN);
	assert_non_null(strstr(member.rep.why, "drawer"));
	assert_true(member.rep.joint);
	assert_int_equal(toy_commit(&member), -EUCLEAN);
	/* somebody decides */
	for (int counts = 0; counts < 2; counts++) {
		toy_close(&member);
		assert_int_equal(toy_open(&member, counts ? LOG_JOINT_COUNTS : LOG_JOINT_REJECTED),
				 0);
		assert_int_equal(member.rep.state, counts ? LOG_LIVE : LOG_FELL_BACK);
		assert_true(member.rep.joint && !member.rep.wants_joint);
		assert_int_equal(member.rep.rejected, !counts);
	}
	toy_close(&member);
	leader = &lead;
	assert_int_equal(toy_open(&member, 0), 0);
	assert_true(member.rep.state < LOG_BROKEN);
	/* the leader goes on until its ring has been overwritten: it cannot tell any more */
	for (unsigned i = 0; i < 60; i++) {
		toy_write(&lead, 9, (uint16_t)(300 + i));
		assert_int_equal(toy_commit(&lead), 0);
		assert_int_equal(toy_checkpoint(&lead, RECORD_TAIL, 0), 0);
	}
	toy_close(&member);
	assert_int_equal(toy_open(&member, 0), 0);
	assert_true(member.rep.wants_joint && member.rep.state == LOG_BROKEN);
	toy_free(&member);
	toy_free(&lead);
	log_set_joint_ask(NULL);
}

/* A record of the leader stays one of its generations, whatever it writes next. */
static void test_has_record(void **state)
{
	struct log_record rec;
	struct toy t;

	(void)state;
	toy_tell(&t, TOY_LIVE, NULL, NULL);
	change(&t, 100);
	assert_int_equal(toy_commit(&t), 0);
	rec = *log_newest(t.log);
	assert_int_equal(rec.type, RECORD_COMMIT);
	assert_int_equal(log_has_record(t.log, rec.epoch, rec.seq), 1);
	/* a checkpoint record takes its place in the chain */
	assert_int_equal(toy_checkpoint(&t, RECORD_TAIL, 0), 0);
	assert_int_equal(log_has_record(t.log, rec.epoch, rec.seq), 1);
	toy_write(&t, 9, 300);
	assert_int_equal(toy_commit(&t), 0);
	assert_int_equal(log_has_record(t.log, rec.epoch, rec.seq), 1);
	assert_int_equal(log_has_record(t.log, rec.epoch + 1, rec.seq), 0);
	toy_close(&t);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(log_has_record(t.log, rec.epoch, rec.seq), 1);
	toy_free(&t);
}

/* The leader was detached cleanly before. Its record does not get to the card, and later it commits
 * alone: that is another commit than the one that the member names. */
static void test_clean_leader(void **state)
{
	unsigned rejected = 0;

	(void)state;
	log_set_joint_ask(ask);
	for (uint64_t k = 1; k < 60; k++) {
		struct toy_image before[2], after[2];
		struct side s[2] = { 0 };
		int got;

		for (unsigned i = 0; i < 2; i++) {
			toy_tell(&s[i].toy, TOY_LIVE, NULL, NULL);
			assert_int_equal(toy_checkpoint(&s[i].toy, RECORD_TAIL, RECORD_CLEAN), 0);
			toy_close(&s[i].toy);
			assert_int_equal(toy_open(&s[i].toy, 0), 0);
			assert_int_equal(s[i].toy.rep.state, LOG_CLEAN);
			before[i] = s[i].toy.n;
			change(&s[i].toy, (uint16_t)(100 + 10 * i));
			after[i] = s[i].toy.live;
			connect_power(&s[i].toy);
		}
		commit_cut(s, k);
		assert_int_equal(toy_open(&s[0].toy, 0), 0);
		got = which(&s[0].toy, &before[0], &after[0]);
		s[0].toy.n = s[0].toy.live = got ? after[0] : before[0];
		memset(s[0].toy.dirty, 0, sizeof(s[0].toy.dirty));
		toy_write(&s[0].toy, 12, 77);
		assert_int_equal(toy_commit(&s[0].toy), 0);
		leader = &s[0].toy;
		assert_int_equal(toy_open(&s[1].toy, 0), 0);
		assert_true(s[1].toy.rep.state < LOG_BROKEN);
		if (which(&s[1].toy, &before[1], &after[1]) != got)
			fail_msg("cut %lu: the leader has %d", (unsigned long)k, got);
		rejected += !got && s[1].toy.rep.joint;
		for (unsigned i = 0; i < 2; i++)
			toy_free(&s[i].toy);
	}
	assert_true(rejected > 0);
	log_set_joint_ask(NULL);
}

/* ---- faults that a volume survives ---- */

static struct toy *asked; /* its card, whatever its daemon thinks */

static int ask_card(const struct log_joint *j, char *why, size_t why_bytes)
{
	struct toy t = *asked;
	int r;

	snprintf(why, why_bytes, "it cannot be read");
	assert_int_equal(toy_open(&t, LOG_JOINT_REJECTED), 0);
	r = log_has_record(t.log, j->epoch, j->seq);
	toy_close(&t);
	return r == 1 && card_flush(asked->card) < 0 ? -ENOLINK : r;
}

enum fault { FAULT_ONCE, FAULT_CARD, FAULT_DEATH, FAULT_DEAF, FAULTS };

struct life {
	struct side side[2];
	struct toy_image gen[2][3]; /* before, of the joint commit, of the one after it */
	bool learned[2];	    /* that the joint commit does not count (0), or does (1) */
	bool doubt;		    /* a volume did not know */
};

/* Another process takes over, as open_kept_log in takeover.c. */
static void take_over(struct side *s)
{
	toy_close(&s->toy);
	assert_int_equal(toy_open(&s->toy, LOG_JOINT_COUNTS), 0);
	if (s->toy.rep.joint && s->toy.rep.newest.seq != s->mark.newest) {
		toy_close(&s->toy);
		assert_int_equal(toy_open(&s->toy, LOG_JOINT_UNDECIDED), 0);
		assert_true(log_undecided(s->toy.log));
	}
	assert_true(s->toy.rep.state < LOG_BROKEN);
	assert_int_equal(log_settle(s->toy.log), 0);
}

/* What this one knows about the joint commit. */
static void learn(struct life *l, unsigned i, bool died)
{
	struct side *s = &l->side[i];

	if (log_undecided(s->toy.log))
		l->doubt = true;
	else
		l->learned[died ? which(&s->toy, &l->gen[i][0], &l->gen[i][1]) : s->r == 0] = true;
}

/* The joint commit, with this fault at this operation. Returns the operations. */
static uint64_t commit_faulty(struct life *l, const struct toy from[2], enum fault fault,
			      uint64_t at, uint64_t seed)
{
	*l = (struct life){ 0 };
	for (unsigned i = 0; i < 2; i++) {
		struct toy *t = &l->side[i].toy;

		toy_clone(t, &from[i]);
		assert_int_equal(toy_open(t, 0), 0);
		l->gen[i][0] = t->n;
		change(t, (uint16_t)(100 + 10 * i));
		l->gen[i][1] = t->live;
		sim_seed(t->card, seed + i);
		connect_power(t);
	}
	l->side[1].dies = fault == FAULT_DEAF;
	power.n = 0;
	power.failing = NULL;
	power.fail_at = fault == FAULT_DEAF ? 0 : at;
	power.fails_on = fault != FAULT_ONCE;
	power.fails_late = seed & 1;
	commit_both(l->side);
	power.fail_at = 0;
	power.fails_on = false;
	for (unsigned i = 0; i < 2; i++) {
		struct side *s = &l->side[i];
		bool died = s->dies || (fault == FAULT_DEATH && power.failing == s->toy.card);

		if (died)
			take_over(s);
		learn(l, i, died);
	}
	return power.n;
}

/* It commits alone. */
static void live_on(struct life *l, unsigned i)
{
	struct toy *t = &l->side[i].toy;
	bool was = log_undecided(t->log);
	uint64_t n = power.n;
	char why[160];
	int r;

	if (was) { /* nothing may be written */
		assert_int_equal(toy_commit(t), -ENOLINK);
		assert_int_equal(power.n, n);
	}
	r = log_decide(&t->log, 0, why, sizeof(why));
	if (r < 0) /* the power has gone */
		return;
	if (was)
		l->learned[r] = true;
	assert_false(log_undecided(t->log));
	toy_publish(t, log_index_of(t->log));
	t->n = l->gen[i][which(t, &l->gen[i][0], &l->gen[i][1])];
	toy_write(t, 12, (uint16_t)(77 + i));
	toy_write(t, 42, (uint16_t)(87 + i));
	l->gen[i][2] = t->live;
	l->side[i].went_on = true;
	(void)!toy_commit(t);
}

/* The power goes at this operation of the later commits. */
static void live_and_cut(struct life *l, unsigned first, uint64_t cut_at)
{
	power.n = 0;
	power.cut_at = cut_at;
	live_on(l, first);
	live_on(l, !first);
	power.cut_at = 0;
	for (unsigned i = 0; i < 2; i++) {
		toy_close(&l->side[i].toy);
		sim_power_cycle(l->side[i].toy.card, NULL, NULL);
	}
}

static void judge(struct life *l, const char *what)
{
	int got[2];

	for (unsigned i = 0; i < 2; i++) {
		struct toy *t = &l->side[i].toy;

		assert_int_equal(toy_open(t, 0), 0);
		assert_true(t->rep.state < LOG_BROKEN);
		assert_int_equal(toy_view(t, view), 0);
		/* the newest first: an older one may not use the blocks that differ */
		got[i] = l->side[i].went_on ? 2 : 1;
		while (got[i] >= 0 && toy_differs(&l->gen[i][got[i]], view) >= 0)
			got[i]--;
		if (got[i] < 0)
			fail_msg("%s: volume %u has no generation", what, i);
		if (got[i] < 2)
			l->learned[got[i]] = true;
	}
	if (l->learned[0] && l->learned[1])
		fail_msg("%s: generations %d and %d, and the joint commit counts for one only",
			 what, got[0], got[1]);
}

static void test_survivors(void **state)
{
	enum { SEEDS = 4 };
	unsigned lives = 0, counts = 0, doubts = 0;

	(void)state;
	log_set_joint_ask(ask_card);
	rnd_state = 1;
	for (unsigned story = 0; story < 2; story++) {
		struct toy from[2];
		struct life l;
		uint64_t ops;

		toy_tell(&from[0], stories[story], NULL, NULL);
		toy_tell(&from[1], stories[story ? 3 : 0], NULL, NULL);
		ops = commit_faulty(&l, from, FAULT_ONCE, 0, 1);
		assert_true(l.learned[1] && !l.doubt);
		for (unsigned i = 0; i < 2; i++)
			toy_free(&l.side[i].toy);
		for (unsigned n = 0; n < ops * FAULTS * SEEDS; n++) {
			enum fault fault = n % FAULTS;
			uint64_t at = 1 + n / FAULTS % ops, seed = n / FAULTS / ops,
				 cut_at = 1 + rnd(30);
			char what[80];

			if (fault == FAULT_DEAF)
				at = 0;
			snprintf(what, sizeof(what),
				 "story %u, fault %d at %lu, seed %lu, cut at %lu", story, fault,
				 (unsigned long)at, (unsigned long)seed, (unsigned long)cut_at);
			(void)commit_faulty(&l, from, fault, at, seed);
			asked = &l.side[0].toy;
			live_and_cut(&l, seed / 2 & 1, cut_at);
			judge(&l, what);
			lives++;
			doubts += l.doubt;
			counts += l.doubt && l.learned[1];
			for (unsigned i = 0; i < 2; i++)
				toy_free(&l.side[i].toy);
		}
		toy_free(&from[0]);
		toy_free(&from[1]);
	}
	print_message("%u lives, %u of them in doubt, and in %u of these it counts\n", lives,
		      doubts, counts);
	assert_true(doubts > 100 && counts > 50 && counts < doubts);
	log_set_joint_ask(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_leader),	     cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_gone),	     cmocka_unit_test(test_leader_ends),
		cmocka_unit_test(test_bad_memory),   cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_doubt),	     cmocka_unit_test(test_has_record),
		cmocka_unit_test(test_clean_leader), cmocka_unit_test(test_survivors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
