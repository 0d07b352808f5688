/* SPDX-License-Identifier: MIT */
/*
 * Slicing-by-8 tables, and the CPU's own instruction if it has one (SSE4.2, ARMv8 CRC). tests/unit
 * compares the two.
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static uint32_t table[8][256];
static bool have_hw;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = (c >> 1) ^ (0x82F63B78u & (0u - (c & 1)));
		table[0][i] = c;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int t = 1; t < 8; t++)
			table[t][i] = (table[t - 1][i] >> 8) ^ table[0][table[t - 1][i] & 0xff];
#if defined(__x86_64__)
	have_hw = __builtin_cpu_supports("sse4.2");
#elif defined(__aarch64__)
	have_hw = getauxval(AT_HWCAP) & HWCAP_CRC32;
#endif
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_hw(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t c = crc;

	for (; len >= 8; len -= 8, p += 8) {
		uint64_t v;

		memcpy(&v, p, 8);
		c = _mm_crc32_u64(c, v);
	}
	for (; len; len--)
		c = _mm_crc32_u8((uint32_t)c, *p++);
	return (uint32_t)c;
}

__attribute__((target("sse4.2"))) static uint32_t back_hw(uint32_t crc, const uint8_t *p,
							  size_t len)
{
	uint64_t c = crc;

	while (len >= 8) {
		uint64_t v;

		len -= 8;
		memcpy(&v, p + len, 8);
		c = _mm_crc32_u64(c, __builtin_bswap64(v));
	}
	while (len)
		c = _mm_crc32_u8((uint32_t)c, p[--len]);
	return (uint32_t)c;
}
#elif defined(__aarch64__)
__attribute__((target("+crc"))) static uint32_t crc_hw(uint32_t crc, const uint8_t *p, size_t len)
{
	for (; len >= 8; len -= 8, p += 8) {
		uint64_t v;

		memcpy(&v, p, 8);
		crc = __crc32cd(crc, v);
	}
	for (; len; len--)
		crc = __crc32cb(crc, *p++);
	return crc;
}

__attribute__((target("+crc"))) static uint32_t back_hw(uint32_t crc, const uint8_t *p, size_t len)
{
	while (len >= 8) {
		uint64_t v;

		len -= 8;
		memcpy(&v, p + len, 8);
		crc = __crc32cd(crc, __builtin_bswap64(v));
	}
	while (len)
		crc = __crc32cb(crc, p[--len]);
	return crc;
}
#else
static uint32_t crc_hw(uint32_t crc, const uint8_t *p, size_t len)
{
	(void)p, (void)len;
	return crc;
}

static uint32_t back_hw(uint32_t crc, const uint8_t *p, size_t len)
{
	return crc_hw(crc, p, len);
}
#endif

static uint32_t crc_sw(uint32_t c, const uint8_t *p, size_t len)
{
	for (; len >= 8; len -= 8, p += 8) {
		uint32_t a = c ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
				  (uint32_t)p[3] << 24);

		c = table[7][a & 0xff] ^ table[6][(a >> 8) & 0xff] ^ table[5][(a >> 16) & 0xff] ^
		    table[4][a >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^
		    table[0][p[7]];
	}
	for (; len; len--)
		c = (c >> 8) ^ table[0][(c ^ *p++) & 0xff];
	return c;
}

static uint32_t back_sw(uint32_t c, const uint8_t *p, size_t len)
{
	while (len >= 8) {
		uint64_t v;

		len -= 8;
		memcpy(&v, p + len, 8);
		v = __builtin_bswap64(v);
		c = crc_sw(c, (const uint8_t *)&v, 8);
	}
	while (len)
		c = (c >> 8) ^ table[0][(c ^ p[--len]) & 0xff];
	return c;
}

uint32_t crc32c(uint32_t crc, const void *buf, size_t len_bytes)
{
	pthread_once(&once, init);
	return ~(have_hw ? crc_hw : crc_sw)(~crc, buf, len_bytes);
}

uint32_t crc32c_sw(uint32_t crc, const void *buf, size_t len_bytes)
{
	pthread_once(&once, init);
	return ~crc_sw(~crc, buf, len_bytes);
}

uint32_t crc32c_back(const void *buf, size_t len_bytes)
{
	pthread_once(&once, init);
	return ~(have_hw ? back_hw : back_sw)(~0u, buf, len_bytes);
}

uint32_t crc32c_back_sw(const void *buf, size_t len_bytes)
{
	pthread_once(&once, init);
	return ~back_sw(~0u, buf, len_bytes);
}
