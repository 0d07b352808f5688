// SPDX-License-Identifier: MIT
/*
 * A session that an attacker has taken over: it may answer anything, at any time, and its effect
 * must not go beyond an error or a wrong answer. The sessions here are threads (this program has a
 * fsproc.c of its own).
 */
#include "test.h"
#include "fs/answer.h"
#include "fs/fsproc.h"
#include "fs/reader.h"
#include "fs/replay.h"

#define BLKS 512
#define ROUNDS 3000

static uint8_t image[BLKS * COW_BLK_BYTES];
static unsigned seed;
static pthread_t thread;
static int other_fd;

/* NULL: hostile */
static void *(*session)(void *ctx);

static const uint64_t numbers[] = { 0, 1, 16, 17, BLKS - 1, BLKS, 1u << 17, UINT64_MAX };

static struct answer answer(uint64_t *s)
{
	struct answer a = { .more = rnd_of(s, 3) == 0, .err = rnd_of(s, 4) ? 0 : -117 };

	a.blk = numbers[rnd_of(s, ARRAY_SIZE(numbers))];
	a.blks = numbers[rnd_of(s, ARRAY_SIZE(numbers))];
	if (rnd_of(s, 2))
		a.blk = 0, a.blks = 16;
	return a;
}

static const struct fsimage_facts ext3_facts = { .blocks = 2048,
						 .block_shift = 10,
						 .first_data_block = 1,
						 .blocks_per_group = 8192,
						 .gdt_blocks = 1,
						 .gdt_block = { 2 },
						 .journal = { .sb_block = 100, .log_blocks = 9 } };

static struct fsimage_facts facts(uint64_t *s)
{
	struct fsimage_facts f = ext3_facts;
	uint8_t *p = (uint8_t *)&f;

	for (int n = rnd_of(s, 3); n; n--)
		p[rnd_of(s, 64)] = (uint8_t)rnd_of(s, 256);
	return f;
}

static void *hostile(void *ctx)
{
	uint64_t s = seed;
	bool floods = rnd_of(&s, 8) == 0;
	uint8_t data[70000] = { 0 }, drain[70000];

	for (int i = 0; i < 400; i++) {
		struct answer a = answer(&s);
		struct fsimage_facts f = facts(&s);
		size_t sizes[] = { 0,
				   sizeof(f),
				   1024,
				   64 * sizeof(struct fsimage_range),
				   2048 * sizeof(struct fsimage_range),
				   69999 };
		struct iovec iov[2] = { { &a, sizeof(a) },
					{ data, sizes[rnd_of(&s, ARRAY_SIZE(sizes))] } };
		struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

		for (size_t k = 0; k < 64; k++)
			data[rnd_of(&s, 1024)] = (uint8_t)rnd_of(&s, 256);
		if (i == 0 || rnd_of(&s, 2))
			a.err = 0, a.more = 0, iov[1].iov_len = sizeof(f),
			memcpy(data, &f, sizeof(f));
		a.bytes = rnd_of(&s, 8) ? iov[1].iov_len : numbers[rnd_of(&s, ARRAY_SIZE(numbers))];
		if (floods)
			a = (struct answer){ .more = 1, .blks = 16 }, iov[1].iov_len = 0;
		else if (recv(other_fd, drain, sizeof(drain), 0) <= 0)
			break;
		if (sendmsg(other_fd, &m, MSG_NOSIGNAL) < 0)
			break;
	}
	close(other_fd);
	return NULL;
}

bool fsproc_on(void)
{
	return true;
}

void fsproc_end(pid_t pid)
{
}

int fsproc_session(pid_t *ret_pid)
{
	int pair[2];

	*ret_pid = 0;
	if (thread)
		pthread_join(thread, NULL);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	other_fd = pair[1];
	seed++;
	assert_int_equal(pthread_create(&thread, NULL, session ? session : hostile, NULL), 0);
	return pair[0];
}

static int image_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	assert_true(blks && blk < BLKS && blks <= BLKS - blk);
	memcpy(buf, image + blk_to_bytes(blk), blk_to_bytes(blks));
	return 0;
}

static void put(size_t off, uint64_t v, size_t width)
{
	memcpy(image + 1024 + off, &v, width);
}

