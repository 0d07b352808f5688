// SPDX-License-Identifier: MIT
/*
 * Free space of XFS against images that Linux has made: mounted, filled with holes, frozen or
 * unmounted, or neither.
 *
 * The oracle is xfs_db's dump of the trees. Also, all space reported as free is overwritten, after
 * which the file system must have all its files and xfs_repair must find nothing. Then images with
 * damage, with right and with wrong checksums. Needs root, to mount.
 */
#include "test.h"
#include <inttypes.h>
#include <sched.h>
#include <sys/mount.h>

#include "base/crc32c.h"
#include "fs/xfs_image.h"
#include "fs/xfs_replay.h"
#include "fs/xfs_space.h"
#include "image.h"

#define WINDOW 32768u

/* up IMAGE MOUNT_POINT [OPTIONS]: on a loop device that disappears with the mount; a device used
 * before may still be read-only */
static const char functions[] =
	"set -x; up() { l=$(losetup --show -f $1) && blockdev --setrw $l && mount -o rw$3 $l $2; r=$?; "
	"losetup -d $l; return $r; }; ";

static int sh_up(const char *fmt, ...) PRINTF(1, 2);
static int sh_up(const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = vsh(functions, fmt, ap);
	va_end(ap);
	return r;
}

/* ---- the answer, and the oracle's ---- */

/* All units, in windows of this size. bits: one for each unit of the volume. */
static int answer(struct image *im, uint64_t window, uint8_t *bits)
{
	uint64_t units = 0, all = im->r.volume_blks;
	uint8_t *part = malloc(window / 8 + 1);
	struct xfs_space *x;
	int err = xfs_space_open(&x, &im->r, &units);

	assert_non_null(part);
	if (!err) {
		assert_true(units && units <= all);
		for (uint64_t u = 0; u < all && !err; u += window) {
			uint64_t n = min_u64(window, all - u);

			err = xfs_space_used(x, u, n, part);
			for (uint64_t k = 0; k < n && !err; k++) {
				bits[(u + k) / 8] &= (uint8_t) ~(1u << (u + k) % 8);
				if (part[k / 8] & 1 << k % 8)
					bits[(u + k) / 8] |= (uint8_t)(1u << (u + k) % 8);
			}
		}
		xfs_space_close(x);
	}
	free(part);
	return err;
}

static bool bit(const uint8_t *bits, uint64_t k)
{
	return bits[k / 8] & 1 << k % 8;
}

/* From the records of all trees as xfs_db prints them; number of free units. */
static uint64_t oracle(const struct image *im, const char *name, uint8_t *bits)
{
	uint64_t bs = be_at(im->p, 4, 4), ag_blocks = be_at(im->p, 84, 4),
		 ags = be_at(im->p, 88, 4), free_units = 0;
	uint64_t blocks = be_at(im->p, 8, 8),
		 per_unit = bs < COW_BLK_BYTES ? COW_BLK_BYTES / bs : 1, start, count;
	uint8_t *freed = calloc(1, blocks + per_unit);

	assert_non_null(freed);
	memset(bits, 0xff, im->r.volume_blks / 8 + 1);
	for (uint64_t ag = 0; ag < ags; ag++) {
		FILE *f;

		f = sh_read(
			"xfs_db -r -c 'agf %d' -c 'addr bnoroot' -c btdump %s | "
			"awk '/^bnobt level/ { leaf = $3 == 0 } leaf' | grep -o '\\[[0-9]*,[0-9]*\\]' | tr -d '[]'",
			(int)ag, name);
		while (fscanf(f, "%" SCNu64 ",%" SCNu64, &start, &count) == 2)
			memset(freed + ag * ag_blocks + start, 1, count);
		pclose(f);
	}
	for (uint64_t u = 0; u < blocks * bs / COW_BLK_BYTES; u++) {
		bool is_free = true;

		for (uint64_t k = 0; k < per_unit; k++)
			is_free &= freed[u * COW_BLK_BYTES / bs + k];
		if (is_free)
			bits[u / 8] &= (uint8_t) ~(1u << u % 8);
		free_units += is_free;
	}
	free(freed);
	return free_units;
}

static void assert_same(const uint8_t *a, const uint8_t *b, uint64_t units)
{
	for (uint64_t u = 0; u < units; u++)
		if (bit(a, u) != bit(b, u))
			fail_msg("unit %lu: %d, should be %d", u, bit(a, u), bit(b, u));
}

