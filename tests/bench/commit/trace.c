/* SPDX-License-Identifier: MIT */
/* Reads a trace, mapped. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replay.h"

static const uint8_t *map_file(const char *name, const char *end, size_t *ret_bytes)
{
	char path[4096];
	struct stat st;
	void *p = NULL;
	int fd;

	snprintf(path, sizeof(path), "%s.%s", name, end);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		die("%s: %s", path, strerror(errno));
	*ret_bytes = (size_t)st.st_size;
	if (st.st_size) {
		p = mmap(NULL, *ret_bytes, PROT_READ, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED)
			die("%s: %s", path, strerror(errno));
	}
	close(fd);
	return p;
}

void trace_open(struct trace *t, const char *name, bool contents)
{
	uint32_t words[2];
	char path[4096];

	*t = (struct trace){ .name = name, .base_fd = -1 };
	t->map = map_file(name, "trace", &t->map_bytes);
	if (t->map_bytes < TRACE_HEADER_BYTES || memcmp(t->map, TRACE_MAGIC, 8))
		die("%s.trace is no trace", name);
	memcpy(words, t->map + 8, sizeof(words));
	if (words[0] != TRACE_VERSION || words[1] != TRACE_RECORD_BYTES)
		die("%s.trace: version %u is not known here", name, words[0]);
	memcpy(&t->volume_bytes, t->map + 16, 8);
	t->records = (t->map_bytes - TRACE_HEADER_BYTES) / TRACE_RECORD_BYTES;
	if (!t->records || trace_at(t, t->records - 1).op != TRACE_COMMIT)
		die("%s.trace does not end with a commit point: was it recorded to its end?", name);
	if (!contents)
		return;
	t->data = map_file(name, "data", &t->data_bytes);
	snprintf(path, sizeof(path), "%s.base", name);
	t->base_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (t->base_fd < 0)
		die("%s: %s", path, strerror(errno));
}

void trace_close(struct trace *t)
{
	munmap((void *)t->map, t->map_bytes);
	if (t->data)
		munmap((void *)t->data, t->data_bytes);
	if (t->base_fd >= 0)
		close(t->base_fd);
}

struct record trace_at(const struct trace *t, uint64_t i)
{
	const uint8_t *p = t->map + TRACE_HEADER_BYTES + i * TRACE_RECORD_BYTES;
	struct record r = { .op = p[28] };

	memcpy(&r.time_ns, p, 8);
	memcpy(&r.off_bytes, p + 8, 8);
	memcpy(&r.data, p + 16, 8);
	memcpy(&r.len_bytes, p + 24, 4);
	if (r.off_bytes + r.len_bytes > t->volume_bytes)
		die("%s.trace: record %llu lies outside of the volume", t->name, (unsigned long long)i);
	return r;
}

const void *trace_data(const struct trace *t, const struct record *r)
{
	if (r->data == TRACE_ZEROES)
		return NULL;
	if (r->data > t->data_bytes || r->len_bytes > t->data_bytes - r->data)
		die("%s.data is too short", t->name);
	return t->data + r->data;
}
