/* SPDX-License-Identifier: MIT */
/*
 * Requests of the kernel while the card is away: what RAM has is served as ever, the rest waits for
 * the card without a thread of the servers, and nothing waits for ever. The FUSE file over a view of
 * a simulated card.
 */
#include "test.h"

#include <dirent.h>
#include <linux/falloc.h>

#include "export/fuse.h"
#include "export/fuse_mount.h"
#include "export/parked.h"
#include "export/transport.h"
#include "fuse_janitor.h"
#include "scratch.h"
#include "sim/sim.h"

enum { BLKS = 4096, IN_RAM = 64, READERS = 40, WAIT_MS = 200 };
#define LARGE (256 * KIB)

static struct card *card;
static struct ram_store *store;
static struct view *view;
static struct fuse_export *export;
static int fuse_fd, file_fd;
static unsigned fds_before;

static void fill(uint64_t *block, uint64_t blk)
{
	for (uint64_t i = 0; i < COW_BLK_BYTES / 8; i++)
		block[i] = blk << 20 | i;
}

static void make_view(void)
{
	const struct sim_params params = { .size_bytes = blk_to_bytes(BLKS) };
	struct log_index *index = log_index_empty();
	uint64_t block[COW_BLK_BYTES / 8];

	alarm(600);
	fds_before = count_fds();
	assert_int_equal(sim_new(&card, &params), 0);
	for (uint64_t b = 0; b < BLKS; b++) {
		fill(block, b);
		assert_int_equal(sim_poke(card, blk_to_bytes(b), block, sizeof(block)), 0);
	}
	assert_int_equal(ram_store_open(&store, 64 * MIB), 0);
	assert_int_equal(view_new(&view, store, card, BLKS, index), 0);
	log_index_unref(index);
	for (uint64_t b = 0; b < IN_RAM; b++) {
		fill(block, b);
		assert_int_equal(view_write(view, blk_to_bytes(b), block, sizeof(block)), 0);
	}
	fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	assert_true(fuse_fd >= 0);
}

static void free_view(void)
{
	close(fuse_fd);
	view_free(view);
	ram_store_close(store);
	card_close(card);
	alarm(0);
	assert_int_equal(count_fds(), fds_before);
}

static int setup(void **state)
{
	make_view();
	assert_int_equal(
		fuse_export_start(&export, view, fuse_fd, -1, "cowfs:test", NULL, &file_fd), 0);
	janitor_start(fuse_export_abort_fd(export));
	return 0;
}

static int teardown(void **state)
{
	if (file_fd >= 0)
		close(steal_fd(&file_fd));
	fuse_export_stop(export);
	janitor_end();
	free_view();
	return 0;
}

/* ---- a request of another thread ---- */

enum what { READ, WRITE, PUNCH };

struct request {
	enum what what;
	uint64_t off_bytes;
	size_t len_bytes;
	int fd, error;
	pthread_t thread;
	atomic_bool done;
	char *buf;
};

static void *request_thread(void *arg)
{
	struct request *q = arg;
	off_t off = (off_t)q->off_bytes, len = (off_t)q->len_bytes;
	ssize_t n = q->what == READ    ? pread(q->fd, q->buf, q->len_bytes, off)
		    : q->what == WRITE ? pwrite(q->fd, q->buf, q->len_bytes, off)
		    : fallocate(q->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len) ? -1
											     : len;

	q->error = n == len ? 0 : n < 0 ? errno : -1;
	q->done = true;
	return NULL;
}

static void start(struct request *q, enum what what, uint64_t off_bytes, size_t len_bytes)
{
	*q = (struct request){ .what = what,
			       .off_bytes = off_bytes,
			       .len_bytes = len_bytes,
			       .fd = file_fd,
			       .buf = io_alloc(LARGE) };
	memset(q->buf, 0x5a, LARGE);
	assert_int_equal(pthread_create(&q->thread, NULL, request_thread, q), 0);
}

static int end(struct request *q)
{
	pthread_join(q->thread, NULL);
	free(q->buf);
	return q->error;
}

static void wait_ms(unsigned ms)
{
	usleep(ms * 1000);
}

/* Of this process, with this name. */
static unsigned threads(const char *name)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	unsigned n = 0;

	while ((e = readdir(dir))) {
		char path[300], text[64];

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		n += io_read_text(AT_FDCWD, path, text, sizeof(text)) > 0 && !strcmp(text, name);
	}
	closedir(dir);
	return n;
}

