// SPDX-License-Identifier: MIT
/*
 * btrfs_space against images that mkfs.btrfs made and the kernel filled.
 *
 * The oracle is the list of chunks and extents that `btrfs inspect-internal dump-tree` prints,
 * compared for every unit of the image. Then damage: it makes an image, or a part of it, "not
 * known" or "used", and never "free". The same with log trees. As root.
 */
#include "test.h"
#include "base/crc32c.h"
#include "fs/btrfs_space.h"
#include "image.h"

#define SUPER 65536
#define WINDOW 32768 /* units */

static void make_sure(const char *fmt, ...) PRINTF(1, 2);
static void make_sure(const char *fmt, ...)
{
	char cmd[512];
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = vsh("set -e; ", fmt, ap);
	va_end(ap);
	if (r) {
		snprintf(cmd, sizeof(cmd), "mountpoint -q %s/m && umount %s/m; tail %s/log >&2",
			 dir, dir, dir);
		(void)!system(cmd);
		fail_msg("%s", fmt);
	}
}

/* ---- the oracle ---- */

/* Reads "FIRST COUNT" of units. mawk has no integers of 64 bits, but 53 bits of them. The log trees come last. What a tree block
 * begins with ("tree block key") may be an extent that is gone. */
static const char oracle[] =
	"btrfs inspect-internal dump-tree %s | awk -v n=%u '"
	"function use(a, b,  i, done) {"
	"	for (i = 1; i <= c; i++) if (a >= from[i] && a + b <= from[i] + size[i]) {"
	"		printf \"%%d %%d\\n\", (to[i] + a - from[i]) / 4096, b / 4096; done = 1 }"
	"	if (!done) exit 1 }"
	"$3 == \"key\" && $5 == \"CHUNK_ITEM\" { at = $6 + 0 }"
	"$1 == \"length\" { bytes = $2 }"
	"$1 == \"stripe\" { c++; from[c] = at; size[c] = bytes; to[c] = $6 }"
	"$1 == \"item\" && ($5 == \"EXTENT_ITEM\" || $5 == \"METADATA_ITEM\") {"
	"	use(substr($4, 2) + 0, $5 == \"EXTENT_ITEM\" ? $6 + 0 : n) }"
	"/^(leaf|node).* owner / { logged = $NF == \"TREE_LOG\"; if (logged) use($2 + 0, n) }"
	"logged && / data disk byte / { sub(/.*disk/, \"disk\"); if ($3 + 0) use($3 + 0, $5 + 0) }"
	"END { if (c < 3) exit 1; print \"0 256\"; print \"16384 16\" }' >oracle";

/* One byte per unit. */
static uint8_t *oracle_read(const struct image *im, const char *name, unsigned node_bytes)
{
	uint8_t *used = calloc(im->r.volume_blks + WINDOW, 1);
	unsigned long first, n;
	char path[128];
	FILE *f;

	assert_non_null(used);
	make_sure(oracle, name, node_bytes);
	snprintf(path, sizeof(path), "%s/oracle", dir);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fscanf(f, "%lu %lu", &first, &n) == 2)
		if (first < im->r.volume_blks)
			memset(used + first, 1, min_u64(n, im->r.volume_blks - first));
	fclose(f);
	return used;
}

static void write_noise(const char *name, uint64_t unit)
{
	char path[128], noise[COW_BLK_BYTES];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	memset(noise, 0xa5, sizeof(noise));
	assert_int_equal(pwrite(fd, noise, sizeof(noise), (off_t)blk_to_bytes(unit)),
			 sizeof(noise));
	close(fd);
}

/* One unit per question, in windows of odd sizes, or as the map asks. noise: the name of a copy, whose free units
 * are overwritten. */
