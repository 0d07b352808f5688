/* SPDX-License-Identifier: MIT */
/* The operations without a daemon, on image files: their results, and that they print nothing. */
#include "test.h"
#include "fs/guard.h"
#include "workdir.h"

#include "card/blockdev.h"
#include "offline/offline.h"

#define FS_BYTES (40 * MIB)
#define CARD_BYTES (64 * MIB)
#define LOG_BYTES (8 * MIB)
#define A_BLK 9000u /* a free one of the file system */

static char card[80], other[80];
static struct failure fail;

static void must(const char *fmt, ...) PRINTF(1, 2);
static void must(const char *fmt, ...)
{
	char cmd[512] = "PATH=$PATH:/usr/sbin:/sbin; ";
	size_t n = strlen(cmd);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd + n, sizeof(cmd) - n, fmt, ap);
	va_end(ap);
	if (system(cmd) != 0)
		fail_msg("%s", cmd);
}

static int new_card(void **state)
{
	must("rm -f %s %s; truncate -s %llu %s; mke2fs -q -t ext4 -F -E nodiscard %s %lluk >/dev/null 2>&1",
	     card, other, CARD_BYTES, card, card, FS_BYTES / KIB);
	fail = (struct failure){ 0 };
	return 0;
}

static struct format_options usual(void)
{
	return (struct format_options){ .device = card,
					.log_bytes = LOG_BYTES,
					.erase_block_bytes = 64 * KIB };
}

static void format(void)
{
	const struct format_options opt = usual();
	struct format_report rep;

	assert_int_equal(offline_format(&opt, &rep, &fail), 0);
}

static struct check_report check(void)
{
	struct check_report rep;

	assert_int_equal(offline_check(card, NULL, &rep, &fail), 0);
	return rep;
}

static void peek(uint64_t off, void *buf, size_t len)
{
	_cleanup_close_ int fd = open(card, O_RDONLY | O_CLOEXEC);

	assert_int_equal(io_pread_full(fd, buf, len, off), 0);
}

static void poke(const char *path, uint64_t off, const void *buf, size_t len)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, buf, len, (off_t)off), (ssize_t)len);
}

/* As no tool of a file system does. */
static void take_guard(void)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	_cleanup_close_ int fd = open(card, O_RDWR | O_CLOEXEC);

	assert_int_equal(pread(fd, blk, COW_BLK_BYTES, 0), COW_BLK_BYTES);
	assert_true(guard_is(blk, NULL));
	guard_take(blk);
	assert_int_equal(pwrite(fd, blk, COW_BLK_BYTES, 0), COW_BLK_BYTES);
}

/* A block full of fill is committed and waits in the log. */
static void commit_block(uint64_t blk, uint8_t fill)
{
	_cleanup_free_ uint8_t *data = io_alloc(COW_BLK_BYTES);
	struct log_index *ix;
	struct offline f;

	memset(data, fill, COW_BLK_BYTES);
	assert_int_equal(
		offline_open(&f, card, NULL, BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE, 0, &fail), 0);
	assert_int_equal(offline_open_log(&f, &fail), 0);
	assert_int_equal(card_set_writable(f.base, true), 0);
	assert_int_equal(log_prepare(f.log), 0);
	assert_int_equal(log_begin(f.log), 0);
	assert_int_equal(log_add_logged(f.log, blk, 1, data), 0);
	assert_int_equal(log_end(f.log, CAUSE_MANUAL, 0, &ix), 0);
	log_index_unref(ix);
	assert_int_equal(card_set_writable(f.base, false), 0);
	offline_close(&f);
}

static void assert_home(uint8_t fill)
{
	uint8_t buf[COW_BLK_BYTES], want[COW_BLK_BYTES];

	memset(want, fill, sizeof(want));
	peek(blk_to_bytes(A_BLK), buf, sizeof(buf));
	assert_memory_equal(buf, want, sizeof(buf));
}

static int recover(enum recover_accept accept, struct recover_report *ret)
{
	const struct recover_options opt = { .device = card, .accept = accept };

	return offline_recover(&opt, ret, &fail);
}

#define assert_fails(call, error_, exit_, text)                                                    \
	do {                                                                                       \
		assert_int_equal(call, error_);                                                    \
		assert_int_equal(fail.error, error_);                                              \
		assert_int_equal(fail.exit, exit_);                                                \
		assert_non_null(strstr(fail.why, text));                                           \
	} while (0)

