// SPDX-License-Identifier: MIT
/*
 * Deltas made here byte by byte, against a file in place of the volume: what is applied, what is refused, and that
 * nothing but what a section names is written.
 */
#include "test.h"
#include <zstd.h>

#include "base/boxed.h"
#include "offline/delta_section.h"

#define BLKS 1000u

struct made {
	struct delta_head head;
	struct section s;
	int fd, disk_fd;
	uint8_t content[8][COW_BLK_BYTES]; /* of the data blocks */
	uint8_t disk[BLKS][COW_BLK_BYTES];
	uint8_t table[4 * SECTION_ENTRY_BYTES];
	uint64_t at;
};

static struct made m;

static void start(void)
{
	memset(&m, 0, sizeof(m));
	m.fd = memfd_create("delta", 0);
	m.disk_fd = memfd_create("disk", 0);
	for (size_t b = 0; b < BLKS; b++)
		memset(m.disk[b], (int)(b % 251 + 1), COW_BLK_BYTES);
	assert_int_equal(io_pwrite_full(m.disk_fd, m.disk, sizeof(m.disk), 0), 0);
	for (size_t i = 0; i < ARRAY_SIZE(m.content); i++)
		memset(m.content[i], 0xa0 + (int)i, COW_BLK_BYTES);
	m.head.volume_blks = BLKS;
	snprintf(m.head.fs_type, sizeof(m.head.fs_type), "ext4");
	m.at = DELTA_HEAD_BYTES + DELTA_SIGNATURE_BYTES;
}

static void forge(const struct section_run *run)
{
	m.s.run[m.s.runs++] = *run;
	*(run->kept ? &m.s.kept_blks : &m.s.data_blks) += run->blks;
}

static void run(uint64_t blk, uint32_t blks, bool kept)
{
	forge(&(struct section_run){ blk, blks, kept, false });
}

/* A run of data over what the base has there. */
static void run_over(uint64_t blk, uint32_t blks)
{
	section_sum(m.disk[blk], blk_to_bytes(blks), m.s.replaced_sum[m.s.replaced++]);
	forge(&(struct section_run){ blk, blks, false, true });
}

static void put_entry(const uint8_t *packed, size_t packed_bytes, size_t bytes)
{
	struct section_entry e = { (uint32_t)packed_bytes, (uint32_t)bytes, { 0 } };

	section_sum(packed, packed_bytes, e.sum);
	section_put_entry(m.table + (size_t)m.head.sections++ * SECTION_ENTRY_BYTES, &e);
	assert_int_equal(io_pwrite_full(m.fd, packed, packed_bytes, m.at), 0);
	m.at += packed_bytes;
}

static void end_section(void)
{
	static uint8_t bytes[SECTION_BYTES], packed[2 * SECTION_BYTES];
	static struct section_sums sums;
	size_t n, data = blk_to_bytes(m.s.data_blks);

	sums.n = 0;
	for (uint32_t i = 0; i < m.s.runs; i++)
		if (m.s.run[i].kept)
			section_add_sum(&sums, m.disk[m.s.run[i].blk % BLKS], m.s.run[i].blks);
	section_end_sums(&sums, m.s.kept_sum);
	n = section_put(bytes, &m.s);
	memcpy(bytes + n, m.content, min_u64(data, sizeof(m.content)));
	put_entry(packed, ZSTD_compress(packed, sizeof(packed), bytes, n + data, 1), n + data);
	m.head.kept_blks += m.s.kept_blks;
	m.head.data_blks += m.s.data_blks;
	memset(&m.s, 0, sizeof(m.s));
}

static void end_file(void)
{
	size_t bytes = (size_t)m.head.sections * SECTION_ENTRY_BYTES;

	section_sum(m.table, bytes, m.head.table_sum);
	assert_int_equal(io_pwrite_full(m.fd, m.table, bytes, m.at), 0);
	m.head.file_bytes = m.at + bytes;
}

