/* SPDX-License-Identifier: MIT */
/* Traces: reading returns what was written. */
#include "test.h"
#include "workdir.h"
#include "trace_read.h"

#define VOLUME (8 * MIB)
#define MANY 5000

static char path[96], data[96], why[256];

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

int main(void)
{
	if (workdir_new("trace") < 0)
		return 1;
	snprintf(path, sizeof(path), "%s/a.trace", dir);
	snprintf(data, sizeof(data), "%s/a.data", dir);
	return tests_run(NULL, workdir_remove);
}