/* ---- format ---- */

TEST(test_format, new_card)
{
	struct format_options opt = usual();
	struct format_report rep;

	opt.lag = 1;
	assert_int_equal(offline_format(&opt, &rep, &fail), 0);
	assert_int_equal(rep.super.fs_bytes, FS_BYTES);
	assert_int_equal((uint64_t)rep.super.seg_bytes * rep.super.seg_count, LOG_BYTES);
	assert_int_equal(rep.super.lag, 1);
	assert_int_equal(rep.fs.kind, FS_EXT);
	assert_false(rep.shrunk);
	/* two copies of the superblock; three blocks that are tried, and put back */
	assert_int_equal(rep.written_bytes, 8 * COW_BLK_BYTES);
	assert_int_equal(check().super.lag, 1);
	assert_fails(offline_format(&opt, &rep, &fail), -EEXIST, EXIT_FAILED,
		     "already has a cowfs log");
	opt.over = FORMAT_OVER_OLD_LOG;
	opt.lag = 0;
	assert_int_equal(offline_format(&opt, &rep, &fail), 0);
	assert_int_equal(check().super.lag, 0);
}

TEST(test_format_bad, new_card)
{
	struct format_options opt = usual();
	struct format_report rep;

	opt.log_bytes = 4 * KIB;
	assert_fails(offline_format(&opt, &rep, &fail), -EINVAL, EXIT_USAGE,
		     "too small or too large");
	opt.log_bytes = 30 * MIB;
	assert_fails(offline_format(&opt, &rep, &fail), -ENOSPC, EXIT_FAILED,
		     "no space for the log");
	opt.log_bytes = 0;
	opt.log_device = card;
	assert_fails(offline_format(&opt, &rep, &fail), -EINVAL, EXIT_USAGE, "another device");
	opt.log_device = other;
	opt.shrink = true;
	assert_fails(offline_format(&opt, &rep, &fail), -EINVAL, EXIT_USAGE, "omit --log");
	opt.shrink = false;
	assert_fails(offline_format(&opt, &rep, &fail), -ENOENT, EXIT_FAILED, other);
	opt.log_device = NULL;
	opt.device = dir;
	assert_fails(offline_format(&opt, &rep, &fail), -ENOTBLK, EXIT_FAILED,
		     "neither a block device nor an image file");
	opt.device = card;
	must("truncate -s 0 %s; truncate -s %llu %s", card, CARD_BYTES, card);
	assert_fails(offline_format(&opt, &rep, &fail), -EMEDIUMTYPE, EXIT_FAILED,
		     "no known file system");
	assert_false(strchr(fail.why, '\n') || fail.said[0]);
}

/* Content of a log device is destroyed only on request. */
TEST(test_format_log_device, new_card)
{
	struct format_options opt = { .device = card,
				      .log_device = other,
				      .erase_block_bytes = 64 * KIB };
	struct format_report rep;

	must("truncate -s 16M %s; mkswap %s >/dev/null 2>&1", other, other);
	opt.log_bytes = LOG_BYTES;
	assert_fails(offline_format(&opt, &rep, &fail), -EEXIST, EXIT_FAILED,
		     "which the log would overwrite");
	opt.over = FORMAT_OVER_ALL;
	assert_int_equal(offline_format(&opt, &rep, &fail), 0);
	assert_true(rep.super.external);
	assert_int_equal(rep.super.fs_bytes, CARD_BYTES);
}

/* ---- check ---- */

TEST(test_check, new_card)
{
	struct check_report rep;

	assert_fails(offline_check(card, NULL, &rep, &fail), -ENOENT, EXIT_FAILED, "no cowfs log");
	format();
	rep = check();
	assert_int_equal(rep.verdict, CHECK_GOOD);
	assert_int_equal(rep.log.state, LOG_EMPTY);
	assert_string_equal(rep.device, card);
	assert_string_equal(rep.log_device, card);
	commit_block(A_BLK, 7);
	rep = check();
	assert_int_equal(rep.verdict, CHECK_GOOD);
	assert_int_equal(rep.log.state, LOG_LIVE);
	assert_int_equal(rep.log.live_blks, 2); /* and the superblock */
	poke(card, rep.super.copy_off_bytes[0] + 100, "rot", 3);
	rep = check();
	assert_int_equal(rep.verdict, CHECK_REPAIRABLE);
	assert_int_equal(rep.trouble, SUPER_COPY_A_BAD);
	poke(card, rep.super.copy_off_bytes[1] + 100, "rot", 3);
	assert_fails(offline_check(card, NULL, &rep, &fail), -EBADMSG, EXIT_FAILED,
		     "both superblocks of the log are damaged");
}