static void quiet(void *ctx, const char *phase, uint64_t done, uint64_t total)
{
	assert_true(done <= total);
}

/* And then the volume is m.disk. */
static int apply(uint64_t *ret_written)
{
	struct delta_apply a = {
		.head = &m.head, .fd = m.fd, .disk_fd = m.disk_fd, .progress = quiet
	};
	static uint8_t now[BLKS][COW_BLK_BYTES];
	int r = delta_apply(&a);

	if (ret_written)
		*ret_written = a.written_blks;
	assert_int_equal(io_pread_full(m.disk_fd, now, sizeof(now), 0), 0);
	if (r == 0)
		assert_memory_equal(now, m.disk, sizeof(now));
	close(m.fd);
	close(m.disk_fd);
	return r;
}

TEST(test_applies)
{
	uint64_t written;

	start();
	run(3, 20, true);
	run(23, 5, false);
	run(100, 1, true);
	run(999, 1, false);
	end_section();
	end_file();
	memcpy(m.disk[23], m.content, (size_t)5 * COW_BLK_BYTES);
	memcpy(m.disk[999], m.content[5], COW_BLK_BYTES);
	assert_int_equal(apply(&written), 0);
	assert_int_equal(written, 6);
}

/* The room for messages of any child is not that for the blocks of a delta. */
TEST(test_more_than_a_child_may_say)
{
	const uint64_t bytes = boxed_heard_bytes;
	int r;

	start();
	run(23, 8, false);
	end_section();
	end_file();
	memcpy(m.disk[23], m.content, sizeof(m.content));
	boxed_heard_bytes = 1024;
	r = apply(NULL);
	boxed_heard_bytes = bytes;
	assert_int_equal(r, 0);
}

TEST(test_has_it_already)
{
	uint64_t written;

	start();
	memcpy(m.disk[7], m.content, (size_t)2 * COW_BLK_BYTES);
	assert_int_equal(io_pwrite_full(m.disk_fd, m.disk, sizeof(m.disk), 0), 0);
	run(1, 6, true);
	run(7, 3, false);
	end_section();
	end_file();
	memcpy(m.disk[9], m.content[2], COW_BLK_BYTES);
	assert_int_equal(apply(&written), 0);
	assert_int_equal(written, 1);
}

TEST(test_another_base)
{
	start();
	run(1, 6, true);
	run(7, 3, false);
	end_section();
	end_file();
	m.disk[6][4095] ^= 1;
	assert_int_equal(io_pwrite_full(m.disk_fd, m.disk, sizeof(m.disk), 0), 0);
	assert_int_equal(apply(NULL), -ESTALE);
}

/* What is replaced is what the base has, or there already. */
TEST(test_another_base_below_the_data)
{
	for (int i = 0; i < 3; i++) {
		uint64_t written;

		start();
		run(1, 6, true);
		run_over(7, 2);
		run_over(9, 3);
		end_section();
		end_file();
		memcpy(m.disk[9], m.content[2], (size_t)3 * COW_BLK_BYTES);
		if (i)
			assert_int_equal(io_pwrite_full(m.disk_fd, m.disk, sizeof(m.disk), 0), 0);
		memcpy(m.disk[7], m.content[0], (size_t)2 * COW_BLK_BYTES);
		if (i == 2) {
			m.disk[10][7] ^= 1;
			assert_int_equal(io_pwrite_full(m.disk_fd, m.disk[10], COW_BLK_BYTES,
							blk_to_bytes(10)),
					 0);
		}
		assert_int_equal(apply(&written), i == 2 ? -ESTALE : 0);
		assert_int_equal(written, i ? 2 : 5);
	}
}