static void compare_noisy(const char *name, unsigned node_bytes, uint64_t window, const char *noise)
{
	uint64_t units, differ = 0, free_units = 0;
	struct btrfs_space *x;
	struct image im;
	uint8_t *used;

	image_open(&im, name);
	used = oracle_read(&im, name, node_bytes);
	assert_int_equal(btrfs_space_open(&x, &im.r, &units), 0);
	assert_int_equal(units, im.r.volume_blks);
	for (uint64_t at = 0; at < units; at += window) {
		uint64_t n = min_u64(window, units - at);
		uint8_t bits[WINDOW / 8] = { 0 };

		assert_int_equal(btrfs_space_used(x, at, n, bits), 0);
		for (uint64_t i = 0; i < WINDOW; i++) {
			bool is = bits[i / 8] & 1 << i % 8;

			free_units += i < n && !is;
			if (noise && i < n && !is)
				write_noise(noise, at + i);
			if (is != (i < n && used[at + i]) && !differ++)
				print_error("%s: unit %lu is %s\n", name, (unsigned long)(at + i),
					    is ? "used" : "free");
		}
	}
	assert_int_equal(differ, 0);
	assert_true(free_units > units / 20);
	btrfs_space_close(x);
	image_close(&im);
	free(used);
}

static void compare(const char *name, unsigned node_bytes, uint64_t window)
{
	compare_noisy(name, node_bytes, window, NULL);
}

/* ---- comparisons ---- */

static const char fill[] =
	"mkdir -p m/d m/e && for i in $(seq 300); do head -c $((i * 97 % 30000)) /dev/urandom >m/d/$i; done && sync -f m && "
	"head -c 30M /dev/urandom >m/big && head -c 3M /dev/zero >m/zero && fallocate -l 9M m/reserved && sync -f m && "
	"btrfs -q subvolume create m/s && cp -r m/d m/s && btrfs -q subvolume snapshot m/s m/t && sync -f m && "
	"for i in $(seq 60); do cp --reflink=always m/big m/e/$i; dd if=/dev/urandom of=m/e/$i bs=4k seek=$((i * 50)) count=3 "
	"conv=notrunc status=none; done && sync -f m && "
	"for i in $(seq 1 2 300); do rm m/d/$i; done && truncate -s 11M m/big && rm m/zero && "
	"dd if=/dev/urandom of=m/big bs=4k count=99 seek=500 conv=notrunc status=none && sync -f m && "
	"mkdir m/f && for i in $(seq 200); do head -c 5000 /dev/urandom >m/f/$i; done";

static const struct {
	const char *name, *mkfs, *mount, *more;
	unsigned node_bytes;
} layouts[] = {
	{ "default", "", "noatime", "true", 16384 },
	{ "mixed", "-M", "noatime", "true", 4096 },
	{ "single", "-m single -d single", "compress-force=zstd", "btrfs -q subvolume delete m/t",
	  16384 },
	{ "dup", "-m dup -d dup", "noatime", "true", 16384 },
	{ "node4k", "-n 4096 -s 4096", "compress=lzo", "true", 4096 },
	{ "node64k", "-n 65536", "noatime", "true", 65536 },
	{ "nofst", "-R ^free-space-tree", "space_cache=v1", "true", 16384 },
	{ "old", "-O ^no-holes,^skinny-metadata,^extref -R ^free-space-tree", "nospace_cache",
	  "true", 16384 },
	{ "quota", "-R quota", "noatime", "true", 16384 },
	{ "moved", "", "noatime",
	  "sync -f m; rm -r m/d m/f; btrfs -q balance start --full-balance m", 16384 },
	{ "redone", "-m single -d single", "noatime", "btrfs -q balance start -dconvert=dup m",
	  16384 },
};

TEST(test_layouts)
{
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		make_sure(
			"rm -f i j; truncate -s 1500M i; mkfs.btrfs -q -f %s i; mount -o loop,%s i m; %s; %s; fsfreeze -f m; cp --sparse=always i j; "
			"fsfreeze -u m; umount m",
			layouts[i].mkfs, layouts[i].mount, fill, layouts[i].more);
		compare("j", layouts[i].node_bytes, WINDOW); /* frozen */
		compare("i", layouts[i].node_bytes, 4099);   /* unmounted */
	}
}

/* Copies i to FILE while it has a log tree: a sync(2) of another program ends each. */
#define COPY_LOGGED(file)                                                                          \
	"until cp --sparse=always i " file "; [ $(od -An -tu8 -j65632 -N8 " file ") != 0 ]; do "   \
	"date >m/d/7; sync m/d/7; done; "

