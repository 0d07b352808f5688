/* SPDX-License-Identifier: MIT */
/* Tests of base/: CRC vectors and both implementations, numbers as users write them, cursors. */
#include <endian.h>
#include "test.h"
#include "base/allowance.h"
#include "base/array.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/kernel.h"
#include "base/mounts.h"
#include "base/numbers.h"
#include "base/parse.h"
#include "base/proclist.h"
#include "base/thread.h"

/* RFC 3720 B.4, and the check value of the CRC catalogue */
TEST(test_crc_vectors)
{
	uint8_t up[32], down[32], zero[32] = { 0 }, ones[32];

	for (unsigned i = 0; i < 32; i++) {
		up[i] = (uint8_t)i;
		down[i] = (uint8_t)(31 - i);
		ones[i] = 0xff;
	}
	uint32_t (*const crc[])(uint32_t, const void *, size_t) = { crc32c, crc32c_sw };

	for (size_t i = 0; i < ARRAY_SIZE(crc); i++) {
		assert_int_equal(crc[i](0, "", 0), 0);
		assert_int_equal(crc[i](0, "123456789", 9), 0xE3069283);
		assert_int_equal(crc[i](0, zero, 32), 0x8A9136AA);
		assert_int_equal(crc[i](0, ones, 32), 0x62A8AB43);
		assert_int_equal(crc[i](0, up, 32), 0x46DD794E);
		assert_int_equal(crc[i](0, down, 32), 0x113FDB5C);
	}
}

/* every alignment and length around the 8-byte step, and every place to chain */
TEST(test_crc_hw_agrees_with_sw)
{
	uint8_t buf[300];
	uint32_t x = 1;

	for (size_t i = 0; i < sizeof(buf); i++) {
		x = x * 1664525 + 1013904223;
		buf[i] = (uint8_t)(x >> 24);
	}
	for (size_t off = 0; off < 9; off++)
		for (size_t len = 0; len <= 64; len++)
			assert_int_equal(crc32c(x, buf + off, len), crc32c_sw(x, buf + off, len));
	for (size_t cut = 0; cut <= sizeof(buf); cut++)
		assert_int_equal(crc32c(crc32c_sw(0, buf, cut), buf + cut, sizeof(buf) - cut),
				 crc32c_sw(0, buf, sizeof(buf)));
}

/* A block that ends with the CRC32C of its preceding bytes, as ext4's superblock and extent blocks
 * do. */
TEST(test_crc_of_checksummed)
{
	uint8_t a[4096] = { 0 }, b[4096];

	for (unsigned i = 1; i < 200; i++) {
		size_t len = 1024 + 4 * (i % 700);
		uint32_t x;

		memcpy(b, a, sizeof(b));
		a[1024 + i * 3] = (uint8_t)(i + 1);
		x = htole32(~crc32c(0, a + 1024, len - 1024));
		memcpy(a + len, &x, 4);
		x = htole32(~crc32c(0, b + 1024, len - 1024));
		memcpy(b + len, &x, 4);
		assert_int_equal(crc32c(0, a, sizeof(a)), crc32c(0, b, sizeof(b))); /* the trap */
		assert_int_not_equal(crc32c_back(a, sizeof(a)), crc32c_back(b, sizeof(b)));
		assert_int_equal(crc32c_back(a, sizeof(a)), crc32c_back_sw(a, sizeof(a)));
		memset(a + len, 0, 4);
	}
	for (size_t off = 0; off < 9; off++)
		for (size_t n = 0; n <= 64; n++) {
			for (size_t i = 0; i < n; i++)
				b[i] = a[1100 + off + n - 1 - i];
			assert_int_equal(crc32c_back(a + 1100 + off, n), crc32c(0, b, n));
			assert_int_equal(crc32c_back_sw(a + 1100 + off, n), crc32c(0, b, n));
		}
}