static void wait_ended(const char *name)
{
	while (threads(name))
		wait_ms(5);
}

/* The card is there again. */
static void come_back(void)
{
	assert_true(card_look(card)); /* no request may have asked it yet */
	card_examine(card, true);
	sim_replug(card, false);
	card_back(card);
}

static bool is_card(const char *buf, uint64_t blk, uint64_t blks)
{
	uint64_t block[COW_BLK_BYTES / 8];

	for (uint64_t b = 0; b < blks; b++) {
		fill(block, blk + b);
		if (memcmp(buf + blk_to_bytes(b), block, sizeof(block)))
			return false;
	}
	return true;
}

static void ram_is_served(void)
{
	_cleanup_free_ char *buf = io_alloc(LARGE);

	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(
			pread(file_fd, buf, COW_BLK_BYTES, (off_t)blk_to_bytes(i % IN_RAM)),
			COW_BLK_BYTES);
		assert_true(is_card(buf, i % IN_RAM, 1));
		assert_int_equal(
			pwrite(file_fd, buf, COW_BLK_BYTES, (off_t)blk_to_bytes(i % IN_RAM)),
			COW_BLK_BYTES);
	}
	assert_int_equal(pread(file_fd, buf, LARGE, 0), LARGE);
	assert_true(is_card(buf, 0, IN_RAM));
}

/* ---- */

TEST(test_reads_wait_for_the_card, setup, teardown)
{
	static struct request q[READERS];
	struct view_counters before, after;
	uint64_t reads;

	view_counters(view, &before);
	sim_unplug(card);
	for (unsigned i = 0; i < READERS; i++)
		start(&q[i], READ, blk_to_bytes(100 + 90 * i), i % 8 ? COW_BLK_BYTES : LARGE);
	while (threads("cowfs-parked") != 1)
		wait_ms(WAIT_MS);
	ram_is_served();
	reads = card->account.read_calls;
	for (unsigned i = 0; i < READERS; i++)
		assert_false(q[i].done);
	wait_ms(WAIT_MS);
	assert_int_equal(card->account.read_calls, reads); /* no call, no account */
	come_back();
	for (unsigned i = 0; i < READERS; i++) {
		pthread_join(q[i].thread, NULL);
		assert_int_equal(q[i].error, 0);
		assert_true(is_card(q[i].buf, 100 + 90 * i, q[i].len_bytes / COW_BLK_BYTES));
		free(q[i].buf);
	}
	wait_ended("cowfs-parked");
	view_counters(view, &after);
	assert_int_equal(after.read_errors, 0);
	assert_int_equal(after.read_calls - before.read_calls, READERS + 101);
}

static uint64_t dirty_blks(void)
{
	struct generation_stats active, below;

	view_dirty(view, &active, &below);
	return active.data_blks + active.hole_blks;
}

TEST(test_parts_of_blocks, setup, teardown)
{
	static const struct {
		uint64_t off_bytes;
		size_t len_bytes;
	} w[] = { { 100 * COW_BLK_BYTES + 512, 512 },		     /* inside one block */
		  { 200 * COW_BLK_BYTES + 1024, 2 * COW_BLK_BYTES }, /* two ends */
		  { 300 * COW_BLK_BYTES, COW_BLK_BYTES + 512 },	     /* the last one */
		  { (IN_RAM - 1) * COW_BLK_BYTES + 512, COW_BLK_BYTES } /* the first is in RAM */ };
	static struct request q[ARRAY_SIZE(w)];
	_cleanup_free_ char *want = io_alloc(LARGE), *buf = io_alloc(LARGE);
	uint64_t before = dirty_blks();

	sim_unplug(card);
	for (unsigned i = 0; i < ARRAY_SIZE(w); i++)
		start(&q[i], WRITE, w[i].off_bytes, w[i].len_bytes);
	wait_ms(WAIT_MS);
	for (unsigned i = 0; i < ARRAY_SIZE(w); i++)
		assert_false(q[i].done);
	assert_int_equal(dirty_blks(), before); /* a seal would have nothing of them */
	ram_is_served();
	come_back();
	for (unsigned i = 0; i < ARRAY_SIZE(w); i++) {
		uint64_t blk = w[i].off_bytes / COW_BLK_BYTES,
			 n = w[i].len_bytes / COW_BLK_BYTES + 2;

		assert_int_equal(end(&q[i]), 0);
		for (uint64_t b = 0; b < n; b++)
			fill((uint64_t *)(void *)(want + blk_to_bytes(b)), blk + b);
		memset(want + w[i].off_bytes % COW_BLK_BYTES, 0x5a, w[i].len_bytes);
		assert_int_equal(pread(file_fd, buf, blk_to_bytes(n), (off_t)blk_to_bytes(blk)),
				 blk_to_bytes(n));
		assert_memory_equal(buf, want, blk_to_bytes(n));
	}
}