/* What was synced file by file: in place, preallocated, shared, of a subvolume, in many small extents. */
static const char synced[] =
	"btrfs -q subvolume create m/s; mkdir m/d; head -c 3M /dev/urandom >m/old; fallocate -l 2M m/reserved; sync -f m; "
	"for i in $(seq 150); do head -c $((i * 397)) /dev/urandom >m/d/$i; sync m/d/$i; done; "
	"cp --reflink=always m/old m/shared; dd if=/dev/urandom of=m/shared bs=4k seek=9 count=30 conv=notrunc,fsync status=none; "
	"dd if=/dev/urandom of=m/reserved bs=4k seek=20 count=30 conv=notrunc,fsync status=none; "
	"for i in $(seq 0 3 200); do dd if=/dev/urandom of=m/old bs=4k seek=$i count=1 conv=notrunc status=none; done; sync m/old; "
	"head -c 300K /dev/urandom >m/s/a; fallocate -l 1M m/s/b; ln m/s/a m/s/c; sync m/s/a m/s/b m/d/7";

TEST(test_log_tree)
{
	static const struct {
		const char *mkfs, *mount;
		unsigned node_bytes;
	} logs[] = {
		{ "", "noatime", 16384 },
		{ "-M", "noatime", 4096 },
		{ "-n 4096", "compress=lzo", 4096 },
		{ "-m single -d dup", "noatime", 16384 },
		{ "-n 65536", "nodatacow", 65536 },
	};
	struct image im;

	for (size_t i = 0; i < ARRAY_SIZE(logs); i++) {
		make_sure(
			"rm -f i j k; truncate -s 400M i; mkfs.btrfs -q -f %s i; mount -o loop,commit=300,%s i m; %s; " COPY_LOGGED(
				"j") "(cd m && find . -type f -exec sha256sum {} +) >sums; umount m; cp --sparse=always j k",
			logs[i].mkfs, logs[i].mount, synced);
		image_open(&im, "j");
		assert_memory_not_equal(im.p + SUPER + 96, "\0\0\0\0\0\0\0", 8); /* log_root */
		image_close(&im);
		compare_noisy("j", logs[i].node_bytes, WINDOW, "k");
		make_sure(
			"btrfs check k; for i in $(seq 40); do ! mount -o loop k m || break; sleep 0.5; done; (cd m && sha256sum --quiet -c ../sums); btrfs scrub start -B m | tee /dev/stderr | "
			"grep -q 'Error summary: *no errors'; umount m; btrfs check k");
	}
}

/* A window in which each unit is an extent of its own, with references that fill leaves. */
TEST(test_fragments)
{
	make_sure(
		"rm -f i; truncate -s 400M i; mkfs.btrfs -q -f -n 4096 i; mount -o loop,max_inline=0 i m; mkdir m/d; cd m/d; "
		"head -c 60M /dev/urandom | split -b 4096 -a 4 -; cp --reflink=always xaaaa one; for i in $(seq 400); do "
		"cp --reflink=always one two$i; done; cd ../..; sync -f m; rm m/d/x*[aceg]; umount m");
	compare("i", 4096, WINDOW);
	compare("i", 4096, 7);
}

/* ---- unknown features ---- */

static void seal_super(struct image *im)
{
	uint32_t crc = crc32c(0, im->p + SUPER + 32, 4096 - 32);

	for (int i = 0; i < 4; i++)
		im->p[SUPER + i] = (uint8_t)(crc >> 8 * i);
}

static int try_open(struct image *im)
{
	struct btrfs_space *x;
	uint64_t units;
	int e = btrfs_space_open(&x, &im->r, &units);

	if (!e)
		btrfs_space_close(x);
	return e;
}

static void make_small(void)
{
	make_sure(
		"[ ! -e small ] || exit 0; truncate -s 200M i; mkfs.btrfs -q -f -n 4096 i; mount -o loop i m; mkdir m/d; "
		"for i in $(seq 800); do head -c $((i * 7)) /dev/urandom >m/d/$i; done; sync -f m; rm m/d/*3; umount m; cp i small; "
		"mount -o loop,commit=300,max_inline=0 i m; btrfs -q subvolume create m/s; sync -f m; for i in $(seq 120); do head -c 6000 "
		"/dev/urandom >m/d/x$i; sync m/d/x$i; done; fallocate -l 1M m/s/b; sync m/s/b; " COPY_LOGGED(
			"logged") "umount m");
}

