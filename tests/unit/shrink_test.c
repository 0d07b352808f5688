/* SPDX-License-Identifier: MIT */
/*
 * The atomic shrink on a simulated card: the power is cut at every single write and flush, and again while the cut is
 * being made good. Afterwards each block that the old or the new file system uses is the one that it should be.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/io.h"
#include "card/sim.h"
#include "commit/fsinfo.h"
#include "volume/shrink.h"

#define CARD_BYTES (32 * MIB)
#define CARD_BLKS (CARD_BYTES / COW_BLK_BYTES)

static char dir[] = "/tmp/cowfs-shrink.XXXXXX";

struct image {
	uint8_t *data;
	uint64_t fs_bytes;
};

struct scene {
	struct card *card; /* with the old image on it */
	struct image old, new;
};

static void sh(const char *fmt, ...) PRINTF(1, 2);
static void sh(const char *fmt, ...)
{
	char cmd[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	if (system(cmd) != 0)
		fail_msg("%s", cmd);
}

/* ---- images ---- */

static int read_image(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	memcpy(buf, ((struct image *)ctx)->data + blk_to_bytes(blk), blk_to_bytes(blks));
	return 0;
}

static struct blk_reader image_reader(struct image *im)
{
	return (struct blk_reader){ .read = read_image, .ctx = im, .volume_blks = CARD_BLKS };
}

static bool next_run(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks, enum blk_state *state)
{
	(void)ctx;
	*ret_blks = *blk < CARD_BLKS ? min_u64(max_blks, CARD_BLKS - *blk) : 0;
	*state = BLK_DATA;
	return *ret_blks > 0;
}

static void load(struct image *im, const char *name)
{
	struct blk_reader r = image_reader(im);
	struct fsinfo fs;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	im->data = io_alloc(CARD_BYTES);
	memset(im->data, 0, CARD_BYTES);
	assert_true(fd >= 0 && read(fd, im->data, CARD_BYTES) > 0);
	close(fd);
	assert_int_equal(fsinfo_probe(&r, &fs), 0);
	im->fs_bytes = fs.size_bytes;
}

static void make_scene(struct scene *s, const char *mkfs, const char *files, const char *last_block, const char *size,
		       int journal_mib)
{
	const struct sim_params p = { .size_bytes = CARD_BYTES, .erase_block_bytes = 64 * KIB };

	sh("rm -rf %s/* && mkdir %s/src && cd %s/src && for i in %s; do mkdir -p d$i && head -c 900000 /dev/urandom >d$i/f; done",
	   dir, dir, dir, files);
	sh("cd %s && truncate -s 32M old && mke2fs -q -F -E nodiscard,lazy_itable_init=0 %s -d src old", dir, mkfs);
	/* holes in front, so that what is in the tail can move there */
	sh("cd %s && for i in 1 3 5 7 9 11; do echo rm d$i/f; done | debugfs -w old >/dev/null 2>&1; e2fsck -fp old >/dev/null",
	   dir);
	if (last_block) /* a file there, made by hand; the counts are wrong then, which e2fsck corrects */
		sh("cd %s && printf 'write /dev/null last\nsif last block[0] %s\nsif last blocks 2\nsif last size 1024\nsetb %s\n' | "
		   "debugfs -w old >/dev/null 2>&1; e2fsck -fp old >/dev/null; e2fsck -fn old >/dev/null 2>&1", dir, last_block,
		   last_block);
	sh("cd %s && cp old new && tune2fs -O ^has_journal new >/dev/null && resize2fs -f new %s >/dev/null 2>&1 && "
	   "tune2fs -J size=%d new >/dev/null && e2fsck -fp new >/dev/null", dir, size, journal_mib);
	load(&s->old, "old");
	load(&s->new, "new");
	assert_true(s->new.fs_bytes < s->old.fs_bytes);
	assert_int_equal(sim_new(&s->card, &p), 0);
	assert_int_equal(sim_poke(s->card, 0, s->old.data, CARD_BYTES), 0);
}

static void free_scene(struct scene *s)
{
	card_close(s->card);
	free(s->old.data);
	free(s->new.data);
}

/* Every block that the image uses is on the card as it is in the image. */
static bool card_holds(struct card *c, struct image *im)
{
	struct blk_reader r = image_reader(im);
	uint8_t buf[COW_BLK_BYTES];
	struct fsmap *m;
	bool same = true;

	assert_int_equal(fsmap_open(&m, &r), 0);
	for (uint64_t blk = 0; same && blk < im->fs_bytes / COW_BLK_BYTES; blk++) {
		enum blk_use use;

		assert_int_equal(fsmap_use(m, blk, &use), 0);
		assert_int_equal(sim_peek(c, blk_to_bytes(blk), buf, sizeof(buf)), 0);
		same = use == USE_FREE || !memcmp(buf, im->data + blk_to_bytes(blk), sizeof(buf));
	}
	assert_int_equal(fsmap_alarms(m), 0);
	fsmap_close(m);
	return same;
}

static const struct commit_options opt = { .cause = CAUSE_MANUAL };

static int do_shrink(struct scene *s, struct card *c, struct shrink_report *rep)
{
	struct shrink_image img = { .ctx = &s->new, .fs_bytes = s->new.fs_bytes, .next = next_run, .read = read_image };

	return shrink_commit(c, &img, &opt, rep);
}

static int probe(struct card *c, struct log_super *super)
{
	struct image im = { .data = io_alloc(CARD_BYTES) };
	struct blk_reader r = image_reader(&im);
	struct fsinfo fs;
	unsigned trouble;

	assert_int_equal(sim_peek(c, 0, im.data, 128 * KIB), 0);
	assert_int_equal(fsinfo_probe(&r, &fs), 0);
	free(im.data);
	return super_read(c, fs.size_bytes, super, &trouble);
}

/* What attach and recover do after a cut. cut: and the power goes again at that operation. 1 new, 0 old */
static int go_on(struct card *c, uint64_t cut, uint64_t seed)
{
	struct log_super super;
	struct shrink_report rep;
	bool found = false;
	int r = probe(c, &super);

	if (r == -ENOENT || r == -EBADMSG)
		return 0;
	assert_int_equal(r, 0);
	if (super.state != SUPER_PENDING)
		return 1;
	sim_cut_at(c, cut);
	r = shrink_finish(c, &super, 0, &opt, &found, &rep);
	if (cut && sim_is_dead(c)) {
		sim_seed(c, seed);
		sim_power_cycle(c, NULL, NULL);
		return go_on(c, 0, 0);
	}
	sim_cut_at(c, 0);
	if (r < 0)
		fail_msg("shrink_finish: %d %s", r, rep.why);
	return found;
}

static void check_new_log(struct card *c)
{
	struct log_super super;
	struct log_open_report rep;
	struct log *log;

	assert_int_equal(probe(c, &super), 0);
	assert_int_equal(super.state, SUPER_VIRGIN);
	assert_int_equal(log_open(&log, c, c, &super, 0, &rep), 0);
	assert_int_equal(rep.state, LOG_EMPTY);
	log_close(log);
}

static void every_cut(struct scene *s)
{
	uint64_t ops, olds = 0, news = 0, again = 0;
	struct shrink_report rep, whole;
	struct card *c;

	assert_int_equal(sim_clone(&c, s->card), 0);
	if (do_shrink(s, c, &whole) < 0)
		fail_msg("%s", whole.why);
	ops = sim_ops(c);
	assert_true(card_holds(c, &s->new));
	check_new_log(c);
	card_close(c);
	for (uint64_t n = 1; n <= ops; n++)
		for (uint64_t seed = 1; seed <= 3; seed++) {
			int new;

			assert_int_equal(sim_clone(&c, s->card), 0);
			sim_cut_at(c, n);
			assert_true(do_shrink(s, c, &rep) < 0);
			sim_seed(c, n * 16 + seed);
			sim_power_cycle(c, NULL, NULL);
			/* a second cut, somewhere in what goes on */
			new = go_on(c, seed == 1 ? 0 : 1 + (n * 7 + seed * 3) % 24, n + seed);
			if (rep.committed && !new)
				fail_msg("cut %llu/%llu: a commit that was reported is gone", (unsigned long long)n,
					 (unsigned long long)seed);
			if (!card_holds(c, new ? &s->new : &s->old))
				fail_msg("cut %llu/%llu: the %s file system is damaged", (unsigned long long)n,
					 (unsigned long long)seed, new ? "new" : "old");
			if (new)
				check_new_log(c);
			*(new ? &news : &olds) += 1;
			/* what was cut off can be done again */
			if (!new && n % 8 == 0) {
				assert_int_equal(do_shrink(s, c, &rep), 0);
				assert_true(card_holds(c, &s->new));
				check_new_log(c);
				again++;
			}
			card_close(c);
		}
	print_message("%llu operations, %llu cuts: %llu old, %llu new; done again %llu; ring %llu KiB, %llu direct, %llu logged, "
		      "%llu spilled, %llu zero\n", (unsigned long long)ops, (unsigned long long)(ops * 3),
		      (unsigned long long)olds, (unsigned long long)news, (unsigned long long)again,
		      (unsigned long long)(whole.ring_bytes / KIB), (unsigned long long)whole.commit.direct,
		      (unsigned long long)whole.commit.logged, (unsigned long long)whole.commit.spilled,
		      (unsigned long long)whole.commit.zero);
	assert_true(olds > 20 && news > 20);
}

/* The tail is free: the ring lies there. */
static void test_free_tail(void **state)
{
	struct scene s;

	(void)state;
	make_scene(&s, "-t ext4 -b 4096 -J size=8", "`seq 12`", NULL, "28M", 4);
	every_cut(&s);
	free_scene(&s);
}

/* Blocks of 1 KiB, eight groups; files up to the end, which have to move; the last block is in use. */
static void test_full_tail(void **state)
{
	struct scene s;
	enum blk_use use;
	struct fsmap *m;
	struct blk_reader r;

	(void)state;
	make_scene(&s, "-t ext3 -b 1024 -m 0 -J size=4", "`seq 25`", "32767", "26M", 3);
	r = image_reader(&s.old);
	assert_int_equal(fsmap_open(&m, &r), 0);
	assert_int_equal(fsmap_use(m, CARD_BLKS - 1, &use), 0);
	assert_int_equal(use, USE_USED);
	fsmap_close(m);
	every_cut(&s);
	free_scene(&s);
}

static int mkdir_all(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_all(void **state)
{
	(void)state;
	sh("rm -rf %s", dir);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_free_tail),
		cmocka_unit_test(test_full_tail),
	};

	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	return cmocka_run_group_tests(tests, mkdir_all, remove_all);
}
