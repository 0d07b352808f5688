// SPDX-License-Identifier: MIT
/*
 * Random reads, writes, discards and zeroings of a block device at the granularity of 512 bytes,
 * checked against a model in memory; a command (such as a commit) runs between or beside them.
 *
 * Every 512-byte sector that is written starts with the number of the operation and of the sector,
 * so that a mismatch names the operation whose data is missing and the one whose data is there
 * instead. The device is read through the page cache and past it in turns; so it is written.
 *
 * Two files keep the model for later: --model at the end, --committed after every good --run (the
 * device is synced before, and nothing changes meanwhile unless --background).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/parse.h"
#include "config/options.h"
#include "rnd.h"

#define SECTOR_BYTES 512u
#define SECTOR_SHIFT 9
#define OP_MAX_SECTORS 512u /* 256 KiB */
#define HOT_SECTORS 1024u
#define CHECK_BYTES (1u << 20)
#define LOG_TAIL 24u
#define BUSY_NS 10000000000ull

enum op_kind { OP_READ, OP_WRITE, OP_SAME, OP_ZEROES, OP_DISCARD, OP_WRITE_ZEROES, OP_RUN };

static const char *const op_names[] = { "read",	   "write",	   "write-same", "write-of-zeroes",
					"discard", "write-zeroes", "run" };

struct op {
	enum op_kind kind;
	bool direct;
	uint64_t sector;
	uint32_t sectors;
};

struct tester {
	const char *path, *command;
	int buffered_fd, direct_fd;
	uint64_t sectors;
	uint8_t *model, *buf;
	struct op *log;
	uint64_t ops, done;
	uint64_t every;
	uint64_t hot_sector;
	uint64_t random;
	bool background;
	pid_t child;
	uint64_t runs;
	const char *committed_path;
	bool trace;
};