/* The bits of an image that has a clean log, as xfs_db sees it; the caller frees them. */
static uint8_t *check_image(const char *name)
{
	struct image im;
	uint8_t *bits, *expected;
	uint64_t n;

	image_open(&im, name);
	bits = malloc(im.r.volume_blks / 8 + 1);
	expected = malloc(im.r.volume_blks / 8 + 1);
	assert_true(bits && expected);
	n = oracle(&im, name, expected);
	assert_true(n > 1000);
	assert_int_equal(answer(&im, WINDOW, bits), 0);
	assert_same(bits, expected, im.r.volume_blks);
	memset(bits, 0, im.r.volume_blks / 8 + 1);
	assert_int_equal(answer(&im, 777, bits), 0);
	assert_same(bits, expected, im.r.volume_blks);
	image_close(&im);
	free(expected);
	return bits;
}

static void write_at(const char *name, uint64_t off, const void *p, size_t len)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, p, len, (off_t)off), (ssize_t)len);
	close(fd);
}

/* Overwrites the free space, replays the log by a mount: all files must exist, and there must be
 * nothing to repair. */
static void overwrite_free(const char *name, const uint8_t *bits)
{
	uint8_t noise[COW_BLK_BYTES];
	char path[128];
	struct stat st;
	int fd;

	memset(noise, 0xa5, sizeof(noise));
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	for (uint64_t u = 0; u < (uint64_t)st.st_size / COW_BLK_BYTES; u++)
		if (!bit(bits, u))
			assert_int_equal(pwrite(fd, noise, sizeof(noise), (off_t)blk_to_bytes(u)),
					 COW_BLK_BYTES);
	close(fd);
	assert_int_equal(
		sh_up("mkdir -p m2; up %s m2 ,nouuid || exit; (cd m2 && find . -type f | sort | xargs cksum) >sums2; "
		      "umount m2 && cmp sums sums2 && xfs_repair -n -f %s",
		      name, name),
		0);
}

/*
 * The bits of an image whose log is to be replayed; the caller frees them. What is free must be free
 * after Linux has replayed it.
 */
static uint8_t *check_live(const char *name)
{
	struct image im;
	uint8_t *bits, *expected;
	uint64_t n = 0;

	image_open(&im, name);
	bits = malloc(im.r.volume_blks / 8 + 1);
	expected = malloc(im.r.volume_blks / 8 + 1);
	assert_true(bits && expected);
	assert_int_equal(answer(&im, WINDOW, bits), 0);
	image_close(&im);
	assert_int_equal(
		sh_up("mkdir -p m2; cp --sparse=always %s replayed && up replayed m2 ,nouuid && "
		      "umount m2",
		      name),
		0);
	image_open(&im, "replayed");
	assert_true(oracle(&im, "replayed", expected) > 1000);
	for (uint64_t u = 0; u < im.r.volume_blks; u++) {
		n += !bit(bits, u);
		if (!bit(bits, u) && bit(expected, u))
			fail_msg("unit %lu is not free", u);
	}
	assert_true(n > 1000);
	image_close(&im);
	free(expected);
	return bits;
}

/* ---- images ---- */

/* A file with a hole after every block, and room after it. */
static void punch(uint64_t block_bytes, uint64_t holes)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/m/holes", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fallocate(fd, 0, 0, (off_t)(2 * holes * block_bytes)), 0);
	for (uint64_t k = 0; k < holes; k++)
		assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   (off_t)(2 * k * block_bytes), (off_t)block_bytes),
				 0);
	close(fd);
}

/* The variables are those of xfstests: mkfs.xfs 6 refuses a log of less than 64 MiB without them. */
static void make(const char *mkfs, const char *options)
{
	assert_int_equal(
		sh_up("mkdir -p m; rm -f i; truncate -s 330M i && "
		      "TEST_DIR=m TEST_DEV=i QA_CHECK_FS=1 mkfs.xfs -q -f %s i && up i m %s",
		      mkfs, options),
		0);
}

static void files(void)
{
	assert_int_equal(sh_up("cd m && mkdir d e && for k in $(seq 400); do echo $k >d/$k; "
			       "head -c $((k * 50)) /dev/urandom >e/$k; done && "
			       "rm d/*[13579] e/*[2468]; sync -f ."),
			 0);
}