TEST(test_parse_size)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "0", 0 },	      { "4096", 4096 },	     { "0x1000", 4096 },
		{ "1k", KIB },	      { "64M", 64 * MIB },   { "64MiB", 64 * MIB },
		{ "64MB", 64 * MIB }, { "64mib", 64 * MIB }, { "1.5G", 3 * GIB / 2 },
		{ "0.25K", 256 },     { "2T", 2048 * GIB },  { "512B", 512 },
		{ "010", 10 }, /* no octal */
	};
	static const char *const nonsense[] = {
		"",    " ",	"M",	 "-1",	 "+1",	 " 1",	 "1 ",	     "1 M", "1.",
		".5",  "1..5",	"1.5.5", "64MM", "64Mi", "64iB", "64BB",     "1e3", "0x",
		"0xg", "0x10M", "64Q",	 "1,5M", "nan",	 "inf",	 "\xc2\xbd",
	};
	uint64_t v;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		v = ~0ull;
		assert_int_equal(parse_size(good[i].text, &v), 0);
		assert_int_equal(v, good[i].bytes);
	}
	for (size_t i = 0; i < ARRAY_SIZE(nonsense); i++) {
		v = 77;
		if (parse_size(nonsense[i], &v) != -EINVAL || v != 77)
			fail_msg("\"%s\"", nonsense[i]);
	}
	assert_int_equal(parse_size("99999999999999999999999", &v), -ERANGE);
	assert_int_equal(parse_size("9000P", &v), -ERANGE);
	assert_int_equal(v, 77);
}

TEST(test_parse_percent)
{
	static const char *const nonsense[] = {
		"%", "-5%", "50%%", "5 %", "x%", "50%M", "1.%", ""
	};
	uint64_t v = 77;

	for (size_t i = 0; i < ARRAY_SIZE(nonsense); i++)
		if (parse_size_or_percent(nonsense[i], GIB, &v) != -EINVAL || v != 77)
			fail_msg("\"%s\"", nonsense[i]);
	assert_int_equal(parse_size_or_percent("100.1%", GIB, &v), -ERANGE);
	assert_int_equal(v, 77);
	assert_int_equal(parse_size_or_percent("50%", GIB, &v), 0);
	assert_int_equal(v, GIB / 2);
	assert_int_equal(parse_size_or_percent("12.5%", 800, &v), 0);
	assert_int_equal(v, 100);
	assert_int_equal(parse_size_or_percent("100%", UINT64_MAX, &v), 0);
	assert_int_equal(v, UINT64_MAX);
	assert_int_equal(parse_size_or_percent("3M", GIB, &v), 0);
	assert_int_equal(v, 3 * MIB);
}

TEST(test_parse_duration)
{
	static const char *const nonsense[] = {
		"", "s", "10 s", "-1s", "10d", "10ss", "1.s", "msec"
	};
	uint64_t v = 77;

	for (size_t i = 0; i < ARRAY_SIZE(nonsense); i++)
		if (parse_duration_ns(nonsense[i], &v) != -EINVAL || v != 77)
			fail_msg("\"%s\"", nonsense[i]);
	assert_int_equal(parse_duration_ns("9999999999h", &v), -ERANGE);
	assert_int_equal(v, 77);
	assert_int_equal(parse_duration_ns("90", &v), 0);
	assert_int_equal(v, 90000000000);
	assert_int_equal(parse_duration_ns("1.5s", &v), 0);
	assert_int_equal(v, 1500000000);
	assert_int_equal(parse_duration_ns("500ms", &v), 0);
	assert_int_equal(v, 500000000);
	assert_int_equal(parse_duration_ns("10m", &v), 0);
	assert_int_equal(v, 600000000000);
	assert_int_equal(parse_duration_ns("2h", &v), 0);
	assert_int_equal(v, 7200000000000);
}

TEST(test_unescape)
{
	char s[] = "a\\040b\\011\\100\\377\\400\\08\\0";

	mounts_unescape(s);
	assert_string_equal(s, "a b\t@\377\\400\\08\\0");
}

TEST(test_parse_u64)
{
	static const char *const nonsense[] = { "", "-1", "+1", " 1", "1 ", "0x", "1.0", "ten" };
	uint64_t v = 77;

	for (size_t i = 0; i < ARRAY_SIZE(nonsense); i++)
		if (parse_u64(nonsense[i], &v) != -EINVAL || v != 77)
			fail_msg("\"%s\"", nonsense[i]);
	assert_int_equal(parse_u64("18446744073709551616", &v), -ERANGE);
	assert_int_equal(v, 77);
	assert_int_equal(parse_u64("18446744073709551615", &v), 0);
	assert_int_equal(v, UINT64_MAX);
	assert_int_equal(parse_u64("0xff", &v), 0);
	assert_int_equal(v, 255);
}