TEST(test_hostile_session)
{
	const struct blk_reader r = { image_read, NULL, BLKS };
	uint64_t patience_ns = answer_patience_ns;
	unsigned good = 0, died = 0;

	put(0x38, 0xef53, 2); /* an ext3 with a journal, as far as fsinfo.c reads it */
	put(0x5c, 4, 4);
	put(0xe0, 8, 4);
	put(4, 2048, 4);
	alarm(300);
	answer_patience_ns = 30000000; /* some wait for the missing rest */
	for (int i = 0; i < ROUNDS; i++) {
		struct fs_fingerprint fp;
		struct fsinfo info;
		struct fsmap *m;
		int e = i % 3 == 0   ? fsinfo_probe(&r, &info)
			: i % 3 == 1 ? fsinfo_fingerprint(&r, &fp)
				     : fsmap_open(&m, &r);

		good += !e;
		died += e == -EOWNERDEAD;
		assert_true(e <= 0);
		if (!e && i % 3 == 1)
			assert_in_range(fp.n_marks, 0, FS_MARKS);
		if (e || i % 3 < 2)
			continue;
		for (uint64_t b = 0; b < BLKS && !e; b++) {
			enum blk_use use;
			uint64_t n;

			e = fsmap_run(m, b, BLKS - b, &use, &n);
			assert_true(e || (n && n <= BLKS - b && use <= USE_JOURNAL));
		}
		fsmap_close(m);
	}
	alarm(0);
	answer_patience_ns = patience_ns;
	pthread_join(thread, NULL);
	thread = 0;
	assert_true(good > 100 && died > 100);
}

/* ---- single properties ---- */

/* Answers the first question; drops: number of bytes at a time, with a pause before each. */
static struct {
	struct answer a;
	size_t drops;
	useconds_t pause_us;
} plain;

static void *answer_once(void *ctx)
{
	struct fsimage_facts f = ext3_facts;
	uint8_t text[sizeof(plain.a) + sizeof(f)], question[64];
	size_t n = plain.drops ? plain.drops : sizeof(text);

	plain.a.bytes = plain.a.err ? 0 : sizeof(f);
	memcpy(text, &plain.a, sizeof(plain.a));
	memcpy(text + sizeof(plain.a), &f, sizeof(f));
	(void)!recv(other_fd, question, sizeof(question), 0);
	for (size_t i = 0; i < sizeof(text); i += n) {
		usleep(plain.pause_us);
		if (send(other_fd, text + i, n < sizeof(text) - i ? n : sizeof(text) - i,
			 MSG_NOSIGNAL) < 0)
			break;
	}
	close(other_fd);
	return NULL;
}

static int ask_once(void)
{
	const struct blk_reader r = { image_read, NULL, BLKS };
	struct fs_fingerprint fp;
	int e;

	session = answer_once;
	e = fsinfo_fingerprint(&r, &fp);
	session = NULL;
	return e;
}

/* An error code that does not exist is not an answer: neither a positive number, which callers take
 * for success, nor a code of cowfs itself. */
TEST(test_strange_errors)
{
	plain.a = (struct answer){ 0 };
	assert_int_equal(ask_once(), 0);
	for (int32_t e = -200; e < 200; e++) {
		int32_t strange[] = { e, INT32_MAX - 200 + e, INT32_MIN + 200 + e };

		for (size_t i = 0; i < ARRAY_SIZE(strange); i++) {
			int r;

			plain.a.err = strange[i];
			r = ask_once();
			assert_true(r <= 0);
			if (strange[i] > 0 || strange[i] < -200)
				assert_int_equal(r, -EOWNERDEAD);
		}
	}
	plain.a.err = 0;
}

/* Each single byte comes in time, but all of them together do not. */
TEST(test_drops)
{
	uint64_t patience_ns = answer_patience_ns, begin_ns;

	plain.drops = 1;
	assert_int_equal(ask_once(), 0);
	plain.pause_us = 20000; /* a byte; all of it takes 10 s */
	answer_patience_ns = 300000000;
	begin_ns = now_ns();
	assert_int_equal(ask_once(), -EOWNERDEAD);
	assert_true(now_ns() - begin_ns >= 250000000);
	answer_patience_ns = patience_ns;
	plain.drops = plain.pause_us = 0;
}

/* Reads forever: it is ended at the limit that an honest session could need. */
static uint64_t read_blks;

