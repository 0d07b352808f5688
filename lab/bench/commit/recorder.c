/* SPDX-License-Identifier: MIT */
/*
 * Records the requests to a card: a file on a FUSE mount, for a loop device or a virtual machine on
 * top of it.
 *
 *	recorder IMAGE MOUNTPOINT TRACE [no-contents]
 *
 * MOUNTPOINT/card is IMAGE; its writes, flushes and discards go to TRACE.trace and TRACE.data
 * (sim/trace.h) in the order of their answers. MOUNTPOINT/mark takes words, one per write(2):
 *
 *	on		starts recording
 *	off		stops recording
 *	clock NS	sets virtual time to NS; before the first of these, time is the real time
 *			since the first "on"
 *	commit, sync	a commit point or a sync point
 *
 * A mark is answered when all earlier answers have been recorded. With no-contents there is no
 * TRACE.data: for traces that are only estimated. Runs until it is unmounted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/cardmount.h"
#include "sim/trace.h"

#define DISCARD_BYTES ((uint64_t)UINT32_MAX + 1 - MIB)

static struct {
	struct flash_trace_writer *trace;
	bool on, clock_set;
	int failed;
	uint64_t start_ns, clock_ns;
} rec;

static void put(enum flash_trace_op op, uint64_t off_bytes, uint64_t len_bytes, const void *buf)
{
	struct flash_trace_record r = { .time_ns = rec.clock_set ? rec.clock_ns
								 : now_ns() - rec.start_ns,
					.off_bytes = off_bytes,
					.len_bytes = (uint32_t)len_bytes,
					.op = (uint8_t)op };

	if (rec.on && !rec.failed)
		rec.failed = flash_trace_add(rec.trace, &r, buf);
}

static int mark(const char *buf, size_t size)
{
	char word[64];

	if (size >= sizeof(word))
		return -EINVAL;
	memcpy(word, buf, size);
	word[size] = 0;
	word[strcspn(word, "\n")] = 0;
	if (!strncmp(word, "clock ", 6)) {
		rec.clock_ns = strtoull(word + 6, NULL, 10);
		rec.clock_set = true;
	} else if (!strcmp(word, "on")) {
		rec.start_ns = rec.start_ns ? rec.start_ns : now_ns();
		rec.on = true;
	} else if (!strcmp(word, "off")) {
		rec.on = false;
	} else if (!strcmp(word, "commit")) {
		put(FLASH_TRACE_COMMIT, 0, 0, NULL);
	} else if (!strcmp(word, "sync")) {
		put(FLASH_TRACE_SYNC, 0, 0, NULL);
	} else {
		return -EINVAL;
	}
	/* the next reader of the trace finds all of it */
	if (!rec.failed)
		rec.failed = flash_trace_flush(rec.trace);
	return rec.failed;
}

static void done(enum cardmount_op op, uint64_t off_bytes, uint64_t len_bytes, const void *buf)
{
	if (op == CARDMOUNT_WRITE)
		put(FLASH_TRACE_WRITE, off_bytes, len_bytes, buf);
	if (op == CARDMOUNT_FLUSH)
		put(FLASH_TRACE_FLUSH, 0, 0, NULL);
	for (uint64_t n; op == CARDMOUNT_DISCARD && len_bytes; off_bytes += n, len_bytes -= n) {
		n = min_u64(len_bytes, DISCARD_BYTES);
		put(FLASH_TRACE_DISCARD, off_bytes, n, NULL);
	}
}

int main(int argc, char **argv)
{
	/* one thread: the order of the answers is the order of the records */
	struct cardmount m = {
		.word_name = "mark", .discards = true, .threads = 1, .done = done, .word = mark
	};
	struct stat st;
	char path[4096];
	bool contents = argc == 4;
	int r;

	if (!contents && (argc != 5 || strcmp(argv[4], "no-contents") != 0)) {
		fprintf(stderr, "usage: recorder IMAGE MOUNTPOINT TRACE [no-contents]\n");
		return 2;
	}
	m.fd = open(argv[1], O_RDWR | O_CLOEXEC);
	if (m.fd < 0 || fstat(m.fd, &st) < 0) {
		perror(argv[1]);
		return 1;
	}
	snprintf(path, sizeof(path), "%s.trace", argv[3]);
	r = flash_trace_create(&rec.trace, path, (uint64_t)st.st_size, contents);
	if (r < 0) {
		fprintf(stderr, "recorder: %s: %s\n", path, strerror(-r));
		return 1;
	}
	r = cardmount_serve(&m, argv[2]);
	if (!rec.failed)
		rec.failed = flash_trace_finish(rec.trace);
	if (rec.failed)
		fprintf(stderr, "recorder: %s: not all was recorded: %s\n", argv[3],
			strerror(-rec.failed));
	return r || rec.failed ? 1 : 0;
}