/* The image in its frozen state, in the file "frozen", and the checksums of all files. */
static void freeze(void)
{
	assert_int_equal(
		sh_up("(cd m && find . -type f | sort | xargs cksum) >sums; fsfreeze -f m || exit; "
		      "cp --sparse=always i frozen; r=$?; "
		      "fsfreeze -u m && exit $r"),
		0);
}

/* Changes, several records in the log, and the image as a power cut would leave it. */
static void live(void)
{
	assert_int_equal(
		sh_up("cd m && cp e/1 e/2 && sync e/2 && rm e/[3-9]* && cp -r d f && sync f/2 && "
		      "rm -r d && mkdir d && cp f/2 d/2 && sync d/2 && "
		      "find . -type f | sort | xargs cksum >../sums; sync -f . && "
		      "cp --sparse=always ../i ../live && mv f d2"),
		0);
}

static void unmount(void)
{
	assert_int_equal(sh_up("(cd m && find . -type f | sort | xargs cksum) >sums; umount m"), 0);
}

static int teardown(void **state)
{
	return sh_up(
		"! mountpoint -q m2 || umount m2; ! mountpoint -q m || { fsfreeze -u m; umount m; }; :");
}

TEST(test_layouts, NULL, teardown)
{
	static const struct {
		const char *mkfs, *options;
		uint64_t block_bytes, holes;
	} cases[] = {
		{ "-b size=4096 -m rmapbt=0,reflink=0,finobt=0 -d agcount=2", "", 4096, 4000 },
		{ "-b size=1024 -m rmapbt=1,reflink=1 -d agcount=8", ",logbsize=256k", 1024,
		  20000 },
		{ "-b size=2048 -d agcount=3 -m inobtcount=1,bigtime=1", "", 2048, 3000 },
		{ "-s size=4096 -d agcount=4 -m rmapbt=1", ",discard", 4096, 3000 },
		{ "-d agcount=2 -l su=256k", ",logbsize=256k", 4096, 2000 },
		{ "-d su=64k,sw=2 -i nrext64=1,sparse=0 -l su=32k", ",wsync", 4096, 2000 },
		{ "-b size=16384 -m rmapbt=0 -i nrext64=0 -l size=16m", "", 16384, 1000 },
		{ "-b size=65536 -m rmapbt=0 -i nrext64=0", "", 65536, 500 },
	};
	uint8_t *bits;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		print_message("%s%s\n", cases[i].mkfs, cases[i].options);
		make(cases[i].mkfs, cases[i].options);
		freeze();
		free(check_image("frozen"));
		files();
		punch(cases[i].block_bytes, cases[i].holes);
		freeze();
		/* a second one, after few or no changes */
		bits = check_image("frozen");
		overwrite_free("frozen", bits);
		free(bits);
		freeze();
		free(check_image("frozen"));
		/* not frozen, with something to replay */
		live();
		bits = check_live("live");
		overwrite_free("live", bits);
		free(bits);
		unmount();
		bits = check_image("i");
		overwrite_free("i", bits);
		free(bits);
	}
}

/* The answer, whatever it is; 0 only if it is the oracle's. */
static int answer_of(const char *name)
{
	struct image im;
	uint8_t *bits;
	int err;

	image_open(&im, name);
	bits = malloc(im.r.volume_blks / 8 + 1);
	assert_non_null(bits);
	err = answer(&im, WINDOW, bits);
	image_close(&im);
	free(bits);
	if (!err)
		free(check_image(name));
	return err;
}