/* The kernel holds the file's lock meanwhile: no writes. */
TEST(test_part_of_punch, setup, teardown)
{
	static struct request q;
	uint64_t want[COW_BLK_BYTES / 8];
	_cleanup_free_ char *buf = io_alloc(COW_BLK_BYTES);

	sim_unplug(card);
	start(&q, PUNCH, blk_to_bytes(400) + 512, 512);
	wait_ms(WAIT_MS);
	assert_false(q.done);
	assert_int_equal(pread(file_fd, buf, COW_BLK_BYTES, 0), COW_BLK_BYTES);
	come_back();
	assert_int_equal(end(&q), 0);
	fill(want, 400);
	memset((char *)want + 512, 0, 512);
	assert_int_equal(pread(file_fd, buf, COW_BLK_BYTES, (off_t)blk_to_bytes(400)),
			 COW_BLK_BYTES);
	assert_memory_equal(buf, want, COW_BLK_BYTES);
}

static void three(struct request q[3])
{
	start(&q[0], READ, blk_to_bytes(1000), COW_BLK_BYTES);
	start(&q[1], WRITE, blk_to_bytes(1001) + 512, 512);
	start(&q[2], PUNCH, blk_to_bytes(1002) + 512, 512);
	wait_ms(WAIT_MS);
	for (unsigned i = 0; i < 3; i++)
		assert_false(q[i].done);
}

TEST(test_given_up, setup, teardown)
{
	_cleanup_free_ char *buf = io_alloc(COW_BLK_BYTES);
	static struct request q[3];

	sim_unplug(card);
	three(q);
	card_give_up(card);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(end(&q[i]), EIO);
	ram_is_served();
	assert_int_equal(pread(file_fd, buf, COW_BLK_BYTES, (off_t)blk_to_bytes(1000)), -1);
	assert_int_equal(errno, EIO);
	come_back();
	assert_int_equal(pread(file_fd, buf, COW_BLK_BYTES, (off_t)blk_to_bytes(1000)),
			 COW_BLK_BYTES);
	assert_true(is_card(buf, 1000, 1));
}

/* What holds the file gets errors, and can let go of it. */
TEST(test_refused, setup, teardown)
{
	static struct request q[3];

	sim_unplug(card);
	three(q);
	fuse_export_refuse(export, true);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(end(&q[i]), EIO);
	start(&q[0], READ, blk_to_bytes(1000), COW_BLK_BYTES);
	assert_int_equal(end(&q[0]), EIO);
	fuse_export_refuse(export, false);
	three(q);
	come_back();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(end(&q[i]), 0);
}

static int image_read(void *ctx, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	return view_read(ctx, off_bytes, buf, len_bytes);
}

static int image_write(void *ctx, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	return view_write(ctx, off_bytes, buf, len_bytes);
}

static void make_image(void)
{
	struct fuse_image image = { .volume_blks = BLKS, .read = image_read, .write = image_write };
	int mount_fd, abort_fd;

	make_view();
	assert_int_equal(fuse_mount_create(fuse_fd, &mount_fd), 0);
	abort_fd = fuse_mount_open_abort(mount_fd);
	assert_true(abort_fd >= 0);
	janitor_start(abort_fd);
	close(abort_fd);
	image.ctx = view;
	assert_int_equal(fuse_export_image(&export, &image, fuse_fd), 0);
	file_fd = fuse_mount_open_file(mount_fd, "image");
	assert_true(file_fd >= 0);
	close(mount_fd);
}