TEST(test_superblock)
{
	static const struct {
		unsigned off;
		uint8_t value;
		bool known;
	} cases[] = {
		{ 299, 'x', true },	  /* the label: only that has changed */
		{ 64, 'x', false },	  /* magic */
		{ 48 + 2, 4, false },	  /* a copy of another place */
		{ 56 + 4, 1, false },	  /* a seed */
		{ 56, 5, false },	  /* with errors */
		{ 72, 0xee, false },	  /* generation of the roots */
		{ 80 + 1, 0x55, false },  /* root tree */
		{ 88 + 3, 0x55, false },  /* chunk tree */
		{ 96 + 2, 1, false },	  /* log_root */
		{ 136, 2, false },	  /* devices */
		{ 144 + 1, 0x20, false }, /* sectors */
		{ 148 + 1, 0, false },	  /* nodes of 0 */
		{ 148 + 1, 8, false },	  /* of 2048 */
		{ 148 + 1, 0x30, false },
		{ 148 + 2, 2, false }, /* of more than 64 KiB */
		{ 160, 0xff, false },  /* sys_chunk_array */
		{ 160 + 1, 0xff, false },
		{ 164, 0xee, false },	      /* generation of the chunk tree */
		{ 180 + 1, 1, false },	      /* compat_ro */
		{ 188 + 1, 0x10 | 3, false }, /* zoned */
		{ 188 + 1, 0x20 | 3, false }, /* extent tree v2 */
		{ 188 + 1, 0x40 | 3, false }, /* stripe tree */
		{ 188 + 7, 0x80, false },
		{ 196, 1, false }, /* another checksum */
		{ 198, 5, false }, /* levels */
		{ 198, 200, false },
		{ 199, 8, false },
		{ 199, 1, false },
		{ 201, 7, false },	     /* device */
		{ 209 + 4, 1, false },	     /* larger than the volume */
		{ 209 + 3, 1, false },	     /* smaller than its chunks */
		{ 217 + 2, 0x11, false },    /* what all chunks take */
		{ 267 + 3, 0x11, false },    /* its identity */
		{ 32 + 3, 0x11, false },     /* that of the file system */
		{ 811 + 8, 1, false },	     /* the first key of the array */
		{ 811 + 17 + 44, 3, false }, /* copies of the first chunk */
	};
	struct image im;

	make_small();
	image_open(&im, "small");
	assert_int_equal(try_open(&im), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint8_t *p = im.p + SUPER + cases[i].off, was = *p;

		*p = cases[i].value == was ? (uint8_t)(was ^ 1) : cases[i].value;
		assert_int_equal(try_open(&im), -EOPNOTSUPP);
		seal_super(&im);
		if (try_open(&im) != (cases[i].known ? 0 : -EOPNOTSUPP))
			fail_msg("superblock, %u: %d", cases[i].off, try_open(&im));
		*p = was;
		seal_super(&im);
	}
	assert_int_equal(try_open(&im), 0);
	im.r.volume_blks--; /* cuts off its end */
	assert_int_equal(try_open(&im), -EOPNOTSUPP);
	im.r.volume_blks = 16;
	assert_int_equal(try_open(&im), -EOPNOTSUPP);
	image_close(&im);
}

/* Other checksums. */
TEST(test_not_known)
{
	struct image im;

	make_sure(
		"for c in xxhash sha256 blake2; do truncate -s 200M $c; mkfs.btrfs -q --csum $c $c; done");
	for (const char *const *name = (const char *const[]){ "xxhash", "sha256", "blake2", NULL };
	     *name; name++) {
		image_open(&im, *name);
		assert_int_equal(try_open(&im), -EOPNOTSUPP);
		image_close(&im);
	}
}

/* ---- damage ---- */

static const char *const smalls[] = { "small", "logged" };

static void each_small(void (*fn)(const char *name))
{
	make_small();
	for (size_t i = 0; i < ARRAY_SIZE(smalls); i++)
		fn(smalls[i]);
}

