/* SPDX-License-Identifier: MIT */
/*
 * The shim of tests/tools/powercut.c really cuts: this program runs itself again under the shim, as
 * the victim that writes to a loop device, and inspects the remaining content.
 */
#include "test.h"
#include "scratch.h"

#define SECTOR_BYTES 512u
#define IMAGE_BYTES (1 * MIB)
#define IMAGE_SECTORS (IMAGE_BYTES / SECTOR_BYTES)
#define SYNCED_BLKS 16u /* 'A', blocks 0 to 15, synced */
#define FIRST_B_BLK 8u	/* 'B', blocks 8 to 23, not synced: half of them over 'A' */
#define END_B_BLK 24u
#define LAST_BLKS 4u /* 'C', blocks 24 to 27, one write */
#define OP_SYNC_A (SYNCED_BLKS + 1)
#define OP_C (OP_SYNC_A + END_B_BLK - FIRST_B_BLK + 1)
#define OP_SYNC_C (OP_C + 1)

static struct scratch s;
static char self[256], shim[300], cut_file[128], cut_log[128];
static unsigned char image[IMAGE_BYTES];

/* ---- the victim ---- */

static void victim_write(int fd, unsigned char *buf, char with, unsigned blk, unsigned blks)
{
	memset(buf, with, (size_t)blks * COW_BLK_BYTES);
	if (io_pwrite_full(fd, buf, (size_t)blks * COW_BLK_BYTES, (uint64_t)blk * COW_BLK_BYTES) <
	    0)
		exit(3);
}

