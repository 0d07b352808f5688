/* SPDX-License-Identifier: MIT */
#include "trace_read.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/io.h"

#define SECTOR 512u
#define BATCH 2048 /* number of records read at once */

struct flash_trace {
	int fd, data_fd;
	uint64_t volume_bytes, records, next, last_ns;
	uint64_t batch_first, batch_n;
	uint8_t batch[BATCH * FLASH_TRACE_RECORD_BYTES];
};

static int read_header(struct flash_trace *t, char *why, size_t why_bytes)
{
	uint8_t head[FLASH_TRACE_HEADER_BYTES], magic[FLASH_TRACE_MAGIC_BYTES];
	struct bytes_reader r = { .p = head, .size_bytes = sizeof(head) };
	uint32_t version, record_bytes;
	struct stat st;

	if (fstat(t->fd, &st) < 0) {
		snprintf(why, why_bytes, "%s", strerror(errno));
		return -errno;
	}
	if (st.st_size < (off_t)sizeof(head) || io_pread_full(t->fd, head, sizeof(head), 0) < 0) {
		snprintf(why, why_bytes, "too short for a trace");
		return -EBADMSG;
	}
	get_bytes(&r, magic, sizeof(magic));
	version = (uint32_t)get_uint(&r, 4);
	record_bytes = (uint32_t)get_uint(&r, 4);
	t->volume_bytes = get_u64(&r);
	if (memcmp(magic, FLASH_TRACE_MAGIC, sizeof(magic))) {
		snprintf(why, why_bytes, "not a trace");
		return -EBADMSG;
	}
	if (version != FLASH_TRACE_VERSION || record_bytes != FLASH_TRACE_RECORD_BYTES ||
	    !get_zeroes(&r, 40)) {
		snprintf(why, why_bytes, "a trace of version %u, with records of %u bytes", version,
			 record_bytes);
		return -EBADMSG;
	}
	t->records = ((uint64_t)st.st_size - sizeof(head)) / FLASH_TRACE_RECORD_BYTES;
	return 0;
}

int flash_trace_open(struct flash_trace **ret, const char *path, char *why, size_t why_bytes)
{
	struct flash_trace *t = calloc(1, sizeof(*t));
	char data[PATH_MAX];
	int r;

	snprintf(why, why_bytes, "no memory");
	if (!t)
		return -ENOMEM;
	t->data_fd = -1;
	t->fd = open(path, O_RDONLY | O_CLOEXEC);
	r = t->fd < 0 ? -errno : flash_trace_data_path(path, data);
	if (r < 0)
		snprintf(why, why_bytes, "%s", strerror(-r));
	else
		r = read_header(t, why, why_bytes);
	if (!r) {
		t->data_fd = open(data, O_RDONLY | O_CLOEXEC);
		if (t->data_fd < 0 && errno != ENOENT) {
			r = -errno;
			snprintf(why, why_bytes, "%s: %s", data, strerror(errno));
		}
	}
	if (r < 0) {
		flash_trace_close(t);
		return r;
	}
	*ret = t;
	return 0;
}

void flash_trace_close(struct flash_trace *t)
{
	if (!t)
		return;
	if (t->fd >= 0)
		close(t->fd);
	if (t->data_fd >= 0)
		close(t->data_fd);
	free(t);
}

uint64_t flash_trace_volume_bytes(const struct flash_trace *t)
{
	return t->volume_bytes;
}

uint64_t flash_trace_records(const struct flash_trace *t)
{
	return t->records;
}

void flash_trace_rewind(struct flash_trace *t)
{
	t->next = t->last_ns = 0;
}

static bool is_valid(const struct flash_trace *t, const struct flash_trace_record *rec)
{
	bool has_range = rec->op == FLASH_TRACE_WRITE || rec->op == FLASH_TRACE_DISCARD;

	if (rec->op < FLASH_TRACE_WRITE || rec->op > FLASH_TRACE_SYNC || rec->time_ns < t->last_ns)
		return false;
	if (rec->flags & ~FLASH_TRACE_FUA || (rec->flags && rec->op != FLASH_TRACE_WRITE))
		return false;
	if (rec->op != FLASH_TRACE_WRITE && rec->data != FLASH_TRACE_NO_DATA)
		return false;
	if (!has_range)
		return !rec->off_bytes && !rec->len_bytes;
	return rec->len_bytes && rec->len_bytes % SECTOR == 0 && rec->off_bytes % SECTOR == 0 &&
	       rec->off_bytes <= t->volume_bytes &&
	       rec->len_bytes <= t->volume_bytes - rec->off_bytes;
}

int flash_trace_next(struct flash_trace *t, struct flash_trace_record *ret)
{
	struct flash_trace_record rec;
	struct bytes_reader r = { .size_bytes = FLASH_TRACE_RECORD_BYTES };
	bool zero;

	if (t->next >= t->records)
		return 0;
	if (t->next < t->batch_first || t->next >= t->batch_first + t->batch_n) {
		uint64_t n = min_u64(BATCH, t->records - t->next);
		int e = io_pread_full(t->fd, t->batch, n * FLASH_TRACE_RECORD_BYTES,
				      FLASH_TRACE_HEADER_BYTES +
					      t->next * FLASH_TRACE_RECORD_BYTES);

		t->batch_n = 0;
		if (e < 0)
			return e;
		t->batch_first = t->next;
		t->batch_n = n;
	}
	r.p = t->batch + (t->next - t->batch_first) * FLASH_TRACE_RECORD_BYTES;
	rec.time_ns = get_u64(&r);
	rec.off_bytes = get_u64(&r);
	rec.data = get_u64(&r);
	rec.len_bytes = (uint32_t)get_uint(&r, 4);
	rec.op = get_u8(&r);
	rec.flags = get_u8(&r);
	zero = get_zeroes(&r, 2);
	if (!zero || !is_valid(t, &rec))
		return -EBADMSG;
	t->last_ns = rec.time_ns;
	t->next++;
	*ret = rec;
	return 1;
}

int flash_trace_contents(struct flash_trace *t, const struct flash_trace_record *rec, void *buf)
{
	if (t->data_fd < 0)
		return -ENODATA;
	if (rec->data == FLASH_TRACE_NO_DATA) {
		memset(buf, 0, rec->len_bytes);
		return 0;
	}
	return io_pread_full(t->data_fd, buf, rec->len_bytes, rec->data);
}
