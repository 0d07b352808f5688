/* SPDX-License-Identifier: MIT */
/* Traces: reading returns what was written, and nothing else passes for a trace. */
#include "test.h"
#include "workdir.h"
#include "trace_read.h"

#define VOLUME (8 * MIB)
#define MANY 5000

static char path[96], data[96], why[256];

static void write_bytes(const char *name, uint64_t off, const void *bytes, size_t len)
{
	int fd = open(name, O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(io_pwrite_full(fd, bytes, len, off), 0);
	close(fd);
}

static struct flash_trace_record record_of(unsigned i)
{
	static const uint8_t ops[] = { FLASH_TRACE_WRITE,   FLASH_TRACE_WRITE, FLASH_TRACE_FLUSH,
				       FLASH_TRACE_DISCARD, FLASH_TRACE_WRITE, FLASH_TRACE_SYNC,
				       FLASH_TRACE_COMMIT };
	struct flash_trace_record rec = { .time_ns = i * 1000ull,
					  .op = ops[i % 7],
					  .data = FLASH_TRACE_NO_DATA };

	if (rec.op == FLASH_TRACE_WRITE || rec.op == FLASH_TRACE_DISCARD) {
		rec.off_bytes = i % 1000 * 512;
		rec.len_bytes = 512 * (1 + i % 9);
	}
	if (rec.op == FLASH_TRACE_WRITE && i % 2)
		rec.flags = FLASH_TRACE_FUA;
	return rec;
}

static void fill(uint8_t *buf, unsigned i, size_t len)
{
	memset(buf, i % 7 == 4 ? 0 : (int)(1 + i % 250), len);
}

static void make(bool contents)
{
	struct flash_trace_writer *w;
	uint8_t buf[512 * 9];

	assert_int_equal(flash_trace_create(&w, path, VOLUME, contents), 0);
	for (unsigned i = 0; i < MANY; i++) {
		struct flash_trace_record rec = record_of(i);

		fill(buf, i, sizeof(buf));
		assert_int_equal(flash_trace_add(w, &rec, buf), 0);
	}
	assert_int_equal(flash_trace_finish(w), 0);
}

TEST(test_round)
{
	struct flash_trace *t;

	make(true);
	assert_int_equal(flash_trace_open(&t, path, why, sizeof(why)), 0);
	assert_int_equal(flash_trace_volume_bytes(t), VOLUME);
	assert_int_equal(flash_trace_records(t), MANY);
	for (unsigned pass = 0; pass < 2; pass++) {
		struct flash_trace_record rec, want;
		uint8_t buf[512 * 9], expected[512 * 9];

		for (unsigned i = 0; i < MANY; i++) {
			assert_int_equal(flash_trace_next(t, &rec), 1);
			want = record_of(i);
			assert_int_equal(rec.time_ns, want.time_ns);
			assert_int_equal(rec.off_bytes, want.off_bytes);
			assert_int_equal(rec.len_bytes, want.len_bytes);
			assert_int_equal(rec.op, want.op);
			assert_int_equal(rec.flags, want.flags);
			assert_int_equal(rec.data == FLASH_TRACE_NO_DATA,
					 want.op != FLASH_TRACE_WRITE || i % 7 == 4);
			if (rec.op != FLASH_TRACE_WRITE)
				continue;
			fill(expected, i, rec.len_bytes);
			assert_int_equal(flash_trace_contents(t, &rec, buf), 0);
			assert_memory_equal(buf, expected, rec.len_bytes);
		}
		assert_int_equal(flash_trace_next(t, &rec), 0);
		flash_trace_rewind(t);
	}
	flash_trace_close(t);
}

TEST(test_without_contents)
{
	struct flash_trace_record rec;
	struct flash_trace *t;

	unlink(data);
	make(false);
	assert_int_not_equal(access(data, F_OK), 0);
	assert_int_equal(
		truncate(path, FLASH_TRACE_HEADER_BYTES + 2 * FLASH_TRACE_RECORD_BYTES + 31), 0);
	assert_int_equal(flash_trace_open(&t, path, why, sizeof(why)), 0);
	assert_int_equal(flash_trace_next(t, &rec), 1);
	assert_int_equal(flash_trace_contents(t, &rec, &(uint8_t[4096]){ 0 }), -ENODATA);
	assert_int_equal(flash_trace_next(t, &rec), 1);
	assert_int_equal(flash_trace_next(t, &rec), 0); /* the rest is a part */
	flash_trace_close(t);
	flash_trace_close(NULL);
}

TEST(test_no_trace)
{
	static const struct {
		unsigned off;
		uint8_t byte;
	} bad[] = { { 0, 'X' }, { 8, 2 }, { 12, 64 }, { 24, 1 }, { 63, 1 } };
	struct flash_trace *t;

	assert_int_equal(flash_trace_open(&t, "/nowhere.trace", why, sizeof(why)), -ENOENT);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		make(false);
		write_bytes(path, bad[i].off, &bad[i].byte, 1);
		assert_int_equal(flash_trace_open(&t, path, why, sizeof(why)), -EBADMSG);
	}
	assert_int_equal(truncate(path, 63), 0);
	assert_int_equal(flash_trace_open(&t, path, why, sizeof(why)), -EBADMSG);
}

/* A byte of the second record (a write of 1 KiB at 512, with FUA) or of the fourth (a discard) is
 * changed. */
TEST(test_bad_records)
{
	static const struct {
		unsigned record, off;
		uint8_t byte;
	} bad[] = {
		{ 1, 0, 0xff }, /* the next record is earlier */
		{ 1, 8, 1 },	/* no sector */
		{ 1, 11, 1 },	/* after the end */
		{ 1, 15, 0x80 }, { 1, 24, 1 }, { 1, 25, 0 }, { 1, 26, 0x80 }, /* length */
		{ 1, 28, 0 },	 { 1, 28, 6 }, { 1, 29, 2 }, { 1, 30, 1 },
		{ 1, 31, 1 },	 { 2, 9, 2 }, /* a flush with an offset, */
		{ 2, 25, 2 },		      /* a length, */
		{ 2, 16, 0 },		      /* contents, */
		{ 2, 29, 1 },		      /* FUA */
		{ 3, 16, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct flash_trace_record rec;
		struct flash_trace *t;
		int r;

		make(true);
		write_bytes(path,
			    FLASH_TRACE_HEADER_BYTES + bad[i].record * FLASH_TRACE_RECORD_BYTES +
				    bad[i].off,
			    &bad[i].byte, 1);
		if (bad[i].off == 0)
			write_bytes(path, FLASH_TRACE_HEADER_BYTES + FLASH_TRACE_RECORD_BYTES + 2,
				    "\xff", 1);
		assert_int_equal(flash_trace_open(&t, path, why, sizeof(why)), 0);
		while ((r = flash_trace_next(t, &rec)) == 1)
			;
		if (r != -EBADMSG)
			fail_msg("byte %u of record %u: %d", bad[i].off, bad[i].record, r);
		flash_trace_close(t);
	}
}

int main(void)
{
	if (workdir_new("trace") < 0)
		return 1;
	snprintf(path, sizeof(path), "%s/a.trace", dir);
	snprintf(data, sizeof(data), "%s/a.data", dir);
	return tests_run(NULL, workdir_remove);
}
