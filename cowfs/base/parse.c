/* SPDX-License-Identifier: MIT */
#include "base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Digits with at most one '.': the value scaled by 10^6, so that the floating-point locale has no
 * effect.
 */
static int parse_decimal(const char **s, uint64_t *ret_micro)
{
	uint64_t whole = 0, micro = 0, place = 100000;
	const char *p = *s;

	if (!isdigit((unsigned char)*p))
		return -EINVAL;
	for (; isdigit((unsigned char)*p); p++) {
		if (whole > UINT64_MAX / 1000000 / 10 - 1)
			return -ERANGE;
		whole = whole * 10 + (uint64_t)(*p - '0');
	}
	if (*p == '.') {
		p++;
		if (!isdigit((unsigned char)*p))
			return -EINVAL;
		for (; isdigit((unsigned char)*p); p++, place /= 10)
			micro += (uint64_t)(*p - '0') * place;
	}
	*s = p;
	*ret_micro = whole * 1000000 + micro;
	return 0;
}

int parse_u64(const char *s, uint64_t *ret)
{
	char *end;
	unsigned long long v;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	errno = 0;
	v = strtoull(s, &end, s[0] == '0' && (s[1] == 'x' || s[1] == 'X') ? 16 : 10);
	if (errno)
		return -ERANGE;
	if (*end)
		return -EINVAL;
	*ret = v;
	return 0;
}

bool parse_meminfo(const char *meminfo, const char *name, uint64_t *ret_bytes)
{
	const char *p = strstr(meminfo, name);
	unsigned long long kib;

	if (!p || sscanf(p + strlen(name), " %llu kB", &kib) != 1)
		return false;
	*ret_bytes = kib * KIB;
	return true;
}

static int parse_hex_size(const char *s, uint64_t *ret_bytes)
{
	uint64_t v;
	int r = parse_u64(s, &v);

	if (r < 0)
		return r;
	if (v > INT64_MAX)
		return -ERANGE;
	*ret_bytes = v;
	return 0;
}

int parse_size(const char *s, uint64_t *ret_bytes)
{
	static const char units[] = "KMGTP";
	uint64_t micro, mult = 1, v;
	const char *u;
	int r;

	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X'))
		return parse_hex_size(s, ret_bytes);
	r = parse_decimal(&s, &micro);
	if (r < 0)
		return r;
	if (*s && (u = strchr(units, toupper((unsigned char)*s)))) {
		mult = 1ull << (10 * (u - units + 1));
		s++;
		if (s[0] == 'i' && (s[1] == 'B' || s[1] == 'b'))
			s++;
	}
	if (*s == 'B' || *s == 'b')
		s++;
	if (*s)
		return -EINVAL;
	v = mul_div_u64(micro, mult, 1000000);
	if (v > INT64_MAX)
		return -ERANGE;
	*ret_bytes = v;
	return 0;
}

int parse_range(const char *s, uint64_t *ret_start_bytes, uint64_t *ret_len_bytes)
{
	const char *plus = strchr(s, '+');
	char start[64];
	int r;

	if (!plus || (size_t)(plus - s) >= sizeof(start))
		return -EINVAL;
	memcpy(start, s, (size_t)(plus - s));
	start[plus - s] = '\0';
	r = parse_size(start, ret_start_bytes);
	return r < 0 ? r : parse_size(plus + 1, ret_len_bytes);
}

int parse_size_or_percent(const char *s, uint64_t total_bytes, uint64_t *ret_bytes)
{
	size_t len = strlen(s);
	uint64_t micro;
	int r;

	if (!len || s[len - 1] != '%')
		return parse_size(s, ret_bytes);
	r = parse_decimal(&s, &micro);
	if (r < 0)
		return r;
	if (strcmp(s, "%"))
		return -EINVAL;
	if (micro > 100ull * 1000000)
		return -ERANGE;
	*ret_bytes = mul_div_u64(total_bytes, micro, 100ull * 1000000);
	return 0;
}

int parse_duration_ns(const char *s, uint64_t *ret_ns)
{
	uint64_t micro, ns_per_unit, v;
	int r = parse_decimal(&s, &micro);

	if (r < 0)
		return r;
	if (!*s || !strcmp(s, "s"))
		ns_per_unit = 1000000000;
	else if (!strcmp(s, "ms"))
		ns_per_unit = 1000000;
	else if (!strcmp(s, "m") || !strcmp(s, "min"))
		ns_per_unit = 60ull * 1000000000;
	else if (!strcmp(s, "h"))
		ns_per_unit = 3600ull * 1000000000;
	else
		return -EINVAL;
	v = mul_div_u64(micro, ns_per_unit, 1000000);
	if (v > INT64_MAX)
		return -ERANGE;
	*ret_ns = v;
	return 0;
}

uint64_t parse_env_ns(const char *variable)
{
	const char *text = secure_getenv(variable);
	uint64_t ns;

	return text && parse_duration_ns(text, &ns) == 0 ? ns : 0;
}

char *format_size(uint64_t bytes, char *buf, size_t size_bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	size_t u = 0;
	uint64_t tenths;

	while (u + 1 < ARRAY_SIZE(units) && (bytes >> (10 * (u + 1))))
		u++;
	if (u == 0) {
		snprintf(buf, size_bytes, "%llu B", (unsigned long long)bytes);
		return buf;
	}
	/* twentieths, and these rounded */
	tenths = (mul_div_u64(bytes, 20, 1ull << (10 * u)) + 1) / 2;
	snprintf(buf, size_bytes, "%llu.%llu %s", (unsigned long long)(tenths / 10),
		 (unsigned long long)(tenths % 10), units[u]);
	return buf;
}

char *format_mib(uint64_t bytes, char *buf, size_t size_bytes)
{
	snprintf(buf, size_bytes, "%llu MiB", (unsigned long long)(bytes / MIB));
	return buf;
}
