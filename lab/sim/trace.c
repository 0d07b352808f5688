/* SPDX-License-Identifier: MIT */
/* Format: trace.h. */
#include "sim/trace.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/io.h"
#include "base/path.h"

#define BATCH 2048 /* number of records written at once */

struct flash_trace_writer {
	int fd, data_fd;
	uint64_t data_bytes;
	size_t n;
	uint8_t batch[BATCH * FLASH_TRACE_RECORD_BYTES];
};

int flash_trace_data_path(const char *path, char ret[PATH_MAX])
{
	size_t n = strlen(path);

	if (n > 6 && !strcmp(path + n - 6, ".trace"))
		n -= 6;
	return snprintf(ret, PATH_MAX, "%.*s.data", (int)n, path) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int flash_trace_create(struct flash_trace_writer **ret, const char *path, uint64_t volume_bytes,
		       bool contents)
{
	uint8_t head[FLASH_TRACE_HEADER_BYTES] = { 0 };
	struct bytes_writer b = { .p = head, .size_bytes = sizeof(head) };
	struct flash_trace_writer *w = calloc(1, sizeof(*w));
	char data[PATH_MAX], why[2 * PATH_MAX];
	int r;

	if (!w)
		return -ENOMEM;
	w->fd = w->data_fd = -1;
	r = flash_trace_data_path(path, data);
	if (!r)
		r = w->fd = path_create_file(path, 0644, why, sizeof(why));
	if (r >= 0 && contents)
		r = w->data_fd = path_create_file(data, 0644, why, sizeof(why));
	put_bytes(&b, FLASH_TRACE_MAGIC, FLASH_TRACE_MAGIC_BYTES);
	put_u32(&b, FLASH_TRACE_VERSION);
	put_u32(&b, FLASH_TRACE_RECORD_BYTES);
	put_u64(&b, volume_bytes);
	if (r >= 0)
		r = io_write_full(w->fd, head, sizeof(head));
	if (r < 0) {
		int ignored = flash_trace_finish(w);

		(void)ignored;
		return r;
	}
	*ret = w;
	return 0;
}

int flash_trace_flush(struct flash_trace_writer *w)
{
	size_t n = w->n;

	w->n = 0;
	return n ? io_write_full(w->fd, w->batch, n * FLASH_TRACE_RECORD_BYTES) : 0;
}

static bool is_zero(const uint8_t *p, size_t len)
{
	return !len || (!p[0] && !memcmp(p, p + 1, len - 1));
}

int flash_trace_add(struct flash_trace_writer *w, struct flash_trace_record *rec, const void *buf)
{
	struct bytes_writer b = { .p = w->batch + w->n * FLASH_TRACE_RECORD_BYTES,
				  .size_bytes = FLASH_TRACE_RECORD_BYTES };
	int r;

	rec->data = FLASH_TRACE_NO_DATA;
	if (rec->op == FLASH_TRACE_WRITE && buf && w->data_fd >= 0 &&
	    !is_zero(buf, rec->len_bytes)) {
		r = io_write_full(w->data_fd, buf, rec->len_bytes);
		if (r < 0)
			return r;
		rec->data = w->data_bytes;
		w->data_bytes += rec->len_bytes;
	}
	put_u64(&b, rec->time_ns);
	put_u64(&b, rec->off_bytes);
	put_u64(&b, rec->data);
	put_u32(&b, rec->len_bytes);
	put_u8(&b, rec->op);
	put_u8(&b, rec->flags);
	put_u16(&b, 0);
	return ++w->n < BATCH ? 0 : flash_trace_flush(w);
}

int flash_trace_finish(struct flash_trace_writer *w)
{
	int r;

	if (!w)
		return 0;
	r = w->fd >= 0 ? flash_trace_flush(w) : 0;
	if (w->fd >= 0 && close(w->fd) < 0 && !r)
		r = -errno;
	if (w->data_fd >= 0 && close(w->data_fd) < 0 && !r)
		r = -errno;
	free(w);
	return r;
}