static void *reads_on(void *ctx)
{
	static uint8_t text[sizeof(int32_t) + 16 * COW_BLK_BYTES];
	const struct answer a = { .more = 1, .blks = 16 };

	(void)!recv(other_fd, text, sizeof(text), 0);
	while (send(other_fd, &a, sizeof(a), MSG_NOSIGNAL) > 0 &&
	       recv(other_fd, text, sizeof(text), MSG_WAITALL) == sizeof(text))
		read_blks += 16;
	close(other_fd);
	return ctx;
}

TEST(test_reads_on)
{
	const struct blk_reader r = { image_read, NULL, BLKS };
	struct fs_fingerprint fp;

	answer_patience_ns = 1800000000000; /* for 4096 questions */
	session = reads_on;
	assert_int_equal(fsinfo_fingerprint(&r, &fp), -EOWNERDEAD);
	session = NULL;
	pthread_join(thread, NULL);
	thread = 0;
	assert_in_range(read_blks, 60000, 70000);
}

/* A list of what a replay writes. */
static struct fsimage_move moves[4];
static size_t moves_n;

static void *answer_moves(void *ctx)
{
	struct fsimage_facts f = { .blocks = 2048,
				   .block_shift = 10,
				   .first_data_block = 1,
				   .blocks_per_group = 8192,
				   .journal = { .sb_block = 100, .size_bytes = 3 << 10 } };
	uint8_t question[64];

	for (int i = 0; recv(other_fd, question, sizeof(question), 0) > 0; i++) {
		/* the facts, no places of the journal, the list */
		struct answer a = { .bytes = i == 1 ? 0
					     : i    ? moves_n * sizeof(*moves)
						    : sizeof(f),
				    .blks = i > 1 ? moves_n : 0 };
		struct iovec iov[2] = { { &a, sizeof(a) },
					{ i ? (void *)moves : (void *)&f, (size_t)a.bytes } };
		struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

		if (sendmsg(other_fd, &m, MSG_NOSIGNAL) < 0)
			break;
	}
	close(other_fd);
	return ctx;
}

/* What replay_open says of these, after reads of all that they name. */
static int moves_open(uint64_t block, uint64_t from, uint64_t then, size_t n)
{
	const struct blk_reader r = { image_read, NULL, BLKS };
	struct blk_reader after;
	struct replay *y;
	uint8_t *buf = io_alloc(COW_BLK_BYTES);
	int e;

	moves[0] = (struct fsimage_move){ block, from };
	moves[1] = (struct fsimage_move){ then, 8 };
	moves[2] = (struct fsimage_move){ 2040, 8 };
	moves[3] = (struct fsimage_move){ 2041, 8 };
	moves_n = n;
	session = answer_moves;
	e = replay_open(&y, &r, NULL);
	session = NULL;
	if (!e) {
		after = replay_reader(y);
		for (uint64_t b = 0; (b = replay_next(y, b)) != UINT64_MAX; b++)
			assert_int_equal(after.read(after.ctx, b, 1, buf), 0);
		replay_close(y);
	}
	free(buf);
	return e;
}

TEST(test_moves)
{
	assert_int_equal(moves_open(0, 2047, 2047, 2), 0);
	assert_int_equal(moves_open(7, 2047 | FSIMAGE_ESCAPED, 9, 3), 0);
	assert_int_equal(moves_open(7, 1, 9, 4),
			 -EOWNERDEAD); /* more than the journal has blocks */
	assert_int_equal(moves_open(7, 1, 7, 2), -EOWNERDEAD);
	assert_int_equal(moves_open(7, 1, 6, 2), -EOWNERDEAD);
	assert_int_equal(moves_open(7, 2048, 9, 2), -EOWNERDEAD);
	assert_int_equal(moves_open(7, 1, 2048, 2), -EOWNERDEAD);
	assert_int_equal(moves_open(7, 1ull << 62, 9, 2), -EOWNERDEAD);
}

/* The list of a journal that claims 3 GiB, in blocks of 1 KiB. */
static uint64_t long_n;