/* The content of a committed block is rotten: found and reported. */
TEST(test_check_finds, new_card)
{
	uint8_t buf[COW_BLK_BYTES], want[COW_BLK_BYTES];
	struct check_report rep;
	uint64_t off, hits = 0;

	format();
	commit_block(A_BLK, 7);
	commit_block(A_BLK + 1, 8);
	rep = check();
	memset(want, 7, sizeof(want));
	for (off = rep.super.ring_off_bytes; off < rep.super.copy_off_bytes[1];
	     off += COW_BLK_BYTES) {
		peek(off, buf, sizeof(buf));
		if (memcmp(buf, want, sizeof(buf)))
			continue;
		poke(card, off, "rot", 3);
		hits++;
	}
	assert_int_equal(hits, 1);
	rep = check();
	assert_int_equal(rep.verdict, CHECK_BROKEN);
	assert_int_equal(rep.log.state, LOG_LIVE);
	assert_int_equal(rep.bad_blks, 1);
	assert_int_equal(rep.findings, 1);
	assert_non_null(strstr(rep.finding[0], "9000"));
}

/* ---- recover ---- */

TEST(test_recover, new_card)
{
	struct format_options over = usual();
	struct format_report formatted;
	struct recover_report rep;

	format();
	assert_int_equal(recover(RECOVER_ACCEPT_NOTHING, &rep), 0);
	assert_true(rep.nothing_to_do && !rep.written_bytes);
	commit_block(A_BLK, 7);
	over.over = FORMAT_OVER_ALL;
	assert_fails(offline_format(&over, &formatted, &fail), -ENOTEMPTY, EXIT_FAILED,
		     "holds 2 committed blocks");
	assert_int_equal(recover(RECOVER_ACCEPT_NOTHING, &rep), 0);
	assert_int_equal(rep.log.state, LOG_LIVE);
	assert_int_equal(rep.home_blks, 1);
	assert_true(rep.written_bytes >= COW_BLK_BYTES);
	assert_false(rep.nothing_to_do || rep.dropped || rep.check_with);
	assert_home(7);
	assert_int_equal(check().log.state, LOG_RETIRED);
	assert_int_equal(recover(RECOVER_ACCEPT_NOTHING, &rep), 0);
	assert_true(rep.nothing_to_do && !rep.written_bytes);
}

/* What is copied without its log is guarded, and says so. */
TEST(test_log_missing, new_card)
{
	const struct format_options opt = usual();
	struct check_report rep;
	struct format_report made;

	format();
	commit_block(A_BLK, 7);
	must("truncate -s %llu %s && truncate -s %llu %s", FS_BYTES, card, CARD_BYTES, card);
	assert_fails(offline_check(card, NULL, &rep, &fail), -ENOENT, EXIT_FAILED,
		     "no cowfs log, and " SUPER_LOG_MISSING);
	assert_fails(offline_format(&opt, &made, &fail), -ENOTEMPTY, EXIT_FAILED,
		     SUPER_LOG_MISSING);
	take_guard();
	assert_fails(offline_check(card, NULL, &rep, &fail), -ENOENT, EXIT_FAILED,
		     "no cowfs log (if");
	format();
}

/* The file system was changed without cowfs: a user must decide. */
TEST(test_recover_foreign, new_card)
{
	struct recover_report rep;

	for (int i = 0; i < 2; i++) {
		new_card(NULL);
		format();
		commit_block(A_BLK, 7);
		take_guard();
		must("tune2fs -L elsewhere %s >/dev/null", card);
		assert_int_equal(check().verdict, CHECK_BROKEN);
		assert_int_equal(check().log.state, LOG_FOREIGN);
		assert_fails(recover(RECOVER_ACCEPT_NOTHING, &rep), -ESTALE, EXIT_FAILED,
			     "Decide: --accept base");
		assert_home(0);
		if (i) {
			assert_int_equal(recover(RECOVER_ACCEPT_BASE, &rep), 0);
			assert_null(rep.check_with);
			assert_home(0);
		} else {
			assert_int_equal(recover(RECOVER_ACCEPT_LOG, &rep), 0);
			assert_string_equal(rep.check_with, "e2fsck -f");
			assert_home(7);
		}
		assert_int_equal(check().log.state, LOG_RETIRED);
	}
}