/* Each of these has right checksums: beyond the end, backwards, twice, too long, none, and no run at all. */
TEST(test_forged)
{
	static const struct section_run bad[] = {
		{ BLKS - 1, 2, false, false }, { 5, 1, false, false },	{ 6, 1, true, false },
		{ 10, 257, true, false },      { 10, 0, false, false }, { 10, 1, true, true },
	};

	for (size_t i = 0; i <= ARRAY_SIZE(bad); i++) {
		start();
		run(1, 6, true);
		if (i < ARRAY_SIZE(bad))
			forge(&bad[i]);
		else
			m.s.runs = m.s.kept_blks = 0;
		end_section();
		end_file();
		assert_int_equal(apply(NULL), -EBADMSG);
	}
}

TEST(test_forged_counts)
{
	for (int i = 0; i < 4; i++) {
		start();
		run(1, 6, true);
		run(7, 3, false);
		end_section();
		m.head.kept_blks += i == 0;
		m.head.data_blks += i == 1;
		end_file();
		m.head.table_sum[5] ^= i == 2;
		m.head.file_bytes += i == 3;
		if (i == 3)
			assert_int_equal(io_pwrite_full(m.fd, "x", 1, m.head.file_bytes - 1), 0);
		assert_int_equal(apply(NULL), -EBADMSG);
	}
}

/* What unpacks to something else than the table says: more, less, nothing that zstd knows. */
TEST(test_forged_packing)
{
	static const uint8_t zeroes[3 * COW_BLK_BYTES];
	uint8_t packed[4096];
	size_t n = ZSTD_compress(packed, sizeof(packed), zeroes, sizeof(zeroes), 1);

	for (int i = 0; i < 4; i++) {
		start();
		put_entry(packed, i == 3 ? 7 : n,
			  i == 0   ? sizeof(zeroes) - 1
			  : i == 1 ? sizeof(zeroes) + 1
			  : i == 2 ? SECTION_BYTES + 1
				   : sizeof(zeroes));
		end_file();
		assert_int_equal(apply(NULL), -EBADMSG);
	}
}

TEST(test_heads)
{
	uint8_t buf[DELTA_HEAD_BYTES];
	struct delta_head h;

	start();
	run(1, 6, true);
	end_section();
	end_file();
	delta_put_head(buf, &m.head);
	assert_int_equal(delta_get_head(buf, &h), 0);
	assert_memory_equal(&h, &m.head, sizeof(h));
	for (size_t i = 0; i < sizeof(buf); i++) {
		buf[i] ^= 4;
		assert_true(delta_get_head(buf, &h) == (i < 16 ? -ENOMSG : -EBADMSG));
		buf[i] ^= 4;
	}
	/* a whole one is of the first version, and one of that with a base has no sums of what it replaces */
	for (uint32_t version = 1; version < 4; version++)
		for (uint32_t whole = 0; whole < 2; whole++) {
			memcpy(buf + 16, &version, sizeof(version));
			memcpy(buf + 20, &whole, sizeof(whole));
			section_sum(buf, sizeof(buf) - DELTA_SUM_BYTES,
				    buf + sizeof(buf) - DELTA_SUM_BYTES);
			assert_int_equal(delta_get_head(buf, &h), version == 2 - whole ? 0
								  : version == 1
									  ? -EPROTO
									  : -EPROTONOSUPPORT);
		}
	/* a table that is longer than these blocks need, in a file of that size */
	for (uint32_t blks = 255; blks < 258; blks++)
		for (uint32_t sections = 1; sections < 4; sections++) {
			m.head.kept_blks = blks - 2;
			m.head.data_blks = 2;
			m.head.sections = sections;
			m.head.file_bytes = 1ull << 40;
			delta_put_head(buf, &m.head);
			assert_int_equal(delta_get_head(buf, &h),
					 sections <= (blks < 256 ? 1 : 2) ? 0 : -EBADMSG);
		}
	m.head.volume_blks = 0;
	delta_put_head(buf, &m.head);
	assert_int_equal(delta_get_head(buf, &h), -EBADMSG);
	close(m.fd);
	close(m.disk_fd);
}