static void *answer_long(void *ctx)
{
	static struct fsimage_move some[ITEMS_PER_ANSWER];
	const struct fsimage_facts f = { .blocks = 4u << 20,
					 .block_shift = 10,
					 .first_data_block = 1,
					 .blocks_per_group = 8192,
					 .journal = { .sb_block = 100, .size_bytes = 3ull << 30 } };
	struct question q;

	while (recv(other_fd, &q, sizeof(q), MSG_WAITALL) == sizeof(q)) {
		uint64_t n = q.what == ASK_REPLAY ? long_n : 0,
			 now = min_u64(n - min_u64(q.number, n), ARRAY_SIZE(some));
		struct answer a = { .bytes = q.what == ASK_OPEN ? sizeof(f) : now * sizeof(*some),
				    .blks = n };
		struct iovec iov[2] = { { &a, sizeof(a) },
					{ q.what == ASK_OPEN ? (void *)&f : (void *)some,
					  (size_t)a.bytes } };
		struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

		for (uint64_t i = 0; i < now; i++)
			some[i] = (struct fsimage_move){ q.number + i, 8 };
		if (sendmsg(other_fd, &m, MSG_NOSIGNAL) < 0)
			break;
	}
	close(other_fd);
	return ctx;
}

static int long_open(uint64_t n)
{
	const struct blk_reader r = { image_read, NULL, 1u << 20 };
	struct replay *y;
	int e;

	long_n = n;
	session = answer_long;
	e = replay_open(&y, &r, NULL);
	session = NULL;
	if (!e)
		replay_close(y);
	return e;
}

/* Not more than a session may read of a journal, however long the card says that it is. */
TEST(test_long_list)
{
	assert_int_equal(long_open(1u << 20), 0);
	assert_int_equal(long_open((1u << 20) + 1), -EOWNERDEAD);
}

/* Groups whose bits do not fill their last byte, or fill the block: the answer of a run is the
 * answer of each block. */
static struct fsimage_facts odd;

static void *answer_odd(void *ctx)
{
	uint64_t s = odd.blocks_per_group + odd.cluster_shift;
	uint8_t question[64], bits[1024];

	for (int i = 0; recv(other_fd, question, sizeof(question), 0) > 0; i++) {
		struct answer a = { .bytes = i ? sizeof(bits) : sizeof(odd) };
		struct iovec iov[2] = { { &a, sizeof(a) },
					{ i ? (void *)bits : (void *)&odd, (size_t)a.bytes } };
		struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

		/* long runs of both, and of the part in between */
		for (size_t k = 0; k < sizeof(bits); k++)
			bits[k] = (uint8_t)(k / 16 % 3 == 0   ? 0
					    : k / 16 % 3 == 1 ? 0xff
							      : rnd_of(&s, 256));
		/* a run to the last bit, and no further */
		bits[sizeof(bits) - 1] = bits[sizeof(bits) - 2];
		if (sendmsg(other_fd, &m, MSG_NOSIGNAL) < 0)
			break;
	}
	close(other_fd);
	return ctx;
}

static void check_runs(uint64_t volume_blks)
{
	const struct blk_reader r = { image_read, NULL, volume_blks };
	struct fsmap *m;

	session = answer_odd;
	assert_int_equal(fsmap_open(&m, &r), 0);
	session = NULL;
	for (uint64_t b = 0, n; b < volume_blks; b += n) {
		enum blk_use run, one;

		assert_int_equal(fsmap_run(m, b, volume_blks - b, &run, &n), 0);
		assert_in_range(n, 1, volume_blks - b);
		for (uint64_t i = 0; i < n; i++) {
			assert_int_equal(fsmap_use(m, b + i, &one), 0);
			assert_int_equal(one, run);
		}
	}
	fsmap_close(m);
}

TEST(test_odd_groups)
{
	static const uint32_t per_group[] = { 8, 9, 15, 16, 17, 1000, 8191, 8192 };

	put(0x5c, 0, 4); /* no journal */
	put(0xe0, 0, 4);
	for (size_t i = 0; i < ARRAY_SIZE(per_group); i++)
		for (uint32_t shift = 0; shift <= 4; shift += 2)
			for (uint32_t cut = 0; cut < 3; cut++) {
				uint64_t volume_blks = BLKS - cut;

				odd = (struct fsimage_facts){ .blocks = volume_blks * 4 - cut,
							      .block_shift = 10,
							      .first_data_block = shift == 0,
							      .blocks_per_group = per_group[i]
										  << shift,
							      .cluster_shift = shift,
							      .journal_err = -ENOENT };
				check_runs(volume_blks);
			}
	put(0x5c, 4, 4);
	put(0xe0, 8, 4);
}