static uint64_t next_random(struct tester *t)
{
	uint64_t z = (t->random += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint64_t below(struct tester *t, uint64_t n)
{
	return next_random(t) % n;
}

/* ---- what went wrong ---- */

static void print_op(const struct tester *t, uint64_t n)
{
	const struct op *o = &t->log[n];

	fprintf(stderr, "  op %-7" PRIu64 " %-15s %s sector %" PRIu64 " + %u\n", n,
		op_names[o->kind], o->direct ? "direct  " : "buffered", o->sector, o->sectors);
}

static void print_history(const struct tester *t, uint64_t sector)
{
	uint64_t first = t->done > LOG_TAIL ? t->done - LOG_TAIL : 0;

	fprintf(stderr, "operations on this sector:\n");
	for (uint64_t n = 0; n < t->done; n++)
		if (t->log[n].kind != OP_RUN && t->log[n].kind != OP_READ &&
		    t->log[n].sector <= sector && sector < t->log[n].sector + t->log[n].sectors)
			print_op(t, n);
	fprintf(stderr, "the last %u operations:\n", LOG_TAIL);
	for (uint64_t n = first; n < t->done; n++)
		print_op(t, n);
}

static void describe(const char *what, const uint8_t *p)
{
	uint64_t tag[2];

	memcpy(tag, p, sizeof(tag));
	if (!tag[0] && !tag[1])
		fprintf(stderr, "  %s: zeroes\n", what);
	else
		fprintf(stderr, "  %s: of op %" PRIu64 ", written for sector %" PRIu64 "\n", what,
			tag[0] - 1, tag[1]);
}

/* 0 or -EBADE, with a story */
static int compare(const struct tester *t, const uint8_t *got, uint64_t sector, uint64_t sectors,
		   const char *how)
{
	uint64_t bad = 0, first = 0;

	for (uint64_t i = 0; i < sectors; i++)
		if (memcmp(got + (i << SECTOR_SHIFT), t->model + ((sector + i) << SECTOR_SHIFT),
			   SECTOR_BYTES) &&
		    !bad++)
			first = i;
	if (!bad)
		return 0;
	fprintf(stderr,
		"fsxcow: %s: MISMATCH in a %s read of sector %" PRIu64 " + %" PRIu64 ": %" PRIu64
		" sectors differ, the first is %" PRIu64 " (4 KiB block %" PRIu64 ")\n",
		t->path, how, sector, sectors, bad, sector + first, (sector + first) >> 3);
	describe("expected", t->model + ((sector + first) << SECTOR_SHIFT));
	describe("found", got + (first << SECTOR_SHIFT));
	if (t->log)
		print_history(t, sector + first);
	return -EBADE;
}

/* ---- operations ---- */

static void fill(const struct tester *t, const struct op *o, uint64_t n)
{
	for (uint64_t s = 0; s < o->sectors; s++) {
		uint64_t word[SECTOR_BYTES / 8],
			x = (n + 1) * 0x2545f4914f6cdd1dull + o->sector + s;

		word[0] = n + 1;
		word[1] = o->sector + s;
		for (size_t i = 2; i < ARRAY_SIZE(word); i++)
			word[i] = rnd_next(&x);
		memcpy(t->buf + (s << SECTOR_SHIFT), word, sizeof(word));
	}
}

static int do_write(struct tester *t, const struct op *o, uint64_t n)
{
	uint8_t *at = t->model + (o->sector << SECTOR_SHIFT);
	size_t len = (size_t)o->sectors << SECTOR_SHIFT;

	if (o->kind == OP_WRITE)
		fill(t, o, n);
	else if (o->kind == OP_SAME)
		memcpy(t->buf, at, len);
	else
		memset(t->buf, 0, len);
	memcpy(at, t->buf, len);
	return io_pwrite_full(o->direct ? t->direct_fd : t->buffered_fd, t->buf, len,
			      o->sector << SECTOR_SHIFT);
}

/* Refused while somebody holds the device exclusively: a commit does while nothing is mounted. */
static int do_punch(struct tester *t, const struct op *o)
{
	uint64_t range[2] = { o->sector << SECTOR_SHIFT, (uint64_t)o->sectors << SECTOR_SHIFT };
	uint64_t end_ns = now_ns() + BUSY_NS;

	memset(t->model + range[0], 0, range[1]);
	while (ioctl(t->direct_fd, o->kind == OP_DISCARD ? BLKDISCARD : BLKZEROOUT, range) < 0) {
		if (errno != EBUSY || now_ns() > end_ns)
			return -errno;
		usleep(1000);
	}
	return 0;
}

static int do_read(struct tester *t, const struct op *o)
{
	int e = io_pread_full(o->direct ? t->direct_fd : t->buffered_fd, t->buf,
			      (size_t)o->sectors << SECTOR_SHIFT, o->sector << SECTOR_SHIFT);

	return e < 0 ? e
		     : compare(t, t->buf, o->sector, o->sectors, o->direct ? "direct" : "buffered");
}

static void choose(struct tester *t, struct op *o)
{
	static const uint32_t size_limit[] = { 2, 8, 8, 16, 64, OP_MAX_SECTORS };
	uint64_t dice = below(t, 100);

	o->kind = dice < 30   ? OP_READ
		  : dice < 75 ? OP_WRITE
		  : dice < 80 ? OP_SAME
		  : dice < 85 ? OP_ZEROES
		  : dice < 94 ? OP_DISCARD
			      : OP_WRITE_ZEROES;
	o->direct = below(t, 2);
	o->sectors = (uint32_t)min_u64(1 + below(t, size_limit[below(t, ARRAY_SIZE(size_limit))]),
				       t->sectors);
	if (below(t, 200) == 0)
		t->hot_sector = below(t, t->sectors);
	o->sector = below(t, 2) ? below(t, t->sectors) : t->hot_sector + below(t, HOT_SECTORS);
	o->sector = min_u64(o->sector, t->sectors - o->sectors);
	if (below(t, 3) == 0 && o->sector % 8 + o->sectors >= 8) /* whole 4 KiB blocks, too */
		o->sector -= o->sector % 8;
}

/* ---- the command ---- */

static int save(const struct tester *t, const char *path)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	return io_pwrite_full(fd, t->model, t->sectors << SECTOR_SHIFT, 0);
}

static int reap(struct tester *t, bool wait)
{
	int status;
	pid_t pid = t->child ? waitpid(t->child, &status, wait ? 0 : WNOHANG) : 0;

	if (pid <= 0)
		return 0;
	t->child = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		t->runs++;
		return 0;
	}
	fprintf(stderr, "fsxcow: '%s' failed with status %d at op %" PRIu64 "\n", t->command,
		WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), t->done);
	return -ECHILD;
}