TEST(test_format_size)
{
	char small[4];

	assert_string_equal(with_commas(999), "999");
	assert_string_equal(with_commas(1234567), "1,234,567");
	assert_string_not_equal(format_time(1700000000), format_time(1800000000));
	assert_string_equal(FORMAT_SIZE(0), "0 B");
	assert_string_equal(FORMAT_SIZE(1023), "1023 B");
	assert_string_equal(FORMAT_SIZE(1024), "1.0 KiB");
	assert_string_equal(FORMAT_SIZE(1536), "1.5 KiB");
	assert_string_equal(FORMAT_SIZE(12 * MIB + 307 * KIB), "12.3 MiB");
	assert_string_equal(FORMAT_SIZE(3 * GIB), "3.0 GiB");
	assert_string_equal(FORMAT_SIZE(UINT64_MAX), "16384.0 PiB");
	assert_string_equal(format_size(12 * MIB, small, sizeof(small)), "12.");
}

/* one byte too many: nothing is changed, and the cursor stays bad although later fields would
 * fit */
TEST(test_bytes_bounds)
{
	uint8_t buf[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, out[8];

	for (size_t width = 1; width <= 8; width *= 2) {
		uint8_t guarded[9];
		struct bytes_writer w = { .p = guarded, .size_bytes = width - 1 };
		struct bytes_reader r = { .p = buf, .size_bytes = width - 1 };

		memset(guarded, 0xee, sizeof(guarded));
		put_uint(&w, 0, width);
		assert_true(w.bad);
		assert_int_equal(w.pos, 0);
		put_bytes(&w, "", 0);
		assert_true(w.bad);
		for (size_t i = 0; i < sizeof(guarded); i++)
			assert_int_equal(guarded[i], 0xee);
		assert_int_equal(get_uint(&r, width), 0);
		assert_true(r.bad);
		assert_int_equal(r.pos, 0);
		assert_int_equal(get_uint(&r, 0), 0);
		assert_true(r.bad);
	}
	struct bytes_reader r = { .p = buf, .size_bytes = 4 };
	struct bytes_writer w = { .p = out, .size_bytes = 8, .pos = 4 };

	put_bytes(&w, buf, SIZE_MAX - 2); /* pos + len wraps */
	assert_true(w.bad);
	memset(out, 0xee, sizeof(out));
	get_bytes(&r, out, 5);
	assert_true(r.bad);
	assert_memory_equal(out, "\0\0\0\0\0\xee\xee\xee", 8); /* the caller gets no stale memory */
}

TEST(test_bytes_zeroes)
{
	uint8_t buf[8] = { 0, 0, 0, 9 };
	struct bytes_reader r = { .p = buf, .size_bytes = sizeof(buf) };
	_Alignas(8) uint8_t blk[64] = { 0 };

	assert_true(get_zeroes(&r, 3));
	assert_false(get_zeroes(&r, 1));
	assert_false(r.bad); /* wrong, but inside */
	assert_int_equal(get_u8(&r), 9);
	assert_true(get_zeroes(&r, 4));
	assert_false(get_zeroes(&r, 1));
	assert_true(r.bad);
	for (size_t i = 0; i < sizeof(blk); i++) {
		assert_true(bytes_all_zero(blk, sizeof(blk)));
		blk[i] = 1;
		assert_false(bytes_all_zero(blk, sizeof(blk)));
		blk[i] = 0;
	}
}

/* the results are those of Python's integers */
TEST(test_mul_div)
{
	static const struct {
		uint64_t v, by, of, result;
	} rows[] = {
		{ 0, 0, 1, 0 },
		{ 0, UINT64_MAX, UINT64_MAX, 0 },
		{ 1, UINT64_MAX, UINT64_MAX, 1 },
		{ UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX },
		{ UINT64_MAX, UINT64_MAX, 0xfffffffffffffffe, UINT64_MAX },
		{ UINT64_MAX, 1, 1, UINT64_MAX },
		{ UINT64_MAX, UINT64_MAX, 1, UINT64_MAX },
		{ 0x8000000000000000, 2, 1, UINT64_MAX },
		{ 0x8000000000000000, 2, 2, 0x8000000000000000 },
		{ 0x8000000000000000, 0x8000000000000000, 0x4000000000000000, UINT64_MAX },
		{ 0x8000000000000000, 0x8000000000000000, 0x7fffffffffffffff, 0x8000000000000001 },
		{ 0x8000000000000000, 0x8000000000000000, 0x8000000000000001, 0x7fffffffffffffff },
		{ 0x100000000, 0x100000000, 1, UINT64_MAX },
		{ 0x100000000, 0x100000000, 2, 0x8000000000000000 },
		{ 0xffffffff, 0x100000001, 3, 0x5555555555555555 },
		{ UINT64_MAX, 0xfffffffffffffffe, UINT64_MAX, 0xfffffffffffffffe },
		{ 0xfffffffffffffffe, 0xfffffffffffffffe, UINT64_MAX, 0xfffffffffffffffd },
		{ UINT64_MAX, 3, 4, 0xbfffffffffffffff },
		{ 0x10000000000, 0x3b9aca00, 0xbc614e, 0x5100006f6f2c },
		{ 0x4a817c800, 0x3b9aca00, 0x1036641, 0x111eb1b7cf7 },
		{ 0xfedcba9876543210, 0x123456789abcdef, 0xfedcba98765432, UINT64_MAX },
		{ 0x8000000000000001, 0xffffffff00000001, UINT64_MAX, 0x7fffffff80000001 },
	};
	uint64_t low;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(mul_div_u64(rows[i].v, rows[i].by, rows[i].of), rows[i].result);
		assert_int_equal(mul_div_u64(rows[i].by, rows[i].v, rows[i].of), rows[i].result);
	}
	assert_int_equal(mul_u64(UINT64_MAX, UINT64_MAX, &low), UINT64_MAX - 1);
	assert_int_equal(low, 1);
	assert_int_equal(mul_u64(0xfedcba9876543210, 0x0123456789abcdef, &low), 0x121fa00ad77d742);
	assert_int_equal(low, 0x2236d88fe5618cf0);
	rnd_begin(1);
	for (unsigned i = 0; i < 1000000; i++) {
		uint64_t v = rnd_next(&rnd_state), by = rnd_next(&rnd_state) >> rnd(64) | 1;

		assert_int_equal(mul_div_u64(v, by, by), v);
		/* by - by / (v + 1), and the last is less than 1 */
		if (by <= v && v < UINT64_MAX)
			assert_int_equal(mul_div_u64(v, by, v + 1), by - 1);
	}
}