/* Each group has bits of its own, and every 40th is bad. Never more groups than were asked for, sometimes fewer. */
enum { MANY_GROUPS = 400 };
static struct {
	unsigned questions;
	uint64_t groups;
} many;

static bool is_bad(uint64_t nr)
{
	return nr % 40 == 39;
}

static void *answer_many(void *ctx)
{
	static uint8_t bits[GROUPS_PER_ANSWER * 1024];
	uint64_t s = 1;
	struct question q;

	for (bool first = true; recv(other_fd, &q, sizeof(q), MSG_WAITALL) == sizeof(q);
	     first = false) {
		struct answer a = { .bytes = first ? sizeof(odd) : 0 };
		struct iovec iov[2] = { { &a, sizeof(a) },
					{ first ? (void *)&odd : (void *)bits, 0 } };
		struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
		uint64_t n = first ? 0 : q.ask - (q.ask > 1 && !rnd_of(&s, 8));

		for (uint64_t i = 0; i < n && !is_bad(q.number + i); i++, a.bytes += 1024)
			memset(bits + i * 1024, (int)((q.number + i) % 251), 1024);
		a.err = a.bytes ? 0 : -EUCLEAN;
		many.questions += !first;
		many.groups += first ? 0 : a.bytes / 1024;
		iov[1].iov_len = a.bytes;
		if (sendmsg(other_fd, &m, MSG_NOSIGNAL) < 0)
			break;
	}
	close(other_fd);
	return ctx;
}

static void check_group(struct reader *x, uint32_t nr)
{
	uint8_t bits[1024];

	assert_int_equal(reader_group(x, nr, bits), is_bad(nr) ? -EUCLEAN : 0);
	for (size_t i = 0; i < sizeof(bits) && !is_bad(nr); i++)
		assert_int_equal(bits[i], nr % 251);
}

/* Groups in ascending order come many at a time, others alone; an error is that of its own group. */
TEST(test_groups_ahead)
{
	const struct blk_reader r = { image_read, NULL, BLKS };
	struct fsimage_facts f;
	struct reader *x;
	uint64_t s = 1;

	odd = (struct fsimage_facts){ .blocks = BLKS * 4,
				      .block_shift = 10,
				      .first_data_block = 1,
				      .blocks_per_group = 8,
				      .journal_err = -ENOENT };
	session = answer_many;
	assert_int_equal(reader_open(&x, &r, FS_EXT, 0, &f), 0);
	for (unsigned i = 0; i < 300; i++)
		check_group(x, (uint32_t)rnd_of(&s, MANY_GROUPS / 2) * 2);
	assert_true(many.groups <= many.questions);
	many.questions = 0;
	for (uint32_t nr = 0; nr < MANY_GROUPS; nr++)
		check_group(x, nr);
	assert_true(many.questions < MANY_GROUPS / 4);
	reader_close(x);
	session = NULL;
}

static void *ends(void *ctx)
{
	close(other_fd);
	return ctx;
}

/* If each session dies, only the superblock is known, and no block is free. */
TEST(test_all_die)
{
	const struct blk_reader r = { image_read, NULL, BLKS };
	struct fs_fingerprint fp;
	struct fsinfo info;
	enum blk_use use;
	struct fsmap *m;

	session = ends;
	assert_int_equal(fsinfo_probe(&r, &info), 0);
	assert_int_equal(info.kind, FS_EXT);
	assert_true(info.has_journal && !info.journal_bytes);
	assert_int_equal(fsinfo_fingerprint(&r, &fp), -EOWNERDEAD);
	assert_int_equal(fsinfo_fingerprint_super(&r, &fp), 0);
	assert_int_equal(fp.n_marks, 1);
	assert_int_equal(fp.mark[0].blk, 0);
	assert_int_equal(fsmap_open(&m, &r), -EOWNERDEAD);
	assert_int_equal(fsmap_open_unread(&m, &r), 0);
	assert_false(fsmap_knows(m));
	for (uint64_t b = 0; b < BLKS; b++) {
		assert_int_equal(fsmap_use(m, b, &use), 0);
		assert_int_equal(use, USE_USED);
	}
	fsmap_close(m);
	session = NULL;
}