TEST(test_no_mount, NULL, teardown)
{
	assert_int_equal(sh_up("rm -f i; truncate -s 330M i && mkfs.xfs -q -f i"), 0);
	assert_int_equal(answer_of("i"), 0);
	assert_int_equal(
		sh_up("rm -f i; truncate -s 330M i && mkfs.xfs -q -f -b size=1024 -l su=256k -s size=1024 i"),
		0);
	assert_int_equal(answer_of("i"), 0);
	/* the log after a repair, and after a change of the UUID */
	assert_int_equal(
		sh_up("mkdir -p m && up i m && cp log m/f && sync m/f && cp i live && umount m"),
		0);
	free(check_live("live"));
	assert_int_equal(sh_up("xfs_repair -L -f live"), 0);
	assert_int_equal(answer_of("live"), 0);
	assert_int_equal(sh_up("xfs_admin -f -U generate live"), 0);
	assert_int_equal(answer_of("live"), 0);
	assert_int_equal(sh_up("up live m && cp log m/g && umount m"), 0);
	assert_int_equal(answer_of("live"), 0);
	/* unknown: no checksums; an external log; a realtime section */
	assert_int_equal(sh_up("mkfs.xfs -q -f -m crc=0 i"), 0);
	assert_int_equal(answer_of("i"), -EOPNOTSUPP);
	assert_int_equal(sh_up("truncate -s 70M j; mkfs.xfs -q -f -l logdev=j,size=64m i"), 0);
	assert_int_equal(answer_of("i"), -EOPNOTSUPP);
	assert_int_equal(sh_up("mkfs.xfs -q -f -r rtdev=j i"), 0);
	assert_int_equal(answer_of("i"), -EOPNOTSUPP);
	assert_int_equal(sh_up("mke2fs -q -F i"), 0);
	assert_int_equal(answer_of("i"), -EOPNOTSUPP);
}

/* The offset of the header of the last record but `skip`. The log has wrapped never. */
static uint64_t last_header(const struct image *im, unsigned skip)
{
	uint64_t bytes = be_at(im->p, 4, 4), ag = be_at(im->p, 48, 8) >> im->p[124];
	uint64_t log =
		(ag * be_at(im->p, 84, 4) + (be_at(im->p, 48, 8) & ((1ull << im->p[124]) - 1))) *
		bytes;
	uint64_t at[4] = { 0 };

	for (uint64_t off = log, len;
	     be_at(im->p + off, 0, 4) == 0xfeedbabe && (len = be_at(im->p + off, 12, 4)) > 0;
	     off += 512 + (len + 511) / 512 * 512) {
		memmove(at + 1, at, sizeof(at) - sizeof(*at));
		at[0] = off;
	}
	assert_true(at[skip] > log);
	return at[skip];
}

/* The last records arrived in part, or not before later ones: the head is where Linux finds it. */
TEST(test_head, NULL, teardown)
{
	static const struct {
		unsigned skip;
		bool header; /* or the block behind it is missing */
	} cases[] = { { 0, true }, { 0, false }, { 1, true }, { 1, false }, { 2, false } };

	make("-b size=4096 -d agcount=2", "");
	files();
	live();
	unmount();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		static const uint8_t missing[512];
		struct image im;
		uint64_t off;

		image_open(&im, "live");
		off = last_header(&im, cases[i].skip) + (cases[i].header ? 0 : 512);
		image_close(&im);
		assert_int_equal(sh_up("cp --sparse=always live torn"), 0);
		write_at("torn", off, missing, sizeof(missing));
		print_message("case %zu\n", i);
		free(check_live("torn"));
	}
}

/* A small log that wraps several times, with freezes in between; files that are deleted and
 * open. */
TEST(test_wraps, NULL, teardown)
{
	struct image im;
	uint32_t rounds = 0;

	make("-l size=6m -m reflink=1,rmapbt=0 -i nrext64=0", "");
	for (int k = 0; k < 40; k++) {
		/* the frozen part is between nothing and most of the log */
		assert_int_equal(
			sh_up("cd m && rm -rf x*; mkdir $(seq -f x%%g %d); for i in x*; do echo $i >$i/z; done; sync x*; "
			      "cp -r --reflink=always x1 x_%d; cat x1/z >>x_%d/z; exec 7>o; rm o; echo %d >&7; "
			      "cd ..; fsfreeze -f m; cp --sparse=always i frozen; r=$?; fsfreeze -u m && exit $r",
			      k % 8 * 100 + 1, k, k, k),
			0);
		if (answer_of("frozen"))
			fail_msg("freeze %d", k);
	}
	image_open(&im, "frozen");
	/* the log's first block has the number of rounds */
	for (uint64_t off = 0; off < im.size_bytes && !rounds; off += 512)
		if (be_at(im.p + off, 0, 4) == 0xfeedbabe)
			rounds = (uint32_t)be_at(im.p + off, 4, 4);
	image_close(&im);
	print_message("rounds: %u\n", rounds);
	assert_true(rounds > 2);
	unmount();
	assert_int_equal(answer_of("i"), 0);
}

/* ---- transactions made by hand ---- */

enum { CANCEL = 2, BTREE = 4 << 11 };