static int victim(const char *device, const char *arm)
{
	int fd = open(device, O_RDWR | O_DIRECT | O_CLOEXEC), arm_fd;
	unsigned char *buf = io_alloc(LAST_BLKS * COW_BLK_BYTES);

	if (fd < 0 || !buf)
		return 2;
	for (unsigned b = 0; b < SYNCED_BLKS; b++)
		victim_write(fd, buf, 'A', b, 1);
	if (fdatasync(fd) < 0)
		return 4;
	if (*arm) {
		arm_fd = open(cut_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (arm_fd < 0 || write(arm_fd, arm, strlen(arm)) < 0)
			return 5;
		close(arm_fd);
	}
	for (unsigned b = FIRST_B_BLK; b < END_B_BLK; b++)
		victim_write(fd, buf, 'B', b, 1);
	victim_write(fd, buf, 'C', END_B_BLK, LAST_BLKS);
	return fdatasync(fd) < 0 ? 4 : 0;
}

/* Runs it on a device full of 'o'; returns its wait status. The device's content is in image
 * then. */
static int run_victim(const char *after, const char *arm, unsigned seed)
{
	_cleanup_free_ unsigned char *buf = io_alloc(IMAGE_BYTES);
	_cleanup_close_ int fd = open(s.loop.path, O_RDWR | O_DIRECT | O_CLOEXEC);
	char seed_text[16];
	int status;
	pid_t pid;

	memset(buf, 'o', IMAGE_BYTES);
	assert_int_equal(io_pwrite_full(fd, buf, IMAGE_BYTES, 0), 0);
	snprintf(seed_text, sizeof(seed_text), "%u", seed);
	pid = fork();
	if (pid == 0) {
		setenv("LD_PRELOAD", shim, 1);
		setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
		setenv("COWFS_CUT_AFTER", after, 1);
		setenv("COWFS_CUT_FILE", cut_file, 1);
		setenv("COWFS_CUT_LOG", cut_log, 1);
		setenv("COWFS_CUT_SEED", seed_text, 1);
		execl(self, self, "victim", s.loop.path, arm, cut_file, NULL);
		_exit(99);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	unlink(cut_file);
	unlink(cut_log);
	assert_int_equal(io_pread_full(fd, buf, IMAGE_BYTES, 0), 0);
	memcpy(image, buf, IMAGE_BYTES);
	return status;
}

static void assert_killed(int status)
{
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ---- the remaining content ---- */

/* The letter that fills the sector; '?' for anything else. */
static char sector_is(unsigned sector)
{
	const unsigned char *p = image + (size_t)sector * SECTOR_BYTES;

	return !memcmp(p, p + 1, SECTOR_BYTES - 1) && strchr("oABC", *p) ? (char)*p : '?';
}

static bool all_are(unsigned blk, unsigned end_blk, const char *letters)
{
	for (unsigned i = blk * 8; i < end_blk * 8; i++)
		if (!strchr(letters, sector_is(i)))
			return false;
	return true;
}

static bool some_is(unsigned blk, unsigned end_blk, char letter)
{
	for (unsigned i = blk * 8; i < end_blk * 8; i++)
		if (sector_is(i) == letter)
			return true;
	return false;
}

static void check_limits(void)
{
	assert_true(all_are(0, FIRST_B_BLK, "A")); /* synced */
	assert_true(all_are(FIRST_B_BLK, SYNCED_BLKS, "AB?"));
	assert_true(all_are(SYNCED_BLKS, END_B_BLK, "oB?"));
	assert_true(all_are(END_B_BLK, END_B_BLK + LAST_BLKS, "oC?"));
	assert_true(all_are(END_B_BLK + LAST_BLKS, IMAGE_SECTORS / 8, "o"));
}

TEST(test_no_cut)
{
	int status = run_victim("1000", "", 1);

	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(all_are(0, FIRST_B_BLK, "A"));
	assert_true(all_are(FIRST_B_BLK, END_B_BLK, "B"));
	assert_true(all_are(END_B_BLK, END_B_BLK + LAST_BLKS, "C"));
}

TEST(test_at_write)
{
	char after[16];
	unsigned char first[64 * KIB * 2];

	snprintf(after, sizeof(after), "%u", OP_C);
	for (unsigned seed = 1; seed <= 8; seed++) {
		assert_killed(run_victim(after, "", seed));
		check_limits();
		/* some of 16 unsynced writes are kept, lost and noise: the fixed seeds make this
		 * stable */
		assert_true(some_is(SYNCED_BLKS, END_B_BLK, 'B') ||
			    some_is(FIRST_B_BLK, SYNCED_BLKS, 'B'));
		assert_true(some_is(SYNCED_BLKS, END_B_BLK, 'o') ||
			    some_is(FIRST_B_BLK, SYNCED_BLKS, 'A'));
		/* the write under way: old and new sectors, nothing else */
		assert_true(all_are(END_B_BLK, END_B_BLK + LAST_BLKS, "oC"));
		assert_true(some_is(END_B_BLK, END_B_BLK + LAST_BLKS, 'o'));
		assert_true(some_is(END_B_BLK, END_B_BLK + LAST_BLKS, 'C'));
		memcpy(first, image, sizeof(first));
		assert_killed(run_victim(after, "", seed));
		assert_memory_equal(first, image, sizeof(first));
	}
}

TEST(test_at_sync)
{
	bool lost = false, kept = false, noise = false;
	char after[16];

	snprintf(after, sizeof(after), "%u", OP_SYNC_C);
	for (unsigned seed = 1; seed <= 16; seed++) {
		assert_killed(run_victim(seed & 1 ? after : "s2", "", seed));
		check_limits();
		lost |= all_are(END_B_BLK, END_B_BLK + LAST_BLKS, "o");
		kept |= all_are(END_B_BLK, END_B_BLK + LAST_BLKS, "C");
		noise |= some_is(FIRST_B_BLK, END_B_BLK, '?');
	}
	assert_true(lost && kept && noise);
}

TEST(test_first_operation)
{
	assert_killed(run_victim("1", "", 1));
	assert_true(all_are(0, 1, "oA"));
	assert_true(all_are(1, IMAGE_SECTORS / 8, "o"));
}

/* Armed when the victim has done its first sync: counts from that point. */
TEST(test_armed_later)
{
	assert_killed(run_victim("0", "1", 1));
	assert_true(all_are(0, FIRST_B_BLK, "A"));
	assert_true(all_are(FIRST_B_BLK, FIRST_B_BLK + 1, "AB"));
	assert_true(all_are(FIRST_B_BLK + 1, SYNCED_BLKS, "A"));
	assert_true(all_are(SYNCED_BLKS, IMAGE_SECTORS / 8, "o"));
}

TEST(test_after_sync)
{
	assert_killed(run_victim("s1+2", "", 1));
	assert_true(all_are(0, FIRST_B_BLK, "A"));
	assert_true(all_are(FIRST_B_BLK, FIRST_B_BLK + 1, "AB?"));
	assert_true(all_are(FIRST_B_BLK + 1, FIRST_B_BLK + 2, "AB"));
	assert_true(some_is(FIRST_B_BLK + 1, FIRST_B_BLK + 2, 'B'));
	assert_true(all_are(FIRST_B_BLK + 2, SYNCED_BLKS, "A"));
	assert_true(all_are(SYNCED_BLKS, IMAGE_SECTORS / 8, "o"));
}

static int setup(void **state)
{
	if (!scratch_new(&s, NULL, IMAGE_BYTES))
		return -1;
	snprintf(cut_file, sizeof(cut_file), "%s/cut", s.dir);
	snprintf(cut_log, sizeof(cut_log), "%s/cut-log", s.dir);
	return 0;
}

static int teardown(void **state)
{
	scratch_free(&s);
	return 0;
}

int main(int argc, char **argv)
{
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (argc == 5 && !strcmp(argv[1], "victim")) {
		snprintf(cut_file, sizeof(cut_file), "%s", argv[4]);
		return victim(argv[2], argv[3]);
	}
	if (n <= 0)
		return 1;
	snprintf(shim, sizeof(shim), "%.*s/powercut.so", (int)(strrchr(self, '/') - self), self);
	return tests_run_as_root(setup, teardown);
}