static int run_command(struct tester *t)
{
	int e = reap(t, false);

	if (e < 0 || t->child)
		return e;
	if (fsync(t->buffered_fd) < 0)
		return -errno;
	t->child = fork();
	if (t->child < 0)
		return -errno;
	if (t->child == 0) {
		execl("/bin/sh", "sh", "-c", t->command, NULL);
		_exit(127);
	}
	if (t->background)
		return 0;
	e = reap(t, true);
	if (e == 0 && t->committed_path)
		e = save(t, t->committed_path);
	return e;
}

/* ---- a run ---- */

static int step(struct tester *t, struct op *o, uint64_t n)
{
	choose(t, o);
	t->done = n + 1;
	if (t->trace)
		print_op(t, n);
	if (o->kind == OP_READ)
		return do_read(t, o);
	if (o->kind == OP_DISCARD || o->kind == OP_WRITE_ZEROES)
		return do_punch(t, o);
	return do_write(t, o, n);
}

static int verify(struct tester *t)
{
	int fds[] = { t->direct_fd, t->buffered_fd };
	_cleanup_free_ uint8_t *got = io_alloc(CHECK_BYTES);

	if (!got)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		for (uint64_t off = 0, len; off < t->sectors << SECTOR_SHIFT; off += len) {
			int e;

			len = min_u64(CHECK_BYTES, (t->sectors << SECTOR_SHIFT) - off);
			e = io_pread_full(fds[i], got, len, off);
			if (e == 0)
				e = compare(t, got, off >> SECTOR_SHIFT, len >> SECTOR_SHIFT,
					    i ? "buffered" : "direct");
			if (e < 0)
				return e;
		}
	return 0;
}

static int run(struct tester *t)
{
	int e = 0;

	t->log = calloc(t->ops ? t->ops : 1, sizeof(*t->log));
	if (!t->log)
		return -ENOMEM;
	for (uint64_t n = 0; n < t->ops && e == 0; n++) {
		if (t->command && n % t->every == t->every - 1) {
			t->log[n].kind = OP_RUN;
			t->done = n + 1;
			e = run_command(t);
		} else {
			e = step(t, &t->log[n], n);
			if (e < 0 && e != -EBADE) {
				fprintf(stderr, "fsxcow: %s: %s at:\n", t->path, strerror(-e));
				print_op(t, n);
			}
		}
	}
	if (e == 0)
		e = reap(t, true);
	if (e == 0)
		e = verify(t);
	return e;
}

static int load(struct tester *t, const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return io_pread_full(fd, t->model, t->sectors << SECTOR_SHIFT, 0);
}

static int open_device(struct tester *t, bool verify_only, uint64_t size_bytes)
{
	int access = verify_only ? O_RDONLY : O_RDWR;
	off_t end;

	t->buffered_fd = open(t->path, access | O_CLOEXEC);
	t->direct_fd = open(t->path, access | O_DIRECT | O_CLOEXEC);
	if (t->buffered_fd < 0 || t->direct_fd < 0)
		return -errno;
	end = lseek(t->buffered_fd, 0, SEEK_END);
	if (end < (off_t)SECTOR_BYTES)
		return end < 0 ? -errno : -EINVAL;
	if (size_bytes > (uint64_t)end)
		return -ERANGE;
	t->sectors = (size_bytes ? size_bytes : (uint64_t)end) >> SECTOR_SHIFT;
	t->model = io_alloc(t->sectors << SECTOR_SHIFT);
	t->buf = io_alloc(OP_MAX_SECTORS << SECTOR_SHIFT);
	return t->model && t->buf ? 0 : -ENOMEM;
}