static bool in_tree(const struct image *im, uint64_t off)
{
	return off != SUPER && off % (64 * MIB) != 0 &&
	       !memcmp(im->p + off + 32, im->p + SUPER + 32, 16);
}

static void seal_node(uint8_t *p)
{
	uint32_t crc = crc32c(0, p + 32, 4096 - 32);

	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(crc >> 8 * i);
}

/* Asks for everything: free units, or -1 if the answer is an error. Each answer is an error, or the
 * one of the intact image. */
static long ask_all(struct image *im, const uint8_t *used, bool *ret_wrong)
{
	struct btrfs_space *x;
	uint64_t units;
	long sum = 0;
	int e = btrfs_space_open(&x, &im->r, &units);

	assert_true(!e || e == -EOPNOTSUPP || e == -EIO);
	if (e)
		return -1;
	for (uint64_t at = 0; at < units && sum >= 0; at += 5000) {
		uint8_t bits[5000 / 8] = { 0 };
		uint64_t n = min_u64(5000, units - at);

		e = btrfs_space_used(x, at, n, bits);
		assert_true(!e || e == -EUCLEAN || e == -EIO);
		for (uint64_t i = 0; i < n && !e; i++) {
			bool is = bits[i / 8] & 1 << i % 8;

			sum += !is;
			*ret_wrong |= !is && used[at + i];
		}
		if (e)
			sum = -1;
	}
	btrfs_space_close(x);
	return sum;
}

/* One byte of each tree block at a time. If no answer changes, the block belongs to a tree that is
 * not read, or is no longer in use. */
static void flip_bytes(const char *name)
{
	bool wrong = false;
	unsigned noticed = 0, blocks = 0;
	struct image im;
	uint8_t *used;
	long all;

	image_open(&im, name);
	used = oracle_read(&im, name, 4096);
	all = ask_all(&im, used, &wrong);
	assert_true(all > 0 && !wrong);
	for (uint64_t off = 4096; off < im.size_bytes; off += 4096) {
		uint8_t *p = im.p + off + rnd(4096);

		if (!in_tree(&im, off))
			continue;
		blocks++;
		*p ^= 0x10;
		if (ask_all(&im, used, &wrong) != all)
			noticed++;
		*p ^= 0x10;
	}
	assert_false(wrong);
	assert_true(noticed >= 5 && noticed < blocks);
	assert_int_equal(ask_all(&im, used, &wrong), all);
	free(used);
	image_close(&im);
}

TEST(test_flipped)
{
	each_small(flip_bytes);
}

/* Blocks that are wrong under a right checksum: their header says which block it is, and how
 * new. */
