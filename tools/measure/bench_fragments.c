/* SPDX-License-Identifier: MIT */
/*
 * What fragmentation costs: requests of four sizes to a file in three states.
 * - blank: allocated at once, before the others;
 * - fragmented: of a file twice as large, the ager has removed one of each two pieces, so that the
 *   rest lies in pieces with gaps between them;
 * - defragmented: allocated at once, as a defragmenter leaves it, with the fragmented file there.
 * fio fills each file with data. The extents are counted, because file systems differ.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "measure/bench_run.h"

#define FILE_BYTES (16 * MIB)
#define PIECE_BYTES (16 * KIB)
#define FILL_MS 120000u
#define REQUESTS 200u
#define FRAGMENTED_MIN (FILE_BYTES / PIECE_BYTES / 4) /* extents; less is not fragmented */

enum state { BLANK, FRAGMENTED, DEFRAGMENTED, STATES };
static const char *const state_name[] = { "blank", "fragmented", "defragmented" };
_Static_assert((STATES + 1) * FILE_BYTES == BENCH_FRAGMENTS_BYTES, "one file is twice as large");

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* Removes the first or the second piece of each pair. -EOPNOTSUPP: the file system cannot. */
static int age(int fd, uint64_t seed)
{
	for (uint64_t off = 0; off < FILE_BYTES; off += PIECE_BYTES) {
		/* not the end of the file, which would be a truncation */
		uint64_t second = off + PIECE_BYTES < FILE_BYTES ? next_random(&seed) >> 63 : 0;

		if (fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, (off_t)(off + second * PIECE_BYTES),
			      PIECE_BYTES) < 0)
			return -errno;
		if (fio_signal())
			return -EINTR;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

/* 1: this state cannot be made here, and it is noted why. */
static int skip(struct bench_run *b, const char *why)
{
	bench_skip(b, "fragments", why);
	return 1;
}

/* Makes the file of a state. 0 with the descriptor, 1, or -errno. */
static int make(struct bench_run *b, enum state state, int *ret_fd)
{
	uint64_t len = state == FRAGMENTED ? 2 * FILE_BYTES : FILE_BYTES;
	struct fio_job job = {
		.rw = "write",
		.len_bytes = len,
		.request_bytes = MIB,
		.total_bytes = len,
		.limit_ms = FILL_MS,
	};
	struct fio_result r = { 0 };
	int fd, e;

	if (b->planning)
		return bench_step(b, &job, &r, "-");
	fd = bench_file(&b->t, len, true);
	if (fd < 0)
		return failure_set(b->f, EXIT_FAILED, fd, "%s: no file can be made: %s", b->t.path,
				   strerrordesc_np(-fd));
	*ret_fd = job.fd = fd;
	e = bench_step(b, &job, &r, "making a file: %s", state_name[state]);
	if (e < 0)
		return e;
	if (r.write.bytes != len)
		return skip(b, "the files were not complete after 2 minutes");
	if (state != FRAGMENTED)
		return 0;
	e = age(fd, b->seed);
	if (e == -EOPNOTSUPP || e == -EINVAL || e == -ENOSYS)
		return skip(b, "the file system cannot remove a part of a file, which makes the "
			       "fragments");
	if (e == -EINTR)
		return failure_set(b->f, EXIT_FAILED, e, "interrupted");
	return e < 0 ? failure_set(b->f, EXIT_FAILED, e, "%s: a file cannot be fragmented: %s",
				   b->t.path, strerrordesc_np(-e))
		     : 0;
}

static int check(struct bench_run *b, enum state state, int fd, struct json_object *o)
{
	int64_t n = bench_extents(fd);

	if (n <= 0)
		return skip(b, "the file system does not report the extents of files");
	json_object_object_add(o, "extents", json_object_new_int64(n));
	return state == FRAGMENTED && n < (int64_t)FRAGMENTED_MIN
		       ? skip(b, "the file system keeps the file in few pieces")
		       : 0;
}

static int measure(struct bench_run *b, int fd, struct json_object *rows, uint64_t size)
{
	struct json_object *row = json_object_new_object();
	struct fio_job job = {
		.fd = fd,
		.rw = "randwrite",
		.len_bytes = FILE_BYTES,
		.request_bytes = size,
		.total_bytes = REQUESTS * size,
		.limit_ms = bench_quick_ms(),
	};
	struct fio_result r;
	int e = bench_step(b, &job, &r, "writes of %s", FORMAT_SIZE(size));

	json_object_array_add(rows, row);
	json_object_object_add(row, "block_bytes", json_object_new_uint64(size));
	if (e == 0 && !b->planning)
		json_object_object_add(row, "write", bench_figures(&r));
	job.rw = "randread";
	if (e == 0)
		e = bench_step(b, &job, &r, "reads of %s", FORMAT_SIZE(size));
	if (e == 0 && !b->planning)
		json_object_object_add(row, "read", bench_figures(&r));
	return e;
}

static int run_state(struct bench_run *b, enum state state, int *ret_fd, struct json_object *list)
{
	static const uint64_t sizes[] = { 512, 32 * KIB, 256 * KIB, 2 * MIB };
	struct json_object *o = json_object_new_object(), *rows = json_object_new_array();
	int e = make(b, state, ret_fd);

	json_object_array_add(list, o);
	json_object_object_add(o, "state", json_object_new_string(state_name[state]));
	json_object_object_add(o, "rows", rows);
	if (e == 0 && !b->planning)
		e = check(b, state, *ret_fd, o);
	for (size_t i = 0; i < ARRAY_SIZE(sizes) && e == 0; i++)
		if (sizes[i] >= b->t.sector_bytes)
			e = measure(b, *ret_fd, rows, sizes[i]);
	return e;
}

int bench_fragments(struct bench_run *b)
{
	struct json_object *list;
	int fd[STATES], e = 0;

	if (!b->t.is_dir) {
		bench_skip(b, "fragments", "files are needed: name a directory on the device");
		return 0;
	}
	list = json_object_new_array();
	json_object_object_add(b->doc, "fragments", list);
	for (int i = 0; i < STATES; i++)
		fd[i] = 0;
	for (enum state s = BLANK; s < STATES && e == 0; s++)
		e = run_state(b, s, &fd[s], list);
	for (int i = 0; i < STATES; i++)
		if (fd[i] > 0)
			close(fd[i]);
	if (e == 1)
		json_object_object_del(b->doc, "fragments");
	return e < 0 ? e : 0;
}