static void op(struct xfs_replay *y, uint64_t lsn, unsigned flags, const uint8_t *p, uint32_t len)
{
	uint8_t o[12 + 256] = { 0, 0, 0, 7 };

	assert_true(len <= 256);
	o[8] = 0x69;
	o[9] = (uint8_t)flags;
	if (len)
		memcpy(o + 12, p, len);
	assert_int_equal(xfs_replay_op(y, lsn, o, len), 0);
}

/* One transaction: chunk 1 of the buffer at 8 becomes v, or the buffer is cancelled. */
static void transaction(struct xfs_replay *y, uint64_t lsn, uint16_t flags, uint8_t v)
{
	const bool cancel = flags & CANCEL;
	const uint8_t header[16] = { 0x4e, 0x41, 0x52, 0x54, [12] = cancel ? 1 : 2 };
	uint8_t chunk[128], item[24] = { 0x3c, 0x12, cancel ? 1 : 2 };

	memset(chunk, v, sizeof(chunk));
	item[4] = (uint8_t)flags;
	item[5] = (uint8_t)(flags >> 8);
	item[6] = 8;
	item[8] = 8;
	item[16] = 1;
	item[20] = cancel ? 0 : 2;
	op(y, lsn, 1, NULL, 0);
	/* header and chunk continue in the next record */
	op(y, lsn, 4, header, 4);
	op(y, lsn, 8, header + 4, 12);
	op(y, lsn, 0, item, 24);
	if (!cancel) {
		op(y, lsn, 4, chunk, 100);
		op(y, lsn, 8 | 16, chunk + 100, 28);
	}
	op(y, lsn, 2, NULL, 0);
}

/* The buffer after these transactions, from one that is home with this LSN. */
static int replayed(const char *flow, uint64_t home_lsn)
{
	static const struct xfs_image x = { .block_bytes = 4096 };
	struct xfs_replay *y = xfs_replay_new(&x);
	uint8_t block[4096] = "AB3B";
	bool changed;

	assert_non_null(y);
	be_set(block, 24, 8, home_lsn);
	/* each transaction is a letter, its LSN 10, 20 ...; an upper one has that of the previous */
	for (uint64_t lsn = 0, k = 0; flow[k]; k++) {
		lsn += flow[k] >= 'A' && flow[k] <= 'Z' ? 0 : 10;
		transaction(y, lsn, flow[k] == '-' ? CANCEL : BTREE, (uint8_t)flow[k]);
	}
	xfs_replay_ready(y);
	assert_false(xfs_replay_apply(y, 16, 8, block));
	assert_false(xfs_replay_apply(y, 8, 4, block));
	changed = xfs_replay_apply(y, 8, 8, block);
	xfs_replay_free(y);
	assert_int_equal(block[128], block[255]);
	assert_int_equal(changed, block[128] != 0);
	return block[128];
}

TEST(test_transactions)
{
	assert_int_equal(replayed("a", 0), 'a');
	assert_int_equal(replayed("abc", 5), 'c');
	assert_int_equal(replayed("abc", 29), 'c');
	assert_int_equal(replayed("abc", 30), 0);
	assert_int_equal(replayed("ab", UINT64_MAX), 'b');
	assert_int_equal(replayed("aB", 5), 'B');
	assert_int_equal(replayed("aB", 10), 0);
	assert_int_equal(replayed("ab-", 5), 0);
	assert_int_equal(replayed("a-c", 5), 'c');
	assert_int_equal(replayed("-c-de", 5), 'e');
}

/* ---- damage ---- */

enum { BAD_ROUNDS = 1500, MOST_REPLAYED_BYTES = 1 << 20 };

/* An image of two AGs, with trees of two levels. */
struct bad {
	struct image im;
	uint8_t *right, *bits;	      /* the used blocks */
	uint64_t ag_bytes, log, last; /* bytes; the last record before the head */
};

static void seal(uint8_t *p, size_t len, size_t crc_off)
{
	uint32_t crc;

	memset(p + crc_off, 0, 4);
	crc = crc32c(0, p, len);
	for (size_t i = 0; i < 4; i++)
		p[crc_off + i] = (uint8_t)(crc >> 8 * i);
}

