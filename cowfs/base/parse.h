/* SPDX-License-Identifier: MIT */
/*
 * Parses numbers that people write. The whole string must be valid: -EINVAL: not a number, -ERANGE:
 * out of bounds.
 */
#ifndef COWFS_BASE_PARSE_H
#define COWFS_BASE_PARSE_H

#include "base/util.h"

/* "64M", "1.5GiB", "4096", "0x1000": binary multiples K M G T with optional "iB" or "B". */
int parse_size(const char *s, uint64_t *ret_bytes) MUST_CHECK;
/* "START+LENGTH", two sizes. -EINVAL, or the errors of parse_size. */
int parse_range(const char *s, uint64_t *ret_start_bytes, uint64_t *ret_len_bytes) MUST_CHECK;
/* A size, or a share of total_bytes such as "40%". */
int parse_size_or_percent(const char *s, uint64_t total_bytes, uint64_t *ret_bytes) MUST_CHECK;
/* "90", "90s", "10m", "2h", "500ms" */
int parse_duration_ns(const char *s, uint64_t *ret_ns) MUST_CHECK;
/* That of a variable of the environment, for tests; 0: not set, or none */
uint64_t parse_env_ns(const char *variable);
int parse_u64(const char *s, uint64_t *ret) MUST_CHECK;
/* A line of /proc/meminfo; name: with its colon. False: the kernel has none. */
bool parse_meminfo(const char *meminfo, const char *name, uint64_t *ret_bytes) MUST_CHECK;
/* Writes "12.3 MiB" to buf and returns buf; one decimal, binary units */
char *format_size(uint64_t bytes, char *buf, size_t size_bytes);
#define FORMAT_SIZE(bytes) format_size((bytes), (char[24]){ 0 }, 24)
/* Whole MiB, for sizes that a reader compares: "1900 MiB" */
char *format_mib(uint64_t bytes, char *buf, size_t size_bytes);
#define FORMAT_MIB(bytes) format_mib((bytes), (char[24]){ 0 }, 24)

#endif
