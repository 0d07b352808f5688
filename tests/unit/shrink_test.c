/* SPDX-License-Identifier: MIT */
/*
 * The atomic shrink on a simulated card: the power is cut at every single write and flush, and
 * again while the shrink is completed. Afterwards each block that the old or the new file system
 * uses must have the content of that file system.
 */
#include "test.h"
#include "sim/sim.h"
#include "fs/guard.h"
#include "fs/shrink_mark.h"
#include "log/codec.h"
#include "commit/shrink.h"
#include "workdir.h"

#define CARD_BYTES (32 * MIB)
#define CARD_BLKS (CARD_BYTES / COW_BLK_BYTES)

struct image {
	uint8_t *data;
	uint64_t fs_bytes;
};

struct scene {
	struct card *card; /* with the old image on it */
	struct image old, new;
};

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

static bool next_run(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		     enum blk_state *state)
{
	*ret_blks = *blk < CARD_BLKS ? min_u64(max_blks, CARD_BLKS - *blk) : 0;
	*state = BLK_DATA;
	return *ret_blks > 0;
}

static void load(struct image *im, const char *name)
{
	struct blk_reader r = image_reader(im);
	struct fsinfo fs;
	char path[128];
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

static void make_scene(struct scene *s, const char *mkfs, const char *files, const char *last_block,
		       const char *size, int journal_mib)
{
	const struct sim_params p = { .size_bytes = CARD_BYTES, .erase_block_bytes = 64 * KIB };

	assert_int_equal(
		sh("rm -rf src old new; mkdir src && cd src && for i in %s; do mkdir -p d$i && "
		   "head -c 900000 /dev/urandom >d$i/f; done",
		   files),
		0);
	assert_int_equal(
		sh("truncate -s 32M old && mke2fs -q -F -E nodiscard,lazy_itable_init=0 %s -d src old",
		   mkfs),
		0);
	/* holes in front, so that the content of the tail can move there */
	assert_int_equal(
		sh("for i in 1 3 5 7 9 11; do echo rm d$i/f; done | debugfs -w old; e2fsck -fp old"),
		0);
	/* a file there, made by hand; its counts are wrong, and e2fsck corrects them */
	if (last_block)
		assert_int_equal(
			sh("printf 'write /dev/null last\nsif last block[0] %s\nsif last blocks 2\nsif last size 1024\nsetb %s\n' | "
			   "debugfs -w old; e2fsck -fp old; e2fsck -fn old",
			   last_block, last_block),
			0);
	assert_int_equal(sh("cp old new && tune2fs -O ^has_journal new && resize2fs -f new %s && "
			    "tune2fs -J size=%d new && e2fsck -fp new",
			    size, journal_mib),
			 0);
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

/* Every block that the image uses has the image's content on the card. */
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
	struct shrink_image img = {
		.ctx = &s->new, .fs_bytes = s->new.fs_bytes, .next = next_run, .read = read_image
	};

	return shrink_commit(c, &img, &opt, rep);
}

static int probe(struct card *c, struct log_super *super)
{
	struct image im = { .data = calloc(1, CARD_BYTES) }; /* pages that nobody touches */
	struct blk_reader r = image_reader(&im);
	struct fsinfo fs;
	unsigned trouble;

	assert_non_null(im.data);
	assert_int_equal(sim_peek(c, 0, im.data, 128 * KIB), 0);
	assert_int_equal(fsinfo_probe(&r, &fs), 0);
	free(im.data);
	return super_find(c, c, &fs, 0, super, &trouble);
}

struct tally {
	uint64_t cuts, olds, news, again, guarded;
};

/* Nothing mounts the base read-write but one that is whole: the old file system, which may have tags
 * already, or the new one. */
static void check_whole_or_guarded(struct scene *s, struct card *c, struct tally *t)
{
	const struct shrink_marks none = { 0 };
	_cleanup_free_ uint8_t *blk0 = io_alloc(COW_BLK_BYTES);
	struct card *bare;

	assert_int_equal(sim_peek(c, 0, blk0, COW_BLK_BYTES), 0);
	if (guard_is(blk0, NULL) || !shrink_mark_is_ext(blk0)) {
		t->guarded++;
		return;
	}
	shrink_mark_put(blk0, &none);
	assert_int_equal(sim_clone(&bare, c), 0);
	assert_int_equal(sim_poke(bare, 0, blk0, COW_BLK_BYTES), 0);
	if (!card_holds(bare, &s->old) && !card_holds(bare, &s->new))
		fail_msg("neither whole nor guarded");
	card_close(bare);
}

/* The steps of attach and release after a cut. cut: the power is cut again at that operation. 1
 * new, 0 old */
static int go_on(struct scene *s, struct tally *t, struct card *c, uint64_t cut, uint64_t seed)
{
	struct log_super super;
	struct shrink_report rep;
	int r = probe(c, &super);

	check_whole_or_guarded(s, c, t);
	if (r == -ENOENT)
		return 0;
	assert_int_equal(r, 0);
	if (super.state != SUPER_PENDING)
		return 1;
	sim_cut_at(c, cut);
	r = shrink_finish(c, &super, 0, &opt, &rep);
	if (cut && sim_is_dead(c)) {
		sim_seed(c, seed);
		sim_power_cycle(c, NULL, NULL);
		return go_on(s, t, c, 0, 0);
	}
	sim_cut_at(c, 0);
	if (r < 0)
		fail_msg("shrink_finish: %d %s", r, rep.why);
	return 1;
}

static void check_new_log(struct card *c)
{
	struct log_super super;
	struct log_open_report rep;
	struct log *log;

	assert_int_equal(probe(c, &super), 0);
	assert_int_equal(super.state, SUPER_VIRGIN);
	assert_int_equal(log_open(&log, c, c, &super, 0, NULL, &rep), 0);
	assert_int_equal(rep.state, LOG_EMPTY);
	log_close(log);
}

/* Fate of the unflushed writes: by the seed in the first variants, the same for all writes in the
 * others. */
enum { BY_SEED = 3, ALIKE = 3, TORN = 3, VARIANTS = BY_SEED + ALIKE + TORN };

static enum sim_fate alike(void *arg, size_t i)
{
	static const enum sim_fate fates[] = { SIM_DONE, SIM_DROPPED, SIM_GARBAGE };
	unsigned v = *(unsigned *)arg - BY_SEED;

	return v < ALIKE ? fates[v] : SIM_TORN;
}

static void one_cut(struct scene *s, uint64_t n, unsigned v, struct tally *t, bool *ret_all_alike)
{
	struct shrink_report rep;
	struct card *c;
	int new;

	assert_int_equal(sim_clone(&c, s->card), 0);
	sim_cut_at(c, n);
	assert_true(do_shrink(s, c, &rep) < 0);
	*ret_all_alike = !sim_pending(c);
	sim_seed(c, n * 16 + v + 1);
	sim_power_cycle(c, v < BY_SEED ? NULL : alike, &v);
	/* a second cut, somewhere in the completion */
	new = go_on(s, t, c, v == 0 || v == BY_SEED ? 0 : 1 + (n * 7 + v * 3) % 24, n + v);
	if (rep.committed && !new)
		fail_msg("cut %llu/%u: a commit that was reported is gone", (unsigned long long)n,
			 v);
	if (!card_holds(c, new ? &s->new : &s->old))
		fail_msg("cut %llu/%u: the %s file system is damaged", (unsigned long long)n, v,
			 new ? "new" : "old");
	if (new)
		check_new_log(c);
	t->cuts++;
	*(new ? &t->news : &t->olds) += 1;
	/* the cut shrink can be repeated */
	if (!new &&n % 8 == 0 && v < BY_SEED) {
		assert_int_equal(do_shrink(s, c, &rep), 0);
		assert_true(card_holds(c, &s->new));
		check_new_log(c);
		t->again++;
	}
	card_close(c);
}

static void every_cut(struct scene *s)
{
	struct shrink_report whole;
	struct tally t = { 0 };
	bool all_alike;
	struct card *c;
	uint64_t ops;

	assert_int_equal(sim_clone(&c, s->card), 0);
	if (do_shrink(s, c, &whole) < 0)
		fail_msg("%s", whole.why);
	ops = sim_ops(c);
	assert_true(card_holds(c, &s->new));
	check_new_log(c);
	card_close(c);
	for (uint64_t n = 1; n <= ops; n++)
		for (unsigned v = 0; v < VARIANTS; v++) {
			one_cut(s, n, v, &t, &all_alike);
			if (all_alike && v >= BY_SEED)
				break;
		}
	print_message(
		"%llu operations, %llu cuts, %llu guarded: %llu old, %llu new; done again %llu; %llu direct, %llu logged, "
		"%llu spilled, %llu zero\n",
		(unsigned long long)ops, (unsigned long long)t.cuts, (unsigned long long)t.guarded,
		(unsigned long long)t.olds, (unsigned long long)t.news, (unsigned long long)t.again,
		(unsigned long long)whole.commit.direct, (unsigned long long)whole.commit.logged,
		(unsigned long long)whole.commit.spilled, (unsigned long long)whole.commit.zero);
	assert_true(t.olds > 20 && t.news > 20);
}

/* ---- content that a file may hold ---- */

enum { FORGED_RING_BLKS = LOG_MIN_SEGMENTS * LOG_MIN_SEG_BYTES / COW_BLK_BYTES, VICTIM_BLK = 3000 };

static struct log_super forged_super(uint64_t fs_bytes, uint64_t super_off, uint64_t ring_off)
{
	return (struct log_super){ .version = LOG_FORMAT_VERSION,
				   .incompat = LOG_INCOMPAT_ESCAPED,
				   .state = SUPER_PENDING,
				   .revision = UINT32_MAX,
				   .fs_bytes = fs_bytes,
				   .base_bytes = CARD_BYTES,
				   .log_bytes = CARD_BYTES,
				   .copy_off_bytes = { fs_bytes, super_off },
				   .ring_off_bytes = ring_off,
				   .seg_bytes = LOG_MIN_SEG_BYTES,
				   .seg_count = LOG_MIN_SEGMENTS,
				   .erase_block_bytes = LOG_MIN_SEG_BYTES };
}

/* A user who knows everything: the log's own code writes the superblock and a ring into blocks of
 * this user. */
static void forge_pending(struct card *c, const struct log_super *s)
{
	_cleanup_free_ uint8_t *evil = io_alloc(COW_BLK_BYTES), *blk0 = io_alloc(COW_BLK_BYTES);
	struct log_open_report rep;
	struct log_index *ix;
	struct log *log;

	memset(evil, 0xe1, COW_BLK_BYTES);
	assert_int_equal(sim_peek(c, 0, blk0, COW_BLK_BYTES), 0);
	assert_int_equal(log_open(&log, c, c, s, LOG_FRESH, NULL, &rep), 0);
	assert_int_equal(card_set_writable(c, true), 0);
	assert_int_equal(log_prepare(log), 0);
	assert_int_equal(log_begin(log), 0);
	assert_int_equal(log_add_logged(log, 0, 1, blk0), 0);
	assert_int_equal(log_add_logged(log, VICTIM_BLK, 1, evil), 0);
	assert_int_equal(log_end(log, CAUSE_MANUAL, 0, &ix), 0);
	assert_int_equal(card_set_writable(c, false), 0);
	log_index_unref(ix);
	log_close(log);
}

static int find(struct card *c, struct log_super *super, unsigned *trouble)
{
	struct image im = { .data = io_alloc(CARD_BYTES) };
	struct blk_reader r = image_reader(&im);
	struct fsinfo fs;

	assert_int_equal(sim_peek(c, 0, im.data, CARD_BYTES), 0);
	assert_int_equal(fsinfo_probe(&r, &fs), 0);
	free(im.data);
	return super_find(c, c, &fs, 0, super, trouble);
}

/* In each place, in a used block or a free one: no file system vouches for it, and it blocks
 * nothing. */
TEST(test_forged_pending)
{
	struct log_super super, forged;
	struct shrink_report rep;
	unsigned trouble, n = 0;
	struct scene s;
	struct card *c;
	uint64_t off;

	make_scene(&s, "-t ext4 -b 4096 -J size=8", "`seq 12`", NULL, "28M", 4);
	for (unsigned i = 0; (off = super_pending_off(s.card, i)); i++) {
		if (off < 16 * MIB)
			continue;
		for (uint64_t ring = 17 * MIB; ring < CARD_BYTES; ring += 5 * MIB + 8192) {
			forged = forged_super(s.new.fs_bytes, off, ring);
			assert_int_equal(sim_clone(&c, s.card), 0);
			forge_pending(c, &forged);
			assert_int_equal(find(c, &super, &trouble), -ENOENT);
			assert_int_equal(trouble, SUPER_CUT_OFF);
			if (!n++) {
				assert_int_equal(do_shrink(&s, c, &rep), 0);
				check_new_log(c);
			}
			card_close(c);
		}
	}
	print_message("%u forgeries\n", n);
	assert_true(n > 20);
	free_scene(&s);
}

/* Other states of it, in all places of the file system: none is accepted as a log, and none counts
 * as damage that blocks anything. */
TEST(test_forged_others)
{
	struct log_super super, forged;
	unsigned trouble;
	struct scene s;
	struct card *c;
	uint64_t off;

	make_scene(&s, "-t ext4 -b 4096 -J size=8", "`seq 12`", NULL, "28M", 4);
	for (unsigned i = 0; (off = super_pending_off(s.card, i)); i++)
		for (int kind = 0; kind < 6 && off >= MIB; kind++) {
			_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
			int r;

			forged = forged_super(16 * MIB, off, 17 * MIB);
			forged.state = kind == 0 ? SUPER_VIRGIN : SUPER_LIVE;
			if (kind == 2 || kind == 3)
				forged.external = 1;
			if (kind == 3)
				forged.copy_off_bytes[0] = off;
			if (kind == 4)
				forged.version++;
			memset(blk, 0, COW_BLK_BYTES);
			codec_put_super(blk, &forged);
			if (kind == 5)
				blk[100] ^= 1;
			assert_int_equal(sim_clone(&c, s.card), 0);
			assert_int_equal(sim_poke(c, off, blk, COW_BLK_BYTES), 0);
			r = find(c, &super, &trouble);
			/* at the end of the device, it may say that it is void, which is true */
			assert_true(r == -ENOENT || (r == -ESTALE && i == 0));
			card_close(c);
		}
	free_scene(&s);
}

/*
 * A shrink is cut off with its tags in place, and the file system is mounted elsewhere: then the
 * tags vouch for nothing, neither for its own log nor for one that knows the present home content.
 */
TEST(test_stale_tags)
{
	_cleanup_free_ uint8_t *blk0 = io_alloc(COW_BLK_BYTES);
	struct log_open_report opened;
	struct log_super super, forged;
	struct shrink_report rep;
	struct shrink_marks tags;
	unsigned trouble;
	struct scene s;
	struct card *c;
	struct log *log;
	uint64_t n = 0;

	make_scene(&s, "-t ext4 -b 4096 -J size=8", "`seq 12`", NULL, "28M", 4);
	do {
		assert_int_equal(sim_clone(&c, s.card), 0);
		sim_cut_at(c, ++n);
		assert_true(do_shrink(&s, c, &rep) < 0);
		sim_power_cycle(c, NULL, NULL);
	} while (find(c, &super, &trouble) && (card_close(c), true));
	assert_int_equal(super.state, SUPER_PENDING);
	assert_int_equal(sim_peek(c, 0, blk0, COW_BLK_BYTES), 0);
	assert_int_equal(shrink_mark_look(blk0, super.ring_uuid), SHRINK_MARK_MATCH);
	/* s_mtime, and its checksum */
	tags = shrink_mark_get(blk0);
	blk0[1024 + 0x2c] ^= 1;
	shrink_mark_put(blk0, &tags);
	assert_int_equal(shrink_mark_look(blk0, super.ring_uuid), SHRINK_MARK_STALE);
	assert_int_equal(sim_poke(c, 0, blk0, COW_BLK_BYTES), 0);
	for (int forge = 0; forge < 2; forge++) {
		if (forge) {
			assert_int_equal(shrink_forget(c, &super), 0);
			forged = forged_super(s.new.fs_bytes, super.copy_off_bytes[1], 17 * MIB);
			forge_pending(c, &forged);
		}
		assert_int_equal(find(c, &super, &trouble), 0);
		assert_int_equal(super.state, SUPER_PENDING);
		assert_int_equal(log_open(&log, c, c, &super, 0, NULL, &opened), 0);
		assert_int_equal(opened.state, LOG_FOREIGN);
		log_close(log);
		assert_int_equal(shrink_finish(c, &super, 0, &opt, &rep), -ESTALE);
	}
	card_close(c);
	free_scene(&s);
}

/* The tail is free: the ring lies there. */
TEST(test_free_tail)
{
	struct scene s;

	make_scene(&s, "-t ext4 -b 4096 -J size=8", "`seq 12`", NULL, "28M", 4);
	every_cut(&s);
	free_scene(&s);
}

/* Blocks of 1 KiB, eight groups; files up to the end, which must move; the last block is in use. */
TEST(test_full_tail)
{
	struct scene s;
	enum blk_use use;
	struct fsmap *m;
	struct blk_reader r;

	make_scene(&s, "-t ext3 -b 1024 -m 0 -J size=4", "`seq 25`", "32767", "26M", 3);
	r = image_reader(&s.old);
	assert_int_equal(fsmap_open(&m, &r), 0);
	assert_int_equal(fsmap_use(m, CARD_BLKS - 1, &use), 0);
	assert_int_equal(use, USE_USED);
	fsmap_close(m);
	every_cut(&s);
	free_scene(&s);
}

/*
 * A log in use whose checkpoint left garbage instead of the superblock: it is found, whatever a
 * file contains. A device that now has other content has no shrink under way.
 */
TEST(test_garbage_home)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	struct log_super super, forged;
	struct log_open_report opened;
	struct shrink_report rep;
	unsigned trouble;
	struct scene s;
	struct card *c;
	struct log *log;

	make_scene(&s, "-t ext4 -b 4096 -J size=8", "`seq 12`", NULL, "28M", 4);
	assert_int_equal(sim_clone(&c, s.card), 0);
	assert_int_equal(do_shrink(&s, c, &rep), 0);
	assert_int_equal(find(c, &super, &trouble), 0);
	assert_int_equal(log_open(&log, c, c, &super, 0, NULL, &opened), 0);
	assert_int_equal(card_set_writable(c, true), 0);
	assert_int_equal(log_prepare(log), 0);
	assert_int_equal(card_set_writable(c, false), 0);
	log_close(log);
	forged = forged_super(16 * MIB, CARD_BYTES - 8 * MIB, 17 * MIB);
	forge_pending(c, &forged);
	memset(blk, 0x5a, COW_BLK_BYTES);
	assert_int_equal(sim_poke(c, 0, blk, COW_BLK_BYTES), 0);
	assert_int_equal(find(c, &super, &trouble), 0);
	assert_int_equal(super.state, SUPER_LIVE);
	card_close(c);
	/* LUKS, as cryptsetup writes it */
	assert_int_equal(sim_clone(&c, s.card), 0);
	forge_pending(c, &forged);
	memset(blk, 0, COW_BLK_BYTES);
	memcpy(blk, "LUKS\xba\xbe\0\1aes", 11);
	memcpy(blk + 168, "12345678-1234-1234-1234-123456789012", 36);
	assert_int_equal(sim_poke(c, 0, blk, COW_BLK_BYTES), 0);
	assert_int_equal(find(c, &super, &trouble), -ENOENT);
	card_close(c);
	free_scene(&s);
}

static int mkdir_all(void **state)
{
	return workdir_new("shrink");
}

int main(void)
{
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	return tests_run(mkdir_all, workdir_remove);
}