TEST(test_array)
{
	struct text_pool pool = { 0 };
	uint32_t *a = NULL;
	size_t cap = 0, n_items = 0, moves = 0;
	const uint32_t *before;

	for (uint32_t n = 0; n < 100000; n++) {
		size_t had = cap;
		const uint32_t *was = a;

		assert_int_equal(ARRAY_ADD(a, n_items, cap, n), 0);
		assert_int_equal(n_items, n + 1);
		assert_true(cap > n && (cap == had ? a == was : cap >= 2 * had && cap >= 16));
		moves += cap != had;
	}
	assert_true(moves < 20);
	for (uint32_t n = 0; n < 100000; n++)
		assert_int_equal(a[n], n);
	/* much at once; existing content; nothing at all */
	assert_int_equal(ARRAY_ROOM(a, cap, 1000000), 0);
	assert_int_equal(cap, 1000000);
	assert_int_equal(a[99999], 99999);
	before = a;
	assert_int_equal(ARRAY_ROOM(a, cap, 1), 0);
	assert_ptr_equal(a, before);
	/* more than a size can express: the old content stays */
	assert_int_equal(ARRAY_ROOM(a, cap, SIZE_MAX / 2), -ENOMEM);
	assert_ptr_equal(a, before);
	assert_int_equal(cap, 1000000);
	assert_int_equal(a[99999], 99999);
	free(a);
	cap = 0;
	a = NULL;
	assert_int_equal(ARRAY_ROOM(a, cap, 0), 0);
	assert_non_null(a);
	free(a);
	/* a part of a text ends */
	for (uint64_t i = 0, at; i < 1000; i++) {
		assert_int_equal(text_pool_add(&pool, &"abcdefgh"[i % 8], 1, &at), 0);
		assert_int_equal(at, 2 * i);
		assert_string_equal(pool.text + at, ((char[]){ (char)('a' + i % 8), '\0' }));
	}
	free(pool.text);
}

static void *same(void *arg)
{
	return arg;
}