enum {
	OPT_SEED,
	OPT_OPS,
	OPT_RUN,
	OPT_EVERY,
	OPT_BACKGROUND,
	OPT_MODEL,
	OPT_COMMITTED,
	OPT_VERIFY_ONLY,
	OPT_SIZE,
	OPT_TRACE,
	OPT_HELP
};

static const struct option_spec specs[] = {
	{ OPT_SEED, "seed", "N", "of the random numbers (default 1)" },
	{ OPT_OPS, "ops", "N", "how many operations (default 10000)" },
	{ OPT_RUN, "run", "COMMAND", "run this shell command now and then" },
	{ OPT_EVERY, "every", "N", "at every N-th operation (default 500)" },
	{ OPT_BACKGROUND, "background", NULL, "go on with the operations while it runs" },
	{ OPT_MODEL, "model", "FILE", "write the expected content there at the end" },
	{ OPT_COMMITTED, "committed", "FILE", "and that of the last good COMMAND there" },
	{ OPT_VERIFY_ONLY, "verify-only", "FILE", "compare DEVICE with a model, write nothing" },
	{ OPT_SIZE, "size", "BYTES", "use only so much of DEVICE" },
	{ OPT_TRACE, "trace", NULL, "print every operation" },
	{ OPT_HELP, "help", NULL, "show this help" },
	{ 0, NULL, NULL, NULL },
};

static bool take_number(const struct options *o, unsigned id, uint64_t *ret)
{
	return !o->value[id] || parse_u64(o->value[id], ret) == 0;
}

int main(int argc, char **argv)
{
	struct tester t = {
		.buffered_fd = -1, .direct_fd = -1, .random = 1, .ops = 10000, .every = 500
	};
	uint64_t size_bytes = 0;
	struct options o;
	char why[256];
	int e;

	if (options_parse(argc - 1, argv + 1, specs, &o, why, sizeof(why)) < 0 || o.operands != 1 ||
	    o.value[OPT_HELP] || !take_number(&o, OPT_SEED, &t.random) ||
	    !take_number(&o, OPT_OPS, &t.ops) || !take_number(&o, OPT_EVERY, &t.every) ||
	    !t.every || (o.value[OPT_SIZE] && parse_size(o.value[OPT_SIZE], &size_bytes) < 0)) {
		fprintf(stderr, "usage: fsxcow [OPTION]... DEVICE\n");
		options_help(stderr, specs);
		return 2;
	}
	t.path = o.operand[0];
	t.command = o.value[OPT_RUN];
	t.background = o.value[OPT_BACKGROUND];
	t.committed_path = o.value[OPT_COMMITTED];
	t.trace = o.value[OPT_TRACE];
	e = open_device(&t, o.value[OPT_VERIFY_ONLY], size_bytes);
	if (e == 0)
		e = load(&t, o.value[OPT_VERIFY_ONLY] ? o.value[OPT_VERIFY_ONLY] : t.path);
	if (e == 0)
		e = o.value[OPT_VERIFY_ONLY] ? verify(&t) : run(&t);
	if (e == 0 && o.value[OPT_MODEL])
		e = save(&t, o.value[OPT_MODEL]);
	if (e < 0) {
		fprintf(stderr, "fsxcow: %s: %s\n", t.path,
			e == -EBADE ? "the content is wrong" : strerror(-e));
		return 1;
	}
	printf("fsxcow: %s: %" PRIu64 " operations, %" PRIu64
	       " good runs of the command, content as expected\n",
	       t.path, t.done, t.runs);
	return 0;
}