static void craft_headers(const char *name)
{
	static const uint8_t offs[] = { 32, 47, 48, 49, 80, 81, 87, 88, 95, 96, 97, 99, 100 };
	unsigned noticed[ARRAY_SIZE(offs)] = { 0 };
	bool wrong = false;
	struct image im;
	uint8_t *used;
	long all;

	image_open(&im, name);
	used = oracle_read(&im, name, 4096);
	all = ask_all(&im, used, &wrong);
	for (uint64_t off = 4096; off < im.size_bytes; off += 4096) {
		uint8_t was[4096];

		if (!in_tree(&im, off))
			continue;
		memcpy(was, im.p + off, sizeof(was));
		for (size_t i = 0; i < ARRAY_SIZE(offs); i++) {
			im.p[off + offs[i]] ^= (uint8_t)(1u << rnd(8));
			seal_node(im.p + off);
			noticed[i] += ask_all(&im, used, &wrong) != all;
			memcpy(im.p + off, was, sizeof(was));
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(offs); i++)
		if (noticed[i] < 5)
			fail_msg("header, %u: noticed %u times", offs[i], noticed[i]);
	assert_int_equal(ask_all(&im, used, &wrong), all);
	free(used);
	image_close(&im);
}

TEST(test_crafted)
{
	each_small(craft_headers);
}

/* Anything under right checksums: pointers in circles, items outside their block. The code ends,
 * and reads a bounded amount. */
static void scramble(const char *name)
{
	const unsigned rounds = 3000;
	uint64_t off[4096], n = 0;
	bool wrong;
	struct image im;
	uint8_t *used;

	image_open(&im, name);
	used = oracle_read(&im, name, 4096);
	for (uint64_t o = 4096; o < im.size_bytes && n < ARRAY_SIZE(off); o += 4096)
		if (in_tree(&im, o))
			off[n++] = o;
	for (unsigned i = 0; i < rounds; i++) {
		uint8_t was[4][4096];
		uint64_t at[4];

		for (int k = 0; k < 4; k++) {
			at[k] = off[rnd(n)];
			memcpy(was[k], im.p + at[k], 4096);
			for (unsigned edits = rnd(6); edits; edits--) {
				unsigned where = rnd(3) ? 80 + rnd(150) : rnd(4096);

				im.p[at[k] + where] = rnd(2) ? (uint8_t)rnd(256)
							     : im.p[off[rnd(n)] + where];
			}
			if (rnd(4) == 0) /* a pointer to itself, or above */
				memcpy(im.p + at[k] + 101 + 17, im.p + off[rnd(n)] + 48, 8);
			seal_node(im.p + at[k]);
		}
		im.calls = 0;
		ask_all(&im, used, &wrong);
		assert_true(im.calls < 17000 + (im.r.volume_blks / 5000 + 1) * 4096);
		for (int k = 3; k >= 0; k--)
			memcpy(im.p + at[k], was[k], 4096);
	}
	wrong = false;
	assert_true(ask_all(&im, used, &wrong) > 0 && !wrong);
	free(used);
	image_close(&im);
}

TEST(test_random)
{
	each_small(scramble);
}

static void fail_reads(const char *name)
{
	bool wrong = false;
	struct image im;
	uint8_t *used;
	long r = -1;

	image_open(&im, name);
	used = oracle_read(&im, name, 4096);
	for (im.fail_at = 1; r < 0; im.fail_at++) {
		im.calls = 0;
		r = ask_all(&im, used, &wrong);
		assert_true((r < 0) == (im.calls >= im.fail_at));
	}
	assert_true(im.fail_at > 6);
	free(used);
	image_close(&im);
}

TEST(test_read_errors)
{
	each_small(fail_reads);
}

/* Through the map, no damage and no read error after the superblock is an alarm or an error:
 * doubtful blocks are used, and it says whether there are any. */
static bool map_is_calm(struct image *im, const uint8_t *used)
{
	struct fsmap *m;
	enum blk_use use;
	uint64_t n;
	bool doubts;

	im->calls = 0;
	assert_int_equal(fsmap_open(&m, &im->r), 0);
	for (uint64_t blk = 0; blk < im->r.volume_blks; blk += n) {
		assert_int_equal(fsmap_run(m, blk, im->r.volume_blks - blk, &use, &n), 0);
		assert_true(use == USE_USED || (use == USE_FREE && fsmap_knows(m)));
		for (uint64_t i = 0; i < n && use == USE_FREE; i++)
			assert_false(used[blk + i]);
	}
	assert_int_equal(fsmap_alarms(m), 0);
	doubts = fsmap_doubts(m);
	fsmap_close(m);
	return doubts;
}

static void damage_map(const char *name)
{
	unsigned doubted = 0;
	struct image im;
	uint8_t *used;

	image_open(&im, name);
	used = oracle_read(&im, name, 4096);
	for (im.fail_at = 3; im.fail_at < 40; im.fail_at++)
		doubted += map_is_calm(&im, used);
	assert_true(doubted);
	im.fail_at = 0;
	assert_false(map_is_calm(&im, used));
	for (uint64_t off = 4096; off < im.size_bytes; off += 4096) {
		if (!in_tree(&im, off))
			continue;
		im.p[off + 200] ^= 1;
		map_is_calm(&im, used);
		im.p[off + 200] ^= 1;
	}
	free(used);
	image_close(&im);
}

TEST(test_map)
{
	each_small(damage_map);
}

static int make_dir(void **state)
{
	rnd_state = 1;
	if (workdir_new("btrfs"))
		return -1;
	make_sure("mkdir m");
	return 0;
}

TEST_GROUP(make_dir, workdir_remove)