/* A stack that is enough for cowfs may be less than the machine needs for any thread. */
TEST(test_thread_stack)
{
	pthread_t thread;
	void *ret = NULL;

	assert_int_equal(thread_start(&thread, "small", 1024, same, state), 0);
	pthread_join(thread, &ret);
	assert_ptr_equal(ret, state);
}

TEST(test_kernel)
{
	static const char *const old[] = { "2.6.78", "4.19.0-27-amd64", "5.4.0", "5.8.18" };
	static const char *const fine[] = { "5.9",   "5.9.0-rc1", "5.10.0-32-cloud-amd64",
					    "6.1.0", "10.0",	  "next",
					    "" };
	char why[128];

	for (size_t i = 0; i < ARRAY_SIZE(old); i++)
		assert_int_equal(kernel_check(old[i], why, sizeof(why)), -ENOSYS);
	assert_string_equal(why, "Linux 5.8.18 is too old: cowfs needs 5.9 or newer (close_range, "
				 "LOOP_CONFIGURE)");
	for (size_t i = 0; i < ARRAY_SIZE(fine); i++)
		assert_int_equal(kernel_check(fine[i], why, sizeof(why)), 0);
	assert_int_equal(kernel_check(NULL, why, sizeof(why)), 0);
}

TEST(test_allowance)
{
	const uint64_t begin = 77, piece = ALLOWANCE_NS / 10;
	struct allowance a = { 0 };

	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(allowance_use(&a, begin, piece), 0);
	assert_int_equal(allowance_use(&a, begin, piece), piece);
	assert_int_equal(allowance_use(&a, begin + piece, 0), 0);
	assert_int_equal(allowance_use(&a, begin + piece, piece), piece);
	/* no more than this is saved */
	assert_int_equal(allowance_use(&a, begin + 100 * ALLOWANCE_NS, ALLOWANCE_NS + 1), 1);
}

/* In a process of its own, which has no other descriptors to lose. */
TEST(test_keep_only)
{
	static const int all[] = { 3, 9, 10, 11, 12, 500, 1023, 1024, 1030 };
	const int keep[] = { 500, -1, 10, 11, 1023, 10 };
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		unsigned open_fds = 0, kept = 0;

		for (size_t i = 0; i < ARRAY_SIZE(all); i++)
			dup2(0, all[i]);
		io_keep_only(keep, ARRAY_SIZE(keep));
		for (int fd = 0; fd < 1100; fd++)
			open_fds += fcntl(fd, F_GETFD) >= 0;
		for (size_t i = 0; i < ARRAY_SIZE(keep); i++)
			kept += fcntl(keep[i], F_GETFD) >= 0;
		_exit(open_fds == 3 + 4 && kept == 5 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static bool dies(const char *status)
{
	int fd = memfd_create("status", MFD_CLOEXEC);
	bool r;

	assert_int_equal(write(fd, status, strlen(status)), strlen(status));
	r = proclist_is_dying(fd);
	close(fd);
	return r;
}

TEST(test_dying)
{
	assert_false(dies(
		"Name:\tx\nState:\tD (disk sleep)\nVmSize:\t 8 kB\nSigPnd:\t0000000000000000\n"));
	/* killed; its memory is gone, and its files are not closed yet; a zombie */
	assert_true(dies(
		"Name:\tx\nState:\tD (disk sleep)\nVmSize:\t 8 kB\nSigPnd:\t0000000000000100\n"));
	assert_true(dies("Name:\tx\nState:\tR (running)\nSigPnd:\t0000000000000000\n"));
	assert_true(dies("Name:\tx\nState:\tZ (zombie)\nSigPnd:\t0000000000000000\n"));
	assert_false(dies(""));
}

/* Numbers only, each once. */
TEST(test_proclist)
{
	DIR *d = proclist_open(AT_FDCWD, "/proc/self/fd");
	int fd = open("/proc/self", O_PATH | O_DIRECTORY), mine = dirfd(d);
	unsigned seen = 0;

	for (int n; (n = proclist_next(d)) >= 0;)
		seen += n == fd || n == mine;
	closedir(d);
	assert_int_equal(seen, 2);
	d = proclist_open(fd, "net");
	assert_int_equal(proclist_next(d), -1);
	closedir(d);
	assert_null(proclist_open(fd, "status"));
	close(fd);
}