/* ---- grow ---- */

TEST(test_grow, new_card)
{
	struct grow_report rep;

	format();
	assert_int_equal(offline_grow(card, NULL, &rep, &fail), 0);
	assert_true(rep.nothing_to_do);
	must("truncate -s %llu %s", 2 * CARD_BYTES, card);
	assert_int_equal(check().trouble, SUPER_GROWN);
	assert_int_equal(offline_grow(card, NULL, &rep, &fail), 0);
	assert_false(rep.nothing_to_do);
	assert_int_equal(rep.old_bytes, CARD_BYTES);
	assert_int_equal(rep.bytes, 2 * CARD_BYTES);
	assert_int_equal(check().trouble, 0);
}

/* ---- all of them ---- */

/* ---- a card that has less than it says ---- */

static const struct card_ops *real_ops;
static struct {
	uint64_t real_bytes;
	bool wraps; /* or it forgets what lies behind */
} fake;

static uint64_t fake_place(uint64_t off_bytes)
{
	return fake.wraps ? off_bytes % fake.real_bytes : off_bytes;
}

static int fake_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	return real_ops->read(c, fake_place(off_bytes), buf, len_bytes);
}

static int fake_write(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	if (fake_place(off_bytes) >= fake.real_bytes)
		return 0;
	return real_ops->write(c, fake_place(off_bytes), buf, len_bytes);
}

/* What offline_probe says of it, which leaves all as it was. */
static int probe(uint64_t real_bytes, bool wraps)
{
	struct card_ops ops;
	struct card *c;
	int r;

	fake.real_bytes = real_bytes;
	fake.wraps = wraps;
	must("cp %s %s", card, other);
	assert_int_equal(blockdev_open(&c, card, BLOCKDEV_ALLOW_FILE, NULL), 0);
	real_ops = c->ops;
	ops = *real_ops;
	ops.read = fake_read;
	ops.write = fake_write;
	c->ops = &ops;
	fail = (struct failure){ 0 };
	r = offline_probe(c, FS_BYTES, &fail);
	assert_false(c->writable);
	c->ops = real_ops;
	card_close(c);
	must("cmp %s %s", card, other);
	return r;
}

TEST(test_probe, new_card)
{
	poke(card, CARD_BYTES - 2 * COW_BLK_BYTES, "there", 6);
	assert_int_equal(probe(CARD_BYTES, true), 0);
	/* the room wraps into the file system, or into itself */
	for (uint64_t real = 8 * MIB; real < CARD_BYTES; real += 7 * MIB) {
		assert_int_equal(probe(real, true), -EIO);
		assert_int_equal(probe(real, false), -EIO);
		assert_non_null(strstr(fail.why, "does not keep what is written"));
	}
	probe(61 * MIB, true);
	assert_non_null(strstr(fail.why, "says that it has 64.0 MiB, and has 61.0 MiB"));
}

TEST(test_silent, new_card)
{
	int said = memfd_create("said", MFD_CLOEXEC), out = dup(STDOUT_FILENO),
	    err = dup(STDERR_FILENO);
	struct check_report checked;
	struct recover_report recovered;
	struct grow_report grown;
	int e[4];

	fflush(stdout);
	dup2(said, STDOUT_FILENO);
	dup2(said, STDERR_FILENO);
	e[0] = offline_check(card, NULL, &checked, &fail);
	format();
	e[1] = offline_check(card, NULL, &checked, &fail);
	commit_block(A_BLK, 7);
	e[2] = recover(RECOVER_ACCEPT_NOTHING, &recovered);
	e[3] = offline_grow(card, NULL, &grown, &fail);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	assert_int_equal(e[0], -ENOENT);
	assert_int_equal(e[1] | e[2] | e[3], 0);
	assert_int_equal(lseek(said, 0, SEEK_END), 0);
	close(said);
	close(out);
	close(err);
}

int main(void)
{
	if (workdir_new("offline") < 0)
		return 1;
	snprintf(card, sizeof(card), "%s/card", dir);
	snprintf(other, sizeof(other), "%s/other", dir);
	return tests_run(NULL, workdir_remove);
}