/* An image whose servers are two, and whose file stays in use. */
TEST(test_image)
{
	static struct request q[4];

	make_image();
	sim_unplug(card);
	for (unsigned i = 0; i < 4; i++)
		start(&q[i], i % 2 ? WRITE : READ, blk_to_bytes(500 + i) + 512, 512);
	wait_ms(WAIT_MS);
	ram_is_served();
	come_back();
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(end(&q[i]), 0);
	sim_unplug(card);
	for (unsigned i = 0; i < 4; i++)
		start(&q[i], READ, blk_to_bytes(600 + i), COW_BLK_BYTES);
	wait_ms(5 * WAIT_MS); /* what is not parked by now would wait for ever */
	for (unsigned i = 0; i < 4; i++)
		assert_false(q[i].done);
	fuse_export_end(export);
	for (unsigned i = 0; i < 4; i++)
		assert_true(end(&q[i]) > 0);
	close(steal_fd(&file_fd));
	janitor_end();
	free_view();
}

/* Something looks at the disk and waits for the card: the disk can be detached nevertheless, but not
 * below one who claims it. */
TEST(test_detach)
{
	struct transport_params p = { .label = "cowfs-test:parked" };
	struct transport *t;
	static struct request q[2];
	char why[200];
	int fd, claim;

	make_view();
	p.kernel_fd = fuse_fd;
	p.view = view;
	assert_int_equal(transport_start(&t, &p, why, sizeof(why)), 0);
	janitor_start(transport_abort_fd(t));
	fd = open(transport_disk(t)->path, O_RDWR | O_DIRECT | O_CLOEXEC);
	claim = open(transport_disk(t)->path, O_RDONLY | O_EXCL | O_CLOEXEC);
	assert_true(fd >= 0 && claim >= 0);
	sim_unplug(card);
	file_fd = fd;
	start(&q[0], READ, blk_to_bytes(700), COW_BLK_BYTES);
	start(&q[1], WRITE, blk_to_bytes(800) + 512, 512);
	wait_ms(WAIT_MS);
	ram_is_served();
	assert_int_equal(transport_detach(t), -EBUSY);
	wait_ms(WAIT_MS);
	for (unsigned i = 0; i < 2; i++)
		assert_false(q[i].done);
	close(claim);
	(void)!transport_detach(t); /* fd is open */
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(end(&q[i]), EIO);
	close(fd);
	assert_int_equal(transport_detach(t), 0);
	transport_stop(t);
	janitor_end();
	free_view();
}

/* ---- the list alone ---- */

static atomic_bool away;
static atomic_uint tries, answered, failures;

static int serve(void *ctx, const struct parked_request *r, void *buf)
{
	tries++;
	if (away)
		return -ENOMEDIUM;
	assert_int_equal(*(const unsigned *)(const void *)r->data, r->off_bytes);
	memset(buf, 1, COW_BLK_BYTES);
	return 0;
}

static void answer(void *ctx, const struct parked_request *r, void *buf, int result)
{
	answered++;
	failures += result < 0;
}

static const struct parked_ops parked_ops = { COW_BLK_BYTES, serve, answer };

static void *park_many(void *ctx)
{
	for (unsigned i = 0; i < PARKED_MAX + 2; i++)
		parked_add(ctx, NULL, PARKED_WRITE, i, sizeof(i), &i);
	return NULL;
}

TEST(test_list)
{
	struct parked *p;
	pthread_t thread;
	unsigned i = 7;

	alarm(600);
	assert_int_equal(parked_new(&p, &parked_ops, NULL), 0);
	assert_int_equal(threads("cowfs-parked"), 0);
	away = true;
	parked_add(p, NULL, PARKED_WRITE, 7, sizeof(i), &i);
	i = 8; /* it has a copy */
	while (tries < 2)
		wait_ms(500);
	assert_in_range(tries, 2, 10000); /* a loop makes millions */
	assert_int_equal(pthread_create(&thread, NULL, park_many, p), 0);
	wait_ms(500);
	assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY); /* too many */
	assert_int_equal(answered, 0);
	away = false;
	pthread_join(thread, NULL);
	wait_ended("cowfs-parked");
	assert_int_equal(answered, PARKED_MAX + 3);
	assert_int_equal(failures, 0);
	away = true;
	parked_add(p, NULL, PARKED_WRITE, 8, sizeof(i), &i);
	parked_free(p);
	assert_int_equal(answered, PARKED_MAX + 4);
	assert_int_equal(failures, 1);
	alarm(0);
}

TEST_GROUP_OF_ROOT(NULL, NULL)
