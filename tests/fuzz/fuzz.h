/* SPDX-License-Identifier: MIT */
/*
 * Fuzz targets. Each is one .c file with LLVMFuzzerTestOneInput: libFuzzer drives it (make fuzz),
 * or main.c, which any compiler can link (make check-fuzz). docs/TESTING.md, "Fuzzing".
 */
#ifndef COWFS_TESTS_FUZZ_H
#define COWFS_TESTS_FUZZ_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A promise of the code under test that does not depend on the input. */
#define FUZZ_PROMISE(cond)                                                                         \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* Splits the input from front to back; after its end every value is zero. */
struct fuzz_input {
	const uint8_t *p;
	size_t left;
};

static inline uint64_t fuzz_uint(struct fuzz_input *in, size_t width)
{
	uint64_t v = 0;

	for (size_t i = 0; i < width && in->left; i++, in->left--)
		v |= (uint64_t)*in->p++ << 8 * i;
	return v;
}

/* A zero-terminated copy of its own size, so that a sanitizer detects an access one byte beyond
 * it. */
static inline char *fuzz_text(const uint8_t *data, size_t len)
{
	char *s = malloc(len + 1);

	if (!s)
		abort();
	memcpy(s, data, len);
	s[len] = '\0';
	return s;
}

/* How many descriptors are open, and one or two more. */
static inline unsigned fuzz_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	if (!d)
		abort();
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

#endif