static void seal_record(uint8_t *h)
{
	uint32_t crc;

	memset(h + 32, 0, 4);
	crc = crc32c(crc32c(0, h, 328), h + 512, min_u64(be_at(h, 12, 4), 4096));
	for (size_t i = 0; i < 4; i++)
		h[32 + i] = (uint8_t)(crc >> 8 * i);
}

/* The offset behind the record at this offset; 0: there is none. */
static uint64_t behind(const struct bad *b, uint64_t off)
{
	uint64_t len = be_at(b->im.p + off, 12, 4);

	return be_at(b->im.p + off, 0, 4) == 0xfeedbabe && len ? off + 512 + (len + 511) / 512 * 512
							       : 0;
}

static void bad_open(struct bad *b)
{
	uint64_t logstart, shift, tail, next;

	make("-d agcount=2 -m rmapbt=0 -b size=4096", "");
	files();
	punch(4096, 3000);
	freeze();
	unmount();
	memset(b, 0, sizeof(*b));
	image_open(&b->im, "frozen");
	b->right = malloc(b->im.r.volume_blks / 8 + 1);
	b->bits = malloc(b->im.r.volume_blks / 8 + 1);
	b->im.touched = calloc(1, b->im.r.volume_blks / 8 + 1);
	assert_true(b->right && b->bits && b->im.touched);
	b->ag_bytes = be_at(b->im.p, 84, 4) * 4096;
	shift = be_at(b->im.p, 124, 1);
	logstart = be_at(b->im.p, 48, 8);
	b->log = (logstart >> shift) * b->ag_bytes + (logstart & ((1ull << shift) - 1)) * 4096;
	for (next = b->log; behind(b, next); next = behind(b, next))
		b->last = next;
	assert_true(b->last > b->log + 20 * 512);
	/* as much as is read would be replayed, and is home: everything since mkfs.xfs, unless
	 * the file system was synced often meanwhile */
	for (tail = behind(b, b->log); next - tail > MOST_REPLAYED_BYTES;)
		tail = behind(b, tail);
	be_set(b->im.p + b->last + 24, 0, 8, 1ull << 32 | (tail - b->log) / 512);
	seal_record(b->im.p + b->last);
	assert_int_equal(answer(&b->im, WINDOW, b->right), 0);
}

static void bad_close(struct bad *b)
{
	image_close(&b->im);
	free(b->im.touched);
	free(b->right);
	free(b->bits);
}

static uint64_t touched_unit(const struct bad *b, uint64_t *seed)
{
	uint64_t u;

	do
		u = rnd_of(seed, b->im.r.volume_blks);
	while (!bit(b->im.touched, u));
	return u;
}

/* A wrong bit anywhere is detected, or has no effect. */
static void check_flips(struct bad *b)
{
	unsigned noticed = 0;
	uint64_t seed = 1;

	for (int k = 0; k < BAD_ROUNDS; k++) {
		uint8_t *p = b->im.p + blk_to_bytes(touched_unit(b, &seed)) +
			     rnd_of(&seed, COW_BLK_BYTES);
		uint8_t was = *p;
		int err;

		*p ^= (uint8_t)(1u << rnd_of(&seed, 8));
		err = answer(&b->im, WINDOW, b->bits);
		if (!err)
			assert_same(b->bits, b->right, b->im.r.volume_blks);
		else
			assert_true(err == -EUCLEAN || err == -EOPNOTSUPP);
		noticed += err != 0;
		*p = was;
	}
	print_message("%u of %d flips noticed\n", noticed, BAD_ROUNDS);
	assert_true(noticed > 20);
}

/* Any content, with right checksums: the code ends, and reads little. */
static void check_forged(struct bad *b)
{
	static const uint64_t values[] = { 0,	 1,	2,	    5,		255,
					   4096, 65535, 0x7fffffff, 0x80000000, 0xffffffff };
	uint64_t seed = 2;
	uint8_t was[COW_BLK_BYTES * 2];

	for (int k = 0; k < BAD_ROUNDS; k++) {
		uint64_t off = k % 4 == 0 ? b->last : blk_to_bytes(touched_unit(b, &seed)),
			 in_log = off == b->last;
		uint8_t *p = b->im.p + off;
		int err;

		memcpy(was, p, sizeof(was));
		b->im.units = 0;
		for (int n = rnd_of(&seed, 3); n >= 0; n--) {
			size_t width = 1u << rnd_of(&seed, 4);
			size_t at = rnd_of(&seed, in_log ? 700 : 300) & ~(width - 1);
			uint64_t v = values[rnd_of(&seed, ARRAY_SIZE(values))];

			if (!off || (off % b->ag_bytes == 0 && rnd_of(&seed, 2)))
				at = off ? 512 + at % 200 : at;
			be_set(p, at, width,
			       rnd_of(&seed, 3) ? v : be_at(p, at, width) + v % 3 - 1);
		}
		if (in_log)
			seal_record(p);
		else if (off % b->ag_bytes == 0)
			seal(p, 512, 224), seal(p + 512, 512, 216);
		else
			seal(p, 4096, 52);
		err = answer(&b->im, WINDOW, b->bits);
		assert_true(!err || err == -EUCLEAN || err == -EOPNOTSUPP);
		assert_true(b->im.units < 20000 + 4096 * (b->im.r.volume_blks / WINDOW + 1));
		memcpy(p, was, sizeof(was));
	}
}

/* One field after the other. */
static void check_fields(struct bad *b)
{
	uint8_t *agf = b->im.p + 512, *root = b->im.p + be_at(agf, 16, 4) * 4096;
	uint8_t *leaf = b->im.p + be_at(root, 56 + 336 * 8, 4) * 4096, *rec = b->im.p + b->last;
	uint64_t root_nr = be_at(agf, 16, 4);
	enum { SUPER, AGF, NODE, LEAF, LOG };
	const struct {
		int where, off, width, expected;
		uint64_t v;
	} cases[] = {
		{ SUPER, 100, 2, -EOPNOTSUPP, be_at(b->im.p, 100, 2) - 1 },    /* version 4 */
		{ SUPER, 216, 4, -EOPNOTSUPP, be_at(b->im.p, 216, 4) | 0x10 }, /* needs repair */
		{ SUPER, 216, 4, -EOPNOTSUPP, be_at(b->im.p, 216, 4) | 0x100 },
		{ SUPER, 212, 4, -EOPNOTSUPP, 0x10 },
		{ SUPER, 220, 4, -EOPNOTSUPP, 1 },
		{ SUPER, 126, 1, -EOPNOTSUPP, 1 },
		{ SUPER, 48, 8, -EOPNOTSUPP, 0 },
		{ SUPER, 16, 8, -EOPNOTSUPP, 1 },
		{ SUPER, 4, 4, -EOPNOTSUPP, 131072 },
		{ SUPER, 8, 8, -EOPNOTSUPP, 1ull << 40 },
		{ SUPER, 88, 4, -EOPNOTSUPP, 3 },
		{ SUPER, 84, 4, -EOPNOTSUPP, 0 },
		{ SUPER, 96, 4, -EOPNOTSUPP, 0 },
		{ SUPER, 124, 1, -EOPNOTSUPP, 64 },
		{ SUPER, 32, 4, -EOPNOTSUPP, 0 },
		/* older than the log says, or from before: replayed */
		{ SUPER, 240, 8, 0, 1 },
		{ AGF, 208, 8, 0, 1 },
		{ NODE, 24, 8, 0, 1 },
		{ LEAF, 24, 8, 0, 1 },
		{ AGF, 0, 4, 0, 1 },
		{ AGF, 4, 4, -EUCLEAN, 2 },
		{ AGF, 8, 4, -EUCLEAN, 1 },
		{ AGF, 12, 4, -EUCLEAN, 4096 },
		{ AGF, 28, 4, -EUCLEAN, 0 },
		{ AGF, 28, 4, -EUCLEAN, 1 },
		{ AGF, 28, 4, -EUCLEAN, 10 },
		{ AGF, 16, 4, -EUCLEAN, 0 },
		{ AGF, 16, 4, -EUCLEAN, 0xffffffff },
		/* in a ring; to nowhere; the same leaf twice; keys that do not ascend */
		{ NODE, 56 + 336 * 8, 4, -EUCLEAN, root_nr },
		{ NODE, 56 + 336 * 8, 4, -EUCLEAN, 0xfffffff0 },
		{ NODE, 56 + 336 * 8 + 4, 4, -EUCLEAN, be_at(root, 56 + 336 * 8, 4) },
		{ NODE, 64, 4, -EUCLEAN, 1 },
		{ NODE, 6, 2, -EUCLEAN, 0 },
		{ NODE, 6, 2, -EUCLEAN, 1000 },
		{ NODE, 4, 2, -EUCLEAN, 2 },
		{ NODE, 0, 4, -EUCLEAN, 0x41423343 },
		{ LEAF, 6, 2, -EUCLEAN, 0 },
		{ LEAF, 6, 2, -EUCLEAN, 508 },
		{ LEAF, 16, 8, -EUCLEAN, 9 },
		{ LEAF, 48, 4, -EUCLEAN, 1 },
		{ LEAF, 32, 4, 0, 0 },
		{ LEAF, 56, 4, -EUCLEAN, 0 },
		{ LEAF, 60, 4, -EUCLEAN, 0 },
		{ LEAF, 60, 4, -EUCLEAN, 0x7fffffff },
		{ LEAF, 64, 4, -EUCLEAN, be_at(leaf, 56, 4) },
		{ LOG, 8, 4, -EOPNOTSUPP, 1 },
		/* it does not end at the head, so the head is where it starts */
		{ LOG, 12, 4, 0, 1024 },
		{ LOG, 16, 8, -EOPNOTSUPP, 1 },
		{ LOG, 24, 8, -EOPNOTSUPP, 1 },
		{ LOG, 24, 8, -EOPNOTSUPP, 1ull << 32 | 1 },
		{ LOG, 40, 4, -EOPNOTSUPP, 6 },
		{ LOG, 40, 4, -EOPNOTSUPP, 1000 },
		{ LOG, 300, 4, -EOPNOTSUPP, 2 },
		{ LOG, 304, 4, -EOPNOTSUPP, 0 },
		{ LOG, 320, 4, 0, 65536 },
		{ LOG, 320, 4, -EOPNOTSUPP, 0 },
		{ LOG, 512 + 8, 2, -EOPNOTSUPP, 0xaa01 },
		{ LOG, 512 + 8, 2, -EOPNOTSUPP, 0x6903 },
		{ LOG, 512 + 4, 4, -EOPNOTSUPP, 4096 },
		/* the transaction's header; then the item */
		{ LOG, 512 + 24, 4, -EOPNOTSUPP, 0 },
		{ LOG, 512 + 24 + 16 + 12, 2, -EOPNOTSUPP, 0xff12 },
	};

	assert_int_equal(be_at(leaf, 4, 2), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint8_t *const places[] = { b->im.p, agf, root, leaf, rec },
			       *p = places[cases[i].where];
		uint8_t was[4096];
		int err;

		memcpy(was, p, sizeof(was));
		be_set(p, cases[i].off, (size_t)cases[i].width, cases[i].v);
		if (cases[i].where == SUPER)
			seal(p, 512, 224);
		else if (cases[i].where == AGF)
			seal(p, 512, 216);
		else if (cases[i].where == LOG)
			seal_record(p);
		else
			seal(p, 4096, 52);
		err = answer(&b->im, WINDOW, b->bits);
		if (err != cases[i].expected)
			fail_msg("case %zu: %d, should be %d", i, err, cases[i].expected);
		if (!err)
			assert_same(b->bits, b->right, b->im.r.volume_blks);
		memcpy(p, was, sizeof(was));
	}
	assert_int_equal(answer(&b->im, WINDOW, b->bits), 0);
}

TEST(test_damage, NULL, teardown)
{
	struct bad b;
	uint64_t calls;

	bad_open(&b);
	check_fields(&b);
	check_flips(&b);
	check_forged(&b);
	/* each read fails once */
	b.im.calls = 0;
	assert_int_equal(answer(&b.im, WINDOW, b.bits), 0);
	calls = b.im.calls;
	for (uint64_t k = 1; k <= calls; k++) {
		b.im.calls = 0;
		b.im.fail_at = k;
		assert_int_equal(answer(&b.im, WINDOW, b.bits), -EIO);
	}
	bad_close(&b);
}

int main(void)
{
	if (geteuid() == 0 &&
	    (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	     workdir_new("xfs-space") < 0))
		return 1;
	/* mkfs.xfs makes small logs for its own tests only */
	setenv("QA_CHECK_FS", "1", 1);
	setenv("TEST_DIR", "x", 1);
	setenv("TEST_DEV", "x", 1);
	if (getenv("ONLY"))
		cmocka_set_test_filter(getenv("ONLY"));
	return tests_run_as_root(NULL, getenv("KEEP") ? NULL : workdir_remove);
}
